"""Equations (1) to (5) against SCALE-Sim, a column simulated register by register, and their laws."""

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from accelerator.column import convolution
from derivable.accelerator.operators import runtime
from derivable.accelerator.operators.runtime import Elementwise, Layer, Vectors
from derivable.core.diagnostics import DomainError

SCALE_SIM = json.loads((Path(__file__).parent / "scale_sim.json").read_text())
sizes = st.integers(1, 200)
layers = st.builds(Layer, sizes, sizes, sizes)
vectors = st.builds(Vectors, sizes, sizes)
arrays = st.tuples(st.integers(1, 40), st.integers(1, 40), st.integers(1, 16))


def cases(dataflow):
    return [case for short, *case in SCALE_SIM["cases"] if short == dataflow]


def test_layers_take_what_scale_sim_counts_and_one_cycle_more():
    for height, width, m, k, n, cycles in cases("ws"):
        assert runtime.layer_cycles(Layer(m, k, n), height, width, 1) - 1 == cycles, (height, width, m, k, n)


def test_stationary_sums_take_what_scale_sim_counts_and_leave_in_height_cycles_a_fold():
    for height, width, m, k, n, cycles in cases("os"):
        found = runtime.layer_cycles(Layer(m, k, n), height, width, 1, dataflow="output")
        assert found - 1 - height * -(-m // height) * -(-n // width) == cycles, (height, width, m, k, n)


def test_the_grid_of_scale_sim_has_several_folds_each_way():
    folds = {(min(-(-k // h), 2), min(-(-n // w), 2)) for h, w, _, k, n, _ in cases("ws")}
    assert folds == {(1, 1), (1, 2), (2, 1), (2, 2)}


def by_definition(a, b, correlation):
    d = len(a)
    return [sum(a[i] * b[(i - t if correlation else t - i) % d] for i in range(d)) for t in range(d)]


@pytest.mark.parametrize("correlation", [False, True])
@pytest.mark.parametrize(("height", "d"), [(1, 1), (1, 5), (3, 3), (4, 3), (4, 8), (4, 9), (8, 8), (5, 13)])
def test_a_column_convolves_in_the_cycles_of_equation_4(height, d, correlation):
    generator = np.random.default_rng(height * 100 + d)
    a, b = generator.integers(-8, 8, (2, d))
    found, cycles = convolution(a, b, height, correlation=correlation)
    assert found.tolist() == by_definition(a.tolist(), b.tolist(), correlation)
    passes = -(-d // height)
    assert cycles == passes * (runtime.column_cycles(height, d) + 1)  # the register at the input
    assert passes * runtime.column_cycles(height, d) == runtime.temporal_cycles(Vectors(1, d), height, 1, 1)


def test_values_of_the_equations_by_hand():
    assert runtime.layer_cycles(Layer(10, 9, 5), 4, 2, 2) == (8 + 2 + 10 - 2) * 2 * 3
    assert runtime.layer_cycles(Layer(10, 9, 5, products=2), 4, 2, 1) == (8 + 2 + 10 - 2) * 2 * 3
    assert runtime.layer_cycles(Layer(10, 9, 5), 4, 2, 2, dataflow="output") == (8 + 2 + 9 - 2) * 2 * 3
    assert runtime.layer_cycles(Layer(10, 9, 5), 4, 2, 2, folding="channels") == (8 + 4 + 10 - 2) * 3 * 2
    assert runtime.temporal_cycles(Vectors(7, 10), 4, 2, 2) == 2 * 3 * (12 + 10 - 1)
    assert runtime.temporal_cycles(Vectors(7, 10, products=2), 4, 2, 2) == 1 * 3 * (12 + 10 - 1)
    assert runtime.spatial_cycles(Vectors(7, 20), 4, 2, 2) == 7 * 2 * (12 + 20 - 1)
    assert runtime.spatial_cycles(Vectors(7, 20, products=2), 4, 2, 2) == 4 * 2 * (12 + 20 - 1)
    assert runtime.partial_sum_cycles(Layer(10, 9, 5), 4, 2, 3) == 1 * 3 * 2
    assert runtime.column_sum_cycles(Vectors(7, 20), 4, 2, 2) == 7 * 2 * 2
    assert runtime.column_sum_cycles(Vectors(7, 4), 4, 2, 2) == 0
    assert runtime.elementwise_cycles(Elementwise(65, 3), 64) == 6


@given(layers, arrays)
def test_more_sub_arrays_never_take_longer(layer, array):
    height, width, count = array
    for dataflow in ("weight", "output"):
        times = [runtime.layer_cycles(layer, height, width, c, dataflow=dataflow) for c in range(1, count + 1)]
        assert times == sorted(times, reverse=True)


@given(vectors, arrays)
def test_more_sub_arrays_never_take_vectors_longer(node, array):
    height, width, count = array
    for cycles in (runtime.temporal_cycles, runtime.spatial_cycles):
        times = [cycles(node, height, width, c) for c in range(1, count + 1)]
        assert times == sorted(times, reverse=True)


@given(layers, vectors, arrays)
def test_no_node_is_faster_than_its_multipliers(layer, node, array):
    height, width, count = array
    elements = height * width * count
    assert runtime.layer_cycles(layer, height, width, count) * elements >= layer.macs
    assert runtime.temporal_cycles(node, height, width, count) * elements >= node.macs
    assert runtime.spatial_cycles(node, height, width, count) * elements >= node.macs


@given(layers, vectors, st.lists(arrays, min_size=1, max_size=6))
def test_arrays_of_configurations_give_what_each_gives(layer, node, configurations):
    height, width, count = np.array(configurations).T
    for cycles, of in [
        (runtime.layer_cycles, layer),
        (runtime.partial_sum_cycles, layer),
        (runtime.temporal_cycles, node),
        (runtime.spatial_cycles, node),
        (runtime.column_sum_cycles, node),
    ]:
        expected = [cycles(of, *configuration) for configuration in configurations]
        assert cycles(of, height, width, count).tolist() == expected


def test_printed_forms():
    assert str(Layer(10, 9, 5)) == "layer[10, 9, 5]"
    assert str(Layer(10, 9, 5, repeats=3, products=2)) == "layer[10, 9, 5] x 3 two a multiplier"
    assert str(Vectors(4, 256)) == "vectors[4, 256]"
    assert str(Elementwise(64, 2)) == "elementwise[64] x 2"


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Layer(0, 1, 1), "m of Layer is 0, expected a positive integer"),
        (lambda: Vectors(1, 2.5), "d of Vectors is 2.5, expected a positive integer"),
        (lambda: Vectors(1, 2, products=3), "products of Vectors is 3, expected an integer from 1 to 2"),
    ],
)
def test_errors(make, message):
    with pytest.raises(DomainError) as caught:
        make()
    assert caught.value.message == message
