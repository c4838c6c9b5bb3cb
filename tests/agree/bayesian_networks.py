"""Bayesian networks in BIF files, as clauses with weights and as Datalog programs."""

from __future__ import annotations

import gzip
import itertools
import json
import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np


@dataclass(frozen=True)
class Network:
    """`tables[child]`: the parents, and for each tuple of parent states the child's distribution."""

    states: dict[str, list[str]]
    tables: dict[str, tuple[list[str], dict[tuple[str, ...], list[float]]]]


def read_bif(path: Path) -> Network:
    text = gzip.decompress(path.read_bytes()).decode()
    states = {
        name: [state.strip() for state in body.split(",")]
        for name, body in re.findall(r"variable\s+(\S+)\s*\{\s*type discrete \[ \d+ \] \{([^}]*)\}", text)
    }
    tables = {}
    for head, body in re.findall(r"probability\s*\(([^)]*)\)\s*\{([^}]*)\}", text):
        child, _, given = (part.strip() for part in head.partition("|"))
        parents = [parent.strip() for parent in given.split(",")] if given else []
        rows = {}
        for key, numbers in re.findall(r"(table|\([^)]*\))\s*([^;]*);", body):
            states_of_parents = () if key == "table" else tuple(part.strip() for part in key[1:-1].split(","))
            rows[states_of_parents] = [float(number) for number in numbers.split(",")]
        assert set(rows) == set(itertools.product(*(states[parent] for parent in parents)))
        tables[child] = (parents, rows)
    assert set(tables) == set(states)
    return Network(states, tables)


@dataclass(frozen=True)
class Clauses:
    """Darwiche's encoding: a variable for each state and for each number in a table.

    clauses    signed variables, counted from 1
    weights    [variable] of the positive literals; negative literals weigh one
    indicator  (node, state) -> variable
    """

    clauses: list[list[int]]
    weights: list[float]
    indicator: dict[tuple[str, str], int]


def to_clauses(network: Network) -> Clauses:
    indicator, weights, clauses = {}, [], []
    for node, states in network.states.items():
        own = []
        for state in states:
            weights.append(1.0)
            indicator[node, state] = len(weights)
            own.append(len(weights))
        clauses.append(own)
        clauses += [[-a, -b] for a, b in itertools.combinations(own, 2)]
    for child, (parents, rows) in network.tables.items():
        for given, numbers in rows.items():
            condition = [indicator[pair] for pair in zip(parents, given, strict=True)]
            for state, number in zip(network.states[child], numbers, strict=True):
                cause = [*condition, indicator[child, state]]
                if number == 0.0:
                    clauses.append([-literal for literal in cause])
                elif number != 1.0:
                    weights.append(number)
                    clauses.append([len(weights), *(-literal for literal in cause)])
                    clauses += [[-len(weights), literal] for literal in cause]
    return Clauses(clauses, weights, indicator)


def to_factors(network: Network) -> tuple[list[tuple[list[int], np.ndarray]], list[int]]:
    """(variables, table) of each node, parents first, and how many states each variable has."""
    number = {node: place for place, node in enumerate(network.states)}
    factors = []
    for child, (parents, rows) in network.tables.items():
        family = [*parents, child]
        in_order = [rows[key] for key in itertools.product(*(network.states[parent] for parent in parents))]
        table = np.array(in_order).reshape([len(network.states[node]) for node in family])
        factors.append(([number[node] for node in family], table))
    return factors, [len(states) for states in network.states.values()]


def relation_of(node: str) -> str:
    """The relation of a node in `to_program`."""
    return "node_" + re.sub(r"\W", "_", node).lower()


def to_program(network: Network, evidence: dict[str, str]) -> str:
    """A Datalog program: one exclusive fact a table row; `relation_of(node)` has the states of a node, given the
    evidence."""

    lines = []
    for child, (parents, rows) in network.tables.items():
        name = relation_of(child)
        columns = ", ".join(["String"] * (len(parents) + 1))
        lines += [f"type {name}(String)", f"type {name}_row({columns})"]
        for given, numbers in rows.items():
            facts = "; ".join(
                f"{number!r}::({', '.join(json.dumps(part) for part in (*given, state))})"
                for state, number in zip(network.states[child], numbers, strict=True)
            )
            lines.append(f"rel {name}_row = {{{facts}}}")
        variables = [f"v{position}" for position in range(len(parents))]
        body = [f"{relation_of(parent)}({variable})" for parent, variable in zip(parents, variables, strict=True)]
        body.append(f"{name}_row({', '.join([*variables, 's'])})")
        lines.append(f"rel {name}(s) = {', '.join(body)}")
    lines += [f"evidence {relation_of(node)}({json.dumps(state)})" for node, state in evidence.items()]
    lines += [f"query {relation_of(node)}" for node in network.states]
    return "\n".join(lines)
