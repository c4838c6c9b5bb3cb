"""Sparse tensors of other libraries: where their entries are, looked at before kernels go there."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from derivable.algebra.semiring import Semiring
from derivable.core.arguments import check_on_cpu
from derivable.core.arrays import readable
from derivable.core.diagnostics import DerivableError, DomainError, LayoutError


def imported(module: str) -> Any:
    """The module if somebody has imported it; nothing of it exists otherwise."""
    return sys.modules.get(module)


def named(name: str) -> str:
    """For messages: " of `A`"."""
    return f" of `{name}`" if name else ""


def array_of_torch(value: Any, name: str) -> Any:
    """A tensor of torch without its record. Raises DomainError if it records one, UnsupportedError off the CPU."""
    torch: Any = imported("torch")
    if value.requires_grad and torch.is_grad_enabled():
        raise DomainError(
            f"the torch tensor{named(name)} requires gradients, which a run by values does not record",
            hint="give `x.detach()`",
        )
    check_on_cpu(value, f"the torch tensor{named(name)}")
    return readable(value.detach(), f"the torch tensor{named(name)}")


@contextmanager
def reading(library: str, name: str) -> Iterator[None]:
    """Raises LayoutError with what a library says, where it cannot read a tensor of its own."""
    try:
        yield
    except DerivableError:
        raise
    except (ArithmeticError, LookupError, RuntimeError, TypeError, ValueError) as error:
        said = str(error).split("\n")[0].split(". ")[0]
        raise LayoutError(f"{library} cannot read the tensor{named(name)}: {said}") from error


# Sparse tensors


def check_indices(indices: np.ndarray, shape: tuple[int, ...], name: str = "") -> np.ndarray:
    """Indices [axis, entry] as they are. Raises LayoutError for one outside the shape and for what is no integer."""
    of = named(name)
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


def check_compressed(
    offsets: np.ndarray, indices: np.ndarray, num_values: int, shape: tuple[int, ...], axis: int, name: str = ""
) -> None:
    """Raises LayoutError for compressed rows or columns that say places which are not there; libraries look at few.

    offsets  [row + 1] where the entries of each row begin, in one axis more
    indices  [entry] on the other axis, which is `axis`
    """
    of, what = named(name), "row" if axis else "column"
    for array, kind in ((offsets, "offsets"), (indices, "indices")):
        if array.ndim != 1 or array.dtype.kind not in "iu":
            raise LayoutError(f"the {kind}{of} are {list(array.shape)} of {array.dtype}, no integers in one axis")
    num_rows, size = shape[1 - axis], shape[axis]
    if len(offsets) != num_rows + 1:
        raise LayoutError(f"there are {len(offsets)} offsets{of}, and {num_rows} {what}s have {num_rows + 1}")
    if offsets[0] != 0:
        raise LayoutError(f"the offsets{of} begin with {offsets[0]}, and not with 0")
    if (offsets[1:] < offsets[:-1]).any():
        row = int(np.flatnonzero(offsets[1:] < offsets[:-1])[0])
        raise LayoutError(f"the offsets{of} fall from {offsets[row]} to {offsets[row + 1]} at {what} {row}")
    if not len(indices) == num_values >= offsets[-1]:
        raise LayoutError(f"there are {num_values} values{of}, {len(indices)} indices and offsets up to {offsets[-1]}")
    # As numbers without sign the negative ones are the largest.
    places = indices if indices.dtype.isnative else indices.astype(np.int64)
    if places.size and places.view(f"uint{8 * places.itemsize}").max() >= size:
        entry = int(np.flatnonzero((places < 0) | (places >= size))[0])
        raise LayoutError(
            f"index {places[entry]} of entry {entry}{of} is outside axis {axis} of size {size}",
            hint=f"indices count from 0; the shape is {list(shape)}",
        )


def check_scipy(value: Any, name: str = "") -> None:
    """Raises LayoutError for compressed rows or columns of SciPy that are damaged."""
    axis = 1 if value.format == "csr" else 0
    check_compressed(value.indptr, value.indices, len(value.data), value.shape, axis, name)


def sparse_entries(value: Any, library: str, record: Semiring, name: str) -> tuple[Any, Any, Any] | None:
    """(shape, indices, values) of what is sparse in another library; None for what is dense."""
    if library == "scipy":
        with reading("scipy.sparse", name):
            return _scipy_entries(value, name)
    if library == "sparse":
        with reading("sparse", name):
            found = value.asformat("coo")
        if found.nnz < found.size and found.fill_value != record.zero:
            raise DomainError(
                f"what the sparse array{named(name)} does not hold is {found.fill_value}, and the zero of the semiring "
                f"{record.name!r} is {record.zero}",
                hint=f"give it fill_value={record.zero}",
            )
        return found.shape, found.coords, found.data
    if library == "JAX":
        from derivable.tensor.values.jax_entries import jax_parts

        with reading("JAX", name):
            return jax_parts(value, name)
    if library == "torch" and str(value.layout) != "torch.strided":
        with reading("torch", name):
            return _torch_entries(array_of_torch(value, name), name)
    return None


def _scipy_entries(value: Any, name: str) -> tuple[Any, Any, Any]:
    is_compressed = value.format in ("csr", "csc") and value.ndim == 2
    if is_compressed:
        check_scipy(value, name)
    if is_compressed and value.format == "csr":
        return value.shape, of_rows(value.indptr, value.indices), value.data
    found = value.tocoo()
    # Matrices of older classes have `row` and `col` only.
    indices = found.coords if hasattr(found, "coords") else (found.row, found.col)
    return found.shape, np.stack([index.astype(np.int64, copy=False) for index in indices]), found.data


def of_rows(offsets: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """[axis, entry] the indices of compressed rows."""
    rows = np.repeat(np.arange(len(offsets) - 1, dtype=np.int64), np.diff(offsets))
    return np.stack([rows, columns.astype(np.int64, copy=False)])


def _torch_entries(value: Any, name: str) -> tuple[Any, Any, Any]:
    shape = tuple(value.shape)
    if str(value.layout) == "torch.sparse_csr" and value.ndim == 2:
        offsets, columns = value.crow_indices().numpy(), value.col_indices().numpy()
        check_compressed(offsets, columns, len(value.values()), shape, 1, name)
        return shape, of_rows(offsets, columns), value.values().numpy()
    if str(value.layout) != "torch.sparse_coo":
        value = value.to_sparse_coo()
    indices, values = value._indices().numpy(), value._values().numpy()
    if value.dense_dim():
        # Each entry is an array: its axes are the last ones.
        inner = np.indices(values.shape[1:]).reshape(value.dense_dim(), -1)
        indices = np.concatenate([np.repeat(indices, inner.shape[1], axis=1), np.tile(inner, len(values))])
        values = values.reshape(-1)
    return shape, indices, values
