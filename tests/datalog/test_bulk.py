"""Relations that are built in bulk have the rows of those that are entered one by one."""

from contextlib import contextmanager

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import derivable as dv
from datalog.test_fused import on_threads
from derivable.core.diagnostics import UnsupportedError
from derivable.datalog.kernels import relations
from derivable.datalog.policy.costs import under
from derivable.datalog.tables import bulk_load, packing
from derivable.datalog.tables.index import Index
from derivable.datalog.tables.packing import Packing, distinct
from derivable.datalog.tables.storage import Table
from derivable.datalog.values.values import TYPES
from derivable.parallel import order
from derivable.parallel.order import is_in_order, order_of
from drawn import examples

I64 = TYPES["i64"]
EXTREMES = [0, 1, -1, 255, 1 << 31, -(1 << 31), (1 << 63) - 1, -(1 << 63)]
VALUES = st.sampled_from([st.integers(-3, 3), st.integers(0, 1 << 20), st.sampled_from(EXTREMES), st.just(7)])


@st.composite
def tables(draw, min_rows=1):
    """Columns [row] int64, each with values of one kind."""
    count = draw(st.integers(min_rows, 40))
    return [
        np.array(draw(st.lists(draw(VALUES), min_size=count, max_size=count)), np.int64)
        for _ in range(draw(st.integers(1, 4)))
    ]


@settings(max_examples=300, deadline=None)
@given(tables())
def test_packed_rows_sort_like_rows_and_come_back(columns):
    rows = list(zip(*(column.tolist() for column in columns)))
    packing = Packing.of(columns)
    bits = sum((int(column.max()) - int(column.min())).bit_length() for column in columns)
    assert (packing is None) == (bits > 64)
    if packing is not None:
        with under(cache_rows=7):
            found = distinct(packing.pack(columns))
            back = np.empty((len(found), len(columns)), np.int64)
            packing.unpack(found, back)
        assert list(map(tuple, back.tolist())) == sorted(set(rows))


@settings(max_examples=300, deadline=None)
@given(tables(min_rows=0), st.sampled_from([0, order.MANY]))
def test_orders_are_stable(columns, many):
    rows = list(zip(*(column.tolist() for column in columns)))
    for dtype in (np.int64, np.uint64, np.float64, object):
        typed = [column.astype(dtype) for column in columns]
        keys = list(zip(*(column.tolist() for column in typed)))
        expected = sorted(range(len(rows)), key=keys.__getitem__)
        assert np.arange(len(rows))[order_of(typed, many)].tolist() == expected
    assert is_in_order(columns, part=3) == (rows == sorted(rows))
    assert is_in_order([np.sort(columns[0])], part=3)
    assert is_in_order(columns, strictly=True, part=3) == (rows == sorted(set(rows)))


@contextmanager
def small_bulks(rows=4, most=16):
    with under(set_rows=rows, most_at_once=most):
        yield


@examples(100, 200, tables(min_rows=5), st.data())
def test_a_table_built_in_bulk_goes_on_as_a_set(columns, data):
    """The oracle is Python's set."""
    width = len(columns)
    rows = set(zip(*(column.tolist() for column in columns)))
    with small_bulks():
        table = Table("t", [I64] * width)
        table.insert(columns, len(columns[0]))
        copy = table.fork()
        assert table.size == len(rows)
        before = table.log[: table.size].copy()
        more = data.draw(st.lists(st.tuples(*[st.one_of(st.sampled_from(sorted(c.tolist())), st.integers(-9, 9))
                                              for c in columns]), max_size=30))  # fmt: skip
        words = [np.array([row[c] for row in more], np.int64) for c in range(width)]
        for each in [copy, table]:
            each.insert(words, len(more))
            assert set(map(tuple, each.log[: each.size].tolist())) == rows | set(more)
            assert each.size == len(rows | set(more))
            probes = [*more, *[tuple(v ^ 1 for v in row) for row in more]]
            found = each.find([np.array([row[c] for row in probes], np.int64) for c in range(width)], len(probes))
            assert [number >= 0 for number in found.tolist()] == [row in rows | set(more) for row in probes]
        np.testing.assert_array_equal(table.log[: len(before)], before)


# Of three such columns no word of 64 bits has the values.
WIDE = st.integers(0, 6) | st.integers(0, 1 << 30) | st.sampled_from([1 << 30, (1 << 31) - 2, 1 << 31, -1, -(1 << 62)])


