"""Object code of what Numba has compiled, with an entry that Python calls: see `object_code`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numba
import numpy as np
from llvmlite import binding as llvm
from llvmlite import ir

from derivable.device.cpu import cpython
from derivable.device.cpu.building.numba_parts import (
    cgutils,
    empty_module,
    populate_array,
    target_machine,
    whole_module,
)

types: Any = numba.types
# What calls Numba's run time, or Intel's library of vectors; and what LLVM calls functions for that few systems have.
_FOREIGN = re.compile("NRT_|numba_|__svml|_?Py")
_UNSAFE = re.compile(r"NumbaEnv|\b[su](?:div|rem) i128|\b(?:half|bfloat|fp128|x86_fp80)\b|@llvm\.powi")
_I32, _I64, _BYTE, _BYTES = ir.IntType(32), ir.IntType(64), ir.IntType(8), ir.IntType(8).as_pointer()
_DOUBLE, _VOID = ir.DoubleType(), ir.VoidType()


def emitted(compiled: Any, symbol: str) -> bytes:
    """The object code of what Numba has compiled, its result, with an entry of that name.

    Raises TypeError where it calls what is there with Numba alone, or returns what an entry cannot.
    """
    library = compiled.library
    machine, module = target_machine(library), whole_module(library)
    # LLVM has found out what is only read, of the arrays "arg.NAME" those whose numbers, field 4, are.
    parameters = module.get_function(compiled.fndesc.llvm_func_name).arguments
    read = {of.name.removesuffix(".4") for of in parameters if {b"readonly", b"readnone"}.intersection(of.attributes)}
    entry = empty_module(library, symbol)
    native = compiled.target_context.declare_function(entry, compiled.fndesc)
    _Entry(entry, symbol, native, compiled, read).write()
    for write in (_write_allocation, _write_release, _write_ldexp):
        write(entry)
    module.link_in(llvm.parse_assembly(cgutils.normalize_ir_text(str(entry))))
    for part in (*module.functions, *module.global_variables):
        if not part.is_declaration and part.name != symbol:
            part.linkage = "internal"
    manager = llvm.create_new_module_pass_manager()
    manager.add_global_dead_code_eliminate_pass()
    manager.run(module, llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options()))
    called = [part.name for part in (*module.functions, *module.global_variables) if part.is_declaration]
    foreign = [name for name in called if _FOREIGN.match(name) and name not in cpython.SYMBOLS]
    foreign += _UNSAFE.findall(str(module))
    if foreign:
        raise TypeError(f"{compiled.fndesc.qualname} calls {', '.join(sorted(set(foreign)))}")
    return machine.emit_object(module)


# What Numba's run time does for arrays that a kernel makes for itself, and for powers of two


def _defined(module: ir.Module, name: str, result: Any, *parameters: Any) -> tuple[ir.IRBuilder, Sequence[Any]]:
    function = ir.Function(module, ir.FunctionType(result, parameters), name)
    return ir.IRBuilder(function.append_basic_block()), function.args


def _of_library(module: ir.Module, name: str, result: Any, *parameters: Any) -> ir.Function:
    return cgutils.get_or_insert_function(module, ir.FunctionType(result, parameters), name)


# Bytes of the header of an array's memory, which begins with the number of references; where it has the address.
_HEADER, _ADDRESS = 64, 24


def _write_allocation(module: ir.Module) -> None:
    """`NRT_MemInfo_alloc_aligned`: memory with a header before it, as compiled code reads that."""
    builder, (size, alignment) = _defined(module, "NRT_MemInfo_alloc_aligned", _BYTES, _I64, _I32)
    alignment = builder.zext(alignment, _I64)
    total = builder.add(builder.add(size, alignment), _I64(_HEADER))
    memory = builder.call(_of_library(module, "malloc", _BYTES, _I64), [total])
    with builder.if_then(cgutils.is_null(builder, memory), likely=False):
        builder.ret(memory)
    first = builder.add(builder.ptrtoint(memory, _I64), builder.add(alignment, _I64(_HEADER - 1)))
    builder.store(_I64(1), builder.bitcast(memory, _I64.as_pointer()))
    at = builder.bitcast(builder.gep(memory, [_I64(_ADDRESS)]), _I64.as_pointer())
    builder.store(builder.and_(first, builder.neg(alignment)), at)
    builder.ret(memory)


def _write_release(module: ir.Module) -> None:
    """`NRT_MemInfo_call_dtor`: frees the memory of an array, once nothing refers to it."""
    builder, (memory,) = _defined(module, "NRT_MemInfo_call_dtor", _VOID, _BYTES)
    builder.call(_of_library(module, "free", _VOID, _BYTES), [memory])
    builder.ret_void()


def _write_ldexp(module: ir.Module) -> None:
    """`numba_ldexp`: the C library's."""
    builder, (number, power) = _defined(module, "numba_ldexp", _DOUBLE, _DOUBLE, _I32)
    builder.ret(builder.call(_of_library(module, "ldexp", _DOUBLE, _DOUBLE, _I32), [number, power]))


