"""Whole designs: a model lowered, its program on the simulated hardware, against the golden machine, bit by bit, and
against the model of time.

One build serves the small machine; larger ones are slow.
"""

import shutil

import numpy as np
import pytest
import torch
from torch import nn

from derivable.accelerator.hardware import simulation, verilator
from derivable.accelerator.lower.lower import Lowered, lower
from derivable.accelerator.machine.instructions import Machine
from derivable.core.diagnostics import DomainError

from .networks import calibrated

needs_verilator = pytest.mark.skipif(verilator.version() is None, reason="Verilator or g++ is not installed")
needs_icarus = pytest.mark.skipif(shutil.which("iverilog") is None, reason="Icarus Verilog is not installed")

MEMORIES = {"lanes": 16, "line": 64, "a": 4096, "b": 4096, "c": 4096, "x": 1 << 20, "program": 1 << 16}
SMALL = Machine(8, 8, 2, **MEMORIES)
LARGE = [Machine(16, 16, 2, **MEMORIES), Machine(16, 4, 3, **MEMORIES), Machine(32, 16, 4, **MEMORIES)]


def cnn():
    layers = [nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2)]
    layers += [nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.AvgPool2d(2), nn.Conv2d(32, 32, 3), nn.ReLU()]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(128, 10)), (torch.randn(2, 3, 16, 16),)


def mimonet():
    from examples.reasoning.superposition import mimonet

    return mimonet(2, 2, 8), (torch.rand(1, 2, 1, 80, 80),)


def nvsa():
    from examples.reasoning.abduction import nvsa
    from examples.reasoning.reader import Reader

    return nvsa(Reader(2), blocks=2, length=12), (torch.rand(1, 16, 1, 80, 80),)


MODELS = {"cnn": cnn, "mimonet": mimonet, "nvsa": nvsa}


def lowered(name: str, machine: Machine):
    torch.manual_seed(0)
    quantised, arrays = calibrated(*MODELS[name]())
    return lower(quantised, machine), arrays


def agree(made: Lowered, inputs, found: simulation.Simulation, expected: simulation.Simulation) -> None:
    """With random bits at first in outputs and cycles, and with the golden machine's zeros in all of memory, too."""
    assert np.array_equal(simulation.simulate(made, inputs, "verilator", initial=0).memory, expected.memory)
    for one, other in zip(found.outputs, expected.outputs, strict=True):
        assert np.array_equal(one, other)
    assert expected.cycles == found.modelled
    assert found.cycles == found.modelled


@needs_verilator
@pytest.mark.parametrize("machine", [SMALL, *(pytest.param(large, marks=pytest.mark.slow) for large in LARGE)], ids=str)
@pytest.mark.parametrize("name", MODELS)
def test_a_design_is_bit_exact_and_as_fast_as_modelled(name, machine):
    made, inputs = lowered(name, machine)
    found, expected = (simulation.simulate(made, inputs, backend) for backend in ("verilator", "python"))
    agree(made, inputs, found, expected)
    assert {node.node for node in found.per_node} == {one.node for one in made.program} - {""}
    assert {node.explanation for node in found.per_node} == {"as modelled"}


@needs_verilator
def test_layers_of_int4_are_bit_exact():
    """Two products a multiplier: half the words of the reduction, and pictures of which two channels share a byte."""
    torch.manual_seed(0)
    layers = [nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 8, 3, padding=1, stride=2), nn.ReLU()]
    model = nn.Sequential(*layers, nn.MaxPool2d(2), nn.Conv2d(8, 5, 1), nn.Flatten(), nn.Linear(20, 3))
    quantised, inputs = calibrated(model, (torch.randn(1, 3, 8, 8),), {"neural": "int4"})
    made = lower(quantised, SMALL)
    gemms = [one for one in made.program if one.unit == "nn"]
    assert {one.node for one in gemms if one.nibbles} >= {"conv2d_2", "linear_1"}
    assert any(one.y_type == "i4" for one in made.program if one.unit == "vec" and one.operation == "drain")
    found, expected = (simulation.simulate(made, inputs, backend) for backend in ("verilator", "python"))
    agree(made, inputs, found, expected)


@needs_verilator
def test_off_chip_memory_changes_cycles_alone():
    made, inputs = lowered("cnn", SMALL)
    runs = [
        simulation.simulate(made, inputs, "verilator", off_chip, initial=0)
        for off_chip in (
            simulation.OffChip(),
            simulation.OffChip(latency=200, interval=4),
            simulation.OffChip(seed=5),
        )
    ]
    assert len({run.cycles for run in runs}) == 3
    assert [run.cycles == run.modelled for run in runs] == [True, True, False]
    late = runs[2]
    for node in late.per_node:
        # Where a node's span differs, so does what it takes itself, or when it could begin; and that is said.
        assert (node.explanation == "as modelled") == (
            node.modelled == node.simulated and all(before == after for before, after in node.busy.values())
        )
        for unit in ("nn", "vsa"):  # that share nothing with others
            assert unit not in node.busy or node.busy[unit][0] == node.busy[unit][1]
    assert any("for off-chip memory" in node.explanation for node in late.per_node)
    assert len({run.memory.tobytes() for run in runs}) == 1


@needs_icarus
@needs_verilator
def test_icarus_is_cycle_by_cycle_the_same():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(2, 5, 3), nn.ReLU(), nn.Flatten(), nn.Linear(20, 3)).eval()
    inputs = (torch.randn(1, 2, 4, 4),)
    quantised, arrays = calibrated(model, inputs)
    made = lower(quantised, SMALL)
    found, expected = (simulation.simulate(made, arrays, backend) for backend in ("icarus", "verilator"))
    # Lines of outputs end with bytes of the cache that were never written, which are random in Icarus.
    (view,) = made.outputs
    assert np.array_equal(found.memory[: view.buffer], expected.memory[: view.buffer])
    assert np.array_equal(found.outputs[0], expected.outputs[0])
    assert found.cycles == expected.cycles
    assert found.per_node == expected.per_node


def test_another_backend_is_refused():
    made, inputs = lowered("cnn", SMALL)
    with pytest.raises(DomainError, match=r"no backend 'verilog'\n.*`verilator`"):
        simulation.simulate(made, inputs, "verilog")
