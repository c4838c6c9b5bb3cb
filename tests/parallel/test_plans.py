"""What folds keep from one call to the next."""

import gc

import numpy as np
import pytest
import torch

import derivable as dv
from derivable.bridge import arrays
from derivable.bridge import fold as fold_module
from derivable.parallel import element_by_index, element_folds

P = dv.parallel


def fold_of(operator, values):
    _, found, _ = arrays.prepared("scan", operator, ("values", values), options=(False, False))
    return found


def test_the_same_call_has_the_same_fold():
    operator = dv.parallel.matrix_product(2)
    one, other = np.ones((3, 2, 2)), np.ones((5, 2, 2))
    assert fold_of(operator, one) is fold_of(operator, other)
    assert fold_of(operator, one) is not fold_of(operator, one.astype(np.float32))
    assert fold_of("add", np.ones(3)) is fold_of("add", np.ones(4))
    # An equal operator that is another object computes the same.
    np.testing.assert_array_equal(P.scan(dv.parallel.matrix_product(2), one), P.scan(operator, one))


def test_folds_go_with_their_operator():
    gc.collect()
    before = len(arrays._known_operators)
    operators = [P.operator(lambda a, b, k=k: a + b + 0 * k, neutral=0.0) for k in range(5)]
    for operator in operators:
        fold_of(operator, np.ones(3))
    assert len(arrays._known_operators) == before + 5
    del operator, operators
    gc.collect()
    assert len(arrays._known_operators) <= before


def test_plans_do_not_pile_up():
    made = fold_of("mul", np.ones(3))
    for rows in range(1, 3 * fold_module._PLANS):
        np.testing.assert_array_equal(P.scan("mul", np.full(rows, 2.0)), 2.0 ** np.arange(1, rows + 1))
        assert len(made._plans) <= fold_module._PLANS


def test_equal_calls_look_up_no_kernel(monkeypatch):
    """The second fold of the same shapes, and its derivative, have all that they need in their plan."""
    torch = pytest.importorskip("torch")
    x, indices = torch.arange(1.0, 6.0, requires_grad=True), torch.tensor([0, 1, 0, 1, 1])

    def fold():
        sums = P.reduce_by_index(torch.zeros(2), "add", indices, x)
        return torch.autograd.grad(P.scan("add", x).sum() + sums[0], x)[0]

    expected = torch.tensor([6.0, 4.0, 4.0, 2.0, 1.0])
    assert torch.equal(fold(), expected)

    def refuse(*arguments, **options):
        raise AssertionError("looked up again")

    for module, name in ((element_folds, "compiled_scan"), (element_by_index, "compiled_by_index")):
        monkeypatch.setattr(module, name, refuse)
    monkeypatch.setattr(fold_module.Fold, "_plan_of", refuse)
    assert torch.equal(fold(), expected)


@pytest.mark.parametrize("exclusive", [False, True])
@pytest.mark.parametrize("reverse", [False, True])
def test_plans_take_arrays_of_any_layout_and_adjoint(exclusive, reverse):
    torch = pytest.importorskip("torch")
    values = torch.from_numpy(1 + 0.1 * np.random.default_rng(0).random((7, 3, 2, 2)))
    operator = dv.parallel.matrix_product(2)
    found = []
    for given in (values, values.transpose(1, 2).contiguous().transpose(1, 2)):
        x = given.clone(memory_format=torch.preserve_format).requires_grad_()
        result = P.scan(operator, x, exclusive=exclusive, reverse=reverse)
        (gradient,) = torch.autograd.grad(result.sum(), x)
        found.append((result.detach(), gradient))
    # The same by hand: products of the matrices of each column, one after the other.
    x = values.clone().requires_grad_()
    rows, running = [], torch.eye(2, dtype=torch.float64).expand(3, 2, 2)
    for row in reversed(x) if reverse else x:
        after = running @ row
        rows.append(running if exclusive else after)
        running = after
    expected = torch.stack(rows[::-1] if reverse else rows)
    (gradient,) = torch.autograd.grad(expected.sum(), x)
    for result, mine in found:
        torch.testing.assert_close(result, expected.detach())
        torch.testing.assert_close(mine, gradient)


