"""Files of facts."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace


@dataclass(frozen=True)
class CSVFileOptions:
    """A file that the facts of a relation are read from.

    path             of the file
    deliminator      one character between the columns; None for a comma
    has_header       whether the first line has names
    has_probability  whether the first column has probabilities
    keys             names of the columns that say whose values the others are
    fields           names of the columns to take
    """

    path: str
    deliminator: str | None = None
    has_header: bool = False
    has_probability: bool = False
    keys: Sequence[str] | None = None
    fields: Sequence[str] | None = None

    def with_deliminator(self, deliminator: str) -> CSVFileOptions:
        """The same file with another character between the columns."""
        return replace(self, deliminator=deliminator)

    def with_fields(self, fields: Sequence[str]) -> CSVFileOptions:
        """The same file, of which these columns are taken."""
        return replace(self, fields=fields)

    def with_keys(self, keys: Sequence[str]) -> CSVFileOptions:
        """The same file with these keys."""
        return replace(self, keys=keys)

    def attribute(self) -> str:
        """What the language says of such a file."""
        parts = [json.dumps(str(self.path)), f"header={str(self.has_header).lower()}"]
        parts.append(f"has_probability={str(self.has_probability).lower()}")
        if self.deliminator is not None:
            parts.append(f"deliminator={json.dumps(self.deliminator)}")
        for name, values in (("keys", self.keys), ("fields", self.fields)):
            if values is not None:
                listed = [values] if isinstance(values, str) else values
                parts.append(f"{name}=[{', '.join(map(json.dumps, listed))}]")
        return f"@file({', '.join(parts)})"
