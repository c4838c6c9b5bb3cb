"""Boolean formulas written in Python: `(a & ~b) | implies(c, d)`.

    a, b, c = variables("a b c")
    rule = implies(a, b | c) & exactly_one(a, b, c)
    circuit = derivable.circuit.compile(rule)

A name means one variable, whichever call of `variables` made it. The variables of a formula are those of all calls
that it uses, in the order of the calls; variable number v (from 1) is column v - 1 of every weight array.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from derivable.circuit.graph.and_or_graph import AndOrGraph, NodeLists
from derivable.core import and_or
from derivable.core.and_or import AND, LITERAL, OR
from derivable.core.arguments import integer, is_integer
from derivable.core.arrays import as_bools
from derivable.core.diagnostics import DomainError


class Formula:
    """Base of the nodes. `&`, `|`, `~`, `^` build bigger formulas; True and False may be mixed in.

    Nodes are immutable and compare by identity: `a == b` is not an equation, see `equivalent`.
    """

    __slots__ = ()

    @property
    def parts(self) -> tuple[Formula, ...]:
        """The formulas this one is made of."""
        return ()

    def __and__(self, other: Formula | bool) -> Formula:
        return conjunction(self, _formula(other, "&"))

    def __or__(self, other: Formula | bool) -> Formula:
        return disjunction(self, _formula(other, "|"))

    def __xor__(self, other: Formula | bool) -> Formula:
        return ExclusiveOr(self, _formula(other, "^"))

    def __rand__(self, other: bool) -> Formula:
        return conjunction(_formula(other, "&"), self)

    def __ror__(self, other: bool) -> Formula:
        return disjunction(_formula(other, "|"), self)

    def __rxor__(self, other: bool) -> Formula:
        return ExclusiveOr(_formula(other, "^"), self)

    def __invert__(self) -> Formula:
        return Not(self)

    def __bool__(self) -> bool:
        raise DomainError(
            "a formula has no truth value of its own",
            hint="write `a & b`, `a | b`, `~a` instead of `a and b`, `a or b`, `not a`, and do not test a formula "
            "with `if` or compare it with `<`; formula.evaluate(assignment) gives its value under an assignment",
        )

    def __str__(self) -> str:
        return to_text(self)

    def __repr__(self) -> str:
        text = to_text(self, limit=200)
        return f"Formula({text})"

    def evaluate(self, assignment: Mapping[Any, bool] | Sequence[bool] | np.ndarray) -> Any:
        """The value under an assignment; see `evaluate`."""
        return evaluate(self, assignment)

    def truth_table(self) -> np.ndarray:
        """[2 ** num_variables] bool over all assignments, variable 1 the most significant bit; see `truth_table`."""
        return truth_table(self)


@dataclass(frozen=True, eq=False, repr=False, slots=True)
class Variable(Formula):
    """`rain`: the name of this number (from 1) among `names`, those of one call of `variables`; calls are counted."""

    number: int
    names: tuple[str, ...]
    call: int

    @property
    def name(self) -> str:
        return self.names[self.number - 1]


@dataclass(frozen=True, eq=False, repr=False, slots=True)
class Constant(Formula):
    """`true` or `false`."""

    value: bool


@dataclass(frozen=True, eq=False, repr=False, slots=True)
class Not(Formula):
    """`~a`"""

    part: Formula

    @property
    def parts(self) -> tuple[Formula, ...]:
        return (self.part,)


@dataclass(frozen=True, eq=False, repr=False, slots=True)
class Gate(Formula):
    """Base of the nodes of any number of operands."""

    operands: tuple[Formula, ...]

    @property
    def parts(self) -> tuple[Formula, ...]:
        return self.operands


class And(Gate):
    """`a & b & c`; of nothing it is true."""

    __slots__ = ()


class Or(Gate):
    """`a | b | c`; of nothing it is false."""

    __slots__ = ()


@dataclass(frozen=True, eq=False, repr=False, slots=True)
class ExclusiveOr(Formula):
    """`a ^ b`"""

    left: Formula
    right: Formula

    @property
    def parts(self) -> tuple[Formula, ...]:
        return (self.left, self.right)


@dataclass(frozen=True, eq=False, repr=False, slots=True)
class Count(Gate):
    """`count(1, 2; a, b, c)`: at least 1 and at most 2 of these formulas are true."""

    low: int
    high: int


_calls = itertools.count()
TRUE, FALSE = Constant(True), Constant(False)


def _formula(value: object, where: str) -> Formula:
    if isinstance(value, Formula):
        return value
    if isinstance(value, (bool, np.bool_)):
        return TRUE if value else FALSE
    raise DomainError(
        f"{value!r} is not a formula, in {where}",
        hint="operands are formulas or True and False; make variables with variables('a b c')",
    )


def _formulas(values: tuple, where: str) -> tuple[Formula, ...]:
    if len(values) == 1 and not isinstance(values[0], (Formula, bool, np.bool_)) and isinstance(values[0], Iterable):
        values = tuple(values[0])
    return tuple(_formula(value, where) for value in values)


def variables(names: str | int | Iterable[str]) -> tuple[Variable, ...]:
    """New variables, numbered from 1: by names ("a b c" or a list), or that many called x1, x2, ...

    A later call may name some of them again, and then means the same variables.
    Raises DomainError for a repeated name or no name at all.
    """
    if is_integer(names):
        given = tuple(f"x{number}" for number in range(1, int(names) + 1))  # type: ignore[arg-type]
    elif isinstance(names, str):
        given = tuple(names.replace(",", " ").split())
    elif isinstance(names, Iterable):
        given = tuple(names)
    else:
        raise DomainError(f"variables takes names or a count, not {names!r}")
    for name in given:
        if not isinstance(name, str):
            raise DomainError(f"{name!r} is not the name of a variable", hint="names are texts: variables(['a', 'b'])")
    if not given:
        raise DomainError("no variable was named", hint="variables('a b c') makes three, variables(10) makes x1 to x10")
    if len(set(given)) < len(given):
        repeated = next(name for position, name in enumerate(given) if name in given[:position])
        raise DomainError(f"the name {repeated!r} is given twice")
    call = next(_calls)
    return tuple(Variable(number, given, call) for number in range(1, len(given) + 1))


def conjunction(*operands: Any) -> Formula:
    """All of them: formulas, or one iterable of formulas. Of nothing: true."""
    return And(_formulas(operands, "conjunction"))


def disjunction(*operands: Any) -> Formula:
    """At least one of them: formulas, or one iterable of formulas. Of nothing: false."""
    return Or(_formulas(operands, "disjunction"))


def implies(premise: Formula | bool, conclusion: Formula | bool) -> Formula:
    """`~premise | conclusion`"""
    return Or((Not(_formula(premise, "implies")), _formula(conclusion, "implies")))


def equivalent(left: Formula | bool, right: Formula | bool) -> Formula:
    """`~(left ^ right)`"""
    return Not(ExclusiveOr(_formula(left, "equivalent"), _formula(right, "equivalent")))


def at_least_one(*operands: Any) -> Formula:
    """At least one is true: formulas, or one iterable of formulas. Of nothing: false."""
    return Or(_formulas(operands, "at_least_one"))


def at_most_one(*operands: Any) -> Formula:
    """None or one is true."""
    return Count(_formulas(operands, "at_most_one"), 0, 1)


def exactly_one(*operands: Any) -> Formula:
    """Exactly one is true. Of nothing: false."""
    return Count(_formulas(operands, "exactly_one"), 1, 1)


def at_least_k(k: int, *operands: Any) -> Formula:
    """At least k are true."""
    parts = _formulas(operands, "at_least_k")
    return Count(parts, integer(k, "k"), len(parts))


def at_most_k(k: int, *operands: Any) -> Formula:
    """At most k are true."""
    return Count(_formulas(operands, "at_most_k"), 0, integer(k, "k"))


def exactly_k(k: int, *operands: Any) -> Formula:
    """Exactly k are true."""
    k = integer(k, "k")
    return Count(_formulas(operands, "exactly_k"), k, k)


# Walking. Formulas may be a million deep (a loop of `formula = formula & x`), so nothing recurses.


def postorder(formula: Formula) -> Iterator[Formula]:
    """Every distinct node once, parts before wholes."""
    done: set[int] = set()
    stack: list[tuple[Formula, bool]] = [(formula, False)]
    while stack:
        node, expanded = stack.pop()
        if id(node) in done:
            continue
        if expanded or not node.parts:
            done.add(id(node))
            yield node
        else:
            stack.append((node, True))
            stack.extend((part, False) for part in reversed(node.parts) if id(part) not in done)


def names_of(formula: Formula) -> tuple[str, ...]:
    """The names of variables 1..n: all names of the calls of `variables` that the formula uses, in their order."""
    # By the identity of their names, which all variables of a call share.
    calls = {id(node.names): node for node in postorder(formula) if isinstance(node, Variable)}
    ordered = sorted(calls.values(), key=lambda variable: variable.call)
    return tuple(dict.fromkeys(name for variable in ordered for name in variable.names))


def _numbers(names: tuple[str, ...]) -> dict[str, int]:
    return {name: number for number, name in enumerate(names, start=1)}


def _fold(formula: Formula, rule: Callable[[Formula, list], Any]) -> Any:
    values: dict[int, Any] = {}
    for node in postorder(formula):
        values[id(node)] = rule(node, [values[id(part)] for part in node.parts])
    return values[id(formula)]


def evaluate(formula: Formula, assignment: Mapping[Any, bool] | Sequence[bool] | np.ndarray) -> Any:
    """What a formula means: its value under an assignment. The reference interpreter.

    assignment  a mapping from variables, names or numbers to bool, or an array [*batch, variable] of bool
    returns     bool for a mapping or a flat sequence, [*batch] bool for an array
    Raises DomainError if a variable has no value.
    """
    numbers = _numbers(names_of(formula))
    if isinstance(assignment, Mapping):
        table = {(key.name if isinstance(key, Variable) else key): value for key, value in assignment.items()}

        def value_of(variable: Variable) -> Any:
            for key in (numbers[variable.name], variable.name):
                if key in table:
                    return np.asarray(bool(table[key]))
            raise DomainError(f"variable {variable.name!r} has no value", hint="give every variable of the formula")
    else:
        array = as_bools(assignment, "the assignment")
        if array.ndim == 0:
            raise DomainError("the assignment is one value, expected a mapping or an array [*batch, variable]")

        def value_of(variable: Variable) -> Any:
            number = numbers[variable.name]
            if number > array.shape[-1]:
                raise DomainError(
                    f"variable {variable.name!r} is number {number}, and the assignment has {array.shape[-1]}"
                )
            return array[..., number - 1]

    def rule(node: Formula, parts: list) -> Any:
        match node:
            case Variable():
                return value_of(node)
            case Constant():
                return np.asarray(node.value)
            case Not():
                return ~parts[0]
            case And():
                return _reduce(np.logical_and, parts, True)
            case Or():
                return _reduce(np.logical_or, parts, False)
            case ExclusiveOr():
                return parts[0] ^ parts[1]
            case Count():
                number = _reduce(np.add, [part.astype(np.int64) for part in parts], 0)
                return (node.low <= number) & (number <= node.high)
        raise AssertionError(type(node))

    result = np.asarray(_fold(formula, rule))
    batch = () if isinstance(assignment, Mapping) else np.shape(assignment)[:-1]
    return bool(result) if batch == () else np.broadcast_to(result, batch).copy()


def _reduce(operation: np.ufunc, parts: list, start: Any) -> Any:
    total = np.asarray(start)
    for part in parts:
        total = operation(total, part)
    return total


def truth_table(formula: Formula) -> np.ndarray:
    """[2 ** n] bool: entry i is the value where bit n - v of i is variable v. DomainError beyond 24 variables."""
    n = len(names_of(formula))
    if n > 24:
        raise DomainError(f"a truth table over {n} variables has 2**{n} rows", hint="compile the formula instead")
    rows = (np.arange(2**n)[:, None] >> np.arange(n - 1, -1, -1)[None, :]) & 1
    return np.asarray(evaluate(formula, rows.astype(bool)))


# Printing

_STRENGTH = {Or: 1, ExclusiveOr: 2, And: 3, Not: 4}


def to_text(formula: Formula, limit: int | None = None) -> str:
    """The formula as Python would read it; cut with `...` after `limit` characters."""
    pieces: list[str] = []
    size = 0
    stack: list[Any] = [(formula, 0)]
    while stack:
        item = stack.pop()
        if limit is not None and size > limit:
            return "".join(pieces)[:limit] + "..."
        if isinstance(item, str):
            pieces.append(item)
            size += len(item)
            continue
        node, outer = item
        stack.extend(reversed(_pieces(node, outer)))
    return "".join(pieces)


def _pieces(node: Formula, outer: int) -> list[Any]:
    match node:
        case Variable():
            return [node.name]
        case Constant():
            return ["true" if node.value else "false"]
        case Count():
            inner: list[Any] = [f"count({node.low}, {node.high}; "]
            for position, part in enumerate(node.operands):
                inner += [", " if position else "", (part, 0)]
            return [*inner, ")"]
        case Not():
            return ["~", (node.part, 4)]
    if len(node.parts) == 0:
        return ["true" if isinstance(node, And) else "false"]
    if len(node.parts) == 1:
        return [(node.parts[0], outer)]
    strength = _STRENGTH[type(node)]
    sign = {And: " & ", Or: " | ", ExclusiveOr: " ^ "}[type(node)]
    rows: list[Any] = []
    for position, part in enumerate(node.parts):
        # A nested chain of the same operator needs no parentheses on the left, nor does one that associates.
        bound = strength - (1 if type(part) is type(node) else 0)
        rows += [sign if position else "", (part, bound)]
    return ["(", *rows, ")"] if outer >= strength else rows


# Lowering


def to_nnf(formula: Formula) -> AndOrGraph:
    """Lower to negation normal form: equivalent, negation on variables only, shared parts kept shared.

    Children come before parents; the root is the last node.

    `^` and `count` become decisions on their operands ((a & ~b) | (~a & b); at most operands times bound
    nodes for a count), each of the formula's nodes at most once for each polarity.
    """
    numbers = _numbers(names_of(formula))
    made = NodeLists()
    add = made.add
    literals: dict[int, int] = {}
    known: dict[tuple[int, bool], int] = {}

    def lower(node: Formula, positive: bool) -> int:
        match node:
            case Variable():
                signed = numbers[node.name] if positive else -numbers[node.name]
                if signed not in literals:
                    literals[signed] = add(LITERAL, literal=signed)
                return literals[signed]
            case Constant():
                return add(and_or.TRUE if node.value == positive else and_or.FALSE)
            case Not():
                return known[id(node.part), not positive]
            case And() | Or():
                row = [known[id(part), positive] for part in node.operands]
                return add(AND if isinstance(node, And) == positive else OR, row)
            case ExclusiveOr():
                left, right = node.left, node.right
                same = not positive
                one = add(AND, [known[id(left), True], known[id(right), same]])
                other = add(AND, [known[id(left), False], known[id(right), not same]])
                return add(OR, [one, other])
            case Count():
                return lower_count(node, positive)
        raise AssertionError(type(node))

    def lower_count(node: Count, positive: bool) -> int:
        # Row i maps "this many true among operands i.." to a node; counts beyond high + 1 need no telling apart.
        n = len(node.operands)
        bound = min(n, max(node.high, -1) + 1)
        last = [(node.low <= count <= node.high) == positive for count in range(bound + 1)]
        row = [add(and_or.TRUE if accepted else and_or.FALSE) for accepted in last]
        for i in range(n - 1, -1, -1):
            yes, no = known[id(node.operands[i]), True], known[id(node.operands[i]), False]
            reachable = min(i, bound)
            row = [
                row[count]
                if row[min(count + 1, bound)] == row[count]
                else add(OR, [add(AND, [yes, row[min(count + 1, bound)]]), add(AND, [no, row[count]])])
                for count in range(reachable + 1)
            ] + row[reachable + 1 :]
        return row[0]

    for node, positive in _polarised(formula):
        known[id(node), positive] = lower(node, positive)
    root = known[id(formula), True]
    last = len(made.kinds) - 1
    return made.graph([root if root == last else add(AND, [root])])


def _polarised(formula: Formula) -> Iterator[tuple[Formula, bool]]:
    """(node, polarity) pairs that the root needs positively, parts before wholes."""
    done: set[tuple[int, bool]] = set()
    stack: list[tuple[Formula, bool, bool]] = [(formula, True, False)]
    while stack:
        node, positive, expanded = stack.pop()
        if (id(node), positive) in done:
            continue
        if expanded or not node.parts:
            done.add((id(node), positive))
            yield node, positive
            continue
        stack.append((node, positive, True))
        if isinstance(node, Not):
            needed = [(node.part, not positive)]
        elif isinstance(node, (And, Or)):
            needed = [(part, positive) for part in reversed(node.operands)]
        else:
            needed = [(part, sign) for part in reversed(node.parts) for sign in (False, True)]
        stack.extend((part, sign, False) for part, sign in needed if (id(part), sign) not in done)


def as_clauses(formula: Formula) -> list[list[int]] | None:
    """The clauses of a formula that is a conjunction of clauses as it stands, else None."""
    numbers = _numbers(names_of(formula))
    clauses: list[list[int]] = []
    stack = [formula]
    while stack:
        node = stack.pop()
        if isinstance(node, And):
            stack.extend(reversed(node.operands))
            continue
        clause = _as_clause(node, numbers)
        if clause is None:
            return None
        if clause != [0]:
            clauses.append(clause)
    return clauses


def _as_clause(formula: Formula, numbers: Mapping[str, int]) -> list[int] | None:
    """A disjunction of literals as signed variables; [0] if a constant makes it true; None if it is something else."""
    clause: list[int] = []
    stack = [formula]
    while stack:
        node = stack.pop()
        sign = 1
        while isinstance(node, Not):
            node, sign = node.part, -sign
        if isinstance(node, Or) and sign > 0:
            stack.extend(reversed(node.operands))
        elif isinstance(node, Variable):
            clause.append(sign * numbers[node.name])
        elif isinstance(node, Constant):
            if node.value == (sign > 0):
                return [0]
        else:
            return None
    return clause
