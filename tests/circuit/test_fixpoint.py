"""Fixpoints of graphs with cycles: against rounds in Python, the unrolled graph, and finite differences."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from derivable.algebra import semirings
from derivable.bridge.torch import call
from derivable.circuit.fold.engine import GraphFold
from derivable.circuit.fold.fixpoint import FixpointFold, has_best_derivations
from derivable.circuit.graph.and_or_graph import AndOrGraph
from derivable.core.and_or import AND, FALSE, LITERAL, OR, TRUE
from derivable.core.diagnostics import DomainError
from derivable.datalog.exact.ground_program import GroundProgram
from derivable.datalog.tags.random_facts import RandomFacts

RINGS = {
    "max_product": (max, lambda a, b: a * b),
    "maxmultprob": (max, lambda a, b: a * b),
    "godel": (max, min),
    "min_plus": (min, lambda a, b: a + b),
    "max_plus": (max, lambda a, b: a + b),
}
NEGATES = ("max_product", "maxmultprob", "godel")
VARIABLES = 5


@st.composite
def graphs(draw, has_negations):
    """Two layers of tuples, each of which derives itself; the second may read the negation of the first."""
    kinds, literals, rows = [FALSE, TRUE], [0, 0], [[], []]
    for variable in range(VARIABLES):
        kinds.append(LITERAL)
        literals.append(variable + 1)
        rows.append([])
    below = list(range(1, len(kinds)))
    for _ in range(draw(st.integers(1, 2))):
        size = draw(st.integers(1, 5))
        tuples = list(range(len(kinds), len(kinds) + size))
        kinds += [OR] * size
        literals += [0] * size
        rows += [[] for _ in range(size)]
        signed = [*below, *(~n for n in below[1:] if has_negations and kinds[n] != LITERAL)]
        for one in tuples:
            for _ in range(draw(st.integers(1, 3))):
                body = draw(st.lists(st.sampled_from([*signed, *tuples, *tuples]), min_size=1, max_size=3))
                if len(body) == 1:
                    rows[one].append(body[0])
                    continue
                kinds.append(AND)
                literals.append(0)
                rows.append(body)
                rows[one].append(len(kinds) - 1)
            # A run has no tuple that only derives itself.
            if set(rows[one]) == {one}:
                rows[one].append(below[-1])
        below += tuples
    roots = draw(st.lists(st.sampled_from(below[VARIABLES:] or below), min_size=1, max_size=3))
    return AndOrGraph.of(kinds, literals, rows, roots)


def by_rounds(graph, ring, weights):
    """The values of the roots: every node from the last round's values until nothing changes, layer after layer."""
    plus, times = RINGS[ring.name]
    values, before = [None] * graph.num_nodes, None

    def of(signed):
        if signed >= 0:
            return values[signed]
        return 1 - (ring.zero if values[~signed] is None else values[~signed])

    # A negation reads a fixpoint: nodes come after the layers that they negate, which are complete by then.
    done = 0
    while done < graph.num_nodes:
        last = next((n for n in range(done, graph.num_nodes) if reads_negation(graph, n, done)), graph.num_nodes)
        while before != values[:last]:
            before = values[:last]
            for n in range(last):
                children = graph.children[graph.offsets[n] : graph.offsets[n + 1]].tolist()
                terms = [of(c) for c in children]
                if graph.kind[n] == LITERAL:
                    values[n] = weights[graph.literal[n] - 1]
                elif graph.kind[n] == TRUE:
                    values[n] = ring.one
                elif graph.kind[n] == AND and None not in terms:
                    value = ring.one
                    for term in terms:
                        value = times(value, term)
                    values[n] = value
                elif graph.kind[n] == OR:
                    known = [term for term in terms if term is not None]
                    values[n] = None if not known else plus(known) if len(known) > 1 else known[0]
        before, done = None, last
    return [ring.zero if values[root] is None else values[root] for root in graph.roots]


