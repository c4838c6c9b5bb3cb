"""Texts of others on a terminal, which obeys what it takes for commands: titles, colours, places of the cursor."""

from __future__ import annotations

_PICTURES = {
    **{code: 0x2400 + code for code in range(32) if chr(code) not in "\t\n"},
    0x7F: 0x2421,
    # Controls, and what turns the order of letters round.
    **dict.fromkeys((*range(0x80, 0xA0), *range(0x202A, 0x202F), *range(0x2066, 0x206A)), 0xFFFD),
}


def visible(text: str) -> str:
    """A text with a picture for each control character, such as ␛ for ESC, but for tabs and ends of lines.

    >>> visible("a\\x1b[31mb")
    'a␛[31mb'
    """
    return text if text.isprintable() else text.translate(_PICTURES)
