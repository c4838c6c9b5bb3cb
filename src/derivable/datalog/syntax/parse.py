"""The parser: program text to syntax.

Written by hand (recursive descent): building LALR tables for this grammar with Lark took 0.66 s a process,
and a table parser cannot say what it was in the middle of when it failed.
"""

from __future__ import annotations

from typing import Any, NoReturn

from derivable.core.diagnostics import ParseError, Span, UnsupportedError
from derivable.datalog.aggregates import AGGREGATES
from derivable.datalog.syntax import nodes as s
from derivable.datalog.syntax.lexer import Token, tokens, unescape

ITEM_KEYWORDS = ("rel", "relation", "type", "const", "query", "import", "extern")
_COMPARISONS = ("==", "!=", "<", "<=", ">", ">=")
_MAX_DEPTH = 80


def parse(text: str, source: str = "<program>") -> s.Syntax:
    """Parse a program. Raises ParseError with line, column, caret and hint."""
    parser = _Parser(text, source)
    try:
        return s.Syntax(tuple(parser.items()), text, source)
    except RecursionError:
        return parser.fail("this is nested too deep", "split the rule with an auxiliary relation")


class _Parser:
    def __init__(self, text: str, source: str):
        self.text, self.source = text, source
        self.tokens = tokens(text, source)
        self.position = 0
        self.depth = 0

    # Tokens

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

    # Items

    def items(self) -> list[s.Item]:
        found: list[s.Item] = []
        while self.token.kind != "end":
            found += self.item()
        return found

    def item(self) -> list[s.Item]:
        attributes = []
        while self.at("@"):
            attributes.append(self.attribute())
        start = self.token
        if start.kind != "keyword" or start.text not in ITEM_KEYWORDS:
            hint = "items begin with `rel`, `type`, `const`, `query` or `import`"
            if self.position and start.kind in ("name", "special"):
                hint = f"join it with `,`, `and` or `or`; {hint}"
            self.fail(f"expected an item, found {start.shown()}", hint)
        self.advance()
        if start.text == "import":
            if self.token.kind != "text":
                self.fail(f"expected a file name in quotes after `import`, found {self.token.shown()}")
            path = unescape(self.advance().text[1:-1])
            return [s.Import(path, span=self.since(start))]
        if start.text == "extern":
            if not self.accept("type"):
                self.fail(f"expected `type` after `extern`, found {self.token.shown()}")
            return self.separated(lambda: self.type_definition(tuple(attributes)))
        if start.text == "type":
            return self.separated(lambda: self.type_definition(tuple(attributes)))
        if start.text == "const":
            return self.separated(self.constant_definition)
        if start.text == "query":
            return self.separated(lambda: self.query(tuple(attributes)))
        while self.at("@"):
            attributes.append(self.attribute())
        return [self.relation_item(start, tuple(attributes))]

    def separated(self, parse_one) -> list[Any]:
        found = [parse_one()]
        while self.accept(","):
            found.append(parse_one())
        return found

    def attribute(self) -> s.Attribute:
        start = self.advance()
        name = self.name("an attribute name after `@`").text
        values: list[Any] = []
        if self.accept("("):
            while not self.at(")"):
                if self.token.kind == "name" and self.peek().text == "=":
                    key = self.advance().text
                    self.advance()
                    values.append((key, self.attribute_value()))
                else:
                    values.append(self.attribute_value())
                if not self.accept(","):
                    break
            self.expect(")", "after the arguments of the attribute")
        return s.Attribute(name, tuple(values), span=self.since(start))

    def attribute_value(self) -> Any:
        if self.accept("["):
            values = []
            while not self.at("]"):
                values.append(self.attribute_value())
                if not self.accept(","):
                    break
            self.expect("]", "at the end of the list")
            return tuple(values)
        negative = bool(self.accept("-"))
        node = self.constant()
        if node is None:
            self.fail(f"expected a constant, found {self.token.shown()}")
        return -node.value if negative else node.value

    def type_definition(self, attributes: tuple[s.Attribute, ...]) -> s.Item:
        start = self.token
        if self.at("$"):
            self.unsupported("foreign functions cannot be declared yet", start.span)
        name = self.name("a name after `type`").text
        if self.accept("<:"):
            return s.AliasType(name, self.type_name(), True, span=self.since(start))
        if self.accept("="):
            leading = self.accept("|")
            if (not leading and self.peek().text not in ("|", "=", "(")) or self.token.text == "&str":
                return s.AliasType(name, self.type_name(), span=self.since(start))
            members = [self.enum_member(start)]
            while self.accept("|"):
                members.append(self.enum_member(start))
            return s.EnumType(name, tuple(members), span=self.since(start))
        self.expect("(", f"after `type {name}`", "a relation type is written `type edge(usize, usize)`")
        columns = []
        while not self.at(")"):
            columns.append(self.column())
            if not self.accept(","):
                break
        self.expect(")", "after the columns of the relation")
        return s.RelationType(name, tuple(columns), attributes, span=self.since(start))

    def enum_member(self, start: Token) -> tuple[str, int | None]:
        name = self.name("the name of an enum member").text
        if self.at("("):
            self.unsupported("algebraic data types are not supported yet", self.since(start))
        if not self.accept("="):
            return name, None
        if self.token.kind != "integer":
            self.fail(f"expected an integer as the value of `{name}`, found {self.token.shown()}")
        return name, int(self.advance().text)

    def column(self) -> s.Column:
        start = self.token
        adornment = self.advance().text if self.at("bound", "free") else None
        if self.token.kind == "name" and self.peek().text == ":":
            name = self.advance().text
            self.advance()
            return s.Column(self.type_name(), name, adornment, span=self.since(start))
        return s.Column(self.type_name(), None, adornment, span=self.since(start))

    def type_name(self) -> str:
        if self.at("&str"):
            return self.advance().text
        return self.name("a type").text

    def constant_definition(self) -> s.ConstantItem:
        start = self.token
        name = self.name("a name after `const`").text
        type_name = self.type_name() if self.accept(":") else None
        self.expect("=", f"after `const {name}`")
        return s.ConstantItem(name, type_name, self.conditional(), span=self.since(start))

    def query(self, attributes: tuple[s.Attribute, ...]) -> s.Query:
        start = self.token
        name = self.name("a relation after `query`").text
        arguments = self.call_arguments(name) if self.at("(") else None
        return s.Query(name, arguments, attributes, span=self.since(start))

    # Relation items

    def relation_item(self, start: Token, attributes: tuple[s.Attribute, ...]) -> s.Item:
        if self.token.kind == "name" and self.peek().text in ("=", ":=", ":-") and self.peek(2).text == "{":
            name = self.advance().text
            self.advance()
            facts, exclusive = self.fact_set()
            return s.FactSet(name, facts, exclusive, span=self.since(start))
        if self.token.kind == "name" and self.peek().text in ("=", ":=", ":-"):
            name = self.advance().text
            self.advance()
            value = self.formula()
            if not isinstance(value, s.Aggregate) or value.outputs is not None:
                self.fail(
                    f"`rel {name} =` needs a fact set or an aggregate",
                    f"write `rel {name} = {{...}}`, or give the head arguments: `rel {name}(x) = ...`",
                    value.span,
                )
            return s.ReduceRule(name, value, span=self.since(start))
        tag = None
        heads, exclusive = self.heads()
        if self.accept("::"):
            if len(heads) != 1:
                self.fail("expected one tag before `::`")
            tag = heads[0]
            heads, exclusive = self.heads()
        for head in heads:
            if not isinstance(head, s.Atom):
                self.fail(
                    "the head of a rule must be an atom such as `path(x, y)`",
                    "a rule is written `rel head(x) = body(x)`",
                    head.span,
                )
        body = None
        if self.accept("=", ":-"):
            body = self.body("after `=`")
        elif self.token.kind != "end" and not self.at(*ITEM_KEYWORDS, "@"):
            self.fail(
                f"expected `=`, `:-` or the next item after the head, found {self.token.shown()}",
                "a rule is written `rel head(x) = body(x)`",
            )
        return s.Rule(tuple(heads), body, tag, exclusive, attributes, span=self.since(start))

    def heads(self) -> tuple[list[Any], bool]:
        if self.accept("{"):
            found = [self.formula()]
            separator = self.token.text if self.at(",", ";") else ""
            while separator and self.accept(separator):
                found.append(self.formula())
            self.expect("}", "at the end of the heads")
            return found, separator == ";"
        head = self.conjunction(assignments=False)
        return (list(head.operands) if isinstance(head, s.Conjunction) else [head]), False

    def fact_set(self) -> tuple[tuple[s.Fact, ...], bool]:
        self.expect("{", "at the start of the facts")
        facts: list[s.Fact] = []
        separator = ""
        while not self.at("}"):
            facts.append(self.fact())
            if self.at(",", ";"):
                if separator and self.token.text != separator:
                    self.fail(
                        "a fact set mixes `,` and `;`",
                        "use `;` throughout for exclusive facts, `,` for independent ones",
                    )
                separator = self.advance().text
            else:
                break
        self.expect("}", "at the end of the facts", "facts are separated by `,`, or by `;` if they exclude each other")
        return tuple(facts), separator == ";"

    def fact(self) -> s.Fact:
        start = self.token
        node, tag = self.fact_arguments(), None
        if self.accept("::"):
            if len(node) != 1:
                self.fail("expected one tag before `::`", span=self.since(start))
            tag = node[0]
            node = self.fact_arguments()
        return s.Fact(node, tag, span=self.since(start))

    def fact_arguments(self) -> tuple[Any, ...]:
        if self.at("(") and self.peek().text == ")":
            self.advance()
            self.advance()
            return ()
        node = self.conditional()
        return node.items if isinstance(node, s.Tuple) else (node,)

    # Formulas

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
        if self.depth > _MAX_DEPTH:
            self.fail("this is nested too deep", "split the rule with an auxiliary relation")
        start = self.token
        left = self.disjunction()
        if self.accept("implies", "=>"):
            left = s.Implies(left, self.disjunction(), span=self.since(start))
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
            return s.Aggregate(
                right.operator,
                right.bindings,
                right.body,
                outputs,
                right.arguments,
                right.parameters,
                right.discrete,
                right.group,
                right.group_body,
                right.binding_types,
                span=self.since(start),
            )
        return left

    # Expressions

    def conditional(self) -> Any:
        self.depth += 1
        if self.depth > _MAX_DEPTH:
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

    LADDER = (("&&", "||", "^"), _COMPARISONS, ("+", "-"), ("*", "/", "%"))

    def binary(self, level: int) -> Any:
        if level == len(self.LADDER):
            return self.unary()
        start = self.token
        left = self.binary(level + 1)
        operators = self.LADDER[level]
        while self.token.kind == "mark" and self.token.text in operators:
            operator = self.advance().text
            left = s.Binary(operator, left, self.binary(level + 1), span=self.since(start))
            if level == 1:
                if self.token.kind == "mark" and self.token.text in operators:
                    self.fail("comparisons cannot be chained", "write `a < b and b < c`")
                return left
        if level == 1 and self.at("in"):
            return self.in_range(start, left)
        if level == 1 and self.at("is"):
            self.unsupported("`case ... is ...` needs algebraic data types, which are not supported yet", left.span)
        return left

    def in_range(self, start: Token, variable: Any) -> s.InRange:
        self.advance()
        low = self.binary(2)
        sign = self.accept("..", "..=")
        if sign is None:
            self.fail(f"expected `..` or `..=` in a range, found {self.token.shown()}", "write `x in 0..n`")
        return s.InRange(variable, low, self.binary(2), sign.text == "..=", span=self.since(start))

    def unary(self) -> Any:
        start = self.token
        if self.at("-", "+", "!"):
            self.depth += 1
            if self.depth > _MAX_DEPTH:
                self.fail("this is nested too deep")
            operator = self.advance().text
            operand = self.unary()
            self.depth -= 1
            if operator == "-" and isinstance(operand, s.Constant) and operand.kind in ("integer", "float"):
                return s.Constant(-operand.value, operand.kind, span=self.since(start))
            return operand if operator == "+" else s.Unary(operator, operand, span=self.since(start))
        node = self.primary()
        while self.accept("as"):
            node = s.Cast(node, self.type_name(), span=self.since(start))
        return node

    def primary(self) -> Any:
        start = self.token
        constant = self.constant()
        if constant is not None:
            return constant
        if start.kind == "wildcard":
            self.advance()
            return s.Wildcard(span=start.span)
        if start.kind in ("name", "special"):
            following = self.peek()
            if following.text == "(":
                return self.atom_or_aggregate(start)
            if following.text == "[" or (following.text == "!" and self.peek(2).text in ("(", "[")):
                return self.atom_or_aggregate(start)
            self.advance()
            return s.Variable(start.text, span=start.span)
        if self.accept("$"):
            name = self.name("a function name after `$`").text
            return s.Call(name, self.call_arguments(name), span=self.since(start))
        if self.at("new"):
            self.unsupported("`new` needs algebraic data types, which are not supported yet", start.span)
        if self.at("case"):
            self.unsupported("`case` needs algebraic data types, which are not supported yet", start.span)
        if self.accept("("):
            return self.parenthesised(start)
        return self.fail(f"expected an expression or an atom, found {start.shown()}")

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
                value, kind = int(text), "integer"
            case "float":
                value, kind = float(text), "float"
            case "text":
                value, kind = unescape(text[1:-1]), "text"
            case "longtext":
                value, kind = unescape(text[3:-3]), "text"
            case "symbol":
                value, kind = unescape(text[2:-1]), "symbol"
            case "char":
                value, kind = unescape(text[1:-1]), "char"
            case "moment":
                self.unsupported("dates and durations are not supported yet", token.span)
            case "keyword" if text in ("true", "false"):
                value, kind = text == "true", "bool"
            case _:
                return None
        self.advance()
        return s.Constant(value, kind, span=token.span)

    def call_arguments(self, name: str) -> tuple[Any, ...]:
        self.expect("(", f"after `{name}`")
        found = []
        while not self.at(")"):
            found.append(self.conditional())
            if not self.accept(","):
                break
        self.expect(")", f"to close the arguments of `{name}`")
        return tuple(found)

    def atom_or_aggregate(self, start: Token) -> Any:
        name, parameters = self.advance().text, ()
        if start.kind == "special":
            name, rest = name[:-1].split("<", 1)
            parameters = tuple(p.strip() for p in rest.split(",") if p.strip())
        discrete = bool(self.accept("!"))
        arguments: tuple[str, ...] = ()
        if self.accept("["):
            arguments = tuple(self.separated(lambda: self.name("a variable in the brackets of the aggregate").text))
            self.expect("]", "after the argument variables")
        self.expect("(", f"after `{name}`")
        if self.at("(") and self.peek().kind == "name" and self.peek(2).text == ":":
            return self.aggregate(start, name, parameters, discrete, arguments, *self.typed_bindings())
        # No argument of an atom begins with an atom or a negation, so this is an aggregate without variables.
        is_formula = self.at("not", "~") or (self.token.kind == "name" and self.peek().text == "(")
        if is_formula and (name in AGGREGATES or name in s.LATER_AGGREGATES):
            return self.aggregate(start, name, parameters, discrete, arguments, (), ())
        found = []
        while not self.at(")"):
            found.append(self.conditional())
            if not self.accept(","):
                break
        if self.at(":"):
            for node in found:
                if not isinstance(node, s.Variable):
                    self.fail("only variables can stand before the `:` of an aggregate", span=node.span)
            names = tuple(node.name for node in found)
            self.advance()
            return self.aggregate(start, name, parameters, discrete, arguments, names, ())
        if discrete or arguments:
            self.fail(f"expected `:` in the aggregate `{name}`, found {self.token.shown()}", "write `count(x: p(x))`")
        self.expect(")", f"to close the arguments of `{name}`")
        return s.Atom(name, tuple(found), parameters, span=self.since(start))

    def typed_bindings(self) -> tuple[tuple[str, ...], tuple[tuple[str, str], ...]]:
        def one() -> tuple[str, str]:
            self.expect("(", "before a typed variable")
            name = self.name("a variable").text
            self.expect(":", "before the type of the variable")
            type_name = self.type_name()
            self.expect(")", "after a typed variable")
            return name, type_name

        found = self.separated(one)
        self.expect(":", "after the variables of the aggregate")
        return tuple(name for name, _ in found), tuple(found)

    def aggregate(self, start: Token, name, parameters, discrete, arguments, bindings, binding_types) -> s.Aggregate:
        body = self.body("in the aggregate")
        group: tuple[str, ...] = ()
        group_body = None
        if self.accept("where"):
            group = tuple(self.separated(lambda: self.name("a group variable after `where`").text))
            self.expect(":", "after the group variables")
            group_body = self.body("after `where`")
        self.expect(")", f"to close the aggregate `{name}`")
        return s.Aggregate(
            name,
            bindings,
            body,
            None,
            arguments,
            parameters,
            discrete,
            group,
            group_body,
            binding_types,
            span=self.since(start),
        )
