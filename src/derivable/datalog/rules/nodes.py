"""Core rules. Each node's docstring shows its printed form.

A clause is a conjunction of atoms, negated atoms, filters and generators; disjunction, implication, nested
aggregates and quantifiers have become auxiliary relations, whose names begin with `#`. Expressions are in
`scalars.nodes`, rules of aggregates in `aggregates.nodes`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from derivable.core.diagnostics import Span, Written
from derivable.datalog.aggregates.nodes import AggregateRule
from derivable.datalog.scalars.nodes import NOWHERE, Apply, Const, Expr, Node, Var, walk
from derivable.datalog.syntax.nodes import Attribute
from derivable.datalog.tags.random_facts import Kind
from derivable.datalog.values.constructors import Constructor
from derivable.datalog.values.values import ValueType


@dataclass(frozen=True)
class Atom(Node):
    """`edge(x, 3, _)`: terms are variables, constants or None (a wildcard)."""

    relation: str
    terms: tuple[Var | Const | None, ...]
    span: Span = field(default=NOWHERE, compare=False, repr=False)


@dataclass(frozen=True)
class Negated(Node):
    """`not edge(x, 3)`: all variables are bound by the rest of the clause.

    leaves_out  whether it only leaves out rows that `edge` has by now, in the recursion of `edge` itself, whose result
                does not depend on whether it does
    """

    relation: str
    terms: tuple[Var | Const, ...]
    span: Span = field(default=NOWHERE, compare=False, repr=False)
    leaves_out: bool = False


@dataclass(frozen=True)
class Filter(Node):
    """`(x < 3)`: a bool expression; `(x == e)` binds x if nothing else does."""

    condition: Expr
    span: Span = field(default=NOWHERE, compare=False, repr=False)


@dataclass(frozen=True)
class Generate(Node):
    """`string_chars(s; i, _)`, `not string_find(s, "a"; _, _)`, `x in low..high`: a foreign predicate.

    The inputs are before the semicolon, the outputs after it; `types` are those of the outputs. It holds for as many
    outputs as it likes. Negated, it holds where none match. With a relation, `#count_1(k; n)`, it stands for the
    rows of that relation, which has them for the keys that are queried (`rules.keyed`).
    """

    predicate: str
    inputs: tuple[Expr, ...]
    outputs: tuple[Var | Const | None, ...]
    types: tuple[ValueType, ...]
    negated: bool = False
    span: Span = field(default=NOWHERE, compare=False, repr=False)
    relation: str | None = None


@dataclass(frozen=True)
class RuleProbability(Node):
    """`0.3::#coin_1(x, y)`: the probability of a rule, one random fact for each row of the key, which has all
    variables that the body of the rule binds. It binds nothing, and comes last.

    kind      "chance" where the tag is a truth value, 0 or 1; see `random_facts`
    parameter the number of the tunable probability that it has, if it has one
    by        the terms of the key, from the end, for each of whose values that is another; of a choice for each option
    options   of one head of a choice: the probabilities and parameters of all of them, and
    option    which one it is
    text      what it is the probability of, as it is written
    """

    name: str
    key: tuple[Expr, ...]
    probability: Expr
    kind: Kind = "tag"
    span: Span = field(default=NOWHERE, compare=False, repr=False)
    parameter: int | None = None
    options: tuple[tuple[float, int | None], ...] = ()
    option: int = 0
    text: str = field(default="", compare=False, repr=False)
    by: tuple[tuple[int, ...], ...] = ()


Literal = Atom | Negated | Filter | Generate | RuleProbability


def inputs(literal: Literal) -> set[str]:
    """The names that a literal needs and never binds: of a generator those of its inputs, if negated of its outputs."""
    if not isinstance(literal, Generate):
        return set()
    return {name for e in (*literal.inputs, *(literal.outputs if literal.negated else ())) for name in names(e)}


@dataclass(frozen=True)
class Clause:
    """`path(x, z) :- path(x, y), edge(y, z)`"""

    relation: str
    terms: tuple[Expr, ...]
    body: tuple[Literal, ...]
    span: Span = field(default=NOWHERE, compare=False, repr=False)

    @cached_property
    def dependencies(self) -> list[tuple[str, str | None]]:
        """(relation, "negation" or "aggregate" if it must be of a lower stratum, else None) of each that it reads;
        `strata.cycles` finds those whose lattice must be at its end."""
        relations: list[tuple[str, str | None]] = []
        for literal in self.body:
            if isinstance(literal, (Atom, Negated)):
                is_denied = isinstance(literal, Negated) and not literal.leaves_out
                relations.append((literal.relation, "negation" if is_denied else None))
            elif isinstance(literal, Generate) and literal.relation is not None:
                relations.append((literal.relation, "aggregate"))
        return relations

    @cached_property
    def uses(self) -> Counter[str]:
        """How often its head and body have each variable."""
        return Counter(v.name for node in (*self.terms, *self.body) for v in variables(node))

    @cached_property
    def orders(self) -> dict[tuple, list[Any]]:
        """The steps of its body, by the arguments of `literal_order.order`."""
        return {}


Rule = Clause | AggregateRule


@dataclass(frozen=True)
class Facts:
    """`digit = {0.9::(0, 3); 0.1::(0, 5)}`: tags None if certain; exclusive facts exclude each other.

    columns     [column][row]
    count       the number of facts
    tag_spans      row -> where its tag is written, of tags that are no probabilities
    parameters  row -> the number of its tunable probability
    """

    relation: str
    columns: tuple[Sequence[Any], ...]
    count: int
    tags: tuple[float | bool | None, ...] | None = None
    exclusive: bool = False
    tag_spans: Mapping[int, Span] = field(default_factory=dict, compare=False, repr=False)
    span: Span = field(default=NOWHERE, compare=False, repr=False)
    parameters: Mapping[int, int] = field(default_factory=dict)

    @property
    def rows(self) -> tuple[tuple[Any, ...], ...]:
        return tuple(zip(*self.columns)) if self.columns else ((),) * self.count

    def row(self, number: int) -> tuple[Any, ...]:
        return tuple(column[number] for column in self.columns)

    @cached_property
    def is_excessive(self) -> bool:
        """Whether they exclude each other and their probabilities add up to more than one and its rounding."""
        tags: Any = self.tags or ()
        if not self.exclusive or (total := sum(tags)) <= 1 or not all(0.0 <= tag <= 1.0 for tag in tags):
            return False
        # The rounding of the numbers that are written.
        digits = max(len(repr(float(tag)).partition(".")[2]) for tag in tags)
        return total - 1 > max(5e-3, min(0.02, len(tags) * 0.5 * 10.0**-digits)) + 1e-9


@dataclass(frozen=True)
class Parameter:
    """`?0.3::burglary()`: a probability that is learned.

    start  where that starts, None for a start that is drawn
    text   what it is the probability of, as it is written
    by     the variables for each of whose values there is one
    """

    span: Span
    start: float | None
    text: str
    by: tuple[str, ...] = ()


@dataclass(frozen=True)
class Relation:
    """`edge(usize, usize)`, `distance(usize, min f64)`

    is_input    whether it is neither declared nor defined, and has its facts from a run
    is_emptied  whether an input has the empty set of facts in the program, `rel s = {}`
    demand      `bf` of `@demand("bf")` or of `bound` and `free` columns: how it is asked, None if nothing says
    is_certain  whether its rows are certain whatever the tags of the rows that they follow from: the structure of a
                term is no random event
    is_goal     whether a run may stop once it has its tuple (`@goal`)
    attributes  the attributes that somebody else reads, such as `@file`
    lattice     the lattice of its last column, in which the values of a row's other columns are joined; None without
    keys        the relation of the keys for which it has rows, and which columns they are; None if it has all
    """

    name: str
    types: tuple[ValueType, ...]
    is_input: bool = False
    is_hidden: bool = False
    span: Span = field(default=NOWHERE, compare=False, repr=False)
    column_names: tuple[str | None, ...] = field(default=(), compare=False, repr=False)
    demand: str | None = None
    is_certain: bool = False
    is_goal: bool = False
    attributes: tuple[Attribute, ...] = ()
    is_emptied: bool = False
    lattice: str | None = None
    keys: tuple[str, tuple[int, ...]] | None = None


@dataclass(frozen=True)
class Query:
    """`query path(0, x)`: the output relation, the relation that is asked, `b` and `f` where its terms are constants
    or not (None for the whole relation)."""

    output: str
    relation: str
    pattern: str | None = None
    attributes: tuple[Attribute, ...] = ()
    span: Span = field(default=NOWHERE, compare=False, repr=False)


@dataclass(frozen=True)
class Evidence:
    """`evidence not john("Ada")`: a tuple that was observed, and whether it holds."""

    relation: str
    row: tuple[Any, ...]
    is_true: bool
    span: Span = field(default=NOWHERE, compare=False, repr=False)


@dataclass(frozen=True)
class Rules(Written):
    """The whole core program. `outputs` are the relations that a run returns, `functions` those of `syntax.Syntax`."""

    relations: Mapping[str, Relation]
    facts: tuple[Facts, ...]
    rules: tuple[Rule, ...]
    outputs: tuple[str, ...]
    text: str = field(default="", repr=False)
    source: str = "<program>"
    queries: tuple[Query, ...] = ()
    constructors: Mapping[str, Constructor] = field(default_factory=dict)
    evidence: tuple[Evidence, ...] = ()
    parameters: tuple[Parameter, ...] = ()
    functions: tuple[Any, ...] = field(default=(), compare=False, repr=False)

    @property
    def key_relations(self) -> set[str]:
        """The relations of keys, which `with_keys` has added, and which say nothing of what is true."""
        return {relation.keys[0] for relation in self.relations.values() if relation.keys is not None}


def sides(literal: Literal) -> list[tuple[Expr, Expr]]:
    """The two sides of an equation, in both orders; nothing of another literal."""
    match literal:
        case Filter(condition=Apply(operator="==", operands=(a, b))):
            return [(a, b), (b, a)]
    return []


def variables(node: Node | None) -> Iterator[Var]:
    """All variables of an expression or literal, in order of writing, repeats included."""
    return (part for part in walk(node) if isinstance(part, Var))


def names(node: Node | None) -> set[str]:
    """The names of all variables of an expression or literal."""
    return {part.name for part in walk(node) if isinstance(part, Var)}
