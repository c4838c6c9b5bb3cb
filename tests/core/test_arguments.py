import numpy as np
import pytest

from derivable.core.arguments import integer, is_integer
from derivable.core.diagnostics import DomainError


def test_integers_of_python_and_numpy():
    assert integer(3, "n") == 3
    assert type(integer(np.int8(3), "n", 0, 3)) is int
    assert not is_integer(True)
    assert not is_integer(np.bool_(True))
    assert not is_integer(1.0)


@pytest.mark.parametrize(
    ("value", "low", "high", "message"),
    [
        (1.0, None, None, "n is 1.0, expected an integer"),
        (True, None, 3, "n is True, expected an integer up to 3"),
        (-1, 0, None, "n is -1, expected a non-negative integer"),
        (0, 1, None, "n is 0, expected a positive integer"),
        (1, 2, None, "n is 1, expected an integer from 2 on"),
        ("2", 0, 3, "n is '2', expected an integer from 0 to 3"),
        (tuple(range(99)), None, None, "n is of type tuple, expected an integer"),
        (10**9, None, 5, "n is 1000000000, expected an integer up to 5"),
    ],
)
def test_refusals(value, low, high, message):
    with pytest.raises(DomainError) as caught:
        integer(value, "n", low, high)
    assert str(caught.value) == message
