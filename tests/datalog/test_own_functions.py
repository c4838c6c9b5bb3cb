"""Functions and predicates of a user's own: their types, forms and errors."""

import math
import re
from collections.abc import Iterator
from typing import Any, TypeVar

import numpy as np
import pytest

import derivable as dv
from derivable.datalog.foreign.predicate import ForeignPredicate
from derivable.datalog.foreign.signature import signature
from derivable.datalog.foreign.standard import FUNCTIONS, PREDICATES

T = TypeVar("T", int, float)
W = TypeVar("W")
U8 = "u8"


@pytest.fixture
def known():
    """What the test registers is forgotten after it."""
    before = set(FUNCTIONS.names()), set(PREDICATES.names())
    yield
    for registry, names in zip((FUNCTIONS, PREDICATES), before):
        for name in set(registry.names()) - names:
            registry.remove(name)


pytestmark = pytest.mark.usefixtures("known")


def run(text, relation="r", facts=None):
    return set(dv.Program(text, "own.scl").run(facts)[relation])


def test_types_by_annotations():
    @dv.datalog.function
    def middle(text: str, width: U8, fill: np.float32 = 0.5, *rest: bool) -> str | None:
        return f"{text}{width}{fill}{len(rest)}" if text else None

    @dv.datalog.function
    def twice(x: T) -> T:
        return x + x

    @dv.datalog.function
    def kind(x: Any) -> str:
        return type(x).__name__

    @dv.datalog.function
    def either(first: W, second: W, use_first: bool) -> W:
        return first if use_first else second

    shown = {name: str(FUNCTIONS[name].signature) for name in ("middle", "twice", "kind", "either")}
    assert shown == {
        "middle": "(String, u8, f32?, bool...) -> String",
        "twice": "<T: number>(T) -> T",
        "kind": "(any) -> String",
        "either": "<W>(W, W, bool) -> W",
    }
    assert run('rel r = {}\nrel r($middle("a", 3)) rel r($middle("", 3)) rel r($middle("b", 1, 2.0, true, false))') == {
        ("a30.50",),
        ("b12.02",),
    }
    assert run("type q(u8, f32)\nrel r($twice(x), $twice(y)) = q(x, y)", "r", {"q": [(3, 0.25)]}) == {(6, 0.5)}
    # Outside its type a value is none.
    assert run("type q(u8)\nrel r($twice(x)) = q(x)", "r", {"q": [(3,), (200,)]}) == {(6,)}
    assert run("rel r($kind(1), $kind(2.5), $kind('c'), $kind(true))") == {("int", "float", "str", "bool")}
    assert run('rel r($either("a", "b", false))') == {("b",)}


def test_functions_that_programs_declare():
    @dv.datalog.function
    def scaled(x: int, by: int = 2) -> int:
        return x * by

    text = "type $scaled(x: u8, u16) -> u16\ntype q(u8)\nrel r($scaled(x, 3)) = q(x)"
    program = dv.Program(text)
    assert "type r(u16)" in program.explain("types")
    assert program.explain("syntax").startswith("type $scaled(x: u8, u16) -> u16\n")
    assert set(program.run({"q": [200]})["r"]) == {(600,)}
    with pytest.raises(dv.DerivableError, match="takes 1 to 2 arguments, none declared"):
        dv.Program("type $scaled() -> u16")


def test_missing_values():
    @dv.datalog.function(drops=(ValueError, KeyError))
    def root(x: float) -> float:
        if x > 100:
            raise KeyError(x)
        return math.sqrt(x)

    facts = {"q": [4.0, -1.0, 900.0, -2.0, 9.0]}
    assert run("type q(f64)\nrel r(x, $root(x)) = q(x)", "r", facts) == {(4.0, 2.0), (9.0, 3.0)}


def test_columns_are_distinct_rows():
    sizes = []

    @dv.datalog.function(columns=True)
    def total(x: np.int64, y: np.int64) -> np.int64:
        sizes.append(len(x))
        return x + y

    calls = []

    @dv.datalog.function
    def one(x: np.int64) -> np.int64:
        calls.append(x)
        return -x

    rows = [(i, i % 3, i % 2) for i in range(60)]
    text = "type q(i64, i64, i64)\nrel r(i, $total(x, y), $one(x)) = q(i, x, y)"
    assert run(text, "r", {"q": rows}) == {(i, x + y, -x) for i, x, y in rows}
    assert sizes == [6]
    assert sorted(calls) == [0, 1, 2]


