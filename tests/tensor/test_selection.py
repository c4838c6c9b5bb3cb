"""Derivatives of programs in other semirings: against torch's minima and maxima of dense arrays, against gathers of
torch, which share nothing but the language with them, and against finite differences."""

from random import Random

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

import derivable as dv
from derivable.algebra import semirings
from derivable.core.diagnostics import UnsupportedError
from derivable.tensor import compile, gradient, hessian, jvp, parse, vjp
from derivable.tensor.derivative.derivative import MODES
from derivable.tensor.derivative.selection import in_reals
from derivable.tensor.formats.held import hold
from derivable.tensor.language import nodes as t
from derivable.tensor.language.binding import free_variables
from derivable.tensor.language.program import Program
from derivable.tensor.language.types import INT
from derivable.tensor.values.values import Coordinates, coordinates
from tensor.random_programs import INPUTS, SIZE, _Programs

NAMES = ("min_plus", "max_plus", "max_product", "godel", "log")
PRODUCT = parse("sum(<i, r> in A) { i -> sum(<j, a> in r) a * X(j) }", {"A": 2, "X": 1})
TIMES = {
    "min_plus": torch.add,
    "max_plus": torch.add,
    "max_product": torch.mul,
    "godel": lambda a, x: torch.where(a <= x, a, x),
}
# Each semiring and each mode: the other pairs differ in nothing that the library knows, and are for the long suite.
MODES_OF = [
    (name, mode)
    if name in ("log", "min_plus") or mode == "reverse"
    else pytest.param(name, mode, marks=pytest.mark.slow)
    for name in NAMES
    for mode in MODES
]
# Many ties.
MATRIX = np.array([[1.0, 2.0, 0.25, 2.0], [0.25, 1.0, 0.25, 0.25], [0.5, 0.5, 0.5, 0.5]])
VECTOR = np.array([0.5, 0.25, 1.0, 0.25])


@pytest.mark.parametrize("name", TIMES)
def test_products_are_those_of_torch(name):
    """The argument of the first minimum or maximum."""
    matrix, vector = (torch.tensor(x.clip(0, 1)).requires_grad_() for x in (MATRIX, VECTOR))
    terms = TIMES[name](matrix, vector)
    places = terms.detach().numpy().argmin(1) if name == "min_plus" else terms.detach().numpy().argmax(1)
    adjoint = torch.tensor([1.0, 10.0, 100.0]).double()
    terms[torch.arange(3), torch.tensor(places)].backward(adjoint)
    values = {"A": matrix.detach().numpy(), "X": vector.detach().numpy(), "adjoint": adjoint.numpy()}
    for wrt, expected in (("A", matrix.grad), ("X", vector.grad)):
        found = vjp(PRODUCT, wrt, semiring=name)(**values, output="numpy")
        np.testing.assert_array_equal(found, expected.numpy())


