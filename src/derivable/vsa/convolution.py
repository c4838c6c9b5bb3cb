"""Circular convolution and correlation along the last axis, directly and by Fourier transform."""

from __future__ import annotations

import math
import string
from dataclasses import dataclass

import torch
from torch import Tensor

from derivable.core.diagnostics import DomainError, ShapeError
from derivable.vsa.arguments import check_device, check_tensor
from derivable.vsa.leaf import leaf

_HALF = (torch.float16, torch.bfloat16)
# Where the direct path was the faster one on a CPU: rows of these lengths that many share (docs/decisions/090).
DIRECT_LENGTHS = range(16, 49)
FEWEST_ROWS_DIRECT = 1024
# Of a GPU: seconds of the host for the calls of a path; bytes a second that transforms read and write, and that the
# matrix of shifts has, both as measured; multiplications a second of float32, a third of what an H200 has at most.
CALLS = {"fft": 100e-6, "direct": 60e-6}
TRANSFORMED, SHIFTED, MULTIPLIED = 1.5e12, 1.2e12, 1e13


@leaf
def convolve(a: Tensor, b: Tensor, *, path: str | None = None) -> Tensor:
    """Circular convolution: the sum over k of a[k] b[(n - k) mod length].

    a, b    [*batch, length], real or complex floats; batches are broadcast
    path    "direct", "fft", or None for the one that is the faster at this size on this device (`dv.vsa.explain`)
    returns [*batch, length] in the promoted dtype; float16 and bfloat16 are summed in float32

    Both paths have derivatives of any order. Raises ShapeError for other dtypes and shapes that do not fit, DomainError
    for another path.
    """
    return _convolved(a, b, path, is_correlation=False)


@leaf
def correlate(c: Tensor, a: Tensor, *, path: str | None = None) -> Tensor:
    """Circular correlation: the sum over k of conj(a[k]) c[(n + k) mod length], the adjoint of convolving with `a`.

    Shapes, dtypes, paths and errors are those of `convolve`.
    """
    return _convolved(c, a, path, is_correlation=True)


def involution(a: Tensor) -> Tensor:
    """conj(a[-n mod length]): convolving with it is correlating with `a`."""
    return a.flip(-1).roll(1, -1).conj()


@dataclass(frozen=True)
class Expected:
    """Seconds that a path is expected to take on a GPU: the host for its calls, the device for moves and products.

    They do not add up: the device works while the host calls.
    """

    path: str
    calls: float
    moves: float
    products: float

    @property
    def seconds(self) -> float:
        return max(self.calls, self.moves + self.products)

    def __str__(self) -> str:
        calls, moves, products = (f"{1e6 * x:,.3g} us" for x in (self.calls, self.moves, self.products))
        return f"{self.path}: calls {calls}, moves {moves}, products {products}"


def expected(a: torch.Size, b: torch.Size, dtype: torch.dtype) -> list[Expected]:
    """What both paths are expected to take on a GPU for operands of these shapes, the direct one first."""
    length, size = a[-1], torch.promote_types(dtype, torch.float32).itemsize
    shared, rows = sorted((math.prod(a[:-1]), math.prod(b[:-1])))
    results = math.prod(torch.broadcast_shapes(a[:-1], b[:-1]))
    # A product of complex numbers has four, and of numbers of twice the size a device does half as many.
    multiplied = results * length * length * (size / 4) * (2 if dtype.is_complex else 1)
    shifts, moved = shared * length * length, 2 * results * length
    # Transforms read and write both operands, their product and the result.
    transformed = (2 * (shared + rows) + 5 * results) * length
    direct = shifts * size / SHIFTED + moved * size / TRANSFORMED
    return [
        Expected("direct", CALLS["direct"], direct, multiplied / MULTIPLIED),
        Expected("fft", CALLS["fft"], transformed * size / TRANSFORMED, 0.0),
    ]


def quicker_path(a: torch.Size, b: torch.Size, device: str = "cpu", dtype: torch.dtype = torch.float32) -> str:
    """The path that is the faster for operands of these shapes: as measured on a CPU, as expected on a GPU."""
    if device == "cuda":
        return min(expected(a, b, dtype), key=lambda path: path.seconds).path
    shared, rows = sorted((math.prod(a[:-1]), math.prod(b[:-1])))
    return "direct" if a[-1] in DIRECT_LENGTHS and rows >= FEWEST_ROWS_DIRECT * max(shared, 1) else "fft"


