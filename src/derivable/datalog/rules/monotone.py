"""Whether a rule of a recursion may read a column of a lattice before it is complete.

A value of a lattice gets better and better while a recursion runs. A rule may read it meanwhile if what it makes of a
better value is better too, or if all that matters is that there is one:

    distance(y, (d + w)) :- distance(x, d), edge(x, y, w), (d < 100)

A sum is computed from a smaller `d` in time, and the condition holds for all that are smaller. `(d > 5)` would hold for
a distance for which a shorter way is derived later. Whether expressions follow the order is tested on values, the
others of an expression being numbers from 0 on: a factor is taken as not negative. Functions of users are not called
for it.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from derivable.core.diagnostics import Span
from derivable.datalog.aggregates.lattices import LATTICES, Lattice
from derivable.datalog.foreign.standard import FUNCTIONS
from derivable.datalog.rules import nodes as r
from derivable.datalog.rules.simplify import substitute
from derivable.datalog.rules.text import literal_text
from derivable.datalog.scalars import arithmetic
from derivable.datalog.scalars.arithmetic import scalar_type
from derivable.datalog.scalars.nodes import NOWHERE, applied, walk
from derivable.datalog.values.symbols import SymbolTable
from derivable.datalog.values.values import ValueType, show_column, sort_keys, to_words

_TESTS = 1 << 10


def misuse(clause: r.Clause, atom: r.Atom, relations: Mapping[str, r.Relation]) -> tuple[Span, str] | None:
    """Where and why a clause needs all rows of a relation with a lattice that one of its atoms reads; None if it does
    not."""
    relation, value = relations[atom.relation], atom.terms[-1]
    title = f"`{atom.relation}`"
    assert relation.lattice is not None
    if value is None or LATTICES[relation.lattice].is_final:
        return None
    if isinstance(value, r.Const) or value in atom.terms[:-1]:
        return atom.span, f"{title} is looked up by the value that its lattice has so far"
    body: list[r.Literal] = [literal for literal in clause.body if literal is not atom]
    known = _defined(value, body)
    tainted = {value.name, *known}
    for literal in body:
        if not tainted & r.names(literal):
            continue
        shown = literal_text(literal)
        if not isinstance(literal, r.Filter):
            return literal.span, f"`{shown}` is looked up by a value that the lattice of {title} has so far"
        wrong = _Test(value, substitute(literal.condition, known), LATTICES[relation.lattice]).failure(None)
        if wrong is not None:
            return literal.span, f"`{shown}` may hold for {wrong}, which {title} may get later"
    *keys, last = clause.terms or (None,)
    for key in keys:
        if tainted & r.names(key):
            return _span_of(key, clause), f"the value of {title} is a key of `{clause.relation}`"
    if last is None or not tainted & r.names(last):
        return None
    head = relations[clause.relation].lattice
    if head is None:
        what = f"the value of {title} is a column of `{clause.relation}`, which has no lattice there"
        return _span_of(last, clause), what
    wrong = _Test(value, substitute(last, known), LATTICES[relation.lattice]).failure(LATTICES[head])
    if wrong is None:
        return None
    what = f"the value for `{clause.relation}` may be better for {wrong}, which {title} may get later"
    return _span_of(last, clause), what


def _span_of(term: r.Expr, clause: r.Clause) -> Span:
    span = getattr(term, "span", NOWHERE)
    return clause.span if span is NOWHERE else span


def _defined(value: r.Var, body: list[r.Literal]) -> dict[str, r.Expr]:
    """What equations of a body say of variables that nothing else binds, in terms of `value`; they leave the body."""
    elsewhere = {name for literal in body if not isinstance(literal, r.Filter) for name in r.names(literal)}
    definitions: dict[str, r.Expr] = {}
    while True:
        tainted = {value.name, *definitions}
        for literal in body:
            for variable, e in r.sides(literal):
                if not isinstance(variable, r.Var) or variable.name in tainted | elsewhere:
                    continue
                if r.names(e) & tainted:
                    definitions[variable.name] = substitute(e, definitions)
                    body.remove(literal)
                    break
            else:
                continue
            break
        else:
            return definitions


class _Test:
    """An expression for values of a lattice and for better ones.

    columns, better  words of its variables, and the same with better values
    """

    def __init__(self, value: r.Var, e: r.Expr, lattice: Lattice):
        self.value, self.e = value, e
        self.symbols, self.random = SymbolTable(), np.random.default_rng(0)
        self.variables = {v.name: v for v in r.variables(e)}
        types = (e.type, *(part.type for part in walk(e)))
        calls = (node.operator for node in applied(e) if node.operator.startswith("$"))
        self.is_tested = all(map(_is_tested, types)) and all(FUNCTIONS[name[1:]].scalar for name in calls)
        if self.is_tested:
            self.columns = {name: self.sample(v.type, name == value.name) for name, v in self.variables.items()}
            others = self.sample(value.type, True)
            joined = lattice.joined(self.columns[value.name], others, value.type, self.symbols)
            self.better = {**self.columns, value.name: joined}

    def failure(self, head: Lattice | None) -> str | None:
        """Values for which it does not follow the order, as text; None if it does. `head` is the lattice of what it
        computes, None for a condition."""
        if not self.is_tested:
            return None
        before, there, after, there_after = self.both(self.e)
        if head is None:
            wrong = there & (before != 0) & ~(there_after & (after != 0))
        else:
            wrong = there & ~(there_after & (head.joined(before, after, self.e.type, self.symbols) == after))
        if not wrong.any():
            return None if head is not None or self.persists(self.e) else "a value and not for a better one"
        row = int(wrong.argmax())
        names = sorted(self.variables, key=lambda name: name != self.value.name)
        shown = [f"{name} = {self.shown(self.columns, name, row)}" for name in names]
        return f"{', '.join(shown)} and not for {self.value.name} = {self.shown(self.better, self.value.name, row)}"

    def persists(self, condition: r.Expr) -> bool:
        """Whether comparisons in a condition go on to hold whatever they compare with, which samples may miss."""
        match condition:
            case r.Apply(operator="&&" | "||", operands=(a, b)):
                return self.persists(a) and self.persists(b)
            case r.Apply(operator="<" | "<=", operands=(a, b)):
                return not self.moves(a, 1) and not self.moves(b, -1)
            case r.Apply(operator=">" | ">=", operands=(a, b)):
                return not self.moves(a, -1) and not self.moves(b, 1)
            case r.Apply(operator="==" | "!=", operands=(a, b)):
                return not any(self.moves(e, sign) for e in (a, b) for sign in (1, -1))
        return True

    def moves(self, e: r.Expr, sign: int) -> bool:
        """Whether an expression gets larger for a better value, or smaller, or has no value any more."""
        values, there, after, there_after = self.both(e)
        keys = sort_keys(np.concatenate([values, after]), e.type, self.symbols)
        before, later = keys[: len(values)], keys[len(values) :]
        return bool((there & (~there_after | (later > before if sign > 0 else later < before))).any())

    def both(self, e: r.Expr) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """The words of an expression and where it has a value, then the same for better values."""
        parts = []
        for columns in (self.columns, self.better):
            words, valid = arithmetic.evaluate(e, columns, _TESTS, self.symbols)
            parts += [words, np.ones(_TESTS, bool) if valid is None else valid]
        return tuple(parts)  # type: ignore[return-value]

    def sample(self, t: ValueType, is_value: bool) -> np.ndarray:
        """Words of values of a type: small ones, and ones like the constants; those of other variables from 0 on."""
        constants = [part.value for part in walk(self.e) if isinstance(part, r.Const) and part.type == t]
        if t.family == "text":
            texts = ["".join(row) for row in self.random.choice(["a", "b", ""], (_TESTS, 3)).tolist()]
            texts[::4] = (self.random.choice([*map(str, constants), ""], len(texts[::4]))).tolist()
            return self.symbols.intern_all(texts)
        if t.family in ("bool", "char"):
            return self.random.integers(0, 2, _TESTS) + (97 if t.family == "char" else 0)
        numbers = self.random.integers(-20 if is_value else 0, 21, _TESTS).astype(object)
        numbers[::2] += self.random.choice(np.array([0, *constants], object), _TESTS // 2)
        if t.family == "float":
            return to_words(numbers.astype(np.float64) / np.where(np.arange(_TESTS) % 4 < 2, 8, 1), t)
        return to_words(np.clip(numbers, *t.limits).astype(scalar_type(t)), t)

    def shown(self, columns: Mapping[str, np.ndarray], name: str, row: int) -> str:
        return str(show_column(columns[name][row : row + 1], self.variables[name].type, self.symbols)[0])


def _is_tested(t: ValueType) -> bool:
    return t.family in ("bool", "char", "text") or (t.is_number and not t.is_wide)
