"""Properties on a few examples in the quick suite, and on many in the long one."""

import inspect
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis.strategies import SearchStrategy


def examples(quick: int, long: int, *strategies: SearchStrategy, **named: SearchStrategy) -> Callable:
    """Like `given` with these strategies: two tests, of `quick` examples and, marked as slow, of `long` ones."""

    def decorate(check: Callable) -> Callable:
        def test(examples: int, **others: object) -> None:
            settings(max_examples=examples, deadline=None)(given(*strategies, **named)(check))(**others)

        parameters = list(inspect.signature(check).parameters)
        left = parameters[: len(parameters) - len(strategies)]
        names = ["examples", *(name for name in left if name not in named)]
        wanted = [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY) for name in names]
        test.__name__, test.__doc__, test.__module__ = check.__name__, check.__doc__, check.__module__
        test.__signature__ = inspect.Signature(wanted)  # pyright: ignore[reportFunctionMemberAccess]
        return pytest.mark.parametrize("examples", [quick, pytest.param(long, marks=pytest.mark.slow)])(test)

    return decorate
