"""Every engine on a CUDA device, beside the CPU in float64; no more than a few numbers travel without being asked for.

Skipped where there is no device; what needs none of it is in test_elsewhere.py.
"""

import contextlib
import copy

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import derivable as dv
from derivable.core.diagnostics import DerivableError, UnsupportedError
from derivable.tensor.call import device_folds

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")
# The ends of a column, a count: what a check reads.
FEW = 16


class Travels(TorchDispatchMode):
    """Raises where more than a few numbers go from the device to the host."""

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        found = function(*args, **(kwargs or {}))
        source = next((x for x in reversed(args) if isinstance(x, torch.Tensor)), None)
        copies = ("aten::_to_copy", "aten::copy_", "aten::to")
        if function._schema.name in copies and source is not None and source.is_cuda and found.is_cpu:
            assert source.numel() <= FEW, f"{function} moves a tensor of shape {list(source.shape)} to the CPU"
        return found


def moved(value, device):
    if isinstance(value, torch.Tensor):
        found = value.detach().to(device)
        return found.requires_grad_(value.requires_grad)
    if isinstance(value, (list, tuple)):
        return type(value)(moved(x, device) for x in value)
    return value


def dense(value):
    return value.to_dense() if isinstance(value, torch.Tensor) and value.layout != torch.strided else value


def close(run, *operands, module=None, check_travels=True):
    """The same values and gradients, in float64, on both devices; results stay there.

    module  what `run` takes before the operands, if anything: a copy of it goes to the device
    """
    there = [moved(x, "cuda") for x in operands]
    here, copied = ([], []) if module is None else ([module], [copy.deepcopy(module).to("cuda")])
    expected = _graded(lambda *given: run(*here, *given), operands)
    with Travels() if check_travels else contextlib.nullcontext():
        found = _graded(lambda *given: run(*copied, *given), there)
    assert all(x.is_cuda for x in found)
    for x, y in zip(found, expected, strict=True):
        torch.testing.assert_close(x.cpu(), y, rtol=1e-9, atol=1e-9, equal_nan=True)


def _graded(run, operands):
    found = run(*operands)
    values = [dense(x) for x in (found if isinstance(found, (tuple, list)) else [found])]
    asked = [x for x in operands if isinstance(x, torch.Tensor) and x.requires_grad]
    if not asked:
        return [x.detach() for x in values]
    total = sum(
        (x.clamp(-1e3, 1e3) * (1 + torch.arange(x.numel(), device=x.device).reshape(x.shape))).sum() for x in values
    )
    return [*(x.detach() for x in values), *(dense(x) for x in torch.autograd.grad(total, asked))]


def uniform(*shape, seed=0, low=0.05, high=0.95, is_graded=True):
    numbers = np.random.default_rng(seed).uniform(low, high, shape)
    return torch.from_numpy(numbers).requires_grad_(is_graded)


def circuit():
    v = [dv.circuit.variables(f"v{k}")[0] for k in range(6)]
    return dv.circuit.compile((v[0] & v[1]) | dv.circuit.exactly_one(v[2:5]) & ~v[5])


@pytest.mark.parametrize("semiring", ["log", "real", "max_product"])
@pytest.mark.parametrize("batch", [(), (1,), (130,), (3, 5)])
def test_circuits(semiring, batch):
    module = circuit().to_torch(semiring)
    x = uniform(*batch, 6)
    close(lambda module, x: module(x.log() if semiring == "log" else x), x, module=module)
    if semiring == "real":
        close(lambda module, x, y: module(x, y), x, uniform(*batch, 6, seed=1), module=module)


