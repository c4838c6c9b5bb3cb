"""The parser: program text to syntax.

Written by hand (recursive descent): building LALR tables for this grammar with Lark took 0.66 s a process,
and a table parser cannot say what it was in the middle of when it failed.
"""

from __future__ import annotations

from typing import Any

from derivable.datalog.syntax import nodes as s
from derivable.datalog.syntax.formulas import Formulas
from derivable.datalog.syntax.lexer import ITEM_KEYWORDS, Token, unescape


def parse(text: str, source: str = "<program>") -> s.Syntax:
    """Parse a program. Raises ParseError with line, column, caret and hint."""
    parser = _Parser(text, source)
    try:
        return s.Syntax(tuple(parser.items()), text, source)
    except RecursionError:
        return parser.fail("this is nested too deep", "split the rule with an auxiliary relation")


class _Parser(Formulas):
    """The items of a program."""

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
            if self.position and start.kind == "name":
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
                    values.append((None, self.attribute_value()))
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
        return self.literal()

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
            return s.FactSet(name, facts, exclusive, attributes, span=self.since(start))
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
            return s.ReduceRule(name, value, attributes, span=self.since(start))
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
