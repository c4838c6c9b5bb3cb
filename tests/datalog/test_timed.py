"""Recursion through negation and aggregates that goes forward in time, against worlds and unrolled programs."""

import itertools
import random

import numpy as np
import pytest
import torch

import derivable as dv
from derivable.datalog.ram.check import check_ram
from derivable.datalog.ram.interpret import interpret
from derivable.datalog.ram.lower import lower
from derivable.datalog.rules.strata import check_strata, stratify

PROVENANCES = ("exact", "topkproofs", "addmultprob")
KICKS = "rel kick = {0.4::0, 0.4::1, 0.4::2, 0.4::3}\n"
SWITCH = [0.4, 0.24, 0.304, 0.2784]


def tags(database, name):
    return {row if len(row) > 1 else row[0]: float(tag) for row, tag in database[name].items()}


@pytest.mark.parametrize(
    "rules",
    [
        "rel 0.4::kick(t) = t in 0..4\nrel on(0) = kick(0)\nrel on(t) = kick(t), t > 0, not on(t - 1)",
        KICKS + "rel on(t) = kick(t), not on(t - 1)",
        KICKS + "rel on(t) = kick(t), s == t - 1, not on(s)",
        KICKS + "rel on(t + 1) = kick(t + 1), t in -1..4, not on(t)",
        "type kick(t: usize)\n" + KICKS + "rel on(0) = kick(0)\nrel on(t) = kick(t), t > 0, not on(t - 1)",
        "rel step = {0, 1, 2, 3}\nrel 0.4::on(t) = step(t), not on(t - 1)",
    ],
)
def test_a_switch_of_which_each_step_negates_the_one_before(rules):
    program = dv.Program(rules + "\nquery on")
    for name in PROVENANCES:
        found = tags(program.run(provenance=name), "on")
        assert [found[t] for t in range(4)] == pytest.approx(SWITCH)
    # min(p, max(1 - q)) of the same recurrence.
    assert tags(program.run(provenance="minmaxprob"), "on") == pytest.approx(dict.fromkeys(range(4), 0.4))
    assert {t for (t,) in program.run(provenance="unit")["on"]} == {0, 2}


def test_a_switch_agrees_with_problog():
    problog = pytest.importorskip("problog")
    text = "\n".join(f"0.4::kick({t})." for t in range(4))
    text += "\non(0) :- kick(0).\non(T) :- kick(T), T > 0, S is T - 1, \\+ on(S).\nquery(on(_))."
    answers = problog.get_evaluatable().create_from(problog.program.PrologString(text)).evaluate()
    theirs = {int(term.args[0]): value for term, value in answers.items()}
    ours = tags(dv.Program(KICKS + "rel on(t) = kick(t), not on(t - 1)\nquery on").run(), "on")
    assert ours == pytest.approx(theirs)


def test_a_question_about_one_time_has_its_answer():
    database = dv.Program(KICKS + "rel on(t) = kick(t), not on(t - 1)\nquery on(3)").run()
    assert tags(database, "on(3)") == pytest.approx({3: SWITCH[3]})


# Random programs. A rule of `a` or `b` is (head, [(relation, lag, is_negated)], outside literals); times are 0 to 3.

TIMES = range(4)
OUTSIDE = ("kick", "rest")


def random_rules(pick):
    """Rules of two relations in which a negation of the same time is of `b` by `a` alone."""
    rules = [("a", [("b", 1, True)], ["kick"]), ("b", [("a", 1, pick.random() < 0.5)], ["rest"])]
    for _ in range(pick.randint(1, 3)):
        head = pick.choice("ab")
        body = []
        for _ in range(pick.randint(1, 2)):
            relation = pick.choice("ab")
            lag = pick.randint(0 if (head, relation) == ("a", "b") else 1, 2)
            body.append((relation, lag, pick.random() < 0.6))
        rules.append((head, body, pick.sample(("step", *OUTSIDE), 1)))
    return rules


def text_of(rules):
    rows = []
    for head, body, outside in rules:
        literals = [f"{name}(t)" for name in outside]
        literals += [f"{'not ' * no}{name}(t - {lag})" if lag else f"{'not ' * no}{name}(t)" for name, lag, no in body]
        rows.append(f"rel {head}(t) = {', '.join(literals)}")
    return "\n".join(rows)


