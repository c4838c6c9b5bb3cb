"""From a program and how its inputs are stored to one kernel of the loop IR."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, reduce
from typing import Any

from derivable.algebra.expr.functions import apply
from derivable.algebra.expr.nodes import Constant, Expr, in_order
from derivable.algebra.semiring import Semiring
from derivable.device.cpu.llvm_code import compile_kernel
from derivable.kernel import nodes as n
from derivable.kernel.build import Builder
from derivable.tensor.analysis.axes import Axes, Known, axes_of, inputs_known
from derivable.tensor.analysis.bound import Closure, Destination, NeededEarlier, Scalar, Stored
from derivable.tensor.analysis.loop_steps import loop_steps
from derivable.tensor.formats.format import SEARCHED, Format
from derivable.tensor.language import nodes as t
from derivable.tensor.language.program import Program
from derivable.tensor.language.types import INT, REAL, Type
from derivable.tensor.lower.coalesce import coalesced
from derivable.tensor.lower.lower import Lowering, Registers
from derivable.tensor.lower.parallel_loops import ParallelLoops, in_parallel_loops, in_threads
from derivable.tensor.lower.prefetch import with_prefetches
from derivable.tensor.lower.results import INSIDE, Counted, Dense, Into, OneOf, Places, Positioned


@dataclass(frozen=True)
class Spec:
    """What a kernel depends on besides the program.

    formats    by tensor: its format, and the dtypes of its arrays
    kind       where the result goes: "dense"; "count" and "places" find where its entries are, "positions" and "append"
               put their values there; "positions64" does for more than 32 bits number
    in_place   whether inner loops write to the result, without a tensor in between where there may be one
    is_wide    whether axes are so long that workspaces have no place for each of their indices
    is_shaped  whether the shape of the result was asked for, and need not be that of an axis to which others are added
    joins      whether loops over rows that are not told apart are one loop
    is_exact   whether zero times an infinity is zero
    looks      whether the kernel looks for NaN in what it writes
    wrt        where a number comes with its derivatives, as of `joined`, by what these are: (name, order)
    """

    formats: tuple[tuple[str, Format, tuple[Any, ...]], ...]
    semiring: Semiring
    precision: str
    kind: str
    in_place: bool = True
    is_shaped: bool = False
    is_wide: bool = False
    joins: bool = True
    is_exact: bool = False
    looks: bool = False
    wrt: tuple[tuple[str, int], ...] = ()


@dataclass
class Built:
    """A kernel, and where its arguments come from: (source, name, part).

    has_trees  whether the last thing that it returns is that a workspace had no room: then nothing else counts
    is_inside  whether no index can be outside the shape of a result
    is_filled  whether it writes each entry of a dense result, and reads none
    pieces     what threads run, None if it cannot be cut
    again      tensors with names whose loops run once more in each round of other loops, the outermost first
    most       by register that counts, what it does not exceed: (axis, as of an argument)
    """

    kernel: n.Kernel
    arguments: list[tuple[str, Any, Any]]
    has_trees: bool
    is_inside: bool = False
    is_filled: bool = False
    pieces: ParallelLoops | None = None
    again: Sequence[t.Node] = ()
    most: Mapping[n.Register, Any] = field(default_factory=dict)

    @cached_property
    def run(self) -> Any:
        return compile_kernel(with_prefetches(self.kernel))

    def runner(self, sources: Callable[[str, Any, Any], Any]) -> Any:
        """What runs it on arguments as large as those that come from there: `run`, or threads."""
        if self.pieces is None:
            return self.run
        starts = sources("starts", None, None)
        most = max((sources(*argument).size for argument in self.arguments if argument[0] == "array"), default=0)
        if most < self.pieces.least or (self.pieces.is_numbered and starts is None):
            return self.run
        return in_threads(self.run, self.pieces, self.arguments, starts, most)


def result_axes(program: Program, of: Type, axes: Axes) -> tuple[Any, ...]:
    """The axes of a result of that type; a zero says nothing of its own. Joins axes that are the same."""
    stages = {stage.name: Known((None,) * stage.program.type.order) for stage in program.stages}
    found = axes_of(program.node, {**inputs_known(program.inputs), **stages}, axes).of_inputs
    return found if len(found) == of.order else (None,) * of.order


def build_kernel(program: Program, of: Type, spec: Spec, made: Sequence[t.Node] = ()) -> Built:
    """The kernel of a program with a result of that type, for inputs that are stored so.

    made  tensors that are made where they are named, and not where they are used, as of `made_once`

    Raises NotWhole for what a kernel of its own, or a `let` outside of all loops, has to make first, and Searched for
    an input that is better stored by its first axes.
    """
    return _built(program, of, spec, made, False)


def made_once(program: Program, of: Type, spec: Spec, size: Callable[[str, Any, Any], float]) -> tuple[t.Node, ...]:
    """The tensors with names that are better made once, where they are named, than in each round that uses them.

    size  (source, name, part) of an argument -> the number, or the average length of the parts that offsets say

    An entry that is looked up costs the loops that lead to it: of a sum by columns those over all rows. At first each
    tensor that is used in loops inside of which it is not named is made whole, and each that these read. Each is then
    left out by way of trial, and stays out if that takes fewer steps: where few of its entries are read, or what it
    reads is made. To begin with none would end where several pay only together, as what makes one looks up the next.
    """

    def built(made: Sequence[t.Node]) -> tuple[float, Built]:
        trial = _built(program, of, spec, made, True)
        return _steps(trial, size), trial

    made: list[t.Node] = []
    steps, trial = built(made)
    while added := [node for node in trial.again if all(node is not other for other in made)]:
        made += added
        steps, trial = built(made)
    is_better = True
    while is_better:
        is_better = False
        for node in list(made):
            fewer = [other for other in made if other is not node]
            taken, _ = built(fewer)
            if taken < steps:
                made, steps, is_better = fewer, taken, True
    return tuple(made)


def _built(program: Program, of: Type, spec: Spec, made: Sequence[t.Node], is_alone: bool) -> Built:
    early = list(made)
    while True:
        try:
            return _build(program, of, spec, early, is_alone)
        except NeededEarlier as needed:
            early.append(needed.node)


def _steps(built: Built, size: Callable[[str, Any, Any], float]) -> float:
    numbers: dict[n.Register, float] = {}
    parts: dict[n.Array, float] = {}
    for of, argument in zip(built.kernel.parameters, built.arguments):
        if isinstance(of, n.Register):
            numbers[of] = size(*argument)
        elif argument[0] == "array":
            parts[of] = size(*argument)
    most = {count: size("space", axis, None) for count, axis in built.most.items()}
    return loop_steps(built.kernel, numbers, parts, most)


def _build(program: Program, of: Type, spec: Spec, early: Sequence[t.Node], is_alone: bool) -> Built:
    build = Builder("tensor_program")
    semiring = spec.semiring.typed(spec.precision)
    axes = Axes(is_strict=spec.is_shaped)
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
    sizes = [] if spec.wrt else [build.scalar(f"out_n{k}") for k in range(of.order)]
    arguments += [("out_size", k, None) for k in range(len(sizes))]
    is_sparse = not of.is_scalar and spec.kind != "dense"
    lowering = Lowering(
        build, semiring, program.node, axes, arguments, early, spec.in_place, spec.is_wide, is_sparse, spec.is_exact,
        is_alone,
    )  # fmt: skip
    lowering.inputs = names
    spaces = lowering.spaces
    if spec.wrt:
        return _with_gradients(lowering, spec, program, arguments)
    output, total = _output(lowering, spec, of, result, sizes, arguments)
    count = None
    if output is None:
        spaces.leave = lowering.zero
        lowering.accumulate(program.node, names, Registers(lowering, total))
        found = returned = total
    else:
        count = output.count if isinstance(output, Counted) else None
        found = (output.outside, output.count) if type(output) is Counted else (output.outside,)
        returned = (output.returned, *found[1:])
        spaces.leave = tuple(Constant(x, "int64") for x in (INSIDE, 0)[: len(found)])
        lowering.accumulate(program.node, names, Into(output))
    has_trees = spaces.num_trees > 0
    build.return_(*returned, *[False] * has_trees)
    parts = {
        n.Array(f"{name}_{part}", str(dtype))
        for name, (format, dtypes) in formats.items()
        for (part, kind), dtype in zip(format.arrays.items(), dtypes)
        if kind == "offsets" and spec.joins
    }
    kernel = spaces.kernel()
    filling = None
    if isinstance(output, Dense) and not has_trees:
        filling = output.written(kernel, _lengths(names, result, sizes))
        kernel = filling or kernel
    rows = () if output is None else output.rows
    results = [array for array in kernel.arrays if array.name in ("places", "out")]
    joined = found if output is None else (*output.registers, *(() if count is None else (count,)))
    cut = None if has_trees else in_parallel_loops(build, kernel, parts, results, joined, spaces.cleared, count, rows)
    kernel = coalesced(kernel, parts)
    kernels, arguments = _without_unused([kernel, *([] if cut is None else cut[:1])], arguments)
    is_inside = output is not None and _settings(kernel, output.outside) == 1
    built = Built(kernels[0], arguments, has_trees, is_inside, filling is not None, **_counted(lowering))
    if cut is not None:
        built.pieces = ParallelLoops(kernels[1], "number" if output is None else spec.kind, cut[1], semiring)
    return built


def _with_gradients(lowering: Lowering, spec: Spec, program: Program, arguments: list[tuple[str, Any, Any]]) -> Built:
    """A kernel that returns a number and its derivatives by numbers, and writes those by tensors to arrays."""
    build = lowering.build
    totals = [_total(lowering)]
    parts: list[tuple[Destination, int]] = [(Registers(lowering, totals[0]), 0)]
    outputs: list[Dense] = []
    for name, order in spec.wrt:
        if not order:
            totals.append(_total(lowering))
            parts.append((Registers(lowering, totals[-1]), 0))
            continue
        axes = [(name, k) for k in range(order)]
        made = [build.array(f"{name}_bar{c or ''}", dtype) for c, dtype in enumerate(lowering.semiring.dtypes)]
        arguments += [("out", "gradient", name) for _ in made]
        sizes = [build.scalar(f"{name}_bar_n{k}") for k in range(order)]
        arguments += [("axis", axis, None) for axis in axes]
        outputs.append(Dense(lowering, axes, sizes, made, False, outputs[0] if outputs else None))
        parts.append((Into(outputs[-1]), order))
    values = [x for total in totals for x in total]
    lowering.spaces.leave = (*(x for _ in totals for x in lowering.zero), Constant(INSIDE, "int64"))
    lowering.accumulate(program.node, lowering.inputs, OneOf(parts))
    has_trees = lowering.spaces.num_trees > 0
    if outputs and spec.looks:
        # What a NaN was added to is one, and there are fewer entries than additions.
        outputs[0].nans = build.let("nans", 0)
        for output in outputs:
            _look_for_nan(build, output, outputs[0].nans)
    build.return_(*values, outputs[0].returned if outputs else INSIDE, *[False] * has_trees)
    kernel = lowering.spaces.kernel()
    kernels, arguments = _without_unused([kernel], arguments)
    return Built(kernels[0], arguments, has_trees, **_counted(lowering))


def _look_for_nan(build: Builder, output: Dense, nans: n.Register) -> None:
    with build.loop("place", 0, reduce(lambda a, b: a * b, output.sizes)) as place:
        for array in output.arrays:
            value = build.load(array, place, "value")
            build.set(nans, nans + apply("where", apply("not_equal", value, value), 1, 0))


def _total(lowering: Lowering) -> tuple[n.Register, ...]:
    return tuple(lowering.build.let("total", x) for x in lowering.zero)


def _counted(lowering: Lowering) -> dict[str, Any]:
    # A name before those that read it: whether one of these is better made depends on what its parts cost.
    positions = {id(node): position for position, node in enumerate(t.walk(lowering.program))}
    again = sorted(lowering.again.values(), key=lambda bound: (bound.num_loops, positions.get(id(bound.node), 0)))
    return {"again": tuple(bound.node for bound in again), "most": lowering.spaces.counts}


def _lengths(names: Mapping[str, Any], axes: Sequence[Any], sizes: Sequence[Expr]) -> dict[Expr, Any]:
    """By register, which axis it is the size of."""
    found = {size: axis for size, axis in zip(sizes, axes) if axis is not None}
    for bound in names.values():
        parts = bound.names.values() if isinstance(bound, Closure) else [bound]
        found |= {part.values[0]: part.axis for part in parts if isinstance(part, Scalar) and part.is_size}
    return found


def _settings(kernel: n.Kernel, register: n.Register) -> int:
    """How many statements give a register a value."""
    return sum(isinstance(part, n.Assign) and register in part.targets for part in n.walk(kernel.body))


def _without_unused(
    kernels: Sequence[n.Kernel], arguments: Sequence[tuple[str, Any, Any]]
) -> tuple[list[n.Kernel], list[tuple[str, Any, Any]]]:
    """Kernels with the same first parameters, without those of these that none of them needs.

    What is passed to compiled code is looked at and converted for each call.
    """
    needed: set[Any] = set()
    for statement in (part for kernel in kernels for part in n.walk(kernel.body)):
        needed.update(in_order(n.operands_of(statement)))
        needed.add(getattr(statement, "array", None))
    kept = [k for k, parameter in enumerate(kernels[0].parameters[: len(arguments)]) if parameter in needed]
    made = [
        replace(kernel, parameters=(*(kernel.parameters[k] for k in kept), *kernel.parameters[len(arguments) :]))
        for kernel in kernels
    ]
    return made, [arguments[k] for k in kept]


def _stored(
    build: Builder, name: str, of: Type, format: Format, dtypes: Sequence[str], arguments: list[tuple[str, Any, Any]]
) -> Closure:
    inner: dict[str, Any] = {}
    axes = tuple((name, k) for k in range(of.order))
    for (part, kind), dtype in zip(format.arrays.items(), dtypes):
        held = build.array(f"{name}_{part}", str(dtype))
        arguments.append(("array", name, part))
        inner[part] = Stored((held,), format.types[part], kind if kind in SEARCHED else "", name)
    for k, size in enumerate((*format.axis_sizes, *format.sizes)):
        register = build.scalar(f"{name}_{size}")
        arguments.append(("size", name, size))
        is_axis = k < of.order
        inner[size] = Scalar((register,), INT, axes[k] if is_axis else None, is_axis)
    return Closure(format.node, inner, of, axes, entries_differ=True)


def _output(
    lowering: Lowering, spec: Spec, of: Type, axes: Any, sizes: Any, arguments: list[tuple[str, Any, Any]]
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
    if spec.kind in ("positions", "positions64"):
        arguments.append(("out", "positions", None))
        positions = build.array("positions", "int32" if spec.kind == "positions" else "int64")
    made = [build.array(f"out{c or ''}", dtype) for c, dtype in enumerate(semiring.dtypes)]
    arguments += [("out", "values", c) for c in range(len(made))]
    if spec.kind == "dense":
        return Dense(lowering, axes, sizes, made, spec.looks), ()
    return Positioned(lowering, axes, sizes, made, positions, spec.looks), ()
