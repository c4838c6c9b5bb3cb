"""The tokens of a program, one after the other, and the errors of those that do not fit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import NoReturn, TypeVar

from derivable.core.diagnostics import Span
from derivable.datalog.souffle.lexer import SourceText, Token

Parsed = TypeVar("Parsed")


class Reader:
    def __init__(self, tokens: list[Token], file: SourceText):
        self.file, self.tokens, self.position = file, tokens, 0
        last = tokens[-1].span if tokens else Span(1, 1)
        self.end = Token("end", "", last if tokens else Span(len(file.lines), len(file.lines[-1]) + 1))

    @property
    def token(self) -> Token:
        return self.tokens[self.position] if self.position < len(self.tokens) else self.end

    def at(self, offset: int) -> Token:
        index = self.position + offset
        return self.tokens[index] if 0 <= index < len(self.tokens) else self.end

    def error(self, message: str, span: Span | None = None, hint: str | None = None) -> NoReturn:
        raise self.file.error(message, span or self.token.span, hint)

    def unexpected(self, wanted: str, hint: str | None = None) -> NoReturn:
        token = self.token
        if token.kind == "end":
            self.error(f"expected {wanted}, but the program ends here", hint=hint)
        self.error(f"expected {wanted}, found `{token.text}`", hint=hint)

    def is_sign(self, text: str, offset: int = 0) -> bool:
        token = self.at(offset)
        return token.kind == "sign" and token.text == text

    def is_word(self, text: str, offset: int = 0) -> bool:
        token = self.at(offset)
        return token.kind == "name" and token.text == text

    def take(self) -> Token:
        token = self.token
        self.position += 1
        return token

    def takes(self, text: str) -> bool:
        """Whether a sign is here, which is then read."""
        if self.is_sign(text):
            self.position += 1
            return True
        return False

    def expect(self, text: str, hint: str | None = None) -> Token:
        if not self.is_sign(text):
            self.unexpected(f"`{text}`", hint)
        return self.take()

    def separated(self, parse_one: Callable[[], Parsed], sign: str = ",") -> list[Parsed]:
        """One or more, with signs between them."""
        parts = [parse_one()]
        while self.takes(sign):
            parts.append(parse_one())
        return parts

    def name(self, what: str, reserved: frozenset[str] = frozenset()) -> Token:
        if self.token.kind != "name":
            self.unexpected(what)
        if self.token.text in reserved:
            self.error(f"`{self.token.text}` is a keyword, and no name", hint=f"choose another name for {what}")
        return self.take()

    def text(self, what: str) -> Token:
        if self.token.kind != "text":
            self.unexpected(what)
        return self.take()

    def qualified(self, what: str, reserved: frozenset[str] = frozenset()) -> tuple[str, Span]:
        """`a.b.c`; a dot with space behind it ends an item."""
        first = last = self.name(what, reserved)
        parts = [first.text]
        while self.is_sign(".") and self.at(1).kind == "name" and not self.at(1).is_spaced and not self.token.is_spaced:
            self.position += 1
            last = self.take()
            parts.append(last.text)
        return ".".join(parts), self.through(first.span, last.span)

    def type_name(self) -> str:
        return self.qualified("a type")[0]

    def since(self, first: Span) -> Span:
        """From a span to the last token that was read."""
        return self.through(first, self.at(-1).span)

    def through(self, first: Span, last: Span) -> Span:
        """From a span to the end of another one, as far as they are on one line of one text."""
        if (first.line, first.origin) != (last.line, last.origin) or last.column < first.column:
            return first
        return replace(first, length=last.column + last.length - first.column)
