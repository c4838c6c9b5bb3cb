"""Models of ONNX in a trace: each node of the graph is a module, which calls functions of torch.

Printed form of a node, and what is traced in its place:

    %h = Conv(%x, %weight, %bias) {group: 1, pads: [1, 1, 1, 1]}    conv2d(x, weight, bias, padding=1) in module Conv_0
    %y = Reshape(%h, %shape) {allowzero: 0}                         reshape(h, [2, 512]) in module Reshape_1

A module has the name of its node, so errors say which node they are of. What depends on no input, shapes above all, is
computed while the model is traced.
"""

from __future__ import annotations

import keyword
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from derivable.accelerator.trace import onnx_shapes  # noqa: F401 - it enters its operators
from derivable.accelerator.trace.decompositions import Refused
from derivable.accelerator.trace.onnx_operators import OPERATORS, Call
from derivable.accelerator.trace.onnx_quantised import LayerNumbers, has_rounding, read_quantised
from derivable.core.diagnostics import DerivableError, ParseError, UnsupportedError
from derivable.core.lazy import optional_module
from derivable.core.registry import suggestion

SUFFIX = ".onnx"
_ROUNDED = "derivable.rounded"
OLDEST = 11  # version of the operators, from which on what stands in the table holds
# Names of the standard operators, and those of the exporters of Microsoft's runtime that are written the same way.
_DOMAINS = ("", "ai.onnx", "com.microsoft")


def is_onnx(model: Any) -> bool:
    """Whether a model is a path of a file of ONNX, a `ModelProto` of onnx, or a `Model` of onnx_ir."""
    if isinstance(model, (str, Path)):
        return os.fspath(model).endswith(SUFFIX)
    module = type(model).__module__.partition(".")[0]
    return (module, type(model).__name__) in (("onnx", "ModelProto"), ("onnx_ir", "Model"))


def module_of_onnx(model: Any) -> torch.fx.GraphModule:
    """The module of a model of ONNX, whose arguments are the inputs of the graph.

    `rounded_by_file` says what the file rounds.

    Raises MissingDependencyError without onnx and onnx_ir, ParseError for a file that is none or cannot be read, and
    UnsupportedError for nodes that torch has no functions for, with all their operators.
    """
    source = os.fspath(model) if isinstance(model, (str, Path)) else ""
    graph, version = _graph(model, source)
    for value in graph.inputs:
        if value.name in graph.initializers:
            raise UnsupportedError(
                f"the input %{value.name} has a value in the file, too",
                source=source or None,
                hint="remove one of both",
            )
    rounded = read_quantised(graph, source) if has_rounding(graph) else {}
    _refuse_operators(graph, source)
    of_layers: dict[str, LayerNumbers] = {}
    root = nn.Module()
    traced = torch.fx.Graph()
    taken: set[str] = set()
    nodes: dict[str, torch.fx.Node] = {}
    for value in graph.inputs:
        nodes[value.name] = traced.placeholder(_free(value.name, taken))
        nodes[value.name].meta["sizes"] = [size if isinstance(size, int) else 1 for size in value.shape or ()]
    for name, value in graph.initializers.items():
        target = _free(name, taken)
        root.register_buffer(target, _tensor(value.const_value, name, source))
        nodes[name] = traced.get_attr(target)
    for number, node in enumerate(graph):
        target = _free(node.name or f"{node.op_type}_{number}", taken)
        attributes = {name: _attribute(each, source) for name, each in node.attributes.items()}
        root.add_module(target, Node(target, node.op_type, attributes, len(node.outputs), version))
        if id(node) in rounded:
            of_layers[target] = rounded[id(node)]
        missing = [value.name for value in node.inputs if value is not None and value.name and value.name not in nodes]
        if missing:
            raise _unknown(missing[0], f"the node {node.name or target!r}", source)
        inputs = [None if value is None or not value.name else nodes[value.name] for value in node.inputs]
        called = traced.call_module(target, tuple(inputs))
        if len(node.outputs) == 1:
            nodes[node.outputs[0].name] = called
            continue
        for k, value in enumerate(node.outputs):
            if value.name:
                nodes[value.name] = traced.call_function(_part, (called, k))
    for value in graph.outputs:
        if value.name not in nodes:
            raise _unknown(value.name, "an output of the graph", source)
    traced.output(tuple(nodes[value.name] for value in graph.outputs))
    module = torch.fx.GraphModule(root, traced)
    module.meta[_ROUNDED] = Rounded(
        {name: of.scales for name, of in of_layers.items()}, {name: of.format for name, of in of_layers.items()}
    )
    return module


@dataclass(frozen=True)
class Rounded:
    """Scales of operands and formats of layers by the names of nodes, as `design` takes them."""

    scales: Mapping[str, Any]
    precision: Mapping[str, str]


def rounded_by_file(module: Any) -> Rounded:
    """What a file of ONNX rounds, of the module that `module_of_onnx` made; nothing of other models."""
    meta = getattr(module, "meta", None)
    found = meta.get(_ROUNDED) if isinstance(meta, dict) else None
    return found if isinstance(found, Rounded) else Rounded({}, {})


