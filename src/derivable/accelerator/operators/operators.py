"""The operator graph: what a model computes, one operator a line.

Printed form, after NSFlow's listing 1:

    // neural
    %x[16,3,80,80] : input
    %conv2d_1[16,64,40,40] : conv2d(args = (%x, %stem.weight), padding=(1,1), stride=(2,2))
    // symbolic
    %bind_1[16,4,256] : bind(args = (%bundle_1, %keys))
    return (%bind_1)

`check` is its validator, `evaluation.py` its meaning. What the kinds are is the table in `kinds.py`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np

from derivable.accelerator.operators.kinds import KINDS, REQUIRED, Kind, Shape, Work, batch_norm_scale, size
from derivable.accelerator.operators.loops import Loop
from derivable.accelerator.operators.loops import find as find_loops
from derivable.core.diagnostics import BindingError, DerivableError, DomainError, LayoutError, ShapeError
from derivable.core.registry import suggestion

Part = Literal["neural", "symbolic"]


@dataclass(frozen=True)
class Operator:
    """One operation. Printed form: `%relu_1[16,64,40,40] : relu(args = (%conv2d_1))`.

    name        of its result, unique in the graph
    kind        a row of `kinds.KINDS`
    inputs      names of operators before it
    shape       of its result
    dtype       of its result in the model, such as "float32"
    attributes  sorted pairs, all of the kind's
    part        whether it belongs to the neural or to the symbolic half of the model
    source      the module and the line of the user's file: "reader.top.1 at reader.py:33"
    """

    name: str
    kind: str
    inputs: tuple[str, ...]
    shape: Shape
    dtype: str = "float32"
    attributes: tuple[tuple[str, Any], ...] = ()
    part: Part = "neural"
    source: str = ""

    @cached_property
    def row(self) -> Kind:
        """The row of the table of kinds."""
        return KINDS[self.kind]

    @property
    def unit(self) -> str:
        """What does it: "gemm", "vector", "simd", "view", or "source" for what is given."""
        return self.row.unit

    @property
    def module(self) -> str:
        """The path of the module that it is of, "" for one of the model itself."""
        module, mark, _ = self.source.rpartition(" at ")
        # Without a line there is the path alone, and without a module the line.
        return module if mark else "" if ":" in self.source else self.source

    @cached_property
    def at(self) -> dict[str, Any]:
        """The attributes by name."""
        return dict(self.attributes)


@dataclass(frozen=True, eq=False)
class OperatorGraph:
    """Operators in an order in which each comes after its inputs.

    inputs     names of operators of kind "input", in the order of the model's arguments
    outputs    names of operators, in the order of the model's results
    constants  arrays of the operators of kind "constant", by name: parameters, buffers, and what follows from them
    """

    operators: tuple[Operator, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    constants: Mapping[str, np.ndarray] = field(default_factory=dict, repr=False)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, OperatorGraph):
            return NotImplemented
        parts = (self.operators, self.inputs, self.outputs) == (other.operators, other.inputs, other.outputs)
        same = self.constants.keys() == other.constants.keys()
        return parts and same and all(np.array_equal(a, other.constants[k]) for k, a in self.constants.items())

    def __hash__(self) -> int:
        return hash((self.operators, self.inputs, self.outputs))

    @cached_property
    def by_name(self) -> dict[str, Operator]:
        return {operator.name: operator for operator in self.operators}

    @cached_property
    def users(self) -> dict[str, tuple[str, ...]]:
        """Name -> names of the operators that read it, each once, in their order."""
        found: dict[str, dict[str, None]] = {operator.name: {} for operator in self.operators}
        for operator in self.operators:
            for name in operator.inputs:
                found[name][operator.name] = None
        return {name: tuple(readers) for name, readers in found.items()}

    @cached_property
    def loops(self) -> tuple[Loop, ...]:
        """What the hardware repeats."""
        return find_loops(self)

    @cached_property
    def alike(self) -> dict[str, str]:
        """Operators of loops, which have the formats of the operators of other iterations -> one of these."""
        return {name: root for loop in self.loops for name, root in loop.classes.items()}

    def __getitem__(self, name: str) -> Operator:
        """Raises BindingError for a name that is not there, with the nearest."""
        if name not in self.by_name:
            hint = suggestion(name, self.by_name, "print the graph to see its names", "%")
            raise BindingError(f"the graph has no operator %{name}", hint=hint)
        return self.by_name[name]

    def __iter__(self) -> Iterator[Operator]:
        return iter(self.operators)

    def __len__(self) -> int:
        return len(self.operators)

    def shapes(self, operator: Operator) -> list[Shape]:
        """The shapes of an operator's inputs."""
        return [self.by_name[name].shape for name in operator.inputs]

    def work(self, operator: Operator) -> Work:
        """What there is to do: a Layer, Vectors, Elementwise, or what is Moved."""
        return operator.row.work(self.shapes(operator), operator.shape, operator.at)

    def stationary(self, operator: Operator) -> int | None:
        """Which input of a gemm waits in the array while the other streams through; None for other operators."""
        held = operator.row.stationary
        return None if held is None else held(self.shapes(operator), operator.at)

    def __str__(self) -> str:
        return "\n".join(_lines(self))


