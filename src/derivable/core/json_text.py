"""JSON of files, of which Python's reader passes over some faults."""

from __future__ import annotations

import json
from typing import Any


def json_of(text: str | bytes) -> Any:
    """What a text of JSON says.

    Raises json.JSONDecodeError for what is none, ValueError for a key that an object has twice, of which Python takes
    the last, and for what is nested too deep.

    >>> json_of('{"a": 1, "a": 2}')
    Traceback (most recent call last):
    ValueError: an object has the key "a" twice
    """
    try:
        return json.loads(text, object_pairs_hook=_object)
    except RecursionError:
        raise ValueError("it is nested too deep") from None


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) < len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise ValueError(f"an object has the key {json.dumps(twice)} twice")
    return made
