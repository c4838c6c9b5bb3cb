"""Proofs and reasons in notebooks, and as pictures."""

from __future__ import annotations

from html import unescape

from derivable.core import html
from derivable.datalog.reasons.proof import Absence, Proof, line_text, node_text, reason_text

# Nodes of a notebook's tree, and of a picture; levels of the tree that are open.
MOST_SHOWN, MOST_DRAWN, OPEN_LEVELS = 500, 80, 4
_FILL = {
    "rule": "#3b82f6",
    "fact": "#10b981",
    "aggregate": "#f59e0b",
    "row": "#f59e0b",
    "absent": "#ef4444",
    "condition": "#9aa5b1",
    "chance": "#8b5cf6",
}
_ROW, _CHARACTER, _GAP = 30.0, 7.2, 34.0
_OPEN = ' open=""'
_INDENTED = "margin-left:0.5em;padding-left:1em;border-left:1px solid rgba(128,128,128,0.4)"


def proof_html(proof: Proof) -> str:
    """The tree, whose parts open at a click; what was shown before is not shown again."""
    parts: list[str] = []
    shown: set[int] = set()
    stack: list[tuple[Proof | str, int]] = [(proof, 0)]
    while stack:
        node, level = stack.pop()
        if isinstance(node, str):
            parts.append(node)
            continue
        text = f"<code>{html.safe(node_text(node), 200)}</code>"
        reason = reason_text(node)
        text += f" <small>{html.safe(reason, 300)}</small>" if reason else ""
        is_known = id(node) in shown and bool(node.premises)
        if is_known or not node.premises or len(shown) >= MOST_SHOWN:
            note = " <small>as above</small>" if is_known else " <small>…</small>" if node.premises else ""
            parts.append(f"<div>{text}{note}</div>")
            continue
        shown.add(id(node))
        parts.append(
            f'<details{_OPEN if level < OPEN_LEVELS else ""}><summary>{text}</summary><div style="{_INDENTED}">'
        )
        more = f"<div><small>… {node.more:,} more rows</small></div>" if node.more else ""
        stack.append((f"{more}</div></details>", level))
        stack += [(premise, level + 1) for premise in reversed(node.premises)]
    if not proof.is_least:
        parts.append("<div><small>the search ended before it was known that no proof is lower</small></div>")
    return f'<div style="overflow-x:auto;max-width:100%">{"".join(parts)}</div>'


def absence_html(absence: Absence) -> str:
    """For each rule the literals that hold and the one that fails."""
    parts = [f"<div><code>{html.safe(absence.text, 200)}</code> does not hold</div>"]
    if not absence.attempts:
        parts.append(f"<div>no rule has the head <code>{html.safe(absence.relation)}</code>, and it is no fact</div>")
    for attempt in absence.attempts:
        line = line_text(attempt.line, attempt.source)
        rows = [f"<li>holds: <code>{html.safe(text, 200)}</code></li>" for text in attempt.held]
        failed = attempt.failed
        shown = "the head does not fit" if failed is None else f"fails: <code>{html.safe(failed, 300)}</code>"
        inner = "" if attempt.because is None else attempt.because._repr_html_()
        rows.append(f"<li><b>{shown}</b>{inner}</li>")
        rule = f"<code>{html.safe(attempt.rule, 300)}</code><small>{html.safe(line)}</small>"
        parts.append(f'<details open=""><summary>{rule}</summary><ul>{"".join(rows)}</ul></details>')
    return f'<div style="overflow-x:auto;max-width:100%">{"".join(parts)}</div>'


def proof_svg(proof: Proof) -> str:
    """The tree from left to right, in the colour of the surrounding text, so it reads on light and dark pages."""
    boxes: list[tuple[int, float, str, str]] = []
    edges: list[tuple[int, int]] = []
    shown: set[int] = set()
    next_row = 0.0
    # (node, its level, its parent's box); a box gets its row when its premises have theirs.
    stack: list[tuple[Proof | int, int, int]] = [(proof, 0, -1)]
    below: dict[int, list[int]] = {}
    while stack:
        node, level, parent = stack.pop()
        if isinstance(node, int):
            rows = [boxes[box][1] for box in below[node]]
            level, _, text, kind = boxes[node]
            boxes[node] = level, (rows[0] + rows[-1]) / 2, text, kind
            continue
        number, text = len(boxes), node_text(node)
        premises = node.premises
        if premises and (id(node) in shown or len(boxes) >= MOST_DRAWN):
            text, premises = f"{text} …", ()
        shown.add(id(node))
        boxes.append((level, next_row, html.safe(text, 60), node.kind))
        if parent >= 0:
            edges.append((parent, number))
            below.setdefault(parent, []).append(number)
        if premises:
            stack.append((number, level, parent))
            stack += [(premise, level + 1, number) for premise in reversed(premises)]
        else:
            next_row += 1.0
    widths: dict[int, float] = {}
    for level, _, text, _ in boxes:
        widths[level] = max(widths.get(level, 0.0), _CHARACTER * len(unescape(text)) + 16.0)
    lefts, left = {}, 8.0
    for level in sorted(widths):
        lefts[level] = left
        left += widths[level] + _GAP
    parts = []
    for first, second in edges:
        (a, row, text, _), (b, other, *_) = boxes[first], boxes[second]
        start = lefts[a] + _CHARACTER * len(unescape(text)) + 16.0
        y, end = _ROW * (row + 0.5), _ROW * (other + 0.5)
        middle = lefts[b] - _GAP / 2
        parts.append(
            f'<path d="M{start:.0f} {y:.1f} H{middle:.0f} V{end:.1f} H{lefts[b]:.0f}" fill="none"'
            ' stroke="currentColor" stroke-opacity="0.4"/>'
        )
    for level, row, text, kind in boxes:
        x, y, width = lefts[level], _ROW * (row + 0.5), _CHARACTER * len(unescape(text)) + 16.0
        parts.append(
            f'<rect x="{x:.0f}" y="{y - 11:.1f}" width="{width:.0f}" height="22" rx="5" fill="{_FILL[kind]}"'
            f' fill-opacity="0.2" stroke="{_FILL[kind]}"/>'
            f'<text x="{x + 8:.0f}" y="{y + 4:.1f}" font-size="12" font-family="monospace" fill="currentColor">'
            f"{text}</text>"
        )
    size = f'width="{left:.0f}" height="{_ROW * max(1.0, next_row):.0f}"'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-label="a proof of {html.safe(proof.text)}">'
        f"{''.join(parts)}</svg>"
    )
