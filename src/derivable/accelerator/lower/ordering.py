"""The order of a program's instructions: what is ready goes first, the longest way to the end before others.

Units do their instructions in order, so an instruction that waits keeps back all behind it. Instructions are written
operator by operator; here they are put into the order in which units would take them if each took, whenever it is
free, of those whose operands are there the one on the longest chain to the end of the program. What touches the same
memory stays in its order, so all memories are the same, bit by bit.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence

import numpy as np

from derivable.accelerator.lower.emission import Emitter, Written, needs_of, program_of
from derivable.accelerator.machine.instructions import UNITS, Program
from derivable.accelerator.machine.machine import times


def quickest(emitter: Emitter) -> Program:
    """What was written, each section in the order of the fewest cycles that is known: its own, or one that `ordered`
    finds.

    The memories are the same after each, bit by bit.
    """
    return program_of([(section, *_quickest(section.written)) for section in emitter.sections])


def _quickest(written: Sequence[Written]) -> tuple[Sequence[int], list[tuple[int, ...]]]:
    """The order of the fewest cycles, and what each instruction needs in it."""
    if not written:
        return (), []
    units = np.array([of.unit for of in written], np.int64)
    demands = np.array([of.demand for of in written], np.int64).reshape(len(units), -1)

    def cycles(order: Sequence[int], needs: list[tuple[int, ...]]) -> int:
        by_place = np.array(order, np.int64)
        return times(units[by_place], np.array(needs, np.int64), demands[by_place])[2]

    orders = (range(len(units)), ordered(written), ordered(written, by_length=False))
    return min(((order, needs_of(written, order)) for order in orders), key=lambda each: cycles(*each))


def ordered(written: Sequence[Written], by_length: bool = True) -> list[int]:
    """The numbers of the instructions of a section in another order, after which all memories are the same.

    by_length  of those that are ready, the one on the longest chain goes first; else the one that was written first
    """
    users: list[list[int]] = [[] for _ in written]  # those before which each has to be done
    for number, of in enumerate(written):
        for other in of.after:
            users[other].append(number)
    rest = [of.length for of in written]  # cycles until the end of the section, on the longest chain from each on
    if by_length:
        for number in reversed(range(len(written))):
            rest[number] += max((rest[user] for user in users[number]), default=0)
    waiting = [len(of.after) for of in written]
    ready: list[list[tuple[int, int]]] = [[] for _ in UNITS]
    running: list[tuple[int, int]] = []  # when it is done, and the instruction
    is_free, used = [True] * len(UNITS), frozenset[int]()
    found: list[int] = []

    def insert(number: int) -> None:
        heapq.heappush(ready[written[number].unit], (-rest[number] if by_length else 0, number))

    for number, count in enumerate(waiting):
        if not count:
            insert(number)
    now = 0
    while len(found) < len(written):
        for unit, queue in enumerate(ready):
            # Layers and convolutions of vectors take turns on sub-arrays that both have.
            if is_free[unit] and queue and not used & written[queue[0][1]].arrays:
                number = heapq.heappop(queue)[1]
                found.append(number)
                heapq.heappush(running, (now + written[number].length, number))
                is_free[unit], used = False, used | written[number].arrays
        if running:
            now = running[0][0]
        while running and running[0][0] == now:
            number = heapq.heappop(running)[1]
            is_free[written[number].unit], used = True, used - written[number].arrays
            for user in users[number]:
                waiting[user] -= 1
                if not waiting[user]:
                    insert(user)
    return found
