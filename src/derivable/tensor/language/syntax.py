"""Parsing the text of SDQLite, and giving it its types.

The grammar is that of figure 4 of the paper, of both fragments, with what its listings use besides:

    e - f, -e, e / s              of tensors as of scalars
    let <a, b> = <e, f> in g      one after another
    if c then e else f
    A(i, j)   { i, j -> e }   sum(<i, j, a> in A) e     several axes at once
    # to the end of the line, /* and between these */

The parser makes the nodes of operators; which of them are the semiring's and which the integers' is said by the types,
as is where `2` is the real number 2.0.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from derivable.algebra.expr.operations import OPERATIONS
from derivable.core.diagnostics import (
    BindingError,
    DomainError,
    Errors,
    Origin,
    ParseError,
    Span,
    TypeMismatchError,
)
from derivable.core.names import FreshNames
from derivable.core.registry import nearest, suggestion
from derivable.tensor.language import nodes as t
from derivable.tensor.language.binding import by_name
from derivable.tensor.language.check import Types, scope, type_from
from derivable.tensor.language.program import Program
from derivable.tensor.language.text import FUNCTIONS, KEYWORDS, NAME, RESERVED
from derivable.tensor.language.types import INT, REAL, Type

GRAMMAR = r"""
?start: expr
?expr: open | or_
?open: "sum" "(" "<" names _CLOSE "in" over ")" expr            -> sum
     | "let" NAME "=" expr "in" expr                            -> let
     | "let" "<" names _NAMED "<" items _CLOSE "in" expr        -> let_each
     | "if" expr "then" expr                                    -> if_then
     | "if" expr "then" expr "else" expr                        -> if_else
?over: expr | expr ":" expr                                     -> range
?or_: xor | or_ ("|" | "or") (xor | open)                              -> logical_or
?xor: and_ | xor "^" (and_ | open)                              -> logical_xor
?and_: not_ | and_ ("&" | "and") (not_ | open)                         -> logical_and
?not_: compare | ("~" | "not") (not_ | open)                           -> logical_not
?compare: add
     | add "<" (add | open)                                     -> less
     | add "<=" (add | open)                                    -> less_equal
     | add ">" (add | open)                                     -> greater
     | add ">=" (add | open)                                    -> greater_equal
     | add ("==" | "=") (add | open)                            -> equal
     | add "!=" (add | open)                                    -> not_equal
?add: multiply
     | add "+" (multiply | open)                                -> add
     | add "-" (multiply | open)                                -> subtract
?multiply: unary
     | multiply "*" (unary | open)                              -> multiply
     | multiply "/" (unary | open)                              -> divide
     | multiply "//" (unary | open)                             -> floor_divide
     | multiply "%" (unary | open)                              -> remainder
?unary: power | "-" (unary | open)                              -> negate
?power: atom | atom "**" (unary | open)                         -> power
?atom: "(" expr ")"
     | "(" expr ":" expr ")"                                    -> range
     | NAME                                                     -> name
     | INTEGER                                                  -> integer
     | REAL                                                     -> real
     | "true"                                                   -> true
     | "false"                                                  -> false
     | "one"                                                    -> one
     | ("{" "}" | "∅")                                          -> zero
     | "{" keys "->" expr "}"                                   -> singleton
     | atom "(" items ")"                                       -> lookup
     | atom "(" expr ":" expr ")"                               -> sub_array
names: NAME ("," NAME)*
items: expr ("," expr)*
keys: key ("," key)*
?key: expr | "unique" "(" expr ")"                              -> unique

