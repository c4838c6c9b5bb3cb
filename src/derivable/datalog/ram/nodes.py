"""RAM nodes. Each node's docstring shows its printed form.

Columns are named; a join is natural. A query is left-deep: the right side of every join and difference is a scan.
Scalar expressions are those of the core rules, over column names.
Source: Biberstein et al. 2026, figure 4. Deviation: a scan says which part of a relation it reads (semi-naive
evaluation is visible here, not only in the machine below), and unions are several rules with one target.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from derivable.datalog.rules.nodes import AggregateRule, BernoulliRule, Const, Expr, Facts, Relation, Var

Part = Literal["all", "recent", "stable"]


@dataclass(frozen=True)
class Unit:
    """`unit`: one row, no columns"""


@dataclass(frozen=True)
class Scan:
    """`scan edge(x, 3, _)`, `scan recent path(x, y)`: the rows of a part of a relation"""

    relation: str
    terms: tuple[Var | Const | None, ...]
    part: Part = "all"


@dataclass(frozen=True)
class Join:
    """`join [y] <left> <scan>`: rows of both sides that agree on the shared columns; the product if there are none"""

    left: Query
    right: Scan


@dataclass(frozen=True)
class Difference:
    """`difference <left> <scan>`: rows of the left side, tags times the negation of the matching row's tag"""

    left: Query
    right: Scan


@dataclass(frozen=True)
class Select:
    """`select (x < 3) <source>`"""

    source: Query
    condition: Expr


@dataclass(frozen=True)
class Extend:
    """`extend z := (x + y) <source>`: one computed column more; rows whose value fails are dropped"""

    source: Query
    variable: Var
    expression: Expr


@dataclass(frozen=True)
class Range:
    """`range x in low..high <source>`: one row for each integer of the range"""

    source: Query
    variable: Var
    low: Expr
    high: Expr
    inclusive: bool


@dataclass(frozen=True)
class Project:
    """`project [x, (y + 1)] <source>`"""

    source: Query
    terms: tuple[Expr, ...]


Query = Unit | Scan | Join | Difference | Select | Extend | Range | Project


@dataclass(frozen=True)
class Store:
    """`path <- project [x, z] ...`: add the rows of a query to a relation"""

    relation: str
    query: Project


Instruction = Store | AggregateRule | BernoulliRule


@dataclass(frozen=True)
class Stratum:
    """`stratum 1 (recursive): path` with its instructions.

    once  run first, once: what does not read the stratum's own relations
    loop  run until nothing changes: for each recursive atom of a rule, the rule with that atom's recent rows
    full  every rule once over all rows; what grounding reads, and what the reference interpreter repeats
    """

    relations: tuple[str, ...]
    is_recursive: bool
    once: tuple[Instruction, ...]
    loop: tuple[Store, ...]
    full: tuple[Instruction, ...]


@dataclass(frozen=True)
class Ram:
    """A RAM program: relations, facts, strata, outputs."""

    relations: Mapping[str, Relation]
    facts: tuple[Facts, ...]
    strata: tuple[Stratum, ...]
    outputs: tuple[str, ...]
    text: str = field(default="", repr=False)
    source: str = "<program>"


def columns(query: Query) -> tuple[str, ...]:
    """The column names of a query's rows, in order of first binding."""
    match query:
        case Unit():
            return ()
        case Scan(terms=terms):
            return tuple(dict.fromkeys(t.name for t in terms if isinstance(t, Var)))
        case Join(left=left, right=right):
            return tuple(dict.fromkeys(columns(left) + columns(right)))
        case Difference(left=source) | Select(source=source):
            return columns(source)
        case Extend(source=source, variable=v) | Range(source=source, variable=v):
            return tuple(dict.fromkeys((*columns(source), v.name)))
        case Project(terms=terms):
            return tuple(str(i) for i in range(len(terms)))
    raise TypeError(f"not a query: {query!r}")


def recent_relation(query: Query) -> str:
    """The relation whose recent rows a query of a loop begins with: its leftmost scan."""
    while not isinstance(query, Scan):
        assert not isinstance(query, Unit)
        query = query.left if isinstance(query, (Join, Difference)) else query.source
    assert query.part == "recent"
    return query.relation


def stable_relations(ram: Ram) -> set[str]:
    """The relations of which some query reads what is stable."""
    found: set[str] = set()
    for stratum in ram.strata:
        for instruction in stratum.loop:
            query: Query = instruction.query
            while not isinstance(query, (Scan, Unit)):
                if isinstance(query, (Join, Difference)):
                    if query.right.part == "stable":
                        found.add(query.right.relation)
                    query = query.left
                else:
                    query = query.source
    return found