class Builder:
    """A graph under construction: operators are added one after the other, their shapes follow.

    >>> graph = Builder()
    >>> x = graph.input("x", (2, 3))
    >>> print(graph.build([graph.add("mul", x, graph.scalar(2.0))]))
    // neural
    %x[2,3] : input
    %mul_1[2,3] : mul(args = (%x, 2.0))
    return (%mul_1)
    """

    def __init__(self) -> None:
        self.operators: dict[str, Operator] = {}
        self.constants: dict[str, np.ndarray] = {}
        self.part: Part = "neural"
        self.source = ""
        self.scope = ""  # names of what belongs to one composite operator begin with its name
        self._ordinals: dict[str, int] = {}
        self._scalars: dict[tuple[Any, str], str] = {}

    def shape(self, name: str) -> Shape:
        return self.operators[name].shape

    def input(self, name: str, shape: Shape, dtype: str = "float32") -> str:
        """An input of the model; returns its name."""
        return self._put(Operator(name, "input", (), shape, dtype, (("shape", shape),), self.part, self.source))

    def constant(self, name: str, array: np.ndarray) -> str:
        """A constant; returns its name. A name that is there must have the same array."""
        array = np.asarray(array)
        if name in self.constants:
            return name
        self.constants[name] = array
        shape = tuple(array.shape)
        return self._put(
            Operator(name, "constant", (), shape, str(array.dtype), (("shape", shape),), self.part, self.source)
        )

    def scalar(self, value: float) -> str:
        """A number, as a constant without axes; equal numbers are one."""
        array = np.asarray(value)
        key = (array.item(), str(array.dtype))
        if key not in self._scalars:
            self._scalars[key] = self.constant(self.fresh("scalar"), array)
        return self._scalars[key]

    def add(self, kind: str, *inputs: str, name: str | None = None, dtype: str | None = None, **attributes: Any) -> str:
        """An operator; returns its name. Its shape follows from the kind, its dtype from the inputs.

        Raises ShapeError where the inputs do not fit, UnsupportedError for an unknown kind.
        """
        row = KINDS[kind]
        at = {**row.attributes, **attributes}
        shape = row.shape([self.shape(i) for i in inputs], at)
        dtype = dtype or _dtype(row, [self.operators[i].dtype for i in inputs])
        at = tuple(sorted(at.items()))
        return self._put(Operator(name or self.fresh(kind), kind, inputs, shape, dtype, at, self.part, self.source))

    def copy(self, operator: Operator, inputs: tuple[str, ...], constants: Mapping[str, np.ndarray]) -> str:
        """An operator of another graph, over inputs of this one."""
        if operator.kind == "constant":
            array = constants[operator.name]
            self.constants[operator.name] = array
            if not array.shape:
                self._scalars.setdefault((array.item(), str(array.dtype)), operator.name)
        return self._put(replace(operator, inputs=inputs))

    def fresh(self, kind: str) -> str:
        """A name for an operator of this kind: "relu_1", then "relu_2"."""
        stem = f"{self.scope}.{kind}" if self.scope else kind
        while True:
            ordinal = self._ordinals[stem] = self._ordinals.get(stem, 0) + 1
            name = stem if self.scope and ordinal == 1 else f"{stem}_{ordinal}"
            if name not in self.operators:
                return name

    def free(self, name: str) -> str:
        """The name, or one like it that no operator has."""
        free, ordinal = name, 1
        while free in self.operators:
            ordinal += 1
            free = f"{name}_{ordinal}"
        return free

    def build(self, outputs: Sequence[str]) -> OperatorGraph:
        """The graph of what the outputs need, and of all inputs."""
        return without_dead(
            OperatorGraph(
                tuple(self.operators.values()),
                tuple(operator.name for operator in self.operators.values() if operator.kind == "input"),
                tuple(outputs),
                self.constants,
            )
        )

    def _put(self, operator: Operator) -> str:
        if operator.name in self.operators:
            raise DomainError(f"two operators are called %{operator.name}")
        self.operators[operator.name] = operator
        return operator.name


