"""Files of the Matrix Market: sparse and dense matrices as text, gzipped or not.

Source: Boisvert, Pozo and Remington, The Matrix Market exchange formats (NIST IR 5935, 1996).
"""

from __future__ import annotations

import io
import math
import os
import re

import numpy as np

from derivable.core.diagnostics import ParseError, Span, UnsupportedError, warn
from derivable.core.files import read_bytes
from derivable.core.numbers import number_of
from derivable.core.registry import nearest
from derivable.tensor.values.values import Coordinates

_BANNER = "%%MatrixMarket matrix"
_FIELDS = ("real", "double", "integer", "pattern")
_SYMMETRIES = ("general", "symmetric", "skew-symmetric")


def read_matrix_market(path: str | os.PathLike) -> Coordinates:
    """The matrix in a file: `coordinate` or `array`, `real`, `integer` or `pattern`, of any symmetry; both triangles of
    a symmetric one. Entries that are written as zero stay entries; those of a pattern are 1.

    Raises ParseError for a file that is missing or damaged, with the line; UnsupportedError for complex numbers.
    """
    text = read_bytes(path)
    return parse_matrix_market(bytes(text).removeprefix(b"\xef\xbb\xbf").decode("latin-1"), os.fspath(path))


def parse_matrix_market(text: str, source: str = "<input>") -> Coordinates:
    """`read_matrix_market` of a text."""
    file = _File(text, source)
    layout, field, symmetry = file.banner()
    num_sizes = 3 if layout == "coordinate" else 2
    sizes = file.sizes(num_sizes)
    shape = sizes[:2]
    if symmetry != "general" and shape[0] != shape[1]:
        raise file.error(f"a {symmetry} matrix has {shape[0]} rows and {shape[1]} columns", file.body - 1)
    if layout == "array":
        indices, values = _array_entries(file, shape, symmetry, field)
    else:
        numbers = file.numbers(sizes[2], 2 if field == "pattern" else 3)
        with np.errstate(invalid="ignore"):
            indices = numbers[:, :2].astype(np.int64).T - 1
        values = np.ones(sizes[2]) if field == "pattern" else file.checked(numbers[:, 2], field)
        sizes_of_axes = np.array(shape)[:, None]
        is_outside = ((indices + 1 != numbers[:, :2].T) | (indices < 0) | (indices >= sizes_of_axes)).any(axis=0)
        if is_outside.any():
            entry = int(np.flatnonzero(is_outside)[0])
            row, column = (f"{number:g}" for number in numbers[entry, :2])
            raise file.error(
                f"entry ({row}, {column}) is outside a matrix of {shape[0]} rows and {shape[1]} columns",
                file.line_of(entry),
                "indices count from 1",
            )
        is_upper = indices[0] < indices[1]
        if symmetry != "general" and is_upper.any() and (indices[0] > indices[1]).any():
            raise file.error(
                f"a {symmetry} matrix has entries on both sides of the diagonal",
                file.line_of(int(np.flatnonzero(is_upper)[0])),
                "the file has one triangle; `general` matrices have both",
            )
    if symmetry != "general":
        is_off = indices[0] != indices[1]
        if symmetry == "skew-symmetric" and layout == "coordinate" and (wrong := ~is_off & (values != 0)).any():
            message = "a skew-symmetric matrix has zeros on its diagonal"
            raise file.error(message, file.line_of(int(np.flatnonzero(wrong)[0])))
        sign = -1.0 if symmetry == "skew-symmetric" else 1.0
        indices = np.concatenate([indices, indices[::-1, is_off]], axis=1)
        values = np.concatenate([values, sign * values[is_off]])
    return Coordinates.of(shape, indices, values, name=source)


def _array_entries(file: _File, shape: tuple[int, ...], symmetry: str, field: str) -> tuple[np.ndarray, np.ndarray]:
    """The columns one after another, of a symmetric matrix the lower triangle only."""
    size, diagonal = shape[0], symmetry != "skew-symmetric"
    count = math.prod(shape) if symmetry == "general" else size * (size + (1 if diagonal else -1)) // 2
    values = file.checked(file.numbers(count, 1)[:, 0], field)
    if count == 0:  # of an empty matrix the other size may be any
        return np.zeros((2, 0), np.int64), values
    columns, rows = np.indices(shape[::-1]).reshape(2, -1)
    if symmetry != "general":
        is_given = rows >= columns if diagonal else rows > columns
        rows, columns = rows[is_given], columns[is_given]
    return np.stack([rows, columns]), values


