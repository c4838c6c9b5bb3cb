"""What a fold of torch tensors leaves for its gradient: asked for only then, right for every way to ask."""

import tracemalloc

import numpy as np
import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck
from torch.utils.checkpoint import checkpoint

import derivable as dv
from derivable.bridge.fold import Fold
from derivable.device.cpu import memory, threads
from parallel import operator_cases

P = dv.parallel
pytestmark = pytest.mark.usefixtures("num_threads")
SATADD = P.operator(lambda a, b: dv.minimum(a + b, 2.5), neutral=0.0)
SOFT_OR = P.operator(lambda a, b: a + b - a * b, neutral=0.0)


@pytest.fixture
def kept(monkeypatch):
    """How many arrays each forward pass kept that was asked to."""
    counts = []
    run = Fold.apply_keeping

    def counted(*arguments):
        found = run(*arguments)
        counts.append(len(found[1]))
        return found

    monkeypatch.setattr(Fold, "apply_keeping", counted)
    return counts


def arguments(rows=50, buckets=3, seed=0, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    destination = torch.rand(buckets, dtype=dtype, generator=generator)
    indices = torch.randint(-1, buckets + 1, (rows,), generator=generator)
    return destination, indices, torch.rand(rows, dtype=dtype, generator=generator) / 4


def walked_again(op, destination, indices, values, seed):
    """The gradients by the rule that is handed nothing."""
    fold = Fold("reduce_by_index", op.typed(("float64",)))
    operands = [destination.numpy(), values.numpy()]
    return fold.pull(indices.numpy(), [seed.numpy()], operands, fold.apply(indices.numpy(), operands))


@pytest.mark.parametrize("op", [SATADD, SOFT_OR], ids=["satadd", "soft or"])
def test_gradients_have_the_bits_of_the_longer_way(op, kept, num_threads):
    destination, indices, values = arguments()
    seed = torch.linspace(-1, 2, 3, dtype=torch.float64)
    x, y = destination.clone().requires_grad_(), values.clone().requires_grad_()
    P.reduce_by_index(x, op, indices, y).backward(seed)
    assert kept == [1 if num_threads == 1 else 2]
    first, second = walked_again(op, destination, indices, values, seed)
    assert x.grad is not None
    assert y.grad is not None
    np.testing.assert_array_equal(x.grad.numpy(), first)
    np.testing.assert_array_equal(y.grad.numpy(), second)


def test_nothing_is_kept_when_no_gradient_is_asked_for(kept, monkeypatch):
    destination, indices, values = arguments(rows=400_000, dtype=torch.float32)
    wanted = values.clone().requires_grad_()
    # Compiling takes memory too, so that is done first.
    P.reduce_by_index(destination, SATADD, indices, values)
    P.reduce_by_index(destination, SATADD, indices, wanted).sum().backward()
    kept.clear()

    taken = []
    take = memory._take
    monkeypatch.setattr(memory, "_take", lambda key, used: taken.append(used) or take(key, used))

    def peak(given, grad):
        taken.clear()
        tracemalloc.start()
        with torch.set_grad_enabled(grad):
            result = P.reduce_by_index(destination, SATADD, indices, given)
        assert result.shape == destination.shape
        found = tracemalloc.get_traced_memory()[1] + sum(taken)
        tracemalloc.stop()
        return found

    size = values.nbytes
    assert peak(values, True) < size / 10
    assert peak(wanted, False) < size / 10
    assert peak(wanted.detach(), True) < size / 10
    with torch.inference_mode():
        P.reduce_by_index(destination, SATADD, indices, wanted)
    torch.func.jvp(lambda y: P.reduce_by_index(destination, SATADD, indices, y), (values,), (values,))
    assert kept == []
    # One array of the size of the values, and that only until the gradient is there.
    assert size <= peak(wanted, True) < 1.25 * size
    assert len(kept) == 1


def test_saved_tensors_are_those_of_the_operands_the_result_and_one_more():
    """Of a sum those of the operands alone: its derivative reads no result."""
    saved = []
    destination, indices, values = arguments()
    with torch.autograd.graph.saved_tensors_hooks(lambda x: saved.append(x.numel()) or x, lambda x: x):
        P.reduce_by_index(destination, "add", indices, values.requires_grad_())
        plain = sum(saved)
        assert plain == destination.numel() + indices.numel() + values.numel()
        saved.clear()
        P.reduce_by_index(destination, SATADD, indices, values)
    parts = threads.get_num_threads() if threads.get_num_threads() > 1 else 0
    assert sum(saved) == plain + destination.numel() + values.numel() + parts * destination.numel()


def test_a_second_gradient_through_the_same_graph():
    destination, indices, values = arguments()
    x, y = destination.requires_grad_(), values.requires_grad_()
    result = P.reduce_by_index(x, SOFT_OR, indices, y)
    seeds = torch.eye(3, dtype=torch.float64)
    first = [torch.autograd.grad(result, (x, y), seed, retain_graph=True) for seed in seeds]
    again = [torch.autograd.grad(result, (x, y), seed, retain_graph=True) for seed in seeds]
    for before, after in zip(first, again):
        for one, other in zip(before, after):
            assert torch.equal(one, other)
    pull = torch.func.vjp(lambda x, y: P.reduce_by_index(x, SOFT_OR, indices, y), x.detach(), y.detach())[1]
    for part, rows in zip(torch.func.vmap(pull)(seeds), zip(*first)):
        torch.testing.assert_close(part, torch.stack(rows), rtol=1e-14, atol=0)


@pytest.mark.parametrize("changed", ["destination", "indices", "values", "result"])
def test_changes_in_place_are_noticed(changed):
    destination, indices, values = arguments()
    tensors = {"destination": destination, "indices": indices, "values": values.clone().requires_grad_() * 1}
    tensors["result"] = P.reduce_by_index(destination, SATADD, indices, tensors["values"])
    result = tensors["result"].sum()
    with torch.no_grad():
        tensors[changed].add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        result.backward()


@pytest.mark.parametrize("op", [SATADD, SOFT_OR, "logaddexp"], ids=["satadd", "soft or", "logaddexp"])
def test_higher_derivatives(op, kept):
    destination, indices, values = arguments(rows=30)

    def fold(x, y):
        return P.reduce_by_index(x, op, indices, y)

    inputs = destination.requires_grad_(), values.requires_grad_()
    assert gradcheck(fold, inputs, check_forward_ad=True)
    assert gradgradcheck(fold, inputs, check_fwd_over_rev=True)
    assert kept
    assert 0 not in kept


@pytest.mark.parametrize("use_reentrant", [False, True])
def test_checkpoints(use_reentrant, kept):
    destination, indices, values = arguments()
    expected, found = (values.clone().requires_grad_() for _ in range(2))

    def fold(y):
        return P.reduce_by_index(destination, SATADD, indices, y).exp()

    fold(expected).sum().backward()
    kept.clear()
    result = checkpoint(fold, found, use_reentrant=use_reentrant)
    # A checkpoint that runs without gradients leaves nothing; the other drops what was left.
    assert len(kept) == (0 if use_reentrant else 1)
    result.sum().backward()
    assert expected.grad is not None
    assert found.grad is not None
    assert torch.equal(found.grad, expected.grad)


def test_elements_of_several_leaves_and_batch_axes():
    argmax = P.operator(operator_cases.best, neutral=(-np.inf, 2**62), commutative=True)
    generator = torch.Generator().manual_seed(2)
    values = torch.rand((40, 2, 3), generator=generator, requires_grad=True)
    into = torch.full((4, 2, 3), -torch.inf), torch.full((4, 2, 3), 2**62)
    indices = torch.randint(0, 4, (40,), generator=generator)
    places = torch.arange(40)[:, None, None].expand(40, 2, 3)
    largest, place = P.reduce_by_index(into, argmax, indices, (values, places))
    torch.testing.assert_close(torch.gather(values, 0, place), largest)
    (gradient,) = torch.autograd.grad(largest.sum(), values)
    expected = torch.zeros(40, 2, 3).scatter_(0, place, 1.0)
    assert torch.equal(gradient, expected)
