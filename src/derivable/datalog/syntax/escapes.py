"""Escapes in texts and characters."""

from __future__ import annotations

import re
from collections.abc import Mapping

_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "0": "\0", '"': '"', "'": "'", "\\": "\\"}


def unescape(body: str, escapes: Mapping[str, str] = _ESCAPES) -> str:
    """The text between the quotes, escapes resolved. Raises ValueError, with its position, at a `\\` before anything
    else."""
    if "\\" not in body:
        return body

    def one(match: re.Match) -> str:
        if match.group(1) not in escapes:
            raise ValueError(match.start(), match.group())
        return escapes[match.group(1)]

    return _ESCAPE.sub(one, body)
