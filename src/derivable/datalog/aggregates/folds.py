"""What each aggregate is: a record with its type rule, its fold of certain rows, what it does with tags, its meaning.

`aggregate` makes and registers a record from a monoid: rows become states, states are combined, and a state has a
result. Rows that are certain are folded group by group. With uncertain rows a dynamic programme goes over the rows of a
group: for each state that some of the rows so far make, the tag of the worlds in which they do. `count`, `sum`, `prod`
are such folds with faster forms; `min` and `max` go through the values in order.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from derivable.algebra.element import components, compose, flatten
from derivable.algebra.monoid import SCALAR, Monoid, TypedFunction, TypedMonoid, trace_elements
from derivable.core.diagnostics import DomainError, TypeMismatchError
from derivable.core.registry import Registry
from derivable.datalog.arithmetic import scalar_type
from derivable.datalog.tag_columns import Columns, concatenate, reduce_segments, repeat, within
from derivable.datalog.values import TYPES, ValueType, to_words, wrap

if TYPE_CHECKING:
    from derivable.datalog.grouping import Groups

# Sums of magnitudes below this are exact in 64 bits, rounding in the estimate included.
_EXACT = 2.0**62
FAMILIES = ("any", "number", "integer", "float", "text", "bool")


@dataclass(frozen=True)
class Aggregate:
    """One aggregate.

    takes      the families of its variables ("any", "number", ...), None for any number of variables of any types
    returns    a type's name, "value" (the type of its variable), "row" (arguments and variables) or "arguments"
    certain    (groups, group numbers) emits the results of groups whose rows are all there
    uncertain  (groups, group number, rows) emits those of one group with their tags
    parameters names of what may stand in `<...>` behind the name; a value without a name takes the next of them
    meaning    (rows of one group, each arguments and values; number of arguments; type) -> results, one Python value or
               tuple each: what the reference interpreter does
    """

    name: str
    takes: tuple[str, ...] | None
    returns: str
    certain: Callable[[Groups, np.ndarray], None]
    uncertain: Callable[[Groups, int, slice], None]
    meaning: Callable[[list[tuple], int, ValueType], Iterator[Any]]
    parameters: tuple[str, ...] = ()

    def result_types(self, arguments: Sequence[Any], values: Sequence[Any]) -> list[Any]:
        """The types of the result's columns from those of the arguments and of the variables."""
        if self.returns in TYPES:
            return [TYPES[self.returns]]
        return {"value": list(values), "row": [*arguments, *values], "arguments": list(arguments)}[self.returns]


AGGREGATES: Registry[Aggregate] = Registry("aggregate", more="`derivable.datalog.aggregate` adds one")


def aggregate(
    name: str,
    monoid: Monoid,
    *,
    lift: Callable[..., Any],
    result: Callable[[Any], Any],
    returns: str,
    takes: str | tuple[str, ...] = "number",
) -> Aggregate:
    """An aggregate of a user's own, known by its name in all programs from now on; returns its record.

        avg = aggregate(
            "avg",
            dv.parallel.operator(lambda a, b: (a[0] + b[0], a[1] + b[1]), neutral=(0.0, 0)),
            lift=lambda x: (dv.cast(x, "float64"), 1),
            result=lambda state: state[0] / state[1],
            returns="f64",
        )

    monoid   combines states; commutative, because a relation's rows have no order
    lift     the values of a row -> its state
    result   state -> the value of the aggregate; where it is NaN there is no tuple. An empty group, which is one where
             the groups come from `where`, or there are none, has the monoid's neutral element as its state
    returns  the type of the result, such as "f64" or "usize", or "value" for that of its one variable
    takes    what its variables are: "number", "integer", "float" or "bool"; one word or one for each variable

    All three functions are traced, as those of a semiring are. With uncertain rows the time grows with the number of
    distinct states. Raises DomainError if the name is taken or something is of the wrong kind.
    """
    families = (takes,) if isinstance(takes, str) else tuple(takes)
    if not isinstance(name, str) or not name.isidentifier():
        raise DomainError(f"the name of an aggregate is an identifier, not {name!r}")
    if not isinstance(monoid, Monoid):
        raise DomainError(
            f"an aggregate folds by an operator, not a {type(monoid).__name__}", hint="dv.parallel.operator"
        )
    for family in families:
        if family not in FAMILIES or family in ("any", "text"):
            raise DomainError(
                f"an aggregate takes numbers and bools, not {family!r}", hint='"number", "integer", "float"'
            )
    if returns not in TYPES and not (returns == "value" and len(families) == 1):
        raise DomainError(f"{returns!r} is not a type of the language", hint=f"one of {', '.join(TYPES)}")
    fold = _Fold(name, monoid, lift, result)
    return AGGREGATES.add(name, Aggregate(name, families, returns, fold.certain, fold.uncertain, fold.meaning))


