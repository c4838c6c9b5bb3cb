"""A sweep as a picture: a point for each design, and a line through those that no other beats."""

from __future__ import annotations

import math
from collections.abc import Iterator

from derivable.accelerator.designs.sweep import OBJECTIVES, Point, Sweep
from derivable.core.html import safe

WIDTH, HEIGHT = 720.0, 460.0
LEFT, RIGHT, TOP, BOTTOM = 90.0, 20.0, 20.0, 50.0
STYLE = (
    "text{font:12px system-ui,sans-serif;fill:#59636e}.axis{stroke:#aab3bd;fill:none}"
    ".front{stroke:#1f6feb;fill:none;stroke-width:1.5}.best{fill:#1f6feb}.other{fill:#9aa4af}"
    ".large{fill:none;stroke:#c9722b}"
)


def picture(of: Sweep, x: str, y: str) -> str:
    """The SVG of two objectives, both in logarithms. Grey: beaten in these two; rings: the device has no room."""
    front = of.pareto(x, y)
    best = {id(point) for point in front}
    spans = [_span([point.value(name) for point in of]) for name in (x, y)]

    def at(point: Point) -> tuple[float, float]:
        across, up = (_part(point.value(name), span) for name, span in zip((x, y), spans))
        return LEFT + across * (WIDTH - LEFT - RIGHT), HEIGHT - BOTTOM - up * (HEIGHT - TOP - BOTTOM)

    def content() -> Iterator[str]:
        yield f"<style>{STYLE}</style>"
        yield f'<path class="axis" d="M{LEFT} {TOP}V{HEIGHT - BOTTOM}H{WIDTH - RIGHT}"/>'
        for value in _ticks(spans[0]):
            place = LEFT + _part(value, spans[0]) * (WIDTH - LEFT - RIGHT)
            yield f'<text x="{place:.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">{value:,.4g}</text>'
        for value in _ticks(spans[1]):
            place = HEIGHT - BOTTOM - _part(value, spans[1]) * (HEIGHT - TOP - BOTTOM)
            yield f'<text x="{LEFT - 8}" y="{place + 4:.1f}" text-anchor="end">{value:,.4g}</text>'
        yield f'<text x="{WIDTH - RIGHT}" y="{HEIGHT - 10}" text-anchor="end">{safe(OBJECTIVES[x])}</text>'
        yield f'<text x="10" y="{TOP - 6}">{safe(OBJECTIVES[y])}</text>'
        # A step from point to point: what lies to the right of it and above is beaten.
        corners = [at(point) for point in front]
        path = f"M{corners[0][0]:.1f} {corners[0][1]:.1f}"
        path += "".join(f"H{across:.1f}V{up:.1f}" for across, up in corners[1:])
        yield f'<path class="front" d="{path}"/>'
        for point in sorted(of, key=lambda point: id(point) in best):
            across, up = at(point)
            kind = "large" if point.share > 1 else "best" if id(point) in best else "other"
            title = safe(_title(point), 300)
            yield f'<circle class="{kind}" cx="{across:.1f}" cy="{up:.1f}" r="4"><title>{title}</title></circle>'

    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH:g} {HEIGHT:g}" role="img"'
    label = f"designs by {OBJECTIVES[x]} and {OBJECTIVES[y]}"
    return "\n".join([f'{head} aria-label="{safe(label)}">', *content(), "</svg>"]) + "\n"


def _title(point: Point) -> str:
    made = point.design
    of = f"{made.height} x {made.width} x {made.sub_arrays}, {made.lanes} lanes, {made.exploration.mode}"
    memory = "" if point.bandwidth is None else f", {point.bandwidth / 1e9:g} GB/s"
    return f"{of}, {point.ports} ports{memory}: {point.cycles:,.0f} cycles, {point.energy:.4g} uJ, {point.share:.1%}"


def _span(values: list[float]) -> tuple[float, float]:
    """From a little below the least to a little above the largest; zeros are drawn as half of the least other, and
    what has no limit at the end."""
    positive = [value for value in values if 0 < value < math.inf] or [1.0]
    low, high = min(positive) / (2 if min(values) <= 0 else 1.05), max(positive) * 1.05
    return low, max(high, low * 1.2)


def _part(value: float, span: tuple[float, float]) -> float:
    low, high = span
    return math.log(min(max(value, low), high) / low) / math.log(high / low)


def _ticks(span: tuple[float, float]) -> list[float]:
    """Round numbers, of which there are a few."""
    low, high = span
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    for steps in ((1,), (1, 3), (1, 2, 5), (1, 1.5, 2, 3, 4, 5, 6, 8)):
        found = [step * 10.0**decade for decade in decades for step in steps if low <= step * 10.0**decade <= high]
        if len(found) >= 3:
            return found
    return [low, math.sqrt(low * high), high]
