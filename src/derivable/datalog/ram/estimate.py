"""How many rows each operator of a query gives, and what it costs, by what is known of the relations.

Columns are taken to be independent of each other, but not their values to be equally frequent: how many pairs of rows
agree on a column comes from summaries of both (`datalog.statistics`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from derivable.datalog.foreign.standard import predicate_of
from derivable.datalog.policy.costs import policy
from derivable.datalog.ram import nodes as m
from derivable.datalog.scalars.nodes import Apply, Const, Expr, Var

# Nanoseconds, about, on one core: a row of the driver, a look into an index of one column or of several, a row read
# there, a look for a whole row, a row put into such an index, a condition, a row to store.
DRIVER, LOOK, LOOK_CHAIN, MATCH, PROBE = 1.0, 3.0, 8.0, 2.0, 10.0
INDEX, INDEX_CHAIN, CONDITION, STORE = 4.0, 15.0, 0.5, 12.0
# A look into the trie of one of several atoms that are intersected, and the values in a word of bits.
LOOK_TRIE, WORD_BITS = 7.0, 64.0
# A row put into an ordered index; a search there takes `Policy.search_ns`.
SORT = 100.0
# The part of rows for which a comparison holds, and rows of a range, where nothing is known.
COMPARISON, RANGE_ROWS, ABSENT = 0.4, 10.0, 0.8


class Summary(Protocol):
    """What is known of a column; see `datalog.statistics.ColumnSummary`."""

    rows: int
    distinct: float
    reach: float

    def pairs(self, other, /) -> float: ...

    def occurrences(self, word: int, /) -> float: ...


# The number of a scan in its query, its relation, and a column of that.
Source = tuple[int, str, int]


class Known(Protocol):
    """What is known of relations."""

    def rows(self, relation: str) -> int: ...

    def column(self, relation: str, column: int) -> Summary: ...

    def combinations(self, relation: str, columns: tuple[int, ...]) -> float:
        """Distinct combinations of the values of some columns."""
        ...

    def word(self, constant: Const) -> int | None:
        """The word of a constant, None for a text that no fact has."""
        ...

    def is_complete(self, relation: str) -> bool:
        """Whether a relation has all the rows that it will have."""
        ...


@dataclass(frozen=True)
class Common:
    """Joins of complete relations on one more variable, whose values are intersected (`fused.emit_intersection`).

    rows    what they are joined with, and the nanoseconds of that, with tries of all relations
    length  values, or words of bits, that are gone through for each row, at most
    """

    variable: str
    rows: float
    cost: float
    length: float


@dataclass(frozen=True)
class Estimate:
    """Rows of a query, nanoseconds so far, and for each column its distinct values and what is known of them.

    sources  for a column the scan that has bound it
    held  operators behind it that drop no more rows, as an index has left these out
    common  the joins so far that are intersected with the next one, if that is about the same variable
    """

    rows: float
    cost: float
    values: Mapping[str, tuple[float, Summary | None]]
    sources: Mapping[str, Source] = field(default_factory=dict)
    held: tuple[m.Operator, ...] = ()
    common: Common | None = None


class Estimator:
    """known       what is known of relations
    stops_at_first  whether a join that binds nothing more is over at the first row that matches: without tags
    """

    def __init__(self, known: Known, stops_at_first: bool):
        self.known, self.stops_at_first = known, stops_at_first

    def store(self, store: m.Store) -> list[Estimate]:
        """Estimates of all operators of a store's query, from its first to the one that is projected."""
        return self.chain(None, store.query.operators, store.query.later)

    def chain(
        self, before: Estimate | None, nodes: Sequence[m.Operator], later: Sequence[frozenset[str]]
    ) -> list[Estimate]:
        """Estimates of operators, each of which gets the rows of the one before; `later` names are read behind each."""
        estimates: list[Estimate] = []
        for node, names in zip(nodes, later):
            before = self.step(before, node, names)
            estimates.append(before)
        return estimates

    def cost(self, store: m.Store) -> float:
        """Nanoseconds that a store is estimated to take."""
        return self.stored(self.store(store)[-1])

    def stored(self, last: Estimate) -> float:
        """The cost of a query whose last operator is estimated so, its rows being stored."""
        return last.cost + STORE * last.rows

    def step(self, before: Estimate | None, node: m.Operator, needed: frozenset[str]) -> Estimate:
        """The rows of an operator; `needed` are the names that are read after it."""
        match node:
            case m.Unit():
                return Estimate(1.0, 0.0, {})
            case m.Scan():
                return self.joined(Estimate(1.0, 0.0, {}), node, needed, is_driver=True)
        assert before is not None
        made = self._behind(before, node, needed)
        return replace(made, held=made.held or before.held)

    def _behind(self, before: Estimate, node: m.Operator, needed: frozenset[str]) -> Estimate:
        match node:
            case m.Join(right=right):
                return self.joined(before, right, needed, is_driver=False, within=node.range)
            case m.Difference():
                return self._restricted(before, ABSENT, PROBE)
            case m.Select(condition=condition):
                return self._restricted(
                    before, 1.0 if node in before.held else self.holds(before, condition), CONDITION
                )
            case m.Extend(variable=v, expression=e):
                there = before.values.get(e.name) if isinstance(e, Var) else None
                there = there or (1.0 if isinstance(e, Const) else before.rows, None)
                return replace(before, cost=before.cost + before.rows, values={**before.values, v.name: there})
            case m.Generate(outputs=outputs, negated=negated):
                fresh = (
                    [] if negated else [t.name for t in outputs if isinstance(t, Var) and t.name not in before.values]
                )
                if not fresh:
                    return self._restricted(before, 1.0 if node in before.held else COMPARISON, CONDITION)
                rows = before.rows * integers_of(node, RANGE_ROWS)
                values = {**before.values, **dict.fromkeys(fresh, (rows, None))}
                return Estimate(rows, before.cost + rows * MATCH, values, before.sources)
        return before

    def _restricted(self, before: Estimate, part: float, cost: float) -> Estimate:
        rows = before.rows * part
        values = {name: (min(distinct, rows), summary) for name, (distinct, summary) in before.values.items()}
        return Estimate(rows, before.cost + before.rows * cost, values, before.sources)

    def holds(self, before: Estimate, condition: Expr) -> float:
        """The part of rows for which a condition holds."""
        match condition:
            case Apply(operator="==", operands=operands):
                known = [before.values[e.name][0] for e in operands if isinstance(e, Var) and e.name in before.values]
                return 1.0 / max([1.0, *known])
            case Apply(operator="!="):
                return 1.0
            case Apply(operator="&&", operands=(a, b)):
                return self.holds(before, a) * self.holds(before, b)
        return COMPARISON

    def joined(
        self,
        before: Estimate,
        scan: m.Scan,
        needed: frozenset[str],
        is_driver: bool,
        within: m.Range | None = None,
    ) -> Estimate:
        known, name = self.known, scan.relation
        size = float(known.rows(name))
        bindings = m.bindings(scan, before.values)
        matches = size
        values = dict(before.values)
        together = self._together(before, bindings)
        for columns, others in together:
            distinct = min(before.rows, known.combinations(others[0][1], tuple(other[2] for other in others)))
            matches /= max(1.0, distinct, known.combinations(name, columns))
        joint = {column for columns, _ in together for column in columns}
        for column, term in bindings.keys:
            summary = known.column(name, column)
            if isinstance(term, Const):
                word = known.word(term)
                matches *= 0.0 if word is None or not size else summary.occurrences(word) / size
                continue
            distinct, other = before.values[term.name]
            if column in joint:
                pass
            elif other is not None and other.rows and summary.rows:
                matches *= min(1.0, summary.pairs(other) / summary.rows / other.rows)
            else:
                matches /= max(1.0, distinct, summary.distinct)
            if summary.distinct < distinct or other is None:
                values[term.name] = (min(distinct, summary.distinct), summary)
        for a, b in bindings.repeats:
            matches /= max(1.0, known.column(name, a).distinct, known.column(name, b).distinct)
        if within is not None:
            matches *= self.part_within(within, known.column(name, within.column))
        is_whole = bool(bindings.keys) and len(bindings.keys) == len(scan.terms)
        is_needed = any(fresh in needed for fresh in bindings.fresh)
        if is_whole or (self.stops_at_first and not is_driver and not is_needed):
            matches = min(1.0, matches)
        rows = before.rows * matches
        cost = before.cost
        if is_driver:
            cost += DRIVER * size
        elif is_whole:
            cost += PROBE * before.rows
        elif within is not None:
            searches = 2 * len(bindings.keys) + len(within.bounds)
            cost += SORT * size + before.rows * policy().search_ns * searches + rows * MATCH
        elif not bindings.keys:
            cost += MATCH * rows
        elif len(bindings.keys) == 1:
            cost += INDEX * size + before.rows * LOOK + rows * MATCH
        else:
            cost += INDEX_CHAIN * size + before.rows * LOOK_CHAIN + rows * MATCH
        common = None if is_driver else self._common(before, scan, bindings, size, rows, within)
        if common is not None and is_whole:
            cost = min(cost, common.cost + common.rows * common.length + rows * MATCH)
        for fresh, column in bindings.fresh.items():
            if fresh in needed:
                summary = known.column(name, column)
                values[fresh] = (min(summary.distinct, max(rows, 1.0)), summary)
        most = max(rows, 1.0)
        values = {name: (min(d, most), summary) for name, (d, summary) in values.items()}
        held = () if within is None else tuple(bound.source for bound in within.bounds)
        number = 1 + max((source[0] for source in before.sources.values()), default=0)
        sources = {**before.sources, **{fresh: (number, name, column) for fresh, column in bindings.fresh.items()}}
        return Estimate(rows, cost, values, sources, held, common)

    def _common(
        self, before: Estimate, scan: m.Scan, bindings: m.Bindings, size: float, rows: float, within: m.Range | None
    ) -> Common | None:
        """The joins that are intersected up to this one; None if it is none of those."""
        if (
            not self.stops_at_first
            or within is not None
            or bindings.repeats
            or not self.known.is_complete(scan.relation)
        ):
            return None
        if len(bindings.fresh) == 1 and bindings.keys:
            ((variable, column),) = bindings.fresh.items()
            last = Common(variable, before.rows, before.cost, rows / max(1.0, before.rows))
        else:
            columns = [
                c
                for c, term in bindings.keys
                if isinstance(term, Var) and before.common and term.name == before.common.variable
            ]
            if bindings.fresh or len(columns) != 1 or len(bindings.keys) < 2 or before.common is None:
                return None
            column, last = columns[0], before.common
        words = self.known.column(scan.relation, column).reach / WORD_BITS
        cost = last.cost + INDEX * size + last.rows * LOOK_TRIE
        return replace(last, cost=cost, length=min(last.length, words))

    def _together(self, before: Estimate, bindings: m.Bindings) -> list[tuple[tuple[int, ...], list[Source]]]:
        """Columns of a join whose values one scan has bound, so that their combinations are not those of columns that
        are independent of each other: (columns, sources)."""
        by_scan: dict[int, list[tuple[int, Source]]] = {}
        for column, term in bindings.keys:
            source = before.sources.get(term.name) if isinstance(term, Var) else None
            if source is not None:
                by_scan.setdefault(source[0], []).append((column, source))
        return [
            (tuple(column for column, _ in some), [source for _, source in some])
            for some in by_scan.values()
            if len(some) > 1
        ]

    def part_within(self, within: m.Range, summary: Summary) -> float:
        """The part of the values of a column that is within bounds."""
        lows = [bound.value for bound in within.bounds if bound.operator[0] == ">"]
        highs = [bound.value for bound in within.bounds if bound.operator[0] == "<"]
        widths = [width for a in lows for b in highs if (width := distance(a, b)) is not None]
        if widths and summary.reach and within.bounds[0].value.type.is_integer:
            return min(1.0, max(min(widths), 1.0) / summary.reach)
        return COMPARISON ** (bool(lows) + bool(highs))


def distance(a: Expr, b: Expr) -> float | None:
    """How far b is above a, if that is known: both are constants, or one expression with constants added."""
    (start, first), (end, last) = _offset(a), _offset(b)
    return last - first if start == end else None


def _offset(e: Expr) -> tuple[Expr | None, float]:
    """An expression as another one, None for zero, and a constant added to it."""
    match e:
        case Const() if e.type.is_number:
            return None, float(e.value)
        case Apply(operator="+" | "+!", operands=(a, Const(value=value))) if e.type.is_number:
            return a, float(value)
        case Apply(operator="-" | "-!", operands=(a, Const(value=value))) if e.type.is_number:
            return a, -float(value)
    return e, 0.0


def integers_of(node: m.Generate, unknown: float) -> float:
    """How many rows a predicate gives: of the integers from one to another their number if that is known."""
    closed = predicate_of(node.predicate).closed
    width = None if closed is None else distance(*node.inputs)
    return unknown if width is None else max(0.0, width + bool(closed))
