"""Einstein sums, programs and kernels of arrays that are differentiated, against dense torch and JAX."""

import numpy as np
import pytest
import scipy.sparse as sp

import derivable as dv
from derivable.core.diagnostics import DomainError, LayoutError, ShapeError, UnsupportedError
from derivable.tensor.values.values import coordinates

torch = pytest.importorskip("torch")
M, V, S = dv.tensor.matrix, dv.tensor.vector, dv.tensor.scalar
A = sp.random(6, 4, 0.5, format="csr", random_state=0)
B = sp.random(4, 5, 0.5, format="csr", random_state=1)
DENSE = torch.from_numpy(A.toarray())
PRODUCT = dv.tensor.parse("sum(<i, r> in A) { i -> tanh(sum(<j, a> in r) a * X(j)) }", {"A": M, "X": V})


def drawn(*shape):
    torch.manual_seed(0)
    return torch.randn(shape, dtype=torch.float64, requires_grad=True)


def in_torch(matrix, layout="coo"):
    sparse = coordinates(matrix).to_torch(layout)
    return sparse.requires_grad_()


def as_dense(x):
    return x if x.layout == torch.strided else x.to_dense()


# subscripts, shapes of dense operands (None: A, "B": B, sparse)
CASES = [
    ("ij,j->i", (None, (4,))),
    ("ij,j->", (None, (4,))),
    ("ij,jk->ik", (None, (4, 3))),
    ("ij,jk->ik", (None, "B")),
    ("ij,jk,k->i", (None, "B", (5,))),
    ("ij,ij->ij", (None, (6, 4))),
    ("ik,jk,ij->ij", ((6, 3), (4, 3), None)),
    ("ij,ik,k->j", (None, None, (4,))),
    ("i,ij,j->", ((6,), None, (4,))),
    ("ij,jk->ki", ((6, 4), (4, 3))),
    ("ij->ji", (None,)),
    ("ij->j", (None,)),
    ("ij,j->ij", (None, (4,))),
]


@pytest.mark.parametrize(("text", "kinds"), CASES)
@pytest.mark.parametrize(
    ("which", "backend"),
    [("dense", None), ("all", None), ("all", "torch"), pytest.param("dense", "torch", marks=pytest.mark.slow)],
)
def test_einsum(text, kinds, which, backend):
    sparse = {None: A, "B": B}
    dense = [drawn(*kind) if isinstance(kind, tuple) else torch.from_numpy(sparse[kind].toarray()) for kind in kinds]
    given, meant, wanted = [], [], []
    for kind, x in zip(kinds, dense):
        if isinstance(kind, tuple):
            given.append(x)
            meant.append(x)
        elif which == "all":
            given.append(in_torch(sparse[kind], "csr" if len(given) % 2 else "coo"))
            meant.append(x.requires_grad_())
        else:
            given.append(sparse[kind])
            meant.append(x)
        if meant[-1].requires_grad:
            wanted.append((given[-1], meant[-1]))
    if not wanted:
        return
    found, expected = dv.tensor.einsum(text, *given, backend=backend), torch.einsum(text, *meant)
    torch.testing.assert_close(as_dense(found), expected)
    weights = drawn(*expected.shape).detach()
    ours = torch.autograd.grad((as_dense(found) ** 2 * weights).sum(), [x for x, _ in wanted])
    theirs = torch.autograd.grad((expected**2 * weights).sum(), [x for _, x in wanted])
    for mine, other in zip(ours, theirs):
        held = torch.ones_like(other)
        if mine.layout != torch.strided:
            held.zero_()[tuple(mine.to_sparse_coo().coalesce().indices())] = 1
        torch.testing.assert_close(as_dense(mine), other * held)


def test_second_derivatives_of_einsum():
    places = [[0, 0, 1], [0, 1, 1]]
    values, x = drawn(3), drawn(2)

    def product(values, x):
        matrix = dv.tensor.Coordinates((2, 2), np.array(places), values)
        return dv.tensor.einsum("ij,ik,k->j", matrix, matrix, x)

    assert torch.autograd.gradcheck(product, (values, x))
    assert torch.autograd.gradgradcheck(product, (values, x))


def second(total, x):
    (first,) = torch.autograd.grad(total(x), x, create_graph=True)
    return torch.stack([torch.autograd.grad(part, x, retain_graph=True)[0] for part in first])


