"""The facts written in a program, and those of the files that it names."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import chain, groupby
from typing import Any

import numpy as np

from derivable.core.diagnostics import DomainError, TypeMismatchError
from derivable.core.graph import offsets_of
from derivable.datalog.facts.columns import FactColumns, FactPart, certain
from derivable.datalog.facts.load import load_relation
from derivable.datalog.facts.store import FactStore, new_store
from derivable.datalog.ram.nodes import Ram
from derivable.datalog.rules.nodes import Facts, Rules
from derivable.datalog.tags.random_facts import Origin, RandomFacts, Tied
from derivable.datalog.values.symbols import CodedTexts, SymbolTable
from derivable.datalog.values.terms import show_value
from derivable.datalog.values.values import ValueType, words_of


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
    # Where facts without tags are numbered too, all are numbered in the order of the program.
    at_once = store.random.carrier is None
    variables, start = _variables(ram, ram.facts if at_once else (), store), 0
    symbols, distinct = store.symbols, dict[int, np.ndarray]()
    # Programs have many small sets of facts of one relation, a choice for each row of a table.
    for name, sets in groupby(ram.facts, key=lambda facts: facts.relation):
        some = list(sets)
        count = sum(facts.count for facts in some)
        is_random = any(facts.tags is not None for facts in some)
        types = ram.relations[name].types
        columns = [_words([facts.columns[c] for facts in some], t, symbols, distinct) for c, t in enumerate(types)]
        numbers = variables[start : start + count] if at_once else _variables(ram, some, store)
        store.add(name, columns, numbers if is_random else None, count)
        start += count


def _words(
    parts: Sequence[Sequence[Any]], t: ValueType, symbols: SymbolTable, distinct: dict[int, np.ndarray]
) -> np.ndarray:
    """The words of a column of facts that comes in parts.

    distinct  the id of a list of distinct texts -> their words, which are looked up once for all columns
    """
    coded = [part for part in parts if isinstance(part, CodedTexts)]
    is_coded = t.family == "text" and len(coded) == len(parts)
    if is_coded and all(part.distinct is coded[0].distinct for part in coded):
        texts = coded[0].distinct
        words = distinct.get(id(texts))
        if words is None:
            words = distinct[id(texts)] = symbols.intern_all(texts)
        return words[np.frombuffer(b"".join(part.codes for part in coded), np.uint32)]
    return words_of(list(chain.from_iterable(parts)), t, symbols)


def _variables(ram: Ram | Rules, facts: Sequence[Facts], store: FactStore) -> np.ndarray:
    """The random facts [row] of the rows of some sets of facts, -1 of certain ones."""
    random, parts = store.random, [np.empty(0, np.int64)]
    for is_choice, run in groupby(facts, key=lambda one: random.carrier is None and _is_choice(one)):
        sets = list(run)
        if is_choice:
            parts.append(_choices(ram, sets, random))
        else:
            parts += [_tagged(ram, one, random) for one in sets]
    return np.concatenate(parts)


def _choices(ram: Ram | Rules, sets: Sequence[Facts], random: RandomFacts) -> np.ndarray:
    """The random facts [row] of the rows of sets that are choices with numbers as tags."""
    starts = offsets_of([facts.count for facts in sets])
    tags = np.fromiter(chain.from_iterable(facts.tags or () for facts in sets), np.float64, int(starts[-1]))

    def origin(row: int) -> tuple[str, dict[str, Any]]:
        number = int(np.searchsorted(starts, row, "right")) - 1
        return _written(ram, sets[number])(row - int(starts[number]))

    variables = random.add_choices(tags, starts, "tag", origin)
    for facts, start in zip(sets, starts.tolist()):
        for row, parameter in facts.parameters.items():
            random.tied.append(Tied(parameter, variables[start + row : start + row + 1]))
    return variables


def _tagged(ram: Ram | Rules, facts: Facts, random: RandomFacts) -> np.ndarray:
    """The random facts [row] of the rows of one set, whatever its tags are."""
    if facts.tags is None:
        return certain(facts.count)
    variables = np.full(facts.count, -1, dtype=np.int64)
    add = random.add_choice if facts.exclusive else random.add
    for kind in ("tag", "chance"):
        # A truth value is a probability wherever numbers are none.
        rows = [i for i, t in enumerate(facts.tags) if t is not None and isinstance(t, bool) == (kind != "tag")]
        if rows:
            numbers = np.array([facts.tags[i] for i in rows], dtype=np.float64)
            variables[rows] = add(numbers, kind=kind, origin=_written(ram, facts, rows))
    random.tied += [Tied(number, variables[row : row + 1]) for row, number in facts.parameters.items()]
    return variables


def _is_choice(facts: Facts) -> bool:
    """Whether there are rows that exclude each other, each with a number as its tag."""
    return facts.exclusive and bool(facts.tags) and {*map(type, facts.tags or ())} <= {float, int}


class WrittenFacts:
    """The facts of a program as a store that others begin with: they are read once.

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
        fields = {"source": ram.source, "text": ram.text, "span": facts.tag_spans.get(row, facts.span)}
        shown = f"`{facts.relation}({', '.join(map(show_value, facts.row(row)))})`"
        return "a rule" if facts.relation.startswith("#") else shown, fields

    return origin


def check_choices(ram: Ram | Rules) -> None:
    """Exclusive facts are one choice for a provenance of probabilities; raises DomainError if they are more.

    What rounding adds to one is taken away by `RandomFacts`.
    """
    for facts in ram.facts:
        if facts.is_excessive:
            total = sum(float(tag) for tag in facts.tags or () if tag is not None)
            raise DomainError(
                f"the probabilities of the {facts.count} exclusive facts of `{facts.relation}` add up to {total:.10g}",
                hint="exclusive facts are one choice: their probabilities add up to at most 1",
                source=ram.source,
                text=ram.text,
                span=facts.span,
            )
