"""Values that several atoms have in common for a variable: kernels that intersect them agree with the reference.

Kernels are interpreted with room for few rows, so that they go on from every loop; lists have rows of bits or not.
"""

import math
import re
from collections import defaultdict

import networkx as nx
import numpy as np
import pytest
from hypothesis import strategies as st

import derivable as dv
from datalog.observers import results_of
from datalog.test_fused import SET_ROWS, settings_of
from derivable.datalog.fused import kernel_plan, kernel_steps
from derivable.datalog.policy.costs import under
from derivable.datalog.ram.interpret import interpret
from derivable.datalog.tables import trie
from derivable.datalog.tables.storage import Table
from derivable.datalog.values.values import TYPES
from drawn import examples

TYPES_OF = "type e(i64, i64), f(i64, i64), g(i64, i64, i64), u(i64)\n"
ATOMS = ["e({}, {})", "e({}, {})", "f({}, {})", "g({}, {}, {})", "u({})", "e({}, 2)", "g({}, {}, 1)", "f({}, _)"]
NAMES = ["a", "b", "c", "d"]


@pytest.fixture
def plans():
    """The kernels that are planned."""
    with results_of(kernel_plan._Planner, "plan") as planned:
        yield planned


@st.composite
def bodies(draw):
    """(names that are bound, body) of a rule of three to six atoms, with conditions and a negation perhaps."""
    atoms = draw(st.lists(st.sampled_from(ATOMS), min_size=3, max_size=6))
    parts, bound = [], set()
    for atom in atoms:
        names = [draw(st.sampled_from(NAMES)) for _ in range(atom.count("{}"))]
        parts.append(atom.format(*names))
        bound |= set(names)
    names = sorted(bound)
    more = ["{} < {}", "{} != {}", "not f({}, {})", "{} + 1 == {}", "not u({})"]
    for one in draw(st.lists(st.sampled_from(more), max_size=2)):
        parts.append(one.format(*(draw(st.sampled_from(names)) for _ in range(one.count("{}")))))
    return names, ", ".join(parts)


def facts_of(draw):
    """Facts of which some values are frequent."""
    value = st.sampled_from([0, 0, 0, 1, 1, 2, 3, 5, 70, 130, -3])
    widths = {"e": 2, "f": 2, "g": 3, "u": 1}
    return {name: draw(st.lists(st.tuples(*[value] * width), max_size=14)) for name, width in widths.items()}


@examples(15, 600, bodies(), st.data())
def test_rules_agree_with_the_reference(body, data):
    names, literals = body
    facts = facts_of(data.draw)
    head = data.draw(st.lists(st.sampled_from(names), min_size=1, unique=True))
    text = f"""{TYPES_OF}type r({", ".join(["i64"] * len(head))}), n(usize)
        rel r({", ".join(head)}) = {literals}
        rel n(x) = x := count({", ".join(names)}: {literals})
        query r
        query n"""
    program = dv.Program(text)
    meaning = interpret(program.lowered(facts), facts)
    words = data.draw(st.sampled_from([(1, 8, 1 << 18), (0, 0, 0), (0, 1, 1)]))
    costs, kernels = (
        under(small_round=2, bit_words=words),
        settings_of(0, data.draw(SET_ROWS), data.draw(st.integers(1, 4))),
    )
    with kernels, costs:
        found = program.run(facts, keep=data.draw(st.booleans()))
    for name in ("r", "n"):
        assert set(found[name]) == meaning[name], name


@pytest.mark.parametrize("provenance", ["unit", "minmaxprob", "topkproofs", "exact"])
def test_provenances_agree(provenance):
    random = np.random.default_rng(0)
    facts = {"e": [(0.5, tuple(row)) for row in random.integers(0, 6, (18, 2)).tolist()]}
    text = "type e(i64, i64)\nrel r(a, b, c) = e(a, b), e(b, c), e(a, c)\nquery r"
    with settings_of(0, 1):
        found = dv.Program(text).run(facts, provenance)
    wanted = dv.Program(text).run(facts, provenance)
    assert sorted(map(str, found["r"])) == sorted(map(str, wanted["r"]))
    assert len(wanted["r"]) > 3


def join_of(atoms, tagged, bound):
    """Pairs (values by name, tags of the rows) of atoms (relation, names), row by row."""
    if not atoms:
        yield bound, ()
        return
    (relation, names), *others = atoms
    for row, tag in tagged[relation].items():
        here = dict(bound)
        if all(here.setdefault(name, value) == value for name, value in zip(names, row)):
            for values, tags in join_of(others, tagged, here):
                yield values, (tag, *tags)


@examples(20, 600, bodies(), st.data())
def test_tags_are_those_of_all_rows(body, data):
    names, literals = body
    atoms = [(one[0], re.findall(r"\w+", one[2:])) for one in re.findall(r"(?<!not )\b[efgu]\([^)]*\)", literals)]
    atoms = [one for one in atoms if all(name in NAMES for name in one[1])]
    names = sorted({name for _, some in atoms for name in some})
    if len(atoms) < 2:
        return
    tag = st.sampled_from([0.25, 0.5, 0.75, 0.875])
    tagged = {name: {tuple(row): data.draw(tag) for row in rows} for name, rows in facts_of(data.draw).items()}
    head = data.draw(st.lists(st.sampled_from(names), min_size=1, unique=True))
    literals = ", ".join(f"{relation}({', '.join(some)})" for relation, some in atoms)
    program = dv.Program(f"{TYPES_OF}rel r({', '.join(head)}) = {literals}\nquery r")
    best, total = {}, defaultdict(float)
    for values, tags in join_of(atoms, tagged, {}):
        key = tuple(values[name] for name in head)
        best[key] = max(best.get(key, 0.0), min(tags))
        total[key] += math.prod(tags)
    facts = {name: [(one, row) for row, one in rows.items()] for name, rows in tagged.items()}
    with settings_of(0, data.draw(SET_ROWS), data.draw(st.integers(1, 4))):
        for provenance, wanted in (("minmaxprob", best), ("real", total)):
            found = dict(program.run(facts, provenance)["r"].items())
            assert found == pytest.approx(dict(wanted)), provenance


