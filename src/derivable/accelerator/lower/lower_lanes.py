"""Lowering arithmetic on lanes, reductions, pooling and views. What each operator is to the bit, `formats.py` says."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from derivable.accelerator.lower.lowering_state import (
    State,
    channels_last,
    is_convolved,
    is_flattened,
    is_for_vectors,
    of_view,
    wanted_border,
)
from derivable.accelerator.machine.layouts import Shape, View, dense, like
from derivable.accelerator.numbers.fixed import (
    GELU_CUBE,
    GELU_SLOPE,
    LN_2,
    LOG2_E,
    ONE,
    inverse_power,
    largest_power,
    nearest,
)
from derivable.accelerator.numbers.formats import WIDE, Format
from derivable.accelerator.operators.operators import Operator
from derivable.accelerator.operators.runtime import ceil_div

# Of wide numbers


def _wide(state: State, name: str, shape: Shape) -> View:
    return state.converted(name, WIDE).expanded(shape)


def _new(state: State, shape: Shape, *operands: View) -> View:
    """Memory for wide numbers, in the order of the operand that is least broadcast."""
    main = max(operands, key=lambda view: sum(n > 1 and stride > 0 for n, stride in zip(view.shape, view.strides)))
    return state.new(shape, "i32", like(shape, main.strides))


def _scratch(state: State, view: View) -> View:
    return state.scratch(view.shape, "i32", like(view.shape, view.strides))


def _number(state: State, name: str) -> float | None:
    """The number that a constant is, if it is one."""
    if state.is_constant(name) and state.constant(name).size == 1:
        return float(state.constant(name).reshape(()))
    return None


def _fixed(state: State, number: float) -> int:
    found = round(number * ONE)
    if not -(1 << 31) <= found < 1 << 31:
        raise state.refuse(f"the number {number:g} is beyond 32768", "numbers have 16 fractional bits of 32")
    return found


def _by_number(state: State, of: Operator) -> tuple[str, str, float | None]:
    """Both operands of an operator, the number second if one is a constant number, and that number."""
    left, right = of.inputs
    number = _number(state, right)
    if number is None and (number := _number(state, left)) is not None:
        return right, left, number
    return left, right, number


def added(state: State, of: Operator) -> Iterator[None]:
    """add and sub."""
    yield
    left, right, number = _by_number(state, of)
    a = _wide(state, left, of.shape)
    if number is None:
        b = _wide(state, right, of.shape)
        out = _new(state, of.shape, a, b)
        state.emitter.vector(of.kind, a, b, out)
    else:
        out, is_swapped = _new(state, of.shape, a), left != of.inputs[0]
        sign = -1 if of.kind == "sub" and is_swapped else 1
        state.emitter.vector(of.kind, a, _fixed(state, number), out, multiplier=sign)
    state.keep(of.name, out)


def multiplied(state: State, of: Operator) -> Iterator[None]:
    yield
    left, right, number = _by_number(state, of)
    if number is not None:
        _scaled(state, of, left, number)
        return
    a, b = _wide(state, left, of.shape), _wide(state, right, of.shape)
    out = _new(state, of.shape, a, b)
    state.emitter.vector("mul", a, b, out, shift=16)
    state.keep(of.name, out)


def _scaled(state: State, of: Operator, name: str, number: float) -> None:
    a = _wide(state, name, of.shape)
    out = _new(state, of.shape, a)
    multiplier, shift = state.scaling(number)
    state.emitter.vector("first", a, 0, out, multiplier=multiplier, shift=shift)
    state.keep(of.name, out)


def divided(state: State, of: Operator) -> Iterator[None]:
    yield
    left, right = of.inputs
    number = _number(state, right)
    if number == 0:
        raise state.refuse("it divides by zero", "divide by a number above zero")
    if number is not None:
        _scaled(state, of, left, 1 / number)
        return
    k, vector = inverse_power(*state.range(right)), state.emitter.vector
    b, b_sign = _size_and_sign(state, right)
    if k is None:
        a, a_sign = _size_and_sign(state, left)
        out = _quotient(state, of.shape, a, b)
        for sign in (a_sign, b_sign):
            if sign is not None:
                vector("mul", out, sign.expanded(of.shape), out)
    else:
        inverse = _inverse(state, b, k)
        if b_sign is not None:
            vector("mul", inverse, b_sign, inverse)
        a, inverse = _wide(state, left, of.shape), inverse.expanded(of.shape)
        out = _new(state, of.shape, a, inverse)
        vector("mul", a, inverse, out, shift=16 + k)
    state.keep(of.name, out)


def _size_and_sign(state: State, name: str) -> tuple[View, View | None]:
    """A wide number that may be negative as its size and its sign, another as it is."""
    x = state.converted(name, WIDE)
    if state.range(name)[0] >= 0:
        return x, None
    size, sign = _scratch(state, x), _scratch(state, x)
    state.emitter.vector("first", x, 0, size, multiplier=-1)
    state.emitter.vector("max", x, size, size)
    state.emitter.vector("first", x, 0, sign, clamp=(-1, 1))
    return size, sign


def _quotient(state: State, shape: Shape, a: View, b: View) -> View:
    """a / b by logarithms, of numbers that are not negative, in memory of its own."""
    vector, over, under = state.emitter.vector, _scratch(state, a), _scratch(state, b)
    vector("log2", a, 0, over)
    vector("max", b, 1, under)
    vector("log2", under, 0, under)
    over, under = over.expanded(shape), under.expanded(shape)
    out = _new(state, shape, over, under)
    vector("sub", over, under, out)
    vector("exp2", out, 0, out)
    return out


def _inverse(state: State, divisor: View, k: int) -> View:
    """exp2(k - log2(divisor)), wide."""
    found = _scratch(state, divisor)
    state.emitter.vector("log2", divisor, 0, found)
    state.emitter.vector("sub", found, k * ONE, found, multiplier=-1)
    state.emitter.vector("exp2", found, 0, found)
    return found


@dataclass(frozen=True)
class Stage:
    """One instruction: (a OP b) * multiplier / 2^shift within `clamp`, to the memory of the result.

    a, b    the operands "x" and "y" of the operator, "out" for what the stages before gave, or an integer
    factor  a real number in the place of multiplier and shift
    """

    operation: str
    a: str = "out"
    b: str | int = 0
    multiplier: int = 1
    shift: int = 0
    factor: float | None = None
    clamp: tuple[int, int] | None = None


_FROM_ONE = Stage("sub", b=ONE, multiplier=-1)
_EXPONENTIAL = Stage("exp2")
STAGES: dict[str, tuple[Stage, ...]] = {
    "abs": (Stage("first", "x", multiplier=-1), Stage("max", "x", "out")),
    "maximum": (Stage("max", "x", "y"),),
    "minimum": (Stage("min", "x", "y"),),
    # One or zero, exactly, of wide numbers: what differs does so by a step or more.
    "greater": (Stage("sub", "x", "y", clamp=(0, 1)), Stage("mul", b=ONE)),
    "equal": (
        Stage("sub", "x", "y", clamp=(-1, 1)),
        Stage("mul", b="out"),
        Stage("sub", b=1, multiplier=-1),
        Stage("mul", b=ONE),
    ),
    # A shift rounds to the nearest.
    "floor": (Stage("sub", "x", ONE // 2, shift=16), Stage("mul", b=ONE)),
    "exp": (Stage("first", "x", factor=LOG2_E), _EXPONENTIAL),
    "log": (Stage("max", "x", 1), Stage("log2"), Stage("first", factor=LN_2)),
    "sqrt": (Stage("log2", "x"), Stage("first", shift=1), _EXPONENTIAL),
    "tanh": (
        Stage("first", "x", factor=2 * LOG2_E),
        _EXPONENTIAL,
        Stage("add", b=ONE),
        Stage("log2"),
        _FROM_ONE,
        _EXPONENTIAL,
        _FROM_ONE,
    ),
    # x / (1 + exp(-2 u)), u the polynomial of the form with tanh, which is within 0.0005 of the exact one.
    "gelu": (
        Stage("mul", "x", "x", shift=16),
        Stage("mul", b="x", shift=16),
        Stage("first", factor=GELU_CUBE),
        Stage("add", b="x"),
        Stage("first", factor=-2 * GELU_SLOPE * LOG2_E),
        _EXPONENTIAL,
        Stage("add", b=ONE),
        Stage("log2"),
        Stage("first", multiplier=-1),
        _EXPONENTIAL,
        Stage("mul", "x", "out", shift=16),
    ),
}


def _bounds(of: Operator) -> tuple[Stage, ...]:
    """The stages of a clamp."""
    bounds = [(name, of.at[key]) for name, key in (("max", "low"), ("min", "high")) if of.at[key] is not None]
    return tuple(Stage(name, "out" if k else "x", nearest(bound)) for k, (name, bound) in enumerate(bounds))


def entrywise(state: State, of: Operator) -> Iterator[None]:
    """A kind of `STAGES`, or a clamp."""
    yield
    operands = [_wide(state, name, of.shape) for name in of.inputs]
    out = _new(state, of.shape, *operands)
    views = {**dict(zip("xy", operands)), "out": out}
    for stage in STAGES.get(of.kind) or _bounds(of):
        multiplier, shift = stage.multiplier, stage.shift
        if stage.factor is not None:
            multiplier, shift = state.scaling(stage.factor)
        b = views[stage.b] if isinstance(stage.b, str) else stage.b
        state.emitter.vector(
            stage.operation, views[stage.a], b, out, multiplier=multiplier, shift=shift, clamp=stage.clamp
        )
    state.keep(of.name, out)


def softmax(state: State, of: Operator) -> Iterator[None]:
    yield
    axis, shape = of.at["axis"], of.shape
    a = _wide(state, of.inputs[0], shape)
    kept = tuple(1 if k == axis else n for k, n in enumerate(shape))
    order = like(kept, a.strides)
    most, total = state.scratch(kept, "i32", order), state.scratch(kept, "i32", order)
    state.reduce("first", a, 0, most.expanded(shape), (axis,), "max")
    multiplier, shift = state.scaling(LOG2_E)
    part = _scratch(state, a)
    state.emitter.vector("sub", a, most.expanded(shape), part, multiplier=multiplier, shift=shift)
    state.emitter.vector("exp2", part, 0, part)
    state.reduce("first", part, 0, total.expanded(shape), (axis,))
    k = largest_power(shape[axis])
    inverse = _inverse(state, total, k)
    out = _new(state, shape, a)
    state.emitter.vector("mul", part, inverse.expanded(shape), out, shift=16 + k)
    state.keep(of.name, out)


def _summed(state: State, operation: str, a: View, b: View | int, axes: tuple[int, ...], shift: int = 0) -> View:
    """The sums over axes of a OP b, broadcast along them again."""
    kept = tuple(1 if axis in axes else n for axis, n in enumerate(a.shape))
    total = state.scratch(kept, "i32", like(kept, a.strides)).expanded(a.shape)
    state.reduce(operation, a, b, total, axes, "sum", 1, shift)
    return total


def to_mass(state: State, of: Operator) -> Iterator[None]:
    """What is above zero over its sum; all the same where that is zero."""
    yield
    a, axis = _wide(state, of.inputs[0], of.shape), len(of.shape) - 1
    out = _new(state, of.shape, a)
    state.emitter.vector("max", a, 0, out)
    total = _summed(state, "first", out, 0, (axis,))
    k = largest_power(of.shape[axis] * max(state.range(of.inputs[0])[1], 0))
    one = total.part(axis, 0, 1)
    inverse = _inverse(state, one, k)
    state.emitter.vector("mul", out, inverse.expanded(of.shape), out, shift=16 + k)
    state.emitter.vector("min", one, 1, one)
    multiplier, shift = state.scaling(-ONE / of.shape[axis])
    state.emitter.vector("sub", one, 1, one, multiplier=multiplier, shift=shift)
    state.emitter.vector("add", out, total, out)
    state.keep(of.name, out)


def normalised(state: State, of: Operator) -> Iterator[None]:
    """Vectors of length one: times exp2 of half of the logarithm of the sum of squares, negative."""
    yield
    a, rank = _wide(state, of.inputs[0], of.shape), len(of.shape)
    axes = tuple(range(rank - of.at["rank"], rank))
    total = _summed(state, "mul", a, a, axes, 16)
    one = total.sliced([0] * rank, tuple(1 if k in axes else n for k, n in enumerate(of.shape)), [1] * rank)
    state.emitter.vector("log2", one, 0, one)
    state.emitter.vector("first", one, 0, one, multiplier=-1, shift=1)
    state.emitter.vector("exp2", one, 0, one)
    out = _new(state, of.shape, a)
    state.emitter.vector("mul", a, total, out, shift=16)
    state.keep(of.name, out)


# As they are


def relu(state: State, of: Operator) -> Iterator[None]:
    yield
    if of.name in state.values:  # it was done where its input was drained
        return
    view, format = state.values[of.inputs[0]].view, state.formats[of.name]
    border = wanted_border(state, of.name)
    if len(of.shape) == 4 and any(border):
        out = channels_last(state, of.shape, format.stored, border, 1, format.zero)
    else:
        out = state.new(of.shape, view.type, like(of.shape, view.strides))
    state.emitter.vector("max", view, format.zero, out)
    state.keep(of.name, out)


def reduced(state: State, of: Operator) -> Iterator[None]:
    """sum, mean, max, min and prod over axes."""
    yield
    axes = of.at["axes"]
    view = state.wide(of.inputs[0]) if of.kind in ("prod", "sum", "mean") else state.values[of.inputs[0]].view
    kept = [axis for axis in range(len(view.shape)) if axis not in axes]
    shape = tuple(view.shape[axis] for axis in kept)
    strides = like(shape, tuple(view.strides[axis] for axis in kept))
    out = state.new(shape, state.formats[of.name].stored, strides)
    whole = out.with_axes(axes).expanded(view.shape)
    if not axes:
        state.emitter.vector("first", view, 0, out)
    elif of.kind == "sum":
        state.reduce("first", view, 0, whole, axes)
    elif of.kind == "mean":
        multiplier, shift = state.scaling(1 / math.prod(view.shape[axis] for axis in axes))
        state.reduce("first", view, 0, whole, axes, "sum", multiplier, shift)
    elif of.kind == "max":
        state.reduce("first", view, 0, whole, axes, "max")
    elif of.kind == "min":
        negative = _negative(state, view)
        state.reduce("first", negative, 0, whole, axes, "max", -1)
    else:
        places = itertools.product(*(range(view.shape[axis]) for axis in axes))
        for number, place in enumerate(places):
            part = view
            for axis, at in sorted(zip(axes, place), reverse=True):
                part = part.part(axis, at, 1)
            part = part.permuted([*kept, *axes]).reshaped(shape)
            assert part is not None
            if number:
                state.emitter.vector("mul", out, part, out, shift=16)
            else:
                state.emitter.vector("first", part, 0, out)
    found = out.reshaped(of.shape)
    state.keep(of.name, out if found is None else found)


def _negative(state: State, view: View) -> View:
    # The least number of a byte has no negative one.
    type = "i16" if view.type == "i8" else "i32"
    found = state.scratch(view.shape, type, like(view.shape, view.strides))
    state.emitter.vector("first", view, 0, found, multiplier=-1)
    return found


def pooled(state: State, of: Operator) -> Iterator[None]:
    """max_pool2d: tap by tap."""
    yield
    shape, x = of.shape, state.values[of.inputs[0]].view
    if len(shape) == 3:
        x, shape = x.with_axes([0]), (1, *shape)
    border = wanted_border(state, of.name) if len(of.shape) == 4 else (0, 0)
    format = state.formats[of.name]
    out = channels_last(state, shape, format.stored, border, 1, format.zero)
    is_padded = any(of.at["padding"])
    if is_padded:
        # The least number of the type: below it there is nothing to be kept to.
        state.emitter.vector("min", out, -(1 << 31), out)
    (high, wide), (sy, sx), (py, px) = of.at["kernel"], of.at["stride"], of.at["padding"]
    dy, dx = of.at["dilation"]
    for number, (ky, kx) in enumerate(np.ndindex(high, wide)):
        part, target = x, out
        for axis, offset, step in ((2, ky * dy - py, sy), (3, kx * dx - px, sx)):
            first = max(0, ceil_div(-offset, step))
            last = min(shape[axis] - 1, (x.shape[axis] - 1 - offset) // step)
            if last < first:
                break
            part = part.part(axis, first * step + offset, last - first + 1, step)
            target = target.part(axis, first, last - first + 1)
        else:
            if number or is_padded:
                state.emitter.vector("max", target, part, target)
            else:
                state.emitter.vector("first", part, 0, target)
    found = out if len(of.shape) == 4 else out.reshaped(of.shape)
    assert found is not None
    state.keep(of.name, found)


def averaged(state: State, of: Operator) -> Iterator[None]:
    """avg_pool2d: the means of the rows of windows, nearly, and sums of these, each in a lane, which is wide enough."""
    yield
    (high, wide), (sy, sx), (py, px) = of.at["kernel"], of.at["stride"], of.at["padding"]
    x, shape = state.wide(of.inputs[0]), of.shape
    if len(shape) == 3:
        x, shape = x.with_axes([0]), (1, *shape)
    if py or px:
        rows, columns = x.shape[2:]
        around = state.scratch(grown := (*x.shape[:2], rows + 2 * py, columns + 2 * px), "i32", like(grown, x.strides))
        state.fill(around, 0)
        state.emitter.vector("first", x, 0, around.part(2, py, rows).part(3, px, columns))
        x = around
    x, power = x.part(2, 0, (shape[2] - 1) * sy + high), 0
    if high == 1:
        met = _windows(x.part(2, 0, shape[2], sy), 3, shape[3], sx, wide)
    else:
        if wide == 1:
            x = x.part(3, 0, shape[3], sx)
        else:
            across, power = _windows(x, 3, shape[3], sx, wide), largest_power(wide)
            x = state.scratch(across.shape[:4], "i32", like(across.shape[:4], across.strides[:4]))
            state.reduce("first", across, 0, x.with_axes([4]).expanded(across.shape), (4,), shift=power)
        met = _windows(x, 2, shape[2], sy, high)
    out = channels_last(state, shape, "i32", (0, 0), 1)
    multiplier, shift = state.scaling((1 << power) / (high * wide))
    state.reduce("first", met, 0, out.with_axes([4]).expanded(met.shape), (4,), "sum", multiplier, shift)
    found = out if len(of.shape) == 4 else out.reshaped(of.shape)
    assert found is not None
    state.keep(of.name, found)


def _windows(view: View, axis: int, count: int, step: int, length: int) -> View:
    """Windows along an axis in its place, and what each of them holds along a new last axis."""
    shape, strides, stride = list(view.shape), list(view.strides), view.strides[axis]
    shape[axis], strides[axis] = count, step * stride
    return replace(view, shape=(*shape, length), strides=(*strides, stride), border=(0, 0))


# Views


def viewed(state: State, of: Operator) -> Iterator[None]:
    yield
    value = state.values[of.inputs[0]]
    view, format = value.view, value.format
    if is_flattened(state, of.name):
        view = view.permuted((0, 2, 3, 1))
    found = of_view(of, view)
    if found is None:
        format = _of_array(state, of.name) or format
        copied = state.new(view.shape, format.stored)
        state.convert(view, value.format, copied, format)
        found = copied.reshaped(of.shape)
        assert found is not None
    state.keep(of.name, found, format)


def _of_array(state: State, name: str) -> Format | None:
    """The format in which the array reads a value, where nothing else does: a copy of it is in that."""
    found, waiting = set(), [name]
    while waiting:
        value = waiting.pop()
        if value in state.graph.outputs or value in state.graph.alike:
            return None
        for reader in (state.graph[user] for user in state.graph.users[value]):
            if reader.unit in ("gemm", "vector"):
                found.update(state.formats.operands[reader.name, k] for k, x in enumerate(reader.inputs) if x == value)
            elif reader.kind in ("reshape", "permute", "expand"):
                waiting.append(reader.name)
            else:
                return None
    return found.pop() if len(found) == 1 else None


def indexed(state: State, of: Operator) -> Iterator[None]:
    """Places along an axis: a slice where they are at equal distances, else a copy of each run of such."""
    yield
    axis, places, view = of.at["axis"], of.at["places"], state.values[of.inputs[0]].view
    runs = list(_runs(places))
    if len(runs) == 1 and runs[0][2] > 0:
        start, count, step = runs[0]
        state.keep(of.name, view.part(axis, start, count, step))
        return
    out, at = state.new(of.shape, view.type, like(of.shape, view.strides)), 0
    for start, count, step in runs:
        part = view.part(axis, start, 1)
        if count > 1:  # also back, or of one place again and again
            strides = tuple(n * step if k == axis else n for k, n in enumerate(view.strides))
            shape = tuple(count if k == axis else n for k, n in enumerate(part.shape))
            part = replace(part, shape=shape, strides=strides)
        state.emitter.vector("first", part, 0, out.part(axis, at, count))
        at += count
    state.keep(of.name, out)


def _runs(places: Sequence[int]) -> Iterator[tuple[int, int, int]]:
    """(start, count, step) of the longest runs at equal distances, from the first place on."""
    at = 0
    while at < len(places):
        step = places[at + 1] - places[at] if at + 1 < len(places) else 1
        end = at + 1
        while end < len(places) and places[end] - places[end - 1] == step:
            end += 1
        # Two that are far apart may be the ends of two runs.
        end = end if end - at > 2 or end == len(places) else at + 1
        yield places[at], end - at, step if end - at > 1 else 1
        at = end


def rolled(state: State, of: Operator) -> Iterator[None]:
    yield
    view = state.values[of.inputs[0]].view
    out = state.new(of.shape, view.type, like(of.shape, view.strides))
    cuts = []
    for axis, n in enumerate(of.shape):
        shift = sum(s for a, s in zip(of.at["axes"], of.at["shifts"]) if a == axis) % n
        # (from, to, how many)
        cuts.append([(0, shift, n - shift)] + ([(n - shift, 0, shift)] if shift else []))
    for listed in itertools.product(*cuts):
        part, target = view, out
        for axis, (start, to, count) in enumerate(listed):
            part, target = part.part(axis, start, count), target.part(axis, to, count)
        state.emitter.vector("first", part, 0, target)
    state.keep(of.name, out)


def concatenated(state: State, of: Operator) -> Iterator[None]:
    yield
    axis, format = of.at["axis"], state.formats[of.name]
    views = [None if state.is_constant(name) else state.values[name].view for name in of.inputs]
    if is_for_vectors(state, of.name) and not is_convolved(state, of.name):
        # Lanes go along vectors.
        views = [view and state.rows(name) for name, view in zip(of.inputs, views)]
    main = next((view for view in views if view is not None), None)
    strides = dense(of.shape) if main is None else _joined(of.shape, main)
    out, start = state.new(of.shape, format.stored, strides), 0
    for name, view in zip(of.inputs, views):
        length = state.graph[name].shape[axis]
        target = out.part(axis, start, length)
        if view is None:
            state.emitter.vector("first", state.converted(name, format), 0, target)
        else:
            state.convert(view, state.values[name].format, target, format)
        start += length
    state.keep(of.name, out)


def _joined(shape: Shape, main: View) -> Shape:
    """Strides in the order of one part; axes of length one, as those of stacks, are outermost."""
    single = [axis for axis, n in enumerate(main.shape) if n == 1]
    other = sorted((axis for axis, n in enumerate(main.shape) if n > 1), key=lambda axis: -main.strides[axis])
    return dense(shape, [*single, *other])
