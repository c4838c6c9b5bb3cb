"""The printed form of SDQLite, which `parse` reads.

The sum and the product of integers are printed as those of reals are, as `i + j`, where it can be seen that they are
integers. Of anything else the operations of the table are printed as calls, `multiply(a, b)`, since `a * b` is the
product of the semiring. So the text says the same as the nodes, without a word about types.
"""

from __future__ import annotations

from derivable.algebra.expr.operations import OPERATIONS
from derivable.algebra.expr.text import constant_text
from derivable.tensor.language import nodes as t

# How tightly what stands at a place must bind; larger is tighter. Those of operations are in their table.
_ANY, _CONJUNCTION, _NEGATION, _COMPARISON, _SUM, _PRODUCT, _POWER, _ATOM = 0, 3, 3.5, 4, 5, 6, 8, 10
_WIDTH = 100
# The functions of the language: operation -> its name. No other cast has a meaning here.
_CALLS = {name: name for name, row in OPERATIONS.items() if row.rule != "cast"} | {"cast": "real"}
FUNCTIONS = {name: operation for operation, name in _CALLS.items()}
NAME = r"[^\W\d][\w']*"
KEYWORDS = ("sum", "let", "in", "if", "then", "else", "true", "false", "one", "unique", "not", "and", "or")
# Names that no input and nothing bound can have.
RESERVED = frozenset((*KEYWORDS, *FUNCTIONS, "inf", "nan", "_"))
_OF_SEMIRING = ("add", "multiply")
# Names that are integers: those of keys, or whatever stands in a key.
_Names = frozenset[str] | None
_NONE: frozenset[str] = frozenset()


def to_text(node: t.Node, indent: int = 0, integers: _Names = _NONE) -> str:
    """One line if it is short; otherwise loops and bindings have lines of their own."""
    line = _text(node, _ANY, integers)
    if len(line) + indent <= _WIDTH or not isinstance(node, (t.Sum, t.Let, t.If, t.Singleton, t.Add)):
        return line
    space = "\n" + " " * (indent + 2)
    if isinstance(node, t.Sum):
        body = to_text(node.body, indent + 2, _inside(node, integers))
        return f"{_head(node, integers)}{space}{body}"
    if isinstance(node, t.If):
        return f"if {_text(node.condition, _ANY, integers)} then{space}{to_text(node.body, indent + 2, integers)}"
    if isinstance(node, t.Let):
        value = to_text(node.value, indent + 2, integers)
        given = value if "\n" not in value else space + value
        body = to_text(node.body, indent, _inside(node, integers))
        return f"let {node.name} = {given} in\n{' ' * indent}{body}"
    if isinstance(node, t.Singleton):
        return f"{{ {_key(node)} ->{space}{to_text(node.value, indent + 2, integers)} }}"
    left, right = (f"({to_text(part, indent + 1, integers)})" for part in (node.left, node.right))
    return f"{left}\n{' ' * indent}+ {right}"


def _inside(node: t.Sum | t.Let, integers: _Names) -> _Names:
    """The names that are known to be integers in the body."""
    if integers is None:
        return None
    if isinstance(node, t.Let):
        return integers | {node.name} if _is_integer(node.value, integers) else integers - {node.name}
    return (integers | {node.key}) - {node.value}


def _is_integer(node: t.Node, integers: _Names) -> bool:
    if integers is None:
        return True
    match node:
        case t.Var():
            return node.name in integers
        case t.Number():
            return isinstance(node.value, int) and not isinstance(node.value, bool)
        case t.Apply():
            is_closed = OPERATIONS[node.operation].rule == "arithmetic"
            return is_closed and any(_is_integer(operand, integers) for operand in node.operands)
    return False


def _head(node: t.Sum, integers: _Names) -> str:
    return f"sum(<{node.key}, {node.value}> in {_text(node.range, _ANY, _known(integers))})"


def _key(node: t.Singleton) -> str:
    key = _text(node.key, _ANY, None)
    return f"unique({key})" if node.is_unique else key


def _known(integers: _Names) -> frozenset[str]:
    """Outside of keys again."""
    return integers or _NONE


def _text(node: t.Node, tightness: float, integers: _Names) -> str:
    text, own = _plain(node, integers)
    return f"({text})" if own < tightness else text


def _plain(node: t.Node, integers: _Names) -> tuple[str, float]:
    """(text, how tightly it binds)"""
    known = _known(integers)
    match node:
        case t.Var():
            return node.name, _ATOM
        case t.Number():
            text = constant_text(node.value)
            return text, OPERATIONS["negate"].precedence if text.startswith("-") else _ATOM
        case t.Zero():
            return "{}", _ATOM
        case t.One():
            return "one", _ATOM
        case t.Sum():
            return f"{_head(node, integers)} {_text(node.body, _ANY, _inside(node, integers))}", _ANY
        case t.Singleton():
            return f"{{ {_key(node)} -> {_text(node.value, _ANY, known)} }}", _ATOM
        case t.Lookup():
            return f"{_text(node.tensor, _ATOM, known)}({_text(node.key, _ANY, None)})", _ATOM
        case t.Let():
            value, body = _text(node.value, _ANY, known), _text(node.body, _ANY, _inside(node, integers))
            return f"let {node.name} = {value} in {body}", _ANY
        case t.If():
            return f"if {_text(node.condition, _ANY, known)} then {_text(node.body, _ANY, known)}", _ANY
        case t.Add():
            return f"{_text(node.left, _SUM, known)} + {_text(node.right, _SUM + 1, known)}", _SUM
        case t.Multiply():
            return f"{_text(node.left, _PRODUCT, known)} * {_text(node.right, _PRODUCT + 1, known)}", _PRODUCT
        case t.Range():
            return f"({_text(node.start, _ANY, None)}:{_text(node.stop, _ANY, None)})", _ATOM
        case t.SubArray():
            inside = f"{_text(node.start, _ANY, None)}:{_text(node.stop, _ANY, None)}"
            return f"{_text(node.array, _ATOM, known)}({inside})", _ATOM
        case t.Apply():
            return _applied(node, integers)
    raise AssertionError(node)


def _applied(node: t.Apply, integers: _Names) -> tuple[str, float]:
    row = OPERATIONS[node.operation]
    # What is an integer has integers for operands, unless it is chosen by a condition.
    inner = integers if row.rule == "arithmetic" else _known(integers)
    if node.operation == "logical_not":
        return f"not {_text(node.operands[0], _NEGATION, inner)}", _NEGATION
    if node.operation == "negate" and not isinstance(node.operands[0], t.Number):
        return f"-{_text(node.operands[0], row.precedence, inner)}", row.precedence
    is_infix = len(node.operands) == 2 and (node.operation not in _OF_SEMIRING or _is_integer(node, integers))
    if row.symbol and is_infix:
        # Left-associative, but for the power; comparisons do not chain.
        left, right = row.precedence, row.precedence + 1
        if row.precedence == _COMPARISON or row.precedence == _POWER:
            left += 1
        if row.precedence == _POWER:
            right = OPERATIONS["negate"].precedence
        elif row.precedence == _CONJUNCTION:
            right = _NEGATION
        a, b = node.operands
        return f"{_text(a, left, inner)} {row.symbol} {_text(b, right, inner)}", row.precedence
    name = _CALLS[node.operation]
    return f"{name}({', '.join(_text(operand, _ANY, inner) for operand in node.operands)})", _ATOM
