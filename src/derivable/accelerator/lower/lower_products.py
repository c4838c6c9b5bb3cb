"""Lowering products of matrices: convolutions, layers, products with constants, and those of two values."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np

from derivable.accelerator.lower.lower_array import Columns, Stream, check_terms, load, product, spreading
from derivable.accelerator.lower.lowering_state import (
    State,
    channels_last,
    is_flattened,
    is_for_vectors,
    wanted_border,
)
from derivable.accelerator.machine.layouts import Shape, View, dense, elements
from derivable.accelerator.numbers.formats import Format, layer_bias
from derivable.accelerator.operators.operators import Operator
from derivable.accelerator.operators.runtime import ceil_div

# Convolutions and layers


def conv2d(state: State, of: Operator) -> Iterator[None]:
    x, weight = of.inputs[:2]
    if not state.is_constant(weight):
        raise state.refuse("its weights are computed", "weights of convolutions have to be constants")
    groups, (dy, dx) = of.at["groups"], of.at["dilation"]
    every = state.formats.layer_steps(state.graph, of)
    outputs, channels, high, wide = every.shape
    check_terms(state, channels * high * wide)
    given_to = _layer_columns(state, of, every.reshape(outputs, -1).sum(1))
    steps = every.transpose(0, 2, 3, 1)
    # Channels of a group begin with a byte.
    nibbles = _takes_nibbles(state, of)
    if nibbles:
        steps = _in_pairs(steps)
        channels = steps.shape[-1]  # bytes, from here on
    depth = channels if groups > 1 else _depth(state, x, nibbles)
    per = outputs // groups
    (sy, sx), (py, px) = of.at["stride"], of.at["padding"]
    images, _, rows, columns = of.shape
    span = dy * (high - 1) + 1
    together, spread = _cut(state, of, steps.shape, depth)
    if together:
        terms, across = ((together - 1) * sx + wide) * depth, columns // together
    else:
        terms, across = channels, (columns - 1) * sx + dx * (wide - 1) + 1
    parts = ceil_div(terms, state.machine.height)
    taps = [ky * dy * across + kx * dx for ky in range(high) for kx in range(1 if together else wide)]
    after = _rectified(state, of)
    if together:
        steps, given_to = _windows(state, steps, given_to, together, sx, depth)
        per = len(steps) // groups
    loaded = []
    for group in range(groups):
        own = slice(group * per, group * per + per)
        words = words_of(steps[own].reshape(per, len(taps), terms), state.machine.height)
        clamp = _clamp(state, of, after)
        loaded.append(load(state, taps, parts, span * across, given_to.part(own), words, clamp, nibbles, spread))
    yield
    per = outputs // groups
    given = _nibbles(state, x, (py, px)) if nibbles else _activation(state, x, depth if together else 0, (py, px))
    format, border = state.formats[of.name], wanted_border(state, after)
    is_packed = _gives_nibbles(state, of)
    if is_packed:
        out = _packed_pictures(state, of.shape, format, border, state.machine.width // 2)
        state.packed.update((of.name, after))
    else:
        multiple = state.machine.width if groups == 1 else 1
        out = channels_last(state, of.shape, format.stored, border, multiple, format.zero)
    yield
    for group in range(groups):
        own = given.part(1, group * channels, channels)
        stream = Stream(
            address=own.address - py * own.strides[2] - px * own.strides[3],
            image=own.strides[0],
            row=own.strides[2],
            step=own.strides[3] * (together * sx or 1),
            across=across,
            terms=terms,
            stride=sy,
            span=span,
            next=1 if together else sx,
        )
        result = (out if is_packed else out.part(1, group * per, per)).permuted((0, 2, 3, 1))
        if is_packed:
            result = replace(result, shape=(*result.shape[:3], outputs))
        if together > 1:
            place = result.strides[2]
            result = replace(
                result,
                shape=(images, rows, columns // together, len(steps)),
                strides=(*result.strides[:2], together * place, 1),
            )
        ready = replace(loaded[group], has_gaps=groups == 1, gives="i4" if is_packed else out.type)
        yield from product(state, stream, ready, (images, rows, result.shape[2]), result)
    _give(state, of, out, after)


MOST_TOGETHER = 8  # places of a result that have a word in common


def _cut(state: State, of: Operator, shape: Shape, depth: int) -> tuple[int, int]:
    """What words of the pictures are, in the fewest cycles: 0 for channels of a place, or, for rows of windows, how
    many places of the result each is for; and how many words are dealt out.

    Rows of windows take fewer tiles where channels are few, and copies of what windows share. One for several places
    has their channels as those of one place, and weights that are zero where a place does not look. The shape is that
    of the weights, [output, row, column, channel].
    """
    outputs, high, wide, channels = shape
    height, width = state.machine.height, state.machine.width
    groups, (dy, dx), (sy, sx) = of.at["groups"], of.at["dilation"], of.at["stride"]
    images, _, rows, columns = of.shape
    moved, count = images * ((rows - 1) * sy + dy * (high - 1) + 1), images * rows * columns
    across = (columns - 1) * sx + dx * (wide - 1) + 1
    parts = ceil_div(channels, height)
    listed = [(*spreading(state, high * wide, parts, outputs // groups, count, moved * across), 0)]
    for together in range(1, MOST_TOGETHER + 1) if dx == 1 and groups == 1 else ():
        if columns % together == 0:
            parts = ceil_div(((together - 1) * sx + wide) * depth, height)
            each = outputs if together == 1 else ceil_div(outputs, width) * width
            found = spreading(state, high, parts, together * each, count // together, moved * columns // together)
            listed.append((*found, together))
    _, _, spread, together = min(listed)
    return together, spread


def _windows(
    state: State, steps: np.ndarray, columns: Columns, together: int, stride: int, depth: int
) -> tuple[np.ndarray, Columns]:
    """Weights [output, row, column, channel] for rows of windows that several places of the result share, and what P
    takes for all of them."""
    outputs, high, wide, channels = steps.shape
    each = outputs if together == 1 else ceil_div(outputs, state.machine.width) * state.machine.width
    found = np.zeros((together, each, high, (together - 1) * stride + wide, depth))
    for place in range(together):
        found[place, :outputs, :, place * stride : place * stride + wide, :channels] = steps
    added, multipliers = (
        np.tile(np.pad(of, (0, each - outputs)), together) for of in (columns.added, columns.multipliers)
    )
    return found.reshape(together * each, *found.shape[2:]), replace(columns, added=added, multipliers=multipliers)


def _depth(state: State, name: str, nibbles: bool) -> int:
    """Bytes from each place of pictures to the next: convolutions give channels up to a multiple of the width."""
    operator, width = _producer(state, name), state.machine.width
    channels = operator.shape[1]
    if nibbles:
        return ceil_div(channels, width) * (width // 2) if _gives_nibbles(state, operator) else ceil_div(channels, 2)
    is_padded = operator.kind == "conv2d" and operator.at["groups"] == 1
    return ceil_div(channels, width) * width if is_padded else channels


def _producer(state: State, name: str) -> Operator:
    """What computes a value: the operator before a relu that is done with it."""
    operator = state.graph[name]
    if operator.kind == "relu" and _rectified(state, state.graph[operator.inputs[0]]) == name:
        return state.graph[operator.inputs[0]]
    return operator


def _activation(state: State, name: str, depth: int, padding: tuple[int, int]) -> View:
    """Narrow numbers [image, channel, row, column], channels together and zeros around; with `depth`, so many bytes
    from each place to the next."""
    format = state.narrow(0)
    shape = state.graph[name].shape
    if not state.is_constant(name):
        value = state.values[name]
        view = value.view
        fits = view.strides[1] in (1, 0) or shape[1] == 1
        fits &= view.border[0] >= padding[0] and view.border[1] >= padding[1]
        if value.format == format and fits and view.strides[3] > 0 and (not depth or view.strides[3] == depth):
            return view
        key = (format, "channels last", depth, padding)
        if key not in value.forms:
            value.forms[key] = channels_last(state, shape, format.stored, padding, depth or 1, format.zero)
            state.convert(view, value.format, value.forms[key], format)
        return value.forms[key]
    raise state.refuse("its input is a constant", "such an operator should have been folded")


def _has_nibbles(state: State, of: Operator, place: int = 0) -> bool:
    """Whether both operands of a product are int4, so that the array takes two numbers of the reduction at a time."""
    type = state.formats.types[of.name] if of.name in state.formats.weights else state.narrow(1 - place).type
    return state.narrow(place).type == type == "i4"


def _nibbles(state: State, name: str, padding: tuple[int, int]) -> View:
    """Numbers of int4 [image, byte, row, column], two channels in a byte, and zeros around."""
    format, value, shape = state.narrow(0), state.values[name], state.graph[name].shape
    if name in state.packed:
        return value.view
    key = (format, "nibbles", padding)
    if key not in value.forms:
        view, before = value.view, value.format
        if view.strides[1] != 1 and shape[1] > 1:
            view, before = _activation(state, name, 0, (0, 0)), format
        found = value.forms[key] = _packed_pictures(state, shape, format, padding)
        order = (0, 2, 3, 1)
        state.pack(view.permuted(order), before, found.permuted(order), format)
    return value.forms[key]


def _packed_pictures(state: State, shape: Shape, format: Format, border: tuple[int, int], multiple: int = 1) -> View:
    """Memory for numbers of int4 [image, byte, row, column], bytes of a place padded to a multiple."""
    both = format.zero & 15
    blank = both * 17 - 256 * (both > 7)
    return channels_last(state, (shape[0], ceil_div(shape[1], 2), *shape[2:]), "i8", border, multiple, blank)


def _gives_nibbles(state: State, of: Operator) -> bool:
    """Whether a convolution writes two channels in a byte: all that reads it are convolutions that take them so."""
    if (
        of.kind != "conv2d"
        or of.at["groups"] > 1
        or of.name in state.graph.alike
        or state.formats[of.name].type != "i4"
    ):
        return False
    after = _rectified(state, of)
    readers = [state.graph[user] for user in state.graph.users[after]]
    return after not in state.graph.outputs and all(
        reader.kind == "conv2d" and reader.at["groups"] == 1 and state.formats.types.get(reader.name) == "i4"
        for reader in readers
    )


def _takes_nibbles(state: State, of: Operator) -> bool:
    """Whether a convolution takes two channels at a time: that saves the array more than lanes take to pack them."""
    if not _has_nibbles(state, of):
        return False
    (images, channels, rows, columns), machine = state.graph[of.inputs[0]].shape, state.machine
    outputs, own, high, wide = state.graph[of.inputs[1]].shape
    if of.at["groups"] > 1:  # whose channels begin with a byte
        return own % 2 == 0
    if _gives_nibbles(state, _producer(state, of.inputs[0])):
        return True
    line = columns * ceil_div(channels, machine.lanes) if channels % 2 else ceil_div(columns * channels, machine.lanes)
    tiles = [
        ceil_div(high * min(wide * ceil_div(each, machine.height), ceil_div(wide * each, machine.height)), state.arrays)
        for each in (own, ceil_div(own, 2))
    ]
    places, height = elements(of.shape) // outputs, machine.height
    saved = (tiles[0] - tiles[1]) * (2 * height + machine.width + places) * ceil_div(outputs, machine.width)
    return saved > images * rows * line


def _in_pairs(steps: np.ndarray) -> np.ndarray:
    """Steps of int4 [..., entry] as bytes [..., byte], the first of two in the low half."""
    odd = steps.shape[-1] % 2
    whole = np.pad(steps, [(0, 0)] * (steps.ndim - 1) + [(0, odd)]).astype(np.int64) & 15
    return (whole[..., 0::2] | whole[..., 1::2] << 4).astype(np.uint8).view(np.int8)


def words_of(steps: np.ndarray, height: int) -> np.ndarray:
    """[output, tap, entry] -> [tap, part, height, output], zeros beyond the last entry."""
    outputs, taps, terms = steps.shape
    parts = ceil_div(terms, height)
    found = np.zeros((outputs, taps, parts * height), np.int64)
    found[:, :, :terms] = steps
    return found.reshape(outputs, taps, parts, height).transpose(1, 2, 3, 0)


def _layer_columns(state: State, of: Operator, sums: np.ndarray) -> Columns:
    """What P takes for a layer, of which the weights of each channel have these sums."""
    given, result, formats = state.narrow(0), state.formats[of.name], state.formats
    scales = given.scale * formats.weights[of.name]
    found = Columns.of(scales / result.scale, np.zeros(len(scales)))
    added = layer_bias(state.graph, of, formats.added) / scales
    if result.zero:
        added = added + result.zero * 2.0**found.shift / found.multipliers
    return replace(found, added=np.rint(added) - given.zero * sums)


def _columns(state: State, of: Operator, count: int) -> Columns:
    """What P takes for a product of narrow numbers without a zero."""
    real = state.narrow(0).scale * state.narrow(1).scale / state.formats[of.name].scale
    return Columns.of(np.full(count, real), np.zeros(count))


def _rectified(state: State, of: Operator) -> str:
    """The name of the relu that alone reads an operator's narrow result, else its own."""
    users = state.graph.users[of.name]
    # In loops, what reads the last iteration may be something else.
    is_alone = len(users) == 1 and of.name not in state.graph.outputs and of.name not in state.graph.alike
    is_fused = is_alone and state.graph[users[0]].kind == "relu" and state.formats[of.name].type != "i32"
    return users[0] if is_fused else of.name


