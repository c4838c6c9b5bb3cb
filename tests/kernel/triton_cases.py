"""Run by test_triton.py in a process of its own, with Triton's interpreter: the same kernels, beside the IR's."""

import copy

import numpy as np
import torch

from derivable.algebra import expr
from derivable.algebra.expr.functions import less
from derivable.algebra.monoids import operator
from derivable.kernel.build import Builder
from derivable.kernel.emit_triton import compile_triton
from derivable.kernel.interpret import interpret
from derivable.kernel.schedule import Schedule
from derivable.parallel.scan_kernels import scan_back_kernel, scan_kernel
from kernel import kernels
from parallel import element_oracle as reference


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


def test_users_operators():
    """Masked scans and their reverse rules, of ragged segments, against the reference in NumPy."""
    satadd = operator(lambda a, b: expr.minimum(a + b, 3.0), neutral=0.0).typed(("float32",))
    linear = operator(lambda f, g: (f[0] * g[0], f[1] * g[0] + g[1]), neutral=(1.0, 0.0)).typed(("float64",) * 2)
    rng, schedule = np.random.default_rng(5), Schedule(lanes=16, masked=True)
    offsets = np.cumsum([0, 0, 1, 2, 15, 16, 17, 0, 53, 7])
    for op in (satadd, linear):
        for reverse in (False, True):
            values = [rng.uniform(0.1, 1.2, (offsets[-1], 1, 1)).astype(dtype) for dtype in op.leaf_dtypes]
            adjoints = [rng.normal(size=leaf.shape).astype(leaf.dtype) for leaf in values]
            results = reference.scan(op, values, reverse=reverse, offsets=offsets)
            gradients = reference.scan_vjp(op, adjoints, values, reverse=reverse, offsets=offsets)
            scan = compile_triton(scan_kernel(op, schedule, True, reverse))
            back = compile_triton(scan_back_kernel(op, schedule, True, reverse))
            given, pulled, made = ([torch.tensor(x.ravel()) for x in part] for part in (values, adjoints, results))
            found, answers = ([torch.zeros_like(x) for x in given] for _ in range(2))
            scan(4, 0, len(offsets) - 1, torch.tensor(offsets), *given, *found)
            back(4, 0, len(offsets) - 1, torch.tensor(offsets), *pulled, *given, *made, *answers)
            for mine, other in zip((*found, *answers), (*results, *gradients)):
                tolerance = 1e-5 if mine.dtype == torch.float32 else 1e-12
                np.testing.assert_allclose(mine.numpy(), other.ravel(), rtol=tolerance, atol=tolerance)


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
