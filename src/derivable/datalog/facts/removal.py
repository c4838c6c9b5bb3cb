"""Facts without some of them. A fact goes as it came: a tuple with a tag is one fact with that tag, a tuple without one
is all facts of it, and a choice goes as a whole."""

from __future__ import annotations

from typing import Any

import numpy as np

from derivable.core.diagnostics import BindingError, DomainError
from derivable.datalog.facts.columns import FactColumns
from derivable.datalog.facts.store import FactStore, certain
from derivable.datalog.rules.nodes import Relation
from derivable.datalog.tables.storage import Table
from derivable.datalog.tags.random_facts import CHANCE
from derivable.datalog.values.symbols import SymbolTable
from derivable.datalog.values.values import show_column


def without(facts: FactStore, gone: FactStore, relation: Relation) -> FactColumns:
    """The facts of a relation without those in `gone`, whose random facts are not those of `facts`.

    Raises BindingError for a fact that is not there, DomainError for a part of a choice.
    """
    there = facts.relations.get(relation.name, FactColumns())
    columns, variables = gone.relations[relation.name].joined(len(relation.types))
    wanted = Table(relation.name, relation.types)
    # Tuples have numbers in a hash alone.
    wanted.may_have_sets = wanted.may_be_built = False
    tuples = wanted.insert(columns, len(variables))
    keep = [np.ones(len(own), bool) for own in there.variables]
    # tuple -> (part, row) of its facts.
    found: dict[int, list[tuple[int, int]]] = {}
    for number, (part, own) in enumerate(zip(there.columns, there.variables)):
        places = wanted.find([np.asarray(column, np.int64) for column in part], len(own))
        rows = np.flatnonzero(places >= 0)
        for row, tuple_ in zip(rows.tolist(), places[rows].tolist()):
            found.setdefault(tuple_, []).append((number, row))
    # Facts with tags come first: without one all that is left goes.
    tags = _tags(gone, variables)
    for fact in sorted(range(len(tags)), key=lambda fact: tags[fact] is None):
        meant, tag = found.get(int(tuples[fact]), []), tags[fact]
        if tag is not None:
            like = [(n, row) for n, row in meant if keep[n][row] and _tags(facts, there.variables[n][[row]]) == [tag]]
            meant = like[:1]
        if not meant:
            raise _missing(relation, [column[[fact]] for column in columns], tag, facts.symbols)
        for number, row in meant:
            keep[number][row] = False
    _check_choices(facts, relation, keep)
    made = FactColumns()
    for part, own, kept in zip(there.columns, there.variables, keep):
        is_whole, is_certain = kept.all(), own.strides == (0,)
        made.columns.append(part if is_whole else [column[kept] for column in part])
        made.variables.append(own if is_whole else certain(int(kept.sum())) if is_certain else own[kept])
    return made


def _tags(store: FactStore, variables: np.ndarray) -> list[Any]:
    """[fact] the tag that was given with it, None if there was none."""
    random, kinds = store.random, store.random.kinds
    return [
        None if v < 0 or kinds[v] == CHANCE else random.objects.get(v, random.probabilities[v])
        for v in variables.tolist()
    ]


def _check_choices(facts: FactStore, relation: Relation, keep: list[np.ndarray]) -> None:
    """Raises DomainError if some facts of a choice would stay without others of it."""
    if not facts.random.groups or not keep:
        return
    variables, kept = np.concatenate(facts.relations[relation.name].variables), np.concatenate(keep)
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
