"""From a program to kernels: which names are arrays, where results go, what is compiled when."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from derivable.algebra import semirings
from derivable.algebra.expr.functions import apply, lift
from derivable.algebra.expr.nodes import Expr
from derivable.algebra.semiring import Semiring, TypedSemiring
from derivable.core.diagnostics import DomainError, ShapeError, UnsupportedError
from derivable.core.names import FreshNames
from derivable.device.cpu.memory import empty, full
from derivable.kernel import nodes as n
from derivable.kernel.build import Builder
from derivable.kernel.emit_numba import compile_kernel
from derivable.tensor import nodes as t
from derivable.tensor.axes import Axes, Known, axes_of, describe, inputs_known
from derivable.tensor.binding import free_variables, names_in
from derivable.tensor.formats.format import Format, format_of
from derivable.tensor.lower import Closure, Destination, Lowering, Names, NotWhole, Registers, Scalar, Stored, Values
from derivable.tensor.program import Program
from derivable.tensor.types import INT, REAL, Type
from derivable.tensor.values import Coordinates, coordinates

OUTSIDE = "outside"


@dataclass(frozen=True)
class Held:
    """A tensor in a storage format: its arrays and sizes, by the names in the format's definition."""

    format: Format
    shape: tuple[int, ...]
    arrays: Mapping[str, Any]

    @property
    def signature(self) -> tuple:
        dtypes = tuple(str(self.arrays[name].dtype) for name in self.format.arrays)
        return self.format, dtypes


class _Into(Destination):
    """A part of a result, at the keys so far."""

    def __init__(self, output: _Output, keys: tuple[Scalar, ...] = ()):
        self.output, self.keys = output, keys

    @property
    def holds_all(self) -> bool:  # type: ignore[override]
        return isinstance(self.output, _Dense)

    def at(self, key: Scalar, then: Any) -> None:
        output, k = self.output, len(self.keys)
        root = output.lowering.axis_root
        axis = output.axes[k]
        if key.axis is not None and axis is not None and root(key.axis) == root(axis):
            then(_Into(output, (*self.keys, key)))
            return
        build, x = output.lowering.build, key.values[0]
        held = key if not x.operands else Scalar((build.let("key", x),), INT)
        x = held.values[0]
        inside = lift(apply("logical_and", x >= 0, x < output.sizes[k]))
        with build.when(inside):
            then(_Into(output, (*self.keys, held)))
        with build.otherwise():
            build.set(output.outside, x)

    def add(self, values: Values) -> None:
        self.output.put([key.values[0] for key in self.keys], values)


class _Output:
    """Where the kernel puts a result.

    axes     of the result
    sizes    registers with their sizes
    outside  a register for an index that no axis has
    """

    def __init__(self, lowering: Lowering, axes: Sequence[Any], sizes: Sequence[Expr]):
        self.lowering, self.axes, self.sizes = lowering, tuple(axes), tuple(sizes)
        self.outside = lowering.build.let("outside", -1)

    def put(self, keys: list[Expr], values: Values) -> None:
        raise NotImplementedError

    def place(self, keys: list[Expr]) -> Expr:
        place = keys[0]
        for key, size in zip(keys[1:], self.sizes[1:]):
            place = place * size + key
        return place


class _Dense(_Output):
    def __init__(self, lowering: Lowering, axes: Sequence[Any], sizes: Sequence[Expr], arrays: Sequence[n.Array]):
        super().__init__(lowering, axes, sizes)
        self.arrays = arrays

    def put(self, keys: list[Expr], values: Values) -> None:
        build = self.lowering.build
        place = build.let("place", self.place(keys))
        old = tuple(build.load(a, place, "old", d) for a, d in zip(self.arrays, self.lowering.semiring.dtypes))
        for a, x in zip(self.arrays, self.lowering.plus(old, values)):
            build.store(a, place, x)


class _Counted(_Output):
    """How many entries there are to list."""

    def __init__(self, lowering: Lowering, axes: Sequence[Any], sizes: Sequence[Expr]):
        super().__init__(lowering, axes, sizes)
        self.count = lowering.build.let("count", 0)

    def put(self, keys: list[Expr], values: Values) -> None:
        self.lowering.build.set(self.count, self.count + 1)


