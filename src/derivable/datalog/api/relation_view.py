"""Relations as mappings from tuples to tags, backed by columns."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np

from derivable.core import html
from derivable.core.diagnostics import (
    AbsentTupleError,
    DerivableError,
    DomainError,
    TypeMismatchError,
)
from derivable.core.lazy import hidden_names, optional_module, whole_import
from derivable.core.locks import OwnLock
from derivable.core.names import FreshNames
from derivable.datalog.facts.inputs import as_tuple
from derivable.datalog.policy.costs import policy
from derivable.datalog.values.datetimes import Duration
from derivable.datalog.values.symbols import SymbolTable
from derivable.datalog.values.tensors import is_tensor
from derivable.datalog.values.terms import show_character, show_value
from derivable.datalog.values.values import ValueType, fits, ranks, show_column, sort_keys, word_of
from derivable.device.cpu.memory import empty
from derivable.parallel.order import order_of

if TYPE_CHECKING:
    from derivable.datalog.api.evaluation import Evaluation
    from derivable.datalog.api.spilled_relation import SpilledRelation
    from derivable.datalog.tables.storage import Table

_SHOWN_ROWS = 20
_SHOWN_COLUMNS = 20
_COMPLETED_KEYS = 1000


def tag_text(tag: Any, digits: int = 6) -> str:
    """A tag for people: a number, a nest of them in parentheses, or a set of such."""
    if isinstance(tag, (tuple, list)):
        return f"({', '.join(tag_text(part, digits) for part in tag)})"
    if isinstance(tag, frozenset):
        return "{" + ", ".join(sorted((tag_text(part) for part in tag), key=lambda text: (len(text), text))) + "}"
    return f"{tag:.{digits}g}" if isinstance(tag, float) else str(tag)


class RelationView(Mapping):
    """The tuples of one relation with their tags; iterates in sorted order.

    columns       typed NumPy columns [row]; the same program on the same facts has the same order
    tags          [row] tags in that order, with fields if they are nests; None under `unit`, where every tag is True
    column_names  a variable of the query, else the name that the program declares, else a variable of the first rule;
                  None for a column without any
    `len` and `columns` build no Python tuples.
    """

    __dir__ = hidden_names("has_tags", "shown_rows", "table")

    def __init__(
        self,
        table: Table,
        tags: np.ndarray | None,
        symbols: SymbolTable,
        column_names: Sequence[str | None] | None = None,
        lock: OwnLock | None = None,
    ):
        """lock: what a thread holds that reads the table or writes to it; None for a new one."""
        self._lock = OwnLock() if lock is None else lock
        self.table = table
        self._symbols = symbols
        self._tags = tags
        self.column_names = tuple(column_names or [None] * len(table.types))
        self._columns: tuple[np.ndarray, ...] | None = None
        self._order: np.ndarray | None = None
        self._is_in_order = False
        self._keeper: Evaluation | None = None
        self._size = table.size

    def _become(self, table: Table, tags: np.ndarray | None, keeper: Evaluation | None = None) -> None:
        """Show other rows and tags.

        keeper  who writes to the table, and is to know that somebody reads it
        """
        if table is not self.table or tags is not self._tags or table.size != self._size:
            self._columns = self._order = None
            self.table, self._tags, self._size = table, tags, table.size
        self._keeper = keeper

    @property
    def columns(self) -> tuple[np.ndarray, ...]:
        with self._lock:
            if self._columns is None:
                types = self.table.types
                is_plain = [t.is_integer and t.bits <= 64 for t in types]
                words = self.table.all_columns([t.dtype if plain else np.int64 for t, plain in zip(types, is_plain)])
                self._columns = tuple(
                    column if plain else show_column(column, t, self._symbols)
                    for column, t, plain in zip(words, types, is_plain)
                )
            return self._columns

    @property
    def tags(self) -> np.ndarray | None:
        return self._tags

    def __len__(self) -> int:
        return self.table.size

    @property
    def is_tensor(self) -> bool:
        """Whether the relation is a sparse tensor too: its columns are integers, and its tags numbers."""
        is_number = self._tags is None or not self._tags.dtype.names
        return bool(self.table.types) and is_number and all(t.is_integer and t.bits <= 64 for t in self.table.types)

    def __sparse_entries__(self) -> tuple[tuple[np.ndarray, ...], np.ndarray | None]:
        """(columns of indices [axis][row], values [row]) of the relation as a sparse tensor: its columns and its tags.

        Raises TypeMismatchError for a column that has no integers.
        """
        for number, t in enumerate(self.table.types):
            if not t.is_integer or t.bits > 64:
                raise TypeMismatchError(
                    f"column {number} of the relation is {t}, and the indices of a tensor are integers",
                    hint="number its values by another relation",
                )
        return self.columns, self._tags

    def _sorted(self) -> np.ndarray:
        if self._order is None:
            keys = [self._sort_key(c) for c in range(len(self.table.types))]
            order = order_of(keys) if keys else slice(None)
            self._is_in_order = isinstance(order, slice)
            self._order = np.arange(len(self)) if isinstance(order, slice) else order
        return self._order

    def _ordered(self, column: np.ndarray) -> np.ndarray:
        """A copy of a column in the order of iteration."""
        order, ordered = self._sorted(), empty(len(column), column.dtype)
        ordered[:] = column if self._is_in_order else column[order]
        return ordered

    def _sort_key(self, position: int) -> np.ndarray:
        """Numbers [row] in the order of a column's values."""
        t = self.table.types[position]
        if t.family in ("text", "entity", "duration", "tensor") or t.is_wide:
            return sort_keys(self.table.column(position), t, self._symbols)
        column = self.columns[position]
        return ranks(column) if column.dtype == object else column

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        return self._rows(None)

    def _rows(self, count: int | None) -> Iterator[tuple[Any, ...]]:
        """The first `count` tuples in sorted order; None for all."""
        with self._lock:
            order, columns = self._sorted()[:count], self.columns
        if not columns:
            return iter([()] * len(order))
        step = policy().cache_rows
        parts = (order[start : start + step] for start in range(0, len(order), step))
        return chain.from_iterable(zip(*(column[part].tolist() for column in columns)) for part in parts)

    def shown_rows(self, count: int | None = None) -> Iterator[list[tuple[str, ...]]]:
        """The first `count` tuples, None for all, as the language writes them, in sorted order and in parts."""
        with self._lock:
            order, whole = self._sorted()[:count], self.columns
        step = policy().cache_rows
        for start in range(0, len(order), step):
            part = order[start : start + step]
            columns = [shown_values(column[part], t) for column, t in zip(whole, self.table.types)]
            yield list(zip(*columns)) if columns else [()] * len(part)

    def items(self) -> Any:
        return _Items(self)

    def _row(self, key: Any) -> int:
        values = as_tuple(key)
        types = self.table.types
        if len(values) != len(types) or not all(fits(v, t) for v, t in zip(values, types)):
            return -1
        if any(t.family == "entity" for t in types):
            return self._row_of_terms(values)
        if any(t.family == "text" and self._symbols.find(v) is None for v, t in zip(values, types)):
            return -1
        words = [np.array([word_of(v, t, self._symbols)], dtype=np.int64) for v, t in zip(values, types)]
        return int(self.table.find(words, 1)[0])

    def _row_of_terms(self, values: tuple[Any, ...]) -> int:
        """The row of values of which some are terms, -1 also where they are not terms of the program."""
        try:
            words = [np.array([word_of(v, t, self._symbols)]) for v, t in zip(values, self.table.types)]
        except DerivableError:
            return -1
        return int(self.table.find(words, 1)[0])

    def __contains__(self, key: Any) -> bool:
        with self._lock:
            return self._row(key) >= 0

    def __getitem__(self, key: Any) -> Any:
        with self._lock:
            row = self._row(key)
            if row < 0:
                raise self._absent(key)
            return True if self._tags is None else self._tags[row : row + 1].tolist()[0]

    def _absent(self, key: Any) -> AbsentTupleError:
        values, columns = as_tuple(key), len(self.table.types)
        what = f"{self.table.name}({', '.join(map(show_value, values))})"
        if len(values) != columns:
            number = f"{columns} column{'s' if columns != 1 else ''}"
            return AbsentTupleError(f"{what} is no tuple of `{self.table.name}`, which has {number}")
        if self._tags is None:
            return AbsentTupleError(f"{what} is not derived", hint="`in` asks for a tuple, `get(tuple, False)` too")
        return AbsentTupleError(
            f"{what} is in no world of this run",
            hint="`get(tuple, 0.0)` counts it as 0; given evidence that is impossible nothing has a probability",
        )

    @property
    def has_tags(self) -> bool:
        """Whether tuples have other tags than True."""
        return self._tags is not None

    def tag_list(self, count: int | None = None) -> list[Any]:
        """The first `count` tags in the order of iteration; None for all."""
        with self._lock:
            order = self._sorted()[:count]
            return [True] * len(order) if self._tags is None else self._tags[order].tolist()

    def __repr__(self) -> str:
        return rows_text(self)

    def _repr_html_(self) -> str:
        """A table for notebooks: the first rows in sorted order, with tags."""
        names = [str(t) if name is None else f"{name}: {t}" for name, t in zip(self.column_names, self.table.types)]
        return rows_html(self, names)

    def _ipython_key_completions_(self) -> list[Any]:
        """The first keys: plain values of a unary relation, else tuples."""
        return [row[0] if len(row) == 1 else row for row in self._rows(_COMPLETED_KEYS)]

    def _named_columns(self) -> dict[str, np.ndarray]:
        """Columns in the order of iteration by distinct names; the tags come last, as `tag`."""
        with self._lock:
            return self._columns_by_name()

    def _columns_by_name(self) -> dict[str, np.ndarray]:
        fresh = FreshNames()
        names = [fresh(name or f"column_{i}") for i, name in enumerate(self.column_names)]
        named = {name: self._ordered(column) for name, column in zip(names, self.columns)}
        if self._tags is not None:
            fields = self._tags.dtype.names
            tags = {"": self._tags} if fields is None else {f"_{name}": self._tags[name] for name in fields}
            named.update((fresh(f"tag{name}"), self._ordered(column)) for name, column in tags.items())
        return named

    def to_pandas(self) -> Any:
        """A pandas DataFrame with one row a tuple, in the order of iteration.

        Columns are called as the variables of the query (`query path(0, x)`), else as the program declares
        (`type edge(source: usize, target: usize)`), else as the variables of the first rule's head, and `column_0`,
        `column_1`, ... where there is none of these; tags are the last column, `tag`, or columns `tag_NAME`, one a
        field. Raises MissingDependencyError without pandas.
        """
        pandas = optional_module("pandas", "pandas", "frames")
        with _texts_in_utf8():
            return pandas.DataFrame(self._named_columns(), index=pandas.RangeIndex(len(self)))

    def to_polars(self) -> Any:
        """A polars DataFrame with the rows and columns of `to_arrow`. Raises MissingDependencyError without polars."""
        polars = optional_module("polars", "polars")
        return polars.from_arrow(self.to_arrow())

    def to_torch(self) -> tuple[Any, ...]:
        """The columns [row] as tensors of torch, in no certain order, the tags last if there are any, a tensor each.

        Of a run on a device the columns are those on the device, which are not to be written to; nothing travels.
        Integers are int64, other numbers float64, bools bool. Raises TypeMismatchError for columns of other types, such
        as texts.
        """
        torch = optional_module("torch", "torch", "torch")

        for number, t in enumerate(self.table.types):
            if t.family not in ("signed", "unsigned", "float", "bool") or t.bits > 64:
                raise TypeMismatchError(
                    f"column {number} of the relation is {t}, which torch has not",
                    hint="number its values by another relation",
                )
        with self._lock:
            there = self.table.elsewhere
            columns = (
                [torch.from_numpy(self.table.column(c)) for c in range(len(self.table.types))]
                if there is None
                else list(there)
            )
            made = [
                words.view(torch.float64) if t.family == "float" else words.bool() if t.family == "bool" else words
                for words, t in zip(columns, self.table.types)
            ]
            tags = [] if self._tags is None else [self._tags]
            if tags and tags[0].dtype.names:
                tags = [tags[0][name] for name in tags[0].dtype.names]
            device = made[0].device if made else None
            return *made, *(torch.as_tensor(np.ascontiguousarray(tag)).to(device) for tag in tags)

    def to_arrow(self) -> Any:
        """A pyarrow Table with the rows and columns of `to_pandas`; texts are columns of strings."""
        with whole_import():
            import pyarrow as arrow

        with _texts_in_utf8():
            columns = {name: arrow_column(arrow, column) for name, column in self._named_columns().items()}
        return arrow.table(columns) if columns else arrow.table({"": arrow.nulls(len(self))}).select([])


