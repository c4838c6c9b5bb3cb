"""Files of facts: text in columns, Parquet and Arrow.

.csv             comma-separated, fields may be quoted
.tsv, .facts     tab-separated (Soufflé's form), or separated by spaces if there is no tab
.txt             the same; lines that start with # are comments
.parquet, .arrow, .feather   columns with names and types

Text files may be gzipped. A file with one column more than its relation has the probability of each fact in its first
column, or in the column named `tag` or `probability`. `headers` says when the first line is a header.

A kernel reads decimal numbers and texts without quotes, and Arrow what is not as plain. Where it refuses something,
the file is read again line by line: what is wrong is then said with its line and column, and what Arrow is too strict
for (spaces before a quote, say) is taken.
"""

from __future__ import annotations

import csv
import io
import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from derivable.core.diagnostics import DomainError, ParseError
from derivable.core.files import is_file, read_beginning, read_bytes, utf8_text
from derivable.core.lazy import whole_import
from derivable.core.locks import OwnLock
from derivable.core.numbers import number_of
from derivable.core.registry import suggestion
from derivable.datalog.facts.column_names import TAG_NAMES
from derivable.datalog.facts.file_forms import (
    AS_IT_IS,
    NO_COLUMNS,
    FactFile,
    FileForm,
    Target,
    file_error,
    quoted,
    separation,
    span_in,
    with_newlines,
)
from derivable.datalog.facts.headers import HEAD_BYTES, MARK, MISSING, TRUTH, FileText, columns_of, is_header, is_name
from derivable.datalog.facts.inputs import Columns, Texts, arrow_column, arrow_hint
from derivable.datalog.facts.parquet_files import parquet_table
from derivable.datalog.facts.plain_fields import LARGEST, all_fit, plain_columns
from derivable.datalog.policy.costs import policy
from derivable.datalog.rules.nodes import Attribute, Relation
from derivable.datalog.values.values import TYPES, ValueType

