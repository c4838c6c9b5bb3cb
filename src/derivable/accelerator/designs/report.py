"""What a design looks like: one HTML page without anything from outside, and the rows of its nodes as CSV and JSON."""

from __future__ import annotations

import json
import math
import os
import string
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from derivable.accelerator.designs.designs import COMPARED_PASSES, Design
from derivable.accelerator.designs.drawing import dot, logarithmic, text_at
from derivable.accelerator.designs.node_rows import NodeRow, node_rows
from derivable.accelerator.designs.texts import UNIT_NAMES, csv_text, estimate_of_array, resource_estimates
from derivable.accelerator.hardware.resources import KINDS, share
from derivable.accelerator.numbers.layers import described
from derivable.core.diagnostics import DerivableError
from derivable.core.files import atomic_write
from derivable.core.html import safe

if TYPE_CHECKING:
    from derivable.accelerator.hardware.placement import Placement
    from derivable.accelerator.hardware.simulation import Simulation

FILES = ("report.html", "nodes.csv", "nodes.json")
WIDTH = 960
_TEMPLATE = Path(__file__).with_name("report.html")


def write_report(
    made: Design,
    directory: str | os.PathLike,
    simulation: Simulation | None = None,
    placement: Placement | None = None,
) -> list[Path]:
    """Write `report.html`, `nodes.csv` and `nodes.json`, each whole or not at all; the same design, the same bytes.

    directory   is made if it is not there
    simulation  a run of the design, whose cycles stand beside the modelled ones
    placement   of the hardware on a device, for a section with the measured clock

    Raises DerivableError if a file cannot be written. Returns the paths.
    """
    folder = Path(directory)
    simulated = None
    if simulation is not None:
        from derivable.accelerator.designs.deployment import cycles_of_nodes

        simulated = cycles_of_nodes(made, simulation)
    texts = (
        html(made, simulated, simulation, placement),
        nodes_csv(made, simulated),
        nodes_json(made, simulated, placement),
    )
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DerivableError(f"cannot make the folder: {error.strerror or error}", source=str(folder)) from None
    for name, text in zip(FILES, texts):
        with atomic_write(folder / name) as file:
            file.write(text)
    return [folder / name for name in FILES]


# What the numbers of a node are of.
UNITS = {
    "weight_bytes": "bytes",
    "input_bytes": "bytes",
    "output_bytes": "bytes",
    "macs": "multiplications with an addition",
    "sub_arrays": "sub-arrays",
    "start": "cycle of a pass",
    "end": "cycle of a pass",
    "cycles": "cycles by the equations",
    "utilisation": "share of the multipliers, 0 to 1",
    "simulated_cycles": "cycles that the unit of the node works",
    "difference": "cycles, in words",
    **{f"{unit}_cycles": f"cycles of the program: {name}" for unit, name in UNIT_NAMES.items()},
    "dma_cycles": "cycles of the program: off-chip, but for loads of the inputs, which are of no node",
}


def _records(made: Design, simulated: Mapping[str, int] | None) -> list[dict[str, object]]:
    words = {} if simulated is None else _differences(made, simulated)
    found = []
    for row in node_rows(made):
        record = asdict(row)
        busy = record.pop("busy") or {}
        record |= {"simulated_cycles": (simulated or {}).get(row.node), "difference": words.get(row.node)}
        found.append(record | {f"{unit}_cycles": busy.get(unit) for unit in UNIT_NAMES})
    return found


def _differences(made: Design, simulated: Mapping[str, int]) -> dict[str, str]:
    """What a node took more or less than modelled, by its name, and of what that is made."""
    from derivable.accelerator.lower import cycles

    of_program: dict[str, list[cycles.Node]] = {}
    for each in cycles.nodes(made.lowered):
        node = made.flow.lowered_in(each.name)
        if each.unit and node is not None:
            of_program.setdefault(node, []).append(each)
    found = {}
    for row in node_rows(made):
        if row.node not in simulated:
            continue
        more = simulated[row.node] - row.cycles
        listed = of_program.get(row.node, [])
        is_layer = any(each.name in made.lowered.as_layers for each in listed)
        words = "as a product with a circulant matrix" if is_layer else "as the program shares out the sub-arrays"
        parts = [(words, sum(each.equation for each in listed) - row.cycles)]
        parts += [
            (reason, sum(getattr(each, name) for each in listed))
            for name, reason in (
                ("blocks", "blocks of taps and channels as whole tiles"),
                ("cuts", "pieces that fit the memories"),
                ("constants", "pipelines of the instructions"),
            )
        ]
        if not listed:
            parts = [("conversions and steps of the program beside the passes over entries", more)]
        rest = more - sum(count for _, count in parts)
        reasons = [f"{count:+,} {words}" for words, count in (*parts, ("waits", rest)) if count]
        found[row.node] = f"{more:+,}: {', '.join(reasons)}" if reasons else "as modelled"
    return found


