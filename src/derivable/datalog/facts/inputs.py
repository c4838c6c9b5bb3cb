"""What callers give as facts: choices and independent facts, frames and other columns, iterables of tuples."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence, Sized
from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np

from derivable.core.arguments import check_on_cpu, is_integer
from derivable.core.arrays import as_array, as_floats, readable
from derivable.core.diagnostics import DomainError, ShapeError, TypeMismatchError, warn
from derivable.core.lazy import later
from derivable.datalog.policy.costs import policy
from derivable.datalog.values.text_arena import Encoded
from derivable.device.cpu.memory import empty

if TYPE_CHECKING:
    import pyarrow as arrow

    from derivable.tensor.values import values as tensors
else:
    arrow = later("pyarrow")
    tensors = later("derivable.tensor.values.values")


@dataclass(frozen=True, eq=False)
class InputMapping:
    """Facts of one relation whose order is that of a probability vector.

    tuples         one tuple a fact
    is_exclusive   exactly one of the facts holds (a choice); otherwise they are independent
    probabilities  [fact], or None if they follow at evaluation
    has_factors    whether these need not add up to one, though exactly one of the facts holds
    is_scalar      whether it is the one fact of a relation without arguments, `()` alone, without an axis in tensors
    columns        the tuples as they came, if that was a table or an array, whose types say more than Python's values
    """

    tuples: tuple[tuple[Any, ...], ...]
    is_exclusive: bool
    probabilities: tuple[float, ...] | None = None
    has_factors: bool = False
    is_scalar: bool = False
    columns: Columns | None = None

    def __len__(self) -> int:
        return len(self.tuples)

    def __repr__(self) -> str:
        name = "categorical" if self.is_exclusive else "independent"
        return f"{name}({len(self.tuples)} facts)"


@dataclass(frozen=True)
class Varying:
    """Facts of one relation that differ between the samples of a batch, see `varying`."""

    keep: int | None = None
    above: float | None = None
    per_group: bool = False
    sampled: bool = False

    def __repr__(self) -> str:
        written = [f"{name}={value!r}" for name, value in vars(self).items() if value]
        return f"varying({', '.join(written)})"


@dataclass(frozen=True, eq=False)
class Texts:
    """A column of texts: row `i` has texts[positions[i]], or texts[i] where `positions` is None."""

    texts: Encoded | list[str]
    positions: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.texts if self.positions is None else self.positions)

    def decoded(self) -> list[str]:
        texts = self.texts.decoded() if isinstance(self.texts, Encoded) else self.texts
        return texts if self.positions is None else [texts[position] for position in self.positions]


@dataclass(frozen=True, eq=False)
class Columns:
    """Facts of one relation by columns.

    names          of the columns
    arrays         [row] each, of any dtype, equally long
    probabilities  [row], None if the facts are certain
    count          of the facts of a relation without columns
    has_values     whether the probabilities are elements of the semiring that the program runs in
    location       row -> the fields of an error that say where it is, such as the line of a file
    """

    names: tuple[Any, ...]
    arrays: tuple[np.ndarray | Texts, ...]
    probabilities: np.ndarray | None = None
    count: int = 0
    has_values: bool = False
    location: Callable[[int], dict[str, Any]] | None = None

    def __len__(self) -> int:
        return len(self.arrays[0]) if self.arrays else self.count


@dataclass(frozen=True, eq=False)
class Elsewhere:
    """Certain facts of one relation where they are, for a run on a device: a dense tensor [row, column] or [row]."""

    tensor: Any

    def on_host(self) -> np.ndarray:
        return as_array(readable(self.tensor, "the tensor of facts").detach().cpu(), "the tensor of facts")


MISSING_HINT = (
    "a relation has no missing values: drop such rows with `frame.dropna()` (pandas) or `frame.drop_nulls()` (polars)"
)
# Rows of an iterable between looks at the limits.
_PART = 1 << 14
# How much more than one the probabilities of a choice may add up to.
ROUNDING = 1e-3
# Decimals of so many digits are those of one number of 64 bits; all of fewer are in i64.
EXACT_DIGITS = 15
_I64_DIGITS = 19


def checked_facts(facts: Mapping[str, Any] | None) -> Mapping[str, Any]:
    """Facts of relations, none for None. Raises DomainError for anything but a mapping from names."""
    if facts is None:
        return {}
    if not isinstance(facts, Mapping) or not all(isinstance(name, str) for name in facts):
        raise DomainError(
            "facts must map names of relations to their facts", hint='for instance {"edge": [(0, 1), (1, 2)]}'
        )
    return facts


def taken(facts: Mapping[str, Any], device: Any = None, look: Callable[[int], Any] | None = None) -> dict[str, Any]:
    """The facts of each relation as an InputMapping, an array, a mapping from facts to tags, Columns, a path or a list,
    or, in a run on a device, as a tensor that is Elsewhere.

    Iterables are gone through here, once, so that generators lose nothing. Frames are known by what they offer, so that
    no library of frames need be imported: pandas `columns` and `iloc`, polars `columns` and `to_series`, Arrow
    `column_names` and `column`. `look`, called with the number of rows of each part of an iterable of unknown size,
    raises at a limit. Raises TypeMismatchError for anything else, ShapeError for columns of unequal lengths,
    UnsupportedError for a tensor on another device in a run on the CPU.
    """
    columns = {name: _taken(name, facts_of_name, look) for name, facts_of_name in facts.items()}
    if device is not None:
        return columns
    for name, facts_of_name in columns.items():
        if isinstance(facts_of_name, Elsewhere):
            check_on_cpu(facts_of_name.tensor, f"the tensor of facts for `{name}`", "run there: `device=x.device`")
    return on_host(columns)


def on_host(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Facts of which no tensor is elsewhere."""
    return {
        name: facts_of_name.on_host() if isinstance(facts_of_name, Elsewhere) else facts_of_name
        for name, facts_of_name in facts.items()
    }


