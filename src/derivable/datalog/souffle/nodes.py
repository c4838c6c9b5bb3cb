"""Soufflé's programs as written. Each node's docstring shows its printed form."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from derivable.core.diagnostics import Span
from derivable.datalog.scalars import nodes as scalars
from derivable.datalog.scalars.nodes import NOWHERE


@dataclass(frozen=True)
class Node(scalars.Node):
    span: Span = field(default=NOWHERE, compare=False, repr=False, kw_only=True)


# Arguments


@dataclass(frozen=True)
class Argument(Node):
    """What stands in an atom or a constraint."""


@dataclass(frozen=True)
class Literal(Argument):
    """`3`, `0x1F`, `3u`, `0.5`, `"text"`; kind is "integer" (a number, unsigned or a float), "unsigned", "float" or
    "symbol"."""

    value: Any
    kind: str


@dataclass(frozen=True)
class Variable(Argument):
    """`x`"""

    name: str


@dataclass(frozen=True)
class Unnamed(Argument):
    """`_`"""


@dataclass(frozen=True)
class Nil(Argument):
    """`nil`"""


@dataclass(frozen=True)
class Counter(Argument):
    """`autoinc()`"""


@dataclass(frozen=True)
class Record(Argument):
    """`[x, y]`"""

    arguments: tuple[Argument, ...]


@dataclass(frozen=True)
class Branch(Argument):
    """`$Node(x, y)`"""

    name: str
    arguments: tuple[Argument, ...]


STRUCTURES = (Record, Branch)
# What may stand for a value of a record's type or a sum type.
TERMS = (*STRUCTURES, Nil)


@dataclass(frozen=True)
class As(Argument):
    """`as(x, T)`"""

    operand: Argument
    type_name: str


@dataclass(frozen=True)
class Functor(Argument):
    """`x + y`, `cat(x, y)`; `-x` is "neg" """

    name: str
    arguments: tuple[Argument, ...]


@dataclass(frozen=True)
class UserFunctor(Argument):
    """`@f(x)`"""

    name: str
    arguments: tuple[Argument, ...]


@dataclass(frozen=True)
class Aggregate(Argument):
    """`sum x : { p(x, _) }`; the target of `count` is None"""

    operator: str
    target: Argument | None
    body: Formula


# Formulas


@dataclass(frozen=True)
class Formula(Node):
    """What stands in a body."""


@dataclass(frozen=True)
class Atom(Formula):
    """`p(x, y)`"""

    name: str
    arguments: tuple[Argument, ...]


@dataclass(frozen=True)
class Constraint(Formula):
    """`x < y`, `match(x, y)`; the operators are `=`, `!=`, `<`, `<=`, `>`, `>=`, "match" and "contains"."""

    operator: str
    left: Argument
    right: Argument


@dataclass(frozen=True)
class Truth(Formula):
    """`true`"""

    value: bool


@dataclass(frozen=True)
class Not(Formula):
    """`!p(x)`"""

    operand: Formula


@dataclass(frozen=True)
class And(Formula):
    """`p(x), q(x)`"""

    operands: tuple[Formula, ...]


@dataclass(frozen=True)
class Or(Formula):
    """`p(x); q(x)`"""

    operands: tuple[Formula, ...]


# Items


@dataclass(frozen=True)
class Attribute(Node):
    """`x:number`"""

    name: str
    type_name: str


@dataclass(frozen=True)
class SubType(Node):
    """`.type A <: B`; `.type A = B` and `.type A = B | C` have their bases in `bases`, and `is_union`."""

    name: str
    bases: tuple[str, ...]
    is_union: bool = False


@dataclass(frozen=True)
class RecordType(Node):
    """`.type List = [head: number, tail: List]`"""

    name: str
    fields: tuple[Attribute, ...]


@dataclass(frozen=True)
class BranchType(Node):
    """`Node {left: Tree, right: Tree}`"""

    name: str
    fields: tuple[Attribute, ...]


@dataclass(frozen=True)
class SumType(Node):
    """`.type Tree = Leaf {} | Node {left: Tree, right: Tree}`"""

    name: str
    variants: tuple[BranchType, ...]


@dataclass(frozen=True)
class Relation(Node):
    """`.decl p(x:number) btree choice-domain x`

    keys  the columns of each choice-domain
    """

    name: str
    attributes: tuple[Attribute, ...]
    qualifiers: frozenset[str] = frozenset()
    keys: tuple[tuple[str, ...], ...] = ()


@dataclass(frozen=True)
class Clause(Node):
    """`p(x), q(x) :- r(x).`; without a body a fact

    more  a `fact_runs.FactRun` of the facts that follow this one
    """

    heads: tuple[Atom, ...]
    body: Formula | None = None
    more: Any = field(default=None, compare=False, repr=False, kw_only=True)


@dataclass(frozen=True)
class Subsumption(Node):
    """`p(x, a) <= p(x, b) :- b <= a.`: what the left is and the right also is, is not there."""

    less: Atom
    greater: Atom
    body: Formula


@dataclass(frozen=True)
class Directive(Node):
    """`.input p(IO=file, filename="p.txt")`; kind is "input", "output", "printsize" or "limitsize" """

    kind: str
    relation: str
    parameters: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class FunctorType(Node):
    """`.functor f(x:number, symbol):number`"""

    name: str
    parameters: tuple[str, ...]
    result: str


@dataclass(frozen=True)
class ComponentType(Node):
    """`Graph<number>`"""

    name: str
    arguments: tuple[str, ...] = ()


@dataclass(frozen=True)
class Component(Node):
    """`.comp Graph<N> : Base<N> { ... }`"""

    type: ComponentType
    bases: tuple[ComponentType, ...]
    items: tuple[Node, ...]
    overrides: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Instance(Node):
    """`.init g = Graph<number>`"""

    name: str
    type: ComponentType
