"""Few rows looked for by a pass over many, and by what is made after some passes; the oracle is Python."""

import numpy as np
from hypothesis import strategies as st

from derivable.datalog.policy.costs import policy, under
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
    table.insert(columns_of(rows, width), len(rows))
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
    with under(few=data.draw(st.sampled_from([0, 1 << 60])), rows_a_pass=0, cache_rows=7, most_passes=3):
        for _ in range(4):
            assert table.find(columns_of(probes, width), len(probes)).tolist() == [
                numbers.get(probe, -1) for probe in probes
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
    table = Table("r", [I64])
    table.insert([np.arange(5000)], 5000)
    for _ in range(3 * policy().most_passes):
        assert table.find([np.array([17, 6000])], 2).tolist() == [0, -1] or table.row_set.is_stale
    assert table.row_set.passes == policy().most_passes
    assert not table.row_set.is_stale
