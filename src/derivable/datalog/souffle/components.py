"""Components are flattened: what an instance declares has the name of the instance before its name, `g.edge`.

A name in a component is that of its declarations and those of its bases, else of the instance around it, and so on
to the program's. Parameters stand for types, or for components.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from derivable.core.diagnostics import ParseError
from derivable.core.registry import suggestion
from derivable.datalog.scalars.nodes import mapped, walk
from derivable.datalog.souffle import nodes as n
from derivable.datalog.souffle.lexer import SourceText

PRIMITIVES = ("number", "unsigned", "float", "symbol")
# Instances within instances.
_DEPTH = 100
# Items of all instances.
_MOST = 1_000_000


@dataclass
class Scope:
    """The names of the program, or of one instance.

    prefix      what stands before the names of its declarations, `g.`
    around      the scope of the instance in which this one is
    components  name -> the component, and the parameters of the component that declares it
    """

    prefix: str = ""
    around: Scope | None = None
    relations: set[str] = field(default_factory=set)
    types: set[str] = field(default_factory=set)
    instances: dict[str, Scope] = field(default_factory=dict)
    components: dict[str, tuple[n.Component, Mapping[str, str]]] = field(default_factory=dict)
    depth: int = 0

    def component(self, name: str) -> tuple[n.Component, Mapping[str, str]] | None:
        component = self.components.get(name)
        return component or (self.around.component(name) if self.around is not None else None)

    def known_components(self) -> list[str]:
        return [*self.components, *(self.around.known_components() if self.around else [])]

    def full_name(self, name: str, kind: str) -> str:
        """The name of a relation or type in the flat program; an unknown one stays as it is."""
        first, _, rest = name.partition(".")
        scope: Scope | None = self
        while scope is not None:
            if rest and first in scope.instances:
                return scope.instances[first].full_inner(rest)
            if not rest and name in getattr(scope, kind):
                return scope.prefix + name
            scope = scope.around
        return name

    def full_inner(self, name: str) -> str:
        """The name of what is declared in this instance, or in one of it."""
        first, _, rest = name.partition(".")
        if rest and first in self.instances:
            return self.instances[first].full_inner(rest)
        return self.prefix + name


@dataclass(frozen=True)
class Part:
    """The items of a component or of a base of it, with what its parameters stand for, and its dropped relations."""

    items: tuple[n.Node, ...]
    binding: Mapping[str, str]
    dropped: frozenset[str]


def flattened(items: list[n.Node], file: SourceText) -> list[n.Node]:
    """The items without components and instances. Raises ParseError for unknown ones and those without end."""
    return _Flattening(file).run(items)


class _Flattening:
    def __init__(self, file: SourceText):
        self.file = file
        self.made = 0

    def error(self, message: str, span: n.Span, hint: str | None = None) -> ParseError:
        return self.file.error(message, span, hint)

    def run(self, items: list[n.Node]) -> list[n.Node]:
        scope = Scope()
        return self.expanded([Part(tuple(items), {}, frozenset())], scope)

    def expanded(self, parts: list[Part], scope: Scope) -> list[n.Node]:
        """The items of a scope and of its instances."""
        for part in parts:
            for item in part.items:
                self.declare(item, scope, part.binding)
        inner: dict[int, list[n.Node]] = {}
        for part in parts:
            for item in part.items:
                if isinstance(item, n.Instance):
                    inner[id(item)] = self.instance(item, scope, part.binding)
        items: list[n.Node] = []
        for part in parts:
            for item in part.items:
                if isinstance(item, n.Instance):
                    items += inner[id(item)]
                elif not isinstance(item, n.Component) and not _is_dropped(item, part.dropped):
                    items.append(self.renamed(item, scope, part.binding))
                    self.made += 1
        if self.made > _MOST:
            raise ParseError(f"components have more than {_MOST:,} items", source=self.file.source)
        return items

    def declare(self, item: n.Node, scope: Scope, binding: Mapping[str, str]) -> None:
        match item:
            case n.Relation(name=name):
                if name in scope.relations and scope.prefix:
                    hint = "a relation of a base is declared there; `.override` replaces its rules"
                    raise self.error(f"`{name}` is declared twice in this component", item.span, hint)
                scope.relations.add(name)
            case n.SubType(name=name) | n.RecordType(name=name) | n.SumType(name=name):
                scope.types.add(name)
            case n.Component(type=component_type):
                scope.components[component_type.name] = item, binding

    def instance(self, item: n.Instance, scope: Scope, binding: Mapping[str, str]) -> list[n.Node]:
        if item.name in scope.instances:
            raise self.error(f"there are two instances `{item.name}`", item.span, "give one another name")
        if scope.depth >= _DEPTH:
            raise self.error("an instance contains another one without end", item.span)
        inner = Scope(f"{scope.prefix}{item.name}.", scope, depth=scope.depth + 1)
        scope.instances[item.name] = inner
        return self.expanded(self.parts(item.type, scope, binding, frozenset(), ()), inner)

    def parts(
        self,
        wanted: n.ComponentType,
        scope: Scope,
        binding: Mapping[str, str],
        overridden: frozenset[str],
        below: tuple[n.Component, ...],
    ) -> list[Part]:
        """The parts of a component and of its bases, the bases first."""
        name = binding.get(wanted.name, wanted.name)
        scope_of_base = scope.component(name)
        # A component may be declared in one of those that have it as a base.
        for component in below:
            inner = {c.type.name: c for c in component.items if isinstance(c, n.Component)}
            if scope_of_base is None and name in inner:
                scope_of_base = inner[name], binding
        if scope_of_base is None:
            hint = suggestion(name, scope.known_components(), f"declare it: `.comp {name} {{ ... }}`")
            raise self.error(f"unknown component `{name}`", wanted.span, hint)
        component, around = scope_of_base
        if component in below:
            raise self.error(f"the component `{name}` is a base of itself", component.span)
        parameters = component.type.arguments
        if len(parameters) != len(wanted.arguments):
            message = f"`{name}` has {len(parameters)} parameters, {len(wanted.arguments)} given"
            raise self.error(message, wanted.span)
        arguments = [binding.get(a, scope.full_name(a, "types")) for a in wanted.arguments]
        binding_inside = {**around, **dict(zip(parameters, arguments))}
        made: list[Part] = []
        for base in component.bases:
            made += self.parts(base, scope, binding_inside, overridden | component.overrides, (*below, component))
        for relation in component.items:
            if not isinstance(relation, n.Relation) or relation.name not in overridden:
                continue
            if "overridable" not in relation.qualifiers:
                hint = f"declare it so: `.decl {relation.name}(...) overridable`"
                raise self.error(f"`{relation.name}` is overridden, and not overridable", relation.span, hint)
        return [*made, Part(component.items, binding_inside, overridden)]

    # Names

    def renamed(self, node: Any, scope: Scope, binding: Mapping[str, str]) -> Any:
        """A node whose names are those of the flat program."""

        def type_name(name: str) -> str:
            return name if name in PRIMITIVES else binding.get(name) or scope.full_name(name, "types")

        def relation(name: str) -> str:
            return scope.full_name(name, "relations")

        def of(value: Any) -> Any:
            value, changes = mapped(value, of), {}
            match value:
                case n.Atom(name=name):
                    changes["name"] = relation(name)
                case n.Relation(name=name) | n.RecordType(name=name) | n.SumType(name=name):
                    changes["name"] = scope.prefix + name
                case n.SubType(name=name, bases=bases):
                    changes |= {"name": scope.prefix + name, "bases": tuple(map(type_name, bases))}
                case n.Directive(relation=name):
                    changes["relation"] = relation(name)
                case n.Attribute(type_name=name) | n.As(type_name=name):
                    changes["type_name"] = type_name(name)
                case n.FunctorType(parameters=parameters, result=result):
                    changes |= {"parameters": tuple(map(type_name, parameters)), "result": type_name(result)}
            return replace(value, **changes) if changes else value

        return of(node) if scope.prefix or _has_dots(node) or binding else node


def _has_dots(node: Any) -> bool:
    """Whether a node names something in an instance."""
    for inner in walk(node):
        names = [getattr(inner, one, None) for one in ("name", "type_name", "relation", "result")]
        names += [*getattr(inner, "bases", ()), *getattr(inner, "parameters", ())]
        if any(isinstance(name, str) and "." in name for name in names):
            return True
    return False


def _is_dropped(item: n.Node, dropped: frozenset[str]) -> bool:
    """Whether an item is a rule or fact of a relation that a component overrides."""
    return isinstance(item, n.Clause) and any(head.name in dropped for head in item.heads)
