"""Python functions as layers: values and gradients by enumeration of the arguments, convolution and differences."""

import itertools
import math
import operator
import pickle

import numpy as np
import pytest
import torch

import derivable as dv
from derivable.core.diagnostics import BindingError, DomainError, OperatorError, ShapeError
from derivable.nn import automaton

DIGIT = dv.categorical(range(10))
COLOUR = dv.categorical(["red", "green", "blue"])


def distributions(*shape, seed=0, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    return torch.rand(*shape, generator=generator, dtype=dtype).mul(4).softmax(-1).requires_grad_()


def enumerated(f, values, tables):
    """The probability of each of `values` by going through all arguments; tables: for each (arguments, tensor)."""
    sums = dict.fromkeys(values, 0.0)
    for chosen in itertools.product(*[zip(arguments, p) for arguments, p in tables]):
        sums[f(*[argument for argument, _ in chosen])] += math.prod(p for _, p in chosen)
    return torch.stack([torch.as_tensor(sums[value]) for value in values])


FUNCTIONS = {
    "sum": (operator.add, 2, 10),
    "difference": (lambda a, b: abs(a - b), 2, 10),
    "largest of three": (max, 3, 10),
    "no order among results": (lambda a, b: (a, "even") if b % 2 == 0 else "odd", 2, 10),
    "the first only": (lambda a, b, c: a, 3, 10),
    "a constant": (lambda a: 7, 1, 10),
    "a product that remembers": (lambda a, b, c, d: (a * b - c * d) % 11, 4, 6),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_of_digits(name):
    f, count, size = FUNCTIONS[name]
    layer = dv.nn.Function(f, *[dv.categorical(range(size))] * count)
    tables = [distributions(size, seed=seed) for seed in range(count)]
    wanted = enumerated(f, layer.values, [(range(size), p) for p in tables])
    y = layer(*tables)
    torch.testing.assert_close(y, wanted)
    torch.testing.assert_close(layer.log(*tables), wanted.log())
    weights = torch.linspace(-1, 2, len(layer.values), dtype=torch.float64)
    ours, theirs = (torch.autograd.grad((value * weights).sum(), tables) for value in (y, wanted))
    torch.testing.assert_close(ours, theirs)


def test_kinds_of_inputs():
    def f(colour, flags, is_late):
        return colour if is_late else "+".join(flags) or "none"

    layer = dv.nn.Function(f, COLOUR, dv.independent(["a", "b"]), dv.independent(()))
    p, flags, late = distributions(3), torch.tensor([0.3, 0.6]).double(), torch.tensor(0.25).double()
    subsets = [((), 0.28), (("a",), 0.12), (("b",), 0.42), (("a", "b"), 0.18)]
    wanted = enumerated(
        f,
        layer.values,
        [
            (["red", "green", "blue"], p),
            ([flags for flags, _ in subsets], [share for _, share in subsets]),
            ([False, True], [0.75, 0.25]),
        ],
    )
    assert layer.values == tuple(sorted(layer.values))
    torch.testing.assert_close(layer(p, flags, is_late=late), wanted)
    assert layer(p.expand(5, 1, 3), flags, late.expand(4)).shape == (5, 4, 7)
    with pytest.raises(BindingError, match="no tensor for 'flags', 'is_late'"):
        layer(p)


def test_equal_values_and_several_columns():
    layer = dv.nn.Function(lambda pair: sum(pair), dv.categorical([(1, 2), (3, 0), (1, 2), (4, 4)]))
    assert layer.values == (3, 8)
    torch.testing.assert_close(layer(torch.tensor([0.1, 0.2, 0.3, 0.4])), torch.tensor([0.6, 0.4]))
    roots = dv.nn.Function(lambda x: math.sqrt(x) if x >= 0 else math.nan, dv.categorical([-2, -1, 4]))
    assert len(roots.values) == 2
    assert sorted(roots(torch.tensor([0.2, 0.3, 0.5])).tolist()) == [0.5, 0.5]


def test_factors_and_the_result_of_a_layer():
    add = dv.nn.Function(operator.add, DIGIT, DIGIT)
    times = dv.nn.Function(operator.mul, dv.categorical(add.values), dv.categorical([1, 10], factors=True))
    p, q = distributions(2, 10).unbind()
    y = times(add(p, q), torch.tensor([2.0, 3.0]).double())
    wanted = enumerated(
        lambda a, b, c: (a + b) * c, times.values, [(range(10), p), (range(10), q), ([1, 10], [2.0, 3.0])]
    )
    torch.testing.assert_close(y, wanted)


@pytest.mark.parametrize("form", ["call", "log"])
def test_derivatives_of_any_order(form):
    layer = dv.nn.Function(lambda a, b, c: (a + b * c) % 4, *[dv.categorical(range(3))] * 3)
    call = layer if form == "call" else layer.log
    scores = torch.randn(3, 2, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(1), requires_grad=True)

    def f(scores):
        return call(*scores.softmax(-1).unbind())

    assert torch.autograd.gradcheck(f, scores)
    assert torch.autograd.gradgradcheck(f, scores)
    one = scores.detach()
    jacobian = torch.autograd.functional.jacobian(f, one)
    torch.testing.assert_close(torch.func.jacfwd(f)(one), jacobian)
    torch.testing.assert_close(torch.func.jacrev(f)(one), jacobian)
    many = torch.stack([one, one + 1, one * 2])
    torch.testing.assert_close(torch.func.vmap(f)(many), torch.stack([f(each) for each in many]))


def test_logarithms_where_probabilities_are_0_and_tiny():
    layer = dv.nn.Function(operator.or_, dv.independent(()), dv.independent(()))
    p = torch.tensor([[0.0, 0.5], [1.0, 0.5], [1e-30, 0.5]], dtype=torch.float64, requires_grad=True)
    (found,) = torch.autograd.grad(layer.log(*p.unbind(-1))[:, layer.values.index(True)].sum(), p)
    torch.testing.assert_close(found, torch.tensor([[1, 2], [0.5, 0], [1, 2]]).double(), rtol=1e-6, atol=1e-12)
    rare = dv.nn.Function.reduce(operator.add, dv.categorical([0, 1]), 2000)
    p = torch.tensor([0.9, 0.1], dtype=torch.float64).expand(2000, 2)
    logs = rare.log(p)
    assert rare(p)[-1] == 0
    for k in (0, 1000, 2000):
        ways = math.lgamma(2001) - math.lgamma(k + 1) - math.lgamma(2001 - k)
        assert float(logs[k]) == pytest.approx(ways + k * math.log(0.1) + (2000 - k) * math.log(0.9), rel=1e-12)


def test_no_choice_no_gradient_where_the_result_is_impossible():
    layer = dv.nn.Function(operator.add, dv.categorical([0, 1]), dv.categorical([0, 1]))
    p = torch.tensor([1.0, 0.0]).double().requires_grad_()
    logs = layer.log(p, torch.tensor([1.0, 0.0]).double())
    assert logs.tolist() == [0, -math.inf, -math.inf]
    (found,) = torch.autograd.grad(logs[2], p)
    assert found.tolist() == [0, 0]


@pytest.mark.parametrize("length", [1, 2, 3, 40])
def test_sums_of_digits(length):
    total = dv.nn.Function.reduce(operator.add, DIGIT, length)
    p = distributions(2, length, 10)
    assert total.values == tuple(range(9 * length + 1))
    y = total(p)
    for row in range(2):
        wanted = np.ones(1)
        for digit in p[row].detach().numpy():
            wanted = np.convolve(wanted, digit)
        np.testing.assert_allclose(y[row].detach(), wanted, atol=1e-14)
    torch.testing.assert_close(total.log(p), y.log())
    shares = torch.randn(len(total.values), dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    (found,) = torch.autograd.grad((y * shares).sum(), p)
    # The derivative by a digit's probability is the sum with that digit certain.
    place = length // 2
    certain = p.detach().clone()
    certain[:, place] = 0
    certain[:, place, 3] = 1
    torch.testing.assert_close(found[:, place, 3], total(certain) @ shares)


def test_folds_as_functools_has_them():
    def f(state, item):
        return state if item < 0 else (3 * state + item) % 7

    items = dv.categorical(range(-1, 4))
    p = distributions(5, 5)
    fold = dv.nn.Function.reduce(f, items, 5, initial=1)
    wanted = enumerated(lambda *items: functools_reduce(f, items, 1), fold.values, [(range(-1, 4), row) for row in p])
    torch.testing.assert_close(fold(p), wanted)
    texts = dv.nn.Function.reduce(operator.add, dv.categorical(["a", "b"]), 3, initial="")
    assert texts.values == ("aaa", "aab", "aba", "abb", "baa", "bab", "bba", "bbb")
    assert fold(p.expand(2, 3, 5, 5)).shape == (2, 3, 7)
    assert fold(torch.empty(0, 5, 5)).shape == (0, 7)


def functools_reduce(f, items, initial):
    state = initial
    for item in items:
        state = f(state, item)
    return state


def test_the_circuit():
    layer = dv.nn.Function(lambda a, b, late: a - b if late else 0, DIGIT, DIGIT, dv.independent(()))
    p, q = distributions(2, 10).unbind()
    late = torch.tensor(0.3, dtype=torch.float64)
    row = torch.cat([p, q, late[None]]).detach().numpy()
    np.testing.assert_allclose(layer.circuit.evaluate(row), layer(p, q, late).detach(), atol=1e-15)
    total = dv.nn.Function.reduce(operator.add, DIGIT, 4)
    p = distributions(4, 10)
    np.testing.assert_allclose(total.circuit.evaluate(p.detach().numpy().ravel()), total(p).detach(), atol=1e-15)
    jax = pytest.importorskip("jax")
    found = jax.jit(total.circuit.to_jax("real"))(p.detach().numpy().astype(np.float32).ravel())
    np.testing.assert_allclose(found, total(p).detach(), atol=1e-6)


def test_a_layer_is_copied_and_compiled():
    layer = dv.nn.Function(operator.add, DIGIT, COLOUR_NUMBERS)
    p, q = distributions(4, 10, dtype=torch.float32), distributions(4, 3, dtype=torch.float32)
    copy = pickle.loads(pickle.dumps(layer))
    assert copy.values == layer.values
    assert torch.equal(copy(p, q), layer(p, q))
    exported = torch.export.export(layer, (p.detach(), q.detach())).module()
    torch.testing.assert_close(exported(p, q), layer(p, q))
    assert layer(p.half(), q.half()).dtype == torch.float32


COLOUR_NUMBERS = dv.categorical([3, 5, 8])


def test_nothing_of_the_size_of_all_pairs_is_kept():
    total = dv.nn.Function.reduce(operator.add, DIGIT, 100)
    p = distributions(1, 100, 10)
    sizes: list[int] = []

    def pack(tensor):
        sizes.append(tensor.untyped_storage().nbytes())
        return tensor

    states = max(total.automaton.sizes)
    for call in (total, total.log):
        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            call(p)
    table = total.automaton.targets.nbytes
    assert max(size for size in sizes if size != table) < 8 * 10 * states / 2


def test_errors(monkeypatch):
    with pytest.raises(DomainError, match="takes \\(a, b\\), and 1 inputs"):
        dv.nn.Function(lambda a, b: a, DIGIT)
    with pytest.raises(OperatorError, match=r"raises ZeroDivisionError for \(0, 0\)"):
        dv.nn.Function(operator.truediv, DIGIT, DIGIT)
    with pytest.raises(OperatorError, match=r"f\(0, 0\) is \[0, 0\], a list, which is not hashable"):
        dv.nn.Function(lambda a, b: [a, b], DIGIT, DIGIT)
    with pytest.raises(DomainError, match="10 x 10 x 10 x 10 x 10 x 10 x 10 x 10 arguments are 100,000,000 calls"):
        dv.nn.Function(lambda *digits: sum(digits), *[DIGIT] * 8)
    monkeypatch.setattr(automaton, "MOST_CALLS", 1000)
    with pytest.raises(DomainError, match="more than 333 values after 6 of them"):
        dv.nn.Function.reduce(lambda state, item: (*state, item), dv.categorical(range(3)), 100, initial=())
    with pytest.raises(DomainError, match="no values that are known"):
        dv.nn.Function(lambda a: a, dv.varying())
    with pytest.raises(DomainError, match="one of a choice's values"):
        dv.nn.Function.reduce(operator.add, dv.independent(["a"]), 3)
    layer = dv.nn.Function(operator.add, DIGIT, DIGIT)
    with pytest.raises(DomainError, match="adds up to"):
        layer(torch.ones(10), torch.ones(10))
    with pytest.raises(ShapeError, match="the batch dimensions"):
        layer(distributions(3, 10), distributions(4, 10))
    with pytest.raises(ShapeError, match=r"5 items need \[\*batch, 5, 10\]"):
        dv.nn.Function.reduce(operator.add, DIGIT, 5)(distributions(4, 10))
    with pytest.raises(ShapeError, match="is a list"):
        layer([0.1] * 10, distributions(10))