@examples(60, 1000, st.lists(st.lists(st.tuples(WIDE, WIDE, WIDE), min_size=1, max_size=12), max_size=5), st.data())
def test_rows_in_order_of_a_column_need_no_set(batches, data):
    """Batches that ascend, or not, behind what they come behind, or not; the oracle is Python's set."""
    with small_bulks(rows=3):
        table, rows = Table("t", [I64] * 3), []
        first, step = (0, 1 << 30, -1), data.draw(st.sampled_from([1, 1 << 20]))
        for batch in batches:
            leading = data.draw(st.sampled_from([None, 0, 1, 2]))
            if leading is not None:
                number = st.integers(len(rows), len(rows) + 2)
                batch = [
                    tuple(step * (k + data.draw(number)) if c == leading else word for c, word in enumerate(row))
                    for k, row in enumerate(batch)
                ]
            batch = [first, *batch] if not rows else batch
            words = [np.array(column, np.int64) for column in zip(*batch)]
            if data.draw(st.booleans()):
                words = [column.astype(np.int32) if abs(column).max() < 1 << 31 else column for column in words]
            table.insert(words, len(batch))
            rows += batch
            assert table.size == len(set(rows))
            assert set(map(tuple, table.log[: table.size].tolist())) == set(rows)
            copy = table.fork() if data.draw(st.booleans()) else None
            if data.draw(st.booleans()):
                probes = [*rows, *[(a, b, c ^ 1) for a, b, c in rows]]
                found = table.find([np.array(column, np.int64) for column in zip(*probes)], len(probes))
                assert [number >= 0 for number in found.tolist()] == [row in set(rows) for row in probes]
            table = copy or table


def test_files_with_a_key_are_read_without_a_set(calls_of):
    """Of rows that ascend, or have a column of different values, nobody asks whether they were there."""
    placed = calls_of(relations, "intern_rows")
    rng, count = np.random.default_rng(0), 20_000
    amounts = rng.random(count).round(3)
    program = dv.Program("""
        type sale(id: i64, customer: String, amount: f64)
        rel total(c, s) = s := sum[i](a: sale(i, c, a))
        query total
    """)
    names = np.array([f"customer {k % 7}" for k in range(count)])
    pyarrow = pytest.importorskip("pyarrow")

    def sales(ids, amounts):
        return pyarrow.table({"id": ids, "customer": names.tolist(), "amount": amounts})

    for ids in (np.arange(count) << 40, rng.permutation(count)):
        found = program.run({"sale": sales(ids, amounts)})
        wanted = {name: float(np.sort(amounts[names == name]).cumsum()[-1]) for name in set(names)}
        assert set(found["total"]) == set(wanted.items())
        assert not [given for given in placed if len(given[3]) > 100]
    assert program.run({"sale": sales(ids % 100, amounts.round(1))})["total"]
    assert [given for given in placed if len(given[3]) > 100]


JOINS = """
type r(i64, i64), s(i64, i64)
rel t(a, c) = r(a, b), s(b, c)
rel back(c, a) = r(a, b), s(b, c)
rel back(a, c) = s(a, b), r(b, c)
rel wide(a, b, c, d) = r(a, b), s(c, d), b == d
rel same(a, b) = r(a, b)
rel same(b, a) = same(a, b)
rel n(a, k) = k := count(c: t(a, c))
rel low(a, k) = k := min(c: back(a, c))
rel total(k) = k := sum(c: t(a, c))
"""
KEYS = st.sampled_from([st.integers(0, 12), st.just(3), st.sampled_from([-5, 0, 1 << 40, 2, 3])])


@settings(max_examples=200, deadline=None)
@given(
    st.integers(1, 3), st.lists(st.lists(st.integers(0, 30), min_size=3, max_size=60), max_size=12), st.integers(0, 9)
)
def test_gathered_candidates_are_those_of_a_set(width, batches, top):
    check_gathered(width, batches, lambda v, c: (v * (c + 1)) % (top + 2))


@examples(
    60,
    300,
    st.integers(1, 3),
    st.lists(
        st.tuples(st.lists(st.integers(0, 30), min_size=1, max_size=30), st.integers(0, 63), st.sampled_from([-1, 1])),
        max_size=14,
    ),
)
def test_candidates_are_gathered_whatever_their_values(width, batches):
    """Columns get wider, also below zero, until they do not fit in words any more, or did so too often."""
    batches = [[sign * (v << shift) % (1 << 63) * sign for v in batch] for batch, shift, sign in batches]
    check_gathered(width, batches, lambda v, c: v >> c)