def unrolled(rules):
    """The same with a relation for each time, in which nothing is recursive."""
    rows = [f"type {name}{t}(i32)" for name in "ab" for t in TIMES]
    for t, (head, body, outside) in itertools.product(TIMES, rules):
        literals = [f"{name}({t})" for name in outside]
        if any(t < lag and not no for _, lag, no in body):
            continue
        literals += [f"{'not ' * no}{name}{t - lag}({t - lag})" for name, lag, no in body if t >= lag]
        rows.append(f"rel {head}{t}({t}) = {', '.join(literals)}")
    return "\n".join(rows)


def model(rules, facts):
    """The rows (relation, time) of a world."""
    rows = set()
    for t in TIMES:
        for name in "ba":
            for head, body, outside in rules:
                holds = all((other, t) in facts for other in outside)
                if head == name and holds and all(((r, t - lag) in rows) != no for r, lag, no in body):
                    rows.add((head, t))
    return rows


@pytest.mark.parametrize("seed", range(20))
def test_random_programs_agree_with_their_worlds_and_unrolled(seed):
    pick = random.Random(seed)
    rules = random_rules(pick)
    uncertain = {(name, t): pick.choice((0.2, 0.5, 0.9)) for name in OUTSIDE for t in TIMES if pick.random() < 0.7}
    given = "rel step = {0, 1, 2, 3}\ntype kick(i32), rest(i32)\n"
    given += "".join(f"rel {p}::{name}({t})\n" for (name, t), p in uncertain.items())
    program = dv.Program(given + text_of(rules) + "\nquery a\nquery b")
    names = [(name, t) for name in "ab" for t in TIMES]

    expected = dict.fromkeys(names, 0.0)
    step = {("step", t) for t in TIMES}
    for choice in itertools.product((False, True), repeat=len(uncertain)):
        weight = np.prod([p if there else 1 - p for p, there in zip(uncertain.values(), choice)])
        for row in model(rules, {fact for fact, there in zip(uncertain, choice) if there} | step):
            expected[row] += weight
    found = program.run(provenance="exact")
    ours = {(name, t): tag for name in "ab" for t, tag in tags(found, name).items()}
    assert {row: ours.get(row, 0.0) for row in names} == pytest.approx(expected)

    found = program.run(provenance="unit")
    assert {(name, t) for name in "ab" for (t,) in found[name]} == model(rules, {*uncertain, *step})

    other = dv.Program(given + unrolled(rules) + "".join(f"\nquery {name}{t}" for name, t in names))
    for provenance, k in (("topkproofs", 60), ("minmaxprob", None), ("addmultprob", None)):
        mine, theirs = (one.run(provenance=provenance, k=k) for one in (program, other))
        ours = {(name, t): tag for name in "ab" for t, tag in tags(mine, name).items()}
        flat = {(name, t): tags(theirs, f"{name}{t}").get(t, 0.0) for name, t in names}
        assert {row: ours.get(row, 0.0) for row in names} == pytest.approx(flat), provenance


def test_a_literal_that_two_clauses_share_has_the_time_of_each():
    kick, rest = (0, 1, 3), (0, 1, 2, 3)
    rules = [("a", [("b", lag, True)], ["kick"]) for lag in (0, 1)] + [("b", [("a", 1, True)], ["rest"])]
    text = "rel a(t) = kick(t), (s == t - 1 or s == t), not b(s)\nrel b(t) = rest(t), not a(t - 1)\nquery a\nquery b"
    database = dv.Program(text).run({"kick": kick, "rest": rest})
    expected = model(rules, {*(("kick", t) for t in kick), *(("rest", t) for t in rest)})
    assert {(name, t) for name in "ab" for (t,) in database[name]} == expected


@pytest.mark.parametrize("seed", range(5))
def test_the_validators_and_the_interpreter_know_such_strata(seed):
    rules = random_rules(random.Random(seed))
    program = dv.Program("type kick(i32), rest(i32), step(i32)\n" + text_of(rules) + "\nquery a\nquery b")
    strata = stratify(program.desugared())
    check_strata(strata)
    ram = lower(strata)
    check_ram(ram)
    facts = {"kick": [(0,), (1,), (3,)], "rest": [(1,), (2,)], "step": [(t,) for t in TIMES]}
    worlds = interpret(ram, facts)
    expected = model(rules, {(name, t) for name, rows in facts.items() for (t,) in rows})
    assert {(name, t) for name in "ab" for (t,) in worlds[name]} == expected
    assert "(by time): a, b" in program.explain("strata")


