"""Einstein sums against NumPy's, and against loops where that has none."""

import itertools
import math

import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse
import sparse
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from derivable.algebra.semiring import Semiring
from derivable.bridge.contraction_steps import order_of
from derivable.core.diagnostics import DerivableError, DomainError, ParseError, ShapeError, UnsupportedError
from derivable.tensor import einsum, parse
from derivable.tensor.values.values import Coordinates, coordinates, is_sparse
from derivable.tensor.write.einstein import contraction
from drawn import examples

# What small programs say is the same in Python, which need not be compiled for it.
SIZES = dict(zip("abcde", (2, 3, 4, 2, 3)))


@st.composite
def sums(draw, most=4):
    """(subscripts, dense operands)"""
    count = draw(st.integers(1, most))
    inputs = [draw(st.text(st.sampled_from("abcde"), max_size=3)) for _ in range(count)]
    letters = sorted(set("".join(inputs)))
    result = draw(st.lists(st.sampled_from(letters), unique=True, max_size=3)) if letters else []
    subscripts = ",".join(inputs) + "->" + "".join(result)
    rng = np.random.default_rng(draw(st.integers(0, 2**31)))
    density = draw(st.sampled_from([0.0, 0.3, 1.0]))
    operands = []
    for letters in inputs:
        shape = [SIZES[letter] for letter in letters]
        operands.append(np.asarray(rng.normal(size=shape) * (rng.random(shape) < density)))
    if not draw(st.booleans()):
        return subscripts, operands
    return (subscripts.split("->")[0], operands)


def in_some_form(draw, dense):
    forms = ["numpy", "torch", "coordinates", "sparse"] if dense.ndim else ["numpy"]
    if dense.ndim in (1, 2):
        forms.append("scipy_coo")
    if dense.ndim == 2:
        forms += ["scipy_csr", "scipy_csc", "torch_csr"]
    form = draw(st.sampled_from(forms))
    return dense if form == "numpy" else coordinates(dense).to(form)


@examples(40, 100, case=sums())
def test_of_dense_operands(case):
    subscripts, operands = case
    np.testing.assert_allclose(einsum(subscripts, *operands), np.einsum(subscripts, *operands), atol=1e-12)


@examples(40, 100, case=sums(), data=st.data())
def test_of_operands_in_any_form(case, data):
    subscripts, operands = case
    given_in = [in_some_form(data.draw, operand) for operand in operands]
    found = einsum(subscripts, *given_in, output="numpy")
    np.testing.assert_allclose(found, np.einsum(subscripts, *operands), atol=1e-12)


@settings(deadline=None, max_examples=40)
@given(
    sums(most=3),
    st.sampled_from([("min_plus", np.add, np.min, np.inf), ("max_product", np.multiply, np.max, 0.0)]),
    st.data(),
)
def test_in_other_semirings(case, semiring, data):
    subscripts, operands = case
    name, times, plus, zero = semiring
    operands = [np.abs(operand) / 9 for operand in operands]
    stored = [np.where(operand == 0, zero, operand) for operand in operands]
    inputs, _, result = subscripts.partition("->")
    if "->" not in subscripts:
        every = inputs.replace(",", "")
        result = "".join(sorted(letter for letter in set(every) if every.count(letter) == 1))
    inputs = inputs.split(",")
    letters = sorted(set("".join(inputs)))
    expected = np.full([SIZES[letter] for letter in result], zero)
    for place in itertools.product(*(range(SIZES[letter]) for letter in letters)):
        at = dict(zip(letters, place))
        term = 0.0 if name == "min_plus" else 1.0
        for axes, operand in zip(inputs, stored):
            term = times(term, operand[tuple(at[letter] for letter in axes)])
        target = tuple(at[letter] for letter in result)
        expected[target] = plus([expected[target], term])
    given_in = [
        coordinates(operand, semiring=name) if operand.ndim and data.draw(st.booleans()) else operand
        for operand in stored
    ]
    np.testing.assert_allclose(einsum(subscripts, *given_in, semiring=name, output="numpy"), expected)


