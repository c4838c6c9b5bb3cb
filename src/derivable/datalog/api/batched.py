"""A program over batches of samples: one run grounds all of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from derivable.algebra.semiring import Semiring
from derivable.algebra.semirings import boolean
from derivable.core.and_or import FALSE
from derivable.core.diagnostics import UnsupportedError
from derivable.core.progress import NEVER
from derivable.datalog.facts.batch_facts import BatchFacts, Choices, add_batch, lifted
from derivable.datalog.facts.inputs import as_tuple
from derivable.datalog.facts.load import load_python_facts, tuple_columns
from derivable.datalog.facts.store import FactStore, new_store
from derivable.datalog.ram.lower import lower
from derivable.datalog.ram.nodes import Ram
from derivable.datalog.rules import nodes as r
from derivable.datalog.rules.demand import Demand
from derivable.datalog.rules.samples import is_counted, with_samples
from derivable.datalog.rules.strata import stratify
from derivable.datalog.tags.random_facts import RandomFacts
from derivable.datalog.values.values import show_column, sort_keys
from derivable.parallel.order import order_of

if TYPE_CHECKING:
    from derivable.datalog.exact.exact import Grounding
    from derivable.datalog.run.limits import Watch
    from derivable.datalog.run.profile import Profile
    from derivable.datalog.tables.storage import Table
    from derivable.datalog.tags.provenance import Inference
    from derivable.datalog.tags.tags import ColumnTags

# Texts that batches may add to those of the facts that all have, before a layer forgets them.
MOST_TEXTS = 1 << 20


@dataclass(frozen=True, eq=False)
class Batched:
    """A program over batches.

    rules      as the program has them, without samples
    ram        whose relations in `dependent` have the sample as their first column
    dependent  the relations that depend on the sample
    """

    rules: r.Rules
    ram: Ram
    dependent: frozenset[str]


def batched(rules: r.Rules, demanded: Demand, varying: Iterable[str]) -> Batched:
    """The program over batches, from its rules with their demand."""
    if any(relation.keys is not None for relation in rules.relations.values()):
        raise UnsupportedError(
            "an aggregate inside of a recursion has its groups as the recursion looks them up, not in batches",
            hint="run the program for each sample",
        )
    varying_relations = set(varying)
    if any(t.family == "entity" for name in varying_relations for t in rules.relations[name].types):
        # Terms are there in the samples whose facts have them.
        varying_relations.update(constructor.relation for constructor in rules.constructors.values())
    while True:
        first = None if demanded.first is None else with_samples(demanded.first, varying_relations)
        asked = () if first is None else (name for name in first.rules.outputs if name in first.relations)
        then = with_samples(demanded.then, varying_relations.union(asked))
        known = len(varying_relations)
        varying_relations |= then.relations
        if first is None or len(varying_relations) == known:
            break
    ram = lower(stratify(then.rules))
    if first is not None:
        ram = replace(ram, demand=lower(stratify(first.rules)))
    return Batched(rules, ram, frozenset(varying_relations))


@dataclass(eq=False)
class BatchRuns:
    """Runs of a program over batches, with facts that are the same in all of them.

    facts  these, as `inputs.taken` hands them on
    """

    program: Batched
    facts: Mapping[str, Any]
    base: FactStore | None = field(default=None, init=False)
    most_texts: int = field(default=0, init=False)
    is_large: bool = field(default=False, init=False)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "base": None}

    def _base(self, varying: Iterable[str]) -> FactStore:
        from derivable.datalog.facts.program_facts import check_choices, load_program_facts

        if self.base is None or _num_texts(self.base) > self.most_texts:
            rules = self.program.rules
            check_choices(rules)
            store = new_store(rules)
            load_program_facts(rules, store)
            load_python_facts(rules, self.facts, store, loaded=varying)
            self.base, self.most_texts = store, MOST_TEXTS + 2 * _num_texts(store)
        return self.base

    def run(
        self,
        batch: int,
        facts: Sequence[tuple[str, BatchFacts]],
        record: Semiring | Inference,
        name: str,
        watch: Watch,
        columns_of: Callable[[RandomFacts], ColumnTags] | None,
        device: Any = None,
    ) -> RunBatch:
        """Derive the tuples of a batch of samples.

        facts       relations and the facts of the samples, or of all samples; a relation may be named several times
        record      the provenance, and what the user calls it
        columns_of  its tag columns for random facts; None runs on the ground derivation graph
        device      where tags that are columns of scalars are computed; None for the CPU
        """
        from derivable.datalog.exact.size import warn_of_size
        from derivable.datalog.run.demand_facts import demanded
        from derivable.datalog.tags.provenance import carrier_of

        rules, ram = self.program.rules, self.program.ram
        base = self._base([relation for relation, _ in facts])
        carrier = carrier_of(record, name)
        random = base.random.copy()
        random.require(carrier)
        store = FactStore(base.symbols, random, lifted(base, self.program.dependent, batch))
        num_facts = len(random.probabilities)
        random.samples.append(np.full(num_facts, -1))
        choices = [add_batch(rules.relations[n], part, store, carrier.has_probabilities) for n, part in facts]
        self._add_terms(store, batch)
        ends = num_facts, len(random.probabilities)
        store.relations = store.more(demanded(ram, store, watch))
        if columns_of is None:
            tables, grounding, profile = _grounded(ram, store, record, watch)
            if not self.is_large:
                nodes = grounding.graph.num_nodes // max(batch, 1)
                self.is_large = warn_of_size(nodes, "the ground program of each sample", profile)
            return RunBatch(self.program, batch, tables, store, choices, ends, None, grounding)
        columns = columns_of(random)
        tables = _tagged(ram, store, columns, name, watch, device)
        return RunBatch(self.program, batch, tables, store, choices, ends, columns)

    def _add_terms(self, store: FactStore, batch: int) -> None:
        """Insert the terms in the facts, and the terms in them, into their constructors' relations."""
        rules, varying_relations = self.program.rules, self.program.dependent
        if not rules.constructors or not store.symbols.entities:
            return
        relations = {c.relation for c in rules.constructors.values()}
        by_type: dict[str, list[np.ndarray]] = {}
        for name, facts in store.relations.items():
            if name not in rules.relations or name in relations:
                continue
            start = int(name in varying_relations)
            for c, t in enumerate(rules.relations[name].types):
                if t.family == "entity":
                    for part in facts.columns:
                        sample = part[0] if start else np.full(len(part[c]), -1)
                        by_type.setdefault("samples", []).append(sample)
                        by_type.setdefault("words", []).append(part[c + start])
        if not by_type:
            return
        samples, words = np.concatenate(by_type["samples"]), np.concatenate(by_type["words"])
        entities: Any = store.symbols.entities
        for number in np.unique(samples).tolist():
            terms = entities.parts(np.asarray(words[samples == number], np.int64))
            for name, constructor in rules.constructors.items():
                columns = entities.rows_of(name, terms)
                if not len(columns[0]):
                    continue
                count = len(columns[0])
                if constructor.relation not in varying_relations:
                    store.add(constructor.relation, columns)
                elif number >= 0:
                    store.add(constructor.relation, [np.full(count, number), *columns])
                else:
                    store.add(
                        constructor.relation,
                        [np.repeat(np.arange(batch), count), *(np.tile(column, batch) for column in columns)],
                    )


