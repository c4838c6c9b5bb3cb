"""Integers of 128 bits on every way into a program, through it and out of it, against Python's integers."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import derivable as dv
from derivable.datalog.api.fact_output import write_facts
from derivable.datalog.foreign.hashing import siphash
from derivable.datalog.values.values import TYPES

I128, U128 = TYPES["i128"], TYPES["u128"]
LARGE = [2**127 - 1, -(2**127), 2**100, 2**100 + 1, 2**62, 2**62 - 1, -(2**62), -(2**62) - 1, 2**63, 5, 0, -7]


def column(t, values, rule):
    """The results of `rule` over a relation `q` of one column."""
    return dv.Program(f"type q({t})\n{rule}").run({"q": [(v,) for v in values]}, keep=True)


def test_facts_of_python_come_back_in_order():
    found = column("i128", LARGE, "rel r(x) = q(x)")["r"]
    assert list(found) == [(v,) for v in sorted(LARGE)]
    assert found.columns[0].dtype == object
    assert (2**100,) in found
    assert (2**100 + 2,) not in found
    assert (2**130,) not in found
    assert "(170141183460469231731687303715884105727)" in str(found)


@pytest.mark.parametrize("array", [np.array([2**64 - 1, 2**62, 3], np.uint64), np.array([-(2**63), 2**62, 1])])
def test_facts_of_arrays(array):
    expected = sorted((int(v),) for v in array)
    assert list(dv.Program("type q(i128)\nrel r(x) = q(x)").run({"q": array})["r"]) == expected
    shown = dv.Program("type q(i128)\nrel r(x) = q(x)").run({"q": {"x": array}})["r"]
    assert list(shown) == expected


def test_literals_and_constants():
    text = f"const MOST: u128 = {2**128 - 1}\ntype q(u128)\nrel q = {{{2**128 - 1}, {2**64}, 1}}\n"
    db = dv.Program(
        text
        + f"rel r(x - 1) = q(x), x == MOST\nrel s(x) = q(x), x > {2**63}\nrel t() = q({2**64})\nrel u() = q({2**65})"
    ).run()
    assert list(db["r"]) == [(2**128 - 2,)]
    assert list(db["s"]) == [(2**64,), (2**128 - 1,)]
    assert len(db["t"]) == 1
    assert len(db["u"]) == 0


@pytest.mark.parametrize("t", [I128, U128], ids=str)
def test_what_does_not_fit_is_an_error(t, tmp_path):
    low, high = t.limits
    for value in (low - 1, high + 1):
        with pytest.raises(dv.DerivableError, match=f"expected {t}") as caught:
            column(t, [value], "rel r(x) = q(x)")
        assert caught.value.hint == f"{t} holds {low} to {high}"
        with pytest.raises(dv.DerivableError, match=f"does not fit {t}"):
            dv.Program(f"type q({t})\nrel q({value})")
        (tmp_path / "q.csv").write_text(f"{high}\n{value}\n")
        with pytest.raises(dv.DerivableError, match=f"too large or too small for {t}"):
            column(t, [], "rel r(x) = q(x)").add({"q": tmp_path / "q.csv"})


@pytest.mark.parametrize("ending", ["csv", "parquet", "arrow"])
def test_files_there_and_back(ending, tmp_path):
    found = column("i128", LARGE, "rel r(x, -x) = q(x)")
    path = tmp_path / f"r.{ending}"
    write_facts(found["r"], path)
    back = dv.Program("type r(i128, i128)\nquery r").run({"r": path})["r"]
    assert list(back) == list(found["r"])


def test_frames():
    found = column("i128", LARGE, "rel r(x) = q(x)")["r"]
    assert found.to_pandas()["x"].tolist() == sorted(LARGE)
    assert list(map(int, found.to_arrow()["x"].to_pylist())) == sorted(LARGE)


def test_large_integers_join_and_deduplicate():
    values = [2**100 + k for k in range(50)] + [k - 25 for k in range(50)]
    text = "type a(i128)\ntype b(i128, i128)\nrel r(x, z) = a(x), b(x, y), b(y, z)"
    pairs = [(x, values[(i * 7 + 3) % 100]) for i, x in enumerate(values)]
    found = dv.Program(text).run({"a": values[::3], "b": pairs})["r"]
    step = dict(pairs)
    assert set(found) == {(x, step[step[x]]) for x in values[::3]}


def test_recursion_over_doubling():
    text = f"type p(u128)\nrel p = {{1}}\nrel p(x + x) = p(x), x < {2**127}"
    assert list(dv.Program(text).run()["p"]) == [(2**k,) for k in range(128)]


def wrapped(n, t):
    return (n - t.limits[0]) % 2**128 + t.limits[0]


def clipped(n, t):
    return max(t.limits[0], min(t.limits[1], n))


MEANING = {
    "sum": lambda values, t: clipped(sum(values), t),
    "prod": lambda values, t: wrapped(math.prod(values), t),
    "avg": lambda values, t: abs(sum(values)) // len(values) * (1 if sum(values) >= 0 else -1),
    "min": lambda values, t: min(values),
    "max": lambda values, t: max(values),
}


@settings(max_examples=30, deadline=None)
@given(st.data(), st.sampled_from([I128, U128]))
def test_aggregates(data, t):
    value = st.integers(*t.limits) | st.integers(0, 9) | st.sampled_from([v for v in LARGE if t.limits[0] <= v])
    rows = data.draw(st.lists(st.tuples(st.integers(0, 2), value), max_size=8))
    rules = [f"rel r{name}(k, v) = v := {name}(x: q(k, x))" for name in MEANING]
    rules.append("rel sorted(k, i, x) = (i, x) := sort<asc>(x: q(k, x))")
    db = dv.Program(f"type q(i32, {t})\n" + "\n".join(rules)).run({"q": rows})
    groups = {k: sorted({v for j, v in rows if j == k}) for k, _ in rows}

    for name, of in MEANING.items():
        assert dict(list(db[f"r{name}"])) == {k: of(values, t) for k, values in groups.items()}, name
    assert set(db["sorted"]) == {(k, i, x) for k, values in groups.items() for i, x in enumerate(values)}


@pytest.mark.parametrize("name", ["sum", "prod", "avg", "max"])
def test_aggregates_over_worlds(name):
    values, chances = [2**126, 2**126 + 1, -(2**127), 3], [0.5, 0.25, 0.75, 0.5]
    program = dv.Program(f"type q(i128)\nrel r(v) = v := {name}(x: q(x))")
    found = dict(program.run({"q": dv.independent(values, chances)}, provenance="exact")["r"].items())
    expected: dict = {}
    for there in itertools.product([False, True], repeat=4):
        rows = [v for v, here in zip(values, there) if here]
        chance = math.prod(c if here else 1 - c for c, here in zip(chances, there))
        if name in ("avg", "max") and not rows:
            continue
        result = MEANING[name](rows, I128)
        expected[(result,)] = expected.get((result,), 0.0) + chance
    assert found == pytest.approx(expected)


@settings(max_examples=50, deadline=None)
@given(st.sampled_from(LARGE) | st.integers(*I128.limits), st.sampled_from(LARGE), st.integers(0, 200))
def test_functions(x, y, n):
    text = (
        "type q(i128, i128, u32)\nrel r($abs(x), $sign(x), $floor(x), $ceil(x), $min(x, y, 3), $max(x, y), $pow(x, n))"
        ' = q(x, y, n)\nrel s($hash(x, y), $format("{}!", x)) = q(x, y, _)'
    )
    db = dv.Program(text).run({"q": [(x, y, n)]})
    sign = (x > 0) - (x < 0)
    expected = (clipped(abs(x), I128), sign, x, x, min(x, y, 3), max(x, y), wrapped(pow(x, n, 2**128), I128))
    assert list(db["r"]) == [expected]
    columns = [np.array([v], object) for v in (x, y)]
    assert list(db["s"]) == [(int(siphash(columns, (I128, I128))[0]), f"{x}!")]


def test_ranges():
    low = 2**62 - 2
    text = f"type q(i128, i128)\nrel q = {{({low}, {low + 5}), ({2**100}, {2**100 + 2}), (1, 3)}}\n"
    db = dv.Program(text + f"rel r(x) = q(a, b), x in a..b\nrel s(a) = q(a, b), {2**100 + 1} in a..=b").run()
    expected = [*range(1, 3), *range(low, low + 5), 2**100, 2**100 + 1]
    assert list(db["r"]) == [(x,) for x in expected]
    assert list(db["s"]) == [(2**100,)]


def test_functions_and_aggregates_of_a_users_own():
    @dv.datalog.function(name="wide_half")
    def half(x: "i128") -> "i128":  # noqa: F821
        return x // 2

    total = dv.parallel.operator(lambda a, b: a + b, neutral=0)
    dv.datalog.aggregate("wide_total", total, lift=lambda x: x, result=lambda s: s, returns="value", takes="integer")
    assert list(column("i128", [2**100], "rel r($wide_half(x)) = q(x)")["r"]) == [(2**99,)]
    assert list(column("i128", [5, -7], "rel r(v) = v := wide_total(x: q(x))")["r"]) == [(-2,)]
    with pytest.raises(dv.DerivableError, match=f"folds numbers of 64 bits, and {2**100} needs more"):
        column("i128", [2**100], "rel r(v) = v := wide_total(x: q(x))")


def test_terms_hold_them():
    text = f"""
        type Tree = Leaf(i128) | Node(Tree, Tree)
        rel tree(new Node(new Leaf({2**100}), new Leaf(x))) = q(x)
        rel leaf(a, b) = tree(t), case t is Node(Leaf(a), Leaf(b))
    """
    assert list(column("i128", [-(2**100)], text)["leaf"]) == [(2**100, -(2**100))]


def test_additions_and_branches():
    db = column("i128", [2**100], "rel r(x * 3) = q(x)")
    branch = db.fork()
    db.add({"q": [(2**90,)]})
    branch.add({"q": [(2**80,)]})
    assert list(db["r"]) == [(3 * 2**90,), (3 * 2**100,)]
    assert list(branch["r"]) == [(3 * 2**80,), (3 * 2**100,)]


def test_draws_do_not_depend_on_the_order_of_facts():
    values = [2**100 + k for k in range(40)]
    text = "rel r(x) = x := uniform<5>(x: q(x))"
    assert list(column("i128", values, text)["r"]) == list(column("i128", values[::-1], text)["r"])
