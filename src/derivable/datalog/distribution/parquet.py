"""Facts in files of Parquet, a batch of rows at a time, and the same rows by the keys of a column."""

from __future__ import annotations

import glob
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from derivable.core.diagnostics import BindingError, ParseError, TypeMismatchError, UnsupportedError
from derivable.core.lazy import later
from derivable.datalog.distribution.keys import is_text, keys_of_integers, keys_of_texts
from derivable.datalog.values.values import ValueType

arrow: Any = later("pyarrow")
parquet: Any = later("pyarrow.parquet")
ipc: Any = later("pyarrow.ipc")
compute: Any = later("pyarrow.compute")
# Rows that are read at a time.
BATCH = 1 << 16
# The column of keys of rows that were written by them.
KEY = "derivable_key"
# Spark's names of Arrow's types, by which columns are checked.
_TYPES = {
    "int8": "tinyint",
    "int16": "smallint",
    "int32": "int",
    "int64": "bigint",
    "uint8": "smallint",
    "uint16": "int",
    "uint32": "bigint",
    "uint64": "decimal(20,0)",
    "halffloat": "float",
    "float": "float",
    "double": "double",
    "bool": "boolean",
    "string": "string",
    "large_string": "string",
    "string_view": "string",
    "date32[day]": "date",
    "date64[ms]": "date",
}


@dataclass(frozen=True, eq=False)
class ParquetFiles:
    """Files of the same columns.

    types      column -> its type, as Spark calls it
    schema     the columns in Arrow, of types that hold those of all files
    num_rows   of all of them
    num_bytes  of their columns in memory, about
    """

    paths: tuple[Path, ...]
    types: Mapping[str, str]
    schema: Any
    num_rows: int
    num_bytes: int

    @staticmethod
    def of(name: str, path: str | os.PathLike) -> ParquetFiles:
        """The facts of a relation in a file, in those of a folder, or in those of a pattern such as `edges/*.parquet`.

        Raises BindingError if there are none, ParseError for one that is not of Parquet, TypeMismatchError for columns
        that differ between files, UnsupportedError for tables in folders that Parquet says nothing of.
        """
        what = f"facts for `{name}`"
        paths = _files(what, os.fspath(path))
        types: dict[str, str] = {}
        schemas: list[Any] = []
        num_rows = num_bytes = 0
        for number, one in enumerate(paths):
            with _reading(one):
                metadata = parquet.read_metadata(one)
                schema = metadata.schema.to_arrow_schema()
                here = dict(zip(schema.names, map(_type, schema.types)))
                num_rows += metadata.num_rows
                num_bytes += sum(metadata.row_group(g).total_byte_size for g in range(metadata.num_row_groups))
            if number and here != types:
                shown = ", ".join(f"{column} {kind}" for column, kind in here.items())
                expected = ", ".join(f"{column} {kind}" for column, kind in types.items())
                raise TypeMismatchError(
                    f"{what}: {one} has the columns {shown}, and {paths[0]} has {expected}",
                    hint="write them with the same columns, or give one of them",
                )
            types = here
            schemas.append(schema)
        num_bytes = max(num_bytes, 8 * num_rows * len(types))
        return ParquetFiles(tuple(paths), types, _common(schemas), num_rows, num_bytes)

    @property
    def state(self) -> list[tuple[str, int, int]]:
        """Path, bytes and time of change of each file."""
        files = [(path, path.stat()) for path in self.paths]
        return [(os.fspath(path.absolute()), status.st_size, status.st_mtime_ns) for path, status in files]

    def batches(self, columns: Sequence[str]) -> Iterator[Any]:
        """Batches of these columns, in this order."""
        schema = self._schema(columns)
        for path in self.paths:
            with _reading(path), parquet.ParquetFile(path, pre_buffer=False) as file:
                for batch in file.iter_batches(BATCH, columns=list(columns), use_threads=False):
                    yield batch.select(list(columns)).cast(schema)

    def table(self, columns: Sequence[str]) -> Any:
        """All rows of these columns."""
        return arrow.Table.from_batches(list(self.batches(columns)), self._schema(columns))

    def _schema(self, columns: Sequence[str]) -> Any:
        return arrow.schema([self.schema.field(name) for name in columns])


def is_parquet(facts: Any) -> bool:
    """Whether facts are a path, or a pattern, of Parquet."""
    if not isinstance(facts, (str, os.PathLike)) or not isinstance(os.fspath(facts), str):
        return False
    path = os.fspath(facts)
    return path.lower().endswith((".parquet", ".parquet/")) or os.path.isdir(path) or glob.has_magic(path)


