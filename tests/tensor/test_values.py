"""Tensors of NumPy, scipy, torch, `sparse`, dictionaries and files as coordinates, and back."""

import gzip
import io

import jax.numpy as jnp
import numpy as np
import pytest
import scipy.io
import scipy.sparse
import sparse
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from derivable.algebra.semiring import Semiring
from derivable.core.diagnostics import (
    DerivableError,
    DomainError,
    LayoutError,
    ParseError,
    ShapeError,
    UnsupportedError,
)
from derivable.tensor import Function, compile, einsum, hold, parse
from derivable.tensor.values.matrix_market import parse_matrix_market, read_matrix_market
from derivable.tensor.values.values import Coordinates, coordinates, dense, is_dense

DENSE = np.array([[0.0, 1.5, 0.0], [0.0, 0.0, 0.0], [-2.0, 0.0, 3.0], [0.0, 4.0, 0.0]])
SCIPY = ("bsr", "coo", "csc", "csr", "dia", "dok", "lil")


@st.composite
def tensors(draw, orders=(1, 2, 3)):
    shape = draw(st.sampled_from(orders).flatmap(lambda order: st.tuples(*[st.integers(0, 4)] * order)))
    rng = np.random.default_rng(draw(st.integers(0, 2**31)))
    return rng.normal(size=shape) * (rng.random(shape) < draw(st.floats(0, 1)))


def check_form(found: Coordinates) -> None:
    assert found.indices.dtype == np.int64
    assert found.indices.shape == (found.order, found.num_entries)
    paths = list(zip(*found.indices.tolist()))
    assert paths == sorted(set(paths))


@given(tensors())
def test_what_a_dense_array_holds_comes_back(array):
    found = coordinates(array)
    check_form(found)
    assert found.num_entries == np.count_nonzero(array)
    for form in ("numpy", "dict", "scipy_coo", "torch_coo", "sparse", "coordinates"):
        again = coordinates(found.to(form), shape=array.shape)
        check_form(again)
        np.testing.assert_array_equal(again.to_numpy(), array)
        np.testing.assert_array_equal(again.indices, found.indices)


@pytest.mark.parametrize("kind", [scipy.sparse.coo_array, scipy.sparse.coo_matrix])
@pytest.mark.parametrize("format", SCIPY)
def test_scipy(kind, format):
    found = coordinates(kind(DENSE).asformat(format))
    check_form(found)
    np.testing.assert_array_equal(found.to_numpy(), DENSE)
    back = coordinates(DENSE).to(format)
    assert back.format == format
    np.testing.assert_array_equal(back.toarray(), DENSE)


@pytest.mark.parametrize("layout", ["sparse_coo", "sparse_csr", "sparse_csc", "sparse_bsr", "sparse_bsc", "strided"])
def test_torch(layout):
    given = torch.from_numpy(DENSE)
    blocks = {"blocksize": (2, 3)} if "bs" in layout else {}
    found = coordinates(given if layout == "strided" else given.to_sparse(layout=getattr(torch, layout), **blocks))
    check_form(found)
    np.testing.assert_array_equal(found.to_numpy(), DENSE)


def test_to_torch():
    found = coordinates(DENSE)
    assert found.to("torch_csr").layout == torch.sparse_csr
    np.testing.assert_array_equal(found.to("torch_csr").to_dense(), DENSE)
    coo = found.to("torch_coo")
    assert coo.is_coalesced()
    np.testing.assert_array_equal(coo.to_dense(), DENSE)
    np.testing.assert_array_equal(found.to("torch"), DENSE)


def test_torch_entries_that_are_arrays():
    given = torch.sparse_coo_tensor([[2, 0]], [[1.0, 2.0], [3.0, 4.0]], (3, 2))
    np.testing.assert_array_equal(coordinates(given).to_numpy(), [[3, 4], [0, 0], [1, 2]])


def test_torch_with_gradients_is_refused():
    with pytest.raises(DomainError, match="requires gradients"):
        coordinates(torch.ones(3, requires_grad=True))


