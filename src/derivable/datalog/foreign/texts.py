"""The language's functions and predicates of texts.

As in Scallop, lengths and positions count the bytes of a text in UTF-8; only `string_char_at` and `string_chars` count
characters. A position inside a character is none: `substring` has no value there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from derivable.datalog.foreign.function import ForeignError, ForeignFunction, distinct
from derivable.datalog.foreign.hashing import siphash
from derivable.datalog.foreign.predicate import ForeignPredicate
from derivable.datalog.foreign.signature import signature
from derivable.datalog.values.symbols import SymbolTable
from derivable.datalog.values.values import ENTITY, STRING, ValueType, show_column, texts_of

# Unicode's White_Space, to which Python adds four control characters.
_SPACES = "\t\n\v\f\r \x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000" + "".join(map(chr, range(0x2000, 0x200B)))


def encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _length(text: str) -> int:
    return len(text) if text.isascii() else len(encoded(text))


def _lengths(symbols: SymbolTable, types: tuple[ValueType, ...], words: np.ndarray) -> tuple[np.ndarray, None]:
    return symbols.lengths(words), None


def _concat(symbols: SymbolTable, types: tuple[ValueType, ...], *operands: np.ndarray) -> tuple[np.ndarray, None]:
    if not operands:
        return np.array([symbols.intern("")]), None
    _announce(symbols, [STRING] * len(operands), operands)
    return symbols.intern_joined(operands), None


def _announce(symbols: SymbolTable, types: Sequence[ValueType], columns: Sequence[np.ndarray]) -> None:
    """Say how many bytes the texts in some columns have in all, which are to become as much of others."""
    if symbols.expect is not None:
        texts = [words for words, t in zip(columns, types) if t.family == "text"]
        symbols.expect(sum(int(symbols.lengths(words).sum()) for words in texts))


def _character(text: str, position: int) -> str | None:
    return text[position] if position < len(text) else None


def _substring(text: str, begin: int, end: int | None = None) -> str | None:
    raw = encoded(text)
    end = len(raw) if end is None else end
    if not begin <= end <= len(raw):
        return None
    try:
        return raw[begin:end].decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        return None


def _replace(symbols: SymbolTable, types: tuple[ValueType, ...], *operands: np.ndarray) -> tuple[np.ndarray, None]:
    distinct_operands, inverse = distinct(operands)
    rows = list(zip(*(symbols.lookup(words).tolist() for words in distinct_operands)))
    if symbols.expect is not None:
        symbols.expect(sum(_length(text) + text.count(part) * (_length(by) - _length(part)) for text, part, by in rows))
    words = symbols.intern_all([text.replace(part, by) for text, part, by in rows])
    return words if inverse is None else words[inverse], None


def _index(text: str, part: str) -> int | None:
    position = text.find(part)
    return None if position < 0 else _length(text[:position])


def _format(symbols: SymbolTable, types: tuple[ValueType, ...], *operands: np.ndarray) -> tuple[np.ndarray, None]:
    """The first text with each `{}` replaced by the next of the others, as a cast to String writes it."""
    _announce(symbols, types, operands)
    distinct, inverse = np.unique(operands[0], return_inverse=True)
    calls = []
    for text in symbols.lookup(distinct).tolist():
        parts = text.split("{}")
        if len(parts) != len(operands):
            passed, slots = len(operands) - 1, len(parts) - 1
            raise ForeignError(
                f"`$format` has {slots} place{'s' if slots != 1 else ''} `{{}}`"
                f" for {passed} argument{'s' if passed != 1 else ''}",
                "$format",
                hint="give one argument for each place",
            )
        # Other braces mean nothing in the language, and much in Python.
        calls.append("{}".join(part.replace("{", "{{").replace("}", "}}") for part in parts).format)
    columns = [texts_of(words, t, symbols) for words, t in zip(operands[1:], types[1:])]
    if not columns:
        made = [calls[index]() for index in inverse.tolist()]
    elif len(calls) == 1:
        made = list(map(calls[0], *columns))
    else:
        made = [calls[index](*row) for index, row in zip(inverse.tolist(), zip(*columns))]
    return symbols.intern_all(made), None


def _hash(symbols: SymbolTable, types: tuple[ValueType, ...], *operands: np.ndarray) -> tuple[np.ndarray, None]:
    constructors = {} if symbols.entities is None else symbols.entities.constructors
    columns = [show_column(words, t, symbols) for words, t in zip(operands, types)]
    return siphash(columns, types, constructors).view(np.int64), None


def _parse_entity(symbols: SymbolTable, types: tuple[ValueType, ...], texts: np.ndarray) -> Any:
    """Terms of the program; a text that is none gives nothing."""
    if symbols.entities is None:
        return np.zeros(len(texts), np.int64), np.zeros(len(texts), bool)
    return symbols.entities.parsed(symbols.lookup(texts).tolist(), ENTITY)


def _values(name: str, text: str, call: Callable[..., Any]) -> ForeignFunction:
    return ForeignFunction(name, signature(text), call)


FUNCTIONS = (
    ForeignFunction("string_concat", signature("(String...) -> String"), _concat, "words"),
    ForeignFunction("string_length", signature("(s: String) -> usize"), _lengths, "words"),
    _values("string_char_at", "(s: String, place: usize) -> char", _character),
    _values("substring", "(s: String, begin: usize, end: usize?) -> String", _substring),
    _values("string_upper", "(s: String) -> String", str.upper),
    _values("string_lower", "(s: String) -> String", str.lower),
    _values("string_trim", "(s: String) -> String", lambda text: text.strip(_SPACES)),
    _values("string_index_of", "(s: String, part: String) -> usize", _index),
    ForeignFunction("string_replace", signature("(s: String, part: String, by: String) -> String"), _replace, "words"),
    ForeignFunction("format", signature("(pattern: String, Any...) -> String"), _format, "words"),
    ForeignFunction("hash", signature("(Any...) -> u64"), _hash, "words"),
    ForeignFunction("parse_entity", signature("(String) -> Entity"), _parse_entity, "words"),
)


def _find(text: str, part: str) -> Iterator[tuple[int, int]]:
    """The first and the last position of each occurrence; they do not overlap."""
    width, position = _length(part), text.find(part)
    while position >= 0:
        begin = _length(text[:position])
        yield begin, begin + width
        position = text.find(part, position + (len(part) or 1))


def _split(text: str, by: str) -> Iterator[tuple[str]]:
    # By nothing, a text is split before and behind each character.
    for part in text.split(by) if by else ["", *text, ""]:
        yield (part,)


PREDICATES = (
    ForeignPredicate("string_chars", signature("(s: String) -> (place: usize, c: char)"), enumerate),
    ForeignPredicate(
        "string_index", signature("(s: String) -> (place: usize)"), lambda text: ((i,) for i in range(_length(text)))
    ),
    ForeignPredicate("string_find", signature("(s: String, part: String) -> (begin: usize, end: usize)"), _find),
    ForeignPredicate("string_split", signature("(s: String, by: String) -> (part: String)"), _split),
)
