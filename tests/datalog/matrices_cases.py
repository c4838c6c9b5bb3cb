"""Matrices by Triton's interpreter and by NumPy: run by `test_matrices.py` in a process of its own."""

import numpy as np
import torch

import derivable as dv
from derivable.datalog.apm import bit_matrices
from derivable.datalog.kernels import device_bits as bits

RNG = np.random.default_rng(0)
HERE = torch.device("cpu")
# Rows of some hundred bits are several blocks then.
bits.WORDS = 16


def both(call):
    """What a call gives with Triton's kernels and without."""
    found = []
    kernels = bits.has_kernels
    assert kernels(HERE)
    for has_kernels in (kernels, lambda _: False):
        bits.has_kernels = has_kernels
        found.append(call())
    bits.has_kernels = kernels
    return found


def matrix(rows, columns, density):
    there = RNG.random((rows, columns)) < density
    first, second = map(torch.from_numpy, there.nonzero())
    return there, bits.fill(first, second, rows, bit_matrices.width_of(columns))


def check_operations(rows, columns, density):
    there, words = matrix(rows, columns, density)
    for total in both(lambda: bits.counts(words).sum()):
        assert int(total) == there.sum()
    ends = bits.counts(words).view(-1).cumsum(0)
    for found in both(lambda: bits.pairs(words, ends, int(ends[-1]))):
        np.testing.assert_array_equal(torch.stack(found).numpy(), np.stack(there.nonzero()))
    width = bit_matrices.width_of(rows)
    for turned in both(lambda: bits.transposed(words, columns, width)):
        np.testing.assert_array_equal(bits._unpacked(turned)[:, :rows], there.T)
    sizes = RNG.integers(0, 20, rows)
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    sources = RNG.integers(0, rows, offsets[-1])
    start, stop = rows // 3, rows
    wanted = there.copy()
    for row in range(start, stop):
        wanted[row] |= there[sources[offsets[row] : offsets[row + 1]]].any(0)

    def included():
        into = words.clone()
        bits.include(into, words, torch.from_numpy(offsets), torch.from_numpy(sources), start, stop)
        return bits._unpacked(into)[:, :columns]

    for found in both(included):
        np.testing.assert_array_equal(found, wanted)


def test_operations():
    for rows, columns, density in ((1, 1, 1.0), (35, 140, 0.3), (3, 600, 0.05), (5, 40, 0.0)):
        check_operations(rows, columns, density)


CLOSURE = "type e(i64, i64)\nrel p(x, y) = e(x, y)\nrel p(x, z) = p(x, y), e(y, z)"
SAME = "type e(i64, i64)\nrel p(x, y) = e(a, x), e(a, y), x != y\nrel p(x, y) = e(a, x), p(a, b), e(b, y)"


def test_recursions():
    """By passes, level by level as on a device, by components on the host, and in rounds."""
    pairs = RNG.integers(0, 12, (13, 2))
    kept = bit_matrices.LOOK, bit_matrices.EDGE, bit_matrices.LAUNCH
    ways = ((CLOSURE, 1.0, 0.0, "passes"), (CLOSURE, 0.0, 0.0, "levels"), (CLOSURE, 0.0, 1e3, "host"))
    for text, look, launch, way in (*ways, (SAME, 0.0, 0.0, "rounds")):
        bit_matrices.LOOK, bit_matrices.EDGE, bit_matrices.LAUNCH = look, 0.0, launch
        program = dv.Program(text)
        found = program.run({"e": pairs}, device="torch:cpu")
        assert set(found["p"]) == set(program.run({"e": pairs})["p"])
        assert way in found.explain()
    bit_matrices.LOOK, bit_matrices.EDGE, bit_matrices.LAUNCH = kept


def test_tags():
    nodes, edges = 16, 24
    pairs = np.unique(RNG.integers(0, nodes, (edges, 2)), axis=0)
    facts = {"e": list(zip(RNG.uniform(0.1, 0.9, len(pairs)).tolist(), map(tuple, pairs.tolist())))}
    for text, provenance in ((CLOSURE, "minmaxprob"), (SAME, "max_product")):
        program = dv.Program(text)
        found = program.run(facts, provenance=provenance, device="torch:cpu")
        assert "matrices of tags" in found.explain()
        wanted = dict(program.run(facts, provenance=provenance)["p"].items())
        found = dict(found["p"].items())
        assert set(found) == set(wanted)
        np.testing.assert_allclose([found[key] for key in wanted], list(wanted.values()), rtol=1e-12)


def test_the_comparison_can_fail():
    include, transpose = (bits._kernel(name) for name in ("include_rows", "transpose_bits"))
    kernel, include.function = include.function, transpose.function
    try:
        check_operations(35, 140, 0.3)
    except Exception:
        include.function = kernel
        return
    raise AssertionError("other kernels gave the same")


if __name__ == "__main__":
    for test in (test_operations, test_recursions, test_tags, test_the_comparison_can_fail):
        test()
        print(test.__name__)
