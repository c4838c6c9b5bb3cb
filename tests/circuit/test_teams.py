"""One row by several threads: agreement with one thread and with the reference, same bits, late and absent members."""

import multiprocessing
import threading
import time
from functools import partial
from typing import Any, ClassVar

import numpy as np
import pytest

from circuit.decimal_circuits import random_circuit
from derivable.algebra import semirings
from derivable.circuit import evaluate as module
from derivable.circuit import plan as plans
from derivable.circuit.builder import CircuitBuilder
from derivable.circuit.evaluate import evaluate, value_and_gradient
from derivable.circuit.plan import plan_of
from derivable.core.diagnostics import DomainError
from derivable.device.cpu import threads
from derivable.device.cpu.levels import backward, forward
from derivable.device.cpu.levels_plan import COUNT, FACTORS, FIRST, PAIRS, SINGLES, START
from derivable.device.cpu.levels_team import (
    CLOSED,
    GATE,
    close,
    cut_program,
    fold_forward,
    follow,
    lead_forward,
    new_state,
    work,
)
from derivable.parallel.levels import fold_levels, fold_levels_vjp


@pytest.fixture(autouse=True)
def _small_teams(monkeypatch):
    """Circuits of any size are computed by a team, always, and cut into small pieces."""
    before = threads.get_num_threads()
    threads.set_num_threads(2)
    monkeypatch.setattr(module, "_WORTH_A_TEAM", 1)
    monkeypatch.setattr(plans, "_CHUNK", 40)
    monkeypatch.setattr(plans, "_SMALLEST_LEVEL", 20)
    monkeypatch.setattr(threads.Pace, "with_team", lambda self: True)
    yield
    threads.set_num_threads(before)


@pytest.fixture
def teams(monkeypatch):
    """The number of members of each team that is made."""
    sizes = []
    made = threads.Team.__init__

    def spy(self, function, members):
        sizes.append(members)
        made(self, function, members)

    monkeypatch.setattr(threads.Team, "__init__", spy)
    return sizes


class Absent:
    """A team whose other members never come."""

    def __init__(self, function, members):
        pass

    def __enter__(self):
        return self

    def __exit__(self, *_):
        return None


class Late:
    """A team whose other members come when the call has long returned; `join` lets them."""

    waiting: ClassVar[list] = []

    def __init__(self, function, members):
        self.waiting.append([partial(function, member) for member in range(1, members)])

    def __enter__(self):
        return self

    def __exit__(self, *_):
        return None


def drawn(rng, name, shape, dtype="float64"):
    weights = rng.uniform(0.05, 0.95, (2, *shape))
    return (np.log(weights) if name == "log" else weights).astype(dtype)


def wide(seed, num_roots=1, num_inner=300):
    return random_circuit(np.random.default_rng(seed), 12, num_inner, num_roots=num_roots, widest=6)


@pytest.mark.parametrize("members", [2, 3])
@pytest.mark.parametrize("seed", range(6))
def test_a_cut_program_is_the_program(members, seed):
    """Every slot once, in order, with its operands; no chunk reads what another one of its phase writes."""
    plan = plan_of(wide(seed, 3))
    runs, cuts, heads, shared = cut_program(plan.runs, plan.terms, members, 30, 15)

    def slots(rows):
        found = []
        for run in rows.tolist():
            width = 2 * run[PAIRS] + run[SINGLES] + run[FACTORS]
            for k in range(run[COUNT]):
                operands = plan.terms[run[START] + k * width : run[START] + (k + 1) * width].tolist()
                found.append((run[FIRST] + k, run[PAIRS], run[SINGLES], run[FACTORS], operands))
        return found

    assert slots(runs) == slots(plan.runs)
    assert cuts[0] == heads[0] == 0
    assert cuts[-1] == len(runs)
    assert heads[-1] == len(cuts) - 1
    assert (np.diff(cuts) >= 0).all()
    assert (np.diff(heads) >= 0).all()
    costs = 0
    for phase in range(0, len(heads) - 1, members):
        chunks = [slots(runs[cuts[c] : cuts[c + 1]]) for c in range(heads[phase], heads[phase + members])]
        if len(chunks) == 1:
            continue
        written = {slot[0] for chunk in chunks for slot in chunk}
        assert not any(written.intersection(slot[4]) for chunk in chunks for slot in chunk)
        costs += sum(2 + len(slot[4]) for chunk in chunks for slot in chunk)
    assert costs == shared > 0


