"""Which partition owns a value: the same integer on every machine and for every engine.

An integer v has the key (((v mod P) A) mod P) mod n, A and P those of the generator of Park and Miller 1988, whose
product fits into 64 bits; a text has the CRC-32 of its UTF-8, mod n.
"""

from __future__ import annotations

import zlib
from collections.abc import Collection

import numpy as np

from derivable.datalog.values.symbols import SymbolTable
from derivable.datalog.values.values import ValueType, texts_of

PRIME, FACTOR = (1 << 31) - 1, 48271


def is_text(t: ValueType) -> bool:
    """Whether values of a type have the keys of texts."""
    return t.family in ("text", "char")


def keys_of(words: np.ndarray, t: ValueType, symbols: SymbolTable, count: int) -> np.ndarray:
    """[row] the key, in range(count), of each value of a column of words."""
    if is_text(t):
        return keys_of_texts(texts_of(words, t, symbols), count)
    return keys_of_integers(words, count)


def keys_of_texts(texts: Collection[str], count: int) -> np.ndarray:
    encoded = (text.encode("utf-8", "surrogatepass") for text in texts)
    return np.fromiter((zlib.crc32(text) % count for text in encoded), np.int64, len(texts))


def keys_of_integers(words: np.ndarray, count: int) -> np.ndarray:
    return np.mod(np.mod(np.mod(words.astype(np.int64), PRIME) * FACTOR, PRIME), count)