# Printed form


def _lines(graph: OperatorGraph) -> Iterator[str]:
    part = None
    for operator in graph:
        if operator.kind == "constant" and not operator.shape:
            continue  # stands where it is read
        if operator.part != part:
            part = operator.part
            yield f"// {part}"
        yield text(operator, graph)
    yield f"return ({', '.join(_shown(name, graph) for name in graph.outputs)})"


def text(operator: Operator, graph: OperatorGraph) -> str:
    """The line of an operator in the printed form of its graph."""
    head = f"%{operator.name}[{_numbers(operator.shape)}] : {operator.kind}"
    if operator.unit == "source":
        return head + (f" {operator.dtype}" if operator.dtype != "float32" else "")
    rest = [
        f"{name}={_attribute(value)}"
        for name, value in operator.attributes
        if operator.row.attributes.get(name, REQUIRED) != value
    ]
    inputs = ", ".join(_shown(name, graph) for name in operator.inputs)
    return f"{head}({', '.join([f'args = ({inputs})', *rest])})"


def _shown(name: str, graph: OperatorGraph) -> str:
    array = graph.constants.get(name)
    return f"%{name}" if array is None or array.shape else repr(array.item())


def _attribute(value: Any) -> str:
    if isinstance(value, tuple):
        listed = [_attribute(part) for part in value]
        return f"({','.join(listed if len(listed) <= 8 else [*listed[:6], '...', listed[-1]])})"
    return str(value)


def _numbers(shape: Shape) -> str:
    return ",".join(map(str, shape))


# Validator

_RANKS = {"b": 0, "u": 1, "i": 1, "f": 2}
_FLOATS = {"bfloat16": "f"}  # which NumPy has not


def dtype_rank(dtype: str) -> int:
    """0 of truth values, 1 of integers, 2 of floating numbers. Raises ShapeError for others."""
    try:
        letter = _FLOATS.get(dtype) or np.dtype(dtype).kind
    except TypeError:
        letter = ""
    if letter not in _RANKS:
        raise ShapeError(f"no operator has numbers of dtype {dtype!r}", hint="real numbers, integers and truth values")
    return _RANKS[letter]


def _dtype(row: Kind, dtypes: Sequence[str]) -> str:
    """The dtype of a result: the widest of the inputs', or what the kind says."""
    if row.values in ("int", "bool"):
        return {"int": "int64", "bool": "bool"}[row.values]
    if row.values == "first":
        return dtypes[0]
    widest = max(dtypes, key=lambda dtype: (dtype_rank(dtype), 2 if dtype == "bfloat16" else np.dtype(dtype).itemsize))
    return "float32" if row.values == "float" and dtype_rank(widest) < 2 else widest


def check(graph: OperatorGraph) -> None:
    """Raise an error of ours unless the graph is valid; it names the operator.

    Every operator comes after its inputs and has a name of its own, a known kind, as many inputs and the attributes
    that its kind takes, the shape and the sort of numbers that follow, and at least one entry; every constant has its
    array and every name of `inputs` and `outputs` is there.
    """
    shapes: dict[str, Shape] = {}
    dtypes: dict[str, str] = {}
    for operator in graph:
        try:
            _check_operator(operator, shapes, dtypes, graph.constants)
        except DerivableError as error:
            raise type(error)(
                f"%{operator.name}: {error.message}", source=operator.source or None, hint=error.hint
            ) from None
        shapes[operator.name], dtypes[operator.name] = operator.shape, operator.dtype
    inputs = [operator.name for operator in graph if operator.kind == "input"]
    if sorted(inputs) != sorted(graph.inputs):
        raise LayoutError(f"the inputs {graph.inputs} are not the operators of kind input, {tuple(inputs)}")
    if not graph.outputs:
        raise LayoutError("the graph has no output", hint="return the tensor that is wanted")
    for name in graph.outputs:
        if name not in shapes:
            raise BindingError(f"the output %{name} is no operator", hint=suggestion(name, shapes, "name one", "%"))
    unused = sorted(set(graph.constants) - set(shapes))
    if unused:
        raise LayoutError(f"the constant {unused[0]!r} has an array and no operator")


