"""Nodes of the column program. Each node's docstring shows its printed form.

A program is a directed graph of nodes, each with one or more columns as its results. A column has a type, a number of
rows and perhaps lanes (numbers in a row). Numbers of rows are sizes: numbers, the rows of an input, what a node finds
at run time, and sums of these. A loop goes round by round over columns of its own state; what its body computes from
outer columns alone is computed once, before the loop, so indexes of relations that do not change are static.

The program knows no device. `parallel.program.execute` runs it on NumPy, by the reference or by the CPU's kernels,
`bridge.torch_columns` on the tensors of any device.

Printed form:

    c0 = given edge.0 [rows(edge)]
    i0 = build c0
    c1, c2 = join c0 with i0 [found(c1)]

Source: Biberstein et al. 2026, table 1, for what has sizes found at run time. Deviations: registers are the results of
nodes, so nothing is allocated by an instruction of its own; `count`, `scan` and `join` are one node, because a device
that knows the counts has no other use of them.
"""

from __future__ import annotations

from abc import ABCMeta, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from derivable.algebra.monoid import TypedMonoid
from derivable.parallel.program.function import Function
from derivable.parallel.program.types import INDEX, VALUE, Column, Found, Size, Type, added, finders
from derivable.parallel.program.types import Sum as Sum


class _Kinds(ABCMeta):
    # Kinds of nodes have no virtual subclasses, and the check for them takes longer than a node of a small program.
    __instancecheck__ = type.__instancecheck__


@dataclass(frozen=True, eq=False, repr=False)
class Node(metaclass=_Kinds):
    """A node of the graph: two nodes are equal if they are one; `graph.Graph` makes equal ones once."""

    @cached_property
    def operands(self) -> tuple[Column, ...]:
        """The columns that it reads."""
        groups = (part if isinstance(part, tuple) else (part,) for part in self._parts)
        return tuple(x for group in groups for x in group if type(x) is Column)

    @property
    def _parts(self) -> list[Any]:
        # `dataclasses.fields` takes longer than all else that is asked of a node.
        return [getattr(self, name) for name in self.__dataclass_fields__]

    @cached_property
    def needs(self) -> tuple[Node, ...]:
        """The nodes that must have run before it: those that it reads, and those that find its number of rows."""
        sizes = [size.size if isinstance(size, Type) else size for size in self._parts]
        return tuple(dict.fromkeys([*(x.node for x in self.operands), *(f for size in sizes for f in finders(size))]))

    def __repr__(self) -> str:
        return f"<{type(self).__name__}>"

    @cached_property
    def types(self) -> tuple[Type, ...]:
        """The types of its results."""
        return self._types()

    @abstractmethod
    def _types(self) -> tuple[Type, ...]: ...

    def _of(self, column: Column, size: Size | None) -> Type:
        return replace(column.type, size=size)


@dataclass(frozen=True, eq=False, repr=False)
class Given(Node):
    """`given edge`: columns that a run gives by name, or a part of a loop's state

    of     [column]
    finds  whether their number of rows is found at run time; else it is that of their types
    """

    name: str
    of: tuple[Type, ...]
    finds: bool = True

    def _types(self) -> tuple[Type, ...]:
        return tuple(replace(of, size=Found(self)) for of in self.of) if self.finds else self.of


@dataclass(frozen=True, eq=False, repr=False)
class Constant(Node):
    """`constant 1.0`: a number in every row, or an array [row] known when the program is made"""

    values: Any
    type: Type

    def _types(self) -> tuple[Type, ...]:
        return (self.type,)


@dataclass(frozen=True, eq=False, repr=False)
class Gather(Node):
    """`gather c0 at c4`, `gather c0 at c4 else c5`: the row of that number; where it is -1, the own row of another
    column"""

    of: Column
    rows: Column
    otherwise: Column | None = None

    def _types(self) -> tuple[Type, ...]:
        return (self._of(self.of, self.rows.size),)


