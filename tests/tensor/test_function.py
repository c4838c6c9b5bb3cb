"""Programs as functions of torch tensors and JAX arrays, against dense autograd."""

import numpy as np
import pytest
import scipy.sparse as sp

import derivable as dv
from derivable.core.diagnostics import DomainError, ShapeError, UnsupportedError

torch = pytest.importorskip("torch")
M, V, S = dv.tensor.matrix, dv.tensor.vector, dv.tensor.scalar
A = sp.random(6, 4, 0.5, format="csr", random_state=0)
DENSE = torch.from_numpy(A.toarray())
LAYER = dv.tensor.parse("sum(<i, r> in A) { i -> tanh(sum(<j, a> in r) a * X(j)) * s }", {"A": M, "X": V, "s": S})


def inputs():
    torch.manual_seed(0)
    x = torch.randn(4, dtype=torch.float64, requires_grad=True)
    return x, torch.tensor(1.5, dtype=torch.float64, requires_grad=True)


def test_of_a_constant_matrix():
    layer = dv.tensor.Function(LAYER, {"A": A})
    x, s = inputs()
    rows = (DENSE != 0).any(1)
    torch.testing.assert_close(layer(X=x, s=s), torch.tanh(DENSE @ x) * s * rows)
    assert torch.autograd.gradcheck(lambda x, s: layer(X=x, s=s), (x, s))
    assert torch.autograd.gradgradcheck(lambda x, s: layer(X=x, s=s), (x, s))


def test_of_the_values_of_a_matrix():
    layer = dv.tensor.Function(LAYER, patterns={"A": A})
    x, s = inputs()
    values = torch.from_numpy(A.data.copy()).requires_grad_()
    assert torch.autograd.gradcheck(lambda v, x, s: layer(A=v, X=x, s=s), (values, x, s))
    layer(A=values, X=x, s=s).sum().backward()
    dense = DENSE.clone().requires_grad_()
    (torch.tanh(dense @ x) * s).sum().backward()
    torch.testing.assert_close(values.grad, dense.grad[A.nonzero()])


def test_of_a_sparse_result():
    program = dv.tensor.parse(
        "sum(<i, r> in A) { i -> sum(<j, a> in r) { j -> a * U(i) * X(j) } }", {"A": M, "U": V, "X": V}
    )
    scores = dv.tensor.Function(program, {"A": A})
    u, x = torch.randn(6, dtype=torch.float64, requires_grad=True), inputs()[0]
    found = scores(U=u, X=x)
    pattern = scores.pattern(U=(6,), X=(4,))
    torch.testing.assert_close(found, (DENSE * torch.outer(u, x))[tuple(pattern.indices)])
    assert torch.autograd.gradcheck(lambda u, x: scores(U=u, X=x), (u, x))
    assert torch.autograd.gradgradcheck(lambda u, x: scores(U=u, X=x), (u, x))


def test_of_a_result_whose_entries_move():
    program = dv.tensor.parse("sum(<i, x> in X) if x < 0.5 then { i -> x * s }", {"X": V, "s": S})
    s = torch.tensor(2.0, dtype=torch.float64, requires_grad=True)
    x = torch.tensor([0.2, 1.0], dtype=torch.float64, requires_grad=True)
    sparse = dv.tensor.Function(program, output="coordinates")
    with pytest.raises(UnsupportedError, match=r"an entry at \(0,\), where it had none"):
        sparse(X=x, s=s)
    dense = dv.tensor.Function(program)
    assert torch.autograd.gradcheck(lambda x, s: dense(X=x, s=s), (x, s))


def test_forward_mode_and_hessians():
    layer = dv.tensor.Function(LAYER, {"A": A})
    x, s = (value.detach() for value in inputs())
    found = torch.func.jacfwd(lambda x: layer(X=x, s=s))(x)
    torch.testing.assert_close(found, torch.func.jacfwd(lambda x: torch.tanh(DENSE @ x) * s)(x))
    found = torch.func.hessian(lambda x: layer(X=x, s=s).sum())(x)
    torch.testing.assert_close(found, torch.func.hessian(lambda x: (torch.tanh(DENSE @ x) * s).sum())(x))


