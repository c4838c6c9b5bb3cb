"""The printer of syntax: text that parses back to the same nodes; and parts of a text as they are written."""

from __future__ import annotations

import re
from typing import Any

from derivable.core.diagnostics import Span
from derivable.datalog.syntax import nodes as s
from derivable.datalog.values.terms import show_character, show_value

# Nodes by their fields; what has operators stands in parentheses, but alone. Lists have commas.
_FORMS = {
    s.Variable: "{name}",
    s.Wildcard: "_",
    s.Unary: "({operator}{operand})",
    s.Binary: "({left} {operator} {right})",
    s.Conditional: "(if {condition} then {then} else {otherwise})",
    s.Cast: "({operand} as {type_name})",
    s.Tuple: "({items})",
    s.Call: "${name}({arguments})",
    s.New: "new {constructor}({arguments})",
    s.Case: "case {subject} is {pattern}",
    s.Not: "not {operand}",
    s.Implies: "({condition} implies {conclusion})",
}


_COMPARISONS = ("==", "!=", "<", "<=", ">", ">=")


def expression_text(node: Any) -> str:
    """An expression or formula, in parentheses if it has an operator."""
    if (form := _FORMS.get(type(node))) is not None:
        return form.format(**{name: _field(getattr(node, name)) for name in node.__match_args__})
    match node:
        case s.Tunable(value=value, has_start=has_start, by=by):
            each = f"({', '.join(variable.name for variable in by)})" if by else ""
            return f"?{show_value(value) if has_start else ''}{each}"
        case s.Constant(value=value, kind="char"):
            return show_character(value)
        case s.Constant(value=value, kind=kind):
            return f"{'s' if kind == 'symbol' else ''}{show_value(value)}"
        case s.Atom(relation=name, arguments=arguments, parameters=parameters):
            special = f"<{', '.join(parameters)}>" if parameters else ""
            return f"{name}{special}({_list(arguments)})"
        case s.Conjunction(operands=operands) | s.Disjunction(operands=operands):
            word = " and " if isinstance(node, s.Conjunction) else " or "
            return f"({word.join(map(expression_text, operands))})"
        case s.InRange(variable=v, low=a, high=b, inclusive=inclusive):
            return f"{expression_text(v)} in {expression_text(a)}..{'=' if inclusive else ''}{expression_text(b)}"
        case s.Aggregate():
            return _aggregate(node)
    raise TypeError(f"not an expression: {node!r}")


def _field(value: Any) -> str:
    return value if isinstance(value, str) else _list(value) if isinstance(value, tuple) else expression_text(value)


def _list(items) -> str:
    return ", ".join(map(_alone, items))


def _alone(node: Any) -> str:
    """An expression that stands between commas."""
    text = expression_text(node)
    return text[1:-1] if isinstance(node, (s.Unary, s.Binary, s.Conditional, s.Cast)) else text


def body_parts(body: s.Expression) -> list[str]:
    """The conjuncts of a body, with `and` between which it is written."""
    operands = body.operands if isinstance(body, s.Conjunction) else (body,)
    return [
        _alone(one) if isinstance(one, s.Binary) and one.operator in _COMPARISONS else expression_text(one)
        for one in operands
    ]


def _body(body: s.Expression) -> str:
    return " and ".join(body_parts(body))


def _aggregate(node: s.Aggregate) -> str:
    special = f"<{parameters_text(node.parameters)}>" if node.parameters else ""
    arguments = f"[{', '.join(node.arguments)}]" if node.arguments else ""
    types = dict(node.types)
    bindings, group = (
        ", ".join(f"({b}: {types[b]})" if b in types else b for b in names) + ": " * bool(names)
        for names in (node.bindings, node.group)
    )
    text = f"{node.operator}{special}{'!' if node.discrete else ''}{arguments}({bindings}{_body(node.body)}"
    if node.group_body is not None:
        text += f" where {group}{_body(node.group_body)}"
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
        if not isinstance(value, tuple):
            return show_value(value)
        opening, closing = "()" if isinstance(value, s.Group) else "[]"
        return f"{opening}{', '.join(map(value_text, value))}{closing}"

    def one(name: str | None, value: Any) -> str:
        if name is None:
            return value_text(value)
        return name if value is True and flags else f"{name}={value_text(value)}"

    return ", ".join(one(name, value) for name, value in parameters)


