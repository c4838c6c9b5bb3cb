"""Learned probabilities, against ProbLog's, against counting, and against the likelihood itself by enumeration."""

import itertools
import json
import math
import random

import numpy as np
import pytest

import derivable as dv
from derivable.circuit.compilation import choice as compiler
from derivable.cli.main import USER_ERROR, main
from derivable.core.diagnostics import BindingError
from derivable.datalog.syntax.text import syntax_text

ALARM = """
rel ?::burglary()
rel 0.2::earthquake()
rel ?0.5::alarm() = burglary()
rel ?0.4::alarm() = earthquake()
type person(String)  rel person = {"mary", "john"}
rel ?::calls(x) = alarm(), person(x)
"""
TRUE = {
    "burglary()": 0.3,
    "alarm() = burglary()": 0.9,
    "alarm() = earthquake()": 0.35,
    "calls(x) = alarm(), person(x)": 0.7,
}


def alarm_likelihood(values, interpretations):
    """The log-likelihood by enumeration of the six coins."""
    burglary, by_burglary, by_earthquake, calls = (values[name] for name in TRUE)
    chances = burglary, 0.2, by_burglary, by_earthquake, calls, calls
    total = 0.0
    for seen in interpretations:
        fitting = 0.0
        for coins in itertools.product((False, True), repeat=6):
            b, e, first, second, mary, john = coins
            alarm = (b and first) or (e and second)
            world = {"burglary": b, "earthquake": e, "alarm": alarm}
            called = {"mary": alarm and mary, "john": alarm and john}
            if all(
                all(called[x] == v for x, v in observed.items()) if name == "calls" else world[name] == observed
                for name, observed in seen.items()
            ):
                fitting += math.prod(p if coin else 1 - p for p, coin in zip(chances, coins))
        total += math.log(fitting)
    return total


def partial(worlds, generator, share=0.6):
    """What is seen of worlds of ALARM."""
    found = []
    for world in worlds:
        names = [name for name in ("burglary", "earthquake", "alarm") if generator.random() < share]
        seen = {name: bool(world[name]) for name in names}
        called = {x: (x,) in world["calls"] for x in ("mary", "john") if generator.random() < share}
        found.append({**seen, **({"calls": called} if called else {})})
    return found


def test_learning_finds_the_maximum_of_the_likelihood():
    program = dv.Program(ALARM)
    interpretations = partial(program.with_parameters(TRUE).sample(80, seed=5), np.random.default_rng(0))
    fit = program.fit(interpretations, tolerance=1e-9, steps=50_000)
    assert list(fit) == list(TRUE)
    assert fit.is_converged
    assert fit.log_likelihood == pytest.approx(alarm_likelihood(fit, interpretations), rel=1e-12)
    assert max(fit.curve) == pytest.approx(fit.log_likelihood, rel=1e-12)
    assert np.diff(fit.curve).min() > -1e-9
    by_gradient = program.fit(interpretations, method="gradient", tolerance=1e-8)
    assert by_gradient.log_likelihood == pytest.approx(fit.log_likelihood, abs=0.02)
    # No direction is up.
    for name in fit:
        for step in (-1e-3, 1e-3):
            moved = {**fit, name: min(max(fit[name] + step, 0.0), 1.0)}
            assert alarm_likelihood(moved, interpretations) < fit.log_likelihood + 1e-7


def test_the_parameters_of_synthetic_data_come_back():
    program = dv.Program(ALARM)
    worlds = program.with_parameters(TRUE).sample(20_000, seed=1)
    fit = program.fit(partial(worlds, np.random.default_rng(1), share=0.8))
    assert dict(fit) == pytest.approx(TRUE, abs=0.03)


