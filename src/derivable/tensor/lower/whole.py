"""What a kernel may have to hold whole: of which inputs a tensor is made, and along which axes its keys are."""

from __future__ import annotations

from typing import Any

from derivable.tensor.analysis.anf import bound as to_let
from derivable.tensor.analysis.axes import Axes, Known, axes_of
from derivable.tensor.analysis.bound import Bound, Closure, Listed, Names, NotWhole, Scalar, Tree
from derivable.tensor.analysis.unique import is_unique
from derivable.tensor.language import nodes as t
from derivable.tensor.language.binding import free_variables, replaced
from derivable.tensor.language.types import Type


def axes_of_keys(node: t.Node, names: Names, of: Type) -> tuple[Any, ...]:
    """The axes whose indices all keys of a tensor are; None where they may be others."""
    axes = axes_of(node, _all_known(names), Axes(is_strict=True)).of_inputs
    return axes if len(axes) == of.order else (None,) * of.order


def check_depends_on_loops(
    node: t.Node, names: Names, of: Type, program: t.Node, inputs: Names, is_named_in_loops: bool
) -> None:
    """Raises NotWhole for a tensor that depends on nothing but the inputs of the program, so that it can be made before
    all loops.

    is_named_in_loops  whether it is not made there already
    """
    bindings: dict[str, tuple[Bound, t.Node]] = {}
    if isinstance(node, t.Var) and is_unique(node, names):
        # An input is no more of a whole as a stage.
        return
    if replaced(program, node, t.Zero()) is program or not _closes(node, names, inputs, bindings):
        return
    closed = to_let([(name, value) for name, (_, value) in bindings.items()], node)
    is_stage = False
    if of.order > 1 or isinstance(closed, t.Var):
        is_stage = None not in (axes_of(closed, _all_known(inputs), Axes(is_strict=True)).of_inputs or (None,))
    if is_stage or is_named_in_loops:
        raise NotWhole(node, closed, is_stage)


def _closes(node: t.Node, names: Names, inputs: Names, bindings: dict[str, tuple[Bound, t.Node]]) -> bool:
    """Whether `let`s of expressions make an expression one of inputs only, and which."""
    for name in sorted(free_variables(node)):
        bound = names[name]
        if inputs.get(name) is bound:
            continue
        if name in bindings:
            if bindings[name][0] is not bound:
                return False
            continue
        if not isinstance(bound, Closure) or bound.axes or name in inputs:
            return False
        if not _closes(bound.node, bound.names, inputs, bindings):
            return False
        bindings[name] = bound, bound.node
    return True


def _all_known(names: Names) -> dict[str, Known]:
    return {name: _known(bound) for name, bound in names.items()}


def _known(bound: Bound) -> Known:
    if isinstance(bound, Scalar):
        return Known(axis=bound.axis, is_size=bound.is_size)
    if isinstance(bound, Listed):
        return Known((bound.axis,))
    if isinstance(bound, Tree):
        return Known(bound.axes)
    if isinstance(bound, Closure) and not bound.axes:
        return axes_of(bound.node, _all_known(bound.names), Axes(is_strict=True))
    return Known(bound.axes) if isinstance(bound, Closure) else Known()
