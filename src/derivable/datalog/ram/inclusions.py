"""Rules that put whole rows of one relation into rows of another, whatever is in these rows.

`path(x, z) :- edge(x, y), path(y, z)` says that row x of `path` includes row y wherever there is an edge: z passes
through and nothing asks what it is. `path(x, z) :- path(x, y), edge(y, z)` says the same of columns: x passes. A
recursion of such rules is a system of inclusions, which rows of bits solve without telling a pair (`datalog.bit_rows`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from derivable.datalog.ram import nodes as m
from derivable.datalog.ram.lower import store
from derivable.datalog.rules.literal_order import Ordering
from derivable.datalog.rules.nodes import Atom, Clause, Filter, Generate, Literal, names
from derivable.datalog.rules.text import RANGES
from derivable.datalog.scalars.nodes import Apply, Const, Expr, Var, applied

# The relation of pairs (a row of the target, a row of the source that it includes).
EDGES = "#inclusions"


@dataclass(frozen=True)
class Inclusion:
    """Rows of `source` go into rows of `target`.

    passing  the columns of source and of target whose values, those of rows, pass through
    carried  (column of source, column of target): keys that pass through as well
    edges    what gives the other keys of the target, and those of the source; None if there are none
    """

    source: str
    target: str
    passing: tuple[int, int]
    carried: tuple[tuple[int, int], ...]
    edges: m.Store | None


@dataclass(frozen=True)
class System:
    """Inclusions that see each relation from one side.

    passing  relation -> the column whose values are the bits of its rows
    """

    passing: dict[str, int]
    inclusions: tuple[Inclusion, ...]


def systems_of(stratum: m.Stratum, loop: Sequence[m.Store]) -> tuple[System, ...]:
    """What the rules of a recursion say as inclusions; () if some of them say something else.

    The recursion is at its end when it solves all systems.
    """
    stratum_relations = set(stratum.relations)
    read: list[list[Inclusion]] = []
    for rule in loop:
        read.append(_inclusions(rule, stratum_relations))
        if not read[-1]:
            return ()
    systems: list[tuple[dict[str, int], list[Inclusion]]] = []
    # Rules that can be seen from both sides go with those that cannot.
    for choices in sorted(read, key=len):
        fitting = ((one, system) for system in systems for one in choices if _fits(one, system[0]))
        one, system = next(fitting, (choices[0], None))
        if system is None:
            system = {}, []
            systems.append(system)
        system[0].update({one.source: one.passing[0], one.target: one.passing[1]})
        system[1].append(one)
    return tuple(System(passing, tuple(inclusions)) for passing, inclusions in systems)


def _fits(one: Inclusion, passing: dict[str, int]) -> bool:
    columns = {one.source: one.passing[0]}
    return all(
        passing.get(name, column) == column == columns.setdefault(name, column)
        for name, column in zip((one.source, one.target), one.passing)
    )


def _inclusions(instruction: m.Store, stratum_relations: set[str]) -> list[Inclusion]:
    """The ways to read a store of a loop as an inclusion, at most one for each column."""
    origin = instruction.origin
    if origin is None or origin.driver is None:
        return []
    clause = origin.clause
    atom, rest = clause.body[origin.driver], (*clause.body[: origin.driver], *clause.body[origin.driver + 1 :])
    assert isinstance(atom, Atom)
    # Rows need keys.
    if len(atom.terms) < 2 or len(clause.terms) < 2:
        return []
    if any(isinstance(literal, Atom) and literal.relation in stratum_relations for literal in rest):
        return []
    if any(map(calls, (*clause.terms, *rest))):
        # Functions are called for what the recursion reaches; the edges are those of all rows.
        return []
    elsewhere = {name for literal in rest for name in names(literal)}
    passing = [
        (c, target)
        for c, term in enumerate(atom.terms)
        if isinstance(term, Var) and term.name not in elsewhere and atom.terms.count(term) == 1
        for target in [_passed_column(term, clause)]
        if target is not None
    ]
    key = [term for c, term in enumerate(atom.terms) if c not in dict(passing)]
    into = [term for c, term in enumerate(clause.terms) if c not in dict(passing).values()]
    known = [term for term in key if term is not None]
    ordering = Ordering(rest)
    ordering.finish()
    used = {name for term in (*into, *known) for name in names(term)}
    if len(known) < len(key) or ordering.remaining or not used <= ordering.bound or bool(rest) != bool(into and key):
        return []
    edges = store(m.Origin(Clause(EDGES, (*into, *known), rest, clause.span)), ordering.steps) if rest else None
    return [
        Inclusion(atom.relation, clause.relation, pair, tuple(other for other in passing if other != pair), edges)
        for pair in reversed(passing)
        # A relation cannot be seen from both sides at once.
        if atom.relation != clause.relation or pair[0] == pair[1]
    ]


def calls(node: Expr | Literal) -> bool:
    """Whether an expression or a literal calls functions or predicates, but for ranges."""
    match node:
        case Filter(condition=condition):
            return calls(condition)
        case Generate(predicate=predicate, inputs=inputs):
            return predicate not in RANGES or any(map(calls, inputs))
        case Var() | Const() | Apply():
            return any(made.operator.startswith(("$", "new ")) for made in applied(node))
    return False


def _passed_column(variable: Var, clause: Clause) -> int | None:
    """The column of a head where a variable stands, None if it stands in none, several or in an expression."""
    columns = [c for c, term in enumerate(clause.terms) if variable.name in names(term)]
    return columns[0] if len(columns) == 1 and isinstance(clause.terms[columns[0]], Var) else None
