"""Numbers that a file of ONNX rounds: scales and formats of layers, and the graph without what rounds.

    %q = Quant(%x, 0.02, 0, 8) {signed: 1, narrow: 1}        of QONNX and Brevitas
    %y = Conv(%q, Quant(%weight, 0.01, 0, 4))

    %q = DequantizeLinear(QuantizeLinear(%x, 0.02, 0), 0.02, 0)    of the standard, with a Clip between for fewer steps

      --read_quantised--> %y = Conv(%x, %weight), {"Conv_1": {"input": (0.02, 0), "weight": 0.01}}, {"Conv_1": "int8"}

Operands of layers are rounded by the hardware, all else is wide. So what is rounded has to be read by layers, or by
what gives some of its numbers as they are. Weights are replaced by what they are rounded to.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from derivable.core.diagnostics import UnsupportedError, warn

DOMAINS = ("qonnx.custom_op.general", "onnx.brevitas", "finn.custom_op.general")
LAYERS = ("Conv", "Gemm", "MatMul")
# What gives numbers of its first input as they are, or zero.
_KEEPS = ("Relu", "MaxPool", "Reshape", "Flatten", "Transpose", "Squeeze", "Unsqueeze", "Identity", "Dropout")
_STANDARD = ("", "ai.onnx")


@dataclass(frozen=True)
class Rounding:
    """What a number is rounded to: steps * scale, of steps from least to most."""

    scale: np.ndarray
    least: int
    most: int

    @property
    def is_signed(self) -> bool:
        return self.least < 0


@dataclass(frozen=True)
class LayerNumbers:
    """Of a node that is a layer, the scales of its operands and the format of both."""

    scales: dict[str, Any]
    format: str


class _Reader:
    def __init__(self, graph: Any, source: str):
        self.graph, self.source = graph, source
        self.numbers = {id(node): f"{node.op_type}_{number}" for number, node in enumerate(graph)}

    def refuse(self, node: Any, why: str, hint: str | None = None) -> UnsupportedError:
        name = node.name or self.numbers.get(id(node), node.op_type)
        return UnsupportedError(
            f"{node.op_type} of ONNX, in node {name!r}: {why}", source=self.source or None, hint=hint
        )

    def constant(self, node: Any, k: int, what: str) -> np.ndarray:
        value = node.inputs[k] if k < len(node.inputs) else None
        array = _constant(value)
        if array is None:
            raise self.refuse(node, f"its {what} depends on the inputs of the model, or is left out")
        return array

    def read(self) -> dict[int, LayerNumbers]:
        """What layers round, by the identity of their nodes; the nodes that round are removed from the graph."""
        inputs: dict[int, Rounding] = {}
        weights: dict[int, Rounding] = {}
        for node in list(self.graph):
            if node.graph is None or not _rounds(node):
                continue
            value, rounding, last = self._rounding(node)
            result = last.outputs[0]
            array = _constant(value)
            if result.is_graph_output():
                raise self.refuse(node, "it rounds an output of the model", "leave the rounding of outputs to the host")
            for user, index in self._readers(result, node):
                if array is not None and index == 1 and user.op_type in LAYERS:
                    weights[id(user)] = rounding
                elif array is None and index == 0 and user.op_type in LAYERS:
                    inputs[id(user)] = rounding
                elif array is None or user.op_type not in LAYERS:
                    raise self.refuse(
                        node,
                        f"what it rounds is read by {user.op_type}, and the hardware rounds operands of layers alone",
                        f"layers are {', '.join(LAYERS)}; round in front of them",
                    )
            self._replace(node, last, value, array, rounding)
        listed = [node for node in self.graph if id(node) in inputs or id(node) in weights]
        return {id(node): self._layer(node, inputs.get(id(node)), weights.get(id(node))) for node in listed}

    def _readers(self, value: Any, rounded: Any) -> Iterator[tuple[Any, int]]:
        for user, index in value.uses():
            if user.op_type in _KEEPS and user.domain in _STANDARD and index == 0 and _constant(value) is None:
                if any(output.is_graph_output() for output in user.outputs):
                    raise self.refuse(rounded, "it rounds an output of the model", "leave that to the host")
                yield from self._readers(user.outputs[0], rounded)
            else:
                yield user, index

    def _rounding(self, node: Any) -> tuple[Any, Rounding, Any]:
        """What is rounded, to what, and the last node of the rounding."""
        if node.op_type == "Quant":
            return node.inputs[0], self._quant(node), node
        if node.op_type == "BipolarQuant":
            if _constant(node.inputs[0]) is None:
                raise self.refuse(node, "it rounds to -1 and 1 what depends on the inputs", "weights alone may be so")
            return node.inputs[0], Rounding(self._scale(node, 1), -1, 1), node
        if node.op_type == "DequantizeLinear":
            # Of weights that are steps in the file.
            steps = _constant(node.inputs[0])
            if steps is None:
                raise self.refuse(node, "no QuantizeLinear is in front of it", "inputs of the model are floats")
            rounding = self._of_standard(node, steps.dtype)
            return node.inputs[0], rounding, node
        zero = _constant(node.inputs[2]) if len(node.inputs) > 2 else None
        rounding = self._of_standard(node, np.dtype(np.uint8) if zero is None else zero.dtype)
        least, most = rounding.least, rounding.most
        last = node
        while True:
            users = [user for user, _ in last.outputs[0].uses()]
            if len(users) == 1 and users[0].op_type == "Clip":
                last = users[0]
                bounds = [_constant(value) for value in last.inputs[1:3]]
                least = least if not bounds or bounds[0] is None else max(least, int(bounds[0]))
                most = most if len(bounds) < 2 or bounds[1] is None else min(most, int(bounds[1]))
                continue
            break
        if len(users) != 1 or users[0].op_type != "DequantizeLinear":
            raise self.refuse(node, "no single DequantizeLinear is behind it", "export pairs of both")
        other = self._of_standard(users[0], np.dtype(np.int8 if rounding.is_signed else np.uint8))
        if not np.array_equal(other.scale, rounding.scale):
            raise self.refuse(node, "the DequantizeLinear behind it has another scale")
        return node.inputs[0], Rounding(rounding.scale, least, most), users[0]

    def _scale(self, node: Any, k: int) -> np.ndarray:
        scale = self.constant(node, k, "scale").astype(np.float64)
        if not (np.isfinite(scale).all() and (scale > 0).all()):
            raise self.refuse(node, f"its scale is {scale.tolist()}, expected positive numbers")
        if scale.size > 1 and scale.size != scale.shape[0] and scale.ndim > 1:
            raise self.refuse(node, f"its scales are {list(scale.shape)}, expected one, or one of each output channel")
        return scale.reshape(-1) if scale.size > 1 else scale.reshape(())

    def _quant(self, node: Any) -> Rounding:
        scale = self._scale(node, 1)
        zero = self.constant(node, 2, "zero point")
        bits = self.constant(node, 3, "number of bits")
        at = {name: attribute.value for name, attribute in node.attributes.items()}
        mode = str(at.get("rounding_mode", "ROUND")).upper()
        if mode not in ("ROUND", "HALF_EVEN"):
            raise self.refuse(
                node, f"it rounds by {mode}, and the hardware to the nearest", "let the node round by ROUND"
            )
        if bits.size != 1 or float(bits) != int(bits) or not 2 <= int(bits) <= 8:
            raise self.refuse(node, f"it has {bits.tolist()} bits, expected 2 to 8 of all numbers")
        self._check_zero(node, zero)
        most, narrow = 1 << int(bits), int(at.get("narrow", 0))
        if at.get("signed", 1):
            return Rounding(scale, -most // 2 + narrow, most // 2 - 1)
        return Rounding(scale, 0, most - 1 - narrow)

    def _of_standard(self, node: Any, dtype: np.dtype) -> Rounding:
        zero = _constant(node.inputs[2]) if len(node.inputs) > 2 and node.inputs[2] is not None else np.zeros(())
        bits = {"int8": 8, "uint8": 8, "int4": 4, "uint4": 4}.get(dtype.name)
        if zero is None or bits is None:
            raise self.refuse(node, f"its steps are {dtype.name}, expected int8, uint8, int4 or uint4")
        is_signed, half = dtype.name.startswith("i"), 1 << (bits - 1)
        least, most = (-half, half - 1) if is_signed else (0, 2 * half - 1)
        self._check_zero(node, zero)
        return Rounding(self._scale(node, 1), least, most)

    def _check_zero(self, node: Any, zero: np.ndarray) -> None:
        if zero.astype(np.float64).any():
            raise self.refuse(node, f"its zero point is {zero.tolist()}, expected 0", "quantise symmetrically")

    def _replace(self, node: Any, last: Any, value: Any, array: np.ndarray | None, rounding: Rounding) -> None:
        """Read what is rounded where the rounding was, weights as they are rounded."""
        import onnx_ir as ir

        if array is not None:
            scale = rounding.scale.reshape(-1, *[1] * (array.ndim - 1)) if rounding.scale.ndim else rounding.scale
            if rounding.scale.ndim and array.shape[0] != rounding.scale.size:
                raise self.refuse(
                    node, f"it has {rounding.scale.size} scales of weights {list(array.shape)}", "along the first axis"
                )
            if node.op_type == "DequantizeLinear":
                steps = array.astype(np.float64)
            elif node.op_type == "BipolarQuant":
                steps = np.where(array >= 0, 1.0, -1.0)
            else:
                steps = np.clip(np.rint(array / scale), rounding.least, rounding.most)
            if (
                rounding.least == -(rounding.most + 1)
                and steps.min(initial=0) == rounding.least
                and rounding.most in (7, 127)
            ):
                raise self.refuse(
                    node, f"a weight is {rounding.least} steps, and the hardware has -{rounding.most} at the least",
                    "quantise weights to a narrow range",
                )  # fmt: skip
            name = f"{last.outputs[0].name}_of_steps"
            tensor = ir.tensor((steps * scale).astype(np.float64), name=name)
            kind, shape = ir.TensorType(tensor.dtype), ir.Shape(array.shape)
            value = ir.Value(name=name, const_value=tensor, type=kind, shape=shape)
            self.graph.register_initializer(value)
        ir.convenience.replace_all_uses_with(last.outputs[0], value)
        while last is not node:
            before = last.inputs[0].producer()
            self.graph.remove(last, safe=True)
            last = before
        self.graph.remove(node, safe=True)

    def _layer(self, node: Any, given: Rounding | None, weight: Rounding | None) -> LayerNumbers:
        widths = [_bits(of) for of in (given, weight) if of is not None]
        bits = 8 if max(widths) > 4 else 4
        scales: dict[str, Any] = {}
        if given is not None:
            if given.scale.ndim:
                raise self.refuse(node, "its input has a scale of each channel, and the hardware has one of all")
            half = 1 << (bits - 1)
            whole = (-half, half - 1) if given.is_signed else (0, 2 * half - 1)
            if (given.least, given.most) not in (whole, (whole[0] + given.is_signed, whole[1])):
                raise self.refuse(
                    node,
                    f"its input has steps from {given.least} to {given.most}, and with its weights the format is "
                    f"int{bits}, with steps from {whole[0]} to {whole[1]}",
                    "the operands of a layer have one format: give both as many bits, of weights at most as many",
                )
            if given.is_signed and given.least == -half:
                warn(
                    f"steps of the input of node {node.name or self.numbers[id(node)]!r} begin with {-half} in the "
                    f"file, and with {1 - half} in the hardware, where zero is in the middle",
                    hint="a narrow range in the file gives both the same steps",
                )
            scales["input"] = (float(given.scale), 0 if given.is_signed else -half)
        if weight is not None:
            channels = node.op_type == "Conv" or (node.op_type == "Gemm" and bool(_attribute(node, "transB", 0)))
            if weight.scale.ndim and not channels:
                raise self.refuse(node, "its weights have a scale of each row, expected one, or one of each output")
            if not weight.is_signed:
                raise self.refuse(node, "its weights have unsigned steps", "quantise weights with a sign")
            scales["weight"] = weight.scale if weight.scale.ndim else float(weight.scale)
        return LayerNumbers(scales, f"int{bits}")


def read_quantised(graph: Any, source: str) -> dict[int, LayerNumbers]:
    """What layers of a graph of onnx_ir round, by the identity of their nodes. What rounds is removed from the graph.

    Raises UnsupportedError for what the hardware does not round so: zero points, scales of each channel of an input,
    and what is read by something else than layers. Warns with DerivableWarning of inputs with a step more.
    """
    return _Reader(graph, source).read()


def has_rounding(graph: Any) -> bool:
    return any(_rounds(node) for node in graph)


def _rounds(node: Any) -> bool:
    if node.domain in DOMAINS:
        return node.op_type in ("Quant", "BipolarQuant")
    return node.domain in _STANDARD and node.op_type in ("QuantizeLinear", "DequantizeLinear")


def _bits(of: Rounding) -> int:
    return int(of.most - of.least).bit_length()


def _attribute(node: Any, name: str, default: Any) -> Any:
    return node.attributes[name].value if name in node.attributes else default


def _constant(value: Any) -> np.ndarray | None:
    """The numbers of an initializer or a Constant; None for others."""
    if value is None:
        return None
    if value.const_value is not None and not value.is_graph_input():
        return value.const_value.numpy()
    producer = value.producer()
    if producer is not None and producer.op_type == "Constant" and "value" in producer.attributes:
        return producer.attributes["value"].value.numpy()
    return None
