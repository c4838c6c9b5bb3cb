"""Logic programs as JAX functions: against layers of PyTorch, under the transformations of JAX."""

import numpy as np
import pytest
import torch

import derivable as dv
from derivable.core.diagnostics import BindingError, DomainError, ShapeError, UnsupportedError

jax = pytest.importorskip("jax")

TEXT = """
type read(i32, i32), digit(i32)
rel mark = {0.3::2}
rel answer(x + y) = read(0, x), read(1, y), not mark(x)
rel both() = digit(d), answer(d)
"""
INPUTS = {"read": dv.independent([(0, 1), (0, 2), (1, 0), (1, 2)]), "digit": dv.categorical([1, 3, 4])}
OUTPUTS = {"answer": range(5), "both": ()}


def numbers():
    generator = torch.Generator().manual_seed(0)
    read = torch.rand(2, 4, generator=generator)
    return read, torch.rand(2, 3, generator=generator).softmax(-1)


@pytest.mark.parametrize("provenance", ["exact", "minmaxprob", "addmultprob"])
def test_functions_are_layers(provenance):
    layer = dv.nn.Logic(TEXT, INPUTS, OUTPUTS, provenance)
    function = dv.nn.logic_function(TEXT, INPUTS, OUTPUTS, provenance)
    p = [q.requires_grad_() for q in numbers()]
    arrays = [jax.numpy.asarray(q.detach().numpy()) for q in p]
    expected = layer(*p)
    weights = {"answer": torch.linspace(0.5, 1.5, 10).reshape(2, 5), "both": torch.tensor([1.0, 2.0])}

    def total(read, digit):
        found = function(read=read, digit=digit)
        return sum((found[name] * jax.numpy.asarray(weights[name].numpy())).sum() for name in found)

    for found in (function(*arrays), jax.jit(function)(*arrays), jax.vmap(function)(*arrays)):
        for name, values in expected.items():
            np.testing.assert_allclose(found[name], values.detach().numpy(), rtol=1e-5, atol=1e-6)
    gradients = torch.autograd.grad(sum((expected[name] * weights[name]).sum() for name in expected), p)
    for got, own in zip(jax.jit(jax.grad(total, (0, 1)))(*arrays), gradients):
        np.testing.assert_allclose(got, own.numpy(), rtol=1e-4, atol=1e-5)


def test_facts_that_change_are_padded():
    """A fact that is absent has the probability 0: as a layer whose samples have facts of their own."""
    function = dv.nn.logic_function(TEXT, {"read": INPUTS["read"]}, {"answer": range(5)}, facts={"digit": []})
    layer = dv.nn.Logic(TEXT, {"read": dv.varying()}, {"answer": range(5)}, facts={"digit": []})
    samples = [[(0, 1), (1, 2)], [(0, 2), (1, 0), (1, 2)], []]
    p = [torch.rand(len(tuples)) for tuples in samples]
    rows = np.zeros((3, 4), np.float32)
    for row, tuples, q in zip(rows, samples, p):
        for fact, number in zip(tuples, q.tolist()):
            row[INPUTS["read"].tuples.index(fact)] = number
    np.testing.assert_allclose(function(rows), layer(read=list(zip(samples, p))).numpy(), atol=1e-6)


def test_errors():
    function = dv.nn.logic_function(TEXT, INPUTS, OUTPUTS, "minmaxprob")
    read, digit = (q.numpy() for q in numbers())
    with pytest.raises(BindingError, match="no array for 'digit'"):
        function(read)
    with pytest.raises(ShapeError, match=r"input 'read' has shape \[2, 3\]"):
        function(digit, digit)
    with pytest.raises(ShapeError, match="batch dimensions do not fit"):
        function(read, digit[[0, 1, 0]])
    with pytest.raises(DomainError, match=r"read\[0, 0\] is 1.\d+, which is not a probability"):
        function(read + 1, digit)
    with pytest.raises(DomainError, match="a row of digit adds up to 2"):
        function(read, np.minimum(2 * digit, 1) * 0 + [[1, 1, 0]])
    for options in ({"provenance": "topkproofs"}, {"outputs": {"answer": None}}, {"inputs": {"read": dv.varying()}}):
        with pytest.raises(UnsupportedError):
            dv.nn.logic_function(TEXT, **{"inputs": INPUTS, "outputs": OUTPUTS, **options})


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_choices_of_few_bits_add_up_as_in_torch(dtype):
    """0.31 and 0.69 in bfloat16 add up to 1.002."""
    rows = jax.numpy.array([[3 / 7, 4 / 7], [0.1, 0.9], [0.31, 0.69]], dtype)
    inputs = {"a": dv.categorical([0, 1])}
    found = dv.nn.logic_function("type a(i32) rel q(x) = a(x)", inputs, {"q": [0, 1]})(rows)
    np.testing.assert_allclose(np.asarray(found, float), np.asarray(rows, float), atol=1e-6)
