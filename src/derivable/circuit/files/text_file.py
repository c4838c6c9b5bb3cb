"""The text of a circuit file: its header, its lines, and errors that show a line and a caret."""

from __future__ import annotations

import re
from itertools import islice
from typing import NamedTuple, NoReturn

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
CUT_OFF = "the file was probably cut off; fetch or write it again"


class Lines(NamedTuple):
    """Lines of a file as `kernels.parse_bytes.parse_lines` writes them."""

    kinds: np.ndarray
    names: np.ndarray
    places: np.ndarray
    numbers: np.ndarray
    elements: np.ndarray


class TextFile:
    """The content of a file, which has been decompressed.

    data        its bytes, and `array` [byte] uint8 the same
    source      its name for messages
    hints       the likely fix by code, where the format has one
    most_words  a bound on the words of the text, which are at least two bytes apart, so that a header that lies does
                not make us allocate what it says. Pages of arrays that are not written are never touched
    """

    def __init__(self, data: bytes | memoryview, source: str | None, hints: dict[int, str]):
        self.data, self.source, self.hints = data, source, hints
        self.array = np.frombuffer(data, np.uint8)
        self.most_words = len(data) // 2 + 1

    def header(self, word: str, fields: str, what: str) -> tuple[list[int], int]:
        """The numbers of the header line `word fields`, and the position behind it.

        fields  its numbers as people read them, such as "<nodes> <edges>"
        what    what the file is, such as "an SDD file"
        """
        numbers = np.zeros(fields.count("<"), np.int64)
        code, position, value = text.parse_header(self.array, np.frombuffer(word.encode(), np.uint8), numbers)
        if code == text.MISSING_HEADER:
            if position >= len(self.data):
                self.fail_empty(f"{what} starts with `{word} {fields}`")
            self.fail(position, f"expected the header `{word} {fields}`")
        if code != text.OK:
            self.fail_code(code, position, value)
        return numbers.tolist(), position

    def lines(self, position: int, grammar: np.ndarray, count: int, word: str, variables: int = text.LIMIT) -> Lines:
        """The lines from a position on, after a header that starts with `word` and announces `count` of them."""
        announced = min(count, self.most_words // 2)  # a line has two words
        names, places, numbers = np.empty((3, announced), np.int32)
        elements = np.empty(self.most_words, np.int32)
        lines = Lines(np.empty(announced, np.uint8), names, places, numbers, elements)
        defined = np.zeros(announced, np.uint8)
        found = text.parse_lines(self.array, position, len(self.data), variables, grammar, 0, 0, defined, *lines)
        self.check_lines(found, announced, count, word, variables)
        return lines._replace(elements=elements[: found[4]])

    def check_lines(self, found: tuple, announced: int, count: int, word: str, variables: int = text.LIMIT) -> None:
        """Raise the ParseError of what `kernels.parse_bytes.parse_lines` returned, if it is one, or too few lines."""
        code, position, value, lines, _ = found
        if code != text.OK and not (code == text.ID_RANGE and announced < count):
            self.fail_code(code, position, value, count, variables)
        if lines != count:
            self.fail_header(word, f"the header announces {count} nodes, the file has {lines}")
        if count == 0:
            what = {"sdd": "an SDD", "nnf": "a circuit", "vtree": "a vtree"}[word]
            self.fail_header(word, f"{what} has at least one node", None)

    def check_last_number(self, bound: int) -> None:
        """Raise ParseError if the text ends with a number, not with its line, and the number may go on.

        bound  the numbers that may stand there are below it
        """
        if not len(self.data) or not ord("0") <= self.data[-1] <= ord("9"):
            return
        *before, word = re.split(rb"[\r\n]", bytes(self.data))[-1].split()
        if before and before[0] != b"c" and word.isdigit() and 0 < 10 * int(word) < bound:
            hint = "close the last line if it is whole; else fetch the file again"
            self.fail(len(self.data) - len(word), "the file ends behind this number, which may be cut", hint)

    # Errors

    def fail(self, position: int, message: str, hint: str | None = None) -> NoReturn:
        """Raise a ParseError at the word at a byte position."""
        span, shown = self._span_at(position)
        raise ParseError(message, hint=hint, source=self.source, text=shown, span=span)

    def fail_code(
        self, code: int, position: int, value: int, count: int = 0, variables: int = 0, first_id: int = 0
    ) -> NoReturn:
        """Raise the ParseError of a code of `kernels.parse_bytes`.

        count     nodes that the header announces, variables likewise
        first_id  0 if ids run from 0, 1 if any positive number is an id
        """
        token = self._word_at(position)
        ids = f"ids run from 0 to {count - 1}" if count else "the header announces 0 nodes"
        named = {"value": value, "count": count, "variables": variables, "ids": "ids are positive" if first_id else ids}
        shown = token if len(token) <= 40 else f"{token[:40]}..."
        is_cut = code in (text.EXPECTED_MORE, text.NOT_TERMINATED) and not bytes(self.data[position:]).strip()
        hint = CUT_OFF if is_cut else self.hints.get(code)
        self.fail(position, _MESSAGES[code].format(token=f"`{shown}`", **named), hint)

    def fail_line(self, number: int, message: str, hint: str | None = None) -> NoReturn:
        """Raise a ParseError at the id that line `number` (from 0) defines, of those that start with a letter."""
        found = re.finditer(rb"^[ \t]*[A-Z][ \t]+(\d+)", self._unix_text(), re.MULTILINE)
        self.fail(next(islice(found, number, None)).start(1), message, hint)

    def fail_header(self, words: str, message: str, hint: str | None = CUT_OFF) -> NoReturn:
        """Raise a ParseError that points behind these words of the header, at a count that is wrong."""
        match = re.search(rb"^[ \t]*" + words.encode() + rb"[ \t]+", self._unix_text(), re.MULTILINE)
        self.fail(match.end() if match else 0, message, hint)

    def fail_empty(self, expected: str) -> NoReturn:
        """Raise a ParseError for a file without content, or with comments only."""
        kind = "has comments only" if bytes(self.data).strip() else "is blank" if self.data else "is empty"
        raise ParseError(f"the file {kind}", source=self.source, hint=expected)

    def _unix_text(self) -> bytes:
        return bytes(self.data).replace(b"\r", b"\n")

    def _word_at(self, position: int) -> str:
        """The word at a byte position, "" at the end of a line."""
        match = re.compile(rb"[^\x00-\x20]{0,1000}").match(self.data, position)
        return match.group().decode("utf-8", "replace") if match else ""

    def _span_at(self, position: int) -> tuple[Span, str]:
        """The span of the word at a byte position and a text that has this line at its number.

        LF, CRLF and CR end lines. A position at the end of a line points behind its last character.
        """
        data = bytes(self.data)
        before = data[:position]
        line = before.count(b"\n") + before.replace(b"\r\n", b"\n").count(b"\r") + 1
        start = max(before.rfind(b"\n"), before.rfind(b"\r")) + 1
        end = min(
            (found for found in (data.find(b"\n", position), data.find(b"\r", position)) if found >= 0), default=None
        )
        end = min(len(data) if end is None else end, position + 1000)  # what has no lines is no text
        # Control characters would not be shown, or worse.
        shown = re.sub(r"[\x00-\x08\x0b-\x1f\x7f]", "\ufffd", data[start:end].decode("utf-8", "replace"))
        column = len(data[start:position].decode("utf-8", "replace")) + 1
        return Span(line, column, max(1, len(self._word_at(position)))), "\n" * (line - 1) + shown
