"""The demos from the command line to the picture: short runs here, the promised accuracies in the slow ones."""

import importlib.util
import json

import numpy as np
import pytest

from data import data_path
from derivable.cli.main import USER_ERROR, main
from derivable.core.diagnostics import DerivableError
from derivable_demos import command
from derivable_demos.digits import Settings, learn
from derivable_demos.handwriting import scikit_digits
from derivable_demos.picture import digits_picture

PNG = b"\x89PNG\r\n\x1a\n"


def document_of(capsys, arguments):
    assert main(arguments) == 0
    captured = capsys.readouterr()
    return json.loads(captured.out)


def test_digits_prints_a_line_each_and_draws(tmp_path, capsys):
    output = tmp_path / "picture.png"
    assert main(["demo", "digits", "--batches", "5", "--subset", "200", "--output", str(output)]) == 0
    captured = capsys.readouterr()
    assert "no effect" not in captured.err
    lines = captured.out.splitlines()
    assert [line.split(":")[0] for line in lines] == [
        "training seconds",
        "symbolic seconds",
        "sum accuracy (test)",
        "digit accuracy (test)",
        "picture",
    ]
    assert output.read_bytes().startswith(PNG)
    assert [path.name for path in tmp_path.iterdir()] == ["picture.png"]


def test_digits_learn_from_a_few_pairs(tmp_path, capsys):
    """700 images, 350 sums, a few seconds: far above the 10 % of guessing, and the same twice."""
    arguments = ["demo", "digits", "--epochs", "12", "--subset", "700", "--output", str(tmp_path / "a.png"), "--json"]
    first = document_of(capsys, arguments)
    assert first["num_train_pairs"] == 350
    assert first["digit_accuracy"] > 0.9
    assert 0 < first["symbolic_seconds"] < first["training_seconds"]
    assert np.trace(np.array(first["confusion"])) == round(first["digit_accuracy"] * 359)
    second = document_of(capsys, arguments)
    assert second["digit_accuracy"] == first["digit_accuracy"]


@pytest.mark.parametrize(
    "provenance", ["minmaxprob", "addmultprob", pytest.param("topkproofs", marks=pytest.mark.slow)]
)
def test_other_provenances_train(tmp_path, capsys, provenance):
    arguments = ["demo", "digits", "--provenance", provenance, "--batches", "3", "--subset", "100", "--json"]
    document = document_of(capsys, [*arguments, "--output", str(tmp_path / "a.png")])
    assert document["settings"]["provenance"] == provenance


@pytest.mark.parametrize("encoding", ["sums", "columns"])
def test_numbers_of_two_digits(tmp_path, capsys, encoding):
    output = tmp_path / "a.png"
    arguments = [
        "demo",
        "digits",
        "--digits",
        "2",
        "--encoding",
        encoding,
        "--batches",
        "3",
        "--subset",
        "100",
        "--json",
    ]
    document = document_of(capsys, [*arguments, "--output", str(output)])
    assert document["num_train_pairs"] == 25 * document["settings"]["rounds"]
    assert output.read_bytes().startswith(PNG)


def test_mnist(tmp_path, capsys):
    folder = str(data_path("mnist"))
    arguments = ["demo", "digits", "--data", "mnist", folder, "--subset", "2000", "--batches", "3", "--json"]
    document = document_of(capsys, [*arguments, "--output", str(tmp_path / "a.png")])
    assert document["data"] == "MNIST"
    assert document["settings"]["batch_size"] == 128


def test_sudoku(tmp_path, capsys):
    output = tmp_path / "grid.png"
    arguments = ["demo", "sudoku", "--grids", "40", "--batches", "5", "--output", str(output), "--json"]
    document = document_of(capsys, arguments)
    assert sorted(document["matching"]) == [1, 2, 3, 4]
    assert output.read_bytes().startswith(PNG)


BAD = {
    "folder": (["--output", "absent/a.png"], "no such directory"),
    "subset": (["--subset", "5000"], "1438 to train on"),
    "device": (["--device", "quantum"], "torch cannot use device 'quantum'"),
    "mnist": (["--data", "mnist", "absent"], "no file train-images"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_options(name, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    options, message = BAD[name]
    assert main(["demo", "digits", *options]) == USER_ERROR
    assert message in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("demo", ["digits", "sudoku"])
@pytest.mark.parametrize(
    ("lacking", "named", "options"),
    [
        (("torch", "matplotlib", "sklearn"), "torch, matplotlib, scikit-learn", []),
        (("sklearn",), "scikit-learn", []),
        (("matplotlib", "sklearn"), "matplotlib", ["--data", "mnist", "folder"]),
    ],
)
def test_all_packages_that_a_demo_lacks_are_named_before_it_begins(
    demo, lacking, named, options, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    find_spec = importlib.util.find_spec
    monkeypatch.setattr(command, "find_spec", lambda name: None if name in lacking else find_spec(name))
    assert main(["demo", demo, *options]) == USER_ERROR
    error = capsys.readouterr().err
    assert f"this needs {named}: not installed" in error
    assert "pip install 'derivable[demo]'" in error
    assert ("download.pytorch.org" in error) == ("torch" in lacking)


def test_a_failed_picture_leaves_the_old_one(tmp_path, monkeypatch):
    data = scikit_digits(0)
    learned = learn(data.subset(64), Settings(max_batches=1), show=False)
    path = tmp_path / "picture.png"
    path.write_bytes(b"old")
    import matplotlib.figure

    def fail(*arguments, **options):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(matplotlib.figure.Figure, "savefig", fail)
    with pytest.raises(DerivableError, match="No space"):
        digits_picture(path, data.test_images, data.test_labels, learned)
    assert path.read_bytes() == b"old"
    assert len(list(tmp_path.iterdir())) == 1


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(5))
def test_digits_reach_the_promised_accuracy(tmp_path, capsys, seed):
    document = document_of(
        capsys, ["demo", "digits", "--seed", str(seed), "--json", "--output", str(tmp_path / "a.png")]
    )
    assert document["digit_accuracy"] >= 0.95
    assert document["training_seconds"] <= 60


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_sudoku_learns_from_validity_alone(tmp_path, capsys, seed):
    document = document_of(
        capsys, ["demo", "sudoku", "--seed", str(seed), "--json", "--output", str(tmp_path / "a.png")]
    )
    assert document["validity_accuracy"] >= 0.85
    assert document["digit_accuracy"] >= 0.95
