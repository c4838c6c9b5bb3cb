"""topkproofs: the k most probable proofs of a tuple, and the exact probability that one of them holds.

A proof is a set of literals over the random facts; a tag is a number in a table of proof sets (DNFs), so tag columns
are int64 and equal sets have equal tags. Exclusive facts are respected twice: a proof never uses two of one choice,
and the probability of a set is computed by branching on the choice (Scallop multiplies them as if independent).
A proof that contains another one is dropped, which leaves room for k different ones (Scallop keeps both).
"""

from __future__ import annotations

from derivable.datalog.tags.proof_table import TableTags


class ProofTags(TableTags):
    """Tag columns of int64 numbers of proof sets; `show` gives probabilities."""
