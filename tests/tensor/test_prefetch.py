"""Long loops over entries ask for those to come, and do what they did."""

import numpy as np
import pytest
import scipy.sparse as sp

from derivable.kernel import nodes as n
from derivable.kernel.check import check
from derivable.tensor.call.compilation import compile
from derivable.tensor.language.syntax import parse
from derivable.tensor.language.types import tensor
from derivable.tensor.lower import prefetch
from derivable.tensor.lower.prefetch import with_prefetches

TYPES = {"A": tensor(2), "X": tensor(1)}
TEXTS = {
    "columns": ("sum(<_, r> in A) r", True),
    "gathered": ("sum(<_, r> in A) sum(<j, a> in r) a * X(j)", True),
    # Loops in loops, and entries in order.
    "rows": ("sum(<i, r> in A) { i -> sum(<j, a> in r) a * X(j) }", False),
    "in order": ("sum(<_, r> in A) sum(<j, a> in r) a", False),
}


def matrix():
    return sp.csr_array(sp.random_array((40, 30), density=0.3, rng=1))


@pytest.mark.parametrize("case", TEXTS)
def test_only_scattered_loops_have_a_second_form(case):
    text, expected = TEXTS[case]
    kernel = compile(parse(text, TYPES), {"A": "csr"})
    given = {"A": matrix(), "X": np.arange(30.0)}
    kernel(**{name: given[name] for name in kernel.inputs})
    (made,) = kernel.kernels()
    found = with_prefetches(made)
    check(found)
    assert any(isinstance(part, n.Prefetch) for part in n.walk(found.body)) == expected
    assert (found == made) != expected
    assert ("call void @llvm.prefetch" in kernel.explain("source")) == expected


@pytest.mark.parametrize("least", [0, 200])
def test_results_are_the_same(monkeypatch, least):
    """With a threshold below and above the entries of a small matrix; what is asked for lies outside of its arrays."""
    monkeypatch.setattr(prefetch, "LEAST", least)
    A, x = matrix(), np.arange(30.0)
    for case, expected in (("columns", A.sum(0)), ("gathered", (A @ x).sum())):
        kernel = compile(parse(TEXTS[case][0], TYPES), {"A": "csr"})
        given = {"A": A, "X": x}
        for _ in range(2):
            found = kernel(**{name: given[name] for name in kernel.inputs})
            np.testing.assert_allclose(found, expected)
