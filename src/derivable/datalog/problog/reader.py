"""The reader of Prolog's texts: tokens, and terms by the precedence of their operators."""

from __future__ import annotations

import re
from dataclasses import dataclass

from derivable.core.diagnostics import Origin, ParseError, Span
from derivable.core.numbers import vanishes
from derivable.datalog.policy.costs import policy
from derivable.datalog.problog.terms import Compound, Facts, Number, Term, Text, Var
from derivable.datalog.syntax.fact_runs import FactPatterns, FactRun
from derivable.datalog.syntax.lexer import LineStarts

_FACTS = FactPatterns(
    r"(?!(?:query|evidence)\()[a-z][a-zA-Z0-9_]*+",
    {
        "integer": (r"-?[0-9]{1,18}+(?![0-9a-zA-Z_.'])", int),
        "text": (r"[a-z][a-zA-Z0-9_]*+(?!\()|'[^'\\\n]*+'(?!')", lambda text: text.strip("'")),
        "symbol": (r'"[^"\\\n]*+"(?!")', lambda text: text[1:-1]),
    },
    r"((?:0\.[0-9]++|1\.0++)(?![0-9a-zA-Z_.]))\s*+::\s*+",
)
_TOKEN = re.compile(
    r"""
      (?P<skip>[ \t\r\n\f\ufeff]+|%[^\n]*|/\*.*?\*/)
    | (?P<number>[0-9]+\.[0-9]+(?:[eE][-+]?[0-9]+)?|[0-9]+[eE][-+]?[0-9]+|0'(?:\\.|''|[^\\'])|[0-9]+)
    | (?P<variable>[A-Z_][a-zA-Z0-9_]*)
    | (?P<atom>[a-z][a-zA-Z0-9_]*|'(?:[^'\\]|\\.|'')*')
    | (?P<text>"(?:[^"\\]|\\.|"")*")
    | (?P<end>\.(?=[\s%]|\Z))
    | (?P<unclosed>/\*.*)
    | (?P<mark>\?::|::|[-+*/\\^<>=~:.?@\#&$]+|!|,|\|)
    | (?P<symbol>;)
    | (?P<bracket>[()\[\]{}])
    | (?P<bad>'[^\n]*|"[^\n]*|.)
    """,
    re.VERBOSE | re.DOTALL,
)
# Operator -> (precedence, form).
INFIX = {
    **dict.fromkeys((":-", "<-", "-->", "=>"), (1200, "xfx")),
    ";": (1100, "xfy"),
    "|": (1100, "xfy"),
    "->": (1050, "xfy"),
    ",": (1000, "xfy"),
    "~": (995, "xfx"),
    **dict.fromkeys(("::", "?::"), (990, "xfx")),
    **dict.fromkeys(
        ["=", "\\=", "==", "\\==", "is", "=:=", "=\\=", "<", ">", "=<", ">=", "@<", "@>", "@=<", "@>=", "=..", "as"],
        (700, "xfx"),
    ),
    ":": (600, "xfy"),
    **dict.fromkeys(("+", "-", "/\\", "\\/", "xor"), (500, "yfx")),
    **dict.fromkeys(("*", "/", "//", "mod", "rem", "div", "<<", ">>", "rdiv"), (400, "yfx")),
    "**": (200, "xfx"),
    "^": (200, "xfy"),
}
PREFIX = {
    ":-": (1200, "fx"),
    "?-": (1200, "fx"),
    **dict.fromkeys(("dynamic", "discontiguous", "table", "multifile", "initialization"), (1150, "fx")),
    "\\+": (900, "fy"),
    "not": (900, "fy"),
    "-": (200, "fy"),
    "+": (200, "fy"),
    "\\": (200, "fy"),
    "?": (500, "fx"),
}
_ESCAPES = dict(zip("ntr0abfvse", "\n\t\r\0\a\b\f\v \x1b"))


@dataclass(slots=True)
class Token:
    """kind is "number", "variable", "atom", "text", "end", "mark", "symbol", "bracket", "unclosed" for a comment,
    "facts" for those of a `FactRun`, "bad" or "last"."""

    kind: str
    text: str
    start: int
    stop: int
    run: FactRun | None = None


def read_terms(text: str, source: str, is_included: bool = False) -> list[Term]:
    """The terms of a text, each of which ends with a dot. Raises ParseError with the span.

    is_included  whether the text is of a file that another one takes in
    """
    return Reader(LineStarts(text, Origin(source, text) if is_included else None), source).terms()


def spelled_out(facts: Facts, source: str) -> list[Term]:
    """The facts of a run as terms, each with its span; `source` is that of the program's text."""
    origin = facts.line_starts.origin
    return Reader(facts.line_starts, source if origin is None else origin.source, facts.run).terms()


