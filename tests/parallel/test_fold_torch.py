"""Folds of torch tensors: values against torch's own, derivatives of first and second order in every mode."""

import dataclasses
import itertools
import threading
from functools import partial

import numpy as np
import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck

import derivable as dv
from derivable.core.diagnostics import DerivableError
from parallel import operator_cases

P = dv.parallel
OFFSETS = torch.tensor([0, 2, 2, 6])
INDICES = torch.tensor([1, 3, 1, 9, 0, 1])
BOTH = (False, True)


@dataclasses.dataclass(frozen=True)
class Affine:
    slope: torch.Tensor | float
    offset: torch.Tensor | float


# name -> (operator, shapes of one element's float leaves)
OPERATORS = {
    "add": ("add", [()]),
    "mul": ("mul", [()]),
    "min": ("min", [()]),
    "max": ("max", [()]),
    "logaddexp": ("logaddexp", [()]),
    "satadd": (P.operator(lambda a, b: dv.minimum(a + b, 2.5), neutral=0.0), [()]),
    "linear": (P.operator(lambda f, g: (f[0] * g[0], f[1] * g[0] + g[1]), neutral=(1.0, 0.0)), [(), ()]),
    "crossing": (
        P.operator(lambda a, b: (a[0] * b[0] - a[1] * b[1], a[0] * b[1] + a[1] * b[0]), neutral=(1.0, 0.0)),
        [(), ()],
    ),
    "product 2": (P.matrix_product(2), [(2, 2)]),
    "product 3": (P.matrix_product(3), [(3, 3)]),
    "log product 2": (P.matrix_product(2, "log"), [(2, 2)]),
    "three": (
        P.operator(lambda a, b: (a[0] + b[0], a[1] * b[1], dv.maximum(a[2], b[2])), neutral=(0.0, 1.0, -1e9)),
        [(), (), ()],
    ),
    "dataclass": (
        P.operator(lambda f, g: Affine(f.slope * g.slope, f.offset * g.slope + g.offset), neutral=Affine(1.0, 0.0)),
        [(), ()],
    ),
}
LARGE = ["product 3", "log product 2", "three"]
COMMUTATIVE = ["add", "mul", "min", "max", "logaddexp", "satadd", "crossing", "three"]


def values_for(shapes, rows, batch=(), seed=0):
    generator = torch.Generator().manual_seed(seed)
    return [
        torch.randn((rows, *batch, *shape), dtype=torch.float64, generator=generator).requires_grad_()
        for shape in shapes
    ]


def nested(op, leaves):
    if isinstance(getattr(op, "neutral", None), Affine):
        return Affine(*leaves)
    return leaves[0] if len(leaves) == 1 else tuple(leaves)


def flat(op, value):
    if isinstance(value, Affine):
        return value.slope, value.offset
    return value if isinstance(value, tuple) else (value,)


def check(function, inputs):
    """First derivatives entry by entry, second ones along random directions, both in both modes."""
    wide = sum(x.numel() for x in inputs) > 20
    assert gradcheck(function, inputs, check_forward_ad=True, fast_mode=wide)
    assert gradgradcheck(function, inputs, check_fwd_over_rev=True, fast_mode=True)


def finite(leaves):
    """Without the infinite neutral elements, which finite differences cannot subtract."""
    return tuple(torch.where(leaf.isinf(), 0.0, leaf) for leaf in leaves)


# kind -> (rows, folds of them)
FOLDS = {
    "scans": (4, [partial(P.scan, exclusive=is_set, reverse=is_set) for is_set in BOTH]),
    "scans one way": (4, [partial(P.scan, exclusive=is_set, reverse=not is_set) for is_set in BOTH]),
    "scans of segments": (
        6,
        [partial(P.segmented_scan, offsets=OFFSETS, exclusive=is_set, reverse=is_set) for is_set in BOTH],
    ),
    "reductions": (4, [P.reduce]),
    "segments": (6, [partial(P.segment_reduce, offsets=OFFSETS)]),
}


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        # The large operators take seconds to compile.
        pytest.param(name, kind, marks=pytest.mark.slow if name in LARGE and kind == "scans one way" else ())
        for name, kind in itertools.product(OPERATORS, FOLDS)
    ],
)
def test_derivatives(name, kind):
    (op, shapes), (rows, folds) = OPERATORS[name], FOLDS[kind]
    for fold in folds:
        check(lambda *leaves, fold=fold: finite(flat(op, fold(op, nested(op, leaves)))), values_for(shapes, rows))