def test_complete_data_are_counted():
    """Relative frequencies: of a fact, a tied rule, choices of facts and of heads, and of what these leave."""
    program = dv.Program("""
        rel ?0.3::a()
        type item(usize)
        rel ?::p(x) = item(x)
        rel colour = {?0.2::"red"; ?0.3::"green"; 0.4::"blue"}
        rel {?::left(x); ?::right(x); 0.25::middle(x)} = item(x)
    """)
    rng = random.Random(5)
    worlds, counts = [], dict.fromkeys(("a", "p", "red", "green", "rest", "left", "right"), 0)
    for _ in range(200):
        a, items = rng.random() < 0.8, {i: rng.random() < 0.35 for i in range(3)}
        colour = rng.choices(["red", "green", "blue", None], [0.3, 0.2, 0.4, 0.1])[0]
        sides = {i: rng.choices(["left", "right", "middle"], [0.5, 0.25, 0.25])[0] for i in range(3)}
        seen = {"a": a, "p": items, "colour": {c: c == colour for c in ("red", "green", "blue")}}
        seen |= {side: {i: sides[i] == side for i in range(3)} for side in ("left", "right", "middle")}
        worlds.append(seen)
        counts["a"] += a
        counts["p"] += sum(items.values())
        for name in ("red", "green"):
            counts[name] += colour == name
        counts["rest"] += colour is None
        for name in ("left", "right"):
            counts[name] += list(sides.values()).count(name)
    fit = program.fit(worlds, {"item": [0, 1, 2]})
    of_colour = 0.6 / (counts["red"] + counts["green"] + counts["rest"])
    of_sides = 0.75 / (counts["left"] + counts["right"])
    expected = {
        "a()": counts["a"] / 200,
        "p(x) = item(x)": counts["p"] / 600,
        'colour("red")': counts["red"] * of_colour,
        'colour("green")': counts["green"] * of_colour,
        "left(x) = item(x)": counts["left"] * of_sides,
        "right(x) = item(x)": counts["right"] * of_sides,
    }
    assert dict(fit) == pytest.approx(expected, abs=1e-6)
    by_gradient = program.fit(worlds, {"item": [0, 1, 2]}, method="gradient", tolerance=1e-11)
    assert dict(by_gradient) == pytest.approx(expected, abs=1e-4)
    # With pseudo-counts: a holds 2 times more, and does not hold once more; other shares have none.
    with_prior = program.fit(worlds, {"item": [0, 1, 2]}, prior={"a()": (2, 1), 'colour("red")': 5})
    assert with_prior["a()"] == pytest.approx((counts["a"] + 2) / 203, abs=1e-9)


def problog_fit(model, examples, **options):
    """(its parameters in order, iterations); examples are lists of (atom, truth value)."""
    learning = pytest.importorskip("problog.learning.lfi")
    from problog.logic import Term
    from problog.program import PrologString

    random.seed(1)
    given = [[(Term.from_string(atom), value) for atom, value in example] for example in examples]
    _, weights, *_ = learning.run_lfi(PrologString(model), given, **options)
    return weights


