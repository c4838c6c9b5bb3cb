"""Programs in Soufflé's language."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from derivable.datalog.api.conversion import souffle_text
from derivable.datalog.api.database import Database
from derivable.datalog.api.program import Program
from derivable.datalog.souffle.load import Loaded, load
from derivable.datalog.souffle.read import read_inputs
from derivable.datalog.souffle.write import write_outputs
from derivable.datalog.syntax import nodes as s


class SouffleProgram(Program):
    """A program whose text is in Soufflé's language; see `Program.from_souffle`."""

    def __init__(
        self,
        text: str,
        source: str = "<program>",
        *,
        macros: Mapping[str, str] | None = None,
        functors: Mapping[str, Callable[..., Any]] | None = None,
        word: int = 32,
        roots: Sequence[str | os.PathLike] | None = None,
    ):
        self.macros, self.functors, self.word = macros, functors, word
        super().__init__(text, source, roots=roots)

    def _parsed(self) -> s.Syntax:
        self.loaded: Loaded = load(self.text, self.source, self.macros, self.functors, self.word, self.roots)
        return self.loaded.syntax

    def run(self, facts: Mapping[str, Any] | None = None, *arguments: Any, **options: Any) -> Database:
        """As `Program.run`; facts of a relation that does not keep all rows are chosen too."""
        if facts is not None and not self.loaded.facts_of.keys().isdisjoint(facts):
            facts = {self.loaded.facts_of.get(name, name): rows for name, rows in facts.items()}
        return super().run(facts, *arguments, **options)

    def to_scallop(self) -> str:
        """The program in this library's language, as text with the comments of the original.

        Names that it cannot have become others, `air.edge` for one `air_edge`, and integers wrap around by functions
        such as `$wrapping_add`. Functors are functions that Python has to give. Raises UnsupportedError for a
        directive that the text cannot say, such as `IO=sqlite`, with its line.
        """
        return souffle_text(self.text, self.source, self.macros, self.word, self.roots)

    def read(self, folder: str | os.PathLike = ".") -> dict[str, Any]:
        """Relation -> the facts that its `.input` names, for `run`; files are relative to `folder`.

        Raises DomainError for a directive that cannot be followed, with its span, and ParseError for a file that is
        wrong, with its line.
        """
        return read_inputs(self.loaded, folder, self.roots)

    def write(self, database: Mapping[str, Any], folder: str | os.PathLike | None = ".") -> list[Path]:
        """Write each `.output` of a run as Soufflé writes it, into `folder`, and print each `.printsize`.

        folder  None prints all outputs, as Soufflé does for `-D-`

        Returns the files. Raises DomainError for a directive that cannot be followed, with its span.
        """
        return write_outputs(self.loaded, database, folder, self.roots)

    def print_sizes(self, database: Mapping[str, Any]) -> None:
        """Print each `.printsize` of a run."""
        write_outputs(self.loaded, database, None, self.roots, kinds=("printsize",))
