"""Conjunctive bodies: the leaves of a disjunct become literals."""

from __future__ import annotations

from collections import Counter
from typing import Any

from derivable.datalog.desugar.aggregates import Aggregates
from derivable.datalog.desugar.variables import variables_of
from derivable.datalog.foreign.standard import PREDICATES
from derivable.datalog.rules import nodes as r
from derivable.datalog.syntax import nodes as s
from derivable.datalog.values import BOOL


class Body(Aggregates):
    """One conjunctive body: literals in the order of writing, equations after the literal they come from."""

    def body(self, leaves: list[tuple[Any, bool]], outer: set[str]) -> list[r.Literal]:
        """Literals of the leaves; `outer` are the variables that are used outside this body."""
        uses = [set(variables_of(leaf)) for leaf, _ in leaves]
        literals: list[r.Literal] = []
        self.binders = [leaf for leaf, positive in leaves if positive and _binds(leaf)]
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
                return [self.case(leaf, positive, elsewhere)]
            case s.Binary(operator="==", left=a, right=b) if positive and self.is_pattern(b):
                return [self.case(s.Case(a, b, span=leaf.span), True, elsewhere)]
            case s.Binary(operator="==", left=a, right=b) if positive and self.is_pattern(a):
                return [self.case(s.Case(b, a, span=leaf.span), True, elsewhere)]
            case s.Aggregate(operator="exists" | "forall", outputs=None):
                return [self.quantifier(leaf, positive, elsewhere)]
            case s.Aggregate():
                outputs, before = leaf.outputs or (), len(self.extra)
                assigned = {n for o in outputs for n in variables_of(o)}
                atom = self.aggregate(leaf, outputs, elsewhere | assigned)
                return [atom if positive else self.negated(atom, before, assigned - elsewhere)]
            case s.InRange(variable=variable, low=low, high=high, inclusive=inclusive):
                name, inputs = (
                    "range_inclusive" if inclusive else "range",
                    (self.expression(low), self.expression(high)),
                )
                output = self.term(variable, inputs[0].type)
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
                outputs.append(self.term(argument, self.owner.typed.of(argument)))
        types = tuple(self.owner.typed.of(argument) for argument in leaf.arguments[number:])
        return r.Generate(leaf.relation, inputs, tuple(outputs), types, not positive, leaf.span)

    def negated_atom(self, leaf: s.Atom, elsewhere: set[str]) -> r.Literal:
        own = {i: a for i, a in enumerate(leaf.arguments) if self.is_pattern(a) and self.is_open(a, elsewhere)}
        # A pattern of which all is known is a term.
        arguments = tuple(s.Wildcard() if i in own else a for i, a in enumerate(leaf.arguments))
        arguments = tuple(self.construct(a) if self.is_pattern(a) else a for a in arguments)
        before, local = len(self.extra), set(variables_of(leaf)) - elsewhere
        terms = list(self.atom_terms(leaf.relation, arguments))
        if not own:
            return self.negated(r.Atom(leaf.relation, tuple(terms), leaf.span), before, local)
        kept = dict.fromkeys(t for t in terms if isinstance(t, r.Var) and t.name not in local)
        outside, self.extra = self.extra, []
        for i, pattern in own.items():
            terms[i] = self.match(pattern)
            shared = [n for n in variables_of(pattern) if n in elsewhere and n in self.environment]
            kept.update(dict.fromkeys(r.Var(n, self.environment[n], pattern.span) for n in shared))
        inside, self.extra = self.extra, outside
        name = self.owner.new_relation("not", tuple(t.type for t in kept))
        body = (r.Atom(leaf.relation, tuple(terms), leaf.span), *inside)
        self.owner.rules.append(r.Clause(name, tuple(kept), body, leaf.span))
        return r.Negated(name, tuple(kept), leaf.span)

    def negated(self, atom: r.Atom, before: int, local: set[str]) -> r.Negated:
        """The negation of an atom. Variables that occur nowhere else are existential under it.

        before  the equations from this one on belong to the atom
        local   the variables that occur nowhere else
        """
        equations = [equation for equation in self.extra[before:] if r.names(equation) & local]
        # The columns that these equations are about, which have names of their own.
        local = local | {n for equation in equations for n in r.names(equation) if n.startswith("'")}
        if all(t is not None and not (isinstance(t, r.Var) and t.name in local) for t in atom.terms):
            return r.Negated(atom.relation, tuple(t for t in atom.terms if t is not None), atom.span)
        self.extra = [equation for equation in self.extra if equation not in equations]
        kept = tuple(dict.fromkeys(t for t in atom.terms if isinstance(t, r.Var) and t.name not in local))
        name = self.owner.new_relation("not", tuple(t.type for t in kept))
        self.owner.rules.append(r.Clause(name, kept, (atom, *equations), atom.span))
        return r.Negated(name, kept, atom.span)


def _binds(leaf: Any) -> bool:
    """Whether a leaf may bind variables for an aggregate that stands next to it."""
    if isinstance(leaf, s.Binary):
        return leaf.operator == "=="
    return isinstance(leaf, (s.Atom, s.Case, s.InRange))
