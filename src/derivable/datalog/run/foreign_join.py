"""Foreign predicates over the rows of a query: each row once for every row of outputs that is its answer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from derivable.core.diagnostics import DomainError
from derivable.core.graph import offsets_of
from derivable.datalog.foreign.function import ForeignError, distinct
from derivable.datalog.foreign.predicate import Answers, ForeignPredicate
from derivable.datalog.fused.state import Batch, State
from derivable.datalog.policy.costs import policy
from derivable.datalog.ram import nodes as m
from derivable.datalog.scalars import arithmetic
from derivable.datalog.scalars.nodes import Var
from derivable.datalog.tags.random_facts import RandomFacts
from derivable.datalog.tags.tags import GraphTags, Untagged
from derivable.datalog.values.values import numbers_of, words_of_numbers


class ForeignFacts:
    """The random facts that tagged predicates have made in a run: one for each predicate, inputs and outputs."""

    def __init__(self, random: RandomFacts):
        self.random = random
        self.known: dict[tuple, int] = {}

    def copy(self, random: RandomFacts) -> ForeignFacts:
        """The same facts, for random facts that are a copy."""
        made = ForeignFacts(random)
        made.known = dict(self.known)
        return made

    def variables(
        self, record: ForeignPredicate, rows: list[tuple], probabilities: np.ndarray, seen: dict[tuple, int]
    ) -> np.ndarray:
        """The variables [row] of rows of words, -1 where the tag is NaN: the row is certain.

        A predicate that gives one row twice has made two facts: the rows differ in their number then.

        seen  how often rows came before in the same answers
        """
        variables = np.full(len(rows), -1, np.int64)
        fresh, chances = [], []
        for index in np.flatnonzero(probabilities == probabilities).tolist():
            repeat = seen[rows[index]] = seen.get(rows[index], -1) + 1
            key = record.name, repeat, rows[index]
            if key not in self.known:
                self.known[key] = len(self.random.probabilities) + len(fresh)
                fresh.append(index)
                chances.append(probabilities[index])
            variables[index] = self.known[key]
        subject = f"a row of the predicate {record.name}"
        try:
            self.random.add(np.array(chances, np.float64), record.kind, lambda number: (subject, {}))
        except DomainError as error:
            raise ForeignError(error.message, record.name, error.hint) from None
        return variables


def generate(
    state: State, batch: Batch, query: m.Generate, record: ForeignPredicate, facts: ForeignFacts
) -> Iterator[Batch]:
    """The batches that a foreign predicate makes of one; rows whose inputs have no value are dropped."""
    words: list[np.ndarray] = []
    there = np.ones(batch.count, bool)
    for e in query.inputs:
        column, valid = arithmetic.evaluate(e, batch.columns, batch.count, state.symbols)
        words.append(column)
        there &= True if valid is None else valid
    if not there.all():
        batch, words = batch.only(state.mode, there), [column[there] for column in words]
    if not batch.count:
        return
    if record.closed is not None:
        made = _integers(state, batch, query, record, words)
    else:
        made = _answers(state, batch, query, record, words, facts)
    if query.negated:
        yield from _without(state, batch, made)
        return
    for row, columns, tags in made:
        chosen = batch.only(state.mode, row)
        chosen.columns.update(columns)
        if tags is not None:
            chosen.tags = state.mode.combine(chosen.tags, _factor(state, tags))
        if len(row):
            yield chosen


# Integers of one range that are counted at most: nobody waits for more.
MOST = 1 << 40
# (row of the batch, the columns that the outputs bind, tags [row] or None)
Made = Iterator[tuple[np.ndarray, dict[str, np.ndarray], Any]]


def _integers(state: State, batch: Batch, query: m.Generate, record: ForeignPredicate, words: list) -> Made:
    """The integers from the first input to the second."""
    t = query.inputs[0].type
    low, high = (numbers_of(column, t, state.symbols) for column in words)
    counts = np.minimum(np.where(high > low, high - low, 0), MOST).astype(np.int64)
    if record.closed:
        counts = np.where(high >= low, counts + 1, 0)
    output = query.outputs[0]
    if not isinstance(output, Var) or output.name in batch.columns:
        # One integer at most counts, so none of the others is made.
        inside = counts > 0
        if output is not None:
            value = numbers_of(state.key_column(output, batch), t, state.symbols)
            inside = (low <= value) & (value <= high if record.closed else value < high)
        yield np.flatnonzero(inside), {}, None
        return
    for row, repetition in _repeated(state, counts):
        values = low[row] + repetition.astype(low.dtype)
        yield row, {output.name: words_of_numbers(values, t, state.symbols)}, None


def _repeated(state: State, counts: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Each row as often as its count says, a chunk at a time: (row, how often it came before)."""
    ends = np.cumsum(counts)
    total = int(ends[-1]) if len(ends) else 0
    for start in range(0, total, policy().chunk):
        state.deadline.remaining()
        position = np.arange(start, min(start + policy().chunk, total))
        row = np.searchsorted(ends, position, side="right")
        yield row, position - (ends[row] - counts[row])


