"""Programs as gathers and sums of torch tensors, against NumPy, the interpreter and the kernels of the CPU."""

import pickle

import numpy as np
import pytest
from hypothesis import strategies as st

from derivable.algebra import semirings
from derivable.core.diagnostics import DomainError, LayoutError, LimitError, OutOfMemory, UnsupportedError
from derivable.parallel.program import nodes as n
from derivable.parallel.program.check import check_program
from derivable.parallel.program.execute import execute
from derivable.parallel.program.numpy_columns import NumPy
from derivable.tensor.call.compilation import compile
from derivable.tensor.call.sparsity import IndexCache
from derivable.tensor.derivative.derivative import gradient
from derivable.tensor.language.interpret import interpret
from derivable.tensor.language.program import Program
from derivable.tensor.language.types import tensor
from derivable.tensor.lower import flatten
from derivable.tensor.optimisation.passes import KERNEL
from derivable.tensor.values.values import Coordinates, coordinates
from drawn import examples
from tensor.random_programs import SIZE, cases, dense_of, is_outside, places_of
from tensor.test_kernels import (
    BITMAP,
    BLOCKS,
    CASES,
    MATRICES,
    RNG,
    SQUARE,
    TYPES,
    VALUES,
    VECTORS,
    parse,
)

torch = pytest.importorskip("torch")
# The program as it is written.
PLAIN = dict.fromkeys(KERNEL, False)


def as_dense(found):
    found = found.to_dense() if found.layout != torch.strided else found
    return found.detach().numpy()


def in_torch(value):
    if isinstance(value, np.ndarray):
        return torch.from_numpy(value)
    return torch.sparse_csr_tensor(
        *(torch.from_numpy(x) for x in (value.indptr, value.indices, value.data)), value.shape
    )


@pytest.mark.filterwarnings("ignore:Sparse CSR")
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("output", ["torch", "torch_coo"])
def test_every_format(case, output):
    text, expected = CASES[case]
    used = {name: TYPES[name] for name in TYPES if name in text.replace("exp", "")}
    values = {name: in_torch(VALUES[name]) for name in used}
    mixed = [
        {},
        *(
            {"A": m, "B": m, "S": m, "X": v, "Y": v, "Z": v}
            for m, v in zip((*MATRICES, BLOCKS), VECTORS * 2 + (BITMAP,))
        ),
    ]
    for formats in mixed:
        kept = {name: of for name, of in formats.items() if name in used}
        kernel = compile(parse(text, used), kept, output=output if np.ndim(expected) else None, backend="torch")
        if case == "functions" and formats and formats["A"] is BLOCKS:
            continue
        found = kernel(**values)
        assert isinstance(found, torch.Tensor)
        np.testing.assert_allclose(as_dense(found), expected)
        for plans in kernel._plans.values():
            for plan in plans:
                check_program([plan.column])


def numbers_of(kernel, values):
    return {name: (np.asarray(x),) for name, x in kernel._parted(values, torch.device("cpu"))[2].items()}


def stores_zeros(value):
    return isinstance(value, Coordinates) and (np.asarray(value.values) == 0).any()


@examples(25, 60, data=st.data())
def test_random_programs(data):
    program, given_, meant, formats = data.draw(cases(*[("dense", "csf")] * 2))
    order = program.type.order
    output = data.draw(st.sampled_from(["torch", "torch_coo"])) if order else None
    optimise = data.draw(st.booleans())
    expected = interpret(program.node, meant, semirings.get("real"))
    kernel = compile(
        program,
        formats,
        output=output,
        shape=(SIZE,) * order if order else None,
        backend="torch",
        passes=None if optimise else PLAIN,
    )
    if is_outside(expected):
        with pytest.raises((DomainError, UnsupportedError)):
            kernel(**given_)
        return
    try:
        found = kernel(**given_)
    except DomainError:
        # What a zero that is stored leads to is stored too, as a zero, and that is outside.
        assert is_outside(interpret(program.node, meant, semirings.get("real"), is_guarded=True))
        return
    dense = dense_of(expected, order)
    np.testing.assert_allclose(as_dense(found), dense, rtol=1e-6, atol=1e-9)
    if output == "torch_coo" and not optimise:
        held = np.zeros((SIZE,) * order, bool)
        held[tuple(found.indices().numpy())] = True
        there = places_of(expected, order)
        assert not (there & ~held).any()
        # A stored zero is no entry: the pattern of the result is that of what is stored.
        if "dense" not in formats.values() and not any(stores_zeros(value) for value in given_.values()):
            np.testing.assert_array_equal(held, there)
    for plans in kernel._plans.values():
        for plan in plans:
            check_program([plan.column])
            reference = NumPy(semirings.get("real"))
            (meaning,) = execute([plan.column], numbers_of(kernel, given_), reference)
            np.testing.assert_allclose(
                meaning,
                np.asarray(found.values() if output == "torch_coo" else found).reshape(-1),
                rtol=1e-6,
                atol=1e-9,
            )