class _ListedOutput(_Counted):
    """Entries one after the other: where each is in the result, and its value."""

    def __init__(self, lowering: Lowering, axes: Any, sizes: Any, places: n.Array, arrays: Sequence[n.Array]):
        super().__init__(lowering, axes, sizes)
        self.places, self.arrays = places, arrays

    def put(self, keys: list[Expr], values: Values) -> None:
        build = self.lowering.build
        build.store(self.places, self.count, self.place(keys))
        for a, x in zip(self.arrays, values):
            build.store(a, self.count, x)
        super().put(keys, values)


@dataclass(frozen=True)
class Spec:
    """What a kernel depends on besides the program.

    formats  by input: the format, and the dtypes of its arrays
    kind     "dense", "count" or "list": where the result goes
    """

    formats: tuple[tuple[str, Format, tuple[str, ...]], ...]
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


def build_kernel(program: Program, spec: Spec) -> Built:
    """The kernel of a program for inputs that are stored so."""
    build = Builder("tensor_program")
    semiring = spec.semiring.typed(spec.precision)
    axes = Axes()
    known = inputs_known({name: of.order for name, of in program.inputs.items()})
    result = axes_of(program.node, known, axes).axes
    result = result or (None,) * program.type.order
    arguments: list[tuple[str, Any, Any]] = []
    names: dict[str, Any] = {}
    formats = {name: (format, dtypes) for name, format, dtypes in spec.formats}
    for name, of in program.inputs.items():
        if of.is_scalar:
            dtypes = semiring.dtypes if of == REAL else ("int64" if of == INT else "bool",)
            values = tuple(build.scalar(f"{name}{c or ''}", d) for c, d in enumerate(dtypes))
            arguments += [("scalar", name, c) for c in range(len(values))]
            names[name] = Scalar(values, of)
        else:
            names[name] = _stored(build, name, of, *formats[name], arguments)
    sizes = [build.scalar(f"out_n{k}") for k in range(program.type.order)]
    arguments += [("out_size", k, None) for k in range(len(sizes))]
    lowering = _Lowering(build, semiring, axes, arguments)
    lowering.with_stamps(_MOST_WORKSPACES)
    output, total = _output(lowering, spec, program.type, result, sizes, arguments)
    if output is None:
        lowering.accumulate(program.node, names, Registers(lowering, total))
        build.return_(*total)
    else:
        lowering.accumulate(program.node, names, _Into(output))
        count = [output.count] if isinstance(output, _Counted) else []
        build.return_(output.outside, *count)
    return Built(build.kernel(), arguments)


# Vectors that one program may collect; the registers for them are made first.
_MOST_WORKSPACES = 8


def _stored(
    build: Builder, name: str, of: Type, format: Format, dtypes: Sequence[str], arguments: list[tuple[str, Any, Any]]
) -> Closure:
    inner: dict[str, Any] = {}
    axes = tuple((name, k) for k in range(of.order))
    for (part, kind), dtype in zip(format.arrays.items(), dtypes):
        held = build.array(f"{name}_{part}", dtype)
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
        return _Counted(lowering, axes, sizes), ()
    made = []
    if spec.kind == "list":
        places = build.array("places", "int64")
        arguments.append(("out", "places", None))
    made = [build.array(f"out{c or ''}", dtype) for c, dtype in enumerate(semiring.dtypes)]
    arguments += [("out", "values", c) for c in range(len(made))]
    if spec.kind == "list":
        return _ListedOutput(lowering, axes, sizes, places, made), ()
    return _Dense(lowering, axes, sizes, made), ()


