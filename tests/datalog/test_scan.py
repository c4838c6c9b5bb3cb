"""Few rows looked for among those in order, by a pass over others, and by what is made after some passes; the oracle is
Python."""

import numpy as np
import pytest
from hypothesis import strategies as st

from derivable.datalog.policy.costs import policy, under
from derivable.datalog.tables import scan
from derivable.datalog.tables.overlay import OverlayTable
from derivable.datalog.tables.storage import Table
from derivable.datalog.values.values import TYPES
from drawn import examples

I64 = TYPES["i64"]
# Of few values, of negative ones, and of those that differ in their high bits alone.
KINDS = [st.integers(0, 6), st.integers(-4, 4), st.sampled_from([0, 1 << 33, -(1 << 62), 1])]


def columns_of(rows, width):
    return [np.array([row[c] for row in rows], np.int64) for c in range(width)]


@examples(60, 200, st.data())
def test_rows_and_matches_are_found_with_and_without_passes(data):
    width = data.draw(st.integers(1, 3))
    row = st.tuples(*[data.draw(st.sampled_from(KINDS)) for _ in range(width)])
    rows = data.draw(st.lists(row, min_size=3, max_size=40, unique=True))
    probes = data.draw(st.lists(st.one_of(row, st.sampled_from(rows)), min_size=1, max_size=10))
    keys = tuple(sorted(data.draw(st.sets(st.integers(0, width - 1), min_size=1))))
    limit, is_static = data.draw(st.integers(0, len(rows))), data.draw(st.booleans())
    stamps = np.array(data.draw(st.lists(st.integers(0, 3), min_size=len(rows), max_size=len(rows))), np.int32)
    table = Table("r", [I64] * width)
    # What comes first may be sorted.
    first = data.draw(st.integers(1, len(rows)))
    with under(set_rows=data.draw(st.sampled_from([1, 1 << 60]))):
        table.insert(columns_of(rows[:first], width), first)
    if first < len(rows):
        table.insert(columns_of(rows[first:], width), len(rows) - first)
    inserted, rows = rows, list(zip(*(table.column(c).tolist() for c in range(width))))
    assert set(rows) == set(inserted)
    ordered = table.row_set.ordered
    assert rows[:ordered] == sorted(inserted[:ordered])
    if data.draw(st.booleans()):
        table = table.without(np.array([], np.int64))
    elif data.draw(st.booleans()):
        table, stamps = OverlayTable.on(table), np.zeros(0, np.int32)
        more = data.draw(st.lists(row, max_size=5))
        table.insert(columns_of(more, width), len(more))
        below, rows = len(rows), list(dict.fromkeys([*rows, *more]))
        # The rows below do not change.
        limit = data.draw(st.integers(below, len(rows)))
    if is_static:
        # It is read as a whole.
        limit, stamps = len(rows), np.zeros(0, np.int32)
    numbers = {one: number for number, one in enumerate(rows)}
    with under(few=data.draw(st.sampled_from([0, 1 << 60])), rows_a_pass=0, cache_rows=7, far_off=3):
        for _ in range(4):
            ids = table.find(columns_of(probes, width), len(probes)).tolist()
            # Sets by prefix know no numbers.
            has_numbers = getattr(table, "below", table).row_set.form is None
            assert [i if has_numbers else i >= 0 for i in ids] == [
                numbers.get(probe, -1) if has_numbers else probe in numbers for probe in probes
            ]
            words = np.array([[probe[c] for c in keys] for probe in probes], np.int64)
            pairs = [
                pair
                for left, right in table.matches(keys, is_static, words, limit, stamps, 1)
                for pair in zip(left.tolist(), right.tolist())
            ]
            assert sorted(pairs) == [
                (probe, number)
                for probe, key in enumerate(words.tolist())
                for number, one in enumerate(rows[:limit])
                if [one[c] for c in keys] == key and (not len(stamps) or stamps[number] <= 1)
            ]


