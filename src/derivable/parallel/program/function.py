"""Scalar expressions that column programs apply to columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

from derivable.algebra.expr.functions import apply, lift
from derivable.algebra.expr.nodes import Argument, Expr
from derivable.algebra.expr.nodes import Constant as Literal
from derivable.algebra.semiring import Semiring
from derivable.algebra.typed import Adjoints, TypedFunction, TypedMonoid, silenced


@dataclass(frozen=True)
class Function:
    """Scalar expressions that a column program applies to columns; printed by its name.

    values     [result]
    arguments  [operand]; an operand is cast to the type of its argument
    rule       its vjp, where that is not to be that of the expressions
    """

    name: str
    values: tuple[Expr, ...]
    arguments: tuple[Argument, ...]
    rule: Adjoints | None = None

    @staticmethod
    def of(name: str, function: TypedFunction | TypedMonoid) -> Function:
        """An operation of a typed semiring, such as its times."""
        if isinstance(function, TypedMonoid):
            return Function(name, function.values, (*function.left, *function.right), function.own_adjoints)
        return Function(name, function.values, tuple(a for operand in function.operands for a in operand))

    @staticmethod
    @lru_cache(256)
    def named(operation: str, dtypes: tuple[Any, ...], semiring: Semiring | None) -> Function:
        """An operation of `algebra.expr` on operands of these types, or `times` of a semiring."""
        if operation == "times":
            assert semiring is not None
            return Function.of("times", semiring.typed(dtypes[0] if dtypes[0] != "bool" else "float64").times)
        arguments = tuple(Argument(k, dtype) for k, dtype in enumerate(dtypes))
        return Function(operation, (lift(apply(operation, *arguments)),), arguments)

    @cached_property
    def vjp(self) -> tuple[Function, tuple[int, ...]]:
        """The function of its operands and of adjoints [result] to adjoints of some operands, and the numbers of these
        operands; the other ones get no adjoint. An adjoint of 0 contributes 0, whatever it is multiplied by."""
        if self.rule is None:
            arguments, (gradients,) = TypedFunction(self.name, (self.arguments,), self.values).adjoints
        else:
            arguments = self.rule.arguments
            gradients = silenced(arguments, (*self.rule.left, *self.rule.right))
        live = tuple(
            k for k, gradient in enumerate(gradients) if not (isinstance(gradient, Literal) and gradient.value == 0)
        )
        pulled = tuple(gradients[k] for k in live)
        return Function(f"vjp of {self.name}", pulled, (*self.arguments, *arguments)), live

    def by_index(self, operands: Sequence[Any]) -> list[Any]:
        """The operands where `algebra.expr.interpret` looks for them."""
        found: list[Any] = [None] * (1 + max((a.index for a in self.arguments), default=-1))
        for argument, value in zip(self.arguments, operands):
            found[argument.index] = value
        return found
