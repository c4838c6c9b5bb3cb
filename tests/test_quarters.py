"""Which slow tests a commit runs, and that their examples are new ones."""

import os
import shutil
import subprocess

import hypothesis
import pytest

from quarters import quarter_of, quarter_of_commit


def test_cases_of_a_function_are_in_one_quarter():
    cases = ["tests/a.py::test_b", "tests/a.py::test_b[1-x]", "tests/a.py::test_b[2::y]"]
    assert len(set(map(quarter_of, cases))) == 1
    assert {quarter_of(f"tests/a.py::test_{number}") for number in range(50)} == {0, 1, 2, 3}


def commit(folder, files, date):
    """Make a commit of these files alone, with that date."""
    for old in folder.glob("*.txt"):
        old.unlink()
    for name, text in files.items():
        (folder / name).write_text(text)
    person = ["-c", "user.name=a", "-c", "user.email=a@b"]
    environment = os.environ | {"GIT_AUTHOR_DATE": date, "GIT_COMMITTER_DATE": date}
    for command in (["init", "-q"], ["add", "-A"], [*person, "commit", "-qm", "files"]):
        subprocess.run(["git", "-C", folder, *command], env=environment, check=True)


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
def test_the_quarter_is_of_the_files_alone(tmp_path):
    quarters = []
    for number in range(16):
        commit(tmp_path, {"a.txt": str(number)}, f"2026-01-01T00:{number:02d}:00Z")
        quarters.append(quarter_of_commit(str(tmp_path)))
    assert set(quarters) == {0, 1, 2, 3}
    for number in (3, 0, 7):
        commit(tmp_path, {"a.txt": str(number)}, f"2027-06-01T00:{number:02d}:00Z")
        assert quarter_of_commit(str(tmp_path)) == quarters[number]


def test_without_a_clone_or_git_it_is_the_first_quarter(tmp_path, monkeypatch):
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert quarter_of_commit(str(tmp_path)) == 0
    monkeypatch.setenv("PATH", str(tmp_path))
    assert quarter_of_commit() == 0


@pytest.mark.parametrize("suite", ["quick", pytest.param("slow", marks=pytest.mark.slow)])
def test_slow_tests_draw_new_examples(suite, request):
    """But not where a quarter of them decides whether a change lands."""
    decides = suite == "quick" or request.config.getoption("quarter") is not None
    assert hypothesis.settings().print_blob
    assert hypothesis.settings().derandomize == (decides and bool(os.environ.get("CI")))
