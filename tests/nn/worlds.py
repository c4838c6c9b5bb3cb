"""Brute force over worlds: what a logic layer means, written without any of the library."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence

import torch


def categorical_worlds(size: int) -> list[tuple[bool, ...]]:
    return [tuple(place == chosen for place in range(size)) for chosen in range(size)]


def independent_worlds(size: int) -> list[tuple[bool, ...]]:
    return list(itertools.product((False, True), repeat=size))


def expectation(
    inputs: Sequence[tuple[torch.Tensor, bool]], outcome: Callable[..., Sequence[bool]], num_outputs: int
) -> torch.Tensor:
    """[batch, output]: the sum of the weights of the worlds in which each output holds.

    inputs   (probabilities [batch, fact], whether they are one choice) for each input relation
    outcome  from one tuple of bools per relation to the outputs that hold
    """
    kinds = [categorical_worlds(p.shape[-1]) if one else independent_worlds(p.shape[-1]) for p, one in inputs]
    batch = inputs[0][0].shape[0]
    rows = []
    for row in range(batch):
        total = [0.0] * num_outputs
        for world in itertools.product(*kinds):
            weight = math.prod(
                float(p[row, i]) if holds else (1.0 if one else 1 - float(p[row, i]))
                for (p, one), facts in zip(inputs, world)
                for i, holds in enumerate(facts)
            )
            for place, holds in enumerate(outcome(*world)):
                total[place] += weight * holds
        rows.append(total)
    return torch.tensor(rows, dtype=torch.float64)