def nodes_csv(made: Design, simulated: Mapping[str, int] | None = None) -> str:
    """A line for each node, with a header; what a node has not is empty."""
    return csv_text(_records(made, simulated))


def nodes_json(made: Design, simulated: Mapping[str, int] | None = None, placement: Placement | None = None) -> str:
    """The design in numbers, and an object for each node."""
    content = {
        "height": made.height,
        "width": made.width,
        "sub_arrays": made.sub_arrays,
        "partition": list(made.partition),
        "mode": made.exploration.mode,
        "pass_cycles": made.pass_cycles(),
        "busy": made.busy,
        "cycles": made.cycles,
        "latency": made.latency,
        "lanes": made.lanes,
        "device": made.device.name,
        "assumed_clock": made.device.clock,
        "placement": placement and asdict(placement),
        "precision": dict(made.precision),
        "resources": asdict(made.resources),
        "generated_resources": made.generated_resources and asdict(made.generated_resources),
        "units": UNITS,
        "nodes": _records(made, simulated),
    }
    return json.dumps(content, indent=1) + "\n"


def html(
    made: Design,
    simulated: Mapping[str, int] | None = None,
    simulation: Simulation | None = None,
    placement: Placement | None = None,
) -> str:
    """The page; with `simulated` cycles of nodes, and with what a simulation says of each operator and a placement of
    the clock."""
    rows = node_rows(made)
    is_parallel = made.exploration.mode == "parallel"
    sections = {
        "numbers": _numbers(made, simulation),
        "units": _units(made),
        "timeline": _timeline(made, rows),
        "use": _use(made, rows),
        "roofline": _roofline(made, rows),
        "memory": _memory(made),
        "resources": _resources(made),
        "placement": _placement(made, placement),
        "table": _table(made, rows, simulated),
        "simulation": _simulation(made, simulation),
    }
    return string.Template(_TEMPLATE.read_text(encoding="utf-8")).substitute(
        array=f"{made.height} x {made.width} x {made.sub_arrays}",
        estimate=safe(estimate_of_array(made), 400),
        cycles=f"{made.cycles:,}",
        parallel="Layers of one pass run in parallel with the vector nodes of the pass before.\n" * is_parallel,
        **{name: "".join(f"{line}\n" for line in lines) for name, lines in sections.items()},
    )


def _numbers(made: Design, simulation: Simulation | None) -> Iterator[str]:
    neural, symbolic = made.partition
    whole, following = made.pass_cycles(), made.pass_cycles(COMPARED_PASSES)
    values = {
        "whole pass, with memory, moves and lanes": "not generated" if whole is None else f"{whole:,} cycles",
        "time of the whole pass": "" if whole is None else f"{1e6 * whole / made.device.clock:,.1f} us",
        "where two passes follow one another": "" if following is None else f"{following:,.0f} cycles per pass",
        "mode": made.exploration.mode,
        "sub-arrays, neural : symbolic, before nodes are tuned": f"{neural} : {symbolic}",
        "precision": described(made.precision),
        "device": made.device.title,
        "clock of these times": f"{made.device.clock / 1e6:g} MHz, assumed",
        "lanes of the SIMD unit": str(made.lanes),
    }
    if simulation is not None:
        lost = simulation.lost
        values["numbers that saturated"] = f"{lost.saturated:,} of {lost.numbers:,}"
        values["numbers flushed to zero"] = f"{lost.flushed:,} of {lost.numbers:,}"
    values = {name: text for name, text in values.items() if text}
    yield "<dl>" + "".join(f"<div><dt>{safe(name)}</dt><dd>{safe(text)}</dd></div>" for name, text in values.items())
    yield "</dl>"


