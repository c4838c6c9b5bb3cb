"""Bounds on the probability of a node of an and-or graph, without compiling it.

The worlds are split into cubes, the most probable first (`kernels.cubes`). What cubes are certain to hold is a lower
bound, what they are certain to fail leaves an upper one, and both get tighter with each split. What is open still may
be estimated by samples, whose interval is right with a confidence.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from derivable.circuit.graph.and_or_graph import AndOrGraph, plain
from derivable.circuit.kernels.and_or import components
from derivable.circuit.kernels.cubes import sample_cubes, split_cubes
from derivable.core.and_or import AND, LITERAL, OR, TRUE
from derivable.core.graph import offsets_of

# How sure one may be of an interval that samples give.
CONFIDENCE = 0.99
# Sums of masses from which on those that are no numbers do not count.
_LEAST = 1e-250
# Cubes that there is room for at first.
_FIRST_ROOM = 256


class Interval(NamedTuple):
    """Where a probability lies.

    lower, upper  its bounds
    estimate      the middle of proven bounds; the mean of samples within them
    confidence    1.0 for bounds that are proven, else how probable it is that samples give bounds that are right
    """

    lower: float
    upper: float
    estimate: float
    confidence: float = 1.0

    @property
    def width(self) -> float:
        return self.upper - self.lower

    def within(self, other: Interval) -> Interval:
        """What is in both."""
        low, high = max(self.lower, other.lower), min(self.upper, other.upper)
        high = max(low, high)
        return Interval(low, high, min(max(self.estimate, low), high), min(self.confidence, other.confidence))

    @staticmethod
    def proven(lower: float, upper: float) -> Interval:
        return Interval(lower, upper, (lower + upper) / 2)


class CubeSearch:
    """The search for the probability of a node, given a condition, or samples of several.

    graph    of any order, with the roots condition and query, or queries if none is split; node 1 is true
    weights  [variable] the probabilities of the random facts
    groups   sets of variables, from 0, of which exactly one is true
    """

    def __init__(self, graph: AndOrGraph, weights: np.ndarray, groups: Sequence[np.ndarray]):
        graph = graph.trimmed()
        component, count = components(graph.offsets, graph.children)
        order = np.lexsort((_heights(graph), component))
        graph = graph.taken(order)
        parts = np.searchsorted(component[order], np.arange(count + 1))
        is_literal = graph.kind == LITERAL
        codes = graph.literal[is_literal].astype(np.int64)
        variables, numbers = np.unique(np.abs(codes) - 1, return_inverse=True)
        literal = np.zeros(graph.num_nodes, np.int32)
        literal[is_literal] = np.sign(codes) * (numbers.reshape(-1) + 1)
        offsets, children = graph.offsets.astype(np.int64), graph.children.astype(np.int64)
        self._graph = graph.kind, literal, offsets, children, parts.astype(np.int64)
        self._facts = _facts(variables, weights, groups)
        self._scratch = (
            np.zeros(len(variables), np.int8),
            np.zeros(graph.num_nodes, np.uint8),
            np.zeros(graph.num_nodes),
            np.zeros(graph.num_nodes, np.int64),
        )
        self._worlds = self._scratch[0], np.zeros(len(variables), np.uint64), np.zeros(graph.num_nodes, np.uint64)
        self.roots = graph.roots.astype(np.int64)
        self.is_conditioned = bool(graph.kind[plain(graph.roots)[0]] != TRUE or graph.roots[0] < 0)
        self._cubes = _cubes(_FIRST_ROOM)
        self._sizes, self._sums = np.zeros(2, np.int64), np.zeros(3)
        # How often each query holds with the condition, and does not; how many samples there are, and looks at each.
        queries = len(self.roots) - 1
        self._counts, self._drawn, self._looks = np.zeros((queries, 2), np.int64), 0, [0] * queries
        self.split(0)

    @property
    def num_cubes(self) -> int:
        """How many cubes it has room for."""
        return len(self._cubes[0])

    @property
    def size(self) -> int:
        """Nodes and edges that a split goes over, twice."""
        return 1 + len(self._graph[0]) + len(self._graph[3])

    @property
    def masses(self) -> tuple[float, float, float]:
        """The masses of the cubes in which condition and query hold, in which the condition alone does, and of the open
        ones, in which they may."""
        is_open = self._cubes[4][: self._sizes[1]]
        return float(self._sums[0]), float(self._sums[1]), float(self._cubes[2][is_open].sum())

    def split(self, steps: int) -> int:
        """Split `steps` cubes, fewer where no more are open; returns how many were."""
        while self._sizes[0] + 2 * steps > self.num_cubes:
            self._cubes = tuple(np.concatenate([one, np.zeros_like(one)]) for one in self._cubes)
        return split_cubes(
            self.roots, self._graph, self._facts, self._cubes, self._sizes, self._sums, self._scratch, steps
        )

    def interval(self) -> Interval:
        """What is proven so far."""
        holds, fails, is_open = self.masses
        if not self.is_conditioned:
            return Interval.proven(min(holds, 1.0) if holds > _LEAST else 0.0, min(holds + is_open, 1.0))
        total = holds + fails + is_open
        if 0.0 < total < _LEAST:
            return Interval.proven(0.0, 1.0)
        return Interval.proven(holds / total, (holds + is_open) / total) if total else Interval.proven(0.0, 0.0)

    def open_all(self) -> None:
        """Have all worlds be one open cube, whatever is certain of them."""
        self._cubes[0][0], self._cubes[2][0] = -1, 1.0
        self._sizes[:], self._sums[:] = 1, (0.0, 0.0, 1.0)

    def draw(self, count: int, seed: int) -> None:
        """Draw `count` more samples of the worlds of open cubes, which no split may follow."""
        masses = self._cubes[2][self._cubes[4][: self._sizes[1]]]
        if len(masses):
            sample_cubes(
                *(self.roots, self._graph, self._facts, self._cubes, np.cumsum(masses), self._counts, self._worlds),
                *(np.uint64(seed % 2**64), self._drawn, count),
            )
            self._drawn += count

    def sampled(self, query: int = 0) -> Interval:
        """The interval of a query after the samples so far, of `CONFIDENCE` after any number of calls."""
        proven = self.interval()
        if not self._drawn:
            return proven
        self._looks[query] += 1
        looks, (of_query, of_others) = self._looks[query], self._counts[query].tolist()
        # Who looks several times may be wrong each time.
        doubt = (1.0 - CONFIDENCE) / (looks * (looks + 1))
        holds, fails, is_open = self.masses
        mean, *bounds = holds_of(of_query, self._drawn, doubt / (4 if self.is_conditioned else 2))
        low, high = (holds + is_open * bound for bound in bounds)
        middle = holds + is_open * mean
        if self.is_conditioned:
            mean, *bounds = holds_of(of_others, self._drawn, doubt / 4)
            least, most = (fails + is_open * bound for bound in bounds)
            other = fails + is_open * mean
            low = low / (low + most) if low else 0.0
            high = high / (high + least) if high else 0.0
            middle = middle / (middle + other) if middle + other else (low + high) / 2
        return Interval(low, high, middle, CONFIDENCE).within(proven)


def _heights(graph: AndOrGraph) -> np.ndarray:
    """[node] the height of its lowest proof from facts: a fixpoint is found soonest from the lowest up."""
    inner = np.flatnonzero((graph.kind >= AND) & (graph.sizes > 0))
    starts, is_or = graph.offsets[inner], graph.kind[inner] == OR
    height = np.zeros(graph.num_nodes)
    height[inner] = np.inf
    children, is_negated = plain(graph.children), graph.children < 0
    # Rows of children follow one another, as other nodes have none.
    while len(inner):
        of_child = np.where(is_negated, 0.0, height[children])
        heights = 1 + np.where(is_or, np.minimum.reduceat(of_child, starts), np.maximum.reduceat(of_child, starts))
        if (heights == height[inner]).all():
            break
        height[inner] = heights
    return height


def _facts(variables: np.ndarray, weights: np.ndarray, groups: Sequence[np.ndarray]) -> tuple[np.ndarray, ...]:
    """What kernels know of random facts, of those that a graph mentions (ascending)."""
    # Of a program with many choices a graph may mention few.
    weights = np.asarray(weights, np.float64)
    everyone = np.concatenate([*groups, np.empty(0, np.int64)]).astype(np.int64)
    owners = np.repeat(np.arange(len(groups)), np.array([len(group) for group in groups], np.int64))
    is_mentioned = np.isin(everyone, variables)
    members = np.searchsorted(variables, everyone[is_mentioned]).astype(np.int64)
    mentioned, numbers = np.unique(owners[is_mentioned], return_inverse=True)
    group_of = np.full(len(variables), -1, np.int64)
    group_of[members] = numbers.reshape(-1)
    rest = np.bincount(owners[~is_mentioned], weights[everyone[~is_mentioned]], len(groups))[mentioned]
    ends = offsets_of(np.bincount(numbers.reshape(-1), minlength=len(mentioned)))
    return weights[variables], rest.astype(np.float64), group_of, ends, members


def _cubes(room: int) -> tuple[np.ndarray, ...]:
    kinds = (np.int64, np.int32, np.float64, np.int32, np.int64)
    return tuple(np.zeros(room, kind) for kind in kinds)


def holds_of(count: int, drawn: int, doubt: float) -> tuple[float, float, float]:
    """The mean of samples, and bounds on the chance, each of which is wrong with a probability of at most `doubt`.

    Source: Chernoff's bound, exp(-n KL(mean, bound)), for any number of samples; no normal approximation.
    """
    mean, most = count / drawn, math.log(1.0 / doubt) / drawn

    def distance(chance: float) -> float:
        first = mean * math.log(mean / chance) if mean else 0.0
        return first + ((1 - mean) * math.log((1 - mean) / (1 - chance)) if mean < 1 else 0.0)

    def bound(far: float) -> float:
        near = mean
        for _ in range(60):
            middle = (near + far) / 2
            if 0.0 < middle < 1.0 and distance(middle) <= most:
                near = middle
            else:
                far = middle
        return far

    return mean, bound(0.0), bound(1.0)
