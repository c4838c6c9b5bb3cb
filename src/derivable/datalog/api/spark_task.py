"""What an engine calls for each of its partitions: rows in, rows out, as batches of Arrow."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from derivable.core.diagnostics import DerivableError, UnsupportedError
from derivable.core.lazy import later
from derivable.datalog.api.partitions import PartitionRun, partition_errors
from derivable.datalog.api.relation_view import RelationView, arrow_column
from derivable.datalog.facts.inputs import taken
from derivable.datalog.values.values import ValueType

arrow: Any = later("pyarrow")

# Columns of the rows that partitions get: whose they are, and of which relation; KEYS for the keys alone.
KEY, SOURCE = "derivable_key", "derivable_source"
KEYS = -1
_BATCH = 1 << 20


@dataclass(frozen=True, eq=False)
class Task:
    """The work of each partition; it is pickled.

    sources  split relation -> its columns among those of the rows, and the names that these have there
    names    of the columns of the result
    """

    run: PartitionRun
    sources: Mapping[str, tuple[tuple[str, str], ...]]
    names: tuple[str, ...]

    def rows(self, batches: Iterable[Any]) -> Iterator[Any]:
        """The batches of the result of a partition."""
        filled = [batch for batch in batches if batch.num_rows]
        if not filled:
            return
        table = arrow.Table.from_batches(filled)
        keys = np.unique(table.column(KEY).to_numpy())
        facts: dict[str, Any] = {}
        if self.sources:
            source = table.column(SOURCE).to_numpy()
            for number, (name, columns) in enumerate(self.sources.items()):
                part = table.filter(arrow.array(source == number)).select([column for column, _ in columns])
                with partition_errors():
                    facts |= taken({name: part.rename_columns([label for _, label in columns])})
        view = self.run.run(keys, facts)
        yield from _batches(view, self.run.partition.target.relation, self.names)


def function_of(task: Task) -> Callable[[Iterable[Any]], Iterator[Any]]:
    """The function that an engine calls with the batches of a partition."""
    # Pickled here: an engine has rules of pickling for what its function holds.
    packed = _pickled(task)

    def rows(batches: Iterable[Any]) -> Iterator[Any]:
        from derivable.datalog.api.spark_task import run_packed

        return run_packed(packed, batches)

    return rows


def _pickled(task: Task) -> bytes:
    try:
        return pickle.dumps(task)
    except Exception:
        # User-defined semirings and functions: PySpark's pickle takes what is written in a notebook.
        from pyspark.cloudpickle import dumps

        return dumps(task)


def run_packed(packed: bytes, batches: Iterable[Any]) -> Iterator[Any]:
    """The rows of a partition, for a task as `function_of` has packed it."""
    return _unpacked(packed).rows(batches)


@lru_cache(maxsize=4)
def _unpacked(packed: bytes) -> Task:
    return pickle.loads(packed)


def _batches(view: RelationView, name: str, names: tuple[str, ...]) -> Iterator[Any]:
    """The rows of a relation of the program of that name."""
    columns = [engine_column(column, t, name) for column, t in zip(view.columns, view.table.types)]
    if view.tags is not None:
        columns += [_tags(name, view.tags)]
    elif not columns:
        columns = [arrow.array(np.ones(len(view), bool))]
    table = arrow.table(dict(zip(names, columns)))
    yield from table.to_batches(max_chunksize=_BATCH)


def engine_column(column: np.ndarray, t: ValueType, relation: str) -> Any:
    """Values of a type as an array of Arrow that engines take: without unsigned integers.

    Raises UnsupportedError for those beyond 64 bits with a sign.
    """
    if t.family in ("text", "char"):
        return arrow_column(arrow, column).cast(arrow.string())
    if t.family == "datetime":
        return arrow.array(column.astype("M8[us]"))
    if t.family == "unsigned":
        wider = np.dtype(f"i{min(8, 2 * t.bits // 8)}")
        if t.bits == 64 and len(column) and int(column.max()) >> 63:
            raise _too_large(relation, int(column.max()))
        return arrow.array(column.astype(wider))
    return arrow.array(column)


def _tags(name: str, tags: np.ndarray) -> Any:
    if tags.dtype == object:
        try:
            return arrow.array(tags.astype(np.int64))
        except OverflowError:
            raise _too_large(name, max(tags)) from None
    return arrow.array(tags)


def _too_large(relation: str, value: Any) -> DerivableError:
    return UnsupportedError(
        f"`{relation}` has {value}, and the integers of the engine have 64 bits with a sign",
        hint="leave out the engine",
    )
