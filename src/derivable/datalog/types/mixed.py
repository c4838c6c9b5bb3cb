"""The types of `+ - * /` whose operands may be dates, durations and tensors.

These mix: a date and a duration make a date, two dates a duration, a duration times or through an i32 is a duration, a
tensor may stand beside an f64. So the operands of such an operator are not unified before it is known that they are
alike.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from derivable.datalog.types.unification import Open, Type, Unifier, resolve, shown
from derivable.datalog.values.values import DATETIME, DURATION, F64, I32, TENSOR, ValueType

ARITHMETIC = ("+", "-", "*", "/", "%")
# (operator, left, right) -> result.
MIXED: dict[tuple[str, ValueType, ValueType], ValueType] = {
    ("+", DATETIME, DURATION): DATETIME,
    ("+", DURATION, DATETIME): DATETIME,
    ("-", DATETIME, DURATION): DATETIME,
    ("-", DATETIME, DATETIME): DURATION,
    ("+", DURATION, DURATION): DURATION,
    ("-", DURATION, DURATION): DURATION,
    ("*", DURATION, I32): DURATION,
    ("*", I32, DURATION): DURATION,
    ("/", DURATION, I32): DURATION,
    **{(operator, *pair): TENSOR for operator in "+-*/" for pair in ((TENSOR, TENSOR), (TENSOR, F64), (F64, TENSOR))},
}
_SPECIAL = (DATETIME, DURATION, TENSOR)
_LEFT, _RIGHT = {left for _, left, _ in MIXED}, {right for _, _, right in MIXED}


@dataclass(frozen=True)
class Operation:
    """An operator whose operands' types are not known yet."""

    node: Any
    left: Type
    right: Type
    result: Open


class Mixed(Unifier):
    """Unification of what arithmetic operators take and give."""

    def __init__(self, syntax: Any):
        super().__init__(syntax)
        self.waiting: list[Operation] = []

    def arithmetic(self, node: Any, left: Type, right: Type) -> Type:
        """The type of `node`, an operator on these types."""
        a, b = resolve(left), resolve(right)
        if (isinstance(a, ValueType) and a not in _LEFT) or (isinstance(b, ValueType) and b not in _RIGHT):
            return self.alike(node, left, right)
        operation = Operation(node, left, right, Open())
        if not self._decide(operation, last=False):
            self.waiting.append(operation)
        return operation.result

    def alike(self, node: Any, left: Type, right: Type) -> Type:
        """The type of an operator whose operands and result have one type."""
        self.unify(right, left, node.right.span, f"the left side of `{node.operator}`")
        self.require(left, "addable" if node.operator == "+" else "number", node.span, f"`{node.operator}`")
        return left

    def decide(self, last: bool = False) -> None:
        """Decide what can be decided now; at the `last` call everything is."""
        while self.waiting:
            left = [operation for operation in self.waiting if not self._decide(operation, last=False)]
            if len(left) == len(self.waiting):
                break
            self.waiting = left
        if last:
            while self.waiting:
                self._decide(self.waiting.pop(0), last=True)
                self.decide()

    def _decide(self, operation: Operation, last: bool) -> bool:
        node = operation.node
        a, b, result = resolve(operation.left), resolve(operation.right), resolve(operation.result)
        fitting = [
            (*pair, made)
            for (operator, *pair), made in MIXED.items()
            if operator == node.operator and all(map(self.may_be, (a, b, result), (*pair, made)))
        ]
        if a not in _SPECIAL and b not in _SPECIAL:
            if fitting and not last:
                return False
            self.unify(operation.result, self.alike(node, operation.left, operation.right), node.span, "this")
            return True
        if not fitting:
            known = [f"{x} {o} {y}" for (o, x, y) in MIXED if o == node.operator and (x in (a, b) or y in (a, b))]
            self.mismatch(
                f"type clash: `{node.operator}` cannot stand between {shown(a)} and {shown(b)}",
                node.span,
                f"there is {', '.join(known)}" if known else None,
            )
        if len(fitting) > 1 and not last:
            return False
        left, right, made = fitting[0]
        self.unify(operation.left, left, node.left.span, f"the left side of `{node.operator}`")
        self.unify(operation.right, right, node.right.span, f"the right side of `{node.operator}`")
        self.unify(operation.result, made, node.span, "this")
        return True
