"""Pivots: the columns by which relations can be computed in partitions that do not see each other.

A relation is partitioned by a column if the rows of each partition, those whose value of the column it owns, follow
from rows that the partition has. Each rule of the relation has the same term, the pivot, in that column of its head and
in the columns by which the recursive relations of its body are partitioned; what else it reads is partitioned by the
pivot too, or there as a whole:

    path(x, y) :- edge(x, y)                    path by column 0: edge by column 0
    path(x, z) :- path(x, y), edge(y, z)        path by column 0, edge as a whole

An aggregate is partitioned by a group column. One atom of each rule is partitioned, so that no row follows twice.
Source: generalised pivoting of decomposable programs, Wolfson and Silberschatz 1988; Shkapsky et al. 2016 (BigDatalog),
section 5. Extension: strata are chained, and negations and aggregates may read partitions.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from derivable.datalog.rules import nodes as r
from derivable.datalog.rules.strata import cycles
from derivable.datalog.rules.text import rule_text
from derivable.datalog.scalars.nodes import Const, Var
from derivable.datalog.values.values import ValueType

# Aggregates that draw, by numbers of rows that a partition does not know.
DRAWING = ("categorical", "uniform")


@dataclass(frozen=True)
class Version:
    """A relation as a partition has it: the rows whose value of a column it owns, or, without a column, all of them."""

    relation: str
    column: int | None = None

    @property
    def name(self) -> str:
        """What it is called in the rules of a partition."""
        return self.relation if self.column is None else f"{self.relation}@{self.column}"


@dataclass(frozen=True)
class Partitioned:
    """A relation by a column: the pivots of its recursion, and what its rules read.

    pivots   relation -> its column, of the relation and those that it is recursive with
    reads    number of a rule -> the versions that it reads, one for each atom, negated atom or relation of an
             aggregate, in the order of writing
    """

    pivots: Mapping[str, int]
    reads: Mapping[int, tuple[Version, ...]]


def can_be_pivot(t: ValueType) -> bool:
    """Whether values of a type are distinguished by an integer or a text, on every machine alike."""
    return (t.is_integer and not t.is_wide) or t.family in ("bool", "char", "text")


class Pivots:
    """The pivots of a program: `by(relation, column)`, a `Partitioned` or, as a text, why there is none."""

    def __init__(self, rules: r.Rules):
        self.rules = rules
        self._found: dict[Version, Partitioned | str] = {}
        self._of: dict[str, list[int]] = {}
        for number, rule in enumerate(rules.rules):
            self._of.setdefault(rule.relation, []).append(number)

    @cached_property
    def _component(self) -> Mapping[str, int]:
        """Relation -> the number of those that it is recursive with."""
        return cycles(self.rules.relations, self.rules.rules).component_of

    def rules_of(self, relation: str) -> list[int]:
        """The numbers of its rules."""
        return self._of.get(relation, [])

    def is_recursive(self, relation: str) -> bool:
        """Whether a rule of the relation reads one that depends on it."""
        component = self._component
        return any(component[name] == component[relation] for n in self.rules_of(relation) for name, _ in self.read(n))

    def read(self, number: int) -> list[tuple[str, tuple[r.Var | r.Const | None, ...]]]:
        """(relation, terms) that a rule reads; of an aggregate the terms are its groups, as fresh variables."""
        rule = self.rules.rules[number]
        if isinstance(rule, r.Clause):
            return [(x.relation, x.terms) for x in rule.body if isinstance(x, (r.Atom, r.Negated))]
        groups = tuple(Var(f"group {c}", t) for c, t in enumerate(self._types(rule.relation)[: rule.num_group]))
        return [(name, groups) for name in (rule.body, rule.groups) if name is not None]

    def _types(self, relation: str) -> tuple[ValueType, ...]:
        return self.rules.relations[relation].types

    def by(self, relation: str, column: int) -> Partitioned | str:
        """The relation partitioned by a column."""
        key = Version(relation, column)
        if key not in self._found:
            self._found[key] = self._by(relation, column)
        return self._found[key]

    def _by(self, relation: str, column: int) -> Partitioned | str:
        wrong = self._unfit(relation, column)
        if wrong is not None:
            return wrong
        reasons: list[str] = []
        pivots = next(self._solutions({relation: column}, [relation], reasons), None)
        if pivots is None:
            return reasons[0]
        reads: dict[int, tuple[Version, ...]] = {}
        for name in pivots:
            for number in self.rules_of(name):
                versions = self._reads(number, pivots)
                if isinstance(versions, str):
                    return versions
                reads[number] = versions
        return Partitioned(pivots, reads)

    def _unfit(self, relation: str, column: int) -> str | None:
        """Why a column of a relation can be no pivot, whatever its rules are."""
        declared = self.rules.relations[relation]
        if not can_be_pivot(declared.types[column]):
            return f"column {column} of `{relation}` is {declared.types[column]}, by which rows are not partitioned"
        if declared.lattice is not None and column == len(declared.types) - 1:
            return f"column {column} of `{relation}` is joined in its lattice"
        if declared.keys is not None:
            return f"`{relation}` has the groups that the recursion looks up"
        return None

    def _pivot(self, number: int, column: int) -> Var | Const | str:
        """The term of the head of a rule in a column; of an aggregate its group."""
        rule = self.rules.rules[number]
        if isinstance(rule, r.Clause):
            term = rule.terms[column]
            return term if isinstance(term, (Var, Const)) else f"column {column} is computed in `{rule_text(rule)}`"
        if column >= rule.num_group:
            return f"column {column} is what `{rule.operator}` gives for a group of `{rule.body}`"
        return self.read(number)[0][1][column]  # type: ignore[return-value]

    def _columns(self, relation: str, terms: tuple[r.Var | r.Const | None, ...], pivot: Var | Const) -> list[int]:
        """The columns of an atom that have the pivot."""
        return [c for c, t in enumerate(terms) if t == pivot and self._unfit(relation, c) is None]

    def _solutions(self, pivots: dict[str, int], open_: list[str], reasons: list[str]) -> Iterator[dict[str, int]]:
        """Columns for all relations of a recursion so that its rules pass the pivot on; `reasons` says why not."""
        needed: list[tuple[str, list[int]]] = []
        for name in open_:
            for number in self.rules_of(name):
                pivot = self._pivot(number, pivots[name])
                if isinstance(pivot, str):
                    reasons.append(pivot)
                    return
                rule = self.rules.rules[number]
                if isinstance(rule, r.Clause) and any(isinstance(x, r.Generate) and x.relation for x in rule.body):
                    reasons.append(f"`{rule_text(rule)}` looks up an aggregate inside of a recursion")
                    return
                for read, terms in self.read(number):
                    if self._component[read] != self._component[name]:
                        continue
                    columns = self._columns(read, terms, pivot)
                    if read in pivots:
                        columns = [c for c in columns if c == pivots[read]]
                    if not columns:
                        reasons.append(
                            f"column {pivots[name]} of `{name}` is not passed on by `{read}` in `{rule_text(rule)}`"
                        )
                        return
                    if read not in pivots:
                        needed.append((read, columns))
        if not needed:
            yield pivots
            return
        read, columns = needed[0]
        for column in columns:
            # The relations that were looked at are so again, as they may read the one that has a column now.
            yield from self._solutions({**pivots, read: column}, [*open_, read], reasons)

    def _reads(self, number: int, pivots: Mapping[str, int]) -> tuple[Version, ...] | str:
        """What a rule reads, by the pivot where that is possible, and at least once."""
        rule = self.rules.rules[number]
        pivot = self._pivot(number, pivots[rule.relation])
        assert not isinstance(pivot, str)
        versions, is_bound = [], False
        for position, (name, terms) in enumerate(self.read(number)):
            version = self._read(name, terms, pivot, pivots)
            versions.append(version)
            if isinstance(rule, r.AggregateRule) and version.column is None:
                return f"the groups of `{rule.operator}` over `{name}` are not partitioned"
            is_bound |= version.column is not None and not self._is_negated(rule, position)
        if not is_bound:
            return f"no atom of `{rule_text(rule)}` has column {pivots[rule.relation]} of its head"
        return tuple(versions)

    @staticmethod
    def _is_negated(rule: r.Rule, position: int) -> bool:
        if not isinstance(rule, r.Clause):
            return False
        return isinstance([x for x in rule.body if isinstance(x, (r.Atom, r.Negated))][position], r.Negated)

    def _read(
        self,
        name: str,
        terms: tuple[r.Var | r.Const | None, ...],
        pivot: Var | Const,
        pivots: Mapping[str, int],
    ) -> Version:
        if name in pivots:
            return Version(name, pivots[name])
        for column in self._columns(name, terms, pivot):
            if not isinstance(self.by(name, column), str):
                return Version(name, column)
        return Version(name)

    # Rows that follow in several partitions

    def scattered(self, relation: str) -> Mapping[int, tuple[Version, ...]] | str:
        """Number of a rule -> what it reads, of a relation whose rows may follow in several partitions, each
        derivation in one; why there is no such thing, as a text."""
        if self.is_recursive(relation):
            return f"`{relation}` is recursive"
        if self.rules.relations[relation].lattice is not None:
            return f"`{relation}` is joined in its lattice"
        reads: dict[int, tuple[Version, ...]] = {}
        for number in self.rules_of(relation):
            versions = self._scattered(number)
            if isinstance(versions, str):
                return versions
            reads[number] = versions
        return reads or f"`{relation}` has no rules"

    def _scattered(self, number: int) -> tuple[Version, ...] | str:
        rule = self.rules.rules[number]
        if isinstance(rule, r.AggregateRule):
            return f"`{rule.operator}` over `{rule.body}` has no group that is partitioned"
        if any(isinstance(x, r.Generate) and x.relation for x in rule.body):
            return f"`{rule_text(rule)}` looks up an aggregate inside of a recursion"
        best: tuple[tuple[int, int], tuple[Version, ...]] | None = None
        for versions in self._scatterings(number, rule):
            if not any(v.column is not None and not self._is_negated(rule, p) for p, v in enumerate(versions)):
                continue
            whole = [v for v in versions if v.column is None]
            cost = sum(self.is_recursive(v.relation) for v in whole), len(whole)
            if best is None or cost < best[0]:
                best = cost, versions
        if best is None:
            derived = [name for name, written in self.read(number) if written and self.rules_of(name)]
            why = f": {self.obstacle(derived[0])}" if derived else ""
            return f"no atom of `{rule_text(rule)}` can be partitioned{why}"
        return best[1]

    def _scatterings(self, number: int, rule: r.Clause) -> Iterator[tuple[Version, ...]]:
        """Ways to read partitions: of all atoms with a term, or of one atom by a column with a wildcard."""
        read = self.read(number)
        for pivot in {t: None for x in rule.body if isinstance(x, r.Atom) for t in x.terms if t is not None}:
            yield tuple(self._read(name, terms, pivot, {}) for name, terms in read)
        for position, (name, terms) in enumerate(read):
            for column in [c for c, t in enumerate(terms) if t is None]:
                if not isinstance(self.by(name, column), str):
                    here = Version(name, column)
                    yield tuple(here if p == position else Version(other) for p, (other, _) in enumerate(read))

    def obstacle(self, relation: str) -> str:
        """Why no column of a relation is a pivot."""
        width = len(self._types(relation))
        if not width:
            return f"`{relation}` has no columns"
        if not self.rules_of(relation):
            return f"`{relation}` has no column by which rows differ"
        by_column = {column: self.by(relation, column) for column in range(width)}
        return "; ".join(dict.fromkeys(reason for reason in by_column.values() if isinstance(reason, str)))
