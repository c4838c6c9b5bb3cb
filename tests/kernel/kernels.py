"""Kernels that the tests of the loop IR share, each with arguments that reach all of it."""

from types import SimpleNamespace

import numpy as np

from derivable.algebra.expr.functions import cast, equal, less, where
from derivable.algebra.expr.nodes import Argument
from derivable.kernel.build import Builder, substitute


def segment_sums(factor=None):
    """The example of `derivable.kernel.nodes`; with a factor, another kernel."""
    k = Builder("segment")
    start, stop = k.scalar("start"), k.scalar("stop")
    offsets, values, out = k.array("offsets", "int64"), k.array("values", "float32"), k.array("out", "float32")
    with k.loop("s", start, stop) as s:
        i, tail = k.load(offsets, s, "i"), k.load(offsets, s + 1, "tail")
        total = k.let("total", 0.0, "float32")
        with k.while_(less(i, tail)):
            x = k.load(values, i, "x")
            k.set(total, total + (x if factor is None else x * factor))
            k.set(i, i + 1)
        k.store(out, s, total)
    rng = np.random.default_rng(1)
    arguments = 0, 3, np.array([0, 4, 4, 9]), rng.normal(size=9).astype(np.float32), np.zeros(3, np.float32)
    return k.kernel(), arguments


def places_of_lanes():
    """Rows of a matrix in reverse, by way of a scratch array; rows and parts of them are programs of two axes."""
    k = Builder("reversed", lanes=8)
    rows, size = k.scalar("rows"), k.scalar("size")
    values, scratch, out = (k.array(name, "float64") for name in ("values", "scratch", "out"))
    lane = k.lane_numbers()
    with k.loop("row", 0, rows, parallel=True) as row, k.loop("part", 0, 2, parallel=True) as part:
        column = k.let("column", part * 8 + lane)
        there = k.let("there", less(column, size))
        x = k.register("x", "float64")
        k.gather(x, values, row * size + column, there, -1.0)
        k.scatter(scratch, (row * 2 + part) * 8 + 7 - lane, x)
        k.barrier()
        y = k.register("y", "float64")
        k.gather(y, scratch, (row * 2 + part) * 8 + lane)
        k.scatter(out, (row * 2 + 1 - part) * 8 + lane, y)
    values = np.random.default_rng(2).normal(size=3 * 13)
    return k.kernel(), (3, 13, values, np.zeros(48), np.zeros(48))


def control():
    """Loops in both directions with steps, branches, and every way to leave them."""
    k = Builder("control")
    n, x, out = k.scalar("n"), k.array("x", "int32"), k.array("out", "float64")
    found = k.let("found", -1)
    with k.loop("i", 0, n, down=True, step=3) as i:
        value = k.load(x, i, "value")
        with k.when(less(value, 0)):
            k.continue_()
        with k.when(equal(value, 7)):
            k.set(found, i)
            k.break_()
        k.prefetch(x, i + 100)
        with k.when(less(5, value)):
            k.store(out, i, cast(value, "float64") * 0.5)
        with k.otherwise():
            k.store(out, i, -1)
    a, b = k.let("a", 1), k.let("b", 1)
    with k.while_(less(a + b, 100)):
        k.set((a, b), (b, a + b))
    with k.when(less(found, 0)):
        k.return_(found, a)
    k.return_(found, where(less(a, b), b, a))
    x = np.array([7, 3, 7, -1, 9, 2, 6, -5, 1, 7, 4, 8], np.int32)
    return k.kernel(), (12, x, np.zeros(12))


LINEAR = SimpleNamespace(
    left=(Argument(0, "float64", "l0"), Argument(1, "float64", "l1")),
    right=(Argument(2, "float64", "r0"), Argument(3, "float64", "r1")),
    neutral=(1.0, 0.0),
)
LINEAR.values = LINEAR.left[0] * LINEAR.right[0], LINEAR.left[1] * LINEAR.right[0] + LINEAR.right[1]


def combined(operator, left, right):
    """The operator's values of two elements in registers."""
    return substitute(operator.values, {**dict(zip(operator.left, left)), **dict(zip(operator.right, right))})


