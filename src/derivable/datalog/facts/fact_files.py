"""Files of facts: text in columns, Parquet and Arrow.

.csv             comma-separated, fields may be quoted
.tsv, .facts     tab-separated (Soufflé's form), or separated by spaces if there is no tab
.txt             the same; lines that start with # are comments
.parquet, .arrow, .feather   columns with names and types

Text files may be gzipped. A file with one column more than its relation has the probability of each fact in its first
column, or in the column named `tag` or `probability`. A first line that has the names of the relation's columns is a
header.

Arrow reads the text. Where it refuses something, the file is read again line by line: what is wrong is then said with
its line and column, and what Arrow is too strict for (spaces before a quote, say) is taken.
"""

from __future__ import annotations

import csv
import io
import json
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from derivable.core.diagnostics import DomainError, ParseError, Span
from derivable.core.files import read_bytes
from derivable.core.lazy import importing
from derivable.core.registry import suggestion
from derivable.datalog.facts.column_names import TAG_NAMES, are_like, listed, places_by_name
from derivable.datalog.facts.inputs import Columns, Texts, arrow_column
from derivable.datalog.rules.nodes import Attribute, Relation
from derivable.datalog.values.values import ValueType

if TYPE_CHECKING:
    pass

TEXT_ENDINGS = (".csv", ".tsv", ".facts", ".txt")
COLUMN_ENDINGS = (".parquet", ".arrow", ".feather")
ENDINGS = (*TEXT_ENDINGS, *COLUMN_ENDINGS)
_MISSING = ("", "nan", "na", "n/a", "null", "none")
# What separates columns in files of other programs.
_DELIMITERS = (";", "\t", ",", "|")
_TRUTH = {"true": True, "false": False, "1": True, "0": False}
# Files of fewer bytes are read line by line: importing Arrow takes longer.
_FEW_BYTES = 1 << 16
# The columns of larger files are not kept for another run.
_KEPT_BYTES = 1 << 25


@dataclass(frozen=True)
class FileForm:
    """How a file of facts is to be read.

    header           whether the first line has names; None if that is to be seen
    delimiter        one character; None for that of the file's ending
    has_probability  whether there is a column of probabilities; None if there is one column more
    is_named         with None, only a column whose name says so has probabilities
    keys             names of columns that say whose values the others are: each other column is then facts
                     (keys ..., name of the column, value), all texts in the last two
    fields           names of the columns to take, the others are left out
    """

    header: bool | None = None
    delimiter: str | None = None
    has_probability: bool | None = None
    keys: tuple[str, ...] = ()
    fields: tuple[str, ...] = ()
    is_named: bool = False


@dataclass(frozen=True)
class FactFile(os.PathLike):
    """A file of facts with what its name does not say: `facts={"edge": FactFile("edges.csv", header=True)}`.

    path             of the file
    header           whether the first line has names of columns; None if that is to be seen: it has, if they are those
                     that the program declares
    delimiter        one character between the columns of a text; None for that of the file's ending
    has_probability  whether there is a column of probabilities; None if there is one column more than declared

    Raises DomainError for a delimiter that is not one character.
    """

    path: str | os.PathLike
    header: bool | None = None
    delimiter: str | None = None
    has_probability: bool | None = None

    def __post_init__(self) -> None:
        if self.delimiter is not None and len(self.delimiter) != 1:
            raise DomainError(f"the delimiter {self.delimiter!r} is not one character", hint='such as ";"')

    def __fspath__(self) -> str:
        return os.fspath(self.path)

    @property
    def form(self) -> FileForm:
        return FileForm(self.header, self.delimiter, self.has_probability)


@dataclass(frozen=True)
class _Target:
    """The relation that a file is for, and where messages point."""

    name: str
    types: Sequence[ValueType]
    column_names: Sequence[str | None]
    form: FileForm
    source: str

    def of_file(self, names: Sequence[str]) -> _Target:
        """What is known where the first line, or the columns, have these names."""
        if self.form.has_probability is not None or not self.form.is_named:
            return self
        named = len(names) == len(self.types) + 1 and any(n.strip() in TAG_NAMES for n in names)
        return replace(self, form=replace(self.form, has_probability=named))

    def width_error(self, found: int) -> str:
        wanted = len(self.types)
        shown = f"{found} column{'s' if found != 1 else ''}"
        if self.form.has_probability is None:
            return f"{shown}; `{self.name}` has {wanted} (or {wanted + 1}, the first one the probability)"
        return f"{shown}; `{self.name}` needs {wanted + self.form.has_probability}"

    def column(self, place: int) -> str:
        """A column for messages, with its name if it has one."""
        name = self.column_names[place] if place < len(self.column_names) else None
        return f"column {place + 1} ({name})" if name else f"column {place + 1}"

    def has_width(self, found: int) -> bool:
        extra = (0, 1) if self.form.has_probability is None else (int(self.form.has_probability),)
        return found - len(self.types) in extra


