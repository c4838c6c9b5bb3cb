"""Every engine under everything that PyTorch does with a function, against finite differences and autograd."""

from functools import cache

import numpy as np
import pytest
import torch
from torch.func import grad, hessian, jacfwd, jacrev, jvp, vmap

import derivable as dv
from circuit.decimal_circuits import random_circuit
from derivable.algebra.semiring import Semiring

P = dv.parallel
PATHS = "rel path(a, b) = edge(a, b) or (path(a, c), edge(c, b))\nrel near(a) = edge(a, b), not off(b)"
STEPS = "rel path(a, b) = edge(a, b) or (edge(a, c), edge(c, b))\nrel near(a) = edge(a, b), not off(b)"
EDGES = [(0, 1), (1, 2), (0, 2), (2, 0)]
# A semiring of a user's own: sums of products, where a product counts less.
DAMPED = Semiring(
    "damped",
    plus=lambda a, b: a + b - 0.25 * a * b,
    times=lambda a, b: a * b,
    zero=0.0,
    one=1.0,
    complement=lambda a: 1 - a,
    fact=lambda probability, variable: probability * 0.5,
    show=lambda a: 2 * a,
    distributive=False,
)


def circuit(name, num_roots=1, negatives=False):
    module = random_circuit(np.random.default_rng(3), 4, 18, num_roots).to_torch(name)

    def call(x):
        x = x if name not in ("log", "max_plus") else x.log()
        return module(x[..., :4], x[..., 4:]) if negatives else module(x)

    return call, 8 if negatives else 4


def logic(provenance, log=False, program=PATHS):
    inputs = {"edge": dv.independent(EDGES), "off": dv.categorical(range(3), factors=True)}
    layer = dv.nn.Logic(program, inputs, {"path": [(0, 2), (1, 0)], "near": [0, 1]}, provenance, k=2)

    def call(x):
        found = (layer.log if log else layer)(edge=x[..., :4], off=x[..., 4:])
        return torch.cat([found["path"], found["near"]], -1)

    return call, 7


def loss(inputs="probabilities"):
    module = dv.nn.SemanticLoss([[1, 2], [-2, 3, -4], [-1, 4]], inputs=inputs, reduction="none")
    return lambda x: module(x.log() if inputs == "log_probabilities" else x)[..., None], 4


def fold(operator, kind="scan"):
    def call(x):
        rows = x.movedim(-1, 0)
        if kind == "reduce_by_index":
            found = P.reduce_by_index(rows[:2], operator, torch.tensor([0, 1, 0, 1]), rows[2:])
        else:
            found = P.scan(operator, rows)
        return found.movedim(0, -1)

    return call, 6


CASES = {
    "circuit log": lambda: circuit("log"),
    "circuit real": lambda: circuit("real", 2),
    "circuit real, negative weights": lambda: circuit("real", negatives=True),
    "circuit max_product": lambda: circuit("max_product", 2),
    "circuit damped": lambda: circuit(DAMPED),
    "logic exact": lambda: logic("exact"),
    "logic exact, logarithms": lambda: logic("exact", log=True),
    "logic minmaxprob": lambda: logic("minmaxprob"),
    "logic addmultprob": lambda: logic("addmultprob"),
    "logic topkproofs": lambda: logic("topkproofs"),
    "logic damped": lambda: logic(DAMPED, program=STEPS),
    "semantic loss": loss,
    "semantic loss, logarithms": lambda: loss("log_probabilities"),
    "scan": lambda: fold("mul"),
    "scan of an own operator": lambda: fold(P.operator(lambda a, b: a + b - a * b, neutral=0.0)),
    "reduce_by_index": lambda: fold("logaddexp", "reduce_by_index"),
}
case = cache(lambda name: CASES[name]())


