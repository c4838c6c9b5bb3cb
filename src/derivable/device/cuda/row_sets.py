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

import re
from collections.abc import Sequence
from functools import lru_cache
from textwrap import indent
from typing import Any

from derivable.algebra.expr.generated import load_generated
from derivable.core.splitmix64 import STEP
from derivable.device.cuda.compiler import KeptKernels

# Rows of a tile, for one warp.
TILE = 128
# Programs of a launch, at most.
PROGRAMS = 1 << 12
# Knuth's: the golden ratio, 2^64 times.
_HASH = STEP - (1 << 64)

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
        right = last - tl.load(ends + low) + tl.load(counts + low) + tl.load(first + low)
"""

_EXPAND = """
@triton.jit
def expand(ends, counts, first, order, count, steps, total, to_left, to_right):
    lane = tl.arange(0, TILE)
    for tile in range(tl.program_id(0), tl.cdiv(tl.cast(total, tl.int64), TILE), tl.num_programs(0)):
        number_of = tl.cast(tile, tl.int64) * TILE + lane
        is_row = number_of < total
{pair}
        tl.store(to_left + number_of, low, mask=is_row)
        tl.store(to_right + number_of, right, mask=is_row)
"""

_MATCHES = """
@triton.jit
def matches(probes, keys, size, steps, count, first, counts):
    lane = tl.arange(0, TILE)
    for tile in range(tl.program_id(0), tl.cdiv(tl.cast(count, tl.int64), TILE), tl.num_programs(0)):
        row = tl.cast(tile, tl.int64) * TILE + lane
        is_row = row < count
        key = tl.load(probes + row, mask=is_row, other=0)
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

_MERGE = """
@triton.jit
def merge(keys, order, news, places, count, more, steps, to_keys, to_order):
    lane = tl.arange(0, TILE)
    both = tl.cast(count, tl.int64) + more
    for tile in range(tl.program_id(0), tl.cdiv(both, TILE), tl.num_programs(0)):
        number_of = tl.cast(tile, tl.int64) * TILE + lane
        is_old = number_of < count
        is_new = (number_of >= count) & (number_of < both)
        own = tl.where(is_old, number_of, number_of - count)
        key = tl.load(keys + own, mask=is_old, other=0) + tl.load(news + own, mask=is_new, other=0)
        row = tl.load(order + own, mask=is_old, other=0) + tl.load(places + own, mask=is_new, other=0)
        row = tl.where(is_new, row + count, row)
        # Of the others those before: before old ones the smaller ones, before new ones also equal ones.
        low = own * 0
        high = tl.where(is_old, more, count).to(tl.int64)
        for _ in range(steps):
            middle = (low + high) >> 1
            is_open = low < high
            other = tl.load(news + middle, mask=is_open & is_old, other=0)
            other += tl.load(keys + middle, mask=is_open & is_new, other=0)
            is_after = is_open & ((other < key) | (is_new & (other == key)))
            low = tl.where(is_after, middle + 1, low)
            high = tl.where(is_open & (low <= middle), middle, high)
        tl.store(to_keys + own + low, key, mask=is_old | is_new)
        tl.store(to_order + own + low, row, mask=is_old | is_new)
"""

_LOCATE = """
@triton.jit
def locate({parameters}, count, form, table, numbers, found):
    lane = tl.arange(0, TILE)
    shift = tl.load(form)
    mask = tl.load(form + 1)
    for tile in range(tl.program_id(0), tl.cdiv(tl.cast(count, tl.int64), TILE), tl.num_programs(0)):
        number_of = tl.cast(tile, tl.int64) * TILE + lane
        is_row = number_of < count
{load}
        is_open = is_row & is_inside
        place = {place}
        is_there = is_open & (lane < 0)
        while tl.max(is_open.to(tl.int32), 0) > 0:
            there = tl.load(table + place, mask=is_open, other=0)
            is_there = is_there | (is_open & (there == key))
            is_open = is_open & (there != key) & (there != -1)
            place = tl.where(is_open, (place + 1) & mask, place)
        number = tl.load(numbers + place, mask=is_there, other=-1)
        tl.store(found + number_of, number, mask=is_row)
"""

