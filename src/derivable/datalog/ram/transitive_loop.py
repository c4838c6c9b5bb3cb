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
from derivable.datalog.rules.nodes import Atom
from derivable.datalog.rules.transitive_rules import transitive

# The name of what a relation was before its recursion.
BASE = "#base"


def linear_loop(stratum: m.Stratum, base: str) -> m.Store | None:
    """The one instruction of the loop of a stratum with a transitive rule alone, which reads what the relation was
    before the loop as the relation `base`; None for any other stratum."""
    clauses = [instruction.origin.clause for instruction in stratum.loop if instruction.origin is not None]
    if len(stratum.relations) != 1 or len(stratum.loop) != 2 or len(clauses) != 2 or clauses[0] is not clauses[1]:
        return None
    clause = clauses[0]
    if transitive(clause) is None:
        return None
    first, second = clause.body
    assert isinstance(second, Atom)
    made = replace(clause, body=(first, replace(second, relation=base)))
    ordering = Ordering(made.body)
    ordering.take_atom(0)
    ordering.finish()
    return store(m.Origin(made, {0: "recent"}), ordering.steps)
