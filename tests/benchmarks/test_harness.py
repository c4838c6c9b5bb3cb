"""The harness measures what it says."""

import importlib.util
import itertools
import math
from pathlib import Path

import pytest

PATH = Path(__file__).parents[2] / "benchmarks" / "harness.py"


@pytest.fixture(scope="module")
def harness():
    import sys

    spec = importlib.util.spec_from_file_location("benchmark_harness", PATH)
    module = importlib.util.module_from_spec(spec)
    sys.modules["benchmark_harness"] = module
    spec.loader.exec_module(module)
    return module


def test_a_slower_contestant_has_a_larger_ratio(harness):
    clock = itertools.accumulate(itertools.repeat(0.001), initial=0.0).__next__
    timing = harness.paired(
        {"slow": lambda: [clock() for _ in range(20)], "fast": clock}, rounds=3, slice_seconds=0.01, clock=clock
    )
    assert timing.fastest(["slow", "fast"]) == "fast"
    assert timing.ratio("slow", "fast") > 2
    assert timing.median("slow") >= 0.02
    assert timing.best("slow") <= timing.median("slow")


def test_geometric_mean(harness):
    assert math.isclose(harness.geometric_mean([1, 10, 100]), 10)


def test_durations_and_tables(harness):
    assert [harness.duration(seconds) for seconds in (2.0, 0.0123, 1.23e-5, 5e-9)] == [
        "2 s",
        "12.3 ms",
        "12.3 µs",
        "5 ns",
    ]
    assert harness.table(["name", "x"], [["a", "1x"]]) == "| name | x |\n| --- | ---: |\n| a | 1x |"


def test_the_machine_is_described_without_names(harness):
    import socket

    text = harness.machine()
    assert "cores" in text
    assert socket.gethostname() not in text
    assert str(Path.home()) not in text