def reads_negation(graph, n, start):
    """Whether a node of a layer reads the negation of a node from `start` on, which is in the layer before."""
    children = graph.children[graph.offsets[n] : graph.offsets[n + 1]]
    return any(c < 0 and ~c >= start for c in children.tolist())


def unrolled(graph, ring):
    count, none = int(graph.literal.max()), np.empty(0, np.int64)
    program = GroundProgram(*graph.arrays, (), count, {}, (), none, none, RandomFacts(), has_cycles=True)
    found = program.unrolled(ring)
    return replace(found, children=found.children.astype(np.int32))


def engine(graph, ring, precision="float64"):
    return FixpointFold(graph, lambda: unrolled(graph, ring), ring, precision)


def weights_for(name, rng, rows=1):
    drawn = rng.uniform(0.05, 0.95, (rows, VARIABLES))
    return -drawn if name == "max_plus" else drawn


@pytest.mark.parametrize("name", RINGS)
@settings(max_examples=60)
@given(data=st.data())
def test_values_and_gradients(name, data):
    ring = semirings.get(name)
    graph = data.draw(graphs(name in NEGATES))
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    fold, weights = engine(graph, ring), weights_for(name, rng, 3)
    if data.draw(st.booleans()):
        weights[0, rng.integers(VARIABLES)] = 0.0
    values = fold.apply(None, [weights])[0]
    for row, expected in zip(values, weights):
        np.testing.assert_allclose(row, by_rounds(graph, ring, expected), rtol=1e-12)
    levels = GraphFold(unrolled(graph, ring), ring, False, "float64")
    np.testing.assert_allclose(values, levels.apply(None, [weights])[0], rtol=1e-15)
    # Away from ties the value is a smooth function of the weights.
    weights, step = weights_for(name, rng, 1), 1e-7
    seeds = rng.uniform(0.5, 1.5, (1, len(graph.roots)))
    (values,), kept = fold.apply_keeping(None, [weights])
    seeds[~np.isfinite(values)] = 0
    for given_kept in (kept, []):
        (gradient,) = fold.pull(None, [seeds], [weights], [values], given_kept)
        moved = weights + step * np.vstack([np.eye(VARIABLES), -np.eye(VARIABLES)])
        sums = np.where(seeds, fold.apply(None, [moved])[0], 0) @ seeds[0]
        slopes = (sums[:VARIABLES] - sums[VARIABLES:]) / (2 * step)
        np.testing.assert_allclose(gradient[0], slopes, atol=1e-5)


def path_graph(count):
    """Reachability in a cycle of `count` nodes from node 0: edge n goes from n to n + 1, and edge `count` to node 0."""
    kinds, literals, rows = [FALSE, TRUE], [0, 0], [[], []]
    for edge in range(count):
        kinds.append(LITERAL)
        literals.append(edge + 1)
        rows.append([])
    reached = [len(kinds) + 2 * n for n in range(count)]
    for n in range(count):
        kinds += [OR, AND]
        literals += [0, 0]
        rows += [[reached[n] + 1] if n else [1, reached[0] + 1], [2 + (n - 1) % count, reached[(n - 1) % count]]]
    return AndOrGraph.of(kinds, literals, rows, [reached[-1]])


def test_a_long_cycle_needs_no_unrolling():
    count = 3000
    ring, graph = semirings.get("max_product"), path_graph(count)
    fold = FixpointFold(graph, lambda: pytest.fail("unrolled"), ring, "float64")
    weights = np.full((2, count), 0.999)
    (values,), kept = fold.apply_keeping(None, [weights])
    np.testing.assert_allclose(values, 0.999 ** (count - 1))
    (gradient,) = fold.pull(None, [np.ones((2, 1))], [weights], [values], kept)
    # The edge back to the start is in no best path.
    np.testing.assert_allclose(gradient[:, :-1], 0.999 ** (count - 2))
    assert (gradient[:, -1] == 0).all()


