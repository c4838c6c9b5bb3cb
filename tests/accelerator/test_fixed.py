"""exp2 and log2 in fixed point against float64."""

import numpy as np

from derivable.accelerator.numbers import fixed

RNG = np.random.default_rng(0)


def test_exp2_is_near_and_saturates():
    x = np.concatenate([RNG.integers(-(2**31), 2**31, 20_000), RNG.integers(-20 << 16, 15 << 16, 100_000)])
    got = fixed.exp2(x)
    exact = np.minimum(2.0 ** (np.minimum(x / 65536, 20.0)) * 65536, fixed.HIGHEST)
    assert np.all(np.abs(got - exact) <= 0.6 + exact * 2.0**-16)
    assert fixed.exp2(np.array([0, 65536, -65536, 15 << 16, 2**31 - 1, -(2**31)])).tolist() == [
        65536, 131072, 32768, fixed.HIGHEST, fixed.HIGHEST, 0,
    ]  # fmt: skip
    assert np.all(np.diff(fixed.exp2(np.sort(x))) >= 0)


def test_log2_is_near_and_undoes_exp2():
    x = np.maximum(RNG.integers(1, 2**31, 100_000) >> RNG.integers(0, 31, 100_000), 1)
    assert np.abs(fixed.log2(x) - np.log2(x / 65536) * 65536).max() < 0.7
    assert fixed.log2(np.array([0, -1, 1, 65536, 131072])).tolist() == [fixed.LOWEST, fixed.LOWEST, -16 << 16, 0, 65536]
    y = RNG.integers(0, 15 << 16, 10_000)
    assert np.abs(fixed.log2(fixed.exp2(y)) - y).max() <= 2
