"""Calls with arguments that somebody differentiates or traces: torch tensors that require gradients or stand under
`torch.func`, and JAX arrays. Their results are of that library, and have derivatives of any order.

Tensors on other devices than the CPU, and sums of other semirings, run as gathers of torch (`gathers`), all else by the
kernels, as an engine of the bridge.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from derivable.bridge.protocol import Shape
from derivable.core.diagnostics import DomainError, UnsupportedError
from derivable.tensor.engine import ProgramEngine
from derivable.tensor.formats.held import Held, hold
from derivable.tensor.formats.standard import PLAIN
from derivable.tensor.inputs import checked_names
from derivable.tensor.types import REAL, Type, is_tensor
from derivable.tensor.values import Coordinates, check_shape, tracker

if TYPE_CHECKING:
    from derivable.tensor.compilation import Kernel


def call(kernel: Kernel, who: str, values: Mapping[str, Any]) -> Any:
    """The result of a kernel, of the library of its arguments; without axes an array of none.

    Raises UnsupportedError for JAX in another semiring than the real one, DomainError for a form of the result that
    records nothing.
    """
    if who == "elsewhere" or (who == "torch" and kernel.semiring.name != "real"):
        return kernel.gathers(**values)
    _check(kernel, who)
    variables: dict[str, Held | Shape] = {}
    given: dict[str, Any] = {}
    operands: list[Any] = []
    for name, value, of in checked_names(kernel.program.inputs, kernel.inputs, values):
        part = _operand(kernel, value, of, name)
        given[name] = value
        if part is not None:
            variables[name], operand = part
            given[name] = _numbers(variables[name], operand)
            operands.append(operand)
    held, others, shape, is_dense = kernel.outlined(given)
    constants = {name: held.get(name, others.get(name)) for name in given if name not in variables}
    pattern = None
    if shape and not is_dense:
        found = kernel.derived.kernel(kernel.program, False, shape)(**held, **others)
        pattern = Coordinates(found.shape, found.indices, found.values)
    # What is not named is a constant of each call, so an engine is made for each; what it compiles is kept.
    engine = ProgramEngine((kernel.program,), variables, constants, (shape,), (pattern,), kernel.derived).registered()
    (result,) = library_run(operands)(engine, None, operands)
    return result if pattern is None else _formed(kernel.output, pattern, result)


def _check(kernel: Kernel, who: str) -> None:
    if kernel.semiring.name != "real":
        raise UnsupportedError(
            f"in JAX programs run in the real semiring, and this is {kernel.semiring.name!r}",
            hint="torch tensors are differentiated in any semiring whose sums torch has",
        )
    forms = (None, "dense", "coordinates", *(("torch", "torch_coo", "torch_csr") if who == "torch" else ()))
    if kernel.output not in forms:
        what = kernel.output if isinstance(kernel.output, str) else kernel.output.name  # type: ignore[union-attr]
        raise DomainError(
            f"a result in the form {what!r} records no gradients, which an input requires",
            hint=f"ask for {' or '.join(repr(form) for form in forms[1:])}, or give values without gradients",
        )


def _operand(kernel: Kernel, value: Any, of: Type, name: str) -> tuple[Held | Shape, Any] | None:
    """(where the entries are, an array of a library [entry]) of an argument that is differentiated, else None."""
    if tracker([value]) is None or not (of == REAL or is_tensor(of)):
        return None
    format = kernel.formats.get(name)
    if isinstance(value, Coordinates):
        entries = value
    elif _is_array(value):
        check_shape(tuple(value.shape), None, of.order, name)
        if format is not None and format.name != "dense":
            raise UnsupportedError(
                f"`{name}` is a dense array that is differentiated, and was declared `{format.name}`",
                hint="give a sparse tensor, or leave the format out",
            )
        return tuple(value.shape), value
    else:
        from derivable.tensor.gathers import torch_entries

        check_shape(tuple(value.shape), None, of.order, name)
        entries = torch_entries(value)
    if format is not None and format.name not in PLAIN:
        raise UnsupportedError(
            f"`{name}` is differentiated by its entries, and was declared `{format.name}`, which may hold others",
            hint="leave the format out",
        )
    numbers = np.ones(len(entries.values))
    held = hold(Coordinates(entries.shape, entries.indices, numbers), "csr" if of.order == 2 else "csf", of.order)
    return held, entries.values


def _is_array(value: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is None or not isinstance(value, torch.Tensor) or value.layout == torch.strided


def _numbers(of: Held | Shape, operand: Any) -> Any:
    """Numbers to find out with where entries are: those of the operand, if they are known, else ones."""
    try:
        found = np.asarray(operand.detach() if hasattr(operand, "detach") else operand, np.float64)
    except Exception:  # A tracer of any library says in its own way that it has no numbers.
        found = None
    shape = of.arrays["val"].shape if isinstance(of, Held) else of
    if found is None or found.shape != shape:
        found = np.ones(shape)
    if isinstance(of, Held):
        return Held(of.format, of.shape, {**of.arrays, "val": found})
    return found if of else found.item()


def library_run(operands: list[Any]) -> Any:
    """What runs an engine on arrays of a library."""
    torch = sys.modules.get("torch")
    if torch is not None and any(isinstance(operand, torch.Tensor) for operand in operands):
        from derivable.bridge.torch import run

        return run
    jax = sys.modules.get("jax")
    if jax is not None and any(isinstance(operand, jax.Array) for operand in operands):
        from derivable.bridge.jax import run

        return run
    return lambda engine, structure, arrays: engine.apply(structure, [np.asarray(x, np.float64) for x in arrays])


def _formed(output: Any, pattern: Coordinates, values: Any) -> Any:
    """A sparse result from its values [entry]."""
    found = Coordinates(pattern.shape, pattern.indices, values)
    if output == "coordinates":
        return found
    if hasattr(values, "detach"):
        return found.to_torch("csr" if output == "torch_csr" else "coo")
    from jax.experimental.sparse import BCOO

    data: Any = values, pattern.indices.T
    return BCOO(data, shape=pattern.shape, indices_sorted=True, unique_indices=True)
