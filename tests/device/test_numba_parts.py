"""What is used of Numba beyond its documented interface stands in one module, and is there in the installed version."""

import inspect
import re
from pathlib import Path

import numba
import numpy as np
import pytest
from llvmlite import binding as llvm
from numba.core import caching, codegen, config, dispatcher, registry
from numba.core.runtime import nrt

from derivable.device.cpu import compiling

SOURCES = Path(compiling.__file__).parents[2]
# (owner, name) of each attribute that no page of Numba's promises.
ATTRIBUTES = [
    (dispatcher.Dispatcher, "compile"),
    (dispatcher.Dispatcher, "get_call_template"),
    (dispatcher.Dispatcher, "get_overload"),
    (dispatcher.Dispatcher, "typeof_pyval"),
    (dispatcher.Dispatcher, "_compilation_chain_init_hook"),
    (registry.CPUDispatcher, "_numba_type_"),
    (caching.FunctionCache, "load_overload"),
    (caching.FunctionCache, "_load_overload"),
    (caching.FunctionCache, "save_overload"),
    (caching.FunctionCache, "_guard_against_spurious_io_errors"),
    (caching.FunctionCache, "_impl_class"),
    (caching.CompileResultCacheImpl, "get_filename_base"),
    (caching.IndexDataCacheFile, "_load_index"),
    (codegen.CPUCodeLibrary, "_get_module_for_linking"),
    (codegen.CPUCodegen, "_create_empty_module"),
    (config, "reload_config"),
    (config, "_config_fname"),
    (nrt, "_nrt"),
    (vars(nrt)["_nrt"], "c_helpers"),
    (compiling.cgutils, "normalize_ir_text"),
    (compiling.cgutils, "get_or_insert_function"),
]


@pytest.mark.parametrize(("owner", "name"), ATTRIBUTES, ids=lambda part: getattr(part, "__name__", str(part)))
def test_numba_has(owner, name):
    assert hasattr(owner, name)


def test_attributes_of_objects_are_there():
    @compiling.njit(cache=True)
    def half(x):
        return x / 2

    assert half(3.0) == 1.5
    (compiled,) = half.overloads.values()
    assert isinstance(half._cache, caching.FunctionCache)
    assert half._cache._py_func is half.py_func
    assert half._cache._cache_file._load_index() is not None
    assert compiling.target_machine(compiled.library).emit_object
    assert compiling.whole_module(compiled.library).functions
    assert str(compiling.empty_module(compiled.library, "empty"))
    assert list(inspect.signature(numba.core.cgutils.pack_array).parameters)[:2] == ["builder", "values"]
    assert {"data", "shape", "strides", "itemsize", "meminfo"} <= set(
        inspect.signature(compiling.populate_array).parameters
    )
    assert compiling.type_of("int64[,]") == numba.typeof(np.zeros((2, 2), np.int64))


@pytest.mark.parametrize("is_inner", [False, True])
def test_inner_functions_count_no_references(is_inner):
    @compiling.njit(is_inner=is_inner)
    def swapped(values, others):
        for _ in range(others[0]):
            values, others = others, values
        return values[0]

    swapped.compile(2 * (compiling.type_of("int64[]"),))
    (text,) = swapped.inspect_llvm().values()
    assert ("NRT_incref" in text) is not is_inner


def test_no_other_module_uses_parts_of_numba():
    inner = re.compile(r"\bnumba\.(core|np|misc|typed|cpython)\b")
    users = {path.name for path in SOURCES.rglob("*.py") if inner.search(path.read_text())}
    assert users == {"compiling.py"}


def test_llvmlite_links_object_code():
    assert llvm.ModulePassManager.add_global_dead_code_eliminate_pass


def test_numba_reads_its_settings_from_the_file_of_that_name():
    assert "_config_fname" in inspect.getsource(type(config._env_reloader).update)
