"""Values of tensors: what users have (arrays, sparse matrices, dictionaries, files) as coordinates, and back.

`Coordinates` is what every storage format packs from and unpacks to. What it does not hold is the zero of the semiring;
what it holds is an entry, also if its value is zero.
"""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from derivable.algebra import semirings
from derivable.algebra.semiring import Semiring
from derivable.core.arguments import integer, is_integer
from derivable.core.diagnostics import DomainError, LayoutError, OutOfMemory, ShapeError, UnsupportedError
from derivable.core.lazy import optional_module
from derivable.core.registry import Registry
from derivable.device.cpu.memory import full

LIBRARIES = "NumPy arrays, scipy.sparse, torch tensors, `sparse` arrays, nested dictionaries and Matrix Market files"


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
        record, of = scalar_semiring(semiring), _of(name)
        shape = tuple(integer(size, f"a size{of}", 0) for size in shape)
        indices, values = check_indices(np.asarray(indices), shape, name), elements(values, record, name)
        if values.ndim != 1 or indices.shape != (len(shape), len(values)):
            raise ShapeError(
                f"the indices{of} are {list(indices.shape)}, [axis, entry], for {list(values.shape)} values of a "
                f"tensor of order {len(shape)}"
            )
        return cls._sorted(shape, np.ascontiguousarray(indices, np.int64), values, record)

    @classmethod
    def _sorted(cls, shape: tuple[int, ...], indices: np.ndarray, values: np.ndarray, record: Semiring) -> Coordinates:
        """Of indices that are known to be right."""
        if math.prod(shape) < 1 << 63:
            keys = [linear(indices, shape)]
        else:
            keys = list(indices)
        if len(keys) == 1 and (keys[0][1:] > keys[0][:-1]).all():
            return cls(shape, indices, values)
        order = np.lexsort(keys[::-1]) if len(keys) > 1 else _order(keys[0])
        indices, values = np.ascontiguousarray(indices[:, order]), values[order]
        is_first = np.ones(len(values), bool)
        is_first[1:] = np.logical_or.reduce([key[order][1:] != key[order][:-1] for key in keys], axis=0)
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
        """The same entries with the axes in another order: the first axis of the result is axes[0] of this one."""
        shape = tuple(self.shape[axis] for axis in axes)
        return self._sorted(shape, self.indices[list(axes)], self.values, semirings.get("real"))

    def to_numpy(self, zero: Any = 0.0) -> np.ndarray:
        """A dense array. zero: that of the semiring."""
        with fitting(self.shape):
            dense = full(self.shape, zero, self.values.dtype)
        dense[tuple(self.indices)] = self.values
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

        Raises UnsupportedError for other orders.
        """
        sparse = optional_module("scipy.sparse", "scipy", "sparse")
        if self.order != 2 and format != "coo":
            raise UnsupportedError(
                f"scipy's {format} holds matrices, and this is a tensor of order {self.order}",
                hint="ask for `scipy_coo`, or for `coordinates`",
            )
        found = sparse.coo_array((self.values, tuple(self.indices)), shape=self.shape)
        with fitting(self.shape):
            return found.asformat(format)

    def to_torch(self, layout: str = "coo") -> Any:
        """A sparse tensor of torch, "coo", or for matrices "csr". Raises UnsupportedError for other orders."""
        import torch

        values = torch.as_tensor(self.values)
        if layout == "coo":
            indices = torch.from_numpy(self.indices)
            return torch.sparse_coo_tensor(indices, values, self.shape, check_invariants=False, is_coalesced=True)
        if self.order != 2:
            raise UnsupportedError(f"torch's csr holds matrices, and this is a tensor of order {self.order}")
        offsets = np.searchsorted(self.indices[0], np.arange(self.shape[0] + 1))
        columns = torch.from_numpy(self.indices[1])
        return torch.sparse_csr_tensor(torch.from_numpy(offsets), columns, values, self.shape, check_invariants=False)

    def to_sparse(self, zero: Any = 0.0) -> Any:
        """A `sparse.COO` of pydata. zero: that of the semiring."""
        sparse = optional_module("sparse", "sparse", "sparse")
        fill = np.asarray(zero).astype(self.values.dtype)[()]
        return sparse.COO(self.indices, self.values, self.shape, has_duplicates=False, sorted=True, fill_value=fill)

    def to(self, form: str, zero: Any = 0.0) -> Any:
        """The tensor in one of `FORMS`. zero: that of the semiring.

        Raises DomainError for an unknown form, UnsupportedError for one that does not hold tensors of this order.
        """
        return FORMS[form](self, zero)


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


def _order(key: np.ndarray) -> np.ndarray:
    """The stable order of integers from 0 on. NumPy sorts those of 16 bits by radix, which is three times as fast."""
    order, shift, most = None, 0, int(key.max(initial=0))
    while order is None or most >> shift:
        digit = (key >> shift).astype(np.uint16)
        found = np.argsort(digit if order is None else digit[order], kind="stable")
        order, shift = found if order is None else order[found], shift + 16
    return order


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
    import torch

    return torch.from_numpy(array)


def linear(indices: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """[entry] the place of each entry in an array of that shape, the last axis fastest; below 2^63."""
    place = np.zeros(indices.shape[1], np.int64)
    for size, index in zip(shape, indices):
        place = place * size + index
    return place


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
            f"the values of the semiring {record.name!r} are nests of numbers, which no tensor holds",
            hint="use a semiring of numbers, such as 'real', 'min_plus', 'max_product' or 'boolean'",
        )
    return record


def elements(values: Any, semiring: Semiring, name: str = "") -> np.ndarray:
    """Numbers as elements of a semiring: float32 and float64 stay, integers become float64; for bool what is not 0 is
    true; exact integers are of dtype object. An array of the same shape, the same one where that is possible.

    Raises DomainError for complex numbers, texts, and what lies outside the semiring's domain.
    """
    of, array = _of(name), np.asarray(values)
    if array.dtype.kind not in "biuf" and not (array.dtype == object and all(map(is_integer, array.flat))):
        raise DomainError(f"the values{of} are of type {array.dtype}", hint="give floats, integers or truth values")
    if semiring.carrier == "bool":
        return array if array.dtype == bool else array != 0
    if semiring.carrier == "integer":
        if array.dtype.kind == "f" and not (array == np.floor(array)).all():
            wrong = array[array != np.floor(array)].flat[0]
            raise DomainError(f"{wrong}{of} is no integer, and the semiring {semiring.name!r} has integers")
        return array if array.dtype == object else np.vectorize(int, otypes=[object])(array)
    array = array if array.dtype in (np.float32, np.float64) else array.astype(np.float64)
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

    value       Coordinates; arrays of NumPy and what becomes one; scipy.sparse of any format; torch tensors, dense or
                sparse (COO, CSR and the others); arrays of `sparse`; nested dictionaries {index: {index: number}}; the
                path of a Matrix Market file (.mtx, .mtx.gz); relations of a Datalog database whose columns are
                integers, which are the indices, with their tags as values
    shape       what it must be; for dictionaries, which have none, what it is. Without it theirs is the least one
    order       the number of axes that it must have
    keep_zeros  whether the zeros of a dense array are entries too
    name        of the tensor, for messages

    Raises ShapeError for another order or shape; LayoutError for an index outside the shape; DomainError for values
    that are no elements of the semiring, for a NaN in a dense array of which only the nonzeros are entries, and for
    what is no tensor; ParseError for a file that is damaged.
    """
    record = scalar_semiring(semiring)
    if is_relation(value):
        return _of_relation(value, shape, order, record, name)
    # One of scipy's formats is a dictionary too.
    if isinstance(value, Mapping) and library_of(value) == "coordinates":
        return _of_nested(value, shape, order, record, name)
    if isinstance(value, (str, os.PathLike)):
        from derivable.tensor.matrix_market import read_matrix_market

        value = read_matrix_market(value)
    if isinstance(value, Coordinates):
        found = Coordinates(value.shape, value.indices, elements(value.values, record, name))
    elif (entries := _sparse_entries(value, record, name)) is not None:
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


