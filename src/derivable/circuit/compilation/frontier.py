"""Cycles of derivations as states of a frontier.

Atoms that derive each other in cycles, each rule from one of them at most, are gone through one after the other, with
the rules about them. What the rules so far say about the atoms that later rules mention, the frontier, is a relation:
which of them derive which others, and which hold for certain. So a world is a path through these relations, and a
discrete variable for each step makes the cycle a chain. Whether an atom holds follows, when it leaves the frontier,
from the relation there and from the atoms that stay: its last derivation begins at one of them, or needs none.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from derivable.core.diagnostics import LimitError

# Slots of a relation, the first of which stands for what holds for certain; and states of one step.
MOST_SLOTS, MOST_STATES = 16, 1 << 17


class TooWide(LimitError):
    """A frontier has too many atoms, or states."""


@dataclass(frozen=True)
class Bundle:
    """Rules that hold in the same worlds: (body, head), the body being -1 for a rule without an atom of the cycle."""

    rules: tuple[tuple[int, int], ...]

    @property
    def atoms(self) -> set[int]:
        return {atom for rule in self.rules for atom in rule if atom >= 0}


@dataclass(frozen=True, eq=False)
class Step:
    """The states before and after a bundle.

    before, unchanged, changed  [state before] states after: where the rules do not hold, and where they do
    """

    bundle: int
    num_after: int
    unchanged: np.ndarray
    changed: np.ndarray


@dataclass(frozen=True, eq=False)
class Leaving:
    """An atom that leaves the frontier and whose truth is wanted.

    others   atoms of the frontier that stay
    derives  [state, 1 + other] bool: whether it holds for certain, and whether it follows from each of the others
    after    [state] the state without it
    """

    atom: int
    others: tuple[int, ...]
    derives: np.ndarray
    num_after: int
    after: np.ndarray


def sequence_of(
    bundles: Sequence[Bundle], atoms: Sequence[int], last: set[int], look: Callable[[], object]
) -> list[int]:
    """Atoms in an order in which they leave, so that few are in the frontier at a time; `last` ones late.

    Raises TooWide where no such order has little enough.
    """
    near: dict[int, set[int]] = {atom: set() for atom in atoms}
    for bundle in bundles:
        for atom in bundle.atoms:
            near[atom] |= bundle.atoms - {atom}
    best, best_cost = list[int](), float("inf")
    starts = sorted(atoms, key=lambda atom: (atom in last, len(near[atom]), atom))[:8]
    for start in starts:
        order, cost = list[int](), 0.0
        frontier, gone = {start: 0}, set[int]()
        while len(order) < len(atoms):
            look()
            if all(atom in last for atom in frontier):
                # Preferably one that was mentioned with those that wait; one of the last when the others are gone.
                left = [atom for atom in atoms if atom not in gone and atom not in frontier]
                rest = [atom for atom in left if atom not in last] or ([] if frontier else left)
                close = [atom for atom in rest if near[atom] & frontier.keys()]
                frontier |= dict.fromkeys((close or rest)[:1], len(order))
            waits = {atom: len(near[atom] - gone - frontier.keys()) for atom in frontier}
            atom = min(frontier, key=lambda a: (a in last, waits[a], frontier[a]))
            for other in near[atom] - gone - frontier.keys():
                frontier[other] = len(order)
            cost += 4.0 ** len(frontier) if len(frontier) < MOST_SLOTS else math.inf
            if cost >= best_cost:
                break
            del frontier[atom]
            gone.add(atom)
            order.append(atom)
        if cost < best_cost:
            best, best_cost = order, cost
    if len(best) < len(atoms):
        raise TooWide(f"a frontier has more than {MOST_SLOTS - 1} atoms")
    return best


def run_frontier(
    bundles: Sequence[Bundle], atoms: Sequence[int], wanted: set[int], look: Callable[[], object]
) -> list[Step | Leaving]:
    """The steps of a cycle; the first state is the only one there is at the beginning. Raises TooWide.

    wanted  atoms whose truth is wanted; the result has a `Leaving` for each, and for those that it needs
    """
    order = sequence_of(bundles, atoms, wanted if len(wanted) == 1 else set(), look)
    place = {atom: number for number, atom in enumerate(order)}
    due: dict[int, list[int]] = {atom: [] for atom in atoms}
    for number, bundle in enumerate(bundles):
        due[min(bundle.atoms, key=place.__getitem__)].append(number)
    slot_of: dict[int, int] = {}
    # states [state, slot] uint16: bit s of the row of slot r says that r derives s.
    states = np.zeros((1, MOST_SLOTS), np.uint16)
    states[:, 0] = 1
    steps: list[Step | Leaving] = []
    is_needed = _needed(order, due, bundles, wanted)
    for atom in order:
        look()
        for number in due[atom]:
            for other in sorted(bundles[number].atoms):
                if other not in slot_of:
                    free = next((s for s in range(1, MOST_SLOTS) if s not in slot_of.values()), -1)
                    if free < 0:
                        raise TooWide(f"a frontier has more than {MOST_SLOTS - 1} atoms")
                    slot_of[other] = free
                    states = states.copy()
                    states[:, free] = 1 << free
            changed = states.copy()
            for body, head in bundles[number].rules:
                changed = _added(changed, 0 if body < 0 else slot_of[body], slot_of[head])
            after, where = _distinct(np.concatenate([states, changed]))
            steps.append(Step(number, len(after), where[: len(states)], where[len(states) :]))
            states = after
        if atom not in slot_of:
            # No rule derives it, and it derives nothing.
            continue
        slot = slot_of.pop(atom)
        others = tuple(sorted(slot_of))
        derives = states[:, [0, *(slot_of[other] for other in others)]] >> slot & 1 == 1
        rest = states & np.uint16(0xFFFF ^ (1 << slot))
        rest[:, slot] = 0
        after, where = _distinct(rest)
        if atom in is_needed:
            steps.append(Leaving(atom, others, derives, len(after), where))
        elif steps:
            last = steps[-1]
            if isinstance(last, Step):
                steps[-1] = Step(last.bundle, len(after), where[last.unchanged], where[last.changed])
            else:
                steps[-1] = Leaving(last.atom, last.others, last.derives, len(after), where[last.after])
        states = after
    return steps


def _needed(order, due, bundles, wanted: set[int]) -> set[int]:
    """The wanted atoms, and those that are in the frontier when one of them leaves."""
    needed, frontier, at_leaving = set(wanted), set[int](), {}
    for atom in order:
        for number in due[atom]:
            frontier |= bundles[number].atoms
        frontier.discard(atom)
        at_leaving[atom] = set(frontier)
    for atom in order:
        if atom in needed:
            needed |= at_leaving[atom]
    return needed


def _added(states: np.ndarray, body: int, head: int) -> np.ndarray:
    """The relations with one more rule, closed; of what holds for certain it does not matter what derives it."""
    derives = states >> body & 1 == 1
    result = np.where(derives, states | states[:, head, None], states)
    # An atom that holds for certain has no other derivations, and derives what holds for certain.
    certain = result[:, :1]
    itself = (np.uint16(1) << np.arange(states.shape[1], dtype=np.uint16))[None, :] & states
    result[:, 1:] = (result[:, 1:] & ~certain) | itself[:, 1:]
    return result


def _distinct(states: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The distinct rows, and for each row which one it is."""
    words = np.ascontiguousarray(states).view(np.uint64)
    order = np.lexsort(words.T)
    sorted_words = words[order]
    is_new = np.ones(len(order), bool)
    is_new[1:] = (sorted_words[1:] != sorted_words[:-1]).any(axis=1)
    number = np.empty(len(order), np.int64)
    number[order] = np.cumsum(is_new) - 1
    if is_new.sum() > MOST_STATES:
        raise TooWide(f"a frontier has {int(is_new.sum()):,} states")
    return states[order[is_new]], number
