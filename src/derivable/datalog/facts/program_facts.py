"""The facts written in a program, and those of the files that it names."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from derivable.core.diagnostics import DomainError, TypeMismatchError
from derivable.datalog.facts.columns import FactColumns, FactPart
from derivable.datalog.facts.load import load_relation
from derivable.datalog.facts.store import FactStore, new_store
from derivable.datalog.ram.nodes import Ram
from derivable.datalog.rules.nodes import Facts, Rules
from derivable.datalog.tags.random_facts import Origin
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
                    place = {"source": ram.source, "text": ram.text, "span": attribute.span}
                    raise TypeMismatchError(error.message, hint=error.hint, **place) from None
    for facts in ram.facts:
        types = ram.relations[facts.relation].types
        columns = [words_of([row[c] for row in facts.rows], t, store.symbols) for c, t in enumerate(types)]
        variables = None
        if facts.tags is not None:
            variables = np.full(len(facts.rows), -1, dtype=np.int64)
            add = store.random.add_choice if facts.exclusive else store.random.add
            for kind in ("tag", "chance"):
                # A truth value is a probability wherever numbers are none.
                rows = [i for i, t in enumerate(facts.tags) if t is not None and isinstance(t, bool) == (kind != "tag")]
                if rows:
                    tags = np.array([facts.tags[i] for i in rows], dtype=np.float64)
                    variables[rows] = add(tags, kind=kind, origin=_written(ram, facts, rows))
            store.random.tied += [(number, variables[row : row + 1]) for row, number in facts.parameters.items()]
        store.add(facts.relation, columns, variables, len(facts.rows))


class WrittenFacts:
    """The facts of a program as a store that others begin with: many small sets take long to read each time.

    Only of programs with facts, and without files and terms, so that these do not depend on the run.
    """

    def __init__(self, rules: Rules):
        self.store = new_store(rules)
        load_program_facts(rules, self.store)
        for name, facts in self.store.relations.items():
            facts.parts = [FactPart(*facts.given(len(rules.relations[name].types)))]

    @staticmethod
    def suits(rules: Rules) -> bool:
        has_files = any(a.name == "file" for relation in rules.relations.values() for a in relation.attributes)
        return bool(rules.facts) and not has_files and not rules.constructors

    def begin(self, store: FactStore) -> None:
        """Put the facts into a store that has none."""
        store.symbols = self.store.symbols.copy()
        store.random = replace(self.store.random.copy(), seed=store.random.seed)
        store.relations = {name: FactColumns.of(facts.parts) for name, facts in self.store.relations.items()}


def _written(ram: Ram | Rules, facts: Facts, rows: list[int]) -> Origin:
    """Where the tags of these rows of facts of a program are written."""

    def origin(number: int) -> tuple[str, dict[str, Any]]:
        row = rows[number]
        place = {"source": ram.source, "text": ram.text, "span": facts.places.get(row, facts.span)}
        shown = f"`{facts.relation}({', '.join(map(show_value, facts.rows[row]))})`"
        return "a rule" if facts.relation.startswith("#") else shown, place

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
        tags = [float(tag) for tag in facts.tags or () if tag is not None]
        total = sum(tags)
        if facts.exclusive and all(0.0 <= tag <= 1.0 for tag in tags) and total > 1 and not _is_rounded(tags):
            raise DomainError(
                f"the probabilities of the {len(facts.rows)} exclusive facts of `{facts.relation}`"
                f" add up to {total:.10g}",
                hint="exclusive facts are one choice: their probabilities add up to at most 1",
                source=ram.source,
                text=ram.text,
                span=facts.span,
            )