class Node(nn.Module):
    """A node of a graph of ONNX: an operator with its attributes."""

    def __init__(self, name: str, operator: str, attributes: dict[str, Any], num_outputs: int, version: int):
        super().__init__()
        self.name, self.operator, self.attributes = name, operator, attributes
        self.num_outputs, self.version = num_outputs, version

    def extra_repr(self) -> str:
        return f"{self.operator}, {', '.join(f'{name}={value!r}' for name, value in self.attributes.items())}"

    def forward(self, *inputs: Any) -> Any:
        try:
            return OPERATORS[self.operator](
                Call(self.operator, inputs, self.attributes, self.num_outputs, self.version)
            )
        except Refused as error:
            raise UnsupportedError(
                f"{self.operator} of ONNX, in node {self.name!r}: {error.message}", hint=error.hint
            ) from None


def _part(values: Any, k: int) -> Any:
    return values[k]


def input_shapes(module: torch.fx.GraphModule) -> dict[str, list[int]]:
    """The sizes of the inputs of a module that `module_of_onnx` made, by the names of its arguments; 1 for those that
    the file leaves open."""
    return {str(node.target): node.meta["sizes"] for node in module.graph.nodes if node.op == "placeholder"}


def _graph(model: Any, source: str) -> tuple[Any, int]:
    """The graph of a model in onnx_ir, with functions of the model written out, and the version of its operators."""
    optional_module("onnx", "onnx", "onnx")
    ir = optional_module("onnx_ir", "onnx-ir", "onnx")
    import onnx_ir.passes.common as passes

    try:
        if source:
            model = ir.load(source)
        elif not isinstance(model, ir.Model):
            model = ir.serde.deserialize_model(model)
        elif has_rounding(model.graph):
            model = model.clone()
        if model.functions:
            model = passes.InlinePass()(model.clone() if hasattr(model, "clone") else model).model
    except OSError as error:
        raise ParseError(f"the file cannot be read: {error.strerror or error}", source=source or None) from None
    except Exception as error:  # A damaged file raises errors of many types.
        raise ParseError(f"this is no model of ONNX: {error}", source=source or None) from None
    version = model.opset_imports.get("", OLDEST)
    if version < OLDEST:
        raise UnsupportedError(
            f"the file is written for version {version} of the operators, expected {OLDEST} or later",
            source=source or None,
            hint=f"onnx.version_converter.convert_version(model, {OLDEST + 10}) rewrites it",
        )
    wrong = next((name for name in _names(model.graph) if not isinstance(name, (str, type(None)))), None)
    if wrong is not None:
        raise ParseError(f"this is no model of ONNX: the name {wrong!r} is no text", source=source or None)
    return model.graph, version


def _names(graph: Any) -> Iterator[Any]:
    """All names of a graph; protobuf gives bytes for what is no UTF-8."""
    yield from graph.initializers
    for value in (*graph.inputs, *graph.outputs):
        yield value.name
    for node in graph:
        yield from (node.name, node.op_type, node.domain, *node.attributes)
        yield from (value.name for value in (*node.inputs, *node.outputs) if value is not None)


def _refuse_operators(graph: Any, source: str) -> None:
    """Raise UnsupportedError for all operators that there are none of, at once."""
    unknown: dict[str, list[str]] = {}
    for number, node in enumerate(graph):
        if node.domain not in _DOMAINS or node.op_type not in OPERATORS:
            operator = f"{node.domain}.{node.op_type}" if node.domain not in _DOMAINS else node.op_type
            unknown.setdefault(operator, []).append(node.name or f"{node.op_type}_{number}")
    if not unknown:
        return
    listed = "; ".join(f"{operator} in node {names[0]!r}" for operator, names in unknown.items())
    first = next(iter(unknown))
    raise UnsupportedError(
        f"operators of ONNX without a function here: {listed}",
        source=source or None,
        hint=suggestion(first, OPERATORS, "leave what has no operator to the host, and export the rest"),
    )


def _unknown(name: Any, of: str, source: str) -> ParseError:
    message = f"{of} reads %{name}, which is no input, no initializer and no result of a node before it"
    return ParseError(message, source=source or None, hint="onnx.checker.check_model(FILE) looks at the whole file")


def _tensor(value: Any, name: str, source: str) -> torch.Tensor:
    if value is None:
        raise UnsupportedError(f"the initializer %{name} has no value", source=source or None)
    try:
        array = value.numpy()
        if array.dtype.kind not in "fiub":
            array = array.astype("float32")  # of the short floats
        if array.dtype.kind == "u":
            array = array.astype("int64")
        return torch.from_numpy(array.copy())
    except DerivableError:
        raise
    except Exception as error:
        raise UnsupportedError(
            f"%{name} is of {value.dtype}, which torch has no numbers of: {error}", source=source or None
        ) from None


def _attribute(attribute: Any, source: str) -> Any:
    value = attribute.value
    if hasattr(value, "numpy") and hasattr(value, "dtype"):
        return _tensor(value, attribute.name, source)
    if isinstance(value, tuple):
        return list(value)
    return value


def _free(name: str, taken: set[str]) -> str:
    """A name of Python for a name of the file, which nothing else has."""
    plain = re.sub(r"\W+", "_", name).strip("_") or "value"
    plain = f"n{plain}" if plain[0].isdigit() else plain
    free, number = plain, 1
    while free in taken or free in _RESERVED:
        number += 1
        free = f"{plain}_{number}"
    taken.add(free)
    return free


# Names that a module or a graph has for itself.
_RESERVED = {*dir(nn.Module), *dir(torch.fx.GraphModule), *keyword.kwlist, "self"}
