"""HTML for notebooks: text made safe, and tables. Colours are the page's own, so light and dark themes both work."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence

MAX_CHARACTERS = 80


def safe(text: object, width: int = MAX_CHARACTERS) -> str:
    """The text as HTML: at most `width` characters, markup and characters without a glyph escaped."""
    whole = str(text)
    shown = whole if len(whole) <= width else whole[: width - 1] + "…"
    printable = (c if c.isprintable() else c.encode("unicode_escape").decode() for c in shown)
    return html.escape("".join(printable))


def table(header: Sequence[object], rows: Iterable[Sequence[object]]) -> str:
    """A table of texts, every cell made safe; it scrolls sideways where the page is too narrow."""

    def row(tag: str, cells: Sequence[object]) -> str:
        return "<tr>" + "".join(f'<{tag} style="text-align:left">{safe(cell)}</{tag}>' for cell in cells) + "</tr>"

    head = f"<thead>{row('th', header)}</thead>" if header else ""
    body = "".join(row("td", cells) for cells in rows)
    return f'<div style="overflow-x:auto;max-width:100%"><table>{head}<tbody>{body}</tbody></table></div>'