@pytest.mark.parametrize("members", [2, 3])
@pytest.mark.parametrize("batch", [1, 5])
@pytest.mark.parametrize("dtype", [pytest.param("float32", marks=pytest.mark.slow), "float64"])
@pytest.mark.parametrize("name", ["real", "log"])
def test_teams_agree_with_the_reference(name, dtype, batch, members, teams):
    tolerance: Any = {"rtol": 1e-9, "atol": 1e-11} if dtype == "float64" else {"rtol": 2e-4, "atol": 2e-4}
    for seed in range(4):
        rng = np.random.default_rng([seed, batch])
        # Few and small nodes keep the values in the range of float32.
        circuit = random_circuit(rng, 12, 45, num_roots=3, widest=3)
        weights, negatives = drawn(rng, name, (batch, 12), dtype)
        node, variable, positive = plan_of(circuit).leaves()
        leaf = np.zeros(circuit.num_nodes, np.int64)
        leaf[node] = np.arange(len(node))
        leaves = np.where(positive[:, None], weights.T[variable], negatives.T[variable]).astype(np.float64)
        nodes = circuit.kind, leaf, circuit.offsets, circuit.children
        ring = semirings.get(name)
        expected = fold_levels(leaves, *nodes, ring)[circuit.roots].T
        seeds = rng.normal(size=(batch, 3)) * (1.0 if name == "log" else 1.0 / np.maximum(1.0, expected.max()))
        adjoints = np.zeros((circuit.num_nodes, batch))
        for place, root in enumerate(circuit.roots):
            adjoints[root] += seeds[:, place]
        by_leaf = fold_levels_vjp(leaves, *nodes, ring, adjoints)
        threads.set_num_threads(members)
        found = evaluate(circuit, weights, negatives, name)
        np.testing.assert_allclose(found, expected, **tolerance)
        values, gradient, negative_gradient = value_and_gradient(circuit, weights, negatives, name, seeds)
        assert negative_gradient is not None
        assert values.dtype == gradient.dtype == dtype
        assert values.tobytes() == found.tobytes()
        found = np.where(positive[:, None], gradient.T[variable], negative_gradient.T[variable])
        scale = np.abs(by_leaf).max()
        np.testing.assert_allclose(found / scale, by_leaf / scale, **tolerance)
        unused = np.setdiff1d(np.arange(12), variable)
        assert not gradient[:, unused].any()
    assert teams
    assert set(teams) == {members}


@pytest.mark.parametrize("name", ["real", "log"])
def test_teams_agree_with_one_thread(name, teams):
    for seed in range(6):
        circuit = wide(seed)
        weights = drawn(np.random.default_rng(seed), name, (1, 12))[0]
        several = value_and_gradient(circuit, weights, None, name)
        threads.set_num_threads(1)
        alone = value_and_gradient(circuit, weights, None, name)
        threads.set_num_threads(2)
        assert several[0].tobytes() == alone[0].tobytes()
        np.testing.assert_allclose(several[1], alone[1], rtol=1e-10, atol=1e-12 * np.abs(alone[1]).max())
    assert teams == [2] * 6


def test_tiles_fewer_than_threads(teams):
    """Two tiles and three threads: the tiles one after the other, each by all threads."""
    circuit = wide(0)
    weights = drawn(np.random.default_rng(0), "real", (13, 12))[0]
    threads.set_num_threads(1)
    alone = value_and_gradient(circuit, weights)
    threads.set_num_threads(3)
    several = value_and_gradient(circuit, weights)
    assert teams == [3, 3]
    threads.set_num_threads(2)
    value_and_gradient(circuit, weights)
    assert teams == [3, 3]
    np.testing.assert_allclose(several[0], alone[0], rtol=1e-12)
    np.testing.assert_allclose(several[1], alone[1], rtol=1e-10)


