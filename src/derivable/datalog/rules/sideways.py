"""Sideways information passing: what is bound when a literal of a clause is asked, and what has been checked before.

A literal of a demanded relation is asked with the values of its bound columns. They come from the head (the clause is
itself asked), from constants, and from what is evaluated before: first everything that filters or computes, then the
atoms that share a variable with what is bound, then the demanded literals in order of writing. A demanded atom that
only adds values which the next one does not need is left out of what comes before it, so that the two recursive calls
of a tree's evaluation are asked in the same round; a condition is never left out, because recursion may end by it.

Source: Beeri and Ramakrishnan, "On the power of magic", 1991, section 3, where a strategy of passing is any partial
order of a body's literals.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from derivable.datalog.rules import nodes as r
from derivable.datalog.rules.literal_order import Ordering

Columns = tuple[int, ...]
# Relation -> the columns that it is asked with.
Patterns = Mapping[str, Columns]


@dataclass(frozen=True)
class Call:
    """A literal of a demanded relation, and the literals that are evaluated before it is asked."""

    literal: r.Atom | r.Negated
    before: tuple[r.Literal, ...]


@dataclass(frozen=True)
class Unbound:
    """A literal that cannot give its relation all the columns that this wants, and those that it can.

    Among calls it is one of a relation whose demand the program declares: it reads what is demanded elsewhere.
    """

    literal: r.Atom | r.Negated
    columns: Columns


def passing(
    body: Sequence[r.Literal],
    patterns: Patterns,
    is_asked: bool = False,
    flexible: Collection[str] = (),
    frugal: Collection[str] = (),
) -> list[Call | Unbound] | Unbound:
    """The calls of a body, and the literals that can be no calls.

    is_asked  whether the body begins with the guard of its head
    flexible  relations that may be asked with fewer columns than their pattern has, and
    frugal    those that are, rather than that unrelated atoms are multiplied to bind all

    Unbound alone says that a flexible relation must be demanded with fewer columns.
    """
    order = _Passing(body, patterns, flexible, frugal)
    if is_asked:
        order.take(0)
    return order.run()


class _Passing:
    def __init__(
        self, body: Sequence[r.Literal], patterns: Patterns, flexible: Collection[str], frugal: Collection[str]
    ):
        self.patterns, self.flexible, self.frugal = patterns, flexible, frugal
        self.ordering = Ordering(body)
        self.before: list[r.Literal] = []
        self.calls: list[Call | Unbound] = []

    def run(self) -> list[Call | Unbound] | Unbound:
        ordering = self.ordering
        while True:
            while (ready_literal := ordering.next_cheap()) is not None:
                self.take(ready_literal[0])
            atoms = [(i, a) for i, a in ordering.remaining.items() if isinstance(a, r.Atom)]
            others = [(i, a) for i, a in atoms if a.relation not in self.patterns]
            wanted = [(i, a) for i, a in atoms if a.relation in self.patterns]
            if not wanted and not any(map(self.is_negated_call, ordering.remaining.values())):
                return self.calls
            joined = next((i for i, a in others if self.is_joined(a)), None)
            if joined is not None:
                self.take(joined)
                continue
            ready = next((i for i, a in wanted if self.columns(a) == self.patterns[a.relation]), None)
            if ready is not None:
                self.take(ready)
                continue
            partly = next((a for _, a in wanted if a.relation in self.frugal and self.columns(a)), None)
            if partly:
                return Unbound(partly, self.columns(partly))
            if (ready_literal := ordering.next_generator()) is not None:
                self.take(ready_literal[0])
            elif others:
                # The one with the most constants; the first of equals.
                self.take(max(others, key=lambda candidate: sum(isinstance(t, r.Const) for t in candidate[1].terms))[0])
            elif (ready_literal := ordering.next_late()) is not None:
                self.take(ready_literal[0])
            elif wanted:
                whole = next((a for _, a in wanted if a.relation in self.flexible), None)
                if whole is not None:
                    return Unbound(whole, self.columns(whole))
                number, atom = wanted[0]
                self.calls.append(Unbound(atom, self.columns(atom)))
                self.take(number, is_call=False)
            else:
                return self.calls

    def is_negated_call(self, literal: r.Literal) -> bool:
        return isinstance(literal, r.Negated) and literal.relation in self.patterns

    def is_joined(self, atom: r.Atom) -> bool:
        """Whether an atom is related to what is bound, or has no variables."""
        names = r.names(atom)
        return not names or not names.isdisjoint(self.ordering.bound)

    def columns(self, atom: r.Atom) -> Columns:
        """Those of the columns of its relation's pattern that are bound."""
        terms, bound = atom.terms, self.ordering.bound
        return tuple(
            c
            for c in self.patterns[atom.relation]
            if (isinstance(term := terms[c], r.Var) and term.name in bound) or isinstance(term, r.Const)
        )

    def take(self, number: int, is_call: bool = True) -> None:
        """Evaluate a literal next, which demands something if its relation is demanded. An equation that is solved is
        evaluated too: what comes next may be demanded for the variable that it binds."""
        number = max(number, ~number)
        literal = self.ordering.remaining[number]
        if is_call and isinstance(literal, (r.Atom, r.Negated)) and literal.relation in self.patterns:
            names = {name for c in self.patterns[literal.relation] for name in r.names(literal.terms[c])}
            self.calls.append(Call(literal, _pruned(self.before, names, self.patterns)))
        self.ordering.take(number, literal)
        self.before.append(literal)


def evaluable(literals: Sequence[r.Literal]) -> tuple[list[r.Literal], set[str]]:
    """The literals that can be evaluated if all atoms can, in their order, and the variables that they bind."""
    ordering = Ordering(literals)
    for number, literal in enumerate(literals):
        if isinstance(literal, r.Atom):
            ordering.take(number, literal)
    while (ready_literal := ordering.next_cheap() or ordering.next_generator() or ordering.next_late()) is not None:
        ordering.take(*ready_literal)
    return [literal for i, literal in enumerate(literals) if i not in ordering.remaining], ordering.bound


def _pruned(before: Sequence[r.Literal], names: set[str], patterns: Patterns) -> tuple[r.Literal, ...]:
    """The literals without the definitions and the demanded atoms whose values nothing needs."""
    literals = list(before)
    changed = True
    while changed:
        changed = False
        for literal in reversed(literals):
            rest = [other for other in literals if other is not literal]
            elsewhere = names.union(*map(r.names, rest))
            if isinstance(literal, r.Atom) and literal.relation in patterns:
                fresh = r.names(literal) - evaluable(rest)[1]
                is_needed = not fresh or not fresh.isdisjoint(elsewhere)
            else:
                is_needed = not _defines(literal, elsewhere)
            if not is_needed:
                literals, changed = rest, True
    return tuple(literals)


def _defines(literal: r.Literal, elsewhere: set[str]) -> bool:
    """Whether a literal says what a variable is that occurs nowhere else."""
    return any(isinstance(v, r.Var) and v.name not in elsewhere | r.names(value) for v, value in r.sides(literal))
