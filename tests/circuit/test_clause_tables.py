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
from derivable.circuit.formulas.cnf import cnf_from_clauses, without_repeats
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


def random_network(seed: int) -> tuple[list[tuple[list[int], np.ndarray]], list[int]]:
    """Tables (parents, then the child) with zeros and ones among their numbers; how many values each variable has."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1 if seed % 5 == 0 else 2, 4, rng.integers(2, 5)).tolist()
    tables = []
    for child, size in enumerate(sizes):
        parents = rng.permutation(child)[: rng.integers(0, 4)].tolist()
        table = rng.random([*(sizes[parent] for parent in parents), size])
        if rng.random() < 0.5:
            table *= rng.random(table.shape) < 0.5
        if rng.random() < 0.3:
            table = (table == table.max(axis=-1, keepdims=True)).astype(float)
        tables.append(([*parents, child], table))
    return tables, sizes


def encoded(seed: int) -> tuple[list[list[int]], list[float], list[list[int]]]:
    """A random network as clauses: clauses, weights of the variables, and the variable of each value of each node.

    Clauses and literals are in random order, and in two of three networks something only looks like the encoding: a
    pair of values that may both be, a definition with a direction left out, with another literal, or used elsewhere.
    """
    rnd = random.Random(seed)
    tables, sizes = random_network(seed)
    weights: list[float] = []
    values: list[list[int]] = []
    clauses: list[list[int]] = []
    for size in sizes:
        values.append(list(range(len(weights) + 1, len(weights) + 1 + size)))
        weights += [1.0] * size
        clauses += [[*values[-1]], *([-a, -b] for a, b in itertools.combinations(values[-1], 2))]
    definitions = []
    for scope, table in tables:
        for place in np.ndindex(*table.shape):
            cause = [values[variable][value] for variable, value in zip(scope, place)]
            number = float(table[place])
            if number == 0.0:
                clauses.append([-literal for literal in cause])
            elif number != 1.0:
                weights.append(number)
                definitions.append([[len(weights), *(-literal for literal in cause)]])
                definitions[-1] += [[-len(weights), literal] for literal in cause]
    if seed % 3 and definitions:
        definition = rnd.choice(definitions)
        change = rnd.randrange(4)
        if change == 0:
            del definition[rnd.randrange(len(definition))]
        elif change == 1:
            definition[-1] = [definition[-1][0], -definition[-1][1]]
        elif change == 2:
            clauses.append([definition[0][0] * rnd.choice([1, -1]), rnd.choice(values[0])])
        elif len(values[-1]) > 1:
            clauses.remove([-values[-1][0], -values[-1][1]])
    clauses += [clause for definition in definitions for clause in definition]
    rnd.shuffle(clauses)
    for clause in clauses:
        rnd.shuffle(clause)
    return clauses, weights, values


def count_by_enumeration(clauses: list[list[int]], weights: list[float], num_values: int) -> tuple[float, np.ndarray]:
    """The weighted count, negative literals weighing one, and the share of it in which each value holds.

    num_values  variables up to this one are enumerated; the others are in no clause together
    """
    rows = all_assignments(num_values).astype(bool)
    total = np.prod(np.where(rows, weights[:num_values], 1.0), axis=1)
    allows = np.ones((2, len(weights) - num_values, len(rows)), bool)
    for clause in clauses:
        holds = np.zeros(len(rows), bool)
        for literal in clause:
            if abs(literal) <= num_values:
                holds |= rows[:, abs(literal) - 1] == (literal > 0)
        numbers = [literal for literal in clause if abs(literal) > num_values]
        for literal in numbers:
            allows[int(literal < 0), abs(literal) - num_values - 1] &= holds
        total = total if numbers else total * holds
    # Each number is true, false, or both, as its clauses allow it.
    total = total * np.prod(np.array(weights[num_values:])[:, None] * allows[1] + allows[0], axis=0)
    return float(total.sum()), (total[:, None] * rows).sum(axis=0) / (total.sum() or 1.0)


@pytest.mark.parametrize("seed", range(60))
def test_random_networks_as_clauses(seed):
    clauses, weights, values = encoded(seed)
    circuit = dv.circuit.compile(clauses, "elimination", num_variables=len(weights))
    circuit.check()
    pair = np.array(weights), np.ones(len(weights))
    num_values = values[-1][-1]
    expected, shares = count_by_enumeration(clauses, weights, num_values)
    assert circuit.weighted_count(*pair) == pytest.approx(expected, rel=1e-9)
    if expected:
        marginals = np.ravel(circuit.marginals(*pair))[:num_values]
        np.testing.assert_allclose(marginals, shares, atol=1e-9)


@pytest.mark.parametrize("seed", range(0, 60, 3))
def test_each_table_of_an_encoded_network_is_read_back(seed):
    tables, sizes = random_network(seed)
    clauses, weights, _ = encoded(seed)
    read = ClauseTables.of(without_repeats(cnf_from_clauses(clauses, len(weights))))
    assert sorted(size for size in read.cardinalities) == sorted(max(size, 2) for size in sizes)
    numbers = [table[(table != 0) & (table != 1)] for _, table in tables]
    assert sum(len(labels.literals) for labels in read.labels) == sum(map(len, numbers))


def test_a_dense_table_of_many_variables_is_one_table():
    """Zeros of a deterministic node with eight parents, of which one would be cut in pieces."""
    rows = list(itertools.product([1, -1], repeat=9))
    wrong = [row for row in rows if (sum(row[:8]) > 0) != (row[8] > 0)]
    clauses = [[-x * (v + 1) for v, x in enumerate(row)] for row in wrong]
    tables = ClauseTables.of(without_repeats(cnf_from_clauses(clauses)))
    assert len(tables.cardinalities) == 9
    assert [int(entries.sum()) for entries in tables.allowed.values()] == [len(rows) - len(wrong)]
    assert len(ClauseTables.of(without_repeats(cnf_from_clauses(clauses[:1]))).cardinalities) > 9


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
