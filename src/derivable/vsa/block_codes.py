"""What only block codes have: each block is read as a distribution over its places.

Names beside those of NVSA's code: match_probability is match_prob, match_probabilities match_prob_multi and its batched
form, mass_to_vector pmf2vec, vector_to_mass its inverse, codebook block_discrete_codebook and the continuous one.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from derivable.core.arguments import integer
from derivable.core.diagnostics import DomainError, ShapeError
from derivable.vsa.arguments import check_beside, check_pair, check_vectors, described, generator_of
from derivable.vsa.leaf import leaf
from derivable.vsa.models import block
from derivable.vsa.operations import power, products, random, soft_choice


@leaf
def match_probability(a: Tensor, b: Tensor) -> Tensor:
    """The probability that two codes draw the same place, averaged over the blocks: the mean of their inner products.

    a, b    [*batch, block, length]; batches are broadcast
    returns [*batch], in the dtype of the codes. It is from 0 to 1 where the blocks are distributions

    Source: NVSA (Hersche et al., 2023), `match_prob`.
    """
    check_pair(a, b, ("a", "b"), block)
    return (a * b).sum((-2, -1)) / a.shape[-2]


@leaf
def match_probabilities(queries: Tensor, codebook: Tensor) -> Tensor:
    """The match probability of each query with each item; one matrix product.

    queries  [*batch, block, length]
    codebook [*batch, item, block, length]; batches are broadcast
    returns  [*batch, item]
    """
    check_pair(queries, codebook, ("queries", "codebook"), block, items=(0, 1))
    dtype = torch.promote_types(queries.dtype, codebook.dtype)
    return products(queries.to(dtype).flatten(-2), codebook.to(dtype).flatten(-2)) / queries.shape[-2]


@leaf
def mass_to_vector(mass: Tensor, codebook: Tensor) -> Tensor:
    """The mean of the items under probability masses: blocks that are distributions stay so.

    mass     [*batch, item]
    codebook [item, block, length]
    returns  [*batch, block, length]
    """
    _check_codebook(codebook)
    check_beside(mass, "mass", "*batch, item", codebook)
    if mass.dim() < 1 or mass.shape[-1] != codebook.shape[0]:
        raise ShapeError(
            f"mass is {list(mass.shape)}, expected [*batch, item={codebook.shape[0]}] for the codebook "
            f"{described(codebook, block, 1)}"
        )
    return block.bundle(codebook, mass)


@leaf
def vector_to_mass(vector: Tensor, codebook: Tensor, *, temperature: float | None = None) -> Tensor:
    """Probability masses over the items of a codebook, from how well each matches.

    vector      [*batch, block, length]
    codebook    [item, block, length]
    temperature None to divide the match probabilities, those below zero as zero, by their sum (all zero: uniform);
                a positive number for softmax(match probability / temperature)
    returns     [*batch, item], summing to one

    Law: where the items of a codebook have no place in common (`codebook(kind="orthogonal")`), it is the inverse of
    `mass_to_vector`.
    """
    _check_codebook(codebook)
    found = match_probabilities(vector, codebook)
    if temperature is not None:
        return soft_choice(found, temperature)
    found = found.clamp(min=0)
    total = found.sum(-1, keepdim=True)
    return torch.where(total > 0, found / torch.where(total > 0, total, 1), 1 / found.shape[-1])


def codebook(
    items: int,
    blocks: int = 4,
    length: int = 256,
    *,
    kind: str = "random",
    generator: torch.Generator | int | None = None,
    dtype: torch.dtype | None = None,
    device: object = None,
) -> Tensor:
    """Codes for the values of an attribute: [item, block, length].

    kind  "random": one-hot blocks, drawn independently;
          "orthogonal": one-hot blocks, no place of a block twice, so at most `length` items;
          "powers": item i is power(base, i) of one unitary code, so that binding adds the numbers of items and
          unbinding subtracts them, fractions and numbers beyond the codebook too;
          "cyclic": the same for one-hot codes, whose blocks are distributions; numbers count modulo `length`

    Raises DomainError for another kind, or more orthogonal items than places.
    """
    items, blocks, length = integer(items, "items", 1), integer(blocks, "blocks", 1), integer(length, "length", 1)
    generator = generator_of(generator, device)
    options = {"generator": generator, "dtype": dtype, "device": device}
    if kind == "random":
        return random(items, blocks, length, distribution="one_hot", **options)  # type: ignore[arg-type]
    numbers = torch.arange(items, device=device)  # type: ignore[arg-type]
    if kind == "powers":
        base = random(blocks, length, distribution="unitary", **options)  # type: ignore[arg-type]
        return power(base, numbers)
    if items > length:
        raise DomainError(
            f"{items} items have no {kind} codes in blocks of {length} places",
            hint="take longer blocks, or fewer items",
        )
    order = torch.rand(blocks, length, generator=generator, device=device).argsort(-1)  # type: ignore[arg-type]
    if kind == "orthogonal":
        places = order[:, :items].T
    elif kind == "cyclic":
        # Steps that are coprime to the length come back to a place only after all others.
        coprime = [step for step in range(length) if math.gcd(step, length) == 1]
        steps = torch.tensor(coprime, device=device)[order[:, 0] % len(coprime)]  # type: ignore[arg-type]
        places = numbers[:, None] * steps % length
    else:
        raise DomainError(f"there is no kind of codebook {kind!r}", hint="kinds: random, orthogonal, powers, cyclic")
    return torch.nn.functional.one_hot(places, length).to(dtype or block.dtypes[0])


def _check_codebook(codebook: Tensor) -> None:
    check_vectors(codebook, "codebook", block, items=1)
    if codebook.dim() != 3 or not codebook.shape[0]:
        raise ShapeError(f"the codebook is {described(codebook, block, 1)}, expected [item, block, length]")