# Entries


def _call(builder: Any, native: Any, compiled: Any, arguments: Sequence[Any]) -> tuple[Any, Any]:
    of = compiled.signature
    return compiled.target_context.call_conv.call_function(builder, native, of.return_type, of.args, arguments)


class _Entry:
    """A built-in function of Python with positional arguments: looks at their types, calls the kernel without the lock
    of Python, and gives its result; NotImplemented for arguments of other types.
    """

    def __init__(self, module: ir.Module, symbol: str, native: Any, compiled: Any, read: set[str]):
        self.module, self.native, self.compiled, self.read = module, native, compiled, read
        parameters = _BYTES, _BYTES.as_pointer(), _I64
        self.builder, (_, self.objects, self.number) = _defined(module, symbol, _BYTES, *parameters)
        self.otherwise = self.builder.append_basic_block("otherwise")

    def write(self) -> None:
        builder, of = self.builder, self.compiled.signature
        self.need(builder.icmp_unsigned("==", self.number, _I64(len(of.args))))
        names = [f"arg.{name}" for name in self.compiled.fndesc.args]
        arguments = [self.argument(*of, self.item(self.objects, i)) for i, of in enumerate(zip(names, of.args))]
        state = builder.call(self.python("PyEval_SaveThread", _BYTES), [])
        status, result = _call(builder, self.native, self.compiled, arguments)
        builder.call(self.python("PyEval_RestoreThread", _VOID, _BYTES), [state])
        with builder.if_then(status.is_error, likely=False):
            self.raise_error(builder.bitcast(status.excinfoptr, _BYTES))
        builder.ret(self.result(of.return_type, result))
        builder.position_at_end(self.otherwise)
        builder.ret(self.known("_Py_NotImplementedStruct"))

    def raise_error(self, of: Any) -> None:
        """Raise what a kernel has raised, which Numba writes as a pickle of a class and its arguments."""
        builder = self.builder
        take = self.python("PyBytes_FromStringAndSize", _BYTES, _BYTES, _I64)
        text = builder.call(take, [self.field(of, 0, _BYTES), builder.zext(self.field(of, 8, _I32), _I64)])
        read = self.python("PyObject_CallOneArg", _BYTES, _BYTES, _BYTES)
        error = builder.call(read, [self.object(cpython.LOADS), text])
        get = self.python("PyTuple_GetItem", _BYTES, _BYTES, _I64)
        raising = self.python("PyErr_SetObject", _VOID, _BYTES, _BYTES)
        builder.call(raising, [builder.call(get, [error, _I64(0)]), builder.call(get, [error, _I64(1)])])
        self.release(text)
        self.release(error)
        builder.ret(ir.Constant(_BYTES, None))

    # What Python has

    def python(self, name: str, result: Any, *parameters: Any) -> ir.Function:
        return _of_library(self.module, name, result, *parameters)

    def object(self, name: str) -> Any:
        """The address of an object of Python or NumPy, see `cpython.OF_PYTHON`."""
        return (
            cgutils.add_global_variable(self.module, _BYTE, name)
            if name not in self.module.globals
            else (self.module.globals[name])
        )

    def known(self, name: str) -> Any:
        """An object, as a new reference."""
        found = self.object(name)
        self.builder.call(self.python("Py_IncRef", _VOID, _BYTES), [found])
        return found

    def release(self, of: Any) -> None:
        """Give up a reference."""
        self.builder.call(self.python("Py_DecRef", _VOID, _BYTES), [of])

    def need(self, condition: Any) -> None:
        """Go on where this holds; elsewhere arguments are of other types."""
        following = self.builder.append_basic_block()
        self.builder.cbranch(condition, following, self.otherwise)
        self.builder.position_at_end(following)

    def field(self, of: Any, offset: int, kind: Any) -> Any:
        """What an object has some bytes behind its beginning."""
        builder = self.builder
        return builder.load(builder.bitcast(builder.gep(of, [_I64(offset)]), kind.as_pointer()))

    def item(self, objects: Any, number: int) -> Any:
        return self.builder.load(self.builder.gep(objects, [_I64(number)]))

    def has_type(self, of: Any, name: str) -> Any:
        return self.builder.icmp_unsigned("==", self.field(of, cpython.TYPE, _BYTES), self.object(name))

    # Arguments

    def argument(self, name: str, of: Any, value: Any) -> Any:
        if isinstance(of, types.BaseTuple):
            return self.tuple(name, of, value)
        if isinstance(of, types.Array):
            return self.array(name, of, value)
        if of == types.int64:
            return self.integer(value)
        if of == types.boolean:
            return self.truth(value)
        if of == types.float64:
            # NumPy's have their number where Python's have it.
            is_float = self.has_type(value, "PyFloat_Type")
            self.need(self.builder.or_(is_float, self.has_type(value, cpython.scalar_type("float64"))))
        else:
            self.need(self.has_type(value, cpython.scalar_type(str(of))))
        return self.field(value, cpython.NUMBER, self.compiled.target_context.get_data_type(of))

    def integer(self, value: Any) -> Any:
        """Of what Python takes for an integer, those of NumPy of all sizes among it."""
        builder = self.builder
        number = builder.call(self.python("PyLong_AsLongLong", _I64, _BYTES), [value])
        with builder.if_then(builder.icmp_signed("==", number, _I64(-1)), likely=False):
            error = builder.call(self.python("PyErr_Occurred", _BYTES), [])
            with builder.if_then(cgutils.is_not_null(builder, error), likely=False):
                builder.call(self.python("PyErr_Clear", _VOID), [])
                builder.branch(self.otherwise)
        return number

    def truth(self, value: Any) -> Any:
        builder = self.builder
        found = cgutils.alloca_once(builder, ir.IntType(1))
        with builder.if_else(self.has_type(value, "PyBool_Type")) as (of_python, of_numpy):
            with of_python:
                builder.store(builder.icmp_unsigned("==", value, self.object("_Py_TrueStruct")), found)
            with of_numpy:
                self.need(self.has_type(value, cpython.scalar_type("bool")))
                number = self.field(value, cpython.NUMBER, _BYTE)
                builder.store(builder.icmp_unsigned("!=", number, _BYTE(0)), found)
        return builder.load(found)

    def tuple(self, name: str, of: Any, value: Any) -> Any:
        builder = self.builder
        self.need(self.has_type(value, "PyTuple_Type"))
        self.need(builder.icmp_unsigned("==", self.field(value, cpython.LENGTH, _I64), _I64(len(of))))
        items = builder.bitcast(builder.gep(value, [_I64(cpython.ITEMS)]), _BYTES.as_pointer())
        parts = [self.argument(f"{name}.{i}", part, self.item(items, i)) for i, part in enumerate(of)]
        return self.compiled.target_context.make_tuple(builder, of, parts)

    def array(self, name: str, of: Any, value: Any) -> Any:
        builder, context = self.builder, self.compiled.target_context
        self.need(self.has_type(value, cpython.ARRAY_TYPE))
        self.need(builder.icmp_unsigned("==", self.field(value, cpython.AXES, _I32), _I32(of.ndim)))
        needed = _I32(cpython.READABLE | (0 if name in self.read else cpython.WRITEABLE))
        flags = self.field(value, cpython.FLAGS, _I32)
        self.need(builder.icmp_unsigned("==", builder.and_(flags, needed), needed))
        dtype, wanted = self.field(value, cpython.DTYPE, _BYTES), np.dtype(str(of.dtype))
        self.need(builder.icmp_unsigned("==", self.field(dtype, cpython.KIND, _BYTE), _BYTE(ord(wanted.kind))))
        self.need(builder.icmp_unsigned("==", self.field(dtype, cpython.ITEMSIZE, _I64), _I64(wanted.itemsize)))
        self.need(builder.icmp_unsigned("!=", self.field(dtype, cpython.ORDER, _BYTE), _BYTE(cpython.FOREIGN)))
        element = context.get_data_type(of.dtype)
        extents = self.field(value, cpython.SHAPE, _I64.as_pointer())
        shape = [builder.load(builder.gep(extents, [_I64(axis)])) for axis in range(of.ndim)]
        size = _I64(context.get_abi_sizeof(element))
        strides: list[Any] = [size]
        for extent in shape[:0:-1]:
            strides.insert(0, builder.mul(strides[0], extent))
        made = context.make_array(of)(context, builder)
        populate_array(
            made,
            data=self.field(value, cpython.DATA, element.as_pointer()),
            shape=cgutils.pack_array(builder, shape),
            strides=cgutils.pack_array(builder, strides),
            itemsize=size,
            meminfo=None,
        )
        return made._getvalue()

    # Results

    def result(self, of: Any, value: Any) -> Any:
        """What Python gets, as a new reference. Where it has no memory for that, it finds out itself."""
        builder = self.builder
        if of == types.none:
            return self.known("_Py_NoneStruct")
        if isinstance(of, types.BaseTuple):
            made = builder.call(self.python("PyTuple_New", _BYTES, _I64), [_I64(len(of))])
            for i, (part, item) in enumerate(zip(of, cgutils.unpack_tuple(builder, value, len(of)))):
                put = self.python("PyTuple_SetItem", _I32, _BYTES, _I64, _BYTES)
                builder.call(put, [made, _I64(i), self.result(part, item)])
            return made
        if isinstance(of, types.Array):
            return self.new_array(of, value)
        if isinstance(of, types.Boolean):
            return builder.call(self.python("PyBool_FromLong", _BYTES, _I64), [builder.zext(value, _I64)])
        if isinstance(of, types.Float):
            wide = value if of.bitwidth == 64 else builder.fpext(value, _DOUBLE)
            return builder.call(self.python("PyFloat_FromDouble", _BYTES, _DOUBLE), [wide])
        if not isinstance(of, types.Integer):
            raise TypeError(f"{self.compiled.fndesc.qualname} returns {of}")
        if of.bitwidth < 64:
            value = (builder.sext if of.signed else builder.zext)(value, _I64)
        name = "PyLong_FromLongLong" if of.signed else "PyLong_FromUnsignedLongLong"
        return builder.call(self.python(name, _BYTES, _I64), [value])

    def new_array(self, of: Any, value: Any) -> Any:
        """A copy of an array that the kernel has made, whose memory is freed."""
        builder, context = self.builder, self.compiled.target_context
        if of.layout != "C":
            raise TypeError(f"{self.compiled.fndesc.qualname} returns {of}")
        array = context.make_array(of)(context, builder, value)
        integer = self.python("PyLong_FromLongLong", _BYTES, _I64)
        shape = builder.call(self.python("PyTuple_New", _BYTES, _I64), [_I64(of.ndim)])
        put = self.python("PyTuple_SetItem", _I32, _BYTES, _I64, _BYTES)
        for axis, extent in enumerate(cgutils.unpack_tuple(builder, array.shape, of.ndim)):
            builder.call(put, [shape, _I64(axis), builder.call(integer, [extent])])
        given = builder.call(self.python("PyTuple_New", _BYTES, _I64), [_I64(2)])
        builder.call(put, [given, _I64(0), shape])
        builder.call(put, [given, _I64(1), self.known(cpython.dtype_symbol(str(of.dtype)))])
        make = self.python("PyObject_CallObject", _BYTES, _BYTES, _BYTES)
        made = builder.call(make, [self.object(cpython.EMPTY), given])
        self.release(given)
        with builder.if_then(cgutils.is_not_null(builder, made), likely=True):
            size = builder.mul(array.nitems, array.itemsize)
            data = builder.bitcast(array.data, _BYTES)
            cgutils.raw_memcpy(builder, self.field(made, cpython.DATA, _BYTES), data, size, 1)
        builder.call(self.python("NRT_decref", _VOID, _BYTES), [builder.bitcast(array.meminfo, _BYTES)])
        return made
