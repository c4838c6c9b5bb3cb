"""Running a program on the tensors that users have."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from derivable.algebra.semiring import Semiring
from derivable.core.arguments import is_integer
from derivable.core.diagnostics import DomainError
from derivable.core.registry import suggestion
from derivable.tensor.interpret import NOTHING, interpret
from derivable.tensor.program import Program
from derivable.tensor.types import Type, tensor
from derivable.tensor.values import FORMS, check_shape, coordinates, dense_array, elements, scalar_semiring


def run(
    program: Program,
    values: Mapping[str, Any],
    *,
    semiring: str | Semiring = "real",
    output: str = "numpy",
    shape: tuple[int, ...] | None = None,
) -> Any:
    """The result of a program, as `Program.__call__` describes it; by the interpreter."""
    record, form = scalar_semiring(semiring), FORMS[output]
    known = ", ".join(program.inputs) or "none"
    for name in values:
        if name not in program.inputs:
            hint = suggestion(name, program.inputs, f"its inputs are {known}")
            raise DomainError(f"the program has no input `{name}`", hint=hint)
    for name in program.inputs:
        if name not in values:
            raise DomainError(f"the input `{name}` is missing", hint=f"the inputs are {known}")
    given = {name: _given(values[name], of, record, name) for name, of in program.inputs.items()}
    found = interpret(program.node, given, record)
    if not program.type.order:
        return record.zero if found is NOTHING else found
    entries = {} if found is NOTHING else found
    order = program.type.order
    return form(coordinates(entries, order=order, shape=shape, semiring=record, name="the result"), record.zero)


def _given(value: Any, of: Type, semiring: Semiring, name: str) -> Any:
    if of.order and of != tensor(of.order):
        return _array(value, of, name)
    if of.order:
        return coordinates(value, order=of.order, semiring=semiring, keep_zeros=True, name=name).to_dict()
    kinds = {"int": (is_integer, int), "bool": (lambda x: isinstance(x, (bool, np.bool_)), bool)}
    if of.element in kinds:
        is_right, convert = kinds[of.element]
        if not is_right(value):
            raise DomainError(f"the input `{name}` is {value!r}, where {of} is needed")
        return convert(value)
    if np.ndim(value):
        raise DomainError(f"the input `{name}` has {np.ndim(value)} axes, where a number is needed")
    return elements(value, semiring, name).tolist()


def _array(value: Any, of: Type, name: str) -> list:
    """An array of a storage format."""
    array = dense_array(value, name)
    check_shape(array.shape, None, of.order, name)
    kinds = {"int": "iu", "bool": "b", "real": "biuf"}[of.element]
    if array.dtype.kind not in kinds:
        raise DomainError(f"the input `{name}` has values of type {array.dtype}, where {of} is needed")
    return array.tolist()
