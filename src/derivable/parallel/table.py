"""The table of primitives, one row each, and what runs a call.

Devices of folds are "reference" (the NumPy meaning, of Python integers too), "cpu" (kernels by LLVM) and "cuda" (Triton
kernels, on torch tensors). A call without a device goes where its arrays are; `explain` says which and why. The other
primitives are NumPy.
"""

from __future__ import annotations

import difflib
import importlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from derivable.algebra.element import flatten
from derivable.algebra.monoid import Monoid
from derivable.algebra.monoids import resolve
from derivable.core.diagnostics import UnsupportedError

DEVICES = ("reference", "cpu", "cuda")
_NO_CUDA = "no CUDA kernel is written for it; move the arrays to the CPU"


@dataclass(frozen=True)
class Primitive:
    """One parallel primitive.

    cpu   how it works on the CPU
    note  what has a derivative, and what has none and why
    fold  whether it is a fold, which Python integers and CUDA tensors go through too; the others are NumPy
    plan  what runs it, where kernels take a plan and not the primitive's arguments
    cuda  how it works on CUDA tensors; "" where it is refused
    """

    name: str
    cpu: str
    note: str
    fold: bool = False
    plan: str = ""
    cuda: str = ""

    def function(self, device: str) -> Callable:
        """What runs it on a device. Raises UnsupportedError where nothing does."""
        if device == "cuda" and not self.cuda:
            raise UnsupportedError(f"{self.name} does not run on cuda: {_NO_CUDA}")
        if self.plan:
            raise UnsupportedError(f"{self.name} runs a plan, not these arguments", hint=f"it is run by {self.plan}")
        # The folds of devices, on a higher floor, are found where users find them.
        above = "derivable.parallel" if self.fold else "derivable.parallel.dispatch"
        module = importlib.import_module(
            "derivable.parallel.reference" if self.fold and device == "reference" else above
        )
        return getattr(module, self.name)


_OF_FOLDS = "of any order, of float values: the same fold of elements with tangents, and one reverse pass"
PRIMITIVES = {
    row.name: row
    for row in (
        Primitive("gather", "copies rows with NumPy", "values; indices are not differentiable"),
        Primitive(
            "segment_reduce",
            "emitted for the operator, chunks of segments in parallel",
            _OF_FOLDS,
            fold=True,
            cuda="emitted for the operator in Triton: a scan of all segments at once, and its last rows",
        ),
        Primitive(
            "reduce_by_index",
            "emitted for the operator, one part per thread merged in order; own reverse rules of products and extrema; "
            "small sums of torch tensors by torch",
            _OF_FOLDS,
            fold=True,
            cuda="emitted for the operator in Triton: few buckets in registers, many in the order that torch sorts; "
            "sums and extrema of many buckets by torch",
        ),
        Primitive(
            "scan",
            "emitted for the operator, one pass; segments and columns in parallel",
            _OF_FOLDS,
            fold=True,
            cuda="emitted for the operator in Triton: the totals of chunks of rows, then the prefixes in each",
        ),
        Primitive(
            "sort",
            "stable radix sort, digits that do not vary are skipped; few rows by NumPy, rows in order not at all",
            "float columns; the order is locally constant",
        ),
        Primitive(
            "unique",
            "compares neighbouring rows with NumPy",
            "float columns; the groups are locally constant",
        ),
        Primitive(
            "join",
            "finds the keys of both sides with NumPy, by one sort of the distinct ones",
            "nothing: row numbers are locally constant; values go through gather",
        ),
        Primitive(
            "fold_levels",
            "one fused pass over a flat buffer, columns of the batch in parallel",
            "float leaves, in reverse mode; the structure is not differentiable",
            plan="`Circuit.evaluate`, `to_torch` and `to_jax`",
            cuda="emitted for the semiring, tiles of the batch in parallel, by Triton; run by `to_torch`, whose "
            "`explain` says where operations of torch take its place",
        ),
    )
}


@dataclass(frozen=True)
class Choice:
    """What a call gets, and why."""

    device: str
    function: Callable
    why: str


def get(name: str) -> Primitive:
    """The primitive called `name`. Raises UnsupportedError for an unknown one, with the nearest name."""
    if not isinstance(name, str) or name not in PRIMITIVES:
        near = difflib.get_close_matches(str(name), PRIMITIVES, 1)
        raise UnsupportedError(
            f"there is no primitive {name!r}",
            hint=f"did you mean {near[0]!r}?" if near else f"known are {', '.join(PRIMITIVES)}",
        )
    return PRIMITIVES[name]


