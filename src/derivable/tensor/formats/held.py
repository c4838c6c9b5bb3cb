"""Tensors in a storage format."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from derivable.algebra.semiring import Semiring
from derivable.core.diagnostics import UnsupportedError
from derivable.tensor.formats.format import Format, format_of
from derivable.tensor.values import (
    check_compressed,
    check_shape,
    coordinates,
    dense,
    elements,
    is_dense,
    library_of,
    scalar_semiring,
)


@dataclass(frozen=True)
class Held:
    """A tensor in a storage format: its arrays and sizes, by the names in the format's definition."""

    format: Format
    shape: tuple[int, ...]
    arrays: Mapping[str, Any]

    @property
    def structure_parts(self) -> list[str]:
        """The names of what says where the entries are: of all but their values."""
        return [name for name in self.arrays if self.format.arrays.get(name) != "real"]

    @property
    def structure(self) -> list[Any]:
        return [self.arrays[name] for name in self.structure_parts]

    @property
    def num_values(self) -> int:
        """Places for values; of most formats the entries."""
        return max((len(x) for name, x in self.arrays.items() if self.format.arrays.get(name) == "real"), default=0)

    @property
    def signature(self) -> tuple:
        return self.format, tuple([self.arrays[name].dtype for name in self.format.arrays])


def hold(
    value: Any, format: str | Format | None, order: int, semiring: str | Semiring = "real", name: str = ""
) -> Held:
    """A tensor in a storage format, for kernels that are called with it again and again; in its own if none is given.

    Raises ShapeError for another order, UnsupportedError if it is held in another format already.
    """
    semiring = scalar_semiring(semiring)
    if isinstance(format, str):
        format = format_of(format, order)
    if isinstance(value, Held):
        if format is None or value.format == format:
            return value
        raise UnsupportedError(f"`{name}` is held as `{value.format.name}` and was declared `{format.name}`")
    library = library_of(value)
    if format is not None and library == "numpy" and not isinstance(value, np.ndarray):
        # An object that the user's format knows.
        own = format.own(value)
        if own is not None:
            return Held(format, tuple(value.shape), own)
    if is_dense(value):
        value = dense(value, semiring=semiring, name=name)
    stored = getattr(value, "format", None)
    is_rows = library == "scipy" and stored in ("csr", "csc")
    shape = tuple(getattr(value, "shape", ()))
    if format is None:
        format = format_of("dense" if isinstance(value, np.ndarray) else stored if is_rows else "coo", order)
    if shape:
        check_shape(shape, None, order, name)
    # Values of another type are converted on the way through coordinates.
    is_as_it_is = not is_rows or elements(value.data, semiring, name) is value.data
    own = format.own(value) if is_as_it_is else None
    if own is not None:
        if is_rows:
            check_compressed(value, name)
    else:
        entries = coordinates(value, semiring=semiring, order=order, name=name)
        shape = entries.shape
        (zero,) = semiring.typed("float64").zero
        own = format.pack(entries, zero)
        for part, kind in format.arrays.items():
            # What is not the caller's need not be looked at again: see `Pattern.fits`.
            if kind != "real":
                own[part] = own[part] if own[part].base is None else own[part].copy()
                own[part].setflags(write=False)
    return Held(format, shape, own)