def test_a_zero_has_a_derivative():
    ring, graph = semirings.get("max_product"), path_graph(3)
    weights = np.array([[0.5, 0.0, 1.0]])
    fold = engine(graph, ring)
    (values,), kept = fold.apply_keeping(None, [weights])
    assert values.tolist() == [[0.0]]
    assert fold.pull(None, [np.ones((1, 1))], [weights], [values], kept)[0].tolist() == [[0.0, 0.5, 0.0]]


def test_certain_cycles_end():
    ring, graph = semirings.get("max_product"), path_graph(50)
    weights = np.ones((1, 50))
    assert engine(graph, ring).apply(None, [weights])[0].tolist() == [[1.0]]


@pytest.mark.parametrize(("name", "weight"), [("max_product", 1.1), ("max_plus", 0.1), ("min_plus", -0.1)])
def test_a_cycle_that_is_better_than_one_is_an_error(name, weight):
    weights = np.array([[semirings.get(name).one] * 4, [weight] * 4])
    with pytest.raises(DomainError, match="row 1 has no best derivation: a cycle of tuples") as caught:
        engine(path_graph(4), semirings.get(name)).apply(None, [weights])
    assert name in str(caught.value)
    assert engine(path_graph(4), semirings.get(name)).apply(None, [weights[:1]])[0].shape == (1, 1)


def test_not_a_number_is_seen():
    weights = np.array([[0.5, np.nan, 0.5, 0.5]])
    for name in ("max_product", "godel"):
        assert math.isnan(engine(path_graph(4), semirings.get(name)).apply(None, [weights])[0][0, 0])


def test_many_rows_are_computed_in_parts(monkeypatch):
    from derivable.circuit.fold import fixpoint

    ring, graph, rng = semirings.get("max_product"), path_graph(6), np.random.default_rng(0)
    weights, seeds = rng.uniform(0.1, 0.9, (7, 6)), rng.uniform(size=(7, 1))
    (values,), kept = engine(graph, ring).apply_keeping(None, [weights])
    (expected,) = engine(graph, ring).pull(None, [seeds], [weights], [values], kept)
    monkeypatch.setattr(fixpoint, "_MOST_KEPT", 16 * graph.num_nodes * 2)
    fold = engine(graph, ring)
    (parts,), nothing = fold.apply_keeping(None, [weights])
    assert nothing == []
    np.testing.assert_array_equal(parts, values)
    np.testing.assert_array_equal(fold.pull(None, [seeds], [weights], [values])[0], expected)
    weights[5] = 2.0
    with pytest.raises(DomainError, match="row 5"):
        fold.apply(None, [weights])


def test_derivatives_of_higher_order_in_torch():
    ring = semirings.get("max_product")
    fold = engine(path_graph(4), ring).registered()
    weights = torch.tensor([[0.5, 0.6, 0.7, 0.8]], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda w: call(fold, None, (w,))[0], weights, check_forward_ad=True)
    assert torch.autograd.gradgradcheck(lambda w: call(fold, None, (w,))[0], weights)


def test_float32():
    ring, weights = semirings.get("max_product"), np.array([[0.5, 0.25, 0.5]], np.float32)
    (values,), _ = engine(path_graph(3), ring, "float32").apply_keeping(None, [weights])
    assert values.dtype == np.float32
    assert values.tolist() == [[0.125]]
    (gradient,) = engine(path_graph(3), ring, "float32").pull(None, [np.ones((1, 1), np.float32)], [weights], [values])
    assert gradient.dtype == np.float32
    assert gradient.tolist() == [[0.25, 0.5, 0.0]]


def test_which_semirings_have_best_derivations():
    have = {name for name in semirings.names() if has_best_derivations(semirings.get(name), False)}
    assert have == {"max_product", "maxmultprob", "godel", "min_plus", "max_plus"}
    assert not has_best_derivations(semirings.get("min_plus"), True)
