"""What a compiled kernel takes and returns: types of results, arrays that it writes, and types of their memory."""

from __future__ import annotations

from derivable.algebra.expr.emit_llvm import scalar_type
from derivable.algebra.expr.types import HALVES, WIDTHS
from derivable.core.diagnostics import UnsupportedError
from derivable.kernel import nodes as n


def result_types(kernel: n.Kernel) -> tuple[str, ...]:
    """The types of what a kernel returns."""
    for statement in n.walk(kernel.body):
        if isinstance(statement, n.Return):
            return tuple(value.dtype for value in statement.values)
    return ()


def written_arrays(kernel: n.Kernel) -> frozenset[n.Array]:
    """The parameters that a kernel, or one that it calls, may write to."""
    written: set[n.Array] = set()
    for statement in n.walk(kernel.body):
        if isinstance(statement, (n.Store, n.SetBit, n.StoreLine, n.StoreRows, n.Scatter)):
            written.add(statement.array)
        elif isinstance(statement, n.Call):
            inner = written_arrays(statement.kernel)
            for argument, parameter in zip(statement.arguments, statement.kernel.parameters):
                if parameter in inner and isinstance(argument, n.Array):
                    written.add(argument)
    return frozenset(written)


def held_dtype(array: n.Array, lanes: int) -> str:
    """The dtype of the numbers of an array: of lines of truth values integers, all bits set where they hold."""
    if array.is_lines and array.dtype == "bool":
        return "int32" if lanes == 16 else "int64"
    return array.dtype


def memory_type(dtype: str) -> str:
    """The type of an array's scalars."""
    if dtype in HALVES:
        raise UnsupportedError(f"kernels of the CPU have no arrays of {dtype}", hint="convert them to float32")
    return "i8" if dtype == "bool" else scalar_type(dtype)


def itemsize(dtype: str) -> int:
    return {"bool": 1, "float32": 4, "float64": 8}.get(dtype) or WIDTHS[dtype] // 8
