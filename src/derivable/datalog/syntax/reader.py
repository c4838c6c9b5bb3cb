"""Reading tokens one after the other, and what to say where they do not fit."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any, NoReturn

from derivable.core.diagnostics import DerivableError, ParseError, Span
from derivable.datalog.syntax.lexer import ITEM_KEYWORDS, KEYWORDS, LineStarts, Token, bad_token
from derivable.datalog.syntax.other_languages import other_form

MAX_DEPTH = 80


class Reader:
    """The tokens of one program and the position in them."""

    def __init__(self, line_starts: LineStarts, source: str, tokens: list[Token]):
        self.text, self.source, self.line_starts = line_starts.text, source, line_starts
        self.tokens = tokens
        self.position = 0
        # Where the item begins that is being read, and the one before it.
        self.item_start = self.item_before = 0
        self.depth = 0
        self.errors: list[DerivableError] = []
        # Whether terms that are not deep are read as one node too: among facts, where no patterns are.
        self.has_terms = False

    @cached_property
    def constructors(self) -> frozenset[str]:
        """The names of terms that the program's types declare, wherever."""
        names, is_type = set(), False
        for before, name, after in zip(self.tokens, self.tokens[1:], self.tokens[2:]):
            if before.kind == "keyword":
                is_type = before.text == "type"
            if is_type and before.text in ("=", "|") and name.kind == "name" and after.text == "(":
                names.add(name.text)
        return frozenset(names)

    @property
    def token(self) -> Token:
        return self.tokens[self.position]

    def peek(self, offset: int = 1) -> Token:
        index = self.position + offset
        return self.tokens[index] if index < len(self.tokens) else self.tokens[-1]

    def at(self, *texts: str) -> bool:
        # The texts of marks and keywords are those of no other token.
        return self.tokens[self.position].text in texts

    def advance(self) -> Token:
        token = self.tokens[self.position]
        if token.kind != "end":
            self.position += 1
        return token

    def accept(self, *texts: str) -> Token | None:
        return self.advance() if self.tokens[self.position].text in texts else None

    def expect(self, text: str, where: str, hint: str | None = None) -> Token:
        if self.tokens[self.position].text != text:
            self.fail(f"expected `{text}` {where}, found {self.token.shown()}", hint)
        return self.advance()

    def name(self, what: str) -> Token:
        if self.token.kind != "name":
            hint = f"`{self.token.text}` is a keyword and cannot be a name" if self.token.kind == "keyword" else None
            self.fail(f"expected {what}, found {self.token.shown()}", hint)
        return self.advance()

    def error(self, message: str, hint: str | None = None, span: Span | None = None) -> ParseError:
        items = self.item_before, self.item_start
        form = other_form(self.text, self.tokens, self.position, items) if span is None else None
        named = self.tokens[self.item_start + 1] if self.item_start + 1 < len(self.tokens) else self.token
        if self.is_named_by_keyword(self.item_start + 1):
            hint, span = _not_a_relation(named.text), self.line_starts.span(named.start, named.end)
        elif form is not None:
            message, hint, span = form.message, form.hint, self.line_starts.span(form.start, form.end)
        elif self.token.kind == "bad":
            return bad_token(self.token, self.source)
        elif span is None and hint is None:
            hint = self.keyword_meant()
        return ParseError(message, hint=hint, source=self.source, text=self.text, span=span or self.token.span)

    def keyword_meant(self) -> str | None:
        """The hint where a keyword stands instead of a relation's name: here, or before this token."""
        for index in (self.position, self.position - 1):
            token, after = (self.tokens[max(min(i, len(self.tokens) - 1), 0)] for i in (index, index + 1))
            is_atom = index == self.position and token.text in KEYWORDS and token.text not in ("rel", "relation")
            if self.is_named_by_keyword(index) or (is_atom and after.text == "("):
                return _not_a_relation(token.text)
        return None

    def is_named_by_keyword(self, index: int) -> bool:
        """Whether the item whose second token is at `index` names a relation by a keyword."""
        if not 0 < index < len(self.tokens):
            return False
        before, name, after = (self.tokens[min(i, len(self.tokens) - 1)] for i in range(index - 1, index + 2))
        is_item = before.text in ("rel", "relation", "type", "query")
        return is_item and name.text in KEYWORDS and after.text in ("(", "=", "<", "")

    def fail(self, message: str, hint: str | None = None, span: Span | None = None) -> NoReturn:
        raise self.error(message, hint, span)

    def recover(self) -> None:
        """Go on to where the next item may begin."""
        self.depth = 0
        while self.token.kind not in ("end", "rows") and self.token.text not in ITEM_KEYWORDS:
            self.advance()

    def since(self, start: Token) -> Span:
        end = self.tokens[max(self.position - 1, 0)].end
        return self.line_starts.span(start.start, end)

    def separated(self, parse_one, closing: tuple[str, ...] = ()) -> list[Any]:
        """One or more, with commas between them, and before one of `closing` behind the last too."""
        parts = [parse_one()]
        while self.accept(",") and not self.at(*closing):
            parts.append(parse_one())
        return parts

    def listed(self, parse_one: Callable[[], Any], closing: str, where: str) -> list[Any]:
        """None or more up to a closing mark, with commas between them, and maybe behind the last."""
        parts = []
        while not self.at(closing):
            parts.append(parse_one())
            if not self.accept(","):
                break
        self.expect(closing, where)
        return parts


def _not_a_relation(keyword: str) -> str:
    return f"`{keyword}` is a keyword and cannot be a relation: choose another name, such as `{keyword}_`"
