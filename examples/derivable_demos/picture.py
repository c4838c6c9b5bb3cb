"""The pictures the demos write: what was read, what it adds up to, and who is taken for whom."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import Any

import numpy as np

from derivable.core.files import atomic_write
from derivable.core.lazy import optional_module

INK, PAPER, RIGHT, WRONG, QUIET = "#1f2933", "#ffffff", "#2f7d5b", "#c0392b", "#7b8794"
NUM_PAIRS = 16


def digits_picture(path: str | os.PathLike, images: np.ndarray, labels: np.ndarray, learned: Any) -> None:
    """Write a PNG: test pairs with the predicted sums, the loss, and the confusion matrix of the test digits.

    images [image, height, width], labels [image]: the test half
    """
    with _page(
        path,
        learned,
        f"Reading digits from sums alone: {100 * learned.digit_accuracy:.1f} % of unseen {learned.data} read right",
        f"{learned.num_train_pairs:,} pairs of {learned.settings.num_digits}-digit numbers, only their sums known",
        "the logic",
        f"sums right on test: {100 * learned.sum_accuracy:.1f} %",
        [str(digit) for digit in range(10)],
    ) as (figure, place, _):
        _pairs(figure, place, images, labels, learned)


def sudoku_picture(path: str | os.PathLike, images: np.ndarray, labels: np.ndarray, learned: Any) -> None:
    """Write a PNG: test grids with P(valid), the loss, and the confusion matrix of the four digits."""
    with _page(
        path,
        learned,
        f"Valid Sudoku or not: {100 * learned.validity_accuracy:.1f} % of unseen grids judged right",
        f"{learned.settings.num_grids} grids of {learned.data}, only their validity known",
        "the circuit",
        f"digits told apart on test: {100 * learned.digit_accuracy:.1f} %",
        ["1", "2", "3", "4"],
    ) as (figure, place, confusion):
        grid = place.subgridspec(2, 4, wspace=0.12, hspace=0.3)
        for k, cells in enumerate(learned.test_grids[:8]):
            axes = figure.add_subplot(grid[k // 4, k % 4])
            _sudoku(axes, images[cells], learned.test_valid[k], learned.probability_valid[k])
        confusion.set_xlabel("read as (classes matched to digits afterwards)", fontsize=9, color=QUIET, labelpad=8)


@contextlib.contextmanager
def _page(
    path: str | os.PathLike, learned: Any, title: str, task: str, symbolic: str, result: str, names: list[str]
) -> Iterator[tuple[Any, Any, Any]]:
    """(the figure, the place for what is special to a demo, the axes of the confusion matrix); written afterwards."""
    figure = optional_module("matplotlib.figure", "matplotlib", "demo").Figure(figsize=(13, 7.2), facecolor=PAPER)
    optional_module("matplotlib.backends.backend_agg", "matplotlib", "demo").FigureCanvasAgg(figure)
    figure.suptitle(title, fontsize=15, fontweight="bold", color=INK, x=0.03, ha="left", y=0.965)
    times = f"{learned.training_seconds:.1f} s training, {learned.symbolic_seconds:.2f} s of it in {symbolic}"
    figure.text(0.03, 0.905, f"{task};  {times};  {result}", fontsize=10, color=QUIET)
    left, right = figure.add_gridspec(
        1, 2, width_ratios=[1.22, 1], left=0.03, right=0.975, top=0.865, bottom=0.085, wspace=0.1
    )
    rows = left.subgridspec(2, 1, height_ratios=[3.4, 1], hspace=0.28)
    _loss(figure.add_subplot(rows[1]), learned.losses, "loss per step (nats)")
    confusion = figure.add_subplot(right)
    _confusion(confusion, learned.confusion, names)
    yield figure, rows[0], confusion
    with atomic_write(path, "wb") as file:
        figure.savefig(file, format="png", dpi=130)


def _pairs(figure: Any, place: Any, images: np.ndarray, labels: np.ndarray, learned: Any) -> None:
    """A card a pair: its images, what they were read as, and the sum."""
    num_digits = learned.settings.num_digits
    shown = _some_pairs(learned, labels)
    columns = 4 if num_digits == 1 else 3 if num_digits == 2 else 2
    cards = place.subgridspec(-(-len(shown) // columns), columns, wspace=0.12, hspace=0.38)
    for number, pair in enumerate(shown):
        axes = figure.add_subplot(cards[number // columns, number % columns])
        canvas, centres = _strip(images[pair], num_digits)
        axes.imshow(canvas, cmap="gray_r", vmin=0, vmax=1, interpolation="nearest")
        axes.set_axis_off()
        axes.text(centres[-1], canvas.shape[0] / 2 - 0.5, "+", ha="center", va="center", fontsize=15, color=INK)
        read, truth = learned.predictions[pair], labels[pair]
        numbers = [_number(part) for part in read.reshape(2, -1)]
        true_sum = sum(_number(part) for part in truth.reshape(2, -1))
        right = bool((read == truth).all())
        text = f"{numbers[0]} + {numbers[1]} = {sum(numbers)}"
        if sum(numbers) != true_sum:
            text += f"  (is {true_sum})"
        axes.set_title(text, fontsize=11, color=RIGHT if right else WRONG, pad=4, fontweight="bold")


def _some_pairs(learned: Any, labels: np.ndarray) -> np.ndarray:
    """The first pairs, with up to two misread ones in the last places, if there are any."""
    limit = {1: NUM_PAIRS, 2: 9}.get(learned.settings.num_digits, 6)
    pairs = learned.test_pairs[:limit].copy()
    wrong = (learned.predictions[learned.test_pairs] != labels[learned.test_pairs]).any(axis=1)
    already = int(wrong[:limit].sum())
    extra = learned.test_pairs[limit:][wrong[limit:]][: max(0, 2 - already)]
    if len(extra):
        pairs[len(pairs) - len(extra) :] = extra
    return pairs


def _strip(images: np.ndarray, num_digits: int) -> tuple[np.ndarray, list[float]]:
    """The images of a pair side by side with a gap in the middle; the last of the centres is that of the gap."""
    _, height, width = images.shape
    gap = np.zeros((height, width), images.dtype)
    first, second = images[:num_digits], images[num_digits:]
    return np.hstack([*first, gap, *second]), [(num_digits + 0.5) * width - 0.5]


def _number(digits: np.ndarray) -> int:
    return int("".join(map(str, digits)))


def _sudoku(axes: Any, cells: np.ndarray, valid: bool, probability: float) -> None:
    cells = np.pad(cells, ((0, 0), (1, 1), (1, 1)))
    _, height, width = cells.shape
    canvas = cells.reshape(4, 4, height, width).swapaxes(1, 2).reshape(4 * height, 4 * width)
    axes.imshow(canvas, cmap="gray_r", vmin=0, vmax=1, interpolation="nearest")
    for line in range(5):
        weight = 1.8 if line % 2 == 0 else 0.6
        axes.axhline(line * height - 0.5, color=INK, linewidth=weight)
        axes.axvline(line * width - 0.5, color=INK, linewidth=weight)
    axes.set_axis_off()
    right = (probability > 0.5) == valid
    axes.set_title(
        f"{'valid' if valid else 'invalid'}, P = {probability:.2f}", fontsize=10, color=RIGHT if right else WRONG, pad=5
    )


def _loss(axes: Any, losses: list[float], label: str) -> None:
    steps = np.arange(1, len(losses) + 1)
    axes.plot(steps, losses, color="#9fb3c8", linewidth=0.7)
    window = max(1, len(losses) // 40)
    if len(losses) >= 2 * window:
        smooth = np.convolve(losses, np.ones(window) / window, mode="valid")
        axes.plot(steps[window - 1 :], smooth, color="#2c5f8a", linewidth=1.8)
    axes.set_xlim(1, max(2, len(losses)))
    axes.set_ylim(bottom=0)
    axes.set_title(label, fontsize=9, color=QUIET, loc="left", pad=4)
    axes.tick_params(labelsize=8, colors=QUIET, length=2)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        axes.spines[side].set_color("#cbd2d9")


def _confusion(axes: Any, confusion: np.ndarray, names: list[str]) -> None:
    """Rows are the true digits; colour is the share of the row, the number a count of images."""
    share = confusion / np.maximum(confusion.sum(axis=1, keepdims=True), 1)
    axes.imshow(np.sqrt(share), cmap="Blues", vmin=0, vmax=1)
    for row in range(len(confusion)):
        for column in range(len(confusion)):
            count = int(confusion[row, column])
            if count:
                colour = PAPER if share[row, column] > 0.4 else WRONG if row != column else INK
                axes.text(column, row, f"{count}", ha="center", va="center", fontsize=10, color=colour)
    axes.set_xticks(range(len(names)), names)
    axes.set_yticks(range(len(names)), names)
    axes.set_xticks(np.arange(len(names) + 1) - 0.5, minor=True)
    axes.set_yticks(np.arange(len(names) + 1) - 0.5, minor=True)
    axes.grid(which="minor", color=PAPER, linewidth=1.5)
    axes.tick_params(which="both", length=0, labelsize=10, colors=INK)
    axes.set_xlabel("read as", fontsize=9, color=QUIET, labelpad=8)
    axes.set_ylabel("true digit", fontsize=9, color=QUIET, labelpad=8)
    for side in axes.spines.values():
        side.set_visible(False)
