"""Most probable worlds, marginal MAP, samples and expected counts, against enumeration of worlds and ProbLog."""

import itertools
import json
import math
import random

import numpy as np
import pytest

import derivable as dv
from derivable.circuit.compilation import choice as compiler
from derivable.cli.main import USER_ERROR, main

ALARM = """
rel 0.1::burglary()  rel 0.2::earthquake()
rel 0.9::alarm() = burglary()  rel 0.4::alarm() = earthquake()
type neighbour(String)  rel neighbour = {"Ada", "Bob"}
rel 0.7::calls(x) = alarm(), neighbour(x)
query burglary  query earthquake  query calls
"""
SEEN = {"calls": {"Ada": True, "Bob": False}}


def enumerated(facts, choices, holds_in, observed):
    """[(P(world | evidence), what is true of the facts in order)], the most probable first, and P(evidence).

    facts     [(name, p)], independent
    choices   [[(name, p)]], of which at most one holds
    holds_in  set of names -> set of derived tuples
    observed  {derived tuple: bool}
    """
    options = [[(p, {name}), (1 - p, set())] for name, p in facts]
    for choice in choices:
        rest = 1 - sum(p for _, p in choice)
        options.append([(p, {name}) for name, p in choice] + ([(rest, set())] if rest > 1e-9 else []))
    order = [name for name, _ in facts] + [name for choice in choices for name, _ in choice]
    found, total = [], 0.0
    for picked in itertools.product(*options):
        weight, true = math.prod(p for p, _ in picked), set().union(*(names for _, names in picked))
        derived = holds_in(true)
        if weight > 0 and all((item in derived) == is_true for item, is_true in observed.items()):
            found.append((weight, tuple(name in true for name in order)))
            total += weight
    return sorted(((w / total, world) for w, world in found), key=lambda pair: -pair[0]), total


GRAPH = """
type edge(usize, usize)  type colour(usize, String)
rel reach(0)  rel reach(y) = reach(x), edge(x, y)
rel stopped(x) = colour(x, "red")
rel goal(x) = reach(x), not stopped(x), x > 0
query edge  query colour  query goal
"""


def graph_model(true):
    """What GRAPH derives from names ("edge", a, b) and ("colour", x, c)."""
    reached, size = {0}, 0
    edges = [name[1:] for name in true if name[0] == "edge"]
    while len(reached) > size:
        size = len(reached)
        reached |= {b for a, b in edges if a in reached}
    red = {name[1] for name in true if name[0] == "colour" and name[2] == "red"}
    return {("goal", x) for x in reached if x not in red and x > 0} | set(true)


def drawn_case(seed):
    """Facts, choices, what a run takes, and evidence that some world has."""
    rng = random.Random(seed)
    pairs = rng.sample([(a, b) for a in range(4) for b in range(4) if a != b], 5)
    facts = [(("edge", *pair), rng.choice([0.1, 0.5, 0.7, 0.95])) for pair in pairs]
    facts = [(name, round(p + rng.random() * 0.04, 3)) for name, p in facts]
    choices = []
    for x in rng.sample(range(1, 4), 2):
        parts = [rng.random() for _ in range(4)]
        scale = sum(parts) if rng.random() < 0.5 else sum(parts[:3])
        colours = ("red", "green", "blue")
        choices.append([(("colour", x, c), part / scale) for c, part in zip(colours, parts)])
    text = GRAPH + "".join(
        "rel colour = {" + "; ".join(f'{p!r}::({x}, "{c}")' for (_, x, c), p in choice) + "}\n" for choice in choices
    )
    true = {name for name, _ in facts if rng.random() < 0.6}
    true |= {rng.choice(choice)[0] for choice in choices}
    derived = graph_model(true)
    observed = {("goal", x): ("goal", x) in derived for x in rng.sample(range(1, 4), 2)}
    if rng.random() < 0.5:
        name = rng.choice([name for choice in choices for name, _ in choice])
        observed[name] = name in true
    evidence = {}
    for (relation, *row), is_true in observed.items():
        evidence.setdefault(relation, {})[tuple(row)] = is_true
    return facts, choices, dv.Program(text), {"edge": {name[1:]: p for name, p in facts}}, observed, evidence


