"""Relations as nodes of a column program, of which rules are made: rows, tags, sets, indexes, expressions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol

import numpy as np

from derivable.algebra import expr
from derivable.algebra.expr.optional import TRUE
from derivable.algebra.expr.types import FLOATS
from derivable.algebra.semiring import TypedSemiring
from derivable.core.diagnostics import UnsupportedError
from derivable.datalog.kernels.proof_form import ProofForm, ProofOperation
from derivable.datalog.rules.nodes import AggregateRule, names
from derivable.datalog.rules.text import expr_text
from derivable.datalog.scalars import arithmetic
from derivable.datalog.scalars.nodes import Const, Expr, Var
from derivable.datalog.values.values import ValueType
from derivable.parallel.program import nodes as n
from derivable.parallel.program.graph import Graph

# What torch computes with on every device.
_DEVICE_TYPES = {"bool", "int8", "int16", "int32", "int64", "float32", "float64"}
Column = n.Column
# Of a relation or a call without columns, which has one of zeros.
ZEROS = n.Type("int64", bits=1, is_natural=True)
# The name of what operations on proofs read of literals; see `ProofLanes.known`.
PROOFS = "#proofs"
MASK = n.Type("bool")


class LeftToHost(UnsupportedError):
    """A program, or its tags, that a device does not compute with."""


class Host(Protocol):
    """What calls are run by, on NumPy columns of words; tags come behind the columns of a table, a component each.

    word       the word of a constant
    evaluate   an expression over columns of these names; `gives` is "value", "both" (the value, and where there is one)
               or "mask"
    call       the RAM node of a predicate or a coin; `names` are those of the columns read and made
    aggregate  an aggregate's rule; `types` are those of its relation, `widths` the columns of the body and the groups
    is_bound   set where the program has something of this host, so that no other run can have the program
    """

    is_bound: bool

    def word(self, constant: Const) -> Any: ...

    def evaluate(self, expression: Expr, names: Any, gives: str, columns: Any, count: int) -> Any: ...

    def call(self, node: Any, names: Any, columns: Any, count: int) -> Any: ...

    def aggregate(self, rule: AggregateRule, types: Any, widths: Any, columns: Any, count: int) -> Any: ...


@dataclass(frozen=True)
class Table:
    """Columns of a part of a relation, or of a query by name, and its tags [component]."""

    columns: Mapping[Any, Column]
    tags: tuple[Column, ...]
    size: n.Size

    @property
    def all(self) -> tuple[Column, ...]:
        return *self.columns.values(), *self.tags

    def like(self, columns: Sequence[Column], size: n.Size) -> Table:
        """A table of the same form."""
        width = len(self.columns)
        return Table(dict(zip(self.columns, columns)), tuple(columns[width:]), size)


def column_type(t: ValueType, size: n.Size | None = None) -> n.Type:
    """The type of words: texts are numbers of a table, which has fewer than 2^32."""
    if t.is_integer and t.bits < 64:
        return n.Type("int64", size, bits=t.bits, is_natural=t.family == "unsigned")
    bits = {"bool": 1, "char": 21, "text": 32}.get(t.family)
    return n.Type("int64", size) if bits is None else n.Type("int64", size, bits=bits, is_natural=True)


class Tables:
    """Operations on tables of one program.

    typed   the semiring of the tags; None for a run without tags, and for one of proofs
    proofs  what sets of proofs are like, whose tables have none, one or two columns of them, which are factors; else
            None
    """

    def __init__(self, tags: TypedSemiring | ProofForm | None, host: Host):
        self.proofs = tags if isinstance(tags, ProofForm) else None
        self.typed = None if isinstance(tags, ProofForm) else tags
        self.host, self.graph = host, Graph()
        if self.typed is not None:
            typed = self.typed
            operations = {"times": typed.times, "plus": typed.plus, "negate": typed.negation}
            operations |= {"saturated": typed.saturated, "discard": typed.discard}
            self.operations = {name: n.Function.of(name, of) for name, of in operations.items()}

    @property
    def dtypes(self) -> tuple[str, ...]:
        return () if self.typed is None else self.typed.dtypes

    @property
    def tag_types(self) -> list[n.Type]:
        return [n.Type(dtype) for dtype in self.dtypes]

    @property
    def proof_type(self) -> n.Type:
        assert self.proofs is not None
        return n.Type("int64", lanes=self.proofs.lanes)

    def of_proofs(
        self, name: str, columns: Sequence[Column], size: n.Size, types: Sequence[n.Type]
    ) -> tuple[Column, ...]:
        """What an operation on sets of proofs gives; see `ProofForm`."""
        assert self.proofs is not None
        words = self.proofs.words
        lanes = 64 * words, words, 64 * words if self.proofs.denies else 1, None
        known = self.graph(n.Given, PROOFS, tuple(n.Type("int64", lanes=number) for number in lanes))
        proof_columns = known if columns else ()
        operation = ProofOperation(self.proofs, name)
        return self.graph(n.Custom, f"{name} of proofs", operation, (*proof_columns, *columns), size, tuple(types))

    def constant(self, value: Any, dtype: str, size: n.Size) -> Column:
        return self.graph.one(n.Constant, value, n.Type(dtype, size))

    def one(self, size: n.Size) -> tuple[Column, ...]:
        """The tags of certain rows."""
        return () if self.typed is None else self.tags(self.typed.one, size)

    def tags(self, scalars: Sequence[Any], size: n.Size) -> tuple[Column, ...]:
        return tuple(self.constant(x.item(), of, size) for x, of in zip(scalars, self.dtypes))

    def certain(self, columns: Sequence[Column]) -> Table:
        """A table of certain rows."""
        size = columns[0].size
        assert size is not None
        return Table(dict(enumerate(columns)), self.one(size), size)

    def nothing(self, like: Table) -> Table:
        """A table of the same form without rows."""
        empty = [self.graph.one(n.Constant, 0, replace(c.type, size=0)) for c in like.all]
        return like.like(empty, 0)

    def at(self, table: Table, rows: Column) -> Table:
        assert rows.size is not None
        return table.like([self.graph.one(n.Gather, c, rows) for c in table.all], rows.size)

    def only(self, table: Table, mask: Column, needed: Iterable[str] | None = None) -> Table:
        """The rows of a table where a mask holds; `needed` are the columns that are read later."""
        if needed is not None:
            wanted = set(needed)
            table = Table({k: c for k, c in table.columns.items() if k in wanted}, table.tags, table.size)
        return self.at(table, self.graph.one(n.Compact, mask))

    def appended(self, tables: Sequence[Table]) -> Table:
        if len(tables) == 1:
            return tables[0]
        columns = [self.graph.one(n.Concatenate, parts) for parts in zip(*(table.all for table in tables))]
        size = columns[0].size
        assert size is not None
        return tables[0].like(columns, size)

    def ordered(self, table: Table) -> Table:
        return self.at(table, self.graph.one(n.Sort, tuple(table.columns.values()), table.size))

    def product(self, size: n.Size, left: tuple[Column, ...], right: tuple[Column, ...]) -> tuple[Column, ...]:
        """The tags of pairs. Of proofs the last product is left to who adds up its rows."""
        if self.proofs is None:
            return self.apply("times", size, left, right)
        factors = (*left, *right)
        while len(factors) > 2:
            factors = *self.of_proofs("times", factors[:2], size, [self.proof_type]), *factors[2:]
        return factors

    def apply(self, name: str, size: n.Size, *operands: tuple[Column, ...]) -> tuple[Column, ...]:
        """An operation on tags; there are none in a run without tags."""
        if self.typed is None:
            return ()
        return self.graph(n.Apply, self.operations[name], tuple(c for each in operands for c in each), size)

    def logical(self, operation: str, size: n.Size, *operands: Column) -> Column:
        """The mask that a comparison or a logical operation gives."""
        return self.graph.one(n.Apply, operation, operands, size, None, MASK)

    def is_absent(self, rows: Column) -> Column:
        assert rows.size is not None
        return self.logical("less", rows.size, rows, self.constant(0, "int64", rows.size))

    def is_something(self, tags: tuple[Column, ...], size: n.Size) -> Column:
        """Where tags are none that the semiring discards."""
        return self.logical("logical_not", size, *self.apply("discard", size, tags))

    def something(self, parts: Sequence[Table]) -> Table:
        """The derived rows, without what the semiring discards."""
        if self.proofs is not None:
            return self.possible(parts)
        appended = self.appended(parts)
        return appended if self.typed is None else self.only(appended, self.is_something(appended.tags, appended.size))

    def possible(self, parts: Sequence[Table]) -> Table:
        """The derived rows, as many factors everywhere, without products whose factors contradict each other."""
        assert self.proofs is not None
        most = max(len(part.tags) for part in parts)
        masks = []
        for part in parts:
            if len(part.tags) == 2 and self.proofs.choices:
                part = self.only(part, self.are_possible(part.tags, part.size))
            tags = part.tags
            while len(tags) < most:
                tags = *tags, *self.of_proofs("one", (), part.size, [self.proof_type])
            masks.append(replace(part, tags=tags))
        return self.appended(masks)

    def are_possible(self, tags: tuple[Column, ...], size: n.Size) -> Column:
        """Where sets have a proof, or their products."""
        return self.of_proofs("possible", tags, size, [MASK])[0]

    def built(self, columns: Sequence[Column], size: n.Size) -> Column:
        """An index by these columns; that of a set stays from round to round."""
        nodes = {column.node for column in columns}
        elements = nodes.pop() if len(nodes) == 1 else None
        if isinstance(elements, n.Elements):
            positions = tuple(column.number for column in columns)
            return self.graph.one(n.BuildOf, elements.of, elements, positions)
        return self.graph.one(n.Build, tuple(columns), size)

    def inserted(self, rows: Table, into: Table | None) -> tuple[Table, Table]:
        """The set with these rows too, and the rows that are new, as certain ones."""
        columns = tuple(rows.columns.values())
        known, *fresh = self.graph(n.Insert, columns, rows.size, None if into is None else into.columns[0])
        assert known.size is not None
        return Table({0: known}, (), known.size), self.certain(fresh)

    def row_numbers(self, rows: Table, known: Table) -> Table:
        """Where rows are among those of a set."""
        numbers = self.graph.one(n.Locate, tuple(rows.columns.values()), rows.size, known.columns[0])
        return Table({0: numbers}, (), rows.size)

    def elements(self, known: Table, like: Table, is_earlier: bool = False) -> Table:
        """The rows of a set, as certain ones, or those that it had before the last insertion."""
        types = tuple(replace(c.type, size=None) for c in like.columns.values())
        return self.certain(self.graph(n.Elements, known.columns[0], types, is_earlier))

    # Expressions

    def call(self, text: str, function: Callable, columns: Sequence[Column], size: n.Size, result: Any, finds: bool):
        self.host.is_bound = True
        return self.graph(
            n.Call, text, function, tuple(columns), size, tuple(replace(r, size=None) for r in result), finds
        )

    def evaluate(self, e: Expr, table: Table, is_condition: bool = False) -> tuple[Column | None, Column | None]:
        """(the value, where there is one) of an expression; of a condition (None, where it holds)."""
        if isinstance(e, Var) and not is_condition:
            return table.columns[e.name], None
        if isinstance(e, Const) and not is_condition:
            return self.graph.one(n.Constant, self.host.word(e), column_type(e.type, table.size)), None
        translated = arithmetic.translate(e)
        gives = "mask" if is_condition else "value" if translated.result.valid is TRUE else "both"
        values = self.device_values(e, translated, table, gives)
        if values is None:
            read = sorted(names(e))
            function = partial(self.host.evaluate, e, read, gives)
            value = column_type(e.type)
            types = {"mask": [MASK], "value": [value], "both": [value, MASK]}
            columns = [table.columns[name] for name in read]
            values = self.call(expr_text(e), function, columns, table.size, types[gives], False)
        if is_condition:
            return None, values[0]
        return values[0], values[1] if gives == "both" else None

    def device_values(
        self, e: Expr, translated: arithmetic.Translated, table: Table, gives: str
    ) -> tuple[Column, ...] | None:
        """What an expression gives by scalar operations; None where some are the host's."""
        result = translated.result
        roots = {"mask": (result.only_if(result.value).valid,), "value": (result.value,)} if gives != "both" else {}
        values = roots.get(gives, (result.value, result.valid))
        values = values if gives == "value" else _signed(values)
        nodes = expr.in_order(values)
        if any(i.function is not None for i in translated.inputs) or {x.dtype for x in nodes} - _DEVICE_TYPES:
            return None
        arguments = {x.index: x for x in nodes if isinstance(x, expr.Argument)}
        columns, used = [], []
        for number, entry in enumerate(translated.inputs):
            if number in arguments:
                column = table.columns[entry.variable]
                columns.append(self.graph.one(n.Bits, column) if entry.type.family == "float" else column)
                used.append(arguments[number])
        is_float = values[0].dtype in FLOATS
        first = values[0] if gives == "mask" else expr.cast(values[0], "float64" if is_float else "int64")
        function = n.Function(expr_text(e), (first, *values[1:]), tuple(used))
        of = None if is_float or gives == "mask" else column_type(e.type)
        components = self.graph(n.Apply, function, tuple(columns), table.size, None, of)
        if gives == "mask":
            return components
        value = self.graph.one(n.Bits, components[0]) if is_float else components[0]
        return value, *components[1:]


