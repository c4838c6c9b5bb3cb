"""Logarithms of the values of a circuit, differentiated by its weights and not by their logarithms.

With f = p A + (1 - p) B, the derivative of log f by log p is p A / f. At p = 0 it is zero, and no longer knows A, on
which the derivative by p depends. So the chain rule must not go through log p: the adjoint of a literal is A / f before
it is multiplied by p, and that is what is returned here.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from derivable.algebra import semirings
from derivable.algebra.expr.functions import abs as magnitude
from derivable.algebra.expr.functions import equal, less, log, logical_and, maximum, where
from derivable.algebra.semiring import Semiring
from derivable.bridge.engines import Chain, Elementwise
from derivable.bridge.protocol import Adjoints, Arrays, Functions
from derivable.circuit.fold.engine import GraphFold
from derivable.circuit.fold.fold_rows import BY_WEIGHT, GRADIENT, VALUES, VALUES_AND_GRADIENT, fold_rows
from derivable.circuit.fold.plan import Plan, plan_of
from derivable.core.diagnostics import UnsupportedError
from derivable.device.cpu.memory import contiguous, empty

if TYPE_CHECKING:
    from derivable.circuit.fold.tile_fold import TileFold

# Less than all exponents of numbers that are not zero.
NOTHING = -1e6
# Bits of the unit of exponents: after three products a mantissa and its derivatives are still in range.
UNITS = {"float32": 32, "float64": 256}


@lru_cache
def scaled_values(bits: int) -> Semiring:
    """Numbers from 0 on as (m, e), which is m * 2**(bits * e). The exponent of a zero says how large its derivatives
    are, so that a sum takes that of its terms which are not zero."""
    up, down = 2.0**bits, 2.0**-bits
    low, high = 2.0 ** -(bits // 2), 2.0 ** (bits // 2)

    def settled(m: Any, e: Any) -> Any:
        small, large = logical_and(less(magnitude(m), low), less(0.0, magnitude(m))), less(high, magnitude(m))
        return where(small, m * up, where(large, m * down, m)), where(small, e - 1, where(large, e + 1, e))

    def at(number: Any, top: Any) -> Any:
        """The mantissa for another exponent, a greater one unless the number is zero."""
        m, shift = number[0], number[1] - top
        above = where(equal(shift, 0.0), m, where(equal(shift, 1.0), m * up, m * up * up))
        return where(less(shift, -1.0), 0.0 * m, where(less(shift, 0.0), m * down, above))

    def plus(a: Any, b: Any) -> Any:
        top = where(equal(a[0], 0.0), where(equal(b[0], 0.0), maximum(a[1], b[1]), b[1]), a[1])
        top = where(logical_and(less(0.0, a[0]), less(0.0, b[0])), maximum(a[1], b[1]), top)
        return at(a, top) + at(b, top), top

    def complement(a: Any) -> Any:
        # One less what is far below it is one.
        return where(less(a[1], 0.0), 1.0 + 0.0 * a[0], 1.0 - a[0]), 0.0 * a[1]

    def fact(weight: Any, variable: Any) -> Any:
        number = weight, 0.0 * weight
        for _ in range(5):
            number = settled(*number)
        return number

    def show(a: Any) -> Any:
        is_zero = equal(a[0], 0.0)
        return where(is_zero, -math.inf, log(where(is_zero, 1.0, a[0])) + a[1] * (bits * math.log(2.0)))

    return Semiring(
        f"values_of_{bits}_bits",
        plus=plus,
        times=lambda a, b: settled(a[0] * b[0], a[1] + b[1]),
        zero=(0.0, NOTHING),
        one=(1.0, 0.0),
        domain=((0.0, math.inf), (-math.inf, math.inf)),
        complement=complement,
        fact=fact,
        show=show,
    )


def check_log_values(semiring: str | Semiring) -> None:
    """Raise UnsupportedError unless values of the semiring have logarithms."""
    ring = semirings.get(semiring)
    if ring != semirings.real:
        raise UnsupportedError(
            f"log_values are logarithms of real values, and the semiring is {ring.name!r}",
            hint='semiring="real", log_values=True',
        )


class LogValues(Chain):
    """Weights [*batch, column] from 0 on to logarithms [*batch, root] of the values in the real semiring, in nats.

    Columns are the variables, and behind them their negations if the graph has negative literals. The kernels for the
    log semiring compute it on the CPU; elsewhere, where nodes are negated, and for derivatives of higher order, scaled
    numbers do.

    A root of -inf contributes no gradient. An entry of the gradient beyond the largest float is the largest float.
    """

    keeps_factors = True

    def __init__(self, graph: Any, precision: str):
        self.plan: Plan = plan_of(graph)
        self.num_variables, self.num_roots = self.plan.num_variables, self.plan.num_roots
        self.has_negatives = bool((graph.literal < 0).any())
        ring = scaled_values(UNITS[precision])
        typed = ring.typed(precision)
        count = self.num_variables * (1 + self.has_negatives)
        literal = np.where(graph.literal < 0, self.num_variables - graph.literal, graph.literal)
        columns = replace(graph, literal=literal.astype(graph.literal.dtype), num_variables=count)
        super().__init__(
            Elementwise(typed.require_fact(), [np.arange(count)]),
            GraphFold(columns, ring, False, precision),
            Elementwise(typed.show),
        )

    def tiles_on(self, device: Any) -> TileFold | str:
        """The kernels for a CUDA device, or why it has none."""
        fold: Any = self.parts[1]
        return fold.tiles_on(device)

    def apply(self, structure: Any, operands: Arrays) -> list[np.ndarray]:
        if self.plan.has_negation:
            return super().apply(structure, operands)
        return [self._folded(VALUES, operands[0], None)[0]]

    def apply_keeping(self, structure: Any, operands: Arrays, *, whole: bool = False) -> tuple[list, list]:
        if self.num_roots != 1 or whole or self.plan.has_negation:
            return self.apply(structure, operands), []
        values, gradient = self._folded(VALUES_AND_GRADIENT, operands[0], None)
        return [values], [gradient]

    def pull(self, structure: Any, adjoints: Adjoints, operands: Arrays, results: Arrays, kept: Arrays = ()) -> list:
        (seeds,) = adjoints
        if kept:
            return [_within(kept[0] * seeds)]
        if self.plan.has_negation:
            return [_within(x) for x in super().pull(structure, adjoints, operands, results)]
        return [self._folded(GRADIENT, operands[0], seeds)[1]]

    def elsewhere(self, library: str) -> Functions:
        apply, pull = super().elsewhere(library)
        return apply, lambda *given: [_within(x) for x in pull(*given)]

    def _folded(self, mode: int, given: np.ndarray, seeds: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
        """The values [*batch, root], and the gradient [*batch, column] unless the mode is without one."""
        *batch, count = given.shape
        shape = math.prod(batch), self.num_roots
        with np.errstate(divide="ignore", invalid="ignore"):
            columns = np.log(given.reshape(shape[0], count))
        halves = [contiguous(x) for x in np.split(columns, 1 + self.has_negatives, axis=1)]
        if self.has_negatives:
            # What no node reads may be anything, one less a factor that is greater than one, for instance.
            halves[1][:, self.plan.negative == self.plan.num_slots - 1] = 0
        values = empty(shape, given.dtype)
        if mode == VALUES:
            fold_rows(self.plan, semirings.log, VALUES, halves[0], halves[-1], values)
            return values.reshape(*batch, self.num_roots), values
        gradients = [empty(halves[0].shape, given.dtype) for _ in range(2)]
        own = None if seeds is None else contiguous(seeds).reshape(shape)
        fold_rows(self.plan, semirings.log, mode | BY_WEIGHT, halves[0], halves[-1], values, own, *gradients)
        found = np.concatenate(gradients[: len(halves)], axis=1)
        return values.reshape(*batch, self.num_roots), _within(found).reshape(given.shape)


def _within(gradient: Any) -> Any:
    """Entries that overflow as the largest number: what a weight came from may have the derivative 0 there."""
    largest = float(np.finfo(np.dtype(str(gradient.dtype).removeprefix("torch."))).max)
    return gradient.clip(-largest, largest)
