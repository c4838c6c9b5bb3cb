"""Recursive rules between relations of two columns that change each column by itself.

`same(x, y) :- edge(a, x), same(a, b), edge(b, y)` says that the matrix S of `same` includes E' S E, where E is that of
`edge`: x follows from a alone, and y from b. Where one column passes through, the rule is an inclusion of rows
(`ram.inclusions`). A recursion of such rules is solved on matrices of bits, without a join of pairs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from derivable.datalog.ram import nodes as m
from derivable.datalog.ram.inclusions import EDGES, calls
from derivable.datalog.ram.lower import store
from derivable.datalog.rules.literal_order import Ordering
from derivable.datalog.rules.nodes import Atom, Clause, Literal, names
from derivable.datalog.scalars.nodes import Expr, Var


@dataclass(frozen=True)
class Side:
    """Where a column of the target comes from.

    column  of the source
    edges   what gives pairs (a value of the target, one of the source that it follows from); None if it passes through
    """

    column: int
    edges: m.Store | None


@dataclass(frozen=True)
class Product:
    """Pairs of `source` give pairs of `target`, by a side for each column of the target."""

    source: str
    target: str
    sides: tuple[Side, Side]


def products_of(stratum: m.Stratum, loop: Sequence[m.Store]) -> tuple[Product, ...]:
    """What the rules of a recursion say as products; () if some of them say something else."""
    stratum_relations = set(stratum.relations)
    products = [product for instruction in loop if (product := _product(instruction, stratum_relations)) is not None]
    return tuple(products) if len(products) == len(loop) else ()


def _product(instruction: m.Store, stratum_relations: set[str]) -> Product | None:
    origin = instruction.origin
    if origin is None or origin.driver is None:
        return None
    clause = origin.clause
    atom, rest = clause.body[origin.driver], (*clause.body[: origin.driver], *clause.body[origin.driver + 1 :])
    assert isinstance(atom, Atom)
    if len(atom.terms) != 2 or len(clause.terms) != 2 or atom.terms[0] == atom.terms[1]:
        return None
    if any(isinstance(literal, Atom) and literal.relation in stratum_relations for literal in rest) or any(
        map(calls, (*clause.terms, *rest))
    ):
        return None
    bodies: list[tuple[Literal, ...]] = []
    for term in atom.terms:
        if not isinstance(term, Var):
            return None
        bodies.append(_connected(term.name, rest))
    if len(bodies[0]) + len(bodies[1]) != len(rest) or set(map(id, bodies[0])) & set(map(id, bodies[1])):
        # Some literal is about both columns, or about none.
        return None
    for columns in ((0, 1), (1, 0)):
        sides = [_side(clause, index, atom, column, bodies[column]) for index, column in enumerate(columns)]
        if sides[0] is not None and sides[1] is not None:
            return Product(atom.relation, clause.relation, (sides[0], sides[1]))
    return None


def _connected(name: str, rest: Sequence[Literal]) -> tuple[Literal, ...]:
    """The literals that share variables with a variable, or with one of these, and so on."""
    is_joined, known = [False] * len(rest), {name}
    before = -1
    while before != len(known):
        before = len(known)
        for k, literal in enumerate(rest):
            if not is_joined[k] and known & set(names(literal)):
                is_joined[k] = True
                known |= set(names(literal))
    return tuple(literal for literal, is_there in zip(rest, is_joined) if is_there)


def _side(clause: Clause, index: int, atom: Atom, column: int, body: tuple[Literal, ...]) -> Side | None:
    """The side of a column of the head that follows from one of the atom by these literals."""
    term, variable = clause.terms[index], atom.terms[column]
    assert isinstance(variable, Var)
    if sum(isinstance(literal, Atom) for literal in body) > 2:
        # To join them all might cost more than the recursion does.
        return None
    if not body:
        return Side(column, None) if term == variable else None
    ordering = Ordering(body)
    ordering.finish()
    wanted: tuple[Expr, ...] = (term, variable)
    if ordering.remaining or not {name for e in wanted for name in names(e)} <= ordering.bound:
        return None
    return Side(column, store(m.Origin(Clause(EDGES, wanted, body, clause.span)), ordering.steps))
