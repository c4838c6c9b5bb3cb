"""Kernels of tensor programs against NumPy and the interpreter, for every storage format."""

import math

import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse as sp
import torch
from hypothesis import strategies as st

from derivable.algebra import semirings
from derivable.core.diagnostics import DomainError, LayoutError, ShapeError, UnsupportedError
from derivable.device.cpu.threads import get_num_threads, set_num_threads
from derivable.kernel.interpret import interpret as interpret_kernel
from derivable.tensor.call import call
from derivable.tensor.call.compilation import compile
from derivable.tensor.call.factored import Factored
from derivable.tensor.formats.format import Format, format_of
from derivable.tensor.formats.held import hold
from derivable.tensor.language.interpret import interpret
from derivable.tensor.language.syntax import parse
from derivable.tensor.language.types import INT, tensor
from derivable.tensor.lower import parallel_loops
from derivable.tensor.values.order import distinct
from derivable.tensor.values.values import Coordinates, coordinates
from drawn import examples
from tensor.random_programs import SIZE, cases, dense_of, is_outside

MATRICES = ("dense", "column_major", "coo", "csr", "csc", "dcsr", "csf", "hashed")
VECTORS = ("dense", "coo", "csf", "hashed")
RNG = np.random.default_rng(0)
A, B = (sp.random(*shape, 0.4, format="csr", random_state=k) for k, shape in enumerate([(7, 5), (5, 6)]))
X, Y, Z = RNG.normal(size=5), RNG.normal(size=7), RNG.normal(size=6)
AD, BD = A.toarray(), B.toarray()
M, V = tensor(2), tensor(1)
# text, inputs, meaning
CASES = {
    "product with a vector": ("sum(<i, r> in A) { i -> sum(<j, a> in r) a * X(j) }", AD @ X),
    "of columns": ("sum(<i, r> in A) sum(<j, a> in r) { j -> a * a }", (AD**2).sum(0)),
    "rows twice": ("sum(<i, r> in A) sum(<j, a> in r) sum(<k, b> in r) { j -> { k -> a * b } }", AD.T @ AD),
    "rows found": ("sum(<i, r> in A) { i -> sum(<j, a> in r) sum(<k, b> in B(j)) { k -> a * b } }", AD @ BD),
    "entries found": ("sum(<i, y> in Y) sum(<j, x> in X) { i -> { j -> y * x * A(i)(j) } }", Y[:, None] * AD * X),
    "sums of tensors": ("sum(<i, r> in A + A) { i -> sum(<j, a> in r) a * X(j) }", 2 * AD @ X),
    "collected first": ("sum(<i, a> in X + X) { i -> a * a }", 4 * X**2),
    "a scalar": ("sum(<i, r> in A) sum(<j, a> in r) a * X(j)", (AD @ X).sum()),
    "functions": ("sum(<i, r> in A) { i -> exp(sum(<j, a> in r) a) }", np.where(AD.any(1), np.exp(AD.sum(1)), 0)),
    "trace": ("sum(<i, r> in S) r(i)", np.trace(AD.T @ AD)),
    "outer product": ("X * Z", np.outer(X, Z)),
}
VALUES = {"A": A, "B": B, "S": (A.T @ A).tocsr(), "X": X, "Y": Y, "Z": Z}
TYPES = {"A": M, "B": M, "S": M, "X": V, "Y": V, "Z": V}


def run(text, formats, output=None, **options):
    used = {name: TYPES[name] for name in TYPES if name in text.replace("exp", "")}
    kernel = compile(parse(text, used), {name: formats[name] for name in used}, output=output, **options)
    found = kernel(**{name: VALUES[name] for name in used})
    return found.to_numpy() if hasattr(found, "to_numpy") else found


def slow(*values):
    return pytest.param(*values, marks=pytest.mark.slow)


# In the quick suite, dense results of what is stored by places, by rows and in a table; `test_threads` has others.
OUTPUTS = [(matrix, "coordinates") for matrix in MATRICES]
OUTPUTS += [(matrix, "dense") if matrix in ("dense", "csr", "hashed") else slow(matrix, "dense") for matrix in MATRICES]


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize(("matrix", "output"), OUTPUTS)
def test_every_format(case, matrix, output):
    text, expected = CASES[case]
    # Every vector beside one matrix, and one beside every matrix.
    for vector in VECTORS if matrix == "csr" else VECTORS[1:2]:
        formats = {"A": matrix, "B": matrix, "S": matrix, "X": vector, "Y": vector, "Z": vector}
        np.testing.assert_allclose(run(text, formats, output if np.ndim(expected) else None), expected)


def test_compiled():
    for case in ("rows twice", "rows found", "a scalar"):
        text, expected = CASES[case]
        formats = {"A": "csr", "B": "hashed", "X": "coo"}
        np.testing.assert_allclose(run(text, formats, "coordinates" if np.ndim(expected) else None), expected)


