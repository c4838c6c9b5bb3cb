"""Several passes in one program: the bits of single passes, in fewer cycles each."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

import derivable as dv
from accelerator.readers import parse
from derivable.accelerator.designs.report import html as page
from derivable.accelerator.hardware import simulation
from derivable.accelerator.lower.lower import lower
from derivable.accelerator.machine.machine import timing
from derivable.accelerator.operators.evaluation import in_passes
from derivable.accelerator.operators.operators import Builder
from derivable.core.diagnostics import DomainError, LimitError, ShapeError

from .networks import calibrated
from .test_designs import MODELS, SMALL, needs_verilator


def drawn(arrays, passes):
    """Other inputs for each pass, and all of them behind each other."""
    rng = np.random.default_rng(0)
    each = [[rng.normal(size=array.shape) for array in arrays] for _ in range(passes)]
    return each, [np.concatenate(listed) for listed in zip(*each)]


@needs_verilator
@pytest.mark.parametrize(("name", "share"), [("cnn", 0.95), ("nvsa", 1.0)])  # of NVSA, lanes work nearly always
def test_several_passes_have_the_bits_of_single_ones_and_the_cycles_of_the_model(name, share):
    torch.manual_seed(0)
    quantised, arrays = calibrated(*MODELS[name]())
    one, three = lower(quantised, SMALL), lower(quantised, SMALL, passes=3, in_flight=2)
    each, together = drawn(arrays, 3)
    single = [simulation.simulate(one, given, "python") for given in each]
    golden, found = (simulation.simulate(three, together, backend) for backend in ("python", "verilator"))
    for number, output in enumerate(golden.outputs):
        assert np.array_equal(output, np.concatenate([run.outputs[number] for run in single]))
    for output, wanted in zip(found.outputs, golden.outputs, strict=True):
        assert np.array_equal(output, wanted)
    assert np.array_equal(simulation.simulate(three, together, "verilator", initial=0).memory, golden.memory)
    assert abs(found.cycles / found.modelled - 1) <= 0.05
    assert golden.cycles_of_a_pass < share * single[0].cycles
    assert {node.of_pass for node in found.per_node} == {0, 1, 2}
    assert len({(node.node, node.of_pass) for node in found.per_node}) == len(found.per_node)


class Chain(nn.Module):
    """What is bound needs the layers of its own pass."""

    keys: torch.Tensor

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.Sequential(
            nn.Conv2d(4, 16, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(16, 16, 3, padding=1),
            nn.Flatten(),
            nn.Linear(1024, 128),
        )
        self.register_buffer("keys", dv.vsa.random(2, 32, generator=1))

    def forward(self, x):
        codes = self.layers(x).unflatten(-1, (2, 2, 32)).softmax(-1)
        return dv.vsa.bind(dv.vsa.bind(dv.vsa.bind(codes, self.keys), self.keys), self.keys)


def beside(program, machine):
    """Pairs of passes of which one has a layer under way while the other convolves."""
    begin, end = timing(machine, program)
    spans = {
        unit: [(b, e, i.of_pass) for b, e, i in zip(begin, end, program) if i.unit == unit] for unit in ("nn", "vsa")
    }
    return {(p, q) for a, b, p in spans["nn"] for c, d, q in spans["vsa"] if a < d and c < b}


def test_layers_run_beside_the_vectors_of_the_pass_before():
    quantised, _ = calibrated(Chain(), (torch.rand(2, 4, 8, 8),))
    several = lower(quantised, SMALL, (1, 1), passes=3)
    assert (1, 0) in beside(several.program, SMALL)
    assert not beside(lower(quantised, SMALL, (1, 1)).program, SMALL)
    # Each has all sub-arrays: they take turns.
    assert not beside(lower(quantised, SMALL, passes=3).program, SMALL)


def test_inputs_that_are_several_times_as_long_are_passes():
    made = dv.accelerator.design(Chain().eval(), torch.rand(2, 4, 8, 8), pes=64, precision="int8")
    inputs = torch.rand(6, 4, 8, 8)
    found = made.simulate(inputs, backend="python")
    assert (found.passes, found.outputs[0].shape) == (3, (6, 2, 2, 32))
    single = [made.simulate(part, backend="python") for part in inputs.split(2)]
    assert np.array_equal(found.outputs[0], np.concatenate([run.outputs[0] for run in single]))
    assert found.cycles < sum(run.cycles for run in single)
    text = page(made, simulation=found)
    assert f"A program of 3 passes, {found.cycles / 3:,.0f} cycles each, took {found.cycles:,} cycles" in text
    assert "conv2d_1 of pass 2" in text
    with pytest.raises(ShapeError) as caught:
        made.simulate(torch.rand(5, 4, 8, 8), backend="python")
    assert "[5, 4, 8, 8], expected [2, 4, 8, 8]" in caught.value.message
    with pytest.raises(ShapeError, match="2 passes, and the program does 3"):
        made.lower(3).pack([np.zeros((4, 4, 8, 8))])


def test_numbers_without_axes_have_one_for_passes():
    builder = Builder()
    a, b = builder.input("a", (2, 3)), builder.input("b", ())
    graph = builder.build([builder.add("add", a, b)])
    x = np.arange(12.0).reshape(4, 3)
    first, second = in_passes(graph, {"a": x, "b": np.array([5.0, 6.0])})
    assert np.array_equal(first["a"], x[:2])
    assert np.array_equal(second["a"], x[2:])
    assert (float(first["b"]), float(second["b"])) == (5, 6)
    with pytest.raises(ShapeError) as caught:
        in_passes(graph, {"a": x, "b": np.array(5.0)})
    assert "%a is [4, 3], 2 passes of [2, 3], and %b is []" in caught.value.message


def test_what_cannot_be_is_refused():
    quantised, _ = calibrated(Chain(), (torch.rand(2, 4, 8, 8),))
    with pytest.raises(DomainError, match="passes"):
        lower(quantised, SMALL, passes=0)
    with pytest.raises(DomainError, match="in_flight"):
        lower(quantised, SMALL, in_flight=0)
    with pytest.raises(LimitError, match="memory for 64"):
        lower(quantised, replace(SMALL, program=64), passes=3)


def test_a_program_says_of_which_pass_an_instruction_is():
    line = "dma.load x=64 far=256 lines=4 ; conv2d_1 of pass 2"
    (found, _) = parse(f"{line}\nend")
    assert (found.node, found.of_pass, str(parse(f"{line}\nend")).splitlines()[0]) == ("conv2d_1", 2, line)