def choose(primitive: str, *arguments: Any, device: str | None = None) -> Choice:
    """Which function a call with these arguments gets, and why.

    device  None lets the arrays decide

    Raises UnsupportedError for an unknown primitive or device, and where nothing runs it.
    """
    row = get(primitive)
    if device is not None:
        if device not in DEVICES:
            raise UnsupportedError(f"there is no device {device!r}", hint=f"known are {', '.join(DEVICES)}")
        why = "chosen by name"
    else:
        device, why = _device_of(arguments) or ("cpu", f"NumPy arrays: {row.cpu}")
    return Choice(device, row.function(device), why)


def _device_of(arguments: Sequence[Any]) -> tuple[str, str] | None:
    """The device that the arrays ask for, and why; None where the CPU takes them."""
    for argument in arguments:
        for array in argument if isinstance(argument, (tuple, list)) else (argument,):
            if getattr(getattr(array, "device", None), "type", "cpu") == "cuda":
                return "cuda", "an array is on a CUDA device"
            if getattr(getattr(array, "dtype", None), "kind", "") == "O":
                return "reference", "exact Python integers (dtype object) have no kernel"
    return None


def _schedules(primitive: str, arguments: Sequence[Any], device: str) -> list[tuple[str, str]]:
    """How the kernels of a fold go through the rows."""
    places = {"scan": (0, 1), "segment_reduce": (0, 1), "reduce_by_index": (1, 3)}.get(primitive)
    if places is None or len(arguments) <= max(places):
        return []
    op, values = (arguments[place] for place in places)
    monoid = op if isinstance(op, Monoid) else resolve(op, _dtype_of(values))
    leaves = [
        leaf if hasattr(leaf, "dtype") else np.asarray(leaf) for leaf in flatten(monoid.element, values, "values")
    ]
    typed, _ = monoid.with_parameters([_dtype_of(leaf) for leaf in leaves])
    rows, *rest = leaves[0].shape
    width = math.prod(rest) // typed.leaf_sizes[0]
    if device == "cuda":
        from derivable.parallel.grid_scan_kernels import Grid, cut, scanned

        if primitive == "reduce_by_index" or not rows * width:
            return []
        segmented = primitive == "segment_reduce"
        operators = (scanned(typed, Grid(1, segmented=segmented), back) for back in (False, True))
        return [(way, str(cut(op, rows, width, 1).grid)) for way, op in zip(("forward", "backward"), operators)]
    from derivable.parallel.element_folds import schedules

    if primitive == "reduce_by_index":
        return [("forward", "row by row"), ("backward", "row by row")]
    return list(zip(("forward", "backward"), schedules(primitive, typed, width)))


def _dtype_of(array: Any) -> np.dtype:
    """Of an array of NumPy or torch, or of what becomes one of NumPy."""
    return np.dtype(str(array.dtype).removeprefix("torch.")) if hasattr(array, "dtype") else np.asarray(array).dtype


def explain(primitive: str | None = None, *arguments: Any, device: str | None = None) -> str:
    """The table as a text (no arguments), a primitive's row, or what a call gets and why.

    explain()                                     the whole table
    explain("scan")                               one row
    explain("scan", "add", values)                what `scan("add", values)` would run, forward and backward
    """
    from derivable.device.cpu.threads import get_num_threads

    if primitive is not None and (arguments or device is not None):
        choice = choose(primitive, *arguments, device=device)
        lines = [f"{primitive} -> {choice.device} ({choice.function.__module__})", f"  because: {choice.why}"]
        if choice.device != "reference":
            lines += [f"  {way}: {schedule}" for way, schedule in _schedules(primitive, arguments, choice.device)]
        return "\n".join(lines if choice.device == "cuda" else [*lines, f"  threads: {get_num_threads()}"])
    rows = list(PRIMITIVES.values()) if primitive is None else [get(primitive)]
    width = max(len(row.name) for row in rows)
    lines = []
    for row in rows:
        cells = {
            "cpu": row.cpu + (f"; run by {row.plan}" if row.plan else ""),
            "cuda": row.cuda or f"refused: {_NO_CUDA}",
        }
        if row.fold:
            cells = {"reference": "NumPy, slow and obvious; also exact Python integers", **cells}
        lines += [f"{row.name:{width}}  {device_name:9}  {text}" for device_name, text in cells.items()]
        lines.append(f"{'':{width}}  derivative {row.note}")
    return "\n".join(lines)
