"""Fresh names. There is no global counter: the same input gives the same names, in any process."""

from __future__ import annotations

import keyword
import re
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

    def reserve(self, *names: str) -> None:
        """Count `names` as used."""
        self._used.update(names)

    def __contains__(self, name: str) -> bool:
        return name in self._used


def identifier(text: str, default: str = "x") -> str:
    """`text` as a Python identifier: other characters become `_`, keywords and digits in front get one more."""
    name = re.sub(r"\W", "_", text) or default
    if name[0].isdigit() or keyword.iskeyword(name):
        name = f"_{name}" if name[0].isdigit() else f"{name}_"
    return name
