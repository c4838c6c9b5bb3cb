"""Floats of 16 bits: results have the type of the operands at every door, and are rounded once."""

import numpy as np
import pytest
import scipy.sparse

import derivable as dv

torch = pytest.importorskip("torch")
PRODUCT = dv.tensor.parse("sum(<i, r> in A) { i -> sum(<j, a> in r) a * X(j) }", {"A": 2, "X": 1})
DTYPES = (torch.float16, torch.bfloat16)
MATRIX, VECTOR = np.random.default_rng(0).random((4, 40)) + 0.5, np.random.default_rng(1).random(40)


def function(a, x, backend=None):
    places = np.stack(np.nonzero(MATRIX))
    pattern = dv.tensor.Coordinates.of(MATRIX.shape, places, np.ones(MATRIX.size))
    return dv.tensor.Function(PRODUCT, patterns={"A": pattern}, backend=backend)(A=a.reshape(-1), X=x)


DOORS = {
    "einsum": lambda a, x: dv.tensor.einsum("ij,j->i", a, x),
    "three operands": lambda a, x: dv.tensor.einsum("ij,j,->i", a, x, 1.0),
    "gathered": lambda a, x: dv.tensor.einsum("ij,j->i", a, x, backend="torch"),
    "coo": lambda a, x: dv.tensor.einsum("ij,j->i", a.to_sparse(), x),
    "csr": lambda a, x: dv.tensor.einsum("ij,j->i", a.to_sparse_csr(), x),
    "program": lambda a, x: PRODUCT(A=a, X=x),
    "kernel": lambda a, x: dv.tensor.compile(PRODUCT, {"A": "csr"})(A=a.to_sparse(), X=x),
    "gathers": lambda a, x: dv.tensor.compile(PRODUCT, backend="torch")(A=a.to_sparse(), X=x),
    "function": function,
    "gathered function": lambda a, x: function(a, x, "torch"),
}


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("is_learnt", [False, True])
@pytest.mark.parametrize("door", DOORS)
def test_results_have_the_type_of_operands(door, dtype, is_learnt):
    a, x = (torch.tensor(of).to(dtype).requires_grad_(is_learnt) for of in (MATRIX, VECTOR))
    found = DOORS[door](a, x)
    assert found.dtype == dtype
    expected = a.detach().double() @ x.detach().double()
    # Rounded once: by half of the distance between two numbers, where sums in 16 bits err by many.
    error = (found.detach().double() - expected).abs() / expected
    assert error.max() <= torch.finfo(dtype).eps / 2 * 1.01
    if is_learnt:
        of_a, of_x = torch.autograd.grad(found.sum(), (a, x))
        assert of_a.dtype == of_x.dtype == dtype
        torch.testing.assert_close(of_a, x.detach().expand(a.shape))
        torch.testing.assert_close(of_x, a.detach().double().sum(0).to(dtype))


def test_sums_longer_than_the_type_counts_to():
    ones = torch.ones(70_000, dtype=torch.float16)
    assert dv.tensor.einsum("i,i->", ones, 0.5 * ones).item() == 35_008.0  # the nearest one to 35,000
    assert dv.tensor.einsum("i->", 0.25 * ones).item() == 17_504.0


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_what_operands_of_several_types_give(dtype):
    a, x = torch.tensor(MATRIX), torch.tensor(VECTOR)
    einsum = dv.tensor.einsum
    assert einsum("ij,j->i", a.to(dtype), x.float()).dtype == torch.float32
    assert einsum("ij,j->i", a.to(dtype), x).dtype == torch.float64
    assert einsum("ij,j->i", a.half(), x.bfloat16()).dtype == torch.float32
    assert einsum("ij,j->i", (10 * a).int(), x.to(dtype)).dtype == dtype
    for is_learnt in (False, True):
        learnt = x.to(dtype).requires_grad_(is_learnt)
        assert einsum("ij,j->i", scipy.sparse.csr_array(MATRIX), learnt).dtype == dtype
    assert einsum("ij,j->i", a.to(dtype), x.to(dtype), output="numpy").dtype == np.float32
    sparse = einsum("ij,j->ij", a.to(dtype).to_sparse(), x.to(dtype))
    assert sparse.dtype == dtype
    assert sparse.layout == torch.sparse_coo
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert einsum("ij,j->i", a.to(dtype), x.to(dtype)).dtype == dtype
        found = einsum("ij,j->i", a.float(), x.float())
    # Of float32 every bit, where autocast would have torch multiply in bfloat16.
    torch.testing.assert_close(found, (a @ x).float())


def test_constants_make_results_no_wider():
    """With gradients and without, at every door; graphs are in SciPy's float64 or integers, and features in float32."""
    x, graph = torch.tensor(VECTOR).float(), scipy.sparse.csr_array(MATRIX > 1)
    for constant in (MATRIX, graph, graph.astype(np.int64), graph.astype(np.float64)):
        for is_learnt, backend in [(False, None), (True, None), (False, "torch"), (True, "torch")]:
            learnt = x.clone().requires_grad_(is_learnt)
            kernel = dv.tensor.compile(PRODUCT, backend=backend)
            for found in (
                dv.tensor.einsum("ij,j->i", constant, learnt, backend=backend),
                dv.tensor.einsum("ij,j->ij", constant, learnt, backend=backend),
                dv.tensor.einsum("ij,j,j->i", constant, learnt, learnt, backend=backend),
                PRODUCT(A=constant, X=learnt, backend=backend),
                kernel(A=constant, X=learnt),
                kernel(A=constant, X=learnt),
                dv.tensor.Function(PRODUCT, constants={"A": constant}, backend=backend)(X=learnt),
            ):
                assert found.dtype == torch.float32


def test_in_jax():
    jax = pytest.importorskip("jax")
    numpy = jax.numpy
    for dtype in (numpy.float16, numpy.bfloat16):
        a, x = numpy.asarray(MATRIX, dtype), numpy.asarray(VECTOR, dtype)
        expected = np.asarray(a, np.float64) @ np.asarray(x, np.float64)
        for call in (lambda a, x: dv.tensor.einsum("ij,j->i", a, x), lambda a, x: PRODUCT(A=a, X=x)):
            found, gradient = call(a, x), jax.grad(lambda x, a=a, call=call: call(a, x).sum())(x)
            assert found.dtype == gradient.dtype == dtype
            np.testing.assert_allclose(
                np.asarray(found, np.float64), expected, rtol=float(numpy.finfo(dtype).eps) / 1.9
            )
        learnt = dv.tensor.Function(PRODUCT, constants={"A": MATRIX})
        assert jax.jit(lambda x, learnt=learnt: learnt(X=x))(x).dtype == dtype
        sparse = pytest.importorskip("jax.experimental.sparse").BCOO.fromdense(a)
        assert dv.tensor.einsum("ij,j->i", sparse, x).dtype == dtype
        assert dv.tensor.einsum("ij,j->ij", sparse, x).dtype == dtype
