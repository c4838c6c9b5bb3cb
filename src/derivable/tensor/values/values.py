"""Values of tensors: what users have (arrays, sparse matrices, dictionaries, files) as coordinates, and back.

`Coordinates` is what every storage format packs from and unpacks to. What it does not hold is the zero of the semiring;
a zero that it holds is as good as none.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from numbers import Real
from typing import Any
from weakref import WeakSet

import numpy as np

from derivable.algebra import semirings
from derivable.algebra.semiring import Semiring
from derivable.core import html
from derivable.core.arguments import integer, is_integer
from derivable.core.arrays import as_array
from derivable.core.diagnostics import DomainError, LayoutError, OutOfMemory, ShapeError, UnsupportedError
from derivable.core.lazy import optional_module
from derivable.core.registry import Registry
from derivable.device.cpu.memory import full
from derivable.parallel.order import order_of
from derivable.tensor.values.libraries import array_of_torch, check_indices, imported, named, reading, sparse_entries
from derivable.tensor.values.nested import nested_entries
from derivable.tensor.values.order import firsts

# Entries that a notebook shows.
_SHOWN_ENTRIES = 20
LIBRARIES = (
    "NumPy arrays, scipy.sparse, torch tensors, `sparse` arrays, JAX arrays and BCOO, nested dictionaries and Matrix "
    "Market files"
)


class Unfrozen:
    """Coordinates whose fields are being set, before `__class__` says that they are Coordinates.

    What a frozen dataclass does to set its fields takes a third of a small call.
    """

    __slots__ = ("__weakref__", "indices", "shape", "values")


@dataclass(frozen=True, eq=False, slots=True)
class Coordinates(Unfrozen):
    """A tensor by its entries, sorted by their indices, the last axis fastest; no two entries have the same indices.

    shape    (size of each axis)
    indices  [axis, entry] int64
    values   [entry] elements of a semiring, in calls that are differentiated an array of torch or JAX
    """

    shape: tuple[int, ...]
    indices: np.ndarray
    values: Any

    def _repr_html_(self) -> str:
        """The first entries as a table, for notebooks."""
        shown = getattr(self.values, "detach", lambda: self.values)()[:_SHOWN_ENTRIES].tolist()
        rows = [(*place, value) for place, value in zip(self.indices[:, :_SHOWN_ENTRIES].T.tolist(), shown)]
        rest = self.num_entries - len(rows)
        more = f"<div>… {rest:,} more {'entry' if rest == 1 else 'entries'}</div>" if rest else ""
        header = [*(f"axis {axis}" for axis in range(self.order)), "value"]
        return f"<div><b>{html.safe(self)}</b></div>{html.table(header, rows)}{more}"

    @classmethod
    def of(
        cls, shape: Any, indices: Any, values: Any, semiring: str | Semiring = "real", name: str = ""
    ) -> Coordinates:
        """Coordinates in any order; entries with the same indices are added up, by the plus of the semiring.

        shape    (size of each axis)
        indices  [axis, entry] integers
        values   [entry] numbers
        name     of the tensor, for messages

        Raises ShapeError if lengths differ, LayoutError for an index outside the shape or one that is no integer,
        DomainError for values that are no elements of the semiring.
        """
        record, shape = scalar_semiring(semiring), checked_shape(shape, f"a size{named(name)}")
        try:
            values = elements(values, record, name)
        except ValueError:
            raise ShapeError(f"the values{named(name)} are a list of lists of different lengths") from None
        indices = _checked_indices(indices, shape, values, name)
        return cls._sorted(shape, np.ascontiguousarray(indices, np.int64), values, record)

    def checked(self, name: str = "") -> Coordinates:
        """Itself, once it is known to be what it should be: a kernel goes wherever the indices say.

        Raises ShapeError and LayoutError as `of`, and LayoutError for entries that are not in order.
        """
        if self not in _RIGHT:
            shape = checked_shape(self.shape, f"a size{named(name)}")
            indices = _checked_indices(self.indices, shape, self.values, name)
            keys = [linear(indices, shape)] if math.prod(shape) < 1 << 63 else list(indices)
            is_after, is_equal = np.zeros(max(indices.shape[1] - 1, 0), bool), True
            for key in keys:
                is_after |= is_equal & (key[1:] > key[:-1])
                is_equal &= key[1:] == key[:-1]
            if not is_after.all():
                entry = int(np.flatnonzero(~is_after)[0]) + 1
                raise LayoutError(
                    f"entry {entry}{named(name)} at {indices[:, entry].tolist()} comes after one at "
                    f"{indices[:, entry - 1].tolist()}, and entries are in order, each once",
                    hint="`Coordinates.of` takes them in any order and adds equal ones up",
                )
            _RIGHT.add(self)
        return self

    @classmethod
    def _sorted(cls, shape: tuple[int, ...], indices: np.ndarray, values: np.ndarray, record: Semiring) -> Coordinates:
        """Of indices that are known to be right."""
        if math.prod(shape) < 1 << 63:
            keys = [linear(indices, shape)]
        else:
            keys = list(indices)
        order = order_of(keys)
        is_first = firsts([key[order] for key in keys])
        if isinstance(order, slice) and is_first.all():
            return cls(shape, indices, values)
        indices, values = np.ascontiguousarray(indices[:, order]), values[order]
        if not is_first.all():
            starts = np.flatnonzero(is_first)
            values = _added_up(values, np.append(starts, len(values)), record)
            indices = np.ascontiguousarray(indices[:, starts])
        return cls(shape, indices, values)

    @property
    def order(self) -> int:
        return len(self.shape)

    @property
    def num_entries(self) -> int:
        return len(self.values)

    def __repr__(self) -> str:
        return f"Coordinates({list(self.shape)}, {self.num_entries} entries of {self.values.dtype})"

    def transposed(self, axes: tuple[int, ...]) -> Coordinates:
        """The same entries with the axes in another order: the first axis of the result is axes[0] of this one.

        Raises ShapeError for what is no order of all axes.
        """
        if sorted(axes) != list(range(self.order)):
            raise ShapeError(f"{list(axes)} is no order of the axes of a tensor of shape {list(self.shape)}")
        shape = tuple(self.shape[axis] for axis in axes)
        return self._sorted(shape, self.indices[list(axes)], self.values, semirings.get("real"))

    def _numbers(self) -> np.ndarray:
        """[entry] values as an array of NumPy. Raises UnsupportedError for those that are differentiated."""
        return as_array(self.values, "the tensor of values")

    def to_numpy(self, zero: Any = 0.0) -> np.ndarray:
        """A dense array. zero: that of the semiring."""
        values = self._numbers()
        with fitting(self.shape):
            dense = full(self.shape, zero, values.dtype)
        # Without axes there is one entry or none.
        dense[tuple(self.indices)] = values if self.order or not len(values) else values[0]
        return dense

    def to_dict(self) -> Any:
        """Nested dictionaries {index: ...} with Python's numbers at the leaves; of order 0 the number."""
        if not self.order:
            return self.values.tolist()[0] if self.num_entries else 0.0
        nested: dict = {}
        for *path, last, value in zip(*self.indices.tolist(), self.values.tolist()):
            inner = nested
            for key in path:
                inner = inner.setdefault(key, {})
            inner[last] = value
        return nested

    def to_scipy(self, format: str = "coo") -> Any:
        """A sparse array of scipy: "coo" of any order, and "csr", "csc", "bsr", "dia", "dok", "lil" for matrices.

        Raises DomainError for an unknown format, UnsupportedError for other orders.
        """
        sparse = optional_module("scipy.sparse", "scipy", "sparse")
        if format not in _SCIPY:
            raise DomainError(f"scipy has no format {format!r}", hint=f"it has {', '.join(_SCIPY)}")
        if self.order != 2 and format != "coo":
            raise UnsupportedError(
                f"scipy's {format} holds matrices, and this is a tensor of order {self.order}",
                hint="ask for `scipy_coo`, or for `coordinates`",
            )
        found = sparse.coo_array((in_64_bits(self._numbers()), tuple(self.indices)), shape=self.shape)
        with fitting(self.shape):
            return found.asformat(format)

    def to_torch(self, layout: str = "coo") -> Any:
        """A sparse tensor of torch, "coo", or for matrices "csr".

        Raises DomainError for an unknown layout, UnsupportedError for other orders.
        """
        torch = optional_module("torch", "torch", "torch")

        if layout not in ("coo", "csr"):
            raise DomainError(f"the layout is {layout!r}", hint='it is "coo" or "csr"')

        values = as_torch(in_64_bits(self.values))
        if layout == "coo":
            indices = torch.from_numpy(self.indices)
            return torch.sparse_coo_tensor(indices, values, self.shape, check_invariants=False, is_coalesced=True)
        if self.order != 2:
            raise UnsupportedError(f"torch's csr holds matrices, and this is a tensor of order {self.order}")
        with fitting(self.shape):
            offsets = np.searchsorted(self.indices[0], np.arange(self.shape[0] + 1))
        columns = torch.from_numpy(self.indices[1])
        return torch.sparse_csr_tensor(torch.from_numpy(offsets), columns, values, self.shape, check_invariants=False)

    def to_sparse(self, zero: Any = 0.0) -> Any:
        """A `sparse.COO` of pydata. zero: that of the semiring."""
        sparse = optional_module("sparse", "sparse", "sparse")
        values = in_64_bits(self._numbers())
        fill = np.asarray(zero).astype(values.dtype)[()]
        return sparse.COO(self.indices, values, self.shape, has_duplicates=False, sorted=True, fill_value=fill)

    def to(self, form: str, zero: Any = 0.0) -> Any:
        """The tensor in one of `FORMS`. zero: that of the semiring.

        Raises DomainError for an unknown form, UnsupportedError for one that does not hold tensors of this order.
        """
        return FORMS[form](self, zero)


