"""Floor 1: scalar expressions and semirings with declared properties."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from derivable.algebra import expr, semirings
    from derivable.algebra.semiring import Semiring

__all__ = ["Semiring", "expr", "semirings"]


def __getattr__(name: str) -> Any:
    if name == "Semiring":
        from derivable.algebra.semiring import Semiring

        return Semiring
    if name in ("expr", "laws", "semirings", "compiled"):
        return importlib.import_module(f"derivable.algebra.{name}")
    raise AttributeError(f"module 'derivable.algebra' has no attribute {name!r}")
