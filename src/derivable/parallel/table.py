"""The table of primitives, one row each, and what runs a call.

Devices are "reference" (the NumPy meaning), "cpu" (what is fastest there, mostly Numba kernels) and "cuda" (Triton
kernels, on torch tensors). A call without a device goes where its arrays are, or for those on the CPU to the first of
cpu and reference that takes them; `explain` says which and why.
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
_REFERENCE = "derivable.parallel.reference"
_ROWS = "derivable.parallel.rows"
# Where users find the folds, which stand on a higher floor.
_FOLDS = "derivable.parallel"
_NO_CUDA = "no CUDA kernel is written for it; move the arrays to the CPU"


@dataclass(frozen=True)
class Primitive:
    """One parallel primitive. Its derivative rules have its name with `_vjp` or `_jvp`.

    shape_rule  shapes of its array arguments -> shapes of its results; None for a length that depends on data
    reference   how the NumPy function works that says what it means, in a few words
    cpu         how it works on the CPU
    module      the module that offers it there
    note        what has a derivative, and what has none and why
    engine      what makes a plan from the structure and runs it, where kernels do not take the primitive's arguments
    cuda        how it works on CUDA tensors; "" where it is refused
    """

    name: str
    shape_rule: Callable
    reference: str
    cpu: str
    module: str
    note: str
    engine: str = ""
    cuda: str = ""

    def function(self, device: str, rule: str = "") -> Callable:
        """What runs it on a device, or its derivative rule. Raises UnsupportedError where nothing does."""
        if device == "cuda" and not self.cuda:
            raise UnsupportedError(f"{self.name} does not run on cuda: {_NO_CUDA}")
        if device != "reference" and self.engine:
            raise UnsupportedError(
                f"{self.name} on {device} runs a plan, not these arguments", hint=f"it is run by {self.engine}"
            )
        module = importlib.import_module(_REFERENCE if device == "reference" else self.module)
        return getattr(module, f"{self.name}_{rule}" if rule else self.name)


_EXACT = "NumPy, slow and obvious; also exact Python integers"
_OF_FOLDS = "of any order, of float values: the same fold of elements with tangents, and one reverse pass"
PRIMITIVES = {
    row.name: row
    for row in (
        Primitive(
            "gather",
            lambda values, indices: (*indices, *values[1:]),
            _EXACT,
            "copies rows with NumPy",
            _ROWS,
            "values; indices are not differentiable",
        ),
        Primitive(
            "segment_reduce",
            lambda values, offsets: (offsets[0] - 1, *values[1:]),
            _EXACT,
            "emitted for the operator, chunks of segments in parallel",
            _FOLDS,
            _OF_FOLDS,
            cuda="emitted for the operator in Triton: a scan of all segments at once, and its last rows",
        ),
        Primitive(
            "reduce_by_index",
            lambda destination, indices, values: destination,
            _EXACT,
            "emitted for the operator, one part per thread merged in order; own reverse rules of products and extrema",
            _FOLDS,
            _OF_FOLDS,
            cuda="emitted for the operator in Triton: few buckets in registers, many in the order that torch sorts; "
            "sums and extrema of many buckets by torch",
        ),
        Primitive(
            "scan",
            lambda values: values,
            _EXACT,
            "emitted for the operator, one pass; segments and columns in parallel",
            _FOLDS,
            _OF_FOLDS,
            cuda="emitted for the operator in Triton: the totals of chunks of rows, then the prefixes in each",
        ),
        Primitive(
            "sort",
            lambda *columns: (columns, columns[0]),
            "NumPy, slow and obvious",
            "stable radix sort, digits that do not vary are skipped; few rows by NumPy, rows in order not at all",
            _ROWS,
            "float columns; the order is locally constant",
        ),
        Primitive(
            "unique",
            lambda *columns: (tuple((None,) for _ in columns), (None,)),
            "NumPy, slow and obvious",
            "compares neighbouring rows with NumPy",
            _REFERENCE,
            "float columns; the groups are locally constant",
        ),
        Primitive(
            "join",
            lambda left, right: ((None,), (None,)),
            "NumPy, slow and obvious",
            "sorted merge, count then fill, chunks of left rows in parallel",
            _ROWS,
            "nothing: row numbers are locally constant; values go through gather",
        ),
        Primitive(
            "fold_levels",
            lambda leaves, kind, *_: (*kind, *leaves[1:]),
            "NumPy, one node after the other",
            "one fused pass over a flat buffer, columns of the batch in parallel",
            "",
            "float leaves, in reverse mode; the structure is not differentiable",
            "`Circuit.evaluate`, `to_torch` and `to_jax`",
            "emitted for the semiring, tiles of the batch in parallel, by Triton; run by `to_torch`, whose `explain` "
            "says where operations of torch take its place",
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


def choose(primitive: str, *arguments: Any, device: str | None = None, rule: str = "") -> Choice:
    """Which function a call with these arguments gets, and why.

    device  None lets the arrays decide
    rule    "" for the primitive itself, "vjp" or "jvp" for its derivative rule

    Raises UnsupportedError for an unknown primitive or device, and where nothing runs it.
    """
    row = get(primitive)
    if device is not None:
        if device not in DEVICES:
            raise UnsupportedError(f"there is no device {device!r}", hint=f"known are {', '.join(DEVICES)}")
        why = "chosen by name"
    else:
        device, why = _device_of(arguments) or ("cpu", f"NumPy arrays: {row.cpu}")
    return Choice(device, row.function(device, rule), why)


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
            "reference": row.reference,
            "cpu": row.cpu + (f"; run by {row.engine}" if row.engine else ""),
            "cuda": row.cuda or f"refused: {_NO_CUDA}",
        }
        lines += [f"{row.name:{width}}  {device_name:9}  {text}" for device_name, text in cells.items()]
        lines.append(f"{'':{width}}  derivative {row.note}")
    return "\n".join(lines)
