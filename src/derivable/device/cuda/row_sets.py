"""Triton's kernels for relations: the pairs of a join, and an open-addressing hash set of packed keys.

A set is a table of slots, keys of 32 or 64 bits that are never negative, -1 where a slot is empty, and behind them
cells that no key comes to. A key's slot is the first one from its hash on that has it or is empty. Slots are only ever
filled, so a lane that finds one empty tries to fill it, and looks again if another lane was first. Lanes without work
exchange nothing in cells of their own, because Triton's exchange has no mask.

Rows that are new are appended in no certain order. `state` [2] counts them (0), and says whether a value was out of
reach of the keys (1); more rows than there is room for are counted, some of them, and not written. Who finds either
begins again with a larger set.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from importlib.util import find_spec
from typing import Any

from derivable.algebra.expr.generated import load_generated

# Rows of a tile, for one warp.
TILE = 128
# Programs of a launch, at most.
PROGRAMS = 1 << 12
# Knuth's: the golden ratio, 2^64 times.
_HASH = 0x9E3779B97F4A7C15 - (1 << 64)

_HEADER = "import triton\nimport triton.language as tl\n"

# The pair of each lane: its probe, and its row in the index.
_PAIR = """
        last = tl.minimum(number_of, total - 1)
        low = last * 0
        high = low + (count - 1)
        for _ in range(steps):
            middle = (low + high) >> 1
            is_after = tl.load(ends + middle) <= last
            low = tl.where(is_after, middle + 1, low)
            high = tl.where(is_after, high, middle)
        right = last + tl.load(starts + low)
"""

_EXPAND = """
@triton.jit(do_not_specialize=["count", "steps"])
def expand(ends, starts, order, count, steps, total, to_left, to_right, TILE: tl.constexpr):
    lane = tl.arange(0, TILE)
    for tile in range(tl.program_id(0), tl.cdiv(total, TILE), tl.num_programs(0)):
        number_of = tl.cast(tile, tl.int64) * TILE + lane
        is_row = number_of < total
{pair}
        tl.store(to_left + number_of, low, mask=is_row)
        tl.store(to_right + number_of, right, mask=is_row)
"""

_MATCHES = """
@triton.jit(do_not_specialize=["less", "size", "steps", "count"])
def matches(probes, less, keys, size, steps, count, first, counts, TILE: tl.constexpr):
    lane = tl.arange(0, TILE)
    for tile in range(tl.program_id(0), tl.cdiv(count, TILE), tl.num_programs(0)):
        row = tl.cast(tile, tl.int64) * TILE + lane
        is_row = row < count
        key = tl.load(probes + row, mask=is_row, other=0) - less
        # No key of a place before `low` is too large, and all from `high` on are: not smaller, then larger.
        low = row * 0
        high = low + size
        for _ in range(steps):
            middle = (low + high) >> 1
            is_open = low < high
            is_after = is_open & (tl.load(keys + middle, mask=is_open, other=0) < key)
            low = tl.where(is_after, middle + 1, low)
            high = tl.where(is_open & ~is_after, middle, high)
        begin = low
        high = low * 0 + size
        for _ in range(steps):
            middle = (low + high) >> 1
            is_open = low < high
            is_after = is_open & (tl.load(keys + middle, mask=is_open, other=0) <= key)
            low = tl.where(is_after, middle + 1, low)
            high = tl.where(is_open & ~is_after, middle, high)
        tl.store(first + row, begin, mask=is_row)
        tl.store(counts + row, low - begin, mask=is_row)
