"""Facts of constants, read from the text in one go.

A program may hold hundreds of thousands of facts. A token, a node and a type for each of their values take thirty times
as long as reading them does. Here a row is one match of a regular expression, and a column is converted at once.
What does not fit (names of constants, expressions, columns of several kinds) is left to the parser, which says what is
wrong.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from derivable.core.numbers import vanishes
from derivable.datalog.syntax.escapes import unescape
from derivable.datalog.values.symbols import CodedTexts

_SKIP = r"(?:[ \t\r\n\f]|//[^\n]*+|/\*.*?\*/)*+"
_SPACE = r"[ \t\r\n\f]*+"
_NUMBER = r"-?[0-9]++(?:\.[0-9]++(?:[eE][-+]?[0-9]++)?+)?+(?![0-9a-zA-Z_.])"
_QUOTED = r"""s?"(?:[^"\\\n]|\\[tnr0"'\\])*+"(?!")|'(?:[^'\\\n]|\\[tnr0"'\\])'"""
_CONSTANT = rf"{_NUMBER}|{_QUOTED}|(?:true|false)(?![a-zA-Z_0-9])"


# These are compiled when they are used: programs without many facts start without them.
_HEAD = rf"rel(?:ation)?+[ \t\r\n\f]++(?:({_NUMBER}){_SKIP}::{_SKIP})?([a-zA-Z][a-zA-Z_0-9]*+){_SKIP}\("
_NEXT = rf"{_SKIP}(?:(?=(?:rel|relation|type|const|query|import|extern)\b)|(?=@)|\Z)"
_ROW = rf"(?:{_CONSTANT})(?:{_SPACE},{_SPACE}(?:{_CONSTANT}))*+"
_FIRST = (
    rf"\{{{_SKIP}(?P<tag>(?:{_NUMBER}){_SKIP}::)?{_SKIP}(?P<open>\()?{_SPACE}(?P<row>{_ROW})"
    rf"(?P<close>{_SPACE}(?:,{_SPACE})?\))?{_SKIP}(?P<separator>[,;])?"
)
_ARGUMENTS = rf"{_SPACE}({_ROW}){_SPACE}(?:,{_SPACE})?+\)"
_END = rf"{_SKIP}\}}"
# Quotes -> the kind of a constant.
KINDS = {'"': "text", "'": "char", "s": "symbol"}


@cache
def _compiled(pattern: str) -> re.Pattern:
    return re.compile(pattern, re.DOTALL)


class Quoted(dict[str, int]):
    """The codes of constants in quotes of one kind, by how they are written.

    Raises ValueError for what is not in such quotes.
    """

    def __init__(self, quote: str):
        self.quote, self.skip, self.distinct = quote, 2 if quote == "s" else 1, list[str]()

    def __missing__(self, text: str) -> int:
        if text[0] != self.quote:
            raise ValueError(text)
        code = self[text] = len(self.distinct)
        self.distinct.append(unescape(text[self.skip : -1]))
        return code

    def column(self, texts: list[str]) -> CodedTexts:
        return CodedTexts(array("I", map(self.__getitem__, texts)), self.distinct)


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
    columns: tuple[Sequence[Any], ...]
    tags: tuple[float, ...] | None
    exclusive: bool
    start: int
    end: int


@cache
def _row_pattern(arity: int, has_tag: bool, has_parenthesis: bool, separator: str) -> re.Pattern:
    """Matches one row of a fact set and the separator or the brace behind it."""
    inner = f"{_SPACE},{_SPACE}".join([f"({_CONSTANT})"] * arity)
    if has_parenthesis:
        inner = rf"\({_SPACE}{inner}{_SPACE}(?:,{_SPACE})?+\)"
    tag = rf"({_NUMBER}){_SKIP}::{_SKIP}" if has_tag else ""
    return _compiled(rf"{_SKIP}{tag}{inner}{_SKIP}(?:{separator}|(?=\}}))")


def fact_set(text: str, start: int, fewest: int, fewest_choices: int, quoted: Mapping[str, Quoted]) -> Rows | None:
    """The fact set that begins with the brace at `start`, if all of it is constants, of one kind a column, in at least
    `fewest` rows, or `fewest_choices` that exclude each other."""
    first = _compiled(_FIRST).match(text, start)
    if first is None or (first["open"] is None) != (first["close"] is None):
        return None
    has_tag, has_parenthesis, separator = bool(first["tag"]), bool(first["open"]), first["separator"] or ","
    if separator == ";" and not has_tag:
        # These are a rule with several heads.
        return None
    arity = len(_compiled(_CONSTANT).findall(first["row"])) if has_parenthesis else 1
    # Texts behind each other: a tuple for each row would keep the garbage collector busy.
    flat, position = list[str](), start + 1
    match = _row_pattern(arity, has_tag, has_parenthesis, separator).match
    while (row := match(text, position)) is not None:
        flat += row.groups()
        position = row.end()
    count = len(flat) // (arity + has_tag)
    end = _compiled(_END).match(text, position)
    if end is None or count < (fewest_choices if separator == ";" else fewest):
        return None
    return _rows("", flat, arity, has_tag, separator == ";", (start, end.end()), quoted)


def fact_run(text: str, start: int, fewest: int, quoted: Mapping[str, Quoted]) -> tuple[int, list[Rows]]:
    """(where they end, their rows by relation) of the single facts `rel edge(0, 1)` from `start` on, up to the first
    item that is none. There are no rows if there are fewer than `fewest`, or several kinds in a column."""
    texts: dict[tuple[str, int, bool], list[str]] = {}
    position, count, ends = start, 0, start
    head_at, arguments_at, next_at = (_compiled(pattern).match for pattern in (_HEAD, _ARGUMENTS, _NEXT))
    constants_of = _compiled(_CONSTANT).findall
    while (head := head_at(text, position)) is not None:
        tag, name = head.groups()
        row = arguments_at(text, head.end())
        following = next_at(text, row.end()) if row is not None else None
        if row is None or following is None:
            break
        values = constants_of(row[1])
        flat = texts.setdefault((name, len(values), tag is not None), [])
        if tag is not None:
            flat.append(tag)
        flat += values
        count, ends, position = count + 1, row.end(), following.end()
    if count < fewest:
        return ends, []
    tables = [_rows(name, flat, arity, tag, False, (start, ends), quoted) for (name, arity, tag), flat in texts.items()]
    complete = [table for table in tables if table is not None]
    return ends, complete if len(complete) == len(tables) else []


def _rows(
    relation: str,
    flat: list[str],
    arity: int,
    has_tag: bool,
    exclusive: bool,
    position: tuple[int, int],
    quoted: Mapping[str, Quoted],
) -> Rows | None:
    """The facts that these texts are, row by row, their tags first; None if a column has several kinds."""
    columns = [flat[column :: arity + has_tag] for column in range(arity + has_tag)]
    try:
        tags = _floats(columns.pop(0)) if has_tag else None
        kinds, values = zip(*[_column(column, quoted) for column in columns])
    except ValueError:
        return None
    return Rows(relation, kinds, values, tags, exclusive, *position)


def _column(texts: list[str], quoted: Mapping[str, Quoted]) -> tuple[str, Sequence[Any]]:
    """(kind, values) of a column of constants. Raises ValueError if they are of several kinds."""
    quote = texts[0][0]
    if quote in quoted:
        return KINDS[quote], quoted[quote].column(texts)
    if quote in "tf":
        if not {*texts} <= {"true", "false"}:
            raise ValueError(texts)
        return "bool", tuple(text == "true" for text in texts)
    try:
        return "integer", tuple(map(int, texts))
    except ValueError:
        return "float", _floats(texts)


def _floats(texts: list[str]) -> tuple[float, ...]:
    """Raises ValueError for a number that is too small, which the parser has a message for."""
    values = tuple(map(float, texts))
    if 0.0 in values and any(map(vanishes, texts, values)):
        raise ValueError(texts)
    return values
