"""The tasks of the demos: pairs, programs, Sudoku grids, the network's layers, the stopwatch."""

import itertools

import numpy as np
import pytest
import torch

import derivable as dv
from data import data_path
from derivable.core.diagnostics import DomainError
from derivable_demos import addition
from derivable_demos.digits import Settings, SumLoss, sum_layer
from derivable_demos.stopwatch import Stopwatch
from derivable_demos.sudoku import ValidityLayer, best_matching
from derivable_demos.sudoku_grids import clauses, draw, is_valid, solutions


def convolved(p, num_digits):
    """P(sum) by convolution of the two numbers' distributions: p [example, 2 * digits, 10] float64."""
    numbers = []
    for half in (p[:, :num_digits], p[:, num_digits:]):
        number = half[:, 0]
        for place in range(1, num_digits):
            number = (number[:, :, None] * half[:, place, None, :]).reshape(len(p), -1)
        numbers.append(number)
    return np.stack([np.convolve(a, b) for a, b in zip(*numbers)])


@pytest.mark.parametrize("num_digits", [1, 2])
def test_the_programs_give_the_probabilities_of_sums(num_digits):
    generator = torch.Generator().manual_seed(0)
    p = torch.rand(3, 2 * num_digits, 10, dtype=torch.float64, generator=generator).softmax(-1)
    expected = convolved(p.numpy(), num_digits)
    layer = sum_layer(Settings(num_digits=num_digits))
    got = layer(**dict(zip(addition.digit_relations(num_digits), p.unbind(1))))
    np.testing.assert_allclose(got.numpy(), expected, rtol=1e-12)
    totals = torch.tensor([3, 7, 2 * 10**num_digits - 2])
    losses = [
        SumLoss(sum_layer(settings), settings)(p, totals)
        for settings in (Settings(num_digits=num_digits), Settings(num_digits=num_digits, encoding="columns"))
    ]
    mean = -np.log(expected[range(3), totals]).mean()
    assert [float(loss) for loss in losses] == pytest.approx([mean, mean], rel=1e-12)


def test_the_columns_program_is_small():
    sizes = [sum_layer(Settings(num_digits=n, encoding="columns")).circuit.num_nodes for n in (1, 2, 3)]
    assert sizes[2] - sizes[1] < 2 * (sizes[1] - sizes[0])


def test_pairs_use_an_image_once_a_round():
    examples = addition.pairs(103, 2, 3, seed=1)
    assert examples.shape == (75, 4)
    for part in np.split(examples, 3):
        assert len(np.unique(part)) == part.size
    with pytest.raises(DomainError, match="3 images do not make one pair"):
        addition.pairs(3, 2, 1, seed=0)


def test_sums():
    labels = np.array([1, 2, 9, 9, 8])
    assert addition.sums(labels, np.array([[0, 1, 2, 3], [4, 4, 0, 0]])).tolist() == [12 + 99, 88 + 11]
    assert addition.sum_digits(np.array([111, 7]), 2).tolist() == [[1, 1, 1], [0, 0, 7]]


def all_grids():
    lines = list(itertools.permutations(range(4)))
    return list(itertools.product(lines, repeat=4))


def test_sudoku_solutions_by_hand():
    def right(rows):
        columns = all(len({row[c] for row in rows}) == 4 for c in range(4))
        blocks = all(len({rows[a + i][b + j] for i in (0, 1) for j in (0, 1)}) == 4 for a in (0, 2) for b in (0, 2))
        return columns and blocks

    expected = [sum(rows, ()) for rows in all_grids() if right(rows)]
    assert len(expected) == 288
    assert solutions().tolist() == [list(grid) for grid in expected]


def test_the_rules_have_the_solutions_as_models():
    circuit = dv.circuit.compile(clauses())
    assert circuit.model_count() == 288
    published = dv.circuit.compile(data_path("circuits/sudoku_4.cnf"))
    assert (published.num_variables, published.model_count()) == (64, 288)


def test_validity_against_the_list_of_solutions():
    layer = ValidityLayer(dv.circuit.compile(clauses()))
    cells = torch.randn(5, 16, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(2)).log_softmax(-1)
    worlds = torch.as_tensor(solutions())
    expected = torch.stack([cells[:, range(16), world].sum(-1) for world in worlds], 1).logsumexp(1)
    torch.testing.assert_close(layer(cells), expected, rtol=1e-12, atol=0)
    assert torch.autograd.gradcheck(layer, cells[:1].requires_grad_(), eps=1e-7, atol=1e-6)


def test_grids():
    labels = np.arange(200) % 10
    cells, valid = draw(labels, 40, seed=0)
    assert valid.sum() == 20
    values = labels[cells] - 1
    assert values.min() >= 0
    assert values.max() <= 3
    np.testing.assert_array_equal(is_valid(values), valid)
    with pytest.raises(DomainError, match="no image of one of the digits"):
        draw(np.zeros(10, np.int64), 4, 0)


def test_matching_of_classes():
    confusion = np.array([[0, 9, 1], [8, 0, 0], [0, 2, 7]])
    assert best_matching(confusion) == (1, 0, 2)


class Slow(torch.autograd.Function):
    """Work on a clock of its own."""

    seconds = 0

    @staticmethod
    def forward(ctx, x):
        Slow.seconds += 1
        return x * 2

    @staticmethod
    def backward(ctx, g):
        Slow.seconds += 10
        return g * 2


class Sluggish(torch.autograd.Function):
    """Slow work outside the module, which must not be counted."""

    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, g):
        Slow.seconds += 100
        return g


def test_the_stopwatch_counts_the_module_and_nothing_else(monkeypatch):
    monkeypatch.setattr(Stopwatch, "now", lambda own, tensor: Slow.seconds)
    watch = Stopwatch(lambda a, b: Slow.apply(a) + b)
    a, b = torch.ones(3, requires_grad=True), torch.ones(3, requires_grad=True)
    Sluggish.apply(watch(a=Sluggish.apply(a), b=b)).sum().backward()
    assert a.grad.tolist() == [2, 2, 2]
    assert b.grad.tolist() == [1, 1, 1]
    assert (watch.forward_seconds, watch.backward_seconds) == (1, 10)
    with torch.no_grad():
        watch(a=a, b=b)
    assert (watch.forward_seconds, watch.backward_seconds, watch.seconds) == (2, 10, 12)
