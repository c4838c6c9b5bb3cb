"""Numbers as files write them."""

from __future__ import annotations


def number_of(word: str) -> float:
    """The number that a word of a file is.

    Raises ValueError for what is none. Python also reads `1_0` and the digits of other scripts, which no format has.

    >>> number_of("2.5e-3")
    0.0025
    """
    if "_" in word or not word.isascii():
        raise ValueError(f"could not convert string to float: {word!r}")
    return float(word)


def vanishes(word: str, value: float) -> bool:
    """Whether a number that is written with other digits than zeros is too small for 64 bits, and so was read as zero.

    >>> vanishes("1e-400", float("1e-400")), vanishes("0.0", 0.0)
    (True, False)
    """
    return value == 0 and any(digit in word.lower().partition("e")[0] for digit in "123456789")