LEARNING = {
    # The tutorial's alarm, from complete and partial interpretations.
    "alarm": (
        "t(0.5)::burglary. 0.2::earthquake. t(0.4)::p1. t(0.6)::p2. alarm :- burglary, earthquake, p1."
        " alarm :- burglary, \\+earthquake, p2.",
        "rel ?0.5::burglary() rel 0.2::earthquake() rel ?0.4::alarm() = burglary(), earthquake()"
        " rel ?0.6::alarm() = burglary(), not earthquake()",
        [
            {"burglary": False, "alarm": False},
            {"earthquake": False, "alarm": True, "burglary": True},
            {"burglary": True, "earthquake": True, "alarm": False},
            {"burglary": True, "earthquake": True, "alarm": True},
            {"burglary": True, "earthquake": False, "alarm": False},
            {"burglary": False},
        ],
    ),
    # A coin that is seen through a sum of causes alone.
    "hidden": (
        "t(0.3)::a. 0.6::b. c :- a. c :- b.",
        "rel ?0.3::a() rel 0.6::b() rel c() = a() rel c() = b()",
        [{"c": True}] * 7 + [{"c": False}] * 2,
    ),
    # A tied intensional rule: one parameter for every pair of people.
    "smokers": (
        "person(1). person(2). person(3). t(0.2)::stress(X) :- person(X)."
        " t(0.3)::influences(X,Y) :- person(X), person(Y), X \\== Y."
        " smokes(X) :- stress(X). smokes(X) :- influences(Y,X), stress(Y).",
        "type person(usize) rel person = {1, 2, 3} rel ?0.2::stress(x) = person(x)"
        " rel ?0.3::influences(x, y) = person(x), person(y), x != y"
        " rel smokes(x) = stress(x) rel smokes(x) = influences(y, x), stress(y)",
        [
            {"smokes": {1: True, 2: False, 3: False}},
            {"smokes": {1: True, 2: True, 3: False}, "stress": {1: True, 2: False}},
            {"smokes": {1: False, 2: False, 3: False}},
            {"smokes": {1: True, 2: True, 3: True}, "stress": {1: True, 2: False, 3: False}},
        ],
    ),
    # An annotated disjunction, whose values are all seen.
    "values": (
        "t(0.3)::red; t(0.3)::green; t(0.4)::blue. warm :- red.",
        "rel {?0.3::red(); ?0.3::green(); ?0.4::blue()} rel warm() = red()",
        [
            {"red": True, "green": False, "blue": False},
            {"red": True, "green": False, "blue": False},
            {"red": False, "green": True, "blue": False},
            {"red": False, "green": False, "blue": True},
            {"red": False, "green": False, "blue": True},
        ],
    ),
    # Partly seen.
    "hues": (
        "t(0.3)::red; t(0.3)::green; t(0.4)::blue. warm :- red. warm :- green.",
        "rel {?0.3::red(); ?0.3::green(); ?0.4::blue()} rel warm() = red() or green()",
        [{"warm": True}, {"red": True}, {"green": True}, {"green": True}, {"warm": False}, {"red": False}],
    ),
    # One with a body, for each person.
    "sides": (
        "person(1). person(2). t(0.5)::left(X); t(0.5)::right(X) :- person(X).",
        "type person(usize) rel person = {1, 2} rel {?0.5::left(x); ?0.5::right(x)} = person(x)",
        [
            {"left": {1: True, 2: True}, "right": {1: False, 2: False}},
            {"left": {1: True, 2: False}, "right": {1: False, 2: True}},
        ],
    ),
}


def atoms_of(interpretation):
    for name, observed in interpretation.items():
        if isinstance(observed, bool):
            yield name, observed
        else:
            yield from ((f"{name}({row})", value) for row, value in observed.items())


@pytest.mark.parametrize("name", LEARNING)
def test_problog_learns_the_same(name):
    theirs, ours, interpretations = LEARNING[name]
    expected = problog_fit(theirs, [list(atoms_of(one)) for one in interpretations], min_improv=1e-13, normalize=True)
    fit = dv.Program(ours).fit(interpretations, tolerance=1e-13, steps=20_000)
    assert list(fit.values()) == pytest.approx(expected, abs=2e-4)
    # And from the program as it stands.
    read = dv.Program.from_problog(theirs.replace("\\==", "\\="))
    assert list(read.fit(interpretations, tolerance=1e-13, steps=20_000).values()) == pytest.approx(expected, abs=2e-4)


def learned_by_enumeration(start, fixed, interpretations):
    """EM over the values of one choice; what the heads leave is a value that nothing holds of."""

    def holds(atom, value):
        return value in ("red", "green") if atom == "warm" else value == atom

    chances = {**start, None: 1.0 - sum(start.values())}
    free = [value for value in chances if value not in fixed]
    for _ in range(5000):
        counts = dict.fromkeys(chances, 0.0)
        for seen in interpretations:
            fits = {
                value: chance
                for value, chance in chances.items()
                if all(holds(atom, value) == truth for atom, truth in seen.items())
            }
            for value, chance in fits.items():
                counts[value] += chance / sum(fits.values())
        share = sum(chances[value] for value in free) / sum(counts[value] for value in free)
        chances |= {value: counts[value] * share for value in free}
    return [chances[value] for value in start if value not in fixed]


HUES = [{"warm": True}, {"red": True}, {"green": True}, {"green": True}, {"warm": False}, {"red": False}]
EXCLUSIVE = [{"red": True, "green": False}] * 2 + [{"red": False, "green": True}, {"red": False, "green": False}]