def steps():
    """Counting in steps, in both directions, and branches."""
    k = Builder("steps")
    x, out = k.array("x", "int32"), k.array("out", "float64")
    with k.loop("i", 1, 12, step=3) as i:
        k.store(out, i, k.load(x, i, "up"))
    with k.loop("j", 0, 12, down=True, step=5) as j:
        value = k.load(x, j, "down")
        with k.when(less(value, 0)):
            k.store(out, j, cast(value, "float64") * 0.5)
        with k.otherwise():
            k.store(out, j, 9)
    return k.kernel(), (np.arange(12, dtype=np.int32) - 6, np.zeros(12))


def lines(backwards: bool = False, returns: bool = True):
    """Prefixes of linear functions, a line at a time, and everything else that there is for lines."""
    k = Builder("lines")
    factors, terms = k.array("factors", "float32"), k.array("terms", "float64")
    keys, flags = k.array("keys", "int32"), k.array("flags", "bool")
    out, positive = k.array("out", "float64"), k.array("positive", "bool")
    f, t = k.registers("x", ("float64", "float64"))
    at = 7 if backwards else 0
    k.load_line(f, factors, at, backwards)
    k.load_line(t, terms, at, backwards)
    k.scan_line((f, t), LINEAR)
    k.store_line(out, at, t, backwards)
    fill, moved = k.register("fill", "float64"), k.register("moved", "float64")
    k.spread(fill, 5)
    k.move_up(moved, t, fill)
    k.store_line(out, at + 8, moved, backwards)
    last, first = k.register("last", "float64"), k.register("first", "float64")
    k.last_lane(last, f)
    key, flag = k.register("key", "int64"), k.register("flag", "bool")
    k.load_line(key, keys, at, backwards)
    k.load_line(flag, flags, at, backwards)
    k.set(flag, flag & less(0, key))
    k.store_line(positive, at, flag, backwards)
    k.store_line(keys, at, key + key, backwards)
    k.set(last, where(flag, last * 2.0 + moved, -moved))
    k.store_line(out, at + 16, last, backwards)
    fine = k.all_lanes("fine", less(abs(last), 1e6))
    k.first_lane(first, last)
    if returns:
        k.return_(fine, first)
    else:
        with k.when(fine):
            k.store(out, 20, first)
    rng = np.random.default_rng(2)
    arguments = (
        rng.normal(size=8).astype(np.float32),
        rng.normal(size=8),
        np.array([3, -1, 5, 0, -7, 2, 9, 1], np.int32),
        np.array([1, 1, 0, 1, 1, 1, 0, 1], bool),
        np.zeros(24),
        np.zeros(8, bool),
    )
    return k.kernel(), arguments


def dot_of_lines(lanes: int | None):
    """Over an array of lines, [position, lane], or [position] where `lanes` is None."""
    k = Builder("dot")
    x, y, out = (k.array(name, "float64", is_lines=True) for name in ("x", "y", "out"))
    total = k.register("total", "float64")
    k.spread(total, 0)
    with k.loop("i", 0, 5) as i:
        k.set(total, total + k.load(x, i, "a") * k.load(y, i, "b"))
    k.store(out, 0, total)
    k.store(out, 1, where(less(total, 0.0), -total, 1.0))
    rng = np.random.default_rng(3)
    shape = (5,) if lanes is None else (5, lanes)
    return k.kernel(), (rng.normal(size=shape), rng.normal(size=shape), np.zeros((2, *shape[1:])))


def columns(lanes: int | None):
    """Columns of a matrix of five rows, added up by another kernel; lines of fewer rows, or one row at a time."""
    inner = Builder("sum_of_two")
    x, y, out = (inner.array(name, "float64", is_lines=True) for name in ("x", "y", "out"))
    at = inner.scalar("at")
    inner.store(out, at, inner.load(x, at, "a") + inner.load(y, at, "b"))
    k = Builder("columns")
    matrix, flags = k.array("matrix", "float32"), k.array("flags", "bool")
    x, y, out = (k.array(name, "float64", is_lines=True) for name in ("x", "y", "out"))
    result, positive = k.array("result", "float64"), k.array("positive", "bool")
    count = k.scalar("count")
    for buffer, column in ((x, 0), (y, 2)):
        line = k.register("line", "float64")
        k.load_rows(line, matrix, column, 3, count)
        k.store(buffer, 0, line)
    k.call(inner.kernel(), (x, y, out, 0))
    total, flag = k.load(out, 0, "total"), k.register("flag", "bool")
    k.store_rows(result, 1, 2, count, total)
    k.load_rows(flag, flags, 0, 1, count)
    k.store_rows(positive, 0, 1, count, flag & less(0.0, total))
    rng = np.random.default_rng(4)
    shape = (1,) if lanes is None else (1, lanes)
    buffers = (np.zeros(shape) for _ in range(3))
    flags = np.array([1, 1, 0, 1, 1], bool)
    matrix = rng.normal(size=(5, 3)).astype(np.float32)
    count = 1 if lanes is None else 5
    return k.kernel(), (matrix, flags, *buffers, np.zeros((5, 2)), np.zeros(5, bool), count)


