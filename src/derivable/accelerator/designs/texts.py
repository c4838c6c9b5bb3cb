"""What a design says of itself in texts and rows: the program's cycles first, then estimates as estimates."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

from derivable.accelerator.designs.designs import COMPARED_PASSES, Design, lane_cycles
from derivable.accelerator.designs.node_rows import node_rows
from derivable.accelerator.hardware.resources import Device, Resources
from derivable.accelerator.numbers.layers import described

UNIT_NAMES: Mapping[str, str] = MappingProxyType(
    {"nn": "layers", "vsa": "vectors", "vec": "SIMD unit", "move": "moves", "dma": "off-chip"}
)
# What bounds a program from below, see `Bounds.reasons`.
BOUND_NAMES: Mapping[str, str] = MappingProxyType(
    {**UNIT_NAMES, "sub-array": "sub-arrays", "port": "cache ports", "chain": "chain"}
)


def summary_rows(made: Design) -> list[tuple[str, str]]:
    """What the summary of a design says: (title, text) in its order, the program of a pass first, then estimates."""
    neural, symbolic = made.partition
    elements = made.height * made.width * made.sub_arrays
    clock = f"{made.device.clock / 1e6:g} MHz"
    return [
        ("whole pass", _whole(made)),
        *_of_units(made),
        ("estimate", estimate_of_array(made)),
        (
            "array",
            f"{made.height} x {made.width} x {made.sub_arrays}: {made.sub_arrays} sub-array"
            f"{'s' * (made.sub_arrays > 1)} of {made.height} x {made.width}, "
            f"{elements:,} of {made.exploration.pes:,} elements",
        ),
        ("mode", f"{made.exploration.mode}, {neural} : {symbolic} sub-arrays, {made.exploration.mapping} mapping"),
        ("precision", described(made.precision)),
        ("device", f"{made.device.title} at {clock}, assumed"),
        (
            "nodes",
            f"{len(made.flow)}, {len(made.flow.layers)} of them layers and {len(made.flow.vectors)} vector nodes",
        ),
        ("SIMD", f"{made.lanes} lanes, busy for {_busy_lanes(made)}"),
        ("memories", f"{made.memories.bram} blocks of 18 Kb, {made.memories.uram} of 288 Kb"),
        ("resources", f"{_most(made.resources, made.device)} of the device at most{_as_generated(made)}"),
    ]


def _of_units(made: Design) -> list[tuple[str, str]]:
    """How long passes take that follow one another, and how long each unit works in one."""
    if made.busy is None:
        return []
    following = made.pass_cycles(COMPARED_PASSES)
    text = "memory does not suffice for two passes"
    if following is not None:
        text = f"{following:,.0f} cycles per pass where two follow one another, {_time(following / made.device.clock)}"
    busy = ", ".join(f"{name} {made.busy[unit]:,}" for unit, name in UNIT_NAMES.items())
    return [("throughput", text), ("busy", f"{busy} cycles per pass"), ("bound", _bound(made))]


def _bound(made: Design) -> str:
    """What bounds a pass, and how far above it the program is: alone, and where two follow one another."""
    texts = []
    for passes in (1, COMPARED_PASSES):
        cycles, of = made.pass_cycles(passes), made.bounds(passes)
        if cycles is not None and of is not None:
            reason, least = of.best
            texts.append(f"{cycles * passes / least:.2f} times {BOUND_NAMES[reason]} alone, {least // passes:,}")
    return "; where two follow one another ".join(texts)


def estimate_of_array(made: Design) -> str:
    """What equations (1) and (4) say of the array, and how far the program is from that."""
    said = f"array by equations {made.cycles:,} cycles per pass (pipelined), latency {made.latency:,}"
    if made.busy is None:
        return said
    equations = sum(place.end - place.start for place in made.placed.values())
    program = made.busy["nn"] + made.busy["vsa"]
    return f"{said}; nodes {equations:,}, in the program {program:,} ({program / equations - 1:+.1%})"


def _busy_lanes(made: Design) -> str:
    if made.busy is not None:
        return f"{made.busy['vec']:,} cycles per pass"
    cycles = lane_cycles(made.flow, made.lanes)
    return f"{cycles:,} cycles per pass by an estimate, of which programs of int8 took 1.4 to 6.1 times as many"


def _summary(made: Design) -> str:
    return "\n".join(f"{title:11} {text}" for title, text in summary_rows(made))


def _most(of: Resources, there: Device) -> str:
    shares = of.shares(there)
    largest = max(shares, key=lambda kind: shares[kind])
    return f"{shares[largest]:.1%} of the {largest.upper()}"


def _as_generated(made: Design) -> str:
    found = made.generated_resources
    if found is None:
        return ""
    lacks = "" if found.fit(made.device) else ", which it does not fit"
    return f"; as generated {_most(found, made.device)}{lacks}"


def resource_estimates(made: Design) -> dict[str, Resources]:
    """The estimates of a design's resources, by what they are of."""
    given = {"with memories of NSFlow's sizes": made.resources, "as generated": made.generated_resources}
    return {what: found for what, found in given.items() if found is not None}


