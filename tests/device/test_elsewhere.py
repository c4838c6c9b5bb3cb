"""What a tensor that is not on the CPU meets, without such a device: tensors of torch's "meta" device have no numbers,
so whatever reads them fails; devices without memory are acted."""

import re

import numpy as np
import pytest
import torch

import derivable as dv
from derivable.bridge.torch import array_of
from derivable.core.diagnostics import DomainError, OutOfMemory, UnsupportedError

META = torch.device("meta")
FULL = torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79 GiB")


def circuit():
    a, b, c = (dv.circuit.variables(name)[0] for name in "abc")
    return dv.circuit.compile((a & b) | ~c)


def numbers(*shape):
    return torch.rand(*shape, device=META)


@pytest.mark.parametrize(
    "call",
    [
        lambda: circuit().evaluate(numbers(2, 3)),
        lambda: circuit().value_and_gradient(numbers(3)),
        lambda: circuit().evaluate({"a": numbers(2), "b": np.ones(2), "c": np.ones(2)}),
        lambda: circuit().weighted_count(numbers(3)),
        lambda: circuit().marginals(numbers(3)),
        lambda: dv.circuit.ProbabilisticCircuit(circuit()).log_likelihood(numbers(2, 3)),
        lambda: dv.circuit.ProbabilisticCircuit(circuit()).to_torch().to(META).sample(2),
        lambda: dv.tensor.coordinates(numbers(2, 2)),
        lambda: dv.Program("type e(i32, i32)").run({"e": torch.zeros(2, 2, dtype=torch.int64, device=META)}),
        lambda: dv.independent([0, 1], numbers(2)),
        # The second operand of what is computed where the first one is.
        lambda: array_of(numbers(3)),
    ],
)
def test_what_is_computed_on_the_cpu_refuses_tensors_of_other_devices(call):
    with pytest.raises(
        UnsupportedError, match=r"is on meta \((float32|float64|int64), shape \[.*computed on the CPU"
    ) as caught:
        call()
    assert "`x.cpu()`" in str(caught.value)


def test_modules_compute_where_their_inputs_are():
    assert circuit().to_torch()(numbers(2, 3)).device == META
    made = dv.circuit.ProbabilisticCircuit(circuit())
    module = made.to_torch().to(META)
    found = module(numbers(5, 3))
    assert (found.device, found.shape, found.dtype) == (META, (5,), torch.float64)
    with pytest.raises(DomainError, match="data is on cpu, the parameter on meta"):
        module(torch.ones(5, 3))
    assert dv.tensor.einsum("ij,jk->ik", numbers(3, 4), numbers(4, 5)).device == META
    for model in ("hrr", "fhrr", "map", "bsc"):
        x = dv.vsa.random(3, 64, model=model).to(META)
        assert dv.vsa.bind(x, x, model=model).device == META


def test_probabilistic_circuits_by_their_weighted_circuit():
    """What other devices compute, on the CPU, where the kernels do it too."""
    made = dv.circuit.ProbabilisticCircuit(circuit())
    made.logits[:] = np.random.default_rng(0).normal(size=made.num_parameters)
    module = made.to_torch()
    data = torch.tensor([[1, 1, 0], [0, 0, 1], [-1, -1, 1], [0, -1, 0]])
    results = []
    for run in (module, module._folded):
        module.logits.grad = None
        found = run(data)
        found.sum().backward()
        results.append((found.detach(), module.logits.grad))
    torch.testing.assert_close(results[0], results[1], rtol=1e-12, atol=1e-12)
    assert results[0][0][1] == -torch.inf
    torch.testing.assert_close(
        module._folded(data.double().masked_fill(data < 0, torch.nan)), results[0][0], rtol=1e-12, atol=0
    )
    with pytest.raises(DomainError, match=re.escape("data[1, 2] is 3")):
        module._folded(data * torch.tensor([1, 1, 3]))


def full(*_, **__):
    raise FULL


def test_a_device_without_memory(monkeypatch):
    module = circuit().to_torch("real")
    x = torch.rand(2, 3, device=META, requires_grad=True)
    for engine in module._engines.values():
        monkeypatch.setattr(type(engine), "elsewhere", lambda self, library: (full, full))
    with pytest.raises(OutOfMemory, match=r"of operands \[2, 3\]: meta has no memory left for 2.00 GiB more"):
        module(x)
    monkeypatch.undo()
    found = module(x)
    for engine in module._engines.values():
        monkeypatch.setattr(type(engine), "elsewhere", lambda self, library: (full, full))
    with pytest.raises(OutOfMemory, match=r"meta has no memory left for 2.00 GiB more"):
        found.sum().backward()


def test_memory_for_tensors_and_vectors(monkeypatch):
    kernel = dv.tensor.compile(dv.tensor.parse("X * 2.0", {"X": 1}), backend="torch")
    from derivable.parallel.program.execute import Run

    monkeypatch.setattr(Run, "run", full)
    with pytest.raises(OutOfMemory, match=r"whose result has the shape \[3\]: meta has no memory left for 2.00 GiB"):
        kernel(X=numbers(3))
    monkeypatch.undo()
    assert kernel(X=numbers(3)).shape == (3,)
    monkeypatch.setattr(torch.fft, "rfft", full)
    with pytest.raises(
        OutOfMemory, match=r"convolve of tensors \[4, 64\], \[4, 64\]: meta has no memory left for 2.00"
    ):
        dv.vsa.convolve(numbers(4, 64), numbers(4, 64))
    monkeypatch.undo()
    assert dv.vsa.convolve(numbers(4, 64), numbers(4, 64)).device == META


def test_layers_without_memory(monkeypatch):
    digits = dv.categorical(range(2))
    layer = dv.nn.Logic("rel same(a) = x(a), y(a)", {"x": digits, "y": digits}, {"same": range(2)})
    monkeypatch.setattr(torch, "aminmax", lambda values: (torch.tensor(0.0), torch.tensor(1.0)))
    monkeypatch.setattr("derivable.nn.logic.require_distributions", lambda *_: None)
    # Tensors without numbers are refused before that; here they stand for those of another device.
    monkeypatch.setattr("derivable.nn.values.require_computable", lambda *_: None)
    assert layer(numbers(3, 2), numbers(3, 2)).device == META
    monkeypatch.setattr(layer.inference, "forward", full)
    with pytest.raises(OutOfMemory, match=r"a layer of operands \[3, 2\], \[3, 2\]: meta has no memory left for 2.00"):
        layer(numbers(3, 2), numbers(3, 2))
