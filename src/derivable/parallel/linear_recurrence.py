"""The reverse of a scan as a scan, for devices that combine segments in a tree.

With y[i] = y[i-1] op a[i] and adjoints y_adj, the adjoint of everything that y[i] flows into is

    r[i] = y_adj[i] + C[i] r[i+1],    C[i] = (d(y[i] op a[i+1]) / d y[i]) transposed

and the adjoint of a[i] is the right vjp of `op` at (y[i-1], a[i]; r[i]). Two associative operators compute r by a scan
with reverse=True:

`recurrence_of`     on pairs (d, C): (d1, C1) op (d2, C2) = (d2 + C2 d1, C2 C1), where 1 came before in scan order, so
                    stands at larger indices. This is lin_o of the thesis, generalised: an entry of C has state only
                    if it can be anything but 0, or but 1 on the diagonal, in some product of Jacobians, so C falls into
                    blocks, the connected components of its pattern, of any sizes and in any order; and entries that
                    start equal up to sign and stay so share their state, so equal blocks (products of matrices) cost
                    one, and products of complex numbers keep one complex number.
`jacobian_free_of`  on triples (y, v, r) of a segment: its first result, the fold of the values that come after each
                    result, and the adjoint of its first result. (y1, v1, r1) op (y2, v2, r2) =
                    (y2, v2 op v1, r2 + left vjp of op at (y2, v2; r1)). Its state grows linearly with an element.

Sources: Bruun and others, thesis on derivatives of reduce-by-index and scan, chapter 7 (lin_o, ZeroQuad, MatrixMul);
the triples are Futhark's of 2025. Equal entries are found as a minimal automaton is, by refining a partition.

The first form is the chain rule itself, whatever `op` does. The second needs `op` to be associative, and where it has
corners, it may take another side of a tie for each i, so that the adjoints of different elements do not fit together.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from derivable.algebra import expr
from derivable.algebra.expr.nodes import Apply, Argument, Constant, Expr, in_order
from derivable.algebra.expr.types import FLOATS, Dtype, promote
from derivable.parallel.typed_operator import TypedOperator

Form = Literal["blocks", "free"]
# An entry of C: the number of its state, which it is or is minus, or the constant that it always is.
Entry = tuple[Literal["state", "minus", "constant"], int]
_ZERO: Entry = ("constant", 0)
_PRINTED = {"state": "c{}", "minus": "-c{}", "constant": "{}"}


@dataclass(frozen=True)
class Cost:
    """What one combination costs on a device that keeps segments in registers.

    state       scalars of a segment, each of which is passed on between lanes
    operations  of the combination, with `WEIGHTS` for those that are not one instruction
    """

    state: int
    operations: int

    @property
    def total(self) -> int:
        # A scalar is shuffled, selected and, between warps, stored and loaded.
        return 4 * self.state + self.operations


WEIGHTS = {
    "divide": 4,
    "power": 16,
    "logaddexp": 16,
    "log1mexp": 16,
    "exp": 8,
    "expm1": 8,
    "log": 8,
    "log1p": 8,
    "sqrt": 4,
    "sin": 8,
    "cos": 8,
    "tanh": 8,
    "sigmoid": 8,
    "floor_divide": 8,
    "remainder": 8,
}
CORNERS = {"minimum", "maximum", "where", "abs", "sign", "floor", "ceil", "floor_divide", "remainder", "cast"}


def cost_of(op: TypedOperator) -> Cost:
    """What one `a op b` costs, shared subexpressions once."""
    applied = [node.operation for node in in_order(op.values) if isinstance(node, Apply)]
    return Cost(op.size, sum(WEIGHTS.get(name, 1) for name in applied))


@dataclass(frozen=True, eq=False)
class Recurrence:
    """The operator on (adjoints, Jacobian entries) of an operator `op`. Printed form of that of 2x2 products:

        recurrence of real product: 4 adjoints, 4 entries, 28 operations
          block {0, 1}: [[c0, c1], [c2, c3]]
          block {2, 3}: [[c0, c1], [c2, c3]]
          (c0, c1, c2, c3) = (b_0, b_1, b_2, b_3)

    operator    scalar leaves: one adjoint per component in `components`, then one per entry. Scanned with reverse=True,
                results' first leaves are r. Its neutral element is (0, identity)
    components  the float components of `op`, in order
    entries     [entry] the expressions in op.left and op.right that an element starts with, at left = results[i] and
                right = values[i + 1]; at the last i any finite number does. An entry may start as a constant and
                become something else in products
    matrix      [component of the operand][component of the result] of C, counted within `components`
    blocks      the connected components of C's pattern, each in order, counted like `components` of `op`
    """

    name: str
    operator: TypedOperator
    components: tuple[int, ...]
    entries: tuple[Expr, ...]
    matrix: tuple[tuple[Entry, ...], ...]
    blocks: tuple[tuple[int, ...], ...]

    def __str__(self) -> str:
        counts = f"{len(self.components)} adjoints, {len(self.entries)} entries, {self.cost.operations} operations"
        lines = [f"recurrence of {self.name}: {counts}"]
        for block in self.blocks:
            places = [self.components.index(k) for k in block]
            rows = [[self.matrix[i][j] for j in places] for i in places]
            shown = [", ".join(_PRINTED[kind].format(n) for kind, n in row) for row in rows]
            lines.append(f"  block {{{', '.join(map(str, block))}}}: [{', '.join(f'[{row}]' for row in shown)}]")
        if self.entries:
            *shared, last = expr.to_text(self.entries).split("\n")
            names = ", ".join(f"c{n}" for n in range(len(self.entries)))
            lines += [f"  {line}" for line in shared]
            lines.append(f"  ({names}{',' * (len(self.entries) == 1)}) = {last}")
        return "\n".join(lines)

    @property
    def cost(self) -> Cost:
        return cost_of(self.operator)


def recurrence_of(op: TypedOperator) -> Recurrence:
    """The linear recurrence that a scan of `op` has as its reverse. See the module; computed once per operator."""
    found = _recurrences.get(op)
    if found is None:
        found = _recurrences[op] = _recurrence(op)
    return found


def jacobian_free_of(op: TypedOperator) -> TypedOperator:
    """The operator on triples (y, v, r) of an associative `op`. See the module; computed once per operator.

    Its leaves are those of `op` for y, again for v, and the float leaves for r. Element i of the scan with reverse=True
    is (results[i], values[i + 1], adjoint of results[i]), and the last leaves of its results are r. At the last i,
    v is the neutral element of `op`, or anything finite.

    Its neutral element is one only on the left, that is before the first in scan order: enough to pad the end of the
    arrays and for exclusive scans.
    """
    found = _triples.get(op)
    if found is None:
        found = _triples[op] = _jacobian_free(op)
    return found


def choose_form(op: TypedOperator) -> Form:
    """ "blocks" or "free": which of the two operators is cheaper to combine.

    Jacobians with blocks larger than about 2x2 are dearer than triples, unless the blocks are equal. Operators with
    corners (`minimum`, `where`, ...) take blocks at any price: ties go to the smallest index on every device.
    """
    if any(isinstance(node, Apply) and node.operation in CORNERS for node in in_order(op.values)):
        return "blocks"
    return "free" if cost_of(jacobian_free_of(op)).total < recurrence_of(op).cost.total else "blocks"


_recurrences: weakref.WeakKeyDictionary[TypedOperator, Recurrence] = weakref.WeakKeyDictionary()
_triples: weakref.WeakKeyDictionary[TypedOperator, TypedOperator] = weakref.WeakKeyDictionary()


def _recurrence(op: TypedOperator) -> Recurrence:
    components = op.float_components
    jacobian = op.jacobian("left")
    starts = [[jacobian[row][column] for row in components] for column in components]
    blocks = _blocks(starts)
    dtypes: list[Dtype] = [op.dtypes[k] for k in components]
    block_dtypes: dict[int, Dtype] = {i: promote(dtypes[j] for j in block) for block in blocks for i in block}
    matrix, representatives = _entries(starts, blocks, block_dtypes)
    entries = tuple(_as(starts[i][j], block_dtypes[i]) for i, j in representatives)

    size, count = len(components), len(entries)
    kinds: tuple[Dtype, ...] = (*dtypes, *(entry.dtype for entry in entries))
    names = (*(f"d{i}" for i in range(size)), *(f"c{n}" for n in range(count)))
    left = tuple(Argument(k, kinds[k], f"a_{names[k]}") for k in range(size + count))
    right = tuple(Argument(size + count + k, kinds[k], f"b_{names[k]}") for k in range(size + count))

    def entry(operand: Sequence[Argument], i: int, j: int) -> Expr:
        kind, number = matrix[i][j]
        return Constant(number, block_dtypes[i]) if kind == "constant" else operand[size + number]

    def plus(total: Any, sign: int, term: Expr) -> Expr:
        return total - term if sign < 0 else total + term

    def sign(i: int, j: int) -> int:
        return -1 if matrix[i][j][0] == "minus" else 1

    values = []
    for i in range(size):
        total: Any = right[i]
        for block in blocks:
            for j in block if i in block else ():
                total = plus(total, sign(i, j), _as(entry(right, i, j) * left[j], dtypes[i]))
        values.append(total)
    for i, j in representatives:
        (block,) = (block for block in blocks if i in block)
        total = Constant(0, block_dtypes[i])
        for k in block:
            total = plus(total, sign(i, k) * sign(k, j), entry(right, i, k) * entry(left, k, j))
        values.append(total)
    identity = tuple(np.dtype(block_dtypes[i]).type(i == j) for i, j in representatives)
    operator = TypedOperator(
        name=f"recurrence of {op.name}",
        leaf_dtypes=kinds,
        leaf_sizes=(1,) * len(kinds),
        left=left,
        right=right,
        values=expr.simplify(values),
        neutral=(*(np.dtype(dtype).type(0) for dtype in dtypes), *identity),
    )
    shown = tuple(tuple(components[i] for i in block) for block in blocks)
    return Recurrence(op.name, operator, components, entries, matrix, shown)


def _is_constant(start: Expr, value: float) -> bool:
    return isinstance(start, Constant) and start.value == value


def _as(value: Expr, dtype: Dtype) -> Expr:
    return expr.simplify(expr.cast(value, dtype))


def _blocks(starts: list[list[Expr]]) -> tuple[tuple[int, ...], ...]:
    group = list(range(len(starts)))
    for i, row in enumerate(starts):
        for j, start in enumerate(row):
            if not _is_constant(start, 0):
                here, there = group[i], group[j]
                group = [min(here, there) if g in (here, there) else g for g in group]
    return tuple(tuple(i for i, g in enumerate(group) if g == name) for name in sorted(set(group)))


def _entries(
    starts: list[list[Expr]], blocks: Sequence[Sequence[int]], dtypes: dict[int, Dtype]
) -> tuple[tuple[tuple[Entry, ...], ...], list[tuple[int, int]]]:
    """What each entry of C is, and for each state the first entry that has it."""
    inside = [(i, j, block) for block in blocks for i in block for j in block]
    # Suppose that every constant lasts, and take back what some product refutes.
    constants: dict[tuple[int, int], int] = {}
    for i, j, _ in inside:
        if _is_constant(starts[i][j], 0) or (i == j and _is_constant(starts[i][j], 1)):
            constants[i, j] = 1 if _is_constant(starts[i][j], 1) else 0
    refuted = True
    while refuted:
        refuted = False
        for i, j, block in inside:
            if (i, j) in constants:
                terms = [(i, k, j) for k in block if constants.get((i, k)) != 0 and constants.get((k, j)) != 0]
                lasts = not terms if constants[i, j] == 0 else terms == [(i, i, i)]
                if not lasts:
                    del constants[i, j]
                    refuted = True

    # Suppose that entries that start equal, up to sign, stay so, and split those whose products differ.
    places = [(i, j, block) for i, j, block in inside if (i, j) not in constants]
    kinds: dict[Any, int] = {}
    number: dict[tuple[int, int], int] = {}
    sign = dict.fromkeys(constants, 1)
    for i, j, _ in places:
        # The diagonal apart, and without signs: the neutral element is 1 there.
        key = (i == j, dtypes[i], starts[i][j])
        opposite = (i == j, dtypes[i], expr.simplify(-starts[i][j]))
        sign[i, j] = -1 if i != j and key not in kinds and opposite in kinds else 1
        number[i, j] = kinds.setdefault(key if sign[i, j] == 1 else opposite, len(kinds))
    while True:
        splits: dict[Any, int] = {}
        refined = {}
        for i, j, block in places:
            terms = sorted(
                (sign[i, j] * sign[i, k] * sign[k, j], number.get((i, k), -1), number.get((k, j), -1))
                for k in block
                if constants.get((i, k)) != 0 and constants.get((k, j)) != 0
            )
            refined[i, j] = splits.setdefault((number[i, j], tuple(terms)), len(splits))
        number = refined
        if len(splits) == len(kinds):
            break
        kinds = splits
    representatives: dict[int, tuple[int, int]] = {}
    for i, j, _ in places:
        representatives.setdefault(number[i, j], (i, j))
    size = len(starts)

    def entry(i: int, j: int) -> Entry:
        if (i, j) not in number:
            return "constant", constants.get((i, j), 0)
        same = sign[i, j] == sign[representatives[number[i, j]]]
        return "state" if same else "minus", number[i, j]

    matrix = tuple(tuple(entry(i, j) for j in range(size)) for i in range(size))
    return matrix, [representatives[n] for n in range(len(representatives))]


def _jacobian_free(op: TypedOperator) -> TypedOperator:
    floats = op.float_components
    kinds: tuple[Dtype, ...] = (*op.dtypes, *op.dtypes, *(op.dtypes[k] for k in floats))
    size, count = op.size, 2 * op.size + len(floats)
    names = [f"{part}{k}" for part in "yv" for k in range(size)] + [f"r{k}" for k in floats]
    left = tuple(Argument(k, kinds[k], f"a_{names[k]}") for k in range(count))
    right = tuple(Argument(count + k, kinds[k], f"b_{names[k]}") for k in range(count))
    y, v, r = right[:size], right[size : 2 * size], right[2 * size :]
    later_v, later_r = left[size : 2 * size], left[2 * size :]
    combined = _substitute(op.values, {**dict(zip(op.left, v)), **dict(zip(op.right, later_v))})
    adjoints = {**dict(zip(op.left, y)), **dict(zip(op.right, v))}
    adjoints.update((op.adjoints.arguments[k], later_r[position]) for position, k in enumerate(floats))
    pulled = _substitute([op.adjoints.left[k] for k in floats], adjoints)
    leaves = tuple(leaf for leaf, dtype in enumerate(op.leaf_dtypes) if dtype in FLOATS)
    return TypedOperator(
        name=f"triples of {op.name}",
        leaf_dtypes=(*op.leaf_dtypes, *op.leaf_dtypes, *(op.leaf_dtypes[leaf] for leaf in leaves)),
        leaf_sizes=(*op.leaf_sizes, *op.leaf_sizes, *(op.leaf_sizes[leaf] for leaf in leaves)),
        left=left,
        right=right,
        values=expr.simplify((*y, *combined, *(mine + term for mine, term in zip(r, pulled)))),
        neutral=(*op.neutral, *op.neutral, *(np.dtype(op.dtypes[k]).type(0) for k in floats)),
        commutative=False,
    )


def _substitute(exprs: Sequence[Expr], replacements: dict[Argument, Argument]) -> tuple[Expr, ...]:
    done: dict[Expr, Expr] = {}
    for node in in_order(exprs):
        if isinstance(node, Argument):
            done[node] = replacements[node]
        elif isinstance(node, Apply):
            done[node] = Apply(node.operation, tuple(done[operand] for operand in node.operands), node.dtype)
        else:
            done[node] = node
    return tuple(done[value] for value in exprs)
