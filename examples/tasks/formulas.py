"""Handwritten formulas (HWF): a network learns to read symbols from nothing but the values of formulas.

    python examples/tasks/formulas.py --data FOLDER [--full | --epochs 2]

A convolutional network gives each image of a formula a distribution over 13 symbols, of which the `kept` most probable
are facts. The program parses what they may be, and gives each value the probability of its best reading (top-1 proofs).
The facts differ from formula to formula, and so do their number and the results: each batch is one run of
`dv.varying()` inputs. Formulas are those of the published task (lengths 1 to 7, `hwf/`); its images are not here.
Digits are MNIST's and operators those of another collection. Without data: scikit-learn's digits, operators drawn by a
pen, and random formulas. The baseline is a network that reads the same features with a GRU and picks one of the values
of the training set. Formulas of length 13, the paper's size for inference, are made of held-out images; of each image,
symbols that are less probable than `least` are left out there.

Reached in minutes on one core: 97.0% of held-out formulas (3.2% by a network alone) and 93.8% of those of length 13;
98.0% with `--full`. The symbolic part has 14% of the time of training and 6% of that of reading length 13.
"""

from __future__ import annotations

import gzip
import io
import json
import re
import zipfile
from collections.abc import Iterator
from pathlib import Path

from experiment import Clock, draw_losses, figure, options, report, report_time, save, train

# isort: split

import numpy as np
import torch
from torch import Tensor, nn

import derivable as dv
from derivable_demos.handwriting import mnist, scikit_digits

PROGRAM = """
    type symbol(place: i32, s: i32), length(n: i32)
    const PLUS = 9, MINUS = 10, TIMES = 11, OVER = 12       // the symbols before are the digits 1 to 9

    // term(b, e, v): places b to e - 1 are a product or quotient with the value v.
    rel factor(b, (s + 1) as f64) = symbol(b, s), s < 9
    rel term(b, b + 1, v) = factor(b, v)
    rel term(b, m + 2, x * y) = term(b, m, x), symbol(m, TIMES), factor(m + 1, y)
    rel term(b, m + 2, x / y) = term(b, m, x), symbol(m, OVER), factor(m + 1, y)
    // total(e, v): places 0 to e - 1 are a sum.
    rel total(e, v) = term(0, e, v)
    rel total(e, x + y) = total(m, x), symbol(m, PLUS), term(m + 1, e, y)
    rel total(e, x - y) = total(m, x), symbol(m, MINUS), term(m + 1, e, y)
    rel result(v) = length(n), total(n, v)
"""
SYMBOLS = "123456789+-*/"
OPERATORS = {"+": "addition_plus", "-": "subtraction_minus", "*": "multiplication_cross", "/": "division_slash"}
SIDE = 28
FORMULAS, OPERATOR_IMAGES = "hwf/expr_{}.json.gz", "hwf/mdas_symbols_v1.zip"
FILES = [FORMULAS.format("train"), FORMULAS.format("test"), OPERATOR_IMAGES, "mnist"]
CLOSE = 1e-3  # how far a value may be from the one wanted
PUBLISHED = "about 98.5% (NGS, Li et al. 2020) and about 97.9% (Scallop, Li et al. 2023); Lobster's paper has none"
REAL = "the formulas are the published ones, the images are not: MNIST's digits, and operators of another collection"
DRAWN = "formulas are random, digits are scikit-learn's of 8x8 pixels, and operators are drawn by a pen"
Glyphs = dict[str, Tensor]  # symbol -> images [image, 28, 28]


def real_glyphs(data: Path) -> tuple[Glyphs, Glyphs]:
    """(to learn from, held out): MNIST's digits and the operators of the archive; ink is 1."""
    from matplotlib.image import imread

    digits = mnist(data / "mnist", 0)
    halves: tuple[Glyphs, Glyphs] = {}, {}
    with zipfile.ZipFile(data / OPERATOR_IMAGES) as file:
        for half, folder in zip(halves, ("train", "test")):
            for symbol, name in OPERATORS.items():
                start = f"symbols_partitioned/{folder}/{name}/"
                names = [each for each in file.namelist() if each.startswith(start) and each.endswith(".png")]
                half[symbol] = torch.stack([glyph(imread(io.BytesIO(file.read(each)))) for each in names])
    for half, pictures, labels in (
        (halves[0], digits.train_images, digits.train_labels),
        (halves[1], digits.test_images, digits.test_labels),
    ):
        half |= {str(digit): torch.from_numpy(pictures[labels == digit]) for digit in range(1, 10)}
    return halves


