"""The types of arguments: values of one kind are held as they are, others as terms.

Prolog has no types. Arguments and variables that meet in some clause form one class, and a class has the kinds of all
constants that reach it. A class of integers, of floats, of atoms or of texts is a column of `i64`, `f64`, `String` or
`Symbol`; any other one, such as `p(1). p(f(a)).`, is a column of terms, in which numbers and atoms are wrapped.
"""

from __future__ import annotations

from collections.abc import Iterable

from derivable.core.diagnostics import Span
from derivable.datalog.problog import goals as g
from derivable.datalog.problog.terms import Compound, Number, Term, Text, Var

TERM = "Term"
TYPES = {"integer": "i64", "float": "f64", "atom": "String", "string": "Symbol"}
NUMERIC = ("integer", "float")
Key = tuple
# Functions of one argument whose value is an integer, whatever the argument is.
TO_INTEGER = ("truncate", "integer", "round", "ceiling", "floor", "sign")
TO_FLOAT = ("float", "sqrt", "exp", "log", "sin", "cos", "tan", "asin", "acos", "atan", "log2")


class Kinds:
    """The classes of one program."""

    def __init__(self, source: g.Source):
        self.parents: dict[Key, Key] = {}
        self.kinds: dict[Key, dict[str, Span]] = {}
        self.functors: dict[tuple[str, int], Span] = {}
        self.constants = 0
        self.computed: list[tuple[int, Key, Term]] = []
        for clause in source.clauses:
            for _, head in clause.heads:
                self.atom(clause.number, head)
            self.goal(clause.number, clause.body)
        for query in source.queries:
            self.atom(query.number, query.atom)
            self.goal(query.number, query.body)
        for item in source.evidence:
            self.atom(item.number, item.atom)
        self.compute()

    # Classes

    def root(self, key: Key) -> Key:
        while (parent := self.parents.setdefault(key, key)) != key:
            self.parents[key] = self.parents[parent]
            key = self.parents[key]
        return key

    def unite(self, a: Key, b: Key) -> None:
        a, b = self.root(a), self.root(b)
        if a != b:
            self.parents[b] = a
            for kind, span in self.kinds.pop(b, {}).items():
                self.kinds.setdefault(a, {}).setdefault(kind, span)

    def add(self, key: Key, kind: str, span: Span) -> bool:
        """Whether this is new."""
        kinds = self.kinds.setdefault(self.root(key), {})
        is_new = kind not in kinds
        kinds.setdefault(kind, span)
        return is_new

    def key(self, number: int, term: Term) -> Key:
        """The class of a term in a clause."""
        if isinstance(term, Var):
            return "variable", number, term.name
        self.constants += 1
        key = "constant", self.constants
        match term:
            case Number(value=int()):
                self.add(key, "integer", term.span)
            case Number():
                self.add(key, "float", term.span)
            case Text():
                self.add(key, "string", term.span)
            case Compound(functor="[]", arguments=()):
                self.functors.setdefault(term.key, term.span)
                self.add(key, "[]/0", term.span)
            case Compound(arguments=()):
                self.add(key, "atom", term.span)
            case Compound(arguments=arguments):
                self.functors.setdefault(term.key, term.span)
                self.add(key, term.indicator, term.span)
                for i, argument in enumerate(arguments):
                    self.unite(("field", *term.key, i), self.key(number, argument))
        return key

    def atom(self, number: int, atom: Compound) -> None:
        for i, argument in enumerate(atom.arguments):
            self.unite(("column", *atom.key, i), self.key(number, argument))

    def goal(self, number: int, goal: g.Goal) -> None:
        match goal:
            case g.Call(atom=atom):
                self.atom(number, atom)
            case g.Unify(left=a, right=b) | g.Differ(left=a, right=b):
                self.unite(self.key(number, a), self.key(number, b))
            case g.Is(result=result, expression=expression):
                self.computed.append((number, self.key(number, result), expression))
            case g.Between(value=value):
                self.add(self.key(number, value), "integer", value.span)
            case g.Total(operator="count", result=result):
                self.add(self.key(number, result), "integer", result.span)
            case g.Total(expression=expression, result=result) if expression is not None:
                self.computed.append((number, self.key(number, result), expression))
        for inside in g.goals_of(goal):
            self.goal(number, inside)

    def compute(self) -> None:
        """The kinds of what arithmetic computes, until none is new."""
        is_new = True
        while is_new:
            is_new = False
            for number, key, expression in self.computed:
                for kind in self.of_expression(number, expression):
                    is_new = self.add(key, kind, expression.span) or is_new

    def of_expression(self, number: int, term: Term) -> set[str]:
        """The kinds of numbers that an expression may have."""
        match term:
            case Number(value=value):
                return {"integer" if isinstance(value, int) else "float"}
            case Var():
                return {kind for kind in self.of(("variable", number, term.name)) if kind in NUMERIC}
            case Compound(functor="/", arguments=(_, _)):
                return {"float"}
            case Compound(functor=functor, arguments=(_,)) if functor in TO_INTEGER:
                return {"integer"}
            case Compound(functor=functor, arguments=(_,)) if functor in TO_FLOAT:
                return {"float"}
            case Compound(functor="pi" | "e" | "inf", arguments=()):
                return {"float"}
            case Compound(arguments=arguments):
                return result_kinds(self.of_expression(number, argument) for argument in arguments)
        return set()

    # What is known at the end

    def of(self, key: Key) -> dict[str, Span]:
        return self.kinds.get(self.root(key), {})

    def type_of(self, key: Key) -> str:
        kinds = self.of(key)
        if not kinds:
            return "String"
        return TYPES.get(next(iter(kinds)), TERM) if len(kinds) == 1 else TERM

    def of_variable(self, number: int, name: str) -> str:
        return self.type_of(("variable", number, name))


def result_kinds(operands: Iterable[set[str]]) -> set[str]:
    """The kinds of a sum or product: an integer of integers alone."""
    kinds_of = {"integer"}
    for kinds in operands:
        if not kinds:
            return set()
        kinds_of = {"integer" if a == b == "integer" else "float" for a in kinds_of for b in kinds}
    return kinds_of
