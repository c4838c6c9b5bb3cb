"""From a program to kernels: which names are arrays, where results go, what is compiled when."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np

from derivable.algebra.expr.operations import OPERATIONS
from derivable.algebra.semiring import Semiring
from derivable.core.diagnostics import DomainError, ShapeError, UnsupportedError
from derivable.core.lazy import optional_module
from derivable.core.names import FreshNames
from derivable.kernel import nodes as n
from derivable.tensor.analysis.axes import Axes
from derivable.tensor.analysis.bound import NotWhole, Searched
from derivable.tensor.call.axis_sizes import AxisSizes
from derivable.tensor.call.call import Call, Pattern
from derivable.tensor.call.call_cache import CachedCalls
from derivable.tensor.call.factored import Factored, NotExact, Product, is_simple
from derivable.tensor.formats.format import Format, families, format_of
from derivable.tensor.formats.held import Held, by_first_axes, hold, packed
from derivable.tensor.language import nodes as t
from derivable.tensor.language.binding import by_name, free_variables, names_in, replaced, unique_names
from derivable.tensor.language.check import Types, check, scope
from derivable.tensor.language.guards import hides_products
from derivable.tensor.language.linearity import conjuncts, guarded_part
from derivable.tensor.language.program import Program, Stage
from derivable.tensor.language.types import REAL, SIZE, Type, is_tensor
from derivable.tensor.lower.emit import Built, Spec, build_kernel, made_once, result_axes
from derivable.tensor.optimisation.optimisation import Optimised, optimised
from derivable.tensor.optimisation.passes import UNOPTIMISED, Setting, Step, Switches, run_passes, switched
from derivable.tensor.values.inputs import check_literals, checked_names, number
from derivable.tensor.values.jax_entries import jax_entries
from derivable.tensor.values.narrow import rounded, widened, widest
from derivable.tensor.values.values import (
    FORMS,
    Coordinates,
    checked_shape,
    coordinates,
    dense_array,
    has_torch,
    in_torch,
    is_sparse,
    library_of,
    scalar_semiring,
    tracker,
)


def compile(
    program: Program,
    formats: Mapping[str, str | Format] | None = None,
    *,
    output: str | Format | None = None,
    semiring: str | Semiring = "real",
    shape: Sequence[int] | None = None,
    passes: Switches = None,
    backend: str | None = None,
) -> Kernel:
    """A function of a program's inputs, by their names.

    formats   how inputs are stored, by name: "dense", "csr", ..., or a `Format` of one's own. Those that are not named
              are taken as they come: arrays are dense, matrices of SciPy have their own format
    output    what the result becomes: "dense", a form of `Coordinates.to` such as "scipy_csr", or the name of a storage
              format. None: an outer product of tensors stays `Factored`; vectors are dense, and tensors of higher
              order are where all inputs are; else coordinates
    semiring  what `+` and `*` mean, by name or record; its values are scalars
    shape     of the result, where its keys are computed and nothing else says it
    passes    {name: whether it runs} of passes that are not to run as they do by default: `explain("passes")` has them.
              Among them is equality saturation, which looks for a cheaper program with the same result, for tensors as
              large as those of the first call; sums are then taken in another order. Those of `gradient` are switched
              there
    backend   "torch": as gathers and sums of torch tensors, which is how programs run on tensors that are not on the
              CPU, in semirings whose sums torch has; results are of torch. None: by the kernels of the CPU, or where
              the arguments are

    What comes in another form is converted, in time linear in its entries, at each call; `hold` does it once. A sparse
    result is found in two parts, where its entries are and what they are: the first is kept for calls with inputs whose
    entries are where they were.

    Raises DomainError for unknown names and numbers in the program that are no elements of the semiring, ShapeError for
    orders and shapes that do not fit.
    """
    check_backend(backend)
    kind = Kernel if backend is None else _device_kernel()
    found = kind(program, formats, output=output, semiring=semiring, shape=shape, on=switched(passes))
    check_literals(program.node, found.semiring)
    return found


def check_backend(backend: str | None) -> None:
    """Raises DomainError for an unknown one."""
    if backend not in (None, "torch"):
        raise DomainError(f"the backend is {backend!r}", hint='it is "torch" or None')
    if backend is not None:
        optional_module("torch", "torch", "torch")


def _device_kernel() -> type[Kernel]:
    from derivable.tensor.call.device_kernel import DeviceKernel

    return DeviceKernel


class Kernel(CachedCalls):
    """A compiled program: call it with its inputs by name, and maybe `out`. `compile` makes it.

    out  unless an input has that name, an array that the values of the result are written to: [the shape of the
         result] of a dense one, [entry] of a sparse one; of the dtype that the result has without it, in C order

    inputs    {name: type}
    formats   {name: storage format} of those that have one
    shape     of the result, where it was given
    output    the form of the result; None if the call decides
    program   that it is of
    semiring  in which it runs

    Kernels are compiled when they are first needed for inputs of some dtypes, and kept on disk.
    """

    def __dir__(self) -> list[str]:
        # Completion shows what users may name.
        public = ("explain", "formats", "inputs", "output", "program", "semiring", "shape")
        return sorted([*(name for name in object.__dir__(self) if name.startswith("__")), *public])

    def __init__(
        self,
        program: Program,
        formats: Mapping[str, str | Format] | None = None,
        *,
        output: str | Format | None = None,
        semiring: str | Semiring = "real",
        shape: Sequence[int] | None = None,
        on: frozenset[str] = UNOPTIMISED,
    ):
        program = Program.given(program, "compiled")
        arrays = [name for name, of in program.inputs.items() if of.order and not is_tensor(of)]
        if arrays:
            raise UnsupportedError(
                f"the program takes the array `{arrays[0]}`", hint="make it the definition of a storage format"
            )
        self.program = program
        # What is not mentioned need not be given.
        parts = [program.node, *(stage.program.node for stage in program.stages)]
        mentioned = frozenset().union(*map(free_variables, parts))
        self.inputs = {name: of for name, of in program.inputs.items() if name in mentioned}
        self.semiring = scalar_semiring(semiring)
        if program.semiring not in (None, self.semiring.name):
            raise UnsupportedError(
                f"the program is a derivative of numbers: it runs in the semiring {program.semiring!r}, and not in "
                f"{self.semiring.name!r}",
                hint="leave `semiring=` out: the sums of the program that was differentiated keep theirs",
            )
        self.shape = None if shape is None else checked_shape(shape, "a size of the shape that was asked for")
        self.formats = {}
        for name, given in by_name(formats, "formats").items():
            if name not in program.inputs:
                raise DomainError(f"the program has no input `{name}`", hint=f"it has {', '.join(program.inputs)}")
            order = program.inputs[name].order
            self.formats[name] = given if isinstance(given, Format) else format_of(given, order)
            if self.formats[name].order != order:
                raise ShapeError(
                    f"the format `{self.formats[name].name}` is of order {self.formats[name].order}, "
                    f"and `{name}` of order {order}"
                )
        self.output = _output_of(program, output)
        self.axes = Axes(is_strict=self.shape is not None)
        self.result_axes = result_axes(program, program.type, self.axes)
        self.axis_sizes = AxisSizes(program, self.inputs, self.axes, self.result_axes, self.shape, self.semiring)
        self.on = on if self.semiring.commutative else on & UNOPTIMISED
        self.precision: str | None = None
        self.stages = {stage.name: self._stage(stage) for stage in program.stages}
        # Inputs that are stored by their first axes in each call, as loops look them up.
        self.searched: frozenset[str] = frozenset()
        self.steps: list[Step] = []
        # Whether there are two numbers of which one is zero and the product none of the semiring.
        self._is_inexact = self.semiring.carrier == "float" and not all(
            math.isfinite(bound) for bound in self.semiring.domains[0]
        )
        types = {**self.inputs, **{stage.name: stage.program.type for stage in program.stages}}
        node = run_passes(program.guarded(self.semiring).node, ("sparsity",), Setting(types, self.on), self.steps)
        # Where a name stands for one thing only, an expression means the same wherever it stands.
        self.staged = Program(unique_names(node), types, program.type, is_guarded=True)
        self.remark = "as it was: nothing was looked for"
        self.is_final = self.on <= UNOPTIMISED
        self.product = self._product() if self.is_final else None
        self._built: dict[tuple[Spec, str], Built] = {}
        # The tensors that kernels make where they are named; None until it is known how large inputs are.
        self._made: tuple[t.Node, ...] | None = None
        # Of nodes in each tree that a kernel makes; a power of two.
        self.room = 256
        self._pattern: Pattern | None = None
        # The indices of a result in rows that are compressed, and that one.
        self._rows: tuple[np.ndarray, Any] | None = None
        self._has_out = "out" in program.inputs
        self.is_exact = self._is_inexact and hides_products(self.staged.node, frozenset(self.inputs))
        super().__init__()

    def call_anew(self, values: dict[str, Any], out: Any) -> Any:
        if self._has_out and out is not None:
            values["out"], out = out, None
        for name, value in values.items():
            if library_of(value) == "JAX":
                values[name] = jax_entries(value, self.semiring, name)
        numbers = tuple(values.values())
        wide, narrow = widened(numbers)
        if wide is not numbers:
            return rounded(self.call_anew(dict(zip(values, wide)), out), narrow)
        who = tracker(values.values(), self.output)
        if who is not None:
            from derivable.tensor.call import tracked

            return tracked.call(self, who, values)
        held, scalars = self._taken(values)
        sizes = self._sizes(held, scalars)
        shape = self._shape(sizes)
        if not self.is_final:
            self._optimise(held)
        call = Call(self, held, scalars, sizes, shape, values, out, self._pattern)
        while True:
            try:
                found = call.result()
                self._pattern = call.pattern
                if call.has_nan:
                    return self.exact.call_anew(dict(values), out)
                if call.cached is not None:
                    self.__call__ = call.cached
                if self.output is None and has_torch(values.values()):
                    return rounded(in_torch(found), widest(values.values()))
                return found
            except (NotWhole, Searched) as problem:
                self.change_for(problem)

    def _optimise(self, held: Mapping[str, Any]) -> None:
        """Take the cheapest program for tensors of these sizes; once."""
        known = {name: of for name, of in held.items() if name in self.staged.inputs}
        shapes = {name: of.shape for name, of in known.items()}
        counts = {name: of.num_values for name, of in known.items()}
        self.take(optimised(self.staged, shapes, counts, self.on - {"sparsity"}, self.product_cost))

    def take(self, found: Optimised) -> None:
        """Run that program."""
        node = unique_names(found.program.node)
        self.staged, self.remark = Program(node, found.program.inputs, self.program.type, is_guarded=True), found.remark
        self.steps += found.steps
        self.is_final = True
        self._made = None
        self.product = self._product()

    @property
    def product_cost(self) -> float | None:
        """Of a result that is an outer product, for each entry, as of `Costs`."""
        if not self._keeps_factors:
            return None
        # What is written along rows takes less than an addition at some place, and coordinates are written besides.
        return 0.0 if self.output is None else 0.5 if self.output in ("dense", "numpy") else 2.0

    @property
    def _keeps_factors(self) -> bool:
        return "factors" in self.on and self.semiring.name == "real" and not self.program.stages

    def _product(self) -> Product | None:
        """How the result is computed as an outer product, in the real semiring; None if it is none."""
        node, inputs = self.staged.node, self.staged.inputs
        if not self._keeps_factors or not isinstance(node, t.Multiply):
            return None
        parts = [Program(part, inputs, is_guarded=True) for part in node.children]
        if any(part.type.is_scalar for part in parts):
            return None
        formats = {name: format for name, format in self.formats.items() if name in inputs}
        order = parts[0].type.order
        shapes = (None, None) if self.shape is None else (self.shape[:order], self.shape[order:])
        made_by = Kernel if self.output is None else _OfProduct
        factors = [made_by(part, formats, shape=shape, on=self.on & UNOPTIMISED) for part, shape in zip(parts, shapes)]
        # A name is none of what an input is the size of.
        fresh = FreshNames([*inputs, *(name.rpartition(SIZE)[0] for name in inputs), *names_in(node)])
        named = {fresh(name): factor for name, factor in zip(("left", "right"), factors)}
        made = {name: factor for name, factor in named.items() if not is_simple(factor.program.node)}
        if self.output not in ("dense", "numpy") or any(factor.program.type.order > 1 for factor in made.values()):
            return Product(dict(zip(("left", "right"), factors)), self.multiplied)
        if not made:
            return None
        children = [t.Var(name) if name in made else factor.program.node for name, factor in named.items()]
        types = {**inputs, **{name: factor.program.type for name, factor in made.items()}}
        program = Program(t.Multiply(*children), types, is_guarded=True)
        on = self.on & UNOPTIMISED - {"factors"}
        whole = _OfProduct(program, formats, output="dense", shape=self.shape, on=on)
        return Product(made, whole, [name for name in whole.inputs if name not in made])

    def multiplied(self, left: Any, right: Any, out: Any = None) -> Any:
        """An outer product in the form of results. Raises NotExact, but where it stays in its factors."""
        whole = Factored(*(coordinates(part) if is_sparse(part) else dense_array(part) for part in (left, right)))
        if self.output is not None and not whole.is_finite:
            raise NotExact
        if self.output in ("dense", "numpy"):
            return whole.to_numpy(out=out)
        if out is not None:
            raise UnsupportedError(
                "the result is an outer product, which has no array of values to write to",
                hint='`output="dense"` makes one',
            )
        if isinstance(self.output, Format):
            return self.formed(whole.coordinates(), 0.0)
        return whole if self.output is None else whole.to(self.output)

    def outlined(self, values: Mapping[str, Any]) -> tuple[dict[str, Held], dict[str, Any], tuple[int, ...], bool]:
        """(tensors as they are stored, other inputs, the shape of the result, whether it is dense) of a call."""
        held, others = self._taken(values)
        shape = self._shape(self._sizes(held, others))
        return held, others, shape, self.output == "torch" or self.is_dense(held)

    @cached_property
    def on_device(self) -> Kernel:
        """The same by gathers of torch."""
        options: dict[str, Any] = {"output": self.output, "semiring": self.semiring, "shape": self.shape, "on": self.on}
        return _device_kernel()(self.program, self.formats, **options)

    @property
    def may_be_inexact(self) -> bool:
        """Whether a NaN in the result may come from a product of zero and an infinity."""
        return self._is_inexact and not self.is_exact

    @cached_property
    def exact(self) -> Kernel:
        """The same, with a look at each factor whether it is zero."""
        options: dict[str, Any] = {"output": self.output, "semiring": self.semiring, "shape": self.shape}
        found = type(self)(self.program.guarded(None), self.formats, **options, on=self.on & UNOPTIMISED - {"factors"})
        found.is_exact = True
        found.precision = self.precision
        return found

    @cached_property
    def in_reals(self) -> Kernel:
        """The same by a program of real numbers."""
        from derivable.tensor.derivative.selection import in_reals

        program = in_reals(self.program, self.semiring)
        return Kernel(program, self.formats, output=self.output, shape=self.shape, on=self.on)

    @cached_property
    def derived(self) -> Any:
        """What derivatives of the kernel keep."""
        from derivable.tensor.call.engine import Derived

        return Derived()

    def is_dense(self, held: Mapping[str, Held]) -> bool:
        """Whether a result from those inputs is an array of all places."""
        if self.output is None:
            inputs = [of for name, of in held.items() if name in self.program.inputs]
            return len(self.result_axes) == 1 or all(of.format.name == "dense" for of in inputs)
        return self.output in ("dense", "numpy")

    def formed(self, entries: Coordinates, zero: Any) -> Any:
        """A sparse result in the form that was asked for."""
        if isinstance(self.output, Format):
            return Held(self.output, entries.shape, packed(self.output, entries, zero, "the result", self.semiring))
        form = self.output or "coordinates"
        if form not in ("csr", "scipy_csr") or entries.values.dtype == object or entries.order != 2:
            return entries.to(form, zero)
        # Where the rows of a pattern begin is found once; what a caller gets is its own.
        if self._rows is None or self._rows[0] is not entries.indices:
            self._rows = entries.indices, entries.to(form, zero)
        of = self._rows[1]
        return type(of)((entries.values, of.indices.copy(), of.indptr.copy()), shape=of.shape)

    @cached_property
    def depends_on_values(self) -> bool:
        """Whether a comparison of reals may decide where entries are."""
        return _chooses_by_reals(self.program.node, self.program.types)

    def held(self, held: Mapping[str, Held], scalars: Mapping[str, Any]) -> Any:
        """The result as a stage of another kernel, a tensor or a number, from what that one holds."""
        mine = {name: held.get(name, scalars.get(name)) for name in self.inputs}
        found, order = self(**mine), self.program.type.order
        # Stages of programs with other semirings hold numbers that need be no elements of theirs.
        return (
            hold(found, format_of("csf", order), order, "real" if self.precision else self.semiring) if order else found
        )

    def _stage(self, stage: Stage) -> Kernel:
        """A kernel in which numbers are rounded as in all other stages, so that equal ones are found again."""
        formats = {name: format for name, format in self.formats.items() if name in stage.program.inputs}
        on = self.on & UNOPTIMISED - {"factors"}
        output = "coordinates" if stage.program.type.order else None
        found = Kernel(stage.program, formats, output=output, semiring=stage.semiring, on=on)
        found.precision = "float64"
        return found

    def change_for(self, problem: NotWhole | Searched) -> None:
        """Make before all else what loops need: a tensor whole, or an input stored in another way."""
        if isinstance(problem, Searched):
            self.searched |= {problem.name}
        else:
            self._add_stage(problem)
        self._built.clear()
        self._made = None

    def stored_for_search(self, held: Mapping[str, Held]) -> dict[str, Held]:
        """Those that loops look up, stored so that the first indices lead to their entries."""
        # Stages take numbers that need be no elements of their semirings.
        semiring = "real" if self.precision else self.semiring
        return {name: by_first_axes(held[name], semiring) for name in self.searched & held.keys()}

    def _add_stage(self, problem: NotWhole) -> None:
        """Make a tensor whole, as a stage of its own if possible."""
        node, inputs = self.staged.node, dict(self.staged.inputs)
        name = FreshNames([*inputs, *names_in(node)])("whole")
        node = replaced(node, problem.node, t.Var(name))
        if problem.is_stage:
            taken = {given: of for given, of in inputs.items() if given in free_variables(problem.closed)}
            formats = {given: of for given, of in self.formats.items() if given in taken}
            # Sparse entries take less than dense factors.
            on = self.on & UNOPTIMISED - {"factors"}
            closed = Program(problem.closed, taken, is_guarded=True)
            stage = Kernel(closed, formats, output="coordinates", semiring=self.semiring, on=on)
            self.stages[name] = stage
            inputs[name] = stage.program.type
        else:
            node = t.Let(name, problem.closed, node)
        self.staged = Program(node, inputs, self.program.type, is_guarded=True)

    def explain(self, stage: str | None = None, /, **values: Any) -> str:
        """What a call with such inputs does, stage by stage, as `Program.explain`.

        A kernel that was called before is the one for the sizes of its first call. Raises as `Program.explain`.
        """
        return self.program.shown(self, stage, values)

    def kernels(self) -> list[n.Kernel]:
        """The loops of all that calls have run so far, those of parts first."""
        product = self.product
        parts = [*self.stages.values(), *(() if product is None else product.factors.values())]
        if product is not None and isinstance(product.whole, Kernel):
            parts.append(product.whole)
        return [kernel for part in parts for kernel in part.kernels()] + [
            built.kernel for built in self._built.values()
        ]

    def fresh(self) -> Kernel:
        """The kernel as it is, without the loops of its calls."""
        found = copy(self)
        vars(found).pop("exact", None)
        found.steps, found.stages, found._built = list(self.steps), dict(self.stages), {}
        found._pattern = None
        return found

    def of_shape(self, shape: tuple[int, ...]) -> Kernel:
        """A copy whose result has this shape: for results whose keys are computed."""
        shaped = self.fresh()
        shaped.shape = shape
        shaped.axis_sizes = replace(self.axis_sizes, shape=shape)
        return shaped

    def taken(self, values: Mapping[str, Any]) -> dict[str, Held]:
        """The tensors among the inputs of a call, as they are stored. Raises as a call does."""
        return self._taken(values)[0]

    def built(self, spec: Spec, kind: str, size: Callable[[str, Any, Any], float]) -> Built:
        """The loops for inputs that are stored so. size: of the inputs of this call, as of `made_once`"""
        found = self._built.get((spec, kind))
        if found is None:
            of, spec_of = self.program.type, replace(spec, kind=kind)
            if self._made is None:
                self._made = made_once(self.staged, of, spec_of, size) if "workspaces" in self.on else ()
            found = self._built[spec, kind] = build_kernel(self.staged, of, spec_of, self._made)
        return found

    def _taken(self, values: Mapping[str, Any]) -> tuple[dict[str, Held], dict[str, Any]]:
        """(tensors, scalars and arrays) by name; the sizes of axes that are not given are those of the tensors."""
        held: dict[str, Held] = {}
        others: dict[str, Any] = {}
        shapeless: dict[str, Any] = {}
        for name, value, of in checked_names(self.program.inputs, self.inputs, values):
            if isinstance(value, Mapping):
                shapeless[name] = value
            elif self.precision and isinstance(value, Held):
                # Stages take what the kernel holds, also numbers that are no elements of their semiring.
                held[name] = value
            elif is_tensor(of):
                held[name] = hold(value, self.formats.get(name), of.order, self._semiring_of(name), name)
            else:
                others[name] = number(value, of, self.semiring, name)
        for name, entries in self.shaped(shapeless, held).items():
            held[name] = hold(entries, self.formats.get(name), entries.order, self._semiring_of(name), name)
        return held, others

    def _semiring_of(self, name: str) -> Semiring:
        """Of whose elements an input is: those of the stages that take it, in a derivative by numbers."""
        stages = (stage.semiring for stage in self.program.stages if name in free_variables(stage.program.node))
        return next(stages, self.semiring)

    def shaped(self, given: Mapping[str, Mapping], held: Mapping[str, Any]) -> dict[str, Coordinates]:
        """Dictionaries as tensors: their axes are as long as those that they share, or as their indices need."""
        if not given:
            return {}
        entries = {
            name: coordinates(value, order=self.program.inputs[name].order, semiring=self._semiring_of(name), name=name)
            for name, value in given.items()
        }
        sizes: dict[Any, int] = {}
        for name, of in (*held.items(), *entries.items()):
            for k, size in enumerate(of.shape):
                root = self.axes.root((name, k))
                sizes[root] = max(sizes.get(root, 0), size)
        return {
            name: replace(of, shape=tuple(sizes[self.axes.root((name, k))] for k in range(of.order)))
            for name, of in entries.items()
        }

    def _sizes(self, held: Mapping[str, Any], others: Mapping[str, Any]) -> dict[Any, int]:
        """The size of each axis of the inputs. Raises ShapeError where axes that are the same differ."""
        return self.axis_sizes.of_inputs(held, others, is_stage=self.precision is not None)

    def _shape(self, sizes: Mapping[Any, int]) -> tuple[int, ...]:
        return self.axis_sizes.of_result(sizes, is_stage=self.precision is not None)


class _OfProduct(Kernel):
    """A part of how another kernel computes an outer product."""

    @property
    def exact(self) -> Kernel:
        """None: the other kernel starts again, as a sum of numbers that cancel differs from a missing entry."""
        raise NotExact


def _output_of(program: Program, output: str | Format | None) -> str | Format | None:
    """What the result becomes: a form of `Coordinates.to`, or a format."""
    order = program.type.order
    if isinstance(output, Format):
        if output.order != order:
            raise ShapeError(f"the format `{output.name}` is of order {output.order}, and the result of order {order}")
        return output
    if output is None:
        return None
    if not isinstance(output, str) or output not in families():
        # What is neither a form nor a format is no form.
        FORMS[output]
    if order == 0:
        return None
    return output if output in FORMS else format_of(output, order)


def _chooses_by_reals(node: t.Node, types: Types) -> bool:
    """Whether a condition in an expression compares reals."""
    found: list[Type | None] = []
    chooses = False
    for part in node.children:
        inner = scope(node, found, types)
        found.append(check(part, inner))
        if isinstance(node, t.If) and part is node.condition:
            # A guard makes values zero, and leaves entries where they are.
            terms = [guarded_part(term) or term for term in conjuncts(part)]
        else:
            terms = [part]
        chooses = chooses or any(_chooses_by_reals(term, inner) for term in terms)
    condition = node.operands if isinstance(node, t.Apply) and OPERATIONS[node.operation].rule == "comparison" else ()
    return chooses or any(of is None or of == REAL for of, _ in zip(found, condition))
