"""Hash tables of numbers, as kernels probe them."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from derivable.algebra.expr.functions import apply, lift
from derivable.kernel.build import Builder
from derivable.kernel.emit_numba import compile_kernel


def table_of(keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(table [place] with -1 in empty places, places [key]) for keys that are at least 0, each once.

    At most half of the table is full; its size is a power of two.
    """
    size = 1 << max(1, 2 * len(keys) - 1).bit_length()
    table, places = np.full(size, -1, np.int64), np.empty(len(keys), np.int64)
    _inserting()(len(keys), size, np.ascontiguousarray(keys, np.int64), table, places)
    return table, places


@cache
def _inserting() -> Any:
    build = Builder("hash_table")
    count, size = build.scalar("count"), build.scalar("size")
    keys, table, places = (build.array(name, "int64") for name in ("keys", "table", "places"))
    with build.loop("i", 0, count) as i:
        key = build.load(keys, i, "key")
        slot, _ = build.hash([key], size)
        held = build.load(table, slot, "held")
        with build.while_(held >= 0):
            following = build.let("following", slot + 1)
            build.set(slot, apply("where", following < size, following, 0))
            build.load_into(held, table, slot)
        build.store(table, slot, lift(key))
        build.store(places, i, lift(slot))
    return compile_kernel(build.kernel())
