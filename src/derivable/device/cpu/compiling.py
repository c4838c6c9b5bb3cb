"""Numba, ready to compile: what compiles kernels imports it from here, and small runs never do.

Parts of Numba that are not of its documented interface are used here alone; others import them from this module, and
`tests/device/test_numba_parts.py` looks for each by name. Nothing is registered for all of Numba: what holds while a
kernel compiles is done by the classes of kernels, and functions of others compile as they do without this library.

Kernels are cached in the library's own folder (`core.cache`), whatever Numba's settings say: Numba reads settings
from the working directory, and its caches are pickles.

Before Numba loads a kernel from there, it imports everything that it can compile, SciPy's linear algebra among it,
which takes a third of a second and which only compiling needs: kernels of this library are loaded without.
"""

from __future__ import annotations

import hashlib
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from derivable.core.cache import cache_directory
from derivable.core.collection import gc_paused
from derivable.core.interrupts import sigint_deferred
from derivable.core.lazy import whole_import
from derivable.device.cpu import compile_notice, object_code

with whole_import():
    import numba
    from llvmlite import binding as llvm
    from numba.core import caching, cgutils, config
    from numba.core.compiler_lock import global_compiler_lock
    from numba.core.registry import CPUDispatcher
    from numba.core.runtime import nrt
    from numba.core.types import unliteral
    from numba.core.typing.templates import builtin_registry
    from numba.np.arrayobj import populate_array

__all__ = ["cgutils", "njit", "populate_array"]


def njit(*, cache: bool = False, is_inner: bool = False, **options: Any) -> Any:
    """Numba's decorator, without the form of a function that C would call: making it takes a twentieth of the time.

    cache     whether its compiled forms are on disk for later processes
    is_inner  whether compiled functions alone call it, and have its arrays as long as it runs: it makes none, counts no
              references to them, which takes two atomic instructions for each array of a call, and has no form that
              Python would call, a sixth of compiling it
    """
    if is_inner:
        options |= {"no_cpython_wrapper": True, "_nrt": False}

    def dispatcher(function: Any) -> Any:
        settings = {"nopython": True, "boundscheck": None, "no_cfunc_wrapper": True, "error_model": "numpy"} | options
        made: Any = KernelDispatcher(function, targetoptions=settings)
        if cache:
            made._cache = _KernelCache(function)
        return made

    return dispatcher


def type_of(kind: object_code.Kind) -> Any:
    """Numba's type of arguments, see `object_code.Kind`."""
    if isinstance(kind, tuple):
        return numba.types.Tuple([type_of(part) for part in kind])
    scalar, _, axes = kind.removeprefix("const ").partition("[")
    found = numba.from_dtype(np.dtype(scalar))
    return numba.types.Array(found, axes.count(",") + 1, "C", readonly="const " in kind) if axes else found


def type_of_intrinsic(intrinsic: Any) -> Any:
    """Numba's type of an intrinsic, from where Numba enters it: its context learns of it between two compilations."""
    return next(kind for value, kind in builtin_registry.globals if value is intrinsic)


def ignore_settings_of_folder() -> None:
    """Numba's settings are from now on those of the environment, without the working directory's: for programs of this
    library's own, not for processes of others.
    """
    config.__dict__["_config_fname"] = ""
    config.reload_config()


# How compiled code is linked, for `emit_object`


def empty_module(library: Any, name: str) -> Any:
    """A module of LLVM for the target that a library of compiled code is for."""
    return library.codegen._create_empty_module(name)


def whole_module(library: Any) -> Any:
    """A copy of the module of a library with everything that it links."""
    return library._get_module_for_linking().clone()


def target_machine(library: Any) -> Any:
    """What makes machine code for a library."""
    return library.codegen._tm


# Compiling


class _Compilation(threading.local):
    """How many kernels this thread compiles, each for the one before it."""

    depth = 0


_compilation = _Compilation()


