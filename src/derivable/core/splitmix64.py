"""SplitMix64: numbers of 64 bits that look random, for hashes and for streams of draws.

The n-th number of the stream of a seed is `finalized(seed + n * STEP)`, modulo 2^64. Kernels write the same operations
with these constants.

Source: Steele, Lea and Flood, Fast splittable pseudorandom number generators (2014), with Vigna's factors.
"""

from __future__ import annotations

from typing import Any

# 2^64 over the golden ratio, which Fibonacci hashing multiplies by.
STEP = 0x9E3779B97F4A7C15
# (shift, factor): the number is folded onto itself and multiplied, twice, and folded by LAST.
ROUNDS = (30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)
LAST = 31
MASK = (1 << 64) - 1


def finalized(number: int) -> int:
    """The number with its bits dispersed: one to one, below 2^64 from any integer."""
    number &= MASK
    for shift, factor in ROUNDS:
        number = (number ^ number >> shift) * factor & MASK
    return number ^ number >> LAST


def multiplied(words: Any) -> Any:
    """An array of uint64 after both rounds, before it is folded the last time: upper bits are dispersed already."""
    uint64 = words.dtype.type
    for shift, factor in ROUNDS:
        words = (words ^ words >> uint64(shift)) * uint64(factor)
    return words


def finalized_words(words: Any) -> Any:
    """`finalized` of each of an array of uint64."""
    words = multiplied(words)
    return words ^ words >> words.dtype.type(LAST)
