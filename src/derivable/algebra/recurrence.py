"""The reverse of a scan as a scan, for devices that combine segments in a tree.

With y[i] = y[i-1] op a[i] and adjoints y_adj, the adjoint of everything that y[i] flows into is

    r[i] = y_adj[i] + C[i] r[i+1],    C[i] = (d(y[i] op a[i+1]) / d y[i]) transposed

and the adjoint of a[i] is the right vjp of `op` at (y[i-1], a[i]; r[i]). A scan with reverse=True computes r, of the
associative operator on pairs (d, C): (d1, C1) op (d2, C2) = (d2 + C2 d1, C2 C1), where 1 came before in scan order, so
stands at larger indices. This is lin_o of the thesis, generalised: an entry of C has state only if it can be anything
but 0, or but 1 on the diagonal, in some product of Jacobians, so C falls into blocks, the connected components of its
pattern, of any sizes and in any order; and entries that start equal up to sign and stay so share their state, so equal
blocks (products of matrices) cost one, and products of complex numbers keep one complex number.

Sources: Bruun and others, thesis on derivatives of reduce-by-index and scan, chapter 7 (lin_o, ZeroQuad, MatrixMul).
Equal entries are found as a minimal automaton is, by refining a partition.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from derivable.algebra import expr
from derivable.algebra.expr.nodes import Argument, Constant, Expr
from derivable.algebra.expr.types import Dtype, promote
from derivable.algebra.typed import TypedMonoid

# An entry of C: the number of its state, which it is or is minus, or the constant that it always is.
Entry = tuple[Literal["state", "minus", "constant"], int]
_PRINTED = {"state": "c{}", "minus": "-c{}", "constant": "{}"}


@dataclass(frozen=True, eq=False)
class Recurrence:
    """The operator on (adjoints, Jacobian entries) of an operator `op`. Printed form of that of 2x2 products:

        recurrence of real product: 4 adjoints, 4 entries
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
    operator: TypedMonoid
    components: tuple[int, ...]
    entries: tuple[Expr, ...]
    matrix: tuple[tuple[Entry, ...], ...]
    blocks: tuple[tuple[int, ...], ...]

    def __str__(self) -> str:
        lines = [f"recurrence of {self.name}: {len(self.components)} adjoints, {len(self.entries)} entries"]
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


def recurrence_of(op: TypedMonoid) -> Recurrence:
    """The linear recurrence that a scan of `op` has as its reverse. See the module; computed once per operator."""
    found = _recurrences.get(op)
    if found is None:
        found = _recurrences[op] = _recurrence(op)
    return found


_recurrences: weakref.WeakKeyDictionary[TypedMonoid, Recurrence] = weakref.WeakKeyDictionary()


def _recurrence(op: TypedMonoid) -> Recurrence:
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

    def applied(factor: Expr, to: Expr) -> Expr:
        if isinstance(factor, Constant) or not op.skips_zeros:
            return factor * to
        return expr.where(expr.equal(to, 0), Constant(0, to.dtype), factor * to)

    def sign(i: int, j: int) -> int:
        return -1 if matrix[i][j][0] == "minus" else 1

    values = []
    for i in range(size):
        total: Any = right[i]
        for block in blocks:
            for j in block if i in block else ():
                total = plus(total, sign(i, j), _as(applied(entry(right, i, j), left[j]), dtypes[i]))
        values.append(total)
    for i, j in representatives:
        (block,) = (block for block in blocks if i in block)
        total = Constant(0, block_dtypes[i])
        for k in block:
            total = plus(total, sign(i, k) * sign(k, j), applied(entry(right, i, k), entry(left, k, j)))
        values.append(total)
    identity = tuple(np.dtype(block_dtypes[i]).type(i == j) for i, j in representatives)
    operator = TypedMonoid(
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
