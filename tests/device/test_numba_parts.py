"""What is used of Numba beyond its documented interface stands in one module, and is there in the installed version."""

import inspect
import re

import numba
import numpy as np
import pytest
from llvmlite import binding as llvm
from numba.core import codegen, dispatcher, registry

from derivable.device.cpu import object_code
from derivable.device.cpu.building import numba_parts

# (owner, name) of each attribute that no page of Numba's promises.
ATTRIBUTES = [
    (dispatcher.Dispatcher, "compile"),
    (dispatcher.Dispatcher, "get_call_template"),
    (dispatcher.Dispatcher, "get_overload"),
    (registry.CPUDispatcher, "_numba_type_"),
    (codegen.CPUCodeLibrary, "_get_module_for_linking"),
    (codegen.CPUCodegen, "_create_empty_module"),
    (numba_parts.cgutils, "normalize_ir_text"),
    (numba_parts.cgutils, "get_or_insert_function"),
]


@pytest.mark.parametrize(("owner", "name"), ATTRIBUTES, ids=lambda part: getattr(part, "__name__", str(part)))
def test_numba_has(owner, name):
    assert hasattr(owner, name)


def test_attributes_of_objects_are_there():
    @numba_parts.njit()
    def half(x):
        return x / 2

    half.compile((numba.types.float64,))
    (compiled,) = half.overloads.values()
    assert numba_parts.target_machine(compiled.library).emit_object
    module = numba_parts.whole_module(compiled.library)
    assert module.get_function(compiled.fndesc.llvm_func_name).arguments
    assert compiled.fndesc.args == ("x",)
    assert str(numba_parts.empty_module(compiled.library, "empty"))
    assert list(inspect.signature(numba.core.cgutils.pack_array).parameters)[:2] == ["builder", "values"]
    assert {"data", "shape", "strides", "itemsize", "meminfo"} <= set(
        inspect.signature(numba_parts.populate_array).parameters
    )
    assert numba_parts.type_of("int64[,]") == numba.typeof(np.zeros((2, 2), np.int64))


@pytest.mark.parametrize("is_inner", [False, True])
def test_inner_functions_count_no_references(is_inner):
    @numba_parts.njit(is_inner=is_inner)
    def swapped(values, others):
        for _ in range(others[0]):
            values, others = others, values
        return values[0]

    swapped.compile(2 * (numba_parts.type_of("int64[]"),))
    (text,) = swapped.inspect_llvm().values()
    assert ("NRT_incref" in text) is not is_inner


def test_no_other_module_uses_parts_of_numba():
    inner = re.compile(r"\bnumba\.(core|np|misc|typed|cpython)\b")
    sources = object_code.SOURCES / "derivable"
    users = {path.name for path in sources.rglob("*.py") if inner.search(path.read_text())}
    assert users == {"numba_parts.py"}


def test_llvmlite_links_object_code():
    assert llvm.ModulePassManager.add_global_dead_code_eliminate_pass
