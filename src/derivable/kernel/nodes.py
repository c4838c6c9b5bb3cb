"""The loop IR: what a kernel does to arrays, before it is text for any compiler.

A kernel has scalar parameters and flat, contiguous arrays. Its body is a list of statements over registers, which are
typed arguments of `algebra.expr`; all arithmetic is expressions of them. A register holds one scalar, or a *line*: as
many consecutive rows as the kernel has lanes. What loads or computes with lines is a line itself; a scalar beside a
line stands for that scalar in all lanes. Positions in arrays are int64 and are not negative.

Printed form of the sum of each segment:

    kernel segment(start: int64, stop: int64, offsets: int64[], values: float32[], out: float32[])
      for s in start .. stop
        i = offsets[s]
        tail = offsets[s + 1]
        total = 0.0
        while i < tail
          x = values[i]
          total = total + x
          i = i + 1
        out[s] = total
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from functools import cache

from derivable.algebra.expr.nodes import Argument, Expr

Register = Argument


@dataclass(frozen=True)
class Array:
    """A parameter: a flat array. Printed form: `values: float32[]`, or `buffer: float64[][lane]` for an array of lines.

    dtype     the name of a NumPy dtype; loads convert to the type of the register, stores to that of the array
    is_lines  position p is the line of rows p of an array [position, lane]; compiled for [position] it is a scalar
    """

    name: str
    dtype: str
    is_lines: bool = False


@dataclass(frozen=True)
class Assign:
    """`a, b = b, a + b`: all values are computed before any register changes."""

    targets: tuple[Register, ...]
    values: tuple[Expr, ...]


@dataclass(frozen=True)
class Load:
    """`x = values[i]`; the line of an array of lines."""

    target: Register
    array: Array
    index: Expr


@dataclass(frozen=True)
class Store:
    """`out[i] = x`."""

    array: Array
    index: Expr
    value: Expr


@dataclass(frozen=True)
class LoadBit:
    """`b = bit i of words`: a bool; bit 0 of word 0 is the first, as integers are little-endian."""

    target: Register
    array: Array
    index: Expr


@dataclass(frozen=True)
class SetBit:
    """`bit i of words = 1`."""

    array: Array
    index: Expr


@dataclass(frozen=True)
class Hash:
    """`slot, tag = hash (a, b) in size`: a place in a table whose size is a power of two, and 32 bits to compare first.

    words  int64 scalars, at least one
    """

    slot: Register
    tag: Register
    words: tuple[Expr, ...]
    size: Expr


@dataclass(frozen=True)
class LoadLine:
    """`x = values[i ..]`: rows i, i + 1, ...; `x = values[.. i]` backwards: rows i, i - 1, ...

    With a count, `x = values[i ..] count n else 0.0`, only the first n lanes are rows; the others hold `fill`, a
    constant.
    """

    target: Register
    array: Array
    index: Expr
    backwards: bool = False
    count: Expr | None = None
    fill: Expr | None = None


@dataclass(frozen=True)
class StoreLine:
    """`out[i ..] = x`; `out[.. i] = x` backwards; `out[i ..] count n = x` writes the first n lanes only."""

    array: Array
    index: Expr
    value: Expr
    backwards: bool = False
    count: Expr | None = None


@dataclass(frozen=True)
class LoadRows:
    """`x = weights[i by n] count c`: positions i, i + n, ..., a column of a matrix [row, column] with n columns.

    Only the first c lanes, at least one, are rows; the others repeat the last of them.
    """

    target: Register
    array: Array
    index: Expr
    stride: Expr
    count: Expr


@dataclass(frozen=True)
class StoreRows:
    """`out[i by n] count c = x`: the first c lanes go to positions i, i + n, ..."""

    array: Array
    index: Expr
    stride: Expr
    count: Expr
    value: Expr


@dataclass(frozen=True)
class LaneNumbers:
    """`l = lanes`: 0, 1, 2, ..., an int64 line."""

    target: Register


@dataclass(frozen=True)
class Gather:
    """`x = values[p] where m else 0.0`: each lane from a position of its own; those where m does not hold read nothing.

    places, mask  lines, or scalars for all lanes
    fill          a constant, which the lanes hold where m does not hold
    """

    target: Register
    array: Array
    places: Expr
    mask: Expr
    fill: Expr


@dataclass(frozen=True)
class Scatter:
    """`out[p] where m = x`: each lane to a position of its own, all of them different, where m holds.

    adds  `out[p] where m += x`: positions may be equal, also those of other programs
    """

    array: Array
    places: Expr
    mask: Expr
    value: Expr
    adds: bool = False


@dataclass(frozen=True)
class ScanLine:
    """`a, b = scan (a, b) with (l0 * r0, l1 * r0 + r1) from (1.0, 0.0)`: inclusive prefixes within a line.

    targets, sources  one line per component of the element
    left, right       the arguments of the operator, which is associative
    operator          what it gives
    neutral           constants, one per component
    down              from the last lane to the first, `scan down (a, b)`: what lies behind a lane is the left operand
    """

    targets: tuple[Register, ...]
    sources: tuple[Register, ...]
    left: tuple[Argument, ...]
    right: tuple[Argument, ...]
    operator: tuple[Expr, ...]
    neutral: tuple[Expr, ...]
    down: bool = False


@dataclass(frozen=True)
class MoveUp:
    """`y = move_up x, fill`: lane i of y is lane i - 1 of x; its first lane is that of `fill`."""

    target: Register
    source: Register
    fill: Register


@dataclass(frozen=True)
class LastLane:
    """`y = last x`: the last lane of x in all lanes of y, so that y is a line."""

    target: Register
    source: Register


@dataclass(frozen=True)
class FirstLane:
    """`y = first x`: the first lane of x as a scalar."""

    target: Register
    source: Register


@dataclass(frozen=True)
class Spread:
    """`y = line x`: a scalar in all lanes of y."""

    target: Register
    value: Expr


@dataclass(frozen=True)
class Hide:
    """`p = hidden i * width`: an int64 whose value a compiler cannot trace back to i.

    A compiler that can tell how the rows of a loop go on tests before that loop whether arrays overlap, which they seem
    to where positions fall; where it cannot, it tests for each row.
    """

    target: Register
    value: Expr


@dataclass(frozen=True)
class Choose:
    """`x = choose c, a, b`: a where c holds, else b, scalars without a branch: for conditions that nobody can guess."""

    target: Register
    condition: Expr
    if_true: Register
    if_false: Register


@dataclass(frozen=True)
class AllLanes:
    """`ok = all x < 1.0`: whether a condition on lines holds in every lane, as a scalar."""

    target: Register
    condition: Expr


@dataclass(frozen=True)
class Prefetch:
    """`prefetch values[i]`; the position may lie outside the array."""

    array: Array
    index: Expr


@dataclass(frozen=True)
class Barrier:
    """`barrier`: what any lane of a program stored before, all its lanes load after."""


@dataclass(frozen=True)
class For:
    """`for i in start .. stop`: from start to stop - 1; `for i in start .. stop down`: from stop - 1 to start.

    parallel  no round reads what another writes, so that each may be a program of its own on a GPU:
              `for i in start .. stop parallel`; such a loop within another goes along a second axis of programs
    """

    target: Register
    start: Expr
    stop: Expr
    body: tuple[Statement, ...]
    down: bool = False
    step: int = 1
    parallel: bool = False


@dataclass(frozen=True)
class While:
    """`while i < stop`"""

    condition: Expr
    body: tuple[Statement, ...]


@dataclass(frozen=True)
class If:
    """`if x < 0.0`, and `else`."""

    condition: Expr
    body: tuple[Statement, ...]
    otherwise: tuple[Statement, ...] = ()


@dataclass(frozen=True)
class Break:
    """`break` out of the innermost loop."""


@dataclass(frozen=True)
class Continue:
    """`continue` with the innermost loop."""


@dataclass(frozen=True)
class Return:
    """`return i, count`: scalars; every path of a kernel returns as many."""

    values: tuple[Expr, ...]


@dataclass(frozen=True)
class Call:
    """`forward(values, runs, n)`: another kernel of as many lanes, which returns nothing, on arrays and scalars."""

    kernel: Kernel
    arguments: tuple[Array | Expr, ...]


@dataclass(frozen=True)
class Comment:
    """`# why`: a line for whoever reads the generated source."""

    text: str


Statement = (
    Assign
    | Load
    | Store
    | LoadBit
    | SetBit
    | Hash
    | LoadLine
    | StoreLine
    | LoadRows
    | StoreRows
    | LaneNumbers
    | Gather
    | Scatter
    | ScanLine
    | MoveUp
    | LastLane
    | FirstLane
    | Spread
    | Hide
    | Choose
    | AllLanes
    | Prefetch
    | Barrier
    | For
    | While
    | If
    | Break
    | Continue
    | Return
    | Call
    | Comment
)


@dataclass(frozen=True)
class Kernel:
    """A function on arrays.

    lanes  the number of rows in a line: on a CPU 8 for registers of 64 bits and 16 for 32 bits, on a GPU a power of two
    """

    name: str
    parameters: tuple[Register | Array, ...]
    body: tuple[Statement, ...]
    lanes: int = 8

    def __str__(self) -> str:
        from derivable.kernel.text import to_text

        return to_text(self)

    __repr__ = __str__

    @property
    def arrays(self) -> tuple[Array, ...]:
        return tuple(parameter for parameter in self.parameters if isinstance(parameter, Array))


def blocks_of(statement: Statement) -> tuple[tuple[Statement, ...], ...]:
    """The blocks inside a statement."""
    if isinstance(statement, (For, While)):
        return (statement.body,)
    if isinstance(statement, If):
        return statement.body, statement.otherwise
    return ()


def walk(block: tuple[Statement, ...]) -> Iterator[Statement]:
    """All statements of a block, nested ones included, in the order of the text."""
    for statement in block:
        yield statement
        for inner in blocks_of(statement):
            yield from walk(inner)


# The fields whose expressions a statement reads, and not assigns or applies.
_READ = ("condition", "start", "stop", "index", "stride", "count", "value", "values", "words", "size")
_READ += ("source", "sources", "places", "mask", "fill", "if_true", "if_false", "arguments")


def operands_of(statement: Statement) -> tuple[Expr, ...]:
    """The expressions that a statement itself reads, without those of its blocks."""
    found: list[Expr] = []
    for name in _read_by(type(statement)):
        value = getattr(statement, name)
        if isinstance(value, Expr):
            found.append(value)
        elif isinstance(value, tuple):
            found += [part for part in value if isinstance(part, Expr)]
    return tuple(found)


@cache
def names_of(kind: type) -> frozenset[str]:
    """The names of the fields of a statement."""
    return frozenset(field.name for field in fields(kind))


@cache
def _read_by(kind: type) -> tuple[str, ...]:
    return tuple(name for name in _READ if name in names_of(kind))
