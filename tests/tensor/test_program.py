"""Programs of SDQLite: what they take, what they give, what they look like."""

import copy
import itertools
import math
import pickle

import numpy as np
import pytest
import scipy.sparse
import torch

from derivable.algebra.expr.operations import OPERATIONS
from derivable.core.diagnostics import BindingError, DomainError, LayoutError
from derivable.tensor.language import nodes as t
from derivable.tensor.language.program import Program
from derivable.tensor.language.syntax import parse
from derivable.tensor.language.types import REAL, array, tensor, vector
from derivable.tensor.values.values import Coordinates

# What small programs say is the same in Python, which need not be compiled for it.
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


def test_results_of_sparse_matrices_are_sparse():
    double = parse("2 * A", {"A": 2})
    assert isinstance(double(A=np.eye(2)), np.ndarray)
    found = double(A=scipy.sparse.eye_array(3, format="csr"))
    assert isinstance(found, Coordinates)
    assert found.to_dict() == {0: {0: 2.0}, 1: {1: 2.0}, 2: {2: 2.0}}


def test_programs_are_copied_and_shown():
    program = Program(MATVEC, INPUTS)
    assert pickle.loads(pickle.dumps(program)) == copy.deepcopy(program) == program
    assert repr(Program(X, {"X": tensor(1)})) == "Program('X', {'X': 'tensor 1'})"
    parsed = parse(str(program), INPUTS)
    assert pickle.loads(pickle.dumps(parsed)) == parsed


MATRIX, VECTOR = np.array([[0, 1, 2], [3, 0, 0]]), np.array([1.0, 2.0, 3.0])
PRODUCT = "sum(<i, r> in A) { i -> sum(<j, a> in r) a * X(j) }"


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "int64", "int8", "bool"])
@pytest.mark.parametrize("form", ["numpy", "list", "torch", "bsr", "coo", "csc", "csr", "dia", "dok", "lil", "dict"])
def test_inputs_of_every_library_and_type(form, dtype):
    product, values = parse(PRODUCT, {"A": 2, "X": 1}), MATRIX.astype(dtype)
    if hasattr(scipy.sparse, f"{form}_array"):
        if dtype == "float16":
            pytest.skip("scipy has no such matrices")
        given = scipy.sparse.coo_array(values).asformat(form)
    else:
        forms = {"numpy": np.asarray, "list": np.ndarray.tolist, "torch": torch.from_numpy}
        nested = {i: {j: x for j, x in enumerate(row) if x} for i, row in enumerate(values)}
        given = nested if form == "dict" else forms[form](values)
    np.testing.assert_allclose(product(A=given, X=VECTOR), values.astype(float) @ VECTOR)


def test_zeros_are_no_entries_whatever_they_are_stored_in():
    exponentials = parse("sum(<i, x> in X) { i -> exp(x) }", {"X": 1})
    stored = scipy.sparse.coo_array((np.array([0.0, 1.0]), [np.array([0, 1])]), shape=(2,))
    for given in (np.array([0.0, 1.0]), torch.tensor([0.0, 1.0]), [0.0, 1.0], stored, {0: 0.0, 1: 1.0}):
        np.testing.assert_allclose(exponentials(X=given, output="dense"), [0.0, np.e], rtol=1e-6)


def test_values_that_are_no_elements_are_refused():
    product = parse(PRODUCT, {"A": 2, "X": 1})
    with pytest.raises(DomainError, match="are of type complex128"):
        product(A=MATRIX * 1j, X=VECTOR)
    with pytest.raises(DomainError, match=r"2\.0 of `A` is outside 0\.0 to 1\.0"):
        product(A=MATRIX, X=VECTOR / 9, semiring="godel")
    wrong = scipy.sparse.csr_array(MATRIX * 1.0)
    wrong.indices[0] = 77
    with pytest.raises(LayoutError, match="index 77 of entry 0 of `A` is outside axis 1"):
        product(A=wrong, X=VECTOR)


def test_exact_integers():
    product = parse(PRODUCT, {"A": 2, "X": 1})
    assert product(A=MATRIX, X=[1 << 70, 0, 1], semiring="counting").tolist() == [2, 3 << 70]


EDGES = (0.0, 1.0, -1.0, 0.5, 2.0, -2.5, 710.0, -745.0, 1e308, -1e308, 1e-320, math.inf, math.nan)


@pytest.mark.parametrize("operation", [name for name, row in OPERATIONS.items() if row.rule == "float"])
def test_functions_of_all_floats_have_a_value(operation, monkeypatch):
    """Where Python raises errors, compiled code gives infinities and NaN, and so does what runs small inputs."""
    row = OPERATIONS[operation]
    inputs = np.array(list(itertools.product(EDGES, repeat=row.arity))).T
    numbers = [t.Lookup(t.Var(name), t.Var("i")) for name in "XYZ"[: row.arity]]
    body = t.Singleton(t.Var("i"), t.Apply(operation, tuple(numbers)))
    every = t.Sum("_", "i", t.Range(t.Number(0), t.Number(inputs.shape[1])), body)
    program = Program(every, dict.fromkeys("XYZ"[: row.arity], vector))
    with np.errstate(all="ignore"):
        expected = row.meaning(*inputs)
    found = program(**dict(zip("XYZ", inputs)), shape=(inputs.shape[1],))
    np.testing.assert_allclose(found, expected, rtol=1e-12)
