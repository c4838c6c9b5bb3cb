"""What operations of `derivable.vsa` are in the operator graph that have operators of their own; those that are made of
others are in `decompositions_vsa`."""

from __future__ import annotations

from typing import Any

from derivable import vsa
from derivable.accelerator.operators.kinds import size
from derivable.accelerator.trace.translate import ROWS, Ref, Translation, row
from derivable.vsa import models

ROWS |= {
    vsa.convolve: lambda g, a, b, *, path=None: g.add("bind", a, b),
    vsa.correlate: lambda g, c, a, *, path=None: g.add("unbind", c, a),
    vsa.bundle: lambda g, items, *, weights, model="block": g.add(
        "bundle", items, weights, rank=models.get(model).rank
    ),
    vsa.normalise: lambda g, a, *, model="block": g.add("normalise", a, rank=1),
    vsa.match_probability: lambda g, a, b: g.add("match_probability", a, b),
    vsa.match_probabilities: lambda g, queries, book: g.add("match_probabilities", queries, book),
    vsa.vector_to_mass: lambda g, vector, book: g.add("to_mass", g.add("match_probabilities", vector, book)),
}


@row(vsa.similarity)
def _similarity(g: Translation, a: Ref, b: Ref, *, model: Any = "block") -> Ref:
    rank = models.get(model).rank
    product = g.add("mul", g.add("normalise", a, rank=rank), g.add("normalise", b, rank=rank))
    return g.add("sum", product, axes=tuple(range(g.rank(product) - rank, g.rank(product))))


@row(vsa.similarities)
def _similarities(g: Translation, queries: Ref, codebook: Ref, *, model: Any = "block") -> Ref:
    rank = models.get(model).rank

    def direction(x: Ref) -> Ref:
        shape = g.shape(x)
        return g.reshape(g.add("normalise", x, rank=rank), (*shape[:-rank], 1, size(shape[-rank:])))

    return g.add("match_probabilities", direction(queries), direction(codebook))