@dataclass(frozen=True, eq=False, repr=False)
class Fold(Node):
    """`fold plus c0 by c4`: by the operator, the rows that go to each row of the result, in their order; its neutral
    element where none does

    of        [component]
    monoid    the operator; None for the plus of the run's semiring
    is_sorted whether `rows` does not decrease, so that segments may be folded
    """

    of: tuple[Column, ...]
    rows: Column
    size: Size
    monoid: TypedMonoid | None = None
    is_sorted: bool = False

    def _types(self) -> tuple[Type, ...]:
        return tuple(self._of(column, self.size) for column in self.of)


@dataclass(frozen=True, eq=False, repr=False)
class FoldLanes(Node):
    """`fold lanes c0`: the sum of each row, in the semiring"""

    of: Column

    def _types(self) -> tuple[Type, ...]:
        return (replace(self.of.type, lanes=None),)


@dataclass(frozen=True, eq=False, repr=False)
class Apply(Node):
    """`exp c0`: scalar expressions of each row, an operation of `algebra.expr` by its name, or `times`, the product of
    the run's semiring

    first  the type of the first result, size aside; None for that of the expression, or of values for a name
    """

    function: Function | str
    inputs: tuple[Column, ...]
    size: Size | None
    lanes: int | None = None
    first: Type | None = None

    def _types(self) -> tuple[Type, ...]:
        dtypes = [VALUE] if isinstance(self.function, str) else [value.dtype for value in self.function.values]
        types = [Type(dtype, self.size, self.lanes) for dtype in dtypes]
        if self.first is not None:
            types[0] = replace(self.first, size=self.size, lanes=self.lanes)
        return tuple(types)


@dataclass(frozen=True, eq=False, repr=False)
class Bits(Node):
    """`bits c0`: the same 64 bits, float64 as int64 or int64 as float64; -0.0 becomes 0.0"""

    of: Column

    def _types(self) -> tuple[Type, ...]:
        return (Type("int64" if self.of.type.dtype == "float64" else "float64", self.of.size),)


@dataclass(frozen=True, eq=False, repr=False)
class Concatenate(Node):
    """`concatenate c0 c1`: one after the other"""

    of: tuple[Column, ...]

    def _types(self) -> tuple[Type, ...]:
        sizes = [column.size for column in self.of]
        whole = sum(sizes) if all(isinstance(size, int) for size in sizes) else added(*sizes)  # type: ignore[arg-type]
        widest = max((column.type for column in self.of), key=lambda of: of.bits)
        return (replace(widest, size=whole, lanes=self.of[0].type.lanes),)


@dataclass(frozen=True, eq=False, repr=False)
class Split(Node):
    """`split c0`: consecutive parts with these numbers of rows"""

    of: Column
    sizes: tuple[int, ...]

    def _types(self) -> tuple[Type, ...]:
        return tuple(self._of(self.of, size) for size in self.sizes)


@dataclass(frozen=True, eq=False, repr=False)
class Reshape(Node):
    """`reshape c0`: lanes as rows, or rows as lanes"""

    of: Column
    size: Size | None
    lanes: int | None = None

    def _types(self) -> tuple[Type, ...]:
        return (replace(self.of.type, size=self.size, lanes=self.lanes),)


@dataclass(frozen=True, eq=False, repr=False)
class Compact(Node):
    """`compact c6`: the numbers of the rows where a mask holds"""

    mask: Column

    def _types(self) -> tuple[Type, ...]:
        return (Type("int64", Found(self)),)


@dataclass(frozen=True, eq=False, repr=False)
class Build(Node):
    """`build c1 c2`: an index of the rows by these columns; of all rows without one

    is_sorted  whether the rows are in the order of these columns
    """

    columns: tuple[Column, ...]
    size: Size
    is_sorted: bool = False

    def _types(self) -> tuple[Type, ...]:
        return (Type(INDEX, self.size),)


