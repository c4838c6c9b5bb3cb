"""What torch alone does with folds: memory, the tape, compiled functions, threads and checkpoints."""

import threading
import tracemalloc

import pytest
import torch
from torch.autograd import gradgradcheck
from torch.utils.checkpoint import checkpoint

import derivable as dv
from derivable.bridge.fold import Fold
from derivable.bridge.torch import array_of
from derivable.core.diagnostics import DerivableError
from derivable.device.cpu import memory, threads
from parallel.operator_cases import BY_NAME

P = dv.parallel
SATURATED, LINEAR = BY_NAME["saturated add"].operator, BY_NAME["linear functions"].operator


def test_third_derivatives():
    x = torch.rand(4, dtype=torch.float64, requires_grad=True)

    def gradient(x):
        return torch.autograd.grad(P.reduce("mul", torch.sin(x)), x, create_graph=True)[0]

    assert gradgradcheck(gradient, [x])


def test_memory_is_read_in_place():
    x = torch.arange(6.0)
    assert array_of(x).ctypes.data == x.data_ptr()
    P.scan("add", x)
    assert x.tolist() == [0, 1, 2, 3, 4, 5]


def test_only_what_is_needed_gets_a_gradient():
    into, values = torch.ones(2), torch.ones(3, requires_grad=True)
    y = P.reduce_by_index(into, "add", torch.tensor([0, 0, 1]), values)
    y.sum().backward()
    assert into.grad is None
    assert values.grad is not None
    assert not P.scan("add", into).requires_grad


def buckets_and_rows(rows=50, dtype=torch.float64):
    generator = torch.Generator().manual_seed(0)
    indices = torch.randint(-1, 4, (rows,), generator=generator)
    return torch.rand(3, dtype=dtype, generator=generator), indices, torch.rand(rows, dtype=dtype, generator=generator)


@pytest.mark.parametrize("changed", ["destination", "indices", "values", "result"])
def test_changes_in_place_are_noticed(changed):
    destination, indices, values = buckets_and_rows()
    tensors = {"destination": destination, "indices": indices, "values": values.clone().requires_grad_() * 1}
    tensors["result"] = P.reduce_by_index(destination, SATURATED, indices, tensors["values"])
    result = tensors["result"].sum()
    with torch.no_grad():
        tensors[changed].add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        result.backward()


def test_results_of_sums_may_be_changed_in_place():
    """No derivative of a sum reads its result, as with torch's own; that of a product does."""
    x, indices = torch.tensor([2.0, 3.0, 4.0], requires_grad=True), torch.tensor([0, 1, 0])
    for y, expected in (
        (P.scan("add", x), [6, 4, 2]),
        (P.scan("add", x, exclusive=True), [4, 2, 0]),
        (P.reduce_by_index(torch.zeros(2), "add", indices, x), [2, 2, 2]),
        (P.segmented_scan("add", x, torch.tensor([0, 1, 3])), [2, 4, 2]),
    ):
        y *= 2
        assert torch.autograd.grad(y.sum(), x)[0].tolist() == expected
    product = P.scan("mul", x)
    product *= 2
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        product.sum().backward()


def test_a_second_map_hides_what_is_in_offsets_until_they_are_joined():
    twice = torch.func.vmap(torch.func.vmap(lambda o: P.segment_reduce("add", torch.ones(5), o)))
    assert twice(torch.tensor([[[0, 2, 5]], [[0, 5, 5]]])).tolist() == [[[2, 3]], [[5, 0]]]
    with pytest.raises(DerivableError, match="offsets go from -1"):
        twice(torch.tensor([[[0, 2, 5]], [[0, 2, 4]]]))


BOUNDS = torch.tensor([0, 2, 2, 7, 9])
PRODUCT = P.matrix_product(3)
COMPILED = {
    "scan": lambda x: P.scan(SATURATED, x),
    "pairs": lambda x: P.scan(LINEAR, (x, x * 2), reverse=True)[1],
    "matrices": lambda x: P.scan(PRODUCT, x[:9].reshape(1, 3, 3)),
    "segments": lambda x: P.segmented_scan("max", x, BOUNDS),
    "segment sums": lambda x: P.segment_reduce(SATURATED, x[:, None], torch.tensor([0, 2, 9])),
    "product": lambda x: P.reduce("mul", x),
    "buckets": lambda x: P.reduce_by_index(x[:3], SATURATED, torch.tensor([0, 2, 2, -1, 1, 0, 5, 0, 1]), x),
    "half": lambda x: P.scan("add", x.bfloat16()).double(),
}


@pytest.mark.parametrize("name", COMPILED)
def test_folds_are_in_one_graph_with_what_is_around_them(name):
    def function(x):
        return (COMPILED[name](x * 2) * 3).sin().sum()

    torch._dynamo.reset()
    compiled = torch.compile(function, backend="aot_eager", fullgraph=True)
    for seed in (0, 1):
        x = torch.rand(9, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)).requires_grad_()
        torch.testing.assert_close(compiled(x), function(x))
        torch.testing.assert_close(torch.autograd.grad(compiled(x), x), torch.autograd.grad(function(x), x))


def test_graphs_take_any_number_of_rows():
    torch._dynamo.reset()
    compiled = torch.compile(lambda x: P.scan(SATURATED, x), backend="aot_eager", fullgraph=True, dynamic=True)
    for rows in (3, 5, 8):
        x = torch.rand(rows)
        torch.testing.assert_close(compiled(x), P.scan(SATURATED, x))


