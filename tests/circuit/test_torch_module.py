"""Circuits as PyTorch modules: gradients of any order, and everything a module must survive."""

import copy
import io
import pickle
import subprocess
import sys

import numpy as np
import pytest
import torch
from torch import library

from circuit.decimal_circuits import random_circuit
from derivable.algebra import semirings
from derivable.circuit.fold.engine import GraphFold
from derivable.core.diagnostics import DomainError, ShapeError, UnsupportedError

NAMES = ["real", "log", "max_product", "max_plus", "min_plus", "godel"]


def circuit_of(seed=3, num_roots=1):
    return random_circuit(np.random.default_rng(seed), 5, 25, num_roots)


def inputs(name, *shape, seed=0):
    tensor = torch.rand(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)) * 0.8 + 0.1
    return (tensor.log() if name in ("log", "max_plus", "min_plus") else tensor).requires_grad_()


@pytest.mark.parametrize("num_roots", [1, 3])
@pytest.mark.parametrize("name", NAMES)
def test_gradients_of_first_and_second_order(name, num_roots):
    module = circuit_of(num_roots=num_roots).to_torch(name)
    weights, negatives = inputs(name, 3, 5), inputs(name, 5, seed=1)
    assert torch.autograd.gradcheck(module, (weights, negatives))
    assert torch.autograd.gradgradcheck(module, (weights, negatives))
    if module.semiring.complement is not None:
        assert torch.autograd.gradcheck(module, (weights,))
        assert torch.autograd.gradgradcheck(module, (weights,))


@pytest.mark.parametrize("name", [*NAMES, "boolean"])
def test_tensor_operations_are_the_kernels(name):
    """What runs on other devices, on the CPU; values, and gradients at ties and infinities too."""
    circuit = circuit_of(seed=5, num_roots=3)
    ring = semirings.get(name)
    weights, negatives = inputs(name, 4, 5), inputs(name, 4, 5, seed=1)
    if name == "boolean":
        weights, negatives = weights > 0.5, negatives > 0.5
    else:
        with torch.no_grad():
            weights[1], negatives[2] = ring.zero, ring.zero
            weights[3], negatives[3] = weights[3, 0], weights[3, 0]
    expected = circuit.to_torch(name)(weights, negatives)
    engine = GraphFold(circuit, ring, True, str(weights.dtype)[6:])
    apply, pull = engine.elsewhere("torch")
    (found,) = apply(None, (weights.detach(), negatives.detach()))
    assert torch.equal(torch.isfinite(found), torch.isfinite(expected))
    torch.testing.assert_close(found, expected)
    if ring.differentiable:
        seeds = torch.rand(expected.shape, dtype=torch.float64)
        if name == "log":
            # A root of -inf gives no gradient to the kernels; the operations give their own limits.
            seeds[~torch.isfinite(expected)] = 0
        mine = pull(None, (seeds,), (weights.detach(), negatives.detach()), (found,))
        theirs = torch.autograd.grad(expected, (weights, negatives), seeds)
        for one, other in zip(mine, theirs, strict=True):
            assert torch.isfinite(other).all()
            torch.testing.assert_close(one, other)


def test_layouts_and_dtypes():
    module = circuit_of(num_roots=2).to_torch("log")
    weights = inputs("log", 4, 3, 5).detach()
    expected = module(weights)
    assert expected.shape == (4, 3, 2)
    torch.testing.assert_close(module(weights.transpose(0, 1)), expected.transpose(0, 1))
    torch.testing.assert_close(module(weights[:, 0]), expected[:, 0])
    torch.testing.assert_close(module(weights[2, 1]), expected[2, 1])
    torch.testing.assert_close(module(weights[0, :1].expand(7, 5)), expected[0, :1].expand(7, 2))
    assert module(weights[:0]).shape == (0, 3, 2)
    assert module(weights.float()).dtype == torch.float32
    assert module(weights.half()).dtype == torch.float32
    half = weights.bfloat16().requires_grad_()
    module(half).sum().backward()
    assert half.grad is not None
    assert half.grad.dtype == torch.bfloat16
    with torch.no_grad():
        assert not module(weights.requires_grad_()).requires_grad
    torch.testing.assert_close(module(weights, weights[0, 0]), module(weights, weights[0, 0].expand(4, 3, 5)))


