"""minmaxprob: a tuple is as probable as the weakest fact of its best derivation (max-min, Gödel)."""

from __future__ import annotations

import numpy as np

from derivable.datalog.provenance.record import Provenance, RandomFacts


def start(facts: RandomFacts, k: int = 0) -> Provenance:
    """Tags are float64 probabilities; recursion stops when no tag improves."""
    return Provenance(
        name="minmaxprob",
        dtype=np.float64,
        zero=0.0,
        one=1.0,
        plus=np.maximum,
        times=np.minimum,
        negate=lambda a: 1.0 - a,
        saturated=lambda old, new: old == new,
        discard=lambda a: a <= 0.0,
        fact_tags=lambda variables: np.asarray(facts.probabilities, dtype=np.float64)[variables],
        show=lambda a: a,
        description="max over derivations of the min over facts",
    )
