"""Kernels compile wherever the library is installed: caches shared, read-only, or impossible."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

PACKAGE = Path(__file__).parents[2] / "src" / "derivable"

# One kernel of the package and a generated one.
PROGRAM = """
import numpy as np
from derivable import parallel
from derivable.circuit.kernels.and_or import heights
found = np.zeros(2, np.int32)
heights(np.array([0, 0, 1]), np.zeros(1, np.int32), found)
print(found[1], parallel.scan("add", np.array([0.5, 0.25]))[1])
"""
ANSWER = "1 0.75"


def start(environment: dict[str, str]) -> subprocess.Popen:
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM],
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def answer_of(process: subprocess.Popen) -> str:
    out, error = process.communicate(timeout=300)
    assert process.returncode == 0, error[-4000:]
    return out.strip()


def test_several_processes_fill_one_cache(tmp_path):
    environment = {
        "NUMBA_CACHE_DIR": str(tmp_path),
        "DERIVABLE_CACHE_DIR": str(tmp_path / "generated"),
        "PYTHONPATH": str(PACKAGE.parent),
    }
    first = [start(environment) for _ in range(2)]
    assert [answer_of(process) for process in first] == [ANSWER] * 2
    cached = [path.name for path in tmp_path.rglob("*.nbc")]
    assert any("heights" in name for name in cached)
    assert any("scan" in name for name in cached)
    assert answer_of(start(environment)) == ANSWER


def test_no_place_can_be_written(tmp_path):
    """An installation by root, used by an account without a home: files stand where the caches would be."""
    copy = tmp_path / "site" / "derivable"
    shutil.copytree(PACKAGE, copy, ignore=shutil.ignore_patterns("__pycache__"))
    for folder in [copy, *(path for path in copy.rglob("*") if path.is_dir())]:
        (folder / "__pycache__").write_text("in the way")
    nowhere = tmp_path / "file"
    nowhere.write_text("")
    environment = {
        "PYTHONPATH": str(copy.parent),
        "HOME": str(nowhere),
        "XDG_CACHE_HOME": str(nowhere / "cache"),
        "PYTHONDONTWRITEBYTECODE": "1",
        "NUMBA_CACHE_DIR": str(nowhere / "numba"),
    }
    assert answer_of(start(environment)) == ANSWER