def in_order(worlds, order):
    """[world][fact] in that order."""
    return [tuple(world.facts[name[0]][name[1:]] for name in order) for world in worlds]


@pytest.mark.parametrize("seed", [*range(12), *(pytest.param(s, marks=pytest.mark.slow) for s in range(12, 300))])
def test_random_programs_agree_with_enumeration(seed):
    facts, choices, program, given, observed, evidence = drawn_case(seed)
    expected, total = enumerated(facts, choices, graph_model, observed)
    order = [name for name, _ in facts] + [name for choice in choices for name, _ in choice]
    k = min(25, len(expected))
    worlds = program.most_probable(given, evidence=evidence, k=k)
    assert math.exp(worlds.log_evidence) == pytest.approx(total, rel=1e-12)
    assert [world.probability for world in worlds] == pytest.approx([p for p, _ in expected[:k]], rel=1e-10)
    by_world = {world: p for p, world in expected}
    found = in_order(worlds, order)
    assert len(set(found)) == k
    for world, values in zip(worlds, found):
        assert by_world[values] == pytest.approx(world.probability, rel=1e-10)
        true = {name for name, holds in zip(order, values) if holds}
        derived = graph_model(true)
        assert {("goal", *row) for row in world["goal"]} == {item for item in derived if item[0] == "goal"}
        assert set(world["edge"]) == {item[1:] for item in derived if item[0] == "edge"}
    # As many as there are, and no world twice.
    everything = program.most_probable(given, evidence=evidence, k=10**6)
    assert len(everything) == len(expected)
    # Expected counts of facts are posteriors.
    counts = program.expected_counts(given, evidence=evidence)
    for number, name in enumerate(order):
        posterior = sum(p for p, world in expected if world[number])
        key = f"edge{name[1:]}" if name[0] == "edge" else f'colour({name[1]}, "{name[2]}")'
        assert counts[key] == (pytest.approx(posterior, abs=1e-12), 1)
    # Marginal MAP of derived tuples.
    rows = [(1,), (2,), (3,)]
    sums = {}
    for p, world in expected:
        derived = graph_model({name for name, holds in zip(order, world) if holds})
        key = tuple(("goal", *row) in derived for row in rows)
        sums[key] = sums.get(key, 0.0) + p
    assignments = program.most_probable(given, evidence=evidence, query={"goal": rows}, k=8)
    assert [world.probability for world in assignments] == pytest.approx(sorted(sums.values(), reverse=True), rel=1e-10)
    for world in assignments:
        assert sums[tuple(world.facts["goal"][row] for row in rows)] == pytest.approx(world.probability, rel=1e-10)


@pytest.mark.parametrize("seed", [*range(3), *(pytest.param(s, marks=pytest.mark.slow) for s in range(3, 30))])
def test_samples_have_the_probabilities_of_worlds(seed):
    facts, choices, program, given, observed, evidence = drawn_case(seed)
    expected, _ = enumerated(facts, choices, graph_model, observed)
    order = [name for name, _ in facts] + [name for choice in choices for name, _ in choice]
    samples = program.sample(4000, given, evidence=evidence, seed=seed)
    places = [[fact.text for fact in samples.names].index(text) for text in map(text_of, order)]
    drawn = [tuple(row) for row in samples.holds[:, places].tolist()]
    counts = {world: drawn.count(world) for world in set(drawn)}
    probabilities = {world: p for p, world in expected}
    assert counts.keys() <= probabilities.keys()
    # Pearson's statistic of the more probable worlds and the rest: mean n - 1, deviation sqrt(2 (n - 1)).
    often = [(counts.get(world, 0), 4000 * p) for world, p in probabilities.items() if 4000 * p >= 5]
    rest = 4000 - sum(seen for seen, _ in often), 4000 - sum(wanted for _, wanted in often)
    parts = [*often, *([rest] if rest[1] >= 5 else [])]
    statistic = sum((seen - wanted) ** 2 / wanted for seen, wanted in parts)
    assert statistic < len(parts) + 6 * math.sqrt(2 * len(parts))
    for world, row in zip(samples[:20], drawn):
        assert probabilities[row] == pytest.approx(world.probability, rel=1e-10)
    fewer = program.sample(100, given, evidence=evidence, seed=seed)
    assert np.array_equal(fewer.holds, samples.holds[:100])
    assert not np.array_equal(program.sample(100, given, evidence=evidence, seed=seed + 1).holds, fewer.holds)


