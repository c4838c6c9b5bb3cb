"""A monoid: an associative operator on an element, with its neutral element, traced from a Python function.

A `Monoid` is what a user writes. `typed` gives its form for leaves of known types, a `TypedMonoid`: one expression per
scalar, from which kernels, derivatives and other forms (`dual`, `algebra.recurrence`) are made. Component k of
`a op b` is the expression `values[k]` of the arguments `left` (components of a) and `right` (components of b). Other
functions of elements, such as a semiring's complement, become a `TypedFunction`.

Printed form of the composition of linear functions, `lambda f, g: (f[0] * g[0], f[1] * g[0] + g[1])`:

    linear(a: (float64, float64), b: (float64, float64)), neutral (1.0, 0.0)
      (a_0 * b_0, a_1 * b_0 + b_1)
"""

from __future__ import annotations

import inspect
import math
import threading
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from derivable.algebra import expr
from derivable.algebra.element import Element, components, compose, element_of, flatten
from derivable.algebra.expr import parameters
from derivable.algebra.expr.nodes import Argument, Constant
from derivable.algebra.expr.types import FLOATS
from derivable.algebra.typed import Adjoints, TypedFunction, TypedMonoid
from derivable.core.diagnostics import ShapeError, TypeMismatchError, UnsupportedError
from derivable.core.forks import renew_in_children

SCALAR = Element(())


@dataclass(frozen=True)
class Monoid:
    """An associative operator of two elements, which are scalars unless `element` says otherwise.

    function     traceable on two elements; of scalars it also works on NumPy arrays
    kinds        the dtype kinds it takes: "b" bool, "i" int64, "f" float32 and float64, "O" exact Python integers
    neutral      what an empty fold gives, nested like `element`; an infinite one is the extreme integer of integers
    commutative  None if nobody knows
    rule         (a, b, adjoint) -> (adjoint of a, adjoint of b), traceable, where the derivative is not to be that of
                 `function`, as for a sum that is cut but lets gradients pass
    """

    name: str
    function: Callable[[Any, Any], Any]
    kinds: str
    neutral: Any
    element: Element = SCALAR
    commutative: bool | None = True
    rule: Callable[[Any, Any, Any], Any] | None = None

    def __hash__(self) -> int:
        # Neutral elements may be arrays.
        return hash((self.name, self.function, self.kinds, self.element))

    def __repr__(self) -> str:
        return f"<{self.name} on {self.element}>"

    def neutral_for(self, dtype: Any) -> Any:
        """The neutral element of a scalar operator as a scalar of `dtype`."""
        return _neutral_scalar(self.neutral, np.dtype(dtype))

    def __call__(self, a: Any, b: Any) -> Any:
        """`a op b`: on scalars and arrays of them for a scalar operator, else on one pair of elements."""
        with np.errstate(all="ignore"):
            return self.function(a, b)

    def typed(self, dtypes: Sequence[Any]) -> TypedMonoid:
        """The operator on elements whose leaves have these types: traced once for each combination.

        Raises UnsupportedError if the function decides on a value, with the line; TypeMismatchError if its result
        is not nested or typed like its operands.
        """
        found, tensors = self.with_parameters(dtypes)
        if tensors:
            raise UnsupportedError(
                f"the operator {self.name} holds a tensor",
                hint="only folds of arrays, such as `scan`, see the parameters of their operators: write a number",
            )
        return found

    def with_parameters(self, dtypes: Sequence[Any]) -> tuple[TypedMonoid, list[Any]]:
        """The operator as `typed` gives it, with one more leaf for each tensor that its function holds, and these.

        A function that holds tensors runs in each call, to see those that it has by now. Raises as `typed` does, and
        TypeMismatchError for tensors of more than one number.
        """
        names = tuple(str(np.dtype(dtype)) for dtype in dtypes)
        with _lock:
            known = _typed.setdefault(self.function, {})
            key = (names, self.element, self.name, frozen(self.neutral), self.commutative, self.rule)
            found, tensors = known.get(key), []
            if found is None or len(found.leaf_sizes) > len(names):
                traced, tensors = _trace(self, names)
                if found is None or traced.key != found.key:
                    found = known[key] = traced
            return found, tensors


_lock = threading.RLock()
# Functions are the keys, weakly: an operator made in a loop does not outlive its last use.
_typed: weakref.WeakKeyDictionary[Callable, dict[tuple, TypedMonoid]] = weakref.WeakKeyDictionary()


renew_in_children(globals(), _lock=threading.RLock)


def _neutral_scalar(value: Any, dtype: np.dtype) -> Any:
    if dtype.kind == "O":
        return value
    if dtype.kind == "i" and isinstance(value, (float, np.floating)) and math.isinf(value):
        return dtype.type(np.iinfo(dtype).max if value > 0 else np.iinfo(dtype).min)
    return dtype.type(value)


def frozen(neutral: Any) -> Any:
    """Something hashable for a neutral element, which may hold arrays."""
    if isinstance(neutral, np.ndarray):
        return neutral.dtype.str, neutral.shape, neutral.tobytes()
    if neutral is None or isinstance(neutral, (bool, int, float, np.generic)):
        return type(neutral), neutral
    return tuple(frozen(leaf) for leaf in flatten(element_of(neutral), neutral, "the neutral element"))


