"""Value types of the language and their columns.

Every value is stored in one 64-bit word: integers as themselves (two's complement for unsigned 64-bit), floats as
the bits of their float64 value, strings and symbols as ids of the symbol table, characters as code points, integers of
128 bits as themselves or as ids (`values.int128`). So one set of kernels serves all types; the types matter only where
values are computed, compared or shown.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import MAXYEAR
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from derivable.core.diagnostics import DerivableError, TypeMismatchError
from derivable.datalog.values import int128, tensors
from derivable.datalog.values.datetimes import FIRST, LAST, Duration, datetime_text, word_of_datetime
from derivable.datalog.values.terms import Entity
from derivable.datalog.values.text_arena import Encoded

if TYPE_CHECKING:
    from derivable.datalog.values.symbols import SymbolTable


# The largest numbers that floats of these bits hold, which are rounded.
_LARGEST = {32: float(np.nextafter(float(np.finfo(np.float32).max) + 2.0**103, 0.0)), 64: sys.float_info.max}
_INFINITE = (float("inf"), -float("inf"))


@dataclass(frozen=True)
class ValueType:
    """A value type, printed by its name: `usize`.

    family  "signed", "unsigned", "float", "bool", "char", "text", "datetime", "duration", "tensor", or "entity" of the
            terms of algebraic data types
    bits    width of an integer or float
    dtype   of the NumPy column that `columns` shows
    """

    name: str
    family: str
    bits: int
    dtype: np.dtype

    def __str__(self) -> str:
        return self.name

    @cached_property
    def is_integer(self) -> bool:
        return self.family in ("signed", "unsigned")

    @cached_property
    def is_number(self) -> bool:
        return self.family in ("signed", "unsigned", "float")

    @cached_property
    def limits(self) -> tuple[int, int]:
        """Smallest and largest integer of the type."""
        if self.family == "signed":
            return -(1 << (self.bits - 1)), (1 << (self.bits - 1)) - 1
        return 0, (1 << self.bits) - 1

    @cached_property
    def is_wide(self) -> bool:
        """Whether it is one of integers that need more than a word."""
        return self.bits > 64

    def range_text(self) -> str:
        """What an integer type holds, for messages."""
        low, high = self.limits
        return f"{self} holds {low} to {high}"


TYPES: dict[str, ValueType] = {
    t.name: t
    for t in [
        ValueType("i8", "signed", 8, np.dtype("i1")),
        ValueType("i16", "signed", 16, np.dtype("i2")),
        ValueType("i32", "signed", 32, np.dtype("i4")),
        ValueType("i64", "signed", 64, np.dtype("i8")),
        ValueType("i128", "signed", 128, np.dtype("O")),
        ValueType("isize", "signed", 64, np.dtype("i8")),
        ValueType("u8", "unsigned", 8, np.dtype("u1")),
        ValueType("u16", "unsigned", 16, np.dtype("u2")),
        ValueType("u32", "unsigned", 32, np.dtype("u4")),
        ValueType("u64", "unsigned", 64, np.dtype("u8")),
        ValueType("u128", "unsigned", 128, np.dtype("O")),
        ValueType("usize", "unsigned", 64, np.dtype("u8")),
        ValueType("f32", "float", 32, np.dtype("f4")),
        ValueType("f64", "float", 64, np.dtype("f8")),
        ValueType("bool", "bool", 1, np.dtype("?")),
        ValueType("char", "char", 32, np.dtype("O")),
        ValueType("String", "text", 64, np.dtype("O")),
        ValueType("Symbol", "text", 64, np.dtype("O")),
        ValueType("DateTime", "datetime", 64, np.dtype("M8[us]")),
        ValueType("Duration", "duration", 64, np.dtype("O")),
        ValueType("Tensor", "tensor", 64, np.dtype("O")),
    ]
}
# Units of NumPy that moments and durations here, which are whole microseconds, have parts of.
FINER_UNITS = ("ns", "ps", "fs", "as")
TYPE_ALIASES = {"&str": "String"}

I32, U32, F32, F64, BOOL, USIZE, STRING = (TYPES[n] for n in ("i32", "u32", "f32", "f64", "bool", "usize", "String"))
DATETIME, DURATION, TENSOR = (TYPES[n] for n in ("DateTime", "Duration", "Tensor"))
# Terms of any algebraic data type; the types that a program declares have its family.
ENTITY = ValueType("Entity", "entity", 64, np.dtype("O"))


def castable(source: ValueType, target: ValueType) -> bool:
    """Whether there is a cast: of terms, dates and durations to text and from it, of tensors to text and floats. A
    character casts to a number, its digit, and an integer to a character, a float does not."""
    families = {source.family, target.family}
    if source == target or families == {"entity"}:
        return True
    if "entity" in families:
        return "text" in families
    if source.family == "tensor":
        return target.family in ("text", "float")
    if "tensor" in families or (source.family == "float" and target.family == "char"):
        return False
    return families.isdisjoint(("datetime", "duration")) or "text" in families


def same_words(types: Iterable[ValueType], others: Iterable[ValueType]) -> bool:
    """Whether columns of these types hold the same words: equal types, and terms of whatever data types."""
    return [_words(t) for t in types] == [_words(t) for t in others]


def _words(t: ValueType) -> ValueType:
    return ENTITY if t.family == "entity" else t


def to_words(values: np.ndarray, value_type: ValueType) -> np.ndarray:
    """Words [row] int64 of typed values [row]; texts must already be ids."""
    if value_type.family == "float":
        # Adding zero turns -0.0 into 0.0, so that equal floats have equal words.
        return (np.asarray(values, dtype=np.float64) + 0.0).view(np.int64)
    values = np.asarray(values)
    if values.dtype == np.uint64:
        return values.view(np.int64)
    return values.astype(np.int64, copy=False)


def from_words(words: np.ndarray, value_type: ValueType) -> np.ndarray:
    """Values that arithmetic works on: int64, uint64, float32, float64 or bool arrays; texts and chars stay ids."""
    if value_type.family == "float":
        values = np.ascontiguousarray(words, dtype=np.int64).view(np.float64)
        return values.astype(np.float32) if value_type.bits == 32 else values
    if value_type.family == "bool":
        return words != 0
    if value_type.family == "unsigned" and value_type.bits == 64:
        return np.ascontiguousarray(words, dtype=np.int64).view(np.uint64)
    return words if words.dtype == np.int64 else words.astype(np.int64)


def numbers_of(words: np.ndarray, t: ValueType, symbols: SymbolTable) -> np.ndarray:
    """The values of words: as `from_words`, integers of 128 bits as int64 or objects."""
    return int128.integers(words, symbols) if t.is_wide else from_words(words, t)


def words_of_numbers(values: np.ndarray, t: ValueType, symbols: SymbolTable) -> np.ndarray:
    """Words [row] int64 of typed values [row] that fit the type."""
    return int128.words(values, t, symbols) if t.is_wide else to_words(values, t)


def wrap(values: np.ndarray, t: ValueType) -> np.ndarray:
    """int64 or uint64 values, or Python's integers, reduced to an integer type's width, two's complement."""
    if t.is_wide:
        return int128.wrapped(values, t)
    if t.bits == 64:
        return values.view(np.uint64) if t.family == "unsigned" else values
    return values.astype(t.dtype).astype(np.int64)