def glyph(picture: np.ndarray) -> Tensor:
    """A picture of any size as [28, 28], ink 1 on 0."""
    grey = torch.from_numpy(np.asarray(picture, np.float32))
    grey = grey[..., :3].mean(-1) if grey.dim() == 3 else grey
    grey = nn.functional.interpolate(grey[None, None], (SIDE, SIDE), mode="bilinear", antialias=True)[0, 0]
    grey = (grey - grey.min()) / (grey.max() - grey.min() + 1e-6)
    return 1 - grey if grey[0].mean() > 0.5 else grey


def drawn_glyphs(seed: int, count: int = 200) -> tuple[Glyphs, Glyphs]:
    """scikit-learn's digits, and operators of two or fewer strokes."""
    digits, rng = scikit_digits(seed), np.random.default_rng(seed)
    strokes = {"+": ((0, 90),), "-": ((0,),), "*": ((45, 135),), "/": ((60,),)}
    y, x = np.indices((SIDE, SIDE)) - SIDE / 2

    def operator(symbol: str) -> Tensor:
        ink = np.zeros((SIDE, SIDE))
        centre = rng.normal(0, 1.5, 2)
        for angle in strokes[symbol][0]:
            turn = np.deg2rad(angle + rng.normal(0, 7))
            along = (x - centre[0]) * np.cos(turn) - (y - centre[1]) * np.sin(turn)
            across = (x - centre[0]) * np.sin(turn) + (y - centre[1]) * np.cos(turn)
            ink = np.maximum(ink, (abs(along) < rng.uniform(7, 10)) * np.exp(-((across / 1.3) ** 2)))
        return torch.from_numpy(ink.astype(np.float32))

    halves: tuple[Glyphs, Glyphs] = {}, {}
    for half, pictures, labels in (
        (halves[0], digits.train_images, digits.train_labels),
        (halves[1], digits.test_images, digits.test_labels),
    ):
        for digit in range(1, 10):
            half[str(digit)] = torch.stack([glyph(each) for each in pictures[labels == digit]])
        half |= {symbol: torch.stack([operator(symbol) for _ in range(count)]) for symbol in OPERATORS}
    return halves


def value_of(text: str) -> float:
    """The value of a formula, as Python has it: all its operators are the same there."""
    if not re.fullmatch("[1-9]([-+*/][1-9])*", text):
        raise ValueError(f"{text!r} is no formula of digits and operators in turn")
    return float(eval(text, {"__builtins__": {}}))


def random_formulas(count: int, length: int, rng: np.random.Generator) -> list[str]:
    rows = np.stack([rng.choice(list("+-*/" if k % 2 else "123456789"), count) for k in range(length)], 1)
    return ["".join(row) for row in rows]


def formulas(data: Path | None, half: str, count: int, rng: np.random.Generator) -> list[str]:
    if data is None:
        sizes = rng.choice([1, 3, 5, 7], count)
        return [random_formulas(1, int(size), rng)[0] for size in sizes]
    with gzip.open(data / FORMULAS.format(half), "rt") as file:
        texts = [row["expr"] for row in json.load(file)]
    return [texts[k] for k in rng.permutation(len(texts))[:count]]


def written(texts: list[str], glyphs: Glyphs, rng: np.random.Generator, shift: int = 0) -> Tensor:
    """Images [symbol, 1, 28, 28] of all symbols of all formulas, moved by at most `shift` pixels down and across."""
    images = torch.stack([glyphs[s][rng.integers(len(glyphs[s]))] for text in texts for s in text])
    if shift:
        rows, columns = torch.from_numpy(rng.integers(0, 2 * shift + 1, (2, len(images), 1))) + torch.arange(SIDE)
        images = nn.functional.pad(images, (shift,) * 4)
        images = images[torch.arange(len(images))[:, None, None], rows[:, :, None], columns[:, None]]
    return images[:, None]


