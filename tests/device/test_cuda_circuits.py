"""Circuits and layers on a CUDA device, beside the CPU in float64; what is not asked for does not travel.

Skipped where there is no device; what needs none of it is in test_elsewhere.py.
"""

import numpy as np
import pytest
import torch

import derivable as dv
from derivable.core.diagnostics import DerivableError
from device.on_cuda import Travels, close, needs_cuda, uniform

pytestmark = needs_cuda


def circuit():
    v = [dv.circuit.variables(f"v{k}")[0] for k in range(6)]
    return dv.circuit.compile((v[0] & v[1]) | dv.circuit.exactly_one(v[2:5]) & ~v[5])


# Each semiring, with negative weights and without, is a kernel of its own, which takes seconds to compile.
def test_circuits():
    real = circuit().to_torch("real")
    for batch in ((), (130,), (3, 5)):
        x, y = uniform(*batch, 6), uniform(*batch, 6, seed=1)
        close(lambda module, x, y: module(x, y), x, y, module=real)


@pytest.mark.parametrize("batch", [1, 130])
def test_a_circuit_in_a_cuda_graph(batch):
    """Recorded once, it computes with the weights that are there when it is replayed; in eager mode NaN is refused."""
    module = circuit().to_torch("log")
    assert module.explain().startswith("float32: kernels by Triton")
    weights = uniform(batch, 6).detach().log().cuda().requires_grad_()

    def graded():
        value = module(weights)
        return value.detach(), *torch.autograd.grad(value, weights, torch.ones_like(value))

    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        graded()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = graded()
    other = uniform(batch, 6, seed=7).detach().log()
    with torch.no_grad():
        weights.copy_(other)
    graph.replay()
    there = other.requires_grad_()
    value = module(there)
    for x, y in zip(found, (value.detach(), *torch.autograd.grad(value.sum(), there)), strict=True):
        torch.testing.assert_close(x.cpu(), y, rtol=1e-9, atol=1e-9)
    with pytest.raises(DerivableError, match="NaN"):
        module(torch.full_like(weights, torch.nan))


def test_second_derivatives_of_circuits():
    module = circuit().to_torch("real")

    def curvature(x):
        (gradient,) = torch.autograd.grad(module(x).sum(), x, create_graph=True)
        return gradient.square().sum(-1)

    close(curvature, uniform(4, 6))


def test_probabilistic_circuits():
    made = dv.circuit.ProbabilisticCircuit(circuit())
    made.logits[:] = np.random.default_rng(2).normal(size=made.num_parameters)
    data = torch.tensor([[1, 1, 0, 0, 1, 0], [0, 0, 1, 0, 0, 0], [-1, -1, 1, -1, 0, 0], [0, 0, 0, 0, 0, 1]])
    here, there = made.to_torch(), made.to_torch().to("cuda")
    expected = here(data)
    expected[:3].sum().backward()
    with Travels():
        found = there(data.cuda())
        found[:3].sum().backward()
    torch.testing.assert_close(found.cpu(), expected, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(there.logits.grad.cpu(), here.logits.grad, rtol=1e-9, atol=1e-9)


SUMS = "rel sum_2(a + b) = digit_1(a), digit_2(b)"


@pytest.mark.parametrize("provenance", ["exact", "minmaxprob"])
def test_layers(provenance):
    digits = dv.categorical(range(4))
    layer = dv.nn.Logic(SUMS, {"digit_1": digits, "digit_2": digits}, {"sum_2": range(7)}, provenance)
    scores = uniform(5, 4), uniform(5, 4, seed=1)
    close(lambda layer, a, b: layer(a.softmax(-1), b.softmax(-1)), *scores, module=layer)


def test_semantic_loss():
    a, b, c = (dv.circuit.variables(name)[0] for name in "abc")
    loss = dv.nn.SemanticLoss(dv.circuit.exactly_one([a, b, c]))
    close(lambda loss, p: loss(p.sigmoid()), uniform(4, 3), module=loss)


def test_memory_that_there_is_not_is_an_error_of_ours_and_the_process_goes_on():
    module = circuit().to_torch("log")
    huge = torch.zeros(1, 6, device="cuda").expand(1 << 36, 6)
    with pytest.raises(DerivableError) as caught:
        module(huge)
    assert isinstance(caught.value, MemoryError)
    assert module(torch.full((2, 6), -0.7, device="cuda")).shape == (2, 1)
