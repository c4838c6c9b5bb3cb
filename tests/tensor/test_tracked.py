"""Einstein sums, programs and kernels of arrays that are differentiated, against dense torch and JAX."""

import numpy as np
import pytest
import scipy.sparse as sp

import derivable as dv
from derivable.core.diagnostics import DomainError, UnsupportedError
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
        matrix = torch.sparse_coo_tensor(places, values, (2, 2), check_invariants=False)
        return dv.tensor.einsum("ij,ik,k->j", matrix, matrix, x)

    assert torch.autograd.gradcheck(product, (values, x))
    assert torch.autograd.gradgradcheck(product, (values, x))


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


def test_errors():
    with pytest.raises(DomainError, match="'csr' records no gradients"):
        dv.tensor.einsum("ij,j->ij", A, drawn(4), output="csr")
    with pytest.raises(DomainError, match="'numpy' records no gradients"):
        PRODUCT(A=A, X=drawn(4), output="numpy")
    with pytest.raises(UnsupportedError, match="differentiated by its entries, and was declared `dense`"):
        dv.tensor.compile(PRODUCT, {"A": "dense"})(A=in_torch(A), X=drawn(4))