def drawn(count, *batch, seed=0):
    tensor = torch.rand(*batch, count, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    return tensor * 0.3 + 0.1


def differences(f, x, step=1e-6):
    """The Jacobian by central differences, [output, input]."""
    eye = torch.eye(len(x), dtype=x.dtype) * step
    with torch.no_grad():
        return torch.stack([(f(x + e) - f(x - e)) / (2 * step) for e in eye], -1)


@pytest.mark.parametrize("name", CASES)
def test_autograd_to_the_second_order(name):
    f, count = case(name)
    x = drawn(count, 2).requires_grad_()
    assert torch.autograd.gradcheck(f, (x,), check_forward_ad=True)
    assert torch.autograd.gradgradcheck(f, (x,), check_fwd_over_rev=True)


@pytest.mark.parametrize("name", CASES)
def test_function_transforms(name):
    f, count = case(name)
    x, rows = drawn(count), drawn(count, 3, seed=1)
    jacobian = differences(f, x)
    for transform in (jacrev, jacfwd):
        torch.testing.assert_close(transform(f)(x), jacobian, rtol=1e-5, atol=1e-7)
    torch.testing.assert_close(jvp(f, (x,), (rows[0],))[1], jacobian @ rows[0], rtol=1e-5, atol=1e-7)
    torch.testing.assert_close(vmap(f)(rows), torch.stack([f(row) for row in rows]))
    torch.testing.assert_close(vmap(vmap(f), 1, 1)(rows[None].expand(2, 3, count)), f(rows)[None].expand(2, 3, -1))

    def total(y):
        return f(y).sin().sum()

    one_by_one = torch.stack([grad(total)(row) for row in rows])
    torch.testing.assert_close(vmap(grad(total))(rows), one_by_one)
    second = differences(grad(total), x)
    torch.testing.assert_close(hessian(total)(x), second, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(jacrev(jacrev(total))(x), second, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(vmap(hessian(total))(x[None])[0], second, rtol=1e-5, atol=1e-6)


# Other semirings of the same engine are the same operator in the graph.
GRAPHS = [
    "circuit log",
    "circuit real, negative weights",
    "circuit damped",
    "logic exact",
    "logic topkproofs",
    "semantic loss",
    "scan of an own operator",
    "reduce_by_index",
]


@pytest.mark.parametrize(
    "name", [name if name in GRAPHS else pytest.param(name, marks=pytest.mark.slow) for name in CASES]
)
def test_one_compiled_graph(name):
    f, count = case(name)
    x = drawn(count, 2).requires_grad_()
    torch._dynamo.reset()

    def step(y):
        return f(y * 0.5).square().sum()

    compiled = torch.compile(step, backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(compiled(x), step(x))
    torch.testing.assert_close(torch.autograd.grad(compiled(x), x), torch.autograd.grad(step(x), x))


def test_third_derivatives():
    f, count = case("circuit log")
    x = drawn(count)

    def along(y):
        return grad(lambda z: f(z).sum())(y)[0]

    def twice(y):
        return grad(along)(y)[1]

    third = differences(lambda y: twice(y)[None], x, 1e-5)[0]
    torch.testing.assert_close(grad(twice)(x), third, rtol=1e-4, atol=1e-5)


def test_circuits_are_what_torch_computes():
    """Values and Hessian of a small circuit written out in tensor operations."""
    a, b, c = dv.circuit.variables("a b c")
    module = dv.circuit.compile((a & b) | (~a & c)).to_torch("real")

    def written(w):
        return w[0] * w[1] + (1 - w[0]) * w[2]

    x = drawn(3)
    torch.testing.assert_close(module(x)[0], written(x))
    torch.testing.assert_close(hessian(lambda w: module(w)[0])(x), hessian(written)(x))
    logs = dv.circuit.compile((a & b) | (~a & c)).to_torch("log")
    torch.testing.assert_close(
        hessian(lambda w: logs(w)[0])(x.log()), hessian(lambda w: written(w.exp()).log())(x.log())
    )


def test_bad_weights_are_refused_inside_transformations():
    f, count = case("logic minmaxprob")
    with pytest.raises(dv.DerivableError, match="not a probability"):
        vmap(f)(drawn(count, 2) + 2)
    module = random_circuit(np.random.default_rng(3), 4, 18).to_torch("log")
    with pytest.raises(dv.DerivableError, match="is NaN at variable"):
        vmap(grad(lambda w: module(w)[0]))(torch.full((2, 4), torch.nan))
