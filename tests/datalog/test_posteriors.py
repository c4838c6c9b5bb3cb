"""Many outputs as derivatives of one root, against sums over all worlds."""

import itertools
import math

import numpy as np
import pytest

import derivable as dv
from datalog.observers import results_of
from derivable.circuit.compilation import choice
from derivable.datalog.exact import evidence as conditioned
from derivable.datalog.exact import exact, networks
from derivable.datalog.run.execute import Executor


def network(seed):
    """A program of nodes of two or three states, each with up to two parents, as choices; and the joint distribution
    {states: probability}."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(2, 4, 5).tolist()
    lines, tables = [], []
    for child, size in enumerate(sizes):
        parents = rng.permutation(child)[: rng.integers(0, 3)].tolist()
        table = {}
        for states in itertools.product(*(range(sizes[parent]) for parent in parents)):
            numbers = rng.dirichlet(np.ones(size))
            # Some states are impossible.
            numbers[rng.integers(size)] *= rng.integers(2)
            numbers /= numbers.sum()
            table[states] = numbers
            # What is left of one to a rounding belongs to the last.
            facts = "; ".join(f"{p!r}::({', '.join(map(str, (*states, k)))})" for k, p in enumerate(numbers.tolist()))
            lines.append(f"rel row_{child} = {{{facts}}}")
        names = [f"v{parent}" for parent in parents]
        body = [f"node_{parent}({name})" for parent, name in zip(parents, names)]
        body.append(f"row_{child}({', '.join([*names, 's'])})")
        lines.append(f"rel node_{child}(s) = {', '.join(body)}")
        lines.append(f"query node_{child}")
        tables.append((parents, table))
    joint = {}
    for states in itertools.product(*map(range, sizes)):
        joint[states] = math.prod(
            float(table[tuple(states[parent] for parent in parents)][states[child]])
            for child, (parents, table) in enumerate(tables)
        )
    return "\n".join(lines), joint


@pytest.fixture
def derivatives(monkeypatch):
    """Whether each circuit that is made has one root for all outputs."""
    found = []

    def note(circuit):
        found.append(circuit.num_roots == 1)

    # Of ground derivations, however small.
    monkeypatch.setattr(networks, "network_run", lambda *_: None)
    monkeypatch.setattr(choice, "SMALL_VARIABLES", 0)
    with results_of(exact, "circuit_of", note), results_of(conditioned, "circuit_of", note):
        yield found


def agrees_with_worlds(seed, rare):
    text, joint = network(seed)
    program = dv.Program(f"{text}\nrel {rare}::rare()")
    rng = np.random.default_rng(seed)
    for count in (0, 1, 2):
        nodes = rng.permutation(5)[:count].tolist()
        states = {node: int(rng.integers(2)) for node in nodes}
        is_true = {node: bool(rng.integers(2)) for node in nodes}
        fits = {w: p for w, p in joint.items() if all((w[n] == states[n]) == is_true[n] for n in nodes)}
        total = sum(fits.values())
        evidence = {f"node_{node}": {states[node]: is_true[node]} for node in nodes}
        if nodes:
            evidence["rare"] = True
        if total == 0.0:
            with pytest.raises(dv.DerivableError, match="evidence is impossible"):
                program.run(evidence=evidence)
            continue
        database = program.run(evidence=evidence)
        if nodes:
            assert database.log_evidence == pytest.approx(math.log(total) + math.log(rare), rel=1e-13, abs=1e-12)
        for node in range(5):
            shares = dict(zip(database[f"node_{node}"], database[f"node_{node}"].tag_list()))
            expected = {s: sum(p for w, p in fits.items() if w[node] == s) / total for s in range(3)}
            assert shares == pytest.approx({(s,): p for s, p in expected.items() if p > 0}, abs=1e-12)


@pytest.mark.parametrize("rare", [1.0, 1e-250])
@pytest.mark.parametrize("seed", range(8))
def test_networks_agree_with_worlds(seed, rare, derivatives):
    """Also where a root is so improbable that logarithms of it are derived."""
    agrees_with_worlds(seed, rare)
    # Without evidence, what is proved to be decomposable stays as it is.
    assert any(derivatives)
    assert all(derivatives[1:])


@pytest.mark.parametrize("rare", [1.0, 1e-250])
@pytest.mark.parametrize("seed", range(8))
def test_networks_before_grounding_agree_with_worlds(seed, rare, calls_of):
    grounded = calls_of(Executor, "run", lambda executor: executor.ram)
    agrees_with_worlds(seed, rare)
    assert not grounded


def test_outputs_that_are_improbable_are_possible(derivatives):
    """A tuple whose probability underflows is in some world, and one whose facts have probability 0 is in none."""
    chain = "\n".join(f"rel 1e-200::low_{i}() = high_{i}()" for i in range(3))
    highs = "rel 0.5::high_0()\nrel high_1() = low_0()\nrel high_2() = low_1(), other()\n"
    outputs = ["low_0", "low_1", "low_2", "high_0", "high_1", "high_2", "other", "never", "once"]
    text = f"{highs}{chain}\nrel 0.5::other()\nrel 0.0::never()\nrel once() = high_0(), other() or low_0()\n"
    database = dv.Program(text + "\n".join(f"query {name}" for name in outputs)).run()
    assert derivatives == [True]
    shown = {name: database[name].tag_list() for name in outputs}
    assert shown["low_1"] == [0.0]
    assert shown["low_2"] == [0.0]
    assert shown["never"] == []
    assert shown["once"] == pytest.approx([0.25])