def text_of(name):
    return f"edge{name[1:]}" if name[0] == "edge" else f'colour({name[1]}, "{name[2]}")'


def test_coins_of_rules_are_facts_of_their_instances():
    coins = dv.Program("""
        type friend(String, String)
        rel 0.3::stress("Ada")  rel 0.4::stress("Bob")
        rel 0.6::smokes(x) = stress(x)
        rel 0.2::smokes(x) = friend(x, y), smokes(y)
        query smokes
    """)
    facts = dv.Program("""
        type friend(String, String)  type first(String)  type second(String, String)
        rel 0.3::stress("Ada")  rel 0.4::stress("Bob")
        rel first = {0.6::"Ada", 0.6::"Bob"}
        rel second = {0.2::("Ada", "Bob"), 0.2::("Bob", "Ada")}
        rel smokes(x) = stress(x), first(x)
        rel smokes(x) = friend(x, y), smokes(y), second(x, y)
        query smokes
    """)
    friends, seen = {"friend": [("Ada", "Bob"), ("Bob", "Ada")]}, {"smokes": ["Ada"]}
    one, two = (program.most_probable(friends, evidence=seen, k=64) for program in (coins, facts))
    assert [w.probability for w in one] == pytest.approx([w.probability for w in two], rel=1e-12)
    best = one[0]
    assert best.facts == {"stress": {("Ada",): True, ("Bob",): False}}
    assert best.rules == {
        'smokes("Ada") = stress("Ada")': True,
        'smokes("Bob") = stress("Bob")': True,
        'smokes("Ada") = friend("Ada", "Bob"), smokes("Bob")': False,
        'smokes("Bob") = friend("Bob", "Ada"), smokes("Ada")': False,
    }
    assert dict(best) == {"smokes": [("Ada",)]}
    counts = coins.expected_counts(friends, evidence=seen)
    theirs = facts.expected_counts(friends, evidence=seen)
    expected = theirs['second("Ada", "Bob")'].expected + theirs['second("Bob", "Ada")'].expected
    assert counts["smokes(x) = friend(x, y), smokes(y)"] == (pytest.approx(expected, abs=1e-12), 2)


def test_problog_agrees_on_the_most_probable_explanation(tmp_path, monkeypatch):
    pytest.importorskip("problog.program")
    # Its solver writes files there.
    monkeypatch.chdir(tmp_path)
    from problog.engine import DefaultEngine
    from problog.formula import LogicDAG
    from problog.program import PrologString
    from problog.tasks.mpe import mpe_maxsat

    theirs = (
        "0.1::burglary. 0.2::earthquake. 0.9::hit(b). 0.4::hit(e). alarm :- burglary, hit(b)."
        " alarm :- earthquake, hit(e). 0.7::hears(ada). 0.7::hears(bob). calls(X) :- alarm, hears(X)."
        " evidence(calls(ada),true). evidence(calls(bob),false)."
    )
    dag = LogicDAG.createFrom(PrologString(theirs), engine=DefaultEngine(label_all=True), labels=[("output", 1)])
    probability, atoms = mpe_maxsat(dag)
    names = {str(atom) for atom in atoms or []}
    [world] = dv.Program(ALARM).most_probable(evidence=SEEN)
    assert world.facts["burglary"][()] == ("burglary" in names)
    assert world.facts["earthquake"][()] == ("earthquake" in names)
    joint = world.probability * math.exp(dv.Program(ALARM).run(evidence=SEEN).log_evidence)
    assert joint == pytest.approx(probability, rel=1e-9)


