"""Facts of constants of one relation that follow each other in another system's text, `edge(1, 2).`, read in one go.

As in `fact_rows`, a fact is one match of a regular expression; of a run the first fact is read like all else.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

_SPACE = r"[ \t\r\n]*+"


@dataclass(frozen=True, eq=False)
class FactRun:
    """The facts behind the first one of a run.

    relation   its name in the text
    kinds      [column] as of `FactTable`
    columns    [column] their values
    tags       their numbers, None without them
    start      where in the text they begin, and
    end        end
    """

    relation: str
    kinds: tuple[str, ...]
    columns: tuple[tuple[Any, ...], ...]
    tags: tuple[float, ...] | None
    start: int
    end: int


class FactPatterns:
    """How a language writes facts.

    name       of a relation
    constants  kind -> the regular expression of its constants, and the function from the text of one to its value
    tag        of the number before a fact and what separates them, with one group; None for none
    """

    def __init__(self, name: str, constants: Mapping[str, tuple[str, Callable[[str], Any]]], tag: str | None = None):
        self.constants, self.tag = constants, tag
        any_constant = "|".join(f"(?:{pattern})" for pattern, _ in constants.values())
        arguments = rf"(?:{any_constant})(?:{_SPACE},{_SPACE}(?:{any_constant}))*+"
        before = "()" if tag is None else f"(?:{tag})?+"
        self.fact = re.compile(
            rf"{_SPACE}{before}({name})\({_SPACE}({arguments}){_SPACE}\){_SPACE}\.(?=\s|\Z)", re.ASCII
        )
        named = "|".join(f"(?P<{kind}>{pattern})" for kind, (pattern, _) in constants.items())
        self.constant = re.compile(named, re.ASCII)

    def _form(self, fact: re.Match[str]) -> tuple[bool, str, tuple[str, ...]]:
        """What facts of a run have in common: whether they have tags, their relation and the kinds of its columns."""
        tag, name, arguments = fact.groups()
        return bool(tag), name, tuple(constant.lastgroup or "" for constant in self.constant.finditer(arguments))

    def run(self, text: str, start: int, fewest: int) -> tuple[int, FactRun | None]:
        """(where the facts end that begin at `start` and are like the first one, those behind it if there are at least
        `fewest` in all)."""
        first = self.fact.match(text, start)
        if first is None:
            return start, None
        form = has_tag, name, kinds = self._form(first)
        # Of few facts no pattern is made: programs have few of each of many relations.
        count, end = 1, first.end()
        while count < fewest and (fact := self.fact.match(text, end)) is not None and self._form(fact) == form:
            count, end = count + 1, fact.end()
        if count < fewest:
            return end, None
        parts = f"{_SPACE},{_SPACE}".join(f"({self.constants[kind][0]})" for kind in kinds)
        before = self.tag if has_tag else ""
        row = re.compile(rf"{_SPACE}{before}{re.escape(name)}\({_SPACE}{parts}{_SPACE}\){_SPACE}\.(?=\s|\Z)", re.ASCII)
        # Texts behind each other: a tuple for each row would keep the garbage collector busy.
        flat: list[str] = []
        end = first.end()
        while (fact := row.match(text, end)) is not None:
            flat += fact.groups()
            end = fact.end()
        columns = [flat[i :: len(kinds) + has_tag] for i in range(len(kinds) + has_tag)]
        tags = tuple(map(float, columns.pop(0))) if has_tag else None
        values = tuple(tuple(map(self.constants[kind][1], column)) for kind, column in zip(kinds, columns))
        return end, FactRun(name, kinds, values, tags, first.end(), end)