def _trace(monoid: Monoid, dtypes: tuple[str, ...]) -> tuple[TypedMonoid, list[Any]]:
    element, sizes = monoid.element, monoid.element.leaf_sizes
    operand = (element, monoid.neutral, dtypes)
    operands = {"a": operand, "b": operand}
    types = tuple(dtype for dtype, size in zip(dtypes, sizes) for _ in range(size))
    leaf_dtypes: Any = dtypes
    with parameters.collected(2 * len(types), leaf_dtypes) as held:
        function = trace_elements(f"the operator {monoid.name}", monoid.function, operands, element, types)
    left, right = function.operands
    own = None
    if monoid.rule is not None:
        if held.tensors:
            raise UnsupportedError(
                f"the operator {monoid.name} has a derivative rule and holds a tensor", hint="write a number"
            )
        operands["adjoint"] = operand
        pair = Element(None, (element, element))
        rule = trace_elements(f"the derivative rule of {monoid.name}", monoid.rule, operands, pair, types * 2)
        own = Adjoints(rule.operands[2], rule.values[: len(left)], rule.values[len(left) :])
    scalars = components(element, monoid.neutral, "the neutral element")
    neutral = tuple(_neutral_scalar(scalar, np.dtype(argument.dtype)) for scalar, argument in zip(scalars, left))
    made = TypedMonoid(
        monoid.name,
        (*leaf_dtypes, *held.dtypes),
        (*sizes, *(1 for _ in held.tensors)),
        (*left, *held.left),
        (*right, *held.right),
        (*function.values, *held.values),
        (*neutral, *held.neutral),
        monoid.commutative,
        own,
    )
    return made, held.tensors


def trace_elements(
    name: str,
    function: Callable,
    operands: Mapping[str, tuple[Element, Any, Sequence[str]]],
    result: Element | None = None,
    dtypes: Sequence[str] | None = None,
) -> TypedFunction:
    """A function of elements as expressions.

    name      what it is, for messages
    operands  name -> (its nesting, a value with the containers to use, the types of its leaves)
    result    the nesting that its value must have; None for any
    dtypes    [component] the types that its value must have; None for any. Constants are converted, and, where the
              operands are of another kind, numbers to floats

    Raises UnsupportedError if the function decides on a value, with the line; TypeMismatchError if its result is not
    nested like `result` or typed like `dtypes`.
    """
    is_operator = result == next(iter(operands.values()))[0]
    types = [
        tuple(dtype for dtype, size in zip(leaf_types, element.leaf_sizes) for _ in range(size))
        for element, _, leaf_types in operands.values()
    ]

    def flat(*scalars: Any) -> tuple:
        values = []
        for given, (element, like, _) in zip(scalars, operands.values()):
            values.append(compose(element, like, given if isinstance(given, tuple) else (given,)))
        found = function(*values)
        nesting = element_of(found) if result is None else result
        try:
            return components(nesting, found, "the result")
        except ShapeError:
            elements = " and ".join(dict.fromkeys(str(element) for element, _, _ in operands.values()))
            raise TypeMismatchError(
                f"{name} gives {element_of(found)} for elements {elements}",
                hint="its result must be nested like its operands, and both like the neutral element"
                if is_operator
                else f"its result must be nested like {result}",
            ) from None

    # One scalar: the names are plain, and so are the messages.
    specification = [kinds[0] if len(kinds) == 1 else kinds for kinds in types]
    values = list(expr.trace(_named(flat, operands), specification))
    for k, dtype in enumerate(dtypes or ()):
        if isinstance(values[k], Constant) and values[k].dtype != dtype:
            values[k] = Constant(values[k].value, dtype)  # type: ignore[arg-type]
        elif not is_operator and dtype in FLOATS and values[k].dtype != "bool":
            values[k] = expr.cast(values[k], dtype)
        if values[k].dtype != dtype:
            where = "" if len(values) == 1 else f"component {k} of " if is_operator else f"as component {k} "
            wanted = f"for {where}{dtype} operands" if is_operator else f"{where}where a {dtype} belongs"
            raise TypeMismatchError(
                f"{name} gives {values[k].dtype} {wanted}",
                hint=f"its results must have the types of its operands: use `cast(x, '{dtype}')`, or give "
                f"{values[k].dtype} values"
                if is_operator
                else f"use `cast(x, '{dtype}')`",
            )
    arguments, index = [], 0
    for title, kinds in zip(operands, types):
        names = (title,) if len(kinds) == 1 else tuple(f"{title}_{k}" for k in range(len(kinds)))
        arguments.append(tuple(Argument(index + k, dtype, names[k]) for k, dtype in enumerate(kinds)))  # type: ignore[arg-type]
        index += len(kinds)
    return TypedFunction(name, tuple(arguments), expr.simplify(values))


def _named(function: Callable, names: Iterable[str]) -> Callable:
    """The function with parameters of these names, from which a trace takes those of its arguments."""
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    function.__signature__ = inspect.Signature([inspect.Parameter(name, kind) for name in names])  # type: ignore[attr-defined]
    return function


def refusal(operator: Monoid, dtype: Any) -> UnsupportedError:
    """The error of a derivative that does not exist."""
    return UnsupportedError(
        f"the operator {operator.name} on {np.dtype(dtype)} has no derivative", hint="use float32 or float64 values"
    )
