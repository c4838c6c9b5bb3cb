"""Numbers that users have in any library, as arrays of NumPy."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from derivable.core.diagnostics import DerivableError, DomainError, LayoutError, UnsupportedError

# What torch and JAX say of tensors whose numbers are not there yet.
_TRACED = ("data pointer", "tensor subclasses", "was called on traced array")


def as_array(value: Any, what: str, *, with_missing: bool = False) -> np.ndarray:
    """Numbers of any library, or lists of such, as an array, without a copy where that can be. Floats and integers that
    are narrower than NumPy's are in 32 bits.

    what          for messages
    with_missing  whether columns may have missing values, which are NaN or objects of their library

    Raises ValueError for lists of different lengths, UnsupportedError for a tensor that requires gradients, is traced
    or is of a kind that has no array, DomainError for masked and missing values, LayoutError for what its library does
    not read.
    """
    if isinstance(value, np.ma.MaskedArray):
        return _unmasked(value, what)
    if not (with_missing or type(value) is np.ndarray) and (count := _count_missing(value)):
        raise DomainError(
            f"{what} has {count} missing value{'s' if count != 1 else ''}, and an array holds every entry",
            hint="fill them, such as by `x.fillna(0)` in pandas and `x.fill_null(0)` in polars and Arrow",
        )
    try:
        array = np.asarray(value)
    except (DerivableError, MemoryError):
        raise
    except Exception as error:
        array = _with_effort(value, what, error)
    if not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="))
    if array.dtype.kind in "Vf" and array.dtype.isbuiltin == 2:
        array = array.astype(np.int32 if "int" in array.dtype.name else np.float32)
    if isinstance(value, (list, tuple)) and array.dtype.kind in "biuf":
        _refuse_masked_parts(value, array, what)
    return array


def as_floats(values: Any, what: str) -> np.ndarray:
    """Numbers as an array of float64, None as NaN.

    Raises what `as_array` raises, DomainError for integers beyond float64, and TypeError or ValueError for what is no
    number.
    """
    array = as_array(values, what)
    if array.dtype.kind in "biuf":
        return array.astype(np.float64, copy=False)
    if array.dtype != object or any(isinstance(value, (str, bytes)) for value in array.flat):
        raise TypeError(f"{what} of type {array.dtype}")
    try:
        numbers = array.astype(np.float64)
    except OverflowError:
        numbers = None
    # NumPy makes infinities of large decimals.
    if numbers is None or (np.isinf(numbers) & (numbers != array)).any():
        raise DomainError(f"{what} is beyond {np.finfo(np.float64).max:.2g}, what a float of 64 bits holds")
    return numbers


def as_reals(values: Any, what: str) -> np.ndarray:
    """Numbers as an array of float64. Raises as `as_floats`, with DomainError for what is no real number."""
    try:
        return as_floats(values, what)
    except (TypeError, ValueError):
        raise DomainError(f"{what} is no array of real numbers", hint="give floats of one shape") from None


def as_bools(values: Any, what: str) -> np.ndarray:
    """Truth values, or numbers that are true where they are not 0. Raises as `as_array`, and DomainError for what is no
    real number."""
    array = as_array(values, what)
    if array.dtype.kind not in "biuf":
        raise DomainError(f"{what} is of type {array.dtype}", hint="give truth values")
    return array.astype(bool, copy=False)


def check_plain(tensor: Any, what: str) -> None:
    """Raise UnsupportedError for a tensor of torch that is no array of numbers: one with rows of different lengths,
    with quantised numbers, or with a mask."""
    if tensor.is_nested:
        message = f"{what} is nested: its rows have different lengths"
        raise UnsupportedError(message, hint="fill the rows up: `x.to_padded_tensor(0.0)`")
    if tensor.is_quantized:
        raise UnsupportedError(f"{what} is quantised, of type {tensor.dtype}", hint="give `x.dequantize()`")
    if type(tensor).__name__ == "MaskedTensor":
        raise UnsupportedError(f"{what} is a masked tensor", hint="`x.to_tensor(0.0)` is zero where the mask is not")


def readable(tensor: Any, what: str) -> Any:
    """A tensor of torch as one that NumPy can read. Raises as `check_plain`, and for one without numbers."""
    check_plain(tensor, what)
    if tensor.is_meta:
        raise UnsupportedError(
            f"{what} is on the meta device, which has shapes and no numbers", hint="make it on a device with memory"
        )
    if type(tensor).__name__ == "FakeTensor":
        raise UnsupportedError(
            f"{what} is a fake tensor, which has a shape and no numbers", hint="give a tensor with numbers"
        )
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
    refuse_emptied(value, what)
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, (torch.Tensor, list, tuple)):
        try:
            read = _all_readable(value, torch, what)
        except RecursionError:
            raise LayoutError(f"{what} is a list within itself, or within too many others") from None
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


def _count_missing(value: Any) -> int:
    """How many values a column or table of pandas, polars or Arrow has no number for. In a column of NumPy's floats NaN
    is a number."""
    # What polars computes later has no array.
    count = getattr(value, "null_count", None) if hasattr(value, "__array__") else None
    if count is not None:
        return int(np.sum(np.asarray(count() if callable(count) else count)))
    if hasattr(value, "column_names") and hasattr(value, "columns"):
        return sum(_count_missing(column) for column in value.columns)
    if hasattr(value, "iloc") and getattr(value, "ndim", 1) == 2:
        return sum(_count_missing(value.iloc[:, k]) for k in range(value.shape[1]))
    is_column = hasattr(value, "isna") and not isinstance(getattr(value, "dtype", None), np.dtype)
    return int(np.sum(value.isna())) if is_column else 0


def _refuse_masked_parts(value: Any, array: np.ndarray, what: str) -> None:
    """Raise DomainError for a list with masked numbers, of which NumPy makes NaN, or with masked arrays, of which it
    takes what lies behind the mask."""
    if array.ndim > 1:
        count = sum(np.ma.count_masked(part) for part in value if isinstance(part, np.ma.MaskedArray))
    else:
        has_nan = array.dtype.kind == "f" and np.isnan(array).any()
        count = sum(part is np.ma.masked for part in value) if has_nan else 0
    if count:
        raise _masked(what, int(count))


def _unmasked(array: np.ma.MaskedArray, what: str) -> np.ndarray:
    if np.ma.is_masked(array):
        raise _masked(what, int(np.ma.count_masked(array)))
    return array.data


def _masked(what: str, count: int) -> DomainError:
    return DomainError(
        f"{what} is masked at {count} place{'s' if count != 1 else ''}, and an array holds every entry",
        hint="`array.filled(0)` is zero there",
    )
