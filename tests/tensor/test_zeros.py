"""A tensor means the same in every storage format: zeros are no entries, and zero times an infinity is zero."""

import math
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse
import torch

from derivable.algebra import semirings
from derivable.core.diagnostics import DomainError
from derivable.device.cpu.threads import get_num_threads, set_num_threads
from derivable.tensor import Function, compile, einsum, gradient, hold, parse
from derivable.tensor.lower.parallel_loops import LEAST
from derivable.tensor.values.values import Coordinates

FORMATS = {
    1: ("dense", "coo", "csf", "hashed"),
    2: ("dense", "column_major", "coo", "csr", "csc", "dcsr", "csf", "hashed"),
}
X, V = np.array([1.0, 0.0, 2.0]), np.array([1.0, math.inf, 3.0])
A = np.array([[1.0, 0.0, 2.0], [0.0, 0.0, 0.0], [0.0, 3.0, 0.0]])
E = math.e


def every_format(text, of, **values):
    """The results of a program for `X` in all formats, without zeros in the sparse ones, and with some in CSR."""
    types = {name: np.ndim(value) for name, value in {"X": of, **values}.items()}
    semiring, output = values.pop("semiring", "real"), values.pop("output", None)
    types = {name: order for name, order in types.items() if name in ("X", *values)}
    program = parse(text, types)
    for format in FORMATS[of.ndim]:
        kernel = compile(program, {"X": format}, semiring=semiring, output=output)
        for _ in range(2):
            found = kernel(X=of, **values)
            yield found.to_numpy(semirings.get(semiring).zero) if isinstance(found, Coordinates) else found
    if of.ndim == 2:
        every = scipy.sparse.csr_array((of.reshape(-1), np.tile(np.arange(3), 3), np.arange(0, 10, 3)), shape=(3, 3))
        yield compile(
            program, {"X": "csr"}, semiring=semiring, output=output or "dense" if program.type.order else None
        )(X=every, **values)


@pytest.mark.parametrize(
    ("text", "of", "values", "expected"),
    [
        ("sum(<i, a> in X) exp(a)", X, {}, E + E**2),
        ("sum(<i, a> in X) { i -> exp(a) }", X, {}, [E, 0, E**2]),
        ("sum(<i, a> in X) { i -> exp(a) }", X, {"output": "coordinates"}, [E, 0, E**2]),
        ("sum(<i, _> in X) 1.0", X, {}, 2.0),
        ("let e = sum(<i, a> in X) { i -> a - 1.0 } in sum(<i, b> in e) exp(b)", X, {}, E),
        ("sum(<i, a> in X) a * V(i)", X, {"V": V}, 7.0),
        ("sum(<i, a> in X) a / V(i)", X, {"V": np.array([1.0, 0.0, 2.0])}, 2.0),
        ("sum(<i, r> in X) { i -> exp(sum(<j, a> in r) a) }", A, {"output": "dense"}, [E**3, 0, E**3]),
        ("sum(<i, r> in X) { i -> sum(<j, a> in r) a * V(j) }", A, {"V": V}, [7.0, 0.0, math.inf]),
        (
            "sum(<i, r> in X) { i -> let s = sum(<j, a> in r) a * V(j) in where(s < 2.0, s, 1.0) }",
            A,
            {"V": V, "output": "dense"},
            [1.0, 0.0, 1.0],
        ),
    ],
)
def test_formats_mean_the_same(text, of, values, expected):
    expected = np.asarray(expected)
    for found in every_format(text, of, **values):
        np.testing.assert_allclose(found, expected)
    values = {name: torch.as_tensor(value) for name, value in values.items() if name != "output"}
    for format in FORMATS[of.ndim]:
        types = {"X": of.ndim, **{name: value.ndim for name, value in values.items()}}
        kernel = compile(parse(text, types), {"X": format}, backend="torch", output="torch" if expected.ndim else None)
        np.testing.assert_allclose(kernel(X=torch.as_tensor(of), **values), expected)


@pytest.mark.parametrize(
    ("semiring", "other", "expected"),
    [("min_plus", -V, [-1.0, math.inf, -math.inf]), ("max_plus", V, [5.0, -math.inf, math.inf]),
     ("max_product", V, [6.0, 0.0, math.inf])],
)  # fmt: skip
def test_zero_times_infinity_in_other_semirings(semiring, other, expected):
    of = np.where(A == 0, semirings.get(semiring).zero, A)
    text = "sum(<i, r> in X) { i -> sum(<j, a> in r) a * V(j) }"
    for found in every_format(text, of, V=other, semiring=semiring, output="dense"):
        np.testing.assert_allclose(found, expected)


def test_products_have_no_guard():
    product = parse("sum(<i, a> in X) a * V(i)", {"X": 1, "V": 1})
    exponential = parse("sum(<i, a> in X) exp(a)", {"X": 1})
    kernel = compile(product)
    kernel(X=X, V=X)
    assert "if" not in kernel.explain("loops")
    assert "!= {}" in str(exponential.guarded(semirings.get("real")))
    assert "!= {}" not in str(product.guarded(semirings.get("real")))


