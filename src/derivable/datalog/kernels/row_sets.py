"""Kernels of sets of rows of small integers: one set of last values per prefix, the other columns of a row.

The set of one prefix is a small open-addressing hash that becomes a dense array when that is no larger: a bitmap, or
the row of each value if rows have numbers. So the working set of a join whose candidates share their prefix is the
prefix at hand, not the whole relation. The prefix of a pair is its first column, that of a unary relation 0; longer
a separate hash table numbers the prefixes.

base   [prefix] int64    where the set begins in the arena, in units of 8 words
slots  [prefix] int32    size of its hash, a power of two; 0 if there is none yet, -1 if it is dense
count  [prefix] int32    values in the hash
arena  [word] uint32     sets: of a hash value + 1, 0 if empty, and row + 1 if rows have numbers; dense ones hold bits,
                         or row + 1, 0 if there is none
state  [40] int64        0: first unused unit of the arena; 1: units of a dense set; 2: the arena was too small;
                         3: number of prefixes; 8 + k: first free block of 2^k units, + 1
table  [2 * slots] uint32, words [prefix, column] int32   of longer prefixes: number + 1 and 32 bits of the hash; values
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache

from derivable.algebra.expr.functions import bitwise_and, cast, equal, not_equal, right_shift, where
from derivable.algebra.expr.nodes import Expr
from derivable.kernel import nodes as n
from derivable.kernel.build import Builder

DONE, ARENA_FULL, LOG_FULL, OUT_OF_REACH, PREFIXES_FULL = range(5)
# A small hash gets four times as large: to insert its values again costs more than the memory.
UNIT, FIRST_SLOTS, SMALL_SLOTS = 8, 16, 256
TOP = (1 << 31) - 64


@dataclass(frozen=True)
class SetForm:
    """What the kernels depend on: the columns of a row, and whether rows have numbers."""

    width: int
    numbered: bool

    @property
    def entry(self) -> int:
        """Words of an entry of a hash."""
        return 2 if self.numbered else 1

    @property
    def has_table(self) -> bool:
        return self.width > 2


class SetParameters:
    """The parameters of a kernel that reads sets."""

    def __init__(self, k: Builder, form: SetForm):
        self.form = form
        self.firsts, self.domain = k.scalar("firsts"), k.scalar("domain")
        self.base, self.slots = k.array("base", "int64"), k.array("slots", "int32")
        self.arena = k.array("arena", "uint32")
        if form.has_table:
            self.table_size = k.scalar("table_size")
            self.table, self.words = k.array("table", "uint32"), k.array("words", "int32")


def next_slot(k: Builder, slot: n.Register, size: Expr) -> None:
    k.set(slot, where(equal(slot + 1, size), 0, slot + 1))


def find_words(
    k: Builder, table: n.Array, size: Expr, words: n.Array, width: int, values: Sequence[Expr], number: n.Register
) -> tuple[n.Register, n.Register]:
    """Sets `number` to that of the row of `words` [row * width + column] that begins with `values`, if there is one.

    table  [2 * size] uint32: number + 1, 0 if empty, and 32 bits of the hash. Returns the slot and those bits.
    """
    slot, tag = k.hash(values, size)
    entry = k.load(table, slot * 2, "entry")
    with k.while_(not_equal(entry, 0)):
        bits = k.load(table, slot * 2 + 1, "bits")
        with k.when(equal(bits, tag)):
            same = equal(k.load(words, (entry - 1) * width, "word"), values[0])
            for c, value in enumerate(values[1:], 1):
                same = same & equal(k.load(words, (entry - 1) * width + c, "word"), value)
            with k.when(same):
                k.set(number, entry - 1)
                k.break_()
        next_slot(k, slot, size)
        k.load_into(entry, table, slot * 2)
    return slot, tag


def find(k: Builder, p: SetParameters, row: Sequence[Expr]) -> n.Register:
    """The number of a row of int64 values, 0 where rows have none; -1 if it is not there."""
    number = k.let("number", -1)
    x = k.let("first", row[0] if p.form.width == 2 else 0)
    if p.form.has_table:
        k.set(x, -1)
        find_words(k, p.table, p.table_size, p.words, p.form.width - 1, row[:-1], x)
    y = row[-1]
    with k.when((x >= 0) & (x < p.firsts) & (y >= 0) & (y < p.domain)):
        size, start = k.load(p.slots, x, "size"), k.let("start", k.load(p.base, x, "unit") * UNIT)
        with k.when(size < 0):
            if p.form.numbered:
                k.set(number, k.load(p.arena, start + y, "there") - 1)
            else:
                with k.when(k.load_bit(p.arena, start * 32 + y, "there")):
                    k.set(number, 0)
        with k.when(size > 0):
            slot, _ = k.hash([y], size)
            entry = k.load(p.arena, start + slot * p.form.entry, "entry")
            with k.while_(not_equal(entry, 0)):
                with k.when(equal(entry, y + 1)):
                    if p.form.numbered:
                        k.set(number, k.load(p.arena, start + slot * 2 + 1, "there") - 1)
                    else:
                        k.set(number, 0)
                    k.break_()
                next_slot(k, slot, size)
                k.load_into(entry, p.arena, start + slot * p.form.entry)
    return number


@cache
def find_kernel(form: SetForm) -> n.Kernel:
    """`ids[i]` = number of the row of column values c0[i], c1[i], ..., or -1."""
    k = Builder("find_rows")
    stop = k.scalar("stop")
    p = SetParameters(k, form)
    columns = [k.array(f"c{c}", "int64") for c in range(form.width)]
    ids = k.array("ids", "int64")
    with k.loop("i", 0, stop) as i:
        k.store(ids, i, find(k, p, [k.load(column, i, column.name + "_i") for column in columns]))
    return k.kernel()


@cache
def insert_kernel(form: SetForm) -> n.Kernel:
    """Find or append rows i .. stop of columns c0, c1, ...; returns (result, next row, size of the log).

    The log is [row, column] int32 with room for `room` rows; `ids[i]` gets the numbers if rows have any. A result that
    is not DONE says what there is no room for, or that a value is out of reach.
    """
    k = Builder("insert_rows")
    i, stop, size, room, arena_room = (k.scalar(name) for name in ("i", "stop", "size", "room", "arena_room"))
    p = SetParameters(k, form)
    count, state = k.array("count", "int32"), k.array("state", "int64")
    log = k.array("log", "int32")
    columns = [k.array(f"c{c}", "int64") for c in range(form.width)]
    ids = k.array("ids", "int64") if form.numbered else None

    def leave(code: int) -> None:
        k.return_(code, i, size)

    if form.has_table:
        last = [k.let(f"last{c}", -1) for c in range(form.width - 1)]
        x = k.let("x", -1)
    with k.while_(i < stop):
        with k.when(equal(size, room)):
            k.return_(LOG_FULL, i, size)
        row = [k.load(column, i, f"v{c}") for c, column in enumerate(columns)]
        y = row[-1]
        if form.has_table:
            new = k.let("changed", not_equal(row[0], last[0]))
            for c in range(1, form.width - 1):
                k.set(new, new | not_equal(row[c], last[c]))
            with k.when(new):
                number_prefix(k, p, state, row, x, leave)
                k.set(last, row[:-1])
        else:
            x = row[0] if form.width == 2 else k.let("x", 0)
        with k.when((x < 0) | (x >= p.firsts) | (y < 0) | (y >= p.domain)):
            k.return_(OUT_OF_REACH, i, size)
        is_new, number = insert_last(k, p, count, state, x, y, size, arena_room, leave)
        with k.when(is_new):
            for c, value in enumerate(row):
                k.store(log, size * form.width + c, value)
            k.set(size, size + 1)
        if ids is not None and number is not None:
            k.store(ids, i, number)
        k.set(i, i + 1)
    k.return_(DONE, i, size)
    return k.kernel()


def block_of(k: Builder, p: SetParameters, x: Expr) -> tuple[n.Register, n.Register]:
    """(slots, first word) of the set of a prefix."""
    return k.load(p.slots, x, "slot_count"), k.let("start", k.load(p.base, x, "unit") * UNIT)


def insert_last(
    k: Builder,
    p: SetParameters,
    count: n.Array,
    state: n.Array,
    x: Expr,
    y: Expr,
    size: Expr,
    arena_room: Expr,
    leave: Callable[[int], None],
    block: tuple[n.Register, n.Register] | None = None,
) -> tuple[n.Register, n.Register | None]:
    """(whether it is new, number) of value y in the set of prefix x, inserted as row `size` if it is new.

    The loop around goes on from its condition where a set has grown: the row at hand must come again.
    `block` is what `block_of` gives, where that is known.
    """
    slots, start = block or block_of(k, p, x)
    is_new, number = k.let("is_new", False), k.let("number", size) if p.form.numbered else None
    with k.when(slots < 0):
        if number is not None:
            there = k.load(p.arena, start + y, "there")
            with k.when(equal(there, 0)):
                k.store(p.arena, start + y, size + 1)
                k.set(is_new, True)
            with k.otherwise():
                k.set(number, there - 1)
        else:
            with k.when(~k.load_bit(p.arena, start * 32 + y, "there")):
                k.set_bit(p.arena, start * 32 + y)
                k.set(is_new, True)
    with k.otherwise():
        k.set(is_new, True)
        slot = k.let("at", 0)
        with k.when(slots > 0):
            k.set(slot, k.hash([y], slots)[0])
            entry = k.load(p.arena, start + slot * p.form.entry, "entry")
            with k.while_(not_equal(entry, 0)):
                with k.when(equal(entry, y + 1)):
                    k.set(is_new, False)
                    if number is not None:
                        k.set(number, k.load(p.arena, start + slot * 2 + 1, "there") - 1)
                    k.break_()
                next_slot(k, slot, slots)
                k.load_into(entry, p.arena, start + slot * p.form.entry)
        with k.when(is_new):
            used = k.let("used", k.load(count, x, "before") + 1)
            with k.when(slots * 3 < used * 4):
                k.comment("Room first; the row is looked at again, in the new block.")
                k.call(_grow_kernel(p.form.entry), [x, arena_room, p.base, p.slots, p.arena, state])
                with k.when(not_equal(k.load(state, 2, "failed"), 0)):
                    k.store(state, 2, 0)
                    leave(ARENA_FULL)
                if block is not None:
                    k.load_into(slots, p.slots, x)
                    k.set(start, k.load(p.base, x, "unit") * UNIT)
                k.continue_()
            k.store(p.arena, start + slot * p.form.entry, y + 1)
            if number is not None:
                k.store(p.arena, start + slot * 2 + 1, size + 1)
            k.store(count, x, used)
    return is_new, number


def number_prefix(
    k: Builder,
    p: SetParameters,
    state: n.Array,
    row: Sequence[n.Register],
    x: n.Register,
    leave: Callable[[int], None],
) -> None:
    """Sets x to the number of the row's prefix, a new one if there is none."""
    width = p.form.width - 1
    k.set(x, -1)
    slot, tag = find_words(k, p.table, p.table_size, p.words, width, row[:-1], x)
    with k.when(x < 0):
        for value in row[:-1]:
            with k.when((value < 0) | (value >= TOP)):
                leave(OUT_OF_REACH)
        k.load_into(x, state, 3)
        with k.when(equal(x, p.firsts)):
            leave(PREFIXES_FULL)
        k.store(state, 3, x + 1)
        k.store(p.table, slot * 2, x + 1)
        k.store(p.table, slot * 2 + 1, tag)
        for c, value in enumerate(row[:-1]):
            k.store(p.words, x * width + c, value)


