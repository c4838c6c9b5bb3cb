"""The order in which a clause's literals are evaluated, and whether it can be evaluated at all."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Sequence
from copy import copy
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from typing import NoReturn

from derivable.core.diagnostics import BindingError
from derivable.datalog.rules import nodes as r
from derivable.datalog.rules.text import RANGES
from derivable.datalog.scalars.nodes import Node, applied
from derivable.datalog.values.values import BOOL


@dataclass(frozen=True)
class Define(Node):
    """`x := e`: a column computed from the columns there are"""

    variable: r.Var
    expression: r.Expr


Step = r.Literal | Define

_INVERSE = {"+": "-", "-": "+", "+!": "-!", "-!": "+!"}


class Ordering:
    """The steps of a body so far, the literals that are still to come, and the variables that are bound.

    A literal is looked at when one of its variables is bound, so that the time is that of the body's size but for a
    logarithm; what can be done next waits in heaps of positions.

    names      [position] of a literal: name -> how many terms of an atom it is, 1 for other literals
    positions  name -> (position, that number) of each literal that has it; neither ever changes
    missing    [position] how many of its names are not bound
    scores     [position] of an atom: how many of its terms are bound
    in_atoms   name -> the atoms to come that have it
    """

    def __init__(self, body: Sequence[r.Literal]):
        self.names: list[dict[str, int]] = []
        self.positions: dict[str, list[tuple[int, int]]] = {}
        self.remaining = dict(enumerate(body))
        self.bound: set[str] = set()
        self.steps: list[Step] = []
        self.scores: list[int] = []
        self.in_atoms: dict[str, int] = {}
        self.cheap: list[int] = []
        self.solvable: list[int] = []
        self.late: list[int] = []
        self.ready: list[int] = []
        self.atoms: list[tuple[int, int]] = []
        for i, literal in enumerate(body):
            counts, constants = {}, 0
            if isinstance(literal, r.Atom):
                for term in literal.terms:
                    if isinstance(term, r.Var):
                        counts[term.name] = counts.get(term.name, 0) + 1
                    elif term is not None:
                        constants += 1
                for name in counts:
                    self.in_atoms[name] = self.in_atoms.get(name, 0) + 1
                self.atoms.append((-constants, i))
            else:
                counts = dict.fromkeys(r.names(literal), 1)
            self.scores.append(constants)
            self.names.append(counts)
            for name, count in counts.items():
                self.positions.setdefault(name, []).append((i, count))
        self.missing = [*map(len, self.names)]
        heapify(self.atoms)
        for i in self.remaining:
            self.look(i)

    def copy(self) -> Ordering:
        made = copy(self)
        for name, value in vars(self).items():
            if name not in ("names", "positions"):
                setattr(made, name, value.copy())
        return made

    def look(self, position: int) -> None:
        """See what has become possible with a literal; none of it becomes impossible again before it is done."""
        literal = self.remaining[position]
        if isinstance(literal, r.Atom) or (isinstance(literal, r.Filter) and self.missing[position] > 1):
            return
        if step_of(literal, self.bound, self.in_atoms) is not None:
            heappush(self.cheap, position)
        elif solved_by(literal, self.bound, self.in_atoms) is not None:
            heappush(self.late if has_several_solutions(literal) else self.solvable, position)
        if isinstance(literal, r.Generate) and r.inputs(literal) <= self.bound:
            heappush(self.ready, position)

    def bind(self, names: Iterable[str]) -> None:
        """Have these variables bound."""
        touched: set[int] = set()
        for name in names:
            if name in self.bound:
                continue
            self.bound.add(name)
            for i, count in self.positions.get(name, ()):
                if i not in self.remaining:
                    continue
                self.missing[i] -= 1
                if isinstance(self.remaining[i], r.Atom):
                    self.scores[i] += count
                    heappush(self.atoms, (-self.scores[i], i))
                else:
                    touched.add(i)
        for i in touched:
            self.look(i)

    def take(self, position: int, step: Step) -> None:
        """Do a step; `position` is that of its literal, `~position` if that is solved and stays as a check."""
        literal = self.remaining.pop(position, None)
        if isinstance(literal, r.Atom):
            for name in self.names[position]:
                self.in_atoms[name] -= 1
                if not self.in_atoms[name]:
                    del self.in_atoms[name]
        self.steps.append(step)
        self.bind((step.variable.name,) if isinstance(step, Define) else self.names[position])

    def take_atom(self, position: int) -> None:
        """Do an atom or a generator, and then whatever only filters or computes."""
        literal = self.remaining[position]
        assert isinstance(literal, (r.Atom, r.Generate))
        self.take(position, literal)
        while (chosen := self.next_cheap()) is not None:
            self.take(*chosen)

    def finish(self) -> None:
        """Take what remains, greedily, as far as it can be: the atom with the most bound terms comes first."""
        while self.remaining:
            chosen = (
                self.next_cheap() or self.next_atom() or self.next_generator() or self.next_late() or self.next_coin()
            )
            if chosen is None:
                return
            self.take(*chosen)

    def next_cheap(self) -> tuple[int, Step] | None:
        """The first literal that only filters or computes, else one that is solved for an unknown."""
        return self.next_of(self.cheap, step_of) or self.next_of(self.solvable, solved_by)

    def next_generator(self) -> tuple[int, Step] | None:
        """The first generator whose inputs are bound."""
        return self.next_of(self.ready, lambda literal, *_: literal)

    def next_late(self) -> tuple[int, Step] | None:
        """The first equation with several solutions, which is solved when nothing else can be done."""
        return self.next_of(self.late, solved_by)

    def next_of(self, heap: list[int], find: Callable[..., Step | None]) -> tuple[int, Step] | None:
        """The first literal of a heap that `find` has a step for, and the step; `~position` if it is solved and stays
        as a check."""
        while heap:
            literal = self.remaining.get(heap[0])
            step = None if literal is None else find(literal, self.bound, self.in_atoms)
            if step is not None:
                return (~heap[0] if find is solved_by else heap[0]), step
            heappop(heap)
        return None

    def next_atom(self) -> tuple[int, Step] | None:
        while self.atoms:
            score, i = self.atoms[0]
            literal = self.remaining.get(i)
            if literal is not None and -score == self.scores[i]:
                return i, literal
            heappop(self.atoms)
        return None

    def next_coin(self) -> tuple[int, Step] | None:
        """The first coin of which all is known: it keeps no row out, so everything else comes before it."""
        for i, literal in self.remaining.items():
            if isinstance(literal, r.RuleProbability) and not self.missing[i]:
                return i, literal
        return None


def order(clause: r.Clause, program: r.Rules, atoms: Sequence[int] = ()) -> list[Step]:
    """Steps for the body, greedily: whatever only filters or computes as early as possible, then the atom with the
    most bound terms. `atoms` are positions of atoms to begin with, in this order.

    What the head's relation is asked with (`demand`) counts as bound.

    Raises BindingError for a variable that nothing binds.
    """
    columns = bound_columns(program.relations[clause.relation].demand)
    key = columns, tuple(atoms)
    if key not in clause.orders:
        clause.orders[key] = _steps(clause, program, columns, atoms)
    return clause.orders[key]


def _steps(clause: r.Clause, program: r.Rules, columns: tuple[int, ...], atoms: Sequence[int]) -> list[Step]:
    """What `order` returns, for the columns of the head that are bound."""
    queried, equations = bound_terms(clause, columns)
    ordering = Ordering((*clause.body, *equations))
    ordering.bind(name for term in queried for name in r.names(term))
    for position in atoms:
        ordering.take_atom(position)
    ordering.finish()
    left = list(ordering.remaining.values())
    if not all(isinstance(literal, r.RuleProbability) for literal in left):
        _fail(clause, program, left, ordering.bound)
    for term in clause.terms:
        for v in r.variables(term):
            if v.name not in ordering.bound:
                where, more = _head(clause.relation)
                hint = f"use `{v.name}` in a positive atom of the body{more}"
                if not clause.body and v.name in _WORDS:
                    hint = constant_meant(v.name)
                elif not clause.body and not clause.relation.startswith("#"):
                    hint += f"; {constant_meant(v.name)}"
                program.error(BindingError, f"variable `{v.name}` {where} is not bound by the body", v.span, hint)
    if left:
        _fail(clause, program, left, ordering.bound)
    return ordering.steps


def bound_columns(pattern: str | None) -> tuple[int, ...]:
    """The columns of a demand pattern that are bound: 0 of `bf`."""
    return tuple(column for column, letter in enumerate(pattern or "") if letter == "b")


def bound_terms(clause: r.Clause, columns: tuple[int, ...]) -> tuple[tuple[r.Var | r.Const, ...], tuple[r.Filter, ...]]:
    """The terms that a query binds in these columns of a clause's head, with a variable for each expression, and the
    equations of these variables with their expressions."""
    terms: list[r.Var | r.Const] = []
    equations = []
    for column in columns:
        term = clause.terms[column]
        if isinstance(term, r.Apply):
            variable = r.Var(f"{clause.relation}'{column}", term.type, clause.span)
            equations.append(r.Filter(r.Apply("==", (variable, term), BOOL), clause.span))
            term = variable
        terms.append(term)
    return tuple(terms), tuple(equations)


def has_several_solutions(literal: r.Literal) -> bool:
    """Whether an equation of unsigned integers stops at a limit, as `y == b - 1` does at 0 for the b 0 and 1.

    Solving it gives one of them, so that it waits until nothing else binds the variable.
    """
    return isinstance(literal, r.Filter) and any(
        e.operator in ("+", "-", "neg") and e.type.family == "unsigned" for e in applied(literal.condition)
    )


def step_of(literal: r.Literal, bound: set[str], in_atoms: Container[str]) -> Step | None:
    """What a literal does that only filters or computes, once these names are bound; None if it cannot yet.

    in_atoms  the names in atoms that are still to come: a generator waits for them to bind its outputs
    """
    if isinstance(literal, r.Filter):
        if r.names(literal) <= bound:
            return literal
        for target, value in r.sides(literal):
            if isinstance(target, r.Var) and target.name not in bound and r.names(value) <= bound:
                return Define(target, value)
    elif (isinstance(literal, r.Negated) and r.names(literal) <= bound) or (
        isinstance(literal, r.Generate)
        and r.inputs(literal) <= bound
        and not any(name in in_atoms for name in r.names(literal) - bound)
    ):
        return literal
    return None


def solved_by(literal: r.Literal, bound: set[str], in_atoms: Container[str]) -> Define | None:
    """What an equation with one unknown inside an expression is solved to; the equation itself stays as a check."""
    for known, expression in r.sides(literal):
        if r.names(known) <= bound:
            solved = _solve(known, expression, bound)
            if solved is not None and solved.variable.name not in in_atoms:
                return solved
    return None


def _solve(known: r.Expr, expression: r.Expr, bound: set[str]) -> Define | None:
    unknown = [v for v in r.variables(expression) if v.name not in bound]
    if len(unknown) != 1:
        return None
    while isinstance(expression, r.Apply):
        if expression.operator == "neg":
            known, expression = r.Apply("neg", (known,), expression.type), expression.operands[0]
            continue
        if expression.operator not in _INVERSE or not expression.type.is_number:
            return None
        left, right = expression.operands
        if unknown[0].name in r.names(left):
            known = r.Apply(_INVERSE[expression.operator], (known, right), expression.type)
            expression = left
        elif expression.operator in ("+", "+!"):
            known = r.Apply(_INVERSE[expression.operator], (known, left), expression.type)
            expression = right
        else:
            known = r.Apply(expression.operator, (left, known), expression.type)
            expression = right
    return Define(unknown[0], known)


def _fail(clause: r.Clause, program: r.Rules, left: Sequence[r.Literal], bound: set[str]) -> NoReturn:
    for literal in left:
        for v in r.variables(literal):
            if v.name in bound:
                continue
            if isinstance(literal, r.Negated):
                where, hint = "under `not`", f"bind `{v.name}` in a positive atom, or replace it by `_`"
            elif isinstance(literal, r.RuleProbability):
                where, hint = "in the tag", f"use `{v.name}` in a positive atom of the body"
            elif isinstance(literal, r.Generate):
                if v.name not in r.inputs(literal):
                    continue
                what = "this range" if literal.predicate in RANGES else f"an input of `{literal.predicate}`"
                where, hint = f"in {what}", f"bind `{v.name}` in a positive atom first"
            else:
                where, hint = "in this expression", f"bind `{v.name}` in a positive atom of the same body"
            program.error(BindingError, f"variable `{v.name}` {where} is not bound", v.span, hint)
    raise AssertionError("a clause without unbound variables was not ordered")


_WORDS = {"True": "the bool is `true`", "False": "the bool is `false`"}
_WORDS |= dict.fromkeys(("None", "null", "nil", "NULL"), "there are no missing values: leave the fact out")


def constant_meant(name: str) -> str:
    """What a name without a value may have been meant as: in Prolog a small letter begins a constant."""
    return _WORDS.get(name, f'a text has quotes, `"{name}"`')


def _head(relation: str) -> tuple[str, str]:
    """Where a variable of a head stands, and what else may help, in words that do not name auxiliary relations."""
    if not relation.startswith("#"):
        return f"in the head of `{relation}`", ", or replace it by a constant"
    stem = relation[1:].rpartition("_")[0]
    if stem == "heads_body":
        return "in the heads", ", or replace it by a constant"
    if stem.endswith("_body"):
        return f"of `{stem.removesuffix('_body')}`", ""
    return "here", ""