def bits(circuit, weights, name):
    values, gradient, _ = value_and_gradient(circuit, weights, None, name)
    return values.tobytes() + gradient.tobytes()


@pytest.mark.parametrize("members", [2, 3])
@pytest.mark.parametrize("name", ["real", "log"])
def test_same_bits_whoever_computes(name, members, monkeypatch):
    threads.set_num_threads(members)
    circuit = wide(3, num_inner=2000)
    weights = drawn(np.random.default_rng(0), name, (1, 12))[0]
    expected = bits(circuit, weights, name)
    assert {bits(circuit, weights, name) for _ in range(300)} == {expected}
    monkeypatch.setattr(module, "Team", Absent)
    assert {bits(circuit, weights, name) for _ in range(5)} == {expected}


def test_members_who_come_after_the_call_touch_nothing(monkeypatch):
    circuit = wide(4, num_inner=1000)
    weights = drawn(np.random.default_rng(0), "log", (8, 12))[0]
    expected = [bits(circuit, row[None], "log") for row in weights]
    monkeypatch.setattr(module, "Team", Late)
    Late.waiting.clear()
    stop = threading.Event()

    def come_late():
        while not stop.is_set() or Late.waiting:
            for join in Late.waiting.pop() if Late.waiting else ():
                join()

    latecomer = threading.Thread(target=come_late)
    latecomer.start()
    for _ in range(50):
        assert [bits(circuit, row[None], "log") for row in weights] == expected
    stop.set()
    latecomer.join(60)
    assert not latecomer.is_alive()


def test_a_closed_team_lets_nobody_in():
    plan = plan_of(wide(0))
    program, _ = plan.cut(2)
    values, adjoints, prefix = plan.take_team(np.float64, 1, 2)
    state = new_state(program)
    team = (*program, adjoints, prefix, state)
    assert close(state)
    before = values.copy(), adjoints.copy(), state.copy()
    follow(values, team, plan.terms, 1)
    for array, copy in zip((values, adjoints, state), before, strict=True):
        assert array.tobytes() == copy.tobytes()


def test_buffers_that_somebody_may_still_touch_are_not_used_again():
    plan = plan_of(wide(0))
    program, _ = plan.cut(2)
    state = new_state(program)
    state[GATE] = 1
    assert not close(state)
    assert state[GATE] == CLOSED + 1


