"""Lowering circular convolutions and comparisons of vectors: a pair of vectors in each column of some sub-arrays."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from derivable.accelerator.lower.emission import moving_cycles
from derivable.accelerator.lower.lower_array import MOST_TERMS, pieces
from derivable.accelerator.lower.lower_circulant import circulant, plan
from derivable.accelerator.lower.lower_products import contract
from derivable.accelerator.lower.lowering_state import State
from derivable.accelerator.machine.instructions import Convolve
from derivable.accelerator.machine.layouts import Shape, View, canonical, columns_like, dense, elements
from derivable.accelerator.numbers.formats import Format
from derivable.accelerator.operators.operators import Operator
from derivable.accelerator.operators.runtime import ceil_div
from derivable.core.diagnostics import LimitError

LONGEST_SPLIT = 511  # entries of vectors of int4 whose sums fit into 16 bits
PIECES = 4  # of the vectors of an operator, of which one is convolved while others are moved


def convolved(state: State, of: Operator) -> Iterator[None]:
    """bind and unbind: [*batch, length] twice, as products with a circulant matrix where that takes fewer cycles."""
    how = plan(state, of)
    if how is None:
        return _in_columns(state, of)
    state.as_layers[of.name] = how.layer
    return circulant(state, of, how)


def _in_columns(state: State, of: Operator) -> Iterator[None]:
    """Columns take `width` vectors that lie side by side."""
    shape, strides = of.shape, canonical(of.shape)
    formats = state.narrow(0), state.narrow(1)
    if shape[-1] > MOST_TERMS:
        raise state.refuse(f"vectors have {shape[-1]} entries, and {MOST_TERMS} surely fit into int32", "shorten them")
    # Constants are loaded before the operators in front of this one begin.
    for name, format in zip(of.inputs, formats):
        if state.is_constant(name):
            state.converted(name, format, shape, strides)
    yield
    given = list(zip(of.inputs, formats))
    if not any(state.is_constant(name) for name in of.inputs):
        strides = _order(state, of.shape, given)
    b, a = (state.converted(*each, shape, strides) for each in given)
    format = state.formats[of.name]
    factor = state.scaling(formats[0].scale * formats[1].scale / format.scale)
    out = state.new(shape, format.stored, strides)
    length, count = shape[-1], elements(shape[:-1])
    is_split = format_bits(formats) == 4 and length <= LONGEST_SPLIT
    columns = [_Columns(view.address, length, count) for view in (a, b)]
    if is_split:
        columns = [_packed(state, each) for each in columns]
    yield
    yield from _convolve(state, columns, out, length, count, of.kind == "unbind", is_split, factor)
    state.keep(of.name, out)


def _order(state: State, shape: Shape, given: Sequence[tuple[str, Format]]) -> Shape:
    """The strides of columns with which the lanes have least to do, in front of a convolution and behind it."""

    def work(strides: Shape) -> int:
        column, row = (View(0, "i8", shape, order, 0) for order in (strides, dense(shape)))
        before = sum(state.conversion_cycles(*each, shape, strides) for each in given)
        return before + moving_cycles(column, row, state.machine.lanes)

    views = (state.values[name].view.expanded(shape) for name, _ in given)
    return min(dict.fromkeys((canonical(shape), *(columns_like(shape, view.strides) for view in views))), key=work)


def format_bits(formats: tuple[Format, Format]) -> int:
    """4 where both operands are int4, else 8."""
    return 4 if all(format.type == "i4" for format in formats) else 8


@dataclass(frozen=True)
class _Columns:
    """Vectors beside each other: from each entry of theirs to the next there are `row` bytes."""

    address: int
    length: int
    row: int


def _packed(state: State, of: _Columns) -> _Columns:
    """Two vectors in a byte, of int4 that are bytes."""
    row = ceil_div(of.row, 2)
    address = state.temporary(of.length * row, "vectors of int4")
    given = View(of.address, "i8", (of.length, of.row), (of.row, 1), of.address)
    state.emitter.pack(given, 0, View(address, "i8", (of.length, row), (row, 1), address), 1, 0, None)
    return _Columns(address, of.length, row)


def _convolve(
    state: State,
    given: list[_Columns],
    out: View,
    length: int,
    count: int,
    is_reverse: bool,
    is_split: bool,
    factor: tuple[int, int],
) -> Iterator[None]:
    """The first of what is given stands still. It yields while sums are under way, and others may have instructions."""
    machine, arrays = state.machine, state.arrays
    first = machine.sub_arrays - arrays
    groups = ceil_div(given[0].row, machine.width)
    arrays = min(arrays, groups)
    at_once = min(machine.a // 2 // (2 * length), machine.c // 2 // length)
    if at_once < 1:
        raise LimitError(
            f"%{state.operator.name}: vectors of {length} entries take {4 * length} words of A and {2 * length} of C, "
            f"and the machine has {machine.a} and {machine.c}",
            source=state.operator.source or None,
            hint="give the model shorter vectors; a Machine that is made by hand takes larger a= and c=",
        )
    # Groups of each sub-array at a time: some are moved and drained while others are convolved.
    step = min(at_once, ceil_div(groups, arrays * PIECES))
    for start in range(0, groups, step * arrays):
        left = groups - start
        taken = [max(0, min(step, left - step * array)) for array in range(arrays)]
        used = sum(n > 0 for n in taken)
        base, c = state.room("A", 2 * step * length), state.room("C", step * length)
        for array in range(used):
            for columns, to in zip(given, (base, base + step * length)):
                _move(state, columns, first + array, start + step * array, taken[array], to)
        state.emitter.add(
            Convolve(
                first=first,
                arrays=used,
                a=base,
                b=base + step * length,
                c=c,
                groups=taken[0],
                length=length,
                a0=length,
                b0=length,
                reverse=int(is_reverse),
                split=int(is_split),
            )
        )
        yield
        for array in range(used):
            _drain(state, out, count, is_split, first + array, start + step * array, taken[array], c, factor)


def _move(state: State, of: _Columns, bank: int, group: int, groups: int, to: int) -> None:
    """Words [group, entry] of a sub-array."""
    width = state.machine.width
    last = min(width, of.row - (group + groups - 1) * width)
    for part, some, valid in pieces(groups, width, last):
        loops, x = [(some, width, of.length), (of.length, of.row, 1)], of.address + (group + part) * width
        state.emitter.move("A", loops, x=x, to=to + part * of.length, first=bank, valid=valid)


def _drain(
    state: State,
    out: View,
    count: int,
    is_split: bool,
    bank: int,
    group: int,
    groups: int,
    c: int,
    factor: tuple[int, int],
) -> None:
    """Sums [group, entry] of a sub-array to out [entry, vector]; split ones are halves of words, each of them `width`
    vectors."""
    width, size, length = state.machine.width, out.size, out.shape[-1]
    clamp = state.formats[state.operator.name].clamp
    halves = 1 + is_split
    for half in range(halves):
        at = (group * halves + half) * width
        # Vectors of the last group that this half has.
        left = min(width, count - at - (groups - 1) * halves * width)
        some = groups if left > 0 else groups - 1
        if not some:
            continue
        loops = [(some, halves * length, halves * width * size), (length, halves, count * size)]
        source = {"a_from": "C", "a_bank": bank, "a_type": "i16" if is_split else "i32"}
        settings = {"multiplier": factor[0], "shift": factor[1], "tail": left if 0 < left < width else 0}
        a, y = halves * c + half, out.address + at * size
        state.emitter.step("first", loops, a, y, clamp, y_type=out.type, **source, **settings)


def match_probability(state: State, of: Operator) -> Iterator[None]:
    """The sums over blocks and entries of products, over the number of blocks."""
    yield
    shapes = [state.graph[name].shape for name in of.inputs]
    blocks = shapes[0][-2]
    a, b = (
        state.rows(name)
        if not state.is_constant(name) and state.values[name].format == state.narrow(place)
        else state.converted(name, state.narrow(place), shape, dense(shape))
        for place, (name, shape) in enumerate(zip(of.inputs, shapes))
    )
    whole = (*of.shape, *shapes[0][-2:])
    real = state.narrow(0).scale * state.narrow(1).scale / blocks
    axes = (len(whole) - 2, len(whole) - 1)
    contract(state, of, a.expanded(whole), b.expanded(whole), axes, real)
