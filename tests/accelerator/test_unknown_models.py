"""Models as people write them, of kinds that no other test has: they go through as they are, as modules, as programs of
torch.export and as files of ONNX, and the hardware gives the bits of the golden machine."""

import math
import shutil

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

import derivable as dv

pytestmark = pytest.mark.filterwarnings("ignore::derivable.accelerator.CalibrationWarning")


class Squeeze(nn.Module):
    """What channels are worth, by their means (Hu et al., 2018)."""

    def __init__(self, channels, reduced):
        super().__init__()
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.first, self.second = nn.Conv2d(channels, reduced, 1), nn.Conv2d(reduced, channels, 1)

    def forward(self, x):
        return x * F.hardsigmoid(self.second(F.relu(self.first(self.pool(x)))))


class Inverted(nn.Module):
    """An inverted residual of MobileNetV3 (Howard et al., 2019): wide, a depthwise convolution, and narrow again."""

    def __init__(self, before, wide, after, kernel, stride, has_squeeze):
        super().__init__()
        self.is_residual = stride == 1 and before == after
        layers = [nn.Conv2d(before, wide, 1, bias=False), nn.BatchNorm2d(wide), nn.Hardswish()]
        layers += [nn.Conv2d(wide, wide, kernel, stride, kernel // 2, groups=wide, bias=False), nn.BatchNorm2d(wide)]
        layers += [nn.Hardswish(), *([Squeeze(wide, wide // 4)] if has_squeeze else [])]
        self.layers = nn.Sequential(*layers, nn.Conv2d(wide, after, 1, bias=False), nn.BatchNorm2d(after))

    def forward(self, x):
        found = self.layers(x)
        return x + found if self.is_residual else found


class Mobile(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1, bias=False), nn.BatchNorm2d(8), nn.ReLU6())
        self.blocks = nn.Sequential(Inverted(8, 16, 8, 3, 1, True), Inverted(8, 24, 12, 5, 2, False))
        self.classify = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(0.2), nn.Linear(12, 5))

    def forward(self, x):
        return self.classify(self.blocks(self.stem(x)))


class Rotary(nn.Module):
    """Attention as decoders of language have it: rotated pairs, groups of queries, and a mask of what comes later."""

    def __init__(self, size=16, heads=4, groups=2):
        super().__init__()
        self.heads, self.groups, self.each = heads, groups, size // heads
        self.queries = nn.Linear(size, size, bias=False)
        self.keys, self.values = (nn.Linear(size, groups * self.each, bias=False) for _ in range(2))
        self.out = nn.Linear(size, size, bias=False)
        angles = torch.outer(torch.arange(8.0), 1 / 100 ** (torch.arange(0, self.each, 2) / self.each))
        self.register_buffer("cosines", torch.cat([angles, angles], -1).cos())
        self.register_buffer("sines", torch.cat([angles, angles], -1).sin())

    def rotated(self, x):
        first, second = x.chunk(2, -1)
        length = x.shape[-2]
        return x * self.cosines[:length] + torch.cat([-second, first], -1) * self.sines[:length]

    def forward(self, x):
        batch, length, size = x.shape
        q = self.rotated(self.queries(x).view(batch, length, self.heads, self.each).transpose(1, 2))
        k = self.rotated(self.keys(x).view(batch, length, self.groups, self.each).transpose(1, 2))
        v = self.values(x).view(batch, length, self.groups, self.each).transpose(1, 2)
        k, v = (each.repeat_interleave(self.heads // self.groups, dim=1) for each in (k, v))
        scores = q @ k.transpose(-2, -1) / math.sqrt(self.each)
        later = torch.triu(torch.ones(length, length, dtype=torch.bool), diagonal=1)
        found = scores.masked_fill(later, float("-inf")).softmax(-1) @ v
        return self.out(found.transpose(1, 2).reshape(batch, length, size))


class Norm(nn.Module):
    """Root mean squares (Zhang and Sennrich, 2019)."""

    def __init__(self, size):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(size) + 0.5)

    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5) * self.weight


class Decoder(nn.Module):
    """A block of a decoder, with a gated layer (Shazeer, 2020)."""

    def __init__(self, size=16):
        super().__init__()
        self.before, self.behind, self.attention = Norm(size), Norm(size), Rotary(size)
        self.gate, self.up, self.down = (nn.Linear(*each, bias=False) for each in ((size, 24), (size, 24), (24, size)))

    def forward(self, x):
        x = x + self.attention(self.before(x))
        found = self.behind(x)
        return x + self.down(F.silu(self.gate(found)) * self.up(found))


def hyperdimensional():
    """A classifier of torch-hd's examples: a record of values by places, and class vectors that were added up."""
    torchhd = pytest.importorskip("torchhd")

    class Classifier(nn.Module):
        def __init__(self, places=16, dimensions=128, classes=4):
            super().__init__()
            self.place = torchhd.embeddings.Random(places, dimensions)
            self.value = torchhd.embeddings.Level(10, dimensions)
            self.classify = torchhd.models.Centroid(dimensions, classes)

        def encode(self, x):
            record = torchhd.bind(self.place.weight, self.value(torch.flatten(x, start_dim=1)))
            return torchhd.hard_quantize(torchhd.multiset(record))

        def forward(self, x):
            return self.classify(self.encode(x), dot=True)

    model = Classifier()
    with torch.no_grad():
        model.classify.add(model.encode(torch.rand(40, 4, 4)), torch.randint(0, 4, (40,)))
        model.classify.normalize()
    return model


# A model, the shape of its inputs, and how far int8 may be away, of the largest number.
MODELS = {
    "depthwise": (Mobile, (1, 3, 16, 16), 0.1),
    "decoder": (Decoder, (1, 6, 16), 0.05),
    "hyperdimensional": (hyperdimensional, (1, 4, 4), 0.02),
}


def designed(name, way, tmp_path):
    torch.manual_seed(0)
    make, shape, tolerance = MODELS[name]
    model, samples = make(), torch.rand(8, *shape[1:])
    model.train()
    if name == "depthwise":
        with torch.no_grad():
            for _ in range(20):
                model(torch.rand(16, *shape[1:]))
    model.eval()
    source = model
    if way == "export":
        source = torch.export.export(model, (samples[:1],))
    elif way == "onnx":
        pytest.importorskip("onnxscript")
        source = tmp_path / "model.onnx"
        torch.onnx.export(model, (samples[:1],), source, dynamo=True, verbose=False)
    made = dv.accelerator.design(source, samples[:1], pes=64, precision="int8", calibration=[samples])
    with torch.no_grad():
        expected = model(samples[:1]).double().as_subclass(torch.Tensor).numpy()
    return made, samples[:1], expected, tolerance


WAYS = [(name, way) for name in MODELS for way in ("module", "export", "onnx")]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("name", "way"), [pytest.param(*each, marks=[] if each[1] == "module" else pytest.mark.slow) for each in WAYS]
)
def test_models_go_through_as_they_are(name, way, tmp_path):
    if (name, way) in (("hyperdimensional", "export"), ("hyperdimensional", "onnx")):
        pytest.skip("torch does not export tensors of a class of torch-hd's")
    made, inputs, expected, tolerance = designed(name, way, tmp_path)
    run = made.simulate(inputs, "python")
    assert run.cycles == run.modelled
    assert np.abs(run.outputs[0] - expected).max() <= tolerance * np.abs(expected).max()


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("iverilog") is None, reason="Icarus Verilog is not installed")
@pytest.mark.parametrize("name", MODELS)
def test_the_hardware_has_the_bits_of_the_golden_machine(name, tmp_path):
    made, inputs, _, _ = designed(name, "module", tmp_path)
    run, golden = (made.simulate(inputs, each) for each in ("icarus", "python"))
    np.testing.assert_array_equal(run.memory, golden.memory)
    assert (run.cycles, run.busy) == (golden.cycles, golden.busy)
