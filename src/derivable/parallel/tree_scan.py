"""Scans and their reverse by combination in a tree: O(n) combinations in 2 log2(n) steps, each a whole array at once.

The form that devices with many lanes use. Leaves are flat: [row, column, size].
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from derivable.algebra import expr
from derivable.algebra.expr.nodes import Argument
from derivable.parallel.flat_leaves import Leaves, only_floats, to_components, to_leaves, zeros_for_none
from derivable.parallel.linear_recurrence import Form, choose_form, jacobian_free_of, recurrence_of
from derivable.parallel.typed_operator import TypedOperator, evaluate

# [component] arrays [row, column]
Components = Sequence[np.ndarray]


def tree_scan(
    op: TypedOperator,
    values: Sequence[np.ndarray],
    *,
    exclusive: bool = False,
    reverse: bool = False,
    offsets: np.ndarray | None = None,
) -> Leaves:
    """The scan of `parallel.element_reference`, for associative operators up to rounding."""
    components, first = _in_scan_order(to_components(values), reverse, offsets)
    results = _scan(op, components, first if offsets is not None else None)
    if exclusive:
        neutral = [np.dtype(dtype).type(value) for dtype, value in zip(op.dtypes, op.neutral)]
        results = [np.where(first, value, _after(result)) for value, result in zip(neutral, results)]
    return to_leaves(op, [result[::-1] if reverse else result for result in results])


def scan_vjp_tree(
    op: TypedOperator,
    adjoints: Sequence[np.ndarray | None],
    values: Sequence[np.ndarray],
    results: Sequence[np.ndarray],
    *,
    form: Form | None = None,
    exclusive: bool = False,
    reverse: bool = False,
    offsets: np.ndarray | None = None,
) -> tuple[np.ndarray | None, ...]:
    """Adjoints of a scan's values from those of its results, by a scan. None for leaves that are not floats.

    results  what the scan gave
    form     "blocks": with Jacobians; "free": with triples; None: the cheaper one, see `choose_form`
    """
    given = to_components(zeros_for_none(adjoints, results))
    (a, y, y_adjoint), (first, last) = _all_in_scan_order([to_components(values), to_components(results), given],
                                                          reverse, offsets)  # fmt: skip
    if exclusive:
        # The inclusive results are the next exclusive ones. The last is not known and not needed: nothing follows.
        before, y = y, [np.where(last, result, _before(result)) for result in y]
        y_adjoint = [np.where(last, 0, _before(adjoint)).astype(adjoint.dtype) for adjoint in y_adjoint]
    else:
        before = [_after(result) for result in y]
    following = [np.where(last, value, _before(value)) for value in a]
    floats = op.float_components
    # In the order of the reverse scan, its segments begin where those of the scan end.
    begins = last[::-1] if offsets is not None else None
    if (form or choose_form(op)) == "blocks":
        recurrence = recurrence_of(op)
        start = evaluate(recurrence.entries, {**dict(zip(op.left, y)), **dict(zip(op.right, following))})
        element = [*(y_adjoint[k] for k in floats), *start]
        r = _scan(recurrence.operator, [part[::-1] for part in element], begins)[: len(floats)]
    else:
        element = [*y, *following, *(y_adjoint[k] for k in floats)]
        r = _scan(jacobian_free_of(op), [part[::-1] for part in element], begins)[2 * op.size :]
    r = [part[::-1] for part in r]
    arguments = {**dict(zip(op.left, before)), **dict(zip(op.right, a))}
    arguments.update((op.adjoints.arguments[k], part) for k, part in zip(floats, r))
    found = list(evaluate(op.adjoints.right, arguments))
    for k, part in zip(floats, r):
        # The first value is the first result.
        found[k] = np.where(first, part, found[k])
    return only_floats(op, to_leaves(op, [part[::-1] if reverse else part for part in found]))


def segmented_of(op: TypedOperator) -> TypedOperator:
    """The operator on elements with a flag before them, which starts a new segment: (f, a) op (g, b) is
    (f or g, b if g else a op b). Associative, and with a neutral element (false, neutral), if `op` is and has."""
    shift = 2 + max(argument.index for argument in (*op.left, *op.right))
    f, g = Argument(shift, "bool", "a_begins"), Argument(shift + 1, "bool", "b_begins")
    chosen = [expr.where(g, b, value) for b, value in zip(op.right, op.values)]
    return TypedOperator(
        name=f"segmented {op.name}",
        leaf_dtypes=("bool", *op.leaf_dtypes),
        leaf_sizes=(1, *op.leaf_sizes),
        left=(f, *op.left),
        right=(g, *op.right),
        values=expr.simplify((expr.logical_or(f, g), *chosen)),
        neutral=(np.False_, *op.neutral),
        commutative=False,
    )


def _scan(op: TypedOperator, components: Components, begins: np.ndarray | None) -> list[np.ndarray]:
    if len(components[0]) == 0:
        return list(components)
    if begins is None:
        return _inclusive(op, components)
    flag = np.broadcast_to(begins, components[0].shape)
    return _inclusive(segmented_of(op), [flag, *components])[1:]


def _inclusive(op: TypedOperator, components: Components) -> list[np.ndarray]:
    num_rows = len(components[0])
    if num_rows == 1:
        return list(components)
    pairs = op.apply([part[0:-1:2] for part in components], [part[1::2] for part in components])
    odd = _inclusive(op, pairs)
    number = (num_rows - 1) // 2
    even = op.apply([part[:number] for part in odd], [part[2::2] for part in components])
    results = [np.empty(part.shape, dtype) for part, dtype in zip(components, op.dtypes)]
    for result, part, at_odd, at_even in zip(results, components, odd, even):
        result[0] = part[0]
        result[1::2] = at_odd
        result[2::2] = at_even
    return results


def _all_in_scan_order(
    groups: Sequence[Components], reverse: bool, offsets: np.ndarray | None
) -> tuple[list[list[np.ndarray]], tuple[np.ndarray, np.ndarray]]:
    """The groups of components, flipped if reverse, and [row, 1] whether a row is a segment's first and its last."""
    ordered = []
    first = np.zeros((0, 1), bool)
    for group in groups:
        components, first = _in_scan_order(group, reverse, offsets)
        ordered.append(components)
    last = _before(first)
    last[-1:] = True
    return ordered, (first, last)


def _in_scan_order(
    components: Components, reverse: bool, offsets: np.ndarray | None
) -> tuple[list[np.ndarray], np.ndarray]:
    num_rows = len(components[0])
    first = np.zeros((num_rows + 1, 1), bool)
    first[[0, num_rows] if offsets is None else np.asarray(offsets, np.int64)] = True
    if reverse:
        # A segment's end is where its scan begins.
        return [part[::-1] for part in components], first[:0:-1]
    return list(components), first[:num_rows]


def _after(part: np.ndarray) -> np.ndarray:
    """Each row moved to the next place; the first stays."""
    return np.concatenate([part[:1], part[:-1]])


def _before(part: np.ndarray) -> np.ndarray:
    """Each row moved to the place before; the last stays."""
    return np.concatenate([part[1:], part[-1:]])
