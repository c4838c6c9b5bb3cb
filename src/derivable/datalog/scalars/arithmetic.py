"""Scalar expressions of the core rules as `algebra.expr`, and their evaluation over columns.

An expression becomes an optional value: an expression, and one that says whether the row has a value there. Rows
without one are dropped: NaN, division by zero, a text that is not a number. Integer + and - saturate at the limits of
the type (+! and -! have no value beyond them), * wraps around, / and % truncate towards zero, floats become integers
within the limits; all this is the scalar table's.

Texts are numbers of a symbol table, so what reads or makes them (joining, ordering, casts from and to text) is no
scalar operation: it is a foreign function of whole columns, and its result an argument of the expression around it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Any

import numpy as np

from derivable.algebra import expr
from derivable.algebra.expr import Argument, Constant, Optional, interpreter, optional
from derivable.algebra.expr.optional import TRUE
from derivable.algebra.expr.types import FLOATS, Dtype, check_dtype
from derivable.datalog.foreign.function import ForeignError, result_words
from derivable.datalog.foreign.operators import number_of_tensor, special_operator
from derivable.datalog.foreign.standard import FUNCTIONS
from derivable.datalog.policy.costs import policy
from derivable.datalog.scalars.nodes import Const, Expr, Var, applied
from derivable.datalog.values import int128
from derivable.datalog.values.constructors import function_of_terms
from derivable.datalog.values.datetimes import Duration, parse_datetime
from derivable.datalog.values.symbols import SymbolTable
from derivable.datalog.values.values import ValueType, show_column, texts_of, to_words, word_of

Valid = np.ndarray | None
Columns = Mapping[str, np.ndarray]
# (symbols, *columns of words) -> (column of words, valid).
Foreign = Callable[..., tuple[np.ndarray, Valid]]


def evaluate(expression: Expr, columns: Columns, count: int, symbols: SymbolTable) -> tuple[np.ndarray, Valid]:
    """(words [row] int64, valid [row] bool or None if all are) of an expression over word columns."""
    if isinstance(expression, Var):
        return columns[expression.name], None
    if isinstance(expression, Const):
        return np.full(count, word_of(expression.value, expression.type, symbols), dtype=np.int64), None
    with _placed(expression):
        return translate(expression).words(columns, count, symbols)


def condition(expression: Expr, columns: Columns, count: int, symbols: SymbolTable) -> np.ndarray:
    """Mask [row] of the rows where a bool expression has the value true."""
    with _placed(expression):
        return translate(expression).mask(columns, count, symbols)


def value_of(expression: Expr) -> Any:
    """The value of an expression without variables; None where it has none, as 1 / 0."""
    symbols = SymbolTable()
    words, valid = evaluate(expression, {}, 1, symbols)
    if valid is not None and not valid[0]:
        return None
    value = show_column(words, expression.type, symbols)[0]
    return value.item() if hasattr(value, "item") else value


@contextmanager
def _placed(expression: Expr) -> Iterator[None]:
    """Say where in the program the function stands that fails.

    Equal expressions share a translation, wherever they stand.
    """
    try:
        yield
    except ForeignError as error:
        calls = (node for node in applied(expression) if node.operator == error.by)
        error.span = error.span or next((node.span for node in calls), None)
        raise


@dataclass(frozen=True)
class Input:
    """An argument of a translated expression: a variable, or a foreign function of other expressions.

    A foreign function is two arguments: its value, and whether there is one.
    """

    type: ValueType
    variable: str = ""
    function: Foreign | None = None
    operands: tuple[Expr, ...] = ()


class Translated:
    """An expression of the core rules as expressions of the scalar table: the optional value, and its arguments."""

    def __init__(self, result: Optional, inputs: tuple[Input, ...]):
        self.result = result
        self.inputs = inputs
        # Prepared once: a rule evaluates its expressions in every round.
        self._value = interpreter(result.value)
        self._pair = None if result.valid is TRUE else interpreter((result.value, result.valid))
        self._holds = interpreter(result.only_if(result.value).valid) if result.value.dtype == "bool" else None

    def words(self, columns: Columns, count: int, symbols: SymbolTable) -> tuple[np.ndarray, Valid]:
        """(words [row] int64, valid [row] bool or None if all are)."""
        arguments, words, valid = self._arguments(columns, count, symbols), np.empty(count, np.int64), None
        numbers = words.view(np.float64) if self.result.value.dtype in FLOATS else None
        for row in _parts(count):
            part = [argument[row] for argument in arguments]
            value, fine = (self._value(part), True) if self._pair is None else self._pair(part)
            if numbers is None:
                np.copyto(words[row], value, casting="unsafe")
            else:
                # Adding zero turns -0.0 into 0.0, so that equal floats have equal words.
                np.add(value, 0.0, out=numbers[row])
            if fine is not True and not np.all(fine):
                valid = np.ones(count, bool) if valid is None else valid
                valid[row] = fine
        return words, valid

    def mask(self, columns: Columns, count: int, symbols: SymbolTable) -> np.ndarray:
        """Where [row] the bool expression has the value true."""
        assert self._holds is not None
        arguments, mask = self._arguments(columns, count, symbols), np.empty(count, bool)
        for row in _parts(count):
            mask[row] = self._holds([argument[row] for argument in arguments])
        return mask

    def _arguments(self, columns: Columns, count: int, symbols: SymbolTable) -> list[np.ndarray]:
        """Columns [row] of 64-bit numbers, which the interpreter casts to the arguments' types."""
        arguments: list[np.ndarray] = []
        for entry in self.inputs:
            if entry.function is None:
                words, valid = columns[entry.variable], ()
            else:
                words, valid = _foreign_words(entry.function, entry.operands, columns, count, symbols)
                valid = (valid,)
            view = np.float64 if entry.type.family == "float" else np.int64
            arguments += [np.ascontiguousarray(words, np.int64).view(view), *valid]
        return arguments


