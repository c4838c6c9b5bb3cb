"""Folds as on a GPU, in Triton's interpreter, in a process of its own because that is chosen at import."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

SLOW = ["all_operators", "all_ways", "segments", "buckets", "types"]


@pytest.mark.parametrize(
    "names", ["few autograd refusals", *(pytest.param(name, marks=pytest.mark.slow) for name in SLOW)]
)
def test_kernels_of_gpus_are_the_reference(names):
    pytest.importorskip("triton")
    tests = Path(__file__).parents[1]
    paths = [str(tests.parent / "src"), str(tests), os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": os.pathsep.join(paths)}
    command = [sys.executable, "-W", "ignore", str(tests / "parallel" / "triton_fold_cases.py"), *names.split()]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=500, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == names.split()
