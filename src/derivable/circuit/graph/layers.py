"""The sizes of a circuit in this library's levels and in the paper's layers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from derivable.circuit.graph.circuit import Circuit
from derivable.core.and_or import TRUE


@dataclass(frozen=True)
class Layers:
    """How large a circuit is by layers.

    Without `unary_chains` layers are the circuit's levels, and a node may read any lower one. In the paper's form
    (section 3.1) a node reads the layer just below only: chains of unary nodes hand values on, and-nodes are in odd and
    or-nodes in even layers, both constants are in layer 0, and the last layer has one unary node per root.
    """

    unary_chains: bool
    num_nodes: int
    num_edges: int
    num_layers: int

    def __repr__(self) -> str:
        form = "layered" if self.unary_chains else "flat"
        return f"Layers({form}, {self.num_nodes} nodes, {self.num_edges} edges, {self.num_layers} layers)"


def layers(circuit: Circuit, unary_chains: bool = False) -> Layers:
    """The sizes of a circuit; `unary_chains` gives those of the paper's form (algorithm 2), in linear time.

    The latter are those of klaycircuits after `remove_unused_nodes`, its layer of inputs included, if every literal of
    the file is used.
    """
    from derivable.circuit.kernels.layering import layer_bounds

    if not unary_chains:
        return Layers(False, circuit.num_nodes, circuit.num_edges, circuit.num_levels)
    first, last = np.empty(circuit.num_nodes, np.int32), np.empty(circuit.num_nodes, np.int32)
    top = layer_bounds(circuit.kind, circuit.offsets, circuit.children, circuit.roots, first, last)
    links = int((last.astype(np.int64) - first).sum())
    constants = int((circuit.kind <= TRUE).sum())
    nodes = circuit.num_nodes + 2 - constants + links + circuit.num_roots
    return Layers(True, nodes, circuit.num_edges + links + circuit.num_roots, int(top) + 2)