def _signed(values: tuple[expr.Expr, ...]) -> tuple[expr.Expr, ...]:
    """Expressions whose comparisons of unsigned integers are of words, which have a sign: of fewer than 64 bits all, of
    64 bits those for equality. What else has such integers stays as it is."""
    signed: dict[expr.Expr, expr.Expr] = {}
    for node in expr.in_order(values):
        operands = node.operands
        as_words = [_as_word(x) for x in operands]
        if isinstance(node, expr.Apply) and node.operation in _COMPARISONS and None not in as_words:
            is_short = operands[0].dtype != "uint64" or node.operation in _COMPARISONS[:2]
            signed[node] = expr.apply(node.operation, *as_words) if is_short else node
        elif isinstance(node, expr.Apply) and any(signed[x] is not x for x in operands):
            signed[node] = expr.Apply(node.operation, tuple(signed[x] for x in operands), node.dtype)
        else:
            signed[node] = node
    return tuple(signed[value] for value in values)


# Those of equality first.
_COMPARISONS = ("equal", "not_equal", "less", "less_equal")


def _as_word(value: expr.Expr) -> expr.Expr | None:
    """A variable or a constant of an unsigned type as an integer of the same 64 bits; None for what is neither."""
    if not value.dtype.startswith("uint"):
        return None
    if isinstance(value, expr.Argument):
        return expr.Argument(value.index, "int64", value.name)
    if isinstance(value, expr.Constant):
        return expr.Constant(value.value - (1 << 64 if value.value >> 63 else 0), "int64")
    is_wider = isinstance(value, expr.Apply) and value.operation == "cast" and value.dtype != "uint64"
    return _as_word(value.operands[0]) if is_wider and _bits(value.operands[0]) <= _bits(value) else None


def _bits(value: expr.Expr) -> int:
    return 8 * np.dtype(value.dtype).itemsize
