"""A number and its gradients at once, beside PyTorch and beside the gradients one by one."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse as sp
import torch
from hypothesis import assume
from hypothesis import strategies as st

import derivable as dv
from derivable.algebra import semirings
from derivable.core.diagnostics import DomainError, TypeMismatchError, UnsupportedError
from derivable.kernel import nodes as n
from derivable.tensor.derivative.derivative import gradient
from derivable.tensor.language.interpret import interpret
from derivable.tensor.language.program import Program
from derivable.tensor.values.values import Coordinates
from drawn import examples
from tensor.random_programs import INPUTS, SIZE, dense_of, inputs, is_outside, programs

M, V, S = dv.tensor.matrix, dv.tensor.vector, dv.tensor.scalar
RNG = np.random.default_rng(5)
R = sp.random_array((6, 5), density=0.5, format="csr", rng=RNG)
GIVEN = {
    "R": R,
    "U": RNG.normal(size=(6, 3)),
    "W": RNG.normal(size=(5, 3)),
    "X": RNG.normal(size=5),
    "Y": np.sign(RNG.normal(size=6)),
    "C": 0.7,
}
TYPES = {"R": M, "U": M, "W": M, "X": V, "Y": V, "C": S}
MASK = torch.tensor(R.toarray() != 0)
LOSSES = {
    "factors": (
        "sum(<i, r> in R) sum(<j, m> in r) (m - sum(<k, u> in U(i)) u * W(j, k)) ** 2.0",
        ["U", "W"],
        lambda R, U, W: (torch.where(MASK, R - U @ W.T, 0) ** 2).sum(),
    ),
    "factors that are small": (
        """(sum(<i, r> in R) sum(<j, m> in r) (m - sum(<k, u> in U(i)) u * W(j, k)) ** 2.0)
        + C * (sum(<i, u> in U) sum(<k, x> in u) x * x) + C * C * (sum(<j, w> in W) sum(<k, x> in w) x * x)""",
        ["W", "C", "U"],
        lambda R, U, W, C: (
            (torch.where(MASK, R - U @ W.T, 0) ** 2).sum() + C * (U * U).sum() + C * C * (W * W).sum()
        ),
    ),
    "logistic": (
        "sum(<i, r> in R) log(1.0 + exp(-(Y(i) * sum(<j, a> in r) a * X(j))))",
        ["X"],
        lambda R, X, Y: torch.log(1 + torch.exp(-Y * (R @ X))).sum(),
    ),
    "by all": (
        "sum(<i, y> in Y) y * C * (sum(<j, a> in R(i)) a * X(j))",
        ["R", "X", "Y", "C"],
        lambda R, X, Y, C: C * (Y @ R @ X),
    ),
    "of sizes alone": ("sum(<j, x> in X) x", ["X"], lambda X: X.sum()),
    "a function of a sum": (
        "let t = sum(<j, x> in X) x * C in sin(t) * t",
        ["C", "X"],
        lambda X, C: torch.sin(C * X.sum()) * C * X.sum(),
    ),
    "of a name": (
        "let d = sum(<i, r> in R) r in sum(<j, x> in X) x * x * d(j)",
        ["X"],
        lambda R, X: (X * X * R.sum(0)).sum(),
    ),
}  # fmt: skip


def loss_of(name):
    text, wrt, meant = LOSSES[name]
    parsed = dv.tensor.parse(text, {given: of for given, of in TYPES.items() if given in text})
    return parsed, wrt, meant


def by_torch(meant, given, wrt):
    taken = {k: torch.tensor(x.toarray() if sp.issparse(x) else x, dtype=torch.float64) for k, x in given.items()}
    for name in wrt:
        taken[name].requires_grad_()
    value = meant(**taken)
    return value.item(), [x.numpy() for x in torch.autograd.grad(value, [taken[name] for name in wrt])]


@pytest.mark.parametrize("form", ["csr", "csc", "coo", "dense", "torch", "torch_coo", "JAX", "dict"])
@pytest.mark.parametrize("name", LOSSES)
def test_values_and_gradients_are_those_of_torch(name, form):
    program, wrt, meant = loss_of(name)
    given = {key: GIVEN[key] for key in program.inputs}
    value, expected = by_torch(meant, given, wrt)
    if form == "JAX":
        given |= {key: jnp.asarray(x) for key, x in given.items() if isinstance(x, np.ndarray)}
    elif form == "torch":
        given |= {key: torch.tensor(x, requires_grad=True) for key, x in given.items() if isinstance(x, np.ndarray)}
    elif "R" in given:
        matrix = dv.tensor.coordinates(R)
        given["R"] = matrix.to_dict() if form == "dict" else matrix.to(form)
    found, gradients = dv.tensor.value_and_gradient(program, wrt)(**given)
    tolerance = 1e-5 if form == "JAX" else 1e-10
    np.testing.assert_allclose(float(found), value, rtol=tolerance)
    for made, right in zip(gradients, expected, strict=True):
        if form == "torch":
            assert isinstance(made, torch.Tensor)
            assert not made.requires_grad
        np.testing.assert_allclose(np.asarray(made), right, rtol=tolerance, atol=tolerance)


def test_one_name_gives_one_gradient():
    program, _, meant = loss_of("factors")
    given = {key: GIVEN[key] for key in program.inputs}
    value, found = dv.tensor.value_and_gradient(program, "W")(**given)
    expected = by_torch(meant, given, ["W"])
    np.testing.assert_allclose(value, expected[0])
    np.testing.assert_allclose(found, expected[1][0])


@pytest.mark.parametrize("name", ["factors", "logistic"])
def test_loops_run_once_for_all_results(name):
    program, wrt, _ = loss_of(name)
    step = dv.tensor.value_and_gradient(program, wrt)
    step(**{key: GIVEN[key] for key in program.inputs})
    (kernel,) = step._whole.kernels()
    outer = [part for part in kernel.body if isinstance(part, n.For) and str(part.stop) == "R_n0"]
    assert len(outer) == 1, str(kernel)


@pytest.mark.parametrize("output", ["csr", "coordinates"])
def test_entries_of_a_sparse_variable_beside_a_dense_one(output):
    program, _, meant = loss_of("by all")
    given = {key: GIVEN[key] for key in program.inputs}
    step = dv.tensor.value_and_gradient(program, ["R", "X"], pattern={"R": "own"}, output=output)
    value, expected = by_torch(meant, given, ["R", "X"])
    for _ in range(2):
        found, (by_matrix, by_vector) = step(**given)
        np.testing.assert_allclose(found, value)
        np.testing.assert_allclose(by_vector, expected[1])
        entries = dv.tensor.coordinates(by_matrix)
        np.testing.assert_array_equal(entries.indices, dv.tensor.coordinates(R).indices)
        np.testing.assert_allclose(entries.to_numpy(), np.where(MASK, expected[0], 0))


@pytest.mark.parametrize("special", [math.nan, math.inf, -math.inf, 0.0])
@pytest.mark.parametrize("name", ["factors", "logistic", "by all"])
def test_numbers_that_are_none_are_those_of_the_gradients_alone(name, special):
    program, wrt, _ = loss_of(name)
    given = {key: GIVEN[key] for key in program.inputs}
    for key in wrt:
        if isinstance(given[key], np.ndarray):
            given[key] = given[key].copy()
            given[key].flat[1] = special
    found, gradients = dv.tensor.value_and_gradient(program, wrt)(**given)
    np.testing.assert_allclose(found, program(**given))
    for key, made in zip(wrt, gradients):
        np.testing.assert_allclose(made, gradient(program, key)(**given, output="numpy"))


@examples(10, 60, data=st.data())
def test_random_programs(data):
    program = Program(data.draw(programs(0, is_bounded=True)), INPUTS)
    meant = data.draw(inputs(INPUTS, is_bounded=True))
    wrt = data.draw(st.lists(st.sampled_from(["s", "X", "A"]), min_size=1, max_size=3, unique=True))
    given = {k: x if np.isscalar(x) else np.zeros((SIZE,) * INPUTS[k].order) for k, x in meant.items()}
    for key, value in meant.items():
        if not np.isscalar(value):
            given[key] = dense_of(value, INPUTS[key].order)
    try:
        step = dv.tensor.value_and_gradient(program, wrt)
        parts = [gradient(program, key) for key in wrt]
    except UnsupportedError:
        assume(False)
    real = semirings.get("real")
    sizes = {f"{k}_size_{axis}": SIZE for k in ("X", "Y", "A") for axis in range(INPUTS[k].order)}
    expected = [
        interpret(part.node, {**meant, **sizes}, real, is_guarded=part.is_guarded) for part in (program, *parts)
    ]
    assume(not any(map(is_outside, expected)))
    found, gradients = step(**given)
    orders = [0, *(INPUTS[key].order for key in wrt)]
    for made, right, order in zip((found, *gradients), expected, orders, strict=True):
        np.testing.assert_allclose(made, dense_of(right, order), rtol=1e-7, atol=1e-9)


def test_what_is_no_number_and_what_is_traced():
    matrix = dv.tensor.parse("R", {"R": M})
    with pytest.raises(TypeMismatchError, match="of a number"):
        dv.tensor.value_and_gradient(matrix, "R")
    program, _, _ = loss_of("of sizes alone")
    with pytest.raises(DomainError, match="each once"):
        dv.tensor.value_and_gradient(program, ["X", "X"])
    step = dv.tensor.value_and_gradient(program, "X")
    with pytest.raises(UnsupportedError, match="traced by JAX"):
        jax.jit(lambda x: step(X=x)[0])(jnp.ones(3))


def test_results_in_compressed_rows_are_of_their_owners(monkeypatch):
    """Where the rows begin is found once, and whoever changes a result changes no other."""
    converted = []
    monkeypatch.setattr(Coordinates, "to_scipy", lambda *a, to=Coordinates.to_scipy: converted.append(a) or to(*a))
    kernel = dv.tensor.compile(dv.tensor.parse("sum(<i, r> in R) { i -> C * r }", {"R": M, "C": S}), output="csr")
    first = kernel(R=R, C=2.0)
    first.indices[:] = 0
    first.data[:] = 0.0
    for factor in (3.0, 4.0):
        found = kernel(R=R, C=factor)
        assert isinstance(found, sp.csr_array)
        np.testing.assert_allclose(found.toarray(), factor * R.toarray())
    assert len(converted) == 1


def test_the_second_call_of_a_compiled_kernel_by_a_matrix(monkeypatch):
    """Kernels take gradients as one axis, whatever the axes of the input."""
    types = {"A": dv.tensor.matrix, "U": dv.tensor.matrix}
    loss = dv.tensor.parse("sum(<i, r> in A) sum(<k, a> in r) (a * U(i, k)) ** 2.0", types)
    step = dv.tensor.value_and_gradient(loss, ["U"])
    rng = np.random.default_rng(0)
    A, U = sp.csr_array(rng.random((5, 4)) * (rng.random((5, 4)) < 0.6)), rng.random((5, 4))
    for _ in range(3):
        value, (found,) = step(A=A, U=U)
        dense = A.toarray()
        assert value == pytest.approx(((dense * U) ** 2).sum())
        np.testing.assert_allclose(found, 2 * dense**2 * U)


@pytest.mark.parametrize("names", [["A"], "A"])
def test_only_gradients_by_the_entries(names):
    types = {"A": dv.tensor.matrix, "X": dv.tensor.vector}
    loss = dv.tensor.parse("sum(<i, r> in A) (sum(<j, a> in r) a * X(j)) ** 2.0", types)
    step = dv.tensor.value_and_gradient(loss, names, pattern="own", output="csr")
    A, x = sp.csr_array(np.array([[1.0, 0.0, 2.0], [0.0, 3.0, 0.0]])), np.array([1.0, 2.0, 3.0])
    for _ in range(2):
        value, found = step(A=A, X=x)
        by_hand = 2 * np.outer(A @ x, x) * (A.toarray() != 0)
        assert value == pytest.approx(((A @ x) ** 2).sum())
        np.testing.assert_allclose((found if names == "A" else found[0]).toarray(), by_hand)


def test_graphs_are_refused_and_torch_compile_steps_out():
    """A graph would have the numbers of the call that it is made in."""
    torch = pytest.importorskip("torch")
    from torch.fx.experimental.proxy_tensor import make_fx

    step = dv.tensor.value_and_gradient(dv.tensor.parse("sum(<i, x> in X) x * x * x", {"X": 1}), "X")

    def gradient_of(x):
        return step(X=x)[1]

    first, second = torch.tensor([1.0, 2.0]), torch.tensor([3.0, 4.0])
    for made in (
        lambda: torch.jit.trace(gradient_of, first),
        lambda: make_fx(gradient_of)(first),
        lambda: torch.vmap(gradient_of)(torch.stack([first, second])),
        lambda: torch.func.grad(lambda x: step(X=x)[0])(first),
    ):
        with pytest.raises(UnsupportedError, match="value with its gradients"):
            made()
    compiled = torch.compile(lambda x: 2 * gradient_of(x), backend="eager")
    for x in (first, second):
        assert torch.equal(compiled(x), 6 * x**2)
