"""A sweep as a picture: a point for each design, and a line through those that no other beats."""

from __future__ import annotations

import math
from collections.abc import Iterator

from derivable.accelerator.designs.drawing import dot, logarithmic, text_at
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
    span_x, span_y = (_span([point.value(name) for point in of]) for name in (x, y))

    def across(value: float) -> float:
        return LEFT + logarithmic(value, *span_x) * (WIDTH - LEFT - RIGHT)

    def up(value: float) -> float:
        return HEIGHT - BOTTOM - logarithmic(value, *span_y) * (HEIGHT - TOP - BOTTOM)

    def at(point: Point) -> tuple[float, float]:
        return across(point.value(x)), up(point.value(y))

    def content() -> Iterator[str]:
        yield f"<style>{STYLE}</style>"
        yield f'<path class="axis" d="M{LEFT} {TOP}V{HEIGHT - BOTTOM}H{WIDTH - RIGHT}"/>'
        for value in _ticks(span_x):
            yield text_at(across(value), HEIGHT - BOTTOM + 18, f"{value:,.4g}", "middle")
        for value in _ticks(span_y):
            yield text_at(LEFT - 8, up(value) + 4, f"{value:,.4g}", "end")
        yield text_at(WIDTH - RIGHT, HEIGHT - 10, OBJECTIVES[x], "end")
        yield text_at(10, TOP - 6, OBJECTIVES[y])
        # A step from point to point: what lies to the right of it and above is beaten.
        corners = [at(point) for point in front]
        path = f"M{corners[0][0]:.1f} {corners[0][1]:.1f}"
        path += "".join(f"H{right:.1f}V{down:.1f}" for right, down in corners[1:])
        yield f'<path class="front" d="{path}"/>'
        for point in sorted(of, key=lambda point: id(point) in best):
            kind = "large" if point.share > 1 else "best" if id(point) in best else "other"
            yield dot(*at(point), kind, _title(point))

    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH:g} {HEIGHT:g}" role="img"'
    what = f"designs by {OBJECTIVES[x]} and {OBJECTIVES[y]}"
    return "\n".join([f'{head} aria-label="{safe(what)}">', *content(), "</svg>"]) + "\n"


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


def _ticks(span: tuple[float, float]) -> list[float]:
    """Round numbers, of which there are a few."""
    low, high = span
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    for steps in ((1,), (1, 3), (1, 2, 5), (1, 1.5, 2, 3, 4, 5, 6, 8)):
        ticks = [step * 10.0**decade for decade in decades for step in steps if low <= step * 10.0**decade <= high]
        if len(ticks) >= 3:
            return ticks
    return [low, math.sqrt(low * high), high]