@dataclass(frozen=True, eq=False, repr=False)
class Join(Node):
    """`join c3 with i4`: pairs of a probe and a row of an index that agree, by probe, then by row"""

    probes: tuple[Column, ...]
    index: Column
    size: Size

    def _types(self) -> tuple[Type, ...]:
        return (Type("int64", Found(self)),) * 2


@dataclass(frozen=True, eq=False, repr=False)
class Find(Node):
    """`find c3 c4 in i5`: for each probe the row of an index of distinct rows that agrees, -1 without one"""

    probes: tuple[Column, ...]
    index: Column
    size: Size

    def _types(self) -> tuple[Type, ...]:
        return (Type("int64", self.size),)


@dataclass(frozen=True, eq=False, repr=False)
class Sort(Node):
    """`sort c1 c2`: the numbers of the rows in ascending order, equal rows as they stand"""

    columns: tuple[Column, ...]
    size: Size

    def _types(self) -> tuple[Type, ...]:
        return (Type("int64", self.size),)


@dataclass(frozen=True, eq=False, repr=False)
class Unique(Node):
    """`unique c1 c2`: of sorted rows the first of each group of equal ones, and the number of the group of each row"""

    columns: tuple[Column, ...]
    size: Size

    def _types(self) -> tuple[Type, ...]:
        return Type("int64", Found(self)), Type("int64", self.size)


@dataclass(frozen=True, eq=False, repr=False)
class Insert(Node):
    """`insert c1 c2 into h5`, `insert c1 c2`: the set with these rows too, and those of them that it had not, each
    once, in no certain order; nobody reads the set as it was before

    into  the set, None for one without rows
    """

    columns: tuple[Column, ...]
    size: Size
    into: Column | None = None

    def _types(self) -> tuple[Type, ...]:
        return Type(INDEX, Found(self)), *(self._of(column, Found(self, 1)) for column in self.columns)


@dataclass(frozen=True, eq=False, repr=False)
class Elements(Node):
    """`elements h5`, `earlier elements h5`: the rows of a set, or those that it had before the last insertion

    columns  their types
    """

    of: Column
    columns: tuple[Type, ...]
    is_earlier: bool

    def _types(self) -> tuple[Type, ...]:
        size = Found(self) if self.is_earlier else self.of.size
        return tuple(replace(of, size=size) for of in self.columns)


@dataclass(frozen=True, eq=False, repr=False)
class BuildOf(Node):
    """`build of h5 by 0`, `build of earlier h5 by 0 1`: what `Build` gives for some columns of the elements of a set,
    which may be what it gave for fewer of them, and more

    elements   the set, and of which of its rows
    positions  of the columns
    """

    of: Column
    elements: Elements
    positions: tuple[int, ...]

    @property
    def columns(self) -> tuple[Column, ...]:
        return tuple(Column(self.elements, position) for position in self.positions)

    @cached_property
    def operands(self) -> tuple[Column, ...]:
        return (self.of,)

    def _types(self) -> tuple[Type, ...]:
        return (Type(INDEX, self.of.size),)


@dataclass(frozen=True, eq=False, repr=False)
class Locate(Node):
    """`locate c1 c2 in h5`: where each row is among the rows of a set, which has it"""

    columns: tuple[Column, ...]
    size: Size
    among: Column

    def _types(self) -> tuple[Type, ...]:
        return (Type("int64", self.size),)


@dataclass(frozen=True, eq=False, repr=False)
class IsNew(Node):
    """`is new i4 in h5`: which of these rows, by their numbers, a set had not before the last insertion"""

    rows: Column
    among: Column

    def _types(self) -> tuple[Type, ...]:
        return (Type("bool", self.rows.size),)


@dataclass(frozen=True, eq=False, repr=False)
class Put(Node):
    """`put c2 at c1 in c0`: a column with other values in some rows, which are distinct

    size  its number of rows, which may have several names
    """

    values: Column
    rows: Column
    into: Column
    size: Size

    def _types(self) -> tuple[Type, ...]:
        return (self._of(self.into, self.size),)


