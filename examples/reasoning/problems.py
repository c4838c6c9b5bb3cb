"""Raven-like problems: three rows of three panels, the last one missing, and eight answers to choose from.

A panel shows one object, with a type, a size, a colour and a position. Each attribute follows a rule of its own along
the rows. The generator is written from the descriptions of RAVEN (Zhang et al., 2019) and I-RAVEN (Hu et al., 2021).
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

ATTRIBUTES = {"type": 5, "size": 6, "colour": 10, "position": 9}
STEPS = (-2, -1, 1, 2)
RULES = ("constant", *(f"progression {step:+}" for step in STEPS), "plus", "minus", "three left", "three right")
NUM_PANELS, NUM_ANSWERS = 8, 8
SIDE = 80

Row = tuple[int, int, int | None]


@dataclass(frozen=True)
class Problems:
    """values [problem, 9, attribute], the last of the nine the right answer's; answers [problem, 8, attribute];
    right [problem], the number of the right answer; rules [problem, attribute], numbers in RULES. All int64."""

    values: Tensor
    answers: Tensor
    right: Tensor
    rules: Tensor

    @property
    def panels(self) -> Tensor:
        """[problem, 16, attribute]: the eight panels that are given, then the eight answers."""
        return torch.cat((self.values[:, :NUM_PANELS], self.answers), 1)


def third(rule: str, rows: list[Row]) -> int | None:
    """The value that completes the last row, None if the rule does not fit what is there."""
    first, last = rows[0], rows[-1]
    if rule == "constant":
        fits = all(a == b and c in (a, None) for a, b, c in rows)
        value = last[0]
    elif rule.startswith("progression"):
        step = int(rule.split()[1])
        fits = all(b - a == step and (c is None or c - b == step) for a, b, c in rows)
        value = last[1] + step
    elif rule in ("plus", "minus"):
        sign = 1 if rule == "plus" else -1
        fits = all(c is None or c == a + sign * b for a, b, c in rows)
        value = last[0] + sign * last[1]
    else:
        fits = len(set(first)) == 3
        for (a, b, c), row in itertools.pairwise(rows):
            turned = (b, c, a) if rule == "three left" else (c, a, b)
            fits = fits and all(value in (other, None) for value, other in zip(row, turned))
        above = rows[-2]
        value = above[0] if rule == "three left" else above[1]
    return value if fits else None


def generate(count: int, seed: int, answers: str = "i-raven") -> Problems:
    """Problems whose answer is the only one: every rule that fits an attribute gives the same value.

    answers  "raven": each wrong answer differs from the right one in one attribute, so that the answer is the one that
             most others are like; "i-raven": three attributes are altered in all eight ways, and the answers alone
             tell nothing
    """
    if answers not in ("raven", "i-raven"):
        raise ValueError(f"answers is {answers!r}, expected 'raven' or 'i-raven'")
    random = np.random.default_rng(seed)
    sizes = list(ATTRIBUTES.values())
    values = np.empty((count, 9, len(sizes)), np.int64)
    rules = np.empty((count, len(sizes)), np.int64)
    chosen = np.empty((count, NUM_ANSWERS, len(sizes)), np.int64)
    right = random.integers(NUM_ANSWERS, size=count)
    for problem in range(count):
        for attribute, size in enumerate(sizes):
            rules[problem, attribute], values[problem, :, attribute] = _attribute(random, size)
        wrong = (
            _near(random, values[problem, 8], sizes)
            if answers == "raven"
            else _bisected(random, values[problem, 8], sizes)
        )
        chosen[problem] = np.insert(wrong, right[problem], values[problem, 8], axis=0)
    return Problems(*map(torch.from_numpy, (values, chosen, right, rules)))


def _attribute(random: np.random.Generator, size: int) -> tuple[int, np.ndarray]:
    """A rule, and nine values from 0 to size - 1 that only it explains, or others that agree with it."""
    while True:
        number = int(random.integers(len(RULES)))
        rule = RULES[number]
        rows = random.integers(size, size=(3, 3))
        if rule.startswith("three"):
            rows[0] = random.permutation(size)[:3]
            turn = -1 if rule == "three left" else 1
            rows[1], rows[2] = np.roll(rows[0], turn), np.roll(rows[0], 2 * turn)
        elif rule == "constant":
            rows[:] = rows[:, :1]
        elif rule.startswith("progression"):
            rows[:] = rows[:, :1] + int(rule.split()[1]) * np.arange(3)
        else:
            rows[:, 2] = rows[:, 0] + (1 if rule == "plus" else -1) * rows[:, 1]
        if rows.min() < 0 or rows.max() >= size:
            continue
        given = [tuple(rows[0].tolist()), tuple(rows[1].tolist()), (*rows[2, :2].tolist(), None)]
        found = {third(other, given) for other in RULES} - {None}
        if found == {int(rows[2, 2])}:
            return number, rows.reshape(-1)


def _other(random: np.random.Generator, value: int, size: int) -> int:
    return int((value + random.integers(1, size)) % size)


def _near(random: np.random.Generator, answer: np.ndarray, sizes: list[int]) -> np.ndarray:
    """Seven answers, all different, each with one attribute altered."""
    found: dict[tuple[int, ...], None] = {}
    while len(found) < NUM_ANSWERS - 1:
        altered = answer.copy()
        attribute = int(random.integers(len(sizes)))
        altered[attribute] = _other(random, int(answer[attribute]), sizes[attribute])
        found[tuple(altered.tolist())] = None
    return np.array(list(found))


def _bisected(random: np.random.Generator, answer: np.ndarray, sizes: list[int]) -> np.ndarray:
    """The seven other ways to alter three attributes or not."""
    attributes = random.permutation(len(sizes))[:3]
    altered = [_other(random, int(answer[attribute]), sizes[attribute]) for attribute in attributes]
    found = np.tile(answer, (NUM_ANSWERS, 1))
    for way in range(NUM_ANSWERS):
        for bit, (attribute, value) in enumerate(zip(attributes, altered)):
            if way >> bit & 1:
                found[way, attribute] = value
    return found[1:][random.permutation(NUM_ANSWERS - 1)]


def draw(values: Tensor, seed: int, noise: float = 0.05) -> Tensor:
    """Panels as pictures: values [*batch, attribute] -> [*batch, 1, 80, 80], ink from 0 to 1 plus noise.

    Polygons of 3 to 6 corners and circles, turned at random and moved a little, with grey fillings and dark outlines.
    noise  the standard deviation of what is added to each pixel
    """
    generator = torch.Generator().manual_seed(seed)
    shape, size, colour, position = values.reshape(-1, 4).T[..., None, None].float()
    count = len(shape)
    shift = 2 * torch.rand(2, count, 1, 1, generator=generator) - 1
    turn = 2 * math.pi * torch.rand(count, 1, 1, generator=generator)
    cell = SIDE / 3
    pixels = torch.arange(SIDE) + 0.5
    y = pixels[:, None] - (cell * (torch.div(position, 3, rounding_mode="floor") + 0.5) + shift[0])
    x = pixels - (cell * (position % 3 + 0.5) + shift[1])
    distance = (x**2 + y**2).sqrt()
    radius = 5.5 + 1.25 * size
    corners = shape + 3
    wedge = 2 * math.pi / corners
    angle = torch.remainder(torch.atan2(y, x) + turn, wedge) - wedge / 2
    edge = torch.where(shape == 4, radius, radius * torch.cos(wedge / 2) / torch.cos(angle))
    inside = (edge - distance + 0.5).clamp(0, 1)
    core = (edge - distance - 0.5).clamp(0, 1)
    ink = inside - core + core * (0.9 * colour / 9)
    ink = ink + noise * torch.randn(ink.shape, generator=generator)
    return ink.reshape(*values.shape[:-1], 1, SIDE, SIDE)
