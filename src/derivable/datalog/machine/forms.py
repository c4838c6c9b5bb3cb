"""Stores of one form: they differ in their relations, their constants and the names of their variables alone.

A program of many rules has few forms. What is planned for one store is planned for all of its form: the kernel is the
same, its tables are the others, and so are the words that it compares with.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from derivable.datalog.fused.kernel_plan import compared_word, is_connective
from derivable.datalog.ram import nodes as m
from derivable.datalog.scalars.nodes import Apply, Const, Var


@dataclass(frozen=True, eq=False)
class Form:
    """A store as one of its form.

    key    equal for stores of one form
    scans  of the relations that it reads, and words: the constants in which stores of its form differ, in order
    """

    key: tuple
    scans: tuple[m.Scan, ...]
    words: tuple[Const, ...]

    @staticmethod
    def of(store: m.Store, kind_of: Callable[[str], int]) -> Form | None:
        """The form of a store; None if it has an operator that is no part of forms.

        kind_of  a number for the tables of a relation that kernels take for one another
        """
        return _Reader(kind_of).form(store)

    def instead_of(self, first: Form) -> dict[int, Any]:
        """id of each scan and word of the first store of this form -> that of this store."""
        return dict(zip(map(id, (*first.scans, *first.words)), (*self.scans, *self.words)))


class _Reader:
    def __init__(self, kind_of: Callable[[str], int]):
        self.kind_of = kind_of
        self.names: dict[str, int] = {}
        # By identity: what is one object in one store is one in all of its form.
        self.scans: dict[int, m.Scan] = {}
        self.words: dict[int, Const] = {}

    def form(self, store: m.Store) -> Form | None:
        parts: list[Any] = [self.kind_of(store.relation)]
        for node in store.query.operators:
            match node:
                case m.Scan():
                    parts.append(("scan", self.scan(node)))
                case m.Join(right=right, range=None):
                    parts.append(("join", self.scan(right)))
                case m.Difference(right=right):
                    parts.append(("difference", self.scan(right)))
                case m.Select(condition=condition):
                    parts.append(("select", self.condition(condition)))
                case m.Extend(variable=v, expression=e):
                    parts.append(("extend", self.expression(e), self.term(v), v.type.name))
                case _:
                    return None
        # Constants that are written are words, those that something is computed from are not.
        parts += [self.term(e) if isinstance(e, (Var, Const)) else self.expression(e) for e in store.query.terms]
        return Form(tuple(parts), tuple(self.scans.values()), tuple(self.words.values()))

    def scan(self, scan: m.Scan) -> tuple:
        number = len(self.scans)
        self.scans.setdefault(id(scan), scan)
        # A scan that is there twice is the same one twice.
        repeated = number == len(self.scans) and list(self.scans).index(id(scan))
        return self.kind_of(scan.relation), scan.part, repeated, *map(self.term, scan.terms)

    def term(self, term: Var | Const | None) -> Any:
        if isinstance(term, Var):
            return self.names.setdefault(term.name, len(self.names))
        return None if term is None else self.word(term)

    def word(self, constant: Const) -> tuple:
        self.words.setdefault(id(constant), constant)
        return "word", list(self.words).index(id(constant)), constant.type.name

    def condition(self, e: Any) -> Any:
        if not isinstance(e, Apply):
            return self.expression(e)
        if is_connective(e):
            return e.operator, *map(self.condition, e.operands)
        compared = compared_word(e)
        if compared is None:
            return self.expression(e)
        parts = (self.word(compared) if part is compared else self.expression(part) for part in e.operands)
        return e.operator, *parts

    def expression(self, e: Any) -> Any:
        if isinstance(e, Var):
            return self.names.setdefault(e.name, len(self.names))
        if isinstance(e, Const):
            # The text tells 0.0 from -0.0.
            return "constant", repr(e.value), e.type.name
        return e.operator, e.type.name, *map(self.expression, e.operands)