def test_sparse():
    for format in ("coo", "gcxs", "dok"):
        found = coordinates(sparse.COO.from_numpy(DENSE).asformat(format))
        np.testing.assert_array_equal(found.to_numpy(), DENSE)
    far = np.where(DENSE == 0, np.inf, DENSE)
    found = coordinates(sparse.COO.from_numpy(far, fill_value=np.inf), semiring="min_plus")
    assert found.num_entries == 4
    np.testing.assert_array_equal(found.to_numpy(np.inf), far)
    with pytest.raises(DomainError, match="does not hold is inf"):
        coordinates(sparse.COO.from_numpy(far, fill_value=np.inf))


def test_entries_with_the_same_indices_are_added_up():
    rng = np.random.default_rng(1)
    rows, columns, values = rng.integers(0, 3, 40), rng.integers(0, 4, 40), rng.normal(size=40)
    expected = np.zeros((3, 4))
    np.add.at(expected, (rows, columns), values)
    np.testing.assert_allclose(Coordinates.of((3, 4), [rows, columns], values).to_numpy(), expected)
    np.testing.assert_allclose(
        coordinates(scipy.sparse.coo_array((values, (rows, columns)), (3, 4))).to_numpy(), expected
    )
    least = np.full((3, 4), np.inf)
    np.minimum.at(least, (rows, columns), values)
    np.testing.assert_array_equal(Coordinates.of((3, 4), [rows, columns], values, "min_plus").to_numpy(np.inf), least)


@settings(deadline=None)
@given(st.lists(st.integers(0, 2**62) | st.integers(0, 2**17), max_size=50))
def test_entries_are_sorted(keys):
    found = Coordinates.of((2**62 + 1,), [keys], np.ones(len(keys)))
    values, counts = np.unique(np.array(keys, np.int64), return_counts=True)
    np.testing.assert_array_equal(found.indices[0], values)
    np.testing.assert_array_equal(found.values, counts)


def test_sums_in_semirings_of_other_carriers():
    again = [[0, 1, 0, 0], [1, 0, 1, 1]]
    assert Coordinates.of((2, 2), again, [1, 2, 1 << 70, 5], "counting").to_dict() == {0: {1: 6 + (1 << 70)}, 1: {0: 2}}
    assert Coordinates.of((2, 2), again, [0, 2, 0, 5], "boolean").to_dict() == {0: {1: True}, 1: {0: True}}


def test_axes_whose_product_is_no_machine_integer():
    indices = [[7, 7, 3], [1, 1, 1 << 39], [5, 5, 2]]
    found = Coordinates.of((1 << 40, 1 << 40, 1 << 40), indices, [1.0, 2.0, 4.0])
    assert found.indices.tolist() == [[3, 7], [1 << 39, 1], [2, 5]]
    assert found.values.tolist() == [4.0, 3.0]


def test_zeros_that_are_stored_are_entries():
    given = scipy.sparse.csr_array((np.array([0.0, 1.0]), np.array([0, 1]), np.array([0, 1, 2])), (2, 2))
    assert coordinates(given).num_entries == 2
    assert coordinates(DENSE, keep_zeros=True).num_entries == DENSE.size
    assert coordinates(DENSE, semiring="min_plus").num_entries == DENSE.size


def test_elements_of_semirings():
    assert coordinates(np.array([[0, 3]])).values.dtype == np.float64
    assert coordinates(np.float32([1, 0])).values.dtype == np.float32
    assert coordinates([0, 3], semiring="boolean").values.tolist() == [True]
    assert coordinates([0, 3.0], semiring="counting").values.tolist() == [3]
    with pytest.raises(DomainError, match=r"0\.5 of `A` is no integer"):
        coordinates([0, 0.5], semiring="counting", name="A")
    with pytest.raises(DomainError, match=r"2\.0 of `A` is outside 0"):
        coordinates([0, 2.0], semiring="godel", name="A")
    pair = Semiring("pair", lambda a, b: (a[0] + b[0], a[1]), lambda a, b: a, (0.0, 0.0), (1.0, 0.0))
    with pytest.raises(UnsupportedError, match="a nest of numbers"):
        coordinates([1.0], semiring=pair)


def test_dense():
    assert dense(DENSE) is DENSE
    assert np.shares_memory(dense(torch.from_numpy(DENSE)), DENSE)
    np.testing.assert_array_equal(dense({1: 2.0}, shape=(3,), semiring="min_plus"), [np.inf, 2, np.inf])
    assert is_dense(DENSE)
    assert is_dense([1.0])
    assert not is_dense(scipy.sparse.eye_array(3))
    assert not is_dense({0: 1.0})