class Reader:
    """One text, or a part of it."""

    def __init__(self, line_starts: LineStarts, source: str, part: FactRun | None = None):
        self.line_starts, self.text, self.source = line_starts, line_starts.text, source
        self.tokens = (
            self.scanned(0, len(self.text)) if part is None else self.scanned(part.start, part.end, is_part=True)
        )
        self.position = 0
        self.anonymous = 0

    def scanned(self, position: int, stop: int, is_part: bool = False) -> list[Token]:
        """The tokens of a part of the text."""
        tokens, text, fewest = list[Token](), self.text, policy().call_rows
        # Where facts have been looked for, and those that have been seen behind the first one.
        looked, run = stop if is_part else position, None
        while position < stop:
            if run is not None and position == run.start:
                tokens.append(Token("facts", "", position, run.end, run))
                position, run = run.end, None
                continue
            if position >= looked and (not tokens or tokens[-1].kind in ("end", "facts")):
                looked, run = _FACTS.run(text, position, fewest)
            token = _TOKEN.match(text, position)
            assert token is not None
            assert token.lastgroup is not None
            if token.lastgroup != "skip":
                tokens.append(Token(token.lastgroup, token.group(), position, token.end()))
            position = token.end()
        tokens.append(Token("last", "", stop, stop))
        return tokens

    # Positions and errors

    def span(self, start: int, stop: int) -> Span:
        return self.line_starts.span(start, stop)

    def since(self, first: Token) -> Span:
        """From a token to the last one that was read."""
        return self.span(first.start, self.tokens[self.position - 1].stop)

    def error(self, message: str, token: Token, hint: str | None = None) -> ParseError:
        stop = min(token.stop, self.text.find("\n", token.start) % (len(self.text) + 1))
        span = self.span(token.start, max(stop, token.start + 1))
        return ParseError(message, hint=hint, source=self.source, text=self.text, span=span)

    def unexpected(self, token: Token, wanted: str) -> ParseError:
        if token.kind == "unclosed":
            return self.error("this comment does not end", token, "close it with `*/`")
        if token.kind == "bad":
            if token.text[0] in "'\"":
                what = "quoted atom" if token.text[0] == "'" else "text"
                return self.error(f"this {what} does not end", token, f"close it with `{token.text[0]}`")
            return self.error(f"unexpected character {token.text!r}", token)
        if token.kind == "last":
            return self.error(f"expected {wanted}, but the file ends", token, "a clause ends with a dot")
        shown = "the dot at the end of the clause" if token.kind == "end" else f"`{token.text}`"
        hint = "clauses end with a dot and a space or a new line" if token.text == "." else None
        return self.error(f"expected {wanted}, not {shown}", token, hint)

    # Terms

    @property
    def token(self) -> Token:
        return self.tokens[self.position]

    def terms(self) -> list[Term]:
        terms = []
        while self.token.kind != "last":
            first = self.token
            terms.append(self.term(1200))
            if self.token.kind != "end":
                if self.token.kind == "last":
                    raise self.error("this clause does not end", first, "end it with a dot")
                raise self.unexpected(self.token, "an operator or the dot that ends the clause")
            self.position += 1
            if self.token.kind == "facts":
                assert self.token.run is not None
                terms.append(Facts(self.token.run, self.line_starts, span=terms[-1].span))
                self.position += 1
        return terms

    def term(self, most: int) -> Term:
        first = self.token
        left, precedence = self.primary(most)
        while True:
            token = self.token
            operator = token.text if token.kind in ("mark", "symbol", "atom") else ""
            rank, form = INFIX.get(operator, (1201, ""))
            if rank > most or precedence > rank - (form[0] == "x"):
                break
            self.position += 1
            right = self.term(rank - (form[2] == "x"))
            functor = ";" if operator == "|" else operator
            left = Compound(functor, (left, right), span=self.since(first))
            precedence = rank
        return left

    def primary(self, most: int) -> tuple[Term, int]:
        """A term without infix operators, and its precedence."""
        token = self.token
        self.position += 1
        start = token.start
        match token.kind:
            case "number":
                return self.number(token, ""), 0
            case "variable":
                name = token.text
                if name == "_":
                    self.anonymous += 1
                    name = f"_#{self.anonymous}"
                return Var(name, span=self.span(start, token.stop)), 0
            case "text":
                return Text(self.unquoted(token), span=self.span(start, token.stop)), 0
            case "bracket" if token.text == "(":
                inside = self.term(1200)
                self.expect(")", token)
                return inside, 0
            case "bracket" if token.text == "[":
                return self.list(token), 0
            case "atom" | "mark" | "symbol":
                return self.named(token, most)
        raise self.unexpected(token, "a term")

    def named(self, token: Token, most: int) -> tuple[Term, int]:
        """An atom, a term with arguments or a prefix operator."""
        after = self.token
        name = self.unquoted(token) if token.text.startswith("'") else token.text
        if after.text == "(" and after.kind == "bracket" and after.start == token.stop:
            self.position += 1
            arguments = self.arguments(after, ")")
            return Compound(name, tuple(arguments), span=self.since(token)), 0
        if token.text in ("-", "+") and after.kind == "number" and after.start == token.stop:
            self.position += 1
            return self.number(after, token.text), 0
        is_operand = after.kind in ("number", "variable", "text", "atom") or after.text in ("(", "[")
        is_operand = is_operand or (after.kind == "mark" and after.text in PREFIX)
        is_operand = is_operand and not (after.kind == "atom" and after.text in INFIX and after.text not in PREFIX)
        if token.text in PREFIX and is_operand:
            rank, form = PREFIX[token.text]
            rank = most if most < rank < 1000 else rank
            operand = self.term(rank - (form == "fx"))
            functor = "\\+" if token.text == "not" else token.text
            return Compound(functor, (operand,), span=self.since(token)), rank
        if token.kind == "mark" and (token.text in (",", "|", ".") or (token.text not in INFIX and token.text != "!")):
            raise self.unexpected(token, "a term")
        if token.kind == "mark" and token.text in INFIX and self.ends_operand(after):
            # An operator as an atom, such as in `call(+, X)`; elsewhere its left side is missing.
            if self.tokens[self.position - 2].text not in ("(", ",", "["):
                raise self.unexpected(token, "a term")
        elif token.kind == "symbol" or (token.kind == "mark" and token.text != "!"):
            raise self.unexpected(token, "a term")
        return Compound(name, (), span=self.span(token.start, token.stop)), 0

    @staticmethod
    def ends_operand(token: Token) -> bool:
        return token.text in (",", ")", "]", "|")

    def number(self, token: Token, sign: str) -> Number:
        text = token.text
        start = token.start - len(sign)
        span = self.span(start, token.stop)
        if text.startswith("0'"):
            inside = text[2:]
            value: int | float = ord("'" if inside == "''" else self.escaped(inside, token))
        elif text.isdigit():
            if len(text) > 4000:
                raise self.error(f"this number has {len(text)} digits", token, "64 bits hold 18 digits")
            value = int(text)
        else:
            value = float(text)
            if vanishes(text, value):
                raise self.error(f"{text} is too small for 64 bits, and would be zero", token, "write 0.0 for zero")
        if self.token.kind in ("atom", "variable") and self.token.start == token.stop and self.token.text not in INFIX:
            raise self.error(f"`{text}{self.token.text}` is no number", token, "a name begins with a letter")
        return Number(-value if sign == "-" else value, sign.strip("+") + text, span=span)

    def list(self, opening: Token) -> Term:
        if self.token.text == "]":
            self.position += 1
            return Compound("[]", (), span=self.since(opening))
        items, tail = [self.term(999)], None
        while self.token.text == ",":
            self.position += 1
            items.append(self.term(999))
        if self.token.text == "|":
            self.position += 1
            tail = self.term(999)
        self.expect("]", opening)
        stop = self.tokens[self.position - 1].stop
        items_term = tail or Compound("[]", (), span=self.span(stop - 1, stop))
        whole = self.since(opening)
        for item in reversed(items):
            items_term = Compound(".", (item, items_term), span=whole)
        return items_term

    def arguments(self, opening: Token, closing: str) -> list[Term]:
        terms = [self.term(999)]
        while self.token.text == "," and self.token.kind == "mark":
            self.position += 1
            terms.append(self.term(999))
        self.expect(closing, opening)
        return terms

    def expect(self, closing: str, opening: Token) -> None:
        token = self.token
        if token.text != closing or token.kind != "bracket":
            if token.kind in ("end", "last"):
                raise self.error(f"`{opening.text}` is not closed", opening, f"close it with `{closing}`")
            raise self.unexpected(token, f"`,` or `{closing}`")
        self.position += 1

    # Quotes

    def unquoted(self, token: Token) -> str:
        quote = token.text[0]
        if quote not in "'\"":
            return token.text
        inside = token.text[1:-1].replace(quote * 2, quote)
        return self.escaped(inside, token)

    def escaped(self, text: str, token: Token) -> str:
        if "\\" not in text:
            return text

        def value(match: re.Match) -> str:
            code = match[1]
            if code[0] == "x":
                return chr(int(code[1:].rstrip("\\"), 16))
            if code[0] == "\n":
                return ""
            if code in _ESCAPES:
                return _ESCAPES[code]
            if code in "\\'\"`":
                return code
            raise self.error(f"`\\{code}` is no escape", token, "write `\\\\` for a backslash")

        return re.sub(r"\\(x[0-9a-fA-F]{1,5}\\?|.)", value, text, flags=re.DOTALL)
