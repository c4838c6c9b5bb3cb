"""Running a program on the tensors that users have."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from derivable.algebra.semiring import Semiring
from derivable.tensor.compilation import Kernel, compile
from derivable.tensor.inputs import array, checked_names, number
from derivable.tensor.interpret import NOTHING, interpret
from derivable.tensor.program import Program
from derivable.tensor.types import Type, is_tensor
from derivable.tensor.values import FORMS, coordinates, scalar_semiring


def run(
    program: Program,
    values: Mapping[str, Any],
    *,
    semiring: str | Semiring = "real",
    output: str | None = None,
    shape: tuple[int, ...] | None = None,
) -> Any:
    """The result of a program, as `Program.__call__` describes it; equal programs have one kernel.

    Programs over arrays, which are what definitions of storage formats are, are interpreted.
    """
    if any(of.order and not is_tensor(of) for of in program.inputs.values()):
        return _interpreted(program, values, scalar_semiring(semiring), output or "numpy", shape)
    return _kernel(program, scalar_semiring(semiring), output, shape)(**values)


def _interpreted(
    program: Program, values: Mapping[str, Any], record: Semiring, output: str, shape: tuple[int, ...] | None
) -> Any:
    given = {
        name: _given(value, of, record, name)
        for name, value, of in checked_names(program.inputs, program.inputs, values)
    }
    found = interpret(program.node, given, record)
    if not program.type.order:
        return record.zero if found is NOTHING else found
    entries, order = {} if found is NOTHING else found, program.type.order
    result = coordinates(entries, order=order, shape=shape, semiring=record, name="the result")
    return FORMS[output](result, record.zero)


def _given(value: Any, of: Type, semiring: Semiring, name: str) -> Any:
    if is_tensor(of):
        return coordinates(value, order=of.order, semiring=semiring, keep_zeros=True, name=name).to_dict()
    return array(value, of, name).tolist() if of.order else number(value, of, semiring, name)


@lru_cache(256)
def _kernel(program: Program, semiring: Semiring, output: str | None, shape: tuple[int, ...] | None) -> Kernel:
    return compile(program, output=output, semiring=semiring, shape=shape)