ROWS = [[0, 1, 2], [0, 1, 2]]
BUILT = {
    "coo": lambda values: torch.sparse_coo_tensor(ROWS, values, (3, 3)),
    "coalesced": lambda values: torch.sparse_coo_tensor(ROWS, values, (3, 3)).coalesce(),
    "scaled": lambda values: 1.0 * torch.sparse_coo_tensor(ROWS, values, (3, 3)),
    "csr": lambda values: torch.sparse_csr_tensor([0, 1, 2, 3], [0, 1, 2], values, (3, 3)),
    "csc": lambda values: torch.sparse_csc_tensor([0, 1, 2, 3], [0, 1, 2], values, (3, 3)),
    "a sum": lambda values: (
        2 * torch.sparse_coo_tensor(ROWS, values, (3, 3)) - torch.sparse_coo_tensor(ROWS, values, (3, 3))
    ),
    "dense to csr": lambda values: torch.diag(values).to_sparse_csr(),
    "dense to csc": lambda values: torch.diag(values).to_sparse_csc(),
}


@pytest.mark.parametrize("backend", [None, "torch"])
@pytest.mark.parametrize("form", BUILT)
def test_second_derivatives_by_what_torch_builds_of_values_are_refused(form, backend):
    """Torch takes the derivative of its constructor for a constant: parts of the second one would be missing."""
    x = torch.tensor([0.3, 0.5, 0.7], dtype=torch.float64, requires_grad=True)

    def total(x, build=BUILT[form]):
        return dv.tensor.einsum("ij,j->i", build(x**2 + x), x**3, backend=backend).sum()

    (first,) = torch.autograd.grad(total(x), x)
    torch.testing.assert_close(first, (5 * x**4 + 4 * x**3).detach())
    with pytest.raises(UnsupportedError, match="whose derivative has no derivative"):
        second(total, x)
    found = second(lambda x: total(x, lambda v: dv.tensor.Coordinates((3, 3), np.array(ROWS), v)), x)
    torch.testing.assert_close(found, torch.diag(20 * x**3 + 12 * x**2).detach())
    # By another operand there is nothing to refuse, and a leaf has all derivatives.
    leaf = BUILT["coo"](x.detach()).requires_grad_()
    for matrix in (BUILT[form](x**2), leaf, 2 * leaf):
        y = torch.ones(3, dtype=torch.float64, requires_grad=True)
        product = (dv.tensor.einsum("ij,j->i", matrix, y, backend=backend) ** 2).sum()
        torch.autograd.grad(product, y if matrix.grad_fn else (y, leaf), create_graph=True)


def test_programs_and_kernels():
    x = drawn(4)
    expected = torch.tanh(DENSE @ x)
    kernel = dv.tensor.compile(PRODUCT, formats={"A": "csr"})
    for call in (PRODUCT, kernel, dv.tensor.compile(PRODUCT, {"A": "csc", "X": "dense"}, output="torch")):
        found = call(A=A, X=x)
        torch.testing.assert_close(found, expected)
        torch.testing.assert_close(
            torch.autograd.grad(found.sum(), x), torch.autograd.grad(torch.tanh(DENSE @ x).sum(), x)
        )
    assert torch.autograd.gradgradcheck(lambda x: kernel(A=A, X=x), (x,))
    scores = dv.tensor.parse(
        "sum(<i, r> in A) { i -> sum(<j, a> in r) { j -> s * a * X(j) } }", {"A": M, "X": V, "s": S}
    )
    s = torch.tensor(1.5, dtype=torch.float64, requires_grad=True)
    found = dv.tensor.compile(scores)(A=A, X=x, s=s)
    assert found.layout == torch.sparse_coo
    torch.testing.assert_close(found.to_dense(), s * DENSE * x)
    found.to_dense().sum().backward()
    torch.testing.assert_close(s.grad, (DENSE * x).sum().detach())


def test_results_are_of_torch_with_and_without_gradients():
    x = drawn(4)
    with torch.no_grad():
        assert isinstance(PRODUCT(A=A, X=x), torch.Tensor)
        assert isinstance(dv.tensor.einsum("i,i->", x, x), torch.Tensor)
        assert isinstance(dv.tensor.compile(PRODUCT)(A=A, X=x), torch.Tensor)
    assert isinstance(PRODUCT(A=A, X=x.detach(), output="numpy"), np.ndarray)


def test_vmap_and_hessians():
    copies = drawn(3, 4).detach()
    found = torch.func.vmap(lambda x: dv.tensor.einsum("ij,j->i", A, x))(copies)
    torch.testing.assert_close(found, copies @ DENSE.T)
    found = torch.func.vmap(lambda x: PRODUCT(A=A, X=x))(copies)
    torch.testing.assert_close(found, torch.tanh(copies @ DENSE.T))
    found = torch.func.hessian(lambda x: dv.tensor.einsum("ij,ik,j,k->", A, A, x, x))(copies[0])
    torch.testing.assert_close(found, 2 * DENSE.T @ DENSE)


