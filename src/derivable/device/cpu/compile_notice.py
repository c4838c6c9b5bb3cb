"""Says, once and only to a person, that kernels are being compiled: the first use on a machine takes a while."""

from __future__ import annotations

import sys
import threading
import time

from numba.core import event

NOTICE = "derivable: compiling kernels for this machine; they are cached for the next time (`derivable warm` does all)"
# Seconds of compiling before anything is said.
PATIENCE = 1.0


class CompileNotice(event.Listener):
    """Writes one line to stderr when kernels of this library have been compiling for `PATIENCE` seconds in all.

    Only where a person reads it: on a terminal or in a notebook.
    """

    def __init__(self) -> None:
        self.said = False
        self.spent = 0.0
        self.depth = 0
        self.begin = 0.0
        self.timer: threading.Timer | None = None

    def on_start(self, event) -> None:
        self.depth += 1
        if self.depth > 1 or self.said or not (sys.stderr.isatty() or "ipykernel" in sys.modules):
            return
        module = getattr(event.data["dispatcher"].py_func, "__module__", None) or ""
        if module.startswith("derivable"):
            self.begin = time.monotonic()
            self.timer = threading.Timer(max(0.0, PATIENCE - self.spent), self.say)
            self.timer.daemon = True
            self.timer.start()

    def on_end(self, event) -> None:
        self.depth -= 1
        if self.depth == 0 and self.timer is not None:
            self.timer.cancel()
            self.timer = None
            self.spent += time.monotonic() - self.begin

    def say(self) -> None:
        if not self.said:
            self.said = True
            print(NOTICE, file=sys.stderr, flush=True)


def install() -> None:
    """Listen to Numba's compilations; loading a kernel from the cache is none."""
    event.register("numba:compile", CompileNotice())
