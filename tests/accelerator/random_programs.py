"""Random legal programs for a machine, whose instructions run beside each other as far as they may."""

from dataclasses import replace

import numpy as np

from derivable.accelerator.machine.hazards import check, regions
from derivable.accelerator.machine.instructions import (
    BITS,
    NUM_UNITS,
    OPERATIONS,
    TYPES,
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
)
from derivable.accelerator.machine.machine import State, execute
from derivable.core.diagnostics import DerivableError

SMALL = Machine(4, 4, 2, lanes=8, line=32, a=512, b=512, k=64, c=512, p=16, x=16384, program=512)


class Composer:
    """Draws instructions, keeps those that are valid alone, and gives each the needs that order its conflicts."""

    def __init__(self, machine: Machine, seed: int):
        self.machine, self.rng = machine, np.random.default_rng(seed)
        self.far = self.rng.integers(0, 256, 4 * machine.x, dtype=np.uint8)
        # The last part of X is zero at first, and offsets in K are read from there only.
        self.far[machine.x - 4 * machine.line : machine.x] = 0
        self.state = State(machine, self.far.copy())
        self.done: list[list[list]] = [[] for _ in range(NUM_UNITS)]
        self.listed: list[Instruction] = []

    def pick(self, low: int, high: int) -> int:
        return int(self.rng.integers(low, high + 1))

    def choose(self, *of):
        return of[self.pick(0, len(of) - 1)]

    def add(self, instruction: Instruction) -> bool:
        """Whether it is valid, and was added."""
        try:
            check(self.machine, Program([instruction, End()]), len(self.far))
            execute(self.state, instruction)
        except DerivableError:
            return False
        found = list(regions(self.machine, instruction))
        needs = [0] * NUM_UNITS
        for unit, earlier in enumerate(self.done):
            for number, before in enumerate(earlier, 1):
                if any(one.meets(other) for one in found for other in before):
                    needs[unit] = number
        unit = UNITS.index(instruction.unit)
        needs[unit] = 0  # a unit does one after the other anyway
        self.done[unit].append(found)
        self.listed.append(replace(instruction, needs=tuple(needs)))
        return True

    def must(self, instruction: Instruction) -> None:
        assert self.add(instruction), instruction

    def program(self) -> Program:
        return Program([*self.listed, End()])

    def start(self) -> None:
        """Load all of X, and something into each memory."""
        m = self.machine
        self.must(Transfer(operation="load", x=0, far=0, lines=m.x // m.line))
        last = m.x - 4 * m.line
        self.must(Move(operation="K", banks=m.sub_arrays, n3=min(m.k, 8), x=last, to3=1))
        for name, size in (("A", m.width), ("B", m.height)):
            words = min(getattr(m, name.lower()), 8 * m.height, m.x // size - 2)
            self.must(
                Move(operation=name, bank_loop=2, n2=m.sub_arrays, n3=words, x=7, x2=1, x3=size, to3=1, valid=size)
            )
        self.must(Move(operation="P", n3=min(m.p, 4), x=m.width + 5, x3=8 * m.width, to3=1))

    def end(self) -> None:
        """Store all of X, which is what can be seen."""
        m = self.machine
        self.must(Transfer(operation="store", x=0, far=3 * m.x, lines=m.x // m.line))

    # Instructions of each unit

    def dma(self) -> Instruction:
        m, lines = self.machine, self.pick(1, 150)
        far = self.pick(0, len(self.far) // m.line - lines) * m.line
        # Nothing is loaded over the zeros for K.
        x = self.pick(0, m.x - 4 * m.line - lines * m.line)
        return Transfer(
            operation=self.choose("load", "store"), x=x, far=far if far >= 2 * m.x else far + m.x, lines=lines
        )

    def move(self) -> Instruction:
        m, operation = self.machine, self.choose("A", "B", "K", "P")
        size = {"A": m.width, "B": m.height, "K": 4, "P": 8 * m.width}[operation]
        # Gemm reads the first offsets of K.
        low = 8 if operation == "K" else 0
        strides = {f"x{loop}": self.choose(0, size, 1, self.pick(-20, 20)) for loop in range(4)}
        steps = {f"to{loop}": self.choose(0, 1, self.pick(-3, 8)) for loop in range(4)}
        counts = {f"n{loop}": self.pick(1, 4) for loop in range(4)}
        spread = self.pick(1, min(m.sub_arrays, m.line // size)) if operation != "P" else 1
        return Move(
            operation=operation,
            first=self.pick(0, m.sub_arrays - 1),
            banks=self.pick(1, m.sub_arrays),
            spread=spread,
            bank_loop=self.choose(4, 4, self.pick(0, 3)),
            x=self.pick(0, m.x - 1),
            to=self.pick(low, getattr(m, operation.lower()) - 1),
            valid=self.choose(size * spread, self.pick(0, size * spread)) if operation in "AB" else 0,
            **counts,
            **strides,
            **steps,
        )

    def nn(self) -> Instruction:
        m = self.machine
        rows = {f"n{loop}": self.pick(1, 4) for loop in range(3)} | {f"b{loop}": self.pick(-2, 9) for loop in range(3)}
        tiles, columns = self.pick(1, 3), self.pick(1, 3)
        return Gemm(
            arrays=self.pick(1, m.sub_arrays),
            a=self.pick(0, m.a - 1),
            b=self.pick(20, 40),
            k=self.pick(0, 4),
            c=self.pick(0, m.c - 1),
            tiles=tiles,
            columns=columns,
            accumulate=self.pick(0, 1),
            nibbles=self.pick(0, 1),
            **rows,
        )

    def vsa(self) -> Instruction:
        m, first, length = (
            self.machine,
            self.pick(0, self.machine.sub_arrays - 1),
            self.pick(1, 3 * self.machine.height),
        )
        return Convolve(
            first=first,
            arrays=self.pick(1, m.sub_arrays - first),
            a=self.pick(0, m.a - 1),
            b=self.pick(0, m.a - 1),
            c=self.pick(0, m.c - 1),
            groups=self.pick(1, 4),
            length=length,
            a0=self.choose(0, length, self.pick(-5, 30)),
            b0=self.choose(0, length, self.pick(-5, 30)),
            reverse=self.pick(0, 1),
            split=self.pick(0, 1),
            accumulate=self.choose(0, 0, 1),
        )

    def vec(self) -> Instruction:
        m, operation = self.machine, self.choose(*OPERATIONS["vec"])
        from_c = operation == "drain" or self.pick(0, 3) == 0
        lanes = m.width if from_c else m.lanes
        a_type = self.choose("i16", "i32") if from_c else self.choose(*TYPES)
        if operation in ("exp2", "log2"):
            a_type = "i32"
        b_type, y_type = self.choose(*TYPES), self.choose(*TYPES)

        def strides(name: str, kind: str) -> dict[str, int]:
            size = lanes * BITS[kind] // 8
            return {f"{name}{loop}": self.choose(0, size, size, -size, self.pick(-40, 40)) for loop in range(3)}

        place = strides("a", a_type) | {"a": self.pick(0, m.x - 1)}
        if from_c:
            place = {f"a{loop}": self.pick(-2, 6) for loop in range(3)} | {"a": self.pick(0, m.c - 1)}
        b = self.choose(self.pick(-100, 100), self.pick(-(2**31), 2**31 - 1))
        b_from = self.choose("X", "value")
        low, high = sorted((self.pick(-200, 200), self.pick(-200, 200)))
        is_turned = self.pick(0, 4) == 0
        counts = {f"n{loop}": self.pick(1, 5) for loop in range(3)}
        if is_turned:
            y_type, counts["n2"] = "i8", self.pick(1, m.lanes)
        return Vector(
            operation=operation,
            **counts,
            a_from="C" if from_c else "X",
            a_bank=self.pick(0, m.sub_arrays - 1),
            a_type=a_type,
            a_one=self.choose(0, 0, 0, 1),
            b_from=b_from,
            b_type=b_type,
            b_one=self.choose(0, 0, 1),
            b=self.pick(0, m.x - 1) if b_from == "X" else b,
            y_type=y_type,
            y=self.pick(0, m.x - 4 * m.line),
            p=self.pick(0, m.p - 1),
            multiplier=self.choose(1, 1, -1, 3, self.pick(-(2**15), 2**15 - 1)),
            shift=self.choose(0, 0, 1, 8, 16, self.pick(0, 40)),
            is_clamped=self.choose(0, 0, 1),
            low=low,
            high=high,
            reduction=self.choose("sum", "max"),
            along=self.choose(0, 0, 1) if not is_turned else 0,
            across=self.choose(0, 0, 1) if not is_turned else 0,
            tail=self.choose(0, self.pick(1, lanes)),
            tail_inner=self.pick(0, 1) if not is_turned else 0,
            turned=int(is_turned),
            **place,
            **strides("b", b_type),
            **strides("y", y_type),
        )


def random_program(machine: Machine, seed: int, count: int) -> tuple[Program, np.ndarray]:
    """A program with `count` random instructions, and the off-chip memory that it starts with."""
    composer = Composer(machine, seed)
    composer.start()
    while len(composer.listed) < count:
        unit = composer.choose("dma", "move", "nn", "vsa", "vec", "vec", "vec")
        composer.add(getattr(composer, unit)())
    composer.end()
    return composer.program(), composer.far
