"""Tensors as nested dictionaries, {index: {index: number}}."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from derivable.core.arguments import is_integer
from derivable.core.arrays import as_array
from derivable.core.diagnostics import DomainError, LayoutError, ShapeError
from derivable.tensor.values.libraries import named

# No tensor has more axes than NumPy's.
_DEEPEST = 64


def nested_entries(
    value: Mapping, shape: tuple[int, ...] | None, order: int | None, name: str
) -> tuple[tuple[int, ...], np.ndarray, np.ndarray]:
    """What nested dictionaries hold, in their order: a shape, indices [axis, entry] int64, values [entry].

    shape  that it has; without one, the least that has room for all of it
    order  the number of axes, where there is no shape
    name   of the tensor, for messages

    Raises ShapeError for numbers at different depths and where the depth is not known, LayoutError for keys that are
    no indices, DomainError for what is no number.
    """
    axes = len(shape) if shape is not None else order
    paths: list[tuple[int, ...]] = []
    values: list[Any] = []
    what = name or "tensor"

    def visit(inner: Any, path: tuple[int, ...]) -> None:
        nonlocal axes
        place = what + "".join(f"[{key}]" for key in path)
        if isinstance(inner, Mapping):
            if len(path) == axes:
                raise ShapeError(f"{place} is a dictionary, where a tensor of order {axes} has a number")
            for key, part in inner.items():
                if not is_integer(key) or not 0 <= key < 1 << 63:
                    raise LayoutError(
                        f"the key {key!r} of {place} is no index", hint="indices are integers from 0 on, of 63 bits"
                    )
                if len(path) == _DEEPEST:
                    raise ShapeError(f"{what} has dictionaries in more than {_DEEPEST} others")
                visit(part, (*path, int(key)))
            return
        if axes is None:
            axes = len(path)
        if len(path) != axes:
            raise ShapeError(f"{place} is {inner!r}, where a tensor of order {axes} has a dictionary")
        if inner is None or isinstance(inner, str) or np.ndim(inner):
            raise DomainError(f"{place} is {inner!r}, which is no number")
        paths.append(path)
        values.append(inner)

    visit(value, ())
    if axes is None:
        raise ShapeError(
            f"how many axes {f'`{name}`' if name else 'the tensor'} has is not known, it has no entries",
            hint="give its shape",
        )
    indices = np.array(paths, np.int64).reshape(-1, axes).T
    if shape is None:
        shape = tuple(int(size) for size in indices.max(axis=1, initial=-1) + 1)
    return shape, indices, as_array(values, f"a number{named(name)}") if values else np.empty(0)
