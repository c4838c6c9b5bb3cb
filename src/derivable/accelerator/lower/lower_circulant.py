"""Bindings by constants as layers: a circular convolution with a constant is a product with a circulant matrix.

Lanes then need not turn vectors into columns and back, and vectors go to the array a line at a time. The weights take
as many bytes for each entry of the constant as vectors are long, so it pays for many vectors with the same constant.
Sums and their rounding are those of the convolution, bit by bit.

    [400 vectors, 2 inputs, 4 blocks, 16 entries] by [2, 4, 16]   two products of [400, 64] by [64, 64], which has four
                                                                 circulant matrices of 16 x 16 on its diagonal
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from derivable.accelerator.lower.emission import moving_cycles
from derivable.accelerator.lower.lower_array import (
    LARGEST_PART,
    Columns,
    Stream,
    check_terms,
    load,
    product,
    spreading,
)
from derivable.accelerator.lower.lower_products import words_of
from derivable.accelerator.lower.lowering_state import VIEWS, State, Value, of_view
from derivable.accelerator.machine.layouts import Shape, View, canonical, elements, like
from derivable.accelerator.operators.operators import Operator
from derivable.accelerator.operators.runtime import Layer, Vectors, ceil_div, temporal_cycles

MOST_LOOPS = 3  # of the rows of a product
MARGIN = 1.5  # how many times more cycles columns take: other operators may want them, and weights are loaded


@dataclass(frozen=True)
class Circulant:
    """A binding as products of matrices.

    operand   the number of the constant's, 0 or 1
    axes      along which the constant differs: each index along them has a product
    together  blocks that a product has, side by side
    layer     of which each repeat is such a product
    """

    operand: int
    axes: tuple[int, ...]
    together: int
    layer: Layer


def plan(state: State, of: Operator) -> Circulant | None:
    """How a binding is products of matrices; None where convolutions in columns take fewer cycles, or where it is not
    known yet how its operand lies."""
    constants = [number for number, name in enumerate(of.inputs) if state.is_constant(name)]
    value = _expected(state, of.inputs[1 - constants[0]]) if len(constants) == 1 else None
    if value is None:
        return None
    machine, shape, length = state.machine, of.shape, of.shape[-1]
    operand, view = constants[0], value.view.expanded(shape)
    sizes = state.constant(of.inputs[operand]).shape
    sizes = (*(1,) * (len(shape) - len(sizes)), *sizes)
    axes = tuple(axis for axis, n in enumerate(sizes[:-1]) if n > 1)
    if view.strides[-1] != 1 or sizes[-1] != length or len(_rows(view, view, axes)) > MOST_LOOPS:
        return None
    together = 1
    if axes and axes[-1] == len(shape) - 2 and view.strides[-2] == length:
        most = max(1, machine.sub_arrays * machine.height // length)
        together = max(n for n in range(1, shape[-2] + 1) if shape[-2] % n == 0 and n <= most)
    terms, count = together * length, elements(shape[:-1])
    products = math.prod(shape[axis] for axis in axes) // together
    rows = count // together // products
    how = Circulant(operand, axes, together, Layer(rows, terms, terms, products))
    parts, weights = ceil_div(terms, machine.height), products * terms * terms
    if weights > machine.x // LARGEST_PART or min(machine.a, machine.b, machine.c) < 4 * machine.height * parts:
        return None
    # As layers: each row through each tile, moves of rows and of weights, and the conversion of what is not narrow.
    tile = rows + 2 * machine.height + machine.width
    as_layers = products * ceil_div(terms, machine.width) * ceil_div(parts, machine.sub_arrays) * tile
    as_layers += products * rows * ceil_div(terms, machine.line) + 2 * ceil_div(weights, machine.line)
    narrow = View(0, "i8", shape, like(shape, view.strides), 0)
    if value.format != state.formats.operands[of.name, 1 - operand]:
        as_layers += moving_cycles(view, narrow, machine.lanes)
    # As convolutions: moves of both operands, a word for each entry, and lanes before them.
    arrays = state.arrays_of(of)
    halves = 1 + all(state.formats.operands[of.name, k].type == "i4" for k in (0, 1))
    in_columns = temporal_cycles(Vectors(count, length, halves), machine.height, machine.width, arrays)
    in_columns += 2 * length * ceil_div(count, machine.width)
    in_columns += moving_cycles(view, replace(narrow, strides=canonical(shape)), machine.lanes)
    return how if MARGIN * as_layers < in_columns else None


def _expected(state: State, name: str) -> Value | None:
    """A value, or what it will be where views alone are between it and one that is there."""
    if name in state.values:
        return state.values[name]
    of = state.graph[name]
    before = _expected(state, of.inputs[0]) if of.kind in VIEWS else None
    if before is None:
        return None
    view = of_view(of, before.view)
    return None if view is None else Value(before.format, view)


def circulant(state: State, of: Operator, how: Circulant) -> Iterator[None]:
    """The steps of a binding as products: constants, operands, and then those of `product`."""
    machine, shape = state.machine, of.shape
    terms, rows = how.layer.k, how.layer.m
    check_terms(state, terms)
    formats = state.narrow(0), state.narrow(1)
    format = state.formats[of.name]
    multiplier, shift = state.scaling(formats[0].scale * formats[1].scale / format.scale)
    columns = Columns(np.zeros(terms), np.full(terms, multiplier), shift)
    firsts = _products(shape, how)
    parts = ceil_div(terms, machine.height)
    constant = np.broadcast_to(
        formats[how.operand].steps(state.constant(of.inputs[how.operand])),
        [n if axis in (*how.axes, len(shape) - 1) else 1 for axis, n in enumerate(shape)],
    )
    spread = spreading(state, 1, parts, terms, rows, rows)[-1]
    loaded = []
    for first in firsts:
        blocks = [constant[(*first[:-1], first[-1] + k)] for k in range(how.together)]
        words = words_of(_matrix(blocks, of.kind == "unbind", how.operand)[:, None], machine.height)
        loaded.append(load(state, [0], parts, 1, columns, words, format.clamp, spread=spread))
    yield
    name = of.inputs[1 - how.operand]
    view = state.converted(name, formats[1 - how.operand]).expanded(shape)
    order = like(shape, view.strides)
    out = state.new(shape, format.stored, order)
    loops = _rows(view, out, how.axes)
    if len(loops) > MOST_LOOPS:
        view = state.converted(name, formats[1 - how.operand], shape, order)
        loops = _rows(view, out, how.axes)
    # The innermost loop is the shortest, since all of it is in the memories at once.
    loops = sorted([*loops, *[(1, 0, 0)] * (MOST_LOOPS - len(loops))], key=lambda loop: -loop[0])
    (high, row, out_row), (images, image, out_image), (wide, step, out_step) = loops
    yield
    for first, ready in zip(firsts, loaded):
        start, to = (
            of.address + of.size * sum(i * stride for i, stride in zip(first, of.strides)) for of in (view, out)
        )
        stream = Stream(start, image, row, step, wide, terms)
        strides = (out_image, out_row, out_step, 1)
        result = replace(out, address=to, shape=(images, high, wide, terms), strides=strides)
        yield from product(state, stream, ready, (images, high, wide), result)
    state.keep(of.name, out)


def _products(shape: Shape, how: Circulant) -> list[tuple[int, ...]]:
    """The index of the first vector of each product, along all axes but that of entries."""
    counts = [n if axis in how.axes else 1 for axis, n in enumerate(shape[:-1])]
    counts[-1] //= how.together
    return [(*index[:-1], index[-1] * how.together) for index in np.ndindex(*counts)]


def _rows(view: View, out: View, axes: tuple[int, ...]) -> list[tuple[int, int, int]]:
    """Loops over the vectors with the same constant: how many, and what each adds to both views; the innermost last."""
    listed = [
        (n, view.strides[axis], out.strides[axis])
        for axis, n in enumerate(view.shape[:-1])
        if n > 1 and axis not in axes
    ]
    loops: list[tuple[int, int, int]] = []
    for n, near, far in sorted(listed, key=lambda loop: (-loop[2], -loop[1])):
        if loops and loops[-1][1:] == (n * near, n * far):
            loops[-1] = (loops[-1][0] * n, near, far)
        else:
            loops.append((n, near, far))
    return loops


def _matrix(blocks: list[np.ndarray], is_reverse: bool, operand: int) -> np.ndarray:
    """The matrix [result, entry] of a binding by constants, of blocks that are side by side.

    operand  the number of the constant's
    """
    length = len(blocks[0])
    result, entry = np.ogrid[:length, :length]
    if not is_reverse:
        at = result - entry
    elif operand == 1:
        at = entry - result
    else:
        at = entry + result
    matrix = np.zeros((len(blocks) * length,) * 2, np.int64)
    for k, block in enumerate(blocks):
        part = slice(k * length, (k + 1) * length)
        matrix[part, part] = block[at % length]
    return matrix
