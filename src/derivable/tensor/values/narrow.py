"""The types of results: those of torch and JAX have the widest type of the floats of their library among the operands.

Floats of 16 and 8 bits are computed with in 32 bits, and rounded once.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import reduce
from typing import Any

import numpy as np

from derivable.tensor.values.libraries import imported
from derivable.tensor.values.values import Coordinates, library_of


def widened(values: Sequence[Any]) -> tuple[Sequence[Any], Any]:
    """(the values, in float32 for floats of 16 and 8 bits, themselves if there are none; the type that a result is
    rounded to, None if it is not)."""
    # Types of frames have no sizes.
    if not any(getattr(getattr(_numbers(value), "dtype", None), "itemsize", 4) <= 2 for value in values):
        return values, None
    types = [_float_type(value) for value in values]
    known = {of for of in types if of is not None}
    if not any(of.itemsize <= 2 for of in known):
        return values, None
    wide = [_to(x, None) if of is not None and of.itemsize <= 2 else x for x, of in zip(values, types)]
    return wide, known.pop() if len(known) == 1 else None


def rounded(result: Any, dtype: Any) -> Any:
    """A result of torch or JAX in a type; others, and those of no floats, as they are."""
    known = _float_type(result)
    # A result of one library has no type of another.
    is_same = known is not None and isinstance(known, np.dtype) == isinstance(dtype, np.dtype)
    return _to(result, dtype) if dtype is not None and is_same else result


def widest(values: Iterable[Any]) -> Any:
    """The widest type of the floats of torch among values, which a result of torch has; None if there are none.

    Tensors without axes do not count beside others, as in torch itself.
    """
    import torch

    floats = [x for x in map(_numbers, values) if isinstance(x, torch.Tensor) and x.is_floating_point()]
    types = [x.dtype for x in floats if x.ndim] or [x.dtype for x in floats]
    return reduce(torch.promote_types, types) if types else None


def _numbers(value: Any) -> Any:
    return value.values if isinstance(value, Coordinates) else value


def _float_type(value: Any) -> Any:
    """Of the floats of torch and JAX."""
    numbers = _numbers(value)
    if (torch := imported("torch")) and isinstance(numbers, torch.Tensor):
        return numbers.dtype if numbers.is_floating_point() else None
    if (jax := imported("jax")) and (isinstance(numbers, jax.Array) or library_of(numbers) == "JAX"):
        return numbers.dtype if jax.numpy.issubdtype(numbers.dtype, jax.numpy.floating) else None
    return None


def _to(value: Any, dtype: Any) -> Any:
    """In a type of floats, None for float32."""
    if isinstance(value, Coordinates):
        return replace(value, values=_to(value.values, dtype))
    if (torch := imported("torch")) and isinstance(value, torch.Tensor):
        return value.to(dtype or torch.float32)
    import jax

    # A sparse array is a tree of its data and its indices.
    return jax.tree.map(lambda part: part if part.dtype.kind == "i" else part.astype(dtype or "float32"), value)
