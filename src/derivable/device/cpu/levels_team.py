"""Forward and reverse pass over a program of `levels_plan` by a team of threads, for one tile of rows.

The levels are cut beforehand into a part for each member of the team, and parts into chunks. A pass is a sequence of
phases, one a level. All members go through the phases in step. Each takes chunks of its own part, then any that are
free. So the calling thread, member 0, never waits for one that has not begun: it does everything alone if nobody
comes.

In reverse, part p adds to adjoint buffer p, whoever computes it; chunks of one part are computed in order, one at a
time. A slot's adjoint is the sum over the buffers, in order. So the bits depend on the input and the number of
members only.

A team is a tuple: runs cut at chunks [run, 6] int32, `cuts` [chunk + 1] int32 (chunk c is runs cuts[c]:cuts[c + 1]),
`heads` [phase * part + 1] int32 (the chunks of part p in phase s are heads[s * parts + p] up to the next entry),
adjoint buffers [part, slot] or [part, slot, lane], prefix scratch [part, factor] or [part, factor, lane], `state`
[word] int64. The buffers are zero before a call and after it, but for slots of buffer 0 that are not inner ones.

Lines of `state`: GATE counts the members besides the caller that are inside, and has the bit CLOSED; READY is the
number of phases that may be begun; then for each phase and part how many chunks are claimed and how many are done.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit, types
from numba.extending import overload

from derivable.device.cpu.atomics import atomic_add, atomic_load, atomic_replace, atomic_store, give_way, pause
from derivable.device.cpu.lanes import add, item, load, store, zero_of
from derivable.device.cpu.levels import backward, clear, forward
from derivable.device.cpu.levels_plan import COUNT, FACTORS, FIRST, PAIRS, SINGLES, START

LINE_WORDS = 8
GATE, READY, CHUNKS = 0, LINE_WORDS, 2 * LINE_WORDS
CLOSED = 1 << 40
# How often a member looks before it gives up its core.
_SPINS = 5000


@njit(cache=True, nogil=True)
def cut_program(runs, terms, parts, chunk, smallest):
    """Cut the runs of a program for a team of `parts` members.

    chunk     the cost of a chunk, in operands
    smallest  levels of less cost are not cut; neighbours of this kind become one phase of one chunk
    returns   the first three entries of a team, and the cost of all levels that are cut
    """
    num_runs = runs.shape[0]
    level_starts = np.empty(num_runs + 1, np.int64)
    costs = np.zeros(num_runs + 1, np.int64)
    num_levels, level_slot = 0, np.int64(0)
    for run in range(num_runs):
        count = np.int64(runs[run, COUNT])
        size = count * (2 * np.int64(runs[run, PAIRS]) + runs[run, SINGLES] + runs[run, FACTORS])
        start = np.int64(runs[run, START])
        highest = np.int64(-1)
        for position in range(start, start + size):
            highest = max(highest, item(terms, position))
        if num_levels == 0 or highest >= level_slot:
            level_starts[num_levels] = run
            level_slot = np.int64(runs[run, FIRST])
            num_levels += 1
        costs[num_levels - 1] += size + 2 * count
    level_starts[num_levels] = num_runs

    bound = num_runs
    for level in range(num_levels):
        bound += parts * (2 + costs[level] // (parts * chunk))
    pieces = np.empty((bound, 6), np.int32)
    cuts = np.empty(bound + num_levels + 1, np.int32)
    heads = np.empty(num_levels * parts + 1, np.int32)
    num_pieces, num_chunks, num_phases, shared = 0, 0, 0, np.int64(0)
    level = 0
    while level < num_levels:
        for part in range(parts):
            heads[num_phases * parts + part] = num_chunks
        num_phases += 1
        if costs[level] < smallest:
            cuts[num_chunks] = num_pieces
            num_chunks += 1
            for part in range(1, parts):
                heads[(num_phases - 1) * parts + part] = num_chunks
            while level < num_levels and costs[level] < smallest:
                for run in range(level_starts[level], level_starts[level + 1]):
                    pieces[num_pieces] = runs[run]
                    num_pieces += 1
                level += 1
            continue
        shared += costs[level]
        each = 1 + costs[level] // (parts * chunk)
        total = parts * each
        cuts[num_chunks] = num_pieces
        done, target = np.int64(0), 1
        for run in range(level_starts[level], level_starts[level + 1]):
            width = 2 * np.int64(runs[run, PAIRS]) + runs[run, SINGLES] + runs[run, FACTORS]
            slot, left, start = np.int64(runs[run, FIRST]), np.int64(runs[run, COUNT]), np.int64(runs[run, START])
            while left > 0:
                # As many slots as bring the cost to the next boundary, rounded to the nearest slot.
                boundary = costs[level] * target // total
                take = (
                    min(left, max(0, (boundary - done + (width + 2) // 2) // (width + 2))) if target < total else left
                )
                if take > 0:
                    pieces[num_pieces] = runs[run]
                    pieces[num_pieces, FIRST] = slot
                    pieces[num_pieces, COUNT] = take
                    pieces[num_pieces, START] = start
                    num_pieces += 1
                    slot += take
                    left -= take
                    start += take * width
                    done += take * (width + 2)
                if left > 0:
                    cuts[num_chunks + target] = num_pieces
                    target += 1
        while target < total:
            cuts[num_chunks + target] = num_pieces
            target += 1
        for part in range(parts):
            heads[(num_phases - 1) * parts + part] = num_chunks + part * each
        num_chunks += total
        level += 1
    cuts[num_chunks] = num_pieces
    heads[num_phases * parts] = num_chunks
    return pieces[:num_pieces].copy(), cuts[: num_chunks + 1].copy(), heads[: num_phases * parts + 1].copy(), shared


def new_state(program: tuple[np.ndarray, ...]) -> np.ndarray:
    """The state of one call; `program` is what `cut_program` returns."""
    return np.zeros(2 * len(program[2]) * LINE_WORDS, np.int64)


@njit(cache=True, nogil=True)
def close(state):
    """Let nobody in any more; returns whether everybody is out, so that the buffers may be used again.

    Who is inside leaves at once, unless it has lost its core: that is not waited for.
    """
    inside = atomic_add(state, GATE, CLOSED)
    spins = 0
    while inside != 0 and spins < _SPINS:
        pause()
        spins += 1
        inside = atomic_load(state, GATE) - CLOSED
    return inside == 0


@njit(cache=True, nogil=True)
def work(values, team, terms, member, phase, stop):
    """Phases phase:stop, forward ones or reverse ones, as `member`."""
    runs, cuts, heads, buffers, prefixes, state = team
    parts = buffers.shape[0]
    phases = (heads.size - 1) // parts
    while phase < stop:
        level = phase if phase < phases else 2 * phases - 1 - phase
        counters = CHUNKS + phase * parts * LINE_WORDS
        spins = 0
        while True:
            finished, chunk, at = True, np.int64(-1), np.int64(0)
            part = member
            for _ in range(parts):
                size = item(heads, level * parts + part + 1) - item(heads, level * parts + part)
                at = counters + part * LINE_WORDS
                claimed = atomic_load(state, at)
                done = atomic_load(state, at + 1)
                finished = finished and done == size
                if (
                    claimed < size
                    and (phase < phases or done == claimed)
                    and atomic_replace(state, at, claimed, claimed + 1)
                ):
                    chunk = claimed
                    break
                part = part + 1 if part + 1 < parts else 0
            if chunk >= 0:
                spins = 0
                if phase < phases:
                    chunk += item(heads, level * parts + part)
                    forward(values, runs[item(cuts, chunk) : item(cuts, chunk + 1)], terms)
                else:
                    chunk = item(heads, level * parts + part + 1) - 1 - chunk
                    first, last = item(cuts, chunk), item(cuts, chunk + 1)
                    if first < last:
                        slot = np.int64(runs[first, 0])
                        behind = np.int64(runs[last - 1, 0]) + runs[last - 1, 1]
                        collect(buffers, part, slot, behind)
                        backward(values, buffers[part], runs[first:last], terms, prefixes[part])
                        clear(buffers[part][slot:behind])
                atomic_add(state, at + 1, 1)
            elif finished:
                break
            else:
                spins += 1
                if spins < _SPINS:
                    pause()
                else:
                    give_way()
        phase += 1


@njit(cache=True, nogil=True)
def collect(buffers, into, first, last):
    """Move slots first:last of all other buffers to those of buffer `into`, adding."""
    target = buffers[into]
    zero = zero_of(target)
    for part in range(buffers.shape[0]):
        if part != into:
            source = buffers[part]
            for slot in range(first, last):
                store(target, slot, add(load(target, slot), load(source, slot)))
                store(source, slot, zero)


@njit(cache=True, nogil=True)
def follow(values, team, terms, member):
    """Be a member of the team until it closes; `member` is not 0. Returns at once if it has closed."""
    state = team[5]
    if atomic_add(state, GATE, 1) < CLOSED:
        phase, spins = 0, 0
        while atomic_load(state, GATE) < CLOSED:
            ready = atomic_load(state, READY)
            if ready > phase:
                work(values, team, terms, member, phase, ready)
                phase, spins = ready, 0
            elif spins < _SPINS:
                spins += 1
                pause()
            else:
                give_way()
    atomic_add(state, GATE, -1)


@njit(cache=True, nogil=True)
def lead_forward(values, team, terms):
    """`levels.forward`, with the team."""
    heads, buffers, state = team[2], team[3], team[5]
    phases = (heads.size - 1) // buffers.shape[0]
    atomic_store(state, READY, phases)
    work(values, team, terms, 0, 0, phases)


@njit(cache=True, nogil=True)
def lead_backward(values, team, terms):
    """`levels.backward`, with the team: the adjoints are in buffer 0, those of the roots must be set there before."""
    runs, heads, buffers, state = team[0], team[2], team[3], team[5]
    phases = (heads.size - 1) // buffers.shape[0]
    atomic_store(state, READY, 2 * phases)
    work(values, team, terms, 0, phases, 2 * phases)
    # Leaves, and what comes behind the inner slots.
    last = runs.shape[0] - 1
    collect(buffers, 0, 0, np.int64(runs[0, 0]))
    collect(buffers, 0, np.int64(runs[last, 0]) + runs[last, 1], buffers.shape[1])


@njit(cache=True, nogil=True)
def lead_clear(adjoints, team):
    """Set what the last call left in buffer 0 to zero."""
    runs = team[0]
    last = runs.shape[0] - 1
    clear(adjoints[: np.int64(runs[0, 0])])
    clear(adjoints[np.int64(runs[last, 0]) + runs[last, 1] :])


def fold_forward(values, runs, terms):
    """`levels.forward`, or that with a team if one is given for the runs."""
    if isinstance(runs, tuple):
        lead_forward(values, runs, terms)
    else:
        forward(values, runs, terms)


def fold_backward(values, adjoints, runs, terms, prefix):
    """`levels.backward`, or that with a team if one is given for the runs; then `adjoints` is its buffer 0."""
    if isinstance(runs, tuple):
        lead_backward(values, runs, terms)
    else:
        backward(values, adjoints, runs, terms, prefix)


def clear_adjoints(adjoints, runs):
    """`levels.clear`; the buffers of a team need it only where a call left something."""
    if isinstance(runs, tuple):
        lead_clear(adjoints, runs)
    else:
        clear(adjoints)


# The same choices inside kernels, by the type of `runs` when they are compiled.
_overload: Any = overload


@_overload(fold_forward, inline="always")
def _fold_forward(values, runs, terms):
    if isinstance(runs, types.BaseTuple):
        return lambda values, runs, terms: lead_forward(values, runs, terms)
    return lambda values, runs, terms: forward(values, runs, terms)


@_overload(fold_backward, inline="always")
def _fold_backward(values, adjoints, runs, terms, prefix):
    if isinstance(runs, types.BaseTuple):
        return lambda values, adjoints, runs, terms, prefix: lead_backward(values, runs, terms)
    return lambda values, adjoints, runs, terms, prefix: backward(values, adjoints, runs, terms, prefix)


@_overload(clear_adjoints, inline="always")
def _clear_adjoints(adjoints, runs):
    if isinstance(runs, types.BaseTuple):
        return lambda adjoints, runs: lead_clear(adjoints, runs)
    return lambda adjoints, runs: clear(adjoints)
