"""Training a network on one of the demos: device, optimiser, progress, reading off the result."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from derivable.core.diagnostics import UnsupportedError
from derivable.core.progress import progress

LEARNING_RATE = 3e-3
EVALUATION_BATCH = 2048


@dataclass(frozen=True)
class Training:
    """How a demo trains. max_batches  steps in all, None: no limit."""

    epochs: int = 15
    batch_size: int = 32
    seed: int = 0
    device: str = "cpu"
    max_batches: int | None = None


@dataclass(kw_only=True)
class Learned:
    """What came out of a demo. Accuracies are shares of the test half.

    preparation_seconds  compiling the knowledge, and its kernels where this machine has not kept them yet
    symbolic_seconds     of the training seconds, those in the logic or circuit, forward and backward
    """

    settings: Any
    data: str
    circuit: str
    preparation_seconds: float
    training_seconds: float
    symbolic_seconds: float
    digit_accuracy: float
    losses: list[float] = field(repr=False)
    confusion: np.ndarray = field(repr=False)
    predictions: np.ndarray = field(repr=False)


def pick_device(name: str) -> torch.device:
    """The torch device, or UnsupportedError if this machine has none of that kind."""
    try:
        device = torch.device(name)
        torch.zeros(1, device=device)
    except (RuntimeError, AssertionError) as error:
        raise UnsupportedError(
            f"torch cannot use device {name!r} here: {str(error).splitlines()[0]}", hint="--device cpu"
        ) from None
    return device


def fit(
    network: torch.nn.Module,
    batch_loss: Callable[[torch.Tensor], torch.Tensor],
    num_examples: int,
    settings: Training,
    *,
    show: bool | None,
    device: torch.device,
) -> tuple[float, list[float]]:
    """AdamW with a one-cycle learning rate; returns the seconds taken and the loss of every step.

    batch_loss  from indices of examples [example] int64 to a scalar to minimise
    """
    steps = settings.epochs * -(-num_examples // settings.batch_size)
    steps = min(steps, settings.max_batches or steps)
    optimiser = torch.optim.AdamW(network.parameters(), lr=LEARNING_RATE, weight_decay=1e-2)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, LEARNING_RATE, total_steps=max(steps, 2))
    losses: list[float] = []
    network.train()
    began = time.perf_counter()
    with progress("training", steps, enabled=show) as advance:
        while len(losses) < steps:
            for batch in torch.randperm(num_examples).to(device).split(settings.batch_size):
                loss = batch_loss(batch)
                optimiser.zero_grad()
                loss.backward()
                optimiser.step()
                schedule.step()
                losses.append(float(loss.detach()))
                advance(1, f"loss {np.mean(losses[-20:]):.3f}")
                if len(losses) == steps:
                    break
    return time.perf_counter() - began, losses


def read(network: torch.nn.Module, images: np.ndarray, device: torch.device) -> np.ndarray:
    """The most probable class of each image: [image] int64."""
    with torch.no_grad():
        parts = torch.as_tensor(images)[:, None].split(EVALUATION_BATCH)
        return torch.cat([network(part.to(device)).argmax(-1).cpu() for part in parts]).numpy()
