"""Makes the house's docstrings into Markdown for the site.

A paragraph of aligned columns, a name and what it is,

    values   [edge, *batch] in the carrier
    returns  [segment, *batch]; an empty segment
             gives zero

becomes a list, `>>>` examples and indented code become code blocks. In everything else only `code` and the marks of
lists mean something to Markdown: `[axis][row]` is no link, and `size**3` is not bold.
"""

from __future__ import annotations

import re
import textwrap

import griffe

GAP = re.compile(r"(?P<name>\S(?:.*?\S)?)(?P<gap>\s{2,})(?P<text>\S.*)")
NAMES = re.compile(r"[a-z_]\w*(?:, \w+)*", re.IGNORECASE)


def escaped(text: str) -> str:
    """The text with each character that Markdown would read as emphasis, a link or HTML escaped, outside of code."""
    found = re.split(r"(`[^`]*`)", text)
    found[::2] = [re.sub(r"([*\[\]_#])", r"\\\1", part).replace("<", "&lt;") for part in found[::2]]
    return "".join(found)


def column_of(lines: list[str]) -> int | None:
    """Where the descriptions of a paragraph of aligned columns begin, by its first line with a gap of two spaces."""
    for line in lines:
        if not line.startswith(" ") and (match := GAP.fullmatch(line)):
            return match.start("text")
    return None


def entries(lines: list[str]) -> list[tuple[str, list[str]]] | None:
    """The (name, lines of text) pairs of a paragraph of aligned columns; None if it is none.

    The longest name may have one space behind it only, and a name longer than its column has its text on the next line.
    """
    column = column_of(lines)
    if column is None:
        return None
    found: list[tuple[str, list[str]]] = []
    for number, line in enumerate(lines):
        following = lines[number + 1] if number + 1 < len(lines) else ""
        if line.startswith(" "):
            if not found or not line[:column].isspace():
                return None
            found[-1][1].append(line[column:])
        elif match := GAP.fullmatch(line):
            found.append((match["name"], [match["text"]]))
        elif line[column - 1 : column + 1].startswith(" ") and NAMES.fullmatch(line[: column - 1]):
            found.append((line[: column - 1], [line[column:]]))
        elif following.startswith(" " * column) and NAMES.fullmatch(line):
            found.append((line, []))
        else:
            return None
    return found


def parts(lines: list[str]) -> list[list[str]]:
    """A paragraph cut before and behind the aligned columns in it, if only plain lines stand before or behind them."""
    if column_of(lines) is None:
        return [lines]
    for length in range(len(lines), 0, -1):
        for first in range(len(lines) - length + 1):
            inner = lines[first : first + length]
            if not inner[0].startswith(" ") and entries(inner):
                around = [lines[:first], inner, lines[first + length :]]
                return [part for part in around if part]
    return [lines]


def listed(pairs: list[tuple[str, list[str]]]) -> str:
    """A Markdown list; a description that is a paragraph of aligned columns itself becomes a list within."""
    written = []
    for name, lines in pairs:
        inner = entries(lines)
        if inner is None:
            written.append(f"- `{name.strip('`')}`: {escaped(' '.join(line.strip() for line in lines))}")
        else:
            written.append(f"- `{name.strip('`')}`:\n\n{textwrap.indent(listed(inner), '    ')}\n")
    return "\n".join(written).rstrip("\n")


def paragraphs(text: str) -> list[list[str]]:
    """The lines of each paragraph; an example in `>>>` begins one, aligned columns are one."""
    found: list[list[str]] = [[]]
    for line in text.split("\n"):
        if not line.strip():
            found.append([])
        elif line.startswith(">>>") and found[-1] and not found[-1][0].startswith(">>>"):
            found.append([line])
        else:
            found[-1].append(line.rstrip())
    return [part for lines in found if lines for part in ([lines] if is_code(lines) else parts(lines))]


def is_code(lines: list[str]) -> bool:
    return lines[0].startswith(">>>") or all(line.startswith("    ") for line in lines)


def to_markdown(text: str) -> str:
    written: list[str] = []
    for lines in paragraphs(text):
        if lines[0].startswith(">>>"):
            written.append("```pycon\n" + "\n".join(lines) + "\n```")
        elif is_code(lines):
            written.append("```python\n" + textwrap.dedent("\n".join(lines)) + "\n```")
        elif pairs := entries(lines):
            written.append(listed(pairs))
        else:
            written.append("\n".join(escaped(line) for line in lines))
    return "\n\n".join(written)


class HouseDocstrings(griffe.Extension):
    """Rewrites each docstring as it is collected."""

    def on_instance(self, *, obj: griffe.Object, **kwargs) -> None:
        if obj.docstring is not None:
            obj.docstring.value = to_markdown(obj.docstring.value)
