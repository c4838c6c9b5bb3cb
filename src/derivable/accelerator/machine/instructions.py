"""The instruction set of generated accelerators: fields of 512 bits, and a printed form.

A machine has an off-chip memory, a cache X, memories beside its sub-arrays, and five units:

    dma   loads lines of off-chip memory into X, and stores them from X
    move  takes words from X to the memories of the sub-arrays, A, B, K or P, in four nested loops
    nn    multiplies matrices on sub-arrays 0, 1, ...: words of A stand still, words of B stream, sums go to C
    vsa   convolves circularly, a pair of vectors in each column of some sub-arrays: both from A, sums to C
    vec   does arithmetic on lanes: from C and X to X

Each unit has a queue, and does its instructions in order, one at a time. An instruction waits until, of each unit u,
`needs[u]` instructions since the program's start are done; so units run beside each other, and a program says what has
to wait. A `repeat` waits until all units are done, and goes back to the beginning of its section: what comes after the
`repeat` before it. Needs count from the beginning of a section, each time. Printed form, an instruction a line, fields
that are zero or as usual left out:

    dma.load lines=4 x=64 far=256
    end.repeat
    move.B needs=dma:1 first=0 banks=2 n0=1 n1=1 n2=1 n3=4 x=64 x3=4 to=0 to3=1 valid=4 ; conv2d_1
    end.repeat count=10 to=2
    end

`check` is the validator of programs. What instructions do is in `machine.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Annotated, ClassVar, TypeAlias, get_type_hints

import numpy as np

from derivable.core.arguments import integer
from derivable.core.diagnostics import DomainError

WORDS = 16  # of 32 bits, of an instruction
UNITS = ("dma", "move", "nn", "vsa", "vec", "end")
NUM_UNITS = 5  # that have a queue
QUEUE = 8
TYPES = ("i4", "i8", "i16", "i32")
BITS = {"i4": 4, "i8": 8, "i16": 16, "i32": 32}

X_BITS, WORD_BITS, FAR_BITS, COUNT_BITS = 22, 20, 32, 16
_UNIT = (0, 3)  # first bit and number of bits of what every instruction has
_OPERATION = (3, 4)
_NEEDS = (16, 16)  # of unit 0; the others follow
MOST_NEEDED = (1 << _NEEDS[1]) - 1  # instructions of a unit
_FIRST = 96  # bit of the fields of an instruction


@dataclass(frozen=True)
class Machine:
    """The parameters of a generated accelerator.

    height, width  of a sub-array: rows and columns, powers of two from 4 to 64
    sub_arrays     from 1 to 16
    lanes          of the unit vec: a multiple of the width, at most 128
    line           bytes that X and off-chip memory hand over in a cycle: a power of two, at least the height, the
                   width, and four times the lanes
    a, b, k, c     words of each bank of these memories; there is a bank for each sub-array. A word of A is `width`
                   bytes, of B `height` bytes, of K 24 bits, of C `width` int32
    p              words of P: `width` int32 that are added and `width` int32 that multiply
    x              bytes of X, a multiple of the line
    program        instructions that fit
    """

    height: int = 8
    width: int = 8
    sub_arrays: int = 2
    lanes: int = 8
    line: int = 32
    a: int = 2048
    b: int = 2048
    k: int = 256
    c: int = 2048
    p: int = 64
    x: int = 65536
    program: int = 4096

    def __post_init__(self) -> None:
        for name, low, high in (
            ("height", 4, 64),
            ("width", 4, 64),
            ("sub_arrays", 1, 16),
            ("lanes", 4, 128),
            ("line", 16, 512),
            *((name, 1, 1 << WORD_BITS) for name in "abkc"),
            ("p", 1, 1024),
            ("x", 16, 1 << X_BITS),
            ("program", 1, 1 << 20),
        ):
            integer(getattr(self, name), f"{name} of a machine", low, high)
        for name in ("height", "width", "line"):
            if getattr(self, name) & (getattr(self, name) - 1):
                raise DomainError(f"{name} of a machine is {getattr(self, name)}, expected a power of two")
        if self.lanes % self.width:
            raise DomainError(f"a machine has {self.lanes} lanes, expected a multiple of its width {self.width}")
        if self.line < max(self.height, self.width, 4 * self.lanes):
            raise DomainError(
                f"a line has {self.line} bytes, expected at least {max(self.height, self.width, 4 * self.lanes)}",
                hint="four bytes for each lane, and the height and the width",
            )
        if self.x % self.line:
            raise DomainError(f"X has {self.x} bytes, expected a multiple of the line of {self.line} bytes")

    def __str__(self) -> str:
        return f"{self.height} x {self.width} x {self.sub_arrays}, {self.lanes} lanes"


@dataclass(frozen=True)
class Field:
    """A field of an instruction: some bits, which are a number or the place of a name in `names`."""

    bits: int
    is_signed: bool = False
    names: tuple[str, ...] = ()
    least: int = 0
    name: str = ""

    @property
    def range(self) -> tuple[int, int]:
        low = -(1 << (self.bits - 1)) if self.is_signed else self.least
        return low, (1 << (self.bits - self.is_signed)) - 1


# The types of fields; the bits of an instruction are in the order of its fields.
Flag: TypeAlias = Annotated[int, Field(1)]
Bank: TypeAlias = Annotated[int, Field(4)]
Banks: TypeAlias = Annotated[int, Field(5, least=1)]
Count: TypeAlias = Annotated[int, Field(COUNT_BITS, least=1)]
Word: TypeAlias = Annotated[int, Field(WORD_BITS)]
WordStride: TypeAlias = Annotated[int, Field(WORD_BITS, is_signed=True)]
Byte: TypeAlias = Annotated[int, Field(X_BITS)]  # of X
ByteStride: TypeAlias = Annotated[int, Field(X_BITS, is_signed=True)]
Short: TypeAlias = Annotated[int, Field(16, is_signed=True)]
Type: TypeAlias = Annotated[str, Field(2, names=TYPES)]


@dataclass(frozen=True, kw_only=True)
class Instruction:
    """What all instructions have.

    operation  one of the unit's
    needs      for each unit, how many of its instructions in the section are done before this one begins
    node       the operator that it serves; not encoded
    of_pass    the pass of the model that it belongs to, from 0 on; not encoded
    """

    unit: ClassVar[str] = ""
    operations: ClassVar[tuple[str, ...]] = ()
    operation: str
    needs: tuple[int, ...] = (0,) * NUM_UNITS
    node: str = field(default="", compare=False)
    of_pass: int = field(default=0, compare=False)

    def __str__(self) -> str:
        return text(self)


@dataclass(frozen=True, kw_only=True)
class Transfer(Instruction):
    """`dma.load`: `lines` lines from off-chip memory at byte `far` to X at byte `x`; `dma.store`: back.

    far is a multiple of the line, x any byte. Printed form: `dma.store lines=4 x=64 far=256`
    """

    unit: ClassVar[str] = "dma"
    operations: ClassVar[tuple[str, ...]] = ("load", "store")
    x: Byte
    far: Annotated[int, Field(FAR_BITS)]
    lines: Annotated[int, Field(20, least=1)]


@dataclass(frozen=True, kw_only=True)
class Move(Instruction):
    """Words from X to a memory: `for i0 < n0: for i1 < n1: for i2 < n2: for i3 < n3:` words from byte
    `x + i0 * x0 + ... + i3 * x3` of X on, to word `to + i0 * to0 + ... + i3 * to3` of `banks` banks, from `first` on.

    Of a line, `spread` words are taken, one after the other, and dealt out to the banks: bank first + j has word
    j mod spread. So one word goes to all banks, or each bank has its own. Where `bank_loop` is 0 to 3, each step of
    that loop goes `spread` banks further; 4 is none. A word of A is `width` bytes, of B `height`, of K 4 (the highest
    is not kept), of P 8 * width, and not dealt out: those that are added, int32, then those that multiply. Only the
    first `valid` bytes of a line are taken for A and B, the others become 0.
    Printed form: `move.A banks=2 spread=2 n3=8 x=64 x3=16 to3=1 valid=16`
    """

    unit: ClassVar[str] = "move"
    operations: ClassVar[tuple[str, ...]] = ("A", "B", "K", "P")
    first: Bank = 0
    banks: Banks = 1
    spread: Banks = 1
    bank_loop: Annotated[int, Field(3)] = 4
    n0: Count = 1
    n1: Count = 1
    n2: Count = 1
    n3: Count = 1
    x: Byte = 0
    x0: ByteStride = 0
    x1: ByteStride = 0
    x2: ByteStride = 0
    x3: ByteStride = 0
    to: Word = 0
    to0: WordStride = 0
    to1: WordStride = 0
    to2: WordStride = 0
    to3: WordStride = 0
    valid: Annotated[int, Field(10)] = 0


@dataclass(frozen=True, kw_only=True)
class Gemm(Instruction):
    """A product of matrices on sub-arrays 0 to arrays - 1, each with its own slice of the reduction, n being its bank:

        for column < columns: for tile < tiles: for i0 < n0: for i1 < n1: for i2 < n2:
            C[0, c + column * M + (i0 * n1 + i1) * n2 + i2] (+)= sum over n < arrays and h < height of
                B[n, b + K[n, k + tile] + i0 * b0 + i1 * b1 + i2 * b2][h] * A[n, a + (column * tiles + tile) * H + h]

    with M = n0 * n1 * n2 rows and H the height. The first tile overwrites unless `accumulate`, the others add. With
    `nibbles`, a byte of A and of B has two elements of the reduction, int4. `reach` does nothing: it says that all that
    is read of B lies within as many words from `b` on, 0 for all of B, so that others may be written meanwhile.
    Printed form: `nn.gemm arrays=2 k=4 tiles=9 columns=2 n1=8 n2=8 b1=10 b2=1`
    """

    unit: ClassVar[str] = "nn"
    operations: ClassVar[tuple[str, ...]] = ("gemm",)
    operation: str = "gemm"
    arrays: Banks = 1
    a: Word = 0
    b: Word = 0
    k: Word = 0
    c: Word = 0
    tiles: Count = 1
    columns: Count = 1
    n0: Count = 1
    n1: Count = 1
    n2: Count = 1
    b0: WordStride = 0
    b1: WordStride = 0
    b2: WordStride = 0
    accumulate: Flag = 0
    nibbles: Flag = 0
    reach: Word = 0


@dataclass(frozen=True, kw_only=True)
class Convolve(Instruction):
    """Circular convolutions of d = `length` entries on sub-arrays first to first + arrays - 1, n being the bank:

        for group < groups: for i < d:
            C[n, c + group * d + i] (+)= sum over j < d of
                A[n, a + group * a0 + j] * A[n, b + group * b0 + (i - j) mod d]      in each column

    `reverse` has (i + j) mod d: circular correlation, which unbinds. `a` stands still, `b` streams. A result overwrites
    unless `accumulate`. With `split`, a byte has an entry of two vectors, int4, and an int32 of C two sums, int16, the
    low one of the low nibbles; d is at most 511. Printed form: `vsa.convolve first=1 b=64 groups=2 length=32 a0=32`
    """

    unit: ClassVar[str] = "vsa"
    operations: ClassVar[tuple[str, ...]] = ("convolve",)
    operation: str = "convolve"
    first: Bank = 0
    arrays: Banks = 1
    a: Word = 0
    b: Word = 0
    c: Word = 0
    groups: Count = 1
    length: Count
    a0: WordStride = 0
    b0: WordStride = 0
    reverse: Flag = 0
    split: Flag = 0
    accumulate: Flag = 0


@dataclass(frozen=True, kw_only=True)
class Vector(Instruction):
    """Arithmetic on lanes: `for i0 < n0: for i1 < n1: for i2 < n2:` a step of G lanes, which is the width where `a`
    is read from C, else all lanes.

    a     G consecutive elements of X from byte `a + i0 * a0 + i1 * a1 + i2 * a2` on, of type `a_type`, int4 two in a
          byte, the low nibble first; `a_one` is one element for all lanes. Or word `a + ...` of bank `a_bank` of C: as
          i32 its elements; as i16 (the sums of `split`) addresses count halves of words, each of them `width` elements
    b     the same from X, or the number `b` for all lanes and steps
    v     `a OP b`; for first, a; for exp2, 2^(a / 65536) * 65536 and for log2, log2(a / 65536) * 65536, as
          `fixed.py` has them; for drain, a + added[lane] of word `p + i0` of P
    along    v is summed, or its maximum taken, over the inner loop; there is a result at its end, and y2 is not used
    across   v is summed, or its maximum taken, over the lanes; the result is one element
    y     round_shift(v * multiplier, shift), where round_shift(v, s) is v if s = 0 and else (v + 2^(s-1)) >> s; for
          drain the multiplier is that of P. Then clamped to `low` and `high` if `is_clamped`. Then kept within the
          type, i4 -8 to 7, i8 -128 to 127, i16 and i32 likewise, and written to X at
          `y + i0 * y0 + i1 * y1 + i2 * y2`

    With `turned`, results are int8, and a pass of the inner loop is written the other way round: that of lane j in step
    i2 to `y + i0 * y0 + i1 * y1 + j * y2 + i2`. Such a pass has at most as many steps as there are lanes.

    In the last step of the middle loop (of the inner loop if `tail_inner`) only the first `tail` lanes take part; 0 is
    all. An odd number of int4 is written with a zero after it. What is written is not read by the same instruction,
    unless y is exactly where a or b is. v and v * multiplier are below 2^63, what goes into exp2 and log2 is int32.
    Printed form: `vec.drain n1=2 n2=64 a_from=C a2=1 y_type=i8 y1=8 y2=16 shift=20`
    """

    unit: ClassVar[str] = "vec"
    operations: ClassVar[tuple[str, ...]] = ("add", "sub", "mul", "max", "min", "first", "exp2", "log2", "drain")
    n0: Count = 1
    n1: Count = 1
    n2: Count = 1
    a_from: Annotated[str, Field(1, names=("X", "C"))] = "X"
    a_bank: Bank = 0
    a_type: Type = "i8"
    a_one: Flag = 0
    a: Byte = 0
    a0: ByteStride = 0
    a1: ByteStride = 0
    a2: ByteStride = 0
    b_from: Annotated[str, Field(1, names=("value", "X"))] = "value"
    b_type: Type = "i8"
    b_one: Flag = 0
    b: Annotated[int, Field(32, is_signed=True)] = 0
    b0: ByteStride = 0
    b1: ByteStride = 0
    b2: ByteStride = 0
    y_type: Type = "i8"
    y: Byte = 0
    y0: ByteStride = 0
    y1: ByteStride = 0
    y2: ByteStride = 0
    p: Annotated[int, Field(10)] = 0
    multiplier: Short = 1
    shift: Annotated[int, Field(6)] = 0
    is_clamped: Flag = 0
    low: Short = 0
    high: Short = 0
    reduction: Annotated[str, Field(1, names=("sum", "max"))] = "sum"
    along: Flag = 0
    across: Flag = 0
    tail: Annotated[int, Field(8)] = 0
    tail_inner: Flag = 0
    turned: Flag = 0


@dataclass(frozen=True, kw_only=True)
class End(Instruction):
    """Once all units are done, the end of a program; or `repeat`, the end of a section: it is done `count` times, and
    instruction `to` is its first. Printed form: `end`, `end.repeat count=10 to=2`

    nodes  of each time that a section is done: what the operator of an instruction is then; not encoded
    """

    unit: ClassVar[str] = "end"
    operations: ClassVar[tuple[str, ...]] = ("end", "repeat")
    operation: str = "end"
    count: Count = 1
    to: Word = 0
    nodes: tuple[Mapping[str, str], ...] = field(default=(), compare=False)


KINDS: dict[str, type[Instruction]] = {kind.unit: kind for kind in (Transfer, Move, Gemm, Convolve, Vector, End)}
OPERATIONS: dict[str, tuple[str, ...]] = {unit: kind.operations for unit, kind in KINDS.items()}


def _fields(kind: type[Instruction]) -> tuple[Field, ...]:
    """In the order of their bits."""
    hints = get_type_hints(kind, include_extras=True)
    encoded = {item.name: getattr(hints[item.name], "__metadata__", ()) for item in fields(kind)}
    return tuple(replace(of[0], name=name) for name, of in encoded.items() if of)


FIELDS: dict[str, tuple[Field, ...]] = {unit: _fields(kind) for unit, kind in KINDS.items()}
Place: TypeAlias = tuple[int, int]
# What every instruction has.
HEADER: dict[str, Place] = {"UNIT": _UNIT, "OPERATION": _OPERATION} | {
    f"NEED_{unit.upper()}": (_NEEDS[0] + number * _NEEDS[1], _NEEDS[1]) for number, unit in enumerate(UNITS[:NUM_UNITS])
}


def places(unit: str) -> dict[str, Place]:
    """The first bit and the number of bits of each field of a unit's instructions."""
    found, bit = {}, _FIRST
    for item in FIELDS[unit]:
        found[item.name] = (bit, item.bits)
        bit += item.bits
    return found


