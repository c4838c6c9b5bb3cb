"""What newcomers write from habit: forms of Prolog, ProbLog, Soufflé, SQL, C and Python where a syntax error is.

The parser looks here first when it fails, so that the error names the form and shows how this language says it.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise

from derivable.datalog.foreign.other_names import like_here
from derivable.datalog.syntax.lexer import ITEM_KEYWORDS, Token

# What stands before and after a whole atom.
_BETWEEN = (",", "and", "or", "not")
_UNICODE = {
    "∧": "and",
    "∨": "or",
    "¬": "not",
    "→": "implies",
    "⇒": "implies",
    "←": "=",
    "≤": "<=",
    "≥": ">=",
    "≠": "!=",
    "∃": "exists(y: q(x, y))",
    "∀": "forall(y: p(y) implies q(x, y))",
}
_COMMENT = "comments are `// ...` to the end of the line, or `/* ... */`"
_EVIDENCE = "write `evidence rain()`, and `evidence not rain()` for what was observed not to hold"
_LISTS = "make a relation with a column for the position, or `type List = Nil() | Cons(i32, List)`"
_COMMENTS = (
    (0, "#", "`#` begins no comment", _COMMENT),
    (0, "%", "`%` begins no comment", _COMMENT),
    (0, "- -", "`--` begins no comment", _COMMENT),
)
# (how far the first token is, tokens without space between them, what is wrong, how it is written); `{atom}` is what
# follows.
_MARKS = (
    *_COMMENTS,
    (-1, "< >", "`<>` is no comparison", "write `x != y`"),
    (-1, "= <", "`=<` is no comparison", "write `x <= y`"),
    (-1, "* *", "`**` is no operator", "write `$pow(x, 2)`, or `$powf(x, 2.0)` for floats"),
    (0, "\\ +", "`\\+` is Prolog's negation", "write `not {atom}`"),
    (-1, "= \\ =", "`=\\=` is Prolog's comparison", "write `x != y`"),
    (0, "\\ ==", "`\\==` is Prolog's comparison", "write `x != y`"),
    (0, "\\ =", "`\\=` is Prolog's comparison", "write `x != y`"),
    (0, "&", "`&` joins nothing", "write `and` or `,` between atoms, and `&&` between bools"),
    (0, "|", "`|` joins nothing here", "write `or` between atoms, and `||` between bools"),
    *((0, mark, f"`{mark}` is no sign of this language", f"write `{here}`") for mark, here in _UNICODE.items()),
)
_DIRECTIVES = {
    "decl": ("`.decl` declares a relation in Soufflé", "write `type {name}(x: i32, y: i32)`"),
    "input": ("`.input` reads facts in Soufflé", 'write `@file("{name}.csv") type {name}(x: i32, y: i32)`'),
    "output": ("`.output` shows a relation in Soufflé", "write `query {name}`"),
}


@dataclass(frozen=True)
class Form:
    """What is wrong with text[start:end], and how it is written here."""

    message: str
    hint: str
    start: int
    end: int


def other_form(text: str, tokens: list[Token], position: int, items: tuple[int, int]) -> Form | None:
    """The form of another language at the token where the parser failed, None if it looks like none.

    items  where the last item begins that was read as a whole, and the one that is being read
    """
    cursor, (before, item) = _Cursor(text, tokens, position), items
    if position == item:
        # What follows an item may have been meant as a part of it.
        form = _item(cursor)
        if form is not None or item == before:
            return form
        item = before
    return _mark(cursor) or _word(cursor) or _disjunction(cursor, item)


class _Cursor:
    """A token among its neighbours."""

    def __init__(self, text: str, tokens: list[Token], position: int):
        self.text, self.tokens, self.position = text, tokens, position

    @property
    def token(self) -> Token:
        return self.tokens[self.position]

    def at(self, offset: int) -> Token:
        """The token this far away; the last one beyond the ends."""
        cursor = self.position + offset
        return self.tokens[cursor] if 0 <= cursor < len(self.tokens) else self.tokens[-1]

    def joined(self, *texts: str, first: int = 0) -> bool:
        """Whether the tokens from `first` on have these texts, without space between them."""
        tokens = [self.at(first + i) for i in range(len(texts))]
        together = all(a.end == b.start for a, b in pairwise(tokens))
        return together and tuple(token.text for token in tokens) == texts

    def form(self, message: str, hint: str, first: int = 0, last: int = 0) -> Form:
        return Form(message, hint, self.at(first).start, self.at(last).end)

    def atom(self, offset: int) -> str:
        """The atom that begins `offset` tokens away, as it is written."""
        start = self.position + offset
        if self.tokens[start].kind != "name":
            return "f(x)"
        end = self.closing(start + 1) if self.at(offset + 1).text == "(" else start
        return self.text[self.tokens[start].start : self.tokens[end].end]

    def closing(self, opening: int) -> int:
        """The position of the parenthesis that closes the one at a position."""
        depth = 0
        for i in range(opening, len(self.tokens)):
            depth += {"(": 1, ")": -1}.get(self.tokens[i].text, 0)
            if depth == 0:
                return i
        return len(self.tokens) - 1

    def clause_end(self) -> int:
        """The position behind the clause here: its final dot, the next item, or the end of the program."""
        for i in range(self.position, len(self.tokens)):
            token = self.tokens[i]
            if token.kind == "end" or _is_dot(token) or (i > self.position and token.text in ITEM_KEYWORDS):
                return i
        return len(self.tokens) - 1

    def clause(self) -> str:
        """The clause here without its dot, on one line, in this language's words."""
        end = self.clause_end()
        clause = self.text[self.token.start : self.tokens[max(end - 1, self.position)].end]
        return " ".join(clause.replace("\\+", "not ").replace("not  ", "not ").split())


