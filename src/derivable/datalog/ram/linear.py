"""Transitive recursion without tags, run as a linear one.

Where `p(x, z) :- p(x, y), p(y, z)` is the only recursive rule of `p`, what it makes of the rows that there are before
the recursion is what `p(x, z) :- p(x, y), base(y, z)` makes of them, `base` being these rows: composition of relations
is associative. The first finds every pair once for each point between, the second once for each last step.
"""

from __future__ import annotations

from dataclasses import replace

from derivable.datalog.ram import nodes as m
from derivable.datalog.ram.lower import store
from derivable.datalog.rules.literal_order import Ordering
from derivable.datalog.rules.nodes import Atom, Clause
from derivable.datalog.scalars.nodes import Var

# The name of what a relation was before its recursion.
BASE = "#base"


def linear_loop(stratum: m.Stratum, base: str) -> m.Store | None:
    """The one instruction of the loop of a stratum with a transitive rule alone, which reads what the relation was
    before the loop as the relation `base`; None for any other stratum."""
    clauses = [instruction.origin.clause for instruction in stratum.loop if instruction.origin is not None]
    if len(stratum.relations) != 1 or len(stratum.loop) != 2 or len(clauses) != 2 or clauses[0] is not clauses[1]:
        return None
    clause = clauses[0]
    if not is_transitive(clause):
        return None
    first, second = clause.body
    assert isinstance(second, Atom)
    made = replace(clause, body=(first, replace(second, relation=base)))
    ordering = Ordering(made.body)
    ordering.take_atom(0)
    ordering.finish()
    return store(m.Origin(made, {0: "recent"}), ordering.steps)


def is_transitive(clause: Clause) -> bool:
    """Whether a clause is `p(g, x, z) :- p(g, x, y), p(g, y, z)`, for any number of columns g, x, y, z in any order."""
    if len(clause.body) != 2 or not all(isinstance(a, Atom) and a.relation == clause.relation for a in clause.body):
        return False
    columns: list[tuple[str, str, str]] = []
    for terms in zip(clause.terms, *(a.terms for a in clause.body if isinstance(a, Atom))):
        if not all(isinstance(term, Var) for term in terms):
            return False
        head, left, right = (term.name for term in terms if isinstance(term, Var))
        columns.append((head, left, right))
    groups = [head for head, left, right in columns if head == left == right]
    # A column of sources has x, x, y; one of targets has z, y, z.
    sources = [(left, right) for head, left, right in columns if head == left != right]
    targets = [(left, right) for head, left, right in columns if head == right != left]
    if len(groups) + len(sources) + len(targets) != len(columns) or len(sources) != len(targets) or not sources:
        return False
    # Columns of sources and of targets belong together by position: a row (y, z) goes on where (x, y) has come.
    if [right for _, right in sources] != [left for left, _ in targets]:
        return False
    names = [*groups, *(x for x, _ in sources), *(y for _, y in sources), *(z for _, z in targets)]
    return len(set(names)) == len(names)
