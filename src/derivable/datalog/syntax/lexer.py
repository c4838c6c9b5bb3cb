"""Tokens of the surface language."""

from __future__ import annotations

import re
from dataclasses import dataclass

from derivable.core.diagnostics import ParseError, Span

_WORDS = (
    "and or not where if then else in case is new as import extern type const rel relation query true false "
    "implies bound free"
)
KEYWORDS = frozenset(_WORDS.split(" "))
ITEM_KEYWORDS = ("rel", "relation", "type", "const", "query", "import", "extern")

_TOKEN = re.compile(
    r"""
      (?P<skip>[ \t\r\n\f]+|//[^\n]*|/\*.*?\*/)
    | (?P<longtext>\"\"\"(?:[^"\\]++|\\.|"(?!""))*+\"\"\")
    | (?P<symbol>s"(?:[^"\\\n]|\\[tnr0"'\\])*")
    | (?P<moment>[td]"[^"\n]*")
    | (?P<text>"(?:[^"\\\n]|\\[tnr0"'\\])*")
    | (?P<char>'(?:[^'\\\n]|\\[tnr0"'\\])')
    | (?P<float>[0-9]+\.[0-9]+(?:e-?[0-9]+)?)
    | (?P<integer>[0-9]+)
    | (?P<name>[a-zA-Z][a-zA-Z_0-9]*)
    | (?P<wildcard>_(?![a-zA-Z_0-9]))
    | (?P<mark>::|:=|:-|:|=>|==|=|!=|!|<=|<:|<|>=|>|&&|&str|\|\||\||\^|\\/|/\\|->|\.\.=|\.\.|[-+*/%?~(){}\[\],;@$])
    """,
    re.VERBOSE | re.DOTALL,
)
LITERALS = ("integer", "float", "text", "longtext", "symbol", "moment", "char")
_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "0": "\0", '"': '"', "'": "'", "\\": "\\"}


@dataclass(frozen=True, slots=True)
class Token:
    """kind is "name", "keyword", "integer", "float", "text", "symbol", "moment", "char", "wildcard",
    "mark" or "end"."""

    kind: str
    text: str
    line: int
    column: int
    start: int
    end: int

    @property
    def span(self) -> Span:
        return Span(self.line, self.column, max(1, self.end - self.start))

    def shown(self) -> str:
        return "the end of the program" if self.kind == "end" else f"`{self.text}`"


def unescape(body: str) -> str:
    """The text between the quotes, escapes resolved; a backslash before anything else stays (in long texts only)."""
    return re.sub(r"\\(.)", lambda m: _ESCAPES.get(m.group(1), m.group()), body)


def tokens(text: str, source: str) -> list[Token]:
    """All tokens, with an "end" token last. Raises ParseError at a character that begins no token."""
    found: list[Token] = []
    position, line, line_start = 0, 1, 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        column = position - line_start + 1
        if match is None or match.lastgroup is None or (text.startswith("/*", position) and match.lastgroup != "skip"):
            raise _bad_character(text, source, position, Span(line, column))
        end = match.end()
        if match.lastgroup != "skip":
            body, kind = match.group(), match.lastgroup
            if kind == "name" and body in KEYWORDS:
                kind = "keyword"
            found.append(Token(kind, body, line, column, position, end))
        newlines = text.count("\n", position, end)
        if newlines:
            line += newlines
            line_start = text.rfind("\n", position, end) + 1
        position = end
    found.append(Token("end", "", line, position - line_start + 1, position, position))
    return found


def _bad_character(text: str, source: str, position: int, span: Span) -> ParseError:
    character = text[position]
    if text.startswith('"', position):
        message, hint = (
            "this text literal does not end on its line",
            'close it with `"`, or use `"""` for several lines',
        )
    elif text.startswith("/*", position):
        message, hint = "this comment does not end", "close it with `*/`"
    elif character == "_":
        message, hint = "a name cannot begin with `_`", "use `_` alone as the wildcard, or begin the name with a letter"
    elif character == "'":
        message, hint = "a character literal holds exactly one character", 'write `"..."` for a text'
    elif character == ".":
        message = "unexpected character '.'"
        hint = "rules begin with `rel` and end without a dot: `rel path(a, b) :- edge(a, b)`"
    else:
        message, hint = f"unexpected character {character!r}", None
    return ParseError(message, hint=hint, source=source, text=text, span=span)
