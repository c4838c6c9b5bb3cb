"""Small runs with tags as one call: the same rows in the same order, and the same bits of tags, as by columns."""

import numpy as np
import pytest
import torch
from hypothesis import strategies as st

import derivable as dv
from datalog.test_drive import RULES, STRATUM
from datalog.test_fused import NEVER, PAIRED, settings_of
from datalog.test_num_threads import CLOSURE
from datalog.test_tags import CAPACITY, LUKASIEWICZ
from datalog.test_whole_program import MORE
from datalog.test_whole_program import whole as whole_programs
from derivable.core.diagnostics import UnsupportedError
from drawn import examples

PROVENANCES = [
    *(("topkproofs", k) for k in (1, 2, 3, 20)),
    *((name, 1) for name in ("minmaxprob", "addmultprob", "topkproofsdebug", LUKASIEWICZ, CAPACITY, PAIRED)),
]
# Floats, which kernels here compute with; products of more than two facts; a table that is negated in two strata, with
# facts of another one between.
TAGGED = [
    "rel f(x, (x as f64) / 2.0 - 1.0) = start(x)\nrel f(x, v * -0.0 + 1.5) = f(x, v), v < 1.0, edge(x, _)\nquery f",
    "rel h((v as f32) / 3.0) = edge(x, v), start(x), v != 0\nrel over(1.0 / v) = h(v)\nquery over",
    "rel i(x, y) = edge(x, z), edge(z, w), edge(w, y), start(x), not edge(y, x)\nquery i",
    "rel j(x) = edge(x, y), not edge(y, x)\nrel k(x, y) = j(x), late(y), not edge(y, x), not j(y)\nquery k",
]
TYPES = "type late(x: i64)\ntype f(x: i64, v: f64)\ntype h(v: f32), over(v: f32)\n"


def whole(compiled=False):
    """Whole programs from the first run on; the numbers of strata that were run in this way, None where one failed."""
    return whole_programs(compiled, lambda found: None if found is None else found.number_of_strata)


def rows(database):
    return {
        name: [(row, repr(tag) if isinstance(tag, tuple) else np.asarray(tag).tobytes()) for row, tag in view.items()]
        for name, view in database.items()
    }


def outcome(program, facts, provenance, k):
    """What a run finds, or that tuples would have infinitely many derivations to add up."""
    try:
        return rows(program.run(facts, provenance, k=k))
    except UnsupportedError as error:
        return error.message


def facts_of(data):
    """Some certain, some of equal probabilities, and some that exclude each other."""
    chance = st.sampled_from([None, 0.25, 0.5, 0.5, 0.5, 0.75, 1.0, 0.0])
    pair = st.tuples(st.integers(0, 6), st.integers(0, 6))
    facts = {
        "start": data.draw(st.lists(st.tuples(chance, st.tuples(st.integers(-2, 8))), max_size=3)),
        "edge": data.draw(st.lists(st.tuples(chance, pair), max_size=6)),
        "late": data.draw(st.lists(st.tuples(chance, st.tuples(st.integers(0, 6))), max_size=2)),
    }
    facts = {name: [row if p is None else (p, row) for p, row in given] for name, given in facts.items()}
    values = data.draw(st.lists(pair, max_size=3, unique=True))
    if values and data.draw(st.booleans()):
        facts["edge"] = dv.categorical(values, np.full(len(values), 0.5 / len(values) + 0.125))
    return facts


@examples(12, 200, st.data())
def test_rows_and_bits_of_tags_are_those_over_columns(data):
    provenance, k = data.draw(st.sampled_from(PROVENANCES))
    rules = data.draw(st.lists(st.sampled_from(RULES), max_size=2, unique=True))
    rules += data.draw(st.lists(st.sampled_from([*MORE, *TAGGED]), min_size=1, max_size=2, unique=True))
    chosen = "\n".join([STRATUM, TYPES, *(rule.format(k=data.draw(st.integers(1, 4))) for rule in rules)])
    program, facts = dv.Program(chosen), [facts_of(data) for _ in range(2)]
    with settings_of(NEVER, NEVER):
        wanted = [outcome(program, given, provenance, k) for given in facts]
    with whole():
        assert [outcome(program, given, provenance, k) for given in facts] == wanted


