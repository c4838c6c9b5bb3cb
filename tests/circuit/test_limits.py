"""Limits of time and memory: how often compilers look at them, and what errors say."""

import random

import numpy as np
import pytest

from derivable.circuit import compile
from derivable.circuit.compilation import choice, orders, tables
from derivable.circuit.compilation.compile_graph import _cones
from derivable.circuit.compilation.factors import from_factors
from derivable.circuit.compilation.frontier import Bundle, TooWide, sequence_of
from derivable.circuit.compilation.orders import best_order
from derivable.circuit.formulas.cnf import cnf_from_clauses
from derivable.circuit.graph.and_or_graph import AndOrGraph
from derivable.circuit.kernels import choice as kernels
from derivable.core.and_or import AND, FALSE, LITERAL, OR, TRUE
from derivable.core.diagnostics import CompileTimeout, OutOfMemory
from derivable.core.progress import NEVER, Deadline


class Looks(Deadline):
    """Counts how often it is looked at, and ends work at one of these looks."""

    def __init__(self, last=None):
        super().__init__(1.0, "compilation", "raise time_limit")
        self.count, self.last = 0, last

    def remaining(self):
        self.count += 1
        if self.count == self.last:
            raise self.error()
        return 1.0


def drawn_clauses(variables, count, seed=1):
    rng = random.Random(seed)
    return [[v if rng.random() < 0.5 else -v for v in rng.sample(range(1, variables + 1), 3)] for _ in range(count)]


def test_the_reading_of_clauses_looks():
    looks = Looks()
    cnf_from_clauses([[1, -2, 3]] * 50_000, look=looks.remaining)
    assert looks.count >= 10


def test_orders_look_before_each_try_which_is_bounded(monkeypatch):
    scopes = [[abs(literal) - 1 for literal in clause] for clause in drawn_clauses(200, 400)]
    looks = Looks()
    assert best_order(scopes, [2] * 200, looks).cost >= orders.HOPELESS
    # One try for each rule.
    assert looks.count == 2
    with pytest.raises(CompileTimeout):
        best_order(scopes, [2] * 200, Looks(2))
    chain = [(v, v + 1) for v in range(999)]
    assert best_order(chain, [2] * 1000).cost < 4000
    monkeypatch.setattr(orders, "MOST_LOOKS", 100)
    bounded = best_order(chain, [2] * 1000)
    assert bounded.cost >= orders.HOPELESS
    assert sorted(bounded.order) == list(range(1000))


def test_frontiers_look_at_each_atom_and_end_where_they_are_too_wide():
    ring = [Bundle(((atom, (atom + 1) % 50),)) for atom in range(50)]
    looks = Looks()
    assert sorted(sequence_of(ring, range(50), set(), looks.remaining)) == list(range(50))
    assert looks.count >= 50
    dense = [Bundle(((a, b),)) for a in range(50) for b in range(50) if a != b]
    looks = Looks()
    with pytest.raises(TooWide):
        sequence_of(dense, range(50), set(), looks.remaining)
    # The first atom of each of eight orders has all others in the frontier.
    assert looks.count == 8


def test_groups_of_roots_are_looked_at_one_by_one():
    # Cycles of two nodes, each a root of its own.
    kinds, rows = [FALSE, TRUE], [[], []]
    for first in range(2, 202, 2):
        kinds += [OR, OR]
        rows += [[first + 1], [first]]
    graph = AndOrGraph.of(kinds, [0] * len(kinds), rows, list(range(2, 202, 2)))
    looks = Looks()
    assert len(_cones(graph, looks)) == 100
    assert looks.count >= 100


