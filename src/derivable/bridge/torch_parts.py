"""Private parts of torch: no other module uses any, and a test looks for each of these by its name.

`tests/architecture/test_private_parts.py` says which a version of torch lacks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import torch
from torch.autograd import forward_ad
from torch.utils._pytree import tree_leaves, tree_map

__all__ = ["tree_leaves", "tree_map"]


def is_transformed() -> bool:
    """Whether torch.func or forward mode look at what is computed, and not only reverse mode."""
    return torch._C._are_functorch_transforms_active() or forward_ad._current_level >= 0


def is_captured() -> bool:
    """Whether a graph is made of what is computed, for calls with other numbers: by torch.compile, torch.export,
    torch.jit.trace or make_fx. Code must not decide on numbers then, nor leave torch."""
    return torch.compiler.is_compiling() or torch._C._is_tracing() or torch._C._len_torch_dispatch_stack() > 0


def is_observed() -> bool:
    """Whether somebody else than reverse mode looks at what is computed: tensors may have no numbers."""
    # `is_captured() or is_transformed()`, without two calls: small folds take seven microseconds.
    tracing = torch._C
    return (
        torch.compiler.is_compiling()
        or tracing._is_tracing()
        or tracing._len_torch_dispatch_stack() > 0
        or tracing._are_functorch_transforms_active()
        or forward_ad._current_level >= 0
    )


def physical(tensor: torch.Tensor) -> torch.Tensor:
    """The numbers that are there, all copies of them, for checks inside torch.func's transformations."""
    functorch: Any = torch._C._functorch  # type: ignore[attr-defined]
    while functorch.is_functorch_wrapped_tensor(tensor):
        tensor = functorch.get_unwrapped(tensor)
    return tensor.detach()


def without_script() -> AbstractContextManager[None]:
    """torch.jit.trace does not look at what is computed in this block."""
    tracing: Any = torch._C
    return _set_to(None, tracing._get_tracing_state, tracing._set_tracing_state)


@contextmanager
def recording() -> Iterator[None]:
    """Autograd records, also in the implementation of an operator, below the place where it does otherwise."""
    key = torch._C.DispatchKey.AutogradFunctionality
    with torch._C._SetExcludeDispatchKeyGuard(key, False), torch.enable_grad():
        yield


def one_level() -> AbstractContextManager[None]:
    """An autograd function may be one of a single level of torch.func's transformations."""
    functorch: Any = torch._C._functorch  # type: ignore[attr-defined]
    return _set_to(
        True,
        functorch.get_single_level_autograd_function_allowed,
        functorch.set_single_level_autograd_function_allowed,
    )


@contextmanager
def _set_to(value: Any, current: Callable[[], Any], change: Callable[[Any], None]) -> Iterator[None]:
    before = current()
    change(value)
    try:
        yield
    finally:
        change(before)


def below_autograd(operator: Any, keyset: Any, *arguments: Any) -> Any:
    """What an operator gives below autograd, of which what is below may be another level of transformations."""
    modes = torch.enable_grad(), forward_ad._set_fwd_grad_enabled(True), torch._C._AutoDispatchBelowAutograd()
    with modes[0], modes[1], modes[2]:
        return operator.default.redispatch(keyset & torch._C._after_autograd_keyset, *arguments)


def is_legacy_copies(tensor: torch.Tensor | None) -> bool:
    """Whether a tensor stands for many, by the vmap that `torch.autograd` has for itself (`is_grads_batched`)."""
    return tensor is not None and torch._C._functorch.is_legacy_batchedtensor(tensor)  # type: ignore[attr-defined]


def each_legacy_copy(function: Callable[..., Any], tensors: Any) -> list[Any]:
    """A function of tensors some of which stand for many by that vmap, by torch.vmap."""
    level = torch._C._vmapmode_increment_nesting() - 1
    torch._C._vmapmode_decrement_nesting()
    axes = tuple(0 if is_legacy_copies(x) else None for x in tensors)
    bare: list[Any] = [
        x if axis is None else torch._remove_batch_dim(x, level, 1, 0)  # type: ignore[arg-type]
        for x, axis in zip(tensors, axes)
    ]
    return [torch._add_batch_dim(x, 0, level) for x in torch.vmap(function, in_dims=axes)(*bare)]  # type: ignore[attr-defined]


@contextmanager
def traced_in_compiled_code() -> Iterator[None]:
    """Programs are traced in what torch.compile made, whose parts run as what they were made of."""
    with torch._dynamo.config.patch(error_on_nested_fx_trace=False), torch.compiler.set_stance("force_eager"):
        yield
