"""The parser: program text to syntax.

Written by hand (recursive descent): building LALR tables for this grammar with Lark took 0.66 s a process,
and a table parser cannot say what it was in the middle of when it failed.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from derivable.core.diagnostics import DerivableError, Origin, Span, together
from derivable.datalog.policy.costs import policy
from derivable.datalog.syntax import nodes as s
from derivable.datalog.syntax.expressions import Expressions
from derivable.datalog.syntax.fact_rows import Rows
from derivable.datalog.syntax.lexer import ITEM_KEYWORDS, LineStarts, Token, tokens


def parse(text: str, source: str = "<program>", is_imported: bool = False) -> s.Syntax:
    """Parse a program. Raises ParseError with line, column, caret and hint, for all the items that have errors.

    is_imported  every span names this text, because the program is another one
    """
    line_starts = LineStarts(text, Origin(source, text) if is_imported else None)
    parser = _Parser(line_starts, source, tokens(line_starts, policy().call_rows, fewest_choices=2))
    return s.Syntax(tuple(parser.items()), text, source)


def as_written(table: s.FactTable) -> list[s.Item]:
    """The items of a table of facts, one node for each constant, which have their positions in the text."""
    line_starts: LineStarts = table.line_starts
    never = len(line_starts.text)
    parser = _Parser(line_starts, "<program>", tokens(line_starts, never, table.start, table.end))
    items: list[s.Item] = []
    for item in parser.items():
        if isinstance(item, s.FactSet):
            items.append(replace(item, attributes=table.attributes))
        elif isinstance(item, s.Rule) and item.heads[0].relation == table.relation:
            items.append(item)
    return items


def term_as_written(text: str, span: Span) -> Any:
    """The expression at a span of a text, with a node for each constructor in it."""
    line_starts = LineStarts(span.origin.text if span.origin else text, span.origin)
    start = line_starts.start(span)
    return _Parser(
        line_starts, "<program>", tokens(line_starts, len(line_starts.text), start, start + span.length)
    ).conditional()


class _Parser(Expressions):
    """The items of a program."""

    def items(self) -> list[s.Item]:
        items: list[s.Item] = []
        while self.token.kind != "end":
            before = self.position
            try:
                items += self.item()
            except DerivableError as error:
                self.errors.append(error)
            except RecursionError:
                hint = "split the rule with an auxiliary relation"
                self.errors.append(self.error("this is nested too deep", hint))
            else:
                continue
            self.position = max(self.position, before + 1)
            self.recover()
        if self.errors:
            raise together(self.errors)
        return items

    def item(self) -> list[s.Item]:
        self.has_terms = False
        self.item_before, self.item_start = self.item_start, self.position
        attributes = []
        while self.at("@"):
            attributes.append(self.attribute())
        start = self.token
        if start.kind == "rows":
            if not attributes:
                self.advance()
                return [self.table(rows, rows.relation, start.start, start.end) for rows in start.rows or ()]
            self.spell_out()
            start = self.token
        if self.at_evidence():
            return [self.evidence()]
        if start.kind != "keyword" or start.text not in ITEM_KEYWORDS:
            hint = "items begin with `rel`, `type`, `const`, `query` or `import`"
            if start.kind == "name":
                before = "join it with `,`, `and` or `or`" if self.position else "rules begin with `rel`"
                if any(token.kind == "bad" and token.text == "." for token in self.tokens):
                    before = "rules begin with `rel` and end without a dot"
                hint = f"{before}; {hint}"
            self.fail(f"expected an item, found {start.shown()}", hint)
        self.advance()
        if start.text == "import":
            if self.token.kind != "text":
                self.fail(f"expected a file name in quotes after `import`, found {self.token.shown()}")
            return [s.Import(self.literal(), span=self.since(start))]
        if start.text == "extern" and not self.accept("type"):
            self.fail(f"expected `type` after `extern`, found {self.token.shown()}")
        following = (*ITEM_KEYWORDS, "@", "")
        if start.text in ("type", "extern"):
            return self.attributed(self.separated(self.type_definition, following), attributes)
        if start.text == "const":
            return self.separated(self.constant_definition, following)
        if start.text == "query":
            return self.attributed(self.separated(self.query, following), attributes)
        while self.at("@"):
            attributes.append(self.attribute())
        return self.attributed([self.relation_item(start)], attributes)

    def attributed(self, items: list[s.Item], attributes: list[s.Attribute]) -> list[s.Item]:
        if not attributes:
            return items
        return [replace(i, attributes=tuple(attributes)) if isinstance(i, s.Attributed) else i for i in items]

    def attribute(self) -> s.Attribute:
        start = self.advance()
        name = self.name("an attribute name after `@`").text
        where = "after the arguments of the attribute"
        values = self.listed(self.attribute_argument, ")", where) if self.accept("(") else []
        return s.Attribute(name, tuple(values), span=self.since(start))

    def attribute_argument(self) -> tuple[str | None, Any]:
        key = None
        if self.token.kind == "name" and self.peek().text == "=":
            key = self.advance().text
            self.advance()
        return key, self.attribute_value()

    def attribute_value(self) -> Any:
        opening = self.accept("[", "(")
        if opening is None:
            return self.literal()
        closing = {"[": "]", "(": ")"}[opening.text]
        values = self.listed(self.attribute_value, closing, "at the end of the values")
        return tuple(values) if opening.text == "[" else s.Group(values)

    def type_definition(self) -> s.Item:
        start = self.token
        if self.at("$"):
            return self.function_type(start)
        name = self.name("a name after `type`").text
        if self.accept("<:"):
            return s.AliasType(name, self.type_name(), True, span=self.since(start))
        if self.accept("="):
            leading = self.accept("|")
            if (not leading and self.peek().text not in ("|", "=", "(")) or self.token.text == "&str":
                return s.AliasType(name, self.type_name(), span=self.since(start))
            if self.peek().text == "(":
                return self.data_type(start, name)
            members = [self.enum_member()]
            while self.accept("|"):
                members.append(self.enum_member())
            return s.EnumType(name, tuple(members), span=self.since(start))
        self.expect("(", f"after `type {name}`", "a relation type is written `type edge(usize, usize)`")
        columns = tuple(self.listed(self.relation_column, ")", f"after the columns of `{name}`"))
        return s.RelationType(name, columns, span=self.since(start))

    def function_type(self, start: Token) -> s.FunctionType:
        self.advance()
        name = self.name("the name of a function after `$`").text
        self.expect("(", f"after `${name}`", f"write `type ${name}(x: String) -> String`")
        parameters = self.columns(f"${name}")
        self.expect("->", f"after the parameters of `${name}`", f"write `type ${name}(x: String) -> String`")
        return s.FunctionType(name, parameters, self.type_name(), span=self.since(start))

    def enum_member(self) -> tuple[str, int | None]:
        name = self.name("the name of an enum member").text
        if self.at("("):
            hint = "give every variant parentheses, as in `Leaf() | Node(i32, Tree)`, or none"
            self.fail(f"`{name}` is a variant of a data type among members of an enum", hint)
        if not self.accept("="):
            return name, None
        if self.token.kind != "integer":
            self.fail(f"expected an integer as the value of `{name}`, found {self.token.shown()}")
        return name, int(self.advance().text)

    def data_type(self, start: Token, name: str) -> s.DataType:
        variants = [self.variant(name)]
        while self.accept("|"):
            variants.append(self.variant(name))
        if len(variants) < 2:
            self.fail(
                f"the data type `{name}` has one variant, it needs at least two",
                f"add one, as in `type {name} = {variants[0].name}(...) | Other()`, or use columns of a relation",
                variants[0].span,
            )
        return s.DataType(name, tuple(variants), span=self.since(start))

    def variant(self, data_type: str) -> s.Variant:
        start = self.name(f"a constructor of `{data_type}`")
        hint = f"write `{start.text}()`" if self.at("|") or self.token.kind in ("end", "keyword") else None
        self.expect("(", f"after the constructor `{start.text}`", hint)
        return s.Variant(start.text, self.columns(start.text), span=self.since(start))

    def columns(self, name: str) -> tuple[s.Column, ...]:
        """Columns up to the closing parenthesis."""
        return tuple(self.listed(self.column, ")", f"after the columns of `{name}`"))

    def relation_column(self) -> s.Column:
        """A column, before whose name or type its lattice may stand."""
        start = self.token
        following = self.peek()
        has_lattice = start.kind == "name" and (following.kind == "name" or following.text in ("&str", "bound", "free"))
        lattice = self.advance().text if has_lattice else None
        return replace(self.column(), lattice=lattice, span=self.since(start))

    def column(self) -> s.Column:
        start = self.token
        adornment = self.advance().text if self.at("bound", "free") else None
        name = None
        if self.token.kind == "name" and self.peek().text == ":":
            name = self.advance().text
            self.advance()
        return s.Column(self.type_name(), name, adornment, span=self.since(start))

    def constant_definition(self) -> s.ConstantItem:
        start = self.token
        name = self.name("a name after `const`").text
        type_name = self.type_name() if self.accept(":") else None
        self.expect("=", f"after `const {name}`")
        return s.ConstantItem(name, type_name, self.conditional(), span=self.since(start))

    def query(self) -> s.Query:
        start = self.token
        name = self.name("a relation after `query`").text
        arguments = self.call_arguments(name) if self.at("(") else None
        return s.Query(name, arguments, span=self.since(start))

    def at_evidence(self) -> bool:
        """Whether an item of evidence begins here; elsewhere `evidence` is a name like any other."""
        return self.token.text == "evidence" and (self.peek().kind == "name" or self.peek().text in ("not", "~"))

    def evidence(self) -> s.Evidence:
        start = self.advance()
        is_true = self.accept("not", "~") is None
        name = self.name("a relation after `evidence`").text
        if not self.at("("):
            self.fail(f"expected `(` after `{name}`", "evidence is of one tuple: `evidence alarm()`")
        return s.Evidence(name, self.call_arguments(name), is_true, span=self.since(start))

    # Relation items

    def relation_item(self, start: Token) -> s.Item:
        if self.token.kind == "name" and self.peek().text in ("=", ":=", ":-"):
            name = self.advance().text
            self.advance()
            if self.token.rows is not None:
                # The braces are one token, of one table.
                [rows], end = self.token.rows, self.advance().end
                return self.table(rows, name, start.start, end)
            if self.at("{"):
                facts, exclusive = self.fact_set()
                return s.FactSet(name, facts, exclusive, span=self.since(start))
            value = self.formula()
            if not isinstance(value, s.Aggregate) or value.outputs is not None:
                self.fail(
                    f"`rel {name} =` needs a fact set or an aggregate",
                    f"write `rel {name} = {{...}}`, or give the head arguments: `rel {name}(x) = ...`",
                    value.span,
                )
            return s.ReduceRule(name, value, span=self.since(start))
        tag: Any = self.tunable() if self.at("?") else None
        heads, exclusive, tags = self.heads()
        if tag is None and self.accept("::"):
            if len(heads) != 1 or tags:
                self.fail("expected one tag before `::`")
            tag = heads[0]
            heads, exclusive, tags = self.heads()
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
        elif self.token.kind != "end" and not (self.at(*ITEM_KEYWORDS, "@") or self.at_evidence()):
            self.fail(
                f"expected `=`, `:-` or the next item after the head, found {self.token.shown()}",
                "a rule is written `rel head(x) = body(x)`",
            )
        return s.Rule(tuple(heads), body, tag, exclusive, tuple(tags), span=self.since(start))

    def table(self, rows: Rows, relation: str, start: int, end: int) -> s.FactTable:
        """The table of facts of constants that are written between two positions."""
        return s.FactTable(
            relation,
            rows.kinds,
            rows.columns,
            rows.tags,
            rows.exclusive,
            line_starts=self.line_starts,
            start=start,
            end=end,
            span=self.line_starts.span(start, end),
        )

    def spell_out(self) -> None:
        """Replace the token of many facts by the tokens that they are written with."""
        token = self.token
        inside = tokens(self.line_starts, len(self.text), token.start, token.end)[:-1]
        self.tokens[self.position : self.position + 1] = inside

    def tunable(self) -> s.Tunable:
        """A probability that is learned, and the `::` behind it."""
        start, value = self.advance(), 0.5
        has_start = self.token.kind in ("integer", "float")
        if has_start:
            value = float(self.advance().text)
        by = list[s.Variable]()
        while self.accept("," if by else "("):
            if self.token.kind != "name":
                self.fail("expected a variable", "such as `?0.3(x)::p(x, y)`: one probability for each x")
            name = self.advance()
            by.append(s.Variable(name.text, span=self.since(name)))
        if by:
            self.expect(")", "after the variables of a tunable probability")
        node = s.Tunable(value, "float", has_start, tuple(by), span=self.since(start))
        if not 0.0 < value < 1.0:
            hint = "write `?0.3::`, or `?::` for a start that is drawn; what is certain needs no learning"
            self.fail("the start of a tunable probability lies between 0 and 1", hint, node.span)
        self.expect("::", "after a tunable probability", "such as `?0.3::fact(1)`, or `?::fact(1)`")
        return node

    def heads(self) -> tuple[list[Any], bool, list[Any]]:
        """The heads of a rule, whether they exclude each other, and their tags, if they have some."""
        if self.accept("{"):
            atoms, tags = [], []
            separator = ""
            while not atoms or (separator and self.accept(separator) and not self.at("}")):
                start = self.token
                tag: Any = self.tunable() if self.at("?") else None
                node = self.formula()
                if tag is None and self.accept("::"):
                    tag, node = node, self.formula()
                if atoms and bool(tags) != (tag is not None):
                    hint = (
                        "give each of them a probability, or none: then one is chosen, each as probable as the others"
                    )
                    self.fail("heads with probabilities and heads without are in one set", hint, self.since(start))
                atoms.append(node)
                tags += [] if tag is None else [tag]
                separator = separator or (self.token.text if self.at(",", ";") else "")
            self.expect("}", "at the end of the heads")
            if tags and separator != ";":
                self.fail(
                    "a set of heads with probabilities is a choice of one of them",
                    "separate them by `;`; a head alone is written `rel 0.3::a(x) = b(x)`",
                    tags[0].span,
                )
            return atoms, separator == ";", tags
        head = self.conjunction(assignments=False)
        return (list(head.operands) if isinstance(head, s.Conjunction) else [head]), False, []

    def fact_set(self) -> tuple[tuple[s.Fact, ...], bool]:
        self.expect("{", "at the start of the facts")
        facts: list[s.Fact] = []
        separator = ""
        self.has_terms = True
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
        self.has_terms = False
        self.expect("}", "at the end of the facts", "facts are separated by `,`, or by `;` if they exclude each other")
        return tuple(facts), separator == ";"

    def fact(self) -> s.Fact:
        start = self.token
        if self.at("?"):
            tag = self.tunable()
            return s.Fact(self.fact_arguments(), tag, span=self.since(start))
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