def declared(attribute: Attribute) -> tuple[str, FileForm]:
    """The path and the form that an attribute `@file` names."""
    given = dict(attribute.arguments)
    names = {
        key: (given[key],) if isinstance(given.get(key), str) else given.get(key, ()) for key in ("keys", "fields")
    }
    form = FileForm(given.get("header"), given.get("deliminator"), given.get("has_probability"), **names, is_named=True)
    if form.delimiter is not None and len(form.delimiter) != 1:
        raise DomainError(f"the delimiter {form.delimiter!r} is not one character", span=attribute.span)
    return given["path"], form


def read_declared(relation: Relation, attribute: Attribute, source: str, text: str) -> Columns:
    """The facts of the file that a relation's `@file` names; the path is relative to the working directory, or where
    that has no such file to the program's."""
    path, form = declared(attribute)
    places = [Path(path)]
    if source and not source.startswith("<"):
        places.append(Path(source).parent / path)
    place = next((p for p in places if p.is_file()), None)
    if place is None:
        looked = dict.fromkeys(str(p.absolute()) for p in places)
        raise ParseError(
            f"cannot find the file of `{relation.name}`",
            hint=f"looked for {' and '.join(looked)}",
            source=source,
            text=text,
            span=attribute.span,
        )
    status = place.stat()
    read = _read_again if status.st_size < _KEPT_BYTES else _read_again.__wrapped__
    key = (relation.name, relation.types, relation.column_names, form)
    return read(os.fspath(place), status.st_mtime_ns, status.st_size, *key)


@lru_cache(maxsize=8)
def _read_again(path: str, modified: int, size: int, *target: Any) -> Columns:
    """The facts of a file as it was then: a program that is run in a loop reads its files once."""
    return read_facts(path, *target)


def ending_of(path: Path) -> str:
    """The ending of a file's name in lower case, without that of gzip."""
    return os.path.splitext(path.name.lower().removesuffix(".gz"))[1]


def read_facts(
    path: str | os.PathLike,
    name: str,
    types: Sequence[ValueType],
    column_names: Sequence[str | None] = (),
    form: FileForm = FileForm(),
) -> Columns:
    """The facts of one file as columns, and their probabilities if the file has them.

    Raises ParseError with file, line and column for a wrong number of columns or a value that does not fit its type.
    """
    place = Path(path)
    target = _Target(name, types, column_names, form, os.fspath(path))
    if ending_of(place) in COLUMN_ENDINGS:
        return _from_columns(place, target)
    data, delimiter, is_csv = _text(place, form)
    is_plain = not (form.keys or form.fields or any(t.is_wide for t in target.types))
    found = None if not is_plain else _by_arrow(data, delimiter, is_csv, target)
    found = _by_lines(data, delimiter, is_csv, target) if found is None else found

    def line_of(row: int) -> dict[str, Any]:
        """Only a message needs the line, so the text is not kept for it."""
        again = _by_lines(*_text(place, form), target)
        return {} if again.place is None else again.place(row)

    return found if found.probabilities is None else replace(found, place=line_of)


def _text(place: Path, form: FileForm) -> tuple[bytes, str, bool]:
    """(the bytes of a file of text in columns, what separates these, whether fields may be quoted)."""
    data = read_bytes(place).removeprefix(b"\xef\xbb\xbf")
    is_csv = form.delimiter is not None or ending_of(place) == ".csv"
    if not is_csv:
        data = _tabbed(data, comments=ending_of(place) == ".txt")
    return data, form.delimiter or ("," if is_csv else "\t"), is_csv


def _tabbed(data: bytes, comments: bool) -> bytes:
    """Data with tabs between columns; lines stay where they are."""
    data = data.replace(b"\r\n", b"\n")
    if comments and b"#" in data:
        data = re.sub(rb"(?m)^#.*$", b"", data)
    if b"\t" not in data:
        data = re.sub(rb"(?m)^ +| +$", b"", data)
        data = re.sub(rb" +", b"\t", data)
    return data


# By Arrow


