"""Gradients of log-probabilities where inputs are 0, 1 or tiny: by the plain layer, by differences, and by hand."""

import numpy as np
import pytest
import torch

import derivable as dv

OR = "type a(i32) rel q()=a(0) or a(1)"
PATH = "type edge(i32, i32) rel path(a, b) = edge(a, b) or (path(a, c), edge(c, b))"
EDGES = [(0, 1), (1, 2), (0, 2)]
MIXED = "type a(i32) type d(i32) rel q(x) = d(x), a(x) rel r() = a(0), not q(1)"
MIXED_INPUTS = {"a": dv.independent([0, 1]), "d": dv.categorical([0, 1, 2])}
MIXED_OUTPUTS = {"q": [0, 1], "r": ()}
DTYPES = [torch.float32, torch.float64]


def gradient(value, *points):
    return [found.tolist() for found in torch.autograd.grad(value.sum(), points)]


def difference(function, point, step=1e-6):
    """One-sided where the other side is outside [0, 1]."""
    found = []
    for k in range(len(point)):
        low, high = list(point), list(point)
        low[k], high[k] = max(point[k] - step, 0.0), min(point[k] + step, 1.0)
        found.append(float(function(high) - function(low)) / (high[k] - low[k]))
    return found


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_disjunction(dtype):
    layer = dv.nn.Logic(OR, {"a": dv.independent([0, 1])}, {"q": ()})
    p = torch.tensor([[0.0, 0.5], [1.0, 0.5], [1e-30, 0.5]], dtype=dtype, requires_grad=True)
    np.testing.assert_allclose(gradient(layer.log(p), p), [[[1, 2], [0.5, 0], [1, 2]]], rtol=1e-6)


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_closure(dtype):
    layer = dv.nn.Logic(PATH, {"edge": dv.independent(EDGES)}, {"path": [(0, 2)]})
    p = torch.tensor([[1.0, 0.0, 0.5], [0.5, 0.5, 0.0]], dtype=dtype, requires_grad=True)
    np.testing.assert_allclose(gradient(layer.log(p), p), [[[0, 1, 2], [2, 2, 3]]], rtol=1e-6)


@pytest.mark.parametrize("point", [(0.0, 0.5), (1.0, 0.5), (0.5, 0.0), (1.0, 1.0)])
def test_choices_beside_independent_facts(point):
    layer = dv.nn.Logic(MIXED, MIXED_INPUTS, MIXED_OUTPUTS)
    a = torch.tensor(point, dtype=torch.float64, requires_grad=True)
    for shares in ([0.2, 0.3, 0.5], [0.0, 1.0, 0.0]):
        d = torch.tensor(shares, dtype=torch.float64, requires_grad=True)
        for name in ("q", "r"):
            plain, logs = layer(a, d)[name], layer.log(a, d)[name]
            known = (plain > 0).detach()
            expected = gradient(plain[known].log(), a, d)
            for one, other in zip(gradient(logs[known], a, d), expected):
                np.testing.assert_allclose(one, other, atol=1e-12)


def test_an_ascent_leaves_zero():
    layer = dv.nn.Logic(OR, {"a": dv.independent([0, 1])}, {"q": ()})
    p = torch.tensor([0.0, 0.5], requires_grad=True)
    for _ in range(20):
        (slope,) = torch.autograd.grad(layer.log(p), p)
        p = (p + 0.1 * slope).clamp(0, 1).detach().requires_grad_()
    assert float(layer(p)) == 1
    assert float(p[0].detach()) > 0.1


@pytest.mark.parametrize("wide", [False, True])
def test_log_probabilities_of_certain_facts(wide):
    """The slope of log(1 - exp(x)) is infinite at x = 0, and that of the output is not."""
    outputs = {"path": [(0, 2), (0, 1)] if wide else [(0, 2)]}
    layer = dv.nn.Logic(PATH, {"edge": dv.independent(EDGES)}, outputs, log_probabilities=True)
    plain = dv.nn.Logic(PATH, {"edge": dv.independent(EDGES)}, outputs)
    for row in ([1.0, 0.25, 0.5], [1.0, 1.0, 0.5], [0.5, 0.5, 1.0]):
        x = torch.tensor(row, dtype=torch.float64).log().requires_grad_()
        p = torch.tensor(row, dtype=torch.float64, requires_grad=True)
        # d/dx = p d/dp
        expected = [slope * share for slope, share in zip(gradient(plain(p).log(), p)[0], row)]
        np.testing.assert_allclose(gradient(layer(x), x)[0], expected, atol=1e-12)


