"""Properties on a few examples in the quick suite, and on many in the long one."""

import inspect
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis.strategies import SearchStrategy


def lengths(quick: int, long: int, **strategies: SearchStrategy) -> Callable:
    """Like `given` with these strategies: two tests, of `quick` examples and, marked as slow, of `long` ones."""

    def decorate(check: Callable) -> Callable:
        def test(examples: int, **others: object) -> None:
            settings(max_examples=examples, deadline=None)(given(**strategies)(check))(**others)

        names = ["examples", *(name for name in inspect.signature(check).parameters if name not in strategies)]
        parameters = [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY) for name in names]
        test.__name__, test.__doc__, test.__module__ = check.__name__, check.__doc__, check.__module__
        test.__signature__ = inspect.Signature(parameters)  # pyright: ignore[reportFunctionMemberAccess]
        return pytest.mark.parametrize("examples", [quick, pytest.param(long, marks=pytest.mark.slow)])(test)

    return decorate
