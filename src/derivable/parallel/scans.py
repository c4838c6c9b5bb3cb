"""Scan: all prefixes of a fold."""

from __future__ import annotations

import numpy as np

from derivable.algebra.monoids import resolve
from derivable.parallel import layout
from derivable.parallel.primitive import Primitive


def scan(values, operator, *, exclusive=False, out=None):
    """The folds of all prefixes along the first axis.

    values     [n, *batch] of a dtype that the operator takes
    operator   a name or a Semiring (its plus)
    exclusive  False: result[i] folds values[:i + 1]; True: values[:i], so result[0] is the neutral element
    returns    [n, *batch]

    Raises UnsupportedError for an operator that does not take the dtype.
    Law: the last inclusive prefix is the fold of everything.
    Derivative: the chain rule in one pass from right to left, without Jacobians (so zero-safe).
    """
    values = layout.check_values(values)
    operator = resolve(operator, values.dtype)
    result = layout.result(out, values.shape, values.dtype)
    if exclusive and len(values):
        result[0] = operator.neutral_for(values.dtype)
        values, rest = values[:-1], result[1:]
    else:
        rest = result
    for i in range(len(values)):
        rest[i] = values[i] if i == 0 else operator(rest[i - 1], values[i])
    return result


def scan_shape(values):
    """[n, *batch] -> [n, *batch]"""
    return values


def scan_vjp(adjoint, values, operator, *, exclusive=False, result=None, out=None):
    """Adjoint of `values` from that of the result; `result` saves computing the scan again."""
    values, operator, result = check_differentiable(values, operator, exclusive, result, scan)
    adjoint = layout.check_same("adjoint", adjoint, values.shape).astype(values.dtype)
    answer = layout.result(out, values.shape, values.dtype)
    if exclusive:
        # The exclusive scan is the inclusive one of all but the last value, moved by one.
        answer[-1:] = 0
        values, result, adjoint, rest = values[:-1], result[1:], adjoint[1:], answer[:-1]
    else:
        rest = answer
    if len(values):
        running = adjoint[-1]
        for i in range(len(values) - 1, 0, -1):
            back, rest[i] = operator.vjp(result[i - 1], values[i], running)
            running = adjoint[i - 1] + back
        rest[0] = running
    return answer


def scan_jvp(tangent, values, operator, *, exclusive=False, result=None, out=None):
    """Tangent of the result from that of `values`."""
    values, operator, result = check_differentiable(values, operator, exclusive, result, scan)
    tangent = layout.check_same("tangent", tangent, values.shape).astype(values.dtype)
    answer = layout.result(out, values.shape, values.dtype)
    if exclusive:
        answer[:1] = 0
        values, result, tangent, rest = values[:-1], result[1:], tangent[:-1], answer[1:]
    else:
        rest = answer
    for i in range(len(values)):
        if i == 0:
            rest[0] = tangent[0]
        else:
            slope, own = operator.vjp(result[i - 1], values[i], np.ones((), values.dtype))
            rest[i] = slope * rest[i - 1] + own * tangent[i]
    return answer


def check_differentiable(values, operator, exclusive, result, run):
    """Arrays and an Monoid; the scan's result, by `run` if it is not given."""
    values, operator = layout.resolve_differentiable(values, operator)
    if result is None:
        result = run(values, operator, exclusive=exclusive)
    return values, operator, layout.check_same("result", result, values.shape)


PRIMITIVE = Primitive("scan", scan, scan_shape, scan_vjp, scan_jvp, "float values")
