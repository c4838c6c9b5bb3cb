"""The golden machine: what a program does to off-chip memory, bit by bit, and how many cycles it takes.

Instructions are done one after the other in the order of the program; `hazards.check` says whether that is what
units beside each other do. The time of each follows from when it was fetched, from its unit, from its needs, and from
who else uses X meanwhile (`kernels/clock.py`). By itself it takes:

    unit  cycles of an instruction, beside a constant
    dma   lines
    move  steps, of which each deals out a line; of P, where words are longer than a line, twice as many
    nn    columns * tiles * (2 * height + width + M - 2), equation (1), and the depth of the tree of adders
    vsa   groups * ceil(length / height) * (3 * height + length - 1), equation (4)
    vec   steps, and twice the depth of the tree across lanes where there is one; where results are turned, a pass takes
          at least as many as there are lanes, and the last one takes these to leave
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from derivable.accelerator.kernels import clock
from derivable.accelerator.machine import hazards
from derivable.accelerator.machine.instructions import (
    BITS,
    NUM_UNITS,
    QUEUE,
    UNITS,
    Convolve,
    Gemm,
    Instruction,
    Machine,
    Move,
    Program,
    Transfer,
    Vector,
)
from derivable.accelerator.numbers import fixed
from derivable.accelerator.operators.runtime import ceil_div, tree_depth
from derivable.core.diagnostics import DomainError, LayoutError, ShapeError

Demand: TypeAlias = tuple[int, ...]  # an instruction's row of the columns of `clock`
# Bytes of off-chip memory between two addresses that a burst may not cross, and its lines at most: those of AXI.
PAGE, MOST_OF_A_BURST = 4096, 256
PORTS = 2  # of X that are read, in the RTL
TO_SECTION = 1  # cycles from the one in which all units are done with a section to the start of the next one


@dataclass(frozen=True)
class Latencies:
    """Constants of the model of time, in cycles.

    An instruction takes what its work takes, and one of these, from the cycle in which its unit takes it to that in
    which it is done. All but `off_chip`, `interval` and `ports` are those of the RTL, exactly.

    off_chip  from the address of a burst of off-chip memory to its first line, or from its last line to the answer
    interval  from a line that is read from off-chip memory to the next
    ask       until the address of the first burst of a load is at the port
    load, store            of a transfer, which also takes `off_chip` and its lines
    move, nn, vsa, vec     their pipelines, without the trees of nn and of sums across lanes
    turn                   more, where results are turned, than that and the lanes
    ports     of X that are read: 2, which the RTL has, 3, or 4, with which nothing that reads waits
    """

    off_chip: int = 16
    interval: int = 1
    ask: int = 1
    load: int = 2
    store: int = 8
    move: int = 7
    nn: int = 13
    vsa: int = 13
    vec: int = 24
    turn: int = 2
    ports: int = PORTS


@dataclass(frozen=True)
class Run:
    """What a program did.

    memory  off-chip memory afterwards, uint8
    cycles  from the start until all units were done
    begin   of each instruction that was executed: the cycle in which its unit takes it, int64
    end     of each instruction that was executed: the cycle in which it is done, int64
    """

    memory: np.ndarray
    cycles: int
    begin: np.ndarray
    end: np.ndarray


class State:
    """The memories of a machine; all zero at the start.

    a [bank, word, width], b [bank, word, height], k [bank, word], c [bank, word, width], added and multiplied
    [word, width] int64, x [byte] and off_chip [byte] uint8
    """

    def __init__(self, machine: Machine, off_chip: np.ndarray):
        self.machine, self.off_chip = machine, off_chip
        banks, width = machine.sub_arrays, machine.width
        self.a = np.zeros((banks, machine.a, width), np.uint8)
        self.b = np.zeros((banks, machine.b, machine.height), np.uint8)
        self.k = np.zeros((banks, machine.k), np.int64)
        self.c = np.zeros((banks, machine.c, width), np.int32)
        self.added = np.zeros((machine.p, width), np.int64)
        self.multiplied = np.zeros((machine.p, width), np.int64)
        self.x = np.zeros(machine.x, np.uint8)


def run(machine: Machine, program: Program, off_chip: np.ndarray, latencies: Latencies | None = None) -> Run:
    """Run a program on off-chip memory, uint8, which is left as it is.

    Raises what `hazards.check` raises, and DomainError, with the instruction, where a sum leaves its int32 or what a
    lane holds its 63 bits: the hardware would go on with wrong numbers.
    """
    memory = np.array(off_chip, copy=True)
    if memory.dtype != np.uint8 or memory.ndim != 1:
        raise ShapeError(f"off-chip memory is {memory.dtype}{list(memory.shape)}, expected uint8 [byte]")
    hazards.check(machine, program, len(memory))
    state = State(machine, memory)
    for number, instruction in enumerate(program.executed):
        try:
            execute(state, instruction)
        except DomainError as error:
            raise DomainError(f"instruction {number}, {instruction}: {error.message}", hint=error.hint) from None
    begin, end = timing(machine, program, latencies)
    return Run(memory, int(end[-1]), begin, end)


def execute(state: State, instruction: Instruction) -> None:
    """Do one instruction."""
    if instruction.unit in _EXECUTE:
        _EXECUTE[instruction.unit](state, instruction)


# Time


def cycles(machine: Machine, instruction: Instruction, latencies: Latencies | None = None) -> int:
    """From the cycle in which an instruction is taken to that in which it is done, if nothing else uses X."""
    return cycles_of(demand(machine, instruction, latencies or Latencies()))


def cycles_of(of: Demand) -> int:
    """The cycles of an instruction of a demand if nothing else uses X."""
    gaps = (of[clock.WORK] // of[clock.EVERY] - 1) * of[clock.GAP] + of[clock.SECOND]
    return of[clock.FIRST] + of[clock.WORK] + of[clock.TO_END] + gaps


def demand(machine: Machine, of: Instruction, latencies: Latencies) -> Demand:
    """What an instruction takes of its unit and of X: the columns of `clock`, [unit column] cycles and words."""
    if isinstance(of, Transfer):
        if of.operation == "load":
            first = latencies.ask + latencies.off_chip
            # Addresses of bursts are two cycles apart, and a burst ends where a page does.
            page = min(PAGE // machine.line, MOST_OF_A_BURST)
            is_short = of.lines > 1 and (of.far // machine.line + 1) % page == 0
            second = max(2 - latencies.interval, 0) if is_short else 0
            return of.lines, first, 0, 1, latencies.interval - 1, 0, 0, latencies.load, second
        return of.lines, 0, 1, 1, 0, 0, 0, latencies.off_chip + latencies.store, 0
    if isinstance(of, Move):
        beats = 1 + (of.operation == "P" and 8 * machine.width > machine.line)
        return of.n0 * of.n1 * of.n2 * of.n3 * beats, 0, 1, 1, 0, 0, 0, latencies.move, 0
    if isinstance(of, Gemm):
        rows = of.n0 * of.n1 * of.n2
        work = of.columns * of.tiles * (2 * machine.height + machine.width + rows - 2)
        return work, 0, 0, 1, 0, 0, 0, int(tree_depth(machine.sub_arrays)) + latencies.nn, 0
    if isinstance(of, Convolve):
        passes = of.groups * ceil_div(of.length, machine.height)
        return passes * (3 * machine.height + of.length - 1), 0, 0, 1, 0, 0, 0, latencies.vsa, 0
    if isinstance(of, Vector):
        # With a port more, lanes that read twice are to the others as lanes that read once.
        reads = max((of.a_from == "X") + hazards.reads_b(of) - (latencies.ports - PORTS), 0)
        steps = of.n0 * of.n1 * of.n2
        if of.turned:
            lanes, pipeline = hazards.lanes(machine, of), latencies.vec + latencies.turn
            return steps, 0, reads, of.n2, max(lanes - of.n2, 0), lanes, pipeline, pipeline + lanes, 0
        pipeline = latencies.vec + (2 * int(tree_depth(machine.lanes)) if of.across else 0)
        return steps, 0, reads, of.n2 if of.along else 1, 0, 1, max(pipeline - 1, 0), pipeline, 0
    return 0, 0, 0, 1, 0, 0, 0, 0, 0


def timing(machine: Machine, program: Program, latencies: Latencies | None = None) -> tuple[np.ndarray, np.ndarray]:
    """In which cycle each of `program.executed` is taken by its unit, and in which it is done: int64 each.

    The controller puts an instruction a cycle into the queues, in order, and waits while the queue of the next one is
    full. A unit takes the head of its queue three cycles after it came there, two after the one before was taken and
    two after what it needs was done, and not before the cycle in which the unit is done with the one before. Units wait
    for the ports of X as they do in the RTL (`kernels/clock.py`). A section begins in the second cycle after all units
    were done with the one before, as after a start. What is not in it: off-chip memory that refuses transfers, or whose
    interval between lines is longer than it takes a section to load its first one.

    Raises LayoutError where instructions wait for one another for ever.
    """
    latencies = latencies or Latencies()
    spans, start = [], 0  # the cycles of each time that a section is done: [begin or end, instruction]
    for numbers, of_section in program.sections:
        listed = [program.instructions[number] for number in numbers]
        begin, end, last = times(
            np.array([UNITS.index(of.unit) for of in listed], np.int64),
            np.array([of.needs for of in listed], np.int64).reshape(-1, NUM_UNITS),
            np.array([demand(machine, of, latencies) for of in listed], np.int64).reshape(-1, clock.COLUMNS),
            latencies.interval,
        )
        stuck = np.flatnonzero(end == clock.NEVER)
        if len(stuck):
            raise LayoutError(f"instruction {numbers[stuck[0]]}, {listed[stuck[0]]}: it waits for ever")
        if of_section.operation == "end":
            spans += [np.stack((begin, end)) + start, np.full((2, 1), last + start, np.int64)]
            continue
        for _ in range(of_section.count):
            spans.append(np.stack((begin, end)) + start)
            start += last + TO_SECTION
    begin, end = np.concatenate(spans, 1)
    return begin, end


def times(
    units: np.ndarray, needs: np.ndarray, demands: np.ndarray, interval: int = 1
) -> tuple[np.ndarray, np.ndarray, int]:
    """`timing` of instructions without the end, from columns, and the cycle of the end.

    units    [instruction] int64
    needs    [instruction, unit] int64
    demands  [instruction, column of `demand`] int64
    returns  begin and end, [instruction] int64 each, `clock.NEVER` for what waits for ever, and the cycle of the end
    """
    begin, end = np.zeros((2, len(units)), np.int64)
    order = np.argsort(units, kind="stable")
    offsets = np.searchsorted(units[order], np.arange(NUM_UNITS + 1))
    ahead = int((demands[:, clock.TO_WRITE] + demands[:, clock.WORDS]).max(initial=0))
    pushed, _ = clock.clock(
        units,
        needs,
        demands,
        offsets,
        order,
        interval,
        QUEUE,
        np.zeros((NUM_UNITS, clock.STATE), np.int64),
        np.full(1 << (ahead + 1).bit_length(), -1, np.int64),
        begin,
        end,
    )
    return begin, end, max(pushed + 1, int(end.max(initial=0))) + 1


def busy(program: Program, begin: np.ndarray, end: np.ndarray) -> dict[str, int]:
    """Cycles that each unit has an instruction, from those in which instructions begin and end.

    Law: they are what the counters of the simulated hardware say.
    """
    found: dict[str, int] = dict.fromkeys(UNITS[:NUM_UNITS], 0)
    for instruction, cycles in zip(program.executed, (end - begin).tolist()):
        if instruction.unit in found:
            found[instruction.unit] += cycles
    return found


# What instructions do


def _transfer(state: State, of: Transfer) -> None:
    length = of.lines * state.machine.line
    x, off_chip = state.x[of.x : of.x + length], state.off_chip[of.far : of.far + length]
    if of.operation == "load":
        x[:] = off_chip
    else:
        off_chip[:] = x


def _grid(counts: tuple[int, ...], start: int, strides: tuple[int, ...]) -> np.ndarray:
    """start + i0 * stride0 + i1 * stride1 + ..., [*counts]."""
    found = np.full((1,) * len(counts), start, np.int64)
    for axis, (count, stride) in enumerate(zip(counts, strides)):
        along = (np.arange(count, dtype=np.int64) * stride).reshape(
            [-1 if a == axis else 1 for a in range(len(counts))]
        )
        found = found + along
    return found


def _move(state: State, of: Move) -> None:
    machine = state.machine
    counts = (of.n0, of.n1, of.n2, of.n3)
    source = _grid(counts, of.x, (of.x0, of.x1, of.x2, of.x3)).ravel()
    target = _grid(counts, of.to, (of.to0, of.to1, of.to2, of.to3)).ravel()
    steps = tuple(of.spread * (of.bank_loop == loop) for loop in range(4))
    bank = _grid(counts, of.first, steps).ravel()
    size = {"A": machine.width, "B": machine.height, "K": 4, "P": 8 * machine.width}[of.operation]
    words = state.x[(source[:, None] + np.arange(size * of.spread)) % machine.x]
    if of.operation == "P":
        pair = np.ascontiguousarray(words).view("<i4").reshape(len(words), 2, machine.width)
        state.added[target], state.multiplied[target] = pair[:, 0], pair[:, 1]
        return
    if of.operation == "K":
        found = np.ascontiguousarray(words).view("<u4").astype(np.int64) & 0xFFFFFF
    else:
        found = np.where(np.arange(size * of.spread) < of.valid, words, 0).astype(np.uint8)
    memory = {"A": state.a, "B": state.b, "K": state.k}[of.operation]
    found = found.reshape(len(target), of.spread, -1)
    # A step after the other, and of each all banks.
    every = np.arange(of.banks)
    memory[bank[:, None] + every, target[:, None]] = found[:, every % of.spread].reshape(
        len(target), of.banks, *memory.shape[2:]
    )


def _numbers(words: np.ndarray, nibbles: int) -> np.ndarray:
    """The elements of bytes: int8 [..., byte], or int4 [..., byte, 2], as int64."""
    if not nibbles:
        return words.view(np.int8).astype(np.int64)
    both = np.stack([words & 15, words >> 4], -1).astype(np.int64)
    return both - ((both & 8) << 1)


def _sums(found: np.ndarray, bits: int = 32) -> np.ndarray:
    if found.size and (found.max() >= 1 << (bits - 1) or found.min() < -(1 << (bits - 1))):
        raise DomainError(f"a sum is {found[np.abs(found) == np.abs(found).max()][0]}, beyond int{bits}")
    return found


def _gemm(state: State, of: Gemm) -> None:
    height, width = state.machine.height, state.machine.width
    rows = _grid((of.n0, of.n1, of.n2), 0, (of.b0, of.b1, of.b2)).ravel()
    banks = np.arange(of.arrays)
    offsets = of.b + state.k[: of.arrays, of.k : of.k + of.tiles]
    places = offsets[:, :, None] + rows
    if places.min() < of.b or places.max() >= (of.b + of.reach if of.reach else state.machine.b):
        raise DomainError(f"K leads to words {places.min()} to {places.max()} of B, beyond what is said to be read")
    # [bank, tile, row, height]
    streamed = _numbers(state.b[banks[:, None, None], places], of.nibbles)
    count = of.columns * of.tiles * height
    held = state.a[: of.arrays, of.a : of.a + count].reshape(of.arrays, of.columns, of.tiles, height, width)
    held = _numbers(np.ascontiguousarray(held), of.nibbles)
    # Sums of products of bytes are exact in float64.
    letters = "ntmhe,ncthwe->cmw" if of.nibbles else "ntmh,ncthw->cmw"
    found = np.einsum(letters, streamed.astype(np.float64), held.astype(np.float64), optimize=True).astype(np.int64)
    place = slice(of.c, of.c + of.columns * len(rows))
    found = found.reshape(-1, width) + (state.c[0, place] if of.accumulate else 0)
    state.c[0, place] = _sums(found)


def _convolve(state: State, of: Convolve) -> None:
    banks = np.arange(of.first, of.first + of.arrays)[:, None, None]
    length, groups = of.length, of.groups

    def read(start: int, stride: int) -> np.ndarray:
        return _numbers(state.a[banks, _grid((groups, length), start, (stride, 1))], of.split)

    held, streamed = read(of.a, of.a0), read(of.b, of.b0)
    found = np.zeros_like(held)
    for shift in range(length):
        found += held[:, :, shift : shift + 1] * np.roll(streamed, -shift if of.reverse else shift, 2)
    place = slice(of.c, of.c + groups * length)
    found = found.reshape(of.arrays, groups * length, *found.shape[3:])
    before = state.c[of.first : of.first + of.arrays, place]
    if of.split:
        if of.accumulate:
            found = found + before.view(np.int16).reshape(found.shape)
        state.c[of.first : of.first + of.arrays, place] = _sums(found, 16).astype(np.int16).view(np.int32)[..., 0]
    else:
        state.c[of.first : of.first + of.arrays, place] = _sums(found + (before if of.accumulate else 0))


def _vector(state: State, of: Vector) -> None:
    counts = (of.n0, of.n1, of.n2)
    lanes = hazards.lanes(state.machine, of)
    a = _operand(state, of, "a", lanes)
    v = _OPERATIONS[of.operation](a, _operand(state, of, "b", lanes) if hazards.reads_b(of) else of.b)
    if of.operation == "drain":
        v = a + state.added[of.p + np.arange(of.n0)][:, None, None, :]
    live: np.ndarray = np.ones((*counts, lanes), bool)
    if of.tail:
        last = (slice(None), slice(None), -1) if of.tail_inner else (slice(None), -1)
        live[last] = np.arange(lanes) < of.tail
    for is_reduced, axis in ((of.along, 2), (of.across, 3)):
        if is_reduced:
            v = _reduce(v, live, axis, of.reduction)
            live = np.asarray(live.any(axis, keepdims=True))
    wide = np.abs(v).max(initial=0, where=live)
    multiplier = np.int64(of.multiplier)
    if of.operation == "drain":
        multiplier = state.multiplied[of.p + np.arange(of.n0)][:, None, None, : v.shape[-1]]
    if float(wide) * float(np.abs(multiplier).max()) + 2.0**of.shift >= 2.0**63:
        raise DomainError(f"a lane holds {wide} times {np.abs(multiplier).max()}, beyond 63 bits")
    y = fixed.round_shift(v * multiplier, of.shift)
    if of.is_clamped:
        y = np.clip(y, of.low, of.high)
    bits = BITS[of.y_type]
    most = (1 << (bits - 1)) - 1
    y = np.clip(y, -most - 1, most)
    _write(state, of, y, live)


_OPERATIONS: dict[str, Callable[[np.ndarray, np.ndarray | int], np.ndarray]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "max": np.maximum,
    "min": np.minimum,
    "first": lambda a, b: a,
    "exp2": lambda a, b: fixed.exp2(a),
    "log2": lambda a, b: fixed.log2(a),
    "drain": lambda a, b: a,
}


def _reduce(v: np.ndarray, live: np.ndarray, axis: int, reduction: str) -> np.ndarray:
    if reduction == "sum":
        return np.where(live, v, 0).sum(axis, keepdims=True)
    return np.where(live, v, np.iinfo(np.int64).min + 1).max(axis, keepdims=True)


def _operand(state: State, of: Vector, name: str, lanes: int) -> np.ndarray:
    """[n0, n1, n2, lane] int64"""
    counts, strides = (of.n0, of.n1, of.n2), tuple(getattr(of, f"{name}{loop}") for loop in range(3))
    start = _grid(counts, getattr(of, name), strides)
    kind, is_one = getattr(of, f"{name}_type"), getattr(of, f"{name}_one")
    if name == "a" and of.a_from == "C":
        bank = state.c[of.a_bank]
        if kind == "i16":
            bank = np.ascontiguousarray(bank).view(np.int16).reshape(-1, state.machine.width)
        found = bank[start].astype(np.int64)
        return np.broadcast_to(found[..., :1], found.shape) if is_one else found
    lane = np.zeros(lanes, np.int64) if is_one else np.arange(lanes)
    if kind == "i4":
        words = state.x[(start[..., None] + lane // 2) % len(state.x)]
        found = (words >> (4 * (lane % 2)).astype(np.uint8)).astype(np.int64) & 15
        return found - ((found & 8) << 1)
    size = BITS[kind] // 8
    at = start[..., None, None] + (lane * size)[:, None] + np.arange(size)
    words = np.ascontiguousarray(state.x[at % len(state.x)])
    return words.view(f"<i{size}")[..., 0].astype(np.int64)


def _write(state: State, of: Vector, y: np.ndarray, live: np.ndarray) -> None:
    """Write [n0, n1, n2 or 1, lane or 1], in the order of the loops, where it is live."""
    counts = y.shape[:3]
    if of.turned:
        # [n0, n1, lane, n2]
        start = _grid((*counts[:2], y.shape[3], counts[2]), of.y, (of.y0, of.y1, of.y2, 1))
        y, live = y.swapaxes(2, 3), live.swapaxes(2, 3)
        state.x[start[live]] = (y & 255).astype(np.uint8)[live]
        return
    start = _grid(counts, of.y, (of.y0, of.y1, of.y2))[..., None]
    if of.y_type == "i4":
        odd = y.shape[-1] % 2
        y, live = (np.concatenate([part, np.zeros_like(part[..., :odd])], -1) for part in (y, live))
        y = np.where(live, y, 0) & 15
        y, live = y[..., 0::2] | y[..., 1::2] << 4, live[..., 0::2]
        size = 1
    else:
        size = BITS[of.y_type] // 8
    at = (start + np.arange(y.shape[-1]) * size)[..., None] + np.arange(size)
    # One assignment, in which what is written twice is what was written last.
    state.x[at[live]] = (y[..., None] >> (8 * np.arange(size)) & 255).astype(np.uint8)[live]


_EXECUTE: dict[str, Callable[[State, Instruction], None]] = {
    "dma": _transfer,
    "move": _move,
    "nn": _gemm,
    "vsa": _convolve,
    "vec": _vector,
}  # type: ignore[assignment]