# Those that were looked at.
_RIGHT: WeakSet[Coordinates] = WeakSet()
_SCIPY = ("bsr", "coo", "csc", "csr", "dia", "dok", "lil")
# What `Coordinates.to` gives, by name: (coordinates, zero) -> value.
FORMS: Registry[Callable[[Coordinates, Any], Any]] = Registry(
    "form of a result",
    {
        "coordinates": lambda given, zero: given,
        "numpy": lambda given, zero: given.to_numpy(zero),
        "dict": lambda given, zero: given.to_dict(),
        "sparse": lambda given, zero: given.to_sparse(zero),
        "torch": lambda given, zero: torch_dense(given.to_numpy(zero)),
        "torch_coo": lambda given, zero: given.to_torch("coo"),
        "torch_csr": lambda given, zero: given.to_torch("csr"),
        **{f"scipy_{format}": lambda given, zero, format=format: given.to_scipy(format) for format in _SCIPY},
    },
    {"dense": "numpy", **{format: f"scipy_{format}" for format in _SCIPY}},
)


def _added_up(values: np.ndarray, offsets: np.ndarray, record: Semiring) -> np.ndarray:
    """[segment]"""
    if record.is_exact:
        # Python's integers have no kernels.
        from derivable.parallel.reference import segment_reduce
    else:
        from derivable.bridge.folds import segment_reduce
    return segment_reduce(record, values, offsets)


