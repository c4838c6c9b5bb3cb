"""Unification of types.

A literal starts as a family ("integer", "float", "text") and takes the type of the column or variable it meets; what
stays open defaults to the type that facts have there, else to i32 (integers and unknowns), f32 (floats) or String.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import NoReturn

from derivable.core.diagnostics import DerivableError, Span, TypeMismatchError
from derivable.datalog.syntax import nodes as s
from derivable.datalog.values.values import BOOL, DATETIME, DURATION, ENTITY, F32, I32, STRING, TENSOR, ValueType


@dataclass(frozen=True)
class Family:
    """What an open type may become: `members`, families of types; it is `default` where nothing says which."""

    title: str
    default: ValueType
    members: tuple[str, ...]


def _family(title: str, default: ValueType, members: str) -> Family:
    return Family(title, default, tuple(members.split()))


# From loose to strict.
FAMILIES = {
    "any": _family("unknown", I32, "signed unsigned float bool char text entity datetime duration tensor"),
    "ordered": _family("something with an order", I32, "signed unsigned float bool char text entity datetime duration"),
    "number": _family("a number", I32, "signed unsigned float"),
    "addable": _family("a number or text", I32, "signed unsigned float text"),
    "integer": _family("an integer", I32, "signed unsigned"),
    "float": _family("a float", F32, "float"),
    "text": _family("a text", STRING, "text"),
    "bool": _family("a bool", BOOL, "bool"),
    "entity": _family("a term", ENTITY, "entity"),
    "datetime": _family("a DateTime", DATETIME, "datetime"),
    "duration": _family("a Duration", DURATION, "duration"),
    "tensor": _family("a Tensor", TENSOR, "tensor"),
}


@dataclass(eq=False)
class Open:
    """A type not yet known: a family, or a link to what it was unified with.

    wish  the type that facts have, which it is if nothing says otherwise
    """

    family: str = "any"
    link: Open | ValueType | None = None
    wish: ValueType | None = None


Type = Open | ValueType


def resolve(t: Type) -> Type:
    """Follow links to the representative, and shorten them, so that long chains of rules stay cheap."""
    if not isinstance(t, Open) or t.link is None:
        return t
    root = t.link
    while isinstance(root, Open) and root.link is not None:
        root = root.link
    while isinstance(t, Open) and t.link is not None:
        t.link, t = root, t.link
    return root


@cache
def meet(a: str, b: str) -> str | None:
    common = {*FAMILIES[a].members} & {*FAMILIES[b].members}
    return next((name for name, family in FAMILIES.items() if {*family.members} == common), None)


def final(t: Type) -> ValueType:
    """The type itself, or what an open one defaults to."""
    t = resolve(t)
    if isinstance(t, ValueType):
        return t
    if t.wish is not None and t.wish.family in FAMILIES[t.family].members:
        return t.wish
    return FAMILIES[t.family].default


def _wider(a: ValueType | None, b: ValueType | None) -> ValueType | None:
    """What holds the most of two types that facts have; of 64 bits the one with a sign, for differences."""
    if a is None or b is None:
        return a or b
    return max(a, b, key=lambda t: (t.bits, t.family == "signed"))


def shown(t: Type) -> str:
    """A resolved type in a message."""
    return str(t) if isinstance(t, ValueType) else FAMILIES[t.family].title


class Unifier:
    """Reports type clashes of one program with their spans."""

    def __init__(self, syntax: s.Syntax):
        self.syntax = syntax

    def error(self, kind: type[DerivableError], message: str, span: Span, hint: str | None = None) -> NoReturn:
        self.syntax.error(kind, message, span, hint)

    def mismatch(self, message: str, span: Span, hint: str | None = None) -> NoReturn:
        self.error(TypeMismatchError, message, span, hint)

    def require(self, t: Type, family: str, span: Span, what: str) -> None:
        t = resolve(t)
        if isinstance(t, ValueType):
            met = family if t.family in FAMILIES[family].members else None
        else:
            met = meet(t.family, family)
        if met is None:
            message = f"type clash: {what} needs {FAMILIES[family].title}, this is {shown(t)}"
            self.mismatch(message, span)
        if isinstance(t, Open):
            t.family = met

    def unify(self, actual: Type, wanted: Type, span: Span, where: str) -> None:
        a, b = resolve(actual), resolve(wanted)
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
            b.wish = _wider(a.wish, b.wish)
            a.link = b
            return
        open_type, fixed = (a, b) if isinstance(a, Open) else (b, a)
        assert isinstance(open_type, Open)
        assert isinstance(fixed, ValueType)
        if fixed.family not in FAMILIES[open_type.family].members:
            self.clash(a, b, span, where)
        open_type.link = fixed

    def may_be(self, t: Type, wanted: ValueType) -> bool:
        """Whether a type, open or not, may still be this one."""
        t = resolve(t)
        return t == wanted if isinstance(t, ValueType) else wanted.family in FAMILIES[t.family].members

    def clash(self, a: Type, b: Type, span: Span, where: str) -> NoReturn:
        hint = None
        if isinstance(a, ValueType) and isinstance(b, ValueType) and a.is_number and b.is_number:
            hint = f"convert one side: `x as {b}`"
        self.mismatch(f"type clash: this is {shown(a)}, but {where} is {shown(b)}", span, hint)