def _parts(count: int) -> list[slice]:
    # What they compute stays in a core's cache, whose memory NumPy takes again and again.
    step = policy().cache_rows
    return [slice(start, start + step) for start in range(0, count, step)]


def _foreign_words(
    function: Foreign, operands: tuple[Expr, ...], columns: Columns, count: int, symbols: SymbolTable
) -> tuple[np.ndarray, np.ndarray]:
    parts = [evaluate(operand, columns, count, symbols) for operand in operands]
    there = np.ones(count, bool)
    for _, valid in parts:
        if valid is not None:
            there &= valid
    # The function sees only values that are there.
    row = slice(None) if there.all() else np.flatnonzero(there)
    results, valid = function(symbols, *(words[row] for words, _ in parts))
    words = np.zeros(count, np.int64)
    words[row] = results
    if valid is not None:
        there[row] = valid
    return words, there


def scalar_type(t: ValueType) -> Dtype:
    """The scalar type that computes a value type; characters are code points, texts and others ids of a table.

    Integers of 128 bits are words there, which only `values.int128` computes.
    """
    prefixes = {"signed": "int", "unsigned": "uint", "float": "float"}
    if t.family in prefixes and not t.is_wide:
        return check_dtype(f"{prefixes[t.family]}{t.bits}")
    return check_dtype({"bool": "bool", "char": "uint32"}.get(t.family, "int64"))


# The operators of numbers and characters; / of integers and `neg` of integers have other names below.
_OPERATIONS = {
    "+": "saturating_add",
    "-": "saturating_subtract",
    "*": "multiply",
    "/": "divide",
    "%": "truncate_remainder",
    "==": "equal",
    "!=": "not_equal",
    "<": "less",
    "<=": "less_equal",
    "&&": "logical_and",
    "||": "logical_or",
    "^": "logical_xor",
    "!": "logical_not",
    "neg": "negate",
    "if": "where",
}
_SWAPPED = {">": "<", ">=": "<="}
# Each with what takes it back: it is exact where that gives the left operand again.
_EXACT = {"+!": ("saturating_add", "saturating_subtract"), "-!": ("saturating_subtract", "saturating_add")}


