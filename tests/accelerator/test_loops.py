"""Loops of models as loops of programs: bits, cycles, and programs whose length is that of one iteration."""

import shutil

import numpy as np
import pytest
import torch
from torch import nn

import derivable as dv
from accelerator import integers
from accelerator.random_programs import SMALL as TINY
from accelerator.random_programs import random_program
from accelerator.readers import parse
from derivable.accelerator.hardware import batch, simulation, verilator
from derivable.accelerator.hardware.simulation import simulator
from derivable.accelerator.lower import cycles
from derivable.accelerator.lower import lower as lower_module
from derivable.accelerator.lower.bounds import bounds
from derivable.accelerator.lower.lower import lower
from derivable.accelerator.machine import hazards, machine
from derivable.accelerator.machine.instructions import End, Machine, Program
from derivable.accelerator.numbers.emulation import Emulation
from derivable.accelerator.numbers.formats import prepare
from derivable.accelerator.operators.operators import Builder
from derivable.accelerator.trace.trace import trace
from derivable.core.diagnostics import DomainError, LayoutError

from .networks import calibrated

needs_verilator = pytest.mark.skipif(verilator.version() is None, reason="Verilator or g++ is not installed")
needs_icarus = pytest.mark.skipif(shutil.which("iverilog") is None, reason="Icarus Verilog is not installed")
SMALL = Machine(8, 8, 2, lanes=8, line=32, x=1 << 15, program=1 << 10)
SIMULATORS = [pytest.param("verilator", marks=needs_verilator), pytest.param("icarus", marks=needs_icarus)]


class Blocks(nn.Module):
    """A resonator of two factors with block codes, as docs have it."""

    a: torch.Tensor
    b: torch.Tensor

    def __init__(self, steps):
        super().__init__()
        self.steps = steps
        for seed, name in enumerate("ab"):
            self.register_buffer(name, dv.vsa.random(5, 2, 16, generator=seed))

    def forward(self, product):
        one, other = dv.vsa.bundle(self.a), dv.vsa.bundle(self.b)
        for _ in range(self.steps):
            one = dv.vsa.cleanup(dv.vsa.unbind(product, other), self.a, temperature=0.1)
            other = dv.vsa.cleanup(dv.vsa.unbind(product, one), self.b, temperature=0.1)
        return dv.vsa.similarities(one, self.a), dv.vsa.similarities(other, self.b)

    def example(self):
        return (dv.vsa.bind(self.a[1:3], self.b[2:4]),)


class Bipolar(nn.Module):
    """Frady et al., 2020: three factors of signs, projected on their codebooks, all from the same state."""

    def __init__(self, steps):
        super().__init__()
        self.steps = steps
        draw = torch.Generator().manual_seed(0)
        self.books = [torch.randint(0, 2, (4, 64), generator=draw) * 2.0 - 1 for _ in range(3)]

    def forward(self, product):
        state = [torch.sign(book.sum(0) + 0.5).expand(len(product), -1) for book in self.books]
        for _ in range(self.steps):
            rest = [state[1] * state[2], state[0] * state[2], state[0] * state[1]]
            state = [torch.sign(product * part @ book.T @ book) for part, book in zip(rest, self.books)]
        return tuple(each @ book.T for each, book in zip(state, self.books))

    def example(self):
        one, two, three = self.books
        return (one[:2] * two[1:3] * three[2:4],)


class Swapped(nn.Module):
    """What is carried changes places in each iteration, the input is read in all of them, and the state after them by
    two layers."""

    def __init__(self, steps):
        super().__init__()
        torch.manual_seed(0)
        self.steps, self.layer, self.top = steps, nn.Linear(12, 12), nn.Linear(12, 3)

    def forward(self, x):
        a, b = x, torch.tanh(x)
        for _ in range(self.steps):
            a, b = torch.tanh(self.layer(b) + x), a * 0.5
        return self.top(a), torch.relu(b) + x, a.reshape(2, 3, 4).transpose(1, 2)

    def example(self):
        return (torch.randn(2, 12, generator=torch.Generator().manual_seed(1)),)


class Pictures(nn.Module):
    """A convolution with borders of what it gave before, its relu, and a layer on the last of them."""

    def __init__(self, steps):
        super().__init__()
        torch.manual_seed(0)
        self.steps, self.conv, self.top = steps, nn.Conv2d(4, 4, 3, padding=1), nn.Linear(64, 3)

    def forward(self, x):
        for _ in range(self.steps):
            x = torch.relu(self.conv(x)) * 0.5
        return self.top(x.flatten(1)), nn.functional.max_pool2d(x, 2)

    def example(self):
        return (torch.rand(2, 4, 4, 4, generator=torch.Generator().manual_seed(1)),)


class Sliced(nn.Module):
    """An iteration begins with a slice: of the input at first, whose numbers are larger than those of the layer."""

    def __init__(self, steps):
        super().__init__()
        torch.manual_seed(0)
        self.steps, self.layer = steps, nn.Linear(12, 24)

    def forward(self, x):
        part = x[:, 3:15]
        for _ in range(self.steps):
            part = self.layer(part)[:, 3:15]
        return part

    def example(self):
        return (5 * torch.randn(2, 24, generator=torch.Generator().manual_seed(1)),)