@pytest.mark.parametrize(("provenance", "k"), [("minmaxprob", 1), ("topkproofs", 1), ("topkproofs", 3)])
def test_tables_and_sets_grow(provenance, k):
    """Also of proofs of several literals in rounds after which their room is at its end; the memory is used again."""
    rng = np.random.default_rng(1)
    program, facts = dv.Program(f"{CLOSURE}\nrel left(x) = path(x, y), not edge(x, y)\nquery left"), []
    for size in 3, 60, 200, 5:
        edges = np.unique(rng.integers(0, 12 if size < 100 else 25, (size, 2)), axis=0)
        facts.append({"edge": [(float(p), tuple(row)) for p, row in zip(rng.random(len(edges)), edges.tolist())]})
    with settings_of(NEVER, NEVER, compiled=True):
        wanted = [rows(program.run(given, provenance, k=k)) for given in facts]
    with whole(compiled=True) as made:
        assert [rows(program.run(given, provenance, k=k)) for given in facts] == wanted
    assert None not in made
    assert len(made) == len(facts)


def test_more_than_a_small_run_is_left_to_others():
    """A run that is given up in its middle leaves nothing to the next one."""
    program, small = dv.Program(CLOSURE), {"edge": [(0.5, (0, 1)), (0.25, (1, 2)), (0.25, (0, 2))]}
    large = {"edge": [(0.5, (k, k + 1)) for k in range(120)]}
    with settings_of(NEVER, NEVER, compiled=True):
        wanted = [rows(program.run(given, "topkproofs", k=2)) for given in (small, large, small)]
    with whole(compiled=True) as made:
        found = [rows(program.run(given, "topkproofs", k=2)) for given in (small, large, small)]
    assert found == wanted
    assert made == [2, None, 2]


@pytest.mark.parametrize("provenance", ["minmaxprob", "topkproofs"])
def test_strata_that_have_ended_stay_where_a_run_is_no_small_one(provenance):
    text = "type edge(i32, i32)\nrel on(x, y) = edge(x, y), x >= 0\nrel path(x, y) = on(x, y)\n"
    program = dv.Program(text + "rel path(x, z) = path(x, y), on(y, z)\nquery path")
    facts = {"edge": [(0.5 + k / 400, (k, k + 1)) for k in range(120)]}
    with settings_of(NEVER, NEVER, compiled=True):
        wanted = rows(program.run(facts, provenance, k=2))
    with whole(compiled=True) as made:
        assert rows(program.run(facts, provenance, k=2)) == wanted
    assert made == [len(program.run(facts, provenance, keep=True).profile.strata) - 1]


def test_proofs_that_come_back_are_left_to_others():
    """Two proofs of way(5) leave for one, and a third that was dropped is one of the best again."""
    text = "type step(i32, i32)\nrel step = {(2, 5), (3, 5), (4, 5), (1, 6), (6, 7), (7, 5)}\nrel way(0)\n"
    program = dv.Program(text + "rel way(y) = way(x), step(x, y)\nquery way")
    facts = {"step": [(0.9, (0, 1)), (0.8, (1, 2)), (0.7, (1, 3)), (0.1, (0, 4))]}
    with whole() as made:
        found = [program.run(facts, "topkproofs", k=k)["way"][5,] for k in (2, 4)]
    assert found == pytest.approx([1 - (1 - 0.9) * (1 - 0.1)] * 2)
    # Of four proofs none is dropped.
    assert made[0] is None
    assert made[-1]