def test_large_tables_are_made_in_parts(monkeypatch):
    monkeypatch.setattr(tables, "PIECE", 64)
    rng = np.random.default_rng(1)
    side, factors = 4, []
    for i in range(side):
        for j in range(side):
            parents = [(i - 1) * side + j] * (i > 0) + [i * side + j - 1] * (j > 0)
            table = rng.random((4,) * (len(parents) + 1))
            factors.append(([*parents, i * side + j], table / table.sum(-1, keepdims=True)))
    counts = []

    def counted(*arguments):
        counts.append(len(arguments[3]) - 1)
        return made(*arguments)

    made = tables._gates
    monkeypatch.setattr(tables, "_gates", counted)
    circuit = from_factors(factors, [4] * side**2)
    assert circuit.weighted_count() == pytest.approx(1.0)
    assert circuit.num_nodes > 64  # has the nodes made
    assert max(counts) > 64
    space = tables.Space.of([0], [2], deadline=Looks(3))
    columns = [np.zeros(200, np.int32)] * 2
    with pytest.raises(CompileTimeout):
        tables.conjoined(space, tables.CircuitBuilder(), columns)


def test_proofs_take_a_part_of_the_time_that_is_left(monkeypatch):
    budgets, analyse = [], kernels.analyse

    def counted(*arguments):
        budgets.append(arguments[-2])
        return analyse(*arguments)

    monkeypatch.setattr(kernels, "analyse", counted)
    arrays = AndOrGraph.of([LITERAL, LITERAL, OR], [1, 2, 0], [[], [], [0, 1]], [2]).arrays
    choice.compile_formula_dag(*arrays, 2)
    choice.compile_formula_dag(*arrays, 2, time_limit=0.5)
    assert budgets[0] == choice.PAIR_BUDGET
    assert 0 < budgets[-1] <= choice.PAIR_BUDGET // 20


HARD = drawn_clauses(250, 500)


@pytest.mark.parametrize(
    ("compiler", "size"),
    [
        ("d4", r"D4 did not finish within 0\.8 s, on \d+ variables and 500 clauses"),
        ("sdd", r"PySDD did not finish within 0\.8 s, on [\d,]+ nodes over \d+ variables"),
        ("auto", r"did not finish within 3 s.*elimination: width \d+, tables of .* entries"),
    ],
)
def test_errors_of_time_say_how_large_the_formula_is(compiler, size):
    pytest.importorskip("py_d4")
    with pytest.raises(CompileTimeout, match=size) as caught:
        compile(HARD, compiler, time_limit=3.0 if compiler == "auto" else 0.8)
    assert caught.value.hint.startswith("raise time_limit, or ")


@pytest.mark.parametrize(("compiler", "said"), [("d4", "D4 takes .* bytes, on "), ("sdd", "PySDD takes .* bytes, on ")])
def test_errors_of_memory_say_how_large_the_formula_is(compiler, said):
    pytest.importorskip("py_d4")
    with pytest.raises(OutOfMemory, match=said) as caught:
        compile(HARD, compiler, memory_limit=1 << 20)
    assert caught.value.hint.startswith("raise memory_limit, or ")


def test_elimination_says_its_width():
    factors = [([i, (i * 7 + 3) % 40], np.ones((2, 2))) for i in range(40) if i != (i * 7 + 3) % 40]
    factors += [([i, (i * 11 + 5) % 40], np.ones((2, 2))) for i in range(40) if i != (i * 11 + 5) % 40]
    with pytest.raises(OutOfMemory, match=r"width \d+"):
        from_factors(factors, [2] * 40, memory_limit=1000)
    with pytest.raises(OutOfMemory, match=r"width \d+"):
        compile(HARD, "elimination")


def test_the_memory_of_compilers_is_that_of_the_run():
    # Three of the variables of each clause: nothing of it can be proved.
    graph_kinds = [LITERAL] * 60 + [OR] * 120 + [AND]
    clauses = drawn_clauses(30, 120)
    rows = [[] for _ in range(60)] + [[v - 1 if v > 0 else 29 - v for v in clause] for clause in clauses]
    rows.append(list(range(60, 180)))
    literals = [*range(1, 31), *range(-1, -31, -1), *[0] * 121]
    graph = AndOrGraph.of(graph_kinds, literals, rows, [180])
    with pytest.raises(OutOfMemory, match="PySDD takes"):
        choice.compile_formula_dag(*graph.arrays, 30, memory_limit=1 << 20)
    assert NEVER.bytes_left is None