@dataclass(frozen=True)
class _Fold:
    """The three folds of an aggregate that is made from a monoid."""

    name: str
    monoid: Monoid
    lift: Callable[..., Any]
    result: Callable[[Any], Any]

    def typed(self, types: Sequence[ValueType]) -> tuple[TypedFunction, TypedMonoid, TypedFunction]:
        element, neutral = self.monoid.element, self.monoid.neutral
        kinds = {"b": "bool", "i": "int64", "u": "int64", "f": "float64"}
        leaf_types = [kinds[np.asarray(leaf).dtype.kind] for leaf in flatten(element, neutral, "the neutral element")]
        dtypes = [dtype for dtype, size in zip(leaf_types, element.leaf_sizes) for _ in range(size)]
        operands = {f"x{k}": (SCALAR, 0, (scalar_type(t),)) for k, t in enumerate(types)}
        lift = trace_elements(f"lift of the aggregate {self.name}", self.lift, operands, element, dtypes)
        state = {"state": (element, neutral, leaf_types)}
        result = trace_elements(f"result of the aggregate {self.name}", self.result, state)
        if len(result.values) != 1:
            raise TypeMismatchError(f"result of the aggregate {self.name} gives {len(result.values)} values, not one")
        return lift, self.monoid.typed(leaf_types), result

    def certain(self, groups: Groups, chosen: np.ndarray) -> None:
        lift, monoid, result = self.typed(groups.value_types)
        chosen, starts, stops = groups.bounds(chosen)
        lengths = stops - starts
        rows = np.repeat(starts, lengths) + within(lengths)
        states = Columns(lift.apply(*((column[rows],) for column in groups.values)))
        some = np.flatnonzero(lengths)
        offsets = np.concatenate([[0], np.cumsum(lengths[some])])
        folded = reduce_segments(states, offsets, lambda a, b: Columns(monoid.apply(a.parts, b.parts)))
        found = [np.full(len(chosen), value) for value in monoid.neutral]
        for column, part in zip(found, folded.parts):
            column[some] = part
        self.emit(groups, chosen, result.apply(found)[0], None)

    def uncertain(self, groups: Groups, g: int, part: slice) -> None:
        lift, monoid, result = self.typed(groups.value_types)
        mode, tags = groups.mode, groups.tags[part]
        lifted = lift.apply(*((column[part],) for column in groups.values))

        def moved(states: list[np.ndarray], row: int) -> Sequence[np.ndarray]:
            return monoid.apply(states, [column[row] for column in lifted])

        states, reached, empty = _reached(mode, tags, [c[:0] for c in lifted], monoid.neutral, moved)
        if groups.keeps_empty:
            neutral = [np.full(1, value) for value in monoid.neutral]
            self.emit(groups, np.array([g]), result.apply(neutral)[0], empty)
        keep = np.flatnonzero(~mode.is_zero(reached))
        values = result.apply([column[keep] for column in states])[0]
        self.emit(groups, np.full(len(keep), g), values, reached[keep])

    def emit(self, groups: Groups, chosen: np.ndarray, values: np.ndarray, tags: Any) -> None:
        fine = np.flatnonzero(values == values)
        words = to_words(values[fine].astype(scalar_type(groups.types[-1])), groups.types[-1])
        groups.emit(chosen[fine], [words], None if tags is None else tags[fine])

    def meaning(self, rows: list[tuple], num_arguments: int, t: ValueType) -> Iterator[Any]:
        element, neutral = self.monoid.element, self.monoid.neutral
        scalars = [np.asarray(scalar)[()] for scalar in components(element, neutral, "the neutral element")]
        with np.errstate(all="ignore"):
            total = compose(element, neutral, scalars)
            for row in rows:
                total = self.monoid.function(total, self.lift(*(np.asarray(v)[()] for v in row[num_arguments:])))
            value = self.result(total)
        if value == value:
            yield np.asarray(value).astype(t.dtype).item()


