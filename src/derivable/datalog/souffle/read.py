"""Facts that `.input` names: files of lines, JSON, SQLite, standard input."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any

from derivable.core.diagnostics import DomainError, ParseError
from derivable.core.files import is_file, read_bytes, utf8_text
from derivable.core.json_text import json_of
from derivable.core.lazy import whole_import
from derivable.core.roots import Roots
from derivable.datalog.facts.file_forms import span_in
from derivable.datalog.facts.headers import num_lines
from derivable.datalog.facts.inputs import Columns, Texts
from derivable.datalog.facts.plain_fields import plain_columns
from derivable.datalog.souffle import nodes as n
from derivable.datalog.souffle.load import Loaded
from derivable.datalog.souffle.types import WORDS
from derivable.datalog.souffle.values import NoValueError, Values
from derivable.datalog.values.terms import Entity
from derivable.datalog.values.values import TYPES

_OPTIONS = {
    "input": ("IO", "filename", "name", "delimiter", "rfc4180", "columns", "headers", "compress", "dbname", "format"),
    "output": ("IO", "filename", "name", "delimiter", "rfc4180", "headers", "compress", "dbname", "format"),
}
_IGNORED = ("attributeNames", "operation", "params", "types", "fact-dir", "output-dir", "auxArity")
_KINDS = {"input": ("file", "stdin", "json", "sqlite"), "output": ("file", "stdout", "json", "sqlite")}


class Options:
    """What a directive says, checked."""

    def __init__(self, directive: n.Directive, loaded: Loaded):
        self.directive, self.loaded = directive, loaded
        self.relation = directive.relation
        self.declared = loaded.types.relations[directive.relation]
        self.types = loaded.types.columns(directive.relation, directive.span)
        self.parameters = dict(directive.parameters)
        known = (*_OPTIONS[directive.kind], *_IGNORED)
        for name in self.parameters:
            if name not in known:
                raise self.error(
                    f"unknown option `{name}` of `.{directive.kind}`", f"known are {', '.join(known[:10])}"
                )
        self.io = {"stdoutprintsize": "stdout"}.get(self.get("IO"), self.get("IO")) or "file"
        if self.io not in _KINDS[directive.kind]:
            raise self.error(
                f"`.{directive.kind}` has no IO={self.io}", f"known are {', '.join(_KINDS[directive.kind])}"
            )
        self.is_rfc = self.get("rfc4180") == "true"
        self.delimiter = self.parameters.get("delimiter") or ("," if self.is_rfc else "\t")
        self.has_header = self.get("headers") == "true"
        if self.is_rfc and '"' in self.delimiter:
            raise self.error("the delimiter has a quote, and rfc4180 quotes with it")

    def get(self, name: str) -> str:
        return self.parameters.get(name, "")

    def error(self, message: str, hint: str | None = None) -> DomainError:
        syntax = self.loaded.syntax
        span = self.directive.span
        return DomainError(message, hint=hint, source=syntax.source, text=syntax.text, span=span)

    def path(self, folder: Path, ending: str, roots: Roots, use: str) -> Path:
        """The path of the file. Raises DomainError for one that no root holds."""
        name = self.get("filename") or self.get("dbname") or f"{self.get('name') or self.relation}{ending}"
        path = folder / name
        # A program reads in the folders of the caller too, and writes in the folder of this call alone.
        of_call = Roots.of((folder,))
        allowed = of_call if use == "write" and roots.folders is not None else roots
        if not allowed.holds(path) and not of_call.holds(path):
            message, hint = allowed.refusal(path, use)
            raise self.error(message, hint)
        return path


def read_inputs(loaded: Loaded, folder: str | os.PathLike, roots: Roots) -> dict[str, Any]:
    """Relation -> its facts, as `Program.run` takes them, of each `.input`.

    Raises DomainError for a directive that cannot be followed, ParseError for a file that is not there or is wrong.
    """
    inputs: dict[str, list[Any]] = {}
    values = Values(loaded.types, loaded.bits)
    for directive in loaded.directives:
        if directive.kind == "input":
            options = Options(directive, loaded)
            inputs.setdefault(directive.relation, []).append(_facts(options, values, Path(folder), roots))
    return {name: parts[0] if len(parts) == 1 else _together(parts) for name, parts in inputs.items()}


def _together(parts: list[Any]) -> list[tuple]:
    return list(chain.from_iterable(map(_rows, parts)))


def _rows(part: Any) -> Iterable[tuple]:
    if isinstance(part, Columns):
        return zip(*(a.decoded() if isinstance(a, Texts) else a.tolist() for a in part.arrays))
    return part if isinstance(part, list) else zip(*(column.to_pylist() for column in part.columns))


def _facts(options: Options, values: Values, folder: Path, roots: Roots) -> Any:
    if options.io == "stdin":
        return _Lines(sys.stdin.buffer.read(), "<stdin>", options, values).facts()
    if options.io == "sqlite":
        path = options.path(folder, ".sqlite", roots, "read")
        return _from_sqlite(_existing(path, options), options, values)
    if options.io == "json":
        path = _existing(options.path(folder, ".json", roots, "read"), options)
        return _from_json(read_bytes(path), os.fspath(path), options, values)
    path = options.path(folder, ".facts", roots, "read")
    if not is_file(path) and is_file(path.with_name(f"{path.name}.gz")):
        path = path.with_name(f"{path.name}.gz")
    # What is compressed is known by its first bytes.
    return _Lines(read_bytes(_existing(path, options)), os.fspath(path), options, values).facts()


def _existing(path: Path, options: Options) -> Path:
    if not is_file(path):
        hint = f"looked for {path}; -F DIR, or read(folder) in Python, says where facts are"
        raise options.error(f"cannot find the facts of `{options.relation}`", hint)
    return path


class _Lines:
    """A file with a fact a line."""

    def __init__(self, data: bytes, source: str, options: Options, values: Values):
        self.data, self.source, self.options, self.values = data, source, options, values
        self.types = options.types
        self.field_numbers = self.columns()

    def columns(self) -> list[int]:
        """The number in a line of each column of the relation."""
        written = self.options.get("columns")
        if not written:
            return list(range(len(self.types)))
        numbers = [int(part) for part in written.split(":") if part.strip().isdigit()]
        if len(set(numbers)) != len(self.types) or len(numbers) != len(written.split(":")):
            count = len(self.types)
            hint = f'such as columns="{":".join(map(str, range(count)))}"'
            raise self.options.error(f"the columns {written!r} are not {count} numbers of columns from 0", hint)
        return numbers

    def facts(self) -> Any:
        if not self.types:
            return [()] if self.data.strip() else []
        return self.by_columns() or self.by_line()

    def by_columns(self) -> Any:
        """Columns that a kernel has read, or a table of Arrow's; None where an error of theirs would not say where."""
        options, data = self.options, self.data
        if len(options.delimiter) != 1 or not all(
            t in self.values.limits or t in ("float", "symbol") for t in self.types
        ):
            return None
        if options.delimiter == "," and not options.is_rfc and b"[" in data:
            return None
        if not data or (b"\r" in data and data.count(b"\r") != data.count(b"\r\n")):
            return None
        start = data.find(b"\n") + 1 if options.has_header else 0
        if start == len(data) or (options.has_header and not start):
            return None
        end = data.find(b"\n", start)
        first = data[start : len(data) if end < 0 else end]
        width = first.count(options.delimiter.encode()) + 1
        if options.is_rfc and b'"' in data:
            if b'\n"' not in data and b'"\n' not in data and b'"' in first:
                return None
            width = len(next(iter(self.rows(first.decode("utf-8", "replace")))))
        if width <= max(self.field_numbers):
            return None
        names = [str(i) for i in range(width)]
        if sorted(self.field_numbers) == [*range(width)] and not (options.is_rfc and b'"' in data):
            words = WORDS[self.values.bits]
            of_fields = {field: TYPES[words[t]] for field, t in zip(self.field_numbers, self.types)}
            types = [of_fields[field] for field in range(width)]
            columns = plain_columns(
                data, start, options.delimiter, types, num_lines(data), has_blanks=False, rounds_once=True
            )
            if columns is not None:
                return Columns(tuple(names), tuple(columns[field] for field in self.field_numbers))
        with whole_import():
            import pyarrow as arrow
            from pyarrow import csv
        kinds = {"symbol": arrow.string()}
        for t in ("number", "unsigned", "float"):
            prefix = {"number": "int", "unsigned": "uint", "float": "float"}[t]
            kinds[t] = getattr(arrow, f"{prefix}{self.values.bits}")()
        wanted = [names[number] for number in self.field_numbers]
        try:
            return csv.read_csv(
                arrow.BufferReader(memoryview(data)[start:]),
                read_options=csv.ReadOptions(column_names=names),
                parse_options=csv.ParseOptions(
                    delimiter=options.delimiter,
                    quote_char='"' if options.is_rfc else False,
                    double_quote=options.is_rfc,
                    ignore_empty_lines=False,
                ),
                convert_options=csv.ConvertOptions(
                    column_types={name: kinds[t] for name, t in zip(wanted, self.types)},
                    include_columns=wanted,
                    null_values=[],
                    strings_can_be_null=False,
                ),
            )
        except arrow.ArrowInvalid:
            return None

    def by_line(self) -> list[tuple]:
        """The facts line by line, whose errors have their position."""
        text = utf8_text(self.data, self.source)
        rows: list[tuple] = []
        for number, fields in enumerate(self.rows(text), 1):
            if number == 1 and self.options.has_header:
                continue
            if len(fields) <= max(self.field_numbers):
                plural = "" if len(fields) == 1 else "s"
                message = f"{len(fields)} column{plural}; `{self.options.relation}` needs {max(self.field_numbers) + 1}"
                raise self.error(message, text, number, "")
            row = []
            for field, t in zip(self.field_numbers, self.types):
                try:
                    row.append(self.values.value(fields[field], t))
                except NoValueError as error:
                    message = f"column {field + 1} of `{self.options.relation}`: {error}"
                    raise self.error(message, text, number, fields[field]) from None
            rows.append(tuple(row))
        return rows

    def error(self, message: str, text: str, line: int, value: str) -> ParseError:
        hint = None if self.options.get("delimiter") else 'columns are separated by tabs, or say `delimiter=","`'
        return ParseError(message, hint=hint, source=self.source, text=text, span=span_in(text, line, value))

    def rows(self, text: str) -> Iterator[list[str]]:
        """The fields of each line."""
        lines = text.split("\n")
        if lines and not lines[-1]:
            lines.pop()
        for number, line in enumerate(lines, 1):
            line = line.removesuffix("\r")
            if self.options.is_rfc:
                yield self.quoted(line, text, number)
            elif "," in self.options.delimiter and "[" in line:
                yield self.bracketed(line, text, number)
            else:
                yield line.split(self.options.delimiter)

    def quoted(self, line: str, text: str, number: int) -> list[str]:
        delimiter, texts, position = self.options.delimiter, [], 0
        while position <= len(line):
            if not line.startswith('"', position):
                end = line.find(delimiter, position)
                end = len(line) if end < 0 else end
                texts.append(line[position:end])
                position = end + len(delimiter)
                continue
            part, position = "", position + 1
            while True:
                end = line.find('"', position)
                if end < 0:
                    raise self.error("a quote does not end", text, number, "")
                part += line[position:end]
                position = end + 1
                if not line.startswith('"', position):
                    break
                part, position = part + '"', position + 1
            if position < len(line) and not line.startswith(delimiter, position):
                raise self.error("a separator must follow the quoted field", text, number, line[position:])
            texts.append(part)
            position += len(delimiter)
        return texts

    def bracketed(self, line: str, text: str, number: int) -> list[str]:
        """Fields in which a record has the delimiter between its parts."""
        delimiter, texts, position, start, depth = self.options.delimiter, [], 0, 0, 0
        while position < len(line):
            if not depth and line.startswith(delimiter, position):
                texts.append(line[start:position])
                position = start = position + len(delimiter)
                continue
            depth += (line[position] == "[") - (line[position] == "]")
            position += 1
        if depth > 0:
            raise self.error("a bracket does not end", text, number, "")
        return [*texts, line[start:]]