def torch_dense(array: np.ndarray) -> Any:
    """The array as a tensor of torch, which shares its memory."""
    torch = optional_module("torch", "torch", "torch")
    return torch.from_numpy(in_64_bits(array))


def as_torch(values: Any, device: Any = None) -> Any:
    """Numbers, or an array of any strides, as a tensor of torch on a device, with its memory where that can be."""
    import torch

    if isinstance(values, np.ndarray) and min(values.strides, default=0) < 0:
        # NumPy takes arrays for contiguous that torch does not, those of one place.
        values = values.copy()
    try:
        return torch.as_tensor(values, device=device)
    except Exception:
        # Torch has not all types of JAX.
        return torch.as_tensor(as_array(values, "an operand"), device=device)


def in_64_bits(values: Any) -> Any:
    """Python's integers as those of a library. Raises DomainError for one that is too large."""
    if not isinstance(values, np.ndarray) or values.dtype != object:
        return values
    try:
        return values.astype(np.int64)
    except OverflowError:
        raise DomainError(
            "an integer of the result does not fit into 64 bits",
            hint='`output="numpy"`, "coordinates" and "dict" hold integers of any size',
        ) from None


def checked_shape(shape: Any, what: str) -> tuple[int, ...]:
    """Sizes, of one axis or several. Raises DomainError for what is none; `what` is a size, for messages."""
    sizes = shape if isinstance(shape, Iterable) and not isinstance(shape, str) else [shape]
    return tuple(integer(size, what, 0) for size in sizes)


def _checked_indices(indices: Any, shape: tuple[int, ...], values: Any, name: str) -> np.ndarray:
    with reading("NumPy", name):
        found = np.asarray(indices)
    if len(values.shape) != 1 or found.shape != (len(shape), len(values)):
        raise ShapeError(
            f"the indices{named(name)} are {list(found.shape)}, [axis, entry], for {list(values.shape)} values of a "
            f"tensor of order {len(shape)}"
        )
    return check_indices(found, shape, name)


