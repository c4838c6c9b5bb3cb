"""Sparse tensors and folds on a CUDA device, beside the CPU in float64; what is not asked for does not travel.

Skipped where there is no device; what needs none of it is in test_elsewhere.py.
"""

import numpy as np
import pytest
import torch

import derivable as dv
from derivable.core.diagnostics import DerivableError, UnsupportedError
from derivable.tensor.call import device_folds
from device.on_cuda import Travels, close, needs_cuda, uniform

pytestmark = needs_cuda

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
    if layout == "csr":
        # By kernels, which take a second each to compile.
        monkeypatch.setattr(device_folds, "FEWEST", 1 if name in ("vector", "matrix") else 1 << 40)
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
