"""Parts of pictures (SVG) that a report and a sweep draw alike."""

from __future__ import annotations

import math

from derivable.core.html import safe


def text_at(x: float, y: float, content: object, anchor: str = "start", kind: str = "") -> str:
    """A line of text whose start, middle or end is at x; `kind` is its class."""
    kind = f' class="{kind}"' if kind else ""
    return f'<text{kind} x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{safe(content)}</text>'


def dot(x: float, y: float, kind: str, title: str) -> str:
    """A point of a class, with a title that shows when a pointer is over it."""
    return f'<circle class="{kind}" cx="{x:.1f}" cy="{y:.1f}" r="4"><title>{safe(title, 200)}</title></circle>'


def logarithmic(value: float, low: float, high: float) -> float:
    """Where a value is on a logarithmic axis: from 0 at `low` and below to 1 at `high` and above."""
    return math.log(min(max(value, low), high) / low) / math.log(high / low)