def _is_dot(token: Token) -> bool:
    return token.kind == "bad" and token.text == "."


def _item(cursor: _Cursor) -> Form | None:
    """What begins no item."""
    token, after = cursor.token, cursor.at(1)
    if (begun := _among(cursor, _COMMENTS) or _evidence(cursor) or _condition(cursor)) is not None:
        return begun
    if cursor.joined("?", "-"):
        return cursor.form("`?-` is Prolog's question", f"write `query {cursor.atom(2)}`", 0, 1)
    if token.text == ":-":
        hint = "declare relations with `type p(i32)`; a constraint is a rule with a name, `rel violated() = ...`"
        return cursor.form("`:-` without a head is a directive or a constraint of Prolog", hint)
    if _is_dot(token) and after.text in _DIRECTIVES:
        message, hint = _DIRECTIVES[after.text]
        name = cursor.at(2).text if cursor.at(2).kind == "name" else "p"
        return cursor.form(message, hint.format(name=name), 0, 1)
    if token.kind in ("integer", "float") and after.text in ("::", "/"):
        return _tagged(cursor)
    if token.kind == "name" and after.text == "(" and _is_dot(cursor.tokens[cursor.clause_end()]):
        what = "rule" if any(t.text == ":-" for t in _tokens_of_clause(cursor)) else "fact"
        hint = f"{what}s begin with `rel` and end without a dot: `rel {cursor.clause()}`"
        return cursor.form(f"this is a {what} of Prolog", hint)
    return None


def _among(cursor: _Cursor, forms: tuple[tuple[int, str, str, str], ...]) -> Form | None:
    """The first of these forms that is here."""
    for first, texts, message, hint in forms:
        if cursor.joined(*texts.split(), first=first):
            last = first + texts.count(" ")
            return cursor.form(message, hint.format(atom=cursor.atom(2)) if "{" in hint else hint, first, last)
    return None


def _condition(cursor: _Cursor) -> Form | None:
    """`name LIKE "%da%"`, `x BETWEEN 1 AND 3` and `x IS NULL` of SQL, after a value."""
    word, value, after = cursor.token.text.upper(), cursor.at(-1).text, cursor.at(1)
    if cursor.token.kind != "name" or cursor.at(-1).kind not in ("name", "text", "integer", "float"):
        return None
    if word in ("LIKE", "ILIKE") and after.kind == "text":
        return cursor.form(f"`{cursor.token.text}` is a condition of SQL", like_here(value, after.text), 0, 1)
    if word == "BETWEEN":
        low, high = after.text, cursor.at(3).text
        return cursor.form("`BETWEEN` is a condition of SQL", f"write `{value} >= {low}, {value} <= {high}`")
    if word == "IS":
        return cursor.form("`IS` is a condition of SQL", "a value that is not known is no fact: write `not p(_)`")
    return None


