"""Expressions over one row of words. What integers, comparisons and truth values do is said here once more, as columns
of one row take thirty times as long; everything else is the columns' meaning."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from derivable.datalog.scalars import arithmetic
from derivable.datalog.scalars.nodes import Apply, Const, Expr, Var, walk
from derivable.datalog.values.symbols import SymbolTable
from derivable.datalog.values.values import ValueType, show_column, word_of

# The word of an expression for the words of a clause's variables; None where it has no value.
Evaluate = Callable[[Sequence[int]], int | None]

_COMPARE = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}
_SAME_WORDS = ("signed", "unsigned", "bool", "char", "text", "entity", "datetime")


def evaluator(e: Expr, slots: Mapping[str, int], symbols: SymbolTable) -> Evaluate:
    """What computes an expression; `slots` are the slots of its variables."""
    match e:
        case Var(name=name):
            return operator.itemgetter(slots[name])
        case Const(value=value, type=t):
            word = word_of(value, t, symbols)
            return lambda words: word
        case Apply(operator="==" | "!=" as sign, operands=(a, b)) if _is_plain(a.type, _SAME_WORDS):
            left, right = evaluator(a, slots, symbols), evaluator(b, slots, symbols)
            return _compared(operator.eq if sign == "==" else operator.ne, left, right)
        case Apply(operator=sign, operands=(a, b)) if sign in _COMPARE and _is_small(a.type):
            return _compared(_COMPARE[sign], evaluator(a, slots, symbols), evaluator(b, slots, symbols))
        case Apply(operator="+" | "-" | "+!" | "-!" as sign, operands=(a, b), type=t) if _is_small(t) and a.type == t:
            return _sum(sign, evaluator(a, slots, symbols), evaluator(b, slots, symbols), t)
    names = sorted({part.name for part in walk(e) if isinstance(part, Var)})
    slot_of = [(name, slots[name]) for name in names]

    def by_columns(words: Sequence[int]) -> int | None:
        columns = {name: np.array([words[slot]], np.int64) for name, slot in slot_of}
        result, valid = arithmetic.evaluate(e, columns, 1, symbols)
        return None if valid is not None and not valid[0] else int(result[0])

    return by_columns


def are_words_compared(e: Expr) -> bool:
    """Whether an expression compares two variables or constants as their words compare."""
    if not isinstance(e, Apply) or len(e.operands) != 2 or not all(isinstance(o, Var | Const) for o in e.operands):
        return False
    t = e.operands[0].type
    return _is_plain(t, _SAME_WORDS) if e.operator in ("==", "!=") else e.operator in _COMPARE and _is_small(t)


def _is_plain(t: ValueType, families: Sequence[str]) -> bool:
    return t.family in families and not t.is_wide


def _is_small(t: ValueType) -> bool:
    """Whether words are the integers themselves, and so are those of sums."""
    return t.is_integer and (t.bits < 64 or (t.bits == 64 and t.family == "signed"))


def _compared(compare: Callable[[int, int], bool], left: Evaluate, right: Evaluate) -> Evaluate:
    def evaluate(words: Sequence[int]) -> int | None:
        a, b = left(words), right(words)
        return None if a is None or b is None else int(compare(a, b))

    return evaluate


def _sum(sign: str, left: Evaluate, right: Evaluate, t: ValueType) -> Evaluate:
    (low, high), factor, is_exact = t.limits, 1 if sign[0] == "+" else -1, sign.endswith("!")

    def evaluate(words: Sequence[int]) -> int | None:
        a, b = left(words), right(words)
        if a is None or b is None:
            return None
        total = a + factor * b
        if low <= total <= high:
            return total
        return None if is_exact else min(max(total, low), high)

    return evaluate


def value_of(word: int, t: ValueType, symbols: SymbolTable) -> Any:
    """The Python value of a word."""
    return show_column(np.array([word], np.int64), t, symbols).tolist()[0]