# plus, times, zero, one, and the operand of random numbers from 0 to 1.
SEMIRINGS = {
    "real": (sum, math.prod, 0.0, 1.0, lambda x: np.where(x < 0.3, 0.0, x)),
    "min_plus": (min, sum, np.inf, 0.0, lambda x: np.where(x < 0.3, np.inf, x)),
    "counting": (sum, math.prod, 0, 1, lambda x: (x * 4).astype(int)),
    "addmultprob": (lambda terms: min(sum(terms), 1.0), math.prod, 0.0, 1.0, lambda x: np.where(x < 0.3, 0.0, x)),
}
# By name: (array, semiring) -> the operand.
FORMS = {
    "array": lambda x, semiring: x,
    "backwards": lambda x, semiring: x[::-1].copy()[::-1] if x.ndim else x.item(),
    "torch": lambda x, semiring: torch.tensor(x),
    "differentiated": lambda x, semiring: torch.tensor(x, dtype=torch.float64, requires_grad=True),
    "sparse": lambda x, semiring: coordinates(x, semiring=semiring) if x.ndim else x.item(),
    "torch_coo": lambda x, semiring: coordinates(x, semiring=semiring).to("torch_coo") if x.ndim else torch.tensor(x),
    "csr": lambda x, semiring: coordinates(x, semiring=semiring).to("csr") if x.ndim == 2 else x,
}


@examples(20, 600, data=st.data())
def test_of_every_semiring_and_kind_of_operand(data):
    sizes = {letter: data.draw(st.integers(0, 3)) for letter in "abc"}
    inputs = [data.draw(st.text(st.sampled_from("abc"), max_size=3)) for _ in range(data.draw(st.integers(1, 3)))]
    letters = sorted(set("".join(inputs)))
    result = "".join(data.draw(st.lists(st.sampled_from(letters), unique=True))) if letters else ""
    name = data.draw(st.sampled_from(sorted(SEMIRINGS)))
    plus, times, zero, one, numbers = SEMIRINGS[name]
    rng = np.random.default_rng(data.draw(st.integers(0, 2**31)))
    arrays = [np.asarray(numbers(rng.random([sizes[letter] for letter in axes]))) for axes in inputs]
    forms = sorted({*FORMS} - ({"differentiated"} if name == "counting" else set()))
    operands = [FORMS[data.draw(st.sampled_from(forms))](array, name) for array in arrays]
    found = einsum(",".join(inputs) + "->" + result, *operands, semiring=name)

    # [place of the result] the terms, and with each the places of the operands.
    terms = {place: [] for place in itertools.product(*(range(sizes[letter]) for letter in result))}
    for place in itertools.product(*(range(sizes[letter]) for letter in letters)):
        at = dict(zip(letters, place))
        places = [tuple(at[letter] for letter in axes) for axes in inputs]
        factors = [array[where].item() for array, where in zip(arrays, places)]
        terms[tuple(at[letter] for letter in result)].append((times([one, *factors]), factors, places))
    expected = np.full([sizes[letter] for letter in result], zero, object)
    for place, each in terms.items():
        expected[place] = plus([zero, *(term for term, _, _ in each)])
    tracked = [x for x in operands if isinstance(x, torch.Tensor) and x.requires_grad]
    if tracked:
        assert isinstance(found, torch.Tensor)
        assert found.requires_grad
        if found.layout != torch.strided:
            found = found.to_dense() if zero == 0 else None
    values = found.detach() if isinstance(found, torch.Tensor) else found
    if values is not None:
        values = coordinates(values, semiring=name).to_numpy(zero) if is_sparse(values) else values
        assert np.shape(values) == expected.shape
        np.testing.assert_allclose(np.asarray(values, float), expected.astype(float), atol=1e-12)
    if not tracked or found is None:
        return

    adjoints = rng.normal(size=expected.shape)
    # A minimum of no terms has no derivatives that mean something.
    adjoints = np.where(expected.astype(float) == np.inf, 0.0, adjoints)
    gradients = [np.zeros(array.shape) for array in arrays]
    for place, each in terms.items():
        taken = [min(each)] if name == "min_plus" and each else each
        for _, factors, places in taken:
            for k, where in enumerate(places):
                others = math.prod(factors[:k] + factors[k + 1 :]) if name != "min_plus" else 1.0
                gradients[k][where] += adjoints[place] * others
    is_finite = torch.tensor(expected.astype(float) != np.inf)
    total = (torch.where(is_finite, found, 0.0) * torch.tensor(adjoints)).sum()
    total.backward()
    for operand, gradient in zip(operands, gradients):
        if isinstance(operand, torch.Tensor) and operand.requires_grad:
            np.testing.assert_allclose(operand.grad, gradient, atol=1e-12)