def is_dense(value: Any) -> bool:
    """Whether a tensor comes as an array that holds every entry."""
    library = library_of(value)
    return library == "numpy" or (library == "torch" and str(value.layout) == "torch.strided")


def library_of(value: Any) -> str:
    """Whose a tensor is: "numpy", "scipy", "torch", "sparse", or "coordinates" for ours, dictionaries and files."""
    if (torch := _imported("torch")) and isinstance(value, torch.Tensor):
        return "torch"
    if (scipy := _imported("scipy.sparse")) and scipy.issparse(value):
        return "scipy"
    if (sparse := _imported("sparse")) and isinstance(value, sparse.SparseArray):
        return "sparse"
    return "coordinates" if isinstance(value, (Coordinates, Mapping, str, os.PathLike)) else "numpy"


def tracker(values: Iterable[Any], output: Any = None) -> str | None:
    """Who looks at what is computed: "torch" or "JAX", or "elsewhere" for torch on another device than the CPU; None if
    nobody does.

    output  the form of the result that is asked for: JAX arrays that are no tracers are arrays like others for others
    """
    torch, jax = _imported("torch"), _imported("jax")
    found, is_for_others = None, output not in (None, "dense", "coordinates")
    for value in values:
        numbers: Any = value.values if isinstance(value, Coordinates) else value
        if torch is not None and isinstance(numbers, torch.Tensor):
            if not numbers.is_cpu:
                return "elsewhere"
            if (numbers.requires_grad and torch.is_grad_enabled()) or _is_transformed(torch):
                found = "torch"
        elif jax is not None and isinstance(numbers, jax.Array) and not (is_for_others and _is_concrete(numbers)):
            found = "JAX"
    return found


