"""What the kernel of a query does: a plan of steps without names."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from derivable.algebra.expr.nodes import Argument, Expr, in_order
from derivable.algebra.semiring import TypedSemiring
from derivable.datalog.kernels.row_sets import SetForm

Term = Expr
# The factor that changes no product.
ONE = 1


@dataclass(frozen=True)
class Layout:
    """How a table holds its rows: columns, type of the log, and its sets, None for one hash of row numbers."""

    width: int
    dtype: str
    sets: SetForm | None


@dataclass(frozen=True)
class Rows:
    """The driver: rows `i` .. `stop` of the log, or of a list of row numbers.

    checks   (column, term): what rows must hold
    repeats  pairs of columns that must be equal
    takes    (column, register)
    """

    layout: Layout
    is_listed: bool
    checks: tuple[tuple[int, Term], ...]
    repeats: tuple[tuple[int, int], ...]
    takes: tuple[tuple[int, Argument], ...]


@dataclass(frozen=True)
class Match:
    """A join: the rows of an index, "dense", "chain", "range" or "all", with key columns like the terms.

    only_exists  whether there is one is all that matters
    is_stamped   only rows of older rounds count
    within       of a range, (comparison with it, bound): where rows with these keys are in the order of a column
    """

    layout: Layout
    index: str
    keys: tuple[tuple[int, Term], ...]
    repeats: tuple[tuple[int, int], ...]
    takes: tuple[tuple[int, Argument], ...]
    only_exists: bool
    is_stamped: bool
    within: tuple[tuple[str, Expr], ...] = ()


@dataclass(frozen=True)
class Probe:
    """A join or a difference with all columns bound: is there such a row?

    certain_only  of a difference: a row counts if its tag is the node that is always true
    """

    layout: Layout
    terms: tuple[Term, ...]
    negated: bool
    is_stamped: bool
    certain_only: bool


@dataclass(frozen=True)
class Intersect:
    """A join: the values that an atom has for one variable below its keys, by a trie, "dense" or "hash".

    Such steps follow one another; what their atoms have in common is bound.

    count     how many there are, in the first of them
    register  of the variable, in the last of them; None if all that matters is whether there is a value
    """

    index: str
    keys: tuple[Term, ...]
    count: int
    register: Argument | None


@dataclass(frozen=True)
class Condition:
    """Only where this holds."""

    holds: Expr


@dataclass(frozen=True)
class Define:
    """A register for a value."""

    register: Argument
    value: Expr


@dataclass(frozen=True)
class Count:
    """A register for each of `number` integers from `low` on."""

    register: Argument
    low: Expr
    number: Expr


@dataclass(frozen=True)
class Factor:
    """The tags times that of the one row of a table."""


Step = Rows | Match | Probe | Intersect | Condition | Define | Count | Factor


@dataclass(frozen=True)
class Plan:
    """A kernel without names.

    outputs    terms to write, int64
    words      constants of scans, which are parameters
    tags       the semiring of tags; "rows" to write the row number of the driver and of each join, "factors" the tag of
               each of these, an int64, and of each negation; None for no tags
    counted    numbers of steps: of how many rows come to each is counted, for a profile
    """

    steps: tuple[Step, ...]
    outputs: tuple[Term, ...]
    words: tuple[Argument, ...]
    tags: TypedSemiring | str | None
    counted: tuple[int, ...] = ()

    @property
    def num_loops(self) -> int:
        """Loops whose positions a kernel returns."""
        return num_loops(self.steps)


def first_free_loop(plan: Plan) -> int:
    """The first step after the last loop that binds an output; len(steps) if there is none.

    Only without tags: those of all rows are added up.
    """
    if plan.tags is not None:
        return len(plan.steps)
    needed = {node for node in in_order(plan.outputs) if isinstance(node, Argument)}
    for number, step in reversed(list(enumerate(plan.steps))):
        match step:
            case Define(register=register, value=value) if register in needed:
                needed |= {node for node in in_order((value,)) if isinstance(node, Argument)}
            case Count(register=register) | Intersect(register=register) if register in needed:
                return number + 1
            case Match(takes=takes) if any(register in needed for _, register in takes):
                return number + 1
    return 1


def num_loops(steps: Sequence[Step]) -> int:
    """How many loops are inside that of the driver."""
    loops = (isinstance(s, Count) or (isinstance(s, Match) and not s.only_exists) for s in steps)
    return sum(loops) + sum(isinstance(s, Intersect) and s.register is not None for s in steps)


def bound_by(step: Step) -> set[Argument]:
    """The registers that a step binds."""
    match step:
        case Rows(takes=takes) | Match(takes=takes):
            return {register for _, register in takes}
        case Define(register=register) | Count(register=register):
            return {register}
        case Intersect(register=Argument() as register):
            return {register}
    return set()


def read_by(step: Step) -> set[Argument]:
    """The registers and words that a step reads."""
    match step:
        case Match(keys=keys, within=within):
            read = [term for _, term in (*keys, *within)]
        case Probe(terms=terms) | Intersect(keys=terms):
            read = list(terms)
        case Condition(holds=value) | Define(value=value):
            read = [value]
        case Count(low=low, number=number):
            read = [low, number]
        case _:
            read = []
    return {node for node in in_order(tuple(read)) if isinstance(node, Argument)}
