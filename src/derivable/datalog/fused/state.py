"""What the queries of a run read, and the batches of rows that they give."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from derivable.core.progress import Deadline
from derivable.datalog.facts.coins import Coins
from derivable.datalog.ram import nodes as m
from derivable.datalog.ram.estimate import Estimator
from derivable.datalog.scalars.nodes import Const, Var
from derivable.datalog.tables.storage import Table
from derivable.datalog.tags.random_facts import RandomFacts
from derivable.datalog.tags.tags import Algebra, Untagged
from derivable.datalog.values.symbols import SymbolTable
from derivable.datalog.values.values import word_of

Columns = list[np.ndarray]


@dataclass
class Batch:
    """Rows of a query: column name -> words [row], and their tags."""

    count: int
    columns: dict[str, np.ndarray]
    tags: Any

    def only(self, algebra: Algebra, rows: np.ndarray) -> Batch:
        """The rows of a mask or of row numbers."""
        if rows.dtype == bool:
            if rows.all():
                return self
            rows = np.flatnonzero(rows)
        columns = {name: column[rows] for name, column in self.columns.items()}
        return Batch(len(rows), columns, algebra.take(self.tags, rows))


class State:
    """The tables of a run and what is known of them.

    mode      the tag algebra of queries: a support run of a graph stratum reads no tags although its tables have them
    complete  the relations that have all their rows
    coins     the random facts of rules
    counts    rows of each operator, by its identity, if they are to be counted
    plans     what the program keeps for its next runs
    has_candidates  whether all kernels write candidates with their tags, see `emit_insert.CandidateEmitter`
    """

    has_candidates = False

    def __init__(
        self,
        tables: dict[str, Table],
        algebra: Algebra,
        symbols: SymbolTable,
        random: RandomFacts,
        deadline: Deadline,
    ):
        self.tables = tables
        self.symbols = symbols
        self.algebra = algebra
        self.coins = Coins(random)
        self.deadline = deadline
        self.complete: set[str] = set()
        self.mode: Any = algebra
        self.counts: dict[int, int] | None = None
        self.plans: dict[Any, Any] = {}

    def count(self, node: m.Operator, rows: int) -> None:
        """An operator of a query has made rows."""
        assert self.counts is not None
        self.counts[id(node)] = self.counts.get(id(node), 0) + rows

    def estimator(self) -> Estimator | None:
        """What estimates the rows of queries over these tables; None where nothing is known of them."""
        return None

    def rows_of(self, scan: m.Scan) -> slice | np.ndarray:
        """The rows of a driver: a slice of the log, or row numbers."""
        table = self.tables[scan.relation]
        if scan.part == "all":
            return slice(0, table.visible_size)
        if scan.part == "recent":
            return table.recent
        if isinstance(self.mode, Untagged):
            return slice(0, table.stable_size)
        assert table.stamps is not None
        return np.flatnonzero(table.stamps[: table.visible_size] < table.round)

    def bounds_of(self, scan: m.Scan) -> tuple[int, int]:
        """What rows of a scan are below, and the last round in which a stable one has become recent."""
        table = self.tables[scan.relation]
        is_stable = scan.part == "stable" and isinstance(self.mode, Untagged)
        return table.stable_size if is_stable else table.visible_size, table.round - 1

    def key_column(self, term: Var | Const, batch: Batch) -> np.ndarray:
        if isinstance(term, Var):
            return batch.columns[term.name]
        return np.full(batch.count, word_of(term.value, term.type, self.symbols), dtype=np.int64)