def tables():
    """Places in hash tables, bits of words, and products of narrow integers, which wrap around."""
    k = Builder("tables")
    count, words, keys = k.scalar("count"), k.array("words", "int64"), k.array("keys", "int64")
    slots, tags = k.array("slots", "int64"), k.array("tags", "int64")
    bits, wide, narrow = k.array("bits", "uint32"), k.array("wide", "uint64"), k.array("narrow", "int32")
    with k.loop("i", 0, count) as i:
        word, key = k.load(words, i, "word"), k.load(keys, i, "key")
        for row, hashed in enumerate(([word], [word, key], [key, word, key])):
            slot, tag = k.hash(hashed, 64)
            k.store(slots, i * 3 + row, slot)
            k.store(tags, i * 3 + row, tag)
            with k.when(~k.load_bit(bits, slot, "there")):
                k.set_bit(bits, slot)
                k.set_bit(wide, slot + 64)
        short = k.let("short", cast(word, "int32"))
        k.store(narrow, i, short * short * short)
    rng = np.random.default_rng(4)
    words = np.array([0, 1, -1, 2**62, -(2**63), 2**63 - 1, 123456789, *range(40, 60)])
    arguments = len(words), words, rng.permutation(words), *np.zeros((2, 3 * len(words)), np.int64)
    return k.kernel(), (*arguments, np.zeros(2, np.uint32), np.zeros(2, np.uint64), np.zeros(len(words), np.int32))


def substituted():
    """Expressions of an operator with registers in the place of its arguments."""
    a, b = Argument(0, "float64", "a"), Argument(1, "float64", "b")
    return substitute((a * b + a, a), {a: b, b: a}), (b * a + b, b)


def positions(lanes):
    """Lanes that read and write positions of their own, and prefixes from the last lane to the first."""
    k = Builder("positions", lanes)
    x, out, flags = k.array("x", "int32"), [k.array(f"out{i}", "float64") for i in range(3)], k.array("flags", "bool")
    sums = k.array("sums", "float64")
    count = k.scalar("count")
    lane = k.lane_numbers()
    with k.loop("row", 0, count, step=lanes) as row:
        here = k.let("here", row + lane)
        found = k.registers("found", ("float64", "float64"))
        k.gather(found[0], x, count - 1 - here, less(here, count), 2.5)
        k.gather(found[1], x, lane * 0 + row)
        k.scan_line(found, LINEAR, down=True)
        first = k.let("first", found[0] * 1.0)
        k.scatter(out[0], 2 * here + 1, first, less(here, count) & less(1, here))
        k.scatter(out[1], here, found[1])
        number = k.register("number", "float64")
        k.gather(number, x, row, less(row, 0), 7.0)
        k.scatter(out[2], here, number, less(here, count))
        positive = k.register("positive", "bool")
        k.gather(positive, flags, here, less(here, count), True)
        k.scatter(flags, here, equal(positive, False), less(here, count))
        k.scatter(sums, where(less(here, 3), 0, 1), cast(here, "float64"), less(here, count), adds=True)
    x = np.random.default_rng(3).integers(-2, 3, 3 * lanes).astype(np.int32)
    sizes = 2 * len(x), len(x), len(x)
    return k.kernel(), (x, *(np.zeros(size) for size in sizes), x > 0, np.array([0.5, 0.0]), 2 * lanes + lanes // 2)


CASES = {
    "segment_sums": segment_sums,
    "control": control,
    "steps": steps,
    "tables": tables,
    "lines": lines,
    "lines_backwards": lambda: lines(backwards=True),
    "dot_of_lines": lambda: dot_of_lines(8),
    "dot_of_scalars": lambda: dot_of_lines(None),
    "columns": lambda: columns(8),
    "columns_of_scalars": lambda: columns(None),
}
