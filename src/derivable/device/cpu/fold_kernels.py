"""Generated kernels of folds: one module per operator and dtype, with the operator unrolled in place.

Arrays are [row, column] here; a kernel works on a range of segments, of elements or of columns and
allocates nothing.
"""

from __future__ import annotations

from functools import cache
from types import ModuleType
from typing import Any

import numpy as np

from derivable.algebra.expr.emit_numba import DECORATOR, HEADER, preamble, statements
from derivable.algebra.expr.generated import load_generated
from derivable.parallel.operators import Operator

FORWARD = '''{decorator}
def segment_forward(start, stop, values, offsets, neutral, out):
    width = values.shape[1]
    for s in range(start, stop):
        first, last = offsets[s], offsets[s + 1]
        if first == last:
            for j in range(width):
                out[s, j] = neutral
            continue
        for j in range(width):
            out[s, j] = values[first, j]
        for e in range(first + 1, last):
            for j in range(width):
                a = out[s, j]
                b = values[e, j]
{fold}
                out[s, j] = {value}


{decorator}
def index_forward(start, stop, values, indices, counts, out):
    """counts[k] is how many elements bucket k has had: the first one is copied."""
    width = values.shape[1]
    buckets = len(counts)
    for e in range(start, stop):
        k = indices[e]
        if k < 0 or k >= buckets:
            continue
        if counts[k] == 0:
            for j in range(width):
                out[k, j] = values[e, j]
        else:
            for j in range(width):
                a = out[k, j]
                b = values[e, j]
{fold}
                out[k, j] = {value}
        counts[k] += 1


{decorator}
def merge_forward(start, stop, counts, partial, out):
    """Fold per-chunk results [chunk, bucket, column] into `out`, in chunk order; untouched without elements."""
    width = out.shape[1]
    for k in range(start, stop):
        first = True
        for c in range(len(partial)):
            if counts[c, k] == 0:
                continue
            for j in range(width):
                b = partial[c, k, j]
                if first:
                    out[k, j] = b
                else:
                    a = out[k, j]
{merge_fold}
                    out[k, j] = {value}
            first = False


{decorator}
def scan_forward(start, stop, values, out):
    for j in range(start, stop):
        out[0, j] = values[0, j]
    for i in range(1, len(values)):
        for j in range(start, stop):
            a = out[i - 1, j]
            b = values[i, j]
{scan_fold}
            out[i, j] = {value}
'''