def _taken(name: str, facts: Any, look: Callable[[int], Any] | None = None) -> Any:
    if isinstance(facts, np.ndarray) and facts.dtype.names:
        return _columns(name, facts.dtype.names, [facts[label] for label in facts.dtype.names])
    if isinstance(facts, np.ndarray):
        return _unmasked(facts)
    if isinstance(facts, (InputMapping, Columns, os.PathLike)):
        return facts
    if isinstance(facts, list):
        return _tuples(name, facts)
    if hasattr(facts, "levels") and hasattr(facts, "to_frame"):
        # An index of pandas with several levels.
        facts = facts.to_frame()
    # One of SciPy's formats is a dictionary too.
    if type(facts) is not dict:
        for names, column in (("column_names", "column"), ("columns", "to_series"), ("columns", "iloc")):
            # A lazy frame of polars warns where somebody looks at its `columns`.
            if hasattr(facts, column) and hasattr(facts, names):
                labels = tuple(getattr(facts, names))
                get = getattr(facts, column)
                numbers = range(len(labels))
                return _columns(name, labels, [get[:, i] if column == "iloc" else get(i) for i in numbers])
        # A relation of another run is a mapping too.
        if tensors.is_sparse(facts):
            return _entries(name, facts)
        if tensors.has_torch([facts]):
            return Elsewhere(facts)
        if hasattr(facts, "__array__") and not isinstance(facts, Mapping):
            # A series, an index or a column of Arrow has a type, which its items have not.
            is_column = getattr(facts, "ndim", 1) == 1
            return _columns(name, (0,), [facts]) if is_column else as_array(facts, f"the facts for `{name}`")
    if isinstance(facts, Mapping):
        if facts and not any(isinstance(key, tuple) for key in facts) and all(map(_is_column, facts.values())):
            return _columns(name, tuple(facts), list(facts.values()))
        return facts
    if isinstance(facts, str):
        raise TypeMismatchError(
            f"facts for `{name}` are the text {facts[:40]!r}",
            hint=f"for a file give a path: `from pathlib import Path`, then {{{name!r}: Path({facts!r})}}"
            if len(facts) <= 200
            else "give tuples, columns, or a `pathlib.Path`",
        )
    if isinstance(facts, bytes) or not isinstance(facts, Iterable) or hasattr(facts, "collect"):
        raise TypeMismatchError(
            f"facts for `{name}` must be tuples, a NumPy array or columns, not {type(facts).__name__}",
            hint="collect it first" if hasattr(facts, "collect") else None,
        )
    return _tuples(name, _all_rows(facts, look))


