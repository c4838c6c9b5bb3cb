"""Makes the house's docstrings into Markdown for the site.

A paragraph of aligned columns, a name and what it is,

    values   [edge, *batch] in the carrier
    returns  [segment, *batch]; an empty segment
             gives zero

becomes a list; `>>>` examples become code blocks. Everything else is Markdown already.
"""

from __future__ import annotations

import re

import griffe

ENTRY = re.compile(r"(?P<name>\S(?:.*?\S)?)\s{2,}(?P<text>\S.*)")


def escaped(text: str) -> str:
    """Keep Markdown from reading `*batch` as emphasis and `[n]` as a link, outside of code."""
    parts = re.split(r"(`[^`]*`)", text)
    return "".join(part if part.startswith("`") else re.sub(r"([*\[\]_<>])", r"\\\1", part) for part in parts)


def entries(lines: list[str]) -> list[tuple[str, str]] | None:
    """The (name, text) pairs of a paragraph of aligned columns; None if it is none."""
    found: list[tuple[str, str]] = []
    for line in lines:
        match = ENTRY.fullmatch(line)
        if match and not line.startswith(" "):
            found.append((match["name"], match["text"]))
        elif line.startswith(" ") and found:
            found[-1] = (found[-1][0], f"{found[-1][1]} {line.strip()}")
        else:
            return None
    return found


def to_markdown(text: str) -> str:
    paragraphs = re.split(r"\n[ \t]*\n", text)
    written = []
    for paragraph in paragraphs:
        lines = paragraph.rstrip().split("\n")
        if lines[0].startswith(">>>"):
            written.append("```pycon\n" + "\n".join(lines) + "\n```")
        elif pairs := entries(lines):
            written.append("\n".join(f"- `{name.strip('`')}`: {escaped(description)}" for name, description in pairs))
        else:
            written.append(paragraph)
    return "\n\n".join(written)


class HouseDocstrings(griffe.Extension):
    """Rewrites each docstring as it is collected."""

    def on_instance(self, *, obj: griffe.Object, **kwargs) -> None:
        if obj.docstring is not None:
            obj.docstring.value = to_markdown(obj.docstring.value)
