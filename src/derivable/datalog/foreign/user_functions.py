"""User-defined functions and predicates: the decorators that make Python functions known to programs."""

from __future__ import annotations

import typing
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, overload

from derivable.core.diagnostics import DomainError
from derivable.datalog.foreign.annotations import signature_of
from derivable.datalog.foreign.function import ForeignFunction
from derivable.datalog.foreign.predicate import ForeignPredicate
from derivable.datalog.foreign.standard import FUNCTIONS, PREDICATES
from derivable.datalog.foreign.traced import traced_scalar


@overload
def function(call: Callable[..., Any]) -> Callable[..., Any]: ...


@overload
def function(
    *,
    name: str | None = None,
    columns: bool = False,
    traced: bool = False,
    drops: type[Exception] | tuple[type[Exception], ...] = (),
) -> Callable[[Callable], Callable]: ...


def function(
    call: Any = None,
    *,
    name: str | None = None,
    columns: bool = False,
    traced: bool = False,
    drops: type[Exception] | tuple[type[Exception], ...] = (),
) -> Any:
    """Make a Python function known to all programs from now on, as `$name(...)`; a decorator.

        @function
        def initials(first: str, last: str) -> str:
            return first[0] + last[0]

    name     what programs call it; None takes the name that it has in Python
    columns  it takes NumPy arrays [row], one per parameter, and gives one: called once for many rows. The annotations
             still say what an element is
    traced   it takes stand-ins for numbers and bools and uses the scalar operations of `derivable` (`dv.where`,
             `dv.exp`, ...), so that it is compiled as a part of the rules that call it
    drops    exceptions that mean that the row has no value, beside the result None

    Parameters with a default may be left out, `*rest` takes any number of arguments, and a `TypeVar` is one type that
    the program decides. It must depend on its arguments only: it is called once for arguments that are equal. Raises
    DomainError for parameters or results without a known annotation, and if the name is taken.
    """
    if call is None:
        return partial(function, name=name, columns=columns, traced=traced, drops=drops)
    title = _title_of(call, name, "function")
    if columns and traced:
        raise DomainError(f"the function ${title} takes columns or is traced, not both")
    signature = signature_of(call, f"${title}")
    if not signature.parameters and signature.rest is None:
        raise DomainError(f"the function ${title} has no parameters", hint="write its value in the program")
    form, scalar = (
        "traced" if traced else "columns" if columns else "values",
        traced_scalar(call, title) if traced else None,
    )
    made = ForeignFunction(title, signature, call, form, scalar, _exceptions(drops, f"the function ${title}"))
    FUNCTIONS.add(title, made)
    return call


@overload
def predicate(call: Callable[..., Any]) -> Callable[..., Any]: ...


@overload
def predicate(
    *,
    name: str | None = None,
    outputs: Sequence[Any] | None = None,
    tagged: bool | None = None,
    drops: type[Exception] | tuple[type[Exception], ...] = (),
) -> Callable[[Callable], Callable]: ...


def predicate(
    call: Any = None,
    *,
    name: str | None = None,
    outputs: Sequence[Any] | None = None,
    tagged: bool | None = None,
    drops: type[Exception] | tuple[type[Exception], ...] = (),
) -> Any:
    """Make a Python generator known to all programs from now on, as `name(inputs..., outputs...)`; a decorator.

        @predicate
        def divisor(n: int) -> Iterator[tuple[int]]:
            yield from ((d,) for d in range(1, n + 1) if n % d == 0)

    name     what programs call it; None takes the name that it has in Python
    outputs  annotations of what it yields a tuple of; None takes them from what it is annotated to return, an iterator
             of tuples or of single values
    tagged   it yields pairs (probability, tuple): each is an independent random fact, the same one wherever the program
             asks for the same inputs and outputs. None takes True if it is annotated to yield (float, tuple)
    drops    exceptions that end the rows as if there were no more

    The parameters are the inputs, which a rule binds elsewhere; a relation of a program of the same name hides it. It
    must depend on its arguments only. Raises DomainError for parameters or outputs without a known annotation, and if
    the name is taken.
    """
    if call is None:
        return partial(predicate, name=name, outputs=outputs, tagged=tagged, drops=drops)
    title = _title_of(call, name, "predicate")
    if outputs is None:
        outputs, is_tagged = _yielded(call, title)
        tagged = is_tagged if tagged is None else tagged
    signature = signature_of(call, f"the predicate {title}", tuple(outputs))
    if signature.optional or signature.rest is not None:
        raise DomainError(
            f"the predicate {title} has parameters that may be left out",
            hint="its arguments are inputs, then outputs: register one predicate for each number of inputs",
        )
    drops = _exceptions(drops, f"the predicate {title}")
    PREDICATES.add(title, ForeignPredicate(title, signature, call, bool(tagged), None, drops))
    return call


def _yielded(call: Callable[..., Any], title: str) -> tuple[Sequence[Any], bool]:
    """(annotations of the outputs, whether there are tags) from the annotation of what a generator returns."""
    try:
        result = typing.get_type_hints(call).get("return")
    except (NameError, TypeError, SyntaxError):
        result = None
    inner = typing.get_args(result)
    if not inner:
        raise DomainError(
            f"the predicate {title} does not say what it yields",
            hint="annotate it `-> Iterator[tuple[int, str]]`, or give outputs=(int, str)",
        )
    row, tagged = inner[0], False
    parts = typing.get_args(row)
    if typing.get_origin(row) is tuple and len(parts) == 2 and typing.get_origin(parts[1]) is tuple:
        row, tagged = parts[1], True
    if typing.get_origin(row) is not tuple:
        return (row,), tagged
    return [part for part in typing.get_args(row) if part != ()], tagged


def _title_of(call: Callable[..., Any], name: str | None, what: str) -> str:
    """The name that programs use. Raises DomainError if it is none."""
    title = name or getattr(call, "__name__", "")
    if not title.isidentifier() or title.startswith("_"):
        raise DomainError(f"the name of a {what} is an identifier, not {title!r}", hint="give name=...")
    return title


def _exceptions(drops: Any, what: str) -> tuple[type[Exception], ...]:
    """The exceptions of a decorator's `drops`. Raises DomainError for anything else."""
    types = drops if isinstance(drops, tuple) else (drops,)
    if not all(isinstance(one, type) and issubclass(one, Exception) for one in types):
        raise DomainError(f"`drops` of {what} are exceptions, not {drops!r}", hint="as in drops=ValueError")
    return types