class Kernel:
    """A compiled program: call it with its inputs by name.

    Kernels are compiled when they are first needed for inputs of some dtypes, and kept on disk.
    """

    def __init__(
        self,
        program: Program,
        formats: Mapping[str, str | Format] | None = None,
        *,
        output: str | Format | None = None,
        semiring: str | Semiring = "real",
        shape: Sequence[int] | None = None,
    ):
        self.program = program
        self.semiring = semirings.get(semiring) if isinstance(semiring, str) else semiring
        self.shape = None if shape is None else tuple(shape)
        self.formats = {}
        for name, given in (formats or {}).items():
            if name not in program.inputs:
                raise DomainError(f"the program has no input `{name}`", hint=f"it has {', '.join(program.inputs)}")
            order = program.inputs[name].order
            self.formats[name] = given if isinstance(given, Format) else format_of(given, order)
            if self.formats[name].order != order:
                raise ShapeError(
                    f"the format `{self.formats[name].name}` is of order {self.formats[name].order}, `{name}` of order {order}"
                )
        order = program.type.order
        self.output = format_of(output, order) if isinstance(output, str) and order else output
        self.axes = Axes()
        known = inputs_known({name: of.order for name, of in program.inputs.items()})
        self.result_axes = axes_of(program.node, known, self.axes).axes or (None,) * order
        self.stages: dict[str, Kernel] = {}
        self.staged = program
        self._built: dict[Spec, Built] = {}

    def __call__(self, **values: Any) -> Any:
        held, scalars = self._taken(values)
        sizes = self._sizes(held)
        shape = self._shape(sizes)
        while True:
            try:
                return self._run(held, scalars, sizes, shape)
            except NotWhole as problem:
                self._add_stage(problem)

    def _run(self, held: dict[str, Held], scalars: Any, sizes: dict[Any, int], shape: tuple[int, ...]) -> Any:
        for name, stage in self.stages.items():
            held[name] = stage.held(held, scalars)
            sizes |= {(name, k): size for k, size in enumerate(held[name].shape)}
        precision = _precision(held, scalars, self.semiring)
        formats = tuple((name, *held[name].signature) for name, of in self.staged.inputs.items() if of.order)
        spec = Spec(formats, self.semiring, precision, "")
        dtypes = self.semiring.dtypes(precision)
        run = _Call(self, held, scalars, sizes, shape)
        if not shape:
            return run(spec, "dense")[0]
        if (self.output.name if self.output else "dense") == "dense":
            typed = self.semiring.typed(precision)
            out = [full(int(np.prod(shape)), x, d) for x, d in zip(typed.zero, dtypes)]
            run(spec, "dense", values=out)
            return out[0].reshape(shape)
        _, count = run(spec, "count")
        places, out = empty(count, np.int64), [empty(count, d) for d in dtypes]
        run(spec, "list", places=places, values=out)
        return _entries(places, out[0], shape, self.semiring)

    def held(self, held: Mapping[str, Held], scalars: Mapping[str, Any]) -> Held:
        """The result as a stage of another kernel, from what that one holds."""
        mine = {name: held.get(name, scalars.get(name)) for name in self.program.inputs}
        return hold(self(**mine), format_of("csf", self.program.type.order), self.program.type.order, self.semiring, "")

    def _add_stage(self, problem: NotWhole) -> None:
        """Make what a program needs whole a tensor of its own, before all else."""
        node = problem.node
        while isinstance(node, t.Var) and node.name not in self.staged.inputs:
            bound = problem.names[node.name]
            if not isinstance(bound, Closure):
                break
            node, problem = bound.node, NotWhole(bound.node, bound.names)
        if not free_variables(node) <= set(self.program.inputs):
            raise UnsupportedError(
                f"the rows of `{node}` come in parts, and what is made of them needs them whole",
                hint="bind them outside of the sums that they depend on",
                span=node.span,
            )
        inputs = {name: of for name, of in self.program.inputs.items() if name in free_variables(node)}
        name = FreshNames([*self.staged.inputs, *names_in(self.staged.node)])("whole")
        formats = {given: of for given, of in self.formats.items() if given in inputs}
        stage = Kernel(Program(node, inputs), formats, output="coo", semiring=self.semiring)
        self.stages[name] = stage
        known = {**self.staged.inputs, name: stage.program.type}
        self.staged = Program(_replaced(self.staged.node, node, t.Var(name)), known)
        self._built.clear()

    def built(self, spec: Spec) -> Built:
        found = self._built.get(spec)
        if found is None:
            found = self._built[spec] = build_kernel(self.staged, spec)
        return found

    def _taken(self, values: Mapping[str, Any]) -> tuple[dict[str, Held], dict[str, Any]]:
        for name in values:
            if name not in self.program.inputs:
                raise DomainError(f"the program has no input `{name}`", hint=f"it has {', '.join(self.program.inputs)}")
        held: dict[str, Held] = {}
        scalars: dict[str, Any] = {}
        for name, of in self.program.inputs.items():
            if name not in values:
                raise DomainError(f"the input `{name}` is missing", hint=f"give {', '.join(self.program.inputs)}")
            if of.is_scalar:
                scalars[name] = values[name]
            else:
                held[name] = hold(values[name], self.formats.get(name), of.order, self.semiring, name)
        return held, scalars

    def _sizes(self, held: Mapping[str, Held]) -> dict[Any, int]:
        """The size of each axis of the inputs. Raises ShapeError where axes that are the same differ."""
        sizes = {(name, k): size for name, of in held.items() for k, size in enumerate(of.shape)}
        for (left, right), node in self.axes.places:
            if sizes[left] != sizes[right]:
                raise ShapeError(
                    f"`{node}` runs over {describe(left)}, of {sizes[left]}, and {describe(right)}, of {sizes[right]}",
                    span=node.span,
                )
        return sizes

    def _shape(self, sizes: Mapping[Any, int]) -> tuple[int, ...]:
        if self.shape is not None:
            if len(self.shape) != self.program.type.order:
                raise ShapeError(f"the shape {self.shape} was asked for, and the result is {self.program.type}")
            return self.shape
        if None in self.result_axes:
            raise ShapeError(
                f"nothing says how large axis {self.result_axes.index(None)} of the result is",
                hint="its keys are computed: give `shape=`",
            )
        return tuple(sizes[axis] for axis in self.result_axes)


