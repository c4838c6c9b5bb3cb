"""Relations that are written into the rules that read them: those declared `inline` of which a rule alone does not say
what its rows are, such as `less(x, y) :- x < y.`; the others are relations like all."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from derivable.core.diagnostics import BindingError, UnsupportedError
from derivable.datalog.scalars.nodes import walk
from derivable.datalog.souffle import nodes as n
from derivable.datalog.souffle.clauses import Clause, Names, disjuncts, replaced
from derivable.datalog.souffle.types import Types


def inlined(items: list[n.Node], types: Types, names: Names) -> list[n.Node]:
    """The items without the rules of such relations.

    Raises UnsupportedError where one cannot be written into a rule.
    """
    marked = {name for name, relation in types.relations.items() if "inline" in relation.qualifiers}
    rules: dict[str, list[n.Clause]] = {}
    for item in items:
        if isinstance(item, n.Clause):
            for head in item.heads:
                if head.name in marked:
                    rules.setdefault(head.name, []).append(replace(item, heads=(head,)))
    open_ones = {name for name, rules_of in rules.items() if any(_is_open(rule, types, names) for rule in rules_of)}
    while True:
        # Who reads such a relation is such a one itself, if it is to be inlined.
        more = {
            name
            for name, rules_of in rules.items()
            if name not in open_ones and any(_reads(rule) & open_ones for rule in rules_of)
        }
        if not more:
            break
        open_ones |= more
    if not open_ones:
        return items
    inlining = _Inlining({name: rules[name] for name in open_ones}, types, names)
    nodes: list[n.Node] = []
    for item in items:
        if isinstance(item, n.Directive) and item.relation in open_ones:
            message = f"`{item.relation}` is written into other rules, and has no rows"
            raise types.error(UnsupportedError, message, item.span, "a rule that binds its variables gives it rows")
        if not isinstance(item, n.Clause):
            nodes.append(inlining.subsumption(item) if isinstance(item, n.Subsumption) else item)
            continue
        heads = tuple(head for head in item.heads if head.name not in open_ones)
        if heads:
            body = None if item.body is None else inlining.of(item.body, ())
            nodes.append(replace(item, heads=heads, body=body))
    return nodes


def _reads(rule: n.Clause) -> set[str]:
    return {part.name for part in walk(rule.body) if isinstance(part, n.Atom)}


def _is_open(rule: n.Clause, types: Types, names: Names) -> bool:
    """Whether a rule does not bind all its variables."""
    try:
        for literals in disjuncts(rule.body, types):
            Clause(rule.heads, literals, types, names, set())
    except BindingError:
        return True
    return False


class _Inlining:
    def __init__(self, rules: dict[str, list[n.Clause]], types: Types, names: Names):
        self.rules, self.types, self.names = rules, types, names

    def subsumption(self, item: n.Subsumption) -> n.Subsumption:
        return replace(item, body=self.of(item.body, ()))

    def of(self, node: Any, around: tuple[str, ...]) -> Any:
        """A formula in which atoms of such relations are the bodies of their rules.

        around  the relations that are being written
        """

        def change(part: Any) -> Any:
            if not isinstance(part, n.Atom) or part.name not in self.rules:
                return part
            if part.name in around:
                message = f"`{part.name}` is defined by itself, and cannot be written into another rule"
                raise self.types.error(UnsupportedError, message, part.span, "leave out `inline`")
            bodies = tuple(self.body(rule, part, around) for rule in self.rules[part.name])
            return bodies[0] if len(bodies) == 1 else n.Or(bodies, span=part.span)

        for part in walk(node):
            if isinstance(part, n.Not):
                self.check_negated(part.operand)
        return replaced(node, change)

    def body(self, rule: n.Clause, atom: n.Atom, around: tuple[str, ...]) -> n.Formula:
        """The body of a rule for the arguments of an atom."""
        [head] = rule.heads
        self.types.columns(atom.name, atom.span)
        if len(head.arguments) != len(atom.arguments):
            message = f"`{atom.name}` has {len(head.arguments)} columns, but is used with {len(atom.arguments)} here"
            raise self.types.error(UnsupportedError, message, atom.span)
        bindings: dict[str, n.Argument] = {}
        equations: list[n.Constraint] = []
        attributes = self.types.relations[atom.name].attributes
        for argument, parameter, attribute in zip(atom.arguments, head.arguments, attributes):
            argument, parameter = (_with_type(one, attribute.type_name) for one in (argument, parameter))
            if isinstance(argument, n.Unnamed):
                argument = n.Variable(self.names.fresh("_"), span=argument.span)
            if isinstance(parameter, n.Variable) and parameter.name not in bindings:
                bindings[parameter.name] = argument
            else:
                equations.append(n.Constraint("=", argument, parameter, span=atom.span))

        def renamed(part: Any) -> Any:
            if not isinstance(part, n.Variable):
                return part
            if part.name not in bindings:
                bindings[part.name] = n.Variable(self.names.fresh(part.name), span=part.span)
            return bindings[part.name]

        # Only the sides of the rule are renamed: the arguments of the atom are those of the rule that reads it.
        parts = [n.Constraint("=", one.left, replaced(one.right, renamed), span=one.span) for one in equations]
        body = [] if rule.body is None else [self.of(replaced(rule.body, renamed), (*around, atom.name))]
        literals = [*body, *parts]
        return n.And(tuple(literals), span=atom.span) if literals else n.Truth(True, span=atom.span)

    def check_negated(self, operand: n.Formula) -> None:
        """Refuse the negation of a relation whose rule has local variables: what it negates is that they exist."""
        for part in walk(operand):
            if isinstance(part, n.Atom) and part.name in self.rules:
                for rule in self.rules[part.name]:
                    [head] = rule.heads
                    inside = {v.name for v in walk(head) if isinstance(v, n.Variable)}
                    inner = rule.body if rule.body is not None else head
                    has_local = any(isinstance(v, n.Variable) and v.name not in inside for v in walk(inner))
                    if has_local or any(isinstance(a, n.Unnamed) for a in part.arguments):
                        message = f"`{part.name}` is negated, and its rule has variables that are not in its head"
                        hint = "leave out `inline`, and have its rule bind all variables"
                        raise self.types.error(UnsupportedError, message, part.span, hint)


def _with_type(node: n.Argument, type_name: str) -> n.Argument:
    """A record or branch with its type, which the column that it leaves said."""
    return n.As(node, type_name, span=node.span) if isinstance(node, n.TERMS) else node