def _columns(columns: tuple[s.Column, ...]) -> str:
    return ", ".join(
        " ".join(word for word in (c.lattice, c.adornment, c.name and f"{c.name}:", c.type_name) if word)
        for c in columns
    )


def item_text(item: s.Item) -> str:
    """One item, as it would be written."""
    return _attributes(getattr(item, "attributes", ())) + _bare_text(item)


def _bare_text(item: s.Item) -> str:
    match item:
        case s.AliasType(name=name, type_name=target, is_subtype=is_subtype):
            return f"type {name} {'<:' if is_subtype else '='} {target}"
        case s.EnumType(name=name, members=members):
            return f"type {name} = " + " | ".join(m if v is None else f"{m} = {v}" for m, v in members)
        case s.DataType(name=name, variants=variants):
            return f"type {name} = " + " | ".join(f"{v.name}({_columns(v.columns)})" for v in variants)
        case s.RelationType(name=name, columns=columns):
            return f"type {name}({_columns(columns)})"
        case s.FunctionType(name=name, parameters=parameters, result=result):
            return f"type ${name}({_columns(parameters)}) -> {result}"
        case s.ConstantItem(name=name, type_name=type_name, value=value):
            return f"const {name}{': ' + type_name if type_name else ''} = {expression_text(value)}"
        case s.FactSet() | s.FactTable():
            opening, facts = fact_texts(item)
            return f"{opening}{{{('; ' if item.exclusive else ', ').join(facts)}}}"
        case s.Rule(body=body):
            return rule_head(item) + ("" if body is None else f" = {_body(body)}")
        case s.ReduceRule(relation=name, aggregate=aggregate):
            return f"rel {name} = {expression_text(aggregate)}"
        case s.Query(relation=name, arguments=arguments):
            return f"query {name}" + (f"({_list(arguments)})" if arguments is not None else "")
        case s.Evidence(relation=name, arguments=arguments, is_true=is_true):
            return f"evidence {'' if is_true else 'not '}{name}({_list(arguments)})"
        case s.Import(path=path):
            return f"import {show_value(path)}"
    raise TypeError(f"not an item: {item!r}")


def _tag(tag: Any) -> str:
    return "" if tag is None else f"{expression_text(tag)}::"


def rule_head(item: s.Rule) -> str:
    """A rule up to its `=`."""
    head = expression_text(item.heads[0])
    if len(item.heads) > 1:
        tags = item.head_tags or (None,) * len(item.heads)
        shown = [f"{_tag(tag)}{expression_text(one)}" for tag, one in zip(tags, item.heads)]
        head = "{" + ("; " if item.exclusive_heads else ", ").join(shown) + "}"
    return f"rel {_tag(item.tag)}{head}"


def fact_texts(item: s.FactSet | s.FactTable) -> tuple[str, list[str]]:
    """Facts up to their brace, and each of them."""
    if isinstance(item, s.FactSet):
        rows = [f"{_tag(fact.tag)}({_list(fact.arguments)})" for fact in item.facts]
    else:
        rows = [f"({_list(map(s.Constant, row, item.kinds))})" for row in zip(*item.columns)]
        rows = rows if item.tags is None else [f"{show_value(t)}::{row}" for t, row in zip(item.tags, rows)]
    return f"rel {item.relation} = ", rows


def syntax_text(syntax: s.Syntax) -> str:
    """The whole program, one item a line."""
    return "\n".join(map(item_text, syntax.items))


def excerpt(text: str, span: Span, behind: Span | None = None) -> str:
    """The text of a span, on one line; `behind` a tag, what stands behind it and its `::`.

    All of it if the tag stands elsewhere, as in programs that are translated.
    """
    text = text if span.origin is None else span.origin.text
    start = offset(text, span)
    stop = start + span.length
    if behind is not None:
        mark = text.find("::", offset(text, behind) + behind.length, stop)
        start = start if mark < 0 else mark + 2
    return re.sub(r"\s*\n\s*", " ", text[start:stop]).strip()


def offset(text: str, span: Span) -> int:
    """The index in its text at which a span begins."""
    start = 0
    for _ in range(span.line - 1):
        start = text.find("\n", start) + 1
    return start + span.column - 1
