"""All primitives and their derivative rules in one namespace: what every device offers under the same names."""

from derivable.parallel.gather import gather, gather_jvp, gather_vjp
from derivable.parallel.index_folds import reduce_by_index, reduce_by_index_jvp, reduce_by_index_vjp
from derivable.parallel.join import join
from derivable.parallel.scans import scan, scan_jvp, scan_vjp
from derivable.parallel.segment_folds import segment_reduce, segment_reduce_jvp, segment_reduce_vjp
from derivable.parallel.sort import sort, sort_jvp, sort_vjp
from derivable.parallel.unique import unique, unique_jvp, unique_vjp

__all__ = [
    "gather",
    "gather_jvp",
    "gather_vjp",
    "join",
    "reduce_by_index",
    "reduce_by_index_jvp",
    "reduce_by_index_vjp",
    "scan",
    "scan_jvp",
    "scan_vjp",
    "segment_reduce",
    "segment_reduce_jvp",
    "segment_reduce_vjp",
    "sort",
    "sort_jvp",
    "sort_vjp",
    "unique",
    "unique_jvp",
    "unique_vjp",
]
