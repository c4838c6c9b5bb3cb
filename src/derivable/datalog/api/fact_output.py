"""Relations written to files: text in columns, Parquet and Arrow. See `fact_files` for the endings.

What is written here is read there as the same facts. A .csv has quotes round every text and none round the names of
the header, by which it is known; where no quote could tell, a byte order mark does.
"""

from __future__ import annotations

import io
import os
import re
from typing import TYPE_CHECKING, Any

import pyarrow as arrow
from pyarrow import compute as arrow_compute

from derivable.core.diagnostics import DerivableError, UnsupportedError
from derivable.core.files import atomic_write, checked_path
from derivable.datalog.facts.fact_files import COLUMN_ENDINGS, ENDINGS
from derivable.datalog.facts.file_forms import AS_IT_IS, NO_COLUMNS, FileForm, Target, separation
from derivable.datalog.facts.headers import MARK, FileText, is_header
from derivable.datalog.policy.costs import policy
from derivable.datalog.values.datetimes import Duration

if TYPE_CHECKING:
    from derivable.datalog.api.relation_view import RelationView

# Type checkers do not see its functions, which are made when it is imported.
compute: Any = arrow_compute
# Rows by which it is seen whether a reader would know the first line for what it is.
_ROWS = 200


def write_facts(view: RelationView, path: str | os.PathLike, form: FileForm = AS_IT_IS) -> None:
    """Write a relation to a file whose ending says how, whole or not at all; tags come first, as `tag`.

    form  of a file of text: its delimiter, and whether there is a header. None for one where there are tags, or where
          the first row would be taken for one

    Raises UnsupportedError for an ending that is none of `ENDINGS`, if the file is to be compressed, and for values
    that a file of this kind cannot hold.
    """
    path = checked_path(path)
    ending = os.path.splitext(path.name.lower())[1]
    if ending not in ENDINGS:
        raise UnsupportedError(
            f"cannot tell the format of {path.name!r} from its ending", hint=f"end it in {', '.join(ENDINGS)}"
        )
    table = view.to_arrow()
    if view.tags is not None:
        extra = table.num_columns - len(view.columns)
        names = table.column_names
        table = table.select([*names[-extra:], *names[:-extra]])
        if "tag" in names[:-1] and extra == 1 and "probability" not in names:
            # A reader knows either name for that of the tags.
            table = table.rename_columns(["probability", *names[:-1]])
    with atomic_write(path, "wb") as file:
        if ending in COLUMN_ENDINGS:
            _write_columns(table, file, ending)
            return
        try:
            _write_text(view, table, file, ending, form)
        except arrow.ArrowInvalid as error:
            raise _cannot_hold(path.name, str(error)) from None
        except _Unfit as error:
            raise _cannot_hold(path.name, str(error)) from None


class _Unfit(Exception):
    """A value that a line of text cannot hold."""


def _cannot_hold(name: str, reason: str) -> UnsupportedError:
    return UnsupportedError(
        f"{name} cannot hold the values of this relation: {reason}", hint="write a .csv or .parquet file"
    )


def _write_columns(table: Any, file: Any, ending: str) -> None:
    if not table.num_columns:
        # A file of Parquet has no rows without a column.
        table = arrow.table({NO_COLUMNS: arrow.nulls(table.num_rows, arrow.bool_())})
    if ending == ".parquet":
        from pyarrow import parquet

        parquet.write_table(table, file)
    else:
        from pyarrow import feather

        feather.write_feather(table, file)


def _write_text(view: RelationView, table: Any, file: Any, ending: str, form: FileForm) -> None:
    if not table.num_columns:
        file.write(f"{NO_COLUMNS}\n".encode() * table.num_rows)
        return
    for position, field in enumerate(table.schema):
        if arrow.types.is_duration(field.type):
            texts = [str(Duration.of(value)) for value in table.column(position).to_pylist()]
            table = table.set_column(position, field.name, arrow.array(texts, arrow.string()))
    delimiter, is_csv = separation(ending, form)
    write = _write_csv if is_csv else _write_lines

    def is_seen(header: str, names: tuple[str | None, ...]) -> bool:
        """Whether a relation with such names would take the first line for a header."""
        sample = io.BytesIO()
        sample.write(header.encode())
        write(table.slice(0, _ROWS), sample, delimiter, ending)
        text = FileText(sample.getvalue(), delimiter, is_csv)
        first = [field.removeprefix('"').removesuffix('"') for field in (text.lines or [[]])[0]]
        try:
            return is_header(first, Target("", view.table.types, names, AS_IT_IS, ""), text)
        except DerivableError:
            return True

    has_header = form.header
    if has_header is None:
        has_header = view.tags is not None or is_seen("", view.column_names)
    if has_header:
        header = f"{delimiter.join(table.column_names)}\n"
        if is_csv and not is_seen(header, (None,) * len(view.table.types)):
            file.write(MARK)
            header += "\n" * (not table.num_rows)
        file.write(header.encode())
    write(table, file, delimiter, ending)


def _write_csv(table: Any, file: Any, delimiter: str, ending: str) -> None:
    from pyarrow import csv

    # The names, which Arrow would quote, are written before.
    csv.write_csv(table, file, csv.WriteOptions(include_header=False, delimiter=delimiter, quoting_style="needed"))


def _write_lines(table: Any, file: Any, delimiter: str, ending: str) -> None:
    """Lines without quotes, in which a reader of this kind of file finds the same values."""
    columns = [_as_words(column.combine_chunks()) for column in table.columns]
    is_narrow = len(columns) == 1
    for position, column in enumerate(columns):
        wrong = f"[{re.escape(delimiter)}\n\r]" + r"| |^\s*$" * is_narrow + "|^#" * (ending == ".txt" and not position)
        bad = compute.index(compute.match_substring_regex(column, wrong), True).as_py()
        if bad >= 0:
            raise _Unfit(f"{column[bad].as_py()!r} would be read as something else")
    if table.num_rows:
        lines = columns[0] if is_narrow else compute.binary_join_element_wise(*columns, delimiter)
        step = policy().chunk
        for start in range(0, len(lines), step):
            file.write("\n".join([*lines[start : start + step].to_pylist(), ""]).encode())


def _as_words(column: Any) -> Any:
    """A column as texts; dates without a space."""
    texts = column.cast(arrow.string())
    return compute.replace_substring(texts, " ", "T") if arrow.types.is_timestamp(column.type) else texts
