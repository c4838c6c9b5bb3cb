"""What compiled code knows of CPython and NumPy: where their objects have fields, and functions and objects by name."""

from __future__ import annotations

import ctypes
import pickle
import struct
import sys
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from derivable.core.diagnostics import UnsupportedError

# Where objects have their type, a number its value, a tuple its length and its items; an array the address of its
# numbers, its axes, its shape, its dtype and its flags; and a dtype the letter of its kind, its order of bytes and its
# size.
TYPE, NUMBER, LENGTH, ITEMS = 8, 16, 16, 24
DATA, AXES, SHAPE, DTYPE, FLAGS = 16, 24, 32, 56, 64
KIND, ORDER, ITEMSIZE = 24, 26, 40
# The flags of arrays that are in C order and aligned, and of those that may be written; the order that is not native.
READABLE, WRITEABLE = 0x1 | 0x100, 0x400
FOREIGN = ord(">" if sys.byteorder == "little" else "<")
# The numbers and arrays that kernels have.
DTYPES = [*(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)), "bool", "float32", "float64"]
ARRAY_TYPE, EMPTY, LOADS = "derivable_ndarray", "derivable_empty", "derivable_loads"


def scalar_type(name: str) -> str:
    """The symbol of the type of NumPy's scalars."""
    return f"derivable_{name}"


def dtype_symbol(name: str) -> str:
    """The symbol of a dtype of NumPy."""
    return f"derivable_dtype_{name}"


def _in_python(name: str) -> Callable[[], int]:
    return lambda: ctypes.addressof(ctypes.c_char.in_dll(ctypes.pythonapi, name))


_FUNCTIONS = """PyEval_SaveThread PyEval_RestoreThread Py_IncRef Py_DecRef PyLong_AsLongLong PyErr_Occurred PyErr_Clear
    PyBytes_FromStringAndSize PyObject_CallOneArg PyTuple_GetItem PyErr_SetObject PyTuple_New PyTuple_SetItem
    PyBool_FromLong PyFloat_FromDouble PyLong_FromLongLong PyLong_FromUnsignedLongLong PyObject_CallObject"""
_OBJECTS = """PyLong_Type PyFloat_Type PyBool_Type PyTuple_Type _Py_TrueStruct _Py_NoneStruct
    _Py_NotImplementedStruct"""
# What kernels that are written by hand call and compare with: symbol -> its address.
SYMBOLS: dict[str, Callable[[], int]] = {
    **{name: _in_python(name) for name in (*_FUNCTIONS.split(), *_OBJECTS.split())},
    **{scalar_type(name): lambda name=name: id(np.dtype(name).type) for name in DTYPES},
    **{dtype_symbol(name): lambda name=name: id(np.dtype(name)) for name in DTYPES},
    ARRAY_TYPE: lambda: id(np.ndarray),
    EMPTY: lambda: id(np.empty),
    LOADS: lambda: id(pickle.loads),
}


@cache
def check_layout() -> None:
    """Raise UnsupportedError unless objects are laid out as is said here."""
    if not _has_layout():
        python, numpy = f"{sys.implementation.name} {sys.version.split()[0]}", np.__version__
        raise UnsupportedError(f"kernels are for CPython of 64 bits and NumPy 2, not {python} with NumPy {numpy}")


def _has_layout() -> bool:
    is_known = sys.implementation.name == "cpython" and struct.calcsize("P") == 8
    if not is_known or (object.__basicsize__, tuple.__basicsize__) != (NUMBER, ITEMS):
        return False
    probe, pair, number = np.zeros((3, 5), np.int16), (None, 7), np.int64(3)
    word, short = ctypes.c_int64.from_address, ctypes.c_int.from_address
    shape, dtype = word(id(probe) + SHAPE).value, word(id(probe) + DTYPE).value
    return (
        word(id(probe) + TYPE).value == id(np.ndarray)
        and word(id(probe) + DATA).value == probe.ctypes.data
        and short(id(probe) + AXES).value == 2
        and [word(shape).value, word(shape + 8).value] == [3, 5]
        and short(id(probe) + FLAGS).value == probe.flags.num
        and dtype == id(probe.dtype)
        and ctypes.string_at(dtype + KIND, 3) == b"ih="
        and word(dtype + ITEMSIZE).value == 2
        and word(id(number) + NUMBER).value == number
        and [word(id(pair) + LENGTH).value, word(id(pair) + ITEMS + 8).value] == [2, id(pair[1])]
    )


class _Method(ctypes.Structure):
    """CPython's PyMethodDef."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("function", ctypes.c_void_p),
        ("flags", ctypes.c_int),
        ("doc", ctypes.c_char_p),
    )


# Arguments come as an array of objects.
_FASTCALL = 0x80


def immortal(value: Any) -> Any:
    """The value, which is never freed, not even when the interpreter ends.

    Functions that refer to its address may then be freed later than whatever a module holds.
    """
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(value))
    return value


def built_in(name: str, address: int, of: Any = None, doc: str | None = None) -> Callable:
    """The built-in function whose code is at an address; it gets `of` as its first argument."""
    check_layout()
    method = immortal(_Method(name.encode(), address, _FASTCALL, doc and doc.encode()))
    new = ctypes.pythonapi.PyCFunction_NewEx
    new.restype, new.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p]
    return new(ctypes.addressof(method), of, None)
