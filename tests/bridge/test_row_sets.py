"""Joins and sets of rows by Triton's kernels, run on the CPU by its interpreter in a process of its own."""

import os
import subprocess
import sys
from pathlib import Path

import pytest


def test_kernels_find_the_rows_that_torch_finds():
    pytest.importorskip("triton")
    here = Path(__file__).parent
    paths = [str(here.parents[1] / "src"), str(here.parent), os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": os.pathsep.join(paths)}
    done = subprocess.run(
        [sys.executable, str(here / "row_set_cases.py")], env=environment, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["test_sets", "test_pairs", "test_programs", "test_the_comparison_can_fail"]