def test_dictionaries():
    found = coordinates({2: {1: 5.0}, 0: {7: 1.0}})
    assert found.shape == (3, 8)
    assert found.to_dict() == {0: {7: 1.0}, 2: {1: 5.0}}
    assert coordinates({}, order=2).shape == (0, 0)
    assert coordinates({0: {}}, order=2, shape=(1, 4)).num_entries == 0


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: coordinates({0: 1.0, 1: {2: 3.0}}, name="A"), ShapeError, r"A\[1\] is a dictionary"),
        (lambda: coordinates({0: {2: 3.0}, 1: 1.0}, name="A"), ShapeError, r"A\[1\] is 1\.0"),
        (lambda: coordinates({"x": 1.0}, name="A"), LayoutError, "key 'x' of A is no index"),
        (lambda: coordinates({-1: 1.0}), LayoutError, "key -1 of tensor"),
        (lambda: coordinates({}), ShapeError, "how many axes"),
        (lambda: coordinates({0: "a"}), DomainError, "is 'a', which is no number"),
        (lambda: coordinates({5: 1.0}, shape=(3,)), LayoutError, "index 5 of entry 0 is outside axis 0 of size 3"),
        (lambda: coordinates(DENSE, order=1, name="X"), ShapeError, r"`X` has 2 axes, of shape \[4, 3\]"),
        (lambda: coordinates(DENSE, shape=(4, 4), name="X"), ShapeError, r"the shape \[4, 3\], where \[4, 4\]"),
        (lambda: coordinates(np.array(["a"])), DomainError, "are of type <U1"),
        (lambda: coordinates(object(), name="A"), DomainError, "object of `A` is no tensor"),
        (lambda: coordinates(np.array([1j])), DomainError, "are of type complex128"),
        (lambda: coordinates([[1.0], [1.0, 2.0]]), DomainError, "have different lengths"),
        (lambda: Coordinates.of((3,), [[0.5]], [1.0]), LayoutError, "are float64, no integers"),
        (lambda: Coordinates.of((3,), [[np.nan]], [1.0]), LayoutError, "have a NaN"),
        (lambda: Coordinates.of((3,), [[0, 1]], [1.0]), ShapeError, r"are \[1, 2\]"),
        (lambda: Coordinates.of((3, 3), [[0], [-1]], [1.0]), LayoutError, "index -1 of entry 0 is outside axis 1"),
        (lambda: coordinates(np.ones((2, 2, 2))).to("scipy_csr"), UnsupportedError, "holds matrices"),
        (lambda: coordinates(np.ones(2)).to("torch_csr"), UnsupportedError, "holds matrices"),
        (lambda: coordinates(DENSE).to("scipy_cs"), DomainError, "did you mean 'scipy_csr'"),
    ],
)
def test_what_is_no_tensor_is_an_error(call, error, message):
    with pytest.raises(error, match=message):
        call()


@pytest.mark.parametrize("symmetry", ["general", "symmetric", "skew-symmetric"])
@pytest.mark.parametrize("field", ["real", "integer", "pattern"])
@pytest.mark.parametrize("is_dense", [False, True])
def test_matrix_market_as_scipy_reads_it(tmp_path, symmetry, field, is_dense):
    if is_dense and field == "pattern":
        pytest.skip("there is no such file")
    rng = np.random.default_rng(3)
    matrix = (rng.integers(1, 9, (5, 5)) * (rng.random((5, 5)) < 0.5)).astype(float if field == "real" else int)
    matrix = {"general": matrix, "symmetric": matrix + matrix.T, "skew-symmetric": matrix - matrix.T}[symmetry]
    file = io.BytesIO()
    given = matrix if is_dense else scipy.sparse.coo_array(matrix)
    scipy.io.mmwrite(file, given, "a comment", field, symmetry=symmetry)
    plain, zipped = tmp_path / "a.mtx", tmp_path / "a.mtx.gz"
    plain.write_bytes(file.getvalue())
    zipped.write_bytes(gzip.compress(file.getvalue()))
    expected = scipy.io.mmread(plain)
    expected = expected if is_dense else expected.toarray()
    for path in (plain, str(zipped)):
        np.testing.assert_array_equal(coordinates(path).to_numpy(), expected)
    assert read_matrix_market(plain).order == 2


