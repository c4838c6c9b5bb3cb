"""`sum`, `prod`, `avg`, `weighted_sum` and `weighted_avg`.

Each folds scalars of the rows to a state and makes a value of it. Integers are added exactly: in 64 bits where nothing
can overflow, else as Python integers. Floats are added in double precision, in order of their values.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from derivable.core.diagnostics import warn
from derivable.datalog.aggregates.groups import Groups
from derivable.datalog.aggregates.record import Aggregate, Group
from derivable.datalog.aggregates.worlds import merged, reached
from derivable.datalog.policy.costs import policy
from derivable.datalog.values.values import TYPES, ValueType, wrap
from derivable.parallel.order import MANY

# Sums of magnitudes below this are exact in 64 bits, rounding in the estimate included.
_EXACT = 2.0**62
# What a sum is made in that does not fit its type.
_WIDER = ("i64", "i128")

Columns = list[np.ndarray]


@dataclass(frozen=True)
class _Total:
    """One of them.

    is_product   whether states are multiplied, else added
    is_weighted  whether a row counts as often as its tag weighs
    is_average   whether the state has the number, or weight, of the rows too, by which the sum is divided
    """

    is_product: bool = False
    is_weighted: bool = False
    is_average: bool = False

    def scalars(self, groups: Groups, rows: np.ndarray | slice) -> Columns:
        """What rows of the body add to each scalar of the state."""
        t = groups.value_types[0]
        values = groups.row_values[0][rows]
        if t.family == "float":
            values = values.astype(np.float64, copy=False)
        if self.is_product and t.is_wide:
            values = values.astype(object)
        if not self.is_weighted:
            return [values, np.ones(len(values), np.int64)] if self.is_average else [values]
        weights = groups.weights[rows]
        with np.errstate(all="ignore"):
            return [weights * values, weights] if self.is_average else [weights * values]

    def results(self, states: Columns, t: ValueType) -> np.ndarray:
        """Typed values of states; of no rows an average is NaN."""
        with np.errstate(all="ignore"):
            if t.family == "float":
                values = states[0] / states[1] if self.is_average else states[0]
                return values.astype(np.float32).astype(np.float64) if t.bits == 32 else values
            if self.is_product:
                return wrap(states[0], t)
            total = states[0]
            if self.is_average:
                size = np.maximum(states[1], 1).astype(total.dtype)
                # Towards zero, as integers are divided in expressions.
                total = np.where(total < 0, -(-total // size), total // size) if t.family == "signed" else total // size
            low, high = t.limits
            if total.dtype == object:
                fitted = [min(max(int(value), low), high) for value in total.tolist()]
                if t.is_wide:
                    return np.array(fitted, object)
                return np.array(fitted, np.uint64 if t.family == "unsigned" and t.bits == 64 else np.int64)
            return np.clip(total, low, high) if t.bits < 64 else total

    def certain(self, groups: Groups, chosen: np.ndarray) -> None:
        chosen = groups.existing(chosen, with_empty=not self.is_average)
        t = groups.value_types[0]
        # The order of the rows matters to floats only, and that of equal ones to none.
        if self.is_weighted:
            number, columns = groups.number[groups.order], self.scalars(groups, groups.order)
        elif t.family == "float":
            number, values = _in_order_of_values(groups)
            columns = [values]
        else:
            are_runs = groups.runs is not None and not self.is_product
            number, columns = None if are_runs else groups.number, self.scalars(groups, slice(None))[:1]
        states = [self.folded(groups, column, number)[chosen] for column in columns]
        if self.is_average and not self.is_weighted:
            states.append(groups.sizes[chosen])
        if self.is_average and t.is_integer:
            _say_that_means_are_integers(groups, t, *states)
        elif t.is_integer:
            self.say_what_is_cut(groups, t, states[0])
        groups.emit_values(chosen, self.results(states, t), None)

    def say_what_is_cut(self, groups: Groups, t: ValueType, totals: np.ndarray) -> None:
        """Warn where the sum or product of all rows of a group is beyond its type."""
        if not len(totals):
            return
        name, (low, high) = groups.rule.operator, t.limits
        if not self.is_product:
            least, most = int(totals.min()), int(totals.max())
            if low <= least and most <= high:
                return
            total, end = (most, high) if most > high else (least, low)
            shown = f"`{name}` is {total}, which {t} does not hold: it becomes {end}"
        else:
            values, number = groups.row_values[0], groups.number
            sizes = np.zeros(len(groups.sizes) + 1)
            with np.errstate(divide="ignore"):
                np.add.at(sizes, number, np.log2(np.abs(values.astype(np.float64))))
            if max(sizes[:-1], default=0) < np.log2(float(high) + 1):
                return
            shown = f"`{name}` is beyond what {t} holds, {low} to {high}: it wraps around"
        wide = next((wider for wider in _WIDER if t.bits < TYPES[wider].bits), None)
        cast = (
            f"cast the values, `{name}(w: r(v), w == v as {wide or 'f64'})`, or declare the column as {wide or 'f64'}"
        )
        groups.say(shown, cast)

    def folded(self, groups: Groups, column: np.ndarray, number: np.ndarray | None) -> np.ndarray:
        """One scalar of the state of each group [group]; `number` is None of sums of integers whose groups are runs."""
        count = groups.num_groups + 1
        with np.errstate(all="ignore"):
            if number is None:
                assert groups.runs is not None
                result = np.add.reduceat(_exact(groups, column), groups.runs)
            elif self.is_product and column.dtype == object:
                # Cut on the way, as it would grow by the bits of each factor.
                result = np.ones(count, object)
                for group, factor in zip(number.tolist(), column.tolist()):
                    result[group] = result[group] * factor % (1 << 128)
            elif self.is_product:
                result = np.ones(count, column.dtype)
                np.multiply.at(result, number, column)
            elif column.dtype.kind == "f":
                result = np.bincount(number, weights=column, minlength=count)
            else:
                column = _exact(groups, column)
                result = np.zeros(count, column.dtype)
                np.add.at(result, number, column)
        return result

    def uncertain(self, groups: Groups, chosen: np.ndarray) -> None:
        t = groups.value_types[0]
        columns = self.scalars(groups, groups.order)
        if not self.is_product and t.is_integer:
            columns[0] = _exact(groups, columns[0])
        neutral = [np.array([1 if self.is_product else 0], column.dtype) for column in columns]

        def moved(states: Columns, positions: np.ndarray) -> Columns:
            with np.errstate(all="ignore"):
                if self.is_product:
                    after = states[0] * columns[0][positions]
                    return [wrap(after, t) if t.is_integer else after]
                return [state + column[positions] for state, column in zip(states, columns)]

        if t.is_integer and not self.is_average:
            number = groups.number[groups.order]
            self.say_what_is_cut(groups, t, self.folded(groups, columns[0], number)[chosen])
        for reached_now in reached(groups, chosen, groups.order, neutral, moved):
            if groups.keeps_empty and not self.is_average:
                of_none = np.repeat(self.results(neutral, t), len(reached_now.chosen))
                groups.emit_values(reached_now.chosen, of_none, reached_now.empty)
            owner, (values,), tags = merged(
                groups.mode, reached_now.owner, [self.results(reached_now.states, t)], reached_now.tags
            )
            groups.emit_values(owner, values, tags)

    def meaning(self, group: Group) -> Iterator[Any]:
        t = group.types[-1]
        values = [group.values(row)[0] for row in sorted(group.rows, key=lambda row: (group.values(row), row))]
        if self.is_average and not values:
            return
        if self.is_product:
            total: Any = math.prod(values)
        else:
            total = 0
            for value in values:
                total += value
        if t.is_integer:
            low, high = t.limits
            if self.is_average:
                total = abs(total) // len(values) * (1 if total >= 0 else -1)
            yield (total - low) % (high - low + 1) + low if self.is_product else max(low, min(high, total))
            return
        if self.is_average:
            total /= len(values)
        if not math.isnan(total):
            with np.errstate(over="ignore"):
                yield float(np.float32(total)) if t.bits == 32 else float(total)


def _say_that_means_are_integers(groups: Groups, t: ValueType, totals: np.ndarray, sizes: np.ndarray) -> None:
    """Warn where a mean of integers, which is an integer as in Scallop, leaves something of the quotient out."""
    left_out = np.flatnonzero(totals % np.maximum(sizes, 1).astype(totals.dtype))
    if not len(left_out):
        return
    total, size = int(totals[left_out[0]]), int(sizes[left_out[0]])
    context = groups.context
    warn(
        f"`avg` of {t} is an integer: {total} / {size} is {abs(total) // size * (1 if total > 0 else -1)} here",
        hint="for the mean as a float, cast the values first: `avg(w: r(v), w == v as f64)`",
        source=context.source,
        text=context.text,
        span=groups.rule.span,
    )


def _in_order_of_values(groups: Groups) -> tuple[np.ndarray, np.ndarray]:
    """(numbers of groups [row], floats [row]) of the rows of the body, group by group in order of the floats."""
    values = groups.row_values[0].astype(np.float64, copy=False)
    if groups.num_rows < MANY or groups.num_groups * policy().call_rows > groups.num_rows:
        rows = groups.sorted([groups.number, *groups.value_keys])
        return groups.number[rows], values[rows]
    rows, offsets = groups.by_group()
    values = values[rows]
    for start, stop in pairwise(offsets.tolist()):
        values[start:stop].sort()
    sizes = np.diff(offsets, append=len(values))
    return np.repeat(np.arange(len(sizes)), sizes), values


def _exact(groups: Groups, column: np.ndarray) -> np.ndarray:
    """Integers of rows, as Python's where sums of a group may leave 64 bits."""
    largest = max(abs(int(column.min())), abs(int(column.max()))) if len(column) else 0
    return column.astype(object) if largest * int(groups.sizes.max(initial=0)) >= _EXACT else column


def _record(name: str, family: str, total: _Total) -> Aggregate:
    certain: Callable[[Groups, np.ndarray], None] = total.certain
    by_weight = "values" if total.is_weighted else None
    return Aggregate(name, (family,), ("values",), certain, total.uncertain, total.meaning, by_weight=by_weight)


RECORDS = (
    _record("sum", "number", _Total()),
    _record("prod", "number", _Total(is_product=True)),
    _record("avg", "number", _Total(is_average=True)),
    _record("weighted_sum", "float", _Total(is_weighted=True)),
    _record("weighted_avg", "float", _Total(is_weighted=True, is_average=True)),
)