# Values with derivatives; and words of two letters, a matrix product of [[a, b], [0, 1]], which does not commute.
DUAL = Semiring(
    "dual",
    lambda a, b: (a[0] + b[0], a[1] + b[1]),
    lambda a, b: (a[0] * b[0], a[0] * b[1] + a[1] * b[0]),
    (0.0, 0.0),
    (1.0, 0.0),
)
UPPER = Semiring(
    "upper",
    lambda a, b: (a[0] + b[0], a[1] + b[1], a[2] + b[2]),
    lambda a, b: (a[0] * b[0], a[0] * b[1] + a[1] * b[2], a[2] * b[2]),
    (0.0, 0.0, 0.0),
    (1.0, 0.0, 1.0),
    commutative=False,
)


@pytest.mark.parametrize("library", ["numpy", "torch", "JAX"])
@pytest.mark.parametrize("semiring", [DUAL, UPPER])
@pytest.mark.parametrize("subscripts", ["ij,jk->ik", "ii,j,->j", "ij,ji->", "jjk->kj"])
def test_semirings_whose_elements_are_nests(subscripts, semiring, library):
    sizes, rng = {"i": 2, "j": 3, "k": 2}, np.random.default_rng(0)
    inputs, result = (part.split(",") for part in subscripts.split("->"))
    shapes = [[sizes[letter] for letter in axes] for axes in inputs]
    count = len(semiring.zero)
    operands = [tuple(np.asarray(rng.normal(size=shape)) for _ in range(count)) for shape in shapes]
    expected = [np.zeros([sizes[letter] for letter in result[0]]) for _ in range(count)]
    letters = sorted(set("".join(inputs)))

    def summed(given):
        """By loops, in Python's numbers or torch's."""
        found = {}
        for place in itertools.product(*(range(sizes[letter]) for letter in letters)):
            at = dict(zip(letters, place))
            term = semiring.one
            for axes, operand in zip(inputs, given):
                term = semiring.times(term, tuple(leaf[tuple(at[letter] for letter in axes)] for leaf in operand))
            key = tuple(at[letter] for letter in result[0])
            found[key] = semiring.plus(found.get(key, semiring.zero), term)
        return found

    for key, values in summed(operands).items():
        for leaf, value in zip(expected, values):
            leaf[key] = value
    make = {
        "numpy": lambda x: x,
        "torch": lambda x: torch.tensor(x, requires_grad=True),
        "JAX": lambda x: jnp.asarray(x),
    }[library]
    given = [tuple(map(make, operand)) for operand in operands]
    found = einsum(subscripts, *given, semiring=semiring)
    tolerance = 1e-5 if library == "JAX" else 1e-12
    for leaf, value in zip(found, expected):
        plain = leaf.detach().numpy() if library == "torch" else np.asarray(leaf)
        assert plain.shape == value.shape
        np.testing.assert_allclose(plain, value, rtol=tolerance, atol=tolerance)
    if library == "torch":
        sum((leaf**2).sum() for leaf in found).backward()
        again = [tuple(torch.tensor(leaf, requires_grad=True) for leaf in operand) for operand in operands]
        sum((part**2).sum() for values in summed(again).values() for part in values).backward()
        for operand, other in zip(given, again):
            for leaf, like in zip(operand, other):
                torch.testing.assert_close(leaf.grad, torch.zeros_like(like) if like.grad is None else like.grad)


def test_nests_of_no_terms_and_what_fits_none():
    empty = np.zeros((2, 0)), np.zeros((2, 0))
    for leaf in einsum("ij->i", empty, semiring=DUAL):
        assert leaf.tolist() == [0.0, 0.0]
    assert [leaf.shape for leaf in einsum("ij->j", empty, semiring=DUAL)] == [(0,), (0,)]
    with pytest.raises(ShapeError, match="of different sizes"):
        einsum("i->", (np.ones(2), np.ones(3)), semiring=DUAL)
    with pytest.raises(ShapeError, match="operand 0"):
        einsum("i->", np.ones(2), semiring=DUAL)
    with pytest.raises(UnsupportedError, match="has sparse parts"):
        einsum("ij->", (scipy.sparse.csr_array(A), A), semiring=DUAL)
    with pytest.raises(UnsupportedError, match=r"(?s)nest of numbers.*dv.parallel.scan.*dv.nn.Logic"):
        einsum("i->i", (np.ones(2), np.ones(2)), semiring=DUAL, output="coordinates")