def test_gradients_of_broadcast_inputs_are_summed():
    module = circuit_of().to_torch("real")
    weights, negatives = inputs("real", 6, 5), inputs("real", 5, seed=1)
    module(weights, negatives).sum().backward()
    copies = negatives.detach().expand(6, 5).clone().requires_grad_()
    module(weights.detach(), copies).sum().backward()
    assert negatives.grad is not None
    assert copies.grad is not None
    torch.testing.assert_close(negatives.grad, copies.grad.sum(0))


def test_pickle_copy_save_and_state():
    module = circuit_of(num_roots=2).to_torch("log")
    weights = inputs("log", 3, 5).detach()
    expected = module(weights)
    buffer = io.BytesIO()
    torch.save(module, buffer)
    buffer.seek(0)
    for other in (
        pickle.loads(pickle.dumps(module)),
        copy.deepcopy(module),
        torch.load(buffer, weights_only=False),
        module.to(torch.float64),
        module.cpu(),
    ):
        assert torch.equal(other(weights), expected)
    assert module.state_dict() == {}
    module.load_state_dict({})
    assert "semiring='log'" in repr(module)


def test_inside_compile_and_sequential():
    circuit = circuit_of()
    model = torch.nn.Sequential(torch.nn.Linear(7, 5), torch.nn.LogSigmoid(), circuit.to_torch("log"))
    data = torch.rand(6, 7)
    expected = model(data)
    expected.sum().backward()
    gradient = model[0].weight.grad.clone()
    model.zero_grad()
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
    found = compiled(data)
    torch.testing.assert_close(found, expected)
    found.sum().backward()
    torch.testing.assert_close(model[0].weight.grad, gradient)


def test_compiled_with_negative_weights():
    module = circuit_of(num_roots=2).to_torch("real")
    weights, negatives = inputs("real", 4, 5), inputs("real", 5, seed=1)
    expected = torch.autograd.grad(module(weights, negatives).sum(), (weights, negatives))
    compiled = torch.compile(module, backend="aot_eager", fullgraph=True)
    found = torch.autograd.grad(compiled(weights, negatives).sum(), (weights, negatives))
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other)
    rows = negatives.detach().expand(4, 5).clone().requires_grad_()
    number = module._engines[True, torch.float64].number
    library.opcheck(torch.ops.derivable.apply, ([weights, rows], None, number))


def test_importing_the_module_leaves_the_compiler_alone():
    """torch._dynamo takes seconds and 180 MiB."""
    code = "import derivable.circuit.fold.torch_module, sys; print('torch._dynamo' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_data_parallel_on_the_cpu_and_threads():
    from concurrent.futures import ThreadPoolExecutor

    module = circuit_of(num_roots=2).to_torch("log")
    weights = inputs("log", 64, 5).detach()
    expected = module(weights)
    assert torch.equal(torch.nn.DataParallel(module)(weights), expected)
    replicas = [copy.copy(module) for _ in range(4)]
    with ThreadPoolExecutor(4) as pool:
        for found in pool.map(lambda replica: replica(weights), replicas * 8):
            assert torch.equal(found, expected)


def test_a_meta_device_shows_that_other_devices_use_tensor_operations():
    module = circuit_of(num_roots=2).to_torch("real")
    weights, negatives = (torch.rand(3, 5, device="meta", requires_grad=True) for _ in range(2))
    found = module(weights, negatives)
    assert (found.device.type, found.shape) == ("meta", (3, 2))
    gradients = torch.autograd.grad(found.sum(), (weights, negatives), create_graph=True)
    assert [one.device.type for one in torch.autograd.grad(gradients[0].sum(), negatives)] == ["meta"]


def test_refusals():
    module = circuit_of().to_torch("log")
    with pytest.raises(ShapeError, match="has 4 entries"):
        module(torch.zeros(2, 4))
    with pytest.raises(ShapeError, match="do not broadcast"):
        module(torch.zeros(2, 5), torch.zeros(3, 5))
    with pytest.raises(DomainError, match=r"torch\.int64"):
        module(torch.zeros(2, 5, dtype=torch.int64))
    with pytest.raises(DomainError, match="not a tensor"):
        module(torch.zeros(2, 5), np.zeros(5))
    with pytest.raises(DomainError, match="no complement"):
        circuit_of().to_torch("min_plus")(torch.zeros(2, 5))
    with pytest.raises(UnsupportedError, match="integers of any size"):
        circuit_of().to_torch("counting")
