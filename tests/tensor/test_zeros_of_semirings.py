"""A product with the zero of a semiring is that zero, whatever the other factor is, at every door; expected values are
those of arithmetic."""

import math

import numpy as np
import pytest
import torch

import derivable as dv

INF, NAN = math.inf, math.nan
ZEROS = {"real": 0.0, "max_product": 0.0, "log": -INF, "max_plus": -INF, "min_plus": INF}


def by_torch(function, *operands):
    leaves = [torch.tensor(x, requires_grad=True) for x in operands]
    found = function(*leaves)
    return found.detach().numpy(), [x.numpy() for x in torch.autograd.grad(found.sum(), leaves)]


def by_jax(function, *operands, jit=False):
    jax = pytest.importorskip("jax")
    run, back = function, jax.grad(lambda *x: function(*x).sum(), argnums=tuple(range(len(operands))))
    if jit:
        run, back = jax.jit(run), jax.jit(back)
    with jax.enable_x64(True):
        arrays = [jax.numpy.asarray(x) for x in operands]
        return np.asarray(run(*arrays)), [np.asarray(x) for x in back(*arrays)]


DOORS = [by_torch, by_jax, lambda function, *operands: by_jax(function, *operands, jit=True)]


@pytest.mark.parametrize("name", ZEROS)
def test_products_with_zero(name):
    zero, adds = ZEROS[name], name in ("log", "max_plus", "min_plus")
    beyond = -zero if adds else INF
    left = np.array([NAN, beyond, zero, 1.0, NAN, 1.0])
    right = np.array([zero, zero, zero, zero, 2.0, 3.0])
    expected = [zero, zero, zero, zero, NAN, 4.0 if adds else 3.0]
    np.testing.assert_equal(dv.tensor.einsum("i,i->i", left, right, semiring=name), expected)
    for door in DOORS:
        found, (first, second) = door(lambda a, x: dv.tensor.einsum("i,i->i", a, x, semiring=name), left, right)
        np.testing.assert_equal(found, expected)
        # What is left out for the sake of a zero has no derivative; a product of numbers has the other factor.
        by_left = [0, 0, 1, 1, 1, 1] if adds else right
        by_right = [0, 0, 1, 1, 1, 1] if adds else left
        np.testing.assert_equal(first, by_left)
        np.testing.assert_equal(second, by_right)


@pytest.mark.parametrize("name", ZEROS)
def test_sums_of_products_with_zero(name):
    zero, adds = ZEROS[name], name in ("log", "max_plus", "min_plus")
    matrix, vector = np.array([[NAN, 1.0], [zero, 2.0]]), np.array([zero, 1.0])
    expected = [2.0, 3.0] if adds else [1.0, 2.0]
    for subscripts, operands, sums in (
        ("ij,j->i", (matrix, vector), expected),
        ("ij,jk->ik", (matrix, vector[:, None]), np.array(expected)[:, None]),
        ("i,i->", (matrix[0], vector), expected[0]),
    ):
        np.testing.assert_allclose(dv.tensor.einsum(subscripts, *operands, semiring=name), sums)
        for door in DOORS:
            found, _ = door(lambda *x, by=subscripts: dv.tensor.einsum(by, *x, semiring=name), *operands)
            np.testing.assert_allclose(found, sums)
