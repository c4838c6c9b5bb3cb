"""Forward and reverse mode, two derivations of the same Jacobian, on operators made at random."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import derivable as dv
from algebra.expr_cases import BINARY_EXACT, BINARY_SMOOTH, UNARY_EXACT, UNARY_SMOOTH, run, trees
from parallel.array_libraries import LIBRARIES, jacobian_backwards, jacobian_forwards
from parallel.generated_operators import SCALARS, monoids, operator_of

UNARY, BINARY = {**UNARY_EXACT, **UNARY_SMOOTH}, {**BINARY_EXACT, **BINARY_SMOOTH}
COMMUTATIVE = [monoid for monoid in SCALARS if monoid.size == 1 or monoid.name == "earlier of two"]


@settings(max_examples=200, deadline=None)
@given(st.lists(trees(UNARY, BINARY, num_arguments=4), min_size=2, max_size=2), st.integers(0, 2**32 - 1))
def test_expressions(made, seed):
    """<u, J t> = <J^T u, t> for any functions, associative or not, smooth or not."""
    typed = dv.parallel.operator(
        lambda a, b: tuple(run(tree, (*a, *b), {**UNARY, **BINARY}) + 0.0 * a[0] for tree in made), neutral=(0.0, 0.0)
    ).typed(("float64", "float64"))
    rng = np.random.default_rng(seed)
    a, b, a_tangent, b_tangent, u = rng.uniform(-1.5, 1.5, (5, 2, 20))
    moved = typed.dual.apply((*a, *a_tangent), (*b, *b_tangent))[2:]
    to_a, to_b = typed.apply_vjp(a, b, u)
    forwards = sum(x * t for x, t in zip(u, moved))
    backwards = sum(x * t for x, t in zip((*to_a, *to_b), (*a_tangent, *b_tangent)))
    size = 1 + sum(np.abs(x * t) for x, t in zip((*to_a, *to_b), (*a_tangent, *b_tangent)))
    fine = np.isfinite(forwards) & np.isfinite(size)
    assert np.all(np.abs(forwards - backwards)[fine] <= 1e-9 * size[fine])


def whole_jacobians_agree(library, program, inputs):
    forwards = jacobian_forwards(library, program, inputs)
    assert np.abs(forwards).sum() > 0
    np.testing.assert_allclose(jacobian_backwards(library, program, inputs), forwards, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("library", LIBRARIES, ids=repr)
@settings(max_examples=4, deadline=None)
@given(monoids(), st.integers(2, 5), st.integers(0, 2**32 - 1), st.booleans(), st.booleans())
def test_scans(library, monoid, rows, seed, exclusive, reverse):
    op = operator_of(monoid)
    rng = np.random.default_rng(seed)
    inputs = [rng.uniform(0.4, 1.0, rows).astype(np.float32) for _ in range(monoid.size)]
    whole_jacobians_agree(
        library, lambda *leaves: dv.parallel.scan(op, leaves, exclusive=exclusive, reverse=reverse), inputs
    )


@pytest.mark.parametrize("library", LIBRARIES, ids=repr)
@settings(max_examples=4, deadline=None)
@given(st.sampled_from(COMMUTATIVE), st.lists(st.integers(-1, 4), min_size=1, max_size=8), st.integers(0, 2**32 - 1))
def test_reduce_by_index(library, monoid, indices, seed):
    op = operator_of(monoid)
    rng = np.random.default_rng(seed)
    inputs = [rng.uniform(0.4, 1.0, 4).astype(np.float32) for _ in range(monoid.size)]
    inputs += [rng.uniform(0.4, 1.0, len(indices)).astype(np.float32) for _ in range(monoid.size)]
    whole_jacobians_agree(
        library,
        lambda *leaves: dv.parallel.reduce_by_index(
            leaves[: monoid.size], op, library.array(indices), leaves[monoid.size :]
        ),
        inputs,
    )
