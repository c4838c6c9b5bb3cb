"""What all runs in partitions share: plan, provenance, and the facts of this process and of elsewhere."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from derivable.algebra.semiring import Semiring
from derivable.algebra.semirings import boolean
from derivable.core.diagnostics import UnsupportedError
from derivable.core.names import FreshNames
from derivable.datalog.api.partitions import Distribution, PartitionRun, source_of
from derivable.datalog.api.relation_view import RelationView
from derivable.datalog.distribution.frames import Frame, example, frame_of
from derivable.datalog.distribution.partition import Partition
from derivable.datalog.facts.fact_files import read_facts
from derivable.datalog.facts.file_forms import AS_IT_IS, FactFile
from derivable.datalog.facts.inputs import taken
from derivable.datalog.facts.load import checked_words, known_relation, load_relation
from derivable.datalog.facts.store import FactStore, new_store
from derivable.datalog.run.limits import Limits
from derivable.datalog.tables.storage import Table
from derivable.datalog.tags.provenance import proofs_per_tag, provenance_of, tags_of
from derivable.datalog.tags.random_facts import RandomFacts

if TYPE_CHECKING:
    from derivable.datalog.api.program import Program


class DistributedRun(ABC):
    """A program in partitions.

    frames  relation -> facts that are not in this process; of the others, `local`, every partition gets all
    """

    # Keys of values; each partition owns some of them.
    num_keys: int

    def _begin(
        self,
        program: Program,
        tables: Mapping[str, Any],
        types: Mapping[str, Mapping[str, str]],
        here: Mapping[str, Any],
        provenance: Any,
        k: int | None,
        limits: Limits,
        sizes: Mapping[str, int | None],
    ) -> None:
        """
        tables  relation -> its facts that are elsewhere, with columns of these `types`, as Spark calls them, and of
                these `sizes` in bytes, None for unknown ones
        here    relation -> its facts in this process
        """
        rules = program._plan({}).rules
        for name in tables:
            known_relation(rules, name, f"facts for an unknown relation `{name}`", rules.source)
        local = taken(here)
        plan = program._plan_for({**local, **{name: example(of) for name, of in types.items()}})
        relations = plan.rules.relations
        frames = {name: frame_of(relations[name], table, types[name]) for name, table in tables.items()}
        self.compatible, self.plan, self.frames, self.limits = program.compatible, plan, frames, limits
        store = new_store(plan.rules)
        self.local = {name: self.checked(name, rows, store) for name, rows in local.items()}
        self.provenance = self._default(store) if provenance is None else provenance
        self.record = provenance_of(self.provenance)
        self.k = proofs_per_tag(provenance, self.record, k)
        self.name: str = self.provenance if isinstance(self.provenance, str) else self.record.name
        self.distribution = Distribution.of(plan, (*frames, *local), sizes, self.provenance)

    def checked(self, name: str, rows: Any, store: FactStore) -> Any:
        """Facts of this process, in a form that other machines can have; they are loaded into a store to be checked."""
        rules = self.plan.rules
        relation = known_relation(rules, name, f"facts for an unknown relation `{name}`", rules.source)
        if isinstance(rows, os.PathLike):
            form = rows.form if isinstance(rows, FactFile) else AS_IT_IS
            rows = read_facts(rows, name, relation.types, relation.column_names, form, None)
        load_relation(relation, rows, store)
        return rows

    def _default(self, store: FactStore) -> str:
        """The provenance that the facts need, those here, which the store has, and those of elsewhere."""
        has_tags = bool(store.random.probabilities) or any(frame.tag is not None for frame in self.frames.values())
        return "exact" if has_tags or self.plan.is_uncertain else "unit"

    @property
    def sources(self) -> dict[str, str]:
        """Relation of the distribution's rules -> that of the program whose facts it has."""
        return {source_of(self.distribution.rules, name): name for name in (*self.frames, *self.local)}

    @abstractmethod
    def whole(self, name: str, frame: Frame) -> Any:
        """The facts of a frame that all partitions need."""

    def whole_facts(self, partition: Partition) -> dict[str, Any]:
        """Input -> its facts, of those that each partition has all of."""
        names = {source: self.sources[source] for source in partition.whole if source in self.sources}
        return {
            source: self.local[name] if name in self.local else self.whole(name, self.frames[name])
            for source, name in names.items()
        }

    @property
    def adds_up(self) -> bool:
        """Whether tags of a row that follows in several partitions are added up: those that are seen are values of the
        semiring."""
        record = self.record
        return record is boolean or (isinstance(record, Semiring) and record.is_scalar and record.show is None)

    def planned_partition(self, output: str, hint: str) -> Partition | str:
        """The partition's program of an output, or why it has none.

        hint  what else computes an output

        Raises UnsupportedError for one whose tags would have to be added up, and are not.
        """
        planned = self.distribution.plans[output]
        if isinstance(planned, Partition) and planned.is_scattered and not self.adds_up:
            raise UnsupportedError(
                f"rows of `{output}` follow in several partitions, and tags of {self.name} do not add up over them",
                hint=f"query a relation that keeps the pivot; {hint}",
            )
        return planned

    def partition_run(self, partition: Partition, facts: Mapping[str, Any]) -> PartitionRun:
        return PartitionRun.of(
            self.plan,
            partition,
            facts,
            provenance=self.provenance,
            k=self.k,
            limits=self.limits,
            num_keys=self.num_keys,
            compatible=self.compatible,
        )

    # Results

    def column_names(self, output: str, fresh: FreshNames) -> list[str]:
        """What the columns of an output are called; that of tags is another name that is `fresh`."""
        titles = self.plan.titles.get(output) or (None,) * len(self.plan.rules.relations[output].types)
        return [fresh(title or f"column_{c}") for c, title in enumerate(titles)]

    def tag_type(self, partition: Partition) -> np.dtype | None:
        """The type of tags, which are numbers of 64 bits or bools; None without any.

        Raises UnsupportedError for others.
        """
        if self.record is boolean:
            return None
        # Without facts and rules tags have the type that they have.
        empty = replace(partition, rules=replace(partition.rules, facts=(), rules=()), owners={})
        tags = self.partition_run(empty, {}).run(np.empty(0, np.int64), {}).tags
        if tags is None:
            return None
        if self.record.name == "counting" or tags.dtype.kind in "iu":
            return np.dtype(np.int64)
        if tags.dtype.kind not in "fb":
            hint = "leave out the engine, or the folder of the run"
            raise UnsupportedError(f"tags of {self.name} are no columns of numbers", hint=hint)
        return np.dtype(np.float64 if tags.dtype.kind == "f" else bool)

    def view(self, output: str, table: Any) -> RelationView:
        """The rows of an output, from a table of Arrow with its columns; tags of a row that is there more than once are
        added up."""
        relation = replace(self.plan.rules.relations[output], column_names=())
        store = new_store(self.plan.rules)
        columns = taken({output: table})[output]
        width = len(relation.types)
        distinct = Table(output, relation.types)
        numbers = distinct.insert(checked_words(relation, columns.arrays[:width], store.symbols), table.num_rows)
        tags = None
        if self.record is not boolean:
            tags_of_rows = columns.arrays[width]
            tags = np.empty(distinct.size, tags_of_rows.dtype)
            tags[numbers] = tags_of_rows
            if len(tags_of_rows) > distinct.size:
                tags = self._added(tags_of_rows, numbers, distinct.size)
        return RelationView(distinct, tags, store.symbols, self.plan.titles.get(output))

    def _added(self, tags: np.ndarray, rows: np.ndarray, count: int) -> np.ndarray:
        """[row] the sums of tags of the same row."""
        order = np.argsort(rows, kind="stable")
        starts = np.searchsorted(rows[order], np.arange(count))
        assert isinstance(self.record, Semiring)
        algebra = tags_of(self.record, RandomFacts())
        # Integers of files would overflow.
        values = tags.astype(algebra.empty(0).dtype, copy=False)[order]
        return algebra.reduce(values, np.append(starts, len(tags)))
