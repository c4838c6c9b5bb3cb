"""Paths that were made fast give what the plain definition gives."""

import numpy as np
import pytest
import torch

import derivable as dv


@pytest.mark.parametrize("items", [1, 2, 3, 4, 5, 20, 255, 256, 301])
@pytest.mark.parametrize("dimension", [1, 7, 64])
def test_a_bundle_of_bits_is_the_majority_and_a_tie_is_decided_by_an_item(items, dimension):
    vectors = dv.vsa.random(3, items, dimension, model="bsc", generator=items)
    found = dv.vsa.bundle(vectors, model="bsc").numpy()
    counts = vectors.numpy().astype(int).sum(1)
    np.testing.assert_array_equal(found[2 * counts > items], True)
    np.testing.assert_array_equal(found[2 * counts < items], False)
    key = dv.vsa.random(dimension, model="bsc", generator=1)
    bound = dv.vsa.bundle(dv.vsa.bind(vectors, key, model="bsc"), model="bsc")
    assert torch.equal(bound, dv.vsa.bind(dv.vsa.bundle(vectors, model="bsc"), key, model="bsc"))
    weighted = dv.vsa.bundle(vectors, weights=torch.ones(3, items), model="bsc").numpy()
    np.testing.assert_array_equal(weighted[2 * counts != items], found[2 * counts != items])


def test_ties_of_bits_are_fair():
    """Each of two and of four items wins about half of the places where they tie."""
    for items in (2, 4):
        vectors = dv.vsa.random(items, 4000, model="bsc", generator=items)
        found = dv.vsa.bundle(vectors, model="bsc")
        tied = 2 * vectors.sum(0) == items
        for vector in vectors:
            assert (found == vector)[tied].float().mean() == pytest.approx(0.5, abs=0.06)


@pytest.mark.parametrize("model", ["fhrr", "map", "bsc"])
@pytest.mark.parametrize("shift", [-8, -3, 0, 1, 7, 16, 1000])
def test_permute_rotates(model, shift):
    a = dv.vsa.random(2, 7, model=model, generator=0)
    found = dv.vsa.permute(a, shift, model=model)
    assert torch.equal(found, a.roll(shift, -1))
    assert found.data_ptr() != a.data_ptr()


@pytest.mark.parametrize("model", ["block", "hrr", "fhrr", "map"])
@pytest.mark.parametrize("count", [2, 3, 6])
def test_a_bundle_of_several_is_that_of_their_stack(model, count):
    shape = (2, 8) if model == "block" else (16,)
    items = [dv.vsa.random(*[3] * (k > 0), *shape, model=model, generator=k) for k in range(count)]
    stacked = torch.stack(torch.broadcast_tensors(*items), -len(shape) - 1)
    found = dv.vsa.bundle(*items, model=model)
    assert torch.allclose(found, dv.vsa.bundle(stacked, model=model), atol=1e-6)
    small = dv.vsa.random(2, 16, model="map", dtype=torch.int8, generator=0)
    assert dv.vsa.bundle(small[0], small[1], model="map").dtype == torch.int64


@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int8, torch.int64]
)
def test_signs(dtype):
    values = torch.tensor([-2.0, -0.0, 0.0, 3.0]).to(dtype)
    found = dv.vsa.normalise(values, model="map")
    assert found.dtype == dtype
    assert found.tolist() == [-1, 1, 1, 1]


def test_rows_of_length_one_at_the_ends_of_the_range():
    rows = torch.tensor([[3e38, 3e38], [1e-44, 0.0], [0.0, 0.0], [3.0, 4.0]], requires_grad=True)
    found = dv.vsa.normalise(rows, model="hrr")
    np.testing.assert_allclose(found.detach().norm(dim=-1), [1, 1, 0, 1], rtol=1e-6)
    (gradient,) = torch.autograd.grad(found.sum(), rows)
    assert gradient[2].tolist() == [0, 0]
    np.testing.assert_allclose(gradient[3], [(16 - 12) / 125, (9 - 12) / 125], rtol=1e-5)
