"""The compiled kernels of folds of elements: for each operator and purpose a schedule, a lowering, a jitted function.

Arrays are flat: scalar c of leaf l of the element at (row, column) is `v_l[(row * width + column) * size_l + c]`.
A kernel works on rows (or segments) start..stop and columns first..last and allocates nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from derivable.algebra.expr.nodes import Apply, Expr, in_order
from derivable.algebra.recurrence import recurrence_of
from derivable.algebra.typed import TypedMonoid
from derivable.device.cpu.llvm_code import compile_kernel
from derivable.kernel.lines import has_line_form
from derivable.kernel.schedule import Schedule
from derivable.parallel import index_kernels, log_sum_kernels, segment_kernels
from derivable.parallel.fold_kernels import only_selects, widened
from derivable.parallel.log_sum_kernels import LogSumScan, is_log_sum, segment_log_sums, segment_log_sums_back
from derivable.parallel.scan_kernels import scan_back_kernel, scan_kernel

# How many rows ahead buckets beyond a near cache are prefetched: of one column, of one column where even the
# next cache is too small, and of several columns.
AHEAD, FARTHER_AHEAD, WIDE_AHEAD = 40, 96, 16
# What lanes compute one after the other, or in many steps.
_SLOW_ON_LINES = {"exp", "expm1", "log", "log1p", "log1mexp", "logaddexp", "power", "sin", "cos", "tanh", "sigmoid"}
# A scan by lines holds some five lines of each component at a time.
_MOST_COMPONENTS = 6
# The kernels of an operator by its key, the purpose and its options.
_kernels: dict[tuple, Callable] = {}

BY_INDEX = {
    "index": index_kernels.index_kernel,
    "index_prefixes": partial(index_kernels.index_kernel, keeps=True),
    "index_back": index_kernels.index_back_kernel,
    "index_winners": index_kernels.index_winners_kernel,
    "merge": index_kernels.merge_kernel,
    "merge_winners": index_kernels.merge_winners_kernel,
    "merge_back": index_kernels.merge_back_kernel,
}


def compiled_scan(op: TypedMonoid, single: bool, reverse: bool, back: bool) -> Callable:
    """The jitted kernel of `scan_kernel`, or of `scan_back_kernel`.

    single  for one column
    """
    lower = scan_back_kernel if back else scan_kernel
    options = ("scan", single, reverse, back)
    kind = LogSumScan if is_log_sum(op, single) else None
    return _compiled(op, options, lambda: lower(op, scan_schedule(op, single, back), single, reverse, kind))


def compiled_segments(op: TypedMonoid, single: bool, back: bool) -> Callable:
    """The jitted kernel of `segment_kernel`, or of `segment_back_kernel`."""
    options = ("segment", single, back)
    if is_log_sum(op, single):
        return _compiled(op, options, lambda: (segment_log_sums_back if back else segment_log_sums)(op))
    lower = segment_kernels.segment_back_kernel if back else segment_kernels.segment_kernel
    return _compiled(op, options, lambda: lower(op, segment_schedule(op, single, back), single))


def compiled_by_index(
    op: TypedMonoid, purpose: str, single: bool, ahead: int = 0, indices: str = "int64", rows: str = "int64"
) -> Callable:
    """The jitted kernel of a purpose, a key of `BY_INDEX`.

    ahead    how many rows ahead buckets of one column are prefetched; 0 for buckets of any that fit a near cache
    indices  the dtype of the indices
    rows     the dtype of row numbers
    """
    ahead = ahead if single or not ahead else WIDE_AHEAD
    compares = purpose in ("index", "index_winners") and single and not ahead and op.special in ("min", "max")
    schedule = Schedule(prefetch=ahead, unroll=4 if compares else 1)
    options = (purpose, single, ahead, indices, rows)
    return _compiled(op, options, lambda: BY_INDEX[purpose](op, schedule, single, indices, rows))


def _compiled(op: TypedMonoid, options: tuple, lower: Callable) -> Callable:
    # An operator that has run finds its kernels by itself; the key is as long as its expressions.
    mine = op.__dict__.setdefault("kernels", {})
    found = mine.get(options)
    if found is None:
        key = (op.key, op.neutral, options)
        found = _kernels.get(key)
        if found is None:
            found = _kernels[key] = compile_kernel(lower())
        mine[options] = found
    return found


def scan_schedule(op: TypedMonoid, single: bool, back: bool = False) -> Schedule:
    """How a scan runs on lanes, or its reverse rule: float64 in between, unless nothing is computed."""
    if is_log_sum(op, single):
        return log_sum_kernels.SCHEDULE
    wide = widened(op)
    exprs, size = list(wide.values), op.size
    if back:
        recurrence = recurrence_of(wide)
        exprs = [*recurrence.entries, *recurrence.operator.values, *wide.adjoints.right]
        size = recurrence.operator.size
    if not single or size > _MOST_COMPONENTS or set(op.leaf_sizes) != {1} or not _works_on_lines(exprs):
        return Schedule()
    return Schedule(lanes=16, widen=back, guard=True) if _keeps_type(op) else Schedule(lanes=8, widen=True, guard=True)


def segment_schedule(op: TypedMonoid, single: bool, back: bool = False) -> Schedule:
    """How segments are folded on lanes, or their reverse rule goes through them."""
    if is_log_sum(op, single):
        return log_sum_kernels.SCHEDULE
    if back or not single or not segment_kernels.goes_by_lines(op) or not _works_on_lines(widened(op).values):
        return Schedule()
    return Schedule(lanes=16, guard=True) if _keeps_type(op) else Schedule(lanes=8, widen=True, guard=True)


def _keeps_type(op: TypedMonoid) -> bool:
    """Whether float32 stays float32, since nothing is rounded."""
    return only_selects(op) and set(op.dtypes) <= {"bool", "float32"} and "float32" in op.dtypes


def _works_on_lines(exprs: Sequence[Expr]) -> bool:
    applied = {node.operation for node in in_order(tuple(exprs)) if isinstance(node, Apply)}
    return not applied & _SLOW_ON_LINES and has_line_form(exprs)
