"""The values of constants that are expressions, `const B = A * 3 + 1`, and of tags without variables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from derivable.core.diagnostics import Span
from derivable.datalog.rules import nodes as r
from derivable.datalog.syntax import nodes as s
from derivable.datalog.types.mixed import ARITHMETIC
from derivable.datalog.types.unification import Type, final
from derivable.datalog.values.values import BOOL, F64, ValueType

if TYPE_CHECKING:
    from derivable.datalog.types.typed import Typed


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


def core_tag(node: Any, typed: Typed) -> r.Expr | None:
    """The core expression of a tag without variables, a real number or a truth value; None if it has some.

    A constant whose type is not declared is its definition: with `const P = 1 / 6` the tag P is no integer either.
    """
    definitions = {item.name: item for item in typed.syntax.items if isinstance(item, s.ConstantItem)}

    def real(node: Any) -> r.Expr | None:
        match node:
            case s.Constant(value=value, kind="integer" | "float"):
                return r.Const(float(value), F64)
            case s.Variable(name=name) if name in definitions and definitions[name].type_name is None:
                return real(definitions[name].value)
            case s.Unary(operator="-", operand=a):
                return applied("neg", real(a))
            case s.Binary(operator=operator, left=a, right=b) if operator in ARITHMETIC:
                return applied(operator, real(a), real(b))
            case s.Conditional(condition=c, then=a, otherwise=b):
                return applied("if", core_expression(c, typed.types, typed.constants), real(a), real(b))
            case s.Call(name=name, arguments=arguments) if id(node) in typed.real and typed.types[id(node)] is F64:
                return applied(f"${name}", *map(argument, arguments), span=node.span)
        found = core_expression(node, typed.types, typed.constants)
        return found if found is None or found.type in (BOOL, F64) else r.Apply("cast", (found,), F64)

    def argument(node: Any) -> r.Expr | None:
        return real(node) if id(node) in typed.real else core_expression(node, typed.types, typed.constants)

    def applied(operator: str, *operands: r.Expr | None, span: Span = s.NOWHERE) -> r.Expr | None:
        known = tuple(operand for operand in operands if operand is not None)
        return r.Apply(operator, known, F64, span) if len(known) == len(operands) else None

    return real(node)
