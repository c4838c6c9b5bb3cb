"""Programs as gathers and sums of torch tensors: on any device, in the semirings whose sums torch has.

Where entries are is found on the CPU, once for inputs whose entries stay where they are; what they are stays on the
device. The derivatives are those of torch.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import torch

from derivable.algebra.semiring import Semiring
from derivable.bridge.torch import has_nan, is_captured, is_observed, lacks_memory, no_memory, where_not_finite
from derivable.bridge.torch_columns import Torch
from derivable.core.diagnostics import DomainError, ShapeError, UnsupportedError
from derivable.parallel.program import nodes as n
from derivable.parallel.program.execute import Prepared, execute
from derivable.parallel.program.nodes import Column
from derivable.parallel.program.text import program_text
from derivable.tensor.call.compilation import Kernel
from derivable.tensor.call.device_folds import FoldedProgram, has_kernels
from derivable.tensor.call.sparsity import KEPT, IndexCache, SparsityPattern, parted
from derivable.tensor.language import nodes as t
from derivable.tensor.language.types import REAL, is_tensor
from derivable.tensor.lower.flatten import Bound, Flattening, Scalar, View
from derivable.tensor.values.inputs import checked_names, number
from derivable.tensor.values.narrow import rounded, widened
from derivable.tensor.values.order import distinct
from derivable.tensor.values.values import (
    FORMS,
    Coordinates,
    as_torch,
    coordinates,
    elements,
    library_of,
    linear,
    not_fitting,
)


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

    @cached_property
    def is_given(self) -> bool:
        """Whether the column is an input's own memory."""
        node = self.column.node
        while isinstance(node, n.Reshape):
            node = node.of.node
        return isinstance(node, n.Given)

    def program(
        self, semiring: Semiring, like: torch.Tensor, given: Iterable[torch.Tensor]
    ) -> Prepared | FoldedProgram:
        """What computes the column: its folds are kernels on devices that have some, where they are worth it."""
        if not has_kernels(like.device) or is_observed():
            return self.run
        key = like.device, like.dtype
        if key not in self.folded:
            self.folded[key] = FoldedProgram(self.column, semiring, like)
        found = self.folded[key]
        is_recorded = torch.is_grad_enabled() and any(value.requires_grad for value in given)
        return found if found.is_worthwhile and (found.is_differentiable or not is_recorded) else self.run

    def __getstate__(self) -> dict[str, Any]:
        # Kernels stay on their device.
        return {**vars(self), "folded": {}}

    def fits(self, wheres: Mapping[str, SparsityPattern], others: Mapping[str, Any], shape: tuple[int, ...]) -> bool:
        if not self.keeps or self.shape != shape or self.others != others:
            return False
        return all(where.is_same(wheres[name]) for name, where in self.wheres.items())


class RepeatedCall:
    """The plan of the last call, for calls with tensors of the same layouts, shapes, types and devices.

    Whether entries are where they were is found on the device, while the result is computed, so the host waits once.

    tensors  {name: (an empty tensor of its layout, type and device, its shape, the tensors that held its indices)}
    like     an empty tensor of the type of the result
    """

    def __init__(self, plan: Plan, like: torch.Tensor, is_dense: bool):
        self.plan, self.like, self.is_dense = plan, like, is_dense
        self.tensors: dict[str, tuple[torch.layout, torch.Size, tuple[torch.Tensor, ...]]] = {}

    def takes(self, name: str, value: Any, where: SparsityPattern | None, fetched: IndexCache) -> bool:
        """Keep what an input is; False if it is looked at in each call."""
        if type(value) not in _TENSORS or value.dtype != self.like.dtype or value.device != self.like.device:
            return False
        if value.is_meta:
            return False
        held: tuple[torch.Tensor, ...] | None = ()
        if value.layout != torch.strided:
            is_ordered = value.layout == torch.sparse_csr or (value.layout == torch.sparse_coo and value.is_coalesced())
            held = fetched.tensors_of(where.indices) if is_ordered and where is not None else None
        elif where is not None and where.indices is not None:
            held = None
        if held is None or (where is not None and where.places is not None):
            return False
        self.tensors[name] = value.layout, value.shape, held
        return True

    def operands(self, values: Mapping[str, Any]) -> tuple[dict[str, torch.Tensor], list] | None:
        """(numbers [entry] by name, pairs of indices that have to be equal); None for inputs unlike those."""
        if values.keys() != self.tensors.keys():
            return None
        given: dict[str, torch.Tensor] = {}
        pairs: list[tuple[torch.Tensor, torch.Tensor]] = []
        for name, (layout, shape, held) in self.tensors.items():
            value = values[name]
            if type(value) not in _TENSORS or value.layout != layout or value.shape != shape:
                return None
            if value.dtype != self.like.dtype or value.device != self.like.device:
                return None
            if layout == torch.strided:
                given[name] = value.reshape(-1) if shape else value
                continue
            if layout == torch.sparse_coo and not value.is_coalesced():
                return None
            is_compressed = layout == torch.sparse_csr
            now = (value.crow_indices(), value.col_indices()) if is_compressed else (value.indices(),)
            if any(new.shape != old.shape for new, old in zip(now, held)):
                return None
            pairs += zip(now, held)
            given[name] = value.values().reshape(-1)
        return given, pairs


# What may be taken as it is.
_TENSORS = torch.Tensor, torch.nn.Parameter


