"""Operators that hold tensors of one number: values and gradients against loops of torch and JAX, in float64."""

import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

import derivable as dv
from derivable.bridge.fold import Fold
from derivable.core.diagnostics import DerivableError, OperatorError

P = dv.parallel
F64 = torch.float64


def group(w, m=dv):
    return lambda a, b: a + b + w * a * b


def soft_maximum(w, m=dv):
    return lambda a, b: w * m.logaddexp(a / w, b / w)


def cap(w, m=dv):
    return lambda a, b: m.minimum(a + b, w)


def velocities(w, m=dv):
    return lambda a, b: (a + b) / (1 + a * b / w**2)


def decay(w, m=dv):
    """Of pairs (time, state)."""
    return lambda a, b: (a[0] + b[0], a[1] * m.exp(-w * b[0]) + b[1])


CASES = {  # name: the operator with a parameter, its value, the neutral element
    "group": (group, 0.3, 0.0),
    "soft maximum": (soft_maximum, 0.7, -math.inf),
    "cap": (cap, 1.9, 0.0),
    "velocities": (velocities, 1.5, 0.0),
    "decay": (decay, 0.8, (0.0, 0.0)),
}


def number(value, dtype=F64):
    return torch.nn.Parameter(torch.tensor(value, dtype=dtype))


def leaves(x):
    return x if isinstance(x, tuple) else (x,)


def rows_of(values, rows):
    return [tuple(leaf[i] for leaf in values) if len(values) > 1 else values[0][i] for i in rows]


def looped(f, rows, like, neutral, exclusive=False):
    """(all prefixes, the last)"""
    start = (
        tuple(torch.full_like(like, k) for k in neutral)
        if isinstance(neutral, tuple)
        else torch.full_like(like, neutral)
    )
    total, found = None, []
    for row in rows:
        after = row if total is None else f(total, row)
        found.append((start if total is None else total) if exclusive else after)
        total = after
    return found, start if total is None else total


def stacked(parts, count):
    return [torch.stack([leaves(part)[k] for part in parts]) for k in range(count)]


