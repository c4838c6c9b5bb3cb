"""What kernels look like in every language that looks like Python: blocks, names, and short expressions in one line."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable

from derivable.algebra.expr.emit import constant_source
from derivable.algebra.expr.nodes import Apply, Argument, Constant, Expr
from derivable.algebra.expr.operations import OPERATIONS
from derivable.algebra.expr.types import INTEGERS
from derivable.kernel import nodes as n
from derivable.kernel.check import check

_INFIX = ("add", "subtract", "multiply", "less", "less_equal", "equal", "not_equal", "logical_and", "logical_or")
# What fits into a line of text without a name for its parts.
_SHORT = 4


class Printer(ABC):
    """The text of one valid kernel."""

    def __init__(self, kernel: n.Kernel):
        self.kernel = kernel
        self.lines = check(kernel)
        self.temporaries = 0

    @abstractmethod
    def statement(self, statement: n.Statement, lines: list[str]) -> None:
        """Add the lines of one statement."""

    @abstractmethod
    def scalar(self, value: Expr, lines: list[str]) -> str:
        """The text of a scalar; statements that it needs go to `lines`."""

    def fresh(self, letter: str = "t") -> str:
        """The name of a new temporary."""
        self.temporaries += 1
        return f"{letter}_{self.temporaries}"

    def block(self, block: Iterable[n.Statement]) -> list[str]:
        lines: list[str] = []
        for statement in block:
            self.statement(statement, lines)
        return lines or ["pass"]

    def branch(self, statement: n.If, lines: list[str]) -> None:
        lines += [f"if {self.scalar(statement.condition, lines)}:", *indented(self.block(statement.body))]
        if statement.otherwise:
            lines += ["else:", *indented(self.block(statement.otherwise))]


def infix(value: Expr, depth: int = 0) -> str | None:
    """An expression in one line of infix text, or None if it is not short or not infix."""
    if isinstance(value, Constant):
        plain = value.dtype in ("int64", "bool") or (value.dtype == "float64" and abs(value.value) < 1e300)
        text = repr(value.value) if plain else constant_source("triton", value)
        return f"({text})" if text.startswith("-") and depth else text
    if isinstance(value, Argument):
        return value.name
    assert isinstance(value, Apply)
    if depth >= _SHORT:
        return None
    if value.operation == "logical_not":
        inner = infix(value.operands[0], depth + 1)
        return None if inner is None else f"(not {inner})"
    # For narrow integers the table may have more than a symbol.
    narrow = value.dtype in INTEGERS and value.dtype not in ("int64", "uint64")
    if value.operation not in _INFIX or narrow:
        return None
    left, right = (infix(operand, depth + 1) for operand in value.operands)
    if left is None or right is None:
        return None
    text = str(OPERATIONS[value.operation].numba).format(left, right)
    return f"({text})" if depth else text


def indented(lines: Iterable[str]) -> list[str]:
    return [f"    {line}" for line in lines]