_CLOSE: />(?=\s*in\b)/
_NAMED: />\s*=(?=\s*<)/
NAME: /%s/
INTEGER: /\d+/
REAL: /(\d+\.\d*|\.\d+)([eE][+-]?\d+)?|\d+[eE][+-]?\d+|inf\b|nan\b/
COMMENT: /#[^\n]*/ | /\/\*(.|\n)*?\*\//
%ignore /\s+/
%ignore COMMENT
"""

_MAX_INTEGER = (1 << 63) - 1


def parse(text: str, inputs: Mapping[str, Type | int | str] | None = None, *, source: str = "<program>") -> Program:
    """The program that a text says.

    text    an expression of SDQLite
    inputs  {name: type} of the free names: a Type (`scalar`, `vector`, `matrix`, `tensor(n)`), the order of a tensor of
            reals, or the text of a type, as in "tensor 2", "int", "{ dense_int -> real }"
    source  the name of the text, for messages

    Raises ParseError, BindingError and TypeMismatchError with the place, all that are independent of each other in one.
    Law: parsing the text of a program gives that program, up to bound names.
    """
    if not isinstance(text, str):
        raise DomainError(f"a program is a text, not {type(text).__name__}")
    types = {name: as_type(given, name) for name, given in by_name(inputs, "inputs").items()}
    place = _Place(source, text)
    node = _Reader(place).transform(_tree(text, place))
    typing = _Typing()
    try:
        node, _ = typing.typed(node, types)
    except RecursionError:
        raise _too_deep(place) from None
    typing.errors.report()
    return Program(node, types)


def as_type(given: Any, name: str = "") -> Type:
    """A type from itself, the order of a tensor of reals, or its text. Raises TypeMismatchError."""
    of = f" of `{name}`" if name else ""
    if isinstance(given, Type):
        return given
    if isinstance(given, int) and not isinstance(given, bool) and given >= 0:
        return Type("real", ("int",) * given)
    words = given.replace("{", " { ").replace("}", " } ").split() if isinstance(given, str) else []
    match words:
        case ["real" | "int" | "bool" as element]:
            return Type(element)
        case ["tensor", order] if order.isdecimal():
            return Type("real", ("int",) * int(order))
        case ["{", ("int" | "dense_int") as index, "->", *inner, "}"]:
            found = as_type(" ".join(inner), name)
            return Type(found.element, (index, *found.indices))
    known = ("real", "int", "bool", "tensor 2", "{ dense_int -> int }")
    raise TypeMismatchError(
        f"the type{of} is {given!r}", hint=suggestion(str(given), known, f"types are, say, {', '.join(known)}")
    )


class _Place:
    """Where something stands in the text."""

    def __init__(self, source: str, text: str):
        self.origin = Origin(source, text)
        self.lines = text.split("\n")

    def span(self, meta: Any) -> Span:
        if meta.end_line == meta.line:
            end = meta.end_column
        else:
            end = len(self.lines[meta.line - 1].rstrip()) + 1
        return Span(meta.line, meta.column, max(1, end - meta.column), origin=self.origin)

    def at(self, line: int, column: int, length: int = 1) -> Span:
        return Span(line, column, max(1, length), origin=self.origin)


def _too_deep(place: _Place) -> ParseError:
    return ParseError("this is nested too deep", span=place.at(1, 1), hint="name parts of it with `let`")


@cache
def _parser() -> Any:
    from lark import Lark

    return Lark(
        GRAMMAR.replace("/%s/", f"/{NAME}/"),
        parser="lalr",
        lexer="basic",
        propagate_positions=True,
        maybe_placeholders=False,
    )


def _tree(text: str, place: _Place) -> Any:
    from lark.exceptions import UnexpectedCharacters, UnexpectedToken

    if not text.strip():
        raise ParseError("the program is empty", span=place.at(1, 1), hint="write an expression, `sum(<i, a> in X) a`")
    try:
        return _parser().parse(text)
    except UnexpectedCharacters as error:
        found = text[error.pos_in_stream]
        hints = {
            "[": "a key is looked up as in `A(i)`",
            "@": "a product is summed up: `sum(<i, a> in X) a * Y(i)`",
            ".": "axes in another order are keys: `sum(<i, j, a> in A) { j, i -> a }`",
            "!": "`not c` is the opposite of a condition",
            "?": "`where(c, a, b)` chooses, and `if c then e else f`",
            ";": "`let x = e in f` names a part",
        }
        span = place.at(error.line, error.column)
        raise ParseError(f"`{found}` means nothing here", span=span, hint=hints.get(found)) from None
    except UnexpectedToken as error:
        raise _syntax_error(error, text, place) from None


# After these an expression may end.
_ENDS = ("NAME", "INTEGER", "REAL", "TRUE", "FALSE", "ONE", "RPAR", "RBRACE")


def _syntax_error(error: Any, text: str, place: _Place) -> ParseError:
    token, accepted = error.token, set(error.accepts or error.expected)
    tokens = _tokens(text)
    if token.type == "$END":
        last = tokens[-1] if tokens else None
        line, column = (last.end_line, last.end_column) if last is not None else (1, 1)
        span, found, before = place.at(line, column), "the end of the text", tokens
    else:
        span, found = place.at(token.line, token.column, len(token)), f"`{token}`"
        before = [each for each in tokens if each.start_pos < token.start_pos]
    wanted = _wanted(accepted, bool(before) and before[-1].type in _ENDS)
    expected = " or ".join(wanted)
    hint = _hint(token, wanted, accepted, before)
    start = token.start_pos or 0
    if token.type in ("SLASH", "STAR") and "/*" in text[max(0, start - 1) : start + 2]:
        found, hint = "a comment that does not end", "a comment that begins with `/*` ends with `*/`"
    return ParseError(f"expected {expected}, found {found}", span=span, hint=hint)


def _tokens(text: str) -> list:
    """Those before the first character that means nothing."""
    from lark.exceptions import UnexpectedCharacters

    tokens: list = []
    with suppress(UnexpectedCharacters):
        tokens.extend(_parser().lex(text))
    return tokens


def _sign(terminal: str) -> str:
    """How a terminal is written."""
    names = {"_CLOSE": ">", "_NAMED": "> =", "NAME": "", "INTEGER": "", "REAL": "", "$END": ""}
    return names[terminal] if terminal in names else _parser().get_terminal(terminal).pattern.value


def _wanted(accepted: set[str], is_after_expression: bool) -> list[str]:
    """What may stand here, in words."""
    if "INTEGER" in accepted:
        return ["an expression"]
    signs = {_sign(terminal) for terminal in accepted - {"MORETHAN"}}
    if is_after_expression:
        # How the expression goes on is not what is missing.
        closing = [f"`{sign}`" for sign in (")", "}", "->", "then", "in", ">", "> =") if sign in signs]
        if closing or "$END" in accepted:
            return closing or ["an operator", "the end of the text"]
    return ["a name"] if "NAME" in accepted else [f"`{sign}`" for sign in sorted(signs - {""})]


def _hint(token: Any, wanted: list[str], accepted: set[str], before: list) -> str | None:
    signs = {_sign(terminal) for terminal in accepted}
    if token.type == "NAME" and (close := nearest(token, [word for word in KEYWORDS if word in signs])):
        return f"did you mean `{close}`?"
    for word in reversed(before[-2:]):
        if word.type == "NAME" and (close := nearest(word, ("sum", "let", "if"))):
            return f"did you mean `{close}` instead of `{word}`?"
    if wanted == ["a name"] and token in RESERVED:
        return f"`{token}` is a word of the language"
    if (before and before[-1].type == "SUM") or wanted == ["`<`"]:
        return "a sum is written `sum(<i, a> in A) e`"
    if wanted[0] == "an operator":
        if token in ("<", "<=", ">", ">=", "==", "=", "!="):
            return "comparisons do not chain: write `a < b & b < c`"
        return None
    if token in ("&", "|") and before and before[-1] == token:
        return f"conditions are joined by a single `{token}`"
    if token == ">" and before and before[-1] == "<":
        return "what is not equal is compared by `!=`"
    if token == "," and "`}`" in wanted:
        return "entries of a tensor add up: `{ i -> a } + { j -> b }`"
    for closing, opening in ((")", "("), ("}", "{")):
        if f"`{closing}`" in wanted and (last := _open(before, opening, closing)) is not None:
            return f"the `{opening}` of line {last.line}, column {last.column} is not closed"
    return "`let x = e` is followed by `in`" if "`in`" in wanted else None


def _open(tokens: list, opening: str, closing: str) -> Any:
    """The last bracket that nothing closes."""
    stack = []
    for token in tokens:
        if token == opening:
            stack.append(token)
        elif token == closing and stack:
            stack.pop()
    return stack[-1] if stack else None


class _Reader:
    """From lark's tree to nodes: a function for each rule, of the place and the parts."""

    def __init__(self, place: _Place):
        self.place = place

    def transform(self, tree: Any) -> t.Node:
        # Not by recursion: a long chain of `+` is a deep tree.
        results: list[Any] = []
        stack: list[tuple[Any, bool]] = [(tree, False)]
        while stack:
            part, is_open = stack.pop()
            if not hasattr(part, "children"):
                results.append(part)
            elif is_open:
                count = len(part.children)
                given = results[len(results) - count :]
                del results[len(results) - count :]
                results.append(self.made(part.data, self.place.span(part.meta), given))
            else:
                stack.append((part, True))
                stack += [(child, False) for child in reversed(part.children)]
        return results[0]

    def made(self, rule: str, span: Span, parts: list[Any]) -> Any:
        match rule, parts:
            case "names" | "items" | "keys", _:
                return parts
            case "name", [name]:
                return t.Var(str(name), span=span)
            case "integer", [digits]:
                digits = digits.lstrip("0") or "0"
                # Python converts no text of thousands of digits.
                if len(digits) > len(str(_MAX_INTEGER)) or int(digits) > _MAX_INTEGER:
                    shown = digits if len(digits) <= 40 else f"of {len(digits):,} digits"
                    raise ParseError(f"the integer {shown} has more than 64 bits", span=span)
                return t.Number(int(digits), span=span)
            case "real", [digits]:
                return t.Number(float(digits), span=span)
            case "true" | "false", _:
                return t.Number(rule == "true", span=span)
            case "one", _:
                return t.One(span=span)
            case "zero", _:
                return t.Zero(span=span)
            case "sum", [names, over, body]:
                return self.sum(names, over, body, span)
            case "let", [name, value, body]:
                return t.Let(self.bound(name), value, body, span=span)
            case "let_each", [names, values, body]:
                if len(names) != len(values):
                    raise ParseError(f"{len(names)} names are given {len(values)} values", span=span)
                for name, value in reversed(list(zip(names, values))):
                    body = t.Let(self.bound(name), value, body, span=span)
                return body
            case "if_then", [condition, body]:
                return t.If(condition, body, span=span)
            case "if_else", [condition, body, other]:
                negated = t.Apply("logical_not", (condition,), span=condition.span)
                return t.Add(t.If(condition, body, span=span), t.If(negated, other, span=span), span=span)
            case "add", [left, right]:
                return t.Add(left, right, span=span)
            case "multiply", [left, right]:
                return t.Multiply(left, right, span=span)
            case "greater" | "greater_equal", [left, right]:
                return t.Apply({"greater": "less"}.get(rule, "less_equal"), (right, left), span=span)
            case "negate", [t.Number(value) as number] if not isinstance(value, bool):
                return replace(number, value=-value, span=span)
            case "range", [start, stop]:
                return t.Range(start, stop, span=span)
            case "sub_array", [array, start, stop]:
                return t.SubArray(array, start, stop, span=span)
            case "unique", [key]:
                return _Unique(key)
            case "singleton", [keys, value]:
                for key in reversed(keys):
                    is_unique = isinstance(key, _Unique)
                    value = t.Singleton(key.key if is_unique else key, value, is_unique, span=span)
                return value
            case "lookup", [t.Var(name), items] if name in FUNCTIONS:
                return t.Apply(FUNCTIONS[name], tuple(items), span=span)
            case "lookup", [tensor, items]:
                for key in items:
                    tensor = t.Lookup(tensor, key, span=span)
                return tensor
        return t.Apply(rule, tuple(parts), span=span)

    def sum(self, names: list, over: t.Node, body: t.Node, span: Span) -> t.Node:
        if len(names) < 2:
            raise ParseError(
                f"a sum over one name, `{names[0]}`",
                span=self.place.span(names[0]),
                hint="it names keys and a value, `sum(<i, a> in A)`; `_` is for what is not needed",
            )
        used = [self.bound(name) for name in names if name != "_"]
        for place, name in enumerate(used):
            if name in used[:place]:
                raise BindingError(f"the sum binds `{name}` twice", span=span)
        *keys, last = (str(name) for name in names)
        fresh = FreshNames([*used, *(part.name for part in t.walk(body) if isinstance(part, t.Var))])
        rows = [fresh("row") for _ in keys[1:]]
        for place in reversed(range(len(keys))):
            inside = t.Var(rows[place - 1], span=over.span) if place else over
            value = rows[place] if place < len(rows) else last
            body = t.Sum(keys[place], value, inside, body, span=span)
        return body

    def bound(self, name: Any) -> str:
        if name in RESERVED and name != "_":
            raise BindingError(
                f"`{name}` is an operation of the language", span=self.place.span(name), hint="choose another name"
            )
        return str(name)