def check_fields(instruction: Instruction) -> None:
    """Raise DomainError, which names the field and what it may be, unless all fields fit into their bits."""
    unit = instruction.unit
    if instruction.operation not in OPERATIONS[unit]:
        raise DomainError(
            f"{unit} has no operation {instruction.operation!r}", hint=f"it has {', '.join(OPERATIONS[unit])}"
        )
    if len(instruction.needs) != NUM_UNITS:
        raise DomainError(f"{len(instruction.needs)} needs, expected one for each of {NUM_UNITS} units")
    for name, need in zip(UNITS, instruction.needs):
        if not 0 <= need <= MOST_NEEDED:
            raise DomainError(f"it needs {need} instructions of {name}, expected 0 to {MOST_NEEDED}")
    for item in FIELDS[unit]:
        value = getattr(instruction, item.name)
        if item.names:
            if value not in item.names:
                raise DomainError(f"{item.name} is {value!r}, expected one of {', '.join(item.names)}")
            continue
        low, high = item.range
        if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or not low <= value <= high:
            raise DomainError(f"{item.name} is {value!r}, expected {low} to {high}")


def encode(instruction: Instruction) -> np.ndarray:
    """The 16 words of an instruction, uint32. Raises DomainError where a field does not fit."""
    check_fields(instruction)
    unit = instruction.unit
    bits = UNITS.index(unit) << _UNIT[0] | OPERATIONS[unit].index(instruction.operation) << _OPERATION[0]
    for number, need in enumerate(instruction.needs):
        bits |= int(need) << (_NEEDS[0] + number * _NEEDS[1])
    for item, (first, width) in zip(FIELDS[unit], places(unit).values()):
        value = getattr(instruction, item.name)
        value = item.names.index(value) if item.names else int(value)
        bits |= (value & ((1 << width) - 1)) << first
    return np.frombuffer(bits.to_bytes(4 * WORDS, "little"), "<u4").astype(np.uint32)