def _placement(made: Design, placed: Placement | None) -> Iterator[str]:
    """The measured clock, what a pass takes by it, and the cells of the slowest path."""
    if placed is None:
        return
    yield "<h2>Place and route</h2>"
    whole = made.pass_cycles()
    text = f"The clock of `{placed.module}` is {placed.clock()}."
    if whole is not None and placed.module == "accelerator":
        text += f" A pass takes {1e6 * whole / placed.frequency:,.1f} us by it."
    yield f"<p>{safe(text, 400)}</p>"
    yield from _bars(
        [(kind, share(used, there), f"{used:,} of {there:,}") for kind, (used, there) in placed.used.items()],
        f"use of the {placed.title}",
    )
    yield f"<p>The slowest path, of {placed.nanoseconds:.2f} ns:</p>"
    titles = [("cell", ""), ("signal", ""), ("in", ""), ("wire to it, ns", "number"), ("cell, ns", "number")]
    steps = [step for step in placed.critical if step.wire or step.logic]
    yield from _grid(
        titles, [(step.cell, step.signal, step.module, f"{step.wire:.2f}", f"{step.logic:.2f}") for step in steps]
    )


def _svg(height: float, content: Iterable[str], label: str) -> Iterator[str]:
    yield f'<figure><svg viewBox="0 0 {WIDTH} {height:g}" role="img" aria-label="{safe(label)}">'
    yield from content
    yield "</svg></figure>"


def _rect(x: float, y: float, width: float, height: float, kind: str, title: str) -> str:
    size = f'x="{x:.2f}" y="{y:.2f}" width="{max(width, 0.3):.2f}" height="{height:.2f}"'
    return f'<rect class="bar {kind}" {size}><title>{safe(title, 200)}</title></rect>'


WIDTH_OF_LETTER = 6.5  # of most letters, as they are drawn


def _cycles(end: int, y: float) -> Iterator[str]:
    """The axis of a timeline, in quarters."""
    room = WIDTH - LEFT - 10
    for k in range(5):
        anchor = "start" if k == 0 else "end" if k == 4 else "middle"
        unit = " cycles" if k == 4 else ""
        yield text_at(LEFT + k * room / 4, y, f"{round(k * end / 4):,}{unit}", anchor)


LEFT = 110.0


def _timeline(made: Design, rows: Sequence[NodeRow]) -> Iterator[str]:
    """A line for each sub-array: layers from the first on, vector nodes from the last."""
    height, end = 16.0, max(made.cycles, 1)
    scale = (WIDTH - LEFT - 10) / end

    def content() -> Iterator[str]:
        for k in range(made.sub_arrays):
            yield text_at(LEFT - 8, height * k + 12, f"sub-array {k}", "end")
        for row in rows:
            if row.start is None or row.end is None or row.sub_arrays is None:
                continue
            is_layer = row.part == "neural" and row.work.startswith("layer")
            first = 0 if is_layer else made.sub_arrays - row.sub_arrays
            title = f"{row.node}: {row.work}, cycles {row.start} to {row.end} on {row.sub_arrays} sub-arrays"
            x, width = LEFT + row.start * scale, (row.end - row.start) * scale
            yield _rect(x, height * first, width, height * row.sub_arrays, row.part, title)
            if width > WIDTH_OF_LETTER * (len(row.node) + 1):
                yield text_at(x + width / 2, height * (first + row.sub_arrays / 2) + 4, row.node, "middle", "name")
        yield from _cycles(end, height * made.sub_arrays + 16)

    yield from _svg(height * made.sub_arrays + 22, content(), "which node runs when on which sub-arrays")


def _use(made: Design, rows: Sequence[NodeRow]) -> Iterator[str]:
    """How long each sub-array works, of the cycles of a pass, and what its multipliers do of what they could."""
    layers = {node.name for node in made.flow.layers}
    shares = {row.node: row.utilisation or 0.0 for row in rows}
    busy, multiplied = [0] * made.sub_arrays, [0.0] * made.sub_arrays
    for name, place in made.placed.items():
        span = range(place.sub_arrays)
        for k in span if name in layers else (made.sub_arrays - 1 - k for k in span):
            busy[k] += place.end - place.start
            multiplied[k] += shares[name] * (place.end - place.start)
    whole = max(made.cycles, 1)
    bars = [
        (f"sub-array {k}", busy[k] / whole, f"{busy[k] / whole:.1%}, multipliers {multiplied[k] / whole:.1%}")
        for k in range(made.sub_arrays)
    ]
    yield from _bars(bars, "use of the sub-arrays")


