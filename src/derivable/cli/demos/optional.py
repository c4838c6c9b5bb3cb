"""Importing the packages of the `demo` extra, or saying which extra is missing."""

from __future__ import annotations

import importlib
from types import ModuleType

from derivable.core.diagnostics import MissingDependencyError


def demo_import(module: str, package: str) -> ModuleType:
    """The module, or MissingDependencyError that names `package` and how to install it."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is not None and not f"{module}.".startswith(f"{error.name}."):
            raise  # some other package is missing inside it: not ours to explain
        raise MissingDependencyError(
            f"the demos need {package}, which is not installed", hint="pip install 'derivable[demo]'"
        ) from None
