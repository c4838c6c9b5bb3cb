"""RAM nodes. Each node's docstring shows its printed form.

Columns are named; a join is natural. A query is left-deep: the right side of every join and difference is a scan.
Scalar expressions are those of the core rules, over column names.
Source: Biberstein et al. 2026, figure 4. Deviation: a scan says which part of a relation it reads (semi-naive
evaluation is visible here, not only in the machine below), and unions are several rules with one target.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

from derivable.core.diagnostics import Span
from derivable.datalog.aggregates.nodes import AggregateRule
from derivable.datalog.rules.nodes import Atom, Clause, Facts, Relation, names
from derivable.datalog.scalars.nodes import NOWHERE, Const, Expr, Var
from derivable.datalog.tags.random_facts import Kind
from derivable.datalog.values.constructors import Constructor
from derivable.datalog.values.values import ValueType

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
class Generate:
    """`generate x in low..high <source>`, `generate string_chars(s; i, _) <source>`: one row for each row of outputs
    that a foreign predicate gives, and that agrees with the columns there are; negated, the rows for which none does.
    Tags are multiplied by those that the predicate gives"""

    source: Query
    predicate: str
    inputs: tuple[Expr, ...]
    outputs: tuple[Var | Const | None, ...]
    types: tuple[ValueType, ...]
    negated: bool = False
    span: Span = field(default=NOWHERE, compare=False, repr=False)


@dataclass(frozen=True)
class Coin:
    """`coin 0.3::#coin_1(x, y) <source>`: the tag of each row times a random fact of its own for each row of the key;
    rows of probability 0 are dropped"""

    source: Query
    name: str
    key: tuple[Expr, ...]
    probability: Expr
    kind: Kind = "tag"
    span: Span = field(default=NOWHERE, compare=False, repr=False)


@dataclass(frozen=True)
class Project:
    """`project [x, (y + 1)] <source>`"""

    source: Query
    terms: tuple[Expr, ...]

    @cached_property
    def steps(self) -> tuple[Step, ...]:
        """The operators before the projection, from the first, with what their places say: found out once."""
        nodes = steps(self.source)
        # The operator that binds a name first.
        binder: dict[str, int] = {}
        for number, node in enumerate(nodes):
            for name in binds(node):
                binder.setdefault(name, number)
        found, needed = [], frozenset(reads(self))
        for number, node in reversed(list(enumerate(nodes))):
            there = frozenset(name for name in needed | reads(node) if binder.get(name, number) < number)
            found.append(Step.of(node, needed, there))
            needed = there
        return tuple(reversed(found))

    @cached_property
    def names(self) -> tuple[str, ...] | None:
        """The names of the columns that it takes as they are; None if it computes some."""
        found = tuple(term.name for term in self.terms if isinstance(term, Var))
        return found if len(found) == len(self.terms) else None


Query = Unit | Scan | Join | Difference | Select | Extend | Generate | Coin | Project


@dataclass(frozen=True)
class Origin:
    """The clause that a store was lowered from, and the part of a relation that the atom at each position reads."""

    clause: Clause
    parts: Mapping[int, Part] = field(default_factory=dict)

    def part_of(self, atom: Atom) -> Part:
        # The same object: equal atoms may read different parts.
        for position, part in self.parts.items():
            if self.clause.body[position] is atom:
                return part
        return "all"

    @property
    def driver(self) -> int | None:
        """The position of the atom whose recent rows are read; None without one."""
        return next((i for i, part in self.parts.items() if part == "recent"), None)


@dataclass(frozen=True)
class Store:
    """`path <- project [x, z] ...`: add the rows of a query to a relation"""

    relation: str
    query: Project
    origin: Origin | None = field(default=None, compare=False, repr=False)


Instruction = Store | AggregateRule


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

    @cached_property
    def reads_news_alone(self) -> bool:
        """Whether the rules of a recursion read recent rows of its relations, and no others of them."""
        scans = [scan_of(step.node) for store in self.loop for step in store.query.steps[1:]]
        return not any(scan is not None and scan.relation in self.relations for scan in scans)


@dataclass(frozen=True)
class Ram:
    """A RAM program: relations, facts, strata, outputs. `plans` are those that `ram.join_order` has made for sizes.

    demand  a program to run first, over the same facts and without tags, whose outputs are facts of this one
    tagged  the program for runs with tags, None if it is this one
    """

    relations: Mapping[str, Relation]
    facts: tuple[Facts, ...]
    strata: tuple[Stratum, ...]
    outputs: tuple[str, ...]
    text: str = field(default="", repr=False)
    source: str = "<program>"
    constructors: Mapping[str, Constructor] = field(default_factory=dict)
    demand: Ram | None = None
    tagged: Ram | None = field(default=None, repr=False)
    plans: dict[Any, Any] = field(default_factory=dict, compare=False, repr=False)

    @property
    def is_recursive(self) -> bool:
        """Whether one of its strata is recursive."""
        return any(stratum.is_recursive for stratum in self.strata)


def columns(query: Query) -> tuple[str, ...]:
    """The column names of a query's rows, in order of first binding."""
    if isinstance(query, Project):
        return tuple(str(i) for i in range(len(query.terms)))
    return tuple(dict.fromkeys(name for node in steps(query) for name in binds(node)))


