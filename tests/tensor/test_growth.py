"""How the loops of programs with names grow: twice the rows, twice the steps."""

import itertools
import re

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import strategies as st

import benchmark_modules
from derivable.algebra import semirings
from derivable.core.diagnostics import DomainError
from derivable.kernel.interpret import _Run
from derivable.tensor.call.compilation import compile
from derivable.tensor.derivative.derivative import gradient, jvp, vjp
from derivable.tensor.formats.held import hold
from derivable.tensor.language.interpret import interpret
from derivable.tensor.language.syntax import parse
from derivable.tensor.language.types import INT, tensor
from derivable.tensor.lower import emit
from derivable.tensor.values.values import Coordinates, coordinates
from drawn import examples
from tensor.random_programs import SIZE, cases, dense_of, is_outside
from tensor.test_kernels import MATRICES, VECTORS

tensor_steps = benchmark_modules.load("tensor_steps")

M, V, T = tensor(2), tensor(1), tensor(3)
ATTENTION = """
sum(<i, r> in G)
  let e = sum(<j, g> in r) { j -> g * exp(sum(<k, q> in Q(i)) q * K(j, k)) } in
  let total = sum(<_, v> in e) v in
  { i -> sum(<j, v> in e) { j -> v / total } }
"""
COLUMNS = "let d = sum(<i, r> in A) r in "
DIAGONAL = COLUMNS + "let D = sum(<j, x> in d) { j, j -> x } in sum(<i, r> in B) { i -> sum(<k, b> in r) b * D(k) }"
TF_IDF, SMMM = tensor_steps.TF_IDF, tensor_steps.SMMM
LOSS = "sum(<i, r> in A) log(1.0 + exp(sum(<j, a> in r) a * X(j)))"
NESTED = COLUMNS + "let e = sum(<j, x> in d) { j -> x * X(j) } in sum(<i, r> in B) { i -> sum(<k, b> in r) b * e(k) }"
IN_SUM = "sum(<i, r> in A) let d = sum(<j, a> in r) B(j) in { i -> sum(<j, a> in r) a * d(j) }"
TWICE = (
    COLUMNS
    + """
(sum(<i, r> in B) { i -> sum(<k, b> in r) b * d(k) }) + (sum(<i, r> in A) { i -> sum(<k, b> in r) d(k) })
"""
)
SHIFTED = COLUMNS + "sum(<i, r> in B) { i -> sum(<k, b> in r) b * d(k + 1) }"
AT_A_MASK = """
let P = sum(<i, q> in Q) { i -> sum(<j, k> in K) { j -> sum(<c, x> in q) x * k(c) } } in
sum(<i, r> in A) { i -> sum(<j, a> in r) { j -> a * P(i, j) } }
"""
UNNAMED = "sum(<i, r> in B) { i -> sum(<k, b> in r) b * (sum(<_, s> in A) s)(k) }"
SYMMETRIC = COLUMNS + "sum(<i, r> in A) { i -> sum(<j, a> in r) { j -> a / sqrt(d(i) * d(j)) } }"
MTTKRP = "sum(<i, s> in T) { i -> sum(<j, r> in s) sum(<k, v> in r) sum(<c, q> in Q(j)) { c -> v * q * K(k, c) } }"
CP = "sum(<i, s> in T) sum(<j, r> in s) sum(<k, v> in r) let e = v - (sum(<c, q> in Q(i)) q * K(j, c)) in e * e"
SDDMM = "sum(<i, r> in G) { i -> sum(<j, g> in r) { j -> g * (sum(<k, q> in Q(i)) q * K(j, k)) } }"
KHATRI_RAO = "sum(<i, r> in A) { i -> sum(<j, a> in r) sum(<k, b> in B(j)) { k -> a * b * G(j, k) } }"
# Ranks of pages, hubs and authorities, words of texts, and a factorisation machine.
SHARES = """
let d = sum(<i, r> in A) { i -> sum(<_, a> in r) a } in
let x = sum(<i, r> in A) sum(<j, a> in r) { j -> 0.85 * a / d(i) * X(i) } in
sum(<i, r> in A) sum(<j, a> in r) { j -> 0.85 * a / d(i) * x(i) }
"""
HUBS = """
let a = sum(<i, r> in A) sum(<j, w> in r) { j -> w * X(i) } in
let n = sqrt(sum(<_, x> in a) x * x) in
let h = sum(<i, r> in A) { i -> sum(<j, w> in r) w * a(j) / n } in
let m = sqrt(sum(<_, x> in h) x * x) in
sum(<i, x> in h) { i -> x / m }
"""
BM25 = """
let df = sum(<i, r> in A) { i -> sum(<_, a> in r) 1.0 } in
let dl = sum(<i, r> in A) r in
let mean = (sum(<_, l> in dl) l) / 20.0 in
sum(<i, r> in A) { i -> sum(<j, a> in r) {
  j -> log((50.5 - df(i)) / (df(i) + 0.5)) * a * 2.2 / (a + 1.2 * (0.25 + 0.75 * dl(j) / mean)) } }
"""
MACHINE = """
sum(<i, r> in A)
  let s = sum(<j, a> in r) sum(<k, q> in Q(j)) { k -> a * q } in
  let s2 = sum(<j, a> in r) sum(<k, q> in Q(j)) { k -> a * a * q * q } in
  { i -> 0.5 * (sum(<k, x> in s) x * x - s2(k)) + (sum(<j, a> in r) a * X(j)) }
"""
SMOOTH = """
let d = sum(<i, r> in A) { i -> sum(<_, a> in r) a } in let c = sum(<i, r> in A) r in
sum(<i, r> in A) sum(<j, a> in r) let e = X(i) / sqrt(d(i)) - X(j) / sqrt(c(j)) in a * e * e
"""
PROGRAMS = {
    "a diagonal": (DIAGONAL, None),
    "TF-IDF": (TF_IDF, None),
    "SMMM by A": (SMMM, lambda p: gradient(p, "A", pattern="own")),
    "SMMM by B": (SMMM, lambda p: gradient(p, "B", pattern="own")),
    "a loss": (LOSS, lambda p: gradient(p, "X")),
    "a loss by its matrix": (LOSS, lambda p: gradient(p, "A", pattern="own")),
    "attention": (ATTENTION, None),
    "attention by queries": (ATTENTION, lambda p: vjp(p, "Q")),
    "attention by keys": (ATTENTION, lambda p: vjp(p, "K")),
    "attention by the graph": (ATTENTION, lambda p: vjp(p, "G", pattern="own")),
    "attention along the graph": (ATTENTION, lambda p: jvp(p, "G", pattern="own")),
    "a name of a name": (NESTED, None),
    "a name of a name by A": (NESTED, lambda p: vjp(p, "A", pattern="own")),
    "a name of a name by X": (NESTED, lambda p: vjp(p, "X")),
    "a diagonal by A": (DIAGONAL, lambda p: vjp(p, "A", pattern="own")),
    "a diagonal by B": (DIAGONAL, lambda p: vjp(p, "B", pattern="own")),
    "a diagonal along A": (DIAGONAL, lambda p: jvp(p, "A", pattern="own")),
    "TF-IDF by A": (TF_IDF, lambda p: vjp(p, "A", pattern="own")),
    "in a sum": (IN_SUM, None),
    "in a sum by A": (IN_SUM, lambda p: vjp(p, "A", pattern="own")),
    "at two places": (TWICE, None),
    "without a name": (UNNAMED, None),
    "without a name by A": (UNNAMED, lambda p: vjp(p, "A", pattern="own")),
    "at computed keys": (SHIFTED, None),
    "a dense product at a mask": (AT_A_MASK, None),
    "divided by sums": (SYMMETRIC, None),
    "divided by sums by A": (SYMMETRIC, lambda p: vjp(p, "A", pattern="own")),
    "ranks of pages": (SHARES, None),
    "ranks of pages by X": (SHARES, lambda p: vjp(p, "X")),
    "hubs and authorities": (HUBS, None),
    "BM25": (BM25, None),
    "BM25 by A": (BM25, lambda p: vjp(p, "A", pattern="own")),
    "a factorisation machine": (MACHINE, None),
    "a smooth function by X": (SMOOTH, lambda p: gradient(p, "X")),
}  # fmt: skip
# Those that look up in coordinates, as all sparse inputs come so.
IN_COORDINATES = {
    "MTTKRP by Q": (MTTKRP, lambda p: vjp(p, "Q")),
    "MTTKRP by T": (MTTKRP, lambda p: vjp(p, "T", pattern="own")),
    "MTTKRP by K": (MTTKRP, lambda p: vjp(p, "K")),
    "a CP step": (CP, lambda p: gradient(p, "Q")),
    "SDDMM by Q": (SDDMM, lambda p: vjp(p, "Q")),
    "SDDMM by G": (SDDMM, lambda p: vjp(p, "G", pattern="own")),
    "Khatri-Rao": (KHATRI_RAO, None),
}  # fmt: skip


