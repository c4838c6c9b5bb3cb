"""Shapes, meaning and work of what runs on the array: products of matrices, and circular convolutions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from derivable.accelerator.operators.kind import Attributes, Shape, Work, broadcast, size
from derivable.accelerator.operators.runtime import Layer, Vectors
from derivable.core.diagnostics import ShapeError


def together(x: np.ndarray, axes: Sequence[int]) -> np.ndarray:
    """An array with all of some axes in one, the last."""
    last = np.moveaxis(x, axes, range(-len(axes), 0))
    return last.reshape(*last.shape[: x.ndim - len(axes)], -1)


def window_counts(shape: Shape, kernel: Shape, stride: Shape, padding: Shape, dilation: Shape) -> Shape:
    """How many windows of a kernel there are along rows and columns. Raises ShapeError if there is none."""
    found = tuple(
        (length + 2 * pad - spread * (taps - 1) - 1) // step + 1
        for length, taps, step, pad, spread in zip(shape[-2:], kernel, stride, padding, dilation)
    )
    if min(found) < 1:
        raise ShapeError(f"a window {list(kernel)} does not fit into {list(shape[-2:])} with padding {list(padding)}")
    return found


def conv2d_shape(shapes: Sequence[Shape], attributes: Attributes) -> Shape:
    x, weight, groups = shapes[0], shapes[1], attributes["groups"]
    if len(x) != 4 or len(weight) != 4:
        raise ShapeError(
            f"conv2d of {list(x)} by {list(weight)}, expected [batch, channel, row, column] and "
            "[output, channel, tap, tap]"
        )
    if x[1] != weight[1] * groups or weight[0] % groups:
        raise ShapeError(f"conv2d of {list(x)} by {list(weight)} in {groups} groups: channels differ")
    if len(shapes) == 3 and shapes[2] != (weight[0],):
        raise ShapeError(f"the bias {list(shapes[2])} of conv2d is not [{weight[0]}]")
    windows = window_counts(x, weight[2:], attributes["stride"], attributes["padding"], attributes["dilation"])
    return (x[0], weight[0], *windows)


def taps(x: np.ndarray, kernel: Shape, attributes: Attributes, fill: float = 0.0) -> Any:
    """For each tap (row, column) of a kernel, what it meets in every window: [..., row, column]."""
    stride, padding, dilation = attributes["stride"], attributes["padding"], attributes.get("dilation", (1, 1))
    windows = window_counts(x.shape, kernel, stride, padding, dilation)
    x = np.pad(x, [(0, 0)] * (x.ndim - 2) + [(pad, pad) for pad in padding], constant_values=fill)
    for tap in np.ndindex(*kernel):
        places = [
            slice(at * spread, at * spread + step * (count - 1) + 1, step)
            for at, spread, step, count in zip(tap, dilation, stride, windows)
        ]
        yield tap, x[..., places[0], places[1]]


def conv2d(arrays: Sequence[np.ndarray], attributes: Attributes) -> np.ndarray:
    x, weight, groups = arrays[0], arrays[1], attributes["groups"]
    batch, channels = x.shape[0], x.shape[1] // groups
    grouped = weight.reshape(groups, -1, *weight.shape[1:])
    found: Any = 0
    for (row, column), met in taps(x, weight.shape[2:], attributes):
        met = met.reshape(batch, groups, channels, *met.shape[-2:])
        # [group, output, channel] with [batch, group, channel, row, column]
        found = found + np.einsum("goc,bgcyx->bgoyx", grouped[..., row, column], met, optimize=True)
    found = found.reshape(batch, -1, *found.shape[-2:])
    return found + arrays[2][:, None, None] if len(arrays) == 3 else found


def conv2d_work(shapes: Sequence[Shape], result: Shape, attributes: Attributes) -> Work:
    groups, weight = attributes["groups"], shapes[1]
    return Layer(result[0] * size(result[2:]), size(weight[1:]), weight[0] // groups, repeats=groups)


def linear_shape(shapes: Sequence[Shape], attributes: Attributes) -> Shape:
    x, weight = shapes[:2]
    if len(weight) != 2 or not x or x[-1] != weight[1]:
        raise ShapeError(f"linear of {list(x)} by {list(weight)}, expected [*batch, input] and [output, input]")
    if len(shapes) == 3 and shapes[2] != (weight[0],):
        raise ShapeError(f"the bias {list(shapes[2])} of linear is not [{weight[0]}]")
    return (*x[:-1], weight[0])


def matmul_shape(shapes: Sequence[Shape], attributes: Attributes) -> Shape:
    a, b = shapes
    if len(a) < 2 or len(b) < 2 or a[-1] != b[-2]:
        raise ShapeError(f"matmul of {list(a)} and {list(b)}, expected [*batch, m, k] and [*batch, k, n]")
    return (*broadcast(a[:-2], b[:-2]), a[-2], b[-1])


def holds_right(shapes: Sequence[Shape], attributes: Attributes) -> int:
    return 1


def holds_fewer(shapes: Sequence[Shape], attributes: Attributes) -> int:
    """The operand that fewer matrices are of waits, so that it is loaded once; of equally many the right one."""
    return 0 if size(shapes[0][:-2]) < size(shapes[1][:-2]) else 1


def matmul_work(shapes: Sequence[Shape], result: Shape, attributes: Attributes) -> Work:
    held = holds_fewer(shapes, attributes)
    (m, k), n = shapes[0][-2:], shapes[1][-1]
    # One product for each matrix that is held; rows of the other operand that share it stream through it together.
    repeats = size(shapes[held][:-2])
    shared = size(result[:-2]) // repeats
    return Layer(shared * m, k, n, repeats=repeats) if held else Layer(shared * n, k, m, repeats=repeats)


# Vectors


def convolved(is_correlation: bool) -> Callable[[Sequence[np.ndarray], Attributes], np.ndarray]:
    def evaluate(arrays: Sequence[np.ndarray], attributes: Attributes) -> np.ndarray:
        c, a = arrays
        length = c.shape[-1]
        found: Any = 0
        for k in range(length):
            # convolution: sum over k of a[k] c[n - k]; correlation: of a[k] c[n + k]
            found = found + a[..., k : k + 1] * np.roll(c, -k if is_correlation else k, -1)
        return found

    return evaluate


def rows_shape(shapes: Sequence[Shape], attributes: Attributes) -> Shape:
    a, b = shapes
    if not a or not b or a[-1] != b[-1]:
        raise ShapeError(f"rows of {list(a)} and {list(b)} differ in length, expected [*batch, length] twice")
    return broadcast(a, b)


def vectors_work(shapes: Sequence[Shape], result: Shape, attributes: Attributes) -> Work:
    return Vectors(size(result[:-1]), result[-1])


def check_codes(a: Shape, b: Shape, what: str) -> None:
    if len(a) < 2 or len(b) < 2 or a[-2:] != b[-2:]:
        raise ShapeError(f"{what} of {list(a)} and {list(b)}: both end in [block, length]")


def match_probability_shape(shapes: Sequence[Shape], attributes: Attributes) -> Shape:
    a, b = shapes
    check_codes(a, b, "match_probability")
    return broadcast(*shapes)[:-2]


def match_probability_composite(graph: Any, inputs: Sequence[str], attributes: Attributes) -> str:
    product = graph.add("mul", *inputs)
    rank, blocks = len(graph.shape(product)), graph.shape(product)[-2]
    total = graph.add("sum", product, axes=(rank - 2, rank - 1))
    return graph.add("mul", total, graph.scalar(1 / blocks))


def match_probabilities_shape(shapes: Sequence[Shape], attributes: Attributes) -> Shape:
    queries, book = shapes
    check_codes(queries, book, "match_probabilities")
    if len(book) < 3:
        raise ShapeError(f"the codebook is {list(book)}, expected [*batch, item, block, length]")
    return (*broadcast(queries[:-2], book[:-3]), book[-3])


def match_probabilities(arrays: Sequence[np.ndarray], attributes: Attributes) -> np.ndarray:
    queries, book = arrays
    return np.einsum("...kl,...ikl->...i", queries, book, optimize=True) / queries.shape[-2]


def against_items(queries: Shape, book: Shape) -> tuple[Shape, Shape]:
    """The shapes of the product of matrices that compares queries with items of codebooks."""
    length = size(queries[-2:])
    if len(book) == 3:
        return (size(queries[:-2]), length), (length, book[0])
    return (*queries[:-2], 1, length), (*book[:-3], length, book[-3])


def match_probabilities_work(shapes: Sequence[Shape], result: Shape, attributes: Attributes) -> Work:
    pair = against_items(*shapes)
    return matmul_work(pair, matmul_shape(pair, {}), {})


def match_probabilities_composite(graph: Any, inputs: Sequence[str], attributes: Attributes) -> str:
    queries, book = inputs
    a, b = graph.shape(queries), graph.shape(book)
    left, right = against_items(a, b)
    flat = graph.add("reshape", book, shape=(*b[:-2], right[-2]))
    order = (*range(len(right) - 2), len(right) - 1, len(right) - 2)
    product = graph.add("matmul", graph.add("reshape", queries, shape=left), graph.add("permute", flat, order=order))
    result = match_probabilities_shape([a, b], {})
    return graph.add("mul", graph.add("reshape", product, shape=result), graph.scalar(1 / a[-2]))


def bundle_shape(shapes: Sequence[Shape], attributes: Attributes) -> Shape:
    items, weights = shapes
    rank = attributes["rank"]
    if len(items) <= rank or not weights or items[-rank - 1] != weights[-1]:
        raise ShapeError(f"a bundle of {list(items)} with weights {list(weights)}: the numbers of items differ")
    return (*broadcast(items[: -rank - 1], weights[:-1]), *items[-rank:])


def flat_bundle(items: Shape, weights: Shape, rank: int) -> tuple[Shape, Shape]:
    """The shapes of the product of matrices that a bundle is."""
    if len(items) == rank + 1:
        return (size(weights[:-1]), weights[-1]), (items[0], size(items[1:]))
    return (*weights[:-1], 1, weights[-1]), (*items[:-rank], size(items[-rank:]))


def bundle(arrays: Sequence[np.ndarray], attributes: Attributes) -> np.ndarray:
    (items, weights), ones = arrays, (1,) * attributes["rank"]
    return (items * weights.reshape(*weights.shape, *ones)).sum(-attributes["rank"] - 1)


def bundle_work(shapes: Sequence[Shape], result: Shape, attributes: Attributes) -> Work:
    pair = flat_bundle(shapes[0], shapes[1], attributes["rank"])
    return matmul_work(pair, matmul_shape(pair, {}), {})


def bundle_composite(graph: Any, inputs: Sequence[str], attributes: Attributes) -> str:
    shapes = [graph.shape(name) for name in inputs]
    left, right = flat_bundle(shapes[0], shapes[1], attributes["rank"])
    weights = graph.add("reshape", inputs[1], shape=left)
    product = graph.add("matmul", weights, graph.add("reshape", inputs[0], shape=right))
    return graph.add("reshape", product, shape=bundle_shape(shapes, attributes))
