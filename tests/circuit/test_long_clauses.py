"""Clauses of thousands of literals, and formulas of a thousand variables: counts by arithmetic and by enumeration."""

import itertools
import math

import numpy as np
import pytest

from derivable.circuit import at_least_one, at_most_one, compile, exactly_one, variables
from derivable.circuit.compilation import long_clauses
from derivable.circuit.formulas.cnf import Cnf, cnf_from_clauses

COMPILERS = ["sdd", "d4", "auto", "elimination"]


@pytest.fixture(params=COMPILERS)
def compiler(request):
    if request.param == "d4":
        pytest.importorskip("py_d4")
    return request.param


def test_one_long_clause_needs_no_compiler(compiler, monkeypatch):
    monkeypatch.setattr("sys.executable", "")  # a compiler could not be started
    for size in (200, 20_000):
        clause = [v if v % 3 else -v for v in range(1, size + 1)]
        circuit = compile([clause], compiler, num_variables=size + 2)
        circuit.check()
        assert circuit.model_count() == 4 * (2**size - 1)
        assert circuit.num_edges < 7 * size
        assert circuit.num_levels < 4 * math.log2(size)
        probability = circuit.probability(np.full(size + 2, 1e-5))
        positive, negative = size - size // 3, size // 3
        assert probability == pytest.approx(1 - (1 - 1e-5) ** positive * 1e-5**negative, rel=1e-9)
    assert compile(at_least_one(variables(200)), compiler).model_count() == 2**200 - 1


def test_long_clauses_beside_others(compiler):
    """Two long clauses with variables of their own, one of them repeated, and short ones."""
    first, second = list(range(1, 301)), list(range(301, 501))
    circuit = compile([first, [-501, 502], second, first, [501, 503]], compiler, num_variables=504)
    short = sum((not a or b) and (a or c) for a, b, c in itertools.product((0, 1), repeat=3))
    assert circuit.model_count() == (2**300 - 1) * (2**200 - 1) * short * 2
    assert circuit.determinism.holds


def test_long_clauses_that_share_variables(compiler):
    clauses = [list(range(1, 301)), [-1, 2], [-3, -4, 5], list(range(-300, -100)), [1, 301]]
    circuit = compile(clauses, compiler)
    # Of 1, 2 and 301 four assignments are left, of 3 to 5 seven; the long clauses forbid that 1 to 300 are false, once,
    # and that the last 200 are true.
    assert circuit.model_count() == (28 << 295) - 1 - (28 << 95)


def small(rng):
    clauses = [
        [int(v) * int(rng.choice([-1, 1])) for v in rng.choice(9, k, replace=False) + 1] for k in (9, 7, 3, 2, 3)
    ]
    return cnf_from_clauses(clauses, 10)


@pytest.mark.parametrize("seed", range(8))
def test_pieces_of_clauses_mean_the_clauses(seed, compiler, monkeypatch):
    """Each length is a long one: all worlds."""
    monkeypatch.setattr(long_clauses, "LONG", 2)
    cnf = small(np.random.default_rng(seed))
    worlds = np.array(list(itertools.product((False, True), repeat=10)))
    circuit = compile(cnf, compiler)
    circuit.check()
    np.testing.assert_array_equal(circuit.truth(worlds)[0], cnf.satisfied_by(worlds))
    assert circuit.model_count() == cnf.satisfied_by(worlds).sum()
    extended = long_clauses.with_short_clauses(cnf)
    assert max(np.diff(extended.offsets)) <= 3
    assert isinstance(extended, Cnf)


@pytest.mark.parametrize("count", [450, pytest.param(1000, marks=pytest.mark.slow)])
def test_a_thousand_classes(count):
    """The SDD compiler recurses as deep as its vtree is: more than a stack of 8 MB from 420 variables on."""
    assert compile(exactly_one(variables(count))).model_count() == count
    if count == 1000:
        assert compile(at_most_one(variables(count))).model_count() == count + 1


@pytest.mark.slow
def test_semantic_loss_over_a_thousand_classes():
    import torch

    import derivable as dv

    probabilities = torch.linspace(1e-4, 2e-3, 1000, dtype=torch.float64, requires_grad=True)
    loss = dv.nn.SemanticLoss(exactly_one(variables(1000)))(probabilities)
    expected = -((probabilities / (1 - probabilities)).sum().log() + (1 - probabilities).log().sum())
    torch.testing.assert_close(loss, expected)
    (gradient,) = torch.autograd.grad(loss, probabilities)
    torch.testing.assert_close(gradient, torch.autograd.grad(expected, probabilities)[0])
