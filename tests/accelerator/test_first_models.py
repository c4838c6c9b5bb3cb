"""What newcomers bring: models of many kinds go through design, simulation and report without a stumble."""

import functools
import warnings

import numpy as np
import pytest
import torch
from torch import nn

import derivable as dv
from derivable.accelerator.designs.report import write_report
from derivable.accelerator.hardware import icarus, simulation

KEY = dv.vsa.random(4, 8, generator=3)


class Pictures(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.pool, self.layer = nn.Conv2d(1, 4, 3, padding=1), nn.MaxPool2d(2), nn.Linear(16, 64)
        self.role = nn.Parameter(dv.vsa.random(4, 16, generator=0))
        self.register_buffer("book", dv.vsa.codebook(6, 4, 16, generator=1))

    def forward(self, x):
        codes = self.layer(self.pool(torch.relu(self.conv(x))).flatten(1)).view(-1, 4, 16).softmax(-1)
        return dv.vsa.similarities(dv.vsa.bind(codes, self.role), self.book)


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.heads, self.norm = nn.MultiheadAttention(8, 2, batch_first=True), nn.LayerNorm(8)

    def forward(self, x):
        return self.norm(x + self.heads(x, x, x)[0])


class Last(nn.Module):
    def __init__(self):
        super().__init__()
        self.steps, self.layer = nn.LSTM(4, 4, batch_first=True), nn.Linear(4, 3)

    def forward(self, x):
        return self.layer(self.steps(x)[0][:, -1])


class Two(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.layer = nn.Embedding(20, 6), nn.Linear(12, 5)

    def forward(self, ids, x):
        return self.layer(torch.cat([self.words(ids).mean(1), x], -1)).sigmoid()


class Holder:
    """Not a module, and callable."""

    def __init__(self):
        self.net = nn.Linear(6, 6)

    def __call__(self, x):
        return self.net(x).relu()


def closure():
    encode = nn.Sequential(nn.Linear(12, 32), nn.Tanh())
    return lambda x: dv.vsa.bind(encode(x).view(-1, 4, 8).softmax(-1), KEY)


def compiled(module):
    """What torch.compile makes, with a back end that refuses to run: a trace compiles nothing."""

    def refuse(graph, inputs):
        raise AssertionError("it was compiled")

    return torch.compile(module, backend=refuse)


def inner_compiled():
    encode = compiled(nn.Linear(6, 6))
    return lambda x: encode(x) * 2


def compiled_in_place():
    module = nn.Linear(6, 4)
    module.compile(backend=lambda graph, inputs: pytest.fail("it was compiled"))
    return module


def mlp():
    return nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 4), nn.LogSoftmax(-1))


MODELS = {
    "MLP": (mlp, (3, 6)),
    "CNN and binding": (Pictures, (2, 1, 4, 4)),
    "attention": (Attention, (2, 3, 8)),
    "LSTM": (Last, (2, 3, 4)),
    "lambda": (lambda: lambda x: dv.vsa.bind(x, x.roll(1, -1)), (1, 4, 16)),
    "batch norm": (lambda: nn.Sequential(nn.Linear(6, 6), nn.BatchNorm1d(6), nn.Dropout(), nn.Softmax(-1)), (4, 6)),
    "closure": (closure, (3, 12)),
    "two inputs": (Two, None),
    "compiled module": (lambda: compiled(mlp()), (3, 6)),
    "compiled closure": (lambda: compiled(closure()), (3, 12)),
    "compiled part": (lambda: nn.Sequential(compiled(nn.Linear(6, 6)), nn.ReLU()), (3, 6)),
    "closure over a compiled module": (inner_compiled, (3, 6)),
    "module.compile()": (compiled_in_place, (3, 6)),
    "callable": (Holder, (3, 6)),
    "method": (lambda: mlp().forward, (3, 6)),
    "partial": (lambda: functools.partial(lambda layer, x: layer(x), nn.Linear(6, 4)), (3, 6)),
}


@pytest.mark.parametrize("name", MODELS)
def test_a_model_of_a_newcomer(name, tmp_path):
    torch.manual_seed(0)
    build, shape = MODELS[name]
    model = build()
    if isinstance(model, nn.Module):
        model.eval()
    inputs = (torch.randint(0, 20, (2, 4)), torch.rand(2, 6)) if shape is None else (torch.rand(shape),)
    made = dv.accelerator.design(model, inputs, pes=64, precision="int8")
    run = made.simulate(inputs, "python")
    with torch.no_grad(), torch.compiler.set_stance("force_eager"):
        expected = model(*inputs).double().numpy()
    assert np.abs(run.outputs[0] - expected).max() < 0.02 * max(1.0, np.abs(expected).max())
    assert write_report(made, tmp_path / "not there" / "yet", run)[0].exists()


def test_a_weight_of_a_closure_is_one_constant():
    layer = nn.Linear(4, 4)

    def model(x):
        for _ in range(3):
            x = layer(x)
        return x

    graph = dv.accelerator.design(model, torch.rand(2, 4), pes=64).graph
    assert sum(operator.kind == "constant" for operator in graph) == 2


