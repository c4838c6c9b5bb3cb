"""Layers whose rules join whole rows where some of their columns suffice: the sizes of what is evaluated, values and
derivatives (souffle-lang/souffle#2232)."""

from itertools import product

import numpy as np
import pytest
import torch

import derivable as dv
from datalog.test_projection import FACTS, PAIRS, RULES, program_of, truth
from derivable.datalog.api import plan

FLAT = "type r(i32, i32)\nrel q(n, m) = r(n, _), r(m, _), m < n"


def rows_of_pairs(n):
    """Two rows for each first column, and the pairs of different first columns."""
    return [(k, m) for k in range(n) for m in (k + 1, -1)], [(a, b) for a in range(n) for b in range(a)]


def either_pair(p, n):
    """[pair] by arithmetic: each of both first columns has one of its two rows, or both."""
    either = 1 - (1 - p.reshape(n, 2)).prod(1)
    return torch.stack([either[a] * either[b] for a in range(n) for b in range(a)])


def differentiated(layer, numbers, seed=0):
    """The values [output] of a layer at `numbers`, and the derivative of a weighted sum of them."""
    p = torch.tensor(numbers, dtype=torch.float64, requires_grad=True)
    values = layer(p)
    weights = torch.rand(values.shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return values.detach(), torch.autograd.grad((values * weights).sum(), p)[0], weights


@pytest.mark.parametrize("inputs", ["fixed", "varying"])
@pytest.mark.parametrize("provenance", ["exact", "real"])
def test_pairs_of_first_columns(inputs, provenance):
    n = 12
    facts, pairs = rows_of_pairs(n)
    given = dv.independent(facts) if inputs == "fixed" else dv.varying()
    layer = dv.nn.Logic(FLAT, {"r": given}, {"q": pairs}, provenance)
    numbers = np.random.default_rng(3).uniform(0.1, 0.9, len(facts))
    call = layer if inputs == "fixed" else lambda p: layer([(facts, p)])[0]
    values, gradient, weights = differentiated(call, numbers)
    p = torch.tensor(numbers, requires_grad=True)
    # As sums of products each pair of rows counts, and the sum of a product is the product of the sums.
    sums = p.reshape(n, 2).sum(1)
    expected = either_pair(p, n) if provenance == "exact" else torch.stack([sums[a] * sums[b] for a, b in pairs])
    torch.testing.assert_close(values, expected.detach(), rtol=1e-12, atol=0)
    torch.testing.assert_close(gradient, torch.autograd.grad((expected * weights).sum(), p)[0], rtol=1e-12, atol=0)


def test_the_circuit_of_pairs_has_a_node_for_each():
    """Of whole rows it had twelve nodes a pair, and took 10 s to compile for n = 100."""
    n = 40
    facts, pairs = rows_of_pairs(n)
    layer = dv.nn.Logic(FLAT, {"r": dv.independent(facts)}, {"q": pairs})
    assert layer.circuit.num_nodes <= len(pairs) + 4 * len(facts)


def test_a_recursion_of_pairs_of_first_columns():
    """Without projections more than 50 million edges were refused from n = 20 on."""
    n = 60
    pairs = [(a, b) for a in range(n) for b in range(a)]
    layer = dv.nn.Logic(PAIRS, {"e": dv.independent([(k, k + 1) for k in range(n)])}, {"r": pairs})
    assert layer.circuit.num_nodes <= len(pairs) + 4 * n
    numbers = np.random.default_rng(3).uniform(0.1, 0.9, n)
    values, gradient, weights = differentiated(layer, numbers)
    p = torch.tensor(numbers, requires_grad=True)
    expected = torch.stack([p[a] * p[b] for a, b in pairs])
    torch.testing.assert_close(values, expected.detach(), rtol=1e-12, atol=0)
    torch.testing.assert_close(gradient, torch.autograd.grad((expected * weights).sum(), p)[0], rtol=1e-12, atol=0)
    # Finite differences of the layer itself.
    step = 1e-6
    for fact in (0, 17, 59):
        ends = [(layer(torch.tensor(numbers + s * (np.arange(n) == fact))) * weights).sum() for s in (step, -step)]
        assert float(gradient[fact]) == pytest.approx(float(ends[0] - ends[1]) / (2 * step), rel=1e-7)


def test_pairs_as_a_function_of_jax():
    jax = pytest.importorskip("jax")
    n = 40
    facts, pairs = rows_of_pairs(n)
    function = dv.nn.logic_function(FLAT, {"r": dv.independent(facts)}, {"q": pairs})
    numbers = np.random.default_rng(3).uniform(0.1, 0.9, len(facts)).astype(np.float32)
    weights = np.random.default_rng(4).uniform(size=len(pairs)).astype(np.float32)
    value, gradient = jax.value_and_grad(lambda p: (function(p) * weights).sum())(numbers)
    p = torch.tensor(numbers, dtype=torch.float64, requires_grad=True)
    expected = (either_pair(p, n) * torch.tensor(weights, dtype=torch.float64)).sum()
    assert float(value) == pytest.approx(float(expected.detach()), rel=1e-5)
    np.testing.assert_allclose(gradient, torch.autograd.grad(expected, p)[0].numpy(), rtol=2e-4)


def in_worlds(rules, p):
    """(rows, their probabilities [row]): a sum over the worlds of facts, with its derivative."""
    facts = [(name, row) for name, some in FACTS.items() for row in some]
    found: dict[tuple[int, int], torch.Tensor] = {}
    for there in product([False, True], repeat=len(facts)):
        world: dict[str, set] = {"e": set(), "f": set()}
        weight = torch.ones((), dtype=torch.float64)
        for place, ((name, row), is_there) in enumerate(zip(facts, there)):
            weight = weight * (p[place] if is_there else 1 - p[place])
            world[name] |= {row} if is_there else set()
        for row in truth(rules, world):
            found[row] = found.get(row, torch.zeros((), dtype=torch.float64)) + weight
    return sorted(found), torch.stack([found[row] for row in sorted(found)])


@pytest.mark.parametrize("inputs", ["fixed", "varying"])
@pytest.mark.parametrize("rules", RULES)
def test_layers_are_those_of_all_worlds(rules, inputs):
    numbers = torch.tensor([0.3, 0.4, 0.5, 0.55, 0.75], dtype=torch.float64, requires_grad=True)
    rows, expected = in_worlds(rules, numbers)
    weights = torch.rand(len(rows), generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    (wanted,) = torch.autograd.grad((expected * weights).sum(), numbers)
    given = {name: dv.independent(some) if inputs == "fixed" else dv.varying() for name, some in FACTS.items()}
    layer = dv.nn.Logic(program_of(RULES[rules]), given, {"r": rows})
    parts = numbers.split([len(some) for some in FACTS.values()])
    if inputs == "fixed":
        values = layer(*parts)
    else:
        values = layer(*([(some, part)] for some, part in zip(FACTS.values(), parts)))[0]
    torch.testing.assert_close(values, expected)
    torch.testing.assert_close(torch.autograd.grad((values * weights).sum(), numbers)[0], wanted)


@pytest.mark.parametrize("inputs", ["fixed", "varying"])
@pytest.mark.parametrize("provenance", ["minmaxprob", "max_product", "addmultprob", "topkproofs"])
def test_other_provenances_join_whole_rows(provenance, inputs, monkeypatch):
    """At ties projections take other derivatives, cut sums are not sums of products, and k proofs of each of two
    projections are others than k of the join."""
    facts, pairs = rows_of_pairs(3)
    numbers = np.array([0.5, 0.5, 0.5, 0.75, 0.75, 0.5])
    found = []
    for is_projected in (True, False):
        if not is_projected:
            monkeypatch.setattr(plan, "projected", lambda rules, is_tagged=False: rules)
        given = dv.independent(facts) if inputs == "fixed" else dv.varying()
        layer = dv.nn.Logic(FLAT, {"r": given}, {"q": pairs}, provenance)
        call = layer if inputs == "fixed" else lambda p, layer=layer: layer([(facts, p)])[0]
        found.append(differentiated(call, numbers)[:2])
    assert all(torch.equal(*both) for both in zip(*found))


def test_limits_of_samples_count_no_projections():
    """As of a run of each sample by itself: four facts and one pair."""
    facts, _ = rows_of_pairs(2)
    layer = dv.nn.Logic(FLAT, {"r": dv.varying()}, {"q": [(1, 0)]}, tuple_limit=5)
    assert layer([(facts, torch.full((4,), 0.5))]).item() == pytest.approx(0.75**2)


@pytest.mark.parametrize("inputs", ["fixed", "varying"])
def test_ways_back_are_not_unrolled(inputs):
    """Along a path of undirected edges each tuple follows from one side alone; a round for each tuple made a third more
    nodes, and more than a minute of 400 edges."""
    n = 200
    edges = [(k, k + 1) if k % 2 else (k + 1, k) for k in range(n)]
    text = "type edge(i32, i32)\nrel path(0)\nrel path(b) = path(a), (edge(a, b) or edge(b, a))"
    given = dv.independent(edges) if inputs == "fixed" else dv.varying()
    layer = dv.nn.Logic(text, {"edge": given}, {"path": range(n + 1)})
    numbers = np.random.default_rng(3).uniform(0.9, 1, n)
    call = layer if inputs == "fixed" else lambda p: layer([(edges, p)])[0]
    values, gradient, weights = differentiated(call, numbers)
    expected = np.concatenate([[1.0], np.cumprod(numbers)])
    np.testing.assert_allclose(values, expected, rtol=1e-12)
    later = np.cumsum((weights.numpy() * expected)[::-1])[::-1][1:]
    np.testing.assert_allclose(gradient, later / numbers, rtol=1e-9)
    if inputs == "fixed":
        assert layer.circuit.num_nodes <= 2 * n + 2
