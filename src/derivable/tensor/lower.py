"""SDQLite to the loop IR: sums become loops, and no dictionary is made on the way.

A tensor is a `Closure`: an expression with what its names stand for. To run over its entries, or to look one up, is to
emit the loops that its expression says, so programs and the definitions of storage formats fuse by themselves. Where an
index is wanted, loops are entered at the one place where it may stand: a range at that number, a sorted part of an
array by bisection, a hashed one by probing; what cannot be solved for the index is searched.

What receives values is a `Destination`, pushed inwards through singletons, so that the innermost loop writes to the
result itself (destination passing). A factor that may have no entry is a branch round the rest of the product.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from derivable.algebra.expr.functions import apply, lift
from derivable.algebra.expr.nodes import Constant, Expr
from derivable.algebra.semiring import TypedSemiring
from derivable.core.diagnostics import UnsupportedError
from derivable.kernel import nodes as n
from derivable.kernel.build import Builder, as_type, substitute
from derivable.tensor import nodes as t
from derivable.tensor.binding import free_variables
from derivable.tensor.check import check
from derivable.tensor.linear import is_linear
from derivable.tensor.types import INT, REAL, Type

Values = tuple[Expr, ...]


@dataclass(frozen=True, eq=False)
class Scalar:
    """A number in registers.

    values   one per component of the semiring's element; of integers and truth values one
    axis     of an index, where it runs over a whole axis: which one, by name
    is_size  of an integer, whether it is how many indices the axis has
    """

    values: Values
    type: Type
    axis: Any = None
    is_size: bool = False


@dataclass(frozen=True, eq=False)
class Stored:
    """An array of a storage format: one for each component of what it holds.

    kind  "sorted": parts that loops run over ascend; "hashed": a table with -1 in empty places; "" otherwise
    """

    arrays: tuple[n.Array, ...]
    type: Type
    kind: str = ""


@dataclass(frozen=True, eq=False)
class Closure:
    """A tensor: an expression and what its names stand for.

    axes            of an input or a part of one, their names
    entries_differ  whether no entry is stored twice, so for inputs
    """

    node: t.Node
    names: Names = field(repr=False)
    type: Type | None
    axes: tuple[Any, ...] = ()
    entries_differ: bool = False


@dataclass(frozen=True, eq=False)
class Listed:
    """A vector in a workspace of this kernel: its keys, one after the other, and its values by key."""

    keys: n.Array
    count: Expr
    values: tuple[n.Array, ...]
    axis: Any
    type: Type


Bound = Scalar | Stored | Closure | Listed
Names = Mapping[str, Bound]
Then = Callable[[Scalar, Bound], None]


class NotWhole(Exception):
    """What a program needs whole comes in parts: an expression with what its names stand for."""

    def __init__(self, node: t.Node, names: Names):
        self.node, self.names = node, names


class Destination:
    """What receives the values of a tensor, or of the part of it that some keys lead to."""

    holds_all = False  # whether there is a place for every value, whether or not anything is added

    def at(self, key: Scalar, then: Callable[[Destination], None]) -> None:
        """Go on with the part below a key."""
        raise NotImplementedError

    def add(self, values: Values) -> None:
        """Add the value of a scalar."""
        raise NotImplementedError


class Lowering:
    """Emits the loops of expressions.

    axis_root  the representative of an axis: axes with the same one have the same size
    workspace  makes the arrays of a workspace for a vector: (keys, stamps, values), and the register of the last stamp
    """

    def __init__(
        self,
        build: Builder,
        semiring: TypedSemiring,
        axis_root: Callable[[Any], Any],
        workspace: Callable[[Any], tuple[n.Array, n.Array, tuple[n.Array, ...], n.Register]],
    ):
        self.build = build
        self.semiring = semiring
        self.axis_root = axis_root
        self.workspace = workspace

    # Scalars

    @property
    def zero(self) -> Values:
        return tuple(Constant(x, dtype) for x, dtype in zip(self.semiring.zero, self.semiring.dtypes))

    def plus(self, left: Values, right: Values) -> Values:
        return self._operate(self.semiring.plus, left, right)

    def times(self, left: Values, right: Values) -> Values:
        one = tuple(Constant(x, dtype) for x, dtype in zip(self.semiring.one, self.semiring.dtypes))
        if left == one or right == one:
            return right if left == one else left
        return self._operate(self.semiring.times, left, right)

    def _operate(self, monoid: Any, left: Values, right: Values) -> Values:
        return substitute(monoid.values, dict(zip((*monoid.left, *monoid.right), (*left, *right))))

    def real(self, value: Any) -> Values:
        given = value if isinstance(value, tuple) else (value,)
        return tuple(Constant(x, dtype) for x, dtype in zip(given, self.semiring.dtypes, strict=True))

    def type_of(self, node: t.Node, names: Names) -> Type | None:
        return check(node, {name: bound.type for name, bound in names.items()})

    def integer(self, node: t.Node, names: Names) -> Expr:
        return self.scalar(node, names)[0]

    def scalar(self, node: t.Node, names: Names) -> Values:
        """The value of a scalar expression, zero where it has none."""
        match node:
            case t.Number():
                of = self.type_of(node, names)
                return (
                    self.real(node.value) if of == REAL else (Constant(node.value, "int64" if of == INT else "bool"),)
                )
            case t.One():
                return tuple(Constant(x, dtype) for x, dtype in zip(self.semiring.one, self.semiring.dtypes))
            case t.Zero():
                return self.zero
            case t.Var():
                bound = names[node.name]
                return bound.values if isinstance(bound, Scalar) else self.scalar(bound.node, bound.names)  # type: ignore[union-attr]
            case t.Apply():
                return self._applied(node, names)
            case t.Let():
                return self.scalar(node.body, {**names, node.name: self.bind(node.value, names)})
            case t.Add():
                return self.plus(self.scalar(node.left, names), self.scalar(node.right, names))
            case t.Multiply() if all(self._has_value(part, names) for part in node.children):
                return self.times(self.scalar(node.left, names), self.scalar(node.right, names))
            case t.Lookup() if (place := self._place(node, names)) is not None:
                return place
        total = self._registers("total", self.zero)
        self.accumulate(node, names, Registers(self, total))
        return total

    def _has_value(self, node: t.Node, names: Names) -> bool:
        """Whether a scalar expression has a value without a branch or a loop."""
        if isinstance(node, t.Var):
            return isinstance(names[node.name], Scalar)
        if isinstance(node, t.Lookup):
            return self._place_array(node, names) is not None
        is_made = isinstance(node, (t.Number, t.One, t.Apply))
        return is_made or (isinstance(node, t.Multiply) and all(self._has_value(c, names) for c in node.children))

    def _applied(self, node: t.Apply, names: Names) -> Values:
        operands = [self.scalar(operand, names) for operand in node.operands]
        if any(len(operand) != 1 for operand in operands):
            raise UnsupportedError(
                f"`{node.operation}` of elements of several numbers means nothing in the semiring "
                f"`{self.semiring.semiring.name}`",
                span=node.span,
            )
        if node.operation == "cast":
            return (as_type(operands[0][0], self.semiring.dtypes[0]),)
        return (lift(apply(node.operation, *(operand[0] for operand in operands))),)

    def _registers(self, name: str, values: Values) -> Values:
        return tuple(self.build.let(name, value) for value in values)

    def _place(self, node: t.Lookup, names: Names) -> Values | None:
        """What stands in an array of a format; None if that is not what is looked up."""
        bound = self._place_array(node, names)
        if bound is None:
            return None
        place = self.integer(node.key, names)
        dtypes = self.semiring.dtypes if bound.type.element == "real" else (None,) * len(bound.arrays)
        return tuple(self.build.load(a, place, a.name.split("_")[-1], d) for a, d in zip(bound.arrays, dtypes))

    @staticmethod
    def _place_array(node: t.Lookup, names: Names) -> Stored | None:
        bound = names.get(node.tensor.name) if isinstance(node.tensor, t.Var) else None
        return bound if isinstance(bound, Stored) else None

    def pieces(self, node: t.Node, names: Names, then: Callable[[Values], None]) -> None:
        """`then` with the value of a scalar expression, in a branch where it may have none."""
        match node:
            case t.Zero():
                return
            case t.If():
                with self.build.when(self.scalar(node.condition, names)[0]):
                    self.pieces(node.body, names, then)
            case t.Let():
                self.pieces(node.body, {**names, node.name: self.bind(node.value, names)}, then)
            case t.Var() if isinstance(bound := names[node.name], Closure):
                self.pieces(bound.node, bound.names, then)
            case t.Multiply():
                self._factors(_factors_of(node), names, then)
            case t.Lookup() if self._place(node, names) is None and self._is_one_entry(node, names):
                self.look_up(node, names, lambda bound: self._piece_of(bound, then))
            case _:
                then(self.scalar(node, names))

    def _piece_of(self, bound: Bound, then: Callable[[Values], None]) -> None:
        if isinstance(bound, Closure):
            self.pieces(bound.node, bound.names, then)
        else:
            assert isinstance(bound, Scalar)
            then(bound.values)

    def _factors(self, factors: Sequence[t.Node], names: Names, then: Callable[[Values], None]) -> None:
        # Branches come before loops: what has no entry need not be multiplied by a sum.
        late = [f for f in factors if isinstance(f, t.Sum)]
        early = [f for f in factors if not isinstance(f, t.Sum)]

        def next_factor(rest: Sequence[t.Node], product: Values | None) -> None:
            if not rest:
                assert product is not None
                then(product)
                return
            self.pieces(
                rest[0], names, lambda x: next_factor(rest[1:], x if product is None else self.times(product, x))
            )

        next_factor([*early, *late], None)

    # Names

    def bind(self, node: t.Node, names: Names) -> Bound:
        """What a name for the value of an expression stands for: scalars are computed, tensors are not."""
        of = self.type_of(node, names)
        if isinstance(node, t.Var):
            return names[node.name]
        if of is None or not of.is_scalar:
            return Closure(node, names, of)
        found = self.scalar(node, names)
        axis = names[node.name].axis if isinstance(node, t.Var) else None  # type: ignore[union-attr]
        return Scalar(tuple(x if _is_simple(x) else self.build.let("value", x) for x in found), of, axis)

    def _bind_value(self, node: t.Node, names: Names, then: Callable[[Bound], None]) -> None:
        """`then` with what a key leads to; a scalar without a value is no entry."""
        of = self.type_of(node, names)
        if of is None or not of.is_scalar:
            then(names[node.name] if isinstance(node, t.Var) else Closure(node, names, of))
            return

        def named(values: Values) -> None:
            then(Scalar(tuple(x if _is_simple(x) else self.build.let("value", x) for x in values), of))

        self.pieces(node, names, named)

    # Running over entries

    def iterate(self, node: t.Node, names: Names, then: Then) -> None:
        """Loops over the entries of a tensor: `then` with each key and what it leads to. A key may come several times,
        and then what it leads to adds up."""
        match node:
            case t.Zero():
                return
            case t.Var():
                self.entries(names[node.name], then)
            case t.Sum():
                self.loop(node, names, lambda inner: self.iterate(node.body, inner, then))
            case t.Singleton():
                key = self.key(node.key, names)
                self._bind_value(node.value, names, lambda value: then(key, value))
            case t.If():
                with self.build.when(self.scalar(node.condition, names)[0]):
                    self.iterate(node.body, names, then)
            case t.Let():
                self.iterate(node.body, {**names, node.name: self.bind(node.value, names)}, then)
            case t.Add():
                self.iterate(node.left, names, then)
                self.iterate(node.right, names, then)
            case t.Multiply():
                self._iterate_product(node, names, then)
            case t.Lookup():
                self.look_up(node, names, lambda bound: self.entries(bound, then))
            case _:
                raise AssertionError(node)

    def entries(self, bound: Bound, then: Then) -> None:
        """As `iterate`, over what a name stands for."""
        if isinstance(bound, Closure):
            axes = bound.axes

            def of_axis(key: Scalar, value: Bound) -> None:
                then(replace(key, axis=axes[0]), _part(value, bound, 1))

            self.iterate(bound.node, bound.names, of_axis if axes else then)
            return
        assert isinstance(bound, Listed)
        with self.build.loop("place", 0, bound.count) as place:
            key = self.build.load(bound.keys, place, "key")
            values = tuple(self.build.load(values, key, "value") for values in bound.values)
            then(Scalar((key,), INT, bound.axis), Scalar(values, REAL))

    def _iterate_product(self, node: t.Multiply, names: Names, then: Then) -> None:
        left = self.type_of(node.left, names)
        outer, other = (node.right, node.left) if left is None or left.is_scalar else (node.left, node.right)

        def scaled(key: Scalar, value: Bound) -> None:
            factors = {"left": value, "right": self.bind(other, names)}
            if outer is node.right:
                factors = {"left": factors["right"], "right": value}
            product = t.Multiply(t.Var("left"), t.Var("right"))
            self._bind_value(product, factors, lambda bound: then(key, bound))

        self.iterate(outer, names, scaled)

    def key(self, node: t.Node, names: Names) -> Scalar:
        bound = names.get(node.name) if isinstance(node, t.Var) else None
        return bound if isinstance(bound, Scalar) else Scalar((self.integer(node, names),), INT)

    def loop(self, node: t.Sum, names: Names, then: Callable[[Names], None]) -> None:
        """The loop of a sum: `then` with the names of its body, for each entry."""
        over = node.range
        if isinstance(over, t.Range):
            start, stop = self.key(over.start, names), self.key(over.stop, names)
            with self.build.loop(_name(node.value, "i"), start.values[0], stop.values[0]) as i:
                axis = stop.axis if stop.is_size else None
                then(self._named(node, names, Scalar((i - start.values[0],), INT), Scalar((i,), INT, axis)))
            return
        if isinstance(over, t.SubArray):
            start, stop = self.integer(over.start, names), self.integer(over.stop, names)
            with self.build.loop(_name(node.key, "p"), start, stop) as p:
                then(self._named(node, names, Scalar((p,), INT), self._element(over, names, p, node.value)))
            return
        if not self._may_come_in_parts(node, names):
            self.entries(self.collected(over, names), lambda key, value: then(self._named(node, names, key, value)))
            return
        self.iterate(over, names, lambda key, value: then(self._named(node, names, key, value)))

    def _may_come_in_parts(self, node: t.Sum, names: Names) -> bool:
        """Whether the body of a sum may be run for each part of what a key leads to."""
        if is_linear(node.body, node.value) or self.is_unique(node.range, names):
            return True
        # No entry of an input is stored twice, so that parts of its rows have none in common.
        bound = names.get(node.range.name) if isinstance(node.range, t.Var) else None
        below = bound.type.order - 1 if isinstance(bound, Closure) and bound.type and bound.entries_differ else 0
        return below > 0 and is_linear(node.body, node.value, below)

    def _element(self, over: t.SubArray, names: Names, place: Expr, name: str) -> Scalar:
        assert isinstance(over.array, t.Var)
        stored = names[over.array.name]
        assert isinstance(stored, Stored)
        values = tuple(self.build.load(a, place, _name(name, "x")) for a in stored.arrays)
        return Scalar(values, stored.type.inner)

    @staticmethod
    def _named(node: t.Sum, names: Names, key: Bound, value: Bound) -> Names:
        return {**names, node.key: key, node.value: value}

    # Looking up

    def look_up(self, node: t.Lookup, names: Names, then: Callable[[Bound], None]) -> None:
        """`then` with each part of what a tensor holds at a key; the parts add up."""
        keys: list[Scalar] = []
        inner: t.Node = node
        while isinstance(inner, t.Lookup):
            keys.insert(0, self._in_register(self.key(inner.key, names)))
            inner = inner.tensor
        self._locate(inner, names, keys, {}, then)

    def _in_register(self, key: Scalar) -> Scalar:
        return key if _is_simple(key.values[0]) else replace(key, values=(self.build.let("key", key.values[0]),))

    def _locate(
        self, node: t.Node, names: Names, keys: list[Scalar], wanted: dict[str, Scalar], then: Callable[[Bound], None]
    ) -> None:
        """wanted  of names that loops below bind, the only numbers that lead to the keys; under the text of a key that
        is solved so, itself"""
        if not keys:
            self._bind_value(node, names, then)
            return
        match node:
            case t.Zero():
                return
            case t.Var():
                self._locate_bound(names[node.name], keys, then)
            case t.Lookup():
                self.look_up(node, names, lambda bound: self._locate_bound(bound, keys, then))
            case t.If():
                with self.build.when(self.scalar(node.condition, names)[0]):
                    self._locate(node.body, names, keys, wanted, then)
            case t.Let():
                self._locate(node.body, {**names, node.name: self.bind(node.value, names)}, keys, wanted, then)
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
                    with self.build.when(lift(apply("equal", self.integer(node.key, names), keys[0].values[0]))):
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
            depth = len(keys)
            self._locate(bound.node, bound.names, keys, {}, lambda value: then(_part(value, bound, depth)))
        else:
            assert isinstance(bound, Listed)
            self.entries(bound, lambda key, value: self._if_equal(key, keys[0], lambda: then(value)))

    def _if_equal(self, left: Scalar, right: Scalar, then: Callable[[], None]) -> None:
        with self.build.when(lift(apply("equal", left.values[0], right.values[0]))):
            then()

    def _locate_in_product(
        self, node: t.Multiply, names: Names, keys: list[Scalar], then: Callable[[Bound], None]
    ) -> None:
        left = self.type_of(node.left, names)
        order = 0 if left is None else left.order
        into_left, into_right = keys[:order], keys[order:]

        def with_left(a: Bound) -> None:
            def with_right(b: Bound) -> None:
                product = t.Multiply(t.Var("left"), t.Var("right"))
                self._bind_value(product, {"left": a, "right": b}, then)

            self._locate_bound(self.bind(node.right, names), into_right, with_right)

        self._locate_bound(self.bind(node.left, names), into_left, with_left)

    def _locate_in_sum(
        self, node: t.Sum, names: Names, keys: list[Scalar], wanted: dict[str, Scalar], then: Callable[[Bound], None]
    ) -> None:
        def go_on(inner: Names) -> None:
            self._locate(node.body, inner, keys, wanted, then)

        physical = isinstance(node.range, (t.Range, t.SubArray))
        if physical and node.value in wanted:
            self._enter(node, names, wanted[node.value], go_on)
        elif not physical and node.key in wanted and self._may_come_in_parts(node, names):
            key = wanted[node.key]
            at = self.bind(node.range, names)
            self._locate_bound(at, [key], lambda value: go_on(self._named(node, names, key, value)))
        else:
            self.loop(node, names, go_on)

    def _enter(self, node: t.Sum, names: Names, key: Scalar, then: Callable[[Names], None]) -> None:
        """The body of a sum over an array at the only place where it holds a number."""
        build, over, x = self.build, node.range, key.values[0]
        if isinstance(over, t.Range):
            start, stop = self.key(over.start, names), self.key(over.stop, names)
            inner = self._named(node, names, Scalar((x - start.values[0],), INT), key)
            known = start.values[0] == Constant(0, "int64") and stop.is_size and key.axis is not None
            if known and self.axis_root(key.axis) == self.axis_root(stop.axis):
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
        place = build.let("place", self.integer(over.start, names))
        stop = build.let("stop", self.integer(over.stop, names))
        (held,) = stored.arrays
        found = self._named(node, names, Scalar((place,), INT), key)
        if stored.kind == "sorted":
            self._bisect(held, place, stop, x)
            with build.when(place < stop):
                at = build.load(held, place, "held")
                with build.when(lift(apply("equal", at, x))):
                    then(found)
        elif stored.kind == "hashed":
            self._probe(held, place, stop, x)
            at = build.load(held, place, "held")
            with build.when(lift(apply("equal", at, x))):
                then(found)
        else:
            with build.loop(_name(node.key, "p"), place, stop) as p:
                at = build.load(held, p, "held")
                with build.when(lift(apply("equal", at, x))):
                    then(self._named(node, names, Scalar((p,), INT), key))

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
                c = self.integer(size, names)
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
                c = self.integer(size, names)
                whole = self.build.let(name, quotient.values[0] * c + rest.values[0])
                wanted[name] = Scalar((whole,), INT)

    # What is known of tensors

    def is_unique(self, node: t.Node, names: Names) -> bool:
        """Whether every key comes once when `iterate` runs over a tensor."""
        match node:
            case t.Zero():
                return True
            case t.Var():
                return self._is_unique(names[node.name])
            case t.If():
                return self.is_unique(node.body, names)
            case t.Let():
                return self.is_unique(node.body, {**names, node.name: self._unbound(node.value, names)})
            case t.Singleton():
                return True
            case t.Multiply():
                left = self.type_of(node.left, names)
                return self.is_unique(node.right if left is None or left.is_scalar else node.left, names)
            case t.Sum():
                inner: t.Node = node.body
                while isinstance(inner, (t.If, t.Let)) or (isinstance(inner, t.Sum)):
                    inner = inner.body
                if not isinstance(inner, t.Singleton):
                    return False
                if inner.is_unique:
                    return True
                is_direct = not isinstance(node.body, t.Sum)
                return is_direct and inner.key == t.Var(node.key) and self.is_unique(node.range, names)
            case t.Lookup():
                return self._is_one_entry(node, names) and self._value_is_unique(node, names)
        return False

    def _is_unique(self, bound: Bound) -> bool:
        return isinstance(bound, Listed) or (isinstance(bound, Closure) and self.is_unique(bound.node, bound.names))

    def _unbound(self, node: t.Node, names: Names) -> Bound:
        if isinstance(node, t.Var):
            return names[node.name]
        of = self.type_of(node, names)
        return Closure(node, names, of)

    def _is_one_entry(self, node: t.Lookup, names: Names) -> bool:
        """Whether there is at most one part of what is looked up."""
        below = node.tensor
        if isinstance(below, t.Lookup):
            return self._is_one_entry(below, names) and self._value_is_unique(below, names)
        return self.is_unique(below, names)

    def _value_is_unique(self, node: t.Lookup, names: Names) -> bool:
        """Whether what a lookup leads to is unique itself: the values of singletons are, all the way down."""
        depth, below = 1, node.tensor
        while isinstance(below, t.Lookup):
            depth, below = depth + 1, below.tensor
        return self._is_unique_below(below, names, depth)

    def _is_unique_below(self, node: t.Node, names: Names, depth: int) -> bool:
        if isinstance(node, t.Var):
            bound = names[node.name]
            return isinstance(bound, Closure) and self._is_unique_below(bound.node, bound.names, depth)
        inner = node
        for level in range(depth + 1):
            passed = 0
            while isinstance(inner, (t.Sum, t.If, t.Let)):
                passed += isinstance(inner, t.Sum)
                inner = inner.body
            if not isinstance(inner, t.Singleton) or (passed and not inner.is_unique):
                return False
            if level < depth:
                inner = inner.value
        return True

    # Workspaces

    def collected(self, node: t.Node, names: Names) -> Listed:
        """The entries of a vector, each key once, in a workspace."""
        of = self.type_of(node, names)
        if of is None or of.order != 1:
            raise NotWhole(node, names)
        axis = self.axis_of(node, names)
        keys, stamps, values, stamp = self.workspace(axis)
        build = self.build
        build.set(stamp, stamp + 1)
        count = build.let("count", 0)

        def put(key: Scalar, value: Bound) -> None:
            assert isinstance(value, Scalar)
            k = key.values[0]
            seen = build.load(stamps, k, "seen")
            with build.when(lift(apply("equal", seen, stamp))):
                old = tuple(build.load(v, k, "old") for v in values)
                for held, x in zip(values, self.plus(old, value.values)):
                    build.store(held, k, x)
            with build.otherwise():
                build.store(stamps, k, stamp)
                build.store(keys, count, k)
                build.set(count, count + 1)
                for held, x in zip(values, value.values):
                    build.store(held, k, x)

        self.iterate(node, names, put)
        return Listed(keys, count, values, axis, of)

    def axis_of(self, node: t.Node, names: Names) -> Any:
        """The axis that the keys of a tensor run over, None if nothing says it."""
        raise NotImplementedError

    # Results

    def accumulate(self, node: t.Node, names: Names, into: Destination) -> None:
        """Add the value of an expression to a destination."""
        match node:
            case t.Zero():
                return
            case t.Sum() if not isinstance(into, Registers) and self._is_scalar(node, names):
                self._add_sum(node, names, into)
            case t.Sum():
                self.loop(node, names, lambda inner: self.accumulate(node.body, inner, into))
            case t.Singleton():
                into.at(self.key(node.key, names), lambda below: self.accumulate(node.value, names, below))
            case t.If():
                with self.build.when(self.scalar(node.condition, names)[0]):
                    self.accumulate(node.body, names, into)
            case t.Let():
                self.accumulate(node.body, {**names, node.name: self.bind(node.value, names)}, into)
            case t.Add():
                self.accumulate(node.left, names, into)
                self.accumulate(node.right, names, into)
            case _:
                of = self.type_of(node, names)
                if of is None or of.is_scalar:
                    self._accumulate_scalar(node, names, into)
                else:
                    self.iterate(node, names, lambda key, value: self._accumulate_entry(key, value, into))

    def _is_scalar(self, node: t.Node, names: Names) -> bool:
        of = self.type_of(node, names)
        return of is not None and of.is_scalar

    def _add_sum(self, node: t.Sum, names: Names, into: Destination) -> None:
        """A sum of scalars goes to registers first, and to the destination if it had anything to add."""
        total = Registers(self, self._registers("total", self.zero), self.build.let("found", False))
        self.accumulate(node, names, total)
        if into.holds_all:
            into.add(total.registers)
        else:
            with self.build.when(total.found):
                into.add(total.registers)

    def _accumulate_scalar(self, node: t.Node, names: Names, into: Destination) -> None:
        if isinstance(node, t.Var) and isinstance(bound := names[node.name], Closure):
            self.accumulate(bound.node, bound.names, into)
        elif isinstance(node, t.Lookup) and self._place(node, names) is None:
            self.look_up(node, names, lambda bound: self._accumulate_bound(bound, into))
        else:
            self.pieces(node, names, into.add)

    def _accumulate_entry(self, key: Scalar, value: Bound, into: Destination) -> None:
        into.at(key, lambda below: self._accumulate_bound(value, below))

    def _accumulate_bound(self, bound: Bound, into: Destination) -> None:
        if isinstance(bound, Scalar):
            into.add(bound.values)
        elif isinstance(bound, Closure):
            self.accumulate(bound.node, bound.names, into)
        else:
            self.entries(bound, lambda key, value: self._accumulate_entry(key, value, into))


class Registers(Destination):
    """A scalar in registers; `found` is set when anything is added."""

    holds_all = True

    def __init__(self, lowering: Lowering, registers: Values, found: Any = None):
        self.lowering, self.registers, self.found = lowering, registers, found

    def add(self, values: Values) -> None:
        if self.found is not None:
            self.lowering.build.set(self.found, True)
        self.lowering.build.set(self.registers, self.lowering.plus(self.registers, values))  # type: ignore[arg-type]


def _part(value: Bound, of: Closure, depth: int) -> Bound:
    """What so many keys of a tensor lead to, with what is known of the tensor."""
    if isinstance(value, Closure) and of.axes:
        return replace(value, axes=of.axes[depth:], entries_differ=of.entries_differ)
    return value


def _factors_of(node: t.Node) -> list[t.Node]:
    return [*_factors_of(node.left), *_factors_of(node.right)] if isinstance(node, t.Multiply) else [node]


def _is_simple(value: Expr) -> bool:
    return not value.operands


def _name(name: str, otherwise: str) -> str:
    return otherwise if name == "_" else name