@dataclass(frozen=True)
class _Unique:
    """A key that is promised to be unique."""

    key: t.Node


class _Typing:
    """What operators mean, by the types of their operands."""

    def __init__(self) -> None:
        self.errors = Errors()

    def typed(self, node: t.Node, types: Types, *, is_called: bool = False) -> tuple[t.Node, Type | None]:
        """(the node with what its types say, its type); a node that is called has arguments behind it."""
        before = len(self.errors.found)
        parts: list[t.Node] = []
        found: list[Type | None] = []
        for child in node.children:
            inner = types
            with self.errors:
                inner = scope(node, found, types)
            if found and len(self.errors.found) > before and isinstance(node, (t.Sum, t.Let)):
                # What the names of the body are is not known.
                return node, None
            part, of = self.typed(child, inner, is_called=isinstance(node, t.Lookup) and not parts)
            parts.append(part)
            found.append(of)
        if len(self.errors.found) > before:
            return node, None
        made, fitting = _fitted(node.with_children(tuple(parts)), found)
        with self.errors:
            _check_names(made, types, is_called)
            return made, type_from(made, fitting, types)
        return made, None


def _check_names(node: t.Node, types: Types, is_called: bool) -> None:
    if not isinstance(node, t.Var) or (node.name in types and node.name != "_"):
        return
    if node.name == "_":
        raise BindingError("`_` has no value", span=node.span, hint="give it a name")
    if node.name in FUNCTIONS:
        raise BindingError(f"`{node.name}` is an operation", span=node.span, hint=f"write `{node.name}(a)`")
    known = f"known are {', '.join(types) or 'no names'}"
    other = node.name.lower()
    is_near = other in (*types, *FUNCTIONS, *KEYWORDS)
    hint = f"did you mean `{other}`?" if is_near else suggestion(node.name, (*types, *FUNCTIONS), known)
    if is_called and not suggestion(node.name, types, ""):
        # Those that have a sign are written by it.
        names = sorted(name for name, operation in FUNCTIONS.items() if not OPERATIONS[operation].symbol)
        hint += f"{'' if hint.endswith('?') else ';'} functions are {', '.join(names)}"
    raise BindingError(f"nothing is called `{node.name}`", span=node.span, hint=hint)


