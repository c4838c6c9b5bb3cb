"""The axes of tensors: which indices run over the same one, and so how large results are."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any

from derivable.tensor.language import nodes as t
from derivable.tensor.language.types import INT, Type, is_tensor

# An axis of an input is (name, number). None is an axis of which nothing is known.
Axis = Hashable


@dataclass
class Axes:
    """Which axes are the same, because an index of one is looked up in the other or they are added.

    places     for each two that became the same, where: ((axis, axis), expression)
    is_strict  what is added to a tensor of which nothing is known may have any indices; else it is taken to fit
    """

    _above: dict[Axis, Axis] = field(default_factory=dict)
    places: list[tuple[tuple[Axis, Axis], t.Node]] = field(default_factory=list)
    is_strict: bool = False

    def root(self, axis: Axis) -> Axis:
        while axis in self._above:
            axis = self._above[axis]
        return axis

    def join(self, left: Axis, right: Axis, node: t.Node) -> Axis:
        """The one that both are now; one of which nothing is known is nothing to the other."""
        if left is None or right is None:
            return None if self.is_strict else right if left is None else left
        self.places.append(((left, right), node))
        first, second = self.root(left), self.root(right)
        if first != second:
            self._above[second] = first
        return first


@dataclass(frozen=True)
class Known:
    """What a name has: of a tensor its axes, of an index the axis that it runs over."""

    axes: tuple[Axis, ...] = ()
    axis: Axis = None
    # The number of indices of an axis: a range up to it runs over the axis.
    is_size: bool = False


def axes_of(node: t.Node, names: Mapping[str, Known], axes: Axes) -> Known:
    """What is known of an expression; joins axes on the way. Zeros have no axes."""
    match node:
        case t.Var():
            return names[node.name]
        case t.Sum():
            over = axes_of(node.range, names, axes)
            if isinstance(node.range, t.Range):
                stop = axes_of(node.range.stop, names, axes)
                key, value = Known(), Known(axis=stop.axis if stop.is_size else None)
            else:
                key, value = Known(axis=over.axes[0] if over.axes else None), Known(over.axes[1:])
            return axes_of(node.body, {**names, node.key: key, node.value: value}, axes)
        case t.Singleton():
            key = axes_of(node.key, names, axes)
            return Known((key.axis, *axes_of(node.value, names, axes).axes))
        case t.Lookup():
            over, key = axes_of(node.tensor, names, axes), axes_of(node.key, names, axes)
            if over.axes:
                axes.join(over.axes[0], key.axis, node)
            return Known(over.axes[1:])
        case t.Let():
            return axes_of(node.body, {**names, node.name: axes_of(node.value, names, axes)}, axes)
        case t.If():
            axes_of(node.condition, names, axes)
            return axes_of(node.body, names, axes)
        case t.Add():
            left, right = (axes_of(part, names, axes).axes for part in node.children)
            if not left or not right:
                return Known(left or right)
            return Known(tuple(axes.join(a, b, node) for a, b in zip(left, right)))
        case t.Multiply():
            left, right = (axes_of(part, names, axes).axes for part in node.children)
            return Known(left + right)
        case _:
            for child in node.children:
                axes_of(child, names, axes)
            return Known()


def inputs_known(inputs: Mapping[str, Type]) -> dict[str, Known]:
    """The inputs of a program, by their names. `X_size_0` is the size of axis 0 of `X`."""
    found = {
        name: Known(tuple((name, k) for k in range(of.order)) if is_tensor(of) else ()) for name, of in inputs.items()
    }
    for name, of in inputs.items():
        tensor, _, axis = name.rpartition("_size_")
        if tensor and axis.isdigit() and of == INT:
            found[name] = Known(axis=(tensor, int(axis)), is_size=True)
    return found


def describe(axis: Any) -> str:
    name, number = axis
    return f"axis {number} of `{name}`"