def _files(what: str, path: str) -> list[Path]:
    if os.path.isdir(path):
        folder = Path(path)
        files = sorted(p for p in folder.rglob("*.parquet") if p.is_file() and not p.name.startswith((".", "_")))
        columns = sorted({part for p in files for part in p.relative_to(folder).parts[:-1] if "=" in part})
        if columns:
            raise UnsupportedError(
                f"{what}: folders of {path} have values of a column in their names, such as {columns[0]}",
                hint="write it without partitions of its own, or give one of its folders",
            )
    else:
        files = [Path(p) for p in sorted(glob.glob(path, recursive=True)) if os.path.isfile(p)]
    for folder in {parent for file in files for parent in file.absolute().parents[:2]}:
        if (folder / "_delta_log").is_dir():
            hint = 'run it with engine="sail" or on Spark, or write the table as Parquet'
            raise UnsupportedError(f"{what}: {folder} is a table of Delta, which an engine reads", hint=hint)
    if not files:
        there = "no files of Parquet in" if os.path.isdir(path) else "no"
        raise BindingError(
            f"{what}: there is {there} {path}",
            hint="give the path of a file or folder of Parquet, or `edges/*.parquet`",
        )
    return files


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    try:
        yield
    except (arrow.ArrowException, OSError, UnicodeDecodeError) as error:
        raise ParseError(f"cannot read the file: {error}", source=os.fspath(path), hint="check the path") from None


def _common(schemas: Sequence[Any]) -> Any:
    """The schema of all files of such schemas, whose columns have the same names."""
    first = schemas[0].remove_metadata()
    if all(schema.equals(first) for schema in schemas):
        return first
    plain = [arrow.schema([(field.name, _plain(field.type)) for field in schema]) for schema in schemas]
    return arrow.unify_schemas(plain, promote_options="permissive")


def _plain(kind: Any) -> Any:
    """A type that can be had in common with other ones: without a dictionary, moments in UTC."""
    kind = _decoded(kind)
    return arrow.timestamp(kind.unit, "UTC") if arrow.types.is_timestamp(kind) and kind.tz is not None else kind


def _decoded(kind: Any) -> Any:
    return kind.value_type if arrow.types.is_dictionary(kind) else kind


def _type(kind: Any) -> str:
    kind = _decoded(kind)
    if arrow.types.is_timestamp(kind):
        return "timestamp_ntz" if kind.tz is None else "timestamp"
    if arrow.types.is_decimal(kind):
        return f"decimal({kind.precision},{kind.scale})"
    return _TYPES.get(str(kind), str(kind))


def keys_of_column(column: Any, t: ValueType, count: int) -> np.ndarray:
    """[row] the keys of an array of Arrow, as `keys.keys_of` has them; of missing values, which are no facts, any."""
    if arrow.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if is_text(t):
        encoded = column.dictionary_encode()
        keys = keys_of_texts(encoded.dictionary.to_pylist() or [""], count)
        return keys[compute.fill_null(encoded.indices, 0).to_numpy(zero_copy_only=False)]
    if t.family == "bool":
        column = column.cast(arrow.int8())
    numbers = compute.fill_null(column.cast(arrow.uint64() if t.name in ("u64", "usize") else arrow.int64()), 0)
    return keys_of_integers(numbers.to_numpy(zero_copy_only=False), count)


def write_by_keys(
    batches: Iterator[Any],
    keys: Callable[[Any], np.ndarray],
    count: int,
    parts: int,
    folder: Path,
    look: Callable[[int], Any],
) -> None:
    """Write rows to a folder of `parts` files, each with those of its share of `count` keys, whole or not at all.

    keys  of a batch, [row] in range(count)
    look  called with the number of rows after each batch
    """
    unfinished = folder.with_name(folder.name + ".unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir(parents=True)
    width = -(-count // parts)
    with ExitStack() as stack:
        writers: dict[int, Any] = {}
        for batch in batches:
            key = keys(batch)
            part = key // width
            order = np.argsort(part, kind="stable")
            table = batch.append_column(KEY, arrow.array(key)).take(arrow.array(order))
            numbers, starts = np.unique(part[order], return_index=True)
            for number, start, end in zip(numbers.tolist(), starts, [*starts[1:], len(order)]):
                if number not in writers:
                    file = stack.enter_context(arrow.OSFile(os.fspath(unfinished / f"{number}.arrow"), "wb"))
                    writers[number] = stack.enter_context(ipc.new_stream(file, table.schema))
                writers[number].write_batch(table.slice(start, end - start))
            look(batch.num_rows)
    unfinished.rename(folder)


def read_by_keys(folder: Path, low: int, high: int, count: int, parts: int, look: Callable[[int], Any]) -> Any:
    """The rows of keys from `low` to below `high`, of what `write_by_keys` has written; None if there are none.

    look  called with the bytes of rows that were read so far
    """
    width = -(-count // parts)
    batches, size = [], 0
    for number in range(low // width, -(-high // width)):
        path = folder / f"{number}.arrow"
        if not path.exists():
            continue
        with arrow.OSFile(os.fspath(path), "rb") as file, ipc.open_stream(file) as stream:
            for batch in stream:
                key = batch.column(batch.num_columns - 1).to_numpy()
                is_here = (key >= low) & (key < high)
                if not is_here.any():
                    continue
                rows = batch if is_here.all() else batch.filter(arrow.array(is_here))
                batches.append(rows.drop_columns([KEY]))
                size += rows.nbytes
                look(size)
    return arrow.Table.from_batches(batches) if batches else None
