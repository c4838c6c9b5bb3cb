"""Exact inference in probabilistic logic programs: ours, ProbLog's, and the sum over all worlds.

A case is a program in both languages and its random choices; the worlds are run one by one with the
plain (unit) engine, and with an independent decision procedure where there is one.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

import networkx
import numpy as np
import pytest

import derivable as dv


@dataclass(frozen=True)
class Choice:
    """Facts of which at most one is true: [(probability, relation, tuple), ...]."""

    alternatives: tuple[tuple[float, str, tuple], ...]

    def outcomes(self):
        yield from self.alternatives
        rest = 1 - sum(probability for probability, _, _ in self.alternatives)
        if rest > 1e-12:
            yield rest, None, None


def fact(probability: float, relation: str, *row) -> Choice:
    return Choice(((probability, relation, row),))


@dataclass(frozen=True)
class Case:
    types: str
    rules: str
    problog: str
    choices: list[Choice]
    query: str

    def text(self) -> str:
        facts = []
        for choice in self.choices:
            alternatives = "; ".join(f"{p!r}::{show(row)}" for p, _, row in choice.alternatives)
            facts.append(f"rel {choice.alternatives[0][1]} = {{{alternatives}}}")
        return "\n".join([self.types, *facts, self.rules, f"query {self.query}"])

    def problog_text(self) -> str:
        facts = [
            "; ".join(f"{p!r}::{name}{show(row)}" for p, name, row in choice.alternatives) + "."
            for choice in self.choices
        ]
        return "\n".join([*facts, self.problog])


def show(row: tuple) -> str:
    return f"({', '.join(map(str, row))})"


def by_problog(case: Case) -> dict[tuple, float]:
    from problog import get_evaluatable
    from problog.program import PrologString

    result = get_evaluatable().create_from(PrologString(case.problog_text())).evaluate()
    return {tuple(int(arg) for arg in term.args): p for term, p in result.items() if p > 0}


def by_worlds(case: Case) -> dict[tuple, float]:
    total: dict[tuple, float] = {}
    program = dv.Program("\n".join([case.types, case.rules, f"query {case.query}"]))
    for world in itertools.product(*(list(choice.outcomes()) for choice in case.choices)):
        probability = math.prod(p for p, _, _ in world)
        facts: dict[str, list[tuple]] = {alternative[1]: [] for c in case.choices for alternative in c.alternatives}
        for _, name, row in world:
            if name is not None:
                facts[name].append(row)
        for row in program.run(facts=facts, provenance="unit")[case.query]:
            total[row] = total.get(row, 0.0) + probability
    return total


def by_us(case: Case) -> dict[tuple, float]:
    answer = dv.Program(case.text()).run(provenance="exact")[case.query]
    return {row: float(answer[row]) for row in answer if float(answer[row]) > 0}


def assert_same(found: dict[tuple, float], expected: dict[tuple, float]) -> None:
    assert set(found) == set(expected)
    for row, probability in expected.items():
        assert found[row] == pytest.approx(probability, rel=1e-6, abs=1e-9), row


PATH = Case(
    "type edge(i32, i32)\ntype path(i32, i32)",
    "rel path(a, b) = edge(a, b)\nrel path(a, c) = path(a, b), edge(b, c)",
    "path(A, B) :- edge(A, B).\npath(A, C) :- path(A, B), edge(B, C).\nquery(path(_, _)).",
    [],
    "path",
)
SUM = Case(
    "type left(i32)\ntype right(i32)\ntype total(i32)",
    "rel total(a + b) = left(a), right(b)",
    "total(C) :- left(A), right(B), C is A + B.\nquery(total(_)).",
    [
        Choice(((0.2, "left", (0,)), (0.3, "left", (1,)), (0.5, "left", (2,)))),
        Choice(((0.1, "right", (0,)), (0.6, "right", (1,)))),
    ],
    "total",
)
COLOURS = Case(
    "type colour(i32, i32)\ntype edge(i32, i32)\ntype clash(i32)\ntype fine(i32)",
    "rel clash(a) = edge(a, b), colour(a, c), colour(b, c)\nrel fine(a) = colour(a, _), not clash(a)",
    "clash(A) :- edge(A, B), colour(A, C), colour(B, C).\nfine(A) :- colour(A, _), \\+clash(A).\nquery(fine(_)).",
    [
        *(Choice(tuple((p, "colour", (node, c)) for c, p in enumerate((0.5, 0.3, 0.2)))) for node in range(3)),
        fact(0.7, "edge", 0, 1),
        fact(0.4, "edge", 1, 2),
        fact(0.5, "edge", 0, 2),
    ],
    "fine",
)
UNREACHED = Case(
    "type edge(i32, i32)\ntype node(i32)\ntype reach(i32)\ntype apart(i32)",
    "rel node = {0, 1, 2, 3}\nrel reach(0)\nrel reach(b) = reach(a), edge(a, b)\nrel apart(x) = node(x), not reach(x)",
    "node(0). node(1). node(2). node(3).\nreach(0).\nreach(B) :- reach(A), edge(A, B).\n"
    "apart(X) :- node(X), \\+reach(X).\nquery(apart(_)).",
    [
        fact(0.5, "edge", 0, 1),
        fact(0.25, "edge", 1, 2),
        fact(0.75, "edge", 2, 1),
        fact(0.6, "edge", 0, 2),
        fact(0.9, "edge", 2, 3),
    ],
    "apart",
)


def random_graph(seed: int) -> Case:
    rng = np.random.default_rng(seed)
    pairs = [(a, b) for a in range(4) for b in range(4) if a != b]
    chosen = rng.choice(len(pairs), 7, replace=False)
    facts = [fact(round(float(rng.uniform(0.1, 0.9)), 3), "edge", *pairs[index]) for index in sorted(chosen)]
    return Case(PATH.types, PATH.rules, PATH.problog, facts, "path")


CASES = {
    "sum": SUM,
    "colours": COLOURS,
    "unreached": UNREACHED,
    **{f"graph {seed}": random_graph(seed) for seed in range(3)},
}


@pytest.mark.parametrize("name", CASES)
def test_worlds(name):
    assert_same(by_us(CASES[name]), by_worlds(CASES[name]))


@pytest.mark.parametrize("name", CASES)
def test_problog(name):
    pytest.importorskip("problog")
    assert_same(by_us(CASES[name]), by_problog(CASES[name]))


@pytest.mark.parametrize("seed", range(2))
def test_networkx(seed):
    """Reachability with nothing of ours in the expected value."""
    case = random_graph(10 + seed)
    expected: dict[tuple, float] = {}
    for world in itertools.product(*(list(choice.outcomes()) for choice in case.choices)):
        graph = networkx.DiGraph(row for _, name, row in world if name is not None)
        closure = networkx.transitive_closure(graph)
        for pair in closure.edges:
            expected[pair] = expected.get(pair, 0.0) + math.prod(p for p, _, _ in world)
    assert_same(by_us(case), expected)


@pytest.mark.parametrize("name", ["CA-HepTh", "p2p-Gnutella04"])
def test_transitive_closure_of_a_random_subgraph(name):
    """Discrete run on a real graph: as many pairs as networkx finds."""
    import gzip

    from data import data_path

    edges = np.loadtxt(
        gzip.decompress(data_path(f"graphs/{name}.txt.gz").read_bytes()).decode().splitlines(), dtype=np.int64
    )
    nodes = np.unique(edges)[:300]
    edges = edges[np.isin(edges, nodes).all(axis=1)]
    database = dv.Program(PATH.text()).run(facts={"edge": edges.astype(np.int32)})
    graph = networkx.DiGraph(map(tuple, edges.tolist()))
    assert set(database["path"]) == set(networkx.transitive_closure(graph).edges)
