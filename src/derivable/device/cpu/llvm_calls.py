"""How Python calls compiled kernels: one function of C for all of them, compiled once, which CPython calls directly.

A kernel takes the address of words of 64 bits (see `kernel.emit_llvm`). The function here makes them of Python's
objects as a *form* says, a list of words that stays in memory: the kernel's address, what its parameters and results
are, and the addresses of some of Python's objects. Of an array it reads the object of NumPy, as NumPy's headers lay it
out.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from derivable.device.cpu import cpython
from derivable.kernel import nodes as n
from derivable.kernel.emit_llvm import ENTRY
from derivable.kernel.signature import held_dtype, result_types, written_arrays

# What a parameter or result is; an array has its dtype's size and letter beside the first bit here.
_INTEGER, _FLOAT, _TRUTH, _UNSIGNED = range(4)
_ARRAY, _WRITTEN = 1 << 32, 1 << 33
# The words of a form before those of parameters and results.
_FIELDS = 7


def _text(message: str) -> str:
    return f'[{len(message) + 1} x i8] c"{message}\\00"'


TEXT = f"""; ptr {ENTRY}(PyObject *form, PyObject *const *arguments, Py_ssize_t count)

@of_number = private constant {_text("a kernel takes %zd arguments, and %zd are passed")}
@of_array = private constant {_text("argument %zd of a kernel is no aligned array in C order of its dtype")}