def test_traced_functions_are_fused(costs):
    @dv.datalog.function(traced=True)
    def bent(x: int, y: int) -> int:
        return dv.where(x < y, x * 2, x - y)

    @dv.datalog.function(traced=True)
    def inverse(x: float) -> float:
        return (x - x) / x + 1 / x

    @dv.datalog.function(traced=True)
    def is_small(x: int) -> bool:
        return x < 3

    assert run("type q(f64)\nrel r($inverse(x)) = q(x)", "r", {"q": [4.0, 0.0]}) == {(0.25,)}
    costs(few_rows=0, many_rows=0)
    e = [(i, (i * 7) % 11) for i in range(11)]
    text = "type e(i32, i32)\nrel r(x, $bent(x, z)) = e(x, y), e(y, z), $is_small(z)"
    expected = {(x, x * 2 if x < z else x - z) for x, y in e for a, z in e if a == y and z < 3}
    database = dv.Program(text).run({"e": e}, keep=True)
    assert set(database["r"]) == expected
    # The kernel has the whole rule: there is no reason why it has not.
    assert [(effort.route.name, effort.route.reason) for effort in database.profile.rules] == [("kernel", "")]


def test_predicates():
    @dv.datalog.predicate
    def divisor(n: int) -> Iterator[tuple[int]]:
        yield from ((d,) for d in range(1, n + 1) if n % d == 0)

    @dv.datalog.predicate
    def letter(text: str) -> Iterator[str]:
        yield from text

    @dv.datalog.predicate(outputs=("u8", str), drops=ValueError)
    def numbered(text: str):
        for i, word in enumerate(text.split("|")):
            if word == "stop":
                raise ValueError
            yield i, word

    @dv.datalog.predicate(name="known_at", outputs=())
    def _is_known(x: int, text: str):
        if x == len(text):
            yield ()

    assert str(PREDICATES["divisor"].signature) == "(integer) -> integer"
    assert str(PREDICATES["letter"].signature) == "(String) -> String"
    assert str(PREDICATES["numbered"].signature) == "(String) -> (u8, String)"
    assert str(PREDICATES["known_at"].signature) == "(integer, String) -> ()"
    assert run("rel r(n, d) = n in 5..=6, divisor(n, d)") == {(5, 1), (5, 5), (6, 1), (6, 2), (6, 3), (6, 6)}
    primes = "rel composite(n) = n in 2..30, divisor(n, d), d > 1, d < n\nrel r(n) = n in 2..30, not composite(n)"
    assert run(primes) == {(p,) for p in (2, 3, 5, 7, 11, 13, 17, 19, 23, 29)}
    assert run('rel r(c) = letter("hello", c)') == {(c,) for c in "helo"}
    assert run('rel r(i, w) = numbered("a|b|stop|c", i, w)') == {(0, "a"), (1, "b")}
    assert run('rel r(n) = n in 0..9, known_at(n, "four")') == {(4,)}


