"""Lowering products of matrices: convolutions, layers, products with constants, and those of two values.

A product on the array has one operand that streams, as words of B, and one that stands still in A. Tiles of the
reduction are words further on in B (K says how far), so a convolution copies nothing: its tiles are its taps and blocks
of channels. Rows go in chunks that fill half of B and of C while the other halves are in use.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from derivable.accelerator.formats import narrow, scaling
from derivable.accelerator.instructions import Gemm, Move, Vector
from derivable.accelerator.layouts import Shape, View, dense, elements
from derivable.accelerator.lowering import Lowering, channels_last, is_for_vectors, wanted_border
from derivable.accelerator.operators import Operator
from derivable.core.diagnostics import LimitError

MOST_TERMS = ((1 << 31) - 1) // 127**2


@dataclass(frozen=True)
class Stream:
    """What streams: images of rows, and from each row `across` places with `parts` words each.

    address, image, row, step  where it begins in X, and bytes between images, rows and places
    last                       bytes of the last word of a place
    stride, span               rows between two rows of the result, and rows that one takes
    next                       words of B from a column of the result to the next
    """

    address: int
    image: int
    row: int
    step: int
    across: int
    parts: int
    last: int
    stride: int = 1
    span: int = 1
    next: int = 1


@dataclass(frozen=True)
class Held:
    """What stands still: words [bank, column, tile, row] in X without gaps, or numbers [k, n] of a view."""

    address: int
    data: View | None = None


@dataclass(frozen=True)
class Tables:
    """What is loaded for a product.

    tiles            of each bank, and their offsets in X as K takes them, [bank, tile] int32
    added            in X as P takes it, [column]
    shift            of the multipliers in P
    is_rectified     whether what is negative becomes 0
    has_gaps         whether lanes beyond the last channel may be written
    """

    arrays: int
    tiles: int
    offsets: int
    added: int
    shift: int
    is_rectified: bool = False
    has_gaps: bool = False


def _padded(low: Lowering, weights: np.ndarray, arrays: int, tiles: int) -> np.ndarray:
    """Weights [tile, height, output] as words of A: [bank, column, tile, row, width] int8."""
    height, width = low.machine.height, low.machine.width
    columns = -(-weights.shape[2] // width)
    found = np.zeros((arrays * tiles, height, columns * width), np.int8)
    found[: weights.shape[0], : weights.shape[1], : weights.shape[2]] = weights
    return found.reshape(arrays, tiles, height, columns, width).transpose(0, 3, 1, 2, 4)


def _load(
    low: Lowering,
    offsets: Sequence[int],
    factors: np.ndarray,
    bias: np.ndarray,
    content: np.ndarray | None,
    stream: np.ndarray | None = None,
    is_rectified: bool = False,
) -> tuple[Tables, int]:
    """Load what a product needs of constants: where tiles are, what columns add and are multiplied by, weights
    [tile, height, output], or what streams. Returns the address of the weights or of what streams."""
    machine = low.machine
    arrays = min(low.neural, len(offsets))
    tiles = -(-len(offsets) // arrays)
    listed = np.zeros(arrays * tiles, "<i4")
    listed[: len(offsets)] = offsets
    columns = -(-len(factors) // machine.width)
    shift = scaling(float(np.abs(factors).max(initial=0)), 30)[1]
    table = np.zeros((columns * machine.width, 2), "<i4")
    table[: len(factors), 0] = bias
    table[: len(factors), 1] = np.rint(factors * 2.0**shift)
    table = table.reshape(columns, machine.width, 2).transpose(0, 2, 1)
    rest = _padded(low, content, arrays, tiles) if content is not None else stream
    assert rest is not None
    parts = [np.ascontiguousarray(part).tobytes() for part in (listed, table, rest)]
    address = low.load(low.place(b"".join(parts)), sum(map(len, parts)), "its weights")
    added = address + len(parts[0])
    return Tables(arrays, tiles, address, added, shift, is_rectified), added + len(parts[1])


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
    blocks, windows = -(-channels // height), -(-wide * channels // height)
    has_windows = dx == 1 and groups == 1 and windows * 4 <= 3 * wide * blocks
    per = outputs // groups
    loaded = []
    (sy, sx), (py, px) = of.at["stride"], of.at["padding"]
    images, _, rows, columns = of.shape
    across = columns if has_windows else (columns - 1) * sx + dx * (wide - 1) + 1
    parts = windows if has_windows else blocks
    after = _rectified(low, of)
    for group in range(groups):
        part = kernel[group * per : group * per + per]
        steps, scales = quantised_rows(part)
        if has_windows:  # [output, ky, kx * channel]: words of a row of a window
            words = _words(steps.transpose(0, 2, 3, 1).reshape(per, high, -1), height)
            offsets = [ky * dy * across * parts + part for ky in range(high) for part in range(parts)]
        else:
            words = _words(steps.transpose(0, 2, 3, 1).reshape(per, high * wide, -1), height)
            offsets = [
                (ky * dy * across + kx * dx) * parts + part
                for ky in range(high)
                for kx in range(wide)
                for part in range(parts)
            ]
        factors, added = _factors(low, of, x, scales, bias[group * per : group * per + per])
        loaded.append(_load(low, offsets, factors, added, words, is_rectified=after != of.name))
    yield
    given = _activation(low, x, channels if has_windows else 0, (py, px))
    format = low.formats[of.name]
    multiple = low.machine.width if groups == 1 else 1
    out = channels_last(low, of.shape, format.type, wanted_border(low, after), multiple)
    for group, (tables, address) in enumerate(loaded):
        _check_terms(low, channels * high * wide)
        own = given.part(1, group * channels, channels)
        stream = Stream(
            own.address - py * own.strides[2] - px * own.strides[3],
            own.strides[0],
            own.strides[2],
            own.strides[3] * (sx if has_windows else 1),
            across,
            parts,
            (wide * channels if has_windows else channels) - (parts - 1) * height,
            sy,
            dy * (high - 1) + 1,
            parts * (1 if has_windows else sx),
        )
        result = out.part(1, group * per, per)
        result = result.permuted((0, 2, 3, 1))
        tables = replace(tables, has_gaps=groups == 1)
        _product(low, stream, Held(address), tables, (images, rows, columns), result)
    _give(low, of, out, after)


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
            value.forms[key] = channels_last(low, shape, "i8", padding, 1)
            low.convert(view, value.format, value.forms[key], format)
        return value.forms[key]
    raise low.refuse("its input is a constant", "such an operator should have been folded")


def _words(steps: np.ndarray, height: int) -> np.ndarray:
    """[output, tap, entry] -> [tile, height, output], tap by tap in words of so many entries."""
    parts = -(-steps.shape[2] // height)
    found = np.zeros((steps.shape[0], steps.shape[1], parts * height), np.int64)
    found[:, :, : steps.shape[2]] = steps
    return found.reshape(steps.shape[0], -1, height).transpose(1, 2, 0)


def quantised_rows(weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Weights [output, ...] in steps, with the scale of each output."""
    largest = np.abs(weights).reshape(len(weights), -1).max(1, initial=0)
    scales = np.where(largest > 0, largest / 127, 1.0)
    return np.rint(weights / scales.reshape(-1, *(1,) * (weights.ndim - 1))), scales


