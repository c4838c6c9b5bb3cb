"""The levels of a circuit as a record, in this library's flat form and in the paper's layered form."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from derivable.circuit.graph.circuit import Circuit
from derivable.core.and_or import AND, FALSE, LITERAL, OR, TRUE
from derivable.core.diagnostics import LayoutError, ShapeError
from derivable.core.graph import offsets_of

if TYPE_CHECKING:
    from derivable.algebra.semiring import Semiring

_SYMBOLS = ("false", "true", "literal", "*", "+")


@dataclass(frozen=True, eq=False)
class Layer:
    """Nodes that can be computed at the same time.

    kind      [node] uint8; TRUE and FALSE and LITERAL in layer 0, AND and OR above
    literal   [node] int32, 0 above layer 0
    offsets   [node + 1] int64
    children  [edge] int64: flat form: node ids of the circuit; layered form: positions in the layer below
    node      [node] int64: the circuit node whose value this is (-1: a constant that the circuit does not have)
    """

    kind: np.ndarray
    literal: np.ndarray
    offsets: np.ndarray
    children: np.ndarray
    node: np.ndarray

    @property
    def num_nodes(self) -> int:
        return len(self.kind)

    @property
    def num_edges(self) -> int:
        return len(self.children)


@dataclass(frozen=True, eq=False)
class Layers:
    """A circuit by layers. Printed form, one row per node, `position kind children`:

        layer 0
          0 literal 1
          1 literal 2
        layer 1
          2 * 0 1
        roots 2

    In the flat form (`unary_chains` false) layers are the circuit's levels, a node may read any lower
    layer, and its position is its id. In the paper's form (section 3.1) a node reads the layer just
    below only: chains of unary nodes hand values on, and-nodes are in odd and or-nodes in even layers,
    both constants are in layer 0, and the last layer has one unary node per root. Both compute the same.
    """

    circuit: Circuit
    unary_chains: bool
    num_nodes: int
    num_edges: int
    num_layers: int

    def __repr__(self) -> str:
        form = "layered" if self.unary_chains else "flat"
        return f"Layers({form}, {self.num_nodes} nodes, {self.num_edges} edges, {self.num_layers} layers)"

    @cached_property
    def layers(self) -> tuple[Layer, ...]:
        """Layer 0 are the inputs. Made when asked for: the paper's form can be far larger than the circuit."""
        return _layered(self.circuit) if self.unary_chains else _flat(self.circuit)

    @property
    def roots(self) -> np.ndarray:
        """[root] int64: positions of the roots, in the last layer (paper's form) or of all nodes (flat form)."""
        return np.arange(self.circuit.num_roots) if self.unary_chains else self.circuit.roots

    def text(self) -> str:
        """The printed form."""
        rows = []
        position = 0
        for number, layer in enumerate(self.layers):
            rows.append(f"layer {number}")
            if self.unary_chains:
                position = 0
            for node in range(layer.num_nodes):
                kind = int(layer.kind[node])
                parts = [_SYMBOLS[kind]]
                if kind == LITERAL:
                    parts.append(str(layer.literal[node]))
                parts += map(str, layer.children[layer.offsets[node] : layer.offsets[node + 1]].tolist())
                rows.append(f"  {position} {' '.join(parts)}")
                position += 1
        rows.append(f"roots {' '.join(map(str, self.roots.tolist()))}".rstrip())
        return "\n".join(rows)

    def check(self) -> None:
        """Raise LayoutError if a layer breaks the promises of its form."""
        if sum(layer.num_nodes for layer in self.layers) != self.num_nodes:
            raise LayoutError("the layers do not have as many nodes as announced")
        if sum(layer.num_edges for layer in self.layers) != self.num_edges:
            raise LayoutError("the layers do not have as many edges as announced")
        below = 0
        for number, layer in enumerate(self.layers):
            inputs = number == 0
            if np.any((layer.kind <= LITERAL) != inputs):
                raise LayoutError(f"layer {number} mixes inputs and inner nodes")
            if not inputs and self.unary_chains and np.any(layer.kind != (AND if number % 2 else OR)):
                raise LayoutError(f"layer {number} has nodes of the wrong kind")
            if layer.num_edges and (layer.children.min() < 0 or layer.children.max() >= below):
                raise LayoutError(f"layer {number} reads outside the {below} nodes below it")
            below = layer.num_nodes if self.unary_chains else below + layer.num_nodes
        if len(self.roots) and self.roots.max() >= below:
            raise LayoutError("a root is not a node")

    def interpret(self, weights, negative_weights=None, semiring: str | Semiring = "real") -> list[Any]:
        """Values of the roots by the definition, one scalar operation after the other; slow and obvious.

        weights, negative_weights  [variable]; None: the semiring's complement
        """
        from derivable.algebra import semirings

        ring = semirings.get(semiring)
        if negative_weights is None:
            if ring.complement is None:
                raise ShapeError(f"the semiring {ring.name} has no complement", hint="pass negative_weights")
            negative_weights = [ring.complement(weight) for weight in weights]
        values: list[Any] = []
        for layer in self.layers:
            new = []
            for node in range(layer.num_nodes):
                kind, number = layer.kind[node], int(layer.literal[node])
                if kind <= TRUE:
                    new.append(ring.one if kind == TRUE else ring.zero)
                elif kind == LITERAL:
                    new.append((weights if number > 0 else negative_weights)[abs(number) - 1])
                else:
                    row = [values[child] for child in layer.children[layer.offsets[node] : layer.offsets[node + 1]]]
                    value = row[0]
                    for other in row[1:]:
                        value = (ring.times if kind == AND else ring.plus)(value, other)
                    new.append(value)
            values = new if self.unary_chains else values + new
        return [values[root] for root in self.roots]