def test_other_observations_and_probabilities_compile_nothing(calls_of):
    calls = calls_of(compiler, "compile_formula_dag")
    program = dv.Program("type p(usize) rel q() = p(0), not p(1) rel 0.25::q() = p(2) query q")
    for a, b, c in [(0.5, 0.2, 0.1), (0.1, 0.9, 0.3)]:
        for seen in (True, False):
            given = {"p": {(0,): a, (1,): b, (2,): c}}
            worlds = program.most_probable(given, evidence={"q": seen}, k=16)
            fresh = dv.Program(program.text).most_probable(given, evidence={"q": seen}, k=16)
            assert np.array_equal(worlds.holds, fresh.holds)
            assert np.array_equal(worlds.log_probabilities, fresh.log_probabilities)
            assert sum(world.probability for world in worlds) == pytest.approx(1.0)
            assert all(world["q"] == [()] * seen for world in worlds)
    # One for the program, one for each fresh one.
    assert len(calls) == 1 + 4


def test_ties_have_one_order():
    program = dv.Program("rel a = {0.5::1, 0.5::2, 0.5::3} rel b() = a(1) or a(2) query b query a")
    worlds = [program.most_probable(evidence={"b": True}, k=6) for _ in range(3)]
    assert all(np.array_equal(w.holds, worlds[0].holds) for w in worlds)
    assert len({tuple(row) for row in worlds[0].holds.tolist()}) == 6
    assert [w.probability for w in worlds[0]] == pytest.approx([1 / 6] * 6)


def test_many_facts_and_no_evidence():
    """Worlds of facts that nothing was observed of: each is as it most probably is."""
    rng = np.random.default_rng(0)
    chances = rng.uniform(0.05, 0.95, 3000)
    program = dv.Program("type p(usize) query p")
    worlds = program.most_probable({"p": {(i,): c for i, c in enumerate(chances.tolist())}}, k=3)
    assert worlds.holds[0].tolist() == (chances > 0.5).tolist()
    closest = np.sort(np.abs(np.log(chances) - np.log1p(-chances)))
    assert worlds.log_probabilities[0] - worlds.log_probabilities[1] == pytest.approx(closest[0], rel=1e-6)
    assert worlds.log_probabilities[0] - worlds.log_probabilities[2] == pytest.approx(closest[1], rel=1e-6)
    assert worlds.log_evidence == 0.0
    samples = program.sample(500, {"p": {(i,): c for i, c in enumerate(chances.tolist())}})
    assert np.abs(samples.holds.mean(0) - chances).max() < 0.12


def test_a_program_without_random_facts_has_one_world():
    program = dv.Program("rel e = {(0, 1)} rel q(x) = e(x, _) query q")
    [world] = program.most_probable(k=3)
    assert (world.probability, dict(world), world.facts) == (1.0, {"q": [(0,)]}, {})
    assert [dict(one) for one in program.sample(2)] == [{"q": [(0,)]}] * 2
    assert program.expected_counts() == {}


def test_rare_evidence_does_not_underflow():
    text = "rel 0.5::sick() rel 0.1::high(i) = day(i), sick() rel 0.02::high(i) = day(i), not sick() query sick"
    seen = {"high": {i: i % 10 == 0 for i in range(300)}}
    program, days = dv.Program(text), {"day": [(i,) for i in range(300)]}
    worlds = program.most_probable(days, evidence=seen, k=2)
    assert worlds.log_evidence < -90
    assert [world.facts["sick"][()] for world in worlds] == [True, True]
    [best, _] = program.most_probable(days, evidence=seen, k=2, query=["sick"])
    assert best.facts == {"sick": {(): True}}
    assert all(program.sample(20, days, evidence=seen).tuples("sick")[1])
    assert program.expected_counts(days, evidence=seen)["high(i) = day(i), sick()"].expected == pytest.approx(30, 1e-6)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda p: p.most_probable(evidence={"calls": ["Cyd"]}), r'`evidence calls\("Cyd"\)` holds in no world'),
        (lambda p: p.sample(3, evidence={"calls": ["Cyd"]}), r'`evidence calls\("Cyd"\)` holds in no world'),
        (lambda p: p.expected_counts(evidence={"call": True}), "evidence of an unknown relation `call`"),
        (lambda p: p.most_probable(evidence={"calls": ["Cyd"]}, query=["alarm"]), r'calls\("Cyd"\)` holds in no world'),
        (lambda p: p.most_probable(k=0), "k is 0"),
        (lambda p: p.sample(-1), "count is -1"),
        (lambda p: p.most_probable(query=["calls"]), "`calls` has columns"),
        (lambda p: p.most_probable(query=["call"]), "a query of an unknown relation `call`"),
        (lambda p: p.most_probable(query=3), "the query is a int"),
        (lambda p: p.most_probable(query={"calls": [1]}), "does not fit"),
        (lambda p: p.most_probable()[0]["alarm"], "the worlds have no output `alarm`"),
        (lambda p: p.most_probable(time_limit=-1), "time_limit"),
    ],
)
def test_wrong_questions_are_named(call, message):
    with pytest.raises(dv.DerivableError, match=message):
        call(dv.Program(ALARM))


