"""addmultprob: derivations add up (to at most 1), facts multiply, as if everything were disjoint and independent."""

from __future__ import annotations

import numpy as np

from derivable.datalog.provenance.record import Provenance, RandomFacts


def start(facts: RandomFacts, k: int = 0) -> Provenance:
    """Tags are float64; always saturated: in a recursive program a tuple propagates the tag it had when it was new,
    later derivations add to its own tag only (Scallop's order of evaluation is kept, and its numbers with it)."""
    return Provenance(
        name="addmultprob",
        dtype=np.float64,
        zero=0.0,
        one=1.0,
        plus=lambda a, b: np.minimum(a + b, 1.0),
        times=np.multiply,
        negate=lambda a: 1.0 - a,
        saturated=lambda old, new: np.ones(len(old), dtype=bool),
        discard=lambda a: a <= 0.0,
        fact_tags=lambda variables: np.asarray(facts.probabilities, dtype=np.float64)[variables],
        show=lambda a: a,
        distributes=False,
        description="clamped sum over derivations of the product over facts",
    )