def test_orders_of_joins_are_those_of_any_run():
    """Sizes decide on them before a stratum and in its rounds."""
    text = "type e(u32, u32), n(u32)\nrel t(x, y) = e(x, y)\nrel t(x, z) = t(x, y), e(y, z), n(x), n(z)\nquery t"
    text += "\nrel far(x) = t(x, y), t(y, z), n(z), x != z\nquery far"
    program, rng = dv.Program(text), np.random.default_rng(3)
    for count in 10, 40:
        edges = np.unique(rng.integers(0, count, (3 * count, 2)), axis=0).tolist()
        facts = {"e": [(0.5, tuple(edge)) for edge in edges], "n": [(0.75, (k,)) for k in range(0, count, 2)]}
        with settings_of(NEVER, NEVER, compiled=True):
            wanted = rows(program.run(facts, "minmaxprob"))
        with whole(compiled=True) as made:
            assert rows(program.run(facts, "minmaxprob")) == wanted
        assert len(made) == 1


@pytest.mark.parametrize(("provenance", "k"), [("minmaxprob", 1), ("topkproofs", 1), ("topkproofs", 3)])
def test_samples_of_layers_are_one_call(provenance, k):
    """Outputs and gradients have the bits of other runs, also where facts exclude each other, and of a small batch."""
    text = f"{CLOSURE}\nrel left(x) = path(x, y), not edge(x, y)\nquery left"
    layer = dv.nn.Logic(text, inputs={"edge": dv.varying()}, outputs={"left": None}, provenance=provenance, k=k)
    tuples, groups = [(0, 1), (1, 2), (0, 2), (2, 3), (3, 4), (2, 4)], torch.tensor([0, -1, 0, 1, -1, 1])
    chances = torch.tensor([0.5, 0.5, 0.25, 0.5, 0.75, 0.25], dtype=torch.float64, requires_grad=True)

    def outcomes():
        found = []
        for count in (3, 6):
            sample = (tuples[:count], chances[:count], groups[:count])
            for batch in ([sample], [(tuples[1:4], chances[1:4]), sample]):
                samples = layer(edge=batch)
                total = sum((y * (1 + torch.arange(len(y)))).sum() for _, y in samples)
                (gradient,) = torch.autograd.grad(total, chances)
                found.append([(list(rows), y.tolist()) for rows, y in samples] + [gradient.tolist()])
        return found

    with settings_of(NEVER, NEVER, compiled=True):
        wanted = outcomes()
    with whole(compiled=True) as made:
        assert outcomes() == wanted
    assert len(made) == 4
    assert None not in made


def test_strata_before_one_that_is_run_in_another_way_are_one_call():
    program = dv.Program(f"{CLOSURE}\nrel best(y) = y := top<1>(y: path(0, y))\nquery best")
    facts = {"edge": [(0.5, (0, 1)), (0.75, (1, 2)), (0.25, (0, 2))]}
    for provenance in "minmaxprob", "topkproofs":
        with settings_of(NEVER, NEVER):
            wanted = rows(program.run(facts, provenance))
        with whole() as made:
            assert [rows(program.run(facts, provenance)) for _ in range(2)] == [wanted] * 2
        assert len(made) == 2
        assert None not in made


def test_profiles_count_what_was_done():
    program, facts = dv.Program(CLOSURE), {"edge": [(0.5, (0, 1)), (0.5, (1, 2)), (0.5, (2, 3))]}
    with settings_of(NEVER, NEVER):
        wanted = program.run(facts, "minmaxprob").profile
    with whole() as made:
        found = program.run(facts, "minmaxprob").profile
    assert made == [len(found.strata)]
    assert [(one.rounds, one.rows) for one in found.strata] == [(one.rounds, one.rows) for one in wanted.strata]
    counts = [{(e.instruction.relation, e.candidates, e.rows) for e in p.rules} for p in (found, wanted)]
    assert counts[0] == counts[1]
    assert "by kernel in the driver" in str(found)


def test_limits_and_what_is_kept_take_the_other_way():
    program, facts = dv.Program(CLOSURE), {"edge": [(0.5, (0, 1)), (0.5, (1, 2)), (0.5, (2, 3))]}
    with whole() as made:
        assert len(program.run(facts, "topkproofs", keep=True)["path"]) == 6
        assert len(program.run(facts, "topkproofs", iteration_limit=1)["path"]) == 5
    assert made == []
