"""Floor 2: the parallel primitives, their meaning, shape rules and derivative rules. No device."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from derivable.parallel.dictionary import SemiringDictionary

__all__ = ["SemiringDictionary"]


def __getattr__(name: str) -> Any:
    if name == "SemiringDictionary":
        from derivable.parallel.dictionary import SemiringDictionary

        return SemiringDictionary
    raise AttributeError(f"module 'derivable.parallel' has no attribute {name!r}")