def test_other_semirings():
    roads = torch.tensor([1.0, 2.0, 3.0, 2.0], dtype=torch.float64, requires_grad=True)
    graph = torch.sparse_coo_tensor([[0, 0, 1, 2], [1, 2, 3, 3]], roads, (4, 4))
    ends = torch.zeros(4, dtype=torch.float64)
    found = dv.tensor.einsum("ij,jk,k->i", graph, graph, ends, semiring="min_plus")
    assert found.tolist() == [4.0, np.inf, np.inf, np.inf]
    found[0].backward()
    assert roads.grad.tolist() == [1.0, 0.0, 1.0, 0.0]


def test_in_jax():
    jax = pytest.importorskip("jax")
    with jax.enable_x64(True):
        x, dense = jax.numpy.asarray(drawn(4).detach().numpy()), jax.numpy.asarray(A.toarray())

        def ours(x):
            return dv.tensor.einsum("ij,j->i", A, jax.numpy.tanh(x)).sum() + PRODUCT(A=A, X=x).sum()

        def meant(x):
            return (dense @ jax.numpy.tanh(x)).sum() + jax.numpy.tanh(dense @ x).sum()

        np.testing.assert_allclose(jax.jit(jax.grad(ours))(x), jax.grad(meant)(x))
        found = jax.hessian(lambda x: dv.tensor.einsum("ij,ik,j,k->", A, A, x, x))(x)
        np.testing.assert_allclose(found, 2 * dense.T @ dense)
        found = jax.vmap(lambda x: dv.tensor.einsum("ij,j->i", A, x))(jax.numpy.stack([x, 2 * x]))
        np.testing.assert_allclose(found, np.stack([dense @ x, 2 * dense @ x]))
        scores = jax.jit(lambda x: dv.tensor.einsum("ij,j->ij", A, x))(x)
        np.testing.assert_allclose(scores.todense(), dense * x)


def test_sparse_arrays_of_jax_at_every_door():
    jax = pytest.importorskip("jax")
    sparse, numpy = pytest.importorskip("jax.experimental.sparse"), jax.numpy
    padded = sparse.BCOO.fromdense(numpy.asarray(DENSE.numpy()), nse=30)
    twice = sparse.BCOO((numpy.ones(3), numpy.array([[1, 0], [0, 1], [1, 0]])), shape=(6, 4))
    batched = sparse.BCOO.fromdense(numpy.asarray(DENSE.numpy()), n_batch=1)
    rows = sparse.BCOO.fromdense(numpy.asarray(DENSE.numpy()), n_dense=1)
    x = numpy.arange(1.0, 5.0)
    others = (sparse.BCSR.from_bcoo(padded.sum_duplicates()), sparse.CSR.fromdense(padded.todense()))
    for matrix in (padded, twice, batched, rows, *others):
        dense = np.asarray(matrix.todense())
        np.testing.assert_array_equal(coordinates(matrix).to_numpy(), dense)
        np.testing.assert_array_equal(dv.tensor.hold(matrix, "csr", 2).coordinates().to_numpy(), dense)
    for found in (
        PRODUCT(A=padded, X=x),
        PRODUCT(A=padded, X=np.asarray(x), output="numpy"),
        dv.tensor.compile(PRODUCT, {"A": "csr"})(A=padded, X=x),
        dv.tensor.compile(PRODUCT, backend="torch")(A=padded, X=np.array(x)),
        dv.tensor.Function(PRODUCT, constants={"A": padded})(X=x),
    ):
        np.testing.assert_allclose(found, np.tanh(DENSE.numpy() @ np.array(x)), rtol=1e-6)
    again = dv.tensor.einsum("ij,j->ij", dv.tensor.einsum("ij,j->ij", padded, x), 1 / x)
    np.testing.assert_allclose(again.todense(), DENSE, rtol=1e-6)
    values = coordinates(padded).values
    learnt = dv.tensor.Function(PRODUCT, patterns={"A": padded})
    found = learnt(A=numpy.asarray(values), X=x)
    np.testing.assert_allclose(found, np.tanh(DENSE.numpy() @ np.array(x)), rtol=1e-5)
    with pytest.raises(UnsupportedError, match=r"indices of the BCOO of `A` are traced"):
        jax.jit(lambda matrix: PRODUCT(A=matrix, X=x))(padded)
    shortest = dv.tensor.einsum("ij,j->i", twice, x, semiring="min_plus", output="numpy")
    np.testing.assert_array_equal(shortest, [3.0, 2.0, *[np.inf] * 4])
    np.testing.assert_allclose(dv.tensor.einsum("ij,j->i", twice, x), twice.todense() @ x)
    gradient = jax.grad(
        lambda data: dv.tensor.einsum("ij,j->i", sparse.BCOO((data, twice.indices), shape=(6, 4)), x)[1]
    )
    assert gradient(twice.data).tolist() == [1.0, 0.0, 1.0]
    with pytest.raises(DomainError, match="the input `A` is a BCOO, and the function takes dense arrays"):
        dv.tensor.Function(PRODUCT)(A=padded, X=x)


