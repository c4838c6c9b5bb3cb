"""Changes of texts by their lines, words and numbers, which those of `damage` seldom reach."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator

NUMBERS = (b"", b"-1", b"0", b"99999999999999999999", b"2147483648", b"9223372036854775808", b"4294967297", b"nan")
NUMBERS += (
    b"inf",
    b"-inf",
    b"1e400",
    b"1e-400",
    b"0x10",
    b"1_0",
    b"1.5",
    b"1.",
    b"+1",
    b"007",
    b"\xd9\xa3",
    b"1,5",
    b"--1",
)
SIGNS = (b"\0", b"\xff", b"\xc3\x28", b"\xed\xa0\x80", b"\xf0\x9f\x98\x80", b"\xe2\x80\xa8", b"\xe2\x80\x8b", b"\x1a")
_NUMBER = re.compile(rb"-?\d+(\.\d+)?(e[+-]?\d+)?")


def line_cuts(content: bytes) -> Iterator[bytes]:
    """The content cut behind the end of each line, and before it."""
    for match in re.finditer(rb"\n", content):
        yield content[: match.start()]
        yield content[: match.end()]


def rewritten(content: bytes) -> Iterator[bytes]:
    """The same text as other systems write it, and what is none of it."""
    yield from (b"\xef\xbb\xbf" + content, content + b"\x1a", content + content, b"", b" \n", b"\0" + content)
    for old, new in (
        (b"\n", b"\r\n"),
        (b"\n", b"\r"),
        (b"\n", b"\n\n"),
        (b"\n", b" \n"),
        (b"\n", b"\x0b"),
        (b" ", b"\t"),
    ):
        yield content.replace(old, new)
    yield content.replace(b" ", b"\xc2\xa0")
    yield content.upper()
    yield from (content.decode("latin-1").encode(code) for code in ("utf-16", "utf-16-le"))
    yield b"".join(content.splitlines(keepends=True)[::-1])


def line_changes(content: bytes, count: int, seed: int) -> Iterator[bytes]:
    """So many contents with a line or word that is missing, repeated or moved, another number, or a sign put in."""
    draw = random.Random(seed)
    for _ in range(count):
        kind = draw.randrange(8)
        if kind < 4:
            lines = content.splitlines(keepends=True)
            first, second = draw.randrange(len(lines)), draw.randrange(len(lines))
            if kind == 0:
                del lines[first : first + draw.choice((1, 1, 3))]
            elif kind == 1:
                lines.insert(second, lines[first])
            elif kind == 2:
                lines[first], lines[second] = lines[second], lines[first]
            else:
                lines.insert(second, lines.pop(first))
            yield b"".join(lines)
            continue
        if kind == 7:
            at = draw.randrange(len(content) + 1)
            yield content[:at] + draw.choice(SIGNS) + content[at:]
            continue
        words = list(_NUMBER.finditer(content)) if kind < 6 else []
        kind, words = (kind, words) if words else (6, list(re.finditer(rb"\S+", content)))
        match = draw.choice(words)
        new = draw.choice(NUMBERS) if kind < 6 else draw.choice((b"", match.group() * 2, draw.choice(words).group()))
        yield content[: match.start()] + new + content[match.end() :]
