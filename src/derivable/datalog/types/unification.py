"""Unification of types.

A literal starts as a family ("integer", "float", "text") and takes the type of the column or variable it meets; what
stays open defaults to i32 (integers and unknowns), f32 (floats), String (texts).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import NoReturn

from derivable.core.diagnostics import DerivableError, Span, TypeMismatchError
from derivable.datalog.syntax import nodes as s
from derivable.datalog.values.values import BOOL, DATETIME, DURATION, ENTITY, F32, I32, STRING, TENSOR, ValueType

# What an open type may become, from loose to strict.
FAMILIES = {
    "any": ("signed", "unsigned", "float", "bool", "char", "text", "entity", "datetime", "duration", "tensor"),
    "ordered": ("signed", "unsigned", "float", "bool", "char", "text", "entity", "datetime", "duration"),
    "number": ("signed", "unsigned", "float"),
    "addable": ("signed", "unsigned", "float", "text"),
    "integer": ("signed", "unsigned"),
    "float": ("float",),
    "text": ("text",),
    "bool": ("bool",),
    "entity": ("entity",),
    "datetime": ("datetime",),
    "duration": ("duration",),
    "tensor": ("tensor",),
}
_DEFAULTS = {
    "any": I32,
    "ordered": I32,
    "number": I32,
    "addable": I32,
    "integer": I32,
    "float": F32,
    "text": STRING,
    "bool": BOOL,
    "entity": ENTITY,
    "datetime": DATETIME,
    "duration": DURATION,
    "tensor": TENSOR,
}
FAMILY_NAMES = {
    "any": "unknown",
    "ordered": "something with an order",
    "number": "a number",
    "addable": "a number or text",
    "integer": "an integer",
    "float": "a float",
    "text": "a text",
    "bool": "a bool",
    "entity": "a term",
    "datetime": "a DateTime",
    "duration": "a Duration",
    "tensor": "a Tensor",
}


@dataclass(eq=False)
class Open:
    """A type not yet known: a family, or a link to what it was unified with."""

    family: str = "any"
    link: Open | ValueType | None = None
    why: str = ""


Type = Open | ValueType


def resolve(t: Type) -> Type:
    """Follow links to the representative, and shorten them, so that long chains of rules stay cheap."""
    found = t
    while isinstance(found, Open) and found.link is not None:
        found = found.link
    while isinstance(t, Open) and t.link is not None:
        t.link, t = found, t.link
    return found


@cache
def meet(a: str, b: str) -> str | None:
    common = set(FAMILIES[a]) & set(FAMILIES[b])
    for family, members in FAMILIES.items():
        if set(members) == common:
            return family
    return None


def final(t: Type) -> ValueType:
    """The type itself, or what an open one defaults to."""
    t = resolve(t)
    return t if isinstance(t, ValueType) else _DEFAULTS[t.family]


class Unifier:
    """Reports type clashes of one program with their place."""

    def __init__(self, syntax: s.Syntax):
        self.syntax = syntax

    def error(self, kind: type[DerivableError], message: str, span: Span, hint: str | None = None) -> NoReturn:
        raise kind(message, hint=hint, source=self.syntax.source, text=self.syntax.text, span=span)

    def require(self, t: Type, family: str, span: Span, what: str) -> None:
        t = resolve(t)
        if isinstance(t, ValueType):
            if t.family not in FAMILIES[family]:
                self.error(TypeMismatchError, f"type clash: {what} needs {FAMILY_NAMES[family]}, this is {t}", span)
            return
        met = meet(t.family, family)
        if met is None:
            self.error(
                TypeMismatchError,
                f"type clash: {what} needs {FAMILY_NAMES[family]}, this is {FAMILY_NAMES[t.family]}",
                span,
            )
        t.family = met

    def unify(self, found: Type, wanted: Type, span: Span, where: str) -> None:
        a, b = resolve(found), resolve(wanted)
        if a is b:
            return
        if isinstance(a, ValueType) and isinstance(b, ValueType):
            # A column of type Entity takes the terms of every data type.
            if a != b and not (a.family == b.family == "entity" and ENTITY in (a, b)):
                self.clash(a, b, span, where)
            return
        if isinstance(a, Open) and isinstance(b, Open):
            met = meet(a.family, b.family)
            if met is None:
                self.clash(a, b, span, where)
            b.family = met
            a.link = b
            return
        open_type, fixed = (a, b) if isinstance(a, Open) else (b, a)
        assert isinstance(open_type, Open)
        assert isinstance(fixed, ValueType)
        if fixed.family not in FAMILIES[open_type.family]:
            self.clash(a, b, span, where)
        open_type.link = fixed

    def may_be(self, t: Type, wanted: ValueType) -> bool:
        """Whether a type, open or not, may still be this one."""
        t = resolve(t)
        return t == wanted if isinstance(t, ValueType) else wanted.family in FAMILIES[t.family]

    def clash(self, a: Type, b: Type, span: Span, where: str) -> NoReturn:
        def shown(t: Type) -> str:
            return str(t) if isinstance(t, ValueType) else FAMILY_NAMES[t.family]

        hint = None
        if isinstance(a, ValueType) and isinstance(b, ValueType) and a.is_number and b.is_number:
            hint = f"convert one side: `x as {b}`"
        self.error(TypeMismatchError, f"type clash: this is {shown(a)}, but {where} is {shown(b)}", span, hint)
