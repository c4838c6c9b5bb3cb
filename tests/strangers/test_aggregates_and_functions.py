"""An aggregate and foreign functions of a user's own, in programs, layers and on the command line."""

import itertools
import json
import math
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import derivable as dv
from derivable.datalog.aggregates import AGGREGATES
from derivable.datalog.facts.program_facts import load_program_facts
from derivable.datalog.facts.store import FactStore
from derivable.datalog.foreign.standard import FUNCTIONS
from derivable.datalog.ram.interpret import interpret
from strangers.dual import dual
from strangers.mean import mean
from strangers.words import half

HERE = Path(__file__).parent
MEAN = "rel m(a) = a := mean(x: e(x))\nquery m\n"
CHANCES = {1: 0.5, 2: 0.25, 6: 0.75, 3: 0.5}


def worlds(chances):
    """(the numbers that are there, the probability) of every world."""
    for bits in itertools.product([0, 1], repeat=len(chances)):
        there = [x for x, bit in zip(chances, bits) if bit]
        yield there, math.prod(p if bit else 1 - p for p, bit in zip(chances.values(), bits))


def means(chances):
    found = {}
    for there, p in worlds(chances):
        if there:
            mean = sum(there) / len(there)
            found[mean,] = found.get((mean,), 0.0) + p
    return found


def test_the_records_are_short():
    assert AGGREGATES["mean"] is mean
    assert len((HERE / "mean.py").read_text().splitlines()) <= 25
    assert len((HERE / "words.py").read_text().splitlines()) <= 25


def test_certain_rows():
    text = """rel g = {(0, 1), (0, 2), (1, 7), (2, 3), (2, 3), (2, 8)}
    rel by(k, a) = a := mean(x: g(k, x))
    rel all(a) = a := mean(x: g(_, x))
    rel empty(a) = a := mean(x: g(9, x))
    rel asked(k, a) = a := mean(x: g(k, x) where k: k in 1..4)
    rel f = {1.5, 2.5}
    rel of_floats(a) = a := mean(x: f(x))"""
    program = dv.Program(text)
    db = program.run()
    assert set(db["by"]) == {(0, 1.5), (1, 7.0), (2, 5.5)}
    assert set(db["all"]) == {(np.mean([1, 2, 7, 3, 8]),)}
    assert len(db["empty"]) == 0
    assert set(db["asked"]) == {(1, 7.0), (2, 5.5)}
    assert set(db["of_floats"]) == {(2.0,)}


def test_the_reference_interpreter_agrees():
    program = dv.Program(
        """rel g = {(0, 1), (0, 2), (1, 7), (2, 3), (2, 8)}
        rel by(k, a) = a := mean(x: g(k, x))
        rel h($half(x)) = g(_, x)"""
    )
    ram, store = program.lowered(), FactStore()
    load_program_facts(ram, store)
    facts = {rows.relation: {tuple(row) for row in rows.rows} for rows in ram.facts}
    model, db = interpret(ram, facts), program.run()
    for name in ("by", "h"):
        assert set(model[name]) == set(db[name])


def test_uncertain_rows_in_all_worlds():
    db = dv.Program(MEAN).run(facts={"e": CHANCES})
    assert db.provenance == "exact"
    assert dict(db["m"].items()) == pytest.approx(means(CHANCES))


def test_uncertain_rows_in_a_semiring_on_nests():
    """Dual numbers: the probability of each mean, and its derivative by that of the first fact."""
    db = dv.Program(MEAN).run(facts={"e": CHANCES}, provenance=dual)
    up, down = means({**CHANCES, 1: 0.75}), means({**CHANCES, 1: 0.25})
    for value, p in means(CHANCES).items():
        slope = (up.get(value, 0) - down.get(value, 0)) / 0.5
        assert db["m"][value] == pytest.approx((p, slope), abs=1e-12)