def test_integers_of_any_size_of_a_sum_without_axes():
    assert einsum("i,i,j->", [1 << 40, 1], [1 << 40, 1], [2, 3], semiring="counting") == 5 * (2**80 + 1)
    with pytest.raises(DomainError, match="does not fit into 64 bits"):
        coordinates({0: {1: 1 << 70}}, semiring="counting").to("csr")


A = np.array([[0.0, 1.0, 2.0], [0.0, 0.0, 3.0]])
X = np.array([1.0, 0.0, 2.0])


def test_forms_of_results():
    csr = scipy.sparse.csr_array(A)
    assert isinstance(einsum("ij,j->i", csr, X), np.ndarray)
    found = einsum("ij,kj->ik", csr, csr)
    assert found.format == "csr"
    np.testing.assert_allclose(found.toarray(), A @ A.T)
    assert isinstance(einsum("ij,jk->ik", csr, np.ones((3, 2))), np.ndarray)
    assert einsum("ij,ij->ij", csr, np.ones((2, 3))).format == "csr"
    assert isinstance(einsum("ij->ji", sparse.COO.from_numpy(A)), sparse.COO)
    assert isinstance(einsum("ij->ji", coordinates(A)), Coordinates)
    assert isinstance(einsum("ij->ji", {0: {1: 2.0}}), Coordinates)
    assert einsum("ij->ji", torch.from_numpy(A).to_sparse()).layout == torch.sparse_coo
    assert isinstance(einsum("ij,j->i", csr, torch.from_numpy(X)), torch.Tensor)
    assert einsum("ij,kj->ik", csr, csr, output="csc").format == "csc"
    assert einsum("ij,j->i", csr, X, output="dict") == {0: 4.0, 1: 6.0}
    number = einsum("ij,ij->", csr, csr)
    assert type(number) is float
    assert number == 14.0
    assert type(einsum("i,i", X, X)) is float


def numbers_of(value):
    """The array of the numbers of a tensor of any library."""
    if isinstance(value, torch.Tensor):
        value = value.detach()
        return (value if value.layout == torch.strided else value.coalesce().values()).numpy()
    if isinstance(value, Coordinates):
        return numbers_of(value.values)
    return value.data if scipy.sparse.issparse(value) else value


@pytest.mark.parametrize("semiring", ["real", "min_plus"])
@pytest.mark.parametrize("output", [None, "numpy", "torch", "coordinates", "csr", "torch_coo"])
def test_results_share_no_numbers_with_operands(output, semiring):
    square = np.arange(1.0, 10.0).reshape(3, 3)
    makes = [np.array, torch.tensor, coordinates, scipy.sparse.csr_array, lambda x: torch.tensor(x).to_sparse(),
             lambda x: np.array(x[::-1])[::-1], lambda x: np.array(x[:, ::-1])[:, ::-1], np.asfortranarray]  # fmt: skip
    if output in (None, "torch", "torch_coo"):
        makes += [lambda x: torch.tensor(x, requires_grad=True)]
    for make, subscripts in itertools.product(makes, ["ab->ab", "ab->ba", "...->...", "aa->a"]):
        operand = make(square)
        if output == "csr" and subscripts == "aa->a":
            continue
        found = einsum(subscripts, operand, output=output, semiring=semiring)
        expected = np.einsum(subscripts, square)
        assert numbers_of(found).sum() == expected.sum()
        if output in ("numpy", "torch"):
            np.testing.assert_array_equal(numbers_of(found), expected)
        assert not np.shares_memory(numbers_of(found), numbers_of(operand))
    for x in (np.arange(4.0), torch.arange(4.0), torch.arange(4.0, requires_grad=True)):
        for program in (parse("X", {"X": 1}), parse("sum(<i, a> in X) { i -> a }", {"X": 1})):
            for backend in (None, "torch"):
                found = program(X=x, backend=backend)
                assert not np.shares_memory(numbers_of(found), numbers_of(x))


