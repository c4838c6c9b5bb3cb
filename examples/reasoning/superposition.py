"""After MIMONet (Menet et al., 2023): several pictures go through one network at once, told apart by keys."""

from __future__ import annotations

from torch import Tensor, nn

import derivable as dv

from .problems import ATTRIBUTES, SIDE
from .reader import train


class SuperposedReader(nn.Module):
    """panels [batch, input, 1, 80, 80] -> logits [batch, input, 30], through one pass of the deep part.

    The channels at each place are a block code. Each input is bound with its own key, the sum goes through the
    convolutions, and unbinding with a second key gives each input its own features.
    """

    def __init__(self, inputs: int = 2, blocks: int = 4, length: int = 16, seed: int = 0):
        super().__init__()
        self.shape = (blocks, length)
        width = blocks * length
        self.stem = nn.Sequential(nn.Conv2d(1, width, 5, stride=4, padding=2), nn.BatchNorm2d(width), nn.ReLU())
        self.keys = nn.Parameter(dv.vsa.random(inputs, blocks, length, distribution="unitary", generator=seed))
        self.trunk = nn.Sequential(
            nn.Conv2d(width, width, 3, stride=2, padding=1),
            nn.BatchNorm2d(width),
            nn.ReLU(),
            nn.Conv2d(width, width, 3, stride=2, padding=1),
            nn.BatchNorm2d(width),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(width * (SIDE // 16) ** 2, 4 * width),
        )
        self.own_keys = nn.Parameter(
            dv.vsa.random(inputs, 4 * blocks, length, distribution="unitary", generator=seed + 1)
        )
        self.own_shape = (4 * blocks, length)
        self.top = nn.Sequential(
            nn.ReLU(), nn.Linear(4 * width, 128), nn.ReLU(), nn.Linear(128, sum(ATTRIBUTES.values()))
        )
        self.inputs = inputs

    def forward(self, panels: Tensor) -> Tensor:
        features = self.stem(panels.flatten(0, 1)).unflatten(0, (-1, self.inputs))
        # [batch, row, column, input, block, length]: the keys are along the axis of inputs.
        codes = features.permute(0, 3, 4, 1, 2).unflatten(-1, self.shape)
        together = dv.vsa.bundle(dv.vsa.bind(codes, self.keys))
        deep = self.trunk(together.flatten(-2).permute(0, 3, 1, 2)).unflatten(-1, self.own_shape)
        own = dv.vsa.unbind(deep.unsqueeze(1), self.own_keys)
        return self.top(own.flatten(-2))


def mimonet(inputs: int = 2, blocks: int = 4, length: int = 16, seed: int = 0) -> SuperposedReader:
    """After MIMONet: a reader of several panels at once."""
    return SuperposedReader(inputs, blocks, length, seed)


def train_superposed(
    network: SuperposedReader, values: Tensor, epochs: int, seed: int, noise: float = 0.3, batch: int = 64
) -> list[float]:
    """Teach the network panels with attributes values [panel, attribute]; returns the loss of each step."""
    inputs = network.inputs

    def read(panels: Tensor) -> Tensor:
        return network(panels.unflatten(0, (-1, inputs))).flatten(0, 1)

    whole = batch // inputs * inputs
    return train(network, values, epochs, seed, noise, whole, read=read, rate=3e-3, what="reading several at once")
