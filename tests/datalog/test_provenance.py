"""The laws of every registered provenance, what they say on known programs, and their ground programs."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import derivable as dv
from datalog.naive import fact_sets, programs, text_of
from datalog.test_agreement import CLOSURE
from derivable.algebra.semiring import Semiring
from derivable.algebra.semirings import boolean
from derivable.core.diagnostics import UnsupportedError
from derivable.datalog.exact.ground_program import ground
from derivable.datalog.tags.proof_sets import AllProofTags
from derivable.datalog.tags.provenance import provenance_of, tags_of
from derivable.datalog.tags.random_facts import CHANCE, TAG, RandomFacts

NUM_FACTS = 5
NAMES = ("minmaxprob", "addmultprob", "max_product", "real", "topkproofs")


def started(name, k=1000):
    facts = RandomFacts()
    facts.add(np.array([0.1, 0.5, 0.8]))
    facts.add_choice(np.array([0.3, 0.6]))
    return tags_of(provenance_of(name), facts, k)


class Ending(list):
    """A list that a signal ends before it has grown."""

    def extend(self, more):
        raise KeyboardInterrupt


def test_an_addition_that_is_ended_leaves_the_kinds_of_other_facts():
    facts = RandomFacts()
    facts.add(np.array([0.1, 0.2]), "tag")
    facts.probabilities = Ending(facts.probabilities)
    with pytest.raises(KeyboardInterrupt):
        facts.add(np.array([0.3, 0.4, 0.5]), "value")
    facts.probabilities = list(facts.probabilities)
    variables = facts.add(np.array([0.6]))
    assert variables.tolist() == [2]
    assert facts.kinds_of(np.arange(3)).tolist() == [TAG, TAG, CHANCE]
    assert len(facts.kinds) == 3


@st.composite
def tags(draw, provenance):
    """A tag built from random facts by plus, times and negate."""
    tag = provenance.fact_tags(np.array([draw(st.integers(0, NUM_FACTS - 1))]))
    for _ in range(draw(st.integers(0, 3))):
        other = provenance.fact_tags(np.array([draw(st.integers(0, NUM_FACTS - 1))]))
        operation = draw(st.sampled_from(["plus", "times", "negate"]))
        tag = provenance.negate(tag) if operation == "negate" else getattr(provenance, operation)(tag, other)
    return tag


def same(provenance, a, b):
    if isinstance(provenance, AllProofTags):
        return (provenance.show(a) == provenance.show(b)).all()
    return np.allclose(provenance.show(a), provenance.show(b), atol=1e-12)


@pytest.mark.parametrize("name", [*NAMES, "proofs", "samplekproofs", "topbottomkclauses"])
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_laws(name, data):
    p = started(name)
    a, b, c = (data.draw(tags(p)) for _ in range(3))
    zero, one = p.zero(1), p.one(1)
    for operation in (p.plus, p.times):
        assert same(p, operation(a, b), operation(b, a))
        assert same(p, operation(a, operation(b, c)), operation(operation(a, b), c))
    assert same(p, p.plus(a, zero), a)
    assert same(p, p.times(a, one), a)
    assert same(p, p.times(a, zero), zero)
    assert p.is_zero(zero).all()
    assert not p.is_zero(one).any()
    assert p.saturated(a, a).all()
    assert same(p, p.negate(zero), one)
    assert same(p, p.negate(one), zero)
    if name != "addmultprob":
        # With every proof kept, proof sets distribute too.
        assert same(p, p.times(a, p.plus(b, c)), p.plus(p.times(a, b), p.times(a, c)))


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_sums_of_samples_depend_on_no_order(data):
    """Two proofs of many are kept: the same ones, in whatever order sums are made."""
    p = started("samplekproofs", 2)
    a, b, c = (data.draw(tags(p)) for _ in range(3))
    assert (p.plus(a, p.plus(b, c)) == p.plus(p.plus(c, a), b)).all()
    assert (p.plus(a, a) == a).all()


@pytest.mark.parametrize("name", NAMES)
def test_reduce_is_a_fold(name):
    p = started(name)
    column = p.fact_tags(np.array([0, 1, 2, 3, 4, 0, 1]))
    offsets = np.array([0, 1, 4, 7])
    expected = [
        column[0],
        *(p.plus(p.plus(column[i : i + 1], column[i + 1 : i + 2]), column[i + 2 : i + 3])[0] for i in (1, 4)),
    ]
    assert same(p, p.reduce(column, offsets), np.array(expected, dtype=column.dtype))


def paths_of(edges):
    """Every path of an acyclic graph as a list of edges, by (source, target)."""
    found = {}

    def walk(start, at, used):
        for source, target in edges:
            if source == at:
                found.setdefault((start, target), []).append([*used, (source, target)])
                walk(start, target, [*used, (source, target)])

    for start in {source for source, _ in edges}:
        walk(start, start, [])
    return found


@pytest.mark.parametrize(("name", "value"), [("real", sum), ("counting", len), ("log", lambda p: np.log(sum(p)))])
def test_sums_over_derivations_count_each_once(name, value):
    """Paths of different lengths arrive in different rounds, and each is added up once."""
    edges = {(0, 1): 0.9, (1, 2): 0.5, (0, 2): 0.3, (2, 3): 0.7, (1, 3): 0.2, (3, 4): 0.6, (0, 4): 0.1}
    db = dv.Program(CLOSURE).run(facts={"edge": edges}, provenance=name)
    expected = {
        ends: value([np.prod([edges[edge] for edge in path]) for path in paths])
        for ends, paths in paths_of(edges).items()
    }
    assert dict(db["path"].items()) == pytest.approx(expected)


@pytest.mark.parametrize("name", ["unit", "boolean", "minmaxprob", "counting", "exact", "topkproofs"])
def test_a_fact_of_probability_zero_is_not_there(name):
    """But without tags, where these count nothing."""
    facts = {"edge": {(0, 1): 0.0, (1, 2): 0.5, (2, 3): 1.0}}
    is_ignored = name in ("unit", "boolean")
    expected = {(1, 2), (2, 3), (1, 3)} | ({(0, 1), (0, 2), (0, 3)} if is_ignored else set())
    assert set(dv.Program(CLOSURE).run(facts=facts, provenance=name)["path"]) == expected


def test_an_endless_sum_is_refused():
    with pytest.raises(dv.DerivableError, match="derived from itself"):
        dv.Program(CLOSURE).run(facts={"edge": {(0, 1): 0.5, (1, 0): 0.5}}, provenance="real")


def test_set_difference_without_a_complement():
    text = "type p(i32), q(i32)\nrel r(x) = p(x), not q(x)"
    db = dv.Program(text).run(facts={"p": {1: 0.5, 2: 0.25}, "q": {1: 0.5}}, provenance="min_plus")
    assert dict(db["r"].items()) == {(2,): 0.25}


def test_minmaxprob_is_the_widest_path():
    import networkx as nx

    random = np.random.default_rng(3)
    graph = nx.gnp_random_graph(12, 0.25, seed=4, directed=True)
    edges = [((a, b), float(random.random())) for a, b in graph.edges]
    db = dv.Program(CLOSURE).run(facts={"edge": dict(edges)}, provenance="minmaxprob")
    best = dict(edges)
    for middle in graph:
        for a in graph:
            for b in graph:
                through = min(best.get((a, middle), 0.0), best.get((middle, b), 0.0))
                best[a, b] = max(best.get((a, b), 0.0), through)
    assert dict(db["path"].items()) == pytest.approx({k: v for k, v in best.items() if v > 0})


def test_addmultprob_adds_and_clamps():
    text = "type p(i32), q(i32)\nrel r(x) = p(x) or q(x)\nrel s(x) = p(x), q(x)\nrel t(x) = p(x), not q(x)"
    facts = {"p": [(0.7, (1,)), (0.2, (2,))], "q": [(0.6, (1,)), (0.5, (2,))]}
    db = dv.Program(text).run(facts=facts, provenance="addmultprob")
    assert db["r"][1] == 1.0
    assert db["r"][2] == pytest.approx(0.7)
    assert db["s"][1] == pytest.approx(0.42)
    assert db["t"][2] == pytest.approx(0.1)


def test_topk_keeps_the_best_proofs():
    facts = {"edge": [(0.9, (0, 1)), (0.9, (1, 3)), (0.5, (0, 2)), (0.5, (2, 3)), (0.1, (0, 3))]}
    one = dv.Program(CLOSURE).run(facts=facts, provenance="topkproofs", k=1)["path"][0, 3]
    two = dv.Program(CLOSURE).run(facts=facts, provenance="topkproofs", k=2)["path"][0, 3]
    all_proofs = dv.Program(CLOSURE).run(facts=facts, provenance="topkproofs", k=9)["path"][0, 3]
    exact = dv.Program(CLOSURE).run(facts=facts, provenance="exact")["path"][0, 3]
    assert one == pytest.approx(0.81)
    assert two == pytest.approx(1 - 0.19 * 0.75)
    assert one < two < all_proofs
    assert all_proofs == pytest.approx(exact)


@settings(max_examples=25, deadline=None)
@given(program=programs(max_rules=2), facts=fact_sets(5, 2), seed=st.integers(0, 99))
def test_sets_of_all_proofs_are_exact(program, facts, seed):
    """With room for every proof; Python tuples and rows of bits alike."""
    rules, _ = program
    random = np.random.default_rng(seed)
    given_facts = {
        relation: dv.independent(rows, random.uniform(0.05, 0.95, len(rows))) for relation, rows in facts.items()
    }
    runs = {
        name: dv.Program(text_of(rules)).run(facts=given_facts, provenance=name, k=10_000)
        for name in ("exact", "topbottomkclauses", "samplekproofs", "topkproofsdebug")
    }
    for relation, view in runs["exact"].items():
        for name, db in runs.items():
            found = dict(db[relation])
            if name == "topkproofsdebug":
                found = {row: p for row, (p, _) in found.items()}
            assert found == pytest.approx(dict(view), abs=1e-9), name


@pytest.mark.parametrize("name", [*NAMES, "counting", "nandmultprob", "nandminprob", "topbottomkclauses"])
@settings(max_examples=25, deadline=None)
@given(program=programs(max_rules=2), facts=fact_sets(5, 2), seed=st.integers(0, 99))
def test_the_ground_program_agrees_with_the_run(name, program, facts, seed):
    rules, _ = program
    text = text_of(rules)
    random = np.random.default_rng(seed)
    inputs = {relation: dv.independent(rows) for relation, rows in facts.items()}
    chances = {relation: random.uniform(0.05, 0.95, len(rows)) for relation, rows in facts.items()}
    given_facts = {relation: dv.independent(rows, chances[relation]) for relation, rows in facts.items()}
    k = 10_000
    record = provenance_of(name)
    db = None
    try:
        db = dv.Program(text).run(facts=given_facts, provenance=name, k=k)
    except UnsupportedError as error:
        refusal = str(error)
    if db is None:
        assert not record.idempotent_plus
        assert "derived from itself" in refusal
        return
    outputs = {relation: list(db[relation]) for relation in db if len(db[relation])}
    grounded = ground(dv.Program(text), inputs, outputs, provenance=record if isinstance(record, Semiring) else boolean)
    assert (np.repeat(np.arange(len(grounded.kind)), np.diff(grounded.offsets)) > grounded.children).all()
    weights = RandomFacts(list(grounded.random.probabilities), grounded.random.groups)
    for relation, variables in grounded.variables.items():
        for variable, p in zip(variables, chances[relation]):
            weights.probabilities[variable] = float(p)
    columns = tags_of(record, weights, k)
    found = columns.show(grounded.evaluate(columns))
    expected = [db[relation][row] for relation, rows in outputs.items() for row in rows]
    np.testing.assert_allclose(found.astype(float), np.array(expected, float), atol=1e-9)
