"""Kernels of relations as rows of bits: a row for each key, a bit for each value, 64 to a word.

Rows include one another: `sources[offsets[x]] .. sources[offsets[x + 1]]` are the rows whose bits row x is to have.
Rows on a cycle of inclusions are equal, so the strongly connected components are taken one after the other, each after
those that it includes, and every inclusion is followed once (Purdom 1970).
"""

from __future__ import annotations

from functools import cache

from derivable.algebra.expr.functions import bitwise_and, bitwise_or, equal, not_equal, where
from derivable.algebra.expr.nodes import Constant, Expr
from derivable.kernel import nodes as n
from derivable.kernel.build import Builder

WORD = 64


@cache
def fill_kernel() -> n.Kernel:
    """Set the bit of each pair `start` .. `stop` of `pairs` [pair, 2], whose key and value are in these columns."""
    k = Builder("fill_bits")
    start, stop, key_at, value_at, width = (k.scalar(name) for name in ("start", "stop", "key_at", "value_at", "width"))
    pairs, bits = k.array("pairs", "int32"), k.array("bits", "uint32")
    with k.loop("i", start, stop) as i:
        key, value = k.load(pairs, i * 2 + key_at, "key"), k.load(pairs, i * 2 + value_at, "value")
        k.set_bit(bits, key * (width * WORD) + value)
    return k.kernel()


@cache
def link_kernel() -> n.Kernel:
    """Link each of `count` components once to each other one that it includes; returns how many links there are.

    order   [row] int32, rows, component after component; component c has those from bounds[c] to bounds[c + 1]
    links   the first rows of other components that component c includes: those from ends[c] to ends[c + 1]
    linked  [component] which component linked it last, beginning with -1
    """
    k = Builder("link")
    count = k.scalar("count")
    names = ("offsets", "sources", "component", "bounds", "links", "ends", "linked")
    offsets, sources, component, bounds, links, ends, linked = (k.array(name, "int64") for name in names)
    order = k.array("order", "int32")
    written = k.let("written", 0)
    with k.loop("c", 0, count) as c:
        k.store(ends, c, written)
        with k.loop("position", k.load(bounds, c, "begin"), k.load(bounds, c + 1, "end")) as position:
            row = k.load(order, position, "row")
            with k.loop("at", k.load(offsets, row, "first"), k.load(offsets, row + 1, "stop")) as at:
                other = k.load(component, k.load(sources, at, "source"), "other")
                with k.when(not_equal(other, c) & not_equal(k.load(linked, other, "last"), c)):
                    k.store(linked, other, c)
                    k.store(links, written, k.load(order, k.load(bounds, other, "begin"), "first"))
                    k.set(written, written + 1)
    k.store(ends, count, written)
    k.return_(written)
    return k.kernel()


@cache
def include_kernel() -> n.Kernel:
    """Give the rows of components 0 .. `count` all bits that they are to have, in words `begin` .. `end` of each."""
    k = Builder("include_rows")
    begin, end, count, width = (k.scalar(name) for name in ("begin", "end", "count", "width"))
    order, bits = k.array("order", "int32"), k.array("bits", "uint64")
    bounds, links, ends = (k.array(name, "int64") for name in ("bounds", "links", "ends"))

    def through(first: n.Register, other: Expr, into_first: bool) -> None:
        """For each word: the bits of another row go into the first one, or the first one's become those of another."""
        ours, theirs = k.let("ours", first * width), k.let("theirs", other * width)
        with k.loop("w", begin, end) as w:
            there = k.load(bits, ours + w, "there", "uint64")
            if into_first:
                k.store(bits, ours + w, bitwise_or(there, k.load(bits, theirs + w, "more", "uint64")))
            else:
                k.store(bits, theirs + w, there)

    with k.loop("c", 0, count) as c:
        start, stop = k.load(bounds, c, "start"), k.load(bounds, c + 1, "stop")
        first = k.load(order, start, "first")
        with k.loop("position", start + 1, stop) as position:
            through(first, k.load(order, position, "member"), True)
        with k.loop("at", k.load(ends, c, "link"), k.load(ends, c + 1, "last")) as at:
            through(first, k.load(links, at, "source"), True)
        with k.loop("position", start + 1, stop) as position:
            through(first, k.load(order, position, "member"), False)
    return k.kernel()


@cache
def transpose_kernel() -> n.Kernel:
    """Write the transpose of blocks `begin` .. `end` of 64 rows to `turned`, which holds zeros.

    bits [rows, width], turned [columns, depth], block [64] for the words of one block, which are turned in six steps
    (Warren, Hacker's Delight, 7-3): in each, squares of bits on both sides of the diagonal are swapped.
    """
    k = Builder("transpose_bits")
    begin, end, rows, width, columns, depth = (
        k.scalar(name) for name in ("begin", "end", "rows", "width", "columns", "depth")
    )
    bits, turned, block = (k.array(name, "uint64") for name in ("bits", "turned", "block"))
    with k.loop("band", begin, end) as band:
        number = k.let("number", where(rows - band * WORD < WORD, rows - band * WORD, WORD))
        with k.loop("w", 0, width) as w:
            some = k.let("some", Constant(0, "uint64"))
            with k.loop("r", 0, number) as r:
                word = k.load(bits, (band * WORD + r) * width + w, "word", "uint64")
                k.store(block, r, word)
                k.set(some, bitwise_or(some, word))
            with k.when(equal(some, Constant(0, "uint64"))):
                k.continue_()
            with k.loop("r", number, WORD) as r:
                k.store(block, r, Constant(0, "uint64"))
            size = WORD // 2
            while size:
                _exchange(k, block, size)
                size //= 2
            there = k.let("there", where(columns - w * WORD < WORD, columns - w * WORD, WORD))
            with k.loop("r", 0, there) as r:
                k.store(turned, (w * WORD + r) * depth + band, k.load(block, r, "word", "uint64"))
    return k.kernel()


def _exchange(k: Builder, block: n.Array, size: int) -> None:
    """Exchange the squares of `size` bits above and below the diagonal of squares of twice that."""
    low = sum(((1 << size) - 1) << at for at in range(0, WORD, 2 * size))
    high, shift = Constant((1 << WORD) - 1 - low, "uint64"), Constant(1 << size, "uint64")
    with k.loop("upper", 0, WORD, step=2 * size) as upper, k.loop("r", upper, upper + size) as r:
        a, b = k.load(block, r, "a", "uint64"), k.load(block, r + size, "b", "uint64")
        k.comment("Shifts are products and quotients by constants.")
        k.store(
            block,
            r,
            bitwise_or(bitwise_and(a, Constant(low, "uint64")), bitwise_and(b, Constant(low, "uint64")) * shift),
        )
        k.store(block, r + size, bitwise_or(bitwise_and(a, high) // shift, bitwise_and(b, high)))