M, V, S = tensor(2), tensor(1), tensor(0)
# The kernels of the paper, and what they are differentiated by.
KERNELS = {
    "BATAx": (
        "sum(<i, r> in A) sum(<j, a> in r) sum(<k, b> in r) { j -> s * a * b * X(k) }",
        {"A": M, "X": V, "s": S},
        "X",
    ),
    "SMMM": ("sum(<i, r> in A) sum(<k, a> in r) sum(<j, b> in B(k)) a * b", {"A": M, "B": M}, "B"),
    "SMVM": ("sum(<i, r> in A) sum(<j, a> in r) a * X(j)", {"A": M, "X": V}, "X"),
    "VVA": ("X + W", {"X": V, "W": V}, "X"),
    "VVD": ("sum(<i, a> in X) a * W(i)", {"X": V, "W": V}, "X"),
    "VSM": ("sum(<i, a> in X) { i -> a * s * s }", {"X": V, "s": S}, "s"),
}
NUMBERS = {**VALUES, "s": 1.5, "W": RNG.normal(size=5)}


@pytest.mark.parametrize("name", KERNELS)
def test_gradients_of_the_kernels_of_the_paper(name):
    text, types, wrt = KERNELS[name]
    program = Program(parse(text, types).node, types)
    values = {name: NUMBERS[name] for name in types}
    dense = {name: x.toarray() if hasattr(x, "toarray") else x for name, x in values.items()}
    derivative = gradient(program, wrt)
    for formats in ({}, {"A": "csf", "B": "hashed"}, {"A": "dense", "B": "csc", "X": "coo"}):
        formats = {name: of for name, of in formats.items() if name in types}
        by_kernel = compile(derivative, formats, output="numpy")(**values)
        by_gathers = compile(derivative, formats, output="torch", backend="torch")(**values)
        np.testing.assert_allclose(as_dense(by_gathers), by_kernel, atol=1e-12)
    given_ = {name: torch.as_tensor(x, dtype=torch.float64) for name, x in dense.items()}
    kernel = compile(program, output="torch", backend="torch")
    found = torch.func.jacrev(lambda x: kernel(**{**given_, wrt: x}))(given_[wrt])
    np.testing.assert_allclose(found.numpy(), compile(derivative, output="numpy")(**dense), atol=1e-12)


def inputs_of_layer():
    torch.manual_seed(0)
    values = torch.from_numpy(VALUES["A"].data.copy()).requires_grad_()
    x = torch.randn(5, dtype=torch.float64, requires_grad=True)
    return values, x


PRODUCT = compile(parse(CASES["product with a vector"][0], {"A": M, "X": V}), backend="torch")


def layer(values, x, kernel=PRODUCT):
    matrix = Coordinates(VALUES["A"].shape, np.stack(VALUES["A"].nonzero()).astype(np.int64), values)
    return kernel(A=matrix, X=x)


def test_derivatives():
    values, x = inputs_of_layer()
    torch.testing.assert_close(layer(values, x), torch.from_numpy(VALUES["A"].toarray()) @ x)
    assert torch.autograd.gradcheck(layer, (values, x))
    assert torch.autograd.gradgradcheck(layer, (values, x))
    copies = torch.randn(3, 5, dtype=torch.float64)
    kernel = compile(
        parse("sum(<i, r> in A) { i -> exp(sum(<j, a> in r) a * X(j)) }", {"A": M, "X": V}), backend="torch"
    )
    found = torch.func.vmap(lambda x: kernel(A=VALUES["A"], X=x))(copies)
    rows = torch.from_numpy(VALUES["A"].toarray().any(1))
    dense = torch.from_numpy(VALUES["A"].toarray())
    torch.testing.assert_close(found, torch.exp(copies @ dense.T) * rows)
    found = torch.func.hessian(lambda x: kernel(A=VALUES["A"], X=x).sum())(copies[0])
    torch.testing.assert_close(found, torch.func.hessian(lambda x: (torch.exp(dense @ x) * rows).sum())(copies[0]))


