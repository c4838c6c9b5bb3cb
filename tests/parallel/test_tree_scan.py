"""Scans in a tree, and their reverse in both forms, against the reference that goes one row after the other."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from derivable.algebra.expr import sqrt
from derivable.parallel import element_reference as reference
from derivable.parallel.operators import NAMED
from derivable.parallel.tree_scan import scan_vjp_tree, segmented_of, tree_scan
from derivable.parallel.user_operators import operator
from parallel.generated_operators import monoids, operator_of
from parallel.operator_cases import CASES, F

OPTIONS = [
    {},
    {"reverse": True},
    {"exclusive": True},
    {"exclusive": True, "reverse": True},
    {"offsets": [0, 4, 4, 5, 13, 13]},
    {"offsets": [0, 4, 4, 5, 13, 13], "reverse": True, "exclusive": True},
    {"offsets": [0, 0, 12, 13], "exclusive": True},
]


def same(found, expected, rtol, atol=0.0):
    assert len(found) == len(expected)
    for a, b in zip(found, expected):
        if b is None:
            assert a is None
        else:
            assert a.dtype == b.dtype
            scale = np.abs(b[np.isfinite(b)]).max(initial=1.0)
            np.testing.assert_allclose(a, b, rtol=rtol, atol=atol * scale)


def tolerance(case):
    return 1e-4 if "precisions" in case.name else 1e-10


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("case", CASES, ids=repr)
def test_agree_with_the_reference(case, options):
    typed, values = case.typed, case.leaves(13, 2, seed=1)
    options = {**options, "offsets": np.array(options["offsets"]) if "offsets" in options else None}
    results = tree_scan(typed, values, **options)
    same(results, reference.scan(typed, values, **options), tolerance(case), 1e-13)
    rng = np.random.default_rng(2)
    adjoints = tuple(rng.standard_normal(leaf.shape).astype(leaf.dtype) for leaf in values)
    expected = reference.scan_vjp(typed, adjoints, values, **options)
    # Results as the reference has them, so that ties are the same ties.
    results = reference.scan(typed, values, **options)
    for form in ("blocks", "free", None):
        found = scan_vjp_tree(typed, adjoints, values, results, form=form, **options)
        same(found, expected, tolerance(case), 1e-12)


@pytest.mark.parametrize("rows", [0, 1, 2, 3, 4, 5, 7, 8, 9, 31, 32, 33, 100])
def test_all_lengths(rows):
    typed = operator(lambda f, g: (f[0] * g[0], f[1] * g[0] + g[1]), neutral=(1.0, 0.0)).typed((F, F))
    rng = np.random.default_rng(rows)
    values = tuple(rng.uniform(-1, 1, (rows, 3, 1)) for _ in range(2))
    results = tree_scan(typed, values)
    same(results, reference.scan(typed, values), 1e-12, 1e-13)
    for form in ("blocks", "free"):
        found = scan_vjp_tree(typed, values, values, results, form=form)
        same(found, reference.scan_vjp(typed, values, values), 1e-12, 1e-13)


@settings(max_examples=60, deadline=None)
@given(
    monoids(),
    st.integers(1, 20),
    st.integers(0, 2**32 - 1),
    st.booleans(),
    st.booleans(),
    st.lists(st.integers(0, 20), max_size=3),
)
def test_generated_operators(monoid, rows, seed, exclusive, reverse, cuts):
    typed = operator_of(monoid).typed((F,) * monoid.size)
    rng = np.random.default_rng(seed)
    values = tuple(rng.uniform(0.2, 1.1, (rows, 1, 1)) for _ in range(monoid.size))
    adjoints = tuple(rng.standard_normal((rows, 1, 1)) for _ in range(monoid.size))
    offsets = np.array([0, *sorted(min(cut, rows) for cut in cuts), rows]) if cuts else None
    options = {"exclusive": exclusive, "reverse": reverse, "offsets": offsets}
    results = reference.scan(typed, values, **options)
    same(tree_scan(typed, values, **options), results, 1e-8, 1e-9)
    expected = reference.scan_vjp(typed, adjoints, values, **options)
    for form in ("blocks", "free"):
        found = scan_vjp_tree(typed, adjoints, values, results, form=form, **options)
        same(found, expected, 1e-8, 1e-9)


def test_blocks_are_the_chain_rule_of_operators_that_are_not_associative():
    """Only products of Jacobians are regrouped, so the sequential meaning is what is differentiated."""
    typed = operator(lambda a, b: (a[0] * a[1] + b[0], a[1] - b[1] * a[0]), neutral=(0.0, 0.0)).typed((F, F))
    rng = np.random.default_rng(0)
    values = tuple(rng.uniform(-1, 1, (17, 2, 1)) for _ in range(2))
    results = reference.scan(typed, values)
    found = scan_vjp_tree(typed, values, values, results, form="blocks")
    same(found, reference.scan_vjp(typed, values, values), 1e-11, 1e-12)


@st.composite
def patterns(draw):
    """Square patterns of few different entries, so that many are equal or opposite."""
    size = draw(st.integers(2, 4))
    used = draw(st.lists(st.sampled_from(["0", "1", "-1", "b", "-b", "c", "-c"]), min_size=2, max_size=4, unique=True))
    return draw(st.lists(st.sampled_from(used), min_size=size * size, max_size=size * size))


@settings(max_examples=200, deadline=None)
@given(patterns(), st.integers(0, 2**32 - 1))
# Entries that part only in the second product, and opposite ones whose products are not.
@example(["b", "-c", "c", "c", "b", "-b", "-b", "-b", "b"], 0)
@example(["-b", "-b", "b", "b", "-b", "-b", "b", "b", "b"], 0)
def test_any_jacobian(pattern, seed):
    """Jacobians with entries that are equal, opposite or constant anywhere: what is shared stays equal."""
    size = round(len(pattern) ** 0.5)

    def function(a, b):
        entry = {"0": 0.0, "1": 1.0, "-1": -1.0, "b": b[0], "-b": -b[0], "c": b[1], "-c": -b[1]}
        return tuple(sum((entry[pattern[i * size + j]] * a[j] for j in range(size)), b[i]) for i in range(size))

    typed = operator(function, neutral=(0.0,) * size).typed((F,) * size)
    rng = np.random.default_rng(seed)
    values, adjoints = (tuple(rng.uniform(-1, 1, (12, 1, 1)) for _ in range(size)) for _ in range(2))
    results = reference.scan(typed, values)
    found = scan_vjp_tree(typed, adjoints, values, results, form="blocks")
    same(found, reference.scan_vjp(typed, adjoints, values), 1e-9, 1e-10)


def test_adjoints_may_be_missing():
    typed = CASES[6].typed
    values = CASES[6].leaves(5, 1, seed=3)
    results = tree_scan(typed, values)
    adjoint = np.ones((5, 1, 1))
    found = scan_vjp_tree(typed, (adjoint, None), values, results)
    same(found, reference.scan_vjp(typed, (adjoint, None), values), 0)
    found = scan_vjp_tree(typed, (None, None), values, results)
    assert found[1] is None
    assert not found[0].any()


@pytest.mark.parametrize("form", ["blocks", "free"])
def test_infinite_jacobians_where_nothing_follows_are_not_used(form):
    typed = operator(lambda a, b: sqrt(a * a + b * b), neutral=0.0).typed((F,))
    values = (np.array([0.0, 3.0, 4.0]).reshape(3, 1, 1),)
    offsets = np.array([0, 1, 3])
    results = tree_scan(typed, values, offsets=offsets)
    adjoint = (np.array([5.0, 0.0, 1.0]).reshape(3, 1, 1),)
    (found,) = scan_vjp_tree(typed, adjoint, values, results, form=form, offsets=offsets)
    np.testing.assert_allclose(found.ravel(), [5.0, 0.6, 0.8], rtol=1e-14)


def test_segmented_operator():
    typed = segmented_of(NAMED["add"].typed((F,)))
    assert str(typed) == (
        "segmented add(a: (bool, float64), b: (bool, float64)), neutral (False, 0.0)\n"
        "  (a_begins | b_begins, where(b_begins, b, a + b))"
    )
    assert typed.apply((False, 2.0), (True, 3.0)) == (True, 3.0)
    assert typed.apply((True, 2.0), (False, 3.0)) == (True, 5.0)
