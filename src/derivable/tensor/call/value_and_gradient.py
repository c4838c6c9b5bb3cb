"""A scalar program and its gradients at once: their loops run together, in one kernel."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from derivable.algebra import semirings
from derivable.core.arrays import as_array
from derivable.core.diagnostics import DomainError, TypeMismatchError, UnsupportedError
from derivable.tensor.analysis.bound import NotWhole, Searched
from derivable.tensor.call.call import Call
from derivable.tensor.call.compilation import Kernel, compile
from derivable.tensor.derivative.derivative import Pattern, gradient
from derivable.tensor.formats.format import Format
from derivable.tensor.language.binding import by_name
from derivable.tensor.language.program import Program
from derivable.tensor.optimisation.joined import joined
from derivable.tensor.optimisation.passes import AFTER, UNOPTIMISED, Setting, run_passes
from derivable.tensor.values.libraries import imported
from derivable.tensor.values.values import coordinates, has_torch, in_torch


def value_and_gradient(
    program: Program,
    wrt: str | Sequence[str],
    formats: Mapping[str, str | Format] | None = None,
    *,
    pattern: Pattern | Mapping[str, Pattern] = "full",
    output: str | Format | None = None,
) -> ValueAndGradient:
    """The value of a scalar program and its derivatives, as one function of its inputs.

    wrt      the input, or several, that it is differentiated by
    formats  how inputs are stored, as of `compile`
    pattern  as of `gradient`, of all or by name: "full" gives a dense array, of the shape of the input; "own" a number
             for each entry of a sparse one
    output   the form of the derivatives with the pattern "own", as of `compile`

    >>> import derivable as dv
    >>> loss = dv.tensor.parse("sum(<i, x> in X) (x - Y(i)) ** 2.0", {"X": dv.tensor.vector, "Y": dv.tensor.vector})
    >>> step = dv.tensor.value_and_gradient(loss, ["X", "Y"])
    >>> step(X=np.array([1.0, 2.0]), Y=np.array([3.0, 5.0]))
    (13.0, (array([-4., -6.]), array([4., 6.])))

    Raises TypeMismatchError for a program whose result is no number, and otherwise as `gradient` and `compile`.
    """
    return ValueAndGradient(program, wrt, formats, pattern=pattern, output=output)


class ValueAndGradient:
    """`f(name=array, ...)` gives (value, gradient), or (value, (gradient, ...)) where `wrt` is a sequence.

    Inputs come in any form that a kernel takes. Torch tensors among them give tensors of torch, JAX arrays such arrays,
    without derivatives of their own: `Function` has these. The "full" derivatives and the value are computed by one
    kernel; each one with the pattern "own" by one of its own.

    Raises as a call of a kernel, and UnsupportedError for tracers of JAX, under `torch.func`, and in graphs that
    `torch.jit.trace` and the like make; `torch.compile` computes it outside of its graph.
    """

    def __init__(
        self,
        program: Program,
        wrt: str | Sequence[str],
        formats: Mapping[str, str | Format] | None = None,
        *,
        pattern: Pattern | Mapping[str, Pattern] = "full",
        output: str | Format | None = None,
    ):
        program = Program.given(program, "differentiated")
        if not program.type.is_scalar:
            raise TypeMismatchError(
                f"a gradient is of a number, and the result of the program is {program.type}",
                hint="`vjp` takes an adjoint of a tensor, and `jacobian` all derivatives",
            )
        self.program, self.is_single = program, isinstance(wrt, str)
        self.wrt: tuple[str, ...] = (wrt,) if isinstance(wrt, str) else tuple(wrt)
        if not self.wrt or len(set(self.wrt)) < len(self.wrt):
            raise DomainError(f"`wrt` is {wrt!r}", hint="it is the name of an input, or names of several, each once")
        patterns: dict[str, Any] = dict.fromkeys(self.wrt, pattern if isinstance(pattern, str) else "full")
        patterns |= {} if isinstance(pattern, str) else by_name(pattern, "pattern")
        derivatives = {name: gradient(program, name, pattern=patterns[name]) for name in self.wrt}
        full = [name for name in self.wrt if patterns[name] == "full" or not program.inputs[name].order]
        self._is_joint = bool(full)
        whole = {name: derivatives[name] for name in full}
        self._whole = _with_gradients(program, whole, formats) if full else compile(program, formats)
        self._own = {name: compile(of, formats, output=output) for name, of in derivatives.items() if name not in full}

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self.program)!r}, {', '.join(self.wrt)})"

    def __call__(self, **values: Any) -> Any:
        computed: Any = self._computed
        if is_torch := has_torch(values.values()):
            import torch

            from derivable.bridge.torch import refuse_capture

            refuse_capture("a value with its gradients")
            if torch.compiler.is_compiling():
                # As a decorator it would import torch._dynamo.
                computed = torch.compiler.disable(computed)
        return computed(values, is_torch)

    def _computed(self, values: Mapping[str, Any], is_torch: bool) -> Any:
        jax = imported("jax")
        given = {name: _untracked(name, value) for name, value in values.items()}
        value, found = self._whole(**given) if self._is_joint else (self._whole(**given), {})
        found |= {name: kernel(**given) for name, kernel in self._own.items()}
        if is_torch:
            value, found = in_torch(value), {name: in_torch(each) for name, each in found.items()}
        elif jax is not None and any(isinstance(each, jax.Array) for each in values.values()):
            found = {name: jax.numpy.asarray(x) if isinstance(x, np.ndarray) else x for name, x in found.items()}
        made = tuple(found[name] for name in self.wrt)
        return value, made[0] if self.is_single else made

    def explain(self, stage: str | None = None, /, **values: Any) -> str:
        """What a call with such inputs does, of the kernel of the value, as `Kernel.explain`."""
        return self._whole.explain(stage, **{name: _untracked(name, value) for name, value in values.items()})


class _WithGradients(Kernel):
    """The kernel of a number and of its derivatives, joined; each is an array of all places.

    orders  {name: order} of what these are by
    """

    orders: Mapping[str, int]

    @cached_property
    def exact(self) -> Kernel:
        found = Kernel.exact.func(self)
        assert isinstance(found, _WithGradients)
        found.orders = self.orders
        return found

    def call_anew(self, values: dict[str, Any], out: Any) -> tuple[Any, dict[str, Any]]:
        held, scalars = self._taken(values)
        call = Call(self, held, scalars, self._sizes(held, scalars), (), values)
        shapes = {name: self._shape_of(name, call.sizes, values[name]) for name in self.orders}
        while True:
            try:
                value, found = call.with_gradients(shapes)
            except (NotWhole, Searched) as problem:
                self.change_for(problem)
                continue
            if call.has_nan:
                return self.exact.call_anew(values, out)
            if call.cached is not None:
                self.__call__ = call.cached
            return value, dict(zip(self.orders, found))

    def _shape_of(self, name: str, sizes: Mapping[Any, int], value: Any) -> tuple[int, ...]:
        if (name, 0) not in sizes and self.orders[name]:
            # The number does not depend on it.
            return coordinates(value, order=self.orders[name], name=name).shape
        return tuple(sizes[name, axis] for axis in range(self.orders[name]))


def _with_gradients(
    program: Program, derivatives: Mapping[str, Program], formats: Mapping[str, str | Format] | None
) -> _WithGradients:
    real = semirings.get("real")
    parts = [program.guarded(real), *(of.guarded(real) for of in derivatives.values())]
    types = {name: of for part in parts for name, of in part.types.items()}
    orders = {name: program.inputs[name].order for name in derivatives}
    node = joined([part.node for part in parts], [0, *orders.values()])
    setting = Setting(types, UNOPTIMISED, frozenset(types) - frozenset(program.inputs))
    whole = Program(run_passes(node, AFTER, setting, []), types, is_guarded=True)
    found = _WithGradients(whole, formats, on=UNOPTIMISED - {"factors"})
    found.orders = orders
    return found


def _untracked(name: str, value: Any) -> Any:
    """An input without its derivatives."""
    torch, jax = imported("torch"), imported("jax")
    if torch is not None and isinstance(value, torch.Tensor):
        from derivable.bridge.torch_parts import is_transformed

        if is_transformed():
            raise UnsupportedError(
                f"`{name}` is transformed by `torch.func`, and a value with its gradients is computed at once",
                hint="`dv.tensor.Function` may stand under `torch.func` and `torch.vmap`",
            )
        return value.detach()
    if jax is not None and isinstance(value, jax.Array):
        if isinstance(value, jax.core.Tracer):
            raise UnsupportedError(
                f"`{name}` is traced by JAX, and a value with its gradients is computed at once",
                hint="`dv.tensor.Function` may stand under `jax.jit` and `jax.grad`",
            )
        return as_array(value, f"`{name}`")
    return value