@lru_cache(4096)
def translate(expression: Expr) -> Translated:
    """An expression of the core rules as expressions of the scalar table; equal expressions share one translation."""
    translation = _Translation()
    result = translation.optional(expression)
    if not any(node.dtype in FLOATS for node in expr.in_order((result.value, result.valid))):
        # Not floats: that inf * 0 is no number must not be simplified away.
        result = Optional(*expr.simplify((result.value, result.valid)))
    return Translated(result, tuple(translation.inputs))


class _Translation:
    def __init__(self) -> None:
        self.inputs: list[Input] = []
        self.variables: dict[str, Argument] = {}
        self.size = 0

    def argument(self, dtype: Dtype, name: str = "") -> Argument:
        self.size += 1
        return Argument(self.size - 1, dtype, name)

    def foreign(self, function: Foreign, t: ValueType, *operands: Expr) -> Optional:
        self.inputs.append(Input(t, function=function, operands=operands))
        return Optional(self.argument(scalar_type(t)), self.argument("bool"))

    def optional(self, e: Expr) -> Optional:
        dtype = scalar_type(e.type)
        if isinstance(e, Var):
            if e.name not in self.variables:
                self.inputs.append(Input(e.type, e.name))
                self.variables[e.name] = self.argument(dtype, e.name)
            return Optional(self.variables[e.name])
        if isinstance(e, Const):
            is_big = e.type.is_wide and not -int128.BIG <= e.value < int128.BIG
            if is_big or e.type.family in ("text", "entity", "datetime", "duration", "tensor"):
                return Optional(self.foreign(partial(_word, e), e.type).value)
            value = ord(e.value) if e.type.family == "char" else e.value
            # Adding zero turns -0.0 into 0.0, which is how a column holds it.
            return Optional(Constant(value + 0.0 if e.type.family == "float" else value, dtype))
        operator, operands = e.operator, e.operands
        types = tuple(operand.type for operand in operands)
        is_wide = any(t.is_wide for t in (e.type, *types))
        if is_wide and (on_wide := int128.operation(operator, types, e.type)) is not None:
            return self.foreign(on_wide, e.type, *operands)
        if operator.startswith("$"):
            record = FUNCTIONS[operator[1:]]
            is_scalar = not is_wide and e.type.family not in ("text", "duration", "entity")
            if record.scalar is not None and is_scalar:
                return record.scalar(dtype, *(self.optional(operand) for operand in operands))
            return self.foreign(partial(record.words, types, e.type), e.type, *operands)
        on_terms = function_of_terms(operator)
        if on_terms is not None:
            return self.foreign(on_terms, e.type, *operands)
        source = operands[-1].type
        if operator == "cast":
            return self.cast(operands[0], source, e.type)
        if operator in _SWAPPED:
            return self.optional(replace(e, operator=_SWAPPED[operator], operands=operands[::-1]))
        if source.family == "text" and operator in _FOREIGN:
            return self.foreign(_FOREIGN[operator], e.type, *operands)
        if source.family == "entity" and operator in _ORDERS:
            return self.foreign(partial(_compare_terms, _ORDERS[operator]), e.type, *operands)
        special = special_operator(operator, types, e.type)
        if special is not None:
            return self.foreign(special, e.type, *operands)
        parts = [self.optional(operand) for operand in operands]
        if operator in _EXACT:
            there, back = _EXACT[operator]
            valid, (left, right) = optional(there, *parts), parts
            again = optional(back, Optional(valid.value), Optional(right.value))
            return valid.only_if(expr.equal(again.value, left.value))
        if operator == "neg" and e.type.is_integer:
            return optional("saturating_subtract", Optional(Constant(0, dtype)), *parts)
        if operator == "/" and e.type.is_integer:
            return optional("truncate_divide", *parts)
        return optional(_OPERATIONS[operator], *parts)

    def cast(self, operand: Expr, source: ValueType, target: ValueType) -> Optional:
        dtype = scalar_type(target)
        if source == target or source.family == target.family == "text":
            return self.optional(operand)
        if source.family == target.family == "entity":
            return self.foreign(partial(_of_type, target), target, operand)
        if source.family == "tensor" and target.family == "float":
            return self.foreign(partial(number_of_tensor, target), target, operand)
        if target.family == "text":
            return self.foreign(partial(_show, source), target, operand)
        if source.family == "text":
            return self.foreign(partial(_parse, target), target, operand)
        if (source.is_wide and target.is_number) or (target.is_wide and source.family != "entity"):
            return self.foreign(partial(int128.converted, source, target), target, operand)
        value = self.optional(operand)
        if target.family == "bool":
            return Optional(expr.not_equal(value.value, 0), value.valid)
        if target.family == "char":
            # uint64 has codes that int64 has not; every other type's codes fit it, those of floats saturated.
            widest = "uint64" if value.value.dtype == "uint64" else "int64"
            code = expr.saturating_cast(value.value, widest)
            is_code = (code >= 0) & (code <= 0x10FFFF) & ((code < 0xD800) | (code > 0xDFFF))
            return Optional(expr.cast(code, dtype), value.valid).only_if(is_code)
        if source.family == "char":
            # The digit; a letter is none.
            digit = expr.cast(value.value, "int64") - ord("0")
            return Optional(expr.cast(digit, dtype), value.valid).only_if((digit >= 0) & (digit <= 9))
        return Optional(expr.saturating_cast(value.value, dtype), value.valid)


