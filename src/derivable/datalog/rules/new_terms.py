"""Terms that rules make become rows of their constructors' relations.

A term is there if it stands in a fact or in a tuple that was derived, or is part of one that is. So beside a rule like

    simple(e, new Const(a + b)) :- ...

there has to be

    #is_Const(e, x) :- simple(_, e), (e is Const), (x == Const.0(e))

and for a term inside another one, `new Neg(new Const(1))`, the same over the rows of `#is_Neg`. Which terms are there
does not depend on the order in which bodies are evaluated, because only heads make them. A term that a function or a
foreign predicate gives to a body, and that the body takes apart, gets a head for that:

    value(n) :- text(s), parse(s; e), eval(e, n)
has one more rule:
    #term_1(e) :- text(s), parse(s; e)
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from derivable.datalog.rules import nodes as r
from derivable.datalog.rules.destructure import taken_apart, without_cycles
from derivable.datalog.rules.sideways import evaluable
from derivable.datalog.values.terms import Entity, subterms
from derivable.datalog.values.values import ValueType

# Functors that a term may have which a rule makes, and (constructor, field, functor) for the terms inside it.
Made = tuple[set[str], set[tuple[str, int, str]]]


def with_terms(program: r.Rules) -> r.Rules:
    """The program with the rules for the terms that its rules make. It is the last pass over core rules."""
    if not program.constructors:
        return program
    program = _with_received(program)
    heads: dict[tuple[str, int, str], r.Clause] = {}
    nested: dict[tuple[str, int, str], r.Clause] = {}
    of_constructors = {c.relation for c in program.constructors.values()}
    mentioned = {term for facts in program.facts if facts.relation in of_constructors for term in facts.columns[0]}
    for rule in program.rules:
        if not isinstance(rule, r.Clause):
            continue
        making = _Making(program, mentioned, rule)
        for position, term in enumerate(rule.terms):
            if term.type.family == "entity":
                roots, inside = making.made(term)
                for functor in sorted(roots):
                    heads.setdefault((rule.relation, position, functor), rule)
                for key in sorted(inside):
                    nested.setdefault(key, rule)
    added = [_rule(program, relation, position, functor, rule) for (relation, position, functor), rule in heads.items()]
    for (outer, field, functor), rule in nested.items():
        added.append(_rule(program, program.constructors[outer].relation, field + 1, functor, rule))
    return without_cycles(replace(program, rules=(*program.rules, *added)))


def _with_received(program: r.Rules) -> r.Rules:
    """The program with a relation for the terms that each body gets from functions and predicates and does not pass on
    to its head."""
    relations, rules = dict(program.relations), list(program.rules)
    for rule in program.rules:
        if not isinstance(rule, r.Clause):
            continue
        passed = {name for term in rule.terms for name in r.names(term)}
        for giver, term in _received(rule):
            is_read = any(term.name in r.names(literal) for literal in rule.body if literal is not giver)
            body = _binding(rule, giver, term.name) if is_read and term.name not in passed else None
            if body is None:
                continue
            name = f"#term_{len(relations)}"
            relations[name] = r.Relation(name, (term.type,), is_hidden=True, is_certain=True, span=rule.span)
            rules.append(r.Clause(name, (term,), body, rule.span))
    return program if len(rules) == len(program.rules) else replace(program, relations=relations, rules=tuple(rules))


def _received(rule: r.Clause) -> Iterator[tuple[r.Literal, r.Var]]:
    """Literals of a body, and the terms that they have from functions and predicates."""
    for literal in rule.body:
        match literal:
            case r.Generate(outputs=outputs, negated=False, relation=None):
                yield from ((literal, v) for v in outputs if isinstance(v, r.Var) and v.type.family == "entity")
        for variable, value in r.sides(literal):
            if isinstance(variable, r.Var) and _is_anything(value):
                yield literal, variable


def _is_anything(e: r.Expr) -> bool:
    """Whether nothing is known of a term, because a function gives it."""
    return isinstance(e, r.Apply) and e.type.family == "entity" and e.operator.startswith(("$", "cast"))


def _binding(rule: r.Clause, giver: r.Literal, name: str) -> tuple[r.Literal, ...] | None:
    """The literals of a body from which a variable has its value, of which others may be more than these; None if they
    need the variable."""
    others = [
        one for one in rule.body if not isinstance(one, (r.Negated, r.RuleProbability)) and name not in r.names(one)
    ]
    needed, body = r.names(giver) - {name}, []
    while more := [one for one in others if one not in body and r.names(one) & needed]:
        body += more
        needed |= {n for one in more for n in r.names(one)}
    evaluated, bound = evaluable(body)
    return (*evaluated, giver) if r.names(giver) - {name} <= bound else None


def _definitions(rule: r.Clause) -> dict[str, list[r.Expr]]:
    """The expressions that variables of a clause are equal to."""
    definitions: dict[str, list[r.Expr]] = {}
    for literal in rule.body:
        for variable, value in r.sides(literal):
            if isinstance(variable, r.Var) and not isinstance(value, r.Const):
                definitions.setdefault(variable.name, []).append(value)
    return definitions


class _Making:
    """What one clause makes.

    mentioned  terms that the program mentions
    """

    def __init__(self, program: r.Rules, mentioned: set[Entity], rule: r.Clause):
        self.program, self.mentioned = program, mentioned
        self.definitions = _definitions(rule)
        self.unknown = {term.name for _, term in _received(rule)}

    def made(self, e: r.Expr, seen: frozenset[str] = frozenset()) -> Made:
        """What a term of the head may be that the clause makes."""
        match e:
            case r.Var(name=name, type=t) if name in self.unknown:
                return self.anything(t)
            case r.Var(name=name) if name not in seen:
                return _union(self.made(value, seen | {name}) for value in self.definitions.get(name, ()))
            case r.Apply(operator="if", operands=(_, a, b)):
                return _union((self.made(a, seen), self.made(b, seen)))
            case r.Apply(operator=operator, operands=operands) if operator.startswith("new "):
                functor, inside = operator[4:], set()
                for i, operand in enumerate(operands):
                    if operand.type.family == "entity":
                        roots, below = self.made(operand, seen)
                        inside |= below | {(functor, i, other) for other in roots}
                return {functor}, inside
            case r.Apply(operator="cast", operands=(a,)) if a.type.family == "entity":
                return self.made(a, seen)
            case r.Apply(type=t) if _is_anything(e):
                return self.anything(t)
            case r.Const(value=Entity() as term) if term not in self.mentioned:
                parts = [(t.functor, i, f.functor) for t in subterms([term]) for i, f in enumerate(t.fields)
                         if isinstance(f, Entity)]  # fmt: skip
                return {term.functor}, set(parts)
        return set(), set()

    def anything(self, t: ValueType) -> Made:
        """Any term of a type: nothing is known of what a function gives."""
        inside: set[tuple[str, int, str]] = set()
        for constructor in self.program.constructors.values():
            for i, field in enumerate(constructor.fields):
                if field.family == "entity":
                    inside.update((constructor.name, i, other) for other in self.of_type(field))
        return self.of_type(t), inside

    def of_type(self, t: ValueType) -> set[str]:
        return {c.name for c in self.program.constructors.values() if t.name in (c.type.name, "Entity")}


def _union(parts: Iterable[Made]) -> Made:
    roots: set[str] = set()
    inside: set[tuple[str, int, str]] = set()
    for more_roots, more_inside in parts:
        roots |= more_roots
        inside |= more_inside
    return roots, inside


def _rule(program: r.Rules, relation: str, position: int, functor: str, cause: r.Clause) -> r.Clause:
    """The rows of a constructor for the terms with its functor in a column of a relation."""
    constructor, width = program.constructors[functor], len(program.relations[relation].types)
    term = r.Var("e", program.relations[relation].types[position], cause.span)
    fields = [r.Var(f"x{i}", t, cause.span) for i, t in enumerate(constructor.fields)]
    atom = r.Atom(relation, tuple(term if c == position else None for c in range(width)), cause.span)
    body = (atom, *taken_apart(term, fields, constructor, cause.span))
    return r.Clause(constructor.relation, (term, *fields), body, cause.span)
