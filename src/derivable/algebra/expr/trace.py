"""Tracing: running a Python function once on stand-ins to learn its expression."""

from __future__ import annotations

import inspect
import linecache
import operator
import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from derivable.algebra.expr import functions
from derivable.algebra.expr.functions import Symbolic, lift
from derivable.algebra.expr.nodes import Argument, Expr
from derivable.algebra.expr.operations import OPERATIONS
from derivable.algebra.expr.parameters import HELD, is_tensor, symbolic
from derivable.algebra.expr.types import FLOATS, Dtype, check_dtype, is_number, promote
from derivable.core.diagnostics import DerivableError, Span, TypeMismatchError, UnsupportedError

# Whose lines are not the user's.
_LIBRARIES = ("derivable", "jax", "numpy", "torch")
_UFUNCS = {
    "true_divide": "divide",
    "negative": "negate",
    "absolute": "abs",
    "fabs": "abs",
    "float_power": "power",
    "invert": "bitwise_not",
}
# Python's operators by the names that torch has for them, for a tensor at their left.
_TENSOR_OPERATORS = {
    **{name: getattr(operator, name) for name in ("add", "sub", "mul", "pow", "lt", "le", "gt", "ge", "eq", "ne")},
    **{
        f"__{name}__": getattr(operator, f"__{name}__") for name in ("floordiv", "and", "or", "xor", "lshift", "rshift")
    },
    "div": operator.truediv,
    "remainder": operator.mod,
}
_SWAPPED_UFUNCS = {"greater": "less", "greater_equal": "less_equal"}


class Traced(Symbolic):
    """A stand-in for a scalar: operators and `derivable.algebra.expr` functions on it are recorded.

    It has no value, so it cannot decide an `if`, a `while`, `and`, `or`, `not`, `min` or `max`.
    """

    __slots__ = ("expr",)
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, expr: Expr):
        self.expr = expr

    def __repr__(self) -> str:
        return f"Traced({self.expr})"

    @property
    def dtype(self) -> Dtype:
        return self.expr.dtype

    def __eq__(self, other):  # type: ignore[override]
        return functions.equal(self, other)

    def __ne__(self, other):  # type: ignore[override]
        return functions.not_equal(self, other)

    def __bool__(self) -> bool:
        raise _refusal(
            f"the function decides on the value of `{self.expr}`, which is only known when it runs",
            "replace `if`, `and`, `or`, `not`, `min` and `max` by `where(condition, a, b)`, `logical_and`, "
            "`logical_or`, `logical_not`, `minimum` and `maximum` of `derivable`, as in `dv.where`",
        )

    def _number(self, *_args):
        raise _refusal(
            f"the function needs the value of `{self.expr}` as a Python number, which is only known when it runs",
            "use the functions of `derivable` (dv.exp, dv.log, dv.floor, dv.cast, ...) instead of those of `math`, "
            "`float()`, `int()` and `round()`",
        )

    __float__ = __int__ = __index__ = __complex__ = __round__ = __trunc__ = __floor__ = __ceil__ = _number

    def _sequence(self, *_args):
        raise _refusal(f"the function takes `{self.expr}` apart, but it is a scalar", "trace it with tuple arguments")

    __iter__ = __len__ = __getitem__ = _sequence

    def __getattr__(self, name: str):
        if name in functions.__all__:
            raise _refusal(f"`{self.expr}` is no tensor, and has no method `{name}`", f"write `dv.{name}({self.expr})`")
        raise AttributeError(f"a stand-in for a scalar has no attribute {name!r}")

    @classmethod
    def __torch_function__(cls, function, types, args=(), options=None):
        operands = [symbolic(given) for given in args]
        are_held = any(isinstance(operand, Expr) for operand in operands)
        if are_held and function.__name__ in _TENSOR_OPERATORS and not options:
            return _TENSOR_OPERATORS[function.__name__](*operands)
        if any(map(is_tensor, operands)):
            raise _refusal("the function holds a tensor, and it is compiled for scalars", HELD)
        name = _UFUNCS.get(function.__name__, function.__name__)
        raise _refusal(
            f"torch.{function.__name__} takes tensors, and an operator is traced once, with stand-ins for scalars",
            f"write `dv.{name}`" if name in functions.__all__ else "use the functions of `derivable`, as in `dv.exp`",
        )

    def __array_ufunc__(self, ufunc, method, *inputs, **options):
        name = ufunc.__name__
        if method != "__call__" or options:
            raise _refusal(f"np.{name} with {method} or options cannot be traced", "call it on scalars only")
        if name in _SWAPPED_UFUNCS:
            return functions.apply(_SWAPPED_UFUNCS[name], *reversed(inputs))
        name = _UFUNCS.get(name, name)
        if name not in OPERATIONS:
            raise _refusal(f"np.{ufunc.__name__} is no scalar operation here", "see derivable.algebra.expr.operations")
        return functions.apply(name, *inputs)

    def __array_function__(self, function, types, args, options):
        if function is np.where and len(args) == 3 and not options:
            return functions.where(*args)
        raise _refusal(f"np.{function.__name__} cannot be traced", "use the functions of `derivable`, as in `dv.exp`")


