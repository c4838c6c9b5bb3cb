"""Small models as people have them, designed and run on the golden machine, near what torch gives."""

import copy
import math

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils._pytree import tree_leaves

import derivable as dv

F = torch.nn.functional


class Module(nn.Module):
    """Layers by name, and a function of them and the inputs."""

    def __init__(self, function, **parts):
        super().__init__()
        self.function = function
        for name, part in parts.items():
            if isinstance(part, nn.Module):
                self.add_module(name, part)
            elif isinstance(part, nn.Parameter):
                self.register_parameter(name, part)
            else:
                self.register_buffer(name, part)

    def forward(self, *args, **kwargs):
        return self.function(self, *args, **kwargs)


def squeezed(channels):
    inner = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Conv2d(channels, 2, 1), nn.ReLU(), nn.Conv2d(2, channels, 1))
    return Module(lambda self, x: x * F.hardsigmoid(self.inner(x)), inner=inner)


def residual(inputs, outputs, stride):
    def forward(self, x):
        found = self.layers(x)
        found += self.short(x)
        return F.relu_(found)

    layers = [nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU(True)]
    layers += [nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False), nn.BatchNorm2d(outputs)]
    short = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))
    return Module(forward, layers=nn.Sequential(*layers), short=short)


def attending(mask):
    """Attention of two heads with layer norms, by hand; `mask` makes scores of scores and lengths."""

    def forward(self, x, *lengths):
        batch, length, width = x.shape
        heads = (part.unflatten(-1, (2, -1)).transpose(1, 2) for part in self.qkv(self.norm(x)).chunk(3, -1))
        query, key, value = heads
        scores = mask(query @ key.transpose(-2, -1) / math.sqrt(width // 2), *lengths)
        mixed = (scores.softmax(-1) @ value).transpose(1, 2).reshape(batch, length, width)
        x = x + self.out(mixed)
        return x + self.top(x)

    top = nn.Sequential(nn.LayerNorm(16), nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 16))
    return Module(forward, norm=nn.LayerNorm(16), qkv=nn.Linear(16, 48), out=nn.Linear(16, 16), top=top)


def causal(scores):
    length = scores.shape[-1]
    return scores.masked_fill(torch.triu(torch.ones(length, length), 1).bool(), float("-inf"))


def padded(scores, lengths):
    return scores.masked_fill(torch.arange(5) >= lengths[:, None, None, None], -1e9)


def as_in_libraries(scores, mask):
    return scores + (1.0 - mask[:, None, None, :].to(scores.dtype)) * torch.finfo(scores.dtype).min


def unet(up):
    def forward(self, x):
        first = F.relu(self.first(x))
        second = F.relu(self.second(F.max_pool2d(first, 2)))
        return torch.sigmoid(self.last(torch.cat([first, self.up(second)], 1)))

    first, second = nn.Conv2d(1, 4, 3, padding=1), nn.Conv2d(4, 8, 3, padding=1)
    return Module(forward, first=first, second=second, up=up, last=nn.Conv2d(8, 1, 3, padding=1))


def last_of(network):
    return Module(lambda self, x: self.top(self.network(x)[0][:, -1]), network=network, top=nn.LazyLinear(3))


def steps(self, x):
    h, c = torch.zeros(x.shape[0], 6), torch.zeros(x.shape[0], 6)
    for k in range(x.shape[1]):
        h, c = self.cell(x[:, k], (h, c))
    return h


def in_place(self, x):
    y = self.layer(x)
    y += 1
    y.mul_(0.5).clamp_(0, 1)
    y[:, 0] = 0
    return y


def nested(self, left, right):
    a, b = self.a(left), self.b(right["inner"])
    return {"sum": a + b, "both": (a * b, torch.cat([a, b], -1))}


def codebook(self, x):
    found = self.encoder(x)
    places = torch.cdist(found, self.book).argmin(-1)
    return self.decoder(self.book[places]), places


def vectors(model):
    def forward(self, x):
        mixed = dv.vsa.bundle(self.book, weights=self.layer(x).softmax(-1), model=model)
        key = self.roles[0]
        found = dv.vsa.unbind(dv.vsa.bind(mixed, key, model=model), key, model=model)
        return dv.vsa.similarities(found, self.book, model=model), dv.vsa.cleanup(found, self.book, model=model)

    shape, draw = ((2, 16) if model == "block" else (64,)), torch.Generator().manual_seed(0)
    book, roles = (dv.vsa.random(n, *shape, model=model, generator=draw) for n in (5, 2))
    return Module(forward, layer=nn.Linear(8, 5), book=book, roles=roles), torch.randn(3, 8)


def resonator():
    def forward(self, product):
        one, other = dv.vsa.bundle(self.a), dv.vsa.bundle(self.b)
        for _ in range(3):
            one = dv.vsa.cleanup(dv.vsa.unbind(product, other), self.a, temperature=0.1)
            other = dv.vsa.cleanup(dv.vsa.unbind(product, one), self.b, temperature=0.1)
        return dv.vsa.similarities(one, self.a), dv.vsa.similarities(other, self.b).argmax(-1)

    a, b = (dv.vsa.random(5, 2, 16, generator=seed) for seed in (1, 2))
    return Module(forward, a=a, b=b), dv.vsa.bind(a[1], b[2])[None]


def memory():
    items = dv.vsa.ItemMemory((2, 16), generator=0).add("a").add("b").add("c")
    forward = lambda self, x: (self.items(x), self.items.similarities(x))  # noqa: E731
    return Module(forward, items=items), torch.rand(4, 2, 16)


def drawn(*shape):
    return torch.randn(*shape)


def layered(*layers):
    return nn.Sequential(*layers)


WORDS, LENGTHS = torch.tensor([[3, 0, 9], [9, 9, 1]]), torch.tensor([3, 5])
MASK = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]])
MODELS = {
    "perceptron": lambda: (layered(nn.Linear(16, 32), nn.ReLU(), nn.Dropout(), nn.Linear(32, 10)), drawn(4, 16)),
    "lenet": lambda: (
        layered(nn.Conv2d(1, 6, 5, padding=2), nn.Tanh(), nn.AvgPool2d(2), nn.Conv2d(6, 8, 5), nn.Tanh(),
                nn.MaxPool2d(2), nn.Flatten(), nn.Linear(32, 10), nn.Softmax(-1)),
        drawn(2, 1, 16, 16),
    ),
    "residual": lambda: (
        layered(residual(4, 8, 2), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 5)), drawn(2, 4, 8, 8)
    ),
    "mobile": lambda: (
        layered(nn.Conv2d(3, 8, 3, 2, 1, bias=False), nn.BatchNorm2d(8), nn.Hardswish(),
                nn.Conv2d(8, 8, 3, 1, 1, groups=8), nn.ReLU6(), squeezed(8), nn.Conv2d(8, 4, 1)),
        drawn(2, 3, 8, 8),
    ),
    "attention": lambda: (attending(lambda scores: scores), drawn(2, 5, 16)),
    "causal attention": lambda: (attending(causal), drawn(2, 5, 16)),
    "padded attention": lambda: (attending(padded), (drawn(2, 5, 16), LENGTHS)),
    "masks of libraries": lambda: (attending(as_in_libraries), (drawn(2, 5, 16), MASK)),
    "multi-head attention": lambda: (
        Module(
            lambda self, x, mask: self.inner(x, x, x, key_padding_mask=mask, need_weights=False)[0],
            inner=nn.MultiheadAttention(16, 2, batch_first=True),
        ),
        (drawn(2, 5, 16), MASK == 0),
    ),
    "language": lambda: (
        layered(nn.Embedding(10, 16), attending(causal), nn.Linear(16, 10)), torch.tensor([[1, 0, 9, 4, 4]])
    ),
    "transposed": lambda: (unet(nn.ConvTranspose2d(8, 4, 3, 2, 1, output_padding=1)), drawn(1, 1, 8, 8)),
    "upsampled": lambda: (unet(layered(nn.Upsample(scale_factor=2), nn.Conv2d(8, 4, 1))), drawn(1, 1, 8, 8)),
    "bilinear": lambda: (
        unet(layered(nn.Upsample(scale_factor=2, mode="bilinear"), nn.Conv2d(8, 4, 1))), drawn(1, 1, 8, 8)
    ),
    "shuffled": lambda: (layered(nn.Conv2d(1, 4, 3, padding=1), nn.PixelShuffle(2)), drawn(1, 1, 4, 4)),
    "lstm": lambda: (last_of(nn.LSTM(8, 6, num_layers=2, batch_first=True)), drawn(2, 3, 8)),
    "gru": lambda: (last_of(nn.GRU(8, 6, bidirectional=True, batch_first=True)), drawn(2, 3, 8)),
    "lstm cell": lambda: (Module(steps, cell=nn.LSTMCell(8, 6)), drawn(2, 2, 8)),
    "twice": lambda: (Module(lambda self, x: self.layer(F.silu(self.layer(x))), layer=nn.Linear(8, 8)), drawn(3, 8)),
    "in place": lambda: (Module(in_place, layer=nn.Linear(8, 8)), drawn(3, 8)),
    "nested": lambda: (
        Module(nested, a=nn.Linear(8, 4), b=nn.Linear(6, 4)), {"left": drawn(3, 8), "right": {"inner": drawn(3, 6)}}
    ),
    "three factors": lambda: (nn.Bilinear(8, 6, 5), (drawn(3, 8), drawn(3, 6))),
    "half": lambda: (layered(nn.Linear(8, 4), nn.ReLU()).bfloat16(), drawn(2, 8).bfloat16()),
    "words": lambda: (layered(nn.Embedding(10, 8), nn.Flatten(), nn.Linear(24, 4)), WORDS),
    "bag of words": lambda: (layered(nn.EmbeddingBag(10, 8), nn.Linear(8, 3)), WORDS),
    "codebook": lambda: (
        Module(codebook, encoder=nn.Linear(8, 4), decoder=nn.Linear(4, 8), book=drawn(6, 4)), drawn(3, 8)
    ),
    "sequence": lambda: (
        layered(nn.Conv1d(3, 8, 3, padding=1), nn.BatchNorm1d(8), nn.ReLU(), nn.MaxPool1d(2),
                nn.ConvTranspose1d(8, 4, 4, 2, 1), nn.AdaptiveAvgPool1d(1), nn.Flatten()),
        drawn(2, 3, 10),
    ),
    "norms": lambda: (
        layered(nn.Conv2d(3, 8, 3), nn.GroupNorm(2, 8), nn.SiLU(), nn.Conv2d(8, 4, 3), nn.InstanceNorm2d(4), nn.ELU(),
                nn.Flatten(), nn.RMSNorm(16), nn.Linear(16, 4)),
        drawn(2, 3, 6, 6),
    ),
    "pools": lambda: (
        layered(nn.Conv2d(3, 4, 3, padding=1), nn.MaxPool2d(3, 2, 1), nn.AvgPool2d(3, 1, 1, count_include_pad=False),
                nn.MaxPool2d(3, 2, ceil_mode=True), nn.AdaptiveAvgPool2d((1, 2))),
        drawn(2, 3, 11, 11),
    ),
    "paddings": lambda: (
        layered(nn.ReflectionPad2d(1), nn.Conv2d(3, 4, 3), nn.Conv2d(4, 4, 3, padding=1, padding_mode="circular")),
        drawn(2, 3, 6, 6),
    ),
    "activations": lambda: (
        layered(nn.Linear(8, 8), nn.Mish(), nn.Linear(8, 8), nn.SELU(), nn.Linear(8, 8), nn.LogSigmoid(),
                nn.Linear(8, 8), nn.GLU(), nn.Linear(4, 4), nn.Threshold(0.1, -1.0)),
        drawn(2, 8),
    ),
    "block codes": lambda: vectors("block"),
    "hrr": lambda: vectors("hrr"),
    "map": lambda: vectors("map"),
    "bsc": lambda: vectors("bsc"),
    "resonator": resonator,
    "memory": memory,
}  # fmt: skip


@pytest.mark.parametrize("name", MODELS)
def test_models(name):
    torch.manual_seed(0)
    model, example = MODELS[name]()
    with torch.no_grad():
        given = copy.deepcopy(example)
        called = model.eval()
        expected = (
            called(**given) if isinstance(given, dict) else called(*(given if isinstance(given, tuple) else (given,)))
        )
    design = dv.accelerator.design(model, example, pes=64, precision="int8")
    run = design.simulate(example, backend="python")
    for found, wanted in zip(run.outputs, tree_leaves(expected), strict=True):
        wanted = (wanted.double() if wanted.is_floating_point() else wanted).numpy()
        assert found.shape == wanted.shape
        assert found.dtype.kind == wanted.dtype.kind
        if wanted.dtype.kind == "f":
            assert np.abs(found - wanted).max() <= 0.03 * max(np.abs(wanted).max(), 0.1)
        else:
            np.testing.assert_array_equal(found, wanted)