@pytest.mark.parametrize("name", ["min_plus", "max_plus", "max_product", "godel", "log", "boolean"])
@pytest.mark.parametrize("output", ["torch", "torch_coo"])
def test_semirings(name, output):
    record = semirings.get(name)
    values = RNG.integers(1, 4, (6, 6)) / 4 * (RNG.random((6, 6)) < 0.4)
    graph = coordinates(values)
    program = parse(SQUARE, {"A": M})
    expected = compile(program, {"A": "csr"}, output="dense", semiring=name)(A=graph)
    found = compile(program, {"A": "csr"}, output=output, semiring=name, backend="torch")(A=graph)
    if output == "torch_coo":
        found = coordinates(found, semiring=name).to_numpy(record.zero)
    np.testing.assert_allclose(np.asarray(found), expected)


def test_derivatives_in_semirings():
    # The shortest way from 0 to 3 in two roads, by 1 or by 2: both take 4, and the first one counts.
    roads = torch.tensor([1.0, 2.0, 3.0, 2.0], requires_grad=True)
    graph = torch.sparse_coo_tensor([[0, 0, 1, 2], [1, 2, 3, 3]], roads, (4, 4))
    program = parse("sum(<j, a> in A(0)) sum(<k, b> in A(j)) { k -> a * b }", {"A": M})
    kernel = compile(program, semiring="min_plus", output="torch", backend="torch")
    found = kernel(A=graph)
    assert found.tolist() == [np.inf, np.inf, np.inf, 4.0]
    found[3].backward()
    assert roads.grad.tolist() == [1.0, 0.0, 1.0, 0.0]
    total = parse("sum(<i, a> in X) a", {"X": V})
    x = torch.tensor([-np.inf, -np.inf, 1.0, 2.0], dtype=torch.float64, requires_grad=True)
    for part in (x, x[:2]):
        part = part.detach().requires_grad_()
        compile(total, semiring="log", backend="torch")(X=part).backward()
        torch.testing.assert_close(part.grad, torch.softmax(x.detach(), 0) if len(part) > 2 else torch.zeros_like(part))
    # A plus that torch does not have: sums that are cut at 1, and let gradients pass.
    rows = parse("sum(<i, r> in A) { i -> sum(<j, a> in r) a }", {"A": M})
    x = torch.tensor([[0.5, 0.25, 0.0], [0.75, 0.5, 1.0]], requires_grad=True)
    found = compile(rows, semiring="addmultprob", backend="torch")(A=x)
    assert found.tolist() == [0.75, 1.0]
    (found * torch.tensor([2.0, 3.0])).sum().backward()
    assert x.grad.tolist() == [[2.0] * 3, [3.0] * 3]


def test_entries_that_values_decide():
    program = parse("sum(<i, x> in X) if x < s then { i -> x * x }", {"X": V, "s": S})
    kernel = compile(program, output="torch_coo", backend="torch")
    for s in (0.5, 2.0, 0.5):
        found = kernel(X=torch.tensor([0.2, 1.0, 0.4]), s=s)
        assert found.indices().tolist() == [[i for i, x in enumerate((0.2, 1.0, 0.4)) if x < s]]
    with pytest.raises(UnsupportedError, match="`x < s` decides by values which entries there are"):
        torch.func.vmap(lambda x: kernel(X=x, s=0.5))(torch.rand(2, 3))


def test_places_are_found_once_for_a_pattern():
    kernel = compile(parse(SQUARE, {"A": M}), output="torch_coo", backend="torch")
    a = coordinates({0: {1: 2.0}, 1: {1: 3.0}}, shape=(2, 2))
    b = coordinates({0: {0: 2.0}, 1: {1: 3.0}}, shape=(2, 2))
    for given_ in (a, b, a, Coordinates(a.shape, a.indices, a.values * 2), b):
        found = kernel(A=given_)
        np.testing.assert_allclose(as_dense(found), given_.to_numpy() @ given_.to_numpy())
    assert len(kernel._plans[False]) == 2
    copied = pickle.loads(pickle.dumps(kernel))
    torch.testing.assert_close(as_dense(copied(A=b)), as_dense(found))


def test_dense_axes_are_lanes():
    """Places are as many as the sparse entries, not as the products."""
    program = parse("sum(<i, r> in A) { i -> sum(<j, a> in r) sum(<k, h> in H(j)) { k -> a * h } }", {"A": M, "H": M})
    hidden = torch.randn(5, 40, dtype=torch.float64)
    for optimise in (False, True):
        kernel = compile(program, output="torch", backend="torch", passes=None if optimise else PLAIN)
        torch.testing.assert_close(kernel(A=VALUES["A"], H=hidden), torch.from_numpy(VALUES["A"].toarray()) @ hidden)
        (plan,) = kernel._plans[True]
        rows = [x.rows.size for x in n.nodes_of([plan.column]) if isinstance(x, (n.Gather, n.Fold))]
        assert max(rows) == VALUES["A"].nnz


