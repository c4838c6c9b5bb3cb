"""Checking the numbers that a network hands over, with messages that say which and where."""

from __future__ import annotations

from collections.abc import Mapping, Sized
from typing import TYPE_CHECKING, Any

import torch

from derivable.bridge.torch import check_computable, is_captured
from derivable.bridge.torch_parts import physical
from derivable.core.diagnostics import DomainError, ShapeError, UnsupportedError, outside
from derivable.nn.declared import unfit_batches

if TYPE_CHECKING:
    from derivable.datalog.tags.carrier import Carrier

TOLERANCE = {torch.float16: 2e-3, torch.bfloat16: 1e-2, torch.float32: 1e-5, torch.float64: 1e-9}
"""How far outside [0, 1] a probability may be: what rounding in a softmax or a sum gives."""


def require_computable(tensor: torch.Tensor, what: str) -> None:
    """Raise UnsupportedError for a tensor that torch stores and does not compute with, or that has no numbers."""
    check_computable(tensor, what)
    if tensor.is_meta and not is_captured():
        raise UnsupportedError(f"{what} is on the meta device, without numbers", hint="make it on a device with memory")


def require_fact_axis(name: str, tensor: Any, facts: Sized) -> None:
    """Raise ShapeError for anything but a dense tensor of real numbers [*batch, fact]."""
    if not isinstance(tensor, torch.Tensor):
        raise ShapeError(f"input {name!r} is a {type(tensor).__name__}, not a tensor", hint="torch.as_tensor(...)")
    require_computable(tensor, f"input {name!r}")
    if tensor.dim() == 0 or tensor.shape[-1] != len(facts):
        raise ShapeError(
            f"input {name!r} has shape {list(tensor.shape)}; {facts!r} needs [*batch, {len(facts)}]",
            hint=f"the last dimension is one probability for each of the {len(facts)} facts of {name}",
        )
    if tensor.layout is not torch.strided:
        raise ShapeError(f"input {name!r} is sparse; probabilities are dense", hint=f"{name}.to_dense()")
    if tensor.is_complex():
        raise ShapeError(f"input {name!r} is complex; probabilities are real")


def batch_shape(tensors: Mapping[str, torch.Tensor]) -> tuple[int, ...]:
    """The batch shape of tensors [*batch, fact]. Raises ShapeError where theirs do not broadcast."""
    if not tensors:
        return ()
    first, *others = [tensor.shape[:-1] for tensor in tensors.values()]
    if all(shape == first for shape in others):
        return tuple(first)
    try:
        return tuple(torch.broadcast_shapes(first, *others))
    except RuntimeError:
        raise unfit_batches({name: tensor.shape for name, tensor in tensors.items()}) from None


def require_probabilities(name: str, values: torch.Tensor, hint: str | None = None) -> None:
    """Raise DomainError unless all values [...] are in [0, 1] up to `TOLERANCE`; NaN is named as such.

    Nothing is checked while a graph is made: a branch on values would break the graph.
    """
    if is_captured() or values.numel() == 0:
        return
    tolerance = TOLERANCE.get(values.dtype, 1e-5)
    lowest, highest = _ends(physical(values))
    if lowest >= -tolerance and highest <= 1 + tolerance:
        return
    raise _outside(
        name, physical(values), -tolerance, 1 + tolerance, "a probability in [0, 1]", hint or _PROBABILITY_HINT
    )


def require_numbers(name: str, values: torch.Tensor) -> None:
    """Raise DomainError if one of the values [...] is NaN. Nothing is checked while a graph is made."""
    if is_captured() or values.numel() == 0 or not bool(physical(values).isnan().any()):
        return
    raise _outside(name, physical(values), -torch.inf, torch.inf, "a number", "")


ROUNDING_OF_SUMS = {torch.float16: 2e-3, torch.bfloat16: 1e-2}
"""How far from one the sum of a choice's probabilities may be, 1e-3 for the wider types."""
PART = 1 << 13
"""Rows whose sums are looked at together."""


_FACTORS_HINT = (
    "for factors, which need not be normalised, declare `dv.categorical(values, factors=True)`, "
    "and for facts that do not exclude each other `dv.independent`"
)


