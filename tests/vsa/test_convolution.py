"""Circular convolution and correlation: a plain loop, the direct and the Fourier path agree, derivatives included."""

import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import derivable as dv
from derivable.core.diagnostics import ShapeError
from derivable.vsa.convolution import convolve, correlate, expected, explain, involution, quicker_path

PATHS = ("direct", "fft")
BATCHES = [((), ()), ((3,), ()), ((), (2, 3)), ((2, 1, 3), (4, 1)), ((1, 3), (2, 1)), ((0,), ()), ((5, 2), (5, 2))]


def looped(a, b, is_correlation=False):
    """The definition, term by term."""
    length = a.shape[-1]
    found = []
    for n in range(length):
        if is_correlation:
            terms = [b[..., k].conj() * a[..., (n + k) % length] for k in range(length)]
        else:
            terms = [a[..., k] * b[..., (n - k) % length] for k in range(length)]
        found.append(sum(terms))
    return torch.stack(found, -1)


@settings(deadline=None, max_examples=40)
@given(
    st.sampled_from(BATCHES),
    st.integers(1, 9),
    st.sampled_from([torch.float64, torch.complex128]),
    st.integers(0, 2**31),
)
def test_paths_agree_with_a_loop(batches, length, dtype, seed):
    generator = torch.Generator().manual_seed(seed)
    a, b = (torch.randn(*batch, length, dtype=dtype, generator=generator) for batch in batches)
    for path in (*PATHS, None):
        assert torch.allclose(convolve(a, b, path=path), looped(a, b))
        assert torch.allclose(correlate(a, b, path=path), looped(a, b, is_correlation=True))
    assert torch.allclose(convolve(a, involution(b)), correlate(a, b))


@pytest.mark.parametrize(("path", "dtype"), list(itertools.product(PATHS, [torch.float16, torch.bfloat16])))
def test_half_precision_is_summed_in_single(path, dtype):
    generator = torch.Generator().manual_seed(0)
    a, b = (torch.randn(4, 64, generator=generator).to(dtype) for _ in range(2))
    found = convolve(a, b, path=path)
    assert found.dtype == dtype
    # One rounding of the result, beside the error of the sum in single precision.
    assert torch.allclose(found.double(), looped(a.double(), b.double()), rtol=torch.finfo(dtype).eps, atol=1e-4)


def test_mixed_dtypes_promote():
    assert convolve(torch.ones(4), torch.ones(4, dtype=torch.float64)).dtype == torch.float64
    assert convolve(torch.ones(4), torch.ones(4, dtype=torch.complex64)).dtype == torch.complex64


@pytest.mark.parametrize(
    ("path", "function", "dtype"),
    list(itertools.product(PATHS, [convolve, correlate], [torch.float64, torch.complex128])),
)
def test_derivatives(path, function, dtype):
    generator = torch.Generator().manual_seed(0)
    a = torch.randn(2, 5, dtype=dtype, generator=generator, requires_grad=True)
    b = torch.randn(5, dtype=dtype, generator=generator, requires_grad=True)
    assert torch.autograd.gradcheck(lambda a, b: function(a, b, path=path), (a, b), check_batched_grad=True)
    assert torch.autograd.gradgradcheck(lambda a, b: function(a, b, path=path), (a, b), fast_mode=True)


def test_the_path_goes_by_size():
    """Few short rows that many others share go directly; everything else by transform."""
    assert quicker_path(torch.Size([2048, 4, 16]), torch.Size([4, 16])) == "direct"
    assert quicker_path(torch.Size([2048, 4, 16]), torch.Size([2048, 4, 16])) == "fft"
    assert quicker_path(torch.Size([2048, 4, 256]), torch.Size([4, 256])) == "fft"
    # The lengths of a GPU are others: transforms keep the host busy, and products are cheap.
    for rows, shared, length, path in (
        (1000, 1000, 1024, "fft"),
        (1000, 1000, 10_000, "fft"),
        (1024, 1, 64, "direct"),
        (65_536, 1, 128, "direct"),
        (65_536, 1, 1024, "fft"),
        (65_536, 65_536, 128, "fft"),
    ):
        assert quicker_path(torch.Size([rows, length]), torch.Size([shared, length]), "cuda") == path
    # What was measured on one.
    direct, fft = expected(torch.Size([1000, 1024]), torch.Size([1000, 1024]), torch.float32)
    assert fft.seconds == pytest.approx(101e-6, rel=0.1)
    assert direct.seconds == pytest.approx(3.57e-3, rel=0.1)
    fft = expected(torch.Size([1000, 10_000]), torch.Size([1000, 10_000]), torch.float32)[1]
    assert fft.seconds == pytest.approx(238e-6, rel=0.1)
    a, b = torch.rand(4096, 16), torch.rand(16)
    assert explain(a, b).splitlines()[0] == "convolve -> direct (cpu)"
    assert explain(a, a.double(), device="cuda").splitlines()[0] == "convolve -> direct (cuda)"
    assert explain(a, b, device="cuda").splitlines()[2] == "  fft: calls 100 us, moves 1.22 us, products 0 us"
    with pytest.raises(ShapeError, match="lengths differ"):
        explain(a, torch.rand(8))
    assert torch.allclose(convolve(a, b), convolve(a, b, path="fft"), atol=1e-5)


@pytest.mark.parametrize(
    ("a", "b", "path", "message"),
    [
        (torch.ones(4), torch.ones(5), None, "lengths differ"),
        (torch.ones(()), torch.ones(4), None, "lengths differ"),
        (torch.ones(4, dtype=torch.int64), torch.ones(4, dtype=torch.int64), None, "int64"),
        (torch.ones(4), torch.ones(4), "slow", "no path 'slow'"),
    ],
)
def test_errors(a, b, path, message):
    with pytest.raises(dv.DerivableError, match=message):
        convolve(a, b, path=path)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")
@pytest.mark.parametrize("path", PATHS)
def test_cuda_gives_what_the_cpu_gives(path):
    generator = torch.Generator().manual_seed(0)
    for dtype in (torch.float32, torch.float16, torch.bfloat16, torch.complex64):
        a, b = (torch.randn(*batch, 24, generator=generator).to(dtype) for batch in ((5, 3), (3,)))
        tolerance = 1e-5 if dtype.itemsize > 2 else torch.finfo(dtype).eps * 30
        for function in (convolve, correlate):
            found = function(a.cuda(), b.cuda(), path=path).cpu()
            assert torch.allclose(found, function(a, b, path=path), atol=tolerance)
