"""The scalar operations: name, number of operands, and type rule; one row each.

What an operation means is its row in `interpret`; its derivative, its Numba and its jnp source are
rows in `differentiate`, `emit_numba` and `emit_jnp`. A test keeps the tables complete.

Type rules:

    arithmetic   operands promoted, bool becomes int64; the result has that type
    float        operands promoted, bool and int64 become float64; the result has that type
    comparison   operands promoted; the result is bool
    logical      operands are bool; the result is bool
    where        the first operand is bool, the others are promoted; the result has their type
    cast         the result has the type asked for
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from typing import Literal

from derivable.algebra.expr.types import FLOATS, Dtype, promote
from derivable.core.diagnostics import TypeMismatchError

Rule = Literal["arithmetic", "float", "comparison", "logical", "where", "cast"]


@dataclass(frozen=True)
class Operation:
    """One scalar operation. `symbol` and `precedence` (higher binds tighter) are for printing infix."""

    name: str
    arity: int
    rule: Rule
    symbol: str = ""
    precedence: int = 9


_ROWS = (
    Operation("add", 2, "arithmetic", "+", 5),
    Operation("subtract", 2, "arithmetic", "-", 5),
    Operation("multiply", 2, "arithmetic", "*", 6),
    Operation("divide", 2, "float", "/", 6),
    Operation("floor_divide", 2, "arithmetic", "//", 6),
    Operation("remainder", 2, "arithmetic", "%", 6),
    Operation("negate", 1, "arithmetic", "-", 7),
    Operation("power", 2, "float", "**", 8),
    Operation("abs", 1, "arithmetic"),
    Operation("sign", 1, "arithmetic"),
    Operation("minimum", 2, "arithmetic"),
    Operation("maximum", 2, "arithmetic"),
    Operation("floor", 1, "float"),
    Operation("ceil", 1, "float"),
    Operation("exp", 1, "float"),
    Operation("expm1", 1, "float"),
    Operation("log", 1, "float"),
    Operation("log1p", 1, "float"),
    Operation("log1mexp", 1, "float"),
    Operation("logaddexp", 2, "float"),
    Operation("sqrt", 1, "float"),
    Operation("sin", 1, "float"),
    Operation("cos", 1, "float"),
    Operation("tanh", 1, "float"),
    Operation("sigmoid", 1, "float"),
    Operation("less", 2, "comparison", "<", 4),
    Operation("less_equal", 2, "comparison", "<=", 4),
    Operation("equal", 2, "comparison", "==", 4),
    Operation("not_equal", 2, "comparison", "!=", 4),
    Operation("logical_not", 1, "logical", "~", 7),
    Operation("logical_and", 2, "logical", "&", 3),
    Operation("logical_xor", 2, "logical", "^", 2),
    Operation("logical_or", 2, "logical", "|", 1),
    Operation("where", 3, "where"),
    Operation("cast", 1, "cast"),
)
OPERATIONS: dict[str, Operation] = {row.name: row for row in _ROWS}


def operation(name: str) -> Operation:
    """The operation called `name`. Raises TypeMismatchError for an unknown one, with the nearest name."""
    if name not in OPERATIONS:
        near = difflib.get_close_matches(name, OPERATIONS, 1)
        raise TypeMismatchError(
            f"there is no scalar operation {name!r}",
            hint=f"did you mean {near[0]!r}?" if near else f"known are {', '.join(OPERATIONS)}",
        )
    return OPERATIONS[name]


def operand_dtypes(name: str, dtypes: tuple[Dtype, ...]) -> tuple[tuple[Dtype, ...], Dtype]:
    """(the types that the operands are cast to, the type of the result). Raises TypeMismatchError."""
    row = operation(name)
    if len(dtypes) != row.arity:
        raise TypeMismatchError(f"{name} takes {row.arity} operands, {len(dtypes)} are given")
    if row.rule == "logical":
        for dtype in dtypes:
            if dtype != "bool":
                raise TypeMismatchError(
                    f"{name} needs bool operands, one is {dtype}", hint="compare it, as in `x != 0`"
                )
        return dtypes, "bool"
    if row.rule == "where":
        if dtypes[0] != "bool":
            raise TypeMismatchError(
                f"the condition of `where` is {dtypes[0]}, not bool", hint="compare it, as in `x != 0`"
            )
        common = promote(dtypes[1:])
        branches: tuple[Dtype, ...] = ("bool", common, common)
        return branches, common
    common = promote(dtypes)
    if row.rule == "comparison":
        operands: tuple[Dtype, ...] = tuple(common for _ in dtypes)
        return operands, "bool"
    if row.rule == "arithmetic" and common == "bool":
        common = "int64"
    if row.rule == "float" and common not in FLOATS:
        common = "float64"
    operands = tuple(common for _ in dtypes)
    return operands, common
