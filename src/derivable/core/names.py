"""Fresh names. There is no global counter: the same input gives the same names, in any process."""

from __future__ import annotations

from collections.abc import Iterable


class FreshNames:
    """Names that were not used yet: `x`, then `x_1`, `x_2`, ...

    >>> names = FreshNames(["x"])
    >>> names("x"), names("x"), names("y")
    ('x_1', 'x_2', 'y')
    """

    def __init__(self, used: Iterable[str] = ()):
        self._used = set(used)
        self._next: dict[str, int] = {}

    def __call__(self, base: str) -> str:
        """A name that starts with `base` and was neither used nor given out."""
        name, number = base, self._next.get(base, 1)
        while name in self._used:
            name = f"{base}_{number}"
            number += 1
        self._next[base] = number
        self._used.add(name)
        return name
