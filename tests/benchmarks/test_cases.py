"""The cases of the benchmarks can be called, and what is compared computes the same."""

import importlib
import sys
from pathlib import Path

import numpy as np
import pytest


@pytest.fixture
def benchmarks(monkeypatch):
    names = "harness", "parallel", "commits"
    # A package of tests has a benchmark's name.
    for name in names:
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "benchmarks"))
    yield importlib.import_module
    for name in names:
        sys.modules.pop(name, None)


@pytest.mark.parametrize("title", ["scan add", "scan 2x2", "index add"])
def test_every_contestant_runs_and_gradients_agree(benchmarks, title):
    pytest.importorskip("jax")
    pytest.importorskip("torch")
    parallel = benchmarks("parallel")
    fold, name = title.split()
    case = parallel.index_case(name, 31, 40_000) if fold == "index" else parallel.scan_case(name, 40_000)
    for call in case.forward.values():
        call()
    gradients = {who: call() for who, call in case.both.items()}
    assert set(gradients) >= {"ours", "autograd"}
    if "torch" in gradients:
        np.testing.assert_allclose(gradients["autograd"].ravel(), gradients["torch"].ravel(), rtol=1e-3)


def test_rows_of_two_commits_are_of_ours_only(benchmarks, monkeypatch):
    pytest.importorskip("jax")
    pytest.importorskip("torch")
    commits = benchmarks("commits")
    monkeypatch.setattr(commits, "NUMBERS", 40_000)
    rows = dict(commits.fold_rows("scan add", 1, 1))
    assert set(rows) == {"scan add, ours forward", "scan add, ours both", "scan add, autograd both"}
    assert min(rows.values()) > 0
    table = commits.report("parallel", 1, [{"name": "a", "before": [2.0, 1.0, 1.0], "after": [1.0, 1.0, 3.0]}])
    assert "geometric mean 1.00" in table
