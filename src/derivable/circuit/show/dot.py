"""Graphviz DOT."""

from __future__ import annotations

import os

from derivable.circuit.graph.circuit import Circuit
from derivable.circuit.show.picture import label
from derivable.core.and_or import LITERAL
from derivable.core.files import atomic_write


def to_dot(circuit: Circuit, path: str | os.PathLike | None = None) -> str:
    """DOT text: parents above children, one box per literal, an arrow into each root.

    Variables are called by `circuit.names` if it has them, else x1, x2, ...; levels share a rank.
    Linear in the circuit; Graphviz itself lays out a few thousand nodes at most.
    """
    rows = [
        "digraph circuit {",
        "  rankdir=TB;",
        '  node [shape=circle, fontname="sans-serif", width=0.35, fixedsize=false, margin=0.03];',
        "  edge [arrowsize=0.5];",
    ]
    kinds = circuit.kind.tolist()
    for start, end in zip(circuit.level_offsets[:-1].tolist(), circuit.level_offsets[1:].tolist()):
        rows.append("  { rank=same;")
        for node in range(start, end):
            box = "shape=box, " if kinds[node] <= LITERAL else ""
            rows.append(f"    n{node} [{box}label={_quoted(label(circuit, node))}];")
        rows.append("  }")
    for position, root in enumerate(circuit.roots.tolist()):
        rows.append(f'  r{position} [shape=plaintext, label="root {position}"];')
        rows.append(f"  r{position} -> n{root};")
    offsets, children = circuit.offsets.tolist(), circuit.children.tolist()
    for node in range(circuit.num_nodes):
        rows += [f"  n{node} -> n{child};" for child in children[offsets[node] : offsets[node + 1]]]
    text = "\n".join([*rows, "}", ""])
    if path is not None:
        with atomic_write(path) as file:
            file.write(text)
    return text


def _quoted(name: str) -> str:
    escaped = name.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'
