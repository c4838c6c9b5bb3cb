"""Kernels that another process compiles, while columns or Python do their work.

It writes them to Numba's cache on disk, from where they are loaded in milliseconds. A thread would not do: the compiler
has Python's lock half of the time, and Numba's own, for which the loading of any kernel waits, all of it.

The process ends with this one, and what it was compiling is lost. If DERIVABLE_COMPILE_AFTER_EXIT is set in the
environment, it ends behind the kernel that it is compiling: short scripts that run often never have one otherwise.
"""

from __future__ import annotations

import atexit
import json
import math
import os
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from itertools import count
from pathlib import Path
from queue import PriorityQueue

import derivable
from derivable.core.cache import cache_directory
from derivable.core.executable import python_executable
from derivable.core.forks import renew_in_children
from derivable.core.interrupts import end, sigint_deferred
from derivable.device.cpu import compile_notice
from derivable.device.cpu.threads import available_cores

# Processes that compile at once: a driver and its stores, say, neither of which does anything without the other.
MOST = 2
# By how much these processes come after others.
NICE = 5
# Seconds between looks whether a kernel is there.
LOOKS = 0.002
_lock = threading.Lock()
_compilers: list[Compiler] = []


class Compilation:
    """A kernel that is being compiled; `is_done` when it is on disk, or will never be there."""

    def __init__(self, compiler: Compiler | None):
        self._compiler = compiler
        self._has_ended = False

    @property
    def is_done(self) -> bool:
        # A forked child does not hear from the compiler of its parent.
        return self._has_ended or self._compiler not in _compilers

    def wait(self, seconds: float = math.inf) -> None:
        """Return when it is done, or after some seconds."""
        end = time.monotonic() + seconds
        # Ctrl-C while this waits for a `threading.Event` could leave its lock taken, and `end` would wait for ever.
        with compile_notice.counted():
            while not self.is_done and (left := end - time.monotonic()) > 0:
                time.sleep(min(left, LOOKS))

    def end(self) -> None:
        self._has_ended = True


class Compiler:
    """The process, and the thread that hears from it."""

    def __init__(self) -> None:
        package = Path(derivable.__file__).parents[1]
        paths = [str(package), *map(os.path.abspath, sys.path)]
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
            # Numba reads settings from the working directory.
            cwd=package,
            # Ctrl-C is for this process.
            start_new_session=True,
        )
        self.waiting: dict[int, Compilation] = {}
        self.numbers = count()
        threading.Thread(target=self._listen, name="derivable-compiler", daemon=True).start()

    def begin(self, is_urgent: bool, wanted: list) -> Compilation:
        begun, number = Compilation(self), next(self.numbers)
        self.waiting[number] = begun
        assert self.process.stdin is not None
        # One that has ended has nothing to say: `_listen` has seen that, or will.
        with suppress(OSError):
            self.process.stdin.write(json.dumps([number, is_urgent, *wanted]).encode() + b"\n")
            self.process.stdin.flush()
        return begun

    def _listen(self) -> None:
        assert self.process.stdout is not None
        for number in self.process.stdout:
            self.waiting.pop(int(number)).end()
        self.process.wait()
        with _lock:
            if self in _compilers:
                _compilers.remove(self)


def is_crowded() -> bool:
    """Whether what compiles has all processors, so that this process would take its time."""
    return sum(bool(one.waiting) for one in _compilers) >= available_cores()


def is_worth() -> bool:
    """Whether another process may compile while this one goes on: not in a program that Python is only a part of."""
    return available_cores() > 1 and python_executable() is not None


def goes_on() -> bool:
    """Whether a kernel that is being compiled when this process ends is to be on disk for the next one."""
    return os.environ.get("DERIVABLE_COMPILE_AFTER_EXIT", "0") not in ("", "0")


def begun(module: str, name: str, types: Sequence[str], is_urgent: bool = False) -> Compilation:
    """Begin to compile the kernel `name` of a module, a `tiers.Compilable`, for parameters of these types.

    is_urgent  whether it comes before those that are not
    """
    # What a Ctrl-C ended halfway would never be done.
    with sigint_deferred(), _lock:
        free = min(_compilers, key=lambda one: len(one.waiting), default=None)
        if free is None or (free.waiting and is_urgent and len(_compilers) < min(MOST, available_cores())):
            try:
                free = Compiler()
            except OSError:
                # Where no process may be started.
                if free is None:
                    return Compilation(None)
            else:
                _compilers.append(free)
        return free.begin(is_urgent, [module, name, list(types)])


def compile_all(parent: int) -> None:
    """What the process does: compile what it reads, and write a line after each.

    Of those that are as urgent, what was wanted last comes first: that is what a run waits for now.
    """
    with suppress(AttributeError, OSError):
        # The run goes on, and comes first.
        os.nice(NICE)
    # Before anything else writes to where the other process reads.
    answers = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)
    wanted: PriorityQueue[tuple[int, int, list]] = PriorityQueue()
    threading.Thread(target=_read_all, args=(wanted,), daemon=True).start()
    while given := wanted.get()[2]:
        number, _, module, name, types = given
        is_compiled = False
        # Whatever fails here fails again for who calls it, with an error.
        with suppress(Exception):
            getattr(import_module(module), name).compile_for(types)
            is_compiled = True
        if is_compiled and os.getppid() != parent:
            return
        with suppress(OSError):
            answers.write(b"%d\n" % number)


def _read_all(wanted: PriorityQueue[tuple[int, int, list]]) -> None:
    """Have all that is wanted; the end of it is the end of the parent, however that ended."""
    for line in sys.stdin.buffer:
        number, is_urgent, *_ = given = json.loads(line)
        wanted.put((1 - is_urgent, -number, given))
    if not goes_on():
        os._exit(0)
    wanted.put((2, 0, []))


def _end_all() -> None:
    for compiler in list(_compilers):
        if not goes_on():
            end(compiler.process)


atexit.register(_end_all)
renew_in_children(globals(), _lock=threading.Lock, _compilers=list)
