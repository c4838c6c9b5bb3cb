"""Scalars of one-dimensional arrays by position, for generated kernels.

A position is not negative, so nothing checks for counting from the end: such a check costs an instruction for each
access and keeps loops from becoming vector code.
"""

from __future__ import annotations

from typing import Any

from derivable.device.cpu.intrinsics import Intrinsic

_CODE, _POINTERS = "derivable.device.cpu.place_code", "derivable.device.cpu.pointers"

load: Any = Intrinsic(_CODE, "load")
store: Any = Intrinsic(_CODE, "store")
hash_word: Any = Intrinsic(_CODE, "hash_word")
mix_word: Any = Intrinsic(_CODE, "mix_word")
trailing_zeros: Any = Intrinsic(_CODE, "trailing_zeros")
slot_in: Any = Intrinsic(_CODE, "slot_in")
tag_of: Any = Intrinsic(_CODE, "tag_of")
prefetch: Any = Intrinsic(_CODE, "prefetch")
prefetch_to_write: Any = Intrinsic(_CODE, "prefetch_to_write")
item: Any = Intrinsic(_CODE, "item")
count_less: Any = Intrinsic(_CODE, "count_less")
pointer_at: Any = Intrinsic(_CODE, "pointer_at")
array_at: Any = Intrinsic(_CODE, "array_at")
call_at: Any = Intrinsic(_CODE, "call_at")
magnitude_bits: Any = Intrinsic(_CODE, "magnitude_bits")
of_bits: Any = Intrinsic(_CODE, "of_bits")
eight_bytes: Any = Intrinsic(_POINTERS, "eight_bytes")
fence: Any = Intrinsic(_POINTERS, "fence")
pointer: Any = Intrinsic(_POINTERS, "pointer")
scratch: Any = Intrinsic(_POINTERS, "scratch")
stream: Any = Intrinsic(_POINTERS, "stream")
