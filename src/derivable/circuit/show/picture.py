"""A picture of a small circuit as SVG, for notebooks: parents above children, no program but Python needed.

The layout is the usual one for layered graphs (Sugiyama, Tagawa and Toda 1981): a node's layer is its height, an edge
over several layers passes through a point in each, layers are ordered by the means of their neighbours, and positions
are the closest ones to those means that keep a distance.
"""

from __future__ import annotations

from html import unescape
from itertools import pairwise

import numpy as np

from derivable.circuit.graph.circuit import Circuit
from derivable.core import html
from derivable.core.and_or import AND, LITERAL, TRUE

MAX_NODES = 60
_SWEEPS = 12
_GAP, _LAYER = 16.0, 64.0
_FILL = {"and": "#3b82f6", "or": "#f59e0b", "leaf": "#10b981"}


def circuit_html(circuit: Circuit) -> str:
    """The picture of a circuit of at most MAX_NODES nodes, a table of sizes of a larger one."""
    if 0 < circuit.num_nodes <= MAX_NODES:
        return f'<div style="overflow-x:auto;max-width:100%">{svg(circuit)}</div><div>{html.safe(repr(circuit))}</div>'
    counts = np.bincount(circuit.kind, minlength=5).tolist()
    rows = [
        ("nodes", f"{circuit.num_nodes:,}"),
        ("and-nodes, or-nodes", f"{counts[3]:,}, {counts[4]:,}"),
        ("edges", f"{circuit.num_edges:,}"),
        ("levels", f"{circuit.num_levels:,}"),
        ("variables", f"{circuit.num_variables:,}"),
        ("roots", f"{circuit.num_roots:,}"),
        ("made by", {"sdd": "an SDD compiler", "decision": "a compiler by decisions"}.get(circuit.origin, "hand")),
    ]
    return html.table(("circuit", ""), rows)


def label(circuit: Circuit, node: int) -> str:
    """A literal's name (with ¬ if it is negative), ∧, ∨, or the name of a constant."""
    kind = int(circuit.kind[node])
    if kind == LITERAL:
        number = int(circuit.literal[node])
        name = circuit.names[abs(number) - 1] if circuit.names else f"x{abs(number)}"
        return name if number > 0 else f"¬{name}"
    if kind <= TRUE:
        return "true" if kind == TRUE else "false"
    return "∧" if kind == AND else "∨"


def svg(circuit: Circuit) -> str:
    """SVG text in the colour of the surrounding text, so it reads on light and dark pages."""
    labels = [label(circuit, node) for node in range(circuit.num_nodes)]
    shown = [html.safe(text, 18) for text in labels]
    widths = [max(28.0, 8.0 * len(unescape(text)) + 14.0) for text in shown]
    x, y, routes = _layout(circuit, widths)
    root_text: dict[int, list[str]] = {}
    for position, root in enumerate(circuit.roots.tolist()):
        root_text.setdefault(root, []).append(str(position))
    width = max(x[n] + widths[n] / 2 for n in range(circuit.num_nodes)) + _GAP
    width = max(width, max(px for route in routes for px, _ in route) + _GAP if routes else 0.0)
    height = max(y) + 30.0
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" viewBox="0 0 {width:.0f} {height:.0f}" '
        f'width="{width:.0f}" style="max-width:100%;min-width:{0.6 * width:.0f}px;height:auto" fill="none" '
        'stroke="currentColor" font-family="sans-serif" font-size="13" text-anchor="middle">'
        f"<title>{html.safe(repr(circuit))}</title>"
    ]
    for route in routes:
        path = f"M{route[0][0]:.1f} {route[0][1]:.1f}" + "".join(
            f"C{x0:.1f} {(y0 + y1) / 2:.1f} {x1:.1f} {(y0 + y1) / 2:.1f} {x1:.1f} {y1:.1f}"
            for (x0, y0), (x1, y1) in pairwise(route)
        )
        parts.append(f'<path d="{path}" stroke-opacity=".55"/>')
    for node, positions in root_text.items():
        text = f"root{'s' if len(positions) > 1 else ''} {', '.join(positions)}" if circuit.num_roots > 1 else "root"
        parts.append(
            f'<path d="M{x[node]:.1f} {y[node] - 30:.1f}v12m-3 -4l3 4l3 -4"/>'
            f'<text x="{x[node]:.1f}" y="{y[node] - 34:.1f}" font-size="10" fill="currentColor" stroke="none">'
            f"{html.safe(text, 16)}</text>"
        )
    for node, text in enumerate(shown):
        shape = "leaf" if circuit.kind[node] <= LITERAL else "and" if circuit.kind[node] == AND else "or"
        half, radius = widths[node] / 2, 4 if shape == "leaf" else 14
        parts.append(
            f'<g><title>{html.safe(labels[node])}: node {node}</title><rect x="{x[node] - half:.1f}" '
            f'y="{y[node] - 14:.1f}" width="{2 * half:.1f}" height="28" rx="{radius}" fill="{_FILL[shape]}" '
            f'fill-opacity=".22"/><text x="{x[node]:.1f}" y="{y[node] + 4.5:.1f}" fill="currentColor" stroke="none">'
            f"{text}</text></g>"
        )
    return "".join([*parts, "</svg>"])


