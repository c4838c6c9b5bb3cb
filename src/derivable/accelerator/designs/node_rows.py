"""What a report says of each node of a design, in numbers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from derivable.accelerator.designs.designs import Design
from derivable.accelerator.explore.dataflow import Node


@dataclass(frozen=True)
class NodeRow:
    """What a report says of a node: bytes; its place in the schedule (None beside the array), its cycles and the part
    of the multipliers that it keeps busy there, by the equations; and cycles of each unit's work in the program, see
    `Design.busy`, None where there is none."""

    node: str
    part: str
    work: str
    operators: str
    source: str
    weight_bytes: int
    input_bytes: int
    output_bytes: int
    macs: int
    sub_arrays: int | None
    start: int | None
    end: int | None
    cycles: int
    utilisation: float | None
    busy: Mapping[str, int] | None


def node_rows(made: Design) -> list[NodeRow]:
    """A row for each node of the dataflow graph, in its order."""
    busy = _busy_nodes(made)
    return [_row(made, node, None if busy is None else busy.get(node.name, {})) for node in made.flow]


def _busy_nodes(made: Design) -> dict[str, dict[str, int]] | None:
    """Cycles of each unit's work in the program for each node; what loads the inputs is of none."""
    from derivable.accelerator.lower import cycles

    lowered = made._hardware()
    if lowered is None:
        return None
    busy: dict[str, dict[str, int]] = {}
    for each in cycles.nodes(lowered):
        of_node = busy.setdefault(made.flow.lowered_in(each.name) or "", {})
        for unit, count in each.busy.items():
            of_node[unit] = of_node.get(unit, 0) + count
    return busy


def _row(made: Design, node: Node, busy: Mapping[str, int] | None) -> NodeRow:
    memory = node.memory(made.precision)
    span = made.placed.get(node.name)
    macs = getattr(node.work, "macs", 0)
    cycles = span.end - span.start if span else node.cycles(made.height, made.width, made.sub_arrays, made.lanes)
    utilisation = None
    if span and cycles:
        elements = made.height * made.width * span.sub_arrays
        utilisation = macs / (cycles * elements * getattr(node.work, "products", 1))
    return NodeRow(
        node=node.name,
        part=node.part,
        work=" + ".join(map(str, (node.work, *node.fused))),
        operators=" ".join(node.operators),
        source=node.source,
        weight_bytes=memory.weights,
        input_bytes=memory.inputs,
        output_bytes=memory.outputs,
        macs=macs,
        sub_arrays=span.sub_arrays if span else None,
        start=span.start if span else None,
        end=span.end if span else None,
        cycles=cycles,
        utilisation=utilisation,
        busy=busy,
    )
