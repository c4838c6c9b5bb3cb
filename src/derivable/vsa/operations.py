"""The algebra: bind, unbind, bundle, permute, inverse, similarity and cleanup, of any model.

Vectors of block codes have the shape [*batch, block, length], those of the other built-in models [*batch, dimension].
Every function takes the model by its name or its record, is batched, has gradients where its model has, and is one
node in a trace of `torch.fx`.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from derivable.core.arguments import integer
from derivable.core.diagnostics import DomainError, ShapeError, UnsupportedError
from derivable.vsa.arguments import check_beside, check_pair, check_vectors, described, generator_of
from derivable.vsa.leaf import leaf
from derivable.vsa.model import Model
from derivable.vsa.models import REGISTRY, get

# Sums of integers have another type, and those of half precision are rounded once.
_SUMMED = (torch.float32, torch.float64, torch.complex64, torch.complex128)


@leaf
def bind(a: Tensor, b: Tensor, *, model: str | Model = "block") -> Tensor:
    """The vector that stands for both together, and is similar to neither.

    a, b    [*batch, *vector]; batches are broadcast
    returns [*batch, *vector]

    Block codes are convolved circularly, block by block. Raises ShapeError, with both shapes by named axes, for vectors
    of different sizes or of dtypes that the model does not take.
    Laws: commutative, associative, linear in each (in binary spatter codes, of bits that are probabilities).
    """
    record = get(model)
    return record.bind(*check_pair(a, b, ("a", "b"), record))


@leaf
def unbind(c: Tensor, a: Tensor, *, model: str | Model = "block") -> Tensor:
    """What was bound with `a` to give `c`: exactly for the distributions that a model calls exact, else nearly.

    c, a    [*batch, *vector]; batches are broadcast
    returns [*batch, *vector]

    Block codes are correlated circularly, block by block. Law: for real vectors of the convolution models the error
    |unbind(bind(a, b), a) - b| is at most max over frequencies of ||A|^2 - 1| times |b|, where A is the spectrum of a.
    """
    record = get(model)
    check_pair(c, a, ("c", "a"), record)
    return record.unbind(c, a) if record.unbind is not None else record.bind(c, record.inverse(a))


@leaf
def inverse(a: Tensor, *, model: str | Model = "block") -> Tensor:
    """The vector [*batch, *vector] that unbinds: `bind(c, inverse(a))` is `unbind(c, a)`."""
    record = get(model)
    return record.inverse(check_vectors(a, "a", record))


@leaf
def bundle(*items: Tensor, weights: Tensor | None = None, model: str | Model = "block") -> Tensor:
    """The vector that is similar to all of the items: their sum, in binary spatter codes their majority.

    items   one tensor [*batch, item, *vector], or several [*batch, *vector] that are broadcast
    weights [*batch, item], or None for all one
    returns [*batch, *vector]; integers are summed as int64. No item at all gives zeros

    A sum is not normalised: `normalise` gives the nearest vector of the model's own kind. A tie of bits is
    decided by one of the items, such that binding distributes over bundles of bits as well.
    """
    record = get(model)
    if not items:
        raise ShapeError("bundle was given nothing", hint="give vectors, or one tensor [*batch, item, *vector]")
    if len(items) == 1:
        stacked = check_vectors(items[0], "the tensor of items", record, items=1)
    else:
        for number, item in enumerate(items[1:], 2):
            check_pair(items[0], item, ("item 1", f"item {number}"), record)
        if record.sums and weights is None and items[0].dtype in _SUMMED:
            return functools.reduce(torch.add, items)
        stacked = torch.stack(torch.broadcast_tensors(*items), -record.rank - 1)
    if weights is not None:
        check_beside(weights, "the tensor of weights", "*batch, item", stacked)
        if weights.dim() < 1:
            raise ShapeError(f"weights are {type(weights).__name__}, expected a tensor [*batch, item]")
        count = stacked.shape[-record.rank - 1]
        if weights.shape[-1] != count:
            raise ShapeError(
                f"{list(weights.shape)} weights for items {described(stacked, record, 1)}: the last axis of weights "
                "is that of the items"
            )
    if len(items) == 1 and not stacked.shape[-record.rank - 1] and stacked.dtype == torch.bool:
        raise ShapeError("a majority of no bits at all", hint="bundle at least one vector")
    return record.bundle(stacked, weights)


@leaf
def permute(a: Tensor, shift: int = 1, *, model: str | Model = "block") -> Tensor:
    """The entries in another order: a vector of the same kind, and similar to none.

    a [*batch, *vector]; shift any integer, -1 undoes 1; returns [*batch, *vector]

    Laws: permute(permute(a, m), n) is permute(a, m + n); permute(a, 0) is a. In models whose binding is entry by entry
    it is a rotation, over which binding distributes. In those that convolve a rotation is a binding: what is bound
    would not know its order. So the entries go along one cycle through the blocks of a row in a fixed scattered order;
    a block is as long as the largest divisor of the row's length up to half of its root.
    """
    record = get(model)
    return record.permute(check_vectors(a, "a", record), integer(shift, "shift"))


@leaf
def normalise(a: Tensor, *, model: str | Model = "block") -> Tensor:
    """The nearest vector [*batch, *vector] of the model's own kind: rows of length one, phases, signs or bits."""
    record = get(model)
    return record.normalise(check_vectors(a, "a", record))


