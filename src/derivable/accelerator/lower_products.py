"""Lowering products of matrices: convolutions, layers, products with constants, and those of two values."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np

from derivable.accelerator.formats import MOST, narrow
from derivable.accelerator.layouts import Shape, View, dense, elements
from derivable.accelerator.lower_array import Stream, check_terms, load, product
from derivable.accelerator.lowering import Lowering, channels_last, is_flattened, is_for_vectors, wanted_border
from derivable.accelerator.operators import Operator
from derivable.accelerator.runtime import ceil_div

# Convolutions and layers


def conv2d(low: Lowering, of: Operator) -> Iterator[None]:
    x, weight = of.inputs[:2]
    if not low.is_constant(weight):
        raise low.refuse("its weights are computed", "weights of convolutions have to be constants")
    groups, (dy, dx) = of.at["groups"], of.at["dilation"]
    kernel = low.constant(weight)
    outputs, channels, high, wide = kernel.shape
    bias = low.constant(of.inputs[2]) if len(of.inputs) == 3 else np.zeros(outputs)
    height = low.machine.height
    depth = _depth(low, x) if groups == 1 else channels
    blocks, windows = ceil_div(channels, height), ceil_div(wide * depth, height)
    # Rows of a window in words take fewer tiles where channels are few, and copies of what windows share.
    has_windows = dx == 1 and groups == 1 and windows * 4 <= 3 * wide * blocks
    per = outputs // groups
    (sy, sx), (py, px) = of.at["stride"], of.at["padding"]
    images, _, rows, columns = of.shape
    across = columns if has_windows else (columns - 1) * sx + dx * (wide - 1) + 1
    parts, terms = (windows, wide * depth) if has_windows else (blocks, channels)
    taps = [ky * dy * across + kx * dx for ky in range(high) for kx in range(1 if has_windows else wide)]
    check_terms(low, channels * high * wide)
    after = _rectified(low, of)
    span = dy * (high - 1) + 1
    loaded = []
    for group in range(groups):
        own = slice(group * per, group * per + per)
        steps, scales = quantised_rows(kernel[own], MOST[low.precision])
        steps = steps.transpose(0, 2, 3, 1)
        if has_windows:
            steps = np.pad(steps, ((0, 0), (0, 0), (0, 0), (0, depth - channels)))
        words = _words(steps.reshape(per, len(taps), terms), height)
        factors, added = _factors(low, of, x, scales, bias[own])
        loaded.append(load(low, taps, parts, span * across, factors, added, words, _kept(low, of, after)))
    yield
    given = _activation(low, x, depth if has_windows else 0, (py, px))
    multiple = low.machine.width if groups == 1 else 1
    out = channels_last(low, of.shape, low.formats[of.name].stored, wanted_border(low, after), multiple)
    for group in range(groups):
        own = given.part(1, group * channels, channels)
        stream = Stream(
            address=own.address - py * own.strides[2] - px * own.strides[3],
            image=own.strides[0],
            row=own.strides[2],
            step=own.strides[3] * (sx if has_windows else 1),
            across=across,
            parts=parts,
            last=terms - (parts - 1) * height,
            stride=sy,
            span=span,
            next=1 if has_windows else sx,
        )
        result = out.part(1, group * per, per).permuted((0, 2, 3, 1))
        ready = replace(loaded[group], has_gaps=groups == 1)
        yield from product(low, stream, ready, (images, rows, columns), result)
    _give(low, of, out, after)


def _depth(low: Lowering, name: str) -> int:
    """Bytes from each place of pictures to the next: convolutions give channels up to a multiple of the width."""
    operator = low.graph[name]
    if operator.kind == "relu" and _rectified(low, low.graph[operator.inputs[0]]) == name:
        operator = low.graph[operator.inputs[0]]
    is_padded = operator.kind == "conv2d" and operator.at["groups"] == 1
    return ceil_div(operator.shape[1], low.machine.width) * low.machine.width if is_padded else operator.shape[1]


def _activation(low: Lowering, name: str, depth: int, padding: tuple[int, int]) -> View:
    """Narrow numbers [image, channel, row, column], channels together and zeros around; with `depth`, so many bytes
    from each place to the next."""
    format = low.narrow(name)
    shape = low.graph[name].shape
    if not low.is_constant(name):
        value = low.values[name]
        view = value.view
        fits = view.strides[1] in (1, 0) or shape[1] == 1
        fits &= view.border[0] >= padding[0] and view.border[1] >= padding[1]
        if value.format == format and fits and view.strides[3] > 0 and (not depth or view.strides[3] == depth):
            return view
        key = (format, "channels last", depth, padding)
        if key not in value.forms:
            value.forms[key] = channels_last(low, shape, "i8", padding, depth or 1)
            low.convert(view, value.format, value.forms[key], format)
        return value.forms[key]
    raise low.refuse("its input is a constant", "such an operator should have been folded")


def _words(steps: np.ndarray, height: int) -> np.ndarray:
    """[output, tap, entry] -> [tap, part, height, output], zeros beyond the last entry."""
    outputs, taps, terms = steps.shape
    parts = ceil_div(terms, height)
    found = np.zeros((outputs, taps, parts * height), np.int64)
    found[:, :, :terms] = steps
    return found.reshape(outputs, taps, parts, height).transpose(1, 2, 3, 0)


def quantised_rows(weights: np.ndarray, most: int) -> tuple[np.ndarray, np.ndarray]:
    """Weights [output, ...] in steps from -most to most, with the scale of each output."""
    largest = np.abs(weights).reshape(len(weights), -1).max(1, initial=0)
    scales = np.where(largest > 0, largest / most, 1.0)
    return np.rint(weights / scales.reshape(-1, *(1,) * (weights.ndim - 1))), scales


def _factors(
    low: Lowering, of: Operator, x: str, scales: np.ndarray, bias: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    scale = low.narrow(x).scale
    added = np.rint(bias / (scale * scales))
    if np.abs(added).max(initial=0) >= 1 << 31:
        raise low.refuse("a bias is beyond int32 in steps of its sums", "its weights are too small beside its bias")
    return scale * scales / low.formats[of.name].scale, added


def _rectified(low: Lowering, of: Operator) -> str:
    """The name of the relu that alone reads an operator's narrow result, else its own."""
    users = low.graph.users[of.name]
    is_alone = len(users) == 1 and of.name not in low.graph.outputs
    is_fused = is_alone and low.graph[users[0]].kind == "relu" and low.formats[of.name].type != "i32"
    return users[0] if is_fused else of.name


