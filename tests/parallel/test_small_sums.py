"""A small sum by index of torch tensors is torch's own: its bits and derivatives are those of the kernels."""

import numpy as np
import pytest
import torch
from torch.autograd import gradgradcheck

import derivable as dv
from derivable.bridge import torch as tensors

P = dv.parallel


def added_at(into, indices, values):
    """Row by row in their order, by NumPy; rows that name no bucket go nowhere."""
    total, where = into.numpy().copy(), indices.numpy()
    inside = (where >= 0) & (where < len(total))
    with np.errstate(all="ignore"):
        np.add.at(total, where[inside], values.numpy()[inside])
    return total


def of_torch(total):
    return type(total.grad_fn).__name__.startswith("IndexAdd")


def numbers(shape, dtype, generator):
    """Of all sizes, with what is special among floats."""
    if not dtype.is_floating_point:
        return torch.randint(0, 100, shape, generator=generator).to(dtype)
    found = torch.randn(shape, generator=generator).to(dtype)
    found *= 10.0 ** torch.randint(-15, 15, shape, generator=generator)
    flat = found.view(-1)
    for place, special in enumerate((float("nan"), float("inf"), -float("inf"), -0.0), 3):
        flat[place::97] = special
    return found


@pytest.mark.parametrize("index", [torch.int32, torch.int64])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int32, torch.int64, torch.uint8, torch.uint16])
@pytest.mark.parametrize("shape", [(), (1,), (3,), (0,), (2, 3)])
def test_small_sums_by_index_have_the_bits_of_a_loop(shape, dtype, index):
    generator = torch.Generator().manual_seed(6)
    for buckets, rows in ((4, 300), (7, 7), (2000, 3), (4, 0), (0, 3), (3, 3000)):
        values, into = (numbers((n, *shape), dtype, generator) for n in (rows, buckets))
        for low, high in ((0, max(buckets, 1)), (-2, buckets + 2)):
            indices = torch.randint(low, high, (rows,), generator=generator).to(index)
            expected = added_at(into, indices, values)
            for operands in ((into, values), (apart(into), apart(values))):
                found = P.reduce_by_index(operands[0], "add", indices, operands[1]).numpy()
                np.testing.assert_array_equal(found, expected, strict=True)
                is_number = found == found
                np.testing.assert_array_equal(np.signbit(found[is_number]), np.signbit(expected[is_number]))


def apart(x):
    """The same numbers, not one behind the other."""
    return torch.stack([x, torch.zeros_like(x)], -1)[..., 0]


def test_the_sum_of_torch_and_of_kernels_is_one_function(monkeypatch):
    generator = torch.Generator().manual_seed(7)
    indices = torch.randint(0, 9, (50,), generator=generator)
    into, values, weight = (torch.randn(n, 2, dtype=torch.float64, generator=generator) for n in (9, 50, 9))
    into.requires_grad_()
    values.requires_grad_()
    found = []
    for most in (tensors._SMALL_SUM, 0):
        monkeypatch.setattr(tensors, "_SMALL_SUM", most)
        monkeypatch.setattr(tensors, "_calls_of_kernels", 0)
        total = P.reduce_by_index(into, "add", indices, values)
        assert of_torch(total) == bool(most)
        first = torch.autograd.grad((total.square() * weight).sum(), (into, values), create_graph=True)
        lengths = torch.stack([x.square().sum() for x in first])
        second = torch.autograd.grad(lengths.sum(), (into, values), retain_graph=True)
        seeds = torch.stack([weight, 2 * weight])
        batched = torch.autograd.grad(total, (into, values), seeds, is_grads_batched=True)
        found.append([x.detach().numpy() for x in (total, *first, *second, *batched)])
    for ours, theirs in zip(*found):
        np.testing.assert_array_equal(ours, theirs)
    few = into.detach()[:2].requires_grad_(), values.detach()[:4].requires_grad_()
    assert gradgradcheck(lambda *x: P.reduce_by_index(x[0], "add", torch.tensor([1, 0, 1, 1]), x[1]).square(), few)


def test_rows_that_go_nowhere_are_summed_by_kernels_for_a_while(monkeypatch):
    """torch refuses such rows, which costs as much as the kernels take."""
    monkeypatch.setattr(tensors, "_calls_of_kernels", 0)
    x, indices = torch.ones(4, requires_grad=True), torch.tensor([0, 1, 2, 1])
    astray = torch.tensor([0, -1, 7, 1])
    into = torch.zeros(3)
    assert of_torch(P.reduce_by_index(into, "add", indices, x))
    total = P.reduce_by_index(into, "add", astray, x)
    assert total.tolist() == [1, 1, 0]
    assert torch.autograd.grad(total.sum(), x)[0].tolist() == [1, 0, 0, 1]
    for _ in range(tensors._NEXT_CALLS):
        total = P.reduce_by_index(into, "add", indices, x)
        assert total.tolist() == [1, 2, 1]
        assert not of_torch(total)
    assert of_torch(P.reduce_by_index(into, "add", indices, x))
    # No bucket at all, which torch would only refuse in its derivative.
    none = P.reduce_by_index(torch.zeros(0, 1), "add", indices, x[:, None])
    assert torch.autograd.grad(none.sum(), x)[0].tolist() == [0, 0, 0, 0]
