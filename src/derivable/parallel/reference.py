"""All primitives and their derivative rules in one namespace: what every device offers under the same names."""

from derivable.parallel.folds import reduce_by_index, scan, segment_reduce
from derivable.parallel.gather import gather, gather_jvp, gather_vjp
from derivable.parallel.join import join
from derivable.parallel.sort import sort, sort_jvp, sort_vjp
from derivable.parallel.unique import unique, unique_jvp, unique_vjp

__all__ = [
    "gather",
    "gather_jvp",
    "gather_vjp",
    "join",
    "reduce_by_index",
    "scan",
    "segment_reduce",
    "sort",
    "sort_jvp",
    "sort_vjp",
    "unique",
    "unique_jvp",
    "unique_vjp",
]
