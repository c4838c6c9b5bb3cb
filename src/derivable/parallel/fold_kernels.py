"""What the kernels of all folds are made of: elements in arrays and registers, the operator, its vjp, columns.

A leaf is a flat array: scalar c of the element at (row, column) is at `(row * width + column) * size + c`. Components
of elements are held in registers by their number. With `widen` in a schedule, registers of float32 leaves hold float64.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import numpy as np

from derivable.algebra import expr
from derivable.algebra.expr.functions import less
from derivable.algebra.expr.nodes import Apply, Argument, Constant, Expr, arguments_of, in_order
from derivable.algebra.typed import Adjoints, TypedMonoid
from derivable.kernel import nodes as n
from derivable.kernel.build import Builder, substitute
from derivable.kernel.schedule import Schedule

Registers = dict[int, n.Register]
Values = Mapping[int, Expr]
Arrays = dict[int, n.Array]


COMPARISONS = {"less", "less_equal", "equal", "not_equal"}
EXTREMA = {"minimum", "maximum"}
SELECTIONS = {*EXTREMA, "where", "logical_not", "logical_and", "logical_or", "logical_xor", *COMPARISONS}
_COMMUTATIVE = {*EXTREMA, "add", "multiply", "logical_and", "logical_or", "logical_xor", "equal", "not_equal"}


class Needs:
    """What an operator's vjp reads.

    prefixes  [component] whether the adjoints depend on the left operand's component
    rights    [component] the same of the right operand
    additive  whether a fold's adjoint is only spread: both operands' adjoints do not depend on the left operand, and
              that of the left operand is the result's
    """

    def __init__(self, op: TypedMonoid):
        rules = op.adjoints
        floats = op.float_components
        read = set(arguments_of([rules.left[k] for k in floats] + [rules.right[k] for k in floats]))
        self.prefixes = tuple(argument in read for argument in op.left)
        self.rights = tuple(argument in read for argument in op.right)
        self.additive = not any(self.prefixes) and all(rules.left[k] is rules.arguments[k] for k in floats)

    def prefix_leaves(self, op: TypedMonoid) -> tuple[int, ...]:
        return tuple(
            leaf for leaf, (start, stop) in enumerate(zip(op.starts, op.starts[1:])) if any(self.prefixes[start:stop])
        )


_needs: weakref.WeakKeyDictionary[TypedMonoid, Needs] = weakref.WeakKeyDictionary()
_widened: weakref.WeakKeyDictionary[TypedMonoid, TypedMonoid] = weakref.WeakKeyDictionary()


def needs(op: TypedMonoid) -> Needs:
    if op not in _needs:
        _needs[op] = Needs(op)
    return _needs[op]


def widened(op: TypedMonoid) -> TypedMonoid:
    """The operator with float64 wherever it has float32."""
    if "float32" not in op.leaf_dtypes:
        return op
    if op not in _widened:
        arguments = {a: _wide(a) for a in (*op.left, *op.right)}
        own = op.own_adjoints
        if own is not None:
            parts = (tuple(_wide(a) for a in own.arguments), *(_retyped(side) for side in (own.left, own.right)))
            own = Adjoints(parts[0], *(expr.simplify(part) for part in parts[1:]))
        _widened[op] = TypedMonoid(
            f"wide {op.name}",
            tuple("float64" if dtype == "float32" else dtype for dtype in op.leaf_dtypes),
            op.leaf_sizes,
            tuple(arguments[a] for a in op.left),
            tuple(arguments[a] for a in op.right),
            expr.simplify(_retyped(op.values)),
            tuple(np.float64(value) if dtype == "float32" else value for value, dtype in zip(op.neutral, op.dtypes)),
            op.commutative,
            own,
            op.skips_zeros,
        )
    return _widened[op]


def _wide(argument: Argument) -> Argument:
    return Argument(argument.index, "float64", argument.name) if argument.dtype == "float32" else argument


def _retyped(exprs: Sequence[Expr]) -> tuple[Expr, ...]:
    done: dict[Expr, Expr] = {}
    for node in in_order(tuple(exprs)):
        dtype = "float64" if node.dtype == "float32" else node.dtype
        if isinstance(node, Argument):
            done[node] = _wide(node)
        elif isinstance(node, Constant):
            done[node] = Constant(node.value, dtype)
        else:
            assert isinstance(node, Apply)
            done[node] = Apply(node.operation, tuple(done[operand] for operand in node.operands), dtype)
    return tuple(done[root] for root in exprs)


class FoldBuilder(Builder):
    """A kernel of one operator.

    op      the operator on registers
    stored  the operator on the arrays' types
    """

    def __init__(self, name: str, op: TypedMonoid, schedule: Schedule, single: bool):
        super().__init__(name, schedule.lanes if schedule.lanes > 1 else 8)
        self.stored = op
        self.op = widened(op) if schedule.widen else op
        self.schedule = schedule
        self.single = single
        self.all = tuple(range(op.size))
        self.floats = op.float_components
        self.leaves = tuple(range(len(op.leaf_sizes)))
        # What the vjp reads of the left and of the right operand.
        self.prefixes, self.rights = self.select(needs(self.op).prefixes), self.select(needs(self.op).rights)
        self._place = [(leaf, k - op.starts[leaf]) for leaf in self.leaves for k in range(*op.starts[leaf : leaf + 2])]

    def select(self, flags: Sequence[bool]) -> tuple[int, ...]:
        return tuple(k for k in self.all if flags[k])

    def leaf_of(self, component: int) -> int:
        return self._place[component][0]

    def leaf_arrays(self, role: str, leaves: Iterable[int] | None = None) -> Arrays:
        """Parameters: one array per leaf."""
        leaves = self.leaves if leaves is None else leaves
        return {leaf: self.array(f"{role}{leaf}", self.stored.leaf_dtypes[leaf]) for leaf in leaves}

    def place(self, row: Expr, component: int) -> Expr:
        leaf, offset = self._place[component]
        size = self.op.leaf_sizes[leaf]
        return row if size == 1 else row * size + offset

    def named(self, name: str, components: Iterable[int] | None = None) -> Registers:
        """New registers for components of an element."""
        components = self.all if components is None else components
        return {k: self.register(f"{name}{k}", self.op.dtypes[k]) for k in components}

    def read(self, arrays: Arrays, row: Expr, name: str, components: Iterable[int] | None = None) -> Registers:
        found = self.named(name, components)
        self.read_into(found, arrays, row)
        return found

    def read_into(self, registers: Registers, arrays: Arrays, row: Expr) -> None:
        for k, register in registers.items():
            self.load_into(register, arrays[self.leaf_of(k)], self.place(row, k))

    def write(self, arrays: Arrays, row: Expr, values: Values) -> None:
        for k, value in values.items():
            self.store(arrays[self.leaf_of(k)], self.place(row, k), value)

    def assign(self, targets: Registers, values: Values) -> None:
        """All at once: a value may read another target's old one."""
        self.set([targets[k] for k in values], list(values.values()))

    def computed(self, name: str, values: Values) -> Registers:
        """New registers with the values, computed together."""
        found = {k: self.register(f"{name}{k}", value.dtype) for k, value in values.items()}
        self.assign(found, values)
        return found

    def folded(self, left: Values, right: Values, components: Iterable[int] | None = None) -> dict[int, Expr]:
        """Components of left op right."""
        components = tuple(self.all if components is None else components)
        values = [self.op.values[k] for k in components]
        return dict(zip(components, self.with_operands(values, left, right)))

    def with_operands(self, values: Sequence[Expr], left: Values, right: Values) -> tuple[Expr, ...]:
        """Expressions of the operator's arguments with those replaced."""
        given = {self.op.left[k]: value for k, value in left.items()}
        given.update((self.op.right[k], value) for k, value in right.items())
        return substitute(values, given)

    def pulled(self, left: Values, right: Values, adjoints: Values) -> tuple[dict[int, Expr], dict[int, Expr]]:
        """(adjoints of the left operand, of the right one), of float components."""
        rules = self.op.adjoints
        given = {rules.arguments[k]: value for k, value in adjoints.items()}
        exprs = [rules.left[k] for k in self.floats] + [rules.right[k] for k in self.floats]
        exprs = self.with_operands(substitute(exprs, given), left, right)
        count = len(self.floats)
        return dict(zip(self.floats, exprs[:count])), dict(zip(self.floats, exprs[count:]))

    def stepped_back(self, a: Values, b: Values, u: Values | None, r: Registers) -> Registers:
        """The adjoint of b; `r`, that of a op b, becomes that of a, with what comes to it from elsewhere, `u`."""
        left, right = self.pulled(a, b, r)
        made = self.named("t", self.floats)
        totals = [left[k] if u is None else _sum_from(u[k], left[k]) for k in left]
        self.set([*made.values(), *(r[k] for k in left)], [*right.values(), *totals])
        return made

    # What is carried from row to row: of a single column in registers, of several in a row of arrays

    def carried(
        self, registers: Registers, arrays: Arrays, row: Expr, name: str, components: Iterable[int] | None = None
    ) -> Registers:
        return registers if self.single else self.read(arrays, row, name, components)

    def carry(self, registers: Registers, values: Values) -> Registers:
        """The values, to be carried on."""
        if not self.single:
            return self.computed("r", values)
        self.assign(registers, values)
        return registers

    def keep(self, arrays: Arrays, row: Expr, registers: Registers) -> None:
        if not self.single:
            self.write(arrays, row, registers)

    def neutral(self) -> dict[int, Expr]:
        return {k: Constant(self.op.neutral[k], self.op.dtypes[k]) for k in self.all}

    def zeros(self) -> dict[int, Expr]:
        return {k: Constant(0, self.op.dtypes[k]) for k in self.floats}

    def bounds(self) -> tuple[n.Register, n.Register, n.Register, n.Register, n.Register]:
        """The parameters that most kernels begin with: start, stop (rows or segments), first, last (columns), width."""
        start, stop, first, last, width = (self.scalar(name) for name in ("start", "stop", "first", "last", "width"))
        self._columns = first, last, width
        return start, stop, first, last, width

    @contextmanager
    def columns(self, *rows: Expr, down: bool = False) -> Iterator[list[Expr]]:
        """A loop over the columns, with the positions of the columns' elements in these rows.

        down  where the rows go backwards too: memory is then read in one direction, as prefetching wants it
        """
        if self.single:
            yield list(rows)
            return
        first, last, width = self._columns
        before = [self.hide("line", row * width) if down else row * width for row in rows]
        with self.loop("j", first, last, down) as column:
            yield [self.let("p", line + column) for line in before]


