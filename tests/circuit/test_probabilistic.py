"""Probabilistic circuits against a distribution that is listed world by world, and against finite differences."""

import copy
import math
import pickle

import numpy as np
import pytest
import torch

from circuit.deterministic import all_worlds, assert_close, satisfiable_circuit
from circuit.test_sample import chi_square
from derivable.circuit.graph.builder import CircuitBuilder
from derivable.circuit.learn.probabilistic import ProbabilisticCircuit
from derivable.core.diagnostics import DomainError, ShapeError, UnsupportedError


def model(seed, num_variables=5):
    circuit = satisfiable_circuit(seed, num_variables=num_variables)
    size = ProbabilisticCircuit(circuit).num_parameters
    return ProbabilisticCircuit(circuit, np.random.default_rng(seed).normal(size=size))


def listed(probabilistic):
    """[world] probabilities by the generative reading, node by node over all worlds."""
    c = probabilistic.circuit
    worlds = all_worlds(c.num_variables)
    # The softmax by its definition, one or-node after another in edge order.
    weight, at = {}, 0
    values = []
    for n in range(c.num_nodes):
        edges = range(c.offsets[n], c.offsets[n + 1])
        if c.kind[n] == 4:
            scores = np.exp(probabilistic.logits[at : at + len(edges)])
            weight.update(zip(edges, scores / scores.sum()))
            at += len(edges)
            values.append(sum(weight[e] * values[c.children[e]] for e in edges))
        elif c.kind[n] == 3:
            values.append(math.prod(values[c.children[e]] for e in edges))
        elif c.kind[n] == 2:
            values.append((worlds[:, abs(c.literal[n]) - 1] == (c.literal[n] > 0)).astype(float))
        else:
            values.append(np.full(len(worlds), float(c.kind[n])))
    return values[c.roots[0]]


def agreeing(worlds, row):
    return np.all((row == -1) | (worlds == (row == 1)), axis=1)


def random_rows(seed, num_variables, count=12):
    return np.random.default_rng(seed).choice([-1, -1, 0, 1], (count, num_variables))


@pytest.mark.parametrize("seed", range(15))
def test_likelihood_marginals_and_best(seed):
    m = model(seed)
    p, worlds = listed(m), all_worlds(5)
    assert p.sum() == pytest.approx(1)
    with np.errstate(divide="ignore"):
        assert_close(m.log_likelihood(worlds), np.log(p))
    assert m.log_likelihood(np.full((1, 5), -1))[0] == pytest.approx(0, abs=1e-12)
    assert m.log_likelihood(np.full((1, 5), np.nan))[0] == pytest.approx(0, abs=1e-12)
    for row in random_rows(seed, 5):
        chosen = p * agreeing(worlds, row)
        if chosen.sum() == 0:
            assert m.log_likelihood([row])[0] == -np.inf
            for question in (m.marginals, m.most_probable, m.sample_given):
                with pytest.raises(DomainError, match="row 0 has probability zero"):
                    question([row])
            continue
        assert m.log_likelihood([row])[0] == pytest.approx(np.log(chosen.sum()))
        assert_close(m.marginals([row])[0], chosen @ worlds / chosen.sum())
        best = m.most_probable([row])
        number = int(best.assignment[0] @ (1 << np.arange(5)))
        assert chosen[number] == pytest.approx(chosen.max())
        assert best.weight[0] == pytest.approx(chosen.max())


@pytest.mark.parametrize("seed", range(4))
def test_samples(seed):
    m = model(seed)
    p, worlds = listed(m), all_worlds(5)
    drawn = m.sample(20_000, seed=seed)
    assert chi_square(drawn, p) > 1e-4
    np.testing.assert_array_equal(m.sample(100, seed=seed), drawn[:100])
    row = np.full(5, -1)
    row[2] = worlds[np.argmax(p), 2]
    given = m.sample_given([row, row], 20_000, seed=seed)
    assert given.shape == (2, 20_000, 5)
    assert chi_square(given[1], p * agreeing(worlds, row)) > 1e-4
    assert (given[0] != given[1]).any() or m.num_parameters == 0


@pytest.mark.parametrize("seed", range(8))
def test_gradient_by_finite_differences(seed):
    module = model(seed).to_torch()
    p, worlds = listed(module.to_circuit()), all_worlds(5)
    rows = np.array([row for row in random_rows(seed, 5, 30) if p[agreeing(worlds, row)].sum() > 0])
    data, scale = torch.tensor(rows), torch.linspace(0.5, 2.0, len(rows), dtype=torch.float64)
    (module(data) * scale).sum().backward()
    gradient = module.logits.grad.numpy()
    for parameter in range(len(gradient)):
        ends = []
        for step in (1e-5, -1e-5):
            moved = module.to_circuit()
            moved.logits[parameter] += step
            q = listed(moved)
            ends.append(sum(s * np.log(q[agreeing(worlds, row)].sum()) for row, s in zip(rows, scale.tolist())))
        assert gradient[parameter] == pytest.approx((ends[0] - ends[1]) / 2e-5, abs=1e-6)


def test_gradcheck_and_second_derivatives():
    module = model(3).to_torch()
    data = torch.tensor(module.to_circuit().sample(6, seed=0))

    def likelihood(logits):
        return torch.func.functional_call(module, {"logits": logits}, (data,))

    assert torch.autograd.gradcheck(likelihood, module.logits)
    (first,) = torch.autograd.grad(module(data).sum(), module.logits, create_graph=True)
    with pytest.raises(UnsupportedError, match="second derivatives"):
        (first**2).sum().backward()


