"""And-or graphs with cycles in a semiring whose plus takes the better of two values, as an engine.

Without it a component of n tuples is unrolled n rounds. A graph with cycles is small, and its fixpoint is reached when
no value gets better, after as many rounds as the best derivations have steps.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from derivable.algebra import semirings
from derivable.algebra.semiring import Semiring
from derivable.bridge.protocol import Adjoints, Arrays, Engine, Functions, Shape
from derivable.circuit.fold.engine import GraphFold
from derivable.circuit.graph.and_or_graph import AndOrGraph, plain
from derivable.circuit.kernels.and_or import components, grouped
from derivable.circuit.kernels.fixpoint import ADD, MAX, MIN, MUL, best_adjoints, best_values
from derivable.core.diagnostics import DomainError
from derivable.device.cpu.memory import contiguous, empty, zeros

_TIMES = {"mul": MUL, "add": ADD, "min": MIN, "max": MAX}
# Bytes of values that are kept for the vjp. Beyond, the vjp computes them again, in parts of this size.
_MOST_KEPT = 1 << 28


def has_best_derivations(ring: Semiring, has_negations: bool) -> bool:
    """Whether values of the semiring on a graph with cycles are those of `FixpointFold`."""
    if not (ring.is_scalar and ring.carrier == "float" and ring.selective_plus and ring.distributive):
        return False
    if ring.saturated is not None or ring.discard is not None or not ring.differentiable:
        return False
    typed = ring.typed()
    if typed.plus.special not in ("min", "max") or typed.times.special not in _TIMES:
        return False
    return not has_negations or ring.complement is semirings.godel.complement


class _Components:
    """A graph with its components side by side, those of children first.

    parts     [component + 1] where the nodes of each begin
    owner     [edge] the parent
    up_edges  the edges in which a node is a child within its component, from up_offsets [node + 1]
    """

    def __init__(self, graph: AndOrGraph):
        children = graph.children.astype(np.int64)
        graph = AndOrGraph(graph.kind, graph.literal, graph.offsets, children, graph.roots)
        graph = graph.kept(children != graph.parents)
        component, count = components(graph.offsets, graph.children)
        order = np.argsort(component, kind="stable")
        self.graph, component = graph.taken(order), component[order]
        self.parts, self.owner = np.searchsorted(component, np.arange(count + 1)), self.graph.parents
        children = self.graph.children
        inner = np.flatnonzero((children >= 0) & (component[plain(children)] == component[self.owner]))
        self.up_offsets, by_child = grouped(children[inner], self.graph.num_nodes)
        self.up_edges = inner[by_child]


class FixpointFold(Engine):
    """A graph with cycles in such a semiring: weights [*batch, variable] to values [*batch, root].

    The gradient is that of one best derivation of each root. On other devices, and for derivatives of higher order, the
    graph is unrolled.
    """

    leaves = 1
    float_leaves = (0,)

    def __init__(self, graph: AndOrGraph, unrolled: Callable[[], AndOrGraph], ring: Semiring, precision: str):
        """unrolled  makes a graph without cycles that has the same values"""
        self.graph, self._unrolled, self.ring, self.precision = graph, unrolled, ring, precision
        typed = ring.typed(precision)
        self.times, self.sign = _TIMES[str(typed.times.special)], 1 if typed.plus.special == "max" else -1
        self.zero, self.one = typed.zero[0], typed.one[0]

    @cached_property
    def components(self) -> _Components:
        return _Components(self.graph)

    def __str__(self) -> str:
        return f"the fixpoint of {self.graph.num_nodes} nodes in the semiring {self.ring.name!r}"

    @cached_property
    def key(self) -> str:
        content = hashlib.sha256(b"".join(part.tobytes() for part in self.graph.arrays)).hexdigest()
        return f"{content} {[len(part) for part in self.graph.arrays]} {self.ring.name} {self.precision}"

    @cached_property
    def acyclic(self) -> GraphFold:
        """The same on any device, and of any order."""
        return GraphFold(self._unrolled(), self.ring, False, self.precision)

    @property
    def dual(self) -> Engine:
        return self.acyclic.dual

    def elsewhere(self, library: str) -> Functions:
        return self.acyclic.elsewhere(library)

    def apply_on_device(self, structure: Any, operands: Sequence[Any], keep: bool) -> tuple[list, list]:
        return self.acyclic.apply_on_device(structure, operands, keep)

    def result_shapes(self, structure_shape: Shape | None, shapes: Sequence[Shape]) -> list[Shape]:
        return [(*shapes[0][:-1], len(self.graph.roots))]

    def apply(self, structure: Any, operands: Arrays) -> list[np.ndarray]:
        rows = self._rows(operands[0])
        found = empty((len(rows), len(self.graph.roots)), rows.dtype)
        for start in range(0, len(rows), self._rows_at_once):
            some = slice(start, start + self._rows_at_once)
            found[some] = self._roots(self._solved(rows[some], start)[0])
        return [found.reshape(*operands[0].shape[:-1], -1)]

    def apply_keeping(self, structure: Any, operands: Arrays, *, whole: bool = False) -> tuple[list, list]:
        rows = self._rows(operands[0])
        if whole or len(rows) > self._rows_at_once:
            return self.apply(structure, operands), []
        values, chosen = self._solved(rows, 0)
        return [self._roots(values).reshape(*operands[0].shape[:-1], -1)], [values, chosen]

    def pull(self, structure: Any, adjoints: Adjoints, operands: Arrays, results: Arrays, kept: Arrays = ()) -> list:
        rows, (seeds,) = self._rows(operands[0]), adjoints
        gradient = zeros(rows.shape, rows.dtype)
        if seeds is None:
            return [gradient.reshape(operands[0].shape)]
        seeds = contiguous(seeds).reshape(len(rows), len(self.graph.roots))
        graph, size = self.components.graph, self.graph.num_nodes
        scratch = np.zeros(size, rows.dtype), np.empty((2, size), np.int64), np.full(size, -1, np.int64)
        for start in range(0, len(rows), self._rows_at_once):
            some = slice(start, start + self._rows_at_once)
            values, chosen = kept or self._solved(rows[some], start)
            best_adjoints(
                *(graph.kind, graph.literal, graph.offsets, graph.children, self.times, rows.dtype.type(self.one)),
                *(values, chosen, graph.roots, seeds[some], gradient[some], *scratch),
            )
        return [gradient.reshape(operands[0].shape)]

    def _rows(self, weights: np.ndarray) -> np.ndarray:
        return contiguous(weights).reshape(math.prod(weights.shape[:-1]), weights.shape[-1])

    @cached_property
    def _rows_at_once(self) -> int:
        return max(1, _MOST_KEPT // (16 * max(1, self.graph.num_nodes)))

    def _solved(self, rows: np.ndarray, start: int) -> tuple[np.ndarray, np.ndarray]:
        """(values, chosen children) [row, node]. Raises DomainError for a row without fixpoint; `start` is the number
        of the first."""
        parts, shape = self.components, (len(rows), self.graph.num_nodes)
        graph = parts.graph
        values, chosen, number = empty(shape, rows.dtype), empty(shape, np.int64), rows.dtype.type
        failed = best_values(
            *(graph.kind, graph.literal, graph.offsets, graph.children, parts.owner, parts.parts),
            *(parts.up_offsets, parts.up_edges, self.times, self.sign, number(self.zero), number(self.one)),
            *(rows, values, chosen, np.empty(shape[1], np.int64), np.zeros(shape[1], np.bool_)),
        )
        if failed >= 0:
            raise DomainError(
                f"row {start + failed} has no best derivation: a cycle of tuples makes its values better for ever",
                hint=f"in {self.ring.name!r} a cycle must not be better than {self.ring.one!r}: give probabilities, or "
                "costs from 0 on",
            )
        return values, chosen

    def _roots(self, values: np.ndarray) -> np.ndarray:
        roots = self.components.graph.roots
        found = values[:, plain(roots)]
        return np.where(roots < 0, values.dtype.type(self.one) - found, found)