def test_predicates_of_several_inputs_at_once():
    seen = []

    def halves(numbers):
        seen.append(numbers)
        if (13,) in numbers:
            raise KeyError
        if (11,) in numbers:
            return [[]]
        return [[(0.5, (x // d,)) for d in range(1, x + 1) if x % d == 0] if x else iter(()) for (x,) in numbers]

    record = ForeignPredicate("halves", signature("(i32) -> i32"), halves, True, drops=(KeyError,), at_once=2)
    PREDICATES.add("halves", record)
    facts = {"n": [0, 1, 2, 3, 4]}
    found = dv.Program("type n(i32) rel r(x, y) = n(x), halves(x, y)").run(facts, provenance="addmultprob")["r"]
    assert dict(found.items()) == {(x, x // d): 0.5 for x in range(1, 5) for d in range(1, x + 1) if x % d == 0}
    assert seen == [[(0,), (1,)], [(2,), (3,)], [(4,)]]
    assert run("rel n = {12, 13, 14} rel r(x, y) = n(x), halves(x, y), y > 6") == {(14, 7), (14, 14)}
    with pytest.raises(dv.DerivableError, match="gives 1 lists of rows for 2 inputs"):
        run("rel n = {10, 11} rel r(x, y) = n(x), halves(x, y)")
    PREDICATES.remove("halves")
    PREDICATES.add("halves", ForeignPredicate("halves", signature("(i32) -> i32"), lambda numbers: 1 // 0, at_once=0))
    with pytest.raises(dv.DerivableError, match="the predicate halves failed for 10: ZeroDivisionError"):
        run("rel n = {10, 11} rel r(x, y) = n(x), halves(x, y)")


def test_tagged_predicates():
    @dv.datalog.predicate
    def likely(x: int) -> Iterator[tuple[float, tuple[int, str]]]:
        yield 0.5, (x + 1, "up")
        yield 0.25, (x - 1, "down")
        yield 1, "stays"

    text = "rel r(y) = likely(1, y, _)\nrel s(w) = likely(1, 2, w), likely(1, 0, _)\nrel t() = not likely(1, 2, _)"
    program = dv.Program(text)
    db = program.run()
    assert dict(db["r"].items()) == pytest.approx({(2,): 0.5, (0,): 0.25, (1,): 1.0})
    assert dict(db["s"].items()) == pytest.approx({("up",): 0.125})
    assert dict(db["t"].items()) == pytest.approx({(): 0.5})
    assert dict(program.run(provenance="minmaxprob")["s"].items()) == {("up",): 0.25}
    assert set(program.run(provenance="unit")["s"]) == {("up",)}


MISUSE = {
    "no_annotation": (
        lambda: dv.datalog.function(lambda x: x, name="bare"),
        "`x` of $bare has no annotation",
    ),
    "no_name": (lambda: dv.datalog.function(lambda x: x), "the name of a function is an identifier, not '<lambda>'"),
    "both_forms": (
        lambda: dv.datalog.function(name="f", columns=True, traced=True)(_typed),
        "the function $f takes columns or is traced, not both",
    ),
    "drops": (
        lambda: dv.datalog.function(name="f", drops=3)(_typed),
        "of the function $f are exceptions, not 3",
    ),
    "keyword": (lambda: dv.datalog.function(name="f")(_keyword), "which no call can fill"),
    "taken": (lambda: dv.datalog.function(name="abs")(_typed), "the function name 'abs' is taken"),
    "no_outputs": (lambda: dv.datalog.predicate(name="p")(_typed), "the predicate p does not say what it yields"),
    "optional_input": (
        lambda: dv.datalog.predicate(name="p", outputs=(int,))(_optional),
        "the predicate p has parameters that may be left out",
    ),
    "unknown_type": (lambda: signature("(x: Sting) -> u8"), "unknown type `Sting`"),
    "no_signature": (lambda: signature("String -> u8"), "is no signature"),
}


def _typed(x: int) -> int:
    return x


def _keyword(x: int, *, y: int) -> int:
    return x


def _optional(x: int = 0):
    yield (x,)


@pytest.mark.parametrize("name", MISUSE)
def test_misuse_of_decorators(name):
    call, message = MISUSE[name]
    with pytest.raises(dv.DerivableError, match=re.escape(message)):
        call()


def test_failures_name_the_arguments_and_the_line():
    @dv.datalog.function
    def broken(x: int, text: str) -> int:
        return x // (x - 2)

    @dv.datalog.predicate(outputs=(int, int))
    def uneven(x: int):
        yield (x,)

    @dv.datalog.predicate(outputs=(int,), tagged=True)
    def unlikely(x: int):
        yield 1.5, (x,)

    @dv.datalog.function
    def liar(x: int) -> str:
        return x  # type: ignore[return-value]

    @dv.datalog.function(columns=True)
    def short(x: int) -> int:
        return x[:1]

    @dv.datalog.predicate(outputs=(str,))
    def raises(x: int):
        raise RuntimeError("no answer")

    head = "rel n = {1, 2, 3}\n"
    for text, message in {
        'rel r($broken(x, "a")) = n(x)': "2:7: the function $broken failed for 2, 'a': ZeroDivisionError",
        'rel q(1)\nrel r(x) = n(x),\n  $broken(x, "b") > 0': "4:3: the function $broken failed for 2, 'b'",
        "rel r(y) = n(x), uneven(x, y, _)": "2:18: the predicate uneven gives (1,), 1 values for 2 outputs",
        "rel r(y) = n(x), unlikely(x, y)": "2:18: the tag 1.5 of a row of the predicate unlikely",
        "rel r($liar(x)) = n(x)": "2:7: the function $liar gives 1, which is not of the type String",
        "rel r($short(x)) = n(x)": "2:7: the function $short gives shape (1,) for 3 rows",
        "rel r(y) = n(x), raises(x, y)": "2:18: the predicate raises failed for 1: RuntimeError: no answer",
    }.items():
        with pytest.raises(dv.DerivableError) as caught:
            dv.Program(head + text, "own.scl").run()
        assert caught.value.report().replace("error: ", "").startswith(f"own.scl:{message}")
        assert "    ^" in caught.value.report() or "^^" in caught.value.report()
