"""Programs as files: items in the order of the text that they come from, with its comments, in lines of some width."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from derivable.datalog.scalars.nodes import NOWHERE
from derivable.datalog.syntax import nodes as s
from derivable.datalog.syntax.lexer import LineStarts, beyond_space
from derivable.datalog.syntax.text import body_parts, fact_texts, item_text, rule_head

_WIDTH = 100
_INDENT = "    "


@dataclass
class Page:
    """One text of another language.

    comment     what matches its comments, in a group, and before that texts in which there are none
    starts      where its statements begin, ascending
    between     what matches at a position of the text, which begins no statement, where the statement before has ended
    """

    text: str
    comment: re.Pattern[str]
    starts: Sequence[int]
    between: re.Pattern[str]

    @cached_property
    def line_starts(self) -> LineStarts:
        return LineStarts(self.text)

    def statement(self, position: int) -> int:
        """Which statement a position belongs to, -1 before the first one."""
        return bisect_right(self.starts, position) - 1

    def is_apart(self, position: int) -> bool:
        """Whether a blank line stands before a position."""
        return re.search(r"\n[ \t\r]*\n\s*$", self.text[max(0, position - 500) : position]) is not None

    @cached_property
    def notes(self) -> list[Note]:
        """The comments with the statements that they belong to."""
        notes: list[Note] = []
        comments = [match for match in self.comment.finditer(self.text) if match["comment"] is not None]
        for comment in reversed(comments):
            after = beyond_space(self.text, comment.end())
            if notes and after == notes[-1].start:
                is_done, following = notes[-1].is_between, notes[-1].statement
                if notes[-1].is_behind:
                    following += 1
            else:
                index = bisect_left(self.starts, after)
                is_statement = index < len(self.starts) and self.starts[index] == after
                is_done = is_statement or after == len(self.text) or self.between.match(self.text, after) is not None
                following = index
            line = self.text.rfind("\n", 0, comment.start()) + 1
            begins_line = not self.text[line : comment.start()].strip()
            before = self.statement(comment.start())
            is_behind = is_done and not begins_line and before >= 0
            statement = following if is_done and not is_behind else before
            notes.append(Note(comment.start(), comment.end(), comment["comment"], statement, is_done, is_behind))
        return notes[::-1]


@dataclass(frozen=True)
class Note:
    """A comment.

    statement   the one before which it stands; behind which, if `is_behind`
    is_between  whether it stands between statements, not in one
    """

    start: int
    end: int
    text: str
    statement: int
    is_between: bool
    is_behind: bool


@dataclass
class _Block:
    """Items of one statement, the comments and blank lines before them, and a comment behind them."""

    items: list[s.Item] = field(default_factory=list)
    before: list[str] = field(default_factory=list)
    behind: str = ""


def laid_out(items: Iterable[s.Item], pages: Sequence[Page], page_of: dict[str | None, int]) -> str:
    """The text of items, each where the statement is from which it comes; those that come from none are first.

    page_of  name of the text of a span, None for that of the program -> page
    """
    first, placed = [], []
    for item in _exploded(items):
        if item.span is NOWHERE:
            first.append(item)
            continue
        number = page_of[None if item.span.origin is None else item.span.origin.source]
        placed.append((number, pages[number].statement(pages[number].line_starts.start(item.span)), item))
    blocks = [_Block(first)] if first else []
    for number, page in enumerate(pages):
        items_of: dict[int, list[s.Item]] = {}
        for where, statement, item in placed:
            if where == number:
                items_of.setdefault(statement, []).append(item)
        blocks += _of_page(page, items_of)
    return "\n".join(_lines(_merged(blocks))) + "\n"


def _of_page(page: Page, items_of: dict[int, list[s.Item]]) -> Iterator[_Block]:
    """The blocks of the statements of a page, of which each has some items."""
    notes, waiting, is_apart, number = page.notes, [], False, 0

    def wait(text: str) -> None:
        nonlocal is_apart
        if is_apart:
            waiting.append("")
        is_apart = False
        waiting.extend(_comment_lines(text))

    for statement in range(-1, len(page.starts) + 1):
        block = _Block(items_of.get(statement, []))
        while number < len(notes) and notes[number].statement <= statement and not notes[number].is_behind:
            is_apart = is_apart or page.is_apart(notes[number].start)
            wait(notes[number].text)
            number += 1
        if 0 <= statement < len(page.starts):
            is_apart = is_apart or page.is_apart(page.starts[statement])
        while number < len(notes) and notes[number].statement == statement and notes[number].is_behind:
            lines = _comment_lines(notes[number].text)
            if block.items and len(lines) == 1 and not block.behind:
                block.behind = lines[0]
            else:
                wait(notes[number].text)
            number += 1
        if block.items or statement == len(page.starts):
            block.before = [*waiting, *([""] if is_apart else [])]
            waiting, is_apart = [], False
            if block.items or block.before:
                yield block


def _exploded(items: Iterable[s.Item]) -> Iterator[s.Item]:
    """The items, each fact of a set as a set of one: they may come from several statements."""
    for item in items:
        if isinstance(item, s.FactSet) and not item.exclusive:
            yield from (replace(item, facts=(fact,), span=fact.span) for fact in item.facts)
        else:
            yield item


def _merged(blocks: Iterable[_Block]) -> list[_Block]:
    """The blocks, in which facts of one relation that follow each other without a comment are one set."""
    merged: list[_Block] = []
    # The facts of the set with which the last block ends.
    facts: list[s.Fact] = []

    def end() -> None:
        if len(facts) > 1:
            merged[-1].items[-1] = replace(merged[-1].items[-1], facts=tuple(facts))  # type: ignore[call-arg]
        facts.clear()

    for block in blocks:
        last = merged[-1] if merged else None
        if last is None or block.before or block.behind or last.behind or not block.items:
            end()
            merged.append(replace(block, items=[]))
        for item in block.items:
            items = merged[-1].items
            if facts and _are_one_set(items[-1], item):
                facts += item.facts  # type: ignore[attr-defined]
                continue
            end()
            items.append(item)
            facts += item.facts if isinstance(item, s.FactSet) and not item.exclusive else ()
    end()
    return merged


def _are_one_set(a: s.Item, b: s.Item) -> bool:
    are_sets = isinstance(a, s.FactSet) and isinstance(b, s.FactSet) and not (a.exclusive or b.exclusive)
    return are_sets and a.relation == b.relation and a.attributes == b.attributes  # type: ignore[attr-defined]


def _lines(blocks: Iterable[_Block]) -> Iterator[str]:
    for number, block in enumerate(blocks):
        before = block.before[1:] if not number and block.before[:1] == [""] else block.before
        yield from before
        lines = [line for item in block.items for line in item_lines(item)]
        if block.behind and len(lines) == 1:
            lines = [f"{lines[0]}  {block.behind}"]
        elif block.behind:
            yield block.behind
        yield from lines


def item_lines(item: s.Item) -> list[str]:
    """The lines of an item, broken between facts and between the conjuncts of a body where they are long."""
    text = item_text(item)
    if len(text) <= _WIDTH:
        return [text]
    if isinstance(item, s.FactSet):
        separator = ";" if item.exclusive else ","
        opening, facts = fact_texts(item)
        lines, line = [f"{opening}{{"], _INDENT
        for number, fact in enumerate(facts):
            part = fact + (separator if number < len(facts) - 1 else "")
            if len(line) + len(part) > _WIDTH and line.strip():
                lines.append(line.rstrip())
                line = _INDENT
            line += part + " "
        return [*lines, line.rstrip(), "}"]
    if isinstance(item, s.Rule) and item.body is not None:
        parts = body_parts(item.body)
        return [f"{rule_head(item)} =", *(f"{_INDENT}{part} and" for part in parts[:-1]), f"{_INDENT}{parts[-1]}"]
    return [text]


def _comment_lines(text: str) -> list[str]:
    """A comment as one of programs, whose lines begin with `//`."""
    if text.startswith("/*"):
        inside = [line.strip().removeprefix("*").strip() for line in text[2:-2].strip("*").split("\n")]
        while inside and not inside[0]:
            inside.pop(0)
        while inside and not inside[-1]:
            inside.pop()
        return [f"// {line}".rstrip() for line in inside] or ["//"]
    marks = re.match(r"%+|/+", text)
    assert marks is not None
    rest = text[marks.end() :].rstrip()
    return [f"//{rest}" if not rest or rest[0].isspace() else f"// {rest}"]
