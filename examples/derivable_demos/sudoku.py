"""`derivable demo sudoku`: is a 4x4 grid of handwritten digits a valid Sudoku? Only validity supervises.

Which class the network gives to which digit is not determined by validity (a valid grid stays valid
under any exchange of digits), so digit accuracy is reported under the best matching of classes to digits.
"""

from __future__ import annotations

import itertools
import math
import time
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np
import torch

from derivable.circuit.graph.circuit import Circuit
from derivable.nn.log_space import log1mexp
from derivable_demos.handwriting import Handwriting
from derivable_demos.network import DigitReader
from derivable_demos.stopwatch import Stopwatch
from derivable_demos.sudoku_grids import CELLS, DIGITS, SIZE, clauses, draw
from derivable_demos.training import EVALUATION_BATCH, Learned, Training, fit, pick_device


@dataclass(frozen=True)
class Settings(Training):
    epochs: int = 20
    batch_size: int = 16
    num_grids: int = 400
    num_test_grids: int = 400
    compiler: str = "sdd"


@dataclass(kw_only=True)
class LearnedSudoku(Learned):
    """Accuracies on grids of test images. `matching[class]` is the digit it stands for."""

    validity_accuracy: float
    matching: tuple[int, ...]
    test_grids: np.ndarray = field(repr=False)
    test_valid: np.ndarray = field(repr=False)
    probability_valid: np.ndarray = field(repr=False)


class ValidityLayer(torch.nn.Module):
    """log P(the grid is a valid Sudoku), in nats, from the cells' class probabilities; exact.

    The circuit has a model for each of the 288 solutions. A cell's four variables are one choice, so
    a positive literal weighs the class probability and a negative one 1 (log 0); the circuit's
    exactly-one constraints do the rest.
    """

    def __init__(self, circuit: Circuit):
        super().__init__()
        self.count = circuit.to_torch(semiring="log")

    def forward(self, cells: torch.Tensor) -> torch.Tensor:
        """cells [grid, 16, 4] log-probabilities -> [grid]"""
        weights = cells.flatten(-2)
        return self.count(weights, torch.zeros_like(weights))[..., 0]


def learn(data: Handwriting, settings: Settings, *, show: bool | None = None) -> LearnedSudoku:
    """Train a DigitReader from validity alone and test it on grids of images it has not seen."""
    from derivable import circuit as circuits

    device = pick_device(settings.device)
    began = time.perf_counter()
    circuit = circuits.compile(clauses(), compiler=cast(Any, settings.compiler))
    layer = ValidityLayer(circuit)
    layer(torch.full((2, CELLS, SIZE), -math.log(SIZE), requires_grad=True)).sum().backward()
    preparation_seconds = time.perf_counter() - began
    watch = Stopwatch(layer.to(device))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(settings.seed)
        grids, valid = draw(data.train_labels, settings.num_grids, settings.seed)
        images = torch.as_tensor(data.train_images)[:, None].to(device)
        index, target = torch.as_tensor(grids).to(device), torch.as_tensor(valid).to(device)
        network = DigitReader(*data.train_images.shape[1:], num_classes=SIZE).to(device)

        def batch_loss(batch: torch.Tensor) -> torch.Tensor:
            scores = network(images[index[batch].flatten()]).view(-1, CELLS, SIZE)
            log_valid = watch(cells=scores.log_softmax(-1))
            return -torch.where(target[batch], log_valid, log1mexp(log_valid)).mean()

        training_seconds, losses = fit(network, batch_loss, len(grids), settings, show=show, device=device)
    network.eval()

    test_grids, test_valid = draw(data.test_labels, settings.num_test_grids, settings.seed + 1)
    with torch.no_grad():
        test_images = torch.as_tensor(data.test_images)[:, None]
        scores = torch.cat([network(part.to(device)).log_softmax(-1) for part in test_images.split(EVALUATION_BATCH)])
        log_valid = watch.module(cells=scores[torch.as_tensor(test_grids).to(device)]).cpu().numpy()
    predictions = scores.argmax(-1).cpu().numpy()
    confusion = np.zeros((SIZE, SIZE), np.int64)
    for place, digit in enumerate(DIGITS):
        confusion[place] = np.bincount(predictions[data.test_labels == digit], minlength=SIZE)
    matching = best_matching(confusion)
    confusion = confusion[:, np.argsort(matching)]
    return LearnedSudoku(
        settings=settings,
        data=data.name,
        circuit=f"{circuit.num_nodes:,} nodes, {circuit.num_edges:,} edges, {circuit.num_levels} levels",
        preparation_seconds=preparation_seconds,
        training_seconds=training_seconds,
        symbolic_seconds=watch.seconds,
        validity_accuracy=float(((log_valid > math.log(0.5)) == test_valid).mean()),
        digit_accuracy=float(np.trace(confusion) / confusion.sum()),
        losses=losses,
        confusion=confusion,
        matching=tuple(DIGITS[place] for place in matching),
        test_grids=test_grids,
        test_valid=test_valid,
        probability_valid=np.exp(log_valid),
        predictions=predictions,
    )


def best_matching(confusion: np.ndarray) -> tuple[int, ...]:
    """The assignment of classes to digits that agrees with most images: matching[class] = row of `confusion`."""
    size = len(confusion)
    return max(itertools.permutations(range(size)), key=lambda rows: confusion[list(rows), range(size)].sum())
