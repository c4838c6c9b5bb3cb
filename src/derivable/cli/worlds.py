"""What `derivable run --most-probable` and `--samples` print: worlds instead of probabilities."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import click

from derivable.cli.items import read_items
from derivable.cli.report import write_json
from derivable.core.terminal import visible

# Settings of a run that questions about worlds take, and what they are without an option.
_OTHER = {"iteration_limit": None, "round_limit": None, "tuple_limit": None, "stop_at_goal": False}


def write_worlds(
    program: Any,
    facts: Mapping[str, Any],
    settings: Mapping[str, Any],
    samples: int | None,
    over: Sequence[str],
    as_json: bool,
) -> None:
    """Print the most probable worlds, which say what the tuples of `over` are, or samples."""
    from derivable.core.diagnostics import UnsupportedError

    for name, default in _OTHER.items():
        if settings[name] != default:
            raise UnsupportedError(f"worlds take no --{name.replace('_', '-')}", hint="--time-limit, --memory-limit")
    if settings["provenance"] not in (None, "exact"):
        raise UnsupportedError(f"there are no worlds under {settings['provenance']!r}", hint="--provenance exact")
    limits = {name: settings[name] for name in ("time_limit", "memory_limit", "progress")}
    if samples is not None:
        worlds = program.sample(samples, facts, seed=settings["seed"], **limits)
    else:
        worlds = program.most_probable(facts, k=settings["k"] or 1, query=_tuples(program, over), **limits)
    if as_json:
        write_json({"log_evidence": worlds.log_evidence, "worlds": [_document(world) for world in worlds]})
    elif samples is not None:
        for world in worlds:
            shown = [_fact(program, name, row) for name in world for row in world[name]]
            click.echo(visible(", ".join(shown) or "-"))
    else:
        comment = "//" if _shown(program) is None else "%"
        for number, world in enumerate(worlds, 1):
            click.echo(f"{comment} world {number}: probability {world.probability:.9g}")
            for text in _texts(program, world):
                click.echo(visible(text))


def _document(world: Any) -> dict[str, Any]:
    facts = [
        {"relation": name, "tuple": list(row), "holds": holds}
        for name, rows in world.facts.items()
        for row, holds in rows.items()
    ]
    return {"probability": world.probability, "facts": facts, "rules": world.rules, "tuples": dict(world)}


def _shown(program: Any) -> Any:
    """How the file of a program writes its facts; None for one in this library's language."""
    return getattr(program, "shown", None)


def _fact(program: Any, name: str, row: tuple[Any, ...]) -> str:
    """A tuple of a relation or of an output, as the program's file writes it."""
    from derivable.datalog.values.terms import show_value

    shown = _shown(program)
    if shown is None:
        return f"{name.partition('(')[0]}({', '.join(map(show_value, row))})"
    return shown.fact(name, row, [t.name for t in program.lowered().relations[name].types])


def _texts(program: Any, world: Any) -> list[str]:
    """What holds in a world of the random facts and rules, and what does not."""
    if _shown(program) is None:
        return world.texts()
    facts = [(_fact(program, name, row), holds) for name, rows in world.facts.items() for row, holds in rows.items()]
    rules = [(f"({rule})", holds) for rule, holds in world.rules.items()]
    return [text if holds else f"\\+ {text}" for text, holds in facts + rules]


def _tuples(program: Any, over: Sequence[str]) -> dict[str, list[tuple[Any, ...]]] | None:
    """The tuples that --over names."""
    from derivable.core.diagnostics import DomainError

    found: dict[str, list[tuple[Any, ...]]] = {}
    for item in read_items(program, over, "--over"):
        if not item.is_true:
            raise DomainError("--over takes a tuple that may hold, and has no `not`", hint="--over 'alarm()'")
        found.setdefault(item.relation, []).append(item.row)
    return found or None