@pytest.mark.parametrize("name", COMMUTATIVE)
def test_derivatives_of_reduce_by_index(name):
    op, shapes = OPERATORS[name]

    def histogram(*leaves):
        into, values = leaves[: len(shapes)], leaves[len(shapes) :]
        return flat(op, P.reduce_by_index(nested(op, into), op, INDICES, nested(op, values)))

    check(histogram, [*values_for(shapes, 4, seed=1), *values_for(shapes, 6)])


def test_derivatives_with_batch_axes():
    check(lambda x: P.scan("mul", x), values_for([()], 3, (2, 2)))
    check(lambda x: P.scan(OPERATORS["product 2"][0], x), values_for([(2, 2)], 3, (2,)))
    check(
        lambda d, x: P.reduce_by_index(d, "mul", INDICES[:3], x),
        [*values_for([()], 4, (2,)), *values_for([()], 3, (2,))],
    )


def test_third_derivatives():
    (x,) = values_for([()], 4)

    def gradient(x):
        return torch.autograd.grad(P.reduce("mul", torch.sin(x)), x, create_graph=True)[0]

    assert gradgradcheck(gradient, [x])


def test_a_place_has_no_derivative():
    op = P.operator(operator_cases.best, neutral=(-np.inf, 2**62))
    x = torch.tensor([1.0, 5, 2, 5], dtype=torch.float64, requires_grad=True)
    top, place = P.reduce(op, (x, torch.arange(4, dtype=torch.int32)))
    assert (top.item(), place.item()) == (5, 1)
    assert place.dtype == torch.int32
    assert not place.requires_grad
    top.backward()
    assert x.grad is not None
    assert x.grad.tolist() == [0, 1, 0, 0]
    (tops, places), (tangent, _) = torch.func.jvp(
        lambda x: P.scan(op, (x, torch.arange(4))), (x.detach(),), (torch.tensor([1.0, 2, 3, 4], dtype=torch.float64),)
    )
    assert tops.tolist() == [1, 5, 5, 5]
    assert places.tolist() == [0, 1, 1, 1]
    assert tangent.tolist() == [1, 2, 2, 2]


# Against torch's own

BUILT_IN = {
    "add": lambda x: torch.cumsum(x, 0),
    "mul": lambda x: torch.cumprod(x, 0),
    "logaddexp": lambda x: torch.logcumsumexp(x, 0),
    "max": lambda x: torch.cummax(x, 0).values,
    "min": lambda x: torch.cummin(x, 0).values,
}


@pytest.mark.parametrize("name", BUILT_IN)
def test_scan_is_what_torch_computes(name):
    (x,) = values_for([()], 1000, (3,))
    weight = torch.randn(1000, 3, dtype=torch.float64)
    results = []
    for scan in (lambda x: P.scan(name, x), BUILT_IN[name]):
        y = scan(x)
        (first,) = torch.autograd.grad((y * weight).sum(), x, create_graph=name not in ("max", "min"))
        if name in ("add", "max", "min"):
            second = torch.zeros(())
        else:
            (second,) = torch.autograd.grad((first * weight).sum(), x)
        results.append((y, first, second))
    for ours, theirs in zip(*results):
        torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(("name", "theirs"), [("add", "sum"), ("mul", "prod"), ("min", "amin"), ("max", "amax")])
def test_reduce_by_index_is_what_torch_computes(name, theirs):
    generator = torch.Generator().manual_seed(2)
    indices = torch.randint(0, 50, (400,), generator=generator)
    into, values = values_for([()], 50, seed=3)[0], values_for([()], 400)[0]
    weight = torch.randn(50, dtype=torch.float64, generator=generator)
    found = []
    for fold in (
        lambda: P.reduce_by_index(into, name, indices, values),
        lambda: into.scatter_reduce(0, indices, values, theirs),
    ):
        y = fold()
        found.append((y, *torch.autograd.grad((y * weight).sum(), (into, values))))
    for ours, expected in zip(*found):
        torch.testing.assert_close(ours, expected, rtol=1e-9, atol=1e-12)


# torch's ways


