"""Programs in ProbLog's language."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from derivable.core.diagnostics import DerivableError, ParseError, Span, UnsupportedError
from derivable.core.files import checked_path, followed, is_file
from derivable.datalog.api.conversion import problog_text
from derivable.datalog.api.program import Program
from derivable.datalog.problog.names import Shown
from derivable.datalog.problog.translate import translated
from derivable.datalog.scalars.nodes import walk
from derivable.datalog.syntax import nodes as s
from derivable.datalog.syntax.imports import read

if TYPE_CHECKING:
    from derivable.algebra.semiring import Semiring
    from derivable.datalog.api.database import Database
    from derivable.datalog.tags.custom import Provenance


# Rounds of a recursion that makes terms or numbers, after which it is taken for one without an end.
MOST_ROUNDS = 10_000


class ProblogProgram(Program):
    """A program whose text is in ProbLog's language; see `Program.from_problog`."""

    def run(
        self,
        facts: Mapping[str, Any] | None = None,
        provenance: str | Semiring | Provenance | None = None,
        **options: Any,
    ) -> Database:
        """As `Program.run`. Without a limit of rounds, a recursion that makes terms or numbers has one of 10,000."""
        if self.makes_values and options.get("round_limit") is None and options.get("iteration_limit") is None:
            options["round_limit"] = MOST_ROUNDS
        return super().run(facts, provenance, **options)

    def to_scallop(self) -> str:
        """The program in this library's language, as text with the comments of the original.

        Variables begin with small letters there, atoms are texts, and the outputs of queries such as
        `query(path(a, X))` have names such as `path_a_X`.
        """
        return problog_text(self.text, self.source, self._included())

    @cached_property
    def makes_values(self) -> bool:
        """Whether its rules make terms, or compute."""
        rules = [item for item in self.syntax.items if isinstance(item, s.Rule)]
        return any(isinstance(node, (s.New, s.Binary)) for rule in rules for node in walk(rule))

    def _parsed(self) -> s.Syntax:
        self.shown: Shown
        try:
            syntax, self.shown = translated(self.text, self.source, self._included())
        except RecursionError:
            raise UnsupportedError("a term of the program is nested too deep", source=self.source) from None
        return syntax

    def _included(self) -> Callable[[str, Span], tuple[str, str]]:
        """What reads the files that the program takes in, each of them once."""
        text, source, roots = self.text, self.source, self.roots
        folder = Path.cwd() if source.startswith("<") else Path(source).resolve().parent
        seen = set() if source.startswith("<") else {Path(source).resolve()}

        def include(name: str, span: Span) -> tuple[str, str]:
            path = followed(folder / checked_path(name))
            path = path if path.suffix or not path.name else path.with_suffix(".pl")
            message = hint = None
            if not roots.holds(path):
                message, hint = roots.refusal(path, "read")
            elif not is_file(path):
                message, hint = f"cannot find the file `{name}`", f"looked for {path}"
            if message is not None:
                raise ParseError(message, hint=hint, source=source, text=text, span=span)
            if path in seen:
                return "", name
            seen.add(path)
            try:
                return read(path), name
            except DerivableError as failed:
                message = f"cannot read the file `{name}`"
                raise ParseError(message, hint=failed.message, source=source, text=text, span=span) from None

        return include
