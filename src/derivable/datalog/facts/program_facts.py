"""The facts written in a program, and those of the files that it names."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Any

import numpy as np

from derivable.core.diagnostics import DomainError, TypeMismatchError
from derivable.core.graph import offsets_of
from derivable.datalog.facts.columns import FactColumns, FactPart
from derivable.datalog.facts.load import load_relation
from derivable.datalog.facts.store import FactStore, new_store
from derivable.datalog.ram.nodes import Ram
from derivable.datalog.rules.nodes import Facts, Rules
from derivable.datalog.tags.random_facts import Origin, Tied
from derivable.datalog.values.terms import show_value
from derivable.datalog.values.values import words_of


def load_program_facts(ram: Ram | Rules, store: FactStore) -> None:
    """Add the facts written in the program, and those of the files that `@file` names."""
    for relation in ram.relations.values():
        for attribute in relation.attributes:
            if attribute.name == "file":
                from derivable.datalog.facts.fact_files import read_declared

                columns = read_declared(relation, attribute, ram.source, ram.text, store.look)
                try:
                    load_relation(relation, columns, store)
                except TypeMismatchError as error:
                    # The lines of these values are not known any more.
                    origin = {"source": ram.source, "text": ram.text, "span": attribute.span}
                    raise TypeMismatchError(error.message, hint=error.hint, **origin) from None
    # Programs have many small sets of facts of one relation, a choice for each row of a table.
    for name, sets in groupby(ram.facts, key=lambda facts: facts.relation):
        some = list(sets)
        rows = [row for facts in some for row in facts.rows]
        types = ram.relations[name].types
        values = zip(*rows) if rows else [()] * len(types)
        columns = [words_of(list(column), t, store.symbols) for column, t in zip(values, types)]
        store.add(name, columns, _variables(ram, some, store), len(rows))


def _variables(ram: Ram | Rules, sets: Sequence[Facts], store: FactStore) -> np.ndarray | None:
    """The random facts [row] of the rows of some sets of facts, -1 of certain ones; None if all are certain."""
    if all(facts.tags is None for facts in sets):
        return None
    random = store.random
    if random.carrier is None and all(facts.exclusive and _has_numbers_alone(facts) for facts in sets):
        tags = np.array([tag for facts in sets for tag in facts.tags or ()], np.float64)
        starts = offsets_of([len(facts.rows) for facts in sets])

        def origin(row: int) -> tuple[str, dict[str, Any]]:
            number = int(np.searchsorted(starts, row, "right")) - 1
            return _written(ram, sets[number])(row - int(starts[number]))

        variables = random.add_choices(tags, starts, "tag", origin)
        for facts, start in zip(sets, starts.tolist()):
            for row, parameter in facts.parameters.items():
                random.tied.append(Tied(parameter, variables[start + row : start + row + 1]))
        return variables
    parts = list[np.ndarray]()
    for facts in sets:
        variables = np.full(len(facts.rows), -1, dtype=np.int64)
        add = random.add_choice if facts.exclusive else random.add
        for kind in ("tag", "chance"):
            # A truth value is a probability wherever numbers are none.
            tags = enumerate(facts.tags or ())
            rows = [i for i, t in tags if t is not None and isinstance(t, bool) == (kind != "tag")]
            if rows:
                numbers = np.array([(facts.tags or ())[i] for i in rows], dtype=np.float64)
                variables[rows] = add(numbers, kind=kind, origin=_written(ram, facts, rows))
        random.tied += [Tied(number, variables[row : row + 1]) for row, number in facts.parameters.items()]
        parts.append(variables)
    return np.concatenate(parts)


def _has_numbers_alone(facts: Facts) -> bool:
    """Whether there are rows, and each has a number as its tag."""
    return bool(facts.tags) and {*map(type, facts.tags or ())} <= {float, int}


class WrittenFacts:
    """The facts of a program as a store that others begin with: many small sets take long to read each time.

    Only of programs with facts, and without files and terms, so that these do not depend on the run.
    """

    def __init__(self, rules: Rules, look: Callable[..., Any] | None = None):
        self.store = new_store(rules)
        self.store.look = look
        load_program_facts(rules, self.store)
        for name, facts in self.store.relations.items():
            facts.parts = [FactPart(*facts.as_stored(len(rules.relations[name].types)))]

    @staticmethod
    def suits(rules: Rules) -> bool:
        has_files = any(a.name == "file" for relation in rules.relations.values() for a in relation.attributes)
        return bool(rules.facts) and not has_files and not rules.constructors

    def begin(self, store: FactStore) -> None:
        """Put the facts into a store that has none."""
        store.symbols = self.store.symbols.copy()
        store.random = replace(self.store.random.copy(), seed=store.random.seed)
        store.relations = {name: FactColumns.of(facts.parts) for name, facts in self.store.relations.items()}


def _written(ram: Ram | Rules, facts: Facts, rows: Sequence[int] | None = None) -> Origin:
    """Where the tags of these rows of facts of a program are written, of all rows for None."""

    def origin(number: int) -> tuple[str, dict[str, Any]]:
        row = number if rows is None else rows[number]
        fields = {"source": ram.source, "text": ram.text, "span": facts.places.get(row, facts.span)}
        shown = f"`{facts.relation}({', '.join(map(show_value, facts.rows[row]))})`"
        return "a rule" if facts.relation.startswith("#") else shown, fields

    return origin


def _is_rounded(tags: Sequence[float]) -> bool:
    """Whether tags add up to more than one by no more than the rounding of the numbers that are written."""
    digits = max(len(repr(float(tag)).partition(".")[2]) for tag in tags)
    return sum(tags) - 1 <= max(5e-3, min(0.02, len(tags) * 0.5 * 10.0**-digits)) + 1e-9


def check_choices(ram: Ram | Rules) -> None:
    """Exclusive facts are one choice for a provenance of probabilities; raises DomainError if they are more.

    What rounding adds to one is taken away by `RandomFacts`.
    """
    for facts in ram.facts:
        if not facts.exclusive:
            continue
        tags = [float(tag) for tag in facts.tags or () if tag is not None]
        total = sum(tags)
        if total > 1 and all(0.0 <= tag <= 1.0 for tag in tags) and not _is_rounded(tags):
            raise DomainError(
                f"the probabilities of the {len(facts.rows)} exclusive facts of `{facts.relation}`"
                f" add up to {total:.10g}",
                hint="exclusive facts are one choice: their probabilities add up to at most 1",
                source=ram.source,
                text=ram.text,
                span=facts.span,
            )
