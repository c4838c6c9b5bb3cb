"""Conjunctive bodies: the leaves of a disjunct become literals."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from derivable.datalog.desugar.aggregates import Aggregates
from derivable.datalog.desugar.variables import made_terms, variables_of
from derivable.datalog.foreign.standard import PREDICATES
from derivable.datalog.rules import nodes as r
from derivable.datalog.syntax import nodes as s
from derivable.datalog.values.values import BOOL, ValueType


class Body(Aggregates):
    """One conjunctive body: literals in the order of writing, equations after the literal they come from."""

    def body(self, leaves: list[tuple[Any, bool]], outer: set[str]) -> list[r.Literal]:
        """Literals of the leaves; `outer` are the variables that are used outside this body."""
        self.outer = outer
        uses = [set(variables_of(leaf)) for leaf, _ in leaves]
        literals: list[r.Literal] = []
        self.binders = [leaf for leaf, positive in leaves if positive and _binds(leaf)]
        self.made = made_terms(self.binders)
        counts = Counter(name for names in uses for name in names)
        for (leaf, positive), names in zip(leaves, uses):
            elsewhere = outer | {name for name, count in counts.items() if count > (name in names)}
            literals += self.leaf(leaf, positive, elsewhere)
            literals += self.extra
            self.extra = []
        return literals

    def leaf(self, leaf: Any, positive: bool, elsewhere: set[str]) -> list[r.Literal]:
        match leaf:
            case s.Atom(relation=name) if name not in self.owner.typed.relations:
                return [self.generator(leaf, positive, elsewhere)]
            case s.Atom(relation=name, arguments=arguments):
                if positive:
                    return [r.Atom(name, self.atom_terms(name, arguments), leaf.span)]
                return [self.negated_atom(leaf, elsewhere)]
            case s.Case():
                return self.case(leaf, positive, elsewhere)
            case s.Binary(operator="==", left=a, right=b) if positive and self.is_pattern(b):
                return self.case(s.Case(a, b, span=leaf.span), True, elsewhere)
            case s.Binary(operator="==", left=a, right=b) if positive and self.is_pattern(a):
                return self.case(s.Case(b, a, span=leaf.span), True, elsewhere)
            case s.Aggregate(operator="exists" | "forall", outputs=None):
                return [self.quantifier(leaf, positive, self.outer if self.owner.compatible else elsewhere)]
            case s.Aggregate():
                outputs, before = leaf.outputs or (), len(self.extra)
                assigned = {n for o in outputs for n in variables_of(o)}
                around = self.outer if self.owner.compatible else elsewhere
                atom = self.aggregate(leaf, outputs, around | assigned)
                return [atom if positive else self.negated(atom, before, assigned - elsewhere)]
            case s.InRange(variable=variable, low=low, high=high, inclusive=inclusive):
                name, inputs = (
                    "range_inclusive" if inclusive else "range",
                    (self.expression(low), self.expression(high)),
                )
                output = self.term(variable, inputs[0].type, positive)
                return [r.Generate(name, inputs, (output,), (inputs[0].type,), not positive, leaf.span)]
        condition = self.expression(leaf)
        return [r.Filter(condition if positive else r.Apply("!", (condition,), BOOL), leaf.span)]

    def generator(self, leaf: s.Atom, positive: bool, elsewhere: set[str]) -> r.Generate:
        """An atom of a foreign predicate."""
        number = len(PREDICATES[leaf.relation].signature.parameters)
        inputs = tuple(self.expression(argument) for argument in leaf.arguments[:number])
        bound = elsewhere | {v.name for e in inputs for v in r.variables(e)}
        outputs: list[r.Var | r.Const | None] = []
        for argument in leaf.arguments[number:]:
            # A variable that occurs nowhere else is existential under a negation.
            name = argument.name if isinstance(argument, s.Variable) and argument.name in self.environment else None
            if isinstance(argument, s.Wildcard) or (not positive and name is not None and name not in bound):
                outputs.append(None)
            else:
                outputs.append(self.term(argument, self.owner.typed.of(argument), positive))
        types = tuple(self.owner.typed.of(argument) for argument in leaf.arguments[number:])
        return r.Generate(leaf.relation, inputs, tuple(outputs), types, not positive, leaf.span)

    def negated_atom(self, leaf: s.Atom, elsewhere: set[str]) -> r.Literal:
        open_patterns = {
            i: a for i, a in enumerate(leaf.arguments) if self.is_pattern(a) and self.is_open(a, elsewhere)
        }
        # A pattern of which all is known is a term.
        arguments = tuple(s.Wildcard() if i in open_patterns else a for i, a in enumerate(leaf.arguments))
        arguments = tuple(self.construct(a) if self.is_pattern(a) else a for a in arguments)
        before, local = len(self.extra), set(variables_of(leaf)) - elsewhere
        terms = list(self.atom_terms(leaf.relation, arguments, is_positive=False))
        if not open_patterns:
            return self.negated(r.Atom(leaf.relation, tuple(terms), leaf.span), before, local)
        outer = dict.fromkeys(t for t in terms if isinstance(t, r.Var) and t.name not in local)
        outside, self.extra = self.extra, []
        for i, pattern in open_patterns.items():
            terms[i] = self.match(pattern)
            shared = [n for n in variables_of(pattern) if n in elsewhere and n in self.environment]
            outer.update(dict.fromkeys(r.Var(n, self.environment[n], pattern.span) for n in shared))
        inside, self.extra = self.extra, outside
        name = self.owner.new_relation("not", tuple(t.type for t in outer))
        body = (r.Atom(leaf.relation, tuple(terms), leaf.span), *inside)
        self.owner.rules.append(r.Clause(name, tuple(outer), body, leaf.span))
        return r.Negated(name, tuple(outer), leaf.span)

    def negated(self, atom: r.Atom, before: int, local: set[str]) -> r.Negated:
        """The negation of an atom. Variables that occur nowhere else are existential under it.

        before  the equations from this one on belong to the atom
        local   the variables that occur nowhere else
        """
        equations = [equation for equation in self.extra[before:] if r.names(equation) & local]
        # The columns that these equations are about, which have names that begin with a quote.
        local = local | {n for equation in equations for n in r.names(equation) if n.startswith("'")}
        if all(t is not None and not (isinstance(t, r.Var) and t.name in local) for t in atom.terms):
            return r.Negated(atom.relation, tuple(t for t in atom.terms if t is not None), atom.span)
        self.extra = [equation for equation in self.extra if equation not in equations]
        outer = tuple(dict.fromkeys(t for t in atom.terms if isinstance(t, r.Var) and t.name not in local))
        name = self.owner.new_relation("not", tuple(t.type for t in outer))
        self.owner.rules.append(r.Clause(name, outer, (atom, *equations), atom.span))
        return r.Negated(name, outer, atom.span)

    def named(self, literals: Iterable[r.Literal]) -> list[r.Literal]:
        """The literals with a variable for each wildcard that stands for the values of different rows.

        The fields of a term are what they are, so a wildcard for one of them stays.
        """
        atoms: list[r.Literal] = []
        for literal in literals:
            if isinstance(literal, r.Atom) and literal.relation in self.terms_of:
                if literal.terms[0] is None:
                    term = self.fresh_variable(self.terms_of[literal.relation], literal.span)
                    literal = replace(literal, terms=(term, *literal.terms[1:]))
            elif isinstance(literal, r.Atom) and None in literal.terms:
                pairs = zip(literal.terms, self.owner.relations[literal.relation].types)
                terms = tuple(self.fresh_variable(t, literal.span) if term is None else term for term, t in pairs)
                literal = replace(literal, terms=terms)
            elif isinstance(literal, r.Generate) and not literal.negated and None in literal.outputs:
                pairs = zip(literal.outputs, literal.types)
                outputs = tuple(self.fresh_variable(t, literal.span) if o is None else o for o, t in pairs)
                literal = replace(literal, outputs=outputs)
            atoms.append(literal)
        return atoms

    @property
    def terms_of(self) -> dict[str, ValueType]:
        """The relations of the constructors, and the types of their terms."""
        return {constructor.relation: constructor.type for constructor in self.owner.typed.constructors.values()}

    def instance(self, literals: Sequence[r.Literal]) -> list[r.Var]:
        """The variables that tell the instances of a body apart, in order of writing.

        Those that equations define, and terms and fields of each other, follow from the rest. Those of the head that
        nothing binds come from demand, and tell instances apart too.
        """
        variables: dict[str, r.Var] = {}
        waiting: list[tuple[r.Var | r.Const | None, ...]] = []
        for literal in literals:
            if isinstance(literal, r.Atom) and literal.relation in self.terms_of:
                waiting.append(literal.terms)
            elif isinstance(literal, r.Atom):
                variables.update((v.name, v) for v in r.variables(literal))
            elif isinstance(literal, r.Generate) and not literal.negated:
                variables.update((t.name, t) for t in literal.outputs if isinstance(t, r.Var))
        bound = set(variables)
        while waiting:
            follows = (
                i for i, (e, *fields) in enumerate(waiting) if _are_bound([e], bound) or _are_bound(fields, bound)
            )
            index = next(follows, None)
            parts = waiting.pop(index or 0)
            if index is None and isinstance(parts[0], r.Var):
                variables[parts[0].name] = parts[0]
            bound |= {part.name for part in parts if isinstance(part, r.Var)}
        variables.update((name, r.Var(name, self.environment[name])) for name in self.demanded(literals, bound))
        return list(variables.values())

    def demanded(self, literals: Sequence[r.Literal], bound: set[str]) -> list[str]:
        """The variables of the head that no literal binds, and no equation defines by those in `bound`."""
        known = set(bound)
        equations = [r.names(e) for e in literals if isinstance(e, r.Filter) and _is_equation(e.condition)]
        while (define := next((names for names in equations if len(names - known) == 1), None)) is not None:
            known |= define
        return sorted(name for name in self.outer - known if name in self.environment)


def _is_equation(condition: r.Expr) -> bool:
    return isinstance(condition, r.Apply) and condition.operator == "=="


def _are_bound(parts: Sequence[r.Var | r.Const | None], bound: set[str]) -> bool:
    return all(isinstance(part, r.Const) or (isinstance(part, r.Var) and part.name in bound) for part in parts)


def _binds(leaf: Any) -> bool:
    """Whether a leaf may bind variables for an aggregate that stands next to it."""
    if isinstance(leaf, s.Binary):
        return leaf.operator == "=="
    return isinstance(leaf, (s.Atom, s.Case, s.InRange))
