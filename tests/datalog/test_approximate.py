"""Bounds on probabilities, against enumeration of worlds."""

import json
import math
import random

import numpy as np
import pytest
from tests.datalog.test_worlds import drawn_case, enumerated, graph_model

import derivable as dv
from derivable.cli.main import USER_ERROR, main
from derivable.datalog.policy.costs import under

ROWS = [(1,), (2,), (3,)]


def posteriors(case):
    """The probability of the evidence, and of each goal given that."""
    facts, choices, _, _, observed, _ = case
    worlds, total = enumerated(facts, choices, graph_model, observed)
    order = [name for name, _ in facts] + [name for choice in choices for name, _ in choice]
    masses = dict.fromkeys(ROWS, 0.0)
    for p, world in worlds:
        derived = graph_model({name for name, holds in zip(order, world) if holds})
        for row in ROWS:
            masses[row] += p * (("goal", *row) in derived)
    return total, masses


def check_sound(database, total, expected, tolerance=1e-12):
    for row, p in expected.items():
        interval = database.bounds("goal", row)
        assert interval.lower - tolerance <= p <= interval.upper + tolerance
        assert interval.lower <= interval.estimate <= interval.upper
        assert database["goal"].get(row, 0.0) == interval.estimate
    assert database.evidence_bounds.lower - tolerance <= total <= database.evidence_bounds.upper + tolerance


@pytest.mark.parametrize("seed", [*range(12), *(pytest.param(s, marks=pytest.mark.slow) for s in range(12, 300))])
def test_bounds_of_random_programs_are_sound(seed):
    # Recursion, negation, choices and evidence.
    case = drawn_case(seed)
    _, _, program, facts, _, evidence = case
    total, expected = posteriors(case)
    # A split at a time, until the bounds are narrow enough.
    with under(bound_seconds=(10.0, 0.0, 0.0, 10.0), look_seconds=0.0):
        for width in (0.6, 0.3, 0.05):
            database = program.run(facts, evidence=evidence, approximate=width)
            check_sound(database, total, expected)
            assert all(database.bounds("goal", row).width <= width for row in ROWS)
            assert (database.bounds("goal").confidence == 1.0).all()
    # By compiling alone.
    with under(bound_seconds=(0.0, 10.0, 10.0, 10.0)):
        database = program.run(facts, evidence=evidence, approximate=True)
        check_sound(database, total, expected, 1e-9)
        assert math.exp(database.log_evidence) == pytest.approx(total, rel=1e-9)
        assert all(database.bounds("goal", row).width == 0.0 for row in ROWS)
    # By samples alone, which are of the worlds with the evidence.
    with under(bound_seconds=(0.0, 0.0, 0.0, 0.02)):
        database = program.run(facts, evidence=evidence, approximate=0.5, seed=seed)
        check_sound(database, total, expected)
        bounds = database.bounds("goal")
        assert ((bounds.confidence == 0.99) | (bounds.upper - bounds.lower == 1.0)).all()


def test_without_evidence_bounds_are_of_each_tuple_of_each_output():
    program = dv.Program("""
        type edge(usize, usize)
        rel path(x, y) = edge(x, y) or path(x, z), edge(z, y)
        rel far(y) = path(0, y), not edge(0, y)
        query path(0, y)  query far
    """)
    rng = random.Random(1)
    edges = {(a, b): round(rng.random(), 2) for a in range(6) for b in range(6) if a != b and rng.random() < 0.5}
    exact, database = program.run({"edge": edges}), program.run({"edge": edges}, approximate=True)
    assert database.provenance == "exact"
    assert list(database) == list(exact)
    for name in exact:
        bounds = database.bounds(name)
        assert len(bounds) == len(database[name])
        assert np.array_equal(bounds.estimate, database[name].tags)
        for row, p in exact[name].items():
            interval = database.bounds(name, row)
            assert interval.lower - 1e-12 <= p <= interval.upper + 1e-12
            assert interval.width <= 0.01
    assert database.bounds("far", 77) == (0.0, 0.0, 0.0, 1.0)
    assert database.evidence_bounds == (1.0, 1.0, 1.0, 1.0)
    with pytest.raises(dv.DerivableError, match="was not approximate"):
        exact.bounds("far")


DENSE = dv.Program("type edge(usize, usize) rel path(0) rel path(y) = path(x), edge(x, y) query path")


def test_what_is_too_hard_ends_in_samples_that_are_said_to_be_some():
    edges = {(a, b): 0.2 for a in range(24) for b in range(24) if a != b}
    database = DENSE.run({"edge": edges}, approximate=1e-4, time_limit=0.5)
    bounds = database.bounds("path")
    assert (database.bounds("path", 0).width, database.bounds("path", 0).confidence) == (0.0, 1.0)
    assert (bounds.confidence == 0.99).sum() == 23
    # All but the first are alike.
    others = bounds.rows(bounds.confidence < 1.0)
    assert others.lower.max() <= others.upper.min()


