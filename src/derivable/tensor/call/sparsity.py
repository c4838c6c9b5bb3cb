"""Where the entries of tensors are that come from torch, which is found on the CPU; what they are stays where it is."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch

from derivable.algebra.semiring import Semiring
from derivable.core.diagnostics import UnsupportedError
from derivable.parallel.program import nodes as n
from derivable.parallel.program.nodes import Column
from derivable.tensor.call.engine import Derived
from derivable.tensor.formats.format import Format
from derivable.tensor.formats.held import Held, entries_of, hold
from derivable.tensor.formats.standard import PLAIN
from derivable.tensor.lower.flatten import Flattening
from derivable.tensor.lower.tree import Dense, Tree, levels_of
from derivable.tensor.values.libraries import check_compressed, check_indices, of_rows
from derivable.tensor.values.order import distinct
from derivable.tensor.values.values import (
    Coordinates,
    as_torch,
    check_shape,
    coordinates,
    dense,
    is_dense,
    library_of,
)

# The number of patterns of one tensor that are kept.
KEPT = 4


@dataclass(frozen=True, eq=False)
class SparsityPattern:
    """Where the entries of a tensor are.

    indices  [axis, entry] in any order, entries of the same indices add up; None if every place has one
    places   [entry] which of the values it has, -1 for a zero; None if the values are in this order
    """

    shape: tuple[int, ...]
    indices: np.ndarray | None = None
    places: np.ndarray | None = None
    num_values: int = 0

    def is_same(self, other: SparsityPattern) -> bool:
        if self.shape != other.shape or (self.indices is None) != (other.indices is None):
            return False
        if self.num_values != other.num_values or (self.places is None) != (other.places is None):
            return False
        pairs = ((self.indices, other.indices), (self.places, other.places))
        return all(a is b or np.array_equal(a, b) for a, b in pairs if a is not None and b is not None)

    def kept(self) -> SparsityPattern:
        """With arrays that nobody changes."""
        if self.indices is None or not self.indices.flags.writeable:
            return self
        return replace(self, indices=self.indices.copy())

    def tree(self, values: Column, flattening: Flattening) -> Tree | None:
        """None without entries."""
        if not all(self.shape):
            return None
        if self.indices is None:
            return Tree(tuple(Dense(size) for size in self.shape), values)
        if not self.indices.shape[1]:
            return None
        if self.places is not None:
            zero = flattening.constant(np.full(1, flattening.semiring.zero))
            values = flattening.graph.one(n.Concatenate, (values, zero))
            values = flattening.take(values, np.where(self.places < 0, self.num_values, self.places))
        keys, into = distinct(list(self.indices))
        if into is not None:
            values = flattening.fold(values, into, len(keys[0]))
        return Tree(tuple(levels_of(1, np.zeros(len(keys[0]), np.int64), keys)), values)


class IndexCache:
    """Indices of torch tensors on the CPU, for tensors whose indices, on their device, are equal to those of before."""

    def __init__(self) -> None:
        self._known: list[tuple[tuple[int, ...], tuple[torch.Tensor, ...], np.ndarray]] = []

    def __call__(self, make: Callable[..., np.ndarray], shape: tuple[int, ...], *tensors: torch.Tensor) -> np.ndarray:
        """What `make`, which checks them, makes of the tensors as arrays."""
        for size, held, found in self._known:
            if size == shape and len(held) == len(tensors) and all(_is_same(a, b) for a, b in zip(held, tensors)):
                return found
        found = make(*(tensor.detach().cpu().numpy() for tensor in tensors))
        found = found if found.base is None and found.flags.owndata else found.copy()
        found.setflags(write=False)
        self._known.append((shape, tuple(tensor.detach().clone() for tensor in tensors), found))
        del self._known[:-KEPT]
        return found

    def tensors_of(self, found: np.ndarray | None) -> tuple[torch.Tensor, ...] | None:
        """Copies of the tensors that these indices were made of, on their device; None if they are not kept."""
        return next((held for _, held, kept in self._known if kept is found), None)


def _is_same(left: torch.Tensor, right: torch.Tensor) -> bool:
    return left.device == right.device and left.shape == right.shape and torch.equal(left, right.detach())


def parted(
    value: Any, format: Format | None, order: int, semiring: Semiring, name: str, fetched: IndexCache | None = None
) -> tuple[SparsityPattern, Any]:
    """(where the entries of a tensor are, their numbers [entry]): a tensor of torch stays one, with its derivatives."""
    if isinstance(value, Held) or (format is not None and format.name not in ("dense", *PLAIN)):
        return _held(value, format, order, semiring, name)
    is_torch = library_of(value) == "torch"
    if is_dense(value):
        if not is_torch:
            value = dense(value, semiring=semiring, name=name)
        check_shape(tuple(value.shape), None, order, name)
        if format is None or format.name == "dense":
            return SparsityPattern(tuple(value.shape), num_values=math.prod(value.shape)), value.reshape(-1)
        held = as_torch(value).detach() != semiring.zero
        indices = np.stack(np.nonzero(held.cpu().numpy()))
        chosen = (
            value[tuple(torch.as_tensor(index, device=value.device) for index in indices)]
            if is_torch
            else (value[tuple(indices)])
        )
        return SparsityPattern(tuple(value.shape), indices, num_values=indices.shape[1]), chosen
    if not is_torch:
        if isinstance(value, Coordinates) and isinstance(value.values, torch.Tensor):
            entries = value.checked(name)
            check_shape(value.shape, None, order, name)
        else:
            entries = coordinates(value, order=order, semiring=semiring, name=name)
        where, values = SparsityPattern(entries.shape, entries.indices, num_values=len(entries.values)), entries.values
    else:
        check_shape(tuple(value.shape), None, order, name)
        indices, values = _torch_parts(value, fetched or IndexCache(), name)
        where = SparsityPattern(tuple(value.shape), indices, num_values=indices.shape[1])
    if format is None or format.name in PLAIN:
        return where, values
    assert where.indices is not None
    numbers = np.zeros(where.shape, np.int64)
    numbers[tuple(where.indices)] = np.arange(1, where.num_values + 1)
    every = np.indices(where.shape).reshape(order, -1)
    return replace(where, indices=every, places=numbers.reshape(-1) - 1), values


def torch_entries(value: torch.Tensor, name: str, derived: Derived | None = None) -> Coordinates:
    """A sparse tensor as coordinates whose values are a tensor of torch, with its derivatives.

    derived  what its program keeps: entries that it knows need not be looked at
    """
    shape = tuple(value.shape)
    indices, values = _torch_parts(value, IndexCache() if derived is None else derived.fetched, name)
    if derived is not None and derived.known(shape, indices) is not None:
        return Coordinates(shape, indices, values)
    found, into = distinct(list(indices))
    if into is None:
        return Coordinates(shape, indices, values)
    if len(found[0]) < len(into):
        return torch_entries(value.to_sparse_coo().coalesce(), name)
    return Coordinates(shape, np.stack(found), values[torch.from_numpy(np.argsort(into))])


def _torch_parts(value: torch.Tensor, fetched: IndexCache, name: str) -> tuple[np.ndarray, torch.Tensor]:
    """(indices [axis, entry], values [entry]) of a sparse tensor. Raises LayoutError for indices outside its shape."""
    shape = tuple(value.shape)
    if _is_built(value):
        indices, values = _read_parts(value, shape, fetched, name)
        values.register_hook(partial(_refuse_second, name))
        return indices, values
    return _read_parts(value, shape, fetched, name)


# Operations of torch whose derivatives torch takes for constants.
_WITHOUT_SECOND = ("SparseCooTensor", "SparseCompressedTensor", *(f"ToSparse{name}" for name in ("Cs", "Bs")))


def _is_built(value: torch.Tensor) -> bool:
    """Whether torch's constructors and conversions made a tensor of values that are differentiated, perhaps some
    operations ago."""
    nodes, seen = [value.grad_fn], set()
    while nodes:
        node = nodes.pop()
        if node is None or node in seen:
            continue
        if node.name().startswith(_WITHOUT_SECOND):
            return True
        seen.add(node)
        if not node.name().startswith("ToSparse"):
            # What is behind that is dense.
            nodes += (parent for parent, _ in node.next_functions)
    return False


def _refuse_second(name: str, adjoint: torch.Tensor) -> None:
    """Raises UnsupportedError where a derivative is to be differentiated again that torch takes for a constant."""
    if torch.is_grad_enabled():
        raise UnsupportedError(
            f"`{name}` was made by torch's sparse constructor or conversion, whose derivative has no derivative itself",
            hint="give `dv.tensor.Coordinates(shape, indices, values)`, or the values to "
            f"`dv.tensor.Function(program, patterns={{{name!r}: ...}})`: both have derivatives of any order",
        )


def _read_parts(
    value: torch.Tensor, shape: tuple[int, ...], fetched: IndexCache, name: str
) -> tuple[np.ndarray, torch.Tensor]:
    if value.layout == torch.sparse_csr and value.ndim == 2:
        count = len(value.values())

        def of_checked(offsets: np.ndarray, columns: np.ndarray) -> np.ndarray:
            check_compressed(offsets, columns, count, shape, 1, name)
            return of_rows(offsets, columns)

        return fetched(of_checked, shape, value.crow_indices(), value.col_indices()), value.values()
    value = (value if value.layout == torch.sparse_coo else value.to_sparse_coo()).coalesce()
    values = value.values()
    inner = tuple(values.shape[1:])

    def of_entries(indices: np.ndarray) -> np.ndarray:
        found = _of_parts(indices, inner)
        check_indices(found, shape, name)
        return found

    return fetched(of_entries, shape, value.indices()), values.reshape(-1)


def _of_parts(indices: np.ndarray, inner: tuple[int, ...]) -> np.ndarray:
    """The indices of entries that are arrays: their axes are the last ones."""
    if not inner:
        return indices
    within = np.indices(inner).reshape(len(inner), -1)
    return np.concatenate([np.repeat(indices, within.shape[1], axis=1), np.tile(within, indices.shape[1])])


def _held(value: Any, format: Format | None, order: int, semiring: Semiring, name: str) -> tuple[SparsityPattern, Any]:
    """Of a tensor that is stored in a format, which may hold zeros that no other one does."""
    if isinstance(value, Held):
        part = next(part for part, kind in value.format.arrays.items() if kind == "real")
        values = value.arrays[part]
        numbered = Held(value.format, value.shape, {**value.arrays, part: np.arange(1.0, len(values) + 1)})
    else:
        assert format is not None
        where, values = parted(value, None, order, semiring, name)
        indices = np.indices(where.shape).reshape(order, -1) if where.indices is None else where.indices
        found, into = distinct(list(indices))
        if into is not None:
            raise UnsupportedError(f"`{name}` has entries of the same indices", hint="coalesce it")
        numbered = hold(
            Coordinates(where.shape, np.stack(found), np.arange(1.0, where.num_values + 1)), format, order, name=name
        )
    entries = entries_of(numbered)
    return SparsityPattern(entries.shape, entries.indices, entries.values.astype(np.int64) - 1, len(values)), values