def test_impossible_rows_have_no_nan_gradient():
    b = CircuitBuilder()
    m = ProbabilisticCircuit(b.build([b.conjunction([b.literal(1), b.disjunction([b.literal(2), b.literal(-2)])])]))
    module = m.to_torch()
    values = module(torch.tensor([[0, 1], [1, 1]]))
    assert values[0] == -torch.inf
    torch.where(values > -torch.inf, values, 0.0).sum().backward()
    assert torch.isfinite(module.logits.grad).all()


def test_training_by_gradient_and_by_em_reach_the_optimum():
    truth = model(2, num_variables=6)
    data = truth.sample(2000, seed=1)
    counts = np.bincount(data @ (1 << np.arange(6)), minlength=64) / len(data)
    start = ProbabilisticCircuit(truth.circuit)
    history = start.fit(data, steps=2)
    # Complete data, deterministic circuit: one step is the optimum.
    assert history[1] > history[0] + 0.01
    assert history[2] == pytest.approx(history[1], abs=1e-12)
    assert history[-1] >= truth.log_likelihood(data).mean()
    assert history[-1] <= (counts[counts > 0] * np.log(counts[counts > 0])).sum() + 1e-12
    module = ProbabilisticCircuit(truth.circuit).to_torch()
    optimiser = torch.optim.Adam(module.parameters(), lr=0.1)
    tensor = torch.tensor(data)
    for _ in range(200):
        optimiser.zero_grad()
        loss = -module(tensor).mean()
        loss.backward()
        optimiser.step()
    assert -loss.item() == pytest.approx(history[-1], abs=1e-3)


def test_em_with_missing_values_never_falls():
    truth = model(7, num_variables=6)
    data = truth.sample(500, seed=1).astype(float)
    data[np.random.default_rng(0).random(data.shape) < 0.4] = np.nan
    learner = ProbabilisticCircuit(truth.circuit, np.random.default_rng(5).normal(size=truth.num_parameters))
    history = learner.fit(data, steps=15)
    assert np.all(np.diff(history) >= -1e-12)
    assert history[-1] > history[0]
    assert listed(learner).sum() == pytest.approx(1)
    learner.fit(data, steps=2, pseudocount=1.0)
    assert learner.log_weights.min() > math.log(1e-4)


def test_module_state():
    module = model(4).to_torch()
    data = torch.tensor(random_rows(1, 5))
    expected = module(data)
    assert list(module.state_dict()) == ["logits"]
    other = ProbabilisticCircuit(satisfiable_circuit(4, num_variables=5)).to_torch()
    other.load_state_dict(module.state_dict())
    for twin in (other, copy.deepcopy(module), pickle.loads(pickle.dumps(module))):
        torch.testing.assert_close(twin(data), expected, rtol=0, atol=0)
    single = copy.deepcopy(module).float()
    assert single(data).dtype == torch.float32
    torch.testing.assert_close(single(data).double(), expected, rtol=1e-5, atol=1e-5)
    assert module.sample(3, seed=1).dtype == torch.bool
    assert module.sample_given(torch.full((2, 5), -1), 3, seed=1).shape == (2, 3, 5)
    assert module.most_probable(torch.full((2, 5), -1)).assignment.shape == (2, 5)


def test_no_determinism_needed_but_for_the_best():
    b = CircuitBuilder()
    x, y = b.literal(1), b.literal(2)
    m = ProbabilisticCircuit(b.build([b.disjunction([x, y])]), logits=None)
    assert listed(m).sum() == pytest.approx(1)
    assert_close(np.exp(m.log_likelihood(all_worlds(2))), listed(m))
    with pytest.raises(UnsupportedError, match="deterministic"):
        m.most_probable([[-1, -1]])


def test_constants_and_refusals():
    b = CircuitBuilder()
    free = ProbabilisticCircuit(b.build([b.true()], num_variables=3))
    assert_close(np.exp(free.log_likelihood(all_worlds(3))), np.full(8, 1 / 8))
    only = ProbabilisticCircuit(b.build([b.literal(-1)]))
    assert only.num_parameters == 0
    assert only.log_likelihood([[0], [1], [-1]]).tolist() == [0.0, -np.inf, 0.0]
    assert only.to_torch()(torch.tensor([[0]])).tolist() == [0.0]
    with pytest.raises(DomainError, match="unsatisfiable"):
        ProbabilisticCircuit(b.build([b.false()], num_variables=2))
    with pytest.raises(UnsupportedError, match="one root, this one has 2"):
        ProbabilisticCircuit(b.build([b.literal(1), b.literal(2)]))
    with pytest.raises(ShapeError, match=r"data has shape \[2\], expected \[row, 3\]"):
        free.log_likelihood([0, 1])
    with pytest.raises(DomainError, match=r"data\[0, 1\] is 2"):
        free.log_likelihood([[0, 2, 1]])
    with pytest.raises(ShapeError, match="logits"):
        ProbabilisticCircuit(free.circuit, np.zeros(1))
    with pytest.raises(DomainError, match=r"logits\[0\] is nan"):
        ProbabilisticCircuit(free.circuit, np.full(free.num_parameters, np.nan))
    with pytest.raises(DomainError, match="row 1 has probability zero"):
        only.fit([[0], [1]])
    with pytest.raises(ShapeError, match="no rows"):
        only.fit(np.empty((0, 1)))
