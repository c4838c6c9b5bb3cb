"""Graphs of `torch.export` in a trace: each operation of ATen is the function or method of torch that it came from.

Printed form of a row of such a graph, and what is traced in its place:

    torch.ops.aten.transpose.int(x, 1, 0)                        x.transpose(1, 0)
    torch.ops.aten.conv2d.default(x, weight, bias, [2, 2])       F.conv2d(x, weight, bias, [2, 2])
    torch.ops.aten.slice.Tensor(x, 1, 2, 5)                      x[:, 2:5]
    torch.ops.higher_order.while_loop(condition, body, (k, x))   the steps of the body, one after the other
    torch.ops.higher_order.cond(choice, yes, no, (x,))           torch.where(choice, yes(x), no(x))
"""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable
from typing import Any

import torch
from torch.fx.node import map_aggregate
from torch.nn import functional as F

from derivable.accelerator.trace.decompositions import Refused, is_traced
from derivable.accelerator.trace.onnx_file import is_onnx, module_of_onnx

# Of 64 bits: the end of a slice without one.
_NO_END = (1 << 63) - 1
LOOP_HINT = (
    "let the loop take a fixed number of steps, of which those after its end change nothing: "
    "`for _ in range(32): state = torch.where(goes_on(state), step(state), state)`"
)


def module_of(model: Any) -> Any:
    """The module of a file of ONNX, of an exported program, or of the graph module of one, without its checks, and in
    float64 as all of a trace; other models as they are."""
    if is_onnx(model):
        return module_of_onnx(model)
    if "torch.export" in sys.modules and isinstance(model, torch.export.ExportedProgram):
        module: Any = model.module()
    elif isinstance(model, torch.fx.GraphModule) and any(
        is_exported(node.target) or _control(node.target) for node in model.graph.nodes
    ):
        module = copy.deepcopy(model)
    else:
        return model
    # Bodies of loops and branches are modules in it.
    for each in module.modules():
        if isinstance(each, torch.fx.GraphModule):
            _prepare(each)
    return module


def _prepare(module: torch.fx.GraphModule) -> None:
    for node in list(module.graph.nodes):
        is_check = node.target == "_guards_fn" or getattr(node.target, "__name__", "").startswith("_assert")
        if is_check and not node.users:
            module.graph.erase_node(node)
            continue
        node.args, node.kwargs = (map_aggregate(each, _wide) for each in (node.args, node.kwargs))
        node.target = _control(node.target) or node.target
    module.recompile()


def while_loop(condition: Callable, body: Callable, carried: Any, more: Any = ()) -> tuple[Any, ...]:
    """The steps of `torch.while_loop` one after the other, as many as constants say.

    Raises Refused where a tensor that depends on the inputs says how many.
    """
    state = tuple(carried)
    while True:
        goes_on = condition(*state, *more)
        if is_traced(goes_on):
            raise Refused(
                "torch.while_loop ends by a tensor that depends on the inputs: data-dependent control flow cannot be "
                "traced",
                hint=LOOP_HINT,
            )
        if not goes_on:
            return state
        state = tuple(body(*state, *more))


def cond(choice: Any, yes: Callable, no: Callable, operands: Any = ()) -> Any:
    """Both branches of `torch.cond`, of which each result is chosen by `torch.where`."""
    if not is_traced(choice):
        return (yes if choice else no)(*operands)
    pairs = zip(yes(*operands), no(*operands), strict=True)
    return tuple(one if one is other else torch.where(choice, one, other) for one, other in pairs)


_CONTROL: dict[str, Callable[..., Any]] = {"while_loop": while_loop, "cond": cond}


def _control(target: Any) -> Callable | None:
    """What is traced in the place of an operator of torch that takes functions."""
    return _CONTROL.get(target.__name__) if getattr(target, "namespace", None) == "higher_order" else None


def _wide(value: Any) -> Any:
    return torch.float64 if isinstance(value, torch.dtype) and value.is_floating_point else value


