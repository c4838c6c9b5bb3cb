"""Fourier transforms of real vectors, of which a trace keeps the vectors: the product of two is the transform of a
circular convolution, which has an operator, and complex numbers have none."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

from derivable import vsa
from derivable.accelerator.trace.decompositions import DECOMPOSITIONS, Refused, refuse, row


class Spectrum:
    """The transform along the last axis of vectors that depend on the inputs.

    vectors  [..., place], tensors of the trace
    """

    def __init__(self, vectors: Any) -> None:
        self.vectors = vectors

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        spectrum = next(operand for operand in args if isinstance(operand, Spectrum))
        return spectrum._recorded(func, *args, **(kwargs or {}))

    def _recorded(self, operation: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        return self.vectors.tracer.create_proxy("call_function", operation, args, kwargs)

    def __getattr__(self, name: str) -> Any:
        operation = getattr(torch.Tensor, name)
        if callable(operation):
            return functools.partial(self._recorded, operation, self)
        return self._recorded(getattr(torch, name), self)


for _name in ("__mul__", "__rmul__", "__add__", "__radd__", "__sub__", "__truediv__", "__rtruediv__", "__neg__"):
    setattr(Spectrum, _name, lambda self, *others, name=_name: self.__getattr__(name)(*others))


def complex_error(what: str) -> Refused:
    return Refused(
        f"{what} gives complex numbers, which no operator has",
        hint="products of two transforms that are transformed back are bindings: take HRR in the place of FHRR",
    )


def _vectors(operand: Any) -> Any:
    """The real vectors of a transform, which may follow from parameters alone."""
    if isinstance(operand, Spectrum):
        return operand.vectors
    is_constant = isinstance(operand, torch.Tensor) and operand.is_complex()
    vectors = torch.fft.ifft(operand) if is_constant else operand
    if not is_constant or vectors.imag.abs().max() > 1e-9 * vectors.abs().max():
        raise complex_error("a product with what is no transform of real numbers")
    return vectors.real


def _transform(input: Any, n: int | None = None, dim: int = -1, norm: str | None = None) -> Any:
    length = input.shape[-1]
    refuse(dim % input.dim() != input.dim() - 1, "a Fourier transform of another axis than the last")
    refuse(n not in (None, length) or norm not in (None, "backward"), "a Fourier transform of another length or norm")
    return Spectrum(input)


@row("fft_fft")
def _fft(input: Any, *args: Any, **kwargs: Any) -> Any:
    return _transform(input, *args, **kwargs)


@row("real")
def _real(input: Any) -> Any:
    return input


def _back(input: Spectrum, *args: Any, **kwargs: Any) -> Any:
    return _transform(input.vectors, *args, **kwargs).vectors


def _product(input: Any, other: Any) -> Any:
    if isinstance(other, (int, float)):
        return Spectrum(input.vectors * other)
    return Spectrum(vsa.bind(_vectors(input), _vectors(other), model="hrr"))


OF_SPECTRA: dict[str, Callable[..., Any]] = {
    "fft_ifft": _back,
    **dict.fromkeys(("mul", "multiply", "__mul__", "__rmul__"), _product),
    **dict.fromkeys(("add", "__add__"), lambda input, other: Spectrum(_vectors(input) + _vectors(other))),
    **dict.fromkeys(("sub", "__sub__"), lambda input, other: Spectrum(_vectors(input) - _vectors(other))),
    "conj": lambda input: Spectrum(vsa.inverse(input.vectors, model="hrr")),
    "resolve_conj": lambda input: input,
}


def decomposition(name: str, target: Any, args: tuple) -> Callable[..., Any] | None:
    """What makes an operation of others, if something does."""
    if not any(isinstance(operand, Spectrum) for operand in args):
        return DECOMPOSITIONS.get(target) or DECOMPOSITIONS.get(name)

    def refused(*args: Any, **kwargs: Any) -> Any:
        raise complex_error(f"{name.strip('_')} of a Fourier transform")

    return OF_SPECTRA.get(name, refused)