def _by_arrow(data: bytes, delimiter: str, is_csv: bool, target: _Target) -> Columns | None:
    """The columns if Arrow takes the file as it is; None if it is small or Arrow refuses something."""
    # Nothing of the data, which may be large, is copied but its first line.
    start = next((at for at, byte in enumerate(data) if byte not in b"\n\r"), len(data))
    end = data.find(b"\n", start)
    first = data[start : len(data) if end < 0 else end].decode("utf-8", "replace")
    names = next(csv.reader([first], delimiter=delimiter, quoting=_quoting(is_csv)), [])
    target = target.of_file(names)
    has_texts = any(t.family in ("text", "char") for t in target.types)
    if (
        len(data) < _FEW_BYTES
        or not target.types
        or not target.has_width(len(names))
        or (is_csv and has_texts and f"{delimiter} ".encode() in data)
    ):
        return None
    with importing():
        import pyarrow as arrow
        from pyarrow import csv as arrow_csv

    of_type = {"float": arrow.float64(), "bool": arrow.bool_(), "signed": arrow.int64(), "unsigned": arrow.uint64()}
    of_small = {"signed": arrow.int32(), "unsigned": arrow.uint32()}
    try:
        header = _is_header(names, target)
        tag, places = _places(names if header else None, len(names), target)
    except ParseError:
        # Where it is wrong is said line by line.
        return None
    wanted = {
        place: (of_type if t.bits > 32 else of_type | of_small).get(t.family, arrow.string())
        for place, t in zip(places, target.types)
    }
    if tag is not None:
        wanted[tag] = arrow.float64()
    labels = [str(i) for i in range(len(names))]
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
        arrays = [arrow_column(target.name, labels[i], table.column(i)) for i in places]
    except arrow.ArrowInvalid:
        return None
    for array, t in zip(arrays, target.types):
        if isinstance(array, np.ndarray) and not _all_fit(array, t):
            return None
    probabilities = None
    if tag is not None:
        probabilities = np.asarray(arrow_column(target.name, labels[tag], table.column(tag)))
        if np.isnan(probabilities).any():
            return None
    return Columns(tuple(labels[: len(arrays)]), tuple(arrays), probabilities)


def _all_fit(array: np.ndarray, t: ValueType) -> bool:
    if t.family == "float":
        return not np.isnan(array).any()
    if t.is_integer and len(array):
        low, high = t.limits
        return low <= int(array.min()) and int(array.max()) <= high
    return True


def _from_columns(path: Path, target: _Target) -> Columns:
    with importing():
        import pyarrow as arrow

    try:
        if ending_of(path) == ".parquet":
            from pyarrow import parquet

            table = parquet.read_table(path)
        else:
            from pyarrow import feather

            table = feather.read_table(path)
    except (arrow.ArrowException, OSError) as error:
        raise ParseError(f"cannot read the file: {error}", source=target.source, hint="check the path") from None
    names = list(table.column_names)
    if target.form.fields or target.form.keys:
        rows = [tuple(map(str, row)) for row in zip(*(column.to_pylist() for column in table.columns))]
        return _selected([names, *rows], list(range(len(rows) + 1)), "", target)
    target = target.of_file(names)
    if not target.has_width(len(names)):
        raise ParseError(target.width_error(len(names)), source=target.source, hint=f"it has {', '.join(names)}")
    arrays = [arrow_column(target.name, n, table.column(i)) for i, n in enumerate(names)]
    tag, places = _places(names, len(names), target)
    probabilities = None if tag is None else _probabilities(arrays[tag], target)
    return Columns(tuple(names[i] for i in places), tuple(arrays[i] for i in places), probabilities)


def _probabilities(column: np.ndarray | Texts, target: _Target) -> np.ndarray:
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


