"""A program: an expression, its inputs, and the type of its result."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from derivable.core.diagnostics import BindingError
from derivable.tensor import nodes as t
from derivable.tensor.check import check
from derivable.tensor.text import NAME, RESERVED
from derivable.tensor.types import REAL, Type


@dataclass(frozen=True, eq=False)
class Program:
    """An expression of SDQLite over named inputs. It never changes, and programs of the same text are equal.

    node    the expression
    inputs  {name: Type} of its free variables, in the order in which they were declared
    type    of the result; that of a zero of any order is `real`

    Raises BindingError and TypeMismatchError as `check`.
    """

    node: t.Node
    inputs: Mapping[str, Type]
    type: Type = field(init=False)

    def __post_init__(self) -> None:
        inputs = dict(self.inputs)
        for name in inputs:
            if not re.fullmatch(NAME, name) or name in RESERVED:
                what = "a word of the language" if name in RESERVED else "no name of the language"
                raise BindingError(f"the input {name!r} is {what}", hint="a name has letters, digits, `_` and `'`")
        object.__setattr__(self, "inputs", MappingProxyType(inputs))
        object.__setattr__(self, "type", check(self.node, inputs) or REAL)

    def __str__(self) -> str:
        return str(self.node)

    @property
    def _identity(self) -> tuple[str, tuple[tuple[str, Type], ...]]:
        return str(self), tuple(self.inputs.items())

    def __eq__(self, other: Any) -> bool:
        return isinstance(other, Program) and self._identity == other._identity

    def __hash__(self) -> int:
        return hash(self._identity)
