"""Functions of compiled code by name: Numba is imported, and their code made, when something is compiled."""

from __future__ import annotations

from functools import cached_property
from importlib import import_module
from typing import Any


class Intrinsic:
    """The function `name` of a module of intrinsics; kernels call it as they call that itself."""

    def __init__(self, module: str, name: str):
        self.module, self.name = module, name

    @cached_property
    def code(self) -> Any:
        """Numba's own object."""
        return getattr(import_module(self.module), self.name)

    @cached_property
    def _numba_type_(self) -> Any:
        if hasattr(self.code, "_numba_type_"):
            return self.code._numba_type_
        from derivable.device.cpu.compiling import type_of_intrinsic

        return type_of_intrinsic(self.code)

    def __reduce__(self) -> Any:
        return Intrinsic, (self.module, self.name)
