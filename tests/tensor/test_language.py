"""SDQLite: printed form, types, meaning, names."""

import numpy as np
import pytest

from derivable.algebra import semirings
from derivable.core.diagnostics import BindingError, TypeMismatchError
from derivable.tensor.language import nodes as t
from derivable.tensor.language.binding import alpha_equal, free_variables, substitute, unique_names
from derivable.tensor.language.check import check
from derivable.tensor.language.interpret import NOTHING, interpret
from derivable.tensor.language.types import INT, REAL, Type, array, tensor

REALS = semirings.get("real")
A, X = t.Var("A"), t.Var("X")
i, j, r, a = (t.Var(name) for name in "ijra")
MATVEC = t.Sum("i", "r", A, t.Singleton(i, t.Sum("j", "a", r, t.Multiply(a, t.Lookup(X, j)))))
TYPES = {"A": tensor(2), "X": tensor(1)}


def nested(dense):
    """A dense array as a nested dictionary of its nonzeros."""
    if np.ndim(dense) == 0:
        return float(dense)
    return {k: nested(part) for k, part in enumerate(dense) if np.any(part)}


def test_printed_form():
    assert str(MATVEC) == "sum(<i, r> in A) { i -> sum(<j, a> in r) a * X(j) }"
    assert str(t.Multiply(t.Add(a, r), t.Multiply(a, r))) == "(a + r) * (a * r)"
    assert str(t.Multiply(t.Number(-2.0), t.Let("x", a, t.Var("x")))) == "-2.0 * (let x = a in x)"
    row = t.Apply("add", (t.Apply("multiply", (i, t.Var("cols"))), j))
    dense = t.Sum("_", "j", t.Range(t.Number(0), t.Var("cols")), t.Singleton(j, t.Lookup(t.Var("M"), row), True))
    assert str(dense) == "sum(<_, j> in (0:cols)) { unique(j) -> M(i * cols + j) }"
    assert str(t.If(t.Apply("equal", (i, j)), t.Apply("exp", (a,)))) == "if i == j then exp(a)"


def test_types():
    assert check(MATVEC, TYPES) == tensor(1)
    assert check(t.Multiply(A, MATVEC), TYPES) == tensor(3)
    assert check(t.Zero(), {}) is None
    assert check(t.Add(t.Zero(), A), TYPES) == tensor(2)
    assert check(t.SubArray(t.Var("idx"), t.Number(0), t.Number(3)), {"idx": array("int")}) == array("int")
    assert str(Type("int", ("dense_int",))) == "{ dense_int -> int }"
    assert str(tensor(2)) == "tensor 2"
    assert check(t.Apply("cast", (i,)), {"i": INT}) == REAL


@pytest.mark.parametrize(
    ("node", "message"),
    [
        (t.Lookup(t.Lookup(X, t.Number(0)), t.Number(0)), "real is looked up in"),
        (t.Add(A, X), "tensor 2 and tensor 1 do not add up"),
        (t.Multiply(A, t.Number(2)), "`2` is int"),
        (t.Sum("i", "a", X, t.Sum("j", "b", a, a)), "runs over the entries of a tensor, and this is real"),
        (t.If(t.Number(1.0), X), "a condition is bool"),
        (t.Apply("exp", (X,)), "takes scalars, and `X` is tensor 1"),
        (t.Apply("less", (t.Number(1), t.Number(1.0))), "`less` of int and real"),
        (t.Lookup(X, t.Number(0.5)), "a key is int"),
    ],
)
def test_what_does_not_fit_is_an_error(node, message):
    with pytest.raises(TypeMismatchError, match=message):
        check(node, TYPES)


def test_unknown_names_are_errors():
    with pytest.raises(BindingError, match="nothing is called `Y`"):
        check(t.Var("Y"), TYPES)


def test_meaning():
    rng = np.random.default_rng(0)
    matrix = rng.normal(size=(4, 3)) * (rng.random((4, 3)) < 0.6)
    vector = rng.normal(size=3)
    found = interpret(MATVEC, {"A": nested(matrix), "X": nested(vector)}, REALS)
    expected = matrix @ vector
    assert {k: pytest.approx(expected[k]) for k in found} == found
    assert set(found) == set(np.flatnonzero(matrix.any(axis=1)))
    outer = interpret(t.Multiply(X, A), {"A": nested(matrix), "X": nested(vector)}, REALS)
    row, column = np.argwhere(matrix)[0].tolist()
    np.testing.assert_allclose(outer[2][row][column], vector[2] * matrix[row, column])


def test_meaning_in_other_semirings():
    graph = {0: {1: 2.0, 2: 7.0}, 1: {2: 3.0}}
    two = t.Sum("i", "r", A, t.Singleton(i, t.Sum("j", "a", r, t.Multiply(a, t.Lookup(A, j)))))
    assert interpret(two, {"A": graph}, semirings.get("min_plus")) == {0: {2: 5.0}}


def test_where_there_is_no_value_there_is_no_entry():
    diagonal = t.Sum("i", "r", A, t.Sum("j", "a", r, t.If(t.Apply("equal", (i, j)), t.Singleton(i, a))))
    given = {"A": {0: {0: 0.0, 1: 2.0}, 1: {0: 5.0}}}
    assert interpret(diagonal, given, REALS) is NOTHING
    assert interpret(diagonal, given, REALS, is_guarded=True) == {0: 0.0}
    assert interpret(t.Lookup(X, t.Number(7)), {"X": {}}, REALS) is NOTHING


def test_arrays_of_storage_formats():
    text = t.Sum(
        "p",
        "j",
        t.SubArray(t.Var("idx"), t.Number(1), t.Number(3)),
        t.Singleton(j, t.Lookup(t.Var("val"), t.Var("p")), True),
    )
    assert interpret(text, {"idx": [4, 5, 9], "val": [1.0, 2.0, 3.0]}, REALS) == {5: 2.0, 9: 3.0}


def test_names():
    assert free_variables(MATVEC) == {"A", "X"}
    twice = t.Add(MATVEC, MATVEC)
    unique = unique_names(twice)
    assert isinstance(unique, t.Add)
    assert str(unique.right) == "sum(<i_1, r_1> in A) { i_1 -> sum(<j_1, a_1> in r_1) a_1 * X(j_1) }"
    assert alpha_equal(twice, unique)
    assert not alpha_equal(MATVEC, t.Sum("i", "r", A, t.Singleton(i, t.Sum("j", "a", r, t.Lookup(X, j)))))
    # A name that is put in is not caught by what is bound there.
    put = substitute(t.Sum("i", "a", X, t.Multiply(a, t.Var("s"))), {"s": a})
    assert alpha_equal(put, t.Sum("i", "b", X, t.Multiply(t.Var("b"), a)))
    assert substitute(t.Let("s", a, t.Var("s")), {"s": r}) == t.Let("s", a, t.Var("s"))
