"""Equality saturation: results stay, costs fall, and the paper's kernels get their best forms."""

import gc
import sys
import threading
import time

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import derivable.tensor.optimisation.saturate as saturate
from derivable.algebra import semirings
from derivable.core.diagnostics import DomainError, ShapeError
from derivable.tensor import compile, gradient, optimise, parse
from derivable.tensor.analysis.sparsity import propagate
from derivable.tensor.language import nodes as t
from derivable.tensor.language.binding import alpha_equal
from derivable.tensor.language.interpret import NOTHING, interpret
from derivable.tensor.language.program import Program
from derivable.tensor.language.types import REAL, array, tensor
from derivable.tensor.optimisation.optimisation import loop_cost
from derivable.tensor.optimisation.saturate import equal_terms, share
from derivable.tensor.optimisation.terms import hoisted
from tensor.random_programs import INPUTS, SMOOTH, inputs, is_same, programs

M, V = tensor(2), tensor(1)
TYPES = {"s": REAL, "A": M, "B": M, "X": V, "Y": V}
COUNTS = st.fixed_dictionaries({name: st.integers(0, 200) for name in ("X", "Y", "A")})


def program(text):
    letters = {name: of for name, of in TYPES.items() if name in text.replace("sum", "").replace("exp", "")}
    return parse(text, letters)


def assert_becomes(text, expected, counts=None, sizes=None):
    found = optimise(program(text), sizes, counts)
    assert alpha_equal(found.node, propagate(parse(expected, found.inputs).node)), str(found)


@settings(max_examples=20, deadline=None)
@given(programs(depths=(2, 5), functions=SMOOTH), inputs(), COUNTS)
def test_same_results(node, values, counts):
    before = Program(node, INPUTS)
    after = optimise(before, counts=counts)
    assert loop_cost(after, counts=counts) <= loop_cost(before.guarded(None), counts=counts)
    assert (after.type, after.inputs) == (before.type, before.inputs)
    left, right = (interpret(p.node, values, semirings.real, is_guarded=p.is_guarded) for p in (before, after))
    assert is_same(left, right, keeps_zeros=False, tolerance=1e-6)


@settings(max_examples=8, deadline=None)
@given(programs(depths=(2, 4), functions=()), inputs(), COUNTS)
def test_other_semirings(node, values, counts):
    before = Program(node, INPUTS)
    after = optimise(before, counts=counts)
    left, right = (
        finite(interpret(p.node, values, semirings.max_plus, is_guarded=p.is_guarded)) for p in (before, after)
    )
    assert is_same(left, right)


def finite(value):
    """Without the zeros of the semiring."""
    if isinstance(value, dict):
        return {key: inner for key, row in value.items() if (inner := finite(row)) is not NOTHING}
    return NOTHING if value == -np.inf else value


# The six kernels of the paper

BATAX = "sum(<i, r> in A) sum(<j, a> in r) sum(<k, b> in r) { j -> s * a * b * X(k) }"
SMMM = "sum(<i, r> in A) sum(<k, a> in r) sum(<j, b> in B(k)) a * b"


def test_products_with_a_row_are_summed_once():
    assert_becomes(BATAX, "sum(<i, r> in A) let t = s * (sum(<k, b> in r) b * X(k)) in t * r")


def test_sum_of_a_matrix_product_is_factorised():
    assert_becomes(SMMM, "let s = sum(<_, r> in A) r in sum(<k, a> in B) s(k) * (sum(<_, b> in a) b)")


def test_a_dot_product_runs_over_the_sparser_vector():
    dot = "sum(<i, x> in X) x * Y(i)"
    other = "sum(<i, y> in Y) X(i) * y"
    assert_becomes(dot, other, {"Y": 10, "X": 1000})
    assert_becomes(dot, dot, {"X": 10, "Y": 1000})
    assert_becomes(dot, dot)


def test_a_vector_is_scaled_at_once():
    assert_becomes("sum(<i, x> in X) { i -> x * s * s }", "s * s * X")


@pytest.mark.parametrize("text", ["sum(<i, r> in A) sum(<j, a> in r) a * X(j)", "X + Y"])
def test_the_best_stays(text):
    before = program(text)
    assert optimise(before) is before
    assert "as it was" in before.explain("optimised")


def test_gradients():
    whole = gradient(program(BATAX), "X")
    assert str(optimise(whole)) == "sum(<_, r> in A) s * r * r"
    rank_one = optimise(gradient(program(SMMM), "B"))
    assert isinstance(rank_one.node, t.Multiply)
    assert rank_one.node.left == parse("sum(<_, r> in A) r", {"A": M}).node


