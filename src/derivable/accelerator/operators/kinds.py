"""The table of kinds of operators, one row a kind: shape, meaning in NumPy, and what it costs.

A row says what the result's shape is (`shape`), what its values are (`evaluate`), which unit of the accelerator does
it (`unit`), how much there is to do (`work`), and which operand waits in the array while another streams through
(`stationary`). Few kinds are basic. A `composite` one is defined by others: `operators.expand` writes them out.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from derivable.accelerator.operators import periodic, products
from derivable.accelerator.operators.kind import (
    REQUIRED,
    Attributes,
    Evaluate,
    Kind,
    Moved,
    Rank,
    Shape,
    ShapeRule,
    Work,
    WorkRule,
    broadcast,
    size,
)
from derivable.accelerator.operators.runtime import Elementwise, Layer
from derivable.core.arguments import is_integer
from derivable.core.diagnostics import DomainError, ShapeError, UnsupportedError
from derivable.core.registry import Registry

__all__ = ["KINDS", "PRESERVES", "REQUIRED", "Attributes", "Kind", "Moved", "Shape", "Work", "broadcast", "size"]

KINDS: Registry[Kind] = Registry("kind of operator", error=UnsupportedError)
# Those whose result has the format of what they take: it has some of these numbers, or zeros.
PRESERVES = ("relu", "max", "min", "max_pool2d", "reshape", "permute", "slice", "index", "expand", "roll")


# What rows have in common


def _no_work(shapes: Sequence[Shape], result: Shape, attributes: Attributes) -> Work:
    return Moved(0)


def _moved(shapes: Sequence[Shape], result: Shape, attributes: Attributes) -> Work:
    return Moved(size(result))


def _passes(passes: int) -> WorkRule:
    return lambda shapes, result, attributes: Elementwise(size(result), passes)


def _of_inputs(passes: int = 1) -> WorkRule:
    return lambda shapes, result, attributes: Elementwise(size(shapes[0]), passes)


def _first(shapes: Sequence[Shape], attributes: Attributes) -> Shape:
    return shapes[0]


def _broadcast(shapes: Sequence[Shape], attributes: Attributes) -> Shape:
    return broadcast(*shapes)


def checked_axes(axes: Any, rank: int) -> tuple[int, ...]:
    """Axes from 0 to rank - 1, all different. Raises ShapeError otherwise."""
    if not isinstance(axes, tuple) or not all(is_integer(a) and 0 <= a < rank for a in axes):
        raise ShapeError(f"axes are {axes!r}, expected a tuple of numbers from 0 to {rank - 1}")
    if len(set(axes)) < len(axes):
        raise ShapeError(f"axes {axes!r} name one twice")
    return axes


def _reduced(shapes: Sequence[Shape], attributes: Attributes) -> Shape:
    axes, (shape,) = checked_axes(attributes["axes"], len(shapes[0])), shapes
    kept = (1 if axis in axes else length for axis, length in enumerate(shape))
    return tuple(length for axis, length in enumerate(kept) if attributes["keepdims"] or axis not in axes)


def _reduction(function: Callable[..., np.ndarray], values: Rank = "same", **more: Any) -> Kind:
    def evaluate(x: Sequence[np.ndarray], at: Attributes) -> np.ndarray:
        return function(x[0], axis=at["axes"], keepdims=at["keepdims"])

    return _simd({"axes": REQUIRED, "keepdims": False}, _reduced, evaluate, _of_inputs(), values, **more)


def _simd(
    attributes: Attributes,
    shape: ShapeRule,
    evaluate: Evaluate,
    work: WorkRule,
    values: Rank = "float",
    operands: int = 1,
    **more: Any,
) -> Kind:
    return Kind("simd", (operands, operands), attributes, shape, evaluate, work, values=values, **more)


def _view(
    attributes: Sequence[str],
    shape: ShapeRule,
    evaluate: Evaluate,
    work: WorkRule = _moved,
    most: int | None = 1,
) -> Kind:
    return Kind("view", (1, most), dict.fromkeys(attributes, REQUIRED), shape, evaluate, work)


def _one_axis(shapes: Sequence[Shape], attributes: Attributes) -> Shape:
    checked_axes((attributes["axis"],), len(shapes[0]))
    return shapes[0]


def _elementwise(
    function: Callable[..., np.ndarray],
    operands: int,
    passes: int = 1,
    values: Rank = "same",
    composite: Callable[..., str] | None = None,
) -> Kind:
    found = _simd({}, _broadcast, lambda x, at: function(*x), _passes(passes), values, operands)
    return replace(found, composite=composite, is_entrywise=True)


# Elementwise


def _softmax(x: np.ndarray, axis: int) -> np.ndarray:
    raised = np.exp(x - x.max(axis, keepdims=True))
    return raised / raised.sum(axis, keepdims=True)


def _log_softmax(arrays: Sequence[np.ndarray], attributes: Attributes) -> np.ndarray:
    x, axis = arrays[0], attributes["axis"]
    shifted = x - x.max(axis, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis, keepdims=True))


def _log_softmax_composite(graph: Any, inputs: Sequence[str], attributes: Attributes) -> str:
    (x,), axis = inputs, attributes["axis"]
    shifted = graph.add("sub", x, graph.add("max", x, axes=(axis,), keepdims=True))
    total = graph.add("sum", graph.add("exp", shifted), axes=(axis,), keepdims=True)
    return graph.add("sub", shifted, graph.add("log", total))


def _sigmoid_composite(graph: Any, inputs: Sequence[str], attributes: Attributes) -> str:
    raised = graph.add("tanh", graph.add("mul", inputs[0], graph.scalar(0.5)))
    return graph.add("mul", graph.add("add", raised, graph.scalar(1.0)), graph.scalar(0.5))


def _gelu(arrays: Sequence[np.ndarray], attributes: Attributes) -> np.ndarray:
    (x,) = arrays
    if attributes["approximate"] == "tanh":
        return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
    return 0.5 * x * (1 + periodic.error_function(x / math.sqrt(2)))


def _clamp(arrays: Sequence[np.ndarray], attributes: Attributes) -> np.ndarray:
    low, high = attributes["low"], attributes["high"]
    x = arrays[0] if low is None else np.maximum(arrays[0], low)
    return x if high is None else np.minimum(x, high)


def _argmax(arrays: Sequence[np.ndarray], attributes: Attributes) -> np.ndarray:
    found = np.asarray(arrays[0].argmax(attributes["axis"]))
    return np.expand_dims(found, attributes["axis"]) if attributes["keepdims"] else found


def _argmax_shape(shapes: Sequence[Shape], attributes: Attributes) -> Shape:
    return _reduced(shapes, {"axes": (attributes["axis"],), "keepdims": attributes["keepdims"]})


def _argmax_composite(graph: Any, inputs: Sequence[str], attributes: Attributes) -> str:
    """The places that hold the largest number count from the end: the first of them counts most."""
    (x,), axis = inputs, attributes["axis"]
    shape = graph.shape(x)
    back = np.arange(shape[axis], 0, -1).reshape(-1, *(1,) * (len(shape) - axis - 1))
    is_largest = graph.add("equal", x, graph.add("max", x, axes=(axis,), keepdims=True))
    counted = graph.add("mul", is_largest, graph.constant(graph.fresh("places"), back))
    most = graph.add("max", counted, axes=(axis,), keepdims=attributes["keepdims"])
    return graph.add("sub", graph.scalar(shape[axis]), most)


def _take(arrays: Sequence[np.ndarray], attributes: Attributes) -> np.ndarray:
    table, places = arrays[0], np.rint(arrays[1]).astype(np.int64)
    if places.size and not (places.min() >= 0 and places.max() < len(table)):
        raise DomainError(f"a row {places.min()} to {places.max()} is taken of a table of {len(table)}")
    return table[places]


def _take_composite(graph: Any, inputs: Sequence[str], attributes: Attributes) -> str:
    """A product with rows that are one at one place."""
    table, places = inputs
    (count, *rest), shape = graph.shape(table), graph.shape(places)
    flat = graph.add("reshape", places, shape=(size(shape), 1))
    hot = graph.add("equal", flat, graph.constant(graph.fresh("rows"), np.arange(count)))
    rows = graph.add("reshape", table, shape=(count, size(tuple(rest))))
    return graph.add("reshape", graph.add("matmul", hot, rows), shape=(*shape, *rest))


def _where_composite(graph: Any, inputs: Sequence[str], attributes: Attributes) -> str:
    condition, a, b = inputs
    is_float = any(graph.operators[name].dtype.startswith(("float", "bfloat")) for name in (a, b))
    other = (
        graph.add("sub", graph.scalar(1.0), condition) if is_float else graph.add("equal", condition, graph.scalar(0.0))
    )
    return graph.add("add", graph.add("mul", condition, a), graph.add("mul", other, b))


def _mean_composite(graph: Any, inputs: Sequence[str], attributes: Attributes) -> str:
    count = size(tuple(graph.shape(inputs[0])[axis] for axis in attributes["axes"]))
    return graph.add("mul", graph.add("sum", *inputs, **attributes), graph.scalar(1 / count))


def _mean(x: np.ndarray, axis: Shape, keepdims: bool) -> np.ndarray:
    return np.asarray(x, np.float64).mean(axis, keepdims=keepdims)


def _unit(x: np.ndarray, rank: int) -> np.ndarray:
    squared = (x * x).sum(tuple(range(-rank, 0)), keepdims=True)
    return np.where(squared > 0, x / np.sqrt(np.where(squared > 0, squared, 1)), 0.0)


def _normalise_shape(shapes: Sequence[Shape], attributes: Attributes) -> Shape:
    if len(shapes[0]) < attributes["rank"]:
        raise ShapeError(f"vectors of {attributes['rank']} axes, and {list(shapes[0])} has {len(shapes[0])}")
    return shapes[0]


def _to_mass_shape(shapes: Sequence[Shape], attributes: Attributes) -> Shape:
    if not shapes[0] or not shapes[0][-1]:
        raise ShapeError(f"masses are over the last axis, and {list(shapes[0])} has none")
    return shapes[0]


def _to_mass(arrays: Sequence[np.ndarray], attributes: Attributes) -> np.ndarray:
    found = np.maximum(arrays[0], 0)
    total = found.sum(-1, keepdims=True)
    return np.where(total > 0, found / np.where(total > 0, total, 1), 1 / found.shape[-1])


def _pool_shape(shapes: Sequence[Shape], attributes: Attributes) -> Shape:
    (x,) = shapes
    if len(x) not in (3, 4):
        raise ShapeError(f"pooling of {list(x)}, expected [batch, channel, row, column]")
    spread = attributes.get("dilation", (1, 1))
    return (
        *x[:-2],
        *products.window_counts(x, attributes["kernel"], attributes["stride"], attributes["padding"], spread),
    )


def _max_pool(arrays: Sequence[np.ndarray], attributes: Attributes) -> np.ndarray:
    found: Any = -np.inf
    for _, met in products.taps(arrays[0], attributes["kernel"], attributes, -np.inf):
        found = np.maximum(found, met)
    return found


def _avg_pool(arrays: Sequence[np.ndarray], attributes: Attributes) -> np.ndarray:
    kernel = attributes["kernel"]
    total: Any = sum(met for _, met in products.taps(arrays[0], kernel, attributes))
    return total / size(kernel)


def _pool_work(shapes: Sequence[Shape], result: Shape, attributes: Attributes) -> Work:
    return Elementwise(size(result), size(attributes["kernel"]))


def _batch_norm_shape(shapes: Sequence[Shape], attributes: Attributes) -> Shape:
    x = shapes[0]
    if len(x) < 2 or any(shape != (x[1],) for shape in shapes[1:]):
        raise ShapeError(f"batch_norm of {list(x)} with {[list(shape) for shape in shapes[1:]]}: channels differ")
    return x


def batch_norm_scale(parameters: Sequence[np.ndarray], eps: float) -> tuple[np.ndarray, np.ndarray]:
    """What each channel is multiplied by, and what is added: from weight, bias, mean and variance."""
    weight, bias, mean, variance = (np.asarray(array, np.float64) for array in parameters)
    scale = weight / np.sqrt(variance + eps)
    return scale, bias - mean * scale


def _batch_norm(arrays: Sequence[np.ndarray], attributes: Attributes) -> np.ndarray:
    x, *parameters = arrays
    scale, shift = batch_norm_scale(parameters, attributes["eps"])
    ones = (1,) * (x.ndim - 2)
    return x * scale.reshape(-1, *ones) + shift.reshape(-1, *ones)


# Views


def _reshape_shape(shapes: Sequence[Shape], attributes: Attributes) -> Shape:
    shape = attributes["shape"]
    if size(shape) != size(shapes[0]):
        raise ShapeError(f"{list(shapes[0])} has {size(shapes[0])} entries, {list(shape)} has {size(shape)}")
    return shape


def _permute_shape(shapes: Sequence[Shape], attributes: Attributes) -> Shape:
    order, (shape,) = attributes["order"], shapes
    if sorted(order) != list(range(len(shape))):
        raise ShapeError(f"the order {order} is none of the {len(shape)} axes of {list(shape)}")
    return tuple(shape[axis] for axis in order)


def _places(shape: Shape, attributes: Attributes) -> tuple[slice, ...]:
    """The slices of an operator "slice": from `starts`, `lengths` entries of each axis, every `steps`-th."""
    parts = [attributes[name] for name in ("starts", "lengths", "steps")]
    if any(len(part) != len(shape) for part in parts):
        raise ShapeError(f"a slice with {[len(part) for part in parts]} starts, lengths and steps of {list(shape)}")
    for axis, (start, length, step) in enumerate(zip(*parts)):
        if start < 0 or step < 1 or length < 0 or (length and start + step * (length - 1) >= shape[axis]):
            raise ShapeError(
                f"{length} entries from {start} in steps of {step} are not all in axis {axis} of {list(shape)}"
            )
    return tuple(slice(start, start + step * length, step) for start, length, step in zip(*parts))


def _slice_shape(shapes: Sequence[Shape], attributes: Attributes) -> Shape:
    _places(shapes[0], attributes)
    return attributes["lengths"]


def _index_shape(shapes: Sequence[Shape], attributes: Attributes) -> Shape:
    axis, places, (shape,) = attributes["axis"], attributes["places"], shapes
    checked_axes((axis,), len(shape))
    if any(not 0 <= place < shape[axis] for place in places):
        raise ShapeError(f"places {min(places)} to {max(places)} along axis {axis} of {list(shape)}")
    return (*shape[:axis], len(places), *shape[axis + 1 :])


def _take_shape(shapes: Sequence[Shape], attributes: Attributes) -> Shape:
    if not shapes[0]:
        raise ShapeError("a scalar has no rows to take")
    return (*shapes[1], *shapes[0][1:])


def _concatenate_shape(shapes: Sequence[Shape], attributes: Attributes) -> Shape:
    axis, first = attributes["axis"], shapes[0]
    checked_axes((axis,), len(first))
    rest = {(*shape[:axis], *shape[axis + 1 :]) for shape in shapes}
    if len(rest) > 1 or any(len(shape) != len(first) for shape in shapes):
        raise ShapeError(f"shapes {', '.join(str(list(shape)) for shape in shapes)} beside each other on axis {axis}")
    return (*first[:axis], sum(shape[axis] for shape in shapes), *first[axis + 1 :])


def _expand_shape(shapes: Sequence[Shape], attributes: Attributes) -> Shape:
    shape = attributes["shape"]
    if broadcast(shapes[0], shape) != shape:
        raise ShapeError(f"{list(shapes[0])} does not expand to {list(shape)}")
    return shape


def _roll_shape(shapes: Sequence[Shape], attributes: Attributes) -> Shape:
    checked_axes(attributes["axes"], len(shapes[0]))
    if len(attributes["axes"]) != len(attributes["shifts"]):
        raise ShapeError(f"{len(attributes['shifts'])} shifts along {len(attributes['axes'])} axes")
    return shapes[0]


def _given(shapes: Sequence[Shape], attributes: Attributes) -> Shape:
    return attributes["shape"]


def _not_evaluated(arrays: Sequence[np.ndarray], attributes: Attributes) -> np.ndarray:
    raise AssertionError("inputs and constants are given")


_WINDOW = {"stride": (1, 1), "padding": (0, 0)}

for _name, _kind in {
    "input": Kind("source", (0, 0), {"shape": REQUIRED}, _given, _not_evaluated, _no_work),
    "constant": Kind("source", (0, 0), {"shape": REQUIRED}, _given, _not_evaluated, _no_work),
    # gemm
    "conv2d": Kind(
        *("gemm", (2, 3), {**_WINDOW, "dilation": (1, 1), "groups": 1}),
        *(products.conv2d_shape, products.conv2d, products.conv2d_work, products.holds_right),
    ),
    "linear": Kind(
        *("gemm", (2, 3), {}, products.linear_shape),
        lambda x, at: x[0] @ x[1].T + (x[2] if len(x) == 3 else 0),
        lambda shapes, result, at: Layer(size(result[:-1]), shapes[1][1], shapes[1][0]),
        products.holds_right,
    ),
    "matmul": Kind(
        *("gemm", (2, 2), {}, products.matmul_shape),
        *(lambda x, at: x[0] @ x[1], products.matmul_work, products.holds_fewer),
    ),
    "match_probabilities": Kind(
        *("gemm", (2, 2), {}, products.match_probabilities_shape, products.match_probabilities),
        products.match_probabilities_work,
        lambda shapes, at: products.holds_fewer(products.against_items(*shapes), at),
        values="float",
        composite=products.match_probabilities_composite,
    ),
    "bundle": Kind(
        *("gemm", (2, 2), {"rank": 2}, products.bundle_shape, products.bundle, products.bundle_work),
        # Of the product weights x items the right operand is the first input.
        lambda shapes, at: 1 - products.holds_fewer(products.flat_bundle(shapes[0], shapes[1], at["rank"]), at),
        composite=products.bundle_composite,
    ),
    # circular convolution and correlation
    "bind": Kind(
        "vector", (2, 2), {}, products.rows_shape, products.convolved(False), products.vectors_work, values="float"
    ),
    "unbind": Kind(
        "vector", (2, 2), {}, products.rows_shape, products.convolved(True), products.vectors_work, values="float"
    ),
    # elementwise, of one operand
    "relu": _elementwise(lambda x: np.maximum(x, 0), 1),
    "tanh": _elementwise(np.tanh, 1, values="float"),
    "exp": _elementwise(np.exp, 1, values="float"),
    "log": _elementwise(np.log, 1, values="float"),
    "sqrt": _elementwise(np.sqrt, 1, values="float"),
    "abs": _elementwise(np.abs, 1),
    "floor": _elementwise(np.floor, 1),
    "sin": _elementwise(np.sin, 1, 18, "float", periodic.wave(math.pi / 2)),
    "cos": _elementwise(np.cos, 1, 17, "float", periodic.wave(0.0)),
    "erf": _elementwise(periodic.error_function, 1, 22, "float", periodic.erf_composite),
    "gelu": _simd({"approximate": "none"}, _first, _gelu, _passes(4), is_entrywise=True),
    "clamp": _simd({"low": None, "high": None}, _first, _clamp, _passes(1), "same", is_entrywise=True),
    "softmax": _simd({"axis": REQUIRED}, _one_axis, lambda x, at: _softmax(x[0], at["axis"]), _of_inputs(3)),
    # elementwise, of two
    "add": _elementwise(np.add, 2),
    "sub": _elementwise(np.subtract, 2),
    "mul": _elementwise(np.multiply, 2),
    "div": _elementwise(np.divide, 2, values="float"),
    "maximum": _elementwise(np.maximum, 2),
    "minimum": _elementwise(np.minimum, 2),
    "greater": _elementwise(np.greater, 2, values="bool"),
    "equal": _elementwise(np.equal, 2, 2, values="bool"),
    # over axes
    "sum": _reduction(np.sum),
    "prod": _reduction(np.prod),
    "max": _reduction(np.max),
    "min": _reduction(np.min),
    "argmax": _simd(
        *({"axis": REQUIRED, "keepdims": False}, _argmax_shape, _argmax, _of_inputs(3), "int"),
        composite=_argmax_composite,
    ),
    # over windows
    "max_pool2d": _simd(
        {"kernel": REQUIRED, **_WINDOW, "dilation": (1, 1)}, _pool_shape, _max_pool, _pool_work, "same"
    ),
    "avg_pool2d": _simd({"kernel": REQUIRED, **_WINDOW}, _pool_shape, _avg_pool, _pool_work),
    # made of others
    "where": _elementwise(lambda condition, a, b: np.where(condition != 0, a, b), 3, 4, composite=_where_composite),
    "neg": _elementwise(np.negative, 1, composite=lambda graph, x, at: graph.add("mul", x[0], graph.scalar(-1.0))),
    "sigmoid": _elementwise(lambda x: 0.5 * (1 + np.tanh(0.5 * x)), 1, 2, "float", _sigmoid_composite),
    "log_softmax": _simd({"axis": REQUIRED}, _one_axis, _log_softmax, _of_inputs(4), composite=_log_softmax_composite),
    "mean": _reduction(_mean, "float", composite=_mean_composite),
    "match_probability": _simd(
        {},
        products.match_probability_shape,
        lambda x, at: (x[0] * x[1]).sum((-2, -1)) / x[0].shape[-2],
        lambda shapes, result, at: Elementwise(size(broadcast(*shapes)), 2),
        operands=2,
        composite=products.match_probability_composite,
    ),
    "batch_norm": _simd({"eps": 1e-5}, _batch_norm_shape, _batch_norm, _passes(2), operands=5),
    # of vectors of length one and of masses, both with a case for zero
    "normalise": _simd({"rank": 1}, _normalise_shape, lambda x, at: _unit(x[0], at["rank"]), _passes(3)),
    "to_mass": _simd({}, _to_mass_shape, _to_mass, _of_inputs(3)),
    # views
    "reshape": _view(("shape",), _reshape_shape, lambda x, at: x[0].reshape(at["shape"]), _no_work),
    "permute": _view(("order",), _permute_shape, lambda x, at: x[0].transpose(at["order"])),
    "slice": _view(("starts", "lengths", "steps"), _slice_shape, lambda x, at: x[0][_places(x[0].shape, at)]),
    "index": _view(
        ("axis", "places"), _index_shape, lambda x, at: x[0].take(np.array(at["places"], np.int64), at["axis"])
    ),
    "concatenate": _view(("axis",), _concatenate_shape, lambda x, at: np.concatenate(x, at["axis"]), most=None),
    "expand": _view(("shape",), _expand_shape, lambda x, at: np.broadcast_to(x[0], at["shape"])),
    "roll": _view(("axes", "shifts"), _roll_shape, lambda x, at: np.roll(x[0], at["shifts"], at["axes"])),
    # The rows of a table [row, ...] at places [*batch]: a product, which the array does.
    "take": Kind(
        *("gemm", (2, 2), {}, _take_shape, _take),
        lambda shapes, result, at: Layer(size(shapes[1]), shapes[0][0], size(shapes[0][1:])),
        # The table waits, and the places stream.
        lambda shapes, at: 0,
        values="first",
        composite=_take_composite,
    ),
}.items():
    KINDS.add(_name, _kind)
