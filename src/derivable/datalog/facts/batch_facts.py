"""Facts of relations that differ from sample to sample, and those that all samples of a batch share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from derivable.core.diagnostics import DerivableError, DomainError
from derivable.datalog.facts.columns import FactColumns
from derivable.datalog.facts.inputs import ROUNDING, Columns, InputMapping
from derivable.datalog.facts.load import array_columns, named_columns, tuple_columns
from derivable.datalog.facts.store import FactStore
from derivable.datalog.rules.nodes import Relation
from derivable.datalog.rules.samples import SAMPLES
from derivable.datalog.values.symbols import SymbolTable


@dataclass(frozen=True, eq=False)
class BatchFacts:
    """Facts of one relation for each sample of a batch.

    rows           of all samples, one sample after the other: a list of tuples, an array [row, column] or `Columns`; or
                   an `InputMapping`, whose tuples each sample has
    offsets        [sample + 1] int64: where the rows of each sample begin
    probabilities  [row] float64, or numbers that the semiring takes; None if all of the facts are certain
    groups         [row] int64: facts of a sample with the same number from 0 on exclude each other, those with -1 are
                   independent; None if all are
    is_complete    whether exactly one fact of each group holds, else at most one
    tags           [row] what the probabilities are the numbers of, for a provenance that takes anything as a tag
    is_shared      whether all samples have the rows, which are listed once, as if there were one sample
    """

    rows: Any
    offsets: np.ndarray
    probabilities: np.ndarray | None = None
    groups: np.ndarray | None = None
    is_complete: bool = False
    tags: Any = None
    is_shared: bool = False

    def __len__(self) -> int:
        return int(self.offsets[-1])

    @property
    def batch(self) -> int:
        """The number of samples."""
        return len(self.offsets) - 1

    @property
    def samples(self) -> np.ndarray:
        """[row] the sample of each row."""
        return np.repeat(np.arange(self.batch), np.diff(self.offsets))

    def taken(self, rows_taken: np.ndarray) -> Any:
        """Some of the rows."""
        return _taken(self.rows, rows_taken)

    def words(self, relation: Relation, symbols: SymbolTable) -> list[np.ndarray]:
        """Word columns of the rows. Errors say the sample, and the row in it."""
        if isinstance(self.rows, InputMapping):
            columns = tuple_columns(relation, list(self.rows.tuples), symbols)
            return [np.tile(column, self.batch) for column in columns]
        try:
            return _words(relation, self.rows, symbols)
        except DerivableError as error:
            for sample, (start, stop) in enumerate(zip(self.offsets[:-1].tolist(), self.offsets[1:].tolist())):
                try:
                    _words(relation, _taken(self.rows, slice(start, stop)), symbols)
                except DerivableError as error:
                    raise type(error)(f"sample {sample}: {error.message}", hint=error.hint) from None
            raise error


def _taken(rows: Any, rows_taken: np.ndarray | slice) -> Any:
    if isinstance(rows, InputMapping):
        return rows
    if isinstance(rows, Columns):
        arrays = tuple(np.asarray(array)[rows_taken] for array in rows.arrays)
        return Columns(rows.names, arrays)
    if isinstance(rows, np.ndarray) or isinstance(rows_taken, slice):
        return rows[rows_taken]
    return [rows[index] for index in rows_taken.tolist()]


def _words(relation: Relation, rows: Any, symbols: SymbolTable) -> list[np.ndarray]:
    if isinstance(rows, np.ndarray):
        return array_columns(relation, rows, symbols)
    if isinstance(rows, Columns):
        return named_columns(relation, rows, symbols)
    return tuple_columns(relation, rows, symbols)


@dataclass(frozen=True, eq=False)
class Choices:
    """The groups of facts of a batch of which exactly one holds: the random fact `rest` stands for none of the others.

    rest   [group] its random fact; these come behind those of the rows
    rows   [member] the rows of the others
    group  [member] their groups
    """

    rest: np.ndarray
    rows: np.ndarray
    group: np.ndarray


def add_batch(relation: Relation, facts: BatchFacts, store: FactStore, has_choices: bool) -> Choices | None:
    """Add the facts of a batch, with a random fact for each row that is not certain; returns the groups of these.

    relation     as the program has it, without the column of the sample
    has_choices  whether the provenance is one of probabilities, where groups count

    Raises DomainError for a group whose probabilities add up to more than 1.
    """
    columns, random = facts.words(relation, store.symbols), store.random
    if not facts.is_shared:
        columns.insert(0, facts.samples)
    if facts.probabilities is None:
        variables, choices = np.full(len(facts), -1, np.int64), None
    else:
        variables = random.add(facts.probabilities, "tag", _origin(relation, facts))
        random.samples.append(np.full(len(facts), -1) if facts.is_shared else columns[0])
        if random.carrier is not None and random.carrier.takes_anything:
            random.objects.update(zip(variables.tolist(), facts.tags))
        choices = _add_choices(relation, facts, variables, store) if has_choices else None
    store.add(relation.name, columns, variables)
    return choices


def _origin(relation: Relation, facts: BatchFacts) -> Callable[[int], tuple[str, dict[str, Any]]]:
    offsets = facts.offsets

    def origin(number: int) -> tuple[str, dict[str, Any]]:
        if facts.is_shared:
            return f"row {number} of the facts for `{relation.name}`", {}
        sample = int(np.searchsorted(offsets, number, "right")) - 1
        return f"row {number - int(offsets[sample])} of the facts for `{relation.name}` in sample {sample}", {}

    return origin


def _add_choices(relation: Relation, facts: BatchFacts, variables: np.ndarray, store: FactStore) -> Choices | None:
    groups, random = facts.groups, store.random
    assert facts.probabilities is not None
    if groups is None or not (chosen := np.flatnonzero(groups >= 0)).size:
        return None
    # Numbers of groups are those of a sample.
    keys = np.stack([facts.samples[chosen], groups[chosen]], axis=1)
    keys, group = np.unique(keys, axis=0, return_inverse=True)
    group = group.reshape(-1)
    order = np.argsort(group, kind="stable")
    chosen, group = chosen[order], group[order]
    members, count = variables[chosen], int(group[-1]) + 1
    parts = np.split(members, np.flatnonzero(np.diff(group)) + 1)
    if facts.is_complete:
        random.groups += parts
        return None
    sums = np.bincount(group, facts.probabilities[chosen], count)
    wrong = np.flatnonzero(sums > 1.0 + ROUNDING)
    if len(wrong):
        sample, number = keys[wrong[0]].tolist()
        raise DomainError(
            f"sample {sample}: the probabilities of group {number} of `{relation.name}` add up to {sums[wrong[0]]:.6g}",
            hint="facts of one group exclude each other, so these add up to at most 1: apply softmax to the scores of"
            " a group, or give independent facts the group -1",
        )
    rest = random.add(np.maximum(1.0 - sums, 0.0))
    random.samples.append(np.full(count, -1) if facts.is_shared else keys[:, 0])
    random.groups += [np.append(part, none) for part, none in zip(parts, rest.tolist())]
    return Choices(rest, chosen, group)


def lifted(base: FactStore, dependent: frozenset[str], batch: int) -> dict[str, FactColumns]:
    """The facts of a program, and those passed for all samples, for a batch: relations that depend on the sample have
    them once for each sample."""
    by_relation: dict[str, FactColumns] = {}
    for name, facts in base.relations.items():
        if name not in dependent:
            by_relation[name] = facts
            continue
        made = FactColumns()
        for columns, variables in zip(facts.columns, facts.variables):
            count = len(variables)
            sample = np.repeat(np.arange(batch), count)
            tiled = [np.tile(column, batch) for column in columns]
            made.append([sample, *tiled], np.tile(variables, batch))
        by_relation[name] = made
    by_relation[SAMPLES] = FactColumns([[np.arange(batch)]], [np.full(batch, -1, np.int64)])
    return by_relation
