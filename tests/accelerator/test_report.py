"""The report of a design, its tables, and the command that writes them."""

import csv
import html.parser
import json
import re

import numpy as np
import pytest
import torch

import derivable as dv
from accelerator.readers import parse
from derivable.accelerator.designs.report import FILES, nodes_csv, nodes_json, write_report
from derivable.accelerator.designs.report import html as page
from derivable.cli.main import USER_ERROR, main
from reasoning.superposition import mimonet

from .networks import MLP


@pytest.fixture(scope="module")
def made():
    torch.manual_seed(0)
    return dv.accelerator.design(mimonet(blocks=2, length=8).eval(), torch.rand(1, 2, 1, 80, 80), pes=256)


class Page(html.parser.HTMLParser):
    """What elements there are, with their attributes; every one that opens closes."""

    def __init__(self, text):
        super().__init__()
        self.found, self.open, self.text = [], [], []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag, attributes):
        self.found.append((tag, dict(attributes)))
        if tag not in ("meta",):
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.found.append((tag, dict(attributes)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, text):
        self.text.append(text)

    def all(self, tag, **attributes):
        return [each for name, each in self.found if name == tag and attributes.items() <= each.items()]


def test_the_page_stands_alone(made):
    text = page(made)
    found = Page(text)
    assert not [each for _, each in found.found if {"src", "href", "xlink:href"} & each.keys()]
    assert "url(" not in text
    assert "http" not in text
    assert "<script" not in text
    assert len(found.all("svg")) == 7
    assert page(made) == text


def test_the_page_has_every_node(made):
    found = Page(page(made))
    bars = [each for each in found.all("rect") if each["class"] in ("bar neural", "bar symbolic")]
    assert len(bars) == len(made.placed)
    dots = found.all("circle")
    assert len(dots) == len(made.placed)
    for node in made.flow:
        assert node.name in found.text
    # Inside the picture, with the cycles at the scale of its width.
    right = max(float(each["x"]) + float(each["width"]) for each in bars)
    assert right <= 960
    for dot in dots:
        assert 0 <= float(dot["cx"]) <= 960


class Pictures(Page):
    """The texts of each picture: its size, and the corners of what they take, by the width of most letters."""

    def __init__(self, text):
        self.pictures = []
        super().__init__(text)

    def handle_starttag(self, tag, attributes):
        super().handle_starttag(tag, attributes)
        if tag == "svg":
            _, _, width, height = map(float, dict(attributes)["viewbox"].split())
            self.pictures.append((width, height, []))

    def handle_data(self, text):
        super().handle_data(text)
        if self.open and self.open[-1] == "text":
            at = self.found[-1][1]
            x, y, width = float(at["x"]), float(at["y"]), 5.8 * len(text)
            left = x - width * {"start": 0, "middle": 0.5, "end": 1}[at["text-anchor"]]
            self.pictures[-1][2].append((left, y - 8, left + width, y + 2, text))


def test_texts_of_pictures_are_inside_and_apart(made):
    deep = dv.accelerator.design(MLP((16,) * 40), torch.rand(4, 16), pes=64, precision="int8")
    for each in (made, deep):
        text = page(each, None, each.simulate(torch.rand(4, 16), "python") if each is deep else None)
        pictures = Pictures(text).pictures
        assert len(pictures) == 7
        for width, height, texts in pictures:
            assert len(texts) > 5
            for place, (left, top, right, bottom, what) in enumerate(texts):
                assert left >= 0, what
                assert right <= width, what
                assert top >= -1, what
                assert bottom <= height + 1, what
                for a, b, c, d, other in texts[:place]:
                    assert left >= c or a >= right or top >= d or b >= bottom, (what, other)
    assert "cycles" in pictures[0][2][-1][-1]
    names = {what for *_, what in Pictures(page(made)).pictures[1][2]}
    longest = max(made.placed, key=lambda name: made.placed[name].end - made.placed[name].start)
    assert longest in names


LETTER, PADDING, LONG = 7.5, 13, 7 * 16  # pixels: of most bold letters at .82rem, of a cell, of a column of long texts


def narrowest(text):
    """The least width of each table: words are whole, but in columns of long texts."""
    for table in re.findall(r"<table>(.*?)</table>", text, re.DOTALL):
        columns = []
        for row in re.findall(r"<tr>(.*?)</tr>", table, re.DOTALL):
            cells = re.findall(r"<t[hd](?: class=(\w+))?>(.*?)</t[hd]>", row)
            columns = columns or [0.0] * len(cells)
            for place, (kind, cell) in enumerate(cells):
                parts = [cell] if kind == "number" and "<td" in row else re.split(r"[\s-]", cell)
                words = max(map(len, parts)) * LETTER
                columns[place] = max(columns[place], LONG if kind == "long" and "<td" in row else words)
        yield sum(columns) + PADDING * len(columns)


def test_tables_fit_a_window_of_1366_pixels_and_break_between_words(made):
    run = made.simulate(torch.rand(1, 2, 1, 80, 80), "python")
    simulated = {node.name: 123_456_789 for node in made.flow}
    text = page(made, simulated, run)
    style = text[: text.index("</style>")]
    (margins,) = re.findall(r"max-width: ([\d.]+)rem;\s*margin: 2rem auto; padding: 0 1rem", style)
    room = min(1366 - 2 * 15, 16 * float(margins)) - 15  # two scroll bars at most: of the window and of the table
    widths = list(narrowest(text))
    assert len(widths) == 3
    assert max(widths) < room
    # Words are broken in long texts alone, such as paths of files.
    assert re.findall(r"([^{}]*)\{[^{}]*overflow-wrap: anywhere", style) == [" td.long "]


def test_simulated_cycles_stand_beside_the_modelled(made):
    name = made.flow.layers[0].name
    modelled = made.placed[name].end - made.placed[name].start
    text = page(made, {name: 2 * modelled})
    assert "+100.0%" in text
    assert "simulated" not in page(made)
    rows = list(csv.DictReader(nodes_csv(made, {name: 2 * modelled}).splitlines()))
    assert [row["simulated_cycles"] for row in rows if row["node"] == name] == [str(2 * modelled)]


def test_tables(made):
    rows = list(csv.DictReader(nodes_csv(made).splitlines()))
    content = json.loads(nodes_json(made))
    assert [row["node"] for row in rows] == [each["node"] for each in content["nodes"]] == list(made.flow.by_name)
    for row, each in zip(rows, content["nodes"]):
        assert row == {key: "" if value is None else str(value) for key, value in each.items()}
    assert content["cycles"] == made.cycles


def test_written_whole(made, tmp_path):
    paths = write_report(made, tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(FILES)
    assert (tmp_path / "report.html").read_text() == page(made)
    assert all(path.exists() for path in paths)
    with pytest.raises(dv.DerivableError, match="cannot make the folder"):
        write_report(made, tmp_path / "report.html" / "below")


def test_markup_in_names_is_text():
    class Odd(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.add_module("<b>&", torch.nn.Linear(3, 2))

        def forward(self, x):
            return getattr(self, "<b>&")(x)

    text = page(dv.accelerator.design(Odd(), torch.rand(2, 3), pes=16))
    assert "&lt;b&gt;&amp;" in text
    assert "<b>&" not in text


def test_a_model_without_work_on_the_array():
    with pytest.raises(dv.DerivableError, match="no layer and no vector node"):
        dv.accelerator.design(lambda x: x.relu().sum(-1), torch.rand(2, 3), pes=16)


MODEL = """
import torch

class Small(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.layer = torch.nn.Linear(6, 4)

    def forward(self, x):
        return torch.relu(self.layer(x))

def build():
    return Small(), torch.ones(2, 6)

def only_model():
    return Small()

def wrong():
    return Small(), torch.ones(2, 5)

def triple():
    return Small(), torch.ones(2, 6), 3

def fails():
    raise ValueError("no weights")

def leaves():
    raise SystemExit(3)

def swapped():
    return torch.ones(2, 6), Small()

def not_finite():
    return Small(), torch.full((2, 6), float("inf"))

def branches():
    return (lambda x: x if x.sum() > 0 else -x), torch.ones(3)
"""


@pytest.fixture
def model(tmp_path):
    path = tmp_path / "model.py"
    path.write_text(MODEL)
    (tmp_path / "broken.py").write_text("def build(:\n")
    (tmp_path / "leaves.py").write_text("import sys\nsys.exit(4)\n")
    return path


def test_the_command(model, tmp_path, capsys):
    out = tmp_path / "out"
    options = ["--pes", "64", "--precision", "int8", "--device", "zcu104"]
    arguments = ["accelerate", f"{model}:build", "-o", str(out), *options]
    assert main(arguments) == 0
    said = capsys.readouterr().out
    made = dv.accelerator.load(out)
    assert f"array: {made.height} x {made.width} x {made.sub_arrays}" in said
    assert made.device.name == "zcu104"
    assert made.precision == {"neural": "int8", "symbolic": "int8"}
    assert (out / "report.html").read_text() == page(made)
    assert "module accelerator" in (out / "rtl" / "accelerator.sv").read_text()
    assert "module kernel" in (out / "rtl" / "kernel.sv").read_text()
    assert "OUTPUTS" in (out / "host" / "design.h").read_text()
    # The kit for the example inputs.
    assert {"Makefile", "bench.f", "expected.hex", "test_kernel.py"} <= {path.name for path in (out / "rtl").iterdir()}
    assert parse((out / "program.txt").read_text()) == made.lowered.program
    before = {path.name: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    assert main([*arguments, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["cycles"] == made.cycles
    assert {path.name: path.read_bytes() for path in out.rglob("*") if path.is_file()} == before
    assert set(found["files"]) < set(before)


def test_a_simulation_in_the_report(model, tmp_path, capsys):
    out = tmp_path / "out"
    command = ["accelerate", f"{model}:build", "-o", str(out), "--pes", "64", "--simulate", "python"]
    assert main([*command, "--precision", "int8", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    text = (out / "report.html").read_text()
    Page(text)
    assert f"One pass of the program took {found['simulated_cycles']:,} cycles" in text
    assert "as modelled" in text
    (row,) = [row for row in csv.DictReader((out / "nodes.csv").open()) if row["node"] == "linear_1"]
    assert int(row["simulated_cycles"]) >= int(row["cycles"])
    # The parts of a difference are all of it.
    total, _, reasons = row["difference"].replace(",", "").partition(":")
    more = int(row["simulated_cycles"]) - int(row["cycles"])
    assert int(total) == more == sum(map(int, re.findall(r"[+-]\d+", reasons)))
    assert "which unit runs when" in text
    content = json.loads((out / "nodes.json").read_text())
    assert set(content["units"]) <= set(content["nodes"][0])


def test_a_design_without_hardware(model, tmp_path, capsys):
    out = tmp_path / "out"
    assert main(["accelerate", f"{model}:build", "-o", str(out), "--pes", "64", "--precision", "fp16"]) == 0
    assert "hardware: not generated: the generated hardware has no fp16" in capsys.readouterr().out
    assert not (out / "rtl").exists()
    assert (out / "report.html").exists()
    for precision in ("int8", "fp16"):
        assert main(["accelerate", f"{model}:build", "-o", str(out), "--pes", "64", "--precision", precision]) == 0
    assert "rtl/ and host/ in the folder are of an earlier design" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("target", "options", "message"),
    [
        ("model.py:buidl", [], r"(?s)no function 'buidl'.*did you mean 'build'"),
        ("model.py", [], "names no function in a Python file"),
        ("missing.py:build", [], "No such file"),
        ("model.py:only_model", [], "(?s)returns Small, expected a model and its example inputs.*return model"),
        ("model.py:wrong", [], "the model fails on the example inputs"),
        ("model.py:fails", [], r"model.py, line \d+: fails fails: ValueError: no weights"),
        ("model.py:leaves", [], r"model.py, line \d+: leaves fails: SystemExit: 3"),
        ("model.py:swapped", [], "(?s)returns Tensor in the place of the model.*the model comes first"),
        ("model.py:not_finite", [], "%x is not finite"),
        ("leaves.py:build", [], "leaves.py, line 2: SystemExit: 4"),
        ("model.py:branches", [], r"(?s)model.py:\d+:\d+: error: the truth value.*return \(lambda"),
        ("model.py:triple", [], "returns a tuple of 3, expected a model and its example inputs"),
        ("broken.py:build", [], "SyntaxError"),
        ("model.py:build", ["--device", "nowhere.toml"], "nowhere.toml cannot be read"),
        ("model.py:build", ["--precision", "int8/int4/int8"], "precision is 'int8/int4/int8'"),
        ("model.py:build", ["--precision", "int3"], "did you mean"),
        ("model.py:build", ["--device", "u251"], "did you mean 'u250'"),
        ("model.py:build", ["--pes", "3"], "pes is 3"),
        ("model.py:build", ["--symbolic", "layr"], "did you mean `layer`"),
    ],
)
def test_errors_of_the_command(model, tmp_path, capsys, target, options, message):
    assert main(["accelerate", str(tmp_path / target), "-o", str(tmp_path / "out"), *options]) == USER_ERROR
    said = capsys.readouterr().err
    assert re.search(message, said), said
    assert not (tmp_path / "out").exists()


def test_a_file_is_no_folder(model, tmp_path, capsys):
    assert main(["accelerate", f"{model}:build", "-o", str(model)]) == USER_ERROR
    assert "this is a file, not a folder" in capsys.readouterr().err
    assert main(["accelerate", f"{model}:build", "-o", ""]) == USER_ERROR
    assert "the name of the folder is empty" in capsys.readouterr().err


def test_lines_are_told_of_files_beside_us_too(model, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["accelerate", "model.py:fails", "-o", "out"]) == USER_ERROR
    line = next(number for number, text in enumerate(MODEL.splitlines(), 1) if "no weights" in text)
    assert f"model.py, line {line}: fails fails: ValueError: no weights" in capsys.readouterr().err


def test_the_command_sees_the_modules_of_the_file_s_folder(tmp_path, capsys):
    """As `python FILE` does; also what build imports when it runs."""
    (tmp_path / "own_layers_of_a_user.py").write_text("import torch\nlayer = torch.nn.Linear(4, 4)\n")
    (tmp_path / "own_sizes_of_a_user.py").write_text("shape = (2, 4)\n")
    (tmp_path / "uses.py").write_text(
        "import torch\nfrom own_layers_of_a_user import layer\n"
        "def build():\n    from own_sizes_of_a_user import shape\n    return layer, torch.rand(shape)\n"
    )
    arguments = ["accelerate", f"{tmp_path / 'uses.py'}:build", "-o", str(tmp_path / "out"), "--pes", "16"]
    assert main(arguments) == 0
    said = dict(line.split(": ", 1) for line in capsys.readouterr().out.splitlines())
    made = dv.accelerator.load(tmp_path / "out")
    assert said["whole pass"].startswith(f"{made.pass_cycles():,} cycles")
    assert said["throughput"].startswith(f"{made.pass_cycles(2):,.0f} cycles")
    assert said["SIMD"].startswith(f"{made.lowered.machine.lanes} lanes")
    assert "one" not in said


def test_samples_from_a_file(tmp_path, capsys):
    (tmp_path / "scaled.py").write_text(
        "import torch\n\ndef build():\n    torch.manual_seed(0)\n    return torch.nn.Linear(4, 4), torch.rand(2, 4)\n"
    )
    np.savez(tmp_path / "samples.npz", input=3 * np.random.default_rng(0).random((6, 4)))
    command = ["accelerate", f"{tmp_path / 'scaled.py'}:build", "-o", str(tmp_path / "out"), "--pes", "16"]
    assert main([*command, "--simulate", "python"]) == 0
    out, noted = capsys.readouterr()
    assert "note: the ranges of numbers come from the example inputs alone" in noted
    assert "numbers saturated" in out
    assert "saturated" in (tmp_path / "out" / "report.html").read_text()
    assert main([*command, "--calibrate", str(tmp_path / "samples.npz")]) == 0
    assert "note:" not in capsys.readouterr().err
    assert dv.accelerator.load(tmp_path / "out").quantised.ranges["input"][1] > 1.5
    assert main([*command, "--calibrate", str(tmp_path / "scaled.py")]) == USER_ERROR
    assert "the samples cannot be read" in capsys.readouterr().err
