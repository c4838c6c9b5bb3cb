"""Relations that do not keep all that their rules derive: choice-domains and subsumptions.

    .decl tree(child:number, parent:number) choice-domain child
has the first parent of each child that is derived: a column with a lattice whose join is the value that is there.

    shortest(x, a) <= shortest(x, b) :- b <= a.
has the smallest value of each `x`: a column with the lattice `min`. Another subsumption is decided when all rows are
there: those that no other one subsumes stay.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from derivable.core.diagnostics import BindingError, UnsupportedError
from derivable.datalog.aggregates.lattices import FIRST
from derivable.datalog.scalars.nodes import walk
from derivable.datalog.souffle import nodes as n
from derivable.datalog.souffle.types import Types
from derivable.datalog.syntax import nodes as s


@dataclass
class Selection:
    """Which rows of a relation stay.

    facts    the relation of the facts that a run passes for it
    derived  the relation of what rules derive, of which the last column has a lattice if there is one; the relation
             itself where that column is the last one
    order    the positions of the columns there, those that are packed last
    lattice  of its last column; None where all rows are stored, and subsumed ones left out at the end
    packed   the constructor of the term that the last column has, of so many columns; None if it is one column
    choice   the columns of each key, as the aggregate takes them, where rows are chosen when all are there
    is_read  whether rules read the derived relation itself
    """

    relation: n.Relation
    derived: str
    order: tuple[int, ...]
    lattice: str | None = None
    packed: tuple[str, int] | None = None
    choice: str | None = None
    is_read: bool = False
    subsumptions: list[n.Subsumption] = field(default_factory=list)

    @property
    def is_whole(self) -> bool:
        """Whether the relation itself has the lattice, so that it needs no other one."""
        return self.derived == self.relation.name

    @property
    def facts(self) -> str:
        return self.derived if self.is_whole else f"{self.relation.name}'facts"

    def atom(self, values: tuple[Any, ...], span: n.Span, is_made: bool) -> s.Atom:
        """The atom of the derived relation with the values of all columns; a packed term is made, or taken apart."""
        parts = [values[column] for column in self.order]
        if self.packed is not None:
            constructor, width = self.packed
            rest = tuple(parts[-width:])
            term = s.New(constructor, rest, span=span) if is_made else s.Atom(constructor, rest, span=span)
            parts = [*parts[:-width], term]
        return s.Atom(self.derived, tuple(parts), span=span)


def selections(items: list[n.Node], types: Types) -> dict[str, Selection]:
    """Name -> which rows of the relation stay, of those that do not keep all."""
    by_name: dict[str, Selection] = {}
    for relation in types.relations.values():
        if relation.keys:
            by_name[relation.name] = _choice(relation, items, types)
    subsumptions: dict[str, list[n.Subsumption]] = {}
    for item in items:
        if isinstance(item, n.Subsumption):
            if item.less.name != item.greater.name:
                message = "a subsumption compares rows of one relation"
                raise types.error(UnsupportedError, message, item.span)
            types.columns(item.less.name, item.span)
            subsumptions.setdefault(item.less.name, []).append(item)
    for name, rules in subsumptions.items():
        if name in by_name:
            message = f"`{name}` has a choice-domain and a subsumption"
            raise types.error(UnsupportedError, message, rules[0].span)
        by_name[name] = _best(types.relations[name], rules, types)
    for name, (column, lattice) in _extrema_in_heads(items, types).items():
        if name in by_name:
            message = f"`{name}` has a choice-domain or a subsumption, and `{lattice}` in a head"
            raise types.error(UnsupportedError, message, types.relations[name].span)
        by_name[name] = _of_column(types.relations[name], column, lattice)
    return by_name


def _choice(relation: n.Relation, items: list[n.Node], types: Types) -> Selection:
    names = [attribute.name for attribute in relation.attributes]
    [*others, key] = relation.keys
    for one in relation.keys:
        for name in one:
            if name not in names:
                message = f"`{relation.name}` has no column `{name}`"
                raise types.error(BindingError, message, relation.span, f"it has {', '.join(names)}")
    if others:
        if relation.name in feeders(items).get(relation.name, ()):
            message = f"`{relation.name}` has {len(relation.keys)} choice-domains and depends on itself: one can"
            raise types.error(UnsupportedError, message, relation.span, "derive its rows by another relation first")
        choice = ";".join(",".join(str(names.index(name)) for name in one) for one in relation.keys)
        return Selection(relation, f"#all {relation.name}", tuple(range(len(names))), choice=choice)
    keys = [names.index(name) for name in key]
    rest = [column for column in range(len(names)) if column not in keys]
    packed = (f"rest_of_{relation.name.replace('.', '_').replace('?', '_')}", len(rest)) if len(rest) > 1 else None
    return Selection(relation, f"#chosen {relation.name}", (*keys, *rest), FIRST if rest else None, packed)


def _best(relation: n.Relation, rules: list[n.Subsumption], types: Types) -> Selection:
    width = len(relation.attributes)
    extrema = [_extremum(rule) for rule in rules]
    distinct = set(extrema)
    if None not in distinct and len(distinct) == 1:
        [(column, lattice)] = [one for one in distinct if one is not None]
        return _of_column(relation, column, lattice)
    return Selection(relation, f"#all {relation.name}", tuple(range(width)), subsumptions=rules)


def _of_column(relation: n.Relation, column: int, lattice: str) -> Selection:
    order = (*(c for c in range(len(relation.attributes)) if c != column), column)
    is_last = column == len(order) - 1
    return Selection(relation, relation.name if is_last else f"#best {relation.name}", order, lattice, is_read=True)


def is_extremum(node: n.Node) -> bool:
    """Whether this is `min(x)` or `max(x)` of FlowLog, in a head: the best value of all that are derived."""
    return isinstance(node, n.Functor) and node.name in ("min", "max") and len(node.arguments) == 1


def _extrema_in_heads(items: list[n.Node], types: Types) -> dict[str, tuple[int, str]]:
    """Relation -> (column, "min" or "max") of `p(x, min(y)) :- ...`."""
    columns: dict[str, tuple[int, str]] = {}
    for item in items:
        for head in item.heads if isinstance(item, n.Clause) else ():
            for column, argument in enumerate(head.arguments):
                if is_extremum(argument) and isinstance(argument, n.Functor):
                    types.columns(head.name, head.span)
                    if columns.setdefault(head.name, (column, argument.name)) != (column, argument.name):
                        message = f"`{head.name}` keeps the best value of two columns, or in two ways"
                        raise types.error(UnsupportedError, message, argument.span)
    return columns


def _extremum(rule: n.Subsumption) -> tuple[int, str] | None:
    """(column, "min" or "max") of a subsumption that says so; None for another."""
    less, greater, body = rule.less.arguments, rule.greater.arguments, rule.body
    if not isinstance(body, n.Constraint) or len(less) != len(greater):
        return None
    if not all(isinstance(part, n.Variable) for part in (*less, *greater, body.left, body.right)):
        return None
    differing = [column for column, (a, b) in enumerate(zip(less, greater)) if a != b]
    names = [part.name for part in less if isinstance(part, n.Variable)]
    if len(differing) != 1 or len(set(names)) != len(names):
        return None
    column = differing[0]
    sides = body.left, body.right
    if sides == (less[column], greater[column]):
        lattice_of = {"<": "max", "<=": "max", ">": "min", ">=": "min"}
    elif sides == (greater[column], less[column]):
        lattice_of = {"<": "min", "<=": "min", ">": "max", ">=": "max"}
    else:
        return None
    return (column, lattice_of[body.operator]) if body.operator in lattice_of else None


def feeders(items: list[n.Node]) -> dict[str, set[str]]:
    """Relation -> the relations that it reaches through rules: those that may depend on it."""
    edges: dict[str, set[str]] = {}
    for item in items:
        if isinstance(item, n.Clause) and item.body is not None:
            read = {part.name for part in walk(item.body) if isinstance(part, n.Atom)}
            for name in read:
                edges.setdefault(name, set()).update(head.name for head in item.heads)
    sources: dict[str, set[str]] = {}
    for name in edges:
        waiting, seen = [name], set()
        while waiting:
            for target in edges.get(waiting.pop(), ()):
                if target not in seen:
                    seen.add(target)
                    waiting.append(target)
        sources[name] = seen
    return sources


def makes_values(items: list[n.Node], names: set[str]) -> n.Clause | None:
    """A rule of these relations that computes values, so that rows may not end; None if none does."""
    for item in items:
        if isinstance(item, n.Clause) and item.body is not None and any(head.name in names for head in item.heads):
            read = {part.name for part in walk(item.body) if isinstance(part, n.Atom)}
            values = (n.Functor, n.UserFunctor, *n.STRUCTURES)
            if read & names and any(isinstance(part, values) for part in walk(item)):
                return item
    return None
