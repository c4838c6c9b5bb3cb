"""The variables of formulas."""

from __future__ import annotations

from collections.abc import Container
from typing import Any

from derivable.datalog.foreign.standard import PREDICATES
from derivable.datalog.scalars.nodes import children
from derivable.datalog.syntax import nodes as s


def variables_of(node: Any) -> list[str]:
    """Names of variables of a formula, repeats included, without those local to aggregates inside."""
    if isinstance(node, s.Variable):
        return [node.name]
    if isinstance(node, s.Aggregate):
        local = {*node.bindings, *node.arguments}
        inner = [n for part in (node.body, node.group_body) if part is not None for n in variables_of(part)]
        outputs = [n for o in node.outputs or () for n in variables_of(o)]
        return outputs + [n for n in inner if n not in local] + [n for n in node.group if n not in local]
    return [n for child in children(node) for n in variables_of(child)]


def bound_in(disjunct: list[tuple[Any, bool]], relations: Container[str]) -> set[str]:
    """Variables in the positive atoms and patterns of one disjunct, and in the outputs of its foreign predicates.

    relations  the names of the program's; an atom of another name is a foreign predicate's
    """
    bound: set[str] = set()
    for leaf, positive in disjunct:
        if positive and isinstance(leaf, s.Atom):
            inputs = 0 if leaf.relation in relations else len(PREDICATES[leaf.relation].signature.parameters)
            bound.update(name for argument in leaf.arguments[inputs:] for name in variables_of(argument))
        elif positive and isinstance(leaf, s.Case):
            bound.update(variables_of(leaf))
        elif positive and isinstance(leaf, s.InRange):
            bound.update(variables_of(leaf.variable))
    return bound
