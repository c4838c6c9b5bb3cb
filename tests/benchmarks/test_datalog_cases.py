"""The cases of the Datalog benchmark run on tiny data, and all routes of a case find the same tuples."""

import importlib
import sys
from pathlib import Path

import numpy as np
import pytest

from data import data_path

CLIQUE = [(a, b) for a in range(5) for b in range(a + 1, 5)]
EDGES = np.unique([*CLIQUE, *np.random.default_rng(3).integers(0, 12, (20, 2)).tolist()], axis=0).astype(np.uint32)
EDGES = EDGES[EDGES[:, 0] != EDGES[:, 1]]


@pytest.fixture
def benchmark(monkeypatch):
    names = "harness", "datalog", "datalog_cases", "recursion_cases", "sql_loop", "commits"
    # A package of tests has the benchmark's name.
    kept = {name: sys.modules.pop(name) for name in list(sys.modules) if name.split(".")[0] in names}
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "benchmarks"))
    cases = importlib.import_module("datalog_cases")
    monkeypatch.setattr(cases, "read_edges", lambda name: EDGES)
    yield importlib.import_module("datalog"), cases
    for name in names:
        sys.modules.pop(name, None)
    sys.modules.update(kept)


TINY = {
    "closure": lambda cases: cases.closure("any"),
    "closure of a chain": lambda cases: cases.closure("chain 9"),
    "nonlinear": lambda cases: cases.nonlinear("grid 4"),
    "same generation": lambda cases: cases.same_generation("tree 12"),
    "same generation of a search": lambda cases: cases.same_generation("search tree of any"),
    "join": lambda cases: cases.join(50),
    "rounds": lambda cases: cases.rounds(20),
    "bottleneck": lambda cases: cases.bottleneck("any"),
    "grouped": lambda cases: cases.grouped(3, 8),
    "points-to": lambda cases: cases.points_to(40),
    "flow": lambda cases: cases.points_to(40, "flow"),
    "memory": lambda cases: cases.points_to(40, "memory_alias"),
    "Java": lambda cases: cases.published("java_points_to", "souffle-java-pointsto", "points_to", 3),
    "triangles": lambda cases: cases.cliques("any", 3),
    "4-cliques": lambda cases: cases.cliques("any", 4),
    "components": lambda cases: cases.components("any"),
    "distances": lambda cases: cases.distances("any"),
}
# The same of `recursion_cases`.
RECURSIONS = {
    "two relations in turn": lambda cases: cases.in_turn(2, 100),
    "three relations in turn": lambda cases: cases.in_turn(3, 100),
    "collatz": lambda cases: cases.collatz(500),
    "blocked chain": lambda cases: cases.blocked_chain(100),
    "many rules": lambda cases: cases.many_rules(12, 10),
    "negated strata": lambda cases: cases.negated_strata(12),
    "recursive strata": lambda cases: cases.recursive_strata(8),
    "permutations": lambda cases: cases.permutations(4),
    "sums of two sums": lambda cases: cases.sums(300, (7, 11, 40)),
    "sums with a part": lambda cases: cases.sums(300, (7, 11, 40), two=False),
    "words": lambda cases: cases.words(3, 3),
    "texts": lambda cases: cases.joined_texts(50),
    "wide join": lambda cases: cases.wide_join(2_000, 4),
    "extremes": lambda cases: cases.grouped_extremes(300),
    "parsed": lambda cases: cases.parsed(9),
    "pairs": lambda cases: cases.pairs_of_naturals(20),
}


@pytest.mark.parametrize("name", TINY)
def test_all_routes_agree(benchmark, monkeypatch, name):
    module, cases = benchmark
    for package in ("scipy", "duckdb", "pyarrow"):
        pytest.importorskip(package)
    if name == "Java":
        monkeypatch.setenv("DERIVABLE_DATA", str(data_path("program_analysis").parent))
    case = TINY[name](cases)
    assert_all_routes_agree(module, case)


@pytest.mark.parametrize("name", RECURSIONS)
def test_all_routes_of_recursions_agree(benchmark, name):
    module, _ = benchmark
    pytest.importorskip("scipy")
    assert_all_routes_agree(module, RECURSIONS[name](importlib.import_module("recursion_cases")))


def assert_all_routes_agree(module, case):
    routes = module.contestants(case)
    assert routes[0] == "derivable"
    assert len(routes) > 1
    found = {route: module.call_of(case, route, 1)() for route in routes}
    assert found["derivable"][0] > 0
    for other in found.values():
        assert module.agree(found["derivable"], other), found


def test_tables_say_who_was_too_slow(benchmark):
    module, cases = benchmark
    recursions = importlib.import_module("recursion_cases").CASES
    assert len(module.CASES) == len(cases.CASES) + len(recursions) > 60
    found = {
        "derivable": {"seconds": 0.5, "processor": 0.4, "fingerprint": [12.0], "bytes": 2e8, "unread": 1e8},
        "DuckDB": None,
    }
    row = module.row_of({"case": "a", "threads": 1, "found": found, "over": {"DuckDB": 20.0}, "souffle": 2.5})
    assert row == ["a", "1", "12", "500 ms", "400 ms", "200", "100", "over 20 s", "", "", "over 40.0", "", "", "2.5 s"]
    assert len(row) == len(module.HEADER)
    rows = module.scaling_rows([module.scaling_child(count, ["l"]) for count in (300, 3000)])
    assert {row[0] for row in rows} >= {"loading arrays", "loading a file", "to tuples of Python", "peak memory"}


def test_commits_are_compared_by_the_quick_cases(benchmark, monkeypatch):
    module, cases = benchmark
    monkeypatch.setitem(module.CASES, "closure of tiny", (True, lambda: cases.closure("grid 4")))
    commits = importlib.import_module("commits")
    assert commits.groups("datalog") == [title for title, (is_quick, _) in module.CASES.items() if is_quick]
    ((title, seconds),) = commits.datalog_rows("closure of tiny", 1, 2)
    assert title == "closure of tiny"
    assert 0 < seconds < 60
