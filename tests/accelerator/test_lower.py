"""Lowered programs on the golden machine are the quantised graph, bit by bit, as `integers.py` evaluates it."""

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import nn

import derivable as dv
from accelerator.readers import parse
from derivable.accelerator.lower import cycles
from derivable.accelerator.lower.lower import lower, simulate
from derivable.accelerator.machine import hazards, machine
from derivable.accelerator.machine.instructions import Machine
from derivable.accelerator.machine.layouts import View, canonical, dense
from derivable.accelerator.machine.machine import Latencies
from derivable.accelerator.numbers.emulation import Emulation
from derivable.accelerator.operators.runtime import Layer, Vectors, layer_cycles, temporal_cycles
from derivable.core.diagnostics import DomainError, LimitError, UnsupportedError

from . import integers
from .networks import calibrated

SMALL = Machine(8, 8, 2, lanes=8, line=32, x=1 << 18, program=1 << 14)
LARGE = Machine(8, 8, 2, lanes=16, line=64, a=4096, b=4096, c=4096, x=1 << 20, program=1 << 16)


def _lowered(model, inputs, machine=SMALL, partition=None, precision=None):
    quantised, arrays = calibrated(model, inputs, precision)
    return lower(quantised, machine, partition), arrays


def check(model, inputs, machine=SMALL, partition=None, near=0.05, precision=None, floor=0.1):
    """Bit-exact against integers, and near what the model says, beside what it says or the floor."""
    lowered, arrays = _lowered(model, inputs, machine, partition, precision)
    outputs, run = simulate(lowered, arrays)
    expected = integers.evaluate(lowered.graph, lowered.formats, dict(zip(lowered.graph.inputs, arrays)))
    emulation = Emulation(lowered.graph, lowered.formats, arrays)
    for operator in lowered.graph:
        emulated = emulation.advance(operator)
        if operator.kind != "constant":
            np.testing.assert_array_equal(emulated, expected[operator.name], err_msg=str(operator))
    with torch.no_grad():
        real = model(*inputs)
    real = real if isinstance(real, tuple) else (real,)
    for name, found, output, wanted in zip(lowered.graph.outputs, lowered.integers(run.memory), outputs, real):
        np.testing.assert_array_equal(found, expected[name], err_msg=name)
        wanted = wanted.numpy()
        assert np.abs(output - 1.0 * wanted).max() <= near * max(np.abs(wanted).max(), floor), name
    return lowered, run


def _picture(channels=1, side=12, batch=2, seed=0):
    return (torch.randn(batch, channels, side, side, generator=torch.Generator().manual_seed(seed)),)


def test_layers():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(20, 30), nn.ReLU(), nn.Linear(30, 11), nn.Softmax(-1))
    check(model, (torch.randn(5, 20),))


