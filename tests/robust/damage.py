"""Damaged files: cut at any byte, and changed, and what must come of reading them."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from derivable.core.diagnostics import DerivableError

# What breaks readers of text: signs, digits, separators, huge numbers, bytes that no encoding has.
PIECES = (b"0", b"-", b"9", b" ", b"\n", b"\r", b"\t", b"\0", b"+", b"_", b".", b"e9", b"nan", b"inf", b'"', b"[", b"{")
PIECES += (b"\xff", b"\xc2\xa0", b"4294967296", b"9" * 40, b"9" * 5000, b"1e400", b"c", b"%", b"x" * 300)


def cuts(content: bytes) -> Iterator[bytes]:
    """Every prefix but the whole."""
    return (content[:length] for length in range(len(content)))


def changes(content: bytes, count: int, seed: int) -> Iterator[bytes]:
    """So many changed contents: bits turned, bytes and pieces put in, taken out, repeated and moved, or several."""
    draw = random.Random(seed)
    for _ in range(count):
        data = bytearray(content)
        for _ in range(draw.choice((1, 1, 1, 2, 5))):
            at, length = draw.randrange(len(data) + 1), draw.choice((1, 1, 2, 4, 20))
            kind = draw.randrange(5)
            if kind == 0 and at < len(data):
                data[at] ^= 1 << draw.randrange(8)
            elif kind == 1:
                data[at:at] = draw.choice(PIECES)
            elif kind == 2:
                del data[at : at + length]
            elif kind == 3:
                data[at : at + length] = draw.choice(PIECES)
            else:
                data[at:at] = data[(start := draw.randrange(len(data) + 1)) : start + length]
        yield bytes(data)


def outcome(read: Callable[[Path], Any], path: Path, content: bytes) -> Any:
    """What `read` makes of the content, None if it refuses it in our own words; any other exception is passed on."""
    path.write_bytes(content)
    try:
        return read(path)
    except DerivableError:
        return None