def _check_operator(
    operator: Operator, shapes: Mapping[str, Shape], dtypes: Mapping[str, str], constants: Mapping[str, np.ndarray]
) -> None:
    row = operator.row
    if operator.name in shapes:
        raise LayoutError("two operators have this name")
    if operator.part not in ("neural", "symbolic"):
        raise DomainError(f"the part is {operator.part!r}, expected 'neural' or 'symbolic'")
    for name in operator.inputs:
        if name not in shapes:
            raise LayoutError(f"its input %{name} does not come before it")
    least, most = row.operands
    if len(operator.inputs) < least or (most is not None and len(operator.inputs) > most):
        raise ShapeError(f"{operator.kind} has {len(operator.inputs)} inputs, expected {least} to {most}")
    if [name for name, _ in operator.attributes] != sorted(row.attributes):
        raise DomainError(
            f"{operator.kind} has the attributes {[name for name, _ in operator.attributes]}, "
            f"expected {sorted(row.attributes)}"
        )
    try:
        hash(operator.attributes)
    except TypeError:
        raise DomainError("an attribute is neither a number, a text nor a tuple of them") from None
    expected = row.shape([shapes[name] for name in operator.inputs], operator.at)
    if operator.shape != expected:
        raise ShapeError(f"its shape is {list(operator.shape)}, {operator.kind} gives {list(expected)}")
    if not size(operator.shape):
        raise ShapeError(f"its shape {list(operator.shape)} has no entry", hint="trace with inputs that have entries")
    rank = dtype_rank(operator.dtype)
    if operator.inputs and rank != dtype_rank(_dtype(row, [dtypes[name] for name in operator.inputs])):
        raise ShapeError(f"{operator.kind} does not give {operator.dtype} for these inputs")
    if operator.kind == "constant":
        array = constants.get(operator.name)
        if array is None:
            raise BindingError("the constant has no array")
        if tuple(array.shape) != operator.shape or str(array.dtype) != operator.dtype:
            raise ShapeError(
                f"the constant is {operator.dtype}{list(operator.shape)}, its array {array.dtype}{list(array.shape)}"
            )


def wide(array: Any) -> np.ndarray:
    """The numbers as float64, int64 or truth values, exactly."""
    array = np.asarray(array)
    return array.astype({"f": np.float64, "i": np.int64, "u": np.int64}.get(array.dtype.kind, array.dtype), copy=False)


# Passes


def without_dead(graph: OperatorGraph) -> OperatorGraph:
    """The graph of what the outputs need; the inputs stay."""
    needed = {*graph.outputs, *graph.inputs}
    for operator in reversed(graph.operators):
        if operator.name in needed:
            needed.update(operator.inputs)
    kept = tuple(operator for operator in graph if operator.name in needed)
    return replace(graph, operators=kept, constants={k: v for k, v in graph.constants.items() if k in needed})


def expand(graph: OperatorGraph, kept: Collection[str] = ()) -> OperatorGraph:
    """The same graph with composite kinds written out, but for those that are `kept`: else only basic ones are left.

    An operator's name stays with its value; what leads to it is called `%sigmoid_1.tanh`.
    """
    out = Builder()
    new: dict[str, str] = {}
    for operator in graph:
        inputs = tuple(new[name] for name in operator.inputs)
        composite = operator.row.composite
        if composite is None or operator.kind in kept:
            new[operator.name] = out.copy(operator, inputs, graph.constants)
            continue
        out.part, out.source, out.scope = operator.part, operator.source, operator.name
        last = out.operators.pop(composite(out, inputs, operator.at))
        out.scope = ""
        new[operator.name] = out._put(replace(last, name=operator.name, dtype=operator.dtype))
    return out.build([new[name] for name in graph.outputs])


