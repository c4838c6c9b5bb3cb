"""Scalars of one-dimensional arrays by position, for generated kernels.

A position is not negative, so nothing checks for counting from the end: such a check costs an instruction for each
access and keeps loops from becoming vector code.
"""

from __future__ import annotations

from derivable.device.cpu.intrinsics import Intrinsic

_CODE = "derivable.device.cpu.place_code"

load = Intrinsic(_CODE, "load")
store = Intrinsic(_CODE, "store")
load_bit = Intrinsic(_CODE, "load_bit")
set_bit = Intrinsic(_CODE, "set_bit")
hash_word = Intrinsic(_CODE, "hash_word")
mix_word = Intrinsic(_CODE, "mix_word")
slot_in = Intrinsic(_CODE, "slot_in")
tag_of = Intrinsic(_CODE, "tag_of")
hidden = Intrinsic(_CODE, "hidden")
choose = Intrinsic(_CODE, "choose")
magnitude_bits = Intrinsic(_CODE, "magnitude_bits")
of_bits = Intrinsic(_CODE, "of_bits")
