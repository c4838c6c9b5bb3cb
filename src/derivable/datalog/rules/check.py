"""The validator of core rules, called between passes in tests."""

from __future__ import annotations

from typing import Any

from derivable.core.diagnostics import LayoutError
from derivable.datalog.foreign.standard import PREDICATES
from derivable.datalog.rules import nodes as r
from derivable.datalog.rules.literal_order import order
from derivable.datalog.rules.text import literal_text, rule_text
from derivable.datalog.values.values import F64, ValueType, same_words


def check_rules(rules: r.Rules) -> None:
    """Raise LayoutError at the first rule that refers to an unknown relation, has a wrong arity or column type."""
    for facts in rules.facts:
        types = _types(rules, facts.relation, str(facts.relation))
        if len(facts.columns) != len(types) or any(len(column) != facts.count for column in facts.columns):
            sizes = [*map(len, facts.columns)]
            raise LayoutError(f"{facts.count} facts of {facts.relation} have {sizes} values for {len(types)} columns")
        if facts.tags is not None and len(facts.tags) != facts.count:
            raise LayoutError(f"{facts.relation}: {len(facts.tags)} tags for {facts.count} facts")
    for rule in rules.rules:
        shown = rule_text(rule)
        types = _types(rules, rule.relation, shown)
        if isinstance(rule, r.Clause):
            if not same_words([t.type for t in rule.terms], types):
                raise LayoutError(f"the head's types differ from the relation's in `{shown}`")
            for literal in rule.body:
                if isinstance(literal, (r.Atom, r.Negated)):
                    columns = _types(rules, literal.relation, shown)
                    term_types = tuple(c if t is None else t.type for t, c in zip(literal.terms, columns))
                    if len(literal.terms) != len(columns) or not same_words(term_types, columns):
                        raise LayoutError(f"types of `{literal_text(literal)}` differ from the relation's in `{shown}`")
                elif isinstance(literal, r.Generate):
                    check_generator(literal, literal_text(literal))
                elif isinstance(literal, r.RuleProbability) and literal.probability.type != F64:
                    raise LayoutError(f"the probability has type {literal.probability.type} in `{shown}`")
            order(rule, rules)
        else:
            body = _types(rules, rule.body, shown)
            if len(body) != rule.num_group + rule.num_arguments + rule.num_values:
                raise LayoutError(f"the body has {len(body)} columns in `{shown}`")
    for name in rules.outputs:
        _types(rules, name, "output")


def check_generator(node: Any, shown: str) -> None:
    """Raise LayoutError if a generator, of core rules or of RAM, does not fit the signature of its predicate."""
    if node.relation is not None:
        return
    if node.predicate not in PREDICATES:
        raise LayoutError(f"there is no foreign predicate {node.predicate} in `{shown}`")
    wanted = PREDICATES[node.predicate].signature
    types = [e.type for e in node.inputs]
    if len(types) != len(wanted.parameters) or not len(node.outputs) == len(node.types) == len(wanted.results):
        raise LayoutError(f"{len(types)} inputs and {len(node.outputs)} outputs of {node.predicate} in `{shown}`")
    output_types = [t if output is None else output.type for output, t in zip(node.outputs, node.types)]
    kinds = zip((*types, *output_types), (*wanted.parameters, *wanted.results))
    if not same_words(output_types, node.types) or any(isinstance(kind, ValueType) and kind != t for t, kind in kinds):
        raise LayoutError(f"the types of `{shown}` differ from {node.predicate}{wanted}")


def _types(rules: r.Rules, name: str, shown: str):
    if name not in rules.relations:
        raise LayoutError(f"unknown relation {name} in `{shown}`")
    return rules.relations[name].types