def test_a_member_alone_does_everything():
    """Whoever claims the chunks: member 1 does all of the forward pass, member 0 finds nothing left."""
    plan = plan_of(wide(1, 2))
    program, _ = plan.cut(2)
    values, adjoints, prefix = plan.take_team(np.float64, 1, 2)
    values[...] = np.random.default_rng(0).random(len(values))
    values[:2] = 0, 1
    expected = values.copy()
    forward(expected, plan.runs, plan.terms)
    state = new_state(program)
    team = (*program, adjoints, prefix, state)
    work(values, team, plan.terms, 1, 0, (len(program[2]) - 1) // len(adjoints))
    assert values.tobytes() == expected.tobytes()
    lead_forward(values, team, plan.terms)
    assert values.tobytes() == expected.tobytes()
    # Outside kernels the choice by the type of the runs is the same.
    for runs, told in ((plan.runs, values), ((*program, adjoints, prefix, new_state(program)), values)):
        told[2:] = np.random.default_rng(0).random(len(values))[2:]
        fold_forward(told, runs, plan.terms)
        assert told.tobytes() == expected.tobytes()
    # The reverse pass, against that of one thread.
    alone = np.zeros_like(expected)
    alone[plan.root_slots] = 1
    backward(expected, alone, plan.runs, plan.terms, prefix[0])
    phases = (len(program[2]) - 1) // len(adjoints)
    adjoints[0, plan.root_slots] = 1
    work(values, team, plan.terms, 1, phases, 2 * phases)
    first = plan.runs[0, FIRST]
    np.testing.assert_allclose(adjoints.sum(0)[:first], alone[:first], rtol=1e-10)
    behind = plan.runs[-1, FIRST] + plan.runs[-1, COUNT]
    assert not adjoints[:, first:behind].any()


def test_many_callers_at_once():
    circuits = [wide(seed, num_inner=800) for seed in range(3)]
    weights = drawn(np.random.default_rng(0), "log", (1, 12))[0]
    expected = [bits(circuit, weights, "log") for circuit in circuits]
    wrong = []

    def call(first):
        for step in range(60):
            which = (first + step) % 3
            if bits(circuits[which], weights, "log") != expected[which]:
                wrong.append((first, step))

    callers = [threading.Thread(target=call, args=(first,)) for first in range(4)]
    for caller in callers:
        caller.start()
    for size in (3, 2) * 3:
        # Other sizes in between would change the bits; the pool is made anew all the same.
        with threads._lock:
            pool, threads._pool = threads._pool, None
        if pool is not None:
            pool.shutdown(wait=False)
        time.sleep(0.002 * size)
    for caller in callers:
        caller.join(120)
        assert not caller.is_alive()
    assert wrong == []


def in_child(circuit, weights, expected, queue):
    queue.put(all(bits(circuit, weights, "log") == expected for _ in range(20)))


@pytest.mark.skipif("fork" not in multiprocessing.get_all_start_methods(), reason="no fork here")
def test_forked_children_while_a_team_works():
    circuit = wide(5, num_inner=800)
    weights = drawn(np.random.default_rng(0), "log", (1, 12))[0]
    expected = bits(circuit, weights, "log")
    stop = threading.Event()

    def keep_busy():
        while not stop.is_set():
            bits(circuit, weights, "log")

    busy = threading.Thread(target=keep_busy)
    busy.start()
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    try:
        for _ in range(3):
            child = context.Process(target=in_child, args=(circuit, weights, expected, queue))
            child.start()
            assert queue.get(timeout=60)
            child.join(60)
            assert child.exitcode == 0
    finally:
        stop.set()
        busy.join(60)


def test_bad_weights_and_small_roots_in_a_team(teams):
    """Refused as ever; and tiles that the linear domain cannot hold are computed again with scaled floats."""
    b = CircuitBuilder()
    layer = [b.literal(v) for v in range(1, 61)]
    for step in range(1, 4):
        layer = [b.disjunction([layer[k], b.conjunction([layer[k - step], layer[k - 2 * step]])]) for k in range(60)]
    circuit = b.build([b.conjunction(layer)], num_variables=60)
    weights = np.full((1, 60), -0.5)
    good = bits(circuit, weights, "log")
    assert np.isfinite(evaluate(circuit, np.full((1, 60), -40.0), semiring="log")).all()
    threads.set_num_threads(1)
    expected = value_and_gradient(circuit, np.full((1, 60), -40.0), semiring="log")
    threads.set_num_threads(2)
    found = value_and_gradient(circuit, np.full((1, 60), -40.0), semiring="log")
    np.testing.assert_allclose(found[0], expected[0], rtol=1e-12)
    np.testing.assert_allclose(found[1], expected[1], rtol=1e-12)
    for name in ("real", "log"):
        bad = weights.copy()
        bad[0, 7] = np.nan
        with pytest.raises(DomainError, match="variable 8"):
            evaluate(circuit, bad, semiring=name)
    assert bits(circuit, weights, "log") == good
    assert set(teams) == {2}


def test_inside_a_chunk_there_is_no_team(teams):
    circuit = wide(0)
    weights = drawn(np.random.default_rng(0), "real", (1, 12))[0]

    def chunk(start, stop):
        return evaluate(circuit, weights).tobytes()

    assert len(set(threads.run_chunks(chunk, 2, 1))) == 1
    assert teams == []


def test_an_interrupted_call_leaves_the_next_one_alone(monkeypatch):
    circuit = wide(6)
    weights = drawn(np.random.default_rng(0), "real", (1, 12))[0]
    expected = bits(circuit, weights, "real")
    kernel = module._real_rows

    def interrupt(*arguments):
        kernel(*arguments)
        raise KeyboardInterrupt

    for _ in range(20):
        monkeypatch.setattr(module, "_real_rows", interrupt)
        with pytest.raises(KeyboardInterrupt):
            value_and_gradient(circuit, weights)
        monkeypatch.setattr(module, "_real_rows", kernel)
        assert bits(circuit, weights, "real") == expected
    assert threads._team is None
