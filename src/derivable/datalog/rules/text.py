"""The printer of core rules."""

from __future__ import annotations

from typing import Any

from derivable.datalog.rules import nodes as r
from derivable.datalog.syntax.text import parameters_text
from derivable.datalog.values.terms import show_character, show_value

# The predicates of consecutive integers, as the language writes them.
RANGES = {"range": "..", "range_inclusive": "..="}

_FORMS = {"if": "(if {} then {} else {})", "cast": "({} as {type})", "neg": "(-{})"}


def expr_text(node: Any) -> str:
    """An expression or term; None is the wildcard."""
    match node:
        case None:
            return "_"
        case r.Var(name=name):
            return name
        case r.Const(value=value, type=t):
            return show_character(value) if t.family == "char" else show_value(value)
        case r.Apply(operator=operator, operands=operands, type=t):
            shown = list(map(expr_text, operands))
            if operator.startswith("is "):
                return f"({shown[0]} {operator})"
            if operator in _FORMS:
                return _FORMS[operator].format(*shown, type=t)
            if operator.startswith(("$", "new ")) or "." in operator:
                return f"{operator}({', '.join(shown)})"
            return f"({operator}{shown[0]})" if len(shown) == 1 else f"({shown[0]} {operator} {shown[1]})"
    raise TypeError(f"not an expression: {node!r}")


def terms_text(terms) -> str:
    return ", ".join(map(expr_text, terms))


def literal_text(node: r.Literal) -> str:
    match node:
        case r.Atom(relation=name, terms=terms):
            return f"{name}({terms_text(terms)})"
        case r.Negated(relation=name, terms=terms):
            return f"not {name}({terms_text(terms)})"
        case r.Filter(condition=condition):
            return expr_text(condition)
        case r.Generate():
            return generator_text(node)
        case r.RuleProbability():
            return coin_text(node)
    raise TypeError(f"not a literal: {node!r}")


def generator_text(node: Any) -> str:
    """A generator of core rules or of RAM."""
    if (sign := RANGES.get(node.predicate)) and not node.negated:
        low, high = map(expr_text, node.inputs)
        return f"{expr_text(node.outputs[0])} in {low}{sign}{high}"
    outputs = f"; {terms_text(node.outputs)}" if node.outputs else ""
    return f"{'not ' if node.negated else ''}{node.relation or node.predicate}({terms_text(node.inputs)}{outputs})"


def coin_text(node: Any) -> str:
    """A coin of core rules or of RAM."""
    option = f"/{node.option}" if node.options else ""
    return f"{expr_text(node.probability)}::{node.name}{option}({terms_text(node.key)})"


def rule_text(rule: r.Rule) -> str:
    match rule:
        case r.Clause(relation=name, terms=terms, body=body):
            head = f"{name}({terms_text(terms)})"
            return f"{head} :- {', '.join(map(literal_text, body))}" if body else head
        case r.AggregateRule():
            operator = f"{rule.operator}{'!' if rule.discrete else ''}"
            if rule.parameters:
                operator += f"<{parameters_text(rule.parameters)}>"
            groups = f" groups {rule.groups}" if rule.groups else ""
            ranks = "" if rule.most_ranks is None else f" ranks below {rule.most_ranks}"
            return (
                f"{rule.relation} :- {operator} over {rule.body}"
                f"[{rule.num_group} group, {rule.num_arguments} argument, {rule.num_values} value]{groups}{ranks}"
            )
    raise TypeError(f"not a rule: {rule!r}")


def facts_text(facts: r.Facts) -> str:
    tags = facts.tags or (None,) * facts.count
    shown = [
        (f"{tag!r}::" if tag is not None else "") + "(" + ", ".join(map(show_value, row)) + ")"
        for tag, row in zip(tags, facts.rows)
    ]
    if len(shown) > 8:
        shown = [*shown[:8], f"... {facts.count} in all"]
    return f"{facts.relation} = {{{('; ' if facts.exclusive else ', ').join(shown)}}}"


def evidence_text(evidence: r.Evidence) -> str:
    """`evidence not john("Ada")`"""
    sign = "" if evidence.is_true else "not "
    return f"evidence {sign}{evidence.relation}({', '.join(map(show_value, evidence.row))})"


def relation_text(relation: r.Relation) -> str:
    """A relation with the types of its columns: `distance(usize, min f64)`."""
    types = [*map(str, relation.types)]
    if relation.lattice is not None:
        types[-1] = f"{relation.lattice} {types[-1]}"
    return f"{relation.name}({', '.join(types)})"


def rules_text(rules: r.Rules) -> str:
    """The whole program: relations, facts, rules, outputs."""
    rows = [f"constructor {constructor}" for constructor in rules.constructors.values()]
    for relation in rules.relations.values():
        marks = "".join(
            mark
            for mark, on in (
                (" input", relation.is_input),
                (" hidden", relation.is_hidden),
                (" certain", relation.is_certain),
                (" goal", relation.is_goal),
                (f" demand {relation.demand}", relation.demand),
            )
            if on
        )
        rows.append(f"relation {relation_text(relation)}{marks}")
    rows += [f"fact {facts_text(f)}" for f in rules.facts]
    rows += [f"rule {rule_text(rule)}" for rule in rules.rules]
    rows += [evidence_text(one) for one in rules.evidence]
    rows.append(f"output {', '.join(rules.outputs)}")
    return "\n".join(rows)
