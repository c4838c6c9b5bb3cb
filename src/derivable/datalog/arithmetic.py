"""Scalar expressions over columns: typed, vectorised, with the language's edge cases.

Integer + and - saturate at the limits of the type; * wraps around; / and % truncate towards zero. A row is dropped
(its `valid` is False) where the language has no value: NaN, division by zero, a text that is not a number.
The integer widths and the saturation are why this is not `algebra.expr`, whose integers are int64 only.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from derivable.datalog.rules.nodes import Apply, Const, Expr, Var
from derivable.datalog.values import SymbolTable, ValueType, from_words, to_words, word_of

Valid = np.ndarray | None


def evaluate(expression: Expr, columns: Mapping[str, np.ndarray], count: int, symbols: SymbolTable):
    """(words [row] int64, valid [row] bool or None if all are) of an expression over word columns."""
    if isinstance(expression, Var):
        return columns[expression.name], None
    if isinstance(expression, Const):
        return np.full(count, word_of(expression.value, expression.type, symbols), dtype=np.int64), None
    values, valid = _typed(expression, columns, count, symbols)
    if expression.type.family == "float":
        nan = np.isnan(values)
        if nan.any():
            valid = _both(valid, ~nan)
    return to_words(values, expression.type), valid


def condition(expression: Expr, columns: Mapping[str, np.ndarray], count: int, symbols: SymbolTable) -> np.ndarray:
    """Mask [row] of the rows where a bool expression has the value true."""
    values, valid = _typed(expression, columns, count, symbols)
    values = np.asarray(values, dtype=bool)
    return values if valid is None else values & valid


def _both(a: Valid, b: Valid) -> Valid:
    if a is None:
        return b
    return a if b is None else a & b


def _typed(expression: Expr, columns: Mapping[str, np.ndarray], count: int, symbols: SymbolTable) -> tuple[Any, Valid]:
    if not isinstance(expression, Apply):
        words, valid = evaluate(expression, columns, count, symbols)
        return from_words(words, expression.type), valid
    operator, operands = expression.operator, expression.operands
    parts = [_typed(e, columns, count, symbols) for e in operands]
    operand_type = operands[-1].type
    if operator == "if":
        (chosen, valid), (a, valid_a), (b, valid_b) = parts
        branch = None
        if valid_a is not None or valid_b is not None:
            ones = np.ones(count, dtype=bool)
            branch = np.where(chosen, ones if valid_a is None else valid_a, ones if valid_b is None else valid_b)
        return np.where(chosen, a, b), _both(valid, branch)
    valid = None
    for _, part in parts:
        valid = _both(valid, part)
    values = [v for v, _ in parts]
    if operator == "cast":
        cast, fine = _cast(values[0], operand_type, expression.type, symbols)
        return cast, _both(valid, fine)
    if operator == "!":
        return ~np.asarray(values[0], dtype=bool), valid
    if operator == "neg":
        return _negate(values[0], expression.type), valid
    a, b = values
    if operator in ("&&", "||", "^"):
        return {"&&": np.logical_and, "||": np.logical_or, "^": np.logical_xor}[operator](a, b), valid
    if operator in _COMPARE:
        if operand_type.family == "text" and operator not in ("==", "!="):
            a, b = symbols.lookup(a), symbols.lookup(b)
        return np.asarray(_COMPARE[operator](a, b), dtype=bool), valid
    if operand_type.family == "text":
        joined = [x + y for x, y in zip(symbols.lookup(a), symbols.lookup(b))]
        return symbols.intern_all(joined), valid
    if operand_type.family == "float":
        with np.errstate(all="ignore"):
            result = _FLOAT[operator](a, b)
        return result, _both(valid, ~np.isnan(result))
    result, fine = integer(operator, a, b, operand_type)
    return result, _both(valid, fine)


_COMPARE = {
    "==": np.equal,
    "!=": np.not_equal,
    "<": np.less,
    "<=": np.less_equal,
    ">": np.greater,
    ">=": np.greater_equal,
}
_FLOAT = {"+": np.add, "-": np.subtract, "*": np.multiply, "/": np.divide, "%": np.fmod}


def wrap(values: np.ndarray, t: ValueType) -> np.ndarray:
    """int64 or uint64 values reduced to the type's width, two's complement."""
    if t.bits == 64:
        return values.view(np.uint64) if t.family == "unsigned" else values
    return values.astype(t.dtype).astype(np.int64)


def integer(operator: str, a: np.ndarray, b: np.ndarray, t: ValueType) -> tuple[np.ndarray, Valid]:
    """An integer operation: + and - saturate, * wraps, / and % truncate; invalid where the divisor is zero."""
    if operator in ("/", "%"):
        fine = b != 0
        if t.family == "signed":
            fine &= ~((b == -1) & (a == t.limits[0]))
        safe = np.where(fine, b, np.ones_like(b))
        if t.bits == 64 and t.family == "unsigned":
            return (a // safe if operator == "/" else a % safe), None if fine.all() else fine
        remainder = np.fmod(a, safe)
        return ((a - remainder) // safe if operator == "/" else remainder), None if fine.all() else fine
    if operator == "*":
        with np.errstate(over="ignore"):
            return wrap(a * b, t), None
    if t.bits < 64:
        result = a + b if operator == "+" else a - b
        return np.clip(result, *t.limits), None
    with np.errstate(over="ignore"):
        result = a + b if operator == "+" else a - b
    if t.family == "unsigned":
        if operator == "+":
            return np.where(result < a, np.uint64(t.limits[1]), result), None
        return np.where(b > a, np.uint64(0), result), None
    low, high = np.int64(t.limits[0]), np.int64(t.limits[1])
    overflow = ((a ^ result) & (b ^ result)) < 0 if operator == "+" else ((a ^ b) & (a ^ result)) < 0
    return np.where(overflow, np.where(a < 0, low, high), result), None


def _negate(a: np.ndarray, t: ValueType) -> np.ndarray:
    if t.family == "float":
        return -a
    return integer("-", np.zeros_like(a), a, t)[0]


def _cast(a: np.ndarray, source: ValueType, target: ValueType, symbols: SymbolTable) -> tuple[np.ndarray, Valid]:
    if source == target:
        return a, None
    if target.family == "text":
        if source.family == "text":
            return a, None
        return symbols.intern_all(_texts(a, source)), None
    if source.family == "text":
        return _parse(symbols.lookup(a), target)
    if target.family == "float":
        if source.family == "char":
            return np.zeros(len(a), dtype=np.float64), np.zeros(len(a), dtype=bool)
        return np.asarray(a).astype(np.float32 if target.bits == 32 else np.float64), None
    if target.family == "bool":
        return np.asarray(a) != 0, None
    if target.family == "char":
        code = np.asarray(a).astype(np.int64)
        return code, (code >= 0) & (code <= 0x10FFFF) & ~((code >= 0xD800) & (code <= 0xDFFF))
    if source.family == "float":
        # Saturates at the limits of the type, like a Rust cast.
        low, high = target.limits
        rounded = np.trunc(np.nan_to_num(a.astype(np.float64), nan=0.0, posinf=np.inf, neginf=-np.inf))
        fits = (rounded > float(low)) & (rounded < float(high))
        kept = np.where(fits, rounded, 0.0)
        if target.bits == 64 and target.family == "unsigned":
            whole = np.where(rounded >= float(high), np.uint64(high), kept.astype(np.uint64))
            return whole, None
        whole = np.where(rounded <= float(low), low, np.where(rounded >= float(high), high, kept.astype(np.int64)))
        return whole.astype(np.int64), None
    values = np.asarray(a)
    values = values.view(np.int64) if values.dtype == np.uint64 else values.astype(np.int64)
    return wrap(values, target), None


def _texts(a: np.ndarray, source: ValueType) -> list[str]:
    if source.family == "bool":
        return ["true" if v else "false" for v in a]
    if source.family == "char":
        return [chr(v) for v in a.tolist()]
    if source.family == "float":
        return [str(int(v)) if v.is_integer() else f"{v:g}" for v in a.tolist()]
    return [str(v) for v in a.tolist()]


def _parse(texts: np.ndarray, target: ValueType) -> tuple[np.ndarray, Valid]:
    def one(text: str) -> Any:
        try:
            if target.family == "float":
                value: Any = float(text)
                return value if value == value else None
            if target.family == "bool":
                return {"true": True, "false": False}[text]
            if target.family == "char":
                return ord(text)
            value = int(text)
            return value if target.limits[0] <= value <= target.limits[1] else None
        except (ValueError, KeyError, TypeError):
            return None

    parsed = [one(t) for t in texts]
    fine = np.array([p is not None for p in parsed], dtype=bool)
    dtype = {"float": np.float64, "bool": bool}.get(target.family, np.int64)
    if target.family == "unsigned" and target.bits == 64:
        dtype = np.uint64
    values = np.array([0 if p is None else p for p in parsed], dtype=dtype)
    if target.family == "float" and target.bits == 32:
        values = values.astype(np.float32)
    return values, fine
