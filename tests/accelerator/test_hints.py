"""What messages of the accelerator advise can be done: the arguments and options that they name are there."""

import ast
import inspect
import re
from pathlib import Path

import pytest

import derivable as dv
from derivable.accelerator.hardware import resources, simulation
from derivable.accelerator.machine import instructions
from derivable.accelerator.numbers import quantisation
from derivable.cli.accelerate import accelerate_command
from derivable.core.diagnostics import LimitError

FOLDER = Path(dv.__file__).parent
SOURCES = [*sorted((FOLDER / "accelerator").rglob("*.py")), FOLDER / "cli" / "accelerate.py"]

OURS = [
    *(getattr(dv.accelerator, name) for name in dv.accelerator.__all__),
    *(method for _, method in inspect.getmembers(dv.accelerator.Design, inspect.isfunction)),
    instructions.Machine,
    simulation.OffChip,
    quantisation.calibrate,
]
# Arguments of functions of torch and NumPy, and what stands in texts that are no messages.
THEIRS = {"count_include_pad", "dropout_p", "mode", "padding", "padding_mode", "p", "track_running_stats", "x"}
NO_ADVICE = {
    "drawing.py",
    "elaboration.py",
    "host.py",
    "instructions.py",
    "operators.py",
    "report.py",
    "sweep_picture.py",
}


def texts(path):
    """(line, text) of the literals of a file that are no docstrings; the parts of an f-string are one text."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    inner = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr):
            inner.add(id(node.value))
        if isinstance(node, ast.JoinedStr):
            inner.update(map(id, node.values))
            yield node.lineno, "".join(part.value if isinstance(part, ast.Constant) else "0" for part in node.values)
    yield from (
        (node.lineno, node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in inner
    )


def hints(path):
    """Texts that are given as `hint`, and all others that name arguments but those of generated files."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    given = {
        part.lineno
        for node in ast.walk(tree)
        if isinstance(node, ast.keyword) and node.arg == "hint"
        for part in ast.walk(node.value)
        if isinstance(part, (ast.Constant, ast.JoinedStr))
    }
    return [text for line, text in texts(path) if path.name not in NO_ADVICE or line in given]


def test_arguments_that_hints_name_are_there():
    known = {name for function in OURS for name in parameters(function)}
    found = {
        (path.name, name)
        for path in SOURCES
        for text in hints(path)
        if not text.startswith("-")  # options of a compiler
        for name in re.findall(r"(?<![-\w.])([a-z_]+)=(?!=)", text)
    }
    assert {name for _, name in found} >= {"pes", "device", "precision", "calibration", "passes", "off_chip", "program"}
    assert {(file, name) for file, name in found if name not in known | THEIRS} == set()


def parameters(function):
    try:
        return inspect.signature(function).parameters
    except ValueError:  # a warning is made by C
        return ()


def test_options_that_messages_of_the_command_name_are_there():
    options = {option for parameter in accelerate_command.params for option in parameter.opts}
    named = {name for _, text in texts(SOURCES[-1]) for name in re.findall(r"(?<!\w)--[a-z]+", text)}
    assert "--calibrate" in named
    assert named <= options


def test_what_would_fit_is_said_by_the_arguments_that_give_it(tmp_path):
    few = tmp_path / "few.toml"
    u250 = (FOLDER / "accelerator/hardware/devices/u250.toml").read_text()
    few.write_text(re.sub(r"(?m)^dsp.*$", "dsp = 1500", u250))
    torch = pytest.importorskip("torch")
    model, example = torch.nn.Linear(256, 256).eval(), torch.randn(64, 256)

    def made(**given):
        return dv.accelerator.design(model, example, calibration=[example, -example], device=few, **given)

    with pytest.raises(LimitError, match="the design needs more than") as caught:
        made(pes=4096, heights=[16], widths=[16])
    count, pes, height, width = map(int, re.findall(r"\d+", caught.value.hint))
    with pytest.raises(LimitError):
        made(pes=2 * pes, heights=[height], widths=[width])
    fitting = made(pes=pes, heights=[height], widths=[width])
    assert (fitting.height, fitting.width, fitting.sub_arrays) == (height, width, count)


def test_the_hint_names_the_smaller_design():
    needed = resources.estimate((32, 16, 4), simd=32)
    with pytest.raises(LimitError) as caught:
        resources.check_fit(
            needed,
            resources.DEVICES["zcu104"],
            smaller=lambda count: resources.estimate((32, 16, count), simd=32),
            most=4,
            sides=(32, 16),
        )
    assert caught.value.hint == "1 sub-array of this size would fit: give pes=512, heights=[32] and widths=[16]"