@pytest.mark.parametrize("name", ["min_plus", "max_plus", "max_product"])
def test_without_ties_they_are_torch_amin_and_amax(name):
    rng = np.random.default_rng(3)
    a, x = (torch.tensor(rng.random(shape)).requires_grad_() for shape in ((5, 4), (4,)))
    best = torch.amin if name == "min_plus" else torch.amax
    best(TIMES[name](a, x), 1).sin().sum().backward()
    adjoint = best(TIMES[name](a, x), 1).cos().detach().numpy()
    given_ = {"A": a.detach().numpy(), "X": x.detach().numpy(), "adjoint": adjoint}
    for wrt, expected in (("A", a.grad), ("X", x.grad)):
        np.testing.assert_allclose(vjp(PRODUCT, wrt, semiring=name)(**given_, output="numpy"), expected.numpy())


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=4, deadline=None, phases=[Phase.explicit, Phase.generate])
@given(seed=st.integers(0, 1 << 30))
def test_random_programs_as_by_gathers(name, seed):
    """Values and derivatives, with ties: numbers are few."""
    random = Random(seed)
    program = _program(random, name)
    types, values, wanted = program.inputs, {}, {}
    for each, of in types.items():
        shape = (SIZE,) * of.order
        numbers = np.array(random.choices([0.0, 0.25, 0.5, 1.0], k=SIZE**of.order)).reshape(shape)
        if of == INT:
            values[each] = random.randrange(SIZE)
        elif not of.order:
            values[each] = wanted[each] = torch.tensor(numbers.item()).double().requires_grad_()
        else:
            is_held = np.array(random.choices([True, True, False], k=SIZE**of.order)).reshape(shape)
            wanted[each] = torch.tensor(numbers[is_held]).requires_grad_()
            values[each] = Coordinates(shape, np.stack(np.nonzero(is_held)), wanted[each])
    order, passes = program.type.order, {"saturation": False}
    shape = (SIZE,) * order or None
    options = {"semiring": name, "shape": shape, "passes": passes}
    expected = compile(program, output="torch" if order else None, backend="torch", **options)(**values)
    numbers = expected.detach().numpy()
    plain = {each: _detached(value) for each, value in values.items()}
    found = compile(in_reals(program, name), output="dense" if order else None, shape=shape, passes=passes)(**plain)
    # A tensor in real numbers is 0 where it has no entries.
    zeros = np.where(np.isinf(numbers), 0.0, numbers) if order else numbers
    np.testing.assert_allclose(np.where(np.isinf(found), 0.0, found) if order else found, zeros, atol=1e-9)
    # Where the result is zero no term is taken.
    if not expected.requires_grad or not (np.isfinite(numbers) & (numbers != semirings.get(name).zero)).all():
        return
    adjoint = np.linspace(1, 2, numbers.size).reshape(numbers.shape)
    slopes = torch.autograd.grad(expected, list(wanted.values()), torch.tensor(adjoint), materialize_grads=True)
    for each, slope in zip(wanted, slopes):
        pulled, below = vjp(program, each, "own", name), (SIZE,) * types[each].order
        run = compile(pulled, output="dense" if below else None, shape=below or None, passes=passes)
        found = run(**plain, **{list(pulled.inputs)[-1]: adjoint if order else float(adjoint)})
        found = found[tuple(values[each].indices)] if below else found
        np.testing.assert_allclose(found, slope.numpy(), atol=1e-9, err_msg=f"{each} of {program}")


def _program(random, name):
    """A random program of elements of the semiring, with an input that has derivatives."""
    low, high = {"godel": (0, 1), "max_product": (0, 9)}.get(name, (-9, 9))
    while True:
        node = _Programs(random, (), True).expression(random.randint(0, 2), dict(INPUTS), random.randint(2, 4))
        numbers = [part.value for part in t.walk(node) if isinstance(part, t.Number) and isinstance(part.value, float)]
        types = {name: of for name, of in INPUTS.items() if name in free_variables(node)}
        if set(types) - {"n"} and all(low <= number <= high for number in numbers):
            return Program(node, types)


def _detached(value):
    if isinstance(value, torch.Tensor):
        return value.item()
    return value if isinstance(value, int) else type(value)(value.shape, value.indices, value.values.detach().numpy())


@pytest.mark.parametrize(("name", "mode"), MODES_OF)
def test_modes_and_finite_differences(name, mode):
    text = "sum(<i, r> in A) { i -> (sum(<j, a> in r) a * X(j)) * X(i) + (sum(<j, a> in r) a * a * X(0)) }"
    program, rng = parse(text, {"A": 2, "X": 1}), np.random.default_rng(1)
    matrix, vector = rng.random((3, 3)), rng.random(3)
    found = gradient(program, "X", mode, semiring=name)(A=matrix, X=vector, output="numpy")
    run, step = compile(program, semiring=name), 1e-6
    for k in range(3):
        moved = np.eye(3)[k] * step
        slope = (run(A=matrix, X=vector + moved) - run(A=matrix, X=vector - moved)) / (2 * step)
        np.testing.assert_allclose(found[:, k], slope, atol=1e-7)
        along = jvp(program, "X", semiring=name)(A=matrix, X=vector, X_dot=np.eye(3)[k])
        np.testing.assert_allclose(along, slope, atol=1e-7)


@pytest.mark.parametrize("format", ["dense", "coo", "csr", "csc", "dcsr", "csf", "hashed", "column_major"])
def test_every_format(format):
    matrix = hold(MATRIX, format, 2, "min_plus")
    found = compile(gradient(PRODUCT, "X", semiring="min_plus"), {"A": format}, output="numpy")(A=matrix, X=VECTOR)
    np.testing.assert_array_equal(found, np.eye(4)[(MATRIX + VECTOR).argmin(1)])


