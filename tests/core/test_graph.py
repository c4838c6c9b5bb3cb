import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from derivable.core import graph
from derivable.core.diagnostics import LayoutError

EDGES = st.integers(1, 9).flatmap(
    lambda n: st.tuples(st.just(n), st.lists(st.tuples(st.integers(0, n - 1), st.integers(0, n - 1)), max_size=20))
)


def made(n, edges):
    return graph.from_edges(n, [e[0] for e in edges], [e[1] for e in edges])


def peer(n, edges):
    g = nx.DiGraph()
    g.add_nodes_from(range(n))
    g.add_edges_from(edges)
    return g


@settings(max_examples=200, deadline=None)
@given(EDGES)
def test_components_agree_with_networkx(case):
    n, edges = case
    component, count = graph.strongly_connected_components(*made(n, edges))
    groups = {frozenset(np.flatnonzero(component == c).tolist()) for c in range(count)}
    assert groups == {frozenset(c) for c in nx.strongly_connected_components(peer(n, edges))}
    assert all(component[a] <= component[b] for a, b in edges)


@settings(max_examples=200, deadline=None)
@given(EDGES)
def test_connected_components_agree_with_networkx(case):
    n, edges = case
    least = graph.connected_components(n, edges).tolist()
    for component in nx.weakly_connected_components(peer(n, edges)):
        assert {least[node] for node in component} == {min(component)}


def test_a_long_path_does_not_recurse():
    n = 200_000
    flat = graph.from_edges(n, np.arange(n - 1), np.arange(1, n))
    assert graph.strongly_connected_components(*flat)[1] == n
    ring = graph.from_edges(n, np.arange(n), np.roll(np.arange(n), -1))
    assert graph.strongly_connected_components(*ring)[1] == 1


def test_empty_and_bad_graphs():
    flat = graph.from_edges(0, [], [])
    assert graph.strongly_connected_components(*flat)[1] == 0
    with pytest.raises(LayoutError, match=r"edge 1 \(1 -> 2\) leaves the graph of 2 nodes"):
        graph.from_edges(2, [0, 1], [1, 2])
    with pytest.raises(LayoutError, match="2 sources and 1 targets"):
        graph.from_edges(2, [0, 1], [1])