@pytest.mark.parametrize("batch", [1, 130])
def test_a_circuit_in_a_cuda_graph(batch):
    """Recorded once, it computes with the weights that are there when it is replayed; in eager mode NaN is refused."""
    module = circuit().to_torch("log")
    assert module.explain().startswith("float32: kernels by Triton")
    weights = uniform(batch, 6).detach().log().cuda().requires_grad_()

    def graded():
        value = module(weights)
        return value.detach(), *torch.autograd.grad(value, weights, torch.ones_like(value))

    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        graded()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = graded()
    other = uniform(batch, 6, seed=7).detach().log()
    with torch.no_grad():
        weights.copy_(other)
    graph.replay()
    there = other.requires_grad_()
    value = module(there)
    for x, y in zip(found, (value.detach(), *torch.autograd.grad(value.sum(), there)), strict=True):
        torch.testing.assert_close(x.cpu(), y, rtol=1e-9, atol=1e-9)
    with pytest.raises(DerivableError, match="NaN"):
        module(torch.full_like(weights, torch.nan))


def test_second_derivatives_of_circuits():
    module = circuit().to_torch("real")

    def curvature(x):
        (gradient,) = torch.autograd.grad(module(x).sum(), x, create_graph=True)
        return gradient.square().sum(-1)

    close(curvature, uniform(4, 6))


def test_probabilistic_circuits():
    made = dv.circuit.ProbabilisticCircuit(circuit())
    made.logits[:] = np.random.default_rng(2).normal(size=made.num_parameters)
    data = torch.tensor([[1, 1, 0, 0, 1, 0], [0, 0, 1, 0, 0, 0], [-1, -1, 1, -1, 0, 0], [0, 0, 0, 0, 0, 1]])
    here, there = made.to_torch(), made.to_torch().to("cuda")
    expected = here(data)
    expected[:3].sum().backward()
    with Travels():
        found = there(data.cuda())
        found[:3].sum().backward()
    torch.testing.assert_close(found.cpu(), expected, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(there.logits.grad.cpu(), here.logits.grad, rtol=1e-9, atol=1e-9)


SUMS = "rel sum_2(a + b) = digit_1(a), digit_2(b)"


@pytest.mark.parametrize("provenance", ["exact", "minmaxprob", "topkproofs"])
def test_layers(provenance):
    digits = dv.categorical(range(4))
    layer = dv.nn.Logic(SUMS, {"digit_1": digits, "digit_2": digits}, {"sum_2": range(7)}, provenance)
    scores = uniform(5, 4), uniform(5, 4, seed=1)
    # Proofs are searched on the CPU; their probabilities are computed on the device.
    travels = provenance != "topkproofs"
    close(lambda layer, a, b: layer(a.softmax(-1), b.softmax(-1)), *scores, module=layer, check_travels=travels)
    if provenance == "exact":
        close(lambda layer, a, b: layer.log(a.softmax(-1), b.softmax(-1)), *scores, module=layer)


@pytest.mark.parametrize("provenance", ["exact", "minmaxprob", "topkproofs"])
def test_layers_of_samples_with_facts_of_their_own(provenance):
    text, reads = "rel answer(x + y) = read(0, x), read(1, y)", dv.varying()
    layer = dv.nn.Logic(text, {"read": reads}, {"answer": range(5)}, provenance)
    facts = [(0, 1), (1, 2)], [(0, 2), (0, 0), (1, 1)]

    def run(layer, a, b):
        return layer(read=[(facts[0], a), (facts[1], b)])

    close(run, uniform(2), uniform(3, seed=1), module=layer, check_travels=False)


def test_semantic_loss():
    a, b, c = (dv.circuit.variables(name)[0] for name in "abc")
    loss = dv.nn.SemanticLoss(dv.circuit.exactly_one([a, b, c]))
    close(lambda loss, p: loss(p.sigmoid()), uniform(4, 3), module=loss)


TENSORS = {
    "vector": ("sum(<i, r> in A) { i -> sum(<j, a> in r) a * X(j) }", {"A": 2, "X": 1}),
    "matrix": ("sum(<i, r> in A) { i -> sum(<j, a> in r) sum(<k, x> in Y(j)) { k -> a * x } }", {"A": 2, "Y": 2}),
    "sparse": ("sum(<i, r> in A) { i -> sum(<j, a> in r) sum(<k, b> in B(j)) { k -> a * b } }", {"A": 2, "B": 2}),
    "number": ("sum(<i, r> in A) sum(<j, a> in r) sum(<k, b> in B(j)) a * b", {"A": 2, "B": 2}),
    "both sides": (
        "sum(<i, r> in A) sum(<j, a> in r) { j -> 2.0 * a * (sum(<k, b> in r) b * X(k)) }",
        {"A": 2, "X": 1},
    ),
}


@pytest.mark.parametrize("name", TENSORS)
@pytest.mark.parametrize(("layout", "rows"), [("coo", 7), ("csr", 150)])
def test_tensors(name, layout, rows, monkeypatch):
    if rows > 100:
        monkeypatch.setattr(device_folds, "FEWEST", 1)
    text, inputs = TENSORS[name]
    kernel = dv.tensor.compile(dv.tensor.parse(text, inputs))
    rng = np.random.default_rng(0)
    patterns = {key: torch.from_numpy(rng.random((rows, rows)) < 3 / rows) for key in "AB"}
    made = {"A": (rows, rows), "B": (rows, rows), "X": (rows,), "Y": (rows, 5)}
    given = [uniform(*made[key], seed=k) for k, key in enumerate(inputs)]

    def run(*operands):
        values = {}
        for key, x in zip(inputs, operands):
            if key in patterns:
                x = (x * patterns[key].to(x.device)).to_sparse_coo()
                x = x.to_sparse_csr() if layout == "csr" else x
            values[key] = x
        found = kernel(**values)
        return torch.as_tensor(found) if not isinstance(found, torch.Tensor) else found

    # Where entries are is looked up on the CPU, once for each pattern.
    close(run, *given, check_travels=False)


def test_a_sparse_pattern_travels_once():
    text, inputs = TENSORS["vector"]
    kernel = dv.tensor.compile(dv.tensor.parse(text, inputs), backend="torch")
    a = (torch.rand(50, 50, device="cuda", dtype=torch.float64).relu_() * 0.5).to_sparse_csr()
    x = torch.rand(50, device="cuda", dtype=torch.float64)
    expected = kernel(A=a, X=x)
    with Travels():
        found = kernel(A=a, X=x)
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=0)
    torch.testing.assert_close(found, a.to_dense() @ x, rtol=1e-9, atol=1e-9)


