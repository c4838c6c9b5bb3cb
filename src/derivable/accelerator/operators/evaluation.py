"""The meaning of an operator graph: its operators one after the other, in plain NumPy, and what inputs it takes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from derivable.accelerator.operators.operators import Operator, OperatorGraph, dtype_rank, wide
from derivable.core.diagnostics import ShapeError

Inputs: TypeAlias = "Mapping[str, Any] | Sequence[Any]"


class Evaluation:
    """A run of a graph under way, in float64; subclasses compute with other numbers.

    values  of the operators that are still to be read

    Raises ShapeError for inputs that do not fit.
    """

    def __init__(self, graph: OperatorGraph, inputs: Inputs):
        self.graph, self.given = graph, checked_inputs(graph, inputs)
        self.values: dict[str, np.ndarray] = {}
        self._last = {name: operator.name for operator in graph for name in operator.inputs}

    def advance(self, of: Operator) -> np.ndarray:
        """Compute the next operator of the graph, and forget what no later one reads."""
        value = self.values[of.name] = self.compute(of)
        for name in set(of.inputs):
            if self._last[name] == of.name:
                del self.values[name]
        return value

    def compute(self, of: Operator) -> np.ndarray:
        """What an operator gives, of which the inputs are in `values`."""
        if of.kind == "input":
            return self.given[of.name]
        if of.kind == "constant":
            return wide(self.graph.constants[of.name])
        return np.asarray(of.row.evaluate([self.values[name] for name in of.inputs], of.at))

    def outputs(self) -> tuple[np.ndarray, ...]:
        """Run it from its beginning: the outputs of the graph."""
        found: dict[str, np.ndarray] = {}
        for operator in self.graph:
            value = self.advance(operator)
            if operator.name in self.graph.outputs:
                found[operator.name] = value
        return tuple(found[name] for name in self.graph.outputs)


def evaluate(graph: OperatorGraph, inputs: Inputs) -> tuple[np.ndarray, ...]:
    """The outputs of a graph, in plain NumPy; floating numbers are float64.

    inputs  arrays by name, or in the order of the graph's inputs

    It is slow and says what the graph means: convolutions are sums over taps, bindings sums over shifts.
    Raises ShapeError for inputs that do not fit.
    """
    return Evaluation(graph, inputs).outputs()


def values(graph: OperatorGraph, inputs: Inputs) -> dict[str, np.ndarray]:
    """What every operator gives, by name; as `evaluate`, which keeps less."""
    run = Evaluation(graph, inputs)
    return {operator.name: run.advance(operator) for operator in graph}


def checked_inputs(graph: OperatorGraph, inputs: Inputs) -> dict[str, np.ndarray]:
    """Arrays by name, as `evaluate` takes them. Raises ShapeError, with the shapes, for those that do not fit."""
    if not isinstance(inputs, Mapping):
        inputs = list(inputs) if isinstance(inputs, (tuple, list)) else [inputs]
        if len(inputs) != len(graph.inputs):
            raise ShapeError(
                f"{len(inputs)} inputs are given, the model takes {len(graph.inputs)}",
                hint=f"give arrays or tensors for {', '.join(graph.inputs)}, in this order",
            )
        inputs = dict(zip(graph.inputs, inputs))
    if set(inputs) != set(graph.inputs):
        raise ShapeError(
            f"inputs {sorted(map(str, inputs))} are given, the model takes {sorted(graph.inputs)}",
            hint="give each by its name, once",
        )
    found = {name: wide(array) for name, array in inputs.items()}
    for name, array in found.items():
        operator = graph[name]
        if array.shape != operator.shape:
            raise ShapeError(
                f"the input %{name} is {list(array.shape)}, expected {list(operator.shape)}",
                hint="a graph is of one size; trace the model with an example of this shape. `Design.simulate` takes "
                "inputs of several passes, too: whole multiples along the first axis",
            )
        if dtype_rank(str(array.dtype)) > dtype_rank(operator.dtype):
            raise ShapeError(f"the input %{name} has {array.dtype} numbers, expected {operator.dtype}")
    return found


def in_passes(graph: OperatorGraph, inputs: Inputs) -> list[dict[str, np.ndarray]]:
    """The inputs of each pass, by name: those of k passes are k times as long along their first axis as the graph has
    them, and where it has a number without axes, [k].

    Raises ShapeError, with the shapes, for inputs that do not fit or are for different numbers of passes.
    """
    if not isinstance(inputs, Mapping):
        listed = list(inputs) if isinstance(inputs, (tuple, list)) else [inputs]
        if len(listed) != len(graph.inputs):
            return [checked_inputs(graph, inputs)]
        inputs = dict(zip(graph.inputs, listed))
    arrays = {name: np.asarray(array) for name, array in inputs.items()}
    counts: dict[str, int] = {}
    for name, array in arrays.items():
        shape = graph[name].shape if name in graph.inputs else None
        first = (shape or (1,))[0]
        is_several = shape is not None and array.ndim == max(len(shape), 1) and array.shape[1:] == shape[1:]
        if not is_several or array.shape[0] % first or not array.shape[0]:
            counts[name] = 1
        else:
            counts[name] = array.shape[0] // first
    if len(set(counts.values())) > 1:
        least, most = (pick(counts, key=counts.__getitem__) for pick in (min, max))
        raise ShapeError(
            f"the input %{most} is {list(arrays[most].shape)}, {counts[most]} passes of {list(graph[most].shape)}, and "
            f"%{least} is {list(arrays[least].shape)}, which is not as many of "
            f"{list(graph[least].shape) if least in graph.inputs else 'any input'}",
            hint="give every input for as many passes",
        )
    count = next(iter(counts.values()), 1)
    if count == 1:
        return [checked_inputs(graph, arrays)]
    split = {k: v if not graph[k].shape else v.reshape(count, *graph[k].shape) for k, v in arrays.items()}
    return [checked_inputs(graph, {k: v[number] for k, v in split.items()}) for number in range(count)]