def _clamp(state: State, of: Operator, after: str) -> tuple[int, int] | None:
    """The least and the largest narrow number that a result is kept to; None for what its type keeps it to."""
    format = state.formats[of.name]
    return (format.zero, format.most) if after != of.name else format.clamp


def _give(state: State, of: Operator, out: View, after: str) -> None:
    state.keep(of.name, out)
    if after != of.name:
        state.keep(after, out)


def linear(state: State, of: Operator) -> Iterator[None]:
    x, weight = of.inputs[:2]
    if not state.is_constant(weight):
        raise state.refuse("its weights are computed", "use torch.matmul for a product of two values")
    steps = state.formats.layer_steps(state.graph, of)
    if is_flattened(state, x):
        _, channels, rows, columns = state.graph[state.graph[x].inputs[0]].shape
        steps = steps.reshape(-1, channels, rows, columns).transpose(0, 2, 3, 1).reshape(len(steps), -1)
    return _of_rows(state, of, 0, steps, _layer_columns(state, of, steps.sum(1)))


def _of_rows(state: State, of: Operator, place: int, steps: np.ndarray, given_to: Columns) -> Iterator[None]:
    """An operand [*batch, k] by weights [n, k]."""
    check_terms(state, steps.shape[1])
    height, nibbles = state.machine.height, _has_nibbles(state, of, place)
    steps = _in_pairs(steps) if nibbles else steps
    terms = steps.shape[1]
    parts = ceil_div(terms, height)
    after = _rectified(state, of)
    words, clamp, rows = words_of(steps[:, None], height), _clamp(state, of, after), elements(of.shape) // len(steps)
    spread = spreading(state, 1, parts, len(steps), rows, rows)[-1]
    loaded = load(state, [0], parts, 1, given_to, words, clamp, nibbles, spread)
    yield
    flat = _rows(state, of.inputs[place], state.narrow(place), rows, nibbles)
    stream = Stream(flat.address, 0, flat.strides[0], 0, 1, terms)
    out = state.new(of.shape, state.formats[of.name].stored)
    result = out.reshaped((1, rows, 1, len(steps)))
    assert result is not None
    yield
    yield from product(state, stream, loaded, (1, rows, 1), result)
    _give(state, of, out, after)


