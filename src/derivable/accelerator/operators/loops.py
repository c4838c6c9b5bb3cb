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
    from derivable.accelerator.operators.operators import OperatorGraph

LEAST_TIMES = 4  # fewer are written out: each iteration waits until all units are done with the one before


@dataclass(frozen=True)
class Loop:
    """Iterations that are alike.

    iterations  of each, the names of its operators, in their order
    before      what the first iteration reads where the others read the iteration before them: index in an iteration ->
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
        roots = {}
        for index, first in enumerate(self.iterations[0]):
            root = self.before.get(index, first)
            roots |= {names[index]: root for names in self.iterations} | {root: root}
        return roots

    def __str__(self) -> str:
        names = self.iterations[0]
        carried = ", ".join(f"%{names[index]}" for index in self.before)
        return f"{self.times} times %{names[0]} to %{names[-1]}, carried {carried}"


def find(graph: OperatorGraph) -> tuple[Loop, ...]:
    """The loops of a graph, from the first to the last; they do not overlap."""
    search = _Search(graph)
    loops: list[Loop] = []
    ranges = [(0, len(search.listed))]
    while ranges:
        start, stop = ranges.pop()
        loop = search.best(start, stop)
        if loop is not None:
            loops.append(loop)
            first, last = search.index[loop.iterations[0][0]], search.index[loop.iterations[-1][-1]]
            ranges += [(start, first), (last + 1, stop)]
    return tuple(sorted(loops, key=lambda loop: search.index[loop.iterations[0][0]]))


class _Search:
    """The operators of a graph, without inputs and constants, in which loops are searched.

    listed      these operators, in their order
    index       of each of them by its name
    codes       of each of them: equal numbers where all but names and inputs is equal
    read_until  of each of them: the index of the last one that reads it, and beyond all for an output of the graph
    """

    def __init__(self, graph: OperatorGraph):
        self.graph = graph
        self.listed = [operator for operator in graph if operator.unit != "source"]
        self.index = {operator.name: number for number, operator in enumerate(self.listed)}
        numbers: dict[object, int] = {}
        keys = [(of.kind, of.shape, of.dtype, of.attributes, of.part, len(of.inputs)) for of in self.listed]
        self.codes = np.array([numbers.setdefault(key, len(numbers)) for key in keys])
        readers = ([self.index[user] for user in graph.users[of.name] if user in self.index] for of in self.listed)
        self.read_until = np.array([max(each, default=0) for each in readers], np.int64)
        self.read_until[[self.index[name] for name in graph.outputs if name in self.index]] = np.iinfo(np.int64).max

    def best(self, start: int, stop: int) -> Loop | None:
        """The loop of operators from `start` to `stop` that saves the most of them: of several the one with the
        shortest iterations, and the first."""
        loop: Loop | None = None
        best: tuple[int, int, int] | None = None  # operators saved, minus those of an iteration, minus the first
        for length in range(1, (stop - start) // LEAST_TIMES + 1):
            if best is not None and stop - start - length <= best[0]:
                break
            same = np.r_[False, self.codes[start : stop - length] == self.codes[start + length : stop], False]
            edges = np.flatnonzero(same[1:] != same[:-1]).reshape(-1, 2)
            for low, high in edges[edges[:, 1] - edges[:, 0] >= (LEAST_TIMES - 1) * length] + start:
                made = self._of_stretch(int(low), int(high), length)
                if made is None:
                    continue
                rank = (made.times - 1) * length, -length, -self.index[made.iterations[0][0]]
                if best is None or rank > best:
                    best, loop = rank, made
        return loop

    def _of_stretch(self, low: int, high: int, length: int) -> Loop | None:
        """The longest loop of operators of which each from `low` to `high` has the code of that `length` behind it."""
        best: Loop | None = None
        first = low
        for end in range(low, high + 1):
            if end < high and self._reads_alike(end, length):
                continue
            stop = end + length
            # What is read later than in the iteration after its own is in the last iteration, or before the first one.
            inner = np.arange(first, max(first, stop - 2 * length + 1))
            lasting = inner[self.read_until[inner] >= inner + 2 * length]
            # The first operators of a stretch may read what others do not, or be unfit to begin an iteration.
            for each in range(int(lasting[-1]) + 1 if len(lasting) else first, stop):
                times = (stop - each) // length
                if times < LEAST_TIMES or (best is not None and times <= best.times):
                    break
                best = self._loop(each, times, length) or best
            first = end + 1
        return best

    def _reads_alike(self, number: int, length: int) -> bool:
        """Whether the operator `length` behind one reads what that one reads: the same, or what is as far behind it."""
        constants = self.graph.constants
        for a, b in zip(self.listed[number].inputs, self.listed[number + length].inputs):
            if a == b or (a in self.index and b in self.index and self.index[b] == self.index[a] + length):
                continue
            if a not in constants or b not in constants:
                return False
            left, right = constants[a], constants[b]
            if left.shape != right.shape or left.dtype != right.dtype or not np.array_equal(left, right):
                return False
        return True

    def _loop(self, first: int, times: int, length: int) -> Loop | None:
        """The loop of this number of iterations of a length; None where something else reads what is overwritten, or
        the first of them does not read what the others do."""
        stop = first + times * length
        before: dict[int, str] = {}
        for number in range(first, first + length):
            for name, following in zip(self.listed[number].inputs, self.listed[number + length].inputs):
                if name == following or name not in self.index or self.index[name] >= first:
                    continue
                offset = self.index[name] + length - first
                if not 0 <= offset < length:
                    return None
                one, within = self.listed[self.index[name]], self.listed[first + offset]
                if (one.kind, one.shape, one.dtype, one.part) != (within.kind, within.shape, within.dtype, within.part):
                    return None
                if one.kind in PRESERVES:
                    # Its format is that of what it reads, which is outside the loop here. One that begins elsewhere in
                    # an iteration carries what it reads in the others.
                    return None
                before[offset] = name
        for number in itertools.chain((self.index[name] for name in before.values()), range(first, stop - length)):
            following = number + length - (number - first) % length  # the beginning of the next iteration
            if self.read_until[number] >= following + length:
                return None
        names = [operator.name for operator in self.listed[first:stop]]
        return Loop(tuple(tuple(names[at : at + length]) for at in range(0, len(names), length)), before)
