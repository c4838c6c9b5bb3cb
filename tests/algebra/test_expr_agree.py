"""interpret = Numba = jnp = the Python function, and derivatives against three independent routes."""

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from algebra.expr_cases import (
    BINARY_ANALYTIC,
    BINARY_EXACT,
    BINARY_SMOOTH,
    UNARY_ANALYTIC,
    UNARY_EXACT,
    UNARY_SMOOTH,
    run,
    trees,
)
from derivable.algebra import expr

jax = pytest.importorskip("jax")
jax.config.update("jax_enable_x64", True)

EXACT = {**UNARY_EXACT, **BINARY_EXACT}
SMOOTH = {**UNARY_SMOOTH, **BINARY_SMOOTH}
GRID = st.sampled_from([-2.0, -1.0, -0.75, 0.0, 0.5, 1.0, 1.25, 3.0])
FINE = st.floats(-2, 2).map(lambda x: round(x, 3))


def traced(forest, table, dtype="float64"):
    return expr.trace(lambda *arguments: tuple(run(tree, arguments, table) for tree in forest), [dtype] * 3)


def arguments_for(dtype):
    return tuple(expr.Argument(index, dtype, f"x{index}") for index in range(3))


def named(forest, table, dtype="float64"):
    exprs = expr.trace(lambda x0, x1, x2: tuple(run(tree, (x0, x1, x2), table) for tree in forest), [dtype] * 3)
    return exprs, arguments_for(dtype)


def points(values, dtype):
    return np.array(values, dtype).reshape(-1, 3)


@settings(max_examples=8, deadline=None, phases=[Phase.explicit, Phase.generate])
@given(
    st.lists(trees(UNARY_EXACT, BINARY_EXACT), min_size=4, max_size=4),
    st.lists(GRID, min_size=15, max_size=15),
    st.sampled_from(["float64", "float32", "int64"]),
)
def test_exact_operations_agree_bit_for_bit(forest, values, dtype):
    exprs, arguments = named(forest, EXACT, dtype)
    simple = expr.simplify(exprs)
    compiled = expr.compile_numba(exprs, arguments)
    compiled_simple = expr.compile_numba(simple, arguments)
    in_jax = expr.compile_jnp(exprs, arguments)
    at = points(values, dtype)
    reference = expr.interpret(exprs, at.T)
    for k, e in enumerate(exprs):
        assert np.asarray(reference[k]).dtype == e.dtype
        assert simple[k].dtype == e.dtype
    from_jax = [np.broadcast_to(np.asarray(v), len(at)) for v in in_jax(*at.T)]
    for i, x in enumerate(at):
        expected = [np.broadcast_to(v, len(at))[i] for v in reference]
        python = [run(tree, list(x), EXACT) for tree in forest]
        np.testing.assert_array_equal(expected, np.array(python, np.float64))
        np.testing.assert_array_equal(compiled(*x), expected)
        np.testing.assert_array_equal(compiled_simple(*x), expected)
        np.testing.assert_array_equal([v[i] for v in from_jax], expected)


@settings(max_examples=8, deadline=None, phases=[Phase.explicit, Phase.generate])
@given(
    st.lists(trees(UNARY_SMOOTH, BINARY_SMOOTH), min_size=4, max_size=4),
    st.lists(FINE, min_size=9, max_size=9),
    st.sampled_from(["float64", "float32"]),
)
def test_smooth_operations_agree(forest, values, dtype):
    exprs, arguments = named(forest, SMOOTH, dtype)
    at = points(values, dtype)
    compiled = expr.compile_numba(expr.simplify(exprs), arguments)
    in_jax = expr.compile_jnp(exprs, arguments)
    # Trees amplify roundings (differences of exponentials), so both bounds are relative to a float64 run.
    exact = expr.interpret(named(forest, SMOOTH, "float64")[0], at.T.astype(np.float64))
    tolerance = {"float64": 1e-10, "float32": 3e-2}[dtype]
    for i, x in enumerate(at):
        expected = np.array([np.broadcast_to(v, len(at))[i] for v in exact])
        scale = tolerance * np.maximum(1, np.abs(expected))
        with np.errstate(all="ignore"):
            python = np.array([run(tree, list(x.astype(float)), SMOOTH) for tree in forest])
        answers = compiled(*x)
        ok = np.abs(expected) < (1e30 if dtype == "float64" else 1e4)
        for route in (python, answers, [np.broadcast_to(np.asarray(v), len(at))[i] for v in in_jax(*at.T)]):
            assert (np.abs(np.asarray(route, float) - expected) <= scale)[ok].all(), (route, expected)


