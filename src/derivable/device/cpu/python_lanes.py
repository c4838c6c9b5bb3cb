"""What the intrinsics of kernels mean, in Python, on scalars of NumPy or Python."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import Any

import numpy as np

from derivable.core import splitmix64
from derivable.device.cpu.intrinsics import Intrinsic

# Arrays and functions by address, for kernels that Python runs and that get addresses; whoever has such fills it.
ADDRESSED: dict[int, Any] = {}


def _flat(array: Any) -> Any:
    return array if array.ndim == 1 else array.reshape(-1)


def _store_flat(array: Any, position: Any, value: Any) -> None:
    _flat(array)[position] = value


def _count_less(row: Any, start: int, number: int) -> int:
    return int(np.count_nonzero(np.asarray(row[start : start + 16]) < number))


def _nothing(*_: Any) -> None:
    return None


_WRAP = (1 << 64) - 1


def _signed(number: int) -> int:
    return number - (1 << 64) if number >> 63 else number


def _folded(number: int, shift: int) -> int:
    return number ^ number >> shift


def _mix_word(found: int, word: int) -> int:
    return _signed(splitmix64.finalized(found ^ word))


_PLACES: dict[str, Callable] = {
    "item": lambda array, position: array[position],
    "prefetch": _nothing,
    "prefetch_to_write": _nothing,
    "count_less": _count_less,
    "load": lambda array, position: _flat(array)[position],
    "store": _store_flat,
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
