"""The axes of tensors: which indices run over the same one, and how large they and results are.

The size of an axis of an input is an integer input too, `size_name` says which; no index of the axis reaches it.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any

from derivable.tensor.language import nodes as t
from derivable.tensor.language.binding import unique_names
from derivable.tensor.language.types import INT, SIZE, Type, is_tensor

# An axis of an input is (name, number), and one whose indices are those of a range from 0 the expression that the range
# ends at. None is an axis of which nothing is known.
Axis = Hashable
# The size of each axis, or () of what is no tensor; None where it is not known.
Sizes = tuple[t.Node | None, ...]


@dataclass
class Axes:
    """Which axes are the same, because an index of one is looked up in the other or they are added.

    places     for each two that became the same, where: ((axis, axis), expression)
    added      (size, size, sum) of axes that are added, where one of them is that of a range and the other is not
    is_strict  what is added to a tensor of which nothing is known may have any indices; else it is taken to fit
    """

    _above: dict[Axis, Axis] = field(default_factory=dict)
    places: list[tuple[tuple[Axis, Axis], t.Node]] = field(default_factory=list)
    added: list[tuple[t.Node, t.Node, t.Node]] = field(default_factory=list)
    is_strict: bool = False

    def root(self, axis: Axis) -> Axis:
        while axis in self._above:
            axis = self._above[axis]
        return axis

    def join(self, left: Axis, right: Axis, node: t.Node) -> Axis:
        """The one that both are now; one of which nothing but a size is known is nothing to the other."""
        if not _is_of_input(left) or not _is_of_input(right):
            known = [axis for axis in (left, right) if axis is not None]
            return None if self.is_strict else max(known, key=_is_of_input, default=None)
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

    @property
    def of_inputs(self) -> tuple[Axis, ...]:
        """The axes; None for those of no input."""
        return tuple([axis if _is_of_input(axis) else None for axis in self.axes])


def _is_of_input(axis: Axis) -> bool:
    return axis is not None and not isinstance(axis, t.Node)


def axes_of(node: t.Node, names: Mapping[str, Known], axes: Axes) -> Known:
    """What is known of an expression; joins axes on the way. Zeros have no axes."""
    match node:
        case t.Var():
            return names.get(node.name, Known())
        case t.Sum() | t.Let():
            return axes_of(node.body, inside(node, names, axes), axes)
        case t.Singleton():
            key = axes_of(node.key, names, axes)
            return Known((key.axis, *axes_of(node.value, names, axes).axes))
        case t.Lookup():
            over, key = axes_of(node.tensor, names, axes), axes_of(node.key, names, axes)
            if over.axes:
                axes.join(over.axes[0], key.axis, node)
            return Known(over.axes[1:])
        case t.If():
            axes_of(node.condition, names, axes)
            return axes_of(node.body, names, axes)
        case t.Add() if _are_apart(node):
            for child in node.children:
                axes_of(child, names, axes)
            return Known()
        case t.Add():
            left, right = (axes_of(part, names, axes).axes for part in node.children)
            if not left or not right:
                return Known(left or right)
            sizes = [(size_of(a), size_of(b)) for a, b in zip(left, right) if not (_is_of_input(a) and _is_of_input(b))]
            axes.added += [(a, b, node) for a, b in sizes if a and b and a != b]
            return Known(tuple(axes.join(a, b, node) for a, b in zip(left, right)))
        case t.Multiply():
            left, right = (axes_of(part, names, axes).axes for part in node.children)
            return Known(left + right)
        case _:
            for child in node.children:
                axes_of(child, names, axes)
            return Known()


def _are_apart(node: t.Add) -> bool:
    """Whether two tensors have numbers as first keys, none in common: their further axes are of different things."""
    left, right = map(_numbers, node.children)
    return left is not None and right is not None and not left & right


def _numbers(node: t.Node) -> set[t.Node] | None:
    """The numbers that the first keys of a tensor are, where it can be seen from its form; else None."""
    match node:
        case t.Sum() | t.Let() | t.If():
            return _numbers(node.body)
        case t.Add():
            left, right = map(_numbers, node.children)
            return None if left is None or right is None else left | right
        case t.Singleton(t.Number() as number, _):
            return {number}
    return None


def inside(node: t.Sum | t.Let, names: Mapping[str, Known], axes: Axes) -> dict[str, Known]:
    """The names with those that a node binds."""
    if isinstance(node, t.Let):
        return {**names, node.name: axes_of(node.value, names, axes)}
    over = axes_of(node.range, names, axes)
    if not isinstance(node.range, t.Range):
        first, others = (over.axes[0], over.axes[1:]) if over.axes else (None, ())
        return {**names, node.key: Known(axis=first), node.value: Known(others)}
    stop = axes_of(node.range.stop, names, axes)
    counted = node.range.stop if node.range.start == t.Number(0) else None
    return {**names, node.key: Known(), node.value: Known(axis=stop.axis if stop.is_size else counted)}


def inputs_known(inputs: Mapping[str, Type]) -> dict[str, Known]:
    """The inputs of a program, by their names. `X_size_0` is the size of axis 0 of `X`."""
    found = {
        name: Known(tuple((name, k) for k in range(of.order)) if is_tensor(of) else ()) for name, of in inputs.items()
    }
    for name, of in inputs.items():
        tensor, _, axis = name.rpartition(SIZE)
        if tensor and axis.isdigit() and of == INT:
            found[name] = Known(axis=(tensor, int(axis)), is_size=True)
    return found


def size_name(tensor: str, axis: int) -> str:
    """The name of the input that is the size of an axis of an input.

    >>> size_name("X", 0)
    'X_size_0'
    """
    return f"{tensor}{SIZE}{axis}"


def size_inputs(inputs: Mapping[str, Type]) -> dict[str, Type]:
    """Those inputs, {name: int}, for all axes of tensors among `inputs`."""
    return {size_name(name, axis): INT for name, type_ in inputs.items() for axis in range(type_.order)}


def size_of(axis: Any) -> t.Node | None:
    """The size of an axis as an expression; None where it is not known."""
    return t.Var(size_name(*axis)) if _is_of_input(axis) else axis


def axis_sizes(node: t.Node, inputs: Mapping[str, Type]) -> Sizes:
    """The size of each axis of an expression, in the sizes of the axes of inputs; None where it is not known."""
    return tuple(map(size_of, axes_of(unique_names(node), inputs_known(inputs), Axes()).axes))


def added_sizes(node: t.Node, inputs: Mapping[str, Type]) -> list[tuple[t.Node, t.Node, t.Node]]:
    """(size, size, sum) of axes that are added, where one of them is that of a range and two expressions say how long
    they are, in the sizes of axes of inputs."""
    axes = Axes()
    axes_of(unique_names(node), inputs_known(inputs), axes)
    return axes.added


def describe(axis: Any) -> str:
    name, number = axis
    return f"axis {number} of `{name}`"
