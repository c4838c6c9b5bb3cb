"""Match probabilities, codebooks, and probability mass as vectors."""

import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import derivable as dv

law = settings(deadline=None, max_examples=15)
seeds = st.integers(0, 2**31)


@law
@given(seeds)
def test_match_probability_is_one(seed):
    """The chance that two independent draws of a place agree, by adding up all pairs of places."""
    a, b = dv.vsa.random(2, 2, 3, distribution="mass", generator=seed, dtype=torch.float64)
    expected = 0.0
    for block, (i, j) in itertools.product(range(2), itertools.product(range(3), repeat=2)):
        expected += (a[block, i] * b[block, j]).item() / 2 * (i == j)
    assert dv.vsa.match_probability(a, b).item() == pytest.approx(expected)


def test_match_probabilities_are_those_of_all_pairs():
    generator = torch.Generator().manual_seed(0)
    queries, codebook = torch.rand(5, 2, 3, 4, generator=generator), torch.rand(7, 3, 4, generator=generator)
    found = dv.vsa.match_probabilities(queries, codebook)
    assert found.shape == (5, 2, 7)
    assert torch.allclose(found, dv.vsa.match_probability(queries.unsqueeze(-3), codebook))
    # One codebook for each entry of a batch.
    books = torch.rand(5, 1, 7, 3, 4, generator=generator)
    found = dv.vsa.match_probabilities(queries, books)
    assert torch.allclose(found, dv.vsa.match_probability(queries.unsqueeze(-3), books))


@law
@given(seeds, st.integers(1, 8))
def test_mass_there_and_back(seed, items):
    mass = torch.rand(3, items, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) + 0.01
    mass = mass / mass.sum(-1, keepdim=True)
    codebook = dv.vsa.codebook(items, 2, 8, kind="orthogonal", generator=seed, dtype=torch.float64)
    vector = dv.vsa.mass_to_vector(mass, codebook)
    assert torch.allclose(vector, (mass[:, :, None, None] * codebook).sum(1))
    assert torch.allclose(vector.sum(-1), torch.ones(3, 2, dtype=torch.float64))
    assert torch.allclose(dv.vsa.vector_to_mass(vector, codebook), mass)
    soft = dv.vsa.vector_to_mass(vector, codebook, temperature=0.1)
    assert torch.equal(soft.argmax(-1), mass.argmax(-1))


def test_mass_of_nothing_is_uniform():
    codebook = dv.vsa.codebook(4, 2, 8, kind="orthogonal", generator=0)
    nothing = torch.zeros(2, 8, requires_grad=True)
    mass = dv.vsa.vector_to_mass(nothing, codebook)
    assert mass.tolist() == [0.25] * 4
    mass.sum().backward()
    assert torch.isfinite(nothing.grad).all()


@law
@given(seeds, st.integers(2, 12))
def test_binding_mass_adds_random_numbers(seed, length):
    """On cyclic codes the distribution of a sum is the binding, by adding up all pairs."""
    numbers = -(-length // 2)
    codebook = dv.vsa.codebook(length, 3, length, kind="cyclic", generator=seed, dtype=torch.float64)
    first, second = torch.rand(2, numbers, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) + 0.01
    first, second = first / first.sum(), second / second.sum()
    expected = torch.zeros(length, dtype=torch.float64)
    for i, j in itertools.product(range(numbers), repeat=2):
        expected[(i + j) % length] += first[i] * second[j]
    vectors = [dv.vsa.mass_to_vector(mass, codebook[:numbers]) for mass in (first, second)]
    assert torch.allclose(dv.vsa.vector_to_mass(dv.vsa.bind(*vectors), codebook), expected)
    apart = dv.vsa.unbind(dv.vsa.bind(*vectors), vectors[0])
    assert dv.vsa.similarity(apart, vectors[1]) > 0.3


def test_powers_count():
    codebook = dv.vsa.codebook(10, generator=0, kind="powers", dtype=torch.float64)
    for i, j in itertools.product(range(5), repeat=2):
        assert torch.allclose(dv.vsa.bind(codebook[i], codebook[j]), codebook[i + j])
        assert torch.allclose(dv.vsa.unbind(codebook[i + j], codebook[i]), codebook[j])


def test_orthogonal_items_have_nothing_in_common():
    codebook = dv.vsa.codebook(16, 4, 16, kind="orthogonal", generator=0)
    assert torch.equal(dv.vsa.match_probabilities(codebook, codebook), torch.eye(16))
    assert torch.equal(codebook, dv.vsa.codebook(16, 4, 16, kind="orthogonal", generator=0))


def test_derivatives():
    generator = torch.Generator().manual_seed(0)
    mass = torch.rand(2, 3, generator=generator, dtype=torch.float64, requires_grad=True)
    codebook = torch.rand(3, 2, 4, generator=generator, dtype=torch.float64, requires_grad=True)

    def there_and_back(mass, codebook):
        vector = dv.vsa.mass_to_vector(mass, codebook)
        return dv.vsa.vector_to_mass(vector, codebook), dv.vsa.match_probability(vector[:1], codebook)

    assert torch.autograd.gradcheck(there_and_back, (mass, codebook))
    assert torch.autograd.gradgradcheck(there_and_back, (mass, codebook), fast_mode=True)