@dataclass(frozen=True, eq=False, repr=False)
class Call(Node):
    """`call count(y)`: what is no array program, on the host's columns; it finds how many rows it gives

    function  (NumPy columns [row] of the operands, the number of rows) -> NumPy columns
    size      of the rows that it is called for
    result    the types of the results, without sizes
    finds     whether the results have rows of their own, and operands may have too; else all have these rows
    """

    text: str
    function: Callable[[Sequence[np.ndarray], int], Sequence[np.ndarray]]
    of: tuple[Column, ...]
    size: Size
    result: tuple[Type, ...]
    finds: bool = True

    def _types(self) -> tuple[Type, ...]:
        size = Found(self) if self.finds else self.size
        return tuple(replace(of, size=size) for of in self.result)


@dataclass(frozen=True, eq=False, repr=False)
class Custom(Node):
    """`best proofs c0 c1`: what a function of the library's arrays gives for some rows; columns that it reads may have
    other numbers of rows

    function  (library, the columns that it reads, the number of rows) -> columns
    result    the types of the results, without sizes
    """

    text: str
    function: Callable[[Any, Sequence[Any], int], Sequence[Any]]
    of: tuple[Column, ...]
    size: Size
    result: tuple[Type, ...]

    def _types(self) -> tuple[Type, ...]:
        return tuple(replace(of, size=self.size) for of in self.result)


@dataclass(frozen=True, eq=False, repr=False)
class Loop(Node):
    """`loop path`: round by round, as long as a part of the state has rows

    begin   the columns of the state before the first round
    state   the columns that stand for them in the body, all those of each `Given`
    body    the columns of the state after a round
    going   the rows that let it go on, as numbers of columns of the state: one each of the parts that count
    """

    text: str
    begin: tuple[Column, ...]
    state: tuple[Column, ...]
    body: tuple[Column, ...]
    going: tuple[int, ...]

    @cached_property
    def operands(self) -> tuple[Column, ...]:
        # Columns of the body that depend on no state are computed before the loop.
        return *self.begin, *self.static

    def _types(self) -> tuple[Type, ...]:
        # Columns of one part of the state have one number of rows, which the loop finds.
        nodes = [column.node for column in self.state]
        return tuple(replace(c.type, size=Found(self, nodes.index(c.node))) for c in self.state)

    @cached_property
    def moving(self) -> frozenset[Node]:
        """The nodes of the body that depend on the state."""
        mine = {column.node for column in self.state}
        found: set[Node] = set(mine)
        for node in nodes_of(self.body):
            if node in mine or not found.isdisjoint(node.needs):
                found.add(node)
        return frozenset(found)

    @cached_property
    def growing(self) -> frozenset[Node]:
        """Nodes that make a column of the state of what it was before: it is concatenated with more rows, and then
        other rows are put into it, which only the next round reads."""
        found: set[Node] = set()
        read = {operand for node in nodes_of(self.body) for operand in node.operands}
        for column, after in zip(self.state, self.body):
            if not isinstance(after.node, Put) or after in read:
                continue
            whole = after.node.into
            is_grown = isinstance(whole.node, Concatenate) and whole.node.of[0] == column
            if is_grown and not {column, whole}.intersection(self.body):
                found |= {whole.node, after.node}
        return frozenset(found)

    @cached_property
    def needs(self) -> tuple[Node, ...]:
        inside = [need for node in nodes_of(self.body) if node in self.moving for need in node.needs]
        outer = [node for node in inside if node not in self.moving]
        return tuple(dict.fromkeys([*(column.node for column in self.operands), *outer]))

    @cached_property
    def static(self) -> tuple[Column, ...]:
        """The columns that the body reads and that depend on no state."""
        read = [operand for node in nodes_of(self.body) if node in self.moving for operand in node.operands]
        return tuple(dict.fromkeys(column for column in (*read, *self.body) if column.node not in self.moving))


