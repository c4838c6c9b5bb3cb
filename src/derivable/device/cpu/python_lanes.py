"""What the intrinsics of kernels mean, in Python: scalars are NumPy's or Python's, lines are arrays [lane].

Masks are integers, -1 where true and 0 where not, as in compiled code; a buffer of bool holds bool.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import Any

import numpy as np

from derivable.algebra.expr.operations import OPERATIONS
from derivable.core import splitmix64
from derivable.device.cpu import libm
from derivable.device.cpu.intrinsics import Intrinsic

LINE_BYTES = 64
# Arrays and functions by address, for kernels that Python runs and that get addresses; whoever has such fills it.
ADDRESSED: dict[int, Any] = {}


def _mask(truth: Any) -> Any:
    return -np.asarray(truth).astype(np.int64)[()]


def _flat(array: Any) -> Any:
    return array if array.ndim == 1 else array.reshape(-1)


def _like(x: Any, value: Any) -> Any:
    dtype = np.asarray(x).dtype
    return np.full(np.shape(x), value, dtype)[()] if np.shape(x) else dtype.type(value)


def _select(mask: Any, a: Any, b: Any) -> Any:
    return np.where(np.asarray(mask) != 0, a, b).astype(np.asarray(a).dtype)[()]


def _store(array: Any, position: Any, value: Any) -> None:
    array[position] = value


def _store_flat(array: Any, position: Any, value: Any) -> None:
    _flat(array)[position] = value


def _count_less(row: Any, start: int, number: int) -> int:
    return int(np.count_nonzero(np.asarray(row[start : start + 16]) < number))


def _nothing(*_: Any) -> None:
    return None


def _zero_line(dtype: Any) -> Any:
    dtype = np.dtype(dtype)
    return np.zeros(LINE_BYTES // dtype.itemsize, dtype)


def _rows(position: int, stride: int, count: int, like: Any) -> Any:
    last = max(int(count) - 1, 0)
    return position + np.minimum(np.arange(len(like)), last) * stride if np.shape(like) else position


def _load_line(array: Any, position: int, like: Any) -> Any:
    return np.asarray(_flat(array)[position : position + len(like)]).astype(np.asarray(like).dtype)


def _load_rows(array: Any, position: int, stride: int, count: int, like: Any) -> Any:
    found = np.asarray(_flat(array)[_rows(position, stride, count, like)])
    dtype = np.asarray(like).dtype
    return (_mask(found) if found.dtype.kind == "b" and dtype.kind != "b" else found.astype(dtype))[()]


def _store_rows(array: Any, position: int, stride: int, count: int, x: Any) -> None:
    values = np.asarray(x) != 0 if array.dtype == bool else x
    if np.shape(x):
        _flat(array)[position + np.arange(count) * stride] = values[:count]
    else:
        _flat(array)[position] = values


def _store_line(array: Any, position: int, x: Any) -> None:
    _flat(array)[position : position + len(x)] = x != 0 if array.dtype == bool else x


def _moved_up(x: Any, count: int, fill: Any) -> Any:
    return np.concatenate([fill[-count:] if count < len(x) else fill, x[:-count]])[: len(x)]


def _compared(function: Callable) -> Callable:
    return lambda a, b: _mask(function(a, b))


_LANES: dict[str, Callable] = {
    "load": lambda array, position: array[position],
    "item": lambda array, position: array[position],
    "store": _store,
    "prefetch": _nothing,
    "prefetch_to_write": _nothing,
    "count_less": _count_less,
    "zero_of": lambda buffer: np.zeros(buffer.shape[1:], buffer.dtype)[()],
    "like": _like,
    "select": _select,
    "multiply_add": libm.multiply_add,
    "bit_not": lambda a: np.invert(np.asarray(a))[()],
    "any_set": lambda mask: bool(np.any(np.asarray(mask) != 0)),
    "all_set": lambda mask: bool(np.all(np.asarray(mask) != 0)),
    "bits_of": lambda a: np.asarray(a, np.float64).view(np.int64)[()],
    "float_of_bits": lambda a: np.asarray(a, np.int64).view(np.float64)[()],
    "to_integer": lambda a: np.asarray(a).astype(np.int64)[()],
    "to_float": lambda a: np.asarray(a).astype(np.float64)[()],
    "shift_left": np.left_shift,
    "shift_right": np.right_shift,
    "bit_and": np.bitwise_and,
    "bit_or": np.bitwise_or,
    "bit_xor": np.bitwise_xor,
    "absolute": np.absolute,
    "round_to_even": np.rint,
    # What lanes have under the name of a scalar operation is that operation, a comparison as a mask.
    **{
        name: _compared(row.meaning) if row.rule == "comparison" else row.meaning
        for name, row in OPERATIONS.items()
        if row.rule != "logical"
    },
    # LLVM calls the C library for each lane of these.
    **{name: libm.FUNCTIONS[name] for name in ("exp", "log", "sin", "cos")},
    "power_of_library": libm.FUNCTIONS["pow"],
}
_LANE_ROWS: dict[str, Callable] = {
    "zero_line": _zero_line,
    "num_lanes": np.size,
    "load_line": _load_line,
    "store_line": _store_line,
    "load_rows": _load_rows,
    "store_rows": _store_rows,
    "moved_up": _moved_up,
    "backwards": lambda x: x[::-1],
    "last_lane": lambda x: np.full_like(x, x[-1]),
    "first_lane": lambda x: x[0],
}
_WRAP = (1 << 64) - 1


def _signed(number: int) -> int:
    return number - (1 << 64) if number >> 63 else number


def _folded(number: int, shift: int) -> int:
    return number ^ number >> shift


def _mix_word(found: int, word: int) -> int:
    return _signed(splitmix64.finalized(found ^ word))


def _width(array: Any) -> int:
    return 8 * array.itemsize


def _set_bit(array: Any, bit: int) -> None:
    array[bit // _width(array)] = int(array[bit // _width(array)]) | 1 << bit % _width(array)


_PLACES: dict[str, Callable] = {
    "load": lambda array, position: _flat(array)[position],
    "store": _store_flat,
    "choose": lambda condition, a, b: a if condition else b,
    "hidden": lambda number: number,
    "load_bit": lambda array, bit: bool(int(array[bit // _width(array)]) >> bit % _width(array) & 1),
    "set_bit": _set_bit,
    "hash_word": lambda word: _signed(_folded(word * splitmix64.STEP & _WRAP, 32)),
    "mix_word": _mix_word,
    "trailing_zeros": lambda word: (int(word) & -int(word)).bit_length() - 1 if word else 64,
    "slot_in": lambda found, size: found & (size - 1),
    "tag_of": lambda found: (found & _WRAP) >> 32,
    "pointer_at": lambda address, dtype: ADDRESSED[address],
    "array_at": lambda address, count, dtype: ADDRESSED[address][:count],
    "call_at": lambda address, first, second: ADDRESSED[address](ADDRESSED[first], ADDRESSED[second]),
}
_TABLES = {
    "lanes": _LANES,
    "lane_rows": _LANE_ROWS,
    "place_code": _PLACES,
    "pointers": {"pointer": lambda array: array, "scratch": lambda dtype, count: np.empty(count, np.dtype(dtype))},
}


@cache
def _compiled_meanings() -> dict[Any, Callable]:
    """Intrinsics of Numba -> their meaning; called only where there are some, so Numba is installed."""
    found = {}
    for module, table in _TABLES.items():
        members = vars(import_module(f"derivable.device.cpu.{module}"))
        found.update((members[name], function) for name, function in table.items() if name in members)
    return found


def meaning_of(value: Any) -> Callable | None:
    """What an intrinsic means; None for anything else."""
    if isinstance(value, Intrinsic):
        return _TABLES.get(value.module.rpartition(".")[2], {}).get(value.name)
    if type(value).__name__ == "_Intrinsic":
        return _compiled_meanings().get(value)
    return None
