"""4x4 Sudoku: the constraint as a formula, the 288 solutions, and grids of digit images, half of them valid."""

from __future__ import annotations

import itertools
from functools import cache

import numpy as np

from derivable.core.diagnostics import DomainError

SIZE = 4
CELLS = SIZE * SIZE
DIGITS = (1, 2, 3, 4)


def units() -> list[list[int]]:
    """The rows, columns and blocks: 12 lists of 4 cells, cells numbered row by row from 0."""
    rows = [[SIZE * row + column for column in range(SIZE)] for row in range(SIZE)]
    columns = [list(column) for column in zip(*rows)]
    blocks = [
        [SIZE * (top + row) + left + column for row in range(2) for column in range(2)]
        for top in (0, 2)
        for left in (0, 2)
    ]
    return rows + columns + blocks


def variable(cell: int, value: int) -> int:
    """The Boolean variable "this cell shows the value-th digit", 1 to 64; value counts from 0."""
    return SIZE * cell + value + 1


def clauses() -> list[list[int]]:
    """A CNF over 64 variables: each cell has exactly one value, no unit has a value twice."""
    rows: list[list[int]] = []
    for cell in range(CELLS):
        choices = [variable(cell, value) for value in range(SIZE)]
        rows.append(choices)
        rows += [[-a, -b] for a, b in itertools.combinations(choices, 2)]
    clashes = {
        (-variable(a, value), -variable(b, value))
        for unit in units()
        for a, b in itertools.combinations(unit, 2)
        for value in range(SIZE)
    }
    return rows + [list(pair) for pair in sorted(clashes, reverse=True)]


def is_valid(grids: np.ndarray) -> np.ndarray:
    """Whether grids [..., 16] of values 0..3 have every value once in each unit: [...] bool."""
    right = [(np.sort(grids[..., unit], axis=-1) == np.arange(SIZE)).all(axis=-1) for unit in units()]
    return np.all(np.stack(right), axis=0)  # type: ignore[return-value]


@cache
def solutions() -> np.ndarray:
    """All valid grids: [288, 16] int64, values 0 to 3."""
    lines = list(itertools.permutations(range(SIZE)))
    grids = np.array(list(itertools.product(lines, repeat=SIZE)), np.int64).reshape(-1, CELLS)
    return grids[is_valid(grids)]


def draw(labels: np.ndarray, num_grids: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Grids of images, alternately valid and not.

    A valid grid is a solution drawn at random. An invalid one is a solution spoilt until it breaks a
    rule, by either overwriting a cell with a random value or exchanging two cells, one or more times
    (the two corruptions of the visual Sudoku suite of Augustine et al. 2022). Each cell shows a random
    image of its digit; one image may occur in several grids.

    labels   [image] int64; images of other digits than 1 to 4 are not used
    returns  which images: [grid, 16] int64; and whether valid: [grid] bool
    """
    generator = np.random.default_rng(seed)
    images_of = [np.flatnonzero(labels == digit) for digit in DIGITS]
    if min(map(len, images_of)) == 0:
        raise DomainError("the data has no image of one of the digits 1 to 4", hint="use more images")
    cells = np.empty((num_grids, CELLS), np.int64)
    valid = np.arange(num_grids) % 2 == 0
    for grid in range(num_grids):
        values = solutions()[generator.integers(len(solutions()))].copy()
        while not valid[grid] and is_valid(values):
            if generator.random() < 0.5:
                values[generator.integers(CELLS)] = generator.integers(SIZE)
            else:
                one, other = generator.choice(CELLS, 2, replace=False)
                values[[one, other]] = values[[other, one]]
        cells[grid] = [generator.choice(images_of[value]) for value in values]
    return cells, valid