def _bars(rows: Sequence[tuple[str, float, str]], label: str) -> Iterator[str]:
    """A bar a row: its name, its part of one, and its number."""
    height, room = 16.0, WIDTH - LEFT - 200

    def content() -> Iterator[str]:
        for k, (name, part, number) in enumerate(rows):
            yield text_at(LEFT - 8, height * k + 12, name, "end")
            yield _rect(LEFT, height * k + 2, room * min(part, 1), height - 4, "lane", f"{name}: {number}")
            yield text_at(LEFT + room * min(part, 1) + 6, height * k + 12, number)

    yield from _svg(height * len(rows) + 4, content(), label)


def _roofline(made: Design, rows: Sequence[NodeRow]) -> Iterator[str]:
    """MACs a cycle over MACs a byte of off-chip memory, if all of a node's numbers came from there."""
    elements = made.height * made.width * made.sub_arrays
    peak = elements * max(getattr(node.work, "products", 1) for node in made.flow)
    bandwidth = made.device.bandwidth / made.device.clock
    points = [
        (row.macs / max(row.weight_bytes + row.input_bytes + row.output_bytes, 1), row.macs / row.cycles, row)
        for row in rows
        if row.macs and row.cycles
    ]
    if not points:
        yield "<p>No node runs on the array.</p>"
        return
    low_x = min(0.1, *(x for x, _, _ in points))
    high_x = max(10.0, 2 * peak / bandwidth, *(x for x, _, _ in points))
    low_y, high_y = min(1.0, *(y for _, y, _ in points)), 2.0 * peak
    height = 320.0

    def at(x: float, y: float) -> tuple[float, float]:
        across, up = logarithmic(x, low_x, high_x), logarithmic(y, low_y, high_y)
        return LEFT + (WIDTH - LEFT - 20) * across, (height - 30) * (1 - up)

    def content() -> Iterator[str]:
        (left, bottom), (right, top) = at(low_x, low_y), at(high_x, high_y)
        yield f'<path class="axis" d="M{left:.1f} {top:.1f}V{bottom:.1f}H{right:.1f}"/>'
        begin = max(low_x, low_y / bandwidth)
        corners = [at(begin, bandwidth * begin), at(peak / bandwidth, peak), at(high_x, peak)]
        path = "L".join(f"{x:.1f} {y:.1f}" for x, y in corners)
        yield f'<path class="roof" d="M{path}"/>'
        yield text_at(right, corners[-1][1] - 5, f"{peak:,} MACs a cycle", "end")
        yield text_at(corners[0][0] + 8, corners[0][1] + 16, f"{bandwidth:.3g} bytes a cycle")
        for x, y, row in points:
            yield dot(*at(x, y), row.part, f"{row.node}: {x:.3g} MACs a byte, {y:.3g} MACs a cycle")
        for decade in range(math.ceil(math.log10(low_x)), math.floor(math.log10(high_x)) + 1):
            yield text_at(at(10.0**decade, low_y)[0], height - 14, f"{10.0**decade:g}", "middle")
        for decade in range(math.ceil(math.log10(low_y)), math.floor(math.log10(high_y)) + 1):
            row_at = at(low_x, 10.0**decade)[1]
            if row_at > 18:
                yield text_at(LEFT - 8, row_at + 4, f"{10.0**decade:g}", "end")
        yield text_at(LEFT - 8, 10, "MACs a cycle", "end")
        yield text_at(right, height - 1, "MACs a byte", "end")

    yield from _svg(height, content(), "roofline of the nodes on the array")


def _memory(made: Design) -> Iterator[str]:
    stores = [getattr(made.memories, name) for name in ("a1", "a2", "b", "c", "cache")]
    largest = max(store.bytes * store.copies for store in stores) or 1
    rows = []
    for store in stores:
        blocks = f"{store.uram} URAM" if store.name == "cache" else f"{store.bram} BRAM"
        rows.append((store.name, store.bytes * store.copies / largest, f"{store.copies} x {store.bytes:,} B, {blocks}"))
    yield from _bars(rows, "sizes of the memories")


def _resources(made: Design) -> Iterator[str]:
    for what, found in resource_estimates(made).items():
        shares = found.shares(made.device)
        rows = []
        for kind in KINDS:
            numbers = f"{getattr(found, kind):,} of {getattr(made.device, kind):,}, {shares[kind]:.1%}"
            rows.append((kind.upper(), shares[kind], numbers))
        yield f"<h3>{what.capitalize()}</h3>"
        yield from _bars(rows, f"resources of the device, {what}")