def test_memory_is_read_in_place():
    """A result of the kernels and the tensor that comes back share memory, and the input is not copied."""
    x = torch.arange(6.0)
    y = P.scan("add", x)
    assert y.tolist() == [0, 1, 3, 6, 10, 15]
    assert x.tolist() == [0, 1, 2, 3, 4, 5]
    from derivable.bridge.torch import array_of

    assert array_of(x).ctypes.data == x.data_ptr()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_small_floats(dtype):
    x = torch.tensor([0.5, 1.5, 2.0], dtype=dtype, requires_grad=True)
    y = P.scan("mul", x)
    assert y.dtype == dtype
    y[2].backward()
    assert x.grad is not None
    assert x.grad.dtype == dtype
    assert x.grad.tolist() == [3, 1, 0.75]


def test_only_what_is_needed_gets_a_gradient():
    into, values = torch.ones(2), torch.ones(3, requires_grad=True)
    y = P.reduce_by_index(into, "add", torch.tensor([0, 0, 1]), values)
    y.sum().backward()
    assert into.grad is None
    assert values.grad is not None
    assert not P.scan("add", into).requires_grad


def test_one_result_of_several_is_used():
    a, b = values_for([(), ()], 3)
    op = OPERATORS["linear"][0]
    found = torch.autograd.grad(P.scan(op, (a, b))[1][2], (a, b))
    expected = torch.autograd.grad((b[0] * a[1] + b[1]) * a[2] + b[2], (a, b))
    for ours, theirs in zip(found, expected):
        torch.testing.assert_close(ours, theirs)


def test_changing_an_operand_in_place_is_noticed():
    x = torch.ones(3, requires_grad=True)
    y = x * 2
    z = P.scan("mul", y)
    y += 1
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        z.sum().backward()


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


def test_function_transforms():
    def value(x):
        return P.reduce("mul", x)

    x = torch.tensor([2.0, 3.0, 4.0])
    assert torch.func.grad(value)(x).tolist() == [12, 8, 6]
    hessian = [[0, 4, 3], [4, 0, 2], [3, 2, 0]]
    assert torch.func.hessian(value)(x).tolist() == hessian
    assert torch.func.jacrev(torch.func.grad(value))(x).tolist() == hessian
    assert torch.func.jacfwd(torch.func.jacrev(lambda x: P.scan("mul", x)))(x)[2].tolist() == hessian
    rows = torch.stack([x, x + 1, torch.tensor([1.0, 0, 5])])
    assert torch.func.vmap(value)(rows).tolist() == [24, 60, 0]
    assert torch.func.vmap(torch.func.grad(value))(rows).tolist() == [[12, 8, 6], [20, 15, 12], [0, 5, 0]]
    found = torch.func.vmap(lambda x: P.scan("add", x, reverse=True), in_dims=1, out_dims=1)(rows)
    torch.testing.assert_close(found, rows.flip(0).cumsum(0).flip(0))
    # One operand is mapped, the other is not.
    indices = torch.tensor([0, 1, 0])
    found = torch.func.vmap(lambda v: P.reduce_by_index(torch.zeros(2), "add", indices, v))(rows)
    assert found.tolist() == [[6, 3], [8, 4], [6, 0]]


