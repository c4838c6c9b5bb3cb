"""The device table: (primitive, device) -> kernels, or a declared refusal with its reason.

Devices are "reference" (the NumPy meaning), "cpu" (Numba kernels) and "cuda" (Triton kernels). A call
without a device goes to the first of cpu and reference that takes its arrays; `explain` says which and why.
"""

from __future__ import annotations

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
from derivable.parallel import primitives

DEVICES = ("reference", "cpu", "cuda")


@dataclass(frozen=True)
class Kernels:
    """A filled cell: the module that offers the primitive's functions, and how it works in a few words."""

    module: str
    how: str

    def function(self, name: str) -> Callable:
        return getattr(importlib.import_module(self.module), name)


@dataclass(frozen=True)
class Planned:
    """A filled cell whose kernels run a plan made once from the structure, not the primitive's own arguments.

    engine  what makes the plan and runs it
    """

    how: str
    engine: str


@dataclass(frozen=True)
class Refusal:
    """An empty cell: a declared refusal."""

    reason: str


@dataclass(frozen=True)
class Choice:
    """What a call gets, and why."""

    primitive: str
    device: str
    function: Callable
    why: str


_CPU = "derivable.parallel.rows"
# Where users find the folds, which stand on a higher floor.
_FOLDS = "derivable.parallel"
_REFERENCE = "derivable.parallel.reference"
_NO_CUDA = "no CUDA kernel is written yet; move the arrays to the CPU"

CELLS: dict[tuple[str, str], Kernels | Planned | Refusal] = {
    ("gather", "cpu"): Kernels(_CPU, "copies rows, chunks of indices in parallel"),
    ("segment_reduce", "cpu"): Kernels(_FOLDS, "emitted for the operator, chunks of segments in parallel"),
    ("reduce_by_index", "cpu"): Kernels(
        _FOLDS,
        "emitted for the operator, one part per thread merged in order; own reverse rules of products and extrema",
    ),
    ("scan", "cpu"): Kernels(_FOLDS, "emitted for the operator, one pass; segments and columns in parallel"),
    ("sort", "cpu"): Kernels(_CPU, "stable radix sort, digits that do not vary are skipped"),
    ("unique", "cpu"): Kernels(_CPU, "one pass over sorted rows"),
    ("join", "cpu"): Kernels(_CPU, "sorted merge, count then fill, chunks of left rows in parallel"),
}
for _name in primitives.PRIMITIVES:
    _exact = "" if _name in ("sort", "unique", "join") else "; also exact Python integers"
    CELLS[_name, "reference"] = Kernels(_REFERENCE, f"NumPy, slow and obvious{_exact}")
    CELLS[_name, "cuda"] = Refusal(_NO_CUDA)
CELLS["fold_levels", "reference"] = Kernels("derivable.parallel.levels", "NumPy, one node after the other")
CELLS["fold_levels", "cpu"] = Planned(
    "one fused pass over a flat buffer, columns of the batch in parallel",
    "`Circuit.evaluate`, `to_torch` and `to_jax`",
)


def lookup(primitive: str, device: str) -> Kernels:
    """The kernels of a cell. Raises UnsupportedError for an unknown name, or with the reason of a refusal."""
    primitives.get(primitive)
    if device not in DEVICES:
        raise UnsupportedError(f"there is no device {device!r}", hint=f"known are {', '.join(DEVICES)}")
    cell = CELLS.get((primitive, device), Refusal("nobody declared this cell"))
    if isinstance(cell, Refusal):
        raise UnsupportedError(f"{primitive} does not run on {device}: {cell.reason}")
    if isinstance(cell, Planned):
        raise UnsupportedError(
            f"{primitive} on {device} runs a plan, not these arguments", hint=f"it is run by {cell.engine}"
        )
    return cell


def choose(primitive: str, *arguments: Any, device: str | None = None, rule: str = "") -> Choice:
    """Which function a call with these arguments gets, and why.

    device  None lets the arrays decide
    rule    "" for the primitive itself, "vjp" or "jvp" for its derivative rule

    Raises UnsupportedError for a declared refusal.
    """
    function = f"{primitive}_{rule}" if rule else primitive
    if device is not None:
        return Choice(primitive, device, lookup(primitive, device).function(function), "asked for by name")
    lookup(primitive, "reference")
    for argument in arguments:
        for array in argument if isinstance(argument, (tuple, list)) else (argument,):
            if getattr(getattr(array, "device", None), "type", "cpu") == "cuda":
                cell = lookup(primitive, "cuda")
                return Choice(primitive, "cuda", cell.function(function), "an array is on a CUDA device")
            if getattr(getattr(array, "dtype", None), "kind", "") == "O":
                cell = lookup(primitive, "reference")
                why = "exact Python integers (dtype object) have no kernel"
                return Choice(primitive, "reference", cell.function(function), why)
    cell = lookup(primitive, "cpu")
    return Choice(primitive, "cpu", cell.function(function), f"NumPy arrays: {cell.how}")


def _schedules(primitive: str, arguments: Sequence[Any]) -> list[tuple[str, str]]:
    """How the kernels of a fold go through the rows."""
    places = {"scan": (0, 1), "segment_reduce": (0, 1), "reduce_by_index": (1, 3)}.get(primitive)
    if places is None or len(arguments) <= max(places):
        return []
    from derivable.parallel.element_folds import schedules

    op, values = (arguments[place] for place in places)
    monoid = op if isinstance(op, Monoid) else resolve(op, np.asarray(values).dtype)
    leaves = [np.asarray(leaf) for leaf in flatten(monoid.element, values, "values")]
    typed = monoid.typed([leaf.dtype for leaf in leaves])
    width = math.prod(leaves[0].shape[1:]) // typed.leaf_sizes[0]
    if primitive == "reduce_by_index":
        return [("forward", "row by row"), ("backward", "row by row")]
    return list(zip(("forward", "backward"), schedules(primitive, typed, width)))


def explain(primitive: str | None = None, *arguments: Any, device: str | None = None) -> str:
    """The table as a text (no arguments), a primitive's row, or what a call gets and why.

    explain()                                     the whole table
    explain("scan")                               one row
    explain("scan", "add", values)                what `scan("add", values)` would run, forward and backward
    """
    from derivable.device.cpu.threads import get_num_threads

    lines = []
    if primitive is not None and (arguments or device is not None):
        choice = choose(primitive, *arguments, device=device)
        lines.append(f"{primitive} -> {choice.device} ({choice.function.__module__})")
        lines.append(f"  because: {choice.why}")
        if choice.device == "cpu":
            lines += [f"  {way}: {schedule}" for way, schedule in _schedules(primitive, arguments)]
        lines.append(f"  threads: {get_num_threads()}")
    else:
        names = list(primitives.PRIMITIVES) if primitive is None else [primitives.get(primitive).name]
        width = max(map(len, names))
        for name in names:
            for device_name in DEVICES:
                cell = CELLS.get((name, device_name), Refusal("nobody declared this cell"))
                if isinstance(cell, Refusal):
                    text = f"refused: {cell.reason}"
                else:
                    text = cell.how + (f"; run by {cell.engine}" if isinstance(cell, Planned) else "")
                lines.append(f"{name:{width}}  {device_name:9}  {text}")
            lines.append(f"{'':{width}}  derivative {primitives.get(name).note}")
    return "\n".join(lines)
