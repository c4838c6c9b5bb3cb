"""An exact run over the facts of an earlier one evaluates its circuit, and finds what a program of its own finds."""

import itertools

import numpy as np
import pytest

import derivable as dv
from derivable.core.diagnostics import LimitError
from derivable.datalog.api import evaluation
from derivable.datalog.exact import networks, saved_runs
from derivable.datalog.run import execute

PATHS = """type edge(source: u32, target: u32)
rel path(x, y) = edge(x, y)
rel 0.75::path(x, z) = path(x, y), edge(y, z)
rel apart(x, y) = node(x), node(y), x < y, not path(x, y)
rel node = {0, 1, 2, 3}
query path
query apart
"""
EDGES = [(0, 1), (1, 2), (2, 0), (2, 3), (0, 3)]


def found(database):
    return {name: dict(view.items()) for name, view in database.items()}


@pytest.fixture
def grounded(calls_of, monkeypatch):
    """The runs that went over strata."""
    monkeypatch.setattr(networks, "network_run", lambda *_: None)
    return calls_of(execute.Executor, "run", lambda executor: executor.ram)


@pytest.mark.parametrize("text", [PATHS, PATHS.replace("0.75::", "")])
def test_other_probabilities_need_no_grounding(grounded, text):
    program, rng = dv.Program(text), np.random.default_rng(0)
    program.run({"edge": dict.fromkeys(EDGES, 0.5)})
    grounded.clear()
    # Zero and one are probabilities too: then some tuples are in no world.
    for tags in ([0.0, 1.0, 0.0, 1.0, 0.5], *rng.random((4, 5)).tolist()):
        facts = {"edge": dict(zip(EDGES, tags))}
        database = program.run(facts)
        assert not grounded
        assert "an earlier run" in database.explain()
        assert found(database) == found(dv.Program(text).run(facts))
        grounded.clear()


def test_probabilities_are_those_of_worlds():
    """By all 2^5 worlds, each closed by Warshall's algorithm."""
    program = dv.Program(PATHS.replace("0.75::", ""))
    for tags in np.random.default_rng(1).random((3, 5)):
        expected = {}
        for world in itertools.product([0, 1], repeat=5):
            holds = {edge for edge, there in zip(EDGES, world) if there}
            for y, x, z in itertools.product(range(4), repeat=3):
                if (x, y) in holds and (y, z) in holds:
                    holds.add((x, z))
            weight = np.prod(np.where(world, tags, 1 - tags))
            for pair in holds:
                expected[pair] = expected.get(pair, 0.0) + weight
        database = program.run({"edge": dict(zip(EDGES, tags.tolist()))})
        assert dict(database["path"].items()) == pytest.approx(expected)


def test_other_facts_are_other_runs(grounded):
    text = "rel likes(x, y) = knows(x, y), kind(y)\nquery likes"
    program = dv.Program(f"type knows(a: String, b: String)\ntype kind(a: String)\n{text}")
    alternatives = [
        {"knows": {("ann", "bob"): 0.5, ("ann", "cid"): 0.25}, "kind": ["bob", "cid"]},
        {"knows": {("ann", "bob"): 0.5, ("ann", "dan"): 0.25}, "kind": ["bob", "dan"]},
        {"knows": {("ann", "bob"): 0.5, ("ann", "cid"): 0.25}, "kind": ["bob"]},
        {"knows": dv.categorical([("ann", "bob"), ("ann", "cid")], [0.5, 0.5]), "kind": ["bob", "cid"]},
        {"knows": dv.categorical([("ann", "bob"), ("ann", "cid")], [0.5, 0.25]), "kind": ["bob", "cid"]},
        {"knows": [("ann", "bob")], "kind": {"bob": 0.5}},
    ]
    expected = [
        {("ann", "bob"): 0.5, ("ann", "cid"): 0.25},
        {("ann", "bob"): 0.5, ("ann", "dan"): 0.25},
        {("ann", "bob"): 0.5},
        {("ann", "bob"): 0.5, ("ann", "cid"): 0.5},
        {("ann", "bob"): 0.5, ("ann", "cid"): 0.25},
        {("ann", "bob"): 0.5},
    ]
    for _ in range(2):
        for facts, wanted in zip(alternatives, expected):
            assert dict(program.run(facts)["likes"].items()) == pytest.approx(wanted)
    assert len(grounded) == len(alternatives)


def test_runs_after_the_first_compile_nothing(monkeypatch):
    """The facts of a program are loaded in one part from the second run on, and are the same facts."""
    facts = "\n".join(f"rel 0.{n + 1}::edge({n}, {n + 1})" for n in range(3))
    program = dv.Program(f"{facts}\nrel path(x, y) = edge(x, y)\nrel path(x, z) = path(x, y), edge(y, z)")
    made = []
    with monkeypatch.context() as patch:
        compiled = evaluation.Evaluation.compiled
        patch.setattr(evaluation.Evaluation, "compiled", lambda self, *rest: made.append(1) or compiled(self, *rest))
        found_so_far = [found(program.run(provenance="exact")) for _ in range(4)]
    assert all(one == found_so_far[0] for one in found_so_far)
    assert made == [1]


def test_limits_and_profiles_ground_again(grounded):
    program, facts = dv.Program(PATHS), {"edge": dict.fromkeys(EDGES, 0.5)}
    first = found(program.run(facts))
    with pytest.raises(LimitError):
        program.run(facts, tuple_limit=5)
    assert len(found(program.run(facts, iteration_limit=0))["path"]) == len(EDGES)
    assert "rel apart" in program.explain("plan", facts)
    database = program.run(facts, keep=True)
    assert found(database) == first
    database.add({"edge": [(0.5, (3, 1))]})
    assert found(program.run(facts)) == first


def test_functions_of_users_are_called_again():
    seen = []

    @dv.datalog.function(name="kept_noted")
    def noted(x: int) -> int:
        seen.append(x)
        return x + len(seen)

    program = dv.Program("type e(x: i32)\nrel p($kept_noted(x)) = e(x)\nquery p")
    assert [list(program.run({"e": {(1,): 0.5}})["p"]) for _ in range(2)] == [[(2,)], [(3,)]]


def test_few_runs_are_kept():
    program = dv.Program("type e(x: i32)\nrel p(x) = e(x)\nquery p")
    for number in range(40):
        assert dict(program.run({"e": {(number,): 0.5}})["p"].items()) == {(number,): 0.5}
    rams = [plan.ram(True) for plan in program._plans.values()]
    assert 0 < max(len(ram.plans.get("saved runs", ())) for ram in rams) <= saved_runs.MOST_SAVED


def test_written_facts_are_read_once():
    """Later runs begin with copies: what runs add, of texts, facts and random facts, is none of the others'."""
    text = """
        type p(String), q(String, i32)
        rel p = {0.3::"a"; 0.7::"b"}  rel p = {0.5::"c"}
        rel 0.25::q("a", 1)  rel q("d", 2)
        rel r(x, n) = p(x), q(x, n)
        query r  query p
    """
    program, given = dv.Program(text), {"p": [(0.5, ("d",)), (0.1, ("e",))], "q": [("e", 3), ("c", 1)]}
    alone, more = dv.Program(text).run(), dv.Program(text).run(given)
    for facts, expected in ((None, alone), (given, more), (None, alone), (given, more), (None, alone)):
        database = program.run(facts, keep=True)
        assert found(database) == found(expected)
        database.add({"q": [("b", 7)]})
        assert dict(database["r"])[("b", 7)] == pytest.approx(0.7)
        database.remove({"q": [("d", 2)]})
        assert ("d", 2) not in dict(database["r"])