@pytest.mark.parametrize("make", [torch.tensor, jnp.asarray])
def test_gradients_of_dense_arrays_leave_zeros_out(make):
    exponential = parse("sum(<i, a> in X) exp(a)", {"X": 1})
    if make is torch.tensor:
        x = torch.tensor(X, requires_grad=True)
        for backend in (None, "torch"):
            (found,) = torch.autograd.grad(exponential(X=x, backend=backend), x)
            np.testing.assert_allclose(found, [E, 0, E**2])
    else:
        np.testing.assert_allclose(jax.grad(lambda x: exponential(X=x))(make(X)), [E, 0, E**2], rtol=1e-6)
    product = parse("sum(<i, a> in X) a * V(i)", {"X": 1, "V": 1})
    np.testing.assert_allclose(gradient(product, "X")(X=X, V=X + 1), X + 1)
    # At the entries of a pattern a zero has a gradient, so that it can be learnt.
    held = hold(Coordinates.of((3,), [[0, 1]], [1.0, 0.0]), "csf", 1)
    assert gradient(product, "X", pattern="own")(X=held, V=X + 1, output="dict") == {0: 2.0, 1: 1.0}


def test_an_outer_product_with_torch_stays_an_array():
    kernel = compile(parse("X * Y", {"X": 1, "Y": 1}))
    for _ in range(2):
        found = kernel(X=torch.ones(2).double(), Y=np.array([0.0, math.inf]))
        np.testing.assert_array_equal(np.asarray(found), [[0, math.inf]] * 2)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("output", ["numpy", "coordinates", None])
def test_a_later_call_that_multiplies_zero_and_infinity(output, dtype):
    """Kernels look for NaN while they write: calls like those before take no second pass over the result."""
    text = "sum(<i, x> in X) { i -> x * Y(i) }" if output else "sum(<i, x> in X) x * Y(i)"
    kernel = compile(parse(text, {"X": 1, "Y": 1}), output=output)
    x, y = np.array([1.0, 2.0, 3.0, 4.0], dtype), np.array([1.0, 0.0, 2.0, 5.0], dtype)
    for place, value in [(0, 1.0), (0, 2.0), (1, np.inf), (0, 3.0), (1, np.nan), (1, 4.0), (3, np.inf)]:
        x[place] = value
        with np.errstate(invalid="ignore"):
            products = np.where(y == 0, 0, x * y)
        found = kernel(X=x, Y=y)
        found = found.to_numpy() if output == "coordinates" else found
        np.testing.assert_allclose(found, products if output else products.sum())


def test_the_look_for_nan_is_part_of_the_loop():
    x = np.ones(4)
    program = parse("sum(<i, x> in X) { i -> x * x }", {"X": 1})
    assert "nans" in compile(program).explain("loops", X=x)
    assert "nans" not in compile(program, semiring="addmultprob").explain("loops", X=x)
    # An index outside comes before a NaN.
    outside = parse("sum(<i, x> in X) { i + 2 -> x * Y(i) }", {"X": 1, "Y": 1})
    with pytest.raises(DomainError, match="at index 5, outside"):
        compile(outside, shape=(4,))(X=np.array([np.inf, 1.0, 1.0, 1.0]), Y=np.array([0.0, 1.0, 1.0, 1.0]))


def test_nan_of_some_piece_of_a_loop():
    count = LEAST + 10
    x, y = np.full(count, 2.0), np.full(count, 3.0)
    program = parse("sum(<i, x> in X) { i -> x * Y(i) }", {"X": 1, "Y": 1})
    kernel, threads = compile(program), get_num_threads()
    try:
        set_num_threads(2)
        for place in (0, count - 1):
            for infinite in (1.0, np.inf):
                x[place], y[place] = infinite, 0.0
                found = kernel(X=x, Y=y)
                assert found[place] == 0
                assert found.sum() == 6 * (count - 1 - (place > 0))
    finally:
        set_num_threads(threads)


LEFT = np.array([[0.0, 1.0, -1.0], [2.0, 0.0, 0.0], [0.0, 0.0, 3.0], [np.inf, 1.0, 0.0], [np.nan, 0.0, 0.0]])
RIGHT = np.array([[np.inf, 1.0], [-np.inf, np.nan], [2.0, 0.0]])


def of_nonzeros(left, right):
    """The matrix product over pairs of nonzeros, one after the other."""
    found = np.zeros((len(left), right.shape[1]))
    for i, j in np.ndindex(found.shape):
        pairs = [(x, y) for x, y in zip(left[i], right[:, j]) if x != 0 and y != 0]
        with np.errstate(invalid="ignore"):
            found[i, j] = np.sum([x * y for x, y in pairs])
    return found


