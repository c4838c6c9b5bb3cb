"""Names: what relations, constructors and values are called here, and how they are shown as in the file."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from derivable.core.names import FreshNames
from derivable.datalog.problog.kinds import TERM
from derivable.datalog.problog.terms import Compound, Number, Term, Text, Var

# Kind of a value that stands among others in a column of terms -> its constructor.
WRAPPERS = {"integer": "i64", "float": "f64", "atom": "String", "string": "Symbol"}
_SIGNS = {".": "Cons", "[]": "Nil", "+": "plus", "-": "minus", "*": "times", "/": "over", ",": "pair", "=": "equal"}
_PLAIN = re.compile(r"[a-z][a-zA-Z0-9_]*|\[\]|[-+*/\\^<>=~:.?@#&$]+|!|;")
_QUOTED = str.maketrans({"\\": "\\\\", "'": "\\'", "\n": "\\n", "\t": "\\t"})


def atom_text(name: str) -> str:
    return name if _PLAIN.fullmatch(name) else f"'{name.translate(_QUOTED)}'"


def text_text(value: str) -> str:
    inside = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{inside}"'


def applied(functor: str, arguments: Iterable[str]) -> str:
    inside = ", ".join(arguments)
    return f"{atom_text(functor)}({inside})" if inside else atom_text(functor)


def term_text(term: Term) -> str:
    """A term as the file writes it."""
    match term:
        case Var():
            return "_" if term.is_anonymous else term.name
        case Number(text=text):
            return text
        case Text(value=value):
            return text_text(value)
        case Compound(functor=".", arguments=(_, _)):
            return _list_text(term)
        case Compound(functor=functor, arguments=arguments):
            return applied(functor, map(term_text, arguments))
    raise TypeError(f"not a term: {term!r}")


def _list_text(term: Term) -> str:
    items = []
    while isinstance(term, Compound) and term.key == (".", 2):
        items.append(term_text(term.arguments[0]))
        term = term.arguments[1]
    tail = "" if isinstance(term, Compound) and term.functor == "[]" else f"|{term_text(term)}"
    return f"[{', '.join(items)}{tail}]"


def unique_names(keys: Iterable[tuple[str, int]]) -> dict[tuple[str, int], str]:
    """(functor, arity) -> the functor alone where it is the only one of its name, else `functor/arity`."""
    keys = list(dict.fromkeys(keys))
    counts = Counter(functor for functor, _ in keys)
    return {key: key[0] if counts[key[0]] == 1 else f"{key[0]}/{key[1]}" for key in keys}


def constructor_names(keys: Iterable[tuple[str, int]], taken: Iterable[str]) -> dict[tuple[str, int], str]:
    """(functor, arity) -> an identifier: the functor where it is one, `Cons` and `Nil` for lists."""
    fresh = FreshNames()
    for name in taken:
        fresh(name)
    names = {}
    for functor, arity in keys:
        name = _SIGNS.get(functor) or re.sub(r"\W", "_", functor)
        names[functor, arity] = fresh(name if name.isidentifier() else f"f_{name}")
    return names


@dataclass(frozen=True)
class Shown:
    """How outputs are written as in the file.

    functors      output -> the functor of its rows
    absent        output -> what is written of a query without rows
    constructors  constructor -> its functor and the types of its fields
    outputs       `canonical` text of a query -> its output
    """

    functors: Mapping[str, str] = field(default_factory=dict)
    absent: Mapping[str, str] = field(default_factory=dict)
    constructors: Mapping[str, tuple[str, tuple[str, ...]]] = field(default_factory=dict)
    outputs: Mapping[str, str] = field(default_factory=dict)

    def fact(self, output: str, row: Iterable[Any], types: Iterable[str]) -> str:
        return applied(self.functors.get(output, output), map(self.value, row, types))

    def value(self, value: Any, type_name: str) -> str:
        if type_name == TERM:
            return self.term(value)
        if type_name == "String":
            return atom_text(value)
        return text_text(value) if type_name == "Symbol" else repr(value)

    def term(self, term: Any) -> str:
        """A term, whose numbers and atoms may be wrapped."""
        if term.functor in WRAPPERS:
            return self.value(term.fields[0], WRAPPERS[term.functor])
        functor, types = self.constructors.get(term.functor, (term.functor, ()))
        if functor != "." or len(types) != 2:
            return applied(functor, map(self.value, term.fields, types))
        items = []
        while self.constructors.get(term.functor, ("",))[0] == "." and len(term.fields) == 2:
            items.append(self.value(term.fields[0], types[0]))
            term = term.fields[1]
        tail = "" if self.constructors.get(term.functor, ("",))[0] == "[]" else f"|{self.term(term)}"
        return f"[{', '.join(items)}{tail}]"
