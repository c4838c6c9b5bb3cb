"""`derivable run FILE.bif`: the posteriors of all variables of a network."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from derivable.cli.report import write_json
from derivable.core.diagnostics import DomainError, ParseError
from derivable.core.terminal import visible


def write_posteriors(file: str, evidence: Sequence[str], queries: Sequence[str], as_json: bool) -> None:
    """Print the probability of each value of each variable, or of those that queries name.

    evidence  `rain=yes`, or the name of a file of evidence in UAI's format
    """
    from derivable.circuit.queries.network import load_network

    files = [item for item in evidence if item.lower().removesuffix(".gz").endswith(".evid")]
    if len(files) > 1:
        raise DomainError(f"there are {len(files)} files of evidence", hint="give one")
    network = load_network(file, evidence=files[0] if files else None)
    observed: dict[str, str] = {}
    for item in evidence:
        if item in files:
            continue
        name, state = _split(item, network)
        if observed.setdefault(name, state) != state:
            raise DomainError(
                f"{name!r} was observed to be {observed[name]!r} and {state!r}", hint="remove one of them"
            )
    for query in queries:
        network.tables.variable(query)
    found = network.posteriors(observed)
    shown = {name: values for name, values in found.items() if not queries or name in queries}
    if as_json:
        write_json({"evidence": network.probability(observed), "posteriors": shown})
        return
    lines = [f"{p:.9g}::{visible(f'{name}={state}')}" for name, row in shown.items() for state, p in row.items()]
    click.echo("\n".join(lines))


def _split(item: str, network: Any) -> tuple[str, str]:
    """The variable and the value of `rain=yes`; either may have a `=` in its name."""
    places = [i for i, character in enumerate(item) if character == "="]
    if not places:
        raise ParseError(f"this is no evidence: {item!r}", hint="write -e 'variable=value'")
    for i in places:
        name, state = item[:i].strip(), item[i + 1 :].strip()
        if name in network.states and state in network.states[name]:
            return name, state
    name, state = item[: places[0]].strip(), item[places[0] + 1 :].strip()
    network.tables.state(network.tables.variable(name), state)
    return name, state
