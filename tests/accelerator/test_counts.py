"""One count of cycles: what a design prints, what its program takes, and what the machines count."""

import json
import random
import re
import shutil
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

import derivable as dv
from derivable.accelerator.designs import designs
from derivable.accelerator.designs.node_rows import node_rows
from derivable.accelerator.designs.report import html, nodes_json
from derivable.accelerator.explore.exploration import finalists
from derivable.accelerator.hardware import verilator
from derivable.accelerator.hardware.simulation import OffChip
from derivable.accelerator.machine import machine
from reasoning.abduction import nvsa, prae
from reasoning.learned_rules import lvrf
from reasoning.reader import Reader
from reasoning.superposition import mimonet

from . import random_models

pytestmark = pytest.mark.filterwarnings("ignore::derivable.accelerator.CalibrationWarning")

PROBLEM = (1, 16, 1, 80, 80)
NAMES = {"nn": "layers", "vsa": "vectors", "vec": "SIMD unit", "move": "moves", "dma": "off-chip"}


def cnn():
    layers = [nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2)]
    layers += [nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.AvgPool2d(2), nn.Conv2d(32, 32, 3), nn.ReLU()]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(128, 10))


def classifier():
    """Hyperdimensional: features are bundled from bindings of positions and levels, and compared with prototypes."""
    positions, book = dv.vsa.random(1, 64, generator=0), dv.vsa.codebook(5, 1, 64, generator=1)
    layer = nn.Linear(12, 64)
    return lambda x: dv.vsa.similarities(
        dv.vsa.bind(layer(x).unflatten(-1, (1, 64)).softmax(-1), positions), book
    ).softmax(-1)


def norms():
    return nn.Sequential(nn.Linear(12, 16), nn.LayerNorm(16), nn.GELU(), nn.Linear(16, 5), nn.Softmax(-1))


MODELS = {
    "CNN": (cnn, (2, 3, 16, 16)),
    "classifier": (classifier, (4, 12)),
    "LayerNorm": (norms, (4, 12)),
    "MIMONet-like": (lambda: mimonet(blocks=2, length=8), (1, 2, 1, 80, 80)),
    "PrAE-like": (prae, PROBLEM),
    "NVSA-like": (lambda: nvsa(Reader(8), length=16), PROBLEM),
    "LVRF-like": (lambda: lvrf(Reader(8), length=16), PROBLEM),
}
QUICK = ("CNN", "classifier", "LayerNorm", "MIMONet-like")
SLOW = tuple(name for name in MODELS if name not in QUICK)


def designed(name, **options):
    torch.manual_seed(0)
    make, shape = MODELS[name]
    model = make()
    if isinstance(model, nn.Module):
        model.eval()
    inputs = torch.rand(shape)
    return dv.accelerator.design(model, inputs, **({"pes": 256, "precision": "int8"} | options)), inputs


def printed(made):
    """The numbers of a printed design, by the titles of their lines."""
    lines = dict(line.split(maxsplit=1) for line in str(made).replace("whole pass", "whole_pass").splitlines())
    busy = {name: int(re.search(rf"{name} ([\d,]+)", lines["busy"])[1].replace(",", "")) for name in NAMES.values()}
    first = {name: int(re.search(r"[\d,]+", lines[name])[0].replace(",", "")) for name in ("whole_pass", "throughput")}
    simd = int(re.search(r"busy for ([\d,]+)", lines["SIMD"])[1].replace(",", ""))
    return busy, first, simd


def check(made, inputs, backend="python"):
    run = made.simulate(inputs, backend)
    busy, first, simd = printed(made)
    assert busy == {NAMES[unit]: cycles for unit, cycles in run.busy.items()}
    assert simd == run.busy["vec"]
    assert first["whole_pass"] == run.cycles
    # Nothing is left out: the units of all operators, those that load inputs among them.
    for unit, cycles in run.busy.items():
        assert sum(node.busy[unit][1] for node in run.per_node if unit in node.busy) == cycles
    content = json.loads(nodes_json(made))
    assert (content["pass_cycles"], content["busy"]) == (run.cycles, run.busy)
    rows = node_rows(made)
    assert all(sum((row.busy or {}).get(unit, 0) for row in rows) <= busy[NAMES[unit]] for unit in NAMES)
    assert sum((row.busy or {}).get("vec", 0) for row in rows) == simd
    return run


