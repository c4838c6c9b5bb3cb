"""The models that the library has: block codes, HRR, FHRR, MAP and BSC.

>>> from derivable.vsa import models
>>> models.names()
('block', 'bsc', 'fhrr', 'hrr', 'map')
"""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

from derivable.bridge.torch import is_captured, is_observed
from derivable.core import splitmix64
from derivable.core.diagnostics import DomainError, OperatorError, warn
from derivable.core.registry import Registry
from derivable.vsa.convolution import convolve, correlate, involution
from derivable.vsa.laws import violations
from derivable.vsa.model import Model

REGISTRY: Registry[Model] = Registry(
    "vector-symbolic model", aliases={"block_codes": "block"}, more="`dv.vsa.register` adds one"
)


def register(model: Model, *, check: bool = True) -> Model:
    """Make a model known by its name; returns it.

    check  try the laws of models on a few vectors (`derivable.vsa.laws`)

    Raises DomainError if the record is malformed or the name is taken, OperatorError for a law that it breaks.
    """
    _check(model)
    broken = next(violations(model), None) if check else None
    if broken is not None:
        raise OperatorError(
            f"the model {model.name!r} breaks a law: {broken}", hint="`check=False` registers it all the same"
        )
    return REGISTRY.add(model.name, model)


def get(model: str | Model) -> Model:
    """The model of that name; a record is returned as it is. Raises DomainError for anything else."""
    if isinstance(model, Model):
        return model
    if not isinstance(model, str):
        raise DomainError(
            f"a vector-symbolic model is a name or a Model record, not {type(model).__name__}",
            hint=f"names: {', '.join(names())}",
        )
    return REGISTRY[model]


def names() -> tuple[str, ...]:
    """The registered names, sorted."""
    return REGISTRY.names()


def _check(model: Model) -> None:
    if not isinstance(model, Model):
        raise DomainError(f"a vector-symbolic model is a Model record, not {type(model).__name__}")
    if not model.name or not isinstance(model.name, str):
        raise DomainError(f"the name of a model is {model.name!r}, expected a text")
    if not model.axes:
        raise DomainError(f"the model {model.name!r} has no axes", hint='name them, such as axes=("dimension",)')
    if not model.samplers or not model.dtypes:
        raise DomainError(f"the model {model.name!r} has no sampler or no dtype", hint="give at least one of each")
    unknown = sorted(set(model.exact) - set(model.samplers))
    if unknown:
        raise DomainError(f"the model {model.name!r} is exact for {unknown[0]!r}, which none of its samplers is called")


_REALS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
_COMPLEX = (torch.complex64, torch.complex128)


def superpose(vectors: Tensor, weights: Tensor | None, rank: int) -> Tensor:
    """The sum of vectors [*batch, item, *vector] over their items, times weights [*batch, item]: one matrix product."""
    if weights is None:
        return vectors.sum(-rank - 1)
    shape = vectors.shape[-rank:]
    if vectors.dtype.is_floating_point or vectors.is_complex():
        weights = weights.to(vectors.dtype)
    else:
        weights = weights if weights.dtype.is_floating_point else weights.to(torch.get_default_dtype())
        vectors = vectors.to(weights.dtype)
    summed = torch.matmul(weights.unsqueeze(-2), vectors.flatten(-rank)).squeeze(-2)
    return summed.reshape(*summed.shape[:-1], *shape)


def unit(values: Tensor) -> Tensor:
    """Rows of Euclidean length one along the last axis; a row of zeros stays, with a derivative of zero."""
    wide = values.float() if values.dtype in (torch.float16, torch.bfloat16) else values
    if wide.is_cpu and wide.numel() and not is_observed():
        squared = _squared_length(wide)
        # What squares lose below the smallest normal number stays below one rounding of sums above this bound.
        limits = torch.finfo(squared.dtype)
        least, largest = torch.aminmax(squared.detach())
        if least.item() >= wide.shape[-1] * limits.tiny / limits.eps and largest.item() <= limits.max:
            return (wide * squared.rsqrt()).to(values.dtype)
    # The largest entry is divided out first: squares would overflow, or vanish. Zeros are divided by infinity, so that
    # their derivative is zero; the sum of squares of all other rows is one or more.
    largest = wide.detach().abs().amax(-1, keepdim=True)
    wide = wide / largest.masked_fill(largest == 0, math.inf)
    return (wide * _squared_length(wide).clamp_min(0.5).rsqrt()).to(values.dtype)


