"""Sums of products of arrays in which zero times an infinity or NaN is zero, as in every storage format.

A library gives NaN for such a product. So where a sum has a NaN, it is computed once more: its finite terms by
themselves, and then whether there are terms that are infinite or NaN. These are sums of the same kind, of zeros and
ones and of signs. They go by the same steps, in which numbers that cancel differ from terms that are not there.

The derivatives are such sums as well, of the adjoint and of the other operands: `torch_products` and `jax_products`
have these rules, since a library would differentiate the case distinctions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from derivable.bridge.contraction_steps import Axes

# The axes of each operand and then those of the result, by number. None is twice in an operand, and each of the
# result's is in some operand.
AllAxes = tuple[Axes, ...]


def replaced(operands: Sequence[Any], position: int, by: Any) -> list[Any]:
    """The operands with another one at that position."""
    return [*operands[:position], by, *operands[position + 1 :]]


def adjoint_product(
    operands: Sequence[Any], axes: AllAxes, position: int, adjoint: Any, ones: Callable[[int], Any]
) -> tuple[list[Any], AllAxes]:
    """(arrays, axes): the adjoint of the operand at that position, as a sum of products.

    The adjoint of the sum replaces the operand. The result is constant along an axis that no other array has: an array
    of ones follows for each of these axes.

    ones  makes an array of that many
    """
    of = axes[position]
    *their, _ = replaced(axes, position, axes[-1])
    rest = [axis for axis in of if not any(axis in other for other in their)]
    sizes = dict(zip(of, operands[position].shape))
    arrays = [*replaced(operands, position, adjoint), *[ones(sizes[axis]) for axis in rest]]
    return arrays, (*their, *[(axis,) for axis in rest], of)


def with_batch(axes: AllAxes, is_mapped: Sequence[bool]) -> AllAxes:
    """The axes for many sums at once, along a new first axis of the operands that are mapped and of the result."""
    new = (1 + max(max(of, default=0) for of in axes),)
    return tuple(new + of if mapped else of for of, mapped in zip(axes, (*is_mapped, True)))


def shape_of(shapes: Sequence[Sequence[Any]], axes: AllAxes) -> tuple[Any, ...]:
    """The shape of a sum of operands of these shapes."""
    sizes = {axis: size for of, shape in zip(axes, shapes) for axis, size in zip(of, shape)}
    return tuple([sizes[axis] for axis in axes[-1]])


def interleaved(arrays: Sequence[Any], axes: AllAxes) -> list[Any]:
    """Arguments of an `einsum`: each operand with its axes, then those of the result."""
    return [part for pair in zip(arrays, map(list, axes)) for part in pair] + [list(axes[-1])]


def exact_sum(
    library: Any,
    sums: Callable[[list[list[Any]]], Sequence[Any]],
    operands: Sequence[Any],
    has_any: Callable[[Any], bool],
) -> Any:
    """The sum of products of arrays, where zero times an infinity or NaN is zero.

    library  of the arrays: `numpy`, `torch` or `jax.numpy`
    sums     the sums of products of several lists of operands, of finite numbers
    has_any  whether some of these truth values hold; where that is not known, yes
    """
    where, isnan = library.where, library.isnan
    is_nan, is_infinite = list(map(isnan, operands)), list(map(library.isinf, operands))
    ones, zeros = list(map(library.ones_like, operands)), list(map(library.zeros_like, operands))
    finite = [where(library.isfinite(x), x, zero) for x, zero in zip(operands, zeros)]
    not_zero = [where(x != 0, one, zero) for x, one, zero in zip(operands, ones, zeros)]
    signs = [where(missing, zero, library.sign(x)) for missing, zero, x in zip(is_nan, zeros, operands)]
    sizes = list(map(library.abs, signs))

    def with_part(of: list[Any], position: int, part: Any) -> list[Any]:
        """`of`, with zeros outside of that part of the array at that position."""
        return replaced(of, position, where(part, of[position], zeros[position]))

    # A sum of numbers that are not negative is zero only where there is no term.
    unknown = [with_part(not_zero, k, part) for k, part in enumerate(is_nan) if has_any(part)]
    infinite = [with_part(sizes, k, part) for k, part in enumerate(is_infinite) if has_any(part)]
    signed = [with_part(signs, k, part) for k, part in enumerate(is_infinite) if has_any(part)]
    total, *others = sums([finite, *unknown, *infinite, *signed])
    first, last = len(unknown), len(unknown) + len(infinite)
    if infinite:
        number, balance = sum(others[first + 1 : last], others[first]), sum(others[last + 1 :], others[last])
        total = total + where(number + balance > 0, float("inf"), 0.0)
        total = total - where(number - balance > 0, float("inf"), 0.0)
    if unknown:
        total = total + where(sum(others[1:first], others[0]) > 0, float("nan"), 0.0)
    return total
