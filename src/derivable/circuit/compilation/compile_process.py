"""A compiler in a process of its own: it can be stopped at any moment, and its chatter goes to a file.

Knowledge compilers are C and C++ code that neither returns for Ctrl-C nor looks at a clock, prints
statistics to stdout, and now and then crashes. So they run as
`python -m derivable.circuit.compilation.compile_worker JOB FOLDER`, a fresh interpreter rather than a fork: safe
under threads, notebooks and test runners, and no demand on the user's main module. Input and output
are files in a temporary folder.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

import derivable
from derivable.core import diagnostics
from derivable.core.diagnostics import CompileTimeout, DerivableError, OutOfMemory
from derivable.core.executable import python_executable
from derivable.core.interrupts import end, waiter
from derivable.core.progress import NEVER, Deadline
from derivable.core.progress import progress as progress_bar

WORKER = "derivable.circuit.compilation.compile_worker"
LOG, PROGRESS, ERROR = "log.txt", "progress.txt", "error.json"
QUIET_SECONDS = 1.0  # no progress bar before that


class CompilerError(DerivableError):
    """A knowledge compiler crashed or ran out of memory."""


@contextlib.contextmanager
def work_folder() -> Iterator[Path]:
    """A temporary folder for the files of one compilation, removed afterwards."""
    with TemporaryDirectory(prefix="derivable-") as name:
        yield Path(name)


def run_worker(
    job: str,
    folder: Path,
    *,
    name: str,
    deadline: Deadline = NEVER,
    progress: bool | None = None,
    memory_limit: int | None = None,
    size: str = "",
    hint: str = "",
    after_crash: str | None = None,
    program: str | None = None,
) -> None:
    """Run one job of `compile_worker` on the files in `folder` and wait for it.

    name        the compiler, for messages
    deadline    when the process is killed and CompileTimeout raised
    memory_limit  resident bytes of the process (on Linux); when it has more, it is killed and OutOfMemory raised
    size        what it compiles, for messages of limits
    hint        for one that does not finish: what helps besides a higher limit
    after_crash for one that crashes, but for lack of memory
    program     the text of one of Python that needs what is installed alone, and gets the job, the folder and the
                number of this process; None for `compile_worker`
    progress    show a bar after a second: True, False, or None for "if stderr is a terminal"

    KeyboardInterrupt, like any exception, kills the process before it goes on up.
    Raises CompilerError if the process crashed, or what the job itself raised.
    """
    python = python_executable()
    if python is None:
        raise CompilerError(
            f"{name} cannot start: it needs a process of Python, and sys.executable is {sys.executable!r}",
            hint="set sys.executable to a Python that has derivable",
        )
    paths = [path or os.getcwd() for path in sys.path]
    package_root = str(Path(derivable.__file__).parents[1])
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([package_root, *paths])}
    with ExitStack() as stack:
        log = stack.enter_context(open(folder / LOG, "wb"))
        process = subprocess.Popen(
            [
                python,
                "-P",
                # What sites add to the path is on ours already, and takes as long to read as Python to start.
                *(("-m", WORKER) if program is None else ("-S", "-c", program)),
                job,
                str(folder),
                str(os.getpid()),
            ],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env=environment,
        )
        stack.callback(end, process)
        _wait(process, folder, name, deadline, progress, memory_limit, size, hint)
    if process.returncode != 0:
        raise _failure(process.returncode, folder, name, after_crash)


def _wait(
    process: subprocess.Popen,
    folder: Path,
    name: str,
    deadline: Deadline,
    progress: bool | None,
    memory_limit: int | None,
    size: str,
    hint: str,
) -> None:
    thread, started = waiter(process), time.monotonic()
    with ExitStack() as stack:
        advance, shown = None, 0.0
        while True:
            pause = 0.1 if deadline.end is None else min(0.1, deadline.end - time.monotonic())
            if pause <= 0:
                raise CompileTimeout(
                    f"{name} did not finish within {deadline.time_limit:g} s, on {size}",
                    hint=f"raise time_limit, or {hint}",
                )
            thread.join(pause)
            if not thread.is_alive():
                return
            used = 0 if memory_limit is None else resident_bytes(process.pid)
            if memory_limit is not None and used > memory_limit:
                raise OutOfMemory(
                    f"{name} takes {used:,} bytes, on {size}, and memory_limit is {memory_limit:,}",
                    hint=f"raise memory_limit, or {hint}",
                )
            if time.monotonic() - started > QUIET_SECONDS and progress is not False:
                done, total, note = _read_progress(folder)
                if advance is None:
                    advance = stack.enter_context(progress_bar(f"compiling ({name})", total, enabled=progress))
                advance(max(0.0, done - shown), note)
                shown = max(shown, done)


def resident_bytes(pid: int) -> int:
    """Memory of a process, 0 where that is not known."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return 0


def _read_progress(folder: Path) -> tuple[float, float | None, str]:
    """The last whole line of the progress file: steps done, steps in all, note."""
    with contextlib.suppress(OSError, ValueError):
        with open(folder / PROGRESS, "rb") as file:
            file.seek(0, os.SEEK_END)
            file.seek(max(0, file.tell() - 200))
            lines = file.read().decode().split("\n")
        if len(lines) >= 2:
            done, total, note = [*lines[-2].split(" ", 2), "", ""][:3]
            return float(done), float(total), note
    return 0.0, None, ""


def _failure(code: int, folder: Path, name: str, after_crash: str | None) -> DerivableError:
    with contextlib.suppress(OSError, ValueError):
        told = json.loads((folder / ERROR).read_text())
        kind = getattr(diagnostics, told["kind"], CompilerError)
        if not issubclass(kind, DerivableError):
            kind = CompilerError
        return kind(told["message"], hint=told["hint"])
    if code < 0:
        try:
            how = f"was ended by signal {signal.Signals(-code).name}"
        except ValueError:
            how = f"was ended by signal {-code}"
    else:
        how = f"ended with status {code}"
    tail = ""
    with contextlib.suppress(OSError):
        rows = (folder / LOG).read_bytes().decode("utf-8", "replace").strip().split("\n")
        told_rows = [row.strip() for row in rows[-3:] if row.strip() and not row.startswith("c ")]
        tail = f"; its last words: {' / '.join(told_rows)[:300]}" if told_rows else ""
    memory = -code == signal.SIGKILL or "MemoryError" in tail or "bad_alloc" in tail
    return CompilerError(
        f"{name} {how}{tail}",
        hint="it probably ran out of memory" if memory else after_crash,
    )