# More than one column


INFECTION = """
rel link = {(0, 1), (1, 2), (2, 0)}
rel seen = {0.3::(0, 1), 0.6::(0, 2), 0.5::(1, 2)}
type step(t: i32)
rel step = {1, 2}
rel ill(x, t) = seen(x, t), not well(x, t - 1)
rel ill(x, t) = ill(y, t), link(y, x), not well(x, t - 1)
rel well(x, t) = step(t), link(x, _), not ill(x, t)
query ill
"""


def test_recursion_within_a_step_has_its_fixpoint():
    facts = {(0, 1): 0.3, (0, 2): 0.6, (1, 2): 0.5}
    link = {(0, 1), (1, 2), (2, 0)}
    expected = {}
    for choice in itertools.product((False, True), repeat=3):
        weight = np.prod([p if there else 1 - p for p, there in zip(facts.values(), choice)])
        seen = {fact for fact, there in zip(facts, choice) if there}
        ill, well = set(), set()
        for t in (1, 2):
            while True:
                new = {(x, s) for x, s in seen if s == t} | {(x, t) for y, x in link if (y, t) in ill}
                new = {(x, t) for x, _ in new if (x, t - 1) not in well} - ill
                if not new:
                    break
                ill |= new
            well |= {(x, t) for x, _ in link if (x, t) not in ill}
        for row in ill:
            expected[row] = expected.get(row, 0.0) + weight
    assert tags(dv.Program(INFECTION).run(provenance="exact"), "ill") == pytest.approx(expected)


def test_aggregates_read_earlier_times():
    rules = """
    rel step = {0, 1, 2, 3}
    rel fresh(x, t) = who(x, t), load(t, k), k < 2
    rel load(t, k) = k = count(x: fresh(x, t - 1) where t: step(t))
    query load
    """
    who = {0: "ab", 1: "ac", 2: "abc", 3: "a"}
    facts = [(x, t) for t, some in who.items() for x in some]
    database = dv.Program("type who(x: String, t: i32)\n" + rules).run({"who": facts})
    expected, before = [], 0
    for t in range(4):
        expected.append((t, before))
        before = len(who[t]) if before < 2 else 0
    assert sorted(database["load"]) == expected

    uncertain = [(0.5, fact) for fact in facts[:5]]
    expected = {}
    for choice in itertools.product((False, True), repeat=5):
        there, before = [fact for fact, one in zip(facts, choice) if one], 0
        for t in range(4):
            expected[t, before] = expected.get((t, before), 0.0) + 0.5**5
            before = sum(s == t for _, s in there) if before < 2 else 0
    found = dv.Program("type who(x: String, t: i32)\n" + rules).run({"who": uncertain}, "exact")
    assert tags(found, "load") == pytest.approx(expected)


def test_quantifiers_read_earlier_times():
    rules = "rel step = {0, 1, 2, 3}\nrel who = {1, 2}\nrel bad(x, t) = who(x), kick(t), ok(t)\nquery ok\n"
    every = "rel ok(t) = step(t), forall(x: who(x) implies not bad(x, t - 1))"
    none = "rel ok(t) = step(t), not exists(x: bad(x, t - 1))"
    expected = {0: 1.0, **{t: 1 - SWITCH[t - 1] for t in range(1, 4)}}
    for rule in (every, none):
        assert tags(dv.Program(KICKS + rules + rule).run(), "ok") == pytest.approx(expected)


# Other ways to run

RULES = "type kick(t: i32)\nrel on(t) = kick(t), not on(t - 1)\nquery on"


def test_facts_of_the_relation_itself_come_in_their_time():
    database = dv.Program(KICKS + "type on(t: i32)\nrel 0.3::on(1)\nrel on(t) = kick(t), not on(t - 1)\nquery on").run()
    on, expected = 0.0, []
    for t in range(4):
        on = 0.4 * (1 - on)
        on = 1 - (1 - on) * (1 - 0.3) if t == 1 else on
        expected.append(on)
    assert tags(database, "on") == pytest.approx(dict(enumerate(expected)))


