"""Results that `.output` names, in Soufflé's formats: files of lines, JSON, SQLite, standard output."""

from __future__ import annotations

import gzip
import io
import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TextIO

from derivable.core.files import atomic_write
from derivable.core.lazy import whole_import
from derivable.core.roots import Roots
from derivable.datalog.souffle.load import Loaded
from derivable.datalog.souffle.read import Options
from derivable.datalog.souffle.values import Values
from derivable.datalog.values.terms import Entity


def write_outputs(
    loaded: Loaded,
    database: Mapping[str, Any],
    folder: str | os.PathLike | None,
    roots: Roots,
    kinds: tuple[str, ...] = ("output", "printsize"),
) -> list[Path]:
    """Write each `.output` and print each `.printsize`; the files that were written.

    folder  None prints all outputs
    """
    values, written, out = Values(loaded.types, loaded.bits), [], sys.stdout
    for directive in loaded.directives:
        if directive.kind not in kinds:
            continue
        if directive.kind == "printsize":
            out.write(f"{directive.relation}\t{len(database[directive.relation])}\n")
        elif directive.kind == "output":
            options = Options(directive, loaded)
            view = database[directive.relation]
            if options.io == "stdout" or folder is None:
                _print(view, options, values, out)
            else:
                Path(folder).mkdir(parents=True, exist_ok=True)
                written.append(_write(view, options, values, Path(folder), roots))
    return written


def _print(view: Any, options: Options, values: Values, out: TextIO) -> None:
    out.write(f"---------------\n{options.relation}\n")
    if options.has_header:
        out.write(_header(options))
    out.write("===============\n")
    out.write(_lines(view, options, values))
    out.write("===============\n")


def _header(options: Options) -> str:
    return options.delimiter.join(attribute.name for attribute in options.declared.attributes) + "\n"


def _write(view: Any, options: Options, values: Values, folder: Path, roots: Roots) -> Path:
    if options.io == "sqlite":
        path = options.path(folder, ".sqlite", roots, "write")
        _into_sqlite(view, options, values, path)
        return path
    is_compressed = "compress" in options.parameters
    ending = ".json" if options.io == "json" else ".csv.gz" if is_compressed else ".csv"
    path = options.path(folder, ending, roots, "write")
    path.parent.mkdir(parents=True, exist_ok=True)
    text = _json(view, options, values) if options.io == "json" else _lines(view, options, values)
    if options.has_header and options.io == "file":
        text = _header(options) + text
    data = text.encode("utf-8", "surrogatepass")
    with atomic_write(path, "wb") as file:
        file.write(gzip.compress(data, mtime=0) if is_compressed else data)
    return path


def _lines(view: Any, options: Options, values: Values) -> str:
    if not options.types:
        return "()\n" * len(view)
    if not len(view):
        return ""
    with whole_import():
        import pyarrow as arrow
        from pyarrow import compute as arrow_compute
    # Type checkers do not see its functions, which are made when it is imported.
    compute: Any = arrow_compute
    table, columns = view.to_arrow(), []
    rows = None
    for index, t in enumerate(options.types):
        if t in values.limits:
            columns.append(table.column(index).combine_chunks().cast(arrow.string()))
            continue
        if t == "symbol":
            column = table.column(index).combine_chunks().cast(arrow.string())
            if options.is_rfc:
                doubled = compute.replace_substring(column, '"', '""')
                column = compute.binary_join_element_wise('"', doubled, '"', "")
            columns.append(column)
            continue
        if t == "float":
            texts = [values.float_text(value) for value in table.column(index).to_pylist()]
        else:
            rows = list(view) if rows is None else rows
            quote, around = ((lambda text: f'""{text}""'), '"') if options.is_rfc else (str, "")
            parts = (row[index] if isinstance(row, tuple) else row for row in rows)
            texts = [f"{around}{values.text(value, t, quote)}{around}" for value in parts]
        columns.append(arrow.array(texts, arrow.string()))
    lines = columns[0] if len(columns) == 1 else compute.binary_join_element_wise(*columns, options.delimiter)
    return "\n".join([*lines.to_pylist(), ""])


def _json(view: Any, options: Options, values: Values) -> str:
    names = [attribute.name for attribute in options.declared.attributes]
    out, is_object = io.StringIO(), options.get("format") == "object"
    out.write("[")
    for number, row in enumerate(view):
        parts = [_json_text(value, t, values) for value, t in zip(row, options.types)]
        if is_object:
            parts = [f"{json.dumps(name)}: {part}" for name, part in zip(names, parts)]
        shown = f"{{{', '.join(parts)}}}" if is_object else f"[{', '.join(parts)}]"
        out.write((",\n" if number else "") + shown)
    out.write("]\n")
    return out.getvalue()


def _json_text(value: Any, t: str, values: Values) -> str:
    if not isinstance(value, Entity):
        return values.float_text(value) if t == "float" else json.dumps(value, ensure_ascii=False)
    if t in values.types.sums:
        return json.dumps(values.text(value, t), ensure_ascii=False)
    if value.functor == values.types.nils[t]:
        return "null"
    fields = values.types.records[t].fields
    return f"[{', '.join(_json_text(part, field, values) for part, field in zip(value.fields, fields))}]"


def _into_sqlite(view: Any, options: Options, values: Values, path: Path) -> None:
    """A table of the relation's name, whose columns are called 0, 1, ..., as Soufflé reads it."""
    import sqlite3

    quoted = (options.get("name") or options.relation).replace('"', '""')
    path.parent.mkdir(parents=True, exist_ok=True)
    kinds = {"number": "INTEGER", "unsigned": "INTEGER", "float": "REAL"}
    columns = ", ".join(f'"{column}" {kinds.get(t, "TEXT")}' for column, t in enumerate(options.types))
    rows = (
        tuple(values.text(v, t) if isinstance(v, Entity) else v for v, t in zip(row, options.types)) for row in view
    )
    try:
        with sqlite3.connect(path) as database:
            database.execute(f'DROP TABLE IF EXISTS "{quoted}"')
            database.execute(f'CREATE TABLE "{quoted}" ({columns})')
            marks = ", ".join("?" * len(options.types))
            database.executemany(f'INSERT INTO "{quoted}" VALUES ({marks})', rows)
    except sqlite3.Error as error:
        raise options.error(f"cannot write {path}: {error}") from None
