"""Syntax: the program as written. Each node's docstring shows its printed form.

Formulas and expressions share one node family, as they share one grammar: `p(x)` is an `Atom`, `x > 1` a `Binary`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from derivable.core.diagnostics import Span, Written
from derivable.datalog.scalars import nodes as scalars
from derivable.datalog.scalars.nodes import NOWHERE

Parameters = tuple[tuple[str | None, Any], ...]


class Group(tuple):
    """`(1, "a")` among the arguments of an attribute, where a list, `[1, "a"]`, is a plain tuple."""


@dataclass(frozen=True)
class Node(scalars.Node):
    span: Span = field(default=NOWHERE, compare=False, repr=False, kw_only=True)


class Expression(Node):
    """An expression or a formula."""


@dataclass(frozen=True)
class Constant(Expression):
    """`3`, `0.5`, `"text"`, `'c'`, `true`, `s"x"`, `t"2024-01-01"`, `d"1y5d"`; kind is "integer", "float", "text",
    "char", "bool", "symbol", "datetime" or "duration". The value of a date is a datetime in UTC,
    that of a duration a timedelta, or a Duration if it has months."""

    value: Any
    kind: str


@dataclass(frozen=True)
class Tunable(Constant):
    """`?`, `?0.3` as a tag: a probability that is learned, and where that starts; `value` is 0.5 if it does not say.
    `?0.3(x)`: one for each value of these variables."""

    has_start: bool
    by: tuple[Variable, ...] = ()


@dataclass(frozen=True)
class Variable(Expression):
    """`x`"""

    name: str


@dataclass(frozen=True)
class Wildcard(Expression):
    """`_`"""


@dataclass(frozen=True)
class Unary(Expression):
    """`(-x)`, `(!b)`"""

    operator: str
    operand: Expression


@dataclass(frozen=True)
class Binary(Expression):
    """`(a + b)`, `(x <= 9)`, `(a && b)`"""

    operator: str
    left: Expression
    right: Expression


@dataclass(frozen=True)
class Conditional(Expression):
    """`(if c then a else b)`"""

    condition: Expression
    then: Expression
    otherwise: Expression


@dataclass(frozen=True)
class Cast(Expression):
    """`(x as f32)`"""

    operand: Expression
    type_name: str


@dataclass(frozen=True)
class Tuple(Expression):
    """`(a, b)`: the left side of an aggregate or a fact; a comma conjunction in a body is a `Conjunction`."""

    items: tuple[Expression, ...]


@dataclass(frozen=True)
class Call(Expression):
    """`$name(a, b)`"""

    name: str
    arguments: tuple[Expression, ...]


@dataclass(frozen=True)
class Atom(Expression):
    """`edge(x, y)`; parameters are those of `range<usize>(0, n, i)`"""

    relation: str
    arguments: tuple[Expression, ...]
    parameters: tuple[str, ...] = ()


@dataclass(frozen=True)
class New(Expression):
    """`new Node(x, l)`: the term itself, whether it is there already or not"""

    constructor: str
    arguments: tuple[Expression, ...]


@dataclass(frozen=True)
class Case(Expression):
    """`case e is Node(x, Leaf())`"""

    subject: Expression
    pattern: Atom


@dataclass(frozen=True)
class Not(Expression):
    """`not p(x)`"""

    operand: Expression


@dataclass(frozen=True)
class Conjunction(Expression):
    """`(p(x) and q(x))`"""

    operands: tuple[Expression, ...]


@dataclass(frozen=True)
class Disjunction(Expression):
    """`(p(x) or q(x))`"""

    operands: tuple[Expression, ...]


@dataclass(frozen=True)
class Implies(Expression):
    """`(p(x) implies q(x))`"""

    condition: Expression
    conclusion: Expression


@dataclass(frozen=True)
class InRange(Expression):
    """`x in 0..k`, `x in 0..=k`"""

    variable: Expression
    low: Expression
    high: Expression
    inclusive: bool


@dataclass(frozen=True)
class Aggregate(Expression):
    """`count!<...>[a](x, y: body where k: keys(k))`, alone (`exists`, `forall`) or assigned: `n := count(x: p(x))`.

    outputs    left side of the assignment, None for a bare formula
    arguments  the variables in brackets
    bindings   the variables before the colon
    parameters pairs (name, value); the name is None for `top<3>`, the value True for `sort<desc>`
    types      pairs (variable before a colon, the type that it is written with)
    """

    operator: str
    bindings: tuple[str, ...]
    body: Expression
    outputs: tuple[Expression, ...] | None = None
    arguments: tuple[str, ...] = ()
    parameters: Parameters = ()
    discrete: bool = False
    group: tuple[str, ...] = ()
    group_body: Expression | None = None
    types: tuple[tuple[str, str], ...] = ()


class Item(Node):
    """What a program is made of."""


@dataclass(frozen=True)
class Attribute(Node):
    """`@demand("bf")`, `@file("edge.csv", header=true, keys=["a", "b"])`: pairs (name or None, value); lists are
    tuples."""

    name: str
    arguments: Parameters = ()


@dataclass(frozen=True)
class Attributed(Item):
    """An item on which attributes may stand."""

    attributes: tuple[Attribute, ...] = field(default=(), kw_only=True)


@dataclass(frozen=True)
class Column(Node):
    """`src: usize`, `bound n: i32`, `usize`, `min length: f64`"""

    type_name: str
    name: str | None = None
    adornment: str | None = None
    lattice: str | None = None


@dataclass(frozen=True)
class AliasType(Item):
    """`type Id = usize`, `type Id <: usize`"""

    name: str
    type_name: str
    is_subtype: bool = False


@dataclass(frozen=True)
class EnumType(Item):
    """`type Direction = Up | Down | Left = 7`"""

    name: str
    members: tuple[tuple[str, int | None], ...]


@dataclass(frozen=True)
class Variant(Node):
    """`Node(i32, Tree)`, `Node(value: i32, rest: Tree)`"""

    name: str
    columns: tuple[Column, ...]


@dataclass(frozen=True)
class DataType(Item):
    """`type Tree = Leaf() | Node(i32, Tree)`"""

    name: str
    variants: tuple[Variant, ...]


@dataclass(frozen=True)
class RelationType(Attributed):
    """`type edge(src: usize, dst: usize)`, `type distance(node: usize, min length: f64)`"""

    name: str
    columns: tuple[Column, ...]


@dataclass(frozen=True)
class FunctionType(Attributed):
    """`type $initials(first: String, last: String) -> String`: a function that Python has is of these types"""

    name: str
    parameters: tuple[Column, ...]
    result: str


@dataclass(frozen=True)
class ConstantItem(Item):
    """`const A: u32 = 2`"""

    name: str
    type_name: str | None
    value: Expression


@dataclass(frozen=True)
class Fact(Node):
    """`0.9::(0, 3)`, one element of a fact set"""

    arguments: tuple[Expression, ...]
    tag: Expression | None = None


@dataclass(frozen=True)
class FactSet(Attributed):
    """`rel digit = {0.9::(0, 3); 0.1::(0, 5)}`: exclusive (at most one holds) if the separator is `;`"""

    relation: str
    facts: tuple[Fact, ...]
    exclusive: bool = False


@dataclass(frozen=True)
class FactTable(Attributed):
    """`rel edge = {(0, 1), (1, 2)}` of constants only, of one kind a column, as columns: many facts take little time.

    kinds    [column] as of `Constant`
    columns  [column] the values of the rows
    tags     [row] or None
    line_starts  of the text, of which text[start:end] are the facts as they were written
    """

    relation: str
    kinds: tuple[str, ...]
    columns: tuple[Sequence[Any], ...]
    tags: tuple[float, ...] | None = None
    exclusive: bool = False
    line_starts: Any = field(default=None, compare=False, repr=False, kw_only=True)
    start: int = field(default=0, compare=False, repr=False, kw_only=True)
    end: int = field(default=0, compare=False, repr=False, kw_only=True)


@dataclass(frozen=True)
class Rule(Attributed):
    """`rel 0.8::p(x) = q(x)`; several heads: `rel {p(x), q(x)} = r(x)`; no body: a fact.

    head_tags  [head] of a choice of heads, `rel {0.3::p(x); 0.7::q(x)} = r(x)`; none if each is as likely
    """

    heads: tuple[Atom, ...]
    body: Expression | None
    tag: Expression | None = None
    exclusive_heads: bool = False
    head_tags: tuple[Expression, ...] = ()


@dataclass(frozen=True)
class ReduceRule(Attributed):
    """`rel n = count(x: p(x))`: the relation's columns are the group variables, then the outputs"""

    relation: str
    aggregate: Aggregate


@dataclass(frozen=True)
class Query(Attributed):
    """`query path`, `query path(0, x)`; arguments None for the whole relation"""

    relation: str
    arguments: tuple[Expression, ...] | None = None


@dataclass(frozen=True)
class Evidence(Item):
    """`evidence alarm()`, `evidence not john("Ada")`: what was observed of one tuple"""

    relation: str
    arguments: tuple[Expression, ...]
    is_true: bool


@dataclass(frozen=True)
class Import(Item):
    """`import "lib.scl"`"""

    path: str


@dataclass(frozen=True)
class Syntax(Written):
    """The items of one program; text and source name are there for messages.

    functions  what keeps functions that no other program may call in the table of functions
    """

    items: tuple[Item, ...]
    text: str = field(default="", repr=False)
    source: str = "<program>"
    functions: tuple[Any, ...] = field(default=(), compare=False, repr=False)
