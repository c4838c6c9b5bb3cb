"""Loops of a graph: stretches of operators that a model does again and again, such as the steps of a resonator.

A trace has the operators of all iterations one after another. What follows itself here, with the same kinds, shapes and
constants, reading the iteration before where that reads the one before it, is a loop: the hardware has a program of one
iteration, which it repeats. Printed form: `10 times %unbind_3 to %cleanup_4, carried %cleanup_3, %cleanup_4`
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from derivable.accelerator.operators.kinds import PRESERVES

if TYPE_CHECKING:
    from derivable.accelerator.operators.operators import Operator, OperatorGraph

LEAST_TIMES = 4  # fewer are written out: each iteration waits until all units are done with the one before


@dataclass(frozen=True)
class Loop:
    """Iterations that are alike.

    iterations  of each, the names of its operators, in their order
    before      what the first iteration reads where the others read the iteration before them: place in an iteration ->
                the name of an operator before the loop, of the same kind and shape
    """

    iterations: tuple[tuple[str, ...], ...]
    before: dict[int, str]

    @property
    def times(self) -> int:
        return len(self.iterations)

    @cached_property
    def classes(self) -> dict[str, str]:
        """What has the same format: operators -> the one of the first iteration, or before it."""
        found = {}
        for place, first in enumerate(self.iterations[0]):
            root = self.before.get(place, first)
            found |= {names[place]: root for names in self.iterations} | {root: root}
        return found

    def __str__(self) -> str:
        names = self.iterations[0]
        carried = ", ".join(f"%{names[place]}" for place in self.before)
        return f"{self.times} times %{names[0]} to %{names[-1]}, carried {carried}"


def find(graph: OperatorGraph) -> tuple[Loop, ...]:
    """The loops of a graph, from the first to the last; they do not overlap."""
    listed = [operator for operator in graph if operator.unit != "source"]
    places = {operator.name: number for number, operator in enumerate(listed)}
    codes: dict[object, int] = {}
    keys = [(of.kind, of.shape, of.dtype, of.attributes, of.part, len(of.inputs)) for of in listed]
    kinds = np.array([codes.setdefault(key, len(codes)) for key in keys])
    readers = ([places[user] for user in graph.users[of.name] if user in places] for of in listed)
    read_until = np.array([max(each, default=0) for each in readers], np.int64)
    read_until[[places[name] for name in graph.outputs if name in places]] = np.iinfo(np.int64).max
    found: list[Loop] = []
    parts = [(0, len(listed))]
    while parts:
        start, stop = parts.pop()
        best: tuple[int, int, int] | None = None  # operators that are saved, minus those of an iteration, the first
        loop: Loop | None = None
        for length in range(1, (stop - start) // LEAST_TIMES + 1):
            if best is not None and stop - start - length <= best[0]:
                break
            same = np.r_[False, kinds[start : stop - length] == kinds[start + length : stop], False]
            edges = np.flatnonzero(same[1:] != same[:-1]).reshape(-1, 2)
            for low, high in edges[edges[:, 1] - edges[:, 0] >= (LEAST_TIMES - 1) * length] + start:
                made = _of_stretch(graph, listed, places, read_until, int(low), int(high), length)
                rank = None if made is None else ((made.times - 1) * length, -length, -places[made.iterations[0][0]])
                if rank is not None and (best is None or rank > best):
                    best, loop = rank, made
        if loop is not None:
            found.append(loop)
            first, last = places[loop.iterations[0][0]], places[loop.iterations[-1][-1]]
            parts += [(start, first), (last + 1, stop)]
    return tuple(sorted(found, key=lambda each: places[each.iterations[0][0]]))


def _of_stretch(
    graph: OperatorGraph,
    listed: list[Operator],
    places: dict[str, int],
    read_until: np.ndarray,
    low: int,
    high: int,
    length: int,
) -> Loop | None:
    """The longest loop of operators of which each from `low` to `high` has the kind of the one `length` behind it.

    read_until  of each operator, the last that reads it
    """
    best: Loop | None = None
    run = low
    for place in range(low, high + 1):
        if place < high and _alike(graph, listed[place], listed[place + length], places, length):
            continue
        stop, first = place + length, run
        run = place + 1
        # What is read later than in the iteration after its own is in the last iteration, or before the first one.
        inner = np.arange(first, max(first, stop - 2 * length + 1))
        lasting = inner[read_until[inner] >= inner + 2 * length]
        # The first operators of a stretch may read what others do not, or be unfit for the beginning of an iteration.
        for each in range(int(lasting[-1]) + 1 if len(lasting) else first, stop):
            times = (stop - each) // length
            if times < LEAST_TIMES or (best is not None and times <= best.times):
                break
            best = _loop(graph, listed, places, read_until, each, times, length) or best
    return best


def _alike(graph: OperatorGraph, one: Operator, other: Operator, places: dict[str, int], length: int) -> bool:
    """Whether an operator reads what another, `length` places before, reads: the same, or what is as far behind it."""
    for a, b in zip(one.inputs, other.inputs):
        if a == b or (a in places and b in places and places[b] == places[a] + length):
            continue
        if a not in graph.constants or b not in graph.constants:
            return False
        left, right = graph.constants[a], graph.constants[b]
        if left.shape != right.shape or left.dtype != right.dtype or not np.array_equal(left, right):
            return False
    return True


def _loop(
    graph: OperatorGraph,
    listed: list[Operator],
    places: dict[str, int],
    read_until: np.ndarray,
    first: int,
    times: int,
    length: int,
) -> Loop | None:
    """The loop of this number of stretches of a length; None where something else reads what is overwritten, or the
    first of them does not read what the others do."""
    stop = first + times * length
    before: dict[int, str] = {}
    for operator in listed[first : first + length]:
        for number, name in enumerate(operator.inputs):
            other = listed[places[operator.name] + length].inputs[number]
            if name == other or name not in places or places[name] >= first:
                continue
            place = places[name] + length - first
            if not 0 <= place < length:
                return None
            one, within = listed[places[name]], listed[first + place]
            if (one.kind, one.shape, one.dtype, one.part) != (within.kind, within.shape, within.dtype, within.part):
                return None
            if one.kind in PRESERVES:
                # Its format is that of what it reads, which is outside the loop here. One that begins elsewhere in an
                # iteration carries what it reads in the others.
                return None
            before[place] = name
    for place in itertools.chain(map(places.__getitem__, before.values()), range(first, stop - length)):
        following = place + length - (place - first) % length  # the beginning of the next iteration
        if read_until[place] >= following + length:
            return None
    names = [operator.name for operator in listed[first:stop]]
    return Loop(tuple(tuple(names[at : at + length]) for at in range(0, len(names), length)), before)
