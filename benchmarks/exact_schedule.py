"""The best schedule that there is, by exhaustive search: the yardstick of the exploration of designs."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Sequence
from typing import TypeAlias

from derivable.accelerator.explore.schedule import Costs, Placed, Schedule, useful
from derivable.accelerator.operators.runtime import ceil_div
from derivable.core.diagnostics import LimitError

_Chain: TypeAlias = tuple[int, int, int]  # index of its next node, cycles left of the one that runs, its sub-arrays
_State: TypeAlias = tuple[_Chain, _Chain]


def exact(cost: Costs, *, at_most: int | None = None, states: int = 500_000) -> Schedule | None:
    """A schedule of the fewest cycles, by best-first search over all counts of all nodes, with pauses.

    at_most  what is no better than this many cycles is not looked for; None is returned if there is nothing better
    states   after so many states the search is given up

    A state is what is left to do when a node ends. Counts that save no cycle are left out, and of two ways to the same
    state the later one. The bound is the work that is left, in sub-arrays times cycles, and each chain on all
    sub-arrays.

    Raises LimitError if there are too many states.
    """
    total = cost.sub_arrays
    tables = cost.rows
    options = [[useful(row) for row in table] for table in tables]
    fastest = [_suffix_sums([row[total] for row in table]) for table in tables]
    area = [_suffix_sums([min(c * row[c] for c in range(1, total + 1)) for row in table]) for table in tables]

    def bound(state: _State) -> int:
        (i, left_i, c_i), (j, left_j, c_j) = state
        work = area[0][i] + area[1][j] + left_i * c_i + left_j * c_j
        return max(left_i + fastest[0][i], left_j + fastest[1][j], ceil_div(work, total))

    def after(chain: _Chain, step: int) -> _Chain:
        index, left, count = chain
        return (index, left - step, count) if left > step else (index, 0, 0)

    start: _State = ((0, 0, 0), (0, 0, 0))
    goal: _State = ((len(tables[0]), 0, 0), (len(tables[1]), 0, 0))
    best: dict[_State, int] = {start: 0}
    came: dict[_State, tuple[_State, int, Sequence[int]]] = {}
    queue: list[tuple[int, int, _State]] = [(bound(start), 0, start)]
    while queue:
        estimate, now, state = heapq.heappop(queue)
        if at_most is not None and estimate >= at_most:
            return None
        if state == goal:
            return _retraced(cost, came, state)
        if now > best[state]:
            continue
        if len(best) > states:
            raise LimitError(
                f"the exact search met more than {states} states of {len(tables[0])} layers, {len(tables[1])} vector "
                f"nodes and {total} sub-arrays",
                hint="give fewer nodes or sub-arrays, or a larger states=",
            )
        choices = []
        for (index, left, _), rows in zip(state, options):
            choices.append([0, *rows[index]] if left == 0 and index < len(rows) else [0])
        taken = state[0][2] + state[1][2]
        for picks in itertools.product(*choices):
            if taken + sum(picks) > total:
                continue
            chains = [
                (index + 1, tables[side][index][pick], pick) if pick else (index, left, count)
                for side, ((index, left, count), pick) in enumerate(zip(state, picks))
            ]
            step = min((left for _, left, _ in chains if left), default=0)
            if not step:
                continue
            following = after(chains[0], step), after(chains[1], step)
            if following not in best or now + step < best[following]:
                best[following] = now + step
                came[following] = (state, now, picks)
                heapq.heappush(queue, (now + step + bound(following), now + step, following))
    return None


def _suffix_sums(values: list[int]) -> list[int]:
    return list(itertools.accumulate(reversed(values), initial=0))[::-1]


def _retraced(cost: Costs, came: dict[_State, tuple[_State, int, Sequence[int]]], state: _State) -> Schedule:
    chains: tuple[list[Placed], list[Placed]] = ([], [])
    while state in came:
        state, now, picks = came[state]
        for side, pick in enumerate(picks):
            if pick:
                index = state[side][0]
                node = (cost.workload.layers, cost.workload.vectors)[side][index]
                cycles = int((cost.layers, cost.vectors)[side][index, pick])
                chains[side].append(Placed(node, pick, now, now + cycles))
    return Schedule(cost.sub_arrays, tuple(chains[0][::-1]), tuple(chains[1][::-1]))
