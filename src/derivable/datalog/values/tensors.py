"""Tensors as values: arrays of NumPy and tensors of torch, held in a table as texts are.

Two tensors are equal if their types, shapes and elements are; one that needs gradients is equal to itself only.
Nothing here imports torch: a program that has its tensors has imported it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from derivable.core.arrays import readable


def is_tensor(value: Any) -> bool:
    """Whether a Python value is an array with at least no dimension, of numbers or bools."""
    if isinstance(value, np.ndarray):
        return value.dtype.kind in "biufc"
    return _is_torch(value)


def _is_torch(value: Any) -> bool:
    return type(value).__module__.split(".")[0] == "torch" and hasattr(value, "detach")


def key_of(value: Any) -> tuple:
    """What equal tensors have in common."""
    if isinstance(value, np.ndarray):
        return "numpy", value.dtype.str, value.shape, np.ascontiguousarray(value).tobytes()
    if value.requires_grad or value.device.type != "cpu":
        return "torch", id(value)
    array = readable(value.detach(), "a tensor of the facts").contiguous().numpy()
    return "torch", str(value.dtype), tuple(value.shape), array.tobytes()


def unchangeable(value: Any) -> Any:
    """The tensor for the table: a copy that cannot change, of an array that may."""
    if isinstance(value, np.ndarray) and value.flags.writeable:
        value = value.copy()
        value.flags.writeable = False
    return value


def as_tensor(value: Any) -> Any:
    """The result of an operation on arrays as an array: NumPy makes scalars of those without dimensions."""
    return np.asarray(value) if isinstance(value, np.generic) else value


def dot(a: Any, b: Any) -> Any:
    """The inner product of two vectors, a tensor without dimensions: of torch's that of torch, with its gradients."""
    if len(a.shape) != 1 or tuple(a.shape) != tuple(b.shape):
        raise ValueError(f"$dot needs two vectors of one length, the shapes are {tuple(a.shape)} and {tuple(b.shape)}")
    if _is_torch(a) and _is_torch(b) and a.dtype == b.dtype and a.device == b.device and not _is_bool(a):
        return a @ b
    return as_tensor((a * b).sum())


def _is_bool(value: Any) -> bool:
    return str(value.dtype) == "torch.bool"


def item(value: Any) -> float | None:
    """The number in a tensor of one element."""
    return float(value.reshape(-1)[0]) if value.reshape(-1).shape[0] == 1 else None


def shown(value: Any) -> str:
    """A tensor as a person sees it in a row: its type, shape and first elements."""
    flat = np.asarray(value.detach().cpu() if _is_torch(value) else value).reshape(-1)
    numbers = ", ".join(f"{number:.6g}" for number in flat[:4].tolist()) + (", ..." if len(flat) > 4 else "")
    return f"tensor<{'x'.join(map(str, value.shape))}>[{numbers}]"
