"""Says, once and only to a person, that kernels are being compiled: the first use on a machine takes a while.

Only where a person reads it, on a terminal or in a notebook, and when kernels of this library have been compiling for
`PATIENCE` seconds in all.
"""

from __future__ import annotations

import sys
import threading
import time

NOTICE = "derivable: compiling kernels for this machine; they are cached for the next time (`derivable warm` does all)"
# Seconds of compiling before anything is said.
PATIENCE = 1.0
_timer: threading.Timer | None = None
_began, _spent, _is_said = 0.0, 0.0, False


def begin() -> None:
    """A kernel is compiled now; others before `end` are compiled for it."""
    global _timer, _began
    if _timer is not None or _is_said or not (sys.stderr.isatty() or "ipykernel" in sys.modules):
        return
    _began = time.monotonic()
    _timer = threading.Timer(max(0.0, PATIENCE - _spent), _say)
    _timer.daemon = True
    _timer.start()


def end() -> None:
    """No kernel is compiled any more."""
    global _timer, _spent
    if _timer is not None:
        _timer.cancel()
        _timer = None
        _spent += time.monotonic() - _began


def _say() -> None:
    global _is_said
    if not _is_said:
        _is_said = True
        print(NOTICE, file=sys.stderr, flush=True)
