"""Calls with inputs like those before give what a kernel gives that never ran."""

import copy
import gc
import inspect
import weakref

import numpy as np
import pytest
import scipy.sparse as sp

from derivable.core.diagnostics import DerivableError, DomainError, LayoutError, ShapeError, UnsupportedError
from derivable.tensor.call.compilation import compile
from derivable.tensor.call.factored import Factored
from derivable.tensor.derivative.derivative import gradient
from derivable.tensor.formats.held import hold
from derivable.tensor.language.syntax import parse
from derivable.tensor.language.types import INT, REAL, tensor
from derivable.tensor.values.values import coordinates

M, V = tensor(2), tensor(1)
TEXTS = {
    "columns": "sum(<_, r> in A) s * r",
    "rows": "sum(<i, r> in A) { i -> s * (sum(<j, a> in r) a * X(j)) }",
    "number": "sum(<i, r> in A) sum(<j, a> in r) s * a * X(j)",
    "sparse": "sum(<i, r> in A) sum(<j, a> in r) sum(<k, b> in r) { j -> { k -> s * a * b } }",
    "entries": "sum(<i, r> in A) { i -> sum(<j, a> in r) { j -> s * a } }",
    "chosen": "sum(<i, r> in A) { i -> sum(<j, a> in r) { j -> if a < s then a } }",
    "factors": "(sum(<_, r> in A) s * r) * (sum(<i, r> in A) { i -> sum(<j, a> in r) a * X(j) })",
    "sized": "sum(<_, i> in (0:X_size_0)) { i -> s }",
    "a row": "s * A(n)",
}


def program(case):
    return parse(TEXTS[case], {"A": M, "X": V, "s": REAL, "n": INT, "X_size_0": INT})


def matrix(seed=0, shape=(6, 5)):
    return sp.csr_array(sp.random_array(shape, density=0.4, rng=seed))


def same(found, expected):
    assert type(found) is type(expected)
    if isinstance(found, Factored):
        found, expected = found.to_numpy(), expected.to_numpy()
    if hasattr(found, "indices") and hasattr(found, "values"):
        np.testing.assert_array_equal(found.indices, expected.indices)
        found, expected = found.values, expected.values
    if sp.issparse(found):
        found, expected = found.toarray(), expected.toarray()
    np.testing.assert_array_equal(found, expected)
    assert np.asarray(found).dtype == np.asarray(expected).dtype


def in_place(given, change):
    change(given["A"])
    return given


def with_values(A, values):
    return sp.csr_array((values, A.indices, A.indptr), A.shape)


def unaligned(values):
    found = np.zeros(values.nbytes + 1, np.uint8)[1:].view(values.dtype)
    found[:] = values
    return found


def read_only(values):
    found = values.copy()
    found.setflags(write=False)
    return found


# What changes from one call to the next.
CHANGES = {
    "nothing": lambda given: given,
    "values": lambda given: in_place(given, lambda A: A.data.__imul__(2.0)),
    "a place": lambda given: in_place(given, lambda A: A.indices.__setitem__(-1, 4)),
    "other values": lambda given: given | {"A": with_values(given["A"], given["A"].data + 1.0)},
    "read-only values": lambda given: given | {"A": with_values(given["A"], read_only(given["A"].data)),
                                               "X": read_only(given["X"])},
    "unaligned": lambda given: given | {"A": with_values(given["A"], unaligned(given["A"].data)),
                                        "X": unaligned(given["X"])},
    "other arrays": lambda given: given | {"A": matrix(3)},
    "another shape": lambda given: given | {"A": matrix(4, (8, 7)), "X": np.arange(7.0)},
    "wider": lambda given: given | {"A": sp.csr_array((given["A"].data, given["A"].indices, given["A"].indptr), (6, 9)),
                                    "X": np.arange(9.0)},
    "columns": lambda given: given | {"A": given["A"].tocsc()},
    "float32": lambda given: given | {"A": given["A"].astype(np.float32), "X": given["X"].astype(np.float32)},
    "strided": lambda given: given | {"X": np.arange(10.0)[::2]},
    "integers": lambda given: given | {"X": np.arange(5)},
    "a list": lambda given: given | {"X": [1.0, 2.0, 3.0, 4.0, 5.0]},
    "another number": lambda given: given | {"s": 0.25},
    "an integer": lambda given: given | {"s": 3},
    "of NumPy": lambda given: given | {"s": np.float32(0.1)},
    "another row": lambda given: given | {"n": 3},
    "another size": lambda given: given | {"X_size_0": 9},
    "held": lambda given: given | {"A": hold(given["A"], "csr", 2)},
    "held apart": lambda given: given | {"A": hold(coordinates(given["A"]), "csr", 2)},
    "hashed": lambda given: given | {"A": hold(given["A"], "hashed", 2)},
}  # fmt: skip


# Matrices are the results that have every form; of others the quick suite has the form that they have by themselves.
FORMS = [
    (case, output)
    if output is None or case in ("sparse", "entries", "chosen")
    else pytest.param(case, output, marks=pytest.mark.slow)
    for output in (None, "dense", "csr")
    for case in TEXTS
]


