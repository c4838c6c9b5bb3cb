"""Tokens of the surface language."""

from __future__ import annotations

import re
from bisect import bisect_right
from dataclasses import dataclass, field

from derivable.core.diagnostics import Origin, ParseError, Span
from derivable.datalog.syntax.fact_rows import KINDS, Quoted, Rows, fact_run, fact_set

_WORDS = (
    "and or not where if then else in case is new as import extern type const rel relation query true false "
    "implies bound free"
)
KEYWORDS = frozenset(_WORDS.split(" "))
ITEM_KEYWORDS = ("rel", "relation", "type", "const", "query", "import", "extern")

_TOKEN = re.compile(
    r"""
      (?P<skip>[ \t\r\n\f\ufeff]+|//[^\n]*|/\*.*?\*/)
    | (?P<longtext>\"\"\"(?:[^"\\]|\\.|"(?!\"\"(?!")))*+\"\"\"(?!"))
    | (?P<symbol>s"(?:[^"\\\n]|\\.)*+")
    | (?P<moment>[td]"[^"\n]*")
    | (?P<text>(?!\"\"\")"(?:[^"\\\n]|\\.)*+"|(?!\"\"\")"(?:[^"\\]|\\.)*+"(?![a-zA-Z_0-9]))
    | (?P<char>'(?:[^'\\\n]|\\.)')
    | (?P<name>[a-zA-Z][a-zA-Z_0-9]*)
    | (?P<float>[0-9]+(?:\.[0-9]+(?:[eE][-+]?[0-9]+)?|[eE][-+]?[0-9]+)(?![a-zA-Z_0-9]))
    | (?P<integer>[0-9]+(?![a-zA-Z_0-9]|\.(?!\.)))
    | (?P<wildcard>_(?![a-zA-Z_0-9]))
    | (?P<mark>::|:=|:-|:|=>|==|=|!=|!|<=|<:|<|>=|>|&&|&str|\|\||\||\^|\\/|/\\|/(?!\*)|->|\.\.=|\.\.)
    | (?P<bracket>[-+*%?~(){}\[\],;@$])
    | (?P<bad>/\*.*|\"\"\".*|"[^\n]*|[0-9][0-9a-zA-Z_.]*|_[a-zA-Z_0-9]+|.)
    """,
    re.VERBOSE | re.DOTALL,
)
LITERALS = ("integer", "float", "text", "longtext", "symbol", "moment", "char")


@dataclass(frozen=True, eq=False)
class LineStarts:
    """Where the lines of one text begin; an imported file is the origin of its spans."""

    text: str
    origin: Origin | None = None
    starts: list[int] = field(default_factory=list, repr=False)

    def __post_init__(self) -> None:
        self.starts.append(0)
        self.starts.extend(match.end() for match in re.finditer("\n", self.text))

    def span(self, start: int, end: int) -> Span:
        """The span of text[start:end]."""
        line = bisect_right(self.starts, start)
        return Span(line, start - self.starts[line - 1] + 1, max(1, end - start), self.origin)

    def start(self, span: Span) -> int:
        """Where a span of this text begins."""
        return self.starts[span.line - 1] + span.column - 1


@dataclass(slots=True, eq=False)
class Token:
    """kind is "name", "keyword", "integer", "float", "text", "longtext", "symbol", "moment", "char", "wildcard",
    "mark", "rows", "bad" or "end". Facts of constants are one token, "rows", with what they hold."""

    kind: str
    text: str
    start: int
    end: int
    line_starts: LineStarts
    rows: list[Rows] | None = None

    @property
    def span(self) -> Span:
        return self.line_starts.span(self.start, self.end)

    def shown(self) -> str:
        return "the end of the program" if self.kind == "end" else f"`{self.text}`"


def beyond_space(text: str, position: int) -> int:
    """The first position from this one on where no white space is."""
    while position < len(text) and text[position].isspace():
        position += 1
    return position


def tokens(
    line_starts: LineStarts,
    fewest_rows: int,
    start: int = 0,
    stop: int | None = None,
    fewest_choices: int | None = None,
) -> list[Token]:
    """All tokens of text[start:stop], with an "end" token last. What begins no token is one of kind "bad".

    fewest_rows     facts of constants in a row that become one token
    fewest_choices  the same of facts that exclude each other, of which a program may have many small sets
    """
    if fewest_choices is None:
        fewest_choices = fewest_rows
    text = line_starts.text
    read: list[Token] = []
    position, length, match = start, len(text) if stop is None else stop, _TOKEN.match
    looked_at, quoted = start, {quote: Quoted(quote) for quote in KINDS}
    has_runs = text.count("rel") >= fewest_rows
    has_sets = text.count(",") + text.count(";") >= fewest_rows - 1
    while position < length:
        token = match(text, position, length)
        assert token is not None
        start, position, kind = position, token.end(), token.lastgroup
        assert kind is not None
        if kind == "skip":
            continue
        body = token.group()
        if kind == "name" and body in KEYWORDS:
            kind = "keyword"
            if has_runs and body in ("rel", "relation") and start >= looked_at:
                looked_at, rows = fact_run(text, start, fewest_rows, quoted)
                if rows:
                    position = looked_at
                    read.append(Token("rows", "rel", start, position, line_starts, rows))
                    continue
        elif kind == "bracket":
            kind = "mark"
            if (
                has_sets
                and body == "{"
                and len(read) > 2
                and read[-3].text in ("rel", "relation")
                and read[-2].kind == "name"
            ):
                row_set = fact_set(text, start, fewest_rows, fewest_choices, quoted)
                if row_set is not None:
                    position = row_set.end
                    read.append(Token("rows", "{", start, position, line_starts, [row_set]))
                    continue
        read.append(Token(kind, body, start, position, line_starts))
    read.append(Token("end", "", length, length, line_starts))
    return read


def bad_token(token: Token, source: str) -> ParseError:
    """What is wrong with a token of kind "bad"."""
    text, hint = token.text, None
    character = text[0]
    start, end = token.start, token.start + 1
    if character == '"':
        # A text may go over lines, but where a name follows it, its end is the beginning of another one.
        message, hint = "this text literal does not end on its line", 'close it with `"`'
        if text.startswith('"""'):
            message, hint = "this text literal does not end", 'close it with `"""`'
    elif text.startswith("/*"):
        message, hint = "this comment does not end", "close it with `*/`"
    elif character == "_":
        message, hint = "a name cannot begin with `_`", "use `_` alone as the wildcard, or begin the name with a letter"
    elif character == "'":
        message, hint = "a character literal holds exactly one character", 'write `"..."` for a text'
    elif character.isdigit():
        message, hint, end = f"`{text}` is no number", "a name begins with a letter", token.end
        if re.fullmatch(r"[0-9]+[iuf][0-9a-z]+", text):
            number, suffix = re.match(r"([0-9]+)(.*)", text).groups()  # type: ignore[union-attr]
            hint = f"numbers have no suffix: write `{number} as {suffix}`"
        elif re.fullmatch(r"[0-9]+\.", text):
            hint = f"write `{text}0`"
    elif character == ".":
        message = "unexpected character '.'"
        hint = "rules begin with `rel` and end without a dot: `rel path(a, b) :- edge(a, b)`"
    else:
        message = f"unexpected character {character!r}"
    return ParseError(
        message, hint=hint, source=source, text=token.line_starts.text, span=token.line_starts.span(start, end)
    )
