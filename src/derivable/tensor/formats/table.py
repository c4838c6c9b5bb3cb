"""Hash tables of numbers, as kernels probe them."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from derivable.algebra.expr.functions import apply, lift
from derivable.device.cpu.llvm_code import compile_kernel
from derivable.kernel.build import Builder


def table_of(keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(table [place] with -1 in empty places, places [key]) for keys that are at least 0, each once.

    At most half of the table is full; its size is a power of two.
    """
    size = 1 << max(1, 2 * len(keys) - 1).bit_length()
    table, places = np.full(size, -1, np.int64), np.empty(len(keys), np.int64)
    _inserting()(len(keys), size, np.ascontiguousarray(keys, np.int64), table, places)
    return table, places


def misplaced(table: np.ndarray) -> int:
    """The first place whose key is not found by probing; the length of the table if there is none.

    The length is a power of two, and some place is empty.
    """
    return int(_looking()(len(table), table))


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


@cache
def _looking() -> Any:
    build = Builder("hash_table_check")
    size, table = build.scalar("size"), build.array("table", "int64")
    with build.loop("place", 0, size) as place:
        key = build.load(table, place, "key")
        with build.when(lift(apply("less_equal", 0, key))):
            slot, _ = build.hash([key], size)
            held = build.load(table, slot, "held")
            with build.while_(lift(apply("logical_and", held >= 0, apply("not_equal", slot, place)))):
                following = build.let("following", slot + 1)
                build.set(slot, apply("where", following < size, following, 0))
                build.load_into(held, table, slot)
            with build.when(lift(apply("not_equal", slot, place))):
                build.return_(place)
    build.return_(size)
    return compile_kernel(build.kernel())