def test_errors():
    with pytest.raises(DomainError, match="'csr' records no gradients"):
        dv.tensor.einsum("ij,j->ij", A, drawn(4), output="csr")
    with pytest.raises(DomainError, match="'numpy' records no gradients"):
        PRODUCT(A=A, X=drawn(4), output="numpy")
    with pytest.raises(UnsupportedError, match="differentiated by its entries, and was declared `dense`"):
        dv.tensor.compile(PRODUCT, {"A": "dense"})(A=in_torch(A), X=drawn(4))


def product_of(kind, indices, values, shape):
    if kind == "coordinates":
        return dv.tensor.Coordinates(shape, indices, values)
    return torch.sparse_coo_tensor(torch.from_numpy(indices), values, shape, check_invariants=False)


@pytest.mark.parametrize("kind", ["coordinates", "torch"])
@pytest.mark.parametrize("output", ["dense", None])
def test_steps_of_training(kind, output):
    """What a step keeps is right for the next one: other values, other entries, indices that were changed in place, and
    another constant."""
    text = "ij,j->i" if output == "dense" else "ij,jk->ik"
    entries, rng = coordinates(A), np.random.default_rng(0)
    places = [entries.indices, entries.indices.copy(), coordinates(A.toarray()[::-1]).indices, entries.indices.copy()]
    for step, indices in enumerate([*places, *places[::-1], *places]):
        if step > 5 and kind == "coordinates":
            # The last entry of a row goes elsewhere, in the array that was there before.
            row = np.flatnonzero(indices[0] == indices[0, -1])
            free = [column for column in range(4) if column > (indices[1, row[:-1]].max() if len(row) > 1 else -1)]
            indices[1, -1] = free[step % len(free)]
        values = torch.from_numpy(rng.random(indices.shape[1])).requires_grad_()
        dense = torch.from_numpy(rng.random(4 if output == "dense" else (4, 3))).requires_grad_(step % 3 != 1)
        found = as_dense(dv.tensor.einsum(text, product_of(kind, indices, values, (6, 4)), dense))
        matrix = torch.zeros(6, 4, dtype=torch.float64).index_put(tuple(torch.from_numpy(indices.copy())), values)
        expected = matrix @ dense
        torch.testing.assert_close(found, expected)
        given = [values, dense] if dense.requires_grad else [values]
        weights = torch.from_numpy(rng.random(tuple(expected.shape)))
        for mine, theirs in zip(*(torch.autograd.grad((x * weights).sum(), given) for x in (found, expected))):
            torch.testing.assert_close(mine, theirs)


def test_steps_of_training_with_a_constant():
    matrix, weights = A.copy(), drawn(4)
    for change in (None, "values", None, "entries", "another"):
        if change == "values":
            matrix.data *= 3.0
        elif change == "entries":
            matrix = A.copy()
            matrix.indices[:] = coordinates(A.toarray()[:, ::-1]).indices[1]
        elif change == "another":
            matrix = A.power(2).tocsr()
        for output in ("dense", "torch_coo"):
            text = "ij,j->i" if output == "dense" else "ij,j->ij"
            found = as_dense(dv.tensor.einsum(text, matrix, weights, output=output))
            dense = torch.from_numpy(coordinates(matrix).to_numpy())
            expected = dense @ weights if output == "dense" else dense * weights
            torch.testing.assert_close(found, expected)
            mine, theirs = (torch.autograd.grad(x.square().sum(), [weights])[0] for x in (found, expected))
            torch.testing.assert_close(mine, theirs)


def test_entries_that_are_out_of_order_are_refused_after_right_ones():
    entries, values = coordinates(A), torch.ones(A.nnz, dtype=torch.float64, requires_grad=True)
    for _ in range(2):
        dv.tensor.einsum("ij,j->i", product_of("coordinates", entries.indices, values, (6, 4)), drawn(4))
    wrong = product_of("coordinates", entries.indices[:, ::-1], values, (6, 4))
    with pytest.raises(LayoutError, match="comes after one at"):
        dv.tensor.einsum("ij,j->i", wrong, drawn(4))
    short = product_of("coordinates", entries.indices, values[:-1], (6, 4))
    with pytest.raises(ShapeError, match=r"the indices of `operand 0` are"):
        dv.tensor.einsum("ij,j->i", short, drawn(4))