@pytest.mark.parametrize("make", [np.asarray, torch.tensor, jnp.asarray, jax.jit, jax.vmap, torch.func.vmap])
def test_einsum_of_dense_arrays(make):
    """As of sparse ones; warnings are errors here."""
    left, right = LEFT, RIGHT
    product = partial(einsum, "ij,jk->ik")
    if make is jax.jit:
        product = jax.jit(product)
    elif make is jax.vmap:
        left, right = jnp.asarray(left)[:, None], jnp.asarray(right)
        product = jax.vmap(product, in_axes=(0, None))
    elif make is torch.func.vmap:
        left, right = torch.tensor(left)[:, None], torch.tensor(right)
        product = torch.func.vmap(product, in_dims=(0, None))
    else:
        left, right = make(left), make(right)
    with np.errstate(all="raise"):
        found = np.asarray(product(left, right)).reshape(len(LEFT), -1)
    np.testing.assert_allclose(found, of_nonzeros(LEFT, RIGHT))
    sparse = einsum("ij,jk->ik", scipy.sparse.coo_array(LEFT), scipy.sparse.coo_array(RIGHT), output="dense")
    np.testing.assert_allclose(sparse, of_nonzeros(LEFT, RIGHT))


def test_gradients_of_products_with_infinities():
    """A term that is left out has a derivative by its zero, and none that is NaN."""
    left, right = np.array([[0.0, 1.0], [2.0, 3.0]]), np.array([np.inf, 5.0])
    x, y = (torch.tensor(of, requires_grad=True) for of in (left, right))
    found = einsum("ij,j->i", x, y)
    np.testing.assert_array_equal(found.detach(), [5.0, np.inf])
    of_left, of_right = torch.autograd.grad(found[0], (x, y), retain_graph=True)
    np.testing.assert_array_equal(of_left, [[np.inf, 5.0], [0.0, 0.0]])
    np.testing.assert_array_equal(of_right, [0.0, 1.0])
    gradient_ = jax.grad(lambda x: einsum("ij,j->i", x, jnp.asarray(right))[0])(jnp.asarray(left))
    np.testing.assert_array_equal(gradient_, [[np.inf, 5.0], [0.0, 0.0]])


@pytest.mark.parametrize("output", ["dense", "coordinates", "coo", "csr"])
@pytest.mark.parametrize(
    ("text", "subscripts", "factors"),
    [
        # Products of a vector that is made and an input, of two that are made, and of one with a number.
        ("sum(<i, r> in A) sum(<j, a> in r) sum(<k, w> in W) { j -> { k -> a * w } }", "ij,k->ijk", "AW"),
        (
            "sum(<i, r> in A) sum(<j, a> in r) sum(<l, s> in A) sum(<k, b> in s) { j -> { k -> a * b * W(k) } }",
            "ij,lk,k->iljk",
            "AAW",
        ),
        ("sum(<i, r> in A) sum(<j, a> in r) sum(<k, w> in W) { j -> { k -> a * w * W(0) } }", "ij,k,->ijk", "AWN"),
    ],
)
def test_sums_that_cancel_before_they_meet_infinities_in_outer_products(text, subscripts, factors, output):
    """Each sum of a column is zero, but its terms are there: a product of such terms and infinities is no number."""
    a = np.array([[2.0, 1.0, 0.0], [-2.0, 3.0, 0.0]])
    kernel = compile(parse(text, {"A": 2, "W": 1}), output=output)
    for w in ([1.0, 2.0, 3.0], [1.0, 2.0, 3.0], [1.0, math.inf, 0.0], [math.nan, 2.0, 3.0], [1.0, 2.0, 4.0]):
        named = {"A": a, "W": np.array(w), "N": np.array(w[0])}
        operands = [named[name] for name in factors]
        is_term = np.einsum(subscripts, *(x != 0 for x in operands))
        terms = np.where(is_term, np.einsum(subscripts, *operands), 0.0)
        found = kernel(A=a, W=named["W"])
        found = found.to_numpy() if isinstance(found, Coordinates) else found
        expected = terms.reshape(-1, 3, 3).sum(0)
        np.testing.assert_allclose(found.toarray() if output in ("coo", "csr") else found, expected, err_msg=str(w))


@pytest.mark.parametrize("backend", [None, "torch"])
@pytest.mark.parametrize("adjoint", [math.nan, math.inf, 2.0])
def test_gradients_of_sums_that_cancel(adjoint, backend):
    """Of the last two columns the sum is zero; only the last one has no entries."""
    matrix = torch.tensor([[1.0, -1.0, 0.0], [2.0, 1.0, 0.0]], dtype=torch.float64)
    f = Function(parse("sum(<i, r> in A) sum(<j, a> in r) a * X(j)", {"A": 2, "X": 1}), backend=backend)
    for _ in range(2):
        x = torch.tensor([1.0, -2.0, 3.0], dtype=torch.float64, requires_grad=True)
        (found,) = torch.autograd.grad(f(A=matrix, X=x), x, torch.tensor(adjoint, dtype=torch.float64))
        expected = [3.0 * adjoint, adjoint - adjoint, 0.0]
        np.testing.assert_array_equal(found.numpy(), expected)
