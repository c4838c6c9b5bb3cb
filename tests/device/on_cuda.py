"""What tests of engines on a CUDA device share."""

import contextlib
import copy

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")
# The ends of a column, a count: what a check reads.
FEW = 16


class Travels(TorchDispatchMode):
    """Raises where more than a few numbers go from the device to the host."""

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        found = function(*args, **(kwargs or {}))
        source = next((x for x in reversed(args) if isinstance(x, torch.Tensor)), None)
        copies = ("aten::_to_copy", "aten::copy_", "aten::to")
        if function._schema.name in copies and source is not None and source.is_cuda and found.is_cpu:
            assert source.numel() <= FEW, f"{function} moves a tensor of shape {list(source.shape)} to the CPU"
        return found


def moved(value, device):
    if isinstance(value, torch.Tensor):
        found = value.detach().to(device)
        return found.requires_grad_(value.requires_grad)
    if isinstance(value, (list, tuple)):
        return type(value)(moved(x, device) for x in value)
    return value


def dense(value):
    return value.to_dense() if isinstance(value, torch.Tensor) and value.layout != torch.strided else value


def close(run, *operands, module=None, check_travels=True):
    """The same values and gradients, in float64, on both devices; results stay there.

    module  what `run` takes before the operands, if anything: a copy of it goes to the device
    """
    there = [moved(x, "cuda") for x in operands]
    here, copied = ([], []) if module is None else ([module], [copy.deepcopy(module).to("cuda")])
    expected = _graded(lambda *given: run(*here, *given), operands)
    with Travels() if check_travels else contextlib.nullcontext():
        found = _graded(lambda *given: run(*copied, *given), there)
    assert all(x.is_cuda for x in found)
    for x, y in zip(found, expected, strict=True):
        torch.testing.assert_close(x.cpu(), y, rtol=1e-9, atol=1e-9, equal_nan=True)


def _graded(run, operands):
    found = run(*operands)
    values = [dense(x) for x in (found if isinstance(found, (tuple, list)) else [found])]
    asked = [x for x in operands if isinstance(x, torch.Tensor) and x.requires_grad]
    if not asked:
        return [x.detach() for x in values]
    total = sum(
        (x.clamp(-1e3, 1e3) * (1 + torch.arange(x.numel(), device=x.device).reshape(x.shape))).sum() for x in values
    )
    return [*(x.detach() for x in values), *(dense(x) for x in torch.autograd.grad(total, asked))]


def uniform(*shape, seed=0, low=0.05, high=0.95, is_graded=True):
    numbers = np.random.default_rng(seed).uniform(low, high, shape)
    return torch.from_numpy(numbers).requires_grad_(is_graded)
