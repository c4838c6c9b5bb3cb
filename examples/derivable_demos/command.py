"""`derivable demo NAME`: networks that learn to read digits through knowledge about them."""

from __future__ import annotations

from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import click

from derivable.cli.report import write_facts, write_json
from derivable.cli.user_file import provenance_option
from derivable.core.diagnostics import MissingDependencyError
from derivable.core.lazy import INSTALL


@click.group("demo")
def demo_command() -> None:
    """Demonstrations on handwritten digits; needs `pip install 'derivable[demo]'`."""


def _shared(function: Any) -> Any:
    """The options that both demos have."""
    for option in reversed(
        [
            click.option(
                "--data",
                nargs=2,
                metavar="mnist DIR",
                type=(click.Choice(["mnist"]), click.Path()),
                help="MNIST's IDX files in DIR, gzipped or not. Default: scikit-learn's 1,797 scans of 8x8 pixels.",
            ),
            click.option("--subset", type=click.IntRange(min=1), help="Train on this many images only."),
            click.option("--batch-size", type=click.IntRange(min=1), help="Examples in a step."),
            click.option("--epochs", type=click.IntRange(min=1), help="Times through the examples."),
            click.option("--batches", type=click.IntRange(min=1), help="Stop training after this many steps in all."),
            click.option("--seed", type=int, default=0, show_default=True, help="Of split, pairs and training."),
            click.option("--device", default="cpu", show_default=True, help="Of the network: cpu, cuda, cuda:1, mps."),
            click.option(
                "--threads",
                type=click.IntRange(min=1),
                help="Of torch. Default: 1 for 8x8 images, where more do not help, all cores for MNIST.",
            ),
            click.option(
                "--output", type=click.Path(dir_okay=False), help="The picture to write; default derivable-NAME.png."
            ),
            click.option("--json", "as_json", is_flag=True, help="One JSON document instead of lines."),
        ]
    ):
        function = option(function)
    return function


@demo_command.command("digits")
@click.option("--digits", type=click.IntRange(1, 3), default=1, show_default=True, help="Digits in each number.")
@click.option(
    "--encoding",
    type=click.Choice(["sums", "columns"]),
    default="sums",
    show_default=True,
    help="The program: one fact a sum (grows tenfold squared with each digit), or column addition (grows by a column).",
)
@provenance_option("exact")
@click.option("-k", type=click.IntRange(min=1), show_default="3", help="Proofs kept by topkproofs.")
@click.option("--rounds", type=click.IntRange(min=1), help="How many pairs each image is in.")
@_shared
def digits_command(
    digits: int, encoding: str, provenance: str, k: int | None, rounds: int | None, **shared: Any
) -> None:
    """Learn to read digits from the sums of pairs of numbers; no digit is ever told.

    Images are split into train and test before they are paired. Prints the training time, the part of it
    in the logic layer (forward and backward), and accuracies on the test images, and writes a picture.
    """
    _check_packages(shared)
    from derivable_demos.digits import Settings, learn
    from derivable_demos.picture import digits_picture

    on_mnist = shared["data"] is not None
    settings = Settings(
        num_digits=digits,
        encoding=encoding,
        provenance=provenance,
        k=k,
        rounds=rounds or (1 if digits == 1 or on_mnist else 2 * digits),
        **_training(
            shared,
            epochs=1 if on_mnist else 15 if digits == 1 else 10,
            batch_size=128 if on_mnist else 32 if digits == 1 else 16,
        ),
    )
    _run(
        shared,
        "derivable-digits.png",
        lambda data, show: learn(data, settings, show=show),
        digits_picture,
        ["num_train_images", "num_train_pairs"],
        {"sum_accuracy": "sum accuracy (test)", "digit_accuracy": "digit accuracy (test)"},
    )