def _reached(
    mode: Any,
    tags: Any,
    states: list[np.ndarray],
    neutral: Sequence[Any],
    moved: Callable[[list[np.ndarray], int], Sequence[np.ndarray]],
) -> tuple[list[np.ndarray], Any, Any]:
    """The states that some of the uncertain rows make, with their tags, and the tag of the worlds without any row.

    states  no states, a column for each of their scalars; `neutral` has the scalars before any row
    moved   (states, row) -> the states with that row
    """
    # The worlds without any row so far stand apart: there the group may not exist.
    empty, reached = mode.one(1), mode.one(0)
    for row in range(len(tags)):
        present = repeat(tags[row : row + 1], len(reached) + 1)
        absent = mode.negate(present)
        after = moved(
            [np.append(column, np.array([value], column.dtype)) for column, value in zip(states, neutral)], row
        )
        stepped = mode.times(concatenate([reached, empty]), present)
        stayed = mode.times(reached, absent[:-1])
        columns = [np.concatenate([old, new]) for old, new in zip(states, after)]
        states, reached = _merged(mode, columns, concatenate([stayed, stepped]))
        empty = mode.times(empty, absent[-1:])
    return states, reached, empty


def _merged(mode: Any, states: list[np.ndarray], tags: Any) -> tuple[list[np.ndarray], Any]:
    """The distinct states, a column for each of their scalars, and for each the sum of its tags."""
    keys, axis = states[0], None
    if len(states) > 1:
        words = [(c + 0.0).view(np.int64) if c.dtype == np.float64 else c.astype(np.int64) for c in states]
        keys, axis = np.stack(words, axis=1), 0
    _, first, where = np.unique(keys, axis=axis, return_index=True, return_inverse=True)
    order = np.argsort(where.reshape(-1), kind="stable")
    offsets = np.searchsorted(where.reshape(-1)[order], np.arange(len(first) + 1))
    return [column[first] for column in states], mode.reduce(tags[order], offsets)


# The built-in ones


def _certain_exists(groups: Groups, chosen: np.ndarray) -> None:
    chosen, starts, stops = groups.bounds(chosen)
    groups.emit(chosen, [((stops > starts) == (groups.rule.operator == "exists")).astype(np.int64)], None)


def _exists(groups: Groups, g: int, part: slice) -> None:
    mode, tags = groups.mode, groups.tags[part]
    some = mode.reduce(tags, np.array([0, len(tags)]))
    words = np.array([int(groups.rule.operator == "exists")])
    groups.emit(np.array([g]), [words], some)
    if groups.keeps_empty:
        none, absent = mode.one(1), mode.negate(tags)
        for row in range(len(tags)):
            none = mode.times(none, absent[row : row + 1])
        groups.emit(np.array([g]), [1 - words], none)


def _certain_count(groups: Groups, chosen: np.ndarray) -> None:
    chosen, starts, stops = groups.bounds(chosen)
    groups.emit(chosen, [to_words((stops - starts).astype(np.uint64), groups.types[-1])], None)