def test_facts_are_added_and_removed():
    database = dv.Program(RULES).run({"kick": [0, 1, 2]}, keep=True)
    database.add({"kick": [3, -1]})
    assert sorted(database["on"]) == [(-1,), (1,), (3,)]
    database.remove({"kick": [1]})
    assert sorted(database["on"]) == [(-1,), (2,)]


@pytest.mark.parametrize("provenance", [*PROVENANCES, "minmaxprob"])
def test_a_layer_has_a_batch_and_its_derivative(provenance):
    rule = "rel on(t) = kick(t), not on(t - 1)"
    layer = dv.nn.Logic(rule, {"kick": dv.independent(range(4))}, {"on": range(4)}, provenance=provenance)
    kick = torch.tensor([[0.4, 0.3, 0.2, 0.1], [0.9, 0.6, 0.7, 0.8]], dtype=torch.float64, requires_grad=True)

    def recurrence(kick):
        on, steps = torch.zeros(len(kick), dtype=kick.dtype), []
        for t in range(4):
            on = torch.minimum(kick[:, t], 1 - on) if provenance == "minmaxprob" else kick[:, t] * (1 - on)
            steps.append(on)
        return torch.stack(steps, 1)

    ours, theirs = layer(kick=kick), recurrence(kick)
    assert torch.allclose(ours, theirs)
    assert torch.allclose(*(torch.autograd.grad((y**2).sum(), kick)[0] for y in (ours, theirs)))


def test_a_device_leaves_such_strata_to_the_host():
    from derivable.datalog.apm.tables import LeftToHost

    program = dv.Program(RULES)
    with pytest.raises(LeftToHost, match="`on` is computed by the host, which goes from one time to the next"):
        program.run({"kick": [0, 1, 2]}, device="torch:cpu")
    with pytest.raises(LeftToHost, match="`on`"):
        program.run({"kick": [(0.4, (0,)), (0.4, (1,))]}, "minmaxprob", device="torch:cpu")


# Refusals


def test_times_at_a_limit_of_their_type_are_refused():
    with pytest.raises(dv.DerivableError, match=r"`on` at 0 are read at 0(.|\n)*`t > 0`"):
        dv.Program("type kick(t: usize)\n" + KICKS + "rel on(t) = kick(t), not on(t - 1)\nquery on").run()
    top = 2**31 - 1
    program = dv.Program("rel on(t + 1) = kick(t), not on(t)\nquery on")
    assert sorted(program.run({"kick": [top - 2, top - 1]})["on"]) == [(top - 1,)]
    with pytest.raises(dv.DerivableError, match=f"`on` at {top} are read at {top}"):
        program.run({"kick": [top - 1, top]})
    # 5 less than the lowest but one is the lowest, and 3 more is later.
    with pytest.raises(dv.DerivableError, match=f"`on` at {-top + 2} are read at {-top}"):
        dv.Program("rel on(t) = kick(t), not on(t - 5 + 3)\nquery on").run({"kick": [-top, -top + 2]})


def test_large_times_are_in_their_order():
    program = dv.Program("type kick(t: u64)\nrel on(t) = kick(t), t > 0, not on(t - 1)\nquery on")
    kicks = [2**64 - 1, 2**64 - 2, 2**63, 2**63 - 1, 7]
    assert sorted(program.run({"kick": kicks})["on"]) == [(7,), (2**63 - 1,), (2**64 - 2,)]


@pytest.mark.parametrize(
    "rules",
    [
        "rel on(t) = kick(t), not on(t)",
        "rel on(t) = kick(t), not on(t + 1)",
        "rel on(t) = kick(t), not on(2 * t - 1)",
        "rel on(t) = kick(t), next(s, t), not on(s)",
        "rel on(x, t) = who(x, t), not on(t, x)",
        "rel on(t) = kick(t), not off(t - 1)\nrel off(t) = kick(t), not on(t + 1)",
        "rel on(t) = kick(t), not off(t)\nrel off(t) = kick(t), not on(t)",
        "type kick(t: f64)\nrel on(t) = kick(t), not on(t - 1.0)",
        "type kick(t: i128)\nrel on(t) = kick(t), not on(t - 1)",
    ],
)
def test_other_cycles_are_refused_as_before(rules):
    with pytest.raises(dv.DerivableError, match=r"not stratifiable(.|\n)*break the cycle"):
        dv.Program(rules)
