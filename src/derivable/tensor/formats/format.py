"""The record of a storage format, from which every kernel over it is made.

A bitmap vector, as a user writes it:

>>> import numpy as np
>>> from derivable.tensor.formats.format import Format
>>> def pack(entries, zero):
...     held, val = np.zeros(entries.shape[0], bool), np.full(entries.shape[0], zero)
...     held[entries.indices[0]], val[entries.indices[0]] = True, entries.values
...     return {"held": held, "val": val}
>>> text = "sum(<_, i> in (0:n0)) if held(i) then { unique(i) -> val(i) }"
>>> bitmap = Format("bitmap", 1, text, {"held": "bool", "val": "real"}, pack)
>>> bitmap.order
1
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any, Literal, get_args

from derivable.core.arguments import integer
from derivable.core.diagnostics import DomainError, ShapeError
from derivable.core.registry import Registry, suggestion
from derivable.tensor.language import nodes as t
from derivable.tensor.language.text import RESERVED
from derivable.tensor.language.types import INT, Type, array

Kind = Literal["real", "int", "bool", "sorted", "ascending", "offsets", "hashed"]
KINDS: tuple[Kind, ...] = get_args(Kind)
# The kinds of arrays in which an index is looked up without a loop over all.
SEARCHED: tuple[Kind, ...] = ("sorted", "ascending", "hashed")


@dataclass(frozen=True, eq=False)
class Format:
    """How tensors of one order are stored.

    definition  the tensor as an expression of its arrays and sizes. `n0`, `n1`, ... are the sizes of its axes. A key in
                `unique( )` comes once for each key outside it; without it, entries of one key may lie apart
    arrays      what each array holds: "real" values, "int" or "bool"; indices that ascend in each part that a sum runs
                over are "sorted", or "ascending" where equal ones follow each other, and are looked up by bisection;
                "offsets" ascend from beginning to end, so that parts from one to the next lie one after the other;
                "hashed" is a table with a power of two of places, -1 in the empty ones, where an index stands at or
                after the place that it hashes to
    pack        (entries, zero) -> {name: array, or integer for a size}. `entries` has `shape`, `indices` [axis, entry]
                in lexicographic order, each once, and `values` [entry]; `zero` is what stands where nothing is stored
    sizes       names of integers in the definition besides those of the axes
    own         takes the arrays from an object that is stored so already, without a copy; None for others
    attributes  by array, which attribute, or call of a method, of such an object is what `own` takes. While those that
                say where entries are stay the same objects, they are taken so
    """

    name: str
    order: int
    definition: str
    arrays: Mapping[str, Kind]
    pack: Callable[[Any, Any], dict[str, Any]]
    sizes: tuple[str, ...] = ()
    own: Callable[[Any], dict[str, Any] | None] = lambda value: None
    attributes: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        what = f"the format {self.name!r}"
        integer(self.order, f"the order of {what}", 0)
        if not isinstance(self.arrays, Mapping) or isinstance(self.sizes, str):
            raise DomainError(
                f"{what} has names as `arrays` or `sizes`", hint='arrays={"val": "real"}, sizes=("stored",)'
            )
        for name, kind in self.arrays.items():
            if kind not in KINDS:
                hint = suggestion(kind, KINDS, f"kinds are {', '.join(KINDS)}")
                raise DomainError(f"the array `{name}` of {what} is of the kind {kind!r}", hint=hint)
        if not callable(self.pack):
            raise DomainError(f"`pack` of {what} is a {type(self.pack).__name__}, and no function")
        taken = [*self.axis_sizes]
        for name in (*self.arrays, *self.sizes):
            if name in taken or name in RESERVED:
                other = "is a word of the language" if name in RESERVED else "stands for something already"
                raise DomainError(f"the name `{name}` of {what} {other}", hint="choose another name")
            taken.append(name)

    def __reduce__(self) -> Any:
        # The functions of known formats have no names by which another process would find them.
        is_known = self.name in families() and format_of(self.name, self.order) is self
        return (format_of, (self.name, self.order)) if is_known else super().__reduce__()

    @property
    def axis_sizes(self) -> tuple[str, ...]:
        return tuple(f"n{k}" for k in range(self.order))

    @cached_property
    def types(self) -> dict[str, Type]:
        """What the names of the definition are."""
        elements = {"real": "real", "bool": "bool"}
        found = {name: array(elements.get(kind, "int")) for name, kind in self.arrays.items()}  # type: ignore[arg-type]
        return {**found, **dict.fromkeys((*self.axis_sizes, *self.sizes), INT)}

    @cached_property
    def node(self) -> t.Node:
        """The definition, parsed and checked. Raises our errors with the place in it."""
        from derivable.tensor.language.syntax import parse

        program = parse(self.definition, self.types, source=f"format {self.name}")
        if program.type.order != self.order:
            raise ShapeError(
                f"the definition of the format `{self.name}` is {program.type}, and the format says order {self.order}"
            )
        return program.node


# By name, what makes the format for an order, or raises ShapeError.
FAMILIES: Registry[Callable[[int], Format]] = Registry(
    "storage format", aliases={"row_major": "dense"}, more="a `Format` of one's own can be given in its place"
)


def format_of(name: str, order: int) -> Format:
    """The format of that name for tensors of an order, one record for all its names. Raises DomainError for an unknown
    name, and ShapeError for an order that it does not have."""
    return _format_of(families().resolved(name), order)


@lru_cache(256)
def _format_of(name: str, order: int) -> Format:
    return families()[name](order)


def families() -> Registry[Callable[[int], Format]]:
    """`FAMILIES` with the formats of the library in it."""
    import derivable.tensor.formats.standard  # noqa: F401

    return FAMILIES


def only(given: int, order: int, name: str) -> None:
    """Raises ShapeError unless a format that is for one order is asked for that one."""
    if order != given:
        raise ShapeError(
            f"the format `{name}` is for tensors of order {order}, and not {given}",
            hint="`dense`, `coo`, `csf` and `hashed` hold tensors of any order",
        )
