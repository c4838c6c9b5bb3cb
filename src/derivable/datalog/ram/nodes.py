"""RAM nodes. Each node's docstring shows its printed form.

Columns are named; a join is natural. A query is left-deep, and so a list of operators, each of which gets the rows of
the one before: the right side of every join and difference is a scan.
Scalar expressions are those of the core rules, over column names.
Source: Biberstein et al. 2026, figure 4. Deviation: a scan says which part of a relation it reads (semi-naive
evaluation is visible here, not only in the machine below), and unions are several rules with one target.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal

from derivable.datalog.aggregates.nodes import AggregateRule
from derivable.datalog.rules.literal_order import Define
from derivable.datalog.rules.nodes import (
    Atom,
    Clause,
    Facts,
    Filter,
    Generate,
    Negated,
    Relation,
    RuleProbability,
    names,
)
from derivable.datalog.scalars.nodes import Const, Expr, Node, Var
from derivable.datalog.values.constructors import Constructor

Part = Literal["all", "recent", "stable"]


@dataclass(frozen=True)
class Unit(Node):
    """`unit`: one row, no columns"""


@dataclass(frozen=True)
class Scan(Node):
    """`scan edge(x, 3, _)`, `scan recent path(x, y)`: the rows of a part of a relation"""

    relation: str
    terms: tuple[Var | Const | None, ...]
    part: Part = "all"


@dataclass(frozen=True)
class Bound(Node):
    """`>= (x + 1)`: a condition on a column by what is bound before it; `source` is the operator that tests it."""

    operator: str
    value: Expr
    source: Filter | Generate


@dataclass(frozen=True)
class Range(Node):
    """`y >= x and y < (x + 20)`: the conditions on a column by which an ordered index finds rows"""

    column: int
    bounds: tuple[Bound, ...]


@dataclass(frozen=True)
class Join(Node):
    """`join [y] <left> <scan>`: rows of both sides that agree on the shared columns; the product if there are none.

    `join [y] in order z > x <left> <scan>` need not give rows that later operators drop, as these conditions fail.
    """

    right: Scan
    range: Range | None = None


@dataclass(frozen=True)
class Difference(Node):
    """`difference <left> <scan>`: rows of the left side, tags times the negation of the matching row's tag"""

    right: Scan


# The other operators are literals of core rules, of the rows that come from the operator before:
# `select (x < 3) <source>`;
# `extend z := (x + y) <source>`, one computed column more, rows whose value fails being dropped;
# `generate x in low..high <source>`, `generate string_chars(s; i, _) <source>`, one row for each row of outputs that a
# foreign predicate gives, and that agrees with the columns that are bound, its tag times the predicate's; negated, the
# rows for which none does; and `coin 0.3::#coin_1(x, y) <source>`, the tag of each row times one random fact for
# each row of the key, rows of probability 0 being dropped.
Select, Extend = Filter, Define
Operator = Unit | Scan | Join | Difference | Select | Extend | Generate | RuleProbability


@dataclass(frozen=True)
class Project:
    """`project [x, (y + 1)] <source>`: a query, whose operators come one after the other, a scan or the unit first"""

    operators: tuple[Operator, ...]
    terms: tuple[Expr, ...]

    @cached_property
    def later(self) -> tuple[frozenset[str], ...]:
        """[operator] the names that what comes behind it reads."""
        return read_behind(self.operators, {name for term in self.terms for name in names(term)})

    @cached_property
    def steps(self) -> tuple[Step, ...]:
        """The operators with what their positions imply, computed once."""
        # The operator that binds a name first.
        binder: dict[str, int] = {}
        for number, node in enumerate(self.operators):
            for name in binds(node):
                binder.setdefault(name, number)
        return tuple(
            Step.of(node, needed, frozenset(n for n in needed | reads(node) if binder.get(n, number) < number))
            for number, (node, needed) in enumerate(zip(self.operators, self.later))
        )

    @cached_property
    def has_distinct_rows(self) -> bool:
        """Whether no row comes twice without tags: all that is bound is taken, or there is no more to it than that
        something is there."""
        taken = {term.name for term in self.terms if isinstance(term, Var)}
        for step in self.steps:
            if isinstance(step.node, (Generate, RuleProbability)):
                return False
            scan, read = scan_of(step.node), step.bindings
            if scan is None or read is None or isinstance(step.node, Difference):
                continue
            only_exists = isinstance(step.node, Join) and not step.takes and not read.repeats
            if not only_exists and (None in scan.terms or not taken.issuperset(read.fresh)):
                return False
        return True

    @cached_property
    def names(self) -> tuple[str, ...] | None:
        """The names of the columns that it takes as they are; None if it computes some."""
        variables = tuple(term.name for term in self.terms if isinstance(term, Var))
        return variables if len(variables) == len(self.terms) else None


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