def binds(node: Query) -> list[str]:
    """The names that are bound after an operator because of it, some of them maybe before."""
    match node:
        case Scan(terms=terms) | Join(right=Scan(terms=terms)) | Generate(outputs=terms):
            return [t.name for t in terms if isinstance(t, Var)]
        case Extend(variable=v):
            return [v.name]
    return []


def source(node: Query) -> Query | None:
    """What an operator gets its rows from; None for those that queries begin with."""
    match node:
        case Join(left=left) | Difference(left=left):
            return left
        case Select() | Extend() | Generate() | Coin() | Project():
            return node.source
    return None


def steps(query: Query) -> list[Query]:
    """The operators of a query from the first, a scan or the unit, to itself."""
    found = [query]
    while (before := source(found[-1])) is not None:
        found.append(before)
    return found[::-1]


def scan_of(node: Query) -> Scan | None:
    """The scan that an operator reads rows of a relation with: itself, or its right side."""
    match node:
        case Scan():
            return node
        case Join(right=right) | Difference(right=right):
            return right
    return None


def reads(node: Query) -> set[str]:
    """The names in what an operator computes or looks up, those that it binds itself included."""
    match node:
        case Select(condition=e) | Extend(expression=e):
            return names(e)
        case Generate(inputs=inputs, outputs=outputs):
            return {name for e in (*inputs, *outputs) for name in names(e)}
        case Coin(key=key, probability=probability):
            return {name for e in (*key, probability) for name in names(e)}
        case Join(right=right) | Difference(right=right):
            return {t.name for t in right.terms if isinstance(t, Var)}
        case Project(terms=terms):
            return {name for term in terms for name in names(term)}
    return set()


@dataclass(frozen=True)
class Bindings:
    """What the columns of a scan are to the names that are bound before it.

    keys     (column, term): columns whose value is given
    repeats  pairs of columns that must be equal
    fresh    name -> its first column
    """

    keys: tuple[tuple[int, Var | Const], ...]
    repeats: tuple[tuple[int, int], ...]
    fresh: Mapping[str, int]


@dataclass(frozen=True)
class Step:
    """An operator in its place in a query.

    bindings  of its scan, None without one
    takes     (name, column) of that scan: the columns that operators behind it read
    keeps     the names bound before it whose columns they read
    """

    node: Query
    bindings: Bindings | None
    takes: tuple[tuple[str, int], ...]
    keeps: tuple[str, ...]

    @staticmethod
    def of(node: Query, needed: frozenset[str], there: frozenset[str]) -> Step:
        """The step of an operator of which `needed` is read, and which has `there` before it."""
        scan = scan_of(node)
        found = None if scan is None else bindings(scan, there)
        takes = () if found is None else tuple((name, c) for name, c in found.fresh.items() if name in needed)
        return Step(node, found, takes, tuple(needed & there))


def bindings(scan: Scan, bound: Container[str] = ()) -> Bindings:
    keys, repeats, fresh = [], [], {}
    for column, term in enumerate(scan.terms):
        if isinstance(term, Const) or (isinstance(term, Var) and term.name in bound):
            keys.append((column, term))
        elif isinstance(term, Var) and term.name in fresh:
            repeats.append((fresh[term.name], column))
        elif isinstance(term, Var):
            fresh[term.name] = column
    return Bindings(tuple(keys), tuple(repeats), fresh)


def recent_relation(query: Project) -> str:
    """The relation whose recent rows a query of a loop begins with: its leftmost scan."""
    first = query.steps[0].node
    assert isinstance(first, Scan)
    assert first.part == "recent"
    return first.relation


def copied_relation(query: Project) -> str | None:
    """The relation whose rows are those of a query, column by column; None if the query computes anything."""
    scan = query.source
    if not isinstance(scan, Scan) or scan.part != "all" or scan.terms != query.terms:
        return None
    names = {term.name for term in scan.terms if isinstance(term, Var)}
    return scan.relation if len(names) == len(scan.terms) else None


def stable_relations(ram: Ram) -> set[str]:
    """The relations of which some query reads what is stable."""
    instructions = [instruction for stratum in ram.strata for instruction in stratum.loop]
    scans = [scan_of(node) for instruction in instructions for node in steps(instruction.query)]
    return {scan.relation for scan in scans if scan is not None and scan.part == "stable"}
