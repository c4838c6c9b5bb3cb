"""The values of constants that are expressions, `const B = A * 3 + 1`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from derivable.datalog.arithmetic import evaluate
from derivable.datalog.rules import nodes as r
from derivable.datalog.syntax import nodes as s
from derivable.datalog.types.unification import Type, final
from derivable.datalog.values import SymbolTable, ValueType, show_column


def core_expression(node: Any, of: Mapping[int, Type], known: Mapping[str, tuple[Any, ValueType]]) -> r.Expr | None:
    """The core expression of a typed one without variables, None if it uses what is not known (yet).

    of     the types of nodes, by identity
    known  constant -> (value, type)
    """
    parts = [core_expression(child, of, known) for child in s.children(node)]
    operands = tuple(part for part in parts if part is not None)
    if len(operands) < len(parts) or id(node) not in of:
        return None
    t = final(of[id(node)])
    match node:
        case s.Constant(value=value):
            return r.Const(float(value) if t.family == "float" else value, t)
        case s.Variable(name=name) if name in known:
            return r.Const(*known[name])
        case s.Unary(operator=operator):
            return r.Apply("neg" if operator == "-" else operator, operands, t)
        case s.Binary(operator=operator):
            return r.Apply(operator, operands, t)
        case s.Conditional():
            return r.Apply("if", operands, t)
        case s.Cast():
            return r.Apply("cast", operands, t)
        case s.Call(name=name):
            return r.Apply(f"${name}", operands, t, node.span)
    return None


def value_of(expression: r.Expr) -> Any:
    """The value of an expression without variables; None where it has none, as 1 / 0."""
    symbols = SymbolTable()
    words, valid = evaluate(expression, {}, 1, symbols)
    if valid is not None and not valid[0]:
        return None
    value = show_column(words, expression.type, symbols)[0]
    return value.item() if hasattr(value, "item") else value
