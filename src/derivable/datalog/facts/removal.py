"""Facts without some of them. A fact goes as it came: a tuple with a tag is one fact with that tag, a tuple without one
is all facts of it, and a choice goes as a whole."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import Any

import numpy as np

from derivable.core.diagnostics import BindingError, DomainError
from derivable.datalog.facts.columns import FactColumns, FactPart, certain
from derivable.datalog.facts.store import FactStore
from derivable.datalog.rules.nodes import Relation
from derivable.datalog.tables.storage import Table
from derivable.datalog.tags.random_facts import CHANCE
from derivable.datalog.values.symbols import SymbolTable
from derivable.datalog.values.values import show_column


def without(facts: FactStore, gone: FactStore, relation: Relation, is_tagged: bool) -> tuple[FactColumns, FactColumns]:
    """The facts of a relation without those in `gone`, whose random facts are not those of `facts`; and the tuples of
    these of which no fact is left, as certain facts, or if tags count all that have lost one.

    Raises BindingError for a fact that is not there, DomainError for a part of a choice.
    """
    parts = facts.relations.get(relation.name, FactColumns()).parts
    columns, variables = gone.relations[relation.name].joined(len(relation.types))
    wanted = Table(relation.name, relation.types)
    # Tuples have numbers in a hash alone.
    wanted.row_set.leave(wanted)
    tuples = wanted.insert(columns, len(variables))
    # tuple -> (part, row) of its facts.
    there: list[list[tuple[int, int]]] = [[] for _ in range(wanted.size)]
    for number, part in enumerate(parts):
        rows, found = part.among(wanted)
        for row, tuple_ in zip(rows.tolist(), found.tolist()):
            there[tuple_].append((number, row))
    tags, lost = _tags(gone, variables), set()
    # Facts with tags come first: without one all that is left goes.
    for fact in sorted(range(len(tags)), key=lambda fact: tags[fact] is None):
        meant, tag = there[tuples[fact]], tags[fact]
        if tag is not None:
            like = (one for one in meant if one not in lost and _tag_of(facts, parts, one) == tag)
            meant = list(islice(like, 1))
        if not meant:
            raise _missing(relation, [column[[fact]] for column in columns], tag, facts.symbols)
        lost.update(meant)
    rows_lost = [np.array(sorted(row for n, row in lost if n == number), np.int64) for number in range(len(parts))]
    _check_choices(facts, relation, parts, rows_lost)
    left = FactColumns.of(part.without(rows) for part, rows in zip(parts, rows_lost))
    absent = np.array([number for number, own in enumerate(there) if is_tagged or lost.issuperset(own)], np.int64)
    lost_columns = [wanted.column(c, absent) for c in range(len(relation.types))]
    return left, FactColumns([lost_columns], [certain(len(absent))])


def _tags(store: FactStore, variables: np.ndarray) -> list[Any]:
    """[fact] the tag that was given with it, None if there was none."""
    random, kinds = store.random, store.random.kinds
    return [
        None if v < 0 or kinds[v] == CHANCE else random.objects.get(v, random.probabilities[v])
        for v in variables.tolist()
    ]


def _tag_of(facts: FactStore, parts: Sequence[FactPart], fact: tuple[int, int]) -> Any:
    """The tag of a fact by its part and row."""
    number, row = fact
    return _tags(facts, parts[number].stored[1][[row]])[0]


def _check_choices(facts: FactStore, relation: Relation, parts: Sequence[FactPart], lost: Sequence[np.ndarray]) -> None:
    """Raises DomainError if some facts of a choice would stay without others of it, which are lost."""
    if not facts.random.groups or not parts:
        return
    kept = np.ones(sum(len(part.stored[1]) for part in parts), bool)
    starts = np.cumsum([0, *(len(part.stored[1]) for part in parts)])
    for start, rows in zip(starts, lost):
        kept[start + rows] = False
    variables = np.concatenate([part.stored[1] for part in parts])
    for start, part in zip(starts, parts):
        # What has gone before is torn from nothing.
        variables[start + part.stored[2]] = -1
    variables, kept = variables[variables >= 0], kept[variables >= 0]
    groups = facts.random.group_of()[variables]
    torn = np.intersect1d(groups[kept], groups[~kept])
    torn = torn[torn >= 0]
    if len(torn):
        is_own = groups == torn[0]
        raise DomainError(
            f"a choice of `{relation.name}` has {is_own.sum()} facts, of which {(is_own & ~kept).sum()} are to go",
            hint="remove all of them, and add a choice among those that stay",
        )


def _missing(relation: Relation, row: list[np.ndarray], tag: object, symbols: SymbolTable) -> BindingError:
    values = ", ".join(repr(show_column(c, t, symbols).tolist()[0]) for c, t in zip(row, relation.types))
    title = f"{relation.name}({values})"
    if tag is not None:
        return BindingError(
            f"`{title}` is no fact with the tag {tag!r}",
            hint="a tuple without a tag stands for all facts of it",
        )
    return BindingError(f"`{title}` is no fact", hint="what rules derive goes with the facts that it follows from")
