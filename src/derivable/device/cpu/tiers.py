"""Kernels that are written by hand, in two tiers: compiled, or as Python runs their text.

`kernel` makes a function that is linked as it was compiled when the package was built, for the types that its decorator
lists. To import what links takes as long as some small runs, so that comes when Python has run kernels for `LINKING`
seconds, or where it is imported already: a program that asks one small question goes without. Where the package was not
built, or a text has changed since, Numba compiles it once on a machine, when it is called with arrays of more than
`SMALL` entries, or when Python has run it for `PATIENCE` seconds.

Python runs the text in a copy of its module's names: kernels that it calls are interpreted as well, intrinsics are
their meaning in Python, and arrays give integers of Python, so that nothing is narrower than in the compiled tier.
Floats are those of NumPy, where no division fails, and functions are those of the C library (`libm`), which compiled
code calls: both tiers give the same bits, since the moment of the change depends on the clock.
Numbers of 64 bits without sign wrap around in both, hence tables of hashes are the same.

DERIVABLE_TIER=compiled never interprets, DERIVABLE_TIER=interpreted always does (the tests of this module compare).
"""

from __future__ import annotations

import math
import os
import sys
import time
from collections.abc import Callable, Sequence
from functools import cached_property
from importlib import import_module
from importlib.util import find_spec
from types import FunctionType
from typing import Any

import numpy as np

from derivable.core.diagnostics import MissingDependencyError
from derivable.core.lazy import whole_import
from derivable.device.cpu import libm, object_code
from derivable.device.cpu.python_lanes import meaning_of

# Entries of the largest array, and seconds of a kernel in a process, up to which Python runs what is not compiled.
SMALL = 4096
PATIENCE = 0.25
# Seconds that importing what links takes.
LINKING = 0.03
# Floats from here on, and NaN, are no int64.
_BEYOND = 2.0**63
_NARROW: Any = (np.signedinteger, np.bool_, np.uint8, np.uint16, np.uint32)


class _Array(np.ndarray):
    """An array whose entries are numbers of Python; uint64 and floats stay as they are, and wrap around or round."""

    def __getitem__(self, index: Any) -> Any:
        found = np.ndarray.__getitem__(self, index)
        return found.item() if isinstance(found, _NARROW) else found

    def __setitem__(self, index: Any, value: Any) -> None:
        try:
            np.ndarray.__setitem__(self, index, value)
        except OverflowError:
            # Compiled code wraps around.
            np.ndarray.__setitem__(self, index, _wrapped(int(value), 8 * self.itemsize, self.dtype.kind == "i"))

    def __iter__(self) -> Any:
        return (self[i] for i in range(len(self)))


class _Integer:
    """A type of integers: converts by wrapping around, to a number of Python; NumPy takes it as a dtype."""

    def __init__(self, bits: int, is_signed: bool):
        self.bits = bits
        self.is_signed = is_signed
        self.dtype = np.dtype(f"{'' if is_signed else 'u'}int{bits}")

    def __call__(self, value: Any) -> Any:
        if isinstance(value, np.ndarray):
            return value.astype(self.dtype).view(_Array)
        if isinstance(value, float | np.floating) and not abs(value) < _BEYOND:
            # What the processor makes of it, as in compiled code.
            value = np.asarray(value).astype(np.int64)
        number = _wrapped(int(value), self.bits, self.is_signed)
        return np.uint64(number) if self.bits == 64 and not self.is_signed else number


def _wrapped(number: int, bits: int, is_signed: bool) -> int:
    """The number of a type of `bits` bits that has the same last bits."""
    number &= (1 << bits) - 1
    return number - (1 << bits) if is_signed and number >> (bits - 1) else number


class _NumPy:
    """NumPy as kernels see it when Python runs them: conversions wrap around, new arrays are `_Array`."""

    def __getattr__(self, name: str) -> Any:
        found = libm.FUNCTIONS.get(name) or getattr(np, name)
        if name.startswith(("int", "uint")) and name.lstrip("uint").isdigit():
            found = _Integer(int(name.lstrip("uint")), name.startswith("int"))
        elif callable(found) and not isinstance(found, (type, libm.Function)):
            found = _making_arrays(found)
        setattr(self, name, found)
        return found