def _kept(low: Lowering, of: Operator, after: str) -> tuple[int, int] | None:
    """The least and the largest narrow number that a result is kept to; None for what its type keeps it to."""
    format = low.formats[of.name]
    return None if format.type == "i32" else (0 if after != of.name else -format.most, format.most)


def _give(low: Lowering, of: Operator, out: View, after: str) -> None:
    low.keep(of.name, out)
    if after != of.name:
        low.keep(after, out)


def linear(low: Lowering, of: Operator) -> Iterator[None]:
    x, weight = of.inputs[:2]
    if not low.is_constant(weight):
        raise low.refuse("its weights are computed", "use torch.matmul for a product of two values")
    bias = low.constant(of.inputs[2]) if len(of.inputs) == 3 else np.zeros(of.shape[-1])
    weights = low.constant(weight)
    if is_flattened(low, x):
        _, channels, rows, columns = low.graph[low.graph[x].inputs[0]].shape
        weights = weights.reshape(-1, channels, rows, columns).transpose(0, 2, 3, 1).reshape(len(weights), -1)
    return _layer(low, of, x, weights, bias)


def _layer(low: Lowering, of: Operator, x: str, weight: np.ndarray, bias: np.ndarray) -> Iterator[None]:
    """x [*batch, k] by weights [n, k]."""
    height, terms = low.machine.height, weight.shape[1]
    check_terms(low, terms)
    steps, scales = quantised_rows(weight, MOST[low.precision])
    factors, added = _factors(low, of, x, scales, bias)
    parts = ceil_div(terms, height)
    after = _rectified(low, of)
    loaded = load(low, [0], parts, 1, factors, added, _words(steps[:, None], height), _kept(low, of, after))
    yield
    rows = elements(of.shape[:-1])
    format, shape = low.narrow(x), low.graph[x].shape
    flat = low.converted(x, format).reshaped((rows, terms))
    if flat is None or (flat.strides[1] != 1 and terms > 1):
        flat = low.converted(x, format, shape, dense(shape)).reshaped((rows, terms))
    assert flat is not None
    stream = Stream(flat.address, 0, flat.strides[0], 0, 1, parts, terms - (parts - 1) * height)
    out = low.new(of.shape, low.formats[of.name].stored)
    result = out.reshaped((1, rows, 1, of.shape[-1]))
    assert result is not None
    yield from product(low, stream, loaded, (1, rows, 1), result)
    _give(low, of, out, after)


# Products of matrices, and bundles


def matmul(low: Lowering, of: Operator) -> Iterator[None]:
    a, b = of.inputs
    if low.is_constant(b) and len(low.graph[b].shape) == 2:
        return _layer(low, of, a, low.constant(b).T, np.zeros(of.shape[-1]))
    if low.is_constant(a) and len(low.graph[a].shape) == 2 and len(of.shape) == 2:
        return _streamed(low, of, low.constant(a), b, dense(low.graph[b].shape), lambda view: view, lambda view: view)
    return _of_values(low, of)


def _of_values(low: Lowering, of: Operator) -> Iterator[None]:
    """Lanes multiply and add: [*batch, m, 1, k] by [*batch, 1, n, k]."""
    yield
    a, b = (low.converted(name, low.narrow(name)) for name in of.inputs)
    batch = of.shape[:-2]
    (m, n), k = of.shape[-2:], a.shape[-1]
    a = a.expanded((*batch, m, k)).with_axes([len(batch) + 1]).expanded((*batch, m, n, k))
    rank = len(batch)
    b = b.expanded((*batch, k, n)).permuted((*range(rank), rank + 1, rank)).with_axes([rank])
    real = low.narrow(of.inputs[0]).scale * low.narrow(of.inputs[1]).scale
    contract(low, of, a, b.expanded((*batch, m, n, k)), (rank + 2,), real)


