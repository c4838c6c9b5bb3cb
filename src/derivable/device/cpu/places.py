"""What kernels call that no text of Python says: scalars of one-dimensional arrays by position, pointers, hashes.

A position is not negative, so nothing checks for counting from the end: such a check costs an instruction for each
access and keeps loops from becoming vector code. Their code is in `building`, which is imported when they are compiled.
"""

from __future__ import annotations

from functools import cached_property
from importlib import import_module
from typing import Any


class _Intrinsic:
    """The intrinsic of Numba with a name in a module of `building`; kernels call it as they call that itself."""

    def __init__(self, module: str, name: str):
        self.module, self.name = f"derivable.device.cpu.building.{module}", name

    @cached_property
    def _numba_type_(self) -> Any:
        from derivable.device.cpu.building.numba_parts import type_of_intrinsic

        return type_of_intrinsic(getattr(import_module(self.module), self.name))


load: Any = _Intrinsic("place_code", "load")
store: Any = _Intrinsic("place_code", "store")
hash_word: Any = _Intrinsic("place_code", "hash_word")
mix_word: Any = _Intrinsic("place_code", "mix_word")
trailing_zeros: Any = _Intrinsic("place_code", "trailing_zeros")
slot_in: Any = _Intrinsic("place_code", "slot_in")
tag_of: Any = _Intrinsic("place_code", "tag_of")
prefetch: Any = _Intrinsic("place_code", "prefetch")
prefetch_to_write: Any = _Intrinsic("place_code", "prefetch_to_write")
item: Any = _Intrinsic("place_code", "item")
count_less: Any = _Intrinsic("place_code", "count_less")
pointer_at: Any = _Intrinsic("place_code", "pointer_at")
array_at: Any = _Intrinsic("place_code", "array_at")
call_at: Any = _Intrinsic("place_code", "call_at")
magnitude_bits: Any = _Intrinsic("place_code", "magnitude_bits")
of_bits: Any = _Intrinsic("place_code", "of_bits")
eight_bytes: Any = _Intrinsic("pointers", "eight_bytes")
fence: Any = _Intrinsic("pointers", "fence")
pointer: Any = _Intrinsic("pointers", "pointer")
scratch: Any = _Intrinsic("pointers", "scratch")
stream: Any = _Intrinsic("pointers", "stream")
