"""Evaluation in the log semiring: in the linear domain where that is proved, else by scaled floats; decision 030."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from derivable.circuit.fold.plan import Plan
from derivable.circuit.kernels.levels import BY_WEIGHT
from derivable.circuit.kernels.levels_log import BAD_WEIGHT, compiled_log_rows
from derivable.circuit.kernels.levels_scaled import log_rows_scaled
from derivable.circuit.kernels.levels_unbounded import log_rows_unbounded

# Type checkers take the number of arguments from a tuple they cannot know.
_log_rows_scaled: Any = log_rows_scaled
_NONE = {np.dtype(dtype).char: np.zeros((0, 0), dtype) for dtype in (np.float32, np.float64)}


class LogFold:
    """The kernels on one plan, in one mode, for tiles of `lanes` rows."""

    def __init__(self, plan: Plan, mode: int, lanes: int):
        self.plan, self.mode, self.lanes = plan, mode % BY_WEIGHT, lanes
        self.by_weight = mode >= BY_WEIGHT
        self.program = plan.positive, plan.negative, plan.runs, plan.terms, plan.root_slots
        self.proof = plan.budget, plan.degree
        self.log_rows = compiled_log_rows()
        rows = plan.num_slots, plan.num_slots, plan.longest
        self.buffers = [(count, np.float64) for count in rows]
        self.scaled_buffers = [*self.buffers, *((count, np.int64) for count in rows)]
        self.scratch = plan.scratch_of(lanes, *self.buffers)

    def __call__(self, start: int, stop: int, arrays: Sequence[tuple[np.ndarray, ...]]) -> bool:
        """Tiles start:stop; the arrays of `circuit.evaluate.fold_rows` as tuples, () for what is not given.

        returns  whether the weights are log weights: not NaN or +inf, nor above zero where they need a complement
        """
        weights, lanes, program = arrays[0][0], self.lanes, self.program
        none = _NONE[weights.dtype.char]
        _, negatives, *results = (part[0] if part else none for part in arrays)
        first, last = start * lanes, min(stop * lanes, len(weights))
        given = self.mode, weights, negatives, bool(arrays[1]), self.by_weight
        left_over = np.zeros(-(-len(weights) // lanes), np.bool_)
        scratch = self.scratch.take()
        left = self.log_rows(first, last, *given, *program, *scratch, *results, *self.proof, left_over)
        self.scratch.put_back(scratch)
        if left > 0:
            pool = self.plan.scratch_of(lanes, *self.scaled_buffers)
            scratch = pool.take()
            rest = (*results, *scratch[3:], self.plan.bound, left_over)
            left = _log_rows_scaled(first, last, *given, *program, *scratch[:3], *rest)
            pool.put_back(scratch)
        if left > 0:
            unbounded = (row for row in range(first, last) if left_over[row // lanes])
            log_rows_unbounded(unbounded, self.plan.num_slots, *given, *program, *results)
        return left != BAD_WEIGHT
