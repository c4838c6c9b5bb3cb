"""Running a program on the tensors that users have."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from derivable.algebra.semiring import Semiring
from derivable.bridge.arrays import refuse_unreadable
from derivable.core.diagnostics import DomainError
from derivable.tensor.analysis.axes import Axes
from derivable.tensor.call.compilation import Kernel, compile
from derivable.tensor.call.tracked import in_graph
from derivable.tensor.formats.format import Format
from derivable.tensor.language.interpret import NOTHING, interpret
from derivable.tensor.language.program import Program
from derivable.tensor.language.types import is_tensor
from derivable.tensor.lower.emit import result_axes
from derivable.tensor.optimisation.passes import KERNEL
from derivable.tensor.values.inputs import array, check_literals, checked_names, number
from derivable.tensor.values.values import FORMS, checked_shape, coordinates, scalar_semiring


def run(
    program: Program,
    values: Mapping[str, Any],
    *,
    semiring: str | Semiring = "real",
    output: str | None = None,
    shape: tuple[int, ...] | None = None,
    backend: str | None = None,
) -> Any:
    """The result of a program, as `Program.__call__` describes it; equal programs have one kernel.

    Programs over arrays, which are what definitions of storage formats are, are interpreted, and so are those whose
    numbers are Python's exact integers.
    """
    for value in values.values():
        refuse_unreadable(value)
    record = scalar_semiring(semiring)
    shape = None if shape is None else checked_shape(shape, "a size of the shape that was asked for")
    if not isinstance(output, str | Format | None):
        raise DomainError(f"the output is a {type(output).__name__}", hint=f"it is one of {', '.join(FORMS)}")
    if record.is_exact or any(of.order and not is_tensor(of) for of in program.inputs.values()):
        return _interpreted(program, values, record, output or "numpy", shape)
    return kernel_of(program, record, output, shape, backend)(**values)


def run_in_graph(program: Program, values: Mapping[str, Any], *options: Any) -> Any:
    """The same where `torch.compile` reads the code; options are the keywords of `run` in order."""
    return in_graph(_run, values, program, *options)


def _run(values: Mapping[str, Any], program: Program, semiring: Any, output: Any, shape: Any, backend: Any) -> Any:
    return run(program, values, semiring=semiring, output=output, shape=shape, backend=backend)


def _interpreted(
    program: Program, values: Mapping[str, Any], record: Semiring, output: str, shape: tuple[int, ...] | None
) -> Any:
    check_literals(program.node, record)
    given: dict[str, Any] = {}
    sizes: dict[Any, int] = {}
    for name, value, of in checked_names(program.inputs, program.inputs, values):
        if is_tensor(of):
            entries = coordinates(value, order=of.order, semiring=record, name=name)
            given[name] = entries.to_dict()
            sizes |= {(name, axis): size for axis, size in enumerate(entries.shape)}
        else:
            given[name] = array(value, of, name).tolist() if of.order else number(value, of, record, name)
    axes = result_axes(program, program.type, Axes())
    if shape is None and all(axis in sizes for axis in axes):
        shape = tuple(sizes[axis] for axis in axes)
    found = interpret(program.node, given, record, is_guarded=program.is_guarded)
    if not program.type.order:
        return record.zero if found is NOTHING else found
    entries, order = {} if found is NOTHING else found, program.type.order
    result = coordinates(entries, order=order, shape=shape, semiring=record, name="the result")
    return FORMS[output](result, record.zero)


@lru_cache(256)
def kernel_of(
    program: Program, semiring: Semiring, output: str | None, shape: tuple[int, ...] | None, backend: str | None
) -> Kernel:
    """The kernel that runs a program as it is, without a search for a cheaper one."""
    passes: dict[str, bool] = dict.fromkeys(KERNEL, False)
    return compile(program, output=output, semiring=semiring, shape=shape, passes=passes, backend=backend)