# Those that look a row or an entry up by a key that loops bind.
ROWS = "sum(<i, r> in A) { i -> sum(<k, a> in r) sum(<j, b> in B(k)) { j -> a * b } }"
TRIANGLES = "sum(<i, r> in A) sum(<j, a> in r) sum(<k, b> in A(j)) a * b * A(k, i)"
OF_A_ROW = "sum(<i, r> in A) let s = B(i) in sum(<j, a> in r) a * s(j)"
SEARCHED = {
    "rows": (ROWS, None),
    "entries of a row": (OF_A_ROW, None),
    "triangles": (TRIANGLES, None),
    "triangles by A": (TRIANGLES, lambda p: gradient(p, "A", pattern="own")),
    "rows by B": (ROWS, lambda p: vjp(p, "B", pattern="own")),
}
STORED = {
    "SciPy's CSC": lambda m: m.tocsc(),
    "SciPy's COO": lambda m: m.tocoo(),
    "coordinates": coordinates,
    "CSC that is held": lambda m: hold(m.tocsc(), None, 2),
    "hashed": lambda m: hold(m, "hashed", 2),
    "PyTorch's CSC": lambda m: torch_csc(m),
}


def torch_csc(m):
    torch = pytest.importorskip("torch")
    by_column = m.tocsc()
    parts = (torch.from_numpy(x) for x in (by_column.indptr, by_column.indices, by_column.data))
    return torch.sparse_csc_tensor(*parts, size=m.shape)


