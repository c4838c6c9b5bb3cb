"""The validator of core rules, called between passes in tests."""

from __future__ import annotations

from derivable.core.diagnostics import LayoutError
from derivable.datalog.rules import nodes as r
from derivable.datalog.rules.order import order
from derivable.datalog.rules.text import literal_text, rule_text
from derivable.datalog.values import same_words


def check_rules(rules: r.Rules) -> None:
    """Raise LayoutError at the first rule that refers to an unknown relation, has a wrong arity or column type."""
    for facts in rules.facts:
        types = _types(rules, facts.relation, str(facts.relation))
        for row in facts.rows:
            if len(row) != len(types):
                raise LayoutError(f"a fact of {facts.relation} has {len(row)} values for {len(types)} columns")
        if facts.tags is not None and len(facts.tags) != len(facts.rows):
            raise LayoutError(f"{facts.relation}: {len(facts.tags)} tags for {len(facts.rows)} facts")
    for rule in rules.rules:
        place = rule_text(rule)
        types = _types(rules, rule.relation, place)
        if isinstance(rule, r.Clause):
            if not same_words([t.type for t in rule.terms], types):
                raise LayoutError(f"the head's types differ from the relation's in `{place}`")
            for literal in rule.body:
                if isinstance(literal, (r.Atom, r.Negated)):
                    columns = _types(rules, literal.relation, place)
                    found = tuple(c if t is None else t.type for t, c in zip(literal.terms, columns))
                    if len(literal.terms) != len(columns) or not same_words(found, columns):
                        raise LayoutError(f"types of `{literal_text(literal)}` differ from the relation's in `{place}`")
            order(rule, rules)
        elif isinstance(rule, r.AggregateRule):
            body = _types(rules, rule.body, place)
            if len(body) != rule.num_group + rule.num_arguments + rule.num_values:
                raise LayoutError(f"the body has {len(body)} columns in `{place}`")
        elif len(_types(rules, rule.body, place)) != len(types) + 1:
            raise LayoutError(f"a choice needs one probability column in `{place}`")
    for name in rules.outputs:
        _types(rules, name, "output")


def _types(rules: r.Rules, name: str, place: str):
    if name not in rules.relations:
        raise LayoutError(f"unknown relation {name} in `{place}`")
    return rules.relations[name].types