def _all_rows(facts: Iterable[Any], look: Callable[[int], Any] | None) -> list[Any]:
    if look is None or isinstance(facts, Sized):
        return list(facts)
    rows, rest = [], iter(facts)
    while part := list(islice(rest, _PART)):
        rows += part
        look(len(part))
    return rows


def _unmasked(array: np.ndarray) -> np.ndarray:
    """An array whose masked values, if it has any, are None, which is missing."""
    if not isinstance(array, np.ma.MaskedArray):
        return array
    if not np.ma.is_masked(array):
        return array.data
    values = array.data.astype(object)
    values[np.ma.getmaskarray(array)] = None
    return values


def _tuples(name: str, rows: list[Any]) -> list[Any]:
    """Rows as they are; those of records of names, as from `to_dict("records")`, are refused."""
    if rows and isinstance(rows[0], Mapping):
        raise TypeMismatchError(
            f"facts for `{name}`: row 0 is a {type(rows[0]).__name__}, and rows are tuples",
            hint="give tuples, `[tuple(row.values()) for row in rows]`, or a frame, `pandas.DataFrame(rows)`",
        )
    return rows


def _entries(name: str, tensor: Any) -> Columns:
    """A sparse tensor as facts: a row for each entry, its indices, with its value as the tag."""
    if tensors.is_relation(tensor) and tensor.tags is None:
        return Columns(tuple(range(len(tensor.columns))), tensor.columns)
    entries = tensors.coordinates(tensor, name=name)
    return Columns(tuple(range(entries.order)), tuple(entries.indices), entries.values, entries.num_entries, True)


def _is_column(column: Any) -> bool:
    # A probability may be an array without dimensions.
    return isinstance(column, (list, tuple, range)) or (hasattr(column, "__array__") and getattr(column, "ndim", 1) > 0)


def _columns(name: str, names: tuple[Any, ...], columns: Sequence[Any]) -> Columns:
    arrays: list[np.ndarray | Texts] = []
    for label, column in zip(names, columns):
        array = _values(name, label, column)
        shape = (len(array),) if isinstance(array, Texts) else array.shape
        if len(shape) != 1 or (arrays and shape[0] != len(arrays[0])):
            is_unequal = arrays and len(shape) == 1
            size = f"{len(arrays[0])} rows, as column {names[0]!r} has" if is_unequal else "one value a row"
            raise ShapeError(f"facts for `{name}`: column {label!r} has shape {shape}, expected {size}")
        arrays.append(array)
    return Columns(names, tuple(arrays))


