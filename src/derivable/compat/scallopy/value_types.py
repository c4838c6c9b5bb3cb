"""The types of Scallop's values and tags as Python names them, and what annotations mean."""

from __future__ import annotations

import importlib.util
import typing
from typing import Any, TypeVar

from derivable.compat.scallopy.syntax import AstTypeNode
from derivable.core.diagnostics import DomainError
from derivable.datalog.foreign.signature import Kind
from derivable.datalog.values.values import ENTITY, TYPES, ValueType

_VALUES = {**TYPES, ENTITY.name: ENTITY}
_FAMILIES = {
    "Any": "any",
    "Number": "number",
    "Integer": "integer",
    "SignedInteger": "integer",
    "UnsignedInteger": "integer",
    "Float": "float",
}
# What `Generic(int)`, `Generic(float)` and `Generic(any)` are.
_FAMILIES_OF_PYTHON = {"int": "Integer", "float": "Float", "any": "Any"}
TAGS = ("none", "natural", "prob", "exclusion", "boolean", "exclusive_prob", "diff_prob", "exclusive_diff_prob")
NAMES = (*_VALUES, *_FAMILIES, *TAGS)
_VARIABLES: dict[str, Any] = {name: TypeVar(name) for name in NAMES}  # pyright: ignore[reportGeneralTypeIssues]
# What the types of Python are in declarations and of predicates.
_CONCRETE: dict[Any, str] = {int: "i32", float: "f32", str: "String", bool: "bool"}


def __getattr__(name: str) -> Any:
    if name in _VARIABLES:
        return _VARIABLES[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


class GenericTypeParameter:
    """A type that a program decides, the same one wherever a function's annotations name it.

    type_family  what it may be: `Number`, `Integer`, `Float`, ...; None for any type
    """

    _made = 0

    def __init__(self, type_family: Any = None):
        GenericTypeParameter._made += 1
        self.name = f"T{GenericTypeParameter._made}"
        title = "Any" if type_family is None else getattr(type_family, "__name__", type_family)
        title = _FAMILIES_OF_PYTHON.get(title, title)
        if title not in _FAMILIES:
            raise DomainError(
                f"a generic type is of a family, not {type_family!r}", hint=f"one of {', '.join(_FAMILIES)}"
            )
        self.family = _FAMILIES[title]

    def __repr__(self) -> str:
        return f"Generic({self.name}: {self.family})"


def type_name(given: Any) -> str:
    """The name of a type of Scallop that Python gives: `int`, `str`, ..., a name, or one of this module's types.

    Raises DomainError for anything else.
    """
    if isinstance(given, type) and given in _CONCRETE:
        return _CONCRETE[given]
    name = given.__name__ if isinstance(given, TypeVar) else given
    if isinstance(name, str):
        return name
    raise DomainError(f"unknown type {given!r}", hint=f"int, float, str, bool, or one of {', '.join(_VALUES)}")


def kind_of(given: Any, what: str, has_families: bool, generics: dict[str, str]) -> Kind:
    """What an annotation of a function or predicate means.

    what          is annotated, for messages
    has_families  whether `int` and `float` are any integer and any float, else i32 and f32
    generics      the generic types so far: name -> family; one that the annotation names is added

    Raises DomainError for an annotation that is no type.
    """
    if isinstance(given, AstTypeNode):
        given = given.name()
    elif isinstance(given, typing.ForwardRef):
        given = given.__forward_arg__
    given = _without_none(given)
    if isinstance(given, GenericTypeParameter):
        generics[given.name] = given.family
        return given.name
    if has_families and isinstance(given, type) and given in (int, float):
        return "integer" if given is int else "float"
    if getattr(given, "__module__", "").split(".")[0] == "torch" and getattr(given, "__name__", "") == "Tensor":
        return TYPES["Tensor"]
    if given in _CONCRETE or isinstance(given, (str, TypeVar)):
        name = type_name(given)
        if name in _VALUES:
            return _VALUES[name]
        if name in _FAMILIES:
            return _FAMILIES[name]
    raise DomainError(
        f"{what} has the annotation {given!r}, which is no type", hint=f"int, float, str, bool, {', '.join(_VALUES)}"
    )


def is_concrete(kind: Kind, generics: dict[str, str]) -> bool:
    """Whether a kind is a type, or a generic that arguments decide."""
    return isinstance(kind, ValueType) or kind in generics


def _without_none(given: Any) -> Any:
    """The annotation without `Optional`."""
    others = [one for one in typing.get_args(given) if one is not type(None)]
    return others[0] if len(others) == 1 and type(None) in typing.get_args(given) else given


def torch_tensor_enabled() -> bool:
    """Whether torch is there, whose tensors tags and values may be."""
    return importlib.util.find_spec("torch") is not None


Generic = GenericTypeParameter
