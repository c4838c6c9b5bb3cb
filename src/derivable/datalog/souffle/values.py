"""Values as Soufflé's files write them: numbers, symbols, `[1, nil]`, `$Node(2, $Leaf)`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from derivable.core.numbers import number_of
from derivable.datalog.foreign.wrapping import number_in
from derivable.datalog.souffle.types import Types
from derivable.datalog.syntax.lexer import beyond_space
from derivable.datalog.values.terms import Entity


class NoValueError(Exception):
    """A text that is no value of its type; the message is a part of the file's error."""


class Values:
    """Texts to values and back, for the types of one program; bits of a word: 32 or 64."""

    def __init__(self, types: Types, bits: int):
        self.types, self.bits = types, bits
        self.limits = {
            "number": (-(1 << (bits - 1)), (1 << (bits - 1)) - 1),
            "unsigned": (0, (1 << bits) - 1),
        }
        # Constructor -> (what stands before the fields, what stands behind them, types of the fields).
        self.shown: dict[str, tuple[str, str, tuple[str, ...]]] = {}
        for name, record in types.records.items():
            self.shown[record.name] = "[", "]", record.fields
            self.shown[types.nils[name]] = "nil", "", ()
        for branches in types.sums.values():
            for branch in branches.values():
                ends = ("(", ")") if branch.fields else ("", "")
                self.shown[branch.name] = f"${branch.branch}{ends[0]}", ends[1], branch.fields

    # To values

    def value(self, text: str, t: str) -> Any:
        """The value of a whole text. Raises NoValueError."""
        if t == "symbol":
            return text
        if t in self.limits or t == "float":
            return self.number(text, t)
        try:
            value, end = self.structure(text, 0, t)
        except RecursionError:
            raise NoValueError("the value is nested too deep") from None
        if text[end:].strip():
            raise NoValueError(f"`{text[end:]}` stands behind the value")
        return value

    def number(self, text: str, t: str) -> Any:
        if t == "float":
            try:
                if text != text.strip():
                    raise ValueError
                return number_of(text)
            except ValueError:
                raise NoValueError(f"{text!r} is no float") from None
        value = number_in(text)
        if value is None:
            raise NoValueError(f"{text!r} is no {t}")
        low, high = self.limits[t]
        if not low <= value <= high:
            raise NoValueError(f"{text} is too large or too small for {t} of {self.bits} bits")
        return value

    def structure(self, text: str, position: int, t: str, ends: str = "") -> tuple[Any, int]:
        """The value that begins at a position, and where it ends; `ends` are the signs behind a symbol or number."""
        position = beyond_space(text, position)
        if t in self.types.records:
            if text.startswith("nil", position):
                return Entity(self.types.nils[t]), position + 3
            constructor, opening, closing = self.types.records[t], "[", "]"
            if not text.startswith(opening, position):
                raise NoValueError(f"`{text[position:]}` is no record: it begins with `[`, or is `nil`")
            return self.fields(text, position + 1, constructor.name, constructor.fields, closing)
        if t in self.types.sums:
            if not text.startswith("$", position):
                raise NoValueError(f"`{text[position:]}` is no branch: it begins with `$`")
            end = position + 1
            while end < len(text) and (text[end].isalnum() or text[end] in "_?."):
                end += 1
            name = text[position + 1 : end]
            if name not in self.types.sums[t]:
                raise NoValueError(f"`{t}` has no branch `${name}`")
            constructor = self.types.sums[t][name]
            if not constructor.fields:
                return Entity(constructor.name), end + 2 if text.startswith("()", end) else end
            if not text.startswith("(", end):
                raise NoValueError(f"`${name}` has fields in parentheses")
            return self.fields(text, end + 1, constructor.name, constructor.fields, ")")
        if t == "symbol" and text.startswith('"', position):
            end = text.find('"', position + 1)
            if end < 0:
                raise NoValueError("a quote does not end")
            return text[position + 1 : end], end + 1
        end = position
        while end < len(text) and text[end] not in ends:
            end += 1
        part = text[position:end]
        return (part if t == "symbol" else self.number(part.strip(), t)), end

    def fields(self, text: str, position: int, name: str, types: tuple[str, ...], closing: str) -> tuple[Entity, int]:
        values = []
        for i, t in enumerate(types):
            value, position = self.structure(text, position, t, f",{closing}")
            position = beyond_space(text, position)
            wanted = "," if i < len(types) - 1 else closing
            if not text.startswith(wanted, position):
                raise NoValueError(f"`{wanted}` is missing behind field {i + 1}")
            values.append(value)
            position += 1
        if not types:
            position = beyond_space(text, position)
            if not text.startswith(closing, position):
                raise NoValueError(f"`{closing}` is missing")
            position += 1
        return Entity(name, *values), position

    # To texts

    def text(self, value: Any, t: str, quote: Callable[[str], str] = str) -> str:
        """The text of a value; `quote` is for the symbols in a record or branch."""
        if isinstance(value, Entity):
            before, behind, types = self.shown[value.functor]
            parts = (self.text(part, field, quote) for part, field in zip(value.fields, types))
            return f"{before}{', '.join(parts)}{behind}"
        return self.float_text(value) if t == "float" else quote(value) if t == "symbol" else str(value)

    def float_text(self, value: float) -> str:
        """The digits that a float of this many bits needs at most: 9 or 17."""
        return f"{float(np.float32(value)):.9g}" if self.bits == 32 else f"{value:.17g}"
