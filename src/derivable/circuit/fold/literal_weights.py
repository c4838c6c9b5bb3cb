"""Reading the weights of a query: checked, broadcast, and in the scaled form the kernels compute with."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from derivable.circuit.graph.circuit import Circuit
from derivable.circuit.kernels.scaled import Scaled
from derivable.core.arguments import check_on_cpu
from derivable.core.arrays import as_array, as_floats
from derivable.core.diagnostics import DomainError, ShapeError, TypeMismatchError, UnsupportedError


@dataclass(frozen=True)
class LiteralWeights:
    """Weights of the literals, one row per batch item.

    positive, negative  [item, variable] float64, finite
    batch               the batch shape; items are its elements in C order
    """

    positive: np.ndarray
    negative: np.ndarray
    batch: tuple[int, ...]

    @property
    def swapped(self) -> LiteralWeights:
        """With the weights of each variable's two literals exchanged."""
        return LiteralWeights(self.negative, self.positive, self.batch)

    def log_shares(self) -> LogShares:
        with np.errstate(divide="ignore", invalid="ignore"):
            positive, negative = np.log(self.positive), np.log(self.negative)
            total = np.logaddexp(positive, negative)
            odds = np.where(total == -np.inf, np.nan, positive - negative)
            own, other = (np.nan_to_num(-np.logaddexp(0.0, x), nan=-np.inf, neginf=-np.inf) for x in (-odds, odds))
            return LogShares(own, other, total)

    @property
    def num_items(self) -> int:
        return len(self.positive)

    def shaped(self, values: np.ndarray, num_roots: int) -> Any:
        """[item, root, ...] as [*batch, root, ...], without the root axis if there is one root.

        A result without axes is a Python scalar.
        """
        tail = values.shape[2:] if num_roots == 1 else values.shape[1:]
        values = values.reshape(self.batch + tail)
        return values.item() if values.ndim == 0 else values


def check_concrete(value: Any, name: str) -> None:
    """Raise UnsupportedError for an array that torch or JAX traces, and for a tensor that requires a gradient: what is
    computed of it would be a constant."""
    torch, jax = sys.modules.get("torch"), sys.modules.get("jax")
    traced = jax is not None and isinstance(value, jax.core.Tracer)
    if torch is not None and isinstance(value, torch.Tensor):
        try:
            traced = torch.jit.is_tracing() or value.data_ptr() < 0
        except RuntimeError:
            # A tensor of vmap or of a functional derivative has no storage, and neither has one that is not dense.
            traced = value.layout is torch.strided and not value.is_nested
    elif torch is not None:
        traced = traced or isinstance(value, torch.fx.Proxy)
    if traced:
        raise UnsupportedError(
            f"{name} is traced, and this computes on numbers",
            hint="circuit.to_torch(semiring) and circuit.to_jax(semiring) make functions that can be traced",
        )
    if getattr(value, "requires_grad", False) is True:
        raise UnsupportedError(
            f"{name} requires a gradient, and this computes on numbers",
            hint="circuit.to_torch(semiring) is a module with gradients; or give weights.detach()",
        )


def in_columns(circuit: Circuit, weights: Any, name: str) -> Any:
    """Weights as they were given, or, from a mapping of variables to numbers or arrays [*batch], [*batch, variable].

    Raises DomainError if a variable is unknown, given twice or left out, ShapeError for arrays that do not broadcast.
    """
    if not isinstance(weights, Mapping):
        check_concrete(weights, name)
        check_on_cpu(weights, name, "evaluate the circuit there: `circuit.to_torch()(weights)`")
        return weights
    columns: dict[int, Any] = {}
    for variable, column in weights.items():
        number = circuit.variable_number(variable)
        if number in columns:
            raise DomainError(f"{name} has two values for variable {number}: {variable!r} is one of them")
        check_concrete(column, f"{name}[{variable!r}]")
        check_on_cpu(column, f"{name}[{variable!r}]")
        columns[number] = column
    absent = [v for v in range(1, circuit.num_variables + 1) if v not in columns]
    if absent:
        shown = ", ".join(repr(circuit.names[v - 1] if circuit.names else v) for v in absent[:5])
        raise DomainError(
            f"{name} has no value for {len(absent)} of {circuit.num_variables} variables: {shown}"
            + (", ..." if len(absent) > 5 else ""),
            hint="give every variable of the circuit; fix variables with `condition`",
        )
    ordered = [columns[v] for v in range(1, circuit.num_variables + 1)]
    if any(isinstance(column, Fraction) for column in ordered):
        return ordered
    try:
        ordered = [as_array(column, f"{name}[{v}]") for v, column in enumerate(ordered, 1)]
        return np.stack(np.broadcast_arrays(*ordered), axis=-1) if ordered else np.zeros(0)
    except ValueError:
        raise ShapeError(f"{name} holds arrays of different shapes, which do not broadcast") from None
    except TypeError:
        kinds = ", ".join(dict.fromkeys(str(column.dtype) for column in ordered))
        raise TypeMismatchError(f"{name} holds values of different types: {kinds}") from None


