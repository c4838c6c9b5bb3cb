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


def is_made(node: Any, made: Container[str]) -> bool:
    """Whether an expression is a term that a body makes, of which these variables are some."""
    if isinstance(node, s.Conditional):
        return is_made(node.then, made) or is_made(node.otherwise, made)
    return isinstance(node, s.New) or (isinstance(node, s.Variable) and node.name in made)


def made_terms(binders: list[Any]) -> set[str]:
    """The variables of terms, and of their parts, that equations of one body make, and no atom of a relation has."""
    makers = [leaf for leaf in binders if isinstance(leaf, (s.Binary, s.Case))]
    made: set[str] = set()
    if not makers:
        return made
    there = {name for leaf in binders if isinstance(leaf, s.Atom) for name in variables_of(leaf)}
    while True:
        before = len(made)
        for leaf in makers:
            names: list[str] = []
            if isinstance(leaf, s.Binary):
                for side, other in ((leaf.left, leaf.right), (leaf.right, leaf.left)):
                    if is_made(other, made) and isinstance(side, (s.Variable, s.Atom)):
                        names += variables_of(side)
            elif is_made(leaf.subject, made):
                names += variables_of(leaf.pattern)
            made.update(name for name in names if name not in there)
        if len(made) == before:
            return made


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
