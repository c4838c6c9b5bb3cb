"""The child process: `python -m` this module with JOB FOLDER PARENT. See `compile_process`."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import threading
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

from derivable.circuit.compilation.compile_process import ERROR
from derivable.core.diagnostics import DerivableError

# Bytes of address space, the first that there are: pages that are not reached are never touched.
STACKS = (1 << 30, 1 << 28, 1 << 26)


def die_with_parent(parent: int) -> None:
    """Ask the kernel to kill this process when its parent goes; only Linux can. Checked once for the time before."""
    if sys.platform == "linux":
        import ctypes

        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
    if os.getppid() != parent:
        os._exit(1)


def limit_memory() -> None:
    """At most as much address space as the machine has memory: a formula too hard ends in an error, not in swapping."""
    with contextlib.suppress(ImportError, ValueError, OSError, AttributeError):
        import resource

        soft = max(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"), 8 << 30)  # D4 reserves 4 GiB at once
        hard = resource.getrlimit(resource.RLIMIT_AS)[1]
        if sys.platform == "linux" and (hard == resource.RLIM_INFINITY or hard > soft):
            resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def with_deep_stack(work: Callable[[], int]) -> int:
    """What `work` returns, from a thread of a large stack: compilers recurse as deep as a vtree or a formula is."""
    results: list[int] = []
    for size in STACKS:
        threading.stack_size(size)
        thread = threading.Thread(target=lambda: results.append(work()))
        try:
            thread.start()
        except RuntimeError:  # no room for it
            continue
        thread.join()
        return results[0] if results else 1
    return work()


def main(job: str, folder: Path) -> int:
    try:
        import_module(f"derivable.circuit.compilation.compile_{job}").work(folder)
    except DerivableError as error:
        told = {"kind": type(error).__name__, "message": error.message, "hint": error.hint}
        (folder / ERROR).write_text(json.dumps(told))
        return 1
    except MemoryError:
        print("MemoryError")
        return 1
    return 0


if __name__ == "__main__":
    die_with_parent(int(sys.argv[3]))
    limit_memory()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the parent decides
    status = with_deep_stack(lambda: main(sys.argv[1], Path(sys.argv[2])))
    sys.stdout.flush()
    os._exit(status)  # the compilers' own clean-up can take longer than the compilation