def test_in_jax():
    jax = pytest.importorskip("jax")
    with jax.enable_x64(True):
        layer = dv.tensor.Function(LAYER, {"A": A})
        x, dense = jax.numpy.asarray(inputs()[0].detach().numpy()), jax.numpy.asarray(A.toarray())

        def ours(x):
            return layer(X=x, s=jax.numpy.asarray(1.5)).sum()

        def meant(x):
            return (jax.numpy.tanh(dense @ x) * 1.5).sum()

        np.testing.assert_allclose(jax.jit(ours)(x), meant(x))
        np.testing.assert_allclose(jax.jit(jax.grad(ours))(x), jax.grad(meant)(x))
        np.testing.assert_allclose(jax.hessian(ours)(x), jax.hessian(meant)(x), atol=1e-12)


def test_errors():
    with pytest.raises(DomainError, match="no input `B`"):
        dv.tensor.Function(LAYER, {"B": A})
    with pytest.raises(DomainError, match="takes X, s, and was given X"):
        dv.tensor.Function(LAYER, {"A": A})(X=inputs()[0])
    with pytest.raises(ShapeError, match=f"`A` has {A.nnz} entries"):
        dv.tensor.Function(LAYER, patterns={"A": A})(A=torch.ones(2), X=inputs()[0], s=inputs()[1])


@pytest.mark.parametrize("output", ["numpy", "coordinates"])
def test_by_gathers(output):
    text = "sum(<i, r> in A) { i -> sum(<j, a> in r) { j -> a * U(i) * X(j) } }"
    program = dv.tensor.parse(text, {"A": M, "U": V, "X": V})
    u, values = torch.randn(6, dtype=torch.float64), torch.from_numpy(A.data.copy()).requires_grad_()
    x = inputs()[0]
    by_kernels = dv.tensor.Function(program, {"U": u}, {"A": A}, output=output)
    by_gathers = dv.tensor.Function(program, {"U": u}, {"A": A}, output=output, backend="torch")
    found, expected = by_gathers(A=values, X=x), by_kernels(A=values, X=x)
    torch.testing.assert_close(found, expected)
    for ours, theirs in zip(*(torch.autograd.grad((y**2).sum(), (values, x)) for y in (found, expected))):
        torch.testing.assert_close(ours, theirs)
    # Tensors without data, which no kernel can read.
    elsewhere = by_kernels(A=torch.ones(A.nnz, device="meta"), X=torch.ones(4, device="meta"))
    assert (elsewhere.device.type, elsewhere.shape) == ("meta", found.shape)
    with pytest.raises(ShapeError, match=f"`A` has {A.nnz} entries"):
        by_gathers(A=torch.ones(2), X=x)
    with pytest.raises(DomainError, match="the backend is 'cuda'"):
        dv.tensor.Function(program, backend="cuda")


@pytest.mark.parametrize("backend", [None, "torch"])
def test_dictionaries_are_as_large_as_what_they_meet(backend):
    entries, x = {0: {1: 2.0}, 2: {0: 1.0}}, torch.arange(1.0, 5.0)
    program = dv.tensor.parse("sum(<i, r> in A) { i -> sum(<j, a> in r) a * X(j) * w(i) }", {"A": 2, "X": 1, "w": 1})
    for w in (torch.ones(3), torch.ones(5)):
        expected = [4.0, 0.0, 1.0, 0.0, 0.0][: len(w)]
        fixed = dv.tensor.Function(program, constants={"A": entries}, backend=backend)
        assert fixed(X=x, w=w).tolist() == expected
        assert fixed(X=torch.arange(1.0, 4.0), w=w).tolist() == expected
        learnt = dv.tensor.Function(program, patterns={"A": entries}, backend=backend)
        values = torch.tensor([2.0, 1.0], requires_grad=True)
        found = learnt(A=values, X=x, w=w)
        assert found.tolist() == expected
        assert torch.autograd.grad(found.sum(), values)[0].tolist() == [2.0, 1.0]
    with pytest.raises(dv.DerivableError, match="of 1, and axis 1 of `A`, of 2"):
        fixed(X=torch.ones(1), w=w)
    by_entries = dv.tensor.gradient(
        dv.tensor.parse("sum(<i, r> in X) sum(<j, a> in r) a * w(j)", {"X": 2, "w": 1}), "X"
    )
    with pytest.raises(dv.DerivableError, match=r"`X` is a dict, whose axes have no length") as raised:
        by_entries(X={0: {0: 1.0}}, w=np.ones(2), output="numpy")
    assert "dv.tensor.coordinates(X, shape=...)" in str(raised.value)
