"""Numba, and the parts of it that its documentation does not promise: all that the modules here use of it.

`tests/device/test_numba_parts.py` looks for each part by name.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
from numba.core import cgutils
from numba.core.registry import CPUDispatcher
from numba.core.types import unliteral
from numba.core.typing.templates import builtin_registry
from numba.np.arrayobj import populate_array

from derivable.device.cpu.object_code import Kind

__all__ = ["cgutils", "njit", "populate_array"]


class KernelDispatcher(CPUDispatcher):
    """A kernel that Numba compiles for types of its arguments."""

    def get_call_template(self, args: Any, kws: Any) -> Any:
        """What compiled code calls for parameters of these types: one function for all constants, not one for each."""
        return super().get_call_template(tuple(map(unliteral, args)), {name: unliteral(t) for name, t in kws.items()})


def njit(*, is_inner: bool = False, **options: Any) -> Any:
    """Numba's decorator, without the forms of a function that C or Python would call, whose compiling takes a fifth.

    is_inner  whether compiled functions alone call it, and have its arrays as long as it runs: it makes none, and
              counts no references to them, which takes two atomic instructions for each array of a call
    """
    settings = {
        "nopython": True,
        "boundscheck": None,
        "nogil": True,
        "no_cfunc_wrapper": True,
        "no_cpython_wrapper": True,
        "error_model": "numpy",
        **({"_nrt": False} if is_inner else {}),
        **options,
    }
    return lambda function: KernelDispatcher(function, targetoptions=settings)


def type_of(kind: Kind) -> Any:
    """Numba's type of arguments, see `object_code.Kind`."""
    if isinstance(kind, tuple):
        return numba.types.Tuple([type_of(part) for part in kind])
    scalar, _, axes = kind.partition("[")
    dtype = numba.from_dtype(np.dtype(scalar))
    return numba.types.Array(dtype, axes.count(",") + 1, "C") if axes else dtype


def type_of_intrinsic(intrinsic: Any) -> Any:
    """Numba's type of an intrinsic, from where Numba enters it: its context learns of it between two compilations."""
    return next(kind for value, kind in builtin_registry.globals if value is intrinsic)


def empty_module(library: Any, name: str) -> Any:
    """A module of LLVM for the target that a library of compiled code is for."""
    return library.codegen._create_empty_module(name)


def whole_module(library: Any) -> Any:
    """A copy of the module of a library with everything that it links."""
    return library._get_module_for_linking().clone()


def target_machine(library: Any) -> Any:
    """What makes machine code for a library."""
    return library.codegen._tm
