"""The reference interpreter of APM: columns in NumPy, an instruction at a time; it says what a program means.

Gathers, prefix sums, sorts, distinct rows and joins are those of `derivable.parallel.reference`.
Source: Biberstein et al. 2026, algorithm 1.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from derivable.algebra.semirings import boolean
from derivable.core.progress import NEVER
from derivable.datalog.aggregates.groups import Context, run_aggregate
from derivable.datalog.aggregates.nodes import AggregateRule
from derivable.datalog.apm import nodes as a
from derivable.datalog.facts.facts import FactColumns, FactStore
from derivable.datalog.foreign.standard import PREDICATES
from derivable.datalog.fused.state import Batch
from derivable.datalog.ram import nodes as m
from derivable.datalog.run.generate import generate
from derivable.datalog.run.queries import Queries
from derivable.datalog.run.throw import thrown
from derivable.datalog.scalars import arithmetic
from derivable.datalog.tables.storage import Table
from derivable.datalog.tags.random_facts import VALUE
from derivable.datalog.tags.tags import ColumnTags, SemiringTags, Untagged
from derivable.datalog.values.values import ValueType
from derivable.parallel import reference


@dataclass
class Part:
    """Columns of words [row] int64, and tags [row]."""

    columns: list[np.ndarray]
    tags: Any


@dataclass
class Interpreter:
    """A run of an APM program. After `run`, `parts[name]["stable"]` has the rows of a relation.

    algebra  the tags; of a run without tags those of the boolean semiring
    rounds   of each stratum, at most `round_limit`
    counts   how often each kind of instruction was executed
    """

    program: a.Program
    facts: FactStore
    algebra: ColumnTags | None = None
    round_limit: int | None = None
    parts: dict[str, dict[str, Part]] = field(default_factory=dict)
    rounds: list[int] = field(default_factory=list)
    counts: dict[type, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.tags: Any = SemiringTags(boolean, self.facts.random) if self.algebra is None else self.algebra
        self.symbols = self.facts.symbols
        self.mode = Untagged() if self.algebra is None else self.algebra
        self.queries = Queries({}, self.mode, self.symbols, self.facts.random, NEVER)
        self.values: dict[str, Any] = {}

    def run(self) -> dict[str, Part]:
        """Relation -> its rows, sorted, and their tags."""
        for stratum in self.program.strata:
            for name in stratum.relations:
                self.parts[name] = {part: self.empty(name) for part in ("stable", "recent")}
                self.parts[name]["delta"] = self.given(name)
            self.block(stratum.once, stratum.relations)
            static: dict[str, Any] = {}
            rounds = 0
            while stratum.loop and any(len(self.parts[name]["recent"].tags) for name in stratum.relations):
                if rounds == self.round_limit:
                    break
                rounds += 1
                static = self.block(stratum.loop, stratum.relations, static)
            self.rounds.append(rounds)
            for name in stratum.relations:
                self.parts[name]["stable"] = self.complete(name)
        return {name: parts["stable"] for name, parts in self.parts.items()}

    def empty(self, name: str) -> Part:
        return Part([np.empty(0, np.int64) for _ in self.program.relations[name].types], self.tags.one(0))

    def given(self, name: str) -> Part:
        """The facts of a relation."""
        width = len(self.program.relations[name].types)
        columns, variables = self.facts.relations.get(name, FactColumns()).joined(width)
        tags, random = self.tags.one(len(variables)), variables >= 0
        if random.any():
            tags[random] = self.fact_tags(variables[random])
        return Part(columns, tags)

    def fact_tags(self, variables: np.ndarray) -> Any:
        if self.algebra is not None:
            return self.algebra.fact_tags(variables)
        random = self.facts.random
        is_zero = np.asarray(random.probabilities)[variables] == 0.0
        return ~(is_zero & (random.kinds_of(variables) == VALUE))

    def complete(self, name: str) -> Part:
        """What is stable and what is recent, sorted."""
        stable, recent = self.parts[name]["stable"], self.parts[name]["recent"]
        self.parts[name]["recent"] = self.empty(name)
        columns = [np.concatenate(pair) for pair in zip(stable.columns, recent.columns)]
        tags = self.tags.concatenate([stable.tags, recent.tags])
        if not columns:
            return Part([], tags)
        columns, order = reference.sort(tuple(columns))
        return Part(list(columns), tags[order])

    def block(self, block: a.Block, relations: Iterable[str], static: dict[str, Any] | None = None) -> dict[str, Any]:
        """Run a block; `static` has the static registers, once they are there. Returns them."""
        self.values = dict(static or {})
        kept: dict[str, Any] = dict(static or {})
        self.sizes = {
            (name, part): len(rows.tags) for name, parts in self.parts.items() for part, rows in parts.items()
        }
        for instruction in block:
            made = a.results(instruction)
            if static and made and all(register.name in static for register in made):
                continue
            self.counts[type(instruction)] = self.counts.get(type(instruction), 0) + 1
            if isinstance(instruction, a.Alloc):
                continue
            self.instruction(instruction)
            for register in made:
                if register.is_static:
                    kept[register.name] = self.values[register.name]
        for name in relations:
            self.parts[name]["delta"] = self.empty(name)
        return kept

    # Registers

    def size(self, size: a.Size) -> int:
        """The number that a size stands for now."""
        match size:
            case a.Rows(relation=name, part=part):
                return self.sizes[name, part]
            case a.Total(register=name):
                return int(np.sum(self.values[name], dtype=np.int64))
            case a.Found(register=name):
                return int(self.values[name])
            case a.Sum(parts=parts):
                return sum(map(self.size, parts))
            case a.Exactly(number=number):
                return number
        raise TypeError(f"not a size: {size!r}")

    def value(self, register: a.Register) -> Any:
        return self.values[register.name]

    def many(self, registers: Iterable[a.Register]) -> list[Any]:
        return [self.value(register) for register in registers]

    def part(self, table: a.Table) -> Part:
        return Part(self.many(table.columns), self.value(table.tags))

    def assign(self, register: a.Register, value: Any) -> None:
        assert register.type in (a.HASH, a.COUNT) or len(value) == self.size(register.size), register
        self.values[register.name] = value

    def assign_table(self, table: a.Table, part: Part) -> None:
        for register, column in zip(table.registers, (*part.columns, part.tags)):
            self.assign(register, column)

    # Instructions

    def instruction(self, i: a.Instruction) -> None:
        """What an instruction means."""
        tags = self.tags
        match i:
            case a.Load(into=into, relation=name, part=part):
                self.assign_table(into, self.parts[name][part])
            case a.Store(relation=name, part=part, table=table):
                rows = self.part(table)
                if part == "delta":
                    rows = self.appended([self.parts[name]["delta"], rows])
                    self.sizes[name, "delta"] = len(rows.tags)
                self.parts[name][part] = rows
            case a.Fill(into=into):
                self.assign(into, tags.one(self.size(into.size)))
            case a.Eval():
                self.eval(i)
            case a.Mask(into=into, test=test, sources=sources):
                self.assign(into, self.mask(test, self.many(sources)))
            case a.TagOperation(into=into, operation=operation, sources=sources):
                self.assign(into, getattr(tags, operation)(*self.many(sources)))
            case a.Gather(into=into, indices=indices, sources=sources):
                rows = self.value(indices)
                for register, source in zip(into, sources):
                    column = self.value(source)
                    is_tag = source.type == a.TAG
                    self.assign(register, column[rows] if is_tag else reference.gather(column, rows))
            case a.GatherTags(into=into, indices=indices, sources=sources):
                first, *others = (self.value(s)[self.value(rows)] for rows, s in zip(indices, sources))
                for other in others:
                    first = tags.times(first, other)
                self.assign(into, first)
            case a.Choose(into=into, indices=indices, source=source, otherwise=otherwise):
                rows = self.value(indices)
                chosen, there = self.value(otherwise)[np.arange(len(rows))], rows >= 0
                if there.any():
                    chosen[there] = self.value(source)[rows[there]]
                self.assign(into, chosen)
            case a.Build(into=into, columns=columns):
                self.assign(into, self.built(self.many(columns), self.size(into.size)))
            case a.Count(into=into, probes=probes, index=index):
                left, _ = self.joined(self.many(probes), self.value(index), self.size(into.size))
                self.assign(into, np.bincount(left, minlength=self.size(into.size)))
            case a.Find(into=into, probes=probes, index=index):
                rows = np.full(self.size(into.size), -1, np.int64)
                left, right = self.joined(self.many(probes), self.value(index), len(rows))
                rows[left] = right
                self.assign(into, rows)
            case a.Join(left=left, right=right, probes=probes, index=index, counts=counts):
                pairs = self.joined(self.many(probes), self.value(index), self.size(counts.size))
                self.assign(left, pairs[0])
                self.assign(right, pairs[1])
            case a.Scan(into=into, source=source):
                given = self.value(source).astype(np.int64)
                self.assign(into, reference.scan("add", given, exclusive=True))
            case a.Compact(into=into, mask=mask, offsets=offsets):
                rows = np.empty(self.size(into.size), np.int64)
                there = np.flatnonzero(self.value(mask))
                rows[self.value(offsets)[there]] = there
                self.assign(into, rows)
            case a.Append(into=into, sources=sources):
                append = tags.concatenate if into.type == a.TAG else np.concatenate
                self.assign(into, append(self.many(sources)))
            case a.Copy(into=into, source=source):
                self.assign(into, self.value(source)[np.arange(self.size(into.size))])
            case a.Sort(into=into, source=source):
                self.assign_table(into, self.sorted(self.part(source)))
            case a.Unique():
                self.unique(i)
            case a.Merge(into=into, left=left, right=right):
                self.assign_table(into, self.sorted(self.appended([self.part(left), self.part(right)])))
            case a.Call():
                self.call(i)

    def appended(self, parts: list[Part]) -> Part:
        columns = [np.concatenate(columns) for columns in zip(*(part.columns for part in parts))]
        return Part(columns, self.tags.concatenate([part.tags for part in parts]))

    def sorted(self, part: Part) -> Part:
        if not part.columns:
            return part
        columns, order = reference.sort(tuple(part.columns))
        return Part(list(columns), part.tags[order])

    def eval(self, i: a.Eval) -> None:
        register = i.holds if i.into is None else i.into
        assert register is not None
        count = self.size(register.size)
        columns = {name: self.value(source) for name, source in i.sources.items()}
        if i.into is None:
            self.assign(register, arithmetic.condition(i.expression, columns, count, self.symbols))
            return
        words, valid = arithmetic.evaluate(i.expression, columns, count, self.symbols)
        self.assign(i.into, words)
        if i.holds is not None:
            self.assign(i.holds, np.ones(count, bool) if valid is None else valid)

    def mask(self, test: str, sources: list[Any]) -> np.ndarray:
        match test:
            case "absent":
                return sources[0] < 0
            case "nonzero":
                return ~self.tags.is_zero(sources[0])
            case "changed":
                return ~self.tags.saturated(*sources)
            case "not":
                return ~sources[0]
            case "and":
                return sources[0] & sources[1]
        return sources[0] == sources[1]

    def built(self, columns: list[np.ndarray], size: int) -> tuple[list[np.ndarray], np.ndarray]:
        """An index: the columns in order, and where each row stood."""
        if not columns:
            return [np.zeros(size, np.int64)], np.arange(size)
        ordered, order = reference.sort(tuple(columns))
        return list(ordered), order

    def joined(self, probes: list[np.ndarray], index: tuple, size: int) -> tuple[np.ndarray, np.ndarray]:
        """Pairs of a probe and a row of the table, by probe, then by row."""
        ordered, place = self.built(probes, size)
        left, right = reference.join(tuple(ordered), tuple(index[0]))
        left, right = place[left], index[1][right]
        order = np.lexsort((right, left))
        return left[order], right[order]

    def unique(self, i: a.Unique) -> None:
        part = self.part(i.source)
        count = len(part.tags)
        columns = tuple(part.columns) or (np.zeros(count, np.int64),)
        distinct, offsets = reference.unique(columns)
        number = len(offsets) - 1
        tags = self.tags.reduce(part.tags, offsets) if number else part.tags[:0]
        # Registers have the size of the source: behind the rows found anything may stand.
        padding = np.arange(count - number) % max(count, 1)
        padded = self.appended([Part(list(distinct), tags), Part([c[padding] for c in columns], part.tags[padding])])
        self.assign(i.count, number)
        self.assign_table(i.into, Part(padded.columns[: len(part.columns)], padded.tags))

    def call(self, i: a.Call) -> None:
        part = self.part(i.source)
        if isinstance(i.what, AggregateRule):
            types = tuple(r.type for r in i.into.columns if isinstance(r.type, ValueType))
            body = self.table(i.what.body, i.source)
            groups = None if i.groups is None else self.table("groups", i.groups)
            context = Context(self.mode, self.symbols, self.facts.random)
            columns, count, tags = run_aggregate(i.what, types, body, groups, context)
            self.finish(i, Part(columns, tags if tags is not None else self.tags.one(count)), count)
        else:
            self.finish(i, *self.generated(i.what, i.names, part))

    def finish(self, i: a.Call, part: Part, count: int) -> None:
        self.assign(i.count, count)
        self.assign_table(i.into, part)

    def table(self, name: str, given: a.Table) -> Table:
        """A table of the machine with these rows."""
        part = self.part(given)
        types = [r.type for r in given.columns if isinstance(r.type, ValueType)]
        table = Table(name, types, None if self.algebra is None else self.algebra.empty)
        ids = table.insert(part.columns, len(part.tags))
        if self.algebra is not None:
            table.tags[ids] = part.tags
        table.visible_size = table.size
        return table

    def generated(self, node: m.Generate | m.Coin, names: tuple, part: Part) -> tuple[Part, int]:
        """Rows with the answers of a foreign predicate, or times a coin; `names` are those of both sides' columns."""
        given, made = names
        batch = Batch(len(part.tags), dict(zip(given, part.columns)), None if self.algebra is None else part.tags)
        if isinstance(node, m.Coin):
            found = list(thrown(self.queries, batch, node))
        else:
            found = list(generate(self.queries, batch, node, PREDICATES[node.predicate], self.queries.foreign))
        empty = Part([np.empty(0, np.int64) for _ in made], self.tags.one(0))
        tags = [self.tags.one(b.count) if self.algebra is None else b.tags for b in found]
        parts = [Part([b.columns[name] for name in made], t) for b, t in zip(found, tags)]
        whole = self.appended([empty, *parts])
        return whole, len(whole.tags)