def linear(indices: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """[entry] the place of each entry in an array of that shape, the last axis fastest; below 2^63."""
    place = np.zeros(indices.shape[1], np.int64)
    for size, index in zip(shape, indices):
        place = place * size + index
    return place


def entries_at(indices: np.ndarray, of: Coordinates) -> tuple[np.ndarray, np.ndarray]:
    """[index] (the position of the entry with this index, whether there is one), in a tensor that has some entry."""
    wanted, stored = linear(indices, of.shape), linear(of.indices, of.shape)
    positions = np.minimum(np.searchsorted(stored, wanted), len(stored) - 1)
    return positions, stored[positions] == wanted


@contextmanager
def fitting(shape: tuple[int, ...]) -> Iterator[None]:
    """Raises OutOfMemory where arrays are made that grow with that shape, and there is no memory for them."""
    try:
        yield
    except MemoryError:
        raise not_fitting(shape) from None


def not_fitting(shape: tuple[int, ...]) -> OutOfMemory:
    """What `fitting` raises."""
    return OutOfMemory(
        f"there is no memory for each index of a tensor of shape {list(shape)}",
        hint="`coo`, `csf` and `hashed` hold entries only, and results may be `coordinates`",
    )


def scalar_semiring(semiring: str | Semiring) -> Semiring:
    """The semiring. Raises UnsupportedError if its values are not single numbers."""
    record = semirings.get(semiring)
    if not record.is_scalar:
        raise UnsupportedError(
            f"an element of the semiring {record.name!r} is a nest of numbers, and an entry of a tensor is one number, "
            "as in all libraries that tensors come from",
            hint="have a tensor for each part, in a semiring of numbers such as 'real', 'min_plus' or 'max_product'; "
            "nests of dense arrays are taken by `dv.tensor.einsum`, by `dv.parallel.scan`, `reduce` and "
            "`segment_reduce`, and by `to_torch` and `to_jax` of circuits, and nests as tags by `dv.Program` and "
            "`dv.nn.Logic`",
        )
    return record


def elements(values: Any, semiring: Semiring, name: str = "") -> np.ndarray:
    """Numbers as elements of a semiring: float32 and float64 stay, integers become float64; for bool what is not 0 is
    true; exact integers are of dtype object. An array of the same shape, the same one where that is possible.

    Raises DomainError for complex numbers, texts, and what lies outside the semiring's domain.
    """
    of = named(name)
    array = as_array(values, f"the tensor of values{of}")
    if array.dtype.kind not in "biuf" and not (array.dtype == object and all(map(is_integer, array.flat))):
        wrong = [x for x in array.flat if not isinstance(x, Real)] if array.dtype == object else None
        raise DomainError(
            f"the values{of} are of type {array.dtype}" + (f", such as {wrong[0]!r}" if wrong else ""),
            hint="`array.astype(float)` makes floats of them"
            if wrong == []
            else "give floats, integers or truth values",
        )
    if semiring.carrier == "bool":
        return array if array.dtype == bool else array != 0
    if semiring.carrier == "integer":
        if array.dtype.kind == "f" and not (array == np.floor(array)).all():
            wrong = array[array != np.floor(array)].flat[0]
            raise DomainError(f"{wrong}{of} is no integer, and the semiring {semiring.name!r} has integers")
        return array if array.dtype == object else np.vectorize(int, otypes=[object])(array)
    if array.dtype not in (np.float32, np.float64):
        try:
            array = array.astype(np.float64)
        except OverflowError:
            raise DomainError(f"an integer{of} is too large for a float of 64 bits") from None
    low, high = semiring.domains[0]
    if array.size and ((math.isfinite(low) and array.min() < low) or (math.isfinite(high) and array.max() > high)):
        wrong = array[(array < low) | (array > high)].flat[0]
        raise DomainError(f"{wrong}{of} is outside {low} to {high}, the values of the semiring {semiring.name!r}")
    return array


def coordinates(
    value: Any,
    *,
    shape: tuple[int, ...] | None = None,
    order: int | None = None,
    semiring: str | Semiring = "real",
    keep_zeros: bool = False,
    name: str = "",
) -> Coordinates:
    """The entries of a tensor in any form that users have.

    value       Coordinates, and tensors that are `Held` or `Factored`; arrays of NumPy and what becomes one;
                scipy.sparse of any format; torch tensors, dense or sparse (COO, CSR and the others); arrays of
                `sparse`; BCOO and other sparse arrays of JAX, whose padding is left out; nested dictionaries
                {index: {index: number}}; the path of a Matrix Market file (.mtx, .mtx.gz); relations of a Datalog
                database whose columns are integers, which are the indices, with their tags as values
    shape       what it must be; for dictionaries, which have none, what it is. Without it theirs is the least one
    order       the number of axes that it must have
    keep_zeros  whether the zeros of a dense array are entries too
    name        of the tensor, for messages

    Raises ShapeError for another order or shape; LayoutError for an index outside the shape; DomainError for values
    that are no elements of the semiring, and for what is no tensor; ParseError for a file that is damaged.
    """
    record = scalar_semiring(semiring)
    shape = None if shape is None else checked_shape(shape, f"a size{named(name)}")
    if is_relation(value):
        return _of_relation(value, shape, order, record, name)
    # One of scipy's formats is a dictionary too.
    if isinstance(value, Mapping) and library_of(value) == "coordinates":
        return Coordinates.of(*nested_entries(value, shape, order, name), record, name)
    if hasattr(value, "coordinates"):
        # Of a tensor in a storage format, and of an outer product.
        stored: Any = value
        value = stored.coordinates()
    if isinstance(value, (str, os.PathLike)):
        from derivable.tensor.values.matrix_market import read_matrix_market

        value = read_matrix_market(value)
    if isinstance(value, Coordinates):
        given = value.checked(name)
        found = Coordinates(given.shape, given.indices, elements(given.values, record, name))
    elif (entries := sparse_entries(value, library_of(value), record, name)) is not None:
        found = Coordinates.of(*entries, record, name)
    else:
        found = _of_dense(dense_array(value, name), record, keep_zeros, name)
    check_shape(found.shape, shape, order, name)
    return found


def dense(
    value: Any, *, semiring: str | Semiring = "real", shape: tuple[int, ...] | None = None, name: str = ""
) -> Any:
    """A tensor in any form, as `coordinates` takes it, as a dense NumPy array of elements of the semiring."""
    record = scalar_semiring(semiring)
    if is_dense(value):
        found = elements(dense_array(value, name), record, name)
        check_shape(found.shape, shape, None, name)
        return found
    return coordinates(value, shape=shape, semiring=record, name=name).to_numpy(record.zero)


def library_of(value: Any) -> str:
    """Whose a tensor is: "numpy", "scipy", "torch", "sparse", "JAX" for its sparse arrays, or "coordinates" for ours,
    dictionaries and files."""
    if (torch := imported("torch")) and isinstance(value, torch.Tensor):
        return "torch"
    if (scipy := imported("scipy.sparse")) and scipy.issparse(value):
        return "scipy"
    if (sparse := imported("sparse")) and isinstance(value, sparse.SparseArray):
        return "sparse"
    if (sparse := imported("jax.experimental.sparse")) and isinstance(value, sparse.JAXSparse):
        return "JAX"
    is_ours = isinstance(value, (Coordinates, Mapping, str, os.PathLike)) or hasattr(value, "coordinates")
    return "coordinates" if is_ours else "numpy"


def is_dense(value: Any) -> bool:
    """Whether a tensor comes as an array that holds every entry."""
    library = library_of(value)
    return library == "numpy" or (library == "torch" and str(value.layout) == "torch.strided")


def tracker(values: Iterable[Any], output: Any = None) -> str | None:
    """Who looks at what is computed: "torch" or "JAX", or "elsewhere" for torch on another device than the CPU; None if
    nobody does.

    output  the form of the result that is asked for: JAX arrays that are no tracers are arrays like others for others
    """
    torch, jax = imported("torch"), imported("jax")
    found, is_for_others = None, output not in (None, "dense", "coordinates")
    for value in values:
        numbers: Any = value.values if isinstance(value, Coordinates) else value
        if torch is not None and isinstance(numbers, torch.Tensor):
            if not numbers.is_cpu:
                return "elsewhere"
            if (numbers.requires_grad and torch.is_grad_enabled()) or _is_observed():
                found = "torch"
        elif jax is not None and isinstance(numbers, jax.Array) and not (is_for_others and is_concrete(numbers)):
            found = "JAX"
    return found


def has_torch(values: Iterable[Any]) -> bool:
    torch = imported("torch")
    return torch is not None and any(isinstance(value, torch.Tensor) for value in values)


def has_traced(values: Iterable[Any]) -> bool:
    """Whether some are arrays that JAX traces."""
    jax = imported("jax")
    return jax is not None and any(isinstance(x, jax.Array) and not is_concrete(x) for x in values)


def is_concrete(array: Any) -> bool:
    from jax.core import Tracer

    return not isinstance(array, Tracer)


def _is_observed() -> bool:
    from derivable.bridge.torch import is_observed

    return is_observed()


def in_torch(result: Any) -> Any:
    """Arrays, coordinates and numbers as tensors of torch; others as they are."""
    if isinstance(result, Coordinates):
        return result.to_torch()
    if isinstance(result, (np.ndarray, np.generic, float, bool)):
        return torch_dense(np.asarray(result))
    return result


def check_shape(found: tuple[int, ...], shape: tuple[int, ...] | None, order: int | None, name: str) -> None:
    """Raises ShapeError if a tensor has not the shape or the order that is asked for."""
    what = f"`{name}`" if name else "the tensor"
    if order is not None and len(found) != order:
        axes = "1 axis" if len(found) == 1 else f"{len(found)} axes"
        raise ShapeError(f"{what} has {axes}, of shape {list(found)}, where a tensor of order {order} is needed")
    if shape is not None and tuple(found) != tuple(shape):
        raise ShapeError(f"{what} has the shape {list(found)}, where {list(shape)} is needed")


def dense_array(value: Any, name: str = "") -> np.ndarray:
    """A dense tensor as an array of NumPy, without a copy where the library allows it.

    Raises DomainError for what is no array of numbers.
    """
    if (torch := imported("torch")) and isinstance(value, torch.Tensor):
        with reading("torch", name):
            return array_of_torch(value, name).numpy()
    try:
        array = as_array(value, f"the tensor{named(name)}")
    except ValueError:
        raise DomainError(
            f"the rows of the list{named(name)} have different lengths",
            hint="give a dictionary {index: {index: number}}",
        ) from None
    # What is in an array, and is no number, `elements` says.
    if array.dtype == object and not array.ndim and not is_integer(array.item()):
        raise DomainError(
            f"{type(value).__name__}{named(name)} is no tensor of numbers", hint=f"tensors are {LIBRARIES}"
        )
    return array


def _of_dense(array: np.ndarray, record: Semiring, keep_zeros: bool, name: str) -> Coordinates:
    values = elements(array, record, name)
    if keep_zeros:
        indices = np.indices(array.shape, dtype=np.int64).reshape(array.ndim, -1)
        return Coordinates(array.shape, indices, np.ascontiguousarray(values).reshape(-1))
    if not array.ndim:
        return Coordinates((), np.empty((0, 1), np.int64), values.reshape(1))
    places = np.nonzero(values != record.zero)
    return Coordinates(array.shape, np.stack(places).astype(np.int64, copy=False), values[places])


def is_sparse(value: Any) -> bool:
    """Whether something is a sparse tensor of a library, Coordinates, or a relation of integers."""
    if isinstance(value, Coordinates):
        return True
    if is_relation(value):
        return value.is_tensor
    library = library_of(value)
    return library in ("scipy", "sparse", "JAX") or (library == "torch" and not is_dense(value))


def is_relation(value: Any) -> bool:
    """Whether something is a relation, which says its entries by `__sparse_entries__`: (columns of indices [axis][row],
    values [row], None if all are the one of any semiring)."""
    return hasattr(value, "__sparse_entries__")


def _of_relation(
    value: Any, shape: tuple[int, ...] | None, order: int | None, record: Semiring, name: str
) -> Coordinates:
    """Without copies where rows are in order: of the values, and of the indices of a vector."""
    columns, tags = value.__sparse_entries__()
    check_shape(tuple(shape or (0,) * len(columns)), None, order, name)
    count = len(value)
    if tags is None or (tags.dtype == bool and record.carrier != "bool"):
        tags = np.where(np.ones(count, bool) if tags is None else tags, record.one, record.zero)
    if tags.dtype.names:
        raise DomainError(
            f"the tags{named(name)} are nests of {len(tags.dtype.names)} numbers, and entries are single numbers",
            hint="run the program under another provenance",
        )
    indices = columns[0][None] if len(columns) == 1 else np.stack(columns)
    if shape is None:
        shape = tuple(int(index.max(initial=-1)) + 1 for index in indices)
    return Coordinates.of(shape, indices, tags, record, name)
