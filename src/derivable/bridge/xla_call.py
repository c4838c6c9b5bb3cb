"""Python functions of NumPy arrays inside XLA programs on the CPU, which read and write XLA's own buffers.

JAX's call-backs copy each operand, and each result slowly. This one is a handler of XLA's foreign function interface
(`xla/ffi/api/c_api.h`, whose structures are below as far as they are read), written with `ctypes`.
"""

from __future__ import annotations

import ctypes
import hashlib
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

TARGET = "derivable_call"
# Of the interface (XLA_FFI_API_MAJOR).
MAJOR = 0


def _structure(**fields: Any) -> Any:
    return type("Structure", (ctypes.Structure,), {"_fields_": tuple(fields.items())})


_size, _pointer, _int = ctypes.c_size_t, ctypes.c_void_p, ctypes.c_int
_Version = _structure(size=_size, extension=_pointer, major=_int, minor=_int)
_Metadata = _structure(size=_size, version=_Version, traits=ctypes.c_uint32)
_Extension = _structure(size=_size, type=_int, next=_pointer, metadata=ctypes.POINTER(_Metadata))
_Error = _structure(size=_size, extension=_pointer, message=ctypes.c_char_p, code=_int)
_Create = ctypes.CFUNCTYPE(_pointer, ctypes.POINTER(_Error))
_Api = _structure(size=_size, extension=_pointer, version=_Version, internal=_pointer, error_create=_Create)
_Buffer = _structure(size=_size, extension=_pointer, dtype=_int, data=_pointer)
_Scalar = _structure(dtype=_int, value=ctypes.POINTER(ctypes.c_int64))
_list: dict[str, Any] = {"size": _size, "extension": _pointer, "count": ctypes.c_int64, "types": _pointer}
_Buffers = _structure(**_list, buffers=ctypes.POINTER(ctypes.POINTER(_Buffer)))
_Attributes = _structure(**_list, names=_pointer, values=ctypes.POINTER(ctypes.POINTER(_Scalar)))
_Frame = _structure(
    size=_size,
    extension=ctypes.POINTER(_Extension),
    api=ctypes.POINTER(_Api),
    context=_pointer,
    stage=_int,
    operands=_Buffers,
    results=_Buffers,
    attributes=_Attributes,
)
_METADATA, _EXECUTE, _INTERNAL = 1, 3, 13
Shapes = tuple[tuple[tuple[int, ...], np.dtype], ...]
_calls: dict[int, tuple[Callable, Shapes, Shapes]] = {}


def lower(context: Any, function: Callable, key: str, operands: Sequence[Any]) -> Any:
    """The lowering of a primitive on the CPU to a call of `function`.

    function  of the operands as NumPy arrays, which it must not change, to a sequence of arrays of the types and
              shapes of the results
    key       names what the function computes: compiled programs that JAX keeps on disk find it by that in another
              process, where tracing them again has made it known
    """
    taken = tuple((tuple(aval.shape), np.dtype(aval.dtype)) for aval in context.avals_in)
    given = tuple((tuple(aval.shape), np.dtype(aval.dtype)) for aval in context.avals_out)
    digest = hashlib.sha256(repr((key, taken, given)).encode()).digest()
    number = int.from_bytes(digest[:8], "little", signed=True)
    _calls[number] = function, taken, given
    return jax.ffi.ffi_lowering(TARGET)(context, *operands, number=np.int64(number))


def _arrays(buffers: Any, shapes: Shapes, *, writeable: bool) -> list[np.ndarray]:
    found = []
    for k, (shape, dtype) in enumerate(shapes):
        count = int(np.prod(shape, dtype=np.int64))
        if count == 0:
            array = np.empty(shape, dtype)
        else:
            memory: Any = (ctypes.c_char * (count * dtype.itemsize)).from_address(buffers.buffers[k].contents.data)
            array = np.frombuffer(memory, np.uint8).view(dtype).reshape(shape)
        array.flags.writeable = writeable
        found.append(array)
    return found


def _handle(pointer: Any) -> int | None:
    frame = pointer.contents
    try:
        if frame.extension and frame.extension.contents.type == _METADATA:
            # XLA asks which version of the interface this was written for, and refuses the handler if its own has
            # another major number, so structures that have changed are never misread. Minor ones only add to them.
            metadata, version = frame.extension.contents.metadata.contents, frame.api.contents.version
            metadata.version.major, metadata.version.minor = MAJOR, version.minor
            metadata.traits = 0
        elif frame.stage == _EXECUTE:
            function, taken, given = _calls[frame.attributes.values[0].contents.value.contents.value]
            results = function(*_arrays(frame.operands, taken, writeable=False))
            for out, result in zip(_arrays(frame.results, given, writeable=True), results, strict=True):
                np.copyto(out, result)
    except BaseException as error:
        return frame.api.contents.error_create(
            _Error(ctypes.sizeof(_Error), None, f"{type(error).__name__}: {error}".encode(), _INTERNAL)
        )
    return None


_handler = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.POINTER(_Frame))(_handle)
jax.ffi.register_ffi_target(TARGET, jax.ffi.pycapsule(_handler), platform="cpu")
