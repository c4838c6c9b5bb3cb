"""Expressions of rules as SQL: what an engine computes as the language does, with casts and cases around it.

An expression may have no value: `1 / 0`, or what is no number. Its row is dropped: that there is one is a condition of
the query.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from derivable.datalog.scalars.nodes import Apply, Const, Expr, Var
from derivable.datalog.values.values import ValueType

_COMPARISONS = {"==": "=", "!=": "<>", "<": "<", "<=": "<=", ">": ">", ">=": ">="}
_CONNECTIVES = {"&&": "AND", "||": "OR"}
# The largest integer of an engine; decimals for integers of 64 bits, whose sums and products have at most 38 digits.
MOST_INTEGER, DECIMALS = (1 << 63) - 1, "DECIMAL(19,0)"
_BEYOND = "raise_error('an integer is beyond 64 bits with a sign, which the engine has')"


class RefusedError(Exception):
    """What an engine does not compute as one machine does; `reason` is a clause."""

    def __init__(self, reason: str):
        super().__init__(reason)
        self.reason = reason


def expression_sql(e: Expr, names: Mapping[str, str], conditions: list[str] | None) -> str:
    """SQL of an expression.

    names       variable -> its SQL
    conditions  get those under which the expression has a value; None where it must have one

    Raises RefusedError for what the engine does not compute as one machine does.
    """
    if isinstance(e, Var):
        return names[e.name]
    if isinstance(e, Const):
        return literal(e)
    assert isinstance(e, Apply)
    types = [operand.type for operand in e.operands]
    # An operand without a value leaves these with one, at times.
    inner = None if e.operator in ("||", "!") else conditions
    parts = [expression_sql(operand, names, inner) for operand in e.operands]
    if e.operator in _COMPARISONS and all(map(_is_ordered, types)):
        return f"({parts[0]} {_COMPARISONS[e.operator]} {parts[1]})"
    if e.operator in ("==", "!=") and all(t.family in ("text", "char", "bool", "datetime") for t in types):
        return f"({parts[0]} {_COMPARISONS[e.operator]} {parts[1]})"
    if e.operator in _CONNECTIVES:
        return f"({parts[0]} {_CONNECTIVES[e.operator]} {parts[1]})"
    if e.operator == "!" and e.type.family == "bool":
        return f"(NOT {parts[0]})"
    sql, condition = None, None
    if e.type.is_integer and e.type.bits <= 64 and all(t == e.type for t in types):
        sql, condition = _integer(e.operator, e.type, parts)
    elif e.type.family == "float" and all(t == e.type for t in types):
        sql, condition = _float(e.operator, e.type, parts)
    if sql is None or (condition is not None and conditions is None):
        raise RefusedError(f"`{e.operator}` of {', '.join(map(str, types))} is not the one of the engine")
    if condition is not None and conditions is not None:
        conditions.append(condition)
    return sql


def _integer(operator: str, t: ValueType, parts: list[str]) -> tuple[str | None, str | None]:
    """(SQL of an operator of integers, when it has a value). Sums and differences stay at the bounds of their type, and
    products wrap; `+!` and `-!` have no value beyond the bounds."""
    low, high = t.limits
    if operator == "neg" and low:
        return _integer("-", t, ["0", *parts])
    if len(parts) != 2 or operator not in ("+", "-", "*", "/", "%", "+!", "-!"):
        return None, None
    left, right = parts
    if operator in ("/", "%"):
        # Towards zero; the quotient of the least number and -1 is beyond the type.
        fits = f"({right} <> 0" + (f" AND NOT ({right} = -1 AND {left} = {_integer_literal(low)}))" if low else ")")
        return f"CASE WHEN {fits} THEN {left} {'div' if operator == '/' else '%'} {right} END", fits
    is_small = t.bits <= (32 if low else 16) or (t.bits == 32 and operator != "*")
    kind = "BIGINT" if is_small else DECIMALS
    value = f"(CAST({left} AS {kind}) {operator[0]} CAST({right} AS {kind}))"
    least = f"CAST('{low}' AS {kind})"
    if operator == "*":
        value = f"(pmod({value} - {least}, CAST('{high - low + 1}' AS DECIMAL(20,0))) + {least})"
    elif operator in ("+!", "-!"):
        most = f"CAST('{high}' AS DECIMAL(20,0))"
        fits = f"({value} >= {least} AND {value} <= {most})"
        beyond = "" if high <= MOST_INTEGER else f" WHEN {fits} AND {value} > {MOST_INTEGER} THEN {_BEYOND}"
        return f"CASE{beyond} WHEN {fits} THEN CAST({value} AS BIGINT) END", fits
    return f"CAST({fitted(value, t)} AS BIGINT)", None


def fitted(wide: str, t: ValueType) -> str:
    """Integers that stay at the bounds of their type. Those that it has, and the engine has not, are an error there."""
    low, high = t.limits
    least, most = (f"CAST('{bound}' AS {DECIMALS})" for bound in (low, min(high, MOST_INTEGER)))
    bounded = f"greatest({wide}, {least})"
    if high <= MOST_INTEGER:
        return f"least({bounded}, {most})"
    return f"CASE WHEN {bounded} > {most} THEN {_BEYOND} ELSE {bounded} END"


def _float(operator: str, t: ValueType, parts: list[str]) -> tuple[str | None, str | None]:
    """(SQL of an operator of floats, when it has a value): not for what is no number."""
    # In double precision, whose rounding to single precision is that of single precision; with one zero.
    left, *others = (f"CAST({part} AS DOUBLE)" for part in parts)
    if operator == "neg":
        value = f"(0.0D - {left})"
    elif operator in ("+", "-", "*") and others:
        value = f"({left} {operator} {others[0]} + 0.0D)"
    elif operator == "/" and others:
        ends = "CAST('Infinity' AS DOUBLE) WHEN {0} < 0.0D THEN CAST('-Infinity' AS DOUBLE) ELSE CAST('NaN' AS DOUBLE)"
        by_zero = f"CASE WHEN {left} > 0.0D THEN {ends.format(left)} END"
        value = f"(CASE WHEN {others[0]} = 0.0D THEN {by_zero} ELSE {left} / {others[0]} END + 0.0D)"
    else:
        return None, None
    return (f"CAST({value} AS FLOAT)" if t.bits == 32 else value), f"NOT isnan({value})"


def _is_ordered(t: ValueType) -> bool:
    return (t.is_integer and not t.is_wide) or t.family == "float"


def _integer_literal(value: int) -> str:
    return f"CAST('{value}' AS BIGINT)"


def literal(constant: Const) -> str:
    """A constant in SQL."""
    value, t = constant.value, constant.type
    if t.family == "bool":
        return "TRUE" if value else "FALSE"
    if t.is_integer and not t.is_wide and -(1 << 63) <= value < 1 << 63:
        return _integer_literal(value)
    if t.family == "float" and math.isfinite(value):
        return f"CAST({float(value)!r} AS {'FLOAT' if t.bits == 32 else 'DOUBLE'})"
    if t.family in ("text", "char"):
        # Without quotes, which engines escape by different rules.
        return f"CAST(X'{str(value).encode().hex()}' AS STRING)"
    raise RefusedError(f"the constant {value!r} of {t} is none of the engine")
