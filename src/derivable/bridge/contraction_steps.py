"""The steps of a sum of products of many tensors, of one or two operands each, with the steps of its derivatives.

An axis that one operand alone has is summed up first. A sum of two arrays without such an axis is one step. Each array
that is made is read by one later step: the steps are a tree, which derivatives pass from its root to its leaves.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

Axes = tuple[int, ...]
# (arrays, the axes of each and then those of the result) -> the sum of their products
Einsum = Callable[[Sequence[Any], tuple[Axes, ...]], Any]

# A result between steps is dense where more than one in this many of its indices has an entry.
_SPARSE = 16
# All orders of the steps are compared for up to this many operands.
_MANY = 8
# How much less a step of two dense tensors costs, which is one call of a library of matrix products.
_DENSE_STEP = 0.05

# (axes, how many entries, whether it is dense)
Term = tuple[Axes, float, bool]


@dataclass(frozen=True)
class Step:
    """A sum of products of one or two arrays.

    positions  of these arrays among the operands and, behind them, the results of the steps before
    axes       of each of these, and then of the result
    """

    positions: tuple[int, ...]
    axes: tuple[Axes, ...]


def steps_of(arrays: Sequence[Any], axes: tuple[Axes, ...]) -> tuple[Step, ...]:
    """The steps of two dense operands or more; no axis twice in one operand, and each of the result's in some operand.

    axes  of each operand, and then of the result
    """
    return _steps_of(axes, tuple([tuple(x.shape) for x in arrays]))


@lru_cache(1024)
def _steps_of(axes: tuple[Axes, ...], shapes: tuple[tuple[int, ...], ...]) -> tuple[Step, ...]:
    *operands, result = axes
    sizes = {axis: size for of, shape in zip(operands, shapes) for axis, size in zip(of, shape)}
    steps: list[Step] = []
    # (position, axes) of the arrays that no step has read
    left: list[tuple[int, Axes]] = []
    for position, of in enumerate(operands):
        inside = needed(of, [*operands[:position], *operands[position + 1 :]], result)
        if len(inside) < len(of):
            steps.append(Step((position,), (of, inside)))
            left.append((len(operands) + len(steps) - 1, inside))
        else:
            left.append((position, of))
    counted = [(of, float(math.prod(sizes[axis] for axis in of)), True) for _, of in left]
    for first, second in order_of(counted, result, sizes):
        pair, left = (left[first], left[second]), [x for k, x in enumerate(left) if k not in (first, second)]
        (one, its), (other, their) = pair
        made = needed((*its, *their), [of for _, of in left], result) if left else result
        steps.append(Step((one, other), (its, their, made)))
        left.append((len(operands) + len(steps) - 1, made))
    return tuple(steps)


def forward(einsum: Einsum, operands: Sequence[Any], steps: Sequence[Step]) -> list[Any]:
    """The operands, and behind them what each step gives: the sum is the last one."""
    values = list(operands)
    for step in steps:
        values.append(einsum([values[position] for position in step.positions], step.axes))
    return values


def pull(
    library: Any, einsum: Einsum, values: Sequence[Any], steps: Sequence[Step], adjoint: Any, needed: Sequence[bool]
) -> list[Any]:
    """The adjoints of the operands, None for those that need none, from that of the sum.

    values  as `forward` gives them; the sum itself is not read
    """
    count = len(needed)
    leads = list(needed)
    for step in steps:
        leads.append(any(leads[position] for position in step.positions))
    adjoints: list[Any] = [None] * len(leads)
    adjoints[-1] = adjoint
    for number in reversed(range(len(steps))):
        step = steps[number]
        seed = adjoints[count + number]
        if not leads[count + number]:
            continue
        if len(step.positions) == 1:
            (position,) = step.positions
            adjoints[position] = _expanded(library, seed, step.axes, values[position].shape)
            continue
        (left, right), (of_left, of_right, of_both) = step.positions, step.axes
        if leads[left]:
            adjoints[left] = einsum([seed, values[right]], (of_both, of_right, of_left))
        if leads[right]:
            adjoints[right] = einsum([values[left], seed], (of_left, of_both, of_right))
    return [adjoint if is_needed else None for adjoint, is_needed in zip(adjoints, needed)]


def push(einsum: Einsum, values: Sequence[Any], steps: Sequence[Step], tangents: Sequence[Any]) -> Any:
    """The tangent of the sum, along those of operands, of which some are None and stand for zeros."""
    tangents = list(tangents)
    for step in steps:
        parts = []
        for k, position in enumerate(step.positions):
            if tangents[position] is not None:
                arrays = [values[other] for other in step.positions]
                arrays[k] = tangents[position]
                parts.append(einsum(arrays, step.axes))
        tangents.append(sum(parts[1:], parts[0]) if parts else None)
    return tangents[-1]


def _expanded(library: Any, of: Any, axes: tuple[Axes, ...], shape: Sequence[int]) -> Any:
    """An array whose axes are some of others, repeated along the rest."""
    whole, inside = axes
    turn = [inside.index(axis) for axis in whole if axis in inside]
    turned = of.permute(turn) if hasattr(of, "permute") else of.transpose(turn)
    return library.broadcast_to(turned[tuple(slice(None) if axis in inside else None for axis in whole)], shape)


def needed(axes: Axes, others: Sequence[Axes], result: Axes) -> Axes:
    """Which axes of a product are still needed, those of the result first and in its order."""
    wanted = set(result).union(*others)
    inside = [axis for axis in result if axis in axes]
    return (*inside, *(axis for axis in dict.fromkeys(axes) if axis in wanted and axis not in inside))


def joined(
    left: Axes, left_count: float, right: Axes, right_count: float, inside: Axes, sizes: dict[int, int]
) -> tuple[float, float]:
    """(how many products there are, how many entries their sums have), if entries are anywhere with equal chance."""
    shared = math.prod(sizes[axis] for axis in set(left) & set(right))
    work = left_count * right_count / max(1, shared)
    return work, min(work, float(math.prod(sizes[axis] for axis in inside)))


def is_dense_between(axes: Axes, count: float, sizes: dict[int, int]) -> bool:
    """Whether a result between steps, with that number of entries, is dense."""
    return count * _SPARSE > math.prod(sizes[axis] for axis in axes)


def order_of(terms: list[Term], result: Axes, sizes: dict[int, int]) -> list[tuple[int, int]]:
    """The positions of the two terms of each step, among the terms that remain: the product becomes the last one."""
    steps: list[tuple[int, int]] = []
    if len(terms) == 2:
        return [(0, 1)]
    if 2 < len(terms) <= _MANY:
        return _cheapest(terms, result, sizes)
    while len(terms) > 1:
        best = None
        for first in range(len(terms)):
            for second in range(first + 1, len(terms)):
                others = [axes for k, (axes, _, _) in enumerate(terms) if k not in (first, second)]
                cost, made = _product(terms[first], terms[second], others, result, sizes)
                key = cost + made[1] - terms[first][1] - terms[second][1]
                if best is None or key < best[0]:
                    best = key, first, second, made
        assert best is not None
        _, first, second, made = best
        steps.append((first, second))
        terms = [term for k, term in enumerate(terms) if k not in (first, second)] + [made]
    return steps


def _product(
    left: Term, right: Term, others: Sequence[Axes], result: Axes, sizes: dict[int, int]
) -> tuple[float, Term]:
    """(what a step costs, its result)"""
    inside = needed((*left[0], *right[0]), others, result)
    work, count = joined(left[0], left[1], right[0], right[1], inside, sizes)
    cost = work * _DENSE_STEP if left[2] and right[2] else work
    return cost + left[1] + right[1], (inside, count, is_dense_between(inside, count, sizes))


def _cheapest(terms: list[Term], result: Axes, sizes: dict[int, int]) -> list[tuple[int, int]]:
    """As `order_of`, the best of all orders, by dynamic programming over subsets."""
    count = len(terms)
    best: dict[int, tuple[float, Term, tuple[int, int] | None]] = {
        1 << position: (0.0, term, None) for position, term in enumerate(terms)
    }
    for subset in sorted(range(1, 1 << count), key=int.bit_count):
        if subset in best:
            continue
        others = [axes for k, (axes, _, _) in enumerate(terms) if not subset >> k & 1]
        part = (subset - 1) & subset
        while part > subset ^ part:
            (first, left, _), (second, right, _) = best[part], best[subset ^ part]
            cost, made = _product(left, right, others, result, sizes)
            if subset not in best or first + second + cost < best[subset][0]:
                best[subset] = (first + second + cost, made, (part, subset ^ part))
            part = (part - 1) & subset
    steps: list[tuple[int, int]] = []
    left_over = [1 << position for position in range(count)]

    def visit(subset: int) -> None:
        parts = best[subset][2]
        if parts is not None:
            for part in parts:
                visit(part)
            first, second = sorted(left_over.index(part) for part in parts)
            steps.append((first, second))
            left_over[:] = [each for each in left_over if each not in parts] + [subset]

    visit((1 << count) - 1)
    return steps