def test_tensors_of_any_order():
    dense = RNG.normal(size=(3, 4, 5)) * (RNG.random((3, 4, 5)) < 0.3)
    text = "sum(<i, m> in T) sum(<j, r> in m) sum(<k, a> in r) { j -> { i -> a * X(k) } }"
    for of in ("dense", "coo", "csf", "hashed"):
        program = parse(text, {"T": tensor(3), "X": V})
        found = compile(program, {"T": of}, output="numpy")(T=coordinates(dense), X=X)
        np.testing.assert_allclose(found, np.einsum("ijk,k->ji", dense, X))


# A user's own formats

BITMAP = Format(
    "bitmap",
    1,
    "sum(<_, i> in (0:n0)) if held(i) then { unique(i) -> val(i) }",
    {"held": "bool", "val": "real"},
    lambda entries, zero: {
        "held": np.isin(np.arange(entries.shape[0]), entries.indices[0]),
        "val": np.bincount(entries.indices[0], entries.values, entries.shape[0]),
    },
)


def blocked(entries, zero):
    """Blocks of 2 x 2 in compressed rows."""
    rows, columns = (-(-size // 2) for size in entries.shape)
    whole = np.zeros((2 * rows, 2 * columns))
    whole[tuple(entries.indices)] = entries.values
    blocks = whole.reshape(rows, 2, columns, 2).swapaxes(1, 2)
    held = blocks.any((2, 3))
    return {
        "pos": np.append(0, held.sum(1).cumsum()),
        "idx": np.nonzero(held)[1],
        "val": blocks[held].reshape(-1),
        "rows": rows,
    }


BLOCKS = Format(
    "bsr",
    2,
    "sum(<_, b> in (0:rows)) sum(<_, r> in (0:2)) if b * 2 + r < n0 then { unique(b * 2 + r) -> "
    "sum(<q, c> in idx(pos(b):pos(b + 1))) sum(<_, s> in (0:2)) if c * 2 + s < n1 then "
    "{ unique(c * 2 + s) -> val((q * 2 + r) * 2 + s) } }",
    {"pos": "int", "idx": "sorted", "val": "real"},
    blocked,
    ("rows",),
)


@pytest.mark.parametrize("case", [case for case in CASES if case != "functions"])
def test_formats_of_users(case):
    text, expected = CASES[case]
    formats = {"A": BLOCKS, "B": BLOCKS, "S": BLOCKS, "X": BITMAP, "Y": BITMAP, "Z": BITMAP}
    for output in ("dense", "coordinates"):
        np.testing.assert_allclose(run(text, formats, output if np.ndim(expected) else None), expected)


# Workspaces

FIXED = {"saturation": False}
A1, X1 = np.pad(AD, ((0, 0), (0, 1))), np.pad(X, (0, 1))
SHIFTED = A1 + np.roll(A1, 1, axis=1)
# Of tensors that come in parts and are needed whole: text, inputs, meaning.
WHOLE = {
    "keys outside of the axis": ("sum(<i, a> in X + { 7 -> 1.0 } + { 0 - 3 -> 2.0 }) a * a", (X**2).sum() + 5),
    "computed keys in a loop": (
        "sum(<i, r> in A) { i -> sum(<j, a> in r + (sum(<j, a> in r) { j + 1 -> a })) a * a }",
        (SHIFTED**2).sum(1),
    ),
    "named outside of a loop": (
        "sum(<i, r> in A) { i -> let v = r + (sum(<j, a> in r) { j + 1 -> a }) in "
        "sum(<_, y> in Y) sum(<j, a> in v) a * a * y }",
        (SHIFTED**2).sum(1) * Y.sum(),
    ),
    "named, and looked up": (
        "sum(<i, r> in A) { i -> let v = r + r in (sum(<j, x> in X) x * v(j) * sin(v(j))) + (sum(<j, a> in v) a * a) }",
        (X * 2 * AD * np.sin(2 * AD)).sum(1) + 4 * (AD**2).sum(1),
    ),
    "looked up in what is collected": (
        "sum(<j, x> in X) { j -> x * (sum(<i, _> in X + X) { i -> 1.5 })(j) }",
        1.5 * X,
    ),
    "rows in a loop": (
        "sum(<k, z> in Z) { k -> sum(<j, r> in (sum(<i, r> in A) sum(<j, a> in r) { j -> { i -> z * a } })) "
        "sum(<_, a> in r) sum(<_, b> in r) a * b * sin(a) }",
        [(z * AD).sum(0) @ (z * AD * np.sin(z * AD)).sum(0) for z in Z],
    ),
    "rows of computed keys": (
        "sum(<j, r> in (sum(<i, r> in A) sum(<j, a> in r) { i + j -> { j -> a } }) + A) "
        "{ j -> exp(sum(<_, a> in r) a) }",
        None,
    ),
    "of a row and of inputs": (
        "sum(<i, r> in A) { i -> sum(<j, a> in X + X) sum(<k, b> in r * 2.0 + X) a * a * b * b }",
        4 * (X**2).sum() * ((2 * AD + X) ** 2).sum(1) * AD.any(1),
    ),
}


@pytest.mark.parametrize("case", WHOLE)
@pytest.mark.parametrize("matrix", ["csr", "coo", "hashed"])
def test_parts_are_collected_where_they_are_needed_whole(case, matrix):
    text, expected = WHOLE[case]
    formats = {"A": matrix, "X": "csf", "Y": "coo", "Z": "dense"}
    if expected is None:
        program = parse(text, {"A": M})
        meant = interpret(program.node, {"A": coordinates(A).to_dict()}, semirings.get("real"))
        expected = [meant.get(k, 0.0) for k in range(11)]
    shape = (len(expected),) if np.ndim(expected) else None
    np.testing.assert_allclose(run(text, formats, shape=shape, passes=FIXED), expected)


def test_workspaces_get_larger():
    text = "sum(<i, x> in X) { i -> sum(<k, a> in (sum(<j, y> in X) { (i + j) % m -> x * y }) + X) a * a }"
    kernel = compile(parse(text, {"X": V, "m": "int"}), passes=FIXED)
    x = np.random.default_rng(1).normal(size=1500)
    for m in (7, 1999):
        found = kernel(X=x, m=m)
        for i in (0, 3, 1499):
            held = np.bincount((i + np.arange(1500)) % m, x[i] * x, minlength=1999)
            held[:1500] += x
            np.testing.assert_allclose(found[i], (held**2).sum())


@pytest.mark.parametrize("format", ["coo", "csf", "hashed"])
def test_axes_that_no_array_has(format):
    size, places = 10**10, np.array([3, 5 * 10**9, 10**10 - 1])
    x = Coordinates.of((size,), [places], [2.0, 3.0, 4.0])
    program = parse("sum(<i, a> in X + Y) a * a * X(i)", {"X": V, "Y": V})
    kernel = compile(program, {"X": format, "Y": format}, passes=FIXED)
    assert kernel(X=x, Y=x) == 4 * (8 + 27 + 64)
    matrix = Coordinates.of((size, 10**5), [places, [7, 7, 99999]], [1.0, 2.0, 3.0])
    found = compile(parse("sum(<i, r> in A) sum(<j, a> in r) { j -> { i -> a } }", {"A": M}), {"A": format})(A=matrix)
    assert (found.shape, found.to_dict()) == ((10**5, size), {7: {3: 1.0, 5 * 10**9: 2.0}, 99999: {10**10 - 1: 3.0}})


# Threads


@pytest.fixture
def three_threads(monkeypatch):
    for name, value in {"LEAST": 1, "LEAST_DEEP": 1, "LEAST_SHARE": 0}.items():
        monkeypatch.setattr(parallel_loops, name, value)
    before = get_num_threads()
    set_num_threads(3)
    yield
    set_num_threads(before)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("matrix", ["csr", slow("csc"), "coo", slow("csf")])
@pytest.mark.usefixtures("three_threads")
def test_threads(case, matrix):
    text, expected = CASES[case]
    formats = {"A": matrix, "B": matrix, "S": matrix, "X": "coo", "Y": "dense", "Z": "hashed"}
    used = {name: TYPES[name] for name in TYPES if name in text.replace("exp", "")}
    given_ = {name: VALUES[name] for name in used}
    for output in ("dense", "coordinates") if np.ndim(expected) else (None,):
        kernel = compile(parse(text, used), {name: formats[name] for name in used}, output=output, passes=FIXED)
        # The third call is as the second.
        found = [kernel(**given_) for _ in range(3)]
        found = [x.to_numpy() if hasattr(x, "to_numpy") else x for x in found]
        np.testing.assert_allclose(found[0], expected)
        assert np.array_equal(found[0], found[1])
        assert np.array_equal(found[0], found[2])


@pytest.mark.usefixtures("three_threads")
def test_threads_add_in_any_semiring_and_name_what_is_outside():
    text = "sum(<i, r> in A) sum(<j, a> in r) { j -> a * Y(i) }"
    for name in ("min_plus", "max_product", "log"):
        record = semirings.get(name)
        sparse = coordinates(np.where(AD == 0, record.zero, np.abs(AD)), semiring=name)
        program = parse(text, {"A": M, "Y": V})
        kernel = compile(program, {"A": "csr", "Y": "dense"}, semiring=name, passes=FIXED)
        meant = {"A": sparse.to_dict(), "Y": dict(enumerate(np.abs(Y)))}
        expected = interpret(program.node, meant, record)
        found = kernel(A=sparse, Y=np.abs(Y))
        np.testing.assert_allclose(found, [expected.get(j, record.zero) for j in range(5)])
    shifted = compile(parse("sum(<i, a> in X) { i + 1 -> a }", {"X": V}), shape=(5,))
    with pytest.raises(DomainError, match="an entry at index 5, outside the shape"):
        shifted(X=X)


@pytest.mark.usefixtures("three_threads")
def test_pieces_have_as_many_entries():
    """Rows of very different lengths, and empty ones at both ends, are cut by their entries."""
    counts = np.array([0, 0, 90, 1, 1, 1, 1, 1, 1, 90, 2, 2, 90, 0, 0])
    rows = np.repeat(np.arange(15), counts)
    columns = np.concatenate([np.arange(count) for count in counts])
    matrix = sp.csr_array((RNG.normal(size=len(rows)), (rows, columns)), shape=(15, 90))
    kernel = compile(parse("sum(<i, r> in A) { i -> sum(<j, a> in r) exp(a) + 1 }", {"A": M}), passes=FIXED)
    exponentials = np.bincount(rows, np.exp(matrix.data) + 1, 15)
    np.testing.assert_allclose(kernel(A=matrix), exponentials)
    (built,) = kernel._built.values()
    taken = [_rows(built, matrix, piece) for piece in range(3)]
    assert np.concatenate(taken).tolist() == np.flatnonzero(counts).tolist()
    assert [counts[part].sum() for part in taken] == [93, 93, 94]


def _rows(built, matrix, piece):
    out = np.zeros(15)
    given_ = {"A_pos": matrix.indptr, "A_idx": matrix.indices, "A_val": matrix.data, "A_n0": 15, "A_n1": 90}
    given_ |= {"out_n0": 15, "out": out, "piece": piece, "pieces": 3, "first_addition": 0}
    interpret_kernel(built.pieces.kernel, *(given_[p.name] for p in built.pieces.kernel.parameters))
    return np.flatnonzero(out).tolist()


FILLED = {
    "sum(<i, r> in A) { i -> sum(<j, a> in r) a * X(j) }": True,
    "sum(<i, r> in A) { i -> sum(<j, a> in r) { j -> a } }": False,
    "sum(<i, a> in Y) { i -> sum(<j, b> in X) { j -> a * b } }": True,
    "sum(<i, a> in Y) sum(<j, b> in X) { j -> { i -> a * b } }": False,
    "sum(<i, a> in Y) { i -> if a < 0.5 then a }": False,
    "sum(<i, a> in Y) { i -> a } + sum(<i, a> in Y) { i -> a * a }": False,
    "sum(<_, i> in (1:Y_size_0)) { i -> Y(i) }": False,
    "sum(<_, i> in (0:Y_size_0)) { i -> Y(i) * Y(i) }": True,
    "sum(<_, i> in (0:Y_size_0)) { i -> Y(i) + 1 }": False,
    "sum(<i, a> in Y) sum(<j, b> in X) { i -> a * b }": False,
}


@pytest.mark.parametrize("text", FILLED)
@pytest.mark.parametrize("name", ["real", "min_plus"])
def test_what_is_written_whole_is_neither_cleared_nor_read(text, name):
    """Results are written to arrays in which something stands."""
    record = semirings.get(name)
    program = parse(text, {"A": M, "X": V, "Y": V, "Y_size_0": INT})
    kernel = compile(program, {"A": "csr"}, output="dense", semiring=name, passes=FIXED)
    sparse = coordinates(np.where(AD == 0, record.zero, AD), semiring=name)
    given = {"A": sparse, "X": X, "Y": np.arange(len(AD)) - 1.5}
    meant = {"A": sparse.to_dict(), "X": dict(enumerate(X)), "Y": dict(enumerate(given["Y"])), "Y_size_0": len(AD)}
    found = kernel(**given)
    expected = coordinates(
        interpret(program.node, meant, record), order=program.type.order, shape=found.shape, semiring=record
    ).to_numpy(record.zero)
    for _ in range(2):
        np.testing.assert_allclose(kernel(**given, out=np.full(found.shape, np.nan)), expected)
    (built,) = kernel._built.values()
    assert built.is_filled == FILLED[text]
    assert ("old" in str(built.kernel)) != FILLED[text]


def test_a_size_that_is_given_is_that_of_its_tensor():
    program = parse("sum(<_, i> in (0:X_size_0)) { i -> X(i) }", {"X": V, "X_size_0": INT})
    kernel = compile(program, passes=FIXED)
    np.testing.assert_array_equal(kernel(X=X, X_size_0=len(X)), X)
    with pytest.raises(ShapeError, match=r"`X_size_0` is 4, and axis 0 of `X` has 5 indices"):
        kernel(X=X, X_size_0=4)


def test_a_kernel_for_short_axes_is_not_taken_for_long_ones():
    kernel = compile(parse("sum(<i, a> in X + X) { i -> a * a }", {"X": V}), {"X": "coo"}, output="coordinates")
    is_long = []
    for size in (8, 1 << 23, 8):
        found = kernel(X=Coordinates((size,), np.array([[1, 5]]), np.array([2.0, 3.0])))
        assert found.to_dict() == {1: 16.0, 5: 36.0}
        is_long.append([any(array.name.startswith("tree") for array in each.arrays) for each in kernel.kernels()])
    assert is_long[0] == [False] * 3
    # Workspaces with a place for each index of a long axis would be large: trees are used.
    assert is_long[1] == is_long[2] == [False] * 3 + [True] * 3


# Semirings

GRAPH = {0: {1: 2.0, 2: 7.0}, 1: {2: 3.0}, 2: {0: 1.0}}
SQUARE = "sum(<i, r> in A) { i -> sum(<j, a> in r) sum(<k, b> in A(j)) { k -> a * b } }"


@pytest.mark.parametrize("name", ["min_plus", "max_product", "real", "log"])
@pytest.mark.parametrize("output", ["dense", "coordinates"])
def test_semirings(name, output):
    record = semirings.get(name)
    program = parse(SQUARE, {"A": M})
    graph = {i: {j: x / 8 for j, x in row.items()} for i, row in GRAPH.items()}
    kernel = compile(program, {"A": "csr"}, output=output, semiring=name)
    found = kernel(A=coordinates(graph, shape=(3, 3), semiring=name))
    expected = interpret(program.node, {"A": graph}, record)
    dense = found if output == "dense" else found.to_numpy(record.zero)
    for i in range(3):
        for j in range(3):
            assert dense[i, j] == pytest.approx(expected.get(i, {}).get(j, record.zero))


KERNELS = {
    "BATAx": ("sum(<i, r> in A) sum(<j, a> in r) sum(<k, b> in r) { j -> s * a * b * X(k) }", 1),
    "SMMM": ("sum(<i, r> in A) sum(<j, a> in r) sum(<k, b> in B(j)) a * b", 0),
    "SMVM": ("sum(<i, r> in A) { i -> sum(<j, a> in r) a * X(j) }", 1),
    "VVA": ("X + Y", 1),
    "VVD": ("sum(<i, x> in X) x * Y(i)", 0),
    "VSM": ("s * X", 1),
    "needed whole": ("sum(<i, r> in A + B) { i -> sum(<j, a> in r) a * a }", 1),
}


@pytest.mark.parametrize("name", ["boolean", "godel", "max_plus", "min_plus", "max_product", "addmultprob", "log"])
def test_every_kernel_in_every_semiring(name):
    record, rng = semirings.get(name), np.random.default_rng(3)
    orders = {"A": 2, "B": 2, "X": 1, "Y": 1}
    held = {key: rng.integers(1, 6, (4,) * order) / 8 for key, order in orders.items()}
    if record.carrier == "bool":
        held = {key: values > 0 for key, values in held.items()}
    entries = {
        key: Coordinates.of(
            (4,) * orders[key], found := np.argwhere(rng.random(values.shape) < 0.5).T, values[tuple(found)], name
        )
        for key, values in held.items()
    }
    for first, (case, (text, order)) in enumerate(KERNELS.items()):
        program = parse(text, {key: of for key, of in {**orders, "s": 0}.items() if key in text.replace("sum", "")})
        # All formats in turn, as kernels and semirings go on.
        for k in ((first + len(name)) % 8, (first + len(name) + 5) % 8):
            formats = {"A": MATRICES[k], "B": MATRICES[k - 3], "X": VECTORS[k % 4], "Y": VECTORS[(k + k // 4) % 4]}
            formats = {key: formats[key] for key in program.inputs if key != "s"}
            given_, meant = {"s": record.one}, {"s": record.one}
            for key, of in formats.items():
                given_[key] = entries[key]
                meant[key] = entries[key].to_dict()
                if of in ("dense", "column_major"):
                    meant[key] = coordinates(
                        entries[key].to_numpy(record.zero), semiring=name, keep_zeros=True
                    ).to_dict()
            inputs = {key: given_[key] for key in program.inputs}
            found = compile(program, formats, semiring=name, output="dense" if order else None, passes=FIXED)(**inputs)
            expected = interpret(program.node, meant, record)
            if order:
                expected = [expected.get(i, record.zero) for i in range(4)]
            np.testing.assert_allclose(
                np.asarray(found, float), np.asarray(expected, float), err_msg=f"{case} {formats}"
            )


# Patterns


@pytest.mark.parametrize("size", [1, 5, 1000, 70_000, 1 << 40, 1 << 62])
@pytest.mark.parametrize("count", [0, 3, 50, 200, 100_000])
def test_distinct_places(size, count):
    places = np.concatenate([RNG.integers(0, size, count), np.zeros(count // 2, int)])
    expected, which = np.unique(places, return_inverse=True)
    (found,), groups = distinct([places])
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(np.arange(len(places)) if groups is None else groups, which)
    high, low = np.divmod(places, 1 << 31)
    expected, which = np.unique(np.stack([high - (1 << 40), low]), axis=1, return_inverse=True)
    found, groups = distinct([high - (1 << 40), low])
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(np.arange(len(places)) if groups is None else groups, which.reshape(-1))


@pytest.mark.parametrize("shape", [(7,), (3, 4), (3, 0), (2, 5, 9)])
def test_numbered_places_have_indices(shape):
    expected = np.indices(shape).reshape(len(shape), -1)
    np.testing.assert_array_equal(call._unravelled(np.arange(expected.shape[1]), shape), expected)


def test_the_pattern_of_a_result_is_found_anew_when_entries_move():
    kernel = compile(parse(SQUARE, {"A": M}), {"A": "csr"})
    for seed in (1, 1, 2, 3):
        square = sp.random(8, 8, 0.3, format="csr", random_state=seed)
        square.data *= seed
        np.testing.assert_allclose(kernel(A=square).to_numpy(), (square @ square).toarray())


@pytest.mark.parametrize("bound", ["0.5", "s", "Y(0)", "sum(<j, y> in Y) y"])
def test_the_pattern_of_a_result_follows_values_that_it_depends_on(bound):
    text = f"let limit = {bound} in sum(<i, a> in X) if limit < a then {{ i -> a }}"
    program = parse(text, {"X": V, "Y": V, "s": tensor(0)})
    kernel = compile(program, output="coordinates", passes=FIXED)
    for x in (np.array([1.0, 0.2, 0.7]), np.array([0.1, 0.9, 0.0])):
        np.testing.assert_allclose(kernel(X=x, Y=np.array([0.5]), s=0.5).to_numpy(), np.where(x > 0.5, x, 0))


# Outer products


def test_outer_products_stay_in_their_factors():
    program = parse("(sum(<i, r> in A) r) * Z", {"A": M, "Z": V})
    z = coordinates(np.where(Z > 0, Z, 0))
    for given_, formats in ((Z, {"A": "csr"}), (z, {"A": "csr", "Z": "csf"})):
        found = compile(program, formats)(A=A, Z=given_)
        dense = given_ if given_ is Z else given_.to_numpy()
        expected = np.outer(AD.sum(0), dense)
        assert isinstance(found, Factored)
        assert found.shape == (5, 6)
        np.testing.assert_allclose(found.to_numpy(), expected)
        np.testing.assert_allclose(found.coordinates().to_numpy(), expected)
        places = RNG.integers(0, 5, (2, 20))
        np.testing.assert_allclose(found.entries(places), expected[tuple(places)])
        np.testing.assert_allclose(compile(program, formats, output="dense")(A=A, Z=given_), expected)
    with pytest.raises(LayoutError, match="entry 0 has the index 6 of an axis of 6"):
        found.entries([[0], [6]])
    with pytest.raises(ShapeError, match=r"of a tensor of order 2"):
        found.entries([0, 1])


SPECIAL = [-1.0, 0.0, math.inf, 2.0, -math.inf, math.nan]
SUM = "(sum(<_, r> in A) r)"


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(
    ("text", "left", "right"),
    [
        (f"{SUM} * Z", lambda a, z: a.sum(0), lambda a, z: z),
        (f"Z * {SUM}", lambda a, z: z, lambda a, z: a.sum(0)),
        (f"{SUM} * (sum(<i, r> in A) {{ i -> sum(<_, a> in r) a }})", lambda a, z: a.sum(0), lambda a, z: a.sum(1)),
        (f"{SUM} * (sum(<_, i> in (0:4)) {{ i -> 0.5 }})", lambda a, z: a.sum(0), lambda a, z: np.full(4, 0.5)),
        (f"A * {SUM}", lambda a, z: a, lambda a, z: a.sum(0)),
        (f"(A + A) * {SUM}", lambda a, z: 2 * a, lambda a, z: a.sum(0)),
    ],
)
def test_dense_outer_products_in_later_calls(text, left, right, dtype):
    program = parse(text, {"A": M, "Z": V})
    kernel = compile(program, {"A": "csr"}, output="dense")
    plain = compile(program, {"A": "csr"}, output="dense", passes={"factors": False})
    a, z = np.diag(np.arange(1.0, 7)).astype(dtype), np.array([0, 1, 2, 0, 3, 4], dtype)
    for place, value in ((None, None), *enumerate(SPECIAL), (None, None), *enumerate(reversed(SPECIAL))):
        if place is not None:
            a[place, place], z[5 - place] = value, SPECIAL[place - 1]
        # Zeros are stored, so that the entries stay where they are.
        matrix = sp.csr_array((np.diag(a).copy(), np.arange(6), np.arange(7)), shape=(6, 6))
        given = {"A": matrix, "Z": z} if "Z" in text else {"A": matrix}
        x, y = left(a, z), right(a, z)
        with np.errstate(invalid="ignore"):
            products = np.multiply.outer(x, y)
        expected = np.where(np.logical_or.outer(x == 0, y == 0), 0, products)
        out = np.full(expected.shape, math.nan, dtype)
        found = kernel(**given)
        assert found.dtype == plain(**given).dtype == dtype
        np.testing.assert_allclose(found, expected, rtol=1e-6)
        assert kernel(**given, out=out) is out
        np.testing.assert_array_equal(out, found)


def test_outer_products_of_other_libraries_after_those_of_numpy():
    program = parse(f"{SUM} * Z", {"A": M, "Z": V})
    kernel = compile(program, output="numpy")
    for make in (np.asarray, torch.tensor, jnp.asarray, np.asarray):
        for _ in range(3):
            found = kernel(A=A, Z=make(Z))
            assert isinstance(found, np.ndarray)
            np.testing.assert_allclose(found, np.outer(AD.sum(0), Z), rtol=1e-6)
    for make in (np.asarray, torch.tensor):
        kernel = compile(program)
        for _ in range(2):
            kernel(A=A, Z=make(Z))
        z = torch.tensor(Z, requires_grad=True)
        (found,) = torch.autograd.grad(kernel(A=A, Z=z).sum(), z)
        np.testing.assert_allclose(found, np.full(len(Z), AD.sum()))


# Errors


@pytest.mark.parametrize(
    ("error", "message", "call"),
    [
        (DomainError, "has no input `C`", lambda k: k(A=A, X=X, C=A)),
        (DomainError, "the input `X` is missing", lambda k: k(A=A)),
        (ShapeError, "axis 1 of `A`, of 5", lambda k: k(A=A, X=Y)),
        (ShapeError, "a tensor of order 2 is needed", lambda k: k(A=X, X=X)),
    ],
)
def test_errors(error, message, call):
    kernel = compile(parse(CASES["product with a vector"][0], {"A": M, "X": V}), {"X": "dense"})
    with pytest.raises(error, match=message):
        call(kernel)


def test_errors_of_formats_and_shapes():
    with pytest.raises(ShapeError, match="`csr` is for tensors of order 2, and not 1"):
        format_of("csr", 1)
    with pytest.raises(DomainError, match="did you mean 'csr'"):
        format_of("crs", 2)
    shifted = parse("sum(<i, a> in X) { i + 1 -> a }", {"X": V})
    with pytest.raises(ShapeError, match="nothing says how large axis 0"):
        compile(shifted)(X=X)
    with pytest.raises(DomainError, match="an entry at index 5, outside the shape"):
        compile(shifted, shape=(5,))(X=X)
    np.testing.assert_allclose(compile(shifted, shape=(6,))(X=X), np.append(0, X))
    assert format_of("row_major", 2) is format_of("dense", 2)
    held = hold(A, "csc", 2)
    with pytest.raises(UnsupportedError, match="is held as `csc` and was declared `csr`"):
        compile(parse("A", {"A": M}), {"A": "csr"})(A=held)


# Random programs


@examples(15, 40, data=st.data())
def test_random_programs(data):
    program, given_, meant, formats = data.draw(cases(VECTORS, MATRICES))
    order = program.type.order
    output = data.draw(st.sampled_from(["dense", "coordinates"])) if order else None
    expected = interpret(program.node, meant, semirings.get("real"))
    passes = data.draw(
        st.dictionaries(st.sampled_from(["saturation", "sharing", "sparsity", "destinations"]), st.booleans())
    )
    kernel = compile(program, formats, output=output, shape=(SIZE,) * order if order else None, passes=passes)
    if is_outside(expected):
        with pytest.raises(DomainError):
            kernel(**given_)
        return
    try:
        found = kernel(**given_)
    except DomainError:
        # What a zero that is stored leads to is stored too, as a zero, and that is outside.
        assert is_outside(interpret(program.node, meant, semirings.get("real"), is_guarded=True))
        return
    found = found.to_numpy() if hasattr(found, "to_numpy") else found
    np.testing.assert_allclose(found, dense_of(expected, order), rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize(
    ("text", "row"),
    {
        "sum(<i, _> in Y) { i -> X }": X,
        "sum(<i, _> in Y) { i -> { 1 -> 2.0 } + X }": X + 2 * np.eye(5)[1],
        "sum(<i, _> in Y) let v = X in { i -> v }": X,
        "sum(<i, _> in Y) { i -> A(0) }": AD[0],
    }.items(),
)
@pytest.mark.parametrize("vector", VECTORS)
def test_inputs_below_a_key_without_destinations(text, row, vector):
    types = {name: TYPES[name] for name in "AXY" if name in text}
    formats = dict.fromkeys(types.keys() & {"X"}, vector)
    kernel = compile(parse(text, types), formats, output="numpy", shape=(7, 5), passes={"destinations": False})
    result = kernel(**{name: VALUES[name] for name in types})
    np.testing.assert_allclose(result, np.tile(row, (7, 1)))


@pytest.mark.parametrize("product", ["({} * Y(0)) * a", "(Y(0) * {}) * a", "a * ({} * Y(0))", "{} * a", "a * {}"])
def test_a_product_with_a_zero_of_no_order_has_no_entries(product):
    program = parse(f"sum(<i, a> in X) sum(<j, b> in {product}) b * Y(j)", {"X": 1, "Y": 1})
    off = dict.fromkeys(("saturation", "sharing", "sparsity"), False)
    assert compile(program, passes=off)(X=np.ones(3), Y=np.ones(3)) == 0


def test_keys_around_a_zero_of_no_order_add_nothing():
    program = parse("sum(<i, a> in X) { i -> let x = { i -> a } in {} }", {"X": 1})
    off = dict.fromkeys(("saturation", "sharing", "sparsity"), False)
    assert program.type.order == 0
    assert compile(program, passes=off)(X=np.ones(3)) == 0


def test_a_product_that_is_needed_whole_has_no_entries_where_a_factor_has_none():
    text = "sum(<_, r> in sum(<x, a> in A(2)) { x -> (sum(<_, _> in A(x)) Y) * (a + 0.5) }) Y"
    matrix = coordinates({0: {0: -1.75, 1: -1.25, 2: -1.75}, 2: {0: 1.25, 1: -1.5, 2: -1.75}}, shape=(3, 3))
    vector = np.array([-1.5, 1.75, 0.0])
    # The row 1 is empty.
    found = compile(parse(text, {"A": 2, "Y": 1}), {"A": "coo"})(A=matrix, Y=vector)
    np.testing.assert_array_equal(found, 2 * vector)


def test_results_over_ranges_are_as_long_as_these():
    text = "sum(<_, i> in (0:n + 1)) { i -> sum(<_, j> in (0:4)) { j -> real(i + j) } }"
    for n in (2, 0, 5):
        found = parse(text, {"n": "int"})(n=n, output="numpy")
        np.testing.assert_array_equal(found, np.add.outer(np.arange(n + 1), np.arange(4.0)))
    assert parse("sum(<_, i> in (0:n)) { i -> X(i) }", {"n": "int", "X": 1})(n=3, X=[1.0, 2.0, 3.0]).tolist() == [
        1,
        2,
        3,
    ]


def test_negation_is_not_linear_in_other_semirings():
    # Of the smallest number the negative one, and not the smallest of the negative ones.
    program = parse("sum(<k, v> in sum(<i, r> in A) r) { k -> -v / 2.0 }", {"A": tensor(2)})
    given_ = np.array([[1.0, 2.0], [5.0, 1.0]])
    for switches in ({}, {"saturation": False}):
        kernel = compile(program, semiring="min_plus", passes=switches)
        np.testing.assert_allclose(kernel(A=given_), [-0.5, -0.5])
        np.testing.assert_allclose(compile(program, passes=switches)(A=given_), [-3.0, -1.5])


@pytest.mark.parametrize(
    "text",
    [
        "(sum(<_, x> in X) A + (sum(<v, j> in A) { v -> sum(<i, x> in {}) { i -> x } }) * s)(2)",
        "(sum(<_, x> in X) A + s * (sum(<v, j> in A) { v -> sum(<i, x> in {}) { i -> x } }))(2)",
    ],
)
def test_a_factor_without_a_type_is_zero(text):
    program = parse(text, {"A": M, "X": V, "s": tensor(0)})
    off = {"saturation": False, "sharing": False, "sparsity": False}
    given = {"A": np.arange(9.0).reshape(3, 3), "X": np.array([1.0, 0.0, 2.0]), "s": 2.0}
    np.testing.assert_array_equal(compile(program, output="dense", passes=off)(**given), 2 * given["A"][2])
