"""Sums of products of two arrays in which zero times an infinity or NaN is zero, as in every storage format.

A library gives NaN for such a product. So where a sum has a NaN, it is computed once more, the finite products apart
from those that are not. The derivatives are sums of the same kind, of adjoints and the other operand: `torch_products`
and `jax_products` have these rules, since a library would differentiate the cases that are told apart here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any

# The axes of a left operand, a right one and the result, by number; each is among those of the two others.
Axes = tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]
Einsum = Callable[..., Any]


def by_left(axes: Axes) -> Axes:
    """The axes of (adjoint, right operand), whose sum of products is the derivative by the left operand."""
    return axes[2], axes[1], axes[0]


def by_right(axes: Axes) -> Axes:
    """The axes of (left operand, adjoint), likewise."""
    return axes[0], axes[2], axes[1]


def with_batch(axes: Axes, is_mapped: Sequence[bool]) -> Axes:
    """The axes for many sums at once, along a new first axis of the operands that are mapped and of the result."""
    new = (1 + max(max(of, default=0) for of in axes),)
    left, right = (new + of if mapped else of for of, mapped in zip(axes, is_mapped))
    return left, right, new + axes[2]


def interleaved(arrays: Sequence[Any], axes: Axes) -> list[Any]:
    """Arguments of an `einsum`: each operand with its axes, then those of the result."""
    return [arrays[0], list(axes[0]), arrays[1], list(axes[1]), list(axes[2])]


def exact_product(library: Any, einsum: Einsum, left: Any, right: Any) -> Any:
    """The sum of products of two arrays, where zero times an infinity or NaN is zero.

    library  of the arrays: `numpy`, `torch` or `jax.numpy`
    einsum   (left, right) -> the sum, in which that would be NaN
    """
    where, isnan, isinf = library.where, library.isnan, library.isinf
    is_finite = library.isfinite(left), library.isfinite(right)
    finite = tuple(where(known, x, 0.0) for known, x in zip(is_finite, (left, right)))
    signs = tuple(where(isnan(x), 0.0, library.sign(x)) for x in (left, right))
    infinite = tuple(where(isinf(x), sign, 0.0) for x, sign in zip((left, right), signs))
    # Of products that are infinite: those with an infinite left factor, and those with an infinite right one alone.
    pairs = ((infinite[0], signs[1]), (where(is_finite[0], signs[0], 0.0), infinite[1]))
    balance = reduce(library.add, [einsum(*pair) for pair in pairs])
    number = reduce(library.add, [einsum(*(library.abs(x) for x in pair)) for pair in pairs])
    unknown = einsum(1.0 * isnan(left), 1.0 * (right != 0)) + einsum(1.0 * (left != 0), 1.0 * isnan(right))
    found = einsum(*finite)
    found = found + where(number + balance > 0, float("inf"), 0.0)
    found = found - where(number - balance > 0, float("inf"), 0.0)
    return found + where(unknown > 0, float("nan"), 0.0)