def test_shortest_paths_in_formats_and_precisions():
    """What is taken of a sparse matrix is a path, also where indices are far from each other."""
    far = 10**8
    roads = dv.tensor.Coordinates.of((far, far), [[0, 0, 7, far - 1], [7, far - 1, 5, 5]], [2.0, 1.0, 3.0, 4.0])
    two = parse("sum(<j, a> in A(0)) sum(<k, b> in A(j)) a * b", {"A": 2})
    for values in (roads.values, roads.values.astype(np.float32)):
        given_ = dv.tensor.Coordinates(roads.shape, roads.indices, values)
        found = gradient(two, "A", pattern="own", semiring="min_plus")(A=given_)
        assert found.to("dict") == {0: {7: 1.0}, 7: {5: 1.0}}


def test_second_derivatives():
    cubes = parse("sum(<i, a> in X) a * a * a * Y(i)", {"X": 1, "Y": 1})
    found = hessian(cubes, "X", semiring="max_product")(X=[1.0, 2.0, 1.5], Y=[4.0, 2.0, 4.0], output="numpy")
    np.testing.assert_allclose(found, np.diag([0.0, 24.0, 0.0]))
    total = parse("sum(<i, a> in X) a", {"X": 1})
    weights = np.exp(VECTOR) / np.exp(VECTOR).sum()
    found = hessian(total, "X", semiring="log")(X=VECTOR, output="numpy")
    np.testing.assert_allclose(found, np.diag(weights) - np.outer(weights, weights), atol=1e-12)


def test_what_has_no_terms_stays_zero():
    best = parse("sum(<i, a> in X) a * Y(i)", {"X": 1, "Y": 1})
    apart = {"X": dv.tensor.Coordinates.of((3,), [[0]], [1.0]), "Y": dv.tensor.Coordinates.of((3,), [[1]], [1.0])}
    assert in_reals(best, "min_plus")(**apart) == np.inf
    assert not gradient(best, "X", semiring="min_plus")(**apart).any()


def test_semirings_without_derivatives():
    for name in ("boolean", "counting", "addmultprob"):
        with pytest.raises(UnsupportedError, match="have no derivatives: its"):
            gradient(PRODUCT, "X", semiring=name)
    slope = gradient(PRODUCT, "X", semiring="min_plus")
    with pytest.raises(UnsupportedError, match="runs in the semiring 'real'"):
        slope(A=MATRIX, X=VECTOR, semiring="min_plus")
    with pytest.raises(UnsupportedError, match="runs in the semiring 'real'"):
        gradient(slope, "X", semiring="min_plus")
    # Its own derivative is that of real numbers.
    assert str(gradient(slope, "X")) == "{}"


@pytest.mark.parametrize(
    "name", [name if name in ("log", "godel") else pytest.param(name, marks=pytest.mark.slow) for name in NAMES]
)
def test_jax(name):
    """As torch has it, under jit too."""
    torch_given = [torch.tensor(x.clip(0, 1)).requires_grad_() for x in (MATRIX, VECTOR)]
    total = dv.tensor.einsum("ij,j->i", *torch_given, semiring=name)
    (total * torch.tensor([1.0, 2.0, 3.0]).double()).sum().backward()

    def loss(matrix, vector):
        return (dv.tensor.einsum("ij,j->i", matrix, vector, semiring=name) * jnp.arange(1.0, 4.0)).sum()

    with jax.enable_x64(True):
        given_ = [jnp.asarray(x.detach().numpy()) for x in torch_given]
        for function in (jax.grad(loss, (0, 1)), jax.jit(jax.grad(loss, (0, 1)))):
            for found, expected in zip(function(*given_), torch_given):
                np.testing.assert_allclose(found, expected.grad.numpy(), atol=1e-12)


def test_jax_has_the_zero_of_the_semiring_where_nothing_is():
    matrix = dv.tensor.Coordinates.of((3, 2), [[0, 2], [1, 0]], [1.0, 2.0])
    with jax.enable_x64(True):
        found = dv.tensor.einsum("ij,j->i", matrix, jnp.array([5.0, 7.0]), semiring="min_plus")
        slopes = jax.jacobian(lambda x: dv.tensor.einsum("ij,j->i", matrix, x, semiring="min_plus"))(jnp.ones(2))
        assert found.tolist() == [8.0, np.inf, 7.0]
        assert slopes.tolist() == [[0, 1], [0, 0], [1, 0]]
        with pytest.raises(UnsupportedError, match="'boolean' have no derivatives"):
            dv.tensor.einsum("ij,j->i", matrix, jnp.ones(2), semiring="boolean")


