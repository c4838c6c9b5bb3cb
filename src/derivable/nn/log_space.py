"""Going between probabilities and their logarithms without an epsilon and without NaN gradients."""

from __future__ import annotations

import torch

HALF_LOG = 0.6931471805599453


def log_of_probability(probability: torch.Tensor) -> torch.Tensor:
    """log(p) in nats for p in [0, 1], any shape, float32 or float64.

    The value is exact down to p = 0, where it is -inf. The derivative is 1/p where p is a normal
    number and 0 below it: there 1/p overflows, and what made p so small (a softmax, a sigmoid) has
    derivative 0 in the same precision, so that inf * 0 would give NaN instead of 0.
    """
    tiny = torch.finfo(probability.dtype).tiny
    normal = torch.log(probability.clamp_min(tiny))
    return torch.where(probability >= tiny, normal, torch.log(probability.detach()))


def log1mexp(log_probability: torch.Tensor) -> torch.Tensor:
    """log(1 - exp(x)) in nats for x <= 0: the log-probability of the complement; any shape.

    -inf at x = 0, 0 at x = -inf. Accurate on both sides of -log 2 (Mächler 2012, "Accurately
    computing log(1 - exp(-|a|))"). Values of x above 0, which rounding gives, count as 0. The
    derivative is 0 where the value is -inf.
    """
    x = log_probability.clamp_max(0.0)
    inside = x < 0
    # Each branch sees only arguments at which its own derivative is finite.
    near = inside & (x > -HALF_LOG)
    far = ~near
    middle = torch.full_like(x, -HALF_LOG)
    of_near = torch.log(-torch.expm1(torch.where(near, x, middle)))
    of_far = torch.log1p(-torch.exp(torch.where(far & inside, x, middle)))
    value = torch.where(near, of_near, of_far)
    return torch.where(inside, value, torch.full_like(x, -torch.inf))