BACKWARD = '''{decorator}
def segment_backward(start, stop, values, offsets, adjoint, out):
    """First the exclusive prefixes are stored in `out`, then adjoints replace them from the right."""
    width = values.shape[1]
    for s in range(start, stop):
        first, last = offsets[s], offsets[s + 1]
        if first == last:
            continue
        for j in range(width):
            out[first, j] = values[first, j]
        if last > first + 1:
            for j in range(width):
                out[first + 1, j] = values[first, j]
        for e in range(first + 1, last - 1):
            for j in range(width):
                a = out[e, j]
                b = values[e, j]
{fold}
                out[e + 1, j] = {value}
        # The running adjoint lives in the first row, which needs no prefix.
        for j in range(width):
            out[first, j] = adjoint[s, j]
        for e in range(last - 1, first, -1):
            for j in range(width):
                a = out[e, j]
                b = values[e, j]
                adjoint_ = out[first, j]
{back}
                out[first, j] = {left}
                out[e, j] = {right}


{decorator}
def index_prefixes(start, stop, values, indices, counts, running, out):
    """`index_forward` that also stores each element's exclusive prefix in `out`."""
    width = values.shape[1]
    buckets = len(counts)
    for e in range(start, stop):
        k = indices[e]
        if k < 0 or k >= buckets:
            continue
        if counts[k] == 0:
            for j in range(width):
                running[k, j] = values[e, j]
        else:
            for j in range(width):
                a = running[k, j]
                b = values[e, j]
                out[e, j] = a
{fold}
                running[k, j] = {value}
        counts[k] += 1


{decorator}
def index_backward(start, stop, values, indices, counts, running, out):
    """`running` holds the buckets' adjoints; `counts` falls back to 0, which marks the first element."""
    width = values.shape[1]
    buckets = len(counts)
    for e in range(stop - 1, start - 1, -1):
        k = indices[e]
        if k < 0 or k >= buckets:
            for j in range(width):
                out[e, j] = 0
            continue
        counts[k] -= 1
        if counts[k] == 0:
            for j in range(width):
                out[e, j] = running[k, j]
        else:
            for j in range(width):
                a = out[e, j]
                b = values[e, j]
                adjoint_ = running[k, j]
{back}
                running[k, j] = {left}
                out[e, j] = {right}


{decorator}
def merge_backward(start, stop, counts, partial, prefix, adjoint):
    """Replace per-chunk results by their adjoints; `prefix` [chunk, bucket, column] is scratch."""
    width = adjoint.shape[1]
    for k in range(start, stop):
        last = -1
        second = -1
        for c in range(len(partial)):
            if counts[c, k] == 0:
                continue
            if last >= 0:
                for j in range(width):
                    b = partial[last, k, j]
                    if second < 0:
                        prefix[c, k, j] = b
                    else:
                        a = prefix[last, k, j]
{deep_fold}
                        prefix[c, k, j] = {value}
                second = c
            last = c
        first = -1
        for c in range(len(partial) - 1, -1, -1):
            if counts[c, k] > 0:
                first = c
        for j in range(width):
            running = adjoint[k, j]
            for c in range(len(partial) - 1, first, -1):
                if counts[c, k] > 0:
                    a = prefix[c, k, j]
                    b = partial[c, k, j]
                    adjoint_ = running
{deep_back}
                    running = {left}
                    partial[c, k, j] = {right}
            if first >= 0:
                partial[first, k, j] = running


{decorator}
def scan_backward(start, stop, values, result, adjoint, out):
    n = len(values)
    for j in range(start, stop):
        out[n - 1, j] = adjoint[n - 1, j]
    for i in range(n - 1, 0, -1):
        for j in range(start, stop):
            a = result[i - 1, j]
            b = values[i, j]
            adjoint_ = out[i, j]
{scan_back}
            out[i, j] = {right}
            out[i - 1, j] = adjoint[i - 1, j] + {left}


{decorator}
def segment_tangent(start, stop, values, offsets, tangent, prefix, out):
    width = values.shape[1]
    for s in range(start, stop):
        first, last = offsets[s], offsets[s + 1]
        if first == last:
            for j in range(width):
                out[s, j] = 0
            continue
        for j in range(width):
            out[s, j] = tangent[first, j]
            prefix[s, j] = values[first, j]
        for e in range(first + 1, last):
            for j in range(width):
                a = prefix[s, j]
                b = values[e, j]
                adjoint_ = one
{back}
                out[s, j] = {left} * out[s, j] + {right} * tangent[e, j]
{fold}
                prefix[s, j] = {value}


{decorator}
def scan_tangent(start, stop, values, result, tangent, out):
    for j in range(start, stop):
        out[0, j] = tangent[0, j]
    for i in range(1, len(values)):
        for j in range(start, stop):
            a = result[i - 1, j]
            b = values[i, j]
            adjoint_ = one
{scan_back}
            out[i, j] = {left} * out[i - 1, j] + {right} * tangent[i, j]
'''


def kernels(operator: Operator, dtype: Any, width: int) -> ModuleType:
    """The module of kernels of an operator for a dtype; derivative kernels only for floats.

    width  the number of columns; a single column gets kernels without the loop over columns
    """
    value, adjoints, (a, b, adjoint) = operator.expressions(dtype)
    return _kernels(value, adjoints, a, b, adjoint, str(np.dtype(dtype)), width == 1)


def is_additive(operator: Operator, dtype: Any) -> bool:
    """Whether both operands always get the whole adjoint, as in a sum: then no prefixes are needed."""
    _, adjoints, (_, _, adjoint) = operator.expressions(dtype)
    return adjoints is not None and all(part is adjoint for part in adjoints)


@cache
def _kernels(value, adjoints, a, b, adjoint, dtype: str, single: bool) -> ModuleType:
    names = {a: "a", b: "b", adjoint: "adjoint_"}
    texts: dict[str, str] = {"decorator": DECORATOR}
    for slot, depth in (("fold", 16), ("scan_fold", 12), ("merge_fold", 20), ("deep_fold", 24)):
        lines, (texts["value"],) = statements(value, names, "t", " " * depth)
        texts[slot] = "\n".join(lines)
    expressions = [value]
    parts = [FORWARD]
    if adjoints is not None:
        for slot, depth in (("back", 16), ("scan_back", 12), ("deep_back", 20)):
            lines, (texts["left"], texts["right"]) = statements(adjoints, names, "d", " " * depth)
            texts[slot] = "\n".join(lines)
        expressions += adjoints
        parts.append(BACKWARD)
    before = preamble(expressions)
    one = f"one = np.{dtype}(1)" if adjoints is not None else ""
    source = "\n\n".join([part for part in (HEADER + one, before) if part] + [part.format(**texts) for part in parts])
    if single:
        source = source.replace("for j in range(width)", "for j in range(1)")
        source = source.replace("for j in range(start, stop)", "for j in range(1)")
    return load_generated(source, f"fold_{dtype}")
