"""Two chains of nodes on the sub-arrays of one array: what runs when, and on how many sub-arrays.

The layers of a loop run one after the other, and so do the vector nodes; a layer of one loop runs beside a vector node
of the loop before (NSFlow, section V-B), as long as both find sub-arrays. Nothing else is known here of dependencies.

Printed form of a schedule:

    8 sub-arrays, 1128 cycles
           0       296  layer[64, 27, 16] on 7
         296      1128  layer[16, 144, 16] on 5
         296       640  vectors[12, 32] on 3
         640       984  vectors[12, 32] on 3
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np

from derivable.accelerator.operators import runtime
from derivable.accelerator.operators.runtime import Layer, Mapping, Vectors
from derivable.core.arguments import integer
from derivable.core.diagnostics import DomainError


@dataclass(frozen=True)
class Workload:
    """What a loop does on the array: `layers` in their order, `vectors` in theirs. Products of matrices between vector
    nodes, which compare with codebooks and mix their items, stand among `vectors`."""

    layers: tuple[Layer, ...] = ()
    vectors: tuple[Vectors | Layer, ...] = ()

    def __init__(self, layers: Iterable[Layer] = (), vectors: Iterable[Vectors | Layer] = ()):
        object.__setattr__(self, "layers", tuple(layers))
        object.__setattr__(self, "vectors", tuple(vectors))

    @property
    def macs(self) -> int:
        return sum(node.macs for node in (*self.layers, *self.vectors))


@dataclass(frozen=True)
class Placed:
    """A node on `sub_arrays` sub-arrays from cycle `start` to cycle `end`, which is not its own any more."""

    node: Layer | Vectors
    sub_arrays: int
    start: int
    end: int

    def __str__(self) -> str:
        return f"{self.start:>8}  {self.end:>8}  {self.node} on {self.sub_arrays}"


@dataclass(frozen=True)
class Schedule:
    """Where and when each node of a workload runs on an array of `sub_arrays` sub-arrays."""

    sub_arrays: int
    layers: tuple[Placed, ...]
    vectors: tuple[Placed, ...]

    @property
    def cycles(self) -> int:
        """Cycles from the first start to the last end."""
        return max((placed.end for placed in (*self.layers, *self.vectors)), default=0)

    def __str__(self) -> str:
        head = f"{self.sub_arrays} sub-arrays, {self.cycles} cycles"
        return "\n".join([head, *(f"{placed}" for placed in (*self.layers, *self.vectors))])


@dataclass(frozen=True)
class Costs:
    """Cycles of each node on each number of sub-arrays.

    layers   [layer, count] int64, never more on more sub-arrays; at index 0 those on none, which are not used
    vectors  [vector node, count], likewise
    """

    workload: Workload
    layers: np.ndarray
    vectors: np.ndarray

    @property
    def sub_arrays(self) -> int:
        return self.layers.shape[1] - 1

    @cached_property
    def rows(self) -> tuple[list[list[int]], list[list[int]]]:
        """`layers` and `vectors` as lists, which are faster to read number by number."""
        return self.layers.tolist(), self.vectors.tolist()

    @cached_property
    def runs(self) -> list[tuple[list[int], int]]:
        """The rows of `vectors`, and how many like it follow each other."""
        return [(row, len(list(group))) for row, group in itertools.groupby(self.rows[1])]


def costs(
    workload: Workload, height: int, width: int, sub_arrays: int, mapping: Mapping = "temporal", adders: bool = False
) -> Costs:
    """Cycles of all nodes on 1 to `sub_arrays` sub-arrays, by equations (1), (3) and (4).

    mapping  "temporal", "spatial", or "node": the smaller of the two at every node and count
    adders   whether adders of partial sums cost their latency, which they do not in the equations; a node that gains
             nothing by more sub-arrays then leaves some of them idle
    """
    if mapping not in ("temporal", "spatial", "node"):
        raise DomainError(
            f"mapping is {mapping!r}, expected 'temporal', 'spatial' or 'node'",
            hint="equation (5) chooses one mapping for all nodes together: compare the two",
        )
    counts = np.arange(1, sub_arrays + 1)

    def of_layer(layer: Layer) -> np.ndarray:
        cycles = runtime.layer_cycles(layer, height, width, counts)
        return cycles + runtime.partial_sum_cycles(layer, height, width, counts) if adders else cycles

    def of_vectors(node: Vectors) -> np.ndarray:
        temporal = runtime.temporal_cycles(node, height, width, counts)
        spatial = runtime.spatial_cycles(node, height, width, counts)
        if adders:
            spatial = spatial + runtime.column_sum_cycles(node, height, width, counts)
        return {"temporal": temporal, "spatial": spatial, "node": np.minimum(temporal, spatial)}[mapping]

    def table(nodes: Sequence[Layer | Vectors]) -> np.ndarray:
        distinct = {
            node: np.concatenate(
                [[0], np.minimum.accumulate(of_layer(node) if isinstance(node, Layer) else of_vectors(node))]
            )
            for node in dict.fromkeys(nodes)
        }
        return np.array([distinct[node] for node in nodes], np.int64).reshape(len(nodes), sub_arrays + 1)

    return Costs(workload, table(workload.layers), table(workload.vectors))


def check(schedule: Schedule, cost: Costs) -> None:
    """Raises DomainError unless every node of the workload runs once, for what it costs, after the one before it in its
    chain, and never more sub-arrays are taken than there are."""
    for what, placed, nodes, table in (
        ("layer", schedule.layers, cost.workload.layers, cost.layers),
        ("vector node", schedule.vectors, cost.workload.vectors, cost.vectors),
    ):
        if tuple(item.node for item in placed) != nodes:
            raise DomainError(f"the schedule has not the {what}s of the workload in their order")
        free = 0
        for index, item in enumerate(placed):
            integer(item.sub_arrays, f"sub_arrays of {what} {index}", 1, schedule.sub_arrays)
            if item.start < free:
                raise DomainError(f"{what} {index} starts at {item.start}, the one before it ends at {free}")
            if item.end - item.start != table[index, item.sub_arrays]:
                raise DomainError(
                    f"{what} {index} takes {item.end - item.start} cycles, "
                    f"on {item.sub_arrays} sub-arrays it costs {table[index, item.sub_arrays]}"
                )
            free = item.end
    for layer, node in itertools.product(schedule.layers, schedule.vectors):
        if layer.start < node.end and node.start < layer.end:
            taken = layer.sub_arrays + node.sub_arrays
            if taken > schedule.sub_arrays:
                raise DomainError(
                    f"{layer.node} and {node.node} take {taken} sub-arrays from cycle {max(layer.start, node.start)} "
                    f"on, there are {schedule.sub_arrays}"
                )


def sequential(cost: Costs) -> Schedule:
    """All layers, then all vector nodes, each on all sub-arrays."""
    count = cost.sub_arrays
    ends = itertools.accumulate((row[-1] for table in cost.rows for row in table), initial=0)
    nodes = (*cost.workload.layers, *cost.workload.vectors)
    placed = [Placed(node, count, start, end) for node, (start, end) in zip(nodes, itertools.pairwise(ends))]
    split = len(cost.workload.layers)
    return Schedule(count, tuple(placed[:split]), tuple(placed[split:]))


def beside(cost: Costs, counts: Sequence[int]) -> Schedule:
    """Layers without a pause on `counts` sub-arrays each, and each vector node where it ends soonest beside them.

    A vector node takes as many sub-arrays as all layers leave beside which it runs, and waits for the end of a layer
    where that is sooner; that is best for all vector nodes after it. Layers that find no vector node any more take all
    sub-arrays.
    """
    placed = []
    for nodes, places in zip((cost.workload.layers, cost.workload.vectors), placement(cost, counts)):
        each = (
            (count, start + index * cycles, start + (index + 1) * cycles)
            for count, start, cycles, times in places
            for index in range(times)
        )
        placed.append(tuple(Placed(node, *place) for node, place in zip(nodes, each, strict=True)))
    return Schedule(cost.sub_arrays, *placed)


Place: TypeAlias = tuple[int, Any, Any, int]  # sub-arrays, start, cycles of each, nodes one after the other


def placement(cost: Costs, counts: Sequence[int]) -> tuple[list[Place], list[Place]]:
    """The layers and the vector nodes of `beside`, without their nodes; vector nodes alike are one place together."""
    total = cost.sub_arrays
    of_layers = cost.rows[0]
    ends: list[float] = [*itertools.accumulate(row[count] for row, count in zip(of_layers, counts)), math.inf]
    free = [*(total - count for count in counts), total]
    vectors, now, at = [], 0, 0
    for row, times in cost.runs:
        while times:
            while ends[at] <= now:
                at += 1
            cycles = row[free[at]]
            if free[at] and now + cycles <= ends[at]:
                fitting = times if ends[at] == math.inf else min(times, int(ends[at] - now) // cycles)
                vectors.append((free[at], now, cycles, fitting))
                times, now = times - fitting, now + fitting * cycles
            else:
                count, start, end = _soonest(row, now, at, ends, free)
                vectors.append((count, start, end - start, 1))
                times, now = times - 1, end
    layers, start = [], 0
    for row, count in zip(of_layers, counts):
        count = total if start >= now else count
        layers.append((count, start, row[count], 1))
        start += row[count]
    return layers, vectors


def _soonest(row: list[int], now: int, at: int, ends: list[float], free: list[int]) -> tuple[int, Any, Any]:
    """Where a node that overlaps several layers ends soonest: (sub-arrays, start, end)."""
    best: tuple[int, Any, Any] = (0, 0, math.inf)
    start: Any = now
    while start < best[2]:
        count, last = free[at], at
        while count and start + row[count] > ends[last]:
            last += 1
            count = min(count, free[last])
        if count and start + row[count] < best[2]:
            best = (count, start, start + row[count])
        # A later start ends sooner only where more sub-arrays are free than before.
        start, at = ends[at], at + 1
        while start < best[2] and free[at] <= free[at - 1]:
            start, at = ends[at], at + 1
    return best


def lengths(cost: Costs, counts: Sequence[int]) -> tuple[int, int]:
    """The cycles in which the last layer and the last vector node of `beside` end."""
    (_, start, cycles, _), (_, other, of_each, times) = (places[-1] for places in placement(cost, counts))
    return start + cycles, other + of_each * times


def useful(row: list[int]) -> list[int]:
    """The counts that are faster than all smaller ones."""
    return [c for c in range(1, len(row)) if c == 1 or row[c] < row[c - 1]]
