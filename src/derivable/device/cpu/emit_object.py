"""Object code of what Numba has compiled, with an entry that takes words: see `object_code`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import reduce
from types import FunctionType
from typing import Any

import numba
from llvmlite import binding as llvm
from llvmlite import ir

from derivable.core.diagnostics import warn
from derivable.device.cpu import object_code
from derivable.device.cpu.compiling import cgutils, empty_module, populate_array, target_machine, whole_module
from derivable.device.cpu.object_code import Kind

types: Any = numba.types
# What calls Python or Numba's run time; and what raises, or for what LLVM calls functions that few systems have.
_FOREIGN = re.compile("_?Py|NRT_|numba_")
_UNSAFE = re.compile(r"picklebuf|NumbaEnv|\b[su](?:div|rem) i128|\b(?:half|bfloat|fp128|x86_fp80)\b|@llvm\.powi")
# The function that frees an array, which arguments without an owner never are.
_FREES = "NRT_MemInfo_call_dtor"
_I32, _I64, _BYTES = ir.IntType(32), ir.IntType(64), ir.IntType(8).as_pointer()


class Unsupported(Exception):
    """Only Numba can load this kernel."""


def emit(function: FunctionType, compiled: Any, is_packed: bool) -> None:
    """Write the object code of a kernel, unless there is that already.

    compiled   Numba's result
    is_packed  whether it is called as a function of C, see `tiers.Packed`
    """
    arguments = compiled.signature.args
    try:
        kinds = object_code.PACKED if is_packed else tuple(map(_kind, arguments))
        if object_code.has_file(function, kinds):
            return
    except Unsupported:
        return
    try:
        result = "" if is_packed else _result(compiled.signature.return_type)
        externals, code = _emitted(compiled, object_code.symbol(function, kinds), is_packed)
    except Unsupported:
        result, externals, code = "", [], b""
    except Exception as error:
        # Another version of Numba may have other parts. It loads the kernel itself.
        warn(f"kernels are loaded by Numba alone, as object code cannot be written: {type(error).__name__}: {error}")
        result, externals, code = "", [], b""
    object_code.keep(function, kinds, result, externals, code)


def _kind(of: Any) -> Kind:
    if isinstance(of, types.BaseTuple) and not isinstance(of, types.BaseNamedTuple) and len(of):
        return tuple(map(_kind, of))
    if isinstance(of, types.Array) and of.layout == "C" and of.mutable and of.aligned and of.ndim:
        return f"{_kind(of.dtype)}[{',' * (of.ndim - 1)}]"
    if isinstance(of, types.Literal) or not (_is_integer(of) or of in (types.float32, types.float64)):
        raise Unsupported
    return str(of)


def _is_integer(of: Any) -> bool:
    return isinstance(of, types.Boolean) or (isinstance(of, types.Integer) and of.bitwidth <= 64)


def _result(of: Any) -> str:
    """The words of a result as `struct` reads them, "?" for a truth value; those of a tuple in parentheses."""
    if of == types.none:
        return ""
    if isinstance(of, types.BaseTuple):
        if not len(of) or any(isinstance(part, (types.BaseTuple, types.Boolean)) for part in of):
            raise Unsupported
        return f"({''.join(map(_result, of))})"
    if isinstance(of, types.Boolean):
        return "?"
    if isinstance(of, types.Float):
        return "d"
    if not _is_integer(of):
        raise Unsupported
    return "q" if of.signed else "Q"


def _emitted(compiled: Any, symbol: str, is_packed: bool) -> tuple[list[str], bytes]:
    """The functions of other libraries that it calls, and its code."""
    if not object_code.can_be_written():
        raise Unsupported
    library = compiled.library
    machine = target_machine(library)
    entry = empty_module(library, symbol)
    native = compiled.target_context.declare_function(entry, compiled.fndesc)
    (_write_function if is_packed else _write_entry)(entry, symbol, native, compiled)
    ends = ir.IRBuilder(ir.Function(entry, ir.FunctionType(ir.VoidType(), [_BYTES]), _FREES).append_basic_block())
    ends.ret_void()
    module = whole_module(library)
    module.link_in(llvm.parse_assembly(cgutils.normalize_ir_text(str(entry))))
    for part in (*module.functions, *module.global_variables):
        if not part.is_declaration and part.name != symbol:
            part.linkage = "internal"
    manager = llvm.create_new_module_pass_manager()
    manager.add_global_dead_code_eliminate_pass()
    manager.run(module, llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options()))
    externals = [
        part.name
        for part in (*module.functions, *module.global_variables)
        if part.is_declaration and not part.name.startswith("llvm.")
    ]
    if any(map(_FOREIGN.match, externals)) or _UNSAFE.search(str(module)):
        raise Unsupported
    return externals, machine.emit_object(module)


def _write_function(module: ir.Module, symbol: str, native: Any, compiled: Any) -> None:
    """The function of C; a kernel that could raise is not written."""
    function = ir.Function(module, ir.FunctionType(_I64, [_I64, _I64]), symbol)
    builder = ir.IRBuilder(function.append_basic_block())
    builder.ret(_call(builder, native, compiled, function.args)[1])


def _write_entry(module: ir.Module, symbol: str, native: Any, compiled: Any) -> None:
    """A function of the address of the words of all arguments, with those of the result behind."""
    function = ir.Function(module, ir.FunctionType(_I32, [_BYTES]), symbol)
    builder = ir.IRBuilder(function.append_basic_block())
    words = _words(builder, builder.bitcast(function.args[0], _I64.as_pointer()))
    context = compiled.target_context
    flags: list[Any] = []
    arguments = [_argument(context, builder, of, words, flags) for of in compiled.signature.args]
    needed = _I32(object_code.NEEDED)
    together = reduce(builder.and_, flags, needed)
    with builder.if_then(builder.icmp_unsigned("!=", together, needed), likely=False):
        builder.ret(_I32(object_code.REFUSED))
    status, result = _call(builder, native, compiled, arguments)
    of = compiled.signature.return_type
    parts = [(of, result)]
    if isinstance(of, types.BaseTuple):
        parts = list(zip(of, cgutils.unpack_tuple(builder, result, len(of))))
    for part, value in parts if of != types.none else ():
        builder.store(_wide(builder, part, value), builder.bitcast(next(words), _wide_type(part).as_pointer()))
    builder.ret(status.code)


def _call(builder: Any, native: Any, compiled: Any, arguments: Sequence[Any]) -> tuple[Any, Any]:
    of = compiled.signature
    return compiled.target_context.call_conv.call_function(builder, native, of.return_type, of.args, arguments)


def _words(builder: Any, first: Any) -> Iterator[Any]:
    """Pointers to one word after the other."""
    number = 0
    while True:
        yield builder.gep(first, [_I64(number)])
        number += 1


def _argument(context: Any, builder: Any, of: Any, words: Iterator[Any], flags: list[Any]) -> Any:
    """An argument from its words; the flags of arrays are appended to `flags`."""
    if isinstance(of, types.BaseTuple):
        return context.make_tuple(builder, of, [_argument(context, builder, part, words, flags) for part in of])
    if not isinstance(of, types.Array):
        word = builder.load(builder.bitcast(next(words), _wide_type(of).as_pointer()))
        return _narrow(builder, of, word)
    element = context.get_data_type(of.dtype)
    array = builder.inttoptr(builder.load(next(words)), _BYTES)
    flags.append(_field(builder, array, object_code.FLAGS, _I32))
    address = _field(builder, array, object_code.DATA, _I64)
    extents = _field(builder, array, object_code.SHAPE, _I64.as_pointer())
    shape = [builder.load(builder.gep(extents, [_I64(axis)])) for axis in range(of.ndim)]
    size = _I64(context.get_abi_sizeof(element))
    strides = [size]
    for extent in shape[:0:-1]:
        strides.insert(0, builder.mul(strides[0], extent))
    made = context.make_array(of)(context, builder)
    populate_array(
        made,
        data=builder.inttoptr(address, element.as_pointer()),
        shape=cgutils.pack_array(builder, shape),
        strides=cgutils.pack_array(builder, strides),
        itemsize=size,
        meminfo=None,
    )
    return made._getvalue()


def _field(builder: Any, array: Any, place: int, of: Any) -> Any:
    return builder.load(builder.bitcast(builder.gep(array, [_I64(place)]), of.as_pointer()))


def _wide_type(of: Any) -> Any:
    return ir.DoubleType() if isinstance(of, types.Float) else _I64


def _narrow(builder: Any, of: Any, word: Any) -> Any:
    """The number of a type in a word."""
    if isinstance(of, types.Boolean):
        return builder.icmp_unsigned("!=", word, _I64(0))
    if isinstance(of, types.Float):
        return word if of.bitwidth == 64 else builder.fptrunc(word, ir.FloatType())
    return word if of.bitwidth == 64 else builder.trunc(word, ir.IntType(of.bitwidth))


def _wide(builder: Any, of: Any, value: Any) -> Any:
    """The word of a number."""
    if isinstance(of, types.Boolean):
        return builder.zext(value, _I64)
    if isinstance(of, types.Float):
        return value if of.bitwidth == 64 else builder.fpext(value, ir.DoubleType())
    if of.bitwidth == 64:
        return value
    return (builder.sext if of.signed else builder.zext)(value, _I64)
