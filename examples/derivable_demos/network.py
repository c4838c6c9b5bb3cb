"""The small convolutional network of the demos."""

from __future__ import annotations

import torch


class DigitReader(torch.nn.Sequential):
    """Two convolutions and a linear layer: images [image, 1, height, width] -> scores [image, class].

    The scores are logits; nothing in the network knows what a digit is beyond the number of classes.

    With `starts_uniform` the last layer starts at zero, so that every class is equally probable at first.
    Sums then push images towards what they say on average: images in large sums towards large digits. From
    a random start one run in twenty settled on a reading that swaps neighbours, 2k with 2k + 1, under which
    half of the sums still come out right (docs/decisions/061-uniform-start.md). Sudoku has no order to
    find and needs the random start: there a uniform one is a point where all gradients agree.
    """

    def __init__(self, height: int, width: int, num_classes: int, starts_uniform: bool = False):
        flat = 64 * (height // 4) * (width // 4)
        super().__init__(
            torch.nn.Conv2d(1, 32, 3, padding=1),
            torch.nn.BatchNorm2d(32),
            torch.nn.ReLU(),
            torch.nn.MaxPool2d(2),
            torch.nn.Conv2d(32, 64, 3, padding=1),
            torch.nn.BatchNorm2d(64),
            torch.nn.ReLU(),
            torch.nn.MaxPool2d(2),
            torch.nn.Flatten(),
            torch.nn.Linear(flat, num_classes),
        )
        if starts_uniform:
            torch.nn.init.zeros_(self[-1].weight)  # type: ignore[arg-type]
            torch.nn.init.zeros_(self[-1].bias)  # type: ignore[arg-type]
