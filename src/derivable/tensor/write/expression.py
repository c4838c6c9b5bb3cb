"""Programs from Python: tensors with operators, where an Einstein sum says too little.

>>> from derivable.tensor import variable
>>> A, x = variable("A", order=2), variable("x", order=1)
>>> print(A @ x)
sum(<i, row> in A) { i -> sum(<j, a> in row) a * x(j) }
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from numbers import Real
from typing import Any

import numpy as np

from derivable.algebra.expr import nodes as scalars
from derivable.algebra.expr.trace import trace
from derivable.core.arguments import integer, is_integer
from derivable.core.diagnostics import DomainError, ShapeError, TypeMismatchError
from derivable.core.names import FreshNames
from derivable.tensor.analysis.anf import bound, from_scalars
from derivable.tensor.language import nodes as t
from derivable.tensor.language.binding import names_in
from derivable.tensor.language.program import Program
from derivable.tensor.language.syntax import as_type
from derivable.tensor.language.types import INT, Type
from derivable.tensor.language.types import tensor as tensor_type

_KEYS = "ijklmnop"


def variable(name: str, order: int | None = None, *, type: Type | str | None = None) -> Expression:
    """An input as an expression.

    order  of a tensor of reals; 0 for a number
    type   in place of the order: `index` for an integer

    Raises BindingError for what is no name of the language.
    """
    if (order is None) == (type is None):
        raise DomainError(f"the variable {name!r} needs an order or a type", hint='variable("A", order=2)')
    of = as_type(type, name) if type is not None else tensor_type(integer(order, "the order", 0))
    return Expression(t.Var(name), {name: of})


class Expression(Program):
    """A program that operators make others of.

    `+ - * /` work entry by entry, or with a number for every entry; `@` is the matrix product, and the inner product of
    vectors. What only one factor of `*` holds is in no product; what only one term of `+` holds is in the sum. A factor
    or divisor of fewer axes stands at the last ones, as in NumPy: `A * x` scales the columns of a matrix.
    """

    # NumPy leaves operators to this class.
    __array_ufunc__ = None

    @property
    def order(self) -> int:
        return self.type.order

    def __iter__(self) -> Any:
        raise TypeMismatchError(
            "an expression is not run over in Python", hint="`sum`, `map` and `where` run over its entries"
        )

    def __bool__(self) -> bool:
        raise TypeMismatchError(
            "whether an expression holds is not known before it runs", hint="`where` and `dv.where` choose"
        )

    def _compared(self, other: Any) -> Any:
        raise TypeMismatchError("expressions are not compared", hint="`A.where(lambda a: a < 1)` compares entries")

    __lt__ = __le__ = __gt__ = __ge__ = _compared

    def __abs__(self) -> Expression:
        return self.map(abs)

    def __add__(self, other: Any) -> Expression:
        return _joined(self, other, "+", lambda a, b: t.Add(a, b))

    __radd__ = __add__

    def __sub__(self, other: Any) -> Expression:
        return self + -_expression(other)

    def __rsub__(self, other: Any) -> Expression:
        return _expression(other) + -self

    def __neg__(self) -> Expression:
        return Expression(t.Multiply(t.Number(-1.0), self.node), self.inputs)

    def __mul__(self, other: Any) -> Expression:
        other = _expression(other)
        if 0 < self.order < other.order:
            return _entrywise(other, self, "*", lambda a, b: t.Multiply(b, a))
        if self.order and other.order:
            return _entrywise(self, other, "*", lambda a, b: t.Multiply(a, b))
        return _joined(self, other, "*", lambda a, b: t.Multiply(a, b), is_of_one_order=False)

    def __rmul__(self, other: Any) -> Expression:
        return _expression(other) * self

    def __truediv__(self, other: Any) -> Expression:
        other = _expression(other)
        if other.order:
            return _entrywise(self, other, "/", lambda a, b: t.Apply("divide", (a, b)))
        if not self.order:
            return _joined(self, other, "/", lambda a, b: t.Apply("divide", (a, b)))
        return self * (_expression(1.0) / other)

    def __rtruediv__(self, other: Any) -> Expression:
        return _expression(other) / self

    def __pow__(self, power: float) -> Expression:
        if not isinstance(power, Real):
            raise TypeMismatchError(f"a power is a number, and this is a {type(power).__name__}")
        return self.map(lambda a: a**power)

    def __matmul__(self, other: Any) -> Expression:
        """The last axis of this one with the first of the other, summed up."""
        other = _expression(other)
        if not self.order or not other.order:
            raise ShapeError(
                f"`@` multiplies tensors, and these are {self.type} and {other.type}",
                hint="numbers are multiplied by `*`",
            )
        names = _Names(self, other)
        *outer, last = names.keys(self.order)
        inner = names.keys(other.order - 1)
        value, other_value = names.value(), names.value()

        def body(a: t.Node) -> t.Node:
            row = t.Lookup(other.node, t.Var(last))
            return _nested(row, inner, inner, names, lambda b: t.Multiply(a, b), other_value)

        made = _nested(self.node, (*outer, last), outer, names, body, value)
        return Expression(made, names.inputs)

    def __rmatmul__(self, other: Any) -> Expression:
        return _expression(other) @ self

    def __getitem__(self, keys: Any) -> Expression:
        """What stands at a key or several, integers or expressions of type `index`; a prefix of keys gives a tensor."""
        keys = keys if isinstance(keys, tuple) else (keys,)
        if len(keys) > self.order:
            raise ShapeError(
                f"{len(keys)} keys are looked up in {self.type}", hint="a tensor of order n takes at most n keys"
            )
        node, inputs = self.node, self.inputs
        for key in keys:
            found = (
                Expression(t.Number(integer(key, "a key", -(1 << 63), (1 << 63) - 1)), {}) if is_integer(key) else key
            )
            if not isinstance(found, Program) or found.type != INT:
                raise TypeMismatchError(f"the key {key!r} is no integer", hint="slices are not kept: use `where`")
            inputs = _merged(inputs, found.inputs)
            node = t.Lookup(node, found.node)
        return Expression(node, inputs)

    def outer(self, other: Any) -> Expression:
        """The outer product: the axes of this one, then those of the other."""
        return _joined(self, other, "*", lambda a, b: t.Multiply(a, b), is_of_one_order=False)

    def sum(self, axis: int | Sequence[int] | None = None) -> Expression:
        """The sum over axes, over all of them if none is named. Negative ones count from the last."""
        axes: Any = range(self.order) if axis is None else [axis] if is_integer(axis) else axis
        summed = {_axis(each, self.order) for each in axes}
        if len(summed) < len(axes):
            raise ShapeError(f"an axis is in {list(axes)} twice")
        names = _Names(self)
        keys = names.keys(self.order)
        kept = [None if place in summed else key for place, key in enumerate(keys)]
        value = names.value()
        loops = [key if key is not None else "_" for key in kept]
        made = _nested(self.node, loops, [key for key in kept if key], names, lambda a: a, value)
        return Expression(made, self.inputs)

    def transpose(self, *axes: Any) -> Expression:
        """The axes in another order, reversed if none is given: axis k of the result is axis axes[k] of this one."""
        axes = tuple(axes[0]) if len(axes) == 1 and isinstance(axes[0], (tuple, list)) else axes
        order = axes or tuple(reversed(range(self.order)))
        if sorted(_axis(axis, self.order) for axis in order) != list(range(self.order)):
            raise ShapeError(f"{list(order)} is no order of the axes of {self.type}")
        names = _Names(self)
        keys = names.keys(self.order)
        kept = [keys[_axis(axis, self.order)] for axis in order]
        return Expression(_nested(self.node, keys, kept, names, lambda a: a, names.value()), self.inputs)

    @property
    def T(self) -> Expression:
        """The axes reversed."""
        return self.transpose()

    def diagonal(self) -> Expression:
        """The entries of a matrix whose indices are equal, a vector."""
        names = self._matrix("a diagonal")
        (key,), row = names.keys(1), names.fresh("row")
        entry = t.Lookup(t.Var(row), t.Var(key))
        return Expression(t.Sum(key, row, self.node, t.Singleton(t.Var(key), entry)), self.inputs)

    def trace(self) -> Expression:
        """The sum of the diagonal of a matrix."""
        names = self._matrix("a trace")
        (key,), row = names.keys(1), names.fresh("row")
        return Expression(t.Sum(key, row, self.node, t.Lookup(t.Var(row), t.Var(key))), self.inputs)

    def _matrix(self, what: str) -> _Names:
        if self.order != 2:
            raise ShapeError(f"a matrix has {what}, and this is {self.type}")
        return _Names(self)

    def map(self, function: Callable[..., Any]) -> Expression:
        """A function of every entry, written with the scalar functions of `derivable`.

        function  (value) or (index, ..., value), with an index for each axis. Operators mean what they mean in the
                  text: `+` and `*` are those of the semiring

        Entries that are not held stay so, whatever the function gives for zero.
        """
        return self._traced(function, lambda made, value: made, "float64")

    def where(self, condition: Callable[..., Any]) -> Expression:
        """The entries for which a condition holds. condition: (value) or (index, ..., value) -> truth"""
        return self._traced(condition, t.If, "bool")

    def _traced(
        self, function: Callable[..., Any], finish: Callable[[t.Node, t.Node], t.Node], wanted: str
    ) -> Expression:
        names = _Names(self)
        keys, value = names.keys(self.order), names.value()
        count = _count_of_parameters(function)
        if count not in (1, self.order + 1):
            raise TypeMismatchError(
                f"the function takes {count} arguments, and an entry of {self.type} has {self.order} indices and "
                "a value",
                hint="give a function of the value, or of all indices and the value",
            )
        given = keys if count > 1 else ()
        found = trace(function, [*("int64" for _ in given), "float64"])
        if len(found) != 1 or found[0].dtype in {"bool", "int64", "float64"} - {wanted}:
            made = f"{len(found)} numbers" if len(found) != 1 else f"a value of {found[0].dtype}"
            hints = {"bool": "compare the value: `a < 1`", "float64": '`dv.cast(i, "float64")` is a number of an index'}
            raise TypeMismatchError(f"the function gives {made}, where one of {wanted} is needed", hint=hints[wanted])
        known = [each for each in scalars.in_order(found) if isinstance(each, scalars.Argument)]

        def body(a: t.Node) -> t.Node:
            arguments = [*map(t.Var, given), a]
            placed: dict[scalars.Expr, t.Node] = {each: arguments[each.index] for each in known}
            lets, (made,) = from_scalars(found, placed, names.fresh, least_uses=2)
            return finish(bound(lets, made), a)

        if not self.order:
            # A number is bound, so that it is computed once.
            return Expression(t.Let(value, self.node, body(t.Var(value))), self.inputs)
        return Expression(_nested(self.node, keys, keys, names, body, value), self.inputs)

    def mask(self, pattern: Any) -> Expression:
        """The entries of this one where another tensor has entries, whatever their values are."""
        return _entrywise(_expression(pattern), self, "mask", lambda a, b: b)

    def let(self, function: Callable[[Expression], Any]) -> Expression:
        """What a function makes of this one, which is computed once: `(A @ x).let(lambda y: y * y)`."""
        names = _Names(self)
        name = names.fresh("shared")
        body = _expression(function(Expression(t.Var(name), {name: self.type})))
        inputs = {other: of for other, of in body.inputs.items() if other != name}
        return Expression(t.Let(name, self.node, body.node), _merged(self.inputs, inputs))


def _expression(given: Any) -> Expression:
    if isinstance(given, Expression):
        return given
    if isinstance(given, Program):
        return Expression(given.node, given.inputs)
    if isinstance(given, (Real, np.number)) or (isinstance(given, np.ndarray) and not given.ndim):
        return Expression(t.Number(float(given)), {})
    raise TypeMismatchError(
        f"{type(given).__name__} is no expression",
        hint='name it: `variable("A", order=2)`, and give it to the call',
    )


def _merged(left: Mapping[str, Type], right: Mapping[str, Type]) -> dict[str, Type]:
    """The inputs of both. Raises TypeMismatchError if one name has two types."""
    for name in left:
        if name in right and left[name] != right[name]:
            raise TypeMismatchError(f"`{name}` is {left[name]} here and {right[name]} there")
    return {**left, **right}


class _Names:
    """Names to bind that are not those of inputs."""

    def __init__(self, *given: Program):
        self.inputs: dict[str, Type] = {}
        for each in given:
            self.inputs = _merged(self.inputs, each.inputs)
        self.fresh = FreshNames(set().union(self.inputs, *(names_in(each.node) for each in given)))
        self._free = list(_KEYS)

    def keys(self, count: int) -> tuple[str, ...]:
        found = []
        for _ in range(count):
            found.append(self.fresh(self._free.pop(0) if self._free else "i"))
        return tuple(found)

    def value(self) -> str:
        return self.fresh("a")


def _nested(
    over: t.Node,
    keys: Sequence[str],
    kept: Sequence[str],
    names: _Names,
    body: Callable[[t.Node], t.Node],
    value: str,
) -> t.Node:
    """Loops over all axes of a tensor, and in them the entries of the result, each at the keys that are kept.

    A key of the result is made as soon as it is there, if those before it are.
    """
    if not keys:
        return body(over)
    pending = list(kept)

    def loop(inner: t.Node, place: int) -> t.Node:
        if place == len(keys):
            made = body(inner)
            for key in reversed(pending):
                made = t.Singleton(t.Var(key), made)
            return made
        name = value if place == len(keys) - 1 else names.fresh("row")
        opened = 0
        if pending and pending[0] == keys[place]:
            pending.pop(0)
            opened = 1
        made = loop(t.Var(name), place + 1)
        return t.Sum(keys[place], name, inner, t.Singleton(t.Var(keys[place]), made) if opened else made)

    return loop(over, 0)


def _joined(
    left: Expression, right: Any, symbol: str, made: Callable[[t.Node, t.Node], t.Node], is_of_one_order: bool = True
) -> Expression:
    right = _expression(right)
    if is_of_one_order and left.order != right.order:
        hint = "to every entry that is held a number is added by `map(lambda a: a + 1)`"
        raise ShapeError(
            f"`{symbol}` of {left.type} and {right.type}: both sides have the same order",
            hint=None if left.order and right.order else hint,
        )
    return Expression(made(left.node, right.node), _merged(left.inputs, right.inputs))


def _entrywise(
    left: Expression, right: Expression, symbol: str, made: Callable[[t.Node, t.Node], t.Node]
) -> Expression:
    """At every entry that the left one holds, what is made of both. The right one may have the last axes only."""
    fewer = left.order - right.order
    if fewer and (fewer < 0 or symbol == "mask"):
        raise ShapeError(f"`{symbol}` of {left.type} and {right.type}: both sides have the same order")
    names = _Names(left, right)
    keys, value = names.keys(left.order), names.value()
    other = right.node
    for key in keys[fewer:]:
        other = t.Lookup(other, t.Var(key))
    return Expression(_nested(left.node, keys, keys, names, lambda a: made(a, other), value), names.inputs)


def _axis(axis: int, order: int) -> int:
    found = integer(axis, "an axis")
    if not -order <= found < order:
        raise ShapeError(f"there is no axis {axis} in a tensor of order {order}")
    return found % order


def _count_of_parameters(function: Callable[..., Any]) -> int:
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return 1
    return sum(each.default is each.empty and each.kind is not each.VAR_KEYWORD for each in parameters)
