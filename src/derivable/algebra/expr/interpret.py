"""What expressions mean: a slow and obvious interpreter over NumPy scalars or arrays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import Any

import numpy as np

from derivable.algebra.expr.nodes import Apply, Argument, Constant, Expr, as_tuple, in_order
from derivable.algebra.expr.operations import OPERATIONS
from derivable.algebra.expr.types import HALVES, numpy_dtype
from derivable.core.diagnostics import ShapeError

# Operations of which NumPy has no warnings.
_QUIET = {
    *("minimum", "maximum", "equal", "not_equal", "less", "less_equal"),
    *("logical_not", "logical_and", "logical_or", "logical_xor"),
}


def interpret(exprs: Expr | Sequence[Expr], values: Sequence[Any]) -> Any:
    """The value of an expression, or the tuple of values of several.

    values   one NumPy scalar or array per argument index, all of one shape [*batch] or scalars; each is
             cast to its argument's type
    returns  a NumPy scalar or array [*batch] of the expression's type, or a tuple of them

    Overflow, division by zero and invalid operations give inf or NaN silently, as in the compiled
    routes; integers wrap around, and x // 0 = x % 0 = 0.
    """
    return _interpreter(exprs if isinstance(exprs, Expr) else tuple(exprs))(values)


def interpreter(exprs: Expr | Sequence[Expr]) -> Callable[[Sequence[Any]], Any]:
    """`interpret` as a function of the values alone, for expressions that are evaluated often."""
    roots = as_tuple(exprs)
    nodes = in_order(roots)
    slots = {node: slot for slot, node in enumerate(nodes)}
    start: list[Any] = [None] * len(nodes)
    arguments: list[tuple[int, Argument, np.dtype, bool]] = []
    steps: list[tuple[int, Callable, list[int], np.dtype, list[int]]] = []
    last_use: dict[Expr, Expr | None] = {
        operand: node for node in nodes if isinstance(node, Apply) for operand in node.inputs
    }
    # Results stay: None is the use that comes after all.
    last_use.update((root, None) for root in roots)
    for slot, node in enumerate(nodes):
        dtype = numpy_dtype(node.dtype)
        if isinstance(node, Apply):
            row = OPERATIONS[node.operation]
            meaning = partial(row.meaning, dtype=dtype) if row.rule == "cast" else row.meaning
            if any(operand.dtype in HALVES for operand in node.inputs):
                meaning = _in_float32(meaning)
            operands = [slots[operand] for operand in node.inputs]
            # What is used here for the last time is let go, so that NumPy takes the same memory again.
            steps.append((slot, meaning, operands, dtype, [slots[o] for o in node.inputs if last_use[o] is node]))
        elif isinstance(node, Constant):
            start[slot] = dtype.type(node.value)
        elif isinstance(node, Argument):
            arguments.append((slot, node, dtype, node in roots))
    answers = [slots[root] for root in roots]

    # To have NumPy ignore what it would warn of takes longer than an operation on some rows.
    is_quiet = all(node.operation in _QUIET for node in nodes if isinstance(node, Apply))

    def run(values: Sequence[Any]) -> Any:
        results = start.copy()
        for slot, node, dtype, is_answer in arguments:
            if node.index >= len(values):
                raise ShapeError(f"argument {node.name!r} has index {node.index}, {len(values)} values are given")
            value = values[node.index]
            if is_answer or type(value) is not np.ndarray or value.dtype != dtype or not value.ndim:
                with np.errstate(all="ignore"):
                    value = np.asarray(value).astype(dtype, copy=is_answer)[()]
            results[slot] = value
        if is_quiet:
            compute(results)
        else:
            with np.errstate(all="ignore"):
                compute(results)
        found = tuple([results[slot] for slot in answers])
        return found[0] if isinstance(exprs, Expr) else found

    def compute(results: list[Any]) -> None:
        for slot, meaning, operands, dtype, dead in steps:
            value = meaning(*[results[operand] for operand in operands])
            if type(value) is not np.ndarray or value.dtype != dtype or not value.ndim:
                # [()] turns the 0-dimensional arrays of np.where into scalars; the type is stated once more because
                # np.where and the formulas of the table may widen scalars.
                value = np.asarray(value).astype(dtype, copy=False)[()]
            results[slot] = value
            for operand in dead:
                results[operand] = None

    return run


# Datalog evaluates a semiring's few expressions in every round.
_interpreter = lru_cache(512)(interpreter)


def _in_float32(meaning: Callable) -> Callable:
    def computed(*operands: Any, **options: Any) -> Any:
        wide = [np.asarray(o) if np.asarray(o).dtype == bool else np.asarray(o).astype(np.float32) for o in operands]
        return meaning(*wide, **options)

    return computed