def ranks(texts: np.ndarray) -> np.ndarray:
    """Ranks [row] int64 of texts [row], the same for equal ones; NumPy's strings lose trailing NULs."""
    rank = {text: i for i, text in enumerate(sorted(set(texts.tolist())))}
    return np.fromiter(map(rank.__getitem__, texts), dtype=np.int64, count=len(texts))


def sort_keys(words: np.ndarray, t: ValueType, symbols: SymbolTable) -> np.ndarray:
    """Integers [row] in the order of the values: of texts by their characters, of terms as `Entity` says, of tensors by
    their first appearance."""
    if t.family == "text":
        ids, inverse = np.unique(words, return_inverse=True)
        return ranks(symbols.lookup(ids))[inverse]
    if t.family == "entity":
        return symbols.terms.ranks(words)
    if t.family == "duration":
        return symbols.duration_ranks(words)
    if t.is_wide:
        values = int128.integers(words, symbols)
        return values if values is words else ranks(values)
    if t.family == "float":
        # The bits of floats below zero grow the other way.
        return np.where(words < 0, words ^ np.int64(2**63 - 1), words)
    if t.family == "unsigned" and t.bits == 64:
        return words ^ np.int64(-(2**63))
    return words


def show_column(words: np.ndarray, value_type: ValueType, symbols: SymbolTable) -> np.ndarray:
    """The column a user sees: dtype of the type, texts and characters as an object array of str."""
    if value_type.family == "text":
        return symbols.lookup(words)
    if value_type.family == "entity":
        return symbols.terms.lookup(words)
    if value_type.family == "datetime":
        return np.ascontiguousarray(words, dtype=np.int64).view(value_type.dtype)
    if value_type.is_wide:
        return int128.integers(words, symbols).astype(object)
    if value_type.dtype == object:
        shown = np.empty(len(words), dtype=object)
        if value_type.family == "char":
            shown[:] = [chr(w) for w in words.tolist()]
        else:
            for row, thing in enumerate(symbols.things_of(words)):
                shown[row] = thing.plain() if isinstance(thing, Duration) else thing
        return shown
    return from_words(words, value_type).astype(value_type.dtype, copy=False)


