"""Programs as differentiable functions of torch tensors and JAX arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np

from derivable.algebra import semirings
from derivable.bridge.arrays import library_name, refuse_unreadable
from derivable.bridge.protocol import Shape
from derivable.core.diagnostics import DomainError, ShapeError, UnsupportedError
from derivable.core.registry import suggestion
from derivable.tensor.call.compilation import Kernel, check_backend, compile
from derivable.tensor.call.engine import ProgramEngine
from derivable.tensor.call.tracked import in_graph, is_read, run_in_library
from derivable.tensor.formats.held import Held, entries_of, hold
from derivable.tensor.language.binding import by_name
from derivable.tensor.language.program import Program
from derivable.tensor.language.types import Type
from derivable.tensor.values.narrow import rounded, widened, widest
from derivable.tensor.values.values import Coordinates, dense_array, elements, is_sparse, library_of, tracker


class Function:
    """A program as a function of some of its inputs, with derivatives of any order, in PyTorch and in JAX.

    program    what is computed, in the real semiring
    constants  {name: value} of inputs that stay what they are, in any form
    patterns   {name: tensor} of sparse inputs whose entries stay where they are: a call is given their values [entry],
               in the order of rows, and they get a gradient [entry]
    output     "numpy" for a dense result; "coordinates" for the values [entry] of a sparse one, whose entries `pattern`
               says. None: vectors are dense, tensors of higher order are not

    backend    "torch": as gathers and sums of torch tensors, as on other devices than the CPU; see `compile`

    f(name=array, ...) takes the other inputs: dense arrays of one library, torch or JAX, of floats. The result has
    their type; those of 16 bits are computed with in float32. It may stand under `torch.func`, `torch.compile`,
    `jax.jit` and `jax.grad`; shapes make new kernels, values do not.

    Raises DomainError for names that are unknown or missing, ShapeError for arrays that do not fit.
    """

    def __init__(
        self,
        program: Program,
        constants: Mapping[str, Any] | None = None,
        patterns: Mapping[str, Any] | None = None,
        *,
        output: str | None = None,
        backend: str | None = None,
    ):
        program = Program.given(program, "made a function")
        constants, patterns = by_name(constants, "constants"), by_name(patterns, "patterns")
        given = {**constants, **patterns}
        for name in given:
            if name not in program.inputs:
                hint = suggestion(name, program.inputs, f"its inputs are {', '.join(program.inputs) or 'none'}")
                raise DomainError(f"the program has no input `{name}`", hint=hint)
        orders = {name: of.order for name, of in program.inputs.items()}
        for name in patterns:
            if name in constants:
                raise DomainError(f"`{name}` is both a constant and a pattern", hint="patterns get gradients")
            if not orders[name]:
                raise ShapeError(f"`{name}` is {program.inputs[name]}, and has no pattern", hint="give it to the call")
        self.program = program
        self.constants = {
            name: hold(value, None, orders[name], name=name) if orders[name] else value
            for name, value in constants.items()
        }
        self.patterns = {
            name: hold(value, "csr" if orders[name] == 2 else "csf", orders[name], name=name)
            for name, value in patterns.items()
        }
        self._shapeless = {name: value for name, value in given.items() if _is_shapeless(value)}
        self.output = ("numpy" if program.type.order < 2 else "coordinates") if output is None else output
        if self.output not in ("numpy", "coordinates"):
            raise DomainError(f"the output is {output!r}", hint='it is "numpy" or "coordinates"')
        check_backend(backend)
        self.backend = backend
        self._engines: dict[tuple, ProgramEngine] = {}
        self._on_devices: dict[str, dict[str, Any]] = {}

    @property
    def variables(self) -> tuple[str, ...]:
        """The inputs that a call takes."""
        return tuple(name for name in self.program.inputs if name not in self.constants)

    def __call__(self, **values: Any) -> Any:
        return in_graph(Function._called, values, self) if is_read() else Function._called(values, self)

    @staticmethod
    def _called(values: Mapping[str, Any], self: Function) -> Any:
        for value in values.values():
            refuse_unreadable(value)
        if set(values) != set(self.variables):
            raise self._wrong_names(values, self.variables)
        operands = [_operand(name, values[name], self.program.inputs[name]) for name in self.variables]
        wide, narrow = widened(operands)
        if self.backend or tracker(operands) == "elsewhere":
            return rounded(self._gathered(dict(zip(self.variables, wide))), narrow)
        engine = self._engine(tuple(tuple(np.shape(operand)) for operand in operands))
        (result,) = run_in_library(engine, list(wide))
        return rounded(result, narrow)

    def _gathered(self, values: Mapping[str, Any]) -> Any:
        """The result by gathers of torch, where the tensors are."""
        for name, held in self.patterns.items():
            if tuple(values[name].shape) != held.arrays["val"].shape:
                raise _wrong_values(name, held, tuple(values[name].shape))
        device = next((str(value.device) for value in values.values() if hasattr(value, "device")), "cpu")
        fixed = self._fixed(device)
        given = {name: fixed[name] for name in self.constants}
        given |= {name: replace(fixed[name], values=x) if name in self.patterns else x for name, x in values.items()}
        for name, entries in self._as_long_as(self._device_kernel, given).items():
            given[name] = replace(given[name], shape=entries.shape)
        found = self._device_kernel(**given)
        # Constants, which have 64 bits, make no result wider.
        return rounded(found.values if isinstance(found, Coordinates) else found, widest(values.values()))

    @cached_property
    def _device_kernel(self) -> Kernel:
        output = None if not self.program.type.order else "torch" if self.output == "numpy" else self.output
        return compile(self.program, output=output, backend="torch")

    def _fixed(self, device: str) -> dict[str, Any]:
        """Constants and patterns, on a device."""
        from derivable.bridge.torch import is_captured

        found = self._on_devices.get(device)
        if found is None:
            found = {
                name: _on_device(of, device) if isinstance(of, Held) else of
                for name, of in (*self.constants.items(), *self.patterns.items())
            }
            # Tensors that are made while a graph is belong to it.
            if not is_captured():
                self._on_devices[device] = found
        return found

    def pattern(self, **shapes: Shape) -> Coordinates:
        """Where the entries of a sparse result are, for dense inputs of these shapes."""
        needed = [n for n in self.variables if n not in self.patterns and self.program.inputs[n].order]
        if not set(needed) <= set(shapes) <= set(self.variables):
            raise self._wrong_names(shapes, needed)
        given = tuple(
            (len(self.patterns[n].arrays["val"]),) if n in self.patterns else tuple(shapes.get(n, ()))
            for n in self.variables
        )
        (found,) = self._engine(given).patterns
        if found is None:
            raise UnsupportedError("the result is dense", hint='ask for output="coordinates"')
        return found

    def _wrong_names(self, given: Mapping[str, Any], needed: Sequence[str]) -> DomainError:
        constant = [name for name in given if name in self.constants]
        hint = f"`{constant[0]}` is a constant of it" if constant else "all of them by their names"
        taken, came = (", ".join(names) or "nothing" for names in (needed, given))
        return DomainError(f"the function takes {taken}, and was given {came}", hint=hint)

    def _engine(self, shapes: tuple[Shape, ...]) -> ProgramEngine:
        if shapes not in self._engines:
            variables: dict[str, Held | Shape] = {}
            for name, shape in zip(self.variables, shapes):
                held = self.patterns.get(name)
                if held is not None and shape != held.arrays["val"].shape:
                    raise _wrong_values(name, held, shape)
                variables[name] = shape if held is None else held
            ones = {name: _ones(of) for name, of in variables.items()}
            order = self.program.type.order
            kernel = compile(self.program, output=self.output if order else None)
            constants = dict(self.constants)
            for name, entries in self._as_long_as(kernel, {**constants, **ones}).items():
                format = (self.constants | self.patterns)[name].format
                held = hold(entries, format, entries.order, name=name)
                if name in constants:
                    constants[name] = held
                else:
                    variables[name], ones[name] = held, _ones(held)
            result = kernel(**constants, **ones)
            pattern = result if isinstance(result, Coordinates) else None
            shape = tuple(result.shape) if order else ()
            engine = ProgramEngine((self.program,), variables, constants, (shape,), (pattern,))
            self._engines[shapes] = engine.registered()
        return self._engines[shapes]

    def _as_long_as(self, kernel: Kernel, given: Mapping[str, Any]) -> dict[str, Coordinates]:
        """Dictionaries among constants and patterns, as large as what they meet of the inputs that are given."""
        orders = self.program.inputs
        return kernel.shaped(
            self._shapeless,
            {name: of for name, of in given.items() if orders[name].order and name not in self._shapeless},
        )


def _is_shapeless(value: Any) -> bool:
    return isinstance(value, Mapping) and library_of(value) == "coordinates"


def _operand(name: str, value: Any, of: Type) -> Any:
    """A tensor of torch or an array of JAX as it is, others as arrays of floats. Raises DomainError for what is no
    array of numbers."""
    if of.element != "real":
        raise DomainError(
            f"the input `{name}` is {of}, and the function takes arrays of reals",
            hint=f"make it a constant: Function(program, constants={{{name!r}: ...}})",
        )
    if value is None or isinstance(value, str) or is_sparse(value) or isinstance(value, Mapping):
        raise DomainError(
            f"the input `{name}` is a {type(value).__name__}, and the function takes dense arrays",
            hint=f"of a sparse one it takes the values: Function(program, patterns={{{name!r}: ...}})",
        )
    if isinstance(value, (int, float)) or library_name(value) != "NumPy":
        return value
    return elements(dense_array(value, name), semirings.get("real"), name)


def _wrong_values(name: str, held: Held, shape: Shape) -> ShapeError:
    return ShapeError(f"`{name}` has {len(held.arrays['val'])} entries, and values of the shape {shape} came")


def _on_device(held: Held, device: str) -> Any:
    """A stored tensor as a dense tensor of torch, or as Coordinates whose values are one."""
    import torch

    if held.format.name == "dense":
        return torch.as_tensor(held.arrays["val"], device=device).reshape(held.shape)
    entries = entries_of(held)
    return replace(entries, values=torch.as_tensor(entries.values, device=device))


def _ones(of: Held | Shape) -> Any:
    if isinstance(of, Held):
        return Held(of.format, of.shape, {**of.arrays, "val": np.ones(len(of.arrays["val"]))})
    return np.ones(of) if of else 1.0
