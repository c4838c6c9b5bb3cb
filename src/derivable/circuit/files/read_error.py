"""From a parser's return code and byte position to an error that shows the line and a caret; headers of files."""

from __future__ import annotations

import re
from typing import NoReturn

import numpy as np

from derivable.circuit.kernels import parse_bytes as text
from derivable.core.diagnostics import ParseError, Span

_MESSAGES = {
    text.EXPECTED_NUMBER: "expected an integer, found {token}",
    text.EXPECTED_MORE: "the line ends where an integer was expected",
    text.EXPECTED_END: "expected the end of the line, found {token}",
    text.UNKNOWN_LINE: "unknown line, it starts with {token}",
    text.TOO_MANY_NODES: "the header announces {count} nodes, this is one more",
    text.ID_RANGE: "node id {value} is out of range, {ids}",
    text.DUPLICATE_ID: "node {value} is defined twice",
    text.UNDEFINED_ID: "node {value} is used before it is defined",
    text.ZERO_LITERAL: "{value} is not a literal",
    text.NUMBER_RANGE: "{token} does not fit in 32 bits",
    text.BAD_COUNT: "{value} is not a count",
    text.NOT_TERMINATED: "the line is not closed by 0",
    text.VARIABLE_RANGE: "literal {value} is out of range, the header announces {variables} variables",
}
_CUT_OFF = "the file was probably cut off; fetch or write it again"


def span_at(data: bytes, position: int, length: int | None = None) -> tuple[Span, str]:
    """The span of the token at a byte position and a text that has this line at its number.

    LF, CRLF and CR end lines. A position at the end of a line points behind its last character.
    """
    before = data[:position]
    line = before.count(b"\n") + before.replace(b"\r\n", b"\n").count(b"\r") + 1
    start = max(before.rfind(b"\n"), before.rfind(b"\r")) + 1
    end = len(data)
    for newline in (b"\n", b"\r"):
        found = data.find(newline, position)
        end = end if found < 0 else min(end, found)
    # Control characters would not be shown, or worse.
    shown = re.sub(r"[\x00-\x08\x0b-\x1f\x7f]", "\ufffd", data[start:end].decode("utf-8", "replace"))
    column = len(data[start:position].decode("utf-8", "replace")) + 1
    if length is None:
        length = max(1, len(token_at(data, position)))
    return Span(line, column, length), "\n" * (line - 1) + shown


def token_at(data: bytes, position: int) -> str:
    """The word at a byte position, "" at the end of a line."""
    match = re.compile(rb"[^\x00-\x20]*").match(data, position)
    return match.group().decode("utf-8", "replace") if match else ""


def fail(
    data: bytes | memoryview,
    source: str | None,
    position: int,
    message: str,
    hint: str | None = None,
    length: int | None = None,
) -> NoReturn:
    """Raise a ParseError at a byte position."""
    span, shown = span_at(bytes(data), position, length)
    raise ParseError(message, hint=hint, source=source, text=shown, span=span)


def fail_code(
    data: bytes | memoryview,
    source: str | None,
    code: int,
    position: int,
    value: int,
    *,
    count: int = 0,
    variables: int = 0,
    first_id: int = 0,
    hints: dict[int, str] | None = None,
) -> NoReturn:
    """Raise the ParseError of a code of `device.cpu.text`.

    count     nodes that the header announces, variables likewise
    first_id  0 if ids run from 0, 1 if any positive number is an id
    hints     the likely fix by code, where the format has one
    """
    data = bytes(data)
    token = token_at(data, position)
    if first_id:
        ids = "ids are positive"
    elif count:
        ids = f"ids run from 0 to {count - 1}"
    else:
        ids = "the header announces 0 nodes"
    shown = token if len(token) <= 40 else f"{token[:40]}..."
    message = _MESSAGES[code].format(token=f"`{shown}`", value=value, count=count, variables=variables, ids=ids)
    hint = (hints or {}).get(code)
    ends = not data[position:].strip()
    if ends and code in (text.EXPECTED_MORE, text.NOT_TERMINATED):
        hint = _CUT_OFF
    fail(data, source, position, message, hint)


def read_header(
    data: bytes | memoryview, array: np.ndarray, word: str, fields: str, source: str | None, file: str
) -> tuple[list[int], int]:
    """The numbers of the header line `word fields`, and the position behind it.

    fields  its numbers as people read them, such as "<nodes> <edges>"
    file    what the file is, such as "an SDD file"
    """
    numbers = np.zeros(fields.count("<"), np.int64)
    code, position, value = text.parse_header(array, word.encode(), numbers)
    if code == text.MISSING_HEADER:
        if position >= len(data):
            fail_empty(data, source, f"{file} starts with `{word} {fields}`")
        fail(data, source, position, f"expected the header `{word} {fields}`")
    if code != text.OK:
        fail_code(data, source, code, position, value)
    return numbers.tolist(), position


def most_words(data: bytes | memoryview) -> int:
    """A bound on the words of a text, which are at least two bytes apart, so that a header that lies does not make us
    allocate what it says. Pages of arrays that are not written are never touched."""
    return len(data) // 2 + 1


def fail_header(
    data: bytes | memoryview, source: str | None, word: bytes, message: str, hint: str | None = _CUT_OFF
) -> NoReturn:
    """Raise a ParseError that points at the first number of the header, whose count is wrong."""
    data = bytes(data)
    match = re.compile(rb"^[ \t]*" + word + rb"[ \t]+", re.MULTILINE).search(data.replace(b"\r", b"\n"))
    fail(data, source, match.end() if match else 0, message, hint)


def fail_empty(data: bytes | memoryview, source: str | None, expected: str) -> NoReturn:
    """Raise a ParseError for a file without content, or with comments only."""
    data = bytes(data)
    if data.strip():
        message = "the file has comments only"
    elif data:
        message = "the file is blank"
    else:
        message = "the file is empty"
    raise ParseError(message, source=source, hint=expected)