def _making_arrays(function: Callable) -> Callable:
    def call(*arguments: Any, **options: Any) -> Any:
        made = function(*arguments, **options)
        return made.view(_Array) if isinstance(made, np.ndarray) else made

    return call


class _Math:
    """`math` as kernels see it when Python runs them: floats of NumPy, and infinite ones or NaN instead of errors."""

    def __getattr__(self, name: str) -> Any:
        found = libm.FUNCTIONS.get(name) or getattr(math, name)
        if callable(found) and not isinstance(found, libm.Function):
            found = _never_failing(found, getattr(np, name, None))
        setattr(self, name, found)
        return found


def _never_failing(function: Callable, otherwise: Callable | None) -> Callable:
    def call(*arguments: Any) -> Any:
        try:
            return _number(function(*arguments))
        except (ArithmeticError, ValueError):
            if otherwise is None:
                raise
            return otherwise(*arguments)

    return call


def _number(value: Any) -> Any:
    """A float as one of NumPy, which divides by zero."""
    return np.float64(value) if type(value) is float else value


_PYTHON_NUMPY, _PYTHON_MATH = _NumPy(), _Math()
_environments: dict[int, dict[str, Any]] = {}


# Seconds that Python has run kernels in this process.
_spent_in_all = 0.0


def _is_installed() -> bool:
    """Whether Numba can be imported; of what has been imported a `find_spec` looks at no file."""
    return find_spec("numba") is not None


class Kernel:
    """A compiled function that Python may run instead; other kernels call it as they call any function of Numba.

    signatures  what it is compiled for when the package is built, see `object_code.parsed`
    is_inner    whether kernels alone call it, see `compiling.njit`
    has_python  whether Python may run it
    """

    def __init__(
        self,
        function: FunctionType,
        *signatures: str,
        is_inner: bool = False,
        has_python: bool = True,
        **options: Any,
    ):
        self.py_func = function
        self.__name__, self.__module__ = function.__name__, function.__module__
        self.signatures = signatures
        self.is_inner, self.has_python = is_inner, has_python
        self.options = options
        # Numba looks here whether to inline it.
        self.targetoptions = options
        self.__doc__ = function.__doc__
        self._run: Callable = self._first
        self._spent = 0.0
        # What is linked for arguments of some types; None where only Numba has it.
        self._links: dict[Sequence[object_code.Kind], Callable | None] = {}

    @cached_property
    def dispatcher(self) -> Any:
        """Numba's function, which compiles when it is called. Raises MissingDependencyError without Numba."""
        if not _is_installed():
            raise MissingDependencyError(
                f"kernel {self.__name__} is not compiled for these arguments, and Numba, which compiles it, is missing",
                hint="pip install numba; packages that were built with it have kernels for arrays in C order",
            )
        with whole_import():
            from derivable.device.cpu.compiling import njit

        return njit(cache=True, nogil=True, is_inner=self.is_inner, **self.options)(self.py_func)

    def kinds(self, types: Sequence[object_code.Kind]) -> Sequence[object_code.Kind]:
        """What its object code for parameters of these types is found by."""
        return object_code.parsed(self.signatures[0]) if self.signatures else tuple(types)

    def is_linkable(self, types: Sequence[object_code.Kind] = ()) -> bool:
        """Whether it is called without Numba for parameters of these types; to look opens files."""
        return object_code.has_code(self.py_func, self.kinds(types))

    @property
    def is_compiled(self) -> bool:
        """Whether the compiled tier has taken over."""
        return self._run != self._first

    @property
    def _numba_type_(self) -> Any:
        return self.dispatcher._numba_type_

    def __call__(self, *arguments: Any) -> Any:
        result = self._run(*arguments)
        return self._otherwise(arguments) if result is NotImplemented else result

    def __reduce__(self) -> Any:
        return _find, (self.__module__, self.__name__)

    def _first(self, *arguments: Any) -> Any:
        assert not self.is_inner, f"{self.__name__} is called by kernels alone"
        tier = os.environ.get("DERIVABLE_TIER", "")
        is_worth = tier == "compiled" or self._spent > PATIENCE or _largest(arguments) > SMALL
        if not self.has_python or (tier != "interpreted" and (is_worth or self._is_there(arguments))):
            return self.compiled(*arguments)
        begin = time.perf_counter()
        with np.errstate(all="ignore"):
            result = _returned(interpreted(self)(*(_seen(argument) for argument in arguments)))
        seconds = time.perf_counter() - begin
        self._spent += seconds
        global _spent_in_all
        _spent_in_all += seconds
        return result

    def _is_there(self, arguments: tuple) -> bool:
        """Whether it need only be linked for these arguments."""
        if "llvmlite" not in sys.modules and _spent_in_all <= LINKING:
            return False
        kinds = object_code.kinds_of(arguments)
        return (bool(self.signatures) or kinds is not None) and self.is_linkable(kinds or ())

    def compiled(self, *arguments: Any) -> Any:
        """Call it compiled, whatever the sizes of its arguments."""
        if self._run == self._first:
            self._run = _refuse
        return self(*arguments)

    def _link(self, kinds: Sequence[object_code.Kind]) -> Callable | None:
        """What is linked for arguments of these types, a built-in function; None if only Numba has it."""
        if kinds not in self._links:
            self._links[kinds] = object_code.linked(self.py_func, kinds)
        return self._links[kinds]

    def _otherwise(self, arguments: tuple) -> Any:
        """Call it for arguments of other types than the last ones."""
        tried = [*map(object_code.parsed, self.signatures), object_code.kinds_of(arguments)]
        for kinds in filter(None, tried):
            link = self._link(kinds)
            if link is not None and (result := link(*arguments)) is not NotImplemented:
                self._run = link
                return result
        if not any(self._links.values()):
            self._run = self.dispatcher
        return self.dispatcher(*arguments)


