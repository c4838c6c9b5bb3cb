"""Programs that are networks: their tables, made before grounding, against their ground derivations."""

from __future__ import annotations

import random

import numpy as np
import pytest

import derivable as dv
from derivable.core.diagnostics import DomainError
from derivable.datalog.exact import networks


def random_network(seed: int) -> str:
    """Nodes of one or two columns, or none, whose tables have rows that are missing, certain, impossible, alone, or in
    choices that are incomplete or for several rows of the nodes that they read."""
    rnd = random.Random(seed)
    lines, arities = list[str](), list[int]()

    def numbers(count: int, is_complete: bool) -> list[float]:
        parts = [rnd.choice([0.0, 1.0, rnd.random(), rnd.random()]) for _ in range(count)]
        total = sum(parts) or 1.0
        return [round(part / total * (1 if is_complete else 0.8), 3) for part in parts]

    for node in range(rnd.randint(2, 5)):
        arity = rnd.choice([0, 1, 1, 1, 2])
        values = [tuple(rnd.randrange(3) for _ in range(arity)) for _ in range(3 if arity else 1)]
        values = list(dict.fromkeys(values))
        parents = rnd.sample(range(node), min(node, rnd.randint(0, 2)))
        types = ", ".join(["u32"] * arity)
        lines.append(f"type n{node}({types})")
        if not parents and rnd.random() < 0.3:
            rows = [
                f"{p}::({', '.join(map(str, v))})" for p, v in zip(numbers(len(values), rnd.random() < 0.5), values)
            ]
            lines.append(f"rel n{node} = {{{'; '.join(rows)}}}")
            arities.append(arity)
            continue
        # Of a parent of two columns maybe one is read.
        terms = [[f"p{parent}_{c}" for c in range(arities[parent])] for parent in parents]
        read = [[t if rnd.random() < 0.8 else "_" for t in row] for row in terms]
        shared = [t for row in read for t in row if t != "_"]
        width = len(shared) + arity
        lines.append(f"type t{node}({', '.join(['u32'] * width)})")
        keys = {tuple(rnd.randrange(3) for _ in shared) for _ in range(3 ** len(shared))}
        waiting = list[tuple[int, ...]]()
        for key in sorted(keys):
            rows = [(*key, *value) for value in values]
            kind = rnd.random()
            if kind < 0.1:
                lines.append(
                    f"rel t{node} = {{{rows[0]}}}" if width > 1 else f"rel t{node}{str(rows[0]).replace(',', '')}"
                )
            elif kind < 0.2:
                shown = str(rows[0]) if width > 1 else str(rows[0]).replace(",", "")
                lines.append(f"rel t{node} = {{{round(rnd.random(), 3)}::{shown}}}")
            elif kind < 0.3:
                waiting += rows
            else:
                facts = [f"{p}::({', '.join(map(str, row))})" for p, row in zip(numbers(len(rows), kind < 0.8), rows)]
                lines.append(f"rel t{node} = {{{'; '.join(facts)}}}")
        if waiting or not keys:
            rows = waiting or [(0,) * width]
            facts = [f"{p}::({', '.join(map(str, row))})" for p, row in zip(numbers(len(rows), False), rows)]
            lines.append(f"rel t{node} = {{{'; '.join(facts)}}}")
        body = [f"n{parent}({', '.join(row)})" for parent, row in zip(parents, read)]
        head = [f"h{c}" for c in range(arity)]
        rnd.shuffle(body)
        body.insert(rnd.randint(0, len(body)), f"t{node}({', '.join(shared + head)})")
        lines.append(f"rel n{node}({', '.join(head)}) = {', '.join(body)}")
        arities.append(arity)
    for _ in range(rnd.choice([0, 0, 1, 2])):
        node = rnd.randrange(len(arities))
        row = ", ".join(str(rnd.randrange(3)) for _ in range(arities[node]))
        lines.append(f"evidence {rnd.choice(['', 'not '])}n{node}({row})")
    queried = rnd.sample(range(len(arities)), rnd.randint(1, len(arities)))
    return "\n".join([*lines, *(f"query n{node}" for node in queried)])


def answers(program: dv.Program, evidence: dict | None = None) -> dict | str:
    try:
        database = program.run(provenance="exact", evidence=evidence)
    except DomainError as error:
        return error.message
    rows = {name: dict(database[name].items()) for name in database}
    return {**rows, "evidence": {(): np.exp(database.log_evidence)}}


