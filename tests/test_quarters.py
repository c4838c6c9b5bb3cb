"""Which slow tests a commit runs, and that their examples are new ones."""

import os

import hypothesis
import pytest

from quarters import quarter_of, quarter_of_commit, sittings

HOUR = 3600


def test_cases_of_a_function_are_in_one_quarter():
    cases = ["tests/a.py::test_b", "tests/a.py::test_b[1-x]", "tests/a.py::test_b[2::y]"]
    assert len(set(map(quarter_of, cases))) == 1
    assert {quarter_of(f"tests/a.py::test_{number}") for number in range(50)} == {0, 1, 2, 3}


def test_each_sitting_has_the_next_quarter():
    """Of two and a half hours with a commit every ten minutes, and twenty minutes or a night between them."""
    times, found = [], []
    for pause in [20 * 60, 20 * 60, 9 * HOUR, 30 * 60, 20 * 60]:
        begin = (times[-1] if times else 0) + pause
        times += range(begin, begin + 5 * HOUR // 2, 600)
        found.append(sittings(times) % 4)
    # A sitting begins at the first commit that comes three hours after the first one of the sitting before, or later.
    assert found == [1, 2, 3, 0, 1]
    assert sittings(reversed(times)) == sittings(times) == 5
    assert sittings([]) == 0


def test_the_commit_has_a_quarter():
    try:
        assert quarter_of_commit() in range(4)
    except (OSError, ValueError) as error:
        pytest.skip(f"no clone: {error}")


@pytest.mark.parametrize("suite", ["quick", pytest.param("slow", marks=pytest.mark.slow)])
def test_slow_tests_draw_new_examples(suite, request):
    """But not where a quarter of them decides whether a change lands."""
    decides = suite == "quick" or request.config.getoption("quarter") is not None
    assert hypothesis.settings().print_blob
    assert hypothesis.settings().derandomize == (decides and bool(os.environ.get("CI")))
