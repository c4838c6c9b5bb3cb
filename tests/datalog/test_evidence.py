"""Probabilities given evidence, against sums over worlds and ProbLog."""

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import assume
from hypothesis import strategies as st

import derivable as dv
from datalog import tagged
from datalog.test_coins import given_facts, some_facts
from datalog.worlds import worlds
from derivable.circuit.compilation import choice
from derivable.cli.main import USER_ERROR, main
from derivable.datalog.exact.exact import compile_exact
from drawn import examples

ALARM = """
rel 0.1::burglary()  rel 0.2::earthquake()
rel 0.9::alarm() = burglary()  rel 0.4::alarm() = earthquake()
type neighbour(String)  rel neighbour = {"Ada", "Bob"}
rel 0.7::calls(x) = alarm(), neighbour(x)
"""
QUERIES = "query burglary  query earthquake"


def alarm_given(holds):
    """(P(burglary | evidence), P(evidence)), where `holds` says which worlds (alarm, Ada calls, Bob calls) fit."""
    total = with_burglary = 0.0
    for coins in itertools.product((False, True), repeat=6):
        weight = math.prod(p if coin else 1 - p for coin, p in zip(coins, (0.1, 0.2, 0.9, 0.4, 0.7, 0.7)))
        burglary, earthquake, first, second, ada, bob = coins
        alarm = (burglary and first) or (earthquake and second)
        if holds(alarm, alarm and ada, alarm and bob):
            total += weight
            with_burglary += weight * burglary
    return with_burglary / total, total


@pytest.mark.parametrize(
    ("evidence", "items", "holds"),
    [
        ({"alarm": True}, "evidence alarm()", lambda a, b, c: a),
        ({"alarm": False}, "evidence not alarm()", lambda a, b, c: not a),
        ({"calls": ["Ada"]}, 'evidence calls("Ada")', lambda a, b, c: b),
        ({"calls": [("Ada",), ("Bob",)]}, 'evidence calls("Ada") evidence calls("Bob")', lambda a, b, c: b and c),
        (
            {"calls": {("Ada",): True, "Bob": False}},
            'evidence not calls("Bob") evidence calls("Ada")',
            lambda a, b, c: b and not c,
        ),
        (
            {"calls": {"Ada": False}, "alarm": True},
            'evidence alarm() evidence not calls("Ada")',
            lambda a, b, c: a and not b,
        ),
        # What no rule derives does not hold, which is no news.
        ({"calls": {"Cyd": False}}, 'evidence not calls("Cyd")', lambda a, b, c: True),
    ],
)
def test_evidence_as_an_argument_and_in_the_text(evidence, items, holds):
    expected, total = alarm_given(holds)
    for text, given in ((ALARM + QUERIES, evidence), (f"{items}\n{ALARM}{QUERIES}", None)):
        database = dv.Program(text).run(evidence=given)
        assert database["burglary"][()] == pytest.approx(expected, abs=1e-12)
        assert math.exp(database.log_evidence) == pytest.approx(total, abs=1e-12)
        # Evidence is about relations that are no outputs, which are none of the result.
        assert list(database) == ["burglary", "earthquake"]


def test_evidence_is_a_name_like_any_other():
    text = "rel evidence = {1, 2} rel not_evidence(x) = evidence(x), x > 1 query evidence"
    assert dict(dv.Program(text).run()["evidence"]) == {(1,): True, (2,): True}
    assert "evidence not alarm()" in dv.Program(ALARM + "evidence not alarm()").explain("syntax")


def test_other_observations_of_the_same_tuples_compile_nothing(calls_of):
    calls = calls_of(choice, "compile_formula_dag")
    program = dv.Program(ALARM + QUERIES)
    for ada, bob in itertools.product((False, True), repeat=2):
        database = program.run(evidence={"calls": {"Ada": ada, "Bob": bob}})
        expected, total = alarm_given(lambda a, b, c, seen=(ada, bob): (b, c) == seen)
        assert database["burglary"][()] == pytest.approx(expected, abs=1e-12)
        assert math.exp(database.log_evidence) == pytest.approx(total, abs=1e-12)
    assert len(calls) == 1
    # And what is not conditioned is not that.
    assert program.run()["burglary"][()] == pytest.approx(0.1)
    assert program.run().log_evidence == 0.0