def _evidence(cursor: _Cursor) -> Form | None:
    """`evidence(rain).`, after a whole clause."""
    is_behind = cursor.position == 0 or cursor.at(-1).text in (")", "}", ".")
    if cursor.token.text == "evidence" and is_behind and cursor.at(1).text == "(":
        return cursor.form("this is ProbLog's form of evidence", _EVIDENCE)
    return None


def _tokens_of_clause(cursor: _Cursor) -> list[Token]:
    return cursor.tokens[cursor.position : cursor.clause_end()]


def _tagged(cursor: _Cursor) -> Form | None:
    """`0.3::rain.` and `0.2::a(x); 0.8::b(x) :- c(x).`"""
    heads, tokens = _heads(cursor)
    if heads is None:
        return None
    if len(heads) > 1:
        return _annotated(cursor, heads, tokens)
    [(tag, head)], body = heads, _written(cursor, tokens)
    rule = f"rel {tag}::{head} :- {body}" if body else f"rel {tag}::{head}"
    return cursor.form("this is a clause of ProbLog", f"items begin with a keyword and end without a dot: `{rule}`")


def _heads(cursor: _Cursor) -> tuple[list[tuple[str, str]] | None, list[Token]]:
    """The (probability, atom) of the heads of a clause, and the tokens of its body; None if they are none."""
    tokens = _tokens_of_clause(cursor)
    cut = next((i for i, t in enumerate(tokens) if t.text in (":-", "=")), len(tokens))
    heads: list[tuple[str, str]] = []
    start, depth = 0, 0
    for i, token in enumerate([*tokens[:cut], None]):
        if token is not None:
            depth += (token.text == "(") - (token.text == ")")
            if depth or token.text != ";":
                continue
        part = tokens[start:i]
        start = i + 1
        mark = next((k for k, t in enumerate(part) if t.text == "::"), None)
        if not mark or len(part) < mark + 2 or part[mark + 1].kind != "name":
            return None, []
        atom = cursor.text[part[mark + 1].start : part[-1].end]
        heads.append((cursor.text[part[0].start : part[mark - 1].end], atom if "(" in atom else f"{atom}()"))
    return heads, tokens[cut + 1 :]


def _written(cursor: _Cursor, body: list[Token]) -> str:
    """A body as it is written here: atoms without arguments have no parentheses in Prolog."""
    if not body:
        return ""
    parts, at, depth = [], body[0].start, 0
    ends = [",", *(token.text for token in body), ","]
    for token, before, after in zip(body, ends, ends[2:]):
        depth += (token.text == "(") - (token.text == ")")
        if token.kind != "name" or after == "(":
            continue
        is_first = before in _BETWEEN or cursor.text[: token.start].rstrip().endswith("\\+")
        if not depth and is_first and after in _BETWEEN:
            parts.append(f"{cursor.text[at : token.end]}()")
            at = token.end
    # The last number has the dot of a clause of Prolog.
    parts.append(cursor.text[at : body[-1].end].removesuffix("."))
    written = " ".join("".join(parts).replace("\\+", "not ").split())
    return f"({written})" if "or" in ends else written


def _annotated(cursor: _Cursor, heads: list[tuple[str, str]], tokens: list[Token]) -> Form:
    """An annotated disjunction: a choice of heads for each row of the body."""
    from fractions import Fraction

    what = "this is an annotated disjunction of ProbLog"
    with suppress(ValueError):
        if sum(Fraction(tag) for tag, _ in heads) > 1:
            hint = "give shares that add up to at most one"
            return cursor.form(f"{what}, and its shares add up to more than one", hint, 0, _before_dot(cursor))
    body, names = _written(cursor, tokens), {head.partition("(")[0] for _, head in heads}
    choice = f"{{{'; '.join(f'{tag}::{head}' for tag, head in heads)}}}"
    hint = f"write a choice of heads in braces: `rel {choice}{f' = {body}' if body else ''}`"
    if not body and len(names) == 1:
        rows = "; ".join(f"{tag}::{head.removeprefix(next(iter(names)))}" for tag, head in heads)
        hint = f"write a set of facts that exclude each other: `rel {next(iter(names))} = {{{rows}}}`"
    return cursor.form(what, hint, 0, _before_dot(cursor))


