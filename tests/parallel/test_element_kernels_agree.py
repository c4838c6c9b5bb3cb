"""The kernels of element folds give what the reference gives, on operators of many components."""

from __future__ import annotations

import numpy as np
import pytest

from derivable.parallel import element_by_index
from derivable.parallel import element_folds as kernels
from parallel import element_oracle as reference
from parallel.operator_cases import CASES
from parallel.tiered import either_tier

CHOSEN = ["permuted blocks", "linear functions in the plane", "semidirect in log space", "two precisions", "argmax"]
SOME = [case for case in CASES if case.name in CHOSEN]
# The compiler takes seconds for each; of linear functions there are some among the permuted blocks.
INTERPRETED = ["linear functions in the plane", "semidirect in log space"]
TIERED = either_tier(SOME, [case for case in SOME if case.name not in INTERPRETED])
OPTIONS = [
    {},
    {"exclusive": True, "reverse": True},
    {"offsets": np.array([0, 4, 4, 5, 40, 40])},
    {"offsets": np.array([0, 0, 39, 40]), "exclusive": True},
    {"offsets": np.array([0, 4, 4, 5, 40]), "reverse": True},
]


def same(case, found, expected):
    rtol = 1e-4 if case.name == "two precisions" else 1e-10
    assert len(found) == len(expected)
    for a, b in zip(found, expected):
        if b is None:
            assert a is None
            continue
        assert a.dtype == b.dtype
        np.testing.assert_allclose(a, b, rtol=rtol, atol=rtol * np.abs(b[np.isfinite(b)]).max(initial=1.0))


def adjoints_like(case, rows, seed):
    typed = case.typed
    rng = np.random.default_rng(seed)
    return tuple(
        rng.standard_normal((rows, 3, size)).astype(dtype) if dtype.startswith("float") else None
        for size, dtype in zip(typed.leaf_sizes, typed.leaf_dtypes)
    )


@pytest.mark.usefixtures("tier")
@pytest.mark.parametrize(("case", "tier"), TIERED, indirect=["tier"])
def test_scans(case):
    typed, values, adjoints = case.typed, case.leaves(40, 3, seed=1), adjoints_like(case, 40, 2)
    for options in OPTIONS:
        results = reference.scan(typed, values, **options)
        same(case, kernels.scan(typed, values, **options), results)
        found = kernels.scan_vjp(typed, adjoints, values, results, **options)
        same(case, found, reference.scan_vjp(typed, adjoints, values, **options))


@pytest.mark.usefixtures("tier")
@pytest.mark.parametrize(("case", "tier"), TIERED, indirect=["tier"])
def test_segments(case):
    typed, values, offsets = case.typed, case.leaves(40, 3, seed=3), np.array([0, 4, 4, 5, 40])
    adjoints = adjoints_like(case, 4, 4)
    same(case, kernels.segment_reduce(typed, values, offsets), reference.segment_reduce(typed, values, offsets))
    found = kernels.segment_reduce_vjp(typed, adjoints, values, offsets)
    same(case, found, reference.segment_reduce_vjp(typed, adjoints, values, offsets))


@pytest.mark.parametrize("case", [case for case in SOME if case.name == "argmax"], ids=repr)
def test_by_index(case):
    rng = np.random.default_rng(5)
    typed, values, destination = case.typed, case.leaves(40, 3, seed=6), case.leaves(5, 3, seed=7)
    indices = rng.integers(-2, 8, 40)
    adjoints = adjoints_like(case, 5, 8)
    results = reference.reduce_by_index(typed, destination, indices, values)
    same(case, element_by_index.reduce_by_index(typed, destination, indices, values), results)
    found = element_by_index.reduce_by_index_vjp(typed, adjoints, destination, indices, values)
    for part, expected in zip(found, reference.reduce_by_index_vjp(typed, adjoints, destination, indices, values)):
        same(case, part, expected)
