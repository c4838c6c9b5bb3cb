"""Public operations as leaves of traces: `torch.fx` and whatever else listens to `__torch_function__` sees one call."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

import torch
from torch.overrides import handle_torch_function, has_torch_function

from derivable.bridge.torch import lacks_memory, no_memory
from derivable.core.diagnostics import DomainError
from derivable.vsa.model import Model

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


def leaf(function: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """The function, which `torch.fx.symbolic_trace` records as one node, under whatever name it is called.

    `torch.fx.wrap` would do so in the module that defines the name alone: a call through another module's name,
    `dv.vsa.bind` among them, would be traced into. The protocol that torch's own functions follow has no such gap.
    """

    @functools.wraps(function)
    def operation(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        relevant = (*args, *kwargs.values())
        if has_torch_function(relevant):
            if isinstance(kwargs.get("model"), Model):
                kwargs["model"] = _name(kwargs["model"])  # type: ignore[arg-type]
            return handle_torch_function(operation, relevant, *args, **kwargs)
        try:
            return function(*args, **kwargs)
        except RuntimeError as error:
            if not lacks_memory(error):
                raise
            tensors = [value for value in relevant if isinstance(value, torch.Tensor)]
            shapes = ", ".join(str(list(tensor.shape)) for tensor in tensors)
            what = f"{function.__name__} of tensors {shapes}" if shapes else function.__name__
            device = tensors[0].device if tensors else kwargs.get("device", "the device")
            raise no_memory(error, what, device, "give smaller batches") from None

    return operation


def _name(model: Model) -> str:
    """A trace keeps texts and numbers, not records of functions."""
    from derivable.vsa.models import REGISTRY  # which needs convolutions, which are leaves

    if model.name in REGISTRY and REGISTRY[model.name] is model:
        return model.name
    raise DomainError(f"the model {model.name!r} is not registered, so no trace can name it", hint="dv.vsa.register")
