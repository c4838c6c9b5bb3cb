"""The record of a parallel primitive."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Primitive:
    """One parallel primitive: its meaning, its shape rule and its derivative rules.

    reference   the slow and obvious NumPy function that says what it means
    shape_rule  shapes of its array arguments -> shapes of its results; None for a length that depends on data
    vjp         (adjoint of the results, arguments ...) -> adjoint of the differentiable arguments
    jvp         (tangent of the differentiable arguments, arguments ...) -> tangent of the results
    note        what has a derivative, and what has none and why
    """

    name: str
    reference: Callable
    shape_rule: Callable
    vjp: Callable | None
    jvp: Callable | None
    note: str