def test_rows_that_do_not_stand_one_after_the_other():
    """Every second row, or the rows backwards, are views that kernels must not read as if they were contiguous."""
    values = np.arange(1.0, 31.0)
    for view in (values[::2], values[::-1], np.broadcast_to(values[3], (9,))):
        np.testing.assert_array_equal(dv.parallel.scan("add", view), np.cumsum(view))
        tensor = torch.tensor(values).expand(2, 30).T[:, 0].requires_grad_()
        dv.parallel.scan("mul", tensor / 20).sum().backward()
        plain = torch.tensor(values, requires_grad=True)
        torch.cumprod(plain / 20, 0).sum().backward()
        np.testing.assert_allclose(tensor.grad, plain.grad, rtol=1e-12)


# name -> (operator, what it makes of two elements, [leaf] each)
BUCKETS = {
    "add": ("add", lambda a, b: [a[0] + b[0]]),
    "mul": ("mul", lambda a, b: [a[0] * b[0]]),
    "max": ("max", lambda a, b: [torch.maximum(a[0], b[0])]),
    "min": ("min", lambda a, b: [torch.minimum(a[0], b[0])]),
    "either": (
        P.operator(lambda a, b: a + b - a * b, neutral=0.0, commutative=True, name="either"),
        lambda a, b: [a[0] + b[0] - a[0] * b[0]],
    ),
    "pairs": (
        P.operator(
            lambda a, b: (a[0] * b[0], a[0] * b[1] + a[1] * b[0]), neutral=(1.0, 0.0), commutative=True, name="pairs"
        ),
        lambda a, b: [a[0] * b[0], a[0] * b[1] + a[1] * b[0]],
    ),
}


@pytest.mark.parametrize("name", BUCKETS)
@pytest.mark.parametrize(("buckets", "rows", "batch"), [(4, 9, ()), (4, 9, (3,)), (90, 6, (2,)), (90, 6, ())])
def test_plans_of_buckets(name, buckets, rows, batch, monkeypatch):
    """The same shapes again, with other numbers: nothing of a call before is in a result, and nothing kept changes."""
    operator, step = BUCKETS[name]
    rng, leaves = np.random.default_rng(1), 2 if name == "pairs" else 1
    calls, keep, done = [], element_by_index.IndexPlan.apply_keeping, []

    def counted(*arguments):
        calls.append(keep(*arguments))
        return calls[-1]

    monkeypatch.setattr(element_by_index.IndexPlan, "apply_keeping", counted)
    for dtype in (torch.int64, torch.int32, torch.int64):
        # Some rows go nowhere.
        indices = torch.tensor(rng.integers(-1, buckets + 1, rows)).to(dtype)
        groups = [
            [torch.tensor(rng.random((n, *batch)), requires_grad=True) for _ in range(leaves)] for n in (buckets, rows)
        ]
        before = [leaf.detach().clone() for leaf in groups[0]]
        nested = [group[0] if leaves == 1 else tuple(group) for group in groups]
        result = P.reduce_by_index(nested[0], operator, indices, nested[1])
        results = result if isinstance(result, tuple) else (result,)
        # By PyTorch, one row after the other.
        expected = [list(leaf) for leaf in groups[0]]
        for row, bucket in enumerate(indices.tolist()):
            if 0 <= bucket < buckets:
                after = step([leaf[bucket] for leaf in expected], [leaf[row] for leaf in groups[1]])
                for leaf, value in zip(expected, after):
                    leaf[bucket] = value
        wanted = [torch.stack(leaf) for leaf in expected]
        seeds = [torch.tensor(rng.random((buckets, *batch))) for _ in range(leaves)]
        inputs = [leaf for group in groups for leaf in group]
        theirs = torch.autograd.grad(wanted, inputs, seeds)
        # A second time by the same graph, after what came first was overwritten.
        for _ in range(2):
            mine = torch.autograd.grad(results, inputs, seeds, retain_graph=True)
            for a, b in zip((*results, *mine), (*wanted, *theirs)):
                torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-14)
            for gradient in mine:
                gradient.fill_(-1.0)
            assert all((seed >= 0).all() for seed in seeds)
        assert all(map(torch.equal, before, groups[0]))
        done.append((results, wanted))
    for results, wanted in done:
        assert all(map(torch.allclose, results, wanted))
    assert len(calls) == 3
    assert name in ("add", "mul") or all(kept for _, kept in calls)