def _values(name: str, label: Any, column: Any) -> np.ndarray | Texts:
    """One column, whatever it is."""
    if hasattr(column, "combine_chunks") or hasattr(column, "dictionary_encode"):
        hint = "a relation has no missing values: drop such rows with `table.drop_null()`"
        return arrow_column(name, label, column, hint)
    if isinstance(column, list) and len(column) and type(column[0]) is str:
        return Texts(column)
    of_frame: Any = getattr(column, "array", None)
    if getattr(getattr(of_frame, "dtype", None), "type", None) is str and hasattr(of_frame, "__arrow_array__"):
        # The texts of pandas are Arrow's.
        texts = of_frame.__arrow_array__()
        if not texts.null_count:
            return arrow_column(name, label, texts)
    if (typed := _typed(of_frame, column)) is not None:
        return arrow_column(name, label, typed)
    if str(getattr(column, "dtype", "")) in ("Int128", "UInt128"):
        return _whole([*column])
    if hasattr(column, "detach") and tensors.has_torch([column]):
        check_on_cpu(column, f"the tensor of facts for `{name}`")
        return Elsewhere(column).on_host()
    values = column if hasattr(column, "__array__") else np.fromiter(column, dtype=object, count=len(column))
    what = f"column {label!r} of the facts for `{name}`"
    array = _unmasked(values) if isinstance(values, np.ma.MaskedArray) else as_array(values, what, with_missing=True)
    if array.dtype.kind != "T" or len(array) < policy().many or array.ndim != 1:
        return array
    try:
        return arrow_column(name, label, arrow.array(array, arrow.large_string()))
    except (arrow.ArrowException, TypeError, UnicodeError):
        # Not texts only: what is wrong is said where each value is looked at.
        return array


def _typed(of_frame: Any, column: Any) -> Any:
    """A column of pandas or polars whose type says how many digits its decimals have, or what its lists hold, as an
    Arrow column, else None."""
    if str(getattr(of_frame, "dtype", "")).startswith("decimal"):
        return of_frame.__arrow_array__()
    is_typed = str(getattr(column, "dtype", "")).startswith(("Decimal", "List(", "Array("))
    return column.to_arrow() if is_typed and hasattr(column, "to_arrow") else None


def arrow_column(
    name: str, label: Any, column: Any, hint: str = MISSING_HINT, source: str | None = None
) -> np.ndarray | Texts:
    """The values of an Arrow column: decimals with a fraction are f64, times of day durations since midnight.

    hint    what helps where a value is missing
    source  the file that the column is of

    Raises TypeMismatchError where a value is missing.
    """
    if column.null_count:
        row = column.is_null().to_numpy(zero_copy_only=False) if isinstance(column, arrow.Array) else None
        row = column.is_null().to_numpy() if row is None else row
        first = f"facts for `{name}`, row {int(np.flatnonzero(row)[0])}, column {label!r}: the value is missing"
        more = f" ({column.null_count} of {len(column)} are)" if column.null_count > 1 else ""
        raise TypeMismatchError(first + more, hint=hint, source=source)
    t = column.type
    if arrow.types.is_dictionary(t) and not is_string(t.value_type):
        return arrow_column(name, label, column.cast(t.value_type), hint, source)
    if arrow.types.is_dictionary(t):
        column = column.unify_dictionaries() if isinstance(column, arrow.ChunkedArray) else column
        chunks = column.chunks if isinstance(column, arrow.ChunkedArray) else [column]
        texts = _encoded(chunks[0].dictionary) if chunks else []
        positions = [np.from_dlpack(chunk.indices) for chunk in chunks]
        return Texts(texts, np.concatenate(positions) if positions else np.empty(0, np.int64))
    if is_string(t):
        return Texts(_encoded(column))
    if arrow.types.is_decimal(t) and t.scale == 0:
        return _whole([int(value) for value in column.to_pylist()])
    if arrow.types.is_decimal(t):
        return _real(name, label, column)
    if arrow.types.is_time(t):
        column = column.cast(arrow.int32() if t.bit_width == 32 else arrow.int64()).cast(arrow.int64())
        return np.asarray(arrow_column(name, label, column)).astype(f"m8[{t.unit}]")
    if _is_list(t):
        return _tensors(column)
    chunks = column.chunks if isinstance(column, arrow.ChunkedArray) else [column]
    if (arrow.types.is_integer(t) or arrow.types.is_floating(t)) and chunks:
        # Arrow's conversion imports pandas where it is installed.
        parts = [np.from_dlpack(chunk) for chunk in chunks]
        if len(parts) == 1:
            return parts[0]
        return np.concatenate(parts, out=empty(len(column), parts[0].dtype))
    return column.to_numpy() if isinstance(column, arrow.ChunkedArray) else column.to_numpy(zero_copy_only=False)