class Reader(nn.Module):
    """images [symbol, 1, 28, 28] -> probabilities [symbol, 13]."""

    def __init__(self):
        super().__init__()
        layers: list[nn.Module] = [nn.Conv2d(1, 32, 5, stride=2, padding=2), nn.BatchNorm2d(32), nn.ReLU()]
        for width in (32, 64):
            layers += [nn.Conv2d(width, 64, 3, padding=1), nn.BatchNorm2d(64), nn.ReLU()]
            layers += [nn.MaxPool2d(2, ceil_mode=True)]
        self.features = nn.Sequential(*layers, nn.Flatten(), nn.Linear(64 * 16, 128), nn.ReLU())
        self.top = nn.Linear(128, len(SYMBOLS))
        nn.init.zeros_(self.top.weight)  # begin undecided
        nn.init.zeros_(self.top.bias)

    def forward(self, images: Tensor) -> Tensor:
        return self.top(self.features(images)).softmax(-1)


class Calculator:
    """Reads formulas through the program; a batch is one run.

    kept   the symbols of an image that are facts, the most probable ones
    least  the probability from which on a symbol is a fact
    """

    def __init__(self, kept: int, least: float = 0.0):
        symbol = dv.varying(keep=kept, above=least, per_group=True)
        self.layer = dv.nn.Logic(PROGRAM, {"symbol": symbol}, {"result": None}, provenance="topkproofs", k=1)

    def __call__(self, p: Tensor, lengths: list[int]) -> list[tuple[Tensor, Tensor]]:
        """For each formula the values that it may have, and their probabilities: p [symbol, 13]."""
        places = np.concatenate([np.arange(length) for length in lengths]).repeat(len(SYMBOLS))
        facts = dv.nn.Ragged(
            np.stack([places, np.tile(np.arange(len(SYMBOLS)), len(p))], 1),
            p.flatten(),
            np.cumsum([0, *lengths]) * len(SYMBOLS),
            groups=places,
        )
        found = self.layer(symbol=facts, certain={"length": [[(length,)] for length in lengths]})
        return [(torch.tensor([row[0] for row in rows], dtype=torch.float64), q) for rows, q in found]


def loss_of(found: list[tuple[Tensor, Tensor]], wanted: list[float]) -> Tensor:
    """The mean negative log probability of the values wanted among those found, in nats."""
    losses = []
    for (values, q), value in zip(found, wanted):
        right = (values - value).abs() < CLOSE
        if right.any():
            losses.append(q.sum().clamp(min=1e-30).log() - q[right].sum().clamp(min=1e-30).log())
    return torch.stack(losses).mean() if losses else torch.cat([q for _, q in found]).sum() * 0


def right(found: list[tuple[Tensor, Tensor]], wanted: list[float]) -> np.ndarray:
    """Whether the most probable value of each formula is the one wanted [formula]."""
    best = np.array([float(values[q.argmax()]) if len(q) else np.inf for values, q in found])
    return abs(best - np.array(wanted)) < CLOSE


class Alone(nn.Module):
    """Formulas read by a GRU: images [symbol, 1, 28, 28] -> scores [formula, value]."""

    def __init__(self, values: int):
        super().__init__()
        self.features, self.memory = Reader().features, nn.GRU(128, 128, batch_first=True)
        self.top, self.lengths = nn.Linear(128, values), [1]

    def forward(self, images: Tensor) -> Tensor:
        rows = self.features(images).split(self.lengths)
        _, last = self.memory(nn.utils.rnn.pack_sequence(list(rows), enforce_sorted=False))
        return self.top(last[0])


