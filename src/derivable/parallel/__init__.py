"""Floor 2: the parallel primitives, their meaning, shape rules and derivative rules. No device."""

from __future__ import annotations

from typing import TYPE_CHECKING

from derivable.core.lazy import lazy

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from derivable.algebra.monoid import Monoid
    from derivable.algebra.monoids import matrix_product, operator

    reduce: Callable[..., Any]
    reduce_by_index: Callable[..., Any]
    scan: Callable[..., Any]
    segment_reduce: Callable[..., Any]
    segmented_scan: Callable[..., Any]

__all__ = [
    "Monoid",
    "matrix_product",
    "operator",
    "reduce",
    "reduce_by_index",
    "scan",
    "segment_reduce",
    "segmented_scan",
]

# The folds need kernels, so they live on floor 3; users look for them here, where their operators are. These are
# names, not imports: nothing on this floor runs them.
_FOLDS = "derivable.bridge.folds"

__getattr__, __dir__ = lazy(
    __name__,
    {
        "Monoid": "derivable.algebra.monoid",
        "matrix_product": "derivable.algebra.monoids",
        "operator": "derivable.algebra.monoids",
        **dict.fromkeys(("reduce", "reduce_by_index", "scan", "segment_reduce", "segmented_scan"), _FOLDS),
    },
)
