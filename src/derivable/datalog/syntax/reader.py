"""Reading tokens one after the other, and what to say where they do not fit."""

from __future__ import annotations

from typing import Any, NoReturn

from derivable.core.diagnostics import ParseError, Span, UnsupportedError
from derivable.datalog.syntax.lexer import Token, tokens

MAX_DEPTH = 80


class Reader:
    """The tokens of one program and the place in them."""

    def __init__(self, text: str, source: str):
        self.text, self.source = text, source
        self.tokens = tokens(text, source)
        self.position = 0
        self.depth = 0

    @property
    def token(self) -> Token:
        return self.tokens[self.position]

    def peek(self, offset: int = 1) -> Token:
        return self.tokens[min(self.position + offset, len(self.tokens) - 1)]

    def at(self, *texts: str) -> bool:
        token = self.token
        return token.kind in ("mark", "keyword") and token.text in texts

    def advance(self) -> Token:
        token = self.token
        if token.kind != "end":
            self.position += 1
        return token

    def accept(self, *texts: str) -> Token | None:
        return self.advance() if self.at(*texts) else None

    def expect(self, text: str, where: str, hint: str | None = None) -> Token:
        if not self.at(text):
            self.fail(f"expected `{text}` {where}, found {self.token.shown()}", hint)
        return self.advance()

    def name(self, what: str) -> Token:
        if self.token.kind != "name":
            hint = f"`{self.token.text}` is a keyword and cannot be a name" if self.token.kind == "keyword" else None
            self.fail(f"expected {what}, found {self.token.shown()}", hint)
        return self.advance()

    def fail(self, message: str, hint: str | None = None, span: Span | None = None) -> NoReturn:
        raise ParseError(message, hint=hint, source=self.source, text=self.text, span=span or self.token.span)

    def unsupported(self, message: str, span: Span, hint: str | None = None) -> NoReturn:
        raise UnsupportedError(message, hint=hint, source=self.source, text=self.text, span=span)

    def since(self, start: Token) -> Span:
        end = self.tokens[max(self.position - 1, 0)].end
        return Span(start.line, start.column, max(1, end - start.start))

    def separated(self, parse_one) -> list[Any]:
        found = [parse_one()]
        while self.accept(","):
            found.append(parse_one())
        return found