def _copy_operators() -> None:
    # The recorded operators are those of Expr: `functions.apply` looks at what it is given.
    for name, method in vars(Expr).items():
        if name.startswith("__") and inspect.isfunction(method) and name not in vars(Traced) and name not in _OWN:
            setattr(Traced, name, method)


_OWN = {"__str__", "__repr__", "__bool__", "__copy__", "__deepcopy__", "__init__", "__hash__", "__eq__", "__reduce__"}
_copy_operators()


def trace(function: Callable[..., Any], arguments: int | Sequence[Any]) -> tuple[Expr, ...]:
    """The expressions that a Python function of scalars (or tuples of scalars) computes.

    arguments  the number of float64 arguments, or one entry per argument: a dtype, or a tuple of
               dtypes (nested as you like) for a tuple argument
    returns    one expression per result; a tuple result, nested or not, is flattened in order.
               Argument k is the k-th scalar in the flattened arguments, named after the parameter

    The function runs once. Raises UnsupportedError, with the line, if it decides on a value
    (`if a < b`: use `where`) or takes a value out of the trace, and TypeMismatchError if it returns
    anything but scalars.
    """
    specification = ["float64"] * arguments if isinstance(arguments, int) else list(arguments)
    names = _parameter_names(function, len(specification))
    leaves: list[Argument] = []
    stand_ins = [_stand_in(entry, name, leaves) for entry, name in zip(specification, names)]
    try:
        result = function(*stand_ins)
    except DerivableError:
        raise
    except TypeError as error:
        hint = "the function must take these arguments and use only scalar operations"
        if _is_from_jax(error):
            hint = "write the function of `derivable` with the same name, such as `dv.maximum` for `jnp.maximum`"
        raise TypeMismatchError(
            f"tracing {_name_of(function)} on {len(specification)} argument(s) failed: {error}", hint=hint
        ) from error
    dtypes = tuple(leaf.dtype for leaf in leaves)
    floats: list[Dtype] = [dtype for dtype in dtypes if dtype in FLOATS]
    flat: list[Expr] = []
    _flatten(result, flat, (promote(floats),) if floats else (), function)
    return tuple(flat)


def _is_from_jax(error: BaseException) -> bool:
    """Whether a function of JAX raised it, which says in several ways what it does not take."""
    frame = error.__traceback__
    while frame is not None and frame.tb_next is not None:
        frame = frame.tb_next
    return frame is not None and frame.tb_frame.f_globals.get("__name__", "").split(".")[0] == "jax"


def _stand_in(entry: Any, name: str, leaves: list[Argument]) -> Any:
    if isinstance(entry, (tuple, list)):
        return tuple(_stand_in(inner, f"{name}_{position}", leaves) for position, inner in enumerate(entry))
    leaf = Argument(len(leaves), check_dtype(entry), name)
    leaves.append(leaf)
    return Traced(leaf)


def _flatten(result: Any, flat: list[Expr], beside: tuple[Dtype, ...], function: Callable) -> None:
    if isinstance(result, (tuple, list)):
        for part in result:
            _flatten(part, flat, beside, function)
    elif isinstance(result, (Symbolic, Expr)) or is_number(result):
        flat.append(lift(result, beside))
    else:
        raise TypeMismatchError(
            f"{_name_of(function)} returns a value of type {type(result).__name__}, not scalars",
            hint="return a scalar or a tuple of scalars",
        )


def _parameter_names(function: Callable, count: int) -> list[str]:
    try:
        parameters = [
            parameter.name
            for parameter in inspect.signature(function).parameters.values()
            if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)
        ]
    except (TypeError, ValueError):
        parameters = []
    names = parameters[:count] + [f"x{index}" for index in range(len(parameters), count)]
    return names if len(set(names)) == count else [f"x{index}" for index in range(count)]


def _name_of(function: Callable) -> str:
    return getattr(function, "__name__", type(function).__name__)


def _refusal(message: str, hint: str) -> UnsupportedError:
    """An error that points at the line of the traced function, the innermost one outside this package and libraries."""
    frame = sys._getframe(1)
    while frame is not None and frame.f_globals.get("__name__", "").partition(".")[0] in _LIBRARIES:
        frame = frame.f_back
    if frame is None:
        return UnsupportedError(message, hint=hint)
    code = frame.f_code
    positions = list(code.co_positions())[frame.f_lasti // 2]
    line, end_line, column, end_column = positions
    line, column = line or frame.f_lineno, column or 0
    width = end_column - column if end_column is not None and end_line == line else 1
    source = linecache.getline(code.co_filename, line).rstrip("\n")
    text = "\n" * (line - 1) + source if source else None
    return UnsupportedError(message, hint=hint, source=code.co_filename, text=text, span=Span(line, column + 1, width))