MODELS = {"blocks": Blocks, "bipolar": Bipolar, "swapped": Swapped, "pictures": Pictures, "sliced": Sliced}


def lowered(name, steps, passes=1, precision=None):
    model = MODELS[name](steps)
    quantised, arrays = calibrated(model, model.example(), precision)
    return lower(quantised, SMALL, passes=passes), arrays


def loops(model, *inputs):
    return prepare(trace(model, inputs)).loops


@pytest.mark.parametrize("precision", ["int8", "int4"])
@pytest.mark.parametrize("name", MODELS)
def test_a_loop_has_the_bits_of_all_its_iterations_and_the_length_of_one(name, precision):
    formats = {"neural": precision, "symbolic": precision}
    few, arrays = lowered(name, 8, precision=formats)
    many, _ = lowered(name, 14, precision=formats)
    assert [loop.times for loop in few.graph.loops] >= [5]
    (first,), (second,) = few.graph.loops, many.graph.loops
    assert second.times == first.times + 6
    assert len(few.program) == len(many.program) < len(few.program.executed)
    assert len(many.program.executed) > 1.4 * len(few.program.executed)
    for made in (few, many):
        run = simulation.simulate(made, arrays, "python")
        expected = integers.evaluate(made.graph, made.formats, dict(zip(made.graph.inputs, arrays)))
        emulation = Emulation(made.graph, made.formats, arrays).outputs()
        for output, result, other in zip(made.graph.outputs, made.integers(run.memory), emulation):
            np.testing.assert_array_equal(result, expected[output])
            np.testing.assert_array_equal(result, other)
        # Whatever the memories begin with.
        state = machine.State(made.machine, made.pack(arrays))
        rng = np.random.default_rng(0)
        for memory in (state.a, state.b, state.x):
            memory[...] = rng.integers(0, 256, memory.shape)
        for instruction in made.program.executed:
            machine.execute(state, instruction)
        for one, other in zip(made.integers(state.off_chip), made.integers(run.memory)):
            np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("name", ["blocks", "bipolar"])
def test_a_resonator_finds_its_factors(name):
    made, arrays = lowered(name, 8)
    outputs = simulation.simulate(made, arrays, "python").outputs
    expected = [[1, 2], [2, 3]] if name == "blocks" else [[0, 1], [1, 2], [2, 3]]
    assert [output.argmax(-1).tolist() for output in outputs] == expected


@pytest.mark.parametrize("name", MODELS)
def test_each_iteration_has_the_work_and_the_cycles_of_its_operators(name):
    made, _ = lowered(name, 8)
    (loop,) = made.graph.loops
    nodes = {node.name: node for node in cycles.nodes(made)}
    busy = [{each: nodes[each].busy for each in names if each in nodes} for names in loop.iterations]
    assert all(list(each.values()) == list(busy[1].values()) for each in busy)
    starts = [nodes[next(iter(each))].begin for each in busy]
    assert len(set(np.diff(starts))) == 1
    for node in nodes.values():
        if node.unit:
            assert node.busy[node.unit] == node.equation + node.blocks + node.cuts + node.constants
    _, end = machine.timing(made.machine, made.program)
    assert bounds(made).best[1] <= end[-1]


@pytest.mark.parametrize("backend", SIMULATORS)
def test_simulators_have_the_bits_and_the_cycles(backend):
    made, arrays = lowered("swapped", 7)
    run = simulation.simulate(made, arrays, backend)
    golden = simulation.simulate(made, arrays, "python")
    assert run.cycles == golden.cycles
    assert run.per_node == golden.per_node
    assert run.busy == golden.busy
    for one, other in zip(run.outputs, golden.outputs, strict=True):
        assert np.array_equal(one, other)
    # A pass that begins with what the loop of another one has left.
    other = [2 * array for array in arrays]
    both = [np.concatenate(each) for each in zip(other, arrays)]
    result = batch.run(made, both, backend)
    assert result.cycles.tolist() == [run.cycles] * 2
    assert np.array_equal(result.outputs[1][2:], run.outputs[1])


@pytest.mark.slow
@pytest.mark.parametrize("backend", SIMULATORS)
@pytest.mark.parametrize("name", ["blocks", "bipolar", "pictures"])
def test_simulators_have_the_bits_and_the_cycles_of_all(name, backend):
    made, arrays = lowered(name, 20 if backend == "verilator" else 7)
    run = simulation.simulate(made, arrays, backend)
    assert (run.cycles, run.passes) == (run.modelled, 1)
    for one, other in zip(made.integers(run.memory), Emulation(made.graph, made.formats, arrays).outputs()):
        assert np.array_equal(one, other)
    if backend == "verilator":
        late = simulation.simulate(made, arrays, backend, simulation.OffChip(latency=30, seed=5))
        assert late.cycles > run.cycles
        assert all(np.array_equal(one, other) for one, other in zip(late.outputs, run.outputs))


