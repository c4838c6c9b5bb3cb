"""Random tests that have some of their examples in the quick suite and all of them in the long one."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings


def examples(few: int, many: int, *strategies: Any) -> Callable[[Callable[..., None]], Callable[[int], None]]:
    """Like @given: a test of `few` examples, and in the long suite one of `many` too."""

    def decorated(check: Callable[..., None]) -> Callable[[int], None]:
        tests = {count: settings(max_examples=count, deadline=None)(given(*strategies)(check)) for count in (few, many)}

        @pytest.mark.parametrize("count", [few, pytest.param(many, marks=pytest.mark.slow)])
        def test(count: int) -> None:
            tests[count]()

        test.__doc__ = check.__doc__
        return test

    return decorated