@dataclass
class _Call:
    """The arguments of one call."""

    kernel: Kernel
    held: Mapping[str, Held]
    scalars: Mapping[str, Any]
    sizes: Mapping[Any, int]
    shape: tuple[int, ...]

    def __call__(self, spec: Spec, kind: str, **out: Any) -> Any:
        from dataclasses import replace

        built = self.kernel.built(replace(spec, kind=kind))
        found = built.run(*(self._argument(*argument, out) for argument in built.arguments))
        found = found if isinstance(found, tuple) else (found,)
        if self.shape and found[0] >= 0:
            raise DomainError(f"the result has an entry at index {found[0]}, outside the shape {self.shape}")
        return found

    def _argument(self, source: str, name: Any, part: Any, out: Mapping[str, Any]) -> Any:
        match source:
            case "scalar":
                value = self.scalars[name]
                return value[part] if isinstance(value, tuple) else value
            case "array":
                return self.held[name].arrays[part]
            case "size":
                of = self.held[name]
                return of.shape[int(part[1:])] if part in of.format.axis_sizes else of.arrays[part]
            case "out_size":
                return self.shape[name]
            case "out":
                return out[name] if part is None else out[name][part]
            case "space":
                return np.zeros(self.sizes[name], part)
        raise AssertionError(source)


def hold(value: Any, format: Format | None, order: int, semiring: Semiring, name: str) -> Held:
    """A tensor in a format; in its own if none is given. Raises ShapeError for another order."""
    if isinstance(value, Held):
        if format is None or value.format == format:
            return value
        raise UnsupportedError(f"`{name}` is held as `{value.format.name}` and was declared `{format.name}`")
    shape = tuple(np.shape(value)) if isinstance(value, np.ndarray) else tuple(getattr(value, "shape", ()))
    if format is None:
        format = format_of("dense" if isinstance(value, np.ndarray) else getattr(value, "format", "coo"), order)
    if shape and len(shape) != order:
        raise ShapeError(f"`{name}` has the shape {shape}, and is of order {order}")
    own = format.own(value)
    if own is None:
        entries = coordinates(value, semiring=semiring, order=order, name=name)
        shape = entries.shape
        (zero,) = semiring.typed("float64").zero
        own = format.pack(entries, zero)
    return Held(format, shape, own)


def _replaced(node: t.Node, old: t.Node, new: t.Node) -> t.Node:
    """The expression with another one in the place of a closed one, wherever that is."""
    if node == old:
        return new
    return node.with_children(tuple(_replaced(child, old, new) for child in node.children))


def _precision(held: Mapping[str, Held], scalars: Mapping[str, Any], semiring: Semiring) -> str:
    of_values = [
        of.arrays[part].dtype for of in held.values() for part, kind in of.format.arrays.items() if kind == "real"
    ]
    return "float32" if of_values and all(dtype == np.float32 for dtype in of_values) else "float64"


def _entries(places: np.ndarray, values: np.ndarray, shape: tuple[int, ...], semiring: Semiring) -> Coordinates:
    """Coordinates from the entries that a kernel listed, equal places added up."""
    return Coordinates._sorted(shape, np.array(np.unravel_index(places, shape)), values, semiring)
