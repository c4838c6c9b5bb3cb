"""The test cases of the thesis on derivatives of reduce-by-index and scan (its chapter 8), written down.

Inputs are small whole numbers, so float32 is exact; results and adjoints were computed by hand. Every adjoint is also
checked against the Jacobian that forward mode gives.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest

import derivable as dv
from parallel.array_libraries import LIBRARIES, jacobian_forwards
from parallel.operator_cases import crossing, linear, linear_six, thesis_argmax

INF = float("inf")


@dataclass
class Case:
    """inputs -> results, and adjoints of the float results -> adjoints of the inputs."""

    name: str
    program: Callable
    inputs: list
    results: list
    adjoints: list
    expected: list


def check(library, case: Case) -> None:
    inputs = [np.array(value, np.float32) for value in case.inputs]
    adjoints = [np.array(value, np.float32) for value in case.adjoints]
    results = library.run(case.program, inputs)
    assert len(results) == len(case.results)
    for found, wanted in zip(results, case.results):
        np.testing.assert_array_equal(found, wanted)
    pulled = library.pull(case.program, inputs, adjoints)
    for found, wanted, value in zip(pulled, case.expected, inputs):
        assert found.dtype == np.float32
        np.testing.assert_array_equal(found, np.array(wanted).reshape(value.shape))
    jacobian = jacobian_forwards(library, case.program, inputs)
    flat = np.concatenate([adjoint.ravel() for adjoint in adjoints])
    np.testing.assert_array_equal(flat @ jacobian, np.concatenate([part.ravel() for part in pulled]))


def saturated_add(a, b):
    return dv.where(15.0 - a < b, 15.0, a + b)


SATURATED = dv.parallel.operator(saturated_add, neutral=0.0)
ARGMAX = dv.parallel.operator(thesis_argmax, neutral=(-INF, 2**30))
CROSSING = dv.parallel.operator(crossing, neutral=(0.0, 1.0))


def by_index(op, indices):
    """A program on the leaves of the destination, then those of the values."""

    def program(*leaves):
        count = len(leaves) // 2
        if count == 1:
            return dv.parallel.reduce_by_index(leaves[0], op, like(leaves[0], indices), leaves[1])
        return dv.parallel.reduce_by_index(leaves[:count], op, like(leaves[0], indices), leaves[count:])

    return program


def argmax_by_index(indices, first_positions, positions):
    def program(destination, values):
        return dv.parallel.reduce_by_index(
            (destination, like(destination, first_positions)),
            ARGMAX,
            like(destination, indices),
            (values, like(destination, positions)),
        )

    return program


def like(array, integers):
    """int32 integers in the library of `array`, which both libraries have by default in JAX."""
    made = np.array(integers, np.int32)
    if type(array).__module__.startswith("torch"):
        import torch

        return torch.from_numpy(made)
    import jax.numpy as jnp

    return jnp.asarray(made)


def used_twice(destination, values):
    """Statements before and after; adjoints from both uses of each input accumulate."""
    histogram = dv.parallel.reduce_by_index(destination * destination, "add", like(values, [0, 0, 1]), values * 3)
    return histogram + values.sum() + destination


def histogram_of_a_histogram(destination, values):
    first = dv.parallel.reduce_by_index(destination, "max", like(values, [0, 0, 1]), values)
    return dv.parallel.reduce_by_index(destination, "mul", like(values, [1, 1]), first)


BY_INDEX = [
    # Bucket 1: 3 + 2. Bucket 2: 14 + 3 saturates, bucket 3 is full, bucket 4: 1 + 6 + 9 saturates at the last.
    # Bucket 5: 6 + 9 is exactly 15 and saturates not. Index -1 and 7 are no buckets.
    Case(
        "saturated add",
        by_index(SATURATED, [0, 0, 1, 2, 4, 4, -1, 7, 3, 5]),
        [[0, 3, 14, 15, 1, 6], [5, 4, 2, 3, 6, 9, 100, 100, 2, 9]],
        [[9, 5, 15, 15, 15, 15]],
        [[1, 2, 3, 4, 5, 6]],
        [[1, 2, 0, 0, 0, 6], [1, 1, 2, 0, 0, 0, 0, 0, 0, 6]],
    ),
    # Bucket 0: two equal maxima among the values, the smaller position wins. Bucket 1: equal to the destination, whose
    # position is larger. Bucket 2: an ordinary maximum. Bucket 3: the destination's.
    Case(
        "argmax",
        argmax_by_index([0, 0, 1, 1, 2, 2, 5, -2, 3], [10, 11, 12, 13], range(9)),
        [[3, 1, 5, 8], [4, 4, 0, 1, 7, 6, 9, 9, 2]],
        [[4, 1, 7, 8], [0, 3, 4, 13]],
        [[2, 3, 5, 7]],
        [[0, 0, 0, 7], [2, 0, 0, 3, 5, 0, 0, 0, 0]],
    ),
    # The maximum in the destination; equal to the destination; tied values: the first of all takes the adjoint.
    Case(
        "max",
        by_index("max", [0, 0, 1, 1, 2, 9, -1]),
        [[6, 2, 4, 0], [5, 6, 7, 7, 3, 8, 8]],
        [[6, 7, 4, 0]],
        [[1, 2, 3, 4]],
        [[1, 0, 3, 4], [0, 0, 2, 0, 0, 0, 0]],
    ),
    # No zero; a zero in the destination; one in the values; one in each; two in the values; an empty bucket.
    Case(
        "mul",
        by_index("mul", [0, 0, 1, 1, 2, 2, 2, 3, 4, 4, 4, 8]),
        [[2, 0, 3, 0, 5, 1], [3, 4, 5, 6, 7, 0, 2, 0, 0, 0, 9, 100]],
        [[24, 0, 0, 0, 0, 1]],
        [[1, 2, 3, 4, 5, 6]],
        [[12, 60, 0, 0, 0, 6], [8, 6, 0, 0, 0, 126, 0, 0, 0, 0, 0, 0]],
    ),
    Case(
        "doubly vectorised mul",
        by_index("mul", [0, 1, 0]),
        [
            [[[1, 2], [3, 0]], [[2, 2], [2, 2]]],
            [[[2, 3], [4, 5]], [[1, 0], [3, 1]], [[5, 0], [2, 7]]],
        ],
        [[[[10, 0], [24, 0]], [[2, 0], [6, 2]]]],
        [[[[1, 2], [3, 4]], [[5, 6], [7, 8]]]],
        [
            [[[10, 0], [24, 140]], [[5, 0], [21, 8]]],
            [[[5, 0], [18, 0]], [[10, 12], [14, 16]], [[2, 12], [36, 0]]],
        ],
    ),
    # Bucket 0: (1, 3) (4, 7) (6, 9): 1*7*9 + 4*3*9 + 6*3*7 = 297 and 189.
    Case(
        "crossing tuples",
        by_index(CROSSING, [0, 1, 0]),
        [[1, 2], [3, 1], [4, 5, 6], [7, 8, 9]],
        [[297, 21], [189, 8]],
        [[1, 2], [3, 4]],
        [[63, 16], [267, 42], [27, 2, 21], [108, 8, 82]],
    ),
    Case(
        "adjoints accumulate",
        used_twice,
        [[1, 2], [1, 2, 3]],
        [[17, 21]],
        [[1, 2]],
        [[3, 10], [6, 6, 9]],
    ),
    # max(4, 3, 7) = 7 and max(5, 2) = 5; then 4 and 5 * 7 * 5.
    Case(
        "a fold of a fold",
        histogram_of_a_histogram,
        [[4, 5], [3, 7, 2]],
        [[4, 175]],
        [[1, 2]],
        [[1, 2 * (7 * 5 + 5 * 7)], [0, 2 * 5 * 5, 0]],
    ),
]


@pytest.mark.parametrize("library", LIBRARIES, ids=repr)
@pytest.mark.parametrize("case", BY_INDEX, ids=lambda case: case.name)
def test_reduce_by_index(case, library):
    check(library, case)


@pytest.mark.parametrize("library", LIBRARIES, ids=repr)
@pytest.mark.parametrize("op", ["add", "mul", "max", "min", SATURATED, CROSSING], ids=str)
def test_no_values_and_no_buckets_for_them(op, library):
    """All indices outside: the destination as it is, and its adjoint too; and without any values."""
    leaves = 2 if op is CROSSING else 1
    for values, indices in (([7, 0, 2], [-1, 3, 1000000]), ([], [])):
        check(
            library,
            Case(
                "outside",
                by_index(op, indices),
                [[0, 1, 2]] * leaves + [values] * leaves,
                [[0, 1, 2]] * leaves,
                [[3, 4, 5]] * leaves,
                [[3, 4, 5]] * leaves + [[0] * len(values)] * leaves,
            ),
        )


LINEAR = dv.parallel.operator(linear, neutral=(1.0, 0.0))
LINEAR_SIX = dv.parallel.operator(linear_six, neutral=(0.0, 0.0, 1.0, 0.0, 0.0, 1.0))
MIXED = dv.parallel.operator(lambda a, b: (a[0] + b[0], a[1] * b[1], dv.maximum(a[2], b[2])), neutral=(0.0, 1.0, -INF))


def product_of_tuples(size):
    def function(a, b):
        rows = range(size)
        return tuple(sum(a[size * i + k] * b[size * k + j] for k in rows) for i in rows for j in rows)

    return dv.parallel.operator(function, neutral=tuple(np.eye(size).ravel().tolist()))


def scanned(op, **options):
    def program(*leaves):
        return dv.parallel.scan(op, leaves[0] if len(leaves) == 1 else leaves, **options)

    return program


def entry_by_entry(matrices):
    """[matrix, i, j] as one list per entry."""
    return np.array(matrices).reshape(len(matrices), -1).T.tolist()


TWO = [[[1, 2], [3, 4]], [[0, 1], [1, 0]], [[2, 0], [1, 1]]]
TWO_PREFIXES = [[[1, 2], [3, 4]], [[2, 1], [4, 3]], [[5, 1], [11, 3]]]
TWO_ADJOINTS = [[[1, 1], [1, 1]], [[0, 0], [0, 0]], [[1, 2], [3, 4]]]
TWO_EXPECTED = [[[4, 3], [8, 7]], [[20, 24], [28, 34]], [[14, 20], [10, 14]]]

SCANS = [
    Case("mul", scanned("mul"), [[2, 3, 4]], [[2, 6, 24]], [[1, 1, 1]], [[16, 10, 6]]),
    Case("mul, one zero", scanned("mul"), [[2, 0, 4, 5]], [[2, 0, 0, 0]], [[1, 1, 1, 1]], [[1, 50, 0, 0]]),
    Case("mul, two zeros", scanned("mul"), [[3, 0, 2, 0, 5]], [[3, 0, 0, 0, 0]], [[1] * 5], [[1, 9, 0, 0, 0]]),
    Case("exclusive mul", scanned("mul", exclusive=True), [[2, 3, 4]], [[1, 2, 6]], [[5, 1, 10]], [[31, 20, 0]]),
    Case("reverse mul", scanned("mul", reverse=True), [[2, 3, 4]], [[24, 12, 4]], [[1, 1, 1]], [[12, 12, 10]]),
    Case(
        "exclusive reverse mul",
        scanned("mul", exclusive=True, reverse=True),
        [[2, 3, 4]],
        [[12, 4, 1]],
        [[1, 10, 5]],
        [[0, 4, 13]],
    ),
    Case(
        "add, mul, max",
        scanned(MIXED),
        [[1, 2, 3], [2, 3, 4], [5, 1, 7]],
        [[1, 3, 6], [2, 6, 24], [5, 5, 7]],
        [[1, 10, 100], [1, 1, 1], [1, 10, 100]],
        [[111, 110, 100], [16, 10, 6], [11, 0, 100]],
    ),
    Case(
        "2x2 products as tuples",
        scanned(product_of_tuples(2)),
        *(entry_by_entry(part) for part in (TWO, TWO_PREFIXES, TWO_ADJOINTS, TWO_EXPECTED)),
    ),
    Case(
        "2x2 products as arrays",
        scanned(dv.parallel.matrix_product(2)),
        *([part] for part in (TWO, TWO_PREFIXES, TWO_ADJOINTS, TWO_EXPECTED)),
    ),
    # x -> 2x + 1, then 3x + 5, then 4x
    Case(
        "linear functions",
        scanned(LINEAR),
        [[2, 3, 4], [1, 5, 0]],
        [[2, 6, 24], [1, 8, 32]],
        [[0, 0, 1], [1, 1, 1]],
        [[12, 13, 14], [16, 5, 1]],
    ),
    Case(
        "linear functions in the plane",
        scanned(LINEAR_SIX),
        [[1, 5, 1], [2, 6, 1], [1, 2, 0], [2, 0, 1], [3, 1, 1], [4, 3, 1]],
        [[1, 7, 14], [2, 13, 21], [1, 2, 10], [2, 4, 14], [3, 10, 12], [4, 14, 18]],
        [[1, 0, 1], [1, 0, 2], [1, 0, 1], [1, 0, 0], [1, 0, 0], [1, 0, 1]],
        [[8, 2, 1], [10, 3, 2], [2, 4, 9], [4, 8, 23], [4, 6, 18], [4, 13, 40]],
    ),
    Case(
        "vectorised tuples",
        scanned(LINEAR),
        [[[2, 1], [3, 1], [4, 1]], [[1, 1], [5, 2], [0, 3]]],
        [[[2, 1], [6, 1], [24, 1]], [[1, 1], [8, 3], [32, 6]]],
        [[[0, 0], [0, 0], [1, 0]], [[1, 1], [1, 1], [1, 1]]],
        [[[12, 0], [13, 2], [14, 3]], [[16, 3], [5, 2], [1, 1]]],
    ),
    Case(
        "max with ties",
        scanned("max"),
        [[1, 3, 3, 2]],
        [[1, 3, 3, 3]],
        [[1, 10, 100, 1000]],
        [[1, 1110, 0, 0]],
    ),
    Case("saturated add", scanned(SATURATED), [[5, 8, 4, 1]], [[5, 13, 15, 15]], [[1] * 4], [[2, 1, 0, 0]]),
    # scan(mul)(x * x) * x
    Case(
        "values used before and after",
        lambda x: dv.parallel.scan("mul", x * x) * x,
        [[1, 2, 3]],
        [[1, 8, 108]],
        [[1, 1, 1]],
        [[235, 120, 108]],
    ),
    # scan(mul) of (1, 3, 6) is (1, 3, 18)
    Case(
        "a scan of a scan",
        lambda x: dv.parallel.scan("mul", dv.parallel.scan("add", x)),
        [[1, 2, 3]],
        [[1, 3, 18]],
        [[0, 0, 1]],
        [[18 + 6 + 3, 6 + 3, 3]],
    ),
    Case(
        "segmented mul",
        lambda x: dv.parallel.segmented_scan("mul", x, like(x, [0, 2, 2, 5])),
        [[2, 3, 4, 0, 6]],
        [[2, 6, 4, 0, 0]],
        [[1, 1, 1, 1, 1]],
        [[4, 2, 1, 28, 0]],
    ),
    Case(
        "segmented exclusive reverse add",
        lambda x: dv.parallel.segmented_scan("add", x, like(x, [0, 2, 2, 5]), exclusive=True, reverse=True),
        [[2, 3, 4, 0, 6]],
        [[3, 0, 6, 6, 0]],
        [[1, 2, 3, 4, 5]],
        [[0, 1, 0, 3, 7]],
    ),
]


@pytest.mark.parametrize("library", LIBRARIES, ids=repr)
@pytest.mark.parametrize("case", SCANS, ids=lambda case: case.name)
def test_scan(case, library):
    check(library, case)


REDUCTIONS = [
    Case("mul", lambda x: dv.parallel.reduce("mul", x), [[2, 3, 4]], [24], [2], [[24, 16, 12]]),
    Case("mul, one zero", lambda x: dv.parallel.reduce("mul", x), [[2, 0, 4]], [0], [3], [[0, 24, 0]]),
    Case("mul, two zeros", lambda x: dv.parallel.reduce("mul", x), [[2, 0, 0]], [0], [3], [[0, 0, 0]]),
    Case("max with ties", lambda x: dv.parallel.reduce("max", x), [[1, 7, 7]], [7], [3], [[0, 3, 0]]),
    Case("add of nothing", lambda x: dv.parallel.reduce("add", x), [[]], [0], [3], [[]]),
    Case(
        "2x2 products",
        lambda x: dv.parallel.reduce(dv.parallel.matrix_product(2), x),
        [TWO],
        [TWO_PREFIXES[2]],
        [TWO_ADJOINTS[2]],
        [[[[3, 2], [7, 6]], [[20, 24], [28, 34]], [[14, 20], [10, 14]]]],
    ),
    Case(
        "saturated add of segments",
        lambda x: dv.parallel.segment_reduce(SATURATED, x, like(x, [0, 2, 2, 5])),
        [[7, 8, 9, 6, 1]],
        [[15, 0, 15]],
        [[1, 2, 3]],
        [[1, 1, 0, 0, 0]],
    ),
    Case(
        "crossing tuples of segments",
        lambda a, b: dv.parallel.segment_reduce(CROSSING, (a, b), like(a, [0, 3, 3])),
        [[1, 4, 6], [3, 7, 9]],
        [[297, 0], [189, 1]],
        [[1, 5], [3, 5]],
        [[63, 27, 21], [267, 108, 82]],
    ),
]


@pytest.mark.parametrize("library", LIBRARIES, ids=repr)
@pytest.mark.parametrize("case", REDUCTIONS, ids=lambda case: case.name)
def test_reduce(case, library):
    check(library, case)


@pytest.mark.parametrize("case", BY_INDEX + SCANS + REDUCTIONS, ids=lambda case: case.name)
def test_adjoints_written_down_are_finite_differences(case):
    """The literal adjoints against central differences in float64, wherever no input sits at a corner."""
    library = LIBRARIES[0]
    inputs = [np.array(value, np.float64) for value in case.inputs]
    adjoints = [np.array(value, np.float64) for value in case.adjoints]

    def weighted(moved):
        results = [part for part in library.run(case.program, moved) if part.dtype.kind == "f"]
        return sum(np.sum(adjoint * part) for adjoint, part in zip(adjoints, results))

    corners = 0
    for k, value in enumerate(inputs):
        for place in np.ndindex(value.shape):
            slopes = []
            for low, high in ((-1e-5, 0.0), (0.0, 1e-5)):
                sums = []
                for step in (low, high):
                    moved = [other.copy() for other in inputs]
                    moved[k][place] += step
                    sums.append(weighted(moved))
                slopes.append((sums[1] - sums[0]) / (high - low))
            wanted = np.array(case.expected[k], float).reshape(value.shape)[place]
            if abs(slopes[0] - slopes[1]) > 1e-2:
                corners += 1
                assert min(slopes) - 1e-2 <= wanted <= max(slopes) + 1e-2
            else:
                assert abs(wanted - slopes[0]) < 1e-2
    assert corners == 0 or any(word in case.name for word in ("max", "min", "saturated"))