def check(text: str, monkeypatch) -> bool:
    """Whether it is a network; its answers are those of its ground derivations."""
    runs = list[bool]()
    run = networks.network_run

    def noted(*arguments):
        made = run(*arguments)
        runs.append(made is not None)
        return made

    with monkeypatch.context() as patch:
        patch.setattr(networks, "network_run", noted)
        program = dv.Program(text)
        first, again = answers(program), answers(program)
        assert len(runs) <= (1 if runs and runs[0] else 2) or isinstance(first, str)
        patch.setattr(networks, "network_run", lambda *_: None)
        expected = answers(dv.Program(text))
    if isinstance(expected, str) or isinstance(first, str):
        assert first == expected, text
        return bool(runs and runs[0])
    for name in expected:
        assert first[name].keys() == expected[name].keys() == again[name].keys(), (name, text)
        for row, p in expected[name].items():
            assert first[name][row] == pytest.approx(p, rel=1e-12, abs=1e-14), (name, row, text)
            assert again[name][row] == pytest.approx(p, rel=1e-12, abs=1e-14), (name, row, text)
    return bool(runs and runs[0])


def test_random_networks(monkeypatch):
    assert sum(check(random_network(seed), monkeypatch) for seed in range(12)) >= 6


@pytest.mark.slow
def test_many_random_networks(monkeypatch):
    assert sum(check(random_network(seed), monkeypatch) for seed in range(100, 500)) >= 200


@pytest.mark.parametrize("seed", range(6))
def test_outputs_are_observed_without_compiling_again(seed, monkeypatch):
    """Of ever other items, true and false, of rows that there are and are not, in any order."""
    text = "\n".join(line for line in random_network(seed).splitlines() if not line.startswith("evidence"))
    made = [0]
    run = networks.network_run

    def counted(*arguments):
        made[0] += 1
        return run(*arguments)

    monkeypatch.setattr(networks, "network_run", counted)
    program, ground = dv.Program(text), dv.Program(text)
    outputs = list(program.run(provenance="exact"))
    widths = {name: int(text.split(f"type {name}(")[1].split(")")[0].count("u32")) for name in outputs}
    rnd = random.Random(seed)
    for _ in range(12):
        evidence: dict[str, dict[tuple[int, ...], bool]] = {}
        for name in rnd.sample(outputs, rnd.randint(0, len(outputs))):
            row = tuple(rnd.randrange(4) for _ in range(widths[name]))
            evidence[name] = {row: rnd.random() < 0.6}
        found = answers(program, evidence)
        with monkeypatch.context() as patch:
            patch.setattr(networks, "network_run", lambda *_: None)
            expected = answers(ground, evidence)
        if isinstance(expected, str) or isinstance(found, str):
            assert found == expected
            continue
        assert found.keys() == expected.keys()
        for name, rows in expected.items():
            assert found[name] == pytest.approx(rows, rel=1e-12, abs=1e-14), (name, evidence, text)
    assert made[0] == 1


def test_what_is_no_output_is_observed_too():
    text = (
        "type a(u32), b(u32), t(u32, u32)\nrel a = {0.2::0; 0.8::1}\nrel t = {0.9::(0, 0); 0.1::(0, 1)}\n"
        "rel t = {0.3::(1, 0); 0.7::(1, 1)}\nrel b(y) = a(x), t(x, y)\nquery a\n"
    )
    program = dv.Program(text)
    for value, total in ((0, 0.2 * 0.9 + 0.8 * 0.3), (1, 0.2 * 0.1 + 0.8 * 0.7)):
        for _ in range(2):
            database = program.run(provenance="exact", evidence={"b": [value]})
            assert database["a"][(0,)] == pytest.approx(0.2 * (0.9, 0.1)[value] / total, rel=1e-12)
        both = program.run(provenance="exact", evidence={"a": {0: False}, "b": [value]})
        assert dict(both["a"].items()) == pytest.approx({(1,): 1.0})
        assert np.exp(both.log_evidence) == pytest.approx(0.8 * (0.3, 0.7)[value], rel=1e-12)
    with pytest.raises(DomainError, match=r"`evidence a\(5\)` holds in no world\n"):
        program.run(provenance="exact", evidence={"a": [5]})
    with pytest.raises(DomainError, match=r"`evidence not a\(1\)` holds in no world, given the items before it"):
        program.run(provenance="exact", evidence={"a": {0: False, 1: False}})