def test_columns_are_shown():
    kernel = compile(parse(CASES["product with a vector"][0], {"A": M, "X": V}), backend="torch")
    a = coordinates({0: {1: 2.0}, 1: {0: 3.0, 1: 1.0}}, shape=(2, 2))
    assert kernel.explain("columns", A=a, X=np.ones(2)) == (
        "c0 = given A [3]\n"
        "c1 = given X [2]\n"
        "i2 = constant [3]\n"
        "c3 = gather c1 at i2 [3]\n"
        "c4 = times c0 c3 [3]\n"
        "i5 = constant [3]\n"
        "c6 = fold plus c4 by i5 [2]"
    )


def test_tensors_on_other_devices_need_no_backend():
    # Tensors without data, which no kernel can read.
    x = torch.ones(5, device="meta")
    found = compile(parse(CASES["product with a vector"][0], {"A": M, "X": V}))(A=VALUES["A"], X=x)
    assert (found.device.type, found.shape) == ("meta", (7,))
    with pytest.raises(DomainError, match="`Y` is on cpu, and other tensors are on meta"):
        parse("X + Y", {"X": V, "Y": V})(X=x, Y=torch.ones(5))


def test_errors(monkeypatch):
    text = CASES["rows twice"][0]
    with pytest.raises(DomainError, match="the backend is 'cuda'"):
        compile(parse(text, {"A": M}), backend="cuda")
    values, x = inputs_of_layer()
    with pytest.raises(DomainError, match="'numpy' records no gradients"):
        layer(
            values,
            x,
            compile(parse(CASES["product with a vector"][0], {"A": M, "X": V}), output="numpy", backend="torch"),
        )
    with pytest.raises(DomainError, match="an entry at index 5, outside the shape"):
        compile(parse("sum(<i, a> in X) { i + 1 -> a }", {"X": V}), shape=(5,), backend="torch")(X=x)
    kernel = compile(parse(text, {"A": M}), backend="torch", passes=PLAIN)
    monkeypatch.setattr(flatten, "MOST_ROWS", 10)
    with pytest.raises(LimitError, match=r"have \d+ rows, 0.0 GB for each array of places, and 10 are allowed"):
        kernel(A=VALUES["A"])


def test_indices_are_fetched_once():
    fetched = IndexCache()
    a, b = torch.tensor([[0, 1], [1, 0]]), torch.tensor([[0, 1], [1, 1]])
    first = fetched(np.copy, (2, 2), a)
    assert fetched(np.copy, (2, 2), a.clone()) is first
    assert fetched(np.copy, (3, 2), a) is not first
    assert fetched(np.copy, (2, 2), b).tolist() == b.tolist()
    a[0, 0] = 1
    assert fetched(np.copy, (2, 2), a).tolist() == a.tolist()
    # They are checked once for each shape.
    product = compile(parse("sum(<i, r> in A) { i -> sum(<j, a> in r) a }", {"A": M}), backend="torch")
    for rows in (3, 3, 2):
        given = torch.sparse_coo_tensor([[2], [0]], [1.0], (rows, 3), check_invariants=False)
        if rows == 2:
            with pytest.raises(LayoutError, match="index 2 of entry 0 of `A` is outside axis 0 of size 2"):
                product(A=given)
        else:
            assert product(A=given).tolist() == [0.0, 0.0, 1.0]
    # Entries of COO that are arrays themselves.
    values = torch.arange(6.0).reshape(2, 3)
    mixed = torch.sparse_coo_tensor([[2, 0]], values, (3, 3))
    found = compile(parse("sum(<i, r> in A) { i -> sum(<j, a> in r) a * X(j) }", {"A": M, "X": V}), backend="torch")
    torch.testing.assert_close(found(A=mixed, X=torch.arange(3.0)), mixed.to_dense() @ torch.arange(3.0))


def _matrix(kind, places, values, size=3):
    """A matrix in CSR or COO with values at places that are in order, and the tensors that hold its indices."""
    rows, columns = torch.tensor(places).T.contiguous()
    if kind == "csr":
        held = torch.searchsorted(rows, torch.arange(size + 1)), columns
        return torch.sparse_csr_tensor(*held, values, (size, size), check_invariants=False), held
    held = torch.stack([rows, columns])
    return torch.sparse_coo_tensor(held, values, (size, size), is_coalesced=True, check_invariants=False), (held,)


