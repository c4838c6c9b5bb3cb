"""Folds of matrices that are too large for kernels, against products one after the other."""

import pickle
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import derivable as dv
from derivable import parallel as P

jax = pytest.importorskip("jax")
RINGS = {
    "real": (lambda terms: terms.sum(-2), np.multiply, 0.0, 1.0),
    "max_plus": (lambda terms: terms.max(-2), np.add, -np.inf, 0.0),
    "min_plus": (lambda terms: terms.min(-2), np.add, np.inf, 0.0),
    "log": (lambda terms: np.logaddexp.reduce(terms, axis=-2), np.add, -np.inf, 0.0),
}


def product(name, left, right):
    plus, times, _, _ = RINGS[name]
    return plus(times(left[..., :, :, None], right[..., None, :, :]))


def neutral(name, size):
    return np.where(np.eye(size) == 1, RINGS[name][3], RINGS[name][2])


def prefixes(name, values, exclusive, reverse):
    values = values[::-1] if reverse else values
    total, found = np.broadcast_to(neutral(name, values.shape[-1]), values.shape[1:]), []
    for matrix in values:
        after = product(name, total, matrix)
        found.append(total if exclusive else after)
        total = after
    found = np.array(found).reshape(values.shape)
    return found[::-1] if reverse else found


LIBRARIES = {
    "numpy": (lambda x: x, np.asarray),
    "torch": (torch.from_numpy, lambda x: x.numpy()),
    "jax": (lambda x: jax.numpy.asarray(x), np.asarray),
}


@pytest.mark.parametrize(
    ("library", "examples"),
    # JAX compiles each operation again for each shape.
    [("numpy", 40), ("torch", 40), ("jax", 2), pytest.param("jax", 40, marks=pytest.mark.slow)],
)
def test_folds_are_products_in_their_order(library, examples):
    settings(max_examples=examples, deadline=None)(given(st.data())(lambda data: check_folds(library, data)))()


def check_folds(library, data):
    name, size = data.draw(st.sampled_from(list(RINGS))), data.draw(st.integers(5, 7))
    batch = data.draw(st.sampled_from([(), (2,), (2, 3)]))
    cuts = sorted(data.draw(st.lists(st.integers(0, 9), max_size=4)))
    offsets = np.array([0, *cuts, 9])
    exclusive, reverse = data.draw(st.booleans()), data.draw(st.booleans())
    values = np.random.default_rng(data.draw(st.integers(0, 99))).normal(size=(9, *batch, size, size))
    op, (given_as, back) = P.matrix_product(size, name), LIBRARIES[library]
    close = {"rtol": 1e-9, "atol": 1e-9}
    with jax.enable_x64(True):
        leaf, where = given_as(values), given_as(offsets)
        found = P.scan(op, leaf, exclusive=exclusive, reverse=reverse)
        np.testing.assert_allclose(back(found), prefixes(name, values, exclusive, reverse), **close)
        np.testing.assert_allclose(back(P.reduce(op, leaf)), prefixes(name, values, False, False)[-1], **close)
        parts = [values[start:stop] for start, stop in pairwise(offsets)]
        expected = np.concatenate([prefixes(name, part, exclusive, reverse) for part in parts])
        found = P.segmented_scan(op, leaf, where, exclusive=exclusive, reverse=reverse)
        np.testing.assert_allclose(back(found), expected, **close)
        empty = np.broadcast_to(neutral(name, size), values.shape[1:])
        expected = [prefixes(name, part, False, False)[-1] if len(part) else empty for part in parts]
        np.testing.assert_allclose(back(P.segment_reduce(op, leaf, where)), np.array(expected), **close)


@pytest.mark.parametrize("count", [0, 1, 2, 3, 8])
@pytest.mark.parametrize("library", LIBRARIES)
def test_any_number_of_matrices(library, count):
    values = np.random.default_rng(count).normal(size=(count, 5, 5)).astype(np.float32)
    op, (given_as, back) = P.matrix_product(5), LIBRARIES[library]
    found = back(P.scan(op, given_as(values)))
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, prefixes("real", values, False, False), rtol=1e-4, atol=1e-5)
    total = np.linalg.multi_dot([np.eye(5), np.eye(5), *values])
    np.testing.assert_allclose(back(P.reduce(op, given_as(values))), total, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", RINGS)
def test_derivatives_are_those_of_finite_differences(name):
    values = torch.from_numpy(np.random.default_rng(3).normal(size=(4, 5, 5))).requires_grad_()
    op, offsets = P.matrix_product(5, name), torch.tensor([0, 3, 4])
    assert torch.autograd.gradcheck(lambda x: P.scan(op, x, reverse=True), values)
    assert torch.autograd.gradcheck(lambda x: P.segment_reduce(op, x, offsets), values)
    weights = np.random.default_rng(4).normal(size=(4, 5, 5))
    (P.scan(op, values) * torch.from_numpy(weights)).sum().backward()
    with jax.enable_x64(True):
        loss = jax.jit(jax.grad(lambda x: (P.scan(op, x) * weights).sum()))
        np.testing.assert_allclose(loss(jax.numpy.asarray(values.detach())), values.grad, rtol=1e-9, atol=1e-9)


def test_a_large_product_is_the_same_as_a_sequence_of_steps():
    """A hidden Markov model with 40 states: the likelihood, and the posterior as its derivative."""
    rng = np.random.default_rng(5)
    steps = torch.from_numpy(rng.normal(size=(30, 40, 40))).log_softmax(-1).requires_grad_()
    total = torch.logsumexp(P.reduce(P.matrix_product(40, "log"), steps)[0], 0)
    message = steps[0, 0]
    for step in steps[1:]:
        message = torch.logsumexp(message[:, None] + step, 0)
    expected = torch.logsumexp(message, 0)
    torch.testing.assert_close(total, expected)
    torch.testing.assert_close(*(torch.autograd.grad(of, steps)[0] for of in (total, expected)))


def test_transforms_and_types():
    op, values = P.matrix_product(5), torch.rand(6, 4, 5, 5)
    expected = P.scan(op, values)
    torch.testing.assert_close(torch.vmap(lambda x: P.scan(op, x), 1, 1)(values), expected)
    compiled = torch.compile(lambda x: P.scan(op, x), backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(compiled(values), expected)
    half = P.scan(op, values.to(torch.bfloat16))
    assert half.dtype == torch.bfloat16
    counts = np.random.default_rng(6).integers(0, 3, (5, 6, 6))
    np.testing.assert_array_equal(P.reduce(P.matrix_product(6), counts), np.linalg.multi_dot(counts))
    torch.testing.assert_close(P.scan(pickle.loads(pickle.dumps(op)), values), expected)


def test_what_does_not_fit_is_refused():
    op = P.matrix_product(5)
    with pytest.raises(dv.core.diagnostics.ShapeError, match=r"\[n, \*batch, 5, 5\]"):
        P.scan(op, np.ones((3, 4, 4)))
    with pytest.raises(dv.DerivableError, match="offsets"):
        P.segment_reduce(op, np.ones((3, 5, 5)), np.array([0, 2, 1]))
    with pytest.raises(dv.DerivableError, match="does not commute"):
        P.reduce_by_index(np.ones((3, 5, 5)), op, np.array([0]), np.ones((1, 5, 5)))
