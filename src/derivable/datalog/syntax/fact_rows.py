"""Facts of constants, read from the text in one go.

A program may hold hundreds of thousands of facts. A token, a node and a type for each of their values take thirty times
as long as reading them does. Here a row is one match of a regular expression, and a column is converted at once.
What does not fit (names of constants, expressions, columns of several kinds) is left to the parser, which says what is
wrong.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

from derivable.datalog.syntax.escapes import unescape

_SKIP = r"(?:[ \t\r\n\f]|//[^\n]*+|/\*.*?\*/)*+"
_SPACE = r"[ \t\r\n\f]*+"
_NUMBER = r"-?[0-9]++(?:\.[0-9]++(?:[eE][-+]?[0-9]++)?+)?+(?![0-9a-zA-Z_.])"
_QUOTED = r"""s?"(?:[^"\\\n]|\\[tnr0"'\\])*+"(?!")|'(?:[^'\\\n]|\\[tnr0"'\\])'"""
_CONSTANT = rf"{_NUMBER}|{_QUOTED}|(?:true|false)(?![a-zA-Z_0-9])"


class _Pattern:
    """A pattern that is compiled when it is used: programs without many facts start without it."""

    def __init__(self, text: str, flags: int = 0):
        self.text, self.flags = text, flags

    @cached_property
    def match(self) -> Callable[..., re.Match | None]:
        return re.compile(self.text, self.flags).match

    @cached_property
    def findall(self) -> Callable[[str], list[str]]:
        return re.compile(self.text, self.flags).findall


_HEAD = _Pattern(rf"rel(?:ation)?+[ \t\r\n\f]++(?:({_NUMBER}){_SKIP}::{_SKIP})?([a-zA-Z][a-zA-Z_0-9]*+){_SKIP}\(", re.S)
_NEXT = _Pattern(rf"{_SKIP}(?:(?=(?:rel|relation|type|const|query|import|extern)\b)|(?=@)|\Z)", re.S)


@dataclass(frozen=True)
class Rows:
    """Facts of constants of one relation.

    relation  its name, empty in a fact set, which has it before
    kinds     [column] the kind of the constants
    columns   [column] their values
    tags      the texts of the tags, None without tags
    exclusive whether they are separated by `;`
    start     where in the text they begin, and
    end       end
    """

    relation: str
    kinds: tuple[str, ...]
    columns: tuple[tuple[Any, ...], ...]
    tags: tuple[float, ...] | None
    exclusive: bool
    start: int
    end: int


@lru_cache(64)
def _row_pattern(
    arity: int, has_tag: bool, has_parenthesis: bool, separator: str
) -> Callable[[str, int], re.Match | None]:
    """Matches one row of a fact set and the separator or the brace behind it."""
    inner = f"{_SPACE},{_SPACE}".join([f"({_CONSTANT})"] * arity)
    if has_parenthesis:
        inner = rf"\({_SPACE}{inner}{_SPACE}(?:,{_SPACE})?+\)"
    tag = rf"({_NUMBER}){_SKIP}::{_SKIP}" if has_tag else ""
    return re.compile(rf"{_SKIP}{tag}{inner}{_SKIP}(?:{separator}|(?=\}}))", re.S).match


_ROW = rf"(?:{_CONSTANT})(?:{_SPACE},{_SPACE}(?:{_CONSTANT}))*+"
_FIRST = _Pattern(
    rf"\{{{_SKIP}(?P<tag>(?:{_NUMBER}){_SKIP}::)?{_SKIP}(?P<open>\()?{_SPACE}(?P<row>{_ROW})"
    rf"(?P<close>{_SPACE}(?:,{_SPACE})?\))?{_SKIP}(?P<separator>[,;])?",
    re.S,
)
_ARGUMENTS = _Pattern(rf"{_SPACE}({_ROW}){_SPACE}(?:,{_SPACE})?+\)")
_VALUE = _Pattern(_CONSTANT)
_END = _Pattern(rf"{_SKIP}\}}", re.S)


def fact_set(text: str, start: int, fewest: int) -> Rows | None:
    """The fact set that begins with the brace at `start`, if all of it is constants, of one kind a column, in at least
    `fewest` rows."""
    first = _FIRST.match(text, start)
    if first is None or (first["open"] is None) != (first["close"] is None):
        return None
    has_tag, has_parenthesis, separator = bool(first["tag"]), bool(first["open"]), first["separator"] or ","
    if separator == ";" and not has_tag:
        # These are a rule with several heads.
        return None
    arity = len(_VALUE.findall(first["row"])) if has_parenthesis else 1
    match, position, count = _row_pattern(arity, has_tag, has_parenthesis, separator), start + 1, 0
    # Texts behind each other: a tuple for each row would keep the garbage collector busy.
    flat: list[str] = []
    while (row := match(text, position)) is not None:
        flat += row.groups()
        position, count = row.end(), count + 1
    end = _END.match(text, position)
    if end is None or count < fewest:
        return None
    columns = _columns(flat, arity + has_tag)
    tags = tuple(map(float, columns.pop(0))) if has_tag else None
    converted = [_column(column) for column in columns]
    if not all(converted):
        return None
    kinds, values = zip(*converted)
    return Rows("", kinds, values, tags, separator == ";", start, end.end())


def fact_run(text: str, start: int, fewest: int) -> tuple[int, list[Rows]]:
    """(where they end, their rows by relation) of the single facts `rel edge(0, 1)` from `start` on, up to the first
    item that is none. There are no rows if there are fewer than `fewest`, or several kinds in a column."""
    found: dict[tuple[str, int, bool], list[str]] = {}
    position, count, ends = start, 0, start
    while (head := _HEAD.match(text, position)) is not None:
        tag, name = head.groups()
        row = _ARGUMENTS.match(text, head.end())
        following = _NEXT.match(text, row.end()) if row is not None else None
        if row is None or following is None:
            break
        values = _VALUE.findall(row[1])
        flat = found.setdefault((name, len(values), tag is not None), [])
        if tag is not None:
            flat.append(tag)
        flat += values
        count, ends, position = count + 1, row.end(), following.end()
    if count < fewest:
        return ends, []
    result = []
    for (name, arity, has_tag), flat in found.items():
        columns = _columns(flat, arity + has_tag)
        tags = tuple(map(float, columns.pop(0))) if has_tag else None
        converted = [_column(column) for column in columns]
        if not all(converted):
            return ends, []
        kinds, values = zip(*converted)
        result.append(Rows(name, kinds, values, tags, False, start, ends))
    return ends, result


def _columns(flat: list[str], arity: int) -> list[list[str]]:
    return [flat[column::arity] for column in range(arity)]


def _column(texts: list[str]) -> tuple[str, tuple[Any, ...]] | None:
    """(kind, values) of a column of constants, None if they are of several kinds."""
    quote = texts[0][0]
    if quote in "\"'s":
        if any(text[0] != quote for text in texts):
            return None
        skip = 2 if quote == "s" else 1
        bodies = [text[skip:-1] for text in texts]
        values = tuple(unescape(body) if "\\" in body else body for body in bodies)
        return {'"': "text", "'": "char", "s": "symbol"}[quote], values
    if quote in "tf":
        return ("bool", tuple(text == "true" for text in texts)) if {*texts} <= {"true", "false"} else None
    try:
        return "integer", tuple(map(int, texts))
    except ValueError:
        pass
    try:
        return "float", tuple(map(float, texts))
    except ValueError:
        return None
