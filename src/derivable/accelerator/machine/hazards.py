"""The validator of programs: what instructions touch, and whether their needs order all that must not meet.

Two instructions of different units conflict if both touch a region of a memory, or a sub-array, and one changes it.
Then the later one has to need the earlier one, or one after it of its unit, or something that does. A region is an
interval of words or bytes from the first to the last that is touched, and of loops in rows the part of each row:

    bytes   0       1000      2000      3000
            |--##-----|--##-----|--##-----|         start 30, stop 2050, period 1000, phase 30, width 20

Instructions on different parts of the same rows are not in conflict. Others that interleave without meeting are.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import numpy as np

from derivable.accelerator.machine.instructions import (
    BITS,
    MOST_NEEDED,
    NUM_UNITS,
    UNITS,
    Convolve,
    End,
    Gemm,
    Instruction,
    Machine,
    Move,
    Program,
    Transfer,
    Vector,
    check_fields,
)
from derivable.core.diagnostics import DerivableError, DomainError, LayoutError, LimitError


@dataclass(frozen=True)
class Region:
    """Bytes of X or of off-chip memory, words of a bank of A, B, K, C or of P, or a sub-array; `stop` is excluded.

    span        start and stop, and of what is touched in rows the part of each row
    """

    memory: str
    bank: int
    span: Span
    is_written: bool

    @property
    def start(self) -> int:
        return self.span.start

    @property
    def stop(self) -> int:
        return self.span.stop

    def __str__(self) -> str:
        what = self.memory if self.memory in ("X", "P", "off-chip") else f"{self.memory}[{self.bank}]"
        return f"{what} {self.start} to {self.stop - 1}"

    def meets(self, other: Region) -> bool:
        return (
            (self.is_written or other.is_written)
            and (self.memory, self.bank) == (other.memory, other.bank)
            and self.start < other.stop
            and other.start < self.stop
            and not _are_apart(self.span, other.span)
        )


class Span(NamedTuple):
    """From `start` on, before `stop`, what is touched: of each `period` from `phase` on the first `width`, or with a
    period of 0 all."""

    start: int
    stop: int
    period: int = 0
    phase: int = 0
    width: int = 0


def _are_apart(one: Span, other: Span) -> bool:
    """Whether two spans have different parts of the same rows."""
    common = math.gcd(one.period, other.period) if one.period and other.period else 0
    distance = (other.phase - one.phase) % common if common else 0
    return one.width <= distance and distance + other.width <= common if common else False


def _covers(one: Span, other: Span) -> bool:
    """Whether a span has all that another one has between its start and its stop."""
    if not one.period:
        return True
    if not other.period or other.period % one.period:
        return False
    return (other.phase - one.phase) % one.period + other.width <= one.width


Touch: TypeAlias = tuple[int, Span]  # an instruction, and what it touches


class Memory:
    """Of each interval of a memory, the instructions that wrote it last, and those that have read it since."""

    def __init__(self) -> None:
        self.starts = [0]
        self.writers: list[tuple[Touch, ...]] = [()]
        self.readers: list[tuple[Touch, ...]] = [()]

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
        span = region.span
        first, last = self._cut(span.start), self._cut(span.stop)
        # Neighbouring intervals have most touches in common.
        touches = set().union(*self.writers[first:last], *(self.readers[first:last] if region.is_written else ()))
        found = {other for other, of in touches if not (span.period and of.period and _are_apart(of, span))}
        own = ((number, span),)
        if not region.is_written:
            self.readers[first:last] = [each + own for each in self.readers[first:last]]
        elif not span.period:
            self.starts[first:last], self.writers[first:last], self.readers[first:last] = [span.start], [own], [()]
        else:
            # What is in other parts of the rows stays.
            for of in (self.writers, self.readers):
                left = (tuple(each for each in listed if not _covers(span, each[1])) for listed in of[first:last])
                of[first:last] = list(left)
            self.writers[first:last] = [each + own for each in self.writers[first:last]]
        return found - {number}


def lanes(machine: Machine, of: Vector) -> int:
    """How many lanes a step of an instruction of vec has."""
    return machine.width if of.a_from == "C" else machine.lanes


def reads_b(of: Vector) -> bool:
    """Whether it has a second operand in X."""
    return of.b_from == "X" and of.operation in ("add", "sub", "mul", "max", "min")


def _extent(start: int, counts: tuple[int, ...], strides: tuple[int, ...], size: int) -> Span:
    """What loops touch, `size` at each step."""
    loops = [(stride, (count - 1) * stride) for count, stride in zip(counts, strides) if count > 1 and stride]
    low, high = (start + sum(side(end, 0) for _, end in loops) for side in (min, max))
    # Rows are those of the loop of which others and a step fill the smallest part.
    rows = []
    for period in {abs(stride) for stride, _ in loops}:
        ends = [end for stride, end in loops if stride % period]
        width = size + sum(map(abs, ends))
        if width < period:
            rows.append((width / period, -period, start + sum(min(end, 0) for end in ends), width))
    _, period, phase, width = min(rows, default=(1, 0, 0, 0))
    return Span(low, high + size, -period, phase, width)


def _both(one: Span, other: Span) -> Span:
    """A span with all that two have of rows that are the same."""
    low, high = min(one.start, other.start), max(one.stop, other.stop)
    return Span(low, high, *one[2:]) if one.period and _covers(one, other) else Span(low, high)


def regions(machine: Machine, instruction: Instruction) -> Iterator[Region]:
    """All that an instruction touches, but what it may read without using it."""
    of = instruction
    if isinstance(of, Transfer):
        length, is_load = of.lines * machine.line, of.operation == "load"
        yield Region("X", 0, Span(of.x, of.x + length), is_load)
        yield Region("off-chip", 0, Span(of.far, of.far + length), not is_load)
    elif isinstance(of, Move):
        counts = (of.n0, of.n1, of.n2, of.n3)
        size = {"A": of.valid, "B": of.valid, "K": 4 * of.spread, "P": 8 * machine.width}[of.operation]
        if size:
            yield Region("X", 0, _extent(of.x, counts, (of.x0, of.x1, of.x2, of.x3), size), False)
        span = _extent(of.to, counts, (of.to0, of.to1, of.to2, of.to3), 1)
        further = (counts[of.bank_loop] - 1) * of.spread if of.bank_loop < 4 else 0
        for bank in range(of.first, of.first + of.banks + further) if of.operation != "P" else (0,):
            yield Region(of.operation, bank, span, True)
    elif isinstance(of, Gemm):
        rows = of.n0 * of.n1 * of.n2
        for bank in range(of.arrays):
            yield Region("sub-array", bank, Span(bank, bank + 1), True)
            yield Region("A", bank, Span(of.a, of.a + of.columns * of.tiles * machine.height), False)
            yield Region("K", bank, Span(of.k, of.k + of.tiles), False)
            # Which words of B are read, K says.
            yield Region("B", bank, Span(of.b, of.b + of.reach if of.reach else machine.b), False)
        yield Region("C", 0, Span(of.c, of.c + of.columns * rows), True)
    elif isinstance(of, Convolve):
        for bank in range(of.first, of.first + of.arrays):
            yield Region("sub-array", bank, Span(bank, bank + 1), True)
            for start, stride in ((of.a, of.a0), (of.b, of.b0)):
                yield Region("A", bank, _extent(start, (of.groups,), (stride,), of.length), False)
            yield Region("C", bank, Span(of.c, of.c + of.groups * of.length), True)
    elif isinstance(of, Vector):
        yield from _vector(machine, of)


def _vector(machine: Machine, of: Vector) -> Iterator[Region]:
    counts, count = (of.n0, of.n1, of.n2), lanes(machine, of)

    def extent(name: str, kind: str, is_one: bool, counts: tuple[int, ...], tail: int) -> Span:
        start, strides = getattr(of, name), tuple(getattr(of, f"{name}{loop}") for loop in range(3))

        def span(start: int, counts: tuple[int, ...], lanes: int) -> Span:
            return _extent(start, counts, strides, ((1 if is_one else lanes) * BITS[kind] + 7) // 8)

        loop = 1 + of.tail_inner
        if not tail:
            return span(start, counts, count)
        before, last = (tuple(k if at == loop else n for at, n in enumerate(counts)) for k in (counts[loop] - 1, 1))
        ending = span(start + (counts[loop] - 1) * strides[loop], last, tail)
        return ending if counts[loop] == 1 else _both(span(start, before, count), ending)

    if of.a_from == "C":
        half = int(of.a_type == "i16")
        low, high, *_ = _extent(of.a, counts, (of.a0, of.a1, of.a2), 1)
        yield Region("C", of.a_bank, Span(low >> half, ((high - 1) >> half) + 1), False)
    else:
        yield Region("X", 0, extent("a", of.a_type, bool(of.a_one), counts, of.tail), False)
    if reads_b(of):
        yield Region("X", 0, extent("b", of.b_type, bool(of.b_one), counts, of.tail), False)
    written = (of.n0, of.n1, 1 if of.along else of.n2)
    # A lane that took part in a step of the inner loop has a result, whether it did in the last one or not.
    tail = 0 if of.along and of.tail_inner and of.n2 > 1 else of.tail
    if of.turned:
        yield Region("X", 0, _transposed(of, count), True)
    else:
        yield Region("X", 0, extent("y", of.y_type, bool(of.across), written, tail), True)
    if of.operation == "drain":
        yield Region("P", 0, Span(of.p, of.p + of.n0), False)


def _transposed(of: Vector, lanes: int) -> Span:
    """What is written the other way round."""
    strides = of.y0, of.y1, of.y2
    if not of.tail:
        return _extent(of.y, (of.n0, of.n1, lanes), strides, of.n2)
    ending = _extent(of.y + (of.n1 - 1) * of.y1, (of.n0, 1, of.tail), strides, of.n2)
    return ending if of.n1 == 1 else _both(_extent(of.y, (of.n0, of.n1 - 1, lanes), strides, of.n2), ending)


def _sizes(machine: Machine, off_chip: int) -> dict[str, tuple[int, int]]:
    """Banks and words of each memory."""
    banks = machine.sub_arrays
    return {
        "X": (1, machine.x),
        "off-chip": (1, off_chip),
        "P": (1, machine.p),
        "sub-array": (banks, banks),
        "A": (banks, machine.a),
        "B": (banks, machine.b),
        "K": (banks, machine.k),
        "C": (banks, machine.c),
    }


def check(machine: Machine, program: Program, off_chip: int) -> None:
    """Raise an error of ours, with the instruction, unless a program is valid on a machine.

    off_chip  bytes of memory off the chip

    DomainError for a field that is out of range; LayoutError for an address beyond a memory, a need of what does not
    come before, or a conflict that no need orders; LimitError for more instructions than fit.
    """
    if len(program) > machine.program:
        raise LimitError(
            f"the program has {len(program)} instructions, and {machine.program} fit",
            hint="give the Machine a larger program=",
        )
    ends = [number for number, of in enumerate(program) if isinstance(of, End) and of.operation == "end"]
    if ends != [len(program) - 1]:
        raise LayoutError(f"a program has one end, after all else; here are {len(ends)} of {len(program)} instructions")
    sizes = _sizes(machine, off_chip)
    for numbers, end in program.sections:
        _check_section(program, numbers, sizes, machine)
        check_fields(end)
        if end.operation == "repeat" and end.to != numbers.start and end.count > 1:
            raise LayoutError(
                f"instruction {numbers.stop}, {end}: it goes to instruction {end.to}, and its section begins with "
                f"{numbers.start}"
            )
    check_counts(program)


def _check_section(program: Program, numbers: range, sizes: dict[str, tuple[int, int]], machine: Machine) -> None:
    """Whether the needs of a section are of what comes before in it, and order all that must not meet. All is done
    before another section begins, or this one again."""
    memories: dict[tuple[str, int], Memory] = defaultdict(Memory)
    places: list[tuple[int, int]] = []  # of each instruction: its unit, and the how manieth of it that it is, from 1 on
    # For each unit, for each of its instructions, from 1 on: how many of each unit are done when it is.
    clocks: list[list[tuple[int, ...]]] = [[(0,) * NUM_UNITS] for _ in range(NUM_UNITS)]
    for index, number in enumerate(numbers):
        instruction = program.instructions[number]
        try:
            found = _check_alone(machine, instruction, sizes)
            unit = UNITS.index(instruction.unit)
            clock = list(clocks[unit][-1])
            for other, need in enumerate(instruction.needs):
                if need >= len(clocks[other]):
                    raise LayoutError(
                        f"it needs {need} instructions of {UNITS[other]}, and {len(clocks[other]) - 1} come before it"
                    )
                clock = [max(pair) for pair in zip(clock, clocks[other][need])]
            for region in found:
                for other in memories[region.memory, region.bank].touch(index, region):
                    if places[other][1] > clock[places[other][0]]:
                        name = UNITS[places[other][0]]
                        raise LayoutError(
                            f"it touches {region} while instruction {numbers[other]} of {name} may do so",
                            hint=f"it has to need {name}:{places[other][1]}",
                        )
        except DerivableError as error:
            raise type(error)(f"instruction {number}, {instruction}: {error.message}", hint=error.hint) from None
        clock[unit] = len(clocks[unit])
        places.append((unit, clock[unit]))
        clocks[unit].append(tuple(clock))


def check_counts(program: Program) -> None:
    """Raise LimitError for a section with more instructions of a unit than needs count to."""
    for numbers, _ in program.sections:
        counts = Counter(program.instructions[number].unit for number in numbers)
        for unit in UNITS[:NUM_UNITS]:
            if counts[unit] > MOST_NEEDED:
                raise LimitError(
                    f"the program has {counts[unit]} instructions of {unit}, and needs count to {MOST_NEEDED}",
                    hint="lower with fewer passes=, or give the model a smaller batch",
                )


def _check_alone(machine: Machine, instruction: Instruction, sizes: dict[str, tuple[int, int]]) -> list[Region]:
    check_fields(instruction)
    if isinstance(instruction, Transfer) and instruction.far % machine.line:
        raise LayoutError(f"far is {instruction.far}, expected a multiple of the line of {machine.line} bytes")
    if isinstance(instruction, Move):
        size = {"A": machine.width, "B": machine.height, "K": 4, "P": 8 * machine.width}[instruction.operation]
        taken = size * instruction.spread
        if taken > machine.line and instruction.spread > 1:
            raise DomainError(f"{instruction.spread} words of {size} bytes are dealt out of a line of {machine.line}")
        if instruction.operation in "AB" and instruction.valid > taken:
            raise DomainError(f"{instruction.valid} bytes are valid of {instruction.spread} words of {size} bytes")
        if instruction.operation == "P" and instruction.spread > 1:
            raise DomainError(f"{instruction.spread} words of P are dealt out, and there is one bank")
        if instruction.bank_loop > 4:
            raise DomainError(f"bank_loop is {instruction.bank_loop}, expected 0 to 3, or 4 for none")
    if isinstance(instruction, Convolve) and instruction.split and instruction.length > 511:
        raise DomainError(f"the length is {instruction.length}, and sums of split vectors are of at most 511 products")
    if isinstance(instruction, Vector):
        if instruction.a_from == "C" and instruction.a_type not in ("i16", "i32"):
            raise DomainError(f"a is read from C as {instruction.a_type}, expected i32, or i16 for split sums")
        if instruction.operation == "drain" and instruction.a_from != "C":
            raise DomainError("what is drained is read from C")
        if instruction.turned:
            if instruction.y_type != "i8" or instruction.along or instruction.across or instruction.tail_inner:
                raise DomainError("what is turned is int8, has no reduction, and its tail is of the middle loop")
            if instruction.n2 > machine.lanes:
                raise DomainError(f"a pass of {instruction.n2} steps is turned, and there are {machine.lanes} lanes")
        if instruction.tail > lanes(machine, instruction):
            raise DomainError(f"the tail has {instruction.tail} of {lanes(machine, instruction)} lanes")
    found = list(regions(machine, instruction))
    for region in found:
        banks, size = sizes[region.memory]
        if not 0 <= region.bank < banks:
            raise LayoutError(f"{region.memory} has no bank {region.bank}, the machine has {banks}")
        if region.start < 0 or region.stop > size:
            raise LayoutError(f"it touches {region}, and there are {size}")
    if isinstance(instruction, Vector):
        _check_own(machine, instruction, found)
    return found


def _check_own(machine: Machine, of: Vector, found: list[Region]) -> None:
    """What a step writes must not be read by a later one."""

    def place(name: str) -> tuple[object, ...]:
        return tuple(getattr(of, f"{name}{suffix}") for suffix in ("_type", "", 0, 1, 2))

    written = next(region for region in found if region.is_written)
    for name, is_read in (("a", of.a_from == "X"), ("b", reads_b(of))):
        is_other = of.along or of.across or of.turned or getattr(of, f"{name}_one")
        is_place = place(name) == place("y") and not is_other
        if not is_read or (is_place and _steps_are_apart(machine, of)):
            continue
        start = found[0] if name == "a" else found[1]
        if written.meets(start):
            raise LayoutError(f"it writes {written} and reads {start} as {name}")


def _steps_are_apart(machine: Machine, of: Vector) -> bool:
    """Whether no two steps write the same byte."""
    counts = (of.n0, of.n1, of.n2)
    first, second, third = (np.arange(n) * stride for n, stride in zip(counts, (of.y0, of.y1, of.y2)))
    starts = of.y + first[:, None, None] + second[:, None] + third
    live = np.full(counts, lanes(machine, of))
    if of.tail:
        live[(..., -1) if of.tail_inner else (slice(None), -1)] = of.tail
    order = np.argsort(starts, axis=None, kind="stable")
    ends = (starts + (live * BITS[of.y_type] + 7) // 8).ravel()[order]
    return bool(np.all(ends[:-1] <= starts.ravel()[order][1:]))