def check_gathered(width, batches, value):
    with small_bulks(rows=4, most=8):
        table = Table("t", [I64] * width)
        gathered = bulk_load.BulkLoad(table)
        expected = set()
        for batch in batches:
            rows = [tuple(value(v, c) for c in range(width)) for v in batch]
            expected |= set(rows)
            gathered.add([np.array([row[c] for row in rows], np.int64) for c in range(width)], len(rows))
        gathered.flush()
        found = list(map(tuple, table.log[: table.size].tolist()))
        assert len(found) == len(expected)
        assert set(found) == expected
        probes = sorted(expected | {(-77,) * width})
        there = table.find([np.array([row[c] for row in probes]) for c in range(width)], len(probes))
        assert [number >= 0 for number in there.tolist()] == [row in expected for row in probes]


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_joins_in_bulk_agree_with_sets_of_python(data):
    key = data.draw(KEYS)
    r, s = (data.draw(st.lists(st.tuples(key, key), max_size=40)) for _ in range(2))
    t = {(a, d) for a, b in r for c, d in s if b == c}
    with small_bulks():
        db = dv.Program(JOINS).run({"r": r, "s": s})
    assert set(db["t"]) == t
    assert set(db["back"]) == {(d, a) for a, d in t} | {(a, d) for a, b in s for c, d in r if b == c}
    assert set(db["wide"]) == {(a, b, c, d) for a, b in r for c, d in s if b == d}
    assert set(db["same"]) == set(r) | {(b, a) for a, b in r}
    assert set(db["n"]) == {(a, sum(x == a for x, _ in t)) for a, _ in t}
    assert set(db["low"]) == {(a, min(c for x, c in db["back"] if x == a)) for a, _ in db["back"]}
    limits = -(1 << 63), (1 << 63) - 1
    assert set(db["total"]) == {(min(max(sum({c for _, c in t}), limits[0]), limits[1]),)}


def test_large_joins_are_sorted_and_right():
    rng = np.random.default_rng(0)
    r, s = (rng.integers(0, 200_000, (200_000, 2)) for _ in range(2))
    text = "type r(i64, i64)\ntype s(i64, i64)\nrel t(a, c) = r(a, b), s(b, c)\nquery t"
    first, second = (dv.Program(text).run({"r": r[rows], "s": s}) for rows in (slice(None), slice(None, None, -1)))
    by_key = np.argsort(s[:, 0], kind="stable")
    low, high = (np.searchsorted(s[by_key, 0], r[:, 1], side) for side in ("left", "right"))
    left = np.repeat(np.arange(len(r)), high - low)
    inside = np.arange(len(left)) - np.repeat(np.cumsum(high - low) - (high - low), high - low)
    expected = np.unique(np.stack([r[left, 0], s[by_key[low[left] + inside], 1]], axis=1), axis=0)
    for db in (first, second):
        np.testing.assert_array_equal(np.stack(db["t"].columns, axis=1), expected)
    assert tuple(expected[17].tolist()) in first["t"]
    assert (-1, 5) not in first["t"]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 6), max_size=40), st.integers(1, 5), st.booleans(), st.integers(1, 3))
def test_words_and_runs_in_parts(words, part, is_sorted, num_threads):
    given_words = np.array(sorted(words) if is_sorted else words, np.uint64)
    with on_threads(num_threads), under(cache_rows=part, shared_rows=2):
        column = given_words.view(np.int64).copy()
        if len(words):
            runs = order.runs_of(lambda rows: [column[rows]], len(words), part)
            changes = [0, *(i for i in range(1, len(words)) if column[i] != column[i - 1])]
            assert (runs is None) == (column.tolist() != sorted(words))
            assert runs is None or runs.tolist() == changes
        assert packing.distinct(given_words).tolist() == sorted(set(words))
        if words:
            columns = [np.array(words) * 3, -np.array(words)]
            places, rows = packing.Packing.of(columns), np.zeros((len(words), 2), np.int64)
            assert places is not None
            places.unpack(places.pack(columns), rows)
            assert rows.T.tolist() == [column.tolist() for column in columns]


# Words that differ in low bits, in high ones, in bits with gaps between them, and in the sign that they have not.
WORDS = st.lists(
    st.one_of(
        st.integers(0, 5),
        st.integers(0, (1 << 64) - 1),
        st.sampled_from([0, 1 << 63, (1 << 64) - 1, 1 << 40]),
        st.builds(lambda a, b: a << 50 | b, st.integers(0, 40), st.integers(0, 3)),
    ),
    max_size=60,
)


