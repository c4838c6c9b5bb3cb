"""Entropy of the distribution on a circuit's models, and the divergence of two of them."""

from __future__ import annotations

from typing import Any

import numpy as np

from derivable.algebra import semirings
from derivable.circuit.fold.fold_rows import fold
from derivable.circuit.fold.literal_weights import LiteralWeights, LogShares, read_weights
from derivable.circuit.fold.plan import plan_of
from derivable.circuit.graph.circuit import Circuit
from derivable.circuit.queries.marginals import Flows, flows, require_mass
from derivable.circuit.queries.properties import require_countable
from derivable.core.diagnostics import ShapeError


def entropy(circuit: Circuit, weights=None, negative_weights=None) -> Any:
    """Entropy in nats of the distribution over models that is proportional to their weights.

    weights, negative_weights  [*batch, variable] of at least 0; None as in `weighted_count`
    returns                    [*batch] for one root, [*batch, root] for several; a float for no batch

    The probability of a model is the product of its literals' weights over the weighted count. So its expected
    logarithm needs the probabilities of literals only, which are the gradient of the root's logarithm.
    0 log 0 = 0. Uniform weights give the logarithm of the model count.

    Raises DomainError if there is no model of positive weight; otherwise as `marginals`.
    """
    require_countable(circuit, "entropy")
    read = read_weights(circuit, weights, negative_weights)
    found = flows(circuit, read)
    local = _cross_entropy(found, found.shares)
    return read.shaped(np.maximum(0.0, found.log_value + local), circuit.num_roots)


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
    p, q = flows(circuit, mine), other.log_shares()
    (log_value,) = fold(plan_of(circuit), semirings.log, (q.positive,), (q.negative,))
    require_mass(circuit, q.total == -np.inf, log_value == -np.inf)
    # A literal that P uses and Q gives no mass makes the second term infinite.
    divergence = _cross_entropy(p, q) + log_value - (_cross_entropy(p, p.shares) + p.log_value)
    return mine.shaped(np.maximum(0.0, divergence), circuit.num_roots)


def _cross_entropy(p: Flows, q: LogShares) -> np.ndarray:
    """[item, root] nats: what models of P expect of minus the log shares of their literals under Q, open ones too."""
    total = np.zeros(p.log_value.shape)
    for flow, share, log_q in (
        (p.positive, p.shares.positive, q.positive),
        (p.negative, p.shares.negative, q.negative),
    ):
        expected = flow + p.open * np.exp(share)[:, None]
        with np.errstate(invalid="ignore"):
            total -= np.where(expected > 0, expected * log_q[:, None], 0.0).sum(axis=-1)
    return total


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
