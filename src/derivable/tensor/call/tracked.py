"""Calls with arguments that somebody differentiates or traces: torch tensors that require gradients or stand under
`torch.func`, and JAX arrays. Their results are of that library, and have derivatives of any order.

Tensors on other devices than the CPU, and sums of other semirings, run as gathers of torch (`device_kernel`), all else
by the kernels, as an engine of the bridge.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from typing import TYPE_CHECKING, Any

import numpy as np

from derivable.bridge.arrays import refuse_unreadable
from derivable.bridge.protocol import Shape
from derivable.core.diagnostics import DomainError, UnsupportedError
from derivable.tensor.call.engine import ProgramEngine
from derivable.tensor.formats.held import Held
from derivable.tensor.formats.standard import PLAIN
from derivable.tensor.language.types import REAL, Type, is_tensor
from derivable.tensor.values.inputs import checked_names
from derivable.tensor.values.values import Coordinates, as_torch, check_shape, has_torch, tracker

if TYPE_CHECKING:
    from derivable.tensor.call.compilation import Kernel


def is_read() -> bool:
    """Whether `torch.compile` or `torch.jit.trace` look at the code that runs: calls go by `in_graph` then."""
    torch: Any = sys.modules.get("torch")
    # Another thread may be importing torch.
    return hasattr(torch, "compiler") and (torch.compiler.is_dynamo_compiling() or torch.jit.is_tracing())


def in_graph(function: Callable[..., Any], values: Mapping[Any, Any], *given: Any) -> Any:
    """`function(values, *given)` in a graph, as `compiled.one_node`, which takes the tensors among the values.

    function  at the top of a module, or a class
    """
    import torch

    from derivable.bridge import compiled

    names = [name for name, value in values.items() if isinstance(value, torch.Tensor)]
    others = [(name, value) for name, value in values.items() if not isinstance(value, torch.Tensor)]
    other_names, other_values = tuple([name for name, _ in others]), [value for _, value in others]
    tensors = [values[name] for name in names]
    return compiled.one_node(_joined, tensors, function, tuple(names), other_names, *other_values, *given)


def _joined(tensors: Any, function: Callable[..., Any], names: Any, other_names: Any, *rest: Any) -> Any:
    others, given = rest[: len(other_names)], rest[len(other_names) :]
    return function({**dict(zip(names, tensors)), **dict(zip(other_names, others))}, *given)


def call(kernel: Kernel, who: str, values: Mapping[str, Any]) -> Any:
    """The result of a kernel, of the library of its arguments; without axes an array of none.

    Raises UnsupportedError for JAX in a semiring without derivatives, DomainError for a form of the result that records
    nothing.
    """
    if who == "elsewhere" or (who == "torch" and kernel.semiring.name != "real"):
        return kernel.on_device(**values)
    zero = float(kernel.semiring.zero)
    if kernel.semiring.name != "real":
        # Sums of real numbers over the terms that are taken.
        kernel = kernel.in_reals
    form = tracked_form(kernel.output, who)
    variables: dict[str, Held | Shape] = {}
    given: dict[str, Any] = {}
    operands: list[Any] = []
    for name, value, of in checked_names(kernel.program.inputs, kernel.inputs, values):
        part = _operand(kernel, value, of, name)
        given[name] = value
        if part is not None:
            variables[name], operand = part
            operands.append(operand)
    key = tuple([(name, id(of) if isinstance(of, Held) else of) for name, of in variables.items()])
    # What is not a variable is a constant of this call, which no engine keeps.
    kept = kernel.derived.engines.get(key) if len(variables) == len(given) else None
    engine, is_filled = kept or _engine(kernel, variables, given, operands, zero)
    (pattern,) = engine.patterns
    if (
        kept is None
        and not engine.constants
        and not kernel.stages
        and (pattern is None or not kernel.depends_on_values)
    ):
        kernel.derived.keep(key, engine, is_filled)
    (result,) = run_in_library(engine, operands)
    if pattern is None:
        return result
    if is_filled:
        import jax.numpy as jnp

        return jnp.full(pattern.shape, zero, result.dtype).at[tuple(pattern.indices)].set(result)
    return formed(form, Coordinates(pattern.shape, pattern.indices, result), who)


def _engine(
    kernel: Kernel,
    variables: Mapping[str, Held | Shape],
    given: Mapping[str, Any],
    operands: Sequence[Any],
    zero: float,
) -> tuple[ProgramEngine, bool]:
    """(the engine of a call, whether its result is dense around the entries of its pattern): what it compiles is kept
    for other calls."""
    numbers = {name: _numbers(of, operand) for (name, of), operand in zip(variables.items(), operands)}
    held, others, shape, is_dense = kernel.outlined({**given, **numbers})
    constants = {name: held.get(name, others.get(name)) for name in given if name not in variables}
    pattern = None
    # Where nothing is, dense results have a zero that is none of real numbers.
    is_filled = bool(shape) and is_dense and zero != 0
    if shape and (is_filled or not is_dense):
        found = kernel.derived.kernel(kernel.program, False, shape)(**held, **others)
        pattern = Coordinates(found.shape, found.indices, found.values)
    engine = ProgramEngine((kernel.program,), variables, constants, (shape,), (pattern,), kernel.derived)
    return engine.registered(), is_filled


def _operand(kernel: Kernel, value: Any, of: Type, name: str) -> tuple[Held | Shape, Any] | None:
    """(where the entries are, an array of a library [entry]) of an argument that is differentiated, else None."""
    refuse_unreadable(value)
    if tracker([value]) is None or not (of == REAL or is_tensor(of)):
        return None
    format = kernel.formats.get(name)
    if isinstance(value, Coordinates):
        check_shape(value.shape, None, of.order, name)
        is_known = kernel.derived.known(value.shape, value.indices) is not None
        entries = value if is_known and value.values.shape == value.indices.shape[1:] else value.checked(name)
    elif is_array(value):
        check_shape(tuple(value.shape), None, of.order, name)
        if format is not None and format.name != "dense":
            raise UnsupportedError(
                f"`{name}` is a dense array that is differentiated, and was declared `{format.name}`",
                hint="give a sparse tensor, or leave the format out",
            )
        return tuple(value.shape), value
    else:
        from derivable.tensor.call.sparsity import torch_entries

        check_shape(tuple(value.shape), None, of.order, name)
        entries = torch_entries(value, name, kernel.derived)
    if format is not None and format.name not in PLAIN:
        raise UnsupportedError(
            f"`{name}` is differentiated by its entries, and was declared `{format.name}`, which may hold others",
            hint="leave the format out",
        )
    return kernel.derived.stored(entries), entries.values


def is_array(value: Any) -> bool:
    """Whether an array of torch or JAX is dense."""
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


def run_in_library(engine: Any, operands: list[Any]) -> Any:
    """The results of an engine for arrays of a library, of the widest of their floats; integers are floats.

    Raises DomainError for arrays of several libraries.
    """
    jax = sys.modules.get("jax")
    has_jax = jax is not None and any(isinstance(operand, jax.Array) for operand in operands)
    if has_torch(operands):
        if has_jax:
            raise DomainError("a call has tensors of torch and arrays of JAX", hint="give all of one library")
        from derivable.bridge.torch import run

        return run(engine, None, _of_torch(operands))
    if has_jax:
        from derivable.bridge.jax import run

        return run(engine, None, _of_jax(operands))
    return engine.apply(None, [np.asarray(x, np.float64) for x in operands])


def _of_torch(operands: list[Any]) -> list[Any]:
    import torch

    tensors = [x if isinstance(x, torch.Tensor) else as_torch(np.asarray(x, np.float64)) for x in operands]
    dtypes = {x.dtype for x in tensors}
    if len(dtypes) == 1 and tensors[0].is_floating_point():
        return tensors
    dtype = reduce(torch.promote_types, dtypes)
    refuse_complex(dtype)
    return [x.to(dtype if dtype.is_floating_point else torch.float64) for x in tensors]


def _of_jax(operands: list[Any]) -> list[Any]:
    import jax.numpy as jnp

    dtype = jnp.result_type(*(getattr(x, "dtype", float) for x in operands))
    if dtype == jnp.bfloat16:
        # NumPy does not know them.
        dtype = jnp.dtype(jnp.float32)
    refuse_complex(dtype)
    return [jnp.asarray(x, dtype if dtype.kind == "f" else float) for x in operands]


def refuse_complex(dtype: Any) -> None:
    """Raise DomainError for a type of complex numbers, of any library."""
    if dtype.is_complex if hasattr(dtype, "is_complex") else dtype.kind == "c":
        raise DomainError(f"values are of type {dtype}", hint="give floats: real and imaginary parts by themselves")


def tracked_form(output: Any, who: str) -> str | None:
    """The form of a result that is tracked: "dense", "coordinates", and of torch "torch_coo" and "torch_csr"; None if
    that is to be seen.

    Raises DomainError for one that records nothing.
    """
    if output in (None, "dense", "coordinates"):
        return output
    if who != "JAX" and output in ("torch", "torch_coo", "torch_csr"):
        return "dense" if output == "torch" else output
    what = output if isinstance(output, str) else output.name
    kinds = ("dense", "coordinates", *(("torch_coo", "torch_csr") if who != "JAX" else ()))
    raise DomainError(
        f"a result in the form {what!r} records no gradients, which an input requires",
        hint=f"ask for {' or '.join(repr(kind) for kind in kinds)}, or give values without gradients",
    )


def formed(form: str | None, found: Any, who: str) -> Any:
    """A result of arrays or of Coordinates with values of a library, in a form."""
    if not isinstance(found, Coordinates) or form == "coordinates":
        return found
    if who != "JAX":
        return found.to_torch("csr" if form == "torch_csr" else "coo")
    from jax.experimental.sparse import BCOO

    data: Any = found.values, found.indices.T
    return BCOO(data, shape=found.shape, indices_sorted=True, unique_indices=True)
