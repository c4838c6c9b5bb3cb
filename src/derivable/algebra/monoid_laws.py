"""The laws that an operator of a fold must keep, tried on random elements."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from derivable.algebra.element import flatten, rebuild
from derivable.algebra.monoid import Monoid
from derivable.algebra.typed import TypedMonoid
from derivable.core.diagnostics import OperatorError

_NOT_NEUTRAL = "does not have this neutral element"
TRIALS = 512
RELATIVE = 1e-6
_DOMAIN = "if it holds for the values you use, say which with domain=(low, high)"
_HINTS = {
    "is not associative": f"folds group their elements in any way, so results would depend on the machine; {_DOMAIN}",
    _NOT_NEUTRAL: "give the element that changes nothing, 0 for +, 1 for *, -inf for maximum; " + _DOMAIN,
    "is not commutative": "leave out commutative=True: scans do not need it, and reduce_by_index will refuse it",
}
Domain = tuple[float, float] | Callable[[np.random.Generator], Any] | None


def check_laws(operator: Monoid, dtypes: tuple[str, ...], domain: Domain = None) -> bool:
    """Raise OperatorError, with the simplest counterexample found, unless the operator is associative, has its
    neutral element and commutes if it promises to; returns whether it commutes on what was tried.

    The same elements are tried every time, with the parameters that the operator's function has now. Floats are
    compared up to rounding.
    """
    typed, tensors = operator.with_parameters(dtypes)
    scalars = typed.dtypes[: typed.size - len(tensors)]
    a, b, c = (_elements(operator, scalars, domain, seed) for seed in range(3))
    # Simple elements first, so that the counterexample shown is one that a person can compute.
    a, b, c = (tuple(column[_by_size(a, b, c)] for column in columns) for columns in (a, b, c))
    held = [np.full(TRIALS, tensor.item(), dtype) for tensor, dtype in zip(tensors, typed.dtypes[len(scalars) :])]
    a, b, c = ((*columns, *held) for columns in (a, b, c))
    neutral = tuple(np.full(TRIALS, value) for value in typed.neutral)
    _compare(operator, typed, _NOT_NEUTRAL, "neutral op a", "a", typed.apply(neutral, a), a, {"a": a})
    _compare(operator, typed, _NOT_NEUTRAL, "a op neutral", "a", typed.apply(a, neutral), a, {"a": a})
    left, right = typed.apply(typed.apply(a, b), c), typed.apply(a, typed.apply(b, c))
    sides = "(a op b) op c", "a op (b op c)"
    _compare(operator, typed, "is not associative", *sides, left, right, {"a": a, "b": b, "c": c})
    left, right = typed.apply(a, b), typed.apply(b, a)
    if operator.commutative:
        _compare(operator, typed, "is not commutative", "a op b", "b op a", left, right, {"a": a, "b": b})
    return bool(_same(left, right).all())


def _elements(operator: Monoid, dtypes: Sequence[str], domain: Domain, seed: int) -> tuple[np.ndarray, ...]:
    """Components [trial] of random elements."""
    rng = np.random.default_rng(seed)
    if callable(domain):
        drawn = [flatten(operator.element, domain(rng), "what `domain` gives") for _ in range(TRIALS)]
        leaves = [np.stack([np.asarray(leaves[k]).reshape(-1) for leaves in drawn]) for k in range(len(drawn[0]))]
        columns = [column for leaf in leaves for column in leaf.T]
        return tuple(column.astype(dtype) for column, dtype in zip(columns, dtypes))
    columns = []
    for dtype in dtypes:
        low, high = domain if domain is not None else (-20.0, 20.0)
        if dtype == "bool":
            columns.append(rng.integers(0, 2, TRIALS).astype(bool))
        elif dtype == "int64":
            columns.append(rng.integers(int(np.ceil(low)), int(np.floor(high)) + 1, TRIALS))
        else:
            # Halves and quarters are exact, so most comparisons are; the rest are ordinary numbers.
            column = rng.uniform(low, high, TRIALS)
            if domain is None:
                column *= rng.choice([0.1, 0.1, 1.0], TRIALS)
            exact = rng.random(TRIALS) < 0.75
            columns.append(np.where(exact, np.clip(np.round(4 * column) / 4, low, high), column).astype(dtype))
    return tuple(columns)


def _by_size(*elements: tuple[np.ndarray, ...]) -> np.ndarray:
    total = np.zeros(TRIALS)
    for columns in elements:
        for column in columns:
            number = np.abs(column.astype(float))
            total += number + 10 * (number != np.round(number))
    return np.argsort(total, kind="stable")


def _same(left: tuple[np.ndarray, ...], right: tuple[np.ndarray, ...]) -> np.ndarray:
    """[trial] whether all components agree."""
    fine = np.ones(TRIALS, bool)
    for x, y in zip(left, right):
        equal = x == y
        if np.asarray(x).dtype.kind == "f":
            with np.errstate(invalid="ignore"):
                equal = equal | (np.abs(x - y) <= RELATIVE * (1 + np.abs(x) + np.abs(y))) | (np.isnan(x) & np.isnan(y))
        fine &= equal
    return fine


def _compare(
    operator: Monoid, typed: TypedMonoid, broken: str, left_name: str, right_name: str, left, right, elements: dict
) -> None:
    bad = np.flatnonzero(~_same(left, right))
    if len(bad) == 0:
        return
    trial = int(bad[0])

    def shown(columns: tuple[np.ndarray, ...]) -> str:
        scalars = [column[trial].item() for column in columns]
        leaves = [
            scalars[start] if shape == () else np.array(scalars[start:stop]).reshape(shape).tolist()
            for shape, start, stop in zip(operator.element.leaf_shapes, typed.starts, typed.starts[1:])
        ]
        return str(leaves[0]) if operator.element.shape is not None else str(_plain(operator, leaves))

    where = ", ".join(f"{name} = {shown(columns)}" for name, columns in elements.items())
    neutral = f", neutral = {shown(tuple(np.full(TRIALS, v) for v in typed.neutral))}" if "neutral" in broken else ""
    raise OperatorError(
        f"the operator {operator.name} {broken}: for {where}{neutral}, "
        f"{left_name} = {shown(left)} and {right_name} = {shown(right)}",
        hint=_HINTS[broken],
    )


def _plain(operator: Monoid, leaves: list) -> Any:
    return rebuild(operator.element, operator.neutral, leaves)
