"""The two-phase exploration of designs: which array, and who takes how many of its sub-arrays (NSFlow, algorithm 1).

Phase I tries every height and width and every static partition; phase II tunes the sub-arrays of each node around the
best partition. Two readings differ from the print. The `return` of line 15 stands inside the loop over arrays, where it
would end the search at the first one: here the best sequential and the best parallel design are remembered and compared
at the end. Line 23 compares t_seq with t_para, which no iteration changes: here t_nn with t_vsa. And since a layer that
takes one sub-array more takes it from every vector node that it overlaps in time, these are placed anew at each step
(`schedule.beside`): a tuned design always runs on the sub-arrays that there are.

Printed form of what is found:

    4 x 4 x 8 for 128 elements, temporal, parallel
    sequential           1504 cycles on 4 x 4 x 8
    phase I              1376 cycles on 4 x 4 x 8, 6 : 2
    phase II             1216 cycles
    refined              1128 cycles
    8 sub-arrays, 1128 cycles
           0       296  layer[64, 27, 16] on 7
         296      1128  layer[16, 144, 16] on 5
         296       640  vectors[12, 32] on 3
         640       984  vectors[12, 32] on 3
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from derivable.accelerator.explore import schedule
from derivable.accelerator.explore.schedule import Costs, Schedule, Workload, costs
from derivable.accelerator.operators.runtime import MAPPINGS, Mapping
from derivable.core.arguments import integer
from derivable.core.diagnostics import DomainError
from derivable.core.progress import progress

SMALLEST = 4  # rows and columns: below, what surrounds a sub-array outweighs it
RATIO = (0.25, 16.0)  # of height to width, table II


@dataclass(frozen=True)
class Candidate:
    """What phase I knows of an array of `sub_arrays` sub-arrays of `height` x `width` elements.

    neural, symbolic  sub-arrays of every layer and of every vector node: their sum is `sub_arrays` where they run
                      beside each other, and both are `sub_arrays` where they do not
    cycles            of a loop
    """

    height: int
    width: int
    sub_arrays: int
    neural: int
    symbolic: int
    cycles: int
    mapping: Mapping

    @property
    def array(self) -> tuple[int, int, int]:
        return self.height, self.width, self.sub_arrays

    @property
    def choice(self) -> dict[str, Any]:
        """What an exploration has of the candidate that it chose."""
        sizes = {"height": self.height, "width": self.width, "sub_arrays": self.sub_arrays}
        return {**sizes, "partition": (self.neural, self.symbolic), "mapping": self.mapping}


@dataclass(frozen=True)
class Exploration:
    """The design that was found, and what the steps towards it had found.

    sequential   the best array where layers and vector nodes take turns
    parallel     the best array and static partition where they run beside each other; None if there are not both
    tuned        cycles after phase II as algorithm 1 has it, None without `parallel`
    schedule     of a loop in the steady state: layers of one loop beside vector nodes of the loop before
    """

    workload: Workload
    pes: int
    height: int
    width: int
    sub_arrays: int
    partition: tuple[int, int]
    mapping: Mapping
    mode: Literal["parallel", "sequential"]
    schedule: Schedule
    sequential: Candidate
    parallel: Candidate | None = None
    tuned: int | None = None
    adders: bool = False

    @property
    def cycles(self) -> int:
        """Cycles of a loop in the steady state."""
        return self.schedule.cycles

    @property
    def phase_one(self) -> int:
        """Cycles of the best design of phase I."""
        return min(found.cycles for found in (self.sequential, self.parallel) if found is not None)

    @property
    def costs(self) -> Costs:
        return costs(self.workload, self.height, self.width, self.sub_arrays, self.mapping, self.adders)

    def cycles_of(self, loops: int) -> int:
        """Cycles of so many loops. The first's layers and the last's vector nodes have nothing beside them."""
        integer(loops, "loops", 1)
        alone = schedule.sequential(self.costs).cycles
        return alone + (loops - 1) * self.cycles if self.mode == "parallel" else loops * self.cycles

    def __str__(self) -> str:
        shape = f"{self.height} x {self.width} x {self.sub_arrays}"
        rows = [f"{shape} for {self.pes} elements, {self.mapping}, {self.mode}", _row("sequential", self.sequential)]
        if self.parallel is not None and self.tuned is not None:
            found = self.parallel
            rows.append(f"{_row('phase I', found)}, {found.neural} : {found.symbolic}")
            rows.append(f"{'phase II':12} {self.tuned:>12} cycles")
            rows.append(f"{'refined' if self.mode == 'parallel' else 'chosen':12} {self.cycles:>12} cycles")
        return "\n".join([*rows, str(self.schedule)])


def _row(name: str, found: Candidate) -> str:
    return f"{name:12} {found.cycles:>12} cycles on {found.height} x {found.width} x {found.sub_arrays}"


def arrays(
    pes: int,
    heights: Iterable[int] | None = None,
    widths: Iterable[int] | None = None,
    most_sub_arrays: int | None = None,
    largest_side: int | None = None,
) -> list[tuple[int, int, int]]:
    """(height, width, sub-arrays) of all arrays that have at most `pes` elements, with as many sub-arrays as fit.

    heights, widths  to try; powers of two from 4 on by default, then with a ratio of height to width of 1/4 to 16
    most_sub_arrays  where more would fit
    largest_side     of the heights and widths that are tried by default
    """
    pes = integer(pes, "pes", 1)
    largest = pes if largest_side is None else min(pes, largest_side)
    powers = [2**e for e in range(largest.bit_length()) if 2**e >= SMALLEST]
    low, high = RATIO if heights is None and widths is None else (0.0, float("inf"))
    tried = [
        [integer(size, what, 1) for size in given] if given is not None else powers
        for what, given in (("a height", heights), ("a width", widths))
    ]
    found = [
        (height, width, min(pes // (height * width), most_sub_arrays or pes))
        for height in sorted(set(tried[0]))
        for width in sorted(set(tried[1]))
        if height * width <= pes and low <= height / width <= high
    ]
    if not found:
        raise DomainError(
            f"no array of the heights {tried[0]} and widths {tried[1]} has at most {pes} elements",
            hint=f"give a pes= of at least {SMALLEST * SMALLEST}, or smaller heights= and widths=",
        )
    return found


def explore(workload: Workload, pes: int, **options: Any) -> Exploration:
    """The array and the sub-arrays of every node that take the fewest cycles of the array for a loop of `workload`.

    pes      processing elements, at most
    options  of `finalists`

    Ties go to the sequential design, then to smaller heights and widths.
    """
    return min(finalists(workload, pes, **options), key=lambda found: found.cycles)


def finalists(
    workload: Workload,
    pes: int,
    *,
    heights: Iterable[int] | None = None,
    widths: Iterable[int] | None = None,
    most_sub_arrays: int | None = None,
    largest_side: int | None = None,
    mapping: Mapping = "temporal",
    adders: bool = False,
    iterations: int = 20,
    tuned_arrays: int = 3,
    in_turns: int | None = 3,
    effort: int = 2_000_000,
) -> list[Exploration]:
    """The best designs in which layers and vector nodes take turns, then those in which they run beside each other:
    each on an array of its own, by the cycles of phase I.

    pes             processing elements, at most
    heights, widths, most_sub_arrays, largest_side  of the arrays to try: see `arrays`
    mapping         "temporal", which is what the generated hardware does; "spatial"; "printed", one of them for all
                    nodes as in equation (5); "node", the better at each node
    adders          whether the adders of partial sums, which the paper does not cost, cost their latency
    iterations      of phase II
    tuned_arrays    how many of the best arrays of phase I on which they run beside each other are tuned
    in_turns        how many of the best arrays there are on which they take turns; None: all
    effort          nodes that the refinement may place; 0 leaves phase II as algorithm 1 has it

    Deterministic. Source: NSFlow, algorithm 1; the refinement is ours (docs/decisions/091): descent from what phase II
    found and from the best static partitions, first over the sub-arrays of layers, then over those of vector nodes.
    """
    if not workload.layers and not workload.vectors:
        raise DomainError("the workload has no layer and no vector node", hint="give at least one of them")
    if mapping not in MAPPINGS:
        raise DomainError(f"there is no mapping {mapping!r}", hint=f"known are {', '.join(MAPPINGS)}")
    tried = arrays(pes, heights, widths, most_sub_arrays, largest_side)
    with progress("exploring", len(tried) + tuned_arrays) as advance:
        turns, beside = [], []
        for array in tried:
            for candidate in _phase_one(workload, *array, mapping, adders):
                (turns if candidate.neural == candidate.symbolic == array[2] else beside).append(candidate)
            advance(note="phase I")
        alone = _leaders(turns, in_turns)
        leaders = _leaders(beside, tuned_arrays)
        listed = [
            Exploration(
                workload=workload,
                pes=pes,
                mode="sequential",
                schedule=schedule.sequential(_costs(workload, found, adders)),
                sequential=alone[0],
                adders=adders,
                **found.choice,
            )
            for found in alone
        ]
        walked = None
        for found in leaders:
            cost = _costs(workload, found, adders)
            counts = phase_two(cost, found.neural, iterations)
            walked = walked or min(schedule.beside(cost, counts).cycles, found.cycles)
            refined = _refine(cost, counts, found.neural, iterations, effort // len(leaders))
            listed.append(replace(listed[0], mode="parallel", schedule=refined, **found.choice))
            advance(note="phase II")
    return [replace(each, parallel=leaders[0], tuned=walked) if leaders else each for each in listed]


def _leaders(candidates: Iterable[Candidate], most: int | None) -> list[Candidate]:
    """The best candidate of each of the `most` best arrays, best first; of all without it."""
    best: dict[tuple[int, int, int], Candidate] = {}
    for found in sorted(candidates, key=lambda found: found.cycles):
        best.setdefault(found.array, found)
    return list(best.values())[:most]


def _costs(workload: Workload, found: Candidate, adders: bool) -> Costs:
    return costs(workload, *found.array, found.mapping, adders)


def _phase_one(
    workload: Workload, height: int, width: int, sub_arrays: int, mapping: Mapping, adders: bool
) -> Iterator[Candidate]:
    """The best sequential design on an array, and the best static partition if there are two to share it."""
    for each in ("temporal", "spatial") if mapping == "printed" else (mapping,):
        cost = costs(workload, height, width, sub_arrays, each, adders)
        neural, symbolic = cost.layers.sum(0), cost.vectors.sum(0)
        together = int(neural[-1] + symbolic[-1])
        yield Candidate(height, width, sub_arrays, sub_arrays, sub_arrays, together, each)
        if workload.layers and workload.vectors and sub_arrays > 1:
            longer = np.maximum(neural[1:-1], symbolic[-2:0:-1])
            count = int(longer.argmin()) + 1
            yield Candidate(height, width, sub_arrays, count, sub_arrays - count, int(longer[count - 1]), each)


def phase_two(cost: Costs, neural: int, iterations: int = 20) -> list[int]:
    """The sub-arrays of each layer after phase II of algorithm 1, from the static partition with `neural` for all.

    Layer by layer, one sub-array goes to the chain that takes longer: to the layer, or to all vector nodes that it
    overlaps in time. Steps that make it worse are taken too; the best of all is returned.
    """
    counts = [neural] * len(cost.workload.layers)
    ends = schedule.lengths(cost, counts)
    best, least = list(counts), max(ends)
    for _ in range(iterations):
        before = list(counts)
        for index in range(len(counts)):
            step = -1 if ends[0] < ends[1] else 1
            counts[index] = min(max(counts[index] + step, 1), cost.sub_arrays)
            ends = schedule.lengths(cost, counts)
            if max(ends) < least:
                best, least = list(counts), max(ends)
        if counts == before:
            break
    return best


def _refine(cost: Costs, counts: list[int], neural: int, iterations: int, effort: int) -> Schedule:
    """The best schedule of descents: over the sub-arrays of layers with vector nodes fitted beside, and the other way
    round."""
    swapped = Costs(Workload(cost.workload.vectors, cost.workload.layers), cost.vectors, cost.layers)  # type: ignore[arg-type]
    best = schedule.beside(cost, counts)
    for side, turned in ((cost, False), (swapped, True)):
        budget = effort // 2 // (len(side.layers) + len(side.runs))
        nodes, total = len(side.layers), side.sub_arrays
        start = [total - neural] * nodes if turned else counts
        tried = np.unique(np.linspace(1, total, min(total, 32)).round().astype(int)).tolist()
        static = sorted(tried, key=lambda count: max(schedule.lengths(side, [count] * nodes)))[:3]
        starts = [start, *([count] * nodes for count in static)]
        for begin in starts:
            found = schedule.beside(side, _descend(side, begin, iterations, budget // len(starts)))
            if found.cycles < best.cycles:
                best = Schedule(total, found.vectors, found.layers) if turned else found
    return best


def _descend(cost: Costs, counts: list[int], iterations: int, budget: int) -> list[int]:
    """Counts of which no single one can be changed for fewer cycles, or what `budget` evaluations come to."""

    def value(counts: list[int]) -> tuple[int, int]:
        ends = schedule.lengths(cost, counts)
        return max(ends), sum(ends)

    options = [schedule.useful(row) for row in cost.rows[0]]
    least = value(counts)
    for _ in range(iterations):
        before = least
        for index, useful in enumerate(options):
            for count in useful:
                if count == counts[index]:
                    continue
                if budget <= 0:
                    return counts
                budget -= 1
                other = [*counts[:index], count, *counts[index + 1 :]]
                found = value(other)
                if found < least:
                    counts, least = other, found
        if least == before:
            break
    return counts
