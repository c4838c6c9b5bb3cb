"""Kernels compile wherever the library is installed: caches shared, read-only, or impossible."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from derivable.core.cache import cache_directory
from derivable.core.diagnostics import DerivableWarning

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
        "DERIVABLE_CACHE_DIR": str(tmp_path),
        "PYTHONPATH": str(PACKAGE.parent),
    }
    first = [start(environment) for _ in range(2)]
    assert [answer_of(process) for process in first] == [ANSWER] * 2
    # The kernel of the scan at least; the other one may have come with the package.
    assert any(tmp_path.rglob("*.o"))
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
    }
    assert answer_of(start(environment)) == ANSWER


def folder_with(tmp_path, mode, *, content=True):
    folder = tmp_path / "cache"
    folder.mkdir()
    if content:
        (folder / "module.py").write_text("")
    folder.chmod(mode)
    return folder


@pytest.fixture
def chosen(monkeypatch):
    """The folder that is taken where the environment names this one."""

    def choose(folder):
        monkeypatch.setenv("DERIVABLE_CACHE_DIR", str(folder))
        return cache_directory.__wrapped__()

    return choose


@pytest.mark.parametrize("mode", [0o700, 0o755, 0o750])
def test_a_folder_that_only_its_owner_writes_is_taken(tmp_path, chosen, mode):
    folder = folder_with(tmp_path, mode)
    assert chosen(folder) == folder.resolve()
    link = tmp_path / "link"
    link.symlink_to(folder)
    assert chosen(link) == folder.resolve()


@pytest.mark.parametrize("mode", [0o777, 0o775, 0o702, 0o1777])
def test_a_folder_that_others_may_write_is_not_taken(tmp_path, chosen, mode):
    folder = folder_with(tmp_path, mode)
    with pytest.warns(DerivableWarning, match=rf"other users may write there \(mode {mode:o}\)"):
        assert chosen(folder) != folder.resolve()
    assert [path.name for path in folder.iterdir()] == ["module.py"]


def test_an_empty_folder_becomes_its_owners(tmp_path, chosen):
    folder = folder_with(tmp_path, 0o775, content=False)
    assert chosen(folder) == folder.resolve()
    assert folder.stat().st_mode & 0o777 == 0o755


def test_a_folder_that_others_may_replace_is_not_taken(tmp_path, chosen):
    (tmp_path / "open").mkdir(0o777)
    (tmp_path / "open").chmod(0o777)
    folder = folder_with(tmp_path / "open", 0o700)
    with pytest.warns(DerivableWarning, match="other users may replace it, as they may write to .*open"):
        assert chosen(folder) != folder.resolve()
    # As the folder of temporary files is.
    (tmp_path / "open").chmod(0o1777)
    assert chosen(folder) == folder.resolve()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_a_folder_of_another_user_is_not_taken(tmp_path, chosen):
    folder = folder_with(tmp_path, 0o755)
    os.chown(folder, 65534, 65534)
    with pytest.warns(DerivableWarning, match="belongs to the user of number 65534"):
        assert chosen(folder) != folder.resolve()


def test_nothing_of_the_working_directory_is_run_or_read(tmp_path):
    """Numba reads a file there that says where its pickled indexes are, and Python would import modules from there."""
    command = shutil.which("derivable", path=str(Path(sys.executable).parent))
    if command is None:
        pytest.skip("the package is not installed with its command")
    (tmp_path / ".numba_config.yaml").write_text(f"cache_dir: {tmp_path / 'elsewhere'}\n")
    for module in ("numba", "numpy", "llvmlite", "rich", "lark", "pysdd", "sitecustomize"):
        (tmp_path / f"{module}.py").write_text(f"open({str(tmp_path / 'RAN')!r}, 'w')\n")
    (tmp_path / "p.scl").write_text(
        "rel n = {0} rel n(x + 1) = n(x), x < 300000 rel m(x, x % 7) = n(x)\n"
        "rel k(a, c) = c := count(x: m(x, a)) rel 0.5::coin(x) = k(x, _) query coin"
    )
    before = {path.name for path in tmp_path.iterdir()}
    ran = subprocess.run(
        [command, "run", "p.scl", "--provenance", "exact"], cwd=tmp_path, capture_output=True, text=True, timeout=300
    )
    assert ran.returncode == 0, ran.stderr
    assert "0.5" in ran.stdout
    assert {path.name for path in tmp_path.iterdir()} == before
