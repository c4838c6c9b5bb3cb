"""A semiring as a user writes it: the best derivation of a tuple, with its probability and what it was made of."""

import derivable as dv
from derivable.algebra import Semiring


def better(a, b):
    """The more probable one; of two equal ones that with the smaller set."""
    first = dv.logical_or(b[0] < a[0], dv.logical_and(a[0] == b[0], a[1] <= b[1]))
    return dv.where(first, a[0], b[0]), dv.where(first, a[1], b[1])


best = Semiring(
    "best",
    plus=better,
    times=lambda a, b: (a[0] * b[0], dv.where(a[0] * b[0] > 0, a[1] + b[1], 0)),
    zero=(0.0, 0),
    one=(1.0, 0),
    domain=((0.125, 1.0), (0, 1000)),
    complement=lambda a: (1 - a[0], 0),
    fact=lambda p, variable: (p, dv.where(p > 0, dv.cast(2.0**variable, "int64"), 0)),
    idempotent_plus=True,
    selective_plus=True,
)
