"""The primitive "fold levels" for any semiring that can be traced: a kernel generated around its functions.

The generated module carries the text of plus, times and their adjoint rules, so that Numba inlines them and the
on-disk cache depends on nothing else. Nodes are folded as they stand, in the order of their children, n = c0 + c1 +
... from the left; the reverse pass forms the partial results again and goes through them backwards. Minima and
maxima so give the adjoint of a tie to the smallest index.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

from derivable.algebra.compiled import compiled
from derivable.algebra.expr.generated import load_generated
from derivable.algebra.semiring import Semiring

_FORWARD = '''
@njit(cache=True, nogil=True, error_model="numpy")
def fold_rows(
    start, stop, mode, weights, negative_weights, has_negative, kind, literal, offsets, children, roots,
    values, adjoints, partial, out, seeds, gradient, negative_gradient, zero, one,
):
    """Rows start:stop of a batch; returns -1, or the first row of a tile with a NaN weight.

    values, adjoints  [node, lane] scratch; partial [child, lane] scratch; all else as in `levels_real.real_rows`
    """
    num_nodes = kind.size
    lanes = values.shape[1]
    row = start
    while row < stop:
        rows = min(lanes, stop - row)
        for node in range(num_nodes):
            first, last = offsets[node], offsets[node + 1]
            if kind[node] == 0:
                for lane in range(lanes):
                    values[node, lane] = zero
            elif kind[node] == 1:
                for lane in range(lanes):
                    values[node, lane] = one
            elif kind[node] == 2:
                variable = abs(literal[node]) - 1
                for lane in range(lanes):
                    at = row + min(lane, rows - 1)
                    if literal[node] > 0:
                        x = weights[at, variable]
                    elif has_negative:
                        x = negative_weights[at, variable]
                    else:
                        x = weights[at, variable]
                    if x != x:
                        return row
                    if literal[node] < 0 and not has_negative:
                        x = {complement}
                    values[node, lane] = x
            elif kind[node] == 5:
                for lane in range(lanes):
                    values[node, lane] = negation(values[children[first], lane])
            elif kind[node] == 3:
                child = children[first]
                for lane in range(lanes):
                    values[node, lane] = values[child, lane]
                for edge in range(first + 1, last):
                    child = children[edge]
                    for lane in range(lanes):
                        values[node, lane] = times(values[node, lane], values[child, lane])
            else:
                child = children[first]
                for lane in range(lanes):
                    values[node, lane] = values[child, lane]
                for edge in range(first + 1, last):
                    child = children[edge]
                    for lane in range(lanes):
                        values[node, lane] = plus(values[node, lane], values[child, lane])
        if mode != 2:
            for root in range(roots.size):
                for lane in range(rows):
                    out[row + lane, root] = values[roots[root], lane]
'''

_BACKWARD = """
        if mode != 0:
            adjoints[:] = 0
            for root in range(roots.size):
                for lane in range(rows):
                    if mode == 2:
                        adjoints[roots[root], lane] += seeds[row + lane, root]
                    else:
                        adjoints[roots[root], lane] = 1
            for lane in range(rows):
                for variable in range(weights.shape[1]):
                    gradient[row + lane, variable] = 0
                    if has_negative:
                        negative_gradient[row + lane, variable] = 0
            for node in range(num_nodes - 1, -1, -1):
                first, last = offsets[node], offsets[node + 1]
                if kind[node] == 2:
                    variable = abs(literal[node]) - 1
                    for lane in range(rows):
                        a = adjoints[node, lane]
                        if literal[node] > 0:
                            gradient[row + lane, variable] += a
                        elif has_negative:
                            negative_gradient[row + lane, variable] += a
                        else:
                            gradient[row + lane, variable] += {complement_vjp}
                elif kind[node] == 5:
                    child = children[first]
                    for lane in range(lanes):
                        adjoints[child, lane] += negation_vjp(values[child, lane], adjoints[node, lane])
                elif kind[node] >= 3:
                    child = children[first]
                    for lane in range(lanes):
                        partial[0, lane] = values[child, lane]
                    for edge in range(first + 1, last - 1):
                        child = children[edge]
                        k = edge - first
                        if kind[node] == 3:
                            for lane in range(lanes):
                                partial[k, lane] = times(partial[k - 1, lane], values[child, lane])
                        else:
                            for lane in range(lanes):
                                partial[k, lane] = plus(partial[k - 1, lane], values[child, lane])
                    for edge in range(last - 1, first, -1):
                        child = children[edge]
                        k = edge - first
                        for lane in range(lanes):
                            if adjoints[node, lane] != 0:
                                if kind[node] == 3:
                                    left, right = times_vjp(
                                        partial[k - 1, lane], values[child, lane], adjoints[node, lane]
                                    )
                                else:
                                    left, right = plus_vjp(
                                        partial[k - 1, lane], values[child, lane], adjoints[node, lane]
                                    )
                                adjoints[node, lane] = left
                                adjoints[child, lane] += right
                    child = children[first]
                    for lane in range(lanes):
                        adjoints[child, lane] += adjoints[node, lane]
"""

_END = """
        row += lanes
    return -1
"""


@cache
def semiring_rows(semiring: Semiring, dtype: str) -> Callable:
    """The kernel `fold_rows` of a semiring on "float32", "float64" or "bool"; see its text for the arguments.

    Raises UnsupportedError and TypeMismatchError as `algebra.compiled.compiled` does.
    """
    functions = compiled(semiring, dtype)
    text = functions.source + "\n" + _FORWARD.format(complement="complement(x)" if functions.complement else "x")
    if functions.plus_vjp is not None:
        rule = "0"
        if functions.complement_vjp is not None:
            rule = "complement_vjp(weights[row + lane, variable], a)"
        text += _BACKWARD.format(complement_vjp=rule)
    module = load_generated(text + _END, f"fold_{semiring.name}_{dtype}")
    return module.fold_rows