def test_evidence_of_choices():
    text = 'rel colour = {0.2::"red"; 0.3::"green"; 0.5::"blue"} rel warm() = colour("red") rel cold() = colour("blue")'
    database = dv.Program(text).run(evidence={"cold": False})
    assert dict(database["colour"]) == {("red",): pytest.approx(0.4), ("green",): pytest.approx(0.6)}
    assert dict(dv.Program(text).run(evidence={"colour": ["red"]})["warm"]) == {(): pytest.approx(1.0)}
    assert dict(dv.Program(text).run(evidence={"colour": ["blue"]})["warm"]) == {}
    with pytest.raises(
        dv.DerivableError, match=r'`evidence colour\("red"\)` holds in no world, given the items before'
    ):
        dv.Program(text).run(evidence={"colour": ["blue", "red"]})


def test_evidence_of_many_items_and_of_rare_ones():
    """A thousand readings, each of a probability of a tenth, are together below the smallest float."""
    count = 1000
    text = "rel 0.5::sick() rel 0.1::reading(i) = n(i), sick() rel 0.09::reading(i) = n(i), not sick() query sick"
    rows = {(i,): i % 9 == 0 for i in range(count)}
    database = dv.Program(text).run({"n": [(i,) for i in range(count)]}, evidence={"reading": rows})
    seen = sum(rows.values())
    logs = [seen * math.log(p) + (count - seen) * math.log1p(-p) for p in (0.1, 0.09)]
    assert database["sick"][()] == pytest.approx(1 / (1 + math.exp(logs[1] - logs[0])), abs=1e-10)
    assert database.log_evidence == pytest.approx(math.log(0.5) + logs[0] + math.log1p(math.exp(logs[1] - logs[0])))
    rare = dv.Program("rel 1e-200::a() rel 1e-200::b() rel c() = a() or b() query a").run(evidence={"c": True})
    assert rare["a"][()] == pytest.approx(0.5)


@examples(20, 300, tagged.tagged_programs(), some_facts(), st.data())
def test_random_programs_agree_with_worlds(program, facts, data):
    rules, order = program
    certain, independent = facts
    models = [
        (chance * probability, found)
        for chance, drawn in worlds(independent)
        for probability, found in tagged.ways(
            lambda throw, drawn=drawn: tagged.model(
                rules, {name: [*certain[name], *drawn.get(name, ())] for name in certain}, order, throw
            )
        )
    ]
    rows = sorted({(name, row) for _, found in models for name in order for row in found[name]})
    assume(rows)
    items = data.draw(st.lists(st.sampled_from(rows), min_size=1, max_size=3, unique=True))
    # As some world has it, so that the evidence is possible.
    world = data.draw(st.sampled_from([found for weight, found in models if weight > 0]))
    seen = {item: item[1] in world[item[0]] for item in items}
    fitting = [(w, found) for w, found in models if all((row in found[n]) == seen[n, row] for n, row in items)]
    total = sum(weight for weight, _ in fitting)
    evidence: dict = {}
    for (name, row), is_true in seen.items():
        evidence.setdefault(name, {})[row] = is_true
    database = dv.Program(tagged.text_of(rules)).run(given_facts(facts), "exact", evidence=evidence)
    assert math.exp(database.log_evidence) == pytest.approx(total, abs=1e-12)
    for name in order:
        expected = {row: sum(w for w, found in fitting if row in found[name]) / total for n, row in rows if n == name}
        found = dict(database[name])
        assert {row: found.get(row, 0.0) for row in expected} == pytest.approx(expected, abs=1e-10)
        assert not found.keys() - expected.keys()


def test_problog_agrees():
    """A network of smokers with evidence, in both languages."""
    problog = pytest.importorskip("problog.program")
    from problog import get_evaluatable

    people = range(1, 5)
    friends = [(1, 2), (2, 1), (2, 3), (3, 4), (4, 1), (2, 4)]
    theirs = "".join(f"person({i}). " for i in people) + "".join(f"friend({a},{b}). " for a, b in friends)
    theirs += (
        "0.3::stress(X) :- person(X). 0.2::influences(X,Y) :- friend(X,Y). smokes(X) :- stress(X)."
        " smokes(X) :- friend(X,Y), influences(Y,X), smokes(Y). 0.4::asthma(X) :- smokes(X)."
        " evidence(smokes(2),true). evidence(influences(4,2),false). evidence(asthma(3),false). query(smokes(_))."
    )
    expected = {
        (int(str(term.args[0])),): p
        for term, p in get_evaluatable().create_from(problog.PrologString(theirs)).evaluate().items()
    }
    ours = (
        "rel 0.3::stress(x) = person(x) rel 0.2::influences(x, y) = friend(x, y) rel smokes(x) = stress(x)"
        " rel smokes(x) = friend(x, y), influences(y, x), smokes(y) rel 0.4::asthma(x) = smokes(x)"
        " evidence smokes(2) evidence not influences(4, 2) evidence not asthma(3) query smokes"
    )
    database = dv.Program(ours).run({"person": [(i,) for i in people], "friend": friends})
    assert dict(database["smokes"]) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize(
    ("evidence", "message"),
    [
        ({"call": True}, "evidence of an unknown relation `call`"),
        ({"calls": True}, r"`evidence calls\(\)` does not fit `calls\(String\)`"),
        ({"calls": [3]}, r"`evidence calls\(3\)` does not fit"),
        ({"calls": "Ada"}, "the evidence of `calls` is 'Ada'"),
        ({"calls": {"Ada": 0.3}}, "has 0.3 for 'Ada'"),
        ({"alarm": 1}, "the evidence of `alarm` is 1"),
        ([1], "evidence is a list"),
        ({"calls": ["Cyd"]}, r'`evidence calls\("Cyd"\)` holds in no world\n'),
        ({"alarm": False, "calls": ["Ada"]}, r'`evidence calls\("Ada"\)` holds in no world, given the items before it'),
    ],
)
def test_wrong_evidence_is_named(evidence, message):
    with pytest.raises(dv.DerivableError, match=message):
        dv.Program(ALARM).run(evidence=evidence)


