"""Structures as vectors: what was put in is found again, in every model; sums written out by hand are the same."""

import pytest
import torch

import derivable as dv
from derivable.vsa import models

NAMES = models.names()


def memory_of(name, count=12, size=1024):
    shape = (4, size) if models.get(name).rank == 2 else (4 * size,)
    return dv.vsa.ItemMemory(shape, model=name, generator=0).add_all(range(count))


@pytest.mark.parametrize("name", NAMES)
def test_sequences(name):
    memory = memory_of(name)
    order = [[3, 1, 4, 1, 5], [9, 2, 6, 5, 3]]
    items = torch.stack([memory[row] for row in order])
    encoded = dv.vsa.sequence(items, model=name)
    for place in range(5):
        found = memory.nearest(dv.vsa.element(encoded, place, model=name)).names
        assert found == [[order[0][place]], [order[1][place]]]
    if models.get(name).sums:
        by_hand = sum(dv.vsa.permute(items[:, place], place, model=name) for place in range(5))
        assert torch.allclose(encoded, by_hand)


@pytest.mark.parametrize("name", NAMES)
def test_records(name):
    memory = memory_of(name)
    roles, fillers = memory[[0, 1, 2]], torch.stack([memory[[5, 6, 7]], memory[[8, 9, 5]]])
    encoded = dv.vsa.record(roles, fillers, model=name)
    found = memory.nearest(dv.vsa.unbind(encoded, memory[1], model=name)).names
    assert found == [[6], [9]]


@pytest.mark.parametrize("name", NAMES)
def test_ngrams(name):
    """Runs in another order are unlike, and windows are those of Python."""
    memory = memory_of(name)
    items = memory[[0, 1, 2, 3]]
    first, second = (dv.vsa.ngrams(items[list(order)], 4, model=name) for order in ((0, 1, 2, 3), (1, 0, 2, 3)))
    assert dv.vsa.similarity(first, second, model=name).abs() < 0.4
    runs = []
    for start in range(2):
        run = items[start + 2]
        for back in (1, 2):
            run = dv.vsa.bind(dv.vsa.permute(items[start + 2 - back], back, model=name), run, model=name)
        runs.append(run)
    expected = dv.vsa.bundle(*runs, model=name)
    found = dv.vsa.ngrams(items, 3, model=name)
    assert torch.equal(found, expected) if found.dtype == torch.bool else torch.allclose(found, expected, atol=1e-6)


@pytest.mark.parametrize("name", [name for name in NAMES if models.get(name).sums])
def test_stacks(name):
    memory = memory_of(name)
    stack = torch.zeros_like(memory[0])
    for item in (4, 8, 2):
        stack = dv.vsa.push(stack, memory[item], model=name)
    taken = []
    for _ in range(3):
        top = memory.nearest(stack).names[0]
        stack = dv.vsa.pop(stack, memory[top], model=name)
        taken.append(top)
    assert taken == [2, 8, 4]
    assert stack.abs().max() < 1e-5


@pytest.mark.parametrize("name", NAMES)
def test_trees(name):
    memory = memory_of(name)
    left, right = memory[10], memory[11]
    nested = ((memory[0], memory[1]), (memory[2], (memory[3], memory[4])))
    if name == "hrr":  # each inexact unbinding keeps 0.7 of the similarity
        nested = (memory[0], (memory[2], memory[3]))
    encoded = dv.vsa.tree(nested, left, right, model=name)
    leaves = {"ll": 0, "lr": 1, "rl": 2, "rrl": 3, "rrr": 4} if name != "hrr" else {"l": 0, "rl": 2, "rr": 3}
    for path, item in leaves.items():
        found = memory.nearest(dv.vsa.branch(encoded, path, left, right, model=name)).names
        assert found == [item], path


def test_numbers_are_near_to_near_numbers():
    base = dv.vsa.random(4, 256, distribution="unitary", generator=0)
    grid = torch.linspace(-2, 2, 81)
    found = dv.vsa.similarities(dv.vsa.power(base, 0.7), dv.vsa.power(base, grid))
    assert grid[found.argmax()].item() == pytest.approx(0.7)
    # Of random phases the similarity is the Fourier transform of their distribution: sinc.
    assert torch.allclose(found, torch.sinc(grid - 0.7), atol=0.15)