def has_torch(values: Iterable[Any]) -> bool:
    torch = _imported("torch")
    return torch is not None and any(isinstance(value, torch.Tensor) for value in values)


def in_torch(result: Any) -> Any:
    """Arrays, coordinates and numbers as tensors of torch; others as they are."""
    if isinstance(result, Coordinates):
        return result.to_torch()
    if isinstance(result, (np.ndarray, np.generic, float, bool)):
        return torch_dense(np.asarray(result))
    return result


def _is_concrete(array: Any) -> bool:
    from jax.core import Tracer

    return not isinstance(array, Tracer)


def _is_transformed(torch: Any) -> bool:
    functions = torch._C._are_functorch_transforms_active
    return functions() or torch.autograd.forward_ad._current_level >= 0 or torch.compiler.is_compiling()


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
    if (torch := _imported("torch")) and isinstance(value, torch.Tensor):
        return _of_torch(value, name).numpy()
    try:
        array = np.asarray(value)
    except ValueError:
        raise DomainError(
            f"the rows of the list{_of(name)} have different lengths", hint="give a dictionary {index: {index: number}}"
        ) from None
    if array.dtype == object and not all(map(is_integer, array.flat)):
        raise DomainError(f"{type(value).__name__}{_of(name)} is no tensor of numbers", hint=f"tensors are {LIBRARIES}")
    return array


def _imported(module: str) -> Any:
    """The module if somebody has imported it; nothing of it exists otherwise."""
    return sys.modules.get(module)


def _of(name: str) -> str:
    return f" of `{name}`" if name else ""


def _of_torch(value: Any, name: str) -> Any:
    torch = _imported("torch")
    if value.requires_grad and torch.is_grad_enabled():
        raise DomainError(
            f"the torch tensor{_of(name)} requires gradients, which a run by values does not record",
            hint="give `x.detach()`",
        )
    return value.detach().cpu()


def check_indices(indices: np.ndarray, shape: tuple[int, ...], name: str = "") -> np.ndarray:
    """Indices [axis, entry] as they are. Raises LayoutError for one outside the shape and for what is no integer."""
    of = _of(name)
    if indices.dtype.kind not in "iu" and indices.size:
        is_nan = indices.dtype.kind == "f" and np.isnan(indices).any()
        raise LayoutError(f"the indices{of} {'have a NaN' if is_nan else f'are {indices.dtype}, no integers'}")
    for axis, (index, size) in enumerate(zip(indices, shape)):
        if index.size and (index.min() < 0 or index.max() >= size):
            entry = int(np.flatnonzero((index < 0) | (index >= size))[0])
            raise LayoutError(
                f"index {index[entry]} of entry {entry}{of} is outside axis {axis} of size {size}",
                hint=f"indices count from 0; the shape is {list(shape)}",
            )
    return indices


def check_compressed(value: Any, name: str = "") -> None:
    """Raises LayoutError for compressed rows or columns of SciPy that say places that are not there: SciPy looks at few
    of them."""
    of, axis = _of(name), 1 if value.format == "csr" else 0
    pos, idx, size = value.indptr, value.indices, value.shape[axis]
    if len(pos) != value.shape[1 - axis] + 1 or pos[0] != 0 or (pos[1:] < pos[:-1]).any():
        raise LayoutError(f"the offsets{of} do not ascend from 0", hint="`A.check_format()` of SciPy says where")
    if not len(idx) == len(value.data) >= pos[-1]:
        raise LayoutError(f"there are {len(value.data)} values{of}, {len(idx)} indices and offsets up to {pos[-1]}")
    # As numbers without sign the negative ones are the largest.
    if idx.size and idx.view(f"uint{8 * idx.itemsize}").max() >= size:
        entry = int(np.flatnonzero((idx < 0) | (idx >= size))[0])
        raise LayoutError(f"index {idx[entry]} of entry {entry}{of} is outside axis {axis} of size {size}")