def reads_news_alone(loop: Sequence[Store], relations: Sequence[str]) -> bool:
    """Whether the stores of a recursion read recent rows of its relations, and no others of them."""
    scans = [scan_of(step.node) for store in loop for step in store.query.steps[1:]]
    return not any(scan is not None and scan.relation in relations for scan in scans)


@dataclass(frozen=True)
class Timed:
    """The programs of a `rules.timed.Timed`, with its columns and readings."""

    columns: Mapping[str, int]
    times: Ram
    step: Ram
    readings: tuple[Atom | Negated, ...]


@dataclass(frozen=True)
class Stratum:
    """`stratum 1 (recursive): path` with its instructions.

    once  run first, once: what does not read the relations of the stratum
    loop  run until nothing changes: for each recursive atom of a rule, the rule with that atom's recent rows
    full  every rule once over all rows; what grounding reads, and what the reference interpreter repeats
    timed  how it is computed one time after the other, without `once` and `loop`; None for other strata
    """

    relations: tuple[str, ...]
    is_recursive: bool
    once: tuple[Instruction, ...]
    loop: tuple[Store, ...]
    full: tuple[Instruction, ...]
    timed: Timed | None = None

    @cached_property
    def reads(self) -> set[str]:
        """The relations of other strata that it reads."""
        return relations_read(self.full).difference(self.relations)

    @cached_property
    def reads_news_alone(self) -> bool:
        """Whether the rules of a recursion read recent rows of its relations, and no others of them."""
        return reads_news_alone(self.loop, self.relations)


