"""What programs and kernels are at each stage of their way, as text."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from derivable.core.diagnostics import DerivableError, DomainError, UnsupportedError
from derivable.core.registry import nearest
from derivable.kernel import nodes as n
from derivable.kernel.emit_llvm import emit_llvm
from derivable.tensor.analysis.axes import size_inputs
from derivable.tensor.call.compilation import Kernel, compile
from derivable.tensor.formats.format import Format
from derivable.tensor.formats.held import hold
from derivable.tensor.language import nodes as t
from derivable.tensor.language.binding import substitute
from derivable.tensor.language.program import Program
from derivable.tensor.language.types import BOOL, INT, SIZE, is_tensor
from derivable.tensor.lower.prefetch import with_prefetches
from derivable.tensor.optimisation.optimisation import costs_of, node_cost, optimised
from derivable.tensor.optimisation.passes import DIFFERENTIATION, PASSES, Step

# How inputs are stored that nobody gave, by order, and how large they are where loops are looked at.
_USUAL = {1: "dense", 2: "csr"}
_SMALL = 2
STAGES = ("logical", "differentiated", "optimised", "physical", "loops", "source")


def explain(program: Program, kernel: Kernel | None, stage: str | None, values: Mapping[str, Any]) -> str:
    """The text of `Program.explain`, and of `Kernel.explain`. The kernel stays what it is: one that was never called is
    explained by another."""
    is_physical = any(of.order and not is_tensor(of) for of in program.inputs.values())
    if is_physical and stage in (None, "logical"):
        # Programs over arrays are interpreted.
        return _logical(program)
    known(stage)
    kernel = kernel or compile(program)
    if stage is None:
        shown = [each for each in STAGES if each != "differentiated" or kernel.program.origin is not None]
        texts = {each: _stage(kernel, each, values) for each in shown}
        return "\n\n".join(f"# {each}\n{text}" for each, text in texts.items())
    return _stage(kernel, stage, values)


def known(stage: str | None) -> None:
    """Raises DomainError for an unknown stage."""
    stages = (*STAGES, "passes", *PASSES)
    if stage is not None and stage not in stages:
        close = nearest(stage, stages)
        hint = f"did you mean {close!r}?" if close else f"the stages are {', '.join(stages)}"
        raise DomainError(f"there is no stage {stage!r}", hint=hint)


def _stage(kernel: Kernel, stage: str, values: Mapping[str, Any]) -> str:
    if stage == "logical":
        return _logical(_written(kernel.program))
    if stage == "differentiated":
        return _differentiated(kernel.program)
    if stage in PASSES and PASSES[stage].when == "lowering":
        raise UnsupportedError(f"`{stage}` is a part of the lowering", hint='its result is the stage "loops"')
    chosen = _chosen(kernel, values)
    if stage == "optimised":
        return f"{chosen.staged}\n# {chosen.remark}"
    if stage == "passes":
        return _table(chosen, values)
    if stage in PASSES:
        found = [step for step in _steps(chosen) if step.name == stage]
        if not found:
            raise UnsupportedError(f"the pass `{stage}` did not run")
        return str(found[-1].after)
    if stage == "physical":
        held = chosen.taken(values or _examples(chosen))
        held |= kernel.stored_for_search(held)
        lines = [f"let {name} = {_prefixed(of.format, name)} in" for name, of in held.items()]
        return "\n".join([*lines, str(chosen.staged)])
    return "\n\n".join(map(str if stage == "loops" else _source, _kernels(chosen, values)))


def _source(kernel: n.Kernel) -> str:
    return emit_llvm(with_prefetches(kernel))


# A program's way


def _written(program: Program) -> Program:
    """What was written: of a derivative the program that was differentiated."""
    while program.origin is not None:
        program = program.origin
    return program


def _logical(program: Program) -> str:
    inputs = [f"{name}: {of}" for name, of in program.inputs.items()]
    return "\n".join([*inputs, str(program), f"# {program.type}"])


def _differentiated(program: Program) -> str:
    """Derivatives before they are simplified, the first one first."""
    found = []
    while program.origin is not None:
        found += [str(step.after) for step in program.steps if step.name == DIFFERENTIATION]
        program = program.origin
    if not found:
        raise UnsupportedError("the program is no derivative", hint="`gradient` and its kin make one")
    return "\n\n".join(reversed(found))


# Kernels


def _chosen(kernel: Kernel, values: Mapping[str, Any]) -> Kernel:
    """A kernel that has taken its program for those inputs; for inputs of the default sizes, if there are none."""
    found = kernel.fresh()
    if not found.is_final:
        sizes, counts = _measured(found, values)
        found.take(optimised(found.staged, sizes, counts, found.on - {"sparsity"}, found.product_cost))
    return found


def _measured(kernel: Kernel, values: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, int]]:
    """(shapes, counts of entries) of the tensors among values."""
    held = kernel.taken(values) if values else {}
    return {name: of.shape for name, of in held.items()}, {name: of.num_values for name, of in held.items()}


def _examples(kernel: Kernel) -> dict[str, Any]:
    """Small tensors, stored as the kernel takes them or as is usual, and numbers, for all inputs."""
    found: dict[str, Any] = {}
    for name, of in kernel.inputs.items():
        if is_tensor(of):
            ones = np.full((_SMALL,) * of.order, kernel.semiring.typed("float64").one[0])
            format = kernel.formats.get(name, _USUAL.get(of.order, "csf"))
            found[name] = hold(ones, format, of.order, kernel.semiring, name)
        else:
            found[name] = {INT: _SMALL if SIZE in name else 0, BOOL: False}.get(of, kernel.semiring.one)
    return found


def _kernels(kernel: Kernel, values: Mapping[str, Any]) -> list[n.Kernel]:
    if values:
        kernel(**values)
        return kernel.kernels()
    if kernel.shape is None and None in kernel.result_axes:
        kernel = kernel.of_shape((_SMALL,) * len(kernel.result_axes))
    try:
        kernel(**_examples(kernel))
    except DerivableError:
        # Keys may leave a result without places; what is built before is the same for any.
        if not kernel.kernels():
            raise
    return kernel.kernels()


def _prefixed(format: Format, name: str) -> t.Node:
    """The definition of a format, with the names that its arrays have in kernels."""
    return substitute(format.node, {part: t.Var(f"{name}_{part}") for part in format.types})


# Passes


@dataclass(frozen=True)
class Effect:
    """What a pass did to a program.

    operations  of its expression, before and after
    cost        of its loops, as `optimise` estimates it, before and after
    """

    name: str
    seconds: float
    operations: tuple[int, int]
    cost: tuple[float, float]


def effects(kernel: Kernel, values: Mapping[str, Any]) -> list[Effect]:
    """What each pass did on the way to a kernel for such inputs, in order; without any, for inputs of default sizes."""
    chosen = _chosen(kernel, values)
    sizes, counts = _measured(chosen, values)
    types = dict(kernel.program.types)
    origin: Program | None = kernel.program
    while origin is not None:
        types |= {**size_inputs(origin.inputs), **origin.types}
        origin = origin.origin
    costs = costs_of(Program(kernel.program.node, types), sizes, counts)
    return [
        Effect(
            step.name,
            step.seconds,
            (_size(step.before), _size(step.after)),
            (node_cost(step.before, types, costs), node_cost(step.after, types, costs)),
        )
        for step in _steps(chosen)
    ]


def _size(node: t.Node) -> int:
    return sum(1 for _ in t.walk(node))


def _steps(kernel: Kernel) -> list[Step]:
    """All steps to a kernel, also those of the derivatives that were differentiated again."""
    found = kernel.steps
    program: Program | None = kernel.program
    while program is not None:
        found = [*program.steps, *found]
        program = program.origin
    return found


def _table(kernel: Kernel, values: Mapping[str, Any]) -> str:
    rows = [("pass", "      ms", "operations", "loop cost")]
    for effect in effects(kernel, values):
        (before, after), (cost, less) = effect.operations, effect.cost
        rows.append((effect.name, f"{1e3 * effect.seconds:8.2f}", f"{before} > {after}", f"{cost:.3g} > {less:.3g}"))
    widths = [max(map(len, column)) for column in zip(*rows)]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in rows]
    lowering = [name for name, each in PASSES.items() if each.when == "lowering" and name in kernel.on]
    off = [name for name in PASSES if name not in kernel.on]
    lines.append(f"# part of the lowering: {', '.join(lowering) or 'none'}")
    lines.append(f"# switched off: {', '.join(off) or 'none'}")
    return "\n".join(lines)
