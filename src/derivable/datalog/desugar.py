"""Desugaring: typed syntax to core rules.

Bodies go to disjunctive normal form, one clause a disjunct. Aggregates, quantifiers and negated atoms with variables
of their own become auxiliary relations; expressions in body atoms become equations; conjunctive heads one rule each;
a tagged rule gets a nullary random fact in its body; an atomic query a relation named by its text.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NoReturn

from derivable.core.diagnostics import BindingError, DerivableError, DomainError, Span, UnsupportedError
from derivable.core.registry import suggestion
from derivable.datalog.aggregates import AGGREGATES
from derivable.datalog.rules import nodes as r
from derivable.datalog.rules.order import order
from derivable.datalog.syntax import nodes as s
from derivable.datalog.syntax.text import expression_text
from derivable.datalog.types import Typed
from derivable.datalog.values import BOOL, F64, ValueType

MAX_CLAUSES = 4096
ATTRIBUTES = ("file", "demand", "hidden", "goal", "scheduler", "storage", "no_temp_relation", "tagged", "magic_set")
_REFUSED = {
    "file": "load the file in Python and pass `facts=`",
    "scheduler": None,
    "goal": None,
    "tagged": None,
    "magic_set": None,
}
Environment = Mapping[str, ValueType]


def desugar(typed: Typed) -> r.Rules:
    """Core rules of a typed program. Raises BindingError and UnsupportedError with their place."""
    return _Desugaring(typed).run()


class _Desugaring:
    def __init__(self, typed: Typed):
        self.typed = typed
        self.syntax = typed.syntax
        self.relations: dict[str, r.Relation] = {}
        self.facts: list[r.Facts] = []
        self.rules: list[r.Rule] = []
        self.counts: dict[str, int] = {}
        self.hidden: set[str] = set()

    def error(self, kind: type[DerivableError], message: str, span: Span, hint: str | None = None) -> NoReturn:
        raise kind(message, hint=hint, source=self.syntax.source, text=self.syntax.text, span=span)

    def fresh(self, stem: str) -> str:
        self.counts[stem] = self.counts.get(stem, 0) + 1
        return f"{stem}{self.counts[stem]}"

    def new_relation(self, stem: str, types: tuple[ValueType, ...], name: str | None = None) -> str:
        name = name or f"#{self.fresh(stem + '_')}"
        self.relations[name] = r.Relation(name, types, is_hidden=True)
        return name

    # Items

    def run(self) -> r.Rules:
        for signature in self.typed.relations.values():
            self.relations[signature.name] = r.Relation(
                signature.name,
                signature.types,
                is_input=not (signature.is_declared or signature.is_defined),
                span=signature.span,
                column_names=signature.column_names,
            )
        queries: list[str] = []
        for item in self.syntax.items:
            self.attributes(item)
            match item:
                case s.FactSet():
                    self.fact_set(item)
                case s.Rule():
                    self.rule(item)
                case s.ReduceRule():
                    self.reduce_rule(item)
                case s.Query():
                    queries.append(self.query(item))
        for name in self.hidden:
            if name in self.relations:
                old = self.relations[name]
                self.relations[name] = replace(old, is_hidden=True)
        outputs = queries or [name for name, relation in self.relations.items() if not relation.is_hidden]
        program = r.Rules(
            self.relations,
            tuple(self.facts),
            tuple(self.rules),
            tuple(dict.fromkeys(outputs)),
            self.syntax.text,
            self.syntax.source,
        )
        for rule in self.rules:
            if isinstance(rule, r.Clause):
                order(rule, program)
        return program

    def attributes(self, item: s.Item) -> None:
        for attribute in getattr(item, "attributes", ()):
            if attribute.name not in ATTRIBUTES:
                self.error(UnsupportedError, f"unknown attribute `@{attribute.name}`", attribute.span)
            if attribute.name in _REFUSED:
                self.error(
                    UnsupportedError,
                    f"the attribute `@{attribute.name}` is not supported yet",
                    attribute.span,
                    _REFUSED[attribute.name],
                )
            if attribute.name == "hidden":
                names = [h.relation for h in item.heads] if isinstance(item, s.Rule) else [getattr(item, "name", "")]
                self.hidden.update(names)

    def query(self, item: s.Query) -> str:
        if item.arguments is None:
            if item.relation not in self.relations:
                known = [n for n, relation in self.relations.items() if not relation.is_hidden]
                hint = suggestion(item.relation, known, "declare it with `type`, or define it with `rel`")
                self.error(BindingError, f"unknown relation `{item.relation}`", item.span, hint)
            return item.relation
        name = f"{item.relation}({', '.join(map(expression_text, item.arguments))})"
        if name in self.relations:
            return name
        types = self.typed.relations[item.relation].types
        self.relations[name] = r.Relation(name, types)
        clause = _Clause(self, item, dict(self.typed.variables(item)))
        terms = clause.atom_terms(item.relation, item.arguments, keep_wildcards=False)
        body = (r.Atom(item.relation, terms, item.span), *clause.extra)
        self.rules.append(r.Clause(name, tuple(t for t in terms if t is not None), body, item.span))
        return name

    def fact_set(self, item: s.FactSet) -> None:
        types = self.typed.relations[item.relation].types
        rows: list[tuple[Any, ...]] = []
        tags: list[float | None] = []
        for fact in item.facts:
            values = [self.constant(a, t) for a, t in zip(fact.arguments, types)]
            tag = None if fact.tag is None else self.tag_value(fact.tag)
            if any(v is None for v in values):
                if tag is not None or item.exclusive:
                    self.error(UnsupportedError, "a tagged or exclusive fact needs constant values", fact.span)
                self.clauses([s.Atom(item.relation, fact.arguments, span=fact.span)], None, {}, item, None)
                continue
            rows.append(tuple(values))
            tags.append(tag)
        if rows:
            self.add_facts(item.relation, rows, tags, item.exclusive, item.span)

    def add_facts(self, name: str, rows: list, tags: list, exclusive: bool, span: Span) -> None:
        tagged = any(tag is not None for tag in tags)
        if exclusive:
            missing = [i for i, tag in enumerate(tags) if tag is None]
            total = sum(tag for tag in tags if tag is not None)
            if missing:
                self.error(DomainError, f"exclusive fact {missing[0] + 1} of `{name}` has no probability", span)
            if total > 1 + 1e-9:
                self.error(
                    DomainError,
                    f"the probabilities of the {len(tags)} exclusive facts of `{name}` add up to {total:g}",
                    span,
                    "exclusive facts are one choice: their probabilities add up to at most 1",
                )
        self.facts.append(r.Facts(name, tuple(rows), tuple(tags) if tagged else None, exclusive, span))

    def constant(self, node: Any, t: ValueType) -> Any:
        """The value of a constant expression without operators, or None."""
        if isinstance(node, s.Constant):
            return float(node.value) if t.family == "float" else node.value
        if isinstance(node, s.Variable) and node.name in self.typed.constants:
            return self.typed.constants[node.name][0]
        if isinstance(node, s.Variable):
            self.error(
                BindingError, f"variable `{node.name}` in a fact is not bound", node.span, "facts hold constants"
            )
        return None

    def tag_value(self, node: Any) -> float:
        value = self.fold(node)
        if value is None:
            self.error(UnsupportedError, "the tag of a fact must be a constant", node.span)
        if not 0.0 <= value <= 1.0:
            self.error(DomainError, f"the tag {value:g} is not a probability", node.span, "tags are in [0, 1]")
        return value

    def fold(self, node: Any) -> float | None:
        match node:
            case s.Constant(value=value, kind="integer" | "float" | "bool"):
                return float(value)
            case s.Variable(name=name) if name in self.typed.constants:
                return float(self.typed.constants[name][0])
            case s.Binary(operator=operator, left=left, right=right):
                a, b = self.fold(left), self.fold(right)
                if a is None or b is None:
                    return None
                match operator:
                    case "+":
                        return a + b
                    case "-":
                        return a - b
                    case "*":
                        return a * b
                    case "/" if b:
                        return a / b
        return None

    def rule(self, item: s.Rule) -> None:
        if item.exclusive_heads:
            self.error(
                UnsupportedError,
                "a disjunctive head `{a; b}` is not supported yet",
                item.span,
                "declare an exclusive fact set and join with it",
            )
        environment = dict(self.typed.variables(item))
        if item.body is None and all(self.is_constant(a) for head in item.heads for a in head.arguments):
            tag = None if item.tag is None else self.tag_value(item.tag)
            for head in item.heads:
                types = self.typed.relations[head.relation].types
                row = tuple(self.constant(a, t) for a, t in zip(head.arguments, types))
                self.add_facts(head.relation, [row], [tag], False, item.span)
            return
        self.clauses(list(item.heads), item.body, environment, item, item.tag)

    def is_constant(self, node: Any) -> bool:
        return isinstance(node, s.Constant) or (isinstance(node, s.Variable) and node.name in self.typed.constants)

    def clauses(self, heads: list[s.Atom], body: Any, environment: Environment, item: Any, tag: Any) -> None:
        disjuncts = [[]] if body is None else self.normal_form(body, True)
        head_variables = {v for head in heads for v in _variables_of(head)}
        extra: list[r.Literal] = []
        if tag is not None and self.fold(tag) is not None:
            name = self.new_relation("tag", ())
            self.add_facts(name, [()], [self.tag_value(tag)], False, item.span)
            extra.append(r.Atom(name, ()))
        elif tag is not None:
            head_variables |= set(_variables_of(tag))
        for disjunct in disjuncts:
            clause = _Clause(self, item, environment)
            literals = clause.body(disjunct, head_variables) + extra
            if tag is not None and not extra:
                literals.append(self.dynamic_tag(tag, clause, literals, item))
            for head in heads:
                terms = []
                for argument in head.arguments:
                    if isinstance(argument, s.Wildcard):
                        self.error(BindingError, "a wildcard cannot stand in a head", argument.span)
                    terms.append(clause.expression(argument))
                self.rules.append(r.Clause(head.relation, tuple(terms), tuple(literals), item.span))

    def dynamic_tag(self, tag: Any, clause: _Clause, literals: list[r.Literal], item: Any) -> r.Atom:
        """A random fact for each value of the tag's variables, with the tag's value as its probability."""
        names = clause.group_variables(tag, set(_variables_of(tag)))
        columns = tuple(r.Var(n, clause.environment[n], item.span) for n in names)
        types = tuple(v.type for v in columns)
        body = self.new_relation("tag", (*types, F64))
        expression = clause.expression(tag)
        probability = r.Apply("cast", (expression,), F64)
        self.rules.append(r.Clause(body, (*columns, probability), tuple(literals), item.span))
        name = self.new_relation("choice", types)
        self.rules.append(r.BernoulliRule(name, body, item.span))
        return r.Atom(name, columns)

    def reduce_rule(self, item: s.ReduceRule) -> None:
        environment = dict(self.typed.variables(item))
        clause = _Clause(self, item, environment)
        aggregate = item.aggregate
        types = self.typed.relations[item.relation].types[len(aggregate.group) :]
        outputs = tuple(s.Variable(f"{item.relation}'{i}", span=item.span) for i in range(len(types)))
        clause.environment.update({v.name: t for v, t in zip(outputs, types)})
        atom = clause.aggregate(aggregate, outputs, set(aggregate.group))
        terms = tuple(clause.expression(s.Variable(g)) for g in aggregate.group)
        terms += tuple(clause.expression(v) for v in outputs)
        self.rules.append(r.Clause(item.relation, terms, (atom, *clause.extra), item.span))

    # Normal form

    def normal_form(self, node: Any, positive: bool) -> list[list[tuple[Any, bool]]]:
        """Disjuncts of (leaf, positive) pairs."""
        match node:
            case s.Not(operand=a):
                return self.normal_form(a, not positive)
            case s.Implies(condition=a, conclusion=b):
                return self.normal_form(s.Disjunction((s.Not(a), b), span=node.span), positive)
            case s.Conjunction(operands=parts) | s.Tuple(items=parts) | s.Disjunction(operands=parts):
                if isinstance(node, s.Disjunction) == positive:
                    return [d for part in parts for d in self.normal_form(part, positive)]
                product: list[list[tuple[Any, bool]]] = [[]]
                for part in parts:
                    options = self.normal_form(part, positive)
                    if len(product) * len(options) > MAX_CLAUSES:
                        self.error(
                            UnsupportedError,
                            f"this body has more than {MAX_CLAUSES} disjuncts",
                            node.span,
                            "name a part of it with an auxiliary relation",
                        )
                    product = [a + b for a in product for b in options]
                return product
        return [[(node, positive)]]


class _Clause:
    """One conjunctive body under construction: the environment of variable types and the equations it collects."""

    def __init__(self, owner: _Desugaring, item: Any, environment: Environment):
        self.owner = owner
        self.item = item
        self.environment = dict(environment)
        self.extra: list[r.Literal] = []
        self.binders: list[s.Atom] = []

    def body(self, leaves: list[tuple[Any, bool]], outer: set[str]) -> list[r.Literal]:
        """Literals of the leaves; `outer` are the variables that are used outside this body."""
        uses = [set(_variables_of(leaf)) for leaf, _ in leaves]
        literals: list[r.Literal] = []
        self.binders = [leaf for leaf, positive in leaves if positive and isinstance(leaf, s.Atom)]
        for i, (leaf, positive) in enumerate(leaves):
            elsewhere = outer.union(*(names for j, names in enumerate(uses) if j != i))
            literals += self.leaf(leaf, positive, elsewhere)
            literals += self.extra
            self.extra = []
        return literals

    def leaf(self, leaf: Any, positive: bool, elsewhere: set[str]) -> list[r.Literal]:
        match leaf:
            case s.Atom(relation=name, arguments=arguments):
                if positive:
                    return [r.Atom(name, self.atom_terms(name, arguments), leaf.span)]
                return [self.negated_atom(leaf, elsewhere)]
            case s.Aggregate(operator="exists" | "forall", outputs=None):
                return [self.quantifier(leaf, positive, elsewhere)]
            case s.Aggregate():
                if not positive:
                    self.owner.error(UnsupportedError, "an assigned aggregate cannot be negated", leaf.span)
                outputs = leaf.outputs or ()
                return [self.aggregate(leaf, outputs, elsewhere | {n for o in outputs for n in _variables_of(o)})]
            case s.InRange(variable=variable, low=low, high=high, inclusive=inclusive):
                a, b = self.expression(low), self.expression(high)
                v = self.expression(variable)
                if positive:
                    if not isinstance(v, r.Var):
                        fresh = self.fresh_variable(v.type, leaf.span)
                        self.extra.append(r.Filter(r.Apply("==", (fresh, v), BOOL), leaf.span))
                        v = fresh
                    return [r.Generate(v, a, b, inclusive, leaf.span)]
                inside = r.Apply(
                    "&&",
                    (r.Apply(">=", (v, a), BOOL), r.Apply("<=" if inclusive else "<", (v, b), BOOL)),
                    BOOL,
                )
                return [r.Filter(r.Apply("!", (inside,), BOOL), leaf.span)]
        condition = self.expression(leaf)
        return [r.Filter(condition if positive else r.Apply("!", (condition,), BOOL), leaf.span)]

    def fresh_variable(self, t: ValueType, span: Span) -> r.Var:
        name = self.owner.fresh("'")
        self.environment[name] = t
        return r.Var(name, t, span)

    def atom_terms(self, relation: str, arguments: tuple[Any, ...], keep_wildcards: bool = True) -> tuple:
        terms: list[r.Var | r.Const | None] = []
        for argument, t in zip(arguments, self.owner.typed.relations[relation].types):
            if isinstance(argument, s.Wildcard):
                terms.append(None if keep_wildcards else self.fresh_variable(t, argument.span))
                continue
            value = self.expression(argument)
            if isinstance(value, r.Apply):
                fresh = self.fresh_variable(t, argument.span)
                self.extra.append(r.Filter(r.Apply("==", (fresh, value), BOOL), argument.span))
                value = fresh
            terms.append(value)
        return tuple(terms)

    def negated_atom(self, leaf: s.Atom, elsewhere: set[str]) -> r.Literal:
        terms = self.atom_terms(leaf.relation, leaf.arguments)
        counts: dict[str, int] = {}
        for name in _variables_of(leaf):
            counts[name] = counts.get(name, 0) + 1
        # A variable that occurs nowhere else is existential under the negation.
        local = {t.name for t in terms if isinstance(t, r.Var) and t.name in counts and t.name not in elsewhere}
        if all(t is not None and not (isinstance(t, r.Var) and t.name in local) for t in terms):
            return r.Negated(leaf.relation, tuple(t for t in terms if t is not None), leaf.span)
        kept = tuple(dict.fromkeys(t for t in terms if isinstance(t, r.Var) and t.name not in local))
        name = self.owner.new_relation("not", tuple(t.type for t in kept))
        self.owner.rules.append(r.Clause(name, kept, (r.Atom(leaf.relation, terms, leaf.span),), leaf.span))
        return r.Negated(name, kept, leaf.span)

    def quantifier(self, leaf: s.Aggregate, positive: bool, elsewhere: set[str]) -> r.Literal:
        if leaf.group_body is not None:
            return self.aggregate(leaf, (r.Const(positive, BOOL),), elsewhere)
        body = leaf.body
        if leaf.operator == "forall":
            body, positive = s.Not(body, span=body.span), not positive
        local = {*leaf.bindings, *leaf.arguments}
        group = self.group_variables(body, elsewhere - local)
        # A group variable that the body does not bind is bound by the atoms next to the quantifier.
        bound = set.intersection(*(_bound_in(d) for d in self.owner.normal_form(body, True)))
        missing = set(group) - bound
        binders = tuple(atom for atom in self.binders if missing & set(_variables_of(atom)))
        if binders:
            body = s.Conjunction((*binders, body), span=body.span)
            group = self.group_variables(body, elsewhere - local)
        name = self.body_relation(leaf, body, group, ())
        terms = tuple(r.Var(n, self.environment[n], leaf.span) for n in group)
        return r.Atom(name, terms, leaf.span) if positive else r.Negated(name, terms, leaf.span)

    def group_variables(self, body: Any, elsewhere: set[str]) -> list[str]:
        """Variables of a body that are used elsewhere, in order of writing; named constants are none."""
        return [n for n in dict.fromkeys(_variables_of(body)) if n in elsewhere and n in self.environment]

    def body_relation(self, node: s.Aggregate, body: Any, group: list[str], values: tuple[str, ...]) -> str:
        """An auxiliary relation with columns [group..., values...] defined by the body of an aggregate."""
        environment = {**self.environment, **self.owner.typed.variables(node)}
        columns = [*group, *values]
        name = self.owner.new_relation(f"{node.operator}_body", tuple(environment[n] for n in columns))
        for disjunct in self.owner.normal_form(body, True):
            clause = _Clause(self.owner, self.item, environment)
            literals = clause.body(disjunct, set(columns))
            terms = tuple(r.Var(n, environment[n], node.span) for n in columns)
            self.owner.rules.append(r.Clause(name, terms, tuple(literals), node.span))
        return name

    def aggregate(self, node: s.Aggregate, outputs: tuple[Any, ...], elsewhere: set[str]) -> r.Atom:
        owner = self.owner
        operator, body = node.operator, node.body
        if operator == "forall":
            body = s.Not(body, span=body.span)
        local = {*node.bindings, *node.arguments}
        in_body = self.group_variables(body, elsewhere - local)
        groups = None
        if node.group_body is None:
            group = in_body
        else:
            in_group = self.group_variables(node.group_body, elsewhere)
            group = list(dict.fromkeys((*node.group, *in_group)))
            stray = [n for n in in_body if n not in group]
            if stray:
                owner.error(
                    BindingError,
                    f"variable `{stray[0]}` is used outside the aggregate, but is not a group variable",
                    node.span,
                    f"add it after `where`: `where {', '.join([*node.group, stray[0]])}: ...`",
                )
            groups = self.body_relation(node, node.group_body, group, ())
            bound = set.intersection(*(_bound_in(d) for d in owner.normal_form(body, True)))
            if not bound.issuperset(group):
                body = s.Conjunction((node.group_body, body), span=body.span)
        source = self.body_relation(node, body, group, (*node.arguments, *node.bindings))
        group_types = tuple(self.environment[n] for n in group)
        column_types = owner.relations[source].types[len(group) :]
        argument_types, value_types = column_types[: len(node.arguments)], column_types[len(node.arguments) :]
        result = tuple(AGGREGATES[operator].result_types(argument_types, value_types))
        name = owner.new_relation(operator, group_types + result)
        owner.rules.append(
            r.AggregateRule(
                name,
                operator,
                source,
                len(group),
                len(argument_types),
                len(value_types),
                groups,
                node.discrete,
                node.span,
            )
        )
        terms: list[r.Var | r.Const | None] = [r.Var(n, self.environment[n], node.span) for n in group]
        for output in outputs:
            value = None if isinstance(output, s.Wildcard) else self.expression(output)
            assert not isinstance(value, r.Apply)
            terms.append(value)
        return r.Atom(name, tuple(terms), node.span)

    def expression(self, node: Any) -> r.Expr:
        match node:
            case s.Constant(value=value):
                t = self.owner.typed.of(node)
                return r.Const(float(value) if t.family == "float" else value, t)
            case s.Variable(name=name):
                if name in self.environment:
                    return r.Var(name, self.environment[name], node.span)
                if name in self.owner.typed.constants:
                    return r.Const(*self.owner.typed.constants[name])
                self.owner.error(BindingError, f"variable `{name}` is not bound", node.span)
            case r.Const():
                return node
            case s.Wildcard():
                self.owner.error(BindingError, "a wildcard cannot stand in an expression", node.span)
            case s.Unary(operator=operator, operand=a):
                value = self.expression(a)
                return r.Apply("neg" if operator == "-" else operator, (value,), value.type)
            case s.Binary(operator=operator, left=a, right=b):
                return r.Apply(operator, (self.expression(a), self.expression(b)), self.owner.typed.of(node))
            case s.Conditional(condition=c, then=a, otherwise=b):
                parts = tuple(map(self.expression, (c, a, b)))
                return r.Apply("if", parts, parts[1].type)
            case s.Call(name=name, arguments=arguments):
                return r.Apply(f"${name}", tuple(map(self.expression, arguments)), self.owner.typed.of(node))
            case s.Cast(operand=a):
                return r.Apply("cast", (self.expression(a),), self.owner.typed.of(node))
        return self.owner.error(UnsupportedError, f"`{expression_text(node)}` cannot stand in an expression", node.span)


def _variables_of(node: Any) -> list[str]:
    """Names of variables of a formula, repeats included, without those local to aggregates inside."""
    if isinstance(node, s.Variable):
        return [node.name]
    if isinstance(node, s.Aggregate):
        local = {*node.bindings, *node.arguments}
        inner = [n for part in (node.body, node.group_body) if part is not None for n in _variables_of(part)]
        outputs = [n for o in node.outputs or () for n in _variables_of(o)]
        return outputs + [n for n in inner if n not in local] + [n for n in node.group if n not in local]
    return [n for child in s.children(node) for n in _variables_of(child)]


def _bound_in(disjunct: list[tuple[Any, bool]]) -> set[str]:
    """Variables in the positive atoms of one disjunct."""
    return {n for leaf, positive in disjunct if positive and isinstance(leaf, s.Atom) for n in _variables_of(leaf)}
