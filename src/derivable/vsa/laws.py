"""What every model keeps to, tried on a few vectors of each of its distributions.

>>> from derivable.vsa import models
>>> list(violations(models.get("hrr")))
[]
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from derivable.vsa.model import Model

_LENGTH = 12


def violations(model: Model) -> Iterator[str]:
    """The laws that a model breaks, each as a sentence with the distribution of the vectors that show it.

    Binding is commutative and associative and has the identity; vectors of exact distributions unbind exactly; a
    permutation is a group action; a vector's similarity with itself is 1; the second power is binding with itself.
    """
    shape = (*(2,) * (model.rank - 1), _LENGTH)
    for name, sampler in model.samplers.items():
        drawn = sampler((3, *shape), torch.Generator().manual_seed(0), model.dtypes[0], None)
        if drawn.shape != (3, *shape) or drawn.dtype != model.dtypes[0]:
            wanted = f"{[3, *shape]} of {model.dtypes[0]}"
            yield f"{name}: the sampler gave {list(drawn.shape)} of {drawn.dtype} for {wanted}"
            continue
        a, b, c = drawn
        bound = model.bind(a, b)
        neutral = model.identity(shape, drawn.dtype, None)
        pairs = {
            "bind(a, b) is bind(b, a)": (bound, model.bind(b, a)),
            "bind(bind(a, b), c) is bind(a, bind(b, c))": (model.bind(bound, c), model.bind(a, model.bind(b, c))),
            "bind(a, identity) is a": (model.bind(a, neutral), a),
            "permute(permute(a, 2), 3) is permute(a, 5)": (model.permute(model.permute(a, 2), 3), model.permute(a, 5)),
            "permute(permute(a, 1), -1) is a": (model.permute(model.permute(a, 1), -1), a),
            "similarity(a, a) is 1": ((model.features(a) ** 2).sum(-1), torch.ones(())),
            "of a batch of one, bind gives that of the one": (model.bind(a[None], b)[0], bound),
        }
        if model.unbind is not None:
            unbound = model.unbind(bound, a), model.bind(bound, model.inverse(a))
            pairs["unbind(c, a) is bind(c, inverse(a))"] = unbound
        if name in model.exact:
            pairs["unbind(bind(a, b), a) is b"] = (model.bind(bound, model.inverse(a)), b)
        if model.power is not None:
            twice = model.power(a, torch.full((1,) * model.rank, 2.0))
            pairs["power(a, 2) is bind(a, a)"] = (twice, model.bind(a, a))
        for law, (found, expected) in pairs.items():
            if not _same(found, expected):
                yield f"{name}: {law} does not hold"


def _same(a: Tensor, b: Tensor) -> bool:
    wide = torch.complex128
    return a.shape == b.shape and torch.allclose(a.to(wide), b.to(wide), rtol=1e-3, atol=1e-3)