def hubs():
    """A graph some of whose nodes are linked with nearly all others, as pairs with the smaller one first."""
    random = np.random.default_rng(1)
    pairs = np.concatenate([random.integers(0, 40, (500, 2)), random.integers(0, 400, (400, 2))])
    pairs = np.sort(pairs[pairs[:, 0] != pairs[:, 1]], axis=1)
    return np.unique(pairs, axis=0)


@pytest.mark.parametrize("provenance", ["minmaxprob", "addmultprob", "topkproofs"])
def test_rules_with_tags_intersect(provenance, plans):
    random = np.random.default_rng(0)
    facts = {"e": [(0.5, tuple(row)) for row in random.integers(0, 6, (18, 2)).tolist()]}
    with settings_of(0, 1):
        dv.Program("type e(i64, i64)\nrel r(a) = e(a, b), e(b, c), e(a, c)\nquery r").run(facts, provenance)
    assert any(isinstance(step, kernel_steps.Intersect) for one in plans for step in one.plan.steps)


@pytest.mark.parametrize("moved", [0, 1 << 20, -1000])
def test_cliques_of_hubs_agree_with_networkx(moved, plans, costs):
    edges = hubs()
    sizes = [len(clique) for clique in nx.enumerate_all_cliques(nx.Graph(edges.tolist()))]
    costs(few_rows=0, many_rows=0)
    text = """type e(i64, i64), four(i64, i64, i64, i64), n(usize)
        rel four(a, b, c, d) = e(a, b), e(a, c), e(b, c), e(a, d), e(b, d), e(c, d)
        rel n(x) = x := count(a, b, c: e(a, b), e(b, c), e(a, c))
        query four
        query n"""
    found = dv.Program(text).run({"e": edges + moved}, "unit")
    assert len(found["four"]) == sizes.count(4) > 100
    assert list(found["n"]) == [(sizes.count(3),)]
    steps = [step for one in plans for step in one.plan.steps]
    assert sum(isinstance(step, kernel_steps.Intersect) and step.count > 0 for step in steps) >= 2


def test_counts_of_what_is_independent_are_multiplied(monkeypatch):
    random = np.random.default_rng(2)
    edges = np.unique(random.integers(0, 9, (30, 2)), axis=0)
    adjacency = np.zeros((9, 9), int)
    adjacency[tuple(edges.T)] = 1
    paths, here = adjacency @ adjacency, (adjacency * (adjacency @ adjacency)).sum(1)
    wanted = {
        "stars": (adjacency.sum(1) ** 3).sum(),
        "chains": (paths @ paths).sum(),
        "bowties": (here**2).sum(),
        "none": 0,
        "four": (paths**2).sum(),
        "five": (paths @ adjacency * paths).sum(),
    }
    bodies = {
        "stars": "e(a, b), e(a, c), e(a, d)",
        "chains": "e(a, b), e(b, c), e(c, d), e(d, f)",
        "bowties": "e(a, b), e(b, c), e(a, c), e(a, d), e(d, f), e(a, f)",
        "none": "e(a, b), e(a, c), e(a, d), d > 100",
        "four": "e(a, b), e(b, c), e(a, d), e(d, c)",
        "five": "e(a, b), e(b, c), e(c, d), e(a, f), e(f, d)",
    }
    for name, body in bodies.items():
        names = [v for v in "abcdf" if v in body]
        text = f"type e(i64, i64)\nrel n(x) = x := count({', '.join(names)}: {body})\nquery n"
        with settings_of(0, 1), under(small_round=2):
            assert list(dv.Program(text).run({"e": edges}, "unit", keep=False)["n"]) == [(wanted[name],)], name


@examples(30, 300, st.data())
def test_tries_have_the_values_of_their_tables(data):
    rows = np.array(data.draw(st.lists(st.tuples(*[st.integers(-70, 200)] * 3), max_size=30)), np.int64).reshape(-1, 3)
    table = Table("t", [TYPES["i64"]] * 3)
    table.insert(list(rows.T), len(rows))
    keys = data.draw(st.sampled_from([(0,), (1,), (0, 1), (2, 0)]))
    (by,) = {0, 1, 2}.difference(keys) if len(keys) == 2 else ({2} if keys != (2,) else {0})
    made = trie.trie(table, keys, by)
    wanted: dict[tuple, set[int]] = {}
    for row in rows.tolist():
        wanted.setdefault(tuple(row[c] for c in keys), set()).add(row[by])
    for key, values in wanted.items():
        number = (
            key[0] - made.low if made.kind == "dense" else int(made.numbers.find([np.array([w]) for w in key], 1)[0])
        )
        assert made.values[made.offsets[number] : made.offsets[number + 1]].tolist() == sorted(values)
        row = int(made.bit_rows[number])
        if row >= 0:
            words = made.bits[row * made.num_words : (row + 1) * made.num_words]
            bits = np.flatnonzero(np.unpackbits(words.view(np.uint8), bitorder="little"))
            assert (bits + made.first_word * 64).tolist() == sorted(values)
    assert int(made.offsets[-1]) == sum(map(len, wanted.values()))
