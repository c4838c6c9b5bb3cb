"""Tuples as options and files write them: items of evidence in the language of a program."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def evidence_text(items: Sequence[str], option: str, is_problog: bool) -> str:
    """The items as text of a program, each of which is one tuple and nothing else."""
    if is_problog:
        return "".join(f"\nevidence({item})." for item in items)
    from derivable.core.diagnostics import ParseError
    from derivable.datalog.syntax.nodes import Evidence
    from derivable.datalog.syntax.parse import parse

    for item in items:
        if not all(isinstance(part, Evidence) for part in parse(f"evidence {item}", option).items):
            raise ParseError(
                f"this is more than one tuple of {option}: {item!r}", hint="-e 'alarm()', -e 'not calls(\"Ada\")'"
            )
    return "".join(f"\nevidence {item}" for item in items) + "\n" * bool(items)


def read_items(program: Any, items: Sequence[str], option: str) -> Sequence[Any]:
    """The `Evidence` of each item; names of constants, enums and terms are those of the program."""
    from derivable.core.diagnostics import UnsupportedError
    from derivable.datalog.api.problog_program import ProblogProgram

    if not items:
        return ()
    text = evidence_text(items, option, isinstance(program, ProblogProgram))
    evidence_items = program._with_text(program.text + text).evidence[len(program.evidence) :]
    relations = program.lowered().relations
    for item, evidence in zip(items, evidence_items):
        if evidence.relation not in relations:
            message = f"the predicate of {option} {item!r} is computed on demand, and has no tuples to name"
            raise UnsupportedError(message, hint="write it as `evidence` in the program, or a rule without demand")
    return evidence_items
