"""Rows become recent once each; columns and the log read rows alike that came as sets."""

import threading

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

import derivable as dv
from datalog.test_fused import by_bits, on_threads, settings_of
from derivable.datalog.kernels import row_sets
from derivable.datalog.policy.costs import under
from derivable.datalog.tables.storage import Table
from derivable.datalog.values.values import TYPES
from derivable.kernel.interpret import interpret
from drawn import examples

I64 = TYPES["i64"]
# Values in one word of a bitmap, that widen it, that make hashes of many, and out of reach of sets.
KINDS = [st.integers(0, 5), st.integers(0, 700), st.sampled_from([0, 1, 40_000]), st.sampled_from([3, -1, 1 << 40])]


def rows_of(table, low=0):
    columns = [table.column(c, slice(low, table.size)) for c in range(len(table.types))]
    return list(zip(*(column.tolist() for column in columns)))


def recent_rows(table):
    recent = table.recent
    assert isinstance(recent, slice)
    return rows_of(table, recent.start)[: recent.stop - recent.start]


@examples(60, 120, st.data())
def test_each_row_is_recent_once_and_found_again(data):
    """The oracle is Python's set, and the order of its values."""
    width, kind = data.draw(st.integers(1, 3)), data.draw(st.sampled_from(KINDS))
    few = data.draw(st.sampled_from([st.integers(0, 2), st.integers(0, 9)]))
    table, rows, recent = Table("r", [I64] * width), set(), []
    with under(set_rows=data.draw(st.sampled_from([1, 6])), cache_rows=1):
        for _ in range(data.draw(st.integers(1, 6))):
            count = data.draw(st.integers(0, 60))
            columns = [
                np.array(data.draw(st.lists(few if c < width - 1 else kind, min_size=count, max_size=count)), np.int64)
                for c in range(width)
            ]
            table.insert(columns, count)
            rows |= set(zip(*(column.tolist() for column in columns)))
            if data.draw(st.booleans()) and table.take_news():
                recent += recent_rows(table)
            if data.draw(st.integers(0, 9)) == 0:
                other = table.fork()
                assert set(rows_of(other)) == rows
        while table.take_news():
            recent += recent_rows(table)
        assert table.size == len(rows)
        assert set(recent) == rows
        assert len(recent) == len(rows)
        if table.row_set.prefix_sets is not None and not table.row_set.prefix_sets.form.numbered:
            table.to_prefix_sets(table.row_set.prefix_sets, table.size)
        from_sets = [table.column(c, dtype=np.int64).tolist() for c in range(width)]
        assert list(zip(*from_sets)) == rows_of(table)
        assert set(rows_of(table)) == rows
        assert (table.find([np.array(column) for column in from_sets], table.size) >= 0).all()


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 700)), min_size=8), st.integers(1, 3), st.integers(2, 4))
def test_threads_read_the_columns_of_one(pairs, width, number):
    rows = sorted({(a, a % 3, b)[3 - width :] if width < 3 else (a, a % 3, b) for a, b in pairs})
    with settings_of(0, 1, compiled=True), under(shared_rows=0):
        table = Table("r", [I64] * width)
        table.row_set.may_be_sorted = False
        table.insert([np.array(column) for column in zip(*rows)], len(rows))
        assert table.row_set.prefix_sets is not None
        assert table.row_set.prefix_sets.sizes().sum() == len(rows)
        table.to_prefix_sets(table.row_set.prefix_sets, table.size)
        one = table.all_columns([np.int64] * width)
        with on_threads(number):
            several = table.all_columns([np.int64] * width)
        np.testing.assert_array_equal(one, several)
        assert sorted(zip(*(column.tolist() for column in several))) == rows


@settings(max_examples=15, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 300)), min_size=8), st.integers(33, 90), st.integers(1, 3))
def test_the_kernel_reads_sets_in_parts(pairs, room, width):
    """A statement at a time, with every position checked."""
    rows = sorted({(a, a + 1, b)[3 - width :] if width < 3 else (a, a + 1, b) for a, b in pairs})
    with settings_of(0, 1):
        table = Table("r", [I64] * width)
        table.row_set.may_be_sorted = False
        table.insert([np.array(column) for column in zip(*rows)], len(rows))
        made = table.row_set.prefix_sets
        assert made is not None
        found, x, at, stop = [], 0, 0, made.num_prefixes if width == 3 else len(made.base)
        room = max(room, int(made.slots.max()))
        while x < stop:
            log = np.zeros(room * width, np.int32)
            arguments = [x, at, stop, room, *made.find_arguments, log]
            count, x, at = (
                value.item() for value in interpret(row_sets.read_kernel(row_sets.SetForm(width, False)), *arguments)
            )
            found += map(tuple, log.reshape(room, width)[:count].tolist())
    assert sorted(found) == rows
    assert width != 2 or [a for a, _ in found] == [a for a, _ in rows]


PATHS = """
type edge(u32, u32)
rel path(a, b) = edge(a, b)
rel path(a, c) = path(a, b), edge(b, c)
"""


def test_views_may_be_read_by_several_threads():
    program = dv.Program(PATHS + "query path")
    with settings_of(0, 1, compiled=True), by_bits():
        view = program.run({"edge": [(i, i + 1) for i in range(80)]})["path"]
    assert not view.table.has_log
    found = []

    def read():
        found.append((view.table.log[: len(view)].tolist(), list(view), (3, 50) in view, (50, 3) in view))

    threads = [threading.Thread(target=read) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    expected = [(a, b) for a in range(81) for b in range(a + 1, 81)]
    assert found == [(list(map(list, expected)), expected, True, False)] * 4


def test_a_table_has_twelve_parts():
    """What finds rows, and how, is a part of its own."""
    table = Table("r", [I64, I64])
    table.insert([np.arange(5000), np.arange(5000)], 5000)
    table.find([np.arange(2), np.arange(2)], 2)
    defaults = [name for name, value in vars(Table).items() if not (callable(value) or isinstance(value, property))]
    assert [name for name in defaults if not name.startswith("__")] == []
    assert len(vars(table)) <= 12
    assert len(vars(table.fork())) <= 12


def test_rows_are_entered_into_sets_once():
    """Kernels that have the sets insert there; others would lack those rows, and hold them twice in the end."""
    table = Table("r", [I64, I64])
    table.insert([np.arange(20_000) // 50, np.arange(20_000) % 50], 20_000)
    assert table.row_set.is_stale
    table.row_set.use_prefixes(table)
    sets = table.row_set.prefix_sets
    table.row_set.update(table)
    assert sets is not None
    assert table.row_set.prefix_sets is sets
    assert table.size == 20_000
