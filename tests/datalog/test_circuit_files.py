"""Circuits of exact runs on disk: what one process has compiled, another reads."""

from itertools import product

import networkx as nx
import numpy as np
import pytest
import torch

import derivable as dv
from derivable.datalog.exact import circuit_files, exact

EDGES = [(0, 1), (1, 2), (2, 3), (3, 0), (1, 3), (0, 2), (2, 4), (3, 4)]
WAYS = "type e(usize, usize) rel way(a, b) = e(a, b) rel way(a, c) = way(a, b), e(b, c) query way"
OBSERVED = WAYS + " evidence way(0, 4)"


@pytest.fixture
def compiled(tmp_path, monkeypatch):
    """What is compiled, circuits of earlier processes being in a folder of their own."""
    monkeypatch.setattr(circuit_files, "cache_directory", lambda: tmp_path)
    monkeypatch.setattr(circuit_files, "LEAST_NODES", 0)
    made, compile_it = [], exact._compiled

    def counted(*arguments):
        made.append(arguments[0].num_nodes)
        return compile_it(*arguments)

    monkeypatch.setattr(exact, "_compiled", counted)
    return made


def by_worlds(weights, edges=EDGES, seen=None):
    """P(way | what is seen) by pair of nodes, over all worlds."""
    found, total = {}, 0.0
    for world in product([False, True], repeat=len(edges)):
        there = [edge for edge, holds in zip(edges, world) if holds]
        graph = nx.DiGraph(there)
        closure = nx.transitive_closure(graph, reflexive=False)
        if seen is None or closure.has_edge(*seen):
            chance = np.prod([w if holds else 1 - w for w, holds in zip(weights, world)])
            total += chance
            for pair in closure.edges:
                found[pair] = found.get(pair, 0.0) + chance
    return {pair: chance / total for pair, chance in found.items()}


def run(weights, edges=EDGES, text=WAYS):
    """The same by a program that no other run has been of, as in another process."""
    result = dv.Program(text).run({"e": [*zip(weights, edges)]}, provenance="exact")["way"]
    return dict(result.items())


def assert_equal(found, expected):
    assert found.keys() == expected.keys()
    for pair in expected:
        assert found[pair] == pytest.approx(expected[pair], abs=1e-12)


WEIGHTS = np.linspace(0.2, 0.9, len(EDGES)).tolist()


@pytest.mark.parametrize(("text", "seen"), [(WAYS, None), (OBSERVED, (0, 4))], ids=["plain", "evidence"])
def test_a_second_process_compiles_nothing(text, seen, compiled):
    assert_equal(run(WEIGHTS, text=text), by_worlds(WEIGHTS, seen=seen))
    assert len(compiled) == 1
    # Probabilities are not in the file.
    others = WEIGHTS[::-1]
    assert_equal(run(others, text=text), by_worlds(others, seen=seen))
    assert len(compiled) == 1


def test_what_differs_is_compiled(compiled):
    run(WEIGHTS)
    assert_equal(run(WEIGHTS, text=OBSERVED), by_worlds(WEIGHTS, seen=(0, 4)))
    edges = [*EDGES[:-1], (4, 3)]
    assert_equal(run(WEIGHTS, edges), by_worlds(WEIGHTS, edges))
    assert len(compiled) == 3


def test_choices_are_part_of_what_is_compiled(compiled):
    """Two facts are independent, then alternatives: the derivations are the same."""
    text = "type c(usize), d(usize) rel {c} rel both() = c(0), (c(1) or d(0)) query both"
    independent = dv.Program(text.format(c="c = {0.4::0, 0.5::1} rel d = {0.5::0}")).run(provenance="exact")
    exclusive = dv.Program(text.format(c="c = {0.4::0; 0.5::1} rel d = {0.5::0}")).run(provenance="exact")
    assert [*independent["both"].values()] == [pytest.approx(0.4 * (1 - 0.5 * 0.5))]
    assert [*exclusive["both"].values()] == [pytest.approx(0.4 * 0.5)]
    assert len(compiled) == 2