def require_distributions(name: str, values: torch.Tensor, in_logs: bool, otherwise: str = _FACTORS_HINT) -> None:
    """Raise DomainError unless each row [*batch, value] of probabilities, or of logarithms of such, adds up to one.

    otherwise  how the caller takes rows that are no distributions, the end of the hint

    Nothing is checked while a graph is made.
    """
    if is_captured() or values.numel() == 0:
        return
    tolerance = ROUNDING_OF_SUMS.get(values.dtype, 1e-3)
    rows = values.detach()
    # Rows in parts: an array of all sums made the allocator of torch give other pages back in each step.
    parts = rows.split(PART) if rows.dim() > 1 and rows.is_cpu else (rows,)
    ends = [_ends(_sums(part, in_logs)) for part in parts]
    if all(lowest >= 1 - tolerance and highest <= 1 + tolerance for lowest, highest in ends):
        return
    sums = _sums(rows, in_logs)
    wrong = (sums - 1).abs() > tolerance
    place = wrong.nonzero()[0].tolist()
    row = f"row {place} of {name}" if place else name
    others = f" ({int(wrong.sum())} of {sums.numel()} rows do not add up to one)" if sums.numel() > 1 else ""
    function = "log_softmax" if in_logs else "softmax"
    raise DomainError(
        f"{row} adds up to {float(sums[tuple(place)]):.6g}, and the probabilities of a choice add up to one{others}",
        hint=f"apply {function}(-1) to the scores; {otherwise}",
    )


def _sums(rows: torch.Tensor, in_logs: bool) -> torch.Tensor:
    """The sums [*batch] of rows as they are seen inside torch.func's transformations, where the last axis may be
    another one."""
    with torch.no_grad():
        rows = rows.float() if rows.dtype in ROUNDING_OF_SUMS else rows
        return physical(rows.logsumexp(-1).exp() if in_logs else rows.sum(-1))


def require_factors(name: str, values: torch.Tensor) -> None:
    """Raise DomainError unless all values [...] are weights, from 0 on; NaN is named as such."""
    if is_captured() or values.numel() == 0:
        return
    tolerance = TOLERANCE.get(values.dtype, 1e-5)
    lowest, highest = _ends(physical(values))
    if lowest >= -tolerance and highest < torch.inf:
        return
    high = torch.finfo(torch.float64).max
    raise _outside(
        name, physical(values), -tolerance, high, "a factor, from 0 on", "give weights that are not negative"
    )


def _ends(values: torch.Tensor) -> list[float]:
    """The smallest and the largest value, NaN if there is one; a device is waited for once."""
    return torch.stack(torch.aminmax(values)).tolist()


def require_tags(name: str, values: torch.Tensor, carrier: Carrier) -> None:
    """Raise DomainError unless all values [...] may be tags of facts under a provenance: probabilities, or numbers of
    the semiring's domain and its zero and one, none of them NaN. Nothing is checked while a graph is made."""
    record = carrier.semiring
    if carrier.takes_anything:
        return
    if carrier.has_probabilities or (record is not None and record.carrier == "bool"):
        require_probabilities(name, values)
        return
    if is_captured() or values.numel() == 0:
        return
    assert record is not None
    low, high = record.domains[0] if record.is_scalar and record.fact is None else (-torch.inf, torch.inf)
    numbers = physical(values)
    lowest, highest = _ends(numbers)
    if lowest >= low and highest <= high:
        return
    if record.is_scalar:
        # The neutral elements need not be inside.
        numbers = torch.where((numbers == record.zero) | (numbers == record.one), max(low, min(0.0, high)), numbers)
    if bool(((numbers >= low) & (numbers <= high)).all()):
        return
    wanted = f"in {low:g} to {high:g}, the domain of the semiring {carrier.name!r}"
    raise _outside(name, numbers, low, high, wanted, "give values of the semiring")


def require_log_probabilities(name: str, values: torch.Tensor, hint: str | None = None) -> None:
    """Raise DomainError unless all values [...] are at most 0 up to `TOLERANCE`; -inf is allowed, NaN is not."""
    if is_captured() or values.numel() == 0:
        return
    tolerance = TOLERANCE.get(values.dtype, 1e-5)
    if bool(physical(values).max() <= tolerance):
        return
    raise _outside(name, physical(values), -torch.inf, tolerance, "a log-probability, at most 0", hint or _LOG_HINT)


_PROBABILITY_HINT = "apply softmax(-1) to the scores of a categorical input, sigmoid to those of independent facts"
_LOG_HINT = "apply log_softmax(-1) to the scores of a categorical input, logsigmoid to those of independent facts"


def _outside(name: str, values: torch.Tensor, low: float, high: float, wanted: str, hint: str) -> DomainError:
    bad = ~((values >= low) & (values <= high))
    place = bad.nonzero()[0].tolist()
    value = float(values[tuple(place)])
    count = int(bad.sum())
    what = "NaN" if value != value else f"{outside(value, low, high)}, which is not {wanted}"
    return DomainError(
        f"{name}{place} is {what} ({count} of {values.numel()} values are out of range)"
        if count > 1
        else f"{name}{place} is {what}",
        hint="look for a division by zero or a learning rate that is too high" if value != value else hint,
    )
