"""Numbers that users have in any library, as arrays of NumPy."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from derivable.core.diagnostics import DerivableError, DomainError, LayoutError, UnsupportedError

# What torch and JAX say of tensors whose numbers are not there yet.
_TRACED = ("data pointer", "tensor subclasses", "was called on traced array")


def as_array(value: Any, what: str) -> np.ndarray:
    """Numbers of any library, or lists of such, as an array, without a copy where that can be. Floats and integers that
    are narrower than NumPy's are in 32 bits.

    what  for messages

    Raises ValueError for lists of different lengths, UnsupportedError for a tensor that requires gradients, is traced
    or is of a kind that has no array, DomainError for masked values, LayoutError for what its library does not read.
    """
    if isinstance(value, np.ma.MaskedArray):
        return _unmasked(value, what)
    try:
        array = np.asarray(value)
    except (DerivableError, MemoryError):
        raise
    except Exception as error:
        array = _with_effort(value, what, error)
    if array.dtype.kind in "Vf" and array.dtype.isbuiltin == 2:
        array = array.astype(np.int32 if "int" in array.dtype.name else np.float32)
    is_list = isinstance(value, (list, tuple)) and array.dtype.kind == "f"
    # NumPy makes NaN of them.
    if is_list and np.isnan(array).any() and (count := sum(x is np.ma.masked for x in value)):
        raise _masked(what, count)
    return array


def as_floats(values: Any, what: str) -> np.ndarray:
    """Numbers as an array of float64, missing ones as NaN.

    Raises what `as_array` raises, DomainError for integers beyond float64, and TypeError or ValueError for what is no
    number.
    """
    array = as_array(values, what)
    if array.dtype.kind in "biuf":
        return array.astype(np.float64, copy=False)
    if array.dtype != object or any(isinstance(value, (str, bytes)) for value in array.flat):
        raise TypeError(f"{what} of type {array.dtype}")
    try:
        return array.astype(np.float64)
    except OverflowError:
        raise DomainError(f"{what} is beyond {np.finfo(np.float64).max:.2g}, what a float of 64 bits holds") from None


def readable(tensor: Any, what: str) -> Any:
    """A tensor of torch as one that NumPy can read. Raises UnsupportedError for those that are no arrays."""
    if tensor.is_nested:
        message = f"{what} is nested: its rows have different lengths"
        raise UnsupportedError(message, hint="fill the rows up: `x.to_padded_tensor(0.0)`")
    if tensor.is_quantized:
        raise UnsupportedError(f"{what} is quantised, of type {tensor.dtype}", hint="give `x.dequantize()`")
    if tensor.is_floating_point() and tensor.itemsize < 4 and str(tensor.dtype) != "torch.float16":
        tensor = tensor.float()
    return tensor.resolve_conj().resolve_neg() if tensor.is_conj() or tensor.is_neg() else tensor


def refuse_emptied(array: Any, what: str) -> None:
    """Raise UnsupportedError for an array of JAX that was donated to another call, or deleted."""
    # What JAX traces has no memory.
    if type(array).__name__ == "ArrayImpl" and array.is_deleted():
        raise UnsupportedError(
            f"{what} is an array of JAX whose memory was given away, of shape {list(array.shape)}",
            hint="keep a copy of what a call with `donate_argnums` takes: `x.copy()`",
        )


def _with_effort(value: Any, what: str, error: Exception) -> np.ndarray:
    """As an array what NumPy has refused: a tensor of torch in another representation, or a list with such."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, (torch.Tensor, list, tuple)):
        read = _all_readable(value, torch, what)
        if read is not value:
            return as_array(read, what)
    raise _unread(error, value, what) from None


def _all_readable(value: Any, torch: Any, what: str) -> Any:
    """The value itself where nothing of it has changed."""
    if isinstance(value, torch.Tensor):
        return readable(value, what)
    if not isinstance(value, (list, tuple)):
        return value
    parts = [_all_readable(part, torch, what) for part in value]
    return value if all(new is old for new, old in zip(parts, value)) else parts


def _unread(error: Exception, value: Any, what: str) -> Exception:
    said = str(error)
    if isinstance(error, RuntimeError) and "requires grad" in said:
        message, hint = f"{what} requires gradients, which numbers do not record", "give `x.detach()`"
    elif any(words in said for words in _TRACED):
        message, hint = f"{what} is traced, and this computes on numbers", "call this outside of what is traced"
    elif isinstance(error, ValueError) and isinstance(value, (list, tuple)):
        return error
    else:
        said = said.split("\n")[0].split(". ")[0].rstrip(".")
        kind = f"{type(value).__module__.partition('.')[0]}'s {type(value).__name__}"
        return LayoutError(
            f"{what}, which is {kind}, cannot be read as an array: {said}",
            hint="give an array of numbers, which `numpy.asarray` makes of most things",
        )
    return UnsupportedError(message, hint=f"{hint}; gradients go through whole tensors, such as `torch.stack([...])`")


def _unmasked(array: np.ma.MaskedArray, what: str) -> np.ndarray:
    if np.ma.is_masked(array):
        raise _masked(what, int(np.ma.count_masked(array)))
    return array.data


def _masked(what: str, count: int) -> DomainError:
    return DomainError(
        f"{what} is masked at {count} place{'s' if count != 1 else ''}, and an array holds every entry",
        hint="`array.filled(0)` is zero there",
    )