@pytest.mark.parametrize(("case", "output"), FORMS)
def test_changes(case, output):
    if output == "csr" and program(case).type.order != 2:
        output = "coordinates" if program(case).type.order else None
    kernel, anew = (compile(program(case), output=output, passes={"saturation": False}) for _ in range(2))
    rng = np.random.default_rng(1)
    given = {"A": matrix(), "X": np.arange(1.0, 6), "s": 0.5, "n": 2}
    # Everything after everything, twice each, so that what was found for one is there when another one comes.
    for name in [*CHANGES, *rng.permutation(list(CHANGES))]:
        now = CHANGES[name](dict(given))
        now["X"] = now["X"] if len(now["X"]) == now["A"].shape[1] else np.arange(float(now["A"].shape[1]))
        for _ in range(2):
            anew.forget()
            anew._pattern = None
            same(kernel(**now), anew(**now))


def test_changes_of_what_is_compiled(monkeypatch):
    """As `test_changes`, where compiled code is entered without a look at types."""
    kernel = compile(program("rows"), {"A": "csr"})
    rng = np.random.default_rng(2)
    for name in rng.permutation(2 * [name for name in CHANGES if name not in ("a place", "float32", "hashed")]):
        given = {"A": matrix(), "X": np.arange(1.0, 6), "s": 0.5}
        now = {key: value for key, value in CHANGES[name](given).items() if key in given}
        A = now["A"].toarray() if sp.issparse(now["A"]) else given["A"].toarray()
        expected = float(now["s"]) * (A @ np.asarray(now["X"]))
        for _ in range(2):
            np.testing.assert_allclose(kernel(**now), expected)
    for wrong in ({"A": now["A"], "s": 0.5, "Y": now["X"]}, {"A": now["A"], "s": 0.5}):
        with pytest.raises(DomainError):
            kernel(**wrong)


def test_an_input_that_is_gone_is_no_input_that_is_missing():
    kernel, held = compile(program("columns")), hold(coordinates(matrix()), "csr", 2)
    kernel(A=held, s=0.5)
    del held
    with pytest.raises(DomainError, match="no input `B`"):
        kernel(B=1.0, s=0.5)


def test_calls_are_cached():
    A = matrix()
    for case, text in TEXTS.items():
        kernel = compile(program(case), {"A": "csr"}, output=None)
        kernel(A=A, X=np.ones(5), s=0.5, n=2)
        # A condition on reals has no pattern to keep.
        assert (kernel.__call__.__name__ != "cached") == ("if a <" in text), case


def test_names_are_looked_at_again():
    kernel = compile(program("columns"))
    A = matrix()
    kernel(A=A, s=0.5)
    for wrong in ({"A": A}, {"A": A, "s": 0.5, "Y": 1.0}, {"A": A, "s": "x"}, {"A": A, "Y": 0.5}):
        with pytest.raises(DomainError):
            kernel(**wrong)
    with pytest.raises(ShapeError):
        compile(program("rows"))(A=A, s=0.5, X=np.ones(4))


def test_a_pattern_changed_in_place_is_noticed():
    A = matrix()
    kernel = compile(program("sparse"), {"A": "csr"})
    kernel(A=A, s=1.0)
    columns = [sorted(set(range(5)) - set(A.indices[a:b].tolist())) for a, b in zip(A.indptr, A.indptr[1:])]
    row = next(row for row, free in enumerate(columns) if free and A.indptr[row + 1] - A.indptr[row] == 1)
    A.indices[A.indptr[row]] = columns[row][0]
    np.testing.assert_allclose(kernel(A=A, s=1.0).to_numpy(), (A.T @ A).toarray())


def test_what_is_held_cannot_be_changed():
    held = hold(coordinates(matrix()), "csr", 2)
    for part in held.structure:
        with pytest.raises(ValueError, match="read-only"):
            part[0] = 1


@pytest.mark.parametrize("case", ["columns", "rows", "sparse", "entries", "factors"])
@pytest.mark.parametrize("output", ["dense", "coordinates"])
def test_out(case, output):
    kernel = compile(program(case), {"A": "csr"}, output=output, passes={"saturation": False})
    given = {"A": matrix(), "X": np.ones(5), "s": 0.5}
    expected = kernel(**given)
    if case == "factors" and output == "coordinates":
        with pytest.raises(UnsupportedError):
            kernel(**given, out=np.zeros(1))
        return
    shape = expected.shape if output == "dense" else expected.values.shape
    for _ in range(3):
        out = np.full(shape, 7.0)
        found = kernel(**given, out=out)
        same(found, expected)
        assert (found if output == "dense" else found.values) is out
    for wrong in (np.zeros((*shape, 1)), np.zeros(shape, np.float32), np.zeros(shape)[..., ::-1], [0.0]):
        with pytest.raises((ShapeError, LayoutError)):
            kernel(**given, out=wrong)
    out = np.zeros(shape)
    out.setflags(write=False)
    with pytest.raises(LayoutError):
        kernel(**given, out=out)


