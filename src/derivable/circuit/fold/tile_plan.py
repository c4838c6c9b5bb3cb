"""The plan of a level fold on a GPU: sums of 1, 2 or 4 products of two, in steps whose parts are independent.

A sum or product of more operands becomes a tree that keeps their order. What is left over in a sum is zero, and what a
single operand is multiplied with is one, so that all sums of a step have one of three shapes and no loops.

In reverse nothing is added up in place. Each use of a slot has a place of its own, where the user writes the adjoint
that it has for the slot; the places of a slot stand side by side, so a slot sums what stands there. Many uses are
summed in rounds, each as early as its places are written; those of leaves, which only gradients wait for, as late as
that, in the last steps together: a step has as few shapes and kinds of work as can be, since a program does one after
the other.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from derivable.circuit.kernels.level_passes import COUNT, FACTORS, FIRST, PAIRS, SINGLES, START
from derivable.circuit.kernels.level_tiles import (
    BACK,
    CONSTANTS,
    GRADIENTS,
    LEAVES,
    NEGATION,
    NEGATION_BACK,
    NOWHERE,
    ONES,
    REDUCE,
    ROOTS,
    SEEDS,
    SUM,
)
from derivable.circuit.kernels.levels_plan import plan_program
from derivable.core.and_or import AND, OR
from derivable.core.graph import offsets_of

# Operands of a node at most, and uses that are summed at once.
_FACTORS, _TERMS, _USES = 2, 4, 8
# Slots of a level that take the shape of its larger sums: this many, if all are, or if they get few more pairs.
_FEW, _SHARE = 128, 8
_ROOT = 0
# Kind of slots -> the kind of what hands their adjoints on.
_BACK = {SUM: BACK, NEGATION: NEGATION_BACK}


@dataclass(frozen=True)
class Group:
    """Slots, variables, roots or tasks of one kind, from `first` on; the columns of a chunk.

    pairs  that each slot sums
    start  of their terms, or of the places of the roots
    uses   of one of them at most
    """

    kind: int
    first: int
    count: int
    pairs: int = 0
    start: int = 0
    uses: int = 0

    def chunks(self, size: int) -> Iterator[tuple[int, ...]]:
        for begin in range(0, self.count, size):
            start = self.start + begin * (2 * self.pairs if self.pairs else 1)
            yield self.kind, self.first + begin, min(size, self.count - begin), self.pairs, start, self.uses


@dataclass(frozen=True)
class TilePlan:
    """Tables of int32 as the kernels read them, and the groups of each step.

    terms     [term] slots, two for each pair
    places    [term and root] where the user writes the adjoint of what it uses; NOWHERE for constants
    uses      [slot, 2] the first of the slot's places, and their number
    tasks     [task, 3] the first of the places that a task sums, their number, and where the sum goes
    forward   [step] groups of a fold without derivatives, `backward` those that follow it
    """

    num_slots: int
    num_places: int
    terms: np.ndarray
    places: np.ndarray
    uses: np.ndarray
    tasks: np.ndarray
    positive: np.ndarray
    negative: np.ndarray
    roots: np.ndarray
    forward: tuple[tuple[Group, ...], ...]
    backward: tuple[tuple[Group, ...], ...]

    @cached_property
    def width(self) -> int:
        """Slots of a level on average."""
        levels = self.forward[1:-1]
        return max(1, sum(group.count for step in levels for group in step) // max(1, len(levels)))

    def steps(self, has_gradient: bool, has_seeds: bool) -> list[tuple[Group, ...]]:
        if not has_gradient:
            return list(self.forward)
        roots = Group(SEEDS if has_seeds else ONES, 0, len(self.roots), 0, len(self.terms))
        first, *levels, last = self.forward
        following, *rest = self.backward
        return [(*first, roots), *levels, (*last, *following), *rest]

    def chunks(self, groups: list[tuple[Group, ...]], size: int) -> tuple[np.ndarray, np.ndarray]:
        """(chunks [chunk, 6], offsets [step + 1]) of at most `size` slots each."""
        rows = [[chunk for group in step for chunk in group.chunks(size)] for step in groups]
        flat = [chunk for step in rows for chunk in step]
        offsets = offsets_of([len(step) for step in rows])
        return np.array(flat, np.int32).reshape(-1, 6), offsets.astype(np.int32)

    def tables(self, width: int) -> tuple[np.ndarray, ...]:
        """What kernels read besides steps and chunks, for tiles of a number of rows: where slots and places start."""
        scaled = self.terms * width, self.places * width, self.uses * (width, 1), self.tasks * (width, 1, width)
        return *(_table(table) for table in scaled), self.positive, self.negative, self.roots


def _table(numbers: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(numbers, np.int32)


def tile_plan(graph: Any, num_variables: int, in_order: bool) -> TilePlan:
    """The plan of a graph whose children come first; see `levels_plan` for `in_order`."""
    kind, literal, offsets, children, roots = bounded(
        graph.kind, graph.literal, graph.offsets, graph.children, graph.roots
    )
    made = plan_program(kind, literal, offsets, children, roots, num_variables, in_order)
    runs, operands, positive, negative, roots, num_slots, _ = made
    level = np.zeros(num_slots, np.int64)
    blocks = []
    for run in runs.tolist():
        slots, pairs, singles = slice(run[FIRST], run[FIRST] + run[COUNT]), run[PAIRS], run[SINGLES] + abs(run[FACTORS])
        size = run[COUNT] * (2 * pairs + singles)
        block = operands[run[START] : run[START] + size].reshape(run[COUNT], -1)
        level[slots] = level[block].max() + 1
        count = 1 << (pairs + singles - 1).bit_length()
        padded = np.empty((run[COUNT], count, 2), np.int32)
        padded[:] = 0, 1
        padded[:, :pairs] = block[:, : 2 * pairs].reshape(run[COUNT], pairs, 2)
        padded[:, pairs : pairs + singles, 0] = block[:, 2 * pairs :]
        kind = NEGATION if run[FACTORS] < 0 else SUM
        blocks.append((int(level[run[FIRST]]), kind, count, run[FIRST], padded))
    blocks = _of_few_shapes(blocks)
    blocks.sort(key=lambda block: block[:3])
    # Slots by level, then by their kind and number of pairs.
    new, free = np.arange(num_slots), int(runs[:, FIRST].min(initial=num_slots))
    levels: list[list[Group]] = []
    start = 0
    for height, kind, count, first, padded in blocks:
        new[first : first + len(padded)] = free + np.arange(len(padded))
        if height > len(levels):
            levels.append([])
        known = levels[-1][-1] if levels[-1] else None
        if known is not None and (known.kind, known.pairs) == (kind, count):
            levels[-1][-1] = Group(kind, known.first, known.count + len(padded), count, known.start)
        else:
            levels[-1].append(Group(kind, free, len(padded), count, start))
        free, start = free + len(padded), start + padded.size
    terms = new[np.concatenate([padded.reshape(-1) for *_, padded in blocks])] if blocks else np.zeros(0, np.int64)
    roots = new[roots]
    reverse = _Reverse(num_slots, levels, terms, roots, num_variables)
    first_step = (Group(CONSTANTS, 0, 2), Group(LEAVES, 0, num_variables))
    last_step = (Group(ROOTS, 0, len(roots)),)

    return TilePlan(
        num_slots,
        reverse.num_places,
        _table(terms),
        _table(reverse.places),
        _table(reverse.uses),
        _table(reverse.tasks),
        _table(new[positive]),
        _table(new[negative]),
        _table(roots),
        (first_step, *map(tuple, levels), last_step),
        tuple(map(tuple, reverse.steps)),
    )


def _of_few_shapes(blocks: list[tuple[int, int, int, int, np.ndarray]]) -> list[tuple[int, int, int, int, np.ndarray]]:
    """The blocks, those of few slots with as many pairs as larger sums of their level: what is more is zero."""
    sizes: dict[int, dict[int, int]] = {}
    for height, kind, pairs, _, padded in blocks:
        if kind == SUM:
            of_level = sizes.setdefault(height, {})
            of_level[pairs] = of_level.get(pairs, 0) + len(padded)
    into: dict[tuple[int, int], int] = {}
    for height, of_level in sizes.items():
        most, all_slots = max(of_level), sum(of_level.values())
        for pairs, slots in of_level.items():
            more, whole = slots * (most - pairs), most * of_level[most]
            if slots <= _FEW and (all_slots <= _FEW or more * _SHARE <= whole):
                into[height, pairs] = most
    found = []
    for height, kind, pairs, first, padded in blocks:
        most = into.get((height, pairs), pairs) if kind == SUM else pairs
        more = np.empty((len(padded), most - pairs, 2), np.int32)
        more[:] = 0, 1
        found.append((height, kind, most, first, np.concatenate([padded, more], 1) if most > pairs else padded))
    return found


class _Reverse:
    """Places, uses and tasks, and the groups of each step after the forward ones."""

    def __init__(self, num_slots: int, levels: list[list[Group]], terms: np.ndarray, roots: np.ndarray, variables: int):
        used = np.concatenate([terms, roots])
        pairs = [group.pairs * 2 * group.count for level in levels for group in level]
        # Users by level; roots have the time before all others.
        heights = np.repeat([height for height, level in enumerate(levels, 1) for _ in level], pairs)
        user = np.concatenate([heights, np.full(len(roots), _ROOT)]).astype(np.int64)
        edges = np.flatnonzero(used > 1)
        self.edges = edges[np.argsort(used[edges], kind="stable")]
        self.slots, self.users = used[self.edges], user[self.edges]
        self.time_of = np.zeros(len(levels) + 1, np.int64)
        self.places = np.full(len(used), NOWHERE, np.int64)
        self.num_places = max(1, len(self.edges))
        self.uses = np.zeros((num_slots, 2), np.int64)
        self.found: list[np.ndarray] = []
        steps: dict[int, list[Group]] = {}
        bounds = np.array([[level[0].first, level[-1].first + level[-1].count] for level in levels], np.int64)
        for height in range(len(levels), 0, -1):
            time = self.gathered(*bounds[height - 1]) + 1
            self.time_of[height] = time
            for group in levels[height - 1]:
                most = int(self.uses[group.first : group.first + group.count, 1].max())
                kind = _BACK[group.kind]
                steps.setdefault(time, []).append(Group(kind, group.first, group.count, group.pairs, group.start, most))
        inner = int(bounds[0, 0]) if len(levels) else num_slots
        end = int(bounds[-1, 1]) if len(levels) else num_slots
        last = max(self.gathered(0, inner), self.gathered(end, num_slots), *self.time_of.tolist()) + 1
        outer = np.r_[self.uses[:inner, 1], self.uses[end:, 1]]
        steps.setdefault(last, []).append(Group(GRADIENTS, 0, variables, uses=int(outer.max(initial=0))))
        tasks = np.concatenate(self.found) if self.found else np.zeros((0, 6), np.int64)
        self.put_off(tasks, last, inner, end)
        tasks = tasks[np.argsort(tasks[:, 0], kind="stable")]
        for time in np.unique(tasks[:, 0]).tolist():
            first, stop = np.searchsorted(tasks[:, 0], (time, time + 1)).tolist()
            most = int(tasks[first:stop, 2].max())
            steps.setdefault(time, []).append(Group(REDUCE, first, stop - first, uses=most))
        self.tasks = tasks[:, 1:4]
        self.steps = [steps.get(time, []) for time in range(1, last + 1)]

    def put_off(self, tasks: np.ndarray, last: int, inner: int, end: int) -> None:
        """Give tasks of leaves the latest times at which the step `last` has what it needs."""
        slots, turns = tasks[:, 4], tasks[:, 5]
        turns_of = np.zeros(max(end, int(slots.max(initial=0))) + 1, np.int64)
        # Of a slot's tasks those of later turns come later.
        turns_of[slots] = turns
        is_outer = (slots < inner) | (slots >= end)
        tasks[is_outer, 0] = (last - 1 - (turns_of[slots] - turns))[is_outer]

    def gathered(self, first: int, stop: int) -> int:
        """Write places, uses and tasks of the slots first:stop; returns when the last of what they sum is written."""
        begin, end = np.searchsorted(self.slots, (first, stop)).tolist()
        if begin == end:
            return 0
        slots, times = self.slots[begin:end], self.time_of[self.users[begin:end]]
        order = np.lexsort((times, slots))
        times = times[order]
        turn = 0
        self.places[self.edges[begin:end][order]] = place = np.arange(begin, end)
        ready = 0
        while True:
            starts = np.flatnonzero(np.diff(slots, prepend=-1))
            counts = np.diff(starts, append=len(slots))
            few = counts <= _USES
            self.uses[slots[starts[few]]] = np.stack([place[starts[few]], counts[few]], 1)
            is_few = np.repeat(few, counts)
            ready = max(ready, int(times[is_few].max(initial=0)))
            if few.all():
                return ready
            number = (np.arange(len(slots)) - np.repeat(starts, counts)) // _USES
            chosen = np.flatnonzero(~is_few)
            slots, times, place, number = slots[chosen], times[chosen], place[chosen], number[chosen]
            starts = np.flatnonzero((np.diff(slots, prepend=-1) != 0) | (np.diff(number, prepend=-1) != 0))
            made = self.num_places + np.arange(len(starts))
            self.num_places += len(starts)
            counts = np.diff(starts, append=len(slots))
            # Within a slot times do not decrease.
            times = times[starts + counts - 1] + 1
            slots, first_place, place = slots[starts], place[starts], made
            self.found.append(np.stack([times, first_place, counts, made, slots, np.full(len(made), turn)], 1))
            turn += 1


def bounded(kind: np.ndarray, literal: np.ndarray, offsets: np.ndarray, children: np.ndarray, roots: np.ndarray) -> Any:
    """The arrays of the graph where products have two factors and sums four terms at most, in the same order."""
    size, limits = len(kind), np.full(256, np.iinfo(np.int64).max)
    limits[AND], limits[OR] = _FACTORS, _TERMS
    limit = limits[kind]
    owner, child = np.repeat(np.arange(size), np.diff(offsets)), children.astype(np.int64)
    parents, parts, owners = [], [], [np.arange(size)]
    made = size
    while True:
        counts = np.bincount(owner, minlength=size)
        large = (counts > limit)[owner]
        if not large.any():
            break
        whose, what = owner[large], child[large]
        begins = np.flatnonzero(np.diff(whose, prepend=-1))
        number = np.arange(len(whose)) - np.repeat(begins, np.diff(begins, append=len(whose)))
        number //= limit[whose]
        starts = np.flatnonzero((np.diff(whose, prepend=-1) != 0) | (np.diff(number, prepend=-1) != 0))
        counts = np.diff(starts, append=len(whose))
        several = counts > 1
        names = what[starts]
        names[several] = made + np.arange(several.sum())
        made += int(several.sum())
        inside = np.repeat(several, counts)
        parents.append(np.repeat(names, counts)[inside])
        parts.append(what[inside])
        owners.append(whose[starts[several]])
        owner, child = np.r_[owner[~large], whose[starts]], np.r_[child[~large], names]
        order = np.argsort(owner, kind="stable")
        owner, child = owner[order], child[order]
    if made == size:
        return kind, literal, offsets, children, roots
    of = np.concatenate(owners)
    # New nodes stand before the node that they are part of.
    order = np.lexsort((np.arange(made), np.arange(made) < size, of))
    new = np.empty(made, np.int64)
    new[order] = np.arange(made)
    parent, child = new[np.concatenate([owner, *parents])], new[np.concatenate([child, *parts])]
    places = np.argsort(parent, kind="stable")
    is_new = order >= size
    return (
        kind[of[order]],
        np.where(is_new, 0, literal[of[order]]).astype(literal.dtype),
        offsets_of(np.bincount(parent, minlength=made)),
        child[places].astype(children.dtype),
        new[roots],
    )
