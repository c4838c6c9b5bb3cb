"""Programs of SDQLite: what they take, what they give, what they look like."""

import copy
import pickle

import numpy as np
import pytest
import scipy.sparse

from derivable.core.diagnostics import BindingError, DomainError
from derivable.tensor import nodes as t
from derivable.tensor.program import Program
from derivable.tensor.syntax import parse
from derivable.tensor.types import REAL, array, tensor

# What small programs say is the same in Python, which need not be compiled for it.
pytestmark = pytest.mark.usefixtures("tier_of_users")

A, X = t.Var("A"), t.Var("X")
MATVEC = t.Sum("i", "r", A, t.Singleton(t.Var("i"), t.Sum("j", "a", t.Var("r"), t.Lookup(X, t.Var("j")))))
INPUTS = {"A": tensor(2), "X": tensor(1)}


def test_a_program_has_a_type_and_never_changes():
    program = Program(MATVEC, INPUTS)
    assert program.type == tensor(1)
    assert Program(t.Zero(), {}).type == REAL
    with pytest.raises(TypeError):
        program.inputs["B"] = REAL
    with pytest.raises(BindingError, match="nothing is called `X`"):
        Program(MATVEC, {"A": tensor(2)})


def test_programs_of_the_same_text_are_equal():
    program = Program(MATVEC, INPUTS)
    assert {program: 1}[Program(MATVEC, INPUTS)] == 1
    assert program != Program(X, INPUTS)
    assert Program(X, {"X": tensor(1)}) != Program(X, {"X": tensor(2)})


def test_physical_programs_run_on_arrays():
    types = {"n": "int", "pos": array("int"), "idx": array("int"), "val": array("real")}
    csr = parse(
        "sum(<_, i> in (0:n)) { unique(i) -> sum(<p, j> in idx(pos(i):pos(i + 1))) { unique(j) -> val(p) } }", types
    )
    given = scipy.sparse.random_array((5, 4), density=0.4, format="csr", rng=np.random.default_rng(0))
    found = csr(n=5, pos=given.indptr, idx=given.indices, val=given.data, shape=(5, 4))
    np.testing.assert_array_equal(found, given.toarray())
    with pytest.raises(DomainError, match="`idx` has values of type float64"):
        csr(n=5, pos=given.indptr, idx=given.indices * 1.0, val=given.data)


def test_results_in_any_form_and_algebra():
    product = parse("sum(<i, r> in A) { i -> sum(<j, a> in r) a * X(j) }", {"A": 2, "X": 1})
    matrix, vector = np.array([[1.0, 2.0], [0.0, 3.0]]), np.array([1.0, 5.0])
    np.testing.assert_allclose(product(A=matrix, X=vector), matrix @ vector)
    assert product(A=scipy.sparse.csr_array(matrix), X=vector, output="dict") == {0: 11.0, 1: 15.0}
    least = product(A=scipy.sparse.csr_array(matrix), X=vector, semiring="min_plus")
    np.testing.assert_allclose(least, [2.0, 8.0])
    assert product(A={0: {1: True}}, X={1: True}, semiring="boolean", output="dict") == {0: True}
    assert parse("{}", {})(semiring="min_plus") == np.inf


def test_programs_are_copied_and_shown():
    program = Program(MATVEC, INPUTS)
    assert pickle.loads(pickle.dumps(program)) == copy.deepcopy(program) == program
    assert repr(Program(X, {"X": tensor(1)})) == "Program('X', {'X': 'tensor 1'})"
    parsed = parse(str(program), INPUTS)
    assert pickle.loads(pickle.dumps(parsed)) == parsed