class _File:
    """A text with its place: the first line of the entries is `body`, counted from 0."""

    def __init__(self, text: str, source: str):
        self.text, self.source = text, source
        self.start = self.body = 0

    def error(self, message: str, line: int, hint: str | None = None) -> ParseError:
        shown = self.text.split("\n")[line] if line < self.text.count("\n") + 1 else ""
        span = Span(line + 1, 1, max(1, len(shown.rstrip())))
        return ParseError(message, source=self.source, text=self.text, span=span, hint=hint)

    def banner(self) -> tuple[str, str, str]:
        """(layout, field, symmetry)"""
        first = self.text.split("\n", 1)[0]
        words = first.lower().split()
        if words[:2] != _BANNER.lower().split() or len(words) != 5:
            raise self.error(
                "this is no Matrix Market file", 0, f"its first line is `{_BANNER} coordinate real general`, say"
            )
        layout, field, symmetry = words[2:]
        if field == "complex" or symmetry == "hermitian":
            raise UnsupportedError("complex numbers are in no semiring", source=self.source, span=Span(1, 1))
        if (layout, field) == ("array", "pattern"):
            raise self.error("an array has numbers, and a pattern has none", 0, "patterns are `coordinate pattern`")
        for word, known in ((layout, ("coordinate", "array")), (field, _FIELDS), (symmetry, _SYMMETRIES)):
            if word not in known:
                close = nearest(word, known)
                hint = f"did you mean `{close}`?" if close else f"known are {', '.join(known)}"
                raise self.error(f"`{word}` means nothing here", 0, hint)
        return layout, field, symmetry

    def sizes(self, count: int) -> tuple[int, ...]:
        """The line of sizes, behind the comments; the entries are what is behind it."""
        position, number = self.text.find("\n") + 1, 1
        while position:
            end = self.text.find("\n", position)
            line = self.text[position : end if end >= 0 else len(self.text)].strip()
            if line and not line.startswith("%"):
                words = line.split()
                what = "rows, columns and entries" if count == 3 else "rows and columns"
                wrong = next((word for word in words if not re.fullmatch("[0-9]{1,18}", word)), None)
                if wrong is not None:
                    raise self.error(f"{wrong!r} in the line of sizes is no number of {what}", number)
                if len(words) != count:
                    raise self.error(f"the line of sizes has {len(words)} words, expected {count}: {what}", number)
                self.start, self.body = end + 1 if end >= 0 else len(self.text), number + 1
                return tuple(map(int, words))
            position, number = end + 1, number + 1
        raise self.error("the file ends before the line of sizes", number - 1)

    def numbers(self, count: int, width: int) -> np.ndarray:
        """[entry, column] float64, which is exact for indices below 2^53."""
        body = self.text[self.start :]
        try:
            found = np.loadtxt(io.StringIO(body), ndmin=2, comments=None) if body.strip() else np.empty((0, width))
        except ValueError:
            raise self._bad_line(width) from None
        if found.shape != (count, width):
            raise self._bad_line(width, count)
        return found

    def checked(self, values: np.ndarray, field: str) -> np.ndarray:
        """The values, if they are what the field of the banner says."""
        is_integer = field == "integer"
        is_wrong = is_integer & ~(np.isfinite(values) & (values == np.rint(values)))
        is_large = is_integer & (np.abs(values) >= 2.0**53)
        infinite = np.flatnonzero(np.isinf(values)).tolist()
        words = self.last_words() if infinite or is_wrong.any() or is_large.any() else []
        for entry in infinite:
            if "inf" not in words[entry].lower():
                hint = "an infinity is written inf"
                raise self.error(f"{words[entry]} is too large for 64 bits", self.line_of(entry), hint)
        for entry in np.flatnonzero(is_wrong)[:1].tolist():
            hint = "the first line says `integer`; write `real` there"
            raise self.error(f"{words[entry]} is no integer", self.line_of(entry), hint)
        for entry in np.flatnonzero(is_large)[:1].tolist():
            span = Span(self.line_of(entry) + 1, 1)
            hint = "entries are floating-point numbers of 64 bits, exact up to 2^53"
            warn(f"{words[entry]} may be rounded", hint=hint, source=self.source, text=self.text, span=span)
        return values

    def last_words(self) -> list[str]:
        """[entry] the last word of its line."""
        return [words[-1] for line in self.text[self.start :].split("\n") if (words := line.split())]

    def line_of(self, entry: int) -> int:
        """The line of an entry, counted from 0."""
        lines = self.text[self.start :].split("\n")
        return self.body + [number for number, line in enumerate(lines) if line.strip()][entry]

    def _bad_line(self, width: int, count: int | None = None) -> ParseError:
        lines = self.text[self.start :].split("\n")
        found = 0
        for number, line in enumerate(lines):
            words = line.split()
            if words and (len(words) != width or not all(map(_is_number, words))):
                what = {1: "a number", 2: "a row and a column", 3: "a row, a column and a number"}[width]
                return self.error(f"`{line.strip()}` is not {what}", self.body + number)
            found += bool(words)
        hint = "it may be cut off" if count is not None and found < count else "are its sizes those of another file?"
        return self.error(f"the file has {found} entries, and its sizes say {count}", self.body - 1, hint)


def _is_number(word: str) -> bool:
    try:
        number_of(word)
    except ValueError:
        return False
    return True
