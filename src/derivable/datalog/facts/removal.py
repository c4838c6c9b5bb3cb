"""Facts without some of them. A fact goes as it came: a tuple with a tag is one fact with that tag, a tuple without one
is all facts of it, and a choice goes as a whole."""

from __future__ import annotations

from collections.abc import Sequence
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


def without(
    facts: FactStore, gone: FactStore, relation: Relation, is_tagged: bool, are_distinct: bool
) -> tuple[FactColumns, FactColumns]:
    """The facts of a relation without those in `gone`, whose random facts are not those of `facts`; and the tuples of
    these of which no fact is left, as certain facts, or if tags count all that have lost one.

    are_distinct  whether it is known that no tuple has several facts

    Raises BindingError for a fact that is not there, DomainError for a part of a choice.
    """
    parts = facts.relations.get(relation.name, FactColumns()).parts
    columns, variables = gone.relations[relation.name].joined(len(relation.types))
    wanted = Table(relation.name, relation.types)
    # Tuples have numbers in a hash alone.
    wanted.row_set.use_hash(wanted)
    tuples = wanted.insert(columns, len(variables))
    known = parts[0].among_distinct(wanted) if are_distinct and len(parts) == 1 else None
    there = [part.among(wanted) for part in parts] if known is None else [known]
    # Of the facts that are there: their parts, their rows in these, and their tuples.
    part_of = np.repeat(np.arange(len(parts)), [len(rows) for rows, _ in there])
    rows, numbers = (np.concatenate([np.empty(0, np.int64), *(one[k] for one in there)]) for k in (0, 1))
    counts, is_lost = np.bincount(numbers, minlength=wanted.size), np.zeros(len(rows), bool)
    tags = {fact: _tag(gone, int(variables[fact])) for fact in np.flatnonzero(variables >= 0).tolist()}
    tags = {fact: tag for fact, tag in tags.items() if tag is not None}
    by_tuple = np.argsort(numbers, kind="stable")
    ends = np.cumsum(counts)
    # Facts with tags come first: without one all that is left goes.
    for fact, tag in tags.items():
        tuple_ = tuples[fact]
        for one in by_tuple[ends[tuple_] - counts[tuple_] : ends[tuple_]].tolist():
            if not is_lost[one] and _tag(facts, int(parts[part_of[one]].stored[1][rows[one]])) == tag:
                is_lost[one] = True
                break
        else:
            raise _missing(relation, [column[[fact]] for column in columns], tag, facts.symbols)
    whole = np.delete(np.arange(len(variables)), list(tags))
    missing = whole[counts[tuples[whole]] == 0][:1]
    if len(missing):
        raise _missing(relation, [column[missing] for column in columns], None, facts.symbols)
    is_whole = np.zeros(wanted.size, bool)
    is_whole[tuples[whole]] = True
    is_lost |= is_whole[numbers]
    rows_lost = [rows[is_lost & (part_of == number)] for number in range(len(parts))]
    _check_choices(facts, relation, parts, rows_lost)
    left = FactColumns.of(part.without(rows) for part, rows in zip(parts, rows_lost))
    lost_counts = np.bincount(numbers[is_lost], minlength=wanted.size)
    absent = np.flatnonzero(is_tagged | (lost_counts == counts))
    lost_columns = [wanted.column(c, absent) for c in range(len(relation.types))]
    return left, FactColumns([lost_columns], [certain(len(absent))])


def _tag(store: FactStore, variable: int) -> Any:
    """The tag with which a fact was added, by its variable; None if there was none."""
    random = store.random
    if variable < 0 or random.kinds[variable] == CHANCE:
        return None
    return random.objects.get(variable, random.probabilities[variable])


def _check_choices(facts: FactStore, relation: Relation, parts: Sequence[FactPart], lost: Sequence[np.ndarray]) -> None:
    """Raises DomainError if some facts of a choice would stay without others of it, which are lost."""
    if not facts.random.groups or not parts:
        return
    stays = np.ones(sum(len(part.stored[1]) for part in parts), bool)
    starts = np.cumsum([0, *(len(part.stored[1]) for part in parts)])
    for start, rows in zip(starts, lost):
        stays[start + rows] = False
    variables = np.concatenate([part.stored[1] for part in parts])
    for start, part in zip(starts, parts):
        # What has gone before is torn from nothing.
        variables[start + part.stored[2]] = -1
    variables, stays = variables[variables >= 0], stays[variables >= 0]
    groups = facts.random.group_of()[variables]
    torn = np.intersect1d(groups[stays], groups[~stays])
    torn = torn[torn >= 0]
    if len(torn):
        is_torn = groups == torn[0]
        raise DomainError(
            f"a choice of `{relation.name}` has {is_torn.sum()} facts, of which {(is_torn & ~stays).sum()} are to go",
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
