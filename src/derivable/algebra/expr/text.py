"""Expressions as text for people."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

from derivable.algebra.expr.nodes import Apply, Argument, Constant, Expr, as_tuple, in_order
from derivable.algebra.expr.operations import OPERATIONS

ATOM = 10


def to_text(exprs: Expr | Sequence[Expr]) -> str:
    """One line per shared subexpression, then the expression (several: a tuple).

    logaddexp(a, b)

    t0 = exp(a)
    t0 / (1.0 + t0)
    """
    roots = as_tuple(exprs)
    nodes = in_order(roots)
    uses = Counter(operand for node in nodes for operand in node.operands)
    uses.update(roots)
    texts: dict[Expr, tuple[str, int]] = {}
    lines = []
    for node in nodes:
        text, precedence = _text_of(node, texts)
        if isinstance(node, Apply) and uses[node] > 1:
            name = f"t{len(lines)}"
            lines.append(f"{name} = {text}")
            text, precedence = name, ATOM
        texts[node] = (text, precedence)
    last = ", ".join(texts[root][0] for root in roots)
    if not isinstance(exprs, Expr):
        last = f"({last},)" if len(roots) == 1 else f"({last})"
    return "\n".join([*lines, last])


def constant_text(value: bool | int | float) -> str:
    """A constant as it is printed: true, 3, 2.0, -inf, nan."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and not math.isfinite(value):
        return "nan" if math.isnan(value) else ("inf" if value > 0 else "-inf")
    return repr(value)


def _text_of(node: Expr, texts: dict[Expr, tuple[str, int]]) -> tuple[str, int]:
    if isinstance(node, Constant):
        text = constant_text(node.value)
        return text, 7 if text.startswith("-") else ATOM
    if isinstance(node, Argument):
        return node.name, ATOM
    assert isinstance(node, Apply)
    if node.operation == "cast":
        return f"{node.dtype}({texts[node.operands[0]][0]})", ATOM
    row = OPERATIONS[node.operation]
    if not row.symbol:
        return f"{node.operation}({', '.join(texts[operand][0] for operand in node.operands)})", ATOM
    if row.arity == 1:
        return f"{row.symbol}{_inside(texts[node.operands[0]], row.precedence)}", row.precedence
    # Left-associative, but for the power; comparisons do not chain.
    left, right = (row.precedence + (row.symbol == "**" or row.precedence == 4), row.precedence + (row.symbol != "**"))
    a, b = node.operands
    return f"{_inside(texts[a], left)} {row.symbol} {_inside(texts[b], right)}", row.precedence


def _inside(text: tuple[str, int], precedence: int) -> str:
    return text[0] if text[1] >= precedence else f"({text[0]})"
