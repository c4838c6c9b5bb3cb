"""A product of matrices on the array: what is loaded for it, how it is cut to fit the memories, and its instructions.

One operand streams, as words of B, and one stands still in A. Tiles of the reduction are words further on in B (K says
how far), so a convolution copies nothing: its tiles are its taps and blocks of channels. A line of X is some words,
which are dealt out to as many sub-arrays (`spread`): each has its own blocks of channels, and sub-arrays with the same
blocks share the taps. Rows go in chunks that fill half of B and of C while the other halves are in use, columns in
chunks that fit half of A, of C and of P. A reduction too long for that is cut into slices, whose sums C adds.
Weights that would take more than a part of the cache stay off-chip, and each chunk of columns is loaded while the one
before is multiplied.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from derivable.accelerator.lower.emission import ONCE
from derivable.accelerator.lower.lowering_state import State
from derivable.accelerator.machine.instructions import BITS, Gemm
from derivable.accelerator.machine.layouts import View
from derivable.accelerator.numbers.formats import scaling
from derivable.accelerator.operators.runtime import ceil_div
from derivable.core.diagnostics import LimitError

MOST_TERMS = ((1 << 31) - 1) // 128**2
LARGEST_PART = 4  # of the cache weights take a fourth at most, the two chunks of those that stay off-chip too
ROWS_A_LOAD = 8  # how many times longer rows stream than weights take to be loaded and sums to leave
LEAST_MOVED = 96  # steps in which the first weights are moved, before those before them are multiplied


@dataclass(frozen=True)
class Stream:
    """What streams: images of rows, and from each row `across` places of `terms` bytes each.

    address, image, row, step  where it begins in X, and bytes between images, rows and places
    stride, span               rows between two rows of the result, and rows that one takes
    next                       places from a column of the result to the next
    """

    address: int
    image: int
    row: int
    step: int
    across: int
    terms: int
    stride: int = 1
    span: int = 1
    next: int = 1


@dataclass(frozen=True)
class Slice:
    """Some of the words of each place, and what stands still for them.

    first, parts  which words of a sub-array
    tiles         of each sub-array
    offsets       in X, int32 [tile, sub-array]
    held          in X, words [column, tile, row, sub-array] without gaps; unused where data stands still
    off_chip      of weights that stay off-chip: where these words are there
    column        the bytes of a column of them, which are whole lines; 0 for others
    """

    first: int
    parts: int
    tiles: int
    offsets: int
    held: int
    off_chip: int = 0
    column: int = 0


@dataclass(frozen=True)
class Columns:
    """What P takes for each column of a product: a sum becomes (sum + added) * multipliers / 2^shift."""

    added: np.ndarray
    multipliers: np.ndarray
    shift: int

    @classmethod
    def of(cls, factors: np.ndarray, added: np.ndarray) -> Columns:
        """With real factors, which are below 2^30 in fixed point."""
        shift = scaling(float(np.abs(factors).max(initial=0)), 30)[1]
        return cls(added, np.rint(factors * 2.0**shift), shift)

    def part(self, own: slice) -> Columns:
        return replace(self, added=self.added[own], multipliers=self.multipliers[own])

    def words(self, width: int) -> bytes:
        """Words of P."""
        count = len(self.added)
        table = np.zeros((ceil_div(count, width) * width, 2), "<i4")
        table[:count, 0], table[:count, 1] = self.added, self.multipliers
        return np.ascontiguousarray(table.reshape(-1, width, 2).transpose(0, 2, 1)).tobytes()


@dataclass(frozen=True)
class Loaded:
    """What a product needs of constants, in X.

    arrays        sub-arrays, a multiple of `spread`
    spread        words of a place that are dealt out to as many sub-arrays
    added, shift  what P takes for each column, and the shift of its multipliers
    clamp         the least and the largest number of the result, None for all
    has_gaps      whether lanes beyond the last channel may be written
    nibbles       whether bytes are two numbers of the reduction
    gives         the type of the result in memory: of i4, two channels share a byte; "" is that of its view
    """

    slices: tuple[Slice, ...]
    arrays: int
    spread: int
    added: int
    shift: int
    clamp: tuple[int, int] | None = None
    has_gaps: bool = False
    nibbles: bool = False
    gives: str = ""


def check_terms(state: State, terms: int) -> None:
    if terms > MOST_TERMS:
        raise state.refuse(f"sums have {terms} products, and {MOST_TERMS} surely fit into int32", "split the layer")


def load(
    state: State,
    taps: list[int],
    parts: int,
    row: int,
    columns: Columns,
    weights: np.ndarray | None,
    clamp: tuple[int, int] | None = None,
    nibbles: bool = False,
    spread: int = 1,
) -> Loaded:
    """Cut a reduction into slices, and load what they need.

    taps     the places from the first one that a sum takes
    parts    words of each place
    row      places that a row of the result takes, all of which are in B at once
    columns  what P takes
    weights  [tap, part, height, output] steps, or bytes of two `nibbles`; None where data stands still
    spread   words of a place that are dealt out to as many sub-arrays, of `spreading`
    """
    machine = state.machine
    if weights is not None:
        weights = np.pad(weights, ((0, 0), (0, -parts % spread), (0, 0), (0, 0)))
    parts = ceil_div(parts, spread)
    sharing = min(state.arrays // spread, len(taps) * parts)
    arrays = sharing * spread
    most = min(machine.b // 2 // row, sharing * (machine.k // 2) // len(taps), parts)
    if most < 1 or machine.a // 2 < machine.height:
        need = f"B {2 * row}, K {2 * ceil_div(len(taps), sharing)}, A {2 * machine.height}"
        raise _too_small(state, need, f"B {machine.b}, K {machine.k}, A {machine.a}")
    pieces = ceil_div(parts, most)
    is_off_chip = weights is not None and weights.size > machine.x // LARGEST_PART
    content: list[bytes] = [b""]
    at = 0
    slices: list[Slice] = []
    table = columns.words(machine.width)
    content.append(table)
    at += len(table)
    for piece in range(pieces):
        first = parts * piece // pieces
        some = parts * (piece + 1) // pieces - first
        tiles = ceil_div(len(taps) * some, sharing)
        offsets = np.zeros(sharing * tiles, "<i4")
        offsets[: len(taps) * some] = [tap * some + part for tap in taps for part in range(some)]
        offsets = np.repeat(offsets.reshape(sharing, tiles).T, spread, 1)
        held, off_chip, column = b"", 0, 0
        if weights is not None:
            own = slice(first * spread, (first + some) * spread)
            words = _words(state, weights[:, own], spread, sharing, tiles)
            held = words.tobytes()
            if is_off_chip:
                rows = np.pad(words, ((0, 0), (0, -words.shape[1] % machine.line)))
                held, off_chip, column = b"", state.fixed(rows), rows.shape[1]
        slices.append(Slice(first, some, tiles, at, at + offsets.nbytes, off_chip, column))
        content += [offsets.tobytes(), held]
        at += offsets.nbytes + len(held)
    address = state.load(state.fixed(b"".join(content)), at, "its weights")
    slices = [replace(s, offsets=address + s.offsets, held=address + s.held) for s in slices]
    return Loaded(tuple(slices), arrays, spread, address, columns.shift, clamp, nibbles=nibbles)


def spreading(state: State, taps: int, parts: int, outputs: int, rows: int, places: int) -> tuple[int, int, int]:
    """How many words of a line to deal out to sub-arrays, so that neither the array nor moves take long: the cycles of
    the longer, those of both, and the number.

    rows    of the result
    places  that are moved, of `parts` words each
    """
    machine = state.machine
    loads = ceil_div(rows, ROWS_A_LOAD * (2 * machine.height + machine.width))
    found = []
    for spread in range(1, min(state.arrays, machine.line // machine.height, parts) + 1):
        words = ceil_div(parts, spread)
        tiles = ceil_div(taps * words, state.arrays // spread)
        tile = rows + loads * (2 * machine.height + machine.width - 2)
        multiplied, moved = ceil_div(outputs, machine.width) * tiles * tile, places * words
        found.append((max(multiplied, moved), multiplied + moved, spread))
    return min(found)


def distributed(banks: int, most: int) -> list[tuple[int, int, int]]:
    """(first bank, words, steps) of moves that deal out up to `most` words at each step, until all banks have one."""
    words = min(banks, most)
    steps, rest = divmod(banks, words)
    return [(0, words, steps), *([(steps * words, rest, 1)] if rest else [])]


def _too_small(state: State, need: str, has: str) -> LimitError:
    return LimitError(
        f"%{state.operator.name} takes at least these words of memories: {need}; the machine has {has}",
        source=state.operator.source or None,
        hint="a design has them from its device=; a Machine that is made by hand takes larger a=, b=, k= and c=",
    )


def _words(state: State, weights: np.ndarray, spread: int, sharing: int, tiles: int) -> np.ndarray:
    """Weights [tap, part, height, output] as words of A: [column, byte], of a column [tile, row, sub-array, width]."""
    height, width = state.machine.height, state.machine.width
    taps, parts, _, outputs = weights.shape
    columns, words = ceil_div(outputs, width), taps * parts // spread
    found = np.zeros((sharing * tiles, spread, height, columns * width), np.int8)
    found[:words, :, :, :outputs] = weights.reshape(words, spread, height, outputs)
    found = found.reshape(sharing, tiles, spread, height, columns, width).transpose(4, 1, 3, 0, 2, 5)
    return np.ascontiguousarray(found).reshape(columns, -1)


def product(
    state: State,
    stream: Stream,
    loaded: Loaded,
    rows: tuple[int, int, int],
    out: View,
    data: View | None = None,
) -> Iterator[None]:
    """Rows [image, row, column] of a product, to out [image, row, column, channel]; `data` [k, channel] stands still,
    or the weights that are loaded. It yields while sums are under way, and others may have instructions."""
    machine = state.machine
    images, high, wide = rows
    columns = ceil_div(out.shape[3], machine.width)
    b_half, c_half, a_half = machine.b // 2, machine.c // 2, machine.a // 2
    line = stream.across * max(part.parts for part in loaded.slices)
    most_rows = min((b_half // line - stream.span) // stream.stride + 1, c_half // wide)
    if most_rows < 1:
        raise _too_small(state, f"C {2 * wide}", f"C {machine.c}")
    # Some rows are moved and drained while others are multiplied; too few rows would load weights too often.
    enough = ceil_div(ROWS_A_LOAD * (2 * machine.height + machine.width), wide)
    chunk, together = min(high, most_rows, enough), 1
    if chunk == high:
        taken = ((high - 1) * stream.stride + stream.span) * line
        together = max(1, min(images, b_half // taken, c_half // (high * wide), ceil_div(enough, high)))
    longest = max(part.tiles for part in loaded.slices)
    is_whole = len(loaded.slices) == 1
    tiles = min(longest, a_half // machine.height)
    at_once = min(columns, a_half // (tiles * machine.height), machine.p // 2) if is_whole and tiles == longest else 1
    at_once = max(1, min(at_once, c_half // (together * chunk * wide)))
    column_bytes = max(part.column for part in loaded.slices)
    stages = []  # in the cache, for columns of weights that stay off-chip
    if column_bytes:
        at_once = max(1, min(at_once, machine.x // (2 * LARGEST_PART * column_bytes)))
        stages = [
            state.temporary(at_once * column_bytes, f"a part of its weights, of {at_once} words of columns")
            for _ in "ab"
        ]
    is_resident = is_whole and at_once == columns and tiles == longest
    added = a = offsets = b = 0
    for image in range(0, images, together):
        pictures = min(together, images - image)
        for row in range(0, high, chunk):
            taken = min(chunk, high - row)
            depth = (taken - 1) * stream.stride + stream.span
            start = stream.address + image * stream.image + row * stream.stride * stream.row
            count = pictures * taken * wide
            is_first = image == row == 0
            for column in range(0, columns, at_once):
                listed = min(at_once, columns - column)
                c = state.half("C")
                if is_first or not is_resident:
                    added = state.half("P")
                    _load_table(state, loaded, column, listed, added)
                for number, part in enumerate(loaded.slices):
                    words = stream.across * part.parts  # of a row
                    if not is_whole or column == 0:
                        if not is_whole or is_first:
                            offsets = state.half("K")
                            _load_offsets(state, loaded, part, offsets)
                        b = state.half("B")
                        _move_stream(state, stream, loaded, part, start, pictures, depth, b)
                    if column_bytes and (is_first or not is_resident):
                        stages.reverse()
                        state.transfer("load", stages[0], part.off_chip + column * part.column, listed * part.column)
                    for tile in range(0, part.tiles, tiles):
                        some = min(tiles, part.tiles - tile)
                        is_held = is_resident and not is_first
                        a = a if is_held else state.half("A")
                        for k, few in _ahead(state, loaded, some, listed) if is_first else [(0, listed)]:
                            at = a + k * some * machine.height
                            block = range(column + k, column + k + few), range(tile, tile + some), at
                            if data is None and not is_held:
                                stage = stages[0] + k * part.column if column_bytes else None
                                _move_weights(state, loaded, part, stage, *block)
                            elif data is not None and not is_held:
                                _move_held(state, loaded, part, data, out.shape[3], *block)
                            state.emitter.add(
                                Gemm(
                                    arrays=loaded.arrays,
                                    a=at,
                                    b=b,
                                    k=offsets + tile,
                                    c=c + k * count,
                                    tiles=some,
                                    columns=few,
                                    n0=pictures,
                                    n1=taken,
                                    n2=wide,
                                    b0=depth * words,
                                    b1=stream.stride * words,
                                    b2=stream.next * part.parts,
                                    accumulate=int(number > 0 or tile > 0),
                                    nibbles=int(loaded.nibbles),
                                    reach=pictures * depth * words,
                                )
                            )
                yield
                whole = out.sliced((image, row, 0, 0), (pictures, taken, wide, out.shape[3]), (1, 1, 1, 1))
                _drain(state, whole, column, listed, c, added, count, loaded)


def _ahead(state: State, loaded: Loaded, tiles: int, columns: int) -> list[tuple[int, int]]:
    """(first, count) of columns whose weights are moved while those of the columns before are multiplied."""
    machine = state.machine
    moved = tiles * machine.height * ceil_div(loaded.arrays, max(1, machine.line // machine.width))
    few = max(ceil_div(LEAST_MOVED, moved), ceil_div(columns, 8))
    return [(k, min(few, columns - k)) for k in range(0, columns, few)]


def _load_table(state: State, loaded: Loaded, column: int, columns: int, to: int) -> None:
    size = 8 * state.machine.width
    state.emitter.move("P", [(columns, size, 1)], x=loaded.added + column * size, to=to)


def _load_offsets(state: State, loaded: Loaded, part: Slice, to: int) -> None:
    for first, words, steps in distributed(loaded.arrays, state.machine.line // 4):
        loops = [(steps, 4 * words, 0), ONCE, ONCE, (part.tiles, 4 * loaded.arrays, 1)]
        x, banks = part.offsets + 4 * first, {"first": first, "banks": words, "spread": words}
        state.emitter.move("K", loops, x=x, to=to, bank_loop=0, **banks)


def _move_stream(
    state: State, stream: Stream, loaded: Loaded, of: Slice, start: int, images: int, rows: int, to: int
) -> None:
    """Words [image, row, place, part], of which sub-arrays have their own, or the same as others."""
    size = loaded.spread * state.machine.height
    line = stream.across * of.parts
    last = min(stream.terms - (of.first + of.parts - 1) * size, size)
    for part, count, valid in pieces(of.parts, size, last):
        for image in range(images):
            loops = [(rows, stream.row, line), (stream.across, stream.step, of.parts), (count, size, 1)]
            x = start + image * stream.image + (of.first + part) * size
            banks = {"banks": loaded.arrays, "spread": loaded.spread}
            state.emitter.move("B", loops, x=x, to=to + image * rows * line + part, valid=valid, **banks)


def pieces(parts: int, size: int, last: int) -> list[tuple[int, int, int]]:
    """(first, count, bytes) of words of which the last may be shorter."""
    if last == size:
        return [(0, parts, size)]
    return [(0, parts - 1, size), (parts - 1, 1, last)] if parts > 1 else [(0, 1, last)]


def _move_weights(
    state: State, loaded: Loaded, of: Slice, stage: int | None, columns: range, tiles: range, to: int
) -> None:
    """Words [column, tile, row] of each sub-array, from where all weights are or, of some columns, from a stage."""
    height, width = state.machine.height, state.machine.width
    row = loaded.arrays * width
    start, of_column = of.held + columns.start * of.tiles * height * row, of.tiles * height * row
    if stage is not None:
        start, of_column = stage, of.column
    for first, words, steps in distributed(loaded.arrays, state.machine.line // width):
        per = len(tiles) * height
        loops = [(steps, words * width, 0), (len(columns), of_column, per), ONCE, (per, row, 1)]
        x, banks = start + tiles.start * height * row + first * width, {"first": first, "banks": words, "spread": words}
        state.emitter.move("A", loops, x=x, to=to, bank_loop=0, valid=words * width, **banks)


def _move_held(
    state: State, loaded: Loaded, of: Slice, data: View, outputs: int, columns: range, tiles: range, to: int
) -> None:
    """Words [column, tile, row] of each sub-array, of a value that stands still."""
    height, width = state.machine.height, state.machine.width
    per = len(tiles) * height  # words of a column
    last = outputs - (ceil_div(outputs, width) - 1) * width
    is_last = columns.stop * width >= outputs
    for bank in range(loaded.arrays):
        # Tiles of a slice are words one after the other. Entries beyond the reduction meet zeros, tiles beyond the
        # slice are zeros.
        first = (of.first + bank * of.tiles + tiles.start) * height
        stop = (of.first + of.parts) * height
        end, beyond = min(first + per, stop, data.shape[0]), max(first, stop)
        if beyond < first + per:
            loops = [(len(columns), 0, per), ONCE, (first + per - beyond, 0, 1)]
            state.emitter.move("A", loops, x=0, to=to + beyond - first, first=bank)
        if end <= first:
            continue
        stride = data.strides[0]
        for part, some, valid in pieces(len(columns), width, last if is_last else width):
            loops = [(some, width, per), ONCE, (end - first, stride, 1)]
            x = data.address + first * stride + (columns.start + part) * width
            state.emitter.move("A", loops, x=x, to=to + part * per, first=bank, valid=valid)


def _drain(state: State, out: View, column: int, columns: int, c: int, added: int, rows: int, loaded: Loaded) -> None:
    """Sums [column, image, row, column of the picture] to out [image, row, column of the picture, channel]."""
    width, size, type = state.machine.width, out.size, loaded.gives or out.type
    block = width * BITS[type] // 8  # bytes
    axes: list[tuple[int, int, int]] = []  # length, words of C, bytes of out
    words = 1
    for n, stride in zip(reversed(out.shape[:3]), reversed(out.strides[:3])):
        if n > 1 and axes and axes[-1][0] * axes[-1][2] == stride * size:
            axes[-1] = (axes[-1][0] * n, axes[-1][1], axes[-1][2])
        elif n > 1:
            axes.append((n, words, stride * size))
        words *= n
    axes += [(1, 0, 0)] * 3
    tail = width if loaded.has_gaps else min(width, out.shape[3] - (column + columns - 1) * width)
    for part, count, lanes in pieces(columns, width, tail):
        # The last lanes are left out in each step where the middle loop has one.
        is_whole = lanes == width
        inner, middle, *outer = axes if is_whole else (axes[0], (1, 0, 0), *axes[1:])
        for place in np.ndindex(*(axis[0] for axis in outer)):
            at = c + part * rows + sum(i * axis[1] for i, axis in zip(place, outer))
            y = out.address + (column + part) * block + sum(i * axis[2] for i, axis in zip(place, outer))
            loops = [(count, rows, block), middle, inner]
            settings = {"p": added + part, "shift": loaded.shift, "tail": 0 if is_whole else lanes}
            state.emitter.step("drain", loops, at, y, loaded.clamp, a_from="C", a_type="i32", y_type=type, **settings)