def _differ(pairs: list[tuple[torch.Tensor, torch.Tensor]], numbers: torch.Tensor | None) -> bool:
    """Whether two tensors of a pair are not equal, or a NaN is among the numbers, by one wait for the device."""
    flags = [(left != right).any() for left, right in pairs]
    if numbers is not None:
        flags.append(numbers.detach().isnan().any())
    return bool(flags) and bool(flags[0] if len(flags) == 1 else torch.stack(flags).any())


class DeviceKernel(Kernel):
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
        self._repeated: RepeatedCall | None = None
        # The libraries of columns, by device and type.
        self._arrays: dict[tuple[torch.device, torch.dtype], Torch] = {}

    def _product(self) -> None:
        return None

    def call_anew(self, values: dict[str, Any], out: Any) -> Any:
        if self.may_be_inexact and is_captured():
            # A graph cannot look at its results.
            return self.exact.call_anew(values, out)
        if self.may_be_inexact and torch.is_grad_enabled() and not is_observed():
            return self._watched(values, out)
        return self._called(values, out)

    def _watched(self, values: dict[str, Any], out: Any) -> Any:
        """The result, whose derivatives in reverse mode are right for adjoints that are not finite too: a sum of
        numbers that cancel differs from a missing entry."""
        leaves = {
            name: x
            for name, x in values.items()
            if isinstance(x, torch.Tensor) and x.layout == torch.strided and x.requires_grad
        }
        views = {name: x.view_as(x) for name, x in leaves.items()}
        total = self._called({**values, **views}, out)
        if not (leaves and isinstance(total, torch.Tensor) and total.layout == torch.strided and total.requires_grad):
            return total

        def adjoint(name: str, seed: torch.Tensor) -> torch.Tensor | None:
            records = torch.is_grad_enabled()
            with torch.enable_grad():
                again = self.exact.call_anew(dict(values), None)
            return torch.autograd.grad(again, leaves[name], seed, create_graph=records, allow_unused=True)[0]

        where_not_finite(total, views, adjoint)
        return total

    def _called(self, values: dict[str, Any], out: Any) -> Any:
        if out is not None:
            values["out"] = out
        numbers = tuple(values.values())
        wide, narrow = widened(numbers)
        if wide is not numbers:
            return rounded(self._called(dict(zip(values, wide)), None), narrow)
        repeated, self._repeated = self._repeated, None
        found = None if repeated is None else self._again(repeated, values)
        if found is not None:
            self._repeated = repeated
            return found
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
        try:
            found = self._run_plan(plan, given, like)
        except RuntimeError as error:
            if not lacks_memory(error):
                raise
            if is_dense and device.type == "cpu":
                raise not_fitting(shape) from None
            what = f"a program whose result has the shape {list(shape)}"
            raise no_memory(error, what, device, "have its result in coordinates") from None
        if self.may_be_inexact and has_nan(found):
            return self.exact.call_anew(values, None)
        repeated = RepeatedCall(plan, like, is_dense)
        if (
            plan.keeps
            and not (_has_ends(self.semiring) or is_observed())
            and all(repeated.takes(name, x, wheres.get(name), self._fetched) for name, x in values.items())
        ):
            self._repeated = repeated
        return self._formed(plan, found, given, is_dense)

    def _again(self, repeated: RepeatedCall, values: Mapping[str, Any]) -> Any:
        """The result of a call like the one before; None if it is another one."""
        if is_observed():
            return None
        operands = repeated.operands(values)
        if operands is None:
            return None
        given, pairs = operands
        try:
            found = self._run_plan(repeated.plan, given, repeated.like)
        except RuntimeError:
            # A call that knows nothing says what is wrong.
            return None
        if _differ(pairs, found if self.may_be_inexact else None):
            return None
        return self._formed(repeated.plan, found, given, repeated.is_dense)

    def _run_plan(self, plan: Plan, given: Mapping[str, torch.Tensor], like: torch.Tensor) -> torch.Tensor:
        run = plan.run if self.is_exact else plan.program(self.semiring, like, given.values())
        (found,) = run({name: (value,) for name, value in given.items()}, self._arrays_of(like))
        return found.clone() if plan.is_given else found

    def _formed(self, plan: Plan, found: torch.Tensor, given: Mapping[str, torch.Tensor], is_dense: bool) -> Any:
        found, shape = _recorded(found, given), plan.shape
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
        for name, entries in self.shaped(shapeless, wheres).items():  # type: ignore[arg-type]
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
            if is_observed():
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
        del plans[:-KEPT]
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
    """A tensor of the type of results: float32 if all tensors of torch are, or all arrays without any; else float64."""
    if semiring.carrier == "bool":
        return torch.empty(0, dtype=torch.bool, device=device)
    arrays = [x for x in given.values() if np.ndim(x)]
    dtypes = {x.dtype for x in arrays if isinstance(x, torch.Tensor)} or {as_torch(x).dtype for x in arrays}
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
    if _has_ends(semiring) and not is_observed():
        low, high = semiring.domains[0]
        outside = (found.detach() < low) | (found.detach() > high)
        if bool(outside.any()):
            wrong = found.detach()[outside].reshape(-1)[0].item()
            raise DomainError(f"{wrong} is outside {low} to {high}, the values of the semiring {semiring.name!r}")
    return found.to(like.dtype)


def _has_ends(semiring: Semiring) -> bool:
    """Whether there are numbers that are no elements, so that all that come are compared."""
    low, high = semiring.domains[0]
    return semiring.carrier == "bool" or math.isfinite(low) or math.isfinite(high)


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