class Residual(nn.Module):
    """Strides, paddings, dilation, groups, a residual sum, both poolings."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 10, 5, stride=2, padding=2), nn.BatchNorm2d(10), nn.ReLU())
        self.pool = nn.MaxPool2d(3, stride=2, padding=1)
        self.one = nn.Conv2d(10, 10, 3, padding=1)
        self.two = nn.Conv2d(10, 10, 3, padding=2, dilation=2, groups=2)
        self.short = nn.Conv2d(10, 10, 1)
        self.top = nn.Linear(10, 7)

    def forward(self, x):
        x = self.pool(self.stem(x))
        x = torch.relu(self.two(torch.relu(self.one(x))) + self.short(x))
        return self.top(nn.functional.adaptive_avg_pool2d(x, 1).flatten(1))


def test_convolutions():
    torch.manual_seed(1)
    check(Residual(), _picture(3, 16))


def test_layers_of_int4():
    torch.manual_seed(1)
    check(Residual(), _picture(3, 16), near=1.0, precision={"neural": "int4"})
    with pytest.raises(DomainError, match="the precision is"):
        _lowered(nn.Linear(2, 2), (torch.randn(1, 2),), precision={"neural": "fp8"})


@pytest.mark.parametrize(("channels", "outputs"), [(16, 32), (5, 9), (1, 8)])
def test_int4_takes_half_the_reduction(channels, outputs):
    """Two channels a byte, odd numbers of them too, and borders of what has a zero; inputs that lie in any order."""
    torch.manual_seed(channels)
    model = nn.Sequential(
        *(nn.Conv2d(channels, outputs, 3, padding=1), nn.ReLU(), nn.Conv2d(outputs, 8, 3, padding=1, stride=2)),
        *(nn.MaxPool2d(2), nn.ReLU(), nn.Conv2d(8, 16, 1), nn.Conv2d(16, 6, 3, groups=2), nn.Flatten()),
        *(nn.Linear(6 * 4, 5), nn.ReLU(), nn.Linear(5, 3)),
    )
    taken = {}
    for precision in ("int8", "int4"):
        lowered, _ = check(model, _picture(channels, 15), near=1.0, precision={"neural": precision})
        nodes = [node for node in cycles.nodes(lowered) if node.unit == "nn"]
        taken[precision] = sum(node.busy["nn"] - node.constants for node in nodes)
        gemms = {one.node: one for one in lowered.program if one.unit == "nn"}
        first, *others = (one.nibbles for one in gemms.values())
        if precision == "int8":
            assert not any(others)
        else:  # all but the one of 8 channels, which are one word as bytes too
            assert others.count(0) <= 1
        # To pack pictures of few channels takes longer than the array saves.
        assert first == int(precision == "int4" and channels == 16)
        for node in nodes:
            assert node.busy["nn"] == node.equation + node.blocks + node.cuts + node.constants
    if channels == 16:
        assert taken["int4"] < 0.62 * taken["int8"]
    # Transposed, so that channels are not together: they are converted before two of them share a byte.
    torch.manual_seed(0)
    check(Turned(), _picture(5, 6), near=1.0, precision={"neural": "int4"})


class Turned(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Conv2d(6, 8, 1)

    def forward(self, x):
        return self.layer(torch.softmax(x, 1).transpose(1, 2))


TINY = {"a": 64, "b": 512, "k": 128, "c": 128, "p": 2, "x": 1 << 16, "program": 1 << 14}


@pytest.mark.parametrize(
    "machine",
    [
        Machine(8, 8, 1, lanes=8, line=32, **TINY),
        Machine(4, 8, 3, lanes=8, line=32, **TINY),
        Machine(8, 4, 2, lanes=16, line=64, **TINY),
    ],
    ids=str,
)
def test_small_memories_take_tiles(machine):
    """Rows, columns and the reduction in several pieces: the halves of all memories take turns."""
    torch.manual_seed(2)
    model = nn.Sequential(nn.Conv2d(8, 20, 3, padding=1), nn.ReLU(), nn.Conv2d(20, 12, 3, stride=2), nn.Flatten())
    lowered, _ = check(model, _picture(8, 10), machine)
    gemms = [instruction for instruction in lowered.program if instruction.unit == "nn"]
    assert len(gemms) > 10
    assert any(instruction.accumulate for instruction in gemms)


def test_long_reductions_are_cut():
    """More words of each row than half of B and of K hold: sums of slices are added in C."""
    torch.manual_seed(9)
    machine = Machine(4, 4, 2, lanes=8, line=32, a=64, b=32, k=16, c=64, p=4, x=1 << 16)
    lowered, _ = check(nn.Linear(150, 9), (torch.randn(3, 150),), machine)
    assert sum(instruction.accumulate for instruction in lowered.program if instruction.unit == "nn") > 2
    matrix = torch.randn(6, 150)
    # The value stands still, in more tiles than there are words: two sub-arrays, three words.
    check(lambda b: torch.matmul(matrix, b), (torch.randn(150, 7),), machine)
    check(lambda b: torch.matmul(matrix[:, :10], b), (torch.randn(10, 7),), machine)


@pytest.mark.parametrize("precision", ["int8", "int4"])
def test_weights_larger_than_the_cache_come_in_parts(precision):
    """A layer of 36 and one of 37 KB, a cache of 16: parts are loaded while those before them are multiplied."""
    torch.manual_seed(12)
    model = nn.Sequential(nn.Linear(120, 300), nn.ReLU(), nn.Linear(300, 125))
    machine = Machine(8, 8, 2, lanes=8, line=32, x=1 << 14, a=512, program=1 << 14)
    lowered, run = check(model, (torch.randn(3, 120),), machine, near=1.0, precision={"neural": precision})
    assert lowered.cache <= machine.x < 120 * 300
    spans = {"dma": [], "nn": []}
    for one, begin, end in zip(lowered.program, run.begin, run.end):
        if one.unit in spans:
            spans[one.unit].append((begin, end))
    beside = sum(any(a < end and begin < b for a, b in spans["nn"]) for begin, end in spans["dma"])
    assert beside > len(spans["dma"]) / 3
    # A cut reduction, of columns that A cannot hold with all their tiles.
    tiny = Machine(4, 4, 2, lanes=8, line=32, a=64, b=32, k=16, c=64, p=4, x=1 << 12)
    lowered, _ = check(nn.Linear(150, 30), (torch.randn(3, 150),), tiny, near=1.0, precision={"neural": precision})
    assert lowered.cache <= 1 << 12 < 150 * 30
    with pytest.raises(LimitError, match=r"a part of its weights, of 1 words of columns takes \d+ bytes"):
        _lowered(nn.Linear(2000, 8), (torch.randn(1, 2000),), Machine(x=4096), precision={"neural": precision})


def test_vectors():
    torch.manual_seed(3)

    def model(a, b, keys):
        bound = dv.vsa.bind(a, keys)
        together = bound + dv.vsa.bind(b, keys.roll(1, 0))
        return dv.vsa.match_probability(dv.vsa.unbind(together, keys), a.unsqueeze(1))

    # Each vector with its own key, two blocks of nine: more vectors than columns, and not a multiple of them.
    a, b = (torch.softmax(3 * torch.randn(5, 2, 9), -1) for _ in range(2))
    check(model, (a.unsqueeze(1), b.unsqueeze(1), torch.softmax(torch.randn(3, 2, 9), -1)), near=0.2)


@pytest.mark.parametrize(("batch", "length"), [(5, 9), (1, 4), (8, 16), (11, 3)])
def test_int4_convolves_two_vectors_a_column(batch, length):
    generator = torch.Generator().manual_seed(batch)
    inputs = tuple(torch.softmax(4 * torch.randn(batch, 3, length, generator=generator), -1) for _ in range(2))

    def model(a, b):
        return dv.vsa.bind(a, b), dv.vsa.match_probability(dv.vsa.unbind(dv.vsa.bind(a, b), b), a)

    for partition in (None, (1, 1)):
        whole, _ = check(model, inputs, partition=partition, near=1.0, precision={"symbolic": "int8"})
        split, _ = check(model, inputs, partition=partition, near=1.0, precision={"symbolic": "int4"})
        if partition:  # one sub-array, and three operators: columns of one vector, and of two
            for lowered, vectors in ((whole, 3 * batch), (split, -(-3 * batch // 2))):
                groups = sum(of.groups for of in lowered.program if of.unit == "vsa")
                assert groups == 3 * -(-vectors // 8)
        assert all(of.split for of in split.program if of.unit == "vsa")


def test_masses_and_vectors():
    codes = dv.vsa.codebook(7, 2, 16, generator=0)

    def model(logits):
        mass = torch.softmax(logits, -1)
        vectors = dv.vsa.mass_to_vector(mass, codes)
        turned = dv.vsa.bind(vectors[:, 0:4:3], codes[3])
        mixed = dv.vsa.bundle(turned, weights=mass[:, 0, :2])
        return dv.vsa.match_probabilities(mixed, codes), dv.vsa.match_probability(turned, vectors[:, 1:3]).prod(-1)

    check(model, (torch.randn(3, 4, 7, generator=torch.Generator().manual_seed(0)),))


def test_masses_and_lengths():
    """Masses of rows without anything above zero are all the same; vectors of zeros stay."""
    codes = dv.vsa.codebook(7, 2, 16, generator=0)

    def model(vector):
        return dv.vsa.vector_to_mass(vector, codes), dv.vsa.normalise(vector)

    vector = torch.randn(5, 2, 16, generator=torch.Generator().manual_seed(1))
    vector[2] = 0
    check(model, (vector,))


def test_arithmetic():
    def model(a, b):
        c = (a * b - 0.25).clamp(-1, 1) + torch.exp(-a.abs()) / (b.abs() + 0.5)
        d = torch.sqrt(a.abs()) + torch.log(b.abs() + 0.1) * torch.tanh(a) - torch.sigmoid(b)
        e = torch.cat((c, d), 1).roll(2, 1)
        return (
            torch.maximum(c, d).mean(0),
            torch.minimum(c, d).amax(1, keepdim=True),
            e.amin((0, 1)),
            torch.log_softmax(e, 1).sum(-1),
            torch.stack((c, d), -1)[:, [2, 0, 1]] * 2 / 3,
            1 - (0.5 * c).prod(1),
            nn.functional.gelu(4 * a),
        )

    generator = torch.Generator().manual_seed(4)
    check(model, tuple(torch.randn(4, 3, 5, generator=generator) for _ in range(2)), near=0.01)


def test_products_of_values():
    matrix = torch.randn(5, 6, generator=torch.Generator().manual_seed(5))

    def model(a, b):
        return torch.matmul(a, b), torch.matmul(matrix.T, b[0]), torch.matmul(a, matrix)

    generator = torch.Generator().manual_seed(6)
    check(model, (torch.randn(2, 4, 5, generator=generator), torch.randn(2, 5, 3, generator=generator)))


def _reader(width):
    from examples.reasoning.reader import Reader

    return Reader(width)


def test_constants_times_batches_are_products_on_the_array():
    matrix = torch.randn(7, 5, generator=torch.Generator().manual_seed(1))
    lowered, _ = check(lambda b: torch.matmul(matrix, b), (torch.randn(2, 3, 5, 9),))
    assert {of.unit for of in lowered.program} >= {"nn"}
    assert lowered.swapped == {"matmul_1"}


def test_layouts_change_a_word_a_cycle():
    """Columns become the rows that a layer reads: eight lanes turn 2 x 40 x 30 numbers, one by one it takes 2,400."""
    torch.manual_seed(0)
    matrix = torch.randn(40, 4)
    lowered, _ = check(lambda x: torch.matmul(x.transpose(1, 2), matrix), (torch.randn(2, 40, 30),))
    turned = [of for of in lowered.program if of.unit == "vec" and of.turned]
    assert turned
    assert sum(machine.cycles(SMALL, of) for of in lowered.program if of.unit == "vec") < 800


def test_rows_of_windows_are_for_several_places():
    """A word of eight bytes has what three places of a row look at, so a third of the words are moved."""
    torch.manual_seed(0)
    layer = nn.Conv2d(1, 8, 3, stride=2, padding=1)
    lowered, _ = check(layer, _picture(1, 24))
    moved = sum(of.n0 * of.n1 * of.n2 * of.n3 for of in lowered.program if of.unit == "move" and of.operation == "B")
    assert moved <= 2 * 25 * 6
    for precision in ("int8", "int4"):
        model = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 5, 3, padding=1))
        check(model, _picture(3, 12), LARGE, near=1.0, precision={"neural": precision})


def test_parts_of_a_view_are_parts_of_its_rows():
    whole = View(64, "i8", (2, 6, 4, 8), canonical((2, 6, 4, 8)), 64)
    other = View(1024, "i8", whole.shape, dense(whole.shape), 1024)
    memory = np.random.default_rng(0).integers(0, 256, 2048).astype(np.uint8)
    other.scatter(memory, whole.gather(memory))
    part = whole.sliced((1, 1, 0, 2), (1, 2, 4, 3), (1, 3, 1, 2))
    for view in (part, part.permuted((2, 0, 1, 3)), part.expanded((5, 1, 2, 4, 3)), whole):
        found = view.within(whole, other)
        assert found.shape == view.shape
        np.testing.assert_array_equal(found.gather(memory), view.gather(memory))
    assert whole.reshaped((12, 32)) is None
    assert View(64, "i8", (2, 9), (1, 1), 64).within(whole, other) is None
    assert View(60, "i8", (2,), (1,), 64).within(whole, other) is None


class Large(nn.Module):
    """Products up to some hundreds, which are read by a layer and by arithmetic."""

    def __init__(self, factor):
        super().__init__()
        self.first, self.second = nn.Conv2d(2, 4, 1), nn.Conv2d(4, 4, 3, padding=1)
        nn.init.constant_(self.first.weight, factor)

    def forward(self, x):
        x = self.first(x).relu()
        return x.mean((2, 3)) + (x + self.second(x)).mean((2, 3))


@pytest.mark.parametrize(("precision", "factor"), [("int8", 20.0), ("int8", 200.0), ("int4", 2.0), ("int4", 50.0)])
def test_large_numbers_beside_arithmetic(precision, factor):
    torch.manual_seed(0)
    parts = {"neural": precision, "symbolic": precision}
    check(Large(factor), _picture(2, 6), precision=parts, near=0.05 if precision == "int8" else 0.5)


def test_transformers():
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(8, 2, 12, activation="gelu", batch_first=True)
    check(layer, (torch.randn(2, 5, 8),))


@pytest.mark.parametrize("name", ["mimonet", "nvsa", pytest.param("prae", marks=pytest.mark.slow), "lvrf"])
def test_models_of_the_paper(name):
    torch.manual_seed(0)
    if name == "mimonet":
        from examples.reasoning.superposition import mimonet

        check(mimonet(2, 2, 8), (torch.rand(1, 2, 1, 80, 80),), LARGE)
        return
    from examples.reasoning.abduction import nvsa, prae
    from examples.reasoning.learned_rules import lvrf

    model = {
        "nvsa": lambda: nvsa(_reader(2), blocks=2, length=12),
        "prae": lambda: prae(_reader(2)),
        "lvrf": lambda: lvrf(_reader(2), blocks=2, length=12),
    }[name]()
    mixed = {"neural": "int8", "symbolic": "int4"}
    for precision in (None, mixed) if name == "nvsa" else (None,):
        check(model, (torch.rand(1, 16, 1, 80, 80),), LARGE, near=0.5 if precision else 0.2, precision=precision)


@st.composite
def networks(draw):
    """Small convolutional networks, and the machine they are lowered to."""
    channels, side = draw(st.integers(1, 9)), draw(st.integers(5, 9))
    layers: list[nn.Module] = []
    before = channels
    for _ in range(draw(st.integers(1, 3))):
        kind = draw(st.sampled_from(["conv", "conv", "max", "average", "relu"]))
        if kind == "conv":
            kernel, after = draw(st.integers(1, 3)), draw(st.integers(1, 17))
            padding, stride = draw(st.integers(0, 2)), draw(st.integers(1, 2))
            layers.append(nn.Conv2d(before, after, kernel, stride=stride, padding=padding))
            before = after
        elif kind == "max":
            layers.append(nn.MaxPool2d(2, stride=1, padding=draw(st.integers(0, 1))))
        elif kind == "average":
            layers.append(nn.AvgPool2d(2, stride=1, padding=draw(st.integers(0, 1))))
        else:
            layers.append(nn.ReLU())
    layers += [nn.Flatten(), nn.LazyLinear(draw(st.integers(1, 20)))]
    height, width = draw(st.sampled_from([4, 8])), draw(st.sampled_from([4, 8]))
    machine = Machine(height, width, draw(st.integers(1, 3)), lanes=2 * width, line=64, x=1 << 18, a=256, b=512, c=256)
    return nn.Sequential(*layers), (draw(st.integers(1, 3)), channels, side, side), machine


@settings(max_examples=25, suppress_health_check=[HealthCheck.too_slow])
@given(networks(), st.integers(0, 1000), st.sampled_from(["int8", "int4"]))
def test_random_networks(drawn, seed, precision):
    model, shape, machine = drawn
    torch.manual_seed(seed)
    x = torch.randn(shape)
    try:
        model(x)
    except RuntimeError:  # a window does not fit
        return
    for layer in model:
        if isinstance(layer, (nn.Conv2d, nn.Linear)):
            nn.init.normal_(layer.weight, std=0.3)
    # Sums of a thousand products may cancel, and their errors do not.
    near = 0.5 if precision == "int8" else 2.0
    check(model, (x,), machine, near=near, floor=2.0, precision={"neural": precision})


class Reshaped(nn.Module):
    """Pictures that come as rows, and convolutions whose channels do not fill words."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(2, 3, 3, padding=1), nn.ReLU(), nn.Conv2d(3, 5, 3, padding=1), nn.Flatten()
        )
        self.top = nn.Linear(5 * 36, 4)

    def forward(self, rows, stacked):
        found = self.layers(rows.reshape(2, 2, 6, 6)) + self.layers(stacked.flatten(0, 1))
        return self.top(found), self.top(self.layers(stacked.flatten(0, 1)))


