"""The front end of all four models: a small CNN from a panel to a probability of each value of each attribute."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import torch
from torch import Tensor, nn

from derivable.core.progress import progress

from .problems import ATTRIBUTES, SIDE, draw


class Reader(nn.Module):
    """panels [*batch, 1, 80, 80] -> logits [*batch, 30], those of the attributes one after the other."""

    def __init__(self, width: int = 16):
        super().__init__()
        layers: list[nn.Module] = []
        for before, after in ((1, width), (width, 2 * width), (2 * width, 3 * width), (3 * width, 4 * width)):
            layers += [nn.Conv2d(before, after, 3, stride=2, padding=1), nn.BatchNorm2d(after), nn.ReLU()]
        self.convolutions = nn.Sequential(*layers)
        side = SIDE // 16
        self.top = nn.Sequential(
            nn.Flatten(), nn.Linear(4 * width * side * side, 128), nn.ReLU(), nn.Linear(128, sum(ATTRIBUTES.values()))
        )

    def forward(self, panels: Tensor) -> Tensor:
        return self.top(self.convolutions(panels))


def masses(logits: Tensor) -> list[Tensor]:
    """For each attribute the probabilities of its values: [*batch, 30] -> [*batch, value] each."""
    return [torch.softmax(part, -1) for part in parts(logits)]


def parts(logits: Tensor) -> list[Tensor]:
    """The logits of each attribute: [*batch, 30] -> [*batch, value] each."""
    ends = list(itertools.accumulate(ATTRIBUTES.values()))
    # Slices, because a trace cannot go through what `split` gives.
    return [logits[..., end - size : end] for end, size in zip(ends, ATTRIBUTES.values())]


def reading_loss(logits: Tensor, values: Tensor) -> Tensor:
    """The negative log probability of the attributes (nats a panel): logits [panel, 30], values [panel, attribute]."""
    losses = [nn.functional.cross_entropy(part, values[:, k]) for k, part in enumerate(parts(logits))]
    return torch.stack(losses).sum()


def train(
    network: nn.Module,
    values: Tensor,
    epochs: int,
    seed: int,
    noise: float = 0.3,
    batch: int = 64,
    *,
    read: Callable[[Tensor], Tensor] | None = None,
    rate: float = 4e-3,
    what: str = "reading",
) -> list[float]:
    """Teach the network panels with attributes values [panel, attribute]; returns the loss of each step.

    Pictures are drawn anew in each epoch, with noise from none to what is given.
    read  panels [panel, 1, 80, 80] -> logits [panel, 30]; None for the network itself
    rate  the highest learning rate: it rises from a 25th of this, and then falls
    what  is done, for the progress bar
    """
    torch.manual_seed(seed)
    read = read or network
    steps = epochs * (len(values) // batch)
    optimiser = torch.optim.AdamW(network.parameters(), weight_decay=1e-2)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, max_lr=rate, total_steps=steps)
    losses: list[float] = []
    network.train()
    with progress(what, steps) as advance:
        for epoch in range(epochs):
            for number, rows in enumerate(torch.randperm(len(values))[: len(values) // batch * batch].split(batch)):
                level = noise * torch.rand(()).item()
                pictures = draw(values[rows], seed=seed + 1_000_003 * epoch + number, noise=level)
                loss = reading_loss(read(pictures), values[rows])
                optimiser.zero_grad()
                loss.backward()
                optimiser.step()
                schedule.step()
                losses.append(loss.item())
                advance(note=f"loss {losses[-1]:.3f}")
    network.eval()
    return losses
