"""Scripts in processes of their own that need not import PyTorch and scikit-learn again.

A process that has imported them, and done nothing else, forks for each script. As `python forked.py` this file is that
process: it reads one request a line, and answers each with a line.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import runpy
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path

# What is not there is not needed either.
IMPORTED = ["torch", "torch.func", "sklearn.datasets", "derivable.nn.logic", "derivable.datalog.run.execute"]
IMPORTED += ["derivable.device.cpu.llvm_code", "derivable.tensor.call.compilation", "derivable.bridge.torch"]
# What every optimiser of PyTorch imports when it is made.
IMPORTED += ["torch._dynamo"]


class Forked:
    """Runs scripts; where processes cannot be forked safely, each starts anew."""

    def __init__(self) -> None:
        self.parent: subprocess.Popen[str] | None = None

    def run(self, script: Path, *arguments: object, cwd: Path, env: Mapping[str, str]) -> subprocess.CompletedProcess:
        """The exit status and what was printed. env  the whole environment, with PYTHONPATH"""
        command = [str(script), *map(str, arguments)]
        if sys.platform != "linux":
            return subprocess.run([sys.executable, *command], cwd=cwd, env=dict(env), capture_output=True, text=True)
        if self.parent is None:
            self.parent = subprocess.Popen(
                [sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=dict(env)
            )
        assert self.parent.stdin is not None
        assert self.parent.stdout is not None
        with tempfile.TemporaryDirectory() as folder:
            request = {
                "command": command,
                "cwd": str(cwd),
                "env": dict(env),
                "out": f"{folder}/out",
                "err": f"{folder}/err",
            }
            print(json.dumps(request), file=self.parent.stdin, flush=True)
            status = int(self.parent.stdout.readline())
            texts = [Path(request[name]).read_text() for name in ("out", "err")]
        return subprocess.CompletedProcess(command, status, *texts)

    def close(self) -> None:
        if self.parent is not None:
            self.parent.communicate()


def _run(command: Sequence[str], cwd: str, env: Mapping[str, str], out: str, err: str) -> int:
    """What `python COMMAND` does, in this process."""
    for name, target in (("stdout", out), ("stderr", err)):
        opened = os.open(target, os.O_WRONLY | os.O_CREAT)
        os.dup2(opened, getattr(sys, f"__{name}__").fileno())
    os.environ.clear()
    os.environ.update(env)
    os.chdir(cwd)
    sys.argv = list(command)
    sys.path[:0] = [str(Path(command[0]).parent)]
    try:
        runpy.run_path(command[0], run_name="__main__")
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


def main() -> None:
    for name in IMPORTED:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    for line in sys.stdin:
        child = os.fork()
        if not child:
            status = _run(**json.loads(line))
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(status)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)


if __name__ == "__main__":
    main()
