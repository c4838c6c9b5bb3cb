"""The benchmark of accelerators: its workloads are what they say, and each section runs."""

import importlib
import sys
from pathlib import Path

import pytest


@pytest.fixture(scope="module")
def benchmark():
    names = "harness", "accelerator", "comparison_models", "exact_schedule"
    # A package of tests has the benchmark's name.
    before = {name: sys.modules.pop(name) for name in names if name in sys.modules}
    sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
    yield importlib.import_module("accelerator")
    sys.path.pop(0)
    for name in names:
        sys.modules.pop(name, None)
    sys.modules.update(before)


def test_resnet18_has_the_weights_and_products_of_resnet18(benchmark):
    """11.2 million weights in its convolutions and 1.8 GMAC for 224 x 224 pixels, published for three channels."""
    layers = benchmark.resnet18(panels=1, size=224)[:-1]
    first = 7 * 7 * 64
    assert benchmark.weights(layers) + 2 * first == 11_166_912
    assert sum(layer.macs for layer in layers) + 2 * first * 112**2 == 1_813_561_344
    assert sum(layer.macs for layer in benchmark.resnet18(strided=False)) > 15 * sum(
        layer.macs for layer in benchmark.resnet18()
    )


@pytest.mark.parametrize("uneven", [False, True])
def test_a_sweep_has_the_share_that_it_says(benchmark, uneven):
    for share in (0.01, 0.2, 0.8):
        workload = benchmark.sweep(share, uneven, strided=True)
        vectors = sum(2 * node.n * node.d for node in workload.vectors)
        assert vectors / (vectors + benchmark.weights(workload.layers)) == pytest.approx(share, rel=0.03)
    assert benchmark.sweep(0.0, uneven, strided=True).vectors == ()


def test_codes_of_one_node_are_those_of_many(benchmark):
    batched, single = benchmark.nvsa(), benchmark.nvsa(batched=False)
    assert sum(node.n for node in batched.vectors) == sum(node.n for node in single.vectors)
    assert {node.n for node in single.vectors} == {4}


def test_every_step_of_the_ablation_is_no_worse_than_the_one_before(benchmark):
    for uneven in (False, True):
        found = benchmark.ablation(benchmark.sweep(0.1, uneven, strided=True))
        assert found.refined <= found.phase_two <= found.phase_one <= found.turns
        assert found.explored.cycles <= found.refined * 1.05
        assert found.plain > found.large


@pytest.mark.parametrize("section", ["designs", "devices", "exact", pytest.param("traced", marks=pytest.mark.slow)])
def test_sections_print_tables(benchmark, section):
    _, run = benchmark.SECTIONS[section]
    (*_, table) = run(True)
    rows = table.splitlines()
    assert len(rows) >= 5
    assert len({row.count("|") for row in rows}) == 1
