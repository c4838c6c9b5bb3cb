"""`normalize`, `softmax` and `disjunct`: rows whose tags become those of one random choice.

`normalize` and `softmax` give the rows of a group new tags: the values of a fresh choice, with probabilities from the
weights of the old tags. Without tags, and under provenances whose facts have no probabilities, rows stay as they are.

`disjunct` is what a disjunctive head does: the rows with the same arguments exclude each other, and each is as likely.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from derivable.datalog.aggregates.groups import Groups, differs
from derivable.datalog.aggregates.record import Aggregate, Group
from derivable.datalog.tags.choice_facts import Derived
from derivable.datalog.tags.tags import GraphTags, IntegerTags, SemiringTags

# Those whose tags are of facts that they make.
RETAGGING = frozenset({"normalize", "softmax", "disjunct"})


def _all_rows(groups: Groups, chosen: np.ndarray) -> None:
    rows = np.arange(groups.num_rows)[groups.rows_of(chosen)]
    groups.emit_rows(rows)


def _choice(groups: Groups, probabilities: np.ndarray) -> Any:
    """The tags [row] of a fresh choice."""
    variables = groups.context.random.add_choice(probabilities, is_complete=True)
    mode: Any = groups.mode
    return mode.graph.literals_of(variables) if isinstance(mode, GraphTags) else mode.fact_tags(variables)


def _retagged(groups: Groups, chosen: np.ndarray) -> None:
    if not groups.has_tags or groups.rule.discrete or isinstance(groups.mode, IntegerTags):
        _all_rows(groups, chosen)
        return
    rows, offsets = groups.segments(chosen)
    later = groups.derived(chosen)
    if later is not None:
        sizes = np.diff(offsets).tolist()
        new = [groups.context.random.add_choice(np.zeros(size), is_complete=True) for size in sizes if size]
        variables = np.concatenate(new)
        later.append(Derived(groups.rule.operator, offsets, groups.row_tags[rows], variables))  # type: ignore[arg-type]
        groups.emit(groups.number[rows], groups.words_of(rows), groups.mode.graph.literals_of(variables))
        return
    known = groups.weights_of(chosen)
    for part in np.split(rows, offsets[1:-1]):
        weights = known[part]
        if not len(part):
            continue
        if groups.rule.operator == "softmax":
            weights = np.exp(weights - weights.max())
        total = weights.sum()
        if total > 0:
            groups.emit(groups.number[part], groups.words_of(part), _choice(groups, weights / total))


def _disjunct(groups: Groups, chosen: np.ndarray) -> None:
    # A semiring's tags have no exclusion: in them, as in Scallop, rows keep their tags.
    if not groups.has_tags or groups.rule.discrete or isinstance(groups.mode, (IntegerTags, SemiringTags)):
        _all_rows(groups, chosen)
        return
    mode: Any = groups.mode
    if isinstance(mode, GraphTags) and not mode.graph.semiring.absorptive:
        _all_rows(groups, chosen)
        return
    # Rows that agree in the group and in the arguments.
    keys = [groups.number, *groups.argument_keys]
    order = groups.of_chosen(groups.sorted([*keys, *groups.value_keys]), chosen)
    for rows in np.split(order, np.flatnonzero(differs(keys, order)) + 1) if len(order) else ():
        tags = groups.row_tags[rows]
        if len(rows) > 1:
            tags = mode.times(tags, _choice(groups, np.full(len(rows), 1.0 / len(rows))))
        groups.emit(groups.number[rows], groups.words_of(rows), tags)


def _meaning(group: Group) -> Iterator[Any]:
    yield from group.rows


RECORDS = (
    Aggregate("normalize", None, ("values",), _retagged, _retagged, _meaning, arguments="none"),
    Aggregate("softmax", None, ("values",), _retagged, _retagged, _meaning, arguments="none"),
    Aggregate("disjunct", None, ("arguments", "values"), _disjunct, _disjunct, _meaning),
)
