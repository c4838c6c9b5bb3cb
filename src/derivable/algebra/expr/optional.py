"""Expressions that may have no value: an expression, and a bool expression that says whether its value is there.

    >>> from derivable.algebra import expr
    >>> a, b = (expr.Optional(expr.Argument(k, "int32", name)) for k, name in enumerate("ab"))
    >>> quotient = expr.optional("truncate_divide", a, b)
    >>> print(quotient.value, "; valid:", quotient.valid)
    truncate_divide(a, b) ; valid: b != 0 & (b != -1 | a != -2147483648)

A value that is not there is any number of its type, never an error. Which operation has no value where is the field
`defined` of its row in the table: NaN, division by the integer 0, a quotient that is no integer of the type.
"""

from __future__ import annotations

from dataclasses import dataclass

from derivable.algebra.expr.functions import apply, where
from derivable.algebra.expr.nodes import Constant, Expr
from derivable.algebra.expr.operations import OPERATIONS

TRUE = Constant(True, "bool")


@dataclass(frozen=True)
class Optional:
    """`value` where `valid`, a bool expression; else nothing."""

    value: Expr
    valid: Expr = TRUE

    def only_if(self, condition: Expr) -> Optional:
        """The same, where the condition holds too."""
        return Optional(self.value, _both(self.valid, condition))


def optional(name: str, *operands: Optional) -> Optional:
    """An operation on optional values, which has a value where it is defined and its operands have theirs.

    `where` asks for the value of the branch that it takes, and not of the other one. Raises TypeMismatchError as
    `expr.apply` does.
    """
    values = tuple(operand.value for operand in operands)
    answer = Optional(apply(name, *values))
    if name == "where":
        condition, a, b = operands
        branch = a.valid if a.valid is b.valid else where(values[0], a.valid, b.valid)
        return answer.only_if(condition.valid).only_if(branch)
    for operand in operands:
        answer = answer.only_if(operand.valid)
    defined = OPERATIONS[name].defined
    return answer if defined is None else answer.only_if(defined(answer.value, *values))


def _both(a: Expr, b: Expr) -> Expr:
    if a is b or b is TRUE:
        return a
    return b if a is TRUE else a & b
