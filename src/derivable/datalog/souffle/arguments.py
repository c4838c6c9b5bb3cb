"""The parser of what stands in atoms, and of the formulas of bodies, which aggregates have too."""

from __future__ import annotations

from derivable.core.diagnostics import ParseError
from derivable.datalog.souffle import nodes as n
from derivable.datalog.souffle.lexer import number_of, text_of
from derivable.datalog.souffle.reader import Reader

AGGREGATES = frozenset({"count", "sum", "min", "max", "mean"})
FUNCTORS = frozenset(
    {"cat", "ord", "range", "strlen", "substr", "to_float", "to_number", "to_string", "to_unsigned", "min", "max"}
)
_INFIX = {
    **{operator: level for level, operator in enumerate(("lor", "lxor", "land", "bor", "bxor", "band"), 1)},
    **dict.fromkeys(("bshl", "bshr", "bshru"), 7),
    # FlowLog writes `cat` between its operands too.
    **dict.fromkeys(("+", "-", "cat"), 8),
    **dict.fromkeys(("*", "/", "%"), 9),
    "^": 11,
}
_UNARY = 10
_COMPARISONS = ("=", "!=", "<", "<=", ">", ">=")
KEYWORDS = frozenset({*_INFIX, *AGGREGATES, *FUNCTORS, "bnot", "lnot", "match", "contains", "as", "nil", "true"})
KEYWORDS |= {"false", "autoinc", "_", "choice-domain"}
# Nested parentheses and unary signs beyond this are refused, before Python's limit is met.
_DEPTH = 150


