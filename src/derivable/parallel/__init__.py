"""The parallel primitives: meaning, shape rules, derivative rules, lowering to kernels, the table of them."""

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

__getattr__, __dir__ = lazy(
    __name__,
    {
        "Monoid": "derivable.algebra.monoid",
        "matrix_product": "derivable.algebra.monoids",
        "operator": "derivable.algebra.monoids",
    },
)
