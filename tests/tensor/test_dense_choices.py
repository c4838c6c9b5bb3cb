"""Einstein sums that take one of their terms, with derivatives, against a loop over all terms."""

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import strategies as st

import derivable as dv
from drawn import examples

INF = math.inf
TIMES = {
    "max_product": (max, lambda a, b: a * b, lambda a, b: (b, a), 0.0),
    "max_plus": (max, lambda a, b: a + b, lambda a, b: (1.0, 1.0), -INF),
    "min_plus": (min, lambda a, b: a + b, lambda a, b: (1.0, 1.0), INF),
    # Of equal factors the first one has the derivative.
    "godel": (max, min, lambda a, b: (float(a <= b), float(b < a)), 0.0),
}
# The last one sums up two axes; in the others each term has its place in the order of one axis.
SUBSCRIPTS = [
    "ij,jk->ik",
    "ji,kj->ki",
    "bij,bjk->bik",
    "bij,bjk->kbi",
    "i,i->",
    "ij,j->i",
    "j,ajc->ca",
    "ij,ij->i",
    "ij,ij->",
]


def by_loop(subscripts, left, right, name):
    """(the sums, their derivatives by both operands, where the first of equal terms counts)"""
    best_of, times, slopes, _ = TIMES[name]
    inputs, result = subscripts.split("->")
    first, second = inputs.split(",")
    sizes = dict(zip(first + second, left.shape + right.shape))
    summed = [axis for axis in first if axis not in result]
    found = np.empty([sizes[axis] for axis in result])
    adjoints = np.zeros(left.shape), np.zeros(right.shape)
    for outside in itertools.product(*(range(sizes[axis]) for axis in result)):
        terms = []
        for inside in itertools.product(*(range(sizes[axis]) for axis in summed)):
            at = dict(zip([*result, *summed], [*outside, *inside]))
            places = tuple(at[axis] for axis in first), tuple(at[axis] for axis in second)
            terms.append((times(left[places[0]], right[places[1]]), places))
        value, (at_left, at_right) = best_of(terms, key=lambda term: term[0])
        found[outside] = value
        by_left, by_right = slopes(left[at_left], right[at_right])
        adjoints[0][at_left] += by_left
        adjoints[1][at_right] += by_right
    return found, adjoints


def by_torch(function, left, right):
    leaves = [torch.tensor(x, requires_grad=True) for x in (left, right)]
    found = function(*leaves)
    return found.detach().numpy(), [x.numpy() for x in torch.autograd.grad(found.sum(), leaves)]


def by_jax(function, left, right):
    jax = pytest.importorskip("jax")
    with jax.enable_x64(True):
        leaves = [jax.numpy.asarray(x) for x in (left, right)]
        found, back = jax.vjp(function, *leaves)
        return np.asarray(found), [np.asarray(x) for x in back(jax.numpy.ones_like(found))]


@pytest.mark.parametrize("door", [by_torch, by_jax])
@examples(20, 120, st.data())
def test_values_and_derivatives_are_those_of_a_loop(door, data):
    subscripts, name = data.draw(st.sampled_from(SUBSCRIPTS)), data.draw(st.sampled_from(list(TIMES)))
    zero = TIMES[name][3]
    sizes = {axis: data.draw(st.integers(1, 4)) for axis in "abcijk"}
    # Few numbers, so that there are ties, and zeros of the semiring.
    numbers = st.sampled_from([0.5, 1.0, 2.0, 3.0, zero])
    left, right = (
        np.array(data.draw(st.lists(numbers, min_size=(n := math.prod(shape)), max_size=n))).reshape(shape)
        for shape in ([sizes[axis] for axis in of] for of in subscripts.split("->")[0].split(","))
    )
    found, adjoints = door(lambda a, b: dv.tensor.einsum(subscripts, a, b, semiring=name), left, right)
    expected, by_operand = by_loop(subscripts, left, right, name)
    np.testing.assert_array_equal(found, expected)
    for one, other in zip(adjoints, by_operand):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("door", [by_torch, by_jax])
def test_a_term_that_is_no_number_is_taken_first(door):
    left, right = np.array([[3.0, math.nan, math.nan], [0.0, 0.0, 1.0]]), np.array([1.0, 2.0, 3.0])
    found, (by_left, by_right) = door(
        lambda a, b: dv.tensor.einsum("ij,j->i", a, b, semiring="max_product"), left, right
    )
    np.testing.assert_equal(found, [math.nan, 3.0])
    np.testing.assert_equal(by_left, [[0, 2, 0], [0, 0, 3]])
    np.testing.assert_equal(by_right, [0, math.nan, 1])


def test_second_derivatives():
    numbers = np.random.default_rng(0).random((2, 3, 3))
    leaves = [torch.tensor(x, requires_grad=True) for x in numbers]
    assert torch.autograd.gradgradcheck(
        lambda a, b: dv.tensor.einsum("ij,jk->ik", a, b, semiring="max_product"), leaves
    )


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
def test_types_stay(dtype):
    a, b = (torch.rand(3, 3, dtype=dtype, requires_grad=True) for _ in range(2))
    found = dv.tensor.einsum("ij,jk->ik", a, b, semiring="max_product")
    found.sum().backward()
    assert found.dtype == a.grad.dtype == b.grad.dtype == dtype
    torch.testing.assert_close(found, (a[:, :, None] * b[None]).amax(1))


def test_nothing_has_the_size_of_all_terms():
    a, b = (torch.rand(64, 64, requires_grad=True) for _ in range(2))
    with torch.profiler.profile(record_shapes=True) as profile:
        dv.tensor.einsum("ij,jk->ik", a, b, semiring="max_product").sum().backward()
    sizes = [math.prod(shape) for event in profile.events() for shape in event.input_shapes or [] if shape]
    assert max(sizes) == 64 * 64
