"""Goals of cases on a GPU: figures, verdicts and bounds, of times that are given."""

import importlib
import json
import sys
from pathlib import Path

import pytest


@pytest.fixture
def goals(monkeypatch):
    monkeypatch.delitem(sys.modules, "harness", raising=False)
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "benchmarks"))
    yield importlib.import_module("gpu_goals")
    for name in ("harness", "gpu_goals"):
        sys.modules.pop(name, None)


@pytest.fixture
def costs(goals):
    return goals.Costs(call=5e-6, launch=2e-6, step=1e-6, byte=1e-12)


def test_a_bound_is_what_takes_longest(goals, costs):
    bound = goals.Bound(bytes=10**9, steps=100, launches=3, host=1e-6)
    assert bound.seconds(costs, 0, is_graph=True) == pytest.approx(1e-3)
    assert bound.shown(costs, 0, True) == "1e+03 MB: 1 ms"
    waits = goals.Bound(bytes=10**6, steps=100, launches=None, host=1e-5)
    assert waits.seconds(costs, 40, is_graph=True) == pytest.approx(1e-5 + 40 * 2e-6 + 1e-4)
    assert waits.seconds(costs, 40, is_graph=False) == pytest.approx(1e-5 + 40 * 5e-6 + 1e-4)
    assert waits.shown(costs, 40, False) == "40 launches x 5 µs + 100 steps x 1 µs + 10 µs of the host"


def row_of(goals, costs, goal, seconds, bound, launches=0):
    found = goals.Found((goal,), seconds, bound, launches, 1e-3)
    # As it comes from another process.
    (row,) = goals.Found.of(json.loads(json.dumps(found.message()))).rows("a case", costs)
    return row


def test_verdicts(goals, costs):
    ten = goals.Goal("ten times two threads", "CPU", 0.1)
    row = row_of(goals, costs, ten, {"CPU": 1.0, "device": 0.05}, goals.Bound(launches=None), 100)
    assert row == [
        *("ten times two threads", "a case", "10 times as fast as CPU", "20", "met"),
        *("100 launches x 5 µs; 2e+03", "100, 1 ms"),
    ]
    row = row_of(goals, costs, ten, {"CPU": 1.0, "device": 0.2}, goals.Bound(host=0.05))
    assert row[3:6] == ["5", "missed, though the bound allows it", "1 launches x 5 µs + 50 ms of the host; 20"]
    row = row_of(goals, costs, ten, {"CPU": 1.0, "device": 0.4}, goals.Bound(host=0.2))
    assert row[3:5] == ["2.5", "forbidden by the bound"]


def test_goals_beside_other_programs_and_bytes(goals, costs):
    longer = goals.Goal("scan of add", "torch", 1.3)
    row = row_of(goals, costs, longer, {"torch": 1e-3, "device": 1.1e-3}, goals.Bound(8 * 10**8))
    assert row[2:6] == ["at most 1.3 of torch", "1.1", "met", "800 MB: 800 µs; 0.8"]
    ours, theirs = "derivable, CUDA graph", "klay, CUDA graph"
    half = goals.Goal("half of the bandwidth", goals.BYTES, 2.0, ours)
    row = row_of(goals, costs, half, {ours: 4e-3, "device": 9.0}, goals.Bound(10**9, steps=50))
    assert row[2:7] == [
        *("at least 0.5 of the bandwidth", "0.25", "missed, though the bound allows it"),
        *("1e+03 MB: 1 ms; 1", ""),
    ]
    five = goals.Goal("five times klaycircuits", theirs, 0.2, ours)
    found = goals.Found((five,), {ours: 1e-3, "device": 9.0})
    assert found.rows("a case", costs) == []
    found.seconds[theirs] = 8e-3
    assert found.rows("a case", costs)[0][2:5] == ["5 times as fast as klay", "8", "met"]
    summary, table = goals.section(costs, [("a case", found)])[2:]
    assert summary.startswith("1 of 1 goals are met.")
    assert "five times klaycircuits" in table
    assert goals.section(costs, []) == []
