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
from derivable.datalog.rules.literal_order import Define, Step, cheap_step, generator

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
    found = _Passing(body, patterns, flexible, frugal)
    if is_asked:
        found.take(0, body[0])
    return found.run()


class _Passing:
    def __init__(
        self, body: Sequence[r.Literal], patterns: Patterns, flexible: Collection[str], frugal: Collection[str]
    ):
        self.patterns, self.flexible, self.frugal = patterns, flexible, frugal
        self.remaining = list(enumerate(body))
        self.bound: set[str] = set()
        self.before: list[r.Literal] = []
        self.calls: list[Call | Unbound] = []

    def run(self) -> list[Call | Unbound] | Unbound:
        while True:
            self.compute()
            atoms = [(i, a) for i, a in self.remaining if isinstance(a, r.Atom)]
            others = [(i, a) for i, a in atoms if a.relation not in self.patterns]
            wanted = [(i, a) for i, a in atoms if a.relation in self.patterns]
            if not wanted and not any(self.is_asked(literal) for _, literal in self.remaining):
                return self.calls
            joined = next((place for place in others if self.is_joined(place[1])), None)
            if joined:
                self.take(*joined)
                continue
            ready = next(((i, a) for i, a in wanted if self.columns(a) == self.patterns[a.relation]), None)
            if ready:
                self.call(ready[1])
                self.take(*ready)
                continue
            partly = next((a for _, a in wanted if a.relation in self.frugal and self.columns(a)), None)
            if partly:
                return Unbound(partly, self.columns(partly))
            found = generator(self.remaining, self.bound)
            if found:
                self.take(*found)
                continue
            if others:
                # The one with the most constants; the first of equals.
                self.take(*max(others, key=lambda place: sum(isinstance(t, r.Const) for t in place[1].terms)))
                continue
            if (solved := cheap_step(self.remaining, self.bound, is_late=True)) is not None:
                self.take_solved(*solved)
                continue
            if wanted:
                whole = next((a for _, a in wanted if a.relation in self.flexible), None)
                if whole is not None:
                    return Unbound(whole, self.columns(whole))
                place, atom = wanted[0]
                self.calls.append(Unbound(atom, self.columns(atom)))
                self.take(place, atom)
                continue
            return self.calls

    def compute(self) -> None:
        """Everything that only filters or computes."""
        while (found := cheap_step(self.remaining, self.bound)) is not None:
            place, step = found
            if place < 0:
                self.take_solved(place, step)
                continue
            literal = next(literal for i, literal in self.remaining if i == place)
            if self.is_asked(literal):
                assert isinstance(literal, r.Negated)
                self.call(literal)
            self.take(place, literal)

    def is_asked(self, literal: r.Literal) -> bool:
        return isinstance(literal, r.Negated) and literal.relation in self.patterns

    def is_joined(self, atom: r.Atom) -> bool:
        """Whether an atom is related to what is bound, or has no variable of its own."""
        names = r.names(atom)
        return not names or not names.isdisjoint(self.bound)

    def columns(self, atom: r.Atom) -> Columns:
        """Those of the columns of its relation's pattern that are bound."""
        terms = atom.terms
        return tuple(
            c
            for c in self.patterns[atom.relation]
            if (isinstance(term := terms[c], r.Var) and term.name in self.bound) or isinstance(term, r.Const)
        )

    def take_solved(self, place: int, step: Step) -> None:
        """Take an equation that is solved: what is evaluated next may be demanded for the variable that it binds."""
        assert isinstance(step, Define)
        self.take(~place, next(literal for i, literal in self.remaining if i == ~place))

    def take(self, place: int, literal: r.Literal) -> None:
        self.remaining = [(i, other) for i, other in self.remaining if i != place]
        self.before.append(literal)
        self.bound |= r.names(literal)

    def call(self, literal: r.Atom | r.Negated) -> None:
        names = {name for c in self.patterns[literal.relation] for name in r.names(literal.terms[c])}
        self.calls.append(Call(literal, _pruned(self.before, names, self.patterns)))


def evaluable(literals: Sequence[r.Literal]) -> tuple[list[r.Literal], set[str]]:
    """The literals that can be evaluated if all atoms can, in their order, and the variables that they bind."""
    bound = set().union(*(r.names(literal) for literal in literals if isinstance(literal, r.Atom)))
    remaining: list[tuple[int, r.Literal]] = [
        (i, literal) for i, literal in enumerate(literals) if not isinstance(literal, r.Atom)
    ]
    while (
        found := cheap_step(remaining, bound)
        or generator(remaining, bound)
        or cheap_step(remaining, bound, is_late=True)
    ) is not None:
        place, step = found
        if place < 0 and isinstance(step, Define):
            bound.add(step.variable.name)
            continue
        bound |= r.names(literals[place])
        remaining = [(i, literal) for i, literal in remaining if i != place]
    lost = {i for i, _ in remaining}
    return [literal for i, literal in enumerate(literals) if i not in lost], bound


def _pruned(before: Sequence[r.Literal], names: set[str], patterns: Patterns) -> tuple[r.Literal, ...]:
    """The literals without the definitions and the demanded atoms whose values nothing needs."""
    kept = list(before)
    changed = True
    while changed:
        changed = False
        for literal in reversed(kept):
            rest = [other for other in kept if other is not literal]
            elsewhere = names.union(*map(r.names, rest))
            if isinstance(literal, r.Atom) and literal.relation in patterns:
                fresh = r.names(literal) - evaluable(rest)[1]
                is_needed = not fresh or not fresh.isdisjoint(elsewhere)
            else:
                is_needed = not _defines(literal, elsewhere)
            if not is_needed:
                kept, changed = rest, True
    return tuple(kept)


def _defines(literal: r.Literal, elsewhere: set[str]) -> bool:
    """Whether a literal says what a variable is that occurs nowhere else."""
    match literal:
        case r.Filter(condition=r.Apply(operator="==", operands=(a, b))):
            for variable, value in ((a, b), (b, a)):
                if isinstance(variable, r.Var) and variable.name not in elsewhere | r.names(value):
                    return True
    return False
