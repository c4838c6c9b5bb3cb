"""The set of an untagged binary relation over small integers; see `device/cpu/pair_set`."""

from __future__ import annotations

import numpy as np

from derivable.device.cpu import pair_set as kernels
from derivable.device.cpu.memory import zeros

MAX_FIRST = 1 << 26
MAX_SECOND = (1 << 31) - 64


class PairSet:
    """One set of second values per first value. A table owns the log; this owns the sets."""

    def __init__(self):
        self.base = zeros(1024, np.int64)
        self.slots = zeros(1024, np.int32)
        self.count = zeros(1024, np.int32)
        self.arena = zeros(1 << 14, np.uint32)
        self.state = zeros(40, np.int64)
        self.domain = 0

    def fits(self, columns: list[np.ndarray]) -> bool:
        """Whether the values of two word columns are in reach of this representation."""
        xs, ys = columns
        return bool(xs.min() >= 0 and ys.min() >= 0 and xs.max() < MAX_FIRST and ys.max() < MAX_SECOND)

    def widen(self, top_first: int, top_second: int, log: np.ndarray, size: int) -> None:
        """Make room for values up to the given ones; a larger domain of bitmaps means to build the sets again."""
        if top_first >= len(self.base):
            length = 1 << int(top_first).bit_length()
            for name in ("base", "slots", "count"):
                old = getattr(self, name)
                grown = zeros(length, old.dtype)
                grown[: len(old)] = old
                setattr(self, name, grown)
        if top_second >= self.domain:
            had = self.domain > 0
            # The first domain is as given, so that bitmaps are small; later ones double.
            self.domain = -(-(int(top_second) + 1) // 64) * 64 if not had else 1 << int(top_second).bit_length()
            self.state[:] = 0
            self.state[1] = self.domain // 32
            if had:
                self.slots[:] = 0
                self.count[:] = 0
                self.arena[:] = 0
                xs, ys = np.ascontiguousarray(log[:size, 0]), np.ascontiguousarray(log[:size, 1])
                i = 0
                while i < size:
                    _, i, _ = kernels.insert_pairs(xs, ys, i, False, log, -1, *self.arrays)
                    if i < size:
                        self.grow_arena()

    def grow_arena(self) -> None:
        """Double the arena; the kernel asks again if that is not enough."""
        grown = zeros(2 * len(self.arena), np.uint32)
        used = int(self.state[0])
        grown[:used] = self.arena[:used]
        self.arena = grown

    @property
    def arrays(self) -> tuple[np.ndarray, ...]:
        return self.base, self.slots, self.count, self.arena, self.state
