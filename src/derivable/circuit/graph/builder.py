"""Building circuits: every node is looked up by its kind and children before it is made (hash-consing)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from derivable.circuit.graph.circuit import Circuit
from derivable.circuit.kernels import hashcons
from derivable.core.and_or import AND, FALSE, LITERAL, OR, TRUE
from derivable.core.arguments import integer, is_integer
from derivable.core.diagnostics import DomainError, LayoutError, ShapeError
from derivable.core.locks import OwnLock
from derivable.device.cpu.pages import empty_pages, zero_pages
from derivable.device.cpu.threads import chunk_bounds, run_chunks

_LARGEST = 2**31 - 1
_WORTH_A_THREAD = 100_000  # nodes
_DEEP = 10_000  # heights


class CircuitBuilder:
    """A growing circuit in which equal nodes are one node.

    A node is an id; 0 is false and 1 is true. The builder propagates constants and counts a repeated child
    once. A conjunction or disjunction of one child is that child, one of no children is a constant, and
    `x and -x` is false. Nothing else is simplified: `x or -x` stays, since the weights of the two need not
    add up to one, and so does a longer conjunction that contains both.

    Expected time and memory are linear in nodes plus edges (paper 000, theorem 1); nothing recurses. Threads may share
    a builder: one at a time inserts, the others wait.

    >>> b = CircuitBuilder()
    >>> both = b.conjunction([b.literal(1), b.literal(-2)])
    >>> both == b.conjunction([b.literal(-2), b.literal(1)])
    True
    >>> b.build([both])
    Circuit(3 nodes, 2 edges, 2 levels, 2 variables, 1 roots)
    """

    def __init__(self, capacity: int = 64):
        """`capacity`: nodes to expect; the arrays grow by themselves."""
        capacity = max(integer(capacity, "capacity"), 64)
        self._kind = empty_pages(capacity, np.uint8)
        self._literal = empty_pages(capacity, np.int32)
        self._info = empty_pages(2 * capacity, np.int32)
        self._offsets = empty_pages(capacity + 1, np.int64)
        self._children = empty_pages(2 * capacity, np.int32)
        self._table = zero_pages(_table_size(capacity), np.uint64)
        for node in (FALSE, TRUE):
            self._kind[node] = node
            self._literal[node] = self._offsets[node] = 0
        self._info[:4] = 0
        self._offsets[2] = 0
        self._counts = np.array([2, 0, 0], np.int64)
        self._one = (np.zeros(1, np.uint8), np.zeros(1, np.int32), np.zeros(2, np.int64), np.zeros(1, np.int32))
        self._lock = OwnLock()

    def __repr__(self) -> str:
        return f"CircuitBuilder({self.num_nodes} nodes, {self.num_edges} edges)"

    @property
    def num_nodes(self) -> int:
        """Distinct nodes so far, the two constants included."""
        return int(self._counts[0])

    @property
    def num_edges(self) -> int:
        return int(self._counts[1])

    def false(self) -> int:
        return FALSE

    def true(self) -> int:
        return TRUE

    def literal(self, literal: int) -> int:
        """The node of a signed variable (DIMACS: 3 is variable 3, -3 its negation). Raises LayoutError for 0."""
        if not is_integer(literal) or literal == 0 or abs(literal) > _LARGEST:
            raise LayoutError(
                f"{literal!r} is not a literal",
                hint="literals are signed variables, counted from 1: 3 is variable 3, -3 its negation",
            )
        return self._insert_one(LITERAL, literal, np.empty(0, np.int32))

    def conjunction(self, ids: Iterable[int]) -> int:
        """The node that is true if all of `ids` are; of no ids it is true."""
        return self._insert_one(AND, 0, ids)

    def disjunction(self, ids: Iterable[int]) -> int:
        """The node that is true if one of `ids` is; of no ids it is false."""
        return self._insert_one(OR, 0, ids)

    def _insert_one(self, kind: int, literal: int, ids: Iterable[int]) -> int:
        if not isinstance(ids, np.ndarray):
            if not isinstance(ids, Iterable):
                raise ShapeError(f"children must be node ids, got {ids!r}")
            ids = list(ids)
            ids = np.array(ids, np.int64 if all(map(is_integer, ids)) else object)
        children = _as_int32(ids, "child", 0, self.num_nodes - 1)
        with self._lock:
            new_kind, new_literal, new_offsets, out = self._one
            new_kind[0] = kind
            new_literal[0] = literal
            new_offsets[1] = len(children)
            self._reserve(1, len(children))
            self._insert(new_kind, new_literal, new_offsets, children, True, out)
            return int(out[0])

    def add_nodes(self, kind, literal, offsets, children) -> np.ndarray:
        """Insert many nodes, children before parents; the bulk path.

        kind      [node] 0..4: false, true, literal, and, or
        literal   [node] signed variable of a literal, ignored elsewhere
        offsets   [node + 1] non-decreasing; node n's children are children[offsets[n]:offsets[n + 1]]
        children  [edge] positions in these same arrays, each before its parent's
        returns   [node] int64 ids; equal nodes, and nodes equal to earlier ones, share an id

        Raises LayoutError for a node out of order, a dangling child, a literal 0 or offsets that do not
        fit, with the first bad position. Law: inserting the same arrays again returns the same ids.
        """
        return self._add(kind, literal, offsets, children).astype(np.int64)

    def add_gates(self, kind: int, offsets: np.ndarray, children: np.ndarray) -> np.ndarray:
        """Insert many conjunctions or disjunctions of nodes that there are; their ids [node] int32.

        kind      AND or OR, of all of them
        offsets   [node + 1] int64: node n's children are children[offsets[n]:offsets[n + 1]]
        children  [edge] int32 ids
        """
        count = len(offsets) - 1
        ids = np.empty(count, np.int32)
        kinds, literals = np.full(count, kind, np.uint8), np.zeros(count, np.int32)
        with self._lock:
            self._reserve(count, len(children))
            self._insert(kinds, literals, offsets, np.ascontiguousarray(children, np.int32), True, ids)
        return ids

    def add(self, circuit: Circuit, true_lits: Iterable[int] = (), false_lits: Iterable[int] = ()) -> np.ndarray:
        """Insert the nodes of a circuit, whose variables keep their numbers; the ids of its roots, [root] int64.

        true_lits, false_lits  literals that become true and false on the way, as in klaycircuits. The other literal
                               of a variable stays: to condition on variable 1, give true_lits=[1], false_lits=[-1]

        Law: building from the ids of one circuit gives that circuit, and one of several has all their roots.
        Raises DomainError for what is no circuit.
        """
        if not isinstance(circuit, Circuit):
            raise DomainError(
                f"circuit is a {type(circuit).__name__}, expected a circuit",
                hint="of a file, derivable.circuit.load(path) makes one",
            )
        made = (np.array([*literals], np.int64) for literals in (true_lits, false_lits))
        kind = circuit.kind
        for constant, literals in zip((TRUE, FALSE), made):
            kind = np.where((circuit.kind == LITERAL) & np.isin(circuit.literal, literals), constant, kind)
        return self.add_nodes(kind.astype(np.uint8), *circuit.arrays[1:4])[circuit.roots]

    def _add(self, kind, literal, offsets, children) -> np.ndarray:
        kind = np.ascontiguousarray(kind)
        if kind.ndim != 1:
            raise ShapeError(f"kind must be one-dimensional, got shape {kind.shape}")
        count = len(kind)
        if kind.dtype != np.uint8:
            _check_range(kind, "kind", 0, 4)
            kind = kind.astype(np.uint8)
        literal = _as_int32(literal, "literal", -_LARGEST, _LARGEST)
        offsets = np.ascontiguousarray(offsets, np.int64)
        children = _as_int32(children, "child", 0, count - 1)
        if len(literal) != count or len(offsets) != count + 1:
            raise ShapeError(
                f"{count} kinds need {count} literals and {count + 1} offsets, got {len(literal)} and {len(offsets)}"
            )
        if count and (offsets[0] != 0 or offsets[-1] != len(children)):
            raise LayoutError(f"offsets run from {offsets[0]} to {offsets[-1]}, not from 0 to {len(children)} edges")
        ids = np.empty(count, np.int32)
        with self._lock:
            self._reserve(count, len(children))
            self._insert(kind, literal, offsets, children, False, ids)
        return ids

    def _insert(self, kind, literal, offsets, children, absolute: bool, ids) -> None:
        code, node, child = hashcons.insert_nodes(
            kind, literal, offsets, children, absolute,
            self._kind, self._literal, self._info, self._offsets, self._children, self._table, self._counts, ids,
        )  # fmt: skip
        if code == hashcons.OK:
            return
        if code == hashcons.BAD_KIND:
            raise LayoutError(f"node {node} has kind {kind[node]}; kinds are 0 to 4")
        if code == hashcons.BAD_LITERAL:
            raise LayoutError(f"node {node} is literal 0", hint="literals are signed variables, counted from 1")
        if code == hashcons.BAD_OFFSETS:
            raise LayoutError(f"the offsets of node {node} are not monotone: {offsets[node]}, {offsets[node + 1]}")
        if absolute:
            raise LayoutError(f"child {child} is not a node: there are {self.num_nodes} nodes")
        raise LayoutError(
            f"node {node} of {len(kind)} has child {child}, which does not come before it",
            hint="put children before parents",
        )

    def _add_decompositions(self, letters, names, numbers, elements, ids, line: int, first: int) -> tuple[int, int]:
        """Insert lines of an SDD file, arrays as `parse_bytes.parse_lines` writes them; there is room for their nodes.

        line, first  how many of the lines and elements have been inserted before
        ids          [file id] int32, the node of each line; -1 where there is none yet
        returns      line and first after these lines; `elements` is overwritten

        Law: the same nodes as `add_nodes` makes from an AND for each element and an OR for each decomposition.
        """
        while True:
            line, first = hashcons.insert_decompositions(
                letters, names, numbers, elements, line, first, ids,
                self._kind, self._literal, self._info, self._offsets, self._children, self._table, self._counts,
            )  # fmt: skip
            if line == len(letters):
                return line, first
            self._grow_table(max(self.num_nodes + int(numbers[line]) + 1, 2 * self.num_nodes))

    def reserve(self, nodes: int, edges: int) -> None:
        """Make room for that many more nodes and edges at once; what is not used takes no memory but for its table."""
        with self._lock:
            self._reserve(min(nodes, _LARGEST - self.num_nodes), edges)

    def _reserve(self, nodes: int, edges: int, expected: int | None = None) -> None:
        """Make room for that many more nodes and edges, in the table only for `expected` nodes."""
        need = self.num_nodes + nodes
        if need > len(self._kind):
            if need > _LARGEST:
                raise LayoutError(f"{need} nodes are too many: ids are 32 bits wide")
            size = max(need, 2 * len(self._kind))
            for name in ("_kind", "_literal"):
                setattr(self, name, _grown(getattr(self, name), size, self.num_nodes))
            self._info = _grown(self._info, 2 * size, 2 * self.num_nodes)
            self._offsets = _grown(self._offsets, size + 1, self.num_nodes + 1)
        self._grow_table(need if expected is None else self.num_nodes + expected)
        need = self.num_edges + edges
        if need > len(self._children):
            self._children = _grown(self._children, max(need, 2 * len(self._children)), self.num_edges)

    def _grow_table(self, nodes: int) -> None:
        if _table_size(nodes) > len(self._table):
            table = zero_pages(_table_size(nodes), np.uint64)
            hashcons.move_table(self._table, table)
            self._table = table

    def build(
        self,
        roots: Sequence[int] | np.ndarray,
        num_variables: int | None = None,
        weights: tuple[np.ndarray, np.ndarray] | None = None,
        origin: str = "",
    ) -> Circuit:
        """The circuit of the nodes below `roots`, by height, then kind (false, true, literal, and, or).

        roots          [root] ids, in the order of the outputs; repeats are kept
        num_variables  None: the greatest variable below the roots
        weights        (positive, negative), each [variable]
        origin         see `Circuit`

        The builder can be used further. Raises LayoutError for an unknown root or a variable above
        `num_variables`, ShapeError for weights of another length.
        """
        roots = _as_ids(roots)
        if num_variables is not None:
            num_variables = integer(num_variables, "num_variables", 0)
        with self._lock:
            return self._built(roots, num_variables, weights, origin)

    def _built(self, roots: np.ndarray, num_variables: int | None, weights: Any, origin: str) -> Circuit:
        count = self.num_nodes
        for root in roots[(roots < 0) | (roots >= count)][:1]:
            raise LayoutError(f"root {root} is not a node: there are {count} nodes")
        top = int(self._info[2 * roots].max(initial=0))
        # Each chunk has a row of buckets of its own, so a deep circuit is not cut.
        cuts = np.array(chunk_bounds(count, _WORTH_A_THREAD if top < _DEEP else count))
        reached = zero_pages(count, np.uint8)
        node_starts, edge_starts = hashcons.mark_reachable(
            self._kind, self._info, self._offsets, self._children, cuts, roots, top, reached
        )
        starts = node_starts[:, 0].copy()
        nodes, edges = int(starts[-1]), int(edge_starts[-1, 0])
        level_offsets = np.concatenate([starts[: nodes > 0], starts[3::2]])
        position = empty_pages(count, np.int32)
        first, last = int(starts[LITERAL]), int(starts[LITERAL + 1])
        leaves = ((self._kind[:count] == LITERAL) & reached.view(np.bool_)).nonzero()[0]
        numbers = self._literal[leaves].astype(np.int64)
        position[leaves[np.argsort(2 * np.abs(numbers) + (numbers < 0))]] = np.arange(first, last)
        greatest = int(np.abs(numbers).max(initial=0))
        kind, literal = empty_pages(nodes, np.uint8), empty_pages(nodes, np.int32)
        offsets, children = empty_pages(nodes + 1, np.int64), empty_pages(edges, np.int32)
        chunks = len(cuts) - 1
        run_chunks(
            hashcons.number_nodes, chunks, 1, cuts, self._kind, self._literal, self._info, self._offsets, reached,
            node_starts, edge_starts, position, kind, literal, offsets,
        )  # fmt: skip
        offsets[nodes] = edges
        run_chunks(
            hashcons.move_children, chunks, 1, cuts, self._offsets, self._children, reached, position, offsets, children
        )
        for node in (offsets[1:] - offsets[:-1] > hashcons.SHORT).nonzero()[0]:
            children[offsets[node] : offsets[node + 1]].sort()
        if num_variables is None:
            num_variables = greatest
        elif greatest > num_variables:
            raise LayoutError(
                f"the circuit mentions variable {greatest}, but num_variables is {num_variables}",
                hint=f"pass num_variables={greatest} or more",
            )
        if weights is not None:
            weights = (np.asarray(weights[0], np.float64), np.asarray(weights[1], np.float64))
            for array in weights:
                if array.shape != (num_variables,):
                    raise ShapeError(f"weights have shape {array.shape}, the circuit has {num_variables} variables")
        return Circuit(
            kind=kind,
            literal=literal,
            offsets=offsets,
            children=children,
            level_offsets=level_offsets,
            roots=position[roots].astype(np.int64),
            num_variables=int(num_variables),
            weights=weights,
            origin=origin,
        )


def circuit_from_arrays(
    kind, literal, offsets, children, roots, num_variables: int | None, weights=None, origin: str = ""
) -> Circuit:
    """Hash-cons, propagate constants, drop what is unreachable and sort by height, in one call.

    kind, literal, offsets, children as in `CircuitBuilder.add_nodes`; roots [root] positions in them.
    Law: rebuilding a circuit from its own arrays gives the same arrays.
    """
    builder = CircuitBuilder(len(kind) + 2)
    ids = builder._add(kind, literal, offsets, children)
    roots = np.asarray(roots, np.int64).reshape(-1)
    for root in roots[(roots < 0) | (roots >= len(ids))][:1]:
        raise LayoutError(f"root {root} is not a node: there are {len(ids)} nodes")
    return builder.build(ids[roots], num_variables, weights, origin)


def _table_size(nodes: int) -> int:
    """Words of a table that `nodes` entries of two words fill at most by two thirds."""
    return 1 << max(7, int(3 * nodes).bit_length())


def _grown(array: np.ndarray, size: int, used: int) -> np.ndarray:
    larger = empty_pages(size, array.dtype.type)
    larger[:used] = array[:used]
    return larger


def _check_range(array: np.ndarray, what: str, low: int, high: int) -> None:
    if array.dtype.kind not in "iu" and array.size:
        raise ShapeError(f"{what} must be integers, got dtype {array.dtype}")
    if array.size and (array.min() < low or array.max() > high):
        bad = int(np.flatnonzero((array < low) | (array > high))[0])
        raise LayoutError(f"{what} {array[bad]} at position {bad} is not in {low} to {high}")


def _as_ids(roots) -> np.ndarray:
    try:
        ids = np.ascontiguousarray(roots)
    except ValueError:
        ids = np.array([None])
    if ids.size and ids.dtype.kind not in "iu":
        raise LayoutError(
            f"roots must be node ids, got {roots!r}",
            hint="literal, conjunction and disjunction return them: build([id])",
        )
    return ids.astype(np.int64).reshape(-1)


def _as_int32(values, what: str, low: int, high: int) -> np.ndarray:
    """A contiguous int32 copy or view; the range is checked before anything can wrap around."""
    array = np.ascontiguousarray(values)
    if array.ndim != 1:
        raise ShapeError(f"{what} array must be one-dimensional, got shape {array.shape}")
    if array.dtype != np.int32:
        _check_range(array, what, low, high)
        array = array.astype(np.int32)
    return array