@examples(60, 300, WORDS, st.integers(1, 3))
def test_words_are_sorted_by_the_digits_that_vary(words, num_threads):
    with on_threads(num_threads), under(cache_rows=1, shared_rows=8):
        given_words = np.array(words, np.uint64)
        packing.sort(given_words)
        assert given_words.tolist() == sorted(words)


KINDS = ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", ">i4", ">u2", ">i8"]


@pytest.mark.parametrize("is_bulk", [False, True])
@pytest.mark.parametrize("provenance", ["unit", "minmaxprob", "exact"])
def test_facts_of_arrays_lie_as_their_callers_have_them(provenance, is_bulk, costs):
    if is_bulk:
        costs(set_rows=1)
    program = dv.Program("type r(i64, u64)\nrel t(y, x + 1) = r(x, y)\nquery r\nquery t")
    rows = np.array([[5, 7], [1, 100], [5, 7], [0, 0], [3, 2], [1, 99]])
    expected = sorted(set(map(tuple, rows.tolist())))
    for kind in KINDS:
        wide = np.zeros((12, 5), kind)
        wide[::2, 1:4:2] = rows
        parts = {"a": wide[::2, 1], "b": wide[::2, 3]}
        for facts in (wide[::2, 1:4:2], np.asfortranarray(rows.astype(kind)), parts):
            if isinstance(facts, np.ndarray):
                facts.flags.writeable = False
            database = program.run(facts={"r": facts}, provenance=provenance)
            found = database["r"]
            assert sorted(zip(*(column.tolist() for column in found.columns))) == expected
            assert [column.dtype.name for column in found.columns] == ["int64", "uint64"]
            assert sorted(zip(*(column.tolist() for column in database["t"].columns))) == sorted(
                {(y, x + 1) for x, y in expected}
            )


def test_facts_of_arrays_may_be_written_to_when_more_are_to_come():
    given = np.array([[1, 2], [2, 3]], np.uint8)
    program = dv.Program("type e(u8, u8), s(u8, u8)\nrel t(x, z) = e(x, y), not s(x, x), e(y, z)\nquery t")
    database = program.run(facts={"e": given, "s": [(9, 9)]}, keep=True)
    given[:] = 0
    # Facts that are negated have the rules run anew, over all facts.
    database.add({"e": np.array([[3, 4]], np.uint16), "s": [(1, 1)]})
    assert set(database["t"]) == {(2, 4)}
    assert database["t"].columns[0].tolist() == [2]


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_indexes_over_tables_in_order_and_out_of_order(data):
    pairs = st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), max_size=25)
    rows, probes = data.draw(pairs), data.draw(st.lists(st.integers(-2, 12), max_size=10))
    rows = list(dict.fromkeys(sorted(rows) if data.draw(st.booleans()) else rows))
    table = Table("t", (I64, I64))
    table.insert([np.array([row[c] for row in rows], np.int64) for c in range(2)], len(rows))
    column = data.draw(st.integers(0, 1))
    index = table.index((column,), True)
    assert index.kind == "dense"
    found = [
        (int(left), int(row))
        for part in index.matches(np.array(probes, np.int64)[:, None], len(rows))
        for left, row in zip(*part)
    ]
    assert found == [(i, k) for i, probe in enumerate(probes) for k, row in enumerate(rows) if row[column] == probe]
    assert index.is_ordered == (sorted(rows, key=lambda row: row[column]) == rows)
    assert index.values_of(1 - column).tolist() == [rows[k][1 - column] for k in index.rows.tolist()]


def test_rows_that_came_as_sets_are_viewed_in_the_log(costs):
    costs(set_rows=1)
    table = Table("t", (I64, I64))
    table.row_set.may_be_sorted = False
    table.insert([np.array([3, 1, 2, 2]), np.array([5, 6, 7, 8])], 4)
    assert table.row_set.prefix_sets is not None
    table.to_prefix_sets(table.row_set.prefix_sets, 4)
    assert not table.has_log
    assert [table.view(c, slice(0, 4)).tolist() for c in range(2)] == [[1, 2, 2, 3], [6, 7, 8, 5]]
    assert table.has_log


def test_an_index_of_chains_has_no_more_rows_than_its_numbers():
    class FiveRows(Index):
        most_rows = 5

    table = Table("t", (I64, I64))
    table.insert([np.arange(5), np.arange(5)], 5)
    index = FiveRows(table, (0, 1), False)
    index.update()
    assert len(index.following) >= 5
    table.insert([np.array([9]), np.array([9])], 1)
    with pytest.raises(UnsupportedError, match="an index over 6 rows of `t`, of which one has 5 at most"):
        index.update()