def _whole(values: list[Any]) -> np.ndarray:
    """Integers of any size as an array, of 64 bits where these do; missing ones are None."""
    array = np.array(values, object)
    return array if any(value is None or abs(value) >> 63 for value in values) else array.astype(np.int64)


def _is_list(t: Any) -> bool:
    return arrow.types.is_list(t) or arrow.types.is_large_list(t) or arrow.types.is_fixed_size_list(t)


def _tensors(column: Any) -> np.ndarray:
    """Nested lists of numbers as arrays; lists of different lengths in one stay lists, which are no values."""
    inner = column.type
    while _is_list(inner):
        inner = inner.value_type
    is_plain = arrow.types.is_integer(inner) or arrow.types.is_floating(inner) or arrow.types.is_boolean(inner)
    tensors_of_rows = np.empty(len(column), object)
    for row, value in enumerate(column.to_pylist()):
        try:
            tensors_of_rows[row] = np.array(value, inner.to_pandas_dtype()) if is_plain else value
        except (TypeError, ValueError):
            tensors_of_rows[row] = value
    return tensors_of_rows


def _real(name: str, label: Any, column: Any) -> np.ndarray:
    """Decimals as numbers of 64 bits, which have 15 to 17 digits; a DerivableWarning says where that is too few."""
    # By way of texts, which are rounded once: Arrow's own conversion misses the nearest number in one of eight.
    numbers = column.cast(arrow.string()).cast(arrow.float64())
    if column.type.precision > EXACT_DIGITS and not numbers.cast(column.type, safe=False).equals(column):
        warn(
            f"facts for `{name}`: column {label!r} is of type {column.type}, and some values have more digits than f64",
            hint=f"give whole numbers, scaled by 10**{column.type.scale}, which i64 and i128 hold as they are",
        )
    return np.asarray(arrow_column(name, label, numbers))


def arrow_hint(t: Any) -> str:
    """The type, or the family, of a relation's column that holds a column of this Arrow type; see `hints`."""
    types = arrow.types
    if types.is_dictionary(t):
        return arrow_hint(t.value_type)
    if types.is_decimal(t):
        return "f64" if t.scale > 0 else "i64" if t.precision < _I64_DIGITS else "i128"
    if types.is_integer(t):
        return {"int64": "i64", "uint64": "u64", "uint32": "i64"}.get(str(t), "integer")
    if types.is_floating(t):
        return "f64" if t.bit_width == 64 else "float"
    kinds = {"bool": types.is_boolean(t), "text": is_string(t), "tensor": _is_list(t)}
    kinds["datetime"] = types.is_date(t) or types.is_timestamp(t)
    kinds["duration"] = types.is_duration(t) or types.is_time(t)
    return next((kind for kind, is_it in kinds.items() if is_it), "any")


def is_string(t: Any) -> bool:
    return str(t) in ("string", "large_string", "string_view")


def _encoded(column: Any) -> Encoded | list[str]:
    """The texts of an Arrow column of strings; many stay where they are."""
    if len(column) < policy().many or column.null_count:
        return column.to_pylist()
    if isinstance(column, arrow.ChunkedArray):
        # Offsets of 32 bits do not reach over all chunks.
        chunks = column.chunks if column.num_chunks == 1 else [column.cast(arrow.large_string()).combine_chunks()]
        return _encoded(chunks[0])
    if column.type == "string_view":
        column = column.cast(arrow.large_string())
    _, offsets, data = column.buffers()
    width = np.int32 if arrow.types.is_string(column.type) else np.int64
    ends = np.frombuffer(offsets, width)[column.offset : column.offset + len(column) + 1].astype(np.int64)
    return Encoded(np.frombuffer(b"" if data is None else data, np.uint8), ends[:-1], ends[1:])


