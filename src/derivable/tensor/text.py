"""The printed form of SDQLite, which `parse` reads."""

from __future__ import annotations

from derivable.algebra.expr.operations import OPERATIONS
from derivable.algebra.expr.text import constant_text
from derivable.tensor import nodes as t

# How tightly what stands at a place must bind; larger is tighter. Those of operations are in their table.
_ANY, _SUM, _PRODUCT, _ATOM = 0, 5, 6, 10
_WIDTH = 100
_CALLS = {"cast": "real"}


def to_text(node: t.Node, indent: int = 0) -> str:
    """One line if it is short; otherwise loops and bindings have lines of their own."""
    line = _text(node, _ANY)
    if len(line) + indent <= _WIDTH or not isinstance(node, (t.Sum, t.Let, t.If, t.Singleton, t.Add)):
        return line
    space = "\n" + " " * (indent + 2)
    if isinstance(node, t.Sum):
        return f"sum(<{node.key}, {node.value}> in {_text(node.range, _ANY)}){space}{to_text(node.body, indent + 2)}"
    if isinstance(node, t.If):
        return f"if {_text(node.condition, _ANY)} then{space}{to_text(node.body, indent + 2)}"
    if isinstance(node, t.Let):
        value = to_text(node.value, indent + 2)
        given = value if "\n" not in value else space + value
        return f"let {node.name} = {given} in\n{' ' * indent}{to_text(node.body, indent)}"
    if isinstance(node, t.Singleton):
        return f"{{ {_key(node)} ->{space}{to_text(node.value, indent + 2)} }}"
    left, right = (f"({to_text(part, indent + 1)})" for part in (node.left, node.right))
    return f"{left}\n{' ' * indent}+ {right}"


def _key(node: t.Singleton) -> str:
    key = _text(node.key, _ANY)
    return f"unique({key})" if node.is_unique else key


def _text(node: t.Node, tightness: int) -> str:
    text, own = _plain(node)
    return f"({text})" if own < tightness else text


def _plain(node: t.Node) -> tuple[str, int]:
    """(text, how tightly it binds)"""
    match node:
        case t.Var():
            return node.name, _ATOM
        case t.Number():
            if isinstance(node.value, bool):
                return ("true" if node.value else "false"), _ATOM
            text = constant_text(node.value)
            return text, OPERATIONS["negate"].precedence if text.startswith("-") else _ATOM
        case t.Zero():
            return "{}", _ATOM
        case t.One():
            return "one", _ATOM
        case t.Sum():
            head = f"sum(<{node.key}, {node.value}> in {_text(node.range, _ANY)})"
            return f"{head} {_text(node.body, _ANY)}", _ANY
        case t.Singleton():
            return f"{{ {_key(node)} -> {_text(node.value, _ANY)} }}", _ATOM
        case t.Lookup():
            return f"{_text(node.tensor, _ATOM)}({_text(node.key, _ANY)})", _ATOM
        case t.Let():
            return f"let {node.name} = {_text(node.value, _ANY)} in {_text(node.body, _ANY)}", _ANY
        case t.If():
            return f"if {_text(node.condition, _ANY)} then {_text(node.body, _ANY)}", _ANY
        case t.Add():
            return f"{_text(node.left, _SUM)} + {_text(node.right, _SUM + 1)}", _SUM
        case t.Multiply():
            return f"{_text(node.left, _PRODUCT)} * {_text(node.right, _PRODUCT + 1)}", _PRODUCT
        case t.Range():
            return f"({_text(node.start, _ANY)}:{_text(node.stop, _ANY)})", _ATOM
        case t.SubArray():
            inside = f"{_text(node.start, _ANY)}:{_text(node.stop, _ANY)}"
            return f"{_text(node.array, _ATOM)}({inside})", _ATOM
        case t.Apply():
            return _applied(node)
    raise AssertionError(node)


def _applied(node: t.Apply) -> tuple[str, int]:
    symbol, tightness = OPERATIONS[node.operation].symbol, OPERATIONS[node.operation].precedence
    if node.operation == "logical_not":
        return f"not {_text(node.operands[0], tightness)}", tightness
    if symbol and len(node.operands) == 2:
        left, right = node.operands
        return f"{_text(left, tightness)} {symbol} {_text(right, tightness + 1)}", tightness
    name = _CALLS.get(node.operation, node.operation)
    return f"{name}({', '.join(_text(operand, _ANY) for operand in node.operands)})", _ATOM
