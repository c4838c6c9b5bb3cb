"""Entries in the order of their indices."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from derivable.device.cpu.memory import empty
from derivable.parallel.order import order_of


def distinct(keys: Sequence[np.ndarray]) -> tuple[list[np.ndarray], np.ndarray | None]:
    """(keys in lexicographic order, each combination once; [entry] which of them it has, None if each has its own and
    they are in order)."""
    order = order_of(keys)
    ordered = [key[order] for key in keys]
    is_first = firsts(ordered)
    if isinstance(order, slice) and is_first.all():
        return list(keys), None
    groups = empty(len(is_first), np.int64)
    groups[order] = np.cumsum(is_first) - 1
    return [key[is_first] for key in ordered], groups


def firsts(keys: Sequence[np.ndarray]) -> np.ndarray:
    """[entry] whether a combination of keys, which are in order, is another one than that before it."""
    is_first = np.ones(len(keys[0]), bool)
    is_first[1:] = np.logical_or.reduce([key[1:] != key[:-1] for key in keys], axis=0)
    return is_first
