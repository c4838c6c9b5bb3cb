"""Rows that are counted without being listed, in all and by group: the same numbers as the reference, and no rows."""

import math
import re
from collections import Counter

import numpy as np
import pytest
from hypothesis import strategies as st

import derivable as dv
from datalog.test_fused import settings_of
from derivable.datalog.fused.emit_elimination import EliminationKernel
from derivable.datalog.fused.store_state import StoreState
from derivable.datalog.policy.costs import under
from derivable.datalog.ram.interpret import interpret
from drawn import examples

NAMES = "abcdef"


@pytest.fixture
def used(calls_of):
    """The kernels by which rows were counted, one after the other."""
    kernels = []
    for name in ("eliminated", "written"):
        calls_of(StoreState, name, lambda state, table, kernel, *_: kernels.append(kernel))
    return kernels


@st.composite
def patterns(draw):
    """(names, group, body): a connected pattern of two to six atoms, and the names of its group."""
    atoms, bound = [], ["a"]
    for _ in range(draw(st.integers(2, 6))):
        fresh = [NAMES[len(bound)]] if len(bound) < len(NAMES) else []
        pair = [draw(st.sampled_from(bound)), draw(st.sampled_from([*bound, *fresh, *fresh]))]
        if pair[0] == pair[1]:
            continue
        bound += [name for name in fresh if name in pair]
        atoms.append(f"{draw(st.sampled_from('eef'))}({', '.join(draw(st.permutations(pair)))})")
    if not atoms:
        atoms, bound = ["e(a, b)", "f(b, a)"], ["a", "b"]
    return bound, bound[: draw(st.integers(0, min(2, len(bound) - 1)))], ", ".join(dict.fromkeys(atoms))


@examples(15, 600, patterns(), st.data())
def test_counts_agree_with_the_reference(pattern, data):
    names, group, body = pattern
    value = st.sampled_from([0, 0, 1, 1, 2, 3, 5, -2])
    facts = {name: data.draw(st.lists(st.tuples(value, value), max_size=16)) for name in "ef"}
    counted = ", ".join(name for name in names if name not in group)
    text = f"""type e(i64, i64), f(i64, i64)
        rel r({", ".join([*group, "n"])}) = n := count({counted}: {body})
        query r"""
    program = dv.Program(text)
    wanted = interpret(program.lowered(facts), facts)["r"]
    # The cheapest elimination is always clearly better than loops, or never.
    clearly = data.draw(st.sampled_from([math.inf, 0.0]))
    with settings_of(0, 1), under(small_round=2, clearly=clearly):
        assert set(program.run(facts, "unit")["r"]) == wanted


def edges_of_hubs():
    random = np.random.default_rng(1)
    pairs = np.concatenate([random.integers(0, 12, (120, 2)), random.integers(0, 300, (400, 2))])
    return np.unique(pairs[pairs[:, 0] != pairs[:, 1]], axis=0)


@pytest.mark.parametrize("moved", [0, 1 << 20, -1000])
@pytest.mark.parametrize(
    ("body", "meaning"),
    [
        ("e(a, b), e(b, c), e(a, d), e(d, c)", lambda e: ((e @ e) ** 2).sum(1)),
        ("e(a, b), e(b, c), e(c, d), e(a, f), e(f, d)", lambda e: ((e @ e @ e) * (e @ e)).sum(1)),
        ("e(a, b), e(b, c), e(a, c), e(a, d), e(d, f), e(a, f)", lambda e: (((e @ e) * e).sum(1)) ** 2),
        ("e(a, b), e(b, c), e(c, a)", lambda e: np.diag(e @ e @ e)),
        ("e(a, b), e(b, c), e(c, d)", lambda e: (e @ e @ e).sum(1)),
    ],
)
def test_cycles_are_counted_by_elimination(body, meaning, moved, used, costs):
    pairs = edges_of_hubs()
    matrix = np.zeros((300, 300), np.int64)
    matrix[tuple(pairs.T)] = 1
    wanted = meaning(matrix)
    costs(few_rows=0, many_rows=0, has_small_runs=False)
    names = sorted(set(re.findall(r"(\w)[,)]", body)))
    texts = [
        f"type e(i64, i64)\nrel r({head}n) = n := count({', '.join(counted)}: {body})\nquery r"
        for head, counted in (("", names), ("a, ", names[1:]))
    ]
    found = [set(dv.Program(text).run({"e": pairs + moved}, "unit")["r"]) for text in texts]
    assert found == [{(wanted.sum(),)}, {(a + moved, n) for a, n in enumerate(wanted.tolist()) if n}]
    # Without a cycle all rows are counted by loops.
    assert [isinstance(one, EliminationKernel) for one in used] == [body.count("e(") >= len(names), True]


def test_groups_of_two_columns_are_counted_where_they_are_bound(used, costs):
    pairs = edges_of_hubs()
    costs(few_rows=0, many_rows=0, has_small_runs=False)
    text = """type e(i64, i64)
        rel r(a, b, n) = n := count(c, d: e(a, b), e(b, c), e(c, d))
        query r"""
    found = dv.Program(text).run({"e": pairs}, "unit")
    degree = Counter(pairs[:, 0].tolist())
    paths = Counter()
    for b, c in pairs.tolist():
        paths[b] += degree[c]
    assert set(found["r"]) == {(a, b, paths[b]) for a, b in pairs.tolist() if paths[b]}
    (kernel,) = used
    assert not isinstance(kernel, EliminationKernel)


def test_groups_without_rows_have_the_number_zero(costs):
    costs(few_rows=0, many_rows=0, has_small_runs=False)
    pairs = edges_of_hubs()
    text = """type e(i64, i64), group(i64)
        rel r(a, n) = n := count(b, c: e(a, b), e(b, c) where a: group(a))
        query r"""
    found = dv.Program(text).run({"e": pairs, "group": [0, 1, 1000]}, "unit")["r"]
    degree = Counter(pairs[:, 0].tolist())
    assert set(found) == {(a, sum(degree[c] for b, c in pairs.tolist() if b == a)) for a in (0, 1, 1000)}
