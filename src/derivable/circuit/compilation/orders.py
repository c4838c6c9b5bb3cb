"""Elimination orders of tables over discrete variables, and what each costs before anything is built.

Eliminating a variable joins the tables that mention it and sums it out: the work is the size of the joined table. The
order decides everything, so several greedy orders are tried and the cheapest is taken.
Source: minimum fill and minimum weight (Kjaerulff 1990; Darwiche 2009, section 9.3).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np

from derivable.circuit.kernels.elimination_orders import greedy_order
from derivable.core.graph import offsets_of, ranges
from derivable.core.progress import NEVER, Deadline

RULES = ("weight", "fill")
# Entries at which an order ends: no machine makes that many.
HOPELESS = 1e18
MOST_TRIES = 32
# Neighbours that one try looks at: some tenths of a second. Graphs that need more have tables that fit no memory.
MOST_LOOKS = 1 << 26
# Neighbours that are looked at for each entry of the best order so far, at most: its tables take several times longer.
SHARE = 2.0


@dataclass(frozen=True)
class Order:
    """An elimination order and what it costs if no entry of a table is zero.

    order  variables, the first to go first
    rule   the greedy rule that gave it
    cost   entries of all joined tables together; where they are HOPELESS, those of the first ones
    width  the most variables of one of these tables, less one, as in treewidth
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
    offsets, targets = _neighbours(list(scopes), len(cardinalities))
    sizes = np.log2(np.maximum(np.array(cardinalities, np.float64), 1.0))
    numbers = np.empty(len(sizes), np.int32)
    best, best_numbers, tries, looks = Order((), RULES[0], np.inf, 0), numbers, 0, 0
    while tries < len(RULES) or (tries < MOST_TRIES and looks < SHARE * best.cost < HOPELESS):
        deadline.remaining()
        rule = RULES[tries % len(RULES)]
        bound = min(best.cost, HOPELESS)
        done, cost, width, used = greedy_order(
            offsets, targets, sizes, rule == "fill", seed + tries, bound, MOST_LOOKS, numbers
        )
        looks, tries = looks + used, tries + 1
        if done < len(numbers):
            cost = max(cost, HOPELESS)
        if cost < best.cost:
            numbers[done:] = np.setdiff1d(np.arange(len(numbers)), numbers[:done])
            best, best_numbers = Order((), rule, cost, width), numbers.copy()
    return Order(tuple(best_numbers.tolist()), best.rule, best.cost, best.width)


def _neighbours(scopes: Sequence[Sequence[int]], count: int) -> tuple[np.ndarray, np.ndarray]:
    """The graph of variables that are in a scope together: offsets [variable + 1], targets [edge] int32, ascending."""
    lengths = np.fromiter(map(len, scopes), np.int64, len(scopes))
    flat = np.fromiter(chain.from_iterable(scopes), np.int64, int(lengths.sum()))
    # Each variable of a scope with all of the scope.
    sizes = np.repeat(lengths, lengths)
    firsts = np.repeat(offsets_of(lengths)[:-1], lengths)
    others = flat[ranges(firsts, sizes)]
    owners = np.repeat(flat, sizes)
    pairs = np.sort((owners * count + others)[owners != others])
    pairs = pairs[np.diff(pairs, prepend=-1) > 0]
    return offsets_of(np.bincount(pairs // count, minlength=count)), (pairs % count).astype(np.int32)