def fold_constants(graph: OperatorGraph) -> OperatorGraph:
    """The same graph, in which what depends on no input is a constant; floating ones are float64."""
    out = Builder()
    known: dict[str, np.ndarray] = {}
    for operator in graph:
        if operator.kind != "input" and all(name in known for name in operator.inputs):
            known[operator.name] = (
                graph.constants[operator.name]
                if operator.kind == "constant"
                else np.ascontiguousarray(
                    operator.row.evaluate([wide(known[name]) for name in operator.inputs], operator.at)
                )
            )
            out.part, out.source = operator.part, operator.source
            out.constant(operator.name, known[operator.name])
        else:
            out.copy(operator, operator.inputs, graph.constants)
    return out.build(graph.outputs)


def fold_batch_norm(graph: OperatorGraph) -> OperatorGraph:
    """The same graph without batch norms, exactly: folded into the constant weights of the conv2d or linear before, if
    nothing else reads its result; else a multiplication and an addition. The new constants are float64."""
    out = Builder()
    new: dict[str, str] = {}
    for operator in graph:
        inputs = tuple(new[name] for name in operator.inputs)
        out.part, out.source = operator.part, operator.source
        parameters = [graph.constants.get(name) for name in operator.inputs[1:]]
        if operator.kind != "batch_norm" or any(array is None for array in parameters):
            new[operator.name] = out.copy(operator, inputs, graph.constants)
            continue
        scale, shift = batch_norm_scale(parameters, operator.at["eps"])  # type: ignore[arg-type]
        before = graph[operator.inputs[0]]
        weights = [graph.constants.get(name) for name in before.inputs[1:]]
        is_folded = (
            before.kind in ("conv2d", "linear")
            and graph.users[before.name] == (operator.name,)
            and before.name not in graph.outputs
            and all(array is not None for array in weights)
            and before.shape[1] == len(scale)
            and (before.kind == "conv2d" or len(before.shape) == 2)
        )
        if is_folded:
            weight, bias = np.asarray(weights[0], np.float64), weights[1] if len(weights) == 2 else 0.0
            out.operators.pop(new[before.name])
            folded = (
                out.constant(f"{before.name}.weight", weight * scale.reshape(-1, *(1,) * (weight.ndim - 1))),
                out.constant(f"{before.name}.bias", bias * scale + shift),
            )
            new[operator.name] = new[before.name] = out._put(replace(before, inputs=(new[before.inputs[0]], *folded)))
            continue
        ones = (1,) * (len(operator.shape) - 2)
        scaled = out.constant(f"{operator.name}.scale", scale.reshape(-1, *ones))
        shifted = out.constant(f"{operator.name}.shift", shift.reshape(-1, *ones))
        product = out.add("mul", inputs[0], scaled, name=f"{operator.name}.mul", dtype=operator.dtype)
        new[operator.name] = out.add("add", product, shifted, name=operator.name, dtype=operator.dtype)
    return out.build([new[name] for name in graph.outputs])


MASKED = -1000.0


def bounded_masks(graph: OperatorGraph) -> OperatorGraph:
    """The same graph, in which constants that leave something out of a softmax, such as -inf or -1e9, are -1000.

    Of numbers that are a few hundred apart softmax gives exactly zero either way, and fixed point has no such numbers.
    """
    passed = ("add", "where", "reshape", "permute", "expand", "slice", "index", "concatenate")
    leads: dict[str, bool] = {}
    for operator in reversed(graph.operators):
        readers = [graph[name] for name in graph.users[operator.name]]
        leads[operator.name] = (
            bool(readers)
            and operator.name not in graph.outputs
            and all(reader.kind == "softmax" or (reader.kind in passed and leads[reader.name]) for reader in readers)
        )
    constants = dict(graph.constants)
    for name, array in graph.constants.items():
        if array.dtype.kind != "f" or not (array < MASKED).any():
            continue
        # A product of a mask and what it stands for may be between.
        readers = [graph[reader] for reader in graph.users[name]]
        if leads[name] or all(reader.kind == "mul" and leads[reader.name] for reader in readers):
            constants[name] = np.maximum(array, np.asarray(MASKED, array.dtype))
    return replace(graph, constants=constants)
