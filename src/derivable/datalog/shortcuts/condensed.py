"""Rows of bits that include one another: the strongly connected components of inclusions, and how they are followed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from derivable.circuit.kernels.and_or import components, grouped
from derivable.datalog.policy.costs import policy
from derivable.device.cpu.memory import empty
from derivable.device.cpu.threads import get_num_threads, run_chunks

# Bits are a whole number of units of the sets.
UNIT_BITS = 256


def compiled(name: str) -> Callable:
    """A kernel of `bit_kernels`."""
    from derivable.datalog.shortcuts import bit_kernels

    return policy().kernels.function_of(getattr(bit_kernels, name))


@dataclass
class Condensed:
    """The strongly connected components of a system's inclusions, in the order to follow them in; see `condense`.

    first_rows  relation -> the number of its row 0
    """

    first_rows: dict[str, int]
    rows: int
    count: int
    order: np.ndarray
    bounds: np.ndarray
    links: np.ndarray
    ends: np.ndarray

    @staticmethod
    def of(first_rows: dict[str, int], offsets: np.ndarray, sources: np.ndarray) -> Condensed:
        """Of rows x that each include rows sources[offsets[x]] .. sources[offsets[x + 1]]."""
        component, count = components(offsets, sources)
        bounds, order = grouped(component, count)
        links, ends, linked = empty(len(sources), np.int64), empty(count + 1, np.int64), np.full(count, -1)
        arrays = (offsets, sources, component, bounds, links, ends, linked, order)
        number = compiled("link_kernel")(count, *arrays)
        return Condensed(first_rows, len(component), count, order, bounds, links[:number], ends)


def words_for(bits: int) -> int:
    """Words of 64 bits of a row of so many bits: a whole number of units of the sets."""
    return -(-bits // UNIT_BITS) * (UNIT_BITS // 64)


def units_of(width: int) -> int:
    return width * 64 // UNIT_BITS


def include(condensed: Condensed, words: np.ndarray, width: int, look: Callable[[], Any]) -> None:
    """Follow all inclusions; each thread has some words of all rows."""
    each = max(1, condensed.rows + len(condensed.links))
    # Threads do not inherit the policy.
    stripe = max(1, policy().cache_rows // 512)
    step = max(stripe * get_num_threads(), 64 * policy().look_rows // each // stripe * stripe)
    kernel = compiled("include_kernel")

    def part(start: int, stop: int) -> None:
        for begin in range(low + start * stripe, min(low + stop * stripe, high), stripe):
            end = min(begin + stripe, high)
            arrays = (condensed.order, words, condensed.bounds, condensed.links, condensed.ends)
            kernel(begin, end, condensed.count, width, *arrays)

    for low in range(0, width, step):
        high = min(low + step, width)
        run_chunks(part, -(-(high - low) // stripe), 1)
        look()
