"""Clauses and goals: what the terms of a program mean, before anything is known about types and modes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from derivable.core.diagnostics import Span, UnsupportedError
from derivable.datalog.problog.terms import Compound, Facts, Term, Var, variables
from derivable.datalog.scalars.nodes import NOWHERE, Node, children


@dataclass(frozen=True)
class Goal(Node):
    span: Span = field(default=NOWHERE, compare=False, repr=False, kw_only=True)


@dataclass(frozen=True)
class Call(Goal):
    """A goal of a predicate that clauses define."""

    atom: Compound


@dataclass(frozen=True)
class And(Goal):
    goals: tuple[Goal, ...]


@dataclass(frozen=True)
class Or(Goal):
    goals: tuple[Goal, ...]


@dataclass(frozen=True)
class Negation(Goal):
    goal: Goal


@dataclass(frozen=True)
class Unify(Goal):
    left: Term
    right: Term


@dataclass(frozen=True)
class Differ(Goal):
    """`X \\= Y`, `X \\== Y`, and with `same` `X == Y`: both sides are ground."""

    left: Term
    right: Term
    same: bool = False


@dataclass(frozen=True)
class Compare(Goal):
    """`X =< Y + 1`; the operator is one of this library's language."""

    operator: str
    left: Term
    right: Term


@dataclass(frozen=True)
class Is(Goal):
    result: Term
    expression: Term


@dataclass(frozen=True)
class Between(Goal):
    low: Term
    high: Term
    value: Term


@dataclass(frozen=True)
class Total(Goal):
    """`aggregate_all(count, G, N)`, and `sum(E)`, `max(E)`, `min(E)` instead of `count`."""

    operator: str
    expression: Term | None
    goal: Goal
    result: Term


@dataclass(frozen=True)
class Clause:
    """Heads with their probabilities, None for a head without one, and a body.

    number  of the clause in the program: its variables are local to it
    more    the facts that follow this one and are like it
    """

    heads: tuple[tuple[Term | None, Compound], ...]
    body: Goal
    span: Span
    number: int
    more: Facts | None = field(default=None, compare=False, repr=False)

    @property
    def is_idle(self) -> bool:
        """Whether it never holds, as a goal of it fails: then what it leaves unbound is of no account."""
        return Or(()) in (self.body.goals if isinstance(self.body, And) else (self.body,))


@dataclass(frozen=True)
class Query:
    atom: Compound
    body: Goal
    span: Span
    number: int


@dataclass(frozen=True)
class Observation:
    atom: Compound
    is_true: bool
    span: Span
    number: int


@dataclass
class Source:
    """All that a program says.

    refused  the predicates of clauses whose bodies are not read, and why: an error if something calls them
    """

    clauses: list[Clause] = field(default_factory=list)
    queries: list[Query] = field(default_factory=list)
    evidence: list[Observation] = field(default_factory=list)
    refused: list[tuple[list[tuple[str, int]], UnsupportedError]] = field(default_factory=list)


TRUE = And(())


def terms_of(goal: Goal) -> list[Term]:
    """The terms of a goal, not those of goals in it."""
    return [part for part in children(goal) if isinstance(part, Term)]


def goals_of(goal: Goal) -> list[Goal]:
    """The goals in a goal."""
    return [part for part in children(goal) if isinstance(part, Goal)]


def flow(goal: Goal) -> tuple[tuple[Term, ...], tuple[Term, ...]]:
    """(the terms that have values before a goal is called, those that have one by it) of arithmetic and comparisons."""
    match goal:
        case Is(result=result, expression=expression):
            return (expression,), (result,)
        case Between(low=low, high=high, value=value):
            return (low, high), (value,)
        case Compare(left=left, right=right) | Differ(left=left, right=right):
            return (left, right), ()
    raise TypeError(f"no arithmetic and no comparison: {goal!r}")


def walk(goal: Goal) -> Iterator[Goal]:
    yield goal
    for inside in goals_of(goal):
        yield from walk(inside)


def names_in(goal: Goal) -> dict[str, Var]:
    """The variables of a goal and of those in it."""
    names: dict[str, Var] = {}
    for part in walk(goal):
        for name, var in variables(*terms_of(part)).items():
            names.setdefault(name, var)
    return names


def visible_names(goal: Goal) -> dict[str, Var]:
    """The variables of a goal but those that occur inside negations and aggregates alone."""
    match goal:
        case Negation():
            return {}
        case And() | Or():
            names: dict[str, Var] = {}
            for inside in goals_of(goal):
                names = {**visible_names(inside), **names}
            return names
        case Total(result=result):
            return variables(result)
    return variables(*terms_of(goal))