def _squared_length(wide: Tensor) -> Tensor:
    """[*batch, 1], real."""
    return (wide * wide.conj()).real.sum(-1, keepdim=True) if wide.is_complex() else (wide * wide).sum(-1, True)


def _reals(values: Tensor) -> Tensor:
    """Numbers of any kind as real ones, of at least single precision; a complex axis has twice the length."""
    if values.is_complex():
        return torch.view_as_real(values.resolve_conj()).flatten(-2)
    return values if values.dtype in (torch.float32, torch.float64) else values.float()


def _drawn(dtype: torch.dtype) -> torch.dtype:
    """The real dtype in which random numbers for vectors of a dtype are drawn."""
    return torch.float64 if dtype in (torch.float64, torch.complex128) else torch.float32


def _sampled_normal(shape: tuple[int, ...], generator: Any, dtype: torch.dtype, device: Any) -> Tensor:
    drawn = dtype if dtype.is_complex else _drawn(dtype)
    return (torch.randn(shape, generator=generator, dtype=drawn, device=device) / math.sqrt(shape[-1])).to(dtype)


def _sampled_phases(shape: tuple[int, ...], generator: Any, dtype: torch.dtype, device: Any) -> Tensor:
    phases = torch.rand(shape, generator=generator, dtype=_drawn(dtype), device=device)
    return torch.polar(torch.ones_like(phases), 2 * math.pi * phases)


