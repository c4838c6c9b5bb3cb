"""SDQLite to the loop IR: sums become loops, and no dictionary is made on the way.

A tensor is a `Closure`: an expression with what its names stand for. To run over its entries, or to look one up, is to
emit the loops that its expression says, so programs and the definitions of storage formats fuse by themselves. Where an
index is wanted, loops are entered at the one place where it may stand: a range at that number, a sorted part of an
array by bisection, a hashed one by probing; what cannot be solved for the index is searched.

What receives values is a `Destination`, pushed inwards through singletons, so that the innermost loop writes to the
result itself (destination passing). A factor that may have no entry is a branch round the rest of the product.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import reduce
from typing import Any

from derivable.algebra.expr.functions import apply, lift
from derivable.algebra.expr.nodes import Constant, Expr
from derivable.algebra.semiring import TypedSemiring
from derivable.core.diagnostics import UnsupportedError
from derivable.kernel.build import Builder, as_type, substitute
from derivable.tensor.analysis.axes import Axes, size_name
from derivable.tensor.analysis.bound import (
    Bound,
    Closure,
    Destination,
    Listed,
    Names,
    NeededEarlier,
    Scalar,
    Stored,
    Then,
    Tree,
    Values,
    is_simple,
    loop_name,
    named,
    part_of,
    type_of,
)
from derivable.tensor.analysis.unique import is_one_entry, is_unique, may_come_in_parts
from derivable.tensor.language import nodes as t
from derivable.tensor.language.linearity import guarded_part, vanishes
from derivable.tensor.language.types import INT, REAL, Type, is_tensor
from derivable.tensor.lower.conditions import Conditions
from derivable.tensor.lower.locate import Locator
from derivable.tensor.lower.whole import axes_of_keys, check_depends_on_loops
from derivable.tensor.lower.workspace import Workspaces


class Lowering:
    """Emits the loops of expressions.

    program   the whole expression
    axes      which axes are the same
    early     expressions that are collected where they are named
    again     those that are not, and run once more in each round of loops inside of which they are used, or in parts
    is_alone  whether the kernel makes all that it needs whole, so that nothing is a stage before it
    in_place  whether inner loops write to the result; else what is a vector below a key is collected first
    is_wide   whether vectors are collected in trees, as their axes are too long for a place for each index
    keeps     whether entries that a guard leaves out stay in the result with the value zero, as where entries are does
              not depend on values; else a guard is a branch
    is_exact  whether zero times an infinity is zero
    inputs    what the names of inputs stand for
    guards    conditions for what is added to be more than zero
    """

    def __init__(
        self,
        build: Builder,
        semiring: TypedSemiring,
        program: t.Node,
        axes: Axes,
        arguments: list[tuple[str, Any, Any]],
        early: Sequence[t.Node] = (),
        in_place: bool = True,
        is_wide: bool = False,
        keeps: bool = False,
        is_exact: bool = False,
        is_alone: bool = False,
    ):
        self.build = build
        self.semiring = semiring
        self.program = program
        self.axes = axes
        self.early, self.is_alone = early, is_alone
        self.again: dict[int, Closure] = {}
        self.in_place = in_place
        self.is_wide = is_wide
        self.keeps, self.is_exact = keeps, is_exact
        self.guards: list[Expr] = []
        self.inputs: Names = {}
        self.spaces = Workspaces(build, semiring, self.plus, arguments)
        self.locator = Locator(self)
        self.conditions = Conditions(self)

    # Scalars

    @property
    def zero(self) -> Values:
        return self.real(self.semiring.zero)

    @property
    def one(self) -> Values:
        return self.real(self.semiring.one)

    def plus(self, left: Values, right: Values) -> Values:
        return self._operate(self.semiring.plus, left, right)

    def times(self, left: Values, right: Values) -> Values:
        if self.one in (left, right):
            return right if left == self.one else left
        product = self._operate(self.semiring.times, left, right)
        if not self.is_exact:
            return product
        # A branch that is hardly ever taken.
        found = self._registers("product", product)
        is_nan = reduce(lambda a, b: lift(apply("logical_or", a, b)), [apply("not_equal", x, x) for x in found])
        with self.build.when(lift(is_nan)):
            are_there = lift(apply("logical_and", self.conditions.differs(left), self.conditions.differs(right)))
            with self.build.when(lift(apply("logical_not", are_there))):
                self.build.set(found, self.zero)  # type: ignore[arg-type]
        return found

    def _operate(self, monoid: Any, left: Values, right: Values) -> Values:
        return substitute(monoid.values, dict(zip((*monoid.left, *monoid.right), (*left, *right))))

    def real(self, value: Any) -> Values:
        given = value if isinstance(value, tuple) else (value,)
        return tuple(Constant(x, dtype) for x, dtype in zip(given, self.semiring.dtypes, strict=True))

    def integer(self, node: t.Node, names: Names) -> Expr:
        return self.scalar(node, names)[0]

    def scalar(self, node: t.Node, names: Names) -> Values:
        """The value of a scalar expression, zero where it has none."""
        match node:
            case t.Number():
                of = type_of(node, names)
                return (
                    self.real(node.value) if of == REAL else (Constant(node.value, "int64" if of == INT else "bool"),)
                )
            case t.One():
                return self.one
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
        with self.unguarded():
            self.accumulate(node, names, Registers(self, total))
        return total

    def _has_value(self, node: t.Node, names: Names) -> bool:
        """Whether a scalar expression has a value without a branch or a loop."""
        if isinstance(node, t.Var):
            bound = names[node.name]
            return isinstance(bound, Scalar) and bound.found is None
        if isinstance(node, t.Lookup):
            return self._place_array(node, names) is not None
        if isinstance(node, t.Multiply):
            return all(self._has_value(factor, names) for factor in node.children)
        return isinstance(node, (t.Number, t.One, t.Apply))

    def _applied(self, node: t.Apply, names: Names) -> Values:
        if (part := guarded_part(node)) is not None:
            return (self.conditions.is_nonzero(part, names),)
        operands = [self.scalar(operand, names) for operand in node.operands]
        if any(len(operand) != 1 for operand in operands):
            raise UnsupportedError(
                f"`{node.operation}` of elements of several numbers means nothing in the semiring "
                f"`{self.semiring.semiring.name}`",
                span=node.span,
            )
        if node.operation == "cast":
            return (as_type(operands[0][0], self.semiring.dtypes[0]),)
        values = [operand[0] for operand in operands]
        if node.operation == "power" and values[1] == Constant(2.0, values[1].dtype):
            # A power is a call of the C library, whatever the exponent.
            base = values[0] if is_simple(values[0]) else self.build.let("base", values[0])
            return (lift(apply("multiply", base, base)),)
        return (lift(apply(node.operation, *values)),)

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
                with self.conditions.when(node.condition, names):
                    self.pieces(node.body, names, then)
            case t.Let():
                self.pieces(node.body, {**names, node.name: self.bind(node.value, names)}, then)
            case t.Var():
                self._piece_of(names[node.name], then)
            case t.Multiply():
                self._factors(_factors_of(node), names, then)
            case t.Lookup() if self._place_array(node, names) is None and is_one_entry(node, names):
                self.locator.look_up(node, names, lambda bound: self._piece_of(bound, then))
            case _ if self._has_value(node, names):
                then(self.scalar(node, names))
            case _:
                self._piece_of(self.total(node, names), then)

    def total(self, node: t.Node, names: Names) -> Scalar:
        """The value of a scalar expression in registers, and whether it has one."""
        found = self.build.let("found", False)
        total = Registers(self, self._registers("total", self.zero), found)
        with self.unguarded():
            self.accumulate(node, names, total)
        return Scalar(total.registers, REAL, found=found)

    def _piece_of(self, bound: Bound, then: Callable[[Values], None]) -> None:
        if isinstance(bound, Closure):
            self.pieces(bound.node, bound.names, then)
            return
        assert isinstance(bound, Scalar)
        if bound.found is None:
            then(bound.values)
        else:
            with self.build.when(bound.found):
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

    # Guards

    @contextmanager
    def unguarded(self) -> Iterator[None]:
        """What is added inside goes to something that is made inside of all guards."""
        outer, self.guards = self.guards, []
        yield
        self.guards = outer

    def _add(self, values: Values, into: Destination) -> None:
        """Add a value, or zero where a guard fails."""
        if self.guards:
            holds = reduce(lambda left, right: lift(apply("logical_and", left, right)), self.guards)
            values = tuple(lift(apply("where", holds, x, zero)) for x, zero in zip(values, self.zero))
        into.add(values)

    # Names

    def bind(self, node: t.Node, names: Names) -> Bound:
        """What a name for the value of an expression stands for: scalars are computed, tensors are not."""
        of = type_of(node, names)
        if isinstance(node, t.Var):
            return names[node.name]
        if of is None or not of.is_scalar:
            return self._tensor(node, names, of)
        if of == REAL and not self._has_value(node, names):
            return self.total(node, names)
        return self._bound_scalar(self.scalar(node, names), of)

    def _tensor(self, node: t.Node, names: Names, of: Type | None) -> Bound:
        if any(node is other for other in self.early):
            return self.collected(node, names)
        return Closure(node, names, of, num_loops=self.build.num_loops)

    def bind_value(self, node: t.Node, names: Names, then: Callable[[Bound], None]) -> None:
        """`then` with what a key leads to; a scalar without a value is no entry."""
        of = type_of(node, names)
        if of is None or not of.is_scalar:
            then(names[node.name] if isinstance(node, t.Var) else self._tensor(node, names, of))
            return

        self.pieces(node, names, lambda values: then(self._bound_scalar(values, of)))

    def _bound_scalar(self, values: Values, of: Type) -> Scalar:
        return Scalar(tuple(x if is_simple(x) else self.build.let("value", x) for x in values), of)

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
                self.bind_value(node.value, names, lambda value: then(key, value))
            case t.If():
                with self.conditions.when(node.condition, names):
                    self.iterate(node.body, names, then)
            case t.Let():
                self.iterate(node.body, {**names, node.name: self.bind(node.value, names)}, then)
            case t.Add():
                self.iterate(node.left, names, then)
                self.iterate(node.right, names, then)
            case t.Multiply():
                self._iterate_product(node, names, then)
            case t.Lookup():
                self.locator.look_up(node, names, lambda bound: self.entries(bound, then))
            case _:
                raise AssertionError(node)

    def entries(self, bound: Bound, then: Then) -> None:
        """As `iterate`, over what a name stands for."""
        if isinstance(bound, Closure):
            self.used(bound, comes_in_parts=not is_unique(bound.node, bound.names))
            axes = bound.axes

            def of_axis(key: Scalar, value: Bound) -> None:
                then(replace(key, axis=axes[0]), part_of(value, bound, 1))

            self.iterate(bound.node, bound.names, of_axis if axes else then)
            return
        if isinstance(bound, Tree):
            self.spaces.entries(bound, then)
            return
        assert isinstance(bound, Listed)
        with self.build.loop("place", 0, bound.count) as place:
            key = self.build.load(bound.keys, place, "key")
            then(Scalar((key,), INT, bound.axis), self.listed_at(bound, key))

    def used(self, bound: Closure, comes_in_parts: bool = False) -> None:
        """The loops of a tensor are emitted here; in parts, if keys come several times that it could hold once."""
        if bound.axes or bound.type is None or not is_tensor(bound.type):
            return
        if comes_in_parts or bound.num_loops < self.build.num_loops:
            self.again.setdefault(id(bound.node), bound)

    def listed_at(self, held: Listed, key: Expr) -> Scalar:
        return Scalar(tuple(self.build.load(values, key, "value") for values in held.values), REAL)

    def _iterate_product(self, node: t.Multiply, names: Names, then: Then) -> None:
        left, right = type_of(node.left, names), type_of(node.right, names)
        if left is None or right is None:
            return  # Only a zero is of no type, and may stand for a tensor of any order.
        outer, other = (node.right, node.left) if left.is_scalar else (node.left, node.right)

        bound = self.bind(other, names)

        def scaled(key: Scalar, value: Bound) -> None:
            left, right = (bound, value) if outer is node.right else (value, bound)
            product = t.Multiply(t.Var("left"), t.Var("right"))
            self.bind_value(product, {"left": left, "right": right}, lambda found: then(key, found))

        self.iterate(outer, names, scaled)

    def key(self, node: t.Node, names: Names) -> Scalar:
        bound = names.get(node.name) if isinstance(node, t.Var) else None
        return bound if isinstance(bound, Scalar) else Scalar((self.integer(node, names),), INT)

    def loop(self, node: t.Sum, names: Names, then: Callable[[Names], None]) -> None:
        """The loop of a sum: `then` with the names of its body, for each entry."""
        over = node.range
        if isinstance(over, t.Range):
            start, stop = self.key(over.start, names), self.key(over.stop, names)
            with self.build.loop(loop_name(node.value, "i"), start.values[0], stop.values[0]) as i:
                axis = stop.axis if stop.is_size else None
                then(named(node, names, Scalar((i - start.values[0],), INT), Scalar((i,), INT, axis)))
            return
        if isinstance(over, t.SubArray):
            start, stop = self.integer(over.start, names), self.integer(over.stop, names)
            with self.build.loop(loop_name(node.key, "p"), start, stop) as p:
                then(named(node, names, Scalar((p,), INT), self._element(over, names, p, node.value)))
            return

        def enter(key: Scalar, value: Bound) -> None:
            self.enter(node, names, key, value, then)

        if type_of(over, names) is None or self.takes_parts(node, names):
            self.iterate(over, names, enter)
        else:
            self.entries(self.collected(over, names), enter)

    def takes_parts(self, node: t.Sum, names: Names) -> bool:
        """Whether the body of a sum may be run for each part of what a key leads to."""
        return may_come_in_parts(node, names, is_real=self.semiring.semiring.name == "real")

    def enter(self, node: t.Sum, names: Names, key: Bound, value: Bound, then: Callable[[Names], None]) -> None:
        """The body of a sum for one key, in a branch where that may lead to no entry at all."""
        inner = named(node, names, key, value)
        if isinstance(value, Scalar) or vanishes(node.body, {node.value}):
            then(inner)
            return
        found = self.build.let("found", False)
        self.conditions.find(value, found, lambda value: True)
        with self.build.when(found):
            then(inner)

    def _element(self, over: t.SubArray, names: Names, place: Expr, name: str) -> Scalar:
        assert isinstance(over.array, t.Var)
        stored = names[over.array.name]
        assert isinstance(stored, Stored)
        values = tuple(self.build.load(a, place, loop_name(name, "x")) for a in stored.arrays)
        return Scalar(values, stored.type.inner)

    # Workspaces

    def collected(self, node: t.Node, names: Names) -> Bound:
        """A tensor with each entry once, in a workspace.

        Raises NotWhole if it is better made before all loops, NeededEarlier if where it was named.
        """
        of = type_of(node, names)
        assert of is not None
        named_in = self.build.num_loops
        if (bound := self._named(node, names)) is not None:
            named_in = bound.num_loops
        if (of.order > 1 or named_in) and not self.is_alone:
            check_depends_on_loops(node, names, of, self.program, self.inputs, named_in > 0)
        while bound is not None:
            if bound.num_loops < self.build.num_loops:
                raise NeededEarlier(bound.node)
            node, names = bound.node, bound.names
            bound = self._named(node, names)
        axes = axes_of_keys(node, names, of)

        def fill(into: Destination) -> None:
            with self.unguarded():
                self.accumulate(node, names, into)

        if of.order == 1 and axes[0] is not None and not self.is_wide:
            return self.spaces.listed(axes[0], of, fill)
        return self.spaces.tree(of, axes, fill)

    @staticmethod
    def _named(node: t.Node, names: Names) -> Closure | None:
        """What a name stands for, if that is an expression of the program and no input."""
        bound = names[node.name] if isinstance(node, t.Var) else None
        return bound if isinstance(bound, Closure) and not bound.axes else None

    def size_of(self, axis: Any) -> Expr:
        """How many indices an axis of an input has."""
        name, number = axis
        bound = self.inputs.get(name)
        size = bound.names[f"n{number}"] if isinstance(bound, Closure) else self.inputs[size_name(name, number)]
        assert isinstance(size, Scalar)
        return size.values[0]

    # Results

    def accumulate(self, node: t.Node, names: Names, into: Destination) -> None:
        """Add the value of an expression to a destination."""
        match node:
            case t.Zero():
                return
            case t.Sum():
                of = type_of(node, names)
                if not isinstance(into, Registers) and of is not None and of.is_scalar:
                    self._add_sum(node, names, into)
                    return
                self.loop(node, names, lambda inner: self.accumulate(node.body, inner, into))
            case t.Singleton():
                key = self.key(node.key, names)
                of = type_of(node.value, names)
                if self.in_place or of is None or of.order != 1:
                    into.at(key, lambda below: self.accumulate(node.value, names, below))
                else:
                    made = self.collected(node.value, names)
                    into.at(key, lambda below: self._accumulate_bound(made, below))
            case t.If():
                with self.conditions.when(node.condition, names):
                    self.accumulate(node.body, names, into)
            case t.Let():
                self.accumulate(node.body, {**names, node.name: self.bind(node.value, names)}, into)
            case t.Add():
                self.accumulate(node.left, names, into)
                self.accumulate(node.right, names, into)
            case _:
                of = type_of(node, names)
                if of is None or of.is_scalar:
                    self._accumulate_scalar(node, names, into)
                else:
                    self.iterate(node, names, lambda key, value: self._accumulate_entry(key, value, into))

    def _add_sum(self, node: t.Sum, names: Names, into: Destination) -> None:
        """A sum of scalars goes to registers first, and to the destination if it had anything to add."""
        if into.holds_all:
            total = Registers(self, self._registers("total", self.zero))
            with self.unguarded():
                self.accumulate(node, names, total)
            self._add(total.registers, into)
        else:
            self._piece_of(self.total(node, names), lambda values: self._add(values, into))

    def _accumulate_scalar(self, node: t.Node, names: Names, into: Destination) -> None:
        if isinstance(node, t.Var) and isinstance(bound := names[node.name], Closure):
            self.accumulate(bound.node, bound.names, into)
        elif isinstance(node, t.Lookup) and self._place_array(node, names) is None:
            self.locator.look_up(node, names, lambda bound: self._accumulate_bound(bound, into))
        else:
            self.pieces(node, names, lambda values: self._add(values, into))

    def _accumulate_entry(self, key: Scalar, value: Bound, into: Destination) -> None:
        into.at(key, lambda below: self._accumulate_bound(value, below))

    def _accumulate_bound(self, bound: Bound, into: Destination) -> None:
        if isinstance(bound, Scalar):
            self._piece_of(bound, lambda values: self._add(values, into))
        elif isinstance(bound, Closure):
            self.accumulate(bound.node, bound.names, into)
        else:
            self.entries(bound, lambda key, value: self._accumulate_entry(key, value, into))


class Registers(Destination):
    """A scalar in registers; `found` is set when anything is added."""

    def __init__(self, lowering: Lowering, registers: Values, found: Any = None):
        self.lowering, self.registers, self.found = lowering, registers, found

    @property
    def holds_all(self) -> bool:
        return True

    def at(self, key: Scalar, then: Callable[[Destination], None]) -> None:
        """A zero of no order may stand for a number, with keys around it: nothing is added."""

    def add(self, values: Values) -> None:
        if self.found is not None:
            self.lowering.build.set(self.found, True)
        self.lowering.build.set(self.registers, self.lowering.plus(self.registers, values))  # type: ignore[arg-type]


def _factors_of(node: t.Node) -> list[t.Node]:
    return [*_factors_of(node.left), *_factors_of(node.right)] if isinstance(node, t.Multiply) else [node]