def _head(relation: RelationView | SpilledRelation) -> list[tuple[str | None, list[str]]]:
    """The first rows as texts: the tag, None without tags, and the values."""
    tags = [tag_text(tag) if relation.has_tags else None for tag in relation.tag_list(_SHOWN_ROWS)]
    rows = chain.from_iterable(relation.shown_rows(_SHOWN_ROWS))
    return [(tag, list(row)) for tag, row in zip(tags, rows)]


def rows_text(relation: RelationView | SpilledRelation) -> str:
    """The first rows, with tags, on one line."""
    shown = [f"({', '.join(row)})" if tag is None else f"{tag}::({', '.join(row)})" for tag, row in _head(relation)]
    if len(relation) > len(shown):
        shown.append(f"... {len(relation)} in all")
    return "{" + ", ".join(shown) + "}"


def rows_html(relation: RelationView | SpilledRelation, names: Sequence[str]) -> str:
    """A table for notebooks: the first rows, with tags, under the names of the columns."""
    dots, tag_name = ["…"] * (len(names) > _SHOWN_COLUMNS), ["tag"] * relation.has_tags
    rows = [[*([] if tag is None else [tag]), *values[:_SHOWN_COLUMNS], *dots] for tag, values in _head(relation)]
    if not rows:
        return "<div>no rows</div>"
    if not names and not relation.has_tags:
        return "<div>true</div>"
    rest = len(relation) - len(rows)
    more = f"<div>… {rest:,} more {'row' if rest == 1 else 'rows'}</div>" if rest else ""
    return html.table([*tag_name, *names[:_SHOWN_COLUMNS], *dots], rows) + more