@pytest.mark.parametrize(
    "options", [{"provenance": "minmaxprob"}, {"provenance": "topkproofs"}, {"keep": True}, {"device": "torch:cpu"}]
)
def test_evidence_is_for_exact_runs(options):
    with pytest.raises(dv.DerivableError, match="takes no evidence"):
        dv.Program(ALARM).run(evidence={"alarm": True}, **options)


def test_items_of_a_text_contradict_each_other_where_they_stand():
    with pytest.raises(dv.DerivableError, match="contradict each other") as error:
        dv.Program(ALARM + "evidence alarm()\nevidence not alarm()").run()
    assert error.value.span.line == 6
    with pytest.raises(dv.DerivableError, match="evidence is of one tuple"):
        dv.Program(ALARM + "evidence alarm")
    with pytest.raises(dv.DerivableError, match="not bound"):
        dv.Program(ALARM + "evidence calls(x)")


def test_the_command_line(tmp_path, capsys):
    file = tmp_path / "alarm.scl"
    file.write_text(ALARM + QUERIES)
    assert main(["run", str(file), "-e", 'calls("Ada")', "-e", 'not calls("Bob")']) == 0
    expected, _ = alarm_given(lambda a, b, c: b and not c)
    assert float(capsys.readouterr().out.partition("::")[0]) == pytest.approx(expected, rel=1e-5)
    assert main(["run", str(file), "-e", "calls("]) == USER_ERROR
    assert "--evidence:1" in capsys.readouterr().err
    assert main(["run", str(file), "-e", "alarm() rel p() = alarm()"]) == USER_ERROR
    assert "more than one tuple of --evidence" in capsys.readouterr().err


# A program whose worlds are those of six coins: the inputs are the probabilities of four of them.
LAYER = """
rel alarm() = burglary(), bell(0)  rel alarm() = earthquake(), bell(1)
type neighbour(String)  rel neighbour = {"Ada", "Bob"}
rel 0.7::calls(x) = alarm(), neighbour(x)
"""


def layer_given(p, e, wanted):
    """P(wanted | evidence) for weights e of (calls Ada, calls Bob, alarm) by which worlds count."""
    total = found = 0.0
    for coins in itertools.product((0, 1), repeat=6):
        burglary, earthquake, first, second, ada, bob = coins
        alarm = (burglary and first) or (earthquake and second)
        seen = (alarm and ada, alarm and bob, alarm)
        weight = 1.0
        for coin, chance in zip(coins, (*p, 0.7, 0.7)):
            weight = weight * (chance if coin else 1 - chance)
        for holds, chance in zip(seen, e):
            weight = weight * (chance if holds else 1 - chance)
        total = total + weight
        found = found + weight * wanted(burglary, alarm, ada)
    return found / total


def inputs_of_layer():
    return {"burglary": dv.independent(()), "earthquake": dv.independent(()), "bell": dv.independent([0, 1])}


def layer_of(make, **options):
    outputs = {"burglary": [()], "calls": ["Ada"]}
    return make(LAYER, inputs_of_layer(), outputs, evidence={"calls": ["Ada", "Bob"], "alarm": ()}, **options)


ROWS = [[1.0, 0.0, 0.5], [0.5, 0.5, 1.0], [0.0, 0.0, 0.0], [0.5, 1.0, 0.5], [0.3, 0.5, 0.8], [0.5, 0.5, 0.5]]


