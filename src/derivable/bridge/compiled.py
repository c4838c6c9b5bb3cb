"""Folds in code that `torch.compile` reads: it sees the arguments' types and axes, and one fold. The operator, its
expressions and its kernels are looked at when the graph is made, outside of it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

import torch
from torch.fx.experimental.proxy_tensor import make_fx

from derivable.bridge import arrays, operators
from derivable.bridge import torch as tensors
from derivable.bridge.torch_parts import without_script
from derivable.core.diagnostics import DerivableError

_Tensors = list[torch.Tensor]


def prepared(
    kind: Any, operator: Any, arguments: Sequence[tuple[str, Any]], options: tuple[bool, ...], structure: Any
) -> tuple[ModuleType, int, _Tensors] | None:
    """What `arrays.prepared` gives, with the number of the fold, for code that `torch.compile` reads; None for
    arguments that do not fit, or are no tensors, which are then refused or folded outside of the graph."""
    try:
        groups = arrays.groups_of(operator, arguments)
        named = [leaf for _, group in groups for leaf in group]
        if not all(isinstance(array, torch.Tensor) for _, array in (*named, *structure)):
            return None
        leaves = [tensors.as_leaf(leaf, name) for name, leaf in named]
        arrays.check_shapes(operator, groups)
    except DerivableError:
        return None
    fold = _fold_of(kind, operator, options, tuple([leaf.dtype for leaf in leaves]), len(groups))
    return None if fold is None else (tensors, fold, leaves)


@torch.compiler.assume_constant_result
def _fold_of(kind: Any, operator: Any, options: tuple[bool, ...], dtypes: Any, groups: int) -> int | None:
    """The number of the fold of an operator on leaves [group and leaf] of these types; None if there is none."""
    try:
        leaves = [("values", torch.empty(0, dtype=dtype)) for dtype in dtypes]
        count = len(leaves) // groups
        parts = [("values", leaves[k : k + count]) for k in range(0, len(leaves), count)]
        fold, parameters = arrays.fold_of(tensors, kind, operator, parts, options, {})
    except (DerivableError, AttributeError):
        # An operator that the compiled code itself makes has no attributes before that code runs.
        return None
    # Those of this call must not stay in the graph.
    return None if parameters else operators.recorded(fold)


def one_node(function: Callable[..., Any], tensors: Sequence[torch.Tensor], *given: Any) -> Any:
    """`function(tensors, *given)` in a graph that `torch.compile` or `torch.jit.trace` makes, whose code they must not
    look at: of its graph of torch's operators for tensors of these shapes."""
    if not torch.jit.is_tracing():  # type: ignore[attr-defined]
        return _called(_number(function, *given), *tensors)
    with without_script():
        graph = make_fx(lambda *tensors: function(tensors, *given))(*tensors)
    return graph(*tensors)


# Of graphs, and nobody knows how long these live.
_nodes: list[tuple[Callable[..., Any], tuple[Any, ...]]] = []


@torch.compiler.assume_constant_result
def _number(function: Callable[..., Any], *given: Any) -> int:
    _nodes.append((function, given))
    return len(_nodes) - 1


@torch.compiler.allow_in_graph
def _called(number: int, *tensors: torch.Tensor) -> Any:
    """What `torch.compile` takes as it is, and looks into when all code has been read."""
    function, given = _nodes[number]
    return function(tensors, *given)
