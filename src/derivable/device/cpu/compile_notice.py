"""Says, once and only to a person, that kernels are being compiled: the first use on a machine takes a while."""

from __future__ import annotations

import sys

from numba.core import event

NOTICE = "derivable: compiling kernels for this machine; they are cached for the next time"


class CompileNotice(event.Listener):
    """Writes one line to stderr when the first kernel of this library is compiled, if stderr is a terminal."""

    def __init__(self) -> None:
        self.said = False

    def on_start(self, event) -> None:
        if self.said or not sys.stderr.isatty():
            return
        module = getattr(event.data["dispatcher"].py_func, "__module__", None) or ""
        if module.startswith("derivable."):
            self.said = True
            print(NOTICE, file=sys.stderr, flush=True)

    def on_end(self, event) -> None:
        """Nothing to say."""


def install() -> None:
    """Listen to Numba's compilations; loading a kernel from the cache is none."""
    event.register("numba:compile", CompileNotice())
