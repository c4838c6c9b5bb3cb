"""The order of a program's instructions: what is ready goes first, the longest way to the end before others.

Units do their instructions in order, so an instruction that waits keeps back all behind it. Instructions are written
operator by operator; here they are put into the order in which units would take them if each took, whenever it is
free, of those whose operands are there the one on the longest chain to the end of the program. What touches the same
memory stays in its order, so all memories are the same, bit by bit.
"""

from __future__ import annotations

import heapq
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from derivable.accelerator.lower.emission import Emitter
from derivable.accelerator.machine.hazards import Region, regions
from derivable.accelerator.machine.instructions import UNITS, Instruction, Machine, Program
from derivable.accelerator.machine.machine import cycles, timing


def quickest(machine: Machine, program: Program) -> Program:
    """The program in the order of the fewest cycles that is known: its own, or one that `ordered` finds.

    The memories are the same after each, bit by bit.
    """
    known = _chains(machine, program.instructions[:-1])
    found = [program, *(_written(machine, _taken(known, by_length)) for by_length in (True, False))]
    return min(found, key=lambda each: int(timing(machine, each)[1][-1]))


def _written(machine: Machine, instructions: Sequence[Instruction]) -> Program:
    """Instructions in their order, with what they need in it."""
    emitter = Emitter(machine)
    for instruction in instructions:
        emitter.node, emitter.of_pass = instruction.node, instruction.of_pass
        emitter.add(instruction)
    return emitter.program()


class _Memory:
    """Of each interval of a memory, the instruction that wrote it last, and those that have read it since."""

    def __init__(self) -> None:
        self.starts = [0]
        self.writers: list[int] = [-1]
        self.readers: list[frozenset[int]] = [frozenset()]

    def _cut(self, place: int) -> int:
        at = bisect_right(self.starts, place) - 1
        if self.starts[at] == place:
            return at
        self.starts.insert(at + 1, place)
        self.writers.insert(at + 1, self.writers[at])
        self.readers.insert(at + 1, self.readers[at])
        return at + 1

    def touch(self, number: int, region: Region) -> set[int]:
        """The instructions that have to be done before this one touches a region."""
        first, last = self._cut(region.start), self._cut(region.stop)
        found = set(self.writers[first:last])
        if region.is_written:
            found.update(*self.readers[first:last])
            self.starts[first:last] = [region.start]
            self.writers[first:last] = [number]
            self.readers[first:last] = [frozenset()]
        else:
            self.readers[first:last] = [readers | {number} for readers in self.readers[first:last]]
        return found - {-1, number}


def ordered(machine: Machine, instructions: Sequence[Instruction], by_length: bool = True) -> list[Instruction]:
    """The same instructions in another order, after which all memories are the same; their needs are not looked at.

    by_length  of those that are ready, the one on the longest chain goes first; else the one that was written first
    """
    return _taken(_chains(machine, instructions), by_length)


@dataclass
class _Chains:
    """What is known of the instructions of a program, each by its number.

    needed  those that have to be done before it
    users   those before which it has to be done
    arrays  its sub-arrays
    length  its cycles
    rest    cycles until the end of the program, on the longest chain from it on
    """

    instructions: Sequence[Instruction]
    needed: list[set[int]]
    users: list[list[int]]
    arrays: list[frozenset[int]]
    length: list[int]
    rest: list[int]


def _chains(machine: Machine, instructions: Sequence[Instruction]) -> _Chains:
    needed, arrays = _dependencies(machine, instructions)
    users: list[list[int]] = [[] for _ in instructions]
    for number, others in enumerate(needed):
        for other in others:
            users[other].append(number)
    length = [cycles(machine, instruction) for instruction in instructions]
    rest = list(length)
    for number in reversed(range(len(instructions))):
        rest[number] += max((rest[user] for user in users[number]), default=0)
    return _Chains(instructions, needed, users, arrays, length, rest)


def _taken(known: _Chains, by_length: bool) -> list[Instruction]:
    """The instructions as units take them, see `ordered`."""
    instructions, users, arrays, rest = known.instructions, known.users, known.arrays, known.rest
    waiting = [len(others) for others in known.needed]
    ready: list[list[tuple[int, int]]] = [[] for _ in UNITS]
    running: list[tuple[int, int]] = []  # when it is done, and the instruction
    unit_of = [UNITS.index(instruction.unit) for instruction in instructions]
    is_free, used = [True] * len(UNITS), frozenset[int]()
    found: list[Instruction] = []

    def enter(number: int) -> None:
        heapq.heappush(ready[unit_of[number]], (-rest[number] if by_length else 0, number))

    for number, count in enumerate(waiting):
        if not count:
            enter(number)
    now = 0
    while len(found) < len(instructions):
        for unit, queue in enumerate(ready):
            # Layers and convolutions of vectors take turns on sub-arrays that both have.
            if is_free[unit] and queue and not used & arrays[queue[0][1]]:
                number = heapq.heappop(queue)[1]
                found.append(instructions[number])
                heapq.heappush(running, (now + known.length[number], number))
                is_free[unit], used = False, used | arrays[number]
        if running:
            now = running[0][0]
        while running and running[0][0] == now:
            number = heapq.heappop(running)[1]
            is_free[unit_of[number]], used = True, used - arrays[number]
            for user in users[number]:
                waiting[user] -= 1
                if not waiting[user]:
                    enter(user)
    return found


def _dependencies(machine: Machine, instructions: Sequence[Instruction]) -> tuple[list[set[int]], list[frozenset[int]]]:
    """Of each instruction, those that have to be done before it, and its sub-arrays."""
    memories: dict[tuple[str, int], _Memory] = defaultdict(_Memory)
    needed: list[set[int]] = []
    arrays: list[frozenset[int]] = []
    for number, instruction in enumerate(instructions):
        found: set[int] = set()
        own: set[int] = set()
        for region in regions(machine, instruction):
            if region.memory == "sub-array":
                own.add(region.bank)
            else:
                found |= memories[region.memory, region.bank].touch(number, region)
        needed.append(found)
        arrays.append(frozenset(own))
    return needed, arrays