def test_layers_have_the_same_values_and_gradients(compiled):
    def made():
        layer = dv.nn.Logic(
            WAYS.replace("query way", ""),
            inputs={"e": dv.independent(EDGES)},
            outputs={"way": [(0, 4), (4, 0), (1, 0)]},
            provenance="exact",
        )
        weights = torch.tensor([WEIGHTS, WEIGHTS[::-1]], dtype=torch.float64, requires_grad=True)
        values = layer(e=weights)
        values.sum().backward()
        return values.detach().numpy(), np.asarray(weights.grad)

    first, then = made(), made()
    assert len(compiled) == 1
    for a, b in zip(first, then):
        np.testing.assert_array_equal(a, b)
    assert first[0][0, 0] == pytest.approx(by_worlds(WEIGHTS)[0, 4], abs=1e-12)


def test_it_is_the_same_circuit(compiled, monkeypatch):
    circuits, stored_circuit = [], circuit_files.stored_circuit

    def listed(*arguments):
        circuits.append(stored_circuit(*arguments))
        return circuits[-1]

    monkeypatch.setattr(circuit_files, "stored_circuit", listed)
    run(WEIGHTS)
    run(WEIGHTS)
    first, then = circuits
    assert first is not then
    assert len(compiled) == 1
    for a, b in zip((*first.arrays, first.level_offsets), (*then.arrays, then.level_offsets)):
        assert a.dtype == b.dtype
        np.testing.assert_array_equal(a, b)
    assert (first.num_variables, first.origin, first.compilation) == (then.num_variables, then.origin, then.compilation)


@pytest.mark.parametrize("change", [lambda data: data[:-5], lambda data: b"no" + data, lambda data: b""])
def test_a_damaged_file_is_compiled_and_written_again(change, compiled, tmp_path):
    run(WEIGHTS)
    (path,) = (tmp_path / "circuits").iterdir()
    path.write_bytes(change(path.read_bytes()))
    assert_equal(run(WEIGHTS), by_worlds(WEIGHTS))
    run(WEIGHTS)
    assert len(compiled) == 2


def test_a_changed_byte_is_seen(compiled, tmp_path):
    run(WEIGHTS)
    (path,) = (tmp_path / "circuits").iterdir()
    data = bytearray(path.read_bytes())
    data[-20] ^= 1
    path.write_bytes(data)
    assert_equal(run(WEIGHTS), by_worlds(WEIGHTS))
    assert len(compiled) == 2


def test_another_version_of_the_library_compiles(compiled, monkeypatch):
    run(WEIGHTS)
    monkeypatch.setattr(circuit_files, "_stamp", lambda: "another")
    run(WEIGHTS)
    assert len(compiled) == 2


def test_where_nothing_can_be_written_each_process_compiles(compiled, tmp_path):
    (tmp_path / "circuits").touch()
    for _ in range(2):
        assert_equal(run(WEIGHTS), by_worlds(WEIGHTS))
    assert len(compiled) == 2


def test_the_files_that_were_not_read_for_longest_go(compiled, tmp_path, monkeypatch):
    import os

    monkeypatch.setattr(circuit_files, "MOST_FILES", 2)
    folder = tmp_path / "circuits"
    cases = [EDGES[:-1], EDGES[:-2]]
    for edges in cases:
        run(WEIGHTS[: len(edges)], edges)
    for age, path in enumerate(sorted(folder.iterdir(), key=lambda path: path.stat().st_mtime, reverse=True)):
        os.utime(path, (1e9 - age, 1e9 - age))
    # The first is the oldest, and is read now.
    run(WEIGHTS[: len(cases[0])], cases[0])
    run(WEIGHTS)
    assert len(list(folder.iterdir())) == 2
    run(WEIGHTS[: len(cases[0])], cases[0])
    assert len(compiled) == 3
    run(WEIGHTS[: len(cases[1])], cases[1])
    assert len(compiled) == 4


def test_files_take_no_more_than_they_may(compiled, tmp_path, monkeypatch):
    run(WEIGHTS)
    (path,) = (tmp_path / "circuits").iterdir()
    size = path.stat().st_size
    monkeypatch.setattr(circuit_files, "MOST_BYTES", size - 1)
    path.unlink()
    run(WEIGHTS)
    assert not path.exists()
    monkeypatch.setattr(circuit_files, "MOST_BYTES", 1 << 26)
    monkeypatch.setattr(circuit_files, "MOST_OF_ALL", size)
    run(WEIGHTS)
    run(WEIGHTS[:-1], EDGES[:-1])
    assert len(list((tmp_path / "circuits").iterdir())) == 1