# Rules one by one


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("(sum(<i, x> in X) x * s) + (sum(<j, y> in X) Y(j) * y)", "sum(<i, x> in X) x * (s + Y(i))"),
        ("sum(<i, x> in X) { i -> x }", "X"),
        ("sum(<i, r> in A) { i -> sum(<j, a> in r) { j -> a } }", "A"),
        ("sum(<k, v> in sum(<i, x> in X) { i -> x * s }) v * Y(k)", "s * (sum(<i, x> in X) x * Y(i))"),
        ("let t = s * s in sum(<i, x> in X) t * x", "s * s * (sum(<i, x> in X) x)"),
        ("sum(<i, x> in X) if s < 1.0 then x * Y(i)", "if s < 1.0 then sum(<i, x> in X) x * Y(i)"),
        ("sum(<i, x> in X) sum(<j, y> in Y) x * y", "(sum(<i, x> in X) x) * (sum(<j, y> in Y) y)"),
        ("X * (sum(<i, y> in Y) y)", "let t = sum(<i, y> in Y) y in t * X"),
        (
            "sum(<i, x> in X) { i -> exp(x * (sum(<j, y> in Y) y)) }",
            "let t = sum(<j, y> in Y) y in sum(<i, x> in X) if x != {} then { i -> exp(x * t) }",
        ),
        ("exp(sum(<j, y> in Y) y) * sin(sum(<i, y> in Y) y)", "let t = sum(<j, y> in Y) y in exp(t) * sin(t)"),
    ],
)
def test_forms(text, expected):
    found = optimise(program(text))
    wanted = program(expected)
    assert loop_cost(found) <= loop_cost(Program(wanted.node, found.inputs))
    assert sum(isinstance(node, t.Sum) for node in t.walk(found.node)) == sum(
        isinstance(node, t.Sum) for node in t.walk(wanted.node)
    ), str(found)


def test_long_products_of_independent_sums():
    names = {f"X{k}": V for k in range(10)}
    loops = " ".join(f"sum(<i{k}, x{k}> in X{k})" for k in range(5))
    text = f"{loops} {' * '.join(f'x{k} * X{k + 5}(i{k})' for k in range(5))}"
    found = optimise(parse(text, names))
    assert loop_cost(found) <= 5 * 10_000 * 3 + 4


@settings(max_examples=30, deadline=None)
@given(programs(depths=(2, 5), functions=SMOOTH), inputs())
def test_factors_outside_of_loops(node, values):
    node = propagate(node)
    assume(node != t.Zero())
    terms = saturate.Terms(INPUTS, saturate.Costs({}, {}))
    after = terms.node(hoisted(terms.term(node)))
    left, right = (interpret(n, values, semirings.real) for n in (node, after))
    assert is_same(left, right, keeps_zeros=False, tolerance=1e-6)


def test_loops_that_are_needed_stay():
    # `exp(0)` is no zero, so a loop over Y would miss entries.
    before = program("sum(<i, x> in X) x * exp(Y(i))")
    assert optimise(before, counts={"X": 1000, "Y": 1}) is before


def test_names_are_not_mixed_up():
    before = program("(sum(<i, x> in X) x * (sum(<i, y> in Y) y * X(i))) * (sum(<i, x> in X) x * Y(i))")
    values = {"X": {0: 2.0, 1: 3.0}, "Y": {1: 5.0, 2: 7.0}}
    found = interpret(optimise(before, counts={"X": 5, "Y": 3}).node, values, semirings.real)
    assert found == pytest.approx(5.0 * 15.0 * 15.0)


def test_keys_without_names_are_not_mixed_up():
    before = program("sum(<_, r> in A) sum(<_, y> in Y) sum(<_, q> in A) r(0) * y * q(0) * exp(q(0))")
    values = {"A": {0: {0: 2.0}, 1: {0: 3.0}}, "Y": {0: 1.0}}
    after = optimise(before)
    expected = 5.0 * (2.0 * np.exp(2.0) + 3.0 * np.exp(3.0))
    assert interpret(after.node, values, semirings.real) == pytest.approx(expected)
    terms = saturate.Terms(before.inputs, saturate.Costs({}, {}))
    again = terms.node(terms.term(before.node))
    assert interpret(again, values, semirings.real) == pytest.approx(expected)


def test_share_knows_names():
    node = parse("sum(<i, x> in X) sum(<j, y> in Y) exp(y * (sum(<k, z> in X) z * x))", {"X": V, "Y": V}).node
    expected = "sum(<i, x> in X) let s = sum(<k, z> in X) z * x in sum(<j, y> in Y) exp(y * s)"
    assert alpha_equal(share(node, {"X": V, "Y": V}), parse(expected, {"X": V, "Y": V}).node)


# Sizes, counts and limits


def test_sizes_of_axes_that_are_the_same():
    before = program("sum(<i, r> in A) sum(<j, a> in r) a * X(j)")
    other = program("sum(<j, x> in X) sum(<i, r> in A) r(j) * x")
    assert loop_cost(other, {"A": (10, 50)}) == loop_cost(other, {"A": (10, 50), "X": (50,)}) < loop_cost(other)
    assert loop_cost(before, counts={"A": 1000}) < loop_cost(before, counts={"A": 2000})
    # The only column of X, and not every row of A.
    assert_becomes(str(before), "sum(<j, x> in X) x * (sum(<i, r> in A) r(j))", {"X": 1, "A": 10**6})


