"""Whether the first line of a file in columns has names, and which column is where.

A header is what names the columns as the relation declares them. Without such a declaration it is what cannot be a
fact: words over columns that hold no words, the name `tag` over probabilities, names without quotes where every text
below has them, as in the files that `write_facts` makes. A first line that is probably a header, and could be a fact,
is an error: `header=` says what it is.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from derivable.datalog.facts.column_names import TAG_NAMES, are_like, listed, positions_by_name
from derivable.datalog.facts.file_forms import Target, file_error, quoted
from derivable.datalog.policy.costs import policy
from derivable.datalog.values.datetimes import Duration, word_of_datetime
from derivable.datalog.values.values import ValueType

MARK = b"\xef\xbb\xbf"
MISSING = ("", "nan", "na", "n/a", "null", "none")
TRUTH = {"true": True, "false": False, "1": True, "0": False}
# Types whose values a file has as texts.
_TEXTS = ("text", "char", "entity", "duration")
# How much of a file is looked at, and how many of its rows.
HEAD_BYTES = 1 << 16
# Words, and what they are measured in: `amount due (EUR)`.
_NAME = re.compile(r"[^\W\d_][^\W\d]*([ .-][^\W\d]+)*( ?(\([^()]*\)|\[[^][]*\]))?")
# Names that say no more than that they are names, and such as are numbered: `col1,col2`.
_NAMES_OF_COLUMNS = {
    *("name", "id", "key", "value", "label", "source", "target", "from", "to", "node", "column", "col")
}
_NUMBERED = re.compile(r"([^\W\d_]+)_?(\d+)")
_ROWS = 200
_FEW_ROWS = 2


def num_lines(data: bytes) -> int:
    """The ends of lines in some bytes."""
    view, size = np.frombuffer(data, np.uint8), policy().chunk
    # A part and what is compared with it stay in cache.
    is_end = np.empty(min(len(view), size), bool)
    count = 0
    for start in range(0, len(view), size):
        part = view[start : start + size]
        count += int(np.count_nonzero(np.equal(part, ord("\n"), out=is_end[: len(part)])))
    return count


@dataclass(frozen=True)
class FileText:
    """A file of text in columns.

    data       its bytes without a byte order mark
    delimiter  the character between fields
    is_csv     whether these may be quoted
    is_marked  whether there was a byte order mark
    """

    data: bytes
    delimiter: str
    is_csv: bool
    is_marked: bool = False

    @cached_property
    def num_lines(self) -> int:
        return num_lines(self.data)

    @cached_property
    def lines(self) -> list[list[str]]:
        """The fields of the first rows with their quotes; a blank line has one, which is empty."""
        text = self.data[:HEAD_BYTES].decode("utf-8", "replace").lstrip("\r\n")
        if len(self.data) >= HEAD_BYTES:
            text = text[: text.rfind("\n") + 1]
        plain = rf"[^{re.escape(self.delimiter)}\r\n]*"
        field = re.compile(rf' *("(?:[^"]|"")*"|{plain}){plain}' if self.is_csv else f"({plain})")
        rows, row, at = [], [], 0
        while at < len(text) and len(rows) < _ROWS:
            match = field.match(text, at)
            assert match is not None
            row.append(match[1])
            at = match.end()
            if text[at : at + 1] != self.delimiter:
                rows.append(row)
                row = []
                at += text[at : at + 1] == "\r"
                at += text[at : at + 1] == "\n"
            else:
                at += 1
        return [*rows, [*row, ""]] if row else rows

    @property
    def below(self) -> list[list[str]]:
        """The rows below the first line."""
        return [row for row in self.lines[1:] if row != [""]]

    def has_again(self, words: Sequence[str]) -> bool:
        """Whether some word stands below the first line."""
        start = self.data.find(b"\n", len(self.data) - len(self.data.lstrip(b"\r\n")))
        return start >= 0 and any(self.data.find(word.encode(), start) >= 0 for word in words)


def is_header(names: Sequence[str], target: Target, file: FileText, text: str = "", line: int = 1) -> bool:
    """Whether the first line, with these fields, has names.

    Raises ParseError where it seems to have other ones than the declaration.
    """
    if target.form.header is not None:
        return target.form.header
    declared = [n for n in target.column_names if n is not None]
    if len(declared) != len(target.types):
        declared = []
    titles = [n.strip() for n in names]
    # A column with the probabilities has a name that no declared column has.
    others = [n for n in titles if n not in TAG_NAMES or n in declared]
    if declared and set(declared) == set(others):
        return True
    # A text of one letter may be a value that happens to be called like a column.
    long = [name for name in declared if len(name) > 1]
    if declared and (
        are_like(others, long) or (len(others) == len(declared) and all(are_like([n], declared) for n in others))
    ):
        hint = (
            "spell the names as the declaration does, or say whether it is a header: `header=` of `@file` or of"
            " `dv.datalog.FactFile`"
        )
        if set(declared) < set(others):
            fields = f"[{', '.join(map(quoted, declared))}]"
            hint = f"to leave out the other columns, say `@file(path, header=true, fields={fields})`, or in Python"
            hint += f" `dv.datalog.FactFile(path, fields={fields})`"
        raise file_error(
            f"the first line seems to be a header with the names {listed(titles)}, and `{target.name}` has the columns"
            f" {listed(declared)}",
            target,
            text,
            line,
            hint=hint,
        )
    if not target.has_width(len(titles)):
        return False
    if all(map(str.isidentifier, titles)) and _is_above_facts(titles, target, file, bool(declared)):
        return True
    if _is_probable(titles, target, file):
        names_of_columns = f", and `{target.name}` has the columns {listed(declared)}" if declared else ""
        raise file_error(
            f"the first line, {listed(titles)}, seems to be a header: no line below is like it{names_of_columns}",
            target,
            text,
            line,
            hint="say what it is: `header=true` or `header=false` of `@file`, in Python"
            " `dv.datalog.FactFile(path, header=True)`",
        )
    return False


def is_name(word: str, t: ValueType) -> bool:
    """Whether a word is no value of a column, but probably its name."""
    word = word.strip()
    return _NAME.fullmatch(word) is not None and word.lower() not in MISSING and not _may_be(word, t)


def _is_above_facts(fields: list[str], target: Target, file: FileText, is_declared: bool) -> bool:
    """Whether names, which are not those of the declaration, cannot be a fact."""
    types: list[ValueType | None] = list(target.types)
    if len(fields) > len(types):
        if any(name in TAG_NAMES for name in fields):
            return True
        types.insert(0, None)
    if file.is_csv and not any('"' in field for field in file.lines[0]):
        if file.is_marked and file.lines[1:] == [[""]]:
            return True
        if _are_quoted(file.below, types, file.is_marked):
            return True
    others = [name for name, t in zip(fields, types) if t is None or not _may_be(name, t)]
    number = sum(t is None or t.family != "text" for t in types)
    return bool(others) and len(others) == number and not is_declared and not any(n.lower() in MISSING for n in others)


def _are_quoted(rows: list[list[str]], types: list[ValueType | None], is_marked: bool) -> bool:
    """Whether every text of some rows is in quotes, needed or not; those of a file with a mark are so by intention."""
    positions = [i for i, t in enumerate(types) if t is not None and t.family in _TEXTS]
    if not positions:
        return is_marked and bool(rows)
    texts = [row[i] for row in rows if len(row) == len(types) for i in positions]
    if not texts or not all(text.startswith('"') for text in texts):
        return False
    return is_marked or any(re.fullmatch(r'"[^",;|\s]*"', text) for text in texts)


def _may_be(word: str, t: ValueType) -> bool:
    """Whether a word is a value of a type."""
    match t.family:
        case "bool":
            return word.lower() in TRUTH
        case "char":
            return len(word) == 1
        case "datetime":
            return word_of_datetime(word) is not None
        case "duration":
            return Duration.of(word) is not None
        case "signed" | "unsigned" | "float":
            try:
                return float(word) == float(word)
            except ValueError:
                return False
    return True


def _is_probable(words: list[str], target: Target, file: FileText) -> bool:
    """Whether words over columns of texts are probably names: no other line has one of them, and all lines below are
    of other letters, or have values in common."""
    is_plain = len(words) == len(target.types) and all(t.family == "text" for t in target.types)
    if not is_plain or min(map(len, words), default=0) < 2:
        return False
    rows = [[field.strip('"') for field in row] for row in file.below if len(row) == len(words)]
    if len(rows) < _FEW_ROWS or file.has_again(words):
        return False
    is_pair = len(words) > 1
    if is_pair and ({*map(str.lower, words)} <= _NAMES_OF_COLUMNS or _are_numbered(words, file)):
        return True
    if not all(map(_NAME.fullmatch, words)):
        return False
    if all([*map(_shape, row)] != [*map(_shape, words)] for row in rows):
        return True
    if len({*words}) < len(words):
        return False
    seen: dict[str, int] = {}
    for row in rows:
        for value in {*row}:
            seen[value] = seen.get(value, 0) + 1
    return all(any(seen[value] > 1 for value in row) for row in rows)


def _are_numbered(fields: list[str], file: FileText) -> bool:
    """Whether names are one word with the numbers from 0 or 1, which is nowhere below."""
    parts = [_NUMBERED.fullmatch(name) for name in fields]
    words = {part[1] for part in parts if part is not None}
    numbers = [int(part[2]) for part in parts if part is not None]
    start = min(numbers, default=0)
    is_series = len(words) == 1 and start <= 1 and numbers == list(range(start, start + len(fields)))
    return is_series and not file.has_again([*words])


def _shape(word: str) -> str:
    """A word with one letter for each run of letters, as capital as they are; letters without case are another one."""
    shapes = {(True, False): "a", (False, True): "A"}

    def of_run(run: re.Match[str]) -> str:
        letters = run[0]
        return "x" if letters.lower() == letters.upper() else shapes.get((letters.islower(), letters.isupper()), "Aa")

    return re.sub(r"[^\W\d_]+", of_run, word.strip())


def columns_of(
    names: Sequence[str] | None, count: int, target: Target, text: str = "", line: int = 1
) -> tuple[int | None, list[int]]:
    """Where the probability is, None if there is none, and where each column is.

    Raises ParseError for names that fit the declaration in part.
    """
    there = list(range(count))
    labels = [n.strip() for n in names or ()]
    tag: int | None = None
    if count > len(target.types):
        named = [i for i, label in enumerate(labels) if label in TAG_NAMES and label not in target.column_names]
        tag = named[0] if named else 0
        there.remove(tag)
    if not labels:
        return tag, there
    others = [labels[i] for i in there]
    try:
        positions = positions_by_name(others, target.column_names)
    except ValueError:
        raise file_error(
            f"the columns are named {listed(others)}, and those of `{target.name}` {listed(target.column_names)}",
            target,
            text,
            line,
            hint="give the columns the names of the declaration",
        ) from None
    return tag, there if positions is None else [there[number] for number in positions]