def _before_dot(cursor: _Cursor) -> int:
    """How far the last token of the heads is."""
    end = next(
        (i for i in range(cursor.position, cursor.clause_end()) if cursor.tokens[i].text in (":-", "=")),
        cursor.clause_end(),
    )
    return max(end - 1 - cursor.position, 0)


def _mark(cursor: _Cursor) -> Form | None:
    """A sign that this language has not."""
    token = cursor.token
    if (form := _among(cursor, _MARKS)) is not None:
        return form
    if token.text in ("[", "{") and cursor.at(-1).text == "in":
        return cursor.form("`in` takes a range", "make a relation, `rel chosen = {1, 3}`, and write `chosen(x)`")
    if token.text == "*" and cursor.at(-1).text == "(" and cursor.at(-2).kind == "name":
        return cursor.form("`*` is no row", f"name the variables: `n := {cursor.at(-2).text}(x: p(x))`")
    if token.text == "[":
        return cursor.form("there are no lists", _LISTS)
    return None


def _word(cursor: _Cursor) -> Form | None:
    """A word instead of a sign."""
    token = cursor.token
    if token.kind == "keyword" and cursor.at(1).text == "(" and cursor.at(-1).text in (",", "and", "or", "not", "="):
        # What stands where an atom does is the name of a relation.
        return None
    if (form := _evidence(cursor)) is not None:
        return form
    for offset in (0, -1):
        word = cursor.at(offset)
        if word.kind == "name" and word.text in ("AND", "OR", "NOT", "And", "Or", "Not"):
            return cursor.form(f"`{word.text}` is a name", f"write `{word.text.lower()}`", offset, offset)
    if token.text == "not" and cursor.at(1).text == "in" and cursor.at(-1).kind == "name":
        hint = f"write `not {cursor.at(-1).text} in 0..3`"
        return cursor.form("`not` stands before a formula", hint, -1, 1)
    if token.text == "mod" and token.kind == "name":
        return cursor.form("`mod` is no operator", "write `x % 2`")
    if token.text == "(" and cursor.at(-1).text == "query":
        return cursor.form("`query(...)` is ProbLog's", f"write `query {cursor.atom(1)}`", -1)
    if token.text == "is" and cursor.at(2).text != "(":
        hint = "write `==`: `y == x + 1` gives `y` a value or compares it"
        return cursor.form("`is` computes in Prolog", hint)
    if token.text == "where" and cursor.at(-1).kind != "keyword":
        return cursor.form("`where` stands inside aggregates", "join a condition with `,`: `rel p(x) = q(x), x > 1`")
    if token.kind == "name" and cursor.at(1).text == ":" and cursor.at(-1).text in ("exists", "forall"):
        body = cursor.atom(2)
        inside = body if cursor.at(-1).text == "exists" else f"p({token.text}) implies {body}"
        hint = f"write `{cursor.at(-1).text}({token.text}: {inside})`"
        return cursor.form(f"the formula of `{cursor.at(-1).text}` stands in parentheses", hint, -1)
    return None


def _disjunction(cursor: _Cursor, item: int) -> Form | None:
    """`;` behind a head with a probability, or between formulas."""
    if cursor.token.text != ";":
        return None
    item_tokens, after = cursor.tokens[item : cursor.position], cursor.at(1)
    if after.kind == "end" or after.text in ITEM_KEYWORDS:
        return cursor.form("`;` ends nothing", "items end without a sign: leave the `;` out")
    if any(t.text in ("=", ":-") for t in item_tokens):
        return cursor.form("`;` joins no formulas", "write `or` between them: `rel p(x) = q(x) or r(x)`")
    first = next((i for i, t in enumerate(item_tokens) if t.kind in ("integer", "float")), None)
    if first is None or item_tokens[first - 1].text == "{":
        # A set of heads with probabilities is of this language.
        return None
    whole = _Cursor(cursor.text, cursor.tokens, item + first)
    heads, body = _heads(whole)
    return None if heads is None or len(heads) < 2 else _annotated(whole, heads, body)
