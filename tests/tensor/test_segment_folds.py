"""Folds as kernels for devices: by the interpreter of the loop IR here, by Triton's in a process of its own."""

import numpy as np
import pytest
import torch

from derivable.algebra import semirings
from derivable.algebra.expr.generated import load_generated
from derivable.algebra.expr.nodes import Argument
from derivable.kernel import nodes as k
from derivable.kernel.emit_triton import emit_triton
from derivable.kernel.interpret import interpret
from derivable.tensor.call import device_folds, device_kernel
from derivable.tensor.call.device_folds import DeviceFold
from derivable.tensor.lower import segment_folds
from derivable.tensor.lower.segment_folds import Operand, SegmentFold
from tensor import fold_programs
from triton_process import printed_by

CPU = torch.device("cpu")


def interpreted(kernel, warps):
    """What launches a kernel: the interpreter of the IR, which has one program do the rounds of all."""

    def launch(programs, *arguments):
        interpret(kernel, *(x.detach().numpy().reshape(-1) if isinstance(x, torch.Tensor) else x for x in arguments))

    return launch


@pytest.fixture
def on_kernels(monkeypatch):
    monkeypatch.setattr(device_folds, "_compiled", interpreted)
    monkeypatch.setattr(device_folds, "FEWEST", 1)
    monkeypatch.setattr(device_kernel, "has_kernels", lambda device: fold_programs.IS_ON[0])


@pytest.mark.parametrize("rows", [3, 8])
@pytest.mark.parametrize("name", fold_programs.PROGRAMS)
def test_programs_and_two_derivatives(on_kernels, name, rows):
    assert fold_programs.compare(name, rows) > 0


@pytest.mark.parametrize("semiring", ["min_plus", "max_plus", "max_product", "log"])
def test_other_semirings(on_kernels, semiring):
    assert fold_programs.compare("vector", 6, semiring, is_graded=False) > 0
    # Derivatives of choices are torch's.
    assert fold_programs.compare("vector", 6, semiring) == 0


def product(rng, size, num_rows, counts, lanes):
    """y[s] = the sum over the items of s of a[item] x[row of the item]."""
    offsets = np.concatenate([[0], np.cumsum(counts)])
    rows = rng.integers(0, num_rows, offsets[-1])
    plus = semirings.get("real").typed("float64").plus
    value = Argument(0, "float64", "x0") * Argument(1, "float64", "x1")
    operands = Operand(None, int(offsets[-1]), None), Operand(rows, num_rows, lanes)
    fold = SegmentFold(operands, value, offsets, lanes, False, plus)
    return fold, [torch.from_numpy(rng.random(offsets[-1])), torch.from_numpy(rng.random((num_rows, lanes or 1)))]


@pytest.mark.parametrize("lanes", [None, 1, 3, 130])
def test_segments_of_every_length(on_kernels, monkeypatch, lanes):
    monkeypatch.setattr(segment_folds, "MOST_ITEMS", 40)
    monkeypatch.setattr(segment_folds, "MOST_IN_TURN", 3)
    rng = np.random.default_rng(0)
    forms = set()
    for counts in ([0, 1, 2, 0, 5], [1, 1, 1], [17, 0, 33], [300, 1, 2, 40], [0], [100] + [1] * 60):
        fold, (a, x) = product(rng, len(counts), 4, counts, lanes)
        x = x if lanes else x[:, 0]
        found = DeviceFold(fold, CPU)([a, x])
        terms = a.numpy().reshape(-1, *[1] * (x.ndim - 1)) * x.numpy()[fold.operands[1].rows]
        expected = np.zeros(tuple(found.shape))
        segment_of = np.repeat(np.arange(len(counts)), counts)
        np.add.at(expected, segment_of, terms)
        np.testing.assert_allclose(found.numpy(), expected, rtol=1e-12)
        adjoint = torch.from_numpy(rng.random(tuple(found.shape)))
        by_a, by_x = (DeviceFold(fold.pulled[k], CPU)([a, x, adjoint]).numpy() for k in (0, 1))
        of_items = adjoint.numpy()[segment_of]
        wanted = of_items * x.numpy()[fold.operands[1].rows]
        np.testing.assert_allclose(by_a, wanted if lanes is None else wanted.sum(1), rtol=1e-12)
        wanted = np.zeros(tuple(x.shape))
        np.add.at(wanted, fold.operands[1].rows, of_items * a.numpy().reshape(-1, *[1] * (x.ndim - 1)))
        np.testing.assert_allclose(by_x, wanted, rtol=1e-12)
        forms.add((fold.form, fold.parts is not None))
    expected_forms = {("segments", False), ("items", False), ("items", True), ("segments", True)}
    assert forms == ({("lanes", False), ("lanes", True)} if lanes else expected_forms)


def test_a_fold_as_a_loop():
    fold, _ = product(np.random.default_rng(0), 2, 3, [20, 40], None)
    assert str(fold.kernel(8)) == "\n".join(
        [
            "kernel fold_items(blocks: int64, tiles: int64, size: int64, longest: int64, width: int64, "
            "offsets: int64[], values0: float64[], rows1: int32[], values1: float64[], out: float64[])",
            "  lane = lanes",
            "  for segment in 0 .. blocks parallel",
            "    row = offsets[segment]",
            "    stop = offsets[segment + 1]",
            "    total = line 0.0",
            "    while row < stop",
            "      item = row + lane",
            "      is_there = item < stop",
            "      x0 = values0[item] where is_there else 0.0",
            "      row_1 = rows1[item] where is_there else 0",
            "      x1 = values1[row_1] where is_there else 0.0",
            "      x = where(is_there, x0 * x1, 0.0)",
            "      total = total + x",
            "      row = row + 8",
            "    total = scan (total) with (a + b) from (0.0)",
            "    out_at = segment + lane * 0",
            "    is_last = 6 < lane",
            "    out[out_at] where is_last = total",
        ]
    )


@pytest.mark.slow
def test_the_text_compiles_for_a_gpu_without_atomics():
    pytest.importorskip("triton")
    from triton import compile as compiled
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    pointers = {"int32": "*i32", "int64": "*i64", "float64": "*fp64"}
    for counts, lanes in (([1, 2], None), ([100, 200], None), ([3, 5], 64)):
        fold, _ = product(np.random.default_rng(0), 2, 5, counts, lanes)
        for each in (fold, *fold.pulled.values()):
            kernel = each.kernel(64)
            source = getattr(load_generated(emit_triton(kernel), kernel.name), kernel.name)
            signature = {p.name: pointers[p.dtype] if isinstance(p, k.Array) else "i32" for p in kernel.parameters}
            made = compiled(ASTSource(source, signature, {}), target=GPUTarget("cuda", 90, 32))
            assert "atom" not in made.asm["ptx"]


@pytest.mark.slow
def test_in_triton():
    assert printed_by("tensor/fold_programs.py").split() == [
        *fold_programs.IN_TRITON,
        "and",
        "a",
        "wrong",
        "kernel",
        "was",
        "noticed",
    ]
