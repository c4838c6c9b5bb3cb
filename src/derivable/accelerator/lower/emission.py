"""Writing programs: what an instruction waits for follows from what it touches, and arithmetic on views is loops."""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeAlias

from derivable.accelerator.kernels.clock import NEED
from derivable.accelerator.machine.hazards import Memory, regions
from derivable.accelerator.machine.instructions import (
    NUM_UNITS,
    UNITS,
    End,
    Instruction,
    Machine,
    Move,
    Program,
    Vector,
)
from derivable.accelerator.machine.layouts import View
from derivable.accelerator.machine.machine import Demand, Latencies, cycles_of, demand
from derivable.accelerator.operators.runtime import ceil_div

Loop: TypeAlias = tuple[int, int, int]
ONCE: Loop = (1, 0, 0)


class Written(NamedTuple):
    """An instruction that is written, the operator and the pass that it serves, and what it has to wait for.

    unit    its number in `UNITS`
    after   numbers of the instructions that have to be done before it for memories to end as written
    arrays  its sub-arrays; instructions that share one take turns, in any order
    demand  of its unit and of X
    length  its cycles, if nothing else uses X
    """

    instruction: Instruction
    node: str
    of_pass: int
    unit: int
    after: set[int]
    arrays: frozenset[int]
    demand: Demand
    length: int


class Section(NamedTuple):
    """Instructions that are all done before another section begins, or this one again: it is done `count` times.

    nodes  of each time: what the operator of an instruction is then, see `End`
    """

    written: list[Written]
    count: int = 1
    nodes: tuple[Mapping[str, str], ...] = ()