@contextmanager
def _undisturbed() -> Iterator[None]:
    """Inside, a kernel is compiled or loaded, under Numba's lock, so that nobody else compiles.

    A Ctrl-C comes after it: a kernel that is half done fails ever after. Compiling makes many cycles of references, and
    looking for them took an eighth of it.
    """
    with compile_notice.counted(), sigint_deferred(), global_compiler_lock, gc_paused():
        _compilation.depth += 1
        try:
            yield
        finally:
            _compilation.depth -= 1
            if not _compilation.depth:
                compile_notice.end()


class KernelDispatcher(CPUDispatcher):
    """A kernel that Numba compiles for the types of its arguments when they are first seen."""

    def compile(self, sig: Any) -> Any:
        with _undisturbed():
            return super().compile(sig)

    def get_call_template(self, args: Any, kws: Any) -> Any:
        """What compiled code calls for parameters of these types: one function for all constants, not one for each."""
        return super().get_call_template(tuple(map(unliteral, args)), {name: unliteral(t) for name, t in kws.items()})

    def _compilation_chain_init_hook(self) -> None:
        """Stands for the import of packages that extend Numba, which its compiler does again."""


# The cache on disk


class _Locator:
    """Where the compiled forms of a function are, and when they are of another text: what Numba's caches look at."""

    def __init__(self, function: Any):
        self._py_file = function.__code__.co_filename
        self._line = function.__code__.co_firstlineno
        self._module = function.__module__

    def get_cache_path(self) -> str:
        source = Path(self._py_file)
        return str(cache_directory() / "kernels" / f"{source.stem}_{_digest(str(source))[:24]}")

    def ensure_cache_path(self) -> None:
        Path(self.get_cache_path()).mkdir(parents=True, exist_ok=True)

    def get_source_stamp(self) -> bytes:
        # Its code has that of the kernels which it calls, and the constants of their modules.
        paths = sorted({self._py_file, *object_code.paths_of(self._module)})
        return hashlib.sha256(b"".join(map(_digest_of_file, paths))).digest()

    def get_disambiguator(self) -> str:
        return str(self._line)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


@cache
def _digest_of_file(path: str) -> bytes:
    return hashlib.sha256(Path(path).read_bytes()).digest()


class _Form(caching.CompileResultCacheImpl):
    """How Numba writes compiled functions; its own constructor would ask its settings where."""

    def __init__(self, function: Any):
        self._lineno = function.__code__.co_firstlineno
        self._locator = _Locator(function)
        stem = Path(function.__code__.co_filename).stem
        self._filename_base = self.get_filename_base(f"{stem}.{function.__qualname__}", sys.abiflags)


class _KernelCache(caching.FunctionCache):
    """Numba's cache of compiled functions, which loads them without what only compiling needs.

    They call functions of Numba's run time; others that they call are known since Numba has been imported, but for the
    secret of Python's hashes, and kernels make no hashes of Python. Those that Python calls are on disk a second time,
    for processes without Numba.
    """

    _impl_class = _Form

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        _link_runtime()
        with self._guard_against_spurious_io_errors():
            found = self._load_overload(sig, target_context)
        if found is None:
            compile_notice.begin()
        else:
            self._emit(found)
        return found

    def save_overload(self, sig: Any, data: Any) -> None:
        super().save_overload(sig, data)
        self._emit(data)

    def _emit(self, compiled: Any) -> None:
        # One that another one calls is compiled while that is.
        if _compilation.depth == 1:
            from derivable.device.cpu.emit_object import emit

            emit(self._py_func, compiled)


@cache
def _link_runtime() -> None:
    """Name the functions of Numba's run time to the linker, as Numba does before it compiles something."""
    runtime = vars(nrt)["_nrt"]
    for name, address in runtime.c_helpers.items():
        llvm.add_symbol(name if name.startswith("_") else f"NRT_{name}", address)