def _rows(state: State, name: str, format: Format, rows: int, nibbles: bool) -> View:
    """A value or a constant [row, byte], narrow numbers that are bytes, or `nibbles`."""
    shape = state.graph[name].shape
    given = None if state.is_constant(name) or not nibbles else state.values[name]
    view, before = (given.view, given.format) if given else (state.converted(name, format), format)
    flat = view.reshaped((rows, elements(shape) // rows))
    if flat is None or (flat.strides[1] != 1 and flat.shape[1] > 1):
        view, before = state.converted(name, format, shape, dense(shape)), format
        flat = view.reshaped((rows, elements(shape) // rows))
    assert flat is not None
    if not nibbles:
        return flat
    found = state.scratch((rows, ceil_div(flat.shape[1], 2)), "i8")
    state.pack(flat, before, found, format)
    return found


# Products of matrices, and bundles


def matmul(state: State, of: Operator) -> Iterator[None]:
    a, b = of.inputs
    if of.name in state.formats.weights:
        steps = state.formats.layer_steps(state.graph, of)
        return _of_rows(state, of, 0, steps, _layer_columns(state, of, steps.sum(1)))
    if state.is_constant(a) and len(state.graph[a].shape) == 2:
        return _batched(state, of, state.narrow(0).steps(state.constant(a)), b)
    return _of_values(state, of)


def _batched(state: State, of: Operator, matrix: np.ndarray, b: str) -> Iterator[None]:
    """Steps of a constant [m, k] by [*batch, k, n]: rows of k stand still, of each all columns of the whole batch."""
    shape = state.graph[b].shape
    rank, batch = len(shape), shape[:-2]
    order = [rank - 2, *range(rank - 2), rank - 1]

    def together(view: View) -> View:
        flat = view.permuted(order).reshaped((shape[-2], elements((*batch, shape[-1]))))
        assert flat is not None
        return flat

    def apart(view: View) -> View:
        whole = view.reshaped((len(matrix), *batch, shape[-1]))
        assert whole is not None
        return whole.permuted([*range(1, rank - 1), 0, rank - 1])

    return _streamed(state, of, matrix, 1, dense(shape, order), together, apart)


def _of_values(state: State, of: Operator) -> Iterator[None]:
    """Lanes multiply and add: [*batch, m, 1, k] by [*batch, 1, n, k]."""
    yield
    a, b = (state.converted(name, state.narrow(place)) for place, name in enumerate(of.inputs))
    batch = of.shape[:-2]
    (m, n), k = of.shape[-2:], a.shape[-1]
    a = a.expanded((*batch, m, k)).with_axes([len(batch) + 1]).expanded((*batch, m, n, k))
    rank = len(batch)
    b = b.expanded((*batch, k, n)).permuted((*range(rank), rank + 1, rank)).with_axes([rank])
    real = state.narrow(0).scale * state.narrow(1).scale
    contract(state, of, a, b.expanded((*batch, m, n, k)), (rank + 2,), real)


def contract(state: State, of: Operator, a: View, b: View, axes: tuple[int, ...], real: float) -> None:
    """The sums of products of two values along axes, in the format of the operator."""
    check_terms(state, elements(tuple(a.shape[axis] for axis in axes)))
    format = state.formats[of.name]
    multiplier, shift = state.scaling(real / format.scale)
    kept = [axis for axis in range(len(a.shape)) if axis not in axes]
    shape = tuple(a.shape[axis] for axis in kept)
    main = a if elements(shape) == 1 or all(a.strides[axis] for axis in kept if a.shape[axis] > 1) else b
    order = sorted(range(len(shape)), key=lambda at: -main.strides[kept[at]])
    out = state.new(shape, format.stored, dense(shape, order))
    state.reduce("mul", a, b, out.with_axes(axes).expanded(a.shape), axes, "sum", multiplier, shift, format.clamp)
    found = out.reshaped(of.shape)
    state.keep(of.name, out if found is None else found)


def bundle(state: State, of: Operator) -> Iterator[None]:
    """Items [*batch, item, *vector] under weights [*batch, item]."""
    items, weights = of.inputs
    rank, shape = of.at["rank"], state.graph[items].shape
    count, vector = shape[-rank - 1], shape[len(shape) - rank :]
    if not (state.is_constant(items) and len(shape) == rank + 1):
        return _bundle_of_values(state, of, rank)
    book = state.narrow(0).steps(state.constant(items))
    batch = of.shape[: len(of.shape) - rank]
    is_wide = state.formats[of.name].type == "i32"  # and converted for each reader, along vectors
    if not is_for_vectors(state, of.name) or state.is_constant(weights) or is_wide:
        return _of_rows(state, of, 1, book.reshape(count, -1).T, _columns(state, of, elements(vector)))
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

    shape = state.graph[weights].shape
    strides = dense(shape, [len(shape) - 1, *reversed(range(len(shape) - 1))])
    return _streamed(state, of, rows, 1, strides, transposed, restored)


def _bundle_of_values(state: State, of: Operator, rank: int) -> Iterator[None]:
    yield
    a, b = (state.converted(name, state.narrow(place)) for place, name in enumerate(of.inputs))
    batch, vector, count = of.shape[: len(of.shape) - rank], of.shape[len(of.shape) - rank :], b.shape[-1]
    b = b.with_axes([len(b.shape) + k for k in range(rank)])
    whole = (*batch, count, *vector)
    real = state.narrow(0).scale * state.narrow(1).scale
    contract(state, of, a.expanded(whole), b.expanded(whole), (len(batch),), real)


def _streamed(
    state: State,
    of: Operator,
    rows: np.ndarray,
    place: int,
    strides: Shape,
    before: Callable[[View], View],
    after: Callable[[View], View],
) -> Iterator[None]:
    """The steps of a constant, [m, k], by an operand, of which `before` makes [k, n] once it has these strides;
    `after` makes the result of [m, n]."""
    height, data = state.machine.height, of.inputs[place]
    state.swapped.add(of.name)
    count, terms = rows.shape
    check_terms(state, terms)
    parts = ceil_div(terms, height)
    steps = np.zeros((count, parts * height), np.int8)
    steps[:, :terms] = rows
    columns = elements(of.shape) // count
    loaded = load(state, [0], parts, 1, _columns(state, of, columns), None, _clamp(state, of, of.name))
    address = state.load(state.fixed(steps), steps.nbytes, "its constant")
    yield
    held = before(state.converted(data, state.narrow(place), state.graph[data].shape, strides))
    stream = Stream(address, 0, parts * height, 0, 1, parts * height)
    flat = state.new((count, columns), state.formats[of.name].stored)
    yield
    yield from product(state, stream, loaded, (1, count, 1), flat.with_axes([0, 2]), held)
    state.keep(of.name, after(flat))