define ptr @{ENTRY}(ptr %self, ptr %arguments, i64 %count) nounwind {{
entry:
  %form = call ptr @PyLong_AsVoidPtr(ptr %self)
  %kernel = load ptr, ptr %form
  %at1 = getelementptr i64, ptr %form, i64 1
  %parameters = load i64, ptr %at1
  %at2 = getelementptr i64, ptr %form, i64 2
  %results = load i64, ptr %at2
  %at3 = getelementptr i64, ptr %form, i64 3
  %error = load ptr, ptr %at3
  %at4 = getelementptr i64, ptr %form, i64 4
  %none = load ptr, ptr %at4
  %at5 = getelementptr i64, ptr %form, i64 5
  %array_type = load ptr, ptr %at5
  %kinds = getelementptr i64, ptr %form, i64 {_FIELDS}
  %kinds_of_results = getelementptr i64, ptr %kinds, i64 %parameters
  %size = add i64 %parameters, %results
  %words = alloca i64, i64 %size
  %fits = icmp eq i64 %count, %parameters
  br i1 %fits, label %test, label %other_number

other_number:
  call i32 (ptr, ptr, ...) @PyErr_Format(ptr %error, ptr @of_number, i64 %parameters, i64 %count)
  ret ptr null

test:
  %k = phi i64 [ 0, %entry ], [ %following, %next ]
  %more = icmp slt i64 %k, %parameters
  br i1 %more, label %argument, label %run

argument:
  %place = getelementptr ptr, ptr %arguments, i64 %k
  %object = load ptr, ptr %place
  %kind_at = getelementptr i64, ptr %kinds, i64 %k
  %kind = load i64, ptr %kind_at
  %word_at = getelementptr i64, ptr %words, i64 %k
  switch i64 %kind, label %array [
    i64 {_INTEGER}, label %integer
    i64 {_FLOAT}, label %float
    i64 {_TRUTH}, label %truth
    i64 {_UNSIGNED}, label %unsigned
  ]

integer:
  %number = call i64 @PyLong_AsLongLong(ptr %object)
  store i64 %number, ptr %word_at
  %maybe1 = icmp eq i64 %number, -1
  br i1 %maybe1, label %check, label %next

unsigned:
  %bits = call i64 @PyLong_AsUnsignedLongLongMask(ptr %object)
  store i64 %bits, ptr %word_at
  %maybe2 = icmp eq i64 %bits, -1
  br i1 %maybe2, label %check, label %next

float:
  %real = call double @PyFloat_AsDouble(ptr %object)
  store double %real, ptr %word_at
  %maybe3 = fcmp oeq double %real, -1.0
  br i1 %maybe3, label %check, label %next

truth:
  %holds = call i32 @PyObject_IsTrue(ptr %object)
  %wide = sext i32 %holds to i64
  store i64 %wide, ptr %word_at
  %maybe4 = icmp eq i32 %holds, -1
  br i1 %maybe4, label %check, label %next

check:
  %raised = call ptr @PyErr_Occurred()
  %fine = icmp eq ptr %raised, null
  br i1 %fine, label %next, label %fail

array:
  %type_at = getelementptr i8, ptr %object, i64 {cpython.TYPE}
  %type = load ptr, ptr %type_at
  %is_array = icmp eq ptr %type, %array_type
  br i1 %is_array, label %fields, label %maybe_array

maybe_array:
  %is_kind_of_array = call i32 @PyType_IsSubtype(ptr %type, ptr %array_type)
  %not_array = icmp eq i32 %is_kind_of_array, 0
  br i1 %not_array, label %refused, label %fields

fields:
  %flags_at = getelementptr i8, ptr %object, i64 {cpython.FLAGS}
  %flags = load i32, ptr %flags_at
  %is_written = and i64 %kind, {_WRITTEN}
  %reads = icmp eq i64 %is_written, 0
  %needed = select i1 %reads, i32 {cpython.READABLE}, i32 {cpython.READABLE | cpython.WRITEABLE}
  %has = and i32 %flags, %needed
  %has_flags = icmp eq i32 %has, %needed
  %dtype_at = getelementptr i8, ptr %object, i64 {cpython.DTYPE}
  %dtype = load ptr, ptr %dtype_at
  %letter_at = getelementptr i8, ptr %dtype, i64 {cpython.KIND}
  %letter = load i8, ptr %letter_at
  %order_at = getelementptr i8, ptr %dtype, i64 {cpython.ORDER}
  %order = load i8, ptr %order_at
  %item_at = getelementptr i8, ptr %dtype, i64 {cpython.ITEMSIZE}
  %item = load i64, ptr %item_at
  %item_shifted = shl i64 %item, 8
  %letter_wide = zext i8 %letter to i64
  %of_dtype = or i64 %item_shifted, %letter_wide
  %wanted = and i64 %kind, {_ARRAY - 1}
  %same = icmp eq i64 %of_dtype, %wanted
  %native = icmp ne i8 %order, {cpython.FOREIGN}
  %good1 = and i1 %same, %native
  %good2 = and i1 %good1, %has_flags
  br i1 %good2, label %take, label %refused

take:
  %data_at = getelementptr i8, ptr %object, i64 {cpython.DATA}
  %data = load i64, ptr %data_at
  store i64 %data, ptr %word_at
  br label %next

refused:
  call i32 (ptr, ptr, ...) @PyErr_Format(ptr %error, ptr @of_array, i64 %k)
  ret ptr null

next:
  %following = add i64 %k, 1
  br label %test

run:
  %thread = call ptr @PyEval_SaveThread()
  call void %kernel(ptr %words)
  call void @PyEval_RestoreThread(ptr %thread)
  %first = getelementptr i64, ptr %words, i64 %parameters
  switch i64 %results, label %several [
    i64 0, label %nothing
    i64 1, label %single
  ]

nothing:
  %shared = call ptr @Py_NewRef(ptr %none)
  ret ptr %shared

single:
  %made = call ptr @boxed(ptr %kinds_of_results, ptr %first)
  ret ptr %made

several:
  %tuple = call ptr @PyTuple_New(i64 %results)
  %failed = icmp eq ptr %tuple, null
  br i1 %failed, label %fail, label %part

part:
  %p = phi i64 [ 0, %several ], [ %after, %set ]
  %part_kind = getelementptr i64, ptr %kinds_of_results, i64 %p
  %part_word = getelementptr i64, ptr %first, i64 %p
  %part_made = call ptr @boxed(ptr %part_kind, ptr %part_word)
  %part_failed = icmp eq ptr %part_made, null
  br i1 %part_failed, label %fail, label %set

set:
  call i32 @PyTuple_SetItem(ptr %tuple, i64 %p, ptr %part_made)
  %after = add i64 %p, 1
  %rest = icmp slt i64 %after, %results
  br i1 %rest, label %part, label %done

done:
  ret ptr %tuple

fail:
  ret ptr null
}}

