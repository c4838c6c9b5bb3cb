"""Facts of numbers and texts that follow each other, `edge(1, 2).`, read from the text in one go.

Of a run the first fact is a clause like others, whose `more` are the rest: columns of constants of the same kinds.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from derivable.datalog.souffle.lexer import SourceText

_SPACE = r"[ \t\r\n]*+"
_NUMBER, _TEXT = r"-?[0-9]++(?![\w?.])", r'"[^"\\\n]*+"'
_FACT = re.compile(
    rf"([A-Za-z_?][\w?]*+)\({_SPACE}((?:{_NUMBER}|{_TEXT})(?:{_SPACE},{_SPACE}(?:{_NUMBER}|{_TEXT}))*+)"
    rf"{_SPACE}\){_SPACE}\.",
    re.ASCII,
)
_CONSTANT = re.compile(rf"{_NUMBER}|{_TEXT}", re.ASCII)


@dataclass(frozen=True, eq=False)
class FactRun:
    """The facts behind the first one of a run.

    relation    its name in the text
    kinds       [column] "integer" or "text"
    columns     [column] their values
    file        whose text[start:end] they are
    """

    relation: str
    kinds: tuple[str, ...]
    columns: tuple[tuple[int | str, ...], ...]
    file: SourceText
    start: int
    end: int


def fact_run(file: SourceText, start: int, fewest: int) -> tuple[int, FactRun | None]:
    """(where the facts of one relation end that begin at `start`, those behind the first one of at least `fewest`)."""
    text = file.text
    first = _FACT.match(text, start)
    if first is None:
        return start, None
    constants = _CONSTANT.findall(first[2])
    kinds = tuple("text" if constant[0] == '"' else "integer" for constant in constants)
    parts = f"{_SPACE},{_SPACE}".join(f"({_TEXT if kind == 'text' else _NUMBER})" for kind in kinds)
    row = re.compile(rf"{_SPACE}{re.escape(first[1])}\({_SPACE}{parts}{_SPACE}\){_SPACE}\.", re.ASCII).match
    # Texts behind each other: a tuple for each row would keep the garbage collector busy.
    flat: list[str] = []
    count, end = 1, first.end()
    while (found := row(text, end)) is not None:
        flat += found.groups()
        count, end = count + 1, found.end()
    if count < fewest:
        return end, None
    columns = (flat[i :: len(kinds)] for i in range(len(kinds)))
    values = (
        tuple(map(int, column)) if kind == "integer" else tuple(value[1:-1] for value in column)
        for kind, column in zip(kinds, columns)
    )
    return end, FactRun(first[1], kinds, tuple(values), file, first.end(), end)
