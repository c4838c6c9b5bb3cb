"""Resonator networks: which items of several codebooks a product was bound of.

Source: Frady, Kent, Olshausen and Sommer, 2020, "Resonator networks, 1"; block codes as in Hersche et al., 2024.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from derivable.bridge.torch import refuse_capture
from derivable.core.arguments import integer
from derivable.core.diagnostics import DomainError, ShapeError
from derivable.vsa.arguments import check_pair, check_vectors, described, generator_of
from derivable.vsa.leaf import leaf
from derivable.vsa.model import Model
from derivable.vsa.models import get
from derivable.vsa.operations import products, similarity


@dataclass(frozen=True)
class Factors:
    """What a resonator found for each product of a batch.

    indices    [*batch, factor] int64: the item of each codebook
    similarity [*batch]: of the product of these items to the product that was given
    converged  [*batch] bool: whether that reached the threshold
    steps      [*batch] int64: steps until then, over all restarts, or the limit
    restarts   [*batch] int64: how often it began anew
    """

    indices: Tensor
    similarity: Tensor
    converged: Tensor
    steps: Tensor
    restarts: Tensor

    def __str__(self) -> str:
        total, found = self.converged.numel(), int(self.converged.sum())
        steps = self.steps.double().mean().item() if total else 0.0
        return (
            f"{found} of {total} products factorised, {steps:.1f} steps each on average, "
            f"{int((self.restarts > 0).sum())} after a restart"
        )


@leaf
def factorise(
    product: Tensor,
    codebooks: Sequence[Tensor],
    *,
    steps: int = 50,
    restarts: int = 9,
    threshold: float = 0.9,
    generator: torch.Generator | int | None = 0,
    model: str | Model = "block",
) -> Factors:
    """The item of each codebook such that all of them bound are the product, or the best that was found.

    product    [*batch, *vector], perhaps with noise
    codebooks  tensors [item, *vector], one for each factor
    steps      the limit for each start
    restarts   how often to begin anew, from random mixtures, for products that have not converged
    threshold  a product has converged when what was found, bound again, is at least so similar to it. For products with
               noise it has to be below their similarity to the true one
    generator  for the restarts; the default makes results repeatable

    Each step unbinds the current estimates of all other factors, and takes as new estimate the items in proportion to
    how similar they are to what is left. There are no gradients: what is found are integers.
    Raises ShapeError for codebooks that do not fit, DomainError for limits out of range.
    """
    refuse_capture("`factorise`")
    record = get(model)
    check_vectors(product, "product", record)
    codebooks = _checked(product, codebooks, record)
    steps, restarts = integer(steps, "steps", 1), integer(restarts, "restarts", 0)
    generator = generator_of(generator, product.device)
    with torch.no_grad():
        batch = product.shape[: product.dim() - record.rank]
        search = _Search(record, product.reshape(-1, *product.shape[product.dim() - record.rank :]), codebooks)
        for start in range(restarts + 1):
            if search.open.numel():
                search.run(start, steps, threshold, generator)
        found = search.indices.reshape(*batch, len(codebooks))
        return Factors(found, *(part.reshape(batch) for part in search.report(threshold)))


class _Search:
    """The state of all products: the best items so far, and which products are still open."""

    def __init__(self, model: Model, product: Tensor, codebooks: list[Tensor]):
        self.model, self.product, self.codebooks = model, product, codebooks
        # Bits are mixed as probabilities: a majority of few items has too many ties.
        if product.dtype == torch.bool:
            self.product, self.codebooks = product.float(), [book.float() for book in codebooks]
        self.features = [model.features(book) for book in self.codebooks]
        count, device = product.shape[0], product.device
        self.indices = torch.zeros(count, len(codebooks), dtype=torch.int64, device=device)
        self.similarity = torch.full((count,), -torch.inf, dtype=self.features[0].dtype, device=device)
        self.steps = torch.zeros(count, dtype=torch.int64, device=device)
        self.restarts = torch.zeros(count, dtype=torch.int64, device=device)
        self.open = torch.arange(count, device=device)

    def report(self, threshold: float) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        return self.similarity, self.similarity >= threshold, self.steps, self.restarts

    def run(self, start: int, steps: int, threshold: float, generator: torch.Generator | None) -> None:
        """One start for all open products. Those that converge leave the batch."""
        model = self.model
        self.restarts[self.open] = start
        estimates = [self._first(book, start, generator) for book in self.codebooks]
        for _ in range(steps):
            product = self.product[self.open]
            found = []
            for factor, book in enumerate(self.codebooks):
                rest = product
                for other, estimate in enumerate(estimates):
                    if other != factor:
                        rest = model.bind(rest, model.inverse(estimate))
                alike = products(model.features(rest), self.features[factor])
                found.append(alike.argmax(-1))
                estimates[factor] = self._mixture(alike, book)
            self.steps[self.open] += 1
            indices = torch.stack(found, -1)
            again = self.codebooks[0][indices[:, 0]]
            for factor in range(1, len(self.codebooks)):
                again = model.bind(again, self.codebooks[factor][indices[:, factor]])
            alike = similarity(again, product, model=model)
            better = alike > self.similarity[self.open]
            self.similarity[self.open] = torch.where(better, alike, self.similarity[self.open])
            self.indices[self.open] = torch.where(better[:, None], indices, self.indices[self.open])
            going_on = self.similarity[self.open] < threshold
            self.open = self.open[going_on]
            if not self.open.numel():
                return
            estimates = [estimate[going_on] for estimate in estimates]

    def _first(self, book: Tensor, start: int, generator: torch.Generator | None) -> Tensor:
        """All items alike, and in restarts a random mixture of them."""
        shape = (self.open.numel(), book.shape[0])
        weights = torch.ones(shape, device=book.device, dtype=self.similarity.dtype)
        if start:
            weights = torch.rand(shape, generator=generator, device=book.device, dtype=self.similarity.dtype)
        return self.model.normalise(self.model.bundle(book, weights / weights.sum(-1, keepdim=True)))

    def _mixture(self, alike: Tensor, book: Tensor) -> Tensor:
        # Only what is more alike than the mean counts: one-hot codes all have a little in common with any mixture.
        # Where nothing is, everything does.
        weights = (alike - alike.mean(-1, keepdim=True)).clamp(min=torch.finfo(alike.dtype).eps)
        return self.model.normalise(self.model.bundle(book, weights / weights.sum(-1, keepdim=True)))


def _checked(product: Tensor, codebooks: Sequence[Tensor], model: Model) -> list[Tensor]:
    if isinstance(codebooks, Tensor) or not isinstance(codebooks, Sequence) or not codebooks:
        raise ShapeError(
            f"codebooks are a {type(codebooks).__name__}, expected a list of tensors [item, {', '.join(model.axes)}]"
        )
    for number, book in enumerate(codebooks):
        check_pair(product, book, ("product", f"codebook {number}"), model, items=(0, 1))
        if book.dim() != model.rank + 1 or not book.shape[0]:
            raise ShapeError(f"codebook {number} is {described(book, model, 1)}, expected [item, *vector] with an item")
        if book.dtype != product.dtype:
            raise DomainError(f"codebook {number} is of {book.dtype}, the product of {product.dtype}")
    return list(codebooks)
