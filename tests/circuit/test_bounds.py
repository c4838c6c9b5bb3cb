"""Bounds by cubes, after each split, and samples of what is open, against enumeration of worlds."""

import copy
import itertools
import random

import numpy as np
import pytest

from derivable.circuit.graph.and_or_graph import AndOrGraph
from derivable.circuit.queries.bounds import CONFIDENCE, CubeSearch, holds_of
from derivable.core.and_or import AND, FALSE, LITERAL, OR, TRUE


def drawn_graph(rng):
    """A graph in three strata, with cycles and, between strata, negations; its roots are a condition and a query."""
    count = rng.randint(2, 8)
    kinds, literals, rows = [FALSE, TRUE], [0, 0], [[], []]
    for variable in range(1, count + 1):
        kinds.append(LITERAL)
        literals.append(variable)
        rows.append([])
    below = list(range(2, len(kinds)))
    for _ in range(3):
        new = list(range(len(kinds), len(kinds) + rng.randint(1, 5)))
        for _ in new:
            kinds.append(rng.choice([AND, OR]))
            literals.append(0)
            parts = [rng.choice(new) if rng.random() < 0.4 else rng.choice(below) for _ in range(rng.randint(1, 3))]
            rows.append([~part if part not in new and rng.random() < 0.4 else part for part in parts])
        below += new
    condition = 1 if rng.random() < 0.4 else rng.choice(below)
    query = rng.choice(new)
    roots = [~root if root > 1 and rng.random() < 0.3 else root for root in (condition, query)]
    weights = np.array([rng.random() for _ in range(count)])
    groups = []
    if count >= 5 and rng.random() < 0.6:
        groups = [np.array(rng.sample(range(count), 3))]
        weights[groups[0]] /= weights[groups[0]].sum()
    return AndOrGraph.of(kinds, literals, rows, roots), weights, groups


def enumerated(graph, weights, groups):
    """The probabilities of the condition, and of the condition and the query."""
    worlds = np.array(list(itertools.product([False, True], repeat=len(weights))))
    grouped = {variable for group in groups for variable in group.tolist()}
    masses = np.ones(len(worlds))
    for variable, p in enumerate(weights):
        if variable not in grouped:
            masses *= np.where(worlds[:, variable], p, 1 - p)
    for group in groups:
        masses *= np.where(worlds[:, group].sum(1) == 1, (worlds[:, group] * weights[group]).sum(1), 0.0)
    condition, query = graph.truth(worlds)
    return masses[condition].sum(), masses[condition & query].sum()


@pytest.mark.parametrize("seed", [*range(40), *(pytest.param(s, marks=pytest.mark.slow) for s in range(40, 600))])
def test_bounds_hold_after_every_split(seed):
    graph, weights, groups = drawn_graph(random.Random(seed))
    total, both = enumerated(graph, weights, groups)
    search = CubeSearch(graph, weights, groups)

    for step in range(1000):
        holds, fails, is_open = search.masses
        assert holds <= both + 1e-12
        assert fails <= total - both + 1e-12
        assert holds + is_open >= both - 1e-12
        assert holds + fails + is_open >= total - 1e-12
        proven = search.interval()
        assert proven.lower <= proven.estimate <= proven.upper
        if total > 0:
            assert proven.lower - 1e-12 <= both / total <= proven.upper + 1e-12
        if step in (0, 2) and is_open:
            drawn = copy.deepcopy(search)
            drawn.draw(1000, seed)
            interval = drawn.sampled()
            assert interval.confidence == CONFIDENCE
            assert proven.lower <= interval.lower <= interval.upper <= proven.upper
            if total > 0:
                # Some hundred intervals, of which one of a hundred may be wrong: Chernoff's bounds are wider than that.
                assert interval.lower - 1e-12 <= both / total <= interval.upper + 1e-12
        if not search.split(1):
            break
    assert is_open == 0
    assert holds == pytest.approx(both, abs=1e-12)
    assert holds + fails == pytest.approx(total, abs=1e-12)


def test_samples_of_several_queries_are_those_of_each():
    graph, weights, groups = drawn_graph(random.Random(5))
    nodes = np.flatnonzero(graph.kind >= AND)
    together = CubeSearch(graph.with_roots(np.array([TRUE, *nodes])), weights, groups)
    together.open_all()
    together.draw(4096, 3)
    for query, node in enumerate(nodes.tolist()):
        _, expected = enumerated(graph.with_roots(np.array([TRUE, node])), weights, groups)
        interval = together.sampled(query)
        assert interval.lower <= expected <= interval.upper
        assert interval.width < 0.11


def test_masses_that_are_no_numbers_prove_nothing():
    # A thousand facts of 1e-3 that all hold: 1e-3000 is no float, and yet not impossible.
    count = 1000
    graph = AndOrGraph.of(
        [FALSE, TRUE, *[LITERAL] * count, AND],
        [0, 0, *range(1, count + 1), 0],
        [[]] * (count + 2) + [list(range(2, count + 2))],
        [TRUE, count + 2],
    )
    search = CubeSearch(graph, np.full(count, 1e-3), [])
    while search.split(256):
        pass
    proven = search.interval()
    assert proven.lower == 0.0
    assert 0.0 < proven.upper < 1e-200
    conditioned = CubeSearch(graph.with_roots(np.array([count + 2, 2])), np.full(count, 1e-3), [])
    while conditioned.split(256):
        pass
    assert (conditioned.interval().lower, conditioned.interval().upper) == (0.0, 1.0)


@pytest.mark.parametrize(("count", "drawn"), [(0, 100), (100, 100), (3, 100), (50, 100), (1, 100_000)])
def test_bounds_of_samples_are_wrong_as_seldom_as_they_say(count, drawn):
    scipy = pytest.importorskip("scipy.stats")
    mean, low, high = holds_of(count, drawn, 0.005)
    assert mean == count / drawn
    # Of the bounds each is where what was seen, or more of it, is improbable.
    assert low == 0.0 or scipy.binom.sf(count - 1, drawn, low) <= 0.005
    assert high == 1.0 or scipy.binom.cdf(count, drawn, high) <= 0.005
