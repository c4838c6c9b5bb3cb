"""What a change of facts reaches: who reads what, and what became of each stratum."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from derivable.datalog.aggregates.nodes import AggregateRule
from derivable.datalog.api import deletion
from derivable.datalog.ram import nodes as m
from derivable.datalog.ram.lower import store
from derivable.datalog.rules.literal_order import order
from derivable.datalog.rules.nodes import Atom, Negated

NEGATION = "a negation"


@dataclass(frozen=True)
class Reads:
    """Who reads what.

    uses     [stratum] relation -> why the stratum needs all of it to be known, None if it stands in atoms only
    readers  relation -> the later strata that read it
    home     relation -> its stratum
    """

    uses: tuple[Mapping[str, str | None], ...]
    readers: Mapping[str, tuple[int, ...]]
    home: Mapping[str, int]


def reads_of(ram: m.Ram) -> Reads:
    """Of a program, made once."""
    known = ram.plans.get("reads")
    if known is not None:
        return known
    uses: list[dict[str, str | None]] = []
    readers: dict[str, list[int]] = {}
    home = {name: number for number, stratum in enumerate(ram.strata) for name in stratum.relations}
    for number, stratum in enumerate(ram.strata):
        used: dict[str, str | None] = {}
        for instruction in stratum.full:
            for name, why in _read_by(instruction):
                used[name] = used.get(name) or why
        uses.append(used)
        for name in used:
            if home[name] != number:
                readers.setdefault(name, []).append(number)
    made = Reads(tuple(uses), {name: tuple(numbers) for name, numbers in readers.items()}, home)
    ram.plans["reads"] = made
    return made


def _read_by(instruction: m.Instruction) -> list[tuple[str, str | None]]:
    if isinstance(instruction, AggregateRule):
        bodies = [instruction.body, *([instruction.groups] if instruction.groups else [])]
        return [(name, "an aggregate") for name in bodies]
    reads: list[tuple[str, str | None]] = []
    for node in instruction.query.operators:
        scan = m.scan_of(node)
        if isinstance(node, m.Generate) and node.relation is not None:
            reads.append((node.relation, "an aggregate"))
        if scan is not None:
            reads.append((scan.relation, NEGATION if isinstance(node, m.Difference) else None))
    return reads


def change_stores(
    ram: m.Ram, number: int, changed: frozenset[str], negated: frozenset[str], splits: bool
) -> tuple[m.Store, ...]:
    """The rules of a stratum with the news of each atom of a changed relation, all of which is in lower strata.

    negated  the relations that are negated here and have lost rows, which are news
    splits   whether the changed atoms before that one read what is not new, so that no combination comes twice
    """
    key = "change", number, changed, negated, splits
    made = ram.plans.get(key)
    if made is None:
        # What it says of a program in an error has been checked when the clause was lowered.
        program: Any = deletion.with_relations(ram, {deletion.GONE: negated})
        stores = []
        for instruction in ram.strata[number].full:
            if not isinstance(instruction, m.Store):
                continue
            assert instruction.origin is not None
            clause = instruction.origin.clause
            positions = [i for i, part in enumerate(clause.body) if isinstance(part, Atom) and part.relation in changed]
            for k, position in enumerate(positions):
                parts: dict[int, m.Part] = dict.fromkeys(positions[:k] if splits else [], "stable")
                parts[position] = "recent"
                stores.append(store(m.Origin(clause, parts), order(clause, program, (position,))))
            for position, part in enumerate(clause.body):
                if isinstance(part, Negated) and part.relation in negated:
                    news = Atom(deletion.GONE + part.relation, part.terms)
                    released = replace(clause, body=(*clause.body[:position], news, *clause.body[position + 1 :]))
                    stores.append(store(m.Origin(released), order(released, program, (position,))))
        made = ram.plans[key] = tuple(stores)
    return made


@dataclass(frozen=True)
class Step:
    """What became of one stratum.

    reason  why it was recomputed, None if it went on
    added   tuples more (or fewer) than before, None if nobody counted
    rounds  of its recursion
    """

    number: int
    relations: tuple[str, ...]
    reason: str | None
    added: int | None
    rounds: int

    def __str__(self) -> str:
        """`stratum 1: path went on, 3 tuples more, 2 rounds`"""
        names = [name for name in self.relations if not name.startswith("#")]
        shown = ", ".join(names[:5]) + (", ..." if len(names) > 5 else "") if names else "a part of a rule"
        what = "went on" if self.reason is None else f"recomputed, because {self.reason}"
        text = f"stratum {self.number}: {shown} {what}"
        if self.added is not None:
            many = "" if abs(self.added) == 1 else "s"
            text += f"; {abs(self.added):,} tuple{many} {'fewer' if self.added < 0 else 'more'}"
        return text + (f", {self.rounds:,} round{'' if self.rounds == 1 else 's'}" if self.rounds else "")


@dataclass(frozen=True)
class Change:
    """What adding and removing facts did; its text has a line for each stratum that was reached.

    continued   the relations whose strata went on from the new tuples
    recomputed  the relations whose strata were recomputed
    kept        how many strata stayed as they were
    """

    steps: tuple[Step, ...]
    kept: int

    @property
    def continued(self) -> tuple[str, ...]:
        return self._relations(False)

    @property
    def recomputed(self) -> tuple[str, ...]:
        return self._relations(True)

    def _relations(self, is_recomputed: bool) -> tuple[str, ...]:
        some = [step for step in self.steps if (step.reason is not None) == is_recomputed]
        return tuple(name for step in some for name in step.relations if not name.startswith("#"))

    def __str__(self) -> str:
        # What became of auxiliary relations is seen from the relations that read them.
        named = [step for step in self.steps if not all(name.startswith("#") for name in step.relations)]
        rows = [str(step) for step in named]
        return "\n".join([*rows, f"{self.kept} {'stratum' if self.kept == 1 else 'strata'} kept"])

    __repr__ = __str__


def every_stratum(ram: m.Ram, reason: str) -> Change:
    """What a change did that computed everything again."""
    steps = [Step(number, stratum.relations, reason, None, 0) for number, stratum in enumerate(ram.strata)]
    return Change(tuple(steps), 0)
