"""log p and log(1 - p): values against 400-digit arithmetic, gradients never NaN."""

import math
from decimal import Decimal, getcontext

import pytest
import torch

from derivable.nn import log1mexp, log_of_probability

getcontext().prec = 400


@pytest.mark.parametrize("x", [-1e-12, -1e-6, -0.1, -0.6931471, -0.6931472, -1.0, -20.0, -700.0])
def test_log1mexp_is_accurate(x):
    exact = float((1 - Decimal(x).exp()).ln())
    got = float(log1mexp(torch.tensor(x, dtype=torch.float64)))
    assert got == pytest.approx(exact, rel=4e-16, abs=0)


def test_log1mexp_at_the_ends():
    x = torch.tensor([0.0, -torch.inf, 1e-7, -1e-30], dtype=torch.float64, requires_grad=True)
    y = log1mexp(x)
    assert y[0] == -torch.inf
    assert y[1] == 0
    assert y[2] == -torch.inf
    assert float(y[3].detach()) == pytest.approx(math.log(1e-30))
    y[[0, 1, 2]].sum().backward()
    assert torch.isfinite(x.grad).all()


def test_log1mexp_derivative():
    x = torch.tensor([-1e-3, -0.5, -0.7, -3.0, -30.0], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(log1mexp, x, eps=1e-8, rtol=1e-4)
    assert torch.autograd.gradgradcheck(log1mexp, x[1:4].detach().requires_grad_())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_log_of_probability(dtype):
    p = torch.tensor([1.0, 0.5, 1e-30, 0.0], dtype=dtype, requires_grad=True)
    y = log_of_probability(p)
    assert torch.equal(y[:3], torch.log(p[:3]))
    assert y[3] == -torch.inf
    y.sum().backward()
    assert torch.equal(p.grad, torch.tensor([1, 2, 1 / p[2].item(), 0], dtype=dtype))


def test_a_saturated_softmax_gets_a_gradient():
    scores = torch.tensor([0.0, 200.0], requires_grad=True)  # the first probability is 0 in float32
    log_of_probability(scores.softmax(-1))[1].backward()
    assert torch.isfinite(scores.grad).all()
    scores = torch.tensor([0.0, 100.0], requires_grad=True)  # subnormal
    log_of_probability(scores.softmax(-1)).sum().backward()
    assert torch.isfinite(scores.grad).all()