def _fitted(node: t.Node, found: list[Type | None]) -> tuple[t.Node, list[Type | None]]:
    """The node that is meant where parts have these types, and the types of its parts."""
    match node:
        case t.Add(left, right) | t.Multiply(left, right):
            if all(of == INT for of in found):
                operation = "add" if isinstance(node, t.Add) else "multiply"
                return t.Apply(operation, (left, right), span=node.span), found
            return _with_reals(node, found, (0, 1))
        case t.Sum() | t.Singleton() | t.If():
            return _with_reals(node, found, (1,))
        case t.Apply(operation, operands):
            row = OPERATIONS[operation]
            if row.rule == "float" or (REAL in found and row.rule in ("arithmetic", "comparison")):
                node, found = _with_reals(node, found, range(len(operands)))
            elif row.rule == "where" and REAL in found[1:]:
                node, found = _with_reals(node, found, (1, 2))
            if any(of is not None and not of.is_scalar for of in found):
                return _of_tensors(node, operation, found)
    return node, found


def _with_reals(node: t.Node, found: list[Type | None], places: Iterable[int]) -> tuple[t.Node, list[Type | None]]:
    """Integers that are written out become reals at these places."""
    parts, types = list(node.children), list(found)
    for place in places:
        if place < len(parts) and types[place] == INT and _is_written_out(parts[place]):
            parts[place], types[place] = _as_real(parts[place]), REAL
    return node.with_children(tuple(parts)), types


