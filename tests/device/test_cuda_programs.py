"""Datalog, layers that run it, and vectors on a CUDA device, beside the CPU in float64.

Skipped where there is no device; what needs none of it is in test_elsewhere.py.
"""

import numpy as np
import pytest
import torch

import derivable as dv
from derivable.core.diagnostics import UnsupportedError
from device.on_cuda import close, needs_cuda, uniform

pytestmark = needs_cuda

MODELS = ("hrr", "fhrr", "map", "bsc")


@pytest.mark.parametrize("model", MODELS)
def test_vectors(model):
    generator = torch.Generator().manual_seed(0)
    x, y = (dv.vsa.random(3, 96, model=model, generator=generator) for _ in range(2))
    x, y = (z.double() if z.dtype == torch.float32 else z for z in (x, y))
    for operation in (dv.vsa.bind, dv.vsa.unbind, dv.vsa.bundle, dv.vsa.similarities):
        found = operation(x.cuda(), y.cuda(), model=model)
        assert found.is_cuda
        torch.testing.assert_close(found.cpu(), operation(x, y, model=model), rtol=1e-6, atol=1e-6)
    for path in ("fft", "direct") if model == "hrr" else ():
        close(lambda x, y, path=path: dv.vsa.convolve(x, y, path=path), uniform(40, 33), uniform(1, 33, seed=1))


GRAPH = """
    type edge(i32, i32)
    rel path(x, y) = edge(x, y)
    rel path(x, z) = path(x, y), edge(y, z)
    rel degree(x, n) = n := count(y: path(x, y))
    query path
    query degree
"""


@pytest.mark.parametrize("provenance", ["unit", "minmaxprob", "max_product"])
def test_datalog(provenance):
    rng = np.random.default_rng(0)
    edges = np.unique(rng.integers(0, 60, (120, 2)), axis=0)
    facts = {"edge": edges}
    if provenance != "unit":
        facts = {"edge": dv.independent(list(map(tuple, edges.tolist())), rng.uniform(0.1, 0.9, len(edges)).tolist())}
    program = dv.Program(GRAPH if provenance == "unit" else GRAPH.replace("query degree", ""))
    here = program.run(facts, provenance)
    there = program.run(facts, provenance, device="cuda")
    for name in ("path", "degree") if provenance == "unit" else ("path",):
        found, expected = there[name], here[name]
        order, other = (np.lexsort([np.asarray(c) for c in view.columns][::-1]) for view in (found, expected))
        for x, y in zip(found.columns, expected.columns):
            np.testing.assert_array_equal(np.asarray(x)[order], np.asarray(y)[other])
        if provenance != "unit":
            tags = [np.asarray(view.tags, np.float64) for view in (found, expected)]
            np.testing.assert_allclose(tags[0][order], tags[1][other], rtol=1e-9)


def test_facts_on_the_device():
    edges = torch.tensor([[0, 1], [1, 2], [2, 3]], device="cuda")
    program = dv.Program(GRAPH)
    assert len(program.run({"edge": edges}, device="cuda")["path"]) == 6
    with pytest.raises(UnsupportedError, match="is on cuda:0"):
        program.run({"edge": edges})


def test_layers_of_proofs():
    """Proofs are searched on the CPU; their probabilities are computed on the device."""
    digits = dv.categorical(range(4))
    text = "rel sum_2(a + b) = digit_1(a), digit_2(b)"
    layer = dv.nn.Logic(text, {"digit_1": digits, "digit_2": digits}, {"sum_2": range(7)}, "topkproofs")

    def run(layer, a, b):
        return layer(a.softmax(-1), b.softmax(-1))

    close(run, uniform(5, 4), uniform(5, 4, seed=1), module=layer, check_travels=False)


@pytest.mark.parametrize("provenance", ["exact", "minmaxprob", "topkproofs"])
def test_layers_of_samples_with_facts_of_their_own(provenance):
    text, reads = "rel answer(x + y) = read(0, x), read(1, y)", dv.varying()
    layer = dv.nn.Logic(text, {"read": reads}, {"answer": range(5)}, provenance)
    facts = [(0, 1), (1, 2)], [(0, 2), (0, 0), (1, 1)]

    def run(layer, a, b):
        return layer(read=[(facts[0], a), (facts[1], b)])

    close(run, uniform(2), uniform(3, seed=1), module=layer, check_travels=False)
