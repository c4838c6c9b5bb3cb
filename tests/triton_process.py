"""Scripts whose kernels of Triton are interpreted on the CPU, which is chosen when Triton is imported."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parent


def printed_by(script, *arguments):
    """What a script of the tests prints in a process of its own; a test without Triton is skipped."""
    pytest.importorskip("triton")
    path = TESTS / script
    paths = [str(TESTS.parent / "src"), str(TESTS), str(path.parent), os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": os.pathsep.join(paths)}
    command = [sys.executable, "-W", "ignore", str(path), *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stderr
    return done.stdout
