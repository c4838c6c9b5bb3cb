"""A text in Soufflé's language becomes a program: preprocessed, parsed, flattened, translated."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import count
from typing import Any

from derivable.core.diagnostics import DomainError
from derivable.core.roots import Roots
from derivable.datalog.foreign.function import ForeignFunction
from derivable.datalog.foreign.signature import signature
from derivable.datalog.foreign.standard import FUNCTIONS
from derivable.datalog.scalars.nodes import walk
from derivable.datalog.souffle import nodes as n
from derivable.datalog.souffle.components import flattened
from derivable.datalog.souffle.lexer import SourceText
from derivable.datalog.souffle.parse import parse
from derivable.datalog.souffle.preprocess import Preprocessor
from derivable.datalog.souffle.translate import Translation
from derivable.datalog.souffle.types import WORDS, Types
from derivable.datalog.syntax import nodes as s
from derivable.datalog.values.values import ENTITY


@dataclass(frozen=True)
class Loaded:
    """What a text says: the program, and what it reads and writes.

    facts_of     relation -> the one that takes its facts, of those that do not keep all rows
    statements  where the items of the text stand, in components too
    """

    syntax: s.Syntax
    types: Types
    directives: tuple[n.Directive, ...]
    bits: int
    facts_of: Mapping[str, str]
    statements: tuple[n.Span, ...] = ()

    def type_name(self, name: str, span: n.Span) -> str:
        """The name here of a type of a functor's parameter or result."""
        return WORDS[self.bits].get(self.types.resolved(name, span), ENTITY.name)


def load(
    text: str,
    source: str,
    macros: Mapping[str, str] | None,
    functors: Mapping[str, Callable[..., Any]] | None,
    bits: int,
    roots: Roots,
    is_text: bool = False,
) -> Loaded:
    """The program of a text.

    is_text  whether it is to be written rather than run, so that functors have the names of the text

    Raises ParseError, BindingError, TypeMismatchError and UnsupportedError with spans.
    """
    if bits not in WORDS:
        raise DomainError(f"a word has 32 or 64 bits, not {bits!r}", hint="word=32, or word=64")
    file = SourceText(text, source)
    tokens = Preprocessor(macros, roots).run(file)
    parsed = parse(tokens, file)
    items = flattened(parsed, file)
    directives = tuple(item for item in items if isinstance(item, n.Directive))
    types = Types(items, file)
    parts = (part for item in items for part in walk(item))
    if any(isinstance(part, n.Attribute) and part.type_name in ("int64", "uint64", "float64") for part in parts):
        bits = 64
    for directive in directives:
        types.columns(directive.relation, directive.span)
    of_python = {} if is_text else _python_functors(types, functors or {}, bits)
    known = {name: name for name in types.functors if is_text or name in FUNCTIONS}
    known |= {name: functor.title for name, functor in of_python.items()}
    shown = [d.relation for d in directives if d.kind in ("output", "printsize")]
    translation = Translation(items, types, bits, known)
    facts_of = {name: selection.facts for name, selection in translation.selections.items() if not selection.is_whole}
    syntax = replace(translation.run(shown), functions=tuple(of_python.values()))
    return Loaded(syntax, types, directives, bits, facts_of, tuple(_statements(parsed)))


def _statements(items: Iterable[n.Node]) -> Iterator[n.Span]:
    for item in items:
        if isinstance(item, n.Component):
            yield from _statements(item.items)
        else:
            yield item.span


class _Functor:
    """A function of Python's in the table of functions, where it is as long as something has this."""

    def __init__(self, name: str, text: str, call: Callable[..., Any]):
        # No other function may have this name ever, since others remember it.
        self.title = f"souffle_functor_{name}_{next(_numbers)}"
        FUNCTIONS.add(self.title, ForeignFunction(self.title, signature(text), call))
        weakref.finalize(self, FUNCTIONS.remove, self.title)


_numbers = count(1)
# The same one for the same call; what it calls lives as long.
_functors: weakref.WeakValueDictionary[tuple[str, str, int], _Functor] = weakref.WeakValueDictionary()


def _python_functors(types: Types, functors: Mapping[str, Callable[..., Any]], bits: int) -> dict[str, _Functor]:
    """Name of a functor -> the function of Python's that it calls, of those in `functors`."""
    for name in functors:
        if name not in types.functors:
            known = ", ".join(types.functors) or "none"
            raise DomainError(f"the program has no functor `@{name}`", hint=f"it declares {known}")
    made = {}
    for name, call in functors.items():
        declared = types.functors[name]
        bases = [types.resolved(t, declared.span) for t in (*declared.parameters, declared.result)]
        kinds = [WORDS[bits].get(base, "Entity") for base in bases]
        key = name, f"({', '.join(kinds[:-1])}) -> {kinds[-1]}", id(call)
        made[name] = _functors.get(key) or _functors.setdefault(key, _Functor(*key[:2], call))
    return made
