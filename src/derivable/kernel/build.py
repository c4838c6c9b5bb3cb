"""Building kernels: registers with names of their own, loops and branches as `with` blocks.

>>> from derivable.kernel.build import Builder
>>> k = Builder("double")
>>> n, x = k.scalar("n"), k.array("x", "float64")
>>> with k.loop("i", 0, n) as i:
...     value = k.load(x, i, "value")
...     k.store(x, i, value + value)
>>> print(k.kernel())
kernel double(n: int64, x: float64[])
  for i in 0 .. n
    value = x[i]
    x[i] = value + value
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from derivable.algebra.expr.functions import cast, lift
from derivable.algebra.expr.nodes import Apply, Argument, Constant, Expr, in_order
from derivable.algebra.expr.types import Dtype, check_dtype
from derivable.kernel import nodes as n


class Builder:
    """Collects the statements of one kernel. Numbers may stand for expressions."""

    def __init__(self, name: str, lanes: int = 8):
        self.name = name
        self.lanes = lanes
        self.parameters: list[n.Register | n.Array] = []
        self._blocks: list[list[n.Statement]] = [[]]
        self._names: dict[str, int] = {}
        self._count = 0
        # How many loops what is added next is inside of.
        self.num_loops = 0

    def kernel(self) -> n.Kernel:
        """The kernel as collected so far."""
        return n.Kernel(self.name, tuple(self.parameters), tuple(self._blocks[0]), self.lanes)

    # Names

    def _fresh(self, name: str) -> str:
        taken = self._names.get(name)
        self._names[name] = 0 if taken is None else taken + 1
        return name if taken is None else self._fresh(f"{name}_{taken + 1}")

    def register(self, name: str, dtype: Any = "int64") -> n.Register:
        """A register that nothing has been assigned to; another one of that name gets a number after it."""
        self._count += 1
        return Argument(self._count - 1, check_dtype(dtype), self._fresh(name))

    def registers(self, name: str, dtypes: Sequence[Dtype]) -> tuple[n.Register, ...]:
        """One register per type: name0, name1, ..."""
        return tuple(self.register(f"{name}{k}", dtype) for k, dtype in enumerate(dtypes))

    def scalar(self, name: str, dtype: Any = "int64") -> n.Register:
        """A scalar parameter."""
        made = self.register(name, dtype)
        self.parameters.append(made)
        return made

    def array(self, name: str, dtype: Any, is_lines: bool = False) -> n.Array:
        """An array parameter."""
        made = n.Array(self._fresh(name), str(dtype), is_lines)
        self.parameters.append(made)
        return made

    # Statements

    def add(self, statement: n.Statement) -> None:
        self._blocks[-1].append(statement)

    def comment(self, text: str) -> None:
        self.add(n.Comment(text))

    def set(self, targets: n.Register | Sequence[n.Register], values: Any) -> None:
        """Assign one value, or several at once; values get the types of their registers."""
        if isinstance(targets, Argument):
            targets, values = (targets,), (values,)
        pairs = [(target, as_type(value, target.dtype)) for target, value in zip(targets, values, strict=True)]
        pairs = [(target, value) for target, value in pairs if target is not value]
        if pairs:
            self.add(n.Assign(tuple(target for target, _ in pairs), tuple(value for _, value in pairs)))

    def let(self, name: str, value: Any, dtype: Any = None) -> n.Register:
        """A new register with a value."""
        value = lift(value)
        target = self.register(name, value.dtype if dtype is None else dtype)
        self.set(target, value)
        return target

    def load(self, array: n.Array, index: Any, name: str, dtype: Any = None) -> n.Register:
        """A new register with array[index], of `dtype` or the type of expressions that holds the array's."""
        target = self.register(name, register_dtype(array.dtype) if dtype is None else dtype)
        self.load_into(target, array, index)
        return target

    def load_into(self, target: n.Register, array: n.Array, index: Any) -> None:
        self.add(n.Load(target, array, position(index)))

    def store(self, array: n.Array, index: Any, value: Any) -> None:
        self.add(n.Store(array, position(index), lift(value)))

    def load_bit(self, array: n.Array, index: Any, name: str) -> n.Register:
        target = self.register(name, "bool")
        self.add(n.LoadBit(target, array, position(index)))
        return target

    def set_bit(self, array: n.Array, index: Any) -> None:
        self.add(n.SetBit(array, position(index)))

    def hash(self, words: Sequence[Any], size: Any) -> tuple[n.Register, n.Register]:
        """(slot below the power of two `size`, 32 more bits)."""
        slot, tag = self.register("slot"), self.register("tag")
        self.add(n.Hash(slot, tag, tuple(position(word) for word in words), position(size)))
        return slot, tag

    def load_line(
        self, target: n.Register, array: n.Array, index: Any, backwards: bool = False, count: Any = None, fill: Any = 0
    ) -> None:
        """count  how many of the lanes are rows, None for all; the others hold the number `fill`"""
        if count is None:
            self.add(n.LoadLine(target, array, position(index), backwards))
        else:
            fill = as_type(fill, target.dtype)
            self.add(n.LoadLine(target, array, position(index), backwards, position(count), fill))

    def store_line(self, array: n.Array, index: Any, value: Expr, backwards: bool = False, count: Any = None) -> None:
        count = None if count is None else position(count)
        self.add(n.StoreLine(array, position(index), value, backwards, count))

    def load_rows(self, target: n.Register, array: n.Array, index: Any, stride: Any, count: Any) -> None:
        """A column of a matrix: positions index, index + stride, ...; the first `count` lanes are rows."""
        self.add(n.LoadRows(target, array, position(index), position(stride), position(count)))

    def store_rows(self, array: n.Array, index: Any, stride: Any, count: Any, value: Expr) -> None:
        self.add(n.StoreRows(array, position(index), position(stride), position(count), value))

    def lane_numbers(self, name: str = "lane") -> n.Register:
        """A new line 0, 1, 2, ..."""
        target = self.register(name)
        self.add(n.LaneNumbers(target))
        return target

    def gather(self, target: n.Register, array: n.Array, places: Any, mask: Any = True, fill: Any = 0) -> None:
        """fill  a number, which lanes hold where `mask` does not hold"""
        self.add(n.Gather(target, array, position(places), as_type(mask, "bool"), as_type(fill, target.dtype)))

    def scatter(self, array: n.Array, places: Any, value: Any, mask: Any = True, adds: bool = False) -> None:
        self.add(n.Scatter(array, position(places), as_type(mask, "bool"), lift(value), adds))

    def barrier(self) -> None:
        self.add(n.Barrier())

    def scan_line(
        self,
        registers: Sequence[n.Register],
        operator: Any,
        sources: Sequence[n.Register] | None = None,
        down: bool = False,
    ) -> None:
        """The inclusive prefixes of lines.

        operator  has `left`, `right` and `values` per component, and `neutral` values
        sources   the lines; None for the registers themselves
        """
        neutral = tuple(Constant(value, register.dtype) for value, register in zip(operator.neutral, registers))
        self.add(
            n.ScanLine(
                tuple(registers),
                tuple(registers if sources is None else sources),
                tuple(operator.left),
                tuple(operator.right),
                tuple(operator.values),
                neutral,
                down,
            )
        )

    def move_up(self, target: n.Register, source: n.Register, fill: n.Register) -> None:
        self.add(n.MoveUp(target, source, fill))

    def last_lane(self, target: n.Register, source: n.Register) -> None:
        self.add(n.LastLane(target, source))

    def hide(self, name: str, value: Any) -> n.Register:
        """A new int64 register with a value that the compiler cannot trace back."""
        target = self.register(name)
        self.add(n.Hide(target, position(value)))
        return target

    def choose(self, name: str, condition: Expr, if_true: n.Register, if_false: n.Register) -> n.Register:
        """A new register with one of two, without a branch."""
        target = self.register(name, if_true.dtype)
        self.add(n.Choose(target, condition, if_true, if_false))
        return target

    def first_lane(self, target: n.Register, source: n.Register) -> None:
        self.add(n.FirstLane(target, source))

    def spread(self, target: n.Register, value: Any) -> None:
        self.add(n.Spread(target, as_type(value, target.dtype)))

    def all_lanes(self, name: str, condition: Expr) -> n.Register:
        target = self.register(name, "bool")
        self.add(n.AllLanes(target, condition))
        return target

    def prefetch(self, array: n.Array, index: Any) -> None:
        self.add(n.Prefetch(array, position(index)))

    def break_(self) -> None:
        self.add(n.Break())

    def continue_(self) -> None:
        self.add(n.Continue())

    def return_(self, *values: Any) -> None:
        self.add(n.Return(tuple(lift(value) for value in values)))

    def call(self, kernel: n.Kernel, arguments: Sequence[Any]) -> None:
        self.add(n.Call(kernel, tuple(x if isinstance(x, n.Array) else lift(x) for x in arguments)))

    # Blocks

    @contextmanager
    def block(self, loops: int = 0) -> Iterator[list[n.Statement]]:
        """What is added inside goes to the list, and not to the kernel."""
        self._blocks.append([])
        self.num_loops += loops
        try:
            yield self._blocks[-1]
        finally:
            self._blocks.pop()
            self.num_loops -= loops

    @contextmanager
    def loop(
        self, name: str, start: Any, stop: Any, down: bool = False, step: int = 1, parallel: bool = False
    ) -> Iterator[n.Register]:
        index = self.register(name)
        with self.block(loops=1) as body:
            yield index
        self.add(n.For(index, position(start), position(stop), tuple(body), down, step, parallel))

    @contextmanager
    def while_(self, condition: Expr) -> Iterator[None]:
        with self.block(loops=1) as body:
            yield
        self.add(n.While(condition, tuple(body)))

    @contextmanager
    def when(self, condition: Expr) -> Iterator[None]:
        with self.block() as body:
            yield
        self.add(n.If(condition, tuple(body)))

    @contextmanager
    def otherwise(self) -> Iterator[None]:
        """The other branch of the `when` just before."""
        before = self._blocks[-1].pop()
        assert isinstance(before, n.If), "`otherwise` follows `when`"
        with self.block() as body:
            yield
        self.add(n.If(before.condition, before.body, tuple(body)))


def as_type(value: Any, dtype: Dtype) -> Expr:
    """A number or expression as an expression of that type."""
    value = lift(value)
    if isinstance(value, Constant):
        return Constant(value.value, dtype)
    return value if value.dtype == dtype else cast(value, dtype)


def position(index: Any) -> Expr:
    return as_type(index, "int64")


def register_dtype(dtype: str) -> Dtype:
    """The type of expressions that an array's scalars are loaded as."""
    if dtype in ("bool", "float32", "float64"):
        return dtype  # type: ignore[return-value]
    return "float32" if dtype.startswith(("float", "bfloat")) else "int64"


def substitute(exprs: Sequence[Expr], values: Mapping[Argument, Expr]) -> tuple[Expr, ...]:
    """The expressions with arguments replaced; those without a value stay."""
    done: dict[Expr, Expr] = {}
    for node in in_order(tuple(exprs)):
        if isinstance(node, Argument):
            done[node] = values.get(node, node)
        elif isinstance(node, Apply):
            done[node] = Apply(node.operation, tuple(done[operand] for operand in node.operands), node.dtype)
        else:
            done[node] = node
    return tuple(done[root] for root in exprs)