def shown_values(column: np.ndarray, t: ValueType) -> list[str]:
    """The values of a column as the language writes them."""
    if column.dtype.kind in "iu":
        return list(map(str, column.tolist()))
    if column.dtype == np.float32:
        # As few digits as distinguish the numbers of 32 bits: 0.1, and not the nearest of 64 bits.
        column = column.astype("U").astype(np.float64)
    if t.name == "Symbol":
        return [f"s{show_value(value)}" for value in column.tolist()]
    return list(map(show_character if t.family == "char" else show_value, column.tolist()))


def arrow_column(arrow: Any, column: np.ndarray) -> Any:
    """A column of values as an array of Arrow."""
    if column.dtype != object:
        return arrow.array(column)
    if len(column) and not isinstance(column[0], str):
        return _arrow_objects(arrow, column)
    distinct = dict.fromkeys(column)
    if len(distinct) * 4 > len(column) and isinstance(column[0], str):
        return arrow.array(column, arrow.string())
    # Each text, or term, is converted once.
    index = {text: i for i, text in enumerate(distinct)}
    positions = np.fromiter(map(index.__getitem__, column), np.int64, len(column))
    return arrow.array(list(map(str, distinct)), arrow.string()).take(arrow.array(positions))


def _arrow_objects(arrow: Any, column: np.ndarray) -> Any:
    """Durations as Arrow's, or, if some have months, as texts; tensors as nested lists; integers as decimals; anything
    else as its text."""
    if all(isinstance(value, int) for value in column):
        from decimal import Decimal

        return arrow.array(map(Decimal, column), arrow.decimal256(39))
    if all(isinstance(value, dt.timedelta) for value in column):
        return arrow.array(column.tolist(), arrow.duration("us"))
    if any(isinstance(value, Duration) for value in column):
        return arrow.array([str(Duration.of(value)) for value in column], arrow.string())
    if all(map(is_tensor, column)):
        return arrow.array([value.tolist() for value in column], _list_type(arrow, column))
    return arrow.array(list(map(str, column)), arrow.string())


def _list_type(arrow: Any, column: np.ndarray) -> Any:
    """The type of nested lists that keeps the numbers of tensors as they are; None where these are of several types."""
    kinds = {(str(value.dtype).removeprefix("torch."), len(value.shape)) for value in column}
    (name, depth), *others = kinds
    if others or name == "bfloat16" or name.startswith("complex"):
        return None
    arrow_type = arrow.from_numpy_dtype(np.dtype(name))
    for _ in range(depth):
        arrow_type = arrow.list_(arrow_type)
    return arrow_type


@contextmanager
def _texts_in_utf8() -> Iterator[None]:
    """Say in our words that a text cannot be stored as UTF-8."""
    try:
        yield
    except UnicodeEncodeError as error:
        raise DomainError(
            f"the text {error.object[:40]!r} has half of a surrogate pair, which a table in UTF-8 cannot hold",
            hint="correct the text, or take the values from `columns`",
        ) from None


class _Items:
    def __init__(self, view: RelationView):
        self.view = view

    def __len__(self) -> int:
        return len(self.view)

    def __iter__(self):
        with self.view._lock:
            return zip(iter(self.view), self.view.tag_list())