# Title; its class: a number in one line, a long text that breaks anywhere, or whole words; what stands in it
_Column = tuple[str, str, Callable[[NodeRow], object]]
_COLUMNS: tuple[_Column, ...] = (
    ("node", "", lambda row: row.node),
    ("part", "", lambda row: row.part),
    ("work", "long", lambda row: row.work),
    ("sub-arrays", "number", lambda row: "" if row.sub_arrays is None else row.sub_arrays),
    ("start, cycle", "number", lambda row: "" if row.start is None else f"{row.start:,}"),
    ("estimate", "number", lambda row: f"{row.cycles:,}"),
    ("multipliers", "number", lambda row: "" if row.utilisation is None else f"{row.utilisation:.1%}"),
    ("weights, B", "number", lambda row: f"{row.weight_bytes:,}"),
    ("inputs, B", "number", lambda row: f"{row.input_bytes:,}"),
    ("outputs, B", "number", lambda row: f"{row.output_bytes:,}"),
    ("where", "long", lambda row: row.source),
)


def _grid(titles: Sequence[tuple[str, str]], rows: Iterable[Sequence[object]]) -> Iterator[str]:
    """A table: the title and the class of each column, and what stands in each row."""
    classes = [f" class={kind}" if kind else "" for _, kind in titles]
    yield '<div class="wide"><table><thead><tr>'
    yield "".join(f"<th{kind}>{safe(title)}</th>" for (title, _), kind in zip(titles, classes))
    yield "</tr></thead><tbody>"
    for row in rows:
        cells = (f"<td{kind}>{safe(cell, 300)}</td>" for cell, kind in zip(row, classes))
        yield f"<tr>{''.join(cells)}</tr>"
    yield "</tbody></table></div>"


def _program_cell(row: NodeRow) -> str:
    return ", ".join(f"{name} {row.busy[unit]:,}" for unit, name in UNIT_NAMES.items() if row.busy and unit in row.busy)


def _table(made: Design, rows: Sequence[NodeRow], simulated: Mapping[str, int] | None) -> Iterator[str]:
    columns = list(_COLUMNS)
    if simulated is None and made.busy is not None:
        columns[6:6] = [("program, cycles", "long", _program_cell)]
    if simulated is not None:
        known, words = simulated, _differences(made, simulated)

        def difference(row: NodeRow) -> str:
            return f"{known[row.node] / row.cycles - 1:+.1%}" if row.node in known and row.cycles else ""

        columns[6:6] = [
            ("simulated", "number", lambda row: f"{known[row.node]:,}" if row.node in known else ""),
            ("difference", "number", difference),
            ("because of, in cycles", "long", lambda row: words.get(row.node, "")),
        ]
    yield from _grid([column[:2] for column in columns], ([show(row) for _, _, show in columns] for row in rows))


def _units(made: Design) -> Iterator[str]:
    """When each unit works in the program of a pass, and how much of it."""
    whole = made.pass_cycles()
    if made.busy is None or not whole:
        return
    yield "<h2>Pass of the units</h2>"
    yield from _program(made, 1)
    shares = (f"{name} {made.busy[unit]:,} cycles, {made.busy[unit] / whole:.1%}" for unit, name in UNIT_NAMES.items())
    yield f"<p>Of the {whole:,} cycles of a pass, those in which each unit has an instruction: {'; '.join(shares)}.</p>"