def as_tuple(value: Any) -> tuple[Any, ...]:
    """A tuple as it is, a scalar as a tuple of one; NumPy scalars become Python ones."""
    values = tuple(value) if isinstance(value, (tuple, list)) else (value,)
    return tuple(_item(v) if isinstance(v, np.generic) else v for v in values)


def _item(value: Any) -> Any:
    """A scalar of NumPy as one of Python."""
    if value.dtype.kind not in "mM":
        return value.item()
    # Python has dates and durations of microseconds, and no months.
    if value.dtype.kind == "m" and np.datetime_data(value.dtype)[0] in "YM":
        return value
    item = value.astype(f"{value.dtype.kind}8[us]").item()
    return value if isinstance(item, int) else item


def _kind(value: Any) -> str:
    """The kind of a column's values; integers may stand among floats."""
    return "number" if isinstance(value, (int, float)) and not isinstance(value, bool) else type(value).__name__


def require_order(facts: Any, what: str) -> None:
    """Raise DomainError for facts that are to stand in the order of an axis and have none."""
    if isinstance(facts, (set, frozenset)):
        kind = "a set, whose order may be another one in each process"
        raise DomainError(f"{what} {kind}", hint="give a list, `sorted(...)`")


def require_list(facts: Any, what: str) -> None:
    """Raise DomainError for facts without an order, and for a text or a dictionary, which would be read as its letters
    or its keys."""
    require_order(facts, what)
    if isinstance(facts, (str, bytes)):
        raise DomainError(f"{what} the text {facts!r}, which is no list of facts", hint=f"for one fact [{facts!r}]")
    if isinstance(facts, Mapping):
        hint = "give the facts and their probabilities apart: `list(facts), list(facts.values())`"
        raise DomainError(f"{what} a {type(facts).__name__}, which is no list of facts", hint=hint)


def _columns_of(values: Any) -> Columns | None:
    """The columns of a table, or of an array [row, column] or [row]; None for any other iterable."""
    if not hasattr(values, "__array__") and not hasattr(values, "column_names"):
        return None
    facts = _taken("the facts", values)
    if isinstance(facts, Elsewhere):
        facts = facts.on_host()
    if not isinstance(facts, np.ndarray):
        return facts if isinstance(facts, Columns) else None
    if facts.ndim not in (1, 2):
        message = f"the facts are an array of shape {list(facts.shape)}"
        raise ShapeError(message, hint="give an array [row, column], or [row] for facts of one column")
    return Columns((), tuple(facts.reshape(len(facts), -1).T))


def _mapping(values: Iterable[Any], probabilities: Sequence[float] | None, is_exclusive: bool) -> InputMapping:
    if not isinstance(values, Iterable) and not hasattr(values, "column_names"):
        raise DomainError(f"{values!r} is no list of facts", hint="give values or tuples, as in categorical(range(10))")
    require_list(values, "the facts are")
    if tensors.is_sparse(values):
        tensor: Any = values
        values = map(tuple, tensors.coordinates(getattr(tensor, "detach", lambda: tensor)()).indices.T.tolist())
    columns = _columns_of(values)
    if columns is not None:
        values = zip(*(column.decoded() if isinstance(column, Texts) else column for column in columns.arrays))
    tuples = tuple(map(as_tuple, values))
    for position, fact in enumerate(tuples):
        if len(fact) != len(tuples[0]):
            raise DomainError(
                f"value {position}, {fact!r}, has {len(fact)} columns, the first, {tuples[0]!r}, has {len(tuples[0])}",
                hint="all facts of a relation have the same number of columns",
            )
        if any(value is None for value in fact) or [*map(_kind, fact)] != [*map(_kind, tuples[0])]:
            raise DomainError(
                f"value {position} is {fact!r}, unlike the first, {tuples[0]!r}",
                hint="all facts of a relation have columns of the same types",
            )
    if not tuples and is_exclusive:
        raise DomainError("a choice needs at least one value")
    if probabilities is None:
        return InputMapping(tuples, is_exclusive, columns=columns)
    check_on_cpu(probabilities, "the tensor of probabilities", "give it to a layer, `dv.nn.Logic`")
    try:
        numbers = as_floats(probabilities, "a tag")
    except (TypeError, ValueError):
        raise DomainError(f"the probabilities {probabilities!r} are no numbers", hint="one in [0, 1] a value") from None
    if numbers.shape != (len(tuples),):
        raise DomainError(f"{len(tuples)} values, but probabilities of shape {numbers.shape}")
    bad = np.flatnonzero(~((numbers >= 0) & (numbers <= 1)) if is_exclusive else np.isnan(numbers))
    if len(bad):
        raise DomainError(f"probability {bad[0]} is {numbers[bad[0]]:g}, not in [0, 1]")
    if is_exclusive and numbers.sum() > 1 + ROUNDING:
        raise DomainError(
            f"the probabilities of one choice add up to {numbers.sum():g}",
            hint="divide them by their sum; independent facts are `dv.independent(tuples, probabilities)`",
        )
    return InputMapping(tuples, is_exclusive, tuple(numbers.tolist()), columns=columns)


