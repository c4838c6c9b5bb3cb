"""Cases of `tensor.py`: programs with names, and steps of training with their value and all gradients at once.

On the other side stands the loop that one would write by hand in Numba for the same numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numba
import numpy as np
import scipy.sparse as sp

import derivable as dv

M, V = dv.tensor.matrix, dv.tensor.vector
Case = tuple[str, dict[str, Callable[[], Any]]]
DIAGONAL = """
let d = sum(<i, r> in A) r in
let D = sum(<j, x> in d) { j, j -> x } in
sum(<i, r> in B) { i -> sum(<k, b> in r) b * D(k) }
"""
TF_IDF = """
let df = sum(<d, row> in A) sum(<w, c> in row) { w -> 1.0 } in
sum(<d, row> in A)
  let total = sum(<w, c> in row) c in
  { d -> sum(<w, c> in row) { w -> c / total * log(real(A_size_0) / df(w)) } }
"""
SMMM = "sum(<i, r> in A) sum(<k, a> in r) sum(<j, b> in B(k)) a * b"
FACTORS = "sum(<i, r> in A) sum(<j, m> in r) (m - sum(<k, u> in U(i)) u * W(j, k)) ** 2.0"
LOGISTIC = "sum(<i, r> in A) log(1.0 + exp(-(Y(i) * sum(<j, a> in r) a * X(j))))"


@numba.njit(cache=True, error_model="numpy")
def scaled_columns(
    offsets: np.ndarray, indices: np.ndarray, values: np.ndarray, by: np.ndarray, of: np.ndarray
) -> np.ndarray:
    """of [entry] times the sums by columns, at the columns `by` [entry]"""
    sums = np.zeros(len(offsets) - 1)
    for p in range(len(indices)):
        sums[np.uint32(indices[p])] += values[p]
    out = np.empty(len(by))
    for p in range(len(by)):
        out[p] = of[p] * sums[np.uint32(by[p])]
    return out


@numba.njit(cache=True, error_model="numpy")
def row_sums_at(
    offsets: np.ndarray, indices: np.ndarray, values: np.ndarray, rows: np.ndarray, count: int
) -> np.ndarray:
    """The sums by columns of a matrix, at each entry of another one with these offsets of rows."""
    sums = np.zeros(len(rows) - 1)
    for p in range(len(indices)):
        sums[np.uint32(indices[p])] += values[p]
    out = np.empty(count)
    for i in range(len(rows) - 1):
        for p in range(rows[i], rows[i + 1]):
            out[p] = sums[i]
    return out


@numba.njit(cache=True, error_model="numpy")
def tf_idf(offsets: np.ndarray, indices: np.ndarray, values: np.ndarray, words: int) -> np.ndarray:
    counts = np.zeros(words)
    for p in range(len(indices)):
        counts[np.uint32(indices[p])] += 1.0
    out = np.empty(len(values))
    for i in range(len(offsets) - 1):
        total = 0.0
        for p in range(offsets[i], offsets[i + 1]):
            total += values[p]
        for p in range(offsets[i], offsets[i + 1]):
            out[p] = values[p] / total * np.log((len(offsets) - 1) / counts[np.uint32(indices[p])])
    return out


@numba.njit(cache=True, error_model="numpy")
def factorisation(
    offsets: np.ndarray, indices: np.ndarray, values: np.ndarray, left: np.ndarray, right: np.ndarray
) -> tuple[float, np.ndarray, np.ndarray]:
    by_left, by_right, total = np.zeros_like(left), np.zeros_like(right), 0.0
    for i in range(len(offsets) - 1):
        for p in range(offsets[i], offsets[i + 1]):
            j = np.uint32(indices[p])
            difference = values[p]
            for k in range(left.shape[1]):
                difference -= left[i, k] * right[j, k]
            total += difference * difference
            slope = -2.0 * difference
            for k in range(left.shape[1]):
                by_left[i, k] += slope * right[j, k]
                by_right[j, k] += slope * left[i, k]
    return total, by_left, by_right


@numba.njit(cache=True, error_model="numpy")
def logistic(
    offsets: np.ndarray, indices: np.ndarray, values: np.ndarray, weights: np.ndarray, labels: np.ndarray
) -> tuple[float, np.ndarray]:
    out, total = np.zeros(len(weights)), 0.0
    for i in range(len(offsets) - 1):
        score = 0.0
        for p in range(offsets[i], offsets[i + 1]):
            score += values[p] * weights[np.uint32(indices[p])]
        power = np.exp(-labels[i] * score)
        total += np.log(1.0 + power)
        slope = -labels[i] * power / (1.0 + power)
        for p in range(offsets[i], offsets[i + 1]):
            out[np.uint32(indices[p])] += slope * values[p]
    return total, out


def named(name: str, A: sp.csr_array) -> Iterator[Case]:
    """Programs over a square matrix whose loops look something up that has a name."""
    with_B = {"A": M, "B": M}
    B = A[::-1].tocsr()
    diagonal = dv.tensor.compile(dv.tensor.parse(DIAGONAL, with_B), output="csr")
    yield (
        f"B @ diag(colsum A), {name}",
        {
            "derivable": lambda: diagonal(A=A, B=B),
            "SciPy": lambda: B @ sp.diags_array(A.sum(0)),
            "Numba": lambda: sp.csr_array(
                (scaled_columns(A.indptr, A.indices, A.data, B.indices, B.data), B.indices.copy(), B.indptr.copy()),
                shape=B.shape,
            ),
        },
    )
    own = dv.tensor.compile(dv.tensor.gradient(dv.tensor.parse(SMMM, with_B), "B", pattern="own"), output="csr")
    yield (
        f"SMMM by the entries of B, {name}",
        {
            "derivable": lambda: own(A=A, B=B),
            "Numba": lambda: sp.csr_array(
                (row_sums_at(A.indptr, A.indices, A.data, B.indptr, B.nnz), B.indices.copy(), B.indptr.copy()),
                shape=B.shape,
            ),
        },
    )


def texts(rows: int, words: int, in_each: int) -> Iterator[Case]:
    A = _rows_of(rows, words, in_each)
    A.data = np.ceil(np.abs(A.data))
    weighted = dv.tensor.compile(dv.tensor.parse(TF_IDF, {"A": M, "A_size_0": dv.tensor.index}), output="csr")
    yield (
        f"TF-IDF, {rows:,} texts with {in_each} of {words:,} words",
        {
            "derivable": lambda: weighted(A=A),
            "Numba": lambda: sp.csr_array(
                (tf_idf(A.indptr, A.indices, A.data, words), A.indices.copy(), A.indptr.copy()), shape=A.shape
            ),
        },
    )
    rng = np.random.default_rng(1)
    weights, labels = 0.1 * rng.normal(size=words), np.sign(rng.normal(size=rows))
    step = dv.tensor.value_and_gradient(dv.tensor.parse(LOGISTIC, {"A": M, "X": V, "Y": V}), "X")
    yield (
        f"logistic regression, {rows:,} texts with {in_each} of {words:,} words",
        {
            "derivable": lambda: step(A=A, X=weights, Y=labels),
            "Numba": lambda: logistic(A.indptr, A.indices, A.data, weights, labels),
        },
    )


def ratings(users: int, items: int, in_each: int, factors: int) -> Iterator[Case]:
    A, rng = _rows_of(users, items, in_each), np.random.default_rng(2)
    left, right = rng.normal(size=(users, factors)), rng.normal(size=(items, factors))
    step = dv.tensor.value_and_gradient(dv.tensor.parse(FACTORS, {"A": M, "U": M, "W": M}), ["U", "W"])

    def ours() -> tuple:
        value, gradients = step(A=A, U=left, W=right)
        return value, *gradients

    yield (
        f"factorisation, {users:,} users with {in_each} of {items:,} items, {factors} factors",
        {"derivable": ours, "Numba": lambda: factorisation(A.indptr, A.indices, A.data, left, right)},
    )


def _rows_of(rows: int, columns: int, in_each: int) -> sp.csr_array:
    rng = np.random.default_rng(rows + columns)
    places = rng.integers(0, columns, (rows, in_each))
    made = sp.csr_array((rng.normal(size=places.size), places.ravel(), np.arange(rows + 1) * in_each), (rows, columns))
    made.sum_duplicates()
    return made


def steps(small: bool) -> Iterator[Case]:
    for scale in (100,) if small else (100, 1):
        yield from texts(100_000 // scale, 50_000 // scale, 50)
        for factors in (8, 32):
            yield from ratings(100_000 // scale, 20_000 // scale, 50, factors)
