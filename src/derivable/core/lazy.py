"""Package namespaces whose names are imported when they are first used (PEP 562).

Printed form, in a package's `__init__`:

    __getattr__, __dir__ = lazy(__name__, {"Circuit": "derivable.circuit.circuit"}, ("read",))
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any


def lazy(
    package: str, names: Mapping[str, str], modules: Sequence[str] = ()
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """The `__getattr__` and `__dir__` of a package.

    names    public name -> the module that defines it
    modules  submodules that are public as attributes of the package
    """

    def get(name: str) -> Any:
        if name in names:
            value = getattr(importlib.import_module(names[name]), name)
            setattr(sys.modules[package], name, value)
            return value
        if name in modules:
            return importlib.import_module(f"{package}.{name}")
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    def directory() -> list[str]:
        return sorted({*vars(sys.modules[package]), *names, *modules})

    return get, directory
