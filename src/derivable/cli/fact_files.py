"""Facts from a directory: one file a relation, named after it.

.csv          comma-separated, fields may be quoted
.facts, .txt  tab-separated (Soufflé's form), or separated by spaces if there is no tab; in .txt, lines that
              start with # are comments

A file with one column more than its relation has the probability of each fact in its first column.
"""

from __future__ import annotations

import contextlib
import csv
import io
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from derivable.core.diagnostics import ParseError, Span
from derivable.core.files import read_bytes
from derivable.datalog.values import ValueType

ENDINGS = (".csv", ".facts", ".txt")


def facts_from(directory: str | os.PathLike, types_of: Mapping[str, Sequence[ValueType]]) -> dict[str, Any]:
    """Facts for `Program.run` from the files in `directory` that are named after a relation in `types_of`.

    Raises ParseError with file, line and column for a wrong number of columns or a value that does not fit
    its type, if two files are for one relation, and if no file is for any.
    """
    folder = Path(directory)
    if not folder.is_dir():
        raise ParseError("not a directory", source=os.fspath(directory), hint="--facts takes a folder of fact files")
    paths: dict[str, Path] = {}
    others = []
    for path in sorted(folder.iterdir()):
        name = path.name.removesuffix(".gz")
        stem, ending = os.path.splitext(name)
        if ending not in ENDINGS or not path.is_file():
            continue
        if stem not in types_of:
            others.append(path.name)
            continue
        if stem in paths:
            raise ParseError(
                f"two files for the relation `{stem}`: {paths[stem].name} and {path.name}", source=os.fspath(folder)
            )
        paths[stem] = path
    if not paths:
        found = f"; it has {', '.join(others[:5])}" if others else ""
        raise ParseError(
            f"no file is named after a relation of the program{found}",
            source=os.fspath(folder),
            hint=f"the relations are {', '.join(types_of)}; name a file RELATION.csv, RELATION.facts or RELATION.txt",
        )
    return {name: read_facts(path, name, types_of[name]) for name, path in paths.items()}


def read_facts(path: Path, name: str, types: Sequence[ValueType]) -> Any:
    """The facts of one file: an array [row, column] for integers without probabilities, else a list of tuples."""
    source = os.fspath(path)
    try:
        text = read_bytes(path).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ParseError(f"not UTF-8 text: {error}", source=source) from None
    is_csv = ".csv" in path.suffixes[-2:]
    rows, lines = _rows(text, is_csv, comments=".txt" in path.suffixes[-2:])
    widths = {len(types), len(types) + 1}
    for row, line in zip(rows, lines):
        if len(row) not in widths or len(row) != len(rows[0]):
            wanted = f"{len(types)} (or {len(types) + 1}, the first one the probability)"
            raise _error(
                f"{len(row)} columns; `{name}` has {wanted}"
                if len(row) not in widths
                else f"{len(row)} columns, and {len(rows[0])} in the first row",
                source,
                text,
                line,
                hint="the columns of a .csv file are separated by commas, those of .facts and .txt by tabs",
            )
    if not rows:
        return []
    tagged = len(rows[0]) == len(types) + 1
    columns: list[Any] = []
    for place, kind in enumerate(types):
        texts = [row[place + tagged] for row in rows]
        columns.append(_column(texts, kind, name, place, source, text, lines))
    if not tagged and columns and all(kind.is_integer for kind in types):
        return np.stack(columns, axis=1)
    tuples = list(zip(*(column.tolist() if isinstance(column, np.ndarray) else column for column in columns)))
    if not columns:
        tuples = [()] * len(rows)
    if not tagged:
        return tuples
    tags = [_probability(row[0], source, text, line) for row, line in zip(rows, lines)]
    return list(zip(tags, tuples))


def _rows(text: str, is_csv: bool, comments: bool) -> tuple[list[list[str]], list[int]]:
    """The fields of each row that is not empty, and the 1-based line it ends on."""
    rows, lines = [], []
    if is_csv:
        reader = csv.reader(io.StringIO(text), skipinitialspace=True)
        for row in reader:
            if row:
                rows.append(row)
                lines.append(reader.line_num)
        return rows, lines
    tabs = "\t" in text
    for number, line in enumerate(text.split("\n"), 1):
        line = line.rstrip("\r")
        if not line.strip() or (comments and line.startswith("#")):
            continue
        rows.append(line.split("\t") if tabs else line.split())
        lines.append(number)
    return rows, lines


def _column(texts: list[str], kind: ValueType, name: str, place: int, source: str, text: str, lines: list[int]) -> Any:
    if kind.family in ("text", "char"):
        return texts
    if kind.family == "bool":
        known = {"true": True, "false": False, "1": True, "0": False}
        convert: Any = lambda value: known[value.strip().lower()]  # noqa: E731
    else:
        convert = int if kind.is_integer else float
        # A text that is no number is found one by one below, for its line.
        with contextlib.suppress(ValueError, OverflowError):
            return np.array(texts).astype(np.int64 if kind.is_integer else np.float64)
    values = []
    for value, line in zip(texts, lines):
        try:
            values.append(convert(value))
        except (ValueError, KeyError):
            raise _error(
                f"{value!r} in column {place + 1} is not of type {kind}, which `{name}` has there",
                source,
                text,
                line,
                value,
                hint="remove a header line, or declare the column as String" if line == lines[0] else None,
            ) from None
    return values


def _probability(value: str, source: str, text: str, line: int) -> float:
    try:
        number = float(value)
    except ValueError:
        number = float("nan")
    if not 0 <= number <= 1:
        raise _error(f"{value!r} is not a probability in [0, 1]", source, text, line, value)
    return number


def _error(message: str, source: str, text: str, line: int, value: str = "", hint: str | None = None) -> ParseError:
    shown = text.split("\n")[line - 1]
    column = max(shown.find(value), 0) + 1 if value else 1
    span = Span(line, column, max(1, len(value) or len(shown.rstrip())))
    return ParseError(message, source=source, text=text, span=span, hint=hint)