def _is_written_out(node: t.Node) -> bool:
    return isinstance(node, t.Number) or (isinstance(node, t.Apply) and all(map(_is_written_out, node.operands)))


def _as_real(node: t.Node) -> t.Node:
    if isinstance(node, t.Number):
        return replace(node, value=float(node.value))
    assert isinstance(node, t.Apply)
    operands = tuple(_as_real(operand) for operand in node.operands)
    if node.operation in ("add", "multiply"):
        return (t.Add if node.operation == "add" else t.Multiply)(*operands, span=node.span)
    return replace(node, operands=operands)


def _of_tensors(node: t.Node, operation: str, found: list[Type | None]) -> tuple[t.Node, list[Type | None]]:
    """Differences, negatives and quotients of tensors, by the product and the sum of the reals."""
    minus, span = t.Number(-1.0, span=node.span), node.span
    match operation, node.children, found:
        case "negate", [tensor], [of]:
            return t.Multiply(minus, tensor, span=span), [REAL, of]
        case "subtract", [left, right], [first, second]:
            return t.Add(left, t.Multiply(minus, right, span=right.span), span=span), [first, second]
        case "divide", [left, right], [first, second] if second in (REAL, None):
            inverse = t.Apply("divide", (t.Number(1.0, span=span), right), span=right.span)
            return t.Multiply(left, inverse, span=span), [first, REAL]
    return node, found