def _by_lines(data: bytes, delimiter: str, is_csv: bool, target: _Target) -> Columns:
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ParseError(f"not UTF-8 text: {error}", source=target.source) from None
    rows, lines = _rows(text, delimiter, is_csv, target)
    if target.form.keys or target.form.fields:
        return _selected(rows, lines, text, target)
    first = rows[0] if rows else []
    target = target.of_file(first)
    header = bool(rows) and _is_header(first, target, text, lines[0])
    for row, line in zip(rows, lines):
        if not target.has_width(len(row)) or len(row) != len(first):
            message = target.width_error(len(row))
            if target.has_width(len(row)):
                message = f"{len(row)} columns, and {len(first)} in the first row"
            hint = f"the columns are separated by {_shown(delimiter)}"
            other = next((d for d in _DELIMITERS if len(row) == 1 and target.has_width(row[0].count(d) + 1)), None)
            if other is not None and other in row[0]:
                hint += (
                    f"; {_quoted(other)} separates them with `deliminator={_quoted(other)}` of `@file`, or in Python"
                )
                hint += f" `dv.datalog.FactFile(path, delimiter={_quoted(other)})`"
            if target.form.is_named and len(row) == len(target.types) + 1:
                hint = "if the first one is a probability, say `has_probability=true`"
            raise _error(message, target, text, line, hint=hint)
    if header:
        rows, lines = rows[1:], lines[1:]
    if not rows:
        return Columns(tuple(map(str, range(len(target.types)))), tuple(np.empty(0, object) for _ in target.types))
    tag, places = _places(first if header else None, len(first), target, text, lines[0])
    return _columns(rows, lines, tag, places, text, target)


def _columns(
    rows: Sequence, lines: list[int], tag: int | None, places: list[int], text: str, target: _Target
) -> Columns:
    """Columns of the texts at `places`, and the probabilities at `tag` if there are any."""
    arrays = tuple(
        _column([row[place] for row in rows], t, c, text, lines, target)
        for c, (place, t) in enumerate(zip(places, target.types))
    )
    probabilities = None
    if tag is not None:
        probabilities = np.array([_tag(row[tag], text, line, target) for row, line in zip(rows, lines)])

    def place(row: int) -> dict[str, Any]:
        span = _span(text, lines[row], "" if tag is None else rows[row][tag])
        return {"source": target.source, "text": text, "span": span}

    return Columns(tuple(map(str, range(len(arrays)))), arrays, probabilities, len(rows), place=place)


def _quoting(is_csv: bool) -> Any:
    return csv.QUOTE_MINIMAL if is_csv else csv.QUOTE_NONE


def _rows(text: str, delimiter: str, is_csv: bool, target: _Target) -> tuple[list[list[str]], list[int]]:
    """The fields of each row that is not empty, and the 1-based line it ends on."""
    rows, lines = [], []
    reader = csv.reader(
        io.StringIO(text, newline=""), delimiter=delimiter, skipinitialspace=is_csv, quoting=_quoting(is_csv)
    )
    try:
        for row in reader:
            if row and (is_csv or any(map(str.strip, row))):
                rows.append(row)
                lines.append(reader.line_num)
    except csv.Error as error:
        raise _error(f"cannot read the row: {error}", target, text, reader.line_num) from None
    return rows, lines


def _is_header(names: Sequence[str], target: _Target, text: str = "", line: int = 1) -> bool:
    """Whether the first line has names. Raises ParseError where it seems to have other ones than the declaration."""
    if target.form.header is not None:
        return target.form.header
    declared = [n for n in target.column_names if n is not None]
    if len(declared) != len(target.types) or not declared:
        return False
    found = [n.strip() for n in names]
    # A column with the probabilities has a name of its own.
    others = [n for n in found if n not in TAG_NAMES or n in declared]
    if set(declared) == set(others):
        return True
    # A text of one letter may be a value that happens to be called like a column.
    long = [name for name in declared if len(name) > 1]
    if are_like(others, long) or (len(others) == len(declared) and all(are_like([n], declared) for n in others)):
        hint = (
            "spell the names as the declaration does, or say whether it is a header: `header=` of `@file` or of"
            " `dv.datalog.FactFile`"
        )
        if set(declared) < set(others):
            fields = ", ".join(map(_quoted, declared))
            hint = f"to leave out the other columns, say `@file(path, header=true, fields=[{fields}])`"
        raise _error(
            f"the first line seems to be a header with the names {listed(found)}, and `{target.name}` has the columns"
            f" {listed(declared)}",
            target,
            text,
            line,
            hint=hint,
        )
    return False


def _places(
    names: Sequence[str] | None, count: int, target: _Target, text: str = "", line: int = 1
) -> tuple[int | None, list[int]]:
    """Where the probability is, None if there is none, and where each column is.

    Raises ParseError for names that fit the declaration in part.
    """
    there = list(range(count))
    labels = [n.strip() for n in names or ()]
    tag: int | None = None
    if count > len(target.types):
        named = [i for i, label in enumerate(labels) if label in TAG_NAMES and label not in target.column_names]
        tag = named[0] if named else 0
        there.remove(tag)
    if not labels:
        return tag, there
    others = [labels[i] for i in there]
    try:
        places = places_by_name(others, target.column_names)
    except ValueError:
        raise _error(
            f"the columns are named {listed(others)}, and those of `{target.name}` {listed(target.column_names)}",
            target,
            text,
            line,
            hint="give the columns the names of the declaration",
        ) from None
    return tag, there if places is None else [there[place] for place in places]


