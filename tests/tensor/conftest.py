"""What holds in all tests of tensor programs."""

import pytest

from derivable.tensor.call.compilation import Kernel

MOST_STAGES = 20


@pytest.fixture(scope="module", autouse=True)
def few_stages():
    """A kernel that makes stages without end fails, instead of keeping a test from its end."""
    add = Kernel._add_stage

    def add_one(kernel, problem):
        assert len(kernel.stages) < MOST_STAGES, kernel.staged.node
        add(kernel, problem)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Kernel, "_add_stage", add_one)
        yield
