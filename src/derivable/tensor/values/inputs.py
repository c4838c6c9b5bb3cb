"""Inputs of programs that are no tensors: numbers, and arrays of storage formats."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

import numpy as np

from derivable.algebra.semiring import Semiring
from derivable.core.arguments import is_integer
from derivable.core.diagnostics import DomainError
from derivable.core.registry import suggestion
from derivable.tensor.language import nodes as t
from derivable.tensor.language.types import INT, SIZE, Type
from derivable.tensor.values.values import check_shape, dense_array, elements


def taken_names(inputs: Mapping[str, Type]) -> set[str]:
    """The names that a call may give: those of the inputs, and of tensors whose sizes are inputs."""
    return {*inputs, *(name.rpartition(SIZE)[0] for name in inputs if SIZE in name)}


def checked_names(
    inputs: Mapping[str, Type], needed: Collection[str], values: Mapping[str, Any]
) -> Iterator[tuple[str, Any, Type]]:
    """(name, value, type) of each input that is needed. Raises DomainError for one that is missing or unknown."""
    taken = taken_names(inputs)
    known = ", ".join(inputs) or "none"
    for name in values:
        if name not in taken:
            raise DomainError(
                f"the program has no input `{name}`", hint=suggestion(name, inputs, f"its inputs are {known}")
            )
    for name, of in inputs.items():
        tensor, _, axis = name.rpartition(SIZE)
        if name not in needed:
            continue
        if name in values:
            yield name, values[name], of
        elif tensor in values and of == INT:
            yield name, shape_of(values[tensor], tensor)[int(axis)], of
        else:
            is_size = of == INT and tensor in inputs
            hint = f"it is the size of axis {axis} of `{tensor}`: give either" if is_size else f"the inputs are {known}"
            raise DomainError(f"the input `{name}` is missing", hint=hint)


def check_literals(node: t.Node, semiring: Semiring) -> None:
    """Raises DomainError for a number in a program that is no element of the semiring, with its place.

    Numbers in scalar functions need be none.
    """
    if isinstance(node, t.Number) and isinstance(node.value, float):
        try:
            elements(node.value, semiring)
        except DomainError as error:
            raise DomainError(error.message, span=node.span, hint=error.hint) from None
    if not isinstance(node, t.Apply):
        for child in node.children:
            check_literals(child, semiring)


def number(value: Any, of: Type, semiring: Semiring, name: str) -> Any:
    """An element of the semiring, an integer or a truth value. Raises DomainError for what is none."""
    kinds = {"int": (is_integer, int), "bool": (lambda x: isinstance(x, (bool, np.bool_)), bool)}
    if of.element in kinds:
        is_right, convert = kinds[of.element]
        if not is_right(value):
            raise DomainError(f"the input `{name}` is {value!r}, where {of} is needed")
        if not -(1 << 63) <= value < 1 << 63:
            raise DomainError(f"the input `{name}` is {value!r}, and integers of programs have 64 bits")
        return convert(value)
    if np.ndim(value):
        raise DomainError(f"the input `{name}` has {np.ndim(value)} axes, where a number is needed")
    return elements(value, semiring, name).tolist()


def array(value: Any, of: Type, name: str) -> np.ndarray:
    """An array of a storage format. Raises DomainError for values of another type, ShapeError for another order."""
    found = dense_array(value, name)
    check_shape(found.shape, None, of.order, name)
    kinds = {"int": "iu", "bool": "b", "real": "biuf"}[of.element]
    if found.dtype.kind not in kinds:
        raise DomainError(f"the input `{name}` has values of type {found.dtype}, where {of} is needed")
    return found


def shape_of(value: Any, name: str) -> tuple[int, ...]:
    """The shape of a tensor in any form. Raises DomainError for one that has none, as a dictionary."""
    shape = dense_array(value).shape if isinstance(value, (list, tuple)) else getattr(value, "shape", None)
    if shape is None:
        raise DomainError(
            f"`{name}` is a {type(value).__name__}, whose axes have no length, and the program needs one",
            hint=f"give `dv.tensor.coordinates({name}, shape=...)` for it",
        )
    return tuple(shape)
