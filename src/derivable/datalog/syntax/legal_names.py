"""Names as programs may have them: translations of other languages have relations such as `#around'3` and `p(a, X)`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import chain
from typing import Any

from derivable.core.names import FreshNames
from derivable.datalog.aggregates import AGGREGATES
from derivable.datalog.foreign.standard import PREDICATES
from derivable.datalog.scalars.nodes import mapped, walk
from derivable.datalog.syntax import nodes as s
from derivable.datalog.syntax.lexer import KEYWORDS
from derivable.datalog.values.values import ENTITY, TYPE_ALIASES, TYPES

_LEGAL = re.compile(r"[a-zA-Z][a-zA-Z_0-9]*")
_RESERVED = frozenset({*KEYWORDS, *AGGREGATES, *TYPES, *TYPE_ALIASES, ENTITY.name, "evidence", "relation"})


def legal_names(names: Iterable[str], is_lowered: bool = False) -> dict[str, str]:
    """Each name -> a name that programs may have, which no other one of them gets.

    is_lowered  whether names begin with a small letter, as those of variables do in programs
    """
    names = list(dict.fromkeys(names))
    legal, fresh = {}, FreshNames(_RESERVED)
    # What is legal keeps its name.
    for name in sorted(names, key=lambda one: (_LEGAL.fullmatch(one) is None, is_lowered and not one[0].islower())):
        legal[name] = fresh(_legal(name, is_lowered))
    return legal


def _legal(name: str, is_lowered: bool) -> str:
    # By these numbers names of translations differ.
    plain = re.sub(r"['#]\d+$", "", name)
    plain = re.sub(r"[^a-zA-Z0-9]+", "_", plain) if _LEGAL.fullmatch(plain) is None else plain
    plain = plain.strip("_") if plain != name else plain
    if not plain:
        plain = "any"
    elif not plain[0].isalpha():
        plain = f"n{plain}"
    if is_lowered and plain[0].isupper():
        plain = plain.lower() if plain.isupper() else plain[0].lower() + plain[1:]
    return plain


class Renaming:
    """The items of a program with names that programs may have, and no conjunction in another one.

    relations     relation or constructor -> its name there
    is_lowered    whether variables begin with a small letter
    """

    def __init__(self, items: Iterable[s.Item], is_lowered: bool = False):
        self.items = tuple(items)
        self.is_lowered = is_lowered
        nodes = [node for item in self.items for node in walk(item)]
        self.relations: Mapping[str, str] = legal_names(_relations_of(nodes))
        self.types: Mapping[str, str] = legal_names(node.name for node in nodes if isinstance(node, s.DataType))

    def renamed(self) -> list[s.Item]:
        return [self.item(item) for item in self.items]

    def item(self, item: s.Item) -> s.Item:
        variables = legal_names(_variables_of(item), self.is_lowered)

        def of(node: Any) -> Any:
            node, changes = mapped(node, of), {}
            match node:
                case s.Variable(name=name):
                    changes["name"] = variables[name]
                case s.Aggregate():
                    for part in ("bindings", "arguments", "group"):
                        changes[part] = tuple(variables[name] for name in getattr(node, part))
                    changes["types"] = tuple((variables[name], self.type_name(t)) for name, t in node.types)
                case s.Atom(relation=name) | s.Query(relation=name) | s.Evidence(relation=name):
                    changes["relation"] = self.relations.get(name, name)
                case s.FactSet(relation=name) | s.ReduceRule(relation=name):
                    changes["relation"] = self.relations.get(name, name)
                case s.New(constructor=name):
                    changes["constructor"] = self.relations.get(name, name)
                case s.RelationType(name=name) | s.Variant(name=name):
                    columns = legal_names(c.name for c in node.columns if c.name is not None)
                    named = ((c, c.name and columns[c.name]) for c in node.columns)
                    changes["columns"] = tuple(
                        replace(c, name=column, type_name=self.type_name(c.type_name)) for c, column in named
                    )
                    changes["name"] = self.relations.get(name, name)
                case s.DataType(name=name):
                    changes["name"] = self.type_name(name)
                case s.Cast(type_name=name):
                    changes["type_name"] = self.type_name(name)
                case s.Conjunction(operands=operands):
                    parts = (one.operands if isinstance(one, s.Conjunction) else (one,) for one in operands)
                    changes["operands"] = tuple(chain.from_iterable(parts))
            return replace(node, **changes) if changes else node

        return of(item)

    def type_name(self, name: str) -> str:
        return self.types.get(name, name)


def _relations_of(nodes: list[Any]) -> list[str]:
    """The names of relations and constructors, which are of one kind where they are used."""
    written: dict[str, None] = {}
    read: dict[str, None] = {}
    for node in nodes:
        match node:
            case s.RelationType(name=name) | s.Variant(name=name):
                written[name] = None
            case s.FactSet(relation=name) | s.ReduceRule(relation=name):
                written[name] = None
            case s.Rule(heads=heads):
                written |= dict.fromkeys(head.relation for head in heads)
            case s.Atom(relation=name):
                read[name] = None
    return [*written, *(name for name in read if name not in written and name not in PREDICATES)]


def _variables_of(item: s.Item) -> list[str]:
    variables: dict[str, None] = {}
    for node in walk(item):
        match node:
            case s.Variable(name=name):
                variables[name] = None
            case s.Aggregate():
                names = (*node.bindings, *node.arguments, *node.group, *(name for name, _ in node.types))
                variables |= dict.fromkeys(names)
    return list(variables)
