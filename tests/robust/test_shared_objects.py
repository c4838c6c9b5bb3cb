"""One object in several threads: nothing is lost, and nothing ends the process."""

import copy
import multiprocessing
import os
import pickle
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import derivable as dv
from derivable.circuit.graph.builder import CircuitBuilder
from derivable.core.locks import OwnLock
from robust import workloads


def in_threads(work, count=4):
    """[thread] what `work(thread)` returns; all threads begin at once."""
    barrier = threading.Barrier(count)

    def run(thread):
        barrier.wait()
        return work(thread)

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(run, range(count)))


def random_nodes(builder, seed):
    rng = np.random.default_rng(seed)
    ids = [builder.literal(int(variable)) for variable in range(1, 40)]
    for number in range(1500):
        children = [ids[k] for k in rng.integers(0, len(ids), rng.integers(2, 6))]
        ids.append(builder.conjunction(children) if number % 2 else builder.disjunction(children))
    return ids


def test_one_builder_in_threads():
    shared = CircuitBuilder()
    found = in_threads(lambda thread: random_nodes(shared, thread % 2))
    assert found[0] == found[2]
    assert found[1] == found[3]
    for seed in (0, 1):
        alone = CircuitBuilder()
        expected = alone.build(random_nodes(alone, seed)[-30:])
        circuit = shared.build(found[seed][-30:])
        circuit.check()
        assert (circuit.num_nodes, circuit.num_edges) == (expected.num_nodes, expected.num_edges)
        weights = workloads.weights_of(circuit, 3)
        np.testing.assert_allclose(circuit.evaluate(weights), expected.evaluate(weights))


def test_a_builder_is_built_while_others_insert():
    shared = CircuitBuilder()
    root = shared.conjunction([shared.literal(1), shared.literal(2)])

    def work(thread):
        if thread:
            return random_nodes(shared, thread)
        return [shared.build([root]).model_count() for _ in range(100)]

    assert set(in_threads(work)[0]) == {1}


def test_one_item_memory_in_threads():
    torch = pytest.importorskip("torch")
    memory = dv.vsa.ItemMemory((64,), model="map", generator=0)
    vectors = {(t, i): dv.vsa.random(64, model="map", generator=1000 * t + i) for t in range(4) for i in range(60)}

    def work(thread):
        for i in range(60):
            memory.add(f"{thread}-{i}", vectors[thread, i])
            if i % 5 == 0:
                memory.nearest(vectors[thread, i])
        memory.remove(f"{thread}-7")

    in_threads(work)
    assert len(memory) == len(memory.vectors) == 4 * 59
    for (t, i), vector in vectors.items():
        assert (i == 7) != (f"{t}-{i}" in memory)
        assert i == 7 or torch.equal(memory[f"{t}-{i}"], vector)


CLOSURE = "type e(i32, i32)\nrel p(x, y) = e(x, y) or (p(x, z) and e(z, y))\nquery p"


def test_one_database_in_threads():
    program = dv.Program(CLOSURE)
    database = program.run({"e": [(0, 1)]}, keep=True)
    chains = [[(100 * t + i, 100 * t + i + 1) for i in range(12)] for t in range(4)]

    def work(thread):
        for edge in chains[thread]:
            database.add({"e": [edge]})
            assert edge in database["p"]
            assert edge in list(database["p"])
            assert edge in set(zip(*database["p"].to_arrow().to_pydict().values()))

    pytest.importorskip("pyarrow")
    in_threads(work)
    assert set(database["p"]) == set(program.run({"e": [(0, 1), *(edge for chain in chains for edge in chain)]})["p"])


def test_forks_of_one_database_in_threads():
    program = dv.Program(CLOSURE)
    base = program.run({"e": [(i, i + 1) for i in range(10)]}, keep=True)
    forks = [base.fork() for _ in range(4)]
    more = [[(10 + i, 11 + i) if i < 3 else (100 * t + i, 101 * t + i) for i in range(8)] for t in range(4)]

    def work(thread):
        for edge in more[thread]:
            forks[thread].add({"e": [edge]})
        return set(forks[thread]["p"])

    for edges, found in zip(more, in_threads(work)):
        assert found == set(program.run({"e": [(i, i + 1) for i in range(10)] + edges})["p"])


@pytest.mark.parametrize("provenance", ["unit", "minmaxprob", "exact"])
def test_one_program_in_threads(provenance):
    edges = [(0.5 + 0.1 * (i % 4), (i, (i * k + 1) % 12)) for i in range(12) for k in (2, 3) if (k == 2) or i % 2]
    program = dv.Program("type e(i32, i32)\nrel p(x, y) = e(x, y) or (p(x, z) and e(z, y) and x < 2)\nquery p")
    facts = {"e": [edge for _, edge in edges] if provenance == "unit" else edges}
    expected = dict(program.run(facts, provenance=provenance)["p"].items())
    for found in in_threads(lambda _: dict(program.run(facts, provenance=provenance)["p"].items())):
        assert found == pytest.approx(expected)


def test_queries_of_one_circuit_in_threads():
    def answers(circuit):
        weights = workloads.weights_of(circuit, 5)
        value, gradient = circuit.value_and_gradient(weights)[:2]
        return (
            circuit.model_count(),
            value.tobytes(),
            gradient.tobytes(),
            np.asarray(circuit.marginals(weights)).tobytes(),
            circuit.is_smooth,
            circuit.check_determinism().method,
        )

    expected = answers(workloads.wide_circuit(10, 1))
    shared = workloads.wide_circuit(10, 1)
    assert in_threads(lambda _: answers(shared)) == [expected] * 4


def test_a_lock_is_not_copied():
    builder = CircuitBuilder()
    node = builder.literal(3)
    with builder._lock:
        for copied in (copy.deepcopy(builder), pickle.loads(pickle.dumps(builder))):
            assert copied._lock is not builder._lock
            assert copied.literal(3) == node
            assert in_threads(lambda _, other=copied: other.literal(4), 2) == [node + 1] * 2


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_forked_child_does_not_wait_for_a_lock():
    lock, taken, done = OwnLock(), threading.Event(), threading.Event()

    def hold():
        with lock:
            taken.set()
            done.wait()

    holder = threading.Thread(target=hold)
    holder.start()
    taken.wait()
    try:
        child = multiprocessing.get_context("fork").Process(target=lock.__enter__)
        child.start()
        child.join(30)
        assert child.exitcode == 0
    finally:
        done.set()
        holder.join()
