"""The loop of a kernel over the values of one variable that several atoms have in common.

Each atom has a list of them in order, below what is bound before (`tables.trie`). Where all lists have rows of bits,
the loop goes through words that have all of their bits; else it goes through the shortest list and looks each value up
in the others, by its bit or by a search.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING

from derivable.algebra.expr.functions import (
    bitwise_not,
    cast,
    equal,
    left_shift,
    maximum,
    minimum,
    not_equal,
    right_shift,
)
from derivable.algebra.expr.nodes import Constant, Expr
from derivable.datalog.kernels.row_sets import find_words
from derivable.datalog.tables.packing import WORD_BITS
from derivable.datalog.tables.trie import WORD_SHIFT
from derivable.kernel import nodes as n

if TYPE_CHECKING:
    from derivable.datalog.fused.emit import Emitter
    from derivable.datalog.fused.kernel_steps import Intersect

# Words whose reading costs as much as looking a value up.
VALUES_A_WORD = 2
ALL_BITS = Constant((1 << WORD_BITS) - 1, "uint64")


@dataclass(frozen=True)
class _List:
    """The list of an atom: its values from `begin` to `end`, which has row `row` of bits, -1 for none."""

    values: n.Array
    begin: n.Register
    end: n.Register
    row: n.Register
    bits: n.Array
    first_word: Expr
    num_words: Expr


def emit_intersection(emitter: Emitter, number: int, tags: tuple | None) -> None:
    """The steps from the first of an intersection on."""
    k, steps = emitter.k, emitter.plan.steps
    first: Intersect = steps[number]  # type: ignore[assignment]
    atoms: Sequence[Intersect] = steps[number : number + first.count]  # type: ignore[assignment]
    behind, register = number + first.count, atoms[-1].register
    only_exists = register is None
    counter = None if only_exists else emitter.counter_behind(behind)
    there = k.let("there", False) if only_exists else None
    at = k.let("at", -1) if only_exists else next(emitter.free)
    with ExitStack() as blocks:
        lists = [_list(emitter, number + j, atom, blocks) for j, atom in enumerate(atoms)]
        least = reduce(maximum, [k.load(one.values, one.begin, "least") for one in lists])
        most = reduce(minimum, [k.load(one.values, one.end - 1, "most") for one in lists])
        low, high = k.let("low", least), k.let("high", most)
        blocks.enter_context(k.when(low <= high))
        value = k.register("x")
        origin = k.let("origin", right_shift(low, WORD_SHIFT))
        word, last = k.let("word", origin), k.let("last", right_shift(high, WORD_SHIFT))
        shortest, size = k.let("shortest", 0), k.let("size", lists[0].end - lists[0].begin)
        for j, one in enumerate(lists[1:], 1):
            with k.when(one.end - one.begin < size):
                k.set((shortest, size), (j, one.end - one.begin))
        # A word for each few values is worth it.
        is_long = size * VALUES_A_WORD > last - origin
        has_bits = k.let("has_bits", reduce(lambda a, b: a & b, [one.row >= 0 for one in lists]) & is_long)
        if counter is not None:
            with k.when(has_bits), k.while_(word <= last):
                k.set(counter, counter + number_of_bits(_common(emitter, lists, word)))
                k.set(word, word + 1)
            with k.otherwise():
                _begin(emitter, lists, shortest, at)
                is_common = k.let("is_common", True)
                with k.while_(is_common):
                    k.set(is_common, False)
                    _next_common(emitter, lists, shortest, at, value, high, is_common)
                    k.set((counter, at), (counter + cast(is_common, "int64"), at + 1))
                k.set(at, -1)
            return
        some, mask = k.let("some", Constant(0, "uint64")), k.let("mask", ALL_BITS)
        with k.when(has_bits):
            with k.when(at < 0):
                k.set(at, low - origin * WORD_BITS)
            # The word before the first one, of which only what is from `at` on counts.
            k.set(word, origin + right_shift(at, WORD_SHIFT) - 1)
            k.set(mask, left_shift(ALL_BITS, cast(at & (WORD_BITS - 1), "uint64")))
        with k.otherwise():
            _begin(emitter, lists, shortest, at)
        with k.while_(emitter.goes_on(number, Constant(True, "bool"))):
            with k.when(has_bits):
                with k.while_(equal(some, Constant(0, "uint64")) & (word < last)):
                    k.set(word, word + 1)
                    k.set((some, mask), (_common(emitter, lists, word) & mask, ALL_BITS))
                with k.when(equal(some, Constant(0, "uint64"))):
                    k.break_()
                k.set(value, word * WORD_BITS + lowest_bit(some))
                k.set(at, value - origin * WORD_BITS)
            with k.otherwise():
                is_common = k.let("is_common", False)
                _next_common(emitter, lists, shortest, at, value, high, is_common)
                with k.when(~is_common):
                    k.break_()
            if there is not None:
                k.set(there, True)
                k.break_()
            else:
                assert register is not None
                emitter.bind(register, k.let("x", value))
                emitter.rest(behind, tags if emitter.plan.tags is None else _times(emitter, number, lists, value, tags))
                # Not before: what inserts the row may have the loop go on from its condition for the same one.
                k.set((at, some), (at + 1, some & (some - Constant(1, "uint64"))))
    if there is not None:
        with k.when(there):
            emitter.rest(behind, tags)
    else:
        k.set(at, -1)


def _times(emitter: Emitter, number: int, lists: Sequence[_List], value: Expr, tags: tuple | None) -> tuple | None:
    """The tags times those of the rows in which the lists have a value."""
    for j, one in enumerate(lists, number):
        _advance(emitter, one, value)
        position: Expr = one.begin
        if emitter.plan.tags == "rows":
            position = emitter.k.load(emitter.array("rows", "int64", j), position, "row")
        tags = emitter.times(tags, "ordered_tags", j, position)
    return tags


def _list(emitter: Emitter, number: int, atom: Intersect, blocks: ExitStack) -> _List:
    """The list of an atom; what follows is in a block for rows for which it has values."""
    k = emitter.k
    keys = [emitter.value(term) for term in atom.keys]
    top = emitter.scalar("top", number)
    if atom.index == "dense":
        key = k.let("key", keys[0] - emitter.scalar("low", number))
    else:
        key = k.let("key", -1)
        table, words = emitter.array("key_table", "uint32", number), emitter.array("key_words", "int64", number)
        find_words(k, table, emitter.scalar("key_slots", number), words, len(keys), keys, key)
    blocks.enter_context(k.when((key >= 0) & (key < top)))
    offsets = emitter.array("offsets", "int64", number)
    begin, end = k.load(offsets, key, "begin"), k.load(offsets, key + 1, "end")
    blocks.enter_context(k.when(begin < end))
    row = k.load(emitter.array("bit_rows", "int64", number), key, "row")
    values, bits = emitter.array("values", "int64", number), emitter.array("bits", "uint64", number)
    numbers = emitter.scalar("first_word", number), emitter.scalar("num_words", number)
    return _List(values, begin, end, row, bits, *numbers)


def _common(emitter: Emitter, lists: Sequence[_List], word: Expr) -> Expr:
    """The bits of a word that all rows of bits have."""
    word_positions = [one.row * one.num_words + word - one.first_word for one in lists]
    return reduce(
        lambda a, b: a & b,
        [emitter.k.load(one.bits, position, "bits", "uint64") for one, position in zip(lists, word_positions)],
    )


def _begin(emitter: Emitter, lists: Sequence[_List], shortest: Expr, at: n.Register) -> None:
    """Have `at` be where the shortest list begins, unless it is in that list already."""
    for j, one in enumerate(lists):
        with emitter.k.when(equal(shortest, j) & (at < 0)):
            emitter.k.set(at, one.begin)


def _next_common(
    emitter: Emitter,
    lists: Sequence[_List],
    shortest: Expr,
    at: n.Register,
    value: n.Register,
    high: Expr,
    is_common: n.Register,
) -> None:
    """Have `value` be the next one of the shortest list, from index `at` on, that all lists have."""
    k = emitter.k
    with k.while_(~is_common):
        for j, one in enumerate(lists):
            with k.when(equal(shortest, j)):
                with k.when(at >= one.end):
                    k.set(value, high + 1)
                with k.otherwise():
                    k.load_into(value, one.values, at)
        with k.when(value > high):
            k.break_()
        k.set(is_common, True)
        for j, one in enumerate(lists):
            with k.when(is_common & not_equal(shortest, j)):
                with k.when(one.row >= 0):
                    bit = (one.row * one.num_words - one.first_word) * WORD_BITS + value
                    with k.when(right_shift(value, WORD_SHIFT) < one.first_word):
                        k.set(is_common, False)
                    with k.otherwise():
                        k.set(is_common, k.load_bit(one.bits, bit, "bit"))
                with k.otherwise():
                    _advance(emitter, one, value)
                    there = k.let("there", False)
                    with k.when(one.begin < one.end):
                        k.set(there, equal(k.load(one.values, one.begin, "candidate"), value))
                    k.set(is_common, there)
        with k.when(~is_common):
            k.set(at, at + 1)


def _advance(emitter: Emitter, one: _List, value: Expr) -> None:
    """Move the begin of a list to its first value that is not below this one."""
    k = emitter.k
    stop = k.let("stop", one.end)
    with k.while_(one.begin < stop):
        middle = k.let("middle", (one.begin + stop) // 2)
        with k.when(k.load(one.values, middle, "candidate") < value):
            k.set(one.begin, middle + 1)
        with k.otherwise():
            k.set(stop, middle)


def number_of_bits(word: Expr) -> Expr:
    """How many bits a word has (Warren, Hacker's Delight, 5-1); compilers know this form as one instruction."""

    def bits(pattern: int) -> Constant:
        return Constant(pattern * (((1 << WORD_BITS) - 1) // 255), "uint64")

    def moved(word: Expr, by: int) -> Expr:
        return right_shift(word, Constant(by, "uint64"))

    word = word - (moved(word, 1) & bits(0x55))
    word = (word & bits(0x33)) + (moved(word, 2) & bits(0x33))
    word = (word + moved(word, 4)) & bits(0x0F)
    return cast(moved(word * bits(0x01), WORD_BITS - 8), "int64")


def lowest_bit(word: Expr) -> Expr:
    """The number of the lowest bit of a word that is not zero."""
    one = Constant(1, "uint64")
    return number_of_bits((word & (bitwise_not(word) + one)) - one)
