"""Exact sampling of models."""

from __future__ import annotations

from typing import Any

import numpy as np

from derivable.circuit.fold.fold_rows import fold_shares
from derivable.circuit.fold.literal_weights import read_weights, share_weights
from derivable.circuit.fold.plan import plan_of
from derivable.circuit.graph.circuit import Circuit
from derivable.circuit.kernels.draw import choice_shares, draw_models
from derivable.circuit.queries.marginals import require_mass
from derivable.circuit.queries.properties import require_countable
from derivable.core.arguments import integer, seed_of
from derivable.device.cpu.memory import empty
from derivable.device.cpu.threads import run_chunks


def sample(circuit: Circuit, num_samples: int, weights=None, negative_weights=None, *, seed: int | None = None) -> Any:
    """Independent models, each with probability proportional to its weight.

    num_samples                how many, at least 0
    weights, negative_weights  [*batch, variable] of at least 0; None as in `weighted_count`, so that a
                               circuit without weights of its own is sampled uniformly
    seed                       any integer; the same seed gives the same samples for any number of threads,
                               and the first samples of a longer run are those of a shorter one. None is random
    returns                    bool [*batch, sample, variable] for one root, else [*batch, root, sample, variable]

    Each sample is one walk down the circuit, which takes one child of each or-node with probability
    proportional to its value. A variable that the walk does not meet is drawn from its own two weights.
    Raises as `marginals`.
    """
    require_countable(circuit, "sample")
    num_samples = integer(num_samples, "num_samples", 0, 2**48)
    read = read_weights(circuit, weights, negative_weights)
    seed = int(np.random.SeedSequence().generate_state(1, np.uint64)[0]) if seed is None else seed_of(seed)
    positive, negative, total = share_weights(read)
    mantissa, exponent = fold_shares(plan_of(circuit).of_all_nodes(), positive, negative)
    require_mass(circuit, total[0] == 0, mantissa[:, circuit.roots] == 0)
    with np.errstate(under="ignore"):
        positive_share = np.ldexp(*positive)
    samples = empty((read.num_items, circuit.num_roots, num_samples, circuit.num_variables), np.int8)
    for item in range(read.num_items):
        shares = shares_of_edges(circuit, mantissa[item], exponent[item])
        for index, root in enumerate(circuit.roots.tolist()):
            stream = np.random.SeedSequence([seed % 2**64, item, index]).generate_state(1, np.uint64)[0]
            draw(circuit, root, shares, positive_share[item], stream, samples[item, index])
    return read.shaped(samples.view(np.bool_), circuit.num_roots)


def shares_of_edges(circuit: Circuit, mantissa: np.ndarray, exponent: np.ndarray) -> np.ndarray:
    """[edge] the part of the value of an or-node that a child has, from the values [node] of `fold_shares`."""
    shares = empty(circuit.num_edges, np.float64)
    choice_shares(circuit.kind, circuit.offsets, circuit.children, mantissa, exponent, shares)
    return shares


def draw(
    circuit: Circuit, root: int, shares: np.ndarray, open_share: np.ndarray, stream: np.uint64, out: np.ndarray
) -> None:
    """Draw models into int8 [sample, variable]; a variable that a walk does not meet is true with probability
    `open_share` [variable]."""
    arrays = circuit.kind, circuit.literal, circuit.offsets, circuit.children

    def draw_some(start: int, stop: int) -> None:
        stack = empty(circuit.num_nodes + 1, np.int64)
        draw_models(*arrays, root, shares, open_share, stream, start, stack, out[start:stop])

    run_chunks(draw_some, len(out), 64)