def _layout(circuit: Circuit, widths: list[float]) -> tuple[list[float], list[float], list[list[tuple[float, float]]]]:
    """Places of the nodes, and of each edge the places on its way from the parent's bottom to the child's top."""
    count = circuit.num_nodes
    height = np.repeat(np.arange(circuit.num_levels), np.diff(circuit.level_offsets)).tolist()
    widths = list(widths)
    layers: list[list[int]] = [[n for n in range(count) if height[n] == level] for level in range(circuit.num_levels)]
    below: list[list[int]] = [[] for _ in range(count)]
    ways: list[list[int]] = []  # each edge as places from top to bottom, points between layers included
    for parent in range(count):
        for child in circuit.children[circuit.offsets[parent] : circuit.offsets[parent + 1]].tolist():
            way = [parent]
            for level in range(height[parent] - 1, height[child], -1):
                way.append(len(below))
                below.append([])
                widths.append(-6.0)  # lines may run closer to each other than nodes
                layers[level].append(way[-1])
            ways.append([*way, child])
            for upper, lower in pairwise(ways[-1]):
                below[upper].append(lower)
    above: list[list[int]] = [[] for _ in below]
    for upper, lowers in enumerate(below):
        for lower in lowers:
            above[lower].append(upper)

    x = [0.0] * len(below)
    for layer in layers:
        _spread(layer, widths, x, list(range(len(layer))))
    for sweep in range(_SWEEPS):
        neighbours = above if sweep % 2 else below
        for layer in reversed(layers) if sweep % 2 else layers:
            wish = {n: sum(x[m] for m in neighbours[n]) / len(neighbours[n]) if neighbours[n] else x[n] for n in layer}
            layer.sort(key=wish.__getitem__)
            _spread(layer, widths, x, [wish[n] for n in layer])
    left = min(x[n] - widths[n] / 2 for n in range(len(x))) - _GAP
    x = [place - left for place in x]
    level_of = {n: level for level, layer in enumerate(layers) for n in layer}
    y = [60.0 + _LAYER * (len(layers) - 1 - level_of[n]) for n in range(len(x))]
    routes = [
        [(x[way[0]], y[way[0]] + 14), *((x[n], y[n]) for n in way[1:-1]), (x[way[-1]], y[way[-1]] - 14)] for way in ways
    ]
    return x[:count], y[:count], routes


def _spread(layer: list[int], widths: list[float], x: list[float], wish: list[float]) -> None:
    """Places in the order of the layer that are closest to the wishes (least squares) and keep the distance.

    Pool adjacent violators: without the distances, places need only ascend.
    """
    shift, blocks = 0.0, []  # blocks [sum of wishes, members]: all members share one place
    shifts = []
    for position, node in enumerate(layer):
        if position:
            shift += (widths[layer[position - 1]] + widths[node]) / 2 + _GAP
        shifts.append(shift)
        blocks.append([wish[position] - shift, 1])
        while len(blocks) > 1 and blocks[-2][0] / blocks[-2][1] > blocks[-1][0] / blocks[-1][1]:
            total, members = blocks.pop()
            blocks[-1][0] += total
            blocks[-1][1] += members
    places = [total / members for total, members in blocks for _ in range(members)]
    for node, place, distance in zip(layer, places, shifts):
        x[node] = place + distance
