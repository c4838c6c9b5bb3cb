"""Elimination orders of tables over discrete variables, and what each costs before anything is built.

Eliminating a variable joins the tables that mention it and sums it out: the work is the size of the joined table. The
order decides everything, so several greedy orders are tried and the cheapest is taken.
Source: minimum fill and minimum weight (Kjaerulff 1990; Darwiche 2009, section 9.3).
"""

from __future__ import annotations

import heapq
import math
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from derivable.core.progress import NEVER, Deadline

RULES = ("weight", "fill")
# Neighbours that scores look at, over all tries: some tenths of a second of Python.
MOST_SCORES = 100_000
# Entries up to which a try with each rule is enough: tables so small take less time than another try.
EASY = 1 << 14
# Entries from which one try is enough to see that there are too many.
HOPELESS = 1e18
MOST_TRIES = 8
# Neighbours of a variable up to which the edges that it would add are counted.
MOST_FILLED = 64


@dataclass(frozen=True)
class Order:
    """An elimination order and what it costs if no entry of a table is zero.

    order  variables, the first to go first
    rule   the greedy rule that gave it
    cost   entries of all joined tables together
    width  the most variables of one joined table, less one, as in treewidth
    """

    order: tuple[int, ...]
    rule: str
    cost: float
    width: int


def best_order(
    scopes: Iterable[Sequence[int]], cardinalities: Sequence[int], deadline: Deadline = NEVER, seed: int = 0
) -> Order:
    """The cheapest of several greedy orders of the variables 0..len(cardinalities) - 1; ties are broken at random.

    scopes         the variables of each table
    cardinalities  [variable] how many values it has
    """
    near: list[set[int]] = [set() for _ in cardinalities]
    for scope in scopes:
        for variable in scope:
            near[variable].update(scope)
    for variable, others in enumerate(near):
        others.discard(variable)
    sizes = [math.log2(max(number, 1)) for number in cardinalities]
    best: Order | None = None
    scores, tries = 0, 0
    generator = random.Random(seed)
    while tries < MOST_TRIES and (best is None or (scores < MOST_SCORES and best.cost < HOPELESS)):
        if best is not None and best.cost <= EASY and tries >= len(RULES):
            break
        rule = RULES[tries % len(RULES)]
        order, used = _greedy(near, sizes, rule, generator, math.inf if best is None else best.cost, deadline)
        scores, tries = scores + used, tries + 1
        if order is not None and (best is None or order.cost < best.cost):
            best = order
    assert best is not None
    return best


def _greedy(
    neighbours: list[set[int]],
    sizes: list[float],
    rule: str,
    generator: random.Random,
    bound: float,
    deadline: Deadline,
) -> tuple[Order | None, int]:
    """One greedy order, None if it costs more than the bound; how many scores it took."""
    near = [set(others) for others in neighbours]
    # Logarithms of the sizes of the tables that eliminating each variable now would join.
    logs = [sizes[v] + sum(sizes[other] for other in near[v]) for v in range(len(near))]

    def score(variable: int, clique: set[int]) -> tuple[float, float]:
        """clique  variables that are all neighbours of one another"""
        others = near[variable]
        if rule == "weight" or len(others) > MOST_FILLED:
            return logs[variable] - sizes[variable] + (MOST_FILLED**2 if rule == "fill" else 0), generator.random()
        known = others & clique
        rest = others - known
        present = len(known) * (len(known) - 1)
        for other in rest:
            present += 2 * len(near[other] & known) + len(near[other] & rest)
        return (len(others) * (len(others) - 1) - present) / 2, logs[variable] + 1e-3 * generator.random()

    current = list[tuple[float, float]]()
    for v in range(len(near)):
        if v % 64 == 0:
            deadline.remaining()
        current.append(score(v, set()))
    heap = [(value, v) for v, value in enumerate(current)]
    heapq.heapify(heap)
    gone = [False] * len(near)
    order: list[int] = []
    cost, width, used = 0.0, 0, len(near)
    while heap:
        value, variable = heapq.heappop(heap)
        if gone[variable] or value != current[variable]:
            continue
        deadline.remaining()
        gone[variable] = True
        order.append(variable)
        others = near[variable]
        cost += 2.0 ** min(logs[variable], 1000.0)
        width = max(width, len(others))
        if cost >= bound:
            return None, used
        for other in others:
            row = near[other]
            logs[other] += sum(sizes[new] for new in others - row) - sizes[other] - sizes[variable]
            row |= others
            row.discard(other)
            row.discard(variable)
        # A fill also changes for those who see a new edge; their old scores stay, which keeps this linear.
        for other in others:
            current[other] = score(other, others)
            used += len(near[other]) if rule == "fill" else 1
            heapq.heappush(heap, (current[other], other))
    return Order(tuple(order), rule, cost, width), used
