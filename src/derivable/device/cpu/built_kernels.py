"""Kernels that are written by hand: text of Python that is compiled when the package is built.

`kernel` is their decorator. `building.build_kernels` has Numba compile them for the types that the decorator lists,
into one file for a kind of processor, from where they are linked when they are called first, without Numba. In a clone
whose texts have changed since, that call has another process compile what has changed.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from functools import cached_property
from importlib import import_module
from types import FunctionType
from typing import TYPE_CHECKING, Any

import numpy as np

from derivable.core.diagnostics import DerivableError
from derivable.core.lazy import later
from derivable.device.cpu import compile_time

if TYPE_CHECKING:
    from derivable.device.cpu import object_code
else:
    # A small run calls no kernel.
    object_code = later("derivable.device.cpu.object_code")

COMMAND = (sys.executable, "-m", "derivable.device.cpu.building.build_kernels")


class Kernel:
    """A function of arrays and numbers; kernels with types are called by Python, those without by kernels alone.

    signatures  what it is compiled for, see `object_code.parsed`
    options     Numba's, such as inline="always"
    """

    def __init__(self, function: FunctionType, *signatures: str, **options: Any):
        self.py_func, self.signatures, self.targetoptions = function, signatures, options
        self.__name__, self.__module__, self.__doc__ = function.__name__, function.__module__, function.__doc__
        # What took the last arguments.
        self._run: Callable = _refuse

    def __call__(self, *arguments: Any) -> Any:
        result = self._run(*arguments)
        return self._otherwise(arguments) if result is NotImplemented else result

    def _otherwise(self, arguments: tuple) -> Any:
        """Call it for arguments of other types than the last ones."""
        for run in self._forms:
            result = run(*arguments)
            if result is not NotImplemented:
                self._run = run
                return result
        raise TypeError(
            f"the kernel {self.__name__} takes aligned arrays in C order, those that it writes to writeable:"
            f" {' or '.join(self.signatures)}; not {' '.join(map(_shown, arguments))}"
        )

    @cached_property
    def _forms(self) -> list[Callable]:
        """For each signature a built-in function, which gives NotImplemented for arguments of other types."""
        kinds = [object_code.parsed(signature) for signature in self.signatures]
        if not all(object_code.has_code(self.py_func, one) for one in kinds):
            _build(self.__name__)
        return [object_code.linked(self.py_func, one) for one in kinds]

    # What Numba sees of it, in the process that compiles it

    @cached_property
    def dispatcher(self) -> Any:
        """Numba's function."""
        from derivable.device.cpu.building.numba_parts import njit

        return njit(is_inner=not self.signatures, **self.targetoptions)(self.py_func)

    @property
    def _numba_type_(self) -> Any:
        return self.dispatcher._numba_type_

    def __reduce__(self) -> Any:
        return _find, (self.__module__, self.__name__)


def _refuse(*arguments: Any) -> Any:
    return NotImplemented


def _shown(argument: Any) -> str:
    if isinstance(argument, tuple):
        return f"({' '.join(map(_shown, argument))})"
    if not isinstance(argument, np.ndarray):
        return type(argument).__name__
    return f"{argument.dtype.name}[{',' * (argument.ndim - 1)}]"


def _find(module: str, name: str) -> Any:
    return getattr(import_module(module), name)


def _build(name: str) -> None:
    """Have kernels compiled that are not, or whose text has changed since. Raises DerivableError if they cannot be."""
    import subprocess

    print("derivable: compiling kernels, once for their text: a minute or two", file=sys.stderr, flush=True)
    paths = os.pathsep.join([str(object_code.SOURCES), os.environ.get("PYTHONPATH", "")])
    with compile_time.counted():
        done = subprocess.run(
            COMMAND, env={**os.environ, "PYTHONPATH": paths}, capture_output=True, text=True, check=False
        )
    if done.returncode:
        raise DerivableError(
            f"the kernel {name} is not compiled for this processor, or not from this text, and compiling it failed:"
            f" {done.stderr.strip().splitlines()[-1]}",
            hint="reinstall derivable; in a clone, `pip install numba` and run"
            f" `python {' '.join(COMMAND[1:])}` to see the whole message",
        )
    object_code.package.cache_clear()


def kernel(*signatures: Any, **options: Any) -> Any:
    """Decorator: a kernel for these types and with these options, see `Kernel`."""
    if signatures and callable(signatures[0]):
        return Kernel(signatures[0])
    return lambda function: Kernel(function, *signatures, **options)
