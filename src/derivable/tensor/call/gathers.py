"""Programs as gathers and sums of torch tensors: on any device, in the semirings whose sums torch has.

Where entries are is found on the CPU, once for inputs whose entries stay where they are; what they are stays on the
device. The derivatives are those of torch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch

from derivable.algebra.semiring import Semiring
from derivable.bridge.torch import has_nan, is_transformed, lacks_memory, no_memory
from derivable.bridge.torch_columns import Torch
from derivable.core.diagnostics import DomainError, ShapeError, UnsupportedError
from derivable.parallel.program import nodes as n
from derivable.parallel.program.execute import Prepared, execute
from derivable.parallel.program.nodes import Column
from derivable.parallel.program.text import program_text
from derivable.tensor.call.compilation import Kernel
from derivable.tensor.call.device_folds import FoldedProgram, has_kernels
from derivable.tensor.call.engine import Derived
from derivable.tensor.formats.format import Format
from derivable.tensor.formats.held import Held, entries_of, hold
from derivable.tensor.formats.standard import PLAIN
from derivable.tensor.language import nodes as t
from derivable.tensor.language.types import REAL, is_tensor
from derivable.tensor.lower.flatten import Bound, Flattening, Scalar, View
from derivable.tensor.lower.tree import Dense, Tree, levels_of
from derivable.tensor.values.inputs import checked_names, number
from derivable.tensor.values.libraries import check_compressed, check_indices, of_rows
from derivable.tensor.values.order import distinct
from derivable.tensor.values.values import (
    FORMS,
    Coordinates,
    as_torch,
    check_shape,
    coordinates,
    dense,
    elements,
    is_dense,
    library_of,
    linear,
    not_fitting,
)

# The plans of so many patterns are kept.
_PLANS = 4


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
        del self._known[:-_PLANS]
        return found


def _is_same(left: torch.Tensor, right: torch.Tensor) -> bool:
    return left.device == right.device and left.shape == right.shape and torch.equal(left, right.detach())


@dataclass
class Plan:
    """A program for inputs whose entries are in some places.

    indices  [axis, entry] of a sparse result; None for a dense one and for a number
    shape    of a dense result
    """

    wheres: dict[str, SparsityPattern]
    others: dict[str, Any]
    shape: tuple[int, ...]
    indices: np.ndarray | None
    column: Column
    run: Prepared
    keeps: bool = True
    folded: dict[tuple[torch.device, torch.dtype], FoldedProgram] = field(default_factory=dict)

    def program(
        self, semiring: Semiring, like: torch.Tensor, given: Iterable[torch.Tensor]
    ) -> Prepared | FoldedProgram:
        """What computes the column: its folds are kernels on devices that have some, where they are worth it."""
        if not has_kernels(like.device) or is_transformed() or torch.compiler.is_compiling():
            return self.run
        key = like.device, like.dtype
        if key not in self.folded:
            self.folded[key] = FoldedProgram(self.column, semiring, like)
        found = self.folded[key]
        is_recorded = torch.is_grad_enabled() and any(value.requires_grad for value in given)
        return found if found.is_worthwhile and (found.is_differentiable or not is_recorded) else self.run

    def fits(self, wheres: Mapping[str, SparsityPattern], others: Mapping[str, Any], shape: tuple[int, ...]) -> bool:
        if not self.keeps or self.shape != shape or self.others != others:
            return False
        return all(where.is_same(wheres[name]) for name, where in self.wheres.items())


class Gathers(Kernel):
    """A program as a short list of torch operations: called as a `Kernel` is, its results are of torch."""

    def __init__(self, *arguments: Any, **options: Any):
        super().__init__(*arguments, **options)
        if self.stages:
            raise UnsupportedError(
                "the derivative of a program in another semiring runs on the CPU, by its kernels",
                hint="call the program itself with tensors that require gradients: torch differentiates it",
            )
        self._plans: dict[bool, list[Plan]] = {True: [], False: []}
        self._fetched = IndexCache()
        # The libraries of columns, by device and type.
        self._arrays: dict[tuple[torch.device, torch.dtype], Torch] = {}

    def _product(self) -> None:
        return None

    def call_anew(self, values: dict[str, Any], out: Any) -> Any:
        if out is not None:
            values["out"] = out
        device = _device(values)
        wheres, others, given = self._parted(values, device)
        sizes = self._sizes(wheres, others)
        shape = self._shape(sizes)
        if not self.is_final:
            self._optimise(wheres)
        is_dense = bool(shape) and self._holds_all(wheres)
        like = _like(given, device, self.semiring)
        given = {name: _of_type(value, like, self.semiring) for name, value in given.items()}
        plan = self._plan(wheres, others, shape, is_dense, given, like)
        columns = {name: (value,) for name, value in given.items()}
        try:
            run = plan.run if self.is_exact else plan.program(self.semiring, like, given.values())
            (found,) = run(columns, self._arrays_of(like))
        except RuntimeError as error:
            if not lacks_memory(error):
                raise
            if is_dense and device.type == "cpu":
                raise not_fitting(shape) from None
            what = f"a program whose result has the shape {list(shape)}"
            raise no_memory(error, what, device, "have its result in coordinates") from None
        if self.may_be_inexact and has_nan(found):
            return self.exact.call_anew(values, None)
        found = _recorded(found, given)
        if not shape:
            return found.reshape(())
        if is_dense:
            found = found.reshape(shape)
            return found if self.output in (None, "dense", "torch") else self._elsewhere(plan, found)
        return self._sparse(plan, found)

    def explain(self, stage: str | None = None, /, **values: Any) -> str:
        """As of a kernel; "columns", which it shows if no stage is asked for, are its gathers and sums.

        Raises UnsupportedError for "loops" and "source", which it has not.
        """
        if stage in ("loops", "source"):
            raise UnsupportedError("gathers have no loops", hint='`explain("columns", ...)` shows them')
        if stage not in (None, "columns"):
            return super().explain(stage, **values)
        self(**values)
        return "\n\n".join(program_text([plan.column]) for plans in self._plans.values() for plan in plans[-1:])

    def _arrays_of(self, like: torch.Tensor) -> Torch:
        key = like.device, like.dtype
        if key not in self._arrays:
            self._arrays[key] = Torch(*key, self.semiring, self.is_exact)
        return self._arrays[key]

    def _holds_all(self, wheres: Mapping[str, SparsityPattern]) -> bool:
        if self.output is None:
            return len(self.result_axes) == 1 or all(where.indices is None for where in wheres.values())
        return self.output in ("dense", "numpy", "torch")

    def _sparse(self, plan: Plan, values: torch.Tensor) -> Any:
        if self.output not in (None, "coordinates", "torch_coo", "torch_csr"):
            return self._elsewhere(plan, values)
        assert plan.indices is not None
        indices = torch.as_tensor(plan.indices, device=values.device)
        if self.output == "coordinates":
            return Coordinates(plan.shape, plan.indices, values)  # type: ignore[arg-type]
        found = torch.sparse_coo_tensor(indices, values, plan.shape, check_invariants=False, is_coalesced=True)
        return found if self.output != "torch_csr" else _compressed(found, values)

    def _elsewhere(self, plan: Plan, values: torch.Tensor) -> Any:
        """A result that is not of torch."""
        if values.requires_grad and torch.is_grad_enabled():
            raise DomainError(
                f"a result in the form {str(self.output)!r} records no gradients, which an input requires",
                hint='ask for output="torch", "torch_coo" or "torch_csr", or give `x.detach()`',
            )
        array = values.detach().cpu().numpy()
        if plan.indices is None:
            return array if self.output == "numpy" else FORMS[self.output](coordinates(array), self.semiring.zero)  # type: ignore[index]
        return self.formed(Coordinates(plan.shape, plan.indices, array), self.semiring.zero)

    # Inputs

    def _parted(
        self, values: Mapping[str, Any], device: torch.device
    ) -> tuple[dict[str, SparsityPattern], dict[str, Any], dict[str, Any]]:
        """(where entries are, indices and conditions, numbers) by name; numbers are tensors or arrays [entry]."""
        wheres: dict[str, SparsityPattern] = {}
        others: dict[str, Any] = {}
        given: dict[str, Any] = {}
        shapeless: dict[str, Any] = {}
        for name, value, of in checked_names(self.program.inputs, self.inputs, values):
            _check_device(value, device, name)
            if isinstance(value, Mapping) and library_of(value) == "coordinates":
                shapeless[name] = value
            elif is_tensor(of):
                format = self.formats.get(name)
                wheres[name], given[name] = parted(value, format, of.order, self.semiring, name, self._fetched)
            elif of == REAL:
                given[name] = _number(value, self.semiring, name)
            else:
                others[name] = number(
                    value.item() if isinstance(value, torch.Tensor) else value, of, self.semiring, name
                )
        for name, entries in self._shaped(shapeless, wheres).items():  # type: ignore[arg-type]
            wheres[name], given[name] = parted(entries, self.formats.get(name), entries.order, self.semiring, name)
        return wheres, others, given

    # Plans

    def _plan(
        self,
        wheres: dict[str, SparsityPattern],
        others: dict[str, Any],
        shape: tuple[int, ...],
        is_dense: bool,
        given: Mapping[str, torch.Tensor],
        like: torch.Tensor,
    ) -> Plan:
        plans = self._plans[is_dense]
        for plan in plans:
            if plan.fits(wheres, others, shape):
                return plan
        depends = False

        def known(column: Column, node: t.Node) -> Any:
            nonlocal depends
            depends = True
            if is_transformed() or torch.compiler.is_compiling():
                raise UnsupportedError(
                    f"`{node}` decides by values which entries there are, and inside torch's transformations they are "
                    "not known",
                    span=node.span,
                    hint="choose a value instead: `where(condition, a, b)`",
                )
            with torch.no_grad():
                columns = {name: (value,) for name, value in given.items()}
                (found,) = execute([column], columns, self._arrays_of(like))
            return found.cpu().numpy() if found.ndim else found.item()

        flattening = Flattening(self.semiring, known)
        names: dict[str, Bound] = {}
        for name, of in self.staged.inputs.items():
            if name in wheres:
                where = wheres[name]
                tree = where.tree(flattening.given(name, where.num_values), flattening)
                names[name] = Bound(flattening.root, View(tree, 0, np.full(1, 0 if tree else -1)), of)
            elif name in others:
                names[name] = Bound(flattening.root, Scalar(others[name]), of)
            elif name in given:
                names[name] = Bound(flattening.root, Scalar(flattening.given(name, None)), of)
        column, indices = self._result(flattening, names, shape, is_dense)
        kept = {name: where.kept() for name, where in wheres.items()}
        plan = Plan(kept, dict(others), shape, indices, column, Prepared([column]), not depends)
        plans.append(plan)
        del plans[:-_PLANS]
        return plan

    def _result(
        self, flattening: Flattening, names: Mapping[str, Bound], shape: tuple[int, ...], is_dense: bool
    ) -> tuple[Column, np.ndarray | None]:
        """(the values, the indices of a sparse result)"""
        root = flattening.root
        if not shape:
            values = flattening.column(flattening.scalar(self.staged.node, root, names))
            return flattening.rowed(values, 1), None
        found = flattening.entries(self.staged.node, root, names)
        if found is None:
            empty = flattening.constant(np.full(math.prod(shape) if is_dense else 0, self.semiring.zero))
            return empty, None if is_dense else np.empty((len(shape), 0), np.int64)
        self._check_inside(found.keys, found.lanes, shape)
        count = len(found.rows)
        values = flattening.rowed(found.values, count, found.lanes)
        if is_dense:
            outer = shape[: len(found.keys)]
            inner = found.lanes
            if inner is not None and inner < shape[-1]:
                found, inner = flattening.spread(found), None
                values, outer = found.values, shape
            places = linear(np.stack(found.keys), outer) if outer else np.zeros(count, np.int64)
            return flattening.flat(flattening.fold(values, places, math.prod(outer))), None
        if math.prod(shape) >= 1 << 63:
            raise ShapeError(f"a result of the shape {shape} has more places than 64 bits number")
        if found.keys:
            keys, into = distinct(found.keys)
            values = values if into is None else flattening.fold(values, into, len(keys[0]))
        else:
            keys = []
            values = flattening.fold(values, np.zeros(count, np.int64), 1)
        if found.lanes is not None:
            rows = len(keys[0]) if keys else 1
            keys = [*(np.repeat(key, found.lanes) for key in keys), np.tile(np.arange(found.lanes), rows)]
        return flattening.flat(values), np.stack(keys)

    def _check_inside(self, keys: Any, lanes: int | None, shape: tuple[int, ...]) -> None:
        last = [] if lanes is None else [np.array([0, lanes - 1])]
        for key, size in zip([*keys, *last], shape):
            outside = (key < 0) | (key >= size)
            if outside.any():
                raise DomainError(
                    f"the result has an entry at index {key[np.argmax(outside)]}, outside the shape {shape}"
                )


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


def _number(value: Any, semiring: Semiring, name: str) -> Any:
    if isinstance(value, torch.Tensor) and value.ndim == 0:
        return value
    return number(value, REAL, semiring, name)


def _device(values: Mapping[str, Any]) -> torch.device:
    """Where the tensors are that are not on the CPU."""
    numbers = [value.values if isinstance(value, Coordinates) else value for value in values.values()]
    tensors = [value for value in numbers if isinstance(value, torch.Tensor)]
    return next((x.device for x in tensors if not x.is_cpu), torch.device("cpu"))


def _check_device(value: Any, device: torch.device, name: str) -> None:
    if isinstance(value, torch.Tensor) and value.device != device and value.ndim:
        raise DomainError(
            f"`{name}` is on {value.device}, and other tensors are on {device}", hint=f'give `x.to("{device}")`'
        )


def _like(given: Mapping[str, Any], device: torch.device, semiring: Semiring) -> torch.Tensor:
    """A tensor of the type of results: float32 if all tensors are, else float64."""
    if semiring.carrier == "bool":
        return torch.empty(0, dtype=torch.bool, device=device)
    dtypes = {as_torch(x).dtype for x in given.values() if np.ndim(x)}
    return torch.empty(0, dtype=torch.float32 if dtypes == {torch.float32} else torch.float64, device=device)


def _of_type(value: Any, like: torch.Tensor, semiring: Semiring) -> torch.Tensor:
    """Numbers as elements of the semiring. Raises DomainError for what is none."""
    if not isinstance(value, torch.Tensor):
        value = elements(value, semiring)
    found = as_torch(value, like.device)
    if found.is_complex():
        raise DomainError(f"the values are of type {found.dtype}", hint="give floats, integers or truth values")
    if like.dtype == torch.bool:
        return found != 0 if found.dtype != torch.bool else found
    low, high = semiring.domains[0]
    if (math.isfinite(low) or math.isfinite(high)) and not is_transformed():
        outside = (found.detach() < low) | (found.detach() > high)
        if bool(outside.any()):
            wrong = found.detach()[outside].reshape(-1)[0].item()
            raise DomainError(f"{wrong} is outside {low} to {high}, the values of the semiring {semiring.name!r}")
    return found.to(like.dtype)


def _recorded(found: torch.Tensor, given: Mapping[str, torch.Tensor]) -> torch.Tensor:
    """A result of no terms, which is none of the inputs', as one that they have derivatives of: zeros."""
    if not found.is_floating_point() or found.requires_grad or not torch.is_grad_enabled():
        return found
    return sum((x.reshape(-1)[:0].sum() for x in given.values() if x.requires_grad), found)


def _compressed(found: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    """A matrix in COO as CSR."""
    if found.ndim != 2:
        raise UnsupportedError(f"torch's csr holds matrices, and this is a tensor of order {found.ndim}")
    rows, columns = found.indices()
    offsets = torch.searchsorted(rows.contiguous(), torch.arange(found.shape[0] + 1, device=rows.device))
    return torch.sparse_csr_tensor(offsets, columns, values, found.shape, check_invariants=False)
