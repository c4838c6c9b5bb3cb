"""Resonator networks against the exhaustive search over all combinations of items."""

import itertools

import pytest
import torch

import derivable as dv
from derivable.vsa import models

KINDS = [(name, kind) for name in models.names() for kind in models.get(name).samplers if kind != "mass"]


def books_and_product(name, kind, counts, truth, size=256, noise=0.0):
    shape = (4, size) if models.get(name).rank == 2 else (4 * size,)
    books = [dv.vsa.random(n, *shape, distribution=kind, generator=k, model=name) for k, n in enumerate(counts)]
    product = books[0][truth[:, 0]]
    for factor in range(1, len(books)):
        product = dv.vsa.bind(product, books[factor][truth[:, factor]], model=name)
    if noise:
        product = product + noise * torch.randn(product.shape, generator=torch.Generator().manual_seed(9))
    return books, product


@pytest.mark.parametrize(("name", "kind"), KINDS)
def test_every_product_is_factorised(name, kind):
    truth = torch.tensor(list(itertools.product(range(3), range(2), range(4))))
    books, product = books_and_product(name, kind, (3, 2, 4), truth)
    found = dv.vsa.factorise(product, books, model=name)
    assert torch.equal(found.indices, truth)
    assert found.converged.all()
    assert found.similarity.min() > 0.99


@pytest.mark.parametrize("name", ["block", "map"])
def test_larger_ones_with_noise(name):
    """8000 combinations: the best of an exhaustive search is found, far faster."""
    truth = torch.randint(20, (2, 5, 3), generator=torch.Generator().manual_seed(0))
    noise = 0.02 if name == "block" else 0.5
    books, product = books_and_product(name, None, (20, 20, 20), truth.reshape(-1, 3), noise=noise)
    product = product.reshape(2, 5, *product.shape[1:])
    found = dv.vsa.factorise(product, books, threshold=0.7, model=name)
    assert torch.equal(found.indices, truth)
    assert found.steps.double().mean() < 100
    assert "10 of 10 products factorised" in str(found)


def test_limits_are_kept_and_reported():
    """Of a random vector nothing is the product."""
    books, _ = books_and_product("map", None, (5, 5), torch.zeros(1, 2, dtype=torch.int64))
    product = dv.vsa.random(3, 1024, generator=77, model="map")
    found = dv.vsa.factorise(product, books, steps=4, restarts=2, model="map")
    assert not found.converged.any()
    assert found.steps.tolist() == [12] * 3
    assert found.restarts.tolist() == [2] * 3
    again = dv.vsa.bind(books[0][found.indices[:, 0]], books[1][found.indices[:, 1]], model="map")
    assert torch.allclose(found.similarity, dv.vsa.similarity(again, product, model="map"))


def test_one_factor_is_the_nearest_item_and_no_product_is_no_answer():
    books, product = books_and_product("block", None, (6,), torch.arange(6)[:, None])
    assert dv.vsa.factorise(product, books).indices[:, 0].tolist() == list(range(6))
    empty = dv.vsa.factorise(product[:0], books)
    assert empty.indices.shape == (0, 1)
    assert str(empty).startswith("0 of 0")


def test_the_result_is_repeatable():
    truth = torch.randint(15, (4, 3), generator=torch.Generator().manual_seed(1))
    books, product = books_and_product("block", None, (15, 15, 15), truth, size=64)
    first, second = (dv.vsa.factorise(product, books) for _ in range(2))
    assert torch.equal(first.steps, second.steps)