def _num_texts(store: FactStore) -> int:
    symbols = store.symbols
    return len(symbols.texts if symbols.arena is None else symbols.arena)


def _grounded(ram: Ram, store: FactStore, record: Semiring | Inference, watch: Watch) -> tuple[Any, Grounding, Profile]:
    """The tables of a batch, whose tags are nodes of the ground derivation graph, that graph, and its profile."""
    from derivable.datalog.api.evaluation import Evaluation
    from derivable.datalog.exact.exact import Grounding
    from derivable.datalog.run.execute import Executor
    from derivable.datalog.tags.ground_graph import GroundGraph
    from derivable.datalog.tags.provenance import EXACT
    from derivable.datalog.tags.tags import GraphTags

    semiring = record if isinstance(record, Semiring) else boolean
    graph = GroundGraph(semiring)
    algebra = GraphTags(graph)
    executor = Executor(ram, store, algebra, watch)
    # Aggregates that go by weights take those of the semiring, or else probabilities.
    evaluation = Evaluation(ram, store, EXACT if semiring is boolean else record, 1)
    with evaluation.weighing(algebra, executor.tables, watch):
        tables = executor.run()
    return tables, Grounding(tables, graph.finish(), store, tuple(graph.recursive)), executor.profile()


def _tagged(ram: Ram, store: FactStore, columns: ColumnTags, name: str, watch: Watch, device: Any) -> Any:
    """The tables of a batch, whose tags are values."""
    from derivable.datalog.run.execute import Executor
    from derivable.datalog.run.small_runs import run_whole
    from derivable.datalog.tags.tags import SemiringTags
    from derivable.datalog.tags.topkproofs import TopProofTags

    # A limit counts the tuples of all relations, and on a device outputs alone are tables.
    is_counted = watch.limits.tuple_limit is not None
    has_lattices = any(relation.lattice is not None for relation in ram.relations.values())
    if device is not None and isinstance(columns, SemiringTags | TopProofTags) and not is_counted and not has_lattices:
        from derivable.datalog.apm.run import run_on_device
        from derivable.datalog.apm.tables import LeftToHost
        from derivable.datalog.facts.coins import Coins

        with suppress(LeftToHost):
            return run_on_device(ram, store, columns, name, device, watch, Coins(store.random))[0]
    columns.watch(watch)
    try:
        begun = run_whole(ram, store, watch, columns)
        if begun is not None and begun.number_of_strata == len(ram.strata):
            return begun.tables
        return Executor(ram, store, columns, watch, begun=begun).run()
    finally:
        columns.watch(NEVER)


