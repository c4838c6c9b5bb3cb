"""Checking the numbers that a network hands over, with messages that say which and where."""

from __future__ import annotations

import torch

from derivable.bridge.torch import physical
from derivable.core.diagnostics import DomainError

TOLERANCE = {torch.float16: 2e-3, torch.bfloat16: 1e-2, torch.float32: 1e-5, torch.float64: 1e-9}
"""How far outside [0, 1] a probability may be: what rounding in a softmax or a sum gives."""


def require_probabilities(name: str, values: torch.Tensor) -> None:
    """Raise DomainError unless all values [...] are in [0, 1] up to `TOLERANCE`; NaN is named as such.

    Nothing is checked while torch.compile traces: a branch on values would break the graph.
    """
    if torch.compiler.is_compiling() or values.numel() == 0:
        return
    tolerance = TOLERANCE.get(values.dtype, 1e-5)
    lowest, highest = torch.aminmax(physical(values))
    if lowest.item() >= -tolerance and highest.item() <= 1 + tolerance:
        return
    raise _outside(name, physical(values), -tolerance, 1 + tolerance, "a probability in [0, 1]", _PROBABILITY_HINT)


def require_log_probabilities(name: str, values: torch.Tensor) -> None:
    """Raise DomainError unless all values [...] are at most 0 up to `TOLERANCE`; -inf is allowed, NaN is not."""
    if torch.compiler.is_compiling() or values.numel() == 0:
        return
    tolerance = TOLERANCE.get(values.dtype, 1e-5)
    if bool(physical(values).max() <= tolerance):
        return
    raise _outside(name, physical(values), -torch.inf, tolerance, "a log-probability, at most 0", _LOG_HINT)


_PROBABILITY_HINT = "apply softmax(-1) to the scores of a categorical input, sigmoid to those of independent facts"
_LOG_HINT = "apply log_softmax(-1) to the scores of a categorical input, logsigmoid to those of independent facts"


def _outside(name: str, values: torch.Tensor, low: float, high: float, wanted: str, hint: str) -> DomainError:
    bad = ~((values >= low) & (values <= high))
    place = bad.nonzero()[0].tolist()
    value = float(values[tuple(place)])
    count = int(bad.sum())
    what = "NaN" if value != value else f"{value:.6g}, which is not {wanted}"
    return DomainError(
        f"{name}{place} is {what} ({count} of {values.numel()} values are out of range)"
        if count > 1
        else f"{name}{place} is {what}",
        hint="look for a division by zero or a learning rate that is too high" if value != value else hint,
    )