@pytest.mark.parametrize("form", ["probabilities", "log", "log_probabilities"])
def test_layers_take_evidence_of_each_sample(form):
    generator = torch.Generator().manual_seed(3)
    e = torch.tensor(ROWS, dtype=torch.float64, requires_grad=True)
    p = torch.rand(len(ROWS), 4, generator=generator, dtype=torch.float64).requires_grad_()
    columns = [p[:, 0], p[:, 1], p[:, 2:], e]
    if form == "log_probabilities":
        layer = layer_of(dv.nn.Logic, log_probabilities=True)
        found = {name: values.exp() for name, values in layer(*(column.log() for column in columns)).items()}
    elif form == "log":
        found = {name: values.exp() for name, values in layer_of(dv.nn.Logic).log(*columns).items()}
    else:
        found = layer_of(dv.nn.Logic)(*columns)
    wanted = {"burglary": lambda b, alarm, ada: b, "calls": lambda b, alarm, ada: int(alarm and ada)}
    for name, holds in wanted.items():
        expected = torch.stack([layer_given(p[row], e[row], holds) for row in range(len(ROWS))])
        assert torch.allclose(found[name][:, 0], expected, atol=1e-12)
        gradients = [torch.autograd.grad(values.sum(), p, retain_graph=True)[0] for values in (found[name], expected)]
        assert torch.allclose(*gradients, atol=1e-10)
    # The row of uncertain evidence has derivatives by that, too.
    gradient = torch.autograd.grad(found["burglary"][4, 0], e)[0][4]
    expected = torch.autograd.grad(layer_given(p[4], e[4], wanted["burglary"]), e)[0][4]
    assert torch.allclose(gradient, expected, atol=1e-10)


def test_functions_of_jax_take_evidence():
    jax = pytest.importorskip("jax")
    function = jax.jit(layer_of(dv.nn.logic_function))
    p, e = np.array([0.1, 0.2, 0.9, 0.4]), np.array([1.0, 0.0, 0.5])
    found = function(p[0], p[1], p[2:], e)
    assert float(found["burglary"][0]) == pytest.approx(layer_given(p, e, lambda b, alarm, ada: b), rel=1e-5)
    gradient = jax.grad(lambda p: function(p[0], p[1], p[2:], e)["burglary"][0])(p)
    step = 1e-6 * np.eye(4)
    numeric = [(layer_given(p + d, e, lambda b, *_: b) - layer_given(p - d, e, lambda b, *_: b)) / 2e-6 for d in step]
    assert np.allclose(gradient, numeric, atol=1e-4)


def test_evidence_in_the_text_holds_for_layers():
    text = LAYER + 'evidence calls("Ada") evidence not calls("Bob")'
    p = torch.tensor([0.1, 0.2, 0.9, 0.4], dtype=torch.float64)
    expected = layer_given(p.tolist(), (1.0, 0.0, 0.5), lambda b, alarm, ada: b)
    layer = dv.nn.Logic(text, inputs_of_layer(), {"burglary": ()})
    assert layer(p[0], p[1], p[2:]).item() == pytest.approx(expected, abs=1e-12)
    given = {"burglary": p[:1].numpy(), "earthquake": p[1:2].numpy(), "bell": p[2:].numpy()}
    query = compile_exact(dv.Program(text), inputs_of_layer(), {"burglary": [()]})
    assert query.probabilities(**given)[0] == pytest.approx(expected, abs=1e-12)


def test_layers_and_impossible_evidence():
    layer = layer_of(dv.nn.Logic)
    p = torch.tensor([[0.1, 0.2, 0.9, 0.4], [0.0, 0.0, 0.5, 0.5]])
    e = torch.tensor([1.0, 0.5, 0.5])
    for call in (layer, layer.log):
        with pytest.raises(dv.DerivableError, match=r"the evidence of row \[1\] has the probability 0"):
            call(p[:, 0], p[:, 1], p[:, 2:], e.expand(2, 3))
    with pytest.raises(dv.DerivableError, match="'evidence'"):
        layer(p[:, 0], p[:, 1], p[:, 2:])
    with pytest.raises(dv.DerivableError, match="3 facts of evidence"):
        layer(p[:, 0], p[:, 1], p[:, 2:], e[:2])


@pytest.mark.parametrize("provenance", ["minmaxprob", "topkproofs", "addmultprob"])
@pytest.mark.parametrize("options", [{"evidence": {"alarm": ()}}, {}])
def test_other_provenances_have_no_evidence(provenance, options):
    text = LAYER if options else LAYER + "evidence alarm()"
    with pytest.raises(dv.DerivableError, match="evidence is for exact probabilities"):
        dv.nn.Logic(text, inputs_of_layer(), {"burglary": ()}, provenance, **options)
    with pytest.raises(dv.DerivableError, match="takes no evidence"):
        dv.nn.Logic(text, {**inputs_of_layer(), "bell": dv.varying()}, {"burglary": ()}, **options)
