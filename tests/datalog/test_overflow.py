"""Integers of rules that leave their types: a run warns once, with the exact value, and of nothing that stays inside.

Expected values are those of Python's integers.
"""

import random
import warnings

import numpy as np
import pytest
import torch

import derivable as dv
from derivable.core.diagnostics import DerivableWarning
from derivable.datalog.run import overflow

TYPES = {
    **{f"i{b}": (-(2 ** (b - 1)), 2 ** (b - 1) - 1) for b in (8, 16, 32, 64, 128)},
    **{f"u{b}": (0, 2**b - 1) for b in (8, 16, 32, 64, 128)},
}


def warned(run):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        run()
    return [str(one.message) for one in caught if issubclass(one.category, DerivableWarning)]


def values(low, high):
    some = {low, low + 1, high, high - 1, high // 2, high // 2 + 1, 0, 1, 5}
    return sorted(v for v in some if low <= v <= high)


@pytest.mark.parametrize("form", ["x + y", "x - y", "x * y"])
@pytest.mark.parametrize("t", TYPES)
def test_one_warning_where_a_value_leaves_its_type(t, form):
    low, high = TYPES[t]
    program = f"type r(x: {t}, y: {t})\nrel s({form}) = r(x, y)\nquery s"
    for x in values(low, high):
        for y in values(low, high):
            found = warned(lambda: dv.Program(program).run({"r": [(x, y)]}))  # noqa: B023
            exact = eval(form)
            assert len(found) == (not low <= exact <= high), (x, y)
            for text in found:
                assert f"`{form.replace('x', str(x)).replace('y', str(y))}` in a rule of `s` is {exact}," in text
                assert f"{t} does not hold" in text
                assert text.startswith("<program>:2:7: warning")
                assert "help: cast what is computed with" in text


CASES = {
    "what a condition leaves out": ("rel s(x - 1) = r(x), x > 0", {"r": [0, 1, 2]}, "usize", 0),
    "at zero": ("rel s(x - 1) = r(x)", {"r": [0, 1, 2]}, "usize", 1),
    "in a condition": ("rel s(x) = r(x), x * 2 > 0", {"r": [2_000_000_000]}, "i32", 1),
    "in a condition that another one guards": (
        "rel s(x) = r(x), x < 9, x * 2 > 0",
        {"r": [2_000_000_000, 3]},
        "i32",
        0,
    ),
    "a minus": ("rel s(-x) = r(x)", {"r": [-128]}, "i8", 1),
    "a magnitude": ("rel s($abs(x)) = r(x)", {"r": [-128]}, "i8", 1),
    "a power": ("rel s($pow(x, 6)) = r(x)", {"r": [3]}, "u8", 1),
    "a power inside": ("rel s($pow(x, 5)) = r(x)", {"r": [3]}, "u8", 0),
    "what wraps back": ("rel s((x * 31 + 7) % 1000) = r(x)", {"r": [10**6, 5]}, "i32", 0),
    "part of an expression": ("rel s((x * 31 + 7) % 1000) = r(x)", {"r": [10**8, 5]}, "i32", 1),
    "a recursion": ("rel s(x) = r(x) rel s(x * 3) = s(x)", {"r": [1]}, "i16", 1),
    "a recursion inside": ("rel s(x) = r(x) rel s(x + 1) = s(x), x < 32767", {"r": [1]}, "i16", 0),
    "a bound name": ("rel s(y) = r(x), y == x + 1", {"r": [127]}, "i8", 1),
    "an aggregate's value": ("rel s(t) = t := max(y: r(x), y == x * 2)", {"r": [100, 3]}, "i8", 1),
    "two relations that never meet": (
        "rel s(x * y) = r(x), q(x, y)",
        {"r": [100, 3], "q": [(3, 9), (50, 90)]},
        "i8",
        0,
    ),
    "two relations that meet": ("rel s(x * y) = r(x), q(x, y)", {"r": [100, 50], "q": [(3, 9), (50, 90)]}, "i8", 1),
    "a negation": ("rel s(x + 100) = r(x), not n(x)", {"r": [100, 5], "n": [100]}, "i8", 0),
    "a range": ("rel s(x * 2) = r(n), x in 0..n", {"r": [100]}, "i8", 1),
    "constants": ("rel s(100 * 2) = r(_)", {"r": [1]}, "i8", 1),
    "a branch": ("rel s(if x > 50 then x - 100 else x + 70) = r(x)", {"r": [10, 90]}, "i8", 0),
}


@pytest.mark.parametrize("provenance", ["unit", "minmaxprob", "exact"])
@pytest.mark.parametrize("name", CASES)
def test_what_is_a_value_beyond_its_type(name, provenance):
    rules, facts, t, number = CASES[name]
    columns = {"q": f"x: {t}, y: {t}"}
    types = " ".join(f"type {one}({columns.get(one, f'x: {t}')})" for one in (*facts, "s"))
    program = dv.Program(f"{types} {rules} query s")
    rows = {one: [row if isinstance(row, tuple) else (row,) for row in some] for one, some in facts.items()}
    found = warned(lambda: program.run(rows, provenance))
    assert len(found) == number, found
    # The same run does not say it again.
    assert not warned(lambda: program.run(rows, provenance))


def test_kernels_and_runs_of_a_few_rows_say_it_too():
    """The rule is compiled for many rows, and the whole program after many runs."""
    rows = np.arange(200_000, dtype=np.int64)
    many = dv.Program("type r(i64) rel s(x * 4611686018427387904) = r(x), x < 2 rel t(x * 3) = r(x) query s query t")
    assert not warned(lambda: many.run({"r": rows}))
    assert len(warned(lambda: many.run({"r": np.append(rows, 2**62)}))) == 1
    small, generator = dv.Program("type r(i32, i32) rel t(x, y * 2) = r(x, y), y > 0 query t"), random.Random(3)
    for k in range(300):
        facts = [(generator.randrange(100), generator.randrange(100)) for _ in range(20)]
        last = k == 299
        found = warned(lambda: small.run({"r": [*facts, (1, 2_000_000_000)] if last else facts}))  # noqa: B023
        assert len(found) == last
    assert "4000000000" in found[0]


def test_runs_of_numbers_as_small_as_before_say_it():
    """A product of more numbers, none of which is larger than those of the runs before."""
    chain = dv.Program(
        "type n(i: i32, v: i32) rel t(1, v) = n(1, v) rel t(i + 1, v * w) = t(i, v), n(i + 1, w) query t"
    )
    few = [(i, 9) for i in range(1, 6)]
    for _ in range(20):
        assert not warned(lambda: chain.run({"n": [*few, (30, 0)]}))
    (text,) = warned(lambda: chain.run({"n": [(i, 9) for i in range(1, 16)]}))
    assert f"is {9**10}, which i32" in text


@pytest.mark.parametrize("t", ["u64", "usize", "i64"])
def test_bounds_near_zero_are_exact(t, monkeypatch):
    """No rule is run again for numbers far from the ends of a type of 64 bits, of which one is 0."""
    monkeypatch.setattr(overflow._Looking, "searched", lambda *_: pytest.fail("the bounds were not enough"))
    program = dv.Program(f"type r({t}, {t}) rel s(x + 1, $max(x, y) + x, x * y % 7, $pow(y, 2)) = r(x, y) query s")
    for _ in range(20):
        assert not warned(lambda: program.run({"r": [(0, 3), (5, 9)]}))


def test_additions_to_a_database_say_it():
    database = dv.Program("type r(i32) rel s(x + 1) = r(x) query s").run({"r": [(1,)]}, keep=True)
    assert not warned(lambda: database.add({"r": [(7,)]}))
    assert "is 2147483648" in warned(lambda: database.add({"r": [(2147483647,)]}))[0]


def test_layers_say_it():
    rules = "type a(i32) rel s(x * 2) = a(x) query s"
    coins = {"a": dv.independent([2_000_000_000, 1])}
    found = warned(lambda: dv.nn.Logic(rules, coins, {"s": [2]})(torch.tensor([0.5, 0.5])))
    assert sum("4000000000" in text for text in found) == 1


def test_the_largest_powers_are_told_by_their_size():
    """Python refuses to write integers of more than 4,300 digits."""

    def warning(x, n):
        program = dv.Program("type q(x: i128, n: u32)\nrel r($pow(x, n)) = q(x, n)\nquery r")
        (text,) = warned(lambda: program.run({"q": [(x, n)]}))
        return text

    assert "is beyond 2^14350, which i128 does not hold" in warning(2**127 - 1, 113)
    assert 2**14350 < (2**127 - 1) ** 113 < 2**14351
    assert "is beyond -2^12474, which" in warning(-(2**126), 99)
    assert f"is {10**50}, which" in warning(10, 50)