def test_einstein_sums():
    einsum, x, y = dv.tensor.einsum, uniform(6, 5), uniform(5, 4, seed=1)
    close(lambda x, y: einsum("ij,jk->ik", x, y), x, y)
    close(lambda x, y: einsum("ij,jk->ik", x, y, semiring="min_plus"), x, y)
    with pytest.raises(DerivableError, match="cpu"):
        einsum("ij,jk->ik", x.cuda(), y)


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


FOLDS = {
    "reduce": lambda x: dv.parallel.reduce("add", x),
    "scan": lambda x: dv.parallel.scan("add", x),
    "scan back": lambda x: dv.parallel.scan("max", x, reverse=True),
    "histogram": lambda x: dv.parallel.reduce_by_index(
        torch.zeros(7, dtype=x.dtype, device=x.device), "add", torch.arange(len(x), device=x.device) % 7, x
    ),
    "segments": lambda x: dv.parallel.segment_reduce(
        "add", x, torch.tensor([0, 3, 3, len(x)], dtype=torch.int64, device=x.device)
    ),
}


@pytest.mark.parametrize("name", FOLDS)
def test_folds(name):
    try:
        FOLDS[name](torch.ones(5, device="cuda", dtype=torch.float64))
    except UnsupportedError as error:
        pytest.skip(f"refused: {error}")
    close(FOLDS[name], uniform(5000))


def test_memory_that_there_is_not_is_an_error_of_ours_and_the_process_goes_on():
    module = circuit().to_torch("log")
    huge = torch.zeros(1, 6, device="cuda").expand(1 << 36, 6)
    with pytest.raises(dv.DerivableError) as caught:
        module(huge)
    assert isinstance(caught.value, MemoryError)
    assert module(torch.full((2, 6), -0.7, device="cuda")).shape == (2, 1)
