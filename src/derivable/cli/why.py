"""What `derivable run --why` and `--why-not` print: proofs, and how far rules come, instead of relations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import click

from derivable.cli.items import read_items
from derivable.cli.report import write_json
from derivable.core.terminal import visible


def write_reasons(
    program: Any,
    database: Any,
    why: Sequence[str],
    why_not: Sequence[str],
    k: int | None,
    depth: int,
    as_json: bool,
    settings: Mapping[str, Any],
) -> None:
    """Print the proofs of some atoms, and why others do not hold, each within the limits of the settings."""
    limits: dict[str, Any] = {name: settings[name] for name in ("time_limit", "memory_limit", "progress")}
    found = [database.why(*question, k=k, **limits) for question in _questions(program, why, "--why")]
    found += [
        database.why_not(*question, depth=depth, **limits) for question in _questions(program, why_not, "--why-not")
    ]
    if as_json:
        write_json([one.to_dict() for one in found])
        return
    for number, one in enumerate(found):
        if number:
            click.echo()
        click.echo(visible(str(one)))


def _questions(program: Any, atoms: Sequence[str], option: str) -> list[tuple[str, tuple[Any, ...]]]:
    """(relation, row) of each atom that an option names."""
    from derivable.datalog.api.program import Program

    items = [_item(atom, option) for atom in atoms]
    if type(program) is Program:
        return [(item.relation, item.row) for item in read_items(program, atoms, option)]
    return [(item.relation, tuple(_value(a, atom, option) for a in item.arguments)) for item, atom in zip(items, atoms)]


def _item(atom: str, option: str) -> Any:
    from derivable.core.diagnostics import ParseError
    from derivable.datalog.syntax.nodes import Evidence
    from derivable.datalog.syntax.parse import parse

    items = parse(f"evidence {atom}", option).items
    if len(items) != 1 or not isinstance(items[0], Evidence) or not items[0].is_true:
        raise ParseError(f"{option} takes one tuple, not {atom!r}", hint=f"{option} 'path(0, 1)'")
    return items[0]


def _value(argument: Any, atom: str, option: str) -> Any:
    """The value of a constant of a program in another language."""
    from derivable.core.diagnostics import UnsupportedError
    from derivable.datalog.syntax import nodes as s

    match argument:
        case s.Constant(value=value):
            return value
        case s.Unary(operator="-", operand=s.Constant(value=value)):
            return -value
        case s.Variable(name=name):
            return name
    raise UnsupportedError(f"{option} {atom!r} has an argument that is no constant", hint="ask from Python")