def test_ellipses():
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(2, 3, 4)), rng.normal(size=(3, 4, 5))
    cases = [
        ("...j,...jk->...k", (a[0], b)),
        ("i...,...k->...ik", (a, rng.normal(size=(3, 4, 2)))),
        ("i...,...k", (a, rng.normal(size=(4, 2)))),
        ("i...k,...->k...", (a, rng.normal(size=3))),
        ("...,...", (a, a)),
    ]
    for subscripts, operands in cases:
        np.testing.assert_allclose(einsum(subscripts, *operands), np.einsum(subscripts, *operands))


def test_dictionaries_are_as_large_as_what_they_meet():
    found = einsum("ij,j->i", {0: {1: 2.0}, 3: {0: 5.0}}, np.arange(5.0))
    np.testing.assert_allclose(found, [2.0, 0.0, 0.0, 0.0])
    assert einsum("ij,jk->ik", {0: {1: 2.0}}, {1: {4: 3.0}, 2: {0: 1.0}}, output="dict") == {0: {4: 6.0}}
    with pytest.raises(ShapeError, match=":1:1: error: the axis `i` is 2 in operand 1, and operand 0 has the index 6"):
        einsum("i,i", {6: 1.0}, np.ones(2))


def test_rows_that_the_real_zero_would_hide():
    graph = np.array([[np.inf, 0.0], [np.inf, np.inf]])
    found = einsum("ij,jk->ik", graph, np.array([[np.inf, np.inf], [5.0, 0.0]]), semiring="min_plus")
    np.testing.assert_array_equal(found, [[5.0, 0.0], [np.inf, np.inf]])
    assert einsum("ij->", graph < 1, semiring="boolean") is True


def test_the_order_follows_sizes_and_entries():
    sizes = {0: 10, 1: 1000, 2: 1000, 3: 10}
    dense = [((0, 1), 1e4, True), ((1, 2), 1e6, True), ((2, 3), 1e4, True)]
    assert order_of(dense, (0, 3), sizes)[0] in [(0, 1), (1, 2)]
    # A matrix with few entries comes first, though it is large.
    assert order_of([((1, 2), 1e6, True), ((2, 0), 10.0, False), ((0, 1), 1e4, True)], (), sizes)[0] == (0, 1)
    # Never two that share nothing, where that is the larger product.
    for terms in (dense, [*dense, *[((3, 0), 100.0, True)] * 8]):
        steps = order_of(terms, (0, 3), sizes)
        assert len(steps) == len(terms) - 1


def test_a_long_chain():
    rng = np.random.default_rng(1)
    matrices = [rng.normal(size=(3, 3)) for _ in range(11)]
    letters = "abcdefghijkl"
    subscripts = ",".join(letters[k : k + 2] for k in range(11)) + "->al"
    expected = np.linalg.multi_dot(matrices)
    some = [scipy.sparse.csr_array(m) if k % 2 else m for k, m in enumerate(matrices)]
    np.testing.assert_allclose(einsum(subscripts, *some, output="numpy"), expected)


def test_large_operands_are_compiled():
    rng = np.random.default_rng(2)
    matrix = scipy.sparse.random_array((150, 200), density=0.2, format="csr", rng=rng)
    vector = rng.normal(size=150)
    np.testing.assert_allclose(einsum("ij,i->j", matrix, vector), matrix.T @ vector)
    found = einsum("ij,kj->ik", matrix, coordinates(matrix), output="csr")
    np.testing.assert_allclose(found.toarray(), (matrix @ matrix.T).toarray())
    least = einsum("ij,i->j", matrix, vector, semiring="min_plus")
    dense = np.where(matrix.toarray() == 0, np.inf, matrix.toarray())
    np.testing.assert_allclose(least, (dense + vector[:, None]).min(axis=0))


