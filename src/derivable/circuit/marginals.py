"""Marginals of all variables in one backward pass."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from derivable.circuit.circuit import Circuit
from derivable.circuit.count import log_of_scaled
from derivable.circuit.kernels.queries import flow_down, multiply_rows, weigh
from derivable.circuit.literal_weights import EXPONENT_UNIT, LiteralWeights, ScaledWeights, read_weights, share_weights
from derivable.circuit.properties import require_countable
from derivable.core.diagnostics import DomainError
from derivable.device.cpu.memory import empty


@dataclass(frozen=True)
class Flows:
    """The distribution of one root under one row of weights, as flows of probability through the circuit.

    item, root             which row of weights, which root (an index)
    mantissa, exponent     [node] scaled values of the nodes under divided weights
    flow                   [node] probability that a random model uses the node
    positive, negative     [variable] flow into the literals of each variable
    open                   [variable] probability that the model's derivation does not mention the variable
    positive_share         [variable] probability that it is true then
    choice_entropy         nats: the entropy of the choices at or-nodes

    The arrays are reused for the next root: read them before going on.
    """

    item: int
    root: int
    mantissa: np.ndarray
    exponent: np.ndarray
    flow: np.ndarray
    positive: np.ndarray
    negative: np.ndarray
    open: np.ndarray
    positive_share: np.ndarray
    choice_entropy: float

    def marginals(self) -> np.ndarray:
        """[variable] probability that each variable is true."""
        return np.minimum(self.positive + self.open * self.positive_share, 1.0)


def positive_shares(weights: LiteralWeights) -> np.ndarray:
    """[item, variable]: w / (w + nw), and 0 where both are 0. Neither overflows nor underflows on the way."""
    binary = np.frexp(np.maximum(weights.positive, weights.negative))[1]
    positive, negative = np.ldexp(weights.positive, -binary), np.ldexp(weights.negative, -binary)
    total = positive + negative
    return np.divide(positive, total, out=np.zeros_like(total), where=total > 0)


def require_mass(circuit: Circuit, shares: ScaledWeights, mantissa: np.ndarray, item: int, root: int) -> None:
    """Raise DomainError if a root has no model of positive weight. `mantissa` [node] under divided weights."""
    dead = np.flatnonzero(shares.total[0][item] == 0)
    place = (f" (root {root})" if circuit.num_roots > 1 else "") + (
        f" under weights {item} of the batch" if len(shares.positive[0]) > 1 else ""
    )
    if len(dead):
        raise DomainError(
            f"no model of the circuit has positive weight{place}: both literals of variable {dead[0] + 1} weigh 0",
            hint="give each variable at least one positive weight",
        )
    if mantissa[circuit.roots[root]] == 0:
        raise DomainError(
            f"no model of the circuit has positive weight{place}",
            hint="the circuit is unsatisfiable, or the weights rule out all its models",
        )


def flows(circuit: Circuit, weights: LiteralWeights) -> Iterator[Flows]:
    """One `Flows` for each row of weights and each root, rows outermost: one pass up a row, one down a root."""
    shares = share_weights(weights)
    positive_share = positive_shares(weights)
    arrays = circuit.kind, circuit.literal, circuit.offsets, circuit.children
    mantissa, exponent = empty(circuit.num_nodes, np.float64), empty(circuit.num_nodes, np.int64)
    flow = empty(circuit.num_nodes, np.float64)
    positive, negative = empty(circuit.num_variables, np.float64), empty(circuit.num_variables, np.float64)
    for item in range(weights.num_items):
        weigh(*arrays, *shares.row(item), mantissa, exponent)
        for index, root in enumerate(circuit.roots.tolist()):
            require_mass(circuit, shares, mantissa, item, index)
            entropy = flow_down(*arrays, root, mantissa, exponent, flow, positive, negative)
            unmentioned = np.clip(1.0 - positive - negative, 0.0, 1.0)
            # What rounding leaves of 1 - 1 is not a probability.
            unmentioned[unmentioned < 1e-13] = 0.0
            flow[root + 1 :] = 0.0
            yield Flows(
                item, index, mantissa, exponent, flow, positive, negative, unmentioned, positive_share[item], entropy
            )


def marginals(circuit: Circuit, weights=None, negative_weights=None, *, joint: bool = False) -> Any:
    """P(variable is true | root) for all variables, by one pass up and, for each root, one down.

    weights           [*batch, variable] of at least 0; None as in `weighted_count`
    negative_weights  the same for negative literals; None is 1 - weights
    joint             give the weighted count of (root and variable) instead of the conditional probability
    returns           [*batch, variable] for one root, else [*batch, root, variable], float64

    The distribution over models is proportional to the product of the weights of their literals. Weights
    of zero are fine: nothing is divided by them. The absolute error of a probability is a few units of
    1e-16 times the number of levels.

    Raises DomainError if a root has no model of positive weight (with `joint` too), for negative, NaN or
    infinite weights; UnsupportedError as `weighted_count`.
    """
    require_countable(circuit, "marginals")
    read = read_weights(circuit, weights, negative_weights)
    result = empty((read.num_items, circuit.num_roots, circuit.num_variables), np.float64)
    scales = np.ones((read.num_items, circuit.num_roots))
    for each in flows(circuit, read):
        result[each.item, each.root] = each.marginals()
        root = circuit.roots[each.root]
        scales[each.item, each.root] = log_of_scaled(each.mantissa[root], each.exponent[root])
    if joint:
        totals = share_weights(read).total
        mantissa, exponent = empty(read.num_items, np.float64), empty(read.num_items, np.int64)
        multiply_rows(*totals, mantissa, exponent)
        log_total = np.log(mantissa) + exponent * (EXPONENT_UNIT * np.log(2.0))
        with np.errstate(over="ignore", under="ignore"):
            result *= np.exp(scales + log_total[:, None])[:, :, None]
    return read.shaped(result, circuit.num_roots)