def agree(found, expected, inputs):
    seeds = [torch.rand_like(x) for x in expected]

    def pulled(made):
        total = sum(torch.where(x.isinf(), 0.0, x * seed).sum() for x, seed in zip(made, seeds))
        return torch.autograd.grad(total, inputs, retain_graph=True, allow_unused=True, materialize_grads=True)

    for x, y in zip((*found, *pulled(found)), (*expected, *pulled(expected)), strict=True):
        torch.testing.assert_close(x, y, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("batch", [(), (2,)], ids=["scalars", "batch"])
@pytest.mark.parametrize("name", CASES)
def test_folds_have_gradients_by_what_the_operator_holds(name, batch):
    torch.manual_seed(0)
    make, value, neutral = CASES[name]
    w, count, n = number(value), len(leaves(neutral)), 11
    op, f = P.operator(make(w), neutral=neutral), make(w, torch)
    values = tuple(torch.rand(n, *batch, dtype=F64, requires_grad=True) for _ in range(count))
    given, like, inputs = values if count > 1 else values[0], values[0][0].detach(), (*values, w)
    for options in ({}, {"reverse": True}, {"exclusive": True}):
        rows = range(n)[::-1] if "reverse" in options else range(n)
        expected, _ = looped(f, rows_of(values, rows), like, neutral, "exclusive" in options)
        expected = stacked(expected[::-1] if "reverse" in options else expected, count)
        agree(leaves(P.scan(op, given, **options)), expected, inputs)
    _, total = looped(f, rows_of(values, range(n)), like, neutral)
    agree(leaves(P.reduce(op, given)), leaves(total), inputs)
    bounds = [0, 3, 3, 4, n]
    segments = [looped(f, rows_of(values, range(*ends)), like, neutral) for ends in itertools.pairwise(bounds)]
    offsets = torch.tensor(bounds)
    agree(leaves(P.segment_reduce(op, given, offsets)), stacked([last for _, last in segments], count), inputs)
    scanned = stacked([row for rows, _ in segments for row in rows], count)
    agree(leaves(P.segmented_scan(op, given, offsets)), scanned, inputs)
    if count == 1:
        buckets, where = torch.rand(4, *batch, dtype=F64, requires_grad=True), torch.randint(-1, 4, (n,))
        expected = list(buckets)
        for row, bucket in zip(values[0], where.tolist()):
            if bucket >= 0:
                expected[bucket] = f(expected[bucket], row)
        agree([P.reduce_by_index(buckets, op, where, given)], [torch.stack(expected)], (buckets, *inputs))


@pytest.mark.parametrize("name", CASES)
def test_derivatives_of_higher_order_and_forwards(name):
    torch.manual_seed(1)
    make, value, neutral = CASES[name]
    values = tuple(torch.rand(4, dtype=F64, requires_grad=True) for _ in leaves(neutral))

    def folded(w, *values):
        op = P.operator(make(w), neutral=neutral)
        return leaves(P.scan(op, values if len(values) > 1 else values[0]))[-1]

    inputs = (torch.tensor(value, dtype=F64, requires_grad=True), *values)
    assert torch.autograd.gradcheck(folded, inputs, check_forward_ad=True)
    assert torch.autograd.gradgradcheck(folded, inputs)


@pytest.mark.parametrize("name", CASES)
def test_arrays_of_jax(name):
    make, value, neutral = CASES[name]
    with jax.enable_x64(True):
        values = tuple(jnp.asarray(x) for x in np.random.default_rng(0).random((len(leaves(neutral)), 6)))

        def total(w, values, f, scan):
            return sum(jnp.sin(x).sum() for x in leaves(scan(f(w), values)))

        def ours(f, values):
            return P.scan(P.operator(f, neutral=neutral), values if len(values) > 1 else values[0])

        def loop(f, values):
            rows = [tuple(x[i] for x in values) if len(values) > 1 else values[0][i] for i in range(6)]
            found = rows[:1]
            for row in rows[1:]:
                found.append(f(found[-1], row))
            return tuple(jnp.stack([leaves(row)[k] for row in found]) for k in range(len(values)))

        w = jnp.asarray(value)
        for transform in (jax.grad, jax.hessian):
            found = jax.jit(transform(lambda w: total(w, values, make, ours)))(w)
            expected = transform(lambda w: total(w, values, lambda w: make(w, jnp), loop))(w)
            np.testing.assert_allclose(found, expected, rtol=1e-9)
        found = jax.grad(lambda values: total(w, values, make, ours))(values)
        expected = jax.grad(lambda values: total(w, values, lambda w: make(w, jnp), loop))(values)
        np.testing.assert_allclose(found, expected, rtol=1e-9)
        many = jnp.asarray([value, 1.1 * value])
        found = jax.vmap(lambda w: total(w, values, make, ours))(many)
        np.testing.assert_allclose(found, [total(w, values, make, ours) for w in many], rtol=1e-9)


INTEGER = torch.tensor(3)
OF_OTHER_DEVICES = {  # kind and operator -> structure, the operator, what it holds
    "scan": (None, soft_maximum(number(0.7)), 0.7),
    "segment_reduce": (np.array([0, 5, 5, 12]), soft_maximum(number(0.7)), 0.7),
    "reduce_by_index": (np.arange(12) % 3 - 1, soft_maximum(number(0.7)), 0.7),
    "reduce_by_index beside an integer": (np.arange(12) % 3 - 1, lambda a, b: a + b + 0 * INTEGER, 3),
}


@pytest.mark.parametrize("case", OF_OTHER_DEVICES)
def test_functions_of_jax_for_other_devices(case):
    """The adjoints of all copies of a parameter add up to those of the kernels."""
    (structure, function, held), kind = OF_OTHER_DEVICES[case], case.split()[0]
    fold = Fold(kind, P.operator(function, neutral=-math.inf).with_parameters(("float64",))[0], kind == "scan")
    x, copies = np.random.default_rng(0).random(12), np.full(12, held)
    operands = [x, copies] if fold.groups == 1 else [x[:2], copies[:2], x, copies]
    results = fold.apply(structure, operands)
    seeds = [np.ones_like(results[0]), *([None] * (len(fold.float_leaves) - 1))]
    expected = fold.pull(structure, seeds, operands, results)
    with jax.enable_x64(True):
        apply, pull = fold.elsewhere("JAX")
        found = apply(structure, operands)
        np.testing.assert_allclose(found[0], results[0])
        pulled = pull(structure, seeds, [jnp.asarray(x) for x in operands], found)
    step = len(fold.float_leaves)
    for leaf in range(step):
        totals = [sum(np.sum(part) for part in parts[leaf::step]) for parts in (pulled, expected)]
        np.testing.assert_allclose(*totals)


def test_numpy_values_beside_a_parameter_of_jax():
    values = np.arange(1.0, 4.0, dtype=np.float32)
    slope = jax.grad(lambda w: P.reduce(P.operator(group(w), neutral=0.0), values))(jnp.float32(0.5))
    # 1 + w s = (1 + w)(1 + 2w)(1 + 3w), so s = 6 + 11 w + 6 w^2.
    assert slope == 17.0


def test_each_call_sees_the_numbers_of_now():
    """Steps of an optimizer, tensors without gradients, those that are computed from others or take their places."""
    x, w, fixed = torch.tensor([1.0, 2.0]), number(0.5, torch.float32), torch.tensor(3.0)
    held = {"w": w}
    op = P.operator(lambda a, b: a + b + torch.square(held["w"]) * fixed * a * b, neutral=0.0)
    optimizer = torch.optim.SGD([w], 0.25)
    for _ in range(3):
        before = w.item()
        total = P.reduce(op, x)
        assert total.item() == pytest.approx(3 + before**2 * 3 * 2)
        optimizer.zero_grad()
        total.backward()
        assert w.grad.item() == pytest.approx(2 * before * 3 * 2)
        optimizer.step()
    fixed.fill_(1.0)
    held["w"] = torch.tensor(2.0)
    assert P.reduce(op, x).item() == 3 + 4 * 2


def test_several_parameters_one_of_them_twice():
    torch.manual_seed(0)
    u, v, x = number(0.4), number(-0.2), torch.rand(5, dtype=F64, requires_grad=True)
    f = lambda a, b: a + b + (u * v - u) * a * b  # noqa: E731
    expected, _ = looped(f, list(x), x[0].detach(), 0.0)
    agree([P.scan(P.operator(f, neutral=0.0), x)], [torch.stack(expected)], (x, u, v))


def test_operators_of_python_with_a_tensor_at_either_side():
    """Each against the same formula of torch; the fold has one combination."""
    w, x = number(0.7), torch.tensor([1.5, 2.5], dtype=F64, requires_grad=True)
    for of in (
        lambda a, b, m: (w - a) * (b - w),
        lambda a, b, m: w / a + b / w,
        lambda a, b, m: w**a + b**2 + a**w,
        lambda a, b, m: w % a + b % w,
        lambda a, b, m: m.where(w < a, a * w, b) + m.where(w > a, a, b),
        lambda a, b, m: m.where(a <= w, a, w * b) + m.where(w >= a, b, a),
        lambda a, b, m: m.where(w == a, a, w + b) + m.where(w != a, a * b, w),
        lambda a, b, m: m.where(w > 0, a, b),
        lambda a, b, m: m.exp(w) * a + (w + 1.0) * b,
        lambda a, b, m: torch.sigmoid(w) * a + w.square() * b,
        lambda a, b, m: m.sin(m.exp(w) * w - a) + w * b,
    ):
        found = P.reduce(P.operator(lambda a, b, of=of: of(a, b, dv), neutral=0.0), x)
        agree([found], [of(*x, torch)], (x, w))
    x, w = torch.tensor([13, 6]), torch.tensor(5)
    for of in (lambda a, b: (w & a) | (b ^ w), lambda a, b: (w | a) ^ b, lambda a, b: (w // a + b // w) + (w << b)):
        assert P.reduce(P.operator(of, neutral=0), x) == of(*x)


def test_parameters_that_are_integers_and_truth_values():
    bits, flag = torch.tensor(0b110), torch.tensor(True)
    op = P.operator(lambda a, b: dv.where(flag, (a ^ b) & bits, a), neutral=0)
    x = torch.tensor([1, 2, 4, 7])
    assert P.reduce(op, x).item() == (1 ^ 2 ^ 4 ^ 7) & 6
    flag.fill_(False)
    assert P.scan(op, x).tolist() == [1, 1, 1, 1]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_parameters_take_the_type_of_the_values(dtype):
    x, w = torch.tensor([1.0, 2.0], dtype=dtype, requires_grad=True), number(0.5)
    total = P.reduce(P.operator(group(w), neutral=0.0), x)
    total.backward()
    assert (total.dtype, total.item()) == (dtype, 4.0)
    assert (w.grad.dtype, w.grad.item(), x.grad.tolist()) == (F64, 2.0, [2.0, 1.5])


def test_what_torch_does_with_functions():
    x, w = torch.tensor([1.0, 2.0, 3.0], dtype=F64), torch.tensor(0.5, dtype=F64)

    def total(w):
        return P.reduce(P.operator(group(w), neutral=0.0), x)

    assert torch.func.grad(total)(w) == 17.0
    assert torch.func.hessian(total)(w) == 12.0
    assert torch.vmap(total)(torch.tensor([0.5, 1.0], dtype=F64)).tolist() == [13.0, 23.0]


def test_compiled_code_sees_the_numbers_of_now():
    x, w = torch.tensor([1.0, 2.0], dtype=F64), number(0.5)
    op = P.operator(group(w), neutral=0.0)
    compiled = torch.compile(lambda x: P.reduce(op, x) * 1.0, backend="eager")
    for value in (0.5, 1.5):
        with torch.no_grad():
            w.fill_(value)
        w.grad = None
        total = compiled(x)
        total.backward()
        assert (total.item(), w.grad.item()) == (3 + 2 * value, 2.0)


def test_laws_are_tried_with_the_numbers_of_now():
    w = number(1.0)
    P.operator(lambda a, b: w * a + w * b, neutral=0.0, check=True)
    with torch.no_grad():
        w.fill_(2.0)
    with pytest.raises(OperatorError, match="does not have this neutral element"):
        P.operator(lambda a, b: w * a + w * b, neutral=0.0, check=True)


def test_what_is_no_parameter():
    with pytest.raises(DerivableError, match=r"holds a tensor of shape \(3,\).*(.|\n)*a leaf of each element"):
        P.operator(lambda a, b: a + b * torch.ones(3), neutral=0.0)
    with pytest.raises(DerivableError, match="holds a tensor of type complex64"):
        P.operator(lambda a, b: a + b * torch.tensor(1j), neutral=0.0)
    op = P.operator(group(number(0.5)), neutral=0.0)
    with pytest.raises(DerivableError, match="what the operator holds is a torch tensor, values is not"):
        P.scan(op, np.ones(3))
    with pytest.raises(DerivableError, match=r"write `dv\.maximum`"):
        P.operator(lambda a, b: torch.maximum(a, number(1.0)), neutral=0.0)


class _Group(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.w = number(0.5)
        self.op = P.operator(lambda a, b: a + b + self.w * a * b, neutral=0.0)

    def forward(self, x):
        return P.reduce(self.op, x)


def test_parameters_of_modules():
    """In graphs and in functional calls they are the module's."""
    x, module = torch.tensor([1.0, 2.0], dtype=F64), _Group()
    assert torch.func.functional_call(module, {"w": torch.tensor(3.0)}, (x,)) == 9.0
    exported = torch.export.export(module, (x,), strict=False).module()
    traced = torch.jit.trace(module, x)
    with torch.no_grad():
        for w in (module.w, *exported.parameters()):
            w.fill_(2.0)
    assert [f(2 * x).item() for f in (module, exported, traced)] == [22.0] * 3
