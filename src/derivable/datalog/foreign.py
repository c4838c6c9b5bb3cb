"""Foreign functions: Python functions that expressions of a program call, `$name(x, y)`.

`function` registers one. Its annotations are its types: `int`, `float`, `str` and `bool` stand for any integer, any
float, String and bool; NumPy's `np.uint8`, `np.float32`, ..., or a type's name as a text, for that type. Where a result
is None, NaN, or outside its type, the row has no value there and is dropped, as where a division by zero is.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, overload

import numpy as np

from derivable.core.diagnostics import DerivableError, DomainError
from derivable.core.registry import Registry
from derivable.datalog.values import BOOL, STRING, TYPES, SymbolTable, ValueType, fits, show_column, word_of

# What an annotation stands for: a type, or a family of types that the program decides among.
_ANNOTATIONS: dict[str, ValueType | str] = {
    "int": "integer",
    "float": "float",
    "str": STRING,
    "bool": BOOL,
    **{f"{kind}int{bits}": TYPES[f"{kind or 'i'}{bits}"] for kind in ("", "u") for bits in (8, 16, 32, 64)},
    "float32": TYPES["f32"],
    "float64": TYPES["f64"],
    **TYPES,
}


@dataclass(frozen=True)
class ForeignFunction:
    """One function.

    parameters  [parameter] a type, or "integer" or "float" for one that the program decides
    result      the same
    columns     whether it takes and gives whole columns, NumPy arrays [row]; else Python values
    """

    name: str
    call: Callable[..., Any]
    parameters: tuple[ValueType | str, ...]
    result: ValueType | str
    columns: bool = False

    def words(
        self, types: tuple[ValueType, ...], result: ValueType, symbols: SymbolTable, *operands: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """(words [row], valid [row]) of the results for words [row] of the operands."""
        columns = [show_column(words, t, symbols) for words, t in zip(operands, types)]
        count = len(operands[0])
        if self.columns:
            found = self._called(*columns)
            if np.shape(found) != (count,):
                raise DomainError(f"the function ${self.name} gives shape {np.shape(found)} for {count} rows")
            values = np.asarray(found).tolist()
        else:
            rows = zip(*(column.tolist() for column in columns))
            values = [self._called(*row) for row in rows]
        values = [v.item() if isinstance(v, np.generic) else v for v in values]
        if result.family == "float":
            values = [float(v) if isinstance(v, int) and not isinstance(v, bool) else v for v in values]
        valid = np.array([v is not None and fits(v, result) for v in values], bool)
        for value in values:
            if value is not None and not _is_of(value, result):
                raise DomainError(
                    f"the function ${self.name} gives {value!r}, which is not of the type {result}",
                    hint="annotate what it returns, as in `-> str`",
                )
        words = np.zeros(count, np.int64)
        for row in np.flatnonzero(valid).tolist():
            words[row] = word_of(values[row], result, symbols)
        return words, valid

    def _called(self, *operands: Any) -> Any:
        try:
            return self.call(*operands)
        except DerivableError:
            raise
        except Exception as error:
            given = "" if self.columns else f" for {', '.join(map(repr, operands))}"
            raise DomainError(f"the function ${self.name} failed{given}: {type(error).__name__}: {error}") from error


FUNCTIONS: Registry[ForeignFunction] = Registry("function", more="`derivable.datalog.function` adds one")


@overload
def function(call: Callable[..., Any]) -> Callable[..., Any]: ...


@overload
def function(*, name: str | None = None, columns: bool = False) -> Callable[[Callable], Callable]: ...


def function(call: Any = None, *, name: str | None = None, columns: bool = False) -> Any:
    """Make a Python function known to all programs from now on, as `$name(...)`; a decorator.

        @function
        def initials(first: str, last: str) -> str:
            return first[0] + last[0]

    name     what programs call it; None takes its own name
    columns  it takes NumPy arrays [row], one per parameter, and gives one: called once for many rows. The annotations
             still say what an element is

    It must depend on its arguments only. Raises DomainError for parameters or results without a known annotation, and
    if the name is taken.
    """
    if call is None:
        return lambda given: _registered(given, name, columns)
    return _registered(call, name, columns)


def _registered(call: Callable[..., Any], name: str | None, columns: bool) -> Callable[..., Any]:
    title = name or getattr(call, "__name__", "")
    if not title.isidentifier():
        raise DomainError(f"the name of a function is an identifier, not {title!r}", hint="give name=...")
    signature = inspect.signature(call)
    parameters = []
    for parameter in signature.parameters.values():
        if parameter.kind not in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD):
            raise DomainError(f"the function ${title} has the parameter {parameter}, which no call can fill")
        parameters.append(_annotated(parameter.annotation, f"parameter `{parameter.name}` of ${title}"))
    if not parameters:
        raise DomainError(f"the function ${title} has no parameters", hint="write its value in the program")
    result = _annotated(signature.return_annotation, f"the result of ${title}")
    FUNCTIONS.add(title, ForeignFunction(title, call, tuple(parameters), result, columns))
    return call


def _annotated(annotation: Any, what: str) -> ValueType | str:
    name = annotation if isinstance(annotation, str) else getattr(annotation, "__name__", "")
    name = name.strip("'\"")
    found = _ANNOTATIONS.get(name.rpartition(".")[2])
    if found is None:
        shown = "no annotation" if annotation is inspect.Parameter.empty else f"the annotation {annotation!r}"
        raise DomainError(
            f"{what} has {shown}",
            hint=f"int, float, str, bool, np.float32, ..., or the name of one of {', '.join(TYPES)}",
        )
    return found


def _is_of(value: Any, t: ValueType) -> bool:
    """Whether a Python value is of the kind of a type, inside its limits or not."""
    kinds = {"bool": bool, "char": str, "text": str, "float": float}
    if t.is_integer:
        return isinstance(value, int) and not isinstance(value, bool)
    return isinstance(value, kinds[t.family])
