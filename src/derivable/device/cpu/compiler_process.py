"""Kernels that another process compiles, while columns or Python do their work.

It writes them to Numba's cache on disk, from where they are loaded in milliseconds. A thread would not do: the compiler
has Python's lock half of the time, and Numba's own, for which the loading of any kernel waits, all of it.
"""

from __future__ import annotations

import atexit
import json
import os
import subprocess
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from itertools import count
from pathlib import Path
from queue import PriorityQueue
from typing import Any

import derivable
from derivable.algebra.expr.generated import cache_directory
from derivable.core.forks import renew_in_children
from derivable.device.cpu.threads import available_cores

_lock = threading.Lock()
_compiler: Compiler | None = None


class Compilation:
    """A kernel that is being compiled; `is_done` when it is on disk, or will never be there."""

    def __init__(self, compiler: Compiler | None):
        self._compiler = compiler
        self._is_done = compiler is None

    @property
    def is_done(self) -> bool:
        # A forked child does not hear from the compiler of its parent.
        return self._is_done or self._compiler is not _compiler


class Compiler:
    """The process, and the thread that hears from it."""

    def __init__(self) -> None:
        paths = [str(Path(derivable.__file__).parents[1]), *(path or os.getcwd() for path in sys.path)]
        environment = os.environ | {
            "PYTHONPATH": os.pathsep.join(paths),
            "DERIVABLE_CACHE_DIR": str(cache_directory()),
            "DERIVABLE_TIER": "compiled",
        }
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-c", f"from {__name__} import compile_all; compile_all({os.getpid()})"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environment,
            # Ctrl-C is for this process.
            start_new_session=True,
        )
        self.waiting: dict[int, Compilation] = {}
        self.numbers = count()
        threading.Thread(target=self._listen, name="derivable-compiler", daemon=True).start()

    def ask(self, wanted: list) -> Compilation:
        asked, number = Compilation(self), next(self.numbers)
        self.waiting[number] = asked
        assert self.process.stdin is not None
        # One that has ended has nothing to say: `_listen` has seen that, or will.
        with suppress(OSError):
            self.process.stdin.write(json.dumps([number, *wanted]).encode() + b"\n")
            self.process.stdin.flush()
        return asked

    def _listen(self) -> None:
        assert self.process.stdout is not None
        for number in self.process.stdout:
            self.waiting.pop(int(number))._is_done = True
        self.process.wait()
        global _compiler
        with _lock:
            if _compiler is self:
                _compiler = None


def is_worth() -> bool:
    """Whether another process may compile while this one goes on."""
    return available_cores() > 1 and bool(sys.executable)


def begun(module: str, name: str, types: Sequence[str]) -> Compilation:
    """Begin to compile the kernel `name` of a module, a `tiers.Compilable`, for parameters of these types."""
    global _compiler
    with _lock:
        if _compiler is None:
            try:
                _compiler = Compiler()
            except OSError:
                # Where no process may be started.
                return Compilation(None)
        return _compiler.ask([module, name, list(types)])


def compile_all(parent: int) -> None:
    """What the process does: compile what it reads, and write a line after each.

    What was wanted last comes first: that is what a run waits for now. The process ends behind the kernel that it
    compiles when its parent has ended: short scripts would never have a kernel otherwise, and would begin to compile
    the same one in each run.
    """
    # Before anything else writes to where the other process reads.
    answers = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)
    wanted: PriorityQueue[tuple[int, list]] = PriorityQueue()
    threading.Thread(target=_read_all, args=(wanted,), daemon=True).start()
    while given := wanted.get()[1]:
        number, module, name, types = given
        is_compiled = False
        # Whatever fails here fails again for who calls it, with an error.
        with suppress(Exception):
            getattr(import_module(module), name).compile_for(types)
            is_compiled = True
        if is_compiled and os.getppid() != parent:
            return
        with suppress(OSError):
            answers.write(b"%d\n" % number)


def _read_all(wanted: PriorityQueue[tuple[int, list]]) -> None:
    """Have all that is asked for, the last first, and nothing behind the first."""
    for line in sys.stdin.buffer:
        given = json.loads(line)
        wanted.put((-given[0], given))
    wanted.put((1, []))


def _leave() -> None:
    if _compiler is not None:
        # Python is not to warn of a process that goes on.
        _compiler.process.returncode = 0


def _none() -> Any:
    return None


atexit.register(_leave)
renew_in_children(globals(), _lock=threading.Lock, _compiler=_none)
