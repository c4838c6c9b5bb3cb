"""Recursions of products on a device, as matrices: the same rows and tags as in rounds and on the CPU."""

import math
from dataclasses import replace

import networkx
import numpy as np
import pytest
import torch
from hypothesis import strategies as st

import derivable as dv
from derivable.algebra.expr.functions import equal, less, logical_and, logical_or, where
from derivable.algebra.semiring import Semiring
from derivable.bridge.torch_columns import Torch
from derivable.core.diagnostics import OutOfMemory
from derivable.datalog.apm import run as machine_run
from derivable.datalog.apm.run import run_program
from derivable.datalog.facts.inputs import taken
from derivable.datalog.facts.load import load_python_facts
from derivable.datalog.facts.store import new_store
from derivable.datalog.kernels import device_bits
from derivable.datalog.ram.products import products_of
from derivable.datalog.tags.provenance import provenance_of, tags_of
from derivable.datalog.tags.tags import SemiringTags
from drawn import examples
from triton_process import printed_by

BASE = "type e(i64, i64)\nrel p(x, y) = e(x, y)\n"
PROGRAMS = {
    "left linear": BASE + "rel p(x, z) = p(x, y), e(y, z)",
    "right linear": BASE + "rel p(x, z) = e(x, y), p(y, z)",
    "from both sides": BASE + "rel p(x, z) = e(x, y), p(y, z)\nrel p(x, z) = p(x, y), e(y, z)",
    "transitive": BASE + "rel p(x, z) = p(x, y), p(y, z)",
    "same generation": "type e(i64, i64)\nrel p(x, y) = e(q, x), e(q, y), x != y\n"
    "rel p(x, y) = e(a, x), p(a, b), e(b, y)",
    "turned": BASE + "rel p(y, x) = p(x, y)\nrel p(y, z) = p(x, y), e(x, z)",
    "from some nodes": "type e(i64, i64)\nrel s = {(3,), (77,)}\nrel p(x, y) = s(x), e(x, y)\n"
    "rel p(x, z) = p(x, y), e(y, z)",
    "mutual": BASE + "rel q(x, z) = p(x, y), e(y, z)\nrel p(x, z) = q(x, y), e(y, z)\nrel q(x, y) = p(y, x)",
    "copied": BASE + "rel q(x, y) = p(x, y)\nrel p(x, z) = q(x, y), e(y, z)",
    "two steps": BASE + "rel p(x, z) = p(x, y), e(y, w), e(w, z)",
    "filtered": BASE + "rel p(x, z) = p(x, y), e(y, z), y > 5, z < 40",
    "computed": BASE + "rel p(x, y + 1) = p(x, y), e(y, _), y < 60",
}


@pytest.mark.parametrize("name", PROGRAMS)
@examples(8, 60, st.integers(0, 60), st.integers(1, 80), st.sampled_from([1, 10**12, -7]), st.integers(0, 1 << 30))
def test_matrices_have_the_pairs_of_the_cpu(name, edges, nodes, scale, seed):
    """Values that are no small numbers are ranks."""
    facts = {"e": np.random.default_rng(seed).integers(0, nodes, (edges, 2)) * scale}
    program = dv.Program(PROGRAMS[name])
    ours, theirs = (program.run(facts, device=device) for device in ("torch:cpu", None))
    assert "recursion of p: matrices of bits" in ours.explain() or "recursion of p, q: matrices" in ours.explain()
    found = list(ours["p"])
    assert len(found) == len(set(found)) == len(theirs["p"])
    assert set(found) == set(theirs["p"])