@pytest.mark.parametrize("kind", ["csr", "coo"])
def test_calls_like_the_one_before(kind, monkeypatch):
    """Of tensors like those of the call before only the indices are compared; others are looked at."""
    kernel = compile(parse(CASES["product with a vector"][0], {"A": M, "X": V}), output="torch", backend="torch")
    looked, parted = [], kernel._parted
    monkeypatch.setattr(kernel, "_parted", lambda *given: looked.append(1) or parted(*given))

    def anew(a, x):
        """Whether all inputs were looked at."""
        before = len(looked)
        found = kernel(A=a, X=x)
        torch.testing.assert_close(found, torch.nan_to_num(a.to_dense().to(found.dtype) @ x), rtol=1e-6, atol=0.0)
        return len(looked) > before, found

    places, x = [(0, 1), (1, 0), (2, 2)], torch.rand(3, dtype=torch.float64)
    values = torch.rand(3, dtype=torch.float64)
    a, held = _matrix(kind, places, values)
    assert [anew(a, x)[0], anew(a, x)[0], anew(a, 2 * x)[0], anew(a, torch.nn.Parameter(x))[0]] == [True, *[False] * 3]
    # Other indices, in the same memory and in their own; they are taken from then on.
    held[-1][..., 2] = 1
    assert [anew(a, x)[0], anew(a, x)[0]] == [True, False]
    assert [anew(_matrix(kind, places, values)[0], x)[0], anew(_matrix(kind, places, values * 3)[0], x)[0]] == [
        True,
        False,
    ]
    a, _ = _matrix(kind, places, values)
    for other in (_matrix(kind, places[:2], values[:2])[0], a.to(torch.float32), a.to_dense()):
        assert [anew(other, x.to(other.dtype))[0], anew(a, x)[0], anew(a, x)[0]] == [True, True, False]
    # Gradients are recorded where they are wanted.
    learned = values.clone().requires_grad_()
    is_anew, found = anew(_matrix(kind, places, learned)[0], x)
    assert not is_anew
    (pulled,) = torch.autograd.grad(found.sum(), learned)
    torch.testing.assert_close(pulled, x[[1, 0, 2]])
    assert not anew(a, x)[1].requires_grad
    # A zero that no entry has times infinity is none of the sum.
    dense = torch.zeros(3, 3, dtype=torch.float64)
    infinite = torch.tensor([1.0, torch.inf, 2.0], dtype=torch.float64)
    assert kernel(A=dense, X=x).tolist() == kernel(A=dense, X=infinite).tolist() == [0.0, 0.0, 0.0]
    if kind == "coo":
        # A transformation sees the call itself.
        torch.testing.assert_close(torch.func.grad(lambda x: kernel(A=a, X=x).sum())(x), a.to_dense().sum(0))
        assert anew(a, x)[0]
    with pytest.raises(DomainError, match="the input `X` is missing"):
        kernel(A=a)
    with pytest.raises(DomainError, match="no input `Y`"):
        kernel(A=a, X=x, Y=x)


def test_an_axis_that_no_memory_holds():
    x = torch.sparse_coo_tensor([[0, 2**39]], torch.tensor([1.0, 2.0]), (2**40,))
    square = parse("sum(<i, a> in X) { i -> a * a }", {"X": V})
    with pytest.raises(OutOfMemory, match=r"of shape \[1099511627776\]"):
        square(X=x, backend="torch")
    assert square(X=x, backend="torch", output="coordinates").values.tolist() == [1.0, 4.0]
    assert parse("sum(<i, a> in X) a * a", {"X": V})(X=x, backend="torch") == 5.0


@pytest.mark.parametrize("condition", ["i == i + 1", "(i == i + 1) & (Y != {})", "(Y != {}) & (i == i + 1)"])
def test_a_guard_where_no_row_is_left(condition):
    """A condition on indices leaves no rows, and the tensor that a guard asks for has no entries."""
    text = f"sum(<i, x> in X) if {condition} then if Y != {{}} then {{ i -> x * (1.5 + sum(<_, y> in Y) y) }}"
    program = parse(text, {"X": tensor(1), "Y": tensor(1)})
    for value in (Coordinates((3,), np.empty((1, 0), np.int64), np.empty(0)), np.ones(3)):
        kernel = compile(program, output="torch", backend="torch", passes=PLAIN)
        np.testing.assert_array_equal(kernel(X=np.arange(3.0), Y=value), np.zeros(3))