_READERS = {
    ".parquet": "parquet.read_table",
    ".arrow": "feather.read_table",
    ".feather": "feather.read_table",
}
TEXT_ENDINGS = (".csv", ".tsv", ".facts", ".txt")
COLUMN_ENDINGS = (".parquet", ".arrow", ".feather")
ENDINGS = (*TEXT_ENDINGS, *COLUMN_ENDINGS)
# How values are written whose columns have no type.
_FORMS = {"i64": r"[+-]?\d+", "bool": "true|false", "f64": r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?"}
_HEADER_HINT = (
    "remove a header line or say `header=true` (`dv.datalog.FactFile(path, header=True)` in Python), or declare the"
    " column as String"
)
# What separates columns in files of other programs.
_DELIMITERS = (";", "\t", ",", "|")
# The columns of larger files are not held in memory for another run.
_CACHED_BYTES = 1 << 25
# Files whose columns are in memory, the one that was read longest ago first.
_CACHED_FILES = 8
_files_read: dict[tuple, Columns] = {}
_limit_lock = OwnLock()


def declared(attribute: Attribute) -> tuple[str, FileForm]:
    """The path and the form that an attribute `@file` names."""
    arguments = dict(attribute.arguments)
    names = {
        key: (arguments[key],) if isinstance(arguments.get(key), str) else arguments.get(key, ())
        for key in ("keys", "fields")
    }
    values = arguments.get("header"), arguments.get("deliminator"), arguments.get("has_probability")
    form = FileForm(*values, **names, is_named=True, quotes=arguments.get("quotes"))
    if form.delimiter is not None and len(form.delimiter) != 1:
        raise DomainError(f"the delimiter {form.delimiter!r} is not one character", span=attribute.span)
    return arguments["path"], form


def read_declared(
    relation: Relation, attribute: Attribute, source: str, text: str, look: Callable[..., Any] | None = None
) -> Columns:
    """The facts of the file that a relation's `@file` names; the path is relative to the working directory, or where
    that has no such file to the program's. `look` is as in `read_facts`."""
    path, form = declared(attribute)
    paths = [Path(path)]
    if source and not source.startswith("<"):
        paths.append(Path(source).parent / path)
    file = next((p for p in paths if is_file(p)), None)
    if file is None:
        looked = dict.fromkeys(str(p.absolute()) for p in paths)
        raise ParseError(
            f"cannot find the file of `{relation.name}`",
            hint=f"looked for {' and '.join(looked)}",
            source=source,
            text=text,
            span=attribute.span,
        )
    status = file.stat()
    target = relation.name, relation.types, relation.column_names, form
    key = os.fspath(file), status.st_mtime_ns, status.st_size, *target
    # A program that is run in a loop reads its files once.
    columns = _files_read.pop(key, None) or read_facts(file, *target, look)
    if status.st_size < _CACHED_BYTES:
        _files_read[key] = columns
        while len(_files_read) > _CACHED_FILES:
            _files_read.pop(next(iter(_files_read)), None)
    return columns


def ending_of(path: Path) -> str:
    """The ending of a file's name in lower case, without that of gzip."""
    return os.path.splitext(path.name.lower().removesuffix(".gz"))[1]


def read_facts(
    path: str | os.PathLike,
    name: str,
    types: Sequence[ValueType],
    column_names: Sequence[str | None] = (),
    form: FileForm = AS_IT_IS,
    look: Callable[..., Any] | None = None,
) -> Columns:
    """The facts of one file as columns, and their probabilities if the file has them.

    look  checks limits while the file is read and decompressed; its argument is the number of rows that were read since

    Raises ParseError with file, line and column for a wrong number of columns or a value that does not fit its type.
    """
    path_of_file = Path(path)
    target = Target(name, types, column_names, form, os.fspath(path))
    if ending_of(path_of_file) in COLUMN_ENDINGS:
        return _from_columns(path_of_file, target, look)
    text = _text(path_of_file, form, look)
    is_plain = not (form.keys or form.fields or any(t.is_wide for t in target.types))
    columns = _by_columns(text, target) if is_plain else None
    columns = _by_lines(text, target) if columns is None else columns

    def line_of(row: int) -> dict[str, Any]:
        """Only a message needs the line, so the text is not held for it."""
        again = _by_lines(_text(path_of_file, form), target)
        return {} if again.location is None else again.location(row)

    return columns if columns.probabilities is None else replace(columns, location=line_of)


def types_in(path: str | os.PathLike, name: str, types: Sequence[ValueType]) -> tuple[str, ...] | None:
    """Types, or families, of a file's columns for a relation whose types are not known: those of its schema, or
    what the first rows of a text may be; None for another number of columns, and for a file that cannot be read.
    """
    file, form = Path(path), path.form if isinstance(path, FactFile) else AS_IT_IS
    target = Target(name, types, (), form, os.fspath(path))
    if ending_of(file) in COLUMN_ENDINGS:
        schema = _schema(file)
        names, hints = [n for n, _ in schema], [arrow_hint(t) for _, t in schema]
    else:
        rows = [
            [field.strip() for field in row] for row in _text_of(read_beginning(file, HEAD_BYTES), file, form).lines
        ]
        rows = [row for row in rows if row != [""]]
        names = [field.strip('"') for field in rows[0]] if rows else []
        rows = [row for row in rows if len(row) == len(names)]
        hints = [_hint([row[c] for row in rows]) for c in range(len(names))]
    if form.keys or not (form.fields or target.has_width(len(names))):
        return None
    positions = _chosen(names, target)[2] if form.fields else columns_of(names, len(names), target)[1]
    return tuple(hints[index] for index in positions)


def _hint(fields: list[str]) -> str:
    """The type of a column of a text without types, whose first field may be a name."""
    for part in (fields, fields[1:]):
        for hint, form in _FORMS.items():
            if part and all(re.fullmatch(form, field, re.IGNORECASE | re.ASCII) for field in part):
                return hint
    return "text"


def _text(path: Path, form: FileForm, look: Callable[..., Any] | None = None) -> FileText:
    """A file of text in columns."""
    file = _text_of(read_bytes(path, look), path, form)
    if look is not None:
        # One line may be a header.
        look(max(0, file.num_lines - 1))
    return file


def _text_of(data: bytes, path: Path, form: FileForm) -> FileText:
    ending = ending_of(path)
    is_marked, data = data.startswith(MARK), data.removeprefix(MARK)
    delimiter, is_csv = separation(ending, form)
    if not is_csv and b"\r" in data:
        data = data.replace(b"\r\n", b"\n")
    if not is_csv and form.delimiter is None and ending != ".csv":
        data = _tabbed(data, comments=ending == ".txt")
    return FileText(data, delimiter, is_csv, is_marked)


def _tabbed(data: bytes, comments: bool) -> bytes:
    """Data with tabs between columns; lines stay where they are."""
    if comments and b"#" in data:
        data = re.sub(rb"(?m)^#.*$", b"", data)
    if b"\t" not in data:
        data = re.sub(rb"(?m)^ +| +$", b"", data)
        data = re.sub(rb" +", b"\t", data)
    return data


# By columns


# A quote between two other signs: behind it a quoted field would go on, which the readers of lines refuse.
_IN_A_FIELD = re.compile(rb'[^",;\t\r\n]"[^",;\t\r\n]')


def _by_columns(file: FileText, target: Target) -> Columns | None:
    """The columns if a kernel or Arrow takes the file as it is; None if it is small or Arrow refuses something."""
    data, delimiter, is_csv = file.data, file.delimiter, file.is_csv
    # Nothing of the data, which may be large, is copied but its first line.
    start = next((at for at, byte in enumerate(data) if byte not in b"\n\r"), len(data))
    end = data.find(b"\n", start)
    first = data[start : len(data) if end < 0 else end].decode("utf-8", "replace")
    with _fields_of(len(first)):
        # A carriage return in it is an error that `_rows` reports.
        names = next(csv.reader([first.replace("\r", " ")], delimiter=delimiter, quoting=_quoting(is_csv)), [])
    target = target.of_file(names)
    has_texts = any(t.family in ("text", "char") for t in target.types)
    if (
        len(data) < policy().many
        or not target.types
        or not target.has_width(len(names))
        or (is_csv and has_texts and (f"{delimiter} ".encode() in data or _IN_A_FIELD.search(data)))
    ):
        return None
    try:
        header = is_header(names, target, file)
        tag, positions = columns_of(names if header else None, len(names), target)
    except ParseError:
        # Where it is wrong is said line by line.
        return None
    labels = [str(i) for i in range(len(names))]
    if "\r" not in first[:-1] and not (is_csv and b'"' in data):
        begin = start if not header else len(data) if end < 0 else end
        of_columns = {tag: TYPES["f64"], **dict(zip(positions, target.types))}
        columns = plain_columns(data, begin, delimiter, [of_columns[i] for i in range(len(names))], file.num_lines)
        if columns is not None:
            tags: Any = None if tag is None else columns[tag]
            return Columns(tuple(labels[: len(positions)]), tuple(columns[i] for i in positions), tags)
    with whole_import():
        import pyarrow as arrow
        from pyarrow import csv as arrow_csv

    of_type = {"float": arrow.float64(), "bool": arrow.bool_(), "signed": arrow.int64(), "unsigned": arrow.uint64()}
    of_small = {"signed": arrow.int32(), "unsigned": arrow.uint32()}
    wanted = {
        index: (of_type if t.bits > 32 else of_type | of_small).get(t.family, arrow.string())
        for index, t in zip(positions, target.types)
    }
    if tag is not None:
        wanted[tag] = arrow.float64()
    try:
        table = arrow_csv.read_csv(
            arrow.BufferReader(data),
            arrow_csv.ReadOptions(column_names=labels, skip_rows=int(header)),
            arrow_csv.ParseOptions(delimiter=delimiter, quote_char='"' if is_csv else False, newlines_in_values=is_csv),
            arrow_csv.ConvertOptions(
                column_types={labels[i]: t for i, t in wanted.items()},
                null_values=[],
                true_values=["true", "True", "TRUE", "1"],
                false_values=["false", "False", "FALSE", "0"],
            ),
        )
        arrays = [arrow_column(target.name, labels[i], table.column(i)) for i in positions]
    except arrow.ArrowInvalid:
        return None
    for array, t in zip(arrays, target.types):
        if isinstance(array, np.ndarray) and not all_fit(array, t):
            return None
    probabilities = None
    if tag is not None:
        probabilities = np.asarray(arrow_column(target.name, labels[tag], table.column(tag)))
        if np.isnan(probabilities).any():
            return None
    return Columns(tuple(labels[: len(arrays)]), tuple(arrays), probabilities)


def _schema(path: Path) -> list[tuple[str, Any]]:
    """Names and types of a file of columns; none of one that cannot be read."""
    with whole_import():
        import pyarrow as arrow
        from pyarrow import ipc, parquet

    try:
        if ending_of(path) == ".parquet":
            schema = parquet.read_schema(path)
        else:
            with arrow.memory_map(os.fspath(path)) as file:
                schema = ipc.open_file(file).schema
        return list(zip(schema.names, schema.types))
    except (arrow.ArrowException, OSError, UnicodeDecodeError):
        return []


def _from_columns(path: Path, target: Target, look: Callable[..., Any] | None) -> Columns:
    with whole_import():
        import pyarrow as arrow

    try:
        if ending_of(path) == ".parquet":
            table = parquet_table(path, look)
        else:
            from pyarrow import feather

            table = feather.read_table(path)
            if look is not None:
                look(table.num_rows)
        # Names of a damaged file may be no UTF-8, and its offsets may lead out of its memory.
        names = list(table.column_names)
        table.validate(full=True)
    except (arrow.ArrowException, OSError, UnicodeDecodeError) as error:
        raise ParseError(f"cannot read the file: {error}", source=target.source, hint="check the path") from None
    if not target.types and names == [NO_COLUMNS]:
        return Columns((), (), count=table.num_rows)
    if target.form.keys:
        rows = [tuple(map(str, row)) for row in zip(*(column.to_pylist() for column in table.columns))]
        return _selected([names, *rows], list(range(len(rows) + 1)), "", target)
    if target.form.fields:
        tag, _, positions = _chosen(names, target)
    else:
        target = target.of_file(names)
        if not target.has_width(len(names)):
            raise ParseError(target.width_error(len(names)), source=target.source, hint=f"it has {', '.join(names)}")
        tag, positions = columns_of(names, len(names), target)
    hint = f"a relation has no missing values: give `pyarrow.{_READERS[ending_of(path)]}({path.name!r}).drop_null()`,"
    hint += " the table without such rows, as the facts"
    arrays = {
        i: arrow_column(target.name, names[i], table.column(i), hint, target.source)
        for i in (tag, *positions)
        if i is not None
    }
    probabilities = None if tag is None else _probabilities(arrays[tag], target)
    if target.form.fields:
        # They are in the order of the relation's columns, whatever they are called.
        names = list(map(str, range(len(names))))
    return Columns(
        tuple(names[i] for i in positions), tuple(arrays[i] for i in positions), probabilities, table.num_rows
    )


def _probabilities(column: np.ndarray | Texts, target: Target) -> np.ndarray:
    if isinstance(column, np.ndarray) and column.dtype.kind in "fiu":
        column = column.astype(np.float64)
        missing = np.flatnonzero(np.isnan(column))
        if not len(missing):
            return column
        message = f"row {missing[0]}: the tag is missing"
    else:
        message = f"the column of probabilities of `{target.name}` holds no numbers"
    raise ParseError(message, source=target.source)


# Line by line


def _by_lines(file: FileText, target: Target) -> Columns:
    text = utf8_text(file.data, target.source)
    delimiter = file.delimiter
    rows, lines = _rows(text, delimiter, file.is_csv, target)
    if target.form.keys or target.form.fields:
        return _selected(rows, lines, text, target)
    first = rows[0] if rows else []
    target = target.of_file(first)
    header = bool(rows) and is_header(first, target, file, text, lines[0])
    for row, line in zip(rows, lines):
        if not target.has_width(len(row)) or len(row) != len(first):
            message = target.width_error(len(row))
            if target.has_width(len(row)):
                message = f"{len(row)} columns, and {len(first)} in the first row"
            hint = f"the columns are separated by {_shown(delimiter)}"
            other = next((d for d in _DELIMITERS if len(row) == 1 and target.has_width(row[0].count(d) + 1)), None)
            if other is not None and other in row[0]:
                hint += f"; {quoted(other)} separates them with `deliminator={quoted(other)}` of `@file`, or in Python"
                hint += f" `dv.datalog.FactFile(path, delimiter={quoted(other)})`"
            if target.form.is_named and len(row) == len(target.types) + 1:
                hint = "if the first one is a probability, say `has_probability=true`"
            raise file_error(message, target, text, line, hint=hint)
    if header:
        rows, lines = rows[1:], lines[1:]
    if not rows:
        return Columns(tuple(map(str, range(len(target.types)))), tuple(np.empty(0, object) for _ in target.types))
    tag, positions = columns_of(first if header else None, len(first), target, text, lines[0])
    return _columns(rows, lines, tag, positions, text, target)


def _columns(
    rows: Sequence, lines: list[int], tag: int | None, positions: list[int], text: str, target: Target
) -> Columns:
    """Columns of the texts at `positions`, and the probabilities at `tag` if there are any."""
    arrays = tuple(
        _column([row[index] for row in rows], t, c, text, lines, target)
        for c, (index, t) in enumerate(zip(positions, target.types))
    )
    probabilities = None
    if tag is not None:
        probabilities = np.array([_tag(row[tag], text, line, target) for row, line in zip(rows, lines)])

    def location(row: int) -> dict[str, Any]:
        shown = with_newlines(text)
        span = span_in(shown, lines[row], "" if tag is None else rows[row][tag])
        return {"source": target.source, "text": shown, "span": span}

    return Columns(tuple(map(str, range(len(arrays)))), arrays, probabilities, len(rows), location=location)


@contextmanager
def _fields_of(length: int) -> Iterator[None]:
    """Have the csv module, whose limit is one of the process, read fields of this length."""
    with _limit_lock:
        before = csv.field_size_limit()
        csv.field_size_limit(max(before, length))
        try:
            yield
        finally:
            csv.field_size_limit(before)


def _quoting(is_csv: bool) -> Any:
    return csv.QUOTE_MINIMAL if is_csv else csv.QUOTE_NONE


def _rows(text: str, delimiter: str, is_csv: bool, target: Target) -> tuple[list[list[str]], list[int]]:
    """The fields of each row that is not empty, and the 1-based line it ends on."""
    rows, lines = [], []
    reader = csv.reader(
        io.StringIO(text, newline=""),
        delimiter=delimiter,
        skipinitialspace=is_csv,
        quoting=_quoting(is_csv),
        strict=True,
    )
    try:
        with _fields_of(len(text)):
            for row in reader:
                if row and (is_csv or len(row) > 1 or row[0].strip()):
                    # A fact of a relation without columns is written `()`, as Soufflé does.
                    rows.append([] if not target.types and row == [NO_COLUMNS] else row)
                    lines.append(reader.line_num)
    except csv.Error as error:
        raise file_error(f"cannot read the row: {error}", target, text, reader.line_num) from None
    return rows, lines


def _chosen(
    names: Sequence[str], target: Target, text: str = "", line: int = 1
) -> tuple[int | None, list[int], list[int]]:
    """Where the probability, the keys and the other columns are that the form of a file names.

    Raises ParseError for a name that the file has not, and for another number of columns than the relation's.
    """
    form = target.form
    for name in (*form.keys, *form.fields):
        if name not in names:
            hint = suggestion(name, names, f"the first line has {', '.join(names)}")
            raise file_error(f"the file has no column `{name}`", target, text, line, hint=hint)
    tags = [i for i, n in enumerate(names) if n in TAG_NAMES and n not in (*form.keys, *form.fields)]
    tag = None if form.has_probability is False or not (tags or form.has_probability) else [*tags, 0][0]
    fields = [names.index(field) for field in form.fields]
    keys = [names.index(name) for name in form.keys]
    if not fields:
        fields = [i for i in range(len(names)) if i not in keys and i != tag and i not in tags]
    width = len(keys) + 2 if keys else len(fields)
    if width != len(target.types):
        count = "1 column is" if width == 1 else f"{width} columns are"
        raise file_error(f"{count} taken; `{target.name}` has {len(target.types)}", target, text, line)
    return tag, keys, fields


def _selected(rows: list, lines: list[int], text: str, target: Target) -> Columns:
    """Some of the columns by name, or with keys a fact for each value: (keys ..., name, value)."""
    if not rows:
        return Columns((), tuple(np.empty(0, object) for _ in target.types))
    names = [n.strip() for n in rows[0]]
    tag, keys, positions = _chosen(names, target, text, lines[0])
    body, numbers = rows[1:], lines[1:]
    for row, line in zip(body, numbers):
        if len(row) != len(names):
            raise file_error(f"{len(row)} columns, and {len(names)} in the first row", target, text, line)
    if keys:
        width = len(keys) + 2
        tags = [] if tag is None else [tag]
        long = [
            [*(row[k] for k in keys), names[index], row[index], *(row[t] for t in tags)]
            for row in body
            for index in positions
        ]
        numbers = [line for line in numbers for _ in positions]
        body, tag, positions = long, None if tag is None else width, list(range(width))
    return _columns(body, numbers, tag, positions, text, target)


def _column(texts: list[str], t: ValueType, column: int, text: str, lines: list[int], target: Target) -> np.ndarray:
    values = np.empty(len(texts), object)
    if t.family not in ("signed", "unsigned", "float", "bool"):
        if texts and target.form.header is None and is_name(texts[0], t):
            message = f"{texts[0]!r} in {target.column(column)} is not of type {t}, which `{target.name}` has there"
            raise file_error(message, target, text, lines[0], texts[0], hint=_HEADER_HINT)
        values[:] = texts
        return values
    convert: Any = int if t.is_integer else float
    for i, (value, line) in enumerate(zip(texts, lines)):
        try:
            number = TRUTH[value.strip().lower()] if t.family == "bool" else convert(value)
            if "_" in value or not value.isascii():
                # Python's ways to write numbers that no program of the language has.
                number = None
        except (ValueError, KeyError):
            number = None
        if number is None or number != number:
            hint = None
            if line == lines[0] and target.form.header is None:
                hint = _HEADER_HINT
            message = f"{value!r} in {target.column(column)} is not of type {t}, which `{target.name}` has there"
            if value.strip().lower() in MISSING:
                message = f"the value in {target.column(column)} is missing ({value!r})"
                hint = "a relation has no missing values: remove such lines"
            raise file_error(message, target, text, line, value, hint=hint)
        if t.is_integer and not t.limits[0] <= number <= t.limits[1]:
            message = f"{value} in {target.column(column)} is too large or too small for {t}"
            hint = f"{t} holds {t.limits[0]} to {t.limits[1]}"
            raise file_error(message, target, text, line, value, hint=hint)
        if t.family == "float" and abs(number) > LARGEST[t.bits] and "inf" not in value.lower():
            message = f"{value} in {target.column(column)} is too large for {t}"
            hint = f"{t} holds numbers up to {LARGEST[t.bits]:.3g}; an infinity is written inf"
            raise file_error(message, target, text, line, value, hint=hint)
        values[i] = number
    return values


def _tag(value: str, text: str, line: int, target: Target) -> float:
    try:
        number = number_of(value)
    except ValueError:
        number = float("nan")
    if number != number:
        raise file_error(f"{value!r} is not a number, which a tag is", target, text, line, value)
    return number


def _shown(delimiter: str) -> str:
    return {",": "commas", "\t": "tabs (or, where no line has one, by spaces)"}.get(delimiter, repr(delimiter))