@pytest.mark.parametrize("provenance", ["minmaxprob", "max_product", "min_plus"])
@pytest.mark.parametrize("name", ["left linear", "from both sides", "same generation", "turned", "mutual", "computed"])
@examples(2, 20, st.integers(0, 60), st.integers(1, 60), st.sampled_from([1, 10**12]), st.integers(0, 1 << 30))
def test_matrices_have_the_tags_of_the_cpu(name, provenance, edges, nodes, scale, seed):
    rng = np.random.default_rng(seed)
    pairs = np.unique(rng.integers(0, nodes, (edges, 2)), axis=0) * scale
    facts = {"e": list(zip(rng.uniform(0.1, 0.9, len(pairs)).tolist(), map(tuple, pairs.tolist())))}
    program = dv.Program(PROGRAMS[name])
    ours, theirs = (program.run(facts, provenance=provenance, device=device) for device in ("torch:cpu", None))
    assert "matrices of tags" in ours.explain()
    assert len(list(ours["p"])) == len(theirs["p"])
    assert dict(ours["p"].items()) == pytest.approx(dict(theirs["p"].items()), rel=1e-12)


def nearest(a, b):
    is_first = logical_or(less(a[0], b[0]), logical_and(equal(a[0], b[0]), less(a[1], b[1])))
    return where(is_first, a[0], b[0]), where(is_first, a[1], b[1])


SHORTEST = Semiring(
    "shortest_with_steps",
    nearest,
    lambda a, b: (a[0] + b[0], a[1] + b[1]),
    zero=(math.inf, math.inf),
    one=(0.0, 0.0),
    idempotent_plus=True,
    selective_plus=True,
    absorptive=True,
    fact=lambda tag, variable: (tag, 1.0),
    domain=(0.0, math.inf),
)


def test_a_semiring_of_pairs():
    """The length of the shortest path, and the least number of steps of those that are as short."""
    rng = np.random.default_rng(0)
    pairs = np.unique(rng.integers(0, 25, (60, 2)), axis=0)
    facts = {"e": list(zip(rng.integers(1, 5, len(pairs)).astype(float).tolist(), map(tuple, pairs.tolist())))}
    program = dv.Program(PROGRAMS["left linear"])
    ours, theirs = (program.run(facts, SHORTEST, device=device) for device in ("torch:cpu", None))
    assert "matrices of tags" in ours.explain()
    found = {row: tuple(tag) for row, tag in ours["p"].items()}
    assert found == {row: tuple(tag) for row, tag in theirs["p"].items()}
    assert any(length != steps for length, steps in found.values())


def test_shortest_paths_against_networkx():
    rng = np.random.default_rng(4)
    pairs = np.unique(rng.integers(0, 50, (120, 2)), axis=0)
    lengths = rng.integers(1, 100, len(pairs)).tolist()
    graph = networkx.DiGraph()
    graph.add_weighted_edges_from((a, b, w) for (a, b), w in zip(pairs.tolist(), lengths))
    facts = {"e": list(zip(map(float, lengths), map(tuple, pairs.tolist())))}
    found = dict(dv.Program(PROGRAMS["left linear"]).run(facts, "min_plus", device="torch:cpu")["p"].items())
    wanted = {}
    for a in graph:
        # The way back to a node is that to one of its predecessors and a step.
        far = networkx.single_source_dijkstra_path_length(graph, a)
        back = [far[b] + graph[b][a]["weight"] for b in graph.predecessors(a) if b in far]
        wanted |= {(a, b): far[b] for b in far if b != a} | ({(a, a): min(back)} if back else {})
    assert found == wanted


def test_against_networkx():
    edges = np.random.default_rng(0).integers(0, 200, (260, 2))
    graph = networkx.DiGraph(edges.tolist())
    found = dv.Program(PROGRAMS["transitive"]).run({"e": edges}, device="torch:cpu")
    wanted = {
        (a, b) for a in graph for _, child in graph.edges(a) for b in {child, *networkx.descendants(graph, child)}
    }
    assert set(found["p"]) == wanted


@pytest.mark.parametrize(
    "rules",
    [
        "rel p(x, z) = p(x, y), e(y, z), x < z",
        "rel p(x, z) = p(x, y), p(z, y)",
        "rel p(x, y) = p(x, _), e(x, y)",
        "rel p(x, y) = p(x, x), e(x, y)",
        "rel p(x, z) = p(x, y), e(z, _)",
    ],
)
def test_rules_about_both_columns_at_once_are_no_products(rules):
    ram = dv.Program(BASE + rules).lowered()
    assert not any(stratum.loop and products_of(stratum, stratum.loop) for stratum in ram.strata)
    edges = np.random.default_rng(1).integers(0, 30, (60, 2))
    ours, theirs = (dv.Program(BASE + rules).run({"e": edges}, device=device) for device in ("torch:cpu", None))
    assert set(ours["p"]) == set(theirs["p"])


