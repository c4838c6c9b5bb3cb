"""How long a module takes inside a larger training step: its forward and its backward, nothing else."""

from __future__ import annotations

import time
from typing import Any

import torch


class Stopwatch:
    """Adds up the seconds spent in the forward and backward pass of one module.

    Call the stopwatch instead of the module. Backward time runs from the moment the gradient of the module's output
    is there to the moment those of all its inputs are, so that neither the network before the module nor the loss
    after it is counted. On CUDA the device is synchronised at each of the four marks.
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
        # Views, so that what else is made of an input does not delay the gradient that is waited for.
        views = {name: tensor.view_as(tensor) for name, tensor in inputs.items()}
        began = self.now(next(iter(views.values())))
        result = self.module(**views)
        self.forward_seconds += self.now(result) - began
        if result.requires_grad:
            result.register_hook(self._begin)
            marked = [tensor for tensor in views.values() if tensor.requires_grad]
            torch.autograd.graph.register_multi_grad_hook(marked, self._end)
        return result

    def _begin(self, gradient: torch.Tensor) -> None:
        self._backward_began = self.now(gradient)

    def _end(self, gradients: Any) -> None:
        if self._backward_began is not None:
            known = next(gradient for gradient in gradients if gradient is not None)
            self.backward_seconds += self.now(known) - self._backward_began
            self._backward_began = None

    @staticmethod
    def now(tensor: torch.Tensor) -> float:
        if tensor.is_cuda:
            torch.cuda.synchronize(tensor.device)
        return time.perf_counter()