def categorical(
    values: Iterable[Any], probabilities: Sequence[float] | None = None, *, factors: bool = False
) -> InputMapping:
    """One choice: exactly one of the values holds.

    values         scalars (a unary relation) or tuples; one that occurs several times holds if one of these does, with
                   the sum of their probabilities
    probabilities  [value], adding up to at most 1 (the rest is the probability that none holds), up to 1e-3, which is
                   taken away;
                   None if they follow at evaluation, as for `dv.nn.Logic`, where they add up to 1
    factors        the values at evaluation are factors, weights from 0 on that need not add up to 1
    """
    if factors and probabilities is not None:
        raise DomainError(
            "factors are given at evaluation, and these are probabilities",
            hint="divide them by their sum, or leave them out: `dv.categorical(values, factors=True)`",
        )
    return replace(_mapping(values, probabilities, True), has_factors=factors)


def independent(tuples: Iterable[Any], probabilities: Sequence[float] | float | None = None) -> InputMapping:
    """Independent facts: whether one holds says nothing about the others.

    tuples         tuples, or scalars for a unary relation; one that occurs several times is as many facts, of which one
                   suffices; or a sparse tensor, for the indices of its entries in the order of rows. `()` alone is the
                   one fact of a relation without arguments, whose probability is a number; in a layer it has no
                   dimension for facts, as among the outputs. A list without tuples, `[]`, is no fact
    probabilities  [fact], or None if they follow at evaluation; values of the semiring, such as lengths, for a run
                   in one whose values are no probabilities
    """
    numbers: Any = probabilities
    if isinstance(tuples, tuple) and tuples == ():
        numbers = None if probabilities is None else np.reshape(probabilities, -1)
        return replace(_mapping([()], numbers, False), is_scalar=True)
    return _mapping(tuples, numbers, False)


def varying(
    *, keep: int | None = None, above: float | None = None, per_group: bool = False, sampled: bool = False
) -> Varying:
    """Facts that differ from sample to sample: what a layer (`dv.nn.Logic`) is called with, tuples and probabilities.

    keep       how many facts of a sample stay, the most probable ones, among equals those that come first; None
               keeps all
    above      the least probability of a fact that stays
    per_group  whether `keep` counts the facts of each exclusive group; independent facts are one group
    sampled    whether `keep` facts are drawn in proportion to their probabilities, with replacement, by the random
               numbers of torch; a fact that is drawn twice counts once
    """
    if keep is not None and (not is_integer(keep) or keep < 1):
        raise DomainError(f"keep is {keep!r}, and not a number of facts, from 1 on", hint="a probability is `above=`")
    if keep is None and (per_group or sampled):
        raise DomainError(f"{'per_group' if per_group else 'sampled'} says which facts are kept", hint="give keep=")
    return Varying(None if keep is None else int(keep), None if above is None else float(above), per_group, sampled)