@pytest.mark.parametrize("name", ["left linear", "transitive", "same generation"])
def test_what_is_too_large_goes_in_rounds(name, costs):
    """Where there is no room for matrices; a transitive rule is a linear one there too."""
    program, edges = dv.Program(PROGRAMS[name]), np.random.default_rng(2).integers(0, 40, (70, 2))
    wanted = set(program.run({"e": edges})["p"])
    costs(small_bytes=0)
    found = program.run({"e": edges}, device="torch:cpu")
    assert "matrices" not in found.explain()
    assert set(found["p"]) == wanted


def test_certain_relations_of_a_run_with_tags():
    """They are matrices of bits there too."""
    given = taken({"e": [(0.5, (0, 1)), (0.25, (1, 2)), (0.75, (2, 0)), (0.3, (3, 3))]})
    ram = dv.Program(PROGRAMS["left linear"] + "\nrel q(x) = p(x, x), e(x, _)").lowered(given)
    relations = {name: replace(relation, is_certain=name == "p") for name, relation in ram.relations.items()}
    ram, found = replace(ram, relations=relations, plans={}), []
    for at_once in (None, machine_run._at_once):
        store, arrays = new_store(ram), Torch("cpu")
        load_python_facts(ram, given, store)
        algebra = tags_of(provenance_of("minmaxprob"), store.random, 3)
        assert isinstance(algebra, SemiringTags)
        parts = run_program(ram, store, algebra, arrays, at_once=at_once)
        found.append({name: sorted(zip(part.rows.tolist(), part.tags.tolist())) for name, part in parts.items()})
    assert "matrices of bits" in arrays.notes["p"]
    assert found[0] == found[1]
    assert {tag for _, tag in found[0]["p"]} == {1.0}
    assert {tag for _, tag in found[0]["q"]} == {0.5, 0.25, 0.75, 0.3}


def test_columns_are_made_when_they_are_read(calls_of, monkeypatch):
    """An output that nobody reads has a number of rows; a relation that other rules read has columns at once."""
    made = calls_of(device_bits, "pairs", lambda *given: given[2])
    edges = np.random.default_rng(3).integers(0, 40, (70, 2))
    found = dv.Program(PROGRAMS["left linear"]).run({"e": edges}, device="torch:cpu")
    count = len(found["p"])
    assert not made
    assert len(set(found["p"])) == count
    assert len(found["p"].to_torch()[0]) == count
    assert made == [count]
    found = dv.Program(PROGRAMS["left linear"] + "\nrel q(x) = p(x, x)").run({"e": edges}, device="torch:cpu")
    assert made == [count, count]
    assert set(found["q"]) == {(a,) for a, b in found["p"] if a == b}

    def full(*_):
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 25 GiB.")

    found = dv.Program(PROGRAMS["left linear"]).run({"e": edges}, device="torch:cpu")
    monkeypatch.setattr(device_bits, "pairs", full)
    with pytest.raises(OutOfMemory, match=f"no memory left for the columns of {count:,} rows"):
        list(found["p"])


def test_tuples_of_matrices_count_for_limits():
    program = dv.Program(PROGRAMS["left linear"])
    with pytest.raises(dv.DerivableError, match="tuple_limit = 200"):
        program.run({"e": [(k, k + 1) for k in range(30)]}, tuple_limit=200, device="torch:cpu")


def test_kernels_do_what_numpy_does():
    """In a process of its own, because Triton's interpreter is chosen at import."""
    assert printed_by("datalog/matrices_cases.py").split() == [
        "test_operations",
        "test_recursions",
        "test_tags",
        "test_the_comparison_can_fail",
    ]
