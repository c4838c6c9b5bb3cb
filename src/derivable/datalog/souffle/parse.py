"""The parser of Soufflé's programs: items of files and of components."""

from __future__ import annotations

from derivable.core.diagnostics import warn
from derivable.datalog.souffle import nodes as n
from derivable.datalog.souffle.arguments import KEYWORDS, Arguments
from derivable.datalog.souffle.lexer import SourceText, Token, text_of

QUALIFIERS = (
    *("input", "output", "printsize", "overridable", "inline", "no_inline", "magic", "no_magic", "brie", "btree"),
    *("btree_delete", "eqrel"),
)
_IO = ("input", "output", "printsize", "limitsize")
_NO_NAMES = KEYWORDS - {"_"}


def parse(tokens: list[Token], file: SourceText) -> list[n.Node]:
    """The items of a program. Raises ParseError, with span and likely fix, at the first that is wrong."""
    parser = Parser(tokens, file)
    try:
        return parser.items(None)
    except RecursionError:
        parser.error("this is nested too deep")


class Parser(Arguments):
    def items(self, overrides: set[str] | None) -> list[n.Node]:
        """The items up to the end, or to the `}` of a component, whose overrides are added to a set."""
        items: list[n.Node] = []
        while self.token.kind != "end" and not (overrides is not None and self.is_sign("}")):
            self.depth = 0
            start = self.token
            if start.kind == "directive":
                items += self.directive(overrides)
            elif start.kind == "name":
                items.append(self.clause())
            elif start.text == ":-" or start.text == "?":
                self.error("a rule has a head", hint="write `violated() :- ...`")
            else:
                hint = "items are `.decl p(x:number)`, `p(1).` and `p(x) :- q(x).`"
                self.unexpected("a declaration, a fact or a rule", hint)
        return items

    # Facts and rules

    def clause(self) -> n.Node:
        start = self.token.span
        if not self.is_atom():
            name = self.name("a relation", _NO_NAMES)
            hint = f"facts are `{name.text}(1).` and rules `{name.text}(x) :- q(x).`"
            self.unexpected("`(`", hint)
        heads = [self.atom()]
        if self.takes("<="):
            greater = self.atom()
            self.expect(":-", "a subsumption has a body: `p(a) <= p(b) :- a <= b.`")
            body = self.body()
            self.plan()
            return n.Subsumption(heads[0], greater, body, span=self.since(start))
        while self.takes(","):
            heads.append(self.atom())
        if self.takes(":-"):
            body = self.body()
            span = self.since(start)
            self.plan()
            return n.Clause(tuple(heads), body, span=span)
        if not self.takes("."):
            if self.is_sign("="):
                self.error("`=` joins no head and body", hint="write `:-`")
            hint = "a fact ends with a dot, and a rule goes on with `:-`"
            if self.is_sign("<") and self.is_sign("-", 1):
                hint = "a head and its body are joined by `:-`"
            self.unexpected("`.` or `:-`", hint)
        span = self.since(start)
        more = self.take().facts if self.token.kind == "facts" else None
        return n.Clause(tuple(heads), None, more=more, span=span)

    def body(self) -> n.Formula:
        formula = self.formula()
        if not self.takes("."):
            self.unexpected("`,`, `;` or `.`", "a rule ends with a dot")
        return formula

    def plan(self) -> None:
        """`.plan 0:(1,2), 1:(2,1)`, which changes no result."""
        if self.token.kind != "directive" or self.token.text != ".plan":
            return
        start = self.take().span
        while True:
            if self.take().kind != "number":
                self.error("a plan is `.plan 0:(1,2)`", start)
            self.expect(":")
            self.expect("(")
            while not self.takes(")"):
                if self.token.kind == "end":
                    self.unexpected("`)`")
                self.take()
            if not self.takes(","):
                break
        self.note("`.plan` is not followed: orders of joins are chosen here", start)

    def note(self, message: str, span: n.Span) -> None:
        origin = span.origin
        source, text = (self.file.source, self.file.text) if origin is None else (origin.source, origin.text)
        warn(message, source=source, text=text, span=span)

    # Declarations

    def directive(self, overrides: set[str] | None) -> list[n.Node]:
        token = self.take()
        word, start = token.text[1:], token.span
        match word:
            case "decl":
                return self.relations(start)
            case "type":
                return [self.type(start)]
            case "number_type" | "symbol_type":
                name = self.name("a type").text
                return [n.SubType(name, (word.removesuffix("_type"),), span=self.since(start))]
            case "functor":
                return [self.functor(start)]
            case "comp":
                return [self.component(start)]
            case "init":
                name = self.name("an instance").text
                self.expect("=")
                return [n.Instance(name, self.component_type(), span=self.since(start))]
            case "input" | "output" | "printsize" | "limitsize":
                return self.input_or_output(word, start)
            case "override" if overrides is not None:
                overrides.add(self.name("a relation").text)
                return []
            case "override":
                self.error("`.override` stands in a component", start)
            case "pragma":
                key = text_of(self.text("the name of an option, a text"), self.file)
                if self.token.kind == "text":
                    self.take()
                if key not in ("magic-transform", "provenance", "verbose", "suppress-warnings"):
                    self.note(f"the pragma {key!r} is not followed", start)
                return []
            case "plan":
                self.error("`.plan` stands behind a rule", start)
            case "lattice":
                hint = "a column that keeps its smallest or largest value is written as a subsumption here"
                self.error("lattices of one's own are not read", start, hint)
        return self.error(f"`.{word}` is not read", start)

    def relations(self, start: n.Span) -> list[n.Node]:
        names = self.separated(lambda: self.name("a relation", _NO_NAMES))
        if not self.is_sign("("):
            hint = "columns have names and types: `.decl edge(from:number, to:number)`"
            self.unexpected("`(`", hint)
        self.take()
        attributes = self.attributes(")")
        qualifiers, keys = set(), []
        while self.token.kind == "name" and self.token.text in QUALIFIERS and not self.is_sign("(", 1):
            qualifiers.add(self.take().text)
        if self.is_word("choice-domain"):
            self.take()
            keys = self.separated(self.key)
        if self.token.kind == "name" and self.at(1).kind in ("directive", "end"):
            known = ", ".join(QUALIFIERS)
            self.error(f"`{self.token.text}` is no qualifier of a relation", hint=f"known are {known}")
        items: list[n.Node] = []
        for name in names:
            span = self.through(start, name.span)
            items.append(n.Relation(name.text, attributes, frozenset(qualifiers), tuple(keys), span=span))
            items += [n.Directive(kind, name.text, span=span) for kind in _IO if kind in qualifiers]
        return items

    def key(self) -> tuple[str, ...]:
        if not self.takes("("):
            return (self.name("a column").text,)
        names = self.separated(lambda: self.name("a column").text)
        self.expect(")")
        return tuple(names)

    def attributes(self, closing: str) -> tuple[n.Attribute, ...]:
        """`x:number, y:symbol` and the closing sign."""
        attributes: list[n.Attribute] = []
        while not self.takes(closing):
            if attributes:
                self.expect(",")
            name = self.name("a column")
            self.expect(":", f"columns have types: `{name.text}:number`")
            type_name, span = self.qualified("a type")
            if self.is_sign("<") and self.is_sign(">", 1):
                hint = "write it as a subsumption: `p(x, a) <= p(x, b) :- b <= a.`"
                self.error("columns with lattices of one's own are not read", name.span, hint)
            attributes.append(n.Attribute(name.text, type_name, span=self.through(name.span, span)))
        return tuple(attributes)

    def type(self, start: n.Span) -> n.Node:
        name = self.name("a type").text
        if self.takes("<:"):
            return n.SubType(name, (self.type_name(),), span=self.since(start))
        if not self.takes("="):
            # What older programs write.
            return n.SubType(name, ("symbol",), span=self.since(start))
        if self.takes("["):
            return n.RecordType(name, self.attributes("]"), span=self.since(start))
        if self.token.kind == "name" and self.is_sign("{", 1):
            branches = self.separated(self.branch, "|")
            return n.SumType(name, tuple(branches), span=self.since(start))
        bases = self.separated(self.type_name, "|")
        return n.SubType(name, tuple(bases), is_union=True, span=self.since(start))

    def branch(self) -> n.BranchType:
        name = self.name("a branch")
        self.expect("{", f"a branch has its fields in braces: `{name.text} {{x: number}}`")
        return n.BranchType(name.text, self.attributes("}"), span=name.span)

    def functor(self, start: n.Span) -> n.FunctorType:
        name = self.name("a functor").text
        self.expect("(")
        parameters: list[str] = []
        while not self.takes(")"):
            if parameters:
                self.expect(",")
            type_name = self.type_name()
            if self.takes(":"):
                type_name = self.type_name()
            parameters.append(type_name)
        self.expect(":")
        result = self.type_name()
        if self.is_word("stateful"):
            self.take()
        return n.FunctorType(name, tuple(parameters), result, span=self.since(start))

    # Components

    def component_type(self) -> n.ComponentType:
        name = self.name("a component")
        arguments: list[str] = []
        if self.takes("<"):
            arguments = self.separated(self.type_name)
            self.expect(">")
        return n.ComponentType(name.text, tuple(arguments), span=name.span)

    def component(self, start: n.Span) -> n.Component:
        component_type, bases = self.component_type(), []
        if self.takes(":"):
            bases.append(self.component_type())
            while self.takes(",") or self.takes(":"):
                bases.append(self.component_type())
        span = self.since(start)
        self.expect("{")
        overrides: set[str] = set()
        items = self.items(overrides)
        self.expect("}", "a component ends with `}`")
        return n.Component(component_type, tuple(bases), tuple(items), frozenset(overrides), span=span)

    # Input and output

    def input_or_output(self, kind: str, start: n.Span) -> list[n.Node]:
        names = self.separated(lambda: self.qualified("a relation"))
        parameters: list[tuple[str, str]] = []
        if self.takes("("):
            while not self.takes(")"):
                if parameters:
                    self.expect(",")
                key = self.name("an option").text
                self.expect("=", f"an option has a value: `{key}=...`")
                if self.token.kind not in ("text", "name", "number", "float"):
                    self.unexpected("a value", f'such as `{key}="..."`')
                value = self.take()
                parameters.append((key, text_of(value, self.file) if value.kind == "text" else value.text))
        if kind == "limitsize":
            self.note("`.limitsize` is not followed: all rows are computed, or a limit of the run is met", start)
        return [n.Directive(kind, name, tuple(parameters), span=self.through(start, span)) for name, span in names]
