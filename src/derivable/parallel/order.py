"""The order of rows of columns, and the runs of equal ones; what is compared goes through in parts that stay in cache.

This imports no compiler: few rows are sorted by NumPy, more by the digits of their keys (`parallel.digits`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from derivable.device.cpu.memory import empty, longer, next_length

# Rows that are compared at once.
PART = 1 << 15
# From here on, sorting by digits pays for loading its kernels.
MANY = 1 << 12


def order_of(columns: Sequence[np.ndarray], many: int = MANY) -> slice | np.ndarray:
    """Row numbers that bring rows in order, the first column first; equal rows stay as they come.

    columns  [row] each, of one length, at least one: numbers, or Python integers; NaN comes last
    many     rows from which they are sorted by digits
    returns  [row] int64, or the slice of all rows, if they are in order
    """
    if is_in_order(columns):
        return slice(None)
    if len(columns[0]) < many or any(column.dtype == object for column in columns):
        return np.lexsort(tuple(reversed(columns)))
    from derivable.parallel.digits import order_by_digits

    return order_by_digits(columns)


def is_in_order(columns: Sequence[np.ndarray], strictly: bool = False, part: int = PART) -> bool:
    """Whether rows of columns that can be compared come in order, the first column first; never with NaN.

    strictly  whether equal rows are in no order
    part      rows that are compared at once
    """
    count = len(columns[0]) if columns else 0
    # Parts overlap in one row.
    return all(
        _are_in_order([column[start : start + part + 1] for column in columns], strictly)
        for start in range(0, count, part)
    )


def _are_in_order(columns: Sequence[np.ndarray], strictly: bool) -> bool:
    fine: np.ndarray | bool = True
    for column in reversed(columns):
        before, after = column[:-1], column[1:]
        if fine is True:
            fine = before < after if strictly else before <= after
        else:
            fine = (before < after) | ((before == after) & fine)
    return bool(np.all(fine))


def runs_of(columns_of: Callable[[slice], Sequence[np.ndarray]], count: int, part: int = PART) -> np.ndarray | None:
    """Where runs of equal rows begin [run], of at least one row; None if rows are not in order, the first column first.

    columns_of  gives the columns of some rows
    part        rows that are compared at once
    """
    starts, found = empty(1 << 15, np.int64), 1
    starts[0] = 0
    for start in range(1, count, part):
        columns = columns_of(slice(start - 1, min(start + part, count)))
        if not is_in_order(columns):
            return None
        is_new = columns[0][1:] != columns[0][:-1]
        for column in columns[1:]:
            is_new |= column[1:] != column[:-1]
        fresh = np.flatnonzero(is_new)
        if found + len(fresh) > len(starts):
            starts = longer(starts, next_length(len(starts), found + len(fresh)), found)
        np.add(fresh, start, out=starts[found : found + len(fresh)])
        found += len(fresh)
    return starts[:found]
