"""Bindings by constants as products with circulant matrices: bit by bit what columns give, on whatever layout."""

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import nn

import derivable as dv
from derivable.accelerator.lower import lower_circulant, lower_vectors
from derivable.accelerator.lower.lower import lower, simulate
from derivable.accelerator.lower.lower_circulant import plan
from derivable.accelerator.machine import hazards, machine

from .networks import calibrated
from .test_lower import LARGE, SMALL, check


def _units(lowered, kind):
    names = {of.name for of in lowered.graph if of.kind == kind}
    return {of.unit for of in lowered.program if of.node in names and of.unit in ("nn", "vsa")}


class Superposed(nn.Module):
    """Features of several pictures at each place, bound with keys and added."""

    def __init__(self, kind, keys, blocks, length, place, *, is_shared):
        super().__init__()
        self.convolution = nn.Conv2d(2, blocks * length, 3, padding=1)
        shape = (keys, 1 if is_shared else blocks, length)
        self.keys = nn.Parameter(torch.randn(shape, generator=torch.Generator().manual_seed(1)))
        self.kind, self.shape, self.place = kind, (keys, blocks, length), place

    def forward(self, x):
        keys, blocks, length = self.shape
        features = torch.relu(self.convolution(x)).unflatten(0, (-1, keys))
        codes = features.permute(0, 3, 4, 1, 2).unflatten(-1, (blocks, length))
        operands = (self.keys.expand(self.shape), codes) if self.place == 0 else (codes, self.keys.expand(self.shape))
        return getattr(dv.vsa, self.kind)(*operands).sum(3)


@pytest.mark.parametrize("precision", ["int8", "int4"])
@pytest.mark.parametrize(("kind", "place"), [("bind", 1), ("bind", 0), ("unbind", 1), ("unbind", 0)])
@pytest.mark.parametrize("is_shared", [False, True])
def test_keys_of_pictures(kind, place, precision, is_shared):
    torch.manual_seed(2)
    model = Superposed(kind, 2, 3, 8, place, is_shared=is_shared)
    lowered, run = check(model, (torch.rand(4, 2, 7, 5),), LARGE, near=1.0, precision={"symbolic": precision})
    assert _units(lowered, kind) == {"nn"}
    hazards.check(LARGE, lowered.program, len(run.memory))


def test_what_columns_take_fewer_cycles_for():
    """One vector for each key; two values; vectors whose entries are not together."""

    def few(x, keys):
        return dv.vsa.bind(x, torch.linspace(-1, 1, 64).reshape(4, 16).roll(1, 0)), dv.vsa.bind(x, keys)

    lowered, _ = check(few, (torch.randn(1, 4, 16), torch.randn(1, 4, 16)), near=0.3)
    assert _units(lowered, "bind") == {"vsa"}

    def turned(x):
        return dv.vsa.bind(x.transpose(1, 2).unflatten(-1, (2, 8)), torch.linspace(-1, 1, 16).reshape(2, 8))

    lowered, _ = check(turned, (torch.randn(3, 16, 40),), near=0.3)
    assert _units(lowered, "bind") == {"vsa"}


@pytest.fixture
def products(monkeypatch):
    """Columns take forever, so that all bindings are products that can be; how many were."""
    found = []

    def counted(*args):
        found.append(plan(*args))
        return found[-1]

    monkeypatch.setattr(lower_circulant, "temporal_cycles", lambda *args: 10**9)
    monkeypatch.setattr(lower_vectors, "plan", counted)
    return found


def test_drawn_layouts(products):
    """Axes in any order, some of which the constant has, slices, and operands that are broadcast."""
    _draw_layouts()
    assert sum(each is not None for each in products) >= len(products) // 2


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def _draw_layouts(data):
    rank, length = data.draw(st.integers(1, 4)), data.draw(st.sampled_from([4, 7, 8, 16]))
    shape = [data.draw(st.integers(1, 9 if rank < 3 else 5)) for _ in range(rank)]
    order = data.draw(st.permutations(range(rank)))
    of_constant = [*(data.draw(st.booleans()) for _ in range(rank - 1)), True]  # blocks are the same in both
    kind, place = data.draw(st.sampled_from(["bind", "unbind"])), data.draw(st.integers(0, 1))
    is_cut, is_whole = data.draw(st.booleans()), data.draw(st.booleans())
    generator = torch.Generator().manual_seed(data.draw(st.integers(0, 100)))
    stored = [shape[axis] + is_cut for axis in order]  # as the value lies
    back = [order.index(axis) for axis in range(rank)]
    constant = torch.randn([n if has else 1 for n, has in zip(shape, of_constant)] + [length], generator=generator)
    if is_whole:
        constant = constant.expand(*shape, length).contiguous()

    def model(x):
        x = x * 0.5
        for axis, n in enumerate(stored):
            x = x.narrow(axis, int(is_cut), n - is_cut)
        x = x.permute(*back, rank)
        return getattr(dv.vsa, kind)(*((constant, x) if place == 0 else (x, constant)))

    of = data.draw(st.sampled_from([SMALL, LARGE]))
    lowered, run = check(model, (torch.randn(*stored, length, generator=generator),), of, near=1.0)
    hazards.check(of, lowered.program, len(run.memory))


def test_passes_and_partitions():
    """Several passes beside each other, and sub-arrays that layers and vectors share: every number is the same."""
    torch.manual_seed(3)
    model = Superposed("bind", 2, 2, 8, 1, is_shared=False)
    quantised, arrays = calibrated(model, (torch.rand(2, 2, 6, 6),))
    expected = simulate(lower(quantised, LARGE), arrays)[0]
    for partition in (None, (1, 1)):
        lowered = lower(quantised, LARGE, partition, passes=3, in_flight=2)
        assert _units(lowered, "bind") == {"nn"}
        memory = machine.run(
            LARGE, lowered.program, lowered.pack([np.concatenate([each] * 3) for each in arrays])
        ).memory
        for found, wanted in zip(lowered.unpack(memory), expected):
            np.testing.assert_array_equal(found, np.concatenate([wanted] * 3))
