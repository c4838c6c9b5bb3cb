"""Tables of Parquet files, read with limits and with the columns of few texts as numbers of these."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from derivable.core.lazy import whole_import
from derivable.datalog.facts.inputs import is_string
from derivable.datalog.policy.costs import policy

# Rows that show whether a column has few texts.
_FIRST_ROWS = 4096


def parquet_table(path: Path, look: Callable[..., Any] | None) -> Any:
    """The Arrow table of a Parquet file; `look` checks limits, as in `fact_files.read_facts`.

    Raises exceptions of Arrow's, OSError and UnicodeDecodeError for a damaged file.
    """
    with whole_import():
        from pyarrow import parquet

    with parquet.ParquetFile(path, read_dictionary=_with_dictionaries(path)) as file:
        return file.read() if look is None else _in_batches(file, look)


def _in_batches(file: Any, look: Callable[..., Any]) -> Any:
    """The table of a Parquet file. A few bytes may stand for any number of equal rows, so limits are checked."""
    with whole_import():
        import pyarrow as arrow

    if file.metadata.num_rows * file.metadata.num_columns < policy().most_at_once:
        look(file.metadata.num_rows)
        return file.read()
    batches = []
    for batch in file.iter_batches(max(1, policy().most_at_once // file.metadata.num_columns)):
        batches.append(batch)
        look(len(batch))
    return arrow.Table.from_batches(batches, file.schema_arrow)


def _with_dictionaries(path: Path) -> list[str]:
    """The columns of a Parquet file that have numbers of few texts, and are read as such: few in its first rows.

    How many bytes a column takes is not read: of a damaged file, that ends the process within Arrow.
    """
    from pyarrow import parquet

    with parquet.ParquetFile(path) as file:
        schema = file.schema_arrow
        texts = [field.name for field in schema if is_string(field.type)]
    if not texts or len(set(schema.names)) < len(schema):
        return []
    with parquet.ParquetFile(path, read_dictionary=texts) as file:
        rows = next(file.iter_batches(_FIRST_ROWS, columns=texts), None)
    if rows is None:
        return []
    columns = dict(zip(rows.schema.names, rows.columns))
    return [name for name in texts if name in columns and 2 * len(columns[name].dictionary) <= len(rows)]
