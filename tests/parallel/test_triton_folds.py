"""Folds as on a GPU, in Triton's interpreter, in a process of its own because that is chosen at import."""

import pytest

from triton_process import printed_by

SLOW = ["all_operators", "all_ways", "segments", "buckets", "types"]


@pytest.mark.parametrize(
    "names", ["few autograd parameters refusals", *(pytest.param(name, marks=pytest.mark.slow) for name in SLOW)]
)
def test_kernels_of_gpus_are_the_reference(names):
    assert printed_by("parallel/triton_fold_cases.py", *names.split()).split() == names.split()