@pytest.mark.parametrize(
    ("start", "fixed", "interpretations"),
    [
        ({"red": 0.3, "green": 0.3, "blue": 0.4}, (), HUES),
        ({"red": 0.3, "green": 0.3}, (), HUES),
        ({"red": 0.3, "green": 0.3}, (), EXCLUSIVE),
        ({"red": 0.3, "green": 0.3, "blue": 0.4}, ("blue",), HUES),
        ({"red": 0.3, "green": 0.2, "blue": 0.4}, ("blue",), HUES),
    ],
    ids=["whole", "what is left", "what is left is seen", "one is fixed", "one is fixed, and what is left"],
)
def test_choices_are_learned_as_by_enumeration(start, fixed, interpretations):
    """ProbLog's learner agrees on the first alone: with `normalize` its heads take what is to be left, so that
    interpretations in which none holds are ignored as impossible; without, the likelihood is less."""
    heads = "; ".join(f"{'' if head in fixed else '?'}{chance}::{head}()" for head, chance in start.items())
    fit = dv.Program(f"rel {{{heads}}} rel warm() = red() or green()").fit(
        interpretations, tolerance=1e-14, steps=20_000
    )
    expected = learned_by_enumeration(start, fixed, interpretations)
    assert list(fit.values()) == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("seed", [0, *(pytest.param(s, marks=pytest.mark.slow) for s in range(1, 30))])
def test_random_programs_rise_to_a_stationary_point(seed):
    """The likelihood of a fit is that of runs with its probabilities, and moves along no parameter."""
    rng = random.Random(seed)
    names = ["a", "b", "c", "d"]
    rules = [f"rel ?{rng.choice([0.3, 0.6])}::{name}()" for name in names[:2]]
    rules.append("rel {?0.3::u(); ?0.3::v(); 0.2::w()}" if seed % 2 else "rel {?::u(); ?::v(); ?::w()}")
    heads = ["p", "q", "r"]
    for number, head in enumerate(heads):
        for _ in range(2):
            pool = [*names[:2], "u", "v", "w", *heads[:number]]
            body = ", ".join(f"{rng.choice(['', '', 'not '])}{atom}()" for atom in rng.sample(pool, 2))
            tag = rng.choice(["", "0.7::", "?0.5::", f"?{rng.choice([0.2, 0.8])}::"])
            rules.append(f"rel {tag}{head}() = {body}")
    program = dv.Program("\n".join(rules))
    source = program.with_parameters({})
    worlds = source.sample(4 if seed < 1 else 12, seed=seed)
    seen = []
    for world in worlds:
        picked = rng.sample([*names[:2], "u", "v", "w", *heads], rng.randint(1, 5))
        seen.append({name: bool(world[name]) for name in picked})
    fit = program.fit(seen, tolerance=1e-9, steps=5000)
    assert np.diff(fit.curve).min() > -1e-8

    def likelihood(values):
        run = program.with_parameters(values)
        return sum(run.run(evidence=one).log_evidence for one in seen)

    assert likelihood(dict(fit)) == pytest.approx(fit.log_likelihood, rel=1e-9)
    for name in list(fit)[: 0 if seed < 1 else 4]:
        if name not in ("u()", "v()", "w()") and 0.01 < fit[name] < 0.99:
            up, down = (likelihood({**fit, name: fit[name] + step}) for step in (1e-4, -1e-4))
            assert abs(up - down) / 2e-4 < 0.1


def test_a_thousand_interpretations_are_one_circuit(calls_of):
    calls = calls_of(compiler, "compile_formula_dag")
    program = dv.Program(ALARM)
    worlds = program.with_parameters(TRUE).sample(1000, seed=4)
    calls.clear()
    fit = program.fit(partial(worlds, np.random.default_rng(2)))
    assert len(calls) == 1
    assert dict(fit) == pytest.approx(TRUE, abs=0.12)


