"""Tensors that a kernel holds for itself, whole, while loops that need them so run.

A vector along an axis is held by index (`Listed`); other tensors are trees, whose nodes are found by hashing (`Tree`).
Neither is ever cleared: what an earlier round put there is known by its number. What is filled outside of all loops has
no earlier round, and begins with zeros.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from derivable.algebra.expr.functions import apply, lift
from derivable.algebra.expr.nodes import Constant, Expr
from derivable.algebra.semiring import TypedSemiring
from derivable.kernel import nodes as n
from derivable.kernel.build import Builder
from derivable.tensor.analysis.bound import Bound, Destination, Listed, Scalar, Then, Tree, Values, is_simple
from derivable.tensor.language.types import INT, REAL, Type

Plus = Callable[[Values, Values], Values]


@dataclass
class Workspaces:
    """The workspaces of a kernel, as parameters of it.

    leave    what the kernel returns when a tree has no room; whether it had none is returned after that
    cleared  registers that are 0 before all loops
    counts   by register that counts the keys of a vector, the axis of which they are indices
    """

    build: Builder
    semiring: TypedSemiring
    plus: Plus
    arguments: list[tuple[str, Any, Any]]
    leave: tuple[Expr, ...] = ()
    cleared: list[n.Register] = field(default_factory=list)
    num_trees: int = 0
    counts: dict[n.Register, Any] = field(default_factory=dict)
    lists: list[Listed] = field(default_factory=list)

    def listed(self, axis: Any, of: Type, fill: Callable[[Destination], None]) -> Listed:
        """The vector that `fill` adds up, whose keys are indices of an axis."""
        build, number = self.build, len(self.cleared)
        begins_with_zeros = not build.num_loops and all(map(is_cleared, self.semiring.zero))
        keys = self._array(f"space{number}_keys", axis)
        # There is one round to tell apart from none.
        stamps = self._array(f"space{number}_stamps", axis, "uint8" if begins_with_zeros else "int64")
        values = tuple(self._array(f"space{number}_values{c}", axis, d) for c, d in enumerate(self.semiring.dtypes))
        stamp = self._cleared(f"stamp{number}")
        build.set(stamp, stamp + 1)
        held = Listed(keys, build.let("count", 0), values, stamps, stamp, axis, of, begins_with_zeros)
        self.counts[held.count] = axis
        self.lists.append(held)
        fill(_Listing(self, held))
        return held

    def tree(self, of: Type, axes: tuple[Any, ...], fill: Callable[[Destination], None]) -> Tree:
        """The tensor that `fill` adds up."""
        build, name = self.build, f"tree{self.num_trees}"
        self.num_trees += 1
        table, keys, parents, below, last, following = (self._tree_array(name, part, "int64") for part in _PARTS)
        values = tuple(self._tree_array(name, "values", d, c) for c, d in enumerate(self.semiring.dtypes))
        room, size = (self._tree_scalar(name, part) for part in ("room", "size"))
        base, count = self._cleared(f"{name}_base"), self._cleared(f"{name}_count")
        space = Space(table, keys, parents, below, last, following, values, room, size, base, count)
        build.set((base, count), (base + count, Constant(0, "int64")))
        for links in (space.below, space.last):
            build.store(links, 0, 0)
        held = Tree(space, Constant(0, "int64"), axes, of)
        fill(_Planting(self, space))
        return held

    def kernel(self) -> n.Kernel:
        """The kernel, which clears what has to be before all else."""
        cleared = tuple(n.Assign((register,), (Constant(0, "int64"),)) for register in self.cleared)
        kernel = self.build.kernel()
        read = {part.array for part in n.walk(kernel.body) if isinstance(part, n.Load)}
        unread = {held.keys for held in self.lists if held.keys not in read}
        return replace(kernel, body=(*cleared, *_without(kernel.body, unread)))

    def _array(self, name: str, axis: Any, dtype: str = "int64") -> n.Array:
        self.arguments.append(("space", axis, dtype))
        return self.build.array(name, dtype)

    def _tree_array(self, name: str, part: str, dtype: str, component: int | str = "") -> n.Array:
        self.arguments.append(("tree", part, dtype))
        return self.build.array(f"{name}_{part}{component}", dtype)

    def _tree_scalar(self, name: str, part: str) -> n.Register:
        self.arguments.append(("tree", part, None))
        return self.build.scalar(f"{name}_{part}")

    def _cleared(self, name: str) -> n.Register:
        self.cleared.append(self.build.register(name))
        return self.cleared[-1]

    # Trees

    def entries(self, tree: Tree, then: Then) -> None:
        """`then` with each key of a tree and what it leads to, in the order in which they came."""
        build, space = self.build, tree.space
        node = build.load(space.below, tree.node, "node")
        with build.while_(node > 0):
            key = build.load(space.keys, node, "key")
            then(Scalar((key,), INT, tree.axes[0]), self.part(tree, node))
            build.load_into(node, space.following, node)

    def look_up(self, tree: Tree, key: Scalar, then: Callable[[Bound], None]) -> None:
        """`then` with what a key leads to, in a branch where it leads to something."""
        at, _ = self.find(tree.space, tree.node, key.values[0])
        with self.build.when(at > 0):
            then(self.part(tree, at))

    def part(self, tree: Tree, node: Expr) -> Bound:
        inner, build = tree.type.inner, self.build
        if not inner.is_scalar:
            return Tree(tree.space, node, tree.axes[1:], inner)
        return Scalar(tuple(build.load(v, node, "value", d) for v, d in self._values(tree.space)), REAL)

    def find(self, space: Space, above: Expr, key: Expr) -> tuple[n.Register, n.Register]:
        """(the node below another one that a key leads to, or one that is not positive; its place in the table)"""
        build = self.build
        place, _ = build.hash([above, key], space.size)
        entry = build.load(space.table, place, "entry")
        at = build.let("at", entry - space.base)
        searching = build.let("searching", at > 0)
        with build.while_(searching):
            held, parent = build.load(space.keys, at, "held"), build.load(space.parents, at, "parent")
            with build.when(lift(apply("logical_and", apply("equal", held, key), apply("equal", parent, above)))):
                build.set(searching, False)
            with build.otherwise():
                following = build.let("following", place + 1)
                build.set(place, apply("where", following < space.size, following, 0))
                build.load_into(entry, space.table, place)
                build.set(at, entry - space.base)
                build.set(searching, at > 0)
        return at, place

    def grow(self, space: Space, above: Expr, key: Expr, at: n.Register, place: n.Register) -> None:
        """A new node, of which `at` becomes the number."""
        build = self.build
        with build.when(lift(apply("equal", space.count, space.room))):
            build.return_(*self.leave, True)
        build.set(space.count, space.count + 1)
        build.set(at, space.count)
        build.store(space.table, place, space.base + at)
        build.store(space.keys, at, key)
        build.store(space.parents, at, above)
        build.store(space.below, at, 0)
        build.store(space.last, at, 0)
        build.store(space.following, at, 0)
        before = build.load(space.last, above, "before")
        with build.when(before > 0):
            build.store(space.following, before, at)
        with build.otherwise():
            build.store(space.below, above, at)
        build.store(space.last, above, at)

    def put(self, values: Sequence[tuple[n.Array, Any]], place: Expr, found: Values, is_new: Expr) -> None:
        """Set or add to the value at a place."""
        build = self.build
        with build.when(is_new):
            for (array, _), x in zip(values, found):
                build.store(array, place, x)
        with build.otherwise():
            self.add(values, place, found)

    def add(self, values: Sequence[tuple[n.Array, Any]], place: Expr, found: Values) -> None:
        """Add to the value at a place."""
        old = tuple(self.build.load(array, place, "old", d) for array, d in values)
        for (array, _), x in zip(values, self.plus(old, found)):
            self.build.store(array, place, x)

    def _values(self, space: Space | Listed) -> list[tuple[n.Array, Any]]:
        return list(zip(space.values, self.semiring.dtypes))


def is_cleared(zero: Any) -> bool:
    """Whether all bytes of a number are 0."""
    return zero == 0 and math.copysign(1, zero) > 0


def _without(block: tuple[n.Statement, ...], arrays: set[n.Array]) -> tuple[n.Statement, ...]:
    """A block that writes nothing to some arrays, nor counts what it would write there."""
    found: list[n.Statement] = []
    for part in block:
        match part:
            case n.If(_, (n.Store(array), n.Assign()), ()) if array in arrays:
                continue
            case n.For() | n.While():
                part = replace(part, body=_without(part.body, arrays))
            case n.If():
                part = replace(part, body=_without(part.body, arrays), otherwise=_without(part.otherwise, arrays))
        found.append(part)
    return tuple(found)


_PARTS = ("table", "keys", "parents", "below", "last", "following")


@dataclass(frozen=True, eq=False)
class Space:
    """The nodes of a tree, numbered from 1 on as they come. 0 is what all are below; elsewhere it stands for no node.

    table           by hash of the node above and the key, `base` and the number of a node; what is not above `base` is
                    an empty place
    keys, parents   by node, the key that leads to it and the node above it
    below, last     its first and its last node below
    following       the next one beside it
    values          where there are no keys any more
    room            how many nodes there may be
    size            of the table, a power of two
    """

    table: n.Array
    keys: n.Array
    parents: n.Array
    below: n.Array
    last: n.Array
    following: n.Array
    values: tuple[n.Array, ...]
    room: n.Register
    size: n.Register
    base: n.Register
    count: n.Register


class _Listing(Destination):
    """A vector by index."""

    def __init__(self, spaces: Workspaces, held: Listed, key: Expr | None = None):
        self.spaces, self.held, self.key = spaces, held, key

    @property
    def holds_all(self) -> bool:
        return False

    def at(self, key: Scalar, then: Callable[[Destination], None]) -> None:
        then(_Listing(self.spaces, self.held, key.values[0]))

    def add(self, values: Values) -> None:
        build, held, key = self.spaces.build, self.held, self.key
        assert key is not None
        is_new = build.let("is_new", apply("not_equal", build.load(held.stamps, key, "seen", "int64"), held.stamp))
        if held.begins_with_zeros:
            self.spaces.add(self.spaces._values(held), key, values)
        else:
            self.spaces.put(self.spaces._values(held), key, values, is_new)
        build.store(held.stamps, key, held.stamp)
        with build.when(is_new):
            build.store(held.keys, held.count, key)
            build.set(held.count, held.count + 1)


class _Planting(Destination):
    """A tree, at the keys so far."""

    def __init__(self, spaces: Workspaces, space: Space, keys: tuple[Expr, ...] = ()):
        self.spaces, self.space, self.keys = spaces, space, keys

    @property
    def holds_all(self) -> bool:
        return False

    def at(self, key: Scalar, then: Callable[[Destination], None]) -> None:
        (x,) = key.values
        x = x if is_simple(x) else self.spaces.build.let("key", x)
        then(_Planting(self.spaces, self.space, (*self.keys, x)))

    def add(self, values: Values) -> None:
        spaces, space, build = self.spaces, self.space, self.spaces.build
        *path, last = self.keys
        node: Expr = Constant(0, "int64")
        for key in path:
            at, place = spaces.find(space, node, key)
            with build.when(at <= 0):
                spaces.grow(space, node, key, at, place)
            node = at
        at, place = spaces.find(space, node, last)
        is_new = build.let("is_new", at <= 0)
        with build.when(is_new):
            spaces.grow(space, node, last, at, place)
        spaces.put(spaces._values(space), at, values, is_new)
