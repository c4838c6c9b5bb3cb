"""The comparison models, against what follows from their definitions."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

import benchmark_modules
from derivable.accelerator.explore.schedule import Workload
from derivable.accelerator.operators.runtime import Layer, Vectors
from derivable.core.diagnostics import DomainError

models = benchmark_modules.load("comparison_models")
ROOFLINES, Dpu, Roofline, SystolicArray = models.ROOFLINES, models.Dpu, models.Roofline, models.SystolicArray

layers = st.builds(Layer, *[st.integers(1, 300)] * 3, repeats=st.integers(1, 3))
nodes = st.builds(Vectors, st.integers(1, 100), st.integers(1, 300))


def test_convolutions_on_a_plain_array_by_hand():
    found = SystolicArray(128, 128, lanes=64).convolutions(Vectors(10, 256))
    assert found == {
        "circulant": 10 * (256 + 128 + 1 - 2) * 2 * 2,
        "products": 10 * (256 + 128 + 256 - 2) * 2,
        "lanes": 10 * 256 * 256 // 64,
    }


@given(st.lists(layers, max_size=3), st.lists(nodes, max_size=3), st.sampled_from([0, 8]))
def test_a_plain_array_takes_the_best_way_for_each_node(some, others, lanes):
    array = SystolicArray(8, 16, lanes)
    expected = sum(array.layer(layer) for layer in some)
    expected += sum(min(array.convolutions(node).values()) for node in others)
    assert array.cycles(Workload(some, others)) == expected
    assert array.seconds(Workload(some, others)) == expected / 272e6
    assert expected * (8 * 16 + lanes) >= Workload(some, others).macs


def test_products_of_matrices_among_vectors_cost_what_layers_do():
    product = Layer(5, 40, 3)
    among, beside = Workload([], [product, Vectors(3, 16)]), Workload([product], [Vectors(3, 16)])
    for model in (SystolicArray(8, 16), Dpu()):
        assert model.seconds(among) == model.seconds(beside)


def test_a_plain_array_has_no_double_products():
    array = SystolicArray(8, 16)
    assert array.layer(Layer(5, 40, 3, products=2)) == array.layer(Layer(5, 40, 3))


@given(st.lists(layers, max_size=3), st.lists(nodes, max_size=3))
def test_a_dpu_is_no_faster_than_its_multipliers(some, others):
    dpu = Dpu()
    workload = Workload(some, others)
    assert dpu.cycles(workload) * 4 * 8 * 16 * 16 >= workload.macs


def test_a_dpu_is_full_where_sizes_divide():
    dpu = Dpu()
    assert dpu.layer(Layer(320, 32, 48)) * 8192 == 320 * 32 * 48
    assert dpu.vectors(Vectors(8, 64)) == 2 * 4 * 4
    assert dpu.seconds(Workload([Layer(320, 32, 48)])) == 60 / 300e6


def test_a_roofline_has_three_regimes():
    of = Roofline("of a thought", peak=1e9, bandwidth=1e9, launch=1e-3)
    dense = Layer(1000, 1000, 1000)
    assert of.seconds(Workload([dense])) == pytest.approx(3e-3 + 2.0)
    flat = Layer(10**6, 1, 1)
    assert of.seconds(Workload([flat])) == pytest.approx(3e-3 + 4 * (6 * 10**6 + 1) / 1e9)
    assert of.seconds(Workload([], [Vectors(1, 1)] * 5)) == pytest.approx(20e-3, rel=1e-3)
    assert of.seconds(Workload([flat]), width=2) < of.seconds(Workload([flat]))


def test_transforms_of_a_convolution():
    ((launches, flops, numbers),) = models.kernels(Workload([], [Vectors(3, 256)]))
    assert launches == 4
    assert flops == 3 * (3 * 2.5 * 256 * math.log2(256) + 3 * 256)
    assert numbers == 10 * 3 * 256


def test_processors_are_known_by_name():
    assert ROOFLINES.names() == ("nx", "rtx2080", "tx2", "xeon")
    assert ROOFLINES["rtx2080"].peak == pytest.approx(10.07e12, rel=1e-3)
    assert ROOFLINES["tx2"].peak == pytest.approx(0.666e12, rel=1e-3)
    with pytest.raises(DomainError, match="there is no processor 'rtx2081'"):
        ROOFLINES["rtx2081"]