@cache
def read_kernel(form: SetForm) -> n.Kernel:
    """The rows of prefixes `x` .. `stop` as long as `room` lasts; returns (rows, next prefix, next word of its set).

    The log is [row, column] int32. A hash is written as a whole or not at all, in the order of its slots: who wants the
    rows in order sorts all of them faster.
    """
    k = Builder("read_rows")
    x, at, stop, room = (k.scalar(name) for name in ("x", "at", "stop", "room"))
    p, width = SetParameters(k, form), form.width
    log, written = k.array("log", "int32"), k.let("written", 0)
    with k.while_(x < stop):
        size, start = k.load(p.slots, x, "size"), k.let("start", k.load(p.base, x, "unit") * UNIT)
        prefix = [k.load(p.words, x * (width - 1) + c, "word") for c in range(width - 1)] if form.has_table else [x]
        row = (*prefix[: width - 1],)

        def write(is_there: Expr, y: Expr) -> None:
            k.comment("What is not there is written over.")
            for c, value in enumerate((*row, y)):
                k.store(log, written * width + c, value)
            k.set(written, written + cast(is_there, "int64"))

        with k.when(size < 0), k.while_(at * 32 < p.domain):
            with k.when(written + 32 > room):
                k.return_(written, x, at)
            bits = k.load(p.arena, start + at, "bits")
            with k.when(not_equal(bits, 0)), k.loop("b", 0, 32) as b:
                write(equal(bitwise_and(right_shift(bits, b), 1), 1), at * 32 + b)
            k.set(at, at + 1)
        with k.otherwise():
            with k.when(written + size > room):
                k.return_(written, x, at)
            with k.loop("s", start, start + size) as s:
                entry = k.load(p.arena, s, "entry")
                write(not_equal(entry, 0), entry - 1)
        k.set((x, at), (x + 1, 0))
    k.return_(written, x, at)
    return k.kernel()


