"""Cheaper programs with the same result, for inputs of given sizes, by those passes of `passes` that know sizes.

Source: section 5.2 of Shaikhha, Huot and Hashemian, nabla-SD (2023).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from numbers import Real
from typing import Any

from derivable.core.diagnostics import DomainError, ShapeError
from derivable.core.names import FreshNames
from derivable.core.registry import suggestion
from derivable.tensor.analysis.axes import Axes, axes_of, inputs_known
from derivable.tensor.analysis.loop_cost import PER_ROW, SIZE, Costs, Entries, entries_of
from derivable.tensor.analysis.sparsity import propagate
from derivable.tensor.language import nodes as t
from derivable.tensor.language.binding import by_name, free_variables, renamed
from derivable.tensor.language.program import Program
from derivable.tensor.language.types import Type
from derivable.tensor.optimisation.passes import KERNEL, Setting, Step, Switches, run_passes, switched
from derivable.tensor.optimisation.saturate import out_of_reach
from derivable.tensor.optimisation.terms import Terms
from derivable.tensor.values.values import checked_shape

Sizes = Mapping[str, Sequence[int]] | None
Counts = Mapping[str, int] | None


def optimise(program: Program, sizes: Sizes = None, counts: Counts = None, *, passes: Switches = None) -> Program:
    """The cheapest program with the same result that was found.

    sizes   of the axes of inputs, by name; by default 10,000, or as long as an axis that must be equally long
    counts  entries of inputs, by name; by default vectors are dense and matrices have 10 entries in a row
    passes  {name: whether it runs} of passes that are not to run as they do by default

    Sums and products are taken in another order, so results are equal up to rounding, and entries that are zero may be
    missing. It holds in every commutative semiring. Programs of more than 200 operations, and those over arrays of
    storage formats, come back as they are.

    Raises DomainError for unknown names and negative counts, and ShapeError for a wrong number of sizes.
    """
    return optimised(program, sizes, counts, switched(passes)).program


@dataclass(frozen=True)
class Optimised:
    """A program that was made cheaper, what the passes did, and what was gained."""

    program: Program
    steps: tuple[Step, ...]
    remark: str


def optimised(
    program: Program, sizes: Sizes, counts: Counts, on: frozenset[str], product: float | None = None
) -> Optimised:
    """`optimise` with those passes, and what happened. product: as of `Costs`"""
    original, program = program, program.guarded(None)
    costs = replace(costs_of(program, sizes, counts), product=product)
    reason = out_of_reach(program.node, program.inputs)
    if reason:
        return Optimised(original, (), f"as it was: {reason}")
    steps: list[Step] = []
    node = run_passes(program.node, ("sparsity", *KERNEL), Setting(program.inputs, on, costs=costs), steps)
    made = replace(
        program,
        node=renamed(node, FreshNames(free_variables(node)), is_short=True),
        zero=program.type,
        steps=(*program.steps, *steps),
    )
    if isinstance(node, t.Zero):
        return Optimised(made, tuple(steps), "zero")
    before, after = (node_cost(each.node, program.inputs, costs) for each in (program, made))
    if after >= before:
        return Optimised(
            original, tuple(steps), f"as it was: none of less than about {before:.3g} operations was found"
        )
    return Optimised(made, tuple(steps), f"about {after:.3g} operations, before {before:.3g}")


def loop_cost(program: Program, sizes: Sizes = None, counts: Counts = None) -> float:
    """About how many operations a program takes. Arguments and errors as of `optimise`."""
    return node_cost(program.node, program.inputs, costs_of(program, sizes, counts))


def node_cost(node: t.Node, types: Mapping[str, Type], costs: Costs) -> float:
    """About how many operations an expression takes; types are those of its free variables."""
    terms = Terms(types, costs.copy())
    return terms.whole_cost(terms.term(propagate(node))).total


def costs_of(program: Program, sizes: Sizes = None, counts: Counts = None) -> Costs:
    """What loops over the inputs of a program cost. Arguments and errors as of `optimise`."""
    Program.given(program, "optimised")
    sizes, counts = by_name(sizes, "sizes"), by_name(counts, "counts")
    tensors = {name: of for name, of in program.inputs.items() if of.order}
    for name in (*sizes, *counts):
        if name not in tensors:
            raise DomainError(
                f"the program has no tensor `{name}`",
                hint=suggestion(name, tensors, f"it has {', '.join(tensors) or 'none'}"),
            )
    axes = Axes()
    known = inputs_known(program.inputs)
    axes_of(program.node, known, axes)
    lengths: dict[Any, float] = {}
    for name, shape in sizes.items():
        shape = checked_shape(shape, f"a size of `{name}`")
        if len(shape) != tensors[name].order:
            raise ShapeError(f"`{name}` is {tensors[name]}, and {len(shape)} sizes of it were given")
        # Of an axis without indices one is counted: what has no entries costs next to nothing either way.
        lengths |= {axes.root((name, axis)): float(max(size, 1)) for axis, size in enumerate(shape)}
    found: dict[str, Entries] = {}
    for name, of in tensors.items():
        shape = [lengths.get(axes.root((name, axis)), SIZE) for axis in range(of.order)]
        count = counts.get(name, shape[0] * PER_ROW ** (of.order - 1))
        if not isinstance(count, Real) or count < 0:
            raise DomainError(f"`{name}` has {count!r} entries", hint="a count is at least 0")
        found[name] = entries_of(shape, count)
    indices = {
        name: lengths.get(axes.root(of.axis), SIZE) for name, of in known.items() if of.is_size and of.axis is not None
    }
    return Costs(found, indices)
