"""Facts that an engine has, and the columns of its DataFrames."""

from __future__ import annotations

import glob
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from derivable.core.diagnostics import BindingError, TypeMismatchError
from derivable.core.names import FreshNames
from derivable.datalog.distribution.keys import FACTOR, PRIME, is_text
from derivable.datalog.distribution.session import session_errors, session_number
from derivable.datalog.facts.column_names import TAG_NAMES, listed, positions_by_name
from derivable.datalog.facts.inputs import Columns, Texts
from derivable.datalog.rules.nodes import Relation
from derivable.datalog.values.values import ValueType

# Spark's types by the families of ours that take them; of hints, the dtype of a column.
_INTEGERS = {"tinyint": "i4", "smallint": "i4", "int": "i4", "bigint": "i8"}
_FLOATS = {"float": "f4", "double": "f8"}
_TEXTS = ("string", "varchar", "char")
_MOMENTS = ("date", "timestamp", "timestamp_ntz")
# The type in the engine of a column of a result, by the name of its type.
_RESULTS = dict(
    [
        *zip(("i8", "i16", "i32", "i64", "isize"), ("TINYINT", "SMALLINT", "INT", "BIGINT", "BIGINT")),
        *zip(("u8", "u16", "u32", "u64", "usize"), ("SMALLINT", "INT", "BIGINT", "BIGINT", "BIGINT")),
        *zip(("f32", "f64", "bool", "DateTime"), ("FLOAT", "DOUBLE", "BOOLEAN", "TIMESTAMP_NTZ")),
        *zip(("char", "String", "Symbol"), ("STRING", "STRING", "STRING")),
    ]
)


@dataclass(frozen=True, eq=False)
class Frame:
    """Facts of a relation as a DataFrame of an engine.

    columns  the names of those of the relation, in its order
    tag      the name of that of tags, None for certain facts
    """

    frame: Any
    columns: tuple[str, ...]
    tag: str | None

    @property
    def names(self) -> tuple[str, ...]:
        return self.columns if self.tag is None else (*self.columns, self.tag)

    def labels(self, relation: Relation) -> list[str]:
        """What `inputs.taken` takes the columns for: those of the relation by their declared names, and the tags."""
        declared = relation.column_names or (None,) * len(self.columns)
        labels = [label or f"column_{c}" for c, label in enumerate(declared)]
        return labels if self.tag is None else [*labels, FreshNames(labels)("tag")]


def is_frame(facts: Any) -> bool:
    """Whether facts are a DataFrame of an engine, the name of a table there, or a path that the engine reads."""
    if isinstance(facts, str):
        return True
    if isinstance(facts, os.PathLike):
        return _is_path(os.fspath(facts))
    return hasattr(facts, "sparkSession") and hasattr(facts, "selectExpr")


def read_frame(name: str, facts: Any, session: Any) -> Any:
    """The DataFrame of facts of a relation. Raises BindingError for a table or a path that is not there, and for a
    DataFrame of another server or session, which this one knows nothing of."""
    if not isinstance(facts, (str, os.PathLike)):
        if session_number(facts.sparkSession) != session_number(session):
            hint = "run it there: engine=frame.sparkSession"
            raise BindingError(f"facts for `{name}`: the DataFrame is one of another session", hint=hint)
        return facts
    path = os.fspath(facts)
    with session_errors(f"facts for `{name}`"):
        if not _is_path(path):
            if "/" in path:
                hint = f"read another file yourself, or here: {{{name!r}: Path({path!r})}}"
                raise BindingError(
                    f"facts for `{name}`: {path!r} is neither Parquet nor the name of a table", hint=hint
                )
            if not session.catalog.tableExists(path):
                hint = f"for a file give its path: {{{name!r}: Path({path!r})}}"
                raise BindingError(f"facts for `{name}`: the engine has no table {path!r}", hint=hint)
            return session.table(path)
        if "://" not in path and not glob.glob(path):
            raise BindingError(f"facts for `{name}`: there is no {path}", hint="a path is one that the engine reads")
        frame = session.read.format(_format_of(path, session)).load(path)
        if not frame.columns:
            raise BindingError(f"facts for `{name}`: there are no columns in {path}", hint="look at the path")
        return frame


def _is_path(path: str) -> bool:
    """Whether a text is the path of a table; else it is the name of one, or that of another file."""
    if path.lower().rstrip("/").endswith(".parquet") or "://" in path or Path(path).is_dir():
        return True
    return "/" in path and not Path(path).suffix


def _format_of(path: str, session: Any) -> str:
    """The format of a path that an engine reads: a table of Delta has a log, and files that are no rows of it."""
    # Of a pattern the files lie in the folder.
    folder, _, name = path.rstrip("/").rpartition("/")
    folder = folder if glob.has_magic(name) else path.rstrip("/")
    if "://" not in path:
        return "delta" if (Path(folder) / "_delta_log").is_dir() else "parquet"
    try:
        log = session.read.text(f"{folder}/_delta_log").limit(1).collect()
    except Exception as error:
        if "PATH_NOT_FOUND" not in str(error):
            raise
        log = []
    if log and folder != path.rstrip("/"):
        raise BindingError(f"{folder} is a table of Delta, not all of whose files are rows", hint="give this path")
    return "delta" if log else "parquet"


