"""Numba kernel: in which of the paper's layers a node lives, and up to which layer it is handed on."""

from __future__ import annotations

from derivable.core.and_or import AND, OR
from derivable.device.cpu.built_kernels import kernel


@kernel("uint8[] int64[] int32[] int64[] int32[] int32[]")
def layer_bounds(kind, offsets, children, roots, first, last):
    """Paper 000, section 3.1: leaves in layer 0, and-nodes in odd layers, or-nodes in even ones.

    first  [node] int32, written: the layer of the node, the lowest of its parity above its children
    last   [node] int32, written: the layer below its highest parent (for a root: the top), up to which a
           chain of unary nodes hands its value on; at least `first`
    returns the top layer. Linear in nodes plus edges.
    """
    top = 0
    for node in range(len(kind)):
        highest = -1
        for edge in range(offsets[node], offsets[node + 1]):
            highest = max(highest, first[children[edge]])
        layer = highest + 1
        if kind[node] == AND and layer % 2 == 0:
            layer += 1
        if kind[node] == OR and layer % 2 == 1:
            layer += 1
        first[node] = layer
        last[node] = layer
        top = max(top, layer)
    for node in range(len(kind)):
        for edge in range(offsets[node], offsets[node + 1]):
            child = children[edge]
            last[child] = max(last[child], first[node] - 1)
    for root in roots:
        last[root] = top
    return top
