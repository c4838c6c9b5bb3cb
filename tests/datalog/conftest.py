from contextlib import ExitStack

import pytest

from derivable.datalog.policy.costs import under


@pytest.fixture
def costs():
    """Have the rest of a test run under a policy with other costs, as in `costs(few_rows=1)`."""
    with ExitStack() as blocks:
        yield lambda **changes: blocks.enter_context(under(**changes))
