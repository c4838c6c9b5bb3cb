"""Operations inside torch.fx, torch.compile, vmap, and a model of a user's own."""

import dataclasses

import pytest
import torch

import derivable as dv
from derivable.vsa import bind as imported_bind
from derivable.vsa import models


class Reader(torch.nn.Module):
    """A layer, operations under several names, a memory, and what torch does itself."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.layer = torch.nn.Linear(32, 32)
        self.memory = dv.vsa.ItemMemory((2, 16), generator=0).add_all("abc")

    def forward(self, x, y):
        z = dv.vsa.bind(self.layer(x.flatten(-2)).unflatten(-1, (2, 16)), y)
        left = dv.vsa.unbind(imported_bind(z, y), self.memory.vectors[0])
        matched = dv.vsa.match_probabilities(left, self.memory.vectors).clamp(0, 1).sum(-1)
        return dv.vsa.permute(dv.vsa.bundle(left, y)) + self.memory(z, 0.1), matched


def test_operations_are_leaves_of_a_trace():
    reader, x = Reader(), torch.rand(3, 2, 16)
    traced = torch.fx.symbolic_trace(reader)
    names = [node.target.__name__ for node in traced.graph.nodes if node.op == "call_function"]
    of_ours = [name for name in names if name in dv.vsa.__all__]
    assert of_ours == ["bind", "bind", "unbind", "match_probabilities", "bundle", "permute", "cleanup"]
    for found, expected in zip(traced(x, x), reader(x, x)):
        assert torch.equal(found, expected)
    unknown = dataclasses.replace(models.get("map"), name="unheard")
    with pytest.raises(dv.DerivableError, match="not registered"):
        torch.fx.symbolic_trace(lambda x: dv.vsa.bind(x, x, model=unknown))


def test_every_public_operation_is_a_leaf():
    v, x = dv.vsa, torch.rand(3, 2, 8)

    def everything(x):
        y, book = x[0], x
        return [
            *(v.bind(y, y), v.unbind(y, y), v.inverse(y), v.bundle(x), v.permute(y, 2), v.normalise(y)),
            *(v.power(y, 0.5), v.similarity(y, y), v.similarities(y, book), v.cleanup(y, book)),
            *(v.match_probability(y, y), v.match_probabilities(y, book), v.vector_to_mass(y, book)),
            *(v.mass_to_vector(v.similarities(y, book), book), v.sequence(x), v.element(y, 1), v.ngrams(x, 2)),
            *(v.record(x, x), v.push(y, y), v.pop(y, y), v.factorise(y, [book]).indices),
            *(v.tree((y, (y, y)), y, y), v.branch(y, "lr", y, y), v.convolve(y, y), v.correlate(y, y)),
        ]

    traced = torch.fx.symbolic_trace(everything)
    called = {node.target for node in traced.graph.nodes if node.op == "call_function"}
    inside = {dv.vsa.tree, dv.vsa.branch}  # made of the others, by the structure that they are given
    functions = {getattr(v, name) for name in v.__all__ if name[0].islower()}
    not_of_vectors = {v.random, v.identity, v.codebook, v.register, v.models, v.explain}
    assert functions - called == inside | not_of_vectors
    for found, expected in zip(traced(x), everything(x)):
        assert torch.equal(found, expected)


def test_compiled():
    reader, x = Reader(), torch.rand(3, 2, 16)
    compiled = torch.compile(reader, backend="aot_eager", fullgraph=True)
    x.requires_grad_()
    for found, expected in zip(compiled(x, x), reader(x, x)):
        assert torch.allclose(found, expected, atol=1e-6)
    (found,) = torch.autograd.grad(compiled(x, x)[0].square().sum(), x)
    (expected,) = torch.autograd.grad(reader(x, x)[0].square().sum(), x)
    assert torch.allclose(found, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", models.names())
def test_vmap_and_jacobians(name):
    shape = (2, 8) if models.get(name).rank == 2 else (8,)
    a, b = dv.vsa.random(2, 3, *shape, model=name, generator=0)

    def one(a, b):
        bound = dv.vsa.permute(dv.vsa.bind(a, b, model=name), model=name)
        return dv.vsa.similarity(dv.vsa.unbind(bound, a, model=name), b, model=name)

    assert torch.allclose(torch.func.vmap(one)(a, b), one(a, b))
    if not a.dtype.is_complex and a.dtype != torch.bool:
        jacobian = torch.func.vmap(torch.func.jacrev(one))(a, b)
        forward = torch.func.vmap(torch.func.jacfwd(one))(a, b)
        assert torch.allclose(jacobian, forward, atol=1e-5)


def test_a_model_of_ones_own_is_one_record():
    """Binding by adding angles modulo a whole turn, in 16 steps: cyclic group representations."""
    cyclic = dv.vsa.Model(
        name="cyclic_group",
        axes=("dimension",),
        bind=lambda a, b: (a + b) % 16,
        inverse=lambda a: -a % 16,
        identity=lambda shape, dtype, device: torch.zeros(shape, dtype=dtype, device=device),
        samplers={"steps": lambda shape, generator, dtype, device: torch.randint(16, shape, generator=generator)},
        features=lambda a: (
            torch.view_as_real(torch.polar(torch.ones(()), a * (torch.pi / 8))).flatten(-2) / a.shape[-1] ** 0.5
        ),
        permute=lambda a, shift: a.roll(shift, -1),
        normalise=lambda a: a % 16,
        bundle=lambda vectors, weights: vectors.mode(-2).values,
        sums=False,
        dtypes=(torch.int64,),
        exact=frozenset({"steps"}),
    )
    assert dv.vsa.register(cyclic) is cyclic
    try:
        a, b = dv.vsa.random(2, 500, model="cyclic_group", generator=0)
        c = dv.vsa.bind(a, b, model="cyclic_group")
        assert torch.equal(dv.vsa.unbind(c, a, model=cyclic), b)
        assert dv.vsa.similarity(a, a, model=cyclic).item() == pytest.approx(1, abs=1e-5)
        memory = dv.vsa.ItemMemory((500,), model="cyclic_group", generator=1).add_all("abcd")
        assert memory.nearest(dv.vsa.sequence(memory[["a", "b", "c"]], model=cyclic)).names
        with pytest.raises(dv.DerivableError, match="taken"):
            dv.vsa.register(dataclasses.replace(cyclic, axes=("d",)))
    finally:
        models.REGISTRY.remove("cyclic_group")