def main(arguments: list[str] | None = None) -> None:
    sizes = {"train": 9000, "test": 2000, "short": 3, "epochs": 2, "kept": 3, "rate": 2e-3, "least": 1e-3, "long": 160}
    wanted = options(__doc__ or "", arguments, "formulas", {"epochs": 6}, FILES, ["sklearn"], **sizes)
    torch.manual_seed(wanted.seed)
    rng = np.random.default_rng(wanted.seed)
    data = wanted.data
    glyphs, unseen = drawn_glyphs(wanted.seed) if data is None else real_glyphs(data)
    texts = formulas(data, "train", wanted.train, rng)
    short = [text for text in texts if len(text) <= 3]
    network = Reader()

    def drawn(some: list[str], epochs: int, size: int = 32) -> Iterator[tuple[Tensor, list[str]]]:
        for _ in range(epochs):
            order = rng.permutation(len(some))
            for rows in np.split(order, range(size, len(order), size)):
                part = [some[k] for k in rows]
                yield written(part, glyphs, rng, shift=1), part

    def lessons() -> Iterator[tuple[Tensor, tuple[Calculator, list[str]]]]:
        """First short formulas, where each symbol may be any; then the likely ones of all."""
        for kept, some, epochs in ((len(SYMBOLS), short, wanted.short), (wanted.kept, texts, wanted.epochs)):
            calculate = Calculator(kept)
            for images, part in drawn(some, epochs):
                yield images, (calculate, part)

    def symbolic_loss(p: Tensor, lesson: tuple[Calculator, list[str]]) -> Tensor:
        calculate, part = lesson
        return loss_of(calculate(p, [len(text) for text in part]), [value_of(text) for text in part])

    steps = wanted.short * -(-len(short) // 32) + wanted.epochs * -(-len(texts) // 32)
    training = train(network, symbolic_loss, lessons(), wanted.rate, steps=steps)
    report_time(f"{steps:,} batches of 32 formulas learnt", training)

    known = sorted({round(value_of(text), 3) for text in texts})
    place = {value: k for k, value in enumerate(known)}
    alone = Alone(len(known))

    def own() -> Iterator[tuple[Tensor, Tensor]]:
        for images, part in drawn(texts, wanted.epochs):
            alone.lengths = [len(text) for text in part]
            yield images, torch.tensor([place[round(value_of(text), 3)] for text in part])

    train(alone, nn.functional.cross_entropy, own(), wanted.rate)

    calculate = Calculator(wanted.kept, wanted.least)
    test = formulas(data, "test", wanted.test, rng)
    images, values = written(test, unseen, rng), [value_of(text) for text in test]
    alone.lengths = [len(text) for text in test]
    with torch.no_grad():
        theirs = np.array(known)[alone(images).argmax(-1).numpy()]
        found = calculate(network(images), alone.lengths)
    ours = right(found, values)
    report(ours.mean(), float(np.mean(abs(theirs - np.array(values)) < CLOSE)), PUBLISHED, REAL if data else DRAWN)
    shares = {length: ours[np.equal(alone.lengths, length)].mean() for length in sorted(set(alone.lengths))}
    print("by length: " + ", ".join(f"{length}: {share:.1%}" for length, share in shares.items()))

    inference = Clock()
    longer = random_formulas(wanted.long, 13, rng)
    images = written(longer, unseen, rng)
    with inference.all(), torch.no_grad():
        p = network(images)
        with inference.symbolic():
            found = calculate(p, [13] * len(longer))
    share = right(found, [value_of(text) for text in longer]).mean()
    print(f"formulas of length 13: {share:.1%} of {len(longer)} right")
    report_time(f"{len(longer)} formulas of length 13", inference)

    made, (losses, axes) = figure(2)
    draw_losses(losses, training.losses)
    rows = images[: 13 * 5, 0].unflatten(0, (5, 13)).permute(0, 2, 1, 3).reshape(5 * SIDE, 13 * SIDE)
    axes.imshow(rows, cmap="gray_r")
    axes.set_axis_off()
    best = p[: 13 * 5].argmax(-1).tolist()
    for row in range(5):
        text = "".join(SYMBOLS[k] for k in best[13 * row : 13 * row + 13])
        axes.text(13 * SIDE, (row + 0.5) * SIDE, f" {text}", fontsize=7, va="center")
    save(made, wanted.picture)


if __name__ == "__main__":
    main()
