"""The benchmark of front doors: each walk does what it says, and visits are counted right."""

import importlib
import sys
from pathlib import Path

import numpy as np
import pytest

from derivable.core.registry import suggestion


@pytest.fixture(scope="module")
def benchmark():
    names = "harness", "front_doors"
    before = {name: sys.modules.pop(name) for name in names if name in sys.modules}
    sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
    yield importlib.import_module("front_doors")
    sys.path.pop(0)
    for name in names:
        sys.modules.pop(name, None)
    sys.modules.update(before)


def test_visits_are_those_of_the_library_alone(benchmark):
    assert benchmark.visits(lambda: sorted([2, 1], key=lambda value: -value)).calls == 0
    once = benchmark.visits(lambda: suggestion("edge", ["edges", "path"], ""))
    twice = benchmark.visits(lambda: [suggestion("edge", ["edges", "path"], "") for _ in range(2)])
    assert once.calls > 0
    assert (twice.calls, twice.functions, twice.files) == (2 * once.calls, once.functions, once.files)


def test_datalog_walks_find_what_they_say(benchmark):
    unit, exact, tagged = benchmark.run_unit()(), benchmark.run_exact()(), benchmark.run_tagged()()
    assert set(unit["path"]) == {(i, j) for i in range(6) for j in range(i + 1, 6)}
    assert exact["path"][0, 5] == pytest.approx(np.prod([0.5, 0.55, 0.6, 0.65, 0.7]))
    assert len(tagged["path"]) == 10 * 55
    assert {tag for _, tag in tagged["path"].items()} == {0.9}


def test_training_walks_agree(benchmark, monkeypatch):
    pytest.importorskip("torch")
    matrix, values, weights = benchmark._training()
    assert matrix.nnz == 1800
    monkeypatch.setattr(benchmark, "_training", lambda: (matrix, values, weights))
    found = []
    for make in (benchmark.train_einsum, benchmark.train_function):
        make()()
        found.append((values.grad.clone(), weights.grad.clone()))
    products = matrix @ weights.detach().numpy()
    expected = 2 * products[matrix.coords[0]] * weights.detach().numpy()[matrix.coords[1]], 2 * (matrix.T @ products)
    for grads in found:
        for grad, wanted in zip(grads, expected):
            np.testing.assert_allclose(grad, wanted)


@pytest.mark.parametrize("name", ["run, unit, 5 edges", "einsum, csr and dense"])
def test_a_row_has_what_the_header_says(benchmark, monkeypatch, name):
    monkeypatch.setattr(benchmark.harness, "WARM_SECONDS", 0.0)
    row = benchmark.row_of(name, rounds=1, seconds=1e-4)
    assert len(row) == len(benchmark.HEADER)
    median, minimum, functions, calls, files, _ = (int(cell.replace(",", "")) for cell in row[1:7])
    assert median >= minimum > 0
    assert calls >= functions >= files > 1


def test_a_design_is_made(benchmark):
    pytest.importorskip("torch")
    assert benchmark.design()().cycles > 0
