"""Tensors in a storage format."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from derivable.algebra.semiring import Semiring
from derivable.core.arguments import integer
from derivable.core.diagnostics import LayoutError, OutOfMemory, UnsupportedError
from derivable.tensor.formats.bounds import check_bounds
from derivable.tensor.formats.format import Format, format_of
from derivable.tensor.values import (
    Coordinates,
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

    Raises ShapeError for another order, UnsupportedError if it is held in another format already, and OutOfMemory for
    formats that take memory for every index of an axis that is too long.
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
            check_bounds(format, tuple(value.shape), own)
            return Held(format, tuple(value.shape), own)
    if is_dense(value):
        value = dense(value, semiring=semiring, name=name)
    stored = getattr(value, "format", None)
    is_rows = library == "scipy" and stored in ("csr", "csc")
    has_shape = hasattr(value, "shape")
    shape = tuple(value.shape) if has_shape else ()
    if format is None:
        format = format_of("dense" if isinstance(value, np.ndarray) else str(stored) if is_rows else "coo", order)
    if has_shape:
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
        own = packed(format, entries, zero, name)
        for part, kind in format.arrays.items():
            # What is not the caller's need not be looked at again: see `Pattern.fits`.
            if kind != "real":
                own[part] = own[part] if own[part].base is None else own[part].copy()
                own[part].setflags(write=False)
    return Held(format, shape, own)


# The kinds of NumPy's dtypes that an array of a format may have.
_DTYPES = {"real": "fb", "bool": "b"}


def packed(format: Format, entries: Coordinates, zero: Any, name: str) -> dict[str, Any]:
    """The arrays and sizes of a tensor. Raises OutOfMemory, and LayoutError for what a user's format does not give."""
    # Its errors come before those of what is packed for it.
    _ = format.node
    try:
        found = format.pack(entries, zero)
    except MemoryError:
        raise OutOfMemory(
            f"{f'`{name}`' if name else 'the tensor'} of shape {list(entries.shape)} does not fit into memory as "
            f"`{format.name}`",
            hint="`coo`, `csf` and `hashed` take memory for its entries only",
        ) from None
    for part in (*format.arrays, *format.sizes):
        if part not in found:
            given = ", ".join(f"`{other}`" for other in found) or "nothing"
            raise LayoutError(f"`pack` of the format `{format.name}` gives no `{part}`", hint=f"it gives {given}")
    for part, kind in format.arrays.items():
        array, kinds = found[part], _DTYPES.get(kind, "iu")
        if not isinstance(array, np.ndarray) or array.ndim != 1 or array.dtype.kind not in kinds:
            is_array = isinstance(array, np.ndarray)
            shown = f"an array {list(array.shape)} of {array.dtype}" if is_array else f"a {type(array).__name__}"
            wanted = {"real": "values", "bool": "truth values"}.get(kind, "integers")
            raise LayoutError(
                f"`pack` of the format `{format.name}` gives {shown} as `{part}`, which is an array of {wanted}",
                hint="arrays of formats have one axis",
            )
    for part in format.sizes:
        integer(found[part], f"`{part}`, which `pack` of the format `{format.name}` gives,")
    check_bounds(format, entries.shape, found)
    return found
