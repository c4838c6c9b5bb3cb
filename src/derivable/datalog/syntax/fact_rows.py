"""Facts of constants, read from the text in one go.

A program may hold hundreds of thousands of facts. A token, a node and a type for each of their values take thirty times
as long as reading them does. Here a row is one match of a regular expression, and a column is converted at once.
What does not fit (names of constants, expressions, columns of several kinds) is left to the parser, which says what is
wrong.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from derivable.datalog.syntax.escapes import unescape

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


def _compiled(pattern: str) -> re.Pattern:
    return re.compile(pattern, re.DOTALL)


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


def _row_pattern(arity: int, has_tag: bool, has_parenthesis: bool, separator: str) -> str:
    """Matches one row of a fact set and the separator or the brace behind it."""
    inner = f"{_SPACE},{_SPACE}".join([f"({_CONSTANT})"] * arity)
    if has_parenthesis:
        inner = rf"\({_SPACE}{inner}{_SPACE}(?:,{_SPACE})?+\)"
    tag = rf"({_NUMBER}){_SKIP}::{_SKIP}" if has_tag else ""
    return rf"{_SKIP}{tag}{inner}{_SKIP}(?:{separator}|(?=\}}))"


def fact_set(text: str, start: int, fewest: int, fewest_choices: int) -> Rows | None:
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
    match = _compiled(_row_pattern(arity, has_tag, has_parenthesis, separator)).match
    position, count = start + 1, 0
    # Texts behind each other: a tuple for each row would keep the garbage collector busy.
    flat: list[str] = []
    while (row := match(text, position)) is not None:
        flat += row.groups()
        position, count = row.end(), count + 1
    end = _compiled(_END).match(text, position)
    if end is None or count < (fewest_choices if separator == ";" else fewest):
        return None
    return _rows("", flat, arity, has_tag, separator == ";", (start, end.end()))


def fact_run(text: str, start: int, fewest: int) -> tuple[int, list[Rows]]:
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
    tables = [_rows(name, flat, arity, tag, False, (start, ends)) for (name, arity, tag), flat in texts.items()]
    complete = [table for table in tables if table is not None]
    return ends, complete if len(complete) == len(tables) else []


def _rows(
    relation: str, flat: list[str], arity: int, has_tag: bool, exclusive: bool, position: tuple[int, int]
) -> Rows | None:
    """The facts that these texts are, row by row, their tags first; None if a column has several kinds."""
    columns = [flat[column :: arity + has_tag] for column in range(arity + has_tag)]
    tags = tuple(map(float, columns.pop(0))) if has_tag else None
    converted = [_column(column) for column in columns]
    if not all(converted):
        return None
    kinds, values = zip(*converted)
    return Rows(relation, kinds, values, tags, exclusive, *position)


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