def _word(constant: Const, symbols: SymbolTable) -> tuple[np.ndarray, Valid]:
    return np.array(word_of(constant.value, constant.type, symbols)), None


def _join(symbols: SymbolTable, a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, Valid]:
    return symbols.intern_all(x + y for x, y in zip(symbols.lookup(a), symbols.lookup(b))), None


def _compare(ufunc: Callable, symbols: SymbolTable, a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, Valid]:
    return ufunc(symbols.lookup(a), symbols.lookup(b)).astype(np.int64), None


def _compare_terms(ufunc: Callable, symbols: SymbolTable, a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, Valid]:
    ranks = symbols.terms.ranks(np.concatenate([a, b]))
    return ufunc(ranks[: len(a)], ranks[len(a) :]).astype(np.int64), None


_ORDERS = {"<": np.less, "<=": np.less_equal}
_FOREIGN: dict[str, Foreign] = {"+": _join, "<": partial(_compare, np.less), "<=": partial(_compare, np.less_equal)}


def _show(source: ValueType, symbols: SymbolTable, a: np.ndarray) -> tuple[np.ndarray, Valid]:
    return symbols.intern_all(texts_of(a, source, symbols)), None


def _of_type(target: ValueType, symbols: SymbolTable, terms: np.ndarray) -> tuple[np.ndarray, Valid]:
    return terms, symbols.terms.is_of(target, terms)


# Python's `int` and `float` also take white space, underscores and digits of other scripts.
_INTEGER = re.compile("[-+]?[0-9]+")
_FLOAT = re.compile(r"[-+]?(?:inf(?:inity)?|(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:e[-+]?[0-9]+)?)", re.IGNORECASE)


def _parse(target: ValueType, symbols: SymbolTable, a: np.ndarray) -> tuple[np.ndarray, Valid]:
    if target.family == "entity":
        if symbols.entities is None:
            return np.zeros(len(a), np.int64), np.zeros(len(a), bool)
        return symbols.entities.parsed(symbols.lookup(a).tolist(), target)

    def one(text: str) -> Any:
        try:
            if target.family == "float":
                return float(text) if _FLOAT.fullmatch(text) else None
            if target.family == "bool":
                return {"true": True, "false": False}[text]
            if target.family == "char":
                return ord(text)
            if target.family == "datetime":
                return parse_datetime(text)
            if target.family == "duration":
                return Duration.parse(text)
            if not _INTEGER.fullmatch(text) or (text[0] == "-" and target.family == "unsigned"):
                return None
            value = int(text)
            return value if target.limits[0] <= value <= target.limits[1] else None
        except (ValueError, KeyError, TypeError):
            return None

    parsed = [one(text) for text in symbols.lookup(a)]
    fine = np.array([value is not None for value in parsed], bool)
    if target.family in ("datetime", "duration") or target.is_wide:
        return result_words("", "", parsed, target, symbols)
    return to_words(np.array([0 if value is None else value for value in parsed], scalar_type(target)), target), fine