def test_pictures_of_any_shape():
    torch.manual_seed(11)
    check(Reshaped(), (torch.randn(2, 72), torch.randn(1, 2, 2, 6, 6)))


class Both(nn.Module):
    """A layer and a binding that do not depend on each other."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Conv2d(8, 16, 3, padding=1)
        self.keys = nn.Parameter(torch.softmax(torch.randn(16, 2, 16), -1))

    def forward(self, x, v):
        bound = dv.vsa.bind(v, self.keys)
        return self.layer(x), bound


def test_layers_and_vectors_run_beside_each_other():
    torch.manual_seed(7)
    inputs = (torch.randn(1, 8, 10, 10), torch.softmax(torch.randn(16, 2, 16), -1))
    spans = {}
    for partition in (None, (1, 1)):
        lowered, run = check(Both(), inputs, partition=partition)
        units = {"nn": [], "vsa": []}
        for instruction, begin, end in zip(lowered.program, run.begin, run.end):
            if instruction.unit in units:
                units[instruction.unit].append((begin, end))
        spans[partition] = units
    for partition, units in spans.items():
        meets = any(a[0] < b[1] and b[0] < a[1] for a in units["nn"] for b in units["vsa"])
        assert meets == (partition is not None)


def test_loads_are_ahead_and_text_is_the_program():
    torch.manual_seed(8)
    model = nn.Sequential(*[nn.Conv2d(8, 8, 3, padding=1) for _ in range(3)])
    lowered, run = check(model, _picture(8, 10, 1))
    again = parse(str(lowered.program))
    assert again.instructions == lowered.program.instructions
    hazards.check(lowered.machine, again, len(lowered.image))
    # The weights of a layer are there before the layer in front of it is done.
    loads = [end for instruction, end in zip(lowered.program, run.end) if instruction.unit == "dma"]
    gemms = [end for instruction, end in zip(lowered.program, run.end) if instruction.unit == "nn"]
    assert all(load < gemm for load, gemm in zip(loads[2:4], gemms))


def test_cycles_are_the_equations_and_what_is_told():
    """A layer that fits is equation (1), vectors that fill columns are equation (4); the rest is named."""
    torch.manual_seed(10)
    quick = Latencies(off_chip=9)
    lowered, run = check(Both(), (torch.randn(1, 8, 10, 10), torch.softmax(torch.randn(16, 2, 16), -1)))
    found = {node.name: node for node in cycles.nodes(lowered, quick)}
    assert set(found) == {operator.name for operator in lowered.graph if operator.kind != "constant"}
    layer, vectors = found["conv2d_1"], found["bind_1"]
    # 9 taps of 8 channels are 9 tiles; the sub-arrays share them as 5 and 4.
    assert layer.equation == layer_cycles(Layer(100, 72, 16), 8, 8, 2) == (16 + 8 + 98) * 5 * 2
    assert layer.blocks == layer.cuts == 0
    assert layer.constants == quick.nn + 1
    assert vectors.equation == temporal_cycles(Vectors(32, 16), 8, 8, 2) == 2 * 2 * (24 + 15)
    assert vectors.cuts == 0
    for node in found.values():
        if node.unit:
            assert node.busy[node.unit] == node.equation + node.blocks + node.cuts + node.constants
    assert str(layer).endswith(
        f"nn {layer.busy['nn']} of 1220: constants +{quick.nn + 1}; {str(layer).rsplit('; ')[-1]}"
    )
    assert max(node.end for node in cycles.nodes(lowered)) == run.end[-2]
    # 20 channels are three words of 8, and no rows of windows where they are apart: blocks; rows in pieces: cuts.
    torch.manual_seed(2)
    lowered, _ = check(nn.Conv2d(20, 8, 3, dilation=2), _picture(20, 20, 1))
    (layer,) = [node for node in cycles.nodes(lowered) if node.kind == "conv2d"]
    assert layer.blocks > 0
    assert layer.cuts > 0


class Chosen(nn.Module):
    """Comparisons, choices, places of the largest, rows of tables, divisions by negative numbers."""

    def __init__(self):
        super().__init__()
        self.layer, self.table = nn.Linear(6, 5), nn.Embedding(5, 4)

    def forward(self, x, words):
        y = self.layer(x)
        first = torch.where(y > 0.25, y, y * 0.5 - 1)
        places = y.argmax(-1)
        return (
            first / (y.abs() + 0.5).masked_fill(y < 0, -2.0),
            self.table(places) + self.table(words),
            torch.floor(4 * y + 0.01),
            (y == y.max(-1, keepdim=True).values) & (y >= 0),
            places,
            y.flip(-1)[:, [0, 1, 1, 3, 2, 4]],
        )


def test_comparisons_and_choices():
    torch.manual_seed(4)
    lowered, _ = check(Chosen(), (torch.randn(4, 6), torch.tensor([4, 0, 2, 2])), near=0.02)
    assert {"greater", "equal", "floor", "div"} <= {operator.kind for operator in lowered.graph}


class Computed(nn.Module):
    def forward(self, x, weights):
        return nn.functional.conv2d(x, weights)


def test_what_cannot_be_lowered_is_told_with_its_line():
    with pytest.raises(UnsupportedError) as caught:
        _lowered(Computed(), (torch.randn(1, 2, 3, 3), torch.randn(1, 2, 1, 1)))
    assert "%conv2d_1: its weights are computed" in str(caught.value)
    assert "test_lower.py:" in str(caught.value)
    with pytest.raises(LimitError, match="bytes of the cache"):
        _lowered(nn.Conv2d(8, 8, 3), (torch.randn(4, 8, 16, 16),), Machine(x=4096))
    with pytest.raises(LimitError, match="memories: B 96, K 10, A 16; the machine has B 64"):
        _lowered(nn.Conv2d(8, 8, 3), (torch.randn(1, 8, 16, 16),), Machine(b=64))
    with pytest.raises(LimitError, match="words of A"):
        _lowered(dv.vsa.bind, (torch.randn(1, 600), torch.randn(1, 600)), Machine())
    with pytest.raises(DomainError, match="is up to 39999"):
        _lowered(lambda a: a + 1, (torch.tensor([39999.0]),))
    with pytest.raises(DomainError, match="the partition"):
        _lowered(nn.Linear(2, 2), (torch.randn(1, 2),), partition=(3, 1))


def _large(*shape, most=1000.0):
    return most * (0.5 + torch.rand(*shape, generator=torch.Generator().manual_seed(0)))


@pytest.mark.parametrize(
    ("function", "x"),
    [
        (lambda x: nn.functional.avg_pool2d(x, 7), _large(1, 3, 14, 14)),
        (lambda x: nn.functional.avg_pool2d(x, (3, 2), 2, 1), _large(2, 3, 9, 8, most=15000)),
        (lambda x: nn.functional.avg_pool2d(x, (1, 14), (3, 1)), _large(3, 7, 16, most=20000)),
        (lambda x: nn.functional.avg_pool2d(x, (5, 1), (1, 3)), _large(1, 2, 8, 7, most=20000)),
        (lambda x: nn.functional.avg_pool2d(x, 32), _large(1, 2, 32, 32, most=200)),
        (lambda x: nn.functional.adaptive_avg_pool2d(x, 1), _large(2, 3, 14, 14)),
        (lambda x: x.mean((0, 2)), _large(5, 4, 7, most=10000)),
        (lambda x: x.mean((0, 2), keepdim=True), _large(4, 3, 5, most=20000)),
        (lambda x: x.var(1), 30 * torch.randn(4, 256, generator=torch.Generator().manual_seed(1))),
    ],
)
def test_means_of_large_sums(function, x):
    """What is summed is beyond 32768, and the mean is not."""
    check(function, (x,), near=1e-4)


def test_sums_of_large_parts():
    """Sums over one of two axes that lie apart are beyond what memory takes, and those over both are not."""
    noise = torch.randn(2, 7, 3, 9, generator=torch.Generator().manual_seed(2))
    x = 10000 * torch.tensor([-1] + [0.125] * 8) + noise
    assert x.sum(1).abs().max() > 1 << 15
    check(lambda x: x.sum((1, 3)), (x,), near=0.01)
    # Of products of wide numbers, too, before they are shifted.
    check(lambda x: dv.vsa.similarity(x[:, :, ::2], x[:, :, ::2]), (noise,), near=0.01)


@pytest.mark.parametrize(
    ("function", "x", "kind"),
    [
        (lambda x: x.prod(1), torch.tensor([[1000.0, 1000.0, 0.01, 0.01]]), "prod"),
        (lambda x: dv.vsa.similarity(x, x), torch.full((1, 1, 64), 30.0), "normalise"),
    ],
)
def test_numbers_on_the_way_are_in_range(function, x, kind):
    with pytest.raises(DomainError, match=rf"%{kind}\w* is on the way to its result up to .* below 32768") as caught:
        _lowered(function, (x,))
    assert "test_lower.py" in str(caught.value)
