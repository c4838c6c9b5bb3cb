"""Probabilities are in [0, 1] in every type, with gradients that pass; a second backward is torch's.

Expected: torch's own losses, and the formula of a disjunction in float64.
"""

import pytest
import torch

import derivable as dv
from derivable.nn.values import TOLERANCE

PROGRAM = "type a(i32) rel q() = a(0) or a(1) or a(2) rel z() = not q()"
PROVENANCES = (
    *("exact", "topkproofs", "samplekproofs", "topbottomkclauses"),
    *("minmaxprob", "addmultprob", "nandmultprob", "maxmultprob", "nandminprob"),
)
OUTPUTS = {"q": (), "z": ()}


def rows(dtype, count):
    """Uniform ones, ones next to 1, and ones that rounding has put beyond it."""
    generator = torch.Generator().manual_seed(0)
    p = torch.rand(count, 3, generator=generator, dtype=torch.float64)
    p[::3] = 1 - p[::3] * 1e-4
    p = p.to(dtype)
    p[0] = 1 + 4 * torch.finfo(p.dtype).eps if dtype.itemsize >= 4 else 1
    return p


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("provenance", PROVENANCES)
@pytest.mark.parametrize("varies", [False, True])
def test_losses_take_all_outputs(provenance, dtype, varies):
    inputs = {"a": dv.varying() if varies else dv.independent([0, 1, 2])}
    layer = dv.nn.Logic(PROGRAM, inputs, OUTPUTS, provenance=provenance)
    p = rows(dtype, 60 if provenance.startswith(("sample", "topbottom")) or varies else 500).requires_grad_()
    found = layer(a=[([0, 1, 2], row) for row in p] if varies else p)
    for value in found.values():
        assert bool((value >= 0).all())
        assert bool((value <= 1).all())
        torch.nn.functional.binary_cross_entropy(value, torch.full_like(value, 0.5))
    found["q"].sum().backward()
    assert torch.isfinite(p.grad).all()
    if provenance in ("topkproofs", "exact", "nandmultprob") and dtype == torch.float32:
        # 1 - (1 - a)(1 - b)(1 - c)
        wide = p.detach().double().requires_grad_()
        (1 - (1 - wide).prod(-1)).sum().backward()
        torch.testing.assert_close(p.grad, wide.grad.float(), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("varies", [False, True])
def test_many_proofs_that_share_facts(varies):
    """Terms of inclusion and exclusion that cancel, next to probabilities of one, in float32."""
    text = "type a(i32) rel q() = " + " or ".join(f"(a({i}), a({(i + 1) % 10}))" for i in range(10))
    inputs = {"a": dv.varying() if varies else dv.independent(range(10))}
    layer = dv.nn.Logic(text, inputs, {"q": ()}, provenance="topkproofs", k=10)
    exact = dv.nn.Logic(text, {"a": dv.independent(range(10))}, {"q": ()})
    p = 1 - 0.3 * torch.rand(4, 10, generator=torch.Generator().manual_seed(1))
    found = layer(a=[(range(10), row) for row in p] if varies else p)
    torch.testing.assert_close(found.reshape(-1), exact(p.double()).float(), rtol=1e-6, atol=1e-6)


def test_functions_of_jax_too():
    jax = pytest.importorskip("jax")
    function = dv.nn.logic_function(PROGRAM, {"a": dv.independent([0, 1, 2])}, OUTPUTS)
    p = rows(torch.float32, 300).numpy()
    for value in function(a=p).values():
        assert (value >= 0).all()
        assert (value <= 1).all()
    gradient = jax.grad(lambda p: function(a=p)["q"].sum())(p[1:])
    expected = torch.tensor(p[1:], dtype=torch.float64, requires_grad=True)
    (1 - (1 - expected).prod(-1)).sum().backward()
    assert abs(gradient - expected.grad.numpy()).max() < 1e-5


@pytest.mark.parametrize("provenance", [*PROVENANCES, "log"])
@pytest.mark.parametrize("varies", [False, True])
@pytest.mark.parametrize("outputs", [{"q": ()}, OUTPUTS])
def test_a_second_backward_wants_the_graph_retained(provenance, varies, outputs):
    inputs = {"a": dv.varying() if varies else dv.independent([0, 1, 2])}
    layer = dv.nn.Logic(PROGRAM, inputs, outputs, provenance=provenance)
    p = torch.tensor([0.2, 0.3, 0.4], requires_grad=True)
    found = layer(a=[([0, 1, 2], p)] if varies else p)
    total = sum(value.sum() for value in found.values()) if isinstance(found, dict) else found.sum()
    total.backward(retain_graph=True)
    first = p.grad.clone()
    total.backward()
    torch.testing.assert_close(p.grad, 2 * first)
    with pytest.raises(RuntimeError, match="retain_graph=True"):
        total.backward()


@pytest.mark.parametrize("shape", [(0,), (0, 2), (2, 0)])
@pytest.mark.parametrize("provenance", PROVENANCES)
def test_empty_batches_have_a_derivative(provenance, shape):
    layer = dv.nn.Logic(PROGRAM, {"a": dv.independent([0, 1, 2])}, OUTPUTS, provenance=provenance)
    p = torch.ones(*shape, 3, requires_grad=True)
    found = layer(p)
    sum(value.sum() for value in found.values()).backward()
    assert found["q"].shape == shape
    assert p.grad.shape == p.shape


@pytest.mark.parametrize("off", [-0.5, 0.5])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
@pytest.mark.parametrize("provenance", PROVENANCES)
@pytest.mark.parametrize("varies", [False, True])
def test_what_rounding_in_a_narrow_type_gives_is_in_range(provenance, varies, dtype, off):
    """Below 0 or above 1 by half of what is accepted, in a type that another input makes wider."""
    inputs = {name: dv.varying() if varies else dv.independent([0, 1]) for name in "ab"}
    program = "type a(i32) type b(i32) rel q(x) = a(x) rel z(x) = b(x), not a(0)"
    layer = dv.nn.Logic(program, inputs, {"q": [0, 1], "z": [0, 1]}, provenance=provenance)
    tolerance = TOLERANCE[dtype]
    p = torch.tensor([off * tolerance + (off > 0), 0.5]).to(dtype).requires_grad_()
    other = torch.tensor([1.0, 0.5], dtype=torch.float64)
    found = layer(a=[([0, 1], p)] if varies else p, b=[([0, 1], other)] if varies else other)
    for value in found.values():
        assert bool((value >= 0).all())
        assert bool((value <= 1).all())
    (slope,) = torch.autograd.grad(found["q"].sum(), p)
    assert slope.tolist() == [1, 1]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_logarithms_that_rounding_in_a_narrow_type_gives_are_at_most_zero(dtype):
    inputs = {name: dv.independent([0, 1]) for name in "ab"}
    program = "type a(i32) type b(i32) rel q(x) = a(x), b(x) rel z(x) = b(x), not a(0)"
    layer = dv.nn.Logic(program, inputs, {"q": [0, 1], "z": [0, 1]}, log_probabilities=True)
    a = torch.tensor([TOLERANCE[dtype] / 2, -0.5]).to(dtype)
    found = layer(a=a, b=torch.tensor([0.0, -0.5], dtype=torch.float64))
    torch.testing.assert_close(found["q"], torch.tensor([0.0, -1.0], dtype=torch.float64))
    assert found["z"].tolist() == [-torch.inf, -torch.inf]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("varies", [False, True])
@pytest.mark.parametrize(("point", "both"), [((0.0, 0.5), (1, 0)), ((1.0, 0.5), (0, 1)), ((0.5, 0.0), (0, 1))])
def test_minima_and_maxima_have_derivatives_at_0_and_1(point, both, varies, dtype):
    """min(a, b), max(a, b) and 1 - a by hand; what has the value 0 changes with its fact."""
    program = "type a(i32) rel b() = a(0), a(1) rel o() = a(0) or a(1) rel n() = not a(0)"
    inputs = {"a": dv.varying() if varies else dv.independent([0, 1])}
    layer = dv.nn.Logic(program, inputs, {"b": (), "o": (), "n": ()}, provenance="minmaxprob")
    p = torch.tensor(point, dtype=dtype, requires_grad=True)
    found = layer(a=[([0, 1], p)] if varies else p)
    expected = {"b": both, "o": (1 - both[0], 1 - both[1]), "n": (-1, 0)}
    for name, value in found.items():
        (slope,) = torch.autograd.grad(value.sum(), p, retain_graph=True)
        assert tuple(slope.tolist()) == expected[name]