def _sparse_entries(value: Any, record: Semiring, name: str) -> tuple[Any, Any, Any] | None:
    """(shape, indices, values) of what is sparse in another library."""
    library = library_of(value)
    if library == "scipy":
        return _scipy_entries(value, name)
    if library == "sparse":
        found = value.asformat("coo")
        if found.nnz < found.size and found.fill_value != record.zero:
            raise DomainError(
                f"what the sparse array{_of(name)} does not hold is {found.fill_value}, and the zero of the semiring "
                f"{record.name!r} is {record.zero}",
                hint=f"give it fill_value={record.zero}",
            )
        return found.shape, found.coords, found.data
    if library == "torch" and not is_dense(value):
        return _torch_entries(_of_torch(value, name))
    return None


def _scipy_entries(value: Any, name: str) -> tuple[Any, Any, Any]:
    if value.format in ("csr", "csc") and value.ndim == 2:
        check_compressed(value, name)
    if value.format == "csr" and value.ndim == 2:
        rows = np.repeat(np.arange(value.shape[0], dtype=np.int64), np.diff(value.indptr))
        return value.shape, np.stack([rows, value.indices.astype(np.int64, copy=False)]), value.data
    found = value.tocoo()
    # Matrices of older classes have `row` and `col` only.
    indices = found.coords if hasattr(found, "coords") else (found.row, found.col)
    return found.shape, np.stack([index.astype(np.int64, copy=False) for index in indices]), found.data


def _torch_entries(value: Any) -> tuple[Any, Any, Any]:
    if str(value.layout) == "torch.sparse_csr" and value.ndim == 2:
        offsets, columns = value.crow_indices().numpy(), value.col_indices().numpy()
        rows = np.repeat(np.arange(value.shape[0], dtype=np.int64), np.diff(offsets))
        return tuple(value.shape), np.stack([rows, columns.astype(np.int64, copy=False)]), value.values().numpy()
    if str(value.layout) != "torch.sparse_coo":
        value = value.to_sparse_coo()
    indices, values = value._indices().numpy(), value._values().numpy()
    if value.dense_dim():
        # Each entry is an array: its axes are the last ones.
        inner = np.indices(values.shape[1:]).reshape(value.dense_dim(), -1)
        indices = np.concatenate([np.repeat(indices, inner.shape[1], axis=1), np.tile(inner, len(values))])
        values = values.reshape(-1)
    return tuple(value.shape), indices, values


def _of_dense(array: np.ndarray, record: Semiring, keep_zeros: bool, name: str) -> Coordinates:
    values = elements(array, record, name)
    if keep_zeros:
        indices = np.indices(array.shape, dtype=np.int64).reshape(array.ndim, -1)
        return Coordinates(array.shape, indices, np.ascontiguousarray(values).reshape(-1))
    if values.dtype.kind == "f" and np.isnan(values).any():
        place = tuple(int(index) for index in np.argwhere(np.isnan(values))[0])
        raise DomainError(
            f"the dense array{_of(name)} has NaN at {list(place)}: whether that is an entry cannot be told",
            hint="give a sparse tensor, whose entries are known, or keep the tensor dense",
        )
    places = np.nonzero(values != record.zero)
    if not array.ndim:
        return Coordinates((), np.empty((0, 1), np.int64), values.reshape(1))
    return Coordinates(array.shape, np.stack(places).astype(np.int64, copy=False), values[places])


def is_sparse(value: Any) -> bool:
    """Whether something is a sparse tensor of a library, Coordinates, or a relation of integers."""
    if isinstance(value, Coordinates):
        return True
    if is_relation(value):
        return value.is_tensor
    library = library_of(value)
    return library in ("scipy", "sparse") or (library == "torch" and not is_dense(value))


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
            f"the tags{_of(name)} are nests of {len(tags.dtype.names)} numbers, and entries are single numbers",
            hint="run the program under another provenance",
        )
    indices = columns[0][None] if len(columns) == 1 else np.stack(columns)
    if shape is None:
        shape = tuple(int(index.max(initial=-1)) + 1 for index in indices)
    return Coordinates.of(shape, indices, tags, record, name)


def _of_nested(
    value: Mapping, shape: tuple[int, ...] | None, order: int | None, record: Semiring, name: str
) -> Coordinates:
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
                if not is_integer(key) or key < 0:
                    raise LayoutError(f"the key {key!r} of {place} is no index", hint="indices are integers from 0 on")
                visit(part, (*path, int(key)))
            return
        if axes is None:
            axes = len(path)
        if len(path) != axes:
            raise ShapeError(f"{place} is {inner!r}, where a tensor of order {axes} has a dictionary")
        if np.ndim(inner) or isinstance(inner, str):
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
    return Coordinates.of(shape, indices, np.array(values) if values else np.empty(0), record, name)