def word_of(value: Any, value_type: ValueType, symbols: SymbolTable) -> int:
    """The word of one Python value that is known to fit the type."""
    if value_type.family == "text":
        return symbols.intern(str(value))
    if value_type.family == "entity":
        return symbols.terms.intern(value, value_type)
    if value_type.family == "char":
        return ord(value)
    if value_type.family == "datetime":
        word = word_of_datetime(value)
        assert word is not None
        return word
    if value_type.family in ("duration", "tensor"):
        return symbols.intern_thing(value, value_type)
    if value_type.family == "float":
        number = np.float64(np.float32(value)) if value_type.bits == 32 else np.float64(value)
        return int((np.array([number]) + 0.0).view(np.int64)[0])
    if value_type.family == "bool":
        return int(bool(value))
    number = int(value)
    if value_type.is_wide:
        return int128.word(number, value_type, symbols)
    return number - (1 << 64) if number >= 1 << 63 else number


def words_of(values: Sequence[Any], value_type: ValueType, symbols: SymbolTable) -> np.ndarray:
    """Words [row] int64 of Python values that are known to fit the type."""
    if value_type.family == "text":
        return symbols.intern_all(values)
    if value_type.family == "entity":
        return symbols.terms.intern_all(values, value_type)
    if value_type.family == "float":
        with np.errstate(over="ignore"):
            numbers = np.array(values, np.float32 if value_type.bits == 32 else np.float64)
        return to_words(numbers, value_type)
    array = plain_array(values, value_type)
    if array is not None:
        return words_of_numbers(array, value_type, symbols)
    return np.fromiter((word_of(value, value_type, symbols) for value in values), np.int64, len(values))


class Unfit(Exception):
    """A value that a type does not hold.

    value   the value, or the dtype of an array that cannot hold any
    row     of the value; None for an array, and where no value would do
    reason  what refuses it, if its message says why
    """

    def __init__(self, value: Any, row: int | None = None, reason: DerivableError | None = None):
        super().__init__(value, row)
        self.value, self.row, self.reason = value, row, reason


def column_words(values: Sequence[Any] | np.ndarray | Encoded, t: ValueType, symbols: SymbolTable) -> np.ndarray:
    """Words [row] of Python values, an array [row] or texts, every one checked; integers of an array stay narrow.

    Raises Unfit for the first value that the type does not hold.
    """
    if t.family == "text":
        return _text_words(values, t, symbols)
    if isinstance(values, Encoded):
        values = values.decoded()
    if not isinstance(values, np.ndarray):
        array = plain_array(values, t)
        if array is None:
            return _checked_words(values, t, symbols)
        values = array
    kind = values.dtype.kind
    if t.family == "tensor" and kind in "biuf":
        # Numbers are tensors without dimensions.
        values = np.array([*map(np.asarray, values), None], object)[:-1]
        kind = "O"
    if t.family == "datetime" and kind == "M":
        words = values.astype("datetime64[us]").astype(np.int64)
        is_unfit = np.isnat(values) | (words < FIRST) | (words > LAST)
        if np.datetime_data(values.dtype)[0] not in ("us", *FINER_UNITS):
            # What is too far away for 64 bits has come back as another moment.
            is_unfit |= abs(values.astype("datetime64[Y]").astype(np.int64)) > MAXYEAR
        _check_rows(values, is_unfit)
        return np.ascontiguousarray(words)
    if t.family == "duration" and kind == "m":
        distinct, inverse = np.unique(values, return_inverse=True)
        return _checked_words(list(distinct), t, symbols)[inverse]
    if kind == "O" or t.family in ("char", "entity", "tensor"):
        return column_words(values.astype(object, copy=False).tolist(), t, symbols)
    wanted = {"bool": "b", "float": "fiu", "datetime": "M", "duration": "m"}.get(t.family, "iu")
    if kind not in wanted:
        if kind == "f":
            # pandas has floats where integers are missing.
            _check_rows(values, np.isnan(values))
        raise Unfit(values.dtype)
    if t.is_integer and len(values):
        low, high = t.limits
        if not _are_within(values, low, high):
            _check_rows(values, (values < low) | (values > high))
    if t.family == "float":
        if kind == "f":
            _check_rows(values, np.isnan(values))
        values = _in_32_bits(values) if t.bits == 32 else values
    if t.is_integer and not t.is_wide and values.dtype.isnative:
        # Rows are packed from where they are.
        return values.view(np.int64) if values.dtype.itemsize == 8 else values
    return np.ascontiguousarray(words_of_numbers(values, t, symbols))


def _in_32_bits(values: np.ndarray) -> np.ndarray:
    """Floats in 32 bits. Raises Unfit for the first one that is too large for them."""
    try:
        with np.errstate(over="raise"):
            return values.astype(np.float32)
    except FloatingPointError:
        with np.errstate(over="ignore"):
            _check_rows(values, np.isinf(values.astype(np.float32)) & np.isfinite(values))
        raise