def _program(made: Design, passes: int) -> Iterator[str]:
    """A line for each unit of the hardware: when its instructions run, by the model of their time."""
    from derivable.accelerator.machine import machine

    lowered = made.lower(passes)
    begin, end = (times.tolist() for times in machine.timing(lowered.machine, lowered.program))
    whole, height = max(end[-1], 1), 18.0
    scale = (WIDTH - LEFT - 10) / whole
    spans: dict[str, list[tuple[int, int, str, str]]] = {unit: [] for unit in UNIT_NAMES}
    for instruction, first, last in zip(lowered.program.executed, begin, end):
        if instruction.unit not in spans:
            continue
        operator = lowered.graph.by_name.get(instruction.node)
        part = "neural" if operator is None else operator.part
        before = spans[instruction.unit]
        # What would be drawn in one place is one.
        if before and before[-1][2] == part and (first - before[-1][1]) * scale < 0.5:
            start, stop, _, name = before.pop()
            before.append((start, max(stop, last), part, name))
        else:
            of_pass = f" of pass {instruction.of_pass}" if passes > 1 else ""
            before.append((first, last, part, instruction.node + of_pass))

    def content() -> Iterator[str]:
        for k, (unit, title) in enumerate(UNIT_NAMES.items()):
            yield text_at(LEFT - 8, height * k + 13, title, "end")
            for first, last, part, name in spans[unit]:
                label = f"{title}: from {name} on, cycles {first:,} to {last:,}"
                yield _rect(
                    LEFT + first * scale, height * k + 2, (last - first) * scale, height - 4, f"{part} fine", label
                )
        yield from _cycles(whole, height * len(spans) + 14)

    yield from _svg(height * len(spans) + 20, content(), "which unit runs when in the program")
    what = "One pass of the program" if passes == 1 else f"{passes} passes of one program beside each other"
    yield f"<figcaption>{what}. Blue: of neural operators; orange: of symbolic ones.</figcaption>"


_OF_EQUATION = ("equation", "blocks", "cuts", "constants")  # what cycles of the array are made of, see `cycles.Node`


def _passes(found: Simulation) -> str:
    if found.passes == 1:
        return "One pass of the program"
    return f"A program of {found.passes} passes, {found.cycles_of_a_pass:,.0f} cycles each,"


def _losses(found: Simulation) -> Iterator[str]:
    """The tensors of which numbers were lost."""
    lossy = {name: counts for name, counts in found.losses.items() if counts.saturated or counts.flushed}
    if not lossy:
        yield "<p>No number saturated, and none was flushed to zero.</p>"
        return
    yield (
        "<p>Numbers that saturated are beyond what the calibration saw; those flushed to zero are less than half a "
        "step of their format.</p>"
    )
    titles = [("tensor", ""), *((title, "number") for title in ("numbers", "saturated", "flushed to zero"))]
    rows = []
    for name, counts in lossy.items():
        shares = (f"{count:,} ({count / counts.numbers:.1%})" for count in (counts.saturated, counts.flushed))
        rows.append((name, f"{counts.numbers:,}", *shares))
    yield from _grid(titles, rows)


def _simulation(made: Design, found: Simulation | None) -> Iterator[str]:
    """What each operator of the program took, beside the model of the hardware's time."""
    if found is None:
        return
    yield "<h2>Simulation</h2>"
    difference = found.cycles / found.modelled - 1 if found.modelled else 0.0
    yield (
        f"<p>{_passes(found)} took {found.cycles:,} cycles, {found.modelled:,} by the model of the hardware's "
        f"time ({difference:+.2%}). That counts all units and what they wait for; the nodes above count the cycles "
        "that a unit works.</p>"
    )
    if made.exploration.mode == "parallel":
        yield (
            "<p>The program gives each node the sub-arrays of the tuned schedule. In one pass by itself a layer and a "
            "vector node run beside each other where neither needs the other.</p>"
        )
    yield from _losses(found)
    from derivable.accelerator.lower import cycles

    if found.passes > 1:
        yield from _program(made, found.passes)
    yield (
        "<p>The array takes the cycles of equation (1) or (4), more where blocks of taps and channels are whole tiles, "
        "more where work is cut into pieces that fit the memories, and the constants of each instruction. All numbers "
        "of the table are cycles.</p>"
    )
    beside = {node.name: node for node in cycles.nodes(made.lowered)}
    titles = [("operator", ""), *((title, "number") for title in ("begin", "end", "modelled", "simulated"))]
    titles += [("difference", "long"), *((title, "number") for title in ("array", *_OF_EQUATION))]
    rows = []
    for node in found.per_node:
        numbers = (f"{number:,}" for number in (node.begin, node.end, node.modelled, node.simulated))
        parts = beside.get(node.node)
        counts: list[str] = []
        if parts is not None and parts.unit:
            counts = [
                f"{count:,}" for count in (parts.busy[parts.unit], *(getattr(parts, name) for name in _OF_EQUATION))
            ]
        name = f"{node.node} of pass {node.of_pass}" if found.passes > 1 else node.node
        rows.append((name, *numbers, node.explanation, *(counts or [""] * (1 + len(_OF_EQUATION)))))
    yield from _grid(titles, rows)
