"""Cycles of a node of the dataflow graph on some sub-arrays: equations (1) to (5), and what they leave out.

A sub-array has `height` rows and `width` columns of processing elements. All functions are integer arithmetic, so that
`height`, `width` and `sub_arrays` may be integers or integer arrays that broadcast; all results are clock cycles.

Source: NSFlow (Yang et al., 2025), section V-C, in these readings. In equation (1), d1, d2 and d3 are the rows m, the
reduction k and the output channels n of a product of matrices whose weights are stationary. In equation (4) more
sub-arrays take more vectors at a time; as printed they would cost time. Sub-arrays share the reduction in equation (1)
and columns share a vector in equation (3), so that partial sums have to be added: neither adder is in the equations,
and both are separate functions here.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, Literal, TypeAlias

import numpy as np

from derivable.core.arguments import integer

Count: TypeAlias = Any  # an integer, or an integer array that broadcasts with the others
Dataflow = Literal["weight", "output"]
Folding = Literal["reduction", "channels"]
Mapping = Literal["temporal", "spatial", "printed", "node"]

MAPPINGS: tuple[Mapping, ...] = ("temporal", "spatial", "printed", "node")


@dataclass(frozen=True)
class Layer:
    """A product of matrices [m, k] x [k, n], as a convolution or a linear layer lowers to.

    m         rows of the input: pixels of all pictures of the batch, or the batch
    k         the reduction: input channels times taps
    n         output channels
    repeats   how many such products there are, one after the other: groups, or matrices of a batch with weights each
    products  products per multiplier and cycle: 2 for INT4, which are neighbours along k; else 1
    """

    m: int
    k: int
    n: int
    repeats: int = 1
    products: int = 1

    def __post_init__(self) -> None:
        _check(self)

    @property
    def macs(self) -> int:
        """Multiplications with an addition."""
        return self.m * self.k * self.n * self.repeats

    def __str__(self) -> str:
        times = f" x {self.repeats}" if self.repeats > 1 else ""
        return f"layer[{self.m}, {self.k}, {self.n}]{times}{_doubled(self.products)}"


@dataclass(frozen=True)
class Vectors:
    """Circular convolutions or correlations of n pairs of vectors of length d.

    n         pairs: the batch times the blocks of a block code
    d         the length of a block
    products  products per multiplier and cycle: 2 for INT4, which are of two vectors; else 1
    """

    n: int
    d: int
    products: int = 1

    def __post_init__(self) -> None:
        _check(self)

    @property
    def macs(self) -> int:
        """Multiplications with an addition, by the definition of circular convolution."""
        return self.n * self.d * self.d

    def __str__(self) -> str:
        return f"vectors[{self.n}, {self.d}]{_doubled(self.products)}"


@dataclass(frozen=True)
class Elementwise:
    """Work of the SIMD unit: `elements` values, each of which passes through it `passes` times."""

    elements: int
    passes: int = 1

    def __post_init__(self) -> None:
        _check(self)

    def __str__(self) -> str:
        return f"elementwise[{self.elements}]" + (f" x {self.passes}" if self.passes > 1 else "")


def _check(node: Layer | Vectors | Elementwise) -> None:
    name = type(node).__name__
    for field in fields(node):
        high = 2 if field.name == "products" else None
        integer(getattr(node, field.name), f"{field.name} of {name}", 1, high)


def _doubled(products: int) -> str:
    return " two a multiplier" if products == 2 else ""


def ceil_div(a: Count, b: Count) -> Count:
    """a / b, rounded up, for a >= 0 and b > 0."""
    return -(-a // b)


def layer_cycles(
    layer: Layer,
    height: Count,
    width: Count,
    sub_arrays: Count,
    *,
    dataflow: Dataflow = "weight",
    folding: Folding = "reduction",
) -> Count:
    """Cycles of a layer, equation (1): `(2H + W + d1 - 2) * ceil(ceil(d2 / N) / H) * ceil(d3 / W)`.

    dataflow  "weight": weights are stationary, (d1, d2, d3) = (m, k, n). "output": sums are, (d1, d2, d3) = (k, m, n);
              then sub-arrays share the rows, there are no partial sums across them, and sums leave a fold in H
              cycles, which SCALE-Sim 3.0.0 does not count.
    folding   "reduction": the equation as it is, sub-arrays share d2. "channels": sub-arrays stand side by side as one
              array H x (W N), as the text of section IV-B has it, and there are no partial sums across them.

    A weight-stationary fold loads weights for H cycles, and d1 inputs take H + W + d1 - 2 cycles to pass and leave;
    SCALE-Sim 3.0.0 counts one cycle less in all.
    With `products=2`, k is halved, rounded up. Without the adders of partial sums: see `partial_sum_cycles`.
    """
    k = ceil_div(layer.k, layer.products)
    stream, rows = (layer.m, k) if dataflow == "weight" else (k, layer.m)
    if folding == "channels":
        width, sub_arrays = width * sub_arrays, 1
    return (
        layer.repeats
        * (2 * height + width + stream - 2)
        * ceil_div(ceil_div(rows, sub_arrays), height)
        * ceil_div(layer.n, width)
    )


def layer_folds(layer: Layer, height: Count, width: Count, sub_arrays: Count) -> Count:
    """How many times stationary weights are loaded in a layer, on each of its sub-arrays (equation (1))."""
    k = ceil_div(layer.k, layer.products)
    return layer.repeats * ceil_div(ceil_div(k, sub_arrays), height) * ceil_div(layer.n, width)


def tree_depth(parts: Count) -> Count:
    """Cycles that a pipelined tree of adders of two delays a sum of `parts` numbers: `ceil(log2(parts))`."""
    parts = np.asarray(parts)
    depth = np.ceil(np.log2(parts)).astype(np.int64)
    return int(depth) if depth.ndim == 0 else depth


def partial_sum_cycles(layer: Layer, height: Count, width: Count, sub_arrays: Count) -> Count:
    """Cycles that the tree of adders across sub-arrays adds to `layer_cycles` where they share the reduction: the
    depth of the tree, once a fold. The paper costs none. The tree has `(N - 1) * W` adders."""
    return layer_folds(layer, height, width, sub_arrays) * tree_depth(sub_arrays)


def column_cycles(height: Count, length: Count) -> Count:
    """Cycles of one pass of vectors of `length` through columns of `height` elements: `T = 3H + d - 1` of equations
    (3) and (4). The column loads H stationary values, the stream takes H - 1 cycles to the warm state, d sums leave,
    and H cycles drain it. A register at the input of the stream adds one cycle more."""
    return 3 * height + length - 1


def temporal_cycles(vectors: Vectors, height: Count, width: Count, sub_arrays: Count) -> Count:
    """Cycles of circular convolutions, a column a vector, equation (4): `ceil(n / (W N)) * ceil(d / H) * T`.

    As printed, N multiplies the time; sub-arrays that are independent divide it. With `products=2`, n is halved,
    rounded up. The sums of the passes of a vector are added where they are stored, at no cost.
    """
    passes = ceil_div(ceil_div(vectors.n, vectors.products), width * sub_arrays)
    return passes * ceil_div(vectors.d, height) * column_cycles(height, vectors.d)


def spatial_cycles(vectors: Vectors, height: Count, width: Count, sub_arrays: Count) -> Count:
    """Cycles of circular convolutions, a vector on all columns, equation (3): `n * ceil(d / (W H N)) * T`.

    With `products=2`, n is halved, rounded up. Without the adders across columns: see `column_sum_cycles`.
    """
    passes = ceil_div(vectors.d, width * height * sub_arrays)
    return ceil_div(vectors.n, vectors.products) * passes * column_cycles(height, vectors.d)


def column_sum_cycles(vectors: Vectors, height: Count, width: Count, sub_arrays: Count) -> Count:
    """Cycles that the tree of adders across columns adds to `spatial_cycles`: the depth of the tree, once a pass. The
    paper costs none. The tree has `W * N - 1` adders, of which no vector needs more than `ceil(d / H) - 1`."""
    used = np.minimum(width * sub_arrays, ceil_div(vectors.d, height))
    passes = ceil_div(vectors.d, width * height * sub_arrays)
    return ceil_div(vectors.n, vectors.products) * passes * tree_depth(used)


def elementwise_cycles(work: Elementwise, simd: Count) -> Count:
    """Cycles of the SIMD unit with `simd` lanes: `ceil(elements / simd) * passes`."""
    return ceil_div(work.elements, simd) * work.passes