def explain(a: Tensor, b: Tensor, *, device: str | None = None) -> str:
    """What `convolve(a, b)` and `correlate(a, b)` compute by, and why.

    a, b    [*batch, length], as `convolve` takes them
    device  "cpu" or "cuda"; None for that of `a`
    returns the path, and on a GPU what each path is expected to take: microseconds of the host for its calls, and of
            the device for what it moves and multiplies

    Raises ShapeError as `convolve` does.
    """
    dtype, kind = _checked(a, b), device or a.device.type
    path = quicker_path(a.shape, b.shape, kind, dtype)
    if kind == "cuda":
        return "\n".join([f"convolve -> {path} (cuda)", *(f"  {each}" for each in expected(a.shape, b.shape, dtype))])
    lengths = f"{DIRECT_LENGTHS[0]} to {DIRECT_LENGTHS[-1]}"
    why = f"rows of {lengths} places go directly where {FEWEST_ROWS_DIRECT:,} or more share each"
    return f"convolve -> {path} ({kind})\n  because: {why}"


def _checked(a: Tensor, b: Tensor) -> torch.dtype:
    """The promoted dtype. Raises ShapeError for other dtypes and shapes that do not fit."""
    for operand in (a, b):
        check_tensor(operand, "a row of circular convolution", "*batch, length")
    check_device(a, b, ("the first row", "the second"))
    dtype = torch.promote_types(a.dtype, b.dtype)
    if not (dtype.is_floating_point or dtype.is_complex):
        raise ShapeError(
            f"circular convolution is of floating or complex numbers, not {dtype}", hint="convert it with `.float()`"
        )
    if not a.dim() or not b.dim() or a.shape[-1] != b.shape[-1] or not a.shape[-1]:
        raise ShapeError(f"circular convolution of rows of shapes {list(a.shape)} and {list(b.shape)}: lengths differ")
    return dtype


def _convolved(a: Tensor, b: Tensor, path: str | None, *, is_correlation: bool) -> Tensor:
    dtype = _checked(a, b)
    if path is None:
        path = quicker_path(a.shape, b.shape, a.device.type, dtype)
    elif path not in ("direct", "fft"):
        raise DomainError(f"there is no path {path!r}", hint="paths are 'direct' and 'fft'")
    computed = torch.float32 if dtype in _HALF else dtype
    a, b = a.to(computed), b.to(computed)
    # Some transforms refuse to have nothing to do.
    if path == "fft" and a.numel() and b.numel():
        return _by_transform(a, b, is_correlation).to(dtype)
    return _by_products(a, involution(b) if is_correlation else b).to(dtype)


def _by_transform(a: Tensor, b: Tensor, is_correlation: bool) -> Tensor:
    forward, length = (torch.fft.fft if a.is_complex() else torch.fft.rfft), a.shape[-1]
    first, second = forward(a), forward(b)
    product = first * (second.conj() if is_correlation else second)
    return torch.fft.ifft(product) if a.is_complex() else torch.fft.irfft(product, n=length)


def _by_products(a: Tensor, b: Tensor) -> Tensor:
    """All shifts of the operand of fewer rows, times the other; what they share is one matrix product."""
    if a.numel() < b.numel():
        a, b = b, a
    shifts = torch.cat((b, b[..., :-1]), -1).unfold(-1, b.shape[-1], 1)  # [*batch, n, j] is b[(n + j) mod length]
    rank = max(a.dim(), b.dim()) - 1
    names = string.ascii_lowercase[:rank]
    # One of both has its last axis counted backwards: the smaller.
    if shifts.numel() < a.numel():
        shifts = shifts.flip(-1).roll(1, -1)
    else:
        a = a.flip(-1).roll(1, -1)
    row, shift = (_with_names(operand, names, axes) for operand, axes in ((a, 1), (shifts, 2)))
    result = "".join(name for name in names if name in row[1] + shift[1])
    product = torch.einsum(f"{row[1]}Y,{shift[1]}XY->{result}X", row[0], shift[0])
    return product.reshape(*torch.broadcast_shapes(a.shape[:-1], b.shape[:-1]), a.shape[-1])


def _with_names(operand: Tensor, names: str, axes: int) -> tuple[Tensor, str]:
    """The operand without its batch axes of size 1, and the names of those that are left, aligned at the right."""
    batch = operand.shape[:-axes]
    own = names[len(names) - len(batch) :]
    kept = [k for k, size in enumerate(batch) if size != 1]
    return operand.reshape(*(batch[k] for k in kept), *operand.shape[-axes:]), "".join(own[k] for k in kept)