def test_groups_that_are_asked_for():
    text = "type g(i32, i32)\nrel k = {0, 1}\nrel m(y, a) = a := mean(x: g(y, x) where y: k(y))"
    db = dv.Program(text).run(facts={"g": {(0, 2): 0.5, (0, 4): 0.5, (2, 9): 0.5}})
    assert dict(db["m"].items()) == pytest.approx({(0, 2.0): 0.25, (0, 4.0): 0.25, (0, 3.0): 0.25})


@pytest.mark.parametrize("provenance", ["exact", "max_product", "addmultprob"])
def test_a_layer(provenance):
    wanted = sorted(means(CHANCES))
    layer = dv.nn.Logic("type e(i32)\n" + MEAN, {"e": dv.independent(list(CHANCES))}, {"m": wanted}, provenance)
    p = torch.tensor([list(CHANCES.values())], dtype=torch.float64, requires_grad=True)
    found = layer(p)[0].tolist()
    db = dv.Program(MEAN).run(facts={"e": CHANCES}, provenance=provenance)
    assert found == pytest.approx([db["m"][mean] for mean in wanted])
    # Without ties, at which a maximum has no derivative.
    apart = torch.tensor([[0.31, 0.22, 0.83, 0.44]], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(layer, (apart,))


def test_functions():
    text = """rel person = {("Ada", "Lovelace"), ("Alan", "Turing")}
    rel short($initials(a, b)) = person(a, b)
    rel n = {1, 2, 4, 7}
    rel h($half(x)) = n(x)
    rel even(x) = n(x), $half(x) > 0
    rel far($distance(3.0, 4.0) + 1.0)
    rel quarter($half($half(x))) = n(x)"""
    db = dv.Program(text).run()
    assert set(db["short"]) == {("AL",), ("AT",)}
    assert set(db["h"]) == {(1,), (2,)}
    assert set(db["even"]) == {(2,), (4,)}
    assert set(db["far"]) == {(6.0,)}
    assert set(db["quarter"]) == {(1,)}


def test_functions_keep_tags_and_gradients():
    text = "type n(i32)\nrel h($half(x)) = n(x)"
    layer = dv.nn.Logic(text, {"n": dv.independent([2, 3, 4])}, {"h": [1, 2, 3]})
    p = torch.tensor([0.5, 0.25, 0.75], requires_grad=True)
    found = layer(p)
    assert found.tolist() == [0.5, 0.75, 0.0]
    found.sum().backward()
    assert p.grad is not None
    assert p.grad.tolist() == [1.0, 0.0, 1.0]


def test_on_the_command_line(tmp_path):
    program = tmp_path / "program.scl"
    program.write_text(f"rel e = {{1, 2, 6}}\n{MEAN}rel h($half(x)) = e(x)\nquery h\n")
    files = ["--python", str(HERE / "mean.py"), "--python", str(HERE / "words.py")]
    command = [sys.executable, "-m", "derivable.cli", "run", str(program), *files, "--json"]
    document = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    assert document["m"]["tuples"] == [[3.0]]
    assert sorted(document["h"]["tuples"]) == [[1], [3]]
    broken = tmp_path / "broken.py"
    broken.write_text("import math\n\nmath.sqrt(-1)\n")
    refused = subprocess.run([*command[:5], "--python", str(broken)], capture_output=True, text=True)
    assert refused.returncode == 1
    assert "line 3: ValueError" in refused.stderr


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("rel e = {1}\nrel m(a) = a := mean(x, y: e(x), e(y))", "`mean` folds one variable, 2 are given"),
        ('rel e = {"a"}\nrel m(a) = a := mean(x: e(x))', "type clash"),
        ("rel e = {1}\nrel m(a) = a := meen(x: e(x))", "did you mean `mean`"),
        ("rel e = {1}\nrel m($halve(x)) = e(x)", r"unknown function `\$halve`"),
        ("rel e = {1}\nrel m($half(x, x)) = e(x)", "takes one argument, 2 are given"),
        ('rel e = {"a"}\nrel m($half(x)) = e(x)', "type clash"),
    ],
)
def test_misuse_in_programs(text, message):
    with pytest.raises(dv.DerivableError, match=message):
        dv.Program(text)