@dataclass(frozen=True)
class Program:
    """Instructions as they are in memory; the last is `End`."""

    instructions: tuple[Instruction, ...]

    def __init__(self, instructions: Iterable[Instruction]):
        object.__setattr__(self, "instructions", tuple(instructions))

    def __iter__(self):
        return iter(self.instructions)

    def __len__(self) -> int:
        return len(self.instructions)

    def __str__(self) -> str:
        return "\n".join(map(text, self.instructions))

    @cached_property
    def sections(self) -> tuple[tuple[range, End], ...]:
        """The instructions of each section, without the `End` behind it, and that."""
        sections, start = [], 0
        for number, instruction in enumerate(self.instructions):
            if isinstance(instruction, End):
                sections.append((range(start, number), instruction))
                start = number + 1
        return tuple(sections)

    @cached_property
    def executed(self) -> tuple[Instruction, ...]:
        """What units do, in the order in which it is fetched: sections as often as they are repeated, each time of the
        operators of that time; and the end."""
        return (*self._executed(), self.instructions[-1])

    def _executed(self) -> Iterator[Instruction]:
        for numbers, end in self.sections:
            section = [self.instructions[number] for number in numbers]
            for time in range(end.count if end.operation == "repeat" else 1):
                nodes = end.nodes[time] if end.nodes else {}
                for of in section:
                    yield replace(of, node=nodes[of.node]) if nodes.get(of.node, of.node) != of.node else of

    @cached_property
    def words(self) -> np.ndarray:
        """[instruction, 16] uint32, as they are in the memory of programs."""
        return np.stack([encode(instruction) for instruction in self.instructions])


# Printed form


def text(instruction: Instruction) -> str:
    """The line of an instruction."""
    unit, usual = instruction.unit, {item.name: item.default for item in fields(instruction)}
    words = [unit if instruction.operation == "end" else f"{unit}.{instruction.operation}"]
    needs = [f"{name}:{need}" for name, need in zip(UNITS, instruction.needs) if need]
    words += [f"needs={','.join(needs)}"] if needs else []
    for item in FIELDS[unit]:
        value = getattr(instruction, item.name)
        if value != usual[item.name]:
            words.append(f"{item.name}={value}")
    place = f"{instruction.node} of pass {instruction.of_pass}" if instruction.of_pass else instruction.node
    return " ".join(words) + (f" ; {place}" if place else "")