def _array(circuit: Circuit, weights, name: str) -> np.ndarray:
    weights = in_columns(circuit, weights, name)
    try:
        array = as_floats(weights, name)
    except (TypeError, ValueError):
        raise ShapeError(
            f"{name} must be an array of real numbers [*batch, variable], got {type(weights).__name__}"
        ) from None
    if array.ndim == 0 or array.shape[-1] != circuit.num_variables:
        raise ShapeError(
            f"{name} has shape {list(array.shape)}, but the circuit has {circuit.num_variables} variables",
            hint=f"the last axis must have length {circuit.num_variables}: one weight per variable",
        )
    if not np.isfinite(array).all():
        place = np.argwhere(~np.isfinite(array))[0]
        raise DomainError(
            f"{name}{_subscript(place)} is {array[tuple(place)]} (variable {place[-1] + 1})",
            hint="weights must be finite numbers",
        )
    return array


def _subscript(place) -> str:
    return "[" + ", ".join(str(int(i)) for i in place) + "]"


def read_weights(
    circuit: Circuit, weights=None, negative_weights=None, *, signed: bool = False, probabilities: bool = False
) -> LiteralWeights:
    """Check and broadcast the weights of a query.

    weights           [*batch, variable], NumPy, torch, nested lists, or a mapping (see `in_columns`); None takes
                      the weights that came with the circuit's file, and one for every literal where there are none
    negative_weights  the same for negative literals; None is 1 - weights
    signed            whether negative numbers are allowed
    probabilities     whether every weight must lie in [0, 1]

    Raises ShapeError for a wrong number of variables and DomainError for NaN, infinite or (unless
    `signed`) negative weights, with the place.
    """
    if weights is None:
        if negative_weights is not None:
            raise ShapeError("negative_weights were given without weights", hint="give both")
        if circuit.weights is not None:
            weights, negative_weights = circuit.weights
        else:
            weights = negative_weights = np.ones(circuit.num_variables)
    positive = _array(circuit, weights, "weights")
    if probabilities and ((positive < 0) | (positive > 1)).any():
        place = np.argwhere((positive < 0) | (positive > 1))[0]
        raise DomainError(
            f"weights{_subscript(place)} is {positive[tuple(place)]}, which is no probability",
            hint="probabilities lie in [0, 1]; use weighted_count for other weights",
        )
    negative = 1.0 - positive if negative_weights is None else _array(circuit, negative_weights, "negative_weights")
    if not signed:
        for name, array in (("weights", positive), ("negative_weights", negative)):
            if (array < 0).any():
                place = np.argwhere(array < 0)[0]
                given = name == "weights" or negative_weights is not None
                raise DomainError(
                    f"{name}{_subscript(place)} is {array[tuple(place)]}: a distribution needs weights of at least 0",
                    hint=None if given else "without negative_weights the weight of a negative literal is 1 - weight",
                )
    try:
        shape = np.broadcast_shapes(positive.shape, negative.shape)
    except ValueError:
        raise ShapeError(
            f"weights {list(positive.shape)} and negative_weights {list(negative.shape)} do not broadcast"
        ) from None
    rows = (int(np.prod(shape[:-1], dtype=np.int64)), shape[-1])
    return LiteralWeights(
        np.ascontiguousarray(np.broadcast_to(positive, shape).reshape(rows)),
        np.ascontiguousarray(np.broadcast_to(negative, shape).reshape(rows)),
        tuple(shape[:-1]),
    )


@dataclass(frozen=True)
class LogShares:
    """Log weights of the literals, [item, variable] nats, with each variable's total divided out.

    With the weights of both literals of a variable divided by their sum, a variable that a part of the
    circuit does not mention contributes a factor of one there, so nothing needs smoothing; the sums come
    back as one factor per query. A variable whose weights are both zero keeps them, and its total is -inf.
    """

    positive: np.ndarray
    negative: np.ndarray
    total: np.ndarray


def share_weights(weights: LiteralWeights, as_given: np.ndarray | bool = False) -> tuple[Scaled, Scaled, Scaled]:
    """The positive and the negative share of each variable's total, and the total, each (m, e) for m * 2**e.

    as_given  [variable] bool: those are left alone, their total is one
    returns   [item, variable]. A variable whose weights are both zero keeps them, and its total is zero
    """
    positive, negative = weights.positive, weights.negative
    largest = np.maximum(np.abs(positive), np.abs(negative))
    binary = np.frexp(largest)[1]
    # Both scaled into [-1, 1] exactly, so that their sum neither overflows nor loses bits to underflow.
    total = np.ldexp(positive, -binary) + np.ldexp(negative, -binary)
    divisor, power = np.frexp(total)
    keep = (total == 0) | as_given
    divisor = np.where(keep, 1.0, divisor)
    power = np.where(keep, 0, power + binary)

    def share(values: np.ndarray) -> Scaled:
        mantissa, exponent = np.frexp(values)
        return mantissa / divisor, exponent - power

    return share(positive), share(negative), (np.where(largest == 0, 0.0, divisor), power)
