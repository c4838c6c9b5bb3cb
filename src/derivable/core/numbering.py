"""Numbers for objects, for interfaces that take numbers only."""

from __future__ import annotations

import itertools
import weakref
from typing import Any


class Numbering:
    """Numbers of objects in this process; an object that nothing else refers to is forgotten.

    >>> class Thing: ...
    >>> things, thing = Numbering(), Thing()
    >>> things[things.register(thing)] is thing
    True
    """

    def __init__(self):
        self._next = itertools.count(1)
        self._objects: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()

    def register(self, thing: Any) -> int:
        """A new number for `thing`."""
        number = next(self._next)
        self._objects[number] = thing
        return number

    def __getitem__(self, number: int) -> Any:
        return self._objects[number]
