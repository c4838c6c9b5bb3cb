"""Scalar expressions and semirings with declared properties."""

from __future__ import annotations

from typing import TYPE_CHECKING

from derivable.core.lazy import lazy

if TYPE_CHECKING:
    from derivable.algebra import expr, semirings
    from derivable.algebra.pairs import dual
    from derivable.algebra.semiring import Semiring

__all__ = ["Semiring", "dual", "expr", "semirings"]

__getattr__, __dir__ = lazy(
    __name__,
    {"Semiring": "derivable.algebra.semiring", "dual": "derivable.algebra.pairs"},
    ("expr", "laws", "semirings"),
)
