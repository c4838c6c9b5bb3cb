"""The primitive "fold levels": its reference and derivative rule."""

import numpy as np
import pytest

from derivable.algebra import semirings
from derivable.core.diagnostics import UnsupportedError
from derivable.parallel.levels import fold_levels
from parallel.level_oracle import fold_levels_vjp

# (x0 and x1 and x2) or x1 or one-and-x2
KIND = np.array([2, 2, 2, 1, 3, 3, 4], np.uint8)
LEAF = np.array([0, 1, 2, 0, 0, 0, 0])
OFFSETS = np.array([0, 0, 0, 0, 0, 3, 5, 8])
CHILDREN = np.array([0, 1, 2, 2, 3, 1, 4, 5], np.int32)
NODES = KIND, LEAF, OFFSETS, CHILDREN


def test_values():
    leaves = np.array([[2.0, 0.0], [3.0, 1.0], [5.0, 7.0]])
    np.testing.assert_array_equal(fold_levels(leaves, *NODES, semirings.real)[6], [38, 8])
    np.testing.assert_array_equal(fold_levels(leaves, *NODES, semirings.max_product)[6], [30, 7])
    np.testing.assert_array_equal(fold_levels(leaves, *NODES, semirings.min_plus)[6], [3, 1])


def test_exact_integers():
    leaves = np.array([10**30, 1, 10**30], object)
    assert fold_levels(leaves, *NODES, semirings.counting)[6] == 10**60 + 10**30 + 1


@pytest.mark.parametrize("name", ["real", "log", "max_product", "max_plus", "min_plus", "godel"])
def test_derivative_rule_against_differences(name):
    ring = semirings.get(name)
    rng = np.random.default_rng(4)
    leaves = rng.uniform(0.1, 0.9, (3, 5))
    adjoints = rng.normal(size=(7, 5))
    found = fold_levels_vjp(leaves, *NODES, ring, adjoints)
    for leaf in range(3):
        step = np.zeros((3, 5))
        step[leaf] = 1e-6
        change = fold_levels(leaves + step, *NODES, ring) - fold_levels(leaves - step, *NODES, ring)
        np.testing.assert_allclose(found[leaf], (change * adjoints).sum(0) / 2e-6, rtol=1e-6, atol=1e-7)


def test_ties_go_to_the_smallest_index():
    found = fold_levels_vjp(np.ones(3), *NODES, semirings.max_product, np.eye(7)[6])
    np.testing.assert_array_equal(found, [0, 1, 0])


def test_no_derivative_is_a_refusal():
    with pytest.raises(UnsupportedError, match="no derivatives"):
        fold_levels_vjp(np.ones(3, bool), *NODES, semirings.boolean, np.ones(7, bool))