@pytest.mark.parametrize("format", ["dense", "column_major", "csr"])
def test_what_a_sparse_input_does_not_hold_is_no_term(format):
    """A format with places for all indices has the zero of the semiring there, which is that of no real number."""
    matrix = coordinates({0: {1: 5.0}, 1: {0: 2.0, 1: 1.0}}, shape=(2, 3))
    by_columns = gradient(PRODUCT, "X", semiring="min_plus")
    found = compile(by_columns, {"A": format}, output="numpy")(A=matrix, X=np.zeros(3))
    np.testing.assert_array_equal(found, [[0.0, 1.0, 0.0], [0.0, 1.0, 0.0]])


NAN, INF = np.nan, np.inf
# Sums of the terms themselves, by arithmetic: (terms, value, derivatives).
CORNERS = [
    *[
        (name, terms, NAN, slopes)
        for name in ("min_plus", "max_plus", "max_product", "godel")
        for terms, slopes in (([NAN, 1.0], [1.0, 0.0]), ([0.0, 0.5, NAN], [0.0, 0.0, 1.0]))
    ],
    ("max_plus", [0.0, 0.5, 1.0], 1.0, [0.0, 0.0, 1.0]),
    ("min_plus", [9.0, 8.0, 7.0, 6.0, 5.0, 4.0, 3.0, 4.0], 3.0, [0.0] * 6 + [1.0, 0.0]),
    ("log", [NAN, 1.0], NAN, [NAN, NAN]),
    ("log", [0.0, -INF, NAN], NAN, [NAN, NAN, NAN]),
    ("log", [INF, INF], INF, [0.5, 0.5]),
    ("log", [1.0, INF, -INF], INF, [0.0, 1.0, 0.0]),
    ("log", [-INF, -INF], -INF, [0.0, 0.0]),
    ("log", [-INF, 1.0], 1.0, [0.0, 1.0]),
]


@pytest.mark.parametrize(("name", "terms", "value", "slopes"), CORNERS)
def test_nan_and_infinities_mean_the_same_in_every_library(name, terms, value, slopes):
    def total(x):
        return dv.tensor.einsum("i->", x, semiring=name)

    # JAX's and NumPy's are in 32 bits, in which the index 2 has another code than in 64.
    numbers, ours = np.array(terms, np.float32), jnp.array(terms, jnp.float32)
    leaf = torch.tensor(terms).double().requires_grad_()
    values = [total(numbers), total(leaf).item(), total(ours), jax.jit(total)(ours), total(leaf.detach()).item()]
    np.testing.assert_array_equal(values, [value] * 5)
    found = [torch.autograd.grad(total(leaf), leaf)[0], torch.func.grad(total)(leaf.detach())]
    found += [jax.grad(total)(ours), jax.jit(jax.grad(total))(ours)]
    found += [gradient(parse("sum(<i, x> in X) x", {"X": 1}), "X", semiring=name)(X=numbers, output="numpy")]
    for each in found:
        np.testing.assert_array_equal(np.asarray(each), slopes)
    np.testing.assert_array_equal(torch.func.vmap(total)(torch.stack([leaf, leaf])).detach(), [value, value])


def test_second_derivatives_at_infinities_are_those_of_the_shares():
    def total(x):
        return dv.tensor.einsum("i->", x, semiring="log")

    expected = [[0.25, -0.25, 0.0], [-0.25, 0.25, 0.0], [0.0, 0.0, 0.0]]
    np.testing.assert_array_equal(torch.func.hessian(total)(torch.tensor([INF, INF, 1.0]).double()), expected)
    np.testing.assert_array_equal(jax.hessian(total)(jnp.array([INF, INF, 1.0])), expected)


@pytest.mark.parametrize("subscripts", ["ij->i", "ij,j->i", "ij,j,k->ik"])
def test_rows_of_zeros_are_zeros_in_compiled_functions_of_jax(subscripts):
    def total(*operands):
        return dv.tensor.einsum(subscripts, *operands, semiring="log")

    operands = [jnp.array([[-INF, -INF], [-INF, 1.0]]), jnp.array([1.0, 2.0]), jnp.array([3.0])]
    operands = operands[: subscripts.count(",") + 1]
    value = [1.0, 3.0, 6.0][subscripts.count(",")]
    np.testing.assert_array_equal(jax.jit(total)(*operands).ravel(), [-INF, value])
    slopes = jax.jit(jax.grad(lambda *x: total(*x)[1].sum()))(*operands)
    np.testing.assert_array_equal(slopes, [[0.0, 0.0], [0.0, 1.0]])
