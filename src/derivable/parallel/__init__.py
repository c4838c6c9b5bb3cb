"""Floor 2: the parallel primitives, their meaning, shape rules and derivative rules. No device."""

from __future__ import annotations

from typing import TYPE_CHECKING

from derivable.core.lazy import lazy

if TYPE_CHECKING:
    from derivable.parallel.dictionary import SemiringDictionary

__all__ = ["SemiringDictionary"]

__getattr__, __dir__ = lazy(__name__, {"SemiringDictionary": "derivable.parallel.dictionary"})
