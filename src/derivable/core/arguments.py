"""Checks of single arguments: the right type and range, or a DomainError that says what was expected."""

from __future__ import annotations

import numbers
from collections.abc import Iterable, Mapping
from typing import Any

from derivable.core.arrays import refuse_emptied
from derivable.core.diagnostics import DomainError, UnsupportedError


def is_integer(value: Any) -> bool:
    """Whether it is an integer of Python or NumPy; True and False are not."""
    return type(value) is int or (isinstance(value, numbers.Integral) and not isinstance(value, bool))


def integer(value: Any, name: str, low: int | None = None, high: int | None = None, *, hint: str | None = None) -> int:
    """`value` as an int if it is an integer within low..high (both allowed), else DomainError."""
    if is_integer(value) and (low is None or value >= low) and (high is None or value <= high):
        return int(value)
    if low is None:
        expected = "an integer" if high is None else f"an integer up to {high}"
    elif high is None:
        expected = {0: "a non-negative integer", 1: "a positive integer"}.get(low, f"an integer from {low} on")
    else:
        expected = f"an integer from {low} to {high}"
    shown = f"an array of shape {list(value.shape)}" if getattr(value, "shape", ()) else repr(value)
    if len(shown) > 100:
        shown = f"of type {type(value).__name__}"
    raise DomainError(f"{name} is {shown}, expected {expected}", hint=hint)


def seed_of(value: Any, name: str = "seed") -> int:
    """A seed, an integer of any size and sign, as 64 bits without a sign, which all generators take. Raises DomainError
    for anything else."""
    hint = "an integer of any size makes the same draws each time"
    if type(value).__name__ in ("Generator", "RandomState"):
        library = type(value).__module__.partition(".")[0]
        hint = f"an integer, which that generator of {library} may draw"
    return integer(value, name, hint=hint) % 2**64


def several(given: Any, name: str, example: str, what: str = "a list") -> Iterable[Any]:
    """What was given, if it is several, else DomainError: a text, a mapping, an array or a tensor is one thing.

    example  of what would be right, for the hint
    what     is expected
    """
    if isinstance(given, (str, Mapping)) or hasattr(given, "shape") or not isinstance(given, Iterable):
        kind = repr(given) if given is None or isinstance(given, (str, int, float)) else type(given).__name__
        raise DomainError(f"{name} is {kind}, expected {what}", hint=f"such as {name}={example}")
    return given


def check_on_cpu(value: Any, name: str, instead: str = "") -> None:
    """Raise UnsupportedError for a tensor of torch that is on another device than the CPU: nothing travels silently.

    instead  what computes on that device, for the hint
    """
    refuse_emptied(value, name)
    device = getattr(value, "device", None)
    if getattr(device, "type", "cpu") != "cpu":
        dtype, shape = str(value.dtype).removeprefix("torch."), list(value.shape)
        raise UnsupportedError(
            f"{name} is on {device} ({dtype}, shape {shape}), and this is computed on the CPU",
            hint=f"{instead + ', or ' if instead else ''}move it: `x.cpu()`",
        )