def test_lookups_cost_nothing_in_their_own_loop():
    # For each of ten: the loop, one product, and the place in a dense vector.
    dot = program("sum(<i, x> in X) x * Y(i)")
    assert loop_cost(dot, counts={"X": 10}) == 10 * (1 + 1 + 1)
    # Sixty-three entries are found by search.
    assert loop_cost(dot, counts={"X": 10, "Y": 63}) == 10 * (1 + 1 + 1 + 6)


def test_terms_of_different_order_stay_apart():
    """egglog took one name for another where it was given many."""
    text = (
        "(sum(<i, r> in W) { i -> ((sum(<j, q> in r) (sum(<k, w> in q) w * (X(j) + B(j, i)))) * X) })"
        " + (sum(<i, r> in W) { i -> X }) + (sum(<i, r> in B) { i -> ((sum(<j, b> in r) b) * X) })"
        " + (sum(<i, r> in W) { i -> ((sum(<j, q> in r) (sum(<k, w> in q) w * (sum(<l, y> in W(i, j)) (y * y)))) * X) })"  # noqa: E501
    )
    program = parse(text, {"X": 1, "B": 2, "W": 3})
    rng = np.random.default_rng(0)
    values = {"X": rng.random(3), "B": rng.random((3, 3)), "W": rng.random((3, 3, 3)) * (rng.random((3, 3, 3)) < 0.5)}
    X, B, W = values["X"], values["B"], values["W"]
    factor = np.einsum("ijk,j->i", W, X) + np.einsum("ijk,ji->i", W, B) + (W != 0).any((1, 2)) + B.sum(1)
    factor += np.einsum("ijk,ijl,ijl->i", W, W, W)
    for made in (program, optimise(program)):
        np.testing.assert_allclose(compile(made, output="dense")(**values), np.outer(factor, X))


def test_large_programs_are_left_alone(monkeypatch):
    monkeypatch.setattr(saturate, "MOST_NODES", 10)
    before = program(BATAX)
    assert optimise(before) is before
    assert before.explain("optimised").endswith("# as it was: it has 17 operations, more than 10")


def test_arrays_of_formats_are_left_alone():
    before = parse("sum(<_, i> in (0:3)) { i -> val(i) }", {"val": array("real")})
    assert optimise(before) is before


def test_zero():
    assert optimise(parse("sum(<i, x> in X) {} * x", {"X": V})).node == t.Zero()


def test_wrong_sizes_and_counts():
    with pytest.raises(DomainError, match="no tensor `Z`"):
        optimise(program(BATAX), counts={"Z": 3})
    with pytest.raises(DomainError, match="at least 0"):
        optimise(program(BATAX), counts={"A": -3})
    with pytest.raises(ShapeError, match="1 sizes"):
        optimise(program(BATAX), {"A": (3,)})


def test_compiled(monkeypatch):
    A = sp.random(9, 7, 0.3, format="csr", random_state=0)
    X = np.arange(7.0)
    after = optimise(program(BATAX), {"A": A.shape}, {"A": A.nnz})
    np.testing.assert_allclose(compile(after)(s=2.0, A=A, X=X), 2.0 * (A.T @ (A @ X)))


def test_the_result_does_not_depend_on_the_clock(monkeypatch):
    slow = gradient(program(SMMM), "B")
    wanted = str(optimise(slow))
    seconds = iter(range(0, 10**9, 1000))
    monkeypatch.setattr(time, "perf_counter", lambda: float(next(seconds)))
    saturate.equal_terms.cache_clear()
    assert str(optimise(slow)) == wanted


def test_a_graph_is_dropped_by_the_thread_that_made_it(monkeypatch):
    """What egglog leaves to the collector may be dropped by another thread, which it reports and leaks."""
    reports = []
    monkeypatch.setattr(sys, "unraisablehook", reports.append)
    program = parse("sum(<i, r> in A) sum(<j, a> in r) sum(<k, b> in r) { j -> a * b * X(k) * X(j) }", {"A": 2, "X": 1})
    optimise(parse("sum(<i, x> in X) 2.0 * x", {"X": 1}))  # imports of egglog run the collector
    equal_terms.cache_clear()
    gc.collect()
    gc.disable()
    try:
        thread = threading.Thread(target=lambda: optimise(program, sizes={"A": (100, 100)}, counts={"A": 500}))
        thread.start()
        thread.join()
        assert equal_terms.cache_info().misses == 1
        gc.collect()
    finally:
        gc.enable()
    assert [str(report.exc_value) for report in reports] == []
