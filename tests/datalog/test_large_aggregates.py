"""Aggregates over many rows: these are sorted by groups, or held as often as rules derive them."""

import math

import numpy as np
import pytest

import derivable as dv
from derivable.datalog.run.stores import Stores


@pytest.mark.parametrize("operator", ["sum", "avg", "prod"])
@pytest.mark.parametrize("number_type", ["f64", "f32"])
@pytest.mark.parametrize("groups", [3, 500, 9000])
def test_many_floats_are_added_in_order_of_their_values(operator, number_type, groups):
    random, count = np.random.default_rng(groups), 9000
    owner = (groups * random.random(count) ** 2).astype(np.int64)
    values = np.round(random.normal(0.0, 1.0, count), 3) * 10.0 ** random.integers(-3, 4, count)
    values[:3], owner[:3] = [np.inf, -np.inf, 1.5], [0, 1, 1]
    values[owner == 2] = np.abs(values[owner == 2])
    if number_type == "f32":
        values = values.astype(np.float32)
    asked = np.unique(owner)[::2]
    text = f"""type r(i64, i64, {number_type}), asked(i64)
        rel all(g, s) = s := {operator}[i](x: r(g, i, x))
        rel some(g, s) = s := {operator}[i](x: r(g, i, x) where g: asked(g))
        query all query some"""
    database = dv.Program(text).run(
        {"r": list(zip(owner.tolist(), range(count), values.tolist())), "asked": asked[:, None]}, "unit"
    )
    wanted = {}
    for group in np.unique(owner).tolist():
        total = np.float64(operator == "prod")
        for value in np.sort(values[owner == group]).astype(np.float64):
            with np.errstate(all="ignore"):
                total = total * value if operator == "prod" else total + value
        if operator == "avg":
            total /= (owner == group).sum()
        with np.errstate(over="ignore"):
            wanted[group] = float(np.float32(total) if number_type == "f32" else total)
    wanted = {group: value for group, value in wanted.items() if not math.isnan(value)}
    assert dict(list(database["all"])) == wanted
    assert dict(list(database["some"])) == {group: wanted[group] for group in asked.tolist() if group in wanted}
    assert wanted


def test_extremes_are_found_without_a_set_of_rows(calls_of):
    repeated = calls_of(Stores, "store_repeated")
    random = np.random.default_rng(3)
    rows = np.stack([np.arange(20_000), random.integers(0, 40, 20_000), random.integers(-50, 50, 20_000)], 1)
    facts = {"r": rows}
    least, most, ends = {}, {}, {}
    for _, group, value in rows.tolist():
        least[group], most[group] = min(value, least.get(group, 99)), max(value, most.get(group, -99))
    for _, group, value in rows.tolist():
        if value == most[group]:
            ends.setdefault(group, set()).add(value % 7)
    text = "type r(i64, i64, i64)\nrel low(g, m) = m := min(v: r(_, g, v))\nquery low\n"
    relations = dv.Program(text).run(facts, "unit")
    assert dict(list(relations["low"])) == least
    assert len(repeated) == 1
    text = "type r(i64, i64, i64)\nrel end(g, k) = (k, m) := max[k](v: r(_, g, v), k == v % 7)\nquery end\n"
    relations = dv.Program(text).run(facts, "unit")
    assert set(relations["end"]) == {(group, k) for group, some in ends.items() for k in some}
    assert len(repeated) == 2
    # Rows that are counted too, or that stay, come once.
    other = "rel low(g, m) = m := min(v: r(_, g, v)) rel n(g, k) = k := count(v: r(_, g, v)) query low query n"
    relations = dv.Program("type r(i64, i64, i64)\n" + other).run(facts, "unit")
    assert dict(list(relations["low"])) == least
    assert dict(list(relations["n"])) == {group: len(np.unique(rows[rows[:, 1] == group, 2])) for group in least}
    database = dv.Program(text).run(facts, "unit", keep=True)
    assert set(database["end"]) == {(group, k) for group, some in ends.items() for k in some}
    dv.Program(text).run({"r": [(0.5, tuple(row)) for row in rows[:50].tolist()]}, "minmaxprob")
    assert len(repeated) == 2