def test_each_interpretation_may_have_facts_of_its_own(calls_of):
    """Families of the same form share a circuit, whoever is in them, and parameters anyhow."""
    text = """
        type child(String, String)
        rel ?0.4::carrier(x) = child(x, _)
        rel ?0.6::ill(y) = child(x, y), carrier(x)
    """
    rng, program = random.Random(0), dv.Program(text)
    seen, facts, ill, carriers, of_carriers = [], [], 0, 0, 0
    for number in range(60):
        parent, children = f"p{number}", [f"c{number}_{i}" for i in range(2)]
        facts.append({"child": [(parent, child) for child in children]})
        carrier = rng.random() < 0.5
        hits = {child: carrier and rng.random() < 0.8 for child in children}
        carriers += carrier
        ill += sum(hits.values())
        of_carriers += 2 * carrier
        # `carrier` has a coin for each child.
        seen.append({"carrier": {parent: carrier}, "ill": hits})
    calls = calls_of(compiler, "compile_formula_dag")
    fit = program.fit(seen, facts, tolerance=1e-10)
    assert len(calls) == 1
    # One of two coins: 1 - (1 - p)^2 is how often a parent is a carrier.
    expected = {
        "carrier(x) = child(x, _)": 1 - math.sqrt(1 - carriers / 60),
        "ill(y) = child(x, y), carrier(x)": ill / of_carriers,
    }
    assert dict(fit) == pytest.approx(expected, abs=1e-5)
    # The same as one interpretation of all families: what is apart stays apart.
    all_seen = {name: {row: v for one in seen for row, v in one[name].items()} for name in ("carrier", "ill")}
    together = program.fit([all_seen], {"child": [row for one in facts for row in one["child"]]}, tolerance=1e-10)
    assert len(calls) == 2
    assert together.log_likelihood == pytest.approx(fit.log_likelihood, rel=1e-10)
    assert dict(together) == pytest.approx(dict(fit), abs=1e-6)


def test_several_starts_find_what_one_does_not():
    """Two hidden classes are exchangeable: from equal starts neither becomes the one or the other."""
    text = """
        type at(usize)  rel {first(x); second(x)} = at(x)
        rel ?0.5::m(x) = first(x)  rel ?0.5::m(x) = second(x)
        rel ?0.5::n(x) = first(x)  rel ?0.5::n(x) = second(x)
    """
    seen = [{"m": {0: True}, "n": {0: True}}] * 9 + [{"m": {0: False}, "n": {0: False}}] * 9
    seen += [{"m": {0: True}, "n": {0: False}}] * 2
    one, several = (dv.Program(text).fit(seen, {"at": [0]}, starts=n, seed=1) for n in (1, 4))
    assert len(several.log_likelihoods) == 4
    assert several.log_likelihood == max(several.log_likelihoods)
    assert several.log_likelihood > one.log_likelihood + 3


def test_fitted_programs_are_texts(tmp_path):
    program = dv.Program('// seen\nrel ?::a() // a tunable one\nrel c = {?0.25::"x"; 0.5::"y"}\nrel ?0.4::b() = a()\n')
    assert program.run()["a"][()] == 0.5
    made = program.with_parameters({"a()": 0.125, 'c("x")': 0.375, "b() = a()": 1.0})
    assert made.text == '// seen\nrel 0.125::a() // a tunable one\nrel c = {0.375::"x"; 0.5::"y"}\nrel 1.0::b() = a()\n'
    assert dict(made.run()["c"]) == {("x",): pytest.approx(0.375), ("y",): pytest.approx(0.5)}
    # Some of them alone; the others stay tunable.
    assert "?0.25" in program.with_parameters({"a()": 0.125}).text
    (tmp_path / "lib.scl").write_text("rel ?0.5::a()\nrel {?0.2::u(); ?::v()} = a()")
    (tmp_path / "main.scl").write_text('import "lib.scl"\nrel ?0.3::b() = a()')
    imported = dv.Program.from_file(tmp_path / "main.scl")
    assert list(imported.fit([{"a": True}])) == ["a()", "u() = a()", "v() = a()", "b() = a()"]
    made = imported.with_parameters({"a()": 0.75, "b() = a()": 0.5, "u() = a()": 0.5, "v() = a()": 0.5})
    assert dict(made.run()["b"]) == {(): pytest.approx(0.375)}
    assert dict(made.run()["u"]) == {(): pytest.approx(0.375)}
    # What is printed reads back.
    again = dv.Program(imported.explain("syntax"))
    assert again.explain("syntax") == imported.explain("syntax")