def _count(groups: Groups, g: int, part: slice) -> None:
    mode, tags = groups.mode, groups.tags[part]
    # state[j]: exactly j of the rows so far are there.
    state = mode.one(1)
    for row in range(len(tags)):
        present = repeat(tags[row : row + 1], len(state))
        stay = mode.times(state, mode.negate(present))
        step = mode.times(state, present)
        zero = mode.zero(1)
        state = mode.plus(concatenate([stay, zero]), concatenate([zero, step]))
    keep = ~mode.is_zero(state)
    if not groups.keeps_empty:
        keep[0] = False
    groups.emit(np.full(int(keep.sum()), g), [np.flatnonzero(keep)], state[keep])


def _certain_sum(groups: Groups, chosen: np.ndarray) -> None:
    chosen, starts, stops = groups.bounds(chosen)
    result = _totals(groups, starts, stops)
    if result.dtype.kind == "f":
        is_number = ~np.isnan(result)
        chosen, result = chosen[is_number], result[is_number]
    groups.emit(chosen, [to_words(result, groups.types[-1])], None)


def _totals(groups: Groups, starts: np.ndarray, stops: np.ndarray) -> np.ndarray:
    t, values = groups.value_types[0], groups.values[0]
    is_sum = groups.rule.operator == "sum"
    result = np.full(len(starts), 0 if is_sum else 1, dtype=values.dtype)
    some = stops > starts
    if not some.any():
        return result
    # Pairs of (start, stop) make every other segment one that is not wanted.
    bounds = np.stack([starts[some], stops[some]], axis=1).reshape(-1)
    padded = np.concatenate([values, values[:1]])
    with np.errstate(all="ignore"):
        result[some] = (np.add if is_sum else np.multiply).reduceat(padded, bounds)[::2]
    if not t.is_integer:
        return result
    if not is_sum:
        return wrap(result, t)
    low, high = t.limits
    sizes = np.add.reduceat(np.abs(padded.astype(np.float64)), bounds)[::2]
    for place in np.flatnonzero(some)[sizes >= _EXACT].tolist():
        result[place] = min(max(sum(values[starts[place] : stops[place]].tolist()), low), high)
    return np.clip(result, low, high) if t.bits < 64 else result


def _sum(groups: Groups, g: int, part: slice) -> None:
    mode, tags = groups.mode, groups.tags[part]
    values, t = groups.values[0][part], groups.value_types[0]
    is_sum = groups.rule.operator == "sum"
    if is_sum and t.is_integer and np.abs(values.astype(np.float64)).sum() >= _EXACT:
        values = values.astype(object)
    identity = np.array([0 if is_sum else 1], dtype=values.dtype)

    def moved(sums: list[np.ndarray], row: int) -> list[np.ndarray]:
        with np.errstate(all="ignore"):
            after = sums[0] + values[row] if is_sum else sums[0] * values[row]
        return [wrap(after, t) if t.is_integer and not is_sum else after]

    (sums,), state, empty = _reached(mode, tags, [values[:0]], list(identity), moved)
    if is_sum and t.is_integer:
        low, high = t.limits
        within_limits = np.array([min(max(v, low), high) for v in sums.tolist()], groups.values[0].dtype)
        (sums,), state = _merged(mode, [within_limits], state)
    if groups.keeps_empty:
        groups.emit(np.array([g]), [to_words(identity, t)], empty)
    keep = ~mode.is_zero(state)
    if t.family == "float":
        keep &= ~np.isnan(sums)
    groups.emit(np.full(int(keep.sum()), g), [to_words(sums[keep], t)], state[keep])


