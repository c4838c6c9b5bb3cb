"""Bounds on exact probabilities, tightened until they are as narrow as is wanted, or the time is over.

Each row is searched by itself (`circuit.queries.bounds`), the rows in turn. What a little search leaves too wide is
compiled as in an exact run, if that ends within its part of the time; after that the search goes on, and samples, whose
bounds are right with a confidence, come last.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace

import numpy as np

from derivable.circuit.compilation.compile_process import CompilerError
from derivable.circuit.graph.and_or_graph import AndOrGraph
from derivable.circuit.queries.bounds import CubeSearch, Interval
from derivable.core.and_or import AND, TRUE
from derivable.core.diagnostics import DomainError, LimitError, UnsupportedError
from derivable.core.graph import offsets_of
from derivable.core.progress import progress
from derivable.datalog.exact.evidence import Conditioned, impossible
from derivable.datalog.exact.exact import Compiled, Grounding, nodes_of_items
from derivable.datalog.exact.unroll import without_circular
from derivable.datalog.policy.costs import policy
from derivable.datalog.ram.nodes import Ram
from derivable.datalog.rules.nodes import Evidence
from derivable.datalog.run.limits import Watch
from derivable.datalog.tags.ground_graph import negate

# The parts of the work, in order.
FIRST_SEARCH, COMPILATION, SEARCH, SAMPLES = range(4)
# The width that is wanted where a caller says no number.
WIDTH = 0.01
# Nodes and edges that a kernel goes through in a second, until it is measured; cubes of all rows, of 32 bytes each;
# seconds between two reports of how far it is.
_SPEED, _MOST_CUBES, _QUIET = 1e7, 1 << 24, 1.0
# Splits that are made of the first items of impossible evidence, to say which one cannot be.
_MOST_SPLITS = 1 << 12


def checked_width(approximate: bool | float) -> float | None:
    """The width of the bounds that are wanted, None for an exact run. Raises DomainError."""
    if isinstance(approximate, (bool, np.bool_)):
        return WIDTH if approximate else None
    if not isinstance(approximate, (int, float, np.number)) or not 0.0 < float(approximate) <= 1.0:
        raise DomainError(
            f"approximate is {approximate!r}, expected True, or how far apart bounds may be",
            hint="approximate=0.01 for bounds at most a hundredth apart",
        )
    return float(approximate)


@dataclass(frozen=True, eq=False)
class Bounds:
    """Bounds of rows.

    lower, upper  [row] of the probability of each row
    estimate      [row] the number between them that is a row's tag
    confidence    [row] 1 for bounds that are proven; for those of samples how probable it is that they are right
    """

    lower: np.ndarray
    upper: np.ndarray
    estimate: np.ndarray
    confidence: np.ndarray

    @staticmethod
    def of(intervals: Sequence[Interval]) -> Bounds:
        return Bounds(*np.array(intervals, np.float64).reshape(-1, 4).T.copy())

    @staticmethod
    def certain(count: int) -> Bounds:
        """Those of `count` rows that hold in every world."""
        return Bounds.of([Interval.proven(1.0, 1.0)] * count)

    def __len__(self) -> int:
        return len(self.lower)

    def __getitem__(self, row: int) -> Interval:
        return Interval(*(float(one[row]) for one in (self.lower, self.upper, self.estimate, self.confidence)))

    def rows(self, rows: np.ndarray | slice) -> Bounds:
        """Those of some rows."""
        return Bounds(self.lower[rows], self.upper[rows], self.estimate[rows], self.confidence[rows])


@dataclass(eq=False)
class Approximation:
    """Rows of a grounding whose probabilities are wanted no more exactly than `width`.

    nodes   [row] signed nodes
    items   the evidence
    bounds  after `shown`: of each row, and of the evidence
    """

    grounding: Grounding
    nodes: np.ndarray
    ram: Ram
    items: tuple[Evidence, ...]
    width: float
    watch: Watch
    bounds: Bounds = field(default_factory=lambda: Bounds.of([]))
    evidence: Interval = field(default_factory=lambda: Interval.proven(1.0, 1.0))

    def shown(self, fact_probabilities: Sequence[float]) -> tuple[np.ndarray, np.ndarray, float]:
        """The estimate [row] of P(row | evidence), whether the row may hold in a world of the evidence, and the
        logarithm of the estimate of the probability of the evidence, under the probabilities of the random facts.

        Raises DomainError for evidence that holds in no world.
        """
        weights = np.asarray(fact_probabilities, np.float64)
        distinct, where = np.unique(self.nodes, return_inverse=True)
        graph, evidence = self._conditioned(distinct)
        condition = evidence[-1] if evidence else TRUE
        # The row of the evidence comes first, if there is any.
        roots = [(TRUE, condition)] * bool(evidence) + [(condition, node) for node in graph.roots.tolist()]
        with _Rows(graph, roots, weights, self) as rows:
            rows.search(FIRST_SEARCH)
            log_evidence = self._compile(distinct, fact_probabilities, rows)
            rows.search(SEARCH)
            rows.sample(SAMPLES)
        if evidence:
            self.evidence = rows.intervals.pop(0)
        if self.evidence.upper == 0.0:
            raise self._impossible(graph, evidence, weights)
        self.bounds = Bounds.of(rows.intervals).rows(where.reshape(-1))
        if log_evidence is None:
            # Where no sample has the evidence, the mean of them is 0, which is a bound.
            log_evidence = math.log(self.evidence.estimate or self.evidence.upper / 2)
        return self.bounds.estimate, self.bounds.upper > 0.0, log_evidence

    def _conditioned(self, nodes: np.ndarray) -> tuple[AndOrGraph, list[int]]:
        """The graph of the rows, which are its roots, and in it the nodes of the first item of evidence, of the first
        two, ..."""
        items = nodes_of_items(self.grounding, self.ram, self.items)
        signs = np.array([item.is_true for item in self.items], bool)
        roots = np.concatenate([nodes, np.where(signs, items, negate(items))])
        graph = without_circular(self.grounding.graph.with_roots(roots), self.watch)
        first, count = graph.num_nodes, len(items)
        conjunctions = first + np.arange(count)
        before = np.concatenate([[TRUE], conjunctions])[:count]
        made = AndOrGraph(
            np.concatenate([graph.kind, np.full(count, AND, np.uint8)]),
            np.concatenate([graph.literal, np.zeros(count, np.int32)]),
            offsets_of(np.concatenate([graph.sizes, np.full(count, 2)])),
            np.concatenate([graph.children, np.stack([before, graph.roots[len(nodes) :]], 1).reshape(-1)]),
            graph.roots[: len(nodes)],
        )
        return made, conjunctions.tolist()

    def _compile(self, nodes: np.ndarray, probabilities: Sequence[float], rows: _Rows) -> float | None:
        """Have the rows that are too wide compiled, if there is time; then the logarithm of the probability of the
        evidence."""
        wide, first = rows.wide(), len(rows.intervals) - len(nodes)
        wide, seconds = wide[wide >= first], rows.seconds_until(COMPILATION)
        if not len(wide) or seconds <= 0:
            return None
        watch = Watch(replace(self.watch.limits, time_limit=seconds), shows=False)
        try:
            if self.items:
                made = Conditioned.of(self.grounding, nodes[wide - first], self.ram, self.items, watch)
            else:
                made = Compiled.of(self.grounding, nodes[wide - first], watch)
            posteriors, _, log_evidence = made.shown(probabilities)
        except (LimitError, CompilerError, UnsupportedError):
            return None
        for row, p in zip(wide.tolist(), np.clip(posteriors, 0.0, 1.0).tolist()):
            rows.prove(row, p, p)
        if self.items:
            # It holds in some world, though its probability may be too small for a float.
            p, least = math.exp(log_evidence), sys.float_info.min
            rows.prove(0, p if p >= least else 0.0, max(p, least))
        return log_evidence

    def _impossible(self, graph: AndOrGraph, evidence: Sequence[int], weights: np.ndarray) -> DomainError:
        """Of evidence that is certain to hold in no world, with the first item that cannot be so."""
        for item, node in zip(self.items, evidence):
            search = CubeSearch(graph.with_roots(np.array([TRUE, node])), weights, self.grounding.facts.random.groups)
            search.split(_MOST_SPLITS)
            if search.interval().upper == 0.0:
                return impossible(item, node != evidence[0])
        return impossible(self.items[-1], len(self.items) > 1)


class _Rows:
    """The searches of all rows, and the bounds that they have led to.

    graph, roots  the condition and the query of each row
    intervals     [row]
    """

    def __init__(self, graph: AndOrGraph, roots: list[tuple[int, int]], weights: np.ndarray, whose: Approximation):
        self.graph, self.roots, self.weights = graph, roots, weights
        self.random, self.watch, self.width = whose.grounding.facts.random, whose.watch, whose.width
        self.intervals = [Interval.proven(0.0, 1.0)] * len(roots)
        # How wide a row may be: posteriors are quotients, so evidence has to be as exact as its probability is small.
        self.is_relative = np.arange(len(roots)) < bool(whose.items)
        self.is_done = np.zeros(len(roots), bool)
        self.searches: dict[int, CubeSearch] = {}
        self.costs: dict[int, float] = {}
        self.began = self.reported = time.monotonic()
        left = self.watch.remaining()
        ends = policy().bound_seconds
        # So that results come within the limit.
        scale = 1.0 if left is None else 0.95 * left / ends[-1]
        self.ends = [self.began + scale * end for end in ends]
        self.display, self.advance = ExitStack(), None

    def __enter__(self) -> _Rows:
        return self

    def __exit__(self, *_) -> None:
        self.display.close()

    def seconds_until(self, part: int) -> float:
        """What is left until a part of the work ends."""
        return self.ends[part] - time.monotonic()

    def wide(self) -> np.ndarray:
        """The rows that are not as narrow as is wanted."""
        return np.flatnonzero(~self.is_done)

    def prove(self, row: int, lower: float, upper: float) -> None:
        self.intervals[row], self.is_done[row] = Interval.proven(lower, upper), True

    def search(self, part: int) -> None:
        """Search the wide rows in turn, ever longer, until this part of the work ends."""
        seconds, is_full = policy().look_seconds / 8, False
        while len(rows := self.wide()) and not is_full:
            room = sum(search.num_cubes for search in self.searches.values())
            is_full = True
            for row in rows.tolist():
                if self.seconds_until(part) <= 0:
                    return
                search = self._search(row)
                steps = max(1, int(seconds / self.costs[row]))
                if room + search.num_cubes + 2 * steps <= _MOST_CUBES:
                    is_full = False
                    began = time.perf_counter()
                    done = search.split(steps)
                    if done:
                        self.costs[row] = (time.perf_counter() - began) / done
                    self._note(row, search.interval(), done < steps)
            seconds = min(2 * seconds, policy().look_seconds)

    def sample(self, part: int) -> None:
        """Draw samples for the wide rows, ever more, until this part of the work ends."""
        if self.is_done.all():
            return
        proven, count, is_in_time = [*self.intervals], 1 << 8, True
        together, of_all = self._together()
        while len(rows := self.wide()) and is_in_time:
            if not self.is_done[of_all].all():
                is_in_time = self._draw(together, 2 * together.size / _SPEED, count, part)
                for query, row in enumerate(of_all):
                    if not self.is_done[row]:
                        self._note(row, together.sampled(query).within(proven[row]), False)
            for row in np.setdiff1d(rows, of_all).tolist():
                search = self._search(row)
                is_in_time = is_in_time and self._draw(search, self.costs[row], count, part)
                self._note(row, search.sampled(), False)
            count *= 2

    def _together(self) -> tuple[CubeSearch, list[int]]:
        """Rows for which samples of all worlds are better than samples of the open cubes of each, as the same worlds do
        for all of them, and what draws them."""
        rows = [row for row in self.wide().tolist() if not self.is_relative[row]]
        queries = [self.roots[row][1] for row in rows]
        made = CubeSearch(
            self.graph.with_roots(np.array([self.roots[-1][0], *(queries or [TRUE])])), self.weights, self.random.groups
        )
        made.open_all()
        begun = [self.searches[row] for row in rows if row in self.searches]
        # An interval of as many samples is narrower by the mass of open cubes, and width falls with their root.
        by_row = sum(search.size for search in begun) * np.mean([search.masses[2] ** 2 for search in begun] or [1.0])
        return made, rows if len(begun) < len(rows) or by_row > made.size else []

    def _draw(self, search: CubeSearch, cost: float, count: int, part: int) -> bool:
        """Draw `count` samples; whether there was the time for it."""
        while count > 0 and self.seconds_until(part) > 0:
            some = min(count, max(64, int(policy().look_seconds / cost)))
            search.draw(some, self.random.seed)
            count -= some
        return count <= 0

    def _search(self, row: int) -> CubeSearch:
        if row not in self.searches:
            roots = np.array(self.roots[row])
            made = self.searches[row] = CubeSearch(self.graph.with_roots(roots), self.weights, self.random.groups)
            self.costs[row] = 2 * made.size / _SPEED
        return self.searches[row]

    def _note(self, row: int, interval: Interval, is_at_end: bool) -> None:
        self.intervals[row] = interval
        width = self.width * (interval.upper if self.is_relative[row] else 1.0)
        self.is_done[row] = is_at_end or interval.width <= width
        if self.is_done[row]:
            self.searches.pop(row, None)
        now = time.monotonic()
        # The time ends the work, and is no error.
        self.watch.check_budget(now)
        if now - self.reported > _QUIET:
            self.reported = now
            if self.advance is None:
                self.advance = self.display.enter_context(progress("tightening bounds", enabled=self.watch.shows))
            widest = max(interval.width for interval in self.intervals)
            self.advance(0, f"{self.is_done.sum():,} of {len(self.roots):,} rows; the widest is {widest:.3g}")
