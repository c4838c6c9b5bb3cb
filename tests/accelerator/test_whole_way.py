"""The whole way of a model, from the trace to a run of its program, on models drawn at random."""

import numpy as np
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import derivable as dv

from . import integers, random_models


@settings(max_examples=12, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(st.data())
def test_random_models(tmp_path_factory, data):
    check(
        lambda low, high: data.draw(st.integers(low, high)),
        lambda items: data.draw(st.sampled_from(items)),
        tmp_path_factory.mktemp("design"),
    )


def check(integer, choice, directory):
    model, picture = random_models.model(integer, choice)
    precision = choice(["int8", "int8/int4", "int4"])
    sides = choice([{}, {"heights": [4]}, {"widths": [4]}, {"heights": [8], "widths": [4]}])
    made = dv.accelerator.design(model, picture, pes=choice([32, 64, 128]), precision=precision, **sides)

    with torch.no_grad():
        wanted = model.double()(picture.double())
    wanted = [tensor.numpy() for tensor in (wanted if isinstance(wanted, tuple) else (wanted,))]
    for found, expected in zip(dv.accelerator.evaluate(made.graph, [picture.numpy()]), wanted, strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9)

    made.save(directory)
    run = dv.accelerator.load(directory).simulate(picture, backend="python")
    assert run.cycles == run.modelled
    lowered = made.lowered
    exact = integers.evaluate(lowered.graph, lowered.formats, {"x": picture.numpy()})
    for name, found, expected in zip(lowered.graph.outputs, run.outputs, wanted, strict=True):
        assert found.shape == expected.shape
        np.testing.assert_array_equal(np.rint(found / lowered.formats[name].scale).astype(np.int64), exact[name])
        if precision == "int8":
            assert np.abs(found - expected).max() <= 0.2 * max(np.abs(expected).max(), 0.1)
