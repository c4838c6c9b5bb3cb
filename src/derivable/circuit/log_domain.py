"""Evaluation in the log semiring: in the linear domain where that is proved, else by scaled floats; decision 030."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from derivable.circuit.plan import Plan
from derivable.device.cpu.levels_log import BAD_WEIGHT, log_rows
from derivable.device.cpu.levels_scaled import log_rows_scaled
from derivable.device.cpu.levels_unbounded import log_rows_unbounded

# Type checkers take the number of arguments from a tuple they cannot know.
_log_rows: Any = log_rows
_log_rows_scaled: Any = log_rows_scaled
_NONE = {np.dtype(dtype).char: np.zeros((0, 0), dtype) for dtype in (np.float32, np.float64)}


def fold_log_tiles(start: int, stop: int, plan: Plan, mode: int, lanes: int, arrays: Sequence[Any]) -> bool:
    """Tiles start:stop of `lanes` rows; the arrays are those of `circuit.evaluate.fold_rows`.

    returns  whether the weights are log weights: not NaN or +inf, nor above zero where they need a complement
    """
    weights, negatives = arrays[:2]
    none = _NONE[weights.dtype.char]
    first, last = start * lanes, min(stop * lanes, weights.shape[0])
    given = mode, weights, none if negatives is None else negatives, negatives is not None
    results = tuple(none if array is None else array for array in arrays[2:])
    program = plan.positive, plan.negative, plan.runs, plan.terms, plan.root_slots
    left_over = np.zeros(-(-weights.shape[0] // lanes), np.bool_)
    rows = plan.num_slots, plan.num_slots, plan.longest
    buffers = [(count, np.float64) for count in rows]
    scratch = plan.take(lanes, *buffers)
    left = _log_rows(first, last, *given, *program, *scratch, *results, plan.budget, plan.degree, left_over)
    plan.put_back(scratch, lanes, *buffers)
    if left > 0:
        buffers += [(count, np.int64) for count in rows]
        scratch = plan.take(lanes, *buffers)
        rest = (*results, *scratch[3:], plan.bound, left_over)
        left = _log_rows_scaled(first, last, *given, *program, *scratch[:3], *rest)
        plan.put_back(scratch, lanes, *buffers)
    if left > 0:
        unbounded = (row for row in range(first, last) if left_over[row // lanes])
        log_rows_unbounded(unbounded, plan.num_slots, *given, *program, *results)
    return left != BAD_WEIGHT
