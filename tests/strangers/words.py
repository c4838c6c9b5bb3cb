"""Foreign functions as a user writes them: one of Python values, one of whole columns."""

import numpy as np

import derivable as dv


@dv.datalog.function
def initials(first: str, last: str) -> str:
    return first[0] + last[0]


@dv.datalog.function
def half(x: int) -> int:
    """The half of an even number; odd ones have none."""
    return x // 2 if x % 2 == 0 else None


@dv.datalog.function(columns=True)
def distance(x: np.float64, y: np.float64) -> np.float64:
    return np.hypot(x, y)
