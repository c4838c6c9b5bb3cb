"""SipHash-1-3 with the key 0, of many rows at a time: what `$hash` gives.

A row is hashed as the number of its values in 8 bytes, then their bytes, little-endian, without their types: integers
in their width, floats by their bits, a bool in one byte, a character in four, a text in UTF-8 and then the byte 255, a
term as a text `entity` and the hash of its functor and fields.
Source: Aumasson and Bernstein 2012, with one round a word and three at the end, as Rust's standard library has it.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence

import numpy as np

from derivable.datalog.values.constructors import Constructor
from derivable.datalog.values.datetimes import Duration
from derivable.datalog.values.tensors import key_of
from derivable.datalog.values.terms import Entity, subterms
from derivable.datalog.values.values import ValueType

_KEYS = (0x736F6D6570736575, 0x646F72616E646F6D, 0x6C7967656E657261, 0x7465646279746573)


def siphash(
    columns: Sequence[np.ndarray], types: Sequence[ValueType], constructors: Mapping[str, Constructor] | None = None
) -> np.ndarray:
    """Hashes [row] uint64 of rows whose columns are as `values.show_column` gives them.

    One row, if there are no columns. `constructors` are those of the terms in them.
    """
    prefix = struct.pack("<Q", len(columns))
    parts = [_parts(column, t, constructors or {}) for column, t in zip(columns, types)]
    return _rows_hashes([prefix + b"".join(row) for row in zip(*parts)] if parts else [prefix])


def _rows_hashes(rows: list[bytes]) -> np.ndarray:
    hashes = np.empty(len(rows), np.uint64)
    lengths = np.array([len(row) for row in rows])
    for length in np.unique(lengths).tolist():
        chosen = np.flatnonzero(lengths == length)
        # The last word has what is left of the bytes, and the length in its highest byte.
        padding = bytes(-(length + 1) % 8) + bytes([length % 256])
        words = np.frombuffer(b"".join(rows[i] + padding for i in chosen.tolist()), "<u8")
        hashes[chosen] = _hashes(words.reshape(len(chosen), -1))
    return hashes


def _terms(column: np.ndarray, constructors: Mapping[str, Constructor]) -> list[bytes]:
    """A term is the text `entity` and the hash of its functor and fields, which are hashed by height."""
    hash_of: dict[Entity, bytes] = {}
    levels: dict[int, list[Entity]] = {}
    for term in subterms(column.tolist()):
        levels.setdefault(term.height, []).append(term)
    for level in sorted(levels):
        rows = []
        for term in levels[level]:
            parts = [term.functor.encode() + b"\xff"]
            for field, t in zip(term.fields, constructors[term.functor].fields):
                parts.append(hash_of[field] if t.family == "entity" else _parts(np.array([field], t.dtype), t, {})[0])
            rows.append(b"".join(parts))
        for term, number in zip(levels[level], _rows_hashes(rows).tolist()):
            hash_of[term] = b"entity\xff" + struct.pack("<Q", number)
    return [hash_of[term] for term in column.tolist()]


def _parts(column: np.ndarray, t: ValueType, constructors: Mapping[str, Constructor]) -> list[bytes]:
    if t.family == "entity":
        return _terms(column, constructors)
    if t.family == "text":
        return [text.encode("utf-8", "surrogatepass") + b"\xff" for text in column.tolist()]
    if t.family == "char":
        return [struct.pack("<I", ord(c)) for c in column.tolist()]
    if t.family == "duration":
        durations = [Duration.of(value) or Duration() for value in column.tolist()]
        return [struct.pack("<qq", d.months, d.microseconds) for d in durations]
    if t.family == "tensor":
        return [repr(key_of(value)).encode() + b"\xff" for value in column]
    if t.is_wide:
        return [int(value).to_bytes(16, "little", signed=t.family == "signed") for value in column.tolist()]
    width, raw = column.dtype.itemsize, np.ascontiguousarray(column).tobytes()
    return [raw[i : i + width] for i in range(0, len(raw), width)]


def _hashes(words: np.ndarray) -> np.ndarray:
    a, b, c, d = (np.full(len(words), key, np.uint64) for key in _KEYS)
    for word in words.T:
        a, b, c, d = _round(a, b, c, d ^ word)
        a = a ^ word
    c = c ^ np.uint64(255)
    for _ in range(3):
        a, b, c, d = _round(a, b, c, d)
    return a ^ b ^ c ^ d


def _turned(x: np.ndarray, bits: int) -> np.ndarray:
    return (x << np.uint64(bits)) | (x >> np.uint64(64 - bits))


def _round(a: np.ndarray, b: np.ndarray, c: np.ndarray, d: np.ndarray) -> tuple[np.ndarray, ...]:
    a = a + b
    b = _turned(b, 13) ^ a
    a = _turned(a, 32)
    c = c + d
    d = _turned(d, 16) ^ c
    a = a + d
    d = _turned(d, 21) ^ a
    c = c + b
    b = _turned(b, 17) ^ c
    c = _turned(c, 32)
    return a, b, c, d
