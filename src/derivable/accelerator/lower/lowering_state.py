"""The state of a lowering: where values lie, off-chip constants, and what all operators need."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from derivable.accelerator.lower.emission import Emitter, moving_cycles
from derivable.accelerator.machine.instructions import Machine, Transfer
from derivable.accelerator.machine.layouts import Allocator, Shape, View, dense, like
from derivable.accelerator.numbers.formats import WIDE, Format, Formats, scaling, zero_shift
from derivable.accelerator.operators.operators import Operator, OperatorGraph
from derivable.accelerator.operators.runtime import Layer, ceil_div
from derivable.core.diagnostics import DomainError, UnsupportedError

TRANSFERRED = 512  # lines of one transfer
VIEWS = ("reshape", "permute", "slice", "expand")  # kinds of operators that copy nothing where strides give them


@dataclass
class Value:
    """A value in the cache. `forms` has it as its readers need it: converted, or in another order."""

    format: Format
    view: View
    forms: dict[object, View] = field(default_factory=dict)


class State:
    """What is known while a pass through a graph is lowered.

    partition  sub-arrays of products of matrices, from the first on, and of convolutions, up to the last
    counts     sub-arrays of operators that have another number
    """

    def __init__(
        self,
        graph: OperatorGraph,
        machine: Machine,
        formats: Formats,
        partition: tuple[int, int],
        counts: Mapping[str, int],
    ):
        self.graph, self.machine, self.formats = graph, machine, formats
        self.partition, self.counts = partition, counts
        self.emitter = Emitter(machine)
        self.cache = Allocator(machine.x, machine.line)
        self.values: dict[str, Value] = {}
        self.bordered: dict[int, View] = {}  # buffer -> the activation with zeros around that lies in it
        self.packed: set[str] = set()  # pictures of int4 of which two channels share a byte
        self.swapped: set[str] = set()  # products of which the value stands still and the constant streams
        self.as_layers: dict[str, Layer] = {}  # what bindings are that are done as products of matrices
        self.image = bytearray()
        self.operator: Operator = graph.operators[0]
        self.number = 0  # of the pass
        self._fixed: dict[bytes, int] = {}  # of what lies off-chip and is only read, its hash and address
        self._constants: dict[object, View] = {}
        self._turns: dict[str, int] = {}  # of each memory of the sub-arrays, the half that was taken last
        self._ends: dict[str, int] = {}  # and where the last words for vectors end
        self._temporary: dict[str, list[int]] = {}  # of each operator under way
        self._kept: dict[int, set[str]] = {}  # buffer -> values in it
        self._roots: dict[int, View] = {}  # buffer -> the first of these values
        self._rows: dict[int, View] = {}  # buffer -> that value in rows, of the last axis

    def following(self) -> State:
        """The pass after this one, in the same program: both have the memories of one machine, and the same constants
        off-chip."""
        found = State(self.graph, self.machine, self.formats, self.partition, self.counts)
        found.number = self.number + 1
        found.emitter, found.cache, found.image = self.emitter, self.cache, self.image
        found._turns, found._ends, found._fixed = self._turns, self._ends, self._fixed
        return found

    def enter(self, operator: Operator) -> None:
        """Instructions and temporary memory from here on are of this operator."""
        self.operator = operator
        self.emitter.node, self.emitter.of_pass = operator.name, self.number

    def arrays_of(self, operator: Operator) -> int:
        """How many sub-arrays an operator has: a product of matrices the first ones, a convolution the last ones."""
        if operator.unit == "vector" and operator.name in self.as_layers:
            return self.partition[0]
        return self.counts.get(operator.name, self.partition[operator.unit == "vector"])

    def unit_of(self, operator: Operator) -> str:
        """The unit of an operator's kind, or that of layers for a binding that is done as one."""
        return "gemm" if operator.name in self.as_layers else operator.unit

    @property
    def arrays(self) -> int:
        """Sub-arrays of the operator at hand."""
        return self.arrays_of(self.operator)

    def range(self, name: str) -> tuple[float, float]:
        """The least and the largest number of a value or a constant."""
        return self.formats.bounds(self.graph, name)

    # Errors

    def refuse(self, why: str, hint: str) -> UnsupportedError:
        operator = self.operator
        return UnsupportedError(f"%{operator.name}: {why}", source=operator.source or None, hint=hint)

    # Off-chip memory

    def place(self, content: bytes | np.ndarray) -> int:
        """Append to the off-chip image, from the beginning of a line on; the address."""
        content = content.tobytes() if isinstance(content, np.ndarray) else content
        off_chip, line = len(self.image), self.machine.line
        self.image += content + bytes(-len(content) % line)
        return off_chip

    def fixed(self, content: bytes | np.ndarray) -> int:
        """The address off-chip of bytes that are only read; the same bytes are there once, for all passes."""
        content = content.tobytes() if isinstance(content, np.ndarray) else content
        key = hashlib.blake2b(content).digest()
        if key not in self._fixed:
            self._fixed[key] = self.place(content)
        return self._fixed[key]

    def load(self, off_chip: int, length: int, what: str) -> int:
        """Bytes of off-chip memory, until the operator at hand is done; their address in X."""
        address = self.temporary(length, what)
        self.transfer("load", address, off_chip, length)
        return address

    def transfer(self, operation: str, address: int, off_chip: int, length: int) -> None:
        line = self.machine.line
        lines = ceil_div(length, line)
        # What is moved or stored of the first lines does not wait for the last.
        for first in range(0, lines, TRANSFERRED):
            some = min(TRANSFERRED, lines - first)
            self.emitter.add(
                Transfer(operation=operation, x=address + first * line, far=off_chip + first * line, lines=some)
            )

    # The cache

    def temporary(self, length: int, what: str) -> int:
        address = self.cache.allocate(length, f"%{self.operator.name}: {what}")
        self._temporary.setdefault(self.operator.name, []).append(address)
        return address

    def scratch(self, shape: Shape, type: str, strides: Shape | None = None) -> View:
        """Numbers that are needed until the operator at hand is done."""
        view = View(0, type, shape, dense(shape) if strides is None else strides, 0)
        address = self.temporary(view.span, f"a step of {list(shape)}")
        return replace(view, address=address, buffer=address)

    def new(self, shape: Shape, type: str, strides: Shape | None = None, offset: int = 0, total: int = 0) -> View:
        """Memory for a value; `offset` and `total` bytes are those of a border around it."""
        view = View(0, type, shape, dense(shape) if strides is None else strides, 0)
        buffer = self.cache.allocate(max(total, view.span), f"%{self.operator.name} {list(shape)}")
        return replace(view, address=buffer + offset, buffer=buffer)

    def keep(self, name: str, view: View, format: Format | None = None) -> None:
        """Give an operator its value, or the same memory in another shape."""
        whole = self.bordered.get(view.buffer)
        if whole is not None and _is_same(view, whole):
            view = replace(whole, type=view.type)
        self.values[name] = Value(format or self.formats[name], view)
        self._kept.setdefault(view.buffer, set()).add(name)
        self._roots.setdefault(view.buffer, view)

    def carry(self, name: str) -> View:
        """Give a value memory of its own, in which a loop goes on from iteration to iteration; without what other forms
        it has, which are of one iteration."""
        value = self.values[name]
        view = value.view
        if self._kept[view.buffer] != {name} or view.buffer in self.bordered:
            copied = self.new(view.shape, view.type, like(view.shape, view.strides))
            self.emitter.vector("first", view, 0, copied)
            self.done([name])
            self.keep(name, copied, value.format)
            return copied
        self._free_forms(value)
        self._free_rows(view.buffer)
        return view

    def _free_forms(self, value: Value) -> None:
        for form in value.forms.values():
            self.cache.free(form.buffer)
        value.forms.clear()

    def _free_rows(self, buffer: int) -> None:
        if buffer in self._rows:
            self.cache.free(self._rows.pop(buffer).buffer)

    def hand_on(self, pairs: Sequence[tuple[View, View]]) -> None:
        """Copy values to memory, all at once: what one of them lies in may be where another one goes."""
        targets = {to.buffer for _, to in pairs}
        ready = []
        for view, to in pairs:
            if view.buffer in targets:
                copied = self.scratch(view.shape, view.type)
                self.emitter.vector("first", view, 0, copied)
                view = copied
            ready.append((view, to))
        for view, to in ready:
            self.emitter.vector("first", view, 0, to)

    def rename(self, name: str, other: str) -> None:
        """A value is that of another operator from here on."""
        self.values[other] = value = self.values.pop(name)
        users = self._kept[value.view.buffer]
        users.discard(name)
        users.add(other)

    def done(self, names: Sequence[str]) -> None:
        """Free what the operator at hand took, and the values of these names."""
        for address in self._temporary.pop(self.operator.name, ()):
            self.cache.free(address)
        for name in names:
            value = self.values.pop(name, None)
            if value is None:
                continue
            self._free_forms(value)
            users = self._kept[value.view.buffer]
            users.discard(name)
            if not users:
                del self._kept[value.view.buffer], self._roots[value.view.buffer]
                self._free_rows(value.view.buffer)
                self.bordered.pop(value.view.buffer, None)
                self.cache.free(value.view.buffer)

    def half(self, memory: str) -> int:
        """Where the next half of a memory of the sub-arrays begins, for layers: the halves take turns."""
        turn = self._turns[memory] = 1 - self._turns.get(memory, 1)
        return turn * (getattr(self.machine, memory.lower()) // 2)

    def room(self, memory: str, words: int) -> int:
        """Where so many words for vectors begin, at most half of a memory: after those before, from 0 on again."""
        start, size = self._ends.get(memory, 0), getattr(self.machine, memory.lower())
        start = start if start + words <= size else 0
        self._ends[memory] = start + words
        return start

    # Operands

    def is_constant(self, name: str) -> bool:
        return name in self.graph.constants

    def constant(self, name: str) -> np.ndarray:
        return np.asarray(self.graph.constants[name], np.float64)

    def wide(self, name: str) -> View:
        """A value or a constant as wide numbers."""
        return self.converted(name, WIDE)

    def narrow(self, place: int) -> Format:
        """The format in which the operator at hand takes a narrow operand; it is known before the value is."""
        return self.formats.operands[self.operator.name, place]

    def converted(self, name: str, format: Format, shape: Shape | None = None, strides: Shape | None = None) -> View:
        """A value or a constant in a format, broadcast to a shape; with `strides` in that order, without gaps."""
        if self.is_constant(name):
            return self._constant(name, format, shape, strides)
        value = self.values[name]
        view = value.view if shape is None else value.view.expanded(shape)
        if value.format == format and (strides is None or _same(view, strides)):
            return view
        key = (format, shape, strides)
        if key not in value.forms:
            whole = value.view if strides is None else view
            found = self.new(whole.shape, format.stored, strides or like(whole.shape, whole.strides))
            self.convert(whole, value.format, found, format)
            value.forms[key] = found
        found = value.forms[key]
        return found if shape is None or strides is not None else found.expanded(shape)

    def conversion_cycles(self, name: str, format: Format, shape: Shape, strides: Shape) -> int:
        """About how many cycles of the lanes `converted` takes for a value."""
        value = self.values[name]
        view = value.view.expanded(shape)
        if (value.format == format and _same(view, strides)) or (format, shape, strides) in value.forms:
            return 0
        return moving_cycles(view, View(0, format.stored, shape, strides, 0), self.machine.lanes)

    def rows(self, name: str) -> View:
        """A value with the numbers of its last axis together: those of all parts of a value are turned at once."""
        view = self.values[name].view
        if view.strides[-1] == 1 or view.shape[-1] == 1:
            return view
        root = self._roots[view.buffer]
        same = view.within(root, root)
        if same is None or not _is_same(same, view):
            return view
        if view.buffer not in self._rows:
            self._rows[view.buffer] = self.new(root.shape, root.type)
            self.emitter.vector("first", root, 0, self._rows[view.buffer])
        found = view.within(root, self._rows[view.buffer])
        return view if found is None else found

    def _constant(self, name: str, format: Format, shape: Shape | None, strides: Shape | None) -> View:
        array = self.constant(name)
        array = array if shape is None else np.broadcast_to(array, shape)
        strides = strides or dense(array.shape)
        key = (self.operator.name, name, format, array.shape, strides)
        if key not in self._constants:
            view = View(0, format.stored, array.shape, strides, 0)
            content = np.zeros(view.span, np.uint8)
            view.scatter(content, format.steps(array))
            address = self.load(self.fixed(content), len(content), f"the constant %{name}")
            self._constants[key] = replace(view, address=address, buffer=address)
        return self._constants[key]

    # Arithmetic on views

    def convert(self, a: View, before: Format, y: View, after: Format) -> None:
        if before == after:
            self.emitter.vector("first", a, 0, y)
            return
        multiplier, shift = self.scaling(before.scale / after.scale)
        more = zero_shift(before, after, multiplier, shift)
        self.emitter.vector("add", a, more, y, multiplier=multiplier, shift=shift, clamp=after.clamp)

    def scaling(self, real: float) -> tuple[int, int]:
        try:
            return scaling(real)
        except DomainError as error:
            raise self.refuse(error.message, "scale the numbers of the model") from None

    def pack(self, a: View, before: Format, y: View, after: Format) -> None:
        """Numbers [..., entry], entries together, to int4: y [..., byte] has two of them in a byte."""
        multiplier, shift = (1, 0) if before == after else self.scaling(before.scale / after.scale)
        more = 0 if before == after else zero_shift(before, after, multiplier, shift)
        self.emitter.pack(a, more, y, multiplier, shift, after.clamp)

    def fill(self, y: View, number: int) -> None:
        """The same number of at most 16 bits everywhere."""
        self.emitter.vector("mul", y, 0, y, clamp=(number, number) if number else None)

    def blank(self, address: int, counts: Shape, strides: Shape, length: int, number: int) -> None:
        """The same byte everywhere: for each step of some loops, with strides in bytes, so many bytes."""
        sizes = (2, 1) if number else (4, 2, 1)
        size = next(size for size in sizes if not any(n % size for n in (address, length, *strides)))
        if number and size == 2:
            number = int(np.array([number, number], np.int8).view("<i2")[0])
        strides = tuple(stride // size for stride in strides)
        self.fill(View(address, f"i{8 * size}", (*counts, length // size), (*strides, 1), address), number)

    def reduce(
        self,
        operation: str,
        a: View,
        b: View | int,
        y: View,
        axes: tuple[int, ...],
        reduction: str = "sum",
        multiplier: int = 1,
        shift: int = 0,
        clamp: tuple[int, int] | None = None,
    ) -> None:
        """`y = reduction over axes of a OP b`, within `clamp`, in steps where one instruction cannot.

        y has the shape of the operands, and its strides along `axes` do not matter.
        """
        if operation == "first" and (pair := _halves(a, axes)) is not None:
            # A step takes two numbers of the axis.
            halved = replace(y, shape=pair[0].shape)
            self.reduce(
                "add" if reduction == "sum" else "max", *pair, halved, axes, reduction, multiplier, shift, clamp
            )
            return
        if self.emitter.vector(
            operation, a, b, y, multiplier=multiplier, shift=shift, reduced=axes, reduction=reduction, clamp=clamp
        ):
            return
        if reduction == "sum" and a.type == "i32":
            # A lane holds any sum, and memory maybe not that over one axis of several.
            a, b, y = self._with_one_axis(a, b, y, axes)
            self.reduce(operation, a, b, y, (len(a.shape) - 1,), reduction, multiplier, shift, clamp)
            return
        first, rest = axes[0], axes[1:]
        shape = tuple(1 if axis == first else n for axis, n in enumerate(a.shape))
        order = [axis for axis in range(len(shape)) if axis not in axes]
        part = self.scratch(shape, "i32", dense(shape, [*rest, first, *order]))
        self.reduce(operation, a, b, part.expanded(a.shape), (first,), reduction)
        target = replace(y, shape=shape)
        self.reduce("first", part, 0, target, rest, reduction, multiplier, shift, clamp)

    def _with_one_axis(self, a: View, b: View | int, y: View, axes: tuple[int, ...]) -> tuple[View, View | int, View]:
        """The same with all of some axes in one, the last; operands are copied where they do not lie so."""
        order = sorted(range(len(a.shape)), key=lambda axis: -a.strides[axis])
        together = [axis for axis in order if axis in axes]
        inner = order[order.index(together[-1]) + 1 :]
        kept = [axis for axis in order if axis not in axes]
        shape: Shape = (*(a.shape[axis] for axis in kept), math.prod(a.shape[axis] for axis in axes))
        listed = [*kept, *together]

        def joined(view: View) -> View:
            found = view.permuted(listed).reshaped(shape)
            if found is None:
                outer = [axis for axis in kept if axis not in inner]
                copied = self.scratch(view.shape, view.type, dense(view.shape, [*outer, *together, *inner]))
                self.emitter.vector("first", view, 0, copied)
                found = copied.permuted(listed).reshaped(shape)
                assert found is not None
            return found

        first = joined(a)
        second = first if b == a else joined(b) if isinstance(b, View) else b
        return first, second, replace(y, shape=shape, strides=(*(y.strides[axis] for axis in kept), 0), border=(0, 0))


def _halves(view: View, axes: Shape) -> tuple[View, View] | None:
    """Both halves along one of some axes, the outermost of even length; None where there is none."""
    even = [axis for axis in axes if view.shape[axis] % 2 == 0 and view.strides[axis]]
    if not even:
        return None
    axis = max(even, key=lambda axis: view.strides[axis])
    half = view.shape[axis] // 2
    return view.part(axis, 0, half), view.part(axis, half, half)


def _is_same(view: View, other: View) -> bool:
    return (view.address, view.shape) == (other.address, other.shape) and _same(view, other.strides)


def _same(view: View, strides: Shape) -> bool:
    return all(n == 1 or a == b for n, a, b in zip(view.shape, view.strides, strides))


def of_view(of: Operator, view: View) -> View | None:
    """What an operator that is a view makes of one; None for a reshape that no strides give."""
    if of.kind == "permute":
        return view.permuted(of.at["order"])
    if of.kind == "slice":
        return view.sliced(of.at["starts"], of.at["lengths"], of.at["steps"])
    return view.expanded(of.shape) if of.kind == "expand" else view.reshaped(of.shape)


def channels_last(
    state: State, shape: Shape, type: str, border: tuple[int, int], multiple: int, blank: int | None = 0
) -> View:
    """Memory for an activation [image, channel, row, column]: channels together, padded to a multiple, and a border of
    the byte `blank`; None leaves it as it is."""
    images, channels, rows, columns = shape
    depth = ceil_div(channels, multiple) * multiple
    across = columns + 2 * border[1]
    picture = (rows + 2 * border[0]) * across * depth
    size = 1 if type == "i8" else 4
    offset = (border[0] * across + border[1]) * depth * size
    view = state.new(shape, type, (picture, 1, across * depth, depth), offset, images * picture * size)
    if any(border) and blank is not None:
        # Before the first row, after each row with what is before the next one, and after the last row.
        row, end = across * depth * size, 2 * border[1] * depth * size
        after = offset + ((rows - 1) * across + columns) * depth * size
        for address, length in ((buffer := view.buffer, offset), (buffer + after, picture * size - after)):
            state.blank(address, (images,), (picture * size,), length, blank)
        if end and rows > 1:
            first = buffer + offset + columns * depth * size
            state.blank(first, (images, rows - 1), (picture * size, row), end, blank)
    if any(border):
        view = state.bordered[view.buffer] = replace(view, border=border)
    return view


def wanted_border(state: State, name: str) -> tuple[int, int]:
    """The zeros around a value that the convolutions that read it ask for."""
    graph, found = state.graph, (0, 0)
    for reader in (graph[user] for user in graph.users[name]):
        border = (0, 0)
        if reader.kind == "conv2d" and reader.inputs[0] == name:
            border = reader.at["padding"]
        elif reader.kind == "relu":
            border = wanted_border(state, reader.name)
        found = (max(found[0], border[0]), max(found[1], border[1]))
    return found


def is_flattened(state: State, name: str) -> bool:
    """Whether a value is pictures that only layers read as rows: they lie there with channels together. Never in loops,
    for what reads the last iteration may be something else."""
    graph, operator = state.graph, state.graph[name]
    if (
        name in graph.alike
        or operator.kind != "reshape"
        or name in graph.outputs
        or state.is_constant(operator.inputs[0])
    ):
        return False
    before = graph[operator.inputs[0]].shape
    readers = [graph[user] for user in graph.users[name]]
    is_read = all(reader.kind == "linear" and reader.inputs[1:].count(name) == 0 for reader in readers)
    return is_read and len(before) == 4 and operator.shape == (before[0], before[1] * before[2] * before[3])


def is_convolved(state: State, name: str) -> bool:
    """Whether convolutions of vectors read a value, which then lies as columns take it."""
    graph = state.graph
    readers = [graph[user] for user in graph.users[name]]
    return any(
        reader.unit == "vector" or (reader.unit == "view" and is_convolved(state, reader.name)) for reader in readers
    )


def is_for_vectors(state: State, name: str) -> bool:
    """Whether convolutions of vectors, or comparisons, read a value."""
    graph = state.graph
    return any(
        reader.kind in ("bind", "unbind", "match_probability", "bundle")
        or (reader.unit == "view" and is_for_vectors(state, reader.name))
        for reader in (graph[user] for user in graph.users[name])
    )
