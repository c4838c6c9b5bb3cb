"""Numba, ready to compile: what compiles kernels imports it from here, and small runs never do.

Kernels are cached in the library's own folder (`core.cache`), whatever Numba's settings say: Numba reads settings
from the working directory, and its caches are pickles.

Before Numba loads a kernel from there, it imports everything that it can compile, SciPy's linear algebra among it,
which takes a third of a second and which only compiling needs: kernels of this library are loaded without.
"""

from __future__ import annotations

import gc
import hashlib
import sys
import threading
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from derivable.core.cache import cache_directory
from derivable.core.interrupts import sigint_deferred
from derivable.core.lazy import whole_import

with whole_import():
    import numba
    from llvmlite import binding as llvm
    from numba.core import caching, config, event
    from numba.core.runtime import nrt
    from numba.core.types import unliteral
    from numba.extending import typeof_impl
    from numba.np.numpy_support import map_layout

    from derivable.device.cpu import compile_notice, emit_object

__all__ = ["njit"]


def njit(*, cache: bool = False, **options: Any) -> Any:
    """Numba's decorator, without the form of a function that C would call: making it takes a twentieth of the time.

    cache  whether its compiled forms are on disk for later processes
    """
    decorate: Any = numba.njit

    def dispatcher(function: Any) -> Any:
        made = decorate(no_cfunc_wrapper=True, **options)(function)
        made.get_call_template = partial(_template_of_call, made)
        if cache:
            made._cache = _KernelCache(function)
            made._compilation_chain_init_hook = _nothing
        return made

    return dispatcher


def _template_of_call(made: Any, types: Any, named: Any) -> Any:
    """What compiled code calls for parameters of these types: one function for all constants, not one for each."""
    types, named = map(unliteral, types), {name: unliteral(type) for name, type in named.items()}
    return type(made).get_call_template(made, tuple(types), named)


def packed(function: Any) -> Any:
    """The function `int64 f(int64, int64)` of C that compiled code calls by its address, not compiled yet."""
    with whole_import():
        from numba import types
        from numba.core.ccallback import CFunc

    made: Any = CFunc(function, ((types.int64, types.int64), types.int64), {}, {"error_model": "numpy"})
    made._cache = _KernelCache(function)
    made._cache.is_packed = True
    return made


def type_of(name: str) -> Any:
    """Numba's type of "int64", a scalar, of "int64[]", an array, or of "int64[,]", one with two axes."""
    scalar, _, axes = name.partition("[")
    found = numba.from_dtype(np.dtype(scalar))
    return numba.types.Array(found, axes.count(",") + 1, "C") if axes else found


class _Locator:
    """Where the compiled forms of a function are, and when they are of another text: what Numba's caches look at."""

    def __init__(self, function: Any):
        self._py_file = function.__code__.co_filename
        self._line = function.__code__.co_firstlineno

    def get_cache_path(self) -> str:
        source = Path(self._py_file)
        return str(cache_directory() / "kernels" / f"{source.stem}_{_digest(str(source))[:24]}")

    def ensure_cache_path(self) -> None:
        Path(self.get_cache_path()).mkdir(parents=True, exist_ok=True)

    def get_source_stamp(self) -> bytes:
        return _digest_of_file(self._py_file)

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

    is_packed = False
    _impl_class = _Form

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        _link_runtime()
        with self._guard_against_spurious_io_errors():
            found = self._load_overload(sig, target_context)
        if found is not None:
            self._emit(found)
        return found

    def save_overload(self, sig: Any, data: Any) -> None:
        super().save_overload(sig, data)
        self._emit(data)

    def _emit(self, compiled: Any) -> None:
        # One that another one calls is compiled while that is.
        if _nested.depth == 1:
            emit_object.emit(self._py_func, compiled, self.is_packed)


@cache
def _link_runtime() -> None:
    """Name the functions of Numba's run time to the linker, as Numba does before it compiles something."""
    runtime = vars(nrt)["_nrt"]
    for name, address in runtime.c_helpers.items():
        llvm.add_symbol(name if name.startswith("_") else f"NRT_{name}", address)


_typeof_array = typeof_impl.dispatch(np.ndarray)


@typeof_impl.register(np.ndarray)
def _typeof_plain_array(array: Any, context: Any) -> Any:
    """Numba's type of an array, which it finds with `numpy.ma`, a hundredth of a second to import, for any kind."""
    if type(array) is not np.ndarray or array.dtype.char not in "?bhilqBHILQfd":
        return _typeof_array(array, context)
    layout = map_layout(array)
    return numba.types.Array(numba.from_dtype(array.dtype), array.ndim, layout, readonly=not array.flags.writeable)


def ignore_settings_of_folder() -> None:
    """Numba's settings are from now on those of the environment, without the working directory's."""
    config.__dict__["_config_fname"] = ""
    config.reload_config()


def _nothing() -> None:
    """Stands for the import of packages that extend Numba, which its compiler does again."""


class Undisturbed(event.Listener):
    """A Ctrl-C while Numba compiles or loads a kernel comes after it: a kernel that is half done fails ever after."""

    def __init__(self) -> None:
        self.depth = 0
        self.block: Any = None

    def on_start(self, event: Any) -> None:
        if threading.current_thread() is not threading.main_thread():
            return
        if not self.depth:
            block = sigint_deferred()
            block.__enter__()
            self.block = block
        self.depth += 1

    def on_end(self, event: Any) -> None:
        if threading.current_thread() is not threading.main_thread() or not self.depth:
            return
        self.depth -= 1
        if not self.depth:
            block, self.block = self.block, None
            block.__exit__(None, None, None)


class Uncollected(event.Listener):
    """No garbage is collected while Numba compiles: it makes many cycles, and looking for them took an eighth of it."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.depth = 0
        self.was_enabled = False

    def on_start(self, event: Any) -> None:
        with self.lock:  # several threads may wait for the compiler
            self.depth += 1
            if self.depth == 1:
                self.was_enabled = gc.isenabled()
                gc.disable()

    def on_end(self, event: Any) -> None:
        with self.lock:
            self.depth -= 1
            if not self.depth and self.was_enabled:
                gc.enable()


class Nested(event.Listener, threading.local):
    """How many functions this thread compiles, each for the one before it."""

    depth = 0

    def on_start(self, event: Any) -> None:
        self.depth += 1

    def on_end(self, event: Any) -> None:
        self.depth -= 1


_nested = Nested()
compile_notice.install()
event.register("numba:compiler_lock", Undisturbed())
event.register("numba:compiler_lock", Uncollected())
event.register("numba:compiler_lock", _nested)