def test_log_probabilities_of_choices_beside_certain_facts():
    layer = dv.nn.Logic(MIXED, MIXED_INPUTS, MIXED_OUTPUTS, log_probabilities=True)
    plain = dv.nn.Logic(MIXED, MIXED_INPUTS, MIXED_OUTPUTS)
    a, d = (torch.tensor(row, dtype=torch.float64) for row in ([1.0, 0.5], [0.2, 0.3, 0.5]))
    x, y = a.log().requires_grad_(), d.log().requires_grad_()
    a.requires_grad_(), d.requires_grad_()
    expected = [np.multiply(slope, p.tolist()) for slope, p in zip(gradient(plain(a, d)["r"].log(), a, d), (a, d))]
    for one, other in zip(gradient(layer(x, y)["r"], x, y), expected):
        np.testing.assert_allclose(one, other, atol=1e-12)


@pytest.mark.parametrize("point", [(0.0, 1.0, 0.5), (0.0, 0.0, 1.0), (1.0, 1.0, 0.0)])
@pytest.mark.parametrize("dtype", DTYPES)
def test_semantic_loss(point, dtype):
    a, b, c = dv.circuit.variables(3)
    formula = (a | c) & (b | ~a)

    def loss(row):
        p, q, r = row
        return -np.log(p * q + (1 - p) * r)

    p = torch.tensor(point, dtype=dtype, requires_grad=True)
    found = gradient(dv.nn.semantic_loss(formula, p), p)[0]
    np.testing.assert_allclose(found, difference(loss, point), rtol=1e-4, atol=1e-4)
    # By the logarithms: p d/dp.
    x = p.detach().log().requires_grad_()
    by_logs = gradient(dv.nn.semantic_loss(formula, x, inputs="log_probabilities"), x)[0]
    np.testing.assert_allclose(by_logs, np.multiply(found, point), atol=1e-5)


def test_semantic_loss_of_groups():
    a, _, c = dv.circuit.variables(3)
    loss = dv.nn.SemanticLoss(a | c, exclusive=[[1, 2]])
    p = torch.tensor([0.0, 1.0, 0.5], dtype=torch.float64, requires_grad=True)
    # P = p1 + p2 p3
    np.testing.assert_allclose(gradient(loss(p), p)[0], [-2, -1, -2], rtol=1e-12)


def test_a_loss_through_a_softmax_is_never_nan():
    layer = dv.nn.Logic("rel s(a + b) = d(a), e(b)", {n: dv.categorical(range(3)) for n in "de"}, {"s": range(5)})
    for gap in (90.0, 100.0, 104.0, 200.0, 1e4):
        scores = torch.tensor([[0.0, gap, 1.0], [1.0, 0.0, gap]], requires_grad=True)
        p, q = scores.softmax(-1)
        torch.nn.functional.nll_loss(layer.log(p, q)[None], torch.tensor([1])).backward()
        assert torch.isfinite(scores.grad).all()


@pytest.mark.parametrize("varies", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
def test_the_log_semiring(varies, dtype):
    """log(a0 + a1), and log(1 - a0) where a tuple is negated."""
    program = "type a(i32) rel q() = a(0) or a(1) rel n() = not a(0) rel b() = a(0), a(1)"
    inputs = {"a": dv.varying() if varies else dv.independent([0, 1])}
    layer = dv.nn.Logic(program, inputs, {"q": (), "n": (), "b": ()}, provenance="log")
    p = torch.tensor([0.0, 0.5], dtype=dtype, requires_grad=True)
    found = layer(a=[([0, 1], p)] if varies else p)
    for name, expected in (("q", [2, 2]), ("n", [-1, 0]), ("b", [0, 0])):
        (slope,) = torch.autograd.grad(found[name].sum(), p, retain_graph=True)
        np.testing.assert_allclose(slope, expected, rtol=1e-6)
    assert float(found["b"].sum()) == -np.inf


def test_the_log_semiring_far_below():
    program = "rel q() = a(0), a(1), a(2) rel n() = q(), not a(3)"
    layer = dv.nn.Logic(program, {"a": dv.independent(range(4))}, {"q": (), "n": ()}, provenance="log")
    p = torch.tensor([1e-160, 1e-160, 1e-160, 0.0], dtype=torch.float64, requires_grad=True)
    found = layer(p)
    expected = 3 * np.log(1e-160)
    np.testing.assert_allclose([float(found["q"]), float(found["n"])], expected, rtol=1e-14)
    np.testing.assert_allclose(gradient(found["n"], p)[0], [1e160, 1e160, 1e160, -1], rtol=1e-12)


def test_the_log_semiring_in_jax():
    jax = pytest.importorskip("jax")
    function = dv.nn.logic_function("rel q() = a(0) or a(1)", {"a": dv.independent([0, 1])}, {"q": ()}, "log")
    np.testing.assert_allclose(jax.grad(lambda p: function(a=p))(np.float32([0, 0.5])), [2, 2], rtol=1e-6)