@pytest.mark.parametrize(
    "name", [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in MODELS]
)
def test_printed_cycles_are_those_of_the_machine(name):
    made, inputs = designed(name)
    check(made, inputs)
    both = made.simulate(torch.cat((inputs, inputs)), "python")
    assert printed(made)[1]["throughput"] == round(both.cycles_of_a_pass) == round(made.pass_cycles(2))


@pytest.mark.parametrize("seed", range(6))
def test_printed_cycles_of_random_models(seed):
    draw = random.Random(seed)
    model, picture = random_models.model(draw.randint, draw.choice)
    precision = draw.choice(["int8", "int8/int4", "int4"])
    check(dv.accelerator.design(model, picture, pes=64, precision=precision), picture)


@pytest.mark.skipif(shutil.which("iverilog") is None, reason="Icarus Verilog is not installed")
def test_printed_cycles_are_those_of_the_counters():
    """The counters are registers of the generated hardware."""
    made, inputs = designed("classifier", pes=16)
    check(made, inputs, "icarus")


@pytest.mark.slow
@pytest.mark.skipif(verilator.version() is None, reason="Verilator or g++ is not installed")
@pytest.mark.parametrize("name", QUICK)
def test_printed_cycles_are_those_of_the_counters_in_verilator(name):
    made, inputs = designed(name, pes=64)
    check(made, inputs, "verilator")


@pytest.mark.parametrize("name", QUICK)
def test_lanes_are_chosen_by_the_program(name):
    """As few as take at most a twentieth longer than any other number; each number is lowered and timed here."""
    made, _ = designed(name)
    taken = {}
    for lanes in (2**e for e in range(8)):
        if lanes >= made.width:
            lowered = replace(made, lanes=lanes).lower(2)
            taken[lanes] = machine.timing(lowered.machine, lowered.program)[1][-1]
    least = min(taken.values())
    assert made.lanes == next(lanes for lanes, cycles in taken.items() if cycles <= 1.05 * least)


@pytest.mark.parametrize("name", ["CNN", "MIMONet-like"])
def test_arrays_are_ranked_by_the_program(name):
    made, _ = designed(name)
    listed = finalists(made.flow.workload(), 256, most_sub_arrays=16, largest_side=64)
    arrays = {(each.height, each.width, each.sub_arrays, each.mode) for each in listed}
    assert len(arrays) == len(listed) >= 3
    own = made.pass_cycles(2)
    for each in sorted(listed, key=lambda each: each.cycles)[: designs.COMPARED_ARRAYS]:
        other = designs.sized(made.graph, made.flow, each, made.device, made.precision)
        assert own <= replace(other, quantised=made.quantised).pass_cycles(2)


def test_estimates_are_named_and_measured():
    made, _ = designed("CNN")
    line = next(line for line in str(made).splitlines() if line.startswith("estimate"))
    equations = sum(place.end - place.start for place in made.placed.values())
    program = made.busy["nn"] + made.busy["vsa"]
    assert f"{made.cycles:,} cycles" in line
    assert f"{equations:,}, in the program {program:,} ({program / equations - 1:+.1%})" in line
    half, _ = designed("CNN", precision="fp16")
    assert "by an estimate" in next(line for line in str(half).splitlines() if line.startswith("SIMD"))
    assert half.busy is None


def test_the_report_opens_with_the_units():
    made, _ = designed("MIMONet-like")
    page = html(made)
    whole, estimate = page.index("Pass of the units"), page.index("Estimate of the array")
    assert page.index("<dl>") < whole < estimate
    assert "which unit runs when in the program" in page[whole:estimate]
    for unit, name in NAMES.items():
        share = made.busy[unit] / made.pass_cycles()
        assert f"{name} {made.busy[unit]:,} cycles, {share:.1%}" in page[whole:estimate]
    assert "100.0%" not in page[:estimate]


def test_off_chip_memory_that_is_late_is_counted():
    made, inputs = designed("classifier", pes=16)
    late = made.simulate(inputs, "python", off_chip=OffChip(latency=200))
    assert late.busy["dma"] > made.busy["dma"]
    np.testing.assert_array_equal(late.outputs[0], made.simulate(inputs, "python").outputs[0])


def test_a_notebook_shows_the_lines_of_the_summary():
    made, _ = designed("LayerNorm", pes=64)
    for line in str(made).splitlines():
        title, text = line[:12].strip(), line[12:].split(",")[0]
        assert title in made._repr_html_(), line
        assert text in made._repr_html_(), line
    assert ">whole pass<" in made._repr_html_()
