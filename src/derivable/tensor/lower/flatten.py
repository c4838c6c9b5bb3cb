"""SDQLite to the column program: all loops of a program at once, for inputs whose entries are where they are.

A sum makes a frame with a row for each of its rounds, in all rounds of the sums outside. An expression is evaluated in
a frame for all rows together: indices are arrays here and now, numbers are columns that are computed when the program
runs. What an expression does not depend on stays outside: it is evaluated in the outermost frame that has its names. A
loop over an axis of which all is there need not make rows: it can be the lanes of those that are there, so that what
says where things are is as large as the sparse part alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import reduce
from typing import Any

import numpy as np

from derivable.algebra.expr.operations import OPERATIONS
from derivable.algebra.semiring import Semiring
from derivable.core.diagnostics import LimitError, UnsupportedError
from derivable.core.graph import offsets_of, ranges
from derivable.parallel.program import nodes as n
from derivable.parallel.program.graph import Graph
from derivable.parallel.program.nodes import VALUE, Column
from derivable.tensor.language import nodes as t
from derivable.tensor.language.binding import free_variables
from derivable.tensor.language.check import check
from derivable.tensor.language.linearity import conjuncts, guarded_part
from derivable.tensor.language.types import INT, Type
from derivable.tensor.lower.frames import LANE, Bound, Entries, Frame, Names, NeedsRows, Scalar, View
from derivable.tensor.lower.tree import Dense, Tree, levels_of
from derivable.tensor.values.order import distinct

# So many rows a frame may have: each array that says where things are takes 8 bytes for each of them.
MOST_ROWS = 1 << 27


class Flattening:
    """Evaluates expressions in frames.

    semiring  of scalars
    known     (column) -> its numbers now, for conditions that decide where entries are
    """

    def __init__(self, semiring: Semiring, known: Any):
        self.semiring, self.known = semiring, known
        self.root = Frame(1)
        self.graph = Graph()

    # Columns

    def rows(self, rows: np.ndarray) -> Column:
        return self.graph.one(n.Constant, rows, n.Type("int64", len(rows)))

    def take(self, of: Column, rows: np.ndarray | None) -> Column:
        if of.size is None or rows is None:
            return of
        if len(rows) == of.size and (rows == np.arange(len(rows))).all():
            return of
        node = of.node
        if isinstance(node, n.Constant):
            return self.graph.one(n.Constant, node.values[rows], replace(node.type, size=len(rows)))
        if isinstance(node, n.Gather):
            before = node.rows.node
            assert isinstance(before, n.Constant)
            return self.graph.one(n.Gather, node.of, self.rows(before.values[rows]))
        return self.graph.one(n.Gather, of, self.rows(rows))

    def fold(self, of: Column, rows: np.ndarray, count: int) -> Column:
        of = self.rowed(of, len(rows))
        if count == len(rows) and (rows == np.arange(count)).all():
            return of
        return self.graph.one(n.Fold, (of,), self.rows(rows), count)

    def rowed(self, of: Column, count: int, lanes: int | None = None) -> Column:
        """With rows, and lanes, of its own."""
        if of.size is None or (lanes is not None and of.lanes is None):
            one = self.graph.one(n.Constant, self.semiring.one, n.Type(VALUE))
            return self.graph.one(n.Apply, "times", (of, one), count, of.lanes if lanes is None else lanes)
        return of

    def flat(self, of: Column) -> Column:
        return of if of.lanes is None else self.graph.one(n.Reshape, of, _size(of) * of.lanes)

    def applied(self, operation: str, operands: Sequence[Column]) -> Column:
        if operation == "times":
            rest = [x for x in operands if not self._is_one(x)]
            if len(rest) < 2:
                return rest[0] if rest else operands[0]
        size = next((x.size for x in operands if x.size is not None), None)
        lanes = next((x.lanes for x in operands if x.lanes is not None), None)
        return self.graph.one(n.Apply, operation, tuple(operands), size, lanes)

    def _is_one(self, column: Column) -> bool:
        node = column.node
        return isinstance(node, n.Constant) and column.size is None and bool(node.values == self.semiring.one)

    def constant(self, value: Any) -> Column:
        """A number, or an array [row], as a column."""
        array = np.asarray(value)
        values = array if array.ndim else array.item()
        return self.graph.one(n.Constant, values, n.Type(VALUE, len(array) if array.ndim else None))

    @property
    def zero(self) -> Column:
        return self.constant(self.semiring.zero)

    @property
    def one(self) -> Column:
        return self.constant(self.semiring.one)

    def given(self, name: str, size: int | None) -> Column:
        """The values of an input, one after the other; without a size one number."""
        return self.graph.one(n.Given, name, (n.Type(VALUE, size),), False)

    def column(self, scalar: Scalar) -> Column:
        """The values of a scalar, zero where it has none."""
        values = scalar.values if is_column(scalar.values) else self.constant(scalar.values)
        # A sum of nothing is zero.
        if scalar.exists is None or isinstance(values.node, n.Fold) or scalar.exists.all():
            return values
        return self.applied("where", (self.constant(scalar.exists), values, self.zero))

    # Names

    def bound(self, name: str, names: Names, frame: Frame) -> Scalar | View:
        """What a name stands for in each row of a frame inside the one in which it is bound."""
        value = names[name].value
        rows = frame.rows_of(names[name].frame)
        if isinstance(value, View):
            return value if rows is None else replace(value, nodes=value.nodes[rows])
        if value.values is LANE:
            if frame.lanes is None:
                raise AssertionError("a lane outside of its frame")
            return value
        return self._taken(value, rows)

    def _taken(self, value: Scalar, rows: np.ndarray | None) -> Scalar:
        if rows is None:
            return value
        exists = None if value.exists is None else value.exists[rows]
        if is_column(value.values):
            return Scalar(self.take(value.values, rows), exists)
        return Scalar(value.values[rows] if np.ndim(value.values) else value.values, exists)

    def home(self, node: t.Node, names: Names) -> Frame:
        """The outermost frame that has the names of an expression."""
        frames = [names[name].frame for name in free_variables(node)]
        return max(frames, key=lambda frame: frame.depth, default=self.root)

    # Scalars

    def scalar(self, node: t.Node, frame: Frame, names: Names) -> Scalar:
        match node:
            case t.Var():
                found = self.bound(node.name, names, frame)
                return found if isinstance(found, Scalar) else self.nothing(frame)
            case t.Zero():
                return self.nothing(frame)
            case t.Number():
                if isinstance(node.value, float):
                    value = bool(node.value) if self.semiring.carrier == "bool" else node.value
                    return Scalar(self.constant(value))
                return Scalar(node.value)
            case t.One():
                return Scalar(self.one)
        home = self.home(node, names)
        if home is not frame and home.depth < frame.depth:
            return self._taken(self.scalar(node, home, names), frame.rows_of(home))
        if isinstance(node, t.Apply):
            return self._applied(node, frame, names)
        if isinstance(node, t.Let):
            return self.scalar(node.body, frame, {**names, node.name: self.let(node.value, names)})
        if isinstance(node, t.Lookup):
            return self._scalar_at(node, frame, names)
        if isinstance(node, t.Multiply):
            left, right = (self.scalar(part, frame, names) for part in node.children)
            exists = _both(left.exists, right.exists)
            return Scalar(
                self.applied("times", (self.column(Scalar(left.values)), self.column(Scalar(right.values)))), exists
            )
        found = self.entries(node, frame, names)
        if found is None:
            return self.nothing(frame)
        exists = np.zeros(frame.count, bool)
        exists[found.rows] = True
        values = self.fold(found.values, found.rows, frame.count)
        return Scalar(values, None if exists.all() else exists)

    def _scalar_at(self, node: t.Lookup, frame: Frame, names: Names) -> Scalar:
        over = self.view(node.tensor, frame, names)
        if over.tree is None:
            return self.nothing(frame)
        level = over.tree.levels[over.depth]
        if self.scalar(node.key, frame, names).values is LANE:
            if not (isinstance(level, Dense) and level.size == frame.lanes):
                raise NeedsRows
            values = self.laned(over.tree, level.size)
            found = over.nodes
        else:
            found = level.find(over.nodes, self.integers(node.key, frame, names))
            values = over.tree.values
        exists = found >= 0
        if exists.all():
            return Scalar(self.take(values, found))
        if not exists.any():
            return self.nothing(frame)
        return Scalar(self.take(values, np.where(exists, found, 0)), exists)

    def nothing(self, frame: Frame) -> Scalar:
        return Scalar(self.zero, np.zeros(frame.count, bool))

    def laned(self, tree: Tree, lanes: int) -> Column:
        """The values of a tree with those of the last axis as lanes."""
        node = tree.values.node
        if isinstance(node, n.Reshape) and node.of.lanes == lanes:
            return node.of
        return self.graph.one(n.Reshape, tree.values, _size(tree.values) // lanes, lanes)

    def integers(self, node: t.Node, frame: Frame, names: Names) -> np.ndarray:
        """[row] of an index, which has rows of its own."""
        return np.broadcast_to(self.plain(node, frame, names), (frame.count,))

    def plain(self, node: t.Node, frame: Frame, names: Names) -> Any:
        """An index or a condition that is known, for each row or for all."""
        found = self.scalar(node, frame, names).values
        if found is LANE:
            raise NeedsRows
        if is_column(found):
            if found.lanes is not None:
                raise NeedsRows
            found = self.known(found, node)
        return found

    def _applied(self, node: t.Apply, frame: Frame, names: Names) -> Scalar:
        part = guarded_part(node)
        if part is not None and (of := self.type_of(part, names)) is not None and of.order:
            return Scalar(self._nonzero(self._stored(part, frame, names), frame))
        operands = [self.scalar(operand, frame, names) for operand in node.operands]
        if any(operand.values is LANE for operand in operands):
            raise NeedsRows
        row = OPERATIONS[node.operation]
        if all(not is_column(operand.values) for operand in operands):
            given = [np.asarray(operand.values) for operand in operands]
            with np.errstate(all="ignore"):
                if row.rule == "cast":
                    return Scalar(self.constant(given[0].astype(np.float64)))
                return Scalar(row.meaning(*given))
        if row.rule == "cast":
            return Scalar(self.column(operands[0]))
        chosen = row.rule == "where" and not any(is_column(operand.values) for operand in operands[1:])
        if chosen:
            # An index that a condition on reals decides.
            given = [self.plain(operand, frame, names) for operand in node.operands]
            return Scalar(np.where(*given))
        return Scalar(self.applied(node.operation, [self.column(operand) for operand in operands]))

    # Tensors

    def let(self, node: t.Node, names: Names) -> Bound:
        """What a name for an expression stands for."""
        home, of = self.home(node, names), self.type_of(node, names)
        if of is None or not of.is_scalar:
            return Bound(home, self.view(node, home, names), of)
        return Bound(home, self.scalar(node, home, names), of)

    def type_of(self, node: t.Node, names: Names) -> Type | None:
        return check(node, {name: bound.type for name, bound in names.items()})

    def view(self, node: t.Node, frame: Frame, names: Names) -> View:
        """A tensor whose entries are looked up or run over."""
        match node:
            case t.Var():
                found = self.bound(node.name, names, frame)
                assert isinstance(found, View)
                return found
            case t.Lookup():
                over = self.view(node.tensor, frame, names)
                if over.tree is None:
                    return over
                keys = self.integers(node.key, frame, names)
                return View(over.tree, over.depth + 1, over.tree.levels[over.depth].find(over.nodes, keys))
            case t.Let():
                return self.view(node.body, frame, {**names, node.name: self.let(node.value, names)})
            case t.If() if not any(map(guarded_part, conjuncts(node.condition))):
                over = self.view(node.body, frame, names)
                return replace(over, nodes=np.where(self.plain(node.condition, frame, names), over.nodes, -1))
        home = self.home(node, names)
        if home.lanes is not None:
            raise NeedsRows
        over = self.collected(self.entries(node, home, names), home)
        rows = frame.rows_of(home)
        return over if rows is None else replace(over, nodes=over.nodes[rows])

    def collected(self, found: Entries | None, frame: Frame) -> View:
        """The tensors of a frame, each entry once."""
        if found is None:
            return View(None, 0, np.full(frame.count, -1))
        (rows, *keys), places = distinct([found.rows, *found.keys])
        values = self.rowed(found.values, len(found.rows), found.lanes)
        values = values if places is None else self.fold(values, places, len(rows))
        levels = levels_of(frame.count, rows, keys)
        if found.lanes is not None:
            # Rows without entries have no lanes either.
            if not keys:
                held = np.full(frame.count, -1)
                held[rows] = np.arange(len(rows))
                return View(Tree((Dense(found.lanes),), self.flat(values)), 0, held)
            levels.append(Dense(found.lanes))
        return View(Tree(tuple(levels), self.flat(values)), 0, np.arange(frame.count))

    def entries(self, node: t.Node, frame: Frame, names: Names) -> Entries | None:
        """The entries of an expression for each row of a frame; None if it has none at all."""
        match node:
            case t.Zero():
                return None
            case t.Singleton():
                return self._singleton(node, frame, names)
            case t.If():
                return self._chosen(node, frame, names)
            case t.Let():
                return self.entries(node.body, frame, {**names, node.name: self.let(node.value, names)})
            case t.Add():
                return self.joined([self.entries(part, frame, names) for part in node.children], frame)
        of = self.type_of(node, names)
        if isinstance(node, t.Sum):
            return self._sum(node, frame, names)
        if of is None or of.is_scalar:
            return self._one_each(node, frame, names)
        if isinstance(node, t.Multiply):
            return self._product(node, frame, names)
        return self.entries_of(self.view(node, frame, names), frame)

    def entries_of(self, over: View, frame: Frame) -> Entries | None:
        """All entries below the nodes of a view."""
        keys: list[np.ndarray] = []
        rows, nodes = np.flatnonzero(over.nodes >= 0), over.nodes[over.nodes >= 0]
        if over.tree is None or not len(rows):
            return None
        *levels, last = over.tree.levels[over.depth :]
        has_lanes = isinstance(last, Dense) and frame.lanes is None
        for level in levels if has_lanes else [*levels, last]:
            above, nodes = self.below(level, nodes)
            rows, keys = rows[above], [key[above] for key in keys]
            keys.append(level.keys(nodes))
        if not len(rows):
            return None
        if isinstance(last, Dense) and has_lanes:
            values = self.take(self.laned(over.tree, last.size), nodes)
            return Entries(rows, tuple(keys), values, last.size)
        return Entries(rows, tuple(keys), self.take(over.tree.values, nodes))

    def below(self, level: Any, nodes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(place among `nodes`, node of the level) of all nodes below some. Raises LimitError if they are too many."""
        counts = level.counts(nodes)
        return self.repeated(counts), ranges(level.starts(nodes), counts)

    def repeated(self, counts: np.ndarray) -> np.ndarray:
        total = int(counts.sum())
        if total > MOST_ROWS:
            raise LimitError(
                f"the gathers of the program have {total:,} rows, {8 * total / 1e9:.1f} GB for each array of places, "
                f"and {MOST_ROWS:,} are allowed",
                hint="the kernels of the CPU keep no such arrays; or sum up in another order",
            )
        return np.repeat(np.arange(len(counts)), counts)

    def _singleton(self, node: t.Singleton, frame: Frame, names: Names) -> Entries | None:
        key = self.scalar(node.key, frame, names).values
        found = self.entries(node.value, frame, names)
        if found is None:
            return None
        if key is LANE:
            if found.order:
                raise NeedsRows
            return replace(found, values=self.rowed(found.values, len(found.rows), frame.lanes), lanes=frame.lanes)
        keys = self.integers(node.key, frame, names)
        return replace(found, keys=(keys[found.rows], *found.keys))

    def _chosen(self, node: t.If, frame: Frame, names: Names) -> Entries | None:
        guards, others = [], []
        for term in conjuncts(node.condition):
            part = guarded_part(term)
            if part is None:
                others.append(term)
            else:
                guards.append(part)
        condition = reduce(np.logical_and, [self.plain(term, frame, names) for term in others], True)
        if not np.ndim(condition):
            return self._guarded(guards, node.body, frame, names) if condition else None
        return self._in_rows(np.flatnonzero(condition), guards, node.body, frame, names)

    # Guards: what they leave out becomes zero, so that where entries are does not depend on values.

    def _in_rows(
        self, rows: np.ndarray, parts: list[t.Node], body: t.Node, frame: Frame, names: Names
    ) -> Entries | None:
        return self.outside(self._guarded(parts, body, inner := frame.inside(rows), names), inner)

    def _guarded(self, parts: list[t.Node], body: t.Node, frame: Frame, names: Names) -> Entries | None:
        """The entries of an expression for the rows where the parts have entries, zero where one of those is."""
        if not parts:
            return self.entries(body, frame, names)
        (part, *rest), of = parts, self.type_of(parts[0], names)
        if of is None:
            return None
        if of.order:
            value = self._stored(part, frame, names)
            exists = np.zeros(frame.count, bool)
            if value is not None:
                exists[value.rows] = True
        else:
            value = self.scalar(part, frame, names)
            exists = value.exists
        if exists is not None and not exists.all():
            return self._in_rows(np.flatnonzero(exists), parts, body, frame, names) if exists.any() else None
        mask = self._nonzero(value, frame)
        if isinstance(part, t.Var):
            # Functions and their derivatives may have no value at zero.
            names = {**names, part.name: Bound(frame, self._without_zeros(value, mask, frame), of)}
        found = self._guarded(rest, body, frame, names)
        if found is None:
            return None
        values = self.applied("where", (self.take(mask, found.rows), found.values, self.zero))
        return replace(found, values=values)

    def _stored(self, node: t.Node, frame: Frame, names: Names) -> Entries | None:
        """The entries of a tensor in each row."""
        if frame.lanes is not None:
            raise NeedsRows
        return self.entries_of(self.view(node, frame, names), frame)

    def _nonzero(self, value: Scalar | Entries | None, frame: Frame) -> Column:
        """Whether a number, or an entry of a tensor, is not zero in each row."""
        if isinstance(value, Scalar):
            return self.applied("not_equal", (self.column(value), self.zero))
        if value is None:
            return self.constant(np.zeros(frame.count, bool))
        found = self.rowed(value.values, len(value.rows), value.lanes)
        found = self.applied("where", (self.applied("not_equal", (found, self.zero)), self.one, self.zero))
        if found.lanes is not None:
            found = self.graph.one(n.FoldLanes, found)
        return self.applied("not_equal", (self.fold(found, value.rows, frame.count), self.zero))

    def _without_zeros(self, value: Scalar | Entries | None, mask: Column, frame: Frame) -> Scalar | View:
        """The same with ones in rows where the mask does not hold."""
        if isinstance(value, Scalar):
            return Scalar(self.applied("where", (mask, self.column(value), self.one)), value.exists)
        if value is not None:
            values = self.applied("where", (self.take(mask, value.rows), value.values, self.one))
            value = replace(value, values=values)
        return self.collected(value, frame)

    def outside(self, found: Entries | None, inner: Frame) -> Entries | None:
        """The entries of a frame as those of its parent."""
        if found is None or inner.rows is None:
            return found
        return replace(found, rows=inner.rows[found.rows])

    def joined(self, parts: Sequence[Entries | None], frame: Frame) -> Entries | None:
        given = [part for part in parts if part is not None]
        if len(given) < 2:
            return given[0] if given else None
        if any(part.lanes != given[0].lanes for part in given):
            if frame.lanes is not None:
                raise NeedsRows
            given = [self.spread(part) for part in given]
        lanes = given[0].lanes
        rows = np.concatenate([part.rows for part in given])
        keys = tuple(np.concatenate(each) for each in zip(*(part.keys for part in given)))
        # Numbers in lanes may be sums that are still to be taken over them.
        widths = {part.values.lanes for part in given}
        wide = next((width for width in widths if width is not None), None)
        columns = tuple(self.rowed(part.values, len(part.rows), wide) for part in given)
        return Entries(rows, keys, self.graph.one(n.Concatenate, columns), lanes)

    def spread(self, found: Entries) -> Entries:
        """With a row for each lane."""
        if found.lanes is None:
            return found
        count, lanes = len(found.rows), found.lanes
        keys = (*(np.repeat(key, lanes) for key in found.keys), np.tile(np.arange(lanes), count))
        values = self.flat(self.rowed(found.values, count, lanes))
        return Entries(np.repeat(found.rows, lanes), keys, values)

    def _product(self, node: t.Multiply, frame: Frame, names: Names) -> Entries | None:
        left, right = (self._factor(part, frame, names) for part in node.children)
        if left is None or right is None:
            return None
        if left.order and right.order:
            if frame.lanes is not None:
                raise NeedsRows
            # What is added up before has fewer products.
            left, right = (self.entries_of(self.collected(part, frame), frame) for part in (left, right))
            assert left is not None
            assert right is not None
            left = self.spread(left)
        # Each entry of the left factor meets those of the right one in its row.
        order = np.argsort(right.rows, kind="stable")
        counts = np.bincount(right.rows, minlength=frame.count)
        mine = counts[left.rows]
        first = self.repeated(mine)
        second = order[ranges(offsets_of(counts)[left.rows], mine)]
        values = self.applied("times", (self.take(left.values, first), self.take(right.values, second)))
        keys = (*(key[first] for key in left.keys), *(key[second] for key in right.keys))
        lanes = left.lanes if left.lanes is not None else right.lanes
        return Entries(left.rows[first], keys, values, lanes) if len(first) else None

    def _factor(self, node: t.Node, frame: Frame, names: Names) -> Entries | None:
        of = self.type_of(node, names)
        return self.entries(node, frame, names) if of is None or of.order else self._one_each(node, frame, names)

    def _one_each(self, node: t.Node, frame: Frame, names: Names) -> Entries | None:
        """The value of a scalar in each row where it has one."""
        found = self.scalar(node, frame, names)
        rows = np.arange(frame.count) if found.exists is None else np.flatnonzero(found.exists)
        values = self.take(self.column(Scalar(found.values)), None if found.exists is None else rows)
        return Entries(rows, (), values) if len(rows) else None

    def _sum(self, node: t.Sum, frame: Frame, names: Names) -> Entries | None:
        if isinstance(node.range, t.Range):
            start, stop = (self.integers(part, frame, names) for part in node.range.children)
            counts = np.maximum(stop - start, 0)
            rows = self.repeated(counts)
            numbers = ranges(start, counts)
            return self._rounds(node, frame.inside(rows), names, numbers - start[rows], Scalar(numbers), INT)
        if isinstance(node.range, t.SubArray):
            raise UnsupportedError(
                "a program over the arrays of a storage format has no gathers",
                hint="give the logical program: its inputs are tensors",
                span=node.span,
            )
        over = self.view(node.range, frame, names)
        if over.tree is None or not (over.nodes >= 0).any():
            return None
        of = self.type_of(node.range, names)
        level, tree = over.tree.levels[over.depth], over.tree
        is_last = over.depth + 1 == len(tree.levels)
        if is_last and isinstance(level, Dense) and frame.lanes is None:
            try:
                return self._in_lanes(node, frame, names, over, level.size)
            except NeedsRows:
                pass
        held = np.flatnonzero(over.nodes >= 0)
        above, nodes = self.below(level, over.nodes[held])
        inner = frame.inside(held[above])
        value = Scalar(self.take(tree.values, nodes)) if is_last else View(tree, over.depth + 1, nodes)
        return self._rounds(node, inner, names, level.keys(nodes), value, of and of.inner)

    def _rounds(
        self, node: t.Sum, inner: Frame, names: Names, keys: Any, value: Scalar | View, of: Type | None
    ) -> Entries | None:
        """The entries of the body of a sum in the frame of its rounds, as those of the frame outside."""
        if not inner.count:
            return None
        known = {**names, node.key: Bound(inner, Scalar(keys), INT), node.value: Bound(inner, value, of)}
        return self.outside(self.entries(node.body, inner, known), inner)

    def _in_lanes(self, node: t.Sum, frame: Frame, names: Names, over: View, lanes: int) -> Entries | None:
        """A sum over the entries of dense vectors, a lane for each."""
        assert over.tree is not None
        held = np.flatnonzero(over.nodes >= 0)
        inner = frame.inside(None if len(held) == frame.count else held, lanes)
        values = self.take(self.laned(over.tree, lanes), over.nodes[held])
        of = self.type_of(node.range, names)
        found = self._rounds(node, inner, names, LANE, Scalar(values), of and of.inner)
        if found is None or found.lanes is not None:
            return found
        # What has no index of a lane is summed up over all of them.
        laned = self.rowed(found.values, len(found.rows), lanes)
        return replace(found, values=self.graph.one(n.FoldLanes, laned))


def is_column(value: Any) -> bool:
    return isinstance(value, Column)


def _size(column: Column) -> int:
    """The number of rows, which is known before anything runs."""
    assert isinstance(column.size, int)
    return column.size


def _both(left: np.ndarray | None, right: np.ndarray | None) -> np.ndarray | None:
    return right if left is None else left if right is None else left & right
