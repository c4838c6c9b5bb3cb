"""Nodes of the abstract parallel machine (APM). Each node's docstring shows its printed form.

A block is straight-line code in static single assignment: every register is allocated with a type and a size, then
assigned once, then read. Sizes are expressions over what is known when the block gets there: the rows of a relation,
the total of counts, a number that an instruction has found. A register that is static depends on nothing that changes
while a stratum runs, so it is computed in the first round and kept.

A relation is columns of equal length and a column of tags, in three parts: `stable`, `recent` (new or improved in the
last round) and `delta` (found in this round). Rows of `stable` and `recent` are sorted, distinct and disjoint.
Operations on tags are named; the semiring of the run says what they are.

Source: Biberstein et al. 2026, table 1. Deviations: `unique` and `scan` leave the rows that they find to `copy` and to
sizes, as there; `compact`, `find`, `choose` and `append` are instructions of their own, because selections, negation
and improved tags need them; what is no array program (an aggregate, a choice, a foreign predicate) is a `call`, which
allocates what it gives, because only it knows how many rows there are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from derivable.datalog.aggregates.nodes import AggregateRule
from derivable.datalog.ram.nodes import Coin, Generate
from derivable.datalog.rules.nodes import Relation
from derivable.datalog.scalars.nodes import Expr
from derivable.datalog.values.values import ValueType

Part = Literal["stable", "recent", "delta"]


# Sizes


@dataclass(frozen=True)
class Rows:
    """`rows(recent path)`: of a part of a relation when the block begins"""

    relation: str
    part: Part


@dataclass(frozen=True)
class Total:
    """`total(c3)`: the sum of counts, or how many entries of a mask hold"""

    register: str


@dataclass(frozen=True)
class Found:
    """`found(n4)`: the number in a register of type `count`"""

    register: str


@dataclass(frozen=True)
class Sum:
    """`rows(stable path) + rows(recent path)`"""

    parts: tuple[Size, ...]


@dataclass(frozen=True)
class Exactly:
    """`1`"""

    number: int


Size = Rows | Total | Found | Sum | Exactly


# Types that are no columns of values.
@dataclass(frozen=True)
class MachineType:
    """`index` (numbers of rows, counts, offsets), `mask`, `tag`, `hash` (an index of a table), `count` (one number)"""

    name: str

    def __str__(self) -> str:
        return self.name


INDEX, MASK, TAG, HASH, COUNT = (MachineType(name) for name in ("index", "mask", "tag", "hash", "count"))
Type = ValueType | MachineType


@dataclass(frozen=True)
class Register:
    """`x1`, with its type and size: `alloc x1: i32[rows(edge)]`"""

    name: str
    type: Type
    size: Size
    is_static: bool = False


@dataclass(frozen=True)
class Table:
    """`[x1, y2; t3]`: columns, and the tags of the rows"""

    columns: tuple[Register, ...]
    tags: Register

    @property
    def registers(self) -> tuple[Register, ...]:
        return *self.columns, self.tags

    @property
    def size(self) -> Size:
        return self.tags.size


# Instructions


@dataclass(frozen=True)
class Alloc:
    """`alloc static h4: hash[rows(stable edge)]`: memory for registers, which are assigned later"""

    registers: tuple[Register, ...]


@dataclass(frozen=True)
class Load:
    """`[x1, y2; t3] <- load recent path`"""

    into: Table
    relation: str
    part: Part


@dataclass(frozen=True)
class Store:
    """`store delta path [x1, y2; t3]`: `delta` gets these rows too, the other parts get these rows instead of theirs"""

    relation: str
    part: Part
    table: Table


@dataclass(frozen=True)
class Fill:
    """`t3 <- one`: the tag of what is certain"""

    into: Register


@dataclass(frozen=True)
class Eval:
    """`x5 <- eval (x + 1) {x: x1}`, `x5, m6 <- eval (x / y) {x: x1, y: y2}`: an expression for each row; `m6` says
    where it has a value, and of a condition `m6 <- eval (x < 3) {x: x1}` says where it holds"""

    into: Register | None
    holds: Register | None
    expression: Expr
    sources: Mapping[str, Register]


@dataclass(frozen=True)
class Mask:
    """`m6 <- absent i5`, `m6 <- nonzero t3`, `m6 <- changed(t3, t4)`, `m6 <- not m5`, `m6 <- equal(x1, y2)`: absent row
    numbers are -1; changed tags are those that the semiring does not call saturated"""

    into: Register
    test: Literal["absent", "nonzero", "changed", "not", "and", "equal"]
    sources: tuple[Register, ...]


@dataclass(frozen=True)
class TagOperation:
    """`t5 <- times(t3, t4)`, `t5 <- plus(t3, t4)`, `t5 <- negate t3`"""

    into: Register
    operation: Literal["times", "plus", "negate"]
    sources: tuple[Register, ...]


@dataclass(frozen=True)
class Gather:
    """`[x5, y6] <- gather i4 [x1, y2]`: the rows of these numbers"""

    into: tuple[Register, ...]
    indices: Register
    sources: tuple[Register, ...]


@dataclass(frozen=True)
class GatherTags:
    """`t9 <- gather times [i4, j5] [t3, t6]`: the products of the tags of matching rows"""

    into: Register
    indices: tuple[Register, ...]
    sources: tuple[Register, ...]


@dataclass(frozen=True)
class Choose:
    """`t9 <- choose i5 t6 else t3`, `m9 <- choose i5 m6 else m3`: the entry of that number; where it is -1, the own"""

    into: Register
    indices: Register
    source: Register
    otherwise: Register


@dataclass(frozen=True)
class Build:
    """`h4 <- build [x1]`: a hash index of the rows of a table by some columns"""

    into: Register
    columns: tuple[Register, ...]


@dataclass(frozen=True)
class Count:
    """`c5 <- count [y3] h4 [x1]`: how many rows of the table with an index agree with each probe"""

    into: Register
    probes: tuple[Register, ...]
    index: Register
    columns: tuple[Register, ...]


@dataclass(frozen=True)
class Scan:
    """`o6 <- scan c5`: exclusive prefix sums"""

    into: Register
    source: Register


@dataclass(frozen=True)
class Join:
    """`i7, j8 <- join [y3] h4 [x1] c5 o6`: for each probe the rows that agree, at the offset of the probe"""

    left: Register
    right: Register
    probes: tuple[Register, ...]
    index: Register
    columns: tuple[Register, ...]
    counts: Register
    offsets: Register


@dataclass(frozen=True)
class Find:
    """`i5 <- find [x3, y4] h4 [x1, y2]`: the row that agrees, of a table with distinct rows; -1 without one"""

    into: Register
    probes: tuple[Register, ...]
    index: Register
    columns: tuple[Register, ...]


@dataclass(frozen=True)
class Compact:
    """`i8 <- compact m6 o7`: the numbers of the rows where a mask holds, which has these prefix sums"""

    into: Register
    mask: Register
    offsets: Register


@dataclass(frozen=True)
class Append:
    """`x9 <- append [x1, x5]`: one column after the other"""

    into: Register
    sources: tuple[Register, ...]


@dataclass(frozen=True)
class Copy:
    """`x9 <- copy x5`: as much as there is room for"""

    into: Register
    source: Register


@dataclass(frozen=True)
class Sort:
    """`[x5, y6; t7] <- sort [x1, y2; t3]`: rows in ascending order, equal ones in the order in which they come"""

    into: Table
    source: Table


@dataclass(frozen=True)
class Unique:
    """`[x5, y6; t7], n8 <- unique plus [x1, y2; t3]`: distinct rows of a sorted table, their tags added up, and how
    many they are; behind them the registers hold nothing"""

    into: Table
    count: Register
    source: Table


@dataclass(frozen=True)
class Merge:
    """`[x5, y6; t7] <- merge [x1, y2; t3] [x4, y5; t6]`: one sorted table of two"""

    into: Table
    left: Table
    right: Table


@dataclass(frozen=True)
class Call:
    """`[k5, n6; t7], n8 <- call <rule or predicate> [k1, x2; t3]`: what is no array program; a call allocates what it
    gives, and says how many rows that is

    what    an aggregate rule, or the RAM node of a foreign predicate or a coin
    names   of the columns of the source and of the result, for a RAM node
    groups  the table whose rows name the groups of an aggregate
    """

    into: Table
    count: Register
    what: AggregateRule | Generate | Coin
    source: Table
    groups: Table | None = None
    names: tuple[tuple[str, ...], tuple[str, ...]] = ((), ())


Instruction = (
    Alloc
    | Load
    | Store
    | Fill
    | Eval
    | Mask
    | TagOperation
    | Gather
    | GatherTags
    | Choose
    | Build
    | Count
    | Scan
    | Join
    | Find
    | Compact
    | Append
    | Copy
    | Sort
    | Unique
    | Merge
    | Call
)
Block = tuple[Instruction, ...]


@dataclass(frozen=True)
class Stratum:
    """`stratum 1 (recursive): path` with its blocks: `once`, and `loop` as long as something is recent"""

    relations: tuple[str, ...]
    once: Block
    loop: Block


@dataclass(frozen=True)
class Program:
    """The relations and strata of a program. Its facts stand in `delta` when a stratum begins."""

    relations: Mapping[str, Relation]
    strata: tuple[Stratum, ...]
    outputs: tuple[str, ...] = field(default=())


def results(instruction: Instruction) -> tuple[Register, ...]:
    """The registers that an instruction assigns."""
    match instruction:
        case Alloc() | Store():
            return ()
        case Load(into=table) | Sort(into=table) | Merge(into=table):
            return table.registers
        case Unique(into=table, count=count) | Call(into=table, count=count):
            return *table.registers, count
        case Gather(into=many):
            return many
        case Join(left=left, right=right):
            return left, right
        case Eval(into=into, holds=holds):
            return tuple(register for register in (into, holds) if register is not None)
    return (instruction.into,)


def operands(instruction: Instruction) -> tuple[Register, ...]:
    """The registers that an instruction reads."""
    match instruction:
        case Alloc() | Load() | Fill():
            return ()
        case Store(table=table):
            return table.registers
        case Eval(sources=sources):
            return tuple(sources.values())
        case Mask(sources=many) | TagOperation(sources=many) | Append(sources=many):
            return many
        case Gather(indices=indices, sources=many):
            return indices, *many
        case GatherTags(indices=indices, sources=many):
            return *indices, *many
        case Choose():
            return instruction.indices, instruction.source, instruction.otherwise
        case Build(columns=columns):
            return columns
        case Count() | Find():
            return *instruction.probes, instruction.index, *instruction.columns
        case Join():
            found = *instruction.probes, instruction.index, *instruction.columns
            return *found, instruction.counts, instruction.offsets
        case Compact(mask=mask, offsets=offsets):
            return mask, offsets
        case Scan(source=source) | Copy(source=source):
            return (source,)
        case Sort(source=table) | Unique(source=table):
            return table.registers
        case Merge(left=left, right=right):
            return *left.registers, *right.registers
        case Call(source=table, groups=groups):
            return *table.registers, *(groups.registers if groups else ())
    raise TypeError(f"not an instruction: {instruction!r}")
