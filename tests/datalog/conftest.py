from contextlib import ExitStack

import pytest

from datalog import observers
from derivable.datalog.policy.costs import under


@pytest.fixture
def costs():
    """Have the rest of a test run under a policy with other costs, as in `costs(few_rows=1)`."""
    with ExitStack() as blocks:
        yield lambda **changes: blocks.enter_context(under(**changes))


@pytest.fixture
def calls_of():
    """Have the calls of a function noted for the rest of a test, as `observers.calls_of` does for a block."""
    with ExitStack() as blocks:
        yield lambda *arguments: blocks.enter_context(observers.calls_of(*arguments))
