"""Recursions that close a relation to an equivalence, as union-find does, in any spelling.

A rule stays within an equivalence if its atoms connect the variables of its head: `e(x, z) :- e(x, y), e(z, y)` derives
no pair outside the classes of the base pairs. If all rules do so, and they reach all of it, the recursion ends in the
equivalence. From `base`, the pairs before the recursion, they do:

- with `e(x, z) :- e(x, y), e(y, z)`, its atoms turned or not, if `e(x, y) :- e(y, x)` is a rule too or `base` is
  symmetric: by induction over the length of a path, whose last step is in `base` in both directions;
- with `e(x, z) :- e(x, y), e(z, y)`, if all second members are first ones, or `e(x, x) :- e(_, x)` makes them such:
  from (a, b) follows (a, a), so (b, b) holds, and from (b, b) and (a, b) follows (b, a). Columns may be swapped;
- with `e(x, z) :- e(x, y), step(y, z)`, if `step` is symmetric, its nodes are first members of `base`, and each pair of
  `base` lies in a class of `step`: row x of `e` gets the class of x. Columns may be swapped.

A value that is in no pair but that with itself is alone in its class: nothing is reflexive that no rule made so.
"""

from __future__ import annotations

from dataclasses import dataclass

from derivable.datalog.ram import nodes as m
from derivable.datalog.rules.nodes import Atom, Clause
from derivable.datalog.scalars.nodes import Const, Var


@dataclass(frozen=True)
class Equivalence:
    """What the rules of a recursion over pairs say.

    is_symmetric   whether rules turn all pairs
    is_transitive  whether a rule joins pairs with pairs
    meeting        columns whose values make all nodes equal to themselves if they are in the other column as well
    extended       the columns of members to which rules join steps of `steps`
    steps          other relations, which connect the variables of a head
    """

    relation: str
    is_symmetric: bool
    is_transitive: bool
    meeting: frozenset[int]
    extended: frozenset[int]
    steps: frozenset[str]


def equivalence_of(stratum: m.Stratum) -> Equivalence | None:
    """What the recursion of a stratum says, if its rules stay within an equivalence and can reach all of it."""
    if len(stratum.relations) != 1 or any(store.origin is None for store in stratum.loop):
        return None
    (relation,) = stratum.relations
    clauses = {id(store.origin.clause): store.origin.clause for store in stratum.loop if store.origin is not None}
    is_symmetric = is_transitive = has_step = False
    meeting, reflexive, extended, steps = set[int](), set[int](), set[int](), set[str]()
    for clause in clauses.values():
        connecting = _connecting(clause)
        if connecting is None:
            return None
        steps |= connecting
        x, z = (term.name for term in clause.terms if isinstance(term, Var))
        pairs = [pair for literal in clause.body if (pair := _pair(literal)) is not None]
        if len(clause.body) == 1 and x == z:
            reflexive |= _only_column(clause.body[0], x)
        elif len(pairs) < len(clause.body):
            continue
        elif len(pairs) == 1:
            is_symmetric |= pairs[0][1] == (z, x)
        elif len(pairs) == 2 and (y := _middle({x, z}, pairs[0][1], pairs[1][1])) is not None:
            pairs_of = [terms for name, terms in pairs if name == relation]
            if len(pairs_of) == 2:
                is_transitive = True
                meeting |= {c for c in (0, 1) if pairs_of[0][c] == pairs_of[1][c] == y}
            else:
                has_step = True
                extended |= {c for c, name in enumerate((x, z)) if pairs_of[0][c] == name}
    is_symmetric |= bool(meeting & reflexive)
    if has_step and is_symmetric:
        extended = {0, 1}
    if not is_transitive and (len(steps) != 1 or not extended):
        return None
    return Equivalence(relation, is_symmetric, is_transitive, frozenset(meeting), frozenset(extended), frozenset(steps))


def _only_column(literal: object, name: str) -> set[int]:
    """The one column of an atom where a variable stands, if the other column may hold any value; else empty."""
    if not isinstance(literal, Atom) or any(isinstance(term, Const) for term in literal.terms):
        return set()
    columns = {c for c, term in enumerate(literal.terms) if isinstance(term, Var) and term.name == name}
    return columns if len(columns) == 1 else set()


def _pair(literal: object) -> tuple[str, tuple[str, str]] | None:
    """The relation and the different variables of an atom of two columns; None for other literals."""
    match literal:
        case Atom(relation=relation, terms=(Var(name=a), Var(name=b))) if a != b:
            return relation, (a, b)
    return None


def _middle(ends: set[str], first: tuple[str, str], second: tuple[str, str]) -> str | None:
    """The variable y of pairs of x and y, and of y and z, in any order; None for other pairs."""
    shared = {*first} & {*second}
    return shared.pop() if len(shared) == 1 and {*first} ^ {*second} == ends else None


def _connecting(clause: Clause) -> set[str] | None:
    """The other relations whose pairs connect the variables of a head to one class; None if nothing does.

    Atoms that are no pairs only have the rule find less; what computes may fail, and is left to the rule itself.
    """
    if len(clause.terms) != 2 or not all(isinstance(term, Var) for term in clause.terms):
        return None
    if not all(isinstance(literal, Atom) for literal in clause.body):
        return None
    ends = {term.name for term in clause.terms if isinstance(term, Var)}
    recursive_atoms = [a for a in clause.body if isinstance(a, Atom) and a.relation == clause.relation]
    others = [a for a in clause.body if _pair(a) is not None and a not in recursive_atoms]
    for atoms in (recursive_atoms, [*recursive_atoms, *others]):
        classes: list[set[str]] = []
        for atom in atoms:
            names = {term.name for term in atom.terms if isinstance(term, Var)}
            meeting = [c for c in classes if c & names]
            classes = [c for c in classes if c not in meeting] + [names.union(*meeting)]
        if any(ends <= c for c in classes):
            return {a.relation for a in atoms if a not in recursive_atoms}
    return None