def test_time_limits_hold():
    edges = {(a, b): 0.5 for a in range(30) for b in range(30) if a != b and (a + 2 * b) % 3 < 2}
    program = dv.Program(
        "type edge(usize, usize) rel path(x, y) = edge(x, y) or path(x, z), edge(z, y) query path(0, 29)"
    )
    with pytest.raises(dv.DerivableError, match="did not finish within"):
        program.most_probable({"edge": edges}, evidence={"path": [(0, 29)]}, time_limit=1.0)


def test_what_people_see():
    worlds = dv.Program(ALARM).most_probable(evidence=SEEN, k=2)
    assert repr(worlds).splitlines()[0].startswith("0.398034: not burglary(), earthquake(), (alarm() = burglary())")
    assert "<th" in worlds._repr_html_()
    assert "burglary()" in worlds._repr_html_()
    assert repr(worlds[0:0]) == "[]"
    with pytest.raises(IndexError):
        worlds[2]
    assert worlds[-1].probability == worlds[1].probability
    # The facts of a world are evidence of another run.
    again = dv.Program(ALARM).run(evidence=worlds[0].facts)
    assert again["earthquake"][()] == 1.0


def test_the_command_line(tmp_path, capsys):
    file = tmp_path / "alarm.scl"
    file.write_text(ALARM)
    seen = ["-e", 'calls("Ada")', "-e", 'not calls("Bob")']
    assert main(["run", str(file), *seen, "--most-probable", "-k", "2"]) == 0
    lines = capsys.readouterr().out.splitlines()
    expected = dv.Program(ALARM).most_probable(evidence=SEEN, k=2)
    assert lines[0] == f"// world 1: probability {expected[0].probability:.9g}"
    assert lines[1:3] == ["not burglary()", "earthquake()"]
    assert lines[5] == '(calls("Ada") = alarm(), neighbour("Ada"))'
    assert main(["run", str(file), *seen, "--most-probable", "-k", "2", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["log_evidence"] == pytest.approx(expected.log_evidence)
    assert document["worlds"][0]["facts"][1] == {"relation": "earthquake", "tuple": [], "holds": True}
    assert document["worlds"][0]["tuples"]["calls"] == [["Ada"]]
    assert main(["run", str(file), *seen, "--most-probable", "-k", "9", "--over", "burglary()"]) == 0
    posterior = dv.Program(ALARM).run(evidence=SEEN)["burglary"][()]
    assert capsys.readouterr().out.splitlines() == [
        f"// world 1: probability {max(posterior, 1 - posterior):.9g}",
        "burglary()" if posterior > 0.5 else "not burglary()",
        f"// world 2: probability {min(posterior, 1 - posterior):.9g}",
        "not burglary()" if posterior > 0.5 else "burglary()",
    ]
    assert main(["run", str(file), *seen, "--samples", "3", "--seed", "5"]) == 0
    samples = capsys.readouterr().out.splitlines()
    assert len(samples) == 3
    assert all('calls("Ada")' in line for line in samples)
    for wrong, message in [
        (["--samples", "3", "--most-probable"], "exclude each other"),
        (["--over", "alarm()"], "exclude each other"),
        (["--samples", "3", "--provenance", "minmaxprob"], "no worlds under"),
        (["--samples", "3", "--round-limit", "4"], "no --round-limit"),
        (["--most-probable", "--over", "not alarm()"], "has no `not`"),
        (["--most-probable", "--over", "alarm(1)"], "alarm"),
        (["--most-probable", "-e", 'calls("Cyd")'], "holds in no world"),
    ]:
        assert main(["run", str(file), *wrong]) == USER_ERROR
        assert message in capsys.readouterr().err
