"""Operators on all kinds of elements, with random elements on which they are associative."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from derivable.algebra.expr import equal, logaddexp, maximum, minimum, where
from derivable.algebra.monoid import Monoid
from derivable.algebra.monoids import NAMED, matrix_product, operator
from derivable.algebra.typed import TypedMonoid


def best(a, b):
    """Of two pairs (value, place) the one of the larger value, and the smaller place among equals."""
    first = (a[0] > b[0]) | (equal(a[0], b[0]) & (a[1] <= b[1]))
    return where(first, a[0], b[0]), where(first, a[1], b[1])


def thesis_argmax(a, b):
    """The same as the thesis writes it, with the comparisons the other way round."""
    first = (b[0] < a[0]) | ((b[0] == a[0]) & (a[1] <= b[1]))
    return where(first, a[0], b[0]), where(first, a[1], b[1])


def crossing(a, b):
    """The product of two dual numbers (derivative, value)."""
    return b[0] * a[1] + a[0] * b[1], a[1] * b[1]


def linear(f, g):
    return f[0] * g[0], f[1] * g[0] + g[1]


def linear_six(f, g):
    """x -> A x + b in the plane, first f, then g: (b0, b1, A00, A01, A10, A11)."""
    return (
        g[0] + g[2] * f[0] + g[3] * f[1],
        g[1] + g[4] * f[0] + g[5] * f[1],
        g[2] * f[2] + g[3] * f[4],
        g[2] * f[3] + g[3] * f[5],
        g[4] * f[2] + g[5] * f[4],
        g[4] * f[3] + g[5] * f[5],
    )


def permuted(a, b):
    """A product of linear functions, one of 2x2 matrices and a maximum, with their scalars in disorder."""
    slope, offset = linear((a[3], a[0]), (b[3], b[0]))
    return (
        offset,
        a[1] * b[1] + a[6] * b[2],
        a[2] * b[1] + a[4] * b[2],
        slope,
        a[2] * b[6] + a[4] * b[4],
        maximum(a[5], b[5]),
        a[1] * b[6] + a[6] * b[4],
    )


def semidirect(a, b):
    """Positive scales acting on sums in log space."""
    return a[0] + b[0], logaddexp(a[1], a[0] + b[1])


@dataclass(frozen=True)
class Case:
    """`draw` gives the scalars of elements, an array each; by index only what commutes makes sense."""

    name: str
    operator: Monoid
    dtypes: tuple[str, ...]
    draw: Callable[[np.random.Generator, tuple[int, ...]], list[np.ndarray]]
    commutes: bool = False

    def __repr__(self) -> str:
        return self.name

    @property
    def typed(self) -> TypedMonoid:
        return self.operator.typed(self.dtypes)

    def leaves(self, rows: int, columns: int, seed: int) -> tuple[np.ndarray, ...]:
        """Flat leaves [row, column, size]."""
        components = self.draw(np.random.default_rng(seed), (rows, columns))
        typed = self.typed
        return tuple(
            np.stack(components[start:stop], axis=-1).astype(dtype)
            for start, stop, dtype in zip(typed.starts, typed.starts[1:], typed.leaf_dtypes)
        )

    def arrays(self, rows: int, batch: tuple[int, ...] = (), seed: int = 0) -> list[np.ndarray]:
        """[leaf] arrays [row, *batch, *shape of the leaf] of float64, from the normal distribution."""
        rng = np.random.default_rng(seed)
        return [rng.normal(size=(rows, *batch, *shape)) for shape in self.operator.element.leaf_shapes]


def normal(count: int, scale: float = 1.0):
    return lambda rng, shape: [scale * rng.standard_normal(shape) for _ in range(count)]


def with_zeros(rng, shape):
    return [np.where(rng.random(shape) < 0.2, 0.0, rng.uniform(0.5, 1.5, shape))]


def some_or_none(rng, shape):
    """Numbers from zero on, and -1 where there is none: the only negative number that leaves others as they are."""
    return [np.where(rng.random(shape) < 0.4, -1.0, rng.uniform(0, 2, shape))]


def pairs(rng, shape):
    return [rng.integers(0, 5, shape).astype(float), rng.integers(0, 100, shape)]


def tied(rng, shape):
    return [rng.integers(0, 3, shape).astype(float)]


F = "float64"
CASES = [
    Case("add", NAMED["add"], (F,), normal(1), commutes=True),
    Case("mul with zeros", NAMED["mul"], (F,), with_zeros, commutes=True),
    Case("max with ties", NAMED["max"], (F,), tied, commutes=True),
    Case("logaddexp", NAMED["logaddexp"], (F,), normal(1, 3.0), commutes=True),
    Case(
        "saturated add",
        operator(lambda a, b: minimum(a + b, 2.6), neutral=0.0, name="saturated sum"),
        (F,),
        lambda rng, shape: [rng.uniform(0, 2.5, shape)],
        commutes=True,
    ),
    Case(
        "soft or",
        operator(lambda a, b: a + b - a * b, neutral=0.0),
        (F,),
        lambda rng, shape: [rng.uniform(0, 1, shape)],
        commutes=True,
    ),
    Case("last", operator(lambda a, b: where(b < 0, a, b), neutral=-1.0), (F,), some_or_none),
    Case("argmax", operator(best, neutral=(-np.inf, 2**62)), (F, "int64"), pairs, commutes=True),
    Case("crossing", operator(crossing, neutral=(0.0, 1.0)), (F, F), normal(2), commutes=True),
    Case(
        "complex products",
        operator(lambda a, b: (a[0] * b[0] - a[1] * b[1], a[0] * b[1] + a[1] * b[0]), neutral=(1.0, 0.0)),
        (F, F),
        normal(2),
        commutes=True,
    ),
    Case(
        "add, mul, max",
        operator(lambda a, b: (a[0] + b[0], a[1] * b[1], maximum(a[2], b[2])), neutral=(0.0, 1.0, -np.inf)),
        (F, F, F),
        normal(3),
        commutes=True,
    ),
    Case("linear functions", operator(linear, neutral=(1.0, 0.0)), (F, F), normal(2)),
    Case(
        "linear functions in the plane",
        operator(linear_six, neutral=(0.0, 0.0, 1.0, 0.0, 0.0, 1.0)),
        (F,) * 6,
        normal(6, 0.7),
    ),
    Case(
        "matrix and vector",
        operator(lambda f, g: (f[0] @ g[0], f[1] @ g[0] + g[1]), neutral=(np.eye(2), np.zeros(2))),
        (F, F),
        normal(6, 0.6),
    ),
    Case("permuted blocks", operator(permuted, neutral=(0.0, 1.0, 0.0, 1.0, 1.0, -np.inf, 0.0)), (F,) * 7, normal(7)),
    Case("semidirect in log space", operator(semidirect, neutral=(0.0, -np.inf)), (F, F), normal(2)),
    Case("2x2 products", matrix_product(2), (F,), normal(4)),
    Case("3x3 products", matrix_product(3), (F,), normal(9, 0.6)),
    Case("4x4 products", matrix_product(4), (F,), normal(16, 0.5)),
    Case("2x2 log products", matrix_product(2, "log"), (F,), normal(4)),
    Case("3x3 log products", matrix_product(3, "log"), (F,), normal(9)),
    Case("2x2 best paths", matrix_product(2, "max_plus"), (F,), normal(4)),
    Case("3x3 best paths", matrix_product(3, "max_plus"), (F,), normal(9)),
    Case(
        "two precisions",
        operator(lambda a, b: (a[0] + b[0] * a[1], a[1] * b[1]), neutral=(0.0, 1.0)),
        (F, "float32"),
        normal(2),
    ),
]
BY_NAME = {case.name: case for case in CASES}