def _sum_from(first: Expr, rest: Expr) -> Expr:
    """first + rest, term by term: each is added in one instruction with its product, while the next row waits."""
    if isinstance(rest, Apply) and rest.operation == "add":
        term, last = rest.operands
        return _sum_from(first, term) + last
    return first + rest


def operations_of(value: Expr) -> set[str]:
    return {node.operation for node in in_order(value) if isinstance(node, Apply)}


def only_selects(op: TypedMonoid) -> bool:
    """Whether an operator's results are its operands' components, so that no type rounds them."""
    return not any(rounds(value) for value in op.values)


def rounds(value: Expr) -> bool:
    """Whether it computes, and not only chooses among what is given."""
    return not operations_of(value) <= SELECTIONS


def factors(op: TypedMonoid) -> set[int]:
    """The components of the right operand that the left one is multiplied by."""
    found: set[Argument] = set()
    stack = [entry for row in op.jacobian("left") for entry in row]
    while stack:
        node = stack.pop()
        if isinstance(node, Argument):
            found.add(node)
        elif isinstance(node, Apply) and node.operation not in COMPARISONS:
            stack += node.operands
    return {c for c in op.float_components if op.right[c] in found}


def commutes(op: TypedMonoid) -> bool:
    """Whether the expressions say that operands may change places."""
    swapped = substitute(op.values, {**dict(zip(op.left, op.right)), **dict(zip(op.right, op.left))})
    return _sorted(op.values) == _sorted(swapped)


def _sorted(exprs: Sequence[Expr]) -> tuple[Expr, ...]:
    """With the operands of commutative operations in one order; equal expressions are one object."""
    done: dict[Expr, Expr] = {}
    for node in in_order(tuple(exprs)):
        done[node] = node
        if isinstance(node, Apply):
            operands = [done[operand] for operand in node.operands]
            if node.operation in _COMMUTATIVE:
                operands.sort(key=id)
            done[node] = Apply(node.operation, tuple(operands), node.dtype)
    return tuple(done[root] for root in exprs)


def is_finite(x: Expr, stored: str) -> Expr:
    return less(abs(x), 2.0**127 if stored == "float32" else float("inf"))