def test_the_listing_of_the_paper():
    """Default arguments, and a binding of long vectors: sides are those that the hardware has."""
    made = dv.accelerator.design(lambda x: dv.vsa.bind(x, x.roll(1, -1)), torch.randn(1, 4, 256))
    assert max(made.height, made.width) <= 64
    assert made.lanes == made.lowered.machine.lanes
    assert made.explain().startswith(f"whole pass  {made.pass_cycles():,} cycles")


@pytest.mark.parametrize("pes", [16, 64, 1 << 12])
def test_sides_are_those_of_the_hardware(pes):
    made = dv.accelerator.design(nn.Linear(300, 300), torch.rand(2, 300), pes=pes)
    assert max(made.height, made.width) <= 64
    assert made.lanes == made.lowered.machine.lanes


def test_an_unknown_bit_of_an_output_is_an_error():
    """X in an output of Icarus is no number; in the gap behind an output it does not matter."""
    made = dv.accelerator.design(nn.Linear(4, 4), torch.rand(1, 4), pes=16)
    lowered, (view,) = made.lowered, made.lowered.outputs
    unknown = np.zeros(len(lowered.image), bool)
    simulation._check_known(lowered, unknown)
    unknown[view.address + 5] = True
    with pytest.raises(dv.DerivableError, match="1 numbers of the output %linear_1 have unknown bits"):
        simulation._check_known(lowered, unknown)


def test_digits_of_icarus():
    memory, unknown = icarus._bytes(["0x12", "zzff"], 2)
    assert memory.tolist() == [0x12, 0, 0xFF, 0]
    assert unknown.tolist() == [False, True, False, True]


@pytest.fixture(scope="module")
def small():
    """A layer whose outputs are millionths."""
    torch.manual_seed(0)
    layer, x = nn.Linear(16, 8), torch.randn(4, 16)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter *= 1e-6
    return layer, x, dv.accelerator.design(layer, x, pes=64, precision="int8", calibration=[x, -x])


def test_small_outputs_are_not_flushed_to_zero(small):
    layer, x, made = small
    run = made.simulate(x, "python")
    expected = layer(x).detach().double().numpy()
    assert np.abs(run.outputs[0] - expected).max() < 0.02 * np.abs(expected).max()
    assert run.losses["linear_1"].flushed == 0


def test_small_outputs_in_views(small):
    layer, x, _ = small
    made = dv.accelerator.design(lambda x: layer(x).T[:2], x, pes=64, precision="int8", calibration=[x, -x])
    run = made.simulate(x, "python")
    expected = layer(x).T[:2].detach().double().numpy()
    assert np.abs(run.outputs[0] - expected).max() < 0.02 * np.abs(expected).max()


def test_numbers_beyond_the_calibration_are_counted(small):
    _, x, made = small
    assert made.simulate(x, "python").lost.saturated == 0
    run = made.simulate(torch.cat((x, 4 * x)), "python")
    most = float(x.abs().max())
    beyond = int((4 * x).abs().gt(most).sum())
    assert run.losses["input"].numbers == 2 * x.numel()
    assert 0.9 * beyond <= run.losses["input"].saturated <= 1.1 * beyond + 3


def test_numbers_flushed_to_zero_are_counted():
    """Of a sum of lanes with 16 fractional bits: what is below half a step of the format of the input is zero."""
    x = torch.tensor([[1.0, 1e-4, 2e-4, 0.0]])
    made = dv.accelerator.design(nn.Linear(4, 2), x, pes=16, precision="int8", calibration=[x, -x])
    assert made.simulate(x, "python").losses["input"].flushed == 2


@pytest.mark.parametrize("pool", [False, True])
def test_negative_numbers_before_a_relu_are_not_lost(pool):
    """The format of what goes from a ReLU into a layer begins at zero, where ReLU cuts negative sums, too."""
    torch.manual_seed(0)
    first, last, x = nn.Conv2d(1, 4, 3), nn.Conv2d(4, 2, 1), torch.randn(4, 1, 6, 6)
    before = (lambda x: nn.functional.max_pool2d(first(x), 2)) if pool else first
    made = dv.accelerator.design(lambda x: last(before(x).relu()), x, pes=64, precision="int8", calibration=[x, -x])
    sums = first(x)
    assert (sums < 0).sum() > 100
    # Scales are those with the least squared error: a few of the largest numbers are cut.
    lost = made.simulate(x, "python").losses["conv2d_1"]
    assert lost.saturated <= int((sums > 0.7 * sums.max()).sum()) < 20
    assert lost.flushed <= int(((sums > 0) & (sums < 0.02)).sum())
    assert 20 < made.simulate(10 * x, "python").losses["conv2d_1"].saturated < int((sums > 0).sum())


def test_one_sample_is_warned_of():
    layer, x = nn.Linear(4, 2), torch.rand(3, 4)
    for calibration in (None, [x]):
        with pytest.warns(dv.accelerator.CalibrationWarning, match=r"calibration=\[\.\.\.\]"):
            dv.accelerator.design(layer, x, pes=16, calibration=calibration)
    for calibration in ([x, 2 * x], [torch.cat((x, 2 * x))]):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            made = dv.accelerator.design(layer, x, pes=16, precision="int8", calibration=calibration)
        assert made.simulate(2 * x, "python").lost.saturated == 0