class Emitter:
    """Instructions in their order, each with what has to be done before it.

    reach  words or bytes of each memory, up to the last that is touched
    done   when the last instruction that was written since this was set is done, roughly
    closed sections that are whole; `written` are the instructions of the one under way
    """

    def __init__(self, machine: Machine):
        self.machine = machine
        self.written: list[Written] = []
        self.closed: list[Section] = []
        self.node, self.of_pass = "", 0
        self.done = 0
        self.reach = dict.fromkeys("ABCX", 1)
        self._memories: dict[tuple[str, int], Memory] = defaultdict(Memory)
        self._ends: list[int] = []  # of each instruction
        self._idle = [0] * NUM_UNITS  # since when each unit is
        self._free: dict[int, int] = {}  # since when each sub-array is

    def add(self, instruction: Instruction) -> None:
        number, unit = len(self.written), UNITS.index(instruction.unit)
        after: set[int] = set()
        arrays: set[int] = set()
        for region in regions(self.machine, instruction):
            if region.memory == "sub-array":
                arrays.add(region.bank)
                continue
            after |= self._memories[region.memory, region.bank].touch(number, region)
            if region.stop > self.reach.get(region.memory, 0):
                self.reach[region.memory] = region.stop
        taken = demand(self.machine, instruction, Latencies())
        waits = [self._ends[other] for other in after] + [self._free.get(bank, 0) for bank in arrays]
        end = max([self._idle[unit], *waits]) + cycles_of(taken)
        self._ends.append(end)
        self._idle[unit] = end
        self._free.update(dict.fromkeys(arrays, end))
        self.written.append(
            Written(instruction, self.node, self.of_pass, unit, after, frozenset(arrays), taken, cycles_of(taken))
        )
        self.done = max(self.done, end)

    def close(self, count: int = 1, nodes: tuple[Mapping[str, str], ...] = ()) -> None:
        """End the section under way, which is done `count` times."""
        self.closed.append(Section(self.written, count, nodes))
        self.written = []
        self._memories.clear()
        idle = max(self._idle, default=0)
        self._ends, self._idle, self._free = [], [idle] * NUM_UNITS, {}

    @property
    def sections(self) -> list[Section]:
        return [*self.closed, Section(self.written)]

    @property
    def chain(self) -> int:
        """Cycles of the longest chain of instructions each of which has to wait for the one before, in any order."""
        cycles = 0
        for section in self.sections:
            ends: list[int] = []
            for of in section.written:
                # A unit goes on with its next instruction at once.
                ready = (ends[other] + NEED * (section.written[other].unit != of.unit) for other in of.after)
                ends.append(max(ready, default=0) + of.length)
            cycles += section.count * max(ends, default=0)
        return cycles

    def move(self, operation: str, loops: Sequence[Loop], x: int, to: int, **rest: int) -> None:
        """A `Move` in up to four loops: how often, and what each time adds to x and to `to`; the innermost is last."""
        fields: dict[str, Any] = {"x": x, "to": to, **rest}
        for loop, (count, of_x, of_to) in enumerate(loops, 4 - len(loops)):
            fields |= {f"n{loop}": count, f"x{loop}": of_x, f"to{loop}": of_to}
        self.add(Move(operation=operation, **fields))

    def step(
        self, operation: str, loops: Sequence[Loop], a: int, y: int, clamp: tuple[int, int] | None, **rest: Any
    ) -> None:
        """A `Vector` in up to three loops: how often, and what each time adds to a and to y; the innermost is last.

        clamp  the least and the largest result
        """
        fields = {"a": a, "y": y, **_clamp_fields(clamp), **rest}
        for loop, (count, of_a, of_y) in enumerate(loops, 3 - len(loops)):
            fields |= {f"n{loop}": count, f"a{loop}": of_a, f"y{loop}": of_y}
        self.add(Vector(operation=operation, **fields))

    def vector(
        self,
        operation: str,
        a: View,
        b: View | int,
        y: View,
        *,
        multiplier: int = 1,
        shift: int = 0,
        reduced: tuple[int, ...] = (),
        reduction: str = "sum",
        clamp: tuple[int, int] | None = None,
    ) -> bool:
        """`y = a OP b` on views of one shape, of which y has no axis that is `reduced`, but for its length.

        The fewest steps are taken; `clamp` has the least and the largest result. False, and no instruction, where the
        loops of an instruction cannot reduce so.
        """
        plans = _plan(a, b if isinstance(b, View) else None, y, reduced, self.machine.lanes)
        if plans is None:
            return False
        common = {"y_type": y.type, "a_type": a.type, "multiplier": multiplier, "shift": shift, "reduction": reduction}
        common |= _clamp_fields(clamp)
        if isinstance(b, View):
            common |= {"b_from": "X", "b_type": b.type}
        for plan in plans:
            of = {**common, "a_one": plan.ones[0], "along": plan.along, "across": plan.across}
            of |= {"tail": plan.tail, "tail_inner": plan.tail_inner, "turned": plan.transposed}
            if isinstance(b, View):
                of["b_one"] = plan.ones[1]
            for loop, axis in enumerate(plan.loops):
                of |= {f"n{loop}": axis.length, f"a{loop}": axis.strides[0], f"y{loop}": axis.strides[2]}
                if isinstance(b, View):
                    of[f"b{loop}"] = axis.strides[1]
            for place in itertools.product(*(range(axis.length) for axis in plan.outer)):
                offset = [sum(i * axis.strides[k] for i, axis in zip(place, plan.outer)) for k in range(3)]
                of |= {"a": a.address + plan.start[0] + offset[0], "y": y.address + plan.start[2] + offset[2]}
                of["b"] = b.address + plan.start[1] + offset[1] if isinstance(b, View) else b
                self.add(Vector(operation=operation, **of))
        return True

    def pack(self, a: View, added: int, y: View, multiplier: int, shift: int, clamp: tuple[int, int] | None) -> None:
        """`y = a + added`, multiplied and shifted, of numbers [..., entry] to int4 [..., byte], two in a byte.

        The entries of both are together.
        """
        lanes, count = self.machine.lanes, a.shape[-1]
        rest = [axis for axis in zip(a.shape[:-1], a.strides[:-1], y.strides[:-1]) if axis[0] > 1]
        while (joined := next((axis for axis in rest if axis[1:] == (count, count / 2)), None)) is not None:
            count *= joined[0]
            rest.remove(joined)
        rest.sort()
        outer, loops = rest[:-2], [*rest[-2:], (1, 0, 0), (1, 0, 0)][:2]
        (n0, a0, y0), (n2, a2, y2) = loops
        size = a.size
        steps = [(n0, a0 * size, y0), (ceil_div(count, lanes), lanes * size, lanes // 2), (n2, a2 * size, y2)]
        settings = {"b": added, "multiplier": multiplier, "shift": shift, "tail": count % lanes}
        for place in itertools.product(*(range(length) for length, _, _ in outer)):
            at = a.address + size * sum(i * axis[1] for i, axis in zip(place, outer))
            to = y.address + sum(i * axis[2] for i, axis in zip(place, outer))
            self.step("add", steps, at, to, clamp, a_type=a.type, y_type="i4", **settings)


def needs_of(written: Sequence[Written], order: Sequence[int]) -> list[tuple[int, ...]]:
    """What each instruction needs if they are done in an order of their numbers: [index in the order][unit].

    A need that follows from another, or from what came before it in its unit, is left out.
    """
    clocks: list[list[int]] = [[]] * len(order)  # of each unit, how many are done before an instruction begins
    ordinals = [0] * len(order)  # of each in its unit, from 1 on
    latest = [[0] * NUM_UNITS for _ in range(NUM_UNITS)]  # the clock of the last of each unit
    holders: dict[int, int] = {}  # sub-array -> the last that had it
    listed = []
    for number in order:
        _, _, _, unit, after, arrays, *_ = written[number]
        last: dict[int, int] = {}  # of each unit, the last of those that have to be done before
        for other in (*after, *[holders[bank] for bank in arrays if bank in holders]):
            at = written[other].unit
            if at not in last or ordinals[other] > ordinals[last[at]]:
                last[at] = other
        holders.update(dict.fromkeys(arrays, number))
        clock, needs = latest[unit], [0] * NUM_UNITS
        for at, other in sorted(last.items()):
            if at != unit and ordinals[other] > clock[at]:
                needs[at] = ordinals[other]
                clock = list(map(max, clock, clocks[other]))
                clock[at] = needs[at]
        ordinals[number] = clock[unit] + 1
        clocks[number] = clock
        latest[unit] = [*clock[:unit], ordinals[number], *clock[unit + 1 :]]
        listed.append(tuple(needs))
    return listed


def program_of(parts: Sequence[tuple[Section, Sequence[int], Sequence[tuple[int, ...]]]]) -> Program:
    """The sections of a program, each with its instructions in an order of their numbers, and what each needs in it."""
    instructions: list[Instruction] = []
    for number, (section, order, needs) in enumerate(parts):
        start = len(instructions)
        for of, need in zip((section.written[each] for each in order), needs):
            instructions.append(replace(of.instruction, needs=need, node=of.node, of_pass=of.of_pass))
        if number == len(parts) - 1:
            instructions.append(End())
        else:
            instructions.append(End(operation="repeat", count=section.count, to=start, nodes=section.nodes))
    return Program(instructions)


def _clamp_fields(clamp: tuple[int, int] | None) -> dict[str, int]:
    return {} if clamp is None else {"is_clamped": 1, "low": clamp[0], "high": clamp[1]}


@dataclass(frozen=True)
class _Axis:
    """Strides of a, b and y are in bytes."""

    length: int
    strides: tuple[int, int, int]
    is_reduced: bool


_NONE = _Axis(1, (0, 0, 0), False)


@dataclass(frozen=True)
class _Plan:
    loops: tuple[_Axis, _Axis, _Axis]
    outer: tuple[_Axis, ...]  # for each place of which there is an instruction
    ones: tuple[int, int]
    tail: int
    tail_inner: int
    along: int
    across: int
    steps: int
    start: tuple[int, int, int] = (0, 0, 0)  # bytes from the first of a, b and y on
    transposed: int = 0

    @property
    def cycles(self) -> int:
        """With what each instruction takes beside its steps, roughly."""
        return self.steps + 10 * math.prod(axis.length for axis in self.outer)


def moving_cycles(a: View, y: View, lanes: int) -> int:
    """About how many cycles the lanes take for `y = a`."""
    return sum(plan.cycles for plan in _plan(a, None, y, (), lanes) or ())


def _plan(a: View, b: View | None, y: View, reduced: tuple[int, ...], lanes: int) -> list[_Plan] | None:
    """The loops of the fewest cycles: one instruction at each place of `outer`, or two where a rest is transposed."""
    operands = (a, b or replace(a, strides=(0,) * len(a.shape), type=a.type), y)
    axes = [
        _Axis(length, tuple(of.strides[axis] * of.size for of in operands), axis in reduced)  # type: ignore[arg-type]
        for axis, length in enumerate(a.shape)
        if length > 1
    ]
    axes = _merged([replace(axis, strides=(*axis.strides[:2], 0)) if axis.is_reduced else axis for axis in axes])
    sizes = tuple(of.size for of in operands)
    plans = [_with_lanes(axes, lane, sizes, lanes) for lane in [*range(len(axes)), None]]
    listed = [[plan] for plan in plans if plan is not None]
    if y.type == "i8" and not reduced:
        listed += [
            found
            for lane, inner in itertools.permutations(range(len(axes)), 2)
            if (found := _transposed(axes, lane, inner, sizes, lanes)) is not None
        ]
    return min(listed, key=lambda plans: sum(plan.cycles for plan in plans), default=None)


def _merged(axes: list[_Axis]) -> list[_Axis]:
    """Fewer axes, where two are one for all operands."""
    for outer, inner in itertools.permutations(axes, 2):
        if outer.is_reduced == inner.is_reduced and all(
            far == near * inner.length for far, near in zip(outer.strides, inner.strides)
        ):
            rest = [axis for axis in axes if axis is not outer and axis is not inner]
            return _merged([*rest, replace(inner, length=inner.length * outer.length)])
    return axes


def _transposed(axes: list[_Axis], lane: int, inner: int, sizes: tuple[int, ...], lanes: int) -> list[_Plan] | None:
    """The loops with lanes along an axis that is not together in the result, and one that is inside: None where that
    is not possible. A length that is no multiple of the steps of a pass leaves a rest."""
    wide, deep = axes[lane], axes[inner]
    ones = tuple(int(stride == 0) for stride in wide.strides[:2])
    fits = all(stride in (0, size) for stride, size in zip(wide.strides[:2], sizes))
    if not fits or all(ones) or deep.strides[2] != 1:
        return None
    count, tail = ceil_div(wide.length, lanes), wide.length % lanes
    whole = max(n for n in range(1, lanes + 1) if deep.length % n == 0)
    steps = whole if 4 * whole >= 3 * lanes or deep.length < lanes else lanes
    passes, rest = divmod(deep.length, steps)
    others = [axis for number, axis in enumerate(axes) if number not in (lane, inner)]
    chunks = _Axis(count, tuple(stride * lanes for stride in wide.strides), False)  # type: ignore[arg-type]
    found = []
    for start, repeats, n in ((0, passes, steps), (passes * steps, 1, rest)):
        if not n:
            continue
        again = _Axis(repeats, tuple(stride * n for stride in deep.strides), False)  # type: ignore[arg-type]
        free = sorted((axis for axis in (*others, again) if axis.length > 1), key=lambda axis: axis.length)
        # The middle loop is that of the lanes, if there is more than one step of them or a tail.
        middle = chunks if count > 1 or tail or not free else free.pop()
        outer = free.pop() if free else _NONE
        blocks = count * repeats * math.prod(axis.length for axis in others)
        found.append(
            _Plan(
                (outer, middle, _Axis(n, (*deep.strides[:2], wide.strides[2]), False)),
                tuple(free),
                ones,  # type: ignore[arg-type]
                tail,
                0,
                0,
                0,
                blocks * max(n, lanes) + lanes * math.prod(axis.length for axis in free),
                tuple(start * stride for stride in deep.strides),  # type: ignore[arg-type]
                1,
            )
        )
    return found


def _with_lanes(axes: list[_Axis], lane: int | None, sizes: tuple[int, ...], lanes: int) -> _Plan | None:
    """The loops with lanes along an axis, or one element at a time; None where that is not possible."""
    along_lanes = _Axis(1, (sizes[0], sizes[1], sizes[2]), False) if lane is None else axes[lane]
    rest = [axis for number, axis in enumerate(axes) if number != lane]
    ones = tuple(int(stride == 0) for stride in along_lanes.strides[:2])
    fits = all(stride in (0, size) for stride, size in zip(along_lanes.strides[:2], sizes))
    if not fits or (not along_lanes.is_reduced and along_lanes.strides[2] != sizes[2]):
        return None
    count = ceil_div(along_lanes.length, lanes)
    tail = along_lanes.length - (count - 1) * lanes
    step = tuple(stride * lanes for stride in along_lanes.strides)
    chunks = _Axis(count, step, along_lanes.is_reduced)  # type: ignore[arg-type]
    summed = sorted((axis for axis in rest if axis.is_reduced), key=lambda axis: -axis.length)
    others = sorted((axis for axis in rest if not axis.is_reduced), key=lambda axis: -axis.length)
    inner_is_chunks = along_lanes.is_reduced and count > 1
    if len(summed) + inner_is_chunks > 1:
        return None
    free = [*others, _NONE, _NONE, _NONE]
    if inner_is_chunks:
        loops, used = (free[0], free[1], chunks), 2
    elif summed:
        loops, used = (free[0], chunks, summed[0]), 1
    else:
        loops, used = (free[1], chunks, free[0]), 2
    steps = count
    for axis in rest:
        steps *= axis.length
    return _Plan(
        loops,
        tuple(others[used:]),
        ones,  # type: ignore[arg-type]
        tail % lanes,
        int(inner_is_chunks),
        int(bool(summed) or inner_is_chunks),
        int(along_lanes.is_reduced),
        steps,
    )