@pytest.mark.parametrize("provenance", ["exact", "topkproofs", "minmaxprob", "unit", "addmultprob"])
def test_choices_of_heads_with_probabilities(provenance):
    text = "type t(usize) rel {0.2::a(x); 0.3::b(x)} = t(x), x > 0 rel ab(x) = a(x) or b(x) rel both() = a(1), b(1)"
    found = dv.Program(text).run({"t": [0, 1, 2]}, provenance)
    if provenance == "unit":
        assert set(found["ab"]) == {(1,), (2,)}
        return
    assert dict(found["a"]) == {(1,): pytest.approx(0.2), (2,): pytest.approx(0.2)}
    if provenance in ("exact", "topkproofs"):
        assert dict(found["ab"]) == {(1,): pytest.approx(0.5), (2,): pytest.approx(0.5)}
        assert dict(found["both"]) == {}


def test_choices_of_heads_in_problog():
    problog = pytest.importorskip("problog.program")
    from problog import get_evaluatable

    theirs = (
        "n(1). n(2). 0.5::on(1). 0.2::a(X); 0.3::b(X); 0.4::c(X) :- n(X), on(1). d :- a(1), b(2). d :- c(1), \\+c(2)."
        " e :- a(1), \\+b(1). query(d). query(e). query(c(2)). evidence(b(2),false)."
    )
    expected = get_evaluatable().create_from(problog.PrologString(theirs)).evaluate()
    expected = {str(term): p for term, p in expected.items()}
    ours = dv.Program(
        "type n(usize) rel n = {1, 2} rel 0.5::on(1) rel {0.2::a(x); 0.3::b(x); 0.4::c(x)} = n(x), on(1)"
        " rel d() = a(1), b(2) rel d() = c(1), not c(2) rel e() = a(1), not b(1) evidence not b(2)"
    ).run()
    assert ours["d"][()] == pytest.approx(expected["d"], abs=1e-12)
    assert ours["e"][()] == pytest.approx(expected["e"], abs=1e-12)
    assert ours["c"][(2,)] == pytest.approx(expected["c(2)"], abs=1e-12)


def test_layers_have_choices_of_heads():
    layer = dv.nn.Logic(
        "type t(usize) rel {0.2::a(x); 0.3::b(x)} = t(x) rel ab(x) = a(x) or b(x)",
        inputs={"t": dv.independent([0, 1])},
        outputs={"a": [0, 1], "ab": [1]},
    )
    import torch

    found = layer(t=torch.tensor([[0.5, 1.0]], dtype=torch.float64))
    assert found["a"][0].tolist() == pytest.approx([0.1, 0.2])
    assert found["ab"][0].tolist() == pytest.approx([0.5])


SMALL = "rel ?0.5::a() rel 0.5::b() rel c() = a(), b() type p(usize) rel ?::q(x) = p(x)"


@pytest.mark.parametrize(
    ("interpretations", "options", "message"),
    [
        ([], {}, "no interpretations"),
        ({"a": True}, {}, "the interpretations are a dict"),
        ([{"a": True}, 3], {}, "interpretation 1 is a int"),
        ([{"a": True}, {"z": True}], {}, "interpretation 1: evidence of an unknown relation `z`"),
        ([{"a": 0.3}], {}, "interpretation 0: the evidence of `a` is 0.3"),
        ([{"a": True}, {"c": True, "b": False}], {}, r"interpretation 1 is impossible: `not b\(\)` holds in no world"),
        ([{"a": True}, {"q": [7]}], {}, r"interpretation 1 is impossible: `q\(7\)` holds in no world"),
        ([{"a": True}], {"method": "emm"}, "no method 'emm'"),
        ([{"a": True}], {"steps": -1}, "steps is -1"),
        ([{"a": True}], {"starts": 0}, "starts is 0"),
        ([{"a": True}], {"prior": -1.0}, "the prior of"),
        ([{"a": True}], {"prior": {"z()": 1.0}}, "a prior of 'z\\(\\)', which is not tunable"),
        ([{"a": True}], {"tolerance": "x"}, "tolerance is 'x'"),
        ([{"a": True}], {"facts": [{}, {}]}, "there are 1 interpretations, and facts of 2"),
        ([{"a": True}], {"facts": 3}, "the facts are a int"),
        ([{"a": True}], {"time_limit": 0}, "time_limit"),
    ],
)
def test_wrong_fits_are_named(interpretations, options, message):
    with pytest.raises(dv.DerivableError, match=message):
        dv.Program(SMALL).fit(interpretations, **options)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("rel ?1.5::a()", "lies between 0 and 1"),
        ("rel ?0::a()", "lies between 0 and 1"),
        ("rel ?0.5 a()", "expected `::`"),
        ("rel {0.2::a(), 0.3::b()}", "a choice of one of them"),
        ("rel {0.2::a(); b()}", "heads without are in one set"),
        ("rel {0.7::a(); 0.8::b()}", "add up to 1.5"),
        ("rel {1.0::a(); ?::b()}", "leave nothing"),
        ('rel c = {0.6::"x"; 0.4::"y"; ?::"z"}', "leave nothing"),
        ("rel ?0.5::{0.2::a(); 0.3::b()}", "has no tunable probability"),
        ("rel {0.2::a(x); 0.3::b(y)} = c(x)", "y"),
    ],
)
def test_wrong_tunables_are_named_where_they_stand(text, message):
    with pytest.raises(dv.DerivableError, match=message) as error:
        dv.Program(text).run()
    assert error.value.span is not None