def _refuse(*arguments: Any) -> Any:
    return NotImplemented


def kernel(*signatures: Any, **options: Any) -> Any:
    """Decorator: a kernel of two tiers, see `Kernel`.

    signatures  the types that it is called with; a kernel that generated code has comes without
    options     `is_inner`, `has_python`, and Numba's, such as inline="always"
    """
    if signatures and callable(signatures[0]):
        return Kernel(signatures[0])
    return lambda function: Kernel(function, *signatures, **options)


def interpreted(compiled: Any) -> Callable:
    """The Python function of a kernel, with everything that it calls interpreted too."""
    function = compiled.py_func
    known = getattr(compiled, "_interpreted", None)
    if known is None:
        names = _environment(function.__globals__)
        code = function.__code__
        code = code.replace(co_consts=tuple(_number(constant) for constant in code.co_consts))
        known = FunctionType(code, names, function.__name__, function.__defaults__, function.__closure__)
        compiled._interpreted = known
    return known


def _environment(names: dict[str, Any]) -> dict[str, Any]:
    made = _environments.get(id(names))
    if made is None:
        # It is whole before another thread finds it, and all threads have the same.
        made = _environments.setdefault(id(names), {name: _meaning(value) for name, value in names.items()})
    return made


def _meaning(value: Any) -> Any:
    if value is np:
        return _PYTHON_NUMPY
    if value is math:
        return _PYTHON_MATH
    # A dispatcher of Numba has its function under this name as well.
    if isinstance(value, Kernel) or hasattr(value, "py_func"):
        return lambda *arguments: interpreted(value)(*arguments)
    return meaning_of(value) or value


def _seen(argument: Any) -> Any:
    if isinstance(argument, np.ndarray):
        return argument.view(_Array)
    return tuple(_seen(part) for part in argument) if isinstance(argument, tuple) else _number(argument)


def _returned(result: Any) -> Any:
    if isinstance(result, tuple):
        return tuple(map(_returned, result))
    return _wrapped(result, 64, True) if type(result) is int else result


def _largest(arguments: tuple) -> int:
    sizes = [_largest(a) if isinstance(a, tuple) else getattr(a, "size", 0) for a in arguments]
    return max(sizes, default=0)


def _find(module: str, name: str) -> Any:
    return getattr(import_module(module), name)