class _Counting:
    """A kernel that is interpreted, and whose statements are counted."""

    steps = 0

    def __init__(self, kernel):
        self.kernel = kernel

    def __call__(self, *arguments):
        run = _Run(self.kernel, arguments)
        step = run.statement

        def counted(statement):
            type(self).steps += 1
            step(statement)

        run.statement = counted
        found = tuple(x.item() for x in run.run())
        return found[0] if len(found) == 1 else found


def values(size, names, seed=0):
    """Matrices of four entries in a row, at places that are spread evenly, and matrices of three columns."""
    rng = np.random.default_rng(seed)

    def matrix():
        places = np.concatenate([rng.permutation(size)[:4] for _ in range(size)])
        entries = rng.uniform(0.5, 1.5, 4 * size)
        return sp.csr_array((entries, (np.repeat(np.arange(size), 4), places)), (size, size))

    def cube():
        i, j = np.repeat(np.arange(size), 4), rng.integers(0, size, 4 * size)
        return Coordinates.of(
            (size,) * 3, [i, j, rng.permutation(np.repeat(np.arange(size), 4))], rng.uniform(0.5, 1.5, 4 * size)
        )

    made = {name: matrix() for name in ("A", "B", "G")}
    made |= {"adjoint": matrix(), "X": rng.normal(size=size), "V": rng.normal(size=size)}
    made |= {"Q": rng.normal(size=(size, 3)), "K": rng.normal(size=(size, 3)), "A_size_0": size}
    made |= {"A_dot": made["A"], "G_dot": made["G"], "T": cube()}
    return {name: made[name] for name in names}


def program_of(name):
    text, derivative = (PROGRAMS | IN_COORDINATES | SEARCHED)[name]
    types = {"A": M, "B": M, "G": M, "Q": M, "K": M, "X": V, "A_size_0": INT, "T": T}
    program = parse(text, {given: of for given, of in types.items() if re.search(rf"\b{given}\b", text)})
    return program if derivative is None else derivative(program)