def test_steps_are_programs():
    assert (
        str(contraction(((0, 1), (1,)), (0,), (0, 1)))
        == "sum(<i, row0> in T0) { i -> sum(<j, a0> in row0) a0 * T1(j) }"
    )
    product = contraction(((0, 1), (1, 2)), (0, 2), (1, 0))
    assert str(product) == ("sum(<i, row0> in T0) { i -> sum(<j, a0> in row0) sum(<k, a1> in T1(j)) { k -> a1 * a0 } }")
    assert parse(str(product), product.inputs) == product
    assert str(contraction(((0, 0),), (0,), (0,))) == "sum(<i, row0> in T0) { i -> row0(i) }"


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: einsum("ij,j->i", A, A), ShapeError, r":1:4: error: operand 1 has the shape \[2, 3\], and 1 letter"),
        (
            lambda: einsum("ij,j->i", A, X[:2]),
            ShapeError,
            ":1:4: error: the axis `j` is 3 in operand 0 and 2 in operand 1",
        ),
        (lambda: einsum("ii", A), ShapeError, "`i` is 2 in operand 0 and 3 in operand 0"),
        (lambda: einsum("ij,j->i", A), ShapeError, "are of 2 operands, and there are 1"),
        (lambda: einsum("ij->k", A), ParseError, ":1:5: error: the axis `k` of the result is in no operand"),
        (lambda: einsum("ij->ii", A), ParseError, ":1:6: error: the axis `i` is in the result twice"),
        (lambda: einsum("i1->i", A), ParseError, ":1:2: error: `1` is no letter"),
        (lambda: einsum("ij->i,j", A), ParseError, "`,` is no letter"),
        (lambda: einsum("......", A), ParseError, "there are two ellipses"),
        (lambda: einsum("i...->i", A), ParseError, "the result has no"),
        (lambda: einsum(3, A), DomainError, "subscripts are a text"),
        (lambda: einsum("ij", A, output="csrr"), DomainError, "did you mean 'csr'"),
        (lambda: einsum("ij", A, semiring="reel"), DomainError, "did you mean 'real'"),
        (lambda: einsum("i", "nowhere.mtx"), Exception, "nowhere.mtx"),
        (lambda: einsum("i", object()), DomainError, "of `operand 0` is no tensor"),
    ],
)
def test_errors(call, error, message):
    with pytest.raises(error, match=message):
        call()


def test_exact_integers_of_every_kind_of_operand():
    A, v = np.array([[1, 2], [0, 3]]), np.array([1, 2])
    rows = scipy.sparse.csr_array(A)
    assert einsum("i,i->", v, v, semiring="counting") == 5
    assert einsum("ij,jk->ik", rows, rows, semiring="counting").toarray().tolist() == (A @ A).tolist()
    assert einsum("ij,j->i", torch.tensor(A), torch.tensor(v), semiring="counting").tolist() == [5, 6]
    with pytest.raises(DomainError, match="does not fit into 64 bits"):
        einsum("i,i->i", torch.tensor(v), [1 << 70, 1], semiring="counting")


def test_what_torch_cannot_hold_is_refused():
    with pytest.raises(DomainError, match="complex64"):
        einsum("i,i->", torch.tensor([1 + 2j, 3]), torch.ones(2, requires_grad=True))
    with pytest.raises(DomainError, match="the operands are on cpu and meta"):
        einsum("ij,j->i", torch.ones(2, 2), torch.ones(2, device="meta"))


def test_a_diagonal_of_one_place_in_a_semiring_that_does_not_distribute():
    assert einsum("aa,a->", np.full((1, 1), 0.5), np.full(1, 0.5), semiring="addmultprob") == 0.25


def damaged(matrix):
    found = matrix.copy()
    found.has_canonical_format  # noqa: B018, SciPy keeps the answer
    found.indices[1] = 40
    return found


def out_of_order(matrix):
    """The same matrix with the entries of each row turned round, and the first one in two parts."""
    rows = np.repeat(np.arange(matrix.shape[0]), np.diff(matrix.indptr))[::-1]
    data, columns = np.append(matrix.data[::-1], 1.5), np.append(matrix.indices[::-1], matrix.indices[0])
    rows = np.append(rows, 0)
    data[len(data) - 2] -= 1.5
    order = np.argsort(rows, kind="stable")
    offsets = np.searchsorted(rows[order], np.arange(matrix.shape[0] + 1))
    return scipy.sparse.csr_array((data[order], columns[order], offsets), matrix.shape)