@leaf
def power(a: Tensor, exponent: Tensor | float, *, model: str | Model = "block") -> Tensor:
    """`a` bound with itself `exponent` times, fractions and negative numbers too: how a number becomes a vector.

    a        [*batch, *vector]
    exponent a number, or a tensor [*batch]; batches are broadcast
    returns  [*batch, *vector]

    Laws: bind(power(a, s), power(a, t)) is power(a, s + t) for integers s, t >= 0, and for all numbers if the spectrum
    of `a` is nowhere zero and has no negative number at its real frequencies: those of real rows of length L, 0 and, if
    L is even, L/2, of complex rows and phases none. Unitary vectors of `random` are such. Of one-hot blocks of even
    length those with the one at an odd place are not: at L/2 their spectrum is -1, which has no real root, and
    bind(power(a, 1/2), power(a, 1/2)) misses `a` by 1/L everywhere. Rows of negative mean, half of those that "normal"
    draws, are not either, at frequency 0. A DerivableWarning says so, but in compiled or mapped functions. The power -1
    of unitary vectors and phases is the exact inverse. Raises UnsupportedError for a model without powers.
    Source: fractional binding (Plate, 1995, section 5.6; Komer et al., 2019).
    """
    record = get(model)
    check_vectors(a, "a", record)
    if record.power is None:
        able = [name for name in REGISTRY if REGISTRY[name].power is not None]
        raise UnsupportedError(
            f"the model {record.name!r} has no fractional powers: each vector is its own inverse",
            hint=f"models with powers: {', '.join(able)}",
        )
    if not isinstance(exponent, Tensor):
        if isinstance(exponent, bool) or not isinstance(exponent, (int, float)):
            shown = repr(exponent) if isinstance(exponent, (bool, complex, str)) else f"a {type(exponent).__name__}"
            raise DomainError(f"the exponent is {shown}, expected a number or a tensor [*batch]")
        exponent = torch.tensor(float(exponent), device=a.device, dtype=torch.float64)
    check_beside(exponent, "the tensor of exponents", "*batch", a)
    if exponent.is_complex():
        raise DomainError(
            f"the exponents are of {exponent.dtype}, and a vector is bound with itself a real number of times",
            hint="give `exponent.real` if the imaginary parts are zero",
        )
    try:
        torch.broadcast_shapes(exponent.shape, a.shape[: a.dim() - record.rank])
    except RuntimeError:
        raise ShapeError(
            f"exponents {list(exponent.shape)} do not broadcast with the batch of a {described(a, record)}"
        ) from None
    return record.power(a, exponent.reshape(*exponent.shape, *(1,) * record.rank))


@leaf
def similarity(a: Tensor, b: Tensor, *, model: str | Model = "block") -> Tensor:
    """How alike two vectors are: from -1 to 1, and 1 for a vector with itself.

    a, b    [*batch, *vector]; batches are broadcast
    returns [*batch] real; at least float32

    It is the cosine of whole vectors, for bits one minus twice the share of those that differ. A vector of zeros is
    similar to nothing: 0, with a derivative of 0.
    """
    record = get(model)
    a, b = check_pair(a, b, ("a", "b"), record)
    first, second = _alike(record.features(a), record.features(b))
    return (first * second).sum(-1)


