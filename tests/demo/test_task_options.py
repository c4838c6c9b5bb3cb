"""What a task says before it begins: which data it reads, and what it lacks."""

import importlib.util
import sys
from pathlib import Path

import pytest

import experiment
import formulas
import kinship
import rna_folding
import transitive_closure


@pytest.fixture(autouse=True)
def no_folder(monkeypatch):
    monkeypatch.delenv("DERIVABLE_DATA", raising=False)


def ended(capsys, *arguments, **options):
    """What the options of a task print on standard error before they end the process."""
    with pytest.raises(SystemExit) as caught:
        experiment.options("", [*arguments], "picture", **options)
    assert caught.value.code == 2
    return capsys.readouterr().err


def test_a_folder_of_data_is_there(tmp_path, capsys):
    assert f"there is no {tmp_path / 'x'}" in ended(capsys, "--data", str(tmp_path / "x"))
    (tmp_path / "rna").mkdir()
    error = ended(capsys, "--data", str(tmp_path), files=["rna/a.csv"])
    assert f"there is no {tmp_path / 'rna' / 'a.csv'}" in error


def test_the_environment_is_held_to_the_same(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("DERIVABLE_DATA", str(tmp_path / "x"))
    assert f"there is no {tmp_path / 'x'}" in ended(capsys, files=["a"])


def test_the_data_that_are_used_are_named(tmp_path, capsys):
    (tmp_path / "a").write_text("")
    assert experiment.options("", ["--data", str(tmp_path)], "picture", files=["a"]).data == tmp_path
    assert capsys.readouterr().out == "data: a\n"
    assert experiment.options("", [], "picture", files=["a"]).data is None
    printed = capsys.readouterr().out
    assert "drawn by this script" in printed
    assert "(with --data: a)" in printed


@pytest.mark.parametrize("task", [formulas, kinship, rna_folding, transitive_closure], ids=lambda task: task.__name__)
def test_a_task_needs_its_data_only_if_it_is_to_read_them(task, tmp_path, capsys):
    with pytest.raises(SystemExit):
        task.main(["--data", str(tmp_path)])
    assert "there is no" in capsys.readouterr().err


def test_a_package_that_is_missing_is_named_before_the_task_begins(capsys, monkeypatch):
    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "scipy" else found(name))
    assert "this needs scipy: pip install 'derivable[demo,sparse]'" in ended(capsys, needs=["scipy"])


TASKS = sorted(path for path in Path(experiment.__file__).parent.glob("*.py") if path.stem != "experiment")


@pytest.mark.parametrize("task", TASKS, ids=lambda path: path.stem)
def test_a_plain_installation_is_told_what_to_install(task, capsys, monkeypatch):
    """Nothing of a task is run, or imported, before."""
    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name in ("torch", "scipy") else found(name))
    for name in ("extras", "experiment", "torch"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(SystemExit):
        exec(compile(task.read_text(), task, "exec"), {"__name__": "__main__"})
    assert "this needs torch: pip install 'derivable[demo,sparse]'" in capsys.readouterr().err


def test_base_pairs_are_read_as_literals(tmp_path):
    import gzip

    path = tmp_path / "a.csv.gz"
    with gzip.open(path, "wt") as file:
        file.write('sequence,base_pairs,len\nACGU,"[[1, 4]]",4\n')
    assert rna_folding.read_archive(path, 9)[0].pairs == {(0, 3)}
    with gzip.open(path, "wt") as file:
        file.write('sequence,base_pairs,len\nACGU,"[(1, ().__class__)]",4\n')
    with pytest.raises(ValueError, match="malformed"):
        rna_folding.read_archive(path, 9)


@pytest.mark.parametrize("text", ["9**9**9", "().__class__", "1+", "12", ""])
def test_formulas_are_digits_and_operators(text):
    with pytest.raises(ValueError, match="no formula"):
        formulas.value_of(text)
    assert formulas.value_of("1+2*3") == 7