def types_of(frame: Any) -> dict[str, str]:
    """Column of a DataFrame -> its type, as the engine calls it."""
    return {field.name: field.dataType.simpleString() for field in frame.schema.fields}


def frame_of(relation: Relation, frame: Any, types: Mapping[str, str]) -> Frame:
    """The columns of a DataFrame that are those of a relation: by name where these are the declared ones, whatever
    others there are, else in order. One more, `tag` or `probability`, has the tags.

    types  of its columns, as Spark calls them

    Raises BindingError for missing columns, TypeMismatchError for columns of another type.
    """
    what = f"facts for `{relation.name}`"
    names, width = list(types), len(relation.types)
    tags = [name for name in names if name in TAG_NAMES and name not in relation.column_names]
    tag = tags[-1] if tags and len(names) > width else None
    rest = [name for name in names if name != tag]
    declared = [name for name in relation.column_names if name is not None]
    if width and len(declared) == width and set(declared) <= set(rest):
        chosen = declared
    elif len(rest) != width:
        wanted = f"`{relation.name}({', '.join(_column(relation, c) for c in range(width))})`"
        missing = [name for name in declared if name not in rest]
        message = f"{what}: the columns are {listed(names)}, and those of {wanted} are needed"
        raise BindingError(
            message + (f": there is no {listed(missing)}" if missing else ""),
            hint=f"select them: frame.select({', '.join(map(repr, declared or ['...']))})",
        )
    else:
        try:
            positions = positions_by_name(rest, relation.column_names)
        except ValueError:
            missing = [name for name in declared if name not in rest]
            message = f"{what}: the columns are {listed(rest)}, and there is no {listed(missing)}"
            raise BindingError(message, hint="rename them to the declared names") from None
        chosen = rest if positions is None else [rest[position] for position in positions]
    for c, (name, t) in enumerate(zip(chosen, relation.types)):
        if not _fits(types[name], t):
            message = f"{what}: column {name!r} is {types[name]}, and {_column(relation, c)} is {t}"
            raise TypeMismatchError(message, hint=f"cast it, or declare `type {relation.name}(...)` with its type")
    if tag is not None and not (types[tag] in _INTEGERS or types[tag] in _FLOATS or types[tag].startswith("decimal")):
        raise TypeMismatchError(f"{what}: the column {tag!r} of tags is {types[tag]}, expected numbers")
    return Frame(frame, tuple(chosen), tag)


def _column(relation: Relation, column: int) -> str:
    name = relation.column_names[column] if column < len(relation.column_names) else None
    return name or f"column {column}"


def _fits(engine_type: str, t: ValueType) -> bool:
    base = engine_type.partition("(")[0]
    if t.is_integer:
        return base in _INTEGERS or (base == "decimal" and engine_type.endswith(",0)"))
    if t.family == "float":
        return base in _INTEGERS or base in _FLOATS or base == "decimal"
    if t.family == "bool":
        return base == "boolean"
    if t.family in ("text", "char"):
        return base in _TEXTS
    return t.family == "datetime" and base in _MOMENTS


def example(types: Mapping[str, str]) -> Columns:
    """No facts, with the types of a DataFrame's columns, for what infers types from facts."""
    arrays: list[np.ndarray | Texts] = []
    for kind in types.values():
        base = kind.partition("(")[0]
        if base in _TEXTS:
            arrays.append(Texts([]))
        elif base in _MOMENTS:
            arrays.append(np.empty(0, "M8[us]"))
        else:
            kinds = {**_INTEGERS, **_FLOATS, "boolean": "?", "decimal": "f8"}
            arrays.append(np.empty(0, kinds.get(base, "O")))
    return Columns(tuple(types), tuple(arrays))


def quoted(name: str) -> str:
    """A name in SQL."""
    return f"`{name.replace('`', '``')}`"


def key_expression(name: str, t: ValueType, count: int) -> str:
    """SQL of the key of a column's value, as `keys.keys_of` has it."""
    column = quoted(name)
    if is_text(t):
        return f"CAST(pmod(crc32(CAST({column} AS BINARY)), {count}) AS BIGINT)"
    value = f"CAST(CAST({column} AS INT) AS BIGINT)" if t.family == "bool" else f"CAST({column} AS BIGINT)"
    return f"pmod(pmod(pmod({value}, {PRIME}) * CAST({FACTOR} AS BIGINT), {PRIME}), {count})"


def result_type(relation: Relation, column: int) -> str:
    """The engine's type of a column of a result. Raises TypeMismatchError for types that it has not."""
    t = relation.types[column]
    if t.name in _RESULTS:
        return _RESULTS[t.name]
    hint = "cast it in the rule, or leave out the engine"
    raise TypeMismatchError(f"column {column} of `{relation.name}` is {t}, which the engine has not", hint=hint)


def schema_text(columns: Mapping[str, str]) -> str:
    """The schema of columns, name -> type, as the engine reads it."""
    return ", ".join(f"{quoted(name)} {kind}" for name, kind in columns.items())
