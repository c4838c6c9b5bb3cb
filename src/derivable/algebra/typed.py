"""Operators for leaves of known types: one expression per scalar, from which kernels, derivatives and duals are made.

`monoid.Monoid.typed` and `monoid.trace_elements` make them; `monoid` has their printed form.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from derivable.algebra import expr
from derivable.algebra.expr.nodes import Apply, Argument, Constant, Expr, arguments_of, in_order
from derivable.algebra.expr.types import FLOATS, Dtype


def silenced(adjoints: Sequence[Argument], gradients: Sequence[Expr]) -> tuple[Expr, ...]:
    """Gradients to which an adjoint of 0 contributes 0, whatever it is multiplied by: 0 * inf is NaN.

    gradients  each linear in the adjoints
    """
    return tuple(_silenced(adjoints, gradient) for gradient in gradients)


def _silenced(adjoints: Sequence[Argument], gradient: Expr) -> Expr:
    used = set(arguments_of(gradient))
    live = [argument for argument in adjoints if argument in used]
    factors = [expr.differentiate(gradient, argument) for argument in live]
    if all(_is_choice_of_numbers(factor) for factor in factors):
        return gradient
    terms = [argument * factor for argument, factor in zip(live, factors)] if len(live) > 1 else [gradient]
    total: Expr = Constant(0, gradient.dtype)
    for argument, factor, term in zip(live, factors, terms):
        if not _is_choice_of_numbers(factor):
            term = expr.where(expr.equal(argument, 0), Constant(0, term.dtype), term)
        total = total + (term if term.dtype == gradient.dtype else expr.cast(term, gradient.dtype))
    return expr.simplify(total)


def _is_choice_of_numbers(value: Expr) -> bool:
    """Whether a factor is finite whatever the arguments are."""
    if isinstance(value, Apply) and value.operation == "where":
        return all(_is_choice_of_numbers(branch) for branch in value.operands[1:])
    return isinstance(value, Constant) and math.isfinite(value.value)


class _Evaluated:
    """Expressions whose evaluation is prepared once, as columns of tags are computed in every round of a recursion. A
    copy and another process prepare it for themselves."""

    values: tuple[Expr, ...]

    @cached_property
    def _run(self) -> Callable:
        return expr.interpreter(self.values)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_run"}


@dataclass(frozen=True, eq=False)
class TypedFunction(_Evaluated):
    """A function of elements of known types.

    operands  [operand][component] its arguments
    values    [component] what it gives
    """

    name: str
    operands: tuple[tuple[Argument, ...], ...]
    values: tuple[Expr, ...]

    def __str__(self) -> str:
        shown = [", ".join(str(argument) for argument in operand) for operand in self.operands]
        return f"{self.name}({'; '.join(shown)})\n  {expr.to_text(self.values)}"

    @cached_property
    def adjoints(self) -> tuple[tuple[Argument, ...], tuple[tuple[Expr, ...], ...]]:
        """(arguments that stand for the adjoints of the values, [operand][component] adjoints of the operands).

        An adjoint of 0 contributes 0, whatever it is multiplied by.
        """
        arguments, gradients = expr.vjp(self.values, self._arguments)
        rest = iter(silenced(arguments, gradients))
        return arguments, tuple(tuple(next(rest) for _ in operand) for operand in self.operands)

    @cached_property
    def dual(self) -> TypedFunction:
        """The function with tangents of its first operand: its components, then a tangent for each that is a float.

        A tangent of 0 contributes nothing where the slope is infinite, and is multiplied like any other elsewhere: the
        derivative by it is the slope.
        """
        operand, *others = self.operands
        first = 1 + max(argument.index for part in self.operands for argument in part)
        floats = [argument for argument in operand if argument.dtype in FLOATS]
        along = [Argument(first + k, argument.dtype, f"{argument.name}_t") for k, argument in enumerate(floats)]
        tangents: list[Expr] = [Constant(0, value.dtype) for value in self.values]
        for argument, tangent in zip(floats, along):
            for k, slope in enumerate(expr.differentiate(self.values, argument)):
                if slope.dtype in FLOATS:
                    none, limit = (Constant(number, slope.dtype) for number in (0, math.inf))
                    vanishes = expr.logical_and(expr.equal(tangent, 0), expr.equal(expr.abs(slope), limit))
                    tangents[k] = tangents[k] + expr.where(vanishes, none, slope * tangent)
        tangents = [tangent for tangent, value in zip(tangents, self.values) if value.dtype in FLOATS]
        return TypedFunction(
            f"{self.name} with tangents", ((*operand, *along), *others), (*self.values, *expr.simplify(tangents))
        )

    def apply(self, *operands: Sequence[Any]) -> tuple[Any, ...]:
        """[component] arrays of the value, from [component] arrays of each operand; elementwise."""
        return _evaluated(self._run, self._slots, [array for operand in operands for array in operand])

    @property
    def _arguments(self) -> list[Argument]:
        return [argument for operand in self.operands for argument in operand]

    @cached_property
    def _slots(self) -> list[int]:
        return [argument.index for argument in self._arguments]

    def apply_vjp(self, adjoints: Sequence[Any], *operands: Sequence[Any]) -> tuple[tuple[Any, ...], ...]:
        """[operand][component] adjoints of the operands for those of the value."""
        arguments, gradients = self.adjoints
        arrays = [array for operand in operands for array in operand]
        values = {**dict(zip(self._arguments, arrays)), **dict(zip(arguments, adjoints))}
        pulled = iter(evaluate([g for part in gradients for g in part], values))
        return tuple(tuple(next(pulled) for _ in part) for part in gradients)


_SPECIAL = {
    "add": "add",
    "multiply": "mul",
    "minimum": "min",
    "maximum": "max",
    "logaddexp": "logaddexp",
    "logical_or": "or",
    "logical_and": "and",
}


_POLYNOMIAL = {"add", "subtract", "multiply", "negate"}


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
class TypedMonoid(_Evaluated):
    """A monoid for leaves of known types; see the module.

    leaf_dtypes  [leaf]
    leaf_sizes   [leaf] scalars per leaf
    values       [component]
    neutral      [component] NumPy scalars of the components' types
    commutative  None if nobody knows
    own_adjoints the derivative rule that the monoid declares, None for that of its expressions
    skips_zeros  whether an adjoint of 0 contributes 0 whatever it is multiplied by, so that 0 * inf is not NaN
    """

    name: str
    leaf_dtypes: tuple[Dtype, ...]
    leaf_sizes: tuple[int, ...]
    left: tuple[Argument, ...]
    right: tuple[Argument, ...]
    values: tuple[Expr, ...]
    neutral: tuple[Any, ...]
    commutative: bool | None = None
    own_adjoints: Adjoints | None = None
    skips_zeros: bool = False

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
        rule = self.own_adjoints
        pulled = () if rule is None else (*rule.left, *rule.right)
        return self.leaf_dtypes, self.leaf_sizes, self.left, self.right, self.values, pulled, self.skips_zeros

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

    @cached_property
    def float_leaves(self) -> tuple[int, ...]:
        """The leaves that have derivatives."""
        return tuple(leaf for leaf, dtype in enumerate(self.leaf_dtypes) if dtype in FLOATS)

    @cached_property
    def float_components(self) -> tuple[int, ...]:
        return tuple(k for k, dtype in enumerate(self.dtypes) if dtype in FLOATS)

    @cached_property
    def special(self) -> str | None:
        """ "add", "mul", "min", "max", "logaddexp", "or" or "and" if the operator is just that, else None."""
        if self.size != 1 or self.own_adjoints is not None:
            return None
        (value,) = self.values
        if isinstance(value, Apply) and set(value.operands) == {self.left[0], self.right[0]}:
            return _SPECIAL.get(value.operation)
        return None

    @cached_property
    def extreme(self) -> str | None:
        """ "min" or "max" if the operator picks the lesser or the greater of two numbers that are no NaN, else None.

        It may be written as a choice, `where(b < a, b, a)`; what that does to NaN and ties, `special` operators do not.
        """
        if self.special in ("min", "max"):
            return self.special
        value = self.values[0]
        if self.size != 1 or not isinstance(value, Apply) or value.operation != "where":
            return None
        condition, yes, no = value.operands
        if not isinstance(condition, Apply) or condition.operation not in ("less", "less_equal"):
            return None
        if {yes, no} != {self.left[0], self.right[0]} or {*condition.operands} != {yes, no}:
            return None
        return "min" if condition.operands[0] is yes else "max"

    @cached_property
    def adjoints(self) -> Adjoints:
        """The vjp, simplified. Zero-safe: it divides by nothing that the operator does not divide by."""
        rule = self.own_adjoints
        if rule is None:
            arguments, gradients = expr.vjp(self.values, (*self.left, *self.right))
            rule = Adjoints(arguments, gradients[: self.size], gradients[self.size :])
        if not self.skips_zeros:
            return rule
        left, right = (silenced(rule.arguments, side) for side in (rule.left, rule.right))
        return Adjoints(rule.arguments, left, right)

    @cached_property
    def skipping_zeros(self) -> TypedMonoid:
        """The operator with `skips_zeros`; itself where no factor can be other than finite."""
        skipping = replace(self, skips_zeros=True)
        rule, safe = self.adjoints, skipping.adjoints
        return self if (rule.left, rule.right) == (safe.left, safe.right) else skipping

    @cached_property
    def shows_infinities(self) -> bool:
        """Whether a fold's result is finite only if all numbers are that adjoints are multiplied by.

        So it is with sums and products where each such number goes into the same component of what comes after it.
        """
        rule = self.adjoints
        exprs = [*self.values, *rule.left, *rule.right]
        if not {node.operation for node in in_order(exprs) if isinstance(node, Apply)} <= _POLYNOMIAL:
            return False
        read = set(arguments_of([*rule.left, *rule.right]))
        return all(
            {self.left[k], self.right[k]} <= set(arguments_of(self.values[k]))
            for k in self.float_components
            if {self.left[k], self.right[k]} & read
        )

    def jacobian(self, side: str = "left") -> tuple[tuple[Expr, ...], ...]:
        """[component of the result][component of the operand]: partial derivatives, simplified; 0 is a constant.

        side  "left" or "right"

        Only float components have rows and columns that are not 0.
        """
        operand = self.left if side == "left" else self.right
        rule = self.own_adjoints
        columns = []
        for k, argument in enumerate(operand):
            if argument.dtype in FLOATS and rule is not None:
                # A rule is linear in the adjoints: its derivatives by them are the partial derivatives.
                pulled = (rule.left if side == "left" else rule.right)[k]
                columns.append(tuple(expr.differentiate(pulled, adjoint) for adjoint in rule.arguments))
            elif argument.dtype in FLOATS:
                columns.append(expr.differentiate(self.values, argument))
            else:
                columns.append(tuple(expr.Constant(0, value.dtype) for value in self.values))
        return tuple(zip(*columns))

    @cached_property
    def dual(self) -> TypedMonoid:
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
        partials = {side: self.jacobian(side) for side in ("left", "right")}
        for k, mine in zip((*components, *components), (*left, *right)):
            for target in components:
                term = expr.simplify(partials["left" if mine in left else "right"][target][k] * mine)
                if term.dtype != self.dtypes[target]:
                    term = expr.cast(term, self.dtypes[target])
                tangents[target] = tangents[target] + term
        values = expr.simplify([tangents[k] for k in components])
        return TypedMonoid(
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
        return _evaluated(self._run, self._slots, [*left, *right])

    @cached_property
    def _slots(self) -> list[int]:
        return [argument.index for argument in (*self.left, *self.right)]

    def apply_vjp(self, left: Sequence[Any], right: Sequence[Any], adjoints: Sequence[Any]) -> tuple[tuple, tuple]:
        """Adjoints of a's and of b's components from those of the result's."""
        rules = self.adjoints
        values = {**dict(zip(self.left, left)), **dict(zip(self.right, right)), **dict(zip(rules.arguments, adjoints))}
        pulled = evaluate((*rules.left, *rules.right), values)
        return pulled[: self.size], pulled[self.size :]


def evaluate(exprs: Sequence[Expr], values: dict[Argument, Any]) -> tuple[Any, ...]:
    """Expressions on NumPy arrays, one per argument, broadcast to one shape; constants too."""
    slots = [argument.index for argument in values]
    return _evaluated(expr.interpreter(tuple(exprs)), slots, [*values.values()])


def _evaluated(run: Callable, slots: list[int], arrays: list[Any]) -> tuple[Any, ...]:
    """The values of expressions, broadcast to one shape; argument slots[k] is arrays[k]."""
    arguments: list[Any] = [0] * (1 + max(slots, default=-1))
    for slot, array in zip(slots, arrays):
        arguments[slot] = array
    # Columns of some rows are added up in less time than `np.shape` takes.
    shapes = {array.shape if type(array) is np.ndarray else np.shape(array) for array in arrays}
    shape = shapes.pop() if len(shapes) == 1 else np.broadcast_shapes(*shapes)
    values = run(arguments)
    if all(type(value) is np.ndarray and value.shape == shape for value in values):
        return values
    return tuple([np.broadcast_to(value, shape)[()] if np.shape(value) != shape else value for value in values])