def test_out_of_a_number_and_as_an_input():
    with pytest.raises(ShapeError):
        compile(program("number"))(A=matrix(), X=np.ones(5), s=0.5, out=np.zeros(1))
    named = compile(parse("out * 2", {"out": V}))
    for _ in range(2):
        np.testing.assert_array_equal(named(out=np.arange(3.0)), [0, 2, 4])


@pytest.mark.parametrize("place", [5, -1, 1 << 30])
def test_indices_that_are_not_there(place):
    A = matrix()
    A.has_canonical_format  # noqa: B018, SciPy keeps the answer
    A.indices[3] = place
    kernel = compile(program("columns"), {"A": "csr"})
    with pytest.raises(LayoutError, match=r"index .* of entry 3 of `A` is outside axis 1 of size 5"):
        kernel(A=A, s=1.0)
    A = matrix()
    A.indptr[1] = 40
    with pytest.raises(DerivableError):
        kernel(A=A, s=1.0)


@pytest.mark.parametrize("of", ["csr", "csc", "dcsr", "csf"])
def test_parts_one_after_the_other_are_one_loop(of):
    A = matrix(shape=(40, 30))
    for case, expected in (("columns", A.sum(0) * 0.5), ("number", A.sum() * 0.5)):
        kernel = compile(program(case), {"A": of})
        given = {"A": A, "X": np.ones(30), "s": 0.5}
        np.testing.assert_allclose(kernel(**given), expected)
        assert kernel.explain("loops", **given).count("for ") == (2 if of == "csc" else 1)
        apart = compile(program(case), {"A": of}, passes={"joining": False})
        np.testing.assert_array_equal(apart(**given), kernel(**given))
        assert apart.explain("loops", **given).count("for ") == 2
    empty = sp.csr_array((4, 3))
    np.testing.assert_array_equal(compile(program("columns"), {"A": of})(A=empty, s=1.0), np.zeros(3))


@pytest.mark.parametrize("name", ["type", "len", "lambda", "_c0", "_x1", "_others", "out", "A_n0", "pass"])
def test_inputs_of_any_name(name):
    """What a cached call, which has inputs as parameters, may call something itself."""
    kernel = compile(parse(f"sum(<i, a> in {name}) {{ i -> a * other }}", {name: V, "other": REAL}))
    for factor, values in ((2.0, np.arange(1.0, 5)), (3.0, np.arange(2.0, 6)), (3.0, np.arange(7.0))):
        for _ in range(2):
            np.testing.assert_array_equal(kernel(**{name: values, "other": factor}), factor * values)
    for wrong in ({name: values}, {"other": 2.0}, {name: values, "other": 2.0, "more": 1.0}):
        with pytest.raises(DomainError):
            kernel(**wrong)


def test_factors_need_their_inputs_again():
    kernel, A = compile(program("factors"), {"A": "csr"}, passes={"saturation": False}), matrix()
    kernel(A=A, X=np.ones(5), s=0.5)
    for wrong in ({"A": A, "X": np.ones(5)}, {"A": A, "X": np.ones(5), "t": 0.5}):
        with pytest.raises(DomainError):
            kernel(**wrong)


@pytest.mark.parametrize("output", [None, "dense"])
def test_factors_of_the_size_of_an_input_are_cached(output):
    """A derivative that takes nothing of its variable but how long it is; a variable of another length is no such."""
    smmm = parse("sum(<i, r> in A) sum(<k, a> in r) sum(<j, b> in B(k)) a * b", {"A": 2, "B": 2})
    kernel, A = compile(gradient(smmm, "B"), output=output), matrix()
    for width in (4, 4, 3, 3):
        found = kernel(A=A, B=np.ones((5, width)))
        np.testing.assert_allclose(np.asarray(found), np.repeat(A.toarray().sum(0)[:, None], width, 1))
        assert kernel.__call__.__name__ == "cached"


def test_calls_have_a_signature():
    kernel = compile(program("columns"))
    for _ in range(2):
        parameters = inspect.signature(kernel).parameters
        assert {name: of.kind.name for name, of in parameters.items()} == {
            "out": "KEYWORD_ONLY",
            "values": "VAR_KEYWORD",
        }
        kernel(A=matrix(), s=0.5)
    assert "semiring" in inspect.signature(type(kernel)).parameters


def test_a_kernel_goes_with_its_last_reference_and_is_copied_without_its_calls():
    kernel, A = compile(program("columns"), {"A": "csr"}), matrix()
    for _ in range(2):
        expected = kernel(A=A, s=0.5)
    copied, known = copy.deepcopy(kernel), weakref.ref(kernel)
    gc.disable()
    try:
        del kernel
        assert known() is None
    finally:
        gc.enable()
    for given in (A, matrix(3)):
        np.testing.assert_allclose(copied(A=given, s=0.5), given.sum(0) * 0.5)
    np.testing.assert_array_equal(copied(A=A, s=0.5), expected)


def test_a_program_without_inputs():
    kernel = compile(parse("{ 0 -> 2.0 } + { 2 -> 1.0 }", {}), shape=(3,))
    for _ in range(3):
        np.testing.assert_array_equal(kernel(), [2, 0, 1])
    with pytest.raises(DomainError, match="no input `x`"):
        kernel(x=1.0)
