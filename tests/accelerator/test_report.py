"""The report of a design, its tables, and the command that writes them."""

import csv
import html.parser
import json
import re

import pytest
import torch

import derivable as dv
from derivable.accelerator.instructions import parse
from derivable.accelerator.report import FILES, nodes_csv, nodes_json, write_report
from derivable.accelerator.report import html as page
from derivable.cli.main import USER_ERROR, main
from reasoning.superposition import mimonet


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
    assert len(found.all("svg")) == 5
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
    with pytest.raises(dv.DerivableError, match="cannot write the file"):
        write_report(made, tmp_path / "nowhere")


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

def branches():
    return (lambda x: x if x.sum() > 0 else -x), torch.ones(3)
"""


@pytest.fixture
def model(tmp_path):
    path = tmp_path / "model.py"
    path.write_text(MODEL)
    (tmp_path / "broken.py").write_text("def build(:\n")
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
        ("model.py:fails", [], "ValueError: no weights"),
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
