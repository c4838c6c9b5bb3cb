"""Evaluation in the log semiring: in the linear domain where that is proved, else by scaled floats; decision 030."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from derivable.circuit.fold.plan import Plan
from derivable.circuit.kernels.levels import BY_WEIGHT, GRADIENT, VALUES
from derivable.circuit.kernels.levels_log import BAD_WEIGHT, compiled_log_rows, proof
from derivable.circuit.kernels.levels_scaled import compiled_scaled_rows
from derivable.circuit.kernels.levels_unbounded import log_rows_unbounded


class LogFold:
    """The kernels on one plan, in one mode, for tiles of `lanes` rows of a batch of that precision."""

    def __init__(self, plan: Plan, precision: str, mode: int, lanes: int):
        self.plan, self.precision, self.lanes = plan, precision, lanes
        self.mode, self.by_weight = mode % BY_WEIGHT, mode >= BY_WEIGHT
        numbers = len(plan.runs), plan.num_variables, plan.num_roots, plan.num_slots
        self.program = plan.runs, plan.terms, *numbers, plan.positive, plan.negative, plan.root_slots
        self.proof = proof(plan.budget, plan.degree)
        self.log_rows = compiled_log_rows(precision, lanes == 1)
        self.none = np.zeros((0, 0), precision)
        rows = plan.num_slots, plan.num_slots, plan.longest
        self.buffers = [(count, np.float64) for count in rows]
        self.scaled_buffers = [*self.buffers, *((count, np.int64) for count in rows)]
        self.scratch = plan.scratch_of(lanes, *self.buffers)

    def __call__(self, start: int, stop: int, arrays: Sequence[tuple[np.ndarray, ...]]) -> bool:
        """Tiles start:stop; the arrays of `circuit.evaluate.fold_rows` as tuples, () for what is not given.

        returns  whether the weights are log weights: not NaN or +inf, nor above zero where they need a complement
        """
        lanes = self.lanes
        columns = weights, negatives, out, *_ = [part[0] if part else self.none for part in arrays]
        first, last = start * lanes, min(stop * lanes, len(weights))
        flags = bool(arrays[1]), out.size > 0, self.mode != VALUES, self.mode == GRADIENT, self.by_weight
        left_over = np.zeros(-(-len(weights) // lanes), np.bool_)
        given = first, last, lanes, *flags, *self.program, *columns, left_over
        scratch = self.scratch.take()
        left = self.log_rows(*given, *scratch, *self.proof)
        self.scratch.put_back(scratch)
        if left > 0:
            pool = self.plan.scratch_of(lanes, *self.scaled_buffers)
            scratch = pool.take()
            left = compiled_scaled_rows(self.precision, lanes == 1)(*given, *scratch, self.plan.bound)
            pool.put_back(scratch)
        if left > 0:
            plan = self.plan
            unbounded = (row for row in range(first, last) if left_over[row // lanes])
            program = plan.positive, plan.negative, plan.runs, plan.terms, plan.root_slots
            settings = self.mode, weights, negatives, flags[0], self.by_weight
            log_rows_unbounded(unbounded, plan.num_slots, *settings, *program, *columns[2:])
        return left != BAD_WEIGHT
