"""The CPU device: the primitives of `derivable.parallel.reference` as Numba kernels, under the same names.

The meaning of each function is its reference's docstring. Results have the same bits for the same
input and number of threads (`device.cpu.threads`).
"""

from derivable.device.cpu.folds import (
    reduce_by_index,
    reduce_by_index_jvp,
    reduce_by_index_vjp,
    scan,
    scan_jvp,
    scan_vjp,
    segment_reduce,
    segment_reduce_jvp,
    segment_reduce_vjp,
)
from derivable.device.cpu.rows import (
    gather,
    gather_jvp,
    gather_vjp,
    join,
    sort,
    sort_jvp,
    sort_vjp,
    unique,
    unique_jvp,
    unique_vjp,
)

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
