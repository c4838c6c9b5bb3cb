"""From a program and how its inputs are stored to one kernel of the loop IR."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from derivable.algebra.semiring import Semiring, TypedSemiring
from derivable.core.diagnostics import UnsupportedError
from derivable.kernel import nodes as n
from derivable.kernel.build import Builder
from derivable.kernel.emit_numba import compile_kernel
from derivable.tensor import nodes as t
from derivable.tensor.axes import Axes, Known, axes_of, inputs_known
from derivable.tensor.bound import Closure, Names, Scalar, Stored
from derivable.tensor.formats.format import Format
from derivable.tensor.lower import Lowering, Registers
from derivable.tensor.program import Program
from derivable.tensor.results import Counted, Dense, Into, Places, Positioned
from derivable.tensor.types import INT, REAL, Type


@dataclass(frozen=True)
class Spec:
    """What a kernel depends on besides the program.

    formats  by tensor: its format, and the dtypes of its arrays
    kind     where the result goes: "dense"; "count" and "places" find where its entries are, "positions" and "append"
             put their values there
    """

    formats: tuple[tuple[str, Format, tuple[Any, ...]], ...]
    semiring: Semiring
    precision: str
    kind: str


@dataclass
class Built:
    """A kernel, and where its arguments come from: (source, name, part)."""

    kernel: n.Kernel
    arguments: list[tuple[str, Any, Any]] = field(default_factory=list)

    @cached_property
    def run(self) -> Any:
        return compile_kernel(self.kernel)


class _Lowering(Lowering):
    """With the axes of a program and workspaces as parameters of its kernel."""

    def __init__(self, build: Builder, semiring: TypedSemiring, axes: Axes, arguments: list[tuple[str, Any, Any]]):
        super().__init__(build, semiring, axes.root, self._workspace)
        self.all_axes, self.arguments = axes, arguments
        self._spaces = 0

    def _workspace(self, axis: Any) -> tuple[n.Array, n.Array, tuple[n.Array, ...], n.Register]:
        if axis is None:
            raise UnsupportedError(
                "a vector has to be collected, and nothing says how many indices it may have",
                hint="let its keys be indices of an input",
            )
        number, self._spaces = self._spaces, self._spaces + 1
        keys = self.build.array(f"space{number}_keys", "int64")
        stamps = self.build.array(f"space{number}_stamps", "int64")
        values = tuple(self.build.array(f"space{number}_values{c}", d) for c, d in enumerate(self.semiring.dtypes))
        self.arguments += [("space", axis, "int64"), ("space", axis, "int64")]
        self.arguments += [("space", axis, d) for d in self.semiring.dtypes]
        return keys, stamps, values, self.stamps[number]

    def with_stamps(self, count: int) -> None:
        """Registers for the stamps of workspaces, made before all loops."""
        self.stamps = [self.build.let(f"stamp{k}", 0) for k in range(count)]

    def axis_of(self, node: t.Node, names: Names) -> Any:
        known = {name: _known(bound) for name, bound in names.items()}
        found = axes_of(node, known, self.all_axes).axes
        return found[0] if found else None


def _known(bound: Any) -> Known:
    if isinstance(bound, Scalar):
        return Known(axis=bound.axis, is_size=bound.is_size)
    if isinstance(bound, Closure):
        if bound.axes:
            return Known(bound.axes)
        return axes_of(bound.node, {name: _known(inner) for name, inner in bound.names.items()}, Axes())
    return Known()


def result_axes(program: Program, of: Type, axes: Axes) -> tuple[Any, ...]:
    """The axes of a result of that type; a zero says nothing of its own. Joins axes that are the same."""
    found = axes_of(program.node, inputs_known(program.inputs), axes).axes
    return found if len(found) == of.order else (None,) * of.order


def build_kernel(program: Program, of: Type, spec: Spec) -> Built:
    """The kernel of a program with a result of that type, for inputs that are stored so."""
    build = Builder("tensor_program")
    semiring = spec.semiring.typed(spec.precision)
    axes = Axes()
    known = inputs_known(program.inputs)
    result = result_axes(program, of, axes)
    arguments: list[tuple[str, Any, Any]] = []
    names: dict[str, Any] = {}
    formats = {name: (format, dtypes) for name, format, dtypes in spec.formats}
    for name, given in program.inputs.items():
        if given.is_scalar:
            dtypes = semiring.dtypes if given == REAL else ("int64" if given == INT else "bool",)
            values = tuple(build.scalar(f"{name}{c or ''}", d) for c, d in enumerate(dtypes))
            arguments += [("scalar", name, c) for c in range(len(values))]
            axis = known[name].axis
            names[name] = Scalar(values, given, axis, axis is not None)
        else:
            names[name] = _stored(build, name, given, *formats[name], arguments)
    sizes = [build.scalar(f"out_n{k}") for k in range(of.order)]
    arguments += [("out_size", k, None) for k in range(len(sizes))]
    lowering = _Lowering(build, semiring, axes, arguments)
    lowering.with_stamps(MOST_WORKSPACES)
    output, total = _output(lowering, spec, of, result, sizes, arguments)
    if output is None:
        lowering.accumulate(program.node, names, Registers(lowering, total))
        build.return_(*total)
    else:
        lowering.accumulate(program.node, names, Into(output))
        count = [output.count] if isinstance(output, Counted) else []
        build.return_(output.outside, *count)
    return Built(build.kernel(), arguments)


# Vectors that one program may collect; the registers for them are made first.
MOST_WORKSPACES = 8


def _stored(
    build: Builder, name: str, of: Type, format: Format, dtypes: Sequence[str], arguments: list[tuple[str, Any, Any]]
) -> Closure:
    inner: dict[str, Any] = {}
    axes = tuple((name, k) for k in range(of.order))
    for (part, kind), dtype in zip(format.arrays.items(), dtypes):
        held = build.array(f"{name}_{part}", str(dtype))
        arguments.append(("array", name, part))
        inner[part] = Stored((held,), format.types[part], kind if kind in ("sorted", "hashed") else "")
    for k, size in enumerate((*format.axis_sizes, *format.sizes)):
        register = build.scalar(f"{name}_{size}")
        arguments.append(("size", name, size))
        is_axis = k < of.order
        inner[size] = Scalar((register,), INT, axes[k] if is_axis else None, is_axis)
    return Closure(format.node, inner, of, axes, entries_differ=True)


def _output(
    lowering: _Lowering, spec: Spec, of: Type, axes: Any, sizes: Any, arguments: list[tuple[str, Any, Any]]
) -> tuple[Any, Any]:
    build, semiring = lowering.build, lowering.semiring
    if of.is_scalar:
        return None, tuple(build.let("total", x) for x in lowering.zero)
    if spec.kind == "count":
        return Counted(lowering, axes, sizes), ()
    if spec.kind == "places":
        arguments.append(("out", "places", None))
        return Places(lowering, axes, sizes, build.array("places", "int64")), ()
    positions = None
    if spec.kind == "positions":
        arguments.append(("out", "positions", None))
        positions = build.array("positions", "int32")
    made = [build.array(f"out{c or ''}", dtype) for c, dtype in enumerate(semiring.dtypes)]
    arguments += [("out", "values", c) for c in range(len(made))]
    if spec.kind == "dense":
        return Dense(lowering, axes, sizes, made), ()
    return Positioned(lowering, axes, sizes, made, positions), ()
