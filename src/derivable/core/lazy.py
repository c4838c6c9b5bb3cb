"""Imports that happen late: the names of a package when they are first used (PEP 562), and optional packages.

Printed form, in a package's `__init__`:

    __getattr__, __dir__ = lazy(__name__, {"Circuit": "derivable.circuit.graph.circuit"})
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import ModuleType
from typing import Any

from derivable.core.collection import gc_paused
from derivable.core.diagnostics import MissingDependencyError
from derivable.core.interrupts import sigint_deferred

# Package -> public name -> the module of a higher floor that defines it. The top of the library fills this in: users
# look for folds where operators are, and no floor may name what stands on it.
ABOVE: dict[str, Mapping[str, str]] = {}

# What to install for a package that users need only for a part of the library. On Linux, the build of torch that pip
# chooses brings gigabytes of CUDA.
INSTALL = {
    "torch": "pip install 'derivable[torch]'; on Linux without a GPU, first"
    " pip install torch --index-url https://download.pytorch.org/whl/cpu",
    "jax": "pip install 'derivable[jax]'",
}


@contextmanager
def whole_import() -> Iterator[None]:
    """Inside, modules are imported as a whole: a Ctrl-C comes after them.

    A package whose import was ended halfway stays half imported, and a second import does not mend it.
    """
    with sigint_deferred(), gc_paused():
        yield


def lazy(
    package: str, names: Mapping[str, str], modules: Sequence[str] = ()
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """The `__getattr__` and `__dir__` of a package.

    names    public name -> the module that defines it
    modules  submodules that are public as attributes of the package; "graph.builder" is its attribute `builder`
    """
    paths = {module.rpartition(".")[2]: f"{package}.{module}" for module in modules}

    def get(name: str) -> Any:
        above = ABOVE.get(package, {})
        if name in names or name in above:
            value = getattr(_imported(names.get(name) or above[name]), name)
            setattr(sys.modules[package], name, value)
            return value
        if name in paths:
            return _imported(paths[name])
        elsewhere = "" if name.startswith("_") else _where(package, name, paths)
        raise AttributeError(f"module {package!r} has no attribute {name!r}{elsewhere}")

    def directory() -> list[str]:
        # Completion shows what users may name: nothing that the module needs for itself.
        loaded = vars(sys.modules[package])
        special = (name for name in loaded if name.startswith("__"))
        return sorted({*special, *loaded.get("__all__", (*names, *paths)), *ABOVE.get(package, {})})

    return get, directory


def _imported(module: str) -> ModuleType:
    """A module of ours; MissingDependencyError where it needs a package of an extra that is not installed."""
    try:
        with whole_import():
            return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name not in INSTALL:
            raise
        raise MissingDependencyError(
            f"{module} needs {error.name}, which is not installed", hint=INSTALL[error.name]
        ) from None


def hidden_names(*internal: str) -> Any:
    """The `__dir__` of a class whose completion leaves out attributes that only the library itself uses."""

    def directory(self: Any) -> list[str]:
        return sorted(set(object.__dir__(self)).difference(internal))

    return directory


def _where(package: str, name: str, paths: Mapping[str, str]) -> str:
    """The end of a message that says which submodules have a public name."""
    having = [m for m, path in paths.items() if name in getattr(_imported(path), "__all__", ())]
    return "".join(f"; did you mean {package}.{module}.{name}?" for module in having[:1])


class _Later:
    """A module that is imported when one of its names is used."""

    __slots__ = ("__dict__", "_module")

    def __init__(self, module: str):
        self._module = module

    def __getattr__(self, name: str) -> Any:
        with whole_import():
            module = importlib.import_module(self._module)
        # To ask for a module takes a microsecond: from now on its names are found without.
        self.__dict__ = module.__dict__
        return getattr(module, name)


def later(module: str) -> Any:
    """The module, imported when it is used first: small runs do without what makes kernels.

    For a module that takes 5 ms or more (`python -X importtime`) and that many functions of a file use. Where one or
    two do, they import it themselves, and faster ones are imported as usual.
    """
    return _Later(module)


def optional_module(module: str, package: str, extra: str = "") -> ModuleType:
    """The module of a package that only `extra` installs, or no extra; MissingDependencyError with the pip command
    without it.
    """
    try:
        with whole_import():
            return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is not None and not f"{module}.".startswith(f"{error.name}."):
            raise  # The package is there, but a package that it needs is missing.
        raise MissingDependencyError(
            f"this needs {package}, which is not installed",
            hint=INSTALL.get(package) or (f"pip install 'derivable[{extra}]'" if extra else f"pip install {package}"),
        ) from None
