"""Digits of MNIST by a small network at the accelerator's precisions, quantised after training and with learned steps.

    python benchmarks/learned_steps.py DIR                # of the four files; three seeds, some minutes of one core
    python benchmarks/learned_steps.py DIR --images 60000 --epochs 8 --learn 4

Each network is trained, quantised after that, and trained on with layers that round (`LearnedSteps`); as a control it
is also trained on without. Scores are of the emulation, which is the hardware to the bit.
"""

from __future__ import annotations

import argparse
import copy
import statistics
import time
import warnings

import numpy as np
import torch
from torch import nn

from derivable.accelerator import CalibrationWarning, LearnedSteps, design
from derivable.accelerator.numbers.quantisation import Quantised, evaluate
from derivable.core.progress import progress
from derivable_demos.handwriting import mnist

ENDS = {"0": "int8", "9": "int8", "*": "int4"}
BATCH = 64


def network() -> nn.Sequential:
    """Pictures [batch, 1, 28, 28] -> logits [batch, 10]."""
    return nn.Sequential(
        nn.Conv2d(1, 8, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.Conv2d(8, 16, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.Conv2d(16, 16, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(16 * 4 * 4, 32),
        nn.ReLU(),
        nn.Linear(32, 10),
    )


def train(model: nn.Module, pictures: torch.Tensor, digits: torch.Tensor, epochs: int, seed: int, rate: float) -> None:
    torch.manual_seed(seed)
    steps = epochs * (len(pictures) // BATCH)
    optimiser = torch.optim.Adam(model.parameters())
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, max_lr=rate, total_steps=steps)
    with progress("training", steps) as advance:
        for _ in range(epochs):
            for rows in torch.randperm(len(pictures))[: len(pictures) // BATCH * BATCH].split(BATCH):
                loss = nn.functional.cross_entropy(model(pictures[rows]), digits[rows])
                optimiser.zero_grad()
                loss.backward()
                optimiser.step()
                schedule.step()
                advance()


def quantised(model: nn.Module, samples: torch.Tensor, **options: object) -> Quantised:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CalibrationWarning)
        made = design(model, samples[:BATCH], pes=256, calibration=[samples], **options).quantised  # type: ignore[arg-type]
    assert made is not None
    return made


def right(of: nn.Module | Quantised, pictures: torch.Tensor, digits: torch.Tensor) -> float:
    """The share of digits that are read."""
    whole = len(pictures) // BATCH * BATCH
    if isinstance(of, Quantised):
        scores = [evaluate(of, [part.numpy()])[0] for part in pictures[:whole].split(BATCH)]
    else:
        with torch.no_grad():
            scores = [of(part).numpy() for part in pictures[:whole].split(BATCH)]
    return float((np.concatenate(scores).argmax(-1) == digits[:whole].numpy()).mean())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", help="of the four files of MNIST")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--images", type=int, default=20_000, help="to learn from")
    parser.add_argument("--tests", type=int, default=10_000, help="images to read")
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--learn", type=int, default=2, help="epochs with steps")
    options = parser.parse_args()

    began = time.process_time()
    data = mnist(options.directory, 0)
    pictures, others = (torch.from_numpy(images)[:, None] for images in (data.train_images, data.test_images))
    digits, expected = torch.from_numpy(data.train_labels), torch.from_numpy(data.test_labels)
    pictures, digits = pictures[: options.images], digits[: options.images]
    others, expected = others[: options.tests], expected[: options.tests]
    shares: dict[str, list[float]] = {}
    for seed in range(options.seeds):
        torch.manual_seed(seed)
        model = network()
        train(model, pictures, digits, options.epochs, seed, 4e-3)
        samples = pictures[: 8 * BATCH]
        variants: dict[str, nn.Module | Quantised] = {"FP32": model}
        variants |= {name.upper(): quantised(model, samples, precision=name) for name in ("int8", "int4")}
        variants["INT4, ends INT8"] = quantised(model, samples, precision=ENDS)
        for name, precision in (("INT4, learned", "int4"), ("INT4, ends INT8, learned", ENDS)):
            steps = LearnedSteps(copy.deepcopy(model), [samples], precision)
            train(steps, pictures, digits, options.learn, seed, 1e-3)
            variants[name] = quantised(steps.model, samples, precision=steps.precision, scales=steps.scales())
        variants["FP32, trained on"] = copy.deepcopy(model)
        train(variants["FP32, trained on"], pictures, digits, options.learn, seed, 1e-3)  # type: ignore[arg-type]
        for name, of in variants.items():
            shares.setdefault(name, []).append(right(of, others, expected))
    print(f"{options.seeds} seeds, {options.images} images, {time.process_time() - began:.0f} s of processor time")
    print(f"| {' | '.join(shares)} |\n|{'---|' * len(shares)}")
    cells = (
        f"{100 * statistics.mean(of):.2f} ± {100 * (statistics.stdev(of) if len(of) > 1 else 0):.2f}"
        for of in shares.values()
    )
    print(f"| {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
