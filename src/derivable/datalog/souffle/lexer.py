"""The tokens of Soufflé's files, each with its span."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from derivable.core.diagnostics import Origin, ParseError, Span
from derivable.datalog.syntax.escapes import unescape
from derivable.datalog.syntax.fact_runs import FactPatterns

DIRECTIVES = (
    *("decl", "functor", "input", "output", "printsize", "limitsize", "type", "comp", "init", "number_type"),
    *("symbol_type", "override", "pragma", "plan", "include", "once", "lattice", "debug_delta"),
)
_ESCAPES = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_ESCAPES |= {sign: sign for sign in "\"'\\"}
_FACTS = FactPatterns(
    r"[A-Za-z_?][\w?]*+",
    {"integer": (r"-?[0-9]++(?![\w?.])", int), "text": (r'"[^"\\\n]*+"', lambda text: text[1:-1])},
)
_TOKEN = re.compile(
    r"(?P<space>[ \t\r\v\f\n]+|\\\r?\n|//[^\n]*|/\*.*?\*/)"
    rf"|(?P<directive>\.(?:{'|'.join(DIRECTIVES)})(?![\w?]))"
    r"|(?P<address>\d+\.\d+\.\d+\.\d+)"
    r"|(?P<float>\d+\.\d+(?:[eE][+-]?\d+)?)"
    r"|(?P<number>0b[01]+u?|0x[0-9a-fA-F]+u?|\d+u?)(?![\w?])"
    r"|(?P<name>choice-domain|[A-Za-z_?][\w?]*)"
    r'|(?P<text>"(?:\\.|[^"\\])*")'
    r"|(?P<line>\#)"
    r"|(?P<sign>(?!/\*)(?::-|<:|<=|>=|!=|->|[|\[\]$+\-(),:;.=!*@/^%{}<>&]))"
    r"|(?P<bad>/\*|\d[\w?]*|.)",
    re.DOTALL | re.ASCII,
)


@dataclass(frozen=True)
class Token:
    """kind is that of `_TOKEN`, "bad" for what is no token, "end", or "facts" for those of a `FactRun`; `is_spaced` if
    white space stands before, `begins_line` if nothing else does on its line."""

    kind: str
    text: str
    span: Span
    is_spaced: bool = False
    begins_line: bool = False
    facts: Any = None


class SourceText:
    """A text with its name, whose tokens may be those of a file that another one includes."""

    def __init__(self, text: str, source: str, is_included: bool = False):
        self.text, self.source = text, source
        self.origin = Origin(source, text) if is_included else None

    @cached_property
    def lines(self) -> list[str]:
        return self.text.split("\n")

    def error(self, message: str, span: Span, hint: str | None = None) -> ParseError:
        return ParseError(message, hint=hint, source=self.source, text=self.text, span=span)

    def span(self, line: int, column: int, length: int = 1) -> Span:
        return Span(line, column, max(1, length), self.origin)


def tokens_of(
    file: SourceText, position: int = 0, stop: int | None = None, fewest_facts: int | None = None
) -> list[Token]:
    """All tokens of a file, or of a part of it, without the end.

    fewest_facts  how many facts of one relation that follow each other are one token but for the first; None for never
    """
    text, tokens = file.text, list[Token]()
    stop = len(text) if stop is None else stop
    line, start = text.count("\n", 0, position) + 1, text.rfind("\n", 0, position) + 1
    is_spaced, begins_line = True, True
    # Where facts have been looked for, and those that have been seen behind the first one.
    looked, run = position, None
    while position < stop:
        if run is not None and position == run.start:
            tokens.append(Token("facts", "", tokens[-1].span, facts=run))
            kind, end, run = "facts", run.end, None
        else:
            match = _TOKEN.match(text, position)
            assert match is not None
            kind, end = match.lastgroup or "", match.end()
            if (
                fewest_facts is not None
                and kind == "name"
                and begins_line
                and position >= looked
                and (not tokens or tokens[-1].kind == "facts" or (tokens[-1].kind, tokens[-1].text) == ("sign", "."))
                # What goes on behind a backslash may be a line of the preprocessor.
                and text[max(0, start - 2) : start] != "\\\n"
            ):
                looked, run = _FACTS.run(text, position, fewest_facts)
            if kind != "space":
                span = file.span(line, position - start + 1, end - position)
                tokens.append(Token(kind, match[0], span, is_spaced, begins_line))
        breaks = text.count("\n", position, end)
        if breaks:
            line, start = line + breaks, text.rfind("\n", position, end) + 1
        is_spaced = kind == "space"
        begins_line = is_spaced and (begins_line or breaks > 0)
        position = end
    return tokens


def no_token(file: SourceText, token: Token) -> ParseError:
    """The error of what is no token."""
    rest, span = token.text, token.span
    if rest.startswith('"'):
        return file.error("this text does not end", span, 'texts end with `"`; a quote in one is written `\\"`')
    if rest.startswith("/*"):
        return file.error("this comment does not end", span, "it ends with `*/`")
    if rest[0].isdigit():
        return file.error(f"`{rest}` is no number", span, "numbers are written 12, 0x1F, 0b101, 3u or 0.5")
    return file.error(f"`{rest[0]}` is no sign of Soufflé's language", span)


def text_of(token: Token, file: SourceText) -> str:
    """The text that a token of one means. Raises ParseError for an unknown escape."""

    try:
        return unescape(token.text[1:-1], _ESCAPES)
    except ValueError as error:
        hint = "the escapes are \\\" \\\\ \\' \\a \\b \\f \\n \\r \\t \\v"
        raise file.error(f"`{error.args[1]}` is no escape", token.span, hint) from None


def number_of(text: str) -> int:
    """The value of a number without its `u`."""
    text = text.rstrip("u") if not text.startswith("0x") else text.removesuffix("u")
    return int(text, 16 if text.startswith("0x") else 2 if text.startswith("0b") else 10)