def _extreme(groups: Groups, g: int, part: slice) -> None:
    mode, tags = groups.mode, groups.tags[part]
    rows = np.arange(part.start, part.stop)
    changes = np.zeros(max(len(rows) - 1, 0), dtype=bool)
    for column in groups.values:
        changes |= column[rows[1:]] != column[rows[:-1]]
    blocks = np.split(np.arange(len(rows)), np.flatnonzero(changes) + 1)
    if groups.rule.operator in ("max", "argmax"):
        blocks.reverse()
    no_better = mode.one(1)
    for block in blocks:
        there = tags[block]
        groups.emit(
            np.full(len(block), g),
            _result_of(groups, rows[block]),
            mode.times(repeat(no_better, len(block)), there),
        )
        absent = mode.negate(there)
        for row in range(len(block)):
            no_better = mode.times(no_better, absent[row : row + 1])
        if mode.is_zero(no_better).all():
            break


def _certain_extreme(groups: Groups, chosen: np.ndarray) -> None:
    chosen, starts, stops = groups.bounds(chosen, with_empty=False)
    ends = starts if groups.rule.operator in ("min", "argmin") else stops - 1
    # All rows that tie with the best one.
    lengths = stops - starts
    row = np.repeat(starts, lengths) + within(lengths)
    best = np.repeat(ends, lengths)
    ties = np.ones(len(row), dtype=bool)
    for column in groups.values:
        ties &= column[row] == column[best]
    row = row[ties]
    groups.emit(np.repeat(chosen, lengths)[ties], _result_of(groups, row), None)


def _result_of(groups: Groups, row: np.ndarray) -> list[np.ndarray]:
    """Result words of rows for min, max (arguments, then values) and argmin, argmax (arguments)."""
    found = [a[row] for a in groups.arguments]
    if AGGREGATES[groups.rule.operator].returns == "row":
        found += [to_words(v[row], t) for v, t in zip(groups.values, groups.value_types)]
    return found


def _sum_meaning(rows: list[tuple], num_arguments: int, t: ValueType) -> Iterator[Any]:
    yield from _total(sum(row[num_arguments] for row in rows), t, lambda v, low, high: max(low, min(high, v)))


def _prod_meaning(rows: list[tuple], num_arguments: int, t: ValueType) -> Iterator[Any]:
    total = math.prod(row[num_arguments] for row in rows)
    yield from _total(total, t, lambda v, low, high: (v - low) % (high - low + 1) + low)


def _total(value: Any, t: ValueType, fit: Callable[[int, int, int], int]) -> Iterator[Any]:
    if t.is_integer:
        yield fit(value, *t.limits)
    elif not math.isnan(value):
        yield float(np.float32(value)) if t.bits == 32 else value


def _extreme_meaning(best: Callable, returns: str) -> Callable[[list[tuple], int, ValueType], Iterator[Any]]:
    def meaning(rows: list[tuple], num_arguments: int, t: ValueType) -> Iterator[Any]:
        top = best((row[num_arguments:] for row in rows), default=None)
        for row in rows:
            if row[num_arguments:] == top:
                yield row if returns == "row" else row[:num_arguments]

    return meaning


for _record in (
    Aggregate("count", None, "usize", _certain_count, _count, lambda rows, _n, _t: iter([len(rows)])),
    Aggregate("exists", None, "bool", _certain_exists, _exists, lambda rows, _n, _t: iter([bool(rows)])),
    Aggregate("forall", None, "bool", _certain_exists, _exists, lambda rows, _n, _t: iter([not rows])),
    Aggregate("sum", ("number",), "value", _certain_sum, _sum, _sum_meaning),
    Aggregate("prod", ("number",), "value", _certain_sum, _sum, _prod_meaning),
    Aggregate("min", None, "row", _certain_extreme, _extreme, _extreme_meaning(min, "row")),
    Aggregate("max", None, "row", _certain_extreme, _extreme, _extreme_meaning(max, "row")),
    Aggregate("argmin", None, "arguments", _certain_extreme, _extreme, _extreme_meaning(min, "arguments")),
    Aggregate("argmax", None, "arguments", _certain_extreme, _extreme, _extreme_meaning(max, "arguments")),
):
    AGGREGATES.add(_record.name, _record)