def test_programs_of_problog_learn(tmp_path, capsys):
    file, data = tmp_path / "small.pl", tmp_path / "seen.json"
    file.write_text("t(_)::a. 0.5::b. c :- a, b. person(ann). person(bob). t(0.3)::calls(X) :- person(X), a.\n")
    data.write_text('["a", "calls(ann)", "not calls(bob)"]\n{"a": false}\n{"calls": [["ann"]], "b": true}')
    out = tmp_path / "fitted.pl"
    assert main(["fit", str(file), str(data), "-o", str(out)]) == 0
    lines = capsys.readouterr().out.splitlines()
    # The third has a caller, so `a` holds in two of three; two of the three who were seen then have called.
    assert [line.partition("::")[2] for line in lines] == ["a()", "calls(X) :- person(X), a"]
    assert float(lines[0].partition("::")[0]) == pytest.approx(2 / 3, abs=1e-5)
    assert float(lines[1].partition("::")[0]) == pytest.approx(2 / 3, abs=1e-3)
    assert out.read_text().startswith("0.66666")


def test_wrong_parameters_are_named():
    program = dv.Program(SMALL)
    for values, message in [
        ({"z()": 0.5}, "'z\\(\\)' is not tunable"),
        ({"a()": 1.5}, "is 1.5"),
        ({"a()": "x"}, "'x'"),
    ]:
        with pytest.raises(dv.DerivableError, match=message):
            program.with_parameters(values)
    with pytest.raises(dv.DerivableError, match="no tunable probability"):
        dv.Program("rel 0.5::a()").fit([{"a": True}])
    with pytest.raises(KeyError, match="nothing tunable"):
        program.fit([{"a": True}])["b()"]
    with pytest.raises(dv.DerivableError, match="goes by probabilities"):
        dv.Program("rel ?::a(1) rel 0.5::a(2) rel t(x) = x := top<1>(x: a(x))").fit([{"t": [1]}])


def test_tunables_of_the_same_text_are_told_apart():
    fit = dv.Program("rel ?0.3::a() rel ?0.6::a()\nrel ?0.2::b() = a()\nrel ?0.2::b() = a()").fit([{}])
    assert dict(fit) == {
        "a() (line 1) (column 5)": 0.3,
        "a() (line 1) (column 19)": 0.6,
        "b() = a() (line 2)": 0.2,
        "b() = a() (line 3)": 0.2,
    }


def test_time_limits_hold():
    edges = [(a, b) for a in range(30) for b in range(30) if a != b and (a + 2 * b) % 3 < 2]
    text = "type e(usize, usize) rel ?0.5::edge(x, y) = e(x, y) rel path(x, y) = edge(x, y) or path(x, z), edge(z, y)"
    with pytest.raises(dv.DerivableError, match="did not finish within"):
        dv.Program(text).fit([{"path": {(0, 29): True}}], {"e": edges}, time_limit=1.0)


def test_what_people_see():
    fit = dv.Program(SMALL).fit([{"a": True}, {"a": False}, {"a": True}])
    assert repr(fit).splitlines()[0] == "0.666667::a()"
    assert "log-likelihood -1.90954" in repr(fit)
    assert "<svg" in fit._repr_html_()
    assert "a()" in fit._repr_html_()


