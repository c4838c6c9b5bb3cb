"""Zeros are no entries: what a tensor means does not depend on where zeros are stored.

A loop meets every entry that is stored, and a dense format stores zeros, as others may. Where the body of a sum is not
zero for an entry that is zero, a condition, the guard, leaves that entry out:

    sum(<i, a> in X) exp(a)   ~>   sum(<i, a> in X) if a != {} then exp(a)
    sum(<i, r> in A) 1.0      ~>   sum(<i, r> in A) if r != {} then 1.0

Bodies that are zero there, as products are, need none. Inside the loop the lookup `X(i)` is replaced by its name `a`,
so that `X(i)` needs none either: a guard without need would leave out the derivative at a zero. A guard decides no
entry of a sparse result: an entry that is zero is as good as none, so that loops keep the entries that are stored and
make their values zero.

Zero times an infinity is zero as well, in every format. Loops that multiply without a look give NaN there, so where a
result has one, the program runs once more with a look at each factor.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Set
from dataclasses import replace
from typing import Any

import numpy as np

from derivable.algebra.expr.operations import OPERATIONS
from derivable.algebra.semiring import Semiring
from derivable.core.names import FreshNames
from derivable.tensor.language import nodes as t
from derivable.tensor.language.binding import free_variables, names_in, unique_names
from derivable.tensor.language.linearity import guarded_part, vanishes

# Values of names: None where nothing is known.
Values = Mapping[str, Any]


def guard(node: t.Node) -> t.Apply:
    """The condition that a number or a tensor is not zero."""
    return t.Apply("not_equal", (node, t.Zero()))


def guarded(node: t.Node, semiring: Semiring | None) -> t.Node:
    """The same expression with guards in all sums over tensors whose bodies need one.

    semiring  that it will run in, in which functions of numbers may be zero for zero, as the sine is. None: in any
    """
    node = unique_names(node)
    return _guarded(node, semiring, FreshNames(names_in(node)), {})


def hides_products(node: t.Node, stored: Set[str]) -> bool:
    """Whether a NaN that a product of zero and infinity gives may leave no NaN in the result: a comparison takes it, or
    a function that has values for NaN.

    stored  names of what is stored, in which there are no products
    """
    match node:
        case t.Let():
            inner = stored | {node.name} if _is_stored(node.value, stored) else stored - {node.name}
            return hides_products(node.value, stored) or hides_products(node.body, inner)
        case t.Sum():
            own = {node.key, node.value}
            is_stored = isinstance(node.range, t.PHYSICAL) or _is_stored(node.range, stored)
            return hides_products(node.range, stored) or hides_products(
                node.body, stored | own if is_stored else (stored - own) | {node.key}
            )
        case t.Apply():
            takes = OPERATIONS[node.operation].rule in ("comparison", "where") or node.operation in _WITHOUT_NAN
            # But for the exponent 0, a power of NaN is NaN.
            is_nan = node.operation == "power" and isinstance(node.operands[1], t.Number) and node.operands[1].value
            if takes and not is_nan and not all(_is_stored(operand, stored) for operand in node.operands):
                return True
    return any(hides_products(child, stored) for child in node.children)


# They have values for operands that are no numbers.
_WITHOUT_NAN = ("power", "logical_and", "logical_or", "logical_not")


def _is_stored(node: t.Node, stored: Set[str]) -> bool:
    match node:
        case t.Var():
            return node.name in stored
        case t.Lookup():
            return _is_stored(node.tensor, stored)
        case t.Apply():
            return all(_is_stored(operand, stored) for operand in node.operands)
    return isinstance(node, (t.Number, t.Zero, t.One))


def _guarded(node: t.Node, semiring: Semiring | None, fresh: FreshNames, known: Mapping[t.Node, t.Node]) -> t.Node:
    """`known` are names that expressions have: with `R(i)` called `a` in `sum(<i, a> in R)` it is seen that `exp(R(i))`
    needs a guard and that `R(i)` needs none."""
    if isinstance(node, t.Sum) and not isinstance(node.range, (*t.PHYSICAL, t.Zero)):
        return _guarded_sum(node, semiring, fresh, known)
    if isinstance(node, t.Let) and isinstance(node.value, (t.Var, t.Lookup)):
        value = _guarded(node.value, semiring, fresh, known)
        if isinstance(value, t.Var):
            return _guarded(node.body, semiring, fresh, {**known, t.Var(node.name): value})
    node = node.with_children(tuple(_guarded(child, semiring, fresh, known) for child in node.children))
    return known.get(node, node) if isinstance(node, (t.Var, t.Lookup)) else node


def _guarded_sum(node: t.Sum, semiring: Semiring | None, fresh: FreshNames, known: Mapping[t.Node, t.Node]) -> t.Node:
    over = _guarded(node.range, semiring, fresh, known)
    name = fresh("a") if node.value == "_" else node.value
    body = _guarded(node.body, semiring, fresh, {**known, t.Lookup(over, t.Var(node.key)): t.Var(name)})
    if not is_zero_for(body, name, semiring):
        body = t.If(guard(t.Var(name)), body)
    return replace(node, value=name if name in free_variables(body) else "_", range=over, body=body)


def is_zero_for(node: t.Node, name: str, semiring: Semiring | None) -> bool:
    """Whether an expression is certainly zero where a name is, for finite values of all others."""
    if vanishes(node, {name}):
        return True
    return semiring is not None and semiring.is_scalar and _is_zero(at_zero(node, name, semiring), semiring)


def at_zero(node: t.Node, name: str, semiring: Semiring) -> Any:
    """The value of an expression where a name is zero, as far as it is known for all values of the others: a number, a
    truth value, the zero of the semiring for a tensor without entries; else None."""
    return _value(node, {name: semiring.zero}, semiring)


def _is_zero(value: Any, semiring: Semiring) -> bool:
    return value is not None and not isinstance(value, bool | np.bool_) and value == semiring.zero


def _value(node: t.Node, names: Values, semiring: Semiring) -> Any:
    zero = semiring.zero
    match node:
        case t.Var():
            return names.get(node.name)
        case t.Number():
            return node.value
        case t.Zero():
            return zero
        case t.One():
            return semiring.one
        case t.Apply():
            return _applied(node, [_value(operand, names, semiring) for operand in node.operands], semiring)
        case t.Let():
            return _value(node.body, {**names, node.name: _value(node.value, names, semiring)}, semiring)
        case t.If():
            if _value(node.condition, names, semiring) is False:
                return zero
            body = _value(node.body, names, semiring)
            return zero if _is_zero(body, semiring) else None
        case t.Sum() | t.Singleton() | t.Lookup():
            inside = {name: value for name, value in names.items() if name not in _bound(node)}
            parts = [_value(child, inside, semiring) for child in node.children]
            deciding = {t.Sum: parts, t.Singleton: parts[1:], t.Lookup: parts[:1]}[type(node)]
            return zero if any(_is_zero(part, semiring) for part in deciding) else None
        case t.Add() | t.Multiply():
            left, right = (_value(child, names, semiring) for child in node.children)
            is_sum = isinstance(node, t.Add)
            if _is_zero(left, semiring) or _is_zero(right, semiring):
                return (right if _is_zero(left, semiring) else left) if is_sum else zero
            if left is None or right is None:
                return None
            return (semiring.plus if is_sum else semiring.times)(left, right)
    return None


def _bound(node: t.Node) -> tuple[str, ...]:
    return (node.key, node.value) if isinstance(node, t.Sum) else ()


def _applied(node: t.Apply, operands: list[Any], semiring: Semiring) -> Any:
    if guarded_part(node) is not None and operands[0] is not None:
        return not _is_zero(operands[0], semiring)
    match node.operation, operands:
        case "divide", (left, right) if semiring.zero == 0 and _is_zero(left, semiring):
            return None if right is not None and right == 0 else semiring.zero
        case "where", (bool() as condition, yes, no):
            return yes if condition else no
        case "where", (_, yes, no):
            return yes if yes is not None and no is not None and yes == no else None
        case "logical_and", _ if any(operand is False for operand in operands):
            return False
        case "logical_or", _ if any(operand is True for operand in operands):
            return True
    if any(operand is None for operand in operands):
        return None
    row = OPERATIONS[node.operation]
    with np.errstate(all="ignore"):
        given = [np.asarray(operand) for operand in operands]
        found = row.meaning(*given, dtype=np.float64) if row.rule == "cast" else row.meaning(*given)
    found = found.item()
    return None if isinstance(found, float) and math.isnan(found) else found