@leaf
def similarities(queries: Tensor, codebook: Tensor, *, model: str | Model = "block") -> Tensor:
    """How alike each query is to each item of a codebook; one matrix product.

    queries  [*batch, *vector]
    codebook [*batch, item, *vector]; batches are broadcast
    returns  [*batch, item]
    """
    record = get(model)
    check_pair(queries, codebook, ("queries", "codebook"), record, items=(0, 1))
    return products(*_alike(record.features(queries), record.features(codebook)))


@leaf
def cleanup(
    queries: Tensor, codebook: Tensor, *, temperature: float | None = None, model: str | Model = "block"
) -> Tensor:
    """The item of a codebook that is most like each query, or the soft choice among them.

    queries     [*batch, *vector]
    codebook    [item, *vector]
    temperature None for the nearest item (of equally near ones the first); a positive number for the bundle of all
                items with weights softmax(similarity / temperature), which has gradients
    returns     [*batch, *vector]
    """
    record = get(model)
    check_vectors(queries, "queries", record)
    check_vectors(codebook, "codebook", record, items=1)
    if codebook.dim() != record.rank + 1 or not codebook.shape[0]:
        raise ShapeError(f"the codebook is {described(codebook, record, 1)}, expected [item, *vector] with an item")
    found = similarities(queries, codebook, model=record)
    if temperature is None:
        return codebook[found.argmax(-1)]
    return record.bundle(codebook, soft_choice(found, temperature))


def random(
    *shape: int,
    distribution: str | None = None,
    generator: torch.Generator | int | None = None,
    dtype: torch.dtype | None = None,
    device: Any = None,
    model: str | Model = "block",
) -> Tensor:
    """Vectors drawn independently, nearly always similar to none of the others.

    shape        [*batch, *vector], such as `random(7, 4, 256)` for seven block codes
    distribution of the model, None for its first: "one_hot", "unitary" or "normal" for block codes, and "mass", whose
                 blocks are any distributions, all of them alike; "normal" or "unitary" for HRR; the other models have
                 one each
    generator    a torch generator, or an integer that seeds a new one

    Raises DomainError for an unknown distribution, ShapeError for a shape without the axes of the model.
    """
    record = get(model)
    sizes, dtype = _sizes(shape, record, dtype)
    distribution = next(iter(record.samplers)) if distribution is None else distribution
    if distribution not in record.samplers:
        raise DomainError(
            f"the model {record.name!r} has no distribution {distribution!r}",
            hint=f"it has {', '.join(record.samplers)}",
        )
    return record.samplers[distribution](sizes, generator_of(generator, device), dtype, device)  # type: ignore[arg-type]


def identity(*shape: int, dtype: torch.dtype | None = None, device: Any = None, model: str | Model = "block") -> Tensor:
    """The vector that changes nothing when bound, [*batch, *vector] as `random` takes them."""
    record = get(model)
    sizes, dtype = _sizes(shape, record, dtype)
    return record.identity(sizes, dtype, device)


def products(features: Tensor, of_items: Tensor) -> Tensor:
    """Inner products of [*batch, feature] with [*batch, item, feature]: [*batch, item]."""
    if of_items.dim() == 2:
        return features @ of_items.mT
    return (of_items @ features.unsqueeze(-1)).squeeze(-1)


def soft_choice(found: Tensor, temperature: float) -> Tensor:
    """softmax(found / temperature) over the last axis. Raises DomainError unless the temperature is positive."""
    if isinstance(temperature, bool) or not isinstance(temperature, (int, float, Tensor)):
        raise DomainError(f"temperature is {temperature!r}, expected a positive number")
    if not isinstance(temperature, Tensor) and not temperature > 0:
        raise DomainError(f"temperature is {temperature!r}, expected a positive number", hint="None takes the nearest")
    return torch.softmax(found / temperature, -1)


def _alike(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    dtype = torch.promote_types(a.dtype, b.dtype)
    return a.to(dtype), b.to(dtype)


def _sizes(shape: Sequence[int], model: Model, dtype: torch.dtype | None) -> tuple[tuple[int, ...], torch.dtype]:
    sizes = tuple(integer(size, "a size", 0) for size in shape)
    if len(sizes) < model.rank or not all(sizes[-model.rank :]):
        raise ShapeError(
            f"vectors of the model {model.name!r} have shape [*batch, {', '.join(model.axes)}], not {list(sizes)}"
        )
    if dtype is not None and dtype not in model.dtypes:
        raise ShapeError(
            f"the model {model.name!r} has no vectors of {dtype}", hint=f"of {', '.join(map(str, model.dtypes))}"
        )
    return sizes, dtype or model.dtypes[0]