def _sampled_unitary(shape: tuple[int, ...], generator: Any, dtype: torch.dtype, device: Any) -> Tensor:
    """Rows whose spectrum has modulus one. Where a real row's is real it is 1, so that any fraction of a power has a
    real row too; such a row sums to one."""
    length = shape[-1]
    if 0 in shape:
        return torch.zeros(shape, dtype=dtype, device=device)  # some transforms refuse to have nothing to do
    if dtype.is_complex:
        return torch.fft.ifft(_sampled_phases(shape, generator, dtype, device))
    inner = _sampled_phases((*shape[:-1], (length - 1) // 2), generator, dtype, device)
    ends = torch.ones((*shape[:-1], 1), dtype=inner.dtype, device=device)
    parts = (ends, inner) if length % 2 else (ends, inner, ends)
    return torch.fft.irfft(torch.cat(parts, -1), n=length).to(dtype)


def _sampled_one_hot(shape: tuple[int, ...], generator: Any, dtype: torch.dtype, device: Any) -> Tensor:
    place = torch.randint(shape[-1], shape[:-1], generator=generator, device=device)
    return torch.nn.functional.one_hot(place, shape[-1]).to(dtype)


def _sampled_mass(shape: tuple[int, ...], generator: Any, dtype: torch.dtype, device: Any) -> Tensor:
    """Rows that are uniform over all probability distributions."""
    waiting = -torch.log1p(-torch.rand(shape, generator=generator, dtype=_drawn(dtype), device=device))
    return (waiting / waiting.sum(-1, keepdim=True)).to(dtype)


def _impulse(shape: tuple[int, ...], dtype: torch.dtype, device: Any) -> Tensor:
    found = torch.zeros(shape, dtype=dtype, device=device)
    found[..., 0] = 1
    return found


# From as many rows on, and of blocks as long, whole blocks are copied in less time than single entries.
_FEWEST_ROWS, _SHORTEST_BLOCK = 4, 8


def _scattered_cycle(length: int, shift: int, device: torch.device, in_blocks: bool = False) -> Tensor:
    """What `_cycle` gives, which torch.compile takes as a constant."""
    return _cycle(length, shift, device, in_blocks)


# What torch.compiler.assume_constant_result sets, after it has imported the compiler, which takes seconds.
_scattered_cycle._dynamo_marked_constant = True  # type: ignore[attr-defined]


@functools.lru_cache(maxsize=256)
def _cycle(length: int, shift: int, device: torch.device, in_blocks: bool) -> Tensor:
    """Where each entry comes from when all go `shift` places along one cycle through a scattered order of them.

    in_blocks  the order is of blocks, and the cycle goes through one entry of each a turn
    """
    block = _block_length(length) if in_blocks else 1
    order = (_scattered(length // block) * block + np.arange(block)[:, None]).ravel()
    source = np.empty(length, np.int64)
    source[order] = np.roll(order, shift)
    return torch.from_numpy(source).to(device)


@functools.lru_cache(maxsize=256)
def _block_cycle(blocks: int, shift: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Where each block comes from when all entries go `shift` places, and the blocks that come round.

    Those have their entries one turn further on.
    """
    order = _scattered(blocks)
    source = np.empty(blocks, np.int64)
    source[order] = np.roll(order, shift)
    around = order[:shift] if shift > 0 else order[shift:]
    return torch.from_numpy(source).to(device), torch.from_numpy(around).to(device)


def _scattered(count: int) -> np.ndarray:
    """The numbers below `count` in a fixed order without a pattern."""
    words = np.arange(count, dtype=np.uint64) + np.uint64(splitmix64.STEP)
    return np.argsort(splitmix64.multiplied(words), kind="stable")


@functools.lru_cache(maxsize=256)
def _block_length(length: int) -> int:
    """The largest divisor up to half of the root.

    Two of so many blocks are moved by the same distance about as often as random vectors are alike by chance.
    """
    return next(block for block in range(max(math.isqrt(length) // 2, 1), 0, -1) if length % block == 0)


def _permuted_in_rows(a: Tensor, shift: int) -> Tensor:
    """A cycle through a fixed scattered order. A plain rotation would be binding with an impulse: then
    `bind(permute(a), b)` is `bind(a, permute(b))`, and nothing that is bound knows its order."""
    length = a.shape[-1]
    shift %= length
    turned = shift if 2 * shift <= length else shift - length
    is_plain = a.numel() >= _FEWEST_ROWS * length and a.is_cpu
    is_plain = is_plain and not is_observed()
    block = _block_length(length) if is_plain else 1
    if block >= _SHORTEST_BLOCK and 0 < abs(turned) < length // block:
        source, around = _block_cycle(length // block, turned, a.device)
        found = a.unflatten(-1, (-1, block)).index_select(-2, source)
        found.index_copy_(-2, around, found.index_select(-2, around).roll(1 if turned > 0 else -1, -1))
        return found.flatten(-2)
    # A third of the time of indexing.
    return a.index_select(-1, _scattered_cycle(length, shift, a.device, True))


def _rotated(a: Tensor, shift: int) -> Tensor:
    """`a.roll(shift, -1)` as two copies, in a fraction of its time."""
    cut = shift % a.shape[-1]
    return torch.cat((a[..., -cut:], a[..., :-cut]), -1) if cut else a.clone()


def _power_in_rows(a: Tensor, exponent: Tensor) -> Tensor:
    """Every frequency to the power, its angle taken from -pi to pi."""
    length = a.shape[-1]
    if not a.numel():
        return a * exponent.to(a.dtype)
    wide = a.float() if a.dtype in (torch.float16, torch.bfloat16) else a
    exponent = exponent.to(wide.real.dtype)
    if a.is_complex():
        return torch.fft.ifft(_powers(torch.fft.fft(wide), exponent))
    spectrum = torch.fft.rfft(wide)
    _warn_of_missing_roots(wide, spectrum, exponent)
    return torch.fft.irfft(_powers(spectrum, exponent), n=length).to(a.dtype)


def _warn_of_missing_roots(rows: Tensor, spectrum: Tensor, exponent: Tensor) -> None:
    """Warn where real rows have no real power: the real ones of their frequencies, 0 and half of an even length, are
    negative, and the exponent is no integer. A trace has no numbers to look at."""
    if is_captured() or not exponent.numel():
        return
    length = rows.shape[-1]
    ends = spectrum.detach().real[..., :: max(length // 2, 1)] if length % 2 == 0 else spectrum.detach().real[..., :1]
    least = -8 * torch.finfo(rows.dtype).eps * rows.detach().abs().sum(-1, keepdim=True)
    try:
        # A power of NaN or infinity is NaN, whatever the rows are.
        is_broken = exponent.isfinite() & (exponent != exponent.round())
        lacking = ((ends < least).any(-1, keepdim=True) & is_broken).sum().item()
    except RuntimeError:  # under torch.func.vmap and on the meta device
        return
    if lacking:
        where = "frequency 0" if length % 2 else f"frequency 0 or {length // 2}"
        warn(
            f"{lacking:,} of the rows have no real power of this exponent: {where} of their spectrum is negative. The "
            "real part of a complex root stands there, so that bind(power(a, s), power(a, t)) is not power(a, s + t)",
            hint="take unitary vectors, an odd length for one-hot blocks, a complex dtype, or whole exponents",
        )


def _powers(values: Tensor, exponent: Tensor) -> Tensor:
    """Complex numbers to a real power; zero stays, with a derivative of zero."""
    is_zero = values == 0
    safe = torch.where(is_zero, 1, values)
    found = torch.polar((exponent * safe.abs().log()).exp(), exponent * safe.angle())
    return torch.where(is_zero, 0, found)


def _angle_power(a: Tensor, exponent: Tensor) -> Tensor:
    return _powers(a, exponent.to(a.real.dtype))


def _convolution_model(name: str, axes: tuple[str, ...], default: str, description: str) -> Model:
    rank = len(axes)
    samplers = {"one_hot": _sampled_one_hot, "mass": _sampled_mass} if rank == 2 else {}
    samplers = {**samplers, "unitary": _sampled_unitary, "normal": _sampled_normal}
    return Model(
        name=name,
        axes=axes,
        bind=convolve,
        unbind=correlate,
        inverse=involution,
        identity=_impulse,
        samplers={default: samplers[default], **samplers},
        features=lambda a: unit(_reals(a.flatten(-rank))),
        permute=_permuted_in_rows,
        normalise=unit,
        bundle=lambda vectors, weights: superpose(vectors, weights, rank),
        power=_power_in_rows,
        dtypes=(*_REALS, *_COMPLEX),
        exact=frozenset({"one_hot", "unitary"} & set(samplers)),
        description=description,
    )


block = register(
    _convolution_model(
        "block",
        ("block", "length"),
        "one_hot",
        "dense block codes: blocks are convolved circularly, each with its own partner (Hersche et al., 2023)",
    ),
    check=False,
)
hrr = register(
    _convolution_model(
        "hrr",
        ("dimension",),
        "normal",
        "holographic reduced representations: circular convolution of whole vectors (Plate, 1995)",
    ),
    check=False,
)


fhrr = register(
    Model(
        name="fhrr",
        axes=("dimension",),
        bind=torch.mul,
        inverse=torch.conj,
        identity=lambda shape, dtype, device: torch.ones(shape, dtype=dtype, device=device),
        samplers={"phases": _sampled_phases},
        features=lambda a: unit(_reals(a)),
        permute=_rotated,
        # A sum that is zero has no phase: it takes the one of 1.
        normalise=lambda a: torch.where(a == 0, 1, torch.sgn(a)),
        bundle=lambda vectors, weights: superpose(vectors, weights, 1),
        power=_angle_power,
        dtypes=_COMPLEX,
        exact=frozenset({"phases"}),
        description="holographic reduced representations in the frequency domain: phases add (Plate, 1995)",
    ),
    check=False,
)


def _sampled_signs(shape: tuple[int, ...], generator: Any, dtype: torch.dtype, device: Any) -> Tensor:
    return (2 * torch.randint(2, shape, generator=generator, device=device) - 1).to(dtype)


def _signs(a: Tensor) -> Tensor:
    """-1 below zero, else 1."""
    if not a.dtype.is_floating_point:
        return 1 - 2 * (a < 0).to(a.dtype)
    # `torch.where` takes thirty times as long. Zero is added since the sign of -0.0 is negative.
    return torch.copysign(torch.ones((), dtype=a.dtype, device=a.device), a.detach() + 0)


map_model = register(
    Model(
        name="map",
        axes=("dimension",),
        bind=torch.mul,
        inverse=lambda a: a,
        identity=lambda shape, dtype, device: torch.ones(shape, dtype=dtype, device=device),
        samplers={"signs": _sampled_signs},
        features=lambda a: unit(_reals(a)),
        permute=_rotated,
        normalise=_signs,
        bundle=lambda vectors, weights: superpose(vectors, weights, 1),
        dtypes=(*_REALS, torch.int8, torch.int16, torch.int32, torch.int64),
        exact=frozenset({"signs"}),
        description="multiply, add, permute: signs are multiplied entry by entry (Gayler, 1998)",
    ),
    check=False,
)


def _sampled_bits(shape: tuple[int, ...], generator: Any, dtype: torch.dtype, device: Any) -> Tensor:
    return torch.randint(2, shape, generator=generator, device=device).to(dtype)


def _exclusive_or(a: Tensor, b: Tensor) -> Tensor:
    """Of bits, or of the probabilities of independent bits."""
    return a ^ b if a.dtype == b.dtype == torch.bool else a + b - 2 * a * b


def _majority(vectors: Tensor, weights: Tensor | None) -> Tensor:
    """Of bits what most have, of probabilities the mixture. A tie of bits is decided by one of the items.

    Which one follows from the place, and from how many items differ from the first at the place before. Binding changes
    neither, so it distributes over bundles, ties included; and in bundles of bundles the same item does not always win.
    """
    if vectors.dtype != torch.bool:
        if weights is None:
            return vectors.mean(-2)
        return superpose(vectors, weights / weights.sum(-1, keepdim=True), 1)
    count = vectors.shape[-2]
    if weights is not None:
        surplus = superpose(2 * vectors.to(weights.dtype) - 1, weights, 1)
        return (surplus > 0) | ((surplus == 0) & _decided(vectors, _true_items(vectors)))
    if count == 2:
        first, second = vectors.unbind(-2)
        differs = first ^ second
        places = _scattered_cycle(vectors.shape[-1], 1, vectors.device)
        return first ^ (differs & (differs.roll(1, -1) ^ (places % 2 == 1)))
    found = _true_items(vectors)
    has_most = found > count // 2
    return has_most if count % 2 else has_most | ((found == count // 2) & _decided(vectors, found))


def _true_items(vectors: Tensor) -> Tensor:
    """[*batch, dimension]: how many of the bits [*batch, item, dimension] are true. Bytes add faster than words."""
    dtype = torch.uint8 if vectors.shape[-2] < 256 else torch.int64
    return vectors.view(torch.uint8).sum(-2, dtype=dtype)


def _decided(vectors: Tensor, found: Tensor) -> Tensor:
    """At every place the bit of the item that decides a tie there.

    found  `_true_items(vectors)`
    """
    count, places = vectors.shape[-2:]
    first = vectors[..., 0, :].to(torch.int64)
    differing = found + first * (count - 2 * found.to(torch.int64))
    decides = (_scattered_cycle(places, 1, vectors.device) + differing.roll(1, -1)) % max(count, 1)
    return vectors.gather(-2, decides.unsqueeze(-2)).squeeze(-2)


bsc = register(
    Model(
        name="bsc",
        axes=("dimension",),
        bind=_exclusive_or,
        inverse=lambda a: a,
        identity=lambda shape, dtype, device: torch.zeros(shape, dtype=dtype, device=device),
        samplers={"bits": _sampled_bits},
        features=lambda a: (1 - 2 * _reals(a)) / math.sqrt(a.shape[-1]),
        permute=_rotated,
        normalise=lambda a: a if a.dtype == torch.bool else a.clamp(0, 1),
        bundle=_majority,
        sums=False,
        dtypes=(torch.bool, *_REALS),
        exact=frozenset({"bits"}),
        description="binary spatter codes: exclusive or of bits, or of the probabilities of bits (Kanerva, 1996)",
    ),
    check=False,
)
