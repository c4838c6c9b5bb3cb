"""Provenances: one module each, one function `start(facts, options)` that gives a `Provenance` for a run.

`unit` (no tags) and `exact` (the ground derivation graph, then a circuit) are run by their own machinery in
`execute` and `exact`; the others are semirings over tag columns, registered in TAGGED.
"""

from __future__ import annotations

from derivable.core.diagnostics import DomainError
from derivable.datalog.provenance import addmultprob, minmaxprob, topkproofs
from derivable.datalog.provenance.record import Provenance, RandomFacts

TAGGED = {"minmaxprob": minmaxprob.start, "addmultprob": addmultprob.start, "topkproofs": topkproofs.start}
NAMES = ("unit", *TAGGED, "exact")


def check_name(name: str) -> None:
    """Raise DomainError for an unknown provenance."""
    if name not in NAMES:
        raise DomainError(f"unknown provenance {name!r}", hint=f"the provenances are {', '.join(NAMES)}")


def start(name: str, facts: RandomFacts, k: int = 3) -> Provenance:
    """The tagged provenance of that name for a run on these random facts."""
    return TAGGED[name](facts, k)