def drawn(seed, shape=(6, 5)):
    found = scipy.sparse.csr_array(scipy.sparse.random_array(shape, density=0.5, rng=seed))
    found.data[found.indptr[0]] += 2.0
    return found


# A sparse operand, one after another in calls whose other operand stays.
OPERANDS = {
    "first": lambda: drawn(0),
    "other entries": lambda: drawn(1),
    "out of order": lambda: out_of_order(drawn(2)),
    "float32": lambda: drawn(3).astype(np.float32),
    "integers": lambda: (10 * drawn(4)).astype(np.int64),
    "truth values": lambda: drawn(5).astype(bool),
    "a matrix": lambda: scipy.sparse.csr_matrix(drawn(6)),
    "columns": lambda: drawn(7).tocsc(),
    "coordinates": lambda: coordinates(drawn(8)),
    "torch": lambda: coordinates(drawn(9)).to_torch(),
    "dense": lambda: drawn(10).toarray(),
    "columns first": lambda: np.asfortranarray(drawn(11).toarray()),
    "dense torch": lambda: torch.from_numpy(drawn(12).toarray()),
    "an infinity": lambda: np.where(drawn(13).toarray() > 2, np.inf, drawn(13).toarray()),
}


def in_numpy(value):
    if isinstance(value, Coordinates):
        return value.to_numpy()
    if scipy.sparse.issparse(value):
        return value.toarray()
    return (value if value.layout == torch.strided else value.to_dense()).numpy() if torch.is_tensor(value) else value


@pytest.mark.parametrize("subscripts", ["ij,jk->ik", "ij,jk->ki", "ij,kj->ik", "ij,jk->", "ij,jk", "ij,jj->ij"])
@pytest.mark.parametrize("is_turned", [False, True])
@pytest.mark.parametrize("output", [None, "dense", "csr", "torch"])
def test_calls_that_follow_one_another(subscripts, is_turned, output):
    """What is kept by signature is right for all operands of it."""
    rng = np.random.default_rng(0)
    inputs, arrow, result = subscripts.partition("->")
    first, second = inputs.split(",")
    if output == "csr" and arrow and len(result) != 2:
        output = "coordinates"
    sizes = {"i": 6, "j": 5, "k": 3}
    other = rng.random([sizes[letter] for letter in second])
    names = list(OPERANDS)
    for name in [*names, *rng.permutation(names), *names]:
        operands = {first: OPERANDS[name](), second: other}
        if is_turned:
            text, given = f"{second},{first}{arrow}{result}", [operands[second], operands[first]]
        else:
            text, given = subscripts, [operands[first], operands[second]]
        found = einsum(text, *given, output=output)
        with np.errstate(invalid="ignore"):
            expected = np.einsum(text, *(in_numpy(x).astype(float) for x in given))
        if name == "an infinity":
            # Zero times it is zero here; that is tested elsewhere.
            assert np.isinf(in_numpy(found)).any()
            continue
        np.testing.assert_allclose(in_numpy(found), expected, rtol=1e-6)
        kind = {"dense": np.ndarray, "coordinates": Coordinates, "csr": scipy.sparse.csr_array, "torch": torch.Tensor}
        assert output not in kind or not np.ndim(expected) or isinstance(found, kind[output])


def test_operands_that_were_right_once_are_looked_at_again():
    vector, matrix = np.ones(5), drawn(0)
    for _ in range(3):
        np.testing.assert_allclose(einsum("ij,j->i", matrix, vector), matrix.sum(1))
    with pytest.raises(DerivableError, match="`operand 0` is outside axis 1 of size 5"):
        einsum("ij,j->i", damaged(matrix), vector)
    with pytest.raises(ShapeError, match="the axis `j` is 5 in operand 0 and 4 in operand 1"):
        einsum("ij,j->i", matrix, vector[:4])
    for _ in range(2):
        np.testing.assert_allclose(einsum("ij,j->i", abs(matrix), vector, semiring="max_product").max(), matrix.max())
    with pytest.raises(DomainError, match="of `operand 1` is outside 0"):
        einsum("ij,j->i", matrix, -vector, semiring="max_product")
    matrix.data *= 2.0
    np.testing.assert_allclose(einsum("ij,j->i", matrix, vector), matrix.sum(1))