def _factors(
    low: Lowering, of: Operator, x: str, scales: np.ndarray, bias: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    scale = low.narrow(x).scale
    added = np.rint(bias / (scale * scales))
    if np.abs(added).max(initial=0) >= 1 << 31:
        raise low.refuse("a bias is beyond int32 in steps of its sums", "its weights are too small beside its bias")
    return scale * scales / low.formats[of.name].scale, added


def _check_terms(low: Lowering, terms: int) -> None:
    if terms > MOST_TERMS:
        raise low.refuse(f"sums have {terms} products, and {MOST_TERMS} surely fit into int32", "split the layer")


def _rectified(low: Lowering, of: Operator) -> str:
    """The name of the relu that alone reads an operator's narrow result, else its own."""
    users = low.graph.users[of.name]
    is_alone = len(users) == 1 and of.name not in low.graph.outputs
    is_fused = is_alone and low.graph[users[0]].kind == "relu" and low.formats[of.name].type == "i8"
    return users[0] if is_fused else of.name


def _give(low: Lowering, of: Operator, out: View, after: str) -> None:
    low.keep(of.name, out)
    if after != of.name:
        low.keep(after, out)


def linear(low: Lowering, of: Operator) -> Iterator[None]:
    x, weight = of.inputs[:2]
    if not low.is_constant(weight):
        raise low.refuse("its weights are computed", "use torch.matmul for a product of two values")
    bias = low.constant(of.inputs[2]) if len(of.inputs) == 3 else np.zeros(of.shape[-1])
    return _layer(low, of, x, low.constant(weight), bias)


def _layer(low: Lowering, of: Operator, x: str, weight: np.ndarray, bias: np.ndarray) -> Iterator[None]:
    """x [*batch, k] by weights [n, k]."""
    height, terms = low.machine.height, weight.shape[1]
    _check_terms(low, terms)
    steps, scales = quantised_rows(weight)
    factors, added = _factors(low, of, x, scales, bias)
    parts = -(-terms // height)
    after = _rectified(low, of)
    words = _words(steps[:, None], height)
    tables, address = _load(low, range(parts), factors, added, words, is_rectified=after != of.name)
    yield
    rows = elements(of.shape[:-1])
    format, shape = low.narrow(x), low.graph[x].shape
    flat = low.converted(x, format).reshaped((rows, terms))
    if flat is None or (flat.strides[1] != 1 and terms > 1):
        flat = low.converted(x, format, shape, dense(shape)).reshaped((rows, terms))
    assert flat is not None
    stream = Stream(flat.address, 0, flat.strides[0], 0, 1, parts, terms - (parts - 1) * height)
    out = low.new(of.shape, low.formats[of.name].type)
    result = out.reshaped((1, rows, 1, of.shape[-1]))
    assert result is not None
    _product(low, stream, Held(address), tables, (1, rows, 1), result)
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
    _check_terms(low, elements(tuple(a.shape[axis] for axis in axes)))
    format = low.formats[of.name]
    multiplier, shift = low.scaling(real / format.scale)
    kept = [axis for axis in range(len(a.shape)) if axis not in axes]
    shape = tuple(a.shape[axis] for axis in kept)
    main = a if elements(shape) == 1 or all(a.strides[axis] for axis in kept if a.shape[axis] > 1) else b
    order = sorted(range(len(shape)), key=lambda at: -main.strides[kept[at]])
    out = low.new(shape, format.type, dense(shape, order))
    low.reduce("mul", a, b, out.with_axes(axes).expanded(a.shape), axes, "sum", multiplier, shift)
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
    (count, terms), scale = rows.shape, narrow(float(np.abs(rows).max(initial=0))).scale
    _check_terms(low, terms)
    parts = -(-terms // height)
    steps = np.zeros((count, parts * height), np.int8)
    steps[:, :terms] = np.rint(rows / scale)
    real = scale * low.narrow(data).scale / low.formats[of.name].scale
    columns = elements(of.shape) // count
    tables, address = _load(low, range(parts), np.full(columns, real), np.zeros(columns), None, steps)
    yield
    held = before(low.converted(data, low.narrow(data), low.graph[data].shape, strides))
    stream = Stream(address, 0, parts * height, 0, 1, parts, height)
    flat = low.new((count, columns), low.formats[of.name].type)
    result = flat.with_axes([0, 2])
    _product(low, stream, Held(0, held), tables, (1, count, 1), result)
    low.keep(of.name, after(flat))


# The array


def _product(low: Lowering, stream: Stream, held: Held, tables: Tables, rows: tuple[int, int, int], out: View) -> None:
    """Rows [image, row, column] of a product, out being [image, row, column, channel]."""
    machine = low.machine
    images, high, wide = rows
    columns = -(-out.shape[3] // machine.width)
    line = stream.across * stream.parts
    half = {memory: getattr(machine, memory) // 2 for memory in "abckp"}
    most_rows = min((half["b"] // line - stream.span) // stream.stride + 1, half["c"] // wide)
    if most_rows < 1 or half["a"] < machine.height or tables.tiles > half["k"]:
        need = f"B {2 * stream.span * line}, C {2 * wide}, A {2 * machine.height}, K {2 * tables.tiles}"
        has = f"B {machine.b}, C {machine.c}, A {machine.a}, K {machine.k}"
        raise LimitError(
            f"%{low.operator.name} takes at least {need} words, and the machine has {has}",
            source=low.operator.source or None,
            hint="give the machine larger memories",
        )
    chunk, together = min(high, most_rows), 1
    if chunk == high:
        taken = ((high - 1) * stream.stride + stream.span) * line
        together = max(1, min(images, half["b"] // taken, half["c"] // (high * wide)))
    tiles = min(tables.tiles, half["a"] // machine.height)
    at_once = 1 if tiles < tables.tiles else min(columns, half["a"] // (tiles * machine.height), half["p"])
    at_once = max(1, min(at_once, half["c"] // (together * chunk * wide)))
    offsets = low.half("K")
    low.emitter.add(
        Move(
            operation="K",
            bank_loop=0,
            n0=tables.arrays,
            x0=4 * tables.tiles,
            n3=tables.tiles,
            x=tables.offsets,
            x3=4,
            to=offsets,
            to3=1,
        )
    )
    is_resident = at_once == columns and tiles == tables.tiles
    added = a = 0
    for image in range(0, images, together):
        pictures = min(together, images - image)
        for row in range(0, high, chunk):
            taken = min(chunk, high - row)
            depth = (taken - 1) * stream.stride + stream.span
            b = low.half("B")
            start = stream.address + image * stream.image + row * stream.stride * stream.row
            _move_stream(low, stream, tables.arrays, start, pictures, depth, b)
            count = pictures * taken * wide
            for column in range(0, columns, at_once):
                listed = min(at_once, columns - column)
                c = low.half("C")
                is_first = image == row == 0
                if is_first or not is_resident:
                    added = low.half("P")
                    size = 8 * machine.width
                    low.emitter.add(
                        Move(operation="P", n3=listed, x=tables.added + column * size, x3=size, to=added, to3=1)
                    )
                for tile in range(0, tables.tiles, tiles):
                    some = min(tiles, tables.tiles - tile)
                    if is_first or not is_resident:
                        a = low.half("A")
                        _move_held(low, held, tables, out.shape[3], column, listed, tile, some, a)
                    low.emitter.add(
                        Gemm(
                            arrays=tables.arrays,
                            a=a,
                            b=b,
                            k=offsets + tile,
                            c=c,
                            tiles=some,
                            columns=listed,
                            n0=pictures,
                            n1=taken,
                            n2=wide,
                            b0=depth * line,
                            b1=stream.stride * line,
                            b2=stream.next,
                            accumulate=int(tile > 0),
                            reach=pictures * depth * line,
                        )
                    )
                part = out.sliced((image, row, 0, 0), (pictures, taken, wide, out.shape[3]), (1, 1, 1, 1))
                _drain(low, part, column, listed, c, added, count, tables)


def _move_stream(low: Lowering, stream: Stream, arrays: int, start: int, images: int, rows: int, to: int) -> None:
    """Words [image, row, place, part] to all banks."""
    height, line = low.machine.height, stream.across * stream.parts
    for part, count, valid in _pieces(stream.parts, height, stream.last):
        for image in range(images):
            low.emitter.add(
                Move(
                    operation="B",
                    banks=arrays,
                    n1=rows,
                    n2=stream.across,
                    n3=count,
                    x=start + image * stream.image + part * height,
                    x1=stream.row,
                    x2=stream.step,
                    x3=height,
                    to=to + image * rows * line + part,
                    to1=line,
                    to2=stream.parts,
                    to3=1,
                    valid=valid,
                )
            )


def _pieces(parts: int, size: int, last: int) -> list[tuple[int, int, int]]:
    """(first, count, bytes) of words of which the last may be shorter."""
    if last == size:
        return [(0, parts, size)]
    return [(0, parts - 1, size), (parts - 1, 1, last)] if parts > 1 else [(0, 1, last)]


def _move_held(
    low: Lowering, held: Held, tables: Tables, outputs: int, column: int, columns: int, tile: int, tiles: int, to: int
) -> None:
    """Words [column, tile, row] of each bank."""
    height, width = low.machine.height, low.machine.width
    if held.data is None:
        whole = tables.tiles * height * width
        per = -(-outputs // width) * whole
        low.emitter.add(
            Move(
                operation="A",
                bank_loop=0,
                n0=tables.arrays,
                x0=per,
                n1=columns,
                x1=whole,
                to1=tiles * height,
                n3=tiles * height,
                x=held.address + column * whole + tile * height * width,
                x3=width,
                to=to,
                to3=1,
                valid=width,
            )
        )
        return
    terms, outputs = held.data.shape
    last = outputs - (-(-outputs // width) - 1) * width
    for bank in range(tables.arrays):
        first = (bank * tables.tiles + tile) * height
        count = min(tiles * height, terms - first)
        if count < 1:
            continue
        is_last = (column + columns) * width > outputs
        for part, some, valid in _pieces(columns, width, last if is_last else width):
            low.emitter.add(
                Move(
                    operation="A",
                    first=bank,
                    n1=some,
                    x1=width,
                    to1=tiles * height,
                    n3=count,
                    x=held.data.address + first * held.data.strides[0] + (column + part) * width,
                    x3=held.data.strides[0],
                    to=to + part * tiles * height,
                    to3=1,
                    valid=valid,
                )
            )


def _drain(low: Lowering, out: View, column: int, columns: int, c: int, added: int, rows: int, tables: Tables) -> None:
    """Sums [column, image, row, column of the picture] to out [image, row, column of the picture, channel]."""
    width, size = low.machine.width, out.size
    axes: list[tuple[int, int, int]] = []  # length, words of C, bytes of out
    words = 1
    for n, stride in zip(reversed(out.shape[:3]), reversed(out.strides[:3])):
        if n > 1 and axes and axes[-1][0] * axes[-1][2] == stride * size:
            axes[-1] = (axes[-1][0] * n, axes[-1][1], axes[-1][2])
        elif n > 1:
            axes.append((n, words, stride * size))
        words *= n
    axes += [(1, 0, 0)] * 3
    tail = 0 if tables.has_gaps else out.shape[3] - (column + columns - 1) * width
    pieces = _pieces(columns, width, tail) if 0 < tail < width else [(0, columns, width)]
    for part, count, lanes in pieces:
        is_whole = lanes == width
        outer = axes[2:] if is_whole else axes[1:]
        inner, middle = axes[0], axes[1] if is_whole else (1, 0, 0)
        for place in np.ndindex(*(axis[0] for axis in outer)):
            at = c + part * rows + sum(i * axis[1] for i, axis in zip(place, outer))
            y = out.address + (column + part) * width * size + sum(i * axis[2] for i, axis in zip(place, outer))
            low.emitter.add(
                Vector(
                    operation="drain",
                    n0=count,
                    n1=middle[0],
                    n2=inner[0],
                    a_from="C",
                    a_type="i32",
                    a=at,
                    a0=rows,
                    a1=middle[1],
                    a2=inner[1],
                    y_type=out.type,
                    y=y,
                    y0=width * size,
                    y1=middle[2],
                    y2=inner[2],
                    p=added + part,
                    shift=tables.shift,
                    is_clamped=int(tables.is_rectified),
                    high=127,
                    tail=0 if is_whole else lanes,
                )
            )