@dataclass(frozen=True, eq=False)
class RunBatch:
    """A batch that was run. Tags are nodes of the grounding if there is one, else values in `columns`.

    batch    the number of samples
    choices  for the facts of each varying relation, the groups of its random facts, if it has some
    shared_facts  the random facts that all batches have end at the first number, those of the samples at the second,
             and the others are made by rules
    """

    program: Batched
    batch: int
    tables: Mapping[str, Table]
    facts: FactStore
    choices: Sequence[Choices | None]
    shared_facts: tuple[int, int]
    columns: ColumnTags | None = None
    grounding: Grounding | None = None

    def derived(self, name: str) -> Derived:
        """All tuples of a relation, sample by sample, in each of them in the order of the values."""
        table, symbols = self.tables[name], self.facts.symbols
        relation, columns = self.program.rules.relations[name], table.all_columns([np.int64] * len(table.types))
        tags = table.tags[: table.size]
        possible = np.flatnonzero(~self.columns.is_zero(tags) if self.columns else tags != FALSE)
        if name not in self.program.dependent:
            columns.insert(0, np.empty(0, np.int64))
            samples, possible = np.repeat(np.arange(self.batch), len(possible)), np.tile(possible, self.batch)
        else:
            samples = columns[0][possible]
        columns, tags = [samples, *(column[possible] for column in columns[1:])], tags[possible]
        keys = [columns[0], *(sort_keys(c, t, symbols) for c, t in zip(columns[1:], relation.types))]
        order = order_of(keys)
        shown = tuple(show_column(c[order], t, symbols) for c, t in zip(columns[1:], relation.types))
        return Derived(columns[0][order], shown, tags[order])

    def tags_of(self, name: str, wanted: Sequence[Sequence[Any]] | None, shared: Sequence[Any] = ()) -> np.ndarray:
        """The tags of tuples, sample by sample; zero for what is not derived.

        wanted  [sample] the tuples of each; None for the `shared` ones in all of them
        """
        relation, table = self.program.rules.relations[name], self.tables[name]
        if wanted is None:
            rows, samples = [as_tuple(t) for t in shared], np.repeat(np.arange(self.batch), len(shared))
        else:
            rows = [as_tuple(t) for sample in wanted for t in sample]
            samples = np.repeat(np.arange(self.batch), [len(sample) for sample in wanted])
        if not rows or not self.batch:
            return table.tags[:0]
        columns = tuple_columns(relation, rows, self.facts.symbols)
        if wanted is None:
            columns = [np.tile(column, self.batch) for column in columns]
        if name in self.program.dependent:
            columns = [samples, *columns]
        if not table.size:
            return self.columns.zero(len(samples)) if self.columns else np.full(len(samples), FALSE, table.tags.dtype)
        ids = table.find(columns, len(samples))
        tags = table.tags[: table.size][np.maximum(ids, 0)]
        tags[ids < 0] = self.columns.zero(1)[0] if self.columns else FALSE
        return tags

    @property
    def num_tuples(self) -> np.ndarray:
        """[sample] the tuples of all relations together, as a run of each sample by itself would count them."""
        counts = np.zeros(self.batch, np.int64)
        for name, table in self.tables.items():
            if is_counted(name):
                is_varying = name in self.program.dependent
                counts += np.bincount(table.column(0), minlength=self.batch) if is_varying else table.size
        return counts

    @property
    def random(self) -> RandomFacts:
        return self.facts.random


@dataclass(frozen=True, eq=False)
class Derived:
    """Tuples of a batch: samples [row] ascending, columns [row] as users see them, tags [row]."""

    samples: np.ndarray
    columns: tuple[np.ndarray, ...]
    tags: np.ndarray

    def only(self, rows: np.ndarray) -> Derived:
        return Derived(self.samples[rows], tuple(column[rows] for column in self.columns), self.tags[rows])

    def tuples(self, batch: int) -> list[list[tuple[Any, ...]]]:
        """[sample] the tuples of each."""
        counts = np.bincount(self.samples, minlength=batch)
        rows = list(zip(*(column.tolist() for column in self.columns))) if self.columns else [()] * len(self.samples)
        ends = np.cumsum(counts).tolist()
        return [rows[stop - count : stop] for stop, count in zip(ends, counts.tolist())]
