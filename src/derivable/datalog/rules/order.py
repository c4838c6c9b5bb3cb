"""The order in which a clause's literals are evaluated, and whether it can be evaluated at all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NoReturn

from derivable.core.diagnostics import BindingError
from derivable.datalog.rules import nodes as r
from derivable.datalog.rules.text import RANGES
from derivable.datalog.values import BOOL


@dataclass(frozen=True)
class Define:
    """`x := e`: a column computed from the columns there are"""

    variable: r.Var
    expression: r.Expr


Step = r.Literal | Define

_INVERSE = {"+": "-", "-": "+"}


class Ordering:
    """The steps of a body so far, the literals that are still to come, and the variables that are bound."""

    def __init__(self, body: Sequence[r.Literal]):
        self.remaining = list(enumerate(body))
        self.bound: set[str] = set()
        self.steps: list[Step] = []

    def copy(self) -> Ordering:
        made = Ordering(())
        made.remaining, made.bound, made.steps = list(self.remaining), set(self.bound), list(self.steps)
        return made

    def take(self, position: int, step: Step) -> None:
        """Do a step; `position` is that of its literal, -1 for a definition whose equation stays as a check."""
        self.remaining = [(i, literal) for i, literal in self.remaining if i != position]
        self.steps.append(step)
        self.bound.update(v.name for v in ([step.variable] if isinstance(step, Define) else r.variables(step)))

    def take_atom(self, position: int) -> None:
        """Do an atom, and then whatever only filters or computes."""
        self.take(position, next(literal for i, literal in self.remaining if i == position))
        while (chosen := cheap_step(self.remaining, self.bound)) is not None:
            self.take(*chosen)

    def finish(self) -> None:
        """Take what remains, greedily, as far as it can be: the atom with the most bound terms comes first."""
        while self.remaining:
            left, bound = self.remaining, self.bound
            chosen = cheap_step(left, bound) or _atom(left, bound) or generator(left, bound)
            if chosen is None:
                return
            self.take(*chosen)


def order(clause: r.Clause, program: r.Rules, atoms: Sequence[int] = ()) -> list[Step]:
    """Steps for the body, greedily: whatever only filters or computes as early as possible, then the atom with the
    most bound terms. `atoms` are positions of atoms to begin with, in this order.

    What the head's relation is asked with (`demand`) counts as bound.

    Raises BindingError for a variable that nothing binds.
    """
    given, equations = asked(clause, bound_columns(program.relations[clause.relation].demand))
    ordering = Ordering((*clause.body, *equations))
    ordering.bound |= {name for term in given for name in r.names(term)}
    for position in atoms:
        ordering.take_atom(position)
    ordering.finish()
    if ordering.remaining:
        _fail(clause, program, [literal for _, literal in ordering.remaining], ordering.bound)
    for term in clause.terms:
        for v in r.variables(term):
            if v.name not in ordering.bound:
                place, hint = _head(clause.relation)
                raise BindingError(
                    f"variable `{v.name}` {place} is not bound by the body",
                    hint=f"use `{v.name}` in a positive atom of the body{hint}",
                    source=program.source,
                    text=program.text,
                    span=v.span,
                )
    return ordering.steps


def bound_columns(pattern: str | None) -> tuple[int, ...]:
    """The columns of a demand pattern that are bound: 0 of `bf`."""
    return tuple(column for column, letter in enumerate(pattern or "") if letter == "b")


def asked(clause: r.Clause, columns: tuple[int, ...]) -> tuple[tuple[r.Var | r.Const, ...], tuple[r.Filter, ...]]:
    """The terms that a clause is asked with in these columns of its head, and the equations that say what an
    expression there is equal to."""
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


def cheap_step(remaining: list[tuple[int, r.Literal]], bound: set[str]) -> tuple[int, Step] | None:
    """The place of a literal that only filters or computes and what it does, given what is bound; -1 if the literal
    is solved for an unknown and stays as a check. None if there is none."""
    in_atoms = {n for _, literal in remaining if isinstance(literal, r.Atom) for n in r.names(literal)}
    for i, literal in remaining:
        if isinstance(literal, r.Filter):
            if r.names(literal) <= bound:
                return i, literal
            match literal.condition:
                case r.Apply(operator="==", operands=(left, right)):
                    for target, value in ((left, right), (right, left)):
                        if isinstance(target, r.Var) and target.name not in bound and r.names(value) <= bound:
                            return i, Define(target, value)
        elif (isinstance(literal, r.Negated) and r.names(literal) <= bound) or (
            isinstance(literal, r.Generate)
            and r.inputs(literal) <= bound
            and (r.names(literal) - bound).isdisjoint(in_atoms)
        ):
            return i, literal
    # An equation whose unknown is inside an expression is solved for it; the equation itself stays as a check.
    for _, literal in remaining:
        match literal:
            case r.Filter(condition=r.Apply(operator="==", operands=(left, right))):
                for known, expression in ((left, right), (right, left)):
                    if r.names(known) <= bound:
                        solved = _solve(known, expression, bound)
                        if solved is not None and solved.variable.name not in in_atoms:
                            return -1, solved
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
        elif expression.operator == "+":
            known = r.Apply("-", (known, left), expression.type)
            expression = right
        else:
            known = r.Apply("-", (left, known), expression.type)
            expression = right
    return Define(unknown[0], known)


def _atom(remaining: list[tuple[int, r.Literal]], bound: set[str]) -> tuple[int, Step] | None:
    best: tuple[int, r.Atom] | None = None
    best_score = -1
    for i, literal in remaining:
        if isinstance(literal, r.Atom):
            score = sum(isinstance(t, r.Const) or (isinstance(t, r.Var) and t.name in bound) for t in literal.terms)
            if score > best_score:
                best, best_score = (i, literal), score
    return best


def generator(remaining: list[tuple[int, r.Literal]], bound: set[str]) -> tuple[int, r.Generate] | None:
    """The place of a generator whose inputs are bound, and itself; None if there is none."""
    for i, literal in remaining:
        if isinstance(literal, r.Generate) and r.inputs(literal) <= bound:
            return i, literal
    return None


def _fail(clause: r.Clause, program: r.Rules, left: Sequence[r.Literal], bound: set[str]) -> NoReturn:
    for literal in left:
        for v in r.variables(literal):
            if v.name in bound:
                continue
            if isinstance(literal, r.Negated):
                where, hint = "under `not`", f"bind `{v.name}` in a positive atom, or replace it by `_`"
            elif isinstance(literal, r.Generate):
                if v.name not in r.inputs(literal):
                    continue
                what = "this range" if literal.predicate in RANGES else f"an input of `{literal.predicate}`"
                where, hint = f"in {what}", f"bind `{v.name}` in a positive atom first"
            else:
                where, hint = "in this expression", f"bind `{v.name}` in a positive atom of the same body"
            raise BindingError(
                f"variable `{v.name}` {where} is not bound",
                hint=hint,
                source=program.source,
                text=program.text,
                span=v.span,
            )
    raise AssertionError("a clause without unbound variables was not ordered")


def _head(relation: str) -> tuple[str, str]:
    """Where a variable of a head stands, and what else may help, in words that do not name auxiliary relations."""
    if not relation.startswith("#"):
        return f"in the head of `{relation}`", ", or replace it by a constant"
    stem = relation[1:].rpartition("_")[0]
    if stem == "heads_body":
        return "in the heads", ", or replace it by a constant"
    if stem.endswith("_body"):
        return f"of `{stem.removesuffix('_body')}`", ""
    return ("in the tag" if stem == "tag" else "here"), ""
