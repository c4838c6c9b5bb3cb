"""Steps that somebody else chose: scales and zeros of operands from a file or a dictionary, by the names of layers.

    {"conv1": {"input": (0.02, -128), "weight": [0.01, 0.02]}}
      --steps_of--> {("conv2d_1", 0): Step(0.02, -128), ("conv2d_1", 1): Step([0.01, 0.02], 0)}

A number is (steps - zero) * scale, of steps from -128 to 127 in int8 and from -8 to 7 in int4; without a zero the
lowest is not used. An unsigned format has steps from 0: its zero is 128 or 8 less here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from derivable.accelerator.numbers.layers import is_layer, names_of
from derivable.accelerator.numbers.precision import format_of
from derivable.accelerator.operators.operators import Operator, OperatorGraph
from derivable.core.diagnostics import DomainError
from derivable.core.registry import suggestion

OPERANDS = ("input", "weight")  # operands in their order
OperandKey: TypeAlias = tuple[str, int]  # an operator, and which of its inputs
_SUCH_AS = '{"conv1": {"input": (0.02, -128), "weight": [0.01, 0.02]}}'


@dataclass(frozen=True)
class Step:
    """What a step is worth, [] or of each output channel [channel], and which one is zero."""

    scale: np.ndarray
    zero: int = 0


def steps_of(
    scales: Mapping[str, Any], graph: OperatorGraph, precision: Mapping[str, str], weights: Mapping[str, Any]
) -> dict[OperandKey, Step]:
    """The steps of operands of a prepared graph.

    scales     a scale, or (scale, zero), of "input" and "weight" by names of modules and operators; those of weights
               may be of each output channel. Batch norms are not in them: they are where one is folded into weights
    precision  formats of parts and operators
    weights    the parameters of the model by name, as they are before a batch norm is folded into them

    Raises DomainError for names and numbers that make no sense.
    """
    if not isinstance(scales, Mapping):
        raise DomainError(f"scales is {scales!r}, expected steps by the names of layers", hint=f"such as {_SUCH_AS}")
    steps: dict[OperandKey, Step] = {}
    used: set[str] = set()
    known: dict[str, None] = {}
    for operator in graph:
        if operator.unit not in ("gemm", "vector"):
            continue
        known |= dict.fromkeys(names_of(operator))
        name = next((name for name in names_of(operator) if name in scales), None)
        if name is None:
            continue
        used.add(name)
        for what, index, value in _operands(name, scales[name]):
            of = f"the {what} of {name!r}"
            step = _checked(of, _step(of, value), operator, index, graph, precision)
            is_weight = index == 1 and is_layer(graph, operator)
            steps[operator.name, index] = _folded(of, step, operator, graph, weights) if is_weight else step
    for name in scales:
        if name not in used:
            raise DomainError(
                f"scales is of {name!r}, which is no layer",
                hint=suggestion(name, known, f"layers are {', '.join([*known][:12])}"),
            )
    for name, root in graph.alike.items():
        for index in range(len(OPERANDS)):
            if not _is_same(steps.get((name, index)), steps.get((root, index))):
                raise DomainError(
                    f"%{name} and %{root} have different scales, and are the same in two iterations of a loop",
                    hint="name the module, which is all iterations",
                )
    return steps


def _is_same(one: Step | None, other: Step | None) -> bool:
    if one is None or other is None:
        return one is other
    return one.zero == other.zero and np.array_equal(one.scale, other.scale)


def _operands(name: str, values: Any) -> Iterator[tuple[str, int, Any]]:
    if not isinstance(values, Mapping):
        raise DomainError(
            f"the scales of {name!r} are {values!r}, expected those of operands", hint=f"such as {_SUCH_AS}"
        )
    for what, value in values.items():
        if what not in OPERANDS:
            raise DomainError(
                f"the scales of {name!r} are of {what!r}",
                hint=suggestion(what, OPERANDS, "operands are input and weight"),
            )
        yield what, OPERANDS.index(what), value


def _step(of: str, value: Any) -> Step:
    scale: Any = value
    zero: Any = 0
    if isinstance(value, tuple) and len(value) == 2:
        scale, zero = value
    try:
        array = np.asarray(scale.detach().cpu() if hasattr(scale, "detach") else scale, np.float64)
        whole = int(zero)
    except (TypeError, ValueError):
        raise DomainError(f"the scale of {of} is {value!r}, expected a number, or (scale, zero)") from None
    if not array.size or not np.isfinite(array).all() or (array <= 0).any():
        raise DomainError(f"the scale of {of} is {value!r}, expected positive numbers")
    if whole != float(zero):
        raise DomainError(f"the zero of {of} is {zero!r}, expected a whole number of steps")
    return Step(array.reshape(-1) if array.size > 1 else array.reshape(()), whole)


def _checked(
    of: str, step: Step, operator: Operator, index: int, graph: OperatorGraph, precision: Mapping[str, str]
) -> Step:
    format = format_of(operator.name, operator.part, precision)
    if format.is_float:
        raise DomainError(
            f"{of} has a scale, and its format is {format.name}", hint="formats with scales are int8 and int4"
        )
    least = -(2 ** (format.bits - 1))
    if not least <= step.zero < -least:
        raise DomainError(
            f"the zero of {of} is {step.zero}, and {format.name} has steps from {least} to {-least - 1}",
            hint=f"an unsigned format has steps from 0: take {-least} from its zero",
        )
    of_layer = is_layer(graph, operator)
    if step.zero and (index == 1 or not of_layer):
        raise DomainError(
            f"the zero of {of} is {step.zero}, and only what streams through a layer has one", hint="give 0"
        )
    shape = graph[operator.inputs[1]].shape
    channels = shape[-1] if operator.kind == "matmul" else shape[0]
    has_weights = index == 1 and of_layer
    if step.scale.ndim and (not has_weights or step.scale.size != channels):
        expected = f"one, or {channels}" if has_weights else "one"
        raise DomainError(f"{of} has {step.scale.size} scales, expected {expected}")
    return Step(np.broadcast_to(step.scale, channels), step.zero) if has_weights else step


def _folded(of: str, step: Step, operator: Operator, graph: OperatorGraph, weights: Mapping[str, Any]) -> Step:
    """The steps of weights that a batch norm went into: its factor of each channel is in them, too."""
    name = operator.inputs[1]
    if name != f"{operator.name}.weight":
        return step
    after = np.asarray(graph.constants[name], np.float64)
    before = np.asarray(weights.get(f"{operator.module}.weight", ()), np.float64)
    if before.shape != after.shape:
        raise DomainError(
            f"{of} has scales, and a batch norm was folded into it",
            source=operator.source or None,
            hint="fold the batch norm before the training, or give the scales of the input alone",
        )
    largest = [np.abs(array.reshape(len(array), -1)).max(1, initial=0.0) for array in (before, after)]
    factors = np.divide(largest[1], largest[0], out=np.ones(len(before)), where=largest[0] > 0)
    return Step(step.scale * np.where(factors > 0, factors, 1.0), step.zero)
