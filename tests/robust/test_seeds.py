"""Seeds, wherever something is drawn: integers of Python and NumPy of any size; errors of ours for anything else."""

from functools import cache

import numpy as np
import pytest
import torch

import derivable as dv
from derivable.core.diagnostics import DomainError


@cache
def circuit():
    return dv.circuit.compile([[1, 2], [-2, 3], [3, 4, 5, 6]])


@cache
def program():
    return dv.Program(
        f"rel number = {{{', '.join(map(str, range(50)))}}}\nrel chosen(x) = x := uniform<9>(y: number(y))"
    )


def factorised(seed):
    books = [dv.vsa.random(9, 2, 4, generator=number) for number in (2, 3)]
    product = dv.vsa.random(20, 2, 4, generator=1)
    return dv.vsa.factorise(product, books, steps=2, restarts=1, threshold=1.5, generator=seed).indices


DRAWS = {
    "random": lambda seed: dv.vsa.random(9, 4, 64, generator=seed),
    "codebook": lambda seed: dv.vsa.codebook(9, 4, 64, generator=seed),
    "orthogonal": lambda seed: dv.vsa.codebook(9, 4, 64, kind="orthogonal", generator=seed),
    "powers": lambda seed: dv.vsa.codebook(9, 4, 64, kind="powers", generator=seed),
    "ItemMemory": lambda seed: dv.vsa.ItemMemory((4, 64), generator=seed).add_all(["a", "b"]).vectors,
    "factorise": factorised,
    "sample": lambda seed: circuit().sample(99, seed=seed),
    "ProbabilisticCircuit": lambda seed: dv.circuit.ProbabilisticCircuit(circuit()).sample(99, seed=seed),
    "Program.run": lambda seed: sorted(program().run(seed=seed)["chosen"]),
}


def same(a, b):
    return torch.equal(torch.as_tensor(a), torch.as_tensor(b))


@pytest.mark.parametrize("name", DRAWS)
def test_the_same_seed_in_any_form_makes_the_same_draws(name):
    draw = DRAWS[name]
    for seed in (np.int64(7), np.uint8(7), 7 + 2**64, np.array(7)[()]):
        assert same(draw(7), draw(seed))
    for seed in (2**70, -1, 2**63, np.uint64(2**64 - 1)):
        assert same(draw(seed), draw(int(seed) % 2**64))
    if name != "factorise":  # which may find the same from other starts
        assert not same(draw(7), draw(8))


@pytest.mark.parametrize("name", DRAWS)
@pytest.mark.parametrize(
    "seed",
    [True, 7.0, "7", np.random.default_rng(0), np.random.RandomState(0), [7]],
    ids=lambda seed: type(seed).__name__,
)
def test_what_is_no_seed_is_an_error_that_says_so(name, seed):
    with pytest.raises(DomainError, match="expected an integer"):
        DRAWS[name](seed)


@pytest.mark.parametrize(
    "generator", [np.random.default_rng(0), np.random.RandomState(0)], ids=lambda of: type(of).__name__
)
def test_a_generator_of_another_library_is_named_as_users_name_it(generator):
    with pytest.raises(DomainError, match="an integer, which that generator of numpy may draw"):
        dv.vsa.random(1, 4, 64, generator=generator)


def test_a_generator_of_torch_is_drawn_from():
    generator = torch.Generator().manual_seed(7)
    first, second = (dv.vsa.random(9, 4, 64, generator=generator) for _ in range(2))
    assert torch.equal(first, dv.vsa.random(9, 4, 64, generator=7))
    assert not torch.equal(first, second)
