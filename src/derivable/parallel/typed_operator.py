"""An operator for elements of known types: the expressions that its kernels, derivatives and other forms are made of.

An element has components: the scalars of its leaves, from left to right. Component k of `a op b` is the expression
`values[k]` of the arguments `left` (components of a) and `right` (components of b).

Printed form of the composition of linear functions, `lambda f, g: (f[0] * g[0], f[1] * g[0] + g[1])`:

    linear(a: (float64, float64), b: (float64, float64)), neutral (1.0, 0.0)
      (a_0 * b_0, a_1 * b_0 + b_1)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from derivable.algebra import expr
from derivable.algebra.expr.nodes import Apply, Argument, Expr
from derivable.algebra.expr.types import FLOATS, Dtype

_SPECIAL = {
    "add": "add",
    "multiply": "mul",
    "minimum": "min",
    "maximum": "max",
    "logaddexp": "logaddexp",
    "logical_or": "or",
    "logical_and": "and",
}


@dataclass(frozen=True)
class Adjoints:
    """The vjp of an operator: with adjoints of its components as arguments, those of both operands.

    arguments  one per component of the result; those of components that are not floats occur nowhere
    left       [component] the adjoints of a's components; the constant 0 for those that are not floats
    right      the same for b
    """

    arguments: tuple[Argument, ...]
    left: tuple[Expr, ...]
    right: tuple[Expr, ...]


@dataclass(frozen=True, eq=False)
class TypedOperator:
    """See the module.

    leaf_dtypes  [leaf]
    leaf_sizes   [leaf] scalars per leaf
    values       [component]
    neutral      [component] NumPy scalars of the components' types
    commutative  None if nobody knows
    """

    name: str
    leaf_dtypes: tuple[Dtype, ...]
    leaf_sizes: tuple[int, ...]
    left: tuple[Argument, ...]
    right: tuple[Argument, ...]
    values: tuple[Expr, ...]
    neutral: tuple[Any, ...]
    commutative: bool | None = None

    def __str__(self) -> str:
        kinds = ", ".join(self.dtypes)
        shown = [kinds if self.size == 1 else f"({kinds})", ", ".join(str(value) for value in self.neutral)]
        if self.size > 1:
            shown[1] = f"({shown[1]})"
        body = "\n".join(f"  {line}" for line in expr.to_text(self.values).split("\n"))
        return f"{self.name}(a: {shown[0]}, b: {shown[0]}), neutral {shown[1]}\n{body}"

    @property
    def size(self) -> int:
        """Scalars per element."""
        return len(self.values)

    @property
    def key(self) -> tuple:
        """What generated code depends on: equal keys, equal kernels."""
        return self.leaf_dtypes, self.leaf_sizes, self.left, self.right, self.values

    @cached_property
    def dtypes(self) -> tuple[Dtype, ...]:
        """[component]"""
        return tuple(dtype for dtype, size in zip(self.leaf_dtypes, self.leaf_sizes) for _ in range(size))

    @cached_property
    def starts(self) -> tuple[int, ...]:
        """[leaf + 1] the first component of each leaf, and the number of components."""
        starts = [0]
        for size in self.leaf_sizes:
            starts.append(starts[-1] + size)
        return tuple(starts)

    @property
    def float_leaves(self) -> tuple[int, ...]:
        """The leaves that have derivatives."""
        return tuple(leaf for leaf, dtype in enumerate(self.leaf_dtypes) if dtype in FLOATS)

    @property
    def float_components(self) -> tuple[int, ...]:
        return tuple(k for k, dtype in enumerate(self.dtypes) if dtype in FLOATS)

    @cached_property
    def special(self) -> str | None:
        """ "add", "mul", "min", "max", "logaddexp", "or" or "and" if the operator is just that, else None."""
        if self.size != 1:
            return None
        (value,) = self.values
        if isinstance(value, Apply) and set(value.operands) == {self.left[0], self.right[0]}:
            return _SPECIAL.get(value.operation)
        return None

    @cached_property
    def linear(self) -> tuple[int, int] | None:
        """(factor, term): the leaves of linear functions x -> factor * x + term, if the operator composes them, the
        left one first, and both are float scalars of one type; else None."""
        if self.leaf_sizes != (1, 1) or len(set(self.leaf_dtypes)) > 1 or not self.float_leaves:
            return None
        for factor, term in ((0, 1), (1, 0)):
            by = self.right[factor]
            total = self.values[term]
            if not isinstance(total, Apply) or total.operation != "add":
                continue
            scaled = [x for x in total.operands if _is_product(x, self.left[term], by)]
            if (
                scaled
                and self.right[term] in total.operands
                and _is_product(self.values[factor], self.left[factor], by)
            ):
                return factor, term
        return None

    @cached_property
    def adjoints(self) -> Adjoints:
        """The vjp, simplified. Zero-safe: it divides by nothing that the operator does not divide by."""
        arguments, gradients = expr.vjp(self.values, (*self.left, *self.right))
        return Adjoints(arguments, gradients[: self.size], gradients[self.size :])

    def jacobian(self, side: str = "left") -> tuple[tuple[Expr, ...], ...]:
        """[component of the result][component of the operand]: partial derivatives, simplified; 0 is a constant.

        side  "left" or "right"

        Only float components have rows and columns that are not 0.
        """
        operand = self.left if side == "left" else self.right
        columns = []
        for argument in operand:
            if argument.dtype in FLOATS:
                columns.append(expr.differentiate(self.values, argument))
            else:
                columns.append(tuple(expr.Constant(0, value.dtype) for value in self.values))
        return tuple(zip(*columns))

    @cached_property
    def dual(self) -> TypedOperator:
        """The operator on elements with tangents: leaves, then a tangent leaf for each float leaf.

        It is associative and has a neutral element (with tangent 0) if this one does, so forward mode is the same
        fold with another operator, at any order.
        """
        first = 1 + max(argument.index for argument in (*self.left, *self.right))
        leaves = self.float_leaves
        components = [k for leaf in leaves for k in range(self.starts[leaf], self.starts[leaf + 1])]
        left = tuple(Argument(first + i, self.dtypes[k], f"{self.left[k].name}_t") for i, k in enumerate(components))
        first += len(components)
        right = tuple(Argument(first + i, self.dtypes[k], f"{self.right[k].name}_t") for i, k in enumerate(components))
        tangents: dict[int, Expr] = {k: expr.Constant(0, self.dtypes[k]) for k in components}
        for k, mine in zip((*components, *components), (*left, *right)):
            operand = self.left[k] if mine in left else self.right[k]
            partials = expr.differentiate(self.values, operand)
            for target in components:
                term = expr.simplify(partials[target] * mine)
                if term.dtype != self.dtypes[target]:
                    term = expr.cast(term, self.dtypes[target])
                tangents[target] = tangents[target] + term
        values = expr.simplify([tangents[k] for k in components])
        return TypedOperator(
            name=f"{self.name} with tangents",
            leaf_dtypes=(*self.leaf_dtypes, *(self.leaf_dtypes[leaf] for leaf in leaves)),
            leaf_sizes=(*self.leaf_sizes, *(self.leaf_sizes[leaf] for leaf in leaves)),
            left=(*self.left, *left),
            right=(*self.right, *right),
            values=(*self.values, *values),
            neutral=(*self.neutral, *(np.dtype(self.dtypes[k]).type(0) for k in components)),
            commutative=self.commutative,
        )

    def apply(self, left: Sequence[Any], right: Sequence[Any]) -> tuple[Any, ...]:
        """What the operator means: component arrays (or scalars) of a and b -> those of `a op b`, elementwise."""
        return evaluate(self.values, {**dict(zip(self.left, left)), **dict(zip(self.right, right))})

    def apply_vjp(self, left: Sequence[Any], right: Sequence[Any], adjoints: Sequence[Any]) -> tuple[tuple, tuple]:
        """Adjoints of a's and of b's components from those of the result's."""
        rules = self.adjoints
        values = {**dict(zip(self.left, left)), **dict(zip(self.right, right)), **dict(zip(rules.arguments, adjoints))}
        found = evaluate((*rules.left, *rules.right), values)
        return found[: self.size], found[self.size :]


def _is_product(value: Expr, left: Argument, right: Argument) -> bool:
    return isinstance(value, Apply) and value.operation == "multiply" and set(value.operands) == {left, right}


def evaluate(exprs: Sequence[Expr], values: dict[Argument, Any]) -> tuple[Any, ...]:
    """Expressions on NumPy arrays, one per argument, broadcast to one shape; constants too."""
    slots: list[Any] = [0] * (1 + max((argument.index for argument in values), default=-1))
    shape = np.broadcast_shapes(*(np.shape(value) for value in values.values()))
    for argument, value in values.items():
        slots[argument.index] = value
    found = expr.interpret(tuple(exprs), slots)
    return tuple(np.broadcast_to(value, shape)[()] for value in found)
