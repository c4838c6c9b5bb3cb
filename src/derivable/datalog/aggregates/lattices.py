"""Lattices of columns: what two values become that a relation has for the same values of its other columns.

`min` and `max` are of whatever has an order, `bit_or` and `bit_and` are unions and intersections of sets of bits.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from typing import Any, Literal

import numpy as np

from derivable.algebra.expr import bitwise_and, bitwise_or, cast, maximum, minimum
from derivable.algebra.expr.types import Dtype
from derivable.algebra.monoid import Monoid
from derivable.algebra.typed import TypedMonoid
from derivable.core.diagnostics import DomainError
from derivable.core.registry import Registry
from derivable.datalog.scalars.arithmetic import scalar_type
from derivable.datalog.values.symbols import SymbolTable
from derivable.datalog.values.values import TYPES, ValueType, sort_keys

_FAMILIES = {
    "ordered": ("signed", "unsigned", "float", "bool", "char", "text", "datetime", "duration", "entity"),
    "number": ("signed", "unsigned", "float"),
    "integer": ("signed", "unsigned"),
    "float": ("float",),
    "bool": ("bool",),
}


# The lattice that keeps the value that is there.
FIRST = "first"


@dataclass(frozen=True)
class Lattice:
    """A join of two values, which is commutative, associative and idempotent.

    join       traceable function of two scalars
    takes      what the column is: "ordered", "number", "integer", "float" or "bool"
    direction  1 if the join is the larger of the two, -1 if it is the smaller, 0 if it is neither
    is_final   whether the join is the first of the two: a value that is there stays, so whoever reads it may do so at
               any time, and which one it is depends on the order in which rows are derived
    """

    name: str
    join: Callable[[Any, Any], Any]
    takes: str
    direction: Literal[-1, 0, 1] = 0
    is_final: bool = False

    def takes_type(self, t: ValueType) -> bool:
        """Whether a column of this type can have the lattice."""
        return t.family in _FAMILIES[self.takes] and (not t.is_wide or self.direction != 0)

    def typed(self, t: ValueType) -> TypedMonoid:
        """The join of words of a column as `column_dtype` has them; of a type that is not `is_ranked`."""
        return _typed(self, t)

    def joined(self, a: np.ndarray, b: np.ndarray, t: ValueType, symbols: SymbolTable) -> np.ndarray:
        """The joins [row] int64 of words [row] of a type."""
        if is_ranked(t):
            keys = sort_keys(np.concatenate([a, b]), t, symbols)
            first = self.direction * keys[: len(a)] >= self.direction * keys[len(a) :]
            return np.where(first, a, b)
        stored = column_dtype(t)
        words = self.typed(t).apply((a.view(stored),), (b.view(stored),))[0]
        return np.array(np.broadcast_to(words, a.shape), stored).view(np.int64)


def is_ranked(t: ValueType) -> bool:
    """Whether the order of values is not that of their words."""
    return t.family in ("text", "duration", "entity") or t.is_wide


def column_dtype(t: ValueType) -> Dtype:
    """The type of a column of values of a lattice: words, as floats those of floats."""
    return "float64" if t.family == "float" else "int64"


@lru_cache(256)
def _typed(lattice: Lattice, t: ValueType) -> TypedMonoid:
    stored, computed = column_dtype(t), scalar_type(t)
    if computed in ("float32", "bool") and lattice.direction:
        # Their words are in their order.
        computed = stored

    def join(a: Any, b: Any) -> Any:
        if computed == stored:
            return lattice.join(a, b)
        return cast(lattice.join(cast(a, computed), cast(b, computed)), stored)

    return Monoid(f"the lattice {lattice.name}", join, "if", 0).typed((stored,))


LATTICES: Registry[Lattice] = Registry("lattice", more="`derivable.datalog.lattice` adds one")

for _record in (
    Lattice("min", minimum, "ordered", -1),
    Lattice("max", maximum, "ordered", 1),
    Lattice("bit_or", bitwise_or, "integer"),
    Lattice("bit_and", bitwise_and, "integer"),
    Lattice(FIRST, lambda a, b: a, "ordered", is_final=True),
):
    LATTICES.add(_record.name, _record)


# Values on which the laws of a join are checked.
_SAMPLES: dict[str, list[Any]] = {
    "i64": [*range(-9, 10), 100, -100, 1 << 40, -(1 << 40)],
    "u64": [*range(19), 100, 1 << 40, (1 << 63) + 5],
    "f64": [0.0, 0.25, 0.5, 1.0, 1.5, 3.0, 1e9, -0.25, -1.0, -2.5, -1e9],
    "bool": [False, True],
}
_CHECKED = {"number": ("i64", "u64", "f64"), "integer": ("i64", "u64"), "float": ("f64",), "bool": ("bool",)}


def lattice(name: str, join: Callable[[Any, Any], Any], *, takes: str = "number") -> Lattice:
    """A user-defined lattice, known by its name in all programs from now on; returns its record.

        gcd_of_powers = lattice("fewest_bits", lambda a, b: dv.where(a & -a < b & -b, a & -a, b & -b), takes="integer")

    join   (a, b) -> what the two values become, traced as the operations of a semiring are; commutative, associative
           and idempotent. These laws are checked on some values
    takes  what the column is: "number", "integer", "float" or "bool"

    Raises DomainError if the name is taken, something is of the wrong kind, or a law fails, with the values.
    """
    if not isinstance(name, str) or not name.isidentifier():
        raise DomainError(f"the name of a lattice is an identifier, not {name!r}")
    if takes not in _CHECKED:
        raise DomainError(f"a lattice takes numbers or bools, not {takes!r}", hint=", ".join(_CHECKED))
    made = Lattice(name, join, takes)
    for type_name in _CHECKED[takes]:
        _check_laws(made, type_name)
    return LATTICES.add(name, made)


def _check_laws(made: Lattice, type_name: str) -> None:
    t = TYPES[type_name]
    dtype, kind = np.dtype(column_dtype(t)), np.dtype(scalar_type(t))
    samples = np.array(_SAMPLES[type_name], kind)
    a, b, c = (np.array(column).astype(dtype) for column in zip(*product(samples, repeat=3)))
    typed = made.typed(t)

    def join(x: np.ndarray, y: np.ndarray) -> np.ndarray:
        return np.broadcast_to(np.asarray(typed.apply((x,), (y,))[0], dtype), x.shape)

    laws = {
        "idempotent: join(a, a) is not a": (join(a, a), a),
        "commutative: join(a, b) is not join(b, a)": (join(a, b), join(b, a)),
        "associative: join(join(a, b), c) is not join(a, join(b, c))": (join(join(a, b), c), join(a, join(b, c))),
    }
    for law, (left, right) in laws.items():
        wrong = np.flatnonzero(left != right)
        if len(wrong):
            named = [(x, column[wrong[0]]) for x, column in zip("abc", (a, b, c)) if x in law.split(":")[1]]
            shown = ", ".join(f"{x} = {value.astype(kind)}" for x, value in named)
            raise DomainError(
                f"the join of the lattice {made.name!r} is not {law} for {shown}, of type {type_name}",
                hint="a join is a least upper bound, such as a maximum or a union",
            )