HEAD = "%%MatrixMarket matrix coordinate real general\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no Matrix Market file"),
        ("1 1 1\n", "no Matrix Market file"),
        ("%%MatrixMarket matrix coordinate reel general\n1 1 0\n", "did you mean `real`"),
        ("%%MatrixMarket matrix coordinate complex general\n1 1 0\n", "complex numbers"),
        (HEAD + "% only a comment", "ends before the line of sizes"),
        (HEAD + "3 3\n", "the line of sizes has 2 words"),
        (HEAD + "3 3 2\n1 1 1.0\n", "has 1 entries, and its sizes say 2"),
        (HEAD + "3 3 1\n1 1 one\n", ":3:1: error: `1 1 one` is not a row, a column and a number"),
        (HEAD + "3 3 2\n1 1 1.0 7\n2 1\n", ":3:1: error: `1 1 1.0 7` is not"),
        (HEAD + "% c\n3 3 2\n1 1 1.0\n\n4 1 1.0\n", r":6:1: error: entry \(4, 1\) is outside a matrix of 3 rows"),
        (HEAD + "3 3 1\n0 1 1.0\n", r"entry \(0, 1\) is outside"),
        (HEAD + "3 3 1\nnan 1 1.0\n", r"entry \(nan, 1\) is outside"),
        (HEAD.replace("general", "symmetric") + "3 4 0\n", "has 3 rows and 4 columns"),
    ],
)
def test_damaged_files(text, message):
    with pytest.raises((ParseError, UnsupportedError), match=message):
        parse_matrix_market(text)


def test_matrix_market_without_entries():
    assert parse_matrix_market(HEAD + "3 4 0").shape == (3, 4)
    with pytest.raises(DerivableError, match="check the path"):
        coordinates("/nowhere/at/all.mtx")


@pytest.mark.parametrize("format", ["csc", "dcsr", "csf", "hashed"])
def test_tensors_that_are_held(format):
    matrix = Coordinates.of((3, 4), [[2, 0, 2], [3, 1, 0]], [1.0, 2.0, 3.0])
    held = hold(matrix, format, 2)
    assert held.coordinates().to_dict() == coordinates(held).to_dict() == matrix.to_dict()
    np.testing.assert_array_equal(einsum("ij,j->i", held, np.ones(4)), [2.0, 0.0, 4.0])


def test_values_of_other_types_are_floats():
    program = parse("sum(<i, a> in X) { i -> 0.5 * a }", {"X": 1})
    for integers in (torch.tensor([1, 2]), jnp.array([1, 2])):
        np.testing.assert_array_equal(Function(program)(X=integers), [0.5, 1.0])
    mixed = Function(parse("sum(<i, a> in X) a * Y(i)", {"X": 1, "Y": 1}))
    assert mixed(X=torch.ones(2), Y=torch.ones(2).double()).dtype == torch.float64
    assert mixed(X=torch.ones(2), Y=np.ones(2)) == 2.0


@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (0, 0), (1, 1)])
@pytest.mark.parametrize("format", ["dense", "column_major", "coo", "csr", "csc", "dcsr", "csf", "hashed"])
def test_axes_without_indices(shape, format):
    matrix, vector = np.ones(shape), np.ones(shape[1])
    product = compile(parse("sum(<i, r> in A) { i -> sum(<j, a> in r) a * X(j) }", {"A": 2, "X": 1}), {"A": format})
    np.testing.assert_array_equal(product(A=matrix, X=vector), matrix @ vector)
    np.testing.assert_array_equal(compile(parse("A", {"A": 2}), {"A": format}, output="numpy")(A=matrix), matrix)


@pytest.mark.parametrize("number", [0.5, True, 3, np.float32(0.25), 0])
def test_a_number_is_an_array_without_axes(number):
    array = coordinates(number).to_numpy()
    assert array.shape == ()
    assert array == number


def test_values_of_different_lengths_are_refused():
    with pytest.raises(ShapeError, match="different lengths"):
        Coordinates.of((3,), [[0, 1, 2]], [1, [2], 3])
