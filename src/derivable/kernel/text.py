"""Kernels as text for people; the form is shown in `nodes`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

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


def _names(registers: Iterable[Expr]) -> str:
    return ", ".join(_text(register) for register in registers)


def _head(statement: n.Statement) -> list[str]:
    match statement:
        case n.Assign(targets, values):
            return [*_shared(values), f"{_names(targets)} = {_names(values)}"]
        case n.Load(target, array, index):
            return [f"{target.name} = {array.name}[{_text(index)}]"]
        case n.LoadBit(target, array, index):
            return [f"{target.name} = bit {_text(index)} of {array.name}"]
        case n.SetBit(array, index):
            return [f"bit {_text(index)} of {array.name} = 1"]
        case n.Hash(slot, tag, words, size):
            return [f"{slot.name}, {tag.name} = hash ({_names(words)}) in {_text(size)}"]
        case n.LoadLine(target, array, index, backwards, count, fill):
            only = "" if count is None or fill is None else f" count {_text(count)} else {_text(fill)}"
            return [f"{target.name} = {array.name}[{_rows(index, backwards)}]{only}"]
        case n.Store(array, index, value):
            return [*_shared([value]), f"{array.name}[{_text(index)}] = {_text(value)}"]
        case n.StoreLine(array, index, value, backwards, count):
            only = "" if count is None else f" count {_text(count)}"
            return [*_shared([value]), f"{array.name}[{_rows(index, backwards)}]{only} = {_text(value)}"]
        case n.LoadRows(target, array, index, stride, count):
            return [f"{target.name} = {array.name}[{_text(index)} by {_text(stride)}] count {_text(count)}"]
        case n.StoreRows(array, index, stride, count, value):
            place = f"{array.name}[{_text(index)} by {_text(stride)}] count {_text(count)}"
            return [*_shared([value]), f"{place} = {_text(value)}"]
        case n.Call(kernel, arguments):
            given = ", ".join(x.name if isinstance(x, n.Array) else _text(x) for x in arguments)
            return [f"{kernel.name}({given})"]
        case n.ScanLine(targets, sources, _, _, values, neutral):
            operator = ", ".join(_text(value) for value in values)
            start = ", ".join(_text(value) for value in neutral)
            return [f"{_names(targets)} = scan ({_names(sources)}) with ({operator}) from ({start})"]
        case n.MoveUp(target, source, fill):
            return [f"{target.name} = move_up {source.name}, {fill.name}"]
        case n.LastLane(target, source):
            return [f"{target.name} = last {source.name}"]
        case n.FirstLane(target, source):
            return [f"{target.name} = first {source.name}"]
        case n.Spread(target, value):
            return [f"{target.name} = line {_text(value)}"]
        case n.Hide(target, value):
            return [f"{target.name} = hidden {_text(value)}"]
        case n.Choose(target, condition, if_true, if_false):
            return [f"{target.name} = choose {_text(condition)}, {if_true.name}, {if_false.name}"]
        case n.AllLanes(target, condition):
            return [*_shared([condition]), f"{target.name} = all {_text(condition)}"]
        case n.Prefetch(array, index, to_write):
            return [f"prefetch {'to write ' * to_write}{array.name}[{_text(index)}]"]
        case n.For(index, start, stop, _, down, step):
            by = f" by {step}" if step != 1 else ""
            how = f"{by}{' down' * down}{' parallel' * statement.parallel}"
            return [f"for {index.name} in {_text(start)} .. {_text(stop)}{how}"]
        case n.While(condition):
            return [f"while {_text(condition)}"]
        case n.If(condition):
            return [f"if {_text(condition)}"]
        case n.Break():
            return ["break"]
        case n.Continue():
            return ["continue"]
        case n.Return(values):
            return [f"return {_names(values)}".rstrip()]
        case n.Comment(text):
            return [f"# {text}"]
    raise AssertionError(f"no printed form for {type(statement).__name__}")


def _rows(index: Expr, backwards: bool) -> str:
    return f".. {_text(index)}" if backwards else f"{_text(index)} .."


def _shared(values: Sequence[Expr]) -> list[str]:
    """Subexpressions that several values of a statement use stay written out: only their number is said."""
    size = sum(isinstance(node, Apply) for node in in_order(tuple(values)))
    return [f"# {size} operations"] if size > 24 else []


def _text(value: Expr) -> str:
    text = expression_text(value)
    # A shared subexpression is a line of its own before the expression.
    lines = text.split("\n")
    return lines[0] if len(lines) == 1 else f"{lines[-1]} where {'; '.join(lines[:-1])}"
