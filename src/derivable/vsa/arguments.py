"""Checks of vectors: of the model's dtypes, with its axes, alike enough to be combined."""

from __future__ import annotations

from typing import Any, NoReturn

import torch
from torch import Tensor

from derivable.bridge.torch import PLAIN, check_computable
from derivable.core.arguments import seed_of
from derivable.core.diagnostics import DomainError, ShapeError
from derivable.vsa.model import Model


def described(tensor: Tensor, model: Model, items: int = 0) -> str:
    """The shape by named axes: `[*batch=(2, 3), block=4, length=256]`.

    items  1 if an axis of items stands in front of the vectors
    """
    axes = (*("item",) * items, *model.axes)
    shape = tuple(tensor.shape)
    batch = shape[: max(len(shape) - len(axes), 0)]
    rest = shape[len(batch) :]
    named = [f"{name}={size}" for name, size in zip(axes[len(axes) - len(rest) :], rest)]
    return "[" + ", ".join([f"*batch={batch}"] * bool(batch) + named) + "]"


def generator_of(given: Any, device: Any = None) -> torch.Generator | None:
    """A generator on a device: the one that is given, a new one for a seed, none for None. Raises DomainError for what
    is none of these."""
    if given is None or isinstance(given, torch.Generator):
        return given
    return torch.Generator(device or "cpu").manual_seed(seed_of(given, "generator"))


def check_tensor(tensor: Any, name: str, axes: str, of: str = "") -> Tensor:
    """The tensor, if it is a dense one of numbers [axes]. Raises ShapeError, and what `check_computable` raises."""
    if not isinstance(tensor, Tensor):
        raise ShapeError(
            f"{name} is a {type(tensor).__name__}, expected a tensor [{axes}]{of}",
            hint="torch.as_tensor makes one of arrays and lists",
        )
    check_computable(tensor, name)
    if tensor.layout is not torch.strided:
        raise ShapeError(f"{name} is sparse, and vectors are dense", hint="convert it: `x.to_dense()`")
    return tensor


def check_beside(numbers: Any, name: str, axes: str, vectors: Tensor) -> Tensor:
    """The tensor of numbers [axes] that vectors are combined with: on their device, and real where they are. Raises as
    `check_tensor`, and DomainError."""
    tensor = check_tensor(numbers, name, axes)
    if tensor.is_complex() and not vectors.is_complex():
        raise ShapeError(f"{name} is of complex numbers, and the vectors are real")
    check_device(tensor, vectors, (name, "the vectors"))
    return tensor


def check_device(a: Tensor, b: Tensor, names: tuple[str, str]) -> None:
    """Raise DomainError for tensors on different devices."""
    if a.device != b.device:
        raise DomainError(f"{names[0]} is on {a.device}, {names[1]} on {b.device}", hint="move one with `.to(device)`")


def check_vectors(tensor: Tensor, name: str, model: Model, items: int = 0) -> Tensor:
    """The tensor, if it is of vectors of the model. Raises ShapeError, and what `check_computable` raises."""
    if type(tensor) not in PLAIN and isinstance(tensor, Tensor):
        check_computable(tensor, name)
    if not (
        isinstance(tensor, Tensor)
        and tensor.layout is torch.strided
        and not tensor.is_nested
        and tensor.dtype in model.dtypes
        and tensor.dim() >= items + model.rank
        and 0 not in tensor.shape[-model.rank :]
    ):
        _fail(tensor, name, model, items)
    return tensor


def _fail(tensor: Tensor, name: str, model: Model, items: int) -> NoReturn:
    """Raise ShapeError with what is wrong. The texts would take longer than a small product."""
    axes = ", ".join(["*batch", *["item"] * items, *model.axes])
    check_tensor(tensor, name, axes, f" of the model {model.name!r}")
    if tensor.dim() < items + model.rank:
        raise ShapeError(
            f"{name} has shape {list(tensor.shape)}, expected [{axes}] for the model {model.name!r}",
            hint=_other_model(tensor, model) or "torch.stack puts an axis of items in front",
        )
    if not all(tensor.shape[-model.rank :]):
        raise ShapeError(f"{name} has shape {described(tensor, model, items)}: its vectors are empty")
    raise ShapeError(
        f"{name} is of {tensor.dtype}, which the model {model.name!r} does not take",
        hint=f"it takes {', '.join(map(str, model.dtypes))}",
    )


def check_pair(
    a: Tensor, b: Tensor, names: tuple[str, str], model: Model, items: tuple[int, int] = (0, 0)
) -> tuple[Tensor, Tensor]:
    """Both, if they are vectors of the model that can be combined: equal axes, batches that broadcast, one device."""
    check_vectors(a, names[0], model, items[0])
    check_vectors(b, names[1], model, items[1])
    if a.shape == b.shape and items[0] == items[1] and a.device == b.device:
        return a, b
    shapes = [described(tensor, model, count) for tensor, count in zip((a, b), items)]
    both = f"{names[0]} {shapes[0]} and {names[1]} {shapes[1]}"
    for k, axis in enumerate(model.axes, -model.rank):
        if a.shape[k] != b.shape[k]:
            raise ShapeError(f"{both} differ in {axis}", hint="vectors are combined only with those of equal axes")
    batches = [tensor.shape[: tensor.dim() - model.rank - count] for tensor, count in zip((a, b), items)]
    try:
        torch.broadcast_shapes(*batches)
    except RuntimeError:
        raise ShapeError(
            f"the batches of {both} do not broadcast", hint="put axes of size 1 in, by unsqueeze, to pair all with all"
        ) from None
    check_device(a, b, names)
    return a, b


def _other_model(tensor: Tensor, model: Model) -> str | None:
    if model.name == "block" and tensor.dim() == 1:
        return 'vectors without blocks are of another model, such as model="hrr"'
    return None