def layers(circuit: Circuit, unary_chains: bool = False) -> Layers:
    """The levels of a circuit; `unary_chains` gives the paper's form (algorithm 2), to compare sizes with.

    Counts are computed at once in linear time; the layers themselves when `.layers` is read. The counts
    of the paper's form are those of klaycircuits after `remove_unused_nodes`, its layer of inputs
    included, if every literal of the file is used.
    """
    if not unary_chains:
        return Layers(circuit, False, circuit.num_nodes, circuit.num_edges, circuit.num_levels)
    first, last, top = _bounds(circuit)
    links = int((last - first).sum())
    constants = int((circuit.kind <= TRUE).sum())
    nodes = circuit.num_nodes + 2 - constants + links + circuit.num_roots
    return Layers(circuit, True, nodes, circuit.num_edges + links + circuit.num_roots, top + 2)


def _bounds(circuit: Circuit) -> tuple[np.ndarray, np.ndarray, int]:
    from derivable.circuit.kernels.layering import layer_bounds

    first, last = np.empty(circuit.num_nodes, np.int32), np.empty(circuit.num_nodes, np.int32)
    top = layer_bounds(circuit.kind, circuit.offsets, circuit.children, circuit.roots, first, last)
    return first.astype(np.int64), last.astype(np.int64), int(top)


def _flat(circuit: Circuit) -> tuple[Layer, ...]:
    result = []
    for start, end in zip(circuit.level_offsets[:-1], circuit.level_offsets[1:]):
        offsets = circuit.offsets[start : end + 1]
        result.append(
            Layer(
                circuit.kind[start:end],
                circuit.literal[start:end],
                offsets - offsets[0],
                circuit.children[offsets[0] : offsets[-1]].astype(np.int64),
                np.arange(start, end),
            )
        )
    return tuple(result)


def _layered(circuit: Circuit) -> tuple[Layer, ...]:
    first, last, top = _bounds(circuit)
    by_layer = np.argsort(first, kind="stable")
    starts = np.searchsorted(first[by_layer], np.arange(top + 2))
    position, sizes = np.full(circuit.num_nodes, -1, np.int64), circuit.sizes

    # Layer 0: false, true, then the literals. Constants that the circuit lacks have node -1.
    leaves = by_layer[: starts[1]]
    literals = leaves[circuit.kind[leaves] == LITERAL]
    constants = np.full(2, -1, np.int64)
    for node in leaves[circuit.kind[leaves] <= TRUE]:
        constants[circuit.kind[node]] = node
    alive = np.concatenate([constants, literals])
    kind = np.concatenate([[FALSE, TRUE], np.full(len(literals), LITERAL)]).astype(np.uint8)
    literal = np.concatenate([[0, 0], circuit.literal[literals]]).astype(np.int32)
    result = [Layer(kind, literal, np.zeros(len(alive) + 1, np.int64), np.empty(0, np.int64), alive)]
    for number in range(1, top + 2):
        position[alive[alive >= 0]] = np.flatnonzero(alive >= 0)
        if number <= top:
            kept = alive[alive >= 0]
            kept = kept[last[kept] >= number]
            new = by_layer[starts[number] : starts[number + 1]]
        else:
            kept, new = circuit.roots, np.empty(0, np.int64)
        offsets = offsets_of(np.concatenate([np.ones(len(kept), np.int64), sizes[new]]))
        children = position[np.concatenate([kept, circuit.children_of(new)[1]])]
        alive = np.concatenate([kept, new])
        kind = np.full(len(alive), AND if number % 2 else OR, np.uint8)
        result.append(Layer(kind, np.zeros(len(alive), np.int32), offsets, children, alive))
    return tuple(result)
