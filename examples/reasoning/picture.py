"""The picture of the example: a problem with what was found in it, the loss, and how much was solved."""

from __future__ import annotations

import os

import numpy as np
import torch

from derivable.core.files import atomic_write
from derivable.core.lazy import optional_module

from .abduction import Reasoner
from .problems import ATTRIBUTES, NUM_ANSWERS, NUM_PANELS, RULES, Problems, draw

INK, RIGHT, WRONG, QUIET = "#1f2933", "#2f7d5b", "#c0392b", "#7b8794"


def draw_result(
    path: str | os.PathLike,
    reasoner: Reasoner,
    puzzles: Problems,
    losses: list[float],
    accuracy: dict[str, dict[str, float]],
    seed: int,
) -> None:
    """Write a PNG: the first problem, its answers with their probabilities, its rules; the loss; the accuracies."""
    pictures = draw(puzzles.panels[:1], seed)
    with torch.no_grad():
        scores, weights = reasoner(pictures)
    chance, chosen, right = scores[0].softmax(-1), int(scores[0].argmax()), int(puzzles.right[0])
    figure = optional_module("matplotlib.figure", "matplotlib", "demo").Figure(figsize=(13, 6), facecolor="white")
    optional_module("matplotlib.backends.backend_agg", "matplotlib", "demo").FigureCanvasAgg(figure)
    rules = [f"{name}: {RULES[int(weights[0, k].argmax())]}" for k, name in enumerate(ATTRIBUTES)]
    figure.suptitle("Raven-like problems on block codes", fontsize=15, fontweight="bold", color=INK, x=0.03, ha="left")
    figure.text(0.03, 0.9, "rules found in the first problem: " + ",  ".join(rules), fontsize=10, color=QUIET)
    left, middle, last = figure.add_gridspec(1, 3, width_ratios=[1, 1.25, 1], left=0.03, right=0.98, top=0.84)
    rows = left.subgridspec(3, 3, wspace=0.06, hspace=0.06)
    for panel in range(NUM_PANELS):
        _panel(figure.add_subplot(rows[panel // 3, panel % 3]), pictures[0, panel, 0].numpy(), QUIET)
    axes = figure.add_subplot(rows[2, 2])
    axes.text(0.5, 0.5, "?", ha="center", va="center", fontsize=30, color=QUIET)
    axes.set(xticks=[], yticks=[])
    axes.set_box_aspect(1)
    rows = middle.subgridspec(2, 4, wspace=0.08, hspace=0.05)
    for answer in range(NUM_ANSWERS):
        axes = figure.add_subplot(rows[answer // 4, answer % 4])
        colour = RIGHT if answer == right else WRONG if answer == chosen else QUIET
        _panel(axes, pictures[0, NUM_PANELS + answer, 0].numpy(), colour)
        axes.set_title(f"{chance[answer]:.1%}", fontsize=10, color=colour)
    charts = last.subgridspec(2, 1, hspace=0.45)
    axes = figure.add_subplot(charts[0])
    axes.plot(np.arange(1, len(losses) + 1), losses, color="#2c5f8a", linewidth=0.8)
    axes.set_title("loss of the reader (nats a panel)", fontsize=9, color=QUIET, loc="left")
    axes.set_ylim(bottom=0)
    axes = figure.add_subplot(charts[1])
    names = list(next(iter(accuracy.values())))
    for k, name in enumerate(names):
        heights = [results[name] for results in accuracy.values()]
        axes.bar(np.arange(len(heights)) + 0.27 * (k - 1), heights, 0.25, label=name)
    axes.set_xticks(range(len(accuracy)), list(accuracy), fontsize=7)
    axes.set_ylim(0, 1.25)
    axes.set_title("problems solved", fontsize=9, color=QUIET, loc="left")
    axes.legend(fontsize=8, loc="upper right", ncols=3)
    with atomic_write(path, "wb") as file:
        figure.savefig(file, format="png", dpi=110)


def _panel(axes, picture: np.ndarray, colour: str) -> None:
    axes.imshow(picture, cmap="gray_r", vmin=0, vmax=1)
    axes.set(xticks=[], yticks=[])
    for side in axes.spines.values():
        side.set_color(colour)
        side.set_linewidth(1 if colour == QUIET else 2.5)
