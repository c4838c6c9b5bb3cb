"""Schedules: how a fold is laid onto a machine, as data that a lowering reads.

What a kernel computes is the operator's business; a schedule says only how: with the same operator every schedule
gives the same numbers, up to the order in which a fold associates.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Schedule:
    """Printed form: `lanes 8 in float64, guarded; 4 rows a step; prefetch 40 ahead`.

    lanes     rows of a line; 1 goes row by row
    widen     registers hold float64 whatever the arrays hold; with 16 lanes lines hold float32, and only what goes from
              line to line is float64
    guard     check each line, and go through it row by row where regrouping may leave the range of normal numbers
    unroll    rows of a step where there are no lanes
    prefetch  how many rows ahead memory beyond a near cache is prefetched; 0 for never
    """

    lanes: int = 1
    widen: bool = False
    guard: bool = False
    unroll: int = 1
    prefetch: int = 0

    def __str__(self) -> str:
        parts = ["row by row" if self.lanes == 1 else f"lanes {self.lanes}"]
        if self.lanes > 1 and self.widen:
            parts[0] += " in float64" if self.lanes <= 8 else ", carried in float64"
        if self.guard:
            parts[0] += ", guarded"
        if self.unroll > 1:
            parts.append(f"{self.unroll} rows a step")
        if self.prefetch:
            parts.append(f"prefetch {self.prefetch} ahead")
        return "; ".join(parts)