@cache
def _grow_kernel(entry: int) -> n.Kernel:
    """Give prefix x a larger block, or say in `state` that the arena, of `room` units, is too small."""
    k = Builder(f"grow_{entry}")
    x, room = k.scalar("x"), k.scalar("room")
    base, slots = k.array("base", "int64"), k.array("slots", "int32")
    arena, state = k.array("arena", "uint32"), k.array("state", "int64")
    old, unit = k.load(slots, x, "old"), k.load(base, x, "unit")
    larger = where(old < SMALL_SLOTS, old * 4, old * 2)
    new, start = k.let("new", where(equal(old, 0), FIRST_SLOTS, larger)), k.let("start", unit * UNIT)
    level, units = _level(k, new * entry)
    dense_units = k.load(state, 1, "dense_units")
    # With numbers a dense set twice as large is worth it: it is read once, a hash twice and more.
    is_dense = k.let("is_dense", dense_units <= units * entry)
    new_unit = k.let("new_unit", -1)
    with k.when(is_dense):
        k.set(units, dense_units)
    with k.otherwise():
        free = k.load(state, level + 8, "free")
        with k.when(free > 0):
            k.set(new_unit, free - 1)
            k.store(state, level + 8, k.load(arena, new_unit * UNIT, "next_free"))
            with k.loop("w", new_unit * UNIT, (new_unit + units) * UNIT) as w:
                k.store(arena, w, 0)
    with k.when(new_unit < 0):
        unused = k.load(state, 0, "unused")
        with k.when(unused + units <= room):
            k.set(new_unit, unused)
            k.store(state, 0, unused + units)
    new_start = k.let("new_start", new_unit * UNIT)
    with k.when(new_unit < 0):
        k.store(state, 2, 1)
    with k.otherwise():
        with k.loop("s", 0, old) as s:
            value = k.load(arena, start + s * entry, "value")
            with k.when(value > 0):
                with k.when(is_dense):
                    if entry == 2:
                        k.store(arena, new_start + value - 1, k.load(arena, start + s * 2 + 1, "row"))
                    else:
                        k.set_bit(arena, new_start * 32 + value - 1)
                with k.otherwise():
                    slot, _ = k.hash([value - 1], new)
                    taken = k.load(arena, new_start + slot * entry, "taken")
                    with k.while_(not_equal(taken, 0)):
                        next_slot(k, slot, new)
                        k.load_into(taken, arena, new_start + slot * entry)
                    for part in range(entry):
                        moved = k.load(arena, start + s * entry + part, "moved")
                        k.store(arena, new_start + slot * entry + part, moved)
        with k.when(old > 0):
            level, _ = _level(k, old * entry)
            k.store(arena, start, k.load(state, level + 8, "free"))
            k.store(state, level + 8, unit + 1)
        k.store(base, x, new_unit)
        k.store(slots, x, where(is_dense, -1, new))
    return k.kernel()


def _level(k: Builder, words: Expr) -> tuple[n.Register, n.Register]:
    """(k, 2^k): the units of so many words, a power of two and at least one unit."""
    level, units = k.let("level", 0), k.let("units", 1)
    with k.while_(units * UNIT < words):
        k.set((level, units), (level + 1, units * 2))
    return level, units