def kernel_of(program, size, **options):
    """The kernel, and inputs for it."""
    given = values(size, program.inputs)
    order = program.type.order
    if "adjoint" in given and program.inputs["adjoint"].order == 1:
        given["adjoint"] = np.ones(size)
    return compile(program, output="coordinates" if order > 1 else None, **options), given


@pytest.mark.parametrize("name", PROGRAMS)
def test_twice_the_rows_take_about_twice_the_steps(name, monkeypatch):
    monkeypatch.setattr(emit, "compile_kernel", _Counting)
    program, counted = program_of(name), []
    for size in (20, 40):
        kernel, given = kernel_of(program, size)
        _Counting.steps = 0
        kernel(**given)
        counted.append(_Counting.steps)
    assert counted[1] < 2.6 * counted[0], counted


@pytest.mark.parametrize(
    "name", [n if k < 2 else pytest.param(n, marks=pytest.mark.slow) for k, n in enumerate(IN_COORDINATES)]
)
def test_twice_the_rows_of_coordinates(name, monkeypatch):
    monkeypatch.setattr(emit, "compile_kernel", _Counting)
    program, counted = program_of(name), []
    for size in (16, 32):
        kernel, given = kernel_of(program, size)
        if "T" in given and "adjoint" in given:
            given["adjoint"] = sp.csr_array(np.random.default_rng(1).normal(size=(size, 3)))
        given = {name: coordinates(value) if sp.issparse(value) else value for name, value in given.items()}
        _Counting.steps = 0
        found = kernel(**given).to_numpy() if program.type.order else kernel(**given)
        counted.append(_Counting.steps)
        if size == 16:
            meant = {name: coordinates(value).to("dict") for name, value in given.items()}
            expected = interpret(program.node, meant, semirings.get("real"), is_guarded=program.is_guarded)
            np.testing.assert_allclose(found, dense(expected, np.shape(found)), rtol=1e-9, atol=1e-12)
    assert counted[1] < 2.6 * counted[0], counted


QUICK = [("rows", "SciPy's CSC"), ("entries of a row", "SciPy's COO"), ("entries of a row", "hashed")]


@pytest.mark.parametrize(
    ("name", "stored"),
    [
        each if each in QUICK else pytest.param(*each, marks=pytest.mark.slow)
        for each in itertools.product(SEARCHED, STORED)
        # The derivative of triangles takes half a minute to be counted.
        if each[0] != "triangles by A" or each[1] == "SciPy's CSC"
    ],
)
def test_rows_that_storage_does_not_lead_to_are_not_searched_each_time(name, stored, monkeypatch):
    monkeypatch.setattr(emit, "compile_kernel", _Counting)
    program, counted = program_of(name), []
    for size in (16, 32):
        kernel, given = kernel_of(program, size)
        as_it_comes = {name: STORED[stored](value) if sp.issparse(value) else value for name, value in given.items()}
        _Counting.steps = 0
        found = np.asarray(kernel(**as_it_comes).to_numpy() if program.type.order else kernel(**as_it_comes))
        counted.append(_Counting.steps)
        if size == 16:
            meant = {name: coordinates(value).to("dict") for name, value in given.items()}
            expected = interpret(program.node, meant, semirings.get("real"), is_guarded=program.is_guarded)
            np.testing.assert_allclose(found, dense(expected, np.shape(found)), rtol=1e-9, atol=1e-12)
    assert counted[1] < 2.6 * counted[0], counted


def test_a_row_with_most_entries_is_looked_up_by_bisection(monkeypatch):
    """In coordinates the entries of a row follow each other."""
    monkeypatch.setattr(emit, "compile_kernel", _Counting)
    program, counted = parse("sum(<j, x> in X) x * B(0, j)", {"X": V, "B": M}), []
    for size in (64, 128):
        i, j = np.zeros(size, int), np.arange(size)
        b = Coordinates.of((size, size), [i, j], np.arange(1.0, size + 1))
        _Counting.steps = 0
        assert compile(program)(X=np.ones(size), B=b) == size * (size + 1) / 2
        counted.append(_Counting.steps)
    assert counted[1] < 2.6 * counted[0], counted