def test_what_does_not_fit_is_refused_in_compiled_functions_too():
    torch._dynamo.reset()
    with pytest.raises(DerivableError, match=r"values has shape \(4, 3\), not \[n, \*batch, 3, 3\]"):
        torch.compile(lambda x: P.scan(P.matrix_product(3), x), backend="aot_eager")(torch.ones(4, 3))
    with pytest.raises(DerivableError, match="offsets go from 0 to 7"):
        torch.compile(lambda x: P.segment_reduce("add", x, torch.tensor([0, 7])), backend="aot_eager")(torch.ones(4))
    with pytest.raises(DerivableError, match="values has dtype complex64"):
        torch.compile(lambda x: P.scan("add", x), backend="aot_eager")(torch.ones(4, dtype=torch.complex64))


def test_folds_outside_of_the_graph():
    """Of arrays that are no tensors, and with operators that the compiled function itself makes."""
    torch._dynamo.reset()
    found = torch.compile(lambda x: P.scan("add", x.numpy()), backend="aot_eager")(torch.ones(3))
    assert found.tolist() == [1, 2, 3]
    found = torch.compile(lambda x: P.scan(P.matrix_product(1), x), backend="aot_eager")(torch.full((3, 1, 1), 2.0))
    assert found.ravel().tolist() == [2, 4, 8]


def test_threads():
    x = torch.randn(2000, dtype=torch.float64)
    expected = torch.autograd.functional.jacobian(lambda x: P.reduce("logaddexp", x), x)
    found = [None] * 4

    def work(k):
        y = x.clone().requires_grad_()
        P.reduce("logaddexp", y).backward()
        found[k] = y.grad

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for gradient in found:
        torch.testing.assert_close(gradient, expected, rtol=1e-12, atol=1e-15)


class Sums(torch.utils.data.Dataset):
    def __len__(self):
        return 4

    def __getitem__(self, k):
        op = P.operator(lambda a, b: dv.minimum(a + b, 15.0), neutral=0.0)
        return P.scan(op, torch.full((3,), float(k)))


def test_workers_of_a_data_loader():
    found = torch.cat(list(torch.utils.data.DataLoader(Sums(), batch_size=2, num_workers=1)))
    assert found.tolist() == [[0, 0, 0], [1, 2, 3], [2, 4, 6], [3, 6, 9]]


@pytest.fixture
def arrays_handed(monkeypatch):
    """How many arrays each forward pass handed to its gradient."""
    counts, run = [], Fold.apply_keeping

    def counted(*arguments):
        made = run(*arguments)
        counts.append(len(made[1]))
        return made

    monkeypatch.setattr(Fold, "apply_keeping", counted)
    return counts


def test_memory_for_a_gradient_is_taken_only_where_there_is_one(arrays_handed, monkeypatch):
    destination, indices, values = buckets_and_rows(rows=400_000, dtype=torch.float32)
    wanted = values.clone().requires_grad_()
    # Compiling takes memory too, so that is done first.
    P.reduce_by_index(destination, SATURATED, indices, values)
    P.reduce_by_index(destination, SATURATED, indices, wanted).sum().backward()
    arrays_handed.clear()

    taken = []
    take = memory._take
    monkeypatch.setattr(memory, "_take", lambda key, used: taken.append(used) or take(key, used))

    def peak(rows, grad):
        taken.clear()
        tracemalloc.start()
        with torch.set_grad_enabled(grad):
            result = P.reduce_by_index(destination, SATURATED, indices, rows)
        assert result.shape == destination.shape
        found = tracemalloc.get_traced_memory()[1] + sum(taken)
        tracemalloc.stop()
        return found

    size = values.nbytes
    assert peak(values, True) < size / 10
    assert peak(wanted, False) < size / 10
    assert peak(wanted.detach(), True) < size / 10
    with torch.inference_mode():
        P.reduce_by_index(destination, SATURATED, indices, wanted)
    torch.func.jvp(lambda y: P.reduce_by_index(destination, SATURATED, indices, y), (values,), (values,))
    assert arrays_handed == []
    # One array of the size of the values, and that only until the gradient is there.
    assert size <= peak(wanted, True) < 1.25 * size
    assert len(arrays_handed) == 1


@pytest.mark.usefixtures("num_threads")
def test_saved_tensors_are_those_of_the_operands_the_result_and_one_more():
    """Of a sum those of the operands alone: its derivative reads no result."""
    saved = []
    # Smaller sums are torch's own.
    destination, indices, values = buckets_and_rows(rows=5000)
    with torch.autograd.graph.saved_tensors_hooks(lambda x: saved.append(x.numel()) or x, lambda x: x):
        P.reduce_by_index(destination, "add", indices, values.requires_grad_())
        plain = sum(saved)
        assert plain == destination.numel() + indices.numel() + values.numel()
        saved.clear()
        P.reduce_by_index(destination, SATURATED, indices, values)
    parts = threads.get_num_threads() if threads.get_num_threads() > 1 else 0
    assert sum(saved) == plain + destination.numel() + values.numel() + parts * destination.numel()


@pytest.mark.parametrize("use_reentrant", [False, True])
def test_checkpoints(use_reentrant, arrays_handed):
    destination, indices, values = buckets_and_rows()
    expected, found = (values.clone().requires_grad_() for _ in range(2))

    def fold(y):
        return P.reduce_by_index(destination, SATURATED, indices, y).exp()

    fold(expected).sum().backward()
    arrays_handed.clear()
    result = checkpoint(fold, found, use_reentrant=use_reentrant)
    # A checkpoint that runs without gradients leaves nothing; the other drops what was left.
    assert len(arrays_handed) == (0 if use_reentrant else 1)
    result.sum().backward()
    assert expected.grad is not None
    assert found.grad is not None
    assert torch.equal(found.grad, expected.grad)
