"""Run by test_triton.py in a process of its own, with Triton's interpreter: the same kernels, beside the IR's."""

import copy

import numpy as np
import torch

from derivable.algebra.expr.functions import less
from derivable.kernel.build import Builder
from derivable.kernel.emit_triton import compile_triton
from derivable.kernel.interpret import interpret
from kernel import kernels


def compare(kernel, arguments, programs=1):
    """Raise unless Triton leaves the same arrays as the interpreter of the IR."""
    theirs = copy.deepcopy(arguments)
    interpret(kernel, *theirs)
    tensors = [torch.from_numpy(a.copy()) if isinstance(a, np.ndarray) else a for a in arguments]
    compile_triton(kernel)(programs, *tensors)
    for ours, expected in zip(tensors, theirs):
        if isinstance(expected, np.ndarray):
            np.testing.assert_allclose(ours.numpy(), expected, rtol=1e-12, atol=0)


def scan_of_ragged_segments(lanes):
    """An inclusive scan of linear functions over segments of every size, masked lines at their ends."""
    k = Builder("scan", lanes)
    start, stop, offsets = k.scalar("start"), k.scalar("stop"), k.array("offsets", "int64")
    values = [k.array(f"v{i}", "float64") for i in range(2)]
    out = [k.array(f"o{i}", "float64") for i in range(2)]
    with k.loop("s", start, stop, parallel=True) as s:
        row, tail = k.load(offsets, s, "row"), k.load(offsets, s + 1, "tail")
        carry = k.registers("c", ("float64", "float64"))
        for register, value in zip(carry, kernels.LINEAR.neutral):
            k.spread(register, value)
        with k.while_(less(row, tail)):
            x = k.registers("x", ("float64", "float64"))
            for register, array, fill in zip(x, values, kernels.LINEAR.neutral):
                k.load_line(register, array, row, count=tail - row, fill=fill)
            k.scan_line(x, kernels.LINEAR)
            k.set(x, kernels.combined(kernels.LINEAR, carry, x))
            for register, array in zip(x, out):
                k.store_line(array, row, register, count=tail - row)
            for register, line in zip(carry, x):
                k.last_lane(register, line)
            k.set(row, row + lanes)
    sizes = [0, 1, 2, lanes - 1, lanes, lanes + 1, 0, 3 * lanes + 5, 7]
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    rng = np.random.default_rng(4)
    rows = [rng.normal(size=offsets[-1]) for _ in range(2)]
    return k.kernel(), (0, len(sizes), offsets, *rows, *(np.zeros(offsets[-1]) for _ in range(2)))


def test_kernels():
    compare(*kernels.segment_sums())
    compare(*kernels.lines(returns=False))
    compare(*kernels.lines(backwards=True, returns=False))
    compare(*kernels.dot_of_lines(8))
    compare(*kernels.steps())
    for programs in (1, (3, 2), (2, 1)):
        compare(*kernels.places_of_lanes(), programs=programs)
    for lanes in (8, 64):
        compare(*kernels.positions(lanes))


def test_scans():
    for lanes in (8, 64):
        for programs in (1, 4):
            compare(*scan_of_ragged_segments(lanes), programs=programs)


def test_the_comparison_can_fail():
    kernel, arguments = kernels.segment_sums()
    broken, _ = kernels.segment_sums(factor=2.0)
    tensors = [torch.from_numpy(a.copy()) if isinstance(a, np.ndarray) else a for a in arguments]
    compile_triton(broken)(1, *tensors)
    interpret(kernel, *arguments)
    try:
        np.testing.assert_allclose(tensors[-1].numpy(), arguments[-1])
    except AssertionError:
        return
    raise AssertionError("a wrong kernel was not noticed")


if __name__ == "__main__":
    for name, test in list(globals().items()):
        if name.startswith("test_"):
            test()
            print(name)
