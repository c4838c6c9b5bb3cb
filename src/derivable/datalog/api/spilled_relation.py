"""Relations on disk: files of Parquet, of which a batch of rows at a time is in memory."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from derivable.core.diagnostics import AbsentTupleError
from derivable.core.files import atomic_write, checked_path
from derivable.core.lazy import later, optional_module
from derivable.datalog.api.relation_view import arrow_column, rows_html, rows_text, shown_values
from derivable.datalog.distribution.keys import keys_of
from derivable.datalog.facts.inputs import as_tuple
from derivable.datalog.facts.words import checked_words
from derivable.datalog.values.symbols import SymbolTable
from derivable.datalog.values.terms import show_value
from derivable.datalog.values.values import ValueType, fits, show_column

if TYPE_CHECKING:
    from derivable.datalog.api.relation_view import RelationView
    from derivable.datalog.rules.nodes import Relation

arrow: Any = later("pyarrow")
parquet: Any = later("pyarrow.parquet")
compute: Any = later("pyarrow.compute")
# Rows of a batch, and of a group of a file.
ROWS = 1 << 17


class SpilledRelation(Mapping):
    """An output of a run that went partition by partition: files of Parquet in `folder`, and a mapping from tuples to
    tags that reads them a batch at a time.

    `len` is that of the files' footers, `in` and `[]` read the file that would have the tuple, `batches` and the order
    of iteration are those of the files. `to_arrow`, `to_pandas` and `to_polars` have all rows in memory.
    """

    def __init__(
        self,
        relation: Relation,
        schema: Any,
        folder: Path,
        pivots: tuple[int, ...],
        num_keys: int,
        view: Callable[[Any], RelationView],
    ):
        """
        pivots  the columns whose keys say in which file a row is; none: there is one file
        view    from a table of rows
        """
        self._view = view
        self.name, self.folder, self.schema = relation.name, folder, schema
        self._relation, self._pivots, self._num_keys = relation, pivots, num_keys

    @cached_property
    def _files(self) -> dict[tuple[int, int], Path]:
        """(first key, end of the keys) -> the file with their rows."""
        return files_of(self.folder)

    @cached_property
    def _num_rows(self) -> int:
        return sum(parquet.read_metadata(path).num_rows for path in self._files.values())

    @property
    def types(self) -> tuple[ValueType, ...]:
        """The types of its columns."""
        return self._relation.types

    @property
    def has_tags(self) -> bool:
        """Whether tuples have other tags than True; the tags are then the last column."""
        return len(self.schema) > max(1, len(self.types)) or (not self.types and self.schema.names[0] != "holds")

    @property
    def nbytes(self) -> int:
        """Bytes of its files."""
        return sum(path.stat().st_size for path in self._files.values())

    def batches(self) -> Iterator[Any]:
        """Its rows as record batches of Arrow, one row a tuple, some at a time; the tags are the last column, `tag`."""
        for path in self._files.values():
            yield from self._batches(path)

    def _batches(self, path: Path, columns: list[str] | None = None) -> Iterator[Any]:
        with parquet.ParquetFile(path, pre_buffer=False) as file:
            yield from file.iter_batches(ROWS, columns=columns, use_threads=False)

    def views(self) -> Iterator[RelationView]:
        """Its rows as relations in memory, some at a time."""
        for batch in self.batches():
            yield self._view(arrow.Table.from_batches([batch]))

    @cached_property
    def collected(self) -> RelationView:
        """The relation in memory, whose order of iteration is that of its tuples."""
        return self._view(self.to_arrow())

    def to_arrow(self) -> Any:
        """All rows as a table of Arrow, in memory."""
        return arrow.Table.from_batches(list(self.batches()), self.schema)

    def to_pandas(self) -> Any:
        """All rows as a DataFrame of pandas, in memory. Raises MissingDependencyError without pandas."""
        optional_module("pandas", "pandas", "frames")
        return self.to_arrow().to_pandas()

    def to_polars(self) -> Any:
        """All rows as a DataFrame of polars, in memory. Raises MissingDependencyError without polars."""
        return optional_module("polars", "polars").from_arrow(self.to_arrow())

    def to_parquet(self, path: str | os.PathLike) -> None:
        """Write all rows to one file, whole or not at all, a batch at a time."""
        with atomic_write(checked_path(path), "wb") as file, parquet.ParquetWriter(file, self.schema) as writer:
            for batch in self.batches():
                writer.write_batch(batch)

    def __len__(self) -> int:
        return self._num_rows

    def _tuples(self, batch: Any) -> Iterator[tuple[Any, ...]]:
        columns = [batch.column(c).to_pylist() for c in range(len(self.types))]
        return zip(*columns) if columns else iter([()] * batch.num_rows)

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        return chain.from_iterable(map(self._tuples, self.batches()))

    def items(self) -> Any:
        return _Items(self)

    def tag_list(self, count: int | None = None) -> list[Any]:
        """The first `count` tags in the order of iteration; None for all."""
        tags = chain.from_iterable(
            batch.column(len(batch.schema) - 1).to_pylist() if self.has_tags else [True] * batch.num_rows
            for batch in self.batches()
        )
        return list(islice(tags, count))

    def shown_rows(self, count: int | None = None) -> Iterator[list[tuple[str, ...]]]:
        """The first `count` tuples, None for all, as the language writes them, in parts."""
        left = self._num_rows if count is None else count
        for batch in self.batches():
            if left <= 0:
                return
            part = batch.slice(0, left)
            left -= part.num_rows
            arrays = (part.column(c).to_numpy(zero_copy_only=False) for c in range(len(self.types)))
            columns = list(map(shown_values, arrays, self.types))
            yield list(zip(*columns)) if columns else [()] * part.num_rows

    def _row(self, key: Any) -> tuple[bool, Any]:
        """Whether a tuple is there, and its tag."""
        values = as_tuple(key)
        types = self.types
        if len(values) != len(types) or not all(fits(v, t) for v, t in zip(values, types)):
            return False, None
        owner, symbols = np.zeros(1, np.int64), SymbolTable()
        words = checked_words(self._relation, [[value] for value in values], symbols)
        for column in self._pivots:
            owner = mixed(owner, keys_of(words[column], types[column], symbols, self._num_keys), self._num_keys)
        shown = [arrow_column(arrow, show_column(w, t, symbols)) for w, t in zip(words, types)]
        wanted = [column.cast(field.type)[0] for column, field in zip(shown, self.schema)]
        for (low, high), path in self._files.items():
            if not low <= owner[0] < high:
                continue
            for batch in self._batches(path):
                is_here = arrow.array(np.ones(batch.num_rows, bool))
                for column, value in zip(batch.columns, wanted):
                    is_here = compute.and_(is_here, compute.equal(column, value))
                row = compute.index(is_here, True).as_py()
                if row >= 0:
                    return True, batch.columns[-1][row].as_py() if self.has_tags else True
        return False, None

    def __contains__(self, key: object) -> bool:
        return self._row(key)[0]

    def __getitem__(self, key: Any) -> Any:
        is_there, tag = self._row(key)
        if not is_there:
            shown = ", ".join(map(show_value, as_tuple(key)))
            raise AbsentTupleError(f"{self.name}({shown}) is not derived", hint="`in` says whether a tuple is there")
        return tag

    def __repr__(self) -> str:
        return rows_text(self)

    def _repr_html_(self) -> str:
        return rows_html(self, self.schema.names[: len(self.types)])


class _Items:
    def __init__(self, relation: SpilledRelation):
        self.relation = relation

    def __len__(self) -> int:
        return len(self.relation)

    def __iter__(self) -> Iterator[tuple[tuple[Any, ...], Any]]:
        relation = self.relation
        for batch in relation.batches():
            tags = batch.column(len(batch.schema) - 1).to_pylist() if relation.has_tags else [True] * batch.num_rows
            yield from zip(relation._tuples(batch), tags)


def mixed(owner: Any, keys: Any, num_keys: int) -> Any:
    """The key of a row from that of its columns before one, and the keys of this."""
    return (owner * 31 + keys) % num_keys


def files_of(folder: Path) -> dict[tuple[int, int], Path]:
    """(first key, end of the keys) -> the file with the rows of these, in their order."""
    files = {}
    for path in folder.glob("*-*.parquet"):
        low, _, high = path.stem.partition("-")
        files[int(low), int(high)] = path
    return dict(sorted(files.items()))


def file_of(folder: Path, low: int, high: int) -> Path:
    """The file with the rows of keys from `low` to below `high`."""
    return folder / f"{low:07}-{high:07}.parquet"
