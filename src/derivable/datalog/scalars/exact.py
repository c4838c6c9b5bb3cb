"""Integer operators as if their types had no limits, for deciding whether a value leaves its type."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from derivable.datalog.scalars.nodes import Apply

EXACT: dict[str, Callable[..., int]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "neg": lambda a: -a,
    "$abs": lambda a: abs(a),
    "$pow": lambda a, b: a**b,
}
# Powers of these are not written out.
MOST_POWER = 128


def exact_value(e: Apply, values: Sequence[int]) -> int | None:
    """The value of an operator of `EXACT` for these operands; None if it has more than a thousand bits or so."""
    if e.operator == "$pow" and abs(values[0]) > 1 and values[1] > MOST_POWER:
        return None
    return EXACT[e.operator](*values)


def leaves_type(e: Apply, values: Sequence[int]) -> bool:
    """Whether the value for these operands is beyond the limits of the type of `e`."""
    low, high = e.type.limits
    value = exact_value(e, values)
    return value is None or not low <= value <= high
