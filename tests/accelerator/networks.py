"""Networks of the tests: a perceptron, and ResNet18 as He et al., 2016, define it."""

import itertools

import torch
from torch import nn

from derivable.accelerator.numbers.formats import prepare
from derivable.accelerator.numbers.quantisation import calibrate
from derivable.accelerator.trace.trace import trace


def calibrated(model, inputs, precision=None):
    """The prepared graph of a model, quantised with its inputs, int8 where `precision` has nothing else; and the inputs
    as arrays."""
    if isinstance(model, nn.Module):
        model.eval()
    arrays = [(each.double() if each.is_floating_point() else each).detach().numpy() for each in inputs]
    precision = {"neural": "int8", "symbolic": "int8"} | (precision or {})
    return calibrate(prepare(trace(model, inputs)), [arrays], precision), arrays


class MLP(nn.Module):
    def __init__(self, sizes=(5, 8, 3)):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in itertools.pairwise(sizes))

    def forward(self, x):
        for layer in self.layers[:-1]:
            x = torch.relu(layer(x))
        return self.layers[-1](x)


class Basic(nn.Module):
    def __init__(self, before, after, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(before, after, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(after)
        self.relu = nn.ReLU(inplace=True)
        self.conv2 = nn.Conv2d(after, after, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(after)
        self.downsample = None
        if stride != 1 or before != after:
            self.downsample = nn.Sequential(nn.Conv2d(before, after, 1, stride, bias=False), nn.BatchNorm2d(after))

    def forward(self, x):
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        out += x if self.downsample is None else self.downsample(x)
        return self.relu(out)


def resnet18(width=64, classes=10, channels=3):
    layers = [
        nn.Conv2d(channels, width, 7, 2, 3, bias=False),
        nn.BatchNorm2d(width),
        nn.ReLU(True),
        nn.MaxPool2d(3, 2, 1),
    ]
    before = width
    for stage in range(4):
        after = width * 2**stage
        layers += [Basic(before, after, 1 if stage == 0 else 2), Basic(after, after, 1)]
        before = after
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(before, classes))