@pytest.mark.usefixtures("num_threads")
@pytest.mark.parametrize("op", ["add", "mul", "max", "logaddexp"])
def test_mapped_indices(op):
    generator = torch.Generator().manual_seed(1)
    into, values = (torch.rand(shape, dtype=torch.float64, generator=generator) for shape in ((4, 2), (3, 12, 2)))
    indices = torch.randint(-2, 6, (3, 12), generator=generator)
    weights = torch.linspace(1, 2, 8, dtype=torch.float64).reshape(4, 2)

    def value(x, i, y):
        return (P.reduce_by_index(x, op, i, y) * weights).sum().square()

    gradient = torch.func.grad(value, argnums=(0, 2))
    along = torch.rand((3, 12, 2), dtype=torch.float64, generator=generator)

    def slope(i, y, t):
        return torch.func.jvp(lambda y: value(into, i, y), (y,), (t,))

    def hessian(i, y):
        return torch.func.hessian(lambda y: value(into, i, y))(y)

    each = list(zip(indices, values, along))
    for found, expected in (
        (torch.func.vmap(value, (None, 0, 0))(into, indices, values), [value(into, i, y) for i, y, _ in each]),
        # The mapped axis of the indices is their last, and one value for all of them.
        (
            torch.func.vmap(value, (None, 1, None))(into, indices.T.to(torch.int32), values[0]),
            [value(into, i, values[0]) for i in indices],
        ),
        (
            torch.func.vmap(gradient, (None, 0, 0))(into, indices, values)[1],
            [gradient(into, i, y)[1] for i, y, _ in each],
        ),
        (
            torch.func.vmap(gradient, (None, 0, 0))(into, indices, values)[0],
            [gradient(into, i, y)[0] for i, y, _ in each],
        ),
        (torch.func.vmap(slope)(indices, values, along)[1], [slope(*row)[1] for row in each]),
        (torch.func.vmap(hessian)(indices, values), [hessian(i, y) for i, y, _ in each]),
    ):
        torch.testing.assert_close(found, torch.stack(expected), rtol=1e-11, atol=1e-12)

    def total(y):
        return torch.func.vmap(value, (None, 0, 0))(into, indices, y).sum()

    expected = torch.stack([gradient(into, i, y)[1] for i, y, _ in each])
    torch.testing.assert_close(torch.func.grad(total)(values), expected, rtol=1e-11, atol=1e-12)
    y = values.clone().requires_grad_()
    total(y).backward()
    torch.testing.assert_close(y.grad, expected, rtol=1e-11, atol=1e-12)
    # Twice, indices inside and values outside, and the other way round.
    both = torch.func.vmap(torch.func.vmap(value, (None, 0, 0)), (None, None, 0))(into, indices, values[:, None] * ONES)
    assert both.shape == (3, 3)
    torch.testing.assert_close(both[1, 2], value(into, indices[2], values[1]), rtol=1e-12, atol=0)
    both = torch.func.vmap(torch.func.vmap(value, (None, None, 0)), (None, 0, None))(into, indices, values)
    torch.testing.assert_close(both[1, 2], value(into, indices[1], values[2]), rtol=1e-12, atol=0)


ONES = torch.ones((1, 3, 1, 1), dtype=torch.float64)


def test_mapped_offsets():
    values = torch.rand((3, 5), dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    offsets = torch.tensor([[0, 2, 5], [0, 5, 5], [0, 0, 5]])
    for fold in (
        lambda o, x: P.segment_reduce("max", x, o),
        lambda o, x: P.segmented_scan("mul", x, o, reverse=True),
        lambda o, x: torch.func.grad(lambda x: P.segmented_scan("logaddexp", x, o, exclusive=True)[1:].exp().sum())(x),
    ):
        found = torch.func.vmap(fold)(offsets, values)
        torch.testing.assert_close(found, torch.stack([fold(o, x) for o, x in zip(offsets, values)]))
        found = torch.func.vmap(fold, (0, None))(offsets, values[0])
        torch.testing.assert_close(found, torch.stack([fold(o, values[0]) for o in offsets]))
    # A second map hides what is in the offsets until they are joined.
    twice = torch.func.vmap(torch.func.vmap(lambda o: P.segment_reduce("add", values[0], o)))
    assert twice(offsets[:2, None]).shape == (2, 1, 2)
    with pytest.raises(DerivableError, match="offsets go from -1"):
        twice(torch.tensor([[[0, 2, 5]], [[0, 2, 4]]]))


SATADD = OPERATORS["satadd"][0]
BOUNDS = torch.tensor([0, 2, 2, 7, 9])
PRODUCT = P.matrix_product(3)
COMPILED = {
    "scan": lambda x: P.scan(SATADD, x),
    "pairs": lambda x: P.scan(OPERATORS["linear"][0], (x, x * 2), reverse=True)[1],
    "matrices": lambda x: P.scan(PRODUCT, x[:9].reshape(1, 3, 3)),
    "segments": lambda x: P.segmented_scan("max", x, BOUNDS),
    "segment sums": lambda x: P.segment_reduce(SATADD, x[:, None], torch.tensor([0, 2, 9])),
    "product": lambda x: P.reduce("mul", x),
    "buckets": lambda x: P.reduce_by_index(x[:3], SATADD, torch.tensor([0, 2, 2, -1, 1, 0, 5, 0, 1]), x),
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
    compiled = torch.compile(lambda x: P.scan(SATADD, x), backend="aot_eager", fullgraph=True, dynamic=True)
    for rows in (3, 5, 8):
        x = torch.rand(rows)
        torch.testing.assert_close(compiled(x), P.scan(SATADD, x))


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
