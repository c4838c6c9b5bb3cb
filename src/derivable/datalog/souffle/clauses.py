"""One clause at a time: disjunctions are taken apart, each aggregate, range and counter gets a
variable, and every variable is seen to be bound."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from derivable.core.diagnostics import BindingError, UnsupportedError
from derivable.datalog.scalars.nodes import children, mapped, walk
from derivable.datalog.souffle import nodes as n
from derivable.datalog.souffle.types import ClauseTypes, Types

_NEGATED = {"=": "!=", "!=": "=", "<": ">=", ">=": "<", ">": "<=", "<=": ">"}
# Disjuncts of one body.
_MOST = 10_000


def disjuncts(formula: n.Formula | None, types: Types) -> list[list[n.Formula]]:
    """The conjunctions of which one must hold; negations stand on atoms and on `match` and `contains`."""
    if formula is None:
        return [[]]

    def of(node: n.Formula, is_true: bool) -> list[list[n.Formula]]:
        match node:
            case n.Not(operand=operand):
                return of(operand, not is_true)
            case n.Truth(value=value):
                return [[]] if value == is_true else []
            case n.And(operands=operands) | n.Or(operands=operands):
                parts = [of(operand, is_true) for operand in operands]
                if isinstance(node, n.And) != is_true:
                    return [one for part in parts for one in part]
                bodies: list[list[n.Formula]] = [[]]
                for part in parts:
                    bodies = [[*left, *right] for left in bodies for right in part]
                    if len(bodies) > _MOST:
                        hint = "name a part of it: a relation with a rule for each alternative"
                        message = f"this body has more than {_MOST:,} alternatives"
                        raise types.error(UnsupportedError, message, node.span, hint)
                return bodies
            case n.Constraint(operator=operator) if not is_true and operator in _NEGATED:
                return [[replace(node, operator=_NEGATED[operator])]]
        return [[node if is_true else n.Not(node, span=node.span)]]

    return of(formula, True)


def replaced(node: Any, change: Any) -> Any:
    """A node whose parts, from the inside out, are what a function makes of them."""
    return change(mapped(node, lambda part: replaced(part, change)))


def variables_outside(nodes: Iterable[n.Node]) -> dict[str, n.Variable]:
    """The variables in nodes and not in an aggregate of them, with their first use."""
    variables: dict[str, n.Variable] = {}

    def look(node: n.Node) -> None:
        if isinstance(node, n.Variable):
            variables.setdefault(node.name, node)
        elif not isinstance(node, n.Aggregate):
            for child in children(node):
                look(child)

    for node in nodes:
        look(node)
    return variables


@dataclass
class Bound:
    """`v = sum x : {...}`, `v = range(1, x)`, `v = autoinc()`: what has a value that is no expression.

    used  the variables from around that an aggregate has
    """

    variable: n.Variable
    value: n.Argument
    used: tuple[str, ...] = ()


class Clause:
    """One conjunction with its heads (or with the target of an aggregate), whose variables are all bound.

    heads     the atoms or arguments that use it
    literals  atoms, constraints and negations without aggregates in them, in an order in which each has what it needs
    outer     variables that are bound around an aggregate
    known     their types
    """

    def __init__(
        self,
        heads: Iterable[n.Node],
        literals: list[n.Formula],
        types: Types,
        names: Names,
        outer: set[str],
        known: Mapping[str, str] | None = None,
    ):
        self.types, self.names, self.outer = types, names, outer
        # Of an aggregate: the relation that says what the variables from around are, and which columns it has.
        self.outer_atom: tuple[str, tuple[str, ...]] | None = None
        heads = list(heads)
        around = set(variables_outside([*heads, *literals])) | outer
        self.extra: list[Bound] = []
        self.heads = [self.without_values(head, around) for head in heads]
        self.literals: list[n.Formula | Bound] = [self.without_values(literal, around) for literal in literals]
        self.literals += self.extra
        self.bound = set(outer)
        self.order()
        formulas = [n.Constraint("=", b.variable, b.value) if isinstance(b, Bound) else b for b in self.literals]
        self.typed = ClauseTypes(types, [*self.heads, *formulas], known)

    def without_values(self, node: Any, around: set[str]) -> Any:
        """A node with variables for the aggregates, ranges and counters in it."""
        if isinstance(node, n.Aggregate):
            return self.named(self.with_fresh_locals(node, around), around)
        node = mapped(node, lambda part: self.without_values(part, around))
        if isinstance(node, n.Counter) or (isinstance(node, n.Functor) and node.name == "range"):
            return self.named(node, around)
        return node

    def named(self, value: n.Argument, around: set[str]) -> n.Variable:
        variable = n.Variable(self.names.fresh("v"), span=value.span)
        used = tuple(name for name in variables_in(value) if name in around)
        self.extra.append(Bound(variable, value, used))
        return variable

    def with_fresh_locals(self, node: n.Aggregate, around: set[str]) -> n.Aggregate:
        """An aggregate whose local variables have names that nothing else has. Those of its target are local."""
        target = () if node.target is None else variables_outside([node.target])
        fresh_names = {
            name: self.names.fresh(name) for name in _local_variables(node) if name not in around or name in target
        }

        def change(part: Any) -> Any:
            return (
                replace(part, name=fresh_names[part.name])
                if isinstance(part, n.Variable) and part.name in fresh_names
                else part
            )

        return replaced(node, change) if fresh_names else node

    # What binds what

    def order(self) -> None:
        waiting, done = list(self.literals), []
        while waiting:
            ready, rest = [], []
            for literal in waiting:
                (ready if self.binds(literal) else rest).append(literal)
            if not ready:
                index = next((i for i, one in enumerate(waiting) if self.has_witnesses(one)), None)
                if index is None:
                    break
                waiting[index : index + 1] = self.with_witnesses(waiting[index])
                continue
            done += ready
            waiting = rest
        # What an aggregate lacks is why what uses its value lacks that.
        for literal in sorted((*done, *waiting), key=lambda one: not isinstance(one, Bound)):
            self.check(literal)
        for head in self.heads:
            self.check(head)
        self.literals = [*done, *waiting]

    def binds(self, literal: n.Formula | Bound) -> bool:
        """Whether a literal has what it needs; its variables are then bound."""
        match literal:
            case n.Atom(arguments=arguments):
                for argument in arguments:
                    self.bound.update(patterns_in(argument))
                return True
            case Bound(variable=variable, value=value, used=used):
                needed = used if isinstance(value, n.Aggregate) else variables_in(value)
                if isinstance(value, n.Counter) or self.bound.issuperset(needed):
                    self.bound.add(variable.name)
                    return True
                return False
            case n.Constraint(operator="=", left=left, right=right):
                for a, b in ((left, right), (right, left)):
                    if is_pattern(a) and self.bound.issuperset(variables_in(b)) and not has_unnamed(b):
                        self.bound.update(patterns_in(a))
                        return True
        return self.bound.issuperset(variables_in(literal))

    def has_witnesses(self, literal: n.Formula | Bound) -> bool:
        """Whether nothing but the body of a minimum or maximum binds some of its variables that are used outside."""
        if not isinstance(literal, Bound) or not isinstance(literal.value, n.Aggregate) or self.outer:
            return False
        is_extremum = literal.value.operator in ("min", "max")
        return is_extremum and not self.bound.issuperset(literal.used)

    def with_witnesses(self, literal: Any) -> list[n.Formula | Bound]:
        """`v = min x : { p(w, x) }` with `w` bound by it alone: `v = min x : { p(w', x) }, p(w, v)`."""
        value, unbound = literal.value, [name for name in literal.used if name not in self.bound]
        inner = {name: self.names.fresh(name) for name in unbound}
        copied = {name: self.names.fresh(name) for name in _local_variables(value) if name not in literal.used}

        def renamed(node: Any, names: dict[str, str]) -> Any:
            def change(part: Any) -> Any:
                is_renamed = isinstance(part, n.Variable) and part.name in names
                return replace(part, name=names[part.name]) if is_renamed else part

            return replaced(node, change)

        used = tuple(name for name in literal.used if name in self.bound)
        folded = Bound(literal.variable, renamed(value, inner), used)
        [body] = disjuncts(value.body, self.types)[:1] or [[]]
        copies = [self.without_values(renamed(part, copied), self.bound | set(unbound)) for part in body]
        equation = n.Constraint("=", literal.variable, renamed(value.target, copied), span=value.span)
        return [folded, *copies, equation]

    def without_aggregates(self, literals: list[n.Formula | Bound]) -> tuple[list[n.Formula | Bound], set[str]]:
        """The literals that have what they need if there are no aggregates and counters, and what they bind."""
        before, self.bound = self.bound, set(self.outer)
        folded = n.Aggregate, n.Counter
        plain = [one for one in literals if not (isinstance(one, Bound) and isinstance(one.value, folded))]
        binding = [one for one in plain if self.binds(one)]
        bound, self.bound = self.bound, before
        return binding, bound

    def check(self, node: n.Formula | Bound | n.Node) -> None:
        if isinstance(node, Bound):
            for part in walk(node.value):
                if isinstance(part, n.Variable) and part.name in node.used and part.name not in self.bound:
                    hint = "what is bound in an aggregate is not bound outside it; bind it by an atom of the rule too"
                    message = f"`{part.name}` is used outside the aggregate, and bound only in it"
                    raise self.types.error(BindingError, message, part.span, hint)
                if isinstance(part, n.Variable) and not isinstance(node.value, n.Aggregate):
                    self.check_variable(part)
            return
        for part in walk(node):
            if isinstance(part, n.Variable):
                self.check_variable(part)
        positive = node.operand if isinstance(node, n.Not) else node
        if not isinstance(positive, n.Atom) and has_unnamed(positive):
            sides = (node.left, node.right) if isinstance(node, n.Constraint) and node.operator == "=" else ()
            if not any(map(_is_structure, sides)):
                hint = "give it a name, and bind it by an atom"
                raise self.types.error(BindingError, "`_` has no value here", node.span, hint)

    def check_variable(self, variable: n.Variable) -> None:
        if variable.name not in self.bound:
            name = self.names.written(variable.name)
            hint = f"use `{name}` in an atom of the body that is not negated"
            raise self.types.error(BindingError, f"the variable `{name}` is not bound", variable.span, hint)


class Names:
    """Names of variables and relations that a program does not have."""

    def __init__(self) -> None:
        self.number = 0
        self.origin: dict[str, str] = {}

    def fresh(self, stem: str) -> str:
        self.number += 1
        stem = self.origin.get(stem, stem)
        name = f"{stem}'{self.number}"
        self.origin[name] = stem
        return name

    def written(self, name: str) -> str:
        return self.origin.get(name, name)


def _local_variables(node: n.Aggregate) -> Iterator[str]:
    parts = [node.body] if node.target is None else [node.target, node.body]
    yield from variables_outside(parts)


def variables_in(node: n.Node) -> list[str]:
    """The names of all variables in a node."""
    return [part.name for part in walk(node) if isinstance(part, n.Variable)]


def is_pattern(node: n.Argument) -> bool:
    """Whether an argument binds variables where its value is known."""
    return isinstance(node, (n.Variable, *n.STRUCTURES)) or (isinstance(node, n.As) and is_pattern(node.operand))


def _is_structure(node: n.Argument) -> bool:
    return isinstance(node, n.STRUCTURES)


def patterns_in(node: n.Argument) -> Iterator[str]:
    """The variables that an argument binds where its value is known."""
    match node:
        case n.Variable(name=name):
            yield name
        case n.Record(arguments=arguments) | n.Branch(arguments=arguments):
            for argument in arguments:
                yield from patterns_in(argument)
        case n.As(operand=operand):
            yield from patterns_in(operand)


def has_unnamed(node: n.Node) -> bool:
    return any(isinstance(part, n.Unnamed) for part in walk(node))