def _answers(
    state: State, batch: Batch, query: m.Generate, record: ForeignPredicate, words: list, facts: ForeignFacts
) -> Made:
    columns, inverse = distinct(words)
    count = len(columns[0]) if columns else 1
    if not columns:
        inverse = np.zeros(batch.count, np.int64)
    # A tagged row is a fact of all its outputs, wanted or not.
    types = [t if record.is_tagged or output is not None else None for output, t in zip(query.outputs, query.types)]
    seen: dict[tuple, int] = {}
    chunk = policy().chunk
    limits = state.deadline.remaining, lambda: chunk if state.deadline.room is None else state.deadline.room + 1
    parts = record.answers([e.type for e in query.inputs], types, state.symbols, columns, count, *limits)
    try:
        for answers in parts:
            yield from _of_part(state, batch, query, record, answers, columns, inverse, facts, seen)
    except ForeignError as error:
        error.span = error.span or query.span
        raise


def _of_part(
    state: State,
    batch: Batch,
    query: m.Generate,
    record: ForeignPredicate,
    answers: Answers,
    columns: list[np.ndarray],
    inverse: np.ndarray | None,
    facts: ForeignFacts,
    seen: dict[tuple, int],
) -> Made:
    """The answers of one part; `columns` are the inputs that differ, `inverse` those of the batch among them."""
    count = len(answers.offsets) - 1
    answer_of = np.repeat(np.arange(count), np.diff(answers.offsets))
    tags = None
    if answers.probabilities is not None:
        outputs = [column for column in answers.columns if column is not None]
        rows = list(zip(*(column[answer_of].tolist() for column in columns), *(c.tolist() for c in outputs)))
        rows = rows if columns or outputs else [()] * len(answer_of)
        tags = _tags(state, record, rows, answers.probabilities, facts, seen, query.negated)
    offsets = answers.offsets
    numbers = np.diff(offsets) if inverse is None else np.diff(offsets)[inverse]
    for row, repetition in _repeated(state, numbers):
        answer = offsets[:-1][row if inverse is None else inverse[row]] + repetition
        keep = np.ones(len(row), bool)
        bound: dict[str, np.ndarray] = {}
        for output, column in zip(query.outputs, answers.columns):
            if output is None or column is None:
                continue
            if isinstance(output, Var) and output.name not in batch.columns and output.name not in bound:
                bound[output.name] = column[answer]
            elif isinstance(output, Var) and output.name in bound:
                keep &= bound[output.name] == column[answer]
            else:
                keep &= state.key_column(output, batch)[row] == column[answer]
        if tags is not None:
            keep &= ~state.mode.is_zero(tags)[answer] if not isinstance(state.mode, Untagged) else tags[answer]
        if not keep.all():
            row, answer = row[keep], answer[keep]
            bound = {name: column[keep] for name, column in bound.items()}
        yield row, bound, None if tags is None or isinstance(state.mode, Untagged) else tags[answer]


def _tags(
    state: State,
    record: ForeignPredicate,
    rows: list[tuple],
    probabilities: np.ndarray,
    facts: ForeignFacts,
    seen: dict[tuple, int],
    negated: bool,
) -> Any:
    """The tags of rows of answers; without tags, whether each counts."""
    mode = state.mode
    # A tag of 0 need not be the zero of the semiring, and counts nothing without tags.
    is_impossible = (probabilities == 0.0) & (record.kind == "chance")
    if isinstance(mode, Untagged):
        # In a support run a row that is only possible does not block.
        is_support = not isinstance(state.algebra, Untagged)
        return np.isnan(probabilities) if negated and is_support else ~is_impossible
    variables = facts.variables(record, rows, probabilities, seen)
    if isinstance(mode, GraphTags):
        nodes = mode.graph.literals_of(variables)
        nodes[is_impossible] = mode.zero(1)[0]
        return nodes
    tags, random = mode.one(len(rows)), variables >= 0
    if random.any():
        tags[random] = mode.fact_tags(variables[random])
    return tags


def _factor(state: State, tags: Any) -> Any:
    return [tags] if isinstance(state.mode, GraphTags) else tags


def _without(state: State, batch: Batch, made: Made) -> Iterator[Batch]:
    """The rows for which nothing was made, their tags times the negation of what was."""
    mode = state.mode
    rows, tags, is_tagged = [], [], False
    for row, _, tag in made:
        rows.append(row)
        tags.append(mode.one(len(row)) if tag is None and not isinstance(mode, Untagged) else tag)
        is_tagged |= tag is not None
    row = np.concatenate([*rows, np.empty(0, np.int64)]).astype(np.int64)
    if not is_tagged:
        keep = np.ones(batch.count, bool)
        keep[row] = False
        batch = batch.only(mode, keep)
    elif len(row):
        assert not isinstance(mode, Untagged)
        order = np.argsort(row, kind="stable")
        blocked = np.unique(row)
        offsets = offsets_of(np.bincount(row, minlength=batch.count)[blocked])
        column = mode.concatenate([[tag] for tag in tags])[0] if isinstance(mode, GraphTags) else mode.concatenate(tags)
        factor = mode.one(batch.count)
        factor[blocked] = mode.negate(mode.reduce(column[order], offsets))
        keep = ~mode.is_zero(factor)
        batch = batch.only(mode, keep)
        if batch.count:
            batch.tags = mode.combine(batch.tags, _factor(state, factor[keep]))
    if batch.count:
        yield batch
