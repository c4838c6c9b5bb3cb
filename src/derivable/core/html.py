"""HTML for notebooks: text made safe, and tables. Colours are the page's own, so light and dark themes both work."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

MAX_CHARACTERS, MAX_LINES = 80, 40
NEWLINE = "\n"


def safe(text: object, width: int = MAX_CHARACTERS) -> str:
    """The text as HTML: at most `width` characters, markup and characters without a glyph escaped."""
    import html

    whole = str(text)
    shown = whole if len(whole) <= width else whole[: width - 1] + "…"
    printable = (c if c.isprintable() else c.encode("unicode_escape").decode() for c in shown)
    return html.escape("".join(printable))


def block(text: str, num_lines: int = MAX_LINES) -> str:
    """The first lines of a text as they stand, made safe."""
    lines = text.strip("\n").split("\n")
    shown = [safe(line, 2 * MAX_CHARACTERS) for line in lines[:num_lines]]
    rest = len(lines) - num_lines
    more = [f"… {rest} more {'line' if rest == 1 else 'lines'}"] if rest > 0 else []
    return f'<pre style="overflow-x:auto">{NEWLINE.join([*shown, *more])}</pre>'


def table(header: Sequence[object], rows: Iterable[Sequence[object]], width: int = MAX_CHARACTERS) -> str:
    """A table of texts, every cell made safe, of at most `width` characters; it scrolls sideways where the page is too
    narrow.
    """

    def row(tag: str, cells: Sequence[object]) -> str:
        shown = (f'<{tag} style="text-align:left">{safe(cell, width)}</{tag}>' for cell in cells)
        return f"<tr>{''.join(shown)}</tr>"

    head = f"<thead>{row('th', header)}</thead>" if header else ""
    body = "".join(row("td", cells) for cells in rows)
    return f'<div style="overflow-x:auto;max-width:100%"><table>{head}<tbody>{body}</tbody></table></div>'
