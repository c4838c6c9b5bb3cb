"""Lowering circular convolutions and comparisons of vectors: a pair of vectors in each column of some sub-arrays."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from derivable.accelerator.instructions import Convolve, Move, Vector
from derivable.accelerator.layouts import View, canonical, elements
from derivable.accelerator.lower_array import MOST_TERMS, pieces
from derivable.accelerator.lower_products import contract
from derivable.accelerator.lowering import Lowering
from derivable.accelerator.operators import Operator
from derivable.accelerator.runtime import ceil_div
from derivable.core.diagnostics import LimitError

PIECES = 4  # of the vectors of an operator, of which one is convolved while others are moved


def convolved(low: Lowering, of: Operator) -> Iterator[None]:
    """bind and unbind: [*batch, length] twice. Columns take `width` vectors that lie side by side."""
    streamed, held = of.inputs
    shape, strides = of.shape, canonical(of.shape)
    formats = low.narrow(streamed), low.narrow(held)
    if shape[-1] > MOST_TERMS:
        raise low.refuse(f"vectors have {shape[-1]} entries, and {MOST_TERMS} surely fit into int32", "shorten them")
    # Constants are loaded before the operators in front of this one begin.
    for name, format in zip(of.inputs, formats):
        if low.is_constant(name):
            low.converted(name, format, shape, strides)
    yield
    b, a = (low.converted(name, format, shape, strides) for name, format in zip(of.inputs, formats))
    format = low.formats[of.name]
    factor = low.scaling(formats[0].scale * formats[1].scale / format.scale)
    out = low.new(shape, format.type, strides)
    length, count = shape[-1], elements(shape[:-1])
    flat = [replace(view, shape=(length, count), strides=(count, 1), border=(0, 0)) for view in (a, b, out)]
    yield from _convolve(low, flat[0], flat[1], flat[2], of.kind == "unbind", factor)
    low.keep(of.name, out)


def _convolve(low: Lowering, a: View, b: View, out: View, is_reverse: bool, factor: tuple[int, int]) -> Iterator[None]:
    """Views [length, vector]. It yields while sums are under way, and others may have instructions."""
    machine, (first, arrays) = low.machine, low.symbolic
    length, count = a.shape
    groups = ceil_div(count, machine.width)
    arrays = min(arrays, groups)
    at_once = min(machine.a // 2 // (2 * length), machine.c // 2 // length)
    if at_once < 1:
        raise LimitError(
            f"%{low.operator.name}: vectors of {length} entries take {4 * length} words of A and {2 * length} of C, "
            f"and the machine has {machine.a} and {machine.c}",
            source=low.operator.source or None,
            hint="give the machine larger memories, or the model shorter vectors",
        )
    # Groups of each sub-array at a time: some are moved and drained while others are convolved.
    step = min(at_once, ceil_div(groups, arrays * PIECES))
    for start in range(0, groups, step * arrays):
        left = groups - start
        taken = [max(0, min(step, left - step * array)) for array in range(arrays)]
        used = sum(n > 0 for n in taken)
        base, c = low.half("A"), low.half("C")
        for array in range(used):
            group = start + step * array
            for view, to in ((a, base), (b, base + step * length)):
                _move(low, view, first + array, group, taken[array], to)
        low.emitter.add(
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
            )
        )
        yield
        for array in range(used):
            _drain(low, out, first + array, start + step * array, taken[array], c, factor)


def _move(low: Lowering, view: View, bank: int, group: int, groups: int, to: int) -> None:
    """Words [group, entry] of a sub-array."""
    width, (length, count) = low.machine.width, view.shape
    last = min(width, count - (group + groups - 1) * width)
    for part, some, valid in pieces(groups, width, last):
        low.emitter.add(
            Move(
                operation="A",
                first=bank,
                n2=some,
                x2=width,
                to2=length,
                n3=length,
                x3=count,
                x=view.address + (group + part) * width,
                to=to + part * length,
                to3=1,
                valid=valid,
            )
        )


def _drain(low: Lowering, out: View, bank: int, group: int, groups: int, c: int, factor: tuple[int, int]) -> None:
    width, size, (length, count) = low.machine.width, out.size, out.shape
    is_last = (group + groups) * width > count
    low.emitter.add(
        Vector(
            operation="first",
            n1=groups,
            n2=length,
            a_from="C",
            a_bank=bank,
            a_type="i32",
            a=c,
            a1=length,
            a2=1,
            y_type=out.type,
            y=out.address + group * width * size,
            y1=width * size,
            y2=count * size,
            multiplier=factor[0],
            shift=factor[1],
            tail=count % width if is_last else 0,
        )
    )


def match_probability(low: Lowering, of: Operator) -> Iterator[None]:
    """The sums over blocks and entries of products, over the number of blocks."""
    yield
    shapes = [low.graph[name].shape for name in of.inputs]
    blocks = shapes[0][-2]
    a, b = (
        low.converted(name, low.narrow(name), shape, canonical(shape))
        if low.is_constant(name)
        else low.converted(name, low.narrow(name))
        for name, shape in zip(of.inputs, shapes)
    )
    whole = (*of.shape, *shapes[0][-2:])
    real = low.narrow(of.inputs[0]).scale * low.narrow(of.inputs[1]).scale / blocks
    axes = (len(whole) - 2, len(whole) - 1)
    contract(low, of, a.expanded(whole), b.expanded(whole), axes, real)
