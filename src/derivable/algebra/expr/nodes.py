"""The nodes of scalar expressions: constants, arguments and applied operations.

Nodes are hash-consed: building the same expression twice gives the same object, so `is` (and `==`)
compare structure, hashing takes constant time, and common subexpressions are shared without a pass.

Printed form of `where(a < b, a, 2.0 * b)`:

    where(a < b, a, 2.0 * b)
"""

from __future__ import annotations

import threading
import weakref
from abc import ABCMeta, abstractmethod
from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from derivable.algebra.expr.types import LIMITS, Dtype, check_dtype, numpy_dtype
from derivable.core.diagnostics import TypeMismatchError
from derivable.core.forks import renew_in_children

_table: weakref.WeakValueDictionary[tuple, Expr] = weakref.WeakValueDictionary()
_lock = threading.Lock()


renew_in_children(globals(), _lock=threading.Lock)


class _HashConsed(ABCMeta):
    # Nodes have no virtual subclasses, and the check for them would make every isinstance slower.
    __instancecheck__ = type.__instancecheck__

    def __call__(cls, *args, **kwargs):
        node = super().__call__(*args, **kwargs)
        key = node.key()
        with _lock:
            known = _table.get(key)
            if known is None:
                _table[key] = known = node
            return known


def _operators(name: str):
    """The methods for `self op other`, and for `other op self`."""

    def operator(self, other):
        return applied(name, self, other)

    def reflected(self, other):
        return applied(name, other, self)

    return operator, reflected


class Expr(metaclass=_HashConsed):
    """A scalar expression: `Constant`, `Argument` or `Apply`. Immutable, typed, shared.

    `+ - * / // % ** abs() < <= > >=` on expressions build expressions, and so do `& | ^ ~ << >>`, of the bits of
    integers and of truth values; `==` compares structure (use `expr.equal` for the operation).
    """

    dtype: Dtype

    @abstractmethod
    def key(self) -> tuple:
        """What makes two nodes the same: the class and its fields."""

    @property
    def operands(self) -> tuple[Expr, ...]:
        return ()

    def __str__(self) -> str:
        from derivable.algebra.expr.text import to_text

        return to_text(self)

    __repr__ = __str__

    def __bool__(self) -> bool:
        raise TypeMismatchError(
            f"the expression `{self}` has no truth value before it runs", hint="use `where(condition, a, b)`"
        )

    def __copy__(self) -> Expr:
        return self

    def __deepcopy__(self, memo: dict) -> Expr:
        return self

    def __reduce__(self):
        return type(self), tuple(getattr(self, field.name) for field in fields(self))  # type: ignore[arg-type]

    __add__, __radd__ = _operators("add")
    __sub__, __rsub__ = _operators("subtract")
    __mul__, __rmul__ = _operators("multiply")
    __truediv__, __rtruediv__ = _operators("divide")
    __floordiv__, __rfloordiv__ = _operators("floor_divide")
    __mod__, __rmod__ = _operators("remainder")
    __pow__, __rpow__ = _operators("power")
    __lt__, __gt__ = _operators("less")
    __le__, __ge__ = _operators("less_equal")
    __and__, __rand__ = _operators("bitwise_and")
    __or__, __ror__ = _operators("bitwise_or")
    __xor__, __rxor__ = _operators("bitwise_xor")
    __lshift__, __rlshift__ = _operators("left_shift")
    __rshift__, __rrshift__ = _operators("right_shift")

    def __neg__(self):
        return applied("negate", self)

    def __pos__(self):
        return self

    def __abs__(self):
        return applied("abs", self)

    def __invert__(self):
        return applied("bitwise_not", self)


@dataclass(frozen=True, eq=False, repr=False)
class Constant(Expr):
    """A typed constant. Printed form: `2.0`, `-inf`, `true`, `3`."""

    value: Any
    dtype: Dtype

    def __post_init__(self) -> None:
        dtype = check_dtype(self.dtype)
        try:
            if dtype == "bool":
                value: Any = bool(self.value)
            elif dtype in LIMITS:
                value = int(self.value)
                if not LIMITS[dtype][0] <= value <= LIMITS[dtype][1]:
                    raise OverflowError
            else:
                # A float32 constant holds the rounded number, so that every route sees the same one.
                with np.errstate(over="ignore"):
                    value = float(numpy_dtype(dtype).type(self.value))
        except (OverflowError, ValueError):
            raise TypeMismatchError(
                f"the constant {self.value!r} does not fit {dtype}", hint="use a float constant, or a smaller number"
            ) from None
        object.__setattr__(self, "value", value)
        object.__setattr__(self, "dtype", dtype)

    def key(self) -> tuple:
        # repr tells 0.0 from -0.0 and lets NaN equal itself.
        return (Constant, repr(self.value), self.dtype)


@dataclass(frozen=True, eq=False, repr=False)
class Argument(Expr):
    """The argument at position `index`. Printed form: its name, `a`."""

    index: int
    dtype: Dtype = "float64"
    name: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "dtype", check_dtype(self.dtype))
        if not self.name:
            object.__setattr__(self, "name", f"x{self.index}")

    def key(self) -> tuple:
        return (Argument, self.index, self.dtype, self.name)


@dataclass(frozen=True, eq=False, repr=False)
class Apply(Expr):
    """An operation applied to operands whose types are already right: build it with `functions.apply`.

    Printed form: infix `a + b`, or a call `exp(a)`, or a cast `float32(a)`.
    """

    operation: str
    inputs: tuple[Expr, ...]
    dtype: Dtype

    @property
    def operands(self) -> tuple[Expr, ...]:
        return self.inputs

    def key(self) -> tuple:
        return (Apply, self.operation, self.inputs, self.dtype)


def applied(name: str, *operands: Any) -> Any:
    """`functions.apply`, which stands on this module."""
    from derivable.algebra.expr.functions import apply

    return apply(name, *operands)


def as_tuple(exprs: Expr | Sequence[Expr]) -> tuple[Expr, ...]:
    return (exprs,) if isinstance(exprs, Expr) else tuple(exprs)


def in_order(exprs: Expr | Iterable[Expr], known: Container[Expr] = ()) -> list[Expr]:
    """All nodes below `exprs`, each once, operands before what uses them, without those below a known one.

    Does not recurse, so depth is no limit.
    """
    roots = [exprs] if isinstance(exprs, Expr) else list(exprs)
    done: dict[Expr, None] = {}
    stack = [(root, False) for root in reversed(roots)]
    while stack:
        node, expanded = stack.pop()
        if node in done or node in known:
            continue
        if expanded:
            done[node] = None
        else:
            stack.append((node, True))
            stack.extend((operand, False) for operand in reversed(node.operands) if operand not in done)
    return list(done)


def arguments_of(exprs: Expr | Iterable[Expr]) -> list[Argument]:
    """The arguments that occur, by index."""
    return sorted((node for node in in_order(exprs) if isinstance(node, Argument)), key=lambda a: (a.index, a.name))
