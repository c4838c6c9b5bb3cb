"""Tensors in a storage format."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from derivable.algebra.semiring import Semiring
from derivable.core.arguments import integer
from derivable.core.diagnostics import DerivableError, LayoutError, OutOfMemory, UnsupportedError
from derivable.tensor.formats.bounds import Packed, check_bounds, is_known
from derivable.tensor.formats.format import Format, format_of
from derivable.tensor.formats.standard import PLAIN
from derivable.tensor.language import nodes as t
from derivable.tensor.language.program import Program
from derivable.tensor.language.types import tensor
from derivable.tensor.values.libraries import check_scipy
from derivable.tensor.values.values import (
    Coordinates,
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
    """A tensor in a storage format: its arrays and sizes, by the names in the format's definition. `hold` makes it,
    and looks at what it makes; arrays that are put together by hand are taken as they are.

    filled  the name of the semiring whose zeros stand where the format has places without an entry; "" if none do
    """

    format: Format
    shape: tuple[int, ...]
    arrays: Mapping[str, Any]
    filled: str = ""

    def coordinates(self) -> Coordinates:
        """The entries, in order; those of a format that fills places up are entries like others."""
        return entries_of(self)

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

    value   in any form that `values.coordinates` takes
    format  by name, or one's own; None: "csr" and "csc" of SciPy stay what they are, arrays are "dense", others "coo"
    order   the number of axes
    name    of the tensor, for messages

    Raises ShapeError for another order, UnsupportedError if it is held in another format or for another semiring
    already, and OutOfMemory for formats that take memory for every index of an axis that is too long.
    """
    semiring = scalar_semiring(semiring)
    if isinstance(format, str):
        format = format_of(format, integer(order, "the order", 0))
    if isinstance(value, Held):
        return _held_already(value, format, order, semiring, name)
    library = library_of(value)
    if format is not None and library == "numpy" and not isinstance(value, np.ndarray):
        # An object that the user's format knows.
        own = format.own(value)
        if own is not None:
            check_arrays(format, tuple(value.shape), own, "own")
            return Held(format, tuple(value.shape), own)
    if is_dense(value):
        value = dense(value, semiring=semiring, name=name)
    stored = getattr(value, "format", None)
    has_shape = hasattr(value, "shape")
    shape = tuple(value.shape) if has_shape else ()
    if has_shape:
        check_shape(shape, None, order, name)
    is_rows = library == "scipy" and stored in ("csr", "csc") and order == 2
    if format is None:
        format = format_of("dense" if isinstance(value, np.ndarray) else str(stored) if is_rows else "coo", order)
    # Values of another type are converted on the way through coordinates.
    is_as_it_is = not is_rows or elements(value.data, semiring, name) is value.data
    own = format.own(value) if is_as_it_is else None
    filled = ""
    if own is not None:
        if is_rows:
            check_scipy(value, name)
        elif not is_known(format):
            check_arrays(format, shape, own, "own")
    else:
        entries = coordinates(value, semiring=semiring, order=order, name=name)
        shape = entries.shape
        (zero,) = semiring.typed("float64").zero
        own, filled = packed(format, entries, zero, name, semiring), semiring.name
        for part, kind in format.arrays.items():
            # What is not the caller's need not be looked at again: see `Pattern.fits`.
            if kind != "real":
                own[part] = own[part] if own[part].base is None else own[part].copy()
                own[part].setflags(write=False)
    return Held(format, shape, own, filled)


def by_first_axes(held: Held, semiring: str | Semiring) -> Held:
    """The same entries, so stored that what the first indices lead to is looked up."""
    order, entries = len(held.shape), entries_of(held, semiring)
    # Where most rows are empty, they take more than the entries.
    is_full = order == 2 and held.shape[0] <= 4 * len(entries.values)
    return hold(entries, "csr" if is_full else "csf", order, semiring)


