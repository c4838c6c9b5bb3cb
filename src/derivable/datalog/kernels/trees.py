"""Trees of numbered nodes (Tarjan 1975): a node's parent is never larger than the node."""

from __future__ import annotations

from derivable.device.cpu.built_kernels import kernel


@kernel("int64[] int64[] int64[]")
def unite(left, right, parent):
    """Have the nodes left [pair] and right [pair] in one tree of `parent` [node], which begins with node n at n."""
    for i in range(len(left)):
        a, b = left[i], right[i]
        # Each node on the way gets its grandparent, which halves the path.
        while parent[a] != a:
            parent[a] = parent[parent[a]]
            a = parent[a]
        while parent[b] != b:
            parent[b] = parent[parent[b]]
            b = parent[b]
        if a < b:
            parent[b] = a
        else:
            parent[a] = b


@kernel("int64[] int64[]")
def number_trees(parent, component):
    """Fill component [node] with the number of its tree, in the order of their roots; returns how many there are."""
    count = 0
    for node in range(len(parent)):
        if parent[node] == node:
            component[node] = count
            count += 1
        else:
            component[node] = component[parent[node]]
    return count
