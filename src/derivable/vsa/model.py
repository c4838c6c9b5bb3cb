"""What a vector-symbolic model is: one record of functions on torch tensors."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

# (shape, generator, dtype, device) -> vectors of that shape
Sampler = Callable[[tuple[int, ...], "torch.Generator | None", torch.dtype, Any], Tensor]


@dataclass(frozen=True, eq=False)
class Model:
    """An algebra of vectors. Every function is of torch tensors with any batch axes in front, on any device.

    name         what `model=` takes
    axes         the names of the axes of one vector, such as ("block", "length") or ("dimension",)
    bind         (a, b) -> vector; associative and commutative, distributes over bundles
    inverse      a -> vector; binding with it undoes binding with `a`, exactly or nearly
    identity     (shape, dtype, device) -> the vectors that change nothing when bound
    samplers     name of a distribution -> Sampler; the first is the default
    features     a -> [*batch, feature] real; the similarity of two vectors is the inner product of their features
    permute      (a, shift) -> vector; a group action of the integers
    normalise    a -> the vector of the model's own kind that is nearest
    bundle       (vectors [*batch, item, *vector], weights [*batch, item] or None) -> [*batch, *vector]
    unbind       (c, a) -> vector; None for binding with the inverse
    power        (a, exponent [*batch, *ones]) -> `a` bound with itself so often, fractions too; None without one
    dtypes       what vectors may be made of; the first is the default
    sums         whether bundles are sums, from which an item can be taken away again
    exact        the distributions whose vectors unbind exactly, up to rounding
    description  one sentence
    """

    name: str
    axes: tuple[str, ...]
    bind: Callable[[Tensor, Tensor], Tensor]
    inverse: Callable[[Tensor], Tensor]
    identity: Callable[[tuple[int, ...], torch.dtype, Any], Tensor]
    samplers: Mapping[str, Sampler]
    features: Callable[[Tensor], Tensor]
    permute: Callable[[Tensor, int], Tensor]
    normalise: Callable[[Tensor], Tensor]
    bundle: Callable[[Tensor, Tensor | None], Tensor]
    unbind: Callable[[Tensor, Tensor], Tensor] | None = None
    power: Callable[[Tensor, Tensor], Tensor] | None = None
    dtypes: tuple[torch.dtype, ...] = (torch.float32, torch.float64)
    sums: bool = True
    exact: frozenset[str] = field(default_factory=frozenset)
    description: str = ""

    @property
    def rank(self) -> int:
        """How many axes one vector has."""
        return len(self.axes)

    def __reduce_ex__(self, protocol: Any) -> Any:
        # Functions of a record may have no name to pickle; a registered record has.
        from derivable.vsa import models

        if self.name in models.REGISTRY and models.REGISTRY[self.name] is self:
            return models.get, (self.name,)
        return super().__reduce_ex__(protocol)