def _from_json(data: bytes, source: str, options: Options, values: Values) -> list[tuple]:
    try:
        rows = json_of(data)
    except ValueError as error:
        raise ParseError(f"this is no JSON: {error}", source=source) from None
    if not isinstance(rows, list):
        raise ParseError("a list of facts is wanted", source=source, hint='such as [[1, "a"], [2, "b"]]')
    names = [a.name for a in options.declared.attributes]
    tuples = []
    for number, row in enumerate(rows, 1):
        parts = [row.get(name) for name in names] if isinstance(row, dict) else row
        if not isinstance(parts, list) or len(parts) != len(options.types):
            message = f"fact {number} is not a list of {len(options.types)} values"
            raise ParseError(message, source=source)
        try:
            tuples.append(tuple(_of_json(part, t, values) for part, t in zip(parts, options.types)))
        except NoValueError as error:
            raise ParseError(f"fact {number} of `{options.relation}`: {error}", source=source) from None
    return tuples


def _of_json(value: Any, t: str, values: Values) -> Any:
    types = values.types
    if t in types.records:
        if value is None:
            return Entity(types.nils[t])
        fields = types.records[t].fields
        if isinstance(value, dict):
            value = list(value.values())
        if isinstance(value, list) and len(value) == len(fields):
            return Entity(types.records[t].name, *(_of_json(part, f, values) for part, f in zip(value, fields)))
    elif t in types.sums and isinstance(value, str):
        return values.value(value, t)
    elif t == "symbol" and isinstance(value, str):
        return value
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        return values.value(str(value), t) if t != "symbol" else str(value)
    raise NoValueError(f"{value!r} is no {t}")


def _from_sqlite(path: Path, options: Options, values: Values) -> list[tuple]:
    import sqlite3

    name = options.get("name") or options.relation
    quoted = name.replace('"', '""')
    try:
        with sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True) as database:
            rows = database.execute(f'SELECT * FROM "{quoted}"').fetchall()
    except sqlite3.Error as error:
        raise ParseError(f"cannot read `{name}`: {error}", source=os.fspath(path)) from None
    tuples = []
    for number, row in enumerate(rows, 1):
        if len(row) != len(options.types):
            message = f"`{name}` has {len(row)} columns, and `{options.relation}` {len(options.types)}"
            raise ParseError(message, source=os.fspath(path))
        try:
            tuples.append(tuple(values.value(str(value), t) for value, t in zip(row, options.types)))
        except NoValueError as error:
            raise ParseError(f"row {number} of `{name}`: {error}", source=os.fspath(path)) from None
    return tuples
