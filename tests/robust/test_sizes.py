"""Very deep, very wide, very small."""

import numpy as np
import pytest

import derivable as dv
from derivable.circuit.graph.builder import CircuitBuilder
from robust import workloads


@pytest.fixture(scope="module", params=[100_000, pytest.param(1_000_000, marks=pytest.mark.slow)])
def depth(request):
    return request.param


@pytest.fixture(scope="module")
def deep(depth):
    return workloads.deep_circuit(depth)


def test_many_levels(deep, depth):
    assert deep.num_levels == depth + 1
    deep.check()
    # max(x2, min(x1, max(x2, ...))) is x2, whichever is larger.
    np.testing.assert_array_equal(
        deep.evaluate(np.array([[0.75, 0.25], [0.25, 0.75]]), semiring="godel")[:, 0], [0.25, 0.75]
    )


def test_many_levels_backward(deep):
    import torch

    weights = torch.tensor([[0.75, 0.5], [0.5, 0.75]], dtype=torch.float64, requires_grad=True)
    roots = deep.to_torch(semiring="godel")(weights)
    roots.sum().backward()
    assert weights.grad is not None
    assert torch.isfinite(weights.grad).all()
    assert weights.grad.sum() == 2  # each root is one of its weights


def test_many_levels_stored(deep, tmp_path):
    path = tmp_path / "deep.circuit"
    deep.save(path)
    again = dv.circuit.load(path)
    np.testing.assert_array_equal(again.children, deep.children)


@pytest.mark.parametrize("root", ["true", "false"])
def test_constants(root):
    builder = CircuitBuilder()
    circuit = builder.build([getattr(builder, root)()], num_variables=0)
    assert circuit.model_count() == (root == "true")
    assert circuit.evaluate(np.zeros(0)) == [float(root == "true")]
    assert circuit.evaluate(np.zeros((4, 0))).shape == (4, 1)
    assert circuit.evaluate(np.zeros((0, 0))).shape == (0, 1)


def test_no_roots():
    circuit = CircuitBuilder().build([], num_variables=3)
    assert circuit.evaluate(np.full((2, 3), 0.5)).shape == (2, 0)


def test_one_wide_node():
    builder = CircuitBuilder()
    count = 100_000
    circuit = builder.build([builder.conjunction([builder.literal(v) for v in range(1, count + 1)])])
    assert circuit.model_count() == 1
    np.testing.assert_allclose(circuit.evaluate(np.full(count, -1e-5), semiring="log"), -1.0, rtol=1e-9)
