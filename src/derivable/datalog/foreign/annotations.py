"""Signatures from the annotations of Python functions.

`int` and `float` stand for any integer and any float type, `str` for String, `bool` for bool, `object` or `Any` for
any type; NumPy's `np.uint8`, `np.float32`, ..., or a type's name as a text, for that type; a `TypeVar` for one type
that the program decides, alike everywhere, among its constraints.
"""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable
from typing import Any

from derivable.core.diagnostics import DomainError
from derivable.datalog.foreign.signature import FAMILIES, Kind, Signature
from derivable.datalog.values.values import BOOL, ENTITY, STRING, TYPE_ALIASES, TYPES

_KINDS: dict[str, Kind] = {
    "int": "integer",
    "float": "float",
    "object": "any",
    "Any": "any",
    "str": STRING,
    "bool": BOOL,
    **{f"{kind}int{bits}": TYPES[f"{kind or 'i'}{bits}"] for kind in ("", "u") for bits in (8, 16, 32, 64)},
    "float32": TYPES["f32"],
    "float64": TYPES["f64"],
    "bool_": BOOL,
    **dict.fromkeys(("datetime", "date", "datetime64", "Timestamp"), TYPES["DateTime"]),
    **dict.fromkeys(("timedelta", "timedelta64", "Timedelta"), TYPES["Duration"]),
    **dict.fromkeys(("ndarray", "Tensor"), TYPES["Tensor"]),
    **{name: TYPES[known] for name, known in TYPE_ALIASES.items()},
    **{family.capitalize(): family for family in FAMILIES},
    **TYPES,
    ENTITY.name: ENTITY,
}
# The constraints of a TypeVar, by the types among them.
_CONSTRAINTS = {frozenset({int}): "integer", frozenset({float}): "float", frozenset({int, float}): "number"}


def signature_of(call: Callable[..., Any], what: str, results: tuple[Any, ...] | None = None) -> Signature:
    """The signature that annotations say.

    what     how to name the function in messages: `$half`
    results  annotations of the outputs; None takes that of what it returns

    A parameter with a default may be left out, and `*rest` takes any number of arguments. Raises DomainError for a
    parameter or result without a known annotation.
    """
    generics: dict[str, str] = {}
    parameters: list[Kind] = []
    optional, rest = 0, None
    call_signature = inspect.signature(call)
    for parameter in call_signature.parameters.values():
        what_parameter = f"parameter `{parameter.name}` of {what}"
        if parameter.kind is parameter.VAR_POSITIONAL:
            rest = _kind(parameter.annotation, what_parameter, generics)
        elif parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD):
            parameters.append(_kind(parameter.annotation, what_parameter, generics))
            optional += parameter.default is not parameter.empty
        elif parameter.default is parameter.empty:
            raise DomainError(f"{what} has the parameter {parameter}, which no call can fill")
    if results is None:
        results = (call_signature.return_annotation,)
    name = f"the result of {what}" if len(results) == 1 else f"an output of {what}"
    kinds = tuple(_kind(annotation, name, generics) for annotation in results)
    return Signature(tuple(parameters), kinds, tuple(generics.items()), optional, rest)


def _kind(annotation: Any, what: str, generics: dict[str, str]) -> Kind:
    annotation = _without_none(annotation)
    if isinstance(annotation, typing.TypeVar):
        known = _CONSTRAINTS.get(frozenset(annotation.__constraints__))
        if known is None and annotation.__bound__ is not None:
            known = _kind(annotation.__bound__, what, {})
            if not isinstance(known, str):
                return known
        generics[annotation.__name__] = known or "any"
        return annotation.__name__
    if not isinstance(annotation, str) and str(annotation) in _KINDS:
        return _KINDS[str(annotation)]
    name = annotation if isinstance(annotation, str) else getattr(annotation, "__name__", "")
    name = name.strip("'\"")
    kind = _KINDS.get(name.rpartition(".")[2])
    if kind is None:
        shown = "no annotation" if annotation is inspect.Parameter.empty else f"the annotation {annotation!r}"
        raise DomainError(
            f"{what} has {shown}",
            hint=f"int, float, str, bool, np.float32, ..., or the name of one of {', '.join(TYPES)}",
        )
    return kind


def _without_none(annotation: Any) -> Any:
    """The annotation without `| None`: that a value may be missing, no type says."""
    if isinstance(annotation, str):
        parts = [part.strip() for part in annotation.removeprefix("Optional[").removesuffix("]").split("|")]
        return next((part for part in parts if part != "None"), annotation) if len(parts) <= 2 else annotation
    others = [one for one in typing.get_args(annotation) if one is not type(None)]
    if len(others) == 1 and type(None) in typing.get_args(annotation):
        return others[0]
    return annotation