@dataclass(frozen=True)
class Ram:
    """A RAM program: relations, facts, strata, outputs. `plans` are those that `ram.join_order` has made for sizes.

    demand  a program to run first, over the same facts and without tags, whose outputs are facts of this one
    tagged  the program for runs with tags, None if it is this one
    distributed  that for tags whose product distributes over their sum, None if it is that for any tags
    functions  those of `syntax.Syntax`
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
    distributed: Ram | None = field(default=None, repr=False)
    plans: dict[Any, Any] = field(default_factory=dict, compare=False, repr=False)
    functions: tuple[Any, ...] = field(default=(), compare=False, repr=False)

    @cached_property
    def counted(self) -> Mapping[str, int]:
        """The relations of which nothing is read but how many rows each group has, what one `count` counts, with the
        number of their columns that are the group; if one rule writes them."""
        counts = self._read_alone_by("count")
        widths = {name: {one.num_group for one in readers} for name, readers in counts.items()}
        return {name: width for name, (width, *others) in widths.items() if not others}

    @cached_property
    def repeatable(self) -> frozenset[str]:
        """The relations of which nothing but extremes is read, so that a row may be there twice; if one rule writes
        them."""
        return frozenset(self._read_alone_by("min", "max"))

    def _read_alone_by(self, *operators: str) -> Mapping[str, Sequence[AggregateRule]]:
        """The relations that one rule outside of recursions writes and only these aggregates read, and these."""
        if any(stratum.timed is not None for stratum in self.strata):
            return {}
        rules = [one for stratum in self.strata for one in stratum.full]
        readers = [one for one in rules if isinstance(one, AggregateRule) and one.operator in operators]
        # Groups of which some may have no rows are relations that are read.
        read = relations_read(one for one in rules if one not in readers)
        read |= {one.groups for one in readers if one.groups is not None}
        written = [one.relation for one in rules]
        alone = {name for stratum in self.strata if not stratum.is_recursive for name in stratum.relations}
        return {
            name: [one for one in readers if one.body == name]
            for name in alone.intersection(one.body for one in readers)
            if written.count(name) == 1
            and self.relations[name].keys is None
            and name not in read
            and name not in self.outputs
        }

    def __getstate__(self) -> dict[str, Any]:
        """What a copy and another process get: plans have kernels and memory of this process."""
        return {**vars(self), "plans": {}}

    def with_tags(self, is_distributive: bool) -> Ram:
        """The program for runs with tags, whose product distributes over their sum or may not."""
        return (self.distributed if is_distributive else None) or self.tagged or self

    @property
    def is_recursive(self) -> bool:
        """Whether one of its strata is recursive."""
        return any(stratum.is_recursive for stratum in self.strata)

    def first(self, number: int) -> Ram:
        """The first strata, with separate plans; their outputs are those that others read, or that are outputs."""
        if number == len(self.strata):
            return replace(self, plans={})
        behind = (one for stratum in self.strata[number:] for one in (*stratum.once, *stratum.loop, *stratum.full))
        read = relations_read(behind).union(self.outputs)
        strata = self.strata[:number]
        outputs = tuple(name for stratum in strata for name in stratum.relations if name in read)
        return replace(self, plans={}, strata=strata, outputs=outputs)

    @cached_property
    def denied(self) -> tuple[frozenset[str], ...]:
        """[stratum] the relations whose facts a proof may deny because of it: those that follow into what it negates,
        and into what it aggregates."""
        # What the rows of a relation follow from.
        sources: dict[str, set[str]] = {name: {name} for name in self.relations}
        sets = []
        for stratum in self.strata:
            negates: set[str] = set()
            for instruction in stratum.full:
                if isinstance(instruction, AggregateRule):
                    negates |= set() if instruction.discrete else {instruction.body}
                else:
                    nodes = instruction.query.operators
                    negates |= {node.right.relation for node in nodes if isinstance(node, Difference)}
            follows = set().union(*(sources[name] for name in stratum.reads.union(stratum.relations)))
            sources |= dict.fromkeys(stratum.relations, follows)
            uncertain = (name for name in negates if not self.relations[name].is_certain)
            sets.append(frozenset().union(*(sources[name] for name in uncertain)))
        return tuple(sets)


def binds(node: Operator) -> list[str]:
    """The names that are bound after an operator because of it, some of them maybe before."""
    match node:
        case Scan(terms=terms) | Join(right=Scan(terms=terms)) | Generate(outputs=terms):
            return [t.name for t in terms if isinstance(t, Var)]
        case Extend(variable=v):
            return [v.name]
    return []


def relations_read(instructions: Iterable[Instruction]) -> set[str]:
    """The relations that instructions read."""
    relations: set[str] = set()
    for one in instructions:
        if isinstance(one, Store):
            relations |= {scan.relation for scan in map(scan_of, one.query.operators) if scan is not None}
        else:
            relations |= {one.body, *([] if one.groups is None else [one.groups])}
    return relations


def scan_of(node: Operator) -> Scan | None:
    """The scan that an operator reads rows of a relation with: itself, or its right side."""
    match node:
        case Scan():
            return node
        case Join(right=right) | Difference(right=right):
            return right
    return None


def reads(node: Operator) -> set[str]:
    """The names in what an operator computes or looks up, those that it binds itself included."""
    return names(node.expression if isinstance(node, Extend) else node)


def read_behind(operators: Sequence[Operator], needed: Iterable[str]) -> tuple[frozenset[str], ...]:
    """[operator] the names that those behind it read, and `needed`, which are read at last."""
    columns = [frozenset(needed)]
    for node in reversed(operators[1:]):
        columns.append(columns[-1] | reads(node))
    return tuple(reversed(columns[: len(operators)]))


@dataclass(frozen=True)
class Bindings:
    """What the columns of a scan are to the names that are bound before it.

    keys     (column, term): columns whose value is bound
    repeats  pairs of columns that must be equal
    fresh    name -> its first column
    """

    keys: tuple[tuple[int, Var | Const], ...]
    repeats: tuple[tuple[int, int], ...]
    fresh: Mapping[str, int]


@dataclass(frozen=True)
class Step:
    """An operator at its position in a query.

    bindings  of its scan, None without one
    takes     (name, column) of that scan: the columns that operators behind it read
    keeps     the names bound before it whose columns they read
    """

    node: Operator
    bindings: Bindings | None
    takes: tuple[tuple[str, int], ...]
    keeps: tuple[str, ...]

    @staticmethod
    def of(node: Operator, needed: frozenset[str], there: frozenset[str]) -> Step:
        """The step of an operator of which `needed` is read, and which has `there` before it."""
        scan = scan_of(node)
        scanned = None if scan is None else bindings(scan, there)
        takes = () if scanned is None else tuple((name, c) for name, c in scanned.fresh.items() if name in needed)
        return Step(node, scanned, takes, tuple(needed & there))


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


def joins_many(store: Store) -> bool:
    """Whether a store joins more than two relations."""
    return sum(isinstance(node, (Scan, Join)) for node in store.query.operators) > 2


def copied_relation(query: Project) -> str | None:
    """The relation whose rows are those of a query, column by column; None if the query computes anything."""
    scan = query.operators[0]
    if len(query.operators) > 1 or not isinstance(scan, Scan) or scan.part != "all" or scan.terms != query.terms:
        return None
    names = {term.name for term in scan.terms if isinstance(term, Var)}
    return scan.relation if len(names) == len(scan.terms) else None


def stable_relations(ram: Ram) -> set[str]:
    """The relations of which some query reads what is stable."""
    instructions = [instruction for stratum in ram.strata for instruction in stratum.loop]
    scans = [scan_of(node) for instruction in instructions for node in instruction.query.operators]
    return {scan.relation for scan in scans if scan is not None and scan.part == "stable"}
