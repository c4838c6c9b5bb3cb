"""Looking up in tensors: loops that are entered at the one place where an index may stand."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING

from derivable.algebra.expr.functions import apply, lift
from derivable.algebra.expr.nodes import Constant, Expr
from derivable.kernel import nodes as n
from derivable.tensor.analysis.bound import (
    Bound,
    Closure,
    Listed,
    Names,
    Scalar,
    Searched,
    Stored,
    Tree,
    is_simple,
    loop_name,
    named,
    part_of,
    type_of,
)
from derivable.tensor.language import nodes as t
from derivable.tensor.language.binding import free_variables
from derivable.tensor.language.types import INT

if TYPE_CHECKING:
    from derivable.tensor.lower.lower import Lowering


class Locator:
    """Emits the lookups of a lowering."""

    def __init__(self, lowering: Lowering):
        self.lowering = lowering
        self.build = lowering.build

    def look_up(self, node: t.Lookup, names: Names, then: Callable[[Bound], None]) -> None:
        """`then` with each part of what a tensor holds at a key; the parts add up."""
        keys: list[Scalar] = []
        inner: t.Node = node
        while isinstance(inner, t.Lookup):
            keys.insert(0, self._in_register(self.lowering.key(inner.key, names)))
            inner = inner.tensor
        self._locate(inner, names, keys, {}, then)

    def _in_register(self, key: Scalar) -> Scalar:
        return key if is_simple(key.values[0]) else replace(key, values=(self.build.let("key", key.values[0]),))

    def _locate(
        self, node: t.Node, names: Names, keys: list[Scalar], wanted: dict[str, Scalar], then: Callable[[Bound], None]
    ) -> None:
        """wanted  of names that loops below bind, the only numbers that lead to the keys; under the text of a key that
        is solved so, itself"""
        if not keys:
            self.lowering.bind_value(node, names, then)
            return
        match node:
            case t.Zero():
                return
            case t.Var():
                self._locate_bound(names[node.name], keys, then)
            case t.Lookup():
                self.look_up(node, names, lambda bound: self._locate_bound(bound, keys, then))
            case t.If():
                with self.lowering.conditions.when(node.condition, names):
                    self._locate(node.body, names, keys, wanted, then)
            case t.Let():
                self._locate(node.body, {**names, node.name: self.lowering.bind(node.value, names)}, keys, wanted, then)
            case t.Add():
                self._locate(node.left, names, keys, {}, then)
                self._locate(node.right, names, keys, {}, then)
            case t.Multiply():
                self._locate_in_product(node, names, keys, then)
            case t.Singleton():
                rest = lambda: self._locate(node.value, names, keys[1:], wanted, then)  # noqa: E731
                if (isinstance(node.key, t.Var) and names.get(node.key.name) is keys[0]) or str(node.key) in wanted:
                    rest()
                else:
                    self._compare(names)
                    with self.build.when(
                        lift(apply("equal", self.lowering.integer(node.key, names), keys[0].values[0]))
                    ):
                        rest()
            case t.Sum():
                wanted = wanted or self._solved(node, names, keys)
                self._locate_in_sum(node, names, keys, wanted, then)
            case _:
                raise AssertionError(node)

    def _locate_bound(self, bound: Bound, keys: list[Scalar], then: Callable[[Bound], None]) -> None:
        if not keys:
            then(bound)
        elif isinstance(bound, Closure):
            self.lowering.used(bound)
            depth = len(keys)
            self._locate(bound.node, bound.names, keys, {}, lambda value: then(part_of(value, bound, depth)))
        elif isinstance(bound, Tree):
            rest = keys[1:]
            self.lowering.spaces.look_up(bound, keys[0], lambda part: self._locate_bound(part, rest, then))
        else:
            assert isinstance(bound, Listed)
            self._in_list(bound, keys[0], then)

    def _in_list(self, held: Listed, key: Scalar, then: Callable[[Bound], None]) -> None:
        root, (x,) = self.lowering.axes.root, key.values
        is_inside = key.axis is not None and root(key.axis) == root(held.axis)
        inside = lift(apply("logical_and", x >= 0, x < self.lowering.size_of(held.axis)))
        with nullcontext() if is_inside else self.build.when(inside):
            is_there = apply("equal", self.build.load(held.stamps, x, "seen", "int64"), held.stamp)
            with self.build.when(lift(is_there)):
                then(self.lowering.listed_at(held, x))

    def _locate_in_product(
        self, node: t.Multiply, names: Names, keys: list[Scalar], then: Callable[[Bound], None]
    ) -> None:
        left, right = type_of(node.left, names), type_of(node.right, names)
        if left is None or right is None:
            return  # Only a zero is of no type.
        into_left, into_right = keys[: left.order], keys[left.order :]

        def with_left(a: Bound) -> None:
            def with_right(b: Bound) -> None:
                product = t.Multiply(t.Var("left"), t.Var("right"))
                self.lowering.bind_value(product, {"left": a, "right": b}, then)

            self._locate_bound(self.lowering.bind(node.right, names), into_right, with_right)

        self._locate_bound(self.lowering.bind(node.left, names), into_left, with_left)

    def _locate_in_sum(
        self, node: t.Sum, names: Names, keys: list[Scalar], wanted: dict[str, Scalar], then: Callable[[Bound], None]
    ) -> None:
        def go_on(inner: Names) -> None:
            self._locate(node.body, inner, keys, wanted, then)

        physical = isinstance(node.range, (t.Range, t.SubArray))
        if physical and node.value in wanted:
            self._enter(node, names, wanted[node.value], go_on)
        elif not physical and node.key in wanted and self.lowering.takes_parts(node, names):
            key = wanted[node.key]
            at = self.lowering.bind(node.range, names)
            self._locate_bound(at, [key], lambda value: self.lowering.enter(node, names, key, value, go_on))
        else:
            # All keys of a loop that cannot be entered come, so each is compared with the one that is asked for.
            left = {} if not physical and node.key in wanted else wanted
            of = node.value if physical else ""
            self.lowering.loop(
                node, names, lambda inner: self._locate(node.body, self._passing(inner, of), keys, left, then)
            )

    def _passing(self, names: Names, name: str) -> Names:
        """The names inside a loop over entries of an input, of which a lookup may want few."""
        of = names.get(name)
        if not isinstance(of, Scalar) or self.build.num_loops < 2:
            return names
        return {**names, name: replace(of, passes=True)}

    @staticmethod
    def _compare(names: Names) -> None:
        """Where an index of an input is compared with one that is looked up. Raises Searched inside loops that pass
        others."""
        stored = next((of for of in names.values() if isinstance(of, Stored)), None)
        if stored is not None and any(isinstance(of, Scalar) and of.passes for of in names.values()):
            raise Searched(stored.input)

    def _enter(self, node: t.Sum, names: Names, key: Scalar, then: Callable[[Names], None]) -> None:
        """The body of a sum over an array at the only place where it holds a number."""
        build, over, x = self.build, node.range, key.values[0]
        if isinstance(over, t.Range):
            start, stop = self.lowering.key(over.start, names), self.lowering.key(over.stop, names)
            inner = named(node, names, Scalar((x - start.values[0],), INT), key)
            known = start.values[0] == Constant(0, "int64") and stop.is_size and key.axis is not None
            if known and self.lowering.axes.root(key.axis) == self.lowering.axes.root(stop.axis):
                then(inner)
                return
            inside = apply("logical_and", start.values[0] <= x, x < stop.values[0])
            with build.when(lift(inside)):
                then(inner)
            return
        assert isinstance(over, t.SubArray)
        assert isinstance(over.array, t.Var)
        stored = names[over.array.name]
        assert isinstance(stored, Stored)
        place = build.let("place", self.lowering.integer(over.start, names))
        stop = build.let("stop", self.lowering.integer(over.stop, names))
        (held,) = stored.arrays
        self._compare(names)
        found = named(node, names, Scalar((place,), INT), key)
        if stored.kind == "sorted":
            self._bisect(held, place, stop, x)
            with build.when(place < stop):
                at = build.load(held, place, "held")
                with build.when(lift(apply("equal", at, x))):
                    then(found)
        elif stored.kind == "ascending":
            self._bisect(held, place, stop, x)
            end = build.let("end", place)
            self._bisect(held, end, stop, x + 1)
            with build.loop(loop_name(node.key, "p"), place, end) as p:
                then(self._passing(named(node, names, Scalar((p,), INT), key), node.key))
        elif stored.kind == "hashed":
            self._probe(held, place, stop, x)
            at = build.load(held, place, "held")
            with build.when(lift(apply("equal", at, x))):
                then(found)
        else:
            with build.loop(loop_name(node.key, "p"), place, stop) as p:
                inner = self._passing(named(node, names, Scalar((p,), INT), key), node.key)
                self._compare(inner)
                at = build.load(held, p, "held")
                with build.when(lift(apply("equal", at, x))):
                    then(inner)

    def _bisect(self, held: n.Array, place: n.Register, stop: n.Register, x: Expr) -> None:
        """Move `place` to the first number of a sorted part that is not below x."""
        build = self.build
        high = build.let("high", stop)
        with build.while_(place < high):
            middle = build.let("middle", apply("floor_divide", place + high, 2))
            at = build.load(held, middle, "at")
            with build.when(at < x):
                build.set(place, middle + 1)
            with build.otherwise():
                build.set(high, middle)

    def _probe(self, held: n.Array, place: n.Register, stop: n.Register, x: Expr) -> None:
        """Move `place` to where a hash table, whose size is a power of two, has x or has it not."""
        build = self.build
        start, size = build.let("first", place), build.let("size", stop - place)
        slot, _ = build.hash([x], size)
        build.set(place, start + slot)
        at = build.load(held, place, "at")
        with build.while_(lift(apply("logical_and", apply("not_equal", at, x), at >= 0))):
            following = build.let("following", place + 1)
            build.set(place, apply("where", following < stop, following, start))
            build.load_into(at, held, place)

    def _solved(self, node: t.Sum, names: Names, keys: Sequence[Scalar]) -> dict[str, Scalar]:
        """Of the names that the loops of a sum of singletons bind, the numbers that the keys ask for."""
        wanted: dict[str, Scalar] = {}
        bound: set[str] = set()
        inner: t.Node = node
        patterns: list[t.Node] = []
        while len(patterns) < len(keys):
            if isinstance(inner, t.Sum):
                physical = isinstance(inner.range, (t.Range, t.SubArray))
                bound.add(inner.value if physical else inner.key)
                inner = inner.body
            elif isinstance(inner, (t.If, t.Let)):
                inner = inner.body
            elif isinstance(inner, t.Singleton):
                patterns.append(inner.key)
                inner = inner.value
            else:
                break
        divided: dict[t.Node, tuple[str, Scalar]] = {}
        for pattern, key in zip(patterns, keys):
            self._solve(pattern, key, bound, names, wanted, divided)
        return wanted

    def _solve(
        self,
        pattern: t.Node,
        key: Scalar,
        bound: set[str],
        names: Names,
        wanted: dict[str, Scalar],
        divided: dict[t.Node, tuple[str, Scalar]],
    ) -> None:
        """pattern == key for the names that loops bind: `i`; `i * c + j` with j in (0:c); `k // c` and `k % c`."""
        x = key.values[0]
        match pattern:
            case t.Var(name=name) if name in bound and name not in wanted:
                wanted[name] = key
            case t.Apply("add", (t.Apply("multiply", (t.Var(name=block), size)), t.Var(name=within))) if {
                block,
                within,
            } <= bound and not free_variables(size) & bound:
                c = self.lowering.integer(size, names)
                for name, operation in ((block, "floor_divide"), (within, "remainder")):
                    wanted[name] = Scalar((self.build.let(name, apply(operation, x, c)),), INT)
                wanted[str(pattern)] = key
            case t.Apply("floor_divide" | "remainder" as operation, (t.Var(name=name), size)) if (
                name in bound and not free_variables(size) & bound
            ):
                before = divided.get(pattern.operands[0])
                if before is None or before[0] == operation:
                    divided[pattern.operands[0]] = (operation, key)
                    return
                quotient, rest = (key, before[1]) if operation == "floor_divide" else (before[1], key)
                c = self.lowering.integer(size, names)
                whole = self.build.let(name, quotient.values[0] * c + rest.values[0])
                wanted[name] = Scalar((whole,), INT)
