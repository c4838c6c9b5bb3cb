"""The relations of a program under one provenance, computed from facts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from derivable.algebra.semiring import Semiring
from derivable.algebra.semirings import boolean
from derivable.datalog.execute import Executor
from derivable.datalog.facts import FactStore
from derivable.datalog.ground_graph import GroundGraph
from derivable.datalog.limits import Watch
from derivable.datalog.provenance import EXACT, Inference, needs_derivations, tags_of
from derivable.datalog.ram.nodes import Ram
from derivable.datalog.storage import Table
from derivable.datalog.tags import Algebra, GraphTags, Untagged

if TYPE_CHECKING:
    from derivable.datalog.tags import ColumnTags

# The table of an output and its tags as users see them, None without tags.
Shown = tuple[Table, Any]


class Evaluation:
    """A run of a program, and what it found.

    record   the provenance; the relations of some are computed with tags, of others as a ground derivation graph
    columns  the tags of tuples where they are no probabilities of an exact inference, else None
    algebra  what the machine runs on
    tables   relation -> its table, after `run`
    """

    def __init__(self, ram: Ram, facts: FactStore, record: Semiring | Inference, k: int):
        self.ram, self.facts, self.record, self.k = ram, facts, record, k
        self.columns: ColumnTags | None = None
        if record is EXACT:
            self.algebra: Algebra = GraphTags(GroundGraph(boolean))
        elif record is boolean:
            self.algebra = Untagged()
        else:
            self.columns = tags_of(record, facts.random, k)
            self.algebra = self.columns
            if isinstance(record, Semiring) and needs_derivations(record, ram):
                self.algebra = GraphTags(GroundGraph(record))
        self.tables: dict[str, Table] = {}

    def run(self, watch: Watch) -> None:
        """Compute all relations."""
        if isinstance(self.algebra, GraphTags):
            self.algebra.weigh = lambda nodes: self.weights(nodes, watch)
        self.tables = Executor(self.ram, self.facts, self.algebra, watch).run()

    def shown(self, names: Iterable[str], watch: Watch) -> dict[str, Shown]:
        """What users see of some relations, which leaves out the tuples that are in no world."""
        names = list(names)
        if isinstance(self.algebra, Untagged):
            return {name: (self.tables[name], None) for name in names}
        columns: dict[str, Any] = {name: _tags(self.tables[name]) for name in names}
        if isinstance(self.algebra, GraphTags):
            nodes = list(columns.values())
            roots = np.concatenate([*nodes, np.empty(0, np.int64)])
            columns = dict(zip(names, _split(self.values(roots, watch), nodes)))
        found: dict[str, Shown] = {}
        for name, column in columns.items():
            tags = column if self.columns is None else self.columns.show(column)
            if self.columns is not None and isinstance(self.record, Semiring):
                kept = ~self.columns.is_zero(column)
            else:
                kept = tags != 0.0
            found[name] = _possible(self.tables[name], tags, kept)
        return found

    def weights(self, nodes: np.ndarray, watch: Watch) -> np.ndarray:
        """How much nodes count for aggregates, while relations are computed: [node] float64."""
        values = self.values(nodes, watch)
        return values if self.columns is None else self.columns.weights(values)

    def values(self, nodes: np.ndarray, watch: Watch) -> Any:
        """The values [node] of nodes of the ground derivation graph."""
        from derivable.datalog.exact import Grounding, exact_probabilities

        assert isinstance(self.algebra, GraphTags)
        graph = self.algebra.graph
        grounding = Grounding(self.tables, graph.finish(), self.facts, tuple(graph.recursive))
        watch.hide()
        if self.columns is None:
            return exact_probabilities(grounding, nodes, watch)
        from derivable.datalog.batched import levelled

        assert isinstance(self.record, Semiring)
        return levelled(grounding, nodes, {}, self.record, watch).evaluate(self.columns)


def _possible(table: Table, tags: Any, kept: np.ndarray) -> Shown:
    """The table and tags without the tuples that are in no world."""
    if kept.all():
        return table, tags
    keep = np.flatnonzero(kept)
    possible = Table(table.name, table.types, table.new_tags)
    possible.insert([table.column(c, keep) for c in range(len(table.types))], len(keep))
    return possible, tags[keep]


def _split(values: Any, like: Sequence[np.ndarray]) -> list[Any]:
    """The values in parts of these lengths."""
    ends = np.cumsum([0, *map(len, like)]).tolist()
    return [values[start:stop] for start, stop in pairwise(ends)]


def _tags(table: Table) -> Any:
    return table.tags[: table.size]