def contract(low: Lowering, of: Operator, a: View, b: View, axes: tuple[int, ...], real: float) -> None:
    """The sums of products of two values along axes, in the format of the operator."""
    check_terms(low, elements(tuple(a.shape[axis] for axis in axes)))
    format = low.formats[of.name]
    multiplier, shift = low.scaling(real / format.scale)
    kept = [axis for axis in range(len(a.shape)) if axis not in axes]
    shape = tuple(a.shape[axis] for axis in kept)
    main = a if elements(shape) == 1 or all(a.strides[axis] for axis in kept if a.shape[axis] > 1) else b
    order = sorted(range(len(shape)), key=lambda at: -main.strides[kept[at]])
    out = low.new(shape, format.stored, dense(shape, order))
    low.reduce("mul", a, b, out.with_axes(axes).expanded(a.shape), axes, "sum", multiplier, shift, format.most)
    found = out.reshaped(of.shape)
    low.keep(of.name, out if found is None else found)


def bundle(low: Lowering, of: Operator) -> Iterator[None]:
    """Items [*batch, item, *vector] under weights [*batch, item]."""
    items, weights = of.inputs
    rank, shape = of.at["rank"], low.graph[items].shape
    count, vector = shape[-rank - 1], shape[len(shape) - rank :]
    if not (low.is_constant(items) and len(shape) == rank + 1):
        return _bundle_of_values(low, of, rank)
    book = low.constant(items)
    batch = of.shape[: len(of.shape) - rank]
    if not is_for_vectors(low, of.name) or low.is_constant(weights):
        return _layer(low, of, weights, book.reshape(count, -1).T, np.zeros(elements(vector)))
    # The vectors of a batch lie side by side, as columns take them: the entries of the codebook stream.
    order = list(reversed(range(rank)))
    rows = book.transpose(*(1 + axis for axis in order), 0).reshape(-1, count)

    def transposed(view: View) -> View:
        n = len(view.shape)
        flat = view.permuted([n - 1, *reversed(range(n - 1))]).reshaped((count, elements(batch)))
        assert flat is not None
        return flat

    def restored(view: View) -> View:
        whole = view.reshaped((*(vector[axis] for axis in order), *reversed(batch)))
        assert whole is not None
        return whole.permuted(
            [*(rank + at for at in reversed(range(len(batch)))), *(order.index(k) for k in range(rank))]
        )

    shape = low.graph[weights].shape
    strides = dense(shape, [len(shape) - 1, *reversed(range(len(shape) - 1))])
    return _streamed(low, of, rows, weights, strides, transposed, restored)


def _bundle_of_values(low: Lowering, of: Operator, rank: int) -> Iterator[None]:
    yield
    items, weights = of.inputs
    a, b = (low.converted(name, low.narrow(name)) for name in of.inputs)
    batch, vector, count = of.shape[: len(of.shape) - rank], of.shape[len(of.shape) - rank :], b.shape[-1]
    b = b.with_axes([len(b.shape) + k for k in range(rank)])
    whole = (*batch, count, *vector)
    real = low.narrow(items).scale * low.narrow(weights).scale
    contract(low, of, a.expanded(whole), b.expanded(whole), (len(batch),), real)


def _streamed(
    low: Lowering,
    of: Operator,
    rows: np.ndarray,
    data: str,
    strides: Shape,
    before: Callable[[View], View],
    after: Callable[[View], View],
) -> Iterator[None]:
    """A constant [m, k] by a value, of which `before` makes [k, n] once it has these strides; `after` makes the result
    of [m, n]."""
    height = low.machine.height
    low.swapped.add(of.name)
    (count, terms), scale = rows.shape, narrow(float(np.abs(rows).max(initial=0)), low.precision).scale
    check_terms(low, terms)
    parts = ceil_div(terms, height)
    steps = np.zeros((count, parts * height), np.int8)
    steps[:, :terms] = np.rint(rows / scale)
    real = scale * low.narrow(data).scale / low.formats[of.name].scale
    columns = elements(of.shape) // count
    loaded = load(low, [0], parts, 1, np.full(columns, real), np.zeros(columns), None, _kept(low, of, of.name))
    address = low.load(low.place(steps), steps.nbytes, "its constant")
    yield
    held = before(low.converted(data, low.narrow(data), low.graph[data].shape, strides))
    stream = Stream(address, 0, parts * height, 0, 1, parts, height)
    flat = low.new((count, columns), low.formats[of.name].stored)
    yield from product(low, stream, loaded, (1, count, 1), flat.with_axes([0, 2]), held)
    low.keep(of.name, after(flat))
