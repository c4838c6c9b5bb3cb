"""Texts that show a circuit at each of its stages."""

from __future__ import annotations

import numpy as np

from derivable.circuit.graph.circuit import Circuit
from derivable.core.and_or import AND, OR
from derivable.core.diagnostics import UnsupportedError

STAGES = ("nodes", "levels", "kernels", "compilation")
_ROWS = 200


def explain(circuit: Circuit, stage: str = "levels") -> str:
    """The text of one stage.

    "nodes"    one row per node: id, kind or literal, children; roots are marked
    "levels"   one row per level: how many nodes, conjunctions, disjunctions, edges, and how far edges reach
    "kernels"  what evaluates the circuit on this machine, and why
    "compilation"  the compiler that made it, and what each one costs, if `compile` chose it

    Long tables are cut in the middle and say so. Raises UnsupportedError for another stage.
    """
    if stage == "nodes":
        return _nodes(circuit)
    if stage == "levels":
        return _levels(circuit)
    if stage == "kernels":
        from derivable.circuit.fold.plan import describe_plan

        return describe_plan(circuit)
    if stage == "compilation":
        return f"origin {circuit.origin!r}" if circuit.compilation is None else circuit.compilation.text()
    raise UnsupportedError(f"a circuit has no stage {stage!r}", hint=f"stages are {', '.join(STAGES)}")


def _cut(rows: list[str]) -> list[str]:
    if len(rows) <= _ROWS:
        return rows
    half = _ROWS // 2
    return [*rows[:half], f"... {len(rows) - 2 * half} more rows ...", *rows[-half:]]


def _nodes(circuit: Circuit) -> str:
    count = circuit.num_nodes
    if count <= _ROWS:
        return "\n".join([repr(circuit), *circuit.rows(circuit.names)])
    half = _ROWS // 2
    first, last = (circuit.rows(circuit.names, part) for part in (range(half), range(count - half, count)))
    return "\n".join([repr(circuit), *first, f"... {count - _ROWS} more nodes ...", *last])


def _levels(circuit: Circuit) -> str:
    height = np.repeat(np.arange(circuit.num_levels), np.diff(circuit.level_offsets))
    reach = height[circuit.parents] - height[circuit.children]
    header = f"{'level':>7} {'nodes':>9} {'and':>9} {'or':>9} {'edges':>9} {'longest edge':>13}"
    rows = []
    for level in range(circuit.num_levels):
        start, end = circuit.level_offsets[level], circuit.level_offsets[level + 1]
        first, last = circuit.offsets[start], circuit.offsets[end]
        kinds = circuit.kind[start:end]
        conjunctions, disjunctions = int((kinds == AND).sum()), int((kinds == OR).sum())
        longest = int(reach[first:last].max(initial=0))
        numbers = f"{end - start:>9} {conjunctions:>9} {disjunctions:>9} {last - first:>9} {longest:>13}"
        rows.append(f"{level:>7} {numbers}")
    chains = circuit.layers(unary_chains=True)
    closing = (
        f"in the paper's layered form: {chains.num_nodes} nodes, {chains.num_edges} edges, {chains.num_layers} layers"
    )
    return "\n".join([repr(circuit), header, *_cut(rows), closing])
