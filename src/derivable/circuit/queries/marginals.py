"""Marginals of all variables in one backward pass."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from derivable.algebra import semirings
from derivable.circuit.fold.block_fold import block_shares
from derivable.circuit.fold.fold_rows import fold_each_root
from derivable.circuit.fold.literal_weights import LiteralWeights, LogShares, read_weights
from derivable.circuit.fold.plan import plan_of
from derivable.circuit.graph.circuit import Circuit
from derivable.circuit.queries.properties import require_countable
from derivable.core.diagnostics import DomainError


@dataclass(frozen=True)
class Flows:
    """The distributions of the roots under rows of weights, as flows of probability into the literals.

    shares              log weights with each variable's total divided out
    log_value           [item, root] nats, of the roots under these
    positive, negative  [item, root, variable] probability that a random model's derivation has each literal
    open                [item, root, variable] probability that it does not mention the variable
    """

    shares: LogShares
    log_value: np.ndarray
    positive: np.ndarray
    negative: np.ndarray
    open: np.ndarray


def require_mass(circuit: Circuit, dead: np.ndarray, vanished: np.ndarray) -> None:
    """Raise DomainError if a root has no model of positive weight.

    dead      [item, variable] whether both literals of a variable weigh zero
    vanished  [item, root] whether a root is zero under weights that add up to one
    """
    without = dead.any(axis=1, keepdims=True) | vanished
    if not without.any():
        return
    item, root = np.argwhere(without)[0].tolist()
    place = (f" (root {root})" if circuit.num_roots > 1 else "") + (
        f" under weights {item} of the batch" if len(dead) > 1 else ""
    )
    if dead[item].any():
        variable = int(dead[item].argmax()) + 1
        raise DomainError(
            f"no model of the circuit has positive weight{place}: both literals of variable {variable} weigh 0",
            hint="give each variable at least one positive weight",
        )
    raise DomainError(
        f"no model of the circuit has positive weight{place}",
        hint="the circuit is unsatisfiable, or the weights rule out all its models",
    )


def flows(circuit: Circuit, weights: LiteralWeights) -> Flows:
    """The gradient of each root's logarithm for the log weights of the literals."""
    shares = weights.log_shares()
    derivatives = block_shares(circuit, weights, shares)
    if derivatives is None:
        derivatives = fold_each_root(plan_of(circuit), semirings.log, shares.positive, shares.negative)
    log_value, positive, negative = derivatives
    require_mass(circuit, shares.total == -np.inf, log_value == -np.inf)
    unmentioned = np.clip(1.0 - positive - negative, 0.0, 1.0)
    # What rounding leaves of 1 - 1 is not a probability.
    unmentioned[unmentioned < 1e-13] = 0.0
    return Flows(shares, log_value, positive, negative, unmentioned)


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
    found = flows(circuit, read)
    result = np.minimum(found.positive + found.open * np.exp(found.shares.positive)[:, None], 1.0)
    if joint:
        log_total = found.shares.total.sum(axis=1)
        with np.errstate(over="ignore", under="ignore"):
            result *= np.exp(found.log_value + log_total[:, None])[:, :, None]
    return read.shaped(result, circuit.num_roots)