class _Nested(Node):
    """A node that runs others, perhaps not all of them or several times."""

    @property
    @abstractmethod
    def inside(self) -> frozenset[Node]:
        """The nodes that only it runs."""

    def outside(self, results: Sequence[Column]) -> list[Column]:
        """The columns that nodes inside read of others, for these results."""
        read = [operand for node in nodes_of(results) if node in self.inside for operand in node.operands]
        return [column for column in (*read, *results) if column.node not in self.inside]

    @cached_property
    def needs(self) -> tuple[Node, ...]:
        more = [need for node in self.inside for need in node.needs if need not in self.inside]
        return tuple(dict.fromkeys([*(column.node for column in self.operands), *more]))


@dataclass(frozen=True, eq=False, repr=False)
class Otherwise(_Nested):
    """`path by c1 c2, otherwise`: what a function gives at once, or if it gives nothing, what other nodes compute

    function  (library, the columns that it reads, a function that gets the number of rows before they are made) -> the
              columns, or what the library makes them of when they are read (`Arrays.whole`); or None
    reads     the columns that it reads
    others    the columns that are computed only if it gives None; they have the types of the results
    """

    text: str
    function: Callable[[Any, Sequence[Any], Callable[[int], None]], Sequence[Any] | None]
    reads: tuple[Column, ...]
    others: tuple[Column, ...]

    @cached_property
    def operands(self) -> tuple[Column, ...]:
        # What the other nodes read of what must be there for the function.
        return tuple(dict.fromkeys((*self.reads, *self.outside(self.others))))

    def _types(self) -> tuple[Type, ...]:
        # Columns of one table have one number of rows.
        sizes = [column.size for column in self.others]
        return tuple(replace(c.type, size=Found(self, sizes.index(c.size))) for c in self.others)

    @cached_property
    def inside(self) -> frozenset[Node]:
        """The nodes that run only if the function gives None."""
        return frozenset(nodes_of(self.others)) - frozenset(nodes_of(self.reads))


@dataclass(frozen=True, eq=False, repr=False)
class Pieces(_Nested):
    """`pieces of c0 c1 for path`: what a body makes of rows; where a join in it has too many pairs at once, of some of
    the rows after others, each piece of them folded

    of        columns whose rows may be cut
    rows      the columns that stand for them in the body, all those of one `Given`
    body      what the body makes of them
    folded    what may stand for that, of fewer rows: who reads the results folds all rows again
    is_whole  whether the results are arrays, and not late columns
    """

    text: str
    of: tuple[Column, ...]
    rows: tuple[Column, ...]
    body: tuple[Column, ...]
    folded: tuple[Column, ...]
    is_whole: bool

    @cached_property
    def inside(self) -> frozenset[Node]:
        """The nodes that depend on the rows."""
        found: set[Node] = {self.rows[0].node}
        for node in nodes_of((*self.body, *self.folded)):
            if not found.isdisjoint(node.needs):
                found.add(node)
        return frozenset(found)

    @cached_property
    def operands(self) -> tuple[Column, ...]:
        return tuple(dict.fromkeys((*self.of, *self.outside((*self.body, *self.folded)))))

    def _types(self) -> tuple[Type, ...]:
        sizes = [column.size for column in self.body]
        return tuple(replace(c.type, size=Found(self, sizes.index(c.size))) for c in self.body)


def nodes_of(columns: Iterable[Column]) -> list[Node]:
    """The nodes that these columns need, each after those that it reads. Bodies of loops are not among them."""
    found: dict[Node, None] = {}
    stack = [(column.node, False) for column in reversed(list(columns))]
    while stack:
        node, is_ready = stack.pop()
        if node in found:
            continue
        if is_ready:
            found[node] = None
        else:
            stack.append((node, True))
            stack += [(need, False) for need in reversed(node.needs)]
    return list(found)
