"""Entropy of the distribution on a circuit's models, and the divergence of two of them."""

from __future__ import annotations

from typing import Any

import numpy as np

from derivable.circuit.circuit import Circuit
from derivable.circuit.kernels.queries import choice_divergence, weigh
from derivable.circuit.literal_weights import LiteralWeights, read_weights, share_weights
from derivable.circuit.marginals import flows, positive_shares, require_mass
from derivable.circuit.properties import require_countable
from derivable.core.diagnostics import ShapeError
from derivable.device.cpu.memory import empty


def entropy(circuit: Circuit, weights=None, negative_weights=None) -> Any:
    """Entropy in nats of the distribution over models that is proportional to their weights.

    weights, negative_weights  [*batch, variable] of at least 0; None as in `weighted_count`
    returns                    [*batch] for one root, [*batch, root] for several; a float for no batch

    A model of a deterministic decomposable circuit is one derivation (a choice at each or-node it meets)
    and free choices of the variables that are left open; by the chain rule the entropy is the sum over
    or-nodes and open variables of their local entropies times the probability of meeting them.
    0 log 0 = 0. Uniform weights give the logarithm of the model count.

    Raises DomainError if there is no model of positive weight; otherwise as `marginals`.
    """
    require_countable(circuit, "entropy")
    read = read_weights(circuit, weights, negative_weights)
    result = empty((read.num_items, circuit.num_roots), np.float64)
    for each in flows(circuit, read):
        p = each.positive_share
        local = -(_x_log_y(p, p) + _x_log_y(1 - p, 1 - p))
        result[each.item, each.root] = max(0.0, each.choice_entropy + float(each.open @ local))
    return read.shaped(result, circuit.num_roots)


def kl_divergence(circuit: Circuit, weights, other_weights, negative_weights=None, other_negative_weights=None) -> Any:
    """KL(P || Q) in nats between two distributions over the models of one circuit.

    weights, negative_weights              [*batch, variable] of P, at least 0
    other_weights, other_negative_weights  [*batch, variable] of Q; the batches broadcast
    returns                                [*batch] for one root, [*batch, root] for several

    Infinite where a model of P has no mass under Q; never negative; 0 for equal distributions.

    Raises DomainError if P or Q has no model of positive weight; otherwise as `marginals`.
    """
    require_countable(circuit, "kl_divergence")
    mine = read_weights(circuit, weights, negative_weights)
    other = read_weights(circuit, other_weights, other_negative_weights)
    mine, other = _paired(mine, other)
    shares = share_weights(other)
    other_share, other_complement = positive_shares(other), positive_shares(_swapped(other))
    my_complement = positive_shares(_swapped(mine))
    arrays = circuit.kind, circuit.literal, circuit.offsets, circuit.children
    mantissa, exponent = empty(circuit.num_nodes, np.float64), empty(circuit.num_nodes, np.int64)
    result = empty((mine.num_items, circuit.num_roots), np.float64)
    for each in flows(circuit, mine):
        if each.root == 0:
            weigh(*arrays, *shares.row(each.item), mantissa, exponent)
        require_mass(circuit, shares, mantissa, each.item, each.root)
        root = int(circuit.roots[each.root])
        choices = choice_divergence(
            circuit.kind,
            circuit.offsets,
            circuit.children,
            root,
            each.flow,
            each.mantissa,
            each.exponent,
            mantissa,
            exponent,
        )
        p, not_p, q, not_q = (
            each.positive_share,
            my_complement[each.item],
            other_share[each.item],
            other_complement[each.item],
        )
        local = _x_log_y(p, p) - _x_log_y(p, q) + _x_log_y(not_p, not_p) - _x_log_y(not_p, not_q)
        met = each.open > 0
        # A literal that P uses and Q gives no mass leaves its or-node's choice, or the root, without mass.
        result[each.item, each.root] = max(0.0, choices + float(each.open[met] @ local[met]))
    return mine.shaped(result, circuit.num_roots)


def _x_log_y(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """x log y with 0 log y = 0; -inf for y = 0 < x."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(x > 0, x * np.log(y), 0.0)


def _swapped(weights: LiteralWeights) -> LiteralWeights:
    return LiteralWeights(weights.negative, weights.positive, weights.batch)


def _paired(a: LiteralWeights, b: LiteralWeights) -> tuple[LiteralWeights, LiteralWeights]:
    """Both broadcast to one batch shape."""
    if a.batch == b.batch:
        return a, b
    try:
        batch = np.broadcast_shapes(a.batch, b.batch)
    except ValueError:
        raise ShapeError(f"the batches {list(a.batch)} and {list(b.batch)} of weights do not broadcast") from None

    def spread(weights: LiteralWeights) -> LiteralWeights:
        width = weights.positive.shape[1]

        def rows(values):
            shaped = values.reshape((*weights.batch, width))
            return np.ascontiguousarray(np.broadcast_to(shaped, (*batch, width)).reshape(-1, width))

        return LiteralWeights(rows(weights.positive), rows(weights.negative), batch)

    return spread(a), spread(b)