def test_certain_programs_run_without_tags():
    database = dv.Program("rel edge = {(0, 1)} rel path(x, y) = edge(x, y) query path").run(approximate=True)
    assert database.provenance == "unit"
    assert database.evidence_bounds is None
    assert database.bounds("path", (0, 1)) == (1.0, 1.0, 1.0, 1.0)
    assert database.bounds("path", (1, 0)) == (0.0, 0.0, 0.0, 1.0)
    assert database.bounds("path").lower.tolist() == [1.0]


def test_evidence_that_no_world_has_is_refused():
    text = 'rel 0.5::a()  rel b() = a()  rel c(x) = b(), d(x)  rel d = {"Ada"}  query a'
    with pytest.raises(dv.DerivableError, match=r'`evidence c\("Ada"\)` holds in no world, given the items before it'):
        dv.Program(text).run(evidence={"a": False, "c": ["Ada"]}, approximate=True)
    with pytest.raises(dv.DerivableError, match=r'`evidence c\("Bob"\)` holds in no world\n'):
        dv.Program(text).run(evidence={"c": ["Bob"]}, approximate=True)


def test_rare_evidence_has_a_logarithm():
    program = dv.Program("""
        rel 0.5::sick()
        rel 0.1::high(i) = day(i), sick()
        rel 0.02::high(i) = day(i), not sick()
        query sick
    """)
    facts, evidence = {"day": [(i,) for i in range(600)]}, {"high": {i: i % 20 == 0 for i in range(600)}}
    exact = program.run(facts, evidence=evidence)
    database = program.run(facts, evidence=evidence, approximate=True)
    interval = database.bounds("sick", ())
    assert interval.lower - 1e-9 <= exact["sick"][()] <= interval.upper + 1e-9
    assert database.log_evidence == pytest.approx(exact.log_evidence, rel=0.01)


HIGH = dv.Program("""
    rel 0.5::sick()
    rel 0.001::high(i) = day(i), sick()
    rel 0.0001::high(i) = day(i), not sick()
    query sick
""")


@pytest.mark.parametrize("days", [30, 150])
def test_evidence_that_no_sample_has_is_bounded(days, costs):
    costs(bound_seconds=(0.0, 0.0, 0.0, 10.0))
    facts, evidence = {"day": [(i,) for i in range(days)]}, {"high": dict.fromkeys(range(days), True)}
    database = HIGH.run(facts, evidence=evidence, approximate=True, time_limit=0.3)
    assert database.evidence_bounds.lower <= 0.5 * (1e-3**days + 1e-4**days) <= database.evidence_bounds.upper < 0.1
    assert math.isfinite(database.log_evidence)


def test_the_bounds_of_evidence_that_is_too_rare_for_a_float_are_no_equal_ones():
    facts, evidence = {"day": [(i,) for i in range(150)]}, {"high": dict.fromkeys(range(150), True)}
    database = HIGH.run(facts, evidence=evidence, approximate=True)
    assert database.log_evidence == pytest.approx(math.log(0.5) + 150 * math.log(1e-3), rel=1e-6)
    assert database.evidence_bounds.lower == 0.0 < database.evidence_bounds.upper


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"approximate": 0.0}, "approximate is 0.0"),
        ({"approximate": 1.5}, "approximate is 1.5"),
        ({"approximate": "yes"}, "approximate is 'yes'"),
        ({"approximate": math.nan}, "approximate is nan"),
        ({"approximate": True, "keep": True}, "a run with keep=True is not approximate"),
        ({"approximate": True, "provenance": "minmaxprob"}, "a run with minmaxprob is not approximate"),
    ],
)
def test_what_is_no_approximate_run_is_refused(options, said):
    with pytest.raises(dv.DerivableError, match=said):
        dv.Program("rel 0.5::a() query a").run(**options)


def test_the_command_line_says_between_what_a_probability_lies(tmp_path, capsys, costs):
    costs(bound_seconds=(0.0, 0.0, 0.0, 10.0))
    edges = ", ".join(f"0.2::({a}, {b})" for a in range(24) for b in range(24) if a != b)
    path = tmp_path / "dense.scl"
    path.write_text(f"{DENSE.text}\nrel edge = {{{edges}}}")
    command = ["run", str(path), "--approximate", "0.1"]
    assert main(command) == 0
    lines = capsys.readouterr().out.splitlines()
    tag, _, rest = lines[1].partition("::path(1)  // ")
    lower, _, rest = rest.partition(" to ")
    upper, _, confidence = rest.partition(", with confidence ")
    assert float(lower) < float(tag) < float(upper) < float(lower) + 0.1
    assert confidence == "0.99"
    assert main([*command, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)["path"]
    for tag, (low, high, sure) in list(zip(document["tags"], document["bounds"]))[1:]:
        assert low < tag < high
        assert sure == 0.99
    assert main([*command, "--most-probable"]) == USER_ERROR
    capsys.readouterr()
    assert main(["run", "--approximate=0.5", str(path)]) == 0
    capsys.readouterr()
    assert main(["run", "--approximate", str(path)]) == USER_ERROR
    assert "before FILE write --approximate=0.01" in capsys.readouterr().err