def _held_already(value: Held, format: Format | None, order: int, semiring: Semiring, name: str) -> Held:
    what = f"`{name}`" if name else "the tensor"
    check_shape(value.shape, None, order, name)
    if format is not None and value.format != format:
        raise UnsupportedError(f"{what} is held as `{value.format.name}` and was declared `{format.name}`")
    if value.filled not in ("", semiring.name) and value.format.name not in PLAIN:
        raise UnsupportedError(
            f"{what} is held as `{value.format.name}` with the zeros of the semiring {value.filled!r}, and is needed "
            f"in {semiring.name!r}",
            hint=f"`hold(..., semiring={semiring.name!r})` holds it for that one",
        )
    missing = [part for part in (*value.format.arrays, *value.format.sizes) if part not in value.arrays]
    if missing:
        raise LayoutError(f"{what} is held as `{value.format.name}` without its `{missing[0]}`", hint="`hold` makes it")
    values = {part: value.arrays[part] for part, kind in value.format.arrays.items() if kind == "real"}
    found = {part: elements(array, semiring, name) for part, array in values.items()}
    if all(found[part] is array for part, array in values.items()):
        return value
    return Held(value.format, value.shape, {**value.arrays, **found}, value.filled)


# What arrays of formats may be of.
_INTEGERS = (np.int64, np.int32, np.int16, np.int8, np.uint32, np.uint16, np.uint8)
_DTYPES: dict[str, Sequence[Any]] = {"real": (np.float64, np.float32, np.bool_), "bool": (np.bool_,)}


def packed(
    format: Format, entries: Coordinates, zero: Any, name: str, semiring: str | Semiring = "real"
) -> dict[str, Any]:
    """The arrays and sizes of a tensor, in a semiring with that zero. Raises OutOfMemory, and LayoutError for what a
    user's format does not give, or does not hold of the entries."""
    # Its errors come before those of what is packed for it.
    _ = format.node
    try:
        found = format.pack(entries, zero)
    except DerivableError:
        raise
    except MemoryError:
        raise OutOfMemory(
            f"{f'`{name}`' if name else 'the tensor'} of shape {list(entries.shape)} does not fit into memory as "
            f"`{format.name}`",
            hint="`coo`, `csf` and `hashed` take memory for its entries only",
        ) from None
    except Exception as error:
        raise LayoutError(
            f"`pack` of the format `{format.name}` failed with {type(error).__name__}: {error}",
            hint="it is called with the entries and the zero: `pack(entries, zero)`",
        ) from error

    def read() -> Coordinates:
        return entries_of(Held(format, entries.shape, found), semiring)

    check_arrays(format, entries.shape, found, "pack", Packed(entries, zero, read))
    return found


def entries_of(held: Held, semiring: str | Semiring = "real") -> Coordinates:
    """The entries of a stored tensor: the result of the program that is its name."""
    program = Program(t.Var("T"), {"T": tensor(len(held.shape))})
    return program(T=held, semiring=semiring, output="coordinates")


def check_arrays(format: Format, shape: tuple[int, ...], found: Any, who: str, packed: Packed | None = None) -> None:
    """Raises LayoutError for what is not what a format of the user's says that `who`, its function, gives."""
    if not isinstance(found, Mapping):
        raise LayoutError(
            f"`{who}` of the format `{format.name}` gives a {type(found).__name__}, and not {{name: array}}",
            hint=f"its names are {', '.join((*format.arrays, *format.sizes))}",
        )
    for part in (*format.arrays, *format.sizes):
        if part not in found:
            given = ", ".join(f"`{other}`" for other in found) or "nothing"
            raise LayoutError(f"`{who}` of the format `{format.name}` gives no `{part}`", hint=f"it gives {given}")
    for part, kind in format.arrays.items():
        array, dtypes = found[part], _DTYPES.get(kind, _INTEGERS)
        is_array = isinstance(array, np.ndarray)
        if not is_array or array.ndim != 1 or array.dtype not in dtypes:
            shown = f"an array {list(array.shape)} of {array.dtype}" if is_array else f"a {type(array).__name__}"
            wanted = {"real": "values", "bool": "truth values"}.get(kind, "integers")
            fitting = ", ".join(dtype.__name__ for dtype in dtypes)
            raise LayoutError(
                f"`{who}` of the format `{format.name}` gives {shown} as `{part}`, which is an array of {wanted}",
                hint=f"arrays of {wanted} are of {fitting}" if is_array and array.ndim == 1 else "they have one axis",
            )
    for part in format.sizes:
        integer(found[part], f"`{part}`, which `{who}` of the format `{format.name}` gives,")
    check_bounds(format, shape, found, packed)