def is_exported(target: Any) -> bool:
    """Whether a function is an operation of ATen, as exported graphs call them."""
    return getattr(target, "namespace", None) == "aten" and hasattr(target, "overloadpacket")


def call(target: Any, args: tuple, kwargs: dict) -> Any:
    """What torch's own function of an operation of ATen gives: a method where there is one, for it takes the same
    arguments. Raises Refused for an operation that torch has no function of."""
    name = target.overloadpacket.__name__
    if name in _OWN:
        return _OWN[name](*args, **kwargs)
    if args and isinstance(args[0], (torch.Tensor, torch.fx.Proxy)) and callable(getattr(torch.Tensor, name, None)):
        return getattr(args[0], name)(*args[1:], **kwargs)
    for place in (F, torch):
        if callable(getattr(place, name, None)):
            return getattr(place, name)(*args, **kwargs)
    raise Refused(
        f"{target} has no function of torch",
        hint="design with the module itself: torch.export writes out what operators stand for, such as bindings",
    )


def _slice(x: Any, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1) -> Any:
    end = None if end == _NO_END else end
    return x[(slice(None),) * (dim % x.ndim) + (slice(start, end, step),)]


def _index(x: Any, indices: list) -> Any:
    return x[tuple(slice(None) if each is None else each for each in indices)]


def _batch_norm(x: Any, weight: Any, bias: Any, mean: Any, variance: Any, *rest: Any) -> Any:
    training, momentum, eps = rest[:3]
    return F.batch_norm(x, mean, variance, weight, bias, training, momentum, eps)


def _nearest(x: Any, size: Any, factors: Any = None) -> Any:
    return F.interpolate(x, size, None if size is not None else tuple(factors), "nearest")


def _to(x: Any, *args: Any, **kwargs: Any) -> Any:
    """Formats of floats are those of the design."""
    dtype = kwargs.get("dtype", next((each for each in args if isinstance(each, torch.dtype)), None))
    return x if dtype is None or dtype.is_floating_point else x.to(dtype)


_OWN: dict[str, Callable[..., Any]] = {
    "slice": _slice,
    "index": _index,
    "batch_norm": _batch_norm,
    "layer_norm": lambda x, shape, weight=None, bias=None, eps=1e-5, *_: F.layer_norm(x, shape, weight, bias, eps),
    "group_norm": lambda x, groups, weight=None, bias=None, eps=1e-5, *_: F.group_norm(x, groups, weight, bias, eps),
    "embedding": lambda weight, ids, *_: F.embedding(ids, weight),
    "softmax": lambda x, dim, *_: torch.softmax(x, dim),
    "log_softmax": lambda x, dim, *_: torch.log_softmax(x, dim),
    "dropout": lambda x, p, train: F.dropout(x, p, train),
    "to": _to,
    "_to_copy": _to,
    "view": lambda x, shape: x.reshape(shape),
    "_unsafe_view": lambda x, shape: x.reshape(shape),
    "where": torch.where,
    "instance_norm": lambda x, weight, bias, mean, variance, use_input, momentum, eps, *_: F.instance_norm(
        x, mean, variance, weight, bias, use_input, momentum, eps
    ),
    "upsample_nearest1d": _nearest,
    "upsample_nearest2d": _nearest,
    "upsample_bilinear2d": lambda x, size, corners, factors=None: F.interpolate(
        x, size, factors, "bilinear", align_corners=corners
    ),
    "numpy_T": lambda x: x.permute(*reversed(range(x.ndim))),
    "linalg_vector_norm": torch.linalg.vector_norm,
    "sym_size": lambda x, dim: x.shape[dim],
    "contiguous": lambda x, **_: x,
    "clone": lambda x, **_: x,
    "alias": lambda x: x,
    "lift_fresh_copy": lambda x: x,
    "detach": lambda x: x,
    "detach_": lambda x: x,
    "rsub": lambda x, other, alpha=1: other - x * alpha,
}
