"""The printer of syntax: text that parses back to the same nodes."""

from __future__ import annotations

from typing import Any

from derivable.datalog.syntax import nodes as s
from derivable.datalog.values.terms import show_character, show_value


def expression_text(node: Any) -> str:
    """An expression or formula, fully parenthesised."""
    show = expression_text
    match node:
        case s.Constant(value=value, kind="char"):
            return show_character(value)
        case s.Constant(value=value, kind="symbol"):
            return f"s{show_value(value)}"
        case s.Constant(value=value):
            return show_value(value)
        case s.Variable(name=name):
            return name
        case s.Wildcard():
            return "_"
        case s.Unary(operator=operator, operand=a):
            return f"({operator}{show(a)})"
        case s.Binary(operator=operator, left=a, right=b):
            return f"({show(a)} {operator} {show(b)})"
        case s.Conditional(condition=c, then=a, otherwise=b):
            return f"(if {show(c)} then {show(a)} else {show(b)})"
        case s.Cast(operand=a, type_name=name):
            return f"({show(a)} as {name})"
        case s.Tuple(items=items):
            return f"({_list(items)})"
        case s.Call(name=name, arguments=arguments):
            return f"${name}({_list(arguments)})"
        case s.Atom(relation=name, arguments=arguments, parameters=parameters):
            special = f"<{', '.join(parameters)}>" if parameters else ""
            return f"{name}{special}({_list(arguments)})"
        case s.New(constructor=name, arguments=arguments):
            return f"new {name}({_list(arguments)})"
        case s.Case(subject=subject, pattern=pattern):
            return f"case {show(subject)} is {show(pattern)}"
        case s.Not(operand=a):
            return f"not {show(a)}"
        case s.Conjunction(operands=operands):
            return "(" + " and ".join(map(show, operands)) + ")"
        case s.Disjunction(operands=operands):
            return "(" + " or ".join(map(show, operands)) + ")"
        case s.Implies(condition=a, conclusion=b):
            return f"({show(a)} implies {show(b)})"
        case s.InRange(variable=v, low=a, high=b, inclusive=inclusive):
            return f"{show(v)} in {show(a)}..{'=' if inclusive else ''}{show(b)}"
        case s.Aggregate():
            return _aggregate(node)
    raise TypeError(f"not an expression: {node!r}")


def _list(items) -> str:
    return ", ".join(map(expression_text, items))


def _aggregate(node: s.Aggregate) -> str:
    special = f"<{parameters_text(node.parameters)}>" if node.parameters else ""
    arguments = f"[{', '.join(node.arguments)}]" if node.arguments else ""
    types = dict(node.types)
    bindings, group = (
        ", ".join(f"({b}: {types[b]})" if b in types else b for b in names) + ": " * bool(names)
        for names in (node.bindings, node.group)
    )
    text = f"{node.operator}{special}{'!' if node.discrete else ''}{arguments}({bindings}{expression_text(node.body)}"
    if node.group_body is not None:
        text += f" where {group}{expression_text(node.group_body)}"
    text += ")"
    if node.outputs is None:
        return text
    left = expression_text(node.outputs[0]) if len(node.outputs) == 1 else f"({_list(node.outputs)})"
    return f"{left} := {text}"


def _attributes(attributes: tuple[s.Attribute, ...]) -> str:
    return "".join(
        f"@{a.name}({parameters_text(a.arguments, False)}) " if a.arguments else f"@{a.name} " for a in attributes
    )


def parameters_text(parameters: s.Parameters, flags: bool = True) -> str:
    """`3`, `asc=true`, `desc`; in attributes a name never stands alone."""

    def value_text(value: Any) -> str:
        return f"[{', '.join(map(value_text, value))}]" if isinstance(value, tuple) else show_value(value)

    def one(name: str | None, value: Any) -> str:
        if name is None:
            return value_text(value)
        return name if value is True and flags else f"{name}={value_text(value)}"

    return ", ".join(one(name, value) for name, value in parameters)


def _columns(columns: tuple[s.Column, ...]) -> str:
    return ", ".join(
        f"{c.adornment + ' ' if c.adornment else ''}{c.name + ': ' if c.name else ''}{c.type_name}" for c in columns
    )


def item_text(item: s.Item) -> str:
    """One item, as it would be written."""
    match item:
        case s.AliasType(name=name, type_name=target, is_subtype=is_subtype):
            return f"type {name} {'<:' if is_subtype else '='} {target}"
        case s.EnumType(name=name, members=members):
            return f"type {name} = " + " | ".join(m if v is None else f"{m} = {v}" for m, v in members)
        case s.DataType(name=name, variants=variants):
            return f"type {name} = " + " | ".join(f"{v.name}({_columns(v.columns)})" for v in variants)
        case s.RelationType(name=name, columns=columns, attributes=attributes):
            return f"{_attributes(attributes)}type {name}({_columns(columns)})"
        case s.FunctionType(name=name, parameters=parameters, result=result, attributes=attributes):
            return f"{_attributes(attributes)}type ${name}({_columns(parameters)}) -> {result}"
        case s.ConstantItem(name=name, type_name=type_name, value=value):
            return f"const {name}{': ' + type_name if type_name else ''} = {expression_text(value)}"
        case s.FactSet(relation=name, facts=facts, exclusive=exclusive):
            shown = [
                (f"{expression_text(f.tag)}::" if f.tag is not None else "") + f"({_list(f.arguments)})" for f in facts
            ]
            return f"{_attributes(item.attributes)}rel {name} = {{{('; ' if exclusive else ', ').join(shown)}}}"
        case s.FactTable(relation=name, kinds=kinds, columns=columns, tags=tags, exclusive=exclusive):
            shown = [f"({_list(map(s.Constant, row, kinds))})" for row in zip(*columns)]
            if tags is not None:
                shown = [f"{show_value(tag)}::{row}" for tag, row in zip(tags, shown)]
            return f"{_attributes(item.attributes)}rel {name} = {{{('; ' if exclusive else ', ').join(shown)}}}"
        case s.Rule(heads=heads, body=body, tag=tag):
            head = expression_text(heads[0])
            if len(heads) > 1:
                head = "{" + ("; " if item.exclusive_heads else ", ").join(map(expression_text, heads)) + "}"
            text = f"{_attributes(item.attributes)}rel {expression_text(tag) + '::' if tag is not None else ''}{head}"
            return text if body is None else f"{text} = {expression_text(body)}"
        case s.ReduceRule(relation=name, aggregate=aggregate):
            return f"{_attributes(item.attributes)}rel {name} = {expression_text(aggregate)}"
        case s.Query(relation=name, arguments=arguments, attributes=attributes):
            return f"{_attributes(attributes)}query {name}" + (f"({_list(arguments)})" if arguments is not None else "")
        case s.Import(path=path):
            return f"import {show_value(path)}"
    raise TypeError(f"not an item: {item!r}")


def syntax_text(syntax: s.Syntax) -> str:
    """The whole program, one item a line."""
    return "\n".join(map(item_text, syntax.items))
