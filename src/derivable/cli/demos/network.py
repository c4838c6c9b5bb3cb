"""The small convolutional network of the demos."""

from __future__ import annotations

import torch


class DigitReader(torch.nn.Sequential):
    """Two convolutions and a linear layer: images [image, 1, height, width] -> scores [image, class].

    The scores are logits; nothing in the network knows what a digit is beyond the number of classes.
    """

    def __init__(self, height: int, width: int, num_classes: int):
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