def test_an_input_that_is_stored_again_is_looked_at_in_each_call():
    """Also where the same object comes with other values."""
    program, size = program_of("rows"), 12
    kernel, given = kernel_of(program, size)
    a, b = given["A"], given["B"].tocsc()
    held = hold(b, None, 2)
    for factor in (1.0, 2.0, 3.0):
        b.data *= factor
        for each in (b, held):
            np.testing.assert_allclose(kernel(A=a, B=each).to_numpy(), (a @ b).toarray(), rtol=1e-12)
    moved = sp.csc_array((b.data, (b.indices + 1) % size, b.indptr), b.shape)
    moved.has_sorted_indices = False
    np.testing.assert_allclose(kernel(A=a, B=moved).to_numpy(), (a @ moved).toarray(), rtol=1e-12)


def test_what_is_looked_up_outside_of_loops_stays_as_it_is():
    a = values(12, ["A"])["A"].tocsc()
    kernel = compile(parse("sum(<j, a> in A(3)) a * X(j)", {"A": M, "X": V}))
    x = np.arange(12.0)
    for _ in range(2):
        np.testing.assert_allclose(kernel(A=a, X=x), (a @ x)[3])
    assert not kernel.searched


def test_what_is_looked_up_again_runs_once_less_than_without_a_workspace(monkeypatch):
    """The loops that are compared are those that run."""
    monkeypatch.setattr(emit, "compile_kernel", _Counting)
    program, counted = program_of("a name of a name"), []
    for is_on in (True, False):
        kernel, given = kernel_of(program, 30, passes={"workspaces": is_on})
        _Counting.steps = 0
        kernel(**given)
        counted.append(_Counting.steps)
    assert 10 * counted[0] < counted[1], counted


def make_all(monkeypatch):
    """All tensors with names are made once, as if that always took fewer steps."""
    build, counts = emit._built, {}

    def counted(program, of, spec, made, is_alone):
        built = build(program, of, spec, made, is_alone)
        counts[id(built)] = len(made), built
        return built

    monkeypatch.setattr(emit, "_built", counted)
    monkeypatch.setattr(emit, "_steps", lambda built, _: -counts[id(built)][0])


@pytest.mark.parametrize("makes_all", [False, True])
@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_mean_what_the_interpreter_says(name, makes_all, monkeypatch):
    if makes_all:
        make_all(monkeypatch)
    program = program_of(name)
    kernel, given = kernel_of(program, 8)
    of_inputs = {name: value if np.isscalar(value) else coordinates(value).to("dict") for name, value in given.items()}
    expected = interpret(program.node, of_inputs, semirings.get("real"), is_guarded=program.is_guarded)
    found = kernel(**given)
    found = found.to_numpy() if hasattr(found, "to_numpy") else found
    size = found.shape if np.ndim(found) else ()
    np.testing.assert_allclose(found, dense(expected, size), rtol=1e-9, atol=1e-12)


def dense(value, shape):
    made = np.zeros(shape)
    if not shape:
        return value
    for key, inner in value.items():
        made[key] = dense(inner, shape[1:])
    return made


@examples(8, 60, data=st.data())
def test_random_programs_in_which_all_tensors_with_names_are_made_once(data):
    program, given, meant, formats = data.draw(cases(VECTORS, MATRICES))
    order = program.type.order
    expected = interpret(program.node, meant, semirings.get("real"))
    kernel = compile(program, formats, output="coordinates" if order else None, shape=(SIZE,) * order or None)
    with pytest.MonkeyPatch.context() as monkeypatch:
        make_all(monkeypatch)
        if is_outside(expected):
            with pytest.raises(DomainError):
                kernel(**given)
            return
        try:
            found = kernel(**given)
        except DomainError:
            # What a zero that is stored leads to is stored too, as a zero, and that is outside.
            assert is_outside(interpret(program.node, meant, semirings.get("real"), is_guarded=True))
            return
    found = found.to_numpy() if order else found
    np.testing.assert_allclose(found, dense_of(expected, order), rtol=1e-6, atol=1e-9)
