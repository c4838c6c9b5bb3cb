"""Formulas: what they mean, how they print, and that lowering keeps the meaning."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import derivable as dv
from circuit.reference import all_assignments, holds
from derivable.circuit.formulas.formula import (
    FALSE,
    TRUE,
    And,
    Formula,
    as_clauses,
    at_least_k,
    at_least_one,
    at_most_k,
    at_most_one,
    conjunction,
    disjunction,
    equivalent,
    exactly_k,
    exactly_one,
    implies,
    names_of,
    to_nnf,
    variables,
)
from derivable.circuit.graph.builder import circuit_from_arrays
from derivable.core.diagnostics import DomainError

VARIABLES = variables("a b c d e")


@st.composite
def formulas(draw, depth: int = 3) -> Formula:
    if depth == 0 or draw(st.integers(0, 5)) == 0:
        return draw(st.sampled_from([*VARIABLES, TRUE, FALSE]))
    parts = [draw(formulas(depth=depth - 1)) for _ in range(draw(st.integers(1, 4)))]
    first, last = parts[0], parts[-1]
    low, high = sorted(draw(st.tuples(st.integers(0, 4), st.integers(0, 4))))
    return draw(
        st.sampled_from(
            [
                ~first,
                first & last,
                first | last,
                first ^ last,
                implies(first, last),
                equivalent(first, last),
                exactly_one(parts),
                at_most_one(parts),
                at_least_one(parts),
                at_least_k(low, parts),
                at_most_k(high, parts),
                exactly_k(low, parts),
                conjunction(parts),
                disjunction(parts),
            ]
        )
    )


def test_operators_by_hand():
    a, b, c, *_ = VARIABLES
    for values in all_assignments(5):
        x, y, z = map(bool, values[:3])
        told = {"a": x, "b": y, "c": z}
        assert (a & ~b | c).evaluate(told) == ((x and not y) or z)
        assert (a ^ b ^ c).evaluate(told) == (x + y + z in (1, 3))
        assert implies(a, b).evaluate(told) == (not x or y)
        assert equivalent(a, b).evaluate(told) == (x == y)
        assert exactly_one(a, b, c).evaluate(told) == (x + y + z == 1)
        assert at_most_one([a, b, c]).evaluate(told) == (x + y + z <= 1)
        assert at_least_one(a, b, c).evaluate(told) == (x + y + z >= 1)
        assert at_least_k(2, a, b, c).evaluate({a: x, b: y, c: z}) == (x + y + z >= 2)
        assert exactly_k(2, a, b, c).evaluate({1: x, 2: y, 3: z}) == (x + y + z == 2)
        assert (True & a | False).evaluate(told) == x
        assert (True ^ a).evaluate(values) == (not x)


def test_nothing_in_groups():
    assert conjunction().evaluate({}) is True
    assert disjunction([]).evaluate({}) is False
    assert exactly_one().evaluate({}) is False
    assert at_most_one().evaluate({}) is True
    assert at_least_k(1).evaluate({}) is False


def test_printing():
    a, b, c, d, _ = VARIABLES
    assert str((a | b) & ~(c ^ d)) == "(a | b) & ~(c ^ d)"
    assert str(a & b & c) == "a & b & c"
    assert str(implies(a, b & c)) == "~a | b & c"
    assert str(exactly_one(a, b | c)) == "count(1, 1; a, b | c)"
    assert str(a & (b ^ c) | d) == "a & (b ^ c) | d"
    assert repr(~a) == "Formula(~a)"
    assert len(repr(conjunction([a] * 1000))) < 250


@settings(max_examples=60, deadline=None)
@given(formulas())
def test_printed_form_reads_back_as_python(formula):
    text = str(formula)
    if "count" in text:
        return
    scope = dict(zip("abcde", VARIABLES)) | {"true": TRUE, "false": FALSE}
    again = eval(text, {}, scope)
    values = all_assignments(5)
    assert (again.evaluate(values) == formula.evaluate(values)).all()


@settings(max_examples=100, deadline=None)
@given(formulas())
def test_nnf_means_the_same(formula):
    dag = to_nnf(formula)
    circuit = circuit_from_arrays(dag.kind, dag.literal, dag.offsets, dag.children, [len(dag.kind) - 1], 5)
    values = all_assignments(5)
    assert (holds(circuit, values)[0] == formula.evaluate(values)).all()


@settings(max_examples=60, deadline=None)
@given(formulas())
def test_clauses_mean_the_same(formula):
    clauses = as_clauses(formula)
    if clauses is None:
        return
    values = all_assignments(5)
    expected = np.ones(len(values), dtype=bool)
    for clause in clauses:
        expected &= np.any([values[:, abs(x) - 1] == (x > 0) for x in clause], axis=0) if clause else False
    assert (expected == formula.evaluate(values)).all()


def test_clauses_of_a_cnf():
    a, b, c, *_ = VARIABLES
    assert as_clauses((a | ~b) & (b | c) & ~a) == [[1, -2], [2, 3], [-1]]
    assert as_clauses(a & (b | True)) == [[1]]
    assert as_clauses(a | (b & c)) is None


def test_count_is_small():
    many = variables(200)
    assert len(to_nnf(exactly_one(many)).kind) < 2000
    assert len(to_nnf(~at_most_k(5, many)).kind) < 8000


def test_deeper_than_the_stack():
    a, b, *_ = VARIABLES
    formula = a
    for _ in range(20_000):
        formula = formula & b | a
    assert formula.evaluate({"a": True, "b": False}) is True
    assert len(to_nnf(formula).kind) == 40_002
    assert str(formula).startswith("(")


def test_truth_table_order():
    a, b, *_ = variables("a b")
    assert (a & ~b).truth_table().tolist() == [False, False, True, False]


def test_variables_of_several_calls():
    a, b = variables("a b")
    c, again = variables("c a")
    (d,) = variables(["d"])
    formula = (d | ~c) & (again ^ b)
    assert names_of(formula) == ("a", "b", "c", "d")
    expected = [(d or not c) and a != b for a, b, c, d in itertools.product([False, True], repeat=4)]
    assert formula.truth_table().tolist() == expected
    assert formula.evaluate({a: True, "b": False, 3: True, d: True}) is True
    assert as_clauses((d | ~c) & b) == [[4, -3], [2]]
    for compiler in ("sdd", "d4"):
        circuit = dv.circuit.compile(formula, compiler)
        assert circuit.names == ("a", "b", "c", "d")
        assert circuit.model_count() == sum(expected)
        assert circuit.probability({d: 0.25, "a": 0.5, "b": 0.5, c: 1.0}) == pytest.approx(0.125)


@pytest.mark.parametrize(
    ("attempt", "words"),
    [
        (lambda a, b: a and b, "truth value"),
        (lambda a, b: not a, "truth value"),
        (lambda a, b: a & 1, "1 is not a formula"),
        (lambda a, b: variables("x x"), "'x' is given twice"),
        (lambda a, b: variables(""), "no variable"),
        (lambda a, b: (a & b).evaluate({"a": True}), "'b' has no value"),
        (lambda a, b: (a & b).evaluate([True]), "the assignment has 1"),
        (lambda a, b: conjunction(variables(30)).truth_table(), "2**30"),
    ],
)
def test_errors(attempt, words):
    a, b, *_ = VARIABLES
    with pytest.raises(DomainError, match=None) as caught:
        attempt(a, b)
    assert words in str(caught.value)


def test_nodes_are_frozen():
    with pytest.raises((AttributeError, TypeError)):
        And(()).operands = ()  # type: ignore[misc]