"""

_INSERT = """
@triton.jit(do_not_specialize=["count", "steps"])
def insert({parameters}, count, steps, form, table, state, TILE: tl.constexpr):
    lane = tl.arange(0, TILE)
    shift = tl.load(form)
    mask = tl.load(form + 1)
    capacity = tl.load(form + 2)
    total = {total}
    for tile in range(tl.program_id(0), tl.cdiv(total, TILE), tl.num_programs(0)):
        number_of = tl.cast(tile, tl.int64) * TILE + lane
        # Where rows were left out, which more of them than there is room for say, there is nothing to look for.
        is_row = number_of < total * (tl.load(state, volatile=True) <= capacity).to(tl.int64)
{pair}
{load}
        if tl.max((is_row & ~is_inside).to(tl.int32), 0) > 0:
            tl.store(state + 1, 1)
        is_open = is_row & is_inside
        place = ((key.to(tl.int64) * {hash}).to(tl.uint64, bitcast=True) >> shift.to(tl.uint64)).to(tl.int64) & mask
        is_new = is_open & (lane < 0)
        spare = mask + 1 + lane
        while tl.max(is_open.to(tl.int32), 0) > 0:
            there = tl.load(table + place, mask=is_open, other=0, cache_modifier=".cg")
            is_empty = is_open & (there == -1)
            if tl.max(is_empty.to(tl.int32), 0) > 0:
                cell = table + tl.where(is_empty, place, spare)
                expected = tl.where(is_empty, -1, -2).to(key.dtype)
                before = tl.atomic_cas(cell, expected, key, sem="relaxed")
                is_first = is_empty & (before == -1)
                is_new = is_new | is_first
                there = tl.where(is_empty, tl.where(is_first, key, before), there)
            is_open = is_open & (there != key)
            place = tl.where(is_open, (place + 1) & mask, place)
        if tl.max(is_new.to(tl.int32), 0) > 0:
            fresh = is_new.to(tl.int64)
            first = tl.atomic_add(state, tl.sum(fresh, 0), sem="relaxed")
            to = first + tl.cumsum(fresh, 0) - 1
            has_room = is_new & (to < capacity)
{store}
"""


@lru_cache(1)
def is_available() -> bool:
    """Whether Triton is there, without which a set is sorted runs."""
    return find_spec("triton") is not None


@lru_cache(256)
def _kernel(text: str, name: str) -> Any:
    return getattr(load_generated(text, f"rows_{name}"), name)


@lru_cache(64)
def _insert(sides: tuple[int | None, ...], has_order: bool, is_kept: bool) -> Any:
    """The kernel for columns that are read at the rows themselves (None), at probes (0) or at rows of an index (1).

    has_order  whether an index says where its rows stood
    is_kept    whether rows that are new are appended
    """
    is_pairs = sides[0] is not None
    numbers = range(len(sides))
    pair, total = "", "count"
    if is_pairs:
        pair, total = _PAIR, "tl.load(ends + count - 1)"
        pair += "        right = tl.load(order + right)\n" if has_order else ""
    rows = {None: "number_of", 0: "low", 1: "right"}
    load = ["        is_inside = is_row", "        key = (lane * 0).to(tl.int64)"]
    for k in numbers:
        load += [
            f"        c{k} = tl.load(from{k} + {rows[sides[k]]}, mask=is_row, other=0)",
            f"        bits{k} = tl.load(form + {4 + 2 * k})",
            f"        place{k} = c{k} - tl.load(form + {3 + 2 * k})",
            f"        is_inside = is_inside & (place{k} >= 0) & ((place{k} >> bits{k}) == 0)",
            f"        key = (key << bits{k}) + place{k}",
        ]
    load.append("        key = tl.where(is_inside, key, 0).to(table.dtype.element_ty)")
    store = [f"            tl.store(to{k} + to, c{k}, mask=has_room)" for k in numbers] if is_kept else []
    parameters = ["ends", "starts", "order"] * is_pairs
    parameters += [f"from{k}" for k in numbers] + [f"to{k}" for k in numbers]
    text = _HEADER + _INSERT.format(
        parameters=", ".join(parameters),
        total=total,
        pair=pair,
        load="\n".join(load),
        store="\n".join(store or ["            pass"]),
        hash=_HASH,
    )
    return _kernel(text, "insert")


def _programs(rows: int) -> tuple[int]:
    return (max(1, min(PROGRAMS, -(-rows // TILE))),)


def slots_for(rows: int) -> int:
    """The slots of a table for so many rows: not more than half of them are full, and some rows too many fit."""
    return 1 << (rows + max(rows, PROGRAMS * TILE) - 1).bit_length()


def insert(
    sources: Sequence[Any],
    to: Sequence[Any],
    form: Any,
    table: Any,
    state: Any,
    rows: int,
    pairs: tuple[Any, Any, Any] | None = None,
    sides: Sequence[int] = (),
    is_kept: bool = True,
) -> None:
    """Insert rows into a set, and append those that are new.

    sources  [column] tensors int64, read at the rows, or at the pairs of a join
    to       [column] what new rows are appended to, int64
    form     [3 + 2 * columns] int64: how far hashes are shifted, the number of slots less one, the room in `to`, then
             the least value and the bits of each column
    table    [slots + TILE] int32 or int64, the keys; see above
    state    [2] int64; see above
    rows     their number, or that of the probes
    pairs    (ends, starts, order or None) of a join
    sides    [column] whether they are read at the probe (0) or at the row (1) of a pair
    is_kept  whether new rows are appended; else they are only counted
    """
    if not rows:
        return
    if pairs is None:
        _insert((None,) * len(sources), False, is_kept)[_programs(rows)](
            *sources, *to, rows, 0, form, table, state, TILE=TILE, num_warps=1
        )
        return
    ends, starts, order = pairs
    kernel = _insert(tuple(sides), order is not None, is_kept)
    # How many pairs there are only the device knows.
    kernel[_programs(rows * TILE)](
        ends,
        starts,
        ends if order is None else order,
        *sources,
        *to,
        rows,
        rows.bit_length(),
        form,
        table,
        state,
        TILE=TILE,
        num_warps=1,
    )


def expand(ends: Any, starts: Any, order: Any, total: int, to_left: Any, to_right: Any) -> None:
    """Write the probe and the row of each pair of a join: `to_left`, `to_right` [pair] int64."""
    pair = _PAIR + ("        right = tl.load(order + right)\n" if order is not None else "")
    kernel: Callable = _kernel(_HEADER + _EXPAND.format(pair=pair), "expand")
    count = len(ends)
    kernel[_programs(total)](  # type: ignore[index]
        ends,
        starts,
        ends if order is None else order,
        count,
        count.bit_length(),
        total,
        to_left,
        to_right,
        TILE=TILE,
        num_warps=1,
    )


def matches(probes: Any, less: int, keys: Any, first: Any, counts: Any) -> None:
    """Write the place of the first key that equals each probe, and how many do.

    probes  [probe] int64; `less` is subtracted from each
    keys    [row] int64 in ascending order
    """
    kernel: Callable = _kernel(_HEADER + _MATCHES, "matches")
    count, size = len(probes), len(keys)
    if count:
        kernel[_programs(count)](  # type: ignore[index]
            probes, less, keys, size, size.bit_length(), count, first, counts, TILE=TILE, num_warps=1
        )
