"""Kernels as text for people; the form is shown in `nodes`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from derivable.algebra.expr.nodes import Apply, Argument, Expr, in_order
from derivable.algebra.expr.text import to_text as expression_text
from derivable.kernel import nodes as n


def to_text(kernel: n.Kernel) -> str:
    """The whole kernel, one statement a line."""
    parameters = ", ".join(_parameter(parameter) for parameter in kernel.parameters)
    return "\n".join([f"kernel {kernel.name}({parameters})", *_block(kernel.body, 1)])


def _parameter(parameter: n.Register | n.Array) -> str:
    if isinstance(parameter, Argument):
        return f"{parameter.name}: {parameter.dtype}"
    return f"{parameter.name}: {parameter.dtype}[]{'[lane]' * parameter.is_lines}"


def _block(block: Sequence[n.Statement], depth: int) -> list[str]:
    lines = []
    for statement in block:
        lines += [f"{'  ' * depth}{line}" for line in _head(statement)]
        inner = n.blocks_of(statement)
        lines += [line for body in inner[:1] for line in _block(body, depth + 1)]
        if len(inner) > 1 and inner[1]:
            lines += [f"{'  ' * depth}else", *_block(inner[1], depth + 1)]
    return lines


# Statement -> its text, where {field} is the text of a field, or of several joined by commas.
_FORMS: dict[type, str] = {
    n.Assign: "{targets} = {values}",
    n.Load: "{target} = {array}[{index}]",
    n.Store: "{array}[{index}] = {value}",
    n.LoadBit: "{target} = bit {index} of {array}",
    n.SetBit: "bit {index} of {array} = 1",
    n.Hash: "{slot}, {tag} = hash ({words}) in {size}",
    n.LoadLine: "{target} = {array}[{rows}]{some}",
    n.StoreLine: "{array}[{rows}]{some} = {value}",
    n.LoadRows: "{target} = {array}[{index} by {stride}] count {count}",
    n.StoreRows: "{array}[{index} by {stride}] count {count} = {value}",
    n.LaneNumbers: "{target} = lanes",
    n.Gather: "{target} = {array}[{places}] where {mask} else {fill}",
    n.Scatter: "{array}[{places}] where {mask} {how}= {value}",
    n.Call: "{kernel}({arguments})",
    n.ScanLine: "{targets} = scan{how} ({sources}) with ({operator}) from ({neutral})",
    n.MoveUp: "{target} = move_up {source}, {fill}",
    n.LastLane: "{target} = last {source}",
    n.FirstLane: "{target} = first {source}",
    n.Spread: "{target} = line {value}",
    n.Hide: "{target} = hidden {value}",
    n.Choose: "{target} = choose {condition}, {if_true}, {if_false}",
    n.AllLanes: "{target} = all {condition}",
    n.Prefetch: "prefetch {array}[{index}]",
    n.Barrier: "barrier",
    n.For: "for {target} in {start} .. {stop}{how}",
    n.While: "while {condition}",
    n.If: "if {condition}",
    n.Break: "break",
    n.Continue: "continue",
    n.Return: "return {values}",
    n.Comment: "# {text}",
}


class _Texts:
    """The texts of a statement's fields, and of what it does not always say."""

    def __init__(self, statement: n.Statement):
        self.statement = statement

    def __getitem__(self, name: str) -> str:
        match name, self.statement:
            case "rows", n.LoadLine(index=index, backwards=backwards) | n.StoreLine(index=index, backwards=backwards):
                return f".. {_text(index)}" if backwards else f"{_text(index)} .."
            case "some", n.LoadLine(count=count) | n.StoreLine(count=count) if count is None:
                return ""
            case "some", n.LoadLine(count=count, fill=fill):
                return f" count {_text(count)} else {_text(fill)}"
            case "some", n.StoreLine(count=count):
                return f" count {_text(count)}"
            case "how", n.Scatter(adds=adds):
                return "+" * adds
            case "how", n.ScanLine(down=down):
                return " down" * down
            case "how", n.For(step=step, down=down, parallel=parallel):
                return f"{f' by {step}' * (step != 1)}{' down' * down}{' parallel' * parallel}"
        value = getattr(self.statement, name)
        return ", ".join(_text(part) for part in value) if isinstance(value, tuple) else _text(value)


def _head(statement: n.Statement) -> list[str]:
    text = _FORMS[type(statement)].format_map(_Texts(statement)).rstrip()  # type: ignore[arg-type]
    return [*_shared(n.operands_of(statement)), text]


def _shared(values: Sequence[Expr]) -> list[str]:
    """Subexpressions that several values of a statement use stay written out: only their number is said."""
    size = sum(isinstance(node, Apply) for node in in_order(tuple(values)))
    return [f"# {size} operations"] if size > 24 else []


def _text(value: Any) -> str:
    if not isinstance(value, Expr):
        return value if isinstance(value, str) else value.name
    text = expression_text(value)
    # A shared subexpression is a line of its own before the expression.
    lines = text.split("\n")
    return lines[0] if len(lines) == 1 else f"{lines[-1]} where {'; '.join(lines[:-1])}"
