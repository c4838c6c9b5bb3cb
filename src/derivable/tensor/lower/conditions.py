"""Conditions, and guards among them: what runs where a number or a tensor is not zero.

Where a result has a place for each value, or is a number, a guard is a branch. Where the entries of a result are found
first and its values then, a guard must not decide which entries there are: what it leaves out becomes zero.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from functools import reduce
from typing import TYPE_CHECKING, Any

from derivable.algebra.expr.functions import apply, lift
from derivable.algebra.expr.nodes import Constant, Expr
from derivable.kernel import nodes as n
from derivable.tensor.analysis.bound import Bound, Closure, Names, Scalar, Values, type_of
from derivable.tensor.language import nodes as t
from derivable.tensor.language.linearity import conjuncts, guarded_part

if TYPE_CHECKING:
    from derivable.tensor.lower.lower import Lowering


class Conditions:
    """Emits the conditions of a lowering."""

    def __init__(self, lowering: Lowering):
        self.lowering = lowering

    @contextmanager
    def when(self, condition: t.Node, names: Names) -> Iterator[None]:
        """What is emitted runs where a condition holds; where guards fail, entries may stay with the value zero."""
        with ExitStack() as stack:
            for term in conjuncts(condition):
                part = guarded_part(term)
                if part is None or not self.lowering.keeps:
                    stack.enter_context(self.lowering.build.when(self.lowering.scalar(term, names)[0]))
                else:
                    stack.enter_context(self._when_stored(part, names))
            yield

    @contextmanager
    def _when_stored(self, node: t.Node, names: Names) -> Iterator[None]:
        of = type_of(node, names)
        if of is None:
            is_stored, is_nonzero = Constant(False, "bool"), Constant(False, "bool")
        elif of.is_scalar:
            bound = self.lowering.bind(node, names)
            bound = self.lowering.total(bound.node, bound.names) if isinstance(bound, Closure) else bound
            assert isinstance(bound, Scalar)
            is_stored, is_nonzero = bound.found, self.differs(bound.values)
        else:
            is_stored, is_nonzero = self.lowering.build.let("found", False), self.lowering.build.let("nonzero", False)
            bound = self.lowering.bind(node, names)
            self.find(bound, is_stored, lambda value: True)
            self.find(bound, is_nonzero, lambda value: self.differs(value.values))
        with nullcontext() if is_stored is None else self.lowering.build.when(is_stored):
            self.lowering.guards.append(is_nonzero)
            yield
            self.lowering.guards.pop()

    def is_nonzero(self, node: t.Node, names: Names) -> Expr:
        """Whether a number, or an entry of a tensor, is not zero."""
        of = type_of(node, names)
        if of is None:
            return Constant(False, "bool")
        if of.is_scalar:
            return self.differs(self.lowering.scalar(node, names))
        found = self.lowering.build.let("nonzero", False)
        self.find(self.lowering.bind(node, names), found, lambda value: self.differs(value.values))
        return found

    def differs(self, values: Values) -> Expr:
        """Whether a number is not zero."""
        terms = [lift(apply("not_equal", x, zero)) for x, zero in zip(values, self.lowering.zero)]
        return reduce(lambda left, right: lift(apply("logical_or", left, right)), terms)

    def find(self, bound: Bound, found: n.Register, test: Callable[[Scalar], Any]) -> None:
        """Set `found` if a test holds for an entry of a tensor; a loop ends with the first one."""
        num_loops = self.lowering.build.num_loops

        def visit(key: Scalar, value: Bound) -> None:
            if not isinstance(value, Scalar):
                self.lowering.entries(value, visit)
                return
            is_there = test(value)
            with nullcontext() if is_there is True else self.lowering.build.when(is_there):
                self.lowering.build.set(found, True)
                if self.lowering.build.num_loops > num_loops:
                    self.lowering.build.break_()

        self.lowering.entries(bound, visit)