@demo_command.command("sudoku")
@click.option("--grids", type=click.IntRange(min=2), default=400, show_default=True, help="Training grids, half valid.")
@click.option("--compiler", type=click.Choice(["sdd", "d4"]), default="sdd", show_default=True)
@_shared
def sudoku_command(grids: int, compiler: str, **shared: Any) -> None:
    """Learn whether a 4x4 grid of digit images is a valid Sudoku from examples of valid and invalid ones.

    The visual Sudoku task of the KLay paper: no digit is ever told. The rules, a CNF over 64 variables, are
    compiled to a circuit that gives the exact probability of validity.
    """
    _check_packages(shared)
    from derivable_demos.picture import sudoku_picture
    from derivable_demos.sudoku import Settings, learn

    settings = Settings(num_grids=grids, compiler=compiler, **_training(shared, epochs=20, batch_size=16))
    _run(
        shared,
        "derivable-sudoku.png",
        lambda data, show: learn(data, settings, show=show),
        sudoku_picture,
        ["matching"],
        {"validity_accuracy": "validity accuracy (test)", "digit_accuracy": "digit accuracy (test, up to names)"},
    )


def _training(shared: dict[str, Any], epochs: int, batch_size: int) -> dict[str, Any]:
    """The settings that all demos have; epochs and batch_size  where the user says nothing"""
    return {
        "epochs": shared["epochs"] or epochs,
        "batch_size": shared["batch_size"] or batch_size,
        "seed": shared["seed"],
        "device": shared["device"],
        "max_batches": shared["batches"],
    }


def _run(
    shared: dict[str, Any], default: str, learn: Any, picture: Any, documented: list[str], accuracies: dict[str, str]
) -> None:
    """Train, write the picture, and report.

    default     the name of the picture
    documented  fields of what was learned that only the JSON document has
    accuracies  field -> its name for people
    """
    data, output = _data(shared), _output(shared, default)
    learned = learn(data, False if shared["as_json"] else None)
    picture(output, data.test_images, data.test_labels, learned)
    if shared["as_json"]:
        _write_document(learned, output, [*documented, *accuracies])
        return
    seconds = f"{learned.training_seconds:.1f} (after {learned.preparation_seconds:.1f} to compile)"
    shares = [(name, _percent(getattr(learned, field))) for field, name in accuracies.items()]
    symbolic = ("symbolic seconds", _symbolic(learned))
    write_facts([("training seconds", seconds), symbolic, *shares, ("picture", str(output))])


def _check_packages(shared: dict[str, Any]) -> None:
    """Raises MissingDependencyError, before anything is done, that names all packages which the demo lacks."""
    needed = {"torch": "torch", "matplotlib": "matplotlib"}
    if shared["data"] is None:
        needed["sklearn"] = "scikit-learn"
    missing = [package for module, package in needed.items() if find_spec(module) is None]
    if missing:
        # pip takes a build of torch with CUDA by default.
        on_linux = INSTALL["torch"].partition("; ")[2] if "torch" in missing else ""
        raise MissingDependencyError(
            f"this needs {', '.join(missing)}: not installed",
            hint="; ".join(filter(None, ("pip install 'derivable[demo]'", on_linux))),
        )


def _data(shared: dict[str, Any]) -> Any:
    """The images; also sets torch's threads, since this process has nothing else to do."""
    import torch

    from derivable.device.cpu.threads import available_cores
    from derivable_demos.handwriting import mnist, scikit_digits

    torch.set_num_threads(shared["threads"] or (available_cores() if shared["data"] else 1))
    data = mnist(shared["data"][1], shared["seed"]) if shared["data"] else scikit_digits(shared["seed"])
    return data if shared["subset"] is None else data.subset(shared["subset"])


def _output(shared: dict[str, Any], default: str) -> Path:
    """Where the picture goes; a folder that is not there is an error now, not after the training."""
    path = Path(shared["output"] or default)
    if not path.parent.is_dir():
        raise FileNotFoundError(2, "no such directory for the picture", str(path.parent))
    return path


def _symbolic(learned: Any) -> str:
    share = learned.symbolic_seconds / max(learned.training_seconds, 1e-9)
    return f"{learned.symbolic_seconds:.2f} ({_percent(share)} of training; {learned.circuit})"


def _write_document(learned: Any, output: Path, names: list[str]) -> None:
    write_json(
        {
            "settings": asdict(learned.settings),
            "data": learned.data,
            "circuit": learned.circuit,
            "preparation_seconds": learned.preparation_seconds,
            "training_seconds": learned.training_seconds,
            "symbolic_seconds": learned.symbolic_seconds,
            **{name: getattr(learned, name) for name in names},
            "confusion": learned.confusion,
            "output": str(output),
        }
    )


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"