def test_passes_with_loops_come_one_after_another():
    one, arrays = lowered("blocks", 8)
    two, _ = lowered("blocks", 8, passes=2)
    both = [np.concatenate((array, array[::-1])) for array in arrays]
    result = simulation.simulate(two, both, "python")
    for number, part in enumerate((arrays, [array[::-1] for array in arrays])):
        single = simulation.simulate(one, part, "python")
        for output, wanted in zip(result.outputs, single.outputs):
            assert np.array_equal(output[2 * number : 2 * number + 2], wanted)


def test_what_two_loops_read_is_freed_after_them(monkeypatch):
    def model(x):
        one = x
        for _ in range(8):
            one = torch.tanh(one)
        other = x
        for _ in range(8):
            other = torch.tanh(other * one)
        return other + 1

    left, store = [], lower_module._store
    monkeypatch.setattr(lower_module, "_store", lambda state: left.extend(state.values) or store(state))
    quantised, _ = calibrated(model, (torch.randn(2, 6),))
    made = lower(quantised, SMALL)
    assert len(made.graph.loops) == 2
    assert left == list(made.graph.outputs)


def sections(seed, count):
    """Random sections, some of them repeated, one after another on the same memories."""
    listed: list = []
    far = np.zeros(0, np.uint8)
    for number in range(count):
        program, memory = random_program(TINY, seed + number, 12)
        far = far if len(far) else memory
        start = len(listed)
        listed += program.instructions[:-1]
        listed.append(End(operation="repeat", count=1 + (seed + number) % 4, to=start))
    return Program([*listed, End()]), far


@pytest.mark.parametrize("backend", SIMULATORS)
def test_random_sections_have_the_bits_and_the_cycles(backend):
    device = simulator(TINY, backend)
    for seed in range(1 if backend == "icarus" else 12):
        program, far = sections(100 * seed, 2 if backend == "icarus" else 3)
        golden = machine.run(TINY, program, far)
        result = device.run(program, far, initial=0)
        assert result.cycles == golden.cycles
        assert np.array_equal(result.begin, golden.begin[:-1])
        assert np.array_equal(result.end, golden.end[:-1])
        if backend == "verilator":  # with memories of zeros, as those of the golden machine
            assert np.array_equal(result.memory, golden.memory)


def test_what_is_no_loop():
    class Unlike(nn.Module):
        """The same layers in each iteration, and other numbers."""

        def forward(self, x):
            for k in range(8):
                x = torch.tanh(x * (1.0 + k))
            return x

    class Kept(nn.Module):
        """All states are outputs."""

        def forward(self, x):
            states = [x]
            for _ in range(8):
                states.append(torch.tanh(states[-1] * 0.5))
            return torch.stack(states)

    class Earlier(nn.Module):
        """An iteration reads what the third before it gave: three are one iteration of a loop."""

        def forward(self, x):
            a, b, c = x, torch.tanh(x), torch.tanh(2 * x)
            for _ in range(18):
                a, b, c = b, c, torch.tanh(a)
            return a, b, c

    x = torch.randn(2, 6)
    assert loops(Unlike(), x) == ()
    assert loops(Kept(), x) == ()
    (loop,) = loops(Earlier(), x)
    assert len(loop.iterations[0]) == 3
    # Three iterations are written out.
    assert loops(Swapped(3), x[:, :1].expand(2, 12)) == ()


def test_iterations_of_both_parts_are_no_loop():
    """Each part has its precision."""
    builder = Builder()
    value, weight = builder.input("x", (2, 4)), builder.constant("weight", np.eye(4))
    for number in range(11):
        builder.part = "neural" if number < 5 else "symbolic"
        value = builder.add("matmul", value, weight)
    first, second = builder.build([value]).loops
    assert (first.times, second.times) == (4, 5)


LOOPING = """dma.load lines=4 x=0 far=0
end.repeat
vec.add n1=2 a1=8 y1=8 b=3
dma.store needs=vec:1 lines=1 x=0 far=512
end.repeat count=4 to=2
end"""


def test_a_section_is_repeated_as_often_as_it_says():
    memory = np.arange(1024, dtype=np.int64).astype(np.uint8) // 4
    result = machine.run(TINY, parse(LOOPING), memory)
    assert np.array_equal(result.memory[512:528], memory[:16] + 12)
    assert len(parse(LOOPING).executed) == 1 + 4 * 2 + 1


@pytest.mark.parametrize(
    ("line", "change", "message"),
    [
        (4, "end.repeat count=4 to=1", "goes to instruction 1, and its section begins with 2"),
        (4, "end.repeat count=0 to=2", "count is 0, expected 1 to 65535"),
        (3, "dma.store lines=1 x=0 far=512", "may do so"),
        (3, "dma.store needs=vec:1,dma:1 lines=1 x=0 far=512", "it needs 1 instructions of dma, and 0 come before it"),
        (5, "end.repeat count=2", "a program has one end, after all else"),
        (2, "end", "a program has one end, after all else"),
    ],
)
def test_sections_that_are_wrong(line, change, message):
    lines = LOOPING.splitlines()
    lines[line] = change
    with pytest.raises((LayoutError, DomainError), match=message):
        hazards.check(TINY, parse("\n".join(lines)), 1024)