class Arguments(Reader):
    depth = 0

    # Formulas

    def formula(self) -> n.Formula:
        """Conjunctions with `;` between them."""
        start = self.token.span
        parts = self.separated(self.conjunction, ";")
        return parts[0] if len(parts) == 1 else n.Or(tuple(parts), span=self.since(start))

    def conjunction(self) -> n.Formula:
        start = self.token.span
        parts = self.separated(self.term)
        return parts[0] if len(parts) == 1 else n.And(tuple(parts), span=self.since(start))

    def term(self) -> n.Formula:
        start = self.token.span
        self.deeper()
        try:
            if self.takes("!"):
                return n.Not(self.term(), span=self.since(start))
            if self.is_sign("("):
                return self.enclosed()
            if self.is_word("true") or self.is_word("false"):
                return n.Truth(self.take().text == "true", span=start)
            if (self.is_word("match") or self.is_word("contains")) and self.is_sign("(", 1):
                operator = self.take().text
                self.take()
                left = self.argument()
                self.expect(",")
                right = self.argument()
                self.expect(")")
                return n.Constraint(operator, left, right, span=self.since(start))
            if self.is_atom():
                return self.atom()
            return self.constraint()
        finally:
            self.depth -= 1

    def is_atom(self) -> bool:
        """Whether `p(`, `a.b(` is here."""
        if self.token.kind != "name" or self.token.text in KEYWORDS:
            return False
        ahead = 1
        while self.is_sign(".", ahead) and self.at(ahead + 1).kind == "name":
            ahead += 2
        return self.is_sign("(", ahead)

    def enclosed(self) -> n.Formula:
        """`(p(x); q(x))` or `(x + 1) < y`."""
        position, depth = self.position, self.depth
        self.take()
        try:
            formula = self.formula()
            self.expect(")")
            if not self.is_infix() and self.token.text not in _COMPARISONS:
                return formula
        except ParseError as error:
            reached = self.position
            self.position, self.depth = position, depth
            try:
                return self.constraint()
            except ParseError:
                if self.position > reached:
                    raise
            raise error from None
        self.position = position
        return self.constraint()

    def atom(self) -> n.Atom:
        start = self.token.span
        name, _ = self.qualified("a relation", KEYWORDS)
        self.expect("(", f"an atom has parentheses: `{name}()`")
        return n.Atom(name, self.listed(")"), span=self.since(start))

    def constraint(self) -> n.Constraint:
        start = self.token.span
        left = self.argument()
        if self.token.kind == "sign" and self.token.text in _COMPARISONS:
            operator = self.take().text
            if operator == "=" and self.is_sign("="):
                self.error("`==` is no comparison of Soufflé", hint="write `x = y`")
            return n.Constraint(operator, left, self.argument(), span=self.since(start))
        if self.is_sign("!") or self.is_sign("<:"):
            self.unexpected("a comparison", "the comparisons are = != < <= > >=")
        return self.unexpected("a comparison", "an atom is `p(x)`; a condition compares: `x < y`, `x != 3`")

    # Arguments

    def listed(self, closing: str) -> tuple[n.Argument, ...]:
        """Arguments up to a closing sign, which is read."""
        if self.takes(closing):
            return ()
        arguments = self.separated(self.argument)
        if not self.takes(closing):
            self.unexpected(f"`,` or `{closing}`")
        return tuple(arguments)

    def deeper(self) -> None:
        self.depth += 1
        if self.depth > _DEPTH:
            self.error("this is nested too deep", hint="name a part with a variable: `y = x + 1`")

    def is_infix(self) -> bool:
        return self.token.text in _INFIX and self.token.kind in ("sign", "name")

    def argument(self, least: int = 0) -> n.Argument:
        """An argument whose operators bind at least so tightly."""
        self.deeper()
        start = self.token.span
        argument = self.operand()
        while self.is_infix() and _INFIX[self.token.text] >= least:
            operator = self.take().text
            level = _INFIX[operator]
            # A power goes from the right, all others from the left.
            right = self.argument(level if operator == "^" else level + 1)
            argument = n.Functor(operator, (argument, right), span=self.since(start))
        self.depth -= 1
        return argument

    def operand(self) -> n.Argument:
        start, token = self.token.span, self.token
        if token.kind == "text":
            self.take()
            return n.Literal(text_of(token, self.file), "symbol", span=start)
        if token.kind == "float":
            self.take()
            return n.Literal(float(token.text), "float", span=start)
        if token.kind == "number":
            self.take()
            return n.Literal(number_of(token.text), "unsigned" if token.text[-1] == "u" else "integer", span=start)
        if token.kind == "address":
            return self.address()
        if token.kind == "sign":
            return self.signed()
        if token.kind == "name":
            return self.named()
        return self.unexpected("an argument")

    def address(self) -> n.Argument:
        """`127.0.0.1`, a number of 32 bits."""
        token = self.take()
        parts = [int(part) for part in token.text.split(".")]
        if max(parts) > 255:
            self.error("a part of this address is above 255", token.span)
        value = int.from_bytes(bytes(parts), "big", signed=True)
        return n.Literal(value, "integer", span=token.span)

    def signed(self) -> n.Argument:
        start = self.token.span
        if self.takes("-"):
            operand = self.argument(_UNARY)
            if isinstance(operand, n.Literal) and operand.kind in ("integer", "float") and operand.value >= 0:
                return n.Literal(-operand.value, operand.kind, span=self.since(start))
            return n.Functor("neg", (operand,), span=self.since(start))
        if self.takes("("):
            inner = self.argument()
            self.expect(")")
            return inner
        if self.takes("["):
            return n.Record(self.listed("]"), span=self.since(start))
        if self.takes("$"):
            if self.token.kind != "name":
                return n.Counter(span=start)
            name, _ = self.qualified("a branch")
            arguments = self.listed(")") if self.takes("(") else ()
            return n.Branch(name, arguments, span=self.since(start))
        if self.takes("@"):
            if self.is_sign("@"):
                self.error("aggregates of one's own are not read", start, "write the aggregate of the built-in ones")
            name = self.name("a functor").text
            self.expect("(")
            return n.UserFunctor(name, self.listed(")"), span=self.since(start))
        if self.is_sign("*") or self.is_sign("/"):
            self.unexpected("an argument", "an operator stands between two arguments")
        return self.unexpected("an argument")

    def named(self) -> n.Argument:
        start, text = self.token.span, self.token.text
        if text == "_":
            self.take()
            return n.Unnamed(span=start)
        if text == "nil":
            self.take()
            return n.Nil(span=start)
        if text in ("bnot", "lnot"):
            self.take()
            return n.Functor(text, (self.argument(_UNARY),), span=self.since(start))
        if text == "autoinc":
            self.take()
            self.expect("(")
            self.expect(")")
            return n.Counter(span=self.since(start))
        if text == "as":
            self.take()
            self.expect("(")
            operand = self.argument()
            self.expect(",")
            type_name = self.type_name()
            self.expect(")")
            return n.As(operand, type_name, span=self.since(start))
        if text == "__ITERATION__":
            self.error("the number of a round of evaluation depends on how it is evaluated", hint="count in a column")
        if text in AGGREGATES and not self.is_call():
            return self.aggregate()
        if text in FUNCTORS:
            self.take()
            self.expect("(")
            return n.Functor(text, self.listed(")"), span=self.since(start))
        if text in KEYWORDS:
            self.unexpected("an argument")
        self.take()
        if self.is_sign("(") and not self.token.is_spaced:
            hint = f"a functor of your own is `@{text}(...)`, and a branch of a type `${text}(...)`"
            self.error(f"`{text}(...)` stands where an argument is expected", self.since(start), hint)
        return n.Variable(text, span=start)

    def is_call(self) -> bool:
        """Whether `max(a, b)` is here, the functor; `max (a) : p(a)` is the aggregate."""
        if not self.is_sign("(", 1) or self.token.text not in FUNCTORS:
            return False
        depth = 0
        for offset in range(1, len(self.tokens) - self.position):
            if self.is_sign("(", offset) or self.is_sign("[", offset):
                depth += 1
            elif self.is_sign(")", offset) or self.is_sign("]", offset):
                depth -= 1
                if not depth:
                    return False
            elif depth == 1 and self.is_sign(",", offset):
                return True
        return False

    def aggregate(self) -> n.Argument:
        start, operator = self.token.span, self.take().text
        target = None if self.is_sign(":") else self.argument()
        if operator == "count" and target is not None:
            self.error("`count` has nothing before the colon", target.span, "write `count : { p(x) }`")
        if operator != "count" and target is None:
            self.error(f"`{operator}` needs what it is of before the colon", hint=f"write `{operator} x : {{ p(x) }}`")
        if target is not None and operator in ("min", "max") and (self.is_sign(",") or self.is_sign(")")):
            # `p(x, min(y)) :- ...` of FlowLog.
            return n.Functor(operator, (target,), span=self.since(start))
        if not self.takes(":"):
            self.unexpected("`:`", f"an aggregate is `{operator} {'' if operator == 'count' else 'x '}: {{ p(x) }}`")
        if self.takes("{"):
            body = self.formula()
            self.expect("}")
        else:
            body = self.atom()
        return n.Aggregate(operator, target, body, span=self.since(start))
