"""The most probable proofs of outputs in each row of probabilities, by one run of the program for all rows.

Where rules make random facts, derivations are known, and the proofs are those of the nodes of their graph.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from derivable.datalog.api.batched import Batched, BatchRuns
from derivable.datalog.api.program import Program
from derivable.datalog.exact.ground_program import GroundProgram
from derivable.datalog.facts.batch_facts import BatchFacts
from derivable.datalog.facts.inputs import InputMapping, taken
from derivable.datalog.facts.load import known_relation
from derivable.datalog.run.limits import Limits, Watch, watched
from derivable.datalog.tags.provenance import TOP_PROOFS, tags_of
from derivable.datalog.tags.random_facts import RandomFacts
from derivable.nn.proof_polynomial import Proofs

# Edges of the graphs of rows that are evaluated at once.
MOST_EDGES = 1 << 21


def _checked(rows: np.ndarray) -> np.ndarray:
    """Probabilities without what rounding has added to them, which does not matter to which proofs are best."""
    return np.clip(np.nan_to_num(rows.astype(np.float64)), 0.0, 1.0)


@dataclass(frozen=True, eq=False)
class GraphSearch:
    """Finds proofs in a ground program."""

    ground: GroundProgram
    k: int

    @property
    def num_roots(self) -> int:
        return len(self.ground.roots)

    def __call__(self, rows: np.ndarray, device: Any = None) -> Proofs:
        """rows [row, variable]; the graph is the CPU's on every device"""
        piece = max(1, MOST_EDGES // max(len(self.ground.children), 1))
        found, start = [], 0
        for low in range(0, max(len(rows), 1), piece):
            counts, proof, literals = self._of(rows[low : low + piece])
            found.append((counts, proof + start, literals))
            start += int(counts.sum())
        return tuple(map(np.concatenate, zip(*found)))  # type: ignore[return-value]

    def _of(self, rows: np.ndarray) -> Proofs:
        batch, count = rows.shape
        groups = [group + count * row for row in range(batch) for group in self.ground.groups]
        facts = RandomFacts(_checked(rows).ravel().tolist(), groups, samples=[np.repeat(np.arange(batch), count)])
        columns: Any = tags_of(TOP_PROOFS, facts, self.k)
        counts, proof, literals = columns.literals_of(self.ground.copies(batch).evaluate(columns))
        local = (np.abs(literals) - 1) % max(count, 1) + 1
        return counts, proof, np.where(literals < 0, -local, local)


@dataclass(frozen=True, eq=False)
class ProofSearch:
    """Finds proofs by runs over batches, in which a row is a sample.

    inputs, outputs  relation -> facts, and the tuples wanted
    num_fixed        the number of random facts written in the program, whose variables follow those of the inputs
    never            [output] bool: what nothing derives
    """

    runs: BatchRuns
    inputs: Mapping[str, InputMapping]
    outputs: Mapping[str, Sequence[Any]]
    num_fixed: int
    k: int
    never: np.ndarray

    @staticmethod
    def of(
        program: Program,
        inputs: Mapping[str, InputMapping],
        outputs: Mapping[str, Sequence[Any]],
        facts: Mapping[str, Any] | None,
        k: int,
        watch: Watch,
    ) -> tuple[ProofSearch, Any] | None:
        """The search, and the random facts of one row; None where rules make random facts."""
        given = taken(facts or {})
        ram = program.lowered({**inputs, **given})
        for name in inputs:
            known_relation(ram, name, f"the program does not use the input `{name}`")
        for name in outputs:
            known_relation(ram, name, f"unknown output relation `{name}`")
        batched: Batched = program.batched(frozenset(inputs), tuple(outputs), {**inputs, **given})
        search = ProofSearch(BatchRuns(batched, given), inputs, outputs, 0, k, np.empty(0, bool))
        first = np.concatenate([np.full(len(m), 1.0 / max(len(m), 1)) for m in inputs.values()] or [np.empty(0)])
        found = search.run(first[None], watch)
        if len(found.random.probabilities) > found.shared_facts[1]:
            return None
        never = found.columns.is_zero(
            np.concatenate([found.tags_of(name, None, some) for name, some in outputs.items()])
        )
        return ProofSearch(search.runs, inputs, outputs, found.shared_facts[0], k, never), found.random

    @property
    def num_roots(self) -> int:
        return sum(map(len, self.outputs.values()))

    def run(self, rows: np.ndarray, watch: Watch, device: Any = None) -> Any:
        """Run the program for rows [row, fact of an input], on a device, as `BatchRuns.run` takes it."""
        facts, start = [], 0
        for name, mapping in self.inputs.items():
            count = len(mapping)
            numbers = np.ascontiguousarray(rows[:, start : start + count]).reshape(-1)
            start += count
            groups = np.zeros(len(numbers), np.int64) if mapping.is_exclusive else None
            offsets = count * np.arange(len(rows) + 1)
            facts.append((name, BatchFacts(mapping, offsets, numbers, groups, True)))
        return self.runs.run(len(rows), facts, TOP_PROOFS, TOP_PROOFS.name, watch, self._columns_of, device)

    def _columns_of(self, random: Any) -> Any:
        return tags_of(TOP_PROOFS, random, self.k)

    def __call__(self, rows: np.ndarray, device: Any = None) -> Proofs:
        """rows [row, variable]"""
        watch = Watch(Limits())
        given = _checked(rows[:, : rows.shape[1] - self.num_fixed])
        found = watched(watch, lambda: self.run(given, watch, device))
        tags = [
            found.tags_of(name, None, wanted).reshape(len(rows), len(wanted)) for name, wanted in self.outputs.items()
        ]
        counts, proof, literals = found.columns.literals_of(np.concatenate(tags, axis=1).reshape(-1))
        variables = np.abs(literals)
        local = self._local(len(rows))[variables - 1] + 1
        return counts, proof, np.where(literals < 0, -local, local)

    def _local(self, batch: int) -> np.ndarray:
        """[random fact of a batch] its variable."""
        given, start = [], 0
        for mapping in self.inputs.values():
            given.append(np.tile(np.arange(start, start + len(mapping)), batch))
            start += len(mapping)
        return np.concatenate([np.arange(start, start + self.num_fixed), *given])