def _whole(made: Design) -> str:
    cycles = made.pass_cycles()
    if cycles is not None:
        seconds = _time(cycles / made.device.clock)
        return f"{cycles:,} cycles, {seconds}, with off-chip memory, moves and lanes, as a simulation counts them"
    return "no hardware is generated for these formats, or memory does not suffice"


def _time(seconds: float) -> str:
    for unit, factor in (("s", 1.0), ("ms", 1e3), ("us", 1e6)):
        if seconds * factor >= 1:
            return f"{seconds * factor:.3g} {unit}"
    return f"{seconds * 1e9:.3g} ns"


def _exploration(made: Design) -> str:
    following = made.pass_cycles(COMPARED_PASSES)
    compared = "" if following is None else f"; arrays are compared by programs of two passes, of {following:,.0f} here"
    return f"{made.exploration}\ncycles by equations (1) and (4){compared}"


def _nodes(made: Design) -> str:
    width = max(len(node.name) for node in made.flow) + 1
    units = {} if made.busy is None else UNIT_NAMES
    program = "".join(f" {name:>9}" for name in units.values())
    lines = [f"{'node':{width}} {'estimate':>9} {'start':>9} {'on':>3} {'busy':>6}{program}  work"]
    for row in node_rows(made):
        start = "" if row.start is None else row.start
        on = "" if row.sub_arrays is None else row.sub_arrays
        busy = "" if row.utilisation is None else f"{row.utilisation:.1%}"
        program = "".join(f" {(row.busy or {}).get(unit, ''):>9}" for unit in units)
        lines.append(f"%{row.node:{width - 1}} {row.cycles:>9} {start:>9} {on:>3} {busy:>6}{program}  {row.work}")
    return "\n".join(lines)


def _program(made: Design) -> str:
    from derivable.accelerator.lower import cycles
    from derivable.accelerator.machine import machine

    lowered = made.lowered
    _, end = machine.timing(lowered.machine, lowered.program)
    head = f"{lowered.machine}: {len(lowered.program)} instructions, modelled latency {int(end[-1]):,} cycles"
    return "\n".join([head, *map(str, cycles.nodes(lowered))])


STAGES: dict[str, Callable[[Design], str]] = {
    "summary": _summary,
    "operators": lambda made: str(made.graph),
    "dataflow": lambda made: made.flow.explain(made.precision),
    "exploration": _exploration,
    "memory": lambda made: str(made.memories),
    "resources": lambda made: "\n".join(
        f"{what}\n{found.table(made.device)}" for what, found in resource_estimates(made).items()
    ),
    "nodes": _nodes,
    "program": _program,
}


def csv_text(records: Sequence[Mapping[str, object]]) -> str:
    """A line for each record, with a header; what is None is empty."""
    text = io.StringIO()
    writer = csv.DictWriter(text, list(records[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(records)
    return text.getvalue()