def test_the_command_line(tmp_path, capsys):
    file = tmp_path / "small.scl"
    file.write_text(SMALL)
    (tmp_path / "facts").mkdir()
    (tmp_path / "facts" / "p.csv").write_text("1\n2\n")
    data = tmp_path / "seen.json"
    data.write_text('[{"a": true, "q": [[1]], "not q": [2]}, ["not a()", "q(1)", "q(2)"], {"a": false}, {}]')
    given = [str(file), str(data), "--facts", str(tmp_path / "facts")]
    out = tmp_path / "fitted.scl"
    assert main(["fit", *given, "-o", str(out)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines == ["0.333333333::a()", "0.75::q(x) = p(x)"]
    assert dv.Program.from_file(out).run({"p": [1]})["q"][(1,)] == pytest.approx(0.75)
    assert main(["fit", *given, "--json", "--method", "gradient", "--tolerance", "1e-12"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["probabilities"] == pytest.approx({"a()": 1 / 3, "q(x) = p(x)": 0.75}, abs=1e-3)
    data.write_text('["a()"]\n{"a": false}\n\n["not a()"]\n')
    assert main(["fit", *given]) == 0
    assert capsys.readouterr().out.splitlines()[0] == "0.333333333::a()"
    for text, message in [
        ("[[1]]", "1 is no text of an item"),
        ('["a("]', "expected"),
        ('["a() rel b()"]\n["a()"]', "more than one tuple"),
        ("[3, {}]", "interpretation 0: a int is none"),
        ('{"a": 3}', "`a` has 3"),
        ('[{"a": true, "not a": true}]', "both ways"),
        ('{"a": true}\n{"a" true}', "no JSON at line 2"),
        ('[{"a": true}', "no JSON at line 1"),
        ('[{"z": true}]', "unknown relation `z`"),
    ]:
        data.write_text(text)
        assert main(["fit", *given]) == USER_ERROR, text
        assert message in capsys.readouterr().err, text


@dv.rule
def seen(hidden):
    return {x for x in hidden if x > 0}


def test_programs_with_python_rules_learn():
    program = dv.Program.from_rules(seen, text="rel ?0.3::hidden(1)")
    fit = program.fit([{"seen": [1]}, {"seen": {1: False}}])
    assert dict(fit) == {"hidden(1)": pytest.approx(0.5)}
    assert dict(program.with_parameters(fit).run()["seen"]) == {(1,): pytest.approx(0.5)}


def test_a_probability_for_each_value():
    """Of each x the counts of its instances, whatever y; as text it is what it was."""
    text = 'type k(String, u32) rel k = {("a", 1), ("a", 2), ("b", 1)} rel ?0.3(x)::c(x, y) = k(x, y) query c'
    program = dv.Program(text)
    assert "?0.3(x)::" in syntax_text(program.syntax)
    worlds = [(1, 1, 0), (1, 0, 0), (1, 0, 1), (0, 0, 0)]
    seen = [{"c": {("a", 1): bool(u), ("a", 2): bool(v), ("b", 1): bool(w)}} for u, v, w in worlds]
    for method in ("em", "gradient"):
        fit = program.fit(seen, method=method, tolerance=1e-10, steps=3000)
        assert fit['c(x, y) = k(x, y) where x = "a"'] == pytest.approx(4 / 8, abs=1e-3)
        assert fit['c(x, y) = k(x, y) where x = "b"'] == pytest.approx(1 / 4, abs=1e-3)
    # Other facts have other values, which are learned together where they are the same.
    facts = [{"k": [("a", 3)]}, {"k": [("c", 1)]}]
    fit = dv.Program(text.replace('rel k = {("a", 1), ("a", 2), ("b", 1)}', "")).fit(
        [{"c": {("a", 3): True}}, {"c": {("c", 1): False}}], facts
    )
    assert {name.split(" where ")[1]: round(value, 6) for name, value in fit.items()} == {
        'x = "a"': 1.0,
        'x = "c"': 0.0,
    }
    with pytest.raises(BindingError, match="`z` has no value of its own"):
        dv.Program("type k(u32) rel ?(z)::c(x) = k(x) query c").run()
    with pytest.raises(BindingError, match="is a fact"):
        dv.Program("rel ?(z)::c(1) query c").run()
