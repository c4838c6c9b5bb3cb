"""Small models with a neural and a symbolic part, drawn at random: what people write, in sizes that no array has."""

import torch
from torch import nn

import derivable as dv


def model(integer, choice):
    """A model and its inputs; `integer(low, high)` and `choice(list)` draw."""
    torch.manual_seed(integer(0, 999))
    batch, channels, rows, columns = integer(1, 3), integer(1, 5), integer(4, 8), integer(4, 8)
    picture = torch.randn(batch, channels, rows, columns)
    steps = [_picture_step(integer, choice) for _ in range(integer(0, 3))]
    blocks, length = integer(1, 3), integer(2, 11)
    after = [choice(list(AFTER)) for _ in range(integer(0, 2))]
    made = Drawn(steps, blocks, length, after, integer(1, 4), choice)
    with torch.no_grad():
        made.eval()(picture)
    return made, picture


def _picture_step(integer, choice):
    kind = choice(["conv", "conv", "norm", "activation", "pool", "skip", "split"])
    if kind == "conv":
        size, spread = integer(1, 3), integer(1, 2)
        pad = spread * (size - 1) // 2 + choice([0, 0, 1])
        return nn.LazyConv2d(integer(1, 7), size, choice([1, 1, 2]), pad, spread, bias=choice([True, False]))
    if kind == "norm":
        return nn.LazyBatchNorm2d()
    if kind == "activation":
        return choice([nn.ReLU(), nn.Tanh(), nn.Sigmoid(), nn.LeakyReLU(), nn.Hardtanh()])
    if kind == "pool":
        return choice([nn.MaxPool2d(2, 1, 1), nn.AvgPool2d(2, 1, 1), nn.AvgPool2d((1, 3), 1)])
    return Skip() if kind == "skip" else Split()


class Skip(nn.Module):
    """A residual sum of a convolution of each channel by itself."""

    def __init__(self):
        super().__init__()
        self.layer = None

    def forward(self, x):
        if self.layer is None:
            self.layer = nn.Conv2d(x.shape[1], x.shape[1], 3, padding=1, groups=x.shape[1])
        return x + self.layer(x)


class Split(nn.Module):
    """Two halves of the channels, each on its own way."""

    def forward(self, x):
        first = (x.shape[1] + 1) // 2
        if first == x.shape[1]:
            return -x
        return torch.cat([x[:, :first].relu(), x[:, first:] * 0.5], 1)


def _matched(x, book):
    return dv.vsa.match_probabilities(x, book).softmax(-1) @ book.flatten(1)


AFTER = {
    "bind": lambda x, book: dv.vsa.bind(x, book[0]),
    "unbind": lambda x, book: dv.vsa.unbind(x, book[-1]),
    "bind each": lambda x, book: dv.vsa.bind(x.unsqueeze(1), book).mean(1),
    "unbind itself": lambda x, book: dv.vsa.unbind(x, x.roll(1, -1)),
    "cleanup": lambda x, book: _matched(x, book).unflatten(-1, book.shape[1:]),
    "softmax": lambda x, book: x.softmax(-1),
    "turned": lambda x, book: x.transpose(-2, -1).flatten(-2).roll(1, -1).unflatten(-1, book.shape[1:]),
    "product": lambda x, book: x @ x.transpose(-2, -1) @ x,
}


class Drawn(nn.Module):
    def __init__(self, steps, blocks, length, after, items, choice):
        super().__init__()
        self.steps = nn.ModuleList(steps)
        self.top = nn.LazyLinear(blocks * length)
        self.register_buffer("book", torch.rand(items, blocks, length) / length)
        self.after = [AFTER[name] for name in after]
        self.has_two = choice([False, True])

    def forward(self, x):
        for step in self.steps:
            x = step(x)
        codes = self.top(x.flatten(1)).unflatten(-1, self.book.shape[1:])
        found = codes.softmax(-1)
        for step in self.after:
            found = step(found, self.book)
        return (found, codes.sum(-1)) if self.has_two else found