define internal ptr @boxed(ptr %kind_at, ptr %word_at) nounwind {{
entry:
  %kind = load i64, ptr %kind_at
  %word = load i64, ptr %word_at
  switch i64 %kind, label %integer [
    i64 {_FLOAT}, label %float
    i64 {_TRUTH}, label %truth
    i64 {_UNSIGNED}, label %unsigned
  ]

integer:
  %a = call ptr @PyLong_FromLongLong(i64 %word)
  ret ptr %a

unsigned:
  %b = call ptr @PyLong_FromUnsignedLongLong(i64 %word)
  ret ptr %b

float:
  %real = load double, ptr %word_at
  %c = call ptr @PyFloat_FromDouble(double %real)
  ret ptr %c

truth:
  %d = call ptr @PyBool_FromLong(i64 %word)
  ret ptr %d
}}

declare ptr @PyLong_AsVoidPtr(ptr)
declare i64 @PyLong_AsLongLong(ptr)
declare i64 @PyLong_AsUnsignedLongLongMask(ptr)
declare double @PyFloat_AsDouble(ptr)
declare i32 @PyObject_IsTrue(ptr)
declare ptr @PyErr_Occurred()
declare i32 @PyErr_Format(ptr, ptr, ...)
declare i32 @PyType_IsSubtype(ptr, ptr)
declare ptr @PyEval_SaveThread()
declare void @PyEval_RestoreThread(ptr)
declare ptr @Py_NewRef(ptr)
declare ptr @PyTuple_New(i64)
declare i32 @PyTuple_SetItem(ptr, i64, ptr)
declare ptr @PyLong_FromLongLong(i64)
declare ptr @PyLong_FromUnsignedLongLong(i64)
declare ptr @PyFloat_FromDouble(double)
declare ptr @PyBool_FromLong(i64)
"""


class _Form(int):
    """The address of a form, which a function of Python has as its `self`: pickle asks it for the function by name."""

    pickled: Callable[[], tuple]

    def __reduce__(self) -> tuple:
        return self.pickled()


@dataclass(frozen=True)
class Signature:
    """How the function of a kernel is called.

    kinds, results  what its parameters and results are, as a form says it
    """

    name: str
    kinds: tuple[int, ...]
    results: tuple[int, ...]


def signature_of(kernel: n.Kernel) -> Signature:
    written = written_arrays(kernel)
    kinds = [_kind_of(kernel, parameter, parameter in written) for parameter in kernel.parameters]
    return Signature(kernel.name, tuple(kinds), tuple(map(_number_of, result_types(kernel))))


def function(signature: Signature, address: int, caller: int, pickled: Callable[[], tuple]) -> Callable:
    """The function of Python for a kernel.

    address  of its code, which takes words
    caller   of the code of `TEXT`
    pickled  gives (callable, arguments): makes an object with the function as its attribute
    """
    kinds, results = signature.kinds, signature.results
    known = [id(TypeError), id(None), id(np.ndarray), 0]
    words = [address, len(kinds), len(results), *known, *kinds, *results]
    form = cpython.immortal((ctypes.c_int64 * len(words))(*words))
    owner = _Form(ctypes.addressof(form))
    owner.pickled = pickled
    return cpython.built_in(signature.name, caller, owner)


def _kind_of(kernel: n.Kernel, parameter: n.Register | n.Array, is_written: bool) -> int:
    if not isinstance(parameter, n.Array):
        return _number_of(parameter.dtype)
    dtype = np.dtype(held_dtype(parameter, kernel.lanes))
    return _ARRAY | is_written * _WRITTEN | dtype.itemsize << 8 | ord(dtype.kind)


def _number_of(dtype: str) -> int:
    if dtype == "uint64":
        return _UNSIGNED
    return {"b": _TRUTH, "f": _FLOAT}.get(np.dtype(dtype).kind, _INTEGER)