@settings(max_examples=40, deadline=None)
@given(trees(UNARY_ANALYTIC, BINARY_ANALYTIC), st.lists(FINE, min_size=3, max_size=3), st.integers(0, 2))
def test_derivatives_against_the_complex_step(tree, x, index):
    (e,), _ = named([tree], SMOOTH)
    if e.dtype != "float64":
        return
    derivative = expr.interpret(expr.differentiate(e, index), x)
    step = 1e-30
    moved = [np.complex128(value) for value in x]
    moved[index] += 1j * step
    exact = np.imag(run(tree, moved, SMOOTH)) / step
    if np.isfinite(exact) and abs(exact) < 1e8:
        assert derivative == pytest.approx(exact, rel=1e-8, abs=1e-8)


@settings(max_examples=30, deadline=None)
@given(
    trees({**UNARY_SMOOTH, "abs": expr.abs}, {**BINARY_SMOOTH, "max": expr.maximum, "pick": BINARY_EXACT["pick"]}),
    st.lists(st.floats(-2, 2), min_size=3, max_size=3, unique_by=lambda v: round(v, 2)),
    st.integers(0, 2),
)
def test_derivatives_against_jax_and_finite_differences(tree, x, index):
    table = {**SMOOTH, **EXACT}
    (e,), arguments = named([tree], table)
    if e.dtype != "float64":
        return
    derivative = float(expr.interpret(expr.differentiate(e, index), x))
    compiled = expr.compile_jnp(e, arguments)
    from_jax = float(jax.grad(lambda *a: compiled(*a) * 1.0, index)(*(np.float64(v) for v in x)))

    def at(t):
        return float(expr.interpret(e, [*x[:index], x[index] + t, *x[index + 1 :]]))

    step = 1e-5
    left, middle, right = at(-step), at(0), at(step)
    slopes = ((middle - left) / step, (right - middle) / step)
    # Only where the function is smooth nearby: rules at corners are tested by name.
    if abs(slopes[0] - slopes[1]) < 1e-2 * max(1, abs(slopes[0])) and abs(middle) < 1e6:
        central = (right - left) / (2 * step)
        assert derivative == pytest.approx(central, rel=2e-2, abs=2e-2)
        assert derivative == pytest.approx(from_jax, rel=1e-7, abs=1e-7)


@settings(max_examples=15, deadline=None)
@given(st.lists(trees(UNARY_ANALYTIC, BINARY_ANALYTIC), min_size=2, max_size=2), st.lists(FINE, min_size=5, max_size=5))
def test_vjp_is_the_transpose_of_the_derivatives(forest, values):
    exprs, arguments = named(forest, SMOOTH)
    adjoints, gradients = expr.vjp(exprs, arguments)
    assert [a.index for a in adjoints] == [3, 4]
    got = expr.interpret(gradients, values)
    for argument, gradient in zip(arguments, got):
        expected = sum(
            adjoint * float(expr.interpret(expr.differentiate(e, argument), values))
            for e, adjoint in zip(exprs, values[3:])
            if e.dtype == "float64"
        )
        assert gradient == pytest.approx(expected, rel=1e-9, abs=1e-9)


def test_the_comparison_can_fail():
    exprs, arguments = named([("exp", ("x", 0))], SMOOTH)
    wrong = expr.compile_numba(tuple(e * 1.0001 for e in exprs), arguments)
    assert abs(wrong(1.0, 0.0, 0.0)[0] - expr.interpret(exprs, (1.0, 0.0, 0.0))[0]) > 1e-5


@pytest.mark.parametrize("dtype", ["float64", "float32", "int64"])
def test_many_choices_are_calls_and_mean_the_same(dtype):
    """Long expressions choose by functions instead of in line; NaN goes the same way."""

    def nested(a, b, c):
        for _ in range(4):
            a, b, c = (
                expr.minimum(a, b),
                expr.maximum(b, c),
                expr.where(a < c, expr.where(b < a, c, a), expr.maximum(expr.minimum(a, c), b)),
            )
        return a, b, c, a < b

    exprs = expr.trace(nested, [dtype] * 3)
    arguments = [expr.Argument(k, dtype, name) for k, name in enumerate("abc")]
    assert "where_" in expr.emit_numba("many", exprs, arguments)
    assert "where_" not in expr.emit_numba("few", exprs[0], arguments)
    compiled = expr.compile_numba(exprs, arguments)
    numbers = [-1, 0, 2] if dtype == "int64" else [-1.0, 0.0, 2.0, np.nan, np.inf]
    at = np.array(np.meshgrid(numbers, numbers, numbers), dtype).reshape(3, -1)
    expected = np.array(expr.interpret(exprs, at), float)
    np.testing.assert_array_equal(np.array([compiled(*x) for x in at.T], float).T, expected)
