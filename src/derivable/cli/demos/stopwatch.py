"""How long a module takes inside a larger training step: its forward and its backward, nothing else."""

from __future__ import annotations

import time
from typing import Any

import torch


class Stopwatch:
    """Adds up the seconds spent in the forward and backward pass of one module.

    Call the stopwatch instead of the module. Backward time runs from the moment the gradients of the
    module's outputs are there to the moment those of all its inputs are; both moments are taken by
    identity operations in the autograd graph, so that neither the network before the module nor the
    loss after it is counted. On CUDA the device is synchronised at each of the four marks.
    """

    def __init__(self, module: Any):
        self.module = module
        self.forward_seconds = 0.0
        self.backward_seconds = 0.0
        self._backward_began: float | None = None

    @property
    def seconds(self) -> float:
        return self.forward_seconds + self.backward_seconds

    def __call__(self, **inputs: torch.Tensor) -> torch.Tensor:
        """module(**inputs) with a single tensor as its result."""
        names = list(inputs)
        tensors = _MarkInputs.apply(self, *inputs.values()) if torch.is_grad_enabled() else tuple(inputs.values())
        began = self.now(tensors[0])
        result = self.module(**dict(zip(names, tensors)))
        self.forward_seconds += self.now(result) - began
        return _MarkOutput.apply(self, result) if result.requires_grad else result

    @staticmethod
    def now(tensor: torch.Tensor) -> float:
        if tensor.is_cuda:
            torch.cuda.synchronize(tensor.device)
        return time.perf_counter()


class _MarkInputs(torch.autograd.Function):
    """Identity; its backward runs once, when the gradients of all inputs are there."""

    @staticmethod
    def forward(ctx, watch, *tensors):
        ctx.watch = watch
        return tuple(tensor.view_as(tensor) for tensor in tensors)

    @staticmethod
    def backward(ctx, *gradients):
        watch = ctx.watch
        if watch._backward_began is not None:
            known = next(gradient for gradient in gradients if gradient is not None)
            watch.backward_seconds += watch.now(known) - watch._backward_began
            watch._backward_began = None
        return None, *gradients


class _MarkOutput(torch.autograd.Function):
    """Identity; its backward runs when the gradient of the output is there."""

    @staticmethod
    def forward(ctx, watch, tensor):
        ctx.watch = watch
        return tensor.view_as(tensor)

    @staticmethod
    def backward(ctx, gradient):
        ctx.watch._backward_began = ctx.watch.now(gradient)
        return None, gradient