def _are_within(values: np.ndarray, low: int, high: int) -> bool:
    """Whether integers, at least one, are from `low` to `high`."""
    if values.dtype == np.int64 and high - low < 1 << 63:
        # Without signs those below `low` are the largest.
        return int((values - low if low else values).view(np.uint64).max()) <= high - low
    all_values = np.iinfo(values.dtype)
    return (low <= all_values.min and all_values.max <= high) or (
        int(values.min()) >= low and int(values.max()) <= high
    )


def _check_rows(values: np.ndarray, is_bad: np.ndarray) -> None:
    if is_bad.any():
        row = int(np.argmax(is_bad))
        value = values[row]
        raise Unfit(value if values.dtype.kind == "M" else value.item(), row)


def _text_words(values: Sequence[Any] | np.ndarray | Encoded, t: ValueType, symbols: SymbolTable) -> np.ndarray:
    """Words [row] of texts."""
    if isinstance(values, Encoded):
        return symbols.intern_encoded(values)
    if isinstance(values, np.ndarray):
        if values.dtype.kind == "U":
            return symbols.intern_array(values)
        return _text_words(values.astype(object, copy=False).tolist(), t, symbols)
    try:
        return symbols.intern_all(values)
    except TypeError:
        # They are not all texts, which joining them has shown.
        return _checked_words(values, t, symbols)


def _checked_words(values: Sequence[Any], t: ValueType, symbols: SymbolTable) -> np.ndarray:
    """Words [row] of Python values of which each one is looked at."""
    for row, value in enumerate(values):
        if not fits(value, t):
            raise Unfit(value, row)
    if t.family != "entity":
        return words_of(values, t, symbols)
    terms = symbols.terms
    if not terms.constructors:
        message, hint = "the program has no data types, so it has no terms", "`type Tree = Leaf() | Node(i32, Tree)`"
        raise Unfit(None, None, TypeMismatchError(message, hint=f"declare one: {hint}"))
    try:
        return terms.intern_all(values, t)
    except DerivableError:
        for row, value in enumerate(values):
            try:
                terms.intern(value, t)
            except DerivableError as error:
                raise Unfit(value, row, error) from None
        raise


def plain_array(values: Sequence[Any], value_type: ValueType) -> np.ndarray | None:
    """An array [row] if all values are of the one Python type that needs no look at each of them."""
    kinds = set(map(type, values))
    plain = int if value_type.is_integer else {"float": float, "bool": bool}.get(value_type.family)
    if kinds != {plain}:
        return None
    array = np.array(values)
    # Integers beyond 64 bits become objects or floats.
    return array if array.dtype.kind == {int: "i", float: "f", bool: "b"}[plain] else None


def texts_of(words: np.ndarray, value_type: ValueType, symbols: SymbolTable) -> list[str]:
    """What a cast to String makes of words [row]: floats have no exponents, and as few digits as tell them apart."""
    shown = show_column(words, value_type, symbols)
    if value_type.family in ("text", "char"):
        return shown.tolist()
    if value_type.family == "bool":
        return ["true" if value else "false" for value in shown.tolist()]
    if value_type.family == "float":
        return [np.format_float_positional(value, trim="-") for value in shown]
    if value_type.family == "datetime":
        return list(map(datetime_text, shown.tolist()))
    if value_type.family == "duration":
        return list(map(str, symbols.things_of(words)))
    if value_type.family == "tensor":
        return list(map(tensors.shown, shown))
    return list(map(str, shown.tolist()))


def fits(value: Any, value_type: ValueType) -> bool:
    """Whether a Python value can be stored in a column of the type without loss (ints are accepted as floats)."""
    if value_type.family == "text":
        return isinstance(value, str)
    if value_type.family == "entity":
        # A term, or the text of one; whether it is one of the program's terms the store says.
        return isinstance(value, (str, Entity))
    if value_type.family == "char":
        return isinstance(value, str) and len(value) == 1
    if value_type.family == "datetime":
        return word_of_datetime(value) is not None
    if value_type.family == "duration":
        return Duration.of(value) is not None
    if value_type.family == "tensor":
        return tensors.is_tensor(value)
    if value_type.family == "bool":
        return isinstance(value, (bool, np.bool_))
    if isinstance(value, (bool, np.bool_)):
        return False
    if value_type.family == "float":
        if type(value).__name__ == "Decimal":
            if not value.is_finite():
                return not value.is_nan()
        elif not isinstance(value, (int, float, np.integer, np.floating)) or value != value:
            return False
        return bool(abs(value) <= _LARGEST[value_type.bits]) or value in _INFINITE
    if not isinstance(value, (int, np.integer)):
        return False
    low, high = value_type.limits
    return low <= int(value) <= high