def _selected(rows: list, lines: list[int], text: str, target: _Target) -> Columns:
    """Some of the columns by name, or with keys a fact for each value: (keys ..., name, value)."""
    form = target.form
    if not rows:
        return Columns((), tuple(np.empty(0, object) for _ in target.types))
    names = [n.strip() for n in rows[0]]
    for name in (*form.keys, *form.fields):
        if name not in names:
            hint = suggestion(name, names, f"the first line has {', '.join(names)}")
            raise _error(f"the file has no column `{name}`", target, text, lines[0], hint=hint)
    fields = list(form.fields or (n for n in names if n not in form.keys and n not in TAG_NAMES))
    body, numbers = rows[1:], lines[1:]
    for row, line in zip(body, numbers):
        if len(row) != len(names):
            raise _error(f"{len(row)} columns, and {len(names)} in the first row", target, text, line)
    tag = next((i for i, n in enumerate(names) if n in TAG_NAMES), 0) if form.has_probability else None
    keys = [names.index(name) for name in form.keys]
    places = [names.index(field) for field in fields]
    if form.keys:
        width = len(form.keys) + 2
        tags = [] if tag is None else [tag]
        long = [
            [*(row[k] for k in keys), field, row[place], *(row[t] for t in tags)]
            for row in body
            for field, place in zip(fields, places)
        ]
        numbers = [line for line in numbers for _ in fields]
        body, tag, places = long, None if tag is None else width, list(range(width))
    else:
        width = len(fields)
    if width != len(target.types):
        raise _error(f"{width} columns are taken; `{target.name}` has {len(target.types)}", target, text, lines[0])
    return _columns(body, numbers, tag, places, text, target)


def _column(texts: list[str], t: ValueType, place: int, text: str, lines: list[int], target: _Target) -> np.ndarray:
    values = np.empty(len(texts), object)
    if t.family not in ("signed", "unsigned", "float", "bool"):
        values[:] = texts
        return values
    convert: Any = int if t.is_integer else float
    for i, (value, line) in enumerate(zip(texts, lines)):
        try:
            number = _TRUTH[value.strip().lower()] if t.family == "bool" else convert(value)
        except (ValueError, KeyError):
            number = None
        if number is None or number != number:
            hint = None
            if line == lines[0] and target.form.header is None:
                hint = "remove a header line or say `header=true` (`dv.datalog.FactFile(path, header=True)` in Python)"
                hint += ", or declare the column as String"
            message = f"{value!r} in {target.column(place)} is not of type {t}, which `{target.name}` has there"
            if value.strip().lower() in _MISSING:
                message = f"the value in {target.column(place)} is missing ({value!r})"
                hint = "a relation has no missing values: remove such lines"
            raise _error(message, target, text, line, value, hint=hint)
        if t.is_integer and not t.limits[0] <= number <= t.limits[1]:
            message = f"{value} in {target.column(place)} is too large or too small for {t}"
            hint = f"{t} holds {t.limits[0]} to {t.limits[1]}"
            raise _error(message, target, text, line, value, hint=hint)
        values[i] = number
    return values


def _tag(value: str, text: str, line: int, target: _Target) -> float:
    try:
        number = float(value)
    except ValueError:
        number = float("nan")
    if number != number:
        raise _error(f"{value!r} is not a number, which a tag is", target, text, line, value)
    return number


def _quoted(text: str) -> str:
    return json.dumps(text)


def _shown(delimiter: str) -> str:
    return {",": "commas", "\t": "tabs (or, where no line has one, by spaces)"}.get(delimiter, repr(delimiter))


def _error(message: str, target: _Target, text: str, line: int, value: str = "", hint: str | None = None) -> ParseError:
    if not text:
        return ParseError(message, source=target.source, hint=hint)
    return ParseError(message, source=target.source, text=text, span=_span(text, line, value), hint=hint)


def _span(text: str, line: int, value: str = "") -> Span:
    """Where a value is in a line, or the line."""
    shown = text.split("\n")[line - 1]
    column = max(shown.find(value), 0) + 1 if value else 1
    return Span(line, column, max(1, len(value) or len(shown.rstrip())))
