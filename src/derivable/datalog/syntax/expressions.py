"""Parsing formulas and expressions: the ladder of operators, calls, atoms and aggregates."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from derivable.core.numbers import vanishes
from derivable.datalog.aggregates import AGGREGATES
from derivable.datalog.syntax import nodes as s
from derivable.datalog.syntax.escapes import unescape
from derivable.datalog.syntax.lexer import ITEM_KEYWORDS, LITERALS, Token
from derivable.datalog.syntax.reader import MAX_DEPTH, Reader
from derivable.datalog.syntax.text import expression_text
from derivable.datalog.values.datetimes import Duration, parse_datetime
from derivable.datalog.values.terms import Entity
from derivable.datalog.values.values import TYPE_ALIASES, TYPES

# How long the opening quotes are.
_QUOTES = {"text": 1, "longtext": 3, "symbol": 2, "char": 1}
_FIELDS = ("integer", "float", "text", "longtext", "symbol", "char")
_COMPARISONS = ("==", "!=", "<", "<=", ">", ">=")
_LADDER = (("&&", "||", "^"), (*_COMPARISONS, "in", "is"), ("+", "-"), ("*", "/", "%"))
_LEVELS = {operator: level for level, operators in enumerate(_LADDER) for operator in operators}
_COMPARISON = _LEVELS["=="]


# More cannot be of any type, and Python refuses to read thousands.
MOST_DIGITS = 1000


class Expressions(Reader):
    """Formulas and expressions are one ladder, as in Scallop: conjunctions, disjunctions, negations and assigned
    aggregates are its upper steps."""

    def body(self, where: str) -> Any:
        start = self.token
        if start.kind == "end" or self.at(*ITEM_KEYWORDS):
            self.fail(f"expected a formula {where}, found {start.shown()}")
        parts = [self.formula()]
        while self.accept(","):
            parts.append(self.formula())
        return parts[0] if len(parts) == 1 else s.Conjunction(tuple(parts), span=self.since(start))

    def formula(self) -> Any:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            self.fail("this is nested too deep", "split the rule with an auxiliary relation")
        start = self.token
        left = self.disjunction()
        if self.accept("implies", "=>"):
            left = s.Implies(left, self.disjunction(), span=self.since(start))
            if self.at("implies", "=>"):
                self.fail("`implies` cannot be chained", "write `(a implies b) implies c` or `a implies (b implies c)`")
        self.depth -= 1
        return left

    def disjunction(self) -> Any:
        start = self.token
        parts = [self.conjunction()]
        while self.accept("or", "\\/"):
            parts.append(self.conjunction())
        return parts[0] if len(parts) == 1 else s.Disjunction(tuple(parts), span=self.since(start))

    def conjunction(self, assignments: bool = True) -> Any:
        start = self.token
        parts = [self.negation(assignments)]
        while self.accept("and", "/\\"):
            parts.append(self.negation(assignments))
        return parts[0] if len(parts) == 1 else s.Conjunction(tuple(parts), span=self.since(start))

    def negation(self, assignments: bool = True) -> Any:
        start = self.token
        if self.accept("not", "~"):
            return s.Not(self.negation(assignments), span=self.since(start))
        left = self.conditional()
        if assignments and self.at(":=", "="):
            sign = self.advance()
            right = self.conditional()
            if not isinstance(right, s.Aggregate):
                self.fail(
                    f"`{sign.text}` in a body assigns the result of an aggregate",
                    "write `==` to compare, or `n := count(x: p(x))` to aggregate",
                    sign.span,
                )
            outputs = left.items if isinstance(left, s.Tuple) else (left,)
            for output in outputs:
                if not isinstance(output, (s.Variable, s.Wildcard, s.Constant)):
                    self.fail("the result of an aggregate is assigned to variables", span=output.span)
            return replace(right, outputs=outputs, span=self.since(start))
        return left

    def conditional(self) -> Any:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            self.fail("this is nested too deep", "split the rule with an auxiliary relation")
        start = self.token
        if self.accept("if"):
            condition = self.conditional()
            self.expect("then", "in `if ... then ... else ...`")
            then = self.conditional()
            self.expect("else", "in `if ... then ... else ...`")
            node: Any = s.Conditional(condition, then, self.conditional(), span=self.since(start))
        else:
            node = self.binary(0)
            if self.accept("?"):
                then = self.conditional()
                self.expect(":", "in `condition ? a : b`")
                node = s.Conditional(node, then, self.conditional(), span=self.since(start))
        self.depth -= 1
        return node

    def argument(self) -> Any:
        """An expression between commas; most are one variable."""
        token = self.tokens[self.position]
        if token.kind == "name" and self.tokens[self.position + 1].text in (",", ")"):
            self.position += 1
            return s.Variable(token.text, span=token.span)
        return self.conditional()

    def binary(self, level: int) -> Any:
        """Operators of this level and tighter ones, from the left; comparisons stand alone."""
        start = self.tokens[self.position]
        left = self.unary()
        while True:
            operator = self.tokens[self.position].text
            precedence = _LEVELS.get(operator, -1)
            if precedence < level:
                return left
            if operator == "in":
                left = self.in_range(start, left)
                continue
            if operator == "is":
                self.fail("`is` stands behind `case`", f"write `case {expression_text(left)} is ...`")
            self.position += 1
            left = s.Binary(operator, left, self.binary(precedence + 1), span=self.since(start))
            if precedence == _COMPARISON and self.token.text in _COMPARISONS:
                self.fail("comparisons cannot be chained", "write `a < b and b < c`")

    def in_range(self, start: Token, variable: Any) -> s.InRange:
        self.advance()
        low = self.binary(2)
        sign = self.accept("..", "..=")
        if sign is None:
            self.fail(f"expected `..` or `..=` in a range, found {self.token.shown()}", "write `x in 0..n`")
        return s.InRange(variable, low, self.binary(2), sign.text == "..=", span=self.since(start))

    def unary(self) -> Any:
        start = self.token
        if start.text in ("-", "+", "!") and not self.is_negative_literal():
            self.depth += 1
            if self.depth > MAX_DEPTH:
                self.fail("this is nested too deep")
            operator = self.advance().text
            operand = self.unary()
            self.depth -= 1
            if operator == "-" and isinstance(operand, s.Constant) and operand.kind in ("integer", "float"):
                return s.Constant(-operand.value, operand.kind, span=self.since(start))
            return operand if operator == "+" else s.Unary(operator, operand, span=self.since(start))
        if self.accept("-"):
            # The sign is part of the literal: `-1 as u8` casts -1.
            node = self.primary()
            node = s.Constant(-node.value, node.kind, span=self.since(start))
        else:
            node = self.primary()
        while self.accept("as"):
            node = s.Cast(node, self.type_name(), span=self.since(start))
        return node

    def is_negative_literal(self) -> bool:
        following = self.peek()
        return self.token.text == "-" and following.kind in ("integer", "float") and following.start == self.token.end

    def primary(self) -> Any:
        start = self.tokens[self.position]
        if start.kind == "name":
            # The token at the end follows every name.
            following = self.tokens[self.position + 1].text
            if (
                following in ("(", "[")
                or (following == "<" and self.has_parameters())
                or (following == "!" and (self.is_discrete() or self.has_parameters()))
            ):
                return self.atom_or_aggregate(start)
            self.position += 1
            return s.Variable(start.text, span=start.span)
        constant = self.constant()
        if constant is not None:
            return constant
        if start.kind == "wildcard":
            self.advance()
            return s.Wildcard(span=start.span)
        if self.accept("$"):
            name = self.name("a function name after `$`").text
            return s.Call(name, self.call_arguments(name), span=self.since(start))
        if self.accept("new"):
            name = self.name("a constructor after `new`").text
            return s.New(name, self.call_arguments(name), span=self.since(start))
        if self.accept("case"):
            return self.case(start)
        if self.accept("("):
            return self.parenthesised(start)
        if start.text == "if":
            return self.conditional()
        return self.fail(f"expected an expression or an atom, found {start.shown()}")

    def case(self, start: Token) -> s.Case:
        subject = self.binary(2)
        self.expect("is", "in `case ... is ...`", "write `case e is Node(x, _)`")
        pattern = self.primary()
        if not isinstance(pattern, s.Atom):
            hint = f"a constructor has parentheses: `{expression_text(pattern)}()`"
            self.fail(
                "a pattern is a constructor with its fields, such as `Node(x, _)`",
                hint if isinstance(pattern, s.Variable) else None,
                pattern.span,
            )
        return s.Case(subject, pattern, span=self.since(start))

    def parenthesised(self, start: Token) -> Any:
        if self.accept(")"):
            return s.Tuple((), span=self.since(start))
        items = [self.formula()]
        is_tuple = False
        while self.accept(","):
            is_tuple = True
            if self.at(")"):
                break
            items.append(self.formula())
        self.expect(")", "to close the parenthesis")
        return s.Tuple(tuple(items), span=self.since(start)) if is_tuple else items[0]

    def constant(self) -> s.Constant | None:
        token = self.token
        text = token.text
        match token.kind:
            case "integer":
                if len(text) > MOST_DIGITS:
                    self.fail(f"this integer has {len(text)} digits", "integers have at most 64 bits")
                value, kind = int(text), "integer"
            case "float":
                value, kind = float(text), "float"
                if vanishes(text, value):
                    self.fail(f"{text} is too small for 64 bits, and would be zero", "write 0.0 for zero")
            case "moment":
                value, kind = self.moment(text[2:-1], text[0] == "t"), "datetime" if text[0] == "t" else "duration"
            case "keyword" if text in ("true", "false"):
                value, kind = text == "true", "bool"
            case kind if kind in _QUOTES:
                value, kind = self.unescaped(_QUOTES[kind]), "text" if kind == "longtext" else kind
            case _:
                return None
        self.advance()
        return s.Constant(value, kind, span=token.span)

    def moment(self, body: str, is_date: bool) -> Any:
        """The date or duration that the body of a literal says."""
        try:
            return parse_datetime(body) if is_date else Duration.parse(body).plain()
        except ValueError as error:
            hint = 'as in `t"2024-01-31T12:00:00Z"` or `t"2024-01-31"`' if is_date else 'as in `d"1y5d"` or `d"1h 30m"`'
            return self.fail(str(error), hint)

    def unescaped(self, quote: int) -> str:
        """The text of the literal here, whose opening quote ends after `quote` characters."""
        token = self.token
        try:
            return unescape(token.text[quote : -3 if token.kind == "longtext" else -1])
        except ValueError as error:
            start, escape = error.args
            span = self.line_starts.span(token.start + quote + start, token.start + quote + start + 2)
            hint = "known are \\t, \\r, \\n, \\0, \\\", \\' and \\\\; for a backslash itself write `\\\\`"
            self.fail(f"unknown escape `{escape}`", hint, span)

    def call_arguments(self, name: str) -> tuple[Any, ...]:
        self.expect("(", f"after `{name}`")
        return tuple(self.listed(self.argument, ")", f"to close the arguments of `{name}`"))

    def whole_term(self, start: Token) -> s.Constant | None:
        """The term of literals that begins here, however deep, as one node; None for anything else."""
        position = self.position
        # Constructors whose parenthesis is open, with their fields so far.
        waiting: list[tuple[str, list[Any]]] = []
        while True:
            token = self.token
            if token.kind == "name" and self.peek().text == "(":
                self.advance()
                self.advance()
                waiting.append((token.text, []))
                if not self.at(")"):
                    continue
            elif waiting and (token.kind in _FIELDS or token.text in ("true", "false", "-")):
                waiting[-1][1].append(self.literal())
            else:
                break
            while waiting and self.accept(")"):
                name, fields = waiting.pop()
                term = Entity(name, *fields)
                if not waiting:
                    return s.Constant(term, "term", span=self.since(start))
                waiting[-1][1].append(term)
            if not self.accept(","):
                break
        self.position = position
        return None

    def atom_or_aggregate(self, start: Token) -> Any:
        if (self.depth > MAX_DEPTH // 2 or self.has_terms) and (term := self.whole_term(start)) is not None:
            return term
        has_parameters = self.tokens[self.position + 1].text in ("<", "!") and self.has_parameters()
        name, parameters = self.advance().text, ()
        discrete = bool(self.accept("!"))
        if has_parameters:
            parameters = self.parameters()
            discrete = bool(self.accept("!")) or discrete
        arguments: tuple[str, ...] = ()
        if self.accept("["):
            name_of = "a variable in the brackets of the aggregate"
            if not self.at("]"):
                arguments = tuple(self.separated(lambda: self.name(name_of).text, ("]",)))
            self.expect("]", "after the argument variables")
        self.expect("(", f"after `{name}`")
        # No argument of an atom begins with a negation or an atom that is no term: an aggregate without variables.
        is_atom = self.token.kind == "name" and self.peek().text == "(" and self.token.text not in self.constructors
        is_quantified = name in ("exists", "forall") and self.at("(") and not self.at_typed_variable()
        if (is_atom or is_quantified or self.at("not", "~", "case")) and name in AGGREGATES:
            return self.aggregate(start, name, parameters, discrete, arguments, (), ())
        items, types = [], []
        while not self.at(")", ":"):
            items.append(self.typed_variable(types) if self.at_typed_variable() else self.argument())
            if not self.accept(","):
                break
        if types and not self.at(":"):
            self.fail(f"expected `:` after the variables of `{name}`, found {self.token.shown()}")
        if self.at(":"):
            for node in items:
                if not isinstance(node, s.Variable):
                    self.fail("only variables can stand before the `:` of an aggregate", span=node.span)
            names = tuple(node.name for node in items)
            self.advance()
            return self.aggregate(start, name, parameters, discrete, arguments, names, tuple(types))
        if discrete or arguments:
            self.fail(f"expected `:` in the aggregate `{name}`, found {self.token.shown()}", "write `count(x: p(x))`")
        self.expect(")", f"to close the arguments of `{name}`")
        for word, value in parameters:
            if word is None or value is not True:
                self.fail(
                    f"the parameters of `{name}` are types, as in `range<usize>(0, n, i)`",
                    f"an aggregate is written `{name}<...>(x: p(x))`",
                    self.since(start),
                )
        return s.Atom(name, tuple(items), tuple(word for word, _ in parameters if word), span=self.since(start))

    # Parameters, as in `top<3>`, `sort<desc>`, `range<usize>`

    def is_discrete(self) -> bool:
        """Whether what follows a name is the `!` of a discrete aggregate."""
        return self.peek().text == "!" and self.peek(2).text in ("(", "[", "<")

    def has_parameters(self) -> bool:
        """Whether the name here is followed by parameters, and not compared: `a<b, c>(d)` has them, `a < b` has not."""
        name, after = self.token, 2 if self.peek().text == "!" else 1
        opening = self.peek(after)
        if opening.text != "<":
            return False
        words, offset = [], after + 1
        while True:
            if self.peek(offset).kind == "name" and self.peek(offset + 1).text == "=":
                offset += 2
            if self.peek(offset).text == "-":
                offset += 1
            value = self.peek(offset)
            if value.kind not in ("name", *LITERALS) and value.text not in ("true", "false", "&str"):
                return False
            words.append(value.text)
            offset += 1
            if self.peek(offset).text != ",":
                break
            offset += 1
        following = self.peek(offset + 1).text
        if self.peek(offset).text != ">" or following not in ("(", "[", "!"):
            return False
        if following != "(" or (name.text in AGGREGATES and opening.start == self.peek(after - 1).end):
            return True
        # A type is no variable, and what has `x:` behind its parenthesis is an aggregate, known or not.
        is_binding = self.peek(offset + 2).kind == "name" and self.peek(offset + 3).text in (":", ",")
        return all(word in TYPES or word in TYPE_ALIASES for word in words) or is_binding

    def parameters(self) -> s.Parameters:
        self.expect("<", "before the parameters")
        parameters = self.separated(self.parameter)
        self.expect(">", "after the parameters")
        return tuple(parameters)

    def parameter(self) -> tuple[str | None, Any]:
        if self.token.kind == "name" or self.at("&str"):
            word = self.advance().text
            return word, self.literal() if self.accept("=") else True
        return None, self.literal()

    def literal(self) -> Any:
        """The Python value of a constant, with its sign."""
        start = self.token
        sign = self.accept("-", "+")
        node = self.constant()
        if node is None or (sign and node.kind not in ("integer", "float")):
            self.fail(f"expected a constant, found {self.token.shown()}", span=start.span)
        return -node.value if sign and sign.text == "-" else node.value

    def at_typed_variable(self) -> bool:
        return self.at("(") and self.peek().kind == "name" and self.peek(2).text == ":"

    def typed_variable(self, types: list[tuple[str, str]]) -> s.Variable:
        """`(x: i32)`, whose type is added to `types`."""
        self.expect("(", "before a typed variable")
        token = self.name("a variable")
        self.expect(":", "before the type of the variable")
        types.append((token.text, self.type_name()))
        self.expect(")", "after a typed variable")
        return s.Variable(token.text, span=token.span)

    def aggregate(self, start: Token, name, parameters, discrete, arguments, bindings, types) -> s.Aggregate:
        aggregate = s.Aggregate(name, bindings, self.body("in the aggregate"), None, arguments, parameters, discrete)
        if self.accept("where"):
            types = [*types]
            group = tuple(self.separated(lambda: self.group_variable(types)))
            self.expect(":", "after the group variables")
            aggregate = replace(aggregate, group=group, group_body=self.body("after `where`"))
        self.expect(")", f"to close the aggregate `{name}`")
        return replace(aggregate, types=tuple(types), span=self.since(start))

    def group_variable(self, types: list[tuple[str, str]]) -> str:
        if self.at_typed_variable():
            return self.typed_variable(types).name
        return self.name("a group variable after `where`").text

    def type_name(self) -> str:
        return (self.accept("&str") or self.name("a type")).text