def test_a_table_is_not_gone_through_for_ever(costs):
    costs(few=0)
    table = Table("r", [I64, I64])
    # In the order of the first column.
    table.insert([np.arange(5000), np.arange(5000)[::-1]], 5000)
    key = np.array([[17], [6000]])
    for count in range(2 * policy().far_off):
        pairs = [np.stack(pair).tolist() for pair in table.matches((1,), True, key, 5000)]
        assert pairs == [[[0], [4982]]]
        assert list(table.indexes) == [(1,)] * (count >= policy().far_off)
    # What is in order needs neither a set nor an index.
    for _ in range(2 * policy().far_off):
        assert table.find([np.array([17, 18]), np.array([4982, 4980])], 2).tolist() == [17, -1]
        assert [np.stack(pair).tolist() for pair in table.matches((0,), True, key, 5000)] == [[[0], [17]]]
    assert table.row_set.is_stale
    assert list(table.indexes) == [(1,)]


def test_the_same_keys_are_passed_for_once(costs, calls_of):
    costs(few=0)
    rng = np.random.default_rng(0)
    table = Table("r", [I64, I64])
    table.insert([np.arange(5000), rng.integers(0, 2000, 5000)], 5000)
    calls = calls_of(scan, "among")

    def rows_with(keys):
        pairs = table.matches((1,), True, np.array([[key] for key in keys]), 5000)
        return sorted((left, row) for part in pairs for left, row in zip(*map(np.ndarray.tolist, part)))

    words = table.column(1).tolist()
    for keys, count in [([5, 9, 7], 1), ([7, 5, 7], 1), ([], 1), ([9, 4], 2), ([4], 2)]:
        expected = [(left, row) for left, key in enumerate(keys) for row, word in enumerate(words) if word == key]
        assert rows_with(keys) == expected
        assert len(calls) == count


@pytest.mark.parametrize("layout", ["pairs", "backwards", "narrow", "unaligned", "without sign", "gaps"])
def test_words_of_any_layout_are_filtered(costs, layout):
    """Columns of a caller's arrays are looked through where they are."""
    costs(few=0, chunk=1 << 12)
    values = np.random.default_rng(1).integers(0, 3000, 10_000)
    match layout:
        case "pairs":
            column = np.stack([values, -values], 1)[:, 0]
        case "backwards":
            column = values[::-1].copy()[::-1]
        case "narrow":
            column = (values := values % 100).astype(np.int8)
        case "unaligned":
            made = np.zeros(len(values), np.dtype([("tag", np.int8), ("word", np.int64)]))
            made["word"] = values
            column = made["word"]
        case "without sign":
            column = values.astype(np.uint32)
        case _:
            column = np.repeat(values, 3)[::3]
    few = Table("few", [I64])
    few.row_set.use_hash(few)
    few.insert([np.array([7, 55, 2999, 4000])], 4)
    rows, numbers = scan.among(few, [column], len(values))
    assert rows.tolist() == np.flatnonzero(np.isin(values, [7, 55, 2999])).tolist()
    assert few.column(0)[numbers].tolist() == values[rows].tolist()


@pytest.mark.parametrize("width", [1, 2, 3])
@pytest.mark.parametrize("offset", [0, -(1 << 40)])
def test_blocks_without_what_is_looked_for_are_not_read(costs, calls_of, width, offset):
    costs(few=0, rows_a_pass=0, far_off=1 << 30)
    rng = np.random.default_rng(width)
    read = calls_of(scan.kernels, "filter_words", lambda words, step, blocks, *_: blocks.tolist())
    table = Table("r", [I64] * width)
    for count in (4000, 560, 160, 8000):
        # Every column nearly in order, so that a value is in few blocks.
        start = table.size
        columns = [offset + (np.arange(start, start + count) + rng.integers(0, 20, count)) // 2 for _ in range(width)]
        columns[0] = offset + start + rng.permutation(count // 10).repeat(10)
        columns[-1] = columns[-1] * 2 + np.arange(count) % 2 if width > 1 else offset + rng.permutation(count) + start
        table.insert(columns, count)
        words = np.stack([table.column(c) for c in range(width)], 1)
        for keys in {(0,), (width - 1,), tuple(range(width))}:
            probes = np.concatenate([words[rng.choice(table.size, 5)], np.full((1, width), offset - 1)])[:, keys]
            read.clear()
            pairs = [pair for part in table.matches(keys, True, probes, table.size) for pair in zip(*map(list, part))]
            expected = [
                (k, row) for k, probe in enumerate(probes) for row in np.flatnonzero((words[:, keys] == probe).all(1))
            ]
            assert sorted(pairs) == expected
            if (width - 1,) == keys and width > 1 and count == 8000:
                assert 0 < sum(map(len, read)) < table.size // scan.BLOCK // 2