def test_misuse_of_records():
    add = dv.parallel.operator(lambda a, b: a + b, neutral=0.0)
    with pytest.raises(dv.DerivableError, match="is taken"):
        dv.datalog.aggregate("mean", add, lift=lambda x: x, result=lambda s: s, returns="f64")
    with pytest.raises(dv.DerivableError, match="not a type of the language"):
        dv.datalog.aggregate("new", add, lift=lambda x: x, result=lambda s: s, returns="float")
    with pytest.raises(dv.DerivableError, match="no annotation"):
        dv.datalog.function(lambda x: x, name="bare")
    with pytest.raises(dv.DerivableError, match="is taken"):
        dv.datalog.function(name="half")(_typed)
    assert dv.datalog.function(half) is half

    @dv.datalog.function
    def liar(x: int) -> str:
        return x  # type: ignore[return-value]

    try:
        with pytest.raises(dv.DerivableError, match="not of the type String"):
            dv.Program("rel e = {1}\nrel m($liar(x)) = e(x)").run()
    finally:
        FUNCTIONS.remove("liar")


def _typed(x: int) -> int:
    return x


def test_parameters():
    """The share of the numbers above a bound, in parts of so many."""
    share = dv.datalog.aggregate(
        "share",
        dv.parallel.operator(lambda a, b: (a[0] + b[0], a[1] + b[1]), neutral=(0.0, 0.0)),
        lift=lambda x, above, of, strict: (
            dv.where(dv.cast(x, "float64") > above, 1.0, 0.0)
            + (0.0 if strict else dv.where(dv.cast(x, "float64") == above, 1.0, 0.0)),
            1.0,
        ),
        result=lambda state, above, of, strict: of * state[0] / state[1],
        returns="f64",
        parameters={"above": 0, "of": 1.0, "strict": True},
    )
    try:
        text = """rel e = {1, 2, 3, 4}
        rel plain(a) = a := share(x: e(x))
        rel percent(a) = a := share<2, 100>(x: e(x))
        rel named(a) = a := share<of=10, above=2.5>(x: e(x))
        rel weak(a) = a := share<2, strict=false>(x: e(x))"""
        program = dv.Program(text)
        db, wanted = program.run(), {"plain": 1.0, "percent": 50.0, "named": 5.0, "weak": 0.75}
        meaning = interpret(program.lowered(), {"e": [1, 2, 3, 4]})
        for name, value in wanted.items():
            assert set(db[name]) == meaning[name] == {(value,)}
        chances = {1: 0.5, 2: 0.5, 3: 0.5}
        db = dv.Program("type e(i32) rel s(a) = a := share<1>(x: e(x))").run(facts={"e": chances})
        expected = {}
        for there, p in worlds(chances):
            if there:
                key = (sum(x > 1 for x in there) / len(there),)
                expected[key] = expected.get(key, 0.0) + p
        assert dict(db["s"].items()) == pytest.approx(expected)
        with pytest.raises(dv.DerivableError, match=r"did you mean `above`"):
            dv.Program("rel e = {1} rel s(a) = a := share<abov=1>(x: e(x))")
        with pytest.raises(dv.DerivableError, match="is a number, not"):
            dv.Program('rel e = {1} rel s(a) = a := share<above="1">(x: e(x))')
    finally:
        AGGREGATES.remove(share.name)
    add = dv.parallel.operator(lambda a, b: a + b, neutral=0.0)
    with pytest.raises(dv.DerivableError, match="a number or a bool"):
        dv.datalog.aggregate(
            "new", add, lift=lambda x, p: x, result=lambda s, p: s, returns="f64", parameters={"p": "text"}
        )
