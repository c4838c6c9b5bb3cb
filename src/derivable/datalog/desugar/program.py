"""Desugaring: typed syntax to core rules.

Bodies go to disjunctive normal form, one clause a disjunct. Aggregates, quantifiers and negated atoms with local
variables become auxiliary relations; expressions in body atoms become equations; conjunctive heads one rule each;
a tagged rule gets a coin in its body; an atomic query a relation named by its text.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from derivable.core.diagnostics import BindingError, DomainError, Errors, Span, TypeMismatchError, UnsupportedError
from derivable.core.registry import suggestion
from derivable.datalog.desugar.body import Body
from derivable.datalog.desugar.facts import Constants
from derivable.datalog.desugar.scope import Environment
from derivable.datalog.desugar.variables import variables_of
from derivable.datalog.rules import nodes as r
from derivable.datalog.rules.attributes import checked
from derivable.datalog.rules.literal_order import order
from derivable.datalog.scalars.nodes import walk
from derivable.datalog.syntax import nodes as s
from derivable.datalog.syntax.parse import as_written
from derivable.datalog.syntax.text import excerpt, expression_text
from derivable.datalog.types import Typed
from derivable.datalog.types.conversion import as_real, core_tag
from derivable.datalog.types.data_types import is_term
from derivable.datalog.values.terms import Entity, atom_text, subterms
from derivable.datalog.values.values import BOOL, F64, USIZE


def desugar(typed: Typed, compatible: bool = False) -> r.Rules:
    """Core rules of a typed program. Raises BindingError and UnsupportedError with their span.

    compatible  whether an aggregate has the variables of the rule's head alone as group variables, as in Scallop, and
                not those that the rest of the body uses too
    """
    return Desugaring(typed, compatible).run()


class Desugaring(Constants):
    """The items of one program, one after the other."""

    def __init__(self, typed: Typed, compatible: bool):
        super().__init__(typed)
        self.compatible = compatible
        self.goal: tuple[str, Span] | None = None
        self.queries: list[r.Query] = []
        self.evidence: list[r.Evidence] = []
        # Terms that queries ask for: a term that is asked for is there.
        self.asked: list[Entity] = []

    # Items

    def run(self) -> r.Rules:
        errors = Errors()
        for item in self.syntax.items:
            with errors:
                self.attributes(item)
        for item in self.syntax.items:
            with errors:
                self.item(item)
        self.term_facts()
        outputs = [query.output for query in self.queries]
        if not outputs:
            outputs = [name for name, relation in self.relations.items() if not relation.is_hidden]
        program = r.Rules(
            self.relations,
            tuple(self.facts),
            tuple(self.rules),
            tuple(dict.fromkeys(outputs)),
            self.syntax.text,
            self.syntax.source,
            tuple(self.queries),
            self.typed.constructors,
            tuple(self.evidence),
            tuple(self.parameters),
            self.syntax.functions,
        )
        for rule in self.rules:
            if isinstance(rule, r.Clause):
                with errors:
                    order(rule, program)
        errors.report()
        return program

    def term_facts(self) -> None:
        """The terms that the program mentions, as facts of their constructors' relations."""
        for constructor in self.typed.constructors.values():
            types = (constructor.type, *constructor.fields)
            self.relations[constructor.relation] = r.Relation(
                constructor.relation, types, is_hidden=True, span=constructor.span, is_certain=True
            )
        mentioned = [value for value, _ in self.typed.constants.values() if isinstance(value, Entity)]
        # A column has values of one type.
        with_terms = [facts for facts in self.facts if any(isinstance(c[0], Entity) for c in facts.columns)]
        mentioned += [v for facts in with_terms for row in facts.rows for v in row if isinstance(v, Entity)]
        mentioned += self.asked
        rows: dict[str, list[tuple[Any, ...]]] = {}
        for term in subterms(mentioned):
            rows.setdefault(term.functor, []).append((term, *term.fields))
        for name, constructor in self.typed.constructors.items():
            if name in rows:
                columns = tuple(zip(*rows[name]))
                self.facts.append(r.Facts(constructor.relation, columns, len(rows[name]), span=constructor.span))

    def item(self, item: s.Item) -> None:
        match item:
            case s.FactSet():
                self.fact_set(item)
            case s.FactTable():
                self.fact_table(item)
            case s.Rule():
                self.rule(item)
            case s.ReduceRule():
                self.reduce_rule(item)
            case s.Query():
                self.queries.append(self.query(item))
            case s.Evidence():
                self.observed(item)

    def attributes(self, item: s.Item) -> None:
        kinds = {s.RelationType: "type", s.FunctionType: "type", s.Query: "query"}
        for written in getattr(item, "attributes", ()):
            attribute = checked(self.syntax, written, kinds.get(type(item), "rel"))
            names = [head.relation for head in item.heads] if isinstance(item, s.Rule) else []
            if isinstance(item, (s.FactSet, s.FactTable, s.ReduceRule, s.Query)):
                names = [item.relation]
            elif isinstance(item, s.RelationType):
                names = [item.name]
            if isinstance(item, s.Query) and attribute.name != "goal":
                continue
            for name in names:
                self.attribute(name, attribute)
        if isinstance(item, s.RelationType) and any(column.adornment == "bound" for column in item.columns):
            pattern = "".join("b" if column.adornment == "bound" else "f" for column in item.columns)
            self.demand(item.name, pattern, item.span)

    def attribute(self, name: str, attribute: r.Attribute) -> None:
        """What an attribute means for a relation."""
        relation = self.relations.get(name)
        if relation is None:
            return
        match attribute.name:
            case "hidden":
                self.relations[name] = replace(relation, is_hidden=True)
            case "goal":
                if relation.types:
                    count = len(relation.types)
                    self.error(
                        TypeMismatchError,
                        f"the goal `{name}` has {count} column{'s' if count != 1 else ''}",
                        attribute.span,
                        f"a goal is nullary: `@goal rel found() = {name}({', '.join('_' * count)})`",
                    )
                if self.goal is not None and self.goal[0] != name:
                    self.error(
                        BindingError,
                        f"`{name}` is a second goal",
                        attribute.span,
                        f"the goal is `{self.goal[0]}`, on {self.goal[1].location}; a program has one",
                    )
                self.goal = name, attribute.span
                self.relations[name] = replace(relation, is_goal=True)
            case "demand":
                self.demand(name, dict(attribute.arguments)["pattern"], attribute.span)
            case "file":
                self.relations[name] = replace(relation, attributes=(*relation.attributes, attribute))

    def demand(self, name: str, pattern: str, span: Span) -> None:
        relation = self.relations[name]
        if set(pattern) - set("bf"):
            hint = 'such as "bf": the first column is bound, the second is free'
            self.error(DomainError, f"the demand pattern {pattern!r} is not made of `b` and `f`", span, hint)
        if len(pattern) != len(relation.types):
            count = len(relation.types)
            self.error(
                TypeMismatchError,
                f"the demand pattern {pattern!r} is for {len(pattern)} columns, `{name}` has {count}",
                span,
                "it has one letter a column, `b` for bound and `f` for free",
            )
        if relation.lattice is not None and pattern[-1:] == "b":
            hint = "a query of a lattice binds other columns than its value: end the pattern with `f`"
            self.error(UnsupportedError, f"`{name}` is asked by the column of its lattice", span, hint)
        if relation.demand not in (None, pattern):
            self.error(
                BindingError,
                f"`{name}` has the demand patterns {relation.demand!r} and {pattern!r}",
                span,
                "a relation has one demand pattern; remove one, or split the relation",
            )
        self.relations[name] = replace(relation, demand=pattern)

    def query(self, item: s.Query) -> r.Query:
        attributes = tuple(checked(self.syntax, attribute, "query") for attribute in item.attributes)
        if item.arguments is None:
            if item.relation not in self.relations:
                known = [n for n, relation in self.relations.items() if not relation.is_hidden]
                hint = suggestion(item.relation, known, "declare it with `type`, or define it with `rel`")
                self.error(BindingError, f"unknown relation `{item.relation}`", item.span, hint)
            return r.Query(item.relation, item.relation, None, attributes, item.span)
        name = f"{item.relation}({', '.join(map(expression_text, item.arguments))})"
        clause = Body(self, item, dict(self.typed.variables(item)))
        terms = clause.atom_terms(item.relation, item.arguments, keep_wildcards=False)
        self.asked += [t.value for t in terms if isinstance(t, r.Const) and isinstance(t.value, Entity)]
        pattern = "".join("b" if isinstance(term, r.Const) else "f" for term in terms)
        if name not in self.relations:
            self.relations[name] = r.Relation(name, self.typed.relations[item.relation].types)
            body = (r.Atom(item.relation, terms, item.span), *clause.extra)
            self.rules.append(r.Clause(name, tuple(t for t in terms if t is not None), body, item.span))
        return r.Query(name, item.relation, pattern, attributes, item.span)

    def observed(self, item: s.Evidence) -> None:
        types = self.typed.relations[item.relation].types
        row = tuple(self.constant(a, t) for a, t in zip(item.arguments, types))
        if any(value is None for value in row):
            hint = "compute the value in a rule, and observe its head"
            self.error(UnsupportedError, "the arguments of evidence are constants", item.span, hint)
        self.asked += [value for value in row if isinstance(value, Entity)]
        self.evidence.append(r.Evidence(item.relation, row, item.is_true, item.span))

    def fact_set(self, item: s.FactSet) -> None:
        if item.exclusive and all(fact.tag is None for fact in item.facts):
            heads = tuple(s.Atom(item.relation, fact.arguments, span=fact.span) for fact in item.facts)
            self.rule(s.Rule(heads, None, exclusive_heads=True, span=item.span))
            return
        types = self.typed.relations[item.relation].types
        rows: list[tuple[Any, ...]] = []
        tags: list[float | bool | None] = []
        tag_spans: dict[int, Span] = {}
        parameters: dict[int, int] = {}
        shares = self.shares([fact.tag for fact in item.facts], item.span) if item.exclusive else ()
        for number, fact in enumerate(item.facts):
            values = [self.constant(a, t) for a, t in zip(fact.arguments, types)]
            tag = shares[number] if item.exclusive else None if fact.tag is None else self.tag_value(fact.tag)
            if any(v is None for v in values):
                if item.exclusive:
                    self.error(UnsupportedError, "an exclusive fact needs constant values", fact.span)
                self.clauses([s.Atom(item.relation, fact.arguments, span=fact.span)], None, {}, item, fact.tag)
                continue
            if tag is not None and fact.tag is not None and not 0.0 <= tag <= 1.0:
                tag_spans[len(rows)] = fact.tag.span
            parameter = self.parameter_of_fact(fact.tag, atom_text(item.relation, values))
            if parameter is not None:
                parameters[len(rows)] = parameter
            rows.append(tuple(values))
            tags.append(tag)
        if rows:
            columns = tuple(zip(*rows))
            self.add_facts(item.relation, columns, len(rows), tags, item.exclusive, item.span, tag_spans, parameters)

    def fact_table(self, item: s.FactTable) -> None:
        tags, tag_spans = item.tags, {}
        if tags is not None and not all(0.0 <= tag <= 1.0 for tag in tags):
            nodes: list[Any] = []
            for written in as_written(item):
                nodes += [fact.tag for fact in written.facts] if isinstance(written, s.FactSet) else []
                nodes += [written.tag] if isinstance(written, s.Rule) else []
            tag_spans = {i: node.span for i, (tag, node) in enumerate(zip(tags, nodes)) if not 0.0 <= tag <= 1.0}
        types = self.typed.relations[item.relation].types
        columns = [tuple(map(float, c)) if t.family == "float" else c for c, t in zip(item.columns, types)]
        self.add_facts(item.relation, columns, len(columns[0]), tags or (), item.exclusive, item.span, tag_spans)

    def rule(self, item: s.Rule) -> None:
        environment = dict(self.typed.variables(item))
        if item.head_tags:
            self.weighted_heads(item, environment)
            return
        if item.exclusive_heads and len(item.heads) > 1:
            self.exclusive_heads(item, environment)
            return
        if item.body is None and all(self.is_constant(a) for head in item.heads for a in head.arguments):
            tag = None if item.tag is None else self.tag_value(item.tag)
            for head in item.heads:
                types = self.typed.relations[head.relation].types
                row = tuple(self.constant(a, t) for a, t in zip(head.arguments, types))
                parameter = self.parameter_of_fact(item.tag, atom_text(head.relation, row))
                parameters = {} if parameter is None else {0: parameter}
                columns, tag_spans = [(value,) for value in row], self.tag_span_of(item.tag)
                self.add_facts(head.relation, columns, 1, [tag], False, item.span, tag_spans, parameters)
            return
        self.clauses(list(item.heads), item.body, environment, item, item.tag)

    def weighted_heads(self, item: s.Rule, environment: Environment) -> None:
        """For each instance of the body, a choice of one of the heads, or of none, with these probabilities."""
        values = [float(value) for value in self.shares(item.head_tags, item.span)]
        total = sum(values)
        if not all(0.0 <= value <= 1.0 for value in values) or total > 1.0 + 1e-3:
            message = f"the probabilities of the {len(values)} heads of a choice add up to {total:.10g}"
            hint = "they are between 0 and 1, and add up to at most 1"
            self.error(DomainError, message, item.head_tags[0].span, hint)
        scale = max(total, 1.0)
        if item.tag is not None:
            # Whether there is a choice at all.
            scale /= self.tag_value(item.tag)
            if isinstance(item.tag, s.Tunable):
                hint = "tune the probabilities of the heads: what they leave is that of none of them"
                self.error(UnsupportedError, "a choice of heads has no tunable probability", item.tag.span, hint)
        below = "" if item.body is None else f" = {excerpt(self.syntax.text, item.body.span)}"
        texts = [f"{excerpt(self.syntax.text, head.span)}{below}" for head in item.heads]
        numbers = [self.parameter(tag, text) for tag, text in zip(item.head_tags, texts)]
        options = tuple((value / scale, number) for value, number in zip(values, numbers))
        for clause, literals, _ in self.bodies(list(item.heads), item.body, environment, item, None):
            coin = self.coin(item.head_tags[0], clause, literals, item)
            key = tuple(term for term in coin.key if isinstance(term, r.Var))
            by = tuple(self.positions(tag, key) for tag in item.head_tags)
            for option, head in enumerate(item.heads):
                chosen = replace(
                    coin,
                    probability=r.Const(options[option][0], F64),
                    options=options,
                    option=option,
                    span=item.head_tags[option].span,
                    text=texts[option],
                    by=by,
                )
                self.head_clause(head, clause, tuple(literals), item, item.body, chosen)

    def exclusive_heads(self, item: s.Rule, environment: Environment) -> None:
        """For each instance of the body, a choice of one of the heads: the aggregate `disjunct` over their numbers."""
        wanted = dict.fromkeys(v for head in item.heads for v in variables_of(head) if v in environment)
        spans = {v.name: v.span for head in reversed(item.heads) for v in walk(head) if isinstance(v, s.Variable)}
        for clause, literals, coin in self.bodies(list(item.heads), item.body, environment, item, item.tag):
            named = tuple(clause.named((*literals, *clause.extra)))
            instance = {v.name: v for v in clause.instance(named)}
            # What follows from the instance adds no rows.
            instance |= {name: r.Var(name, environment[name], spans[name]) for name in wanted}
            terms = tuple(instance.values())
            types = tuple(term.type for term in terms)
            body, options, chosen = (
                self.new_relation(stem, columns)
                for stem, columns in (("heads_body", types), ("heads", (*types, USIZE)), ("disjunct", (*types, USIZE)))
            )
            self.rules.append(r.Clause(body, terms, named if coin is None else (*named, coin), item.span))
            rows = r.Atom(body, terms, item.span)
            for number in range(len(item.heads)):
                self.rules.append(r.Clause(options, (*terms, r.Const(number, USIZE)), (rows,), item.span))
            self.rules.append(r.AggregateRule(chosen, "disjunct", options, 0, len(terms), 1, span=item.span))
            for number, head in enumerate(item.heads):
                choice = r.Atom(chosen, (*terms, r.Const(number, USIZE)), item.span)
                self.head_clause(head, Body(self, item, environment), (choice,), item, item.body)

    def head_clause(
        self,
        head: s.Atom,
        clause: Body,
        literals: tuple[r.Literal, ...],
        item: Any,
        body: Any,
        coin: r.RuleProbability | None = None,
    ) -> None:
        terms = []
        for argument in head.arguments:
            if isinstance(argument, s.Wildcard):
                self.error(BindingError, "a wildcard cannot stand in a head", argument.span)
            # A rule takes terms apart that are there; `new`, and a fact without variables and wildcards, makes them.
            if clause.is_pattern(argument) and (body is not None or clause.is_open(argument, set())):
                terms.append(clause.match(argument))
            else:
                terms.append(clause.expression(argument))
        literals = (*literals, *clause.extra)
        clause.extra = []
        if coin is not None:
            literals = tuple(clause.named(literals))
            key = tuple(clause.instance(literals))
            if key != coin.key:
                if coin.options:
                    hint = "take the term apart in a separate rule"
                    self.error(UnsupportedError, "a head of a choice takes a term apart", head.span, hint)
                # A pattern of the head has separate values: these are instances that other heads have not.
                coin = replace(coin, name=f"#{self.fresh('coin_')}", key=key)
            literals = (*literals, coin)
        self.rules.append(r.Clause(head.relation, tuple(terms), literals, item.span))

    def is_constant(self, node: Any) -> bool:
        if is_term(node, self.typed.constructors):
            return all(map(self.is_constant, node.arguments))
        return isinstance(node, s.Constant) or (isinstance(node, s.Variable) and node.name in self.typed.constants)

    def clauses(self, heads: list[s.Atom], body: Any, environment: Environment, item: Any, tag: Any) -> None:
        for clause, literals, coin in self.bodies(heads, body, environment, item, tag):
            for head in heads:
                self.head_clause(head, clause, tuple(literals), item, body, coin)

    def bodies(
        self, heads: list[s.Atom], body: Any, environment: Environment, item: Any, tag: Any
    ) -> Iterator[tuple[Body, list[r.Literal], r.RuleProbability | None]]:
        """The literals of each disjunct of a body, each with a separate coin if there is a tag."""
        disjuncts = [[]] if body is None else self.normal_form(body, True)
        head_variables = {v for head in heads for v in variables_of(head)}
        if tag is not None and self.fold(tag) is None:
            head_variables |= set(variables_of(tag))
        for disjunct in disjuncts:
            clause = Body(self, item, environment)
            literals = clause.body(disjunct, head_variables)
            yield clause, literals, None if tag is None else self.coin(tag, clause, literals, item)

    def coin(self, tag: Any, clause: Body, literals: list[r.Literal], item: Any) -> r.RuleProbability:
        """The random facts of the instances of a tagged body, whose wildcards get names: each row is an instance.

        Heads of one instance share its coin.
        """
        value = clause.tag(tag)
        kind = "chance" if value.type is BOOL else "tag"
        if core_tag(tag, self.typed) is not None:
            value = r.Const(self.tag_value(tag), F64)
        else:
            value = as_real(value)
        literals[:] = clause.named((*literals, *clause.extra))
        clause.extra = []
        name, key = f"#{self.fresh('coin_')}", tuple(clause.instance(literals))
        text = excerpt(self.syntax.text, item.span, tag.span)
        parameter = None if isinstance(item, s.Rule) and item.head_tags else self.parameter(tag, text)
        by = () if parameter is None else (self.positions(tag, key),)
        return r.RuleProbability(name, key, value, kind, tag.span, parameter, text=text, by=by)

    def positions(self, tag: Any, key: tuple[r.Var, ...]) -> tuple[int, ...]:
        """Where in a key, counted from its end, the variables are for each of whose values a probability is learned."""
        positions = []
        by_name = {variable.name: position - len(key) for position, variable in enumerate(key)}
        for variable in tag.by if isinstance(tag, s.Tunable) else ():
            if variable.name not in by_name:
                hint = f"the body binds {', '.join(by_name)}" if by_name else "the body binds no variable"
                message = f"`{variable.name}` has no value of its own in the instances of the rule"
                self.error(BindingError, message, variable.span, hint)
            positions.append(by_name[variable.name])
        return tuple(positions)

    def reduce_rule(self, item: s.ReduceRule) -> None:
        environment = dict(self.typed.variables(item))
        clause = Body(self, item, environment)
        aggregate = item.aggregate
        types = self.typed.relations[item.relation].types[len(aggregate.group) :]
        outputs = tuple(s.Variable(f"{item.relation}'{i}", span=item.span) for i in range(len(types)))
        clause.environment.update({v.name: t for v, t in zip(outputs, types)})
        atom = clause.aggregate(aggregate, outputs, set(aggregate.group))
        terms = tuple(clause.expression(s.Variable(g)) for g in aggregate.group)
        terms += tuple(clause.expression(v) for v in outputs)
        self.rules.append(r.Clause(item.relation, terms, (atom, *clause.extra), item.span))