# Where the search for a key begins.
_PLACE = f"((key.to(tl.int64) * {_HASH}).to(tl.uint64, bitcast=True) >> shift.to(tl.uint64)).to(tl.int64) & mask"

_INSERT = """
@triton.jit
def insert({parameters}, count, steps, form, table, state, numbers):
    lane = tl.arange(0, TILE)
    shift = tl.load(form)
    mask = tl.load(form + 1)
    capacity = tl.load(form + 2)
    total = {total}
    for tile in range(tl.program_id(0), tl.cdiv(tl.cast(total, tl.int64), TILE), tl.num_programs(0)):
        number_of = tl.cast(tile, tl.int64) * TILE + lane
        # Where rows were left out, which more of them than there is room for say, there is nothing to look for.
        if tl.load(state, volatile=True) <= capacity:
            is_row = number_of < total
{pair}
{load}
            if tl.max((is_row & ~is_inside).to(tl.int32), 0) > 0:
                tl.store(state + 1, 1)
            is_open = is_row & is_inside
            place = {place}
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
                begin = tl.atomic_add(state, tl.sum(fresh, 0), sem="relaxed")
                to = begin + tl.cumsum(fresh, 0) - 1
                has_room = is_new & (to < capacity)
{store}
"""


class _Kernel:
    """A kernel for tensors at any addresses and any numbers, of one type each."""

    def __init__(self, text: str, name: str):
        parameters = re.findall(r"\w+", re.findall(rf"def {name}\((.*)\):", text)[0])
        text = text.replace("@triton.jit", f"@triton.jit(do_not_specialize={parameters})").replace("TILE", str(TILE))
        self.launch = KeptKernels(getattr(load_generated(_HEADER + text, f"rows_{name}"), name), warps=1)

    def __call__(self, rows: int, *arguments: Any) -> None:
        """Launch programs for that number of rows."""
        self.launch((max(1, min(PROGRAMS, -(-rows // TILE))), 1, 1), *arguments)


@lru_cache(64)
def kernel_of(text: str, name: str, tile: int) -> _Kernel:
    return _Kernel(text, name)


def _insert(sides: tuple[int | None, ...], has_order: bool, is_kept: bool, is_numbered: bool) -> Any:
    """The kernel for columns that are read at the rows themselves (None), at probes (0) or at rows of an index (1).

    has_order  whether an index says where its rows stood
    is_kept    whether rows that are new are appended
    is_numbered  whether the numbers of rows are written where their keys are
    """
    is_pairs = sides[0] is not None
    numbers = range(len(sides))
    pair, total = "", "count"
    if is_pairs:
        pair, total = _PAIR, "tl.load(ends + count - 1)"
        pair += "        right = tl.load(order + right)\n" if has_order else ""
    rows = {None: "number_of", 0: "low", 1: "right"}
    store = [f"            tl.store(to{k} + to, c{k}, mask=has_room)" for k in numbers] if is_kept else []
    if is_numbered:
        store.append(f"            tl.store(numbers + place, {'to' if is_kept else 'number_of'}, mask=has_room)")
    parameters = ["ends", "counts", "first", "order"] * is_pairs
    parameters += [f"from{k}" for k in numbers] + [f"to{k}" for k in numbers] * is_kept
    text = _INSERT.format(
        parameters=", ".join(parameters),
        total=total,
        pair=indent(pair, "    "),
        load=indent(_loaded([rows[side] for side in sides]), "    "),
        place=_PLACE,
        store=indent("\n".join(store or ["            pass"]), "    "),
    )
    return kernel_of(text, "insert", TILE)


def _locate(width: int) -> Any:
    parameters = ", ".join(f"from{k}" for k in range(width))
    text = _LOCATE.format(parameters=parameters, load=_loaded(["number_of"] * width), place=_PLACE)
    return kernel_of(text, "locate", TILE)


def _loaded(rows: Sequence[str]) -> str:
    """The lines that load a column at each of these rows, and pack a key of all."""
    lines = ["is_inside = is_row", "key = (lane * 0).to(tl.int64)"]
    for k, row in enumerate(rows):
        lines += [
            f"c{k} = tl.load(from{k} + {row}, mask=is_row, other=0)",
            f"bits{k} = tl.load(form + {4 + 2 * k})",
            f"place{k} = c{k} - tl.load(form + {3 + 2 * k})",
            f"is_inside = is_inside & (place{k} >= 0) & ((place{k} >> bits{k}) == 0)",
            f"key = (key << bits{k}) + place{k}",
        ]
    lines.append("key = tl.where(is_inside, key, 0).to(table.dtype.element_ty)")
    return "\n".join(f"        {line}" for line in lines)


def slots_for(rows: int) -> int:
    """The slots of a table for that number of rows: not more than half of them are full, and some rows too many fit."""
    return 1 << (rows + max(rows, PROGRAMS * TILE) - 1).bit_length()


def insert(
    sources: Sequence[Any],
    to: Sequence[Any] | None,
    form: Any,
    table: Any,
    state: Any,
    rows: int,
    pairs: tuple[Any, Any, Any, Any] | None = None,
    sides: Sequence[int] = (),
    numbers: Any = None,
) -> None:
    """Insert rows into a set, and append those that are new.

    sources  [column] tensors int64, read at the rows, or at the pairs of a join
    to       [column] what new rows are appended to, int64; None if they are only counted
    form     [3 + 2 * columns] int64: how far hashes are shifted, the number of slots less one, the room in `to`, then
             the least value and the bits of each column
    table    [slots + TILE] int32 or int64, the keys; see above
    state    [2] int64; see above
    rows     their number, or that of the probes
    pairs    (ends, counts, first, order or None) of a join, see `expand`
    sides    [column] whether they are read at the probe (0) or at the row (1) of a pair
    numbers  [slot] int64, gets the number of each row that is new, among those appended, or among all; or None
    """
    if not rows:
        return
    has_numbers, numbers, targets = numbers is not None, state if numbers is None else numbers, to or ()
    if pairs is None:
        kernel = _insert((None,) * len(sources), False, to is not None, has_numbers)
        kernel(rows, *sources, *targets, rows, 0, form, table, state, numbers)
        return
    ends, counts, first, order = pairs
    kernel = _insert(tuple(sides), order is not None, to is not None, has_numbers)
    # How many pairs there are only the device knows.
    numbered = (rows, rows.bit_length(), form, table, state, numbers)
    kernel(rows * TILE, ends, counts, first, ends if order is None else order, *sources, *targets, *numbered)


def locate(sources: Sequence[Any], form: Any, table: Any, numbers: Any, found: Any) -> None:
    """Write the number of each row, -1 where the set has it not; operands as those of `insert`."""
    count = len(found)
    if count:
        _locate(len(sources))(count, *sources, count, form, table, numbers, found)


def merge(keys: Any, order: Any, news: Any, places: Any, to_keys: Any, to_order: Any) -> None:
    """Merge two indexes, keys [row] int64 in order with the numbers of their rows; the second one's rows come behind
    those of the first one."""
    count, more = len(keys), len(news)
    if count + more:
        steps = max(count, more).bit_length()
        kernel_of(_MERGE, "merge", TILE)(count + more, keys, order, news, places, count, more, steps, to_keys, to_order)


def matches(probes: Any, keys: Any, first: Any, counts: Any) -> None:
    """Write the place of the first key that equals each probe, and how many do.

    probes  [probe] int64
    keys    [row] int64 in ascending order
    """
    count, size = len(probes), len(keys)
    if count:
        kernel_of(_MATCHES, "matches", TILE)(count, probes, keys, size, size.bit_length(), count, first, counts)


def expand(ends: Any, counts: Any, first: Any, order: Any, total: int, to_left: Any, to_right: Any) -> None:
    """Write the probe and the row of each pair of a join: `to_left`, `to_right` [pair] int64.

    ends, counts  [probe] where the pairs of each probe end, and how many there are
    first         [probe] the place of the first of its rows
    order         [place] their rows; None if these are the places
    """
    pair = _PAIR + ("        right = tl.load(order + right)\n" if order is not None else "")
    kernel, count = kernel_of(_EXPAND.format(pair=pair), "expand", TILE), len(ends)
    order = ends if order is None else order
    kernel(total, ends, counts, first, order, count, count.bit_length(), total, to_left, to_right)
