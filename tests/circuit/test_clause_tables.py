"""Clauses by variable elimination, and the planner, against truth tables."""

import itertools
import random

import numpy as np
import pytest

import derivable as dv
from agree.bayesian_networks import read_bif, to_clauses
from circuit.reference import all_assignments
from data import data_path
from derivable.circuit.compilation import clause_tables, planner
from derivable.circuit.compilation.clause_tables import ClauseTables
from derivable.circuit.compilation.compilation import without_repeats
from derivable.circuit.formulas.dimacs import cnf_from_clauses
from derivable.core.diagnostics import CompileTimeout, DomainError, OutOfMemory

COMPILERS = ["elimination", "auto"]


def random_formula(seed: int) -> tuple[list[list[int]], int]:
    """Clauses, sets of which exactly one variable is true, and definitions by conjunctions and disjunctions."""
    rnd = random.Random(seed)
    n = rnd.randint(1, 8)

    def literals(among: int, count: int) -> list[int]:
        return [v * rnd.choice([1, -1]) for v in rnd.sample(range(1, among + 1), min(count, among))]

    clauses = [literals(n, rnd.choice([1, 2, 2, 3, 3, 4, 7])) for _ in range(rnd.randint(0, 7))]
    if n >= 4 and seed % 3:
        group = rnd.sample(range(1, n + 1), 3)
        clauses += [group, *([-a, -b] for a, b in itertools.combinations(group, 2))]
    for _ in range(seed % 4):
        condition, sign = literals(n, rnd.randint(1, 3)), rnd.choice([1, -1])
        n += 1
        clauses.append([sign * n, *(-literal for literal in condition)])
        clauses += [[-sign * n, literal] for literal in condition]
    return clauses, n


@pytest.mark.parametrize("seed", range(80))
def test_random_formulas(seed, monkeypatch):
    parts, piece = [(2, 4), (3, 8), (6, 64)][seed % 3]
    monkeypatch.setattr(clause_tables, "MOST_PARTS", parts)
    monkeypatch.setattr(clause_tables, "PIECE", piece)
    clauses, n = random_formula(seed)
    circuit = dv.circuit.compile(clauses, COMPILERS[seed % 2], num_variables=n)
    circuit.check()
    rows = all_assignments(n)
    models = np.array([all(any(row[abs(x) - 1] == (x > 0) for x in c) for c in clauses) for row in rows], bool)
    weights = np.random.default_rng(seed).random(n)
    expected = (np.prod(np.where(rows, weights, 1 - weights), axis=1) * models).sum()
    assert circuit.evaluate(weights)[0] == pytest.approx(expected, rel=1e-12, abs=1e-15)
    assert circuit.model_count() == models.sum()


def test_groups_and_definitions_of_a_network_are_recognised():
    network = read_bif(data_path("bayesnets/alarm.bif.gz"))
    cnf = without_repeats(cnf_from_clauses(to_clauses(network).clauses))
    tables = ClauseTables.of(cnf)
    assert len(tables.cardinalities) == len(network.states)
    assert sorted(tables.cardinalities) == sorted(len(states) for states in network.states.values())
    assert len(tables.labels) == len(network.states)
    assert tables.order().width == 4


def test_a_network_is_eliminated_and_says_so():
    network = read_bif(data_path("bayesnets/insurance.bif.gz"))
    circuit = dv.circuit.compile(to_clauses(network).clauses, "auto")
    text = circuit.explain("compilation")
    assert text.startswith("compiled by elimination\n")
    assert "width 7, tables of" in text
    assert circuit.num_nodes < 60_000


def random_3sat(n: int, count: int) -> list[list[int]]:
    rnd = random.Random(n)
    return [[v * rnd.choice([1, -1]) for v in rnd.sample(range(1, n + 1), 3)] for _ in range(count)]


def test_a_wide_formula_goes_to_d4():
    pytest.importorskip("py_d4")
    circuit = dv.circuit.compile(random_3sat(80, 280), "auto")
    assert circuit.compilation.compiler == "d4"
    assert "elimination  width" in circuit.explain("compilation")


def test_what_is_wide_with_few_entries_is_tried(monkeypatch):
    """A parity of 20 variables in one table each would be large; its entries are determined."""
    monkeypatch.setattr(planner, "CHEAP", 10)
    chain = [[-1, 2], [1, -2], *([-v, v + 1] for v in range(2, 20)), *([v, -v - 1] for v in range(2, 20))]
    circuit = dv.circuit.compile(chain, "auto")
    assert circuit.model_count() == 2
    assert circuit.compilation.compiler == "elimination"


def test_too_many_nodes_end_a_trial(monkeypatch):
    pytest.importorskip("py_d4")
    monkeypatch.setattr(planner, "CHEAP", 10)
    monkeypatch.setattr(planner, "MOST_TRIED", 100)
    circuit = dv.circuit.compile(random_3sat(40, 100), "auto")
    assert circuit.compilation.compiler == "d4"
    assert "tried: elimination" in circuit.explain("compilation")


def test_limits():
    clauses = random_3sat(300, 800)
    with pytest.raises(OutOfMemory, match="width"):
        dv.circuit.compile(clauses, "elimination")
    with pytest.raises(OutOfMemory, match=r"tables of .* entries"):
        dv.circuit.compile([[1, 2], [2, 3]], "elimination", memory_limit=100)
    with pytest.raises(DomainError, match="memory_limit"):
        dv.circuit.compile([[1, 2]], memory_limit=0)
    pytest.importorskip("py_d4")
    with pytest.raises(CompileTimeout, match="elimination: width"):
        dv.circuit.compile(clauses, "auto", time_limit=1)
    with pytest.raises(OutOfMemory, match="D4 takes"):
        dv.circuit.compile(clauses, "d4", memory_limit=1 << 20)


def test_a_large_d_dnnf_is_read_in_a_process_that_ends_in_time(monkeypatch):
    pytest.importorskip("py_d4")
    from derivable.circuit.compilation import compile_d4

    clauses = random_3sat(30, 80)
    direct = dv.circuit.compile(clauses, "d4")
    monkeypatch.setattr(compile_d4, "MOST_READ", 0)
    read = dv.circuit.compile(clauses, "d4", time_limit=100)
    for one, other in zip(read.arrays, direct.arrays):
        np.testing.assert_array_equal(one, other)
    np.testing.assert_array_equal(read.level_offsets, direct.level_offsets)
    read.check()
