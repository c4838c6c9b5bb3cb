"""What a foreign function or predicate takes and gives.

>>> print(signature("<T: Number>(x: T, places: u32?, T...) -> T"))
<T: number>(T, u32?, T...) -> T
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from derivable.core.diagnostics import DomainError
from derivable.core.registry import suggestion
from derivable.datalog.values.values import ENTITY, TYPE_ALIASES, TYPES, ValueType

# A type, a generic of the signature, or a family of types, which the program decides among.
Kind = ValueType | str
FAMILIES = ("any", "ordered", "number", "integer", "float")

_GENERIC = re.compile(r"\s*([A-Za-z_]\w*)\s*(?::\s*([A-Za-z]\w*))?\s*")
_SIGNATURE = re.compile(r"\s*(?:<([^>]*)>)?\s*\(([^)]*)\)\s*(?:->\s*(.+?)\s*)?", re.DOTALL)


@dataclass(frozen=True)
class Signature:
    """`<T: number>(T, u32?, T...) -> T`

    parameters  those before the variable ones
    results     one of a function; one for each output of a predicate
    generics    name -> family
    optional    how many of the parameters, the last ones, a call may leave out
    rest        what further arguments are; None if there are none
    """

    parameters: tuple[Kind, ...]
    results: tuple[Kind, ...]
    generics: tuple[tuple[str, str], ...] = ()
    optional: int = 0
    rest: Kind | None = None

    def kinds(self, count: int) -> tuple[Kind, ...] | None:
        """The kinds of `count` arguments; None if it does not take so many."""
        least, most = len(self.parameters) - self.optional, len(self.parameters)
        if count < least or (count > most and self.rest is None):
            return None
        return (*self.parameters[:count], *(self.rest,) * (count - most)) if self.rest else self.parameters[:count]

    def counts(self) -> str:
        """How many arguments it takes, in words."""
        least, most = len(self.parameters) - self.optional, len(self.parameters)
        if self.rest is not None:
            return f"at least {least} argument{'s' if least != 1 else ''}"
        if least < most:
            return f"{least} to {most} arguments"
        return "one argument" if least == 1 else f"{least or 'no'} arguments"

    def __str__(self) -> str:
        shown = [str(kind) for kind in self.parameters]
        for index in range(len(shown) - self.optional, len(shown)):
            shown[index] += "?"
        if self.rest is not None:
            shown.append(f"{self.rest}...")
        generics = ", ".join(name if family == "any" else f"{name}: {family}" for name, family in self.generics)
        results = ", ".join(map(str, self.results))
        end = results if len(self.results) == 1 else f"({results})"
        return f"{f'<{generics}>' if generics else ''}({', '.join(shown)}) -> {end}"


def signature(text: str) -> Signature:
    """The signature that a text says, as Scallop's documentation writes them; names of parameters may be left out.

    Raises DomainError for a text that is none, and for an unknown type.
    """
    match = _SIGNATURE.fullmatch(text)
    if match is None:
        raise DomainError(f"{text!r} is no signature", hint="write, for instance, `<T: Number>(x: T, u32?) -> T`")
    generics = []
    for part in _parts(match[1] or ""):
        generic = _GENERIC.fullmatch(part)
        if generic is None:
            raise DomainError(f"{part!r} is no generic type", hint="write, for instance, `T: Number`")
        generics.append((generic[1], family(generic[2] or "any")))
    names = [name for name, _ in generics]
    parameters: list[Kind] = []
    optional, rest = 0, None
    for part in _parts(match[2]):
        name = part.rpartition(":")[2].strip()
        if name.endswith("..."):
            rest = kind(name[:-3].strip(), names)
            continue
        if optional and not name.endswith("?"):
            raise DomainError(f"in {text!r} a parameter follows an optional one, and is not optional")
        optional += name.endswith("?")
        parameters.append(kind(name.removesuffix("?").strip(), names))
    results = tuple(kind(part.rpartition(":")[2].strip(), names) for part in _parts((match[3] or "").strip("()")))
    return Signature(tuple(parameters), results, tuple(generics), optional, rest)


def kind(name: str, generics: Sequence[str] = ()) -> Kind:
    """The kind of that name: a generic, a type, or a family."""
    if name in generics:
        return name
    name = TYPE_ALIASES.get(name, name)
    if name == ENTITY.name:
        return ENTITY
    return TYPES[name] if name in TYPES else family(name, generics)


def family(name: str, generics: Sequence[str] = ()) -> str:
    """The family of that name, `Number` or `number`. Raises DomainError, with the nearest name, for another."""
    if name.lower() not in FAMILIES:
        known = [*generics, *TYPES, *(one.capitalize() for one in FAMILIES)]
        raise DomainError(f"unknown type `{name}`", hint=suggestion(name, known, f"known are {', '.join(known)}"))
    return name.lower()


def _parts(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]
