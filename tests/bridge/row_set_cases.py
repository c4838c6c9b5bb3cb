"""Run by test_row_sets.py in a process of its own, with Triton's interpreter: joins and sets by kernels."""

import math
from typing import Any

import numpy as np
import torch

import derivable as dv
from derivable.algebra.expr.functions import less, maximum, where
from derivable.algebra.semiring import Semiring
from derivable.bridge import torch_columns, torch_rows
from derivable.bridge.torch_columns import Torch
from derivable.bridge.torch_rows import HashRows, PairColumn
from derivable.datalog.policy.costs import under
from derivable.device.cuda import row_sets
from derivable.parallel.program import nodes as n
from derivable.parallel.program.execute import Room


def kernels(**pieces):
    arrays = Torch("cpu", **pieces)
    arrays.has_kernels = True
    return arrays


def rows_of(columns):
    return list(zip(*(column.tolist() for column in columns)))


def test_sets():
    """Insertions of plain columns: growing tables, keys of 32 and 64 bits, values that leave their reach, no keys."""
    rng = np.random.default_rng(0)
    for bits, width, growth in ((4, 2, 0), (12, 3, 1), (24, 2, 2), (40, 2, 9)):
        arrays, there = kernels(), set()
        known: Any = None
        types = [n.Type("int64")] * width
        for turn in range(4):
            high = 1 << min(bits + growth * turn, 62)
            drawn = rng.integers(-high // 4, high, (width, 40 * turn))
            columns = [torch.from_numpy(np.concatenate([column, column[::3]])) for column in drawn]
            known, *fresh = arrays.insert(columns, types, known, Room())
            new = rows_of(fresh)
            assert len(set(new)) == len(new)
            assert set(new) == set(rows_of(columns)) - there
            assert set(rows_of(arrays.elements(known, True))) == there
            there |= set(new)
            assert sorted(rows_of(arrays.elements(known, False))) == sorted(there)
            assert len(known) == len(there)
            for positions, is_earlier in (((0,), False), ((0,), True), ((1, 0), True), ((1,), bool(turn % 2))):
                narrow = [n.Type("int64", bits=32)] * len(positions)
                index = arrays.build_of(known, positions, narrow, is_earlier)
                columns_there = arrays.elements(known, is_earlier)
                other = arrays.build([columns_there[k] for k in positions], narrow, len(columns_there[0]), False)
                assert index.keys.equal(other.keys)
                assert index.order.equal(other.order)
            whole = rows_of(arrays.elements(known, False))
            places = arrays.locate(columns, types, known).tolist() if turn > 1 else []
            assert [whole[place] for place in places] == rows_of(columns)[: len(places)]
        kind = torch_rows.SortedRows if bits == 40 else torch_rows.HashRows
        assert isinstance(known.rows, kind)


def test_pairs():
    """Pairs of joins as whole columns, and into sets beside plain columns, equal to those of torch's operations."""
    rng = np.random.default_rng(1)
    for count, size, key in ((0, 5, 3), (7, 0, 3), (40, 30, 9), (5, 60, 1)):
        probes, keys = (torch.from_numpy(rng.integers(-1, key, number)) for number in (count, size))
        values = torch.from_numpy(rng.integers(0, 1 << 20, size))
        found = []
        for arrays in (Torch("cpu"), kernels()):
            index = arrays.build([keys], [n.Type("int64", bits=32)], size, False)
            left, right = arrays.join([probes], index, count)
            assert isinstance(left, PairColumn)
            columns = [arrays.gather(probes, left, None), arrays.gather(values, right, None), left]
            more = [torch.tensor([1, 1]), torch.tensor([2, 2]), torch.tensor([0, 0])]
            _, *fresh = arrays.insert(
                [arrays.concatenate([*pair]) for pair in zip(columns, more)], [n.Type("int64")] * 3, None, Room()
            )
            found.append((rows_of([left.whole(), right.whole()]), sorted(rows_of(fresh))))
        assert found[0] == found[1]


def test_programs():
    rng = np.random.default_rng(2)
    for text, scale in (
        ("type e(u32, u32)\nrel p(x, y) = e(x, y) or (p(x, z) and e(z, y))", 1),
        ("type e(i64, i64)\nrel p(x, y) = e(x, y) or (p(x, z) and e(z, y))", 1 << 40),
        ("type e(i32, u64)\nrel p(x, y) = e(x, y) or (p(x, z) and p(z as i32, y))", 1 << 10),
        ("type e(i32, i32)\nrel p(x, y) = e(x, y) or (p(x, z) and p(z, y) and p(y, z))", -3),
        ("type e(u32, u32)\nrel p(x, y) = e(z, x), e(z, y), x != y\nrel p(x, y) = e(a, x), p(a, b), e(b, y)", 1),
    ):
        edges = rng.integers(0, 12, (16, 2)) * scale
        program = dv.Program(text)
        # A limit of rounds keeps recursions of products from being solved at once.
        db, on_device = (program.run({"e": edges}, device=device, round_limit=99) for device in (None, "torch:cpu"))
        assert "recursion of p: " in on_device.explain()
        assert set(on_device["p"]) == set(db["p"])
        assert len(on_device["p"]) == len(db["p"])
        if scale == 1:
            tagged = {"e": dict(zip(map(tuple, edges.tolist()), rng.uniform(0.1, 0.9, len(edges)).tolist()))}
            db, on_device = (
                program.run(tagged, "minmaxprob", device=device, round_limit=99) for device in (None, "torch:cpu")
            )
            assert dict(on_device["p"].items()) == dict(db["p"].items())


def test_rooms():
    """A second run over as many facts has room for all rows at once, and inserts each of them once."""
    program = dv.Program("type e(u32, u32)\nrel p(x, y) = e(x, y) or (p(x, z) and e(z, y))")
    grow, calls = HashRows._grow, []
    HashRows._grow = lambda self, room: (calls.append(room), grow(self, room))[1]
    turns = []
    for length in (9, 9, 8, 22, 22):
        db = program.run({"e": [(i, i + 1) for i in range(length)]}, "unit", device="torch:cpu", round_limit=99)
        assert len(db["p"]) == length * (length + 1) // 2
        turns.append([*calls])
        calls.clear()
    HashRows._grow = grow
    assert len(turns[0]) > 1
    assert turns[1] == turns[2] == turns[0][-1:]
    assert len(turns[3]) > 1
    assert turns[4] == turns[3][-1:]


def test_pieces():
    """Rules in pieces, whose pairs are expanded and inserted by kernels."""
    text = "type e(u32, u32)\nrel p(x, y) = e(x, y) or (p(x, z) and e(z, y))\nrel q(x, y) = e(x, z), e(z, w), e(w, y)"
    edges = [(i, (i * k + 1) % 12) for i in range(12) for k in (2, 3)]
    for provenance in ("unit", "max_product"):
        facts = {"e": edges if provenance == "unit" else [(0.5 + k / 99, row) for k, row in enumerate(edges)]}
        program = dv.Program(text)
        with under(device=lambda _: kernels(piece=12, pairs_at_once=20)):
            db, on_device = (
                program.run(facts, provenance, device=device, round_limit=99) for device in (None, "torch:cpu")
            )
        assert "joins: in pieces of at most 12 pairs" in on_device.explain()
        assert all(dict(on_device[name].items()) == dict(db[name].items()) for name in ("p", "q"))


def test_operations_of_rows():
    """Of a semiring on pairs, all operations of which are several: by one kernel what torch computes one by one."""
    rng = np.random.default_rng(3)
    typed = PAIRS.typed("float64")
    for count, groups in ((1, 1), (45, 40), (90, 7)):
        left, right = (
            [torch.from_numpy(rng.integers(0, 3, count) / 2.0), torch.from_numpy(rng.integers(0, 9, count))]
            for _ in range(2)
        )
        rows = torch.from_numpy(np.sort(rng.integers(0, groups, count)))
        for operation in (typed.plus, typed.times, typed.saturated):
            function = n.Function.of("operation", operation)
            mine, other = (x.apply(function, [*left, *right], count, None) for x in (kernels(), Torch("cpu")))
            assert torch_columns._row_kernel(function) is not None
            assert all(x.equal(y) for x, y in zip(mine, other, strict=True))
        mine, other = (x.fold(left, rows, groups, typed.plus, True) for x in (kernels(), Torch("cpu")))
        assert all(x.equal(y) for x, y in zip(mine, other, strict=True))


# The longest of the cheapest, as a pair.
PAIRS = Semiring(
    "cheapest and longest",
    lambda a, b: (
        where(less(b[0], a[0]), b[0], a[0]),
        where(less(b[0], a[0]), b[1], where(less(a[0], b[0]), a[1], maximum(a[1], b[1]))),
    ),
    lambda a, b: (a[0] + b[0], a[1] + b[1]),
    zero=(math.inf, 0),
    one=(0.0, 0),
    idempotent_plus=True,
)


def test_the_comparison_can_fail():
    ends, counts, first = torch.tensor([1, 3]), torch.tensor([1, 2]), torch.tensor([4, 0])
    left, right = torch.zeros(2, 3, dtype=torch.int64)
    row_sets.expand(ends, counts, first, None, 3, left, right)
    assert left.tolist() == [0, 1, 1]
    assert right.tolist() == [4, 0, 1]


if __name__ == "__main__":
    torch_rows.FEW, torch_rows.MANY, row_sets.PROGRAMS, row_sets.TILE = 16, 32, 2, 16
    for test in (
        test_sets,
        test_pairs,
        test_programs,
        test_rooms,
        test_pieces,
        test_operations_of_rows,
        test_the_comparison_can_fail,
    ):
        with under(device=lambda _: kernels()):
            test()
        print(test.__name__)
